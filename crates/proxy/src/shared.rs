//! What all event loops share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_gate::Gate;

use crate::accounts::Accounts;
use crate::admin::AdminToken;
use crate::auth_query::Lookups;
use crate::commands::Commands;
use crate::config::{Config, Control, Database, ServerAddress, ServerHosts};
use crate::console::ConsoleState;
use crate::hosts::{Hosts, Peer};
use crate::mailbox::Mailbox;
use crate::metrics::Decisions;
use crate::net::{Connection, Stream};
use crate::reloaded::Reloaded;
use crate::slots::{DatabaseIndex, ServerIndex};
use crate::status::Track;
use crate::system_users::SystemUsers;
use crate::tls::settings::{Acceptor, Connector};

/// A database server and its gate.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: ServerHosts,
    pub(crate) gate: Gate,
    pub(crate) hosts: Arc<Hosts>,
    /// As in [`crate::config::Timeouts`].
    unreachable: Option<Duration>,
}

impl Server {
    /// Makes a server and looks its hosts' names up. `seed` is that of the pauses between attempts
    /// to reach it.
    ///
    /// # Errors
    /// None of its hosts has an address.
    pub(crate) fn new(
        address: ServerHosts,
        gate: Gate,
        unreachable: Option<Duration>,
        seed: u64,
    ) -> std::io::Result<Server> {
        let now = Instant::now();
        let hosts = Arc::new(Hosts::new(address.clone(), gate.clone(), seed, now));
        let server = Server { address, gate, hosts, unreachable };
        let mut failed = server.hosts.resolve(now);
        if failed.len() == server.address.hosts.len()
            && let Some((_, error)) = failed.pop()
        {
            return Err(error);
        }
        server.warn_of_names(&failed);
        Ok(server)
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
                Stream::connect_tcp(address, self.unreachable)?
            }
            (ServerAddress::Tcp(..), None) => {
                return Err(std::io::Error::other("the host name has no address"));
            }
        };
        Ok(Connection::to_server(stream, connector))
    }
}

/// Configuration, servers, and the mailbox of every event loop.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) servers: Vec<Server>,
    /// How many connections there are to servers and of clients, and how many there may be.
    pub(crate) accounts: Arc<Accounts>,
    /// For each configured database, its server.
    pub(crate) server_of: Vec<ServerIndex>,
    /// How TLS begins with clients, if it is offered.
    pub(crate) acceptor: Option<Reloaded<Acceptor>>,
    /// For each configured database, and each host of its server, how TLS begins, if it does.
    pub(crate) connectors: Vec<Vec<Option<Reloaded<Connector>>>>,
    /// For each configured database, where users are looked up, if they are.
    pub(crate) lookups: Vec<Option<Arc<Lookups>>>,
    /// Who finds the names of users of the operating system, where they count.
    pub(crate) system_users: Option<SystemUsers>,
    pub(crate) mailboxes: Vec<Arc<Mailbox>>,
    /// What an administrator has ordered.
    pub(crate) commands: Commands,
    pub(crate) console: ConsoleState,
    /// For each server, the decisions about its limit.
    pub(crate) decisions: Vec<Arc<Decisions>>,
    /// The token for orders on the admin interface, if they are taken there.
    pub(crate) admin_token: Option<Reloaded<AdminToken>>,
    /// For each server, its last minutes.
    pub(crate) tracks: Vec<Arc<Track>>,
}

impl Shared {
    /// Returns how TLS begins with a host of the server of a database, if it does.
    pub(crate) fn connector(&self, database: DatabaseIndex, host: usize) -> Option<Arc<Connector>> {
        self.connectors[database.0].get(host)?.as_ref().map(Reloaded::get)
    }

    /// Returns where users of a database are looked up, if they are.
    pub(crate) fn lookups(&self, database: DatabaseIndex) -> Option<&Arc<Lookups>> {
        self.lookups[database.0].as_ref()
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
        for connector in self.connectors.iter().flatten().flatten() {
            connector.reload();
        }
    }

    pub(crate) fn server(&self, server: ServerIndex) -> &Server {
        &self.servers[server.0]
    }

    /// Returns how a server's limit is controlled as configured: databases on one server agree.
    pub(crate) fn control_of(&self, server: ServerIndex) -> Control {
        let of_server = self.server_of.iter().position(|it| *it == server);
        self.config.databases[of_server.unwrap_or_default()].control
    }

    /// Returns whether a database of this name has an entry of its own.
    pub(crate) fn is_configured(&self, name: &str) -> bool {
        self.config.databases.iter().any(|it| it.name.as_deref() == Some(name))
    }

    /// Returns the database that clients mean by `name`: the entry of that name, or the one for all
    /// names.
    pub(crate) fn database(&self, name: &str) -> Option<(DatabaseIndex, &Database)> {
        let databases = &self.config.databases;
        let named = databases.iter().position(|it| it.name.as_deref() == Some(name));
        let index = named.or_else(|| databases.iter().position(|it| it.name.is_none()))?;
        Some((DatabaseIndex(index), &databases[index]))
    }
}
