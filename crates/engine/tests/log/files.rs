//! Segments: where records go, what is given up and used again, and what fails.

use std::sync::Arc;

use tidegate_engine::disk::{Crash, Disk, Faults, SimulatedDisk};
use tidegate_engine::wal::{Log, LogError, LogSettings, Lsn};

use crate::{
    Random, SEGMENT_ROOM, SETTINGS, append_all, create, files, for_seeds, new_disk, new_log, open,
    records, try_open,
};

#[test]
fn records_that_do_not_fit_begin_the_next_segment() {
    // Payload of a first record, and where a second of 8 bytes goes.
    let cases = [
        (SEGMENT_ROOM - 16, 4_096 + 512),
        (SEGMENT_ROOM - 16 - 8, 4_096 + 512),
        (SEGMENT_ROOM - 16 - 16, 4_096 + 512),
        (SEGMENT_ROOM - 16 - 24, 4_096 - 24),
    ];
    for (length, second) in cases {
        let (disk, log) = new_log(1);
        let appended = append_all(&log, &[&vec![1; length], &[2; 8], &[3; 100]]);
        assert_eq!(appended[1].0, Lsn(second));
        log.force(appended[0].0).expect("a disk without faults");
        for (lsn, payload) in &appended {
            assert_eq!(log.read(*lsn).expect("a record"), *payload);
        }
        assert_eq!(records(&log, Lsn::ZERO), appended);
        drop(log);
        assert_eq!(records(&open(&disk, Lsn::ZERO).0, Lsn::ZERO), appended);
    }
}

/// A log can be opened from what its end was at any time.
#[test]
fn every_end_is_a_place_to_open_from() {
    let (disk, log) = new_log(1);
    let mut ends = Vec::new();
    let mut appended = Vec::new();
    for number in 0_u8..60 {
        ends.push((log.end(), appended.len()));
        let payload = vec![number; usize::from(number) * 17 % 431];
        appended.push((log.append(&payload).expect("room"), payload));
        if number % 7 == 0 {
            log.force(log.end()).expect("a disk without faults");
        }
    }
    log.force(log.end()).expect("a disk without faults");
    ends.push((log.end(), appended.len()));
    drop(log);
    for (end, count) in ends {
        let (log, tail) = open(&disk, end);
        assert_eq!(tail.records, (appended.len() - count) as u64);
        assert_eq!(records(&log, end), appended[count..]);
    }
}

#[test]
fn a_record_that_fits_no_segment_is_refused() {
    let log = create(&new_disk(1));
    let error = log.append(&vec![0; SEGMENT_ROOM - 15]).expect_err("too long");
    assert!(matches!(error, LogError::TooLong { length: 3_569, limit: 3_568 }), "{error}");
    assert!(log.append(&vec![0; SEGMENT_ROOM - 16]).is_ok());
}

#[test]
fn what_is_not_forced_is_written_when_the_buffer_is_full() {
    let (_, log) = new_log(1);
    let payloads: Vec<Vec<u8>> = (0..100).map(|number| vec![number; 500]).collect();
    let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    let appended = append_all(&log, &payloads);
    let statistics = log.statistics();
    assert_eq!((statistics.records, statistics.record_bytes), (100, 52_000));
    assert_eq!((statistics.forces, statistics.syncs), (0, 0));
    assert!(statistics.written_bytes >= 52_000 - SETTINGS.buffer_bytes as u64);
    for (lsn, payload) in &appended {
        assert_eq!(log.read(*lsn).expect("a record"), *payload);
    }
    assert_eq!(records(&log, Lsn::ZERO), appended);
}

#[test]
fn dropping_writes_nothing() {
    let (disk, log) = new_log(1);
    append_all(&log, &[b"one", b"two"]);
    let operations = disk.operations();
    drop(log);
    assert_eq!(disk.operations(), operations);
    assert_eq!(open(&disk, Lsn::ZERO).1.records, 0);
}

