//! A transactional database behind a gate, event by event, in virtual time.
//!
//! A curve says what throughput becomes at a limit. This plant says why: transactions queue for
//! processors and disks, wait for each other's locks, are rolled back, and drive each other out of
//! memory. It remembers: a limit that was too high leaves transactions inside that hold locks.
//!
//! # Mechanism
//! Transactions come from clients that think between two of them, or arrive at a rate. At the gate
//! they wait in one queue, first come, first served, for one of `limit` permits. A started
//! transaction is never queued again: a lowered limit takes effect as permits come back.
//!
//! ```text
//! clients ──> queue ──> permit ──> step: lock → processor → read ──┐ ──> log ──> end
//!    ^                               ^ └───────── next step ───────┘              │
//!    │                               └── after a delay ── rollback (deadlock)     │
//!    └──────────────────────────── think ─────────────────────────────────────────┘
//! ```
//!
//! * **Locks** are shared or exclusive, on items of which some are hot, and all given up at the end
//!   ([`locks`]). A request that would close a circle of waiting transactions rolls its transaction
//!   back: it gives up its locks, waits for a while with its permit, and asks for the same locks
//!   again. It fails only after `restarts` of these, and never where that is not given.
//! * **Processors** are shared equally by all that can run ([`cpu`]). Many of them cost more.
//! * **Reads** go to disk with a probability that grows with the number inside. With memory M for
//!   working sets W, summed over the transactions inside, a page of them is in memory with
//!   probability min(1, M/W). The rest, and the share `miss` of what would be there, goes to disk:
//!   1 − (1 − `miss`)·min(1, M/W). Disks serve in order of arrival, and so does the log.
//!
//! Every duration is exponential, so at any moment all that is going on has as much ahead of it as
//! if it had just begun, and the plant is a Markov chain. Then no calendar of future events is
//! needed. If r is the rate at which something happens and R the sum of all rates, the time to the
//! next event is exponential with mean 1/R, and the event is this one with probability r/R
//! (Gillespie, J. Phys. Chem. 81, 1977). An event costs the same with ten transactions inside as
//! with a thousand: some 50 ns, an interval of 150 completions about 0.1 ms; only the search for
//! deadlocks grows. A limit, or the end of an interval, changes rates and invalidates nothing.
//!
//! An interval ends by the rule of [`crate::IntervalRule`], with times of the phase. After its
//! intervals a phase gives way to the next, whose machine and load meet the transactions that are
//! inside. Clients that are too many then leave at the end of their transactions.
//!
//! # Example
//! One processor with 10 ms of work for a transaction, and three disks, 30 ms for them all: four
//! stations with demands of D = 10 ms. Without locks N permits give N/(N + 3)/D: 25 tps with one,
//! 50 with three, 75 with nine. So it has to be, as this is the closed network that queueing theory
//! solves exactly, and a test compares the two.
//!
//! As a file spells it, and with locks, of which each transaction asks for 8 of 1,200, 60 %
//! exclusive, on 4 processors and 8 disks:
//!
//! ```toml
//! [[events]]
//! intervals = 120
//! clients = 500
//! cpus = 4
//! disks = 8
//! disk_ms = 4.0
//! items = 1200
//! [[events.class]]
//! name = "update"
//! locks = 8
//! write_share = 0.6
//! cpu_ms = 1.0
//! reads = 3
//! ```
//!
//! One permit gives 77 tps, 32 give 485, 128 give 236 and 500 give 23. With 32 inside one in three
//! waits for a lock; with 500 only one in sixty does not, and each completion costs 14 rollbacks.
//!
//! # Where this leaves the sources
//! The model is that of Agrawal, Carey and Livny (Concurrency control performance modeling, ACM
//! TODS 12(4), 1987), behind the gate of the external-scheduling study (its Figure 8 is this plant
//! with one step, no locks and one processor).
//! * **Processors** are shared, not queued for, as the external-scheduling study has them.
//! * **Victim.** The transaction that asks, not the youngest: the one that closes a circle is known
//!   without a search for the others in it.
//! * **Restart delay.** Its mean is a constant of the phase, not the running mean of response
//!   times, which would be one more thing that adapts beside the controller under test.
//! * **Locks.** Each item is asked for once, in its final mode. There are no upgrades, which would
//!   be a second kind of deadlock. A draw that falls on an item already held is drawn again, up to
//!   8 times; after that the step needs no lock.
//! * **Memory** and **the log** are added; the auto-tuning study needs the one, commits the other.
//!
//! # Limits
//! * No durations but exponential ones: a class of `steps` steps has a processor time with C² =
//!   1/`steps`, and a mix of short and long classes one as high as wanted, but nothing is constant.
//! * Waiting for a lock costs no processor time, and a rollback only the work that was lost.
//! * There is no group commit: the log writes for one transaction at a time.
//! * The pages of a transaction are not followed. A change of memory or of the number inside acts
//!   on the next read, and there is no warming up.
//! * At most 200,000 are inside. Who comes after that is turned away, and counts as a failure.

