//! Whole files: missing, empty, cut off, or another store's.

use tidegate_engine::disk::Disk;
use tidegate_engine::wal::LogError;
use tidegate_engine::{StoreError, TxnError};

use super::pages::{copies, in_use};
use super::targets::random::Random;
use super::targets::recovery::place;
use super::targets::sample::{Ending, PAGE, Sample, build, checkpoint};
use super::{ENDINGS, Outcome, PAGES, bytes, outcome, replace, sample};

const DOUBLEWRITE: &str = "doublewrite.pages";

/// Names of the files that the store needs, without those that wait to become segments.
fn names(sample: &Sample) -> Vec<String> {
    let mut names = sample.disk.list().unwrap();
    names.retain(|name| !name.starts_with("spare-"));
    names
}

/// The first segment that is needed, by its name, and the last.
fn segments(sample: &Sample) -> (String, String) {
    let (record, needed) = checkpoint(&bytes(&sample.disk, "head"));
    let last = names(sample).into_iter().rfind(|name| name.starts_with("log-")).unwrap();
    (place(record.min(needed)).0, last)
}

#[test]
fn a_missing_file_is_named() {
    for ending in ENDINGS {
        let sample = sample(ending);
        let (first, last) = segments(sample);
        for name in names(sample) {
            let disk = sample.copy();
            disk.remove(&name).unwrap();
            let case = format!("{ending:?} without {name}");
            let outcome = outcome(sample, &disk, &case);
            if name < first && name.starts_with("log-") {
                assert!(outcome.is_right(), "{case}: {outcome:?}");
            } else if name == last && first != last {
                assert_is_lost_end(sample, &outcome, &case);
            } else if name.starts_with("log-") {
                outcome.assert_refused(&case, &["log-", "missing"]);
            } else {
                outcome.assert_refused(&case, &[&name]);
            }
        }
    }
}

/// The log has lost its end: that is noticed, or all is as it was once.
fn assert_is_lost_end(sample: &Sample, outcome: &Outcome, case: &str) {
    match outcome {
        Outcome::Right(_) => {}
        Outcome::Earlier(state) => assert!(*state >= sample.floor, "{case}: {state}"),
        Outcome::Refused(_) => assert_says_where(outcome, case),
    }
}

/// An error names a file, a page or a record.
fn assert_says_where(outcome: &Outcome, case: &str) {
    let words = outcome.words();
    let places = ["head", PAGES, DOUBLEWRITE, "log-", "page ", "record"];
    assert!(places.iter().any(|place| words.contains(place)), "{case}: {words:?} names no place");
}

#[test]
fn a_file_that_is_empty_or_cut_off_is_named_or_not_needed() {
    println!("seed 1");
    let random = &mut Random::new(1);
    for ending in ENDINGS {
        let sample = sample(ending);
        for name in names(sample) {
            let len = bytes(&sample.disk, &name).len() as u64;
            let mut places = vec![0, 1, 511, 512, 4_095, 4_096, 8_192, len.saturating_sub(1)];
            places.extend((0..6).map(|_| random.below(len.max(1))));
            for at in places.into_iter().filter(|at| *at < len) {
                let disk = sample.copy();
                disk.truncate(&name, at).unwrap();
                let case = format!("{ending:?} {name} cut off at {at} of {len}");
                judge_cut(sample, ending, (&name, at), &outcome(sample, &disk, &case), &case);
            }
        }
    }
}

fn judge_cut(
    sample: &Sample,
    ending: Ending,
    (name, at): (&str, u64),
    outcome: &Outcome,
    case: &str,
) {
    let (first, last) = segments(sample);
    match name {
        "head" => outcome.assert_refused(case, &["head", &at.to_string()]),
        DOUBLEWRITE => assert!(outcome.is_right(), "{case}: {outcome:?}"),
        PAGES if outcome.is_right() => {
            // Recovery may make a page anew; else what was cut off was not in use or has a copy.
            assert!(ending == Ending::Crashed || !loses_a_page(sample, at), "{case}: unnoticed");
        }
        PAGES => outcome.assert_refused(case, &["page "]),
        _ if name < first.as_str() => assert!(outcome.is_right(), "{case}: {outcome:?}"),
        _ if name < last.as_str() => {
            // What is cut off may be no more than what a turn left unused.
            let is_needed = sample.records.iter().any(|record| {
                let (file, offset) = place(record.lsn);
                file == name && offset + record.len > at
            });
            if is_needed || !outcome.is_right() {
                outcome.assert_refused(case, &[name]);
            }
        }
        _ => {
            let (record, _) = checkpoint(&bytes(&sample.disk, "head"));
            let is_before = (name.to_owned(), at) <= place(record);
            assert!(!is_before || matches!(outcome, Outcome::Refused(_)), "{case}: {outcome:?}");
            assert_is_lost_end(sample, outcome, case);
        }
    }
}

/// Whether a file of pages that is cut off there lacks one that is in use and has no copy.
fn loses_a_page(sample: &Sample, at: u64) -> bool {
    let copies = copies(sample);
    let in_use = in_use(&bytes(&sample.disk, PAGES));
    in_use.into_iter().any(|page| (page + 1) * PAGE as u64 > at && !copies.contains(&page))
}

/// The file of pages is not among them: pages do not say whose they are, see below.
#[test]
fn a_file_of_another_store_is_refused() {
    for ending in ENDINGS {
        let (sample, other) = (sample(ending), build(99, ending));
        let (first, _) = segments(sample);
        for name in names(sample).into_iter().filter(|name| name != PAGES) {
            let Some(foreign) = other.disk.image().remove(&name) else { continue };
            let disk = sample.copy();
            replace(&disk, &name, &foreign);
            let case = format!("{ending:?} with another store's {name}");
            let outcome = outcome(sample, &disk, &case);
            let is_old = name.starts_with("log-") && name < first;
            match name.as_str() {
                DOUBLEWRITE => assert!(outcome.is_right(), "{case}: {outcome:?}"),
                _ if is_old => assert!(outcome.is_right(), "{case}: {outcome:?}"),
                _ => {
                    outcome.assert_refused(&case, &["log-", "of two stores"]);
                    let Outcome::Refused(TxnError::Store(StoreError::Log(error))) = outcome else {
                        panic!("{case}: {outcome:?}");
                    };
                    assert!(matches!(error, LogError::OtherLog { .. }), "{case}: {error}");
                }
            }
        }
    }
}

/// The checksums of pages begin with the store's number.
#[test]
fn pages_of_another_store_are_refused() {
    for ending in ENDINGS {
        let (sample, other) = (sample(ending), build(99, ending));
        let disk = sample.copy();
        replace(&disk, PAGES, &other.disk.image()[PAGES]);
        let case = format!("{ending:?} with another store's pages");
        outcome(sample, &disk, &case).assert_refused(&case, &[PAGES, "page "]);
    }
}
