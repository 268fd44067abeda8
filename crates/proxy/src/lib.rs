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
//! - one thread that gives signs of life, if the service manager wants them (`watchdog`);
//! - one thread for the page, `/status.json`, `/metrics`, `/healthz` and `/readyz` (`admin`);
//! - threads of a hand-over to or from another process ([`handover`]).
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
mod configuration;
mod console;
mod control_thread;
mod descriptors;
#[cfg(test)]
mod documented;
pub mod handover;
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
mod network;
pub mod notify;
mod peers;
pub mod pgbouncer;
mod reload;
mod reloaded;
mod replication;
mod replies;
pub mod scheduling;
pub mod scram;
mod session;
mod session_state;
mod settings;
#[cfg(test)]
mod settings_reference;
mod shared;
mod slots;
mod start_log;
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

use accounts::Accounts;
pub use admin::AdminError;
pub use check::{Findings, check};
use config::{Config, ListenAddress, ServerHosts};
use config_file::Override;
pub use config_listing::settings_in_force;
use configuration::Lasting;
pub use console::ShutdownMode;
use control_thread::ControlThread;
use handover::{Inheritance, Leave};
pub use health::ThreadFailure;
use mailbox::{Mailbox, Message};
use metrics::{MetricsSource, WorkerCounters};
use net::Listener;
use reload::Reloader;
pub use reload::{ReloadError, ReloadReport};
use shared::InForce;
use slots::WorkerIndex;
pub use tls::settings::TlsSettingsError;
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
    in_force: Arc<InForce>,
    workers: Vec<JoinHandle<()>>,
    metrics: Arc<MetricsSource>,
    reloader: Arc<Reloader>,
    control_thread: Option<ControlThread>,
    watchdog: Option<Watchdog>,
}

/// Starts a proxy; it serves when this returns.
///
/// # Errors
/// See [`StartError`].
pub fn start(config: Config) -> Result<Running, StartError> {
    start_with(config, None)
}

/// Starts a proxy that takes over from another process; it serves from when that has begun to hand
/// over.
///
/// # Errors
/// See [`StartError`]. The other process goes on as before when it is told
/// ([`Inheritance::refusal`]), or when this one ends.
pub fn take_over(config: Config, inheritance: Inheritance) -> Result<Running, StartError> {
    start_with(config, Some(inheritance))
}

