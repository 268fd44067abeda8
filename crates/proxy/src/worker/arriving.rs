//! Taking clients and connections over from another process: see [`crate::handover`].
//!
//! What is adopted is confirmed before anything of it is handled. What this configuration cannot
//! serve, such as a client of a database that there is no more, is adopted nevertheless, and told.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_wire::error_response::{Severity, SqlState};

use crate::cancel_key::ClientKey;
use crate::client::{
    Account, Arrival, Client, ClientSlot, ClientState, LoginStage, Requester, TransactionState,
};
use crate::console::{ConsoleClient, Rights};
use crate::handover::arriving::Adoption;
use crate::handover::records::{
    AccountRecord, Bytes, ClientRecord, Phase, PoolRecord, StatementRecord, UpstreamRecord, before,
};
use crate::hosts::{Connected, Peer};
use crate::net::{Connection, Stream};
use crate::replies::StatementId;
use crate::session::{ClientSession, ServerSession};
use crate::session_state::Kinds;
use crate::settings::Settings;
use crate::slots::PoolIndex;
use crate::statements::{ClientStatements, Statement};
use crate::upstream::{AdoptedUpstream, Upstream, UpstreamSlot};

use super::{Source, Worker};

/// Why something is not served on.
type Refusal = String;

impl Worker {
    /// Adopts what another process has passed.
    pub(super) fn adopt(&mut self, adoption: Adoption) {
        match adoption {
            Adoption::Statement(statement) => self.adopt_statement(&statement),
            Adoption::Client { number, client, sockets } => {
                if let Err(error) = self.adopt_client(number, *client, sockets) {
                    tracing::warn!(%error, "a client of the process before cannot be served on");
                }
            }
            Adoption::Upstream { number, upstream, sockets } => {
                let socket = sockets.into_iter().next();
                let adopted = socket.ok_or_else(|| "it has no socket".to_owned());
                let adopted = adopted.and_then(|it| self.adopt_upstream(&upstream, it, None));
                let is_own = self.shared.handover.acknowledge(number);
                match adopted {
                    Ok(slot) if !is_own => self.remove_upstream(slot),
                    Ok(slot) => {
                        self.release_upstream(slot);
                        self.follow_ups.resume_upstream(slot);
                    }
                    Err(reason) => tracing::info!(reason, "a connection is not taken over"),
                }
            }
        }
    }

    /// The old process has nothing left.
    pub(super) fn arrived(&mut self) {
        self.adopted_statements.clear();
        self.make_kept_pools();
        self.open_all_missing();
    }

    fn adopt_statement(&mut self, record: &StatementRecord) {
        let id = StatementId(record.id);
        let statement = match &record.definition {
            Some(Bytes(definition)) => {
                let search_path = record.search_path.as_deref();
                self.definitions.adopt(id, definition, search_path, record.is_accepted)
            }
            None => Statement::long(id),
        };
        self.adopted_statements.insert(id, statement);
    }

    fn adopt_client(
        &mut self,
        number: u64,
        record: ClientRecord,
        sockets: Vec<OwnedFd>,
    ) -> std::io::Result<()> {
        let mut sockets = sockets.into_iter();
        let socket = sockets.next().ok_or(std::io::ErrorKind::InvalidData)?;
        let (connected_at, asked) =
            (before(self.now, record.connected_us), before(self.now, record.asked_us));
        let idle_since = record.idle_us.map(|idle_us| before(self.now, idle_us));
        let is_new = matches!(record.phase, Phase::New);
        let key = ClientKey::adopt(&record.key.into()).filter(|_| !is_new);
        let connection = Connection::adopt(
            Stream::adopt(socket)?,
            record.origin,
            record.inbox.0,
            record.outbox.0,
        );
        let (registry, index) = (self.poll.registry(), self.index);
        let (peer, id) = (self.shared.config.peers.id, self.shared.commands.next_id());
        let slot = self.clients.insert_with(|slot| {
            let mut connection = connection;
            connection.register(registry, Source::Client(slot).token())?;
            let key = key.map_or_else(|| ClientKey::new(peer, index, slot), Ok)?;
            let begun = (asked, connected_at, idle_since);
            Ok(Client::adopt((id, key), connection, begun))
        })?;
        self.add_applicant(slot);
        if !is_new {
            let own = Requester { worker: self.index, client: slot };
            let client = &mut self.clients[slot];
            client.arrival = Arrival::Adopted;
            self.shared.handover.adopted.insert(&client.key, own);
            self.accept_applicant(slot);
        }
        let mid_message = record.mid_message_us.map(|mid_us| before(self.now, mid_us));
        self.clients[slot].mid_message_since = mid_message;
        let asked = (asked, record.has_asked);
        let entered = self.enter_phase(slot, record.phase, asked, sockets.next());
        // From here on it is this process's.
        if !self.shared.handover.acknowledge(number) {
            self.give_client_back(slot);
            return Ok(());
        }
        if let Err(reason) = entered {
            let message =
                format!("terminating connection: after a restart {reason}; connect again");
            self.end_client(slot, Severity::Fatal, SqlState::ADMIN_SHUTDOWN, &message);
            return Ok(());
        }
        self.begin_adopted(slot);
        Ok(())
    }

