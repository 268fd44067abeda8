//! Both ends of a relayed connection as the protocol sees them, without sockets.
//!
//! [`to_server`] takes a client's message and [`from_server`] the server's; both say what passes on
//! and keep the account of what is owed. In session mode nothing is changed on the way; in
//! transaction mode names of prepared statements are (`session/translation.rs`). What a server has
//! and owes is in `session/server.rs`.

use std::collections::HashMap;

use tidegate_wire::Malformed;
use tidegate_wire::backend::{self, TransactionStatus};
use tidegate_wire::error_response;
use tidegate_wire::frontend::{self, Target, tag};
use tidegate_wire::input::Message;

use crate::config::SessionStatePolicy;
use crate::net::BatchOutput;
use crate::replies::{ExpectedReply, MessageOutcome, StatementId, Verdict};
use crate::scheduling::OWN_SETTINGS;
use crate::scheduling::outline::Hint;
use crate::session_state::look::{self, Look};
use crate::session_state::{self, CustomNames, Kind, Kinds};
use crate::settings::Settings;
use crate::statements::{self, ClientStatements, Definitions};

mod server;
mod translation;

use self::server::ServerStatements;
pub(crate) use self::server::{ServerSession, clean, flush, wind_up};
use self::translation::Translation;

/// What a client has set up, wherever its next transaction runs.
#[derive(Debug, Default)]
pub(crate) struct ClientSession {
    pub(crate) statements: ClientStatements,
    pub(crate) settings: Settings,
    /// What the settings were at the login: what RESET goes back to.
    pub(crate) first_settings: Settings,
    pub(crate) custom_names: CustomNames,
    /// In session mode, what prepared statements say to the proxy; of those that say something, by
    /// their names.
    hints: Option<Box<Hints>>,
}

/// Hints by the names of statements; boxed, because most clients have none.
#[derive(Debug, Default)]
struct Hints(HashMap<Box<[u8]>, Prepared>);

/// What a statement that was prepared in session mode says to the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Prepared {
    hint: Hint,
    /// It may set what its client has chosen.
    may_choose: bool,
}

impl ClientSession {
    /// Returns a session with the settings of a login.
    pub(crate) fn new(settings: Settings) -> ClientSession {
        let first_settings = settings.clone();
        ClientSession { settings, first_settings, ..ClientSession::default() }
    }

    /// Returns what the comments of a prepared statement say to the proxy.
    pub(crate) fn hint_of(&self, name: &[u8]) -> Option<Hint> {
        if let Some(prepared) = self.prepared(name) {
            return Some(prepared.hint);
        }
        if name.is_empty() {
            return self.statements.unnamed().map(|it| Hint::of(statements::query_of(it)));
        }
        self.statements.get(name).map(|statement| statement.hint)
    }

    /// Returns the text of a prepared statement, unless it is not kept.
    pub(crate) fn text_of(&self, name: &[u8]) -> Option<&[u8]> {
        let definition = match name {
            b"" => self.statements.unnamed(),
            name => self.statements.get(name).and_then(|it| it.definition.as_deref()),
        };
        definition.map(statements::query_of)
    }

    fn prepared(&self, name: &[u8]) -> Option<&Prepared> {
        self.hints.as_ref()?.0.get(name)
    }

    /// Returns whether a text of session mode may change what its client has chosen: its class or
    /// its deadline, by a setting.
    fn may_choose(&mut self, text: &[u8]) -> bool {
        let has_chosen = OWN_SETTINGS.iter().any(|name| self.settings.get(name).is_some());
        let may_choose = look::mentions_own_settings(text)
            || (has_chosen && !look::look(text, &mut Vec::new()).may.is_empty());
        if may_choose {
            for name in OWN_SETTINGS {
                self.custom_names.learn(name);
            }
        }
        may_choose
    }

