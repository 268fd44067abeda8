//! The anomalies by name, each played step by step at every level.
//!
//! A script says which transaction does what, in order. Who waits for a lock is passed over, and
//! catches up as soon as it can. Where the level permits the anomaly it must come about, and the
//! checker must find it and nothing else; where not, somebody must have waited or been rolled back,
//! and the checker must find nothing.

use std::fmt::Write;

use tidegate_engine::{Direction, Isolation};

use super::LEVELS;
use super::checker::{Anomaly, check};
use super::client::{Plan, Span, Step};
use super::history::Key;
use super::run::{Outcome, Pace, Setup, run};

/// What one transaction does in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Do {
    Step(Step),
    /// Goes on with a walk.
    On,
    Commit,
    RollBack,
}

/// What comes of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It happens.
    Shows(Anomaly),
    /// Somebody waits until it cannot happen.
    Waits,
    /// Somebody is rolled back because of a deadlock.
    Conflicts,
    /// It does not happen, and nobody has to wait.
    Passes,
}

use Do::{Commit, On, RollBack};
use Verdict::{Conflicts, Passes, Shows, Waits};

/// A script, and what comes of it at each level: read uncommitted, read committed, repeatable read,
/// serializable.
struct Script {
    name: &'static str,
    turns: &'static [(usize, Do)],
    verdicts: [Verdict; 4],
}

/// Keys that are there, with nothing between them.
const X: Key = 10;
const Y: Key = 20;
const Z: Key = 30;

const MARK: Do = Do::Step(Step::Mark);
const UNDO: Do = Do::Step(Step::Undo);

const fn get(key: Key) -> Do {
    Do::Step(Step::Get(key))
}

const fn put(key: Key) -> Do {
    Do::Step(Step::Put(key))
}

const fn insert(key: Key) -> Do {
    Do::Step(Step::Insert(key))
}

const fn remove(key: Key) -> Do {
    Do::Step(Step::Remove(key))
}

const fn span(low: Key, high: Key, way: Direction) -> Span {
    Span { low, high, way, is_open: false, most: usize::MAX }
}

const fn scan(low: Key, high: Key) -> Do {
    Do::Step(Step::Scan(span(low, high, Direction::Up)))
}

const fn scan_down(low: Key, high: Key) -> Do {
    Do::Step(Step::Scan(span(low, high, Direction::Down)))
}

const fn walk(low: Key, high: Key) -> Do {
    Do::Step(Step::Walk(span(low, high, Direction::Up)))
}

const fn pop(low: Key, high: Key) -> Do {
    Do::Step(Step::Pop(Span { most: 1, ..span(low, high, Direction::Up) }))
}

