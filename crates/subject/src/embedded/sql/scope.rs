//! What names in a statement mean: a slot of the row that all its tables make together.
//!
//! The columns of the first table have the first slots, then come those of the next.

use std::sync::Arc;

use super::ast::{Expression, Name, Predicate, Source};
use super::catalog::{Catalog, Relation};
use super::error::SqlError;

pub(super) struct Scope {
    pub(super) tables: Vec<Scoped>,
}

/// A table within a statement.
pub(super) struct Scoped {
    alias: String,
    pub(super) relation: Arc<Relation>,
    /// The slot of its first column.
    pub(super) first: usize,
}

impl Scope {
    pub(super) fn new(catalog: &Catalog, sources: &[Source]) -> Result<Self, SqlError> {
        let mut tables: Vec<Scoped> = Vec::new();
        let mut first = 0;
        for source in sources {
            if tables.iter().any(|table| table.alias == source.alias) {
                let found = format!("\"{}\" a second time", source.alias);
                let expected = "another alias for each table";
                return Err(SqlError::NotSupported { expected, found, at: source.at });
            }
            let relation = Arc::clone(catalog.table(source)?);
            let width = relation.columns.len();
            tables.push(Scoped { alias: source.alias.clone(), relation, first });
            first += width;
        }
        Ok(Scope { tables })
    }

    /// How many slots there are.
    pub(super) fn width(&self) -> usize {
        self.tables.iter().map(|table| table.relation.columns.len()).sum()
    }

    /// The table that a slot is of, by its place.
    pub(super) fn table_of(&self, slot: usize) -> usize {
        let table = self.tables.iter().rposition(|table| table.first <= slot);
        table.expect("a slot is a column's, and the first table's begin with 0")
    }

    pub(super) fn slot(&self, name: &Name) -> Result<usize, SqlError> {
        let mut found = None;
        for table in &self.tables {
            if name.table.as_ref().is_some_and(|alias| *alias != table.alias) {
                continue;
            }
            let columns = &table.relation.columns;
            let Some(place) = columns.iter().position(|column| column.name == name.column) else {
                continue;
            };
            if found.replace(table.first + place).is_some() {
                return Err(SqlError::AmbiguousColumn { name: name.column.clone(), at: name.at });
            }
        }
        found.ok_or_else(|| SqlError::UnknownColumn {
            name: match &name.table {
                Some(table) => format!("{table}.{}", name.column),
                None => name.column.clone(),
            },
            at: name.at,
        })
    }

    pub(super) fn expression(
        &self,
        expression: &Expression<Name>,
    ) -> Result<Expression<usize>, SqlError> {
        expression.try_map(&mut |name| self.slot(name))
    }

    /// An expression where there is no group.
    pub(super) fn scalar(
        &self,
        expression: &Expression<Name>,
        place: &'static str,
    ) -> Result<Expression<usize>, SqlError> {
        if expression.has_aggregate() {
            return Err(SqlError::MisplacedAggregate { place });
        }
        self.expression(expression)
    }

    pub(super) fn predicates(
        &self,
        predicates: &[Predicate<Name>],
    ) -> Result<Vec<Predicate<usize>>, SqlError> {
        predicates
            .iter()
            .map(|predicate| {
                if predicate.expressions().into_iter().any(Expression::has_aggregate) {
                    return Err(SqlError::MisplacedAggregate { place: "WHERE" });
                }
                predicate.try_map(&mut |name| self.slot(name))
            })
            .collect()
    }
}
