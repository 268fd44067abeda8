//! One read by primary key, each its own transaction: `pgbench --select-only`.

use crate::Draw;
use crate::pgbench::{self, ACCOUNTS, Scale};

/// Statements per transaction.
pub const STATEMENTS: usize = 1;

/// The value of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointSelect {
    account: i32,
}

impl PointSelect {
    /// Draws the account.
    #[must_use]
    pub fn draw(scale: Scale, draw: &mut Draw) -> Self {
        PointSelect { account: draw.between(1, scale.last(ACCOUNTS)) }
    }

    /// Appends the statement's text.
    pub fn write(&self, out: &mut Vec<u8>) {
        pgbench::write_select(self.account, out);
    }
}
