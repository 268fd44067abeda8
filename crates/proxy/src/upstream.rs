//! The connections of one event loop to database servers, in pools of like ones.

use crate::tls::settings::Connector;
use std::collections::{HashMap, VecDeque};
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Instant;

use mio::{Registry, Token};
use tidegate_gate::Permit;
use tidegate_wire::startup::CancelKey;

use crate::capacity::{Counts, Place};
use crate::client::ClientSlot;
use crate::commands::DatabaseOrders;
use crate::config::PoolMode;
use crate::handshake::{Credentials, Handshake, UpstreamError};
use crate::hosts::{Attempt, Connected, Peer};
use crate::metrics::DatabaseTimes;
use crate::net::{Connection, Stream};
use crate::replication::Replication;
use crate::session::ServerSession;
use crate::shared::{Entry, Server};
use crate::slots::{DatabaseIndex, PoolIndex, Slot, Slots};
use crate::traffic::PoolTraffic;

/// Connections of one event loop for clients of session mode are opened only while fewer than this
/// are opening: a storm of clients must not become a storm of new server processes.
const OPENING_MAX: usize = 32;

/// Names an upstream connection of an event loop.
pub(crate) type UpstreamSlot = Slot<Upstream>;

pub(crate) enum UpstreamState {
    /// The socket connects. In session mode, for this client.
    Connecting(Option<ClientSlot>),
    /// The proxy logs in. In session mode, for this client.
    LoggingIn(Option<ClientSlot>, Box<Handshake>),
    /// Ready for a transaction, and in its pool's list of idle connections.
    Idle,
    /// A client's: for a transaction, or in session mode for good. The permit is that of the
    /// running transaction; preparing a statement in session mode needs none.
    Lent { client: ClientSlot, permit: Option<Permit> },
    /// Its client went away inside a transaction, which is being ended, or left session state,
    /// which is being discarded.
    Abandoned(Option<Permit>),
    /// At rest, but a cancel request for its last transaction may still arrive.
    Quarantined,
    /// Told to end. The place comes back when the server has ended it: a new connection would
    /// otherwise come too early for a server that is full.
    Closing,
    /// At rest for long, and asked whether the server is still there.
    Checking,
    /// On its way to another process, perhaps with its client; `relay` is this end of what that
    /// process gets in place of a socket with TLS. Nothing of it is handled.
    Passing { client: Option<ClientSlot>, relay: Option<Stream> },
}

/// An upstream connection, from connect to close.
pub(crate) struct Upstream {
    /// A number that no other client or connection of this process has.
    pub(crate) id: u64,
    pub(crate) opened_at: Instant,
    /// The number of reconnections that were ordered when it was opened.
    pub(crate) opened_under: u64,
    /// When the query began that is being answered.
    pub(crate) query_since: Option<Instant>,
    pub(crate) connection: Connection,
    /// Whether the message that is handled in pieces goes to the client.
    pub(crate) is_passed_on: bool,
    state: UpstreamState,
    /// When the state began.
    pub(crate) since: Instant,
    /// Where it leads, which is where its cancel requests have to go.
    pub(crate) peer: Peer,
    /// The attempt that it is, until the end of its login.
    pub(crate) attempt: Option<Attempt>,
    /// Counts it among the connections of its server, from the end of its login on.
    pub(crate) connected: Option<Connected>,
    /// The generation of its server's hosts at which it was known to lead to one that does.
    pub(crate) generation: u64,
    pub(crate) pool: PoolIndex,
    pub(crate) session: ServerSession,
    /// Names the backend in cancel requests; known from the login on.
    pub(crate) key: Option<CancelKey>,
    /// Cancel requests on the way to this backend.
    pub(crate) cancels: u32,
    /// When it is so old that it is to be closed as soon as it is released.
    pub(crate) retires_at: Option<Instant>,
    /// The right to be open.
    place: Place,
}

/// What is known of a connection that is taken over from another process.
pub(crate) struct AdoptedUpstream {
    pub(crate) id: u64,
    pub(crate) connection: Connection,
    pub(crate) opened_at: Instant,
    pub(crate) retires_at: Option<Instant>,
    pub(crate) peer: Peer,
    pub(crate) connected: Connected,
    pub(crate) pool: PoolIndex,
    pub(crate) session: ServerSession,
    pub(crate) key: Option<CancelKey>,
    pub(crate) place: Place,
}

