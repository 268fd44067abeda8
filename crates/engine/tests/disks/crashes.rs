//! What a crash leaves: what was synced, and of the rest anything that may be.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_engine::disk::{Crash, Disk, Faults, SECTOR, SimulatedDisk};

use crate::{Random, after, contents, disk_with, new_file, old_file};

const CRASHES: [Crash; 4] = [Crash::Kept, Crash::Lost, Crash::Random, Crash::Weak];

/// Sectors of one letter each as a word of these letters; `.` stands for zeros.
fn word(bytes: &[u8]) -> String {
    let letter = |sector: &[u8]| {
        assert!(sector.iter().all(|&byte| byte == sector[0]), "a sector is mixed: {sector:?}");
        if sector[0] == 0 { '.' } else { char::from(sector[0]) }
    };
    bytes.chunks(SECTOR).map(letter).collect()
}

fn sectors(word: &str) -> Vec<u8> {
    word.bytes().flat_map(|letter| [letter; SECTOR]).collect()
}

/// The example of the module's head: kept, dropped, torn and reordered writes are all among these.
#[test]
fn a_random_crash_leaves_every_outcome_of_the_example_and_no_other() {
    let (disk, file) = disk_with(1, &sectors("AA"));
    file.write_at(&sectors("BB"), 0).unwrap();
    file.write_at(&sectors("CC"), SECTOR as u64).unwrap();
    let seen: BTreeSet<String> = (0..3_000).map(|_| word(&after(&disk, Crash::Random))).collect();
    let mut expected = BTreeSet::new();
    for first in ["A", "B"] {
        for second in ["A", "B", "C"] {
            for third in ["", ".", "C"] {
                expected.insert([first, second, third].concat());
            }
        }
    }
    assert_eq!(seen, expected);
}

/// Each of the four happens to one write in twenty at least.
#[test]
fn a_large_write_is_kept_or_dropped_or_torn_in_one_of_two_ways() {
    let (disk, file) = disk_with(1, &[b'A'; 32 * SECTOR]);
    file.write_at(&[b'B'; 32 * SECTOR], 0).unwrap();
    let [mut kept, mut dropped, mut prefixes, mut scattered] = [0; 4];
    for _ in 0..1_000 {
        let word = word(&after(&disk, Crash::Random));
        match word.trim_start_matches('B') {
            "" => kept += 1,
            rest if rest.len() == 32 && !rest.contains('B') => dropped += 1,
            rest if !rest.contains('B') => prefixes += 1,
            _ => scattered += 1,
        }
    }
    let least = kept.min(dropped).min(prefixes).min(scattered);
    assert!(least > 50, "{kept} kept, {dropped} dropped, {prefixes} and {scattered} torn");
}

/// Two writes into one sector: the second does not survive without the first, because the sector
/// is written with both or not at all.
#[test]
fn a_sector_survives_as_it_was_at_one_moment() {
    let (disk, file) = disk_with(1, &[1; 4]);
    file.write_at(&[2; 2], 0).unwrap();
    file.write_at(&[3; 2], 2).unwrap();
    let seen: BTreeSet<Vec<u8>> = (0..200).map(|_| after(&disk, Crash::Random)).collect();
    let moments = [[1, 1, 1, 1], [2, 2, 1, 1], [2, 2, 3, 3]];
    assert_eq!(seen, moments.map(Vec::from).into());
}

/// Cut to one sector and grown again. Until the journal has the cut the old sectors are there.
#[test]
fn a_cut_survives_with_what_comes_after_it_or_not() {
    let (disk, file) = disk_with(1, &sectors("AAA"));
    file.set_len(SECTOR as u64).unwrap();
    file.write_at(&sectors("B"), 2 * SECTOR as u64).unwrap();
    let seen: BTreeSet<String> = (0..1_000).map(|_| word(&after(&disk, Crash::Random))).collect();
    let expected = ["AAA", "AAB", "A", "A..", "A.B"];
    assert_eq!(seen, expected.map(String::from).into());
}

