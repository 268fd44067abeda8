//! What every disk does, real or simulated: the same tests over all of them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;

use tempfile::TempDir;
use tidegate_engine::disk::{
    ALIGNMENT, Disk, Faults, FileDisk, IoMode, MemoryDisk, Open, SimulatedDisk, TimedDisk,
};

use crate::{Random, contents, kind, new_file, old_file};

struct Subject {
    name: &'static str,
    disk: Box<dyn Disk>,
    _directory: Option<TempDir>,
}

/// One empty disk of each kind that this machine has.
fn subjects() -> Vec<Subject> {
    let in_memory: [(&str, Box<dyn Disk>); 3] = [
        ("simulated", Box::new(SimulatedDisk::new(1, Faults::default()))),
        ("memory", Box::new(MemoryDisk::new())),
        ("timed", Box::new(TimedDisk::new(Arc::new(MemoryDisk::new())))),
    ];
    let subject = |(name, disk)| Subject { name, disk, _directory: None };
    let mut subjects: Vec<Subject> = in_memory.into_iter().map(subject).collect();
    for (name, mode) in [("buffered", IoMode::Buffered), ("direct", IoMode::Direct)] {
        let directory = TempDir::new().unwrap();
        match FileDisk::open(directory.path(), mode) {
            Ok(disk) => {
                let disk = Box::new(disk);
                subjects.push(Subject { name, disk, _directory: Some(directory) });
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                println!("{name} is left out: {error}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
    subjects
}

/// Memory that starts `misalignment` bytes after a multiple of [`ALIGNMENT`].
struct Memory {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Memory {
    fn new(len: usize, misalignment: usize) -> Memory {
        let bytes = vec![0; len + 2 * ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT) + misalignment;
        Memory { bytes, start, len }
    }

    fn slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

/// An offset or a length: whole blocks or not, sometimes 0.
fn extent(random: &mut Random) -> usize {
    match random.index(4) {
        0 | 1 => random.index(5) * ALIGNMENT,
        2 => random.index(20_000),
        _ => random.index(600),
    }
}

type Model = BTreeMap<String, Vec<u8>>;

/// One random operation on the disk and on the model, which must agree about its success.
fn step(disk: &dyn Disk, model: &mut Model, random: &mut Random, value: u8) {
    const NAMES: [&str; 4] = ["a.pages", "b.pages", "c.log", "d"];
    let name = NAMES[random.index(NAMES.len())];
    let other = NAMES[random.index(NAMES.len())];
    let is_there = model.contains_key(name);
    match random.index(20) {
        0 | 1 => {
            let made = disk.open(name, Open::New);
            assert_eq!(kind(made), is_there.then_some(ErrorKind::AlreadyExists), "new {name}");
            model.entry(name.into()).or_default();
        }
        2 => {
            let missing = (!is_there).then_some(ErrorKind::NotFound);
            assert_eq!(kind(disk.remove(name)), missing, "remove {name}");
            model.remove(name);
        }
        3 => {
            let missing = (!is_there).then_some(ErrorKind::NotFound);
            assert_eq!(kind(disk.rename(name, other)), missing, "rename {name} to {other}");
            if let Some(bytes) = model.remove(name) {
                model.insert(other.into(), bytes);
            }
        }
        4 => disk.sync_directory().unwrap(),
        choice => match model.get_mut(name) {
            None => {
                let missing = disk.open(name, Open::Existing);
                assert_eq!(kind(missing), Some(ErrorKind::NotFound), "open {name}");
            }
            Some(bytes) => change(disk, name, bytes, choice, random, value),
        },
    }
}

/// One random operation on a file that is there.
fn change(
    disk: &dyn Disk,
    name: &str,
    model: &mut Vec<u8>,
    choice: usize,
    random: &mut Random,
    value: u8,
) {
    let file = old_file(disk, name);
    let (at, len) = (extent(random), extent(random));
    let mut memory = Memory::new(len, random.index(2));
    match choice {
        5 => file.sync().unwrap(),
        6 | 7 => {
            file.set_len(at as u64).unwrap();
            model.resize(at, 0);
        }
        8..=13 => {
            memory.slice().fill(value);
            file.write_at(memory.slice(), at as u64).unwrap();
            if len > 0 {
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].fill(value);
            }
        }
        _ => {
            let read = file.read_at(memory.slice(), at as u64);
            match model.get(at..at + len) {
                Some(expected) => assert!(memory.slice() == expected, "{len} at {at} of {name}"),
                None if len == 0 => assert_eq!(kind(read), None, "nothing beyond {name}"),
                None => assert_eq!(kind(read), Some(ErrorKind::UnexpectedEof), "{name}"),
            }
        }
    }
    assert_eq!(file.len().unwrap(), model.len() as u64, "length of {name}");
}

/// Random operations against a map from names to bytes.
#[test]
fn a_disk_is_a_map_of_names_to_bytes() {
    for seed in 1..=40 {
        for Subject { name: subject, disk, .. } in subjects() {
            println!("seed {seed}, {subject}");
            let (mut random, mut model) = (Random::new(!seed), Model::new());
            for value in 1..=150 {
                step(&*disk, &mut model, &mut random, value);
            }
            let found: Model =
                disk.list().unwrap().into_iter().fold(Model::new(), |mut all, name| {
                    let bytes = contents(&*old_file(&*disk, &name));
                    all.insert(name, bytes);
                    all
                });
            assert!(found == model, "seed {seed}, {subject}: other contents");
        }
    }
}

#[test]
fn a_file_without_a_name_lives_as_long_as_it_is_open() {
    for Subject { name: subject, disk, .. } in subjects() {
        let [removed, replaced, renamed] = ["x", "y", "z"].map(|name| {
            let file = new_file(&*disk, name);
            file.write_at(name.as_bytes(), 0).unwrap();
            file
        });
        disk.remove("x").unwrap();
        disk.rename("z", "y").unwrap();
        disk.sync_directory().unwrap();
        assert_eq!(disk.list().unwrap(), ["y"], "{subject}");
        removed.write_at(b"xx", 1).unwrap();
        renamed.write_at(b"zz", 1).unwrap();
        let files = [removed, replaced, renamed].map(|file| contents(&*file));
        assert_eq!(files, [&b"xxx"[..], b"y", b"zzz"], "{subject}");
        assert_eq!(contents(&*old_file(&*disk, "y")), b"zzz", "{subject}");
    }
}

#[test]
fn what_is_no_name_of_a_file_is_refused() {
    let long = "n".repeat(256);
    for Subject { name: subject, disk, .. } in subjects() {
        new_file(&*disk, "a");
        for name in ["", ".", "..", "../a", "/a", "a/b", "a\0b", "lock", &long] {
            let results = [
                kind(disk.open(name, Open::New)),
                kind(disk.open(name, Open::Existing)),
                kind(disk.remove(name)),
                kind(disk.rename("a", name)),
                kind(disk.rename(name, "b")),
            ];
            assert_eq!(results, [Some(ErrorKind::InvalidInput); 5], "{subject}: {name:?}");
        }
        new_file(&*disk, &long[..255]);
        new_file(&*disk, "...");
        assert_eq!(disk.list().unwrap(), ["...", "a", &long[..255]], "{subject}");
    }
}

/// Four threads write the bytes of one file in turns of 1,000, so that most blocks are shared.
#[test]
fn threads_do_not_undo_each_others_writes() {
    const THREADS: usize = 4;
    const TURNS: usize = 40;
    for Subject { name: subject, disk, .. } in subjects() {
        let file = new_file(&*disk, "shared.pages");
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let file = Arc::clone(&file);
                scope.spawn(move || {
                    for turn in 0..TURNS {
                        let bytes = [u8::try_from(thread * TURNS + turn).unwrap(); 1_000];
                        let offset = (turn * THREADS + thread) * 1_000;
                        file.write_at(&bytes, offset as u64).unwrap();
                    }
                });
            }
        });
        let bytes = contents(&*file);
        assert_eq!(bytes.len(), THREADS * TURNS * 1_000, "{subject}");
        for (index, chunk) in bytes.chunks(1_000).enumerate() {
            let (turn, thread) = (index / THREADS, index % THREADS);
            let expected = [u8::try_from(thread * TURNS + turn).unwrap(); 1_000];
            assert!(chunk == expected, "{subject}: turn {turn} of thread {thread}");
        }
    }
}

/// One thread writes a block whole and looks at it, while another writes one byte of it.
#[test]
fn writing_a_part_of_a_block_does_not_undo_the_writing_of_the_whole() {
    const PART: usize = 100;
    for Subject { name: subject, disk, .. } in subjects() {
        let file = new_file(&*disk, "block.pages");
        file.set_len(ALIGNMENT as u64).unwrap();
        thread::scope(|scope| {
            let part = Arc::clone(&file);
            scope.spawn(move || {
                (0..300).for_each(|_| part.write_at(&[0], PART as u64).unwrap());
            });
            let mut memory = Memory::new(ALIGNMENT, 0);
            for round in (1..=100).cycle().take(300) {
                memory.slice().fill(round);
                file.write_at(memory.slice(), 0).unwrap();
                file.read_at(memory.slice(), 0).unwrap();
                memory.slice()[PART] = round;
                assert!(memory.slice().iter().all(|&byte| byte == round), "{subject}, {round}");
            }
        });
    }
}

/// A copy of files in memory has what was there, and neither sees the other's changes.
#[test]
fn a_fork_of_files_in_memory_goes_its_own_way() {
    let mut random = Random::new(5);
    let disk = MemoryDisk::new();
    let file = new_file(&disk, "a");
    let len = 300_000;
    let byte = |random: &mut Random| u8::try_from(random.index(256)).unwrap();
    let mut model: Vec<u8> = (0..len).map(|_| byte(&mut random)).collect();
    file.write_at(&model, 0).unwrap();
    let fork = disk.fork();
    let copy = old_file(&fork, "a");
    let before = model.clone();
    for _ in 0..200 {
        let at = random.index(len - 1_000);
        let bytes = vec![byte(&mut random); random.index(1_000)];
        file.write_at(&bytes, at as u64).unwrap();
        model[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    copy.set_len(70_000).unwrap();
    copy.set_len(80_000).unwrap();
    new_file(&fork, "b");
    assert!(contents(&*file) == model, "the first has its own changes");
    let mut expected = before[..70_000].to_vec();
    expected.resize(80_000, 0);
    assert!(contents(&*copy) == expected, "the second has what it was made of");
    assert_eq!(disk.list().unwrap(), ["a"]);
    assert_eq!(fork.list().unwrap(), ["a", "b"]);
}
