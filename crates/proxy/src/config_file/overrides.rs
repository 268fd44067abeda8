//! Settings that stand over those of the file for a while: the console's SET.

use super::{ConfigFile, ConfigProblem};
use crate::pgbouncer::{Fate, Place, SETTINGS};

/// A setting by its key, as SHOW CONFIG has it, and its value, as in the file or as plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    key: String,
    value: String,
}

/// A setting that cannot be set in this way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// PgBouncer has it, and it is called otherwise here.
    #[error("{name} is called {ours} here")]
    OtherName {
        /// PgBouncer's name.
        name: String,
        /// Our key.
        ours: &'static str,
    },
    /// PgBouncer has it, and it is not here.
    #[error("there is no {name} here: {why}")]
    Missing {
        /// PgBouncer's name.
        name: String,
        /// What takes its place.
        why: &'static str,
    },
}

impl Override {
    /// Makes one of a key and a value as the console gets them. PgBouncer's names do where the
    /// setting is the same, with seconds for times.
    ///
    /// # Errors
    /// It is a setting of PgBouncer that is no single setting here.
    pub fn new(key: &str, value: &str) -> Result<Override, OverrideError> {
        let own = |key: &str, value: String| Override { key: key.to_owned(), value };
        let is_it = |it: &&crate::pgbouncer::PgbouncerSetting| {
            it.name.eq_ignore_ascii_case(key) && it.place == Place::Global
        };
        // Some are called the same here.
        let named = SETTINGS.iter().find(is_it).filter(|it| it.fate != Fate::Becomes(it.name));
        let name = || key.to_owned();
        match named.map(|it| it.fate) {
            None => Ok(own(key, value.to_owned())),
            Some(Fate::Becomes(ours)) if ours.starts_with("timeouts.") => {
                Ok(own(ours, value.parse::<u64>().map_or(value.to_owned(), seconds)))
            }
            Some(Fate::Becomes("max_clients")) => Ok(own("max_clients", value.to_owned())),
            Some(Fate::Becomes(ours)) => Err(OverrideError::OtherName { name: name(), ours }),
            Some(Fate::NotNeeded(why) | Fate::Missing(why)) => {
                Err(OverrideError::Missing { name: name(), why })
            }
        }
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the names of the tables that hold it, and its own. The name of a database or a user
    /// may have dots.
    fn path(&self) -> Vec<&str> {
        let Some((section @ ("databases" | "users"), rest)) = self.key.split_once('.') else {
            return self.key.split('.').collect();
        };
        if let Some((name, setting)) = rest.split_once(".timeouts.") {
            return vec![section, name, "timeouts", setting];
        }
        let (name, setting) = rest.rsplit_once('.').unwrap_or(("", rest));
        vec![section, name, setting]
    }

    fn toml(&self) -> toml::Value {
        let written = toml::from_str::<toml::Table>(&format!("value = {}", self.value));
        let value = written.ok().and_then(|mut table| table.remove("value"));
        value.unwrap_or_else(|| toml::Value::String(self.value.clone()))
    }

    fn put(&self, table: &mut toml::Table) {
        let path = self.path();
        let Some((last, tables)) = path.split_last() else { return };
        let mut into = table;
        for name in tables {
            let next = into.entry(*name).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            // What is no table is replaced: the file's reader says what is wrong with it.
            if !next.is_table() {
                *next = toml::Value::Table(toml::Table::new());
            }
            let toml::Value::Table(next) = next else { return };
            into = next;
        }
        into.insert((*last).to_owned(), self.toml());
    }
}

/// A time in PgBouncer's way, of which 0 is none.
fn seconds(number: u64) -> String {
    if number == 0 { "none".to_owned() } else { format!("{number}s") }
}

/// Reads a file's text with these settings over it.
pub(super) fn read(text: &str, overrides: &[Override]) -> Result<ConfigFile, ConfigProblem> {
    let whole = |error: toml::de::Error| ConfigProblem::Toml {
        line: 0,
        text: overrides.iter().map(Override::key).collect::<Vec<_>>().join(", "),
        message: error.message().trim().replace('\n', ", "),
    };
    let mut table: toml::Table = toml::from_str(text).map_err(whole)?;
    for one in overrides {
        one.put(&mut table);
    }
    table.try_into().map_err(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "waiting_max = 7\n[timeouts]\nqueue = \"1s\"\n[databases.\"a.b\"]\n\
                        upstream = \"postgres://db\"\nmax_mpl = 5\n";

    fn with(settings: &[(&str, &str)]) -> Result<ConfigFile, ConfigProblem> {
        let overrides = settings.iter().map(|(key, value)| Override::new(key, value).unwrap());
        read(FILE, &overrides.collect::<Vec<_>>())
    }

    #[test]
    fn settings_stand_over_those_of_the_file() {
        let file = with(&[
            ("waiting_max", "8"),
            ("timeouts.queue", "2m"),
            ("databases.a.b.max_mpl", "6"),
            ("databases.a.b.control", "fixed:3"),
            ("databases.a.b.timeouts.login", "3s"),
            ("users.ann.max_clients", "4"),
            ("query_wait_timeout", "9"),
            ("max_client_conn", "30"),
        ])
        .unwrap();
        assert_eq!(file.waiting_max.map(std::num::NonZeroUsize::get), Some(8));
        let queue = file.timeouts.queue.map(|it| it.0);
        assert_eq!(queue, Some(Some(std::time::Duration::from_secs(9))), "the last one counts");
        assert_eq!(file.max_clients.map(std::num::NonZeroU32::get), Some(30));
        let database = &file.databases["a.b"];
        assert_eq!(database.max_mpl.map(std::num::NonZeroU32::get), Some(6));
        assert!(database.control.is_some() && database.timeouts.login.is_some());
        assert!(file.users["ann"].max_clients.is_some());
    }

    #[test]
    fn what_is_no_setting_is_refused_by_its_name() {
        for (key, value) in [("nonsense", "1"), ("waiting_max", "many"), ("timeouts.queue", "5")] {
            let error = with(&[(key, value)]).unwrap_err().to_string();
            assert!(error.contains(key), "{key}: {error}");
        }
        let error = |key| Override::new(key, "1").unwrap_err().to_string();
        assert!(error("default_pool_size").contains("found by measurement"));
        assert!(error("max_db_connections").contains("databases.NAME.max_database_connections"));
    }
}