    /// Forgets a client that stays the other process's, without a word to it.
    fn give_client_back(&mut self, slot: ClientSlot) {
        if let Some(own) = self.clients[slot].own_upstream() {
            self.remove_upstream(own);
        }
        if let Some(client) = self.clients.remove(slot) {
            self.applicant_gone(&client);
            self.client_removed(slot, &client);
        }
    }

    /// Goes on with a client that has just been adopted.
    fn begin_adopted(&mut self, slot: ClientSlot) {
        let Some(client) = self.clients.get_mut(slot) else { return };
        client.connection.set_readable(false);
        if client.connection.flush().is_err() {
            return self.lose_client(slot);
        }
        let own = client.own_upstream();
        if client.awaiting_parameters().is_some() {
            self.await_parameters(slot);
        }
        self.follow_ups.resume_client(slot);
        if let Some(own) = own {
            self.upstreams[own].connection.set_readable(false);
            self.follow_ups.resume_upstream(own);
        }
    }

    fn enter_phase(
        &mut self,
        slot: ClientSlot,
        phase: Phase,
        asked: (Instant, bool),
        socket: Option<OwnedFd>,
    ) -> Result<(), Refusal> {
        let peer = self.clients[slot].connection.peer_ip().unwrap_or_default();
        let (account, transaction) = match phase {
            Phase::New => return Ok(()),
            Phase::Console { user, may_order } => {
                let rights = if may_order { Rights::Admin } else { Rights::Stats };
                let own = Requester { worker: self.index, client: slot };
                let console = ConsoleClient::start(&self.in_force, own, (user.into(), rights));
                let console = console.map_err(|error| error.to_string())?;
                self.clients[slot].state = ClientState::Console(console);
                return Ok(());
            }
            Phase::AwaitingParameters(account) => {
                let account = self.adopt_account(*account, peer)?.0;
                let stage = LoginStage::AwaitingParameters(account, None);
                self.clients[slot].state = ClientState::LoggingIn { since: asked.0, stage };
                return Ok(());
            }
            Phase::Idle(account) => (account, TransactionState::Idle { is_held: false }),
            Phase::Refused { account, batch_ends } => {
                (account, TransactionState::Refused { batch_ends })
            }
        };
        let (account, upstream) = self.adopt_account(*account, peer)?;
        let own = match (upstream, socket) {
            (Some(upstream), Some(socket)) => {
                Some(self.adopt_upstream(&upstream, socket, Some(slot))?)
            }
            (None, None) => None,
            _ => return Err("its connection to the server is missing".to_owned()),
        };
        self.clients[slot].state = Client::logged_in(account, own, transaction, asked);
        Ok(())
    }

