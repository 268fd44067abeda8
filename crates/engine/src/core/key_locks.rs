//! What transactions lock: keys and the gaps between them, trees, the store; and in which modes.
//!
//! A lock on a key may also say something of the *gap* below it, up to the next lower key there is
//! (key-range locking; Lomet, "Key range locking strategies for improved concurrency", VLDB 1993).
//! A mode is a pair: nothing, S, U or X on the key, and nothing, S, I or both on the gap. S on the
//! gap says that nothing may appear in it or vanish from it; I, that something will. Two that put
//! different keys into one gap do not disturb each other: I goes with I.
//!
//! RSS is S on both, RS, RI and RB are S, I and both on the gap alone.
//!
//! | who | key it is about | next key |
//! | --- | --- | --- |
//! | reads a key | S | |
//! | reads a key for update | U | |
//! | reads a key that is not there, serializably | S | RS |
//! | scans, serializably | RSS | RS after the last |
//! | scans for update, serializably | RSU | RS after the last |
//! | scans for update, else | U, and RS for a moment | RS for a moment after the last |
//! | scans, repeatable read | S, and RS for a moment | RS for a moment after the last |
//! | scans, read committed | RSS for a moment | RS for a moment after the last |
//! | inserts a key | RIX; RBX if it has read the gap | RI for a moment, if it need not wait |
//! | removes a key | RBX | RB |
//!
//! A key that is removed leaves nothing that could be locked, so the transaction that removes it
//! locks the gap that it leaves, the next key's, against all others: those who read over it and
//! would not see that a key may come back (RS), those who divide the gap by another key, so that
//! the rest of it has another name (RI), and those who remove the next key (RB). They also wait
//! until no transaction relies on the gap below the key itself, which loses its name. A key that
//! may vanish again is no name for a gap that others rely on either: RI on the gap below it, until
//! the insert is committed, keeps them from that.
//!
//! An insert that has to wait for the gap keeps it until the end of the transaction. Given back
//! before the page is latched again, it would go to the readers that queued behind it, and where
//! all of them insert after they have read, each would find the others in its way for ever.
//!
//! Who inserts at the end of a tree, one key after the other, keeps RI on its last gap from the
//! second insert on, until it locks anything else. What others have to wait for because of it is
//! to read, serializably, a key that is not there above all of them.
//!
//! The modes of [multi-granularity locking](crate::lock) come first, so that one table serves keys
//! and what contains them: a pair of those modes, or none, with what is said of the gap.

use std::sync::Arc;

use crate::lock::multi_granularity::{IX, S, SIX, U, X};
use crate::lock::{
    Escalation, Hierarchy, LockManager, LockSettings, Mode, ModeTable, ModeTableError,
};
use crate::page::TreeId;

/// A resource that transactions lock. What a client of the store locks for itself is in a
/// [`LockSpace`](crate::LockSpace).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lockable {
    /// The store as a whole: all trees.
    Store,
    /// A tree as a whole: all its keys and gaps.
    Tree(TreeId),
    /// A key of a tree, by a hash of it, and the gap below the key. Two keys with the same hash are
    /// locked together.
    Key(TreeId, u64),
    /// The gap above the last key of a tree.
    End(TreeId),
}

// A bucket of the lock table holds two locks on the pair of cache lines that its latch is on.
const _: () = assert!(size_of::<Lockable>() == 16);

/// Returns a hash of a key. The hashes of keys that differ in one bit differ in about half of their
/// bits.
pub(crate) fn hash_key(key: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = key.len() as u64;
    let mut chunks = key.chunks_exact(8);
    let mut mix = |word: u64| {
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
        hash ^= hash >> 29;
    };
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        mix(u64::from_le_bytes(word));
    }
    let mut word = [0; 8];
    word[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    mix(u64::from_le_bytes(word));
    mix(0);
    hash
}

/// The lock table of a store, and the modes in which it locks keys.
pub(crate) struct KeyLocks {
    pub(crate) manager: Arc<LockManager<Lockable>>,
    pub(crate) range_modes: RangeModes,
}

impl KeyLocks {
    /// Makes an empty lock table. A transaction that holds `escalate_at` locks on the keys of a
    /// tree locks the tree instead.
    pub(crate) fn new(
        settings: LockSettings,
        escalate_at: Option<u32>,
    ) -> Result<KeyLocks, ModeTableError> {
        let (table, range_modes) = mode_table()?;
        let escalation = escalate_at.map(|parts_max| Escalation {
            parent: Box::new(move |resource: &Lockable| match *resource {
                Lockable::Key(tree, _) | Lockable::End(tree) => Some(Lockable::Tree(tree)),
                Lockable::Store | Lockable::Tree(_) => None,
            }),
            parts_max: Box::new(move |_, _| parts_max),
            covering: Box::new(covering(&table)),
            // A transaction locks the tree by itself, once for all of its keys.
            above: Box::new(|_| None),
            counts_repeats: false,
        });
        let is_whole =
            |resource: &Lockable| matches!(resource, Lockable::Store | Lockable::Tree(_));
        let hierarchy = Hierarchy { is_whole, escalation };
        Ok(KeyLocks {
            manager: LockManager::with_hierarchy(table, settings, hierarchy),
            range_modes,
        })
    }
}

/// The modes of a key that say something of the gap below it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangeModes {
    /// S on both.
    pub(crate) both_s: Mode,
    /// U on the key and S on the gap.
    pub(crate) key_u: Mode,
    /// S on the gap alone.
    pub(crate) gap_s: Mode,
    /// I on the gap alone.
    pub(crate) gap_i: Mode,
    /// S and I on the gap alone.
    pub(crate) gap_si: Mode,
    /// X on the key and I on the gap.
    pub(crate) insert: Mode,
    /// X on the key and both on the gap, which goes with nothing.
    pub(crate) strongest: Mode,
}

