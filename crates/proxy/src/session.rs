//! Both ends of a relayed connection as the protocol sees them, without sockets.
//!
//! [`to_server`] takes a client's message and [`from_server`] the server's; both say what passes on
//! and keep the account of what is owed. In session mode nothing is changed on the way; in
//! transaction mode names of prepared statements are.

use std::collections::HashSet;
use std::sync::Arc;

use tidegate_wire::Malformed;
use tidegate_wire::backend::{self, TransactionStatus};
use tidegate_wire::error_response;
use tidegate_wire::frontend::{self, BindNames, Target, tag};
use tidegate_wire::input::Message;

use crate::config::SessionStatePolicy;
use crate::net::BatchOutput;
use crate::replies::{ExpectedReply, MessageOutcome, Replies, StatementId, Verdict};
use crate::session_state::look::{self, Look};
use crate::session_state::{self, CustomNames, Kind, Kinds, Watch};
use crate::settings::Settings;
use crate::statements::{self, ClientStatements, Definitions, Prepared, Statement};

/// What a client has set up, wherever its next transaction runs.
#[derive(Debug, Default)]
pub(crate) struct ClientSession {
    pub(crate) statements: ClientStatements,
    pub(crate) settings: Settings,
    /// What the settings were at the login: what RESET goes back to.
    pub(crate) first_settings: Settings,
    pub(crate) custom_names: CustomNames,
}

/// What is set up on an upstream connection, and what it still owes.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts about the server, found out apart")]
pub(crate) struct ServerSession {
    pub(crate) replies: Replies,
    pub(crate) status: TransactionStatus,
    /// An error reached the client in the running transaction.
    pub(crate) failed: bool,
    /// The error that answered a query of the proxy's own.
    pub(crate) own_error: Option<Vec<u8>>,
    pub(crate) settings: Settings,
    /// There may be settings that are not known.
    pub(crate) is_altered: bool,
    /// In transaction mode, what else a client may have left behind.
    pub(crate) watch: Watch,
    /// The server refused to run a plan because its result type has changed.
    pub(crate) is_plan_outdated: bool,
    /// Parse messages the proxy has sent by itself.
    pub(crate) own_parses: u64,
    /// The server has told the client that it ends the connection, and why.
    pub(crate) is_ending: bool,
    /// A client has prepared a statement here whose definition is not kept.
    pub(crate) holds_long_statement: bool,
    /// The server has become a standby, or is none any more.
    pub(crate) became_standby: Option<bool>,
    statements: ServerStatements,
}

/// The statements on an upstream connection.
#[derive(Debug, Default)]
struct ServerStatements {
    prepared: Prepared,
    /// The unnamed one is the client's, or is known not to exist.
    unnamed_is_current: bool,
    /// Messages on the way that make it so.
    unnamed_pending: u32,
    /// The batch of the last of them.
    unnamed_batch: u64,
    /// Messages on the way that prepare and close named ones.
    named_pending: u32,
    /// The batch of the last of them.
    named_batch: u64,
    /// Those that messages of the batch under way were about which have not been done.
    undone: HashSet<StatementId>,
}

impl ServerStatements {
    /// A message about this statement has not been done; before it, the statement was there or not.
    /// Of several, the first says what is there.
    fn undo(&mut self, id: StatementId, was_there: bool) {
        // The one that stands for others is not counted.
        if id == STAND_IN || !self.undone.insert(id) {
            return;
        }
        if was_there {
            self.prepared.insert(id);
        } else {
            self.prepared.remove(id);
        }
    }
}

impl ServerSession {
    pub(crate) fn new() -> Self {
        ServerSession {
            replies: Replies::default(),
            status: TransactionStatus::Idle,
            failed: false,
            own_error: None,
            settings: Settings::default(),
            is_altered: false,
            watch: Watch::default(),
            is_plan_outdated: false,
            own_parses: 0,
            is_ending: false,
            holds_long_statement: false,
            became_standby: None,
            statements: ServerStatements::default(),
        }
    }

