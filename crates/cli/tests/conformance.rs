//! The clients that are installed here, directly and through `tidegate proxy`.
//!
//! psql and pgbench come with PostgreSQL; Python's clients are used if Python has them. `make
//! conformance` installs these and the others.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn clients_that_are_installed_behave_as_directly() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/conformance.py");
    let output = Command::new("python3")
        .arg(script)
        .args(["--as-installed", "--megabytes", "3"])
        .args(["--tidegate", env!("CARGO_BIN_EXE_tidegate")])
        .args(["--clients", "psql and pgbench", "psycopg 3", "psycopg2", "asyncpg", "SQLAlchemy"])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: python3 does not run ({error})");
            return;
        }
    };
    let progress = String::from_utf8_lossy(&output.stderr);
    // Says which clients are skipped, and why.
    println!("{progress}");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{progress}\n{report}");
}
