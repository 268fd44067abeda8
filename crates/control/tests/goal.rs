//! A response time is kept for a class, with the most throughput under it.
//!
//! The plant is a small model of a database with two classes in strict priority at its gate:
//! transactions inside share a capacity that depends on their number, and all times are
//! exponential. Clients think, ask for a permit, run, and think again.

#![expect(clippy::unwrap_used, reason = "a step that fails fails the test")]
#![expect(clippy::print_stdout, reason = "what was reached, with its seed")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of clients and limits: small, and not negative"
)]

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::{
    Algorithm, Bounds, ClassObservation, Controller, Decision, Draw, GoalStatus, KeepGoal, Mpl,
    Observation, Reason, Resources, ResponseGoal, Setting, SplitMix64, Timing,
};

/// Clients of the class `high`, and of the class `normal`.
const CLIENTS: [usize; 2] = [20, 300];

/// How long a client of each class thinks, seconds.
const THINK_S: [f64; 2] = [0.2, 0.05];

/// A transaction: its class, when it asked, when it got its permit.
#[derive(Clone, Copy)]
struct Transaction {
    class: usize,
    asked_s: f64,
    granted_s: f64,
}

/// A database and its gate.
struct Plant {
    random: SplitMix64,
    now_s: f64,
    limit: usize,
    capacity: fn(f64) -> f64,
    clients: [usize; 2],
    thinking: [usize; 2],
    queues: [VecDeque<Transaction>; 2],
    inside: Vec<Transaction>,
    goal_s: f64,
    think_s: [f64; 2],
    /// The database stands still at the beginning of each such period: its length, and for how
    /// long, seconds.
    stall: Option<[f64; 2]>,
}

/// Throughput that only rises: 1,000 a second at most.
fn rising(inside: f64) -> f64 {
    1_000.0 * inside / (inside + 20.0)
}

/// Throughput with its peak at about 20, and a fall to a third.
fn thrashing(inside: f64) -> f64 {
    let rise = 1_000.0 * inside / (inside + 4.0);
    rise / (1.0 + (inside / 60.0).powi(2)).min(3.0)
}

impl Plant {
    fn new(seed: u64, capacity: fn(f64) -> f64, goal: &str) -> Plant {
        println!("seed {seed}, goal {goal}");
        Plant {
            random: SplitMix64::new(seed),
            now_s: 0.0,
            limit: 1,
            capacity,
            clients: CLIENTS,
            thinking: CLIENTS,
            queues: Default::default(),
            inside: Vec::new(),
            goal_s: parsed(goal).within.as_secs_f64(),
            think_s: THINK_S,
            stall: None,
        }
    }

    /// Whether the database stands still, and when that changes.
    fn stalled(&self) -> (bool, f64) {
        let Some([period_s, stall_s]) = self.stall else { return (false, f64::INFINITY) };
        let begun_s = (self.now_s / period_s).floor() * period_s;
        // A boundary that rounding puts just before now would never be passed.
        let is_over = self.now_s - begun_s >= stall_s - 1e-9;
        if is_over { (false, begun_s + period_s + 1e-9) } else { (true, begun_s + stall_s) }
    }

    fn draw(&mut self) -> f64 {
        self.random.next_draw().value()
    }

    fn set_clients(&mut self, class: usize, clients: usize) {
        let before = std::mem::replace(&mut self.clients[class], clients);
        self.thinking[class] = (self.thinking[class] + clients).saturating_sub(before);
    }

    fn admit(&mut self) {
        while self.inside.len() < self.limit {
            let next = self.queues.iter_mut().find_map(VecDeque::pop_front);
            let Some(next) = next else { return };
            self.inside.push(Transaction { granted_s: self.now_s, ..next });
        }
    }

