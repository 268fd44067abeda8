//! MariaDB: private servers, and [guests](Guest) on servers that somebody else runs.
//!
//! # Mechanism
//! A directory is made, `mariadb-install-db` fills it, and `mariadbd` runs on it, on a free port of
//! 127.0.0.1 and on a socket in the directory. The system's configuration is not read, and nothing
//! outside the directory is touched: settings that say where files are and where the server listens
//! are [refused](crate::settings). When we are root the directory belongs to the first of the
//! users `mysql` and `nobody` that exists, as whom the server runs; the limit up to which it may
//! open files is raised before, for which we may need to be root.
//!
//! Everything is MariaDB's default but for the [settings](Options::settings) given and these:
//!
//! | setting | value | because |
//! | --- | --- | --- |
//! | `max_connections` | 1100 | 1,000 clients, and some who look on |
//! | `back_log` | 1100 | they may all knock at once |
//! | `table_open_cache` | 4000 | each has some tables open |
//! | `open_files_limit` | 10000 | a connection is a file, an open table up to two |
//! | `character_set_server` | `utf8mb4` | text is UTF-8 |
//! | `collation_server` | `utf8mb4_bin` | text is equal when it is the same, as elsewhere |
//! | `innodb_buffer_pool_dump_at_shutdown`, `.._load_at_startup` | off | a restart empties memory |
//! | `skip_name_resolve` | on | no login waits for a name server |
//!
//! See also [`crate::server`]; the superuser has no password.

mod binaries;
mod guest;
mod installation;
mod level;

use std::sync::Arc;
use std::time::Duration;

use tidegate_workload::workload::Workload;
use tidegate_workload::{Dialect, Value, render_value};

use crate::connection::ask;
use crate::database::{Clients, Database, DatabaseError, Dbms, Gate};
use crate::isolation::Isolation;
use crate::mysql::{BlockingClient, ClientError};
use crate::server::ServerProcess;
use crate::settings::{Reserved, SettingError, Settings, plain_name, refuse};
use crate::url::{PathPart, Protocol, Scheme, Socket};
pub use guest::Guest;
pub use installation::Installation;
pub use level::level;

/// See [`Dbms`].
pub static DBMS: Dbms = Dbms {
    name: "mariadb",
    title: "MariaDB",
    dialect: Some(Dialect::MariaDb),
    gate: Gate::None,
    is_in_process: false,
    connections: Some("max_connections"),
    programs: &["mariadbd", "mysqld"],
    scheme: Some(&SCHEME),
    after_load: None,
    // Such as `10.11.6-MariaDB-0+deb12u1`.
    version: |session| ask(session, "SELECT VERSION()"),
    find: || MariaDb::find().map(Some),
    validate: |settings| Options::new(settings).map(drop),
    start: |settings| Ok(Box::new(MariaDb::start(Options::new(settings)?)?)),
    start_at: |url, settings| Ok(Box::new(Guest::make(url, settings.isolation()?)?)),
};

/// The form of its URLs. With a socket, host and port do not matter.
pub static SCHEME: Scheme = Scheme {
    names: &["mysql", "mariadb"],
    form: "mysql://user[:password]@host[:port]/database[?socket=/path]",
    port: 3306,
    path: PathPart::Database,
    socket: Some(Socket::Path("socket")),
    has_isolation: true,
    password_variable: "MYSQL_PWD",
    protocol: Some(Protocol::MySql),
};

/// The superuser of every server started here, without a password.
pub const USER: &str = "root";

/// The database that every server started here has, empty.
pub const DATABASE: &str = "tidegate";

/// The variable that holds the level of transactions that do not ask for one.
const ISOLATION: &str = "tx_isolation";

/// Settings that are not the caller's to make.
const RESERVED: [&str; 25] = [
    "aria_log_dir_path",
    "basedir",
    "bind_address",
    "chroot",
    "datadir",
    "defaults_extra_file",
    "defaults_file",
    "defaults_group_suffix",
    "extra_port",
    "init_file",
    "innodb_data_file_path",
    "innodb_data_home_dir",
    "innodb_log_group_home_dir",
    "innodb_temp_data_file_path",
    "innodb_tmpdir",
    "innodb_undo_directory",
    "log_basename",
    "log_error",
    "pid_file",
    "plugin_dir",
    "port",
    "slave_load_tmpdir",
    "socket",
    "tmpdir",
    "user",
];

/// What MariaDB takes before the name of a setting.
const PREFIXES: [&str; 6] = ["autoset_", "disable_", "enable_", "loose_", "maximum_", "skip_"];

