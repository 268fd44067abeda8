//! Random schedules against a naive gate: one list of everything that was ever asked for and is
//! not yet over, in order of arrival.
//!
//! Time is synthetic, and an hour ahead of the real clock, which only a permit that is dropped
//! reads: there the gate's time stays where it was. Schedules with such drops are compared in
//! everything but durations, and the others in durations too.
//!
//! A schedule that fails is printed with the seed that makes it again (`PROPTEST_RNG_SEED`).

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tidegate_control::{ClassObservation, Mpl, Observation, Timing};
use tidegate_gate::{Admission, Claim, ClassId, ClassSettings, Classes, Gate, Limits, Outcome};
use tidegate_gate::{
    ClassTotals, Permit, PermitBounds, Policy, Quotas, Refusal, RefusalReason, Request,
};
use tidegate_gate::{Snapshot, Ticket, WaitingOrder, Waker};

const WAITING_MAX: usize = 6;

/// Longer responses are counted.
const LATE: Duration = Duration::from_millis(30);

/// One move. An index names one of the requests it can apply to, modulo their number.
#[derive(Clone, Debug)]
enum Move {
    Request(Asked),
    Claim(usize),
    Finish(usize, Outcome),
    Next(usize, Outcome),
    /// The client of a permit is idle.
    Lend(usize),
    /// It goes on, or was not idle.
    Resume(usize),
    /// The server gives no connection to so many of those that hold permits.
    Refused(u32),
    /// Drops a ticket that was not granted.
    Withdraw(usize),
    /// Drops a permit or a granted ticket.
    Abandon(usize),
    SetLimit(u32),
    Discount,
    Expire,
    Observe,
    /// Other settings of the same classes.
    Configure(Box<Settings>),
}

/// A request: its class, whether each quota bounds it, how long it waits at most, within which time
/// it has to be done, and how long it is expected to take.
#[derive(Clone, Copy, Debug)]
struct Asked {
    class: usize,
    quotas: [bool; 2],
    patience: Option<Duration>,
    within: Option<Duration>,
    expected: Option<Duration>,
}

const CLASSES: usize = 3;

/// The settings of the classes and of two quotas.
#[derive(Clone, Debug)]
struct Settings {
    policy: Policy,
    classes: [ClassSettings; CLASSES],
    quotas: [PermitBounds; 2],
}

impl Settings {
    fn classes(&self) -> Arc<Classes> {
        let quotas = self.quotas.iter().map(|it| ("quota".to_owned(), *it)).collect();
        Arc::new(Classes::new(self.policy, self.classes.to_vec(), quotas).expect("classes"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Waiting,
    Granted { at: Instant },
    Running { at: Instant },
    Expired,
    Late,
}

#[derive(Clone, Debug)]
struct Entry {
    token: u64,
    class: usize,
    quotas: [bool; 2],
    wait_until: Option<Instant>,
    finish_by: Option<Instant>,
    start_by: Option<Instant>,
    expected: Option<Duration>,
    /// Its place in its class before the order of arrival.
    rank: u128,
    since: Instant,
    /// How long it waited for its permit.
    waited: Duration,
    stage: Stage,
    /// When it last began to count: who began earlier is older.
    counts_since: Instant,
    /// Its place among those that began to count at the same time.
    place: u64,
    is_discounted: bool,
    was_discounted: bool,
    lent_since: Option<Instant>,
    /// For how long it was lent before.
    lent: Duration,
}

impl Entry {
    /// For how long a permit that was granted at `at` has counted, or been discounted.
    fn counted(&self, at: Instant, now: Instant) -> Duration {
        let lent_now = self.lent_since.map_or(Duration::ZERO, |since| now - since);
        (now - at).saturating_sub(self.lent + lent_now)
    }

    fn counts(&self) -> bool {
        !self.is_discounted && self.lent_since.is_none()
    }
}

/// What one class did in the interval.
#[derive(Clone, Debug, Default)]
struct Tally {
    completions: u64,
    failures: u64,
    in_database: Vec<Duration>,
    in_queue: Vec<Duration>,
    response: Vec<Duration>,
}

/// What one class did since the start: completions, failures, ends, grants.
type Totals = [u64; 4];

/// Seconds of an interval, each counted as often as there were transactions of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Population {
    concurrency: f64,
    running: f64,
    idle: f64,
    discounted: f64,
    /// Once for all who waited.
    waiting: f64,
}

/// What a class has been measured to do.
#[derive(Clone, Debug)]
struct Measured {
    database: Option<Duration>,
    grants: u32,
    waited: Duration,
    since: Instant,
}

impl Measured {
    fn wait(&self, place: u32, is_waiting: bool, limit: u32, now: Instant) -> Option<Duration> {
        let standing = if is_waiting { now - self.since } else { Duration::ZERO };
        if self.grants == 0 {
            return self.database.map(|typical| (typical * place / limit).max(standing));
        }
        Some((self.waited + standing) / self.grants * place)
    }
}

/// Requests of all classes that came to nothing, or went before others by ageing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Turned {
    refused: [u64; 3],
    expired: u64,
    late: u64,
    withdrawn: u64,
    aged: u64,
}

const SCALE: u128 = 1 << 32;
const MS: Duration = Duration::from_millis(1);

/// A mean that follows each value by a sixteenth of the difference.
fn follow(mean: Duration, value: Duration) -> Duration {
    let (up, down) = (value.saturating_sub(mean), mean.saturating_sub(value));
    (mean + up / 16).saturating_sub(down / 16)
}

#[derive(Clone, Debug)]
struct Model {
    settings: Settings,
    /// The use of permits by class: nanoseconds, times [`SCALE`], over the weight.
    used: [u128; CLASSES],
    virtual_time: u128,
    /// How long a transaction of any class holds its permit.
    typical: Duration,
    measured: [Measured; CLASSES],
    turned: [Turned; CLASSES],
    limit: u32,
    mpl_max: u32,
    /// The latest time that the gate was told.
    clock: Instant,
    start: Instant,
    places: u64,
    rule: NaiveRule,
    entries: Vec<Entry>,
    /// Permits that the server has connections for, if it refused one; how many more are tried
    /// next; since when.
    room: Option<(usize, usize, Instant)>,
    lendings: u64,
    interval: [Tally; CLASSES],
    totals: [Totals; CLASSES],
    interval_start: Instant,
    peak: usize,
    /// The interval so far.
    population: Population,
}

impl Model {
    fn new(settings: &Settings, limit: u32, mpl_max: u32, now: Instant) -> Model {
        let measured = Measured { database: None, grants: 0, waited: Duration::ZERO, since: now };
        Model {
            settings: settings.clone(),
            used: [0; CLASSES],
            virtual_time: 0,
            typical: MS,
            measured: std::array::from_fn(|_| measured.clone()),
            turned: Default::default(),
            limit,
            mpl_max,
            clock: now,
            start: now,
            places: 0,
            rule: NaiveRule::new(),
            entries: Vec::new(),
            room: None,
            lendings: 0,
            interval: Default::default(),
            totals: Default::default(),
            interval_start: now,
            peak: 0,
            population: Population::default(),
        }
    }

