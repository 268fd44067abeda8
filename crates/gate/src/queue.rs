//! The queue: waiting transactions in lanes.
//!
//! A *lane* holds the transactions of one class that name the same quotas: if one of them may have
//! a permit now, all may. Which lane goes next is decided by the gate, which looks at the lanes
//! where somebody waits: one for each class where there are no quotas. Inside a lane entries stand
//! in order of arrival, and unless the class is FIFO also in order of their rank, in a treap that
//! knows how many stand before a rank.
//!
//! Entries live in a slab and are linked through it, so that a waiting transaction leaves from the
//! middle (cancelled, past its deadline) without allocation in steady state: in constant time, or
//! in logarithmic time where there are ranks.

use std::collections::HashMap;

use slab::Slab;

use crate::classes::{ClassId, Classes, Quotas, WaitingOrder};

/// Names an entry of a [`Queue`] while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueKey(usize);

/// Lists are walked to check them only while they are no longer than this.
pub(crate) const CHECKED_MAX: usize = 16;

/// The order inside a lane: by the first number, then by arrival.
pub(crate) type Rank = (u64, u64);

/// The entries of one class that name the same quotas.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) class: ClassId,
    pub(crate) quotas: Quotas,
    first: Option<usize>,
    last: Option<usize>,
    len: u32,
    /// The top of the treap, where the class has ranks.
    root: Option<usize>,
    /// Its place among the lanes that have entries.
    place: usize,
}

#[derive(Debug)]
struct QueueNode<T> {
    lane: usize,
    rank: Rank,
    previous: Option<usize>,
    next: Option<usize>,
    left: Option<usize>,
    right: Option<usize>,
    /// Nodes of the treap from here down.
    size: u32,
    value: T,
}

