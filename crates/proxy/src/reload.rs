//! Another configuration while the proxy runs.
//!
//! # Mechanism
//!
//! The file is read and checked as a whole, and everything that can fail is done beside what
//! serves: names are looked up, certificates read, sockets opened, threads started. Then the new
//! configuration is put in force, which cannot fail, and every event loop is woken. Each takes it
//! over between two events (`worker/reconfiguration.rs`): clients whose database connects in
//! another way move to the new connections when their transaction has ended.
//!
//! ```text
//! read, check, build, listen --error--> refused: the old configuration stays as it was
//!            | ok
//!            v
//! gates and accounts get the new bounds -> in force -> event loops move their clients
//! ```
//!
//! One reload is made at a time. What [`RESTART_NEEDED`] names keeps its value, and is reported.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

use crate::StartError;
use crate::admin::{self, AdminHandle, AdminSocket};
use crate::auth_query::LookUpThread;
use crate::check::check;
use crate::config::{Config, ListenAddress};
use crate::config_file::Override;
use crate::config_listing::settings_in_force;
use crate::configuration::{self, Lasting};
use crate::control_thread::ControlledServer;
use crate::handover::Inheritance;
use crate::mailbox::Message;
use crate::metrics::{MetricsSource, server_metrics};
use crate::net::Listener;
use crate::shared::{InForce, Shared};
use crate::watch::{Watch, WatchPlan};

/// Settings that a running proxy keeps.
pub(crate) const RESTART_NEEDED: [&str; 5] =
    ["threads", "journal", "seed", "peers.id", "log_format"];

/// Why a new configuration is not put in force. The old one stays as it was.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// It cannot be read, or contradicts itself.
    #[error("{0}")]
    Configuration(String),
    /// What `tidegate check-config` finds.
    #[error("{}", .0.join("; "))]
    Findings(Vec<String>),
    /// It cannot be served.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It cannot change while the proxy runs.
    #[error("{0} needs a restart")]
    Fixed(String),
    /// The proxy is being shut down.
    #[error("Tidegate is shutting down")]
    Stopping,
    /// Another process has taken over.
    #[error("another process has taken over and goes by its own configuration")]
    HandedOver,
}

/// What a reload has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// The settings that have another value now, as `key = value`; of an entry that has gone,
    /// `key removed`. Passwords are not among them.
    pub changed: Vec<String>,
    /// The databases whose connections are replaced as they are released.
    pub reconnected: Vec<String>,
    /// The settings that are other ones in the file, and keep their value until a restart.
    pub restart_needed: Vec<String>,
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.changed.len() {
            0 => write!(formatter, "no setting has changed")?,
            1 => write!(formatter, "1 setting has changed")?,
            count => write!(formatter, "{count} settings have changed")?,
        }
        if !self.reconnected.is_empty() {
            let names = self.reconnected.join(", ");
            write!(formatter, "; connections are replaced for: {names}")?;
        }
        if !self.restart_needed.is_empty() {
            write!(formatter, "; restart needed for: {}", self.restart_needed.join(", "))?;
        }
        Ok(())
    }
}

/// Reads the configuration again, with the options that go before the file.
pub(crate) type ConfigSource = Box<dyn Fn(&[Override]) -> Result<Config, String> + Send>;

/// A socket on which clients connect.
struct Listening {
    wanted: ListenAddress,
    taken: ListenAddress,
    /// Names it to the first event loop, which accepts.
    number: usize,
    /// A copy of the socket, to be handed over.
    socket: OwnedFd,
}

/// What a configuration has outside of the event loops.
#[derive(Default)]
struct Assets {
    listening: Vec<Listening>,
    listeners_made: usize,
    admin: Option<(SocketAddr, AdminHandle)>,
    watches: Vec<(WatchPlan, Watch)>,
    lookups: Vec<LookUpThread>,
    source: Option<ConfigSource>,
    /// What the console has set since the last reload.
    overrides: Vec<Override>,
    is_stopping: bool,
    /// The sockets and their paths are another process's by now.
    are_given: bool,
}

/// Puts configurations in force, one after the other.
pub(crate) struct Reloader {
    in_force: Arc<InForce>,
    metrics: Arc<MetricsSource>,
    assets: Mutex<Assets>,
}

impl fmt::Debug for Reloader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reloader").finish_non_exhaustive()
    }
}

/// What has been prepared of a new configuration outside of the event loops.
struct Prepared {
    opened: Vec<(Listening, Listener)>,
    /// The admin interface stays as it is.
    keeps_admin: bool,
    admin: Option<(SocketAddr, AdminHandle)>,
    watches: Vec<(WatchPlan, Watch)>,
    lookups: Vec<LookUpThread>,
}

