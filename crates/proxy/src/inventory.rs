//! Who is connected: rows of clients, connections to servers and pools, from every event loop.
//!
//! An event loop owns its connections, so it is asked by a message and answers with copies
//! (`worker/report.rs`). It never waits: who asks waits, on another thread, for a bounded time. An
//! event loop that does not answer in time is left out and counted in [`Inventory::missing`].

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use tidegate_gate::ClassId;

use crate::config::PoolMode;
use crate::mailbox::Message;
use crate::replication::Replication;
use crate::shared::{Entry, Shared};
use crate::slots::ServerIndex;
use crate::traffic::PoolTraffic;

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientActivity {
    /// It logs in.
    LoggingIn,
    /// It is logged in and has no transaction.
    Idle,
    /// Its transaction waits for a permit.
    Queued,
    /// Its transaction waits because its database is paused or suspended.
    Paused,
    /// Its transaction has a permit and waits for a connection.
    AwaitingConnection,
    /// The server works on its transaction.
    Running,
    /// Its transaction is open and waits for the client.
    IdleInTransaction,
    /// It is a client of the console.
    Console,
    /// It has sent a cancel request.
    Cancelling,
    /// It is being closed.
    Closing,
}

/// A client.
#[derive(Clone, Debug)]
pub(crate) struct ClientRow {
    /// A number that no other client or connection of this process has.
    pub(crate) id: u64,
    /// Empty until it has said who it is.
    pub(crate) user: String,
    /// The database, as clients call it; empty until it is let in.
    pub(crate) database: String,
    /// The user on the server; empty until it is let in.
    pub(crate) pool_user: String,
    pub(crate) server: Option<ServerIndex>,
    pub(crate) replication: Option<Replication>,
    pub(crate) activity: ClientActivity,
    /// `None` is a Unix-domain socket.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) local_address: Option<SocketAddr>,
    /// Protocol version and cipher suite; empty without TLS.
    pub(crate) tls: String,
    pub(crate) application_name: String,
    /// That of its last transaction, or of those to come as far as that is known.
    pub(crate) class: Option<ClassId>,
    pub(crate) connected_at: Instant,
    /// When its last transaction was asked for, or its login began.
    pub(crate) asked_at: Instant,
    /// Since when it waits for a permit, a connection or the end of a pause.
    pub(crate) waiting_since: Option<Instant>,
    /// Since when it has a permit.
    pub(crate) permit_since: Option<Instant>,
    /// Since when its permit's transaction waits for the client.
    pub(crate) idle_since: Option<Instant>,
    /// The number of statements that it has prepared under a name.
    pub(crate) prepared_statements: usize,
    /// The connection that is the client's now.
    pub(crate) link: Option<u64>,
}

/// What a connection to a server is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerActivity {
    /// It is being opened.
    LoggingIn,
    /// No client holds it.
    Idle,
    /// A client holds it.
    Active,
    /// It is asked whether the server is still there.
    Tested,
    /// Its client has gone, and its transaction is being rolled back.
    Abandoned,
    /// It is at rest, but a cancel request may still arrive.
    BeingCancelled,
    /// It has been told to end.
    Closing,
}

/// A connection to a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerRow {
    /// A number that no other client or connection of this process has.
    pub(crate) id: u64,
    /// The user on the server.
    pub(crate) user: String,
    /// The database, as clients call it.
    pub(crate) database: String,
    pub(crate) replication: Option<Replication>,
    pub(crate) activity: ServerActivity,
    /// `None` is a Unix-domain socket.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) local_address: Option<SocketAddr>,
    /// Protocol version and cipher suite; empty without TLS.
    pub(crate) tls: String,
    pub(crate) opened_at: Instant,
    /// When its present activity began.
    pub(crate) since: Instant,
    /// It is closed as soon as it is released.
    pub(crate) is_to_be_closed: bool,
    /// The client that holds it.
    pub(crate) link: Option<u64>,
    pub(crate) application_name: String,
    /// The number of the server's process, once it is known.
    pub(crate) process_id: Option<u32>,
    /// Statements prepared on it.
    pub(crate) prepared_statements: usize,
    /// It carries cancel requests that have not arrived.
    pub(crate) cancels: u32,
}

