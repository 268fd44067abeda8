//! The server on a machine that draws its schedules: its workers, its queue and its governor.
//!
//! In every schedule each request is answered once, never more run at once than the limit says, and
//! a server that is stopped while requests wait answers them too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting};
use tidegate_engine::disk::{Disk, MemoryDisk};
use tidegate_engine::lock::LockSettings;
use tidegate_engine::wal::{LogId, LogSettings};
use tidegate_engine::{PageSize, Store, StoreOptions};
use tidegate_engine_server::{Answer, CallError, Procedure, Server, ServerOptions};
use tidegate_gate::Class;
use tidegate_runtime::{entropy, explore, run_all, thread};

fn store() -> Arc<Store> {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let locks = LockSettings { buckets: 2, ..LockSettings::default() };
    let options = StoreOptions::default()
        .background(false)
        .locks(locks)
        .page_size(PageSize::new(4_096).expect("a size"))
        .buffer_bytes(64 * 4_096)
        .buffer_bytes_max(64 * 4_096)
        .log(LogSettings { segment_bytes: 64 << 10, ..LogSettings::default() })
        .io_writers(1);
    Arc::new(Store::create(&disk, LogId(1), &options).expect("an empty disk"))
}

fn server(limit: u32, code: Procedure, options: ServerOptions) -> Server {
    let limit = Mpl::at_least_one(limit);
    let setting = Setting {
        bounds: Bounds::new(Mpl::ONE, Mpl::at_least_one(4)).expect("in order"),
        start: limit,
        resources: Resources { cpus: 2, disks: 1 },
    };
    let controller = Algorithm::Fixed(limit).controller(&setting);
    let procedures = [("run".to_owned(), code)];
    let observer = Box::new(|_: &_| ());
    Server::start(store(), procedures, controller, options, observer).expect("a task")
}

/// Counts how many run at once.
#[derive(Default)]
struct Running {
    now: AtomicU32,
    most: AtomicU32,
}

impl Running {
    fn procedure(self: &Arc<Running>) -> Procedure {
        let running = Arc::clone(self);
        Box::new(move |_, _| {
            let now = running.now.fetch_add(1, Ordering::SeqCst) + 1;
            running.most.fetch_max(now, Ordering::SeqCst);
            thread::point();
            running.now.fetch_sub(1, Ordering::SeqCst);
            Ok(Vec::new())
        })
    }
}

/// Clients that call, with room in the queue for one, and a time-out there that is short.
fn calls() {
    let limit = 1 + u32::try_from(entropy() % 2).expect("small");
    let running = Arc::<Running>::default();
    let options = ServerOptions {
        mpl_max: Mpl::at_least_one(limit),
        waiting_max: 1 + usize::from(entropy() & 1 > 0),
        queue_timeout: (entropy() & 1 > 0).then_some(Duration::from_millis(50)),
        ..ServerOptions::default()
    };
    let server = Arc::new(server(limit, running.procedure(), options));
    let bodies = (0..3).map(|_| {
        let server = Arc::clone(&server);
        move || {
            for _ in 0..2 {
                match server.call("run", b"", Class::Normal) {
                    Ok(_) | Err(CallError::Full(_) | CallError::Expired) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    run_all(bodies.collect::<Vec<_>>());
    let most = running.most.load(Ordering::SeqCst);
    assert!(most <= limit, "{most} at once, {limit} allowed");
    assert_eq!((server.gate().outstanding, server.gate().waiting), (0, 0), "left behind");
    assert!(server.workers() <= limit as usize, "no more workers than permits");
}

/// The server is stopped while requests run and wait, and after a while in which it was idle.
fn stops() {
    let running = Arc::<Running>::default();
    let options = ServerOptions { mpl_max: Mpl::ONE, ..ServerOptions::default() };
    let server = Arc::new(server(1, running.procedure(), options));
    if entropy() & 1 > 0 {
        server.call("run", b"", Class::Normal).expect("it runs");
        // As long as an idle worker stays.
        thread::sleep(Duration::from_secs(5));
    }
    let answers: Arc<[AtomicU32; 4]> = Arc::default();
    let bodies = (0..2).map(|client| {
        let (server, answers) = (Arc::clone(&server), Arc::clone(&answers));
        move || {
            for number in [2 * client, 2 * client + 1] {
                let answers = Arc::clone(&answers);
                let count = move |answer: Answer| {
                    assert!(matches!(answer, Ok(_) | Err(CallError::Stopped)), "{answer:?}");
                    answers[number].fetch_add(1, Ordering::SeqCst);
                };
                server.submit("run", b"", Class::Normal, count);
            }
        }
    });
    run_all(bodies.collect::<Vec<_>>());
    drop(Arc::into_inner(server).expect("the clients have ended"));
    for answer in &*answers {
        assert_eq!(answer.load(Ordering::SeqCst), 1, "each request is answered once");
    }
    assert!(running.most.load(Ordering::SeqCst) <= 1, "one at a time");
}

/// A worker that was idle for as long as it may be, and a request that comes in that moment.
fn idle_workers() {
    let options = ServerOptions { mpl_max: Mpl::ONE, ..ServerOptions::default() };
    let server = server(1, Arc::<Running>::default().procedure(), options);
    for _ in 0..4 {
        server.call("run", b"", Class::Normal).expect("it runs");
        thread::sleep(Duration::from_secs(5));
    }
}

const PROGRAMS: [(&str, fn()); 3] =
    [("server, idle workers", idle_workers), ("server, calls", calls), ("server, stops", stops)];

#[test]
fn each_request_is_answered_once_in_every_drawn_schedule() {
    for (name, program) in PROGRAMS {
        println!("{}", explore(name, 30, program));
    }
}

#[test]
#[ignore = "soak: 10,000 schedules of each program"]
fn each_request_is_answered_once_in_many_drawn_schedules() {
    for (name, program) in PROGRAMS {
        println!("{}", explore(name, 10_000, program));
    }
}
