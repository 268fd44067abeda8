//! Passing clients and connections to a process that takes over: see [`crate::handover`].
//!
//! From the order to leave on, no permit is granted here and no client accepted. At the end of each
//! turn of the loop, what is at rest by then is passed: clients without a running transaction, in
//! the order in which they asked for their next one, and connections that no client has. What was
//! passed is in a state of its own, in which nothing of it is handled, until the new process has
//! confirmed it; or until that has ended, when it is as before.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use std::time::Instant;

use crate::client::{
    Account, Arrival, Client, ClientSlot, ClientState, LoggedIn, LoginStage, PassedClient,
    TransactionState,
};
use crate::config::PoolMode;
use crate::console::Rights;
use crate::handover::leaving::Successor;
use crate::handover::records::{
    AccountRecord, Bytes, ClientRecord, Phase, PoolRecord, StatementRecord, Told, UpstreamRecord,
    ago, micros,
};
use crate::net::{Connection, Stream};
use crate::replies::StatementId;
use crate::slots::PoolIndex;
use crate::statements::Statement;
use crate::upstream::{Upstream, UpstreamSlot};

use super::{Source, Worker};

/// Clients and connections on their way at once, at most.
const PASSING_MAX: usize = 128;

/// A client that cannot be passed yet is read no further than this.
const INBOX_MAX: usize = 64 * 1024;

/// What is on its way to the new process.
#[derive(Clone, Copy, Debug)]
enum Passing {
    Client(ClientSlot),
    Upstream(UpstreamSlot),
}

/// A hand-over from this event loop.
pub(super) struct Leaving {
    successor: Arc<Successor>,
    /// The new process knows what is still granted here.
    may_pass: bool,
    /// Statements that it knows.
    told: HashSet<StatementId>,
    passing: HashMap<u64, Passing>,
    /// Something at rest is left for the next turn.
    pub(super) has_more: bool,
    was_empty: bool,
}

/// What another process gets: the socket, or a socket pair's end if there is TLS, and this end.
struct Passage {
    socket: OwnedFd,
    relay: Option<Stream>,
}

impl Passage {
    fn of(connection: &Connection) -> std::io::Result<Passage> {
        if !connection.has_tls() {
            let socket = connection.socket().try_clone_to_owned()?;
            return Ok(Passage { socket, relay: None });
        }
        let (near, far) = UnixStream::pair()?;
        Ok(Passage { socket: far.into(), relay: Some(Stream::adopt(near.into())?) })
    }
}

impl Worker {
    /// Grants nothing and accepts none from now on.
    pub(super) fn leave(&mut self, successor: Arc<Successor>) {
        self.acceptor.pause(self.poll.registry());
        successor.obeyed();
        self.leaving = Some(Leaving {
            successor,
            may_pass: false,
            told: HashSet::new(),
            passing: HashMap::new(),
            has_more: false,
            was_empty: false,
        });
        // Tickets and permits that run nothing return.
        for slot in self.clients.slots() {
            self.clients[slot].ask_again_later();
        }
    }

    /// Passes on what is at rest from now on.
    pub(super) fn begin_to_pass(&mut self) {
        if let Some(leaving) = &mut self.leaving {
            leaving.may_pass = true;
        }
    }

    /// Returns whether a client that waits to be passed is to be read no further.
    pub(super) fn has_read_enough(&self, client: &Client) -> bool {
        self.leaving.is_some()
            && client.connection.inbox.len() >= INBOX_MAX
            && client.running().is_none()
    }

    /// Passes on what is at rest, and says what is left.
    pub(super) fn pass_on(&mut self) {
        if !self.leaving.as_ref().is_some_and(|leaving| leaving.may_pass) {
            return;
        }
        let has_more_clients = self.pass_clients();
        let has_more_connections = self.pass_connections();
        let is_empty = self.clients.is_empty()
            && self.upstreams.open_count() == 0
            && self.cancel_requests.is_empty();
        let Some(leaving) = &mut self.leaving else { return };
        leaving.has_more = has_more_clients || has_more_connections;
        leaving.successor.tell_held(&self.shared);
        if std::mem::replace(&mut leaving.was_empty, is_empty) != is_empty {
            leaving.successor.empty(self.index, is_empty);
        }
    }

    /// Returns how many more may be on their way.
    fn room(&self) -> usize {
        let passing = self.leaving.as_ref().map_or(0, |leaving| leaving.passing.len());
        PASSING_MAX.saturating_sub(passing)
    }