    /// The gate is told the time.
    fn tell(&mut self, now: Instant) {
        for class in 0..CLASSES {
            let counted = self.counted_of(|entry| entry.class == class) as u128;
            self.used[class] += (now - self.clock).as_nanos() * counted * self.price(class);
        }
        self.clock = now;
    }

    fn price(&self, class: usize) -> u128 {
        let weight = |it: &ClassSettings| u128::from(it.weight.get());
        let lowest = self.settings.classes.iter().map(weight).min().expect("there are classes");
        SCALE * lowest / weight(&self.settings.classes[class])
    }

    /// Permits that count of those for whom `is_one` holds.
    fn counted_of(&self, is_one: impl Fn(&Entry) -> bool) -> usize {
        let counts = |entry: &&Entry| {
            let holds = matches!(entry.stage, Stage::Granted { .. } | Stage::Running { .. });
            holds && entry.counts() && is_one(entry)
        };
        self.entries.iter().filter(counts).count()
    }

    /// Those who bound a transaction: permits that count, and the bounds.
    fn bounds(&self, class: usize, quotas: [bool; 2]) -> Vec<(usize, PermitBounds)> {
        let of_class = self.counted_of(|entry| entry.class == class);
        let mut bounds = vec![(of_class, self.settings.classes[class].permits)];
        for quota in (0..2).filter(|&quota| quotas[quota]) {
            let counted = self.counted_of(|entry| entry.quotas[quota]);
            bounds.push((counted, self.settings.quotas[quota]));
        }
        bounds
    }

    fn has_room(&self, class: usize, quotas: [bool; 2]) -> bool {
        let bounds = self.bounds(class, quotas);
        bounds.iter().all(|(counted, it)| it.max.is_none_or(|max| *counted < max.get() as usize))
    }

    fn is_below_minimum(&self, class: usize, quotas: [bool; 2]) -> bool {
        let of_classes = self.settings.classes.iter().map(|it| it.permits.min);
        let minima: u32 = of_classes.chain(self.settings.quotas.map(|it| it.min)).sum();
        let bounds = self.bounds(class, quotas);
        minima < self.limit && bounds.iter().any(|(counted, it)| *counted < it.min as usize)
    }

    fn expected_cost(&self, class: usize) -> u128 {
        let counted = self.counted_of(|entry| entry.class == class) as u128;
        (counted + 1) * self.typical.as_nanos() * self.price(class)
    }

    /// The place of a class by the policy.
    fn place(&self, class: usize) -> (u128, usize) {
        match self.settings.policy {
            Policy::Strict => (0, class),
            Policy::Weights => (self.used[class] + self.expected_cost(class), class),
        }
    }

    /// Who goes next: the first of its kind of turn, and the turn.
    fn next(&self, now: Instant) -> Option<(u64, u8)> {
        let waiting = self.entries.iter().filter(|entry| entry.stage == Stage::Waiting);
        let eligible = waiting.filter(|entry| self.has_room(entry.class, entry.quotas));
        let turn = |entry: &Entry| {
            let place = self.place(entry.class);
            let ageing = self.settings.classes[entry.class].ageing;
            if self.is_below_minimum(entry.class, entry.quotas) {
                (0, place, entry.rank, entry.token)
            } else if ageing.is_some_and(|ageing| now - entry.since >= ageing) {
                (1, (0, 0), 0, entry.token)
            } else {
                (2, place, entry.rank, entry.token)
            }
        };
        let next = eligible.map(turn).min()?;
        Some((next.3, next.0))
    }

    fn forget_credit(&mut self, class: usize) {
        let credit = 10 * self.typical.as_nanos() * SCALE + self.expected_cost(class);
        self.used[class] = self.used[class].max(self.virtual_time.saturating_sub(credit));
    }

    fn goes(&mut self, class: usize) {
        self.virtual_time = self.virtual_time.max(self.used[class] + self.expected_cost(class));
    }

    fn rank(&self, asked: &Entry) -> u128 {
        match self.settings.classes[asked.class].order {
            WaitingOrder::Fifo => 0,
            WaitingOrder::EarliestDeadline => {
                asked.finish_by.map_or(u128::MAX, |at| (at - self.start).as_nanos())
            }
            WaitingOrder::ShortestExpected => {
                let expected = asked.expected.or(self.measured[asked.class].database);
                expected.map_or(u128::MAX, |time| time.as_nanos())
            }
        }
    }

    fn waiting_of(&self, class: usize) -> usize {
        let is_one = |it: &&Entry| it.class == class && it.stage == Stage::Waiting;
        self.entries.iter().filter(is_one).count()
    }

    fn is_trial(&self, class: usize) -> bool {
        self.waiting_of(class) == 0 && self.counted_of(|entry| entry.class == class) == 0
    }

