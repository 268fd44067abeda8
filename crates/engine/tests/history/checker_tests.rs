//! The checker on histories written by hand: each has one thing wrong with it, or nothing.

use std::collections::BTreeMap;

use super::checker::{Anomaly, check};
use super::history::{Action, History, Key, Moment, Op, Txn, WriteId};

/// What a transaction does next.
#[derive(Clone, Copy)]
enum Does {
    Reads(Key, u32),
    FindsNothing(Key),
    Scans(Key, Key, &'static [(Key, u32)]),
    Writes(Key, u32),
    Removes(Key, u32),
    Marks,
    Undoes,
    Commits,
    RollsBack,
}

use Anomaly::{
    AbortedRead, Broken, CircularFlow, DirtyWrite, IntermediateRead, LostUpdate, Phantom, ReadSkew,
    WriteSkew,
};
use Does::{Commits, FindsNothing, Marks, Reads, Removes, RollsBack, Scans, Undoes, Writes};

impl Does {
    fn action(self) -> Option<Action> {
        Some(match self {
            Reads(key, id) => Action::Get { key, seen: Some(WriteId(id)) },
            FindsNothing(key) => Action::Get { key, seen: None },
            Scans(low, high, seen) => {
                let seen = seen.iter().map(|&(key, id)| (key, WriteId(id))).collect();
                Action::Scan { low, high, seen }
            }
            Writes(key, id) => Action::Write { key, id: WriteId(id), is_there: true },
            Removes(key, id) => Action::Write { key, id: WriteId(id), is_there: false },
            Marks => Action::Mark,
            Undoes => Action::Undo,
            Commits | RollsBack => return None,
        })
    }
}

/// A history in which one thing happens after the other; each key has its writes in that order.
fn history(events: &[(usize, Does)]) -> History {
    let count = events.iter().map(|&(txn, _)| txn + 1).max().unwrap_or(0);
    let new = |client| Txn { client, ops: Vec::new(), is_committed: false, began: 0, ended: 0 };
    let mut txns: Vec<Txn> = (0..count).map(new).collect();
    for (&(txn, does), begin) in events.iter().zip((1..).step_by(2)) {
        let end: Moment = begin + 1;
        match does.action() {
            Some(action) => txns[txn].ops.push(Op { begin, end, action }),
            None => txns[txn].is_committed = matches!(does, Commits),
        }
        txns[txn].ended = end;
    }
    let mut writes = Vec::new();
    for txn in txns.iter().filter(|txn| txn.is_committed) {
        let own = txn.own_writes(txn.ops.len()).into_iter();
        writes.extend(own.map(|(op, key, id, is_there)| (txn.ops[op].begin, key, id, is_there)));
    }
    writes.sort_unstable();
    let (mut trails, mut left) = (BTreeMap::<Key, Vec<WriteId>>::new(), BTreeMap::new());
    for (_, key, id, is_there) in writes {
        trails.entry(key).or_default().push(id);
        if is_there {
            left.insert(key, id);
        } else {
            left.remove(&key);
        }
    }
    History { txns, trails, left }
}

fn anomalies(history: &History) -> Vec<Anomaly> {
    check(history).into_iter().map(|violation| violation.anomaly).collect()
}

const X: Key = 1;
const Y: Key = 2;
const Z: Key = 3;

/// Keys X and Y are there when the others begin.
const BEGIN: [(usize, Does); 3] = [(0, Writes(X, 1)), (0, Writes(Y, 2)), (0, Commits)];

fn expect(name: &str, events: &[(usize, Does)], expected: &[Anomaly]) {
    let history = history(&[&BEGIN[..], events].concat());
    assert_eq!(anomalies(&history), expected, "{name}: {history:#?}");
}

#[test]
fn serial_histories_pass() {
    let two = [
        (1, Reads(X, 1)),
        (1, Writes(X, 11)),
        (1, Writes(X, 12)),
        (1, Reads(X, 12)),
        (1, Removes(Y, 13)),
        (1, FindsNothing(Y)),
        (1, Scans(X, Z, &[(X, 12)])),
        (1, Commits),
        (2, Scans(X, Z, &[(X, 12)])),
        (2, Writes(Z, 21)),
        (2, Marks),
        (2, Writes(Y, 22)),
        (2, Undoes),
        (2, Scans(X, Z, &[(X, 12), (Z, 21)])),
        (2, Commits),
    ];
    expect("two", &two, &[]);
    let rolled_back = [
        (1, Writes(X, 11)),
        (1, Removes(Y, 12)),
        (1, RollsBack),
        (2, Scans(X, Z, &[(X, 1), (Y, 2)])),
        (2, Commits),
    ];
    expect("rolled back", &rolled_back, &[]);
    // Overlapping, and the second may be put first.
    let beside = [
        (1, Reads(X, 1)),
        (2, Reads(X, 1)),
        (2, Writes(Y, 21)),
        (1, Writes(Z, 11)),
        (1, Commits),
        (2, Commits),
    ];
    expect("beside each other", &beside, &[]);
}

#[test]
fn what_is_written_or_seen_too_early_is_found() {
    let dirty_write = [
        (1, Writes(X, 11)),
        (2, Writes(X, 21)),
        (2, Writes(Y, 22)),
        (1, Writes(Y, 12)),
        (1, Commits),
        (2, Commits),
    ];
    expect("G0", &dirty_write, &[DirtyWrite]);
    let aborted = [(1, Writes(X, 11)), (2, Reads(X, 11)), (1, RollsBack), (2, Commits)];
    expect("G1a", &aborted, &[AbortedRead]);
    let undone = [
        (1, Marks),
        (1, Writes(X, 11)),
        (2, Reads(X, 11)),
        (1, Undoes),
        (1, Commits),
        (2, Commits),
    ];
    expect("G1a, savepoint", &undone, &[AbortedRead]);
    let removal = [(1, Removes(X, 11)), (2, Scans(X, Y, &[(Y, 2)])), (1, RollsBack), (2, Commits)];
    expect("G1a, removal", &removal, &[AbortedRead]);
    let intermediate =
        [(1, Writes(X, 11)), (2, Reads(X, 11)), (1, Writes(X, 12)), (1, Commits), (2, Commits)];
    expect("G1b", &intermediate, &[IntermediateRead]);
    let removal_and_insert =
        [(1, Removes(X, 11)), (2, FindsNothing(X)), (1, Writes(X, 12)), (1, Commits), (2, Commits)];
    expect("G1b, removal", &removal_and_insert, &[IntermediateRead]);
    let flow = [
        (1, Writes(X, 11)),
        (2, Writes(Y, 21)),
        (1, Reads(Y, 21)),
        (2, Reads(X, 11)),
        (1, Commits),
        (2, Commits),
    ];
    expect("G1c", &flow, &[CircularFlow]);
    // What is rolled back reads what it likes.
    let nobody = [(1, Writes(X, 11)), (2, Reads(X, 11)), (1, RollsBack), (2, RollsBack)];
    expect("nobody", &nobody, &[]);
}

#[test]
fn what_is_not_kept_apart_is_found() {
    let lost = [
        (1, Reads(X, 1)),
        (2, Reads(X, 1)),
        (2, Writes(X, 21)),
        (2, Commits),
        (1, Writes(X, 11)),
        (1, Commits),
    ];
    expect("lost update", &lost, &[LostUpdate]);
    let fuzzy =
        [(1, Reads(X, 1)), (2, Writes(X, 21)), (2, Commits), (1, Reads(X, 21)), (1, Commits)];
    expect("fuzzy read", &fuzzy, &[ReadSkew]);
    let skew = [
        (1, Reads(X, 1)),
        (2, Writes(X, 21)),
        (2, Writes(Y, 22)),
        (2, Commits),
        (1, Reads(Y, 22)),
        (1, Commits),
    ];
    expect("read skew", &skew, &[ReadSkew]);
    let write_skew = [
        (1, Reads(X, 1)),
        (2, Reads(Y, 2)),
        (1, Writes(Y, 11)),
        (2, Writes(X, 21)),
        (1, Commits),
        (2, Commits),
    ];
    expect("write skew", &write_skew, &[WriteSkew]);
    let of_three = [
        (1, Reads(X, 1)),
        (2, Reads(Y, 2)),
        (3, FindsNothing(Z)),
        (3, Reads(Y, 2)),
        (2, Writes(X, 21)),
        (1, Writes(Y, 11)),
        (1, Commits),
        (2, Commits),
        (3, Commits),
    ];
    expect("write skew, and one beside it", &of_three, &[WriteSkew]);
    let phantom = [
        (1, Scans(X, Z, &[(X, 1), (Y, 2)])),
        (2, Writes(Z, 21)),
        (2, Commits),
        (1, Scans(X, Z, &[(X, 1), (Y, 2), (Z, 21)])),
        (1, Commits),
    ];
    expect("phantom", &phantom, &[Phantom]);
    let phantom_skew = [
        (1, FindsNothing(Z)),
        (2, Reads(X, 1)),
        (1, Writes(X, 11)),
        (2, Writes(Z, 21)),
        (1, Commits),
        (2, Commits),
    ];
    expect("write skew with a phantom", &phantom_skew, &[Phantom]);
    let outside = [
        (1, Scans(X, Y, &[(X, 1), (Y, 2)])),
        (2, Writes(Z, 21)),
        (2, Commits),
        (1, Scans(X, Y, &[(X, 1), (Y, 2)])),
        (1, Commits),
    ];
    expect("outside of the range", &outside, &[]);
}

#[test]
fn what_cannot_be_is_found() {
    for (name, events) in [
        ("nobody's", &[(1, Reads(X, 99)), (1, Commits)][..]),
        ("another key's", &[(1, Reads(X, 2)), (1, Commits)]),
        ("vanished", &[(1, FindsNothing(X)), (1, Commits)]),
        ("left out", &[(1, Scans(X, Z, &[(Y, 2)])), (1, Commits)]),
        ("out of order", &[(1, Scans(X, Z, &[(Y, 2), (X, 1)])), (1, Commits)]),
        ("too much", &[(1, Scans(Y, Z, &[(X, 1), (Y, 2)])), (1, Commits)]),
        ("own write", &[(1, Writes(X, 11)), (1, Reads(X, 1)), (1, Commits)]),
        ("own removal", &[(1, Removes(X, 11)), (1, Reads(X, 1)), (1, Commits)]),
        (
            "not undone",
            &[(1, Marks), (1, Writes(X, 11)), (1, Undoes), (1, Reads(X, 11)), (1, Commits)],
        ),
    ] {
        expect(name, events, &[Broken]);
    }
    let whole = history(&[&BEGIN[..], &[(1, Writes(X, 11)), (1, RollsBack)]].concat());
    assert_eq!(anomalies(&whole), []);
    for trail in [&[][..], &[1, 11], &[1, 1], &[1, 99]] {
        let mut broken = whole.clone();
        broken.trails.insert(X, trail.iter().map(|&id| WriteId(id)).collect());
        assert_eq!(anomalies(&broken), [Broken], "{trail:?}");
    }
    let mut broken = whole;
    broken.left.remove(&X);
    assert_eq!(anomalies(&broken), [Broken]);
}

/// One that finds nothing while a key comes and goes may be before or after both.
#[test]
fn nothing_is_concluded_from_what_may_have_been() {
    let coming_and_going = [
        (1, FindsNothing(Z)),
        (2, Writes(Z, 21)),
        (2, Commits),
        (3, Removes(Z, 31)),
        (3, Writes(X, 32)),
        (3, Commits),
        (1, Reads(X, 32)),
        (1, Commits),
    ];
    let mut history = history(&[&BEGIN[..], &coming_and_going].concat());
    assert_eq!(anomalies(&history), [Phantom], "it was read before both");
    let end = history.txns[3].ended;
    history.txns[1].ops[0].end = end;
    assert_eq!(anomalies(&history), [], "it may have been read after both");
    history.txns[1].ops[0].begin = end - 1;
    assert_eq!(anomalies(&history), [], "it was read after both");
}

/// A violation says what happened in terms that can be followed.
#[test]
fn a_cycle_can_be_read() {
    let write_skew = [
        (1, Reads(X, 1)),
        (2, Reads(Y, 2)),
        (1, Writes(Y, 11)),
        (2, Writes(X, 21)),
        (1, Commits),
        (2, Commits),
    ];
    let found = check(&history(&[&BEGIN[..], &write_skew].concat()));
    let expected = "T1 before T2: T1 saw #1 of key 1, T2 wrote over it #21\n\
                    T2 before T1: T2 saw #2 of key 2, T1 wrote over it #11\n  \
                    T1 (client 1) [7-8] get 1 = #1; [11-12] put 2 = #11; [16] commit\n  \
                    T2 (client 2) [9-10] get 2 = #2; [13-14] put 1 = #21; [18] commit\n";
    assert_eq!(found[0].text, expected);
}
