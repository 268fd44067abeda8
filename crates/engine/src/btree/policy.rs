//! Where a full node is split, and when nodes are merged.
//!
//! # Splits
//! Take the entries of a full node together with the new one, in order. A policy says how many of
//! them go left.
//!
//! * [`SplitPolicy::Half`]: as many as make both sides equally long in bytes. Ascending inserts
//!   leave every node half full behind.
//! * [`SplitPolicy::MaxKey`]: if the new key is above all keys of the tree, and so was the one
//!   before it, 15/16 go left; else half. `MySQL` 5.0's rule (structural-deterioration study,
//!   section 3.1). It sees a sequence at the end of the tree only.
//! * [`SplitPolicy::Adaptive`]: the study's proposal (section 4). Every node remembers the slot of
//!   its last insert, and here also how many inserts before were neighbours. If the new key is next
//!   to the last one and there was at least one such pair before it, a sequence is going on, at
//!   this place, wherever that is. Ascending: the new entry and all below go left; if there are
//!   none above it, the left node keeps as much as the fill says, up to all. Descending: mirrored.
//!   Entries above an ascending sequence go to the leaf to the right instead, if they fit there,
//!   and nothing is split (`redistribute.rs`). And a node that a sequence has filled stays full
//!   when another begins at its edge: a key below or above all of its own begins a node.
//!
//! # Example
//! A full leaf has the keys 10, 11, 12, 13, 90, 91; 12 and 13 were inserted last, and now comes
//! 14. Half leaves 10 to 12 on the left and splits the sequence's room. Adaptive puts 90 and 91
//! right: 14 fits left, and so do the keys that follow. When the leaf is full of 10 to 15 and 16
//! comes, nothing is above it: the left leaf stays full and 16 begins a new one.
//!
//! # The separator
//! Between the greatest left key and the lowest right one there are many keys that could separate
//! them. The shortest are taken, and of these the lowest, or in a descending sequence the highest.
//! So keys that come later, between the two, go to the node that has room. `MySQL` splits such that
//! they go to the full one, and every one of them gets a page of its own (bug #67718).
//!
//! # Where this leaves the study
//! It takes one pair of neighbours for a sequence. Among random inserts into a node of 38 entries
//! every 20th makes such a pair, and each would cost a lopsided split; two pairs in a row are one
//! in 400. It does not look at the edges either: blocks of ascending keys, each below the one
//! before, would then split the first node of every block in the middle.

use crate::page::common;

/// Where full nodes are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitPolicy {
    /// In the middle, counted in bytes.
    Half,
    /// 15/16 to the left in an ascending sequence at the end of the tree, else in the middle.
    MaxKey,
    /// Where a sequence is, anywhere in the tree, else in the middle.
    Adaptive {
        /// How full a node is left behind, in percent, from 50 to 100.
        fill_percent: u8,
    },
}

impl Default for SplitPolicy {
    fn default() -> Self {
        SplitPolicy::Adaptive { fill_percent: 100 }
    }
}

/// When nodes that have lost entries are merged with a neighbour under the same parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MergePolicy {
    /// When they are empty (Johnson and Shasha, "B-trees with inserts and deletes: why
    /// free-at-empty is better than merge-at-half", JCSS 1993).
    #[default]
    FreeAtEmpty,
    /// When they are less than half full and fit into one with the neighbour.
    MergeAtHalf,
}

impl SplitPolicy {
    pub(crate) fn to_bits(self) -> u32 {
        match self {
            SplitPolicy::Half => 0,
            SplitPolicy::MaxKey => 1,
            SplitPolicy::Adaptive { fill_percent } => {
                2 | (u32::from(fill_percent.clamp(50, 100)) << 8)
            }
        }
    }

    /// Returns the policy that [`SplitPolicy::to_bits`] gave the bits of, if it gave them.
    pub(crate) fn from_bits(bits: u32) -> Option<SplitPolicy> {
        match bits.to_le_bytes() {
            [0, 0, 0, 0] => Some(SplitPolicy::Half),
            [1, 0, 0, 0] => Some(SplitPolicy::MaxKey),
            [2, fill_percent @ 50..=100, 0, 0] => Some(SplitPolicy::Adaptive { fill_percent }),
            _ => None,
        }
    }
}

impl MergePolicy {
    pub(crate) fn to_bits(self) -> u8 {
        u8::from(self == MergePolicy::MergeAtHalf)
    }

    /// Returns the rule that [`MergePolicy::to_bits`] gave the bits of, if it gave them.
    pub(crate) fn from_bits(bits: u8) -> Option<MergePolicy> {
        match bits {
            0 => Some(MergePolicy::FreeAtEmpty),
            1 => Some(MergePolicy::MergeAtHalf),
            _ => None,
        }
    }
}

