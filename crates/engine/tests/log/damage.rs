//! Bits that flip, files that are cut, mixed up or of another kind.

use std::sync::Arc;

use proptest::prelude::*;
use tidegate_engine::disk::{Crash, Disk, Open, SimulatedDisk};
use tidegate_engine::wal::{
    FORMAT_VERSION, KIND_RECORD, KIND_SHIFT, Log, LogError, LogId, LogSettings, Lsn, MAGIC,
    RECORD_HEADER, SEGMENT_HEADER,
};

use crate::{SETTINGS, append_all, create, files, new_disk, new_log, open, records, try_open};

const FIRST: &str = "log-0000000000000000.wal";
const SECOND: &str = "log-0000000000001000.wal";

/// Three segments of records, forced one by one.
fn sample(is_sealed: bool) -> (Arc<SimulatedDisk>, Vec<(Lsn, Vec<u8>)>) {
    let (disk, log) = new_log(7);
    let mut appended = Vec::new();
    for number in 0_u8..14 {
        let payload = vec![number; 100 + 60 * usize::from(number)];
        let lsn = log.append(&payload).expect("room");
        log.force(lsn).expect("a disk without faults");
        appended.push((lsn, payload));
    }
    if is_sealed {
        log.seal().expect("a disk without faults");
    }
    drop(log);
    assert_eq!(files(&disk, "log-").len(), 3);
    (disk, appended)
}

/// What an open finds.
fn found(disk: &Arc<SimulatedDisk>) -> Result<Vec<(Lsn, Vec<u8>)>, LogError> {
    try_open(disk, Lsn::ZERO).map(|(log, _)| records(&log, Lsn::ZERO))
}

/// Makes a whole header of another format version, without what version 1 does not have.
fn set_version(disk: &SimulatedDisk, name: &str, version: u32) {
    let file = disk.open(name, Open::Existing).expect("a file");
    let mut header = [0; SEGMENT_HEADER];
    file.read_at(&mut header, 0).expect("a header");
    header[8..12].copy_from_slice(&version.to_le_bytes());
    header[40..48].fill(0);
    let sum = crc32c::crc32c(&header[..508]);
    header[508..].copy_from_slice(&sum.to_le_bytes());
    file.write_at(&header, 0).expect("a disk without faults");
}

/// Flips bits all over the files; `allowed` says how many records may be missing at the end.
fn flip_everywhere(is_sealed: bool, allowed: usize) {
    let (disk, appended) = sample(is_sealed);
    let mut refused = 0;
    for name in files(&disk, "log-") {
        let length = disk.open(&name, Open::Existing).and_then(|file| file.len()).expect("a file");
        for offset in 0..length {
            let flipped = Arc::new(disk.fork());
            let bit = u32::try_from(offset * 5 % 8).expect("small");
            flipped.flip_bit(&name, offset, bit).expect("a byte");
            match found(&flipped) {
                Err(error) => {
                    assert!(matches!(error, LogError::Damaged { .. }), "{name} {offset}: {error}");
                    assert!(error.to_string().contains(&name), "{name} {offset}: {error}");
                    refused += 1;
                }
                Ok(found) => {
                    assert!(appended.starts_with(&found), "{name} {offset}");
                    assert!(found.len() + allowed >= appended.len(), "{name} {offset}");
                }
            }
        }
    }
    // Every byte of a record and of a segment's header matters, other than padding.
    let lengths = appended.iter().map(|(_, payload)| RECORD_HEADER + payload.len());
    let last = if allowed == 0 { 0 } else { RECORD_HEADER + appended[13].1.len() };
    assert!(refused >= lengths.sum::<usize>() + 3 * SEGMENT_HEADER - last, "{refused}");
}

#[test]
fn no_flipped_bit_changes_a_sealed_log_unnoticed() {
    flip_everywhere(true, 0);
}

#[test]
fn without_a_seal_only_the_last_write_can_get_lost() {
    flip_everywhere(false, 1);
}

