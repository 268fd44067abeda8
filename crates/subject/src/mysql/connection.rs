//! One client connection without a socket: bytes in, events and bytes out.
//!
//! # Mechanism
//! The owner reads into a buffer it may share among connections and hands over what arrived. Whole
//! messages are looked at where they lie; only a message cut off at the buffer's end is kept here
//! until the rest comes.
//!
//! The login ends with the session's settings, one statement each: the SQL mode in which the
//! workloads' SQL means what it means elsewhere, autocommit, and the isolation level where one is
//! asked for. Then comes the first [`Event::Ready`], and one more behind the answer to each query.
//! An error carries no transaction status, so behind one inside a transaction the connection is
//! ready as [`TransactionStatus::Failed`]: the server may have undone the transaction (after a
//! deadlock) or kept it (after a lock timeout), and a ROLLBACK ends it either way.
//!
//! # Limits
//! Spoken: `mysql_native_password` and queries as text. Not spoken: TLS, other methods of
//! authentication, prepared statements, LOAD DATA LOCAL.

use thiserror::Error;
use tidegate_wire::Malformed;
use tidegate_wire::backend::TransactionStatus;
use tidegate_wire::mysql::authentication::{NATIVE_PASSWORD, NONCE_LEN, native_password};
use tidegate_wire::mysql::handshake::{
    Login, Verdict, capability, encode_login, encode_proof, greeting, nonce, verdict,
};
use tidegate_wire::mysql::packet::{Message, PacketError, QUIT, encode_query, message};
use tidegate_wire::mysql::response::{
    Answer, ErrorPacket, OkPacket, RowOrEnd, TextRow, answer, error, is_eof, row_or_end,
};

use super::Url;
use crate::isolation::Isolation;

/// What is asked of every server; what one cannot do, it leaves out.
const WANTED: u32 = capability::FOUND_ROWS
    | capability::TRANSACTIONS
    | capability::MULTI_RESULTS
    | capability::DEPRECATE_EOF;

/// `'` is doubled within quotes and a backslash is one; `||` concatenates; what does not fit into a
/// column is an error. Autocommit is the default, unless a server was told otherwise.
const SETTINGS: &str = "SET sql_mode = 'STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT', \
                        autocommit = 1";

const ERROR: u8 = 0xff;

/// What a server said, of what a client cares about.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A row.
    Row(TextRow<'a>),
    /// A statement is done, and changed so many rows: none, when it returned some.
    Complete(u64),
    /// A statement or the login failed.
    Error(ErrorPacket<'a>),
    /// The server waits for a query; the first of these ends the login.
    Ready(TransactionStatus),
}

/// A server that this client cannot go on with.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProtocolError {
    /// The bytes are not the protocol's.
    #[error("the server does not speak MariaDB's protocol: {0}")]
    Packet(#[from] PacketError),
    /// A message has not its prescribed form.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The server wants a method that is not spoken here.
    #[error(
        "the server asks for authentication by {0}, which is not supported here; \
         let the user log in by {NATIVE_PASSWORD}"
    )]
    Method(String),
}

/// What the next message is.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Greeting,
    Verdict,
    Answer,
    /// So many definitions are still to come, and behind them, where it is not left out, an EOF.
    Definitions {
        columns: u64,
        left: u64,
    },
    Rows {
        columns: u64,
    },
}

/// What is needed until the login is done.
struct Pending {
    user: String,
    password: String,
    database: String,
    /// Statements still to be run, the next one last.
    settings: Vec<String>,
}

/// A client's end of a connection; see the module for how it is fed.
pub struct Connection {
    stage: Stage,
    /// `None` once the login is done.
    pending: Option<Box<Pending>>,
    /// The number of the packet that comes next; any, when an answer begins: it is counted on from
    /// the last packet of the query, which the owner has written.
    expected: Option<u8>,
    deprecates_eof: bool,
    status: TransactionStatus,
    /// The beginning of a message whose end has not arrived.
    partial: Vec<u8>,
}