    /// Notes what a message of session mode says to the proxy. Returns whether it may change what
    /// the client has chosen.
    fn notice_choice(&mut self, message: &Message<'_>) -> bool {
        match message.tag() {
            tag::QUERY => self.may_choose(message.payload()),
            tag::PARSE => {
                self.keep_hint(message.payload());
                false
            }
            tag::BIND => {
                let names = frontend::bind_names(message.payload());
                let prepared = names.ok().and_then(|names| self.prepared(names.statement));
                prepared.is_some_and(|prepared| prepared.may_choose)
            }
            _ => false,
        }
    }

    /// Keeps what a statement says that is being prepared in session mode.
    fn keep_hint(&mut self, parse: &[u8]) {
        let Ok(name) = frontend::statement_name(parse) else { return };
        let text = parse.get(name.len() + 1..).unwrap_or_default();
        let text = statements::query_of(text);
        let prepared = Prepared { hint: Hint::of(text), may_choose: self.may_choose(text) };
        if prepared == Prepared::default() {
            if let Some(hints) = &mut self.hints {
                hints.0.remove(name);
            }
            return;
        }
        let hints = self.hints.get_or_insert_default();
        if hints.0.len() < statements::CLIENT_STATEMENTS_MAX {
            hints.0.insert(name.into(), prepared);
        }
    }
}

/// A client's message that cannot be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("the name of a statement or portal does not end within 16 KiB")]
    NameTooLong,
    #[error("unexpected message type {0:#04x}")]
    UnexpectedTag(u8),
    #[error("more than {} prepared statements", statements::CLIENT_STATEMENTS_MAX)]
    TooManyStatements,
}

/// How statements are handled on the way to the server.
pub(crate) enum Naming<'a> {
    /// Session mode: names stay.
    Kept,
    /// Transaction mode: names are the proxy's.
    Shared {
        definitions: &'a mut Definitions,
        /// Most statements on one upstream connection.
        prepared_max: usize,
        /// What becomes of session state that cannot follow the client.
        policy: SessionStatePolicy,
    },
}

/// A text that every server refuses: it stands for one that the proxy refuses, so that the server's
/// transaction fails with it.
const REFUSED: &[u8] = b")";

/// Passes one client message on: all of it, or as much as has arrived of a long one. It was taken
/// off the gather's input.
///
/// # Errors
/// The message is not one a client may send now; nothing was passed on.
pub(crate) fn to_server(
    message: &Message<'_>,
    client: &mut ClientSession,
    server: &mut ServerSession,
    naming: &mut Naming<'_>,
    out: &mut BatchOutput<'_>,
) -> Result<(), Violation> {
    if let Naming::Shared { definitions, prepared_max, policy } = naming
        && matches!(message.tag(), tag::PARSE | tag::BIND | tag::DESCRIBE | tag::CLOSE)
        && !server.replies.is_skipping()
    {
        let mut translation = Translation {
            statements: &mut client.statements,
            custom_names: &mut client.custom_names,
            search_path: client.settings.get("search_path"),
            server,
            prepared_max: *prepared_max,
            policy: *policy,
            out,
        };
        return match message.tag() {
            tag::PARSE => translation.parse(message, definitions),
            tag::BIND => translation.bind(message),
            tag::DESCRIBE => translation.describe(message),
            _ => translation.close(message),
        };
    }
    if message.tag() == tag::QUERY && !server.replies.is_skipping() {
        client.statements.forget_unnamed();
    }
    if let Naming::Kept = naming {
        server.choice_may_change |= client.notice_choice(message);
    }
    if let Naming::Shared { policy, .. } = naming {
        if let Some(refused) = look_at(message, &mut client.custom_names, server, *policy) {
            frontend::encode_query(out.spill(), REFUSED);
            server.replies.sent(ExpectedReply::RefusedQuery(refused));
            return Ok(());
        }
        let text = message.payload();
        if message.tag() == tag::QUERY && deallocate(text, &mut client.statements, server, out) {
            frontend::encode_query(out.spill(), DEALLOCATE_STAND_IN);
            server.replies.sent(ExpectedReply::Query);
            return Ok(());
        }
    }
    if let Some(owed) = owed_for(message.tag())? {
        server.replies.sent(owed);
    }
    out.pass(message.range());
    Ok(())
}

