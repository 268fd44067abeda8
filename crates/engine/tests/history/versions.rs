//! Which version of a key a read has seen.
//!
//! A value names the write it comes from, so a read that found one is sure. A read that found
//! nothing is not: the key may not have been inserted yet, or been taken out, once or several
//! times. The store has one copy of everything, so what was seen was there at some moment between
//! the beginning and the end of the read; that leaves mostly one version, and sometimes a few in a
//! row. What holds for each of them is all that is concluded.

use std::collections::{BTreeMap, HashMap};

use super::history::{Action, History, Key, Moment, WriteId};

/// What a transaction made of a key, when it was done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Who; nobody for the time before the first insert.
    pub(crate) txn: Option<usize>,
    /// The last of its writes.
    pub(crate) id: Option<WriteId>,
    is_there: bool,
    /// No earlier can it have been seen.
    from: Moment,
    /// No later can it have been seen.
    until: Moment,
}

impl Version {
    /// The write that whoever sees it finds, if it finds any.
    pub(crate) fn value(&self) -> Option<WriteId> {
        self.id.filter(|_| self.is_there)
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is the version of this number.
    Version(usize),
    /// Its transaction wrote the key once more.
    Overwritten,
    /// It was taken back.
    RolledBack,
    /// Nobody knows: its transaction is committed, and it is not there.
    Lost,
}

/// One write, wherever it has gone.
#[derive(Clone, Copy, Debug)]
struct Write {
    txn: usize,
    key: Key,
    is_there: bool,
    begin: Moment,
    end: Moment,
    fate: Fate,
}

/// What a read has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// What its own transaction had written.
    Own,
    /// One of the versions with these numbers, the first and the last included.
    Versions(usize, usize),
    /// A write that was rolled back.
    RolledBack(WriteId),
    /// A write that its transaction wrote over.
    Overwritten(WriteId),
    /// What cannot be, and why.
    Impossible(&'static str),
}

/// The versions of all keys.
pub(crate) struct Versions {
    chains: BTreeMap<Key, Vec<Version>>,
    writes: HashMap<WriteId, Write>,
    strays: Vec<WriteId>,
}

impl Versions {
    pub(crate) fn new(history: &History) -> Versions {
        let (chains, strays) = (BTreeMap::new(), Vec::new());
        let mut versions = Versions { chains, writes: all_writes(history), strays };
        for write in versions.writes.values() {
            versions.chains.entry(write.key).or_insert_with(|| vec![UNBORN]);
        }
        for (&key, trail) in history.trails.iter().filter(|(_, trail)| !trail.is_empty()) {
            versions.add_chain(key, trail);
        }
        versions
    }

    fn add_chain(&mut self, key: Key, trail: &[WriteId]) {
        let chain = self.chains.entry(key).or_insert_with(|| vec![UNBORN]);
        for id in trail {
            let write = self.writes.get(id).copied();
            if write.is_none_or(|write| write.fate != Fate::Lost) {
                self.strays.push(*id);
            }
            let Some(write) = write else { continue };
            let number = chain.len();
            let last = &mut chain[number - 1];
            if last.txn == Some(write.txn) {
                if let Some(before) = last.id.replace(*id).and_then(|id| self.writes.get_mut(&id)) {
                    before.fate = Fate::Overwritten;
                }
                (last.is_there, last.from) = (write.is_there, write.begin);
            } else {
                last.until = write.end;
                let (txn, id, is_there) = (Some(write.txn), Some(*id), write.is_there);
                chain.push(Version { txn, id, is_there, from: write.begin, until: Moment::MAX });
            }
            let fate = Fate::Version(chain.len() - 1);
            if let Some(write) = self.writes.get_mut(id) {
                write.fate = fate;
            }
        }
    }

    /// All keys that were ever written, each with its versions in order; the first is that before
    /// the first insert.
    pub(crate) fn chains(&self) -> impl Iterator<Item = (Key, &[Version])> {
        self.chains.iter().map(|(&key, chain)| (key, &chain[..]))
    }

    /// Keys that were ever written, from `low` to `high`.
    pub(crate) fn keys(&self, low: Key, high: Key) -> impl Iterator<Item = Key> {
        self.chains.range(low..=high).map(|(&key, _)| key)
    }

