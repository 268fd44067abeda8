//! Scratch.
use tidegate_control::plant::*;
use tidegate_control::*;

fn uni(r: &mut SplitMix64, lo: f64, hi: f64) -> f64 { lo + (hi - lo) * r.next_draw().value() }
fn logu(r: &mut SplitMix64, lo: f64, hi: f64) -> f64 { (uni(r, lo.ln(), hi.ln())).exp() }

fn random_curve(r: &mut SplitMix64) -> Vec<(u32, f64)> {
    let kind = (uni(r, 0.0, 5.0)) as u32; let peak = (uni(r, 2.0, 7.0)).floor(); let drop = uni(r, 0.05, 0.2); let tail = uni(r, 0.02, 0.15);
    let scale = logu(r, 50.0, 5000.0);
    let m = logu(r, 1.0, 30.0);
    let n0 = logu(r, 3.0, 1500.0);
    let p = uni(r, 0.2, 1.2);
    let (sigma, kappa) = (logu(r, 0.003, 0.5), logu(r, 1e-7, 0.01));
    let top = uni(r, 0.0, 7.0) * 2f64.ln();
    let (rise, fall) = (uni(r, 0.4, 1.1), uni(r, 0.1, 0.9));
    let flat = logu(r, 2.0, 600.0);
    let mut pts = vec![]; let mut lvl = 1u32; let mut hill = 0.0; let mut lastx = 0.0;
    loop {
        let n = f64::from(lvl);
        let x = n.ln();
        let mid = 0.5 * (x + lastx);
        hill += (x - lastx) * if mid < top { rise * (1.0 - mid / top) } else { -fall * ((mid - top) / 2.0).min(1.0) };
        lastx = x;
        let y = match kind {
            0 => hill.exp(),
            1 => n / (n + m - 1.0) / (1.0 + (n / n0).powf(1.0 + p)).powf(0.5),
            2 => n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0)),
            4 => if n <= peak { (n / peak).powf(rise) } else { (1.0 - drop) * (-tail * (n / peak).ln().powi(2) * 0.7).exp() },
            _ => n.min(m) / m / (1.0 + (n / (flat + m)).powf(2.0)).powf(p),
        };
        pts.push((lvl, scale * y));
        if lvl >= 1000 { break; }
        lvl = (lvl + (lvl / 10).max(1)).min(1000);
    }
    pts
}

struct Score { swing: f64, share: f64, entry: [Option<u32>; 2], ratio: [f64; 2], settled: f64 }

fn run(make: &dyn Fn(&Setting) -> Box<dyn Controller>, phases: &[CurvePhase], seed: u64, trace: bool) -> Score {
    let mut r = SplitMix64::new(seed ^ 0x55aa);
    let start = logu(&mut r, 1.0, 1000.99) as u32;
    let bounds = Bounds::new(Mpl::ONE, Mpl::at_least_one(1000)).unwrap();
    let setting = Setting { bounds, start: Mpl::at_least_one(start), resources: Resources { cpus: 2, disks: 1 } };
    let mut plant = CurvePlant::new(phases, seed);
    let mut sim = Simulation::new(make(&setting), seed);
    let (mut done, mut could) = (0.0, 0.0);
    let (mut sdone, mut scould) = (0.0, 0.0);
    let mut swing = 0.0; let mut entry = [None; 2]; let mut ratio = [0.0; 2];
    for (k, ph) in phases.iter().enumerate() {
        let best = (1..=1000).map(|n| ph.expected_tps(Mpl::at_least_one(n))).fold(0.0, f64::max);
        let low = (1..=1000).find(|&n| ph.expected_tps(Mpl::at_least_one(n)) >= 0.95 * best).unwrap();
        if trace { println!("phase {k} best {best:.0} low {low} clients {:?} noise {}", ph.clients, ph.noise); }
        let (mut lim, mut lim2) = (0.0, 0.0);
        for i in 0..ph.intervals {
            let (o, d) = sim.interval(&mut plant);
            let s = o.interval.as_secs_f64();
            done += o.completions as f64; could += best * s;
            let tru = ph.expected_tps(o.limit);
            if tru >= 0.95 * best && entry[k].is_none() { entry[k] = Some(i); }
            if i >= ph.intervals / 2 { lim += f64::from(o.limit.get()); lim2 += f64::from(o.limit.get()).powi(2); sdone += o.completions as f64; scould += best * s; }
            if trace { println!("{i:3} lim {:4} run {:6.1} true {:.2} seen {:.2} -> {:4} {}", o.limit, o.running_mean, tru / best, o.throughput_tps() / best, d.limit, d.reason); }
        }
        let c = f64::from(ph.intervals - ph.intervals / 2); swing += (lim2 / c - (lim / c).powi(2)).max(0.0).sqrt() / (lim / c) / 2.0;
        ratio[k] = lim / f64::from(ph.intervals - ph.intervals / 2) / f64::from(low);
    }
    Score { swing, share: done / could, entry, ratio, settled: sdone / scould }
}