    /// An interval of so many seconds at a limit.
    fn run(&mut self, limit: Mpl, seconds: f64) -> Observation {
        self.limit = limit.get() as usize;
        let end_s = self.now_s + seconds;
        let mut ended: [[Vec<f64>; 2]; 2] = Default::default();
        let (mut running_s, mut waiting_s, mut peak) = (0.0, 0.0, 0);
        loop {
            self.admit();
            let waiting = self.queues.iter().map(VecDeque::len).sum::<usize>();
            peak = peak.max(waiting + self.inside.len());
            let (is_stalled, changes_s) = self.stalled();
            let service = if self.inside.is_empty() || is_stalled {
                0.0
            } else {
                (self.capacity)(self.inside.len() as f64)
            };
            let asks = [0, 1].map(|class| self.thinking[class] as f64 / self.think_s[class]);
            let rate = service + asks[0] + asks[1];
            let passed_s = -libm::log(1.0 - self.draw()) / rate.max(1e-9);
            let step_s = passed_s.min(end_s - self.now_s).min(changes_s - self.now_s);
            running_s += step_s * self.inside.len() as f64;
            waiting_s += if waiting > 0 { step_s } else { 0.0 };
            self.now_s += step_s;
            if self.now_s >= end_s {
                break;
            }
            if step_s < passed_s {
                continue;
            }
            let which = self.draw() * rate;
            if which < service {
                let at = (self.draw() * self.inside.len() as f64) as usize;
                let one = self.inside.swap_remove(at);
                ended[one.class][0].push(self.now_s - one.asked_s);
                ended[one.class][1].push(self.now_s - one.granted_s);
                // Those who are too many leave.
                let present = self.present(one.class);
                self.thinking[one.class] += usize::from(present < self.clients[one.class]);
            } else {
                let class = usize::from(which >= service + asks[0]);
                self.thinking[class] -= 1;
                let asked = Transaction { class, asked_s: self.now_s, granted_s: 0.0 };
                self.queues[class].push_back(asked);
            }
        }
        let classes: Vec<_> =
            ended.iter().map(|[response, inside]| class(response, inside, self.goal_s)).collect();
        self.observation(limit, seconds, classes, [running_s, waiting_s], peak)
    }

    fn present(&self, class: usize) -> usize {
        let inside = self.inside.iter().filter(|one| one.class == class).count();
        inside + self.queues[class].len() + self.thinking[class]
    }

    fn observation(
        &self,
        limit: Mpl,
        seconds: f64,
        classes: Vec<ClassObservation>,
        [running_s, waiting_s]: [f64; 2],
        peak: usize,
    ) -> Observation {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let present = self.inside.len() + self.queues.iter().map(VecDeque::len).sum::<usize>();
        Observation {
            running: count(self.inside.len()),
            concurrency: count(present),
            concurrency_peak: count(peak),
            concurrency_mean: present as f64,
            running_mean: running_s / seconds,
            waiting_share: waiting_s / seconds,
            completions: classes.iter().map(|class| class.completions).sum(),
            in_database: classes[1].in_database,
            classes,
            ..Observation::empty(Duration::from_secs_f64(seconds), limit)
        }
    }
}

fn parsed(goal: &str) -> ResponseGoal {
    goal.parse().unwrap()
}

fn timing(times: &[f64]) -> Timing {
    let count = times.len().max(1) as f64;
    let mean_s = times.iter().sum::<f64>() / count;
    let variance_s2 = times.iter().map(|time| (time - mean_s).powi(2)).sum::<f64>() / count;
    Timing { count: times.len() as u64, mean_s, variance_s2, ..Timing::default() }
}

fn class(response: &[f64], inside: &[f64], goal_s: f64) -> ClassObservation {
    ClassObservation {
        completions: response.len() as u64,
        failures: 0,
        in_database: timing(inside),
        in_queue: Timing::default(),
        response: timing(response),
        late: response.iter().filter(|&&time| time > goal_s).count() as u64,
    }
}

fn setting() -> Setting {
    Setting {
        bounds: Bounds::new(Mpl::ONE, Mpl::at_least_one(1_000)).unwrap(),
        start: Mpl::at_least_one(4),
        resources: Resources { cpus: 2, disks: 1 },
    }
}

fn keeping(algorithm: Algorithm, class: usize, goal: &str) -> KeepGoal {
    KeepGoal::new(&setting(), class, parsed(goal), move |setting| algorithm.controller(setting))
}

/// A run of a controller on a plant.
#[derive(Default)]
struct Course {
    seen: Vec<Observation>,
    decisions: Vec<Decision>,
    statuses: Vec<Option<GoalStatus>>,
}

