//! What only real files have: a lock, a directory, flags.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use tempfile::TempDir;
use tidegate_engine::disk::{Disk, FileDisk, IoMode, Open};

use crate::{kind, new_file};

fn open(directory: &Path) -> io::Result<FileDisk> {
    FileDisk::open(directory, IoMode::Buffered)
}

#[test]
fn a_directory_is_open_once_until_the_disk_and_its_files_are_dropped() {
    let directory = TempDir::new().unwrap();
    let disk = open(directory.path()).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("is open already: close it"), "{error}");

    let file = new_file(&disk, "a");
    drop(disk);
    assert_eq!(kind(open(directory.path())), Some(ErrorKind::ResourceBusy));
    drop(file);
    assert_eq!(open(directory.path()).unwrap().list().unwrap(), ["a"]);
}

/// Tells the second process of the test below that it is the second, and which directory to open.
const DIRECTORY: &str = "TIDEGATE_TEST_DIRECTORY";

const OPENED: &str = "the directory is open";

/// The test starts itself a second time as a process that opens the directory and waits.
#[test]
fn a_process_that_is_killed_lets_go_of_the_directory() {
    if let Some(directory) = env::var_os(DIRECTORY) {
        let _disk = open(Path::new(&directory)).unwrap();
        println!("\n{OPENED}");
        // Until the first process kills this one, or ends.
        io::stdin().lines().for_each(drop);
        return;
    }
    let directory = TempDir::new().unwrap();
    let mut holder = Command::new(env::current_exe().unwrap())
        .args(["--exact", "real::a_process_that_is_killed_lets_go_of_the_directory"])
        .arg("--nocapture")
        .env(DIRECTORY, directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let has_opened = lines.any(|line| line.unwrap() == OPENED);
    let while_alive = kind(open(directory.path()));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(has_opened, "the second process did not open the directory");
    assert_eq!(while_alive, Some(ErrorKind::ResourceBusy));
    assert_eq!(kind(open(directory.path())), None);
}

#[test]
fn a_directory_is_created_if_it_holds_no_files() {
    let parent = TempDir::new().unwrap();
    let create = |name: &str| FileDisk::create(&parent.path().join(name), IoMode::Buffered);
    let disk = create("store").unwrap();
    new_file(&disk, "a");
    drop(disk);
    assert_eq!(kind(create("store")), Some(ErrorKind::DirectoryNotEmpty));
    assert_eq!(kind(create("missing/store")), Some(ErrorKind::NotFound));
    assert_eq!(kind(open(&parent.path().join("missing"))), Some(ErrorKind::NotFound));
    assert_eq!(kind(open(&parent.path().join("store/a"))), Some(ErrorKind::NotADirectory));
    let disk = open(&parent.path().join("store")).unwrap();
    disk.remove("a").unwrap();
    drop(disk);
    assert_eq!(kind(create("store")), None);
}

#[test]
fn only_regular_files_are_files() {
    let directory = TempDir::new().unwrap();
    let disk = open(directory.path()).unwrap();
    new_file(&disk, "file");
    fs::create_dir(directory.path().join("directory")).unwrap();
    symlink(directory.path().join("file"), directory.path().join("link")).unwrap();
    assert_eq!(disk.list().unwrap(), ["file"]);
    for name in ["directory", "link"] {
        assert!(disk.open(name, Open::Existing).is_err(), "{name}");
    }
}

#[test]
fn errors_name_the_file() {
    let directory = TempDir::new().unwrap();
    let disk = open(directory.path()).unwrap();
    let file = new_file(&disk, "a.pages");
    let path = directory.path().canonicalize().unwrap().join("a.pages");
    let error = file.read_at(&mut [0; 10], 7).unwrap_err().to_string();
    let expected = format!("cannot read 10 bytes at offset 7 of {}: ", path.display());
    assert!(error.starts_with(&expected), "{error}");
}

/// Whether a file that this process has open was opened with `O_DIRECT`, as the system tells.
fn is_direct(path: &Path) -> bool {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap());
    let ours = |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|link| link == path);
    let descriptor = descriptors.filter(ours).last().unwrap().file_name();
    let info = fs::read_to_string(Path::new("/proc/self/fdinfo").join(descriptor)).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
    OFlags::from_bits_retain(u32::from_str_radix(flags, 8).unwrap()).contains(OFlags::DIRECT)
}

#[test]
fn direct_io_is_for_pages() {
    for mode in [IoMode::Buffered, IoMode::Direct] {
        let directory = TempDir::new().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let disk = match FileDisk::open(&path, mode) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                println!("{mode:?} is left out: {error}");
                continue;
            }
            disk => disk.unwrap(),
        };
        for (name, expected) in [("a.pages", mode == IoMode::Direct), ("log", false)] {
            let _file = new_file(&disk, name);
            assert_eq!(is_direct(&path.join(name)), expected, "{name}, {mode:?}");
        }
    }
}
