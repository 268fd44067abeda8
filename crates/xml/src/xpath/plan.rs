//! Decides how the steps of a path are computed, from the expression alone.
//!
//! For each step the planner knows two things about the nodes that arrive: whether there is at most
//! one, and whether none is an ancestor of another. All arrive in document order and once. From
//! this follows whether the results of a step are in order and distinct by themselves (table in
//! `docs/xpath.md`), and only where they are not, a [`Method`] with more work is chosen. Hidders
//! and Michiels (*Avoiding Unnecessary Ordering Operations in `XPath`*, DBPL 2003) reason in the
//! same way, with more properties; two suffice for what the methods here can do.

use crate::xpath::ast::{
    Axis, Expr, Function, Method, NodeTest, Operator, Path, Predicate, PredicateKind, Start, Step,
};

/// The type of a value as far as the expression tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Nodes,
    Boolean,
    Number,
    String,
    /// A variable: known only when the expression is evaluated.
    Unknown,
}

/// Returns the type of an expression's value.
pub(crate) fn type_of(expr: &Expr) -> Type {
    match expr {
        Expr::Or(_) | Expr::And(_) => Type::Boolean,
        Expr::Chain(_, rest) => match rest.last() {
            Some((operator, _)) if operator.compares() => Type::Boolean,
            _ => Type::Number,
        },
        Expr::Negate(..) | Expr::Number(_) => Type::Number,
        Expr::Union(_) | Expr::Path(_) => Type::Nodes,
        Expr::Literal(_) => Type::String,
        Expr::Variable(_) => Type::Unknown,
        Expr::Call(function, _) => type_of_call(*function),
    }
}

fn type_of_call(function: Function) -> Type {
    match function {
        Function::Id => Type::Nodes,
        Function::Boolean
        | Function::Not
        | Function::True
        | Function::False
        | Function::Lang
        | Function::StartsWith
        | Function::Contains => Type::Boolean,
        Function::Last
        | Function::Position
        | Function::Count
        | Function::StringLength
        | Function::Number
        | Function::Sum
        | Function::Floor
        | Function::Ceiling
        | Function::Round => Type::Number,
        Function::LocalName
        | Function::NamespaceUri
        | Function::Name
        | Function::String
        | Function::Concat
        | Function::SubstringBefore
        | Function::SubstringAfter
        | Function::Substring
        | Function::NormalizeSpace
        | Function::Translate => Type::String,
    }
}

/// Classifies a predicate.
pub(crate) fn predicate(expr: Expr) -> Predicate {
    let kind = constant_position(&expr).unwrap_or_else(|| {
        if calls(&expr, Function::Last) {
            PredicateKind::Size
        } else if matches!(type_of(&expr), Type::Number | Type::Unknown)
            || calls(&expr, Function::Position)
        {
            PredicateKind::Position
        } else {
            PredicateKind::Boolean
        }
    });
    Predicate { expr, kind }
}

