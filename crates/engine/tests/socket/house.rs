//! A server with procedures to test with, and clients of it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting};
use tidegate_engine::disk::{Disk, Faults, SimulatedDisk};
use tidegate_engine::lock::LockError;
use tidegate_engine::wal::LogId;
use tidegate_engine::{
    Client, ClientError, ClientOptions, ConnectionEnd, Endpoint, FailureKind, Listener,
    ListenerOptions, Procedure, Server, ServerOptions, Store, StoreOptions, TxnError,
};
use tidegate_gate::Class;

use crate::counters::add;

/// The longest wait of a test that is all right.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Held by every test, and alone by the one that counts threads.
pub(crate) static PROCESS: RwLock<()> = RwLock::new(());

pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    PROCESS.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Shut until it is opened for good.
#[derive(Default)]
pub(crate) struct Latch {
    is_open: Mutex<bool>,
    bell: Condvar,
}

impl Latch {
    pub(crate) fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.bell.notify_all();
    }

    pub(crate) fn pass(&self) {
        let shut = self.is_open.lock().unwrap();
        drop(self.bell.wait_while(shut, |is_open| !*is_open).unwrap());
    }
}

/// A server with procedures to test with.
pub(crate) struct House {
    pub(crate) server: Arc<Server>,
    pub(crate) latch: Arc<Latch>,
    /// How often `long` was run.
    pub(crate) runs: Arc<AtomicU64>,
    directory: TempDir,
}

impl Drop for House {
    /// Lets calls that are held go, or the server would wait for them for ever.
    fn drop(&mut self) {
        self.latch.open();
    }
}

fn boxed(code: impl Fn(&[u8]) -> Result<Vec<u8>, TxnError> + Send + Sync + 'static) -> Procedure {
    Box::new(move |_, arguments| code(arguments))
}

impl House {
    /// A house where `limit` transactions run at once.
    pub(crate) fn new(limit: u32, options: ServerOptions) -> House {
        let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new(1, Faults::default()));
        let store = Store::create(&disk, LogId(1), &StoreOptions::default()).unwrap();
        let store = Arc::new(store);
        let (latch, runs) = (Arc::new(Latch::default()), Arc::new(AtomicU64::new(0)));
        let (held, counted) = (Arc::clone(&latch), Arc::clone(&runs));
        let procedures: Vec<(&str, Procedure)> = vec![
            ("add", add(&store)),
            ("echo", boxed(|arguments| Ok(arguments.to_vec()))),
            ("panic", boxed(|_| panic!("on purpose"))),
            ("conflict", boxed(|_| Err(TxnError::Conflict(LockError::Deadlock)))),
            (
                "hold",
                boxed(move |arguments| {
                    held.pass();
                    Ok(arguments.to_vec())
                }),
            ),
            (
                "long",
                boxed(move |arguments| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let len = u32::from_le_bytes(arguments.try_into().unwrap());
                    Ok(vec![7; usize::try_from(len).unwrap()])
                }),
            ),
        ];
        let mpl = Mpl::at_least_one(limit);
        let setting = Setting {
            bounds: Bounds::new(Mpl::ONE, Mpl::at_least_one(100)).unwrap(),
            start: mpl,
            resources: Resources { cpus: 2, disks: 1 },
        };
        let controller = Algorithm::Fixed(mpl).controller(&setting);
        let procedures = procedures.into_iter().map(|(name, code)| (name.to_owned(), code));
        // No more than the limit: a call that is held for long does not stop counting.
        let options = ServerOptions { mpl_max: mpl, ..options };
        let server =
            Server::start(store, procedures, controller, options, Box::new(|_| ())).unwrap();
        House { server: Arc::new(server), latch, runs, directory: TempDir::new().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub(crate) fn unix(&self) -> Endpoint {
        Endpoint::Unix(self.path())
    }

    pub(crate) fn listen_on(&self, endpoint: &Endpoint, options: ListenerOptions) -> Listener {
        Listener::start(Arc::clone(&self.server), endpoint, options).unwrap()
    }

    pub(crate) fn listen(&self, options: ListenerOptions) -> Listener {
        self.listen_on(&self.unix(), options)
    }

    pub(crate) fn count(&self, key: &[u8]) -> u64 {
        let next = self.server.call("add", key, Class::Normal).unwrap();
        u64::from_le_bytes(next.try_into().unwrap()) - 1
    }
}

pub(crate) fn any_port() -> Endpoint {
    Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
}

pub(crate) fn connect(listener: &Listener) -> Client {
    Client::connect(listener.endpoint(), ClientOptions::default()).unwrap()
}

pub(crate) fn failure(result: Result<Vec<u8>, ClientError>) -> FailureKind {
    match result {
        Err(ClientError::Failed(failure)) => failure.kind,
        other => panic!("{other:?}"),
    }
}

/// Why there is no connection any more.
pub(crate) fn end(client: &mut Client) -> ConnectionEnd {
    loop {
        match client.call("echo", b"", Class::Normal) {
            Err(ClientError::Ended(end)) => return end,
            Ok(_) => thread::sleep(Duration::from_millis(1)),
            other => panic!("{other:?}"),
        }
    }
}
