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
//!
//! # Permits that do not count
//!
//! The limit is for transactions that the database works on. A permit whose client is idle inside
//! its transaction is *lent*, as long as the client is: [`Permit::lend`] is called when the client
//! has been silent for a moment, and [`Permit::resume`] when it sends something again. Its
//! transaction goes on at once, whatever the limit is then, and counts again.
//! The excess is worked off, since no transaction is admitted while the limit is reached:
//!
//! ```text
//! A holds the only permit, B waits           outstanding 1, idle 0, waiting 1
//! A: permit.lend -> B's waker is called      outstanding 2, idle 1, waiting 0
//! C: request -> Queued(ticket)               outstanding 2, idle 1, waiting 1
//! A: permit.resume                           outstanding 2, idle 0, waiting 1   (2 count, limit 1)
//! A: permit.finish                           outstanding 1, idle 0, waiting 1
//! B: permit.finish -> C's waker is called    outstanding 1, idle 0, waiting 0
//! ```
//!
//! A permit that counts for far longer than usual is *discounted*: [`Gate::discount`], which
//! has to be called every few milliseconds, and [`OverdueRule`] for when. It does not count
//! again, unless its client is idle in between. Here too none is admitted for one that comes back:
//!
//! ```text
//! C holds the only permit, D waits           outstanding 1, discounted 0, waiting 1
//! discount, when C's is overdue: D is woken  outstanding 2, discounted 1, waiting 0
//! E: request -> Queued(ticket)               outstanding 2, discounted 1, waiting 1
//! C: permit.finish                           outstanding 1, discounted 0, waiting 1
//! D: permit.finish -> E's waker is called    outstanding 1, discounted 0, waiting 0
//! ```
//!
//! **The bounds.** None is admitted while as many permits are out as the highest limit says, or as
//! many as the server has given connections for ([`Gate::refused_by_server`]), whether they count
//! or not. At that bound, and only there, a queue waits although the limit is not reached. It is
//! also the most that can count at once, when all lent permits come back at the same moment.
//!
//! **Durations.** The time in the database is the time for which the permit counted: time for which
//! it was lent is left out. So time in the database times throughput is the mean number of permits
//! that count (Little's law), and a controller can compute with both.

use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;
use tidegate_control::{Mpl, Observation, OverdueRule};
use tidegate_runtime::clock;
use tidegate_runtime::sync::{Mutex, MutexGuard};

use crate::connections::ConnectionBound;
use crate::outage::Outage;
use crate::permits::{Outstanding, PermitId, PermitKey, Permits};
use crate::queue::{Class, Queue, QueueKey};
use crate::request::{Admission, Claim, Discounted, Limits, Outcome, QueueFull, Request};
use crate::request::{Snapshot, Waker};
use crate::statistics::{
    self, ClassStatistics, PopulationCounts, PopulationTime, TransactionTimes,
};

/// Names a ticket while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TicketKey(usize);

struct WaitingTicket {
    ticket: TicketKey,
    since: Instant,
    deadline: Option<Instant>,
    token: u64,
    waker: Waker,
}

enum TicketState {
    Waiting { queue_key: QueueKey },
    Granted { permit: PermitKey },
    Expired,
}

/// - `permits` holds permits and granted tickets alike; `counted` leaves out those that are lent or
///   discounted.
/// - While a transaction waits, `is_full`: nothing waits for a free permit.
/// - A grant happens only while `counted < limit` and `outstanding < outstanding_max`.
struct GateState {
    limit: u32,
    mpl_max: u32,
    waiting_max: u32,
    connections: ConnectionBound,
    connections_max: u32,
    outage: Outage,
    permits: Permits,
    overdue: OverdueRule,
    start: Instant,
    discounts: u64,
    lendings: u64,
    queue: Queue<WaitingTicket>,
    tickets: Slab<TicketState>,
    classes: [ClassStatistics; Class::ALL.len()],
    refused: u64,
    expired: u64,
    withdrawn: u64,
    interval_start: Instant,
    concurrency_peak: u32,
    population: PopulationTime,
}

impl GateState {
    /// Returns the number of transactions that count against the limit or wait.
    fn concurrency(&self) -> u32 {
        self.permits.counted() + self.queue.len()
    }

