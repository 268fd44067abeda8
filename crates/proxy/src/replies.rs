//! Which replies an upstream connection still owes, and to whom.
//!
//! # Mechanism
//!
//! The protocol is a pipeline: the server answers messages in the order they were sent. Each
//! message that will be answered leaves an entry here when it is sent, and the message that ends
//! its answer takes the entry away. So at any moment the proxy knows whether the connection is
//! quiet (nothing owed), which messages on the way are answers to the proxy's own messages and
//! must not reach the client, and where an answer that the proxy owes by itself belongs.
//!
//! ```text
//! sent:   Parse(own) Bind Execute Sync        owed: [OwnParse, Bind, Execute, Sync]
//! back:   ParseComplete   -> swallowed        owed: [Bind, Execute, Sync]
//!         BindComplete    -> passed on        owed: [Execute, Sync]
//!         ErrorResponse   -> passed on        owed: [Sync]      (the server skips to the Sync)
//!         ReadyForQuery   -> passed on        owed: []
//! ```
//!
//! # Limits
//!
//! A server in copy-in mode ignores Sync, and a client may have sent one before it learns of the
//! mode (protocol documentation, "COPY Operations"), perhaps with the end of its data behind it;
//! hence the entry [`ExpectedReply::CopyEnd`], which is answered by nothing. A Sync that a client
//! sends in the middle of its copy data, and then an error in that data, is the one sequence whose
//! count is uncertain: whether the server saw the error before the Sync is not known. If it did,
//! there is one ReadyForQuery more than is owed here; the connection of a client that vanished is
//! then closed.

use std::collections::VecDeque;

use tidegate_wire::backend::tag;

use crate::session_state::Kinds;

/// Identifies a statement's definition; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StatementId(pub(crate) u64);

/// A reply that is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedReply {
    /// To a simple query or function call; ends with ReadyForQuery.
    Query,
    /// To a Sync; is ReadyForQuery.
    Sync,
    /// To the client's Parse; the statement, if it is a named one.
    Parse(Option<StatementId>),
    /// To the client's Parse of a name that is taken; is an error.
    ParseTaken,
    /// To what the proxy has sent instead of the client's simple query, which it refuses: an error,
    /// which is replaced.
    RefusedQuery(Kinds),
    /// To what the proxy has sent instead of the client's Parse, which it refuses: an error, which
    /// is replaced.
    RefusedParse(Kinds),
    Bind,
    Describe,
    Execute,
    Close,
    /// To the client's Close of the unnamed statement.
    CloseUnnamed,
    /// Nothing: the client ended its copy data here.
    CopyEnd,
    /// To a simple query of the proxy's own; swallowed.
    OwnQuery,
    /// To a Sync of the proxy's own; swallowed.
    OwnSync,
    /// To a Parse the proxy sent; swallowed.
    OwnParse(Option<StatementId>),
    /// To a Close the proxy sent, of this statement or the unnamed one; swallowed.
    OwnClose(Option<StatementId>),
    /// `ParseComplete`, by the proxy: the client's Parse was not sent on.
    ProxyParse(StatementId),
    /// `CloseComplete`, by the proxy: the client's Close was not sent on.
    ProxyClose,
}

impl ExpectedReply {
    /// Returns whether ReadyForQuery ends it.
    fn ends_batch(self) -> bool {
        matches!(
            self,
            ExpectedReply::Query
                | ExpectedReply::RefusedQuery(_)
                | ExpectedReply::Sync
                | ExpectedReply::OwnQuery
                | ExpectedReply::OwnSync
        )
    }

    /// Returns for what the client's message is refused, if it is.
    fn refused(self) -> Option<Kinds> {
        match self {
            ExpectedReply::RefusedQuery(kinds) | ExpectedReply::RefusedParse(kinds) => Some(kinds),
            _ => None,
        }
    }

    /// Returns whether it asks a server that skips messages to go on.
    fn ends_skipping(self) -> bool {
        matches!(self, ExpectedReply::Sync | ExpectedReply::OwnSync)
    }

