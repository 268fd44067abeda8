//! Finds the part of an absolute path that an index of the tree can answer.
//!
//! A comparison with a constant only narrows the candidates: the evaluator checks every predicate
//! of the step again on each of them.

use crate::tree::{Below, Comparand, PathTest, Pattern, Relation};
use crate::xpath::Environment;
use crate::xpath::ast::{Axis, Expr, NodeTest, Operator, Start, Step};
use crate::xpath::value::{self, Value};

/// Patterns for an index, each of which gives all nodes that the first steps of an absolute path
/// find before their predicates are checked, and maybe others.
pub(crate) struct Candidates<'a> {
    /// The best first.
    pub(crate) patterns: Vec<Candidate<'a>>,
    /// Number of steps that they stand for. Only the last of these may have predicates, none of
    /// them positional.
    pub(crate) length: usize,
}

/// A pattern for an index.
pub(crate) struct Candidate<'a> {
    pub(crate) pattern: Pattern<'a>,
    /// Whether the steps find the parents of the pattern's nodes, and not these nodes.
    pub(crate) is_of_parents: bool,
}

/// Returns what an index may be asked for the longest prefix of these steps, if there is one. An
/// index that answers a comparison is preferred to one of the path alone.
pub(crate) fn candidates<'a, N>(
    steps: &'a [Step],
    environment: &'a Environment<N>,
) -> Option<Candidates<'a>> {
    if !environment.uses_indexes() {
        return None;
    }
    let Prefix { path, length } = prefix(steps)?;
    let mut patterns = Vec::new();
    // Nothing is below an attribute or a text.
    if matches!(path.last(), Some((_, PathTest::Element(_)))) {
        let predicates = &steps[length - 1].predicates;
        for comparison in predicates.iter().flat_map(|predicate| comparisons(&predicate.expr)) {
            let content = content(comparison.operator, comparison.operand, environment);
            let Some(content) = content else { continue };
            let mut path = path.clone();
            path.extend(comparison.test.map(|test| (Below::Directly, test)));
            let pattern = Pattern { path, content: Some(content) };
            patterns.push(Candidate { pattern, is_of_parents: comparison.test.is_some() });
        }
    }
    let pattern = Pattern { path, content: None };
    patterns.push(Candidate { pattern, is_of_parents: false });
    Some(Candidates { patterns, length })
}

/// Returns the comparison with an operand as an index makes it, if the operand is constant.
fn content<'a, N>(
    operator: Operator,
    operand: &'a Expr,
    environment: &'a Environment<N>,
) -> Option<(Relation, Comparand<'a>)> {
    let text = match operand {
        Expr::Literal(text) => text,
        Expr::Number(number) => return with_number(operator, *number),
        Expr::Variable(name) => match environment.variable(name)? {
            Value::String(text) => text,
            Value::Number(number) => return with_number(operator, *number),
            Value::Nodes(_) | Value::Boolean(_) => return None,
        },
        _ => return None,
    };
    if operator == Operator::Equal {
        return Some((Relation::Equal, Comparand::Text(text)));
    }
    with_number(operator, value::number_of(text))
}

/// The first steps of an absolute path as a path of [`Pattern`], and how many steps these are.
struct Prefix<'a> {
    path: Vec<(Below, PathTest<'a>)>,
    length: usize,
}

/// Returns the longest such prefix, if there is one.
fn prefix(steps: &[Step]) -> Option<Prefix<'_>> {
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

/// A comparison of the context node, an attribute or a child of it with an operand.
struct Comparison<'a> {
    /// What the child or attribute is; `None` for the context node itself.
    test: Option<PathTest<'a>>,
    operator: Operator,
    operand: &'a Expr,
}

/// Returns the comparisons that have to hold where `expr` holds.
fn comparisons(expr: &Expr) -> Vec<Comparison<'_>> {
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
        (Axis::Attribute, NodeTest::Name(name)) => Some(PathTest::Attribute(Some(name))),
        (Axis::Child, NodeTest::Text) => Some(PathTest::Text),
        (Axis::Child, NodeTest::Name(name)) => Some(PathTest::Element(Some(name))),
        (Axis::Itself, NodeTest::Any) => None,
        _ => return None,
    };
    Some(Comparison { test, operator, operand })
}

/// Returns how an index compares with a number, if the comparison is one of its relations.
fn with_number(operator: Operator, number: f64) -> Option<(Relation, Comparand<'static>)> {
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