mod cpu;
mod discounting;
mod disks;
mod locks;
mod prepared;
mod settings;
mod statistics;
#[cfg(test)]
mod tests;
mod transactions;

use std::collections::VecDeque;

use super::Simulated;
use crate::controller::whole;
use crate::{LockObservation, Mpl, Observation, SplitMix64};

use cpu::Cpu;
use discounting::Discounting;
use disks::Disks;
use locks::{LockAnswer, LockMode, Locks};
use prepared::{OfferedLoad, PreparedClass, PreparedPhase, PreparedPhases};
use settings::CROWD_MAX;
use statistics::{PlantMeter, PlantPopulation, TransactionEnd};
use transactions::{SimulatedTransaction, TransactionSlot, TransactionTable};

pub use settings::{EventsError, EventsPhase, TransactionClass};

/// How often a lock request that fell on an item already held is drawn again.
const DRAWS_MAX: u32 = 8;

/// A simulated database behind a gate: stations, locks and memory, transaction by transaction.
///
/// Its state outlives intervals and phases. The same phases, seed and limits give the same
/// observations. The classes of an observation are in the order in which their names first appear.
#[derive(Clone, Debug)]
pub struct EventsPlant {
    script: PreparedPhases,
    /// The index of the current phase, and the intervals of it still to come.
    phase: usize,
    intervals_left: u32,
    random: SplitMix64,
    now_s: f64,
    /// The speed of the machine in this interval; 1 without noise.
    speed: f64,
    limit: u32,
    /// Clients between two transactions.
    thinking: u32,
    waiting: VecDeque<QueuedTransaction>,
    running: u32,
    /// How permits come to count no longer, where they do.
    discounting: Option<Discounting>,
    transactions: TransactionTable,
    /// What the transactions inside want in memory.
    wanted_kib: u64,
    cpu: Cpu,
    disks: Disks,
    log: Disks,
    locks: Locks,
    /// Transactions that were rolled back and have not started again.
    restarting: Vec<TransactionSlot>,
    /// Who has a lock because of the last transaction that gave up its own.
    unblocked: Vec<TransactionSlot>,
    meter: PlantMeter,
}

/// A transaction in the queue.
#[derive(Clone, Copy, Debug)]
struct QueuedTransaction {
    class: u32,
    since_s: f64,
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
enum PlantEvent {
    CpuDone,
    DiskDone,
    LogDone,
    Restart,
    Arrival,
}

impl EventsPlant {
    /// A plant that goes through `phases`, all randomness from `seed`.
    ///
    /// # Errors
    /// An [`EventsError`] that says which field of which phase to change.
    pub fn new(phases: &[EventsPhase], seed: u64) -> Result<EventsPlant, EventsError> {
        settings::check(phases)?;
        let script = PreparedPhases::new(phases);
        let mut plant = EventsPlant {
            phase: 0,
            intervals_left: 0,
            random: SplitMix64::new(seed),
            now_s: 0.0,
            speed: 1.0,
            limit: 0,
            thinking: 0,
            waiting: VecDeque::new(),
            running: 0,
            discounting: None,
            transactions: TransactionTable::default(),
            wanted_kib: 0,
            cpu: Cpu::new(&script.cpu_rates),
            disks: Disks::new(script.disks),
            log: Disks::new(1),
            locks: Locks::new(script.items, script.locks),
            restarting: Vec::new(),
            unblocked: Vec::new(),
            meter: PlantMeter::new(script.observed),
            script,
        };
        plant.enter_phase(0);
        Ok(plant)
    }

