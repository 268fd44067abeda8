//! What bounds connections to servers and of clients: the configuration, and what servers say.
//!
//! A server whose `max_connections` is not configured is asked by the first connection to it, as a
//! part of its login, and again after a connection was lost, because it may have been restarted
//! with another value. Until it has answered, one connection at a time is opened: a storm of
//! clients at the start must not meet a server that is full. A server that cannot answer is not
//! bounded.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tidegate_gate::Gate;

use crate::capacity::{Bound, Capacity, Counts, Full, Occupancy, PoolOfWorker};
use crate::config::{Config, DatabaseLimits, ServerHosts};
use crate::log_limit::LogLimit;
use crate::mailbox::{Mailbox, Message};
use crate::shared::Server;
use crate::slots::{ServerIndex, WorkerIndex};
use crate::upstream::PoolKey;

/// What a server says of its connections; from the answer to [`ConnectionLimits::QUERY`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// `max_connections` less the connections that are reserved.
    pub(crate) unreserved: u32,
}

impl ConnectionLimits {
    /// Needs no privilege. `reserved_connections` came with PostgreSQL 16. The schema is written
    /// out, because in session mode a client may have set `search_path` at its login.
    pub(crate) const QUERY: &str = "SELECT pg_catalog.current_setting('max_connections'), \
         pg_catalog.current_setting('superuser_reserved_connections'), \
         pg_catalog.current_setting('reserved_connections', true)";

    /// Reads the row of the answer; `None` if it makes no sense.
    pub(crate) fn read<'a>(
        mut columns: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Option<ConnectionLimits> {
        let mut number = || -> Option<Option<u32>> {
            let Some(text) = columns.next()? else { return Some(None) };
            Some(std::str::from_utf8(text).ok()?.parse().ok())
        };
        let (all, superusers) = (number()??, number()??);
        let others = number()?.unwrap_or(0);
        Some(ConnectionLimits { unreserved: all.saturating_sub(superusers.saturating_add(others)) })
    }
}

/// What is known of the connections of one server, and what became of them.
#[derive(Debug, Default)]
pub(crate) struct ServerAccount {
    name: String,
    /// The configured maximum; 0 is none.
    configured: AtomicU32,
    is_watched: AtomicBool,
    /// The next connection is to ask the server.
    is_to_be_asked: AtomicBool,
    /// The maximum is configured or was learnt.
    is_known: AtomicBool,
    /// Idle connections closed because another pool needed one.
    pub(crate) given_up: AtomicU64,
    /// Connections closed because of their age.
    pub(crate) retired: AtomicU64,
}

/// The accounts of all event loops.
#[derive(Debug)]
pub(crate) struct Accounts {
    /// Connections to servers.
    pub(crate) upstreams: Arc<Capacity>,
    /// Connections of clients.
    pub(crate) clients: Arc<Capacity>,
    /// Every server there was, by its index: connections to one that is configured no more count
    /// if it is configured again.
    servers: Mutex<Vec<Arc<ServerAccount>>>,
    /// Limits the warnings about connections that servers refuse.
    refusals: Mutex<LogLimit>,
    /// For each event loop, since when its longest idle connection is idle: microseconds since
    /// `start`, as of its last sweep.
    oldest_idle: Vec<AtomicU64>,
    start: Instant,
}

impl Accounts {
    /// Makes the accounts of these event loops.
    pub(crate) fn new(mailboxes: &[Arc<Mailbox>], now: Instant) -> Accounts {
        let boxes = mailboxes.to_vec();
        let deliver = move |to: PoolOfWorker, place| {
            boxes[to.worker.0].post(Message::Place { pool: to.pool, place });
        };
        let upstreams = Capacity::new(Box::new(deliver), now);
        let clients = Capacity::new(Box::new(|_, _| ()), now);
        let _ = clients.counts([(Bound::All, u32::MAX)]);
        let servers = Mutex::default();
        let oldest_idle = mailboxes.iter().map(|_| AtomicU64::new(u64::MAX)).collect();
        let refusals = Mutex::new(LogLimit::one_a_second(now));
        Accounts { upstreams, clients, servers, refusals, oldest_idle, start: now }
    }

