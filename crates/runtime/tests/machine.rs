//! What runs on a machine in virtual time behaves as on the operating system, takes the time that
//! it should, and is the same at each run.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test's helpers fail the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tidegate_random::SplitMix64;
use tidegate_runtime::disk::{Transfer, wait_for};
use tidegate_runtime::sync::{Condvar, LongMutex, Mutex, RecvTimeoutError, RwLock, channel};
use tidegate_runtime::work::{self, Costs, Operation};
use tidegate_runtime::{Hardware, Machine, MachineError, Report, Service, clock, thread};

const SECOND: Duration = Duration::from_secs(1);

fn run<T: Send + 'static>(main: impl FnOnce() -> T + Send + 'static) -> Report<T> {
    Machine::new(Hardware::with_processors(2), 1).run(main).unwrap()
}

/// Runs `main` on a thread and on a machine; it says itself what is expected.
fn on_both(main: impl Fn() + Clone + Send + 'static) {
    main();
    run(main.clone());
    for seed in 0..50 {
        let strategy = tidegate_runtime::Strategy::Random { seed };
        Machine::schedules(strategy).run(main.clone()).unwrap();
    }
}

#[test]
fn sleeping_takes_virtual_time_only() {
    let began = Instant::now();
    let report = run(|| {
        let year = 365 * 24 * 3600 * SECOND;
        let sleepers: Vec<_> = (1..=3)
            .map(|years| thread::spawn("sleeper", move || thread::sleep(years * year)).unwrap())
            .collect();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
    assert_eq!(report.elapsed, 3 * 365 * 24 * 3600 * SECOND);
    assert!(began.elapsed() < 3600 * SECOND);
}

#[test]
fn a_parked_task_is_woken_once_for_an_unpark() {
    on_both(|| {
        let flag = Arc::new(AtomicU32::new(0));
        let theirs = Arc::clone(&flag);
        let task = thread::spawn("parked", move || {
            while theirs.load(Ordering::Acquire) == 0 {
                thread::park();
            }
        });
        let task = task.unwrap();
        flag.store(1, Ordering::Release);
        task.task().unpark();
        task.join().unwrap();
        // An unpark that came before is not lost.
        thread::current().unpark();
        thread::park();
    });
}

#[test]
fn a_time_out_ends_a_wait() {
    let report = run(|| {
        let began = clock::now();
        thread::park_until(began + 5 * SECOND);
        let (sender, receiver) = channel::<u8>();
        assert_eq!(receiver.recv_timeout(7 * SECOND), Err(RecvTimeoutError::Timeout));
        drop(sender);
        assert_eq!(receiver.recv_timeout(SECOND), Err(RecvTimeoutError::Disconnected));
        clock::now() - began
    });
    assert_eq!(report.value, 12 * SECOND);
}

#[test]
fn locks_exclude_and_conditions_are_seen() {
    on_both(|| {
        let shared = Arc::new((LongMutex::new(Vec::new()), Condvar::new(), RwLock::new(0)));
        let tasks: Vec<_> = (0..4)
            .map(|number| {
                let shared = Arc::clone(&shared);
                let body = move || {
                    let (list, changed, sum) = &*shared;
                    let mut list = list.lock();
                    // Held across a wait: nobody else comes between the two.
                    let before = list.len();
                    thread::sleep(Duration::from_micros(10));
                    assert_eq!(list.len(), before);
                    list.push(number);
                    drop(list);
                    *sum.write() += number;
                    changed.notify_all();
                };
                thread::spawn("pusher", body).unwrap()
            })
            .collect();
        let (list, changed, sum) = &*shared;
        let mut list = list.lock();
        while list.len() < 4 {
            changed.wait(&mut list);
        }
        drop(list);
        for task in tasks {
            task.join().unwrap();
        }
        assert_eq!(*sum.read(), 6);
    });
}

#[test]
fn a_panic_reaches_the_task_that_joins() {
    on_both(|| {
        let task = thread::spawn("fails", || panic!("as planned")).unwrap();
        let panic = task.join().unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "as planned");
    });
    let main = std::panic::catch_unwind(|| run(|| panic!("of the first task")));
    assert_eq!(*main.unwrap_err().downcast::<&str>().unwrap(), "of the first task");
}

#[test]
fn a_deadlock_is_reported_with_its_tasks() {
    let machine = Machine::new(Hardware::with_processors(1), 1);
    let result = machine.run(|| {
        let locks = Arc::new((LongMutex::new(()), LongMutex::new(())));
        let theirs = Arc::clone(&locks);
        let other = thread::spawn("other", move || {
            let _second = theirs.1.lock();
            thread::sleep(SECOND);
            let _first = theirs.0.lock();
        });
        let _first = locks.0.lock();
        thread::sleep(SECOND);
        let _second = locks.1.lock();
        other.unwrap().join().unwrap();
    });
    let error = result.unwrap_err();
    assert!(matches!(&error, MachineError::Stalled { elapsed, .. } if *elapsed == SECOND));
    let text = error.to_string();
    assert!(text.contains("0 `main` waits for a lock"), "{text}");
    assert!(text.contains("1 `other` waits for a lock"), "{text}");
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "holds a lock that is not for waits")]
fn a_wait_with_a_short_lock_is_refused() {
    run(|| {
        let lock = Mutex::new(());
        let guard = lock.lock();
        thread::sleep(SECOND);
        drop(guard);
    });
}

