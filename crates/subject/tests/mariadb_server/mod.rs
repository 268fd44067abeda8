//! A private MariaDB for a test.

use std::io::Write;

use tidegate_subject::database::DatabaseError;
use tidegate_subject::isolation::Isolation;
use tidegate_subject::mariadb::{MariaDb, Options};

/// Whether MariaDB is installed; a line on standard error, which the test runner does not keep to
/// itself, says when it is not.
pub(crate) fn is_installed() -> bool {
    match MariaDb::find() {
        Err(error @ DatabaseError::NotInstalled(_)) => {
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            false
        }
        _ => true,
    }
}

/// A server at READ COMMITTED that does not wait for the disk; `None` where MariaDB is not
/// installed.
pub(crate) fn server(settings: &[(&str, &str)]) -> Option<MariaDb> {
    let quick = [("innodb_flush_log_at_trx_commit", "0"), ("debug_no_sync", "1")];
    let all = quick.iter().chain(settings);
    let settings = all.map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let options = Options { settings, isolation: Some(Isolation::ReadCommitted) };
    is_installed().then(|| MariaDb::start(options).expect("a private server"))
}