fn start_with(config: Config, mut inheritance: Option<Inheritance>) -> Result<Running, StartError> {
    if config.threads.get() > cancel_key::WORKERS_MAX {
        return Err(StartError::Threads(config.threads.get()));
    }
    let (polls, mailboxes) = event_loops(config.threads.get())?;
    let counters: Vec<Arc<WorkerCounters>> = polls.iter().map(|_| Arc::default()).collect();
    let lasting = Lasting {
        accounts: Arc::new(Accounts::new(&mailboxes, Instant::now())),
        mailboxes,
        commands: inheritance.as_ref().map(Inheritance::commands).unwrap_or_default(),
        console: Arc::default(),
        handover: inheritance.as_ref().map(Inheritance::handover).unwrap_or_default(),
    };
    let shared = configuration::build(config, None, lasting)?;
    configuration::apply(&shared);
    if let Some(inheritance) = &inheritance {
        inheritance.inform(&shared);
    }
    let begin = |path: &PathBuf| {
        control_thread::begin_journal(path, &shared)
            .map_err(|source| StartError::Journal { path: path.clone(), source })
    };
    let journal = shared.config.journal.as_ref().map(begin).transpose()?;
    descriptors::check(&shared);
    shared.config.users.derive_verifiers();
    let metrics = Arc::new(MetricsSource::new(Vec::new(), counters.clone()));
    let health = Arc::clone(metrics.health());
    let in_force = InForce::new(shared);
    let (reloader, mut listeners) =
        Reloader::start(Arc::clone(&in_force), Arc::clone(&metrics), inheritance.as_mut())?;
    let reloader = Arc::new(reloader);
    let control_thread = ControlThread::start(Arc::clone(&in_force), journal, Arc::clone(&health))?;
    let watchdog = notify::watchdog_time();
    let mut running = Running {
        in_force: Arc::clone(&in_force),
        workers: Vec::new(),
        metrics,
        reloader,
        control_thread: Some(control_thread),
        watchdog: watchdog.map(|it| Watchdog::start(it, counters.clone())).transpose()?,
    };
    // One that takes over accepts when the process before does not any more.
    let mut later = Vec::new();
    if inheritance.is_some() {
        std::mem::swap(&mut listeners, &mut later);
    }
    running.start_event_loops(polls, counters, listeners)?;
    if let Some(inheritance) = inheritance {
        inheritance.accept(in_force.get(), later, health)?;
    }
    Ok(running)
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

impl Running {
    /// Starts the event loops, of which the first accepts for all.
    fn start_event_loops(
        &mut self,
        polls: Vec<mio::Poll>,
        counters: Vec<Arc<WorkerCounters>>,
        mut listeners: Vec<(usize, Listener)>,
    ) -> io::Result<()> {
        for ((index, poll), counters) in polls.into_iter().enumerate().zip(counters) {
            let (in_force, listeners) =
                (Arc::clone(&self.in_force), std::mem::take(&mut listeners));
            let worker = Worker::new(WorkerIndex(index), in_force, poll, listeners, counters)?;
            let thread = std::thread::Builder::new().name(format!("tidegate-{index}"));
            let health = Arc::clone(self.metrics.health());
            let supervised = move || {
                health.supervise(&format!("event loop {index}"), || worker.run());
            };
            self.workers.push(thread.spawn(supervised)?);
        }
        Ok(())
    }

    /// Returns the right to hand over to another process.
    #[must_use]
    pub fn leave(&self) -> Leave {
        let shared = self.in_force.get();
        Leave { shared, reloader: Arc::clone(&self.reloader) }
    }

    /// Returns two functions: the first waits until the clients have gone whose TLS is this
    /// process's though another has taken over; the second ends that waiting.
    pub fn relays(&self) -> (impl Fn() + Send + use<>, impl Fn() + Send + use<>) {
        let waiting = Arc::clone(&self.in_force.get().handover.relays);
        let ending = Arc::clone(&waiting);
        (move || waiting.wait(), move || ending.end())
    }

    /// Returns where clients can connect, with the ports really taken.
    #[must_use]
    pub fn local_addresses(&self) -> Vec<ListenAddress> {
        self.reloader.addresses()
    }

    /// Returns where `/metrics` is served.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.reloader.admin_address()
    }

    /// Sets where the configuration is read again, by [`Running::reload`] and by the console's
    /// RELOAD. Without it they read only its files again.
    /// What the console's SET has set is put over it.
    pub fn on_reload(&self, read: impl Fn(&[Override]) -> Result<Config, String> + Send + 'static) {
        self.reloader.set_source(Box::new(read));
        let reloader = Arc::downgrade(&self.reloader);
        let reload = move |setting| match (reloader.upgrade(), setting) {
            (Some(reloader), None) => log_reload(reloader.reload()),
            (Some(reloader), Some(setting)) => log_reload(reloader.set(setting)),
            (None, _) => Err(ReloadError::Stopping),
        };
        let is_first = self.in_force.get().console.reload.set(Box::new(reload)).is_ok();
        debug_assert!(is_first, "it is set once");
    }

    /// Returns a function that reads the configuration again and puts it in force, as a whole or
    /// not at all, and logs what came of it. It blocks while names are looked up.
    pub fn reload(&self) -> impl Fn() -> Result<ReloadReport, ReloadError> + Send + use<> {
        let reloader = Arc::clone(&self.reloader);
        move || log_reload(reloader.reload())
    }

    /// Returns how long to drain before the shutdown, and the grace time of that, as configured.
    #[must_use]
    pub fn stop_times(&self) -> (Duration, Duration) {
        let timeouts = self.in_force.get().config.timeouts;
        (timeouts.drain_delay, timeouts.shutdown_grace)
    }

    /// Says in `/readyz` that no new clients should come; those that come are served.
    pub fn begin_drain(&self) {
        self.metrics.begin_drain();
    }

    /// Takes no new transactions, lets running ones finish within `grace`, and returns when
    /// everything has stopped.
    pub fn shutdown(mut self, grace: Duration) {
        self.stop(grace);
    }

    /// Sets what the console's SHUTDOWN does: usually what a signal to the process would do.
    /// Without it the command is refused.
    pub fn on_shutdown_order(&self, stop: impl Fn(ShutdownMode) + Send + Sync + 'static) {
        let is_first = self.in_force.get().console.shutdown.set(Box::new(stop)).is_ok();
        debug_assert!(is_first, "it is set once");
    }

    /// Ends the grace time of a shutdown that runs on another thread.
    pub fn stop_now(&self) -> impl Fn() + Send + use<> {
        let mailboxes = self.in_force.get().mailboxes.clone();
        move || tell_all(&mailboxes, Duration::ZERO)
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
        self.reloader.begin_stop();
        self.metrics.begin_shutdown();
        self.metrics.health().begin_shutdown();
        self.in_force.get().handover.stop_predecessor();
        tell_all(&self.in_force.get().mailboxes, grace);
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("an event loop panicked");
            }
        }
        self.watchdog = None;
        self.control_thread = None;
        self.reloader.stop();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

fn log_reload(outcome: Result<ReloadReport, ReloadError>) -> Result<ReloadReport, ReloadError> {
    match &outcome {
        Ok(report) => {
            let changed = report.changed.join(", ");
            tracing::info!(changed, "configuration reloaded: {report}");
        }
        Err(error) => {
            let error = error.to_string();
            tracing::error!(error, "the configuration is not reloaded: the old one stays in force");
        }
    }
    outcome
}

fn tell_all(mailboxes: &[Arc<Mailbox>], grace: Duration) {
    let deadline = Instant::now() + grace;
    for mailbox in mailboxes {
        mailbox.post(Message::Shutdown { deadline });
    }
}