    /// Returns whether there are more than could be passed, for which an answer is not awaited.
    fn pass_clients(&mut self) -> bool {
        let waits = |client: &Client| {
            (client.connection.inbox.is_empty(), client.asked_at().unwrap_or(client.connected_at))
        };
        let mut ready: Vec<((bool, Instant), ClientSlot)> = self
            .clients
            .iter()
            .filter(|(_, client)| self.may_pass_client(client))
            .map(|(slot, client)| (waits(client), slot))
            .collect();
        ready.sort_by_key(|(waits, _)| *waits);
        let (room, count) = (self.room(), ready.len());
        for (_, slot) in ready.into_iter().take(room) {
            if let Err(error) = self.pass_client(slot) {
                tracing::warn!(%error, "a client cannot be passed now");
                return false;
            }
        }
        count > room && room > 0
    }

    fn may_pass_client(&self, client: &Client) -> bool {
        let is_ordinary = |account: &Account| !self.upstreams[account.pool].is_for_replication();
        if !client.connection.passing.is_none() || client.connection.has_ended_tls() {
            return false;
        }
        match &client.state {
            ClientState::LoggingIn { stage: LoginStage::FirstPacket, .. } => {
                client.arrival != Arrival::Forwarded
                    && !client.connection.has_begun_tls()
                    && client.connection.inbox.is_empty()
            }
            ClientState::LoggingIn {
                stage: LoginStage::AwaitingParameters(account, None), ..
            } => is_ordinary(account),
            ClientState::Console(console) => !console.is_busy,
            ClientState::LoggedIn(LoggedIn { account, own_upstream, transaction, .. }) => {
                use TransactionState::{Idle, Refused};
                let own = own_upstream.and_then(|own| self.upstreams.get(own));
                matches!(transaction, Idle { is_held: false } | Refused { .. })
                    && is_ordinary(account)
                    && account.session.statements.are_settled()
                    && (own_upstream.is_none() || own.is_some_and(Upstream::may_be_passed))
            }
            _ => false,
        }
    }

    fn pass_client(&mut self, slot: ClientSlot) -> std::io::Result<()> {
        let own = self.clients[slot].own_upstream();
        let Passage { socket, relay } = Passage::of(&self.clients[slot].connection)?;
        let own_passage =
            own.map(|own| Passage::of(&self.upstreams[own].connection)).transpose()?;
        let Some(phase) = self.phase(slot, own) else { return Ok(()) };
        let client = &mut self.clients[slot];
        let outbox = if relay.is_some() { Vec::new() } else { client.connection.unsent().to_vec() };
        let asked = client.asked_at().or_else(|| client.login_or_end_since());
        let record = ClientRecord {
            phase,
            key: (&client.key.shown()).into(),
            connected_us: ago(client.connected_at, self.now),
            asked_us: ago(asked.unwrap_or(self.now), self.now),
            has_asked: client.has_asked(),
            mid_message_us: client.mid_message_since.map(|since| ago(since, self.now)),
            idle_us: client.idle_since().map(|since| ago(since, self.now)),
            inbox: Bytes(client.connection.inbox.clone()),
            outbox: Bytes(outbox),
            origin: client.connection.origin(),
        };
        client.connection.deregister(self.poll.registry())?;
        let before = std::mem::replace(&mut client.state, ClientState::Closing { since: self.now });
        let passed = PassedClient { before, upstream: own, relay, cancels: Vec::new() };
        client.state = ClientState::Passing(Box::new(passed));
        client.mid_message_since = None;
        let mut sockets = vec![socket];
        if let (Some(own), Some(Passage { socket, relay })) = (own, own_passage) {
            sockets.push(socket);
            self.begin_passing(own, relay);
        }
        self.tell_passing(Passing::Client(slot), sockets, |worker, number| Told::Client {
            worker,
            number,
            client: Box::new(record),
        });
        Ok(())
    }

    /// Stops watching a connection that is on its way.
    fn begin_passing(&mut self, slot: UpstreamSlot, relay: Option<Stream>) {
        if let Err(error) = self.upstreams[slot].connection.deregister(self.poll.registry()) {
            tracing::debug!(%error, "a connection was not watched");
        }
        self.upstreams.begin_passing(slot, relay, self.now);
    }

    fn tell_passing(
        &mut self,
        passing: Passing,
        sockets: Vec<OwnedFd>,
        told: impl FnOnce(usize, u64) -> Told,
    ) {
        let Some(leaving) = &mut self.leaving else {
            debug_assert!(false, "only a process that leaves passes anything");
            return;
        };
        let number = leaving.successor.next_number();
        leaving.passing.insert(number, passing);
        leaving.successor.tell(&told(self.index.0, number), sockets);
    }

