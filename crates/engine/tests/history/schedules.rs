//! Schedules drawn at random: what each level forbids is not seen, what it permits is.
//!
//! A seed stands for what the clients want to do, for the shape of the tree and for the order of
//! turns. Half of the schedules are played in turns and can be repeated; in the other half the
//! threads run as they like, which finds what happens inside of one operation. Of each half, half
//! check for a deadlock whenever somebody blocks, and half leave that to a detector.

use std::fmt::Write;
use std::ops::Range;

use tidegate_engine::{Direction, Isolation};
use tidegate_runtime::{entropy, explore};

use super::checker::{Anomaly, Violation, check, forbidden};
use super::client::{Plan, Planted, Span, Step};
use super::history::Key;
use super::reduce::smallest;
use super::run::{Outcome, Pace, Setup, run};
use super::{LEVELS, Random};

const CLIENTS: usize = 4;

/// Keys of the schedules are below this one.
const KEYS: u64 = 12;

/// What one seed stands for.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) seed: u64,
    pub(crate) setup: Setup,
    pub(crate) plans: Vec<Vec<Plan>>,
    pub(crate) is_free: bool,
}

impl Schedule {
    fn new(seed: u64, isolation: Isolation) -> Schedule {
        let mut random = Random::new(seed);
        let is_free = seed & 1 > 0;
        let setup = Setup {
            check_on_block: seed & 2 > 0,
            // All keys in one leaf, or a few in each.
            padding: if seed & 4 > 0 { 0 } else { 900 },
            keys: (0..12).filter(|_| random.below(3) > 0).collect(),
            attempts: 4,
            ..Setup::new(isolation)
        };
        let txns = if is_free { 30 } else { 10 };
        let mut plans = || (0..txns).map(|_| plan(&mut random, KEYS)).collect();
        Schedule { seed, setup, plans: (0..CLIENTS).map(|_| plans()).collect(), is_free }
    }

    pub(crate) fn run(&self) -> Outcome {
        let mut random = Random::new(!self.seed);
        let mut pick = |ready: &[usize]| ready[random.index(ready.len())];
        let pace = if self.is_free { Pace::Free } else { Pace::Turns(&mut pick) };
        match run(&self.setup, &self.plans, pace) {
            Ok(outcome) => outcome,
            Err(error) => panic!("{error}\n{}", describe(self)),
        }
    }
}

fn plan(random: &mut Random, keys: u64) -> Plan {
    let steps = (0..=random.below(6)).map(|_| step(random, keys)).collect();
    Plan { steps, is_committed: random.below(6) > 0 }
}

fn step(random: &mut Random, keys: u64) -> Step {
    let key = |random: &mut Random| Key::try_from(random.below(keys)).unwrap();
    let span = |random: &mut Random| span(random, keys);
    match random.below(100) {
        0..=19 => Step::Get(key(random)),
        20..=31 => Step::Scan(span(random)),
        32..=43 => Step::Walk(span(random)),
        44..=49 => Step::Pop(Span { most: 1, ..span(random) }),
        50..=61 => Step::Insert(key(random)),
        62..=71 => Step::Update(key(random)),
        72..=77 => Step::Put(key(random)),
        78..=91 => Step::Remove(key(random)),
        92..=95 => Step::Mark,
        _ => Step::Undo,
    }
}

fn span(random: &mut Random, keys: u64) -> Span {
    let mut bound = || Key::try_from(random.below(keys)).unwrap();
    let (one, other) = (bound(), bound());
    Span {
        low: one.min(other),
        high: if random.below(8) == 0 { Key::MAX } else { one.max(other) },
        way: if random.below(2) == 0 { Direction::Up } else { Direction::Down },
        is_open: random.below(2) == 0,
        most: if random.below(3) == 0 { 1 + random.index(2) } else { usize::MAX },
    }
}

/// What is seen of a schedule that its level forbids, the schedule made small.
fn complaint(schedule: &Schedule, found: &[Violation]) -> String {
    let isolation = schedule.setup.isolation;
    let is_wrong = |outcome: &Outcome| !forbidden(&outcome.history, isolation).is_empty();
    let (small, outcome) = smallest(schedule, is_wrong);
    let small = match outcome {
        Some(outcome) => {
            let found = forbidden(&outcome.history, isolation);
            format!("the same in small: {}\n{}", describe(&small), tell(&found))
        }
        None => "it cannot be repeated, as the threads ran as they liked".to_owned(),
    };
    format!("seed {}, {isolation:?}\n{}\n{small}", schedule.seed, tell(found))
}

fn describe(schedule: &Schedule) -> String {
    let mut text = format!("seed {}, {:?}\n", schedule.seed, schedule.setup);
    for (client, plans) in schedule.plans.iter().enumerate() {
        for plan in plans {
            let _ = writeln!(text, "  client {}: {plan:?}", client + 1);
        }
    }
    text
}

fn tell(found: &[Violation]) -> String {
    let mut text = String::new();
    for violation in found {
        let _ = writeln!(text, "{:?}\n{}", violation.anomaly, violation.text);
    }
    text
}

fn judge(seeds: Range<u64>, isolation: Isolation) {
    for seed in seeds {
        let schedule = Schedule::new(seed, isolation);
        let found = forbidden(&schedule.run().history, isolation);
        assert!(found.is_empty(), "{}", complaint(&schedule, &found));
    }
}

