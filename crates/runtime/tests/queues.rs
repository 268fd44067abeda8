//! Queues on the virtual machine against the formulas of queueing theory.
//!
//! A mean over a run has an error that falls with the root of the run's length. The long runs have
//! to be within one per cent, the short ones of every day within ten.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test's helpers fail the test")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_control::Mpl;
use tidegate_control::models::throughput::{Network, Stations};
use tidegate_random::SplitMix64;
use tidegate_runtime::disk::{Transfer, wait_for};
use tidegate_runtime::sync::{Mutex, channel};
use tidegate_runtime::{Discipline, Hardware, Machine, Priority, Service, clock, thread};

const SECOND: Duration = Duration::from_secs(1);

/// How long runs are, and how far from the formula their means may be.
#[derive(Clone, Copy)]
struct Length {
    jobs: u32,
    error: f64,
}

const SHORT: Length = Length { jobs: 12_000, error: 0.1 };
const LONG: Length = Length { jobs: 6_000_000, error: 0.01 };

/// Draws a demand in seconds.
type Demand = fn(&mut SplitMix64) -> f64;

/// Mean times of jobs that come at random and need the processors.
struct Open {
    hardware: Hardware,
    /// Arrivals a second.
    rate: f64,
    jobs: u32,
    demand: Demand,
    /// The share of jobs of high priority.
    high: f64,
    seed: u64,
}

struct Times {
    /// Mean seconds from arrival to end, of normal and high priority.
    response_s: [f64; 2],
    /// Busy processors, mean.
    busy: f64,
}

impl Open {
    /// Runs the jobs on workers that are enough for all that are there at the same time.
    fn run(&self, workers: usize) -> Times {
        let (rate, jobs, demand, high, seed) =
            (self.rate, self.jobs, self.demand, self.high, self.seed);
        let report = Machine::new(self.hardware.clone(), seed).run(move || {
            let times = Arc::new(Mutex::new([(0.0, 0_u32); 2]));
            // A job goes to a worker that is idle: an idle worker is in `idle`.
            let (idle_sender, idle) = channel::<usize>();
            let mut senders = Vec::new();
            let mut tasks = Vec::new();
            for worker in 0..workers {
                let (sender, receiver) = channel::<(Instant, f64, bool)>();
                senders.push(sender);
                let (idle_sender, times) = (idle_sender.clone(), Arc::clone(&times));
                let work = move || {
                    idle_sender.send(worker).unwrap();
                    while let Ok((arrived, demand, is_high)) = receiver.recv() {
                        let priority = if is_high { Priority::High } else { Priority::Normal };
                        thread::set_priority(priority);
                        thread::work_for(Duration::from_secs_f64(demand));
                        let mut times = times.lock();
                        let (sum, count) = &mut times[usize::from(is_high)];
                        *sum += (clock::now() - arrived).as_secs_f64();
                        *count += 1;
                        drop(times);
                        idle_sender.send(worker).unwrap();
                    }
                };
                tasks.push(thread::spawn("worker", work).unwrap());
            }
            let mut random = SplitMix64::new(seed);
            for _ in 0..jobs {
                thread::sleep(Duration::from_secs_f64(random.next_exponential() / rate));
                let job = (clock::now(), demand(&mut random), random.next_chance(high));
                let worker = idle.try_recv().expect("a worker is idle");
                senders[worker].send(job).unwrap();
            }
            drop(senders);
            for task in tasks {
                task.join().unwrap();
            }
            *times.lock()
        });
        let report = report.unwrap();
        let response_s = report.value.map(|(sum, count)| sum / f64::from(count));
        let busy = report.usage.processors.as_secs_f64() / report.elapsed.as_secs_f64();
        Times { response_s, busy }
    }
}

fn hardware(processors: u32, discipline: Discipline) -> Hardware {
    Hardware { discipline, ..Hardware::with_processors(processors) }
}

/// A quantum longer than any run: a task keeps its processor until it is done.
const FOREVER: Discipline = Discipline::Quantum(Duration::from_secs(1 << 30));

fn name(discipline: Discipline) -> &'static str {
    if discipline == FOREVER { "in order" } else { "shared" }
}

#[track_caller]
fn assert_within(what: &str, found: f64, wanted: f64, share: f64) {
    let error = found / wanted - 1.0;
    println!("{what}: {found:.6} for {wanted:.6}, {:+.3} %", 100.0 * error);
    assert!(error.abs() < share, "{what}: {found} for {wanted}");
}

/// Mean response of M/M/k with mean demand 1: Erlang's C formula.
fn mmk_response(processors: u32, rate: f64) -> f64 {
    let servers = f64::from(processors);
    // The term of n jobs in the sums over n: rate^n / n!.
    let mut term = 1.0;
    let mut sum = 1.0;
    for jobs in 1..processors {
        term *= rate / f64::from(jobs);
        sum += term;
    }
    let all_busy = term * rate / servers / (1.0 - rate / servers);
    1.0 + all_busy / (sum + all_busy) / (servers - rate)
}