    /// How long a request would wait, if that is known.
    fn expected_wait(&self, asked: &Entry, runs: bool) -> Option<Duration> {
        if runs {
            return Some(Duration::ZERO);
        }
        let is_fifo = self.settings.classes[asked.class].order == WaitingOrder::Fifo;
        let goes_before = |it: &&Entry| {
            it.class == asked.class
                && it.stage == Stage::Waiting
                && (is_fifo || it.rank <= asked.rank)
        };
        let before = self.entries.iter().filter(goes_before).count();
        let place = u32::try_from(before + 1).expect("few wait");
        let is_waiting = self.waiting_of(asked.class) > 0;
        self.measured[asked.class].wait(place, is_waiting, self.limit, self.clock)
    }

    /// Why a request is refused, if it is.
    fn refusal(&self, asked: &Entry, runs: bool) -> Option<RefusalReason> {
        let class = asked.class;
        if !runs && self.waiting() >= WAITING_MAX {
            return Some(RefusalReason::QueueFull);
        }
        let of_class = self.settings.classes[class].waiting_max;
        if !runs && of_class.is_some_and(|most| self.waiting_of(class) >= most as usize) {
            return Some(RefusalReason::ClassQueueFull);
        }
        let finish_by = asked.finish_by?;
        let database = asked.expected.or(self.measured[class].database).unwrap_or_default();
        let done = self.clock + self.expected_wait(asked, runs).unwrap_or_default() + database;
        let is_late = finish_by <= self.clock || (done > finish_by && !self.is_trial(class));
        is_late.then_some(RefusalReason::Late)
    }

    /// A request begins to wait.
    fn begins_to_wait(&mut self, asked: &mut Entry) {
        let class = asked.class;
        asked.stage = Stage::Waiting;
        let database = asked.expected.or(self.measured[class].database).unwrap_or_default();
        let is_trial = self.is_trial(class);
        let least = if is_trial { Duration::ZERO } else { database };
        asked.start_by =
            asked.finish_by.map(|at| at.checked_sub(least).expect("the clock is ahead"));
        if self.waiting_of(class) == 0 {
            self.measured[class].since = self.clock;
            self.forget_credit(class);
        }
    }

    /// Those who wait for the limit.
    fn waiting_for_limit(&self) -> usize {
        if self.is_full() { self.waiting() } else { 0 }
    }

    fn pass(&mut self, pause: Duration) {
        let (running, waiting) = (self.counted(), self.waiting_for_limit());
        let pause_s = pause.as_secs_f64();
        self.population.concurrency += (running + waiting) as f64 * pause_s;
        self.population.running += running as f64 * pause_s;
        self.population.idle += self.idle() as f64 * pause_s;
        self.population.discounted += self.discounted() as f64 * pause_s;
        self.population.waiting += if waiting > 0 { pause_s } else { 0.0 };
    }

    fn waiting(&self) -> usize {
        let waits = |entry: &&Entry| entry.stage == Stage::Waiting;
        self.entries.iter().filter(waits).count()
    }

    fn outstanding(&self) -> usize {
        let holds =
            |entry: &&Entry| matches!(entry.stage, Stage::Granted { .. } | Stage::Running { .. });
        self.entries.iter().filter(holds).count()
    }

    fn discounted(&self) -> usize {
        self.entries.iter().filter(|entry| entry.is_discounted).count()
    }

    fn idle(&self) -> usize {
        self.entries.iter().filter(|entry| entry.lent_since.is_some()).count()
    }

    /// Permits that count against the limit.
    fn counted(&self) -> usize {
        self.outstanding() - self.discounted() - self.idle()
    }

    /// Permits that may be out.
    fn most(&self) -> usize {
        let most = self.limit.max(self.mpl_max) as usize;
        self.room.map_or(most, |(room, ..)| room.min(most))
    }

    fn is_full(&self) -> bool {
        self.counted() >= self.limit as usize || self.outstanding() >= self.most()
    }

    /// Whoever begins to count stands behind all that count.
    fn begins_to_count(&mut self, token: u64, now: Instant) {
        self.places += 1;
        let place = self.places;
        let entry = self.entry(token);
        (entry.counts_since, entry.place) = (now, place);
    }

    /// After 10 s without a refusal more connections are tried.
    fn widen(&mut self, now: Instant) {
        if let Some((room, step, since)) = self.room
            && now - since >= Duration::from_secs(10)
        {
            let is_enough = room + step >= self.limit.max(self.mpl_max) as usize;
            self.room = (!is_enough).then_some((room + step, 2 * step, now));
        }
    }

    /// The oldest permits that are overdue, up to the bound, count no longer. How old they are.
    fn discount(&mut self, now: Instant) -> Vec<Duration> {
        let clock = now - self.start;
        let somebody_waits = self.waiting() > 0;
        let patience = self.rule.patience(somebody_waits, clock);
        let room = self.mpl_max.saturating_sub(self.limit) as usize;
        let most = self.rule.most(clock).min(room).saturating_sub(self.discounted());
        let mut overdue: Vec<(u64, u64, Duration)> = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.counts()) {
            let age = now - entry.counts_since;
            if let Stage::Granted { .. } | Stage::Running { .. } = entry.stage
                && age >= patience
            {
                overdue.push((entry.place, entry.token, age));
            }
        }
        overdue.sort_unstable();
        overdue.truncate(most);
        for &(_, token, _) in &overdue {
            let entry = self.entry(token);
            (entry.is_discounted, entry.was_discounted) = (true, true);
        }
        if somebody_waits && !overdue.is_empty() {
            self.rule.rounds.push(clock);
        }
        overdue.into_iter().map(|(.., age)| age).collect()
    }

    fn entry(&mut self, token: u64) -> &mut Entry {
        let entry = self.entries.iter_mut().find(|entry| entry.token == token);
        entry.expect("the schedule names an open request")
    }

    fn close(&mut self, token: u64) {
        self.entries.retain(|entry| entry.token != token);
    }