    /// Returns the number of warnings left out if one about a refused connection may be logged.
    pub(crate) fn admit_warning(&self, now: Instant) -> Option<u64> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).admit(now)
    }

    /// Returns the number of a server's address. One that is new gets a number and an account.
    pub(crate) fn number_of(&self, address: &ServerHosts) -> ServerIndex {
        let name = address.to_string();
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = servers.iter().position(|server| server.name == name);
        let index = known.unwrap_or_else(|| {
            servers.push(Arc::new(ServerAccount { name, ..ServerAccount::default() }));
            servers.len() - 1
        });
        drop(servers);
        // Until the server has said more, one connection at a time is opened.
        let _ = self.upstreams.counts([(Bound::Server(ServerIndex(index)), 1)]);
        ServerIndex(index)
    }

    /// Takes over what is configured of a server's connections.
    pub(crate) fn configure_server(&self, config: &Config, server: &Server, is_watched: bool) {
        let account = self.server(server.index);
        let mut of_server = config.databases.iter().filter(|it| it.server == server.address);
        let configured = of_server.find_map(|database| database.limits.max_connections);
        let was_watched = account.is_watched.swap(is_watched, Ordering::Relaxed);
        let before = account.configured.swap(configured.unwrap_or(0), Ordering::Relaxed);
        if let Some(max) = configured {
            account.is_to_be_asked.store(false, Ordering::Relaxed);
            account.is_known.store(true, Ordering::Relaxed);
            self.upstreams.set_max(&Bound::Server(server.index), account.net(max));
        } else if before != 0 || was_watched != is_watched || !self.is_known_of(server.index) {
            // What it said before holds until it has answered.
            account.is_to_be_asked.store(true, Ordering::Relaxed);
        }
        self.tell_gate(server.index, &server.gate);
    }

    /// Takes over the bounds that are configured for users and databases.
    pub(crate) fn configure(&self, config: &Config) {
        self.upstreams.set_maxima(|bound| max_upstreams(config, bound));
        self.clients.set_maxima(|bound| max_clients(config, bound));
    }

    pub(crate) fn server(&self, server: ServerIndex) -> Arc<ServerAccount> {
        Arc::clone(&self.servers.lock().unwrap_or_else(PoisonError::into_inner)[server.0])
    }

    fn is_known_of(&self, server: ServerIndex) -> bool {
        self.server(server).is_known.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that these servers may have, if all are known.
    pub(crate) fn servers_max(
        &self,
        mut servers: impl Iterator<Item = ServerIndex>,
    ) -> Option<u64> {
        servers.try_fold(0, |sum, server| {
            let is_watched = self.server(server).is_watched.load(Ordering::Relaxed);
            Some(sum + u64::from(self.occupancy(server)?.max) + u64::from(is_watched))
        })
    }

    /// Returns how many connections a server has and may have; `None` while that is not known.
    pub(crate) fn occupancy(&self, server: ServerIndex) -> Option<Occupancy> {
        let occupancy = self.upstreams.occupancy(&Bound::Server(server))?;
        Some(occupancy).filter(|it| self.is_known_of(server) && it.max < u32::MAX)
    }

    /// Returns how many connections a server has said it gives, if it has.
    pub(crate) fn learnt(&self, server: ServerIndex) -> Option<u32> {
        let account = self.server(server);
        let max = self.occupancy(server).filter(|_| !account.is_configured())?.max;
        Some(max.saturating_add(u32::from(account.is_watched.load(Ordering::Relaxed))))
    }

    /// Tells a gate how many connections there may be at most, if that is known.
    pub(crate) fn tell_gate(&self, server: ServerIndex, gate: &Gate) {
        if let Some(Occupancy { max, .. }) = self.occupancy(server) {
            gate.set_connections(max, Instant::now());
        }
    }

    /// Returns whether a connection that logs in now is to ask the server for its limits.
    pub(crate) fn asks(&self, server: ServerIndex) -> bool {
        self.server(server).is_to_be_asked.load(Ordering::Relaxed)
    }

    /// Takes the answer of a server; `None` if it did not understand. Returns whether the maximum
    /// is another one than before.
    pub(crate) fn learn(&self, server: ServerIndex, told: Option<ConnectionLimits>) -> bool {
        let account = self.server(server);
        account.is_to_be_asked.store(false, Ordering::Relaxed);
        let max = told.map_or(u32::MAX, |limits| account.net(limits.unreserved));
        let was_known = account.is_known.swap(true, Ordering::Relaxed);
        let before = self.upstreams.occupancy(&Bound::Server(server)).map(|it| it.max);
        if was_known && before == Some(max) {
            return false;
        }
        if told.is_some() {
            tracing::info!(server = account.name, max, "connections that may be used");
        } else {
            tracing::warn!(
                server = account.name,
                "the server does not tell its max_connections; set databases.NAME.max_connections"
            );
        }
        self.upstreams.set_max(&Bound::Server(server), max);
        true
    }

    /// Notes that a server cannot be reached, so that it cannot be asked: nobody has to wait for
    /// the answer.
    pub(crate) fn cannot_be_asked(&self, server: ServerIndex) {
        let account = self.server(server);
        if !account.is_configured() && !account.is_known.load(Ordering::Relaxed) {
            self.upstreams.set_max(&Bound::Server(server), u32::MAX);
        }
    }

    /// Notes that a server may have been restarted, with other limits.
    pub(crate) fn may_have_restarted(&self, server: ServerIndex) {
        let account = self.server(server);
        account.is_to_be_asked.store(!account.is_configured(), Ordering::Relaxed);
    }

    /// Returns the counts of a pool's connections. All are counted, also where no bound is
    /// configured: one may be later.
    pub(crate) fn of_pool(
        &self,
        config: &Config,
        (key, server): (&PoolKey, ServerIndex),
        entry: &str,
    ) -> Counts {
        let PoolKey { server_database, user, .. } = key;
        let (entry, name) = (entry.to_owned(), server_database.clone());
        let bounds = [
            Bound::User(user.clone()),
            Bound::Database(entry.clone(), name.clone()),
            Bound::UserOfDatabase(entry, name, user.clone()),
        ];
        let bounded = bounds.map(|bound| {
            let max = max_upstreams(config, &bound);
            (bound, max.unwrap_or(u32::MAX))
        });
        // The server has been counted from the start, so that the number has no meaning.
        self.upstreams.counts(std::iter::once((Bound::Server(server), 1)).chain(bounded))
    }

    /// Returns the counts of a client that is logged in.
    pub(crate) fn of_client(
        &self,
        config: &Config,
        user: &str,
        (entry, name): (&str, &str),
    ) -> Counts {
        let bounds =
            [Bound::User(user.to_owned()), Bound::Database(entry.to_owned(), name.to_owned())];
        let bounded = bounds.map(|bound| {
            let max = max_clients(config, &bound);
            (bound, max.unwrap_or(u32::MAX))
        });
        // All have been counted from the start, so that the number has no meaning.
        self.clients.counts(std::iter::once((Bound::All, u32::MAX)).chain(bounded))
    }

    /// Publishes since when the longest idle connection of an event loop is idle.
    pub(crate) fn publish_oldest_idle(&self, worker: WorkerIndex, since: Option<Instant>) {
        let micros = since.map(|since| since.saturating_duration_since(self.start).as_micros());
        let micros = micros.map_or(u64::MAX, |micros| u64::try_from(micros).unwrap_or(u64::MAX));
        self.oldest_idle[worker.0].store(micros, Ordering::Relaxed);
    }

    /// Returns the event loop whose idle connection is idle for longest, of those not asked yet.
    pub(crate) fn longest_idle(&self, asked: AskedWorkers) -> Option<WorkerIndex> {
        let workers = (0..self.oldest_idle.len()).map(WorkerIndex);
        workers
            .filter(|&worker| !asked.contains(worker))
            .min_by_key(|worker| self.oldest_idle[worker.0].load(Ordering::Relaxed))
    }

    /// Returns whether a bound that is reached has been configured or learnt.
    pub(crate) fn is_known(&self, full: &Full) -> bool {
        match full.bound {
            Bound::Server(server) => self.is_known_of(server),
            _ => true,
        }
    }

    /// Says of connections to servers that a bound is reached.
    pub(crate) fn connections_in_use(&self, full: &Full) -> String {
        let max = full.max;
        match &full.bound {
            Bound::All => format!("all {max} connections are in use"),
            Bound::Server(server) if !self.is_known(full) => {
                let name = &self.server(*server).name;
                format!("the server at {name} has not said yet how many connections it gives")
            }
            Bound::Server(server) => {
                let name = &self.server(*server).name;
                format!(
                    "all {max} connections to the server at {name} are in use (max_connections)"
                )
            }
            Bound::User(user) => format!(
                "all {max} connections of user \"{user}\" are in use \
                 (users.{user}.max_connections = {max})"
            ),
            Bound::Database(entry, name) => format!(
                "all {max} connections to database \"{name}\" are in use \
                 (databases.{entry}.max_database_connections = {max})"
            ),
            Bound::UserOfDatabase(entry, name, user) => format!(
                "all {max} connections of user \"{user}\" to database \"{name}\" are in use \
                 (databases.{entry}.max_connections_per_user = {max})"
            ),
        }
    }
}