/// A pool of one event loop.
#[derive(Clone, Debug)]
pub(crate) struct PoolRow {
    /// The database, as clients call it.
    pub(crate) database: String,
    /// The user on the server.
    pub(crate) user: String,
    pub(crate) entry: Arc<Entry>,
    pub(crate) mode: PoolMode,
    pub(crate) replication: Option<Replication>,
    pub(crate) traffic: PoolTraffic,
}

/// What one event loop has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) clients: Vec<ClientRow>,
    pub(crate) servers: Vec<ServerRow>,
    pub(crate) pools: Vec<PoolRow>,
}

/// Clients of a server that hold a permit or wait, of one event loop or of all.
#[derive(Clone, Debug)]
pub(crate) struct BusyClients {
    pub(crate) server: ServerIndex,
    /// Those that have held a permit longest.
    pub(crate) holders: Vec<ClientRow>,
    /// How many hold one.
    pub(crate) holders_total: u32,
    /// Those that have waited longest, for a permit or for the end of a pause.
    pub(crate) waiters: Vec<ClientRow>,
    /// How many wait.
    pub(crate) waiters_total: u32,
}

/// Asks an event loop for its busy clients. Who asks need not wait: it is woken by the answer.
#[derive(Clone, Debug)]
pub(crate) struct BusyInquiry {
    /// By server.
    pub(crate) to: mpsc::Sender<Vec<BusyClients>>,
    pub(crate) waker: Arc<mio::Waker>,
    /// Rows of each kind of each server.
    pub(crate) most: usize,
}

impl BusyInquiry {
    /// Answers.
    pub(crate) fn answer(&self, busy: Vec<BusyClients>) {
        // Who asked may have stopped.
        if self.to.send(busy).is_ok()
            && let Err(error) = self.waker.wake()
        {
            tracing::debug!(%error, "cannot wake the admin interface");
        }
    }
}

/// What all event loops have.
#[derive(Clone, Debug)]
pub(crate) struct Inventory {
    /// When it was asked for.
    pub(crate) at: Instant,
    /// The same moment on the wall clock.
    pub(crate) wall_clock: SystemTime,
    pub(crate) clients: Vec<ClientRow>,
    pub(crate) servers: Vec<ServerRow>,
    pub(crate) pools: Vec<PoolRow>,
    /// Event loops that have not answered in time.
    pub(crate) missing: usize,
}

impl Inventory {
    /// Returns the moment on the wall clock.
    pub(crate) fn wall_clock(&self, moment: Instant) -> SystemTime {
        let ago = self.at.saturating_duration_since(moment);
        let past = self.wall_clock.checked_sub(ago).unwrap_or(self.wall_clock);
        past + moment.saturating_duration_since(self.at)
    }
}

impl Shared {
    /// Returns who is connected, of the event loops that answer within `timeout`. Blocks, so no
    /// event loop may call it.
    pub(crate) fn inventory(&self, timeout: Duration) -> Inventory {
        let (at, wall_clock) = (Instant::now(), SystemTime::now());
        let (answer, reports) = mpsc::channel();
        for mailbox in &self.mailboxes {
            mailbox.post(Message::Report { to: answer.clone() });
        }
        drop(answer);
        let mut all = Inventory {
            at,
            wall_clock,
            clients: Vec::new(),
            servers: Vec::new(),
            pools: Vec::new(),
            missing: self.mailboxes.len(),
        };
        while let Some(left) = timeout.checked_sub(at.elapsed())
            && all.missing > 0
            && let Ok(Report { clients, servers, pools }) = reports.recv_timeout(left)
        {
            all.clients.extend(clients);
            all.servers.extend(servers);
            all.pools.extend(pools);
            all.missing -= 1;
        }
        all
    }
}
