//! The plant as a whole: against closed forms, and for what must always hold.

use super::*;

/// A closed system of one class without think time.
fn closed(clients: u32, class: TransactionClass) -> EventsPhase {
    EventsPhase { clients: Some(clients), classes: vec![class], ..EventsPhase::default() }
}

fn open(arrivals_tps: f64, class: TransactionClass) -> EventsPhase {
    EventsPhase { arrivals_tps: Some(arrivals_tps), classes: vec![class], ..EventsPhase::default() }
}

/// One exponential processor time and nothing else.
fn job(cpu_ms: f64) -> TransactionClass {
    TransactionClass { steps: 1, cpu_ms, ..TransactionClass::default() }
}

/// Eight steps, each with a lock on one of few items: much contention.
fn contending() -> EventsPhase {
    let class = TransactionClass { locks: 8, write_share: 0.6, ..TransactionClass::default() };
    EventsPhase { items: 200, cpus: 4, ..closed(300, class) }
}

fn plant(phase: &EventsPhase) -> EventsPlant {
    EventsPlant::new(std::slice::from_ref(phase), 1).expect("the phase is possible")
}

/// What intervals at one limit showed, all together.
#[derive(Default)]
struct RunTotals {
    seconds: f64,
    completions: f64,
    failures: u64,
    population_s: f64,
    granted: f64,
    in_queue_s: f64,
    in_database_s: f64,
    in_database_s2: f64,
    locks_held: u64,
    locks_held_by_running: u64,
}

impl RunTotals {
    fn of(plant: &mut EventsPlant, limit: u32, intervals: u32) -> RunTotals {
        let mut totals = RunTotals::default();
        for _ in 0..intervals {
            totals.add(&plant.interval(Mpl::at_least_one(limit)));
        }
        totals
    }

    fn add(&mut self, seen: &Observation) {
        let seconds = seen.interval.as_secs_f64();
        self.seconds += seconds;
        self.completions += seen.completions as f64;
        self.failures += seen.failures;
        self.population_s += seen.concurrency_mean * seconds;
        self.granted += seen.in_queue.count as f64;
        self.in_queue_s += seen.in_queue.mean_s * seen.in_queue.count as f64;
        let (inside, count) = (seen.in_database, seen.in_database.count as f64);
        self.in_database_s += inside.mean_s * count;
        self.in_database_s2 += (inside.variance_s2 + inside.mean_s.powi(2)) * count;
        let locks = seen.locks.unwrap_or_default();
        self.locks_held += locks.locks_held;
        self.locks_held_by_running += locks.locks_held_by_running;
    }

    fn tps(&self) -> f64 {
        self.completions / self.seconds
    }

    fn response_s(&self) -> f64 {
        self.population_s / self.completions
    }

    fn mean_in_queue_s(&self) -> f64 {
        self.in_queue_s / self.granted
    }

    /// The squared coefficient of variation of the time in the database.
    fn variability(&self) -> f64 {
        let mean_s = self.in_database_s / self.completions;
        self.in_database_s2 / self.completions / mean_s.powi(2) - 1.0
    }

    /// Locks held over locks held by transactions that run (Moenkeberg and Weikum, 1992).
    fn conflict_ratio(&self) -> f64 {
        self.locks_held as f64 / self.locks_held_by_running as f64
    }
}

/// After so many intervals to settle.
fn settled(phase: &EventsPhase, limit: u32, intervals: u32) -> RunTotals {
    let mut plant = plant(phase);
    RunTotals::of(&mut plant, limit, 20);
    RunTotals::of(&mut plant, limit, intervals)
}

#[track_caller]
fn assert_within(per_cent: f64, got: f64, expected: f64) {
    let off = 100.0 * (got / expected - 1.0);
    assert!(off.abs() < per_cent, "{got} is not {expected}: off by {off:.1} %");
}

/// Throughput of a closed network of stations with these demands, by the exact recursion over the
/// population (Reiser and Lavenberg, 1980).
fn mean_value_analysis(demands_s: &[f64], population: u32) -> f64 {
    let mut queues = vec![0.0; demands_s.len()];
    let mut tps = 0.0;
    for inside in 1..=population {
        let stations = demands_s.iter().zip(&queues);
        let times_s: Vec<f64> = stations.map(|(demand, queue)| demand * (1.0 + queue)).collect();
        tps = f64::from(inside) / times_s.iter().sum::<f64>();
        queues = times_s.iter().map(|time| tps * time).collect();
    }
    tps
}

