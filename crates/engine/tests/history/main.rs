//! Whether transactions are kept apart as far as their isolation level says.
//!
//! # Mechanism
//! Clients with a thread each run transactions on a store, and write down every operation and what
//! came of it. Every write has a number of its own, which is the value that it leaves; so a read
//! that finds a value knows whose it is. A second tree holds for each key the numbers of all its
//! writes, removals too, each added by who holds the lock on the key: read when all is over, it is
//! the order of versions, without those that were rolled back.
//!
//! From both the checker draws what comes before what, as edges between committed transactions:
//!
//! | edge | from | to |
//! | --- | --- | --- |
//! | ww | who wrote a version | who wrote the next one |
//! | wr | who wrote a version | who read it |
//! | rw, item | who read a version | who wrote the next one |
//! | rw, predicate | who did not find a key | who inserted it |
//!
//! A history is serializable if no edges go in a circle. Which edges are in a circle says what the
//! anomaly is called, and the level what of it is permitted:
//!
//! | circle, or read | name | read uncommitted | read committed | repeatable read | serializable |
//! | --- | --- | --- | --- | --- | --- |
//! | ww | G0, dirty write | | | | |
//! | read of what is rolled back | G1a, dirty read | permitted | | | |
//! | read of what is written again | G1b, intermediate read | permitted | | | |
//! | ww, wr | G1c, circular flow | permitted | | | |
//! | one rw, item; ww of the same key | G-single, lost update | permitted | permitted | | |
//! | one rw, item | G-single, fuzzy read, read skew | permitted | permitted | | |
//! | several rw, item | G2-item, write skew | permitted | permitted | | |
//! | rw, predicate | G2, phantom | permitted | permitted | permitted | |
//!
//! `scripts` plays each anomaly by name at each level, step by step; `schedules` lets the levels
//! loose on schedules from a seed. What somebody forbids must not be found, and what somebody
//! permits must be: by schedules that are too tame, nothing is shown. Defects that are planted in
//! the client must be found as well.
//!
//! # Outcomes
//! What comes of each script: it happens (!), somebody waits until it cannot, or two wait for each
//! other and one is rolled back. The numbers are those of Berenson et al.
//!
//! | script | read uncommitted | read committed | repeatable read | serializable |
//! | --- | --- | --- | --- | --- |
//! | P0, dirty write | waits | waits | waits | waits |
//! | P1, dirty read: of a write, an insert, a removal | ! | waits | waits | waits |
//! | P1, dirty read of what is taken back at a savepoint | ! | waits | waits | waits |
//! | G1b, intermediate read | ! | waits | waits | waits |
//! | G1c, circular flow | ! | rolled back | rolled back | rolled back |
//! | P2, fuzzy read: of a write, of a removal | ! | ! | waits | waits |
//! | P3, phantom of a range | ! | ! | ! | waits |
//! | P3, phantom of one key | ! | ! | waits | waits |
//! | P3, write skew by phantoms | ! | ! | ! | rolled back |
//! | P4, lost update | ! | ! | rolled back | rolled back |
//! | P4C, lost update under a cursor | ! | ! | waits | waits |
//! | A5A, read skew | ! | ! | waits | waits |
//! | A5B, write skew | ! | ! | rolled back | rolled back |
//!
//! # Example
//! ```text
//! T1 gets x = #1; T2 gets y = #2; T1 puts y = #11; T2 puts x = #21; both commit
//!
//! T1 before T2: T1 saw #1 of key x, T2 wrote over it #21       rw, item
//! T2 before T1: T2 saw #2 of key y, T1 wrote over it #11       rw, item
//! ```
//! Two edges rw, both of single keys: write skew, as read committed permits and repeatable read
//! does not.
//!
//! # Where this leaves the literature
//! * **Levels** are those of Adya (Weak consistency, thesis, MIT 1999; Adya, Liskov, O'Neil,
//!   ICDE 2000): PL-1, PL-2, PL-2.99, PL-3. Read by the letter, his G2-item has a circle with one
//!   rw of an item, whatever else there is in it. Locks that are kept on items and not on
//!   predicates permit circles of both kinds, and are what he means; so here G2-item has no rw of
//!   a predicate.
//! * **The order of versions** is read off lists that are only added to, as in Elle (Kingsbury and
//!   Alvaro, VLDB 2020). There the list is the value. Here it is beside the values, in a tree of
//!   its own: a key that is taken out would take its list along, and a level that permits lost
//!   updates would lose parts of it.
//! * **Removal.** With Adya a key that was removed never comes back. Here it does, so that who
//!   found nothing has seen one of several versions; see `versions`.
//! * **Savepoints** are in neither. What was read before a rollback to one is read still, for the
//!   client knows it; what was written is as if its transaction had been rolled back.
//!
//! # Limits
//! * Only transactions that are committed are looked at: what was read by one that is rolled back
//!   later may have been anything.
//! * A read that finds nothing while a key comes and goes is taken for what is least suspicious.
//! * That a key was there already, which an insert says, is not used.
//! * All transactions of a run have the same level. Nobody crashes: `store/crashes` does that.
//! * A serializable history may still show each client what is old; the store has one copy of
//!   everything, so there is nothing old to be seen, and that is not looked for.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads and clocks of these are the system's"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod checker;
mod checker_tests;
mod client;
mod graph;
mod history;
mod notation;
#[path = "../../fuzz/src/random.rs"]
mod random;
mod reduce;
mod run;
mod schedules;
mod scripts;
mod turns;
mod versions;

use tidegate_engine::Isolation;

use random::Random;

const LEVELS: [Isolation; 4] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];
