//! Histories and scripts as text, in the notation of Berenson et al. (A critique of ANSI SQL
//! isolation levels, SIGMOD 1995): `w1[x]` is a write of x by transaction 1, `c1` its commit.
//!
//! | event | what transaction 1 does |
//! | --- | --- |
//! | `r1[x]`, `w1[x]`, `i1[x]`, `d1[x]` | reads, writes, inserts, removes x |
//! | `s1[x..z]`, `S1[x..z]` | scans upward, downward |
//! | `k1[x..z]`, `K1[x..z]` | the same, with a turn before each entry but the first: `n1` |
//! | `p1[x..z]` | scans for one key and removes it |
//! | `m1`, `u1` | sets a savepoint, rolls back to it |
//! | `c1`, `a1` | commits, rolls back |
//!
//! A key is x, y, z or a number. In a history `w1[x=2]` gives the write its number, `r1[x=2]` says
//! that this write was seen, `r1[x=]` that nothing was, and `s1[x..y:x=1,y=2]` that both were.

use super::history::{Key, WriteId};

/// Keys that are there from the beginning, with nothing between them.
pub(crate) const X: Key = 10;
pub(crate) const Y: Key = 20;
pub(crate) const Z: Key = 30;

/// One event: its letter, its transaction, and what is between the brackets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'t> {
    pub(crate) kind: char,
    pub(crate) txn: usize,
    pub(crate) operand: &'t str,
}

pub(crate) fn events(text: &str) -> impl Iterator<Item = Event<'_>> {
    text.split_whitespace().map(|word| {
        let (head, operand) = word.split_once('[').unwrap_or((word, "]"));
        let (kind, txn) = head.split_at(1);
        Event {
            kind: kind.parse().unwrap(),
            txn: txn.parse().unwrap(),
            operand: operand.strip_suffix(']').unwrap(),
        }
    })
}

pub(crate) fn key(name: &str) -> Key {
    match name {
        "x" => X,
        "y" => Y,
        "z" => Z,
        number => number.parse().unwrap(),
    }
}

pub(crate) fn range(operand: &str) -> (Key, Key) {
    let (low, high) = operand.split_once("..").unwrap();
    (key(low), key(high))
}

/// Reads `x=2`; `x=` for a key without a write.
pub(crate) fn version(operand: &str) -> (Key, Option<WriteId>) {
    let (name, id) = operand.split_once('=').unwrap();
    (key(name), (!id.is_empty()).then(|| WriteId(id.parse().unwrap())))
}