impl Upstream {
    /// Makes a connection that another process has had.
    pub(crate) fn adopt(adopted: AdoptedUpstream, state: UpstreamState, now: Instant) -> Upstream {
        Upstream {
            id: adopted.id,
            opened_at: adopted.opened_at,
            opened_under: 0,
            query_since: None,
            connection: adopted.connection,
            is_passed_on: false,
            state,
            since: now,
            peer: adopted.peer,
            attempt: None,
            connected: Some(adopted.connected),
            // It has to be asked whether it leads where it should.
            generation: u64::MAX,
            pool: adopted.pool,
            session: adopted.session,
            key: adopted.key,
            cancels: 0,
            retires_at: adopted.retires_at,
            place: adopted.place,
        }
    }

    /// Takes what is left of a connection that is another process's: with TLS, this end of what
    /// that has in place of a socket.
    pub(crate) fn into_relay(self) -> Option<(Connection, Stream)> {
        match self.state {
            UpstreamState::Passing { relay: Some(relay), .. } => Some((self.connection, relay)),
            _ => None,
        }
    }

    pub(crate) fn state(&self) -> &UpstreamState {
        &self.state
    }

    fn enter(&mut self, state: UpstreamState, now: Instant) -> UpstreamState {
        self.since = now;
        std::mem::replace(&mut self.state, state)
    }

    /// Returns the client that holds it, or for which it is being opened.
    pub(crate) fn client(&self) -> Option<ClientSlot> {
        match self.state {
            UpstreamState::Connecting(client) | UpstreamState::LoggingIn(client, _) => client,
            UpstreamState::Lent { client, .. } => Some(client),
            UpstreamState::Idle
            | UpstreamState::Abandoned(_)
            | UpstreamState::Quarantined
            | UpstreamState::Closing
            | UpstreamState::Checking
            | UpstreamState::Passing { .. } => None,
        }
    }

    pub(crate) fn permit(&self) -> Option<&Permit> {
        match &self.state {
            UpstreamState::Lent { permit, .. } | UpstreamState::Abandoned(permit) => {
                permit.as_ref()
            }
            _ => None,
        }
    }

    pub(crate) fn permit_mut(&mut self) -> Option<&mut Permit> {
        match &mut self.state {
            UpstreamState::Lent { permit, .. } | UpstreamState::Abandoned(permit) => {
                permit.as_mut()
            }
            _ => None,
        }
    }

    /// Takes the permit away: the transaction has ended.
    pub(crate) fn take_permit(&mut self) -> Option<Permit> {
        match &mut self.state {
            UpstreamState::Lent { permit, .. } | UpstreamState::Abandoned(permit) => permit.take(),
            _ => None,
        }
    }

    /// Returns whether a transaction runs on it, its client present or gone.
    pub(crate) fn is_busy(&self) -> bool {
        self.permit().is_some()
    }