    fn phase(&mut self, slot: ClientSlot, own: Option<UpstreamSlot>) -> Option<Phase> {
        self.tell_statements(slot);
        let client = &self.clients[slot];
        let account = client.account().map(|account| Box::new(self.account_record(account, own)));
        Some(match &client.state {
            ClientState::LoggingIn { stage: LoginStage::FirstPacket, .. } => Phase::New,
            ClientState::LoggingIn { .. } => Phase::AwaitingParameters(account?),
            ClientState::Console(console) => Phase::Console {
                user: console.user.to_string(),
                may_order: console.rights == Rights::Admin,
            },
            _ => match client.transaction()? {
                TransactionState::Refused { batch_ends } => {
                    Phase::Refused { account: account?, batch_ends: *batch_ends }
                }
                _ => Phase::Idle(account?),
            },
        })
    }

    /// Tells the new process the statements of a client that it does not know.
    fn tell_statements(&mut self, slot: ClientSlot) {
        let Some(leaving) = &mut self.leaving else { return };
        let Some(account) = self.clients[slot].account() else { return };
        for (_, statement) in account.session.statements.named() {
            if leaving.told.insert(statement.id) {
                let statement = statement_record(statement);
                let told = Told::Statement { worker: self.index.0, statement };
                leaving.successor.tell(&told, Vec::new());
            }
        }
    }

    fn account_record(&self, account: &Account, own: Option<UpstreamSlot>) -> AccountRecord {
        let session = &account.session;
        let named = session.statements.named();
        AccountRecord {
            user: account.user.to_string(),
            asked: account.asked.to_string(),
            is_of_users_file: account.is_of_users_file,
            pool: self.pool_record(account.pool),
            settings: (&session.settings).into(),
            first_settings: (&session.first_settings).into(),
            custom_names: session.custom_names.iter().map(str::to_owned).collect(),
            statements: named.map(|(name, it)| (Bytes(name.to_vec()), it.id.0)).collect(),
            unnamed: session.statements.unnamed().map(|it| Bytes(it.to_vec())),
            upstream: own.map(|own| Box::new(self.upstream_record(own))),
        }
    }

    fn pool_record(&self, pool: PoolIndex) -> PoolRecord {
        let state = &self.upstreams[pool];
        PoolRecord {
            entry: state.entry.database.name.clone(),
            server_database: state.key.server_database.clone(),
            user: state.key.user.clone(),
            is_session_mode: state.key.mode == PoolMode::Session,
        }
    }

    fn upstream_record(&self, slot: UpstreamSlot) -> UpstreamRecord {
        let upstream = &self.upstreams[slot];
        let pool = &self.upstreams[upstream.pool];
        let hosts = &pool.server.hosts;
        let parameters = pool.parameters.as_ref().map(|parameters| {
            parameters.iter().map(|(a, b)| (Bytes(a.to_vec()), Bytes(b.to_vec()))).collect()
        });
        let retires_in = upstream.retires_at.map(|at| at.saturating_duration_since(self.now));
        UpstreamRecord {
            pool: self.pool_record(upstream.pool),
            parameters,
            host: hosts.address(upstream.peer.host).to_string(),
            address: upstream.peer.address,
            key: upstream.key.as_ref().map(Into::into),
            opened_us: ago(upstream.opened_at, self.now),
            retires_in_us: retires_in.map(micros),
            settings: (&upstream.session.settings).into(),
            is_altered: upstream.session.is_altered,
            pins: upstream.session.watch.pins.bits(),
            holds_long_statement: upstream.session.holds_long_statement,
            prepared: upstream.session.prepared_by_use().into_iter().map(|id| id.0).collect(),
            inbox: Bytes(upstream.connection.inbox.clone()),
            origin: upstream.connection.origin(),
        }
    }

    /// Passes connections that no client has. Those with TLS are closed: the new process opens its
    /// own. Returns whether there are more than could be passed.
    fn pass_connections(&mut self) -> bool {
        for pool in self.upstreams.pools() {
            for slot in self.upstreams.idle_of(pool) {
                if self.upstreams[slot].connection.has_tls() {
                    self.close_upstream(slot);
                    continue;
                }
                if !self.upstreams[slot].may_be_passed() {
                    continue;
                }
                if self.room() == 0 {
                    return false;
                }
                match Passage::of(&self.upstreams[slot].connection) {
                    Ok(Passage { socket, .. }) => self.pass_upstream(slot, socket),
                    Err(error) => {
                        tracing::warn!(%error, "a connection cannot be passed and is closed");
                        self.close_upstream(slot);
                    }
                }
            }
        }
        false
    }