#[test]
fn the_example_of_the_module_holds() {
    let (disk, log) = new_log(1);
    let lsns = [&[1_u8; 16][..], &[2; 8], &[3; 8]].map(|payload| {
        let lsn = log.append(payload).expect("room");
        log.force(lsn).expect("a disk without faults");
        lsn
    });
    assert_eq!(lsns, [Lsn(512), Lsn(544), Lsn(592)]);
    drop(log);
    let flipped = |offset: u64| {
        let flipped = Arc::new(disk.fork());
        flipped.flip_bit(FIRST, offset, 3).expect("a byte");
        try_open(&flipped, Lsn::ZERO).map(|(_, tail)| tail.end)
    };
    let a = flipped(512).expect_err("damage");
    let reason = "the record does not have the checksum it says, \
                  yet the mark at 0x268 says that all before 0x250 was durable";
    assert!(a.to_string().contains(reason), "{a}");
    assert!(matches!(flipped(544), Err(LogError::Damaged { offset: 544, .. })));
    assert_eq!(flipped(592).expect("a torn end"), Lsn(592));
    // The crash in the second sync: the mark after B has arrived, B has not, and C never was.
    let file = disk.open(FIRST, Open::Existing).expect("a file");
    file.write_at(&[0; 100], 592).and_then(|()| file.sync()).expect("a disk without faults");
    assert_eq!(flipped(544).expect("a torn end"), Lsn(544));
}

/// What was forced into the newest segment is not lost without a word when its file is.
#[test]
fn the_newest_segment_cut_or_missing_is_damage() {
    let (disk, _) = sample(true);
    let newest = files(&disk, "log-").pop().expect("a segment");
    for length in [0, 100, 512, 600, 4_000, 4_095] {
        let cut = Arc::new(disk.fork());
        cut.truncate(&newest, length).expect("a file");
        let error = found(&cut).expect_err("a file that was cut");
        assert!(
            matches!(&error, LogError::Damaged { file, .. } if *file == newest),
            "{length}: {error}"
        );
    }
    let without = Arc::new(disk.fork());
    without.remove(&newest).and_then(|()| without.sync_directory()).expect("a file");
    for from in [Lsn::ZERO, Lsn(512)] {
        let error = try_open(&without, from).err().expect("a missing file");
        assert!(matches!(&error, LogError::Missing { file } if *file == newest), "{error}");
    }
}

/// Segments of format version 1 were as long as what had been written, and said nothing of the
/// next. Such a log opens, goes on, and is of this version from then on.
#[test]
fn a_log_of_the_first_version_goes_on() {
    let (disk, records) = sample(false);
    for name in files(&disk, "log-") {
        set_version(&disk, &name, 1);
    }
    let (_, tail) = open(&Arc::new(disk.fork()), Lsn::ZERO);
    let end = tail.end;
    let newest = files(&disk, "log-").pop().expect("a segment");
    disk.truncate(&newest, end.0 % 4_096).expect("a file");
    let (log, _) = open(&disk, Lsn::ZERO);
    let more = append_all(&log, &[&[9; 3_000], &[8; 3_000]]);
    log.force(log.end()).expect("a disk without faults");
    drop(log);
    let disk = Arc::new(disk.crash(Crash::Lost));
    let (log, _) = open(&disk, Lsn::ZERO);
    assert_eq!(super::records(&log, Lsn::ZERO), [records, more].concat());
}

/// What is after the end is read in blocks of 256 KiB. Here the mark that vouches for a damaged
/// record lies across the end of the first.
#[test]
fn a_mark_across_two_blocks_is_seen() {
    let disk = new_disk(1);
    let settings = LogSettings { segment_bytes: 1 << 20, buffer_bytes: 1 << 20, ..SETTINGS };
    let log = Log::create(Arc::clone(&disk) as Arc<dyn Disk>, settings).expect("a new log");
    log.append(&[1; 16]).and_then(|lsn| log.force(lsn)).expect("a disk without faults");
    let longest = log.append(&vec![2; (256 << 10) - 56]).expect("room");
    log.force(longest).expect("a disk without faults");
    assert_eq!(log.durable(), Lsn(512 + (256 << 10) + 16));
    drop(log);
    disk.flip_bit(FIRST, 530, 0).expect("a byte");
    assert!(matches!(found(&disk), Err(LogError::Damaged { offset: 512, .. })));
}

