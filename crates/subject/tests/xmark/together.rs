//! Eight clients at the same time.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use tidegate_workload::xmark::{ChildAccess, Skew, Xmark};
use tidegate_xml::store::ConflictPlace;

use super::{Fixture, LOCKS, Locks, of_client};

const CLIENTS: usize = 8;
const SEED: u64 = 2_026;

/// Runs clients side by side, each transaction by the locks that are given for its number, and
/// returns how many attempts a conflict has ended.
fn run_clients(
    fixture: &Fixture,
    workload: &Xmark,
    locks: impl Fn(usize) -> Locks + Sync,
    count: usize,
) -> u32 {
    let conflicts = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (conflicts, locks) = (&conflicts, &locks);
            scope.spawn(move || {
                let own = of_client(workload, number, SEED, count);
                for (at, transaction) in own.iter().enumerate() {
                    let (_, own) = fixture.run(transaction, locks(number + at));
                    conflicts.fetch_add(own, Ordering::Relaxed);
                }
            });
        }
    });
    conflicts.into_inner()
}

fn run_variants(access: ChildAccess, preventive: bool) {
    println!("seed {SEED}");
    for locks in LOCKS {
        let workload = Xmark { skew: Skew::HIGH, access, preventive, ..Xmark::new(0.004, SEED) };
        let fixture = Fixture::new(&workload);
        let conflicts = run_clients(&fixture, &workload, |_| locks, 30);
        let places = fixture.store.conflict_counts();
        let what = format!("{locks:?}, {access:?}, preventive {preventive}");
        println!("{what}: {conflicts} conflicts, {places:?}");
        fixture.assert_consistent();
        let on_entries = |place| place == ConflictPlace::Entry;
        let elsewhere = places.iter().filter(|(place, _)| !on_entries(*place));
        let elsewhere: u64 = elsewhere.map(|(_, counts)| counts.deadlocks).sum();
        // Who locks everything first, or the document, has nothing to wait for in a circle.
        if ["document", "X"].contains(&locks.0) || (preventive && locks == ("taDOM3+", None)) {
            assert_eq!(elsewhere, 0, "{what}: {places:?}");
        }
    }
}

#[test]
fn clients_that_navigate() {
    run_variants(ChildAccess::Navigation, false);
}

#[test]
fn clients_that_ask_for_streams() {
    run_variants(ChildAccess::Stream, false);
}

#[test]
fn clients_that_navigate_and_lock_first() {
    run_variants(ChildAccess::Navigation, true);
}

#[test]
fn clients_that_ask_for_streams_and_lock_first() {
    run_variants(ChildAccess::Stream, true);
}

#[test]
fn clients_that_keep_lists_short() {
    println!("seed {SEED}");
    for preventive in [false, true] {
        let workload = Xmark {
            skew: Skew::HIGH,
            keep: NonZeroU32::new(2),
            preventive,
            ..Xmark::new(0.004, SEED)
        };
        let fixture = Fixture::new(&workload);
        let conflicts = run_clients(&fixture, &workload, |at| LOCKS[2 + at % 5], 60);
        println!("preventive {preventive}: {conflicts} conflicts");
        fixture.assert_consistent();
    }
}

#[test]
fn clients_of_all_protocols_side_by_side() {
    println!("seed {SEED}");
    // With all of them, and with those that let transactions run beside each other.
    for (access, preventive, list) in [
        (ChildAccess::Navigation, true, &LOCKS[..]),
        (ChildAccess::Stream, false, &LOCKS[..]),
        (ChildAccess::Navigation, false, &LOCKS[2..]),
        (ChildAccess::Stream, true, &LOCKS[2..]),
    ] {
        let workload = Xmark { skew: Skew::HIGH, access, preventive, ..Xmark::new(0.004, SEED) };
        let fixture = Fixture::new(&workload);
        let conflicts = run_clients(&fixture, &workload, |at| list[at % list.len()], 30);
        println!("{list:?}, {access:?}, preventive {preventive}: {conflicts} conflicts");
        fixture.assert_consistent();
    }
}

#[test]
#[ignore = "soak: each variant and protocol with many transactions, some minutes"]
fn many_transactions_of_each_variant_and_protocol() {
    for (number, locks) in LOCKS.into_iter().cycle().take(4 * LOCKS.len()).enumerate() {
        let [is_stream, preventive] = [number / 14 == 1, number / 7 % 2 == 1];
        let access = if is_stream { ChildAccess::Stream } else { ChildAccess::Navigation };
        let workload = Xmark { skew: Skew::LOW, access, preventive, ..Xmark::new(0.01, SEED) };
        let fixture = Fixture::new(&workload);
        let conflicts = run_clients(&fixture, &workload, |_| locks, 300);
        println!("{locks:?}, {access:?}, preventive {preventive}: {conflicts} conflicts");
        fixture.assert_consistent();
    }
}
