//! Evaluates expressions: lazily, as far as the result is asked for.
//!
//! A node-set is an iterator in document order without duplicates. Whatever needs less than all of
//! it (a boolean, the first node, a comparison) stops pulling. The iterators of a path are nested
//! in each other, so a long path would need a deep stack; after [`PIPELINE`] steps and predicates
//! the nodes found so far are collected.

use std::cmp::Ordering;

use crate::tree::{Indexed, PathTest, Tree};
use crate::xpath::ast::{
    Axis, Expr, Method, NodeTest, Operator, Path, Predicate, PredicateKind, Start, Step,
};
use crate::xpath::order::{self, MergeNested, MergeUnion};
use crate::xpath::pattern::{Candidate, Candidates};
use crate::xpath::value::{self, Item, Value};
use crate::xpath::{Environment, EvalError, axes, functions, operators, pattern};

/// Steps and predicates of a path that are computed in one pass.
const PIPELINE: usize = 8;

pub(crate) type Found<T> = Item<<T as Tree>::Node>;
pub(crate) type Failure<T> = EvalError<<T as Tree>::Error>;
pub(crate) type Items<'a, T> = Box<dyn Iterator<Item = Result<Found<T>, Failure<T>>> + 'a>;

/// Reads all nodes, so that the iterators that find them are not nested any deeper.
fn collect<'a, T: Tree + 'a>(items: Items<'a, T>) -> Result<Items<'a, T>, Failure<T>> {
    let collected: Vec<_> = items.collect::<Result<_, _>>()?;
    Ok(Box::new(collected.into_iter().map(Ok)))
}

/// A [`Value`] whose nodes are looked for when they are asked for.
pub enum Lazy<'a, T: Tree> {
    /// Nodes in document order and without duplicates. The iterator must not be asked again after
    /// an error.
    Nodes(Items<'a, T>),
    /// A boolean.
    Boolean(bool),
    /// A number.
    Number(f64),
    /// A string.
    String(String),
}

/// The context that an expression is evaluated in (section 1).
pub(crate) struct Context<N> {
    pub(crate) item: Item<N>,
    pub(crate) position: usize,
    /// 0 where the planner found that the expression does not ask for it.
    pub(crate) size: usize,
}

/// An evaluation: the tree and everything that is the same for all of its parts.
pub(crate) struct Run<'a, T: Tree> {
    pub(crate) tree: &'a T,
    pub(crate) environment: &'a Environment<T::Node>,
}

impl<T: Tree> Clone for Run<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Tree> Copy for Run<'_, T> {}