    pub(crate) fn version(&self, key: Key, number: usize) -> Option<&Version> {
        self.chains.get(&key)?.get(number)
    }

    /// Who wrote it, if anybody did.
    pub(crate) fn writer(&self, id: WriteId) -> Option<usize> {
        self.writes.get(&id).map(|write| write.txn)
    }

    /// Writes of transactions that are committed and that left no trace.
    pub(crate) fn lost(&self) -> Option<WriteId> {
        let lost = self.writes.iter().filter(|(_, write)| write.fate == Fate::Lost);
        lost.map(|(&id, _)| id).min()
    }

    /// Writes that are in a trail and should not be: rolled back, twice there, or nobody's.
    pub(crate) fn strays(&self) -> &[WriteId] {
        &self.strays
    }

    /// What operation `op` of transaction `txn` has seen of `key` when it saw `seen`.
    pub(crate) fn seen(
        &self,
        history: &History,
        (txn, op): (usize, usize),
        key: Key,
        seen: Option<WriteId>,
    ) -> Seen {
        let reader = &history.txns[txn];
        let own = reader.own_writes(op).into_iter().rev().find(|write| write.1 == key);
        if let Some((_, _, id, is_there)) = own {
            return if seen == is_there.then_some(id) {
                Seen::Own
            } else {
                Seen::Impossible("its own write is not seen")
            };
        }
        match seen {
            Some(id) => self.seen_write(txn, key, id),
            None => self.seen_nothing(txn, key, (reader.ops[op].begin, reader.ops[op].end)),
        }
    }

    fn seen_write(&self, txn: usize, key: Key, id: WriteId) -> Seen {
        let Some(write) = self.writes.get(&id).filter(|write| write.key == key) else {
            return Seen::Impossible("nobody wrote this");
        };
        match write.fate {
            _ if write.txn == txn => Seen::Impossible("its own write is not current any more"),
            _ if !write.is_there => Seen::Impossible("it took the key out"),
            Fate::Version(number) => Seen::Versions(number, number),
            Fate::Overwritten => Seen::Overwritten(id),
            Fate::RolledBack => Seen::RolledBack(id),
            Fate::Lost => Seen::Impossible("what was seen is lost"),
        }
    }

    fn seen_nothing(&self, txn: usize, key: Key, (begin, end): (Moment, Moment)) -> Seen {
        let Some(chain) = self.chains.get(&key) else { return Seen::Versions(0, 0) };
        let may_be =
            |version: &Version| !version.is_there && version.from < end && version.until > begin;
        let first = chain.iter().position(may_be);
        if let (Some(first), Some(last)) = (first, chain.iter().rposition(may_be)) {
            return Seen::Versions(first, last);
        }
        let is_other = |write: &Write| write.key == key && write.txn != txn && !write.is_there;
        let removals = self.writes.iter().filter(|(_, write)| is_other(write) && write.begin < end);
        let removal = |fate: Fate| {
            let of_fate = removals.clone().filter(|(_, write)| write.fate == fate);
            of_fate.max_by_key(|(_, write)| write.begin).map(|(&id, _)| id)
        };
        match (removal(Fate::RolledBack), removal(Fate::Overwritten)) {
            (Some(id), _) => Seen::RolledBack(id),
            (None, Some(id)) => Seen::Overwritten(id),
            (None, None) => Seen::Impossible("it was there all the time"),
        }
    }
}

const UNBORN: Version =
    Version { txn: None, id: None, is_there: false, from: 0, until: Moment::MAX };

/// All writes; those of the trails are not known as such yet.
fn all_writes(history: &History) -> HashMap<WriteId, Write> {
    let mut writes = HashMap::new();
    for (number, txn) in history.txns.iter().enumerate() {
        let kept = if txn.is_committed { txn.own_writes(txn.ops.len()) } else { Vec::new() };
        for op in &txn.ops {
            let Action::Write { key, id, is_there } = op.action else { continue };
            let is_kept = kept.iter().any(|write| write.2 == id);
            let fate = if is_kept { Fate::Lost } else { Fate::RolledBack };
            let (begin, end) = (op.begin, op.end);
            writes.insert(id, Write { txn: number, key, is_there, begin, end, fate });
        }
    }
    writes
}
