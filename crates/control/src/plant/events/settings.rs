//! What a plant is made of, as a file spells it, and what is wrong with it.

use std::collections::BTreeSet;

use serde::Deserialize;

/// The most transactions that may be inside the plant, running and waiting. Who comes to a plant
/// that is so full is turned away, which counts as a failure.
pub(super) const CROWD_MAX: u32 = 200_000;

/// The most completions that the longest interval may have room for.
const COMPLETIONS_MAX: f64 = 1e7;

/// One phase of a plant: the machine, the database, and what is asked of them.
///
/// Every field has a default but the load, one of `clients` and `arrivals_tps`, and the classes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventsPhase {
    /// How many control intervals the phase lasts; the last phase needs none and lasts for ever.
    pub intervals: u32,
    /// A closed load: so many clients, each with at most one transaction; at most 200,000.
    pub clients: Option<u32>,
    /// Mean time between the end of a client's transaction and its next, seconds, exponential.
    pub think_s: f64,
    /// An open load: arrivals per second, Poisson.
    pub arrivals_tps: Option<f64>,
    /// Processors, from 1 to 4,096.
    pub cpus: u32,
    /// Work added to all by each runnable transaction above the number of processors, as a
    /// fraction: 0.001 costs half of the speed at a thousand above it.
    pub cpu_overhead: f64,
    /// Disks that are read from, from 1 to 4,096; each read goes to any of them.
    pub disks: u32,
    /// Mean service of a read from disk, milliseconds, exponential.
    pub disk_ms: f64,
    /// Mean service of a write to the log, which has a disk of its own, milliseconds, exponential.
    pub log_ms: f64,
    /// The share of reads that go to disk when all working sets fit in memory, from 0 to 1.
    pub miss: f64,
    /// Memory for the working sets of the transactions inside, MiB; without it they always fit.
    pub memory_mb: Option<f64>,
    /// Items that can be locked, at most 16,777,216.
    pub items: u32,
    /// The share of the items that is hot, from 0 to 1; at least one item is.
    pub hot_items: f64,
    /// The share of lock requests that go to a hot item, from 0 to 1.
    pub hot_requests: f64,
    /// Mean delay between a rollback and the restart, milliseconds, exponential.
    pub restart_ms: f64,
    /// Restarts after which a transaction that is rolled back gives up and fails; without it a
    /// transaction never gives up.
    pub restarts: Option<u32>,
    /// Standard deviation of the machine's speed from interval to interval, relative, at most 0.5.
    pub noise: f64,
    /// The shortest control interval, seconds. Without it the time for 150 completions at the
    /// highest throughput that the busiest station allows.
    pub interval_s: Option<f64>,
    /// The longest control interval, seconds; without it 30 times the shortest.
    pub interval_max_s: Option<f64>,
    /// The classes of transactions; their shares need not add up to 1.
    #[serde(rename = "class")]
    pub classes: Vec<TransactionClass>,
}

impl Default for EventsPhase {
    fn default() -> EventsPhase {
        EventsPhase {
            intervals: 0,
            clients: None,
            think_s: 0.0,
            arrivals_tps: None,
            cpus: 1,
            cpu_overhead: 0.0,
            disks: 1,
            disk_ms: 5.0,
            log_ms: 0.5,
            miss: 1.0,
            memory_mb: None,
            items: 100_000,
            hot_items: 0.2,
            hot_requests: 0.2,
            restart_ms: 5.0,
            restarts: None,
            noise: 0.0,
            interval_s: None,
            interval_max_s: None,
            classes: Vec::new(),
        }
    }
}

/// A class of transactions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransactionClass {
    /// The name; a class of a later phase with the same name is observed under the same.
    pub name: String,
    /// Its part of the transactions, relative to the other classes of the phase.
    pub share: f64,
    /// Steps of a transaction, from 1 to 1,000.
    pub steps: u32,
    /// Steps that begin with a lock request, spread evenly; at most `steps`.
    pub locks: u32,
    /// Share of lock requests that are exclusive, from 0 to 1; the others are shared.
    pub write_share: f64,
    /// Mean processor time of a transaction, milliseconds: `steps` exponential parts.
    pub cpu_ms: f64,
    /// Steps that end with a read, spread evenly; at most `steps`.
    pub reads: u32,
    /// Whether the transaction writes to the log before it ends.
    pub log_write: bool,
    /// What a transaction inside the database wants in memory, MiB.
    pub working_set_mb: f64,
}

