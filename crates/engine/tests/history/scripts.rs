//! The anomalies by name, each played step by step at every level.
//!
//! A script says which transaction does what, in order. Who waits for a lock is passed over, and
//! catches up as soon as it can. Where the level permits the anomaly it must come about, and the
//! checker must find it and nothing else; where not, somebody must have waited or been rolled back,
//! and the checker must find nothing.

use std::fmt::Write;

use tidegate_engine::{Direction, Isolation};

use super::LEVELS;
use super::checker::{ANOMALIES, check};
use super::client::{Plan, Span, Step};
use super::history::Key;
use super::notation::{Event, X, Y, Z, events, key, range};
use super::run::{Outcome, Pace, Setup, run};

/// The phenomena of Berenson et al. by their numbers there, and those of Adya that are not among
/// them. Under each name the script and what comes of it at each level: read uncommitted, read
/// committed, repeatable read, serializable. That is an anomaly; or somebody waits until it cannot
/// happen; or somebody is rolled back because of a deadlock.
const SCRIPTS: &str = "
P0, dirty write
    w1[x] w2[x] w2[y] c2 w1[y] c1: waits waits waits waits
P1, dirty read
    w1[x] r2[x] c2 a1: AbortedRead waits waits waits
P1, dirty read of what is taken back at a savepoint
    m1 w1[x] r2[x] c2 u1 c1: AbortedRead waits waits waits
P1, dirty read of an insert by a scan
    i1[15] s2[5..35] c2 a1: AbortedRead waits waits waits
P1, dirty read of a removal
    d1[y] r2[y] c2 a1: AbortedRead waits waits waits
P1, dirty read of a removal by a scan
    d1[y] s2[5..35] c2 a1: AbortedRead waits waits waits
G1b, intermediate read
    w1[x] r2[x] c2 w1[x] c1: IntermediateRead waits waits waits
G1c, circular information flow
    w1[x] w2[y] r1[y] r2[x] c1 c2: CircularFlow conflicts conflicts conflicts
P2, fuzzy read
    r1[x] w2[x] c2 r1[x] c1: ReadSkew ReadSkew waits waits
P2, fuzzy read of what is removed, by a scan
    s1[5..35] d2[y] c2 s1[5..35] c1: ReadSkew ReadSkew waits waits
P3, phantom
    s1[5..35] i2[15] c2 s1[5..35] c1: Phantom Phantom Phantom waits
P3, phantom of one key
    r1[15] i2[15] c2 r1[15] c1: Phantom Phantom waits waits
P3, write skew by phantoms
    s1[5..35] s2[5..35] i1[15] i2[25] c1 c2: Phantom Phantom Phantom conflicts
P4, lost update
    r1[x] r2[x] w2[x] c2 w1[x] c1: LostUpdate LostUpdate conflicts conflicts
P4C, lost update under a cursor
    k1[5..25] w2[x] c2 n1 n1 w1[x] c1: LostUpdate LostUpdate waits waits
A5A, read skew
    r1[x] w2[x] w2[y] c2 r1[y] c1: ReadSkew ReadSkew waits waits
A5B, write skew
    r1[x] r2[y] w1[y] w2[x] c1 c2: WriteSkew WriteSkew conflicts conflicts
";

/// What happens to gaps, and to gaps whose upper end comes or goes, when all are serializable.
const GAPS: &str = "
the key above a removed one is removed as well
    d1[y] d2[z] c2 s3[12..27] c3 a1: waits
a key is inserted above a removed one
    d1[y] i2[25] c2 s3[12..22] c3 a1: waits
the insert above a removed key is rolled back
    i1[25] d2[y] a1 s3[12..27] c3 a2: waits
the first key found is removed by who found it
    p1[12..35] i2[15] c2 s1[12..22] c1: waits
the upper end of a range read downward is removed by who read it
    S1[12..y] d1[y] i2[15] c2 s1[12..22] c1: waits
an own key above a range is taken back
    m1 i1[25] s1[22..24] u1 i2[23] c2 s1[22..24] c1: waits
two insert into one gap
    i1[15] i2[16] c2 c1: passes
two insert into one gap, the higher key first
    i1[16] i2[15] c2 c1: passes
a key is inserted outside of what was read
    s1[12..27] i2[35] c2 s1[12..27] c1: passes
a key is inserted that was not found
    r1[15] i2[15] c2 c1: waits
a removal that is not committed yet is not seen
    d1[y] s2[15..25] c2 c1: waits
a gap that was read is divided by its reader's insert, and another inserts below
    s1[12..18] i1[15] i2[14] c2 c1: waits
a gap that was read is divided by its reader's insert, and another inserts above
    s1[12..18] i1[15] i2[16] c2 c1: waits
";

/// Returns the name, the script and the expected results of each entry of a table.
fn entries(table: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let mut lines = table.lines().filter(|line| !line.is_empty());
    std::iter::from_fn(move || {
        let name = lines.next()?;
        let (script, results) = lines.next().unwrap().split_once(':').unwrap();
        Some((name, script, results))
    })
}

/// What a client does in its turn.
enum Turn {
    Step(Step),
    /// Goes on with a walk.
    Next,
    End {
        is_committed: bool,
    },
}

