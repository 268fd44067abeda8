//! The simple and the extended protocol, for a client of the console.
//!
//! Results are texts. A Bind that asks for binary ones is refused, because it would be misread.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_wire::backend::{self, TransactionStatus};
use tidegate_wire::error_response::{self, Severity, SqlState};
use tidegate_wire::frontend::{self, Target, tag};
use tidegate_wire::startup::CancelKey;

use super::run::{self, Failure, Outcome};
use super::statement::{self, Command};
use super::{Caller, Flags};
use crate::shared::InForce;

/// Statements and portals of a client at once.
const NAMES_MAX: usize = 1000;

/// The version of PgBouncer whose console this one is like.
pub(super) const PGBOUNCER_VERSION: &str = "1.24.1";

/// Appends what ends a login to the console.
pub(crate) fn greet(out: &mut Vec<u8>, key: &CancelKey) {
    let version = format!("{PGBOUNCER_VERSION}/tidegate");
    let parameters = [
        ("server_version", &*version),
        ("client_encoding", "UTF8"),
        ("server_encoding", "UTF8"),
        ("DateStyle", "ISO"),
        ("TimeZone", "GMT"),
        ("standard_conforming_strings", "on"),
        ("is_superuser", "on"),
    ];
    for (name, value) in parameters {
        backend::encode_parameter_status(out, name.as_bytes(), value.as_bytes());
    }
    backend::encode_backend_key_data(out, key);
    backend::encode_ready_for_query(out, TransactionStatus::Idle);
}