/// Waiting entries of every class.
///
/// - Every node of the slab is in exactly one list, that of its lane, in order of arrival.
/// - `previous` and `next` of neighbours name each other; a list's ends have none.
/// - `busy` holds the lanes that have entries, in no particular order.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    nodes: Slab<QueueNode<T>>,
    lanes: Vec<Lane>,
    lane_of: HashMap<(ClassId, Quotas), usize>,
    busy: Vec<usize>,
    orders: Vec<WaitingOrder>,
    lens: Vec<u32>,
    arrivals: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new(classes: &Classes) -> Self {
        let mut queue = Queue {
            nodes: Slab::new(),
            lanes: Vec::new(),
            lane_of: HashMap::new(),
            busy: Vec::new(),
            orders: classes.iter().map(|(_, class)| class.order).collect(),
            lens: vec![0; classes.count()],
            arrivals: 0,
        };
        for (class, _) in classes.iter() {
            queue.lane(class, Quotas::default());
        }
        queue
    }

    pub(crate) fn len(&self) -> u32 {
        self.lens.iter().sum()
    }

    /// Returns how many of a class wait.
    pub(crate) fn len_of(&self, class: ClassId) -> u32 {
        self.lens[class.index()]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the lanes that have entries.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.busy.iter().map(|&lane| &self.lanes[lane])
    }

    fn lane(&mut self, class: ClassId, quotas: Quotas) -> usize {
        // Those without quotas were made first.
        if quotas == Quotas::default() && class.index() < self.lanes.len() {
            return class.index();
        }
        let next = self.lanes.len();
        let lane = *self.lane_of.entry((class, quotas)).or_insert(next);
        if lane == next {
            let (first, last, root) = (None, None, None);
            self.lanes.push(Lane { class, quotas, first, last, len: 0, root, place: 0 });
        }
        lane
    }

    /// Appends `value` to its lane; `rank` is its place where the class has ranks. Returns its
    /// name.
    pub(crate) fn push(&mut self, class: ClassId, quotas: Quotas, rank: u64, value: T) -> QueueKey {
        let lane_index = self.lane(class, quotas);
        self.arrivals += 1;
        let is_ranked = self.orders[class.index()] != WaitingOrder::Fifo;
        let rank = (if is_ranked { rank } else { 0 }, self.arrivals);
        let lane = &mut self.lanes[lane_index];
        let key = self.nodes.insert(QueueNode {
            lane: lane_index,
            rank,
            previous: lane.last,
            next: None,
            left: None,
            right: None,
            size: 1,
            value,
        });
        lane.len += 1;
        self.lens[class.index()] += 1;
        if let Some(before) = lane.last.replace(key) {
            self.nodes[before].next = Some(key);
        } else {
            lane.first = Some(key);
            lane.place = self.busy.len();
            self.busy.push(lane_index);
        }
        if is_ranked {
            let (below, above) = self.split(self.lanes[lane_index].root, rank);
            let below = self.merge(below, Some(key));
            self.lanes[lane_index].root = self.merge(below, above);
        }
        QueueKey(key)
    }

    /// Returns the entry of a lane that goes first, and its rank.
    pub(crate) fn first(&self, lane: &Lane) -> Option<(QueueKey, Rank)> {
        let mut key = lane.root.or(lane.first)?;
        while let Some(left) = self.nodes[key].left {
            key = left;
        }
        Some((QueueKey(key), self.nodes[key].rank))
    }

    /// Returns the entry of a lane that came first, and the number of its arrival.
    pub(crate) fn oldest(&self, lane: &Lane) -> Option<(QueueKey, u64)> {
        lane.first.map(|key| (QueueKey(key), self.nodes[key].rank.1))
    }

    pub(crate) fn get(&self, QueueKey(key): QueueKey) -> &T {
        &self.nodes[key].value
    }

    /// Returns the class of an entry and its quotas.
    pub(crate) fn lane_of(&self, QueueKey(key): QueueKey) -> (ClassId, Quotas) {
        let Lane { class, quotas, .. } = self.lanes[self.nodes[key].lane];
        (class, quotas)
    }

    /// Returns how many entries of a class would go before one that comes now with this rank.
    pub(crate) fn ahead(&self, class: ClassId, rank: u64) -> u32 {
        if self.orders[class.index()] == WaitingOrder::Fifo {
            return self.len_of(class);
        }
        let of_class = self.lanes().filter(|lane| lane.class == class);
        of_class.map(|lane| self.up_to(lane.root, (rank, u64::MAX))).sum()
    }

    /// Removes an entry, wherever it stands.
    ///
    /// # Panics
    /// The entry was removed before.
    pub(crate) fn remove(&mut self, QueueKey(key): QueueKey) -> T {
        let (lane_index, rank) = (self.nodes[key].lane, self.nodes[key].rank);
        if self.lanes[lane_index].root.is_some() {
            let (below, rest) = self.split(self.lanes[lane_index].root, rank);
            let (removed, above) = self.split(rest, (rank.0, rank.1 + 1));
            debug_assert_eq!(removed, Some(key), "ranks differ");
            self.lanes[lane_index].root = self.merge(below, above);
        }
        let node = self.nodes.remove(key);
        let lane = &mut self.lanes[lane_index];
        lane.len -= 1;
        self.lens[lane.class.index()] -= 1;
        debug_assert_eq!(node.previous.is_none(), lane.first == Some(key), "the first");
        debug_assert_eq!(node.next.is_none(), lane.last == Some(key), "the last");
        match node.previous {
            Some(previous) => self.nodes[previous].next = node.next,
            None => lane.first = node.next,
        }
        match node.next {
            Some(next) => self.nodes[next].previous = node.previous,
            None => lane.last = node.previous,
        }
        if lane.len == 0 {
            let place = lane.place;
            self.busy.swap_remove(place);
            if let Some(&moved) = self.busy.get(place) {
                self.lanes[moved].place = place;
            }
        }
        node.value
    }

    /// Returns the names of all entries for which `is_wanted` holds, in no particular order.
    pub(crate) fn keys_where(&self, is_wanted: impl Fn(&T) -> bool) -> Vec<QueueKey> {
        let wanted = self.nodes.iter().filter(|(_, node)| is_wanted(&node.value));
        wanted.map(|(key, _)| QueueKey(key)).collect()
    }

    /// Orders classes as these say, and those that wait already too; `rank` says where they stand.
    pub(crate) fn configure(&mut self, classes: &Classes, rank: impl Fn(ClassId, &T) -> u64) {
        self.orders = classes.iter().map(|(_, class)| class.order).collect();
        for lane_index in 0..self.lanes.len() {
            let class = self.lanes[lane_index].class;
            let is_ranked = self.orders[class.index()] != WaitingOrder::Fifo;
            self.lanes[lane_index].root = None;
            let mut at = self.lanes[lane_index].first;
            while let Some(key) = at {
                let node = &mut self.nodes[key];
                node.rank.0 = if is_ranked { rank(class, &node.value) } else { 0 };
                (node.left, node.right, node.size) = (None, None, 1);
                at = node.next;
                if is_ranked {
                    let rank = self.nodes[key].rank;
                    let (below, above) = self.split(self.lanes[lane_index].root, rank);
                    let below = self.merge(below, Some(key));
                    self.lanes[lane_index].root = self.merge(below, above);
                }
            }
        }
    }

    /// Checks the invariants of the type. Lists are walked only while they are short.
    pub(crate) fn check(&self) {
        debug_assert_eq!(self.len() as usize, self.nodes.len(), "each entry is in one list");
        if cfg!(debug_assertions) && self.nodes.len() <= CHECKED_MAX {
            for lane in self.lanes() {
                let next = |&key: &usize| self.nodes[key].next;
                let listed: Vec<usize> = std::iter::successors(lane.first, next).collect();
                debug_assert_eq!(listed.len(), lane.len as usize, "a broken list");
                debug_assert_eq!(listed.last().copied(), lane.last, "another end");
                debug_assert!(lane.root.is_none_or(|root| self.nodes[root].size == lane.len));
            }
        }
    }
}

