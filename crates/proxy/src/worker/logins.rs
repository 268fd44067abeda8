//! Logging clients in: the first packet, authentication, and the server's parameters.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use tidegate_wire::authentication;
use tidegate_wire::backend::{self, TransactionStatus};
use tidegate_wire::error_response::{Severity, SqlState};
use tidegate_wire::frontend::tag;
use tidegate_wire::input::Input;
use tidegate_wire::startup::{FirstPacket, PROTOCOL_3_2, Startup};

use crate::client::{
    Account, Applicant, ClientSlot, ClientState, ConsoleAccess, Inquiry, LoginStage, Requester,
};
use crate::config::{PoolMode, SslMode};
use crate::console;
use crate::hba::Request;
use crate::login::{self, ClientProof, Demand, LoginError, LoginFailure, Step};
use crate::replication::Replication;
use crate::scheduling::OWN_SETTINGS;
use crate::session::ClientSession;
use crate::settings::Settings;
use crate::slots::{DatabaseIndex, PoolIndex};
use crate::switches;
use crate::tls::settings::Acceptor;
use crate::tls::{HANDSHAKE_RECORD, TlsError, certificate};
use crate::upstream::{Pool, PoolKey, ServerParameters};

use super::Worker;
use super::clients::Flow;

/// The longest answer to an authentication request.
const PASSWORD_MAX: usize = 10_000;

