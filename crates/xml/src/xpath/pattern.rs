//! Finds the part of an absolute path that an index of the tree can answer.
//!
//! A comparison with a constant only narrows the candidates: the evaluator checks every predicate
//! of the step again on each of them.

use crate::tree::{Below, Comparand, PathTest, Relation};
use crate::xpath::ast::{Axis, Expr, NodeTest, Operator, Start, Step};

/// The first steps of an absolute path as a path of [`crate::tree::Pattern`].
pub(crate) struct Prefix<'a> {
    pub(crate) path: Vec<(Below, PathTest<'a>)>,
    /// Number of steps that it stands for. Only the last may have predicates, none of them
    /// positional.
    pub(crate) length: usize,
}

/// Returns the longest such prefix, if there is one.
pub(crate) fn prefix(steps: &[Step]) -> Option<Prefix<'_>> {
    let mut found = Prefix { path: Vec::new(), length: 0 };
    let mut anywhere = false;
    for (index, step) in steps.iter().enumerate() {
        let is_bare = step.test == NodeTest::Any && step.predicates.is_empty();
        if is_bare && step.axis == Axis::DescendantOrSelf {
            anywhere = true;
            continue;
        }
        let test = match (step.axis, &step.test) {
            (Axis::Attribute, NodeTest::Principal) => PathTest::Attribute(None),
            (Axis::Attribute, NodeTest::Name(name)) => PathTest::Attribute(Some(name)),
            (Axis::Child | Axis::Descendant, NodeTest::Principal) => PathTest::Element(None),
            (Axis::Child | Axis::Descendant, NodeTest::Name(name)) => PathTest::Element(Some(name)),
            (Axis::Child | Axis::Descendant, NodeTest::Text) => PathTest::Text,
            _ => break,
        };
        if step.is_positional() {
            break;
        }
        anywhere |= step.axis == Axis::Descendant;
        found.path.push((if anywhere { Below::Anywhere } else { Below::Directly }, test));
        found.length = index + 1;
        anywhere = false;
        if !step.predicates.is_empty() || !matches!(test, PathTest::Element(_)) {
            break;
        }
    }
    (found.length > 0).then_some(found)
}

/// A comparison of an attribute or a text child of the context node with an operand.
pub(crate) struct Comparison<'a> {
    pub(crate) test: PathTest<'a>,
    pub(crate) operator: Operator,
    pub(crate) operand: &'a Expr,
}

/// Returns the comparisons that have to hold where `expr` holds.
pub(crate) fn comparisons(expr: &Expr) -> Vec<Comparison<'_>> {
    match expr {
        Expr::And(operands) => operands.iter().filter_map(comparison).collect(),
        expr => comparison(expr).into_iter().collect(),
    }
}

fn comparison(expr: &Expr) -> Option<Comparison<'_>> {
    let Expr::Chain(first, rest) = expr else { return None };
    let [(operator, second)] = rest.as_slice() else { return None };
    let (path, operator, operand) = match (&**first, second) {
        (Expr::Path(path), operand) => (path, *operator, operand),
        (operand, Expr::Path(path)) => (path, operator.exchanged(), operand),
        _ => return None,
    };
    let (Start::Context, [step]) = (&path.start, path.steps.as_slice()) else { return None };
    if !path.predicates.is_empty() || !step.predicates.is_empty() {
        return None;
    }
    let test = match (step.axis, &step.test) {
        (Axis::Attribute, NodeTest::Name(name)) => PathTest::Attribute(Some(name)),
        (Axis::Child, NodeTest::Text) => PathTest::Text,
        _ => return None,
    };
    Some(Comparison { test, operator, operand })
}

/// Returns how an index compares with a number, if the comparison is one of its relations.
pub(crate) fn with_number(
    operator: Operator,
    number: f64,
) -> Option<(Relation, Comparand<'static>)> {
    let relation = match operator {
        Operator::Equal => Relation::Equal,
        Operator::Less => Relation::Less,
        Operator::LessOrEqual => Relation::LessOrEqual,
        Operator::Greater => Relation::Greater,
        Operator::GreaterOrEqual => Relation::GreaterOrEqual,
        _ => return None,
    };
    (!number.is_nan()).then_some((relation, Comparand::Number(number)))
}
