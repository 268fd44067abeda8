//! The PostgreSQL proxy: clients on one side, a database server on the other, a gate between.
//!
//! [`start`] takes a checked [`config::Config`] and returns a [`Running`] proxy. Inside there are
//!
//! - event loops (`worker`), each with clients and upstream connections of its own;
//! - one thread that runs the controllers (`control_thread`) and records their decisions
//!   ([`tidegate_gate::journal`]);
//! - one thread for each server whose sessions are watched (`watch`);
//! - one thread for each server that is asked for users (`auth_query`), and one that finds the
//!   names of users of the operating system (`system_users`), where they log in;
//! - one thread for the page, `/status.json`, `/metrics`, `/healthz` and `/readyz` (`admin`);
//! - one thread that gives signs of life, if the service manager wants them (`watchdog`).
//!
//! The protocol's bookkeeping is apart from the sockets: `session` and `replies` for transactions,
//! `login`, `scram` and `handshake` for both kinds of login.

mod accounts;
mod admin;
mod auth_query;
mod cancel_key;
mod capacity;
mod check;
mod client;
mod commands;
pub mod config;
pub mod config_file;
mod config_listing;
mod console;
mod control_thread;
mod descriptors;
#[cfg(test)]
mod documented;
mod handshake;
pub mod hba;
mod health;
mod hosts;
mod inventory;
mod log_limit;
mod login;
mod mailbox;
pub mod metrics;
mod net;
pub mod notify;
mod peers;
pub mod pgbouncer;
mod reloaded;
mod replication;
mod replies;
pub mod scram;
mod session;
mod session_state;
mod settings;
#[cfg(test)]
mod settings_reference;
mod shared;
mod slots;
mod statements;
pub mod status;
mod switches;
mod system_users;
mod timeouts;
mod tls;
mod traffic;
mod upstream;
mod upstream_url;
pub mod users;
mod watch;
mod watchdog;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thiserror::Error;
use tidegate_gate::journal::Journal;
use tidegate_gate::{ClassGoal, Gate, Limits};

use accounts::Accounts;
pub use admin::AdminError;
use admin::{AdminSocket, AdminToken};
use auth_query::LookUpThread;
pub use check::{Findings, check};
use commands::Commands;
use config::{ClientAuthentication, Config, ListenAddress, ServerAddress, ServerHosts, SslMode};
pub use config_listing::settings_in_force;
use console::ConsoleState;
pub use console::ShutdownMode;
use control_thread::{ControlThread, ControlledServer};
pub use health::ThreadFailure;
use mailbox::{Mailbox, Message};
use metrics::{CountedConnections, Decisions, MetricsSource, ServerMetrics, WorkerCounters};
use net::Listener;
use reloaded::Reloaded;
use shared::{Server, Shared};
use slots::{ServerIndex, WorkerIndex};
use status::Track;
use system_users::SystemUsers;
use tls::settings::Connector;
pub use tls::settings::TlsSettingsError;
use watch::{ServerSamples, Watch, WatchPlan};
use watchdog::Watchdog;
use worker::Worker;

