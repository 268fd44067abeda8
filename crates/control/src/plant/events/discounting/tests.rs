//! Beside long holders others go on; a collapse, or transactions that are all long, is not taken
//! for holders. Every plant runs twice, with discounts and without.

use crate::plant::Simulated;
use crate::{Mpl, Observation};

use super::super::{EventsPhase, TransactionClass};
use super::*;

const SEEDS: u64 = 2;
const MPL_MAX: Mpl = Mpl::at_least_one(1_000);

fn class(name: &str, share: f64, cpu_ms: f64) -> TransactionClass {
    TransactionClass { name: name.into(), share, cpu_ms, ..TransactionClass::default() }
}

/// A second is an interval.
fn phase(clients: u32, cpus: u32, classes: Vec<TransactionClass>) -> EventsPhase {
    EventsPhase {
        clients: Some(clients),
        cpus,
        classes,
        interval_s: Some(1.0),
        interval_max_s: Some(1.0),
        ..EventsPhase::default()
    }
}

/// The seconds of a plant at these limits, and the most permits out at the end of any.
fn seconds(mut plant: EventsPlant, limits: &[u32]) -> (Vec<Observation>, u32) {
    let mut most = 0;
    let observe = |&limit: &u32| {
        let seen = plant.interval(Mpl::at_least_one(limit));
        most = most.max(plant.outstanding());
        seen
    };
    (limits.iter().map(observe).collect(), most)
}

/// The same without and with discounts.
fn both(phases: &[EventsPhase], seed: u64, limits: &[u32]) -> [(Vec<Observation>, u32); 2] {
    let plant = EventsPlant::new(phases, seed).unwrap();
    [plant.clone(), plant.with_discounts(MPL_MAX)].map(|plant| seconds(plant, limits))
}

fn completions(seen: &[Observation]) -> u64 {
    seen.iter().map(|second| second.completions).sum()
}

/// About twenty reports of 25 s among transactions of 2 ms, on a machine with room for all.
#[test]
fn beside_long_transactions_others_wait_for_less_than_a_second() {
    for seed in 0..SEEDS {
        let classes = vec![class("short", 1.0, 2.0), class("report", 0.002, 25_000.0)];
        let loaded = EventsPhase { think_s: 0.1, ..phase(60, 64, classes) };
        let [(blocked, _), (seen, most)] = both(&[loaded], seed, &[4; 60]);
        let slowest = |seen: &[Observation]| {
            seen.iter().map(|second| second.classes[0].in_queue.p99_s).fold(0.0, f64::max)
        };
        let (before, after) = (slowest(&blocked), slowest(&seen));
        println!("seed {seed}: p99 {before:.2} s, {after:.2} s; {most} out");
        assert!(before > 2.0 && after <= 1.0, "seed {seed}: {before:.2} s and {after:.2} s");
        assert!(completions(&seen) > completions(&blocked), "seed {seed}");
        let last = &seen[40..];
        assert!(last.iter().all(|second| second.running <= 4), "seed {seed}: above the limit");
        assert!(last.iter().all(|second| second.discounted > 4), "seed {seed}: no reports");
        let longest = last.iter().map(|second| second.in_database.mean_s).fold(0.0, f64::max);
        assert!(longest < 0.1, "seed {seed}: a report's end is told as {longest:.2} s");
    }
}

/// Thrashing on locks: 485 tps at 32, a tenth of that with hundreds inside.
#[test]
fn thrashing_on_locks_is_not_opened_further() {
    let update = TransactionClass { locks: 8, write_share: 0.6, reads: 3, ..class("u", 1.0, 1.0) };
    let locking =
        EventsPhase { disks: 8, disk_ms: 4.0, items: 1_200, ..phase(900, 4, vec![update]) };
    for high in [128, 500] {
        let limits = [vec![32; 6], vec![high; 12], vec![32; 6]].concat();
        // A run that is looked at every 20 ms draws other numbers: only the sums compare.
        let (mut before, mut after) = (0, 0);
        for seed in 0..2 * SEEDS {
            let [(plain, _), (seen, most)] = both(std::slice::from_ref(&locking), seed, &limits);
            println!("seed {seed}, {high}: {most} out");
            assert!(most <= high + high / 10, "seed {seed}, {high}: {most} out");
            before += completions(&plain[6..]);
            after += completions(&seen[6..]);
        }
        println!("{high}: {before} and {after} completed");
        assert!(after as f64 > 0.9 * before as f64, "{high}: {before} and {after} completed");
    }
}

/// The machine becomes forty times slower at once: every transaction takes 640 ms, not 16.
#[test]
fn when_everything_becomes_slow_the_gate_stays_shut() {
    for seed in 0..SEEDS {
        let fast = EventsPhase { intervals: 3, ..phase(400, 4, vec![class("t", 1.0, 2.0)]) };
        let slow = phase(400, 4, vec![class("t", 1.0, 80.0)]);
        let [(plain, _), (seen, most)] = both(&[fast, slow], seed, &[32; 40]);
        let [before, after] = [&plain, &seen].map(|seen| completions(&seen[3..]));
        println!("seed {seed}: {before} and {after} completed, {most} out");
        assert!(most <= 48, "seed {seed}: {most} out, and 96 would be the bound of the rule");
        assert!(after as f64 > 0.95 * before as f64, "seed {seed}: {before}, {after}");
    }
}

/// Transactions of a second, of ten, and such as take ten only because there are many: the bound
/// holds from the start, and once they are known to be normal the limit is obeyed again.
#[test]
fn where_long_is_normal_the_limit_is_obeyed_in_the_end() {
    for seed in 0..SEEDS {
        for (cpu_ms, cpus) in [(1_000.0, 400), (10_000.0, 400), (1_000.0, 8)] {
            let long = phase(300, cpus, vec![class("long", 1.0, cpu_ms)]);
            let [_, (seen, most)] = both(&[long], seed, &[4; 160]);
            println!("seed {seed}, {cpu_ms} ms on {cpus}: {most} out");
            assert!(most <= 68, "seed {seed}: {most} out");
            let late = seen[130..].iter().map(|second| second.discounted).max().unwrap();
            assert_eq!(late, 0, "seed {seed}, {cpu_ms} ms on {cpus}");
        }
    }
}
