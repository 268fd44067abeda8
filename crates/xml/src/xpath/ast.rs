//! The syntax tree of an expression, with names resolved and with the decisions of the planner.

use crate::name::QName;

/// An expression. Chains of operators of one precedence are flat lists, so the depth of the tree
/// is bounded by the nesting of the text and not by its length.
#[derive(Debug, Clone)]
pub(crate) enum Expr {
    Or(Vec<Expr>),
    And(Vec<Expr>),
    /// Operators of one precedence, applied from left to right.
    Chain(Box<Expr>, Vec<(Operator, Expr)>),
    /// One or more minus signs: the operand as a number, negated if their count is odd.
    Negate(bool, Box<Expr>),
    Union(Vec<Expr>),
    Path(Path),
    Literal(String),
    Number(f64),
    Variable(QName),
    Call(Function, Vec<Expr>),
}

/// A binary operator other than `or`, `and` and `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl Operator {
    /// The operator as an expression spells it.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Operator::Equal => "=",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "div",
            Operator::Modulo => "mod",
        }
    }

    /// Whether the result is a boolean.
    pub(crate) fn compares(self) -> bool {
        self.is_equality() || self.is_relational()
    }

    pub(crate) fn is_equality(self) -> bool {
        matches!(self, Operator::Equal | Operator::NotEqual)
    }

    pub(crate) fn is_relational(self) -> bool {
        matches!(
            self,
            Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual
        )
    }

    /// The operator that gives the same answer with its operands exchanged.
    pub(crate) fn exchanged(self) -> Operator {
        match self {
            Operator::Less => Operator::Greater,
            Operator::LessOrEqual => Operator::GreaterOrEqual,
            Operator::Greater => Operator::Less,
            Operator::GreaterOrEqual => Operator::LessOrEqual,
            other => other,
        }
    }
}

/// A location path, or a filter expression that may be followed by steps.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) start: Start,
    /// Predicates of the filter expression; empty for the other starts.
    pub(crate) predicates: Vec<Predicate>,
    pub(crate) steps: Vec<Step>,
}

/// Where a path begins.
#[derive(Debug, Clone)]
pub(crate) enum Start {
    /// The document node.
    Root,
    /// The context node.
    Context,
    /// The nodes of an expression.
    Expr(Box<Expr>),
}

/// A step of a path.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) axis: Axis,
    pub(crate) test: NodeTest,
    pub(crate) predicates: Vec<Predicate>,
    /// How the results for several context nodes become one ordered result.
    pub(crate) method: Method,
}

impl Step {
    pub(crate) fn new(axis: Axis, test: NodeTest, predicates: Vec<Predicate>) -> Step {
        Step { axis, test, predicates, method: Method::Sort }
    }

    /// Whether some predicate depends on the position of a node among those of its context node.
    pub(crate) fn is_positional(&self) -> bool {
        self.predicates.iter().any(|predicate| predicate.kind != PredicateKind::Boolean)
    }
}

/// How a step combines what it finds for each of its context nodes.
///
/// Context nodes arrive in document order and without duplicates, and the results leave so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// One after the other: the results are in order and distinct already.
    Concatenate,
    /// The results of nested context nodes are merged with a stack; nothing is collected.
    Merge,
    /// Context nodes below another one are skipped: their results are among those of the other.
    Outermost,
    /// Only the context node that ends first counts: `following` of the others is part of its own.
    FirstToEnd,
    /// Only the last context node counts: `preceding` of the others is part of its own.
    LastToStart,
    /// Only the first (or last) context node of each parent counts, and the results are sorted.
    OneOfEachParent,
    /// All results are collected, sorted and freed from duplicates.
    Sort,
}

/// A predicate with what the planner knows about it.
#[derive(Debug, Clone)]
pub(crate) struct Predicate {
    pub(crate) expr: Expr,
    pub(crate) kind: PredicateKind,
}

/// What a predicate needs to know of the nodes that it filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PredicateKind {
    /// Neither position nor size.
    Boolean,
    /// `[3]`: only the node at this position; 0 for a number that is no position.
    Index(usize),
    /// `[last()]`: only the last node.
    Last,
    /// The position, but not the size.
    Position,
    /// The size as well, so the nodes are collected first.
    Size,
}