#[test]
fn segments_given_up_are_used_again_and_keep_nothing() {
    for_seeds(0..10, |seed| {
        let disk = new_disk(seed);
        let mut random = Random::new(seed);
        let mut log = create(&disk);
        let mut kept: Vec<(Lsn, Vec<u8>)> = Vec::new();
        for number in 0..400 {
            let payload = crate::payload(&mut random, number);
            kept.push((log.append(&payload).expect("room"), payload));
            if number % 20 == 19 {
                log.force(log.end()).expect("a disk without faults");
                let (checkpoint, _) = kept[kept.len() - 1 - random.index(15)];
                log.truncate_before(checkpoint).expect("a disk without faults");
                let begin = log.begin();
                kept.retain(|(lsn, _)| *lsn >= begin);
                drop(log);
                log = open(&disk, checkpoint).0;
                assert_eq!(records(&log, begin), kept);
            }
        }
        assert!(files(&disk, "spare-").len() <= 4);
        let names = files(&disk, "log-");
        let needed = (log.end().0 - log.begin().0) / SETTINGS.segment_bytes + 1;
        assert_eq!(names.len() as u64, needed);
    });
}

/// At whatever moment the power fails while a segment is used again.
#[test]
fn a_segment_never_has_the_header_of_another() {
    let payload: &[u8] = &[1; 3_000];
    for_seeds(0..200, |seed| {
        let (disk, log) = new_log(seed);
        append_all(&log, &[payload; 3]);
        log.force(log.end()).expect("a disk without faults");
        let crash_after = Some(seed % 10);
        disk.set_faults(Faults { crash_after, ..Faults::default() });
        let _ = log.truncate_before(log.end());
        let _ = log.append(payload).and_then(|lsn| log.force(lsn));
        assert!(disk.is_off());
        for (name, bytes) in disk.crash(Crash::Weak).image() {
            if let Some(digits) = name.strip_prefix("log-") {
                let first = u64::from_str_radix(&digits[..16], 16).expect("a name");
                assert_eq!(bytes[24..32], first.to_le_bytes(), "{name}");
            }
        }
    });
}

#[test]
fn what_was_given_up_is_not_read() {
    let (disk, log) = new_log(1);
    let payload: &[u8] = &[1; 3_000];
    let appended = append_all(&log, &[payload; 4]);
    log.force(log.end()).expect("a disk without faults");
    log.truncate_before(appended[2].0).expect("a disk without faults");
    assert_eq!(log.begin(), appended[2].0);
    assert_eq!(files(&disk, "spare-").len(), 2);
    let read = log.read(appended[1].0);
    assert!(matches!(read, Err(LogError::Truncated { .. })), "{read:?}");
    let scanned = log.reader(appended[0].0).next().expect("an error");
    assert!(matches!(scanned, Err(LogError::Truncated { .. })), "{scanned:?}");
    assert_eq!(records(&log, Lsn::ZERO), appended[2..]);
    // However far the caller goes, the segment that is written stays.
    log.truncate_before(Lsn(u64::MAX)).expect("a disk without faults");
    assert_eq!(records(&log, Lsn::ZERO), appended[3..]);
}

#[test]
fn at_the_very_end_of_a_segment_one_file_stays() {
    let (disk, log) = new_log(1);
    let payload: &[u8] = &[1; SEGMENT_ROOM - 16];
    let appended = append_all(&log, &[payload]);
    log.force(appended[0].0).expect("a disk without faults");
    assert_eq!(log.end(), Lsn(4_096));
    log.truncate_before(log.end()).expect("a disk without faults");
    assert_eq!(files(&disk, "log-").len(), 1);
    let (log, tail) = {
        drop(log);
        open(&disk, Lsn(4_096))
    };
    assert_eq!(tail.end, Lsn(4_096 + 512));
    assert_eq!(append_all(&log, &[b"next"])[0].0, tail.end);
}

