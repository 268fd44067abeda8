//! The class of a request: at the gate, in lock queues and on processors, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting};
use tidegate_engine::disk::{Disk, Faults, SimulatedDisk};
use tidegate_engine::lock::Priorities;
use tidegate_engine::wal::LogId;
use tidegate_engine::{Store, StoreOptions, TxnOptions};
use tidegate_engine_server::{ClassPriorities, Procedure, Server, ServerOptions};
use tidegate_gate::Class;
use tidegate_runtime::sync::{Receiver, Sender, channel};
use tidegate_runtime::{Hardware, Machine, clock, thread};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// A server of a store on a machine in virtual time with one processor, and where its answers come.
struct Bench {
    server: Server,
    store: Arc<Store>,
    answered: Sender<Answered>,
    answers: Receiver<Answered>,
}

/// Whose answer came, and when.
type Answered = (&'static str, Instant);

/// Returns a bench with three procedures. `write` writes the keys of its argument, a byte each, and
/// sleeps for a second after one in a small letter. `work` takes 10 ms of a processor, and `panic`
/// as much and panics.
fn bench(priorities: ClassPriorities, limit: u32) -> Bench {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new(1, Faults::default()));
    let mut options = StoreOptions::default();
    // Which does nothing as long as all transactions have the same priority.
    options.locks.priorities = Priorities::PreemptOnWait;
    let store = Arc::new(Store::create(&disk, LogId(1), &options).unwrap());
    let tree = store.create_tree("keys").unwrap();
    let mut fill = store.begin(TxnOptions::default());
    for key in [b"A", b"B"] {
        fill.put(&tree, key, b"").unwrap();
    }
    fill.commit().unwrap();
    let write: Procedure = Box::new(move |transaction, keys| {
        for key in keys {
            transaction.put(&tree, &[key.to_ascii_uppercase()], b"")?;
            if key.is_ascii_lowercase() {
                thread::sleep(SECOND);
            }
        }
        Ok(Vec::new())
    });
    let work: Procedure = Box::new(|_, _| {
        thread::work_for(10 * MS);
        Ok(Vec::new())
    });
    let panic: Procedure = Box::new(|_, _| {
        thread::work_for(10 * MS);
        panic!("on purpose")
    });
    let procedures = [("write", write), ("work", work), ("panic", panic)];
    let procedures = procedures.map(|(name, code)| (name.to_owned(), code));
    let limit = Mpl::at_least_one(limit);
    let setting = Setting {
        bounds: Bounds::new(Mpl::ONE, Mpl::at_least_one(100)).unwrap(),
        start: limit,
        resources: Resources { cpus: 1, disks: 1 },
    };
    let controller = Algorithm::Fixed(limit).controller(&setting);
    let options = ServerOptions { priorities, ..ServerOptions::default() };
    let observer = Box::new(|_: &_| ());
    let server =
        Server::start(Arc::clone(&store), procedures, controller, options, observer).unwrap();
    let (answered, answers) = channel();
    Bench { server, store, answered, answers }
}

impl Bench {
    /// Asks for a transaction; its answer has this name.
    fn submit(&self, name: &'static str, procedure: &str, keys: &str, class: Class) {
        let answered = self.answered.clone();
        self.server.submit(procedure, keys.as_bytes(), class, move |_| {
            answered.send((name, clock::now())).unwrap();
        });
    }

    /// Returns the next answers: whose, and how many milliseconds after a moment.
    fn answers(&self, since: Instant, count: usize) -> Vec<(&'static str, u128)> {
        let next = |_| {
            let (name, at) = self.answers.recv().unwrap();
            (name, (at - since).as_millis())
        };
        (0..count).map(next).collect()
    }
}

/// Runs `body` on a machine in virtual time with one processor.
fn on_a_machine<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    Machine::new(Hardware::with_processors(1), 1).run(body).unwrap().value
}

/// A holds X(1) and sleeps. B holds X(2) and waits for A. Whoever comes last waits for B.
fn order_of_three(locks: bool, last: Class) -> (Vec<&'static str>, u64) {
    on_a_machine(move || {
        let bench = bench(ClassPriorities { locks, ..ClassPriorities::default() }, 3);
        for (name, keys, class) in
            [("A", "a", Class::Normal), ("B", "BA", Class::Normal), ("C", "B", last)]
        {
            bench.submit(name, "write", keys, class);
            thread::sleep(100 * MS);
        }
        let order = bench.answers(clock::now(), 3).into_iter().map(|(name, _)| name).collect();
        (order, bench.store.locks().statistics().preemptions)
    })
}

#[test]
fn the_high_class_preempts_a_holder_that_waits_if_it_is_to() {
    assert_eq!(order_of_three(true, Class::High), (vec!["C", "A", "B"], 1));
    assert_eq!(order_of_three(false, Class::High), (vec!["A", "B", "C"], 0));
    assert_eq!(order_of_three(true, Class::Normal), (vec!["A", "B", "C"], 0));
}

/// N comes first and H 2 ms later; each takes 10 ms of the only processor.
fn times_of_two(processors: bool, class: Class) -> Vec<(&'static str, u128)> {
    on_a_machine(move || {
        let bench = bench(ClassPriorities { processors, ..ClassPriorities::default() }, 2);
        bench.submit("N", "work", "", Class::Normal);
        thread::sleep(2 * MS);
        let came = clock::now();
        bench.submit("H", "work", "", class);
        bench.answers(came, 2)
    })
}

#[test]
fn the_high_class_has_the_processor_first_if_it_is_to() {
    // From the arrival of H on: 10 ms of its own, then the other 8.
    assert_eq!(times_of_two(true, Class::High), [("H", 10), ("N", 18)]);
    // They share: both have had 8 ms after 16, and then H has 2 left.
    assert_eq!(times_of_two(false, Class::High), [("N", 16), ("H", 18)]);
    assert_eq!(times_of_two(true, Class::Normal), [("N", 16), ("H", 18)]);
}

/// The worker of a request of the high class, whatever became of it, has its old priority after it.
#[test]
fn a_worker_has_no_priority_left_from_the_request_before() {
    for procedure in ["work", "panic"] {
        let times = on_a_machine(move || {
            let bench =
                bench(ClassPriorities { processors: true, ..ClassPriorities::default() }, 1);
            let began = clock::now();
            bench.submit("H", procedure, "", Class::High);
            bench.submit("N", "work", "", Class::Normal);
            let first = bench.answers(began, 1);
            assert_eq!(bench.server.workers(), 1, "N has the worker that H had");
            // N shares the processor with this task.
            thread::work_for(20 * MS);
            [first, bench.answers(began, 1)].concat()
        });
        assert_eq!(times, [("H", 10), ("N", 30)], "{procedure}");
    }
}

/// A runs, B and C wait for its permit; C is of the high class.
#[test]
fn the_high_class_passes_the_gate_first_if_it_is_to() {
    for (gate, expected) in [(true, ["A", "C", "B"]), (false, ["A", "B", "C"])] {
        let order = on_a_machine(move || {
            let bench = bench(ClassPriorities { gate, ..ClassPriorities::default() }, 1);
            bench.submit("A", "work", "", Class::Normal);
            bench.submit("B", "work", "", Class::Normal);
            bench.submit("C", "work", "", Class::High);
            bench.answers(clock::now(), 3).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        });
        assert_eq!(order, expected);
    }
}
