//! Who gives up: deadlocks are found and broken, and who waits gives way to a higher priority.
//!
//! All of this is about the tables of a [group](super::group) together.
//!
//! # Deadlocks: found from a copy of the waits, broken only after a second look
//! A pass copies the waits of one bucket after the other, holding one latch at a time and only for
//! the copy, and looks for a cycle in the copy. Since locks move meanwhile, a cycle in it may never
//! have been there at one moment. So before a locker is rolled back, all buckets that the cycle
//! touches are latched together, in order of their numbers, and each wait of it is looked at again.
//! What still stands then is a deadlock: no locker in it can go on. The victim's request is removed
//! from its queue under the same latches. Then, or when the cycle is gone, the search begins anew
//! with another copy, until there is no cycle in it.
//!
//! A locker that checks when it blocks copies only the waits it can reach. That finds every
//! deadlock: who completes a circle does so by beginning to wait, and all other waits of the circle
//! are there by then.
//!
//! # The graph
//! A node is a locker that waits, an edge leads to another that it waits for. A locker needs all
//! its edges gone before it can go on, so every cycle is a deadlock. An edge is hard when the other
//! holds what is wanted, and soft when it is only ahead in the queue.
//!
//! A locker that is only ahead in a queue can be in a cycle without being to blame: in A → B (soft)
//! → C → A, where A waits for C as well, rolling back B helps none of them. So a victim is one that
//! a hard edge leads to. There always is one: soft edges lead toward the front of one queue, and no
//! locker waits in two.
//!
//! # Example
//! ```text
//! T1 holds S(a), T2 holds S(a); T1 asks for X(a) and waits for T2; T2 asks for X(a)
//! copy: T1 → T2, T2 → T1     cycle T1 T2, both with one lock; the younger, T2, is the victim
//! T2's request leaves the queue, its wait ends with `Deadlock`; when it has given its locks
//! back, T1's conversion is granted
//! ```
//!
//! # Preempt on wait: a transaction that waits gives way to a higher priority
//! Both sides look when they begin to wait. The one of high priority looks at those in its way: a
//! lower one that waits itself is rolled back. The one of low priority looks at the queues of what
//! it holds: if a higher one waits for it there, it is rolled back itself. A wait begins in its
//! queue before its locker looks, so of two that begin at the same time at least one sees the
//! other.
//!
//! Before a wait is ended the buckets of both are latched, and it is looked at again.
//!
//! For example:
//!
//! ```text
//! L holds X(a), M holds X(b), H is of higher priority than both
//! H asks for X(a)    L runs: H waits for it
//! L asks for X(b)    L waits now, and H for L: L's wait ends with `Preempted`, and when it has
//!                    given X(a) back, H goes on
//! ```
//!
//! # Where this leaves the literature
//! * **PostgreSQL** latches the whole lock table for a search. Here no locker is held up for longer
//!   than a copy of one bucket, at the price of the second look.
//! * **Soft edges.** PostgreSQL tries to break a cycle with soft edges by another order of a queue.
//!   Here a queue is never reordered, and a locker is rolled back instead: such cycles need a
//!   holder that comes back for a second resource, and a request that waits between two that go
//!   together.
//! * **Who is to blame.** The study of XML locking (Section 2.3) takes who holds the fewest locks
//!   of all in the cycle. Here of those that hold what another waits for.
//!
//! # Limits
//! A thread with two lockers that waits with one of them is not seen to wait with the other.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::group::Tables;
use super::locker_state::{LockerId, LockerState, Outcome, RequestIndex, Woken};
use super::queues::Waiting;
use super::table::Granted;
use super::{LockManager, Locker, Priority, Resource, Victim};
use crate::periodic::Periodic;

impl<R: Resource> LockManager<R> {
    /// Looks for deadlocks now and breaks them, also those of which a part is in a table
    /// [beside](LockManager::beside) this one. Returns how many requests it ended.
    pub fn break_deadlocks(&self) -> usize {
        let tables = self.group.tables();
        tables.break_cycles(self.settings().victim, || tables.waits())
    }