/// Why a proxy does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}; is another process using it?")]
    Listen {
        /// The address.
        address: ListenAddress,
        /// What the operating system says.
        source: io::Error,
    },
    /// A server's name has no address.
    #[error("cannot find the database server {server}: {source}; check the upstream's host name")]
    Resolve {
        /// The server.
        server: ServerHosts,
        /// What the resolver says.
        source: io::Error,
    },
    /// More event loops than cancel keys can name.
    #[error("{0} threads are too many; at most {max} are possible", max = cancel_key::WORKERS_MAX)]
    Threads(usize),
    /// The admin interface does not start.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The journal cannot be written.
    #[error(
        "cannot write the journal {}: {source}; name a file in an existing directory that may be \
         written (--journal FILE)", path.display()
    )]
    Journal {
        /// The journal's file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] TlsSettingsError),
    /// Threads or polls cannot be made.
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

/// A proxy at work. Dropping it stops it at once; [`Running::shutdown`] lets transactions finish.
pub struct Running {
    addresses: Vec<ListenAddress>,
    unix_paths: Vec<PathBuf>,
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    metrics: Arc<MetricsSource>,
    admin: Option<admin::AdminHandle>,
    control_thread: Option<ControlThread>,
    watches: Vec<Watch>,
    lookups: Vec<LookUpThread>,
    watchdog: Option<Watchdog>,
}

/// Starts a proxy; it serves when this returns.
///
/// # Errors
/// See [`StartError`].
pub fn start(config: Config) -> Result<Running, StartError> {
    if config.threads.get() > cancel_key::WORKERS_MAX {
        return Err(StartError::Threads(config.threads.get()));
    }
    let Gated { servers, server_of, regulated } = servers(&config)?;
    let journal = journal(&config, &regulated)?;
    let (listeners, addresses) = listen(&config.listen)?;
    let unix_paths = addresses.iter().filter_map(unix_path).collect();
    let (polls, mailboxes) = event_loops(config.threads.get())?;
    let counters: Vec<Arc<WorkerCounters>> = polls.iter().map(|_| Arc::default()).collect();
    let accounts = Arc::new(account(&config, &servers, &regulated, &mailboxes));
    let metrics_of = |(index, server)| server_metrics(server, &accounts, ServerIndex(index));
    let server_metrics = servers.iter().zip(&regulated).enumerate().map(metrics_of).collect();
    let metrics = Arc::new(MetricsSource::new(server_metrics, counters.clone()));
    let admin = config.admin_listen.map(AdminSocket::bind).transpose()?;
    let lookups = auth_query::lookups(&config, &server_of);
    let by_system = config.authentication == ClientAuthentication::Hba;
    let system_users = by_system.then(|| SystemUsers::start(mailboxes.clone())).transpose()?;
    config.users.derive_verifiers();
    let admin_token = config.admin_token_file.as_deref().map(admin_token).transpose()?;
    let shared = Arc::new(Shared {
        acceptor: config.client_tls.as_ref().map(tls::settings::acceptor).transpose()?,
        connectors: connectors(&config)?,
        config,
        servers,
        accounts,
        server_of,
        lookups,
        system_users,
        mailboxes,
        commands: Commands::default(),
        console: ConsoleState::default(),
        decisions: regulated.iter().map(|it| Arc::clone(&it.decisions)).collect(),
        tracks: regulated.iter().map(|it| Arc::clone(&it.track)).collect(),
        admin_token,
    });
    descriptors::check(&shared);
    let admin = admin
        .map(|socket| admin::start(socket, Arc::clone(&shared), Arc::clone(&metrics)))
        .transpose()?;
    let health = Arc::clone(metrics.health());
    let watches = watches(&shared, &regulated)?;
    let lookups = auth_query::start(&shared)?;
    let control_thread =
        ControlThread::start(Arc::clone(&shared), regulated, journal, Arc::clone(&health))?;
    let watchdog = notify::watchdog_time();
    let watchdog = watchdog.map(|it| Watchdog::start(it, counters.clone())).transpose()?;
    let mut running = Running {
        addresses,
        unix_paths,
        shared: Arc::clone(&shared),
        workers: Vec::new(),
        admin,
        control_thread: Some(control_thread),
        watches,
        lookups,
        metrics,
        watchdog,
    };
    running.start_workers(polls, listeners, counters)?;
    Ok(running)
}

/// Begins the record of every server, if there is to be one.
fn journal(config: &Config, servers: &[ControlledServer]) -> Result<Option<Journal>, StartError> {
    let begin = |path: &PathBuf| {
        control_thread::begin_journal(path, servers, config.seed)
            .map_err(|source| StartError::Journal { path: path.clone(), source })
    };
    config.journal.as_ref().map(begin).transpose()
}

/// Reads the token for orders on the admin interface.
fn admin_token(path: &Path) -> Result<Reloaded<AdminToken>, AdminError> {
    let owned = path.to_owned();
    let load = move |_: Option<&AdminToken>| AdminToken::load(&owned);
    Reloaded::new("the admin token", vec![path.to_owned()], load)
        .map_err(|reason| AdminError::Token { path: path.to_owned(), reason })
}

/// Reads what TLS with each host of each database's server needs.
fn connectors(config: &Config) -> Result<Vec<Vec<Option<Reloaded<Connector>>>>, TlsSettingsError> {
    let connector = |database: &config::Database, host: &ServerAddress| match host {
        ServerAddress::Tcp(host, _) if database.tls.mode != SslMode::Disable => {
            tls::settings::connector(&database.tls, host).map(Some)
        }
        _ => Ok(None),
    };
    let connectors = |database: &config::Database| {
        database.server.hosts.iter().map(|host| connector(database, host)).collect()
    };
    config.databases.iter().map(connectors).collect()
}

/// Starts to watch the servers that are to be watched.
fn watches(shared: &Arc<Shared>, regulated: &[ControlledServer]) -> io::Result<Vec<Watch>> {
    let watch = |(index, regulated): (usize, &ControlledServer)| {
        let plan = WatchPlan::new(&shared.config, &shared.servers[index].address)?;
        let samples = Arc::clone(regulated.samples.as_ref()?);
        Some(Watch::start(Arc::clone(shared), ServerIndex(index), plan, samples))
    };
    regulated.iter().enumerate().filter_map(watch).collect()
}

/// Returns a poll for each event loop, and the mailbox that wakes it.
fn event_loops(count: usize) -> io::Result<(Vec<mio::Poll>, Vec<Arc<Mailbox>>)> {
    let mut loops = (Vec::new(), Vec::new());
    for _ in 0..count {
        let poll = mio::Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), worker::mailbox_token())?;
        loops.0.push(poll);
        loops.1.push(Arc::new(Mailbox::new(waker)));
    }
    Ok(loops)
}