/// The phenomena of Berenson et al. (A critique of ANSI SQL isolation levels, SIGMOD 1995) by their
/// numbers there, and those of Adya that are not among them.
const SCRIPTS: &[Script] = &[
    Script {
        name: "P0, dirty write",
        turns: &[(1, put(X)), (2, put(X)), (2, put(Y)), (2, Commit), (1, put(Y)), (1, Commit)],
        verdicts: [Waits, Waits, Waits, Waits],
    },
    Script {
        name: "P1, dirty read",
        turns: &[(1, put(X)), (2, get(X)), (2, Commit), (1, RollBack)],
        verdicts: [Shows(Anomaly::AbortedRead), Waits, Waits, Waits],
    },
    Script {
        name: "P1, dirty read of what is taken back at a savepoint",
        turns: &[(1, MARK), (1, put(X)), (2, get(X)), (2, Commit), (1, UNDO), (1, Commit)],
        verdicts: [Shows(Anomaly::AbortedRead), Waits, Waits, Waits],
    },
    Script {
        name: "P1, dirty read of an insert by a scan",
        turns: &[(1, insert(15)), (2, scan(5, 35)), (2, Commit), (1, RollBack)],
        verdicts: [Shows(Anomaly::AbortedRead), Waits, Waits, Waits],
    },
    Script {
        name: "P1, dirty read of a removal",
        turns: &[(1, remove(Y)), (2, get(Y)), (2, Commit), (1, RollBack)],
        verdicts: [Shows(Anomaly::AbortedRead), Waits, Waits, Waits],
    },
    Script {
        name: "P1, dirty read of a removal by a scan",
        turns: &[(1, remove(Y)), (2, scan(5, 35)), (2, Commit), (1, RollBack)],
        verdicts: [Shows(Anomaly::AbortedRead), Waits, Waits, Waits],
    },
    Script {
        name: "G1b, intermediate read",
        turns: &[(1, put(X)), (2, get(X)), (2, Commit), (1, put(X)), (1, Commit)],
        verdicts: [Shows(Anomaly::IntermediateRead), Waits, Waits, Waits],
    },
    Script {
        name: "G1c, circular information flow",
        turns: &[(1, put(X)), (2, put(Y)), (1, get(Y)), (2, get(X)), (1, Commit), (2, Commit)],
        verdicts: [Shows(Anomaly::CircularFlow), Conflicts, Conflicts, Conflicts],
    },
    Script {
        name: "P2, fuzzy read",
        turns: &[(1, get(X)), (2, put(X)), (2, Commit), (1, get(X)), (1, Commit)],
        verdicts: [Shows(Anomaly::ReadSkew), Shows(Anomaly::ReadSkew), Waits, Waits],
    },
    Script {
        name: "P2, fuzzy read of what is removed, by a scan",
        turns: &[(1, scan(5, 35)), (2, remove(Y)), (2, Commit), (1, scan(5, 35)), (1, Commit)],
        verdicts: [Shows(Anomaly::ReadSkew), Shows(Anomaly::ReadSkew), Waits, Waits],
    },
    Script {
        name: "P3, phantom",
        turns: &[(1, scan(5, 35)), (2, insert(15)), (2, Commit), (1, scan(5, 35)), (1, Commit)],
        verdicts: [
            Shows(Anomaly::Phantom),
            Shows(Anomaly::Phantom),
            Shows(Anomaly::Phantom),
            Waits,
        ],
    },
    Script {
        name: "P3, phantom of one key",
        turns: &[(1, get(15)), (2, insert(15)), (2, Commit), (1, get(15)), (1, Commit)],
        verdicts: [Shows(Anomaly::Phantom), Shows(Anomaly::Phantom), Waits, Waits],
    },
    Script {
        name: "P3, write skew by phantoms",
        turns: &[
            (1, scan(5, 35)),
            (2, scan(5, 35)),
            (1, insert(15)),
            (2, insert(25)),
            (1, Commit),
            (2, Commit),
        ],
        verdicts: [
            Shows(Anomaly::Phantom),
            Shows(Anomaly::Phantom),
            Shows(Anomaly::Phantom),
            Conflicts,
        ],
    },
    Script {
        name: "P4, lost update",
        turns: &[(1, get(X)), (2, get(X)), (2, put(X)), (2, Commit), (1, put(X)), (1, Commit)],
        verdicts: [Shows(Anomaly::LostUpdate), Shows(Anomaly::LostUpdate), Conflicts, Conflicts],
    },
    Script {
        name: "P4C, lost update under a cursor",
        turns: &[
            (1, walk(5, 25)),
            (2, put(X)),
            (2, Commit),
            (1, On),
            (1, On),
            (1, put(X)),
            (1, Commit),
        ],
        verdicts: [Shows(Anomaly::LostUpdate), Shows(Anomaly::LostUpdate), Waits, Waits],
    },
    Script {
        name: "A5A, read skew",
        turns: &[(1, get(X)), (2, put(X)), (2, put(Y)), (2, Commit), (1, get(Y)), (1, Commit)],
        verdicts: [Shows(Anomaly::ReadSkew), Shows(Anomaly::ReadSkew), Waits, Waits],
    },
    Script {
        name: "A5B, write skew",
        turns: &[(1, get(X)), (2, get(Y)), (1, put(Y)), (2, put(X)), (1, Commit), (2, Commit)],
        verdicts: [Shows(Anomaly::WriteSkew), Shows(Anomaly::WriteSkew), Conflicts, Conflicts],
    },
];

/// A script, and what comes of it when all are serializable.
type Gap = (&'static str, &'static [(usize, Do)], Verdict);

/// What happens to gaps whose upper end comes or goes.
const GAPS: &[Gap] = &[
    (
        "the key above a removed one is removed as well",
        &[
            (1, remove(Y)),
            (2, remove(Z)),
            (2, Commit),
            (3, scan(12, 27)),
            (3, Commit),
            (1, RollBack),
        ],
        Waits,
    ),
    (
        "a key is inserted above a removed one",
        &[
            (1, remove(Y)),
            (2, insert(25)),
            (2, Commit),
            (3, scan(12, 22)),
            (3, Commit),
            (1, RollBack),
        ],
        Waits,
    ),
    (
        "the insert above a removed key is rolled back",
        &[
            (1, insert(25)),
            (2, remove(Y)),
            (1, RollBack),
            (3, scan(12, 27)),
            (3, Commit),
            (2, RollBack),
        ],
        Waits,
    ),
    (
        "the first key found is removed by who found it",
        &[(1, pop(12, 35)), (2, insert(15)), (2, Commit), (1, scan(12, 22)), (1, Commit)],
        Waits,
    ),
    (
        "the upper end of a range read downward is removed by who read it",
        &[
            (1, scan_down(12, Y)),
            (1, remove(Y)),
            (2, insert(15)),
            (2, Commit),
            (1, scan(12, 22)),
            (1, Commit),
        ],
        Waits,
    ),
    (
        "an own key above a range is taken back",
        &[
            (1, MARK),
            (1, insert(25)),
            (1, scan(22, 24)),
            (1, UNDO),
            (2, insert(23)),
            (2, Commit),
            (1, scan(22, 24)),
            (1, Commit),
        ],
        Waits,
    ),
    (
        "two insert into one gap",
        &[(1, insert(15)), (2, insert(16)), (2, Commit), (1, Commit)],
        Passes,
    ),
    (
        "a key is inserted outside of what was read",
        &[(1, scan(12, 27)), (2, insert(35)), (2, Commit), (1, scan(12, 27)), (1, Commit)],
        Passes,
    ),
];

