//! SQLite, within our own process: a database file, and connections to it.
//!
//! There is no server. Each connection belongs to one thread at a time, a statement runs on that
//! thread, and one transaction at a time may write. Transactions begin with `BEGIN IMMEDIATE`: one
//! that reads before it writes would otherwise find at its first write that another was faster.
//! Those that say that they only read begin with `BEGIN DEFERRED` and wait for nobody.
//!
//! [`Sqlite`] is a database file in a directory of its own, or at a place that the caller names,
//! with the settings that all its connections share; what was made is removed when it is dropped. A
//! file that is there already is refused, unless it carries the number `MARK` as its application
//! id: that one was left behind by a laboratory that was killed, and is made anew.
//!
//! Limits: a connection's page cache is its own, so the buffer of so many bytes is there once for
//! each of them.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{ErrorCode, OpenFlags, ToSql};
use tidegate_workload::workload::Workload;
use tidegate_workload::{
    Conflict, Connection, Dialect, Failure, Reply, Rows, Statement, Value, Wants,
};

use crate::connection::{Connector, Interrupter, Transactional};
use crate::database::{Clients, Database, DatabaseError, Dbms, Gate};
use crate::scratch::Scratch;
use crate::settings::{SettingError, Settings, unknown, wrong};
use crate::url::{PathPart, Scheme};

/// See [`Dbms`].
pub static DBMS: Dbms = Dbms {
    name: "sqlite",
    title: "SQLite",
    dialect: Some(Dialect::Sqlite),
    gate: Gate::None,
    is_in_process: true,
    connections: None,
    programs: &[],
    scheme: Some(&SCHEME),
    after_load: None,
    // Such as `3.50.4`.
    version: |_| Ok(rusqlite::version().to_owned()),
    find: || Ok(None),
    validate: |settings| Options::new(settings).map(drop),
    start: |settings| Ok(Box::new(Sqlite::start(Options::new(settings)?)?)),
    start_at: |url, settings| {
        Ok(Box::new(Sqlite::at(url.database.clone().into(), Options::new(settings)?)?))
    },
};

/// The form of its URLs: the path of the file that is made.
pub static SCHEME: Scheme = Scheme {
    names: &["sqlite"],
    form: "sqlite:path",
    port: 0,
    path: PathPart::LocalFile,
    socket: None,
    has_isolation: false,
    password_variable: "",
    protocol: None,
};

/// Statements that a connection keeps prepared.
const PREPARED: usize = 256;

/// The name of the database's file.
const DATABASE: &str = "data.sqlite";

/// The application id of a file at a place that the caller names: `Tide` in ASCII.
const MARK: u32 = 0x5469_6465;

/// How a change is kept from being lost or half done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalMode {
    /// Changes go to a log beside the file; readers do not wait for the writer.
    #[default]
    Wal,
    /// What was there before goes to a journal that is deleted at commit.
    Delete,
}

/// When a commit waits for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// Never.
    Off,
    /// With a log: only when the log goes into the file, so that the last commits may be lost with
    /// the machine's power, but nothing is half done.
    Normal,
    /// At every commit.
    #[default]
    Full,
}

