//! How statements are run, worked out once for each text.
//!
//! What is read and how is worked out by [`join`](super::join). Here it is decided what becomes
//! of the rows. They come in the order of the first table's tree; where that is not what ORDER BY
//! says, they are sorted. Otherwise LIMIT ends the reading, and so does the first row for one MIN
//! or MAX.

use std::sync::Arc;

use super::ast::{
    Aggregate, Delete, Expression, Function, Insert, Name, Order, Parsed, Predicate, Select,
    Source, Update,
};
use super::catalog::{Catalog, Relation};
use super::error::SqlError;
use super::join::Reading;
use super::parse::parse;
use super::scope::Scope;

/// What is done for a statement.
pub(super) enum Plan {
    Select(Selecting),
    Update(Updating),
    Insert(Inserting),
    Delete(Deleting),
}

pub(super) struct Selecting {
    pub(super) reading: Reading,
    pub(super) grouping: Option<Grouping>,
    pub(super) output: Output,
}

pub(super) struct Updating {
    pub(super) reading: Reading,
    pub(super) relation: Arc<Relation>,
    /// Columns by place, and what becomes of them.
    pub(super) set: Vec<(usize, Expression<usize>)>,
    /// Whether the key may change.
    pub(super) changes_key: bool,
    /// The indexes whose entries may change.
    pub(super) indexes: Vec<usize>,
}

pub(super) struct Inserting {
    pub(super) relation: Arc<Relation>,
    /// For each row an expression for each column that has one.
    pub(super) rows: Vec<Vec<Option<Expression<usize>>>>,
}

pub(super) struct Deleting {
    pub(super) reading: Reading,
    pub(super) relation: Arc<Relation>,
}

/// Rows become groups: a row each of what it is grouped by, then of the aggregates.
pub(super) struct Grouping {
    pub(super) by: Vec<Expression<usize>>,
    pub(super) aggregates: Vec<Aggregate<usize>>,
    /// The first value is the aggregate's.
    pub(super) takes_first: bool,
}

/// What becomes of the rows, or of the groups.
pub(super) struct Output {
    pub(super) items: Vec<Expression<usize>>,
    /// Empty when rows come as they should.
    pub(super) order: Vec<Order<usize>>,
    pub(super) limit: Option<Expression<usize>>,
}

/// The plan of a statement.
pub(super) fn plan(catalog: &Catalog, sql: &str) -> Result<Plan, SqlError> {
    Ok(match parse(sql)? {
        Parsed::Select(select) => Plan::Select(plan_select(catalog, &select)?),
        Parsed::Update(update) => Plan::Update(plan_update(catalog, &update)?),
        Parsed::Insert(insert) => Plan::Insert(plan_insert(catalog, &insert)?),
        Parsed::Delete(delete) => Plan::Delete(plan_delete(catalog, &delete)?),
    })
}

fn plan_select(catalog: &Catalog, select: &Select) -> Result<Selecting, SqlError> {
    let scope = Scope::new(catalog, &select.from)?;
    let predicates = scope.predicates(&select.filter)?;
    let mut items = Vec::new();
    for item in &select.items {
        items.push(scope.expression(&item.expression)?);
    }
    let mut order = Vec::new();
    for by in &select.order_by {
        let expression = scope.expression(without_alias(select, &by.expression))?;
        order.push(Order { expression, is_descending: by.is_descending });
    }
    let mut by = Vec::new();
    for expression in &select.group_by {
        by.push(scope.scalar(expression, "GROUP BY")?);
    }
    let limit = match &select.limit {
        Some(limit) => Some(Scope { tables: Vec::new() }.scalar(limit, "LIMIT")?),
        None => None,
    };
    let mut shown = items.iter().chain(order.iter().map(|by| &by.expression));
    let is_grouped = !by.is_empty() || shown.any(Expression::has_aggregate);

    let extreme = if is_grouped { extreme(&items, &by) } else { None };
    let wanted_order = if is_grouped { extreme.map(|one| vec![one]) } else { slots(&order) };
    let mut reading = Reading::plan(&scope, &predicates, wanted_order.as_deref());
    reading.is_for_update = select.is_for_update;
    let is_ordered = reading.is_ordered();
    if is_ordered && !is_grouped {
        order.clear();
    }
    for expression in items.iter().chain(&by).chain(order.iter().map(|by| &by.expression)) {
        reading.want(expression);
    }
    let mut grouping = None;
    if is_grouped {
        let mut groups =
            Grouping { by, aggregates: Vec::new(), takes_first: extreme.is_some() && is_ordered };
        for expression in items.iter_mut().chain(order.iter_mut().map(|by| &mut by.expression)) {
            *expression = groups.take(&scope, expression)?;
        }
        grouping = Some(groups);
    }
    Ok(Selecting { reading, grouping, output: Output { items, order, limit } })
}