/// The statement that stands for one of a client's in its DEALLOCATE, so that the server answers
/// and others keep what they share. No definition has this number.
const STAND_IN: StatementId = StatementId(0);
const DEALLOCATE_STAND_IN: &[u8] = b"DEALLOCATE tidegate_0";

/// If a text is a DEALLOCATE of a statement that the client has prepared by the protocol, forgets
/// that statement and prepares what is to be deallocated instead. Returns whether it is.
fn deallocate(
    text: &[u8],
    statements: &mut ClientStatements,
    server: &mut ServerSession,
    out: &mut BatchOutput<'_>,
) -> bool {
    let is_deallocate = server.watch.releases() && server.status != TransactionStatus::Failed;
    let name = if is_deallocate { look::deallocated_name(text) } else { None };
    let Some(name) = name.filter(|name| statements.get(name).is_some()) else { return false };
    statements.remove(&name);
    // Neither of them can fail, not even in a transaction that has failed.
    let stand_in = statements::server_name(STAND_IN);
    frontend::encode_close(out.spill(), Target::Statement, &stand_in);
    server.named_sent(ExpectedReply::OwnClose(Some(STAND_IN)));
    frontend::encode_parse(out.spill(), &stand_in, &frontend::definition(b""));
    server.named_sent(ExpectedReply::OwnParse(Some(STAND_IN)));
    true
}

/// Looks at a message that runs something without being prepared. Returns for what it is refused,
/// if it is.
fn look_at(
    message: &Message<'_>,
    custom_names: &mut CustomNames,
    server: &mut ServerSession,
    policy: SessionStatePolicy,
) -> Option<Kinds> {
    let payload = message.payload();
    match message.tag() {
        tag::QUERY => {
            let mut names = Vec::new();
            let look = look::look(payload, &mut names);
            // The rest of a long one would follow what it is replaced by.
            let is_whole = payload.len() == message.announced_payload_len();
            let refused = session_state::refused(policy, &look).filter(|_| is_whole);
            if refused.is_none() {
                server.watch.notice(look);
                server.watch.notice_names(&names, custom_names);
            }
            if !is_whole {
                server.watch.expect_rest();
            }
            refused
        }
        tag::FUNCTION_CALL => {
            let number = payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            if !look::is_harmless_function(number) {
                let may = Kinds::INSPECTED.with(Kind::NamelessSetting);
                server.watch.notice(Look { may, ..Look::default() });
            }
            None
        }
        _ => None,
    }
}

/// Looks at more of a long message that is passed on as it is. `is_last` if it ends here.
pub(crate) fn rest_to_server(bytes: &[u8], is_last: bool, server: &mut ServerSession) {
    server.watch.rest_of_message(bytes, is_last);
}

/// Prepares a named statement without the server, if the message names nothing new: the definition
/// has been accepted before, and the name is free. The statement reaches a connection with its
/// first Bind. Tells whether it did.
pub(crate) fn prepare_without_server(
    payload: &[u8],
    client: &mut ClientSession,
    definitions: &mut Definitions,
) -> bool {
    let ClientSession { statements, settings, .. } = client;
    let Ok(parse) = frontend::parse(payload) else {
        return false;
    };
    if parse.name.is_empty() || statements.get(parse.name).is_some() || statements.is_full() {
        return false;
    }
    let statement = definitions.intern(parse.definition, settings.get("search_path"));
    // What may be refused is not prepared behind the back of the one who refuses.
    let is_accepted = statement.is_accepted() && statement.look.sure.is_empty();
    if is_accepted {
        statements.insert(parse.name, statement);
    }
    is_accepted
}

