//! Makes a schedule that shows something small, for whoever has to understand it.
//!
//! Whatever can be left out is left out, one thing after the other, as long as what is wrong still
//! happens in one of a few orders of turns (Zeller and Hildebrandt, Simplifying and isolating
//! failure-inducing input, IEEE Transactions on Software Engineering 2002, without their search in
//! halves but for a first cut: a run takes some milliseconds).

use super::run::Outcome;
use super::schedules::Schedule;

/// Orders of turns that are tried for each smaller schedule.
const ORDERS: u64 = 16;

/// Something to leave out.
#[derive(Clone, Copy)]
enum Part {
    /// The later half of what a client does.
    Half(usize),
    Txn(usize, usize),
    Step(usize, usize, usize),
    /// A key that is there from the beginning.
    Key(usize),
}

/// The schedule with every transaction and every step left out that is not needed for `is_wrong`,
/// and what came of it; nothing if what was wrong does not happen again.
pub(crate) fn smallest(
    schedule: &Schedule,
    is_wrong: impl Fn(&Outcome) -> bool,
) -> (Schedule, Option<Outcome>) {
    // Threads that run as they like cannot be made to repeat anything; in turns they may.
    let in_turns = Schedule { is_free: false, ..schedule.clone() };
    let Some((mut small, mut outcome)) = again(&in_turns, &is_wrong) else {
        return (in_turns, None);
    };
    loop {
        let (mut number, mut is_smaller) = (0, false);
        while let Some(&part) = parts(&small).get(number) {
            match again(&without(&small, part), &is_wrong) {
                // What follows has moved up.
                Some(smaller) => ((small, outcome), is_smaller) = (smaller, true),
                None => number += 1,
            }
        }
        if !is_smaller {
            return (small, Some(outcome));
        }
    }
}

/// An order of turns with which it happens again.
fn again(schedule: &Schedule, is_wrong: impl Fn(&Outcome) -> bool) -> Option<(Schedule, Outcome)> {
    (schedule.seed..schedule.seed + ORDERS).find_map(|seed| {
        let schedule = Schedule { seed, ..schedule.clone() };
        let outcome = schedule.run();
        is_wrong(&outcome).then_some((schedule, outcome))
    })
}

/// Everything that could be left out, what is large first.
fn parts(schedule: &Schedule) -> Vec<Part> {
    let mut parts = Vec::new();
    let plans = || schedule.plans.iter().enumerate();
    parts.extend(plans().filter(|(_, plans)| plans.len() > 1).map(|(c, _)| Part::Half(c)));
    let txns = || {
        plans().flat_map(|(client, plans)| {
            plans.iter().enumerate().map(move |(txn, plan)| (client, txn, plan))
        })
    };
    parts.extend(txns().map(|(client, txn, _)| Part::Txn(client, txn)));
    parts.extend(txns().flat_map(|(client, txn, plan)| {
        (0..plan.steps.len()).map(move |step| Part::Step(client, txn, step))
    }));
    parts.extend((0..schedule.setup.keys.len()).map(Part::Key));
    parts
}

fn without(schedule: &Schedule, part: Part) -> Schedule {
    let mut less = schedule.clone();
    match part {
        Part::Half(client) => {
            let half = less.plans[client].len() / 2;
            less.plans[client].truncate(half);
        }
        Part::Txn(client, txn) => {
            less.plans[client].remove(txn);
        }
        Part::Step(client, txn, step) => {
            less.plans[client][txn].steps.remove(step);
        }
        Part::Key(key) => {
            less.setup.keys.remove(key);
        }
    }
    less
}