    /// Breaks the deadlocks that `locker`, which waits at `place`, is in or waits for.
    pub(super) fn break_deadlocks_from(&self, locker: LockerId, place: RequestIndex) -> usize {
        let tables = self.group.tables();
        tables.break_cycles(self.settings().victim, || tables.waits_reached_from(locker, place))
    }

    /// Starts a thread that calls [`break_deadlocks`](LockManager::break_deadlocks) every
    /// `interval`, which is raised to a millisecond. It ends when the returned value is dropped.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start_detector(self: &Arc<Self>, interval: Duration) -> io::Result<Detector> {
        let interval = interval.max(Duration::from_millis(1));
        let manager = Arc::clone(self);
        let detect = move || {
            manager.break_deadlocks();
            interval
        };
        Ok(Detector { _thread: Periodic::start("deadlock detector", detect)? })
    }
}

impl Tables {
    fn waits_reached_from(&self, locker: LockerId, place: RequestIndex) -> Vec<Waiting> {
        let mut reached = HashSet::from([locker]);
        let mut next = vec![(locker, place)];
        let mut waits = Vec::new();
        while let Some((locker, place)) = next.pop() {
            if let Some(wait) = self.wait_at(place, locker) {
                let new = wait.edges.iter().filter(|edge| reached.insert(edge.to));
                next.extend(new.map(|edge| (edge.to, edge.place)));
                waits.push(wait);
            }
        }
        waits
    }

    /// Breaks one cycle of each copy. A locker that waited behind a victim may be in another cycle,
    /// which the copy does not show.
    fn break_cycles(&self, by: Victim, copy: impl Fn() -> Vec<Waiting>) -> usize {
        let mut victims = 0;
        loop {
            let graph = WaitsFor::new(copy());
            let Some(cycle) = graph.cycle() else { return victims };
            victims += usize::from(self.break_cycle(&graph, &cycle, by));
        }
    }

    /// Rolls one of the cycle back, if it still is one.
    fn break_cycle(&self, graph: &WaitsFor, cycle: &[Node], by: Victim) -> bool {
        debug_assert!(!cycle.is_empty(), "a cycle has a node");
        let mut woken = Woken::default();
        let buckets = cycle.iter().map(|node| graph.wait(*node).place.bucket);
        let mut latched = self.latch_all(buckets);
        let following = cycle.iter().cycle().skip(1);
        let mut edges = cycle.iter().zip(following);
        let is_there = edges.all(|(waiter, blocker)| {
            let (waiter, blocker) = (graph.wait(*waiter), graph.wait(*blocker));
            latched.is_blocked_by(waiter.locker, waiter.place, blocker.locker)
        });
        let Some(victim) = graph.victim(cycle, by).filter(|_| is_there) else {
            return false;
        };
        debug_assert!(cycle.iter().any(|node| graph.wait(*node).locker == victim.locker));
        tracing::debug!(victim = victim.locker.0, lockers = cycle.len(), "deadlock");
        latched.dismiss(victim.place, Outcome::Deadlock, &mut woken);
        drop(latched);
        woken.wake();
        true
    }
}

impl<R: Resource> Locker<R> {
    /// Rolls back what should give way, now that this locker waits at `place`; perhaps itself.
    pub(super) fn preempt(&self, place: RequestIndex) {
        let (manager, tables) = (&*self.manager, self.manager.group.tables());
        let LockerState { id, priority, .. } = *self.state;
        let own = Waiter { id, place, priority };
        for low in tables.blockers_below(place, id, priority) {
            tables.preempt(&low, own);
        }
        for (hash, resource, held) in self.held.iter() {
            let bucket = manager.bucket_of(hash);
            let granted = Granted { hash, resource, handle: held.handle, locker: &self.state };
            let high = manager.latch(bucket).blocked_above(&manager.rules, &granted);
            let high = high.and_then(|high| Waiter::of(&high));
            if high.is_some_and(|high| tables.preempt(&self.state, high)) {
                return;
            }
        }
        if self.state.tables() > 1 {
            self.give_way_in_any_table(&tables);
        }
    }

