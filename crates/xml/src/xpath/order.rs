//! Document order: sorting, merging and what avoids both.

use std::cmp::Ordering;

use crate::tree::{Kind, Tree};
use crate::xpath::eval::{Failure, Found, Items};
use crate::xpath::value::Item;

/// Compares two nodes by document order. The namespace nodes of an element follow it, by prefix,
/// and precede its attributes.
pub(crate) fn compare<T: Tree>(
    tree: &T,
    a: &Found<T>,
    b: &Found<T>,
) -> Result<Ordering, Failure<T>> {
    let node_of = |item: &'_ Found<T>| match item {
        Item::Node(node) | Item::Namespace { element: node, .. } => node.clone(),
    };
    let by_node = tree.compare(&node_of(a), &node_of(b))?;
    let prefix = |item: &Found<T>| match item {
        Item::Node(_) => None,
        Item::Namespace { binding, .. } => Some(binding.prefix.clone()),
    };
    // `None`, the element itself, is less than every prefix.
    Ok(by_node.then_with(|| prefix(a).cmp(&prefix(b))))
}

/// Sorts nodes and removes duplicates: merges the ascending runs that are there already.
pub(crate) fn sort<'a, T: Tree>(
    tree: &'a T,
    items: Items<'a, T>,
) -> Result<Items<'a, T>, Failure<T>> {
    let mut runs: Vec<Vec<Found<T>>> = Vec::new();
    for item in items {
        let item = item?;
        let order = match runs.last().and_then(|run| run.last()) {
            Some(last) => compare(tree, last, &item)?,
            None => Ordering::Greater,
        };
        match (order, runs.last_mut()) {
            (Ordering::Less, Some(run)) => run.push(item),
            (Ordering::Equal, _) => {}
            _ => runs.push(vec![item]),
        }
    }
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut rest = runs.into_iter();
        while let Some(left) = rest.next() {
            merged.push(match rest.next() {
                Some(right) => merge_runs(tree, left, right)?,
                None => left,
            });
        }
        runs = merged;
    }
    Ok(Box::new(runs.into_iter().flatten().map(Ok)))
}

fn merge_runs<T: Tree>(
    tree: &T,
    left: Vec<Found<T>>,
    right: Vec<Found<T>>,
) -> Result<Vec<Found<T>>, Failure<T>> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let order = compare(tree, a, b)?;
        if order.is_eq() {
            left.next();
        }
        merged.extend(if order.is_lt() { left.next() } else { right.next() });
    }
    merged.extend(left);
    merged.extend(right);
    Ok(merged)
}

/// Returns the node at a position, counted from 1, and reads no further.
pub(crate) fn nth<'a, T: Tree + 'a>(
    items: Items<'a, T>,
    position: usize,
) -> impl Iterator<Item = Result<Found<T>, Failure<T>>> + 'a {
    let mut pending = Some(items);
    std::iter::from_fn(move || {
        let mut items = pending.take()?;
        for _ in 1..position {
            if let Err(error) = items.next()? {
                return Some(Err(error));
            }
        }
        items.next()
    })
}

/// Returns the last node, or the first error.
pub(crate) fn last<T: Tree>(items: Items<'_, T>) -> Option<Result<Found<T>, Failure<T>>> {
    let mut last = None;
    for item in items {
        match item {
            Ok(item) => last = Some(item),
            error => return Some(error),
        }
    }
    last.map(Ok)
}

/// Whether `item` is below `ancestor`; namespace nodes and attributes are below their element.
fn is_ancestor<T: Tree>(
    tree: &T,
    ancestor: &Found<T>,
    item: &Found<T>,
) -> Result<bool, Failure<T>> {
    let Item::Node(ancestor) = ancestor else { return Ok(false) };
    Ok(match item {
        Item::Node(node) => tree.is_ancestor(ancestor, node)?,
        Item::Namespace { element, .. } => {
            tree.compare(ancestor, element)?.is_eq() || tree.is_ancestor(ancestor, element)?
        }
    })
}

/// Leaves out the nodes below one that was let through.
///
/// What is left out is a descendant, so it would add nothing to the descendants of the other. An
/// attribute or namespace node below one is let through: it is no descendant, and has none.
pub(crate) fn outermost<'a, T: Tree>(tree: &'a T, items: Items<'a, T>) -> Items<'a, T> {
    let mut kept: Option<T::Node> = None;
    let mut is_new = move |item: &Found<T>| -> Result<bool, Failure<T>> {
        let Some(node) = as_child(tree, item)? else { return Ok(true) };
        if let Some(kept) = &kept
            && tree.is_ancestor(kept, node)?
        {
            return Ok(false);
        }
        kept = Some(node.clone());
        Ok(true)
    };
    Box::new(items.filter_map(move |item| match item {
        Ok(item) => match is_new(&item) {
            Ok(is_new) => is_new.then_some(Ok(item)),
            Err(error) => Some(Err(error)),
        },
        error => Some(error),
    }))
}

/// Returns the node of an item that is neither an attribute nor a namespace node.
fn as_child<'i, T: Tree>(tree: &T, item: &'i Found<T>) -> Result<Option<&'i T::Node>, Failure<T>> {
    Ok(match item {
        Item::Node(node) if tree.kind(node)? != Kind::Attribute => Some(node),
        _ => None,
    })
}

