//! The log under a store: flipped bits, segments of another version, age or place.

use tidegate_engine::disk::Disk;
use tidegate_engine::wal::{FORMAT_VERSION, Lsn, SEGMENT_HEADER};

use super::targets::random::Random;
use super::targets::recovery::place;
use super::targets::sample::{Ending, Record, SEGMENT, Sample, checkpoint};
use super::{ENDINGS, Outcome, bytes, outcome, put, replace, sample};

/// The names of the segments, and where each begins.
fn segments(sample: &Sample) -> Vec<(String, u64)> {
    let mut names = sample.disk.list().unwrap();
    names.retain(|name| name.starts_with("log-"));
    let begin = |name: &str| u64::from_str_radix(&name[4..20], 16).unwrap();
    names.into_iter().map(|name| (name.clone(), begin(&name))).collect()
}

/// What is known of a byte of the log before it is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In a segment that is not read, or before the records that are.
    Before,
    /// In the header of a segment that is read.
    Header,
    /// In a record that was durable before the last commit began to be.
    VouchedFor,
    /// Between two records, where there may be a mark, or in the last write.
    Other,
}

/// The records that are read, and what vouches for them.
struct Layout {
    needed: Lsn,
    /// Records before this are vouched for by a later write.
    vouched: u64,
    records: Vec<(u64, u64)>,
}

impl Layout {
    fn new(sample: &Sample, ending: Ending) -> Layout {
        let (record, needed) = checkpoint(&bytes(&sample.disk, "head"));
        let mut commits = sample.records.iter().rev().filter(|record| record.is_commit);
        let vouched = match ending {
            Ending::Closed => u64::MAX,
            Ending::Crashed => commits.nth(1).unwrap().lsn.0 + 1,
        };
        let records = sample.records.iter().map(|r| (r.lsn.0, r.lsn.0 + r.len)).collect();
        Layout { needed: needed.min(record), vouched, records }
    }

    fn place(&self, position: u64) -> Place {
        let segment = position - position % SEGMENT;
        let is_record =
            |&(begin, end): &(u64, u64)| (begin..end).contains(&position) && begin < self.vouched;
        if segment + SEGMENT <= self.needed.0 {
            Place::Before
        } else if position - segment < SEGMENT_HEADER as u64 {
            Place::Header
        } else if position < self.needed.0 {
            Place::Before
        } else if self.records.iter().any(is_record) {
            Place::VouchedFor
        } else {
            Place::Other
        }
    }
}

#[test]
fn a_flipped_bit_is_noticed_wherever_something_vouches() {
    println!("seed 1");
    let random = &mut Random::new(1);
    for ending in ENDINGS {
        let sample = sample(ending);
        let (layout, segments) = (Layout::new(sample, ending), segments(sample));
        let mut refused = 0;
        // Half of them in records that are read, which after a clean end are few.
        for case in 0..160 {
            let position = if case % 2 == 0 {
                let (begin, end) = *random.pick(&layout.records);
                begin + random.below(end - begin)
            } else {
                let (name, begin) = random.pick(&segments);
                begin + random.below(bytes(&sample.disk, name).len() as u64)
            };
            let (name, offset) = place(Lsn(position));
            let bit = u32::try_from(random.below(8)).unwrap();
            let kind = layout.place(position);
            let case = format!("{ending:?} bit {bit} of byte {offset} of {name}, {kind:?}");
            let disk = sample.copy();
            disk.flip_bit(&name, offset, bit).unwrap();
            let outcome = outcome(sample, &disk, &case);
            match (kind, &outcome) {
                (Place::Header | Place::VouchedFor, _) => {
                    outcome.assert_refused(&case, &[&name, "is damaged at byte"]);
                    refused += 1;
                }
                (Place::Before, _) => assert!(outcome.is_right(), "{case}: {outcome:?}"),
                (Place::Other, Outcome::Right(_)) => {}
                (Place::Other, Outcome::Earlier(state)) => {
                    let one_less = sample.last() - 1;
                    assert_eq!((ending, *state), (Ending::Crashed, one_less), "{case}");
                }
                (Place::Other, Outcome::Refused(_)) => outcome.assert_refused(&case, &["log-"]),
            }
        }
        println!("{refused} refused");
        assert!(refused > 50, "{refused}");
    }
}