/// What a policy is told of a full node.
#[derive(Clone, Debug)]
pub(super) struct FullNode {
    /// Bytes of the entries in order, the new one among them.
    pub(super) sizes: Vec<usize>,
    /// Where the new one is among them; `None` when no entry is new, as in an inner node.
    pub(super) new: Option<usize>,
    /// Bytes for entries that both sides have in any case.
    pub(super) room: usize,
    /// The slot of the last insert before, and how many inserts up to it were neighbours.
    pub(super) last: Option<usize>,
    pub(super) run: i16,
    /// There is no node to the right.
    pub(super) is_last: bool,
}

/// Which way the inserts of a node go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trend {
    Ascending,
    Descending,
    None,
}

/// How a node is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// How many of [`FullNode::sizes`] go left.
    pub(super) left: usize,
    /// The separator is to be high.
    pub(super) trend: Trend,
}

/// `MySQL` 5.0's share of a node that stays left in a sequence: 15/16.
const MAX_KEY_FILL: (usize, usize) = (15, 16);

impl FullNode {
    /// Returns where `policy` splits the node: at least one entry goes to each side, and both fit.
    pub(super) fn cut(&self, policy: SplitPolicy) -> Cut {
        let trend = self.trend(policy);
        let wanted = match (policy, trend, self.new) {
            (SplitPolicy::MaxKey, Trend::Ascending, _) => {
                self.filled(self.room * MAX_KEY_FILL.0 / MAX_KEY_FILL.1)
            }
            (SplitPolicy::Adaptive { fill_percent }, Trend::Ascending, Some(new)) => {
                let fill = self.filled(self.room * usize::from(fill_percent) / 100);
                if new + 1 == self.sizes.len() { fill } else { new + 1 }
            }
            (SplitPolicy::Adaptive { fill_percent }, Trend::Descending, Some(new)) => {
                let total = self.sizes.len();
                let fill = total - self.filled_back(self.room * usize::from(fill_percent) / 100);
                if new == 0 { fill } else { new }
            }
            (SplitPolicy::Adaptive { .. }, Trend::None, Some(new)) if self.is_new_sequence(new) => {
                // What follows the new key goes to the node that has room.
                let trend = if new == 0 { Trend::Descending } else { Trend::Ascending };
                return Cut { left: new.max(1), trend };
            }
            _ => self.middle(),
        };
        debug_assert!(self.new.is_none_or(|new| new < self.sizes.len()), "the new one is counted");
        let is_good = wanted > 0 && wanted < self.sizes.len() && self.fits(wanted);
        if is_good { Cut { left: wanted, trend } } else { Cut { left: self.middle(), trend } }
    }

    /// Returns whether there are entries above an ascending sequence that `policy` sees.
    pub(super) fn has_others_above(&self, policy: SplitPolicy) -> bool {
        let is_adaptive = matches!(policy, SplitPolicy::Adaptive { .. });
        let is_below_others = self.new.is_some_and(|new| new + 1 < self.sizes.len());
        is_adaptive && is_below_others && self.trend(policy) == Trend::Ascending
    }

    fn trend(&self, policy: SplitPolicy) -> Trend {
        let (Some(new), Some(last)) = (self.new, self.last) else {
            return Trend::None;
        };
        let is_max = self.is_last && new + 1 == self.sizes.len();
        match policy {
            SplitPolicy::MaxKey if is_max && last + 1 == new => Trend::Ascending,
            SplitPolicy::Adaptive { .. } if new == last + 1 && self.run > 0 => Trend::Ascending,
            SplitPolicy::Adaptive { .. } if new == last && self.run < 0 => Trend::Descending,
            _ => Trend::None,
        }
    }

    /// Returns whether a sequence has filled most of the node, and the new entry is at its edge.
    fn is_new_sequence(&self, new: usize) -> bool {
        let is_at_edge = new == 0 || new + 1 == self.sizes.len();
        is_at_edge && usize::from(self.run.unsigned_abs()) * 2 >= self.sizes.len()
    }

    /// Returns how many entries from the left fit into so many bytes.
    fn filled(&self, bytes: usize) -> usize {
        count_within(self.sizes.iter(), bytes)
    }

    /// Returns how many entries from the right fit into so many bytes.
    fn filled_back(&self, bytes: usize) -> usize {
        count_within(self.sizes.iter().rev(), bytes)
    }

    fn fits(&self, left: usize) -> bool {
        let (left, right) = self.sizes.split_at(left);
        left.iter().sum::<usize>() <= self.room && right.iter().sum::<usize>() <= self.room
    }

    /// Returns the cut that makes both sides most alike.
    fn middle(&self) -> usize {
        debug_assert!(self.sizes.len() > 1, "one entry cannot be divided");
        let total: usize = self.sizes.iter().sum();
        let mut left = 0;
        let mut best = (usize::MAX, 1);
        for (at, size) in self.sizes.iter().enumerate().take(self.sizes.len() - 1) {
            left += size;
            let difference = left.abs_diff(total - left);
            best = best.min((difference, at + 1));
        }
        debug_assert!(best.1 > 0 && best.1 < self.sizes.len(), "each side gets an entry");
        best.1
    }
}