/// Returns the node that ends first. It is found by going down: as long as the next node is below
/// the candidate, it ends no later. The rest is not read.
pub(crate) fn first_to_end<'a, T: Tree>(
    tree: &'a T,
    mut items: Items<'a, T>,
) -> Result<Items<'a, T>, Failure<T>> {
    let mut first = items.next().transpose()?;
    while let Some(candidate) = &first
        && let Some(next) = items.next().transpose()?
        && is_ancestor(tree, candidate, &next)?
    {
        first = Some(next);
    }
    Ok(Box::new(first.into_iter().map(Ok)))
}

/// Returns the first (or last) of the nodes with the same parent, for every parent, in any order.
/// Attributes, namespace nodes and the document are left out, because they have no siblings.
pub(crate) fn one_of_each_parent<'a, T: Tree>(
    tree: &'a T,
    items: Items<'a, T>,
    keep_last: bool,
) -> Result<Items<'a, T>, Failure<T>> {
    let mut chosen = Vec::new();
    // Parents that later nodes may still be below, outermost first, each with its chosen child.
    let mut open: Vec<(T::Node, Found<T>)> = Vec::new();
    for item in items {
        let item = item?;
        let Some(node) = as_child(tree, &item)? else { continue };
        let Some(parent) = tree.parent(node)? else { continue };
        let mut is_known = false;
        while let Some((last, _)) = open.last() {
            is_known = tree.compare(last, &parent)?.is_eq();
            if is_known || tree.is_ancestor(last, &parent)? {
                break;
            }
            chosen.extend(open.pop().map(|(_, child)| child));
        }
        match open.last_mut() {
            Some((_, child)) if is_known && keep_last => *child = item,
            _ if is_known => {}
            _ => open.push((parent, item)),
        }
    }
    chosen.extend(open.into_iter().map(|(_, child)| child));
    Ok(Box::new(chosen.into_iter().map(Ok)))
}

/// Merges two node-sets: the union.
pub(crate) struct MergeUnion<'a, T: Tree> {
    tree: &'a T,
    left: Side<'a, T>,
    right: Side<'a, T>,
}

/// A stream of nodes with the one that comes next, if it was read.
struct Side<'a, T: Tree> {
    items: Items<'a, T>,
    next: Option<Found<T>>,
}

impl<T: Tree> Side<'_, T> {
    fn peek(&mut self) -> Result<Option<&Found<T>>, Failure<T>> {
        if self.next.is_none() {
            self.next = self.items.next().transpose()?;
        }
        Ok(self.next.as_ref())
    }
}

impl<'a, T: Tree> MergeUnion<'a, T> {
    pub(crate) fn new(tree: &'a T, left: Items<'a, T>, right: Items<'a, T>) -> Self {
        let side = |items| Side { items, next: None };
        MergeUnion { tree, left: side(left), right: side(right) }
    }

    fn pull(&mut self) -> Result<Option<Found<T>>, Failure<T>> {
        let order = match (self.left.peek()?, self.right.peek()?) {
            (Some(left), Some(right)) => compare(self.tree, left, right)?,
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        if order.is_eq() {
            self.left.next = None;
        }
        Ok(if order.is_lt() { self.left.next.take() } else { self.right.next.take() })
    }
}

impl<T: Tree> Iterator for MergeUnion<'_, T> {
    type Item = Result<Found<T>, Failure<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pull().transpose()
    }
}

/// Merges the children of nodes that may be nested, without collecting them.
///
/// The stack holds the children not yet returned of a chain of nested context nodes. Before a child
/// is returned, the context nodes that precede it are opened: they are below an earlier sibling of
/// that child, so all of their children precede it too. The same holds for the descendants of
/// outermost nodes, between which only attributes and namespace nodes come.
pub(crate) struct MergeNested<'a, T: Tree, F> {
    tree: &'a T,
    contexts: Side<'a, T>,
    open: F,
    stack: Vec<Side<'a, T>>,
}

impl<'a, T: Tree, F> MergeNested<'a, T, F>
where
    F: FnMut(&Found<T>) -> Result<Items<'a, T>, Failure<T>>,
{
    /// `open` returns the children of a context node in document order.
    pub(crate) fn new(tree: &'a T, contexts: Items<'a, T>, open: F) -> Self {
        let contexts = Side { items: contexts, next: None };
        MergeNested { tree, contexts, open, stack: Vec::new() }
    }

    fn pull(&mut self) -> Result<Option<Found<T>>, Failure<T>> {
        loop {
            let context = self.contexts.peek()?;
            if let Some(top) = self.stack.last_mut() {
                let Some(child) = top.peek()? else {
                    self.stack.pop();
                    continue;
                };
                let opens = match context {
                    Some(context) => compare(self.tree, context, child)?.is_lt(),
                    None => false,
                };
                if !opens {
                    return Ok(top.next.take());
                }
            }
            let Some(context) = self.contexts.next.take() else { return Ok(None) };
            self.stack.push(Side { items: (self.open)(&context)?, next: None });
        }
    }
}

impl<'a, T: Tree, F> Iterator for MergeNested<'a, T, F>
where
    F: FnMut(&Found<T>) -> Result<Items<'a, T>, Failure<T>>,
{
    type Item = Result<Found<T>, Failure<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pull().transpose()
    }
}
