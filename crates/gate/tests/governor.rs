//! A governed gate before a database that is a curve, in synthetic time.
//!
//! The clients really pass the gate: each holds a permit or a ticket, and asks again as soon as its
//! transaction has ended. What the controller then sees must be what the curve says, so the limits
//! must follow to the letter the path of a controller that is told the curve directly.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_control::plant::Curve;
use tidegate_control::{
    Algorithm, Bounds, Controller, Draw, Fixed, HillClimbing, IntervalRule, Mpl, Observation,
    Reason, Resources, Setting, SplitMix64, WhatIfCurve,
};
use tidegate_gate::{Adjustment, Admission, Claim, Class, Gate, Governor, Limits, Outcome};
use tidegate_gate::{Permit, Request, Ticket, Waker};

const SECOND: Duration = Duration::from_secs(1);
const RULE: IntervalRule =
    IntervalRule { min: SECOND, min_completions: 100, max: Duration::from_secs(30) };

fn bounds() -> Bounds {
    Bounds::new(Mpl::ONE, Mpl::at_least_one(1_000)).expect("1 is below 1,000")
}

fn hill_climbing(start: u32) -> Box<dyn Controller> {
    Box::new(HillClimbing::for_proxy(bounds(), Mpl::at_least_one(start)))
}

/// So many clients of a database whose throughput follows from the limit at once.
struct Database {
    curve: Curve,
    clients: u32,
}

impl Database {
    fn new(points: &[(u32, f64)], clients: u32) -> Database {
        Database { curve: Curve::new(points).expect("a curve"), clients }
    }

    fn inside(&self, limit: Mpl) -> u32 {
        limit.get().min(self.clients)
    }

    /// What a second at `limit` shows.
    fn second(&self, limit: Mpl) -> Observation {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "throughputs are positive and small"
        )]
        let completions = self.curve.tps(f64::from(self.inside(limit))).round() as u64;
        Observation {
            running: self.inside(limit),
            concurrency: self.clients,
            concurrency_peak: self.clients,
            concurrency_mean: f64::from(self.clients),
            running_mean: f64::from(self.inside(limit)),
            waiting_share: if self.clients > limit.get() { 1.0 } else { 0.0 },
            completions,
            ..Observation::empty(SECOND, limit)
        }
    }
}

/// A gate, its governor, and clients that come back as soon as they are done.
struct Site {
    gate: Gate,
    governor: Governor,
    waker: Waker,
    woken: Arc<Mutex<Vec<u64>>>,
    /// In the order of their grants, which is the order in which they end.
    running: VecDeque<(u64, Permit)>,
    tickets: BTreeMap<u64, Ticket>,
    now: Instant,
}

impl Site {
    fn new(controller: Box<dyn Controller>) -> Site {
        let now = Instant::now();
        let limits = Limits {
            mpl: controller.start(),
            mpl_max: Mpl::at_least_one(1_000),
            waiting_max: usize::MAX,
        };
        let gate = Gate::new(limits, now);
        let woken: Arc<Mutex<Vec<u64>>> = Arc::default();
        let heard = Arc::clone(&woken);
        Site {
            governor: Governor::new(gate.clone(), controller, RULE, SplitMix64::new(1)),
            gate,
            waker: Arc::new(move |client| heard.lock().expect("no waker panics").push(client)),
            woken,
            running: VecDeque::new(),
            tickets: BTreeMap::new(),
            now,
        }
    }

    fn arrive(&mut self, client: u64) {
        let request = Request::new(Class::Normal, client, &self.waker);
        match self.gate.request(&request, self.now) {
            Admission::Granted(permit) => self.running.push_back((client, permit)),
            Admission::Queued(ticket) => {
                self.tickets.insert(client, ticket);
            }
            Admission::Refused(full) => panic!("{full:?}"),
        }
    }

    /// Lets the woken in.
    fn claim(&mut self) {
        for client in std::mem::take(&mut *self.woken.lock().expect("no waker panics")) {
            let ticket = self.tickets.remove(&client).expect("only waiters are woken");
            let Claim::Granted(permit) = ticket.claim() else {
                panic!("{client} was woken for nothing")
            };
            self.running.push_back((client, permit));
        }
    }

    /// The transaction that has run longest ends; who ran it.
    fn end(&mut self, outcome: Outcome) -> u64 {
        let (client, permit) = self.running.pop_front().expect("a transaction runs");
        permit.finish(outcome, self.now);
        self.claim();
        client
    }

    /// One transaction alone, of no length.
    fn one(&mut self, outcome: Outcome) {
        self.arrive(0);
        self.end(outcome);
    }

    fn tick_after(&mut self, pause: Duration) -> Option<Adjustment> {
        self.now += pause;
        let adjustment = self.governor.tick(self.now);
        self.claim();
        if let Some(adjustment) = &adjustment {
            assert_eq!(self.gate.snapshot().limit, adjustment.decision.limit);
        }
        adjustment
    }