impl Default for TransactionClass {
    fn default() -> TransactionClass {
        TransactionClass {
            name: String::from("transaction"),
            share: 1.0,
            steps: 8,
            locks: 0,
            write_share: 0.5,
            cpu_ms: 1.0,
            reads: 0,
            log_write: false,
            working_set_mb: 0.0,
        }
    }
}

/// Why phases make no plant. Phases are counted from 1.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EventsError {
    /// There is no phase.
    #[error("there is no phase: give at least one")]
    NoPhase,
    /// A phase that others follow lasts no interval.
    #[error("phase {phase} never ends: give it `intervals`, as another phase follows")]
    NoIntervals {
        /// The phase.
        phase: usize,
    },
    /// A phase has no load, or two.
    #[error(
        "phase {phase} needs one load: either `clients`, with or without `think_s`, or \
         `arrivals_tps` alone"
    )]
    Load {
        /// The phase.
        phase: usize,
    },
    /// A phase has no class.
    #[error("phase {phase} has no class of transactions: give at least one `class`")]
    NoClass {
        /// The phase.
        phase: usize,
    },
    /// Two classes of a phase have the same name.
    #[error("phase {phase} has two classes named `{name}`: give one of them another name")]
    SameName {
        /// The phase.
        phase: usize,
        /// The name.
        name: String,
    },
    /// A number is outside its range, or is none.
    #[error("phase {phase}: {field} is {value}: give a number from {low} to {high}")]
    OutOfRange {
        /// The phase.
        phase: usize,
        /// The field, with its class if it belongs to one.
        field: String,
        /// What it is.
        value: f64,
        /// The lowest it may be.
        low: f64,
        /// The highest it may be.
        high: f64,
    },
    /// The longest interval has room for too many completions.
    #[error(
        "phase {phase}: an interval of {interval_s} s has room for {completions:.0} completions: \
         make `interval_max_s` or `interval_s` shorter, for at most ten million"
    )]
    LongInterval {
        /// The phase.
        phase: usize,
        /// The longest interval, seconds.
        interval_s: f64,
        /// The completions that it has room for.
        completions: f64,
    },
}

/// Checks all phases, the first offence first.
pub(super) fn check(phases: &[EventsPhase]) -> Result<(), EventsError> {
    if phases.is_empty() {
        return Err(EventsError::NoPhase);
    }
    for (phase, settings) in (1..).zip(phases) {
        if settings.intervals == 0 && phase < phases.len() {
            return Err(EventsError::NoIntervals { phase });
        }
        settings.check(phase)?;
    }
    Ok(())
}

/// The shortest and the longest time that means something, milliseconds: a nanosecond, a day.
const TIMES_MS: (f64, f64) = (1e-6, 86_400_000.0);

impl EventsPhase {
    fn check(&self, phase: usize) -> Result<(), EventsError> {
        if self.clients.is_some() == self.arrivals_tps.is_some()
            || (self.arrivals_tps.is_some() && self.think_s > 0.0)
        {
            return Err(EventsError::Load { phase });
        }
        let shortest = self.shortest_interval_s();
        let (least, day_s) = (1e-6, 86_400.0);
        let numbers = [
            ("clients", f64::from(self.clients.unwrap_or(1)), 1.0, f64::from(CROWD_MAX)),
            ("think_s", self.think_s, 0.0, day_s),
            ("arrivals_tps", self.arrivals_tps.unwrap_or(0.0), 0.0, 1e6),
            ("cpus", f64::from(self.cpus), 1.0, 4_096.0),
            ("cpu_overhead", self.cpu_overhead, 0.0, 1_000.0),
            ("disks", f64::from(self.disks), 1.0, 4_096.0),
            ("disk_ms", self.disk_ms, TIMES_MS.0, TIMES_MS.1),
            ("log_ms", self.log_ms, TIMES_MS.0, TIMES_MS.1),
            ("miss", self.miss, 0.0, 1.0),
            ("memory_mb", self.memory_mb.unwrap_or(least), least, 1e6),
            ("items", f64::from(self.items), 1.0, 16_777_216.0),
            ("hot_items", self.hot_items, 0.0, 1.0),
            ("hot_requests", self.hot_requests, 0.0, 1.0),
            ("restart_ms", self.restart_ms, TIMES_MS.0, TIMES_MS.1),
            ("noise", self.noise, 0.0, 0.5),
        ];
        for (field, value, low, high) in numbers {
            within(phase, || format!("`{field}`"), value, low, high)?;
        }
        self.check_classes(phase)?;
        let name = |field: &str| format!("`{field}`");
        within(phase, || name("interval_s"), shortest, least, day_s)?;
        within(phase, || name("interval_max_s"), self.longest_interval_s(), shortest, day_s)?;
        self.check_length(phase)
    }

