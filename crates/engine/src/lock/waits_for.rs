//! The waits-for graph: who waits for whom, and in a circle.
//!
//! A node is a locker that waits, an edge leads to another that it waits for. A locker needs all
//! its edges gone before it can go on, so every cycle is a deadlock. An edge is hard when the other
//! holds what is wanted, and soft when it is only ahead in the queue.
//!
//! Somebody who is only ahead in a queue can be in a cycle without being to blame: in
//! A → B (soft) → C → A, where A waits for C as well, rolling back B helps nobody. So a victim is
//! one that a hard edge leads to. There always is one: soft edges lead toward the front of one
//! queue, and nobody waits in two.

use std::collections::{HashMap, VecDeque};

use super::queues::Waiting;
use super::settings::Victim;

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
enum Seen {
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

    /// A cycle: each waits for the next, and the last for the first.
    pub(super) fn cycle(&self) -> Option<Vec<Node>> {
        let node = self.node_on_cycle()?;
        self.shortest_cycle(node)
    }

    /// Depth first, with the path in a vector: a queue may be long.
    fn node_on_cycle(&self) -> Option<Node> {
        let mut seen = vec![Seen::Not; self.waits.len()];
        for root in 0..self.waits.len() {
            let mut path = Vec::new();
            path.extend((seen[root] == Seen::Not).then_some((root, 0)));
            while let Some((node, edge)) = path.last_mut() {
                seen[*node] = Seen::OnPath;
                let Some(to) = self.edges[*node].get(*edge) else {
                    seen[*node] = Seen::Done;
                    path.pop();
                    continue;
                };
                *edge += 1;
                match seen[to.node] {
                    Seen::OnPath => return Some(to.node),
                    Seen::Not => path.push((to.node, 0)),
                    Seen::Done => {}
                }
            }
        }
        None
    }

    /// Breadth first: the shorter the cycle, the fewer bystanders are in it.
    fn shortest_cycle(&self, start: Node) -> Option<Vec<Node>> {
        let mut came_from: Vec<Option<Node>> = vec![None; self.waits.len()];
        let mut next = VecDeque::from([start]);
        while let Some(node) = next.pop_front() {
            for to in &self.edges[node] {
                if to.node == start {
                    let before = |node: &Node| came_from[*node];
                    let mut cycle: Vec<Node> = std::iter::successors(Some(node), before).collect();
                    cycle.reverse();
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

    /// Whom to roll back to break a cycle.
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
    use super::super::locker_state::{LockerId, Place};
    use super::super::queues::looks::Edge;
    use super::super::settings::Priority;
    use super::*;

    /// A graph of lockers 0, 1, ...: for each its locks, its priority, and whom it waits for; `~`
    /// before a locker makes the edge soft.
    fn graph(lockers: &[(usize, u8, &str)]) -> WaitsFor {
        let place = Place { bucket: 0, request: 0 };
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