    /// A second of the database, its completions evenly spread, and the tick at its end.
    fn second(&mut self, database: &Database) -> Adjustment {
        let start = self.now;
        let completions = database.second(self.gate.snapshot().limit).completions;
        for done in 1..=completions {
            self.now = start + SECOND.mul_f64(done as f64 / completions as f64);
            let client = self.end(Outcome::Completed);
            self.arrive(client);
        }
        self.now = start;
        self.tick_after(SECOND).expect("a second with enough completions is an interval")
    }
}

#[test]
fn the_limit_takes_the_path_that_the_controller_takes_alone() {
    for (name, points) in [("tpcb", Curve::POSTGRES_TPCB), ("flat tail", Curve::FLAT_TAIL)] {
        for (clients, start) in [(1_000, 1), (1_000, 64), (1_000, 1_000), (4, 64)] {
            let database = Database::new(points, clients);
            let mut alone = hill_climbing(start);
            let mut limit = alone.start();
            let mut site = Site::new(hill_climbing(start));
            (0..u64::from(clients)).for_each(|client| site.arrive(client));
            for interval in 0..40 {
                let case = format!("{name} from {start}, interval {interval}");
                let inside = site.running.len() as f64;
                let Adjustment { observation: seen, decision, .. } = site.second(&database);
                let expected = database.second(limit);
                assert_eq!(seen.completions, expected.completions, "{case}");
                assert_eq!(seen.concurrency, clients, "{case}");
                assert_eq!(seen.concurrency_peak, clients, "{case}");
                assert!((seen.concurrency_mean - f64::from(clients)).abs() < 1e-6, "{case}");
                assert!((seen.waiting_share - expected.waiting_share).abs() < 0.02, "{case}");
                // More run than the limit allows while a lowered one takes effect, and only then.
                let (low, high) = (expected.running_mean, inside.max(expected.running_mean));
                assert!((low - 1e-6..=high + 1e-6).contains(&seen.running_mean), "{case}");
                limit = alone.decide(&expected, Draw::from_bits(0)).limit;
                assert_eq!(decision.limit, limit, "{case}");
            }
        }
    }
}

/// With a database in balance, time in the queue and in the database obey Little's law.
#[test]
fn the_times_observed_obey_littles_law() {
    let database = Database::new(Curve::POSTGRES_TPCB, 64);
    let mut site = Site::new(Box::new(Fixed::new(bounds(), Mpl::at_least_one(8))));
    (0..64).for_each(|client| site.arrive(client));
    site.second(&database);
    let seen = site.second(&database).observation;
    let tps = seen.throughput_tps();
    for (timing, population) in [(seen.in_database, 8.0), (seen.in_queue, 56.0)] {
        let inside = timing.mean_s * tps;
        assert!((inside - population).abs() < 0.01 * population, "{inside}");
    }
    assert!((seen.running_mean - 8.0).abs() < 1e-6, "{}", seen.running_mean);
    // First come, first served, evenly: all take equally long.
    assert!((seen.in_database.min_s - seen.in_database.mean_s).abs() < 1e-6);
}

/// A record of adjustments is enough to make the decisions again.
#[test]
fn an_adjustment_holds_all_that_the_controller_was_told() {
    let algorithm = Algorithm::GlobalParabola;
    let database = Database::new(Curve::FLAT_TAIL, 200);
    let setting = Setting {
        bounds: bounds(),
        start: Mpl::at_least_one(5),
        resources: Resources { cpus: 2, disks: 1 },
    };
    let mut site = Site::new(algorithm.controller(&setting));
    (0..200).for_each(|client| site.arrive(client));
    let mut again = algorithm.controller(&setting);
    let mut draws = Vec::new();
    for _ in 0..40 {
        let Adjustment { observation, draw, decision, .. } = site.second(&database);
        assert_eq!(again.decide(&observation, draw), decision);
        draws.push(draw.value());
    }
    draws.dedup();
    assert_eq!(draws.len(), 40, "a new draw each time");
}

/// Every 10 seconds of 40; the limit in force is among the rows, with what it gives.
#[test]
fn the_curve_is_told_every_ten_seconds() {
    let database = Database::new(Curve::POSTGRES_TPCB, 64);
    let mut site = Site::new(Box::new(Fixed::new(bounds(), Mpl::at_least_one(8))));
    (0..64).for_each(|client| site.arrive(client));
    let adjustments: Vec<Adjustment> = (0..41).map(|_| site.second(&database)).collect();
    let curves: Vec<&WhatIfCurve> =
        adjustments.iter().filter_map(|adjustment| adjustment.curve.as_ref()).collect();
    assert_eq!(curves.len(), 4);
    let row = curves[3].rows.iter().find(|row| row.limit.get() == 8).expect("the limit is a row");
    let told = row.throughput_tps.expect("it was seen for 40 s");
    let tps = adjustments[40].observation.throughput_tps();
    assert!(told.holds(tps), "{told:?}, {tps}");
    assert!(row.response_s.expect("all clients wait").holds(64.0 / tps), "{row:?}");
}