    /// Returns whether it is not ready for its first transaction yet.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.state, UpstreamState::Connecting(_) | UpstreamState::LoggingIn(..))
    }

    /// Returns whether no client holds it and it can be lent.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, UpstreamState::Idle)
    }

    /// Returns whether it is on its way to another process.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.state, UpstreamState::Passing { .. })
    }

    /// Returns whether another process could go on with it as it is.
    pub(crate) fn may_be_passed(&self) -> bool {
        let session = &self.session;
        self.cancels == 0
            && session.is_at_rest()
            && !session.replies.is_uncertain()
            && session.watch.findings.is_none()
            && session.own_error.is_none()
            && session.became_standby.is_none()
            && !session.is_ending
            && self.connection.passing.is_none()
            && !self.connection.has_unsent()
    }

    /// Returns whether it has been told to end.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.state, UpstreamState::Closing)
    }

    /// Returns whether it may be lent soon, and not yet: something else has to end before.
    pub(crate) fn is_withheld(&self) -> bool {
        matches!(self.state, UpstreamState::Quarantined | UpstreamState::Checking)
    }

    /// Returns whether the server has to be silent but for notices and the like.
    pub(crate) fn is_at_rest(&self) -> bool {
        matches!(self.state, UpstreamState::Idle | UpstreamState::Quarantined)
    }

    /// Begins to log in: the socket is connected. With a question about the server's connections
    /// if it `asks`.
    pub(crate) fn begin_login(&mut self, asks: bool) {
        debug_assert!(matches!(self.state, UpstreamState::Connecting(_)));
        // `since` stays: connecting and logging in have one timeout together.
        let handshake = if asks { Handshake::asking() } else { Handshake::new() };
        self.state = UpstreamState::LoggingIn(self.client(), Box::new(handshake));
    }

    /// Returns the login that is under way, and the connection.
    pub(crate) fn login(&mut self) -> Option<(&mut Handshake, &mut Connection)> {
        match &mut self.state {
            UpstreamState::LoggingIn(_, handshake) => Some((handshake, &mut self.connection)),
            _ => None,
        }
    }

    /// Returns why a connection is of no use that can neither be read nor written.
    pub(crate) fn closed(&self) -> UpstreamError {
        self.connection.tls_error().cloned().map_or(UpstreamError::Closed, UpstreamError::Tls)
    }

    /// Gives the permit for a transaction to a connection that is lent already.
    pub(crate) fn begin_transaction(&mut self, begun: Permit) {
        self.session.failed = false;
        let UpstreamState::Lent { permit, .. } = &mut self.state else {
            debug_assert!(false, "a transaction runs on a connection that is lent");
            return;
        };
        debug_assert!(permit.is_none(), "one transaction at a time");
        *permit = Some(begun);
    }

    /// Notes that the client has gone inside its transaction.
    pub(crate) fn abandon(&mut self, now: Instant) {
        let permit = self.take_permit();
        self.enter(UpstreamState::Abandoned(permit), now);
    }
}

/// What distinguishes pools.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    /// The entry of the configuration.
    pub(crate) database: DatabaseIndex,
    /// The database's name on the server.
    pub(crate) server_database: String,
    /// The user's name on the server.
    pub(crate) user: String,
    /// How long a connection belongs to a client. What it was at its login a client keeps.
    pub(crate) mode: PoolMode,
    /// What replication connections are for; `None` for ordinary ones.
    pub(crate) replication: Option<Replication>,
}

/// How many connections a pool has, and what bounds them.
pub(crate) struct PoolBounds {
    /// Of what its connections are counted.
    pub(crate) counts: Counts,
    /// Connections that are kept open in this event loop.
    pub(crate) kept_open: usize,
}

/// What a server reports at login: names and values of parameters.
pub(crate) type ServerParameters = Vec<(Box<[u8]>, Box<[u8]>)>;

/// Connections that are alike, and the clients that wait for one.
pub(crate) struct Pool {
    pub(crate) key: PoolKey,
    /// The database as clients call it: the name of its entry, or that on the server for the entry
    /// that serves every name.
    pub(crate) database_name: String,
    /// The orders of an administrator that are in force for the database.
    pub(crate) orders: DatabaseOrders,
    pub(crate) traffic: PoolTraffic,
    /// Where its transactions are counted for `/metrics`.
    pub(crate) times: Arc<DatabaseTimes>,
    /// The entry of the configuration, as it is or as it was last.
    pub(crate) entry: Arc<Entry>,
    /// The entry is configured no more, or connects in another way: no client comes any more, and
    /// connections are closed as they are released.
    pub(crate) is_retired: bool,
    /// The server, which has the gate.
    pub(crate) server: Arc<Server>,
    pub(crate) mode: PoolMode,
    pub(crate) credentials: Credentials,
    /// Transactions with a permit and without a connection.
    pub(crate) waiting: VecDeque<ClientSlot>,
    /// Clients that are told the server's parameters when they are known.
    pub(crate) awaiting_parameters: Vec<ClientSlot>,
    pub(crate) parameters: Option<ServerParameters>,
    /// The server has refused a connection since one was last given to a transaction.
    pub(crate) refused: Option<Refused>,
    pub(crate) bounds: PoolBounds,
    /// It is in the line for a place.
    pub(crate) is_in_line: bool,
    /// Clients of session mode that wait for a place.
    pub(crate) sessions: VecDeque<ClientSlot>,
    /// When a connection was last closed because of its age.
    pub(crate) retired: Option<Instant>,
    /// When a connection that is to be kept open may be opened next.
    pub(crate) keeps_open_at: Option<Instant>,
    /// Idle connections, the one used last on top: the others grow old and are closed.
    idle: Vec<UpstreamSlot>,
    /// Connections that are being opened.
    opening: usize,
}