#[test]
fn names_survive_in_order_or_in_any() {
    let (disk, _file) = disk_with(1, b"");
    new_file(&disk, "b");
    disk.rename("a", "c").unwrap();
    new_file(&disk, "d");
    let seen = |crash| -> BTreeSet<String> {
        (0..200).map(|_| disk.crash(crash).list().unwrap().concat()).collect()
    };
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let table: [(Crash, BTreeSet<String>); 4] = [
        (Crash::Kept, words(&["bcd"])),
        (Crash::Lost, words(&["a"])),
        (Crash::Random, words(&["a", "ab", "bc", "bcd"])),
        (Crash::Weak, words(&["a", "ab", "c", "bc", "ad", "abd", "cd", "bcd"])),
    ];
    for (crash, expected) in table {
        assert_eq!(seen(crash), expected, "{crash:?}");
    }
}

/// Also in no order a rename moves the file that was renamed and no other, and leaves it one name.
#[test]
fn a_rename_moves_the_file_it_was_made_for() {
    let (disk, _file) = disk_with(1, b"old");
    disk.remove("a").unwrap();
    let new = new_file(&disk, "a");
    new.write_at(b"new", 0).unwrap();
    new.sync().unwrap();
    disk.rename("a", "b").unwrap();
    let seen: BTreeSet<Vec<(String, String)>> = (0..200)
        .map(|_| {
            let image = disk.crash(Crash::Weak).image().into_iter();
            image.map(|(name, bytes)| (name, String::from_utf8(bytes).unwrap())).collect()
        })
        .collect();
    let file = |name: &str, bytes: &str| (name.to_owned(), bytes.to_owned());
    let (old, new, moved) = (file("a", "old"), file("a", "new"), file("b", "new"));
    let both = vec![old.clone(), moved.clone()];
    assert_eq!(seen, [vec![], vec![old], vec![new], vec![moved], both].into());
}

#[test]
fn a_file_has_one_name_in_every_crash() {
    let (disk, _file) = disk_with(1, b"");
    disk.rename("a", "b").unwrap();
    disk.rename("b", "c").unwrap();
    let names = |crash| disk.crash(crash).list().unwrap().concat();
    let seen: BTreeSet<String> = (0..100).map(|_| names(Crash::Weak)).collect();
    assert_eq!(seen, ["a", "b", "c"].map(String::from).into());
}

#[test]
fn a_file_that_was_made_and_removed_may_be_there() {
    let (disk, _file) = disk_with(1, b"");
    new_file(&disk, "b");
    disk.remove("b").unwrap();
    drop(old_file(&disk, "a"));
    let lens: BTreeSet<usize> = (0..50)
        .map(|_| {
            let crashed = disk.crash(Crash::Random);
            let names = crashed.list().unwrap();
            names.iter().filter(|name| old_file(&crashed, name).is_empty().unwrap()).count()
        })
        .collect();
    assert_eq!(lens, BTreeSet::from([1, 2]));
}

/// A file that is replaced as it should be is the old one or the new one, whole, in every crash.
#[test]
fn a_synced_file_replaces_another_whole() {
    for crash in CRASHES {
        let mut seen = BTreeSet::new();
        for seed in 0..50 {
            let (disk, _file) = disk_with(seed, b"old");
            let new = new_file(&disk, "new");
            new.write_at(b"newer", 0).unwrap();
            new.sync().unwrap();
            disk.rename("new", "a").unwrap();
            seen.insert(after(&disk, crash));
            disk.sync_directory().unwrap();
            assert_eq!(after(&disk, crash), b"newer", "{crash:?}, seed {seed}");
        }
        let (old, new) = (b"old".to_vec(), b"newer".to_vec());
        let expected = match crash {
            Crash::Kept => BTreeSet::from([new]),
            Crash::Lost => BTreeSet::from([old]),
            Crash::Random | Crash::Weak => BTreeSet::from([old, new]),
        };
        assert_eq!(seen, expected, "{crash:?}");
    }
}

