//! How full the split policies leave the leaves.
//!
//! * **Orders**: appended at 160 places of one tree, 16 warehouses of 10 districts, each order to a
//!   random one. Key: warehouse, district, order.
//! * **Order lines**: the 5 to 15 lines of each of these orders, in another tree. Key: that of the
//!   order, line.
//! * **Random**: random keys.
//! * **Descending blocks**: blocks of ascending keys, each block below the one before.
//! * **Between full leaves**: ranges of ascending keys, then ascending keys in the gap behind each
//!   range, so that each sequence begins between a full leaf and its neighbour.
//!
//! The last two are forms of `MySQL` bug #67718: a sequence that grows toward a neighbour that is
//! there, for which `InnoDB` makes a page per row.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tidegate_control::SplitMix64;
use tidegate_engine::disk::{Disk, FileDisk, IoMode};
use tidegate_engine::wal::LogId;
use tidegate_engine::{
    Durability, LeafFill, SplitPolicy, Store, StoreOptions, TreeHandle, TxnOptions,
};

use crate::progress::Progress;
use crate::report::{Report, verdict};
use crate::statistics::{Summary, count};
use crate::{Plan, Result, Stop};

/// What comes into a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Orders,
    OrderLines,
    Random,
    DescendingBlocks,
    BetweenFullLeaves,
}

impl Pattern {
    const ALL: [Pattern; 5] = [
        Pattern::Orders,
        Pattern::OrderLines,
        Pattern::Random,
        Pattern::DescendingBlocks,
        Pattern::BetweenFullLeaves,
    ];

    fn name(self) -> &'static str {
        match self {
            Pattern::Orders => "orders",
            Pattern::OrderLines => "order lines",
            Pattern::Random => "random",
            Pattern::DescendingBlocks => "descending blocks",
            Pattern::BetweenFullLeaves => "between full leaves",
        }
    }

    /// Bytes of a value: for orders and their lines about what TPC-C's have.
    fn value_len(self) -> usize {
        match self {
            Pattern::Orders => 24,
            Pattern::OrderLines => 54,
            _ => 92,
        }
    }

    /// The share that a policy is to fill in the mean.
    fn target(self, policy: SplitPolicy) -> Option<Share> {
        let is_adaptive = matches!(policy, SplitPolicy::Adaptive { .. });
        match self {
            Pattern::Orders if is_adaptive => Some(Share::AtLeast(0.97)),
            Pattern::Orders => Some(Share::About(0.5)),
            Pattern::Random => Some(Share::AtLeast(0.66)),
            Pattern::DescendingBlocks | Pattern::BetweenFullLeaves if is_adaptive => {
                Some(Share::AtLeast(0.66))
            }
            _ => None,
        }
    }

    /// Hands the keys to `insert`, in the order in which they come. Gives how many keys each of
    /// the sequences has that would go on, in the order of keys.
    fn keys(
        self,
        scale: u64,
        seed: u64,
        insert: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Vec<usize>> {
        let done = match self {
            Pattern::Orders | Pattern::OrderLines => return orders(self, scale, seed, insert),
            Pattern::Random => {
                let mut chance = SplitMix64::new(seed);
                (0..scale).try_for_each(|_| insert(&chance.next_bits().to_be_bytes()))
            }
            Pattern::DescendingBlocks => {
                let blocks = (0..scale / BLOCK).rev();
                let mut keys = blocks.flat_map(|block| block * BLOCK..(block + 1) * BLOCK);
                keys.try_for_each(|key| insert(&key.to_be_bytes()))
            }
            Pattern::BetweenFullLeaves => {
                let ranges = scale / (2 * BLOCK);
                let first = (0..ranges).flat_map(|range| spread(range, 0));
                let second = (0..ranges).flat_map(|range| spread(range, BLOCK));
                first.chain(second).try_for_each(|key| insert(&key.to_be_bytes()))
            }
        };
        done.map(|()| Vec::new())
    }
}

/// Keys of a block or a range.
const BLOCK: u64 = 500;