    /// Returns who a client is by this configuration, and the connection that it keeps.
    fn adopt_account(
        &mut self,
        record: AccountRecord,
        peer: Option<IpAddr>,
    ) -> Result<(Account, Option<Box<UpstreamRecord>>), Refusal> {
        let asked = record.asked;
        let Some(entry) = self.shared.database(&asked).cloned() else {
            return Err(format!("database \"{asked}\" is not configured any more"));
        };
        let users = &self.shared.config.users;
        if record.is_of_users_file && users.find(record.user.as_bytes()).is_none() {
            return Err(format!("user \"{}\" is not in the users file any more", record.user));
        }
        let key = entry.pool_key(&asked, &record.user, (record.pool.mode(), None));
        let pool = self.pool(key).map_err(|error| error.to_string())?;
        let user: Box<str> = record.user.into();
        let (settings, first_settings) =
            (Settings::from(&record.settings), Settings::from(&record.first_settings));
        let own = self.shared.config.user_settings.get(&*user).map(|user| user.timeouts);
        let find = |(name, id): (Bytes, u64)| {
            let statement = self.adopted_statements.get(&StatementId(id))?;
            Some((name.0.into_boxed_slice(), Arc::clone(statement)))
        };
        let statements = record.statements.into_iter().filter_map(find);
        let unnamed = record.unnamed.as_ref().map(|Bytes(definition)| &**definition);
        let mut session = ClientSession::new(first_settings);
        session.statements = ClientStatements::adopt(statements, unnamed);
        session.settings = settings;
        record.custom_names.iter().for_each(|name| session.custom_names.learn(name));
        let named = (entry.database.shown_name(&asked), entry.database.key());
        let identity = self.shared.config.scheduling.identity(&user, named, peer);
        let mut account = Account {
            identity,
            timeouts: Box::new(own.unwrap_or_default().over(entry.database.timeouts)),
            session,
            user,
            asked: asked.into(),
            is_of_users_file: record.is_of_users_file,
            pool,
            place: None,
            is_misplaced: false,
        };
        let counts = self.counts_of_client(&account);
        account.place = Some(self.shared.accounts.clients.adopt(&counts));
        Ok((account, record.upstream))
    }

    /// Returns the pool for a connection of the old process.
    fn adopted_pool(&mut self, record: &PoolRecord) -> Result<PoolIndex, Refusal> {
        let entries = self.shared.entries.iter();
        let entry = entries.clone().find(|entry| entry.database.name == record.entry);
        let entry = entry.ok_or_else(|| "its database is not configured any more".to_owned())?;
        let asked = record.entry.as_ref().unwrap_or(&record.server_database);
        let key = entry.pool_key(asked, &record.user, (record.mode(), None));
        if key.user != record.user || key.server_database != record.server_database {
            return Err("its database leads elsewhere".to_owned());
        }
        self.pool(key).map_err(|error| error.to_string())
    }

    /// Takes a connection to a server over: a client's, or one that has to be released.
    fn adopt_upstream(
        &mut self,
        record: &UpstreamRecord,
        socket: OwnedFd,
        client: Option<ClientSlot>,
    ) -> Result<UpstreamSlot, Refusal> {
        let pool = self.adopted_pool(&record.pool)?;
        let server = Arc::clone(&self.upstreams[pool].server);
        let mut hosts = server.address.hosts.iter();
        let host = hosts.position(|host| host.to_string() == record.host);
        let host = host.ok_or_else(|| format!("{} is no host of its server", record.host))?;
        let stream = Stream::adopt(socket).map_err(|error| error.to_string())?;
        let connection =
            Connection::adopt(stream, record.origin.clone(), record.inbox.0.clone(), Vec::new());
        let state = &mut self.upstreams[pool];
        if let (None, Some(parameters)) = (&state.parameters, &record.parameters) {
            let pair = |(Bytes(a), Bytes(b)): &(Bytes, Bytes)| (a[..].into(), b[..].into());
            state.parameters = Some(parameters.iter().map(pair).collect());
        }
        let adopted = AdoptedUpstream {
            id: self.shared.commands.next_id(),
            connection,
            opened_at: before(self.now, record.opened_us),
            retires_at: record.retires_in_us.map(|us| self.now + Duration::from_micros(us)),
            peer: Peer { host, address: record.address },
            connected: Connected::to(&server.hosts),
            pool,
            session: ServerSession::adopt(
                (Settings::from(&record.settings), record.is_altered),
                Kinds::from_bits(record.pins),
                record.holds_long_statement,
                record.prepared.iter().map(|&id| StatementId(id)),
            ),
            key: record.key.as_ref().map(|key| {
                let secret = key.secret.0.clone().into();
                tidegate_wire::startup::CancelKey { process_id: key.process_id, secret }
            }),
            place: self.shared.accounts.upstreams.adopt(&self.upstreams[pool].bounds.counts),
        };
        let (registry, now) = (self.poll.registry(), self.now);
        let make = |slot, state| {
            let mut upstream = Upstream::adopt(adopted, state, now);
            upstream.connection.register(registry, Source::Upstream(slot).token())?;
            Ok(upstream)
        };
        self.upstreams.adopt(make, client).map_err(|error| error.to_string())
    }
}