    /// Returns the highest limit there can be.
    fn limit_max(&self) -> u32 {
        self.limit.max(self.mpl_max)
    }

    /// Returns how many permits may be out, whether they count or not.
    fn outstanding_max(&self) -> u32 {
        let within = self.connections.within(self.limit_max()).min(self.connections_max);
        self.outage.within(within)
    }

    /// Returns whether the next request has to wait.
    fn is_full(&self) -> bool {
        self.permits.counted() >= self.limit
            || self.permits.not_set_aside() >= self.outstanding_max()
    }

    /// Checks the invariants of the type.
    fn check(&self) {
        self.permits.check();
        self.queue.check();
        debug_assert!(self.limit >= 1, "some transaction may always run");
        debug_assert!(self.queue.is_empty() || self.is_full(), "it waits for a free permit");
        debug_assert!(self.queue.len() as usize <= self.tickets.len(), "who waits has a ticket");
        debug_assert!(self.concurrency() <= self.concurrency_peak, "the peak is the highest");
    }

    /// Returns the time as the rule of overdue permits sees it.
    fn clock(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }

    /// Accounts for the time up to `now`, before anything changes. Returns the gate's time, which
    /// never goes back: a thread may have read the clock before another that came first, and `Drop`
    /// reads the real one.
    fn advance(&mut self, now: Instant) -> Instant {
        self.check();
        let now = now.max(self.population.until());
        let present = PopulationCounts {
            running: self.permits.counted(),
            idle: self.permits.lent(),
            discounted: self.permits.discounted(),
            waiting: self.queue.len(),
        };
        self.population.advance(now, present);
        now
    }

    /// Grants the next waiting request if the limit allows. Returns whom to wake.
    fn grant_next(&mut self, now: Instant) -> Option<(Waker, u64)> {
        if self.is_full() {
            return None;
        }
        let (_, class, waiting) = self.queue.pop()?;
        let in_queue = now.saturating_duration_since(waiting.since);
        let permit = self.permits.grant(class, in_queue, now);
        debug_assert!(self.permits.counted() <= self.limit, "a grant keeps the limit");
        let outstanding = self.permits.not_set_aside();
        debug_assert!(outstanding <= self.outstanding_max(), "a grant keeps the bound");
        let is_exception = self.outage.has_met(waiting.since);
        self.classes[class.index()].record_wait(in_queue, is_exception);
        let before =
            std::mem::replace(self.ticket(waiting.ticket), TicketState::Granted { permit });
        debug_assert!(matches!(before, TicketState::Waiting { .. }), "a ticket is granted once");
        Some((waiting.waker, waiting.token))
    }

    fn ticket(&mut self, key: TicketKey) -> &mut TicketState {
        &mut self.tickets[key.0]
    }

    /// Records the end of the transaction that held this permit.
    fn end(&mut self, ended: &Outstanding, outcome: Outcome, now: Instant) {
        let in_database = now.saturating_duration_since(ended.granted_at);
        let at_work = now.saturating_duration_since(ended.at_work_since);
        self.overdue.record_end(at_work, ended.was_discounted, self.clock(now));
        debug_assert!(at_work <= in_database, "a transaction works under its permit");
        let class = &mut self.classes[ended.class.index()];
        let spent = TransactionTimes { in_queue: ended.in_queue, in_database };
        let asked = ended.granted_at.checked_sub(ended.in_queue).unwrap_or(ended.granted_at);
        class.record_end(outcome, spent, ended.was_discounted || self.outage.has_met(asked));
    }

