//! A blocking connection to a Firebird server.
//!
//! Statements are prepared once and kept by their text. A single statement that is run outside of a
//! transaction begins one, runs and commits it with one message to the server and back.
//!
//! A statement that defines something lets go of all that are kept first: Firebird does not change
//! a table while a prepared statement uses it, and says `object in use`.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tidegate_workload::{Connection, Dialect, Failure, Reply, Rows, Statement, Value, Wants};

use super::Authentication;
use super::description::{Description, Kind, changed};
use super::srp::{Arc4, Client, Method, SECRET_LEN};
use super::status::{Status, TEXT_TRUNCATED};
use super::wire::{
    self, Accepted, Answers, Batch, CIPHER, Claim, Identity, LATEST, NAME_MAX, Release, Requests,
    TEXT_MAX, WireError, push,
};
use crate::connection::{Connector, Transactional};
use crate::detection::{Whereabouts, tcp_whereabouts};

/// Statements that a connection keeps prepared; with one more it lets go of all.
const PREPARED: usize = 256;

/// How long a login or a farewell may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who logs in, and how.
#[derive(Clone)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) secret: Secret,
}

/// What proves who it is.
#[derive(Clone)]
pub(super) enum Secret {
    /// The hash of the older method: the last eleven characters of crypt(3) of the password, with
    /// the salt `9z`.
    Hash(&'static str),
    Password(String),
}

impl Login {
    /// The user of every server started here, by the password that its security database is made
    /// with.
    pub(super) fn of(authentication: &Authentication) -> Self {
        let secret = match authentication {
            Authentication::Legacy => Secret::Hash("QP3LMZ/MJh."),
            Authentication::Password { password, .. } => Secret::Password(password.clone()),
        };
        Login { user: "SYSDBA".to_owned(), secret }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// What transactions see of each other. In both a transaction waits for one that changed the same
/// row, until that one ends or the server finds a circle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// What was committed when the transaction began. A row changed since then is a conflict.
    #[default]
    Snapshot,
    /// What was committed when each row is read.
    ReadCommitted,
}

impl Isolation {
    /// Its name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Isolation::Snapshot => "snapshot",
            Isolation::ReadCommitted => "read-committed",
        }
    }

    /// The transaction parameter block: version 3, write, wait, and the isolation.
    fn block(self) -> &'static [u8] {
        match self {
            Isolation::Snapshot => &[3, 9, 6, 2],
            Isolation::ReadCommitted => &[3, 9, 6, 15, 17],
        }
    }
}

/// Where a database is and how its transactions run.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) database: String,
    pub(super) isolation: Isolation,
    pub(super) login: Login,
}

impl Connector for Target {
    fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
        Ok(Box::new(FirebirdConnection::open(self, Purpose::Use)?))
    }
}

/// What a login does with the database.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Use,
    /// Removes the versions of rows that nobody can see any more.
    Sweep,
    Create {
        page_bytes: u32,
    },
}

/// A connection to a database of a Firebird server.
#[derive(Debug)]
pub struct FirebirdConnection {
    socket: TcpStream,
    /// Of what is sent, once there is one.
    cipher: Option<Arc4>,
    answers: Answers<BufReader<Incoming>>,
    requests: Requests,
    /// Answers under way that nobody waits for.
    skipped: usize,
    target: Target,
    transaction: Option<u32>,
    statements: HashMap<String, Prepared>,
}

#[derive(Clone, Debug)]
struct Prepared {
    handle: u32,
    description: Arc<Description>,
}

/// What comes from the server, deciphered where there is a cipher.
#[derive(Debug)]
struct Incoming {
    socket: TcpStream,
    cipher: Option<Arc4>,
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.socket.read(buffer)?;
        if let Some(cipher) = &mut self.cipher {
            cipher.apply(&mut buffer[..count]);
        }
        Ok(count)
    }
}

fn lost(error: &std::io::Error) -> Failure {
    Failure::Lost(error.to_string())
}