impl Reloader {
    /// Starts what the first configuration has outside of the event loops. Returns the sockets for
    /// the first event loop beside it.
    ///
    /// # Errors
    /// An address is taken, or a thread cannot be started.
    pub(crate) fn start(
        in_force: Arc<InForce>,
        metrics: Arc<MetricsSource>,
        inheritance: Option<&mut Inheritance>,
    ) -> Result<(Reloader, Vec<(usize, Listener)>), StartError> {
        let shared = in_force.get();
        let reloader = Reloader { in_force, metrics, assets: Mutex::default() };
        let mut assets = reloader.lock();
        let prepared = reloader.prepare(&mut assets, &shared, inheritance)?;
        let listeners = Reloader::replace(&mut assets, &shared, prepared).0;
        reloader.metrics.set_servers(servers_shown(&shared));
        drop(assets);
        Ok((reloader, listeners))
    }

    fn lock(&self) -> MutexGuard<'_, Assets> {
        self.assets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets where configurations are read.
    pub(crate) fn set_source(&self, source: ConfigSource) {
        self.lock().source = Some(source);
    }

    /// Returns where clients can connect, with the ports really taken.
    pub(crate) fn addresses(&self) -> Vec<ListenAddress> {
        self.lock().listening.iter().map(|it| it.taken.clone()).collect()
    }

    /// Returns where the admin interface is.
    pub(crate) fn admin_address(&self) -> Option<SocketAddr> {
        self.lock().admin.as_ref().map(|(_, handle)| handle.address())
    }

    /// Reads the configuration again and puts it in force, as a whole or not at all.
    ///
    /// # Errors
    /// See [`ReloadError`].
    pub(crate) fn reload(&self) -> Result<ReloadReport, ReloadError> {
        let mut assets = self.lock();
        let report = self.reload_with(&mut assets, &[])?;
        assets.overrides.clear();
        Ok(report)
    }

    /// Puts a setting over those of the file, which is read again, until the next reload.
    ///
    /// # Errors
    /// See [`ReloadError`].
    pub(crate) fn set(&self, setting: Override) -> Result<ReloadReport, ReloadError> {
        if RESTART_NEEDED.contains(&setting.key()) {
            return Err(ReloadError::Fixed(setting.key().to_owned()));
        }
        let mut assets = self.lock();
        let mut overrides = assets.overrides.clone();
        overrides.retain(|other| other.key() != setting.key());
        overrides.push(setting);
        let report = self.reload_with(&mut assets, &overrides)?;
        assets.overrides = overrides;
        Ok(report)
    }

    fn reload_with(
        &self,
        assets: &mut Assets,
        overrides: &[Override],
    ) -> Result<ReloadReport, ReloadError> {
        if assets.is_stopping {
            return Err(ReloadError::Stopping);
        }
        if assets.are_given {
            return Err(ReloadError::HandedOver);
        }
        let before = self.in_force.get();
        let Some(source) = &assets.source else {
            // There is nothing but its files.
            before.reread_files();
            return Ok(ReloadReport::default());
        };
        let mut config = source(overrides).map_err(ReloadError::Configuration)?;
        let errors = check(&config).errors;
        if !errors.is_empty() {
            return Err(ReloadError::Findings(errors));
        }
        let restart_needed = keep_what_needs_a_restart(&before.config, &mut config);
        let next = configuration::build(config, Some(&before), Lasting::of(&before))?;
        let prepared = self.prepare(assets, &next, None)?;
        // From here on nothing fails.
        next.reread_files();
        configuration::apply(&next);
        let report = ReloadReport {
            changed: changed_settings(&before.config, &next.config),
            reconnected: reconnected(&before, &next),
            restart_needed,
        };
        self.metrics.set_servers(servers_shown(&next));
        let (opened, closed) = Self::replace(assets, &next, prepared);
        let mailboxes = next.mailboxes.clone();
        self.in_force.put(next);
        for mailbox in &mailboxes {
            mailbox.post(Message::Reconfigured);
        }
        if let Some(accepting) = mailboxes.first() {
            accepting.post(Message::Listeners { opened, closed });
        }
        Ok(report)
    }