    /// Returns whether what is sent next begins a new request while an earlier one is still
    /// answered.
    pub(crate) fn is_between_requests(&self) -> bool {
        !self.replies.is_quiet() && self.replies.is_batch_complete() && !self.replies.is_copy_in()
    }

    /// Returns whether a message that can begin a request would begin one if it were sent now.
    pub(crate) fn takes_request(&self) -> bool {
        self.replies.is_batch_complete() && !self.replies.is_copy_in()
    }

    /// Returns whether the server works on something that a client sent.
    pub(crate) fn is_at_work(&self) -> bool {
        !self.replies.is_quiet() && !self.replies.is_own_query()
    }

    /// Returns whether nothing has been sent that is not answered, and no transaction is open.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.replies.is_quiet()
            && self.replies.is_batch_complete()
            && self.status == TransactionStatus::Idle
    }

    /// Returns whether a transaction is open and the server waits for the next request in it.
    pub(crate) fn is_idle_in_transaction(&self) -> bool {
        self.replies.is_quiet() && self.takes_request() && self.status != TransactionStatus::Idle
    }

    /// A client takes the connection over.
    pub(crate) fn begin_lending(&mut self) {
        self.failed = false;
        self.own_error = None;
        self.statements.unnamed_is_current = false;
        self.replies.begin_lending();
        self.watch.begin_lending();
    }

    /// A simple query of the proxy's own was sent to the server, which forgets its unnamed
    /// statement then.
    pub(crate) fn own_query_sent(&mut self) {
        self.replies.sent(ExpectedReply::OwnQuery);
        self.statements.unnamed_is_current = false;
    }

    /// The message that is sent next makes the unnamed statement the client's, or removes it.
    fn change_unnamed(&mut self) {
        self.statements.unnamed_is_current = true;
        self.statements.unnamed_pending += 1;
        self.statements.unnamed_batch = self.replies.batch();
    }

    /// Returns whether an earlier batch than the next message's has changed the unnamed statement,
    /// or has not, if it failed: then the one that is there may be another client's.
    fn is_unnamed_unsettled(&self) -> bool {
        self.statements.unnamed_pending > 0 && self.statements.unnamed_batch < self.replies.batch()
    }

    /// Notes that a message was sent that prepares or closes a named statement.
    fn named_sent(&mut self, owed: ExpectedReply) {
        // What the server skips it does not answer.
        if !self.replies.is_skipping() {
            self.statements.named_pending += 1;
            self.statements.named_batch = self.replies.batch();
            self.replies.sent(owed);
        }
    }

    /// Returns whether an earlier batch than the next message's has prepared or closed a named
    /// statement, or has not, if it failed: then it is not known which ones are there.
    fn are_named_unsettled(&self) -> bool {
        self.statements.named_pending > 0 && self.statements.named_batch < self.replies.batch()
    }

    /// Returns whether an earlier batch may remove statements by their names.
    fn may_deallocate(&self) -> bool {
        self.watch.releases() && self.replies.owes_batch_end() && !self.replies.is_copy_in()
    }

    /// All session state has been discarded.
    pub(crate) fn cleaned(&mut self) {
        self.statements = ServerStatements::default();
        self.settings = Settings::default();
        self.is_altered = false;
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

/// The messages that name statements, on their way to a shared connection.
struct Translation<'a, 'b> {
    statements: &'a mut ClientStatements,
    custom_names: &'a mut CustomNames,
    search_path: Option<&'a str>,
    server: &'a mut ServerSession,
    prepared_max: usize,
    policy: SessionStatePolicy,
    out: &'a mut BatchOutput<'b>,
}

impl Translation<'_, '_> {
    fn parse(
        &mut self,
        message: &Message<'_>,
        definitions: &mut Definitions,
    ) -> Result<(), Violation> {
        let payload = message.payload();
        // A long unnamed Parse comes in pieces; its name is at the head.
        if let Some((0, definition)) = payload.split_first() {
            self.parse_unnamed(message, definition);
            return Ok(());
        }
        if payload.len() < message.announced_payload_len() {
            return self.parse_in_pieces(message, definitions);
        }
        let Ok(parse) = frontend::parse(payload) else {
            return self.pass_malformed(message, ExpectedReply::ParseTaken);
        };
        if let Some(existing) = self.statements.get(parse.name).cloned() {
            self.parse_again(&existing, parse.definition);
            return Ok(());
        }
        if self.statements.is_full() {
            return Err(Violation::TooManyStatements);
        }
        let statement = definitions.intern(parse.definition, self.search_path);
        if let Some(refused) = session_state::refused(self.policy, &statement.look) {
            self.refuse_parse(refused);
            return Ok(());
        }
        if self.server.statements.prepared.touch(statement.id) {
            self.server.replies.sent(ExpectedReply::ProxyParse(statement.id));
        } else {
            let owed = ExpectedReply::Parse(Some(statement.id));
            self.prepare(&statement, parse.definition, owed);
        }
        let batch = self.server.replies.batch();
        self.statements.change(parse.name, Some(statement), batch);
        Ok(())
    }

    /// Parses a named statement of which only the beginning has arrived.
    fn parse_in_pieces(
        &mut self,
        message: &Message<'_>,
        definitions: &mut Definitions,
    ) -> Result<(), Violation> {
        let name = frontend::statement_name(message.payload());
        let name = name.map_err(|_| Violation::NameTooLong)?;
        let (statement, owed) = if let Some(existing) = self.statements.get(name).cloned() {
            // The server itself says that the name is taken.
            self.ensure_prepared(&existing);
            (existing, ExpectedReply::ParseTaken)
        } else if self.statements.is_full() {
            return Err(Violation::TooManyStatements);
        } else {
            let statement = definitions.long();
            let batch = self.server.replies.batch();
            self.statements.change(name, Some(Arc::clone(&statement)), batch);
            self.server.holds_long_statement = true;
            let owed = ExpectedReply::Parse(Some(statement.id));
            (statement, owed)
        };
        let rest_len = message.announced_payload_len() - (name.len() + 1);
        frontend::encode_parse_head(self.out.spill(), &statement.server_name, rest_len);
        match owed {
            ExpectedReply::Parse(_) => self.server.named_sent(owed),
            _ => self.server.replies.sent(owed),
        }
        self.out.pass(message.payload_range(name.len() + 1));
        Ok(())
    }

    /// Passes on a message that the server refuses: it says why, and skips to the next Sync.
    fn pass_malformed(
        &mut self,
        message: &Message<'_>,
        owed: ExpectedReply,
    ) -> Result<(), Violation> {
        // What has not arrived may put it right, so that it could do what its name says.
        if message.payload().len() < message.announced_payload_len() {
            return Err(Violation::NameTooLong);
        }
        self.server.replies.sent(owed);
        self.out.pass(message.range());
        Ok(())
    }

    /// Parses the unnamed statement, of whose definition there is as much as has arrived.
    fn parse_unnamed(&mut self, message: &Message<'_>, definition: &[u8]) {
        let is_whole = message.payload().len() == message.announced_payload_len();
        let look = self.look_at_unnamed(definition);
        if let Some(refused) = session_state::refused(self.policy, &look).filter(|_| is_whole) {
            self.statements.forget_unnamed();
            self.server.statements.unnamed_is_current = false;
            return self.refuse_parse(refused);
        }
        self.server.watch.notice_release(look);
        let text = statements::query_of(definition);
        if is_whole && deallocate(text, self.statements, self.server, self.out) {
            let definition = frontend::definition(DEALLOCATE_STAND_IN);
            self.statements.change_unnamed(Some(&definition));
            frontend::encode_parse(self.out.spill(), b"", &definition);
            self.server.change_unnamed();
            self.server.replies.sent(ExpectedReply::Parse(None));
            return;
        }
        let parsed = frontend::parse(message.payload());
        self.statements.change_unnamed(parsed.ok().map(|parse| parse.definition));
        if !is_whole {
            self.server.watch.expect_rest();
        }
        self.server.change_unnamed();
        self.server.replies.sent(ExpectedReply::Parse(None));
        self.out.pass(message.range());
    }

    /// Looks at the unnamed statement; what it may leave behind counts when it is bound.
    fn look_at_unnamed(&mut self, definition: &[u8]) -> Look {
        let mut names = Vec::new();
        let look = look::look(statements::query_of(definition), &mut names);
        self.server.watch.set_unnamed(look);
        self.server.watch.notice_names(&names, self.custom_names);
        look
    }

    fn refuse_parse(&mut self, refused: Kinds) {
        frontend::encode_parse(self.out.spill(), b"", &frontend::definition(REFUSED));
        self.server.replies.sent(ExpectedReply::RefusedParse(refused));
    }

    /// The name is taken: the server itself says so when it sees its own name a second time, unless
    /// it has more to say against the text.
    fn parse_again(&mut self, existing: &Statement, definition: &[u8]) {
        self.ensure_prepared(existing);
        frontend::encode_parse(self.out.spill(), &existing.server_name, definition);
        self.server.replies.sent(ExpectedReply::ParseTaken);
    }

    fn bind(&mut self, message: &Message<'_>) -> Result<(), Violation> {
        let Ok(names) = frontend::bind_names(message.payload()) else {
            return self.pass_malformed(message, ExpectedReply::Bind);
        };
        let statement = self.resolve(names.statement);
        self.notice_bound(names.statement);
        self.server.replies.sent(ExpectedReply::Bind);
        let Some(statement) = statement else {
            self.out.pass(message.range());
            return Ok(());
        };
        // The names were read from the payload, so they are no longer than it.
        let rest_len = message.announced_payload_len() - names.encoded_len();
        let rest = message.payload_range(names.encoded_len());
        let names = BindNames { portal: names.portal, statement: &statement };
        frontend::encode_bind_head(self.out.spill(), names, rest_len);
        self.out.pass(rest);
        Ok(())
    }

    /// The statement that the client calls `name` is about to run.
    fn notice_bound(&mut self, name: &[u8]) {
        if name.is_empty() {
            self.server.watch.notice_unnamed();
        } else if let Some(statement) = self.statements.get(name) {
            self.server.watch.notice(statement.look);
            self.server.watch.notice_names(&statement.custom_names, self.custom_names);
        }
    }

    fn describe(&mut self, message: &Message<'_>) -> Result<(), Violation> {
        let Ok((target, name)) = frontend::target(message.payload()) else {
            return self.pass_malformed(message, ExpectedReply::Describe);
        };
        let statement = match target {
            Target::Statement => self.resolve(name),
            Target::Portal => None,
        };
        self.server.replies.sent(ExpectedReply::Describe);
        match statement {
            Some(name) => frontend::encode_describe(self.out.spill(), target, &name),
            None => self.out.pass(message.range()),
        }
        Ok(())
    }

    fn close(&mut self, message: &Message<'_>) -> Result<(), Violation> {
        let Ok((target, name)) = frontend::target(message.payload()) else {
            return self.pass_malformed(message, ExpectedReply::Close);
        };
        match target {
            Target::Statement if !name.is_empty() => {
                // Others may use the server's statement; only this client's name for it goes.
                let long = self.statements.get(name).filter(|it| it.definition.is_none()).cloned();
                if let Some(long) = long {
                    frontend::encode_close(self.out.spill(), target, &long.server_name);
                    self.server.named_sent(ExpectedReply::OwnClose(Some(long.id)));
                }
                self.statements.change(name, None, self.server.replies.batch());
                self.server.replies.sent(ExpectedReply::ProxyClose);
            }
            Target::Statement => {
                self.statements.change_unnamed(None);
                self.server.change_unnamed();
                self.server.replies.sent(ExpectedReply::CloseUnnamed);
                self.out.pass(message.range());
            }
            Target::Portal => {
                self.server.replies.sent(ExpectedReply::Close);
                self.out.pass(message.range());
            }
        }
        Ok(())
    }

    /// Makes sure that the statement the client calls `name` is on the connection; its name there,
    /// where it differs. A name the proxy does not know may be one made by SQL's PREPARE.
    fn resolve(&mut self, name: &[u8]) -> Option<Box<[u8]>> {
        if name.is_empty() {
            self.ensure_unnamed();
            return None;
        }
        let statement = self.statements.get(name).cloned()?;
        self.ensure_prepared(&statement);
        Some(statement.server_name.clone())
    }

    fn ensure_prepared(&mut self, statement: &Statement) {
        // One whose definition is not kept is on the connection that its client keeps.
        let Some(definition) = &statement.definition else { return };
        if !self.server.statements.prepared.touch(statement.id) {
            self.server.own_parses += 1;
            self.prepare(statement, definition, ExpectedReply::OwnParse(Some(statement.id)));
        }
    }

    fn prepare(&mut self, statement: &Statement, definition: &[u8], owed: ExpectedReply) {
        if let Some(evicted) = self.server.statements.prepared.evict(self.prepared_max) {
            let name = statements::server_name(evicted);
            frontend::encode_close(self.out.spill(), Target::Statement, &name);
            self.server.named_sent(ExpectedReply::OwnClose(Some(evicted)));
        }
        frontend::encode_parse(self.out.spill(), &statement.server_name, definition);
        self.server.statements.prepared.insert(statement.id);
        self.server.named_sent(owed);
    }

    /// The connection's unnamed statement may be another client's: it must not run for this one.
    fn ensure_unnamed(&mut self) {
        if self.server.statements.unnamed_is_current {
            return;
        }
        self.server.change_unnamed();
        if let Some(definition) = self.statements.unnamed() {
            let look = look::look(statements::query_of(definition), &mut Vec::new());
            self.server.watch.set_unnamed(look);
            frontend::encode_parse(self.out.spill(), b"", definition);
            self.server.own_parses += 1;
            self.server.replies.sent(ExpectedReply::OwnParse(None));
        } else {
            frontend::encode_close(self.out.spill(), Target::Statement, b"");
            self.server.replies.sent(ExpectedReply::OwnClose(None));
        }
    }
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

/// A Flush message.
const FLUSH: &[u8] = b"H\0\0\0\x04";

/// A portal that does not exist: to describe it is an error.
const NO_PORTAL: &[u8] = b"tidegate: the client has gone";

/// The message that makes a server send the answers it keeps while a batch is open, for a
/// connection that is abandoned now; empty if there are none.
pub(crate) fn flush(server: &ServerSession, out: &mut Vec<u8>) {
    if !server.replies.is_batch_complete() && !server.replies.is_quiet() {
        out.extend_from_slice(FLUSH);
    }
}

/// The messages that bring an abandoned connection back to rest; empty if it only has to be waited
/// for. The caller sends a cancel request if something still runs.
///
/// A Sync commits what a batch has done outside a transaction block. The client has not sent it, so
/// an error goes before it, and the server rolls back as it does when a client disconnects. That
/// waits for all answers: a server that waits for copy data would end the connection.
pub(crate) fn wind_up(server: &mut ServerSession, out: &mut Vec<u8>) {
    if server.replies.is_copy_in() {
        frontend::encode_copy_fail(out, b"the client has gone");
        server.replies.sent(ExpectedReply::CopyEnd);
    }
    let replies = &mut server.replies;
    if !replies.is_batch_complete() && (replies.is_quiet() || replies.is_skipping()) {
        if !replies.is_skipping() {
            frontend::encode_describe(out, Target::Portal, NO_PORTAL);
            replies.sent(ExpectedReply::Describe);
        }
        out.extend_from_slice(frontend::SYNC);
        replies.sent(ExpectedReply::OwnSync);
    }
    if server.replies.is_quiet() && server.status != TransactionStatus::Idle {
        frontend::encode_query(out, b"ROLLBACK");
        server.replies.sent(ExpectedReply::OwnQuery);
    }
}

/// The messages that discard all session state of a connection that has been brought back to rest.
/// When they have been answered without an error, [`Watch::take_cleaned`] says so.
pub(crate) fn clean(server: &mut ServerSession, out: &mut Vec<u8>) {
    server.own_error = None;
    server.watch.begin_cleaning();
    // DISCARD ALL has to come alone.
    for sql in ["RESET ROLE", "DISCARD ALL"] {
        frontend::encode_query(out, sql.as_bytes());
        server.own_query_sent();
    }
}

#[cfg(test)]
mod backend_test;
#[cfg(test)]
mod tests;