impl Course {
    fn run(&mut self, controller: &mut dyn Controller, plant: &mut Plant, until_s: f64) {
        let mut draws = SplitMix64::new(5);
        let mut limit = self.decisions.last().map_or(controller.start(), |last| last.limit);
        let rule = controller.interval_rule();
        let seconds = rule.min.as_secs_f64();
        while plant.now_s < until_s {
            let seen = plant.run(limit, seconds);
            let decision = controller.decide(&seen, draws.next_draw());
            limit = decision.limit;
            self.seen.push(seen);
            self.decisions.push(decision);
            self.statuses.push(controller.goal());
        }
    }

    /// Throughput, and the share of a class that was late, from the end back for so long.
    fn last(&self, class: usize, seconds: f64) -> (f64, f64) {
        let (mut passed_s, mut ended, mut count, mut late) = (0.0, 0, 0, 0);
        for seen in self.seen.iter().rev() {
            passed_s += seen.interval.as_secs_f64();
            ended += seen.completions;
            count += seen.classes[class].response.count;
            late += seen.classes[class].late;
            if passed_s >= seconds {
                break;
            }
        }
        (ended as f64 / passed_s, late as f64 / count.max(1) as f64)
    }

    /// How often the wrapper and not the inner controller decided, in the last so many decisions.
    fn interferences(&self, last: usize) -> usize {
        let last = self.decisions.iter().rev().take(last);
        last.filter(|decision| matches!(decision.reason, Reason::Goal(_))).count()
    }
}

/// The best throughput of a fixed limit that keeps the goal, and that limit.
fn best_fixed(capacity: fn(f64) -> f64, class: usize, goal: &str) -> Option<(f64, u32)> {
    let allowed = parsed(goal).statistic.late_share();
    let levels = (0..61).map(|step| 1.1_f64.powi(step).round() as u32);
    let measured = levels.filter_map(|level| {
        let mut plant = Plant::new(99, capacity, goal);
        plant.run(Mpl::at_least_one(level), 10.0);
        let seen = plant.run(Mpl::at_least_one(level), 60.0);
        let ClassObservation { response, late, .. } = seen.classes[class];
        let is_kept = match allowed {
            Some(share) => late as f64 <= share * response.count as f64,
            None => response.mean_s <= parsed(goal).within.as_secs_f64(),
        };
        is_kept.then(|| (seen.throughput_tps(), level))
    });
    measured.max_by(|one, other| one.0.total_cmp(&other.0))
}

const ALGORITHMS: [&str; 4] =
    ["gaussian-process", "hill-climbing", "fixed:200", "paired-comparison"];

/// After 120 s the goal is kept, in the mean of the 300 s that follow, with 0.95 of the throughput
/// of the best fixed limit that keeps it.
#[test]
fn a_goal_is_kept_with_the_most_throughput_under_it() {
    for (capacity, goal) in
        [(rising as fn(f64) -> f64, "p95=200ms"), (rising, "mean=60ms"), (thrashing, "p95=150ms")]
    {
        let (best_tps, best) = best_fixed(capacity, 0, goal).expect("a limit that keeps it");
        for name in ALGORITHMS {
            for seed in 1..=3 {
                let mut plant = Plant::new(seed, capacity, goal);
                let mut controller = keeping(name.parse().unwrap(), 0, goal);
                let mut course = Course::default();
                course.run(&mut controller, &mut plant, 420.0);
                let (tps, late) = course.last(0, 300.0);
                let share = tps / best_tps;
                println!("{name} {goal}: {tps:.0} tps, {share:.3} of fixed:{best}, {late:.4} late");
                // A fixed limit seeks the goal, and no throughput below it.
                let seeks = !name.starts_with("fixed") || capacity(100.0) > capacity(50.0);
                // Its own search under the ceiling costs more, with mean=60ms close to 0.05.
                let least = if name == "paired-comparison" { 0.93 } else { 0.95 };
                assert!(
                    share >= least || !seeks,
                    "{name}, {goal}: {share} of {best_tps} at {best}"
                );
                if goal.starts_with("p95") {
                    assert!(late <= 0.055, "{name}, {goal}: {late} late");
                }
                let status = controller.goal().unwrap();
                assert!(!status.is_impossible, "{status:?}");
            }
        }
    }
}