    /// Every request to whom a move could apply, by stage.
    fn tokens(&self, wanted: impl Fn(Stage) -> bool) -> Vec<u64> {
        let wanted = self.entries.iter().filter(|entry| wanted(entry.stage));
        wanted.map(|entry| entry.token).collect()
    }

    /// Grants whatever the limit and the bounds allow.
    fn grant(&mut self, now: Instant) -> Vec<u64> {
        let mut granted = Vec::new();
        while !self.is_full()
            && let Some((token, turn)) = self.next(now)
        {
            let class = self.entry(token).class;
            if turn == 1 {
                self.turned[class].aged += 1;
            } else if turn == 2 {
                self.entry(token).stage = Stage::Expired;
                self.forget_credit(class);
                self.goes(class);
            }
            let measured = &mut self.measured[class];
            measured.waited += now - measured.since;
            (measured.since, measured.grants) = (now, measured.grants + 1);
            if measured.grants >= 64 {
                (measured.grants, measured.waited) = (measured.grants / 2, measured.waited / 2);
            }
            let next = self.entry(token);
            next.stage = Stage::Granted { at: now };
            next.waited = now - next.since;
            let waited = next.waited;
            granted.push(token);
            self.begins_to_count(token, now);
            self.record_grant(class, waited);
        }
        granted
    }

    fn record_grant(&mut self, class: usize, waited: Duration) {
        self.interval[class].in_queue.push(waited);
        self.totals[class][3] += 1;
    }

    fn record_end(
        &mut self,
        class: usize,
        outcome: Outcome,
        (waited, lasted): (Duration, Duration),
        was_discounted: bool,
    ) {
        self.rule.end(lasted, was_discounted, self.clock - self.start);
        let tally = &mut self.interval[class];
        let totals = &mut self.totals[class];
        if !was_discounted {
            self.typical = follow(self.typical, lasted);
            let measured = &mut self.measured[class].database;
            *measured = Some(measured.map_or(lasted, |typical| follow(typical, lasted)));
            tally.in_database.push(lasted);
            tally.response.push(waited + lasted);
        }
        totals[2] += 1;
        match outcome {
            Outcome::Completed => {
                tally.completions += 1;
                totals[0] += 1;
            }
            Outcome::Failed => {
                tally.failures += 1;
                totals[1] += 1;
            }
        }
    }

    /// Ends the permit or the granted ticket `token` and hands on; whom it wakes.
    fn end(&mut self, token: u64, outcome: Outcome, now: Instant) -> Vec<u64> {
        let entry = self.entry(token).clone();
        let (Stage::Running { at } | Stage::Granted { at }) = entry.stage else {
            panic!("{token} holds nothing")
        };
        self.close(token);
        let spent = (entry.waited, entry.counted(at, now));
        self.record_end(entry.class, outcome, spent, entry.was_discounted);
        self.grant(now)
    }

    fn expire(&mut self, now: Instant) -> Vec<u64> {
        let mut passed = Vec::new();
        for entry in self.entries.iter_mut().filter(|entry| entry.stage == Stage::Waiting) {
            let turned = &mut self.turned[entry.class];
            if entry.wait_until.is_some_and(|at| at <= now) {
                (entry.stage, turned.expired) = (Stage::Expired, turned.expired + 1);
            } else if entry.start_by.is_some_and(|at| at <= now) {
                (entry.stage, turned.late) = (Stage::Late, turned.late + 1);
            } else {
                continue;
            }
            passed.push(entry.token);
        }
        passed
    }

    fn configure(&mut self, settings: &Settings, now: Instant) -> Vec<u64> {
        self.settings = settings.clone();
        for index in 0..self.entries.len() {
            self.entries[index].rank = self.rank(&self.entries[index]);
        }
        self.grant(now)
    }
}

enum Held {
    Ticket(Ticket),
    Permit(Permit),
}

/// The rule of overdue permits, by its words: medians of lists that are never cut.
#[derive(Clone, Debug)]
struct NaiveRule {
    ends: Vec<Duration>,
    /// Ends that were not overdue: when, and after how long.
    usual: Vec<(Duration, Duration)>,
    /// When permits were discounted while somebody waited.
    rounds: Vec<Duration>,
}

const LEAST: Duration = Duration::from_millis(200);
const STALL: Duration = Duration::from_millis(500);

impl NaiveRule {
    fn new() -> NaiveRule {
        NaiveRule { ends: vec![Duration::ZERO; 64], usual: Vec::new(), rounds: Vec::new() }
    }

    fn last_ends(&self) -> &[Duration] {
        &self.ends[self.ends.len().saturating_sub(128)..]
    }

    fn end(&mut self, held: Duration, was_discounted: bool, now: Duration) {
        if !was_discounted && held < self.patience(false, now) {
            self.usual.push((now, held));
        }
        self.ends.push(held);
    }

    fn patience(&self, somebody_waits: bool, now: Duration) -> Duration {
        let mut typical = lower_median(self.last_ends().to_vec());
        let newest = &self.usual[self.usual.len().saturating_sub(16)..];
        let since = now.saturating_sub(LEAST);
        let lately: Vec<Duration> =
            newest.iter().filter(|end| end.0 >= since).map(|end| end.1).collect();
        if lately.len() >= 2 {
            typical = typical.max(lower_median(lately));
        }
        let mut least = LEAST.max((40 * typical).min(STALL));
        let mut until = now;
        for round in self.rounds.iter().rev().take(4) {
            if somebody_waits && until.saturating_sub(*round) <= STALL {
                least /= 2;
                until = *round;
            } else {
                break;
            }
        }
        least.max(20 * typical)
    }

    /// How many may be discounted.
    fn most(&self, now: Duration) -> usize {
        let patience = self.patience(false, now);
        let (long, short): (Vec<Duration>, Vec<Duration>) =
            self.last_ends().iter().partition(|&&held| held >= patience);
        short.len().saturating_sub(long.len()).min(64)
    }
}

fn lower_median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations[(durations.len() - 1) / 2]
}

