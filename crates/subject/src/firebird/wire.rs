//! Firebird's wire protocol: requests as bytes, answers from any reader. No sockets here.
//!
//! Version 13 of the protocol, that of Firebird 3 and understood by its successors. Everything is
//! XDR: numbers are big-endian words of four bytes, byte strings are a length, the bytes, and zeros
//! up to the next multiple of four. Messages have no length of their own, so an answer has to be
//! read piece by piece.
//!
//! Each request is answered once and in order, so several may be sent at a time. One that asks for
//! an object (a transaction, a statement) is answered with the object's handle; [`LATEST`] names
//! the object made last, so that a request can be sent before that answer has come.
//!
//! Values are described in BLR, Firebird's binary request language. The server converts between
//! what a column is and what a message says, so two types are enough: whole numbers of 64 bits and
//! text of varying length. A row is a bitmap of what is NULL, then the other values.
//!
//! A login is by the older password hash (`Legacy_Auth`), which is sent with the first request, to
//! private servers on the loopback interface; to others it is by [SRP](super::srp), and what
//! follows is enciphered by ARC4 where the server has that.
//!
//! Limits: no blobs, no other cipher, no compression.
//!
//! Source: Firebird's "Wire Protocol" documentation and `src/remote/protocol.h`.

use std::io::{self, Read};

use tidegate_workload::{Rows, Value};

use super::srp::Method;
use super::status::Status;

/// The handle of the object made by the request before, whatever it is.
pub(super) const LATEST: u32 = 0xffff;

/// The handle of the database: a connection has one, and it is the first object.
const DATABASE: u32 = 0;

/// The longest byte string an answer may hold.
const LONGEST: usize = 1 << 20;

/// Rows asked for at a time.
const FETCH: u32 = 400;

/// UTF-8 among the character sets.
const UTF8: u16 = 4;

mod operation {
    pub(super) const CONNECT: u32 = 1;
    pub(super) const ACCEPT: u32 = 3;
    pub(super) const RESPONSE: u32 = 9;
    pub(super) const ATTACH: u32 = 19;
    pub(super) const CREATE: u32 = 20;
    pub(super) const DETACH: u32 = 21;
    pub(super) const TRANSACTION: u32 = 29;
    pub(super) const COMMIT: u32 = 30;
    pub(super) const ROLLBACK: u32 = 31;
    pub(super) const ALLOCATE: u32 = 62;
    pub(super) const EXECUTE: u32 = 63;
    pub(super) const FETCH: u32 = 65;
    pub(super) const FETCH_RESPONSE: u32 = 66;
    pub(super) const FREE: u32 = 67;
    pub(super) const PREPARE: u32 = 68;
    pub(super) const INFO_SQL: u32 = 70;
    pub(super) const DUMMY: u32 = 71;
    pub(super) const EXECUTE_RETURNING: u32 = 76;
    pub(super) const SQL_RESPONSE: u32 = 78;
    pub(super) const DROP: u32 = 81;
    pub(super) const CONTINUE: u32 = 92;
    pub(super) const ACCEPT_DATA: u32 = 94;
    pub(super) const CRYPT: u32 = 96;
    pub(super) const CONDITIONAL_ACCEPT: u32 = 98;
}

/// What is asked about a statement when it is prepared: its kind, and of each column of its rows
/// the place, type, scale and length.
const DESCRIBE: &[u8] = &[21, 4, 7, 9, 11, 13, 14, 8];

/// Asks how many rows a statement touched.
const COUNTS: &[u8] = &[23];

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum WireError {
    /// The connection broke.
    Io(io::Error),
    /// The server does not speak as it should.
    Protocol(&'static str),
    /// The server says no.
    Server(Status),
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        WireError::Io(error)
    }
}

/// What becomes of a statement on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// Its rows are done with.
    Cursor = 1,
    /// It is done with.
    Statement = 2,
}

/// What a client says of enciphering.
const NO_CIPHER: u8 = 0;
const MAY_CIPHER: u8 = 1;

/// The cipher we have.
pub(super) const CIPHER: &[u8] = b"Arc4";

