//! In which order tasks take turns when a machine looks for orders in which a program fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate_random::SplitMix64;

use super::Machine;

/// How the next task is drawn at each point where a switch may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Each task that can run is as likely as any other.
    Random {
        /// Of the draws.
        seed: u64,
    },
    /// Tasks have priorities in random order, and the highest that can run does; at `changes`
    /// random points the one that runs gets the lowest. A bug that needs d orderings is found with
    /// probability at least 1 / (tasks * steps^(d - 1)) if `changes` is d - 1 (Burckhardt, Kothari,
    /// Musuvathi and Nagarakatte, ASPLOS 2010).
    Priorities {
        /// Of the draws.
        seed: u64,
        /// How many points at which the running task falls behind all others.
        changes: u32,
        /// Points of a run, about; the changes lie among them.
        steps: u32,
    },
}

/// A schedule in which a program failed. The same strategy, with its seed, fails again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fails by {strategy:?}: {message}")]
pub struct Failure {
    /// What drew the schedule.
    pub strategy: Strategy,
    /// What the first task panicked with, or why the run did not end.
    pub message: String,
}

/// Runs a program by each of the strategies, until it fails by one.
///
/// The program fails when its first task panics or when its tasks do not end; panics of other
/// tasks reach it when it joins them. It has to begin with the same state each time.
///
/// # Errors
///
/// [`Failure`] with the first strategy by which it failed.
pub fn search(
    strategies: impl IntoIterator<Item = Strategy>,
    program: impl Fn() + Clone + Send + 'static,
) -> Result<(), Failure> {
    for strategy in strategies {
        let program = program.clone();
        let run = || Machine::schedules(strategy).run(program).map(drop);
        let message = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
                (Some(text), _) => (*text).into(),
                (_, Some(text)) => text.clone(),
                _ => "a panic without a text".into(),
            },
        };
        return Err(Failure { strategy, message });
    }
    Ok(())
}

impl Strategy {
    pub(super) const fn seed(self) -> u64 {
        match self {
            Strategy::Random { seed } | Strategy::Priorities { seed, .. } => seed,
        }
    }

    pub(super) fn start(self) -> Box<dyn Choice> {
        match self {
            Strategy::Random { seed } => Box::new(Uniform(SplitMix64::new(SplitMix64::mix(seed)))),
            Strategy::Priorities { seed, changes, steps } => {
                Box::new(Prioritised::new(seed, changes, steps))
            }
        }
    }
}

/// Chooses who runs next.
pub(super) trait Choice {
    /// Returns a place among the tasks that can run, of which there is at least one.
    fn next(&mut self, ready: &[usize]) -> usize;

    /// Hears that a task waits for others by letting them run.
    fn has_yielded(&mut self, _task: usize) {}

    /// Returns whether a time-out happens now, though tasks can run.
    fn fires_timer(&mut self) -> bool;
}

/// One time-out in so many steps, while others can run.
const STEPS_PER_TIMER: u32 = 64;

fn below(random: &mut SplitMix64, end: usize) -> usize {
    random.next_below(u32::try_from(end).expect("fewer tasks than 2^32")) as usize
}

struct Uniform(SplitMix64);

impl Choice for Uniform {
    fn next(&mut self, ready: &[usize]) -> usize {
        below(&mut self.0, ready.len())
    }

    fn fires_timer(&mut self) -> bool {
        self.0.next_below(STEPS_PER_TIMER) == 0
    }
}

struct Prioritised {
    random: SplitMix64,
    /// By task; higher runs first. Those above [`FIRST`] were drawn, those below were assigned
    /// downwards to tasks that fell behind.
    priorities: Vec<u64>,
    next_lowest: u64,
    /// Steps at which the running task falls behind, in falling order.
    changes: Vec<u32>,
    step: u32,
}

const FIRST: u64 = 1 << 40;

impl Prioritised {
    fn new(seed: u64, changes: u32, steps: u32) -> Prioritised {
        let mut random = SplitMix64::new(SplitMix64::mix(seed));
        let mut changes: Vec<u32> = (0..changes).map(|_| random.next_below(steps)).collect();
        changes.sort_unstable_by(|one, two| two.cmp(one));
        Prioritised { random, priorities: Vec::new(), next_lowest: FIRST, changes, step: 0 }
    }

    fn priority(&mut self, task: usize) -> u64 {
        while self.priorities.len() <= task {
            self.priorities.push(FIRST + 1 + (self.random.next_bits() >> 24));
        }
        self.priorities[task]
    }

    fn fall_behind(&mut self, task: usize) {
        self.priority(task);
        self.priorities[task] = self.next_lowest;
        self.next_lowest -= 1;
    }

    fn highest(&mut self, ready: &[usize]) -> usize {
        let best = (0..ready.len()).max_by_key(|place| self.priority(ready[*place]));
        best.expect("a task can run")
    }
}

impl Choice for Prioritised {
    fn next(&mut self, ready: &[usize]) -> usize {
        let place = self.highest(ready);
        self.step += 1;
        if self.changes.last().is_some_and(|change| *change < self.step) {
            self.changes.pop();
            self.fall_behind(ready[place]);
            return self.highest(ready);
        }
        place
    }

    fn has_yielded(&mut self, task: usize) {
        self.fall_behind(task);
    }

    fn fires_timer(&mut self) -> bool {
        self.random.next_below(STEPS_PER_TIMER) == 0
    }
}
