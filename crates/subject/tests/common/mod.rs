//! Private servers for tests, where their DBMS is installed.

use std::io::Write;

use tidegate_subject::database::DatabaseError;
use tidegate_subject::firebird::{self, Firebird};
use tidegate_subject::isolation::Isolation;
use tidegate_subject::mariadb::{self, MariaDb};
use tidegate_subject::postgres::{self, Postgres};
use tidegate_subject::server::{Program, ServerProcess};

/// Names and values of settings.
pub(crate) type Named<'n> = [(&'n str, &'n str)];

/// Starts a server. Where the DBMS is not installed, it says so on standard error, which the test
/// runner does not keep to itself, and returns `None`.
pub(crate) fn start<P: Program>(options: P::Options) -> Option<ServerProcess<P>> {
    match ServerProcess::start(options) {
        Err(error @ DatabaseError::NotInstalled(_)) => {
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            None
        }
        server => Some(server.unwrap()),
    }
}

pub(crate) fn settings(named: &Named<'_>) -> Vec<(String, String)> {
    named.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Starts a PostgreSQL that does not wait for the disk and soon notices deadlocks, in which orders
/// of the same few items meet.
pub(crate) fn postgres() -> Option<Postgres> {
    let settings = settings(&[("fsync", "off"), ("deadlock_timeout", "10ms")]);
    start(postgres::Options { settings, ..postgres::Options::default() })
}

/// Starts a MariaDB that writes its log at each commit, for the system to bring to the disk.
pub(crate) fn mariadb(named: &Named<'_>, isolation: Option<Isolation>) -> Option<MariaDb> {
    let quick = [("innodb_flush_log_at_trx_commit", "2"), ("debug_no_sync", "1")];
    let settings = settings(&[&quick[..], named].concat());
    start(mariadb::Options { settings, isolation })
}

/// Starts a Firebird that looks for deadlocks after a second.
pub(crate) fn firebird() -> Option<Firebird> {
    let settings = settings(&[("DeadlockTimeout", "1")]);
    start(firebird::Options { settings, ..firebird::Options::default() })
}
