//! What bounds connections to servers and of clients: the configuration, and what servers say.
//!
//! A server whose `max_connections` is not configured is asked by the first connection to it, as a
//! part of its login, and again after a connection was lost, because it may have been restarted
//! with another value. Until it has answered, one connection at a time is opened: a storm of
//! clients at the start must not meet a server that is full. A server that cannot answer is not
//! bounded.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tidegate_gate::Gate;

use crate::capacity::{Bound, Capacity, Counts, Full, Occupancy, PoolOfWorker};
use crate::config::{Config, ServerHosts};
use crate::log_limit::LogLimit;
use crate::mailbox::{Mailbox, Message};
use crate::slots::{DatabaseIndex, ServerIndex, WorkerIndex};
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
    configured: Option<u32>,
    is_watched: bool,
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
    servers: Vec<ServerAccount>,
    /// Limits the warnings about connections that servers refuse.
    refusals: Mutex<LogLimit>,
    /// For each event loop, since when its longest idle connection is idle: microseconds since
    /// `start`, as of its last sweep.
    oldest_idle: Vec<AtomicU64>,
    start: Instant,
}

impl Accounts {
    /// Makes the accounts of these servers.
    pub(crate) fn new(
        config: &Config,
        servers: &[(ServerHosts, bool)],
        mailboxes: &[Arc<Mailbox>],
        now: Instant,
    ) -> Accounts {
        let boxes = mailboxes.to_vec();
        let deliver = move |to: PoolOfWorker, place| {
            boxes[to.worker.0].post(Message::Place { pool: to.pool, place });
        };
        let upstreams = Capacity::new(Box::new(deliver), now);
        let servers: Vec<ServerAccount> = servers
            .iter()
            .map(|(address, is_watched)| ServerAccount::new(config, address, *is_watched))
            .collect();
        let first = |(index, server): (usize, &ServerAccount)| {
            (Bound::Server(ServerIndex(index)), server.configured.map_or(1, |it| server.net(it)))
        };
        let _ = upstreams.counts(servers.iter().enumerate().map(first));
        let clients = Capacity::new(Box::new(|_, _| ()), now);
        let _ = clients.counts([(Bound::All, config.max_clients.unwrap_or(u32::MAX))]);
        let oldest_idle = mailboxes.iter().map(|_| AtomicU64::new(u64::MAX)).collect();
        let refusals = Mutex::new(LogLimit::one_a_second(now));
        Accounts { upstreams, clients, servers, refusals, oldest_idle, start: now }
    }

    /// Returns the number of warnings left out if one about a refused connection may be logged.
    pub(crate) fn admit_warning(&self, now: Instant) -> Option<u64> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).admit(now)
    }

    pub(crate) fn server(&self, server: ServerIndex) -> &ServerAccount {
        &self.servers[server.0]
    }

    /// Returns the number of connections that every server may have, if all are known.
    pub(crate) fn servers_max(&self) -> Option<u64> {
        let max = |index: usize| {
            let server = &self.servers[index];
            let max = self.occupancy(ServerIndex(index))?.max;
            Some(u64::from(max) + u64::from(server.is_watched))
        };
        (0..self.servers.len()).map(max).sum()
    }

    /// Returns how many connections a server has and may have; `None` while that is not known.
    pub(crate) fn occupancy(&self, server: ServerIndex) -> Option<Occupancy> {
        let occupancy = self.upstreams.occupancy(&Bound::Server(server))?;
        let is_known = self.server(server).is_known.load(Ordering::Relaxed);
        Some(occupancy).filter(|it| is_known && it.max < u32::MAX)
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
        if account.configured.is_none() && !account.is_known.load(Ordering::Relaxed) {
            self.upstreams.set_max(&Bound::Server(server), u32::MAX);
        }
    }

    /// Notes that a server may have been restarted, with other limits.
    pub(crate) fn may_have_restarted(&self, server: ServerIndex) {
        let account = self.server(server);
        account.is_to_be_asked.store(account.configured.is_none(), Ordering::Relaxed);
    }

    /// Returns the counts of a pool's connections.
    pub(crate) fn of_pool(&self, config: &Config, key: &PoolKey, server: ServerIndex) -> Counts {
        let PoolKey { database, server_database, user, .. } = key;
        let limits = &config.databases[database.0].limits;
        let of_user = config.user_settings.get(user).and_then(|it| it.max_connections);
        let in_database = Bound::Database(*database, server_database.clone());
        let pool = Bound::UserOfDatabase(*database, server_database.clone(), user.clone());
        let bounds = [
            // It has been counted from the start, so that the number has no meaning.
            Some((Bound::Server(server), 1)),
            of_user.map(|max| (Bound::User(user.clone()), max)),
            limits.max_database_connections.map(|max| (in_database, max)),
            limits.max_connections_per_user.map(|max| (pool, max)),
        ];
        self.upstreams.counts(bounds.into_iter().flatten())
    }

    /// Returns the counts of a client that is logged in.
    pub(crate) fn of_client(
        &self,
        config: &Config,
        user: &str,
        (database, name): (DatabaseIndex, &str),
    ) -> Counts {
        let of_user = config.user_settings.get(user).and_then(|it| it.max_clients);
        let of_database = config.databases[database.0].limits.max_clients;
        let bounds = [
            // It has been counted from the start, so that the number has no meaning.
            Some((Bound::All, u32::MAX)),
            of_user.map(|max| (Bound::User(user.to_owned()), max)),
            of_database.map(|max| (Bound::Database(database, name.to_owned()), max)),
        ];
        self.clients.counts(bounds.into_iter().flatten())
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
            Bound::Server(server) => self.server(server).is_known.load(Ordering::Relaxed),
            _ => true,
        }
    }

    /// Says of connections to servers that a bound is reached.
    pub(crate) fn connections_in_use(&self, config: &Config, full: &Full) -> String {
        let entry = |database: DatabaseIndex| config.databases[database.0].key();
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
            Bound::Database(database, name) => format!(
                "all {max} connections to database \"{name}\" are in use \
                 (databases.{}.max_database_connections = {max})",
                entry(*database)
            ),
            Bound::UserOfDatabase(database, name, user) => format!(
                "all {max} connections of user \"{user}\" to database \"{name}\" are in use \
                 (databases.{}.max_connections_per_user = {max})",
                entry(*database)
            ),
        }
    }
}

/// Says of clients that a bound is reached.
pub(crate) fn too_many_clients(config: &Config, full: &Full) -> String {
    let Full { bound, max } = full;
    match bound {
        Bound::User(user) => {
            format!("too many clients of user \"{user}\" (users.{user}.max_clients = {max})")
        }
        Bound::Database(database, name) => {
            let entry = config.databases[database.0].key();
            format!(
                "too many clients of database \"{name}\" (databases.{entry}.max_clients = {max})"
            )
        }
        _ => format!("too many clients (max_clients = {max})"),
    }
}

impl ServerAccount {
    fn new(config: &Config, address: &ServerHosts, is_watched: bool) -> ServerAccount {
        let mut of_server = config.databases.iter().filter(|database| database.server == *address);
        let configured = of_server.find_map(|database| database.limits.max_connections);
        ServerAccount {
            name: address.to_string(),
            configured,
            is_watched,
            is_to_be_asked: AtomicBool::new(configured.is_none()),
            is_known: AtomicBool::new(configured.is_some()),
            ..ServerAccount::default()
        }
    }

    /// Returns how many of so many connections are for pools. One is, in any case.
    fn net(&self, max: u32) -> u32 {
        max.saturating_sub(u32::from(self.is_watched)).max(1)
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
