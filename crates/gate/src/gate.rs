//! The gate itself.
//!
//! One mutex guards a small state; there is no other synchronisation to reason about. A transaction
//! holds it for some tens of nanoseconds, the end of an interval or a look for metrics for some
//! microseconds, and [`Gate::expire`] for as long as it takes to look at everybody who waits. Time
//! is an argument everywhere except in `Drop`, so schedules can be replayed in tests.
//!
//! How a transaction passes, with a limit of 1:
//!
//! ```text
//! A: request -> Granted(permit)             outstanding 1, waiting 0
//! B: request -> Queued(ticket)              outstanding 1, waiting 1
//! A: permit.finish -> B's waker is called   outstanding 1, waiting 0   (handed over, never idle)
//! B: ticket.claim -> Granted(permit)
//! B: drop(permit)                           outstanding 0, waiting 0
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use slab::Slab;
use tidegate_control::{Mpl, Observation};

use crate::queue::{Class, Queue};
use crate::statistics::{self, ClassStatistics, ClassTotals, Population};

/// Called with the request's token when its ticket can be claimed: granted or expired.
///
/// It runs on the thread that made the change (gave a permit back, set the limit, let deadlines
/// pass), outside the gate's lock, and must be short and not panic. If the ticket is dropped at
/// that moment on another thread, the call may come after the drop.
pub type Waker = Arc<dyn Fn(u64) + Send + Sync>;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it was asked for.
    Completed,
    /// It ended in an error, was rolled back, or its client went away.
    Failed,
}

/// The bounds of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Permits that may be out at once, to begin with.
    pub mpl: Mpl,
    /// Transactions that may wait at once, all classes together.
    pub waiting_max: usize,
}

/// One transaction that asks to run.
pub struct Request<'a> {
    /// Its scheduling class.
    pub class: Class,
    /// When it gives up waiting; `None` waits as long as it takes. Only [`Gate::expire`] looks at
    /// deadlines: a permit that comes free before that call is still granted.
    pub deadline: Option<Instant>,
    /// Handed to the waker, to tell the requester's transactions apart.
    pub token: u64,
    /// Called if the request had to wait.
    pub waker: &'a Waker,
}

/// The queue holds as many transactions as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull {
    /// Transactions waiting now.
    pub waiting: usize,
}

/// The gate's answer to a [`Request`].
#[derive(Debug)]
pub enum Admission {
    /// Run now.
    Granted(Permit),
    /// Wait; the waker will be called.
    Queued(Ticket),
    /// Neither now nor later.
    Refused(QueueFull),
}

/// What became of a queued request.
#[derive(Debug)]
pub enum Claim {
    /// Run now.
    Granted(Permit),
    /// Still waiting: keep the ticket.
    Waiting(Ticket),
    /// The deadline passed first.
    Expired,
}

/// The gate's state at one moment, for metrics.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The limit in force.
    pub limit: Mpl,
    /// Permits out.
    pub outstanding: u32,
    /// Transactions waiting.
    pub waiting: usize,
    /// Requests refused because the queue was full, since the start.
    pub refused: u64,
    /// Requests whose deadline passed in the queue, since the start.
    pub expired: u64,
    /// Requests withdrawn while waiting, since the start.
    pub withdrawn: u64,
    /// By class, highest first, since the start.
    pub classes: Vec<ClassTotals>,
}

struct Waiting {
    ticket: usize,
    since: Instant,
    deadline: Option<Instant>,
    token: u64,
    waker: Waker,
}

enum TicketState {
    Waiting { queue_key: usize },
    Granted { class: Class, at: Instant },
    Expired,
}

/// - `outstanding` counts permits and granted tickets alike.
/// - While a transaction waits, `outstanding >= limit`: nothing waits for a free permit.
/// - A grant happens only while `outstanding < limit`.
struct State {
    limit: u32,
    waiting_max: usize,
    outstanding: u32,
    queue: Queue<Waiting>,
    tickets: Slab<TicketState>,
    classes: [ClassStatistics; Class::ALL.len()],
    refused: u64,
    expired: u64,
    withdrawn: u64,
    interval_start: Instant,
    concurrency_peak: u32,
    population: Population,
}

impl State {
    fn waiting(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }

    fn concurrency(&self) -> u32 {
        self.outstanding.saturating_add(self.waiting())
    }

    /// Accounts for the time up to `now`, before anything changes.
    fn advance(&mut self, now: Instant) {
        self.population.advance(now, self.outstanding, self.waiting());
    }

    /// Grants the next waiting request if the limit allows, and says whom to wake.
    fn grant_next(&mut self, now: Instant) -> Option<(Waker, u64)> {
        if self.outstanding >= self.limit {
            return None;
        }
        let (_, class, waiting) = self.queue.pop()?;
        self.outstanding += 1;
        self.classes[class.index()].record_wait(now.saturating_duration_since(waiting.since));
        self.tickets[waiting.ticket] = TicketState::Granted { class, at: now };
        Some((waiting.waker, waiting.token))
    }