    fn pass_upstream(&mut self, slot: UpstreamSlot, socket: OwnedFd) {
        let upstream = Box::new(self.upstream_record(slot));
        self.begin_passing(slot, None);
        let passing = Passing::Upstream(slot);
        self.tell_passing(passing, vec![socket], |worker, number| Told::Upstream {
            worker,
            number,
            upstream,
        });
    }

    /// What was passed with this number is the new process's.
    pub(super) fn passed(&mut self, number: u64) {
        let passing = self.leaving.as_mut().and_then(|it| it.passing.remove(&number));
        match passing {
            Some(Passing::Client(slot)) => self.client_passed(slot),
            Some(Passing::Upstream(slot)) => self.upstream_passed(slot),
            None => {}
        }
    }

    fn client_passed(&mut self, slot: ClientSlot) {
        let Some(mut client) = self.clients.remove(slot) else { return };
        self.applicant_gone(&client);
        self.client_removed(slot, &client);
        let closing = ClientState::Closing { since: self.now };
        let ClientState::Passing(passed) = std::mem::replace(&mut client.state, closing) else {
            return;
        };
        if let Some(relay) = passed.relay {
            self.shared.handover.relays.add(client.connection, relay);
        }
        if let Some(upstream) = passed.upstream {
            self.upstream_passed(upstream);
        }
        for (_, requester) in passed.cancels {
            self.tell(Some(requester));
        }
    }

    fn upstream_passed(&mut self, slot: UpstreamSlot) {
        let removed = self.upstreams.remove(slot);
        if let Some((connection, relay)) = removed.and_then(Upstream::into_relay) {
            self.shared.handover.relays.add(connection, relay);
        }
    }

    /// The new process has ended: takes back what it has not confirmed, and goes on as before.
    pub(super) fn stay(&mut self) {
        let Some(leaving) = self.leaving.take() else { return };
        for passing in leaving.passing.into_values() {
            match passing {
                Passing::Client(slot) => self.take_client_back(slot),
                Passing::Upstream(slot) => self.take_upstream_back(slot),
            }
        }
        if self.stopping.is_some() {
            return;
        }
        self.acceptor.resume(&self.poll);
        for slot in self.clients.slots() {
            self.follow_ups.resume_client(slot);
        }
        for slot in self.clients.slots() {
            if self.clients[slot].awaiting_parameters().is_some()
                && self.clients[slot].upstream().is_none()
            {
                self.upstreams.forget_login(slot);
                self.outages.forget_session(slot);
                self.await_parameters(slot);
            }
        }
        self.open_all_missing();
    }

    fn take_client_back(&mut self, slot: ClientSlot) {
        let (registry, closing) = (self.poll.registry(), ClientState::Closing { since: self.now });
        let Some(client) = self.clients.get_mut(slot) else { return };
        let ClientState::Passing(passed) = std::mem::replace(&mut client.state, closing) else {
            return;
        };
        client.state = passed.before;
        let registered = client.connection.register(registry, Source::Client(slot).token());
        client.connection.set_readable(false);
        if let Some(upstream) = passed.upstream {
            self.take_upstream_back(upstream);
        }
        if let Err(error) = registered {
            tracing::warn!(%error, "a client cannot be served on");
            return self.lose_client(slot);
        }
        for (key, requester) in passed.cancels {
            self.cancel(&key, requester);
        }
    }

    fn take_upstream_back(&mut self, slot: UpstreamSlot) {
        let registry = self.poll.registry();
        let Some(upstream) = self.upstreams.get_mut(slot) else { return };
        let registered = upstream.connection.register(registry, Source::Upstream(slot).token());
        upstream.connection.set_readable(false);
        let is_free = self.upstreams.end_passing(slot, self.now);
        if registered.is_err() {
            return self.close_upstream(slot);
        }
        if is_free {
            self.release_upstream(slot);
        }
        self.follow_ups.resume_upstream(slot);
    }
}

fn statement_record(statement: &Statement) -> StatementRecord {
    StatementRecord {
        id: statement.id.0,
        definition: statement.definition.as_ref().map(|it| Bytes(it.to_vec())),
        search_path: statement.search_path.as_deref().map(str::to_owned),
        is_accepted: statement.is_accepted(),
    }
}
