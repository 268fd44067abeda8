//! A graph of transactions, and the shortest cycles in it.

use std::collections::VecDeque;

use super::history::{Key, WriteId};

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The other wrote over what it wrote.
    Ww,
    /// The other saw what it wrote.
    Wr,
    /// The other wrote over what it saw of a key.
    RwItem,
    /// The other inserted what it did not find.
    RwPredicate,
}

/// One comes before another, because of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    /// What one wrote or saw.
    pub(crate) before: Option<WriteId>,
    /// What the other wrote.
    pub(crate) after: Option<WriteId>,
}

/// Transactions by number, and what comes before what.
pub(crate) struct Graph {
    edges: Vec<Edge>,
    /// The edges that begin at each transaction.
    out: Vec<Vec<usize>>,
}

impl Graph {
    pub(crate) fn new(count: usize, mut edges: Vec<Edge>) -> Graph {
        edges.sort_unstable();
        edges.dedup_by_key(|edge| (edge.from, edge.to, edge.kind, edge.key));
        let mut out = vec![Vec::new(); count];
        for (number, edge) in edges.iter().enumerate() {
            out[edge.from].push(number);
        }
        Graph { edges, out }
    }

    /// Of the cycles that begin with an edge of the kind `first` and come back over edges that one
    /// of `rests` allows after it, the shortest for each of those. An edge counts for the first of
    /// them by which it comes back.
    pub(crate) fn cycles<const N: usize>(
        &self,
        first: Kind,
        rests: [fn(&Edge, &Edge) -> bool; N],
    ) -> [Option<Vec<Edge>>; N] {
        let mut cycles: [Option<Vec<Edge>>; N] = [const { None }; N];
        let component = self.components();
        let may_return = |edge: &&Edge| component[edge.from] == component[edge.to];
        let begins = self.edges.iter().filter(|edge| edge.kind == first);
        for begin in begins.filter(may_return) {
            let back = rests.iter().zip(&mut cycles).find_map(|(rest, shortest)| {
                let path = self.path(begin.to, begin.from, |edge| rest(begin, edge))?;
                Some((path, shortest))
            });
            let Some((path, shortest)) = back else { continue };
            if shortest.as_ref().is_none_or(|shortest| path.len() + 1 < shortest.len()) {
                *shortest = Some([vec![*begin], path].concat());
            }
        }
        cycles
    }

    /// The shortest path over edges that are allowed, by a search in breadth.
    fn path(&self, from: usize, to: usize, allowed: impl Fn(&Edge) -> bool) -> Option<Vec<Edge>> {
        let mut reached_by = vec![None; self.out.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            for edge in self.out[node].iter().map(|&number| self.edges[number]) {
                if edge.to == from || reached_by[edge.to].is_some() || !allowed(&edge) {
                    continue;
                }
                reached_by[edge.to] = Some(edge);
                if edge.to == to {
                    return Some(walk_back(&reached_by, from, to));
                }
                queue.push_back(edge.to);
            }
        }
        None
    }

    /// For each transaction the number of its strongly connected component (Tarjan, Depth-first
    /// search and linear graph algorithms, SIAM Journal on Computing 1972).
    fn components(&self) -> Vec<usize> {
        let mut search = Tarjan {
            graph: self,
            order: vec![None; self.out.len()],
            low: vec![0; self.out.len()],
            component: vec![None; self.out.len()],
            stack: Vec::new(),
            next: 0,
        };
        for node in 0..self.out.len() {
            if search.order[node].is_none() {
                search.visit(node);
            }
        }
        search.component.into_iter().map(Option::unwrap_or_default).collect()
    }
}

fn walk_back(reached_by: &[Option<Edge>], from: usize, to: usize) -> Vec<Edge> {
    let mut path = Vec::new();
    let mut node = to;
    while let Some(edge) = reached_by[node].filter(|_| node != from) {
        path.push(edge);
        node = edge.from;
    }
    path.reverse();
    path
}

struct Tarjan<'g> {
    graph: &'g Graph,
    /// When each node was met.
    order: Vec<Option<usize>>,
    /// The earliest that can be reached from it.
    low: Vec<usize>,
    component: Vec<Option<usize>>,
    stack: Vec<usize>,
    next: usize,
}

impl Tarjan<'_> {
    fn visit(&mut self, node: usize) {
        let met = self.next;
        self.next += 1;
        self.order[node] = Some(met);
        self.low[node] = met;
        self.stack.push(node);
        let graph = self.graph;
        for &edge in &graph.out[node] {
            let to = graph.edges[edge].to;
            match self.order[to] {
                None => {
                    self.visit(to);
                    self.low[node] = self.low[node].min(self.low[to]);
                }
                Some(met) if self.component[to].is_none() => {
                    self.low[node] = self.low[node].min(met);
                }
                Some(_) => {}
            }
        }
        if self.low[node] < met {
            return;
        }
        while let Some(member) = self.stack.pop() {
            self.component[member] = Some(met);
            if member == node {
                return;
            }
        }
    }
}