impl FirebirdConnection {
    pub(super) fn open(target: &Target, purpose: Purpose) -> Result<Self, Failure> {
        let socket = TcpStream::connect_timeout(&target.address, PATIENCE)
            .and_then(|socket| {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                Ok((socket.try_clone()?, socket))
            })
            .map_err(|error| lost(&error))?;
        let mut connection = FirebirdConnection {
            answers: Answers::new(BufReader::new(Incoming { socket: socket.0, cipher: None })),
            socket: socket.1,
            cipher: None,
            requests: Requests::default(),
            skipped: 0,
            target: target.clone(),
            transaction: None,
            statements: HashMap::new(),
        };
        connection.log_in(purpose)?;
        connection.socket.set_read_timeout(None).map_err(|error| lost(&error))?;
        Ok(connection)
    }

    fn log_in(&mut self, purpose: Purpose) -> Result<(), WireError> {
        let Target { database, login: Login { user, secret }, .. } = self.target.clone();
        let proof = match secret {
            _ if user.len() > NAME_MAX => {
                return Err(WireError::Protocol("a user's name has at most 255 bytes"));
            }
            Secret::Hash(hash) => {
                self.requests.connect(&database, &user, Claim::Hash(hash));
                self.send()?;
                if !self.answers.accepted()?.is_in {
                    return Err(WireError::Protocol("it does not accept user and password"));
                }
                None
            }
            Secret::Password(password) => self.log_in_by_srp(&database, &user, &password)?,
        };
        let identity = Identity { user: &user, proof: proof.as_deref() };
        match purpose {
            Purpose::Use => self.requests.attach(&database, identity, false),
            Purpose::Sweep => self.requests.attach(&database, identity, true),
            Purpose::Create { page_bytes } => {
                self.requests.create(&database, identity, page_bytes);
            }
        }
        self.send()?;
        self.answers.response()?;
        Ok(())
    }

    /// Logs in; or, where the server wants that with the next request, returns the proof for it.
    fn log_in_by_srp(
        &mut self,
        database: &str,
        user: &str,
        password: &str,
    ) -> Result<Option<String>, WireError> {
        const METHOD: WireError = WireError::Protocol("it wants another login than Srp or Srp256");
        let mut secret = [0; SECRET_LEN];
        getrandom::fill(&mut secret)
            .map_err(|_| WireError::Io(std::io::Error::other("the system gives no randomness")))?;
        let client = Client::new(&secret);
        self.requests.connect(database, user, Claim::PublicKey(&client.public()));
        self.send()?;
        let Accepted { is_open, mut data, method, .. } = self.answers.accepted()?;
        let mut method = Method::named(&method).ok_or(METHOD)?;
        if data.is_empty() {
            // It takes a method that was not our first one, and begins with that.
            self.requests.go_on(&client.public(), method);
            self.send()?;
            if let wire::Login::Challenge { data: challenge, method: name } =
                self.answers.went_on()?
            {
                (data, method) = (challenge, Method::named(&name).ok_or(METHOD)?);
            }
        }
        let proof = client.prove(method, user, password, &data);
        let proof = proof.ok_or(WireError::Protocol("a challenge that makes no sense"))?;
        if !is_open {
            return Ok(Some(proof.proof));
        }
        self.requests.go_on(&proof.proof, method);
        self.send()?;
        let wire::Login::Over(ciphers) = self.answers.went_on()? else { return Err(METHOD) };
        if ciphers.windows(CIPHER.len()).any(|name| name == CIPHER) {
            self.encipher(&proof.key)?;
        }
        Ok(None)
    }

    /// From here on, both directions are enciphered, also the answer to this.
    fn encipher(&mut self, key: &[u8; 20]) -> Result<(), WireError> {
        self.requests.encipher();
        self.send()?;
        self.cipher = Some(Arc4::new(key));
        self.answers.from.get_mut().cipher = Some(Arc4::new(key));
        self.answers.response().map(drop)
    }

    /// Where the server is.
    pub(super) fn whereabouts(&self) -> Whereabouts {
        tcp_whereabouts(&self.socket)
    }