#[test]
fn a_sealed_log_says_so_until_it_goes_on() {
    let (disk, log) = new_log(1);
    append_all(&log, &[b"a", b"b"]);
    log.seal().expect("a disk without faults");
    let end = log.end();
    log.seal().expect("a second seal");
    assert_eq!(log.end(), end);
    drop(log);
    let (log, tail) = open(&disk, Lsn::ZERO);
    assert!(tail.is_sealed);
    assert_eq!(tail.end, end);
    log.seal().expect("a third seal");
    assert_eq!(log.end(), end);
    append_all(&log, &[b"c"]);
    log.force(log.end()).expect("a disk without faults");
    drop(log);
    assert!(!open(&disk, Lsn::ZERO).1.is_sealed);
}

#[test]
fn a_file_cut_short_is_never_read_as_something_else() {
    let (disk, appended) = sample(true);
    for name in files(&disk, "log-") {
        let is_last = name == files(&disk, "log-")[2];
        let length = disk.open(&name, Open::Existing).and_then(|file| file.len()).expect("a file");
        for length in (0..length).step_by(37) {
            let cut = Arc::new(disk.fork());
            cut.truncate(&name, length).expect("a file");
            match found(&cut) {
                Err(LogError::Damaged { file, .. }) => assert_eq!(file, name),
                Err(error) => panic!("{name} {length}: {error}"),
                // The end of the last segment, or unused bytes at the end of another.
                Ok(found) if is_last => assert!(appended.starts_with(&found)),
                Ok(found) => assert_eq!(found, appended),
            }
        }
    }
}

#[test]
fn a_missing_segment_is_named() {
    let (disk, appended) = sample(true);
    disk.remove(SECOND).expect("a file");
    let error = found(&disk).expect_err("a hole");
    assert!(matches!(&error, LogError::Missing { file } if file == SECOND), "{error}");
    // After the hole the log can be read.
    let third = appended.iter().find(|(lsn, _)| lsn.0 > 8_192).expect("a third segment");
    assert!(try_open(&disk, third.0).is_ok());
    let nowhere = try_open(&disk, Lsn(1 << 20)).err().expect("no such segment");
    assert!(matches!(nowhere, LogError::Missing { .. }), "{nowhere}");
    let odd = try_open(&disk, Lsn(513)).err().expect("no such position");
    assert!(matches!(odd, LogError::NoRecord { lsn: Lsn(513) }), "{odd}");
}