/// A parameter of a login, in a connect or a database request.
type Parameter<'p> = (u8, &'p [u8]);

/// What a login begins with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Claim<'c> {
    /// The hash of the older method.
    Hash(&'c str),
    /// The public key of a login by SRP, after which we may encipher.
    PublicKey(&'c str),
}

/// Who opens a database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity<'i> {
    pub(super) user: &'i str,
    /// The proof of a login that is not over yet.
    pub(super) proof: Option<&'i str>,
}

/// Requests, one after the other, ready to be sent.
#[derive(Debug, Default)]
pub(super) struct Requests(Vec<u8>);

impl Requests {
    /// Takes what is to be sent.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.0.extend_from_slice(&word.to_be_bytes());
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.words(&[length(bytes.len())]);
        self.0.extend_from_slice(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        // Every request begins at a multiple of four.
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Says who we are, and that we speak version 13 with answers that may wait for the next one.
    pub(super) fn connect(&mut self, database: &str, user: &str, claim: Claim<'_>) {
        let (method, methods, data, cipher) = match claim {
            Claim::Hash(hash) => ("Legacy_Auth", "Legacy_Auth", hash, NO_CIPHER),
            Claim::PublicKey(key) => (Method::Srp.name(), Method::LIST, key, MAY_CIPHER),
        };
        // Specific data come in numbered pieces.
        let pieces = (0..=u8::MAX).zip(data.as_bytes().chunks(254));
        let pieces: Vec<Vec<u8>> =
            pieces.map(|(place, piece)| [&[place], piece].concat()).collect();
        let mut identity =
            parameters(&[(9, user.as_bytes()), (8, method.as_bytes()), (10, methods.as_bytes())]);
        let pieces: Vec<Parameter<'_>> = pieces.iter().map(|piece| (7, piece.as_slice())).collect();
        identity.extend(parameters(&pieces));
        identity.extend(parameters(&[(11, &[cipher, 0, 0, 0]), (6, &[])]));
        // Version 3 of this request, a generic architecture, one protocol on offer.
        self.words(&[operation::CONNECT, operation::ATTACH, 3, 1]);
        self.bytes(database.as_bytes());
        self.words(&[1]);
        self.bytes(&identity);
        self.words(&[0x800d, 1, 0, 5, 2]);
    }

    /// Goes on with a login.
    pub(super) fn go_on(&mut self, data: &str, method: Method) {
        self.words(&[operation::CONTINUE]);
        self.bytes(data.as_bytes());
        self.bytes(method.name().as_bytes());
        self.bytes(Method::LIST.as_bytes());
        self.bytes(&[]);
    }

    /// Says that all that follows is enciphered by the key of the login.
    pub(super) fn encipher(&mut self) {
        self.words(&[operation::CRYPT]);
        self.bytes(CIPHER);
        self.bytes(b"Symmetric");
    }

    /// Removes the database with its file.
    pub(super) fn drop_database(&mut self) {
        self.words(&[operation::DROP, DATABASE]);
    }

    /// Opens the database.
    pub(super) fn attach(&mut self, database: &str, identity: Identity<'_>, sweep: bool) {
        let sweep: &[Parameter<'_>] = if sweep { &[(10, &[1])] } else { &[] };
        self.database(operation::ATTACH, database, identity, sweep);
    }

    /// Makes the database and opens it.
    pub(super) fn create(&mut self, database: &str, identity: Identity<'_>, page_bytes: u32) {
        self.database(
            operation::CREATE,
            database,
            identity,
            &[(4, &page_bytes.to_le_bytes()), (68, b"UTF8")],
        );
    }

    fn database(
        &mut self,
        code: u32,
        database: &str,
        Identity { user, proof }: Identity<'_>,
        more: &[Parameter<'_>],
    ) {
        // Character set of this connection, user, SQL dialect.
        let login = parameters(&[(48, b"UTF8"), (28, user.as_bytes()), (63, &[3])]);
        let proof: Vec<Parameter<'_>> =
            proof.into_iter().map(|proof| (84, proof.as_bytes())).collect();
        let more = [parameters(&proof), parameters(more)].concat();
        let block = [&[1], login.as_slice(), more.as_slice()].concat();
        self.words(&[code, DATABASE]);
        self.bytes(database.as_bytes());
        self.bytes(&block);
    }

    pub(super) fn detach(&mut self) {
        self.words(&[operation::DETACH, DATABASE]);
    }

    /// Begins a transaction with a parameter block.
    pub(super) fn begin(&mut self, block: &[u8]) {
        self.words(&[operation::TRANSACTION, DATABASE]);
        self.bytes(block);
    }

    pub(super) fn commit(&mut self, transaction: u32) {
        self.words(&[operation::COMMIT, transaction]);
    }

    pub(super) fn roll_back(&mut self, transaction: u32) {
        self.words(&[operation::ROLLBACK, transaction]);
    }

    /// Makes a statement of a text and asks for its description: two answers.
    pub(super) fn prepare(&mut self, transaction: u32, sql: &str) {
        self.words(&[operation::ALLOCATE, DATABASE]);
        self.words(&[operation::PREPARE, transaction, LATEST, 3]);
        self.bytes(sql.as_bytes());
        self.bytes(DESCRIBE);
        self.words(&[u32::from(u16::MAX)]);
    }

    /// Runs a statement.
    pub(super) fn execute(&mut self, transaction: u32, statement: u32, values: &[Value<'_>]) {
        self.words(&[operation::EXECUTE, statement, transaction]);
        self.values(values);
    }

    /// Runs a statement that answers with at most one row.
    pub(super) fn execute_returning(
        &mut self,
        transaction: u32,
        statement: u32,
        values: &[Value<'_>],
        columns: &[Column],
    ) {
        self.words(&[operation::EXECUTE_RETURNING, statement, transaction]);
        self.values(values);
        self.bytes(&layout(columns));
        self.words(&[0]);
    }

    fn values(&mut self, values: &[Value<'_>]) {
        if values.is_empty() {
            self.bytes(&[]);
            self.words(&[0, 0]);
            return;
        }
        let columns: Vec<Column> = values.iter().map(Column::of).collect();
        self.bytes(&layout(&columns));
        self.words(&[0, 1]);
        for eight in values.chunks(8) {
            let null = |(bit, value): (usize, &Value<'_>)| u8::from(*value == Value::Null) << bit;
            self.0.push(eight.iter().enumerate().map(null).sum());
        }
        self.pad();
        for value in values {
            match value {
                Value::Null => {}
                Value::Int(number) => self.0.extend_from_slice(&number.to_be_bytes()),
                Value::Text(text) => self.bytes(text.as_bytes()),
            }
        }
    }

    /// Asks for more rows of a statement that has run.
    pub(super) fn fetch(&mut self, statement: u32, columns: &[Column]) {
        self.words(&[operation::FETCH, statement]);
        self.bytes(&layout(columns));
        self.words(&[0, FETCH]);
    }

    /// Asks how many rows a statement touched.
    pub(super) fn count(&mut self, statement: u32) {
        self.words(&[operation::INFO_SQL, statement, 0]);
        self.bytes(COUNTS);
        self.words(&[256]);
    }

    /// Lets go of a statement or of its rows. Its answer comes together with the next one.
    pub(super) fn release(&mut self, statement: u32, what: Release) {
        self.words(&[operation::FREE, statement, what as u32]);
    }
}

/// Lengths here are those of statements and values.
fn length(len: usize) -> u32 {
    u32::try_from(len).expect("a statement is far shorter than 4 GiB")
}

/// Parameters as tag, length, bytes. The user's name is the only one from outside.
fn parameters(parameters: &[Parameter<'_>]) -> Vec<u8> {
    let mut block = Vec::new();
    for (tag, value) in parameters {
        let length = u8::try_from(value.len()).expect("longer names are refused before");
        block.extend_from_slice(&[*tag, length]);
        block.extend_from_slice(value);
    }
    block
}

/// Bytes of the longest text that a message may hold, and of the longest name.
pub(super) const TEXT_MAX: usize = 32_765;
pub(super) const NAME_MAX: usize = 255;

/// What a column of a message holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Int,
    /// Text of at most so many bytes.
    Text(u16),
}

impl Column {
    fn of(value: &Value<'_>) -> Self {
        match value {
            Value::Null => Column::Text(1),
            Value::Int(_) => Column::Int,
            Value::Text(text) => {
                Column::Text(u16::try_from(text.len()).expect("longer texts are refused before"))
            }
        }
    }
}

/// A message's layout in BLR: version 5, begin, message 0 of so many items; each value is followed
/// by whether it is NULL, a 16-bit number (7); end, end of request.
fn layout(columns: &[Column]) -> Vec<u8> {
    let items = u16::try_from(columns.len() * 2);
    let items = items.expect("a description of 64 KiB has room for some 3,000 columns");
    let mut blr = vec![5, 2, 4, 0];
    blr.extend_from_slice(&items.to_le_bytes());
    for column in columns {
        match column {
            Column::Int => blr.extend_from_slice(&[16, 0]),
            Column::Text(bytes) => {
                blr.push(38);
                blr.extend_from_slice(&UTF8.to_le_bytes());
                blr.extend_from_slice(&bytes.to_le_bytes());
            }
        }
        blr.extend_from_slice(&[7, 0]);
    }
    blr.extend_from_slice(&[255, 76]);
    blr
}

/// An ordinary answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// The handle of what was made.
    pub(super) handle: u32,
    /// What was asked for.
    pub(super) data: Vec<u8>,
}

/// The answer to a connect request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    /// Whether the login goes on before the database is asked for.
    pub(super) is_open: bool,
    /// Whether we are in already.
    pub(super) is_in: bool,
    /// The challenge of the method.
    pub(super) data: Vec<u8>,
    pub(super) method: Vec<u8>,
}

/// How a login goes on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Login {
    Challenge {
        data: Vec<u8>,
        method: Vec<u8>,
    },
    /// We are in; the ciphers that there are.
    Over(Vec<u8>),
}

/// What a batch of rows ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batch {
    /// There may be more.
    More,
    /// These were the last rows.
    Last,
}

/// Reads answers. Where one cannot be read, nobody knows where the next begins, and no other is.
#[derive(Debug)]
pub(super) struct Answers<R> {
    pub(super) from: R,
    is_broken: bool,
}

impl<R> Answers<R> {
    pub(super) fn new(from: R) -> Self {
        Answers { from, is_broken: false }
    }

    /// Looks whether answers can still be read.
    pub(super) fn can_go_on(&self) -> Result<(), WireError> {
        if self.is_broken {
            let reason = "the connection broke at an earlier request";
            return Err(io::Error::new(io::ErrorKind::NotConnected, reason).into());
        }
        Ok(())
    }

    /// No answer will come: a request could not be sent.
    pub(super) fn give_up(&mut self) {
        self.is_broken = true;
    }

    /// No answer can be read any more: this one makes no sense.
    fn nonsense<T>(&mut self, what: &'static str) -> Result<T, WireError> {
        self.is_broken = true;
        Err(WireError::Protocol(what))
    }
}

impl<R: Read> Answers<R> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), WireError> {
        self.can_go_on()?;
        let filled = self.from.read_exact(bytes);
        self.is_broken = filled.is_err();
        Ok(filled?)
    }

    fn word(&mut self) -> Result<u32, WireError> {
        let mut word = [0; 4];
        self.fill(&mut word)?;
        Ok(u32::from_be_bytes(word))
    }

    fn bytes(&mut self) -> Result<Vec<u8>, WireError> {
        let length = match usize::try_from(self.word()?) {
            Ok(length) if length <= LONGEST => length,
            _ => return self.nonsense("a string of more than 1 MiB"),
        };
        let padded = length.next_multiple_of(4);
        let mut bytes = Vec::new();
        let read = self.from.by_ref().take(padded as u64).read_to_end(&mut bytes);
        self.is_broken = read.is_err() || bytes.len() < padded;
        if read? < padded {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    fn operation(&mut self) -> Result<u32, WireError> {
        loop {
            let code = self.word()?;
            if code != operation::DUMMY {
                return Ok(code);
            }
        }
    }

    /// The answer to a connect request.
    pub(super) fn accepted(&mut self) -> Result<Accepted, WireError> {
        let is_open = match self.operation()? {
            operation::ACCEPT_DATA => false,
            operation::CONDITIONAL_ACCEPT => true,
            operation::RESPONSE => {
                self.rest_of_response()?;
                return self.nonsense("an answer that was not asked for");
            }
            operation::ACCEPT => {
                return self.nonsense("it lets anybody in, without a login");
            }
            _ => return self.nonsense("it does not speak version 13 of the protocol"),
        };
        let _version_architecture_type = [self.word()?, self.word()?, self.word()?];
        let (data, method) = (self.bytes()?, self.bytes()?);
        let is_in = self.word()? == 1;
        let _keys = self.bytes()?;
        Ok(Accepted { is_open, is_in, data, method })
    }

    /// The answer to what went on with a login: the challenge, or what ends it.
    pub(super) fn went_on(&mut self) -> Result<Login, WireError> {
        match self.operation()? {
            operation::CONTINUE => {
                let (data, method) = (self.bytes()?, self.bytes()?);
                let _methods_and_keys = [self.bytes()?, self.bytes()?];
                Ok(Login::Challenge { data, method })
            }
            operation::RESPONSE => Ok(Login::Over(self.rest_of_response()?.data)),
            _ => self.nonsense("an answer of another kind than expected"),
        }
    }

    /// An ordinary answer.
    pub(super) fn response(&mut self) -> Result<Response, WireError> {
        match self.operation()? {
            operation::RESPONSE => self.rest_of_response(),
            _ => self.nonsense("an answer of another kind than expected"),
        }
    }

    fn rest_of_response(&mut self) -> Result<Response, WireError> {
        let handle = self.word()?;
        let _object_id = [self.word()?, self.word()?];
        let data = self.bytes()?;
        let status = self.status()?;
        if status.is_error() {
            Err(WireError::Server(status))
        } else {
            Ok(Response { handle, data })
        }
    }

    /// The status vector: codes, each with its arguments.
    fn status(&mut self) -> Result<Status, WireError> {
        const END: u32 = 0;
        const CODE: u32 = 1;
        const NUMBER: u32 = 4;
        const WARNING: u32 = 18;
        let mut status = Status::default();
        loop {
            match self.word()? {
                END => return Ok(status),
                CODE => status.code(self.word()?),
                NUMBER => status.argument(self.word()?.cast_signed().to_string()),
                // Warnings come last.
                WARNING => {
                    self.word()?;
                }
                // Text: an argument, a finished message, an SQLSTATE.
                2 | 5 | 19 => {
                    let text = self.bytes()?;
                    status.argument(String::from_utf8_lossy(&text).into_owned());
                }
                _ => return self.nonsense("an unknown item in a status vector"),
            }
        }
    }

    /// The answer to a request for rows.
    pub(super) fn rows(
        &mut self,
        columns: &[Column],
        each: &mut dyn FnMut(&[Value<'_>]),
    ) -> Result<Batch, WireError> {
        const DONE: u32 = 100;
        loop {
            match self.operation()? {
                operation::FETCH_RESPONSE => {}
                operation::RESPONSE => {
                    self.rest_of_response()?;
                    return self.nonsense("an answer instead of rows");
                }
                _ => return self.nonsense("no rows where some were asked for"),
            }
            match (self.word()?, self.word()?) {
                (DONE, _) => return Ok(Batch::Last),
                (_, 0) => return Ok(Batch::More),
                _ => each(&self.row(columns)?),
            }
        }
    }

    /// The answer to a statement that answers with at most one row; an ordinary one follows.
    pub(super) fn returned(
        &mut self,
        columns: &[Column],
        each: &mut dyn FnMut(&[Value<'_>]),
    ) -> Result<(), WireError> {
        match self.operation()? {
            operation::RESPONSE => return self.rest_of_response().map(drop),
            operation::SQL_RESPONSE => {}
            _ => return self.nonsense("no row where one was asked for"),
        }
        if self.word()? != 0 {
            // Without a row that it could change, a statement answers with NULL in each column.
            let row = self.row(columns)?;
            if row.iter().any(|value| *value != Value::Null) {
                each(&row);
            }
        }
        self.response().map(drop)
    }

    fn row(&mut self, columns: &[Column]) -> Result<Vec<Value<'static>>, WireError> {
        let mut null = vec![0; columns.len().div_ceil(8).next_multiple_of(4)];
        self.fill(&mut null)?;
        let mut row = Vec::with_capacity(columns.len());
        for (place, column) in columns.iter().enumerate() {
            row.push(match column {
                _ if null[place / 8] >> (place % 8) & 1 == 1 => Value::Null,
                Column::Int => {
                    let mut number = [0; 8];
                    self.fill(&mut number)?;
                    Value::Int(i64::from_be_bytes(number))
                }
                Column::Text(_) => match String::from_utf8(self.bytes()?) {
                    Ok(text) => Value::Text(text.into()),
                    Err(_) => return self.nonsense("text that is not UTF-8"),
                },
            });
        }
        Ok(row)
    }
}

/// Appends a row to those of a reply.
pub(super) fn push(rows: &mut Rows, row: &[Value<'_>]) {
    for value in row {
        rows.push(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn rows_are_read_up_to_the_end_of_their_batch() {
        let columns = [Column::Int, Column::Text(8), Column::Int];
        let row = [
            words(&[operation::FETCH_RESPONSE, 0, 1]),
            vec![0b100, 0, 0, 0],
            words(&[0, 7, 3]),
            b"abc\0".to_vec(),
        ]
        .concat();
        for (last, expected) in [([0, 0], Batch::More), ([100, 0], Batch::Last)] {
            let end = words(&[operation::FETCH_RESPONSE, last[0], last[1]]);
            let bytes = [row.as_slice(), &row, &end].concat();
            let mut rows = Vec::new();
            let mut each = |row: &[Value<'_>]| rows.push(format!("{row:?}"));
            let batch = Answers::new(bytes.as_slice()).rows(&columns, &mut each).unwrap();
            assert_eq!((batch, rows.len()), (expected, 2));
            assert_eq!(rows[0], "[Int(7), Text(\"abc\"), Null]");
            for cut in 0..bytes.len() {
                assert!(Answers::new(&bytes[..cut]).rows(&columns, &mut |_| {}).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn a_length_that_lies_is_an_error_and_no_allocation() {
        for length in [8, 1 << 20, (1 << 20) + 1, u32::MAX] {
            let bytes = words(&[operation::RESPONSE, 1, 0, 0, length, 0]);
            assert!(Answers::new(bytes.as_slice()).response().is_err(), "{length}");
        }
    }

    #[test]
    fn after_an_answer_that_makes_no_sense_no_other_is_read() {
        let good = words(&[operation::RESPONSE, 1, 0, 0, 0, 0]);
        // 99 is no item of a status vector.
        let bad = words(&[operation::RESPONSE, 1, 0, 0, 0, 99]);
        let bytes = [good.as_slice(), &bad, &good].concat();
        let mut answers = Answers::new(bytes.as_slice());
        assert!(answers.response().is_ok());
        assert!(matches!(answers.response(), Err(WireError::Protocol(_))));
        assert!(matches!(answers.response(), Err(WireError::Io(_))));
        assert!(answers.can_go_on().is_err());
        // A refusal is an answer like any other.
        let refused = words(&[operation::RESPONSE, 1, 0, 0, 0, 1, 335_544_569, 0]);
        let bytes = [refused, good].concat();
        let mut answers = Answers::new(bytes.as_slice());
        assert!(matches!(answers.response(), Err(WireError::Server(_))));
        assert!(answers.response().is_ok());
    }

    #[test]
    fn values_go_with_a_bitmap_of_what_is_null() {
        let mut requests = Requests::default();
        requests.values(&[Value::Int(-1), Value::Null, "ab".into()]);
        let bytes = requests.take();
        let message = [vec![0b10, 0, 0, 0], words(&[u32::MAX; 2]), words(&[2]), b"ab\0\0".to_vec()];
        assert!(bytes.ends_with(&message.concat()), "{bytes:?}");
    }
}