/// Says of clients that a bound is reached.
pub(crate) fn too_many_clients(full: &Full) -> String {
    let Full { bound, max } = full;
    match bound {
        Bound::User(user) => {
            format!("too many clients of user \"{user}\" (users.{user}.max_clients = {max})")
        }
        Bound::Database(entry, name) => {
            format!(
                "too many clients of database \"{name}\" (databases.{entry}.max_clients = {max})"
            )
        }
        _ => format!("too many clients (max_clients = {max})"),
    }
}

/// Returns the limits of the entry with this key.
fn limits_of<'c>(config: &'c Config, entry: &str) -> Option<&'c DatabaseLimits> {
    config.databases.iter().find(|database| database.key() == entry).map(|it| &it.limits)
}

/// Returns the highest number of connections to servers that is configured for a bound: no bound is
/// `u32::MAX`. `None` is for what the configuration does not say by itself.
fn max_upstreams(config: &Config, bound: &Bound) -> Option<u32> {
    let limits = |entry| limits_of(config, entry);
    let max = match bound {
        Bound::All | Bound::Server(_) => return None,
        Bound::User(user) => config.user_settings.get(user).and_then(|it| it.max_connections),
        Bound::Database(entry, _) => limits(entry).and_then(|it| it.max_database_connections),
        Bound::UserOfDatabase(entry, ..) => {
            limits(entry).and_then(|it| it.max_connections_per_user)
        }
    };
    Some(max.unwrap_or(u32::MAX))
}