    /// Removes the database with its file; nobody else may use it.
    pub(super) fn drop_database(&mut self) -> Result<(), Failure> {
        self.release_all();
        self.requests.drop_database();
        self.send()?;
        self.answers.response()?;
        Ok(())
    }

    /// Sends the requests made, and reads the answers before theirs. A connection that broke takes
    /// no more of them.
    fn send(&mut self) -> Result<(), WireError> {
        let mut bytes = self.requests.take();
        self.answers.can_go_on()?;
        if let Some(cipher) = &mut self.cipher {
            cipher.apply(&mut bytes);
        }
        if let Err(error) = self.socket.write_all(&bytes) {
            self.answers.give_up();
            return Err(error.into());
        }
        for _ in 0..std::mem::take(&mut self.skipped) {
            match self.answers.response() {
                Ok(_) | Err(WireError::Server(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Appends the release of a statement or its rows to the next message.
    fn release(&mut self, handle: u32, what: Release) {
        self.requests.release(handle, what);
        self.skipped += 1;
    }

    fn release_all(&mut self) {
        for (_, prepared) in std::mem::take(&mut self.statements) {
            self.release(prepared.handle, Release::Statement);
        }
    }

    /// The statement of a text, prepared now if it is not yet.
    fn prepare(&mut self, transaction: u32, sql: &str) -> Result<Prepared, WireError> {
        if let Some(prepared) = self.statements.get(sql) {
            return Ok(prepared.clone());
        }
        if self.statements.len() >= PREPARED {
            self.release_all();
        }
        self.requests.prepare(transaction, sql);
        self.send()?;
        let allocated = self.answers.response();
        let described = self.answers.response();
        let handle = allocated?.handle;
        match described.and_then(|answer| Description::parse(&answer.data)) {
            Ok(description) => {
                let prepared = Prepared { handle, description: Arc::new(description) };
                self.statements.insert(sql.to_owned(), prepared.clone());
                Ok(prepared)
            }
            Err(error) => {
                self.release(handle, Release::Statement);
                Err(error)
            }
        }
    }

    /// Runs a statement that is prepared, in a transaction.
    fn execute(
        &mut self,
        transaction: u32,
        prepared: &Prepared,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, WireError> {
        self.request(transaction, prepared, values);
        self.send()?;
        self.reply(prepared, wants)
    }

    /// Appends what runs a statement and asks for what comes of it.
    fn request(&mut self, transaction: u32, prepared: &Prepared, values: &[Value<'_>]) {
        let Prepared { handle, description } = prepared;
        match description.kind {
            Kind::Select => {
                self.requests.execute(transaction, *handle, values);
                self.requests.fetch(*handle, &description.columns);
            }
            Kind::Returning => {
                self.requests.execute_returning(transaction, *handle, values, &description.columns);
            }
            Kind::Change => {
                self.requests.execute(transaction, *handle, values);
                self.requests.count(*handle);
            }
            Kind::Definition => self.requests.execute(transaction, *handle, values),
        }
    }

    /// Reads what [`Self::request`] asked for.
    fn reply(&mut self, prepared: &Prepared, wants: Wants) -> Result<Reply, WireError> {
        let Prepared { handle, description } = prepared;
        let columns = &description.columns;
        let mut reply = Reply { rows: Rows::new(columns.len()), count: 0 };
        let mut each = |row: &[Value<'_>]| {
            reply.count += 1;
            if wants == Wants::Rows {
                push(&mut reply.rows, row);
            }
        };
        match description.kind {
            Kind::Definition => drop(self.answers.response()?),
            Kind::Returning => self.answers.returned(columns, &mut each)?,
            Kind::Change => {
                let executed = self.answers.response();
                let counted = self.answers.response();
                executed?;
                reply.count = changed(&counted?.data)?;
            }
            Kind::Select => {
                let executed = self.answers.response();
                let mut batch = self.answers.rows(columns, &mut each);
                if let Err(error) = executed {
                    // Who is stopped while the cursor opens may leave it open; where it is not,
                    // letting go of it is an error that nobody waits for.
                    self.release(*handle, Release::Cursor);
                    return Err(error);
                }
                while let Ok(Batch::More) = batch {
                    self.requests.fetch(*handle, columns);
                    self.send()?;
                    batch = self.answers.rows(columns, &mut each);
                }
                self.release(*handle, Release::Cursor);
                batch?;
            }
        }
        Ok(reply)
    }

    /// Runs a statement in a transaction of its own.
    fn run_alone(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, WireError> {
        if let Some(prepared) = self.statements.get(sql).cloned() {
            return self.run_at_once(&prepared, values, wants);
        }
        self.requests.begin(self.target.isolation.block());
        self.send()?;
        let transaction = self.answers.response()?.handle;
        let result = self.run_within(transaction, sql, values, wants);
        match result {
            Ok(_) => self.requests.commit(transaction),
            Err(_) => self.requests.roll_back(transaction),
        }
        self.send()?;
        let ended = self.answers.response();
        let reply = result?;
        ended?;
        Ok(reply)
    }

    /// Runs a prepared statement in a transaction of its own, with one message to the server and
    /// back. Should the statement fail, the commit that is already under way has nothing to commit.
    fn run_at_once(
        &mut self,
        prepared: &Prepared,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, WireError> {
        let fetches = prepared.description.kind == Kind::Select;
        self.requests.begin(self.target.isolation.block());
        self.request(LATEST, prepared, values);
        if !fetches {
            self.requests.commit(LATEST);
        }
        self.send()?;
        let begun = self.answers.response();
        let result = self.reply(prepared, wants);
        if !fetches {
            let committed = self.answers.response();
            begun?;
            let reply = result?;
            committed?;
            return Ok(reply);
        }
        // The rows are here, and nothing can go wrong any more; nobody waits for this commit.
        self.requests.commit(begun?.handle);
        self.send()?;
        self.skipped += 1;
        result
    }

    fn run_within(
        &mut self,
        transaction: u32,
        sql: &str,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, WireError> {
        let prepared = self.prepare(transaction, sql)?;
        if prepared.description.kind != Kind::Definition {
            return self.execute(transaction, &prepared, values, wants);
        }
        self.statements.remove(sql);
        self.release_all();
        let result = self.execute(transaction, &prepared, values, wants);
        self.release(prepared.handle, Release::Statement);
        result
    }

    /// Ends the transaction with the request given, if one is under way.
    fn end(&mut self, request: fn(&mut Requests, u32)) -> Result<(), Failure> {
        let Some(transaction) = self.transaction.take() else { return Ok(()) };
        request(&mut self.requests, transaction);
        self.send()?;
        self.answers.response()?;
        Ok(())
    }
}

impl Connection for FirebirdConnection {
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure> {
        if values.iter().any(|value| matches!(value, Value::Text(text) if text.len() > TEXT_MAX)) {
            return Err(WireError::Server(Status::of(TEXT_TRUNCATED)).into());
        }
        let sql = statement.sql(Dialect::Firebird);
        let result = match self.transaction {
            Some(transaction) => self.run_within(transaction, &sql, values, wants),
            None => self.run_alone(&sql, values, wants),
        };
        Ok(result?)
    }
}

impl Transactional for FirebirdConnection {
    fn begin(&mut self) -> Result<(), Failure> {
        self.requests.begin(self.target.isolation.block());
        self.send()?;
        self.transaction = Some(self.answers.response()?.handle);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.end(Requests::commit)
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        self.end(Requests::roll_back)
    }

    fn dialect(&self) -> Dialect {
        Dialect::Firebird
    }
}

impl Drop for FirebirdConnection {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure; the server cleans up after a connection that is
        // lost as it does after this.
        if self.socket.set_read_timeout(Some(PATIENCE)).is_ok() && self.rollback().is_ok() {
            self.requests.detach();
            if self.send().is_ok() {
                let _ = self.answers.response();
            }
        }
    }
}
