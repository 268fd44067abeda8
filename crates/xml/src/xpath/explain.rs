//! The plan of an expression: operators as a tree, each with its inputs below it.

use std::fmt;

use crate::tree::Tree;
use crate::xpath::ast::{
    Axis, Expr, Method, NodeTest, Path, Predicate, PredicateKind, Start, Step,
};
use crate::xpath::pattern::{self, Candidates};
use crate::xpath::{Environment, value};

/// An operator of a plan. Its inputs follow it, one level deeper; steps of a path are listed in
/// the order of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanLine {
    /// Number of operators that it is an input of, directly or not.
    pub depth: usize,
    /// What it does.
    pub operator: String,
    /// The index that it asks, as [`Tree::index_for`] or [`Tree::index_of_elements`] names it.
    pub index: Option<String>,
}

impl fmt::Display for PlanLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = 2 * self.depth;
        write!(f, "{:width$}{}", "", self.operator)?;
        self.index.iter().try_for_each(|index| write!(f, ", index {index}"))
    }
}

/// Returns the plan of an expression on a tree.
pub(crate) fn plan<T: Tree>(
    expr: &Expr,
    tree: &T,
    environment: &Environment<T::Node>,
) -> Vec<PlanLine> {
    let mut plan = Plan { lines: Vec::new(), tree, environment };
    plan.expr(expr, 0);
    plan.lines
}

struct Plan<'a, T: Tree> {
    lines: Vec<PlanLine>,
    tree: &'a T,
    environment: &'a Environment<T::Node>,
}

impl<T: Tree> Plan<'_, T> {
    fn line(&mut self, depth: usize, operator: &str) {
        self.lines.push(PlanLine { depth, operator: operator.to_owned(), index: None });
    }

    fn expr(&mut self, expr: &Expr, depth: usize) {
        match expr {
            Expr::Or(operands) => self.operator("or, until one is true", operands, depth),
            Expr::And(operands) => self.operator("and, until one is false", operands, depth),
            Expr::Union(operands) => self.operator("merge union", operands, depth),
            Expr::Call(function, arguments) => {
                self.operator(&format!("{}()", function.name()), arguments, depth);
            }
            Expr::Chain(first, rest) => {
                let symbols: Vec<_> = rest.iter().map(|(operator, _)| operator.symbol()).collect();
                self.line(depth, &format!("operators {}", symbols.join(" ")));
                self.expr(first, depth + 1);
                for (_, operand) in rest {
                    self.expr(operand, depth + 1);
                }
            }
            Expr::Negate(odd, operand) => {
                self.line(depth, if *odd { "negate" } else { "number" });
                self.expr(operand, depth + 1);
            }
            Expr::Path(path) => self.path(path, depth),
            Expr::Literal(text) => self.line(depth, &format!("string {text:?}")),
            Expr::Number(number) => {
                self.line(depth, &format!("number {}", value::string_of(*number)));
            }
            Expr::Variable(name) => self.line(depth, &format!("variable ${name}")),
        }
    }

    fn operator(&mut self, line: &str, operands: &[Expr], depth: usize) {
        self.line(depth, line);
        for operand in operands {
            self.expr(operand, depth + 1);
        }
    }

    /// The start and the steps in their order, below one line. They are not indented below each
    /// other, so the plan of a long path is as long as its text and not its square.
    fn path(&mut self, path: &Path, depth: usize) {
        self.line(depth, "path");
        let depth = depth + 1;
        let mut answered = 0;
        match &path.start {
            Start::Root => {
                self.line(depth, "from the document");
                answered = self.first_steps(&path.steps, depth);
            }
            Start::Context => self.line(depth, "from the context node"),
            Start::Expr(expr) => {
                self.line(depth, "from the nodes of");
                self.expr(expr, depth + 1);
            }
        }
        self.predicates(&path.predicates, depth + 1);
        for (number, step) in path.steps.iter().enumerate() {
            if number >= answered {
                self.step(step, depth);
            }
            self.predicates(&step.predicates, depth + 1);
        }
    }

    /// Adds the line of the steps that an index answers. Returns how many they are.
    fn first_steps(&mut self, steps: &[Step], depth: usize) -> usize {
        let candidates = pattern::candidates(steps, self.environment);
        let Some(Candidates { patterns, length }) = candidates else { return 0 };
        let named = patterns.iter().find_map(|candidate| {
            let index = self.tree.index_for(&candidate.pattern)?;
            Some((candidate.is_of_parents, index))
        });
        let Some((is_of_parents, index)) = named else { return 0 };
        let steps = steps[..length].iter();
        let steps = steps.map(|step| format!("{}::{}", step.axis.name(), test(&step.test)));
        let steps = steps.collect::<Vec<_>>().join("/");
        let parents = if is_of_parents { ", parents of what is found by the value" } else { "" };
        let operator = format!("steps {steps}{parents}");
        self.lines.push(PlanLine { depth, operator, index: Some(index) });
        length
    }

    fn step(&mut self, step: &Step, depth: usize) {
        let how = match step.method {
            Method::Concatenate => "",
            Method::Merge => ", merge of nested results",
            Method::Outermost => ", from outermost nodes only",
            Method::FirstToEnd => ", from the node that ends first only",
            Method::LastToStart => ", from the last node only, sort",
            Method::OneOfEachParent => ", from one node of each parent, sort",
            Method::Sort => ", sort and remove duplicates",
        };
        let operator = format!("step {}::{}{how}", step.axis.name(), test(&step.test));
        let index = match (step.axis, &step.test) {
            (Axis::Descendant | Axis::DescendantOrSelf, NodeTest::Name(name))
                if self.environment.uses_indexes() =>
            {
                self.tree.index_of_elements(name)
            }
            _ => None,
        };
        self.lines.push(PlanLine { depth, operator, index });
    }

    fn predicates(&mut self, predicates: &[Predicate], depth: usize) {
        for predicate in predicates {
            match predicate.kind {
                PredicateKind::Index(position) => {
                    self.line(depth, &format!("only node {position}"));
                    continue;
                }
                PredicateKind::Last => {
                    self.line(depth, "only the last node");
                    continue;
                }
                PredicateKind::Boolean => self.line(depth, "where"),
                PredicateKind::Position => self.line(depth, "where, with position"),
                PredicateKind::Size => self.line(depth, "where, with position and size: collect"),
            }
            self.expr(&predicate.expr, depth + 1);
        }
    }
}

fn test(test: &NodeTest) -> String {
    match test {
        NodeTest::Any => "node()".to_owned(),
        NodeTest::Principal => "*".to_owned(),
        NodeTest::Namespace(uri) => format!("{{{uri}}}*"),
        NodeTest::Name(name) => name.to_string(),
        NodeTest::Text => "text()".to_owned(),
        NodeTest::Comment => "comment()".to_owned(),
        NodeTest::ProcessingInstruction(None) => "processing-instruction()".to_owned(),
        NodeTest::ProcessingInstruction(Some(target)) => {
            format!("processing-instruction({:?})", target.local)
        }
    }
}
