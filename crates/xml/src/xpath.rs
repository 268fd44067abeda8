//! `XPath` 1.0: expressions, and their values on a tree.
//!
//! The language is that of the W3C recommendation of 16 November 1999: all 13 axes, predicates,
//! the four types with their conversions, variables and the whole core function library, over any
//! [`Tree`]. `XPath` 2.0 and later, FLWOR expressions and functions of the caller's own are not
//! supported. `docs/xpath.md` describes the plans and the limits, and `docs/results/xml-xpath.md`
//! compares the answers with libxml2.
//!
//! The parser is our own: of the libraries with a public syntax tree, `xee-xpath-ast` parses
//! `XPath` 3.1 and brings a whole XML stack, and `xpath-eval` does not bound its recursion.
//!
//! ```
//! use tidegate_xml::name::QName;
//! use tidegate_xml::tree::{Tree, memory::Builder};
//! use tidegate_xml::xpath::{Environment, Prefixes, Query};
//!
//! let mut builder = Builder::new();
//! builder.start_element(QName::local("bids"));
//! for price in ["7", "12"] {
//!     builder.start_element(QName::local("bid"));
//!     builder.text(price);
//!     builder.end_element();
//! }
//! let tree = builder.finish();
//! let query = Query::parse("sum(//bid[. > 5])", &Prefixes::new())?;
//! let environment = Environment::default();
//! assert_eq!(query.number(&tree, &tree.root()?, &environment)?, 19.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashMap;

use crate::name::QName;
use crate::tree::Tree;

mod ast;
mod axes;
mod eval;
mod explain;
mod functions;
mod operators;
mod order;
mod parse;
mod pattern;
mod plan;
mod value;

use ast::Expr;
pub use eval::Lazy as LazyValue;
use eval::{Context, Failure, Items, Lazy, Run};
pub use explain::PlanLine;
pub use parse::{MAX_DEPTH, MAX_LENGTH, ParseError};
pub(crate) use value::number_of;
pub use value::string_of as number_as_text;
pub use value::{Item, Value};

/// The namespaces that the prefixes in an expression mean; `xml` is always known. A name without
/// prefix is in no namespace, whatever the document's default namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefixes {
    uris: HashMap<String, String>,
}

impl Prefixes {
    /// Returns an empty set.
    #[must_use]
    pub fn new() -> Prefixes {
        Prefixes::default()
    }

    /// Binds a prefix to the URI of a namespace.
    #[must_use]
    pub fn with(mut self, prefix: &str, uri: &str) -> Prefixes {
        self.uris.insert(prefix.to_owned(), uri.to_owned());
        self
    }

    pub(crate) fn get(&self, prefix: &str) -> Option<&str> {
        self.uris.get(prefix).map(String::as_str)
    }
}

/// What an evaluation is given besides the tree and the context node.
#[derive(Debug, Clone)]
pub struct Environment<N> {
    variables: HashMap<QName, Value<N>>,
    indexes: bool,
}

impl<N> Default for Environment<N> {
    fn default() -> Environment<N> {
        Environment { variables: HashMap::new(), indexes: true }
    }
}

impl<N> Environment<N> {
    /// Sets a variable.
    #[must_use]
    pub fn with_variable(mut self, name: QName, value: Value<N>) -> Environment<N> {
        self.variables.insert(name, value);
        self
    }

    /// Never asks the tree's indexes, so that their answers can be compared with those of a walk.
    #[must_use]
    pub fn without_indexes(mut self) -> Environment<N> {
        self.indexes = false;
        self
    }

    fn variable(&self, name: &QName) -> Option<&Value<N>> {
        self.variables.get(name)
    }

    fn uses_indexes(&self) -> bool {
        self.indexes
    }
}

/// Reason why an expression has no value on a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError<E> {
    /// The tree could not be read.
    #[error("the tree cannot be read: {0}")]
    Tree(#[from] E),
    /// The expression uses a variable that the [`Environment`] lacks.
    #[error("the variable ${name} is not set")]
    UnknownVariable {
        /// The name as the expression writes it.
        name: String,
    },
    /// A variable has to be a node-set where it is used, but has another type. Where the parser can
    /// tell, it is a [`ParseError::NotNodes`].
    #[error("expected a node-set, found a {found}")]
    NotNodes {
        /// The type of the value.
        found: &'static str,
    },
}

/// A parsed and planned expression, for any number of evaluations on any tree.
#[derive(Debug, Clone)]
pub struct Query {
    expr: Expr,
}

impl Query {
    /// Parses an expression.
    ///
    /// # Errors
    /// If it does not follow the grammar, uses unknown names, or is longer or deeper than
    /// [`MAX_LENGTH`] and [`MAX_DEPTH`].
    pub fn parse(text: &str, prefixes: &Prefixes) -> Result<Query, ParseError> {
        Ok(Query { expr: parse::parse(text, prefixes)? })
    }

    /// Returns the value with `node` as the context node, at position 1 of 1.
    ///
    /// # Errors
    /// If the tree cannot be read or a variable is unknown or of a wrong type. The same holds for
    /// every other method that evaluates.
    pub fn evaluate<T: Tree>(
        &self,
        tree: &T,
        node: &T::Node,
        environment: &Environment<T::Node>,
    ) -> Result<Value<T::Node>, Failure<T>> {
        Ok(match self.lazy(tree, node, environment)? {
            Lazy::Nodes(items) => Value::Nodes(items.collect::<Result<_, _>>()?),
            Lazy::Boolean(boolean) => Value::Boolean(boolean),
            Lazy::Number(number) => Value::Number(number),
            Lazy::String(text) => Value::String(text),
        })
    }

