//! scratch
#![allow(missing_docs, clippy::all, clippy::pedantic, clippy::print_stdout)]
use tidegate_control::*;
use std::time::Duration;
const HILL: &[(u32,f64)] = &[ (1, 330.0), (20, 6_000.0), (67, 13_900.0), (130, 15_400.0), (278, 13_900.0), (500, 9_000.0), (1_000, 3_000.0), ];
const FLAT: &[(u32,f64)] = &[(1, 1_500.0), (350, 1_500.0), (1_000, 600.0)];
const TAIL: &[(u32,f64)] = &[ (1, 400.0), (10, 3_000.0), (40, 5_000.0), (100, 3_600.0), (200, 3_000.0), (1_000, 3_000.0), ];
const SAT: &[(u32,f64)] = &[ (1, 100.0), (3, 250.0), (9, 500.0), (21, 700.0), (36, 800.0), (81, 900.0), (171, 950.0), (441, 980.0), (991, 991.0), ];
const PG: &[(u32,f64)] = &[ (1, 1_100.0), (2, 2_720.0), (3, 2_330.0), (4, 2_380.0), (6, 2_380.0), (8, 2_280.0), (16, 2_050.0), (32, 1_730.0), (64, 1_290.0), (256, 545.0), (1_000, 162.0), ];
const M4: &[(u32,f64)] = &[(0,1000.0)];
fn tps(c: &[(u32,f64)], n: u32) -> f64 {
    if c.len()==1 { return c[0].1 * n as f64 / (n as f64 + 3.0); }
    let i = c.iter().position(|p| p.0 >= n);
    match i { Some(0) => c[0].1, None => c[c.len()-1].1, Some(i) => { let (a,b)=(c[i-1],c[i]); let l=|x:u32| (x as f64).ln(); let s=(l(n)-l(a.0))/(l(b.0)-l(a.0)); a.1*(b.1/a.1).powf(s) } }
}
fn normal(r: &mut SplitMix64) -> f64 { (-2.0*(1.0-r.next_draw().value()).ln()).sqrt()*(std::f64::consts::TAU*r.next_draw().value()).cos() }
fn observe(c: &[(u32,f64)], limit: Mpl, clients: u32, noise: f64, r: &mut SplitMix64) -> Observation {
    let inside = limit.get().min(clients);
    let completions = (tps(c, inside) * (1.0 + noise*normal(r)).max(0.0)).round() as u64;
    Observation { interval: Duration::from_secs(1), limit, concurrency: clients, concurrency_peak: clients, concurrency_mean: clients as f64, running_mean: inside as f64, waiting_share: if clients>inside {1.0} else {0.0}, completions, failures: 0, in_database: Timing::default(), in_queue: Timing::default(), locks: None, classes: vec![] }
}
fn main() {
    let bounds = Bounds::new(Mpl::ONE, Mpl::at_least_one(1000)).unwrap();
    let verbose = std::env::args().nth(1);
    for (name, curve) in [("model4", M4), ("hill", HILL), ("flat", FLAT), ("tail", TAIL), ("sat10", SAT), ("pg", PG)] {
      let best = (1..=1000).map(|n| tps(curve, n)).fold(0.0, f64::max);
      let lowest = (1..=1000).find(|&n| tps(curve, n) >= 0.95*best).unwrap();
      println!("== {name}: lowest {lowest}");
      for stations in [2u32, 4, 10] {
        for noise in [0.0, 0.05] {
            for start in [None, Some(1u32), Some(200), Some(1000)] {
                for step in [1, 2, 4] {
                let mut outs = vec![];
                for seed in 0..(if noise > 0.0 { 8 } else { 1 }) {
                let settings = ExternalSchedulingSettings { stations, step: Step::Absolute(step), ..ExternalSchedulingSettings::DEFAULT };
                let mut c = match start { None => ExternalScheduling::from_model(bounds, settings), Some(s) => ExternalScheduling::new(bounds, Mpl::at_least_one(s), settings) };
                let mut random = SplitMix64::new(seed);
                let mut limit = c.start();
                let mut found = None;
                let mut windows = 0;
                for i in 0..8000 {
                    let o = observe(curve, limit, 1000, noise, &mut random);
                    let d = c.decide(&o, Draw::from_bits(0));
                    limit = d.limit;
                    let r = d.reason.to_string();
                    if !r.starts_with("observe") { windows += 1; }
                    if verbose.as_deref() == Some(name) && noise == 0.0 && stations == 4 && step == 2 { if !r.starts_with("observe") && !r.starts_with("hold") { println!("    {} {} -> {} {}", i, o.limit, d.limit, r); } }
                    if r.starts_with("found") { found = Some((i, d.limit.get(), windows, (100.0*tps(curve, d.limit.get())/best).round())); break }
                }
                outs.push(found);
                }
                println!("{} M{} noise {} start {:?} {:?}: {}", name, stations, noise, start, step, outs.iter().map(|f| match f { Some((i,l,w,s)) => format!("{l}@{i}/{w}w {s}%"), None => "-".into() }).collect::<Vec<_>>().join("  "));
                }
            }
        }
      }
    }
}