/// What a database is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// How a change is kept from being half done.
    pub journal_mode: JournalMode,
    /// When a commit waits for the disk.
    pub synchronous: Synchronous,
    /// Bytes of pages that each connection keeps in memory.
    pub cache_bytes: u64,
    /// Bytes in a page: a power of two from 512 to 65,536.
    pub page_bytes: u32,
    /// How long a transaction waits for its turn to write.
    pub busy_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            journal_mode: JournalMode::default(),
            synchronous: Synchronous::default(),
            cache_bytes: 2_000 << 10,
            page_bytes: 4_096,
            busy_timeout: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// Returns the options that settings say.
    pub(crate) fn new(settings: &Settings) -> Result<Self, SettingError> {
        const KNOWN: &str = "journal_mode, synchronous, cache_bytes, page_bytes, busy_timeout_ms";
        if !matches!(settings.isolation.as_deref(), None | Some("serializable")) {
            return Err(settings.no_isolation("serializable, the only one that SQLite has"));
        }
        let mut options = Options::default();
        for (name, value) in &settings.named {
            let wrong = |wanted| wrong(name, value, wanted);
            let number = || value.parse::<u64>().map_err(|_| wrong("a whole number"));
            match name.as_str() {
                "journal_mode" => {
                    options.journal_mode = match value.as_str() {
                        "wal" => JournalMode::Wal,
                        "delete" => JournalMode::Delete,
                        _ => return Err(wrong("wal or delete")),
                    }
                }
                "synchronous" => {
                    options.synchronous = match value.as_str() {
                        "off" => Synchronous::Off,
                        "normal" => Synchronous::Normal,
                        "full" => Synchronous::Full,
                        _ => return Err(wrong("off, normal or full")),
                    }
                }
                "cache_bytes" => options.cache_bytes = number()?,
                "page_bytes" => {
                    let bytes = u32::try_from(number()?).ok();
                    let bytes = bytes.filter(|bytes| bytes.is_power_of_two());
                    options.page_bytes = bytes.ok_or_else(|| wrong("a power of two"))?;
                }
                "busy_timeout_ms" => options.busy_timeout = Duration::from_millis(number()?),
                _ => return Err(unknown("SQLite", name, KNOWN)),
            }
        }
        Ok(options)
    }
}

/// A private database; dropping it removes its directory, or its files.
#[derive(Debug)]
pub struct Sqlite {
    place: FileKind,
    opener: Arc<Opener>,
}

/// Opens connections to a database that is there.
#[derive(Debug)]
struct Opener {
    path: PathBuf,
    options: Options,
}

#[derive(Debug)]
enum FileKind {
    Directory(Scratch),
    File(Files),
}

/// A database's file with those that SQLite keeps beside it; removed when dropped.
#[derive(Debug)]
struct Files(PathBuf);

impl Files {
    fn remove(&self) -> Result<(), DatabaseError> {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut path = self.0.clone().into_os_string();
            path.push(suffix);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(DatabaseError::directory(Path::new(&path))(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure.
        let _ = self.remove();
    }
}

impl Sqlite {
    /// Makes a directory with an empty database.
    ///
    /// # Errors
    /// See [`DatabaseError`].
    pub fn start(options: Options) -> Result<Self, DatabaseError> {
        let directory = crate::server::directory("sqlite", None)?;
        Self::make(FileKind::Directory(directory), options)
    }

    /// Makes an empty database in this file, which must not be there.
    ///
    /// # Errors
    /// See [`DatabaseError`].
    pub fn at(path: PathBuf, options: Options) -> Result<Self, DatabaseError> {
        if path.try_exists().unwrap_or(true) && !is_ours(&path) {
            return Err(DatabaseError::Other(format!(
                "{} is there already and no laboratory made it; it is left alone: name another \
                 file",
                path.display()
            )));
        }
        let files = Files(path);
        files.remove()?;
        Self::make(FileKind::File(files), options)
    }

    fn make(place: FileKind, options: Options) -> Result<Self, DatabaseError> {
        if !options.page_bytes.is_power_of_two() || !(512..=65_536).contains(&options.page_bytes) {
            // SQLite would pass over it.
            let (bytes, wanted) = (options.page_bytes.to_string(), "a power of two, 512 to 65536");
            return Err(wrong("page_bytes", &bytes, wanted).into());
        }
        let path = match &place {
            FileKind::Directory(directory) => directory.path().join(DATABASE),
            FileKind::File(Files(path)) => path.clone(),
        };
        let opener = Arc::new(Opener { path, options });
        // The page size is fixed by the first page that is written, the journal mode kept there,
        // and the mark written before there is a log that could keep it.
        let mode = match opener.options.journal_mode {
            JournalMode::Wal => "WAL",
            JournalMode::Delete => "DELETE",
        };
        let page_bytes = opener.options.page_bytes;
        let make = format!(
            "PRAGMA page_size = {page_bytes}; PRAGMA application_id = {MARK}; \
                     PRAGMA journal_mode = {mode}; VACUUM;"
        );
        let options = &opener.options;
        SqliteConnection::open(&opener.path, options.busy_timeout)?.batch(&make)?;
        Ok(Sqlite { place, opener })
    }

    /// The directory that holds the database.
    #[must_use]
    pub fn directory(&self) -> &Path {
        match &self.place {
            FileKind::Directory(directory) => directory.path(),
            FileKind::File(Files(path)) => path.parent().unwrap_or(path),
        }
    }

    /// A connection with the settings of all.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn connect(&self) -> Result<SqliteConnection, Failure> {
        self.opener.open()
    }

    /// What makes connections on other threads. It does not keep the database: once that is
    /// removed, there are no new ones, and those that are open work on files without a name.
    #[must_use]
    pub fn connector(&self) -> Arc<dyn Connector> {
        Arc::clone(&self.opener) as _
    }

    /// Removes the directory, or the files.
    ///
    /// # Errors
    /// The system refuses.
    pub fn stop(self) -> Result<(), DatabaseError> {
        match self.place {
            FileKind::Directory(directory) => {
                let path = directory.path().to_owned();
                directory.close().map_err(DatabaseError::directory(&path))
            }
            FileKind::File(files) => files.remove(),
        }
    }
}

impl Database for Sqlite {
    fn dbms(&self) -> &'static Dbms {
        &DBMS
    }

