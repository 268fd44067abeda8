//! The axes as iterators that read the tree only as far as they are asked.
//!
//! Forward axes give nodes in document order, reverse axes against it.

use crate::tree::{Kind, StepAxis, StepTest, Tree};
use crate::xpath::ast::{Axis, NodeTest};
use crate::xpath::eval::{Failure, Found, Items};
use crate::xpath::value::Item;

/// Returns the nodes on an axis.
pub(crate) fn axis<'a, T: Tree>(
    tree: &'a T,
    axis: Axis,
    item: &Found<T>,
) -> Result<Items<'a, T>, Failure<T>> {
    let itself = || Box::new(std::iter::once(Ok(item.clone())));
    let node = match item {
        Item::Node(node) => node,
        Item::Namespace { element, .. } => {
            return Ok(axis_of_namespace(tree, axis, item, element));
        }
    };
    Ok(match axis {
        Axis::Itself => itself(),
        Axis::Parent => nodes::<T>(tree.parent(node)?.into_iter().map(Ok)),
        Axis::Ancestor => ancestors(tree, node),
        Axis::AncestorOrSelf => Box::new(itself().chain(ancestors(tree, node))),
        Axis::Attribute if tree.kind(node)? == Kind::Element => {
            nodes::<T>(tree.attributes(node)?.into_iter().map(Ok))
        }
        Axis::Namespace if tree.kind(node)? == Kind::Element => namespaces(tree, node)?,
        Axis::Attribute | Axis::Namespace => Box::new(std::iter::empty()),
        Axis::Child => children(tree, node),
        Axis::Descendant => descendants(tree, node),
        Axis::DescendantOrSelf => Box::new(itself().chain(descendants(tree, node))),
        Axis::FollowingSibling => walk::<T>(node, |at| tree.next_sibling(at)),
        Axis::PrecedingSibling => walk::<T>(node, |at| tree.previous_sibling(at)),
        Axis::Following => match (tree.kind(node)?, tree.parent(node)?) {
            (Kind::Attribute, Some(element)) => following(tree, &element, true),
            _ => following(tree, node, false),
        },
        Axis::Preceding => match (tree.kind(node)?, tree.parent(node)?) {
            (Kind::Attribute, Some(element)) => preceding(tree, &element),
            _ => preceding(tree, node),
        },
    })
}

/// A namespace node comes right after its element and before the attributes and children.
fn axis_of_namespace<'a, T: Tree>(
    tree: &'a T,
    axis: Axis,
    item: &Found<T>,
    element: &T::Node,
) -> Items<'a, T> {
    let parent = || std::iter::once(Ok(Item::Node(element.clone())));
    let itself = || std::iter::once(Ok(item.clone()));
    match axis {
        Axis::Itself | Axis::DescendantOrSelf => Box::new(itself()),
        Axis::Parent => Box::new(parent()),
        Axis::Ancestor => Box::new(parent().chain(ancestors(tree, element))),
        Axis::AncestorOrSelf => Box::new(itself().chain(parent()).chain(ancestors(tree, element))),
        Axis::Following => following(tree, element, true),
        Axis::Preceding => preceding(tree, element),
        Axis::Attribute
        | Axis::Namespace
        | Axis::Child
        | Axis::Descendant
        | Axis::FollowingSibling
        | Axis::PrecedingSibling => Box::new(std::iter::empty()),
    }
}

/// Returns an axis and a test as [`Tree::step`] takes them, if it does. `descendant-or-self` is
/// `descendant` to it.
pub(crate) fn as_step(axis: Axis, test: &NodeTest) -> Option<(StepAxis, StepTest<'_>)> {
    let axis = match axis {
        Axis::Child => StepAxis::Child,
        Axis::Descendant | Axis::DescendantOrSelf => StepAxis::Descendant,
        Axis::Attribute => StepAxis::Attribute,
        _ => return None,
    };
    let test = match test {
        NodeTest::Any => StepTest::Any,
        NodeTest::Principal => StepTest::Principal,
        NodeTest::Name(name) => StepTest::Name(name),
        NodeTest::Text => StepTest::Text,
        _ => return None,
    };
    Some((axis, test))
}