    /// Opens and starts what a configuration has and the one before has not.
    fn prepare(
        &self,
        assets: &mut Assets,
        shared: &Shared,
        mut inheritance: Option<&mut Inheritance>,
    ) -> Result<Prepared, StartError> {
        let config = &shared.config;
        let mut opened = Vec::new();
        for wanted in &config.listen {
            if assets.listening.iter().any(|known| known.wanted == *wanted) {
                continue;
            }
            let (listener, taken, socket) = listen(wanted, inheritance.as_deref_mut())
                .map_err(|source| StartError::Listen { address: wanted.clone(), source })?;
            let number = assets.listeners_made;
            assets.listeners_made += 1;
            opened.push((Listening { wanted: wanted.clone(), taken, number, socket }, listener));
        }
        let known_admin = assets.admin.as_ref().map(|(wanted, _)| *wanted);
        let keeps_admin = known_admin == config.admin_listen;
        let start = |at| {
            let (in_force, metrics) = (Arc::clone(&self.in_force), Arc::clone(&self.metrics));
            let socket = match inheritance.and_then(|it| it.take_admin(at)) {
                Some(socket) => AdminSocket::adopt(socket)?,
                None => AdminSocket::bind(at)?,
            };
            Ok((at, admin::start(socket, in_force, metrics)?))
        };
        let wanted = config.admin_listen.filter(|_| !keeps_admin);
        let admin = wanted.map(start).transpose().map_err(StartError::Admin)?;
        let lookups = configuration::distinct_lookups(shared);
        let new = lookups.iter().filter(|it| !assets.lookups.iter().any(|old| old.is_of(it)));
        let start = |it| LookUpThread::start(Arc::clone(&self.in_force), Arc::clone(it));
        let lookups: std::io::Result<Vec<LookUpThread>> = new.map(start).collect();
        let mut watches = Vec::new();
        for ControlledServer { server, samples, .. } in &shared.servers {
            let (Some(plan), Some(samples)) = (WatchPlan::new(shared, server), samples) else {
                continue;
            };
            if !assets.watches.iter().any(|(known, _)| known.is_same(&plan)) {
                let in_force = Arc::clone(&self.in_force);
                watches.push((plan.clone(), Watch::start(in_force, plan, Arc::clone(samples))?));
            }
        }
        Ok(Prepared { opened, keeps_admin, admin, watches, lookups: lookups? })
    }

    /// Replaces what is outside of the event loops. Returns the sockets that are new, and the
    /// numbers of those that are to be closed.
    fn replace(
        assets: &mut Assets,
        shared: &Shared,
        prepared: Prepared,
    ) -> (Vec<(usize, Listener)>, Vec<usize>) {
        let wanted = &shared.config.listen;
        let (kept, removed): (Vec<_>, Vec<_>) = std::mem::take(&mut assets.listening)
            .into_iter()
            .partition(|known| wanted.contains(&known.wanted));
        assets.listening = kept;
        remove_sockets(removed.iter());
        let mut listeners = Vec::new();
        for (listening, listener) in prepared.opened {
            listeners.push((listening.number, listener));
            assets.listening.push(listening);
        }
        if !prepared.keeps_admin {
            assets.admin = prepared.admin;
        }
        let plans: Vec<WatchPlan> =
            shared.servers.iter().filter_map(|it| WatchPlan::new(shared, &it.server)).collect();
        assets.watches.retain(|(known, _)| plans.iter().any(|plan| plan.is_same(known)));
        assets.watches.extend(prepared.watches);
        let lookups = configuration::distinct_lookups(shared);
        assets.lookups.retain(|thread| lookups.iter().any(|it| thread.is_of(it)));
        assets.lookups.extend(prepared.lookups);
        (listeners, removed.iter().map(|it| it.number).collect())
    }

    /// Refuses reloads from now on.
    pub(crate) fn begin_stop(&self) {
        self.lock().is_stopping = true;
    }

    /// Stops what is outside of the event loops.
    pub(crate) fn stop(&self) {
        let Assets { listening, admin, watches, lookups, are_given, .. } =
            std::mem::take(&mut *self.lock());
        drop((watches, lookups, admin));
        if !are_given {
            remove_sockets(listening.iter());
        }
        self.lock().is_stopping = true;
    }

    /// Returns copies of the listening sockets, each as configured and as taken, and that of the
    /// admin interface.
    ///
    /// # Errors
    /// There can be no more sockets.
    pub(crate) fn sockets(&self) -> std::io::Result<Sockets> {
        let assets = self.lock();
        let copy =
            |it: &Listening| Ok((it.wanted.clone(), it.taken.clone(), it.socket.try_clone()?));
        let listening: std::io::Result<Vec<_>> = assets.listening.iter().map(copy).collect();
        let admin = assets.admin.as_ref();
        let admin =
            admin.map(|(wanted, handle)| Ok::<_, std::io::Error>((*wanted, handle.socket()?)));
        Ok(Sockets { listening: listening?, admin: admin.transpose()? })
    }

    /// Gives the listening sockets and the admin interface to another process. There is no reload
    /// any more.
    pub(crate) fn give(&self) {
        let mut assets = self.lock();
        assets.are_given = true;
        if let Some((_, handle)) = &mut assets.admin {
            handle.pause();
        }
    }

