//! What stands between the clients and the database, and holds the limit.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting};
use tidegate_gate::{Adjustment, Control};
use tidegate_runtime::{clock, processors};
use tidegate_subject::connection::Connector;
use tidegate_subject::database::{Clients, Database, Gate};
use tidegate_subject::embedded::auctions::Locking;
use tidegate_subject::embedded::{ClassPriorities, EngineDatabase, Service, Serving};
use tidegate_subject::url::Url;

use super::journal::EngineJournal;
use super::proxy::{Proxy, ProxyOptions};
use super::{CONNECT_TIMEOUT, MAX_CLIENTS, RigError};
use crate::load::{Connecting, LoadTarget};

/// The highest limit that is asked for, here and by default in the proxy.
pub(crate) const LIMIT_MAX: u32 = 1000;
const _: () = assert!(MAX_CLIENTS <= LIMIT_MAX as usize);

/// How a limit is found, and what of it is written down.
pub(crate) struct FrontOptions<'a> {
    /// The `tidegate` program, for the proxy.
    pub(crate) tidegate: &'a Path,
    /// Where the proxy's log goes, after what is there.
    pub(crate) log: PathBuf,
    pub(crate) log_level: &'static str,
    /// Where the journal goes, if anywhere; what was there before is lost.
    pub(crate) journal: Option<PathBuf>,
    pub(crate) control: Algorithm,
    /// The limit to begin with; `None` is the algorithm's own choice, or the proxy's.
    pub(crate) start: Option<Mpl>,
    /// Where the high class of a load goes first; elsewhere than at the gate only in the embedded
    /// engine.
    pub(crate) priorities: ClassPriorities,
    pub(crate) seed: u64,
    /// Ways to lock of which one is chosen beside the limit, in the XML store only.
    pub(crate) arms: Vec<Locking>,
}

/// A way to the database. It ends when it is dropped.
pub(crate) struct Front<'d> {
    route: Route<'d>,
    /// The journal counts seconds from here.
    started: Instant,
}

enum Route<'d> {
    /// To a server at this URL, with nobody in between.
    Straight(String),
    /// Each by a connection of its own on a thread of its own.
    Threads(Arc<dyn Connector>),
    Proxy(Proxy),
    Engine(Service<'d>, Option<EngineJournal>),
}

impl<'d> Front<'d> {
    /// Begins a way without a limit: as many transactions at once as there are clients.
    pub(crate) fn direct(database: &'d dyn Database, clients: usize) -> Result<Self, RigError> {
        let started = clock::now();
        let route = match database.clients() {
            Clients::Server(url) => Route::Straight(url.with_password()),
            Clients::Threads(connector) => Route::Threads(connector),
            Clients::Engine(store) => {
                let clients = Mpl::at_least_one(number_of(clients));
                let control = Algorithm::Fixed(clients);
                let bounds = Bounds::new(Mpl::ONE, clients)?;
                let priorities = ClassPriorities::default();
                let setting = setting(control, None, bounds);
                let gate = EngineGate { control, setting, arms: Vec::new(), priorities, seed: 0 };
                serve(store, gate, None)?
            }
        };
        Ok(Front { route, started })
    }

    /// Begins a way with a limit.
    pub(crate) fn limited(
        database: &'d dyn Database,
        options: FrontOptions<'_>,
    ) -> Result<Self, RigError> {
        let started = clock::now();
        let dbms = database.dbms();
        let route = match database.clients() {
            Clients::Server(url) if dbms.gate == Gate::Proxy => proxy(&url, options)?,
            Clients::Engine(store) => {
                let FrontOptions { control, start, seed, journal, priorities, arms, .. } = options;
                let bounds = Bounds::new(Mpl::ONE, Mpl::at_least_one(LIMIT_MAX))?;
                let setting = setting(control, start, bounds);
                let controlled = Control {
                    algorithm: control,
                    is_observing: false,
                    keep: None,
                    arms: NonZeroUsize::new(arms.len()),
                    setting,
                };
                let begin = |path: PathBuf| EngineJournal::begin(&path, &controlled, seed, started);
                let journal = journal.map(begin).transpose()?;
                serve(store, EngineGate { control, setting, arms, priorities, seed }, journal)?
            }
            Clients::Server(_) | Clients::Threads(_) => return Err(RigError::NoGate(dbms.name)),
        };
        Ok(Front { route, started })
    }
}

impl FrontOptions<'_> {
    /// The same as arguments of `tidegate proxy`.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("--log-level={}", self.log_level),
            format!("--seed={}", self.seed),
            format!("--control={}", self.control),
        ];
        if let Some(start) = self.start {
            arguments.push(format!("--start-mpl={start}"));
        }
        if self.control.needs_locks() {
            arguments.push("--watch".to_owned());
        }
        arguments
    }
}

