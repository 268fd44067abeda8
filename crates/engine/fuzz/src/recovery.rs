//! Files of a small store, damaged.
//!
//! The first byte says which of two stores is damaged, one that was closed and one that crashed,
//! and how; the rest is a list of damages.
//!
//! * **Bytes** of any file are changed, one by one, in stretches, or cut off; files go missing.
//!   What is opened then is what it was, or what it was after an earlier commit, because the last
//!   writes to a log that was not closed may be missing; or it is refused. Nothing else.
//! * **Records** are changed that the checksum then vouches for: those of the log, the head, and
//!   the list in the doublewrite file. So recovery gets to see what no program writes. There is no
//!   telling what is right then; opening ends, and does not panic.
//!
//! Pages are not forged. A page whose checksum is right is trusted: the links between pages could
//! lead in a circle, and then whoever follows them goes on for ever.

use std::sync::{Arc, OnceLock};

use tidegate_engine::Store;
use tidegate_engine::disk::{Disk, File, Open, SimulatedDisk};
use tidegate_engine::wal::{Lsn, RECORD_HEADER};

use super::input::Input;
use super::random::Random;
use super::sample::{Ending, PAGE, SEGMENT, Sample, build, options, read_back, shared};

/// Does what `bytes` say.
pub fn run(bytes: &[u8]) {
    static SAMPLES: OnceLock<[Sample; 2]> = OnceLock::new();
    let samples = SAMPLES.get_or_init(|| [build(1, Ending::Crashed), build(2, Ending::Closed)]);
    let mut input = Input::new(bytes);
    let choice = input.byte();
    let sample = &samples[usize::from(choice % 2)];
    let disk = Arc::new(sample.disk.fork());
    if (choice / 2).is_multiple_of(2) {
        while let Some(kind) = input.next_byte() {
            damage(&disk, kind, &mut input);
        }
        judge(sample, &disk);
    } else {
        while let Some(kind) = input.next_byte() {
            forge(sample, &disk, kind, &mut input);
        }
        drop(Store::open(&shared(&disk), &options()));
    }
}

/// What is read from damaged files was there, or is refused with a reason.
fn judge(sample: &Sample, disk: &Arc<SimulatedDisk>) {
    match read_back(disk) {
        Err(error) => assert!(!error.is_retryable(), "{error}"),
        Ok(found) => assert!(sample.states.contains(&found.model), "another content"),
    }
}

fn open(disk: &SimulatedDisk, name: &str) -> Arc<dyn File> {
    disk.open(name, Open::Existing).unwrap()
}

/// Damages one file.
fn damage(disk: &SimulatedDisk, kind: u8, input: &mut Input<'_>) {
    let names = disk.list().unwrap();
    let Some(name) = names.get(input.below(names.len())) else { return };
    let file = open(disk, name);
    let len = usize::try_from(file.len().unwrap()).unwrap();
    let at = input.below(len);
    let put = |bytes: &[u8]| file.write_at(bytes, at as u64).unwrap();
    match kind % 6 {
        0 if len > 0 => disk.flip_bit(name, at as u64, u32::from(kind / 6 % 8)).unwrap(),
        1 => disk.truncate(name, at as u64).unwrap(),
        2 => disk.remove(name).unwrap(),
        3 => put(&vec![0; input.below(2 * PAGE)]),
        4 => put(&Random::new(u64::from(kind)).bytes(input.below(2 * PAGE) as u64)),
        _ => {
            let len = input.byte();
            put(input.take(usize::from(len)));
        }
    }
}

/// Changes something such that its checksum is right.
fn forge(sample: &Sample, disk: &SimulatedDisk, kind: u8, input: &mut Input<'_>) {
    match kind % 4 {
        0 => forge_head(disk, input),
        1 => forge_list(disk, input),
        _ => forge_record(sample, disk, input),
    }
}

/// Puts a few of the fuzzer's bytes over others.
fn put_over(bytes: &mut [u8], input: &mut Input<'_>) {
    let at = input.below(bytes.len());
    let len = input.byte() % 16;
    let new = input.take(usize::from(len).min(bytes.len() - at));
    bytes[at..at + new.len()].copy_from_slice(new);
}

/// One of the three blocks of the head, whose first 64 bytes count.
fn forge_head(disk: &SimulatedDisk, input: &mut Input<'_>) {
    let file = open(disk, "head");
    let at = (input.below(3) * PAGE) as u64;
    let mut block = [0; 64];
    file.read_at(&mut block, at).unwrap();
    put_over(&mut block[4..], input);
    seal(&mut block);
    file.write_at(&block, at).unwrap();
}

/// The list at the front of the doublewrite file: how many pages follow, and which.
fn forge_list(disk: &SimulatedDisk, input: &mut Input<'_>) {
    let file = open(disk, "doublewrite.pages");
    let mut list = vec![0; PAGE];
    if file.read_at(&mut list, 0).is_ok() {
        put_over(&mut list[4..200], input);
        seal(&mut list);
        file.write_at(&list, 0).unwrap();
    }
}

fn seal(block: &mut [u8]) {
    let checksum = crc32c::crc32c(&block[4..]);
    block[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// The payload of a record that is read when the store is opened.
fn forge_record(sample: &Sample, disk: &SimulatedDisk, input: &mut Input<'_>) {
    let record = &sample.records[input.below(sample.records.len())];
    let (name, offset) = place(record.lsn);
    let file = open(disk, &name);
    let mut bytes = vec![0; usize::try_from(record.len).unwrap()];
    file.read_at(&mut bytes, offset).unwrap();
    put_over(&mut bytes[RECORD_HEADER..], input);
    let checksum = crc32c::crc32c(&sample.id.0.to_le_bytes());
    let checksum = crc32c::crc32c_append(checksum, &bytes[RECORD_HEADER..]);
    let checksum = crc32c::crc32c_append(checksum, &bytes[4..RECORD_HEADER]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    file.write_at(&bytes, offset).unwrap();
}

/// The file in which a position of the log is, and where.
pub fn place(lsn: Lsn) -> (String, u64) {
    let offset = lsn.0 % SEGMENT;
    (format!("log-{:016x}.wal", lsn.0 - offset), offset)
}