/// Few clients with few transactions on few keys, by a schedule that a machine draws: it switches
/// within operations, at every lock.
fn drawn(isolation: Isolation) {
    let mut random = Random::new(entropy());
    let seed = random.draw();
    let setup = Setup {
        check_on_block: true,
        padding: if seed & 1 > 0 { 0 } else { 1_900 },
        keys: (0..4).filter(|_| random.below(2) > 0).collect(),
        attempts: 4,
        timeout: None,
        ..Setup::new(isolation)
    };
    let mut plans = || (0..2).map(|_| plan(&mut random, 4)).collect();
    let plans: Vec<Vec<Plan>> = (0..3).map(|_| plans()).collect();
    let schedule = Schedule { seed, setup, plans, is_free: true };
    match run(&schedule.setup, &schedule.plans, Pace::Drawn) {
        Ok(outcome) => {
            let found = forbidden(&outcome.history, isolation);
            assert!(found.is_empty(), "{}{}", tell(&found), describe(&schedule));
        }
        Err(error) => panic!("{error}\n{}", describe(&schedule)),
    }
}

const DRAWN: [(&str, fn()); 3] = [
    ("isolation, serializable", || drawn(Isolation::Serializable)),
    ("isolation, repeatable read", || drawn(Isolation::RepeatableRead)),
    ("isolation, read committed", || drawn(Isolation::ReadCommitted)),
];

#[test]
fn drawn_schedules_show_nothing_that_a_level_forbids() {
    for (name, program) in DRAWN {
        println!("{}", explore(name, 30, program));
    }
}

#[test]
#[ignore = "soak: 4,000 schedules at each level"]
fn many_drawn_schedules_show_nothing_that_a_level_forbids() {
    for (name, program) in DRAWN {
        println!("{}", explore(name, 4_000, program));
    }
}

/// How many of the seeds show each anomaly.
fn count(seeds: Range<u64>, isolation: Isolation, planted: Planted) -> Vec<(Anomaly, usize)> {
    let mut counts: Vec<(Anomaly, usize)> = Vec::new();
    for seed in seeds {
        let mut schedule = Schedule::new(seed, isolation);
        schedule.setup.planted = planted;
        for Violation { anomaly, .. } in check(&schedule.run().history) {
            match counts.iter_mut().find(|(counted, _)| *counted == anomaly) {
                Some((_, count)) => *count += 1,
                None => counts.push((anomaly, 1)),
            }
        }
    }
    counts
}

#[test]
fn read_uncommitted_shows_nothing_that_it_forbids() {
    println!("seeds 0 to 39");
    judge(0..40, Isolation::ReadUncommitted);
}

#[test]
fn read_committed_shows_nothing_that_it_forbids() {
    println!("seeds 0 to 39");
    judge(0..40, Isolation::ReadCommitted);
}

#[test]
fn repeatable_read_shows_nothing_that_it_forbids() {
    println!("seeds 0 to 39");
    judge(0..40, Isolation::RepeatableRead);
}

#[test]
fn serializable_schedules_show_nothing_at_all() {
    println!("seeds 0 to 39");
    judge(0..40, Isolation::Serializable);
}

#[test]
#[ignore = "soak: some minutes of schedules"]
fn no_level_shows_what_it_forbids_for_long() {
    println!("seeds 1000 to 5999 at each level");
    for level in LEVELS {
        judge(1_000..6_000, level);
    }
}

/// Otherwise the schedules would be too tame to show a defect.
#[test]
fn every_level_shows_what_it_permits() {
    use Anomaly::{
        AbortedRead, CircularFlow, IntermediateRead, LostUpdate, Phantom, ReadSkew, WriteSkew,
    };
    println!("seeds 0 to 23");
    for (level, expected) in [
        (Isolation::ReadUncommitted, &[AbortedRead, IntermediateRead, CircularFlow, Phantom][..]),
        (Isolation::ReadCommitted, &[LostUpdate, ReadSkew, WriteSkew, Phantom]),
        (Isolation::RepeatableRead, &[Phantom]),
    ] {
        let counts = count(0..24, level, Planted::Nothing);
        for anomaly in expected {
            let is_seen = counts.iter().any(|(counted, _)| counted == anomaly);
            assert!(is_seen, "{level:?} shows no {anomaly:?}: {counts:?}");
        }
    }
}

#[test]
fn what_is_done_wrong_is_found() {
    use Anomaly::{AbortedRead, Broken, CircularFlow, DirtyWrite};
    println!("seeds 0 to 15");
    for (level, planted, expected) in [
        (Isolation::Serializable, Planted::ReadsApart, [AbortedRead, CircularFlow]),
        (Isolation::ReadUncommitted, Planted::WritesApart, [Broken, DirtyWrite]),
    ] {
        let counts = count(0..16, level, planted);
        for anomaly in expected {
            let is_seen = counts.iter().any(|(counted, _)| *counted == anomaly);
            assert!(is_seen, "{planted:?} at {level:?} shows no {anomaly:?}: {counts:?}");
        }
    }
}

/// Made small, a schedule has little left beside what is wrong with it.
#[test]
fn a_schedule_is_made_small() {
    let mut schedule = Schedule::new(8, Isolation::Serializable);
    schedule.setup.planted = Planted::ReadsApart;
    schedule.plans.truncate(2);
    schedule.plans.iter_mut().for_each(|plans| plans.truncate(3));
    let is_wrong = |outcome: &Outcome| {
        check(&outcome.history).iter().any(|found| found.anomaly == Anomaly::AbortedRead)
    };
    let (small, outcome) = smallest(&schedule, is_wrong);
    assert!(outcome.is_some_and(|outcome| is_wrong(&outcome)));
    let steps: usize = small.plans.iter().flatten().map(|plan| plan.steps.len()).sum();
    assert!(steps <= 4, "{}", describe(&small));
}