impl Connection {
    /// A connection about to log in as `url` says, to run its transactions at this isolation level
    /// or at the server's own. The server speaks first, so there is nothing to send yet.
    #[must_use]
    pub fn start(url: &Url, isolation: Option<Isolation>) -> Self {
        let level =
            isolation.map(|level| format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"));
        let settings = level.into_iter().chain([SETTINGS.to_owned()]).collect();
        Connection {
            stage: Stage::Greeting,
            pending: Some(Box::new(Pending {
                user: url.user.clone(),
                password: url.password.clone(),
                database: url.database.clone(),
                settings,
            })),
            expected: Some(0),
            deprecates_eof: false,
            status: TransactionStatus::Idle,
            partial: Vec::new(),
        }
    }

    /// Whether the login is done.
    #[must_use]
    pub fn is_logged_in(&self) -> bool {
        self.pending.is_none()
    }

    /// Takes in what arrived, calls `on_event` for each event in order and appends to `out` what
    /// the login has to answer. `on_event` may append its next query to the `out` it is handed.
    ///
    /// # Errors
    /// The connection is of no further use; see [`ProtocolError`].
    pub fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        mut on_event: impl FnMut(Event<'_>, &mut Vec<u8>),
    ) -> Result<(), ProtocolError> {
        if self.partial.is_empty() {
            let used = self.messages(bytes, out, &mut on_event)?;
            self.partial.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(bytes);
        let used = self.messages(&joined, out, &mut on_event)?;
        joined.drain(..used);
        self.partial = joined;
        Ok(())
    }

    /// Handles the whole messages at the front of `bytes`; returns how many bytes they took.
    fn messages(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        on_event: &mut impl FnMut(Event<'_>, &mut Vec<u8>),
    ) -> Result<usize, ProtocolError> {
        let mut used = 0;
        while let Some(message) = message(&bytes[used..])? {
            used += message.len;
            self.count(&message)?;
            self.message(&message.payload, out, on_event)?;
        }
        Ok(used)
    }

    /// Looks whether a message has the number it should. An error may come unasked, when the server
    /// shuts down or somebody kills the connection.
    fn count(&mut self, message: &Message<'_>) -> Result<(), PacketError> {
        let found = message.first;
        let is_error = message.payload.first() == Some(&ERROR);
        match self.expected {
            Some(expected) if expected != found && !is_error => {
                Err(PacketError::OutOfOrder { expected, found })
            }
            _ => {
                self.expected = Some(message.last.wrapping_add(1));
                Ok(())
            }
        }
    }

    fn message(
        &mut self,
        payload: &[u8],
        out: &mut Vec<u8>,
        on_event: &mut impl FnMut(Event<'_>, &mut Vec<u8>),
    ) -> Result<(), ProtocolError> {
        match self.stage {
            Stage::Greeting if payload.first() == Some(&ERROR) => {
                on_event(Event::Error(error(payload)?), out);
            }
            Stage::Greeting => self.log_in(payload, out)?,
            Stage::Verdict => match verdict(payload)? {
                Verdict::In(_) => self.settle(out, on_event),
                Verdict::Out(refusal) => on_event(Event::Error(refusal), out),
                Verdict::Switch { plugin, data } => self.prove(plugin, data, out)?,
                Verdict::More(_) => return Err(ProtocolError::Method("several steps".to_owned())),
            },
            Stage::Answer => match answer(payload)? {
                Answer::Ok(ok) => self.complete(ok, out, on_event),
                Answer::Error(error) => self.fail(error, out, on_event),
                Answer::Columns(columns) => {
                    self.stage = Stage::Definitions { columns, left: columns };
                }
            },
            Stage::Definitions { .. } if payload.first() == Some(&ERROR) => {
                self.fail(error(payload)?, out, on_event);
            }
            Stage::Definitions { columns, left } => self.define(payload, columns, left)?,
            Stage::Rows { columns } => match row_or_end(payload, columns, self.deprecates_eof)? {
                RowOrEnd::Row(row) => on_event(Event::Row(row), out),
                RowOrEnd::End(ok) => self.complete(OkPacket { affected: 0, ..ok }, out, on_event),
                RowOrEnd::Error(error) => self.fail(error, out, on_event),
            },
        }
        Ok(())
    }

    /// Answers the greeting.
    fn log_in(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), ProtocolError> {
        let greeting = greeting(payload)?;
        let capabilities = WANTED & greeting.capabilities;
        self.deprecates_eof = capabilities & capability::DEPRECATE_EOF != 0;
        let number = self.answer_number();
        if let Some(pending) = &self.pending {
            let login = Login {
                capabilities,
                user: &pending.user,
                proof: native_password(pending.password.as_bytes(), &greeting.nonce),
                database: &pending.database,
            };
            encode_login(out, number, &login);
        }
        self.stage = Stage::Verdict;
        Ok(())
    }

    fn prove(
        &mut self,
        plugin: &[u8],
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        if plugin != NATIVE_PASSWORD.as_bytes() {
            let plugin = String::from_utf8_lossy(plugin).into_owned();
            return Err(ProtocolError::Method(plugin));
        }
        let nonce: [u8; NONCE_LEN] = nonce(data)?;
        let number = self.answer_number();
        if let Some(pending) = &self.pending {
            let proof = native_password(pending.password.as_bytes(), &nonce);
            encode_proof(out, number, proof);
        }
        Ok(())
    }

    /// The number of the packet by which the one just received is answered.
    fn answer_number(&mut self) -> u8 {
        let number = self.expected.unwrap_or_default();
        self.expected = Some(number.wrapping_add(1));
        number
    }

    fn define(&mut self, payload: &[u8], columns: u64, left: u64) -> Result<(), ProtocolError> {
        let left = match left.checked_sub(1) {
            Some(left) => left,
            None if is_eof(payload) => {
                self.stage = Stage::Rows { columns };
                return Ok(());
            }
            None => return Err(Malformed { message: "EOF", field: "header" }.into()),
        };
        self.stage = if left == 0 && self.deprecates_eof {
            Stage::Rows { columns }
        } else {
            Stage::Definitions { columns, left }
        };
        Ok(())
    }

    fn complete(
        &mut self,
        ok: OkPacket,
        out: &mut Vec<u8>,
        on_event: &mut impl FnMut(Event<'_>, &mut Vec<u8>),
    ) {
        self.stage = Stage::Answer;
        self.status = if ok.status.in_transaction() {
            TransactionStatus::InBlock
        } else {
            TransactionStatus::Idle
        };
        if self.pending.is_some() {
            return self.settle(out, on_event);
        }
        on_event(Event::Complete(ok.affected), out);
        if !ok.status.more_results() {
            self.ready(out, on_event);
        }
    }

    fn fail(
        &mut self,
        error: ErrorPacket<'_>,
        out: &mut Vec<u8>,
        on_event: &mut impl FnMut(Event<'_>, &mut Vec<u8>),
    ) {
        self.stage = Stage::Answer;
        on_event(Event::Error(error), out);
        if self.pending.is_some() {
            // Without its settings the session is of no use.
            out.extend_from_slice(QUIT);
            return;
        }
        if self.status == TransactionStatus::InBlock {
            self.status = TransactionStatus::Failed;
        }
        self.ready(out, on_event);
    }

    /// Runs the next of the session's settings, or ends the login when there is none.
    fn settle(&mut self, out: &mut Vec<u8>, on_event: &mut impl FnMut(Event<'_>, &mut Vec<u8>)) {
        self.stage = Stage::Answer;
        match self.pending.as_mut().and_then(|pending| pending.settings.pop()) {
            Some(statement) => {
                encode_query(out, statement.as_bytes());
                self.expected = None;
            }
            None => {
                self.pending = None;
                self.ready(out, on_event);
            }
        }
    }

    fn ready(&mut self, out: &mut Vec<u8>, on_event: &mut impl FnMut(Event<'_>, &mut Vec<u8>)) {
        self.expected = None;
        on_event(Event::Ready(self.status), out);
    }
}