    /// Returns whether a message of type `tag` is the last of the answer.
    fn is_answered_by(self, tag: u8) -> bool {
        match self {
            ExpectedReply::Parse(_)
            | ExpectedReply::ParseTaken
            | ExpectedReply::RefusedParse(_)
            | ExpectedReply::OwnParse(_) => tag == tag::PARSE_COMPLETE,
            ExpectedReply::Bind => tag == tag::BIND_COMPLETE,
            ExpectedReply::Close | ExpectedReply::CloseUnnamed | ExpectedReply::OwnClose(_) => {
                tag == tag::CLOSE_COMPLETE
            }
            ExpectedReply::Describe => matches!(tag, tag::ROW_DESCRIPTION | tag::NO_DATA),
            ExpectedReply::Execute => {
                matches!(tag, tag::COMMAND_COMPLETE | tag::EMPTY_QUERY | tag::PORTAL_SUSPENDED)
            }
            _ => false,
        }
    }

    fn is_own(self) -> bool {
        matches!(
            self,
            ExpectedReply::OwnQuery
                | ExpectedReply::OwnSync
                | ExpectedReply::OwnParse(_)
                | ExpectedReply::OwnClose(_)
        )
    }
}

/// What became of a message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageOutcome {
    /// The server did what it asked for.
    Done,
    /// It failed.
    Failed,
    /// The server has skipped it because of an error before it.
    Skipped,
}

/// What to do with a message from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Pass it on to the client.
    Pass,
    /// It answers the proxy.
    Swallow,
    /// It is the error that stands for the proxy's refusal of these, which the client gets instead.
    Replace(Kinds),
}

/// The replies one upstream connection owes, oldest first.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four facts about the server, found out apart")]
pub(crate) struct Replies {
    owed: VecDeque<ExpectedReply>,
    /// Extended-query messages were sent after the last Sync.
    batch_open: bool,
    /// The server skips everything until the next Sync.
    skipping: bool,
    /// The server waits for copy data, as far as we know.
    copy_in: bool,
    /// A Sync was taken for one that the server ignores.
    uncertain: bool,
    /// Ends of batches sent so far.
    batches: u64,
}

