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
//! **Two gates.** While one process takes over from another, both have a gate for the database. The
//! old one grants no more; the new one is told how many of the old one's permits count
//! ([`Gate::set_elsewhere`]) and grants only what is left of the limit.
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

use crate::classes::{ClassId, Classes, ClassesError, Policy, WaitingOrder};
use crate::connections::ConnectionBound;
use crate::expectation::Expectation;
use crate::outage::Outage;
use crate::permits::{Outstanding, PermitId, PermitKey, Permits};
use crate::queue::{Lane, Queue, QueueKey, Rank};
use crate::request::{Admission, Claim, Discounted, Limits, Outcome, Refusal, RefusalReason};
use crate::request::{Request, Snapshot, Waker};
use crate::statistics::{
    self, ClassStatistics, PopulationCounts, PopulationTime, RequestCounts, TransactionTimes,
};

/// Names a ticket while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TicketKey(usize);

struct WaitingTicket {
    ticket: TicketKey,
    since: Instant,
    wait_until: Option<Instant>,
    finish_by: Option<Instant>,
    /// The latest moment to start if it is to be done in time.
    start_by: Option<Instant>,
    expected: Option<Duration>,
    token: u64,
    waker: Waker,
}

enum TicketState {
    Waiting { queue_key: QueueKey },
    Granted { permit: PermitKey },
    Expired,
    Late(Refusal),
}

/// Why it is a transaction's turn; what comes first goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Its class or a quota holds fewer permits than its minimum. The numbers are the place of the
    /// class by the policy, and the place in the class.
    Minimum((u128, ClassId), Rank),
    /// It has waited for longer than the ageing time; the number is that of its arrival.
    Aged(u64),
    /// By the policy, as with a minimum.
    Policy((u128, ClassId), Rank),
}

/// Whom to wake: one, nearly always, so that no memory is needed for it.
#[derive(Default)]
struct Woken {
    first: Option<(Waker, u64)>,
    others: Vec<(Waker, u64)>,
}

/// - `permits` holds permits and granted tickets alike; `counted` leaves out those that are lent or
///   discounted.
/// - While the gate is not full, nothing waits but for room within a maximum of its class or its
///   quotas.
/// - A grant happens only while `counted < limit` and `outstanding < outstanding_max`.
struct GateState {
    limit: u32,
    mpl_max: u32,
    waiting_max: u32,
    connections: ConnectionBound,
    connections_max: u32,
    outage: Outage,
    permits: Permits,
    /// Permits of another gate for the same database, which count here.
    elsewhere: u32,
    overdue: OverdueRule,
    start: Instant,
    discounts: u64,
    lendings: u64,
    settings: Arc<Classes>,
    queue: Queue<WaitingTicket>,
    tickets: Slab<TicketState>,
    classes: Vec<ClassStatistics>,
    expectations: Vec<Expectation>,
    interval_start: Instant,
    concurrency_peak: u32,
    population: PopulationTime,
}

impl GateState {
    /// Returns the number of transactions that count against the limit or wait.
    fn concurrency(&self) -> u32 {
        self.permits.counted() + self.waiting_for_limit()
    }

    /// Returns the number of transactions that wait for the limit: none while there are permits,
    /// because those that wait then wait for room within a maximum of their own.
    fn waiting_for_limit(&self) -> u32 {
        if self.is_full() { self.queue.len() } else { 0 }
    }

    fn note_peak(&mut self) {
        self.concurrency_peak = self.concurrency_peak.max(self.concurrency());
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
        self.permits.counted().saturating_add(self.elsewhere) >= self.limit
            || self.permits.not_set_aside().saturating_add(self.elsewhere) >= self.outstanding_max()
    }