#[test]
fn counted_work_is_paid_on_the_processors() {
    let mut costs = Costs::default();
    costs.0[Operation::Row as usize] = 1_000.0;
    costs.0[Operation::LogByte as usize] = 0.5;
    let machine = Machine::new(Hardware { costs, ..Hardware::with_processors(2) }, 1);
    let report = machine.run(|| {
        let workers = (0..4).map(|_| {
            let body = || {
                for _ in 0..1_000 {
                    work::count(Operation::Row, 1);
                    work::count(Operation::LogByte, 2_000);
                    thread::settle();
                }
            };
            thread::spawn("worker", body).unwrap()
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.join().unwrap();
        }
    });
    let report = report.unwrap();
    // Four workers with 2 ms each on two processors.
    assert_eq!(report.elapsed, Duration::from_millis(4));
    assert_eq!(report.usage.processors, Duration::from_millis(8));
    assert_eq!(report.usage.counts.of(Operation::Row), 4_000);
}

#[test]
fn disks_work_side_by_side_and_each_in_order() {
    let time = |disks: u32| {
        let hardware = Hardware {
            data_disks: disks,
            stripe_bytes: 8_192,
            data: Service::Constant {
                latency: Duration::from_millis(8),
                bytes_per_s: f64::INFINITY,
            },
            log: Service::Constant { latency: Duration::from_millis(2), bytes_per_s: 1e6 },
            ..Hardware::with_processors(1)
        };
        let report = Machine::new(hardware, 1).run(|| {
            let readers: Vec<_> = (0..48)
                .map(|page| {
                    let read =
                        move || wait_for(Transfer::Data { offset: page * 8_192, bytes: 8_192 });
                    thread::spawn("reader", read).unwrap()
                })
                .collect();
            for reader in readers {
                reader.join().unwrap();
            }
            let began = clock::now();
            wait_for(Transfer::Log { bytes: 1_000 });
            assert_eq!(clock::now() - began, Duration::from_millis(3));
        });
        report.unwrap().elapsed
    };
    assert_eq!(time(1), Duration::from_millis(8 * 48 + 3));
    assert_eq!(time(4), Duration::from_millis(8 * 12 + 3));
    assert_eq!(time(48), Duration::from_millis(8 + 3));
}

/// A disk with an arm takes its mean time, and far less for what follows.
#[test]
fn a_rotating_disk_seeks_only_when_it_has_to() {
    let time = |step: u64| {
        let hardware = Hardware {
            data: Service::Rotating {
                seek_min: Duration::from_millis(1),
                seek_max: Duration::from_millis(9),
                revolution: Duration::from_millis(6),
                bytes_per_s: 1e8,
            },
            ..Hardware::with_processors(1)
        };
        let report = Machine::new(hardware, 1).run(move || {
            for page in 0..10_000 {
                wait_for(Transfer::Data { offset: page * step, bytes: 10_000 });
            }
        });
        report.unwrap().elapsed.as_secs_f64() / 10_000.0
    };
    assert!((time(20_000) - 0.0081).abs() < 0.0001, "{}", time(20_000));
    assert!((time(10_000) - 0.0001).abs() < 0.00001, "{}", time(10_000));
}

/// A program with every kind of wait, whose order is written down.
fn busy_program(seed: u64) -> Vec<(Duration, u32)> {
    let hardware = Hardware {
        data_disks: 3,
        data: Service::Rotating {
            seek_min: Duration::from_millis(1),
            seek_max: Duration::from_millis(9),
            revolution: Duration::from_millis(6),
            bytes_per_s: 1e8,
        },
        ..Hardware::with_processors(2)
    };
    let report = Machine::new(hardware, seed).run(move || {
        let journal = Arc::new(Mutex::new(Vec::new()));
        let hot = Arc::new(LongMutex::new(()));
        let began = clock::now();
        let tasks: Vec<_> = (0..10)
            .map(|number| {
                let (journal, hot) = (Arc::clone(&journal), Arc::clone(&hot));
                let mut random = SplitMix64::new(seed + u64::from(number));
                let body = move || {
                    for _ in 0..100 {
                        thread::work_for(Duration::from_secs_f64(0.01 * random.next_exponential()));
                        let guard = hot.lock();
                        let offset = random.next_bits() >> 30;
                        wait_for(Transfer::Data { offset, bytes: 8_192 });
                        drop(guard);
                        journal.lock().push((clock::now() - began, number));
                        thread::yield_now();
                    }
                };
                thread::spawn("busy", body).unwrap()
            })
            .collect();
        for task in tasks {
            task.join().unwrap();
        }
        std::mem::take(&mut *journal.lock())
    });
    report.unwrap().value
}

#[test]
fn the_same_seed_gives_the_same_run_beside_other_machines() {
    let first = busy_program(3);
    assert_eq!(first, busy_program(3));
    let beside: Vec<_> = (0..4).map(|_| std::thread::spawn(|| busy_program(3))).collect();
    for other in beside {
        assert_eq!(first, other.join().unwrap());
    }
    assert_ne!(first, busy_program(4));
}

#[test]
fn tasks_are_numbered_from_nought_on_each_machine() {
    for _ in 0..2 {
        let report = run(|| {
            let task = thread::spawn("second", thread::number).unwrap();
            (thread::number(), task.join().unwrap())
        });
        assert_eq!(report.value, (0, 1));
    }
}

/// Who looks while time stands still, and who works elsewhere, changes nothing for the others.
#[test]
fn looks_and_work_elsewhere_take_no_time_of_the_machine() {
    let costs = Costs([1e6; work::OPERATIONS]);
    let latency = Duration::from_millis(8);
    let data = Service::Constant { latency, bytes_per_s: f64::INFINITY };
    let hardware = Hardware { costs, data, ..Hardware::with_processors(1) };
    let transfer = || wait_for(Transfer::Data { offset: 0, bytes: 4_096 });
    let ends = |is_watched: bool| {
        let main = move || {
            let began = clock::now();
            let other = thread::spawn("other", move || {
                thread::work_elsewhere(true);
                for _ in 0..if is_watched { 50 } else { 0 } {
                    thread::sleep(Duration::from_millis(3));
                    work::count(Operation::Row, 7);
                    thread::stand_still(|| {
                        work::count(Operation::Row, 1_000);
                        thread::settle();
                        transfer();
                    });
                    thread::work_for(SECOND);
                }
            });
            let ends: Vec<_> = (0..20)
                .map(|_| {
                    work::count(Operation::Row, 5);
                    transfer();
                    clock::now() - began
                })
                .collect();
            other.unwrap().join().unwrap();
            (ends, clock::now() - began)
        };
        Machine::new(hardware.clone(), 1).run(main).unwrap()
    };
    let (alone, watched) = (ends(false), ends(true));
    assert_eq!(alone.value.0, watched.value.0);
    assert_eq!(alone.usage.processors, watched.usage.processors);
    assert_eq!(alone.usage.data_disks, watched.usage.data_disks);
    // A system call and five rows cost a millisecond each, then comes the disk.
    assert_eq!(alone.value.0[19], 20 * Duration::from_millis(6 + 8));
    // The other one only sleeps.
    assert_eq!(watched.value.1, alone.value.0[19].max(50 * Duration::from_millis(3)));
}

#[test]
#[should_panic(expected = "a task does not wait while time stands still")]
fn who_looks_does_not_wait() {
    run(|| thread::stand_still(|| thread::sleep(SECOND)));
}