/// Recognises `[3]`, `[last()]`, `[position() = 3]` and `[position() = last()]`.
fn constant_position(expr: &Expr) -> Option<PredicateKind> {
    match expr {
        Expr::Number(number) => Some(PredicateKind::Index(index(*number))),
        Expr::Call(Function::Last, _) => Some(PredicateKind::Last),
        Expr::Chain(first, rest) => match (&**first, rest.as_slice()) {
            (Expr::Call(Function::Position, _), [(Operator::Equal, position)]) => match position {
                Expr::Number(_) | Expr::Call(Function::Last, _) => constant_position(position),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number from 1 to 2^52; larger ones are no position"
)]
fn index(number: f64) -> usize {
    let is_position = number.fract() == 0.0 && (1.0..=4_503_599_627_370_496.0).contains(&number);
    if is_position { number as usize } else { 0 }
}

/// Whether an expression calls a function for the context that it is evaluated in itself; the
/// predicates inside have contexts of their own.
fn calls(expr: &Expr, wanted: Function) -> bool {
    let any = |operands: &[Expr]| operands.iter().any(|operand| calls(operand, wanted));
    match expr {
        Expr::Or(operands) | Expr::And(operands) | Expr::Union(operands) => any(operands),
        Expr::Chain(first, rest) => {
            calls(first, wanted) || rest.iter().any(|(_, operand)| calls(operand, wanted))
        }
        Expr::Negate(_, operand) => calls(operand, wanted),
        Expr::Path(Path { start: Start::Expr(start), .. }) => calls(start, wanted),
        Expr::Call(function, arguments) => *function == wanted || any(arguments),
        Expr::Path(_) | Expr::Literal(_) | Expr::Number(_) | Expr::Variable(_) => false,
    }
}

/// Makes a path: simplifies its steps and chooses the method of each.
pub(crate) fn path(start: Start, predicates: Vec<Predicate>, steps: Vec<Step>) -> Path {
    let mut steps = simplify(steps);
    let mut shape = match start {
        Start::Root | Start::Context => Shape::Single,
        Start::Expr(_) if selects_one(&predicates) => Shape::Single,
        Start::Expr(_) => Shape::Nested,
    };
    for step in &mut steps {
        (step.method, shape) = combine(step, shape);
    }
    Path { start, predicates, steps }
}

/// Removes `self::node()`, and fuses `descendant-or-self::node()` with the step after it, so that
/// `//a` is one walk. Not with a positional predicate: `//a[1]` counts among siblings.
fn simplify(steps: Vec<Step>) -> Vec<Step> {
    let mut simple: Vec<Step> = Vec::with_capacity(steps.len());
    for mut step in steps {
        if is_bare(&step, Axis::Itself) {
            continue;
        }
        let fused = match step.axis {
            Axis::Child | Axis::Descendant => Some(Axis::Descendant),
            Axis::Itself | Axis::DescendantOrSelf => Some(Axis::DescendantOrSelf),
            _ => None,
        };
        if let Some(axis) = fused
            && !step.is_positional()
            && simple.last().is_some_and(|last| is_bare(last, Axis::DescendantOrSelf))
        {
            simple.pop();
            step.axis = axis;
        }
        simple.push(step);
    }
    simple
}

fn is_bare(step: &Step, axis: Axis) -> bool {
    step.axis == axis && step.test == NodeTest::Any && step.predicates.is_empty()
}

/// What is known of the nodes between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// At most one node.
    Single,
    /// None is an ancestor of another.
    Flat,
    /// One may be an ancestor of another.
    Nested,
}

/// Whether these predicates leave at most one of the nodes that one context node gives.
fn selects_one(predicates: &[Predicate]) -> bool {
    predicates
        .iter()
        .any(|predicate| matches!(predicate.kind, PredicateKind::Index(_) | PredicateKind::Last))
}

fn combine(step: &Step, input: Shape) -> (Method, Shape) {
    if input == Shape::Single {
        return combine_single(step);
    }
    let flat = input == Shape::Flat;
    match step.axis {
        Axis::Itself => (Method::Concatenate, input),
        Axis::Attribute | Axis::Namespace => (Method::Concatenate, Shape::Flat),
        Axis::Child if flat => (Method::Concatenate, Shape::Flat),
        Axis::Child => (Method::Merge, Shape::Nested),
        Axis::Descendant | Axis::DescendantOrSelf if flat => (Method::Concatenate, Shape::Nested),
        _ if step.is_positional() => (Method::Sort, Shape::Nested),
        Axis::Descendant | Axis::DescendantOrSelf => (Method::Outermost, Shape::Nested),
        Axis::Following => (Method::FirstToEnd, Shape::Nested),
        Axis::Preceding => (Method::LastToStart, Shape::Nested),
        Axis::FollowingSibling | Axis::PrecedingSibling => (Method::OneOfEachParent, Shape::Nested),
        Axis::Parent | Axis::Ancestor | Axis::AncestorOrSelf => (Method::Sort, Shape::Nested),
    }
}

fn combine_single(step: &Step) -> (Method, Shape) {
    if matches!(step.axis, Axis::Itself | Axis::Parent) || selects_one(&step.predicates) {
        return (Method::Concatenate, Shape::Single);
    }
    match step.axis {
        Axis::Child | Axis::Attribute | Axis::Namespace | Axis::FollowingSibling => {
            (Method::Concatenate, Shape::Flat)
        }
        Axis::PrecedingSibling => (Method::Sort, Shape::Flat),
        axis if axis.is_reverse() => (Method::Sort, Shape::Nested),
        _ => (Method::Concatenate, Shape::Nested),
    }
}