/// Makes the accounts of connections, and tells gates of the bounds that are configured.
fn account(
    config: &Config,
    servers: &[Server],
    regulated: &[ControlledServer],
    mailboxes: &[Arc<Mailbox>],
) -> Accounts {
    let of = |(server, regulated): (&Server, &ControlledServer)| {
        (server.address.clone(), regulated.samples.is_some())
    };
    let addresses: Vec<_> = servers.iter().zip(regulated).map(of).collect();
    let accounts = Accounts::new(config, &addresses, mailboxes, Instant::now());
    for (index, server) in servers.iter().enumerate() {
        accounts.tell_gate(ServerIndex(index), &server.gate);
    }
    accounts
}

fn server_metrics(
    (server, regulated): (&Server, &ControlledServer),
    accounts: &Arc<Accounts>,
    index: ServerIndex,
) -> ServerMetrics {
    let connections = CountedConnections { accounts: Arc::clone(accounts), server: index };
    ServerMetrics {
        name: regulated.name.clone(),
        gate: server.gate.clone(),
        decisions: Arc::clone(&regulated.decisions),
        samples: regulated.samples.clone(),
        connections: Some(connections),
        hosts: Some(Arc::clone(&server.hosts)),
    }
}

fn unix_path(address: &ListenAddress) -> Option<PathBuf> {
    match address {
        ListenAddress::Unix(path) => Some(path.clone()),
        ListenAddress::Tcp(_) => None,
    }
}

/// Opens every listening socket; the addresses are those really taken.
fn listen(wanted: &[ListenAddress]) -> Result<(Vec<Listener>, Vec<ListenAddress>), StartError> {
    let mut opened = (Vec::new(), Vec::new());
    for address in wanted {
        let (listener, taken) = listen_on(address)
            .map_err(|source| StartError::Listen { address: address.clone(), source })?;
        opened.0.push(listener);
        opened.1.push(taken);
    }
    Ok(opened)
}

fn listen_on(address: &ListenAddress) -> io::Result<(Listener, ListenAddress)> {
    match address {
        ListenAddress::Tcp(address) => {
            let listener = mio::net::TcpListener::bind(*address)?;
            let taken = ListenAddress::Tcp(listener.local_addr()?);
            Ok((Listener::Tcp(listener), taken))
        }
        ListenAddress::Unix(path) => {
            let listener = mio::net::UnixListener::bind(path).or_else(|error| {
                remove_if_stale(path, error)?;
                mio::net::UnixListener::bind(path)
            })?;
            Ok((Listener::Unix(listener), address.clone()))
        }
    }
}

/// Removes a socket without a listener, as a killed process leaves it behind. `taken` is why
/// the path cannot be listened on, and the error if it is no such socket.
fn remove_if_stale(path: &Path, taken: io::Error) -> io::Result<()> {
    let is_socket = || std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if taken.kind() != io::ErrorKind::AddrInUse || !is_socket() {
        return Err(taken);
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let path_shown = path.display();
            tracing::info!(path = %path_shown, "replacing a socket on which nobody listens");
            std::fs::remove_file(path)
        }
        _ => Err(taken),
    }
}

/// The distinct servers of a configuration.
#[derive(Default)]
struct Gated {
    servers: Vec<Server>,
    /// For each database, its server.
    server_of: Vec<ServerIndex>,
    /// For each server, how its gate is controlled.
    regulated: Vec<ControlledServer>,
}