/// A block of ascending keys in the room of a range, from a place in it on.
fn spread(range: u64, from: u64) -> impl Iterator<Item = u64> {
    let begin = range * BLOCK * 4 + from;
    begin..begin + BLOCK
}

/// So many orders, each to a random one of the 160 places; how many rows each place has.
fn orders(
    pattern: Pattern,
    count: u64,
    seed: u64,
    insert: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Vec<usize>> {
    let mut chance = SplitMix64::new(seed);
    let mut next = [0_u32; 160];
    let mut inserted = vec![0; 160];
    for _ in 0..count {
        let place = chance.next_bits() % 160;
        let lines = chance.next_bits() % 11 + 5;
        let (warehouse, district) = (u16::try_from(place / 10)?, u8::try_from(place % 10)?);
        let place = usize::try_from(place)?;
        let order = &mut next[place];
        *order += 1;
        let mut key = Vec::with_capacity(8);
        key.extend_from_slice(&warehouse.to_be_bytes());
        key.push(district);
        key.extend_from_slice(&order.to_be_bytes());
        if pattern == Pattern::Orders {
            insert(&key)?;
            inserted[place] += 1;
            continue;
        }
        for line in 1..=u8::try_from(lines)? {
            insert(&[&key[..], &[line]].concat())?;
            inserted[place] += 1;
        }
    }
    Ok(inserted)
}

/// What a mean fill is to be.
#[derive(Clone, Copy, Debug)]
enum Share {
    AtLeast(f64),
    /// Within five hundredths.
    About(f64),
}

impl Share {
    fn write(self, fill: f64) -> String {
        let (text, is_met) = match self {
            Share::AtLeast(share) => (format!("≥ {:.0} %", share * 100.0), fill >= share),
            Share::About(share) => {
                (format!("about {:.0} %", share * 100.0), (fill - share).abs() <= 0.05)
            }
        };
        format!("{text}: {}", verdict(is_met))
    }
}

/// Every pattern under every policy, measured and written down.
pub(crate) fn measure(
    plan: &Plan,
    directory: &Path,
    stop: &Stop,
    report: &mut Report,
) -> Result<()> {
    let policies = [
        ("half", SplitPolicy::Half),
        ("max-key", SplitPolicy::MaxKey),
        ("adaptive", SplitPolicy::Adaptive { fill_percent: 100 }),
    ];
    let directory = directory.join("fills");
    fs::create_dir(&directory)?;
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::create(&directory, IoMode::Buffered)?);
    let store = Store::create(&disk, LogId(1), &StoreOptions::default())?;
    let mut progress = Progress::new(Pattern::ALL.len() * policies.len(), stop);
    let mut lines = Vec::new();
    for pattern in Pattern::ALL {
        for (name, policy) in policies {
            progress.step(&format!("fills: {}, {name}", pattern.name()))?;
            let tree = store.create_tree(&format!("{} {name}", pattern.name()))?;
            tree.set_split_policy(policy)?;
            let sequences = fill(&store, &tree, pattern, plan, stop)?;
            lines.push(line(&tree, pattern, (name, policy), &sequences)?);
        }
    }
    store.close()?;
    fs::remove_dir_all(&directory)?;
    report.heading("Fill factors");
    write_conditions(scale(plan), report);
    report.table(
        &[
            "pattern",
            "policy",
            "mean",
            "mean of done leaves",
            "median",
            "lowest",
            "leaves",
            "entries",
            "target",
        ],
        &lines,
    );
    Ok(())
}

/// What has to be known to read the table.
fn write_conditions(scale: u64, report: &mut Report) {
    let scale = count(scale as f64);
    report.paragraph(&format!(
        "Share of a leaf's room that its entries take, by `TreeHandle::fills`; in the mean each \
         leaf counts the same. Pages of 8 KiB. {scale} orders at 160 places of one tree (16 \
         warehouses of 10 districts; key: warehouse, district, order), each to a random place, \
         and in another tree the 5 to 15 lines of each; {scale} random keys; blocks of {BLOCK} \
         ascending keys, each block below the one before; ranges of {BLOCK} ascending keys and \
         then {BLOCK} ascending keys in the gap behind each range."
    ));
    report.paragraph(
        "The last leaf of each of the 160 places is still being filled, whatever the policy. The \
         mean of done leaves leaves these out, and it is what the targets are held against. The \
         last two patterns are forms of MySQL bug #67718, where a sequence grows toward a \
         neighbour that is there; they have a target for `adaptive` only, because `half` leaves \
         sequences half full by what it is.",
    );
}