/// A sync makes bytes durable and not the name.
#[test]
fn a_synced_file_without_a_synced_name_can_vanish() {
    let disk = SimulatedDisk::new(1, Faults::default());
    new_file(&disk, "a").sync().unwrap();
    assert!(disk.crash(Crash::Lost).list().unwrap().is_empty());
    assert_eq!(disk.crash(Crash::Kept).list().unwrap(), ["a"]);
}

#[test]
fn what_a_killed_process_wrote_is_still_not_synced() {
    let (disk, file) = disk_with(1, b"abc");
    file.write_at(b"xyz", 0).unwrap();
    let killed = disk.crash(Crash::Kept);
    assert_eq!(contents(&*old_file(&killed, "a")), b"xyz");
    assert_eq!(after(&killed, Crash::Lost), b"abc");
    old_file(&killed, "a").sync().unwrap();
    assert_eq!(after(&killed, Crash::Lost), b"xyz");
}

/// Where a file grew and nothing arrived: zeros, noise, or a sector of the file that was removed.
#[test]
fn only_a_weak_crash_leaves_what_was_never_written_there() {
    let (disk, file) = disk_with(1, &sectors("A"));
    let removed = new_file(&disk, "removed");
    removed.write_at(&sectors("R"), 0).unwrap();
    drop(removed);
    disk.remove("removed").unwrap();
    disk.sync_directory().unwrap();
    file.set_len(3 * SECTOR as u64).unwrap();
    let (mut zeros, mut noise, mut leftovers) = (0, 0, 0);
    for _ in 0..300 {
        let bytes = after(&disk, Crash::Random);
        assert!(["A", "A.."].contains(&word(&bytes).as_str()), "{bytes:?}");
        let bytes = after(&disk, Crash::Weak);
        assert_eq!(word(&bytes[..SECTOR]), "A");
        for sector in bytes[SECTOR..].chunks(SECTOR) {
            match sector {
                _ if sector == [0; SECTOR] => zeros += 1,
                _ if sector == [b'R'; SECTOR] => leftovers += 1,
                _ if sector == [b'A'; SECTOR] => {}
                _ => noise += 1,
            }
        }
    }
    let least = zeros.min(noise).min(leftovers);
    assert!(least > 10, "{zeros} of zeros, {noise} of noise, {leftovers} left over");
}

/// A set of bytes: a bit for each. The tests have one for each byte of a file.
#[derive(Clone, Copy)]
struct ByteSet([u128; 2]);

impl ByteSet {
    fn of(byte: u8) -> ByteSet {
        let mut set = ByteSet([0; 2]);
        set.insert(byte);
        set
    }

    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte / 128)] |= 1 << (byte % 128);
    }

    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 128)] >> (byte % 128) & 1 == 1
    }
}

/// All the values that each byte of a file may have after a random crash.
#[derive(Default)]
struct History {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// By position, since the last sync.
    values: Vec<ByteSet>,
    lens: BTreeSet<usize>,
}

impl History {
    /// The file is now `now`, and positions from `from` on may have changed.
    fn change(&mut self, now: Vec<u8>, from: usize) {
        let end = now.len().max(self.now.len());
        self.values.resize(end.max(self.values.len()), ByteSet::of(0));
        for at in from.min(self.now.len())..end {
            self.values[at].insert(now.get(at).copied().unwrap_or(0));
        }
        self.lens.insert(now.len());
        self.now = now;
    }

    fn sync(&mut self) {
        self.synced.clone_from(&self.now);
        self.values = self.now.iter().map(|&byte| ByteSet::of(byte)).collect();
        self.lens = BTreeSet::from([self.now.len()]);
    }

    /// Whether a crash may leave these bytes.
    fn allows(&self, crash: Crash, bytes: &[u8]) -> bool {
        let grown_from = self.lens.first().copied().unwrap_or(0);
        let is_garbage = |at| crash == Crash::Weak && at >= grown_from;
        match crash {
            Crash::Kept => bytes == self.now,
            Crash::Lost => bytes == self.synced,
            Crash::Random | Crash::Weak => {
                let mut places = bytes.iter().enumerate();
                self.lens.contains(&bytes.len())
                    && places.all(|(at, &byte)| is_garbage(at) || self.values[at].contains(byte))
            }
        }
    }
}