/// The probability that all of `servers` are busy at an offered load, by Erlang's formulas.
fn erlang_c(servers: u32, offered: f64) -> f64 {
    let mut blocked = 1.0;
    for server in 1..=servers {
        blocked = offered * blocked / (f64::from(server) + offered * blocked);
    }
    blocked / (1.0 - (1.0 - blocked) * offered / f64::from(servers))
}

/// The example of the module's head: four stations of 10 ms each.
#[test]
fn the_recursion_gives_the_balanced_network() {
    for (population, tps) in [(1, 25.0), (2, 40.0), (3, 50.0), (9, 75.0)] {
        assert_within(1e-9, mean_value_analysis(&[0.01; 4], population), tps);
    }
}

#[test]
fn without_locks_it_is_the_closed_network_of_the_textbook() {
    // (disks, processor time in ms, reads, population)
    let table = [
        (3, 10.0, 6, 1),
        (3, 10.0, 6, 3),
        (3, 10.0, 6, 9),
        (1, 3.0, 8, 4),
        (2, 12.0, 2, 2),
        (2, 12.0, 2, 20),
    ];
    for (disks, cpu_ms, reads, population) in table {
        let class = TransactionClass { cpu_ms, reads, ..TransactionClass::default() };
        let phase = EventsPhase { disks, ..closed(50, class) };
        let mut demands_s = vec![f64::from(reads) * 0.005 / f64::from(disks); disks as usize];
        demands_s.push(cpu_ms / 1e3);
        let expected = mean_value_analysis(&demands_s, population);
        assert_within(3.0, settled(&phase, population, 150).tps(), expected);
    }
}

#[test]
fn the_log_is_one_more_station() {
    let class = TransactionClass { cpu_ms: 2.0, log_write: true, ..TransactionClass::default() };
    let phase = EventsPhase { log_ms: 2.0, ..closed(50, class) };
    // Two equal stations: N/(N + 1) of 500.
    for (limit, tps) in [(1, 250.0), (4, 400.0), (24, 480.0)] {
        assert_within(3.0, settled(&phase, limit, 150).tps(), tps);
    }
}

/// With as many permits as processors it is the queue before c servers; with permits for all the
/// same number of transactions is inside, only none waits at the gate.
#[test]
fn an_open_load_of_one_class_is_the_queue_of_erlang() {
    for (cpus, offered) in [(1, 0.6), (3, 2.1)] {
        let arrivals_tps = offered * 100.0;
        let phase = EventsPhase { cpus, interval_s: Some(5.0), ..open(arrivals_tps, job(10.0)) };
        let waits_s = erlang_c(cpus, offered) * 0.01 / (f64::from(cpus) - offered);
        let gated = settled(&phase, cpus, 300);
        assert_within(8.0, gated.mean_in_queue_s(), waits_s);
        assert_within(8.0, gated.response_s(), 0.01 + waits_s);
        let free = settled(&phase, 1_000_000, 300);
        assert_within(8.0, free.response_s(), 0.01 + waits_s);
        assert!(free.in_queue_s < 1e-12);
    }
}

/// 96.77 % of the jobs are short and 3.23 % long, half of the work each: C² = 15. One at a time,
/// the mean wait is ρ·(1 + C²)/2/(1 − ρ) = 8 services at a load of a half (Pollaczek, Khinchine);
/// shared by all, the mean response is 1/(1 − ρ) = 2 services whatever C² is.
#[test]
fn variable_service_hurts_one_at_a_time_and_not_when_shared() {
    let short = 0.5 * (1.0 + (14.0_f64 / 16.0).sqrt());
    let part = |share: f64, name: &str| TransactionClass {
        name: name.into(),
        share,
        ..job(1.0 / (2.0 * share))
    };
    let classes = vec![part(short, "short"), part(1.0 - short, "long")];
    let phase =
        EventsPhase { classes, interval_s: Some(1.0), ..open(500.0, TransactionClass::default()) };
    let gated = settled(&phase, 1, 800);
    assert_within(7.0, gated.variability(), 15.0);
    assert_within(20.0, gated.mean_in_queue_s(), 0.008);
    assert_within(10.0, settled(&phase, 1_000_000, 800).response_s(), 0.002);
}

