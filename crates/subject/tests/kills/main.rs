//! Workloads on every database, whose clients and whose processes are killed at work.
//!
//! # Mechanism
//! Several clients run a workload's transactions on threads, from a printed seed (`crowd`). Some of
//! them vanish in the middle of a transaction; all connections are ended by the server, or
//! interrupted; and the process that holds the database gets a SIGKILL, by its own id, and is
//! started again on what it left. Then the workload's check has to hold in full. For TPC-C that is
//! all twelve conditions, and three they know nothing of: no order and no payment is lost that was
//! reported as committed, none is there that nobody sent, and no change of the stock is lost.
//!
//! Servers (`servers`) are private ones. SQLite and the embedded engine have no process of their
//! own, so a second process of this test holds the database and is killed (`children`). `matrix`
//! has the other workloads, but for those on pgbench's tables: 100,000 accounts at the least.
//!
//! # Limits
//! The machine does not lose its power: what was written is there after a SIGKILL, synced or not,
//! so servers are told not to wait for the disk. A database that is not installed is skipped, which
//! a line on standard error says.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]
#![allow(clippy::print_stdout, reason = "a test prints its seed and what it did")]

mod children;
#[path = "../common/mod.rs"]
mod common;
mod crowd;
mod kept;
mod matrix;
mod servers;

use kept::tpcc;

/// Clients at once.
const CLIENTS: usize = 4;
