//! What a decision costs: time, and memory kept.
//!
//! Each controller runs on a plant for some hundred intervals; then, anew, on what was observed
//! there, with a clock around every decision. Memory is what was allocated since before the
//! controller was made and is still held after the last decision.
//!
//! ```text
//! cargo bench -p tidegate-control --bench decide
//! ```

#![expect(clippy::print_stdout, reason = "printing figures is what a benchmark is for")]

use std::alloc::System;
use std::hint::black_box;
use std::time::Instant;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tidegate_control::plant::{Curve, CurvePhase, CurvePlant, Simulation};
use tidegate_control::{Algorithm, Bounds, Draw, Mpl, Observation, Resources, Setting, SplitMix64};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const INTERVALS: usize = 400;
const SEEDS: u64 = 20;

fn main() {
    println!("{:<22} {:>9} {:>9} {:>9} {:>9}", "", "mean", "p99", "highest", "memory");
    println!("{:<22} {:>9} {:>9} {:>9} {:>9}", "", "us", "us", "us", "KiB");
    for algorithm in Algorithm::ALL {
        measure(algorithm);
    }
}

fn setting(start: u32) -> Setting {
    let bounds = Bounds::new(Mpl::ONE, Mpl::at_least_one(1_000)).expect("1 is below 1,000");
    let resources = Resources { cpus: 2, disks: 1 };
    Setting { bounds, start: Mpl::at_least_one(start), resources }
}

/// What the algorithm sees on a plant that changes half way.
fn observed(algorithm: Algorithm, seed: u64) -> Vec<Observation> {
    let phase = |points| {
        let curve = Curve::new(points).expect("a curve");
        let intervals = u32::try_from(INTERVALS / 2).expect("small");
        CurvePhase { intervals, ..CurvePhase::closed(curve, 1_000, 0.05) }
    };
    let phases = [phase(Curve::HILL), phase(Curve::POSTGRES_TPCB)];
    let mut plant = CurvePlant::new(&phases, seed);
    let mut simulation = Simulation::new(algorithm.controller(&setting(64)), seed);
    (0..INTERVALS).map(|_| simulation.interval(&mut plant).0).collect()
}

fn measure(algorithm: Algorithm) {
    let mut micros = Vec::new();
    let mut memory = 0;
    for seed in 0..SEEDS {
        let observations = observed(algorithm, seed);
        let draws: Vec<Draw> = {
            let mut random = SplitMix64::new(seed);
            observations.iter().map(|_| random.next_draw()).collect()
        };
        micros.reserve(INTERVALS);
        let region = Region::new(ALLOCATOR);
        let mut controller = algorithm.controller(&setting(64));
        for (observation, &draw) in observations.iter().zip(&draws) {
            let start = Instant::now();
            black_box(controller.decide(black_box(observation), draw));
            micros.push(start.elapsed().as_secs_f64() * 1e6);
        }
        let held = region.change();
        memory = memory.max(held.bytes_allocated.saturating_sub(held.bytes_deallocated));
    }
    micros.sort_by(f64::total_cmp);
    let mean = micros.iter().sum::<f64>() / micros.len() as f64;
    let at = |share: usize| micros[(micros.len() - 1) * share / 1_000];
    let kib = memory as f64 / 1024.0;
    println!("{:<22} {mean:>9.2} {:>9.2} {:>9.2} {kib:>9.1}", algorithm.name(), at(990), at(1_000));
}