/// 101 runnable on one processor, and each of the 100 too many costs 1 %: half of 1,000.
#[test]
fn switching_between_many_costs() {
    let phase = EventsPhase { cpu_overhead: 0.01, ..closed(1_000, job(1.0)) };
    for (limit, tps) in [(1, 1_000.0), (101, 500.0), (301, 250.0)] {
        assert_within(3.0, settled(&phase, limit, 100).tps(), tps);
    }
}

/// Working sets of 10 MiB in 200 MiB: up to 20 inside a tenth of the reads miss, 80 inside keep a
/// quarter, so that 1 − 0.9/4 miss.
#[test]
fn memory_pressure_makes_an_interior_maximum() {
    let class = TransactionClass {
        cpu_ms: 4.0,
        reads: 8,
        working_set_mb: 10.0,
        ..TransactionClass::default()
    };
    let phase = EventsPhase { disks: 4, miss: 0.1, memory_mb: Some(200.0), ..closed(100, class) };
    let tps = |limit, miss: f64| {
        let disk_s = 8.0 * miss * 0.005 / 4.0;
        let expected = mean_value_analysis(&[0.004, disk_s, disk_s, disk_s, disk_s], limit);
        let got = settled(&phase, limit, 150).tps();
        assert_within(3.0, got, expected);
        got
    };
    let (low, best, high) = (tps(1, 0.1), tps(20, 0.1), tps(80, 0.775));
    assert!(best > 1.5 * low && best > 1.5 * high, "{low} {best} {high}");
}

/// One item: exclusive locks let one transaction at a time have a processor, shared ones five.
#[test]
fn exclusive_locks_serialise_and_shared_ones_do_not() {
    for (write_share, tps) in [(1.0, 100.0), (0.0, 500.0)] {
        let class = TransactionClass { locks: 1, write_share, ..job(10.0) };
        let phase = EventsPhase { items: 1, cpus: 8, ..closed(20, class) };
        assert_within(3.0, settled(&phase, 5, 100).tps(), tps);
    }
}

/// Alone, and with 8 locks to ask for, a transaction is mature from the second on.
#[test]
fn a_transaction_with_a_quarter_of_its_locks_is_mature() {
    let class = TransactionClass { locks: 8, ..TransactionClass::default() };
    let mut plant = plant(&closed(1, class));
    plant.begin_interval(Mpl::ONE);
    for step in 0..16 {
        let seen = plant.lock_observation().expect("there are locks");
        assert_eq!(seen.locks_held, 1 + step % 8);
        let mature = u32::from(seen.locks_held >= 2);
        assert_eq!((seen.mature_running, seen.young_running), (mature, 1 - mature));
        plant.advance(f64::INFINITY);
    }
}

#[test]
fn lock_observations_tell_who_holds_and_who_waits() {
    let class = TransactionClass { locks: 1, write_share: 1.0, ..TransactionClass::default() };
    let phase = EventsPhase { items: 1, ..closed(20, class) };
    // At any moment one has the lock, the only one it will ask for, and the other permits wait.
    let expected = LockObservation {
        mature_running: 1,
        young_blocked: 6,
        locks_held: 1,
        locks_held_by_running: 1,
        ..LockObservation::default()
    };
    assert_eq!(plant(&phase).interval(Mpl::at_least_one(7)).locks, Some(expected));
    assert_eq!(plant(&closed(20, job(1.0))).interval(Mpl::ONE).locks, None);
}

/// The second example of the module's head.
#[test]
fn locking_thrashes_and_the_conflict_ratio_tells() {
    let class = TransactionClass { locks: 8, write_share: 0.6, reads: 3, ..job(1.0) };
    let class = TransactionClass { steps: 8, ..class };
    let phase = EventsPhase { cpus: 4, disks: 8, disk_ms: 4.0, items: 1_200, ..closed(500, class) };
    for (limit, tps, ratio) in [(1, 77.0, 1.0), (32, 485.0, 1.5), (128, 236.0, 10.0)] {
        let seen = settled(&phase, limit, 80);
        assert_within(6.0, seen.tps(), tps);
        assert_within(20.0, seen.conflict_ratio(), ratio);
    }
}