    fn end(&mut self, class: Class, granted_at: Instant, outcome: Outcome, now: Instant) {
        let in_database = now.saturating_duration_since(granted_at);
        self.classes[class.index()].record_end(outcome, in_database);
    }
}

/// Calls wakers; never under the gate's lock, because a waker may use the gate.
fn wake(woken: impl IntoIterator<Item = (Waker, u64)>) {
    for (waker, token) in woken {
        waker(token);
    }
}

/// A gate; clones are handles to the same one.
#[derive(Clone)]
pub struct Gate {
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl Gate {
    /// A gate whose first interval begins at `now`.
    #[must_use]
    pub fn new(limits: Limits, now: Instant) -> Gate {
        let state = State {
            limit: limits.mpl.get(),
            waiting_max: limits.waiting_max,
            outstanding: 0,
            queue: Queue::new(),
            tickets: Slab::new(),
            classes: [ClassStatistics::new(), ClassStatistics::new()],
            refused: 0,
            expired: 0,
            withdrawn: 0,
            interval_start: now,
            concurrency_peak: 0,
            population: Population::new(now),
        };
        Gate { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic leaves the state half changed, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a permit.
    #[must_use]
    pub fn request(&self, request: &Request<'_>, now: Instant) -> Admission {
        let mut state = self.lock();
        state.advance(now);
        if state.outstanding < state.limit {
            state.outstanding += 1;
            state.concurrency_peak = state.concurrency_peak.max(state.concurrency());
            state.classes[request.class.index()].record_wait(Duration::ZERO);
            drop(state);
            return Admission::Granted(self.permit(request.class, now));
        }
        if state.queue.len() >= state.waiting_max {
            state.refused += 1;
            return Admission::Refused(QueueFull { waiting: state.queue.len() });
        }
        Admission::Queued(self.enqueue(&mut state, request, now))
    }

    fn enqueue(&self, state: &mut State, request: &Request<'_>, now: Instant) -> Ticket {
        let ticket = state.tickets.vacant_key();
        let queue_key = state.queue.push(
            request.class,
            Waiting {
                ticket,
                since: now,
                deadline: request.deadline,
                token: request.token,
                waker: Arc::clone(request.waker),
            },
        );
        state.tickets.insert(TicketState::Waiting { queue_key });
        state.concurrency_peak = state.concurrency_peak.max(state.concurrency());
        Ticket { gate: self.clone(), key: ticket, open: true }
    }

    fn permit(&self, class: Class, granted_at: Instant) -> Permit {
        Permit { gate: self.clone(), class, granted_at, open: true }
    }

    /// Changes the limit. A lower one takes effect as permits return; a higher one at once.
    pub fn set_limit(&self, limit: Mpl, now: Instant) {
        let mut state = self.lock();
        state.advance(now);
        state.limit = limit.get();
        // All under one lock: a request that came between two grants would overtake the queue.
        let granted: Vec<_> = std::iter::from_fn(|| state.grant_next(now)).collect();
        drop(state);
        wake(granted);
    }

    /// Takes every request whose deadline is not after `now` out of the queue and wakes it.
    pub fn expire(&self, now: Instant) {
        let mut state = self.lock();
        state.advance(now);
        let late = state.queue.keys_where(|waiting| waiting.deadline.is_some_and(|at| at <= now));
        let mut woken = Vec::with_capacity(late.len());
        for key in late {
            let Some(waiting) = state.queue.remove(key) else {
                continue;
            };
            state.tickets[waiting.ticket] = TicketState::Expired;
            state.expired += 1;
            woken.push((waiting.waker, waiting.token));
        }
        drop(state);
        wake(woken);
    }

    /// Whether a transaction is waiting.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.lock().queue.len() > 0
    }

    /// How long the current interval has lasted, and what was completed in it.
    #[must_use]
    pub fn progress(&self, now: Instant) -> (Duration, u64) {
        let state = self.lock();
        let completions = state.classes.iter().map(ClassStatistics::completions).sum();
        (now.saturating_duration_since(state.interval_start), completions)
    }

    /// Begins the interval anew at `now` if nothing ran or waited in it, and tells whether it did:
    /// such an interval says nothing about the database, and would dilute the throughput of the
    /// next transactions.
    #[must_use]
    pub fn skip_empty_interval(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let empty = state.concurrency_peak == 0;
        if empty {
            state.advance(now);
            state.interval_start = now;
        }
        empty
    }

    /// Ends the interval at `now`, tells what was observed in it, and begins the next.
    #[must_use]
    pub fn observe(&self, now: Instant) -> Observation {
        let mut state = self.lock();
        let (classes, all) = statistics::end_interval(&mut state.classes);
        state.advance(now);
        let concurrency = state.concurrency();
        let interval = now.saturating_duration_since(state.interval_start);
        let means = state.population.end_interval(interval);
        let observation = Observation {
            interval,
            limit: Mpl::at_least_one(state.limit),
            concurrency,
            running: state.outstanding,
            concurrency_peak: state.concurrency_peak,
            concurrency_mean: means.concurrency,
            running_mean: means.running,
            waiting_share: means.waiting_share,
            completions: all.completions,
            failures: all.failures,
            in_database: all.in_database,
            in_queue: all.in_queue,
            locks: None,
            classes,
        };
        state.interval_start = now;
        state.concurrency_peak = concurrency;
        observation
    }

    /// The state at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        Snapshot {
            limit: Mpl::at_least_one(state.limit),
            outstanding: state.outstanding,
            waiting: state.queue.len(),
            refused: state.refused,
            expired: state.expired,
            withdrawn: state.withdrawn,
            classes: state.classes.iter().map(ClassStatistics::totals).collect(),
        }
    }
}

