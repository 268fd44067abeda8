//! In which order tasks take turns when a machine looks for orders in which a program fails.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::str::FromStr;
use std::time::{Duration, Instant};

use tidegate_random::SplitMix64;

use super::Machine;
use crate::thread;

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
#[error("fails by {strategy}: {message}")]
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
///
/// # Panics
///
/// If the system has no more threads.
pub fn search(
    strategies: impl IntoIterator<Item = Strategy>,
    program: impl Fn() + Clone + Send + 'static,
) -> Result<(), Failure> {
    let strategies: Vec<Strategy> = strategies.into_iter().collect();
    on_own_thread(move || {
        let mut runs = strategies.into_iter().map(|strategy| run_by(strategy, program.clone()));
        runs.try_for_each(|run| run.map(drop))
    })
}

/// Calls a function on a thread of its own: of a run that is given up while a task unwinds, that
/// thread panics for ever, as the standard library sees it.
fn on_own_thread<T: Send + 'static>(function: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().name("schedules".into()).spawn(function);
    thread.expect("there is room for a thread").join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs a program by one strategy. Returns how many steps it took.
fn run_by(strategy: Strategy, program: impl FnOnce() + Send + 'static) -> Result<u64, Failure> {
    let run = || Machine::schedules(strategy).run(program);
    let message = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(report)) => return Ok(report.usage.switches),
        Ok(Err(error)) => error.to_string(),
        Err(panic) => panic_text(&*panic),
    };
    Err(Failure { strategy, message })
}

/// Returns what was said in a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).into(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a text".into(),
    }
}

/// The environment variable with the one schedule that [`explore`] runs, as a failure names it.
const ONE: &str = "TIDEGATE_SCHEDULE";
/// The environment variable with the number of schedules that [`explore`] runs.
const COUNT: &str = "TIDEGATE_SCHEDULES";

/// What [`explore`] has run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explored {
    /// What the program is called.
    pub name: String,
    /// How many schedules.
    pub schedules: u64,
    /// Points of all of them at which the machine chose who goes on.
    pub steps: u64,
    /// Time that it took, by the system's clock.
    pub time: Duration,
}

impl fmt::Display for Explored {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explored { name, schedules, steps, time } = self;
        write!(formatter, "{name}: {schedules} schedules, {steps} steps, {time:.1?}")
    }
}

/// Runs a program by drawn schedules, from the same seeds each time, for a test: every other one is
/// random, and the others go by priorities with one to four changes.
///
/// If the environment variable `TIDEGATE_SCHEDULE` holds a schedule, as the text of a failure names
/// it, only that one is run; `TIDEGATE_SCHEDULES` gives their number in place of `schedules`.
///
/// # Panics
///
/// If the program fails by a schedule, with how to run that one again, or if an environment
/// variable cannot be read.
pub fn explore(
    name: &str,
    schedules: u64,
    program: impl Fn() + Clone + Send + 'static,
) -> Explored {
    let began = Instant::now();
    let variable = |variable| std::env::var(variable).ok();
    let one: Option<Strategy> =
        variable(ONE).map(|text| text.parse().unwrap_or_else(|error| panic!("{ONE}: {error}")));
    let schedules = variable(COUNT).map_or(schedules, |count| {
        count.parse().unwrap_or_else(|_| panic!("{COUNT} is a number, not {count}"))
    });
    let schedules = if one.is_some() { 1 } else { schedules };
    let runs = move || {
        let (mut steps, mut length) = (0, 1);
        for number in 0..schedules {
            let strategy = one.unwrap_or_else(|| Strategy::drawn(number, length));
            steps += run_by(strategy, program.clone()).map_err(|failure| (number + 1, failure))?;
            length = length.max(u32::try_from(steps / (number + 1)).unwrap_or(u32::MAX));
        }
        Ok(steps)
    };
    let steps = on_own_thread(runs).unwrap_or_else(|(number, failure): (u64, Failure)| {
        let again = failure.strategy;
        panic!(
            "{name}: schedule {number} of {schedules} {failure}\nrun it again with {ONE}={again}"
        )
    });
    Explored { name: name.into(), schedules, steps, time: began.elapsed() }
}

/// Runs bodies as tasks, or as threads, and waits for all of them.
///
/// # Panics
///
/// With what one of them panicked with, or if the system has no more threads.
pub fn run_all<T: Send + 'static, B: FnOnce() -> T + Send + 'static>(
    bodies: impl IntoIterator<Item = B>,
) -> Vec<T> {
    let start = |body| thread::spawn("task", body).expect("there is room for a task");
    let tasks: Vec<_> = bodies.into_iter().map(start).collect();
    let result = |task: thread::JoinHandle<T>| task.join().unwrap_or_else(|e| resume_unwind(e));
    tasks.into_iter().map(result).collect()
}

impl fmt::Display for Strategy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Random { seed } => write!(formatter, "random:{seed}"),
            Strategy::Priorities { seed, changes, steps } => {
                write!(formatter, "priorities:{seed}:{changes}:{steps}")
            }
        }
    }
}

/// The text names no strategy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no schedule; write random:SEED or priorities:SEED:CHANGES:STEPS")]
pub struct BadStrategy(String);

impl FromStr for Strategy {
    type Err = BadStrategy;

    fn from_str(text: &str) -> Result<Strategy, BadStrategy> {
        let bad = || BadStrategy(text.into());
        let parts: Vec<&str> = text.split(':').collect();
        let small = |part: &str| part.parse::<u32>().map_err(|_| bad());
        match parts[..] {
            ["random", seed] => Ok(Strategy::Random { seed: seed.parse().map_err(|_| bad())? }),
            ["priorities", seed, changes, steps] => Ok(Strategy::Priorities {
                seed: seed.parse().map_err(|_| bad())?,
                changes: small(changes)?,
                // Changes are drawn among the steps.
                steps: small(steps)?.max(1),
            }),
            _ => Err(bad()),
        }
    }
}

impl Strategy {
    /// Returns the strategy that [`explore`] takes for the schedule of this number, when those
    /// before took `steps` steps, about.
    fn drawn(number: u64, steps: u32) -> Strategy {
        let seed = number / 2;
        if number.is_multiple_of(2) {
            return Strategy::Random { seed };
        }
        let changes = u32::try_from(seed % 4).expect("it is below 4") + 1;
        Strategy::Priorities { seed, changes, steps }
    }

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
