//! The statements, written once for a workload and shared by its transactions.

use std::sync::Arc;

use super::options::{Options, Placement};
use super::tables::{COLUMNS, TABLES, tables};
use crate::Statement;

/// All statements; by table and then by column, where they differ in them.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) reads: Vec<Vec<Arc<Statement>>>,
    pub(super) updates: Vec<Vec<Arc<Statement>>>,
    pub(super) inserts: Vec<Arc<Statement>>,
    pub(super) deletes: Vec<Arc<Statement>>,
    /// By column, the same of both tables.
    pub(super) joins: Vec<Arc<Statement>>,
}

impl Statements {
    pub(super) fn new(options: &Options) -> Self {
        let rows = condition(options, "id1");
        let joined = condition(options, "thrash_1.id1");
        let written = |sql| Arc::new(Statement::written(sql));
        let by_column = |sql: &dyn Fn(&str, &str) -> String| -> Vec<Vec<_>> {
            let columns = |table| COLUMNS.iter().map(move |column| written(sql(table, column)));
            TABLES.iter().map(|table| columns(table).collect()).collect()
        };
        Statements {
            reads: by_column(&|table, column| format!("SELECT {column} FROM {table} WHERE {rows}")),
            updates: by_column(&|table, column| {
                format!("UPDATE {table} SET {column} = ? WHERE {rows}")
            }),
            inserts: tables(options).iter().map(|table| Arc::new(table.insert())).collect(),
            deletes: TABLES
                .iter()
                .map(|table| written(format!("DELETE FROM {table} WHERE id1 = ?")))
                .collect(),
            joins: COLUMNS
                .iter()
                .map(|column| {
                    written(format!(
                        "SELECT thrash_1.{column}, thrash_2.{column} FROM thrash_1, thrash_2 \
                         WHERE {joined} AND thrash_2.id1 = thrash_1.id1"
                    ))
                })
                .collect(),
        }
    }
}

/// That `id1` is of one of a transaction's rows.
fn condition(options: &Options, id1: &str) -> String {
    match options.placement {
        Placement::Random | Placement::Rotation => format!("{id1} >= ? AND {id1} < ?"),
        Placement::Discrete => {
            let places = "?, ".repeat(options.touched() as usize);
            format!("{id1} IN ({})", places.trim_end_matches(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;
    use crate::thrash::options::Share;

    fn text(statement: &Statement) -> String {
        statement.sql(Dialect::Postgres).into_owned()
    }

    #[test]
    fn the_statements_are_the_studys() {
        let statements = Statements::new(&Options::read());
        assert_eq!(
            text(&statements.reads[1][0]),
            "SELECT id2 FROM thrash_2 WHERE id1 >= ? AND id1 < ?"
        );
        assert_eq!(
            text(&statements.updates[0][5]),
            "UPDATE thrash_1 SET str2 = ? WHERE id1 >= ? AND id1 < ?"
        );
        assert_eq!(
            text(&statements.joins[3]),
            "SELECT thrash_1.id5, thrash_2.id5 FROM thrash_1, thrash_2 WHERE \
             thrash_1.id1 >= ? AND thrash_1.id1 < ? AND thrash_2.id1 = thrash_1.id1"
        );
        assert_eq!(text(&statements.deletes[0]), "DELETE FROM thrash_1 WHERE id1 = ?");
        assert_eq!(
            text(&statements.inserts[1]),
            "INSERT INTO thrash_2 (id1, id2, id3, id4, id5, str1, str2) \
             VALUES (?, ?, ?, ?, ?, ?, ?)"
        );
    }

    #[test]
    fn a_list_has_a_place_for_each_row() {
        let options = Options {
            rows: 300,
            sf: Share::from_percent(1.0).unwrap(),
            placement: Placement::Discrete,
            ..Options::read()
        };
        let statements = Statements::new(&options);
        assert_eq!(
            text(&statements.reads[0][0]),
            "SELECT id2 FROM thrash_1 WHERE id1 IN (?, ?, ?)"
        );
        assert!(text(&statements.joins[0]).contains("WHERE thrash_1.id1 IN (?, ?, ?) AND "));
    }
}