fn tuned() -> GaussianProcessSettings {
    let mut s = GaussianProcessSettings::DEFAULT;
    for kv in std::env::args().skip(4) {
        let (k, v) = kv.split_once('=').unwrap(); let v: f64 = v.parse().unwrap();
        match k { "grain" => s.prior.grain = v, "oth" => s.prior.others = v, "sd" => s.prior.slope_sd = v, "len" => s.prior.slope_length = v, "con" => s.prior.contention = v, "rough" => s.prior.roughness = v,
          "price" => s.probe.price = v, "loss" => s.probe.loss = v, "hor" => s.probe.horizon = v, "worth" => s.probe.least_worth = v, "rise" => s.probe.rise = v,
          "slack" => s.change.slack = v, "thr" => s.change.threshold = v, "doubt" => s.change.doubt = v, "mem" => s.memory = v,
          "ldr" => s.level_drift = v, "sdr" => s.shape_drift = v, "noise" => s.noise = v, "drift" => s.drift = v, "dd" => s.drift_doubt = v, _ => panic!() }
    }
    s
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let count: u64 = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(300);
    let trace: Option<u64> = args.get(2).and_then(|a| a.parse().ok());
    let names: Vec<Algorithm> = match args.get(3) { Some(n) => n.split(',').map(|n| n.parse().unwrap()).collect(), None => vec![Algorithm::GaussianProcess] };
    for alg in names {
        let t = std::time::Instant::now();
        let (mut share, mut settled, mut e, mut within, mut ratio, mut worst) = (0.0, 0.0, 0, [0, 0], 0.0, vec![]);
        let mut lr = 0.0; let mut swing = 0.0; let mut maxr: Vec<(f64, u64)> = vec![]; let mut late = vec![];
        for seed in 1000..1000 + count {
            let mut r = SplitMix64::new(seed);
            let mut phases = vec![];
            let noise = logu(&mut r, 0.01, 0.1);
            let clients = logu(&mut r, 100.0, 1000.0) as u32;
            for _ in 0..2 {
                let c = random_curve(&mut r);
                let mut p = CurvePhase::closed(Curve::new(&c).unwrap(), clients, noise);
                p.intervals = 120; phases.push(p);
            }
            if trace.is_some_and(|t| t != seed) { continue; }
            let s = run(&|s| if alg == Algorithm::GaussianProcess { Box::new(GaussianProcess::new(s, tuned())) } else { alg.controller(s) }, &phases, seed, trace.is_some());
            share += s.share; settled += s.settled; swing += s.swing;
            for k in 0..2 { e += 1; if s.entry[k].is_some_and(|i| i <= 10) { within[k] += 1 } else { late.push(seed) } ratio += s.ratio[k]; lr += s.ratio[k].ln(); maxr.push((s.ratio[k], seed)); }
            worst.push((s.share, seed));
        }
        worst.sort_by(|a, b| a.0.total_cmp(&b.0)); maxr.sort_by(|a, b| b.0.total_cmp(&a.0));
        let n = worst.len() as f64;
        println!("{alg}: share {:.4} settled {:.4} entry {:?} of {} ratio {:.2} geo {:.3} swing {:.3} p5 {:.3} worst {:?} maxratio {:?} late {:?} {:.2}us", share / n, settled / n, within, e / 2, ratio / (2.0 * n), (lr / (2.0 * n)).exp(), swing / n, worst[(n * 0.05) as usize].0, &worst[..worst.len().min(6)], &maxr[..maxr.len().min(6)], &late[..late.len().min(8)], t.elapsed().as_secs_f64() * 1e6 / n / 240.0);
    }
}