    fn current(&self) -> &PreparedPhase {
        &self.script.phases[self.phase]
    }

    fn class_of(&self, slot: TransactionSlot) -> &PreparedClass {
        &self.script.classes[self.transactions.get(slot).class as usize]
    }

    fn population(&self) -> PlantPopulation {
        let waiting = u32::try_from(self.waiting.len()).expect("no more than CROWD_MAX wait");
        let discounted = self.discounting.as_ref().map_or(0, Discounting::discounted);
        PlantPopulation { running: self.running - discounted, discounted, waiting }
    }

    fn concurrency(&self) -> u32 {
        self.population().concurrency()
    }

    /// The machine and the load change; the transactions inside stay.
    fn enter_phase(&mut self, phase: usize) {
        self.phase = phase;
        self.intervals_left = self.current().intervals;
        self.thinking = 0;
        if let OfferedLoad::Closed { clients, think_s } = self.current().load {
            let idle = clients.saturating_sub(self.concurrency());
            if think_s > 0.0 {
                self.thinking = idle;
            } else {
                (0..idle).for_each(|_| self.arrive());
            }
        }
    }

    /// Makes ready for an interval at `limit`.
    fn begin_interval(&mut self, limit: Mpl) {
        self.meter.clear(self.population());
        if self.intervals_left == 0 && self.phase + 1 < self.script.phases.len() {
            self.enter_phase(self.phase + 1);
        }
        self.intervals_left = self.intervals_left.saturating_sub(1);
        // Uniform with the standard deviation asked for, so that no speed is zero or less.
        let spread = self.current().noise * 3.0_f64.sqrt();
        self.speed = 1.0 + spread * (2.0 * self.random.next_draw().value() - 1.0);
        self.limit = limit.get();
        self.admit();
    }

    /// How often each event happens, per second.
    fn rates(&self) -> [(PlantEvent, f64); 5] {
        let phase = self.current();
        let arrivals = match phase.load {
            OfferedLoad::Open { arrivals_tps } => arrivals_tps,
            OfferedLoad::Closed { .. } if self.thinking == 0 => 0.0,
            OfferedLoad::Closed { think_s, .. } => f64::from(self.thinking) / think_s,
        };
        let disks = self.disks.busy() as f64 * phase.disk_rate;
        let log = self.log.busy() as f64 * phase.log_rate;
        [
            (PlantEvent::CpuDone, self.cpu.rate(phase.processors) * self.speed),
            (PlantEvent::DiskDone, disks * self.speed),
            (PlantEvent::LogDone, log * self.speed),
            (PlantEvent::Restart, self.restarting.len() as f64 * phase.restart_rate),
            (PlantEvent::Arrival, arrivals),
        ]
    }

    /// Lets the next event happen, unless `until_s` comes first. Whether it happened.
    fn advance(&mut self, until_s: f64) -> bool {
        let rates = self.rates();
        let all: f64 = rates.iter().map(|&(_, rate)| rate).sum();
        let next_s = if all > 0.0 {
            self.now_s + self.random.next_exponential() / all
        } else {
            f64::INFINITY
        };
        let happens = next_s < until_s;
        let now_s = if happens { next_s } else { until_s };
        self.meter.pass(now_s - self.now_s, self.population());
        self.now_s = now_s;
        if happens {
            let (event, point) = choose(&rates, self.random.next_draw().value() * all);
            self.happen(event, point);
        }
        happens
    }

    /// `event` happens to the transaction that `point`, uniform from [0, 1), falls on.
    fn happen(&mut self, event: PlantEvent, point: f64) {
        match event {
            PlantEvent::CpuDone => {
                let slot = self.cpu.finish(point);
                self.after_cpu(slot);
            }
            PlantEvent::DiskDone => {
                let slot = self.disks.finish(point);
                self.next_step(slot);
            }
            PlantEvent::LogDone => {
                let slot = self.log.finish(point);
                self.end(slot, TransactionEnd::Completed);
            }
            PlantEvent::Restart => {
                let chosen = place(point, self.restarting.len());
                let slot = self.restarting.swap_remove(chosen);
                self.transactions.get_mut(slot).restart();
                self.begin_step(slot);
            }
            PlantEvent::Arrival => {
                self.thinking = self.thinking.saturating_sub(1);
                self.arrive();
            }
        }
    }

