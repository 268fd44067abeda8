//! The checker on histories written by hand: each has one thing wrong with it, or nothing.

use std::collections::BTreeMap;

use super::checker::{Anomaly, check};
use super::history::{Action, History, Key, Moment, Op, Txn, WriteId};
use super::notation::{Event, X, events, range, version};

use Anomaly::{
    AbortedRead, Broken, CircularFlow, DirtyWrite, IntermediateRead, LostUpdate, Phantom, ReadSkew,
    WriteSkew,
};

/// What a transaction does in an event that does not end it.
fn action(event: Event<'_>) -> Option<Action> {
    let Event { kind, operand, .. } = event;
    let write = |is_there| {
        let (key, id) = version(operand);
        Action::Write { key, id: id.unwrap(), is_there }
    };
    Some(match kind {
        'r' => {
            let (key, seen) = version(operand);
            Action::Get { key, seen }
        }
        's' => {
            let (keys, seen) = operand.split_once(':').unwrap();
            let (low, high) = range(keys);
            let entry = |entry| (version(entry).0, version(entry).1.unwrap());
            Action::Scan { low, high, seen: seen.split(',').map(entry).collect() }
        }
        'w' => write(true),
        'd' => write(false),
        'm' => Action::Mark,
        'u' => Action::Undo,
        'c' | 'a' => return None,
        _ => panic!("{event:?}"),
    })
}

/// A history in which one thing happens after the other; each key has its writes in that order.
/// Keys x and y are there when the others begin.
fn history(text: &str) -> History {
    let text = format!("w0[x=1] w0[y=2] c0 {text}");
    let count = events(&text).map(|event| event.txn + 1).max().unwrap();
    let new = |client| Txn { client, ops: Vec::new(), is_committed: false, began: 0, ended: 0 };
    let mut txns: Vec<Txn> = (0..count).map(new).collect();
    for (event, begin) in events(&text).zip((1..).step_by(2)) {
        let (end, txn): (Moment, _) = (begin + 1, &mut txns[event.txn]);
        match action(event) {
            Some(action) => txn.ops.push(Op { begin, end, action }),
            None => txn.is_committed = event.kind == 'c',
        }
        txn.ended = end;
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

fn expect(cases: &[(&str, &str, &[Anomaly])]) {
    for (name, text, expected) in cases {
        let history = history(text);
        assert_eq!(anomalies(&history), *expected, "{name}: {history:#?}");
    }
}

#[test]
fn serial_histories_pass() {
    expect(&[
        (
            "two",
            "r1[x=1] w1[x=11] w1[x=12] r1[x=12] d1[y=13] r1[y=] s1[x..z:x=12] c1 \
             s2[x..z:x=12] w2[z=21] m2 w2[y=22] u2 s2[x..z:x=12,z=21] c2",
            &[],
        ),
        ("rolled back", "w1[x=11] d1[y=12] a1 s2[x..z:x=1,y=2] c2", &[]),
        // Overlapping, and the second may be put first.
        ("beside each other", "r1[x=1] r2[x=1] w2[y=21] w1[z=11] c1 c2", &[]),
    ]);
}

#[test]
fn what_is_written_or_seen_too_early_is_found() {
    expect(&[
        ("G0", "w1[x=11] w2[x=21] w2[y=22] w1[y=12] c1 c2", &[DirtyWrite]),
        ("G1a", "w1[x=11] r2[x=11] a1 c2", &[AbortedRead]),
        ("G1a, savepoint", "m1 w1[x=11] r2[x=11] u1 c1 c2", &[AbortedRead]),
        ("G1a, removal", "d1[x=11] s2[x..y:y=2] a1 c2", &[AbortedRead]),
        ("G1b", "w1[x=11] r2[x=11] w1[x=12] c1 c2", &[IntermediateRead]),
        ("G1b, removal", "d1[x=11] r2[x=] w1[x=12] c1 c2", &[IntermediateRead]),
        ("G1c", "w1[x=11] w2[y=21] r1[y=21] r2[x=11] c1 c2", &[CircularFlow]),
        // What is rolled back reads what it likes.
        ("nobody", "w1[x=11] r2[x=11] a1 a2", &[]),
    ]);
}

/// Each saw the key that the other then wrote.
const WRITE_SKEW: &str = "r1[x=1] r2[y=2] w1[y=11] w2[x=21] c1 c2";

#[test]
fn what_is_not_kept_apart_is_found() {
    expect(&[
        ("lost update", "r1[x=1] r2[x=1] w2[x=21] c2 w1[x=11] c1", &[LostUpdate]),
        ("fuzzy read", "r1[x=1] w2[x=21] c2 r1[x=21] c1", &[ReadSkew]),
        ("read skew", "r1[x=1] w2[x=21] w2[y=22] c2 r1[y=22] c1", &[ReadSkew]),
        ("write skew", WRITE_SKEW, &[WriteSkew]),
        (
            "write skew, and one beside it",
            "r1[x=1] r2[y=2] r3[z=] r3[y=2] w2[x=21] w1[y=11] c1 c2 c3",
            &[WriteSkew],
        ),
        ("phantom", "s1[x..z:x=1,y=2] w2[z=21] c2 s1[x..z:x=1,y=2,z=21] c1", &[Phantom]),
        ("write skew with a phantom", "r1[z=] r2[x=1] w1[x=11] w2[z=21] c1 c2", &[Phantom]),
        ("outside of the range", "s1[x..y:x=1,y=2] w2[z=21] c2 s1[x..y:x=1,y=2] c1", &[]),
    ]);
}

#[test]
fn what_cannot_be_is_found() {
    for (name, text) in [
        ("nobody's", "r1[x=99] c1"),
        ("another key's", "r1[x=2] c1"),
        ("vanished", "r1[x=] c1"),
        ("left out", "s1[x..z:y=2] c1"),
        ("out of order", "s1[x..z:y=2,x=1] c1"),
        ("too much", "s1[y..z:x=1,y=2] c1"),
        ("own write", "w1[x=11] r1[x=1] c1"),
        ("own removal", "d1[x=11] r1[x=1] c1"),
        ("not undone", "m1 w1[x=11] u1 r1[x=11] c1"),
    ] {
        expect(&[(name, text, &[Broken])]);
    }
    let whole = history("w1[x=11] a1");
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
    let mut history = history("r1[z=] w2[z=21] c2 d3[z=31] w3[x=32] c3 r1[x=32] c1");
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
    let found = check(&history(WRITE_SKEW));
    let expected = "T1 before T2: T1 saw #1 of key 10, T2 wrote over it #21\n\
                    T2 before T1: T2 saw #2 of key 20, T1 wrote over it #11\n  \
                    T1 (client 1) [7-8] get 10 = #1; [11-12] put 20 = #11; [16] commit\n  \
                    T2 (client 2) [9-10] get 20 = #2; [13-14] put 10 = #21; [18] commit\n";
    assert_eq!(found[0].text, expected);
}
