//! In which order the tables of a statement are read, and how each.
//!
//! # Mechanism
//! The tables are read in nested loops: for each row of the first those of the second that go with
//! it, and so on. Each is read by the cheapest way that what is known by then allows (see
//! [`access`](super::access)). Every table is tried as the first, the next is always the one that
//! is cheapest then, and the cheapest sequence is taken; among equals, that which comes first in
//! the statement. So the tables are joined as written unless another order is better.
//!
//! A table whose way does not depend on those before it would be read again and again for the same
//! rows. It is read once instead, and its rows are kept by the values that they are joined by, in a
//! hash table.
//!
//! A condition is looked at as soon as all its tables have been read, unless the way to the row
//! fulfils it already.
//!
//! # Example
//! `FROM item, author WHERE i_subject = ? AND a_id = i_a_id`, with an index on `i_subject`: item
//! first costs 10 for the index and one lookup of an author for each of 10 rows, 20 in all; author
//! first costs 10,000 for all authors, and item is read once for 10.

use std::sync::Arc;

use super::access::{Access, Known, choose};
use super::ast::{Comparison, Expression, Predicate};
use super::catalog::{Index, Relation};
use super::scope::Scope;

/// What is read, the first table first.
pub(super) struct Reading {
    pub(super) steps: Vec<Step>,
    /// Slots of a row.
    pub(super) width: usize,
    pub(super) is_for_update: bool,
}

/// One table.
pub(super) struct Step {
    pub(super) relation: Arc<Relation>,
    /// The slot of its first column.
    pub(super) first: usize,
    /// For each column whether it is needed.
    pub(super) wanted: Vec<bool>,
    pub(super) access: Access,
    /// Its rows are read once.
    pub(super) hash: Option<Hash>,
    /// What has to hold for a row once this table has been read.
    pub(super) filter: Vec<Predicate<usize>>,
}

/// How the rows of a table that is read once are found again.
pub(super) struct Hash {
    /// What has to hold for a row of it alone.
    pub(super) filter: Vec<Predicate<usize>>,
    /// For each value that the tables are joined by: of this one's row, of the rows before.
    pub(super) keys: Vec<(Expression<usize>, Expression<usize>)>,
}

impl Reading {
    /// The cheapest sequence of tables and the way to each.
    pub(super) fn plan(
        scope: &Scope,
        predicates: &[Predicate<usize>],
        order: Option<&[(usize, bool)]>,
    ) -> Reading {
        let sequences =
            (0..scope.tables.len()).map(|first| sequence(scope, predicates, order, first));
        let best =
            sequences.min_by_key(|(price, _)| *price).map_or_else(Vec::new, |(_, best)| best);
        let mut reading = Reading { steps: Vec::new(), width: scope.width(), is_for_update: false };
        let mut open: Vec<usize> = (0..predicates.len()).collect();
        let mut read = Vec::new();
        for (table, access) in best {
            read.push(table);
            open.retain(|number| !access.fulfilled().contains(number));
            let is_read =
                |number: &usize| tables(scope, &predicates[*number]).all(|of| read.contains(&of));
            let (due, later) = open.into_iter().partition::<Vec<usize>, _>(is_read);
            open = later;
            let due = due.into_iter().map(|number| predicates[number].clone()).collect();
            reading.steps.push(Step::new(scope, table, access, due, reading.steps.is_empty()));
        }
        for predicate in predicates {
            for expression in predicate.expressions() {
                reading.want(expression);
            }
        }
        reading
    }

    /// Whether rows come in the order wanted.
    pub(super) fn is_ordered(&self) -> bool {
        self.steps.first().is_some_and(|step| step.access.is_ordered)
    }

    /// Sees to it that the columns of an expression are read.
    pub(super) fn want(&mut self, expression: &Expression<usize>) {
        expression.for_each_column(&mut |&slot| {
            for step in &mut self.steps {
                let place = slot.checked_sub(step.first);
                if let Some(wanted) = place.and_then(|place| step.wanted.get_mut(place)) {
                    *wanted = true;
                }
            }
        });
    }
}