    /// Lets permits that are overdue count no longer, the oldest first.
    fn discount(&mut self, now: Instant) -> Vec<Discounted> {
        if self.outage.lasts() {
            return Vec::new();
        }
        let Some((_, oldest)) = self.permits.oldest_counted() else { return Vec::new() };
        let (clock, somebody_waits) = (self.clock(now), !self.queue.is_empty());
        let age_of = |out: &Outstanding| now.saturating_duration_since(out.counts_since);
        if age_of(oldest) < OverdueRule::PATIENCE_LEAST {
            return Vec::new();
        }
        let patience = self.overdue.patience(somebody_waits, clock);
        let room = self.limit_max() - self.limit;
        let most = self.overdue.discounted_max(clock).min(room);
        let mut discounted = Vec::new();
        while self.permits.discounted() < most
            && let Some((key, out)) = self.permits.oldest_counted()
            && age_of(out) >= patience
        {
            discounted.push(Discounted { permit: out.id, class: out.class, age: age_of(out) });
            self.permits.discount(key);
        }
        debug_assert!(discounted.is_empty() || self.permits.discounted() <= most);
        self.discounts += discounted.len() as u64;
        if somebody_waits && !discounted.is_empty() {
            self.overdue.record_round(clock);
        }
        discounted
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
    state: Arc<Mutex<GateState>>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl Gate {
    /// Makes a gate whose first interval begins at `now`.
    #[must_use]
    pub fn new(limits: Limits, now: Instant) -> Gate {
        let state = GateState {
            limit: limits.mpl.get(),
            mpl_max: limits.mpl_max.get(),
            // A queue is counted in 32 bits.
            waiting_max: u32::try_from(limits.waiting_max).unwrap_or(u32::MAX),
            connections: ConnectionBound::default(),
            connections_max: u32::MAX,
            outage: Outage::default(),
            permits: Permits::default(),
            overdue: OverdueRule::new(),
            start: now,
            discounts: 0,
            lendings: 0,
            queue: Queue::new(),
            tickets: Slab::new(),
            classes: [ClassStatistics::new(), ClassStatistics::new()],
            refused: 0,
            expired: 0,
            withdrawn: 0,
            interval_start: now,
            concurrency_peak: 0,
            population: PopulationTime::new(now),
        };
        Gate { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        // No code that can panic leaves the state half changed.
        self.state.lock()
    }

    /// Asks for a permit.
    #[must_use]
    pub fn request(&self, request: &Request<'_>, now: Instant) -> Admission {
        let mut state = self.lock();
        let now = state.advance(now);
        if !state.is_full() {
            let key = state.permits.grant(request.class, Duration::ZERO, now);
            state.concurrency_peak = state.concurrency_peak.max(state.concurrency());
            state.classes[request.class.index()].record_wait(Duration::ZERO, false);
            return Admission::Granted(self.permit(&state, key));
        }
        if state.queue.len() >= state.waiting_max {
            state.refused += 1;
            return Admission::Refused(QueueFull { waiting: state.queue.len() as usize });
        }
        Admission::Queued(self.enqueue(&mut state, request, now))
    }

    fn enqueue(&self, state: &mut GateState, request: &Request<'_>, now: Instant) -> Ticket {
        let ticket = TicketKey(state.tickets.vacant_key());
        let queue_key = state.queue.push(
            request.class,
            WaitingTicket {
                ticket,
                since: now,
                deadline: request.deadline,
                token: request.token,
                waker: Arc::clone(request.waker),
            },
        );
        let inserted = state.tickets.insert(TicketState::Waiting { queue_key });
        debug_assert_eq!(inserted, ticket.0, "the vacant key is the next");
        state.concurrency_peak = state.concurrency_peak.max(state.concurrency());
        Ticket { gate: self.clone(), key: ticket, open: true }
    }

    fn permit(&self, state: &GateState, key: PermitKey) -> Permit {
        let id = state.permits.get(key).id;
        Permit { gate: self.clone(), key, id, is_lent: false, open: true }
    }

    /// Changes the limit. A lower one takes effect as permits return; a higher one at once.
    pub fn set_limit(&self, limit: Mpl, now: Instant) {
        let mut state = self.lock();
        let now = state.advance(now);
        state.limit = limit.get();
        // All under one lock: a request that came between two grants would overtake the queue.
        let granted: Vec<_> = std::iter::from_fn(|| state.grant_next(now)).collect();
        drop(state);
        wake(granted);
    }

    /// Lets permits that have counted for far longer than usual count no longer, as [`OverdueRule`]
    /// says, and admits who waits for their places. Returns the permits that were discounted now,
    /// the oldest first. To be called every few milliseconds.
    #[must_use = "the holders of these permits should be named in a warning"]
    pub fn discount(&self, now: Instant) -> Vec<Discounted> {
        let mut state = self.lock();
        let now = state.advance(now);
        let discounted = state.discount(now);
        let most = state.limit_max();
        state.connections.widen(most, now);
        let granted: Vec<_> = std::iter::from_fn(|| state.grant_next(now)).collect();
        drop(state);
        wake(granted);
        discounted
    }

    /// Notes that the server has refused a connection because it has no more to give, while
    /// `without_connection` of the permits out wait for one. Until the server may have more, no
    /// permits are granted beyond those that have a connection: who asks then waits in the queue.
    pub fn refused_by_server(&self, without_connection: u32, now: Instant) {
        let mut state = self.lock();
        let now = state.advance(now);
        // Some of those that waited may have given their permits back meanwhile.
        let connected = state.permits.len().saturating_sub(without_connection);
        state.connections.refused(connected, now);
    }

    /// Changes the highest limit that will be set, and how many requests may wait. Those who wait
    /// already stay; of the permits that are out none is taken back.
    pub fn set_bounds(&self, mpl_max: Mpl, waiting_max: usize, now: Instant) {
        let mut state = self.lock();
        let now = state.advance(now);
        state.mpl_max = mpl_max.get();
        state.waiting_max = u32::try_from(waiting_max).unwrap_or(u32::MAX);
        let granted: Vec<_> = std::iter::from_fn(|| state.grant_next(now)).collect();
        drop(state);
        wake(granted);
    }

    /// Sets how many connections to the database there may be, at least 1: each permit needs one.
    pub fn set_connections(&self, most: u32, now: Instant) {
        let mut state = self.lock();
        let now = state.advance(now);
        state.connections_max = most.max(1);
        let granted: Vec<_> = std::iter::from_fn(|| state.grant_next(now)).collect();
        drop(state);
        wake(granted);
    }

    /// Notes that the database cannot be reached, or still cannot be, while `connected` permits
    /// have a connection. Until [`Gate::end_outage`] no permits are granted beyond those, and no
    /// control interval ends: what passes meanwhile says nothing about the database.
    pub fn begin_outage(&self, connected: u32, now: Instant) {
        let mut state = self.lock();
        let now = state.advance(now);
        state.outage = Outage::Lasts { connected };
        // There may be more of them than there were.
        let granted: Vec<_> = std::iter::from_fn(|| state.grant_next(now)).collect();
        drop(state);
        wake(granted);
    }

    /// Notes that the database can be reached again. Transactions that wait are admitted, and no
    /// permit is overdue because of the outage. Nothing happens if there was none.
    pub fn end_outage(&self, now: Instant) {
        let mut state = self.lock();
        if !state.outage.lasts() {
            return;
        }
        let now = state.advance(now);
        state.outage = Outage::Ended(now);
        state.permits.restart_ages(now);
        let granted: Vec<_> = std::iter::from_fn(|| state.grant_next(now)).collect();
        drop(state);
        wake(granted);
    }

    /// Counts from now on, in each interval, the transactions of `class` whose response time is
    /// longer than `within`.
    pub fn count_late(&self, class: Class, within: Duration) {
        self.lock().classes[class.index()].count_late(within);
    }

    /// Removes every request whose deadline is not after `now` from the queue and wakes it.
    pub fn expire(&self, now: Instant) {
        let mut state = self.lock();
        let now = state.advance(now);
        let late = state.queue.keys_where(|waiting| waiting.deadline.is_some_and(|at| at <= now));
        let mut woken = Vec::with_capacity(late.len());
        for key in late {
            let waiting = state.queue.remove(key);
            *state.ticket(waiting.ticket) = TicketState::Expired;
            state.expired += 1;
            woken.push((waiting.waker, waiting.token));
        }
        drop(state);
        wake(woken);
    }

    /// Returns whether a transaction is waiting.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.lock().queue.is_empty()
    }

    /// Returns how long the current interval has lasted, and what was completed in it.
    #[must_use]
    pub fn progress(&self, now: Instant) -> (Duration, u64) {
        let state = self.lock();
        let completions = state.classes.iter().map(ClassStatistics::completions).sum();
        (now.saturating_duration_since(state.interval_start), completions)
    }

    /// Begins the interval anew at `now` if nothing ran or waited in it, or if the database cannot
    /// be reached. Returns whether it did: such an interval says nothing about the database, and
    /// would dilute the throughput of the next transactions.
    #[must_use]
    pub fn skip_empty_interval(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let is_disturbed = state.outage.disturbs(now);
        let is_void = state.concurrency_peak == 0 || is_disturbed;
        if is_void {
            let now = state.advance(now);
            state.interval_start = now;
            state.population = PopulationTime::new(now);
            state.concurrency_peak = state.concurrency();
        }
        if is_disturbed {
            state.classes.iter_mut().for_each(ClassStatistics::drop_interval);
        }
        is_void
    }

    /// Ends the interval at `now` and begins the next. Returns what was observed in it.
    #[must_use]
    pub fn observe(&self, now: Instant) -> Observation {
        let mut state = self.lock();
        let now = state.advance(now);
        let (classes, all) = statistics::end_interval(&mut state.classes);
        let concurrency = state.concurrency();
        let interval = now.saturating_duration_since(state.interval_start);
        let means = state.population.end_interval(interval);
        let observation = Observation {
            interval,
            limit: Mpl::at_least_one(state.limit),
            concurrency,
            running: state.permits.counted(),
            idle: state.permits.lent(),
            idle_mean: means.idle,
            discounted: state.permits.discounted(),
            discounted_mean: means.discounted,
            concurrency_peak: state.concurrency_peak,
            concurrency_mean: means.concurrency,
            running_mean: means.running,
            waiting_share: means.waiting_share,
            completions: all.completions,
            failures: all.failures,
            in_database: all.in_database,
            in_queue: all.in_queue,
            locks: None,
            server: None,
            classes,
        };
        state.interval_start = now;
        state.concurrency_peak = concurrency;
        observation
    }

    /// Returns the highest limit that will ever be set.
    pub(crate) fn highest_limit(&self) -> Mpl {
        Mpl::at_least_one(self.lock().mpl_max)
    }

    /// Returns the state at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        Snapshot {
            limit: Mpl::at_least_one(state.limit),
            outstanding: state.permits.len(),
            idle: state.permits.lent(),
            discounted: state.permits.discounted(),
            lendings: state.lendings,
            discounts: state.discounts,
            waiting: state.queue.len() as usize,
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
    key: PermitKey,
    id: PermitId,
    is_lent: bool,
    open: bool,
}

impl Permit {
    /// Returns what tells this permit from every other one of the gate.
    #[must_use]
    pub fn id(&self) -> PermitId {
        self.id
    }

    /// Gives the permit back.
    pub fn finish(mut self, outcome: Outcome, now: Instant) {
        self.give_back(outcome, now);
    }

    /// Says that the transaction could not begin to work before `now`, because it had to wait for a
    /// connection to the database. How long that took says nothing of how long transactions take,
    /// so [`OverdueRule`] is not told, and the permit's age begins anew; all else counts from the
    /// grant.
    pub fn begin_work(&self, now: Instant) {
        let mut state = self.gate.lock();
        let now = state.advance(now);
        state.permits.begin_work(self.key, now);
    }

    /// Says that the transaction's client is idle: until [`resume`](Permit::resume) the permit does
    /// not count against the limit, and who waits is let in for it. Nothing happens if it is lent
    /// already.
    pub fn lend(&mut self, now: Instant) {
        if std::mem::replace(&mut self.is_lent, true) {
            return;
        }
        let mut state = self.gate.lock();
        let now = state.advance(now);
        state.permits.lend(self.key, now);
        state.lendings += 1;
        let next = state.grant_next(now);
        drop(state);
        wake(next);
    }

    /// Says that the transaction has no connection, and that others have all there may be: until
    /// [`resume`](Permit::resume) the permit counts neither against the limit nor as outstanding.
    /// Nothing happens if it is lent or set aside already.
    pub fn set_aside(&mut self, now: Instant) {
        if std::mem::replace(&mut self.is_lent, true) {
            return;
        }
        let mut state = self.gate.lock();
        let now = state.advance(now);
        state.permits.set_aside(self.key, now);
        let next = state.grant_next(now);
        drop(state);
        wake(next);
    }

    /// Says that the transaction goes on: a permit that was lent or set aside counts again from
    /// now on, also above the limit. Any other stays as it is, at no cost.
    pub fn resume(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.is_lent, false) {
            return;
        }
        let mut state = self.gate.lock();
        let now = state.advance(now);
        state.permits.resume(self.key, now);
        state.concurrency_peak = state.concurrency_peak.max(state.concurrency());
    }

    /// Records the end of one transaction and the begin of the next one under the same permit, for
    /// transactions that are already inside the database when the one before them ends.
    pub fn next_transaction(&mut self, outcome: Outcome, now: Instant) {
        self.is_lent = false;
        let mut state = self.gate.lock();
        let now = state.advance(now);
        let ended = state.permits.renew(self.key, now);
        state.end(&ended, outcome, now);
        state.classes[ended.class.index()].record_wait(Duration::ZERO, false);
        state.concurrency_peak = state.concurrency_peak.max(state.concurrency());
    }

    fn give_back(&mut self, outcome: Outcome, now: Instant) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        let mut state = self.gate.lock();
        let now = state.advance(now);
        let ended = state.permits.take(self.key, now);
        state.end(&ended, outcome, now);
        let next = state.grant_next(now);
        drop(state);
        wake(next);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.open {
            self.give_back(Outcome::Failed, clock::now());
        }
    }
}

