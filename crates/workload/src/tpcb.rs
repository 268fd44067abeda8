//! pgbench's default transaction, modelled after TPC-B: move money, read it back, log it.
//!
//! Every transaction updates a branch, and at scale 1 there is one branch: all transactions queue
//! for its row lock, which is what makes throughput collapse when too many of them run at once.

use crate::pgbench::{self, ACCOUNTS, BRANCHES, Scale, TELLERS};
use crate::{Draw, append, words};

/// Statements per transaction.
pub const STATEMENTS: usize = 7;

/// The name of the procedure that runs the transaction, where there are procedures.
pub const PROCEDURE: &str = "tpcb";

/// The largest amount moved, in either direction.
const DELTA_MAX: i32 = 5000;

/// The values of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tpcb {
    /// The account's number, from 1.
    pub account: i32,
    /// The branch's number, from 1.
    pub branch: i32,
    /// The teller's number, from 1.
    pub teller: i32,
    /// What the balances of all three change by.
    pub delta: i32,
}

impl Tpcb {
    /// Draws the values with pgbench's ranges: account, branch and teller independent of each
    /// other, so that the teller and the account need not be the branch's.
    #[must_use]
    pub fn draw(scale: Scale, draw: &mut Draw) -> Self {
        Tpcb {
            account: draw.between(1, scale.last(ACCOUNTS)),
            branch: draw.between(1, scale.last(BRANCHES)),
            teller: draw.between(1, scale.last(TELLERS)),
            delta: draw.between(-DELTA_MAX, DELTA_MAX),
        }
    }

    /// Appends the values as bytes, for a database that is called with a whole transaction.
    pub fn encode(&self, out: &mut Vec<u8>) {
        words::append(&[self.account, self.branch, self.teller, self.delta], out);
    }

    /// The values in bytes that [`Tpcb::encode`] made; `None` when they are others.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [account, branch, teller, delta] = words::read(bytes)?;
        Some(Tpcb { account, branch, teller, delta })
    }

    /// Appends the text of statement `index` of [`STATEMENTS`]; nothing beyond the last.
    pub fn write_statement(&self, index: usize, out: &mut Vec<u8>) {
        let Tpcb { account, branch, teller, delta } = self;
        match index {
            0 => out.extend_from_slice(b"BEGIN;"),
            1 => append(
                out,
                format_args!(
                    "UPDATE pgbench_accounts SET abalance = abalance + {delta} \
                     WHERE aid = {account};"
                ),
            ),
            2 => pgbench::write_select(*account, out),
            3 => append(
                out,
                format_args!(
                    "UPDATE pgbench_tellers SET tbalance = tbalance + {delta} \
                     WHERE tid = {teller};"
                ),
            ),
            4 => append(
                out,
                format_args!(
                    "UPDATE pgbench_branches SET bbalance = bbalance + {delta} \
                     WHERE bid = {branch};"
                ),
            ),
            5 => append(
                out,
                format_args!(
                    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
                     VALUES ({teller}, {branch}, {account}, {delta}, CURRENT_TIMESTAMP);"
                ),
            ),
            6 => out.extend_from_slice(b"END;"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statements_are_pgbenchs() {
        let transaction = Tpcb { account: 42, branch: 1, teller: 7, delta: -300 };
        let statements: Vec<String> = (0..=STATEMENTS)
            .map(|index| {
                let mut text = Vec::new();
                transaction.write_statement(index, &mut text);
                String::from_utf8(text).unwrap()
            })
            .collect();
        assert_eq!(
            statements,
            [
                "BEGIN;",
                "UPDATE pgbench_accounts SET abalance = abalance + -300 WHERE aid = 42;",
                "SELECT abalance FROM pgbench_accounts WHERE aid = 42;",
                "UPDATE pgbench_tellers SET tbalance = tbalance + -300 WHERE tid = 7;",
                "UPDATE pgbench_branches SET bbalance = bbalance + -300 WHERE bid = 1;",
                "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
                 VALUES (7, 1, 42, -300, CURRENT_TIMESTAMP);",
                "END;",
                "",
            ]
        );
    }

    #[test]
    fn values_stay_in_range_and_reach_its_ends() {
        let scale = Scale::new(2).unwrap();
        let mut draw = Draw::new(5, 0);
        let drawn: Vec<Tpcb> = (0..200_000).map(|_| Tpcb::draw(scale, &mut draw)).collect();
        let range = |value: fn(&Tpcb) -> i32| {
            let values = drawn.iter().map(value);
            (values.clone().min().unwrap(), values.max().unwrap())
        };
        assert_eq!(range(|t| t.branch), (1, 2));
        assert_eq!(range(|t| t.teller), (1, 20));
        assert_eq!(range(|t| t.delta), (-5000, 5000));
        let (low, high) = range(|t| t.account);
        assert!((1..100).contains(&low) && (199_900..=200_000).contains(&high));
    }
}