fn count_within<'a>(sizes: impl Iterator<Item = &'a usize>, bytes: usize) -> usize {
    let mut sum = 0;
    sizes
        .take_while(|size| {
            sum += **size;
            sum <= bytes
        })
        .count()
}

/// Returns a short key above `left` and not above `right`, for `left` below `right`: of the
/// shortest that differ from `left` at once the lowest, or the highest in a descending sequence.
pub(super) fn separator(left: &[u8], right: &[u8], trend: Trend) -> Vec<u8> {
    debug_assert!(left < right, "the keys of a node ascend");
    let common = common(left, right);
    // `right` is longer than what it shares with a key below it.
    let mut separator = right[..=common].to_vec();
    if trend != Trend::Descending
        && let Some(&low) = left.get(common)
    {
        // `low` is below right's byte here, so this does not overflow.
        separator[common] = low + 1;
    }
    debug_assert!(left < &separator[..] && &separator[..] <= right, "it separates the two");
    separator
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(count: usize, new: usize, last: Option<usize>, run: i16) -> FullNode {
        FullNode { sizes: vec![10; count], new: Some(new), room: 100, last, run, is_last: false }
    }

    const ADAPTIVE: SplitPolicy = SplitPolicy::Adaptive { fill_percent: 100 };

    #[test]
    fn each_policy_by_example() {
        let last = |node: FullNode| FullNode { is_last: true, ..node };
        let fill = |fill_percent| SplitPolicy::Adaptive { fill_percent };
        // Eleven entries of 10 bytes, of which ten fit.
        let table = [
            ("half", SplitPolicy::Half, node(11, 10, Some(9), 9), 5),
            ("the end of the tree", SplitPolicy::MaxKey, last(node(11, 10, Some(9), 9)), 9),
            ("the end of a node", SplitPolicy::MaxKey, node(11, 10, Some(9), 9), 5),
            ("not after the last", SplitPolicy::MaxKey, last(node(11, 10, Some(3), 0)), 5),
            ("ascending, nothing above", ADAPTIVE, node(11, 10, Some(9), 9), 10),
            ("ascending, 80 percent", fill(80), node(11, 10, Some(9), 9), 8),
            ("ascending, two above", ADAPTIVE, node(11, 8, Some(7), 1), 9),
            ("descending, nothing below", ADAPTIVE, node(11, 0, Some(0), -9), 1),
            ("descending, two below", ADAPTIVE, node(11, 2, Some(2), -1), 2),
            ("one pair is no sequence", ADAPTIVE, node(11, 8, Some(7), 0), 5),
            ("random", ADAPTIVE, node(11, 8, Some(2), 0), 5),
            ("below a sequence", ADAPTIVE, node(11, 0, Some(9), 9), 1),
            ("above a sequence", ADAPTIVE, node(11, 10, Some(3), -9), 10),
            ("below no sequence", ADAPTIVE, node(11, 0, Some(9), 2), 5),
        ];
        for (name, policy, node, left) in table {
            assert_eq!(node.cut(policy).left, left, "{name}");
        }
    }

    #[test]
    fn a_cut_that_does_not_fit_is_made_in_the_middle() {
        // The new entry is longer than what it would be left with.
        let mut node = node(11, 9, Some(8), 1);
        node.sizes[9] = 40;
        // Left alone: 9 of 10 and one of 40 are 130.
        assert_eq!(node.cut(ADAPTIVE).left, 7);
        assert!(node.fits(7));
    }

    #[test]
    fn settings_survive_their_bits() {
        for policy in [SplitPolicy::Half, SplitPolicy::MaxKey, ADAPTIVE] {
            assert_eq!(SplitPolicy::from_bits(policy.to_bits()), Some(policy));
        }
        for merge_policy in [MergePolicy::FreeAtEmpty, MergePolicy::MergeAtHalf] {
            assert_eq!(MergePolicy::from_bits(merge_policy.to_bits()), Some(merge_policy));
        }
        for bits in [3, 0x100, 2, 49 << 8 | 2, 101 << 8 | 2, 1 << 31] {
            assert_eq!(SplitPolicy::from_bits(bits), None, "{bits:#x}");
        }
        assert_eq!(MergePolicy::from_bits(2), None);
    }

    #[test]
    fn separators_are_short_and_lean_to_the_full_side() {
        for (left, right, trend, expected) in [
            (b"apple".as_slice(), b"banana".as_slice(), Trend::None, b"b".as_slice()),
            (b"a", b"z", Trend::Ascending, b"b"),
            (b"a", b"z", Trend::Descending, b"z"),
            (b"ab", b"abc", Trend::None, b"abc"),
            (b"ab", b"ab\0", Trend::None, b"ab\0"),
            (b"", b"q", Trend::None, b"q"),
            (b"ab1", b"ab7x", Trend::None, b"ab2"),
            (b"ab1", b"ab7x", Trend::Descending, b"ab7"),
        ] {
            let separator = separator(left, right, trend);
            assert_eq!(separator, expected);
            assert!(left < &separator[..] && &separator[..] <= right);
        }
    }
}