    /// Takes them back: the other process has ended.
    pub(crate) fn take_back(&self) {
        let mut assets = self.lock();
        assets.are_given = false;
        let Some((wanted, handle)) = assets.admin.take() else { return };
        let (in_force, metrics) = (Arc::clone(&self.in_force), Arc::clone(&self.metrics));
        let again = handle.socket().and_then(AdminSocket::adopt).map_err(Into::into);
        match again.and_then(|socket| admin::start(socket, in_force, metrics)) {
            Ok(handle) => assets.admin = Some((wanted, handle)),
            Err(error) => tracing::error!(%error, "the admin interface is not served any more"),
        }
    }
}

/// Copies of the sockets that another process takes over.
pub(crate) struct Sockets {
    /// Each with its address, as configured and as taken.
    pub(crate) listening: Vec<(ListenAddress, ListenAddress, OwnedFd)>,
    /// That of the admin interface, as configured.
    pub(crate) admin: Option<(SocketAddr, OwnedFd)>,
}

/// Listens on an address, by the socket of the process before if it has one for it. Returns where
/// it really listens, and a copy of the socket.
fn listen(
    wanted: &ListenAddress,
    inheritance: Option<&mut Inheritance>,
) -> std::io::Result<(Listener, ListenAddress, OwnedFd)> {
    let (listener, taken) = match inheritance.and_then(|it| it.take_listener(wanted)) {
        Some((socket, taken)) => (Listener::adopt(socket)?, taken),
        None => crate::listen_on(wanted)?,
    };
    let socket = listener.as_fd().try_clone_to_owned()?;
    Ok((listener, taken, socket))
}

/// Removes the paths of sockets on which nobody will listen any more.
fn remove_sockets<'l>(listening: impl Iterator<Item = &'l Listening>) {
    let paths = listening.filter_map(|it| match &it.taken {
        ListenAddress::Unix(path) => Some(path),
        ListenAddress::Tcp(_) => None,
    });
    for path in paths {
        if let Err(error) = std::fs::remove_file::<&PathBuf>(path) {
            let path = path.display();
            tracing::warn!(%path, %error, "cannot remove the listening socket");
        }
    }
}

fn servers_shown(shared: &Shared) -> Vec<crate::metrics::ServerMetrics> {
    shared.servers.iter().map(|it| server_metrics(it, &shared.accounts)).collect()
}

/// Gives a new configuration the old values of what cannot change. Returns the names of those that
/// are others in the new one.
fn keep_what_needs_a_restart(before: &Config, config: &mut Config) -> Vec<String> {
    let (old, new) = (settings_in_force(before), settings_in_force(config));
    (config.threads, config.seed) = (before.threads, before.seed);
    config.journal.clone_from(&before.journal);
    config.peers.id = before.peers.id;
    config.log_format = before.log_format;
    let value = |all: &[(String, String)], key: &str| {
        all.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    };
    let differs = |key: &str| value(&old, key) != value(&new, key);
    let needed = RESTART_NEEDED.into_iter().filter(|key| differs(key));
    let mut needed: Vec<String> = needed.map(str::to_owned).collect();
    let classes = &before.scheduling.classes;
    if !classes.may_become(&config.scheduling.classes) {
        config.scheduling = Arc::clone(&before.scheduling);
        for database in &mut config.databases {
            let keep = database.control.keep;
            database.control.keep = keep.and_then(|keep| keep.goal.of(classes).ok());
        }
        needed.push("scheduling.classes, or who has min_permits or max_permits".to_owned());
    }
    needed
}

fn changed_settings(before: &Config, after: &Config) -> Vec<String> {
    let before: BTreeMap<String, String> = settings_in_force(before).into_iter().collect();
    let after: BTreeMap<String, String> = settings_in_force(after).into_iter().collect();
    let is_other = |(key, value): &(&String, &String)| before.get(*key) != Some(*value);
    let other = after.iter().filter(is_other).map(|(key, value)| format!("{key} = {value}"));
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    other.chain(gone.map(|key| format!("{key} removed"))).collect()
}

/// Returns the keys of the entries whose connections are replaced.
fn reconnected(before: &Shared, after: &Shared) -> Vec<String> {
    let is_kept = |index| before.entry(index).is_some();
    let has_been = |key: &str| before.entries.iter().any(|it| it.database.key() == key);
    let replaced = after.entries.iter().filter(|it| !is_kept(it.index));
    let keys = replaced.map(|it| it.database.key().to_owned());
    keys.filter(|key| has_been(key)).collect()
}