/// Returns whether a node passes a test on an axis.
pub(crate) fn passes<T: Tree>(
    tree: &T,
    axis: Axis,
    test: &NodeTest,
    item: &Found<T>,
) -> Result<bool, Failure<T>> {
    let node = match item {
        Item::Node(node) => node,
        // On the other axes a namespace node is not of the principal kind.
        Item::Namespace { binding, .. } => {
            return Ok(match test {
                NodeTest::Any => true,
                NodeTest::Principal => axis == Axis::Namespace,
                NodeTest::Name(name) => {
                    axis == Axis::Namespace
                        && name.namespace.is_empty()
                        && name.local == binding.prefix
                }
                _ => false,
            });
        }
    };
    let principal = || -> Result<bool, Failure<T>> {
        let wanted = if axis == Axis::Attribute { Kind::Attribute } else { Kind::Element };
        Ok(tree.kind(node)? == wanted)
    };
    Ok(match test {
        NodeTest::Any => true,
        NodeTest::Principal => principal()?,
        NodeTest::Name(name) => principal()? && tree.has_name(node, name)?,
        NodeTest::Namespace(uri) => {
            principal()? && tree.name(node)?.is_some_and(|name| name.namespace == *uri)
        }
        NodeTest::Text => tree.kind(node)? == Kind::Text,
        NodeTest::Comment => tree.kind(node)? == Kind::Comment,
        NodeTest::ProcessingInstruction(target) => {
            tree.kind(node)? == Kind::ProcessingInstruction
                && match target {
                    Some(target) => tree.has_name(node, target)?,
                    None => true,
                }
        }
    })
}

/// Wraps nodes of the tree.
pub(crate) fn nodes<'a, T: Tree>(
    found: impl Iterator<Item = Result<T::Node, T::Error>> + 'a,
) -> Items<'a, T> {
    Box::new(found.map(|node| Ok(Item::Node(node?))))
}

/// Returns the nodes that `step` leads to, one from the other, until it leads nowhere or fails.
fn walk<'a, T: Tree>(
    start: &T::Node,
    mut step: impl FnMut(&T::Node) -> Result<Option<T::Node>, T::Error> + 'a,
) -> Items<'a, T>
where
    T::Node: 'a,
{
    let mut at = Some(start.clone());
    nodes::<T>(std::iter::from_fn(move || {
        let next = step(at.as_ref()?).transpose();
        at = match &next {
            Some(Ok(node)) => Some(node.clone()),
            _ => None,
        };
        next
    }))
}

fn ancestors<'a, T: Tree>(tree: &'a T, node: &T::Node) -> Items<'a, T> {
    walk::<T>(node, |at| tree.parent(at))
}

fn children<'a, T: Tree>(tree: &'a T, node: &T::Node) -> Items<'a, T> {
    let mut inside = false;
    walk::<T>(node, move |at| {
        if inside {
            return tree.next_sibling(at);
        }
        inside = true;
        tree.first_child(at)
    })
}

fn descendants<'a, T: Tree>(tree: &'a T, node: &T::Node) -> Items<'a, T> {
    let mut depth = 0;
    walk::<T>(node, move |at| tree.next_below(at, &mut depth))
}

/// The nodes after `node`: with `inside` those of its subtree first.
fn following<'a, T: Tree>(tree: &'a T, node: &T::Node, mut inside: bool) -> Items<'a, T> {
    walk::<T>(node, move |at| {
        if inside && let Some(child) = tree.first_child(at)? {
            return Ok(Some(child));
        }
        inside = true;
        let mut at = Some(at.clone());
        while let Some(node) = at {
            if let Some(sibling) = tree.next_sibling(&node)? {
                return Ok(Some(sibling));
            }
            at = tree.parent(&node)?;
        }
        Ok(None)
    })
}

/// The nodes before `node` without its ancestors, in reverse document order.
fn preceding<'a, T: Tree>(tree: &'a T, node: &T::Node) -> Items<'a, T> {
    // Levels between the node that was found last and the ancestors of `node`, which are left out.
    let mut depth = 0_usize;
    walk::<T>(node, move |at| {
        let mut at = at.clone();
        loop {
            if let Some(sibling) = tree.previous_sibling(&at)? {
                at = sibling;
                while let Some(child) = tree.last_child(&at)? {
                    at = child;
                    depth += 1;
                }
                return Ok(Some(at));
            }
            let Some(parent) = tree.parent(&at)? else { return Ok(None) };
            if depth > 0 {
                depth -= 1;
                return Ok(Some(parent));
            }
            at = parent;
        }
    })
}

fn namespaces<'a, T: Tree>(tree: &'a T, node: &T::Node) -> Result<Items<'a, T>, Failure<T>> {
    let element = node.clone();
    let bindings = tree.namespaces_in_scope(node)?;
    Ok(Box::new(
        bindings
            .into_iter()
            .map(move |binding| Ok(Item::Namespace { element: element.clone(), binding })),
    ))
}