/// While transactions run, not all of them wait. And when no new ones are let in, all that are
/// inside come to their end, so that no circle of waiting ones was left behind.
#[test]
fn deadlocks_never_stall_the_plant() {
    for seed in 0..10 {
        let mut phase = contending();
        phase.items = 30;
        let mut plant = EventsPlant::new(&[phase], seed).expect("possible");
        let mut rollbacks = 0;
        plant.begin_interval(Mpl::at_least_one(40));
        for _ in 0..20_000 {
            let before = plant.restarting.len();
            assert!(plant.advance(f64::INFINITY), "seed {seed}");
            rollbacks += u32::from(plant.restarting.len() > before);
            let blocked = plant.transactions.iter().filter(|&(slot, _)| plant.locks.waits(slot));
            assert!(blocked.count() < plant.running as usize, "seed {seed}");
        }
        assert!(rollbacks > 1_000 && plant.meter.completions() > 100, "{rollbacks}");
        plant.begin_interval(Mpl::ONE);
        let mut events = 0;
        while plant.running > 1 && plant.advance(f64::INFINITY) {
            events += 1;
            assert!(events < 20_000, "seed {seed}");
        }
    }
}

#[test]
fn a_transaction_fails_only_when_it_may_restart_no_more() {
    let phase = EventsPhase { items: 20, ..contending() };
    let failures = |restarts| settled(&EventsPhase { restarts, ..phase.clone() }, 10, 10).failures;
    let (never, second, first) = (failures(None), failures(Some(1)), failures(Some(0)));
    assert!(never == 0 && 2 * second < first && first > 100, "{never} {second} {first}");
}

/// Event by event: permits are granted only below the limit, and an interval with a lower limit
/// leaves those inside alone.
#[test]
fn grants_obey_the_limit_and_nobody_is_thrown_out() {
    let mut plant = plant(&contending());
    let mut random = SplitMix64::new(2);
    for _ in 0..50 {
        let limit = 1 + random.next_below(60);
        let before = plant.running;
        plant.begin_interval(Mpl::at_least_one(limit));
        assert_eq!(plant.running, before.max(limit));
        for _ in 0..300 {
            let before = plant.running;
            plant.advance(f64::INFINITY);
            assert!(plant.running <= before.max(limit));
            assert!(plant.running + 1 >= before);
            assert!(plant.running >= limit, "300 clients want permits");
        }
    }
}

#[test]
fn nobody_is_lost_and_nobody_is_made() {
    let closed = EventsPhase { think_s: 0.05, restarts: Some(3), ..contending() };
    let mut plant = plant(&closed);
    let (mut granted, mut ended) = (0, 0);
    for interval in 0..100 {
        let seen = plant.interval(Mpl::at_least_one(1 + interval % 37));
        granted += seen.in_queue.count;
        ended += seen.completions + seen.failures;
        assert_eq!(granted - ended, u64::from(plant.running));
        assert_eq!(plant.running as usize, plant.transactions.iter().count());
        assert_eq!(seen.concurrency + plant.thinking, 300);
        assert!(seen.concurrency_peak >= seen.concurrency && seen.concurrency_peak <= 300);
        assert_eq!(seen.in_database.count, seen.completions + seen.failures);
    }
}

/// 400 a second for 200 s: 80,000 with a standard deviation of 283.
#[test]
fn arrivals_are_as_many_as_asked_for_and_all_are_somewhere() {
    let mut plant = plant(&EventsPhase { interval_s: Some(2.0), ..open(400.0, job(2.0)) });
    let totals = RunTotals::of(&mut plant, 5, 100);
    let arrived = totals.completions + f64::from(plant.concurrency());
    assert!((arrived - 80_000.0).abs() < 5.0 * 283.0, "{arrived}");
    assert!((totals.seconds - 200.0).abs() < 1e-6);
}