/// The 13 axes of `XPath` 1.0 (section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    Ancestor,
    AncestorOrSelf,
    Attribute,
    Child,
    Descendant,
    DescendantOrSelf,
    Following,
    FollowingSibling,
    Namespace,
    Parent,
    Preceding,
    PrecedingSibling,
    Itself,
}

/// All axes with their names.
pub(crate) const AXES: [(&str, Axis); 13] = [
    ("ancestor", Axis::Ancestor),
    ("ancestor-or-self", Axis::AncestorOrSelf),
    ("attribute", Axis::Attribute),
    ("child", Axis::Child),
    ("descendant", Axis::Descendant),
    ("descendant-or-self", Axis::DescendantOrSelf),
    ("following", Axis::Following),
    ("following-sibling", Axis::FollowingSibling),
    ("namespace", Axis::Namespace),
    ("parent", Axis::Parent),
    ("preceding", Axis::Preceding),
    ("preceding-sibling", Axis::PrecedingSibling),
    ("self", Axis::Itself),
];

impl Axis {
    /// The name of the axis in an expression.
    pub(crate) fn name(self) -> &'static str {
        AXES.iter().find(|(_, axis)| *axis == self).map_or("", |(name, _)| *name)
    }

    /// Whether positions count against document order.
    pub(crate) fn is_reverse(self) -> bool {
        matches!(
            self,
            Axis::Ancestor | Axis::AncestorOrSelf | Axis::Preceding | Axis::PrecedingSibling
        )
    }
}

/// What a step asks of a node. "Principal" is the kind that the axis is about: attributes,
/// namespaces, or otherwise elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeTest {
    /// `node()`
    Any,
    /// `*`
    Principal,
    /// `prefix:*`
    Namespace(Box<str>),
    /// `name` or `prefix:name`
    Name(QName),
    /// `text()`
    Text,
    /// `comment()`
    Comment,
    /// `processing-instruction()`, with or without a target
    ProcessingInstruction(Option<QName>),
}

/// The functions of the core library (section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Last,
    Position,
    Count,
    Id,
    LocalName,
    NamespaceUri,
    Name,
    String,
    Concat,
    StartsWith,
    Contains,
    SubstringBefore,
    SubstringAfter,
    Substring,
    StringLength,
    NormalizeSpace,
    Translate,
    Boolean,
    Not,
    True,
    False,
    Lang,
    Number,
    Sum,
    Floor,
    Ceiling,
    Round,
}

/// All functions: name, function, lowest and highest number of arguments.
pub(crate) const FUNCTIONS: [(&str, Function, usize, usize); 27] = [
    ("last", Function::Last, 0, 0),
    ("position", Function::Position, 0, 0),
    ("count", Function::Count, 1, 1),
    ("id", Function::Id, 1, 1),
    ("local-name", Function::LocalName, 0, 1),
    ("namespace-uri", Function::NamespaceUri, 0, 1),
    ("name", Function::Name, 0, 1),
    ("string", Function::String, 0, 1),
    ("concat", Function::Concat, 2, usize::MAX),
    ("starts-with", Function::StartsWith, 2, 2),
    ("contains", Function::Contains, 2, 2),
    ("substring-before", Function::SubstringBefore, 2, 2),
    ("substring-after", Function::SubstringAfter, 2, 2),
    ("substring", Function::Substring, 2, 3),
    ("string-length", Function::StringLength, 0, 1),
    ("normalize-space", Function::NormalizeSpace, 0, 1),
    ("translate", Function::Translate, 3, 3),
    ("boolean", Function::Boolean, 1, 1),
    ("not", Function::Not, 1, 1),
    ("true", Function::True, 0, 0),
    ("false", Function::False, 0, 0),
    ("lang", Function::Lang, 1, 1),
    ("number", Function::Number, 0, 1),
    ("sum", Function::Sum, 1, 1),
    ("floor", Function::Floor, 1, 1),
    ("ceiling", Function::Ceiling, 1, 1),
    ("round", Function::Round, 1, 1),
];

impl Function {
    /// The name of the function in an expression.
    pub(crate) fn name(self) -> &'static str {
        FUNCTIONS.iter().find(|entry| entry.1 == self).map_or("", |entry| entry.0)
    }

    /// Whether the argument has to be a node-set.
    pub(crate) fn wants_nodes(self) -> bool {
        matches!(
            self,
            Function::Count
                | Function::Sum
                | Function::LocalName
                | Function::NamespaceUri
                | Function::Name
        )
    }
}