#[test]
fn an_interval_lasts_until_it_holds_enough_or_has_lasted_too_long() {
    let mut site = Site::new(hill_climbing(8));
    (0..99).for_each(|_| site.one(Outcome::Completed));
    assert!(site.tick_after(SECOND).is_none(), "99 completed");
    site.one(Outcome::Completed);
    let seen = site.tick_after(SECOND).expect("100 completed").observation;
    assert_eq!((seen.interval, seen.completions), (2 * SECOND, 100));

    (0..1_000).for_each(|_| site.one(Outcome::Completed));
    assert!(site.tick_after(SECOND / 2).is_none(), "too short");
    let seen = site.tick_after(SECOND / 2).expect("both reached").observation;
    assert_eq!((seen.interval, seen.completions), (SECOND, 1_000));

    // Something runs and does not end.
    site.arrive(0);
    assert!((1..30).all(|_| site.tick_after(SECOND).is_none()));
    let adjustment = site.tick_after(SECOND).expect("the longest time has passed");
    assert_eq!(adjustment.observation.interval, 30 * SECOND);
    assert_eq!(adjustment.observation.completions, 0);
    assert_eq!(adjustment.observation.concurrency, 1);
}

#[test]
fn an_empty_interval_is_skipped_however_late_the_tick() {
    let mut site = Site::new(hill_climbing(8));
    assert!((0..100).all(|_| site.tick_after(SECOND).is_none()));
    assert!(site.tick_after(3_600 * SECOND).is_none());
    assert_eq!(site.gate.snapshot().limit.get(), 8, "the night taught nothing");

    (0..100).for_each(|_| site.one(Outcome::Completed));
    let seen = site.tick_after(SECOND).expect("a busy second").observation;
    assert_eq!((seen.interval, seen.completions), (SECOND, 100));
    assert!(site.tick_after(60 * SECOND).is_none(), "empty again");
}

/// Failures alone are no throughput, but an interval that holds them is not empty: they must be
/// told with the time in which they happened.
#[test]
fn failures_are_told_with_their_own_time() {
    let mut site = Site::new(hill_climbing(8));
    (0..500).for_each(|_| site.one(Outcome::Failed));
    assert!((1..30).all(|_| site.tick_after(SECOND).is_none()));
    let adjustment = site.tick_after(SECOND).expect("the longest time has passed");
    let seen = adjustment.observation;
    assert_eq!((seen.interval, seen.failures), (30 * SECOND, 500));
}

#[test]
fn a_new_limit_lets_waiters_in_at_once() {
    let mut site = Site::new(hill_climbing(4));
    (0..8).for_each(|client| site.arrive(client));
    for _ in 0..100 {
        let client = site.end(Outcome::Completed);
        site.arrive(client);
    }
    let decision = site.tick_after(SECOND).expect("a busy second").decision;
    assert_eq!((decision.limit.get(), decision.reason), (6, Reason::First));
    assert_eq!(site.running.len(), 6);
    assert_eq!(site.tickets.len(), 2);
}

/// The database is away for a minute. What was running has failed, what has a permit waits, and the
/// rest stays in the queue; the controller hears of nothing, and the limit is as before.
#[test]
fn an_outage_teaches_nothing() {
    let mut site = Site::new(hill_climbing(8));
    (0..20).for_each(|client| site.arrive(client));
    site.gate.begin_outage(0, site.now);
    for _ in 0..4 {
        site.end(Outcome::Failed);
    }
    site.claim();
    assert_eq!((site.running.len(), site.tickets.len()), (4, 12), "none is admitted");
    for _ in 0..60 {
        assert!(site.tick_after(SECOND).is_none());
        assert!(site.gate.discount(site.now).is_empty(), "none is overdue");
    }
    site.gate.end_outage(site.now);
    site.claim();
    assert_eq!((site.running.len(), site.tickets.len()), (8, 8), "as many as before");
    assert!(site.gate.discount(site.now).is_empty(), "none is overdue because of the outage");
    assert!(site.tick_after(SECOND / 4).is_none(), "connections are opened anew");
    for client in 100..300 {
        site.end(Outcome::Completed);
        site.arrive(client);
    }
    let seen = site.tick_after(SECOND).expect("a busy second").observation;
    assert_eq!(seen.limit.get(), 8);
    assert_eq!(seen.failures, 0);
    assert!(seen.in_database.count < 200, "who met the outage is left out");
    assert!(seen.classes.iter().all(|class| class.response.p99_s < 30.0));
}

/// One permit is out in any case: its transaction finds out that the database is back.
#[test]
fn one_transaction_is_admitted_during_an_outage() {
    let mut site = Site::new(hill_climbing(8));
    site.gate.begin_outage(0, site.now);
    (0..3).for_each(|client| site.arrive(client));
    assert_eq!((site.running.len(), site.tickets.len()), (1, 2));
    site.end(Outcome::Failed);
    site.claim();
    assert_eq!((site.running.len(), site.tickets.len()), (1, 1));
    site.gate.begin_outage(2, site.now);
    site.claim();
    assert_eq!((site.running.len(), site.tickets.len()), (2, 0), "two have connections");
}
