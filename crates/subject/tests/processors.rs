//! Processor sets and foreign databases, on process trees that are really there.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests, which may")]

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_subject::detection::foreign_databases;
use tidegate_subject::process::Process;
use tidegate_subject::processors::{Processors, ProcessorsError};

/// Set in the process of a test that started itself anew.
const ALONE: &str = "TIDEGATE_TEST_ALONE";

/// A shell with a child and a grandchild, all there.
fn family() -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", "sh -c 'sleep 60 & wait' & wait"]);
    Process::start("family", command).unwrap()
}

/// The same, stopped from the youngest to the oldest.
struct Family(Process);

impl Family {
    fn of(process: Process, processors: &Processors) -> Self {
        let family = Family(process);
        let patience = Instant::now() + Duration::from_secs(20);
        while family.members().len() < 3 {
            assert!(Instant::now() < patience, "no grandchild on {processors}");
            std::thread::sleep(Duration::from_millis(10));
        }
        family
    }

    fn members(&self) -> Vec<u32> {
        let mut members = vec![self.0.id()];
        let mut next = 0;
        while let Some(&member) = members.get(next) {
            next += 1;
            let path = format!("/proc/{member}/task/{member}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            members
                .extend(children.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
        members
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        // Children first: without their parent they would be nobody's.
        for member in self.members().into_iter().skip(1).rev() {
            let _ = Command::new("kill").arg(member.to_string()).stderr(Stdio::null()).status();
        }
    }
}

#[test]
fn a_tree_started_on_a_set_stays_there_and_one_that_is_elsewhere_is_named() {
    let all = Processors::available().unwrap();
    let one = all.first(1).unwrap();
    let family = Family::of(one.during(family).unwrap(), &one);
    assert_eq!(Processors::available().unwrap(), all);
    assert!(family.members().len() >= 3);
    one.verify(family.0.id()).unwrap();
    if all.count() < 2 {
        eprintln!("skipped the rest: one processor only");
        return;
    }
    let error = all.verify(family.0.id()).unwrap_err();
    assert!(matches!(&error, ProcessorsError::Elsewhere { found, .. } if *found == one), "{error}");

    // One of the tree goes elsewhere; then all are held.
    let grandchild = *family.members().last().unwrap();
    all.hold(grandchild).unwrap();
    let error = one.verify(family.0.id()).unwrap_err();
    let ProcessorsError::Elsewhere { process, found, set, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((*process, found, set), (grandchild, &all, &one));
    one.hold(family.0.id()).unwrap();
    one.verify(family.0.id()).unwrap();
}

#[test]
fn sets_that_cannot_be_are_refused() {
    let all = Processors::available().unwrap();
    for wanted in [0, all.count() + 1] {
        assert!(matches!(all.first(wanted), Err(ProcessorsError::TooFew { .. })));
    }
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    assert!(matches!(all.verify(ended.id()), Err(ProcessorsError::NoTree(_))));
    assert!(matches!(all.hold(ended.id()), Err(ProcessorsError::NoTree(_))));
}

#[test]
fn a_panic_gives_the_thread_its_processors_back() {
    let all = Processors::available().unwrap();
    let one = all.first(1).unwrap();
    let panicked = std::panic::catch_unwind(|| one.during(|| panic!("on purpose")));
    assert!(panicked.is_err());
    assert_eq!(Processors::available().unwrap(), all);
}

/// In a process of its own, because it moves every test that runs beside it.
#[test]
fn we_are_kept_to_a_set_until_we_are_let_go() {
    let all = Processors::available().unwrap();
    if std::env::var_os(ALONE).is_none() {
        let us = std::env::current_exe().unwrap();
        let name = "we_are_kept_to_a_set_until_we_are_let_go";
        let status = Command::new(us).args(["--exact", name]).env(ALONE, "1").status().unwrap();
        assert!(status.success());
        return;
    }
    let one = all.first(1).unwrap();
    let (say, said) = std::sync::mpsc::channel::<()>();
    let (ask, asked) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        for () in said {
            ask.send(Processors::available().unwrap()).unwrap();
        }
    });
    let of_other = || {
        say.send(()).unwrap();
        asked.recv().unwrap()
    };
    let held = one.hold_ourselves().unwrap();
    assert_eq!((Processors::available().unwrap(), of_other()), (one.clone(), one));
    drop(held);
    assert_eq!((Processors::available().unwrap(), of_other()), (all.clone(), all));
    drop(say);
    other.join().unwrap();
}

#[test]
fn a_database_that_is_not_ours_is_seen_with_what_it_uses() {
    let directory = tempfile::tempdir().unwrap();
    // A shell that is called like a database and works.
    let program = directory.path().join("mysqld");
    symlink("/bin/sh", &program).unwrap();
    let mut command = Command::new(&program);
    command.args(["-c", "while :; do :; done"]);
    let process = Process::start("a busy database", command).unwrap();
    let found = foreign_databases(&[], Duration::from_millis(500));
    let ours: Vec<_> = found.iter().filter(|of| of.process_id == process.id()).collect();
    assert_eq!(ours.len(), 1, "{found:?}");
    assert_eq!(ours[0].name, "mysqld");
    assert!(ours[0].cpu_s > 0.0);
    let without = foreign_databases(&[process.id()], Duration::ZERO);
    assert!(without.iter().all(|of| of.process_id != process.id()), "{without:?}");
}
