//! The database of the demonstration and the benchmark: chosen, described.

use std::path::PathBuf;

use serde::{Serialize, Serializer};
use thiserror::Error;
use tidegate_subject::database::{Database, DatabaseError, Dbms, Gate};
use tidegate_workload::pgbench::Sums;
use tidegate_workload::{Session, finish};

use super::RigError;

/// A name that no DBMS has before which limits can be held.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no database is called `{name}`: use {}", gated_names())]
pub struct UnknownDatabase {
    pub name: String,
}

/// Returns the DBMSs with SQL before which limits can be held, in the order in which they are
/// preferred.
fn gated() -> impl Iterator<Item = &'static Dbms> {
    Dbms::ALL.iter().copied().filter(|dbms| dbms.gate != Gate::None && dbms.dialect.is_some())
}

/// Returns the names of those DBMSs, as messages have them.
pub(crate) fn gated_names() -> String {
    gated().map(|dbms| dbms.name).collect::<Vec<_>>().join(" or ")
}

/// The database to make an experiment on, and why that one.
#[derive(Clone, Debug)]
pub struct DatabaseChoice {
    /// Its DBMS, one before which limits can be held.
    pub dbms: &'static Dbms,
    /// Why, as a sentence for people.
    pub reason: String,
}

impl DatabaseChoice {
    /// Returns the choice of a name, as asked for.
    ///
    /// # Errors
    /// There is no such DBMS, or nothing can hold a limit before it.
    pub fn named(name: &str) -> Result<Self, UnknownDatabase> {
        let dbms = gated().find(|dbms| dbms.name == name);
        let dbms = dbms.ok_or_else(|| UnknownDatabase { name: name.to_owned() })?;
        Ok(DatabaseChoice { dbms, reason: format!("On {}, as asked for", dbms.title) })
    }

    /// Returns the first DBMS that can be started here: PostgreSQL where its programs are found,
    /// else the embedded engine.
    pub fn usual() -> Self {
        Self::first(gated().map(|dbms| (dbms, (dbms.find)())))
    }

    /// Returns the first of these that was found, or the last, by where its program is.
    fn first(
        found: impl Iterator<Item = (&'static Dbms, Result<Option<PathBuf>, DatabaseError>)>,
    ) -> Self {
        let mut why_not = String::new();
        let mut last = gated().last();
        for (dbms, program) in found {
            last = Some(dbms);
            match program {
                Ok(Some(program)) => {
                    let reason = format!("On {}, found as {}", dbms.title, program.display());
                    return DatabaseChoice { dbms, reason };
                }
                Ok(None) => break,
                Err(error) => {
                    why_not = format!(", because {} cannot be run here: {error}", dbms.title);
                }
            }
        }
        let dbms = last.expect("the embedded engine has a gate");
        DatabaseChoice { dbms, reason: format!("On {}{why_not}", dbms.title) }
    }
}

/// What an experiment ran on, for its report.
#[derive(Clone, Debug, Serialize)]
pub struct DatabaseDescription {
    #[serde(rename = "database", serialize_with = "name")]
    pub dbms: &'static Dbms,
    pub database_version: String,
    /// Its settings that are not its defaults, as in force.
    pub database_settings: Vec<(String, String)>,
}

fn name<S: Serializer>(dbms: &Dbms, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dbms.name)
}

impl DatabaseDescription {
    pub(crate) fn of(database: &dyn Database) -> Result<Self, RigError> {
        Ok(DatabaseDescription {
            dbms: database.dbms(),
            database_version: database.version()?,
            database_settings: database.settings()?,
        })
    }
}

/// Returns the sums of pgbench's tables, while no client changes them.
pub(crate) fn sums(database: &dyn Database) -> Result<Sums, RigError> {
    let mut connection = database.session()?;
    let session = Session::immediate(&mut *connection);
    Ok(finish(Box::pin(async move { Sums::read(&session).await }))?)
}

#[cfg(test)]
mod tests {
    use tidegate_subject::{embedded, postgres};

    use super::*;
    use crate::rig::{LIMIT_MAX, MAX_CLIENTS};

    #[test]
    fn postgresql_is_taken_where_it_is() {
        let embedded = || (&embedded::DBMS, Ok(None));
        let program = Ok(Some("bin/postgres".into()));
        let found = DatabaseChoice::first([(&postgres::DBMS, program), embedded()].into_iter());
        assert_eq!(found.dbms, &postgres::DBMS);
        assert!(found.reason.contains("bin/postgres"), "{}", found.reason);
        let missing = Err(DatabaseError::NotInstalled("install it".to_owned()));
        let missing = DatabaseChoice::first([(&postgres::DBMS, missing), embedded()].into_iter());
        assert_eq!(missing.dbms, &embedded::DBMS);
        assert!(missing.reason.contains("PostgreSQL cannot be run here: install it"));
    }

    #[test]
    fn every_database_is_found_by_its_name() {
        assert_eq!(gated_names(), "postgres or embedded");
        for name in ["postgres", "embedded"] {
            let choice = DatabaseChoice::named(name).unwrap();
            assert_eq!(choice.dbms.name, name);
            assert!(choice.reason.contains(choice.dbms.title), "{}", choice.reason);
        }
        let error = DatabaseChoice::named("oracle").unwrap_err().to_string();
        assert!(error.contains("`oracle`") && error.contains("postgres or embedded"), "{error}");
    }

    /// In a demo a proxy and its connections stay while clients connect directly.
    #[test]
    fn all_clients_fit_beside_a_proxy_at_its_highest_limit() {
        let room: usize = postgres::CONNECTIONS.parse().unwrap();
        assert!(room > MAX_CLIENTS + LIMIT_MAX as usize);
    }
}