    fn check_classes(&self, phase: usize) -> Result<(), EventsError> {
        let mut names = BTreeSet::new();
        for class in &self.classes {
            class.check(phase)?;
            if !names.insert(&class.name) {
                return Err(EventsError::SameName { phase, name: class.name.clone() });
            }
        }
        if names.is_empty() { Err(EventsError::NoClass { phase }) } else { Ok(()) }
    }

    fn check_length(&self, phase: usize) -> Result<(), EventsError> {
        let interval_s = self.longest_interval_s();
        let completions = interval_s * self.highest_tps();
        if completions > COMPLETIONS_MAX {
            return Err(EventsError::LongInterval { phase, interval_s, completions });
        }
        Ok(())
    }

    /// The shortest control interval, seconds.
    pub(super) fn shortest_interval_s(&self) -> f64 {
        self.interval_s.unwrap_or_else(|| 150.0 / self.highest_tps())
    }

    /// The longest control interval, seconds.
    pub(super) fn longest_interval_s(&self) -> f64 {
        self.interval_max_s.unwrap_or_else(|| 30.0 * self.shortest_interval_s())
    }

    /// No throughput is above this: that of the busiest station at work all the time, that of the
    /// load, and that of clients who never wait for each other (asymptotic bounds, Denning and
    /// Buzen, 1978).
    fn highest_tps(&self) -> f64 {
        let mean = |of: &dyn Fn(&TransactionClass) -> f64| {
            let sum: f64 = self.classes.iter().map(|class| class.share * of(class)).sum();
            sum / self.classes.iter().map(|class| class.share).sum::<f64>()
        };
        let cpu_s = mean(&|class| class.cpu_ms) / 1e3;
        let disk_s = mean(&|class| f64::from(class.reads)) * self.miss * self.disk_ms / 1e3;
        let log_s = mean(&|class| f64::from(u8::from(class.log_write))) * self.log_ms / 1e3;
        let load = match self.clients {
            Some(clients) => f64::from(clients) / (self.think_s + cpu_s + disk_s + log_s),
            None => self.arrivals_tps.unwrap_or(0.0),
        };
        let stations = [f64::from(self.cpus) / cpu_s, f64::from(self.disks) / disk_s, 1.0 / log_s];
        stations.into_iter().fold(load, f64::min)
    }
}

impl TransactionClass {
    fn check(&self, phase: usize) -> Result<(), EventsError> {
        let steps = f64::from(self.steps);
        let numbers = [
            ("share", self.share, 1e-9, 1e9),
            ("steps", steps, 1.0, 1_000.0),
            ("locks", f64::from(self.locks), 0.0, steps),
            ("write_share", self.write_share, 0.0, 1.0),
            ("cpu_ms", self.cpu_ms, 1e-3, TIMES_MS.1),
            ("reads", f64::from(self.reads), 0.0, steps),
            ("working_set_mb", self.working_set_mb, 0.0, 1e6),
        ];
        for (field, value, low, high) in numbers {
            within(phase, || format!("`{field}` of class {}", self.name), value, low, high)?;
        }
        Ok(())
    }
}

/// NaN is within no range.
fn within(
    phase: usize,
    field: impl Fn() -> String,
    value: f64,
    low: f64,
    high: f64,
) -> Result<(), EventsError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(EventsError::OutOfRange { phase, field: field(), value, low, high })
}