    /// Checks the invariants of the type.
    fn check(&self) {
        self.permits.check();
        self.queue.check();
        debug_assert!(self.limit >= 1, "some transaction may always run");
        debug_assert!(self.is_full() || !self.queue.lanes().any(|it| self.has_room(it)), "idle");
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
            waiting: self.waiting_for_limit(),
        };
        self.population.advance(now, present);
        now
    }

    /// Returns whether the maxima of those in a lane leave room for one of them.
    fn has_room(&self, lane: &Lane) -> bool {
        self.permits.shares.has_room(lane.class, lane.quotas)
    }

    /// Returns the place of a class by the policy: the lowest goes first.
    fn place(&self, class: ClassId, now: Instant) -> (u128, ClassId) {
        match self.settings.policy() {
            Policy::Strict => (0, class),
            Policy::Weights => (self.permits.shares.use_with_one_more(class, now), class),
        }
    }

    /// Returns which transaction of a lane goes first, and its turn.
    fn turn(&self, lane: &Lane, now: Instant) -> Option<(Turn, QueueKey)> {
        let (first, rank) = self.queue.first(lane)?;
        let place = self.place(lane.class, now);
        if self.permits.shares.is_below_minimum(lane.class, lane.quotas, self.limit) {
            return Some((Turn::Minimum(place, rank), first));
        }
        let (oldest, arrival) = self.queue.oldest(lane)?;
        let age = now.saturating_duration_since(self.queue.get(oldest).since);
        if self.settings.class(lane.class).ageing.is_some_and(|ageing| age >= ageing) {
            return Some((Turn::Aged(arrival), oldest));
        }
        Some((Turn::Policy(place, rank), first))
    }

    /// Grants what waits as far as the limit and the maxima allow. Returns whom to wake.
    ///
    /// All under one lock: a request that came between two grants would overtake the queue.
    fn grant_waiting(&mut self, now: Instant) -> Woken {
        let mut woken = Woken::default();
        while !self.is_full()
            && let Some((turn, key)) = self
                .queue
                .lanes()
                .filter(|lane| self.has_room(lane))
                .filter_map(|lane| self.turn(lane, now))
                .min_by_key(|(turn, _)| *turn)
        {
            let granted = self.grant_from_queue(turn, key, now);
            if woken.first.is_none() {
                woken.first = Some(granted);
            } else {
                woken.others.push(granted);
            }
        }
        self.note_peak();
        woken
    }

    fn grant_from_queue(&mut self, turn: Turn, key: QueueKey, now: Instant) -> (Waker, u64) {
        let (class, quotas) = self.queue.lane_of(key);
        let waiting = self.queue.remove(key);
        match turn {
            Turn::Policy(..) => {
                self.permits.shares.forget_credit(class, now);
                self.permits.shares.goes(class, now);
            }
            Turn::Aged(_) => self.classes[class.index()].requests.aged += 1,
            Turn::Minimum(..) => {}
        }
        let in_queue = now.saturating_duration_since(waiting.since);
        let permit = self.permits.grant((class, quotas), in_queue, now);
        debug_assert!(self.permits.counted() <= self.limit, "a grant keeps the limit");
        let outstanding = self.permits.not_set_aside();
        debug_assert!(outstanding <= self.outstanding_max(), "a grant keeps the bound");
        let is_exception = self.outage.has_met(waiting.since);
        self.classes[class.index()].record_wait(in_queue, is_exception);
        self.expectations[class.index()].granted(now);
        let before =
            std::mem::replace(self.ticket(waiting.ticket), TicketState::Granted { permit });
        debug_assert!(matches!(before, TicketState::Waiting { .. }), "a ticket is granted once");
        (waiting.waker, waiting.token)
    }

    /// Returns where a request stands in its class, before the order of arrival.
    fn rank(&self, class: ClassId, waiting: (Option<Instant>, Option<Duration>)) -> u64 {
        let (finish_by, expected) = waiting;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match self.settings.class(class).order {
            WaitingOrder::Fifo => 0,
            WaitingOrder::EarliestDeadline => {
                finish_by.map_or(u64::MAX, |at| nanos(self.clock(at)))
            }
            WaitingOrder::ShortestExpected => {
                let expected = expected.or(self.expectations[class.index()].database());
                expected.map_or(u64::MAX, nanos)
            }
        }
    }

    /// Returns the refusal of a request that cannot be done in time; it would run at once, or wait
    /// at this place of its class.
    ///
    /// Of a class of which nothing runs or waits one is let in whatever is known: otherwise a
    /// database that was slow once would be taken for slow for ever.
    fn lateness(&self, request: &Request<'_>, place: Option<u32>, now: Instant) -> Option<Refusal> {
        let finish_by = request.finish_by?;
        let refusal = self.refusal(RefusalReason::Late, request.class, place, now);
        let in_database = request.expected.or(refusal.in_database).unwrap_or_default();
        let wait = refusal.expected_wait.unwrap_or_default();
        let left = finish_by.checked_duration_since(now).unwrap_or_default();
        let is_late = wait.saturating_add(in_database) > left && !self.is_trial(request.class);
        (left.is_zero() || is_late).then_some(refusal)
    }

    /// Returns whether nothing of a class runs or waits.
    fn is_trial(&self, class: ClassId) -> bool {
        self.permits.shares.counted(class) == 0 && self.queue.len_of(class) == 0
    }

    /// Returns a refusal of a request that would run at once, or wait at this place of its class.
    fn refusal(
        &self,
        reason: RefusalReason,
        class: ClassId,
        place: Option<u32>,
        now: Instant,
    ) -> Refusal {
        let expectation = &self.expectations[class.index()];
        let class_waiting = self.queue.len_of(class);
        let wait = |place| expectation.wait(place, class_waiting > 0, self.limit, now);
        let of_class = self.settings.class(class).waiting_max;
        let waiting_max = match reason {
            RefusalReason::ClassQueueFull => of_class.unwrap_or(self.waiting_max),
            RefusalReason::QueueFull | RefusalReason::Late => self.waiting_max,
        };
        Refusal {
            reason,
            class,
            waiting: self.queue.len(),
            class_waiting,
            waiting_max,
            limit: Mpl::at_least_one(self.limit),
            expected_wait: place.map_or(Some(Duration::ZERO), wait),
            in_database: expectation.database(),
        }
    }

    /// Returns why a request that cannot run at once may not wait either.
    fn refuse_waiting(&self, request: &Request<'_>, now: Instant) -> Option<Refusal> {
        let class_waiting = self.queue.len_of(request.class);
        let rank = self.rank(request.class, (request.finish_by, request.expected));
        let place = Some(self.queue.ahead(request.class, rank) + 1);
        if self.queue.len() >= self.waiting_max {
            return Some(self.refusal(RefusalReason::QueueFull, request.class, place, now));
        }
        let of_class = self.settings.class(request.class).waiting_max;
        if of_class.is_some_and(|most| class_waiting >= most) {
            return Some(self.refusal(RefusalReason::ClassQueueFull, request.class, place, now));
        }
        self.lateness(request, place, now)
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
        let is_exception = ended.was_discounted || self.outage.has_met(asked);
        class.record_end(outcome, spent, is_exception);
        if !is_exception {
            self.permits.shares.ended(in_database);
            self.expectations[ended.class.index()].ended(in_database);
        }
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
            self.permits.discount(key, now);
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
fn wake(woken: Woken) {
    for (waker, token) in woken.first.into_iter().chain(woken.others) {
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
    /// Makes a gate with the default classes whose first interval begins at `now`.
    #[must_use]
    pub fn new(limits: Limits, now: Instant) -> Gate {
        Gate::with_classes(limits, Arc::default(), now)
    }

    /// Makes a gate whose first interval begins at `now`.
    #[must_use]
    pub fn with_classes(limits: Limits, classes: Arc<Classes>, now: Instant) -> Gate {
        let state = GateState {
            limit: limits.mpl.get(),
            mpl_max: limits.mpl_max.get(),
            // A queue is counted in 32 bits.
            waiting_max: u32::try_from(limits.waiting_max).unwrap_or(u32::MAX),
            connections: ConnectionBound::default(),
            connections_max: u32::MAX,
            outage: Outage::default(),
            permits: Permits::new(&classes, now),
            elsewhere: 0,
            overdue: OverdueRule::new(),
            start: now,
            discounts: 0,
            lendings: 0,
            queue: Queue::new(&classes),
            tickets: Slab::new(),
            classes: classes.iter().map(|_| ClassStatistics::new()).collect(),
            expectations: classes.iter().map(|_| Expectation::new(now)).collect(),
            settings: classes,
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
    ///
    /// # Panics
    /// The gate has no such class.
    #[must_use]
    pub fn request(&self, request: &Request<'_>, now: Instant) -> Admission {
        let mut state = self.lock();
        let now = state.advance(now);
        let Request { class, quotas, .. } = *request;
        let runs = !state.is_full() && state.permits.shares.has_room(class, quotas);
        let refusal = if runs {
            state.lateness(request, None, now)
        } else {
            state.refuse_waiting(request, now)
        };
        if let Some(refusal) = refusal {
            state.classes[class.index()].requests.refuse(refusal.reason);
            return Admission::Refused(refusal);
        }
        if !runs {
            return Admission::Queued(self.enqueue(&mut state, request, now));
        }
        state.permits.shares.goes(class, now);
        let key = state.permits.grant((class, quotas), Duration::ZERO, now);
        state.note_peak();
        state.classes[class.index()].record_wait(Duration::ZERO, false);
        Admission::Granted(self.permit(&state, key))
    }

    fn enqueue(&self, state: &mut GateState, request: &Request<'_>, now: Instant) -> Ticket {
        let Request { class, quotas, wait_until, finish_by, expected, token, waker } = *request;
        let expectation = &mut state.expectations[class.index()];
        let in_database = expected.or(expectation.database()).unwrap_or_default();
        let is_trial = state.is_trial(class);
        let start_by = finish_by.map(|at| match at.checked_sub(in_database) {
            Some(start_by) if !is_trial => start_by,
            _ => at,
        });
        if state.queue.len_of(class) == 0 {
            state.expectations[class.index()].begins_to_wait(now);
            state.permits.shares.forget_credit(class, now);
        }
        let ticket = TicketKey(state.tickets.vacant_key());
        let rank = state.rank(class, (finish_by, expected));
        let waker = Arc::clone(waker);
        let since = now;
        let waiting = WaitingTicket {
            ticket,
            since,
            wait_until,
            finish_by,
            start_by,
            expected,
            token,
            waker,
        };
        let queue_key = state.queue.push(class, quotas, rank, waiting);
        let inserted = state.tickets.insert(TicketState::Waiting { queue_key });
        debug_assert_eq!(inserted, ticket.0, "the vacant key is the next");
        state.note_peak();
        Ticket { gate: self.clone(), key: ticket, open: true }
    }

    /// Returns the classes.
    #[must_use]
    pub fn classes(&self) -> Arc<Classes> {
        Arc::clone(&self.lock().settings)
    }

    /// Goes on with other settings of the same classes and quotas, also for those that wait.
    ///
    /// # Errors
    /// They are not the same classes and quotas, by their names and order.
    pub fn set_classes(&self, classes: Arc<Classes>, now: Instant) -> Result<(), ClassesError> {
        let mut locked = self.lock();
        let state = &mut *locked;
        if !state.settings.may_become(&classes) {
            return Err(ClassesError::Others);
        }
        let now = state.advance(now);
        state.permits.shares.configure(&classes, now);
        state.settings = classes;
        let mut queue = std::mem::replace(&mut state.queue, Queue::new(&state.settings));
        queue.configure(&state.settings, |class, waiting: &WaitingTicket| {
            state.rank(class, (waiting.finish_by, waiting.expected))
        });
        state.queue = queue;
        let granted = state.grant_waiting(now);
        drop(locked);
        wake(granted);
        Ok(())
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
        let granted = state.grant_waiting(now);
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
        let granted = state.grant_waiting(now);
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
        state.note_peak();
    }

    /// Changes the highest limit that will be set, and how many requests may wait. Those who wait
    /// already stay; of the permits that are out none is taken back.
    pub fn set_bounds(&self, mpl_max: Mpl, waiting_max: usize, now: Instant) {
        let mut state = self.lock();
        let now = state.advance(now);
        state.mpl_max = mpl_max.get();
        state.waiting_max = u32::try_from(waiting_max).unwrap_or(u32::MAX);
        let granted = state.grant_waiting(now);
        drop(state);
        wake(granted);
    }

    /// Sets how many connections to the database there may be, at least 1: each permit needs one.
    pub fn set_connections(&self, most: u32, now: Instant) {
        let mut state = self.lock();
        let now = state.advance(now);
        state.connections_max = most.max(1);
        let granted = state.grant_waiting(now);
        drop(state);
        wake(granted);
    }

    /// Sets how many permits of another gate for the same database are out that count: those of a
    /// process from which this one takes over. Both together keep the limit then.
    pub fn set_elsewhere(&self, permits: u32, now: Instant) {
        let mut state = self.lock();
        let now = state.advance(now);
        state.elsewhere = permits;
        let granted = state.grant_waiting(now);
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
        let granted = state.grant_waiting(now);
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
        let granted = state.grant_waiting(now);
        drop(state);
        wake(granted);
    }

    /// Counts from now on, in each interval, the transactions of `class` whose response time is
    /// longer than `within`.
    pub fn count_late(&self, class: ClassId, within: Duration) {
        self.lock().classes[class.index()].count_late(within);
    }

    /// Removes every request from the queue that has waited for as long as it may, or cannot be
    /// done in time any more, and wakes it.
    pub fn expire(&self, now: Instant) {
        let mut state = self.lock();
        let now = state.advance(now);
        let is_past = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let passed = state.queue.keys_where(|it| is_past(it.wait_until) || is_past(it.start_by));
        let mut woken = Woken::default();
        for key in passed {
            let (class, _) = state.queue.lane_of(key);
            let waiting = state.queue.remove(key);
            let requests = &mut state.classes[class.index()].requests;
            *state.ticket(waiting.ticket) = if is_past(waiting.wait_until) {
                requests.expired += 1;
                TicketState::Expired
            } else {
                requests.late += 1;
                TicketState::Late(state.refusal(RefusalReason::Late, class, Some(1), now))
            };
            woken.others.push((waiting.waker, waiting.token));
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
        let sum = |of: fn(&RequestCounts) -> u64| {
            state.classes.iter().map(|class| of(&class.requests)).sum()
        };
        let totals = |(class, statistics): (ClassId, &ClassStatistics)| {
            let running = state.permits.shares.counted(class);
            statistics.totals(state.queue.len_of(class), running)
        };
        let ids = state.settings.iter().map(|(class, _)| class);
        Snapshot {
            limit: Mpl::at_least_one(state.limit),
            outstanding: state.permits.len(),
            idle: state.permits.lent(),
            discounted: state.permits.discounted(),
            lendings: state.lendings,
            discounts: state.discounts,
            waiting: state.queue.len() as usize,
            refused: sum(|requests| requests.refused.iter().sum()),
            expired: sum(|requests| requests.expired + requests.late),
            withdrawn: sum(|requests| requests.withdrawn),
            classes: ids.zip(&state.classes).map(totals).collect(),
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

    /// Gives the permit back. Returns the transaction's time in the database.
    #[expect(clippy::must_use_candidate, reason = "it is called to give the permit back")]
    pub fn finish(mut self, outcome: Outcome, now: Instant) -> Duration {
        self.give_back(outcome, now)
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
        let granted = state.grant_waiting(now);
        drop(state);
        wake(granted);
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
        let granted = state.grant_waiting(now);
        drop(state);
        wake(granted);
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
        state.note_peak();
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
        state.note_peak();
    }

    fn give_back(&mut self, outcome: Outcome, now: Instant) -> Duration {
        if !std::mem::replace(&mut self.open, false) {
            return Duration::ZERO;
        }
        let mut state = self.gate.lock();
        let now = state.advance(now);
        let ended = state.permits.take(self.key, now);
        state.end(&ended, outcome, now);
        let granted = state.grant_waiting(now);
        drop(state);
        wake(granted);
        now.saturating_duration_since(ended.granted_at)
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
            TicketState::Late(refusal) => Claim::Late(refusal),
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
                let (class, _) = state.queue.lane_of(queue_key);
                let waiting = state.queue.remove(queue_key);
                state.classes[class.index()].requests.withdrawn += 1;
                drop(state);
                // After the lock: what the waker owns may itself use the gate when it is dropped.
                drop(waiting);
            }
            TicketState::Granted { permit } => {
                let permit = self.gate.permit(&state, permit);
                drop(state);
                drop(permit);
            }
            TicketState::Expired | TicketState::Late(_) => {}
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
    use crate::classes::Class;

    /// Who waits already stays, and a higher bound lets in what the old one held up.
    #[test]
    fn bounds_can_be_changed_while_requests_wait() {
        let now = Instant::now();
        let two = Mpl::at_least_one(2);
        let gate = Gate::new(Limits { mpl: Mpl::ONE, mpl_max: Mpl::ONE, waiting_max: 8 }, now);
        let waker: Waker = Arc::new(|_| {});
        let ask = || gate.request(&Request::new(Class::Normal, 0, &waker), now);
        let Admission::Granted(mut lent) = ask() else { panic!("nothing is out") };
        let Admission::Queued(first) = ask() else { panic!("the only permit is out") };
        let Admission::Queued(second) = ask() else { panic!("the only permit is out") };
        gate.set_bounds(Mpl::ONE, 1, now);
        assert!(matches!(ask(), Admission::Refused(Refusal { waiting: 2, .. })));
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
        let ask = |wait_until| {
            let request = Request { wait_until, ..Request::new(Class::Normal, 0, &waker) };
            gate.request(&request, now)
        };
        let queue = |wait_until| match ask(wait_until) {
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