/// The right to run one transaction. Dropping it gives the right back, as a failed transaction.
#[derive(Debug)]
pub struct Permit {
    gate: Gate,
    class: Class,
    granted_at: Instant,
    open: bool,
}

impl Permit {
    /// Gives the permit back.
    pub fn finish(mut self, outcome: Outcome, now: Instant) {
        self.give_back(outcome, now);
    }

    /// Records the end of one transaction and the begin of the next one under the same permit, for
    /// transactions that are already inside the database when the one before them ends.
    pub fn next_transaction(&mut self, outcome: Outcome, now: Instant) {
        let mut state = self.gate.lock();
        state.end(self.class, self.granted_at, outcome, now);
        state.classes[self.class.index()].record_wait(Duration::ZERO);
        self.granted_at = now;
    }

    fn give_back(&mut self, outcome: Outcome, now: Instant) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        let mut state = self.gate.lock();
        state.advance(now);
        state.end(self.class, self.granted_at, outcome, now);
        state.outstanding -= 1;
        let next = state.grant_next(now);
        drop(state);
        wake(next);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.open {
            self.give_back(Outcome::Failed, Instant::now());
        }
    }
}

/// A place in the queue. Dropping it leaves the queue, or gives back what was granted meanwhile.
#[derive(Debug)]
pub struct Ticket {
    gate: Gate,
    key: usize,
    open: bool,
}

impl Ticket {
    /// Takes the permit if it has been granted.
    #[must_use]
    pub fn claim(mut self) -> Claim {
        let mut state = self.gate.lock();
        let claim = match state.tickets[self.key] {
            TicketState::Waiting { .. } => {
                drop(state);
                return Claim::Waiting(self);
            }
            TicketState::Granted { class, at } => Claim::Granted(self.gate.permit(class, at)),
            TicketState::Expired => Claim::Expired,
        };
        state.tickets.remove(self.key);
        drop(state);
        self.open = false;
        claim
    }

    fn withdraw(&mut self) {
        let mut state = self.gate.lock();
        match state.tickets.remove(self.key) {
            TicketState::Waiting { queue_key } => {
                let waiting = state.queue.remove(queue_key);
                state.withdrawn += 1;
                drop(state);
                // After the lock: what the waker owns may itself use the gate when it is dropped.
                drop(waiting);
            }
            TicketState::Granted { class, at } => {
                drop(state);
                drop(self.gate.permit(class, at));
            }
            TicketState::Expired => {}
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.open {
            self.withdraw();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither can be seen from outside, and a slot that stays behind would cost memory for ever.
    #[test]
    fn every_end_of_a_ticket_frees_its_slot() {
        let now = Instant::now();
        let limits = Limits { mpl: Mpl::ONE, waiting_max: 8 };
        let gate = Gate::new(limits, now);
        let waker: Waker = Arc::new(|_| {});
        let ask = |deadline| {
            let request = Request { class: Class::Normal, deadline, token: 0, waker: &waker };
            gate.request(&request, now)
        };
        let queue = |deadline| match ask(deadline) {
            Admission::Queued(ticket) => ticket,
            other => panic!("the only permit is out: {other:?}"),
        };
        let running = ask(None);
        let (late, too_late) = (queue(Some(now)), queue(Some(now)));
        let (claimed, dropped, withdrawn) = (queue(None), queue(None), queue(None));
        gate.expire(now);
        assert!(matches!(late.claim(), Claim::Expired));
        drop((too_late, withdrawn));
        gate.set_limit(Mpl::at_least_one(3), now);
        drop((claimed.claim(), dropped, running));
        let state = gate.lock();
        assert!(state.tickets.is_empty());
        assert_eq!((state.queue.len(), state.outstanding), (0, 0));
    }
}
