//! What all event loops share.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_gate::Gate;

use crate::accounts::Accounts;
use crate::config::{Config, Database, ServerAddress};
use crate::mailbox::Mailbox;
use crate::net::{Connection, Stream};
use crate::slots::{DatabaseIndex, ServerIndex};
use crate::tls::settings::{Acceptor, Connector, Reloaded};

/// A database server and its gate.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: ServerAddress,
    pub(crate) gate: Gate,
    /// As in [`crate::config::Timeouts`].
    unreachable: Option<Duration>,
    /// What the host name meant when it was last looked up.
    resolved: Mutex<Vec<SocketAddr>>,
}

impl Server {
    pub(crate) fn new(
        address: ServerAddress,
        gate: Gate,
        unreachable: Option<Duration>,
    ) -> std::io::Result<Server> {
        let server = Server { address, gate, unreachable, resolved: Mutex::default() };
        server.resolve()?;
        Ok(server)
    }

    /// Looks the host name up. Blocks, so no worker may call it.
    pub(crate) fn resolve(&self) -> std::io::Result<()> {
        let ServerAddress::Tcp(host, port) = &self.address else {
            return Ok(());
        };
        let addresses: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
        if !addresses.is_empty() {
            *self.resolved.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
        }
        Ok(())
    }

    /// Returns whether the address is a name whose meaning may change.
    pub(crate) fn is_named(&self) -> bool {
        match &self.address {
            ServerAddress::Tcp(host, _) => host.parse::<std::net::IpAddr>().is_err(),
            ServerAddress::Unix(_) => false,
        }
    }

    /// Returns the address for the connection of this number: each of a name's addresses in turn.
    /// `None` is a Unix-domain socket.
    pub(crate) fn peer(&self, number: usize) -> std::io::Result<Option<SocketAddr>> {
        if matches!(self.address, ServerAddress::Unix(_)) {
            return Ok(None);
        }
        let resolved = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        // A name may have no address; the error of the resolver is another one.
        let turn = number.checked_rem(resolved.len()).ok_or(std::io::ErrorKind::NotFound)?;
        Ok(Some(resolved[turn]))
    }

    /// Begins to connect to an address that [`Server::peer`] gave, with TLS if there is a
    /// connector.
    pub(crate) fn connect(
        &self,
        peer: Option<SocketAddr>,
        connector: Option<Arc<Connector>>,
    ) -> std::io::Result<Connection> {
        let stream = match (&self.address, peer) {
            (ServerAddress::Unix(path), _) => Stream::connect_unix(path)?,
            (ServerAddress::Tcp(..), Some(address)) => {
                Stream::connect_tcp(address, self.unreachable)?
            }
            (ServerAddress::Tcp(..), None) => return Err(std::io::ErrorKind::NotFound.into()),
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
    /// For each configured database, how TLS begins with its server, if it does.
    pub(crate) connectors: Vec<Option<Reloaded<Connector>>>,
    pub(crate) mailboxes: Vec<Arc<Mailbox>>,
}

impl Shared {
    /// Returns how TLS begins with the server of a database, if it does.
    pub(crate) fn connector(&self, database: DatabaseIndex) -> Option<Arc<Connector>> {
        self.connectors[database.0].as_ref().map(Reloaded::get)
    }

    /// Loads certificates again whose files have changed.
    pub(crate) fn reload_certificates(&self) {
        if let Some(acceptor) = &self.acceptor {
            acceptor.reload();
        }
        for connector in self.connectors.iter().flatten() {
            connector.reload();
        }
    }

    pub(crate) fn server(&self, server: ServerIndex) -> &Server {
        &self.servers[server.0]
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