#[test]
fn a_segment_of_a_newer_version_is_named() {
    let sample = sample(Ending::Crashed);
    let needed = Layout::new(sample, Ending::Crashed).needed;
    for (name, begin) in segments(sample) {
        let disk = sample.copy();
        let mut header = bytes(&disk, &name)[..SEGMENT_HEADER].to_vec();
        header[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        let checked = SEGMENT_HEADER - 4;
        let checksum = crc32c::crc32c(&header[..checked]);
        header[checked..].copy_from_slice(&checksum.to_le_bytes());
        put(&disk, &name, 0, &header);
        let outcome = outcome(sample, &disk, &name);
        if begin + SEGMENT > needed.0 {
            let version = format!("format version {}", FORMAT_VERSION + 1);
            outcome.assert_refused(&name, &[&name, &version]);
        } else {
            assert!(outcome.is_right(), "{name}: {outcome:?}");
        }
    }
}

#[test]
fn segments_that_changed_places_are_named() {
    let sample = sample(Ending::Crashed);
    let segments = segments(sample);
    let needed = Layout::new(sample, Ending::Crashed).needed;
    let read: Vec<_> =
        segments.into_iter().filter(|(_, begin)| begin + SEGMENT > needed.0).collect();
    assert!(read.len() > 1, "{read:?}");
    for pair in read.windows(2) {
        let disk = sample.copy();
        let [one, other] = [&pair[0].0, &pair[1].0];
        let contents = bytes(&disk, one);
        replace(&disk, one, &bytes(&disk, other));
        replace(&disk, other, &contents);
        let case = format!("{one} and {other}");
        outcome(sample, &disk, &case).assert_refused(&case, &["log-", "it is the segment at"]);
    }
}

/// The end of the log as zeros or noise: what was there is lost, and it is known or nobody's
/// promise. What was logged before the last checkpoint is there in any case.
#[test]
fn a_log_that_lost_its_end_is_as_it_was_once() {
    println!("seed 2");
    let random = &mut Random::new(2);
    for ending in ENDINGS {
        let sample = sample(ending);
        let (record, _) = checkpoint(&bytes(&sample.disk, "head"));
        let (mut earlier, mut refused) = (0, 0);
        let (last, _) = segments(sample).pop().unwrap();
        // What can be lost unnoticed is in the last segment, which may have few of the records.
        let is_in_last = |record: &&Record| place(record.lsn).0 == last;
        let in_last: Vec<Record> = sample.records.iter().filter(is_in_last).copied().collect();
        for round in 0..40 {
            let records = if round % 4 < 2 { &sample.records } else { &in_last };
            let first_lost = random.pick(records).lsn;
            let (name, offset) = place(first_lost);
            let disk = sample.copy();
            let rest = bytes(&disk, &name).len() as u64 - offset;
            let filling = if round % 2 == 0 {
                vec![0; usize::try_from(rest).unwrap()]
            } else {
                random.bytes(rest)
            };
            put(&disk, &name, offset, &filling);
            let case = format!("{ending:?} {name} lost from {offset} on");
            match outcome(sample, &disk, &case) {
                Outcome::Right(_) => panic!("{case}: nothing is lost"),
                Outcome::Earlier(state) => {
                    assert!(name == last && first_lost > record, "{case}: unnoticed");
                    assert!(state >= sample.floor, "{case}: {state}");
                    earlier += 1;
                }
                outcome @ Outcome::Refused(_) => {
                    outcome.assert_refused(&case, &[]);
                    refused += 1;
                }
            }
        }
        println!("{earlier} as it was earlier, {refused} refused");
        assert!(refused > 5, "{refused}");
        assert_eq!(earlier > 0, ending == Ending::Crashed, "{earlier}");
    }
}
