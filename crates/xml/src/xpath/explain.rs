//! Writes the plan of an expression as text: operators as a tree, each with its inputs indented
//! below it.

use std::fmt::Write;

use crate::name::QName;
use crate::xpath::ast::{
    Axis, Expr, Method, NodeTest, Path, Predicate, PredicateKind, Start, Step,
};
use crate::xpath::value;

/// Returns the plan. `index_of` names the index of the elements with a name, if there is one.
pub(crate) fn explain(expr: &Expr, index_of: &dyn Fn(&QName) -> Option<String>) -> String {
    let mut plan = Plan { text: String::new(), index_of };
    plan.expr(expr, 0);
    plan.text
}

struct Plan<'a> {
    text: String,
    index_of: &'a dyn Fn(&QName) -> Option<String>,
}

impl Plan<'_> {
    fn line(&mut self, depth: usize, line: &str) {
        for _ in 0..depth {
            self.text.push_str("  ");
        }
        self.text.push_str(line);
        self.text.push('\n');
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
        match &path.start {
            Start::Root => self.line(depth, "from the document"),
            Start::Context => self.line(depth, "from the context node"),
            Start::Expr(expr) => {
                self.line(depth, "from the nodes of");
                self.expr(expr, depth + 1);
            }
        }
        self.predicates(&path.predicates, depth + 1);
        for step in &path.steps {
            let line = self.step(step);
            self.line(depth, &line);
            self.predicates(&step.predicates, depth + 1);
        }
    }

    fn step(&self, step: &Step) -> String {
        let mut line = format!("step {}::{}", step.axis.name(), test(&step.test));
        let how = match step.method {
            Method::Concatenate => "",
            Method::Merge => ", merge of nested results",
            Method::Outermost => ", from outermost nodes only",
            Method::FirstToEnd => ", from the node that ends first only",
            Method::LastToStart => ", from the last node only, sort",
            Method::OneOfEachParent => ", from one node of each parent, sort",
            Method::Sort => ", sort and remove duplicates",
        };
        line.push_str(how);
        if let (Axis::Descendant | Axis::DescendantOrSelf, NodeTest::Name(name)) =
            (step.axis, &step.test)
            && let Some(index) = (self.index_of)(name)
        {
            // Writing to a string cannot fail.
            let _ = write!(line, ", index {index}");
        }
        line
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