impl Pool {
    pub(crate) fn new(
        (key, database_name, orders): (PoolKey, String, DatabaseOrders),
        entry: Arc<Entry>,
        credentials: Credentials,
        bounds: PoolBounds,
        times: Arc<DatabaseTimes>,
    ) -> Pool {
        Pool {
            mode: key.mode,
            key,
            database_name,
            orders,
            traffic: PoolTraffic::new(Instant::now()),
            times,
            server: Arc::clone(&entry.server),
            entry,
            is_retired: false,
            credentials,
            waiting: VecDeque::new(),
            awaiting_parameters: Vec::new(),
            parameters: None,
            refused: None,
            bounds,
            is_in_line: false,
            sessions: VecDeque::new(),
            retired: None,
            keeps_open_at: None,
            idle: Vec::new(),
            opening: 0,
        }
    }

    /// Returns the number of connections that are being opened.
    pub(crate) fn opening(&self) -> usize {
        self.opening
    }

    /// Returns the idle connections, the one that is idle for longest first.
    pub(crate) fn idle(&self) -> impl Iterator<Item = UpstreamSlot> + '_ {
        self.idle.iter().copied()
    }

    /// Returns the connection that is idle for longest: the others were put on top of it.
    pub(crate) fn oldest_idle(&self) -> Option<UpstreamSlot> {
        self.idle.first().copied()
    }

    /// Returns whether its connections are replication connections, which run no transactions and
    /// need no permits.
    pub(crate) fn is_for_replication(&self) -> bool {
        self.key.replication.is_some()
    }
}

/// Why a server gives no connection, in its words, and since when.
pub(crate) struct Refused {
    pub(crate) since: Instant,
    pub(crate) code: String,
    pub(crate) message: String,
}

/// The upstream connections of an event loop and their pools.
///
/// - A connection is in its pool's `idle` list, once, exactly while its state is `Idle`.
/// - `opening`, here and in each pool, is the number of connections that are being opened.
/// - `closing` is the number of connections that have been told to end.
pub(crate) struct Upstreams {
    connections: Slots<Upstream>,
    pools: Slots<Pool>,
    pool_of: HashMap<PoolKey, PoolIndex>,
    opening: usize,
    closing: usize,
    begun: usize,
    /// Clients of session mode that wait to have their connection opened.
    for_session: VecDeque<ClientSlot>,
}

impl Upstreams {
    pub(crate) fn new() -> Upstreams {
        Upstreams {
            connections: Slots::new(),
            pools: Slots::new(),
            pool_of: HashMap::new(),
            opening: 0,
            closing: 0,
            begun: 0,
            for_session: VecDeque::new(),
        }
    }

    /// Adds a pool, of which there is none with this key.
    ///
    /// # Errors
    /// There are as many as can be.
    pub(crate) fn add_pool(&mut self, pool: Pool) -> std::io::Result<PoolIndex> {
        let key = pool.key.clone();
        let index = self.pools.insert_with(|_| Ok(pool))?;
        let before = self.pool_of.insert(key, index);
        debug_assert!(before.is_none(), "a key has one pool");
        Ok(index)
    }

    /// Removes a pool of which nothing is left: no client, no connection.
    pub(crate) fn remove_pool(&mut self, pool: PoolIndex) -> Option<Pool> {
        let removed = self.pools.remove(pool)?;
        self.pool_of.remove(&removed.key);
        Some(removed)
    }

    /// Returns whether there is such a pool.
    pub(crate) fn has_pool(&self, pool: PoolIndex) -> bool {
        self.pools.get(pool).is_some()
    }

    /// Returns the pool of this key, if there is one.
    pub(crate) fn find_pool(&self, key: &PoolKey) -> Option<PoolIndex> {
        self.pool_of.get(key).copied()
    }

    /// Returns all pools, to go through while they change.
    pub(crate) fn pools(&self) -> impl Iterator<Item = PoolIndex> + use<> {
        self.pools.slots().into_iter()
    }

    pub(crate) fn get(&self, slot: UpstreamSlot) -> Option<&Upstream> {
        self.connections.get(slot)
    }

    pub(crate) fn get_mut(&mut self, slot: UpstreamSlot) -> Option<&mut Upstream> {
        self.connections.get_mut(slot)
    }

