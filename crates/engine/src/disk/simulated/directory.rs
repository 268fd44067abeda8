//! Names: those that programs see, those that are durable, and what was done in between.

use std::collections::BTreeMap;

use super::random::Random;

/// Which file a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(pub(super) u64);

pub(super) type Names = BTreeMap<String, NodeId>;

/// * Without failed syncs `names` is `durable` with all of `pending` applied.
#[derive(Clone, Default)]
pub(super) struct Directory {
    names: Names,
    durable: Names,
    pending: Vec<Step>,
}

#[derive(Clone)]
enum Step {
    Make { name: String, node: NodeId },
    Remove { name: String },
    Rename { to: String, node: NodeId },
}

impl Step {
    /// Applies it, whether or not the steps before it were.
    fn apply(&self, names: &mut Names) {
        match self {
            Step::Make { name, node } => {
                names.insert(name.clone(), *node);
            }
            Step::Remove { name } => {
                names.remove(name);
            }
            Step::Rename { to, node } => {
                // Whatever name it had: a file never has two.
                names.retain(|_, other| other != node);
                names.insert(to.clone(), *node);
            }
        }
    }

    fn node(&self) -> Option<NodeId> {
        match self {
            Step::Make { node, .. } | Step::Rename { node, .. } => Some(*node),
            Step::Remove { .. } => None,
        }
    }
}

impl Directory {
    /// Returns a directory whose names are all durable.
    pub(super) fn durable(names: Names) -> Directory {
        Directory { durable: names.clone(), names, pending: Vec::new() }
    }

    /// Returns the names that programs see.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the names that no crash takes away.
    pub(super) fn durable_names(&self) -> &Names {
        &self.durable
    }

    pub(super) fn make(&mut self, name: &str, node: NodeId) {
        self.step(Step::Make { name: name.into(), node });
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.step(Step::Remove { name: name.into() });
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        let node = *self.names.get(from).expect("only a name that is there is changed");
        self.step(Step::Rename { to: to.into(), node });
    }

    fn step(&mut self, step: Step) {
        step.apply(&mut self.names);
        debug_assert!(
            step.node()
                .is_none_or(|node| self.names.values().filter(|id| **id == node).count() == 1),
            "a file has one name"
        );
        self.pending.push(step);
    }

    pub(super) fn sync(&mut self) {
        for step in self.pending.drain(..) {
            step.apply(&mut self.durable);
        }
    }

    /// Fails a sync: part of what is pending becomes durable and the rest never will.
    pub(super) fn fail_to_sync(&mut self, random: &mut Random) {
        self.durable = self.survivors_in_order(random);
        self.pending.clear();
    }

    /// Returns the names that are left when the journal was written up to some step.
    pub(super) fn survivors_in_order(&self, random: &mut Random) -> Names {
        let steps = random.up_to(self.pending.len());
        let mut names = self.durable.clone();
        self.pending[..steps].iter().for_each(|step| step.apply(&mut names));
        names
    }

    /// Returns the names that are left when each step was written or not.
    pub(super) fn survivors_in_no_order(&self, random: &mut Random) -> Names {
        let mut names = self.durable.clone();
        for step in &self.pending {
            if random.coin() {
                step.apply(&mut names);
            }
        }
        names
    }

    /// Returns whether a name leads to the file, or may after a crash.
    pub(super) fn refers_to(&self, node: NodeId) -> bool {
        let pending = self.pending.iter().filter_map(Step::node);
        let named = self.names.values().chain(self.durable.values()).copied();
        named.chain(pending).any(|id| id == node)
    }
}