/// What never binds costs nothing: the same decisions for the same reasons.
#[test]
fn a_goal_that_never_binds_changes_no_decision() {
    for name in ALGORITHMS {
        let algorithm: Algorithm = name.parse().unwrap();
        let mut courses = [Course::default(), Course::default()];
        let mut with = keeping(algorithm, 0, "p95=10s");
        courses[0].run(&mut with, &mut Plant::new(7, rising, "p95=10s"), 200.0);
        let mut without = algorithm.controller(&setting());
        courses[1].run(&mut *without, &mut Plant::new(7, rising, "p95=10s"), 200.0);
        assert_eq!(courses[0].decisions, courses[1].decisions, "{name}");
        assert_eq!(with.goal().unwrap().is_met, Some(true), "{name}");
    }
}

/// A transaction alone takes 21 ms. That 10 ms are not kept is said, the class is served nearly as
/// fast as it can be, and after a time the searches become rare.
#[test]
fn a_goal_that_no_limit_keeps_is_said() {
    for name in ALGORITHMS {
        let mut plant = Plant::new(3, rising, "mean=10ms");
        let mut controller = keeping(name.parse().unwrap(), 0, "mean=10ms");
        let mut course = Course::default();
        course.run(&mut controller, &mut plant, 3_000.0);
        let said = course.statuses.iter().flatten().position(|status| status.is_impossible);
        let at_s = said.unwrap() as f64 * controller.interval_rule().min.as_secs_f64();
        println!("{name}: said after {at_s} s, {:?}", controller.goal());
        assert!(at_s <= 120.0, "{name}: {at_s}");
        let last = course.statuses.last().unwrap().unwrap();
        assert_eq!((last.is_met, last.is_impossible), (Some(false), true), "{name}");
        assert!(last.ceiling.get() <= 16, "{name}: {last:?}");
    }
}

/// Twice as many clients of the class for five minutes, and then a fifth: the ceiling follows both
/// ways.
#[test]
fn a_ceiling_is_raised_again_when_there_is_slack() {
    let goal = "p95=200ms";
    let mut plant = Plant::new(11, rising, goal);
    let mut controller = keeping("gaussian-process".parse().unwrap(), 0, goal);
    let mut course = Course::default();
    course.run(&mut controller, &mut plant, 200.0);
    let tight = controller.goal().unwrap().ceiling;
    // The database becomes four times as fast: the goal would be kept at any limit.
    plant.capacity = |inside| 4.0 * rising(inside);
    course.run(&mut controller, &mut plant, 900.0);
    let wide = controller.goal().unwrap().ceiling;
    println!("ceiling {tight}, then {wide}");
    assert!(tight.get() < 60 && wide.get() >= 2 * tight.get(), "{tight}, {wide}");
    plant.capacity = rising;
    course.run(&mut controller, &mut plant, 1_200.0);
    let (_, late) = course.last(0, 200.0);
    assert!(late <= 0.055, "{late}");
}

/// Holds a limit of 3, or the one nearest to it that the bounds allow, and was not told so by hand.
struct Low(Bounds);

impl Controller for Low {
    fn name(&self) -> &'static str {
        "low"
    }

    fn start(&self) -> Mpl {
        self.0.clamp(Mpl::at_least_one(3))
    }

    fn decide(&mut self, _: &Observation, _: Draw) -> Decision {
        Decision { limit: self.start(), reason: Reason::Fixed }
    }
}

/// The class itself needs more permits than the inner controller would give it.
#[test]
fn a_class_that_queues_gets_more() {
    let goal = "p95=150ms";
    let mut plant = Plant::new(13, rising, goal);
    plant.set_clients(0, 60);
    let low = |setting: &Setting| Box::new(Low(setting.bounds)) as Box<dyn Controller>;
    let mut controller = KeepGoal::new(&setting(), 0, parsed(goal), low);
    let mut course = Course::default();
    course.run(&mut controller, &mut plant, 300.0);
    let (_, late) = course.last(0, 200.0);
    println!("{late} late, {:?}", controller.goal());
    assert!(late <= 0.055, "{late}");
    assert_eq!(controller.goal().unwrap().is_met, Some(true));
}