/// Why a login is refused: for the metrics, and the code and the words for the client.
type Refusal = (LoginFailure, SqlState<'static>, String);

fn refusal(error: &LoginError) -> Refusal {
    (error.failure(), error.sql_state(), error.to_string())
}

/// What a cancel request has in the place of a version.
const CANCEL_CODE: u32 = 80_877_102;

impl Worker {
    pub(super) fn first_packet(&mut self, slot: ClientSlot, input: &mut Input<'_>) -> Flow {
        // Who only asks for a cancel may end TLS behind it.
        let is_cancel =
            input.look_ahead().bytes().get(4..8) == Some(&CANCEL_CODE.to_be_bytes()[..]);
        if self.clients[slot].connection.has_ended_tls() && !is_cancel {
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
                        self.route_cancel(&key, Requester { worker: self.index, client: slot });
                    }
                    FirstPacket::Startup(startup) => {
                        let started = self.start_login(slot, startup);
                        if let Err((failure, code, message)) = started {
                            self.fail_login(slot, failure, code, &message);
                        }
                        let is_looked_up =
                            self.clients.get(slot).is_some_and(|it| it.looking_up().is_some());
                        if is_looked_up && !input.is_empty() {
                            // It would be kept until then.
                            return self.violation(slot, "received data before the challenge");
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
            let code = SqlState::INVALID_AUTHORIZATION;
            let refused = (LoginFailure::Encryption, code, message.to_owned());
            return if demands_tls { Err(refused) } else { Ok(ClientProof::default()) };
        };
        let certificate = tls.peer_certificate();
        let common_name =
            certificate.map(certificate::common_name).transpose().map_err(|error| {
                let message = format!("the client's certificate: {error}");
                (LoginFailure::Certificate, SqlState::INVALID_AUTHORIZATION, message)
            })?;
        Ok(ClientProof {
            has_certificate: certificate.is_some(),
            common_name: common_name.flatten(),
            has_to_name_user: mode == Some(SslMode::VerifyFull),
        })
    }

    fn start_login(&mut self, slot: ClientSlot, startup: Startup<'_>) -> Result<(), Refusal> {
        let proof = self.client_proof(slot)?;
        let (applicant, demand) = self.applicant(slot, startup, &proof)?;
        let applicant = Box::new(applicant);
        let mut out = Vec::new();
        // Clients accept this message only before the first about authentication.
        if let Some(options) = unknown_options(startup) {
            let version = startup.protocol.min(PROTOCOL_3_2);
            backend::encode_negotiate_protocol(&mut out, version, options.into_iter());
        }
        if startup.protocol >= PROTOCOL_3_2 {
            self.clients[slot].key.lengthen();
        }
        match demand {
            Demand::Nothing => self.admit(slot, applicant, out),
            Demand::Password(method) => self.find_user(slot, applicant, method, out),
            Demand::SystemUser { map } => {
                let inquiry = Inquiry::SystemUser { map };
                self.find_system_user(slot, applicant, inquiry, &out)
                    .map_err(|error| refusal(&error))?;
            }
        }
        Ok(())
    }

    /// Returns who the client says it is and what it asks for, and what it has to prove.
    fn applicant(
        &self,
        slot: ClientSlot,
        startup: Startup<'_>,
        proof: &ClientProof,
    ) -> Result<(Applicant, Demand), Refusal> {
        let protocol = |code, message: &str| (LoginFailure::Protocol, code, message.to_owned());
        let parameters = text_parameters(startup).ok_or_else(|| {
            protocol(SqlState::PROTOCOL_VIOLATION, "start-up parameters must be UTF-8")
        })?;
        let get = |wanted: &str| {
            parameters.iter().rfind(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        };
        let user = get("user").filter(|user| !user.is_empty()).ok_or_else(|| {
            let message = "no PostgreSQL user name specified in startup packet";
            protocol(SqlState::INVALID_AUTHORIZATION, message)
        })?;
        let replication = get("replication").map_or(Ok(None), |value| Replication::parse(&value));
        let replication = replication
            .map_err(|error| protocol(SqlState::INVALID_PARAMETER_VALUE, &error.to_string()))?;
        let name = get("database").filter(|name| !name.is_empty()).unwrap_or_else(|| user.clone());
        let request = Request {
            peer: self.peer_ip(slot)?,
            is_encrypted: self.clients[slot].connection.encryption().is_some(),
            user: &user,
            database: &name,
            // As in PostgreSQL, logical replication is a connection to its database.
            is_replication: replication == Some(Replication::Physical),
        };
        let config = &self.shared.config;
        let console = self.console_access(slot, &name, &user);
        if console == Some(ConsoleAccess::Own) {
            return Ok((self.console_applicant(user, console), Demand::Nothing));
        }
        let demand = login::demand(config.authentication, config.hba.as_ref(), &request, proof)
            .map_err(|error| refusal(&error))?;
        if console.is_some() {
            return Ok((self.console_applicant(user, console), demand));
        }
        let entry = self.shared.database(&name).ok_or_else(|| {
            let message = format!("database \"{name}\" is not configured here");
            (LoginFailure::Database, SqlState::INVALID_CATALOG_NAME, message)
        })?;
        let database = &entry.database;
        self.check_orders(database.shown_name(&name))?;
        // What is replicated has a connection of its own, whichever the mode.
        let mode = if replication.is_some() { PoolMode::Session } else { database.mode };
        let settings = session_settings(&parameters, mode)?;
        let named = (database.shown_name(&name), database.key());
        let identity = config.scheduling.identity(&user, named, request.peer);
        let own = self.shared.config.user_settings.get(&user).map(|user| user.timeouts);
        let timeouts = own.unwrap_or_default().over(database.timeouts);
        let key = entry.pool_key(&name, &user, (mode, replication));
        let session = ClientSession::new(settings);
        let applicant = Applicant {
            user: user.into(),
            identity,
            asked: name.into(),
            key,
            is_of_users_file: false,
            timeouts,
            session,
            console: None,
        };
        Ok((applicant, demand))
    }

    /// Checks that an administrator has not ordered to refuse clients of a database.
    fn check_orders(&self, database: &str) -> Result<(), Refusal> {
        let commands = &self.shared.commands;
        let (code, message) = if commands.is_closed() {
            let message = "Tidegate is shutting down and waits for its clients to leave";
            (SqlState::CANNOT_CONNECT_NOW, message.to_owned())
        } else if commands.is_disabled(database) {
            let message = format!("database does not allow connections: {database}");
            (SqlState::NOT_IN_PREREQUISITE_STATE, message)
        } else {
            return Ok(());
        };
        Err((LoginFailure::Disabled, code, message))
    }

    /// Returns a client that asks for the console. Users who are not in the user file are looked up
    /// where those of the first database are that looks users up.
    fn console_applicant(&self, user: String, console: Option<ConsoleAccess>) -> Applicant {
        let asks_server = self.shared.entries.iter().find(|it| it.lookups.is_some());
        let key = PoolKey {
            database: asks_server.map_or(DatabaseIndex(usize::MAX), |entry| entry.index),
            server_database: console::DATABASES[0].to_owned(),
            user: user.clone(),
            mode: PoolMode::Session,
            replication: None,
        };
        let named = (console::DATABASES[0], "");
        let identity = self.shared.config.scheduling.identity(&user, named, None);
        let timeouts = self.shared.config.timeouts.client;
        let session = ClientSession::default();
        Applicant {
            user: user.into(),
            identity,
            asked: console::DATABASES[0].into(),
            key,
            is_of_users_file: false,
            timeouts,
            session,
            console,
        }
    }

    /// Returns where a client is; `None` is on this machine, by a Unix-domain socket.
    fn peer_ip(&self, slot: ClientSlot) -> Result<Option<IpAddr>, Refusal> {
        self.clients[slot].connection.peer_ip().map_err(|error| {
            let message = format!("the client has gone: {error}");
            (LoginFailure::Protocol, SqlState::CONNECTION_FAILURE, message)
        })
    }

    /// Returns the pool of a client that has been let in; makes it if there is none.
    ///
    /// # Errors
    /// Its entry is configured no more, or there are as many pools as can be.
    pub(super) fn pool(&mut self, key: PoolKey) -> std::io::Result<PoolIndex> {
        if let Some(pool) = self.upstreams.find_pool(&key) {
            return Ok(pool);
        }
        let Some(entry) = self.shared.entry(key.database).cloned() else {
            return Err(std::io::Error::other("the database is configured here no more"));
        };
        self.announce_pool(&key);
        let bounds = self.bounds_of_pool(&key, &entry);
        let credentials = self.credentials(&key, &entry);
        let name = entry.database.shown_name(&key.server_database).to_owned();
        let orders = self.shared.commands.of(&name);
        let times = self.counters.databases.of(&name);
        let pool = Pool::new((key, name, orders), entry, credentials, bounds, times);
        self.upstreams.add_pool(pool)
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
        let ClientState::LoggingIn {
            stage: LoginStage::Authenticating(applicant, exchange), ..
        } = &mut client.state
        else {
            debug_assert!(false, "only a client that authenticates comes here");
            return Flow::Wait;
        };
        let mut out = Vec::new();
        match login::answer(exchange, &applicant.user, message.payload(), &mut out) {
            Ok(Step::Continue) => self.send_to_client(slot, &out),
            Ok(Step::Proved) => {
                if let Some(applicant) = client.take_applicant() {
                    self.admit(slot, applicant, out);
                }
            }
            Err(error) => {
                if let (LoginError::Password { .. }, Some(lookups)) =
                    (&error, self.shared.lookups(applicant.key.database))
                {
                    lookups.doubt(&applicant.user);
                }
                self.fail_login_by(slot, &error);
            }
        }
        Flow::Next
    }

    /// Lets a client in that is who it says it is, and tells it so, after `out`.
    pub(super) fn admit(&mut self, slot: ClientSlot, applicant: Box<Applicant>, mut out: Vec<u8>) {
        if let Some(access) = applicant.console {
            return self.admit_to_console(slot, applicant.user, access, out);
        }
        let Applicant { user, identity, asked, key, is_of_users_file, timeouts, session, .. } =
            *applicant;
        // The configuration may be another one than when it came.
        let pool = match self.key_when_let_in(&asked, &user, &key).map(|key| self.pool(key)) {
            Ok(Ok(pool)) => pool,
            Ok(Err(error)) => {
                let code = SqlState::TOO_MANY_CONNECTIONS;
                return self.fail_login(slot, LoginFailure::Server, code, &error.to_string());
            }
            Err((failure, code, message)) => {
                return self.fail_login(slot, failure, code, &message);
            }
        };
        let (timeouts, is_misplaced, place) = (Box::new(timeouts), false, None);
        let account = Account {
            user,
            identity,
            timeouts,
            asked,
            pool,
            is_of_users_file,
            is_misplaced,
            session,
            place,
        };
        self.accept_applicant(slot);
        self.clients[slot].enter_login_stage(LoginStage::AwaitingParameters(account, None));
        if let Err(message) = self.admit_client(slot) {
            self.send_to_client(slot, &out);
            return self.refuse_for_room(slot, &message);
        }
        authentication::encode_ok(&mut out);
        self.send_to_client(slot, &out);
        self.await_parameters(slot);
    }

    /// Refuses a client that has been let in, for want of a server.
    pub(super) fn refuse_login(&mut self, slot: ClientSlot, code: SqlState<'_>, message: &str) {
        self.fail_login(slot, LoginFailure::Server, code, message);
    }

    /// Refuses a client because of what it has shown.
    pub(super) fn fail_login_by(&mut self, slot: ClientSlot, error: &LoginError) {
        self.fail_login(slot, error.failure(), error.sql_state(), &error.to_string());
    }

    /// Refuses a client, and counts it.
    pub(super) fn fail_login(
        &mut self,
        slot: ClientSlot,
        failure: LoginFailure,
        code: SqlState<'_>,
        message: &str,
    ) {
        self.counters.login_failures[failure as usize].fetch_add(1, Ordering::Relaxed);
        tracing::debug!(failure = failure.label(), "login refused");
        self.end_client(slot, Severity::Fatal, code, message);
    }

    /// Ends the login: the server's parameters as this client sees them, its key, and ready.
    pub(super) fn finish_client_login(&mut self, slot: ClientSlot, parameters: &ServerParameters) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        let key = client.key.shown();
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
        backend::encode_backend_key_data(&mut out, &key);
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
    (startup.protocol > PROTOCOL_3_2 || !options.is_empty()).then_some(options)
}

/// Returns what a client's start-up packet sets, in the form that every connection gets.
fn session_settings(parameters: &[(String, String)], mode: PoolMode) -> Result<Settings, Refusal> {
    let mut wanted = Vec::new();
    for (name, value) in parameters {
        match (name.as_str(), mode) {
            ("user" | "database" | "replication", _) => {}
            (name, _) if name.starts_with("_pq_.") => {}
            ("options", PoolMode::Transaction) => {
                wanted.extend(switches::settings(value).ok_or_else(|| {
                    let message = format!(
                        "options {value:?} cannot be followed in transaction mode: \
                         use -c name=value, or session mode"
                    );
                    (LoginFailure::Protocol, SqlState::FEATURE_NOT_SUPPORTED, message)
                })?);
            }
            ("options", PoolMode::Session) => {
                wanted.push((name.clone(), value.clone()));
                // The server reads them; the proxy has to know what is meant for it.
                let settings = switches::settings(value).unwrap_or_default();
                wanted.extend(settings.into_iter().filter(|(name, _)| {
                    OWN_SETTINGS.iter().any(|own| own.eq_ignore_ascii_case(name))
                }));
            }
            _ => wanted.push((name.clone(), value.clone())),
        }
    }
    Settings::from_parameters(wanted.iter().map(|(name, value)| (&**name, &**value)))
        .map_err(|error| (LoginFailure::Protocol, SqlState::PROTOCOL_VIOLATION, error.to_string()))
}
