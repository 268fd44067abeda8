//! Tries every controller on every simulated plant and prints the table of
//! `docs/results/controllers-simulated.md`.
//!
//! `cargo run -p tidegate-control --example plants --release`

#![expect(clippy::print_stdout, reason = "printing a table is what this program is for")]

use std::ops::RangeInclusive;

use tidegate_control::plant::{Curve, Plant, Simulation};
use tidegate_control::{
    Bounds, Controller, HillClimbing, HillClimbingSettings, Mpl, Parabola, ParabolaSettings,
};

const SEEDS: RangeInclusive<u64> = 1_001..=1_020;
const CLIENTS: u32 = 1_000;
const INTERVALS: usize = 240;
/// Intervals left out of the mean: the climb.
const CLIMB: usize = 60;
/// Intervals averaged to tell whether a run has settled: more than one cycle of probing.
const WINDOW: usize = 20;
const SETTLED_SHARE: f64 = 0.9;
const STARTS: [u32; 6] = [1, 6, 8, 64, 500, 1_000];
const NOISES: [f64; 2] = [0.0, 0.05];

type Make = fn(Bounds, Mpl) -> Box<dyn Controller>;

const CONTROLLERS: [(&str, Make); 6] = [
    ("hill climbing, proxy", |bounds, start| Box::new(HillClimbing::for_proxy(bounds, start))),
    ("global parabola, proxy", |bounds, start| {
        Box::new(Parabola::global(bounds, start, ParabolaSettings::PROXY))
    }),
    ("local parabola, proxy", |bounds, start| {
        Box::new(Parabola::local(bounds, start, ParabolaSettings::PROXY))
    }),
    ("hill climbing, study", |bounds, start| {
        Box::new(HillClimbing::new(bounds, start, HillClimbingSettings::STUDY))
    }),
    ("global parabola, study", |bounds, start| {
        Box::new(Parabola::global(bounds, start, ParabolaSettings::STUDY))
    }),
    ("local parabola, study", |bounds, start| {
        Box::new(Parabola::local(bounds, start, ParabolaSettings::STUDY))
    }),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bounds = Bounds::new(Mpl::ONE, Mpl::at_least_one(1_000))?;
    for curve in Curve::ALL {
        for noise in NOISES {
            let plant = Plant { curve, clients: CLIENTS, noise };
            print_plant(&plant, bounds);
        }
    }
    Ok(())
}

fn print_plant(plant: &Plant, bounds: Bounds) {
    println!("\n### {}, noise {:.0} %\n", plant.curve.name, plant.noise * 100.0);
    let starts: Vec<String> = STARTS.iter().map(|start| format!("from {start}")).collect();
    println!("| controller | {} |", starts.join(" | "));
    println!("| --- |{}", " ---: |".repeat(STARTS.len()));
    for (name, make) in CONTROLLERS {
        let cells: Vec<String> = STARTS
            .iter()
            .map(|&start| cell(plant, make, bounds, Mpl::at_least_one(start)))
            .collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
}

/// Mean share of the best fixed limit once settled, and the intervals it took: the median of the
/// runs and the longest.
fn cell(plant: &Plant, make: Make, bounds: Bounds, start: Mpl) -> String {
    let runs: Vec<Vec<f64>> =
        SEEDS.map(|seed| shares(plant, Simulation::new(make(bounds, start), seed))).collect();
    let share = runs.iter().map(|run| mean(&run[CLIMB..])).sum::<f64>() / runs.len() as f64;
    let mut settled: Vec<usize> = runs.iter().map(|run| intervals_to_settle(run)).collect();
    settled.sort_unstable();
    let (median, longest) = (settled[settled.len() / 2], settled[settled.len() - 1]);
    format!("{:.0} %, {}–{}", share * 100.0, intervals(median), intervals(longest))
}

/// Throughput without noise of each interval, as a share of the best fixed limit's.
fn shares(plant: &Plant, mut simulation: Simulation) -> Vec<f64> {
    let best = plant.best_tps();
    (0..INTERVALS).map(|_| plant.tps(simulation.interval(plant).0.limit) / best).collect()
}

/// The first interval from which a window of intervals averages the share asked for.
fn intervals_to_settle(run: &[f64]) -> usize {
    run.windows(WINDOW).position(|window| mean(window) >= SETTLED_SHARE).unwrap_or(INTERVALS)
}

fn intervals(count: usize) -> String {
    if count == INTERVALS { "never".to_owned() } else { count.to_string() }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
