//! Eight clients at the same time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use tidegate_workload::xmark::{ChildAccess, Skew, Xmark};
use tidegate_xml::store::ConflictPlace;

use super::{Fixture, LOCKS, Locks, of_client};

const CLIENTS: usize = 8;
const SEED: u64 = 2_026;

/// Runs clients side by side, and returns how many attempts a conflict has ended.
fn run_clients(fixture: &Fixture, workload: &Xmark, locks: Locks, count: usize) -> u32 {
    let conflicts = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let conflicts = &conflicts;
            scope.spawn(move || {
                for transaction in of_client(workload, number, SEED, count) {
                    let (_, own) = fixture.run(&transaction, locks);
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
        let conflicts = run_clients(&fixture, &workload, locks, 40);
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