/// The gate and the model side by side.
struct Pair {
    gate: Gate,
    classes: Arc<Classes>,
    model: Model,
    held: BTreeMap<u64, Held>,
    waker: Waker,
    woken: Arc<Mutex<Vec<u64>>>,
    serial: u64,
    now: Instant,
    durations_are_exact: bool,
    /// Nothing was dropped yet: a drop tells the gate no time.
    population_is_exact: bool,
}

impl Pair {
    fn new(settings: &Settings, limit: u32, mpl_max: u32) -> Pair {
        let now = Instant::now() + Duration::from_secs(3_600);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&woken);
        let (mpl, mpl_max) = (Mpl::at_least_one(limit), Mpl::at_least_one(mpl_max));
        let limits = Limits { mpl, mpl_max, waiting_max: WAITING_MAX };
        let classes = settings.classes();
        let gate = Gate::with_classes(limits, Arc::clone(&classes), now);
        for (class, _) in classes.iter() {
            gate.count_late(class, LATE);
        }
        Pair {
            gate,
            classes,
            model: Model::new(settings, limit, mpl_max.get(), now),
            held: BTreeMap::new(),
            waker: Arc::new(move |token| heard.lock().expect("no waker panics").push(token)),
            woken,
            serial: 0,
            now,
            durations_are_exact: true,
            population_is_exact: true,
        }
    }

    fn make(&mut self, step: &Move) {
        let now = self.now;
        let waiting = |stage| stage == Stage::Waiting;
        let granted = |stage| matches!(stage, Stage::Granted { .. });
        let running = |stage| matches!(stage, Stage::Running { .. });
        let holding = |stage| granted(stage) || running(stage);
        let ticketed = |stage| !running(stage);
        let idle = |stage| matches!(stage, Stage::Waiting | Stage::Expired | Stage::Late);
        match *step {
            Move::Request(asked) => self.request(asked),
            Move::Claim(n) => self.with_one(n, ticketed, Pair::claim),
            Move::Finish(n, outcome) => self.with_one(n, running, |pair, token| {
                pair.model.tell(now);
                pair.permit(token).finish(outcome, now);
                let woken = pair.model.end(token, outcome, now);
                pair.heard(&woken);
            }),
            Move::Next(n, outcome) => {
                self.with_one(n, running, |pair, token| pair.next(token, outcome));
            }
            Move::Lend(n) => self.with_one(n, running, Pair::lend),
            Move::Resume(n) => self.with_one(n, running, Pair::resume),
            Move::Refused(waiting) => {
                self.model.tell(now);
                let waiting = waiting.min(self.gate.snapshot().outstanding);
                self.gate.refused_by_server(waiting, now);
                let connected = self.model.outstanding() - waiting as usize;
                self.model.room = Some((connected.max(1), 1, now));
                self.heard(&[]);
            }
            Move::Withdraw(n) => self.with_one(n, idle, |pair, token| {
                pair.population_is_exact = false;
                let Entry { class, stage, .. } = *pair.model.entry(token);
                pair.model.turned[class].withdrawn += u64::from(waiting(stage));
                pair.model.close(token);
                drop(pair.held.remove(&token));
                pair.heard(&[]);
            }),
            Move::Abandon(n) => self.with_one(n, holding, Pair::abandon),
            Move::SetLimit(limit) => {
                self.model.tell(now);
                self.gate.set_limit(Mpl::at_least_one(limit), now);
                self.model.limit = limit;
                let woken = self.model.grant(now);
                self.heard(&woken);
            }
            Move::Discount => {
                self.model.tell(now);
                let discounted = self.gate.discount(now);
                let ages: Vec<Duration> = discounted.iter().map(|it| it.age).collect();
                assert_eq!(ages, self.model.discount(now), "discounted");
                self.model.widen(now);
                let woken = self.model.grant(now);
                self.heard(&woken);
            }
            Move::Expire => {
                self.model.tell(now);
                self.gate.expire(now);
                // In no particular order: nothing is granted, so nobody can notice.
                self.woken.lock().expect("no waker panics").sort_unstable();
                let woken = self.model.expire(now);
                self.heard(&woken);
            }
            Move::Observe => self.observe(),
            Move::Configure(ref settings) => self.configure(settings),
        }
        self.peak();
    }

    fn configure(&mut self, settings: &Settings) {
        let now = self.now;
        self.model.tell(now);
        self.classes = settings.classes();
        let changed = self.gate.set_classes(Arc::clone(&self.classes), now);
        changed.expect("the same classes");
        let woken = self.model.configure(settings, now);
        self.heard(&woken);
    }

    /// Applies `act` to the n-th request in a stage that is `wanted`, if there is one.
    fn with_one(
        &mut self,
        n: usize,
        wanted: impl Fn(Stage) -> bool,
        act: impl FnOnce(&mut Pair, u64),
    ) {
        let tokens = self.model.tokens(wanted);
        if let Some(index) = n.checked_rem(tokens.len()) {
            act(self, tokens[index]);
        }
    }

    fn permit(&mut self, token: u64) -> Permit {
        match self.held.remove(&token) {
            Some(Held::Permit(permit)) => permit,
            _ => panic!("{token} holds no permit"),
        }
    }

    /// The wakes since the last call are these, in this order: one for each request that was queued
    /// and is now granted or expired, and no other.
    fn heard(&mut self, expected: &[u64]) {
        let woken = std::mem::take(&mut *self.woken.lock().expect("no waker panics"));
        assert_eq!(woken, expected, "woken");
    }

    fn request(&mut self, asked: Asked) {
        self.serial += 1;
        let (token, since) = (self.serial, self.now);
        self.model.tell(since);
        let Asked { class, quotas, patience, within, expected } = asked;
        let wait_until = patience.map(|patience| since + patience);
        let finish_by = within.map(|within| since + within);
        let named: Quotas =
            std::array::from_fn(|index| self.classes.quota(index).filter(|_| quotas[index]));
        let id = ClassId::of_index(class).expect("a class");
        let request = Request {
            quotas: named,
            wait_until,
            finish_by,
            expected,
            ..Request::new(id, token, &self.waker)
        };
        let runs = !self.model.is_full() && self.model.has_room(class, quotas);
        let mut entry = Entry {
            token,
            class,
            quotas,
            wait_until,
            finish_by,
            start_by: None,
            expected,
            rank: 0,
            since,
            waited: Duration::ZERO,
            stage: Stage::Running { at: since },
            counts_since: since,
            place: 0,
            is_discounted: false,
            was_discounted: false,
            lent_since: None,
            lent: Duration::ZERO,
        };
        entry.rank = self.model.rank(&entry);
        let refusal = self.model.refusal(&entry, runs);
        match self.gate.request(&request, since) {
            Admission::Granted(permit) if runs && refusal.is_none() => {
                self.held.insert(token, Held::Permit(permit));
                self.model.record_grant(class, Duration::ZERO);
                self.model.goes(class);
            }
            Admission::Queued(ticket) if !runs && refusal.is_none() => {
                self.held.insert(token, Held::Ticket(ticket));
                self.model.begins_to_wait(&mut entry);
            }
            Admission::Refused(refused) if refusal == Some(refused.reason) => {
                self.check_refusal(&entry, runs, &refused);
                self.model.turned[class].refused[refused.reason as usize] += 1;
                return self.heard(&[]);
            }
            other => panic!("{other:?}, runs at once: {runs}, refused: {refusal:?}"),
        }
        self.model.entries.push(entry);
        if runs {
            self.model.begins_to_count(token, since);
        }
        self.heard(&[]);
    }

    fn check_refusal(&self, asked: &Entry, runs: bool, refused: &Refusal) {
        let model = &self.model;
        assert_eq!(refused.class.index(), asked.class);
        assert_eq!(refused.waiting as usize, model.waiting());
        assert_eq!(refused.class_waiting as usize, model.waiting_of(asked.class));
        assert_eq!(refused.limit.get(), model.limit);
        assert_eq!(refused.expected_wait, model.expected_wait(asked, runs));
        assert_eq!(refused.in_database, model.measured[asked.class].database);
    }

    fn claim(&mut self, token: u64) {
        let Some(Held::Ticket(ticket)) = self.held.remove(&token) else {
            panic!("{token} has no ticket")
        };
        let entry = self.model.entry(token);
        match (ticket.claim(), entry.stage) {
            (Claim::Granted(permit), Stage::Granted { at }) => {
                entry.stage = Stage::Running { at };
                self.held.insert(token, Held::Permit(permit));
            }
            (Claim::Waiting(ticket), Stage::Waiting) => {
                self.held.insert(token, Held::Ticket(ticket));
            }
            (Claim::Expired, Stage::Expired) | (Claim::Late(_), Stage::Late) => {
                self.model.close(token);
            }
            (claim, stage) => panic!("{claim:?} in {stage:?}"),
        }
        self.heard(&[]);
    }

    fn next(&mut self, token: u64, outcome: Outcome) {
        let now = self.now;
        let Some(Held::Permit(permit)) = self.held.get_mut(&token) else {
            panic!("{token} holds no permit")
        };
        self.model.tell(now);
        permit.next_transaction(outcome, now);
        let ended = self.model.entry(token).clone();
        let Stage::Running { at } = ended.stage else { panic!("{token} does not run") };
        let entry = self.model.entry(token);
        entry.stage = Stage::Running { at: now };
        (entry.is_discounted, entry.was_discounted) = (false, false);
        (entry.lent_since, entry.lent) = (None, Duration::ZERO);
        entry.waited = Duration::ZERO;
        self.model.begins_to_count(token, now);
        let spent = (ended.waited, ended.counted(at, now));
        self.model.record_end(ended.class, outcome, spent, ended.was_discounted);
        self.model.record_grant(ended.class, Duration::ZERO);
        self.heard(&[]);
    }

    fn held_permit(&mut self, token: u64) -> &mut Permit {
        match self.held.get_mut(&token) {
            Some(Held::Permit(permit)) => permit,
            _ => panic!("{token} holds no permit"),
        }
    }

    /// Whoever is idle counts no longer, whatever it was, and who waits may follow.
    fn lend(&mut self, token: u64) {
        let now = self.now;
        self.held_permit(token).lend(now);
        let is_lent = self.model.entry(token).lent_since.is_some();
        if !is_lent {
            self.model.tell(now);
            self.model.lendings += 1;
            let entry = self.model.entry(token);
            (entry.is_discounted, entry.lent_since) = (false, Some(now));
        }
        let woken = self.model.grant(now);
        self.heard(&woken);
    }

    /// Whoever was idle counts again at once, and nobody is let in for it.
    fn resume(&mut self, token: u64) {
        let now = self.now;
        self.held_permit(token).resume(now);
        if let Some(since) = self.model.entry(token).lent_since {
            self.model.tell(now);
            let entry = self.model.entry(token);
            entry.lent_since = None;
            entry.lent += now - since;
            self.model.begins_to_count(token, now);
        }
        self.heard(&[]);
    }

    fn peak(&mut self) {
        let concurrency = self.model.counted() + self.model.waiting_for_limit();
        self.model.peak = self.model.peak.max(concurrency);
    }

    fn abandon(&mut self, token: u64) {
        drop(self.held.remove(&token));
        self.durations_are_exact = false;
        self.population_is_exact = false;
        let woken = self.model.end(token, Outcome::Failed, self.model.clock);
        self.heard(&woken);
    }

    fn observe(&mut self) {
        let observation = self.gate.observe(self.now);
        let interval = std::mem::take(&mut self.model.interval);
        self.model.tell(self.now);
        let concurrency = self.model.counted() + self.model.waiting_for_limit();
        let mut all = Tally::default();
        for (tally, class) in interval.iter().zip(&observation.classes) {
            self.compare_class(tally, class);
            let late = tally.response.iter().filter(|&&response| response > LATE).count();
            if self.durations_are_exact {
                assert_eq!(class.late, late as u64, "late");
            }
            all.completions += tally.completions;
            all.failures += tally.failures;
            all.in_database.extend(&tally.in_database);
            all.in_queue.extend(&tally.in_queue);
        }
        self.compare_class(&all, &together(&observation));
        assert_eq!(observation.classes.len(), CLASSES);
        assert_eq!(observation.interval, self.now - self.model.interval_start);
        assert_eq!(observation.limit.get(), self.model.limit);
        assert_eq!(observation.concurrency as usize, concurrency);
        assert_eq!(observation.running as usize, self.model.counted());
        assert_eq!(observation.idle as usize, self.model.idle());
        assert_eq!(observation.discounted as usize, self.model.discounted());
        assert_eq!(observation.concurrency_peak as usize, self.model.peak);
        self.compare_population(&observation);
        self.model.interval_start = self.now;
        self.model.peak = concurrency;
    }

    fn compare_population(&mut self, observation: &Observation) {
        let expected = std::mem::take(&mut self.model.population);
        let length_s = observation.interval.as_secs_f64();
        if !self.population_is_exact || length_s <= 0.0 {
            return;
        }
        for (what, seen, expected_s) in [
            ("concurrency", observation.concurrency_mean, expected.concurrency),
            ("running", observation.running_mean, expected.running),
            ("idle", observation.idle_mean, expected.idle),
            ("discounted", observation.discounted_mean, expected.discounted),
            ("waiting", observation.waiting_share, expected.waiting),
        ] {
            let expected = expected_s / length_s;
            let near = (seen - expected).abs() < 1e-6 * (1.0 + expected);
            assert!(near, "{what}: {seen} is not {expected}");
        }
    }

    fn compare_class(&self, tally: &Tally, class: &ClassObservation) {
        assert_eq!(class.completions, tally.completions, "completions");
        assert_eq!(class.failures, tally.failures, "failures");
        for (durations, timing) in [
            (&tally.in_database, class.in_database),
            (&tally.in_queue, class.in_queue),
            (&tally.response, class.response),
        ] {
            assert_eq!(timing.count, durations.len() as u64, "durations");
            if self.durations_are_exact {
                compare_durations(durations, timing);
            }
        }
    }

    /// What must hold after every move.
    fn check(&self, before: &Snapshot) {
        let (seen, model) = (self.gate.snapshot(), &self.model);
        assert_eq!(seen.limit.get(), model.limit, "limit");
        assert_eq!(seen.outstanding as usize, model.outstanding(), "permits out");
        assert_eq!(seen.discounted as usize, model.discounted(), "discounted");
        assert_eq!(seen.idle as usize, model.idle(), "idle");
        assert_eq!(seen.lendings, model.lendings, "lent");
        assert_eq!(seen.waiting, model.waiting(), "waiting");
        assert_eq!(self.gate.has_waiting(), seen.waiting > 0);
        for (index, (class, turned)) in seen.classes.iter().zip(&model.turned).enumerate() {
            let &ClassTotals { refused, expired, late, withdrawn, aged, .. } = class;
            assert_eq!(Turned { refused, expired, late, withdrawn, aged }, *turned);
            assert_eq!(class.waiting as usize, model.waiting_of(index), "waiting of a class");
            let running = model.counted_of(|entry| entry.class == index);
            assert_eq!(class.running as usize, running, "permits of a class");
        }
        let sum = |of: fn(&Turned) -> u64| model.turned.iter().map(of).sum::<u64>();
        assert_eq!(seen.refused, sum(|it| it.refused.iter().sum()), "refused");
        assert_eq!(seen.expired, sum(|it| it.expired + it.late), "expired");
        assert_eq!(seen.withdrawn, sum(|it| it.withdrawn), "withdrawn");
        for (class, totals) in seen.classes.iter().zip(&model.totals) {
            let (ended, granted) = (class.in_database.count(), class.in_queue.count());
            assert_eq!([class.completions, class.failures, ended, granted], *totals);
        }
        let completed: u64 = model.interval.iter().map(|tally| tally.completions).sum();
        let elapsed = self.now - model.interval_start;
        assert_eq!(self.gate.progress(self.now), (elapsed, completed));

        let (counted, most) = (seen.active(), model.most());
        assert_eq!(counted as usize, model.counted(), "permits that count");
        if seen.outstanding > before.outstanding {
            assert!(counted <= seen.limit.get(), "granted above the limit");
            assert!(seen.outstanding as usize <= most, "granted above the highest limit");
        }
        assert!(
            model.is_full() || model.next(self.now).is_none(),
            "a permit is free and somebody waits who may have it"
        );
        assert!(seen.waiting <= WAITING_MAX, "queue bound");
    }

    /// Drops everything: nothing stays behind, and all that waited were told of each change.
    fn close(mut self) {
        while let Some((token, held)) = self.held.pop_first() {
            drop(held);
            let stage = self.model.entry(token).stage;
            let woken = match stage {
                Stage::Granted { .. } | Stage::Running { .. } => {
                    self.model.end(token, Outcome::Failed, self.model.clock)
                }
                Stage::Waiting | Stage::Expired | Stage::Late => {
                    self.model.close(token);
                    Vec::new()
                }
            };
            self.heard(&woken);
        }
        let seen = self.gate.snapshot();
        assert_eq!((seen.outstanding, seen.waiting), (0, 0), "left behind");
        assert_eq!(Arc::strong_count(&self.waker), 1, "wakers left behind");
        assert!(self.model.entries.is_empty());
    }
}