    /// Returns the nodes in document order; each is looked for when the iterator is asked for it.
    ///
    /// # Errors
    /// [`EvalError::NotNodes`] if the value is no node-set, and those of [`Query::evaluate`], here
    /// or from the iterator, which must not be asked again after an error.
    pub fn nodes<'a, T: Tree>(
        &'a self,
        tree: &'a T,
        node: &T::Node,
        environment: &'a Environment<T::Node>,
    ) -> Result<Items<'a, T>, Failure<T>> {
        Run { tree, environment }.nodes(&self.expr, &outermost_context(node))
    }

    /// Returns the value as a boolean; of a node-set it looks for one node only.
    ///
    /// # Errors
    /// Those of [`Query::evaluate`].
    pub fn boolean<T: Tree>(
        &self,
        tree: &T,
        node: &T::Node,
        environment: &Environment<T::Node>,
    ) -> Result<bool, Failure<T>> {
        Run::boolean_of(self.lazy(tree, node, environment)?)
    }

    /// Returns the value as a number; of a node-set, that of its first node.
    ///
    /// # Errors
    /// Those of [`Query::evaluate`].
    pub fn number<T: Tree>(
        &self,
        tree: &T,
        node: &T::Node,
        environment: &Environment<T::Node>,
    ) -> Result<f64, Failure<T>> {
        let value = self.lazy(tree, node, environment)?;
        Run { tree, environment }.number_of(value)
    }

    /// Returns the value as a string; of a node-set, that of its first node.
    ///
    /// # Errors
    /// Those of [`Query::evaluate`].
    pub fn string<T: Tree>(
        &self,
        tree: &T,
        node: &T::Node,
        environment: &Environment<T::Node>,
    ) -> Result<String, Failure<T>> {
        let value = self.lazy(tree, node, environment)?;
        Run { tree, environment }.string_of(value)
    }

    /// Returns the plan, with the indexes of `tree` that it would use. Which they are depends on
    /// the variables of the environment, too.
    pub fn plan<T: Tree>(&self, tree: &T, environment: &Environment<T::Node>) -> Vec<PlanLine> {
        explain::plan(&self.expr, tree, environment)
    }

    /// Returns the plan as text, each line indented by two spaces for each level.
    pub fn explain<T: Tree>(&self, tree: &T, environment: &Environment<T::Node>) -> String {
        let lines = self.plan(tree, environment);
        lines.iter().flat_map(|line| [line.to_string(), "\n".to_owned()]).collect()
    }

    /// Returns the value with `node` as the context node; its nodes are looked for when the
    /// iterator is asked for them.
    ///
    /// # Errors
    /// Those of [`Query::evaluate`], here or from the iterator.
    pub fn lazy<'a, T: Tree>(
        &'a self,
        tree: &'a T,
        node: &T::Node,
        environment: &'a Environment<T::Node>,
    ) -> Result<Lazy<'a, T>, Failure<T>> {
        Run { tree, environment }.eval(&self.expr, &outermost_context(node))
    }
}

fn outermost_context<N: Clone>(node: &N) -> Context<N> {
    Context { item: Item::Node(node.clone()), position: 1, size: 1 }
}

#[cfg(test)]
mod tests {
    use tidegate_random::SplitMix64;

    use super::ast::{AXES, Method, Start, Step};
    use super::*;
    use crate::tree::memory::{Builder, MemoryTree};

    /// A random tree with nested elements of few names, attributes and text.
    fn tree(random: &mut SplitMix64) -> MemoryTree {
        let mut builder = Builder::new();
        builder.start_element(QName::local("a"));
        builder.declare("p", "urn:p");
        for _ in 0..30 {
            match random.next_below(5) {
                0 | 1 => {
                    builder.start_element(QName::local(["a", "b"][random.next_below(2) as usize]));
                    if random.next_chance(0.5) {
                        builder.attribute(QName::local("a"), "1");
                    }
                }
                2 => builder.text("t"),
                _ => builder.end_element(),
            }
        }
        builder.finish()
    }

    fn steps(random: &mut SplitMix64) -> String {
        let mut text = ["", "/", "//", "(a | //@a)/", "(//node() | //@*)/"]
            [random.next_below(5) as usize]
            .to_owned();
        for index in 0..=random.next_below(4) {
            let axis = AXES[random.next_below(13) as usize].0;
            let nodes = ["*", "node()", "node()", "a"][random.next_below(4) as usize];
            let predicate = ["", "", "", "[1]", "[last()]", "[position() > 1]", "[a]"]
                [random.next_below(7) as usize];
            let separator = if index == 0 { "" } else { "/" };
            text += &[separator, axis, "::", nodes, predicate].concat();
        }
        text
    }

    /// Makes every step of a path collect, sort and remove duplicates.
    fn sort_all(expr: &mut Expr) {
        let Expr::Path(path) = expr else { return };
        for Step { method, .. } in &mut path.steps {
            *method = Method::Sort;
        }
        if let Start::Expr(start) = &mut path.start {
            sort_all(start);
        }
    }

    #[test]
    fn planned_paths_find_what_sorted_paths_find() {
        for seed in 0..3_000 {
            let mut random = SplitMix64::new(seed);
            let (tree, text) = (tree(&mut random), steps(&mut random));
            let environment = Environment::default();
            let query = Query::parse(&text, &Prefixes::new()).expect(&text);
            let mut sorted = query.clone();
            sort_all(&mut sorted.expr);
            for node in tree.nodes().step_by(7) {
                let planned = query.evaluate(&tree, &node, &environment);
                assert_eq!(
                    planned,
                    sorted.evaluate(&tree, &node, &environment),
                    "seed {seed}: {text} from {node:?}\n{}",
                    query.explain(&tree, &environment)
                );
            }
        }
    }
}