    /// Gives way to a higher priority that waits for this transaction in any table. What it holds
    /// there is not known here, so all that wait are looked at.
    fn give_way_in_any_table(&self, tables: &Tables) {
        let higher = tables.waits().into_iter().filter(|wait| wait.priority > self.state.priority);
        for Waiting { locker: id, place, priority, .. } in higher {
            if tables.preempt(&self.state, Waiter { id, place, priority }) {
                return;
            }
        }
    }
}

/// A locker that waits.
#[derive(Clone, Copy)]
struct Waiter {
    id: LockerId,
    place: RequestIndex,
    priority: Priority,
}

impl Waiter {
    fn of(locker: &LockerState) -> Option<Waiter> {
        Some(Waiter { id: locker.id, place: locker.place()?, priority: locker.priority })
    }
}

impl Tables {
    /// Ends the wait of `low` if it waits and is in the way of `high`. Returns whether it did.
    fn preempt(&self, low: &LockerState, high: Waiter) -> bool {
        debug_assert!(low.priority < high.priority, "none gives way to its like");
        let Some(low_place) = low.place() else { return false };
        let mut woken = Woken::default();
        let mut latched = self.latch_all([low_place.bucket, high.place.bucket].into_iter());
        let is_in_the_way = latched.is_waiting(low.id, low_place)
            && latched.is_blocked_by(high.id, high.place, low.id);
        if is_in_the_way {
            latched.dismiss(low_place, Outcome::Preempted, &mut woken);
        }
        drop(latched);
        woken.wake();
        is_in_the_way
    }
}

/// A thread that looks for deadlocks; dropping this stops it and waits for its end.
#[derive(Debug)]
#[must_use = "the detector stops when this is dropped"]
pub struct Detector {
    _thread: Periodic,
}

/// A node of the graph; an index.
pub(super) type Node = usize;

/// See the [module](self).
pub(super) struct WaitsFor {
    waits: Vec<Waiting>,
    edges: Vec<Vec<To>>,
}

#[derive(Clone, Copy)]
struct To {
    node: Node,
    is_hard: bool,
}

/// How far the search has come with a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Not,
    OnPath,
    Done,
}

impl WaitsFor {
    pub(super) fn new(waits: Vec<Waiting>) -> WaitsFor {
        let nodes: HashMap<_, _> = waits.iter().map(|wait| wait.locker).zip(0..).collect();
        let to = |wait: &Waiting| {
            let known = wait
                .edges
                .iter()
                .filter_map(|edge| Some(To { node: *nodes.get(&edge.to)?, is_hard: edge.is_hard }));
            known.collect()
        };
        let edges = waits.iter().map(to).collect();
        WaitsFor { waits, edges }
    }

    pub(super) fn wait(&self, node: Node) -> &Waiting {
        &self.waits[node]
    }

    /// Returns a cycle: each waits for the next, and the last for the first.
    pub(super) fn cycle(&self) -> Option<Vec<Node>> {
        let node = self.node_on_cycle()?;
        self.shortest_cycle(node)
    }

    /// Searches depth first for a node on a cycle, with the path in a vector: a queue may be long.
    fn node_on_cycle(&self) -> Option<Node> {
        let mut seen = vec![Visit::Not; self.waits.len()];
        for root in 0..self.waits.len() {
            let mut path = Vec::new();
            path.extend((seen[root] == Visit::Not).then_some((root, 0)));
            while let Some((node, edge)) = path.last_mut() {
                seen[*node] = Visit::OnPath;
                let Some(to) = self.edges[*node].get(*edge) else {
                    seen[*node] = Visit::Done;
                    path.pop();
                    continue;
                };
                *edge += 1;
                match seen[to.node] {
                    Visit::OnPath => return Some(to.node),
                    Visit::Not => path.push((to.node, 0)),
                    Visit::Done => {}
                }
            }
        }
        None
    }

