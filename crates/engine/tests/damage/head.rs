//! The head: versions, flipped bits, checkpoints that are old or damaged.

use tidegate_engine::{FORMAT_VERSION, HeadError, StoreError, TxnError};

use super::targets::random::Random;
use super::targets::sample::{Ending, PAGE, checkpoint};
use super::{ENDINGS, Outcome, bytes, outcome, put, replace, sample, seal};

const HEAD: &str = "head";

/// Bytes of a block that count; the rest is not used.
const USED: usize = 64;

#[test]
fn a_newer_version_is_named() {
    let sample = sample(Ending::Closed);
    for version in [FORMAT_VERSION + 1, FORMAT_VERSION + 1_000, u32::MAX] {
        let disk = sample.copy();
        let mut block = bytes(&disk, HEAD)[..USED].to_vec();
        block[4..8].copy_from_slice(&version.to_le_bytes());
        seal(&mut block);
        put(&disk, HEAD, 0, &block);
        let case = format!("version {version}");
        let outcome = outcome(sample, &disk, &case);
        outcome.assert_refused(&case, &[&case, &format!("up to {FORMAT_VERSION}")]);
        let Outcome::Refused(TxnError::Store(StoreError::Head(error))) = outcome else {
            panic!("{case}: {outcome:?}");
        };
        assert!(matches!(error, HeadError::NewerVersion { version: it } if it == version));
    }
}

/// Changes with a right checksum: what they say does not fit the other files.
#[test]
fn a_head_that_says_something_else_is_refused() {
    let sample = sample(Ending::Closed);
    let cases: [(&str, usize, &[u8], &str); 5] = [
        ("another kind of file", 8, b"something", "head"),
        ("another store", 16, &[1, 2, 3, 4], "belongs to log"),
        ("a size of pages that is none", 24, &[0, 17], "not 4352"),
        ("larger pages", 24, &[0, 32], "page "),
        ("the largest pages", 24, &[0, 0, 1], "page "),
    ];
    for (case, at, new, words) in cases {
        let disk = sample.copy();
        let mut block = bytes(&disk, HEAD)[..USED].to_vec();
        block[at..at + new.len()].copy_from_slice(new);
        seal(&mut block);
        put(&disk, HEAD, 0, &block);
        outcome(sample, &disk, case).assert_refused(case, &[words]);
    }
}

/// One bit of every byte that counts, and some of those that do not.
#[test]
fn a_flipped_bit_is_refused_or_the_other_checkpoint_will_do() {
    println!("seed 1");
    let random = &mut Random::new(1);
    for ending in ENDINGS {
        let sample = sample(ending);
        for block in 0..3 {
            let unused = (0..5).map(|_| USED + usize::try_from(random.below(4_000)).unwrap());
            let offsets: Vec<usize> = (0..USED).step_by(3).chain(unused).collect();
            for offset in offsets {
                let disk = sample.copy();
                let bit = u32::try_from(random.below(8)).unwrap();
                let case = format!("{ending:?} bit {bit} of byte {offset} of block {block}");
                disk.flip_bit(HEAD, (block * PAGE + offset) as u64, bit).unwrap();
                let outcome = outcome(sample, &disk, &case);
                match (block, offset < USED) {
                    (0, true) => outcome.assert_refused(&case, &[]),
                    (_, true) if !outcome.is_right() => outcome.assert_refused(&case, &["log"]),
                    _ => assert!(outcome.is_right(), "{case}: {outcome:?}"),
                }
            }
        }
    }
}

#[test]
fn without_any_checkpoint_there_is_no_store() {
    let sample = sample(Ending::Crashed);
    let disk = sample.copy();
    for block in [1, 2] {
        disk.corrupt(HEAD, (block * PAGE) as u64, USED).unwrap();
    }
    let case = "both checkpoints damaged";
    outcome(sample, &disk, case).assert_refused(case, &["block 1", "head"]);
}

/// A write of the head that was lost: the checkpoint before the last is the latest that is known.
#[test]
fn an_older_checkpoint_is_as_good_or_its_log_is_missed() {
    for ending in ENDINGS {
        let sample = sample(ending);
        let head = bytes(&sample.disk, HEAD);
        let latest = [PAGE, 2 * PAGE]
            .into_iter()
            .find(|block| checkpoint(&only(&head, *block)) == checkpoint(&head))
            .unwrap();
        let disk = sample.copy();
        disk.corrupt(HEAD, latest as u64, USED).unwrap();
        let found = outcome(sample, &disk, "the one before the last");
        assert!(found.is_right() || found.words().contains("log"), "{found:?}");
        // So old that what it needs is surely gone: the log has been cut off since.
        replace(&disk, HEAD, &sample.earlier[HEAD]);
        let case = format!("{ending:?} with an old head");
        let found = outcome(sample, &disk, &case);
        assert!(found.is_right() || found.words().contains("log"), "{case}: {found:?}");
    }
}

/// The head with only one of its checkpoints.
fn only(head: &[u8], block: usize) -> Vec<u8> {
    let mut head = head.to_vec();
    let other = 3 * PAGE - block;
    head[other..other + USED].fill(0);
    head
}