/// A client's session.
pub(super) struct Session<'a> {
    in_force: Arc<InForce>,
    caller: Caller,
    flags: &'a Flags,
    /// The commands of statements by name; `None` is an empty query.
    statements: HashMap<Vec<u8>, Option<Command>>,
    portals: HashMap<Vec<u8>, Option<Command>>,
    /// After an error, messages are skipped up to the next Sync.
    is_skipping: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(in_force: Arc<InForce>, caller: Caller, flags: &'a Flags) -> Self {
        Session {
            in_force,
            caller,
            flags,
            statements: HashMap::new(),
            portals: HashMap::new(),
            is_skipping: false,
        }
    }

    /// Returns the answer to a message.
    pub(super) fn message(&mut self, tag: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match tag {
            tag::SYNC => self.is_skipping = false,
            tag::QUERY => {
                self.is_skipping = false;
                if let Err(failure) = self.query(payload, &mut out) {
                    encode_failure(&mut out, &failure);
                }
            }
            _ if self.is_skipping => return out,
            _ => {
                if let Err(failure) = self.extended(tag, payload, &mut out) {
                    encode_failure(&mut out, &failure);
                    self.is_skipping = true;
                }
                return out;
            }
        }
        backend::encode_ready_for_query(&mut out, TransactionStatus::Idle);
        out
    }

    fn run(&self, command: &Command) -> Result<Outcome, Failure> {
        let is_wanted = || {
            !self.flags.is_gone.load(Ordering::Relaxed)
                && !self.flags.is_cancelled.load(Ordering::Relaxed)
        };
        run::run(&self.in_force, &self.caller, command, &is_wanted)
    }

    fn query(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        let text = text(payload.strip_suffix(b"\0").unwrap_or(payload))?;
        let statements = statement::split(text);
        if statements.is_empty() {
            backend::encode_empty_query(out);
        }
        for statement in statements {
            let command = statement::parse(statement)?;
            let outcome = self.run(&command)?;
            if let Some(table) = &outcome.table {
                table.encode_description(out);
            }
            encode_outcome(out, &outcome);
        }
        Ok(())
    }

    fn extended(&mut self, tag: u8, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        let malformed = |_| Failure::new(SqlState::PROTOCOL_VIOLATION, "malformed message");
        match tag {
            tag::PARSE => {
                let parse = frontend::parse(payload).map_err(malformed)?;
                let query = parse.definition.split(|&byte| byte == 0).next().unwrap_or_default();
                let mut statements = statement::split(text(query)?).into_iter();
                let command = statements.next().map(statement::parse).transpose()?;
                if statements.next().is_some() {
                    let message = "cannot insert multiple commands into a prepared statement";
                    return Err(Failure::new(SqlState::SYNTAX_ERROR, message));
                }
                insert(&mut self.statements, parse.name, command)?;
                out.extend_from_slice(backend::PARSE_COMPLETE);
            }
            tag::BIND => {
                let names = frontend::bind_names(payload).map_err(malformed)?;
                if frontend::asks_for_binary(payload).map_err(malformed)? {
                    let message = "the console has results in text format only";
                    return Err(Failure::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
                let command = self.statement(names.statement)?.clone();
                insert(&mut self.portals, names.portal, command)?;
                out.extend_from_slice(backend::BIND_COMPLETE);
            }
            tag::DESCRIBE => {
                let (target, name) = frontend::target(payload).map_err(malformed)?;
                let command = match target {
                    Target::Statement => {
                        backend::encode_no_parameters(out);
                        self.statement(name)?
                    }
                    Target::Portal => self.portal(name)?,
                };
                match command {
                    // A SHOW changes nothing, so that it can be run to learn its columns.
                    Some(show @ Command::Show(_)) => match self.run(show)?.table {
                        Some(table) => table.encode_description(out),
                        None => backend::encode_no_data(out),
                    },
                    _ => backend::encode_no_data(out),
                }
            }
            tag::EXECUTE => {
                let name = payload.split(|&byte| byte == 0).next().unwrap_or_default();
                match self.portal(name)? {
                    Some(command) => {
                        let outcome = self.run(command)?;
                        encode_outcome(out, &outcome);
                    }
                    None => backend::encode_empty_query(out),
                }
            }
            tag::CLOSE => {
                let (target, name) = frontend::target(payload).map_err(malformed)?;
                match target {
                    Target::Statement => self.statements.remove(name),
                    Target::Portal => self.portals.remove(name),
                };
                out.extend_from_slice(backend::CLOSE_COMPLETE);
            }
            tag::FLUSH => {}
            other => {
                let message = format!("unsupported packet type for admin console: {other:#04x}");
                return Err(Failure::new(SqlState::PROTOCOL_VIOLATION, message));
            }
        }
        Ok(())
    }

    fn statement(&self, name: &[u8]) -> Result<&Option<Command>, Failure> {
        self.statements.get(name).ok_or_else(|| {
            Failure::new(SqlState::INVALID_STATEMENT_NAME, "prepared statement does not exist")
        })
    }

    fn portal(&self, name: &[u8]) -> Result<&Option<Command>, Failure> {
        self.portals
            .get(name)
            .ok_or_else(|| Failure::new(SqlState::INVALID_CURSOR_NAME, "portal does not exist"))
    }
}

fn insert(
    names: &mut HashMap<Vec<u8>, Option<Command>>,
    name: &[u8],
    command: Option<Command>,
) -> Result<(), Failure> {
    if names.len() >= NAMES_MAX && !names.contains_key(name) {
        let message = format!("more than {NAMES_MAX} prepared statements or portals");
        return Err(Failure::new(SqlState::CONFIGURATION_LIMIT, message));
    }
    names.insert(name.to_owned(), command);
    Ok(())
}

fn text(bytes: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(bytes)
        .map_err(|_| Failure::new(SqlState::PROTOCOL_VIOLATION, "the text is not UTF-8"))
}

/// Appends the notice, the rows and the end of a command.
fn encode_outcome(out: &mut Vec<u8>, outcome: &Outcome) {
    if let Some((message, detail)) = &outcome.notice {
        error_response::encode_notice(out, message, detail);
    }
    if let Some(table) = &outcome.table {
        table.encode_rows(out);
    }
    backend::encode_command_complete(out, outcome.tag.as_bytes());
}

fn encode_failure(out: &mut Vec<u8>, failure: &Failure) {
    error_response::encode_error(out, Severity::Error, failure.code, &failure.message);
}