    /// Searches breadth first: the shorter the cycle, the fewer lockers are in it that are not
    /// needed for it.
    fn shortest_cycle(&self, start: Node) -> Option<Vec<Node>> {
        let mut came_from: Vec<Option<Node>> = vec![None; self.waits.len()];
        let mut next = VecDeque::from([start]);
        while let Some(node) = next.pop_front() {
            for to in &self.edges[node] {
                if to.node == start {
                    let before = |node: &Node| came_from[*node];
                    let mut cycle: Vec<Node> = std::iter::successors(Some(node), before).collect();
                    cycle.reverse();
                    debug_assert_eq!(cycle.first(), Some(&start), "a cycle begins where it ends");
                    return Some(cycle);
                }
                if came_from[to.node].is_none() {
                    came_from[to.node] = Some(node);
                    next.push_back(to.node);
                }
            }
        }
        None
    }

    /// Returns the wait to end to break a cycle.
    pub(super) fn victim(&self, cycle: &[Node], by: Victim) -> Option<&Waiting> {
        let following = cycle.iter().cycle().skip(1);
        let pairs = cycle.iter().zip(following);
        let to_blame = pairs.filter(|(from, to)| self.is_hard(**from, **to));
        to_blame.map(|(_, to)| &self.waits[*to]).min_by_key(|wait| {
            let (priority, locks) = match by {
                Victim::FewestLocks => (0, wait.locks),
                Victim::Youngest => (0, 0),
                Victim::LowestPriority => (wait.priority.0, wait.locks),
            };
            (priority, locks, std::cmp::Reverse(wait.locker))
        })
    }

    fn is_hard(&self, from: Node, to: Node) -> bool {
        self.edges[from].iter().any(|edge| edge.node == to && edge.is_hard)
    }
}

#[cfg(test)]
mod tests {
    use super::super::modes::ModeTable;
    use super::super::modes::multi_granularity::X;
    use super::super::queues::{Answer, IfBusy, NewRequest};
    use super::super::{LockSettings, Priority};
    use super::*;
    use crate::hash_slab::hash_of;

    /// Lockers that wait without a thread.
    struct Table {
        manager: Arc<LockManager<&'static str>>,
        lockers: Vec<Arc<LockerState>>,
    }

    impl Table {
        fn new(lockers: u64) -> Table {
            let modes = ModeTable::multi_granularity();
            let state = |id| Arc::new(LockerState::new(LockerId(id), Priority::default(), 0));
            let lockers = (0..lockers).map(state).collect();
            Table { manager: LockManager::new(modes, LockSettings::default()), lockers }
        }

        /// Asks for X.
        fn ask(&self, locker: usize, resource: &'static str) -> Answer {
            let hash = hash_of(&resource);
            let locker = &self.lockers[locker];
            let ask =
                NewRequest { hash, resource: &resource, mode: X, locker, if_busy: IfBusy::Queue };
            self.manager.latch(self.manager.bucket_of(hash)).ask(&self.manager.rules, &ask)
        }

        fn give_up(&self, locker: usize) {
            let place = self.lockers[locker].place().expect("it waits");
            let mut bucket = self.manager.latch(place.bucket.in_table());
            let (rules, mut woken) = (&self.manager.rules, Woken::default());
            bucket.queues.dismiss(rules, place.request, Outcome::TimedOut, &mut woken);
        }

        fn graph(&self) -> WaitsFor {
            WaitsFor::new(self.manager.group.tables().waits())
        }

        fn break_cycle(&self, graph: &WaitsFor, cycle: &[Node]) -> bool {
            self.manager.group.tables().break_cycle(graph, cycle, Victim::FewestLocks)
        }

        fn outcomes(&self) -> Vec<Outcome> {
            self.lockers.iter().map(|locker| locker.outcome()).collect()
        }
    }

    /// Returns a table in which 0 holds a and waits for b, and 1 holds b and waits for a.
    fn circle_of_two() -> Table {
        let table = Table::new(2);
        table.ask(0, "a");
        table.ask(1, "b");
        table.ask(0, "b");
        table.ask(1, "a");
        table
    }

    #[test]
    fn a_cycle_that_is_there_is_broken() {
        let table = circle_of_two();
        let graph = table.graph();
        let cycle = graph.cycle().expect("a circle");
        assert!(table.break_cycle(&graph, &cycle));
        assert_eq!(table.outcomes(), [Outcome::Waiting, Outcome::Deadlock]);
    }