/// The settings of a disk of which every write, or every sync, fails.
fn broken(write_error: f64, sync_error: f64) -> Faults {
    Faults { write_error, sync_error, ..Faults::default() }
}

#[test]
fn after_an_error_the_log_is_closed() {
    for faults in [broken(1.0, 0.0), broken(0.0, 1.0)] {
        let (disk, log) = new_log(1);
        let kept = append_all(&log, &[b"forced"]);
        log.force(kept[0].0).expect("a disk without faults");
        let lost = log.append(b"lost").expect("room");
        disk.set_faults(faults);
        let error = log.force(lost).expect_err("a broken disk");
        assert!(matches!(error, LogError::Io { .. }), "{error}");

        // The disk is well again, and the log is not.
        disk.set_faults(Faults::default());
        let later = [
            log.append(b"later").map(drop),
            log.append_with(1, |bytes| bytes.push(0)).map(drop),
            log.force(lost),
            log.write_out(lost),
            log.force_soon(),
            log.seal(),
        ];
        for result in later {
            assert!(matches!(result, Err(LogError::Failed { .. })), "{result:?}");
        }
        log.force(kept[0].0).expect("durable before");
        assert_eq!(log.read(kept[0].0).expect("in the file"), b"forced");
        drop(log);
        let disk = Arc::new(disk.crash(Crash::Lost));
        let found = records(&open(&disk, Lsn::ZERO).0, Lsn::ZERO);
        assert_eq!(found[0], kept[0]);
    }
}

#[test]
fn a_full_disk_loses_only_what_was_not_forced() {
    for_seeds(0..30, |seed| {
        let capacity = Some(10_000 + seed * 101);
        let faults = Faults { capacity, ..Faults::default() };
        let disk = Arc::new(SimulatedDisk::new(seed, faults));
        let log = create(&disk);
        let mut random = Random::new(seed);
        let mut appended = Vec::new();
        let error = loop {
            let payload = crate::payload(&mut random, appended.len() as u64);
            let step = log.append(&payload).inspect(|lsn| appended.push((*lsn, payload)));
            let forced = match step {
                Ok(lsn) if random.index(3) == 0 => log.force(lsn),
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = forced {
                break error;
            }
        };
        assert!(matches!(error, LogError::Full { .. }), "{error}");
        let durable = log.durable();
        assert!(matches!(log.append(b""), Err(LogError::Failed { .. })));
        drop(log);
        let disk = Arc::new(disk.crash(Crash::Random));
        let found = records(&open(&disk, Lsn::ZERO).0, Lsn::ZERO);
        assert!(appended.starts_with(&found));
        let forced = appended.iter().filter(|(lsn, _)| *lsn < durable).count();
        assert!(found.len() >= forced, "{} of {forced}", found.len());
    });
}

#[test]
fn an_error_of_reading_is_told() {
    let (disk, log) = new_log(1);
    let appended = append_all(&log, &[b"one"]);
    log.force(appended[0].0).expect("a disk without faults");
    disk.set_faults(Faults { read_error: 1.0, ..Faults::default() });
    assert!(matches!(log.read(appended[0].0), Err(LogError::Io { .. })));
    assert!(matches!(log.reader(Lsn::ZERO).next(), Some(Err(LogError::Io { .. }))));
    assert!(matches!(try_open(&disk, Lsn::ZERO), Err(LogError::Io { .. })));
    // Reading does not close the log.
    assert!(log.append(b"two").is_ok());
}

#[test]
fn an_open_log_keeps_the_segments_it_was_created_with() {
    let disk = new_disk(1);
    drop(create(&disk));
    let settings = LogSettings { segment_bytes: 1 << 20, ..SETTINGS };
    let opened = Log::open(Arc::clone(&disk) as Arc<dyn Disk>, settings, Lsn::ZERO);
    let (log, _) = opened.expect("a log");
    assert!(matches!(log.append(&[0; 5_000]), Err(LogError::TooLong { .. })));
}
