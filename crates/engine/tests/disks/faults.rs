//! Faults on request: machines that stop, errors, full disks, damage.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};

use tidegate_engine::disk::{Crash, Disk, Faults, Open, SECTOR, SimulatedDisk};

use crate::{after, contents, disk_with, kind, new_file, old_file};

/// Ten operations.
fn work(disk: &SimulatedDisk) -> io::Result<()> {
    let a = disk.open("a", Open::New)?;
    let b = disk.open("b", Open::New)?;
    a.write_at(&[1; 3 * SECTOR], 0)?;
    a.sync()?;
    disk.sync_directory()?;
    b.set_len(5)?;
    disk.rename("b", "c")?;
    disk.remove("a")?;
    b.sync()?;
    disk.sync_directory()
}

#[test]
fn the_machine_stops_at_every_operation() {
    let whole = SimulatedDisk::new(1, Faults::default());
    work(&whole).unwrap();
    assert_eq!(whole.operations(), 10);
    for crash_after in 0..=10 {
        let faults = Faults { crash_after: Some(crash_after), ..Faults::default() };
        let disk = SimulatedDisk::new(1, faults);
        let result = work(&disk);
        assert_eq!(disk.is_off(), crash_after < 10, "{crash_after}");
        assert_eq!(disk.operations(), 10.min(crash_after + 1), "{crash_after}");
        assert_eq!(result.is_err(), disk.is_off(), "{crash_after}");
    }
}

#[test]
fn nothing_works_on_a_machine_that_is_off() {
    let (disk, file) = disk_with(1, b"abc");
    disk.set_faults(Faults { crash_after: Some(1), ..Faults::default() });
    file.write_at(b"x", 0).unwrap();
    assert!(!disk.is_off());
    let results = [
        file.write_at(b"y", 1),
        file.read_at(&mut [0; 1], 0),
        file.sync(),
        file.set_len(0),
        file.len().map(drop),
        disk.open("a", Open::Existing).map(drop),
        disk.open("b", Open::New).map(drop),
        disk.list().map(drop),
        disk.remove("a"),
        disk.rename("a", "b"),
        disk.sync_directory(),
    ];
    for (index, result) in results.into_iter().enumerate() {
        let error = result.unwrap_err().to_string();
        assert_eq!(error, "the simulated machine is off", "call {index}");
    }
    disk.set_faults(Faults::default());
    assert!(disk.is_off());
    assert_eq!(after(&disk, Crash::Lost), b"abc");
}

/// A write from the middle of sector 0 to the middle of sector 3 may end at three boundaries, or
/// not begin, or be done.
#[test]
fn a_write_in_whose_middle_the_machine_stops_is_torn() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let (disk, file) = disk_with(seed, &[1; 4 * SECTOR]);
        disk.set_faults(Faults { crash_after: Some(0), ..Faults::default() });
        file.write_at(&[2; 3 * SECTOR], 256).unwrap_err();
        let bytes = after(&disk, Crash::Kept);
        let written = bytes[256..].iter().take_while(|&&byte| byte == 2).count();
        let (before, rest) = (&bytes[..256], &bytes[256 + written..]);
        assert!(before.iter().chain(rest).all(|&byte| byte == 1), "seed {seed}");
        assert_eq!(after(&disk, Crash::Lost), [1; 4 * SECTOR], "seed {seed}");
        seen.insert(written);
    }
    assert_eq!(Vec::from_iter(seen), [0, 256, 768, 1_280, 1_536]);
}

/// Names are changed or they are not.
#[test]
fn a_change_of_a_name_in_whose_middle_the_machine_stops_is_made_or_not() {
    type Change = fn(&SimulatedDisk) -> io::Result<()>;
    let table: [(Change, &[&str]); 3] = [
        (|disk| disk.open("b", Open::New).map(drop), &["a", "b"]),
        (|disk| disk.rename("a", "b"), &["b"]),
        (|disk| disk.remove("a"), &[]),
    ];
    for (change, changed) in table {
        let mut seen = BTreeSet::new();
        for seed in 0..50 {
            let (disk, _file) = disk_with(seed, b"abc");
            disk.set_faults(Faults { crash_after: Some(0), ..Faults::default() });
            change(&disk).unwrap_err();
            seen.insert(disk.crash(Crash::Kept).list().unwrap());
        }
        let changed = changed.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(seen, BTreeSet::from([vec!["a".to_owned()], changed]));
    }
}

/// Each sector of what a failed sync had to write is durable or not, and stays so.
#[test]
fn a_later_sync_does_not_bring_back_what_a_failed_one_dropped() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let (disk, file) = disk_with(seed, &[1; 2 * SECTOR]);
        file.write_at(&[2; 2 * SECTOR], 0).unwrap();
        disk.set_faults(Faults { sync_error: 1.0, ..Faults::default() });
        file.sync().unwrap_err();
        disk.set_faults(Faults::default());
        assert_eq!(contents(&*file), [2; 2 * SECTOR], "seed {seed}: it can be read");
        file.sync().unwrap();
        let left = after(&disk, Crash::Lost);
        seen.insert((left[0], left[SECTOR]));
        file.write_at(&[3], 0).unwrap();
        file.sync().unwrap();
        assert_eq!(after(&disk, Crash::Lost), [&[3], &left[1..]].concat(), "seed {seed}");
    }
    assert_eq!(seen, BTreeSet::from([(1, 1), (1, 2), (2, 1), (2, 2)]));
}

