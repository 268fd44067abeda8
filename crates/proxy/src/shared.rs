//! What all event loops share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_gate::Gate;

use crate::accounts::Accounts;
use crate::admin::AdminToken;
use crate::auth_query::Lookups;
use crate::capacity::Bound;
use crate::commands::Commands;
use crate::config::{Config, Database, PoolMode, ServerAddress, ServerHosts};
use crate::console::ConsoleState;
use crate::control_thread::ControlledServer;
use crate::handover::Handover;
use crate::hosts::{Hosts, Peer};
use crate::mailbox::Mailbox;
use crate::metrics::Decisions;
use crate::net::{Connection, Stream};
use crate::reloaded::Reloaded;
use crate::replication::Replication;
use crate::slots::{DatabaseIndex, ServerIndex};
use crate::status::Track;
use crate::system_users::SystemUsers;
use crate::tls::settings::{Acceptor, Connector};
use crate::upstream::PoolKey;

/// A database server and its gate. It stays the same as long as its address is configured or
/// anything is left of it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) index: ServerIndex,
    pub(crate) address: ServerHosts,
    pub(crate) gate: Gate,
    pub(crate) hosts: Arc<Hosts>,
    /// The decisions about its limit.
    pub(crate) decisions: Arc<Decisions>,
    /// Its last minutes.
    pub(crate) track: Track,
    /// As in [`crate::config::Timeouts`].
    unreachable: Mutex<Option<Duration>>,
}

impl Server {
    /// Makes a server and looks its hosts' names up. `seed` is that of the pauses between attempts
    /// to reach it.
    ///
    /// # Errors
    /// None of its hosts has an address.
    pub(crate) fn new(
        (index, address): (ServerIndex, ServerHosts),
        gate: Gate,
        seed: u64,
    ) -> std::io::Result<Server> {
        let now = Instant::now();
        let hosts = Arc::new(Hosts::new(address.clone(), gate.clone(), seed, now));
        let (decisions, unreachable) = (Arc::default(), Mutex::default());
        let track = Track::new(now, gate.snapshot().limit.get());
        let server = Server { index, address, gate, hosts, decisions, track, unreachable };
        let mut failed = server.hosts.resolve(now);
        if failed.len() == server.address.hosts.len()
            && let Some((_, error)) = failed.pop()
        {
            return Err(error);
        }
        server.warn_of_names(&failed);
        Ok(server)
    }

    /// Sets how long a silent host may leave keep-alive probes unanswered on connections that are
    /// opened from now on.
    pub(crate) fn set_unreachable(&self, unreachable: Option<Duration>) {
        *self.unreachable.lock().unwrap_or_else(PoisonError::into_inner) = unreachable;
    }

    /// Returns whether anything is left of it: a permit, a request of one, a connection.
    pub(crate) fn is_in_use(&self, accounts: &Accounts) -> bool {
        let snapshot = self.gate.snapshot();
        let connections = accounts.upstreams.occupancy(&Bound::Server(self.index));
        snapshot.outstanding > 0
            || snapshot.waiting > 0
            || connections.is_some_and(|it| it.taken > 0)
    }

    /// Looks the hosts' names up again. Blocks, so no worker may call it.
    pub(crate) fn resolve(&self) {
        let failed = self.hosts.resolve(Instant::now());
        self.warn_of_names(&failed);
    }

    fn warn_of_names(&self, failed: &[(usize, std::io::Error)]) {
        for (host, error) in failed {
            let name = self.hosts.address(*host);
            tracing::warn!(%name, %error, "name not found; keeping the last addresses");
        }
    }

    /// Begins to connect to one of the server's hosts, with TLS if there is a connector.
    pub(crate) fn connect(
        &self,
        peer: Peer,
        connector: Option<Arc<Connector>>,
    ) -> std::io::Result<Connection> {
        let stream = match (self.hosts.address(peer.host), peer.address) {
            (ServerAddress::Unix(path), _) => Stream::connect_unix(path)?,
            (ServerAddress::Tcp(..), Some(address)) => {
                let unreachable = self.unreachable.lock().unwrap_or_else(PoisonError::into_inner);
                Stream::connect_tcp(address, *unreachable)?
            }
            (ServerAddress::Tcp(..), None) => {
                return Err(std::io::Error::other("the host name has no address"));
            }
        };
        Ok(Connection::to_server(stream, connector))
    }
}

/// An entry of the configuration, and what belongs to it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Another number than that of any entry with another name, or that connected in another way.
    pub(crate) index: DatabaseIndex,
    pub(crate) database: Database,
    pub(crate) server: Arc<Server>,
    /// For each host of its server, how TLS begins, if it does.
    pub(crate) connectors: Connectors,
    /// Where users are looked up, if they are.
    pub(crate) lookups: Option<Arc<Lookups>>,
}

/// For each host of a server, how TLS begins, if it does.
pub(crate) type Connectors = Arc<Vec<Option<Reloaded<Connector>>>>;

impl Entry {
    /// Returns what distinguishes the pool of clients that ask for a database by this name.
    pub(crate) fn pool_key(
        &self,
        asked: &str,
        user: &str,
        (mode, replication): (PoolMode, Option<Replication>),
    ) -> PoolKey {
        let Database { server_database, server_user, .. } = &self.database;
        PoolKey {
            database: self.index,
            server_database: server_database.as_deref().unwrap_or(asked).to_owned(),
            user: server_user.as_deref().unwrap_or(user).to_owned(),
            mode,
            replication,
        }
    }

