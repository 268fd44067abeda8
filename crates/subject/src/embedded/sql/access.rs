//! How one table is read, while what comes before it is known.
//!
//! # Mechanism
//! A path is the columns in whose order a tree is kept: the primary key, or an index's columns and
//! behind them the primary key's. As many of a path's first columns as are given a value by `=` (or
//! several by `IN`) make the beginning of a key; the next column may be given a range. What is left
//! is read from there, in the order of the path's further columns, up or down. Whole keys of rows
//! that are told apart are looked up one by one.
//!
//! Each way has a price, a guess at the rows that it reads without knowing the tables:
//!
//! | way | price |
//! | --- | --- |
//! | whole keys that are told apart | 1 for each |
//! | all columns of an index | 10 |
//! | the first n columns, and a range in the next | 30 / n |
//! | the first n columns | 100 / n |
//! | a range in the first column: with both ends, with one | 300, 1,000 |
//! | all rows | 10,000 |
//!
//! A price is also the rows that are looked up in the next table, but for a tenth with each further
//! condition that they are to fulfil.
//!
//! Among equals the one that gives the order wanted is taken, then the one with more columns, then
//! the primary key, which has the row at hand.
//!
//! # Example
//! `orders` has the key (w, d, o) and an index on (w, d, c). `WHERE w = ? AND d = ? AND c = ? ORDER
//! BY o DESC LIMIT 1`: the index costs 10, the key 50. The index's path is (w, d, c, w, d, o); with
//! w, d, c, and w, d again given, the next is o, so it is read downward, and one entry will do.

use super::ast::{Comparison, Expression, Predicate};
use super::catalog::Relation;
use super::scope::Scope;
use tidegate_engine::Direction;

/// A way to read a table.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// The index; `None` for the table's own tree.
    pub(super) index: Option<usize>,
    /// The columns that are given values, by place in the table, and for each its values; at most
    /// one has several.
    pub(super) equal: Vec<(usize, Vec<Expression<usize>>)>,
    /// The column behind them that is given a range.
    pub(super) range: Option<Range>,
    /// They make whole keys of rows that are told apart.
    pub(super) is_point: bool,
    pub(super) direction: Direction,
    /// Whether rows come in the order wanted.
    pub(super) is_ordered: bool,
    /// What values are taken from other tables.
    pub(super) is_dependent: bool,
    pub(super) price: u64,
    /// The conditions that it makes use of, by place; first those with `=` and `IN`.
    pub(super) used: Vec<usize>,
}

impl Access {
    /// The conditions that every row it reads fulfils. What an index says of a row may be out of
    /// date at the lower isolation levels, so it counts for nothing.
    pub(super) fn fulfilled(&self) -> &[usize] {
        let count = if self.index.is_none() { self.equal.len() } else { 0 };
        &self.used[..count]
    }

    /// Whether columns are among the values it takes: those of other tables.
    fn has_columns(&self) -> bool {
        let ends = self.range.iter().flat_map(|range| range.low.iter().chain(&range.high));
        let values = self.equal.iter().flat_map(|(_, values)| values);
        let mut columns = 0;
        for value in values.chain(ends.map(|end| &end.value)) {
            value.for_each_column(&mut |_| columns += 1);
        }
        columns > 0
    }
}

/// The range of a column; an end is left out or in.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) column: usize,
    pub(super) low: Option<End>,
    pub(super) high: Option<End>,
}

#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) value: Expression<usize>,
    pub(super) is_included: bool,
}

/// What is known when the way is chosen.
pub(super) struct Known<'k> {
    pub(super) scope: &'k Scope,
    pub(super) predicates: &'k [Predicate<usize>],
    /// The table, by its place in the scope.
    pub(super) table: usize,
    /// Tables that are read before it.
    pub(super) before: &'k [usize],
    /// Slots that the rows should be ordered by, and whether downward.
    pub(super) order: Option<&'k [(usize, bool)]>,
}

/// The cheapest way.
pub(super) fn choose(known: &Known<'_>) -> Access {
    let relation = known.relation();
    let mut best = known.along(None, &relation.key, relation.key.len());
    for (number, index) in relation.indexes.iter().enumerate() {
        let mut path = index.columns.clone();
        if !index.is_unique {
            path.extend(&relation.key);
        }
        let access = known.along(Some(number), &path, index.columns.len());
        let rank =
            |access: &Access| (access.price, !access.is_ordered, usize::MAX - access.equal.len());
        if rank(&access) < rank(&best) {
            best = access;
        }
    }
    best
}

