//! A blocking connection to a Firebird server.
//!
//! Statements are prepared once and kept by their text. A single statement that is run outside of a
//! transaction begins one, runs and commits it with one message to the server and back.
//!
//! A statement that defines something lets go of all that are kept first: Firebird does not change
//! a table while a prepared statement uses it, and says `object in use`.

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tidegate_workload::{Connection, Dialect, Failure, Reply, Rows, Statement, Value, Wants};

use super::description::{Description, Kind, changed};
use super::wire::{Answers, Batch, LATEST, Release, Requests, WireError, push};
use crate::connection::Transactional;

/// Statements that a connection keeps prepared; with one more it lets go of all.
const PREPARED: usize = 256;

/// How long a login or a farewell may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The user of every server started here, and its password's hash: the last eleven characters of
/// crypt(3) of the password that the security database is made with, with the salt `9z`.
const USER: &str = "SYSDBA";
const HASH: &str = "QP3LMZ/MJh.";

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
    answers: Answers<BufReader<TcpStream>>,
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

/// Stops what a connection is doing, from another thread.
///
/// It asks through a connection of its own: the server does not look at what a connection sends
/// while that waits for a lock and more of its requests are under way.
#[derive(Clone, Debug)]
pub struct Interrupt {
    target: Target,
    attachment: i64,
}

impl Interrupt {
    /// Makes the statement that is running fail with [`Failure::Stopped`], also while it waits for
    /// a lock; nothing happens when none is. Its transaction remains and has to be rolled back.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn interrupt(&self) -> Result<(), Failure> {
        const SQL: &str =
            "DELETE FROM mon$statements WHERE mon$state = 1 AND mon$attachment_id = ?";
        let mut connection = FirebirdConnection::open(&self.target, Purpose::Use)?;
        connection.run(&Statement::new(SQL), &[self.attachment.into()], Wants::Count).map(drop)
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
            answers: Answers(BufReader::new(socket.0)),
            socket: socket.1,
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
        self.requests.connect(&self.target.database, USER, HASH);
        self.send()?;
        self.answers.accepted()?;
        let database = self.target.database.as_str();
        match purpose {
            Purpose::Use => self.requests.attach(database, USER, false),
            Purpose::Sweep => self.requests.attach(database, USER, true),
            Purpose::Create { page_bytes } => self.requests.create(database, USER, page_bytes),
        }
        self.send()?;
        self.answers.response()?;
        Ok(())
    }

    /// A handle that stops what this connection is doing.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn interrupt_handle(&mut self) -> Result<Interrupt, Failure> {
        const SQL: &str = "SELECT current_connection FROM rdb$database";
        let reply = self.run(&Statement::new(SQL), &[], Wants::Rows)?;
        let attachment =
            reply.rows.int(0, 0).ok_or(Failure::Unexpected("a connection's number"))?;
        Ok(Interrupt { target: self.target.clone(), attachment })
    }

    /// Sends the requests made, and reads the answers before theirs.
    fn send(&mut self) -> Result<(), WireError> {
        self.socket.write_all(&self.requests.take())?;
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
                executed?;
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