/// A mode: one of multi-granularity locking or none, and what it says of the gap, as bits: 1 for S,
/// 2 for I.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    key: Option<Mode>,
    gap: u8,
}

/// Words for what is said of the gap.
const GAPS: [&str; 4] = ["", "RS", "RI", "RB"];

impl Pair {
    fn name(self, coarse: &ModeTable) -> String {
        let key = self.key.map_or("", |key| coarse.name(key));
        format!("{}{key}", GAPS[usize::from(self.gap)])
    }

    fn is_compatible(requested: Pair, held: Pair, coarse: &ModeTable) -> bool {
        let key = match (requested.key, held.key) {
            (Some(requested), Some(held)) => coarse.is_compatible(requested, held),
            _ => true,
        };
        let gap = requested.gap == 0 || held.gap == 0 || (requested.gap | held.gap) != 3;
        key && gap
    }

    /// Returns the pair that says what both say.
    fn over(self, held: Pair, coarse: &ModeTable) -> Pair {
        let key = match (self.key, held.key) {
            (Some(requested), Some(held)) => Some(coarse.convert(held, requested)),
            (one, other) => one.or(other),
        };
        Pair { key, gap: self.gap | held.gap }
    }
}

/// Returns all pairs, those without a gap first and in the order of `coarse`.
fn pairs(coarse: &ModeTable) -> Vec<Pair> {
    let mut pairs: Vec<Pair> =
        coarse.modes().map(|mode| Pair { key: Some(mode), gap: 0 }).collect();
    for gap in 1..=3 {
        pairs.push(Pair { key: None, gap });
        pairs.extend(coarse.modes().map(|mode| Pair { key: Some(mode), gap }));
    }
    pairs
}

/// Returns a function from a mode on a key to the mode on its tree that covers it on every key.
fn covering(table: &ModeTable) -> impl Fn(Mode) -> Mode + Send + Sync + use<> {
    let coarse = ModeTable::multi_granularity();
    let pairs = pairs(&coarse);
    debug_assert_eq!(table.len(), pairs.len(), "the table has a mode for every pair");
    // In the order of the table's modes.
    let on_tree: Vec<Mode> = pairs.into_iter().map(on_all).collect();
    move |mode| on_tree[mode.row()]
}

fn on_all(pair: Pair) -> Mode {
    match (pair.key, pair.gap) {
        (_, 2..) | (Some(X | SIX | IX), _) => X,
        (Some(U), _) => U,
        _ => S,
    }
}

/// Returns the table that the engine locks by, and its range modes.
fn mode_table() -> Result<(ModeTable, RangeModes), ModeTableError> {
    let coarse = ModeTable::multi_granularity();
    let pairs = pairs(&coarse);
    let names: Vec<String> = pairs.iter().map(|pair| pair.name(&coarse)).collect();
    let grid = |cell: &dyn Fn(Pair, Pair) -> String| {
        let mut text = names.join(" ") + "\n";
        for (name, &row) in names.iter().zip(&pairs) {
            let cells: Vec<String> = pairs.iter().map(|&column| cell(row, column)).collect();
            text += name;
            text += " ";
            text += &cells.join(" ");
            text += "\n";
        }
        text
    };
    let compatibility = grid(&|requested, held| {
        let sign = if Pair::is_compatible(requested, held, &coarse) { "+" } else { "-" };
        sign.to_owned()
    });
    let conversion = grid(&|requested, held| requested.over(held, &coarse).name(&coarse));
    let table = ModeTable::parse(&compatibility, &conversion)?;
    let mode = |name| table.mode(name).expect("the table has a mode for every pair");
    debug_assert_eq!(table.len(), pairs.len());
    let modes = RangeModes {
        both_s: mode("RSS"),
        key_u: mode("RSU"),
        gap_s: mode("RS"),
        gap_i: mode("RI"),
        gap_si: mode("RB"),
        insert: mode("RIX"),
        strongest: mode("RBX"),
    };
    Ok((table, modes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_obeys_its_laws_and_says_what_the_module_says() {
        let (table, RangeModes { both_s: rs, gap_i: ri, .. }) = mode_table().unwrap();
        assert_eq!(table.len(), 27);
        let mode = |name| table.mode(name).unwrap();
        let (s, x) = (mode("S"), mode("X"));
        for (requested, held, expected) in [
            (ri, ri, true),
            (ri, rs, false),
            (rs, ri, false),
            (rs, rs, true),
            (rs, s, true),
            (rs, x, false),
            (ri, x, true),
            (x, ri, true),
            (x, s, false),
        ] {
            let names = (table.name(requested), table.name(held));
            assert_eq!(table.is_compatible(requested, held), expected, "{names:?}");
        }
        assert_eq!(table.name(table.convert(rs, ri)), "RBS");
        assert_eq!(table.name(table.convert(x, ri)), "RIX");
        assert_eq!(table.convert(s, rs), rs);
    }

    #[test]
    fn a_lock_on_the_tree_that_stands_for_one_on_a_key_keeps_out_no_less() {
        let (table, RangeModes { both_s: rs, gap_i: ri, .. }) = mode_table().unwrap();
        let covering = covering(&table);
        let mode = |name| table.mode(name).unwrap();
        for (on_key, on_tree) in
            [("S", "S"), ("U", "U"), ("X", "X"), ("RSS", "S"), ("RI", "X"), ("RBS", "X")]
        {
            assert_eq!(table.name(covering(mode(on_key))), on_tree, "{on_key}");
        }
        assert!(table.covers(covering(ri), covering(rs)));
    }
}