/// What ORDER BY means: an item, if that is its name.
fn without_alias<'s>(select: &'s Select, by: &'s Expression<Name>) -> &'s Expression<Name> {
    let Expression::Column(Name { table: None, column, .. }) = by else { return by };
    let named = |alias: &Option<String>| alias.as_ref() == Some(column);
    select.items.iter().find(|item| named(&item.alias)).map_or(by, |item| &item.expression)
}

/// The slots to order by and whether downward, where all are columns.
fn slots(order: &[Order<usize>]) -> Option<Vec<(usize, bool)>> {
    order
        .iter()
        .map(|by| match by.expression {
            Expression::Column(slot) => Some((slot, by.is_descending)),
            _ => None,
        })
        .collect()
}

/// The column whose lowest or highest value is all that is asked for, and whether the highest.
fn extreme(items: &[Expression<usize>], by: &[Expression<usize>]) -> Option<(usize, bool)> {
    let ([Expression::Aggregate(aggregate)], []) = (items, by) else { return None };
    match (aggregate.function, &aggregate.argument) {
        (Function::Min, Some(Expression::Column(slot))) => Some((*slot, false)),
        (Function::Max, Some(Expression::Column(slot))) => Some((*slot, true)),
        _ => None,
    }
}

impl Grouping {
    /// An expression over a group's row in the place of one over its rows.
    fn take(
        &mut self,
        scope: &Scope,
        expression: &Expression<usize>,
    ) -> Result<Expression<usize>, SqlError> {
        if let Some(place) = self.by.iter().position(|by| by == expression) {
            return Ok(Expression::Column(place));
        }
        Ok(match expression {
            Expression::Aggregate(aggregate) => {
                let known = self.aggregates.iter().position(|known| *known == **aggregate);
                let place = known.unwrap_or_else(|| {
                    self.aggregates.push((**aggregate).clone());
                    self.aggregates.len() - 1
                });
                Expression::Column(self.by.len() + place)
            }
            Expression::Arithmetic(left, operator, right) => Expression::Arithmetic(
                Box::new(self.take(scope, left)?),
                *operator,
                Box::new(self.take(scope, right)?),
            ),
            Expression::Column(slot) => {
                let table = &scope.tables[scope.table_of(*slot)];
                let what = table.relation.columns[slot - table.first].name.to_owned();
                return Err(SqlError::NotGrouped { what });
            }
            other => other.clone(),
        })
    }
}

fn plan_update(catalog: &Catalog, update: &Update) -> Result<Updating, SqlError> {
    let (scope, reading) = plan_change(catalog, &update.table, &update.filter)?;
    let relation = Arc::clone(&scope.tables[0].relation);
    let mut set = Vec::new();
    for (name, value) in &update.set {
        set.push((scope.slot(name)?, scope.scalar(value, "SET")?));
    }
    let is_set = |column: &usize| set.iter().any(|(place, _)| place == column);
    let changes_key = relation.key.iter().any(is_set);
    let has_changed =
        |index: &usize| changes_key || relation.indexes[*index].columns.iter().any(is_set);
    let indexes = (0..relation.indexes.len()).filter(has_changed).collect();
    Ok(Updating { reading, relation, set, changes_key, indexes })
}

fn plan_delete(catalog: &Catalog, delete: &Delete) -> Result<Deleting, SqlError> {
    let (scope, reading) = plan_change(catalog, &delete.table, &delete.filter)?;
    Ok(Deleting { reading, relation: Arc::clone(&scope.tables[0].relation) })
}

/// The rows that are to be changed, with all their columns.
fn plan_change(
    catalog: &Catalog,
    table: &Source,
    filter: &[Predicate<Name>],
) -> Result<(Scope, Reading), SqlError> {
    let scope = Scope::new(catalog, std::slice::from_ref(table))?;
    let mut reading = Reading::plan(&scope, &scope.predicates(filter)?, None);
    reading.is_for_update = true;
    for step in &mut reading.steps {
        step.wanted.fill(true);
    }
    Ok((scope, reading))
}

fn plan_insert(catalog: &Catalog, insert: &Insert) -> Result<Inserting, SqlError> {
    let scope = Scope::new(catalog, std::slice::from_ref(&insert.table))?;
    let relation = Arc::clone(&scope.tables[0].relation);
    let places: Vec<usize> =
        insert.columns.iter().map(|name| scope.slot(name)).collect::<Result<_, _>>()?;
    let without_columns = Scope { tables: Vec::new() };
    let mut rows = Vec::new();
    for values in &insert.rows {
        let mut row = vec![None; relation.columns.len()];
        for (&place, value) in places.iter().zip(values) {
            row[place] = Some(without_columns.scalar(value, "VALUES")?);
        }
        rows.push(row);
    }
    Ok(Inserting { relation, rows })
}