/// The tables that a condition is about.
fn tables(scope: &Scope, predicate: &Predicate<usize>) -> impl Iterator<Item = usize> + use<> {
    let mut tables = Vec::new();
    for expression in predicate.expressions() {
        expression.for_each_column(&mut |&slot| tables.push(scope.table_of(slot)));
    }
    tables.into_iter()
}

/// A sequence of tables that begins with this one, and its price.
fn sequence(
    scope: &Scope,
    predicates: &[Predicate<usize>],
    order: Option<&[(usize, bool)]>,
    first: usize,
) -> (u64, Vec<(usize, Access)>) {
    let (mut price, mut rows) = (0_u64, 1_u64);
    let mut sequence: Vec<(usize, Access)> = Vec::new();
    let mut left: Vec<usize> = (0..scope.tables.len()).collect();
    while !left.is_empty() {
        let before: Vec<usize> = sequence.iter().map(|(table, _)| *table).collect();
        let is_first = before.is_empty();
        let order = order.filter(|_| is_first);
        let access = |table| choose(&Known { scope, predicates, table, before: &before, order });
        let ways = left.iter().map(|&table| (table, access(table)));
        let (table, access) = ways
            .filter(|(table, _)| !is_first || *table == first)
            .min_by_key(|(_, access)| access.price)
            .expect("the first table is among those left, and later any of them will do");
        let is_read_once = !is_first && !access.is_dependent;
        price = price.saturating_add(if is_read_once {
            access.price
        } else {
            rows.saturating_mul(access.price)
        });
        let further = predicates.iter().enumerate().filter(|(number, predicate)| {
            let mut about = tables(scope, predicate);
            !access.used.contains(number)
                && tables(scope, predicate).any(|of| of == table)
                && about.all(|of| of == table || before.contains(&of))
        });
        rows = rows.saturating_mul(access.price);
        rows = further.fold(rows, |rows, _| rows / 10).max(1);
        left.retain(|other| *other != table);
        sequence.push((table, access));
    }
    (price, sequence)
}

impl Step {
    /// The index that it is read by; `None` for the table's own tree.
    pub(super) fn index(&self) -> Option<&Index> {
        self.access.index.map(|index| &self.relation.indexes[index])
    }

    fn new(
        scope: &Scope,
        table: usize,
        access: Access,
        due: Vec<Predicate<usize>>,
        is_first: bool,
    ) -> Step {
        let scoped = &scope.tables[table];
        let mut step = Step {
            relation: Arc::clone(&scoped.relation),
            first: scoped.first,
            wanted: vec![false; scoped.relation.columns.len()],
            hash: None,
            filter: due,
            access,
        };
        if !is_first && !step.access.is_dependent {
            step.keep_rows(scope, table);
        }
        step
    }

    /// Its rows are to be read once.
    fn keep_rows(&mut self, scope: &Scope, table: usize) {
        let mut hash = Hash { filter: Vec::new(), keys: Vec::new() };
        let is_own = |expression: &Expression<usize>| {
            let (mut own, mut others) = (false, false);
            expression.for_each_column(&mut |&slot| {
                *if scope.table_of(slot) == table { &mut own } else { &mut others } = true;
            });
            (own, others)
        };
        for predicate in std::mem::take(&mut self.filter) {
            if tables(scope, &predicate).all(|of| of == table) {
                hash.filter.push(predicate);
                continue;
            }
            if let Predicate::Compare(left, Comparison::Equal, right) = &predicate {
                match (is_own(left), is_own(right)) {
                    ((true, false), (false, true)) => {
                        hash.keys.push((left.clone(), right.clone()));
                        continue;
                    }
                    ((false, true), (true, false)) => {
                        hash.keys.push((right.clone(), left.clone()));
                        continue;
                    }
                    _ => {}
                }
            }
            self.filter.push(predicate);
        }
        self.hash = Some(hash);
    }
}