fn together(observation: &Observation) -> ClassObservation {
    ClassObservation {
        completions: observation.completions,
        failures: observation.failures,
        in_database: observation.in_database,
        in_queue: observation.in_queue,
        ..ClassObservation::default()
    }
}

fn compare_durations(durations: &[Duration], timing: Timing) {
    if durations.is_empty() {
        return assert_eq!(timing, Timing::default());
    }
    let mut seconds: Vec<f64> = durations.iter().map(Duration::as_secs_f64).collect();
    seconds.sort_by(f64::total_cmp);
    let count = seconds.len() as f64;
    let mean = seconds.iter().sum::<f64>() / count;
    let variance = seconds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / count;
    let mean_square = seconds.iter().map(|s| s * s).sum::<f64>() / count;
    assert!((timing.mean_s - mean).abs() <= 1e-9 * mean, "mean");
    // The gate subtracts squares, which costs digits in proportion to them.
    assert!(
        (timing.variance_s2 - variance).abs() <= 1e-9 * mean_square,
        "variance {} is not {variance}",
        timing.variance_s2
    );
    // The gate keeps the shortest as it is, so nothing is rounded.
    assert_eq!(timing.min_s.to_bits(), seconds[0].to_bits(), "shortest");
    for (quantile, seen) in [(0.50, timing.p50_s), (0.95, timing.p95_s), (0.99, timing.p99_s)] {
        let rank = (1..=seconds.len()).find(|&rank| rank as f64 >= quantile * count);
        let expected = seconds[rank.expect("a quantile is at most 1") - 1];
        // Recorded in whole microseconds.
        assert!(
            (seen - expected).abs() <= 0.01 * expected + 1e-6,
            "quantile {quantile}: {seen} is not {expected}"
        );
    }
}

