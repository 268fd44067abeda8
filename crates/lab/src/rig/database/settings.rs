//! A database's settings as an experiment file gives them: names and values in words.
//!
//! | database | names |
//! | --- | --- |
//! | PostgreSQL, MariaDB, Firebird | their own |
//! | SQLite | `journal_mode`, `synchronous`, `cache_bytes`, `page_bytes`, `busy_timeout_ms` |
//! | the embedded engine | `buffer_bytes` |
//!
//! A name of PostgreSQL's or MariaDB's may have capital letters, and dashes for underscores, as in
//! their configuration files. What would move a private server's files or address is
//! [refused](tidegate_subject::settings).

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;
use tidegate_subject::isolation::Isolation;
use tidegate_subject::settings::{Reserved, plain_name};
use tidegate_subject::{embedded, firebird, mariadb, postgres, sqlite};

/// Connections that a server has room for: 1,000 clients, as many again that a proxy beside them
/// keeps from a time when its limit was higher, its own reserve, us.
const CONNECTIONS: &str = "2100";

/// What the level of isolation is called in messages, and the key that it has.
const ISOLATION: &str = "isolation";

/// What a database is to be started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Its settings, by its own names.
    pub named: BTreeMap<String, String>,
    /// How far transactions are apart; the database's default when nothing is said.
    pub isolation: Option<String>,
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
    /// Where it is said: the isolation has a key of its own beside the settings.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            SettingError::Value { name, .. } if name == ISOLATION => ISOLATION,
            SettingError::Name { .. } | SettingError::Reserved(_) | SettingError::Value { .. } => {
                "settings"
            }
        }
    }
}

impl Settings {
    /// The names, each in one spelling, and values, with these where nothing else is said.
    fn over(&self, defaults: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut named: BTreeMap<String, String> =
            defaults.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        named.extend(self.named.iter().map(|(name, value)| (plain_name(name), value.clone())));
        named.into_iter().collect()
    }

    pub(crate) fn isolation(&self) -> Result<Option<Isolation>, SettingError> {
        let Some(text) = &self.isolation else { return Ok(None) };
        let level = Isolation::named(text).ok_or_else(|| {
            self.no_isolation("read-uncommitted, read-committed, repeatable-read or serializable")
        })?;
        Ok(Some(level))
    }

    fn no_isolation(&self, wanted: &'static str) -> SettingError {
        let value = self.isolation.clone().unwrap_or_default();
        SettingError::Value { name: ISOLATION.to_owned(), value, wanted }
    }

    pub(crate) fn postgres(&self) -> Result<postgres::Options, SettingError> {
        let mut settings =
            self.over(&[("max_connections", CONNECTIONS), ("shared_buffers", "256MB")]);
        if let Some(isolation) = self.isolation()? {
            let value = isolation.to_string().to_lowercase();
            settings.push(("default_transaction_isolation".to_owned(), value));
        }
        let options = postgres::Options { settings, ..postgres::Options::default() };
        options.validate()?;
        Ok(options)
    }

    pub(crate) fn mariadb(&self) -> Result<mariadb::Options, SettingError> {
        let settings = self.over(&[("innodb_buffer_pool_size", "256M")]);
        let options = mariadb::Options { settings, isolation: self.isolation()? };
        options.validate()?;
        Ok(options)
    }

    pub(crate) fn firebird(&self) -> Result<firebird::Options, SettingError> {
        let isolation = match self.isolation.as_deref() {
            None | Some("snapshot") => firebird::Isolation::Snapshot,
            Some("read-committed") => firebird::Isolation::ReadCommitted,
            Some(_) => return Err(self.no_isolation("snapshot or read-committed")),
        };
        let settings = self.named.clone().into_iter().collect();
        Ok(firebird::Options { settings, isolation, ..firebird::Options::default() })
    }