/// Half of 400,000 arrivals find the plant full; those inside are served one after the other.
#[test]
fn a_queue_that_grows_without_end_is_cut_off() {
    let phase = EventsPhase { interval_s: Some(0.4), ..open(1e6, job(1.0)) };
    let mut plant = plant(&phase);
    let seen = plant.interval(Mpl::ONE);
    assert_eq!((seen.concurrency, seen.concurrency_peak), (CROWD_MAX, CROWD_MAX));
    assert!(seen.failures.abs_diff(200_000) < 5_000, "{}", seen.failures);
    assert!(seen.waiting_share > 0.99 && seen.running_mean > 0.99);
}

#[test]
fn the_same_seed_gives_the_same_observations() {
    let run = |seed| {
        let phases = [EventsPhase { intervals: 10, noise: 0.1, ..contending() }, contending()];
        let mut plant = EventsPlant::new(&phases, seed).expect("possible");
        let limits = (0..20).map(|index| Mpl::at_least_one(1 + index * 7 % 40));
        limits.map(|limit| plant.interval(limit)).collect::<Vec<_>>()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn an_interval_ends_as_the_rule_says() {
    let fast = EventsPhase { interval_s: Some(0.2), ..closed(10, job(1.0)) };
    let slow = EventsPhase { interval_s: Some(0.2), ..closed(10, job(10.0)) };
    let stalled = EventsPhase { interval_s: Some(0.2), ..closed(10, job(1_000.0)) };
    let quiet = EventsPhase { interval_s: Some(0.2), ..open(0.0, job(1.0)) };
    let at = |phase: &EventsPhase| {
        let seen = plant(phase).interval(Mpl::at_least_one(4));
        (seen.interval.as_secs_f64(), seen.completions)
    };
    let (seconds, completions) = at(&fast);
    assert!((seconds - 0.2).abs() < 1e-9 && completions > 100);
    let (seconds, completions) = at(&slow);
    assert!(seconds > 0.2 && seconds < 6.0 && completions == 100);
    let (seconds, completions) = at(&stalled);
    assert!((seconds - 6.0).abs() < 1e-9 && completions < 100);
    let (seconds, completions) = at(&quiet);
    assert!((seconds - 6.0).abs() < 1e-9 && completions == 0);
}

/// One processor with 2 ms of work and a log with 0.5 ms, but for 10 % of 20 reads of 5 ms on two
/// disks a transaction takes 5 ms of each disk: 150 completions at 200 tps.
#[test]
fn without_an_interval_it_is_the_time_for_150_at_the_busiest_station() {
    let class = TransactionClass {
        steps: 20,
        cpu_ms: 2.0,
        reads: 20,
        log_write: true,
        ..TransactionClass::default()
    };
    let disks = EventsPhase { disks: 2, miss: 0.1, ..closed(500, class.clone()) };
    let few = EventsPhase { clients: Some(1), think_s: 0.0875, ..disks.clone() };
    let light = EventsPhase { clients: None, arrivals_tps: Some(50.0), ..disks.clone() };
    // Alone, a client needs 2 + 10 + 0.5 ms and thinks for 87.5: 10 tps.
    for (phase, seconds) in [(disks, 0.75), (few, 15.0), (light, 3.0)] {
        assert!((phase.shortest_interval_s() - seconds).abs() < 1e-9);
        assert!((phase.longest_interval_s() - 30.0 * seconds).abs() < 1e-9);
    }
}

/// 10 clients, then 4, then 12 with another class beside the first, then an open load.
#[test]
fn a_new_phase_finds_what_the_old_one_left() {
    let first = EventsPhase { intervals: 2, ..closed(10, job(1.0)) };
    let other = TransactionClass { name: "other".into(), ..job(1.0) };
    let classes = vec![other, job(1.0)];
    let phases = [
        first.clone(),
        EventsPhase { clients: Some(4), ..first.clone() },
        EventsPhase { clients: Some(12), classes, ..first },
        EventsPhase { interval_s: Some(1.0), ..open(100.0, job(1.0)) },
    ];
    let mut plant = EventsPlant::new(&phases, 1).expect("possible");
    let seen: Vec<Observation> = (0..10).map(|_| plant.interval(Mpl::at_least_one(3))).collect();
    let peaks: Vec<u32> = seen[..6].iter().map(|seen| seen.concurrency_peak).collect();
    let ends: Vec<u32> = seen[..6].iter().map(|seen| seen.concurrency).collect();
    assert_eq!(peaks, [10, 10, 10, 4, 12, 12]);
    assert_eq!(ends, [10, 10, 4, 4, 12, 12]);
    // The classes keep their places: first the one that came first.
    assert!(seen[..4].iter().all(|seen| seen.classes[1].completions == 0));
    for class in seen[5].classes.iter().map(|class| class.completions) {
        assert!(class > 40, "two equal classes share more than 100 completions");
    }
    // Those of the closed phase leave, and a tenth of a processor's load is almost nobody.
    assert!(seen[9].concurrency_mean < 1.0 && seen[9].classes[1].completions == 0);
}

/// 1,000 tps for a second, with a standard deviation of 20 % and 3 % more for the counting,
/// whichever station is busy.
#[test]
fn noise_moves_the_speed_from_interval_to_interval() {
    let read = TransactionClass { reads: 1, ..job(0.01) };
    let write = TransactionClass { log_write: true, ..job(0.01) };
    for class in [job(1.0), read, write] {
        let machine = EventsPhase { disk_ms: 1.0, log_ms: 1.0, ..closed(10, class) };
        let mut plant = plant(&EventsPhase { noise: 0.2, interval_s: Some(1.0), ..machine });
        let tps: Vec<f64> =
            (0..150).map(|_| plant.interval(Mpl::at_least_one(4)).throughput_tps()).collect();
        let mean = tps.iter().sum::<f64>() / 150.0;
        let variance = tps.iter().map(|tps| (tps - mean).powi(2)).sum::<f64>() / 150.0;
        // Five standard errors: 202/√150 for the mean, and 4 % of the deviation.
        assert_within(8.2, mean, 1_000.0);
        assert_within(20.0, variance.sqrt(), 202.0);
    }
}

#[test]
fn a_phase_that_is_impossible_says_what_to_change() {
    let good = || closed(10, job(1.0));
    let class = |class: TransactionClass| closed(10, class);
    let cases: [(Vec<EventsPhase>, &str); 13] = [
        (vec![], "there is no phase: give at least one"),
        (vec![good(), good()], "phase 1 never ends: give it `intervals`, as another phase follows"),
        (vec![EventsPhase { clients: None, ..good() }], "phase 1 needs one load: either `clients`"),
        (vec![EventsPhase { arrivals_tps: Some(1.0), ..good() }], "phase 1 needs one load"),
        (vec![EventsPhase { think_s: 1.0, ..open(1.0, job(1.0)) }], "phase 1 needs one load"),
        (vec![EventsPhase { classes: vec![], ..good() }], "phase 1 has no class"),
        (
            vec![EventsPhase { classes: vec![job(1.0), job(2.0)], ..good() }],
            "phase 1 has two classes named `transaction`: give one of them another name",
        ),
        (
            vec![EventsPhase { intervals: 1, ..good() }, EventsPhase { cpus: 0, ..good() }],
            "phase 2: `cpus` is 0: give a number from 1 to 4096",
        ),
        (vec![EventsPhase { miss: f64::NAN, ..good() }], "phase 1: `miss` is NaN"),
        (
            vec![class(TransactionClass { steps: 4, locks: 5, ..job(1.0) })],
            "phase 1: `locks` of class transaction is 5: give a number from 0 to 4",
        ),
        (vec![class(job(0.0))], "phase 1: `cpu_ms` of class transaction is 0: give"),
        (
            vec![EventsPhase { interval_max_s: Some(0.1), ..good() }],
            "phase 1: `interval_max_s` is 0.1: give a number from 0.15 to 86400",
        ),
        (
            vec![EventsPhase { interval_s: Some(1_000.0), ..good() }],
            "phase 1: an interval of 30000 s has room for 30000000 completions: make",
        ),
    ];
    for (phases, message) in cases {
        let error = EventsPlant::new(&phases, 1).expect_err(message).to_string();
        assert!(error.starts_with(message), "{error}");
    }
}