/// The same for the number of clients.
fn max_clients(config: &Config, bound: &Bound) -> Option<u32> {
    let max = match bound {
        Bound::User(user) => config.user_settings.get(user).and_then(|it| it.max_clients),
        Bound::Database(entry, _) => limits_of(config, entry).and_then(|it| it.max_clients),
        _ => return None,
    };
    Some(max.unwrap_or(u32::MAX))
}

impl ServerAccount {
    fn is_configured(&self) -> bool {
        self.configured.load(Ordering::Relaxed) > 0
    }

    /// Returns how many of so many connections are for pools. One is, in any case.
    fn net(&self, max: u32) -> u32 {
        let is_watched = self.is_watched.load(Ordering::Relaxed);
        max.saturating_sub(u32::from(is_watched)).max(1)
    }
}

/// A set of event loops.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AskedWorkers(u128);

impl AskedWorkers {
    /// Returns the set with one more.
    pub(crate) fn with(self, worker: WorkerIndex) -> AskedWorkers {
        AskedWorkers(self.0 | 1 << worker.0)
    }

    fn contains(self, worker: WorkerIndex) -> bool {
        self.0 & 1 << worker.0 != 0
    }
}

// A bit for each event loop.
const _: () = assert!(crate::cancel_key::WORKERS_MAX <= 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_tells_how_many_connections_are_not_reserved() {
        let read = |columns: &[Option<&str>]| {
            let columns = columns.iter().map(|it| it.map(str::as_bytes));
            ConnectionLimits::read(columns).map(|it| it.unreserved)
        };
        assert_eq!(read(&[Some("100"), Some("3"), None]), Some(97), "before PostgreSQL 16");
        assert_eq!(read(&[Some("100"), Some("3"), Some("2")]), Some(95));
        assert_eq!(read(&[Some("2"), Some("3"), Some("0")]), Some(0));
        assert_eq!(read(&[Some("many"), Some("3"), None]), None);
        assert_eq!(read(&[Some("100")]), None);
        assert_eq!(read(&[]), None);
    }
}
