//! The queue: strict priority between classes, first come first served inside a class.
//!
//! Entries live in a slab and are linked through it, so that a waiting transaction leaves from the
//! middle (cancelled, past its deadline) in constant time and without allocation in steady state.

use slab::Slab;

/// Scheduling class of a transaction. A higher class always goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Goes before every transaction of a lower class.
    High,
    /// The class of everything that is not marked otherwise.
    Normal,
}

impl Class {
    /// All classes, highest first.
    pub const ALL: [Class; 2] = [Class::High, Class::Normal];

    /// Position in [`Class::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the class's name in logs, metrics and configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Class::High => "high",
            Class::Normal => "normal",
        }
    }
}

/// Names an entry of a [`Queue`] while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueKey(usize);

/// Lists are walked to check them only while they are no longer than this.
pub(crate) const CHECKED_MAX: usize = 16;

/// The entries of one class.
#[derive(Clone, Copy, Debug, Default)]
struct ClassEntries {
    first: Option<usize>,
    last: Option<usize>,
    len: u32,
}

#[derive(Debug)]
struct QueueNode<T> {
    class: Class,
    previous: Option<usize>,
    next: Option<usize>,
    value: T,
}

/// Waiting entries of every class.
///
/// - Every node of the slab is in exactly one list, that of its class.
/// - `previous` and `next` of neighbours name each other; a list's ends have none.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    nodes: Slab<QueueNode<T>>,
    lists: [ClassEntries; Class::ALL.len()],
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue { nodes: Slab::new(), lists: Default::default() }
    }

    pub(crate) fn len(&self) -> u32 {
        self.lists.iter().map(|list| list.len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Appends `value` to the list of its class. Returns its name.
    pub(crate) fn push(&mut self, class: Class, value: T) -> QueueKey {
        let list = &mut self.lists[class.index()];
        let key = self.nodes.insert(QueueNode { class, previous: list.last, next: None, value });
        list.len += 1;
        match list.last.replace(key) {
            Some(before) => self.nodes[before].next = Some(key),
            None => list.first = Some(key),
        }
        QueueKey(key)
    }

    /// Removes the first entry of the highest class that has one.
    pub(crate) fn pop(&mut self) -> Option<(QueueKey, Class, T)> {
        let key = self.lists.iter().find_map(|list| list.first)?;
        let class = self.nodes[key].class;
        debug_assert_eq!(self.nodes[key].previous, None, "the first has no predecessor");
        Some((QueueKey(key), class, self.remove(QueueKey(key))))
    }

    /// Removes an entry, wherever it stands.
    ///
    /// # Panics
    /// The entry was removed before.
    pub(crate) fn remove(&mut self, QueueKey(key): QueueKey) -> T {
        let node = self.nodes.remove(key);
        let list = &mut self.lists[node.class.index()];
        list.len -= 1;
        debug_assert_eq!(node.previous.is_none(), list.first == Some(key), "the first");
        debug_assert_eq!(node.next.is_none(), list.last == Some(key), "the last");
        match node.previous {
            Some(previous) => self.nodes[previous].next = node.next,
            None => list.first = node.next,
        }
        match node.next {
            Some(next) => self.nodes[next].previous = node.previous,
            None => list.last = node.previous,
        }
        node.value
    }

    /// Returns the names of all entries for which `is_wanted` holds, in no particular order.
    pub(crate) fn keys_where(&self, is_wanted: impl Fn(&T) -> bool) -> Vec<QueueKey> {
        let wanted = self.nodes.iter().filter(|(_, node)| is_wanted(&node.value));
        wanted.map(|(key, _)| QueueKey(key)).collect()
    }

    /// Checks the invariants of the type. Lists are walked only while they are short.
    pub(crate) fn check(&self) {
        debug_assert_eq!(self.len() as usize, self.nodes.len(), "each entry is in one list");
        if cfg!(debug_assertions) && self.nodes.len() <= CHECKED_MAX {
            for (class, list) in Class::ALL.into_iter().zip(&self.lists) {
                let next = |&key: &usize| self.nodes[key].next;
                let listed: Vec<usize> = std::iter::successors(list.first, next).collect();
                debug_assert_eq!(listed.len(), list.len as usize, "{class:?}: a broken list");
                debug_assert_eq!(listed.last().copied(), list.last, "{class:?}: another end");
                debug_assert!(listed.iter().all(|&key| self.nodes[key].class == class));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum QueueStep {
        Push(Class),
        Pop,
        /// Removes the n-th of those that wait.
        Remove(usize),
    }

    fn step() -> impl Strategy<Value = QueueStep> {
        prop_oneof![
            3 => prop_oneof![Just(Class::High), Just(Class::Normal)].prop_map(QueueStep::Push),
            2 => Just(QueueStep::Pop),
            1 => any::<usize>().prop_map(QueueStep::Remove),
        ]
    }

    /// The naive queue: a list in order of arrival.
    #[derive(Default)]
    struct NaiveQueue(Vec<(QueueKey, Class, u64)>);

    impl NaiveQueue {
        fn pop(&mut self) -> Option<(QueueKey, Class, u64)> {
            let class = self.0.iter().map(|entry| entry.1).min()?;
            let index = self.0.iter().position(|entry| entry.1 == class)?;
            Some(self.0.remove(index))
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_list(steps in prop::collection::vec(step(), 0..200)) {
            let (mut queue, mut model, mut serial) = (Queue::new(), NaiveQueue::default(), 0_u64);
            for step in steps {
                match step {
                    QueueStep::Push(class) => {
                        serial += 1;
                        let key = queue.push(class, serial);
                        model.0.push((key, class, serial));
                    }
                    QueueStep::Pop => prop_assert_eq!(queue.pop(), model.pop()),
                    QueueStep::Remove(n) => {
                        let Some(index) = n.checked_rem(model.0.len()) else { continue };
                        let (key, _, value) = model.0.remove(index);
                        prop_assert_eq!(queue.remove(key), value);
                    }
                }
                queue.check();
                prop_assert_eq!(queue.len() as usize, model.0.len());
                prop_assert_eq!(queue.is_empty(), model.0.is_empty());
            }
            while let Some(expected) = model.pop() {
                prop_assert_eq!(queue.pop(), Some(expected));
            }
            prop_assert_eq!(queue.pop(), None);
        }
    }
}