/// One random change of one of two files, on the disk and in its history.
fn step(disk: &SimulatedDisk, files: &mut BTreeMap<&str, History>, random: &mut Random, value: u8) {
    let name = ["a", "b"][random.index(2)];
    let file = old_file(disk, name);
    let history = files.entry(name).or_default();
    let (at, len) = (random.index(8_000), 1 + random.index(3_000));
    let mut now = history.now.clone();
    match random.index(8) {
        0 => {
            file.sync().unwrap();
            history.sync();
        }
        1 => {
            file.set_len(at as u64).unwrap();
            now.resize(at, 0);
            history.change(now, at);
        }
        _ => {
            file.write_at(&vec![value; len], at as u64).unwrap();
            now.resize(now.len().max(at + len), 0);
            now[at..at + len].fill(value);
            history.change(now, at);
        }
    }
}

/// Random work and crashes in turns: every byte is the synced one or one written afterwards, and
/// every length one there was.
#[test]
fn every_byte_that_survives_was_there() {
    for seed in 0..200 {
        let mut random = Random::new(!seed);
        let mut disk = SimulatedDisk::new(seed, Faults::default());
        let mut files = BTreeMap::new();
        for name in ["a", "b"] {
            new_file(&disk, name);
            files.insert(name, History { lens: BTreeSet::from([0]), ..History::default() });
        }
        disk.sync_directory().unwrap();
        for round in 0..4 {
            (1..=20).for_each(|value| step(&disk, &mut files, &mut random, round * 20 + value));
            let crash = CRASHES[random.index(CRASHES.len())];
            let crashed = disk.crash(crash);
            for (name, history) in &mut files {
                let bytes = contents(&*old_file(&crashed, name));
                let trace = disk.trace();
                assert!(history.allows(crash, &bytes), "seed {seed}, {crash:?}, {name}:\n{trace}");
                if crash != Crash::Kept {
                    history.now = bytes;
                    history.sync();
                }
            }
            disk = crashed;
        }
    }
}

/// The images after a crash of each kind, and after a fork and its crashes.
fn images(seed: u64) -> Vec<BTreeMap<String, Vec<u8>>> {
    let mut random = Random::new(!1);
    let disk = SimulatedDisk::new(seed, Faults { sync_error: 0.1, ..Faults::default() });
    let files = ["a", "b", "c"].map(|name| new_file(&disk, name));
    for fill in 0..100 {
        let file = &files[random.index(3)];
        let (len, at) = (random.index(3_000), random.index(9_000));
        file.write_at(&vec![fill; len], at as u64).unwrap();
        let _may_fail = if fill % 10 == 0 { file.sync() } else { Ok(()) };
        let _may_fail = if fill == 50 { disk.sync_directory() } else { Ok(()) };
    }
    let crashes = CRASHES.map(|crash| disk.crash(crash).image());
    let fork = disk.fork();
    let forked = CRASHES.map(|crash| fork.crash(crash).image());
    let again = CRASHES.map(|crash| disk.crash(crash).image());
    assert_eq!(forked, again, "a fork draws what its origin draws");
    [crashes, forked].concat()
}

#[test]
fn a_seed_decides_everything() {
    let runs: Vec<_> = (0..5).map(images).collect();
    assert_eq!(runs, (0..5).map(images).collect::<Vec<_>>());
    let different: BTreeSet<_> = runs.into_iter().collect();
    assert_eq!(different.len(), 5);
}

#[test]
fn a_fork_is_a_disk_of_its_own() {
    let (disk, file) = disk_with(1, b"abc");
    let fork = disk.fork();
    assert_eq!(fork.image(), disk.image());
    file.write_at(b"x", 0).unwrap();
    old_file(&fork, "a").write_at(b"y", 0).unwrap();
    fork.remove("a").unwrap();
    assert_eq!(contents(&*file), b"xbc");
    assert_eq!(disk.list().unwrap(), ["a"]);
    assert_eq!(fork.operations(), disk.operations() + 1);
}