/// Plays a script; client 1 of the script is the first.
fn play(turns: &[(usize, Do)], setup: &Setup) -> Outcome {
    let clients = turns.iter().map(|&(client, _)| client).max().unwrap();
    let mut plans = vec![Vec::new(); clients];
    for (client, plans) in plans.iter_mut().enumerate() {
        let mut steps = Vec::new();
        for &(_, turn) in turns.iter().filter(|&&(turn, _)| turn == client + 1) {
            match turn {
                Do::Step(step) => steps.push(step),
                On => {}
                Commit | RollBack => {
                    let steps = std::mem::take(&mut steps);
                    plans.push(Plan { steps, is_committed: turn == Commit });
                }
            }
        }
    }
    let mut left: Vec<usize> = turns.iter().map(|&(client, _)| client - 1).collect();
    let mut pick = |ready: &[usize]| match left.iter().position(|client| ready.contains(client)) {
        Some(at) => left.remove(at),
        None => ready[0],
    };
    run(setup, &plans, Pace::Turns(&mut pick)).unwrap()
}

/// What came of it; and everything that was found, as text.
fn judge(outcome: &Outcome) -> (Option<Verdict>, String) {
    let found = check(&outcome.history);
    let mut text = String::new();
    for violation in &found {
        let _ = writeln!(text, "{:?}\n{}", violation.anomaly, violation.text);
    }
    for (number, txn) in outcome.history.txns.iter().enumerate() {
        let _ = writeln!(text, "  T{number} {txn}");
    }
    let verdict = match &found[..] {
        [] if outcome.deadlocks > 0 => Some(Conflicts),
        [] if outcome.waits > 0 => Some(Waits),
        [] => Some(Passes),
        [one] => Some(Shows(one.anomaly)),
        _ => None,
    };
    (verdict, text)
}

/// Every disagreement of all scripts, so that one run shows the whole table.
#[test]
fn each_level_permits_what_the_table_says() {
    let mut wrong = String::new();
    for script in SCRIPTS {
        for (level, expected) in LEVELS.into_iter().zip(script.verdicts) {
            for check_on_block in [true, false] {
                let keys = vec![X, Y, Z];
                let setup = Setup { check_on_block, keys, ..Setup::new(level) };
                let (verdict, text) = judge(&play(script.turns, &setup));
                if verdict != Some(expected) {
                    let name = script.name;
                    let _ = writeln!(
                        wrong,
                        "{name} at {level:?} is to be {expected:?} and is {verdict:?}\n{text}"
                    );
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// The table permits of each level what the checker does, and a level no more than the one below.
#[test]
fn the_table_is_that_of_the_checker() {
    for Script { name, verdicts, .. } in SCRIPTS {
        for (level, verdict) in LEVELS.into_iter().zip(verdicts) {
            if let Shows(anomaly) = verdict {
                assert!(anomaly.is_permitted(level), "{name}, {level:?}");
            }
        }
        let is_shown = verdicts.map(|verdict| matches!(verdict, Shows(_)));
        assert!(is_shown.is_sorted_by(|below, above| below >= above), "{name}");
    }
}

#[test]
fn gaps_stay_what_they_were_when_their_ends_come_and_go() {
    let mut wrong = String::new();
    for &(name, turns, expected) in GAPS {
        let setup = Setup { keys: vec![X, Y, Z], ..Setup::new(Isolation::Serializable) };
        let (verdict, text) = judge(&play(turns, &setup));
        if verdict != Some(expected) {
            let _ = writeln!(wrong, "{name} is to be {expected:?} and is {verdict:?}\n{text}");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A scan rests on each key in turn while another inserts the key behind it, which was taken out
/// before, and changes the last of all. Now and then that is behind the last of a leaf.
#[test]
fn a_scan_misses_nothing_between_two_leaves() {
    const KEYS: Key = 16;
    let mut wrong = String::new();
    for way in [Direction::Up, Direction::Down] {
        for rest in 1..KEYS - 1 {
            let (behind, last) = match way {
                Direction::Up => (rest + 1, KEYS),
                Direction::Down => (KEYS - rest, 1),
            };
            let mut turns = vec![(2, remove(behind)), (2, Commit)];
            turns.push((1, Do::Step(Step::Walk(span(1, KEYS, way)))));
            turns.extend((1..rest).map(|_| (1, On)));
            turns.extend([(2, insert(behind)), (2, put(last)), (2, Commit)]);
            turns.extend((rest..=KEYS).map(|_| (1, On)));
            turns.push((1, Commit));
            let keys = (1..=KEYS).collect();
            let setup = Setup { keys, padding: 900, ..Setup::new(Isolation::Serializable) };
            let (verdict, text) = judge(&play(&turns, &setup));
            if !matches!(verdict, Some(Passes | Waits | Conflicts)) {
                let _ = writeln!(wrong, "{way:?} at {rest}: {verdict:?}\n{text}");
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