    fn clients(&self) -> Clients<'_> {
        Clients::Threads(self.connector())
    }

    /// Moves all of the log into the file and lets SQLite look at its indexes. It fails with
    /// [`Conflict::LockTimeout`] when a client is at work.
    fn level(&self, _: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
        let mut connection = self.connect()?;
        connection.batch("PRAGMA optimize")?;
        let checkpoint = Statement::new("PRAGMA wal_checkpoint(TRUNCATE)");
        let rows = connection.run(&checkpoint, &[], Wants::Rows)?.rows;
        let is_busy = rows.int(0, 0) == Some(1);
        if is_busy { Err(Failure::Conflict(Conflict::LockTimeout).into()) } else { Ok(()) }
    }

    /// Returns how many threads of clients have not ended. They cannot be ended, but were
    /// interrupted, and end by themselves.
    fn end_others(&self, _: Duration) -> Result<usize, DatabaseError> {
        Ok(Arc::strong_count(&self.opener) - 1)
    }

    /// The settings in force, as SQLite's pragmas name them.
    fn settings(&self) -> Result<Vec<(String, String)>, DatabaseError> {
        const NAMES: [&str; 5] =
            ["journal_mode", "synchronous", "cache_size", "page_size", "busy_timeout"];
        let mut connection = self.connect()?;
        let mut value = |name: &str| {
            let pragma = Statement::written(format!("PRAGMA {name}"));
            let rows = connection.run(&pragma, &[], Wants::Rows)?.rows;
            let number = rows.int(0, 0).map(|number| number.to_string());
            let value = number.or(rows.text(0, 0).map(str::to_owned));
            Ok((name.to_owned(), value.ok_or(Failure::Unexpected("a pragma's value"))?))
        };
        NAMES.iter().map(|name| value(name)).collect()
    }

    fn stop(self: Box<Self>) -> Result<(), DatabaseError> {
        Sqlite::stop(*self)
    }
}

/// Whether a file is a database that an earlier laboratory made. SQLite is not asked: it might
/// bring the file up to date.
fn is_ours(path: &Path) -> bool {
    let mut head = [0; 72];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head.starts_with(b"SQLite format 3\0") && head.ends_with(&MARK.to_be_bytes())
}