/// The treap of a lane: a search tree by rank and a heap by a number that looks random, so that it
/// is balanced whatever the ranks are.
impl<T> Queue<T> {
    fn size(&self, tree: Option<usize>) -> u32 {
        tree.map_or(0, |key| self.nodes[key].size)
    }

    fn measure(&mut self, key: usize) {
        let QueueNode { left, right, .. } = self.nodes[key];
        self.nodes[key].size = 1 + self.size(left) + self.size(right);
    }

    /// Returns a node's place in the heap: the number of its arrival, mixed (splitmix64).
    fn height(&self, key: usize) -> u64 {
        let mut bits = self.nodes[key].rank.1.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Splits a tree into what is below a rank and the rest.
    fn split(&mut self, tree: Option<usize>, rank: Rank) -> (Option<usize>, Option<usize>) {
        let Some(key) = tree else { return (None, None) };
        if self.nodes[key].rank < rank {
            let (below, above) = self.split(self.nodes[key].right, rank);
            self.nodes[key].right = below;
            self.measure(key);
            (Some(key), above)
        } else {
            let (below, above) = self.split(self.nodes[key].left, rank);
            self.nodes[key].left = above;
            self.measure(key);
            (below, Some(key))
        }
    }

    /// Joins two trees, of which the first is below the second.
    fn merge(&mut self, below: Option<usize>, above: Option<usize>) -> Option<usize> {
        let (Some(low), Some(high)) = (below, above) else { return below.or(above) };
        if self.height(low) > self.height(high) {
            self.nodes[low].right = self.merge(self.nodes[low].right, above);
            self.measure(low);
            Some(low)
        } else {
            self.nodes[high].left = self.merge(below, self.nodes[high].left);
            self.measure(high);
            Some(high)
        }
    }

    /// Returns how many nodes of a tree have at most this rank.
    fn up_to(&self, mut tree: Option<usize>, rank: Rank) -> u32 {
        let mut count = 0;
        while let Some(key) = tree {
            let node = &self.nodes[key];
            if node.rank <= rank {
                count += 1 + self.size(node.left);
                tree = node.right;
            } else {
                tree = node.left;
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::classes::{ClassSettings, PermitBounds, Policy};

    #[derive(Clone, Copy, Debug)]
    enum QueueStep {
        Push(usize, bool, u64),
        /// Removes the first of the n-th lane that has entries.
        Pop(usize),
        /// Removes the n-th of those that wait.
        Remove(usize),
    }

    fn step() -> impl Strategy<Value = QueueStep> {
        let push = (0_usize..3, any::<bool>(), 0_u64..5);
        prop_oneof![
            3 => push.prop_map(|(class, quota, rank)| QueueStep::Push(class, quota, rank)),
            2 => any::<usize>().prop_map(QueueStep::Pop),
            1 => any::<usize>().prop_map(QueueStep::Remove),
        ]
    }

    /// Three classes, of which the first is FIFO, and a quota.
    fn classes() -> Classes {
        let class = |name: &str, order| {
            let name = name.parse().expect(name);
            ClassSettings { order, ..ClassSettings::new(name) }
        };
        let classes = vec![
            class("a", WaitingOrder::Fifo),
            class("b", WaitingOrder::EarliestDeadline),
            class("c", WaitingOrder::ShortestExpected),
        ];
        let quotas = vec![("q".to_owned(), PermitBounds::default())];
        Classes::new(Policy::Strict, classes, quotas).expect("classes")
    }

    /// The naive queue: a list in order of arrival.
    struct NaiveEntry {
        key: QueueKey,
        lane: (ClassId, Quotas),
        rank: u64,
        serial: u64,
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_list(steps in prop::collection::vec(step(), 0..200)) {
            let classes = classes();
            let (mut queue, mut serial) = (Queue::new(&classes), 0_u64);
            let mut model: Vec<NaiveEntry> = Vec::new();
            for step in steps {
                match step {
                    QueueStep::Push(class, has_quota, rank) => {
                        serial += 1;
                        let class = ClassId::of_index(class).expect("a class");
                        let quotas = [classes.quota(0).filter(|_| has_quota), None];
                        let is_fifo = class.index() == 0;
                        let ahead = |it: &&NaiveEntry| {
                            it.lane.0 == class && (is_fifo || it.rank <= rank)
                        };
                        let expected = model.iter().filter(ahead).count();
                        prop_assert_eq!(queue.ahead(class, rank) as usize, expected);
                        let key = queue.push(class, quotas, rank, serial);
                        let rank = if is_fifo { 0 } else { rank };
                        model.push(NaiveEntry { key, lane: (class, quotas), rank, serial });
                    }
                    QueueStep::Pop(n) => {
                        let count = queue.lanes().count();
                        let Some(n) = n.checked_rem(count) else { continue };
                        let lane = queue.lanes().nth(n).expect("a lane");
                        let named = (lane.class, lane.quotas);
                        let (first, oldest) = (queue.first(lane), queue.oldest(lane));
                        let of_lane = model.iter().filter(|it| it.lane == named);
                        let next = of_lane.clone().min_by_key(|it| (it.rank, it.serial));
                        let (key, _) = first.expect("it has entries");
                        prop_assert_eq!(Some(key), next.map(|it| it.key));
                        let old = of_lane.min_by_key(|it| it.serial).map(|it| it.key);
                        prop_assert_eq!(oldest.map(|it| it.0), old);
                        prop_assert_eq!(queue.lane_of(key), named);
                        let index = model.iter().position(|it| it.key == key).expect("there");
                        prop_assert_eq!(queue.remove(key), model.remove(index).serial);
                    }
                    QueueStep::Remove(n) => {
                        let Some(index) = n.checked_rem(model.len()) else { continue };
                        let NaiveEntry { key, serial, .. } = model.remove(index);
                        prop_assert_eq!(queue.remove(key), serial);
                    }
                }
                queue.check();
                prop_assert_eq!(queue.len() as usize, model.len());
                prop_assert_eq!(queue.is_empty(), model.is_empty());
                for (class, _) in classes.iter() {
                    let waiting = model.iter().filter(|it| it.lane.0 == class).count();
                    prop_assert_eq!(queue.len_of(class) as usize, waiting);
                }
            }
        }
    }
}