    /// Returns a connection together with its pool.
    pub(crate) fn with_pool(&mut self, slot: UpstreamSlot) -> Option<(&mut Upstream, &mut Pool)> {
        let upstream = self.connections.get_mut(slot)?;
        let pool = &mut self.pools[upstream.pool];
        Some((upstream, pool))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (UpstreamSlot, &Upstream)> {
        self.connections.iter()
    }

    /// Returns the slots of all connections, to go through while they change.
    pub(crate) fn slots(&self) -> Vec<UpstreamSlot> {
        self.connections.slots()
    }

    #[cfg(any(test, debug_assertions))]
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Returns the number of connections but for those that have been told to end.
    pub(crate) fn open_count(&self) -> usize {
        self.connections.len() - self.closing
    }

    /// Returns the number of idle connections.
    pub(crate) fn idle(&self) -> usize {
        self.pools.iter().map(|(_, pool)| pool.idle.len()).sum()
    }

    /// Returns the number of connections on which a transaction runs.
    pub(crate) fn busy(&self) -> usize {
        self.iter().filter(|(_, upstream)| upstream.is_busy()).count()
    }

    /// Returns the number of connections that a client of transaction mode keeps because of what it
    /// has left behind there.
    pub(crate) fn pinned(&self) -> usize {
        let is_pinned = |upstream: &Upstream| {
            matches!(upstream.state, UpstreamState::Lent { .. })
                && !upstream.session.watch.pins.is_empty()
        };
        self.iter().filter(|(_, upstream)| is_pinned(upstream)).count()
    }

    /// Lets a client of session mode wait until its connection may be opened.
    pub(crate) fn queue_for_session(&mut self, client: ClientSlot) {
        self.for_session.push_back(client);
    }

    /// Forgets a client that waits for its login to end, wherever it does.
    pub(crate) fn forget_login(&mut self, client: ClientSlot) {
        self.for_session.retain(|&waiter| waiter != client);
        for pool in self.pools.slots() {
            let pool = &mut self.pools[pool];
            pool.sessions.retain(|&waiter| waiter != client);
            pool.awaiting_parameters.retain(|&waiter| waiter != client);
        }
    }

    /// Lets clients of session mode that have waited for a place be the next.
    pub(crate) fn queue_for_session_again(&mut self, clients: VecDeque<ClientSlot>) {
        for client in clients.into_iter().rev() {
            self.for_session.push_front(client);
        }
    }

    /// Returns the next client of session mode whose connection may be opened now.
    pub(crate) fn next_for_session(&mut self) -> Option<ClientSlot> {
        if self.may_open_more() { self.for_session.pop_front() } else { None }
    }

    /// Returns whether so few connections are being opened that there may be more.
    pub(crate) fn may_open_more(&self) -> bool {
        self.opening < OPENING_MAX
    }

    /// Returns how many connections of the pool are in a state.
    pub(crate) fn count(&self, pool: PoolIndex, is_counted: impl Fn(&Upstream) -> bool) -> usize {
        self.iter().filter(|(_, upstream)| upstream.pool == pool && is_counted(upstream)).count()
    }

    /// Returns the number of connections begun so far.
    pub(crate) fn begun(&self) -> usize {
        self.begun
    }

    /// Begins to open a connection of the pool; in session mode, for a client.
    ///
    /// # Errors
    /// The host's name has no address, or there can be no more sockets.
    pub(crate) fn open(
        &mut self,
        pool: PoolIndex,
        (id, client, place): (u64, Option<ClientSlot>, Place),
        (server, peer, connector): (&Server, Peer, Option<Arc<Connector>>),
        (registry, token): (&Registry, impl FnOnce(UpstreamSlot) -> Token),
        now: Instant,
    ) -> Result<UpstreamSlot, UpstreamError> {
        self.begun += 1;
        let generation = server.hosts.generation();
        let opened_under = self.pools[pool].orders.reconnects;
        let slot = self.connections.insert_with(|slot| {
            let mut connection = server.connect(peer, connector)?;
            connection.register(registry, token(slot))?;
            Ok(Upstream {
                id,
                opened_at: now,
                opened_under,
                query_since: None,
                connection,
                is_passed_on: false,
                state: UpstreamState::Connecting(client),
                since: now,
                peer,
                attempt: None,
                connected: None,
                generation,
                pool,
                session: ServerSession::new(),
                key: None,
                cancels: 0,
                retires_at: None,
                place,
            })
        })?;
        self.opening += 1;
        self.pools[pool].opening += 1;
        Ok(slot)
    }

    /// Takes a connection over from another process: a client's, or one that is in no list yet, so
    /// that it has to be released.
    pub(crate) fn adopt(
        &mut self,
        make: impl FnOnce(UpstreamSlot, UpstreamState) -> std::io::Result<Upstream>,
        client: Option<ClientSlot>,
    ) -> std::io::Result<UpstreamSlot> {
        let state = match client {
            Some(client) => UpstreamState::Lent { client, permit: None },
            None => UpstreamState::Quarantined,
        };
        self.connections.insert_with(|slot| make(slot, state))
    }

    /// Begins to pass a connection at rest to another process.
    pub(crate) fn begin_passing(
        &mut self,
        slot: UpstreamSlot,
        relay: Option<Stream>,
        now: Instant,
    ) {
        let upstream = &mut self.connections[slot];
        debug_assert!(upstream.may_be_passed(), "only at rest");
        let client = upstream.client();
        let before = upstream.enter(UpstreamState::Passing { client, relay }, now);
        let pool = upstream.pool;
        if matches!(before, UpstreamState::Idle) {
            self.pools[pool].idle.retain(|&idle| idle != slot);
        }
    }

    /// Takes a connection back that was to be passed. Returns whether it is in no list and has no
    /// client, so that it has to be released.
    pub(crate) fn end_passing(&mut self, slot: UpstreamSlot, now: Instant) -> bool {
        let Some(upstream) = self.connections.get_mut(slot) else { return false };
        let UpstreamState::Passing { client, .. } = upstream.state else { return false };
        let state = match client {
            Some(client) => UpstreamState::Lent { client, permit: None },
            None => UpstreamState::Quarantined,
        };
        upstream.enter(state, now);
        client.is_none()
    }

    /// Ends a login. The connection is the client's that it was opened for, or at rest and not yet
    /// in its pool's list: [`Upstreams::lend`], [`Upstreams::quarantine`] or [`Upstreams::rest`]
    /// follows. Returns what the server has told, and that client.
    pub(crate) fn finish_login(
        &mut self,
        slot: UpstreamSlot,
        now: Instant,
    ) -> Option<(ServerParameters, Option<ClientSlot>)> {
        let (upstream, pool) = self.with_pool(slot)?;
        let state = match upstream.client() {
            Some(client) => UpstreamState::Lent { client, permit: None },
            None => UpstreamState::Quarantined,
        };
        let UpstreamState::LoggingIn(client, handshake) = upstream.enter(state, now) else {
            debug_assert!(false, "a login ends once");
            return None;
        };
        upstream.key = handshake.key;
        pool.opening -= 1;
        self.opening -= 1;
        Some((handshake.parameters, client))
    }

    /// Takes the idle connection of the pool that was used last; to be lent at once.
    pub(crate) fn take_idle(&mut self, pool: PoolIndex) -> Option<UpstreamSlot> {
        let slot = self.pools[pool].idle.pop()?;
        debug_assert!(matches!(self.connections[slot].state, UpstreamState::Idle));
        Some(slot)
    }

    /// Lends a connection that is in no list to a client.
    pub(crate) fn lend(&mut self, slot: UpstreamSlot, client: ClientSlot, now: Instant) {
        debug_assert!(!self.is_listed(slot), "a lent connection is not idle");
        let upstream = &mut self.connections[slot];
        debug_assert!(!upstream.is_busy(), "a connection has one transaction");
        debug_assert_eq!(upstream.cancels, 0, "no cancel request meets another's transaction");
        upstream.enter(UpstreamState::Lent { client, permit: None }, now);
        upstream.session.begin_lending();
    }

    /// Keeps a connection from being lent until its cancel requests have arrived.
    pub(crate) fn quarantine(&mut self, slot: UpstreamSlot, now: Instant) {
        let upstream = &mut self.connections[slot];
        debug_assert!(!upstream.is_busy(), "a transaction ends before its connection rests");
        upstream.enter(UpstreamState::Quarantined, now);
    }

    /// Keeps a connection that was taken from its pool's list from being lent until the server has
    /// answered.
    pub(crate) fn begin_check(&mut self, slot: UpstreamSlot, now: Instant) {
        debug_assert!(!self.is_listed(slot), "a connection is lent or checked, not both");
        self.connections[slot].enter(UpstreamState::Checking, now);
    }

    /// Returns the idle connections of a pool.
    pub(crate) fn idle_of(&self, pool: PoolIndex) -> Vec<UpstreamSlot> {
        self.pools[pool].idle.clone()
    }

    /// Puts a connection into its pool's list of idle ones.
    pub(crate) fn rest(&mut self, slot: UpstreamSlot, now: Instant) {
        debug_assert!(!self.is_listed(slot), "a connection is listed once");
        let upstream = &mut self.connections[slot];
        debug_assert!(!upstream.is_busy(), "a transaction ends before its connection rests");
        upstream.enter(UpstreamState::Idle, now);
        let pool = upstream.pool;
        self.pools[pool].idle.push(slot);
    }

    /// Waits for the server to end a connection that has been told to end.
    pub(crate) fn begin_closing(&mut self, slot: UpstreamSlot, now: Instant) {
        let upstream = &mut self.connections[slot];
        debug_assert!(!upstream.is_busy() && !upstream.is_opening(), "only at rest, and once open");
        let before = upstream.enter(UpstreamState::Closing, now);
        upstream.place.begin_return();
        let pool = &mut self.pools[upstream.pool];
        match before {
            UpstreamState::Closing => return,
            UpstreamState::Idle => pool.idle.retain(|&idle| idle != slot),
            _ => {}
        }
        self.closing += 1;
    }

    fn is_listed(&self, slot: UpstreamSlot) -> bool {
        let pool = self.connections[slot].pool;
        self.pools[pool].idle.contains(&slot)
    }

    /// Removes a connection; its permit, if it has one, returns when it is dropped.
    pub(crate) fn remove(&mut self, slot: UpstreamSlot) -> Option<Upstream> {
        let upstream = self.connections.remove(slot)?;
        let pool = &mut self.pools[upstream.pool];
        if upstream.is_opening() {
            pool.opening -= 1;
            self.opening -= 1;
        }
        if matches!(upstream.state, UpstreamState::Idle) {
            pool.idle.retain(|&idle| idle != slot);
        }
        if upstream.is_closing() {
            self.closing -= 1;
        }
        Some(upstream)
    }

    /// Checks the invariants of the type.
    #[cfg(debug_assertions)]
    pub(crate) fn check(&self) {
        for (slot, upstream) in self.iter() {
            let listed = self.pools[upstream.pool].idle.iter().filter(|&&idle| idle == slot);
            let is_idle = matches!(upstream.state, UpstreamState::Idle);
            assert_eq!(listed.count(), usize::from(is_idle), "the idle list of {slot:?}");
            assert!(!is_idle || upstream.cancels == 0, "{slot:?} may be cancelled while idle");
        }
        let idle = self.iter().filter(|(_, it)| matches!(it.state, UpstreamState::Idle)).count();
        assert_eq!(self.idle(), idle, "idle connections that are listed");
        let closing = self.iter().filter(|(_, it)| it.is_closing()).count();
        assert_eq!(self.closing, closing, "connections that have been told to end");
        for pool in self.pools() {
            assert_eq!(self[pool].opening, self.count(pool, Upstream::is_opening), "{pool:?}");
        }
        assert_eq!(self.opening, self.pools.iter().map(|(_, pool)| pool.opening).sum::<usize>());
    }
}

impl Index<UpstreamSlot> for Upstreams {
    type Output = Upstream;

    fn index(&self, slot: UpstreamSlot) -> &Upstream {
        &self.connections[slot]
    }
}

impl IndexMut<UpstreamSlot> for Upstreams {
    fn index_mut(&mut self, slot: UpstreamSlot) -> &mut Upstream {
        &mut self.connections[slot]
    }
}

impl Index<PoolIndex> for Upstreams {
    type Output = Pool;

    fn index(&self, pool: PoolIndex) -> &Pool {
        &self.pools[pool]
    }
}

impl IndexMut<PoolIndex> for Upstreams {
    fn index_mut(&mut self, pool: PoolIndex) -> &mut Pool {
        &mut self.pools[pool]
    }
}