/// Makes a gate for each distinct server.
fn servers(config: &Config) -> Result<Gated, StartError> {
    let Gated { mut servers, mut server_of, mut regulated } = Gated::default();
    for database in &config.databases {
        let known = servers.iter().position(|server| server.address == database.server);
        if let Some(index) = known {
            server_of.push(ServerIndex(index));
            continue;
        }
        let limits = Limits {
            mpl: database.control.controller().start(),
            mpl_max: database.control.setting.bounds.max(),
            waiting_max: config.waiting_max,
        };
        let gate = Gate::new(limits, Instant::now());
        if let Some(ClassGoal { class, goal }) = database.control.keep {
            gate.count_late(class, goal.within);
        }
        // Pauses are random so that proxies do not try in step.
        let seed = config.seed ^ (u64::from(std::process::id()) << 32) ^ servers.len() as u64;
        let address = database.server.clone();
        let server = Server::new(address, gate, config.timeouts.unreachable, seed)
            .map_err(|source| StartError::Resolve { server: database.server.clone(), source })?;
        server_of.push(ServerIndex(servers.len()));
        let cpus = database.control.setting.resources.cpus;
        let is_watched = WatchPlan::new(config, &database.server).is_some();
        regulated.push(ControlledServer {
            name: database.server.to_string(),
            control: database.control,
            decisions: Arc::new(Decisions::default()),
            track: Arc::new(Track::new(Instant::now(), limits.mpl.get())),
            samples: is_watched.then(|| Arc::new(ServerSamples::new(cpus))),
        });
        servers.push(server);
    }
    Ok(Gated { servers, server_of, regulated })
}

impl Running {
    /// Returns where clients can connect, with the ports really taken.
    #[must_use]
    pub fn local_addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Returns where `/metrics` is served.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(admin::AdminHandle::address)
    }

    /// Returns how long to drain before the shutdown, and the grace time of that, as configured.
    #[must_use]
    pub fn stop_times(&self) -> (Duration, Duration) {
        let timeouts = &self.shared.config.timeouts;
        (timeouts.drain_delay, timeouts.shutdown_grace)
    }

    /// Says in `/readyz` that no new clients should come; those that come are served.
    pub fn begin_drain(&self) {
        self.metrics.begin_drain();
    }

    /// Starts the event loops; the first accepts for all.
    fn start_workers(
        &mut self,
        polls: Vec<mio::Poll>,
        mut listeners: Vec<Listener>,
        counters: Vec<Arc<WorkerCounters>>,
    ) -> Result<(), StartError> {
        for ((index, poll), counters) in polls.into_iter().enumerate().zip(counters) {
            let listeners = std::mem::take(&mut listeners);
            let shared = Arc::clone(&self.shared);
            let worker = Worker::new(WorkerIndex(index), shared, poll, listeners, counters)?;
            let thread = std::thread::Builder::new().name(format!("tidegate-{index}"));
            let health = Arc::clone(self.metrics.health());
            let supervised = move || {
                health.supervise(&format!("event loop {index}"), || worker.run());
            };
            self.workers.push(thread.spawn(supervised)?);
        }
        Ok(())
    }

    /// Takes no new transactions, lets running ones finish within `grace`, and returns when
    /// everything has stopped.
    pub fn shutdown(mut self, grace: Duration) {
        self.stop(grace);
    }

    /// Sets what the console's SHUTDOWN does: usually what a signal to the process would do.
    /// Without it the command is refused.
    pub fn on_shutdown_order(&self, stop: impl Fn(ShutdownMode) + Send + Sync + 'static) {
        let is_first = self.shared.console.shutdown.set(Box::new(stop)).is_ok();
        debug_assert!(is_first, "it is set once");
    }

    /// Ends the grace time of a shutdown that runs on another thread.
    pub fn stop_now(&self) -> impl Fn() + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || tell_all(&shared, Duration::ZERO)
    }

    /// Returns a function that waits until a thread of the proxy fails, and returns that failure,
    /// or until the proxy is stopped.
    ///
    /// The process should end then: the clients of a failed thread are not served any more.
    pub fn failure(&self) -> impl Fn() -> Option<ThreadFailure> + Send + use<> {
        let health = Arc::clone(self.metrics.health());
        move || health.wait_for_failure()
    }

    fn stop(&mut self, grace: Duration) {
        self.metrics.begin_shutdown();
        self.metrics.health().begin_shutdown();
        tell_all(&self.shared, grace);
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("an event loop panicked");
            }
        }
        self.watchdog = None;
        self.control_thread = None;
        self.watches.clear();
        self.lookups.clear();
        self.admin = None;
        for path in self.unix_paths.drain(..) {
            if let Err(error) = std::fs::remove_file(&path) {
                let path = path.display();
                tracing::warn!(%path, %error, "cannot remove the listening socket");
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

fn tell_all(shared: &Shared, grace: Duration) {
    let deadline = Instant::now() + grace;
    for mailbox in &shared.mailboxes {
        mailbox.post(Message::Shutdown { deadline });
    }
}