/// Returns whether a message has to wait for answers of the server, because it names a statement
/// that an earlier batch has changed or removed, or has not, if it failed. `payload` is as much as
/// has arrived.
pub(crate) fn has_to_wait(
    tag: u8,
    payload: &[u8],
    client: &ClientSession,
    server: &ServerSession,
) -> bool {
    let name = match tag {
        tag::PARSE => frontend::statement_name(payload).ok(),
        tag::BIND => frontend::bind_names(payload).ok().map(|names| names.statement),
        tag::DESCRIBE | tag::CLOSE => match frontend::target(payload) {
            Ok((Target::Statement, name)) => Some(name),
            _ => None,
        },
        _ => None,
    };
    match name {
        None => false,
        // A new one replaces any.
        Some(b"") => tag != tag::PARSE && tag != tag::CLOSE && server.is_unnamed_unsettled(),
        Some(name) => {
            client.statements.is_unsettled(name, server.replies.batch())
                || server.are_named_unsettled()
                || server.may_deallocate()
        }
    }
}

/// Returns what the server will answer to a message that is passed on as it is.
fn owed_for(tag: u8) -> Result<Option<ExpectedReply>, Violation> {
    Ok(Some(match tag {
        tag::QUERY | tag::FUNCTION_CALL => ExpectedReply::Query,
        tag::SYNC => ExpectedReply::Sync,
        tag::PARSE => ExpectedReply::Parse(None),
        tag::BIND => ExpectedReply::Bind,
        tag::DESCRIBE => ExpectedReply::Describe,
        tag::EXECUTE => ExpectedReply::Execute,
        tag::CLOSE => ExpectedReply::Close,
        tag::COPY_DONE | tag::COPY_FAIL => ExpectedReply::CopyEnd,
        tag::COPY_DATA | tag::FLUSH => return Ok(None),
        other => return Err(Violation::UnexpectedTag(other)),
    }))
}

/// Judges one message of the server, and keeps the account of both sessions. `payload` holds as
/// much as has arrived of a long message, and all of a short one. `client` is the one that holds
/// the connection, if any does.
pub(crate) fn from_server(
    tag: u8,
    payload: &[u8],
    client: Option<&mut ClientSession>,
    server: &mut ServerSession,
) -> Result<Verdict, Malformed> {
    // Made only where there is no client: this is done for every message of a server.
    let mut nobody;
    let client = if let Some(client) = client {
        client
    } else {
        nobody = ClientSession::default();
        &mut nobody
    };
    let there = &mut server.statements;
    let verdict = server.replies.received(tag, |owed, fate| {
        record_fate(owed, fate, &mut client.statements, there);
    });
    match (tag, verdict) {
        (backend::tag::READY_FOR_QUERY, _) => {
            server.statements.undone.clear();
            server.status = backend::ready_for_query(payload)?;
        }
        (backend::tag::PARAMETER_STATUS, _) => {
            let (name, value) = backend::parameter_status(payload)?;
            let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
            server.settings.report(&name, &value);
            if name == "in_hot_standby" {
                server.became_standby = Some(value == "on");
            }
            if verdict == Verdict::Pass {
                client.settings.report(&name, &value);
            }
        }
        (backend::tag::COMMAND_COMPLETE, Verdict::Pass) => {
            command_complete(payload, &mut client.statements, server);
        }
        (backend::tag::DATA_ROW, Verdict::Swallow) => {
            if let Some(findings) = &mut server.watch.findings {
                findings.row(payload);
            }
        }
        (backend::tag::ERROR, Verdict::Replace(_)) => server.failed = true,
        (backend::tag::ERROR, Verdict::Pass) => {
            server.failed = true;
            server.is_ending |= matches!(&*error_response::field(payload, b'V'), "FATAL" | "PANIC");
            server.is_plan_outdated |= error_response::field(payload, b'R') == OUTDATED_PLAN;
        }
        (backend::tag::ERROR, Verdict::Swallow) => server.own_error = Some(payload.to_vec()),
        _ => {}
    }
    Ok(verdict)
}

