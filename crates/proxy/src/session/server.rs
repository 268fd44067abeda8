//! The server's end of a relayed connection: what is set up there, what it owes, and how an
//! abandoned connection is brought back to rest.

use std::collections::HashSet;

use tidegate_wire::backend::TransactionStatus;
use tidegate_wire::frontend::{self, Target};

use super::STAND_IN;
use crate::replies::{ExpectedReply, Replies, StatementId};
use crate::session_state::{Kinds, Watch};
use crate::settings::Settings;
use crate::statements::Prepared;

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
    /// Messages about named statements since this was last taken.
    pub(crate) passed: PassedStatements,
    /// Parse messages the proxy has sent by itself.
    pub(crate) own_parses: u64,
    /// The server has told the client that it ends the connection, and why.
    pub(crate) is_ending: bool,
    /// A client has prepared a statement here whose definition is not kept.
    pub(crate) holds_long_statement: bool,
    /// The server has become a standby, or is none any more.
    pub(crate) became_standby: Option<bool>,
    /// In session mode, the client may have set its class or its deadline in the transaction.
    pub(crate) choice_may_change: bool,
    pub(super) statements: ServerStatements,
}

/// How many messages about named statements there were.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassedStatements {
    /// Parse messages of clients.
    pub(crate) named_parses: u64,
    /// Bind messages of clients.
    pub(crate) named_binds: u64,
    /// Parse messages of clients that were passed on to the server.
    pub(crate) prepared: u64,
}

/// The statements on an upstream connection.
#[derive(Debug, Default)]
pub(super) struct ServerStatements {
    pub(super) prepared: Prepared,
    /// The unnamed one is the client's, or is known not to exist.
    pub(super) unnamed_is_current: bool,
    /// Messages on the way that make it so.
    pub(super) unnamed_pending: u32,
    /// The batch of the last of them.
    pub(super) unnamed_batch: u64,
    /// Messages on the way that prepare and close named ones.
    pub(super) named_pending: u32,
    /// The batch of the last of them.
    pub(super) named_batch: u64,
    /// Those that messages of the batch under way were about which have not been done.
    pub(super) undone: HashSet<StatementId>,
}

impl ServerStatements {
    /// A message about this statement has not been done; before it, the statement was there or not.
    /// Of several, the first says what is there.
    pub(super) fn undo(&mut self, id: StatementId, was_there: bool) {
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
            passed: PassedStatements::default(),
            own_parses: 0,
            is_ending: false,
            holds_long_statement: false,
            became_standby: None,
            choice_may_change: false,
            statements: ServerStatements::default(),
        }
    }

    /// Makes the session of a connection at rest that another process has had.
    pub(crate) fn adopt(
        (settings, is_altered): (Settings, bool),
        pins: Kinds,
        holds_long_statement: bool,
        prepared: impl Iterator<Item = StatementId>,
    ) -> Self {
        let mut session =
            ServerSession { settings, is_altered, holds_long_statement, ..ServerSession::new() };
        session.watch.pins = pins;
        prepared.for_each(|id| session.statements.prepared.insert(id));
        session
    }

    /// Returns the statements that are prepared under the proxy's names, the one that was used
    /// longest ago first.
    pub(crate) fn prepared_by_use(&self) -> Vec<StatementId> {
        self.statements.prepared.by_use()
    }

    /// Returns the number of statements that are prepared under the proxy's names.
    pub(crate) fn prepared_statements(&self) -> usize {
        self.statements.prepared.len()
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
    pub(super) fn change_unnamed(&mut self) {
        self.statements.unnamed_is_current = true;
        self.statements.unnamed_pending += 1;
        self.statements.unnamed_batch = self.replies.batch();
    }

    /// Returns whether an earlier batch than the next message's has changed the unnamed statement,
    /// or has not, if it failed: then the one that is there may be another client's.
    pub(super) fn is_unnamed_unsettled(&self) -> bool {
        self.statements.unnamed_pending > 0 && self.statements.unnamed_batch < self.replies.batch()
    }

    /// Notes that a message was sent that prepares or closes a named statement.
    pub(super) fn named_sent(&mut self, owed: ExpectedReply) {
        // What the server skips it does not answer.
        if !self.replies.is_skipping() {
            self.statements.named_pending += 1;
            self.statements.named_batch = self.replies.batch();
            self.replies.sent(owed);
        }
    }

    /// Returns whether an earlier batch than the next message's has prepared or closed a named
    /// statement, or has not, if it failed: then it is not known which ones are there.
    pub(super) fn are_named_unsettled(&self) -> bool {
        self.statements.named_pending > 0 && self.statements.named_batch < self.replies.batch()
    }

    /// Returns whether an earlier batch may remove statements by their names.
    pub(super) fn may_deallocate(&self) -> bool {
        self.watch.releases() && self.replies.owes_batch_end() && !self.replies.is_copy_in()
    }

    /// All session state has been discarded.
    pub(crate) fn cleaned(&mut self) {
        self.statements = ServerStatements::default();
        self.settings = Settings::default();
        self.is_altered = false;
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
