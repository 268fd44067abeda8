//! The time that disks take, on a machine in virtual time. On the operating system's nothing here
//! takes any: its disks take their own.
//!
//! The caller keeps the bytes of its files. It says here what a disk would do, and waits as long.

use crate::{fiber, machine};

/// A piece of work of a machine's disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Reads or writes `bytes` of a data file at `offset`. The stripe in which they begin says on
    /// which disk that is.
    Data {
        /// Bytes from the beginning of the file.
        offset: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// Makes `bytes` of the log, or a change of a directory, durable on the log's disk.
    Log {
        /// How many bytes.
        bytes: u64,
    },
}

/// Waits as long as the transfer takes, behind those that came before it to the same disk.
pub fn wait_for(transfer: Transfer) {
    if fiber::is_active() {
        machine::transfer(transfer);
    }
}