#[test]
fn segments_that_changed_places_are_refused() {
    let (disk, _) = sample(true);
    disk.rename(FIRST, "aside").expect("a file");
    disk.rename(SECOND, FIRST).expect("a file");
    disk.rename("aside", SECOND).expect("a file");
    let error = found(&disk).expect_err("mixed up");
    let reason = "damaged at byte 24: it says that it is the segment at 0x1000 of 4096 bytes";
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn files_of_another_log_or_version_are_refused() {
    let (disk, _) = sample(true);
    let other = LogSettings { id: LogId(9), ..SETTINGS };
    let opened = Log::open(Arc::clone(&disk) as Arc<dyn Disk>, other, Lsn::ZERO);
    let error = opened.err().expect("another log");
    assert!(
        matches!(error, LogError::OtherLog { found: LogId(0x1D), wanted: LogId(9), .. }),
        "{error}"
    );

    set_version(&disk, SECOND, FORMAT_VERSION + 1);
    let error = found(&disk).expect_err("a newer version");
    assert!(
        matches!(&error, LogError::NewerVersion { file, version, .. }
            if file == SECOND && *version == FORMAT_VERSION + 1),
        "{error}"
    );
}

#[test]
fn a_directory_with_or_without_a_log_is_told() {
    let disk = new_disk(1);
    let error = found(&disk).expect_err("nothing there");
    assert!(matches!(&error, LogError::Missing { file } if file == FIRST), "{error}");
    drop(create(&disk));
    let again = Log::create(Arc::clone(&disk) as Arc<dyn Disk>, SETTINGS);
    let error = again.err().expect("a log is there");
    assert!(matches!(&error, LogError::Exists { file } if file == FIRST), "{error}");
}

#[test]
fn settings_out_of_range_are_named() {
    let cases = [
        (LogSettings { segment_bytes: 5_000, ..SETTINGS }, "segment_bytes is 5000"),
        (LogSettings { segment_bytes: 2 << 30, ..SETTINGS }, "segment_bytes is 2147483648"),
        (LogSettings { buffer_bytes: 0, ..SETTINGS }, "buffer_bytes is 0"),
    ];
    for (settings, part) in cases {
        let error = Log::create(new_disk(1), settings).err().expect("refused");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn the_bytes_are_as_documented() {
    let (disk, log) = new_log(1);
    let lsn = log.append(b"payload").expect("room");
    log.force(lsn).expect("a disk without faults");
    let bytes = &disk.image()[FIRST];
    assert_eq!(bytes[..8], MAGIC);
    assert_eq!(bytes[8..16], [2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes.len(), 4_096);
    assert_eq!(bytes[16..24], SETTINGS.id.0.to_le_bytes());
    assert_eq!(bytes[24..48], [&[0; 8][..], &4_096_u64.to_le_bytes(), &[0; 8]].concat());
    assert_eq!(bytes[508..512], crc32c::crc32c(&bytes[..508]).to_le_bytes());
    let word = (KIND_RECORD << KIND_SHIFT) + 23;
    let header = [&word.to_le_bytes()[..], &512_u64.to_le_bytes()].concat();
    let covered = [&SETTINGS.id.0.to_le_bytes()[..], b"payload", &header].concat();
    assert_eq!(bytes[512..516], crc32c::crc32c(&covered).to_le_bytes());
    assert_eq!(bytes[516..528], header);
    assert_eq!(bytes[528..536], *b"payload\0");
}

/// A directory whose first segment holds `bytes` after a good header, and maybe a second `file`.
fn arbitrary(header: bool, bytes: &[u8], second: Option<&[u8]>) -> Arc<SimulatedDisk> {
    let disk = new_disk(1);
    drop(create(&disk));
    let file = disk.open(FIRST, Open::Existing).expect("a file");
    let offset = if header { SEGMENT_HEADER as u64 } else { 0 };
    file.write_at(bytes, offset).expect("a disk without faults");
    if let Some(second) = second {
        let file = disk.open(SECOND, Open::New).expect("a file");
        file.write_at(second, 0).expect("a disk without faults");
    }
    disk
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn arbitrary_files_open_or_are_refused(
        header: bool,
        bytes in proptest::collection::vec(any::<u8>(), 0..5_000),
        second in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..600)),
        from in 0_u64..20_000,
    ) {
        let disk = arbitrary(header, &bytes, second.as_deref());
        if let Ok((log, tail)) = try_open(&disk, Lsn(from)) {
            prop_assert_eq!(tail.records, 0);
            prop_assert!(log.append(b"goes on").is_ok());
        }
    }

    /// A log with something written over it: records are those there were, or none.
    #[test]
    fn a_log_that_was_written_over_never_lies(
        at in 0_u64..12_288,
        bytes in proptest::collection::vec(any::<u8>(), 1..2_000),
        which in 0_usize..3,
    ) {
        let (disk, appended) = sample(true);
        let name = &files(&disk, "log-")[which];
        let file = disk.open(name, Open::Existing).expect("a file");
        file.write_at(&bytes, at % 4_096).expect("a disk without faults");
        if let Ok(found) = found(&disk) {
            prop_assert!(appended.starts_with(&found));
        }
    }
}