fn bounds() -> impl Strategy<Value = PermitBounds> {
    let most = prop_oneof![2 => Just(None), 1 => (1_u32..4).prop_map(NonZeroU32::new)];
    (0_u32..3, most).prop_map(|(min, max)| {
        let min = max.map_or(min, |max| min.min(max.get()));
        PermitBounds { min, max }
    })
}

/// Often none, so that bounds of one kind are seen alone.
fn settings() -> impl Strategy<Value = Settings> {
    let order = prop_oneof![
        2 => Just(WaitingOrder::Fifo),
        1 => Just(WaitingOrder::EarliestDeadline),
        1 => Just(WaitingOrder::ShortestExpected),
    ];
    let often_none = || prop_oneof![2 => Just(PermitBounds::default()), 1 => bounds()];
    let class = (1_u32..8, prop::option::of(duration()), often_none(), 0_u32..8, order);
    let class = class.prop_map(|(weight, ageing, permits, waiting_max, order)| ClassSettings {
        weight: NonZeroU32::new(weight).expect("it is positive"),
        ageing,
        permits,
        waiting_max: (waiting_max < 5).then_some(waiting_max),
        order,
        ..ClassSettings::new("a".parse().expect("a name"))
    });
    let policy = prop_oneof![Just(Policy::Strict), Just(Policy::Weights)];
    let quotas = [often_none(), often_none()];
    (policy, prop::array::uniform3(class), quotas).prop_map(|(policy, mut classes, quotas)| {
        for (class, name) in classes.iter_mut().zip(["a", "b", "c"]) {
            class.name = name.parse().expect("a name");
        }
        Settings { policy, classes, quotas }
    })
}