/// With `fixed:3` no more than 3 were asked for: the class that queues gets no more, and that no
/// limit up to 3 keeps the goal is said.
#[test]
fn a_limit_that_was_set_by_hand_is_never_exceeded() {
    let goal = "p95=150ms";
    let mut plant = Plant::new(13, rising, goal);
    plant.set_clients(0, 60);
    let mut controller = keeping("fixed:3".parse().unwrap(), 0, goal);
    let mut course = Course::default();
    course.run(&mut controller, &mut plant, 300.0);
    assert!(course.decisions.iter().all(|decision| decision.limit.get() <= 3));
    assert!(controller.goal().unwrap().is_impossible);
    let said = course.decisions.iter().find(|one| one.reason.kind() == "goal_impossible").unwrap();
    let said = said.reason.to_string();
    assert!(said.starts_with("goal: no limit up to 3 keeps it"), "{said}");
}

/// However much slack there is, the limit stays the one that was asked for.
#[test]
fn a_goal_does_not_raise_a_limit_that_was_set_by_hand() {
    let goal = "p95=500ms";
    let mut plant = Plant::new(29, rising, goal);
    let mut controller = keeping("fixed:20".parse().unwrap(), 0, goal);
    let mut course = Course::default();
    course.run(&mut controller, &mut plant, 300.0);
    assert!(course.decisions.iter().all(|decision| decision.limit.get() == 20));
    assert_eq!(controller.goal().unwrap().is_met, Some(true));
}

const COMMON: [&str; 3] = ["fixed:100", "hill-climbing", "paired-comparison"];

/// Alone a transaction of the class takes 63 ms at the 95th percentile, among 12 already 96: only
/// low limits keep 95 ms. They are found, and it is never said that there are none.
#[test]
fn a_goal_that_only_low_limits_keep_is_kept() {
    let goal = "p95=95ms";
    let (_, best) = best_fixed(rising, 0, goal).expect("a limit that keeps it");
    assert!((4..=14).contains(&best), "{best}");
    for name in COMMON {
        for seed in 31..=33 {
            let mut plant = Plant::new(seed, rising, goal);
            let mut controller = keeping(name.parse().unwrap(), 0, goal);
            let mut course = Course::default();
            course.run(&mut controller, &mut plant, 400.0);
            let (tps, late) = course.last(0, 280.0);
            let ceiling = controller.goal().unwrap().ceiling;
            println!("{name}: {tps:.0} tps, {late:.4} late, ceiling {ceiling}");
            assert!(late <= 0.06, "{name}: {late}");
            assert!(course.statuses.iter().flatten().all(|one| !one.is_impossible), "{name}");
        }
    }
}

/// Every 4 s the database stands still for 120 ms, as at a checkpoint: 3 % of the class are late
/// for that. Low limits keep the goal all the same, and a slow second is no proof that none does.
#[test]
fn a_database_that_stalls_now_and_then_is_no_proof() {
    let goal = "p95=150ms";
    for name in COMMON {
        for seed in 41..=43 {
            let mut plant = Plant::new(seed, rising, goal);
            plant.stall = Some([4.0, 0.12]);
            let mut controller = keeping(name.parse().unwrap(), 0, goal);
            let mut course = Course::default();
            course.run(&mut controller, &mut plant, 400.0);
            let (tps, late) = course.last(0, 280.0);
            println!("{name}: {tps:.0} tps, {late:.4} late, {:?}", controller.goal());
            assert!(late <= 0.065, "{name}: {late}");
            assert!(course.statuses.iter().flatten().all(|one| !one.is_impossible), "{name}");
        }
    }
}

