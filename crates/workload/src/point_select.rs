//! One read by primary key, each its own transaction: `pgbench --select-only`.

use crate::pgbench::{self, ACCOUNTS, Scale};
use crate::{Draw, words};

/// Statements per transaction.
pub const STATEMENTS: usize = 1;

/// The name of the procedure that runs the transaction, where there are procedures.
pub const PROCEDURE: &str = "point-select";

/// The value of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointSelect {
    /// The account's number, from 1.
    pub account: i32,
}

impl PointSelect {
    /// Draws the account.
    #[must_use]
    pub fn draw(scale: Scale, draw: &mut Draw) -> Self {
        PointSelect { account: draw.between(1, scale.last(ACCOUNTS)) }
    }

    /// Appends the value as bytes, for a database that is called with a whole transaction.
    pub fn encode(&self, out: &mut Vec<u8>) {
        words::append(&[self.account], out);
    }

    /// The value in bytes that [`PointSelect::encode`] made; `None` when they are others.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [account] = words::read(bytes)?;
        Some(PointSelect { account })
    }

    /// Appends the statement's text.
    pub fn write(&self, out: &mut Vec<u8>) {
        pgbench::write_select(self.account, out);
    }
}