    /// A transaction asks for a permit.
    fn arrive(&mut self) {
        let class = self.script.phases[self.phase].draw_class(&mut self.random);
        if self.concurrency() >= CROWD_MAX {
            self.meter.turned_away(self.script.classes[class as usize].observed);
            return;
        }
        self.waiting.push_back(QueuedTransaction { class, since_s: self.now_s });
        self.meter.arrived(self.population());
        self.admit();
    }

    /// Grants permits while there are any.
    fn admit(&mut self) {
        while self.population().running < self.limit
            && let Some(waiting) = self.waiting.pop_front()
        {
            self.running += 1;
            let class = &self.script.classes[waiting.class as usize];
            self.wanted_kib += class.working_set_kib;
            self.meter.granted(class.observed, self.now_s - waiting.since_s);
            let slot = self.transactions.enter(waiting.class, self.now_s, self.random.next_bits());
            self.locks.admit(slot);
            self.begin_step(slot);
        }
    }

    /// A step begins with a lock, if it needs one.
    fn begin_step(&mut self, slot: TransactionSlot) {
        let step = self.transactions.get(slot).step as usize;
        let class = self.class_of(slot);
        let cpu_group = class.cpu_group;
        let answer =
            if class.steps[step].locks { self.ask_lock(slot) } else { LockAnswer::Granted };
        match answer {
            LockAnswer::Granted => self.cpu.enter(cpu_group, slot),
            LockAnswer::Waits => {}
            LockAnswer::Deadlock => self.roll_back(slot),
        }
    }

    /// Asks for a lock on an item that `slot` does not hold.
    fn ask_lock(&mut self, slot: TransactionSlot) -> LockAnswer {
        match self.draw_lock(slot) {
            Some((item, mode)) => self.locks.ask(slot, item, mode),
            None => LockAnswer::Granted,
        }
    }

    /// The next lock request of `slot`; none when all draws fell on items that it holds.
    fn draw_lock(&mut self, slot: TransactionSlot) -> Option<(u32, LockMode)> {
        let items = self.script.phases[self.phase].items;
        let transaction = self.transactions.get_mut(slot);
        let class = &self.script.classes[transaction.class as usize];
        (0..DRAWS_MAX).find_map(|_| {
            let item = items.draw(&mut transaction.requests);
            let mode = class.draw_mode(&mut transaction.requests);
            (!self.locks.holds(slot, item)).then_some((item, mode))
        })
    }

    /// The processor is done with the step; a read may follow.
    fn after_cpu(&mut self, slot: TransactionSlot) {
        let step = self.transactions.get(slot).step as usize;
        let reads = self.class_of(slot).steps[step].reads;
        let phase = &self.script.phases[self.phase];
        if reads && self.random.next_chance(phase.miss(self.wanted_kib)) {
            self.disks.enter(self.random.next_below(phase.disks), slot);
        } else {
            self.next_step(slot);
        }
    }

    /// A step is over: on to the next, or to the end by way of the log.
    fn next_step(&mut self, slot: TransactionSlot) {
        let transaction = self.transactions.get_mut(slot);
        transaction.step += 1;
        let step = transaction.step as usize;
        let class = self.class_of(slot);
        if step < class.steps.len() {
            self.begin_step(slot);
        } else if class.log_write {
            self.log.enter(0, slot);
        } else {
            self.end(slot, TransactionEnd::Completed);
        }
    }

    /// The victim of a deadlock gives up its locks, then restarts or gives up.
    fn roll_back(&mut self, slot: TransactionSlot) {
        self.release_locks(slot);
        let restarts = self.current().restarts;
        let transaction = self.transactions.get_mut(slot);
        transaction.rollbacks = transaction.rollbacks.saturating_add(1);
        if transaction.rollbacks > restarts {
            self.end(slot, TransactionEnd::Failed);
        } else {
            self.restarting.push(slot);
        }
    }

