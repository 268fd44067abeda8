//! Logging clients in: the first packet, authentication, and the server's parameters.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_gate::Class;
use tidegate_wire::authentication;
use tidegate_wire::backend::{self, TransactionStatus};
use tidegate_wire::error_response::{Severity, SqlState};
use tidegate_wire::frontend::tag;
use tidegate_wire::input::Input;
use tidegate_wire::startup::{FirstPacket, PROTOCOL_3_0, Startup};

use crate::client::{Account, ClientSlot, ClientState, LoginStage, Requester};
use crate::config::{Database, PoolMode, SslMode};
use crate::handshake::Credentials;
use crate::login::{self, ClientProof, Step};
use crate::session::ClientSession;
use crate::settings::{self, Settings};
use crate::slots::{DatabaseIndex, PoolIndex};
use crate::tls::settings::Acceptor;
use crate::tls::{HANDSHAKE_RECORD, TlsError, certificate};
use crate::upstream::{Pool, PoolKey, ServerParameters};
use crate::users::Secret;

use super::Worker;
use super::clients::Flow;

/// The longest answer to an authentication request.
const PASSWORD_MAX: usize = 10_000;

/// Why a login is refused: the code and the words for the client.
type Refusal = (SqlState<'static>, String);

impl Worker {
    pub(super) fn first_packet(&mut self, slot: ClientSlot, input: &mut Input<'_>) -> Flow {
        if self.clients[slot].connection.has_ended_tls() {
            self.lose_client(slot);
            return Flow::Wait;
        }
        let acceptor = self.shared.acceptor.as_ref();
        let is_in_clear = self.clients[slot].connection.encryption().is_none();
        if let Some(acceptor) = acceptor.filter(|_| is_in_clear)
            && input.look_ahead().bytes().first() == Some(&HANDSHAKE_RECORD)
        {
            let hello = input.look_ahead();
            input.discard();
            return self.begin_tls(slot, &acceptor.get(), hello.bytes());
        }
        match input.first_packet() {
            Ok(None) => Flow::Wait,
            Ok(Some(packet)) => {
                match packet {
                    FirstPacket::Ssl | FirstPacket::GssEnc if !is_in_clear => {
                        return self.violation(slot, "the connection is encrypted already");
                    }
                    FirstPacket::Ssl => return self.answer_tls_request(slot, input),
                    // One byte says no; the client goes on in clear text or goes.
                    FirstPacket::GssEnc => self.send_to_client(slot, b"N"),
                    FirstPacket::Cancel(key) => {
                        self.counters.cancel_requests.fetch_add(1, Ordering::Relaxed);
                        self.clients[slot].state = ClientState::Cancelling { since: self.now };
                        self.route_cancel(key, Requester { worker: self.index, client: slot });
                    }
                    FirstPacket::Startup(startup) => {
                        if let Err((code, message)) = self.start_login(slot, startup) {
                            self.refuse_login(slot, code, &message);
                        }
                    }
                }
                Flow::Next
            }
            Err(error) => self.violation(slot, &error.to_string()),
        }
    }

    /// Says whether TLS may begin, and begins it.
    fn answer_tls_request(&mut self, slot: ClientSlot, input: &Input<'_>) -> Flow {
        let is_local = self.clients[slot].connection.is_local();
        let Some(acceptor) = self.shared.acceptor.as_ref().filter(|_| !is_local) else {
            self.send_to_client(slot, b"N");
            return Flow::Next;
        };
        let acceptor = acceptor.get();
        if !input.is_empty() {
            // It would be taken for encrypted (CVE-2021-23214).
            return self.violation(slot, "received unencrypted data after the request for TLS");
        }
        self.send_to_client(slot, b"S");
        self.begin_tls(slot, &acceptor, &[])
    }

    fn begin_tls(&mut self, slot: ClientSlot, acceptor: &Acceptor, hello: &[u8]) -> Flow {
        let Some(client) = self.clients.get_mut(slot) else {
            return Flow::Wait;
        };
        if let Err(error) = client.connection.accept_tls(acceptor, hello) {
            self.count_tls_failure(slot, &error);
            self.lose_client(slot);
        }
        Flow::Wait
    }

    /// Counts and logs a client whose TLS has failed.
    pub(super) fn count_tls_failure(&mut self, slot: ClientSlot, error: &TlsError) {
        self.counters.tls_failures.fetch_add(1, Ordering::Relaxed);
        if let (Some(client), Some(left_out)) =
            (self.clients.get(slot), self.endings.admit(self.now))
        {
            let peer = client.connection.peer();
            tracing::info!(peer, %error, left_out, "TLS with a client failed");
        }
    }

    /// Returns what TLS says about a client.
    ///
    /// # Errors
    /// TLS is demanded of the client and there is none, or its certificate cannot be read.
    fn client_proof(&self, slot: ClientSlot) -> Result<ClientProof, Refusal> {
        let mode = self.shared.config.client_tls.as_ref().map(|tls| tls.mode);
        let connection = &self.clients[slot].connection;
        let Some(tls) = connection.encryption() else {
            let demands_tls = mode.is_some_and(SslMode::demands_tls) && !connection.is_local();
            let message = "unencrypted connections are not admitted: connect with sslmode=require";
            let refused = (SqlState::INVALID_AUTHORIZATION, message.to_owned());
            return if demands_tls { Err(refused) } else { Ok(ClientProof::default()) };
        };
        let common_name = tls.peer_certificate().map(certificate::common_name).transpose();
        let common_name = common_name.map_err(|error| {
            (SqlState::INVALID_AUTHORIZATION, format!("the client's certificate: {error}"))
        })?;
        Ok(ClientProof {
            common_name: common_name.flatten(),
            has_to_name_user: mode == Some(SslMode::VerifyFull),
            end_point: tls.own_end_point(),
        })
    }

    fn start_login(&mut self, slot: ClientSlot, startup: Startup<'_>) -> Result<(), Refusal> {
        let proof = self.client_proof(slot)?;
        let full = |message| (SqlState::TOO_MANY_CONNECTIONS, message);
        let place = self.place_for_client().map_err(full)?;
        let mut account = self.account(startup)?;
        account.places.push(place);
        let mut out = Vec::new();
        // Clients accept this message only before the first about authentication.
        if let Some(options) = unknown_options(startup) {
            backend::encode_negotiate_protocol(&mut out, options.into_iter());
        }
        let method = self.shared.config.authentication;
        let exchange = login::begin(method, &account.user, &proof, &mut out)
            .map_err(|error| (error.sql_state(), error.to_string()))?;
        let client = &mut self.clients[slot];
        if let Some(exchange) = exchange {
            client.enter_login_stage(LoginStage::Authenticating(account, exchange));
            self.send_to_client(slot, &out);
        } else {
            client.enter_login_stage(LoginStage::AwaitingParameters(account, None));
            self.authenticated(slot, out);
        }
        Ok(())
    }

    /// Returns who the client says it is and what it asks for.
    fn account(&mut self, startup: Startup<'_>) -> Result<Account, Refusal> {
        let violation = |message: &str| (SqlState::PROTOCOL_VIOLATION, message.to_owned());
        let parameters = text_parameters(startup)
            .ok_or_else(|| violation("start-up parameters must be UTF-8"))?;
        let get = |wanted: &str| {
            parameters.iter().rfind(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        };
        let user = get("user").filter(|user| !user.is_empty()).ok_or_else(|| {
            let message = "no PostgreSQL user name specified in startup packet";
            (SqlState::INVALID_AUTHORIZATION, message.to_owned())
        })?;
        if get("replication").is_some_and(|value| !matches!(&*value, "false" | "off" | "no" | "0"))
        {
            let message = "replication connections are not admitted by transactions: \
                           connect to the server directly";
            return Err((SqlState::FEATURE_NOT_SUPPORTED, message.to_owned()));
        }
        let name = get("database").filter(|name| !name.is_empty()).unwrap_or_else(|| user.clone());
        let shared = Arc::clone(&self.shared);
        let (database, entry) = shared.database(&name).ok_or_else(|| {
            (SqlState::INVALID_CATALOG_NAME, format!("database \"{name}\" is not configured here"))
        })?;
        let settings = session_settings(&parameters, entry.mode)?;
        let class = self.class_of(&user, &settings);
        let pool = self.pool(database, entry, &name, &user);
        let first_settings = settings.clone();
        let session = ClientSession { settings, first_settings, ..ClientSession::default() };
        Ok(Account { user: user.into(), class, pool, session, places: Vec::new() })
    }

    fn class_of(&self, user: &str, settings: &Settings) -> Class {
        let high = &self.shared.config.high_priority;
        let is_high = high.users.iter().any(|name| name == user)
            || high.applications.iter().any(|name| name == settings.application_name());
        if is_high { Class::High } else { Class::Normal }
    }

    pub(super) fn pool(
        &mut self,
        database: DatabaseIndex,
        entry: &Database,
        asked: &str,
        client: &str,
    ) -> PoolIndex {
        let key = PoolKey {
            database,
            server_database: entry.server_database.as_deref().unwrap_or(asked).to_owned(),
            user: entry.server_user.as_deref().unwrap_or(client).to_owned(),
        };
        if let Some(pool) = self.upstreams.find_pool(&key) {
            return pool;
        }
        if entry.limits.min_connections > 0 {
            self.announce_pool(&key);
        }
        let shared = &self.shared;
        let bounds = self.bounds_of_pool(&key, shared.server_of[database.0]);
        self.upstreams.pool(key, |key| {
            let secret = match &entry.server_password {
                Some(password) => Some(Secret::Plain(password.clone())),
                None => shared.config.users.get(key.user.as_bytes()).cloned(),
            };
            let channel_binding = entry.tls.channel_binding;
            let user = key.user.clone();
            let users = shared.config.users.clone();
            let credentials = Credentials { user, secret, users, channel_binding };
            Pool::new(key, shared.server_of[database.0], entry.mode, credentials, bounds)
        })
    }

    pub(super) fn authenticate(&mut self, slot: ClientSlot, input: &mut Input<'_>) -> Flow {
        let peeked = match input.peek() {
            Ok(Some(peeked)) => peeked,
            Ok(None) => return Flow::Wait,
            Err(error) => return self.violation(slot, &error.to_string()),
        };
        if peeked.tag() != tag::PASSWORD || peeked.announced_len() > PASSWORD_MAX {
            return self.violation(slot, "expected a password message");
        }
        if !peeked.is_complete() {
            return Flow::Wait;
        }
        let (message, _) = peeked.take();
        let client = &mut self.clients[slot];
        let ClientState::LoggingIn { stage: LoginStage::Authenticating(account, exchange), .. } =
            &mut client.state
        else {
            debug_assert!(false, "only a client that authenticates comes here");
            return Flow::Wait;
        };
        let mut out = Vec::new();
        let users = &self.shared.config.users;
        match login::answer(exchange, &account.user, users, message.payload(), &mut out) {
            Ok(Step::Continue) => self.send_to_client(slot, &out),
            Ok(Step::Proved) => {
                client.await_parameters();
                self.authenticated(slot, out);
            }
            Err(error) => self.refuse_login(slot, error.sql_state(), &error.to_string()),
        }
        Flow::Next
    }

    /// Tells the client that it is who it says it is, after `out`.
    fn authenticated(&mut self, slot: ClientSlot, mut out: Vec<u8>) {
        if let Err(message) = self.admit_client(slot) {
            self.send_to_client(slot, &out);
            return self.refuse_for_room(slot, &message);
        }
        authentication::encode_ok(&mut out);
        self.send_to_client(slot, &out);
        self.await_parameters(slot);
    }

    pub(super) fn refuse_login(&mut self, slot: ClientSlot, code: SqlState<'_>, message: &str) {
        self.counters.logins_failed.fetch_add(1, Ordering::Relaxed);
        self.end_client(slot, Severity::Fatal, code, message);
    }

    /// Ends the login: the server's parameters as this client sees them, its key, and ready.
    pub(super) fn finish_client_login(&mut self, slot: ClientSlot, parameters: &ServerParameters) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        let key = client.key;
        // It may have been told meanwhile that the login takes too long.
        let Some(account) = client.finish_login() else {
            return;
        };
        let mut out = Vec::new();
        for (name, value) in parameters {
            // A client that has set a parameter sees its own value.
            let own = std::str::from_utf8(name).ok();
            let own = own.and_then(|name| account.session.settings.get(name));
            backend::encode_parameter_status(&mut out, name, own.map_or(value, str::as_bytes));
        }
        backend::encode_backend_key_data(&mut out, key);
        backend::encode_ready_for_query(&mut out, TransactionStatus::Idle);
        self.send_to_client(slot, &out);
        self.follow_ups.resume_client(slot);
    }
}

fn text_parameters(startup: Startup<'_>) -> Option<Vec<(String, String)>> {
    startup
        .parameters()
        .map(|(name, value)| {
            let name = std::str::from_utf8(name).ok()?;
            Some((name.to_owned(), std::str::from_utf8(value).ok()?.to_owned()))
        })
        .collect()
}

/// Returns the protocol options (`_pq_.…`) the client asked for, if it has to be told that none is
/// known or that its minor version is not.
fn unknown_options(startup: Startup<'_>) -> Option<Vec<&[u8]>> {
    let names = startup.parameters().map(|(name, _)| name);
    let options: Vec<&[u8]> = names.filter(|name| name.starts_with(b"_pq_.")).collect();
    (startup.protocol != PROTOCOL_3_0 || !options.is_empty()).then_some(options)
}

/// Returns what a client's start-up packet sets, in the form that every connection gets.
fn session_settings(parameters: &[(String, String)], mode: PoolMode) -> Result<Settings, Refusal> {
    let mut wanted = Vec::new();
    for (name, value) in parameters {
        match (name.as_str(), mode) {
            ("user" | "database" | "replication", _) => {}
            (name, _) if name.starts_with("_pq_.") => {}
            ("options", PoolMode::Transaction) => {
                wanted.extend(settings::command_line_options(value).ok_or_else(|| {
                    let message = format!(
                        "options {value:?} cannot be followed in transaction mode: \
                         use -c name=value, or session mode"
                    );
                    (SqlState::FEATURE_NOT_SUPPORTED, message)
                })?);
            }
            _ => wanted.push((name.clone(), value.clone())),
        }
    }
    Settings::from_parameters(wanted.iter().map(|(name, value)| (&**name, &**value)))
        .map_err(|error| (SqlState::PROTOCOL_VIOLATION, error.to_string()))
}