#[test]
fn a_later_sync_does_not_bring_back_names_that_a_failed_one_dropped() {
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let (disk, _file) = disk_with(seed, b"abc");
        new_file(&disk, "b");
        disk.set_faults(Faults { sync_error: 1.0, ..Faults::default() });
        disk.sync_directory().unwrap_err();
        disk.set_faults(Faults::default());
        assert_eq!(disk.list().unwrap(), ["a", "b"], "seed {seed}");
        disk.sync_directory().unwrap();
        seen.insert(disk.crash(Crash::Lost).list().unwrap().len());
    }
    assert_eq!(seen, BTreeSet::from([1, 2]));
}

#[test]
fn a_full_disk_takes_a_part_of_a_write_and_has_room_again_after_a_removal() {
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let (disk, file) = disk_with(seed, &[1; 1_024]);
        disk.set_faults(Faults { capacity: Some(3_072), ..Faults::default() });
        let other = new_file(&disk, "b");
        other.write_at(&[2; 512], 0).unwrap();
        let full = other.write_at(&[3; 2_048], 512);
        assert_eq!(kind(full), Some(ErrorKind::StorageFull), "seed {seed}");
        let grown = contents(&*other);
        assert!(grown.len() <= 2_048, "seed {seed}: more than there is room for");
        assert!(grown[512..].iter().all(|&byte| byte == 3), "seed {seed}");
        seen.insert(grown.len());

        assert_eq!(kind(other.set_len(2_049)), Some(ErrorKind::StorageFull), "seed {seed}");
        other.set_len(2_048).unwrap();
        file.write_at(&[4; 1_024], 0).unwrap();
        assert_eq!(kind(file.write_at(&[4; 1_025], 0)), Some(ErrorKind::StorageFull));
        drop(file);
        disk.remove("a").unwrap();
        disk.sync_directory().unwrap();
        other.set_len(3_072).unwrap();
    }
    assert_eq!(Vec::from_iter(seen), [512, 1_024, 1_536, 2_048]);
}

#[test]
fn operations_fail_with_the_probability_given() {
    type Call = fn(&SimulatedDisk) -> io::Result<()>;
    let calls: [Call; 5] = [
        |disk| old_file(disk, "a").read_at(&mut [0; 3], 0),
        |disk| old_file(disk, "a").write_at(b"xyz", 0),
        |disk| old_file(disk, "a").set_len(3),
        |disk| old_file(disk, "a").sync(),
        |disk| disk.sync_directory(),
    ];
    let none = Faults::default();
    let table = [
        (none, [0, 0, 0, 0, 0]),
        (Faults { read_error: 0.25, ..none }, [250, 0, 0, 0, 0]),
        (Faults { write_error: 0.25, ..none }, [0, 250, 250, 0, 0]),
        (Faults { sync_error: 0.25, ..none }, [0, 0, 0, 250, 250]),
    ];
    for (faults, expected) in table {
        let (disk, _file) = disk_with(1, b"abc");
        disk.set_faults(faults);
        for (call, expected) in calls.iter().zip(expected) {
            let failed = (0..1_000).filter(|_| call(&disk).is_err()).count();
            assert!(failed.abs_diff(expected) <= 60 * expected.min(1), "{faults:?}: {failed}");
        }
    }
}

#[test]
fn damage_is_durable_and_where_it_was_ordered() {
    let (disk, file) = disk_with(1, &[0; 100]);
    file.write_at(&[8], 10).unwrap();
    disk.flip_bit("a", 10, 3).unwrap();
    disk.flip_bit("a", 11, 7).unwrap();
    disk.corrupt("a", 90, 5).unwrap();
    disk.truncate("a", 99).unwrap();
    disk.truncate("a", 200).unwrap();
    let bytes = contents(&*file);
    assert_eq!(bytes.len(), 99);
    let changed: Vec<usize> = (0..99).filter(|&at| bytes[at] != 0).collect();
    assert_eq!(changed, [11, 90, 91, 92, 93, 94]);
    assert_eq!(bytes[11], 128);
    assert_eq!(after(&disk, Crash::Lost), bytes);

    assert_eq!(kind(disk.flip_bit("b", 0, 0)), Some(ErrorKind::NotFound));
    assert_eq!(kind(disk.flip_bit("a", 99, 0)), Some(ErrorKind::UnexpectedEof));
    assert_eq!(kind(disk.flip_bit("a", 0, 8)), Some(ErrorKind::InvalidInput));
    assert_eq!(kind(disk.corrupt("a", 98, 2)), Some(ErrorKind::UnexpectedEof));
    assert_eq!(kind(disk.truncate("b", 0)), Some(ErrorKind::NotFound));
    assert_eq!(contents(&*file), bytes);
}

#[test]
fn the_trace_tells_what_was_done() {
    let (disk, file) = disk_with(1, b"abc");
    file.set_len(7).unwrap();
    file.read_at(&mut [0; 4], 2).unwrap();
    disk.set_faults(Faults { read_error: 1.0, ..Faults::default() });
    let error = file.read_at(&mut [0; 4], 2).unwrap_err();
    assert_eq!(error.to_string(), "simulated I/O error: read a, 4 bytes at 2");
    disk.set_faults(Faults { crash_after: Some(1), ..Faults::default() });
    disk.rename("a", "b").unwrap();
    disk.remove("b").unwrap_err();
    let expected = "     1 make a
     2 write a, 3 bytes at 0
     3 sync a
     4 sync the directory
     5 set length of a to 7
     5 read a, 4 bytes at 2: failed
     6 rename a to b
     7 remove b: interrupted, the machine is off
";
    assert_eq!(disk.trace(), expected);
}