    /// Gives up all locks of `slot`; who waited for them goes on.
    fn release_locks(&mut self, slot: TransactionSlot) {
        if self.locks.held(slot) == 0 {
            return;
        }
        let mut unblocked = std::mem::take(&mut self.unblocked);
        self.locks.release(slot, &mut unblocked);
        for slot in unblocked.drain(..) {
            let group = self.class_of(slot).cpu_group;
            self.cpu.enter(group, slot);
        }
        self.unblocked = unblocked;
    }

    /// The permit of `slot` comes back, and its client thinks or comes again.
    fn end(&mut self, slot: TransactionSlot, outcome: TransactionEnd) {
        self.release_locks(slot);
        let &SimulatedTransaction { granted_s, is_discounted, .. } = self.transactions.get(slot);
        let in_database_s = self.now_s - granted_s;
        if let Some(discounting) = &mut self.discounting {
            discounting.ended(in_database_s, is_discounted, self.now_s);
        }
        let class = self.class_of(slot);
        let (observed, working_set_kib) = (class.observed, class.working_set_kib);
        self.meter.ended(observed, outcome, (!is_discounted).then_some(in_database_s));
        self.wanted_kib -= working_set_kib;
        self.transactions.leave(slot);
        self.running -= 1;
        match self.current().load {
            OfferedLoad::Closed { clients, think_s }
                if self.concurrency() + self.thinking < clients =>
            {
                if think_s > 0.0 {
                    self.thinking += 1;
                } else {
                    self.arrive();
                }
            }
            // The client of an open load, or one too many since the phase changed.
            OfferedLoad::Closed { .. } | OfferedLoad::Open { .. } => {}
        }
        self.admit();
    }

    /// The state of the lock manager; none if no class locks anything.
    fn lock_observation(&self) -> Option<LockObservation> {
        if self.script.locks == 0 {
            return None;
        }
        let mut seen = LockObservation::default();
        for (slot, transaction) in self.transactions.iter() {
            let held = self.locks.held(slot);
            let is_mature = held * 4 >= self.script.classes[transaction.class as usize].locks;
            let is_blocked = self.locks.waits(slot);
            *match (is_mature, is_blocked) {
                (true, false) => &mut seen.mature_running,
                (true, true) => &mut seen.mature_blocked,
                (false, false) => &mut seen.young_running,
                (false, true) => &mut seen.young_blocked,
            } += 1;
            seen.locks_held += u64::from(held);
            seen.locks_held_by_running += if is_blocked { 0 } else { u64::from(held) };
        }
        Some(seen)
    }
}

impl Simulated for EventsPlant {
    fn interval(&mut self, limit: Mpl) -> Observation {
        self.begin_interval(limit);
        let rule = self.current().rule;
        let start_s = self.now_s;
        loop {
            let is_enough = self.meter.completions() >= rule.min_completions;
            let until_s = start_s + if is_enough { rule.min_s } else { rule.max_s };
            if self.now_s >= until_s {
                break;
            }
            let look_s = self.discounting.as_ref().map_or(f64::INFINITY, Discounting::next_s);
            if !self.advance(until_s.min(look_s)) {
                if look_s >= until_s {
                    break;
                }
                self.discount();
            }
        }
        let locks = self.lock_observation();
        self.meter.observation(limit, self.population(), locks)
    }
}

/// The event that `point`, from 0 to the sum of the rates, falls on, and where in it, from 0 to 1.
fn choose(rates: &[(PlantEvent, f64)], point: f64) -> (PlantEvent, f64) {
    let mut left = point;
    let mut chosen = (PlantEvent::Arrival, 0.0);
    for &(event, rate) in rates.iter().filter(|&&(_, rate)| rate > 0.0) {
        chosen = (event, left / rate);
        if left < rate {
            break;
        }
        left -= rate;
    }
    chosen
}

/// Returns the place in a list of `length`, above 0, that `point`, uniform from [0, 1), falls on.
/// Rounding upward never leads past the end.
fn place(point: f64, length: usize) -> usize {
    (whole(point * length as f64) as usize).min(length - 1)
}