fn asked() -> impl Strategy<Value = Asked> {
    let rarely = || prop_oneof![2 => Just(None), 1 => prop::option::of(duration())];
    let quotas = any::<[bool; 2]>();
    (0..CLASSES, quotas, rarely(), rarely(), rarely()).prop_map(
        |(class, quotas, patience, within, expected)| Asked {
            class,
            quotas,
            patience,
            within,
            expected,
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![3 => Just(Outcome::Completed), 1 => Just(Outcome::Failed)]
}

/// Durations of every magnitude from a microsecond to sixteen seconds, and none at all, so that
/// deadlines are also met exactly.
fn duration() -> impl Strategy<Value = Duration> {
    let spread = (0_u32..24, any::<u64>());
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::from_millis(1)),
        spread.prop_map(|(bits, random)| Duration::from_micros(random % (1 << bits))),
    ]
}

fn step(abandon_weight: u32) -> impl Strategy<Value = (Duration, Move)> {
    let index = any::<usize>;
    let counts = prop_oneof![
        6 => index().prop_map(Move::Lend),
        6 => index().prop_map(Move::Resume),
        4 => Just(Move::Discount),
        1 => (0_u32..4).prop_map(Move::Refused),
    ];
    let configure = settings().prop_map(|it| Move::Configure(Box::new(it)));
    let seldom = prop_oneof![Just(Move::Observe), configure];
    let moves = prop_oneof![
        16 => asked().prop_map(Move::Request),
        6 => index().prop_map(Move::Claim),
        6 => (index(), outcome()).prop_map(|(n, o)| Move::Finish(n, o)),
        2 => (index(), outcome()).prop_map(|(n, o)| Move::Next(n, o)),
        1 => index().prop_map(Move::Withdraw),
        abandon_weight => index().prop_map(Move::Abandon),
        2 => (1_u32..8).prop_map(Move::SetLimit),
        16 => counts,
        2 => Just(Move::Expire),
        2 => seldom,
    ];
    (duration(), moves)
}

fn run(settings: &Settings, limit: u32, mpl_max: u32, steps: &[(Duration, Move)]) {
    let mut pair = Pair::new(settings, limit, mpl_max);
    for (pause, step) in steps {
        pair.now += *pause;
        pair.model.pass(*pause);
        let before = pair.gate.snapshot();
        pair.make(step);
        pair.check(&before);
    }
    pair.observe();
    pair.close();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn the_gate_does_what_the_list_does(
        settings in settings(),
        limit in 1_u32..6,
        mpl_max in 1_u32..14,
        steps in prop::collection::vec(step(3), 0..200),
    ) {
        run(&settings, limit, mpl_max, &steps);
    }

    #[test]
    fn and_measures_what_the_list_measures(
        settings in settings(),
        limit in 1_u32..6,
        mpl_max in 1_u32..14,
        steps in prop::collection::vec(step(0), 0..200),
    ) {
        run(&settings, limit, mpl_max, &steps);
    }
}