impl Known<'_> {
    fn relation(&self) -> &Relation {
        &self.scope.tables[self.table].relation
    }

    /// The way along a path, the first `own` columns of which are the key's or the index's own.
    fn along(&self, index: Option<usize>, path: &[usize], own: usize) -> Access {
        let mut access = Access {
            index,
            equal: Vec::new(),
            range: None,
            is_point: false,
            direction: Direction::Up,
            is_ordered: false,
            is_dependent: false,
            price: 0,
            used: Vec::new(),
        };
        let mut has_several = false;
        for &column in path {
            let Some((number, values)) = self.equal(column, !has_several) else { break };
            has_several |= values.len() > 1;
            access.equal.push((column, values));
            access.used.push(number);
        }
        let is_told_apart = index.is_none_or(|index| self.relation().indexes[index].is_unique);
        access.is_point = is_told_apart && own > 0 && access.equal.len() == own;
        if let Some(&column) = path.get(access.equal.len()) {
            access.range = self.range(column, &mut access.used);
        }
        access.is_dependent = access.has_columns();
        access.price = price(&access, own);
        self.set_order(&mut access, path, has_several);
        access
    }

    /// The condition that gives a column its values, and these.
    fn equal(
        &self,
        column: usize,
        may_be_several: bool,
    ) -> Option<(usize, Vec<Expression<usize>>)> {
        let one = self.predicates.iter().enumerate().find_map(|(number, predicate)| {
            let (comparison, value) = self.compared(predicate, column)?;
            (comparison == Comparison::Equal).then(|| (number, vec![value.clone()]))
        });
        let several = || {
            self.predicates.iter().enumerate().find_map(|(number, predicate)| {
                let Predicate::In(left, list) = predicate else { return None };
                let is_usable = self.is_column(left, column)
                    && (may_be_several || list.len() == 1)
                    && list.iter().all(|value| self.is_known(value));
                is_usable.then(|| (number, list.clone()))
            })
        };
        one.or_else(several)
    }

    /// The range that conditions, which are added to `used`, give a column.
    fn range(&self, column: usize, used: &mut Vec<usize>) -> Option<Range> {
        let mut range = Range { column, low: None, high: None };
        for (number, predicate) in self.predicates.iter().enumerate() {
            let Some((comparison, value)) = self.compared(predicate, column) else { continue };
            let end = |is_included| Some(End { value: value.clone(), is_included });
            match comparison {
                Comparison::Greater if range.low.is_none() => range.low = end(false),
                Comparison::GreaterOrEqual if range.low.is_none() => range.low = end(true),
                Comparison::Less if range.high.is_none() => range.high = end(false),
                Comparison::LessOrEqual if range.high.is_none() => range.high = end(true),
                _ => continue,
            }
            used.push(number);
        }
        (range.low.is_some() || range.high.is_some()).then_some(range)
    }

    /// What a condition compares a column with, if that is known.
    fn compared<'p>(
        &self,
        predicate: &'p Predicate<usize>,
        column: usize,
    ) -> Option<(Comparison, &'p Expression<usize>)> {
        let Predicate::Compare(left, comparison, right) = predicate else { return None };
        if self.is_column(left, column) && self.is_known(right) {
            Some((*comparison, right))
        } else if self.is_column(right, column) && self.is_known(left) {
            Some((comparison.turned(), left))
        } else {
            None
        }
    }

    fn is_column(&self, expression: &Expression<usize>, column: usize) -> bool {
        *expression == Expression::Column(self.scope.tables[self.table].first + column)
    }

    /// Whether a value needs no other tables than those that are read before.
    fn is_known(&self, expression: &Expression<usize>) -> bool {
        let mut is_known = true;
        expression.for_each_column(&mut |slot| {
            is_known &= self.before.contains(&self.scope.table_of(*slot));
        });
        is_known
    }

    /// Which way the rows are to be read, and whether they come in the order wanted then.
    fn set_order(&self, access: &mut Access, path: &[usize], has_several: bool) {
        let Some(order) = self.order else { return };
        if has_several {
            return;
        }
        let first = self.scope.tables[self.table].first;
        let is_given = |column: usize| access.equal.iter().any(|(given, _)| *given == column);
        let mut rest = path.iter().filter(|&&column| !is_given(column));
        let mut direction = None;
        for &(slot, is_down) in order {
            if self.scope.table_of(slot) != self.table {
                return;
            }
            if is_given(slot - first) || access.is_point {
                continue;
            }
            let is_next = rest.next() == Some(&(slot - first));
            if !is_next || direction.is_some_and(|before| before != is_down) {
                return;
            }
            direction = Some(is_down);
        }
        access.is_ordered = true;
        if direction == Some(true) {
            access.direction = Direction::Down;
        }
    }
}

fn price(access: &Access, own: usize) -> u64 {
    const ALL: u64 = 10_000;
    let keys = access.equal.iter().map(|(_, values)| values.len() as u64).max().unwrap_or(1);
    let columns = access.equal.len().max(1) as u64;
    let of_one = match (&access.range, access.equal.len()) {
        _ if access.is_point => 1,
        (_, equal) if equal > 0 && equal >= own => 10,
        (Some(_), 1..) => 30 / columns,
        (None, 1..) => 100 / columns,
        (Some(Range { low: Some(_), high: Some(_), .. }), 0) => 300,
        (Some(_), 0) => 1_000,
        (None, 0) => ALL,
    };
    // Reading all rows and comparing each with a long list is never better.
    (of_one * keys).min(if access.equal.is_empty() { ALL } else { ALL - 1 })
}