/// For a minute the database is eight times slower: whatever was said of that minute, afterwards
/// the goal is kept, and it is said to be.
#[test]
fn a_bad_minute_is_not_held_against_the_rest() {
    let goal = "p95=200ms";
    for name in COMMON {
        let mut plant = Plant::new(51, |inside| rising(inside) / 8.0, goal);
        let mut controller = keeping(name.parse().unwrap(), 0, goal);
        let mut course = Course::default();
        course.run(&mut controller, &mut plant, 60.0);
        plant.capacity = rising;
        course.run(&mut controller, &mut plant, 600.0);
        let (tps, late) = course.last(0, 200.0);
        let status = controller.goal().unwrap();
        println!("{name}: {tps:.0} tps, {late:.4} late, {status:?}");
        assert!(late <= 0.055, "{name}: {late}");
        assert_eq!((status.is_met, status.is_impossible), (Some(true), false), "{name}");
    }
}

/// A transaction alone takes 63 ms at the 95th percentile: 30 ms are kept nowhere. That is said, it
/// stays said, and never that the goal is kept.
#[test]
fn a_percentile_that_no_limit_keeps_is_said() {
    let goal = "p95=30ms";
    for name in COMMON {
        let mut plant = Plant::new(61, rising, goal);
        let mut controller = keeping(name.parse().unwrap(), 0, goal);
        let mut course = Course::default();
        course.run(&mut controller, &mut plant, 900.0);
        let statuses: Vec<_> = course.statuses.iter().flatten().collect();
        let said = statuses.iter().position(|status| status.is_impossible).unwrap();
        let at_s = said as f64 * controller.interval_rule().min.as_secs_f64();
        println!("{name}: said after {at_s} s, {:?}", controller.goal());
        assert!(at_s <= 120.0, "{name}: {at_s}");
        assert!(statuses[said..].iter().all(|status| status.is_impossible), "{name}");
        assert!(statuses.iter().all(|status| status.is_met != Some(true)), "{name}");
        let ceiling = controller.goal().unwrap().ceiling;
        assert!(ceiling.get() <= 32, "{name}: {ceiling}");
    }
}

/// A client that asks every 5 s: what is said of it rests on a hundred transactions at one limit,
/// and a search that cannot have as many says nothing.
#[test]
fn nothing_is_said_of_a_class_that_is_rarely_seen() {
    let goal = "p95=1ms";
    for name in COMMON {
        let mut plant = Plant::new(71, rising, goal);
        plant.set_clients(0, 1);
        plant.thinking[0] = 1;
        plant.think_s[0] = 5.0;
        let mut controller = keeping(name.parse().unwrap(), 0, goal);
        let mut course = Course::default();
        course.run(&mut controller, &mut plant, 1_500.0);
        let share =
            course.interferences(course.decisions.len()) as f64 / course.decisions.len() as f64;
        println!("{name}: {share:.3} of the decisions, {:?}", controller.goal());
        assert!(share <= 0.25, "{name}: {share}");
        assert!(course.statuses.iter().flatten().all(|one| !one.is_impossible), "{name}");
        assert!(course.statuses.iter().flatten().all(|one| one.is_met != Some(true)), "{name}");
    }
}

/// Two transactions a second of the class say nothing for a minute: the inner controller decides.
#[test]
fn a_class_with_few_transactions_changes_nothing() {
    let goal = "p95=1ms";
    let mut plant = Plant::new(17, rising, goal);
    plant.set_clients(0, 0);
    plant.thinking[0] = 0;
    let mut controller = keeping(Algorithm::default(), 0, goal);
    let mut course = Course::default();
    course.run(&mut controller, &mut plant, 200.0);
    assert_eq!(course.interferences(200), 0);
    assert_eq!(controller.goal().unwrap().is_met, None);
}

/// In the fourth quarter of an hour the wrapper moves the limit in few intervals only.
#[test]
fn it_comes_to_rest() {
    for name in ALGORITHMS {
        let goal = "p95=200ms";
        let mut plant = Plant::new(19, rising, goal);
        let mut controller = keeping(name.parse().unwrap(), 0, goal);
        let mut course = Course::default();
        course.run(&mut controller, &mut plant, 3_600.0);
        let quarter = course.decisions.len() / 4;
        let share = course.interferences(quarter) as f64 / quarter as f64;
        println!("{name}: {share:.3} of the intervals of the last quarter");
        assert!(share <= 0.1, "{name}: {share}");
    }
}