impl Turn {
    fn new(event: Event<'_>) -> Turn {
        let Event { kind, operand, .. } = event;
        let span = |way| {
            let (low, high) = range(operand);
            Span { low, high, way, is_open: false, most: usize::MAX }
        };
        Turn::Step(match kind {
            'r' => Step::Get(key(operand)),
            'w' => Step::Put(key(operand)),
            'i' => Step::Insert(key(operand)),
            'd' => Step::Remove(key(operand)),
            's' => Step::Scan(span(Direction::Up)),
            'S' => Step::Scan(span(Direction::Down)),
            'k' => Step::Walk(span(Direction::Up)),
            'K' => Step::Walk(span(Direction::Down)),
            'p' => Step::Pop(Span { most: 1, ..span(Direction::Up) }),
            'm' => Step::Mark,
            'u' => Step::Undo,
            'n' => return Turn::Next,
            'c' | 'a' => return Turn::End { is_committed: kind == 'c' },
            _ => panic!("{event:?}"),
        })
    }
}

/// Plays a script; client 1 of the script is the first.
fn play(script: &str, setup: &Setup) -> Outcome {
    let clients = events(script).map(|event| event.txn).max().unwrap();
    let mut plans = vec![Vec::new(); clients];
    let mut steps = vec![Vec::new(); clients];
    for event in events(script) {
        let client = event.txn - 1;
        match Turn::new(event) {
            Turn::Step(step) => steps[client].push(step),
            Turn::Next => {}
            Turn::End { is_committed } => {
                let steps = std::mem::take(&mut steps[client]);
                plans[client].push(Plan { steps, is_committed });
            }
        }
    }
    let mut left: Vec<usize> = events(script).map(|event| event.txn - 1).collect();
    let mut pick = |ready: &[usize]| match left.iter().position(|client| ready.contains(client)) {
        Some(at) => left.remove(at),
        None => ready[0],
    };
    run(setup, &plans, Pace::Turns(&mut pick)).unwrap()
}

/// What came of it, by the name of the anomaly if there was one; and all that happened, as text.
fn judge(outcome: &Outcome) -> (String, String) {
    let found = check(&outcome.history);
    let mut text = String::new();
    for violation in &found {
        let _ = writeln!(text, "{:?}\n{}", violation.anomaly, violation.text);
    }
    for (number, txn) in outcome.history.txns.iter().enumerate() {
        let _ = writeln!(text, "  T{number} {txn}");
    }
    let result = match &found[..] {
        [] if outcome.deadlocks > 0 => "conflicts".to_owned(),
        [] if outcome.waits > 0 => "waits".to_owned(),
        [] => "passes".to_owned(),
        [one] => format!("{:?}", one.anomaly),
        _ => "several anomalies".to_owned(),
    };
    (result, text)
}

/// Plays a script and returns how the result differs from the one expected, if it does.
fn difference(name: &str, script: &str, expected: &str, setup: &Setup) -> String {
    let setup = Setup { keys: vec![X, Y, Z], ..*setup };
    let (result, text) = judge(&play(script, &setup));
    if result == expected {
        return String::new();
    }
    let level = setup.isolation;
    format!("{name} at {level:?} is to be {expected:?} and is {result:?}\n{text}\n")
}

/// Every disagreement of all scripts, so that one run shows the whole table.
#[test]
fn each_level_permits_what_the_table_says() {
    let mut wrong = String::new();
    for (name, script, results) in entries(SCRIPTS) {
        assert_eq!(results.split_whitespace().count(), LEVELS.len(), "{name}");
        for (level, expected) in LEVELS.into_iter().zip(results.split_whitespace()) {
            for check_on_block in [true, false] {
                let setup = Setup { check_on_block, ..Setup::new(level) };
                wrong += &difference(name, script, expected, &setup);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// The table permits of each level what the checker does, and a level no more than the one below.
#[test]
fn the_table_is_that_of_the_checker() {
    for (name, _, results) in entries(SCRIPTS) {
        let shown: Vec<_> = results
            .split_whitespace()
            .map(|result| ANOMALIES.iter().find(|anomaly| format!("{anomaly:?}") == result))
            .collect();
        for (level, anomaly) in LEVELS.into_iter().zip(&shown) {
            assert!(anomaly.is_none_or(|anomaly| anomaly.is_permitted(level)), "{name}, {level:?}");
        }
        assert!(shown.is_sorted_by_key(Option::is_none), "{name}");
    }
}

#[test]
fn gaps_stay_what_they_were_when_their_ends_come_and_go() {
    let serializable = Setup::new(Isolation::Serializable);
    let mut wrong = String::new();
    for (name, script, expected) in entries(GAPS) {
        wrong += &difference(name, script, expected.trim(), &serializable);
    }
    // 12 to 25 holds 20; the gaps that are locked go from 10 to 30.
    for scan in ["s", "S"] {
        let inserts = [(5, "passes"), (12, "waits"), (15, "waits"), (25, "waits"), (35, "passes")];
        for (key, expected) in inserts {
            let script = format!("{scan}1[12..25] i2[{key}] c2 c1");
            wrong += &difference("a range that was read", &script, expected, &serializable);
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
    for walk in ["k", "K"] {
        for rest in 1..KEYS - 1 {
            let (behind, last) = if walk == "k" { (rest + 1, KEYS) } else { (KEYS - rest, 1) };
            let before = "n1 ".repeat(usize::from(rest - 1));
            let after = "n1 ".repeat(usize::from(KEYS + 1 - rest));
            let script = format!(
                "d2[{behind}] c2 {walk}1[1..{KEYS}] {before} \
                 i2[{behind}] w2[{last}] c2 {after} c1"
            );
            let keys = (1..=KEYS).collect();
            let setup = Setup { keys, padding: 900, ..Setup::new(Isolation::Serializable) };
            let (result, text) = judge(&play(&script, &setup));
            if !["passes", "waits", "conflicts"].contains(&&result[..]) {
                let _ = writeln!(wrong, "{script}: {result}\n{text}");
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