    /// Returns how TLS begins with a host of its server, if it does.
    pub(crate) fn connector(&self, host: usize) -> Option<Arc<Connector>> {
        self.connectors.get(host)?.as_ref().map(Reloaded::get)
    }
}

/// The configuration in force, what belongs to it, and what outlasts it.
///
/// It never changes. A reload makes another one, which takes over what is the same
/// ([`crate::configuration`]); who holds one looks now and then whether another is in force
/// ([`InForce::refresh`]).
#[derive(Debug)]
pub(crate) struct Shared {
    /// Counts configurations.
    pub(crate) generation: u64,
    pub(crate) config: Config,
    /// For each configured database, its entry.
    pub(crate) entries: Vec<Arc<Entry>>,
    /// The entries that were made so far, whose indices are taken.
    pub(crate) entries_made: usize,
    /// The servers of the entries, and those of former ones that are still in use.
    pub(crate) servers: Vec<ControlledServer>,
    /// How TLS begins with clients, if it is offered.
    pub(crate) acceptor: Option<Arc<Reloaded<Acceptor>>>,
    /// The token for orders on the admin interface, if they are taken there.
    pub(crate) admin_token: Option<Arc<Reloaded<AdminToken>>>,
    /// Who finds the names of users of the operating system, where they count.
    pub(crate) system_users: Option<Arc<SystemUsers>>,
    /// How many connections there are to servers and of clients, and how many there may be.
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) mailboxes: Vec<Arc<Mailbox>>,
    /// What an administrator has ordered.
    pub(crate) commands: Arc<Commands>,
    pub(crate) console: Arc<ConsoleState>,
    pub(crate) handover: Arc<Handover>,
}

impl Shared {
    /// Returns the entry with this index, if it is still configured.
    pub(crate) fn entry(&self, index: DatabaseIndex) -> Option<&Arc<Entry>> {
        self.entries.iter().find(|entry| entry.index == index)
    }

    /// Returns where users of a database are looked up, if they are.
    pub(crate) fn lookups(&self, database: DatabaseIndex) -> Option<&Arc<Lookups>> {
        self.entry(database)?.lookups.as_ref()
    }

    /// Reads files again that have changed: certificates, users and who may log in how.
    pub(crate) fn reload_files(&self) {
        self.config.users.reload();
        if let Some(hba) = &self.config.hba {
            hba.reload();
        }
        if let Some(acceptor) = &self.acceptor {
            acceptor.reload();
        }
        if let Some(token) = &self.admin_token {
            token.reload();
        }
        for connector in self.entries.iter().flat_map(|it| it.connectors.iter()).flatten() {
            connector.reload();
        }
    }

    /// Reads the same files now, whether they have changed or not.
    pub(crate) fn reread_files(&self) {
        self.config.users.reread();
        if let Some(hba) = &self.config.hba {
            hba.reread();
        }
        if let Some(acceptor) = &self.acceptor {
            acceptor.reread();
        }
        if let Some(token) = &self.admin_token {
            token.reread();
        }
        for connector in self.entries.iter().flat_map(|it| it.connectors.iter()).flatten() {
            connector.reread();
        }
    }

    /// Returns a server that is in use.
    pub(crate) fn server(&self, server: ServerIndex) -> Option<&Arc<Server>> {
        self.servers.iter().map(|it| &it.server).find(|it| it.index == server)
    }

    /// Returns whether a database of this name has an entry of its own.
    pub(crate) fn is_configured(&self, name: &str) -> bool {
        self.config.databases.iter().any(|it| it.name.as_deref() == Some(name))
    }

    /// Returns the entry that clients mean by `name`: that of the name, or the one for all names.
    pub(crate) fn database(&self, name: &str) -> Option<&Arc<Entry>> {
        let named = self.entries.iter().find(|it| it.database.name.as_deref() == Some(name));
        named.or_else(|| self.entries.iter().find(|it| it.database.name.is_none()))
    }
}

/// Which configuration is in force, for every thread.
#[derive(Debug)]
pub(crate) struct InForce {
    generation: AtomicU64,
    shared: Mutex<Arc<Shared>>,
}

impl InForce {
    pub(crate) fn new(shared: Shared) -> Arc<InForce> {
        let generation = AtomicU64::new(shared.generation);
        Arc::new(InForce { generation, shared: Mutex::new(Arc::new(shared)) })
    }

    /// Returns what is in force.
    pub(crate) fn get(&self) -> Arc<Shared> {
        Arc::clone(&self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the configuration that a thread holds if another one is in force. Returns whether
    /// it did.
    pub(crate) fn refresh(&self, held: &mut Arc<Shared>) -> bool {
        let is_other = self.generation.load(Ordering::Acquire) != held.generation;
        if is_other {
            *held = self.get();
        }
        is_other
    }

    /// Puts another configuration in force.
    pub(crate) fn put(&self, shared: Shared) {
        let generation = shared.generation;
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(shared);
        self.generation.store(generation, Ordering::Release);
    }
}
