//! Settings of databases as an experiment file gives them: names and values in words.
//!
//! | database | names |
//! | --- | --- |
//! | PostgreSQL, MariaDB, Firebird | their own |
//! | SQLite | `journal_mode`, `synchronous`, `cache_bytes`, `page_bytes`, `busy_timeout_ms` |
//! | the embedded engine, the embedded XML store | `buffer_bytes` |
//!
//! A server takes a name in more than one spelling. PostgreSQL passes over the difference between
//! capital and small letters and, on its command line, between `-` and `_`. MariaDB passes over the
//! latter, takes any beginning of a name that no other has, and prefixes such as `loose-`. So a
//! setting is looked at by its [`plain_name`], and one of MariaDB's also without its prefixes.
//!
//! Reserved is what would take a private server out of its directory, or let others than this
//! machine in: where its data and its other files are, and where it listens. Lines copied from the
//! configuration of the machine's own server have such names, and with them the private server
//! would work on the machine's own data.
//!
//! Limits: what writes a file because it is told to (MariaDB's `general_log_file`, PostgreSQL's
//! `archive_command`) is the caller's affair.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::isolation::Isolation;

/// What the isolation level is called in messages, and the key that it has.
const ISOLATION: &str = "isolation";

/// What a database is to be started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Its settings, by its own names.
    pub named: BTreeMap<String, String>,
    /// The isolation level of transactions; the database's default when nothing is said.
    pub isolation: Option<String>,
    /// Whether transactions of a higher priority preempt others in lock queues. Of the databases
    /// here only the embedded engine can do so.
    pub preempt_on_wait: bool,
}

/// A setting that a database does not have, or not with this value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingError {
    /// No such name.
    #[error("{database} has no setting `{name}` here; it has {known}")]
    Name {
        /// The database.
        database: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: &'static str,
    },
    /// A part of the machine, which has keys of its own.
    #[error("`{name}` is a key of `[machine]`, and no setting: write `machine.{name}`")]
    Part {
        /// The part.
        name: String,
    },
    /// Not for the caller to make.
    #[error(transparent)]
    Reserved(#[from] Reserved),
    /// No such value.
    #[error("`{value}` is no {name}; give {wanted}")]
    Value {
        /// The setting.
        name: String,
        /// What was asked for.
        value: String,
        /// What it can be.
        wanted: &'static str,
    },
}

impl SettingError {
    /// Returns the key it is about: the isolation has a key of its own beside the settings.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            SettingError::Value { name, .. } if name == ISOLATION => ISOLATION,
            SettingError::Name { .. }
            | SettingError::Part { .. }
            | SettingError::Reserved(_)
            | SettingError::Value { .. } => "settings",
        }
    }
}

impl Settings {
    /// Returns names, each in one spelling, and values, with these where nothing else is said.
    pub(crate) fn over(&self, defaults: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut named: BTreeMap<String, String> =
            defaults.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        named.extend(self.named.iter().map(|(name, value)| (plain_name(name), value.clone())));
        named.into_iter().collect()
    }

    /// Returns the isolation level, one of the SQL standard's.
    pub(crate) fn isolation(&self) -> Result<Option<Isolation>, SettingError> {
        let Some(text) = &self.isolation else { return Ok(None) };
        let level = Isolation::named(text).ok_or_else(|| {
            self.no_isolation("read-uncommitted, read-committed, repeatable-read or serializable")
        })?;
        Ok(Some(level))
    }

    /// Returns the error that the isolation level is not one of those wanted.
    pub(crate) fn no_isolation(&self, wanted: &'static str) -> SettingError {
        wrong(ISOLATION, self.isolation.as_deref().expect("a level was asked for"), wanted)
    }
}

/// Returns the error that a setting has no such value.
pub(crate) fn wrong(name: &str, value: &str, wanted: &'static str) -> SettingError {
    SettingError::Value { name: name.to_owned(), value: value.to_owned(), wanted }
}

/// Returns the error that a database has no such setting.
pub(crate) fn unknown(database: &'static str, name: &str, known: &'static str) -> SettingError {
    SettingError::Name { database, name: name.to_owned(), known }
}

/// A setting that is not the caller's to make, or no name of any.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` cannot be set on a private server: it is no name of a setting, or says where the \
     server's files are or where it listens, which is for Tidegate to say; leave it out"
)]
pub struct Reserved(pub String);