    pub(crate) fn sqlite(&self) -> Result<sqlite::Options, SettingError> {
        const KNOWN: &str = "journal_mode, synchronous, cache_bytes, page_bytes, busy_timeout_ms";
        if !matches!(self.isolation.as_deref(), None | Some("serializable")) {
            return Err(self.no_isolation("serializable, the only one that SQLite has"));
        }
        let mut options = sqlite::Options::default();
        for (name, value) in &self.named {
            let wrong =
                |wanted| SettingError::Value { name: name.clone(), value: value.clone(), wanted };
            let number = || value.parse::<u64>().map_err(|_| wrong("a whole number"));
            match name.as_str() {
                "journal_mode" => {
                    options.journal_mode = match value.as_str() {
                        "wal" => sqlite::JournalMode::Wal,
                        "delete" => sqlite::JournalMode::Delete,
                        _ => return Err(wrong("wal or delete")),
                    }
                }
                "synchronous" => {
                    options.synchronous = match value.as_str() {
                        "off" => sqlite::Synchronous::Off,
                        "normal" => sqlite::Synchronous::Normal,
                        "full" => sqlite::Synchronous::Full,
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

    pub(crate) fn embedded(&self) -> Result<embedded::Options, SettingError> {
        let isolation = self.isolation()?.unwrap_or(Isolation::Serializable);
        // Small next to the usual tables, so that pages compete for it.
        let mut buffer_bytes = 8 << 20;
        for (name, value) in &self.named {
            if name != "buffer_bytes" {
                return Err(unknown("the embedded engine", name, "buffer_bytes"));
            }
            buffer_bytes = value.parse().map_err(|_| SettingError::Value {
                name: name.clone(),
                value: value.clone(),
                wanted: "a number of bytes",
            })?;
        }
        Ok(embedded::Options { buffer_bytes, isolation })
    }
}

fn unknown(database: &'static str, name: &str, known: &'static str) -> SettingError {
    SettingError::Name { database, name: name.to_owned(), known }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{LIMIT_MAX, MAX_CLIENTS};

    fn settings(named: &[(&str, &str)], isolation: Option<&str>) -> Settings {
        Settings {
            named: named.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
            isolation: isolation.map(str::to_owned),
        }
    }

    /// In a demo a proxy and its connections stay while clients connect directly.
    #[test]
    fn all_clients_fit_beside_a_proxy_at_its_highest_limit() {
        let room: usize = CONNECTIONS.parse().unwrap();
        assert!(room > MAX_CLIENTS + LIMIT_MAX as usize);
    }

    #[test]
    fn what_is_said_replaces_what_is_usual() {
        let own = settings(&[("shared_buffers", "1GB")], Some("repeatable-read"));
        let options = own.postgres().unwrap();
        let pairs: Vec<_> =
            options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("max_connections", CONNECTIONS),
                ("shared_buffers", "1GB"),
                ("default_transaction_isolation", "repeatable read"),
            ]
        );
        let own = settings(&[("innodb-buffer-pool-size", "1G")], None);
        let expected = [("innodb_buffer_pool_size".to_owned(), "1G".to_owned())];
        assert_eq!(own.mariadb().unwrap().settings, expected);
        let own = settings(&[("journal_mode", "delete"), ("page_bytes", "8192")], None);
        let options = own.sqlite().unwrap();
        assert_eq!(options.journal_mode, sqlite::JournalMode::Delete);
        assert_eq!(options.page_bytes, 8192);
        let own = settings(&[("buffer_bytes", "1048576")], Some("read-committed"));
        let options = own.embedded().unwrap();
        assert_eq!((options.buffer_bytes, options.isolation), (1 << 20, Isolation::ReadCommitted));
    }

    #[test]
    fn what_there_is_not_is_refused_by_name() {
        type Check = fn(&Settings) -> Result<(), SettingError>;
        let sqlite: Check = |settings| settings.sqlite().map(drop);
        let embedded: Check = |settings| settings.embedded().map(drop);
        let firebird: Check = |settings| settings.firebird().map(drop);
        let mariadb: Check = |settings| settings.mariadb().map(drop);
        let postgres: Check = |settings| settings.postgres().map(drop);
        for (check, named, isolation, expected) in [
            (sqlite, ("cache", "1"), None, "no setting `cache`"),
            (sqlite, ("page_bytes", "5000"), None, "a power of two"),
            (sqlite, ("cache_bytes", "lots"), None, "`lots` is no cache_bytes"),
            (sqlite, ("synchronous", "off"), Some("read-committed"), "the only one"),
            (embedded, ("pages", "1"), None, "no setting `pages`"),
            (firebird, ("a", "b"), Some("serializable"), "snapshot or read-committed"),
            (mariadb, ("datadir", "d"), None, "`datadir` cannot be set"),
            (postgres, ("Data-Directory", "d"), None, "cannot be set"),
            (mariadb, ("a", "b"), Some("chaos"), "`chaos` is no isolation"),
        ] {
            let error = check(&settings(&[named], isolation)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