/// Returns a message of the server as the client is to see it; `None` if that is as it is.
pub(crate) fn in_clients_words(
    tag: u8,
    payload: &[u8],
    client: Option<&ClientSession>,
) -> Option<Vec<u8>> {
    if tag != backend::tag::ERROR {
        return None;
    }
    let words = statements::in_clients_words(payload, &client?.statements)?;
    let mut message = Vec::with_capacity(words.len() + 5);
    backend::encode_error_payload(&mut message, &words);
    Some(message)
}

/// The routine that an error names when a plan's result type has changed. Its SQLSTATE, 0A000, has
/// other reasons too.
const OUTDATED_PLAN: &str = "RevalidateCachedQuery";

/// A message has been answered, or will not be.
fn record_fate(
    owed: ExpectedReply,
    fate: MessageOutcome,
    statements: &mut ClientStatements,
    server: &mut ServerStatements,
) {
    let is_done = fate == MessageOutcome::Done;
    if matches!(
        owed,
        ExpectedReply::Parse(Some(_))
            | ExpectedReply::OwnParse(Some(_))
            | ExpectedReply::OwnClose(Some(_))
    ) {
        server.named_pending = server.named_pending.saturating_sub(1);
    }
    match (owed, is_done) {
        (ExpectedReply::Parse(Some(_)), true) => statements.confirm(true),
        (ExpectedReply::Parse(Some(id)), false) => {
            server.undo(id, false);
            statements.take_back();
        }
        (ExpectedReply::ProxyParse(_) | ExpectedReply::ProxyClose, true) => {
            statements.confirm(false);
        }
        (ExpectedReply::ProxyParse(_) | ExpectedReply::ProxyClose, false) => {
            statements.take_back();
        }
        (ExpectedReply::OwnParse(Some(id)), false) => server.undo(id, false),
        (ExpectedReply::OwnClose(Some(id)), false) => server.undo(id, true),
        (
            ExpectedReply::Parse(None)
            | ExpectedReply::CloseUnnamed
            | ExpectedReply::OwnParse(None)
            | ExpectedReply::OwnClose(None),
            _,
        ) => {
            if matches!(owed, ExpectedReply::Parse(None) | ExpectedReply::CloseUnnamed) {
                statements.settle_unnamed(fate);
            }
            // In session mode, where nothing is renamed, none is counted.
            server.unnamed_pending = server.unnamed_pending.saturating_sub(1);
            // Whose statement is there now is not known, unless another message follows.
            if !is_done && server.unnamed_pending == 0 {
                server.unnamed_is_current = false;
            }
        }
        _ => {}
    }
}

/// A command of the client's own has been completed, perhaps one that changes what is set up.
fn command_complete(payload: &[u8], statements: &mut ClientStatements, server: &mut ServerSession) {
    let tag = payload.strip_suffix(b"\0").unwrap_or(payload);
    server.watch.completed(tag);
    if matches!(tag, b"DEALLOCATE ALL" | b"DISCARD ALL") {
        let prepared = &mut server.statements.prepared;
        statements.clear();
        prepared.clear();
        // What is under way already comes after it.
        for owed in server.replies.pending() {
            match owed {
                ExpectedReply::Parse(Some(id)) | ExpectedReply::OwnParse(Some(id)) => {
                    prepared.insert(id);
                }
                ExpectedReply::OwnClose(Some(id)) => prepared.remove(id),
                _ => {}
            }
        }
    }
}

/// Gives the answers that are the proxy's to give and whose turn it is. `client` is the one that
/// holds the connection, if any does.
pub(crate) fn answer_for_proxy(
    mut client: Option<&mut ClientSession>,
    server: &mut ServerSession,
    out: &mut BatchOutput<'_>,
) {
    while let Some(owed) = server.replies.take_proxy_answer() {
        if let Some(client) = client.as_deref_mut() {
            record_fate(owed, MessageOutcome::Done, &mut client.statements, &mut server.statements);
        }
        out.spill().extend_from_slice(match owed {
            ExpectedReply::ProxyClose => backend::CLOSE_COMPLETE,
            _ => backend::PARSE_COMPLETE,
        });
    }
}

#[cfg(test)]
mod backend_test;
#[cfg(test)]
mod tests;
