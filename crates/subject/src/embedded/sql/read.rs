//! Rows out of tables, as a plan says.
//!
//! One row is kept for all tables; each table writes its columns into its slots. So a row is made
//! of what was read last of each.
//!
//! A long list of `IN` is made a set before the first row is read.

use std::collections::{HashMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::rc::Rc;

use tidegate_engine::{Direction, Transaction, TreeHandle};
use tidegate_runtime::work::{self, Operation};
use tidegate_workload::Value;

use super::access::{End, Range};
use super::ast::{Expression, Predicate};
use super::catalog::Relation;
use super::encode::{RowReader, append_key, behind, read_key};
use super::error::SqlError;
use super::evaluate::{Given, own};
use super::join::{Hash, Reading, Step};

/// Given each row, with the key of the table read last; says whether to go on.
pub(super) type Visit<'v> =
    dyn FnMut(&[Value<'static>], &[u8]) -> Result<ControlFlow<()>, SqlError> + 'v;

/// Rows of a table that is read once, by the values that they are joined by.
type Kept = HashMap<Vec<u8>, Vec<Vec<Value<'static>>>>;

/// Values of an `IN` from which on they are made a set.
const LIST_MIN: usize = 10;

/// Part of a tree.
enum Part {
    Key(Vec<u8>),
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

pub(super) struct Reader<'r> {
    transaction: &'r mut Transaction,
    reading: &'r Reading,
    given: Given<'r>,
    row: Vec<Value<'static>>,
    /// The key of the row of the table read last.
    key: Vec<u8>,
    /// For each table, once it is read.
    kept: Vec<Option<Rc<Kept>>>,
    /// For each table and each of its conditions, the list of its `IN` as keys, if it is long.
    lists: Vec<Vec<Option<HashSet<Vec<u8>>>>>,
}

impl<'r> Reader<'r> {
    pub(super) fn new(
        transaction: &'r mut Transaction,
        reading: &'r Reading,
        given: Given<'r>,
    ) -> Result<Self, SqlError> {
        let lists = reading.steps.iter().map(|step| lists(&step.filter, given));
        Ok(Reader {
            lists: lists.collect::<Result<_, SqlError>>()?,
            transaction,
            reading,
            given,
            row: vec![Value::Null; reading.width],
            key: Vec::new(),
            kept: vec![None; reading.steps.len()],
        })
    }

    /// Reads all rows.
    pub(super) fn read(&mut self, visit: &mut Visit<'_>) -> Result<(), SqlError> {
        self.table(0, visit).map(drop)
    }

    /// Reads the tables from this one on, with those before it as they are.
    fn table(&mut self, depth: usize, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, SqlError> {
        let reading = self.reading;
        let Some(step) = reading.steps.get(depth) else { return visit(&self.row, &self.key) };
        match &step.hash {
            Some(hash) => self.kept_rows(step, hash, depth, visit),
            None => self.rows(step, &mut |reader| {
                if !reader.holds_at(depth, &step.filter)? {
                    return Ok(ControlFlow::Continue(()));
                }
                reader.table(depth + 1, visit)
            }),
        }
    }

    fn kept_rows(
        &mut self,
        step: &Step,
        hash: &Hash,
        depth: usize,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, SqlError> {
        let kept = match &self.kept[depth] {
            Some(kept) => Rc::clone(kept),
            None => Rc::new(self.keep(step, hash)?),
        };
        self.kept[depth] = Some(Rc::clone(&kept));
        let Some(key) = self.hash_key(hash.keys.iter().map(|(_, before)| before))? else {
            return Ok(ControlFlow::Continue(()));
        };
        for cells in kept.get(&key).into_iter().flatten() {
            self.row[step.first..step.first + cells.len()].clone_from_slice(cells);
            if self.holds_at(depth, &step.filter)? && self.table(depth + 1, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads a table once.
    fn keep(&mut self, step: &Step, hash: &Hash) -> Result<Kept, SqlError> {
        let mut kept = Kept::new();
        let own = step.first..step.first + step.relation.columns.len();
        let _ = self.rows(step, &mut |reader| {
            if reader.holds(&hash.filter)?
                && let Some(key) = reader.hash_key(hash.keys.iter().map(|(own, _)| own))?
            {
                kept.entry(key).or_default().push(reader.row[own.clone()].to_vec());
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(kept)
    }

    /// The values of expressions as one key; `None` when one is NULL, which equals nothing.
    fn hash_key<'e>(
        &self,
        expressions: impl Iterator<Item = &'e Expression<usize>>,
    ) -> Result<Option<Vec<u8>>, SqlError> {
        let mut key = Vec::new();
        for expression in expressions {
            let value = self.given.evaluate(expression, &self.row)?;
            if value == Value::Null {
                return Ok(None);
            }
            append_key(&mut key, &value);
        }
        Ok(Some(key))
    }

    /// Whether the conditions of a table hold.
    fn holds_at(&self, depth: usize, filter: &[Predicate<usize>]) -> Result<bool, SqlError> {
        for (predicate, list) in filter.iter().zip(&self.lists[depth]) {
            let holds = match (predicate, list) {
                (Predicate::In(left, _), Some(list)) => {
                    let key = self.hash_key(std::iter::once(left))?;
                    key.is_some_and(|key| list.contains(&key))
                }
                _ => self.given.holds(predicate, &self.row)?,
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn holds(&self, filter: &[Predicate<usize>]) -> Result<bool, SqlError> {
        for predicate in filter {
            if !self.given.holds(predicate, &self.row)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Goes over the rows of one table.
    fn rows(
        &mut self,
        step: &Step,
        each: &mut dyn FnMut(&mut Self) -> Result<ControlFlow<()>, SqlError>,
    ) -> Result<ControlFlow<()>, SqlError> {
        let tree = step.index().map_or(&step.relation.tree, |index| &index.tree);
        for part in self.parts(step)? {
            let flow = match part {
                Part::Key(key) => match self.get(tree, &key)? {
                    Some(value) => self.entry(step, &key, &value, each)?,
                    None => ControlFlow::Continue(()),
                },
                Part::Range(low, high) => self.range(step, tree, (low, high), each)?,
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn range(
        &mut self,
        step: &Step,
        tree: &TreeHandle,
        range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        each: &mut dyn FnMut(&mut Self) -> Result<ControlFlow<()>, SqlError>,
    ) -> Result<ControlFlow<()>, SqlError> {
        let bounds = (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice));
        let direction = step.access.direction;
        let mut cursor = if self.reading.is_for_update {
            self.transaction.cursor_for_update(tree, bounds, direction)?
        } else {
            self.transaction.cursor(tree, bounds, direction)?
        };
        while let Some((key, value)) = cursor.next(self.transaction)? {
            if self.entry(step, key, value, each)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Takes an entry of the tree that is read, and its row if that is another's.
    fn entry(
        &mut self,
        step: &Step,
        key: &[u8],
        value: &[u8],
        each: &mut dyn FnMut(&mut Self) -> Result<ControlFlow<()>, SqlError>,
    ) -> Result<ControlFlow<()>, SqlError> {
        let relation = &step.relation;
        work::count(Operation::Row, 1);
        let (key, found) = match step.index() {
            None => (key, None),
            Some(index) => {
                let key = index.row_of(key, value).ok_or_else(|| relation.damaged())?;
                let Some(value) = self.get(&relation.tree, key)? else {
                    // Below repeatable read it may have gone since.
                    return Ok(ControlFlow::Continue(()));
                };
                work::count(Operation::Row, 1);
                (key, Some(value))
            }
        };
        let is_row = read_row(&mut self.row, step, key, found.as_deref().unwrap_or(value));
        is_row.ok_or_else(|| relation.damaged())?;
        self.key.clear();
        self.key.extend_from_slice(key);
        each(self)
    }

    fn get(&mut self, tree: &TreeHandle, key: &[u8]) -> Result<Option<Vec<u8>>, SqlError> {
        Ok(if self.reading.is_for_update {
            self.transaction.get_for_update(tree, key)?
        } else {
            self.transaction.get(tree, key)?
        })
    }

    /// The parts of the tree that have to be looked at, in ascending order.
    fn parts(&self, step: &Step) -> Result<Vec<Part>, SqlError> {
        let mut prefixes = vec![Vec::new()];
        for (column, values) in &step.access.equal {
            let mut longer = Vec::with_capacity(prefixes.len() * values.len());
            for value in values {
                let Some(value) = self.key_value(&step.relation, *column, value)? else { continue };
                for prefix in &prefixes {
                    let mut prefix = prefix.clone();
                    append_key(&mut prefix, &value);
                    longer.push(prefix);
                }
            }
            prefixes = longer;
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        let mut parts = Vec::with_capacity(prefixes.len());
        for prefix in prefixes {
            if step.access.is_point {
                parts.push(Part::Key(prefix));
                continue;
            }
            match &step.access.range {
                Some(range) => parts.extend(self.bounds(&step.relation, range, &prefix)?),
                None => parts.push(Part::Range(Bound::Included(prefix.clone()), end(prefix))),
            }
        }
        if step.access.direction == Direction::Down {
            parts.reverse();
        }
        Ok(parts)
    }

    /// A range of the column behind a prefix; `None` when nothing can be in it.
    fn bounds(
        &self,
        relation: &Relation,
        range: &Range,
        prefix: &[u8],
    ) -> Result<Option<Part>, SqlError> {
        let key = |value: &Value<'_>| {
            let mut key = prefix.to_vec();
            append_key(&mut key, value);
            key
        };
        // NULL is in no range, and comes first.
        let mut low = behind(key(&Value::Null));
        let mut high = behind(prefix.to_vec());
        if let Some(End { value, is_included }) = &range.low {
            let Some(value) = self.key_value(relation, range.column, value)? else {
                return Ok(None);
            };
            low = if *is_included { Some(key(&value)) } else { behind(key(&value)) };
        }
        if let Some(End { value, is_included }) = &range.high {
            let Some(value) = self.key_value(relation, range.column, value)? else {
                return Ok(None);
            };
            high = if *is_included { behind(key(&value)) } else { Some(key(&value)) };
        }
        let Some(low) = low else { return Ok(None) };
        if high.as_ref().is_some_and(|high| low >= *high) {
            return Ok(None);
        }
        let high = high.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(Some(Part::Range(Bound::Included(low), high)))
    }

    /// A value to look for in the key; `None` for NULL, which nothing is equal to.
    fn key_value<'v>(
        &'v self,
        relation: &Relation,
        column: usize,
        value: &'v Expression<usize>,
    ) -> Result<Option<Value<'v>>, SqlError> {
        let value = self.given.evaluate(value, &self.row)?;
        let value = super::encode::comparable(value, &relation.columns[column])?;
        Ok((value != Value::Null).then_some(value))
    }
}

/// The long lists of values among conditions.
fn lists(
    filter: &[Predicate<usize>],
    given: Given<'_>,
) -> Result<Vec<Option<HashSet<Vec<u8>>>>, SqlError> {
    let list = |predicate: &Predicate<usize>| {
        let Predicate::In(_, list) = predicate else { return Ok(None) };
        let mut has_columns = false;
        for value in list {
            value.for_each_column(&mut |_| has_columns = true);
        }
        if has_columns || list.len() < LIST_MIN {
            return Ok(None);
        }
        let mut keys = HashSet::with_capacity(list.len());
        for value in list {
            let mut key = Vec::new();
            match given.evaluate(value, &[])? {
                Value::Null => continue,
                value => append_key(&mut key, &value),
            }
            keys.insert(key);
        }
        Ok(Some(keys))
    };
    filter.iter().map(list).collect()
}

/// Behind all keys that begin so.
fn end(prefix: Vec<u8>) -> Bound<Vec<u8>> {
    behind(prefix).map_or(Bound::Unbounded, Bound::Excluded)
}

/// Reads a row's wanted columns into their slots; `None` when it is none.
fn read_row(row: &mut [Value<'static>], step: &Step, mut key: &[u8], value: &[u8]) -> Option<()> {
    let relation = &step.relation;
    for &place in &relation.key {
        let cell;
        (cell, key) = read_key(key)?;
        if step.wanted[place] {
            row[step.first + place] = cell;
        }
    }
    let wanted_last = relation.rest.iter().rposition(|&place| step.wanted[place]);
    let values = relation.key.len() + wanted_last.map_or(0, |last| last + 1);
    work::count(Operation::Value, values as u64);
    let Some(wanted_last) = wanted_last else { return Some(()) };
    let mut cells = RowReader::new(value, relation.rest.len())?;
    let mut texts = 0;
    for &place in &relation.rest[..=wanted_last] {
        let cell = cells.next(relation.columns[place].kind)?;
        if step.wanted[place] {
            texts += u64::from(matches!(cell, Value::Text(_)));
            row[step.first + place] = own(&cell);
        }
    }
    work::count(Operation::Text, texts);
    Some(())
}