/// What a server is started with; everything else is as the module says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Server settings as name and value, as in a configuration file.
    pub settings: Vec<(String, String)>,
    /// The level of transactions that do not ask for one; MariaDB's is REPEATABLE READ.
    pub isolation: Option<Isolation>,
}

impl Options {
    /// Returns the options of an experiment's server.
    pub(crate) fn new(settings: &Settings) -> Result<Self, SettingError> {
        let named = settings.over(&[("innodb_buffer_pool_size", "256M")]);
        let options = Options { settings: named, isolation: settings.isolation()? };
        options.validate()?;
        Ok(options)
    }

    /// Checks that the settings are the caller's to make, without starting anything.
    ///
    /// # Errors
    /// One of them is not.
    pub fn validate(&self) -> Result<(), Reserved> {
        refuse(&self.settings, |name| {
            let mut name = name;
            while let Some(rest) = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) {
                name = rest;
            }
            RESERVED.iter().any(|reserved| reserved.starts_with(name))
        })
    }
}

/// A running private server; dropping it stops it and removes its directory.
pub type MariaDb = ServerProcess<Installation>;

impl MariaDb {
    /// Returns the superuser's URL over TCP, to [`DATABASE`].
    #[must_use]
    pub fn url(&self) -> String {
        Installation::url(self.port(), DATABASE).with_password()
    }

    /// Returns the superuser's URL over the unix socket, to [`DATABASE`].
    #[must_use]
    pub fn socket_url(&self) -> String {
        format!("{}?socket={}", self.url(), installation::socket(self.directory()).display())
    }

    /// Connects as superuser.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn connect(&self) -> Result<BlockingClient, ClientError> {
        BlockingClient::connect(&self.url())
    }

    /// Returns the values in force of the settings named, in that order.
    ///
    /// # Errors
    /// The server is down, or does not know one of them.
    pub fn in_force(&self, names: &[&str]) -> Result<Vec<(String, String)>, DatabaseError> {
        let mut client = self.connect()?;
        let known = |name: &&str| {
            let value = setting(&mut client, name)?.ok_or_else(|| no_setting(name))?;
            Ok((plain_name(name), value))
        };
        names.iter().map(known).collect()
    }
}

fn no_setting(name: &str) -> DatabaseError {
    DatabaseError::Other(format!("MariaDB has no setting {name}"))
}

impl Database for MariaDb {
    fn dbms(&self) -> &'static Dbms {
        &DBMS
    }

    fn clients(&self) -> Clients<'_> {
        Clients::Server(Installation::url(self.port(), DATABASE))
    }

    /// See [`level()`].
    fn level(&self, _: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
        level(&mut self.connect()?)
    }

    fn end_others(&self, _: Duration) -> Result<usize, DatabaseError> {
        let others = "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() \
                      AND command <> 'Daemon' AND user <> 'system user'";
        Ok(kill(&mut self.connect()?, others)?)
    }

    /// The settings that it was started with, those of the module's table and the caller's, and the
    /// isolation level of transactions that do not ask for one. What the server takes when it
    /// starts and does not tell, such as `debug_no_sync`, has the value given.
    fn settings(&self) -> Result<Vec<(String, String)>, DatabaseError> {
        let mut client = self.connect()?;
        let mut settings = installation::named(&self.program.options);
        settings.push((ISOLATION.to_owned(), String::new()));
        for (name, value) in &mut settings {
            if let Some(in_force) = setting(&mut client, name)? {
                *value = in_force;
            }
        }
        Ok(settings)
    }

    fn process_id(&self) -> Option<u32> {
        Some(ServerProcess::process_id(self))
    }

    fn stop(self: Box<Self>) -> Result<(), DatabaseError> {
        ServerProcess::stop(*self)
    }
}

/// Returns the value in force of a setting; `None` where there is no such setting.
fn setting(client: &mut BlockingClient, name: &str) -> Result<Option<String>, ClientError> {
    // The server takes a name with dashes, and tells it with underscores.
    let mut sql = b"SHOW GLOBAL VARIABLES WHERE Variable_name = ".to_vec();
    render_value(&Value::from(plain_name(name).as_str()), &mut sql);
    let rows = client.query(&String::from_utf8_lossy(&sql))?;
    let value = rows.into_iter().next().and_then(|row| row.into_iter().nth(1));
    Ok(value.map(Option::unwrap_or_default))
}

/// Ends the sessions that a query tells. Returns how many there were.
fn kill(client: &mut BlockingClient, sessions: &str) -> Result<usize, ClientError> {
    let ids = client.query(sessions)?;
    for id in ids.iter().flatten().flatten() {
        // One that has ended meanwhile is no error to us.
        let _ = client.query(&format!("KILL {id}"));
    }
    Ok(ids.len())
}