impl<'a, T: Tree> Run<'a, T> {
    /// Returns the value of an expression.
    pub(crate) fn eval(
        self,
        expr: &'a Expr,
        context: &Context<T::Node>,
    ) -> Result<Lazy<'a, T>, Failure<T>> {
        Ok(match expr {
            Expr::Or(operands) => Lazy::Boolean(self.any(operands, context, true)?),
            Expr::And(operands) => Lazy::Boolean(!self.any(operands, context, false)?),
            Expr::Chain(first, rest) => return self.chain(first, rest, context),
            Expr::Negate(odd, operand) => {
                let number = self.number(operand, context)?;
                Lazy::Number(if *odd { -number } else { number })
            }
            Expr::Union(operands) => Lazy::Nodes(self.union(operands, context)?),
            Expr::Path(path) => Lazy::Nodes(self.path(path, context)?),
            Expr::Literal(text) => Lazy::String(text.clone()),
            Expr::Number(number) => Lazy::Number(*number),
            Expr::Variable(name) => match self.environment.variable(name) {
                Some(value) => self.variable(value)?,
                None => return Err(EvalError::UnknownVariable { name: name.to_string() }),
            },
            Expr::Call(function, arguments) => {
                return functions::call(self, *function, arguments, context);
            }
        })
    }

    /// Whether some operand, as a boolean, is `wanted`; the operands after it are not evaluated.
    fn any(
        self,
        operands: &'a [Expr],
        context: &Context<T::Node>,
        wanted: bool,
    ) -> Result<bool, Failure<T>> {
        for operand in operands {
            if self.boolean(operand, context)? == wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn chain(
        self,
        first: &'a Expr,
        rest: &'a [(Operator, Expr)],
        context: &Context<T::Node>,
    ) -> Result<Lazy<'a, T>, Failure<T>> {
        let mut left = self.eval(first, context)?;
        for (operator, operand) in rest {
            let right = self.eval(operand, context)?;
            left = if operator.compares() {
                Lazy::Boolean(operators::compare(self, *operator, left, right)?)
            } else {
                let (left, right) = (self.number_of(left)?, self.number_of(right)?);
                Lazy::Number(operators::arithmetic(*operator, left, right))
            };
        }
        Ok(left)
    }

    fn union(
        self,
        operands: &'a [Expr],
        context: &Context<T::Node>,
    ) -> Result<Items<'a, T>, Failure<T>> {
        let mut streams = Vec::with_capacity(operands.len());
        for operand in operands {
            streams.push(self.nodes(operand, context)?);
        }
        // Pairs of pairs, so that the merges are nested only as deep as the logarithm.
        while streams.len() > 1 {
            let mut merged: Vec<Items<'a, T>> = Vec::with_capacity(streams.len().div_ceil(2));
            let mut rest = streams.into_iter();
            while let Some(left) = rest.next() {
                merged.push(match rest.next() {
                    Some(right) => Box::new(MergeUnion::new(self.tree, left, right)),
                    None => left,
                });
            }
            streams = merged;
        }
        Ok(streams.pop().unwrap_or_else(|| Box::new(std::iter::empty())))
    }

    fn variable(self, value: &'a Value<T::Node>) -> Result<Lazy<'a, T>, Failure<T>> {
        Ok(match value {
            Value::Nodes(items) => {
                let items: Items<'a, T> = Box::new(items.iter().cloned().map(Ok));
                Lazy::Nodes(order::sort(self.tree, items)?)
            }
            Value::Boolean(boolean) => Lazy::Boolean(*boolean),
            Value::Number(number) => Lazy::Number(*number),
            Value::String(text) => Lazy::String(text.clone()),
        })
    }

    /// Returns the nodes of an expression that the parser found to be a node-set or a variable.
    pub(crate) fn nodes(
        self,
        expr: &'a Expr,
        context: &Context<T::Node>,
    ) -> Result<Items<'a, T>, Failure<T>> {
        match self.eval(expr, context)? {
            Lazy::Nodes(items) => Ok(items),
            Lazy::Boolean(_) => Err(EvalError::NotNodes { found: "boolean" }),
            Lazy::Number(_) => Err(EvalError::NotNodes { found: "number" }),
            Lazy::String(_) => Err(EvalError::NotNodes { found: "string" }),
        }
    }

    pub(crate) fn boolean(
        self,
        expr: &'a Expr,
        context: &Context<T::Node>,
    ) -> Result<bool, Failure<T>> {
        let value = self.eval(expr, context)?;
        Self::boolean_of(value)
    }

    pub(crate) fn number(
        self,
        expr: &'a Expr,
        context: &Context<T::Node>,
    ) -> Result<f64, Failure<T>> {
        let value = self.eval(expr, context)?;
        self.number_of(value)
    }

    pub(crate) fn string(
        self,
        expr: &'a Expr,
        context: &Context<T::Node>,
    ) -> Result<String, Failure<T>> {
        let value = self.eval(expr, context)?;
        self.string_of(value)
    }

    pub(crate) fn boolean_of(value: Lazy<'a, T>) -> Result<bool, Failure<T>> {
        Ok(match value {
            Lazy::Nodes(mut items) => items.next().transpose()?.is_some(),
            Lazy::Boolean(boolean) => boolean,
            Lazy::Number(number) => number != 0.0 && !number.is_nan(),
            Lazy::String(text) => !text.is_empty(),
        })
    }

    pub(crate) fn number_of(self, value: Lazy<'a, T>) -> Result<f64, Failure<T>> {
        Ok(match value {
            Lazy::Boolean(boolean) => value::number_of_boolean(boolean),
            Lazy::Number(number) => number,
            value => value::number_of(&self.string_of(value)?),
        })
    }

    pub(crate) fn string_of(self, value: Lazy<'a, T>) -> Result<String, Failure<T>> {
        Ok(match value {
            Lazy::Nodes(mut items) => match items.next().transpose()? {
                Some(item) => self.string_value(&item)?,
                None => String::new(),
            },
            Lazy::Boolean(boolean) => boolean.to_string(),
            Lazy::Number(number) => value::string_of(number),
            Lazy::String(text) => text,
        })
    }

    pub(crate) fn string_value(self, item: &Found<T>) -> Result<String, Failure<T>> {
        match item {
            Item::Node(node) => Ok(self.tree.string_value(node)?),
            Item::Namespace { binding, .. } => Ok(binding.uri.to_string()),
        }
    }

    fn path(self, path: &'a Path, context: &Context<T::Node>) -> Result<Items<'a, T>, Failure<T>> {
        let mut answered = 0;
        let mut items: Items<'a, T> = match &path.start {
            Start::Root => match self.matching(&path.steps)? {
                Some((items, length)) => {
                    answered = length;
                    items
                }
                None => Box::new(std::iter::once(Ok(Item::Node(self.tree.root()?)))),
            },
            Start::Context => Box::new(std::iter::once(Ok(context.item.clone()))),
            Start::Expr(expr) => self.nodes(expr, context)?,
        };
        items = self.filter_all(items, &path.predicates)?;
        let mut stages = path.predicates.len();
        for step in &path.steps[answered..] {
            items = self.step(items, step)?;
            stages += 1 + step.predicates.len();
            if stages >= PIPELINE {
                items = collect::<T>(items)?;
                stages = 0;
            }
        }
        Ok(items)
    }

    /// Returns what the first steps from the document find, and how many steps these are, if an
    /// index answers them.
    fn matching(self, steps: &'a [Step]) -> Result<Option<(Items<'a, T>, usize)>, Failure<T>> {
        let Some(Candidates { patterns, length }) = pattern::candidates(steps, self.environment)
        else {
            return Ok(None);
        };
        for Candidate { pattern, is_of_parents } in patterns {
            let Some(nodes) = self.tree.matching(&pattern)? else { continue };
            let mut items = if is_of_parents {
                let parent = |node: Result<T::Node, T::Error>| {
                    node.and_then(|node| self.tree.parent(&node)).transpose()
                };
                axes::nodes::<T>(nodes.filter_map(parent))
            } else {
                axes::nodes::<T>(nodes)
            };
            // An element has one attribute of a name, but may have several texts and children.
            let is_attribute = matches!(pattern.path.last(), Some((_, PathTest::Attribute(_))));
            if is_of_parents && !is_attribute {
                items = order::sort(self.tree, items)?;
            }
            let predicates = &steps[length - 1].predicates;
            return Ok(Some((self.filter_all(items, predicates)?, length)));
        }
        Ok(None)
    }

    /// Returns what a step finds for context nodes in document order, in document order.
    fn step(self, items: Items<'a, T>, step: &'a Step) -> Result<Items<'a, T>, Failure<T>> {
        let tree = self.tree;
        Ok(match step.method {
            Method::Concatenate => self.concatenate(items, step),
            Method::Merge => {
                let open = move |item: &Found<T>| self.find(item, step);
                Box::new(MergeNested::new(tree, items, open))
            }
            // Merged, because an attribute passes `node()` and belongs before the descendants of
            // an ancestor that follow it.
            Method::Outermost => {
                let open = move |item: &Found<T>| self.find(item, step);
                Box::new(MergeNested::new(tree, order::outermost(tree, items), open))
            }
            Method::FirstToEnd => self.concatenate(order::first_to_end(tree, items)?, step),
            Method::LastToStart => {
                let last = order::last::<T>(items).into_iter();
                order::sort(tree, self.concatenate(Box::new(last), step))?
            }
            Method::OneOfEachParent => {
                let last = step.axis == Axis::PrecedingSibling;
                let items = order::one_of_each_parent(tree, items, last)?;
                order::sort(tree, self.concatenate(items, step))?
            }
            Method::Sort => order::sort(tree, self.concatenate(items, step))?,
        })
    }

    /// Returns what a step finds for each context node, one after the other. The results of a
    /// reverse axis are turned round, so that what is sorted later consists of long sorted runs.
    fn concatenate(self, items: Items<'a, T>, step: &'a Step) -> Items<'a, T> {
        let turn = step.method != Method::Concatenate && step.axis.is_reverse();
        let from_each = items.map(move |item| {
            let found = self.find(&item?, step)?;
            if !turn {
                return Ok(found);
            }
            let mut found: Vec<_> = found.collect::<Result<_, _>>()?;
            found.reverse();
            Ok(Box::new(found.into_iter().map(Ok)) as Items<'a, T>)
        });
        Box::new(
            from_each.flat_map(|found| {
                found.unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
            }),
        )
    }

    /// Returns what a step finds for one context node, in the order of the axis.
    fn find(self, item: &Found<T>, step: &'a Step) -> Result<Items<'a, T>, Failure<T>> {
        let items = match self.found_by_tree(item, step)? {
            Some(items) => items,
            None => self.walked(item, step)?,
        };
        self.filter_all(items, &step.predicates)
    }

    fn walked(self, item: &Found<T>, step: &'a Step) -> Result<Items<'a, T>, Failure<T>> {
        let items = axes::axis(self.tree, step.axis, item)?;
        if step.test == NodeTest::Any {
            return Ok(items);
        }
        let test = move |item: Result<Found<T>, Failure<T>>| match item {
            Ok(item) => match axes::passes(self.tree, step.axis, &step.test, &item) {
                Ok(passes) => passes.then_some(Ok(item)),
                Err(error) => Some(Err(error)),
            },
            error => Some(error),
        };
        Ok(Box::new(items.filter_map(test)))
    }

    /// Returns what the tree finds by itself, from an index or in one scan.
    fn found_by_tree(
        self,
        item: &Found<T>,
        step: &'a Step,
    ) -> Result<Option<Items<'a, T>>, Failure<T>> {
        let Item::Node(node) = item else { return Ok(None) };
        let mut found = self.indexed(node, step)?;
        if found.is_none()
            && let Some((axis, test)) = axes::as_step(step.axis, &step.test)
        {
            found = self.tree.step(node, axis, test)?;
        }
        let Some(found) = found else { return Ok(None) };
        let found = axes::nodes::<T>(found);
        if step.axis == Axis::DescendantOrSelf
            && axes::passes(self.tree, step.axis, &step.test, item)?
        {
            return Ok(Some(Box::new(std::iter::once(Ok(item.clone())).chain(found))));
        }
        Ok(Some(found))
    }

    /// The answer of an index of element names, if the step asks for one and the tree has it.
    fn indexed(self, node: &T::Node, step: &'a Step) -> Result<Option<Indexed<'a, T>>, Failure<T>> {
        let NodeTest::Name(name) = &step.test else { return Ok(None) };
        let is_below = matches!(step.axis, Axis::Descendant | Axis::DescendantOrSelf);
        if !self.environment.uses_indexes() || !is_below {
            return Ok(None);
        }
        Ok(self.tree.elements_below(node, name)?)
    }

    fn filter_all(
        self,
        mut items: Items<'a, T>,
        predicates: &'a [Predicate],
    ) -> Result<Items<'a, T>, Failure<T>> {
        for (index, predicate) in predicates.iter().enumerate() {
            items = self.filter(items, predicate)?;
            if index % PIPELINE == PIPELINE - 1 {
                items = collect::<T>(items)?;
            }
        }
        Ok(items)
    }

    /// Returns the nodes for which a predicate holds; positions count in the order given.
    fn filter(
        self,
        items: Items<'a, T>,
        predicate: &'a Predicate,
    ) -> Result<Items<'a, T>, Failure<T>> {
        Ok(match predicate.kind {
            PredicateKind::Index(0) => Box::new(std::iter::empty()),
            PredicateKind::Index(position) => Box::new(order::nth::<T>(items, position)),
            PredicateKind::Last => {
                let mut pending = Some(items);
                Box::new(std::iter::from_fn(move || order::last::<T>(pending.take()?)))
            }
            PredicateKind::Boolean | PredicateKind::Position => self.holding(items, predicate, 0),
            PredicateKind::Size => {
                let collected: Vec<_> = items.collect::<Result<_, _>>()?;
                let size = collected.len();
                self.holding(Box::new(collected.into_iter().map(Ok)), predicate, size)
            }
        })
    }

    fn holding(self, items: Items<'a, T>, predicate: &'a Predicate, size: usize) -> Items<'a, T> {
        let mut position = 0;
        Box::new(items.filter_map(move |item| {
            let item = match item {
                Ok(item) => item,
                error => return Some(error),
            };
            position += 1;
            let context = Context { item, position, size };
            match self.holds(&predicate.expr, &context) {
                Ok(holds) => holds.then_some(Ok(context.item)),
                Err(error) => Some(Err(error)),
            }
        }))
    }

    /// A number holds at the position that it names, any other value if it is true as a boolean.
    fn holds(self, expr: &'a Expr, context: &Context<T::Node>) -> Result<bool, Failure<T>> {
        match self.eval(expr, context)? {
            Lazy::Number(number) => {
                Ok(number.partial_cmp(&(context.position as f64)) == Some(Ordering::Equal))
            }
            value => Self::boolean_of(value),
        }
    }
}
