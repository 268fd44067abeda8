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

use crate::blocking::Partial;
use crate::url::Url;

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
#[derive(Clone, Debug)]
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
    partial: Partial,
}

impl Connection {
    /// A connection about to log in as `url` says, to run its transactions at the URL's isolation
    /// level or at the server's own. The server speaks first, so there is nothing to send yet.
    #[must_use]
    pub fn start(url: &Url) -> Self {
        let level =
            url.isolation.map(|level| format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"));
        let settings = level.into_iter().chain([SETTINGS.to_owned()]).collect();
        Connection {
            stage: Stage::Greeting,
            pending: Some(Box::new(Pending {
                user: url.user.clone(),
                password: url.password.clone().unwrap_or_default(),
                database: url.database.clone(),
                settings,
            })),
            expected: Some(0),
            deprecates_eof: false,
            status: TransactionStatus::Idle,
            partial: Partial::default(),
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
        let mut partial = std::mem::take(&mut self.partial);
        let received = partial.receive(bytes, |bytes| self.messages(bytes, out, &mut on_event));
        self.partial = partial;
        received
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
        let number = self.expected.expect("a packet was received, and so counted");
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
        let next = self.pending.as_mut().and_then(|pending| pending.settings.pop());
        if let Some(statement) = next {
            encode_query(out, statement.as_bytes());
            self.expected = None;
        } else {
            self.pending = None;
            self.ready(out, on_event);
        }
    }

    fn ready(&mut self, out: &mut Vec<u8>, on_event: &mut impl FnMut(Event<'_>, &mut Vec<u8>)) {
        self.expected = None;
        on_event(Event::Ready(self.status), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_wire::mysql::packet::encode_message;

    /// A MariaDB's greeting; with the flag, it can leave out EOF.
    fn greeting(deprecates_eof: bool) -> Vec<u8> {
        let high = u8::from(deprecates_eof);
        let low = b"\x0a10.11\0\x07\0\0\0nonce678\0\xff\xff\x2d\x02\0\x0f";
        [&low[..], &[high, 21]]
            .concat()
            .into_iter()
            .chain([0; 10])
            .chain(*b"123456789012\0mysql_native_password\0")
            .collect()
    }

    /// Messages of one exchange, the first with this number.
    fn exchange(first: u8, payloads: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for (payload, number) in payloads.iter().zip(first..) {
            encode_message(&mut out, number, |out| out.extend_from_slice(payload));
        }
        out
    }

    const OK: &[u8] = b"\0\0\0\x02\0\0\0";
    const OK_IN_TRANSACTION: &[u8] = b"\0\x03\0\x03\0\0\0";
    const OK_FOR_EOF: &[u8] = b"\xfe\0\0\x02\0\0\0";
    const EOF: &[u8] = b"\xfe\0\0\x02\0";
    const EOF_AND_MORE: &[u8] = b"\xfe\0\0\x0a\0";
    const DEADLOCK: &[u8] = b"\xff\xbd\x04#40001Deadlock";

    /// What a server says to a client with an isolation level, from the greeting to its end.
    fn conversation(deprecates_eof: bool) -> Vec<u8> {
        let mut bytes = exchange(0, &[&greeting(deprecates_eof)]);
        bytes.extend(exchange(2, &[OK]));
        bytes.extend([OK, OK, OK_IN_TRANSACTION].map(|ok| exchange(1, &[ok])).concat());
        let rows: &[&[u8]] = if deprecates_eof {
            &[b"\x02", b"\x03def", b"\x03def", b"\x017\xfb", OK_FOR_EOF]
        } else {
            &[b"\x02", b"def", b"def", EOF, b"\x017\xfb", EOF_AND_MORE, b"\x01", b"d", EOF, EOF]
        };
        bytes.extend(exchange(1, rows));
        bytes.extend(exchange(1, &[OK_IN_TRANSACTION]));
        bytes.extend(exchange(1, &[b"\x01", b"d", DEADLOCK]));
        bytes.extend(exchange(1, &[DEADLOCK]));
        bytes.extend(exchange(1, &[OK]));
        bytes
    }

    fn started() -> Connection {
        Connection::start(&"mysql://ann:secret@h/d?isolation=read-committed".parse().unwrap())
    }

    /// Events as text, and what was sent, when `bytes` arrive in pieces of `size`.
    fn events(bytes: &[u8], size: usize) -> (Vec<String>, Vec<u8>) {
        let (mut connection, mut seen, mut sent) = (started(), Vec::new(), Vec::new());
        for piece in bytes.chunks(size) {
            let on_event = |event: Event<'_>, _: &mut Vec<u8>| {
                seen.push(match event {
                    Event::Error(error) => format!("Error({})", error.code),
                    other => format!("{other:?}"),
                });
            };
            connection.receive(piece, &mut sent, on_event).unwrap();
        }
        assert!(connection.partial.0.is_empty() && connection.is_logged_in());
        (seen, sent)
    }

    #[test]
    fn events_do_not_depend_on_how_bytes_arrive() {
        for deprecates_eof in [true, false] {
            let bytes = conversation(deprecates_eof);
            let (whole, sent) = events(&bytes, bytes.len());
            let mut expected = vec!["Ready(Idle)", "Complete(3)", "Ready(InBlock)"];
            expected.extend(["Row([Some(\"7\"), None])", "Complete(0)"]);
            // A second set of rows, an empty one.
            expected.extend((!deprecates_eof).then_some("Complete(0)"));
            expected.extend(["Ready(Idle)", "Complete(3)", "Ready(InBlock)"]);
            expected.extend(["Error(1213)", "Ready(Failed)", "Error(1213)", "Ready(Failed)"]);
            expected.extend(["Complete(0)", "Ready(Idle)"]);
            assert_eq!(whole, expected);
            let text = String::from_utf8_lossy(&sent);
            let place = |part: &str| text.find(part).unwrap();
            assert!(place("mysql_native_password") < place("SET sql_mode"));
            assert!(
                place("SET sql_mode") < place("SET SESSION TRANSACTION ISOLATION LEVEL READ C")
            );
            for size in 1..bytes.len() {
                assert_eq!(events(&bytes, size), (whole.clone(), sent.clone()), "by {size}");
            }
        }
    }

    /// What comes of a server that says this.
    fn outcome(bytes: &[u8]) -> (Result<(), ProtocolError>, Vec<u16>, Vec<u8>) {
        let (mut errors, mut sent) = (Vec::new(), Vec::new());
        let result = started().receive(bytes, &mut sent, |event, _| {
            if let Event::Error(error) = event {
                errors.push(error.code);
            }
        });
        (result, errors, sent)
    }

    #[test]
    fn another_nonce_is_answered_and_another_method_refused() {
        let greeting = greeting(true);
        let native = [b"\xfemysql_native_password\0", &b"12345678901234567890\0"[..]].concat();
        let bytes = [exchange(0, &[&greeting]), exchange(2, &[&native])].concat();
        let (result, _, sent) = outcome(&bytes);
        assert_eq!(result, Ok(()));
        let proof = native_password(b"secret", b"12345678901234567890").unwrap();
        assert!(sent.ends_with(&[&[20, 0, 0, 3][..], &proof].concat()));

        let other = exchange(2, &[b"\xfeclient_ed25519\0nonce"]);
        let (result, ..) = outcome(&[exchange(0, &[&greeting]), other].concat());
        assert_eq!(result, Err(ProtocolError::Method("client_ed25519".to_owned())));
    }

    #[test]
    fn a_refusal_is_told_at_every_step() {
        let full = exchange(0, &[b"\xff\x10\x04Too many connections"]);
        assert_eq!(outcome(&full), (Ok(()), vec![1040], vec![]));
        let greeting = exchange(0, &[&greeting(true)]);
        let denied = exchange(2, &[b"\xff\x15\x04#28000Access denied"]);
        assert_eq!(outcome(&[greeting.clone(), denied].concat()).1, [1045]);
        let unset = exchange(1, &[b"\xff\xcf\x04#42000no"]);
        let (result, errors, sent) = outcome(&[greeting, exchange(2, &[OK]), unset].concat());
        assert_eq!((result, errors), (Ok(()), vec![1231]));
        assert!(sent.ends_with(QUIT));
    }

    #[test]
    fn what_has_no_place_is_refused() {
        let greeting = exchange(0, &[&greeting(true)]);
        let in_and_set = [exchange(2, &[OK]), exchange(1, &[OK]), exchange(1, &[OK])].concat();
        for bytes in [
            b"HTTP/1.1 400 Bad Request\r\n\r\n".repeat(1 << 18),
            exchange(1, &[&b"\x0a"[..]]),
            exchange(0, &[b""]),
            [&greeting[..], &exchange(3, &[OK])].concat(),
            [&greeting[..], &exchange(2, &[b"\x01\x04"])].concat(),
            [&greeting[..], &in_and_set, &exchange(1, &[b"\xfb/etc/passwd"])].concat(),
            [&greeting[..], &in_and_set, &exchange(1, &[b"\x01", b"d", b"\x01a\x01b"])].concat(),
        ] {
            assert!(outcome(&bytes).0.is_err(), "{:?}", &bytes[..bytes.len().min(120)]);
        }
    }
}
