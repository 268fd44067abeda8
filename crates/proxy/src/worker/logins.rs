//! Logging clients in: the first packet, authentication, and what the server says of itself.

use std::sync::atomic::Ordering;

use tidegate_gate::Class;
use tidegate_wire::authentication;
use tidegate_wire::backend::{self, TransactionStatus};
use tidegate_wire::error_response::{Severity, SqlState};
use tidegate_wire::frontend::tag;
use tidegate_wire::input::Input;
use tidegate_wire::startup::{FirstPacket, PROTOCOL_3_0, Startup};

use crate::client::{ClientKey, Phase, Requester};
use crate::config::{Database, PoolMode};
use crate::handshake::Credentials;
use crate::login::{self, Step};
use crate::pool::{Pool, PoolKey, Welcome};
use crate::settings::{self, Settings};
use crate::users::Secret;

use super::Worker;
use super::clients::Flow;

/// The longest answer to an authentication request.
const PASSWORD_MAX: usize = 10_000;

impl Worker {
    pub(super) fn first_packet(&mut self, slot: ClientKey, input: &mut Input<'_>) -> Flow {
        match input.first_packet() {
            Ok(None) => Flow::Wait,
            Ok(Some(packet)) => {
                match packet {
                    // One byte says no; the client goes on in clear text or goes.
                    FirstPacket::Ssl | FirstPacket::GssEnc => self.send_to_client(slot, b"N"),
                    FirstPacket::Cancel(key) => {
                        self.counters.cancel_requests.fetch_add(1, Ordering::Relaxed);
                        self.clients[slot].phase = Phase::Cancelling;
                        self.route_cancel(key, Requester { worker: self.index, client: slot });
                    }
                    FirstPacket::Startup(startup) => self.startup(slot, startup),
                }
                Flow::Next
            }
            Err(error) => {
                self.counters.protocol_errors.fetch_add(1, Ordering::Relaxed);
                let message = error.to_string();
                self.end_client(slot, Severity::Fatal, SqlState::PROTOCOL_VIOLATION, &message);
                Flow::Wait
            }
        }
    }

    fn startup(&mut self, slot: ClientKey, startup: Startup<'_>) {
        if let Err((code, message)) = self.try_startup(slot, startup) {
            self.refuse_login(slot, code, &message);
        }
    }

    fn try_startup(
        &mut self,
        slot: ClientKey,
        startup: Startup<'_>,
    ) -> Result<(), (SqlState<'static>, String)> {
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
        let shared = std::sync::Arc::clone(&self.shared);
        let (database, entry) = shared.database(&name).ok_or_else(|| {
            (SqlState::INVALID_CATALOG_NAME, format!("database \"{name}\" is not configured here"))
        })?;
        let settings = session_settings(&parameters, entry.mode)?;
        let class = self.class_of(&user, &settings);
        let pool = self.pool(database, entry, &name, &user);
        let client = &mut self.clients[slot];
        client.user = user.into();
        client.class = class;
        client.session.settings = settings;
        client.pool = Some(pool);
        self.begin_authentication(slot, unknown_options(startup));
        Ok(())
    }

    fn class_of(&self, user: &str, settings: &Settings) -> Class {
        let high = &self.shared.config.high_priority;
        let application = settings.get_or("application_name", "");
        let is_high = high.users.iter().any(|name| name == user)
            || high.applications.iter().any(|name| name == application);
        if is_high { Class::High } else { Class::Normal }
    }

    fn pool(&mut self, database: usize, entry: &Database, asked: &str, client: &str) -> usize {
        let user = entry.server_user.as_deref().unwrap_or(client);
        let key = PoolKey {
            database,
            server_database: entry.server_database.as_deref().unwrap_or(asked).to_owned(),
            user: user.to_owned(),
        };
        if let Some(&pool) = self.pool_of.get(&key) {
            return pool;
        }
        let users = &self.shared.config.users;
        let secret = match &entry.server_password {
            Some(password) => Some(Secret::Plain(password.clone())),
            None => users.get(user.as_bytes()).cloned(),
        };
        let credentials = Credentials { user: user.to_owned(), secret };
        let server = self.shared.server_of[database];
        self.pools.push(Pool::new(key.clone(), server, entry.mode, credentials));
        self.pool_of.insert(key, self.pools.len() - 1);
        self.pools.len() - 1
    }

    fn begin_authentication(&mut self, slot: ClientKey, unknown: Option<Vec<&[u8]>>) {
        let mut out = Vec::new();
        // Clients accept this message only before the first about authentication.
        if let Some(options) = unknown {
            backend::encode_negotiate_protocol(&mut out, options.into_iter());
        }
        let step = login::begin(self.shared.config.authentication, &mut out);
        self.authentication_step(slot, step, out);
    }

    pub(super) fn authenticate(&mut self, slot: ClientKey, input: &mut Input<'_>) -> Flow {
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
        // The phase is set anew by the step that follows.
        let Phase::Authenticating(exchange) = std::mem::replace(&mut client.phase, Phase::Closing)
        else {
            return Flow::Wait;
        };
        let mut out = Vec::new();
        let users = &self.shared.config.users;
        let step = login::answer(exchange, &client.user, users, message.payload(), &mut out);
        self.authentication_step(slot, step, out);
        Flow::Next
    }

    fn authentication_step(
        &mut self,
        slot: ClientKey,
        step: Result<Step, login::LoginError>,
        mut out: Vec<u8>,
    ) {
        match step {
            Ok(Step::Continue(exchange)) => {
                self.clients[slot].phase = Phase::Authenticating(exchange);
                self.send_to_client(slot, &out);
            }
            Ok(Step::Proved) => {
                authentication::encode_ok(&mut out);
                self.clients[slot].phase = Phase::Welcoming;
                self.send_to_client(slot, &out);
                self.await_welcome(slot);
            }
            Err(error) => self.refuse_login(slot, error.sql_state(), &error.to_string()),
        }
    }

    pub(super) fn refuse_login(&mut self, slot: ClientKey, code: SqlState<'_>, message: &str) {
        self.counters.logins_failed.fetch_add(1, Ordering::Relaxed);
        self.end_client(slot, Severity::Fatal, code, message);
    }

    /// Ends the login: the server's parameters as this client sees them, its key, and ready.
    pub(super) fn welcome(&mut self, slot: ClientKey, welcome: &Welcome) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        let mut out = Vec::new();
        for (name, value) in welcome {
            let reported = std::str::from_utf8(name)
                .ok()
                .and_then(|name| client.session.settings.get(name))
                .map_or(&**value, str::as_bytes);
            backend::encode_parameter_status(&mut out, name, reported);
        }
        backend::encode_backend_key_data(&mut out, client.key);
        backend::encode_ready_for_query(&mut out, TransactionStatus::Idle);
        client.phase = Phase::Idle;
        client.login_since = None;
        self.send_to_client(slot, &out);
        self.resume_later(slot);
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

/// Protocol options (`_pq_.…`) the client asked for, if it has to be told that none is known or
/// that its minor version is not.
fn unknown_options(startup: Startup<'_>) -> Option<Vec<&[u8]>> {
    let names = startup.parameters().map(|(name, _)| name);
    let options: Vec<&[u8]> = names.filter(|name| name.starts_with(b"_pq_.")).collect();
    (startup.protocol != PROTOCOL_3_0 || !options.is_empty()).then_some(options)
}

/// What a client's start-up packet wants set, in the form in which it follows the client about.
fn session_settings(
    parameters: &[(String, String)],
    mode: PoolMode,
) -> Result<Settings, (SqlState<'static>, String)> {
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
