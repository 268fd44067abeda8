//! What a tree looks like: its fill, leaf by leaf, and whether it is sound.

use std::fmt;

use super::Tree;
use crate::buffer::BufferError;
use crate::page::{Node, PageId};

/// A leaf, as it was when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeafFill {
    /// The number of the leaf's page.
    pub page: PageId,
    /// The number of entries in the leaf.
    pub entries: usize,
    /// Share of its room that they take, from 0 to 1 (structural-deterioration study, figure 9).
    pub fill: f64,
}

/// The numbers of levels, nodes and entries of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeShape {
    /// Levels: 1 for a tree that is a leaf.
    pub height: usize,
    /// The number of leaves.
    pub leaves: u64,
    /// The number of nodes above the leaves.
    pub inner_nodes: u64,
    /// The number of entries in the leaves.
    pub entries: u64,
}

/// What a tree takes of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TreeSize {
    /// Levels, nodes and entries.
    pub shape: TreeShape,
    /// Mean share of the leaves' room that entries take, from 0 to 1.
    pub fill: f64,
    /// The number of pages with values that are stored apart because they are long.
    pub long_value_pages: u64,
    /// All pages of the tree, in bytes.
    pub bytes: u64,
}

/// What is wrong with a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsound {
    pub(crate) page: PageId,
    pub(crate) what: &'static str,
}

impl fmt::Display for Unsound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}: {}", self.page, self.what)
    }
}

/// What is known of a node before it is looked at.
struct Expected {
    page: PageId,
    level: u8,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl Tree<'_> {
    /// Returns the fill of every leaf in the order of keys. Others may change the tree meanwhile:
    /// each leaf is as it was at some moment between call and return, and each key range is seen
    /// once.
    pub(crate) fn fills(&self) -> Result<Vec<LeafFill>, BufferError> {
        let mut fills = Vec::new();
        let mut leaf = self.leaf(b"")?;
        loop {
            let node = Node::new(&leaf);
            let page = crate::page::id(&leaf);
            fills.push(LeafFill { page, entries: node.count(), fill: node.fill() });
            match self.leaf_after(&leaf)? {
                Some(right) => leaf = right,
                None => return Ok(fills),
            }
        }
    }

    /// Returns the fill of every leaf in the order of keys at this moment, past the pool
    /// ([`Pool::look`]); `None` if one of the pages is just being changed.
    ///
    /// [`Pool::look`]: crate::buffer::Pool::look
    pub(crate) fn fills_now(&self) -> Result<Option<Vec<LeafFill>>, BufferError> {
        let mut page = self.entry.root;
        let Some(mut bytes) = self.pool.look(page)? else { return Ok(None) };
        let mut level = Node::new(&bytes).level();
        let mut fills = Vec::new();
        loop {
            self.check_node(page, &bytes, level)?;
            let node = Node::new(&bytes);
            let next = if level > 0 {
                level -= 1;
                Some(node.child(0))
            } else {
                fills.push(LeafFill { page, entries: node.count(), fill: node.fill() });
                node.right()
            };
            let Some(next) = next else { return Ok(Some(fills)) };
            let Some(copy) = self.pool.look(next)? else { return Ok(None) };
            (page, bytes) = (next, copy);
        }
    }

    /// Returns the shape of the tree and the mean fill of its leaves. Others may change the tree
    /// meanwhile: each node is counted as it was at some moment between call and return.
    pub(crate) fn measure(&self) -> Result<(TreeShape, f64), BufferError> {
        let fills = self.fills()?;
        let (root, level) = self.root()?;
        drop(root);
        let mut shape = TreeShape { height: usize::from(level) + 1, ..TreeShape::default() };
        shape.leaves = fills.len() as u64;
        shape.entries = fills.iter().map(|leaf| leaf.entries as u64).sum();
        for level in 1..=level {
            shape.inner_nodes += self.nodes_at(level)?;
        }
        let fill = fills.iter().map(|leaf| leaf.fill).sum::<f64>() / fills.len() as f64;
        Ok((shape, fill))
    }

    /// Returns the number of nodes of a level. Each is found by the fence of the one before it.
    fn nodes_at(&self, level: u8) -> Result<u64, BufferError> {
        let (mut nodes, mut low) = (0, Vec::new());
        loop {
            let (mut page, mut at) = self.root()?;
            while at > level {
                let node = Node::new(&page);
                at -= 1;
                page = self.step(node.child(node.child_slot(&low)), at)?;
            }
            nodes += 1;
            match Node::new(&page).fences().high {
                Some(high) => low = high.to_vec(),
                None => return Ok(nodes),
            }
        }
    }

    /// Looks at every node, while no thread changes the tree: whether the nodes' fences are what
    /// their parents say, the leaves are linked in order, and no page belongs to it twice. Hands
    /// each page to `visit`.
    pub(crate) fn check(
        &self,
        visit: &mut dyn FnMut(PageId),
    ) -> Result<Result<TreeShape, Unsound>, BufferError> {
        let (root, level) = self.root()?;
        drop(root);
        let mut shape = TreeShape { height: usize::from(level) + 1, ..TreeShape::default() };
        let root = Expected { page: self.entry.root, level, low: Vec::new(), high: None };
        // Depth first and from the left, so that leaves come in the order of keys.
        let mut waiting = vec![root];
        let mut linked: Option<Option<PageId>> = None;
        while let Some(expected) = waiting.pop() {
            visit(expected.page);
            let page = self.read(expected.page)?;
            if let Err(what) = check_one(&page, &expected, self.entry.id) {
                return Ok(Err(Unsound { page: expected.page, what }));
            }
            let node = Node::new(&page);
            if node.is_leaf() {
                if linked.is_some_and(|linked| linked != Some(expected.page)) {
                    let what = "the leaf to its left is not linked to it";
                    return Ok(Err(Unsound { page: expected.page, what }));
                }
                linked = Some(node.right());
                shape.leaves += 1;
                shape.entries += node.count() as u64;
            } else {
                shape.inner_nodes += 1;
                waiting.extend(children(node, &expected).into_iter().rev());
            }
        }
        if linked.flatten().is_some() {
            let what = "the last leaf is linked to another";
            return Ok(Err(Unsound { page: self.entry.root, what }));
        }
        Ok(Ok(shape))
    }
}

fn check_one(
    page: &[u8],
    expected: &Expected,
    tree: crate::page::TreeId,
) -> Result<(), &'static str> {
    if crate::page::kind(page) != crate::page::Kind::Node {
        return Err("it is no node");
    }
    let node = Node::new(page);
    node.check()?;
    if node.tree() != tree {
        return Err("it belongs to another tree");
    }
    if node.level() != expected.level {
        return Err("its level is not one below its parent's");
    }
    if node.fences().low != expected.low || node.fences().high != expected.high.as_deref() {
        return Err("its fences are not what its parent says");
    }
    if !node.is_leaf() && node.count() == 0 {
        return Err("it has no child");
    }
    if !node.is_leaf() && node.key(0) != expected.low {
        return Err("its first child does not begin at its low fence");
    }
    Ok(())
}

fn children(node: Node<'_>, expected: &Expected) -> Vec<Expected> {
    let child = |slot: usize| Expected {
        page: node.child(slot),
        level: expected.level - 1,
        low: node.key(slot),
        high: if slot + 1 < node.count() {
            Some(node.key(slot + 1))
        } else {
            expected.high.clone()
        },
    };
    (0..node.count()).map(child).collect()
}