fn many_processors_with_exponential_work(length: Length) {
    for (processors, load, seed) in [(1, 0.5, 1), (2, 0.6, 2), (4, 0.7, 3)] {
        let rate = load * f64::from(processors);
        let wanted = mmk_response(processors, rate);
        // The mean is the same in the order of arrival and shared, because demands are exponential.
        for discipline in [FOREVER, Discipline::Sharing] {
            let hardware = hardware(processors, discipline);
            let (jobs, demand) = (length.jobs, SplitMix64::next_exponential as Demand);
            let times = Open { hardware, rate, jobs, demand, high: 0.0, seed }.run(200);
            let what = format!("M/M/{processors}, load {load}, {}", name(discipline));
            assert_within(&what, times.response_s[0], wanted, length.error);
            assert_within(&format!("{what}, busy"), times.busy, rate, length.error);
        }
    }
}

/// Demands of two sizes whose mean is 1 and whose second moment is 3.25.
fn two_sizes(random: &mut SplitMix64) -> f64 {
    if random.next_chance(0.1) { 5.5 } else { 0.5 }
}

/// The mean of processor sharing depends on the demand's mean only; in the order of arrival it does
/// not (Pollaczek and Khinchine).
fn one_processor_with_any_work(length: Length) {
    let (rate, jobs, high, seed) = (0.5, length.jobs, 0.0, 5);
    let shared = hardware(1, Discipline::Sharing);
    for (name, demand) in [("two sizes", two_sizes as Demand), ("fixed", |_| 1.0)] {
        let times = Open { hardware: shared.clone(), rate, jobs, demand, high, seed }.run(200);
        let what = format!("M/G/1-PS, load 0.5, {name}");
        assert_within(&what, times.response_s[0], 2.0, length.error);
    }
    let hardware = hardware(1, FOREVER);
    let times = Open { hardware, rate, jobs, demand: two_sizes, high, seed }.run(400);
    let wanted = 1.0 + rate * 3.25 / (2.0 * (1.0 - rate));
    assert_within("M/G/1, load 0.5, two sizes", times.response_s[0], wanted, length.error);
}

/// With preemption, high priority sees only itself: M/M/1 of its own load. Normal priority has what
/// is left: demands are exponential, so the jobs that are there in all are those of M/M/1.
fn high_priority(length: Length) {
    for discipline in [Discipline::Sharing, FOREVER] {
        let hardware = hardware(1, discipline);
        let (jobs, demand) = (length.jobs, SplitMix64::next_exponential as Demand);
        let [normal, high] =
            Open { hardware, rate: 0.6, jobs, demand, high: 0.5, seed: 7 }.run(300).response_s;
        let what = format!("M/M/1, load 0.3 and 0.3, {}", name(discipline));
        assert_within(&format!("{what}, high"), high, 1.0 / (1.0 - 0.3), length.error);
        let wanted = (0.6 / 0.4 - 0.3 / 0.7) / 0.3;
        assert_within(&format!("{what}, normal"), normal, wanted, length.error);
    }
}

/// Clients of a closed network: think, work on the processor, then one of the disks, in turn.
/// Returns their throughput.
fn closed(clients: u32, think_s: f64, disks: u32, cycles: u32) -> f64 {
    let hardware = Hardware {
        data_disks: disks,
        stripe_bytes: 1 << 40,
        data: Service::Constant { latency: Duration::ZERO, bytes_per_s: 1e9 },
        ..hardware(1, Discipline::Sharing)
    };
    let length = SECOND * (cycles / 2);
    let report = Machine::new(hardware, 11).run(move || {
        let end = clock::now() + length;
        let tasks = (0..clients).map(|client| {
            let mut random = SplitMix64::new(SplitMix64::mix(u64::from(client)));
            let body = move || {
                let mut done = 0_u32;
                while clock::now() < end {
                    thread::sleep(Duration::from_secs_f64(think_s * random.next_exponential()));
                    thread::work_for(Duration::from_secs_f64(0.5 * random.next_exponential()));
                    let disk = random.next_below(disks);
                    let time = Duration::from_secs_f64(random.next_exponential());
                    let bytes = time.as_nanos().try_into().unwrap();
                    wait_for(Transfer::Data { offset: u64::from(disk) << 40, bytes });
                    done += 1;
                }
                done
            };
            thread::spawn("client", body).unwrap()
        });
        let tasks: Vec<_> = tasks.collect();
        tasks.into_iter().map(|task| task.join().unwrap()).sum::<u32>()
    });
    f64::from(report.unwrap().value) / length.as_secs_f64()
}

