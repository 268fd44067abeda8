//! What was recorded of a run: who did what, what came of it, and what each key went through.

use std::collections::BTreeMap;
use std::fmt;

/// A key, by its number.
pub(crate) type Key = u8;

/// The number of one write; no two have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WriteId(pub(crate) u32);

/// A tick of the clock that all clients share. Whatever ends before another thing begins has the
/// lower one.
pub(crate) type Moment = u64;

/// What was done, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// One key was read, or written if it had been there.
    Get { key: Key, seen: Option<WriteId> },
    /// All keys from `low` to `high` were read, both included.
    Scan { low: Key, high: Key, seen: Vec<(Key, WriteId)> },
    /// A key was given a value, or taken out.
    Write { key: Key, id: WriteId, is_there: bool },
    /// A savepoint.
    Mark,
    /// Everything since the last savepoint was taken back.
    Undo,
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) begin: Moment,
    pub(crate) end: Moment,
    pub(crate) action: Action,
}

/// One transaction.
#[derive(Clone, Debug)]
pub(crate) struct Txn {
    /// Whose it was.
    pub(crate) client: usize,
    pub(crate) ops: Vec<Op>,
    pub(crate) is_committed: bool,
    pub(crate) began: Moment,
    pub(crate) ended: Moment,
}

impl Txn {
    /// The writes that are in force after the first `count` operations: those that were not taken
    /// back, with the numbers of their operations.
    pub(crate) fn own_writes(&self, count: usize) -> Vec<(usize, Key, WriteId, bool)> {
        let mut writes = Vec::new();
        let mut mark = 0;
        for (number, op) in self.ops[..count].iter().enumerate() {
            match op.action {
                Action::Write { key, id, is_there } => writes.push((number, key, id, is_there)),
                Action::Mark => mark = writes.len(),
                Action::Undo => writes.truncate(mark),
                Action::Get { .. } | Action::Scan { .. } => {}
            }
        }
        writes
    }
}

/// A run: transactions in the order in which they began, and all writes of each key that are not
/// rolled back, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) txns: Vec<Txn>,
    pub(crate) trails: BTreeMap<Key, Vec<WriteId>>,
    /// What was there in the end.
    pub(crate) left: BTreeMap<Key, WriteId>,
}

impl fmt::Display for WriteId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "#{}", self.0)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[{}-{}] ", self.begin, self.end)?;
        match &self.action {
            Action::Get { key, seen: Some(id) } => write!(formatter, "get {key} = {id}"),
            Action::Get { key, seen: None } => write!(formatter, "get {key} = nothing"),
            Action::Scan { low, high, seen } => {
                write!(formatter, "scan {low}..={high} =")?;
                seen.iter().try_for_each(|(key, id)| write!(formatter, " {key}:{id}"))
            }
            Action::Write { key, id, is_there: true } => write!(formatter, "put {key} = {id}"),
            Action::Write { key, id, is_there: false } => write!(formatter, "remove {key}, {id}"),
            Action::Mark => write!(formatter, "savepoint"),
            Action::Undo => write!(formatter, "roll back to the savepoint"),
        }
    }
}

impl fmt::Display for Txn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "(client {}) ", self.client)?;
        self.ops.iter().try_for_each(|op| write!(formatter, "{op}; "))?;
        let end = if self.is_committed { "commit" } else { "rolled back" };
        write!(formatter, "[{}] {end}", self.ended)
    }
}