fn scale(plan: &Plan) -> u64 {
    if plan.is_quick { 10_000 } else { 100_000 }
}

/// Inserts all keys of a pattern, a thousand to a transaction; see [`Pattern::keys`].
fn fill(
    store: &Store,
    tree: &TreeHandle,
    pattern: Pattern,
    plan: &Plan,
    stop: &Stop,
) -> Result<Vec<usize>> {
    let options = TxnOptions::default().durability(Durability::Lazy);
    let value = vec![0x55; pattern.value_len()];
    let (mut transaction, mut inserted) = (store.begin(options), 0_u32);
    let sequences = pattern.keys(scale(plan), plan.seed, &mut |key| {
        transaction.put(tree, key, &value)?;
        inserted += 1;
        if inserted.is_multiple_of(1_000) {
            stop.check()?;
            std::mem::replace(&mut transaction, store.begin(options)).commit()?;
        }
        Ok(())
    })?;
    transaction.commit()?;
    Ok(sequences)
}

fn line(
    tree: &TreeHandle,
    pattern: Pattern,
    (name, policy): (&str, SplitPolicy),
    sequences: &[usize],
) -> Result<Vec<String>> {
    let leaves = tree.fills()?;
    let fills: Vec<f64> = leaves.iter().map(|leaf| leaf.fill).collect();
    let entries: usize = leaves.iter().map(|leaf| leaf.entries).sum();
    let summary = Summary::of(&fills).ok_or("the tree has no leaf")?;
    let done = without_open(&leaves, sequences);
    let judged = mean(&done);
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    Ok(vec![
        pattern.name().into(),
        name.into(),
        percent(mean(&fills)),
        if sequences.is_empty() { "–".into() } else { percent(judged) },
        percent(summary.median),
        percent(summary.low),
        count(leaves.len() as f64),
        count(entries as f64),
        pattern.target(policy).map_or("–".into(), |share| share.write(judged)),
    ])
}

fn mean(fills: &[f64]) -> f64 {
    fills.iter().sum::<f64>() / fills.len().max(1) as f64
}

/// The fills of the leaves in which no sequence would go on: of each of these there is one that
/// has just begun or is half full, whatever the policy.
fn without_open(leaves: &[LeafFill], sequences: &[usize]) -> Vec<f64> {
    let mut last_of_sequences = sequences.iter().scan(0, |end, len| {
        *end += len;
        Some(*end)
    });
    let (mut end, mut last) = (0, last_of_sequences.next());
    let mut done = Vec::new();
    for leaf in leaves {
        end += leaf.entries;
        // The key before `last` is the last of its sequence, and in this leaf.
        let is_open = last.is_some_and(|last| last <= end);
        while last.is_some_and(|last| last <= end) {
            last = last_of_sequences.next();
        }
        if !is_open {
            done.push(leaf.fill);
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use tidegate_engine::PageId;

    use super::*;

    #[test]
    fn a_leaf_with_the_end_of_a_sequence_is_left_out() {
        let leaf = |entries, fill| LeafFill { page: PageId(1), entries, fill };
        let leaves = [leaf(4, 1.0), leaf(2, 0.5), leaf(3, 0.7), leaf(4, 0.9), leaf(1, 0.2)];
        // The first sequence has the first two leaves, the second one three.
        assert_eq!(without_open(&leaves, &[6, 8]), [1.0, 0.7, 0.9]);
        // A leaf may hold the ends of two.
        assert_eq!(without_open(&leaves, &[5, 1, 8]), [1.0, 0.7, 0.9]);
        assert_eq!(without_open(&leaves, &[]).len(), leaves.len());
    }
}