fn closed_networks(length: Length) {
    for (clients, think_s, disks) in [(1, 0.0, 2), (5, 1.0, 2), (20, 3.0, 3), (12, 0.0, 4)] {
        let demand_s = 1.0 / f64::from(disks);
        let stations = [Stations { count: 1, demand_s: 0.5 }, Stations { count: disks, demand_s }];
        let network = Network::new(&stations, think_s).unwrap();
        let wanted = network.at(Mpl::at_least_one(clients)).throughput_tps;
        let found = closed(clients, think_s, disks, length.jobs);
        let what = format!("closed, {clients} clients, {disks} disks, think time {think_s} s");
        assert_within(&what, found, wanted, length.error);
    }
}

#[test]
fn short_runs_are_near_the_formulas() {
    many_processors_with_exponential_work(SHORT);
    one_processor_with_any_work(SHORT);
    high_priority(SHORT);
    closed_networks(SHORT);
}

#[test]
#[ignore = "soak: long runs, within one per cent of the formulas"]
fn long_runs_are_within_one_per_cent_of_the_formulas() {
    many_processors_with_exponential_work(LONG);
    one_processor_with_any_work(LONG);
    high_priority(LONG);
    closed_networks(LONG);
}

/// When each job ends: one event after another, with all that is left of every job.
struct Naive {
    processors: f64,
    /// Number, what is left, and priority of the jobs that are there, in the order of arrival.
    jobs: Vec<(usize, f64, bool)>,
    is_shared: bool,
    now: f64,
    ends: Vec<f64>,
}

impl Naive {
    /// Returns what each job has of a processor now.
    fn shares(&self) -> Vec<f64> {
        let mut left = self.processors;
        let mut shares = vec![0.0; self.jobs.len()];
        for class in [true, false] {
            let members: Vec<usize> =
                (0..self.jobs.len()).filter(|job| self.jobs[*job].2 == class).collect();
            let equal = (left / members.len() as f64).min(1.0);
            for member in members {
                shares[member] = if self.is_shared { equal } else { left.min(1.0) };
                left -= shares[member];
            }
        }
        shares
    }

    /// Lets the jobs work until the moment.
    fn go_to(&mut self, moment: f64) {
        loop {
            let shares = self.shares();
            let ends = self.jobs.iter().zip(&shares).filter(|(_, share)| **share > 0.0);
            let next = ends.map(|((_, left, _), share)| self.now + left / share);
            let next = next.fold(f64::INFINITY, f64::min);
            let until = next.min(moment);
            for ((_, left, _), share) in self.jobs.iter_mut().zip(&shares) {
                *left -= share * (until - self.now);
            }
            self.now = until;
            for (job, _, _) in self.jobs.extract_if(.., |(_, left, _)| *left < 1e-10) {
                self.ends[job] = until;
            }
            if next > moment || self.jobs.is_empty() {
                self.now = moment;
                return;
            }
        }
    }
}

/// The same jobs end at the same times as one event after another says, to some nanoseconds.
#[test]
fn each_job_ends_when_it_has_to() {
    for (seed, processors, is_shared) in
        [(1, 1, true), (2, 1, false), (3, 3, true), (4, 3, false), (5, 2, true), (6, 2, false)]
    {
        const JOBS: usize = 1_500;
        let mut random = SplitMix64::new(seed);
        let mut at = 0.0;
        let jobs: Vec<(f64, f64, bool)> = (0..JOBS)
            .map(|_| {
                at += 1.2 * random.next_exponential() / f64::from(processors);
                (at, 0.001 + random.next_exponential(), random.next_chance(0.3))
            })
            .collect();
        let mut naive = Naive {
            processors: f64::from(processors),
            jobs: Vec::new(),
            is_shared,
            now: 0.0,
            ends: vec![0.0; JOBS],
        };
        for (number, (at, demand, high)) in jobs.iter().enumerate() {
            naive.go_to(*at);
            naive.jobs.push((number, *demand, *high));
        }
        naive.go_to(1e9);

        let discipline = if is_shared { Discipline::Sharing } else { FOREVER };
        let report = Machine::new(hardware(processors, discipline), seed).run(move || {
            let began = clock::now();
            let tasks = jobs.into_iter().map(|(at, demand, high)| {
                let body = move || {
                    thread::sleep(Duration::from_secs_f64(at));
                    thread::set_priority(if high { Priority::High } else { Priority::Normal });
                    thread::work_for(Duration::from_secs_f64(demand));
                    (clock::now() - began).as_secs_f64()
                };
                thread::spawn("job", body).unwrap()
            });
            let tasks: Vec<_> = tasks.collect();
            tasks.into_iter().map(|task| task.join().unwrap()).collect::<Vec<f64>>()
        });
        let found = report.unwrap().value;
        for (number, (found, wanted)) in found.iter().zip(&naive.ends).enumerate() {
            let error = (found - wanted).abs();
            assert!(error < 1e-5, "seed {seed}, job {number}: {found} for {wanted}");
        }
    }
}