impl Opener {
    /// A connection with the settings of all. A database that is gone is not made again.
    fn open(&self) -> Result<SqliteConnection, Failure> {
        let flags = OpenFlags::default() & !OpenFlags::SQLITE_OPEN_CREATE;
        let connection = SqliteConnection::open_with(&self.path, self.options.busy_timeout, flags)?;
        let synchronous = match self.options.synchronous {
            Synchronous::Off => "OFF",
            Synchronous::Normal => "NORMAL",
            Synchronous::Full => "FULL",
        };
        // A negative size is in KiB, a positive one in pages.
        let kib = self.options.cache_bytes.div_ceil(1_024);
        connection
            .batch(&format!("PRAGMA synchronous = {synchronous}; PRAGMA cache_size = -{kib};"))?;
        Ok(connection)
    }
}

impl Connector for Opener {
    fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
        Ok(Box::new(self.open()?))
    }
}

/// A connection to a database file.
#[derive(Debug)]
pub struct SqliteConnection {
    connection: rusqlite::Connection,
}

impl SqliteConnection {
    /// Opens a database file, or makes it; a transaction waits so long for its turn to write.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn open(path: &Path, patience: Duration) -> Result<Self, Failure> {
        Self::open_with(path, patience, OpenFlags::default())
    }

    fn open_with(path: &Path, patience: Duration, flags: OpenFlags) -> Result<Self, Failure> {
        let connection = rusqlite::Connection::open_with_flags(path, flags).map_err(failure)?;
        connection.busy_timeout(patience).map_err(failure)?;
        connection.set_prepared_statement_cache_capacity(PREPARED);
        Ok(SqliteConnection { connection })
    }

    /// Runs statements that define or set something, separated by semicolons.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn batch(&self, sql: &str) -> Result<(), Failure> {
        self.connection.execute_batch(sql).map_err(failure)
    }
}

impl Connection for SqliteConnection {
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure> {
        run(&self.connection, &statement.sql(Dialect::Sqlite), values, wants).map_err(failure)
    }
}

impl Transactional for SqliteConnection {
    fn begin(&mut self) -> Result<(), Failure> {
        self.batch("BEGIN IMMEDIATE")
    }

    fn begin_reading(&mut self) -> Result<(), Failure> {
        self.batch("BEGIN DEFERRED")
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.batch("COMMIT")
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        if self.connection.is_autocommit() { Ok(()) } else { self.batch("ROLLBACK") }
    }

    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    /// Makes the statement that is running fail with [`Failure::Stopped`]; nothing happens when
    /// none is. A transaction that was changing something is rolled back.
    fn interrupter(&self) -> Option<Interrupter> {
        let handle = self.connection.get_interrupt_handle();
        Some(Box::new(move || handle.interrupt()))
    }
}

fn run(
    connection: &rusqlite::Connection,
    sql: &str,
    values: &[Value<'_>],
    wants: Wants,
) -> rusqlite::Result<Reply> {
    let mut statement = connection.prepare_cached(sql)?;
    for (place, value) in values.iter().enumerate() {
        statement.raw_bind_parameter(place + 1, Bound(value))?;
    }
    let width = statement.column_count();
    if width == 0 {
        return Ok(Reply { count: statement.raw_execute()? as u64, ..Reply::default() });
    }
    let mut reply = Reply { rows: Rows::new(width), count: 0 };
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        reply.count += 1;
        if wants == Wants::Rows {
            for column in 0..width {
                push(&mut reply.rows, row.get_ref(column)?);
            }
        }
    }
    Ok(reply)
}

struct Bound<'v>(&'v Value<'v>);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

fn push(rows: &mut Rows, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => rows.push(&Value::Null),
        ValueRef::Integer(number) => rows.push(&Value::Int(number)),
        ValueRef::Real(number) => rows.push_text(number.to_string().as_bytes()),
        ValueRef::Text(text) | ValueRef::Blob(text) => rows.push_text(text),
    }
}

/// What an error means for the transaction.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failure(error: rusqlite::Error) -> Failure {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Failure::Conflict(Conflict::LockTimeout)
        }
        Some(ErrorCode::OperationInterrupted) => Failure::Stopped,
        Some(code) => Failure::Refused { code: format!("{code:?}"), message: error.to_string() },
        None => Failure::Refused { code: String::new(), message: error.to_string() },
    }
}