    #[test]
    fn a_cycle_that_is_gone_harms_nobody() {
        let table = circle_of_two();
        let graph = table.graph();
        let cycle = graph.cycle().expect("a circle");
        table.give_up(1);
        assert!(!table.break_cycle(&graph, &cycle), "1 does not wait");
        table.ask(1, "c");
        assert!(!table.break_cycle(&graph, &cycle), "1 has what it waited for");
        assert_eq!(table.outcomes(), [Outcome::Waiting, Outcome::TimedOut]);
    }

    #[test]
    fn a_locker_that_waits_again_is_looked_at_again() {
        let table = Table::new(3);
        // 2 holds c, whose bucket need not be another: what counts is whom 1 waits for.
        table.ask(2, "c");
        for (locker, resource) in [(0, "a"), (1, "b"), (0, "b"), (1, "a")] {
            table.ask(locker, resource);
        }
        let graph = table.graph();
        let cycle = graph.cycle().expect("a circle");
        table.give_up(1);
        assert!(matches!(table.ask(1, "c"), Answer::Waiting(_)));
        assert!(!table.break_cycle(&graph, &cycle));
        assert_eq!(table.manager.break_deadlocks(), 0);
        assert_eq!(table.outcomes()[..2], [Outcome::Waiting, Outcome::Waiting]);
    }
}

#[cfg(test)]
mod graph_tests {
    use super::super::Priority;
    use super::super::locker_state::BucketNumber;
    use super::super::queues::Edge;
    use super::*;

    /// Returns a graph of lockers 0, 1, ...: for each its locks, its priority, and whom it waits
    /// for; `~` before a locker makes the edge soft.
    fn graph(lockers: &[(usize, u8, &str)]) -> WaitsFor {
        let place = RequestIndex { bucket: BucketNumber::new(0, 0), request: 0 };
        let edge = |word: &str| {
            let to = word.trim_start_matches('~').parse().expect("a locker");
            Edge { to: LockerId(to), place, is_hard: !word.starts_with('~') }
        };
        let waits = lockers.iter().zip(0..).map(|((locks, priority, edges), locker)| Waiting {
            locker: LockerId(locker),
            place,
            priority: Priority(*priority),
            locks: *locks,
            edges: edges.split_whitespace().map(edge).collect(),
        });
        WaitsFor::new(waits.collect())
    }

    #[test]
    fn waits_without_a_circle_are_no_deadlock() {
        for lockers in [
            vec![],
            vec![(1, 0, "")],
            vec![(1, 0, "1"), (1, 0, "2"), (1, 0, "")],
            vec![(1, 0, "1 2 3"), (1, 0, "3"), (1, 0, "1 3"), (1, 0, "9")],
        ] {
            assert_eq!(graph(&lockers).cycle(), None, "{lockers:?}");
        }
    }

    #[test]
    fn a_circle_is_found_behind_a_tail_and_without_its_detours() {
        // 0 leads to 1 → 2 → 3 → 1, and 1 → 3 is a shorter way.
        let graph = graph(&[(1, 0, "1"), (1, 0, "2 3"), (1, 0, "3"), (1, 0, "1")]);
        assert_eq!(graph.cycle(), Some(vec![1, 3]));
    }

    #[test]
    fn the_victim_is_the_cheapest_that_holds_something() {
        // 0 waits for 2 behind 1 in a queue, and 2 waits for 0.
        let graph = graph(&[(5, 1, "~1"), (0, 0, "2"), (5, 9, "0")]);
        let cycle = graph.cycle().expect("a circle of three");
        assert_eq!(cycle.len(), 3);
        let victims = [
            (Victim::FewestLocks, 2, "as many as 0, and younger"),
            (Victim::Youngest, 2, "the last of those that hold"),
            (Victim::LowestPriority, 0, "1 is lower, and only ahead"),
        ];
        for (by, victim, why) in victims {
            let chosen = graph.victim(&cycle, by).map(|wait| wait.locker);
            assert_eq!(chosen, Some(LockerId(victim)), "{by:?}: {why}");
        }
    }
}