/// A place in the queue. Dropping it leaves the queue, or gives back what was granted meanwhile.
#[derive(Debug)]
pub struct Ticket {
    gate: Gate,
    key: TicketKey,
    open: bool,
}

impl Ticket {
    /// Takes the permit if it has been granted.
    #[must_use]
    pub fn claim(mut self) -> Claim {
        let mut state = self.gate.lock();
        let claim = match *state.ticket(self.key) {
            TicketState::Waiting { .. } => {
                drop(state);
                return Claim::Waiting(self);
            }
            TicketState::Granted { permit } => Claim::Granted(self.gate.permit(&state, permit)),
            TicketState::Expired => Claim::Expired,
        };
        state.tickets.remove(self.key.0);
        drop(state);
        self.open = false;
        claim
    }

    fn withdraw(&mut self) {
        let mut state = self.gate.lock();
        match state.tickets.remove(self.key.0) {
            TicketState::Waiting { queue_key } => {
                let waiting = state.queue.remove(queue_key);
                state.withdrawn += 1;
                drop(state);
                // After the lock: what the waker owns may itself use the gate when it is dropped.
                drop(waiting);
            }
            TicketState::Granted { permit } => {
                let permit = self.gate.permit(&state, permit);
                drop(state);
                drop(permit);
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

    /// Who waits already stays, and a higher bound lets in what the old one held up.
    #[test]
    fn bounds_can_be_changed_while_requests_wait() {
        let now = Instant::now();
        let two = Mpl::at_least_one(2);
        let gate = Gate::new(Limits { mpl: Mpl::ONE, mpl_max: Mpl::ONE, waiting_max: 8 }, now);
        let waker: Waker = Arc::new(|_| {});
        let ask = || {
            let request = Request { class: Class::Normal, deadline: None, token: 0, waker: &waker };
            gate.request(&request, now)
        };
        let Admission::Granted(mut lent) = ask() else { panic!("nothing is out") };
        let Admission::Queued(first) = ask() else { panic!("the only permit is out") };
        let Admission::Queued(second) = ask() else { panic!("the only permit is out") };
        gate.set_bounds(Mpl::ONE, 1, now);
        assert!(matches!(ask(), Admission::Refused(QueueFull { waiting: 2 })));
        lent.lend(now);
        let Claim::Waiting(first) = first.claim() else { panic!("as many are out as may be") };
        gate.set_bounds(two, 1, now);
        let Claim::Granted(_running) = first.claim() else { panic!("one more may be out") };
        let Claim::Waiting(_second) = second.claim() else { panic!("two are out") };
    }

    /// Neither can be seen from outside, and a slot that stays behind would cost memory for ever.
    #[test]
    fn every_end_of_a_ticket_frees_its_slot() {
        let now = Instant::now();
        let limits = Limits { mpl: Mpl::ONE, mpl_max: Mpl::ONE, waiting_max: 8 };
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
        assert_eq!((state.queue.len(), state.permits.len()), (0, 0));
    }
}
