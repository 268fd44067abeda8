//! The waiting line: strict priority between classes, first come first served inside a class.
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

    /// The class's name in logs, metrics and configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Class::High => "high",
            Class::Normal => "normal",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    first: Option<usize>,
    last: Option<usize>,
}

#[derive(Debug)]
struct Node<T> {
    class: Class,
    previous: Option<usize>,
    next: Option<usize>,
    value: T,
}

/// Waiting entries of every class.
///
/// - Every node of the slab is in exactly one line, that of its class.
/// - `previous` and `next` of neighbours name each other; a line's ends have none.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    nodes: Slab<Node<T>>,
    lines: [Line; Class::ALL.len()],
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue { nodes: Slab::new(), lines: Default::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Puts `value` at the end of its class's line; the key names it until it leaves.
    pub(crate) fn push(&mut self, class: Class, value: T) -> usize {
        let line = &mut self.lines[class.index()];
        let key = self.nodes.insert(Node { class, previous: line.last, next: None, value });
        match line.last.replace(key) {
            Some(last) => self.nodes[last].next = Some(key),
            None => line.first = Some(key),
        }
        key
    }

    /// Takes the first entry of the highest class that has one.
    pub(crate) fn pop(&mut self) -> Option<(usize, Class, T)> {
        let key = self.lines.iter().find_map(|line| line.first)?;
        let class = self.nodes[key].class;
        self.remove(key).map(|value| (key, class, value))
    }

    /// Takes the entry `key` out of the line, wherever it stands.
    pub(crate) fn remove(&mut self, key: usize) -> Option<T> {
        let node = self.nodes.try_remove(key)?;
        let line = &mut self.lines[node.class.index()];
        match node.previous {
            Some(previous) => self.nodes[previous].next = node.next,
            None => line.first = node.next,
        }
        match node.next {
            Some(next) => self.nodes[next].previous = node.previous,
            None => line.last = node.previous,
        }
        Some(node.value)
    }

    /// The keys of all entries for which `wanted` holds, in no particular order.
    pub(crate) fn keys_where(&self, wanted: impl Fn(&T) -> bool) -> Vec<usize> {
        self.nodes.iter().filter(|(_, node)| wanted(&node.value)).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push(Class),
        Pop,
        /// Removes the n-th of the keys ever given out, present or not.
        Remove(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => prop_oneof![Just(Class::High), Just(Class::Normal)].prop_map(Step::Push),
            2 => Just(Step::Pop),
            1 => any::<usize>().prop_map(Step::Remove),
        ]
    }

    /// The naive queue: a list in order of arrival.
    #[derive(Default)]
    struct Model(Vec<(usize, Class, u64)>);

    impl Model {
        fn pop(&mut self) -> Option<(usize, Class, u64)> {
            let class = self.0.iter().map(|entry| entry.1).min()?;
            let index = self.0.iter().position(|entry| entry.1 == class)?;
            Some(self.0.remove(index))
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_list(steps in prop::collection::vec(step(), 0..200)) {
            let (mut queue, mut model, mut serial) = (Queue::new(), Model::default(), 0_u64);
            for step in steps {
                match step {
                    Step::Push(class) => {
                        serial += 1;
                        let key = queue.push(class, serial);
                        model.0.push((key, class, serial));
                    }
                    Step::Pop => prop_assert_eq!(queue.pop(), model.pop()),
                    Step::Remove(n) => {
                        let Some(index) = n.checked_rem(model.0.len()) else { continue };
                        let (key, _, value) = model.0.remove(index);
                        prop_assert_eq!(queue.remove(key), Some(value));
                        prop_assert_eq!(queue.remove(key), None);
                    }
                }
                prop_assert_eq!(queue.len(), model.0.len());
            }
            while let Some(expected) = model.pop() {
                prop_assert_eq!(queue.pop(), Some(expected));
            }
            prop_assert_eq!(queue.pop(), None);
        }
    }
}