fn proxy<'d>(server: &Url, options: FrontOptions<'_>) -> Result<Route<'d>, RigError> {
    let arguments = options.arguments();
    let FrontOptions { tidegate, log, journal, priorities, .. } = options;
    let has_priority = priorities.gate;
    let options = ProxyOptions { tidegate, log, journal, has_priority, arguments };
    Ok(Route::Proxy(Proxy::start(server, options)?))
}

/// A number of clients or processors, which are far fewer than 2^32.
fn number_of(things: usize) -> u32 {
    u32::try_from(things).expect("clients and processors are far fewer than 2^32")
}

/// The embedded engine's server, as it is told; the same as a proxy on this machine is by default.
fn setting(control: Algorithm, start: Option<Mpl>, bounds: Bounds) -> Setting {
    let cpus = number_of(processors());
    let resources = Resources { cpus, disks: 1 };
    let start =
        start.or_else(|| control.own_start(resources)).unwrap_or(Mpl::at_least_one(cpus * 2));
    Setting { bounds, start, resources }
}

/// What the embedded engine's server is told of its gate.
struct EngineGate {
    control: Algorithm,
    setting: Setting,
    arms: Vec<Locking>,
    priorities: ClassPriorities,
    seed: u64,
}

fn serve(
    store: &dyn EngineDatabase,
    gate: EngineGate,
    journal: Option<EngineJournal>,
) -> Result<Route<'_>, RigError> {
    let EngineGate { control: algorithm, setting, arms, priorities, seed } = gate;
    let writer = journal.clone();
    let observer = move |adjustment: &Adjustment| {
        if let Some(journal) = &writer {
            journal.add(adjustment);
        }
    };
    let observer = Box::new(observer);
    let setting = &setting;
    let service = store.serve(Serving { algorithm, setting, arms, priorities, seed, observer })?;
    Ok(Route::Engine(service, journal))
}

impl Front<'_> {
    pub(crate) fn target(&self) -> LoadTarget<'_> {
        self.target_by(Connecting::within(CONNECT_TIMEOUT))
    }

    /// The same, and how they connect.
    pub(crate) fn target_by(&self, connecting: Connecting) -> LoadTarget<'_> {
        let at = |url: &String| LoadTarget::Url { url: url.clone(), connecting };
        match &self.route {
            Route::Straight(url) => at(url),
            Route::Threads(connector) => {
                LoadTarget::Threads { connector: Arc::clone(connector), connecting }
            }
            Route::Proxy(proxy) => at(&proxy.url),
            Route::Engine(service, _) => LoadTarget::Embedded(service),
        }
    }

    /// Time since the start, as the journal counts it.
    pub(crate) fn age(&self) -> Duration {
        clock::now() - self.started
    }

    /// CPU seconds used so far, where that can be told apart from the database's.
    pub(crate) fn cpu_seconds(&self) -> Result<Option<f64>, RigError> {
        match &self.route {
            Route::Proxy(proxy) => proxy.cpu_seconds().map(Some),
            Route::Straight(_) | Route::Threads(_) | Route::Engine(..) => Ok(None),
        }
    }

    pub(crate) fn stop(self) -> Result<(), RigError> {
        match self.route {
            Route::Straight(_) | Route::Threads(_) | Route::Engine(_, None) => Ok(()),
            Route::Proxy(proxy) => proxy.stop(),
            Route::Engine(service, Some(journal)) => {
                // It may still be writing.
                drop(service);
                journal.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_is_told_what_the_engine_is() {
        let options = FrontOptions {
            tidegate: Path::new("tidegate"),
            log: PathBuf::new(),
            log_level: "warn",
            journal: None,
            control: Algorithm::Vegas,
            start: Some(Mpl::at_least_one(64)),
            priorities: ClassPriorities::default(),
            seed: 7,
            arms: Vec::new(),
        };
        let expected = ["--log-level=warn", "--seed=7", "--control=vegas", "--start-mpl=64"];
        assert_eq!(options.arguments(), expected);
        let bounds = Bounds::new(Mpl::ONE, Mpl::at_least_one(LIMIT_MAX)).unwrap();
        assert_eq!(setting(options.control, options.start, bounds).start.get(), 64);
        let own = FrontOptions { start: None, ..options };
        assert_eq!(own.arguments(), expected[..3]);
        assert!(setting(own.control, None, bounds).start.get() >= 2);
    }
}