/// Returns a setting's name in small letters, with underscores.
#[must_use]
pub fn plain_name(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

/// Refuses what is no name of a setting, and the names that are reserved in their plain spelling.
pub(crate) fn refuse(
    settings: &[(String, String)],
    is_reserved: impl Fn(&str) -> bool,
) -> Result<(), Reserved> {
    let is_refused = |name: &str| !is_name(name) || is_reserved(&plain_name(name));
    match settings.iter().find(|(name, _)| is_refused(name)) {
        Some((name, _)) => Err(Reserved(name.clone())),
        None => Ok(()),
    }
}

/// Returns whether text is made of what names are made of, and not, say, a name with its value.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    text.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
        && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Dbms;
    use crate::embedded::{self, Isolation as EmbeddedIsolation};
    use crate::{firebird, mariadb, postgres, sqlite};

    type Validate = fn(Vec<(String, String)>) -> Result<(), Reserved>;
    const POSTGRES: Validate =
        |settings| postgres::Options { settings, ..Default::default() }.validate();
    const MARIADB: Validate =
        |settings| mariadb::Options { settings, ..Default::default() }.validate();

    fn is_refused(validate: Validate, name: &str) -> bool {
        let settings = [("fsync".to_owned(), "off".to_owned()), (name.to_owned(), "1".to_owned())];
        validate(settings.into()) == Err(Reserved(name.to_owned()))
    }

    #[test]
    fn what_moves_a_server_is_refused_in_all_spellings() {
        for name in [
            "data_directory",
            "Data-Directory",
            "PORT",
            "listen_addresses",
            "unix-socket-directories",
            "hba_file",
            "fsync=off -c port",
            "data_directory=/elsewhere",
            "-port",
            "",
        ] {
            assert!(is_refused(POSTGRES, name), "{name}");
        }
        for name in [
            "datadir",
            "DATADIR",
            "datad",
            "loose-datadir",
            "loose_skip-bind_address",
            "bind-address",
            "bind_address",
            "port",
            "pid-file",
            "innodb-log-group-home-dir",
            "tmpdir=/elsewhere",
            "--socket",
            "",
        ] {
            assert!(is_refused(MARIADB, name), "{name}");
        }
    }

    #[test]
    fn everything_else_is_the_callers() {
        for name in ["shared_buffers", "Shared-Buffers", "pg_stat_statements.max", "ssl"] {
            assert!(!is_refused(POSTGRES, name), "{name}");
        }
        for name in [
            "innodb-buffer-pool-size",
            "innodb_data_file_buffering",
            "back_log",
            "log_bin",
            "loose-innodb-x",
            "portable",
            "skip-name-resolve",
        ] {
            assert!(!is_refused(MARIADB, name), "{name}");
        }
    }

    fn settings(named: &[(&str, &str)], isolation: Option<&str>) -> Settings {
        Settings {
            named: named.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
            isolation: isolation.map(str::to_owned),
            ..Settings::default()
        }
    }

    #[test]
    fn what_is_said_replaces_what_is_usual() {
        let own = settings(&[("shared_buffers", "1GB")], Some("repeatable-read"));
        let options = postgres::Options::new(&own).unwrap();
        let pairs: Vec<_> =
            options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("max_connections", postgres::CONNECTIONS),
                ("shared_buffers", "1GB"),
                ("default_transaction_isolation", "repeatable read"),
            ]
        );
        let own = settings(&[("innodb-buffer-pool-size", "1G")], None);
        let expected = [("innodb_buffer_pool_size".to_owned(), "1G".to_owned())];
        assert_eq!(mariadb::Options::new(&own).unwrap().settings, expected);
        let own = settings(&[("journal_mode", "delete"), ("page_bytes", "8192")], None);
        let options = sqlite::Options::new(&own).unwrap();
        assert_eq!(options.journal_mode, sqlite::JournalMode::Delete);
        assert_eq!(options.page_bytes, 8192);
        let own = settings(&[("buffer_bytes", "1048576")], Some("read-committed"));
        let options = embedded::Options::new(&own).unwrap();
        let expected = (1 << 20, EmbeddedIsolation::ReadCommitted);
        assert_eq!((options.buffer_bytes, options.isolation), expected);
    }

    #[test]
    fn what_there_is_not_is_refused_by_name() {
        for (dbms, named, isolation, expected) in [
            (&sqlite::DBMS, ("cache", "1"), None, "no setting `cache`"),
            (&sqlite::DBMS, ("page_bytes", "5000"), None, "a power of two"),
            (&sqlite::DBMS, ("cache_bytes", "lots"), None, "`lots` is no cache_bytes"),
            (&sqlite::DBMS, ("synchronous", "off"), Some("read-committed"), "the only one"),
            (&embedded::DBMS, ("pages", "1"), None, "no setting `pages`"),
            (&firebird::DBMS, ("a", "b"), Some("serializable"), "snapshot or read-committed"),
            (&mariadb::DBMS, ("datadir", "d"), None, "`datadir` cannot be set"),
            (&postgres::DBMS, ("Data-Directory", "d"), None, "cannot be set"),
            (&mariadb::DBMS, ("a", "b"), Some("chaos"), "`chaos` is no isolation"),
        ] {
            let error = (dbms.validate)(&settings(&[named], isolation)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(Dbms::ALL.iter().all(|dbms| (dbms.validate)(&Settings::default()).is_ok()));
    }
}