impl Replies {
    /// Returns whether there may be one ReadyForQuery more than was counted: see the module's
    /// limits.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.uncertain
    }

    /// A client begins with a connection at rest.
    pub(crate) fn begin_lending(&mut self) {
        self.uncertain = false;
    }

    /// Returns the number of the batch that the next message belongs to.
    pub(crate) fn batch(&self) -> u64 {
        self.batches
    }

    /// Returns whether nothing is owed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.owed.is_empty()
    }

    /// Returns whether the server skips messages until a Sync, because of an error before it.
    pub(crate) fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// Returns whether the server waits for copy data.
    pub(crate) fn is_copy_in(&self) -> bool {
        self.copy_in
    }

    /// Returns whether the last message sent asks for a ReadyForQuery: the next one begins a new
    /// request.
    pub(crate) fn is_batch_complete(&self) -> bool {
        !self.skipping && !self.batch_open
    }

    /// Returns whether the end of a batch that has been sent is still to be answered.
    pub(crate) fn owes_batch_end(&self) -> bool {
        self.owed.iter().any(|owed| owed.ends_batch())
    }

    /// Returns whether a query of the proxy's own is being answered.
    pub(crate) fn is_own_query(&self) -> bool {
        self.owed.front() == Some(&ExpectedReply::OwnQuery)
    }

    /// Notes that a message was sent, and what will answer it.
    pub(crate) fn sent(&mut self, owed: ExpectedReply) {
        match owed {
            ExpectedReply::Sync | ExpectedReply::OwnSync if self.copy_in => {
                self.uncertain = true;
                return;
            }
            ExpectedReply::Sync | ExpectedReply::OwnSync => {
                self.skipping = false;
                self.batch_open = false;
            }
            _ if self.skipping => return,
            // The data that the server waits for ends here.
            ExpectedReply::CopyEnd if self.copy_in => {
                self.copy_in = false;
                return;
            }
            ExpectedReply::Query | ExpectedReply::RefusedQuery(_) | ExpectedReply::OwnQuery => {
                self.batch_open = false;
            }
            ExpectedReply::CopyEnd => {}
            _ => self.batch_open = true,
        }
        self.batches += u64::from(owed.ends_batch());
        self.owed.push_back(owed);
    }

    /// Returns what has been sent and not answered, oldest first.
    pub(crate) fn pending(&self) -> impl Iterator<Item = ExpectedReply> + '_ {
        self.owed.iter().copied()
    }

    /// Takes the answers that the proxy gives by itself and whose turn it is.
    pub(crate) fn take_proxy_answer(&mut self) -> Option<ExpectedReply> {
        while let Some(ExpectedReply::CopyEnd) = self.owed.front() {
            self.owed.pop_front();
        }
        match self.owed.front() {
            Some(ExpectedReply::ProxyParse(_) | ExpectedReply::ProxyClose) => self.owed.pop_front(),
            _ => None,
        }
    }

    /// Judges a message from the server. `ended` is told what became of each entry that this
    /// message settles.
    pub(crate) fn received(
        &mut self,
        tag: u8,
        mut ended: impl FnMut(ExpectedReply, MessageOutcome),
    ) -> Verdict {
        let front = self.owed.front().copied();
        let refused = front.filter(|_| tag == tag::ERROR).and_then(ExpectedReply::refused);
        let verdict = match (front, refused) {
            (_, Some(kinds)) => Verdict::Replace(kinds),
            // What a client listens for may come at any time.
            (Some(owed), _) if owed.is_own() && tag != tag::NOTIFICATION => Verdict::Swallow,
            _ => Verdict::Pass,
        };
        match tag {
            tag::READY_FOR_QUERY => self.end_batch(&mut ended),
            tag::ERROR => return self.fail(front, &mut ended, verdict),
            // Both ways, until the client ends it.
            tag::COPY_IN | tag::COPY_BOTH => self.begin_copy_in(),
            _ => {
                if let Some(owed) = front.filter(|owed| owed.is_answered_by(tag)) {
                    self.owed.pop_front();
                    ended(owed, MessageOutcome::Done);
                }
            }
        }
        verdict
    }

    /// ReadyForQuery ends the oldest batch; what stands before its end was never answered.
    fn end_batch(&mut self, ended: &mut impl FnMut(ExpectedReply, MessageOutcome)) {
        while let Some(owed) = self.owed.pop_front() {
            if owed.ends_batch() {
                return;
            }
            ended(owed, MessageOutcome::Skipped);
        }
        // One more than was counted: see the module's limits. The server skips nothing now.
        self.skipping = false;
        self.batch_open = false;
    }

    fn fail(
        &mut self,
        front: Option<ExpectedReply>,
        ended: &mut impl FnMut(ExpectedReply, MessageOutcome),
        verdict: Verdict,
    ) -> Verdict {
        self.copy_in = false;
        match front {
            // The error is one message of the query's answer; ReadyForQuery follows.
            Some(owed) if owed.ends_batch() => return verdict,
            None => return verdict,
            _ => {}
        }
        self.skipping = true;
        let mut outcome = MessageOutcome::Failed;
        while let Some(owed) = self.owed.front() {
            if owed.ends_skipping() {
                self.skipping = false;
                break;
            }
            ended(*owed, outcome);
            outcome = MessageOutcome::Skipped;
            self.owed.pop_front();
        }
        // A failed Parse of ours means that the client's statement cannot run: it must know why.
        if matches!(front, Some(ExpectedReply::OwnParse(_))) { Verdict::Pass } else { verdict }
    }

    /// The server ignores every Sync up to the end of the copy data; both may have been sent
    /// already. For any other message in between it ends the connection.
    fn begin_copy_in(&mut self) {
        while self.owed.get(1).is_some_and(|owed| owed.ends_skipping()) {
            self.owed.remove(1);
            self.uncertain = true;
        }
        if self.owed.get(1) == Some(&ExpectedReply::CopyEnd) {
            self.owed.remove(1);
        } else {
            self.copy_in = true;
        }
        // A Sync may have been the one that was to end the batch.
        self.batch_open |= self.owed.front() == Some(&ExpectedReply::Execute)
            && !self.owed.iter().any(|owed| owed.ends_skipping());
    }
}
