//! Tables as a workload needs them, and how each database is told to make them.
//!
//! | type | PostgreSQL | MariaDB | SQLite | Firebird | embedded |
//! | --- | --- | --- | --- | --- | --- |
//! | `Int` | integer | integer | integer | integer | integer |
//! | `BigInt` | bigint | bigint | integer | bigint | bigint |
//! | `Char(n)` | char(n) | char(n) | text | char(n) | char(n) |
//! | `Varchar(n)` | varchar(n) | varchar(n) | text | varchar(n) | varchar(n) |
//! | `Timestamp` | timestamp | datetime(6) | text | timestamp | timestamp |
//!
//! SQLite stores what it is given whatever the column says, so it is told so. No foreign keys are
//! declared: only some of the databases keep them, and what a key costs is not what is studied.

use std::fmt::Write;

use crate::{Dialect, Statement};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: &'static str,
    /// Its columns, from left to right.
    pub columns: Vec<Column>,
    /// The columns of its primary key, in order; none when it has no key.
    pub primary_key: Vec<&'static str>,
    pub indexes: Vec<Index>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub kind: Type,
    pub nullable: bool,
}

impl Column {
    /// A column that always holds something.
    pub const fn new(name: &'static str, kind: Type) -> Self {
        Column { name, kind, nullable: false }
    }

    /// A column that may hold nothing.
    pub const fn nullable(name: &'static str, kind: Type) -> Self {
        Column { name, kind, nullable: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A whole number of 32 bits.
    Int,
    /// A whole number of 64 bits.
    BigInt,
    /// Text of so many characters, padded with spaces where the database does that.
    Char(u16),
    /// Text of at most so many characters.
    Varchar(u16),
    /// The moment a statement ran, written by `CURRENT_TIMESTAMP` and read by nobody.
    Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    pub name: &'static str,
    pub columns: Vec<&'static str>,
    /// Whether two rows may not have the same values in them.
    pub unique: bool,
}

impl Table {
    /// The statement that makes the table with its primary key, empty.
    pub fn create(&self, dialect: Dialect) -> String {
        let mut sql = format!("CREATE TABLE {} (", self.name);
        for (place, column) in self.columns.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            let null = if column.nullable { "" } else { " NOT NULL" };
            // Writing to a String cannot fail.
            let _ = write!(sql, "{comma}{} {}{null}", column.name, column.kind.name(dialect));
        }
        if !self.primary_key.is_empty() {
            let _ = write!(sql, ", PRIMARY KEY ({})", self.primary_key.join(", "));
        }
        sql.push(')');
        sql
    }

    /// The statements that make its other indexes, to be run when it has been filled.
    pub fn create_indexes(&self) -> Vec<String> {
        let create = |index: &Index| {
            let unique = if index.unique { "UNIQUE " } else { "" };
            let columns = index.columns.join(", ");
            format!("CREATE {unique}INDEX {} ON {} ({columns})", index.name, self.name)
        };
        self.indexes.iter().map(create).collect()
    }

    /// The statement that removes the table, which must be there.
    pub fn drop(&self) -> String {
        format!("DROP TABLE {}", self.name)
    }

    /// The statement that inserts one row, its values in the order of the columns.
    pub fn insert(&self) -> Statement {
        let columns: Vec<&str> = self.columns.iter().map(|column| column.name).collect();
        let places = vec!["?"; columns.len()].join(", ");
        let columns = columns.join(", ");
        Statement::written(format!("INSERT INTO {} ({columns}) VALUES ({places})", self.name))
    }
}

impl Type {
    /// The type's name in a dialect.
    pub fn name(self, dialect: Dialect) -> String {
        match self {
            Type::Int => "integer".to_owned(),
            Type::BigInt if dialect == Dialect::Sqlite => "integer".to_owned(),
            Type::BigInt => "bigint".to_owned(),
            Type::Char(_) | Type::Varchar(_) | Type::Timestamp if dialect == Dialect::Sqlite => {
                "text".to_owned()
            }
            Type::Char(length) => format!("char({length})"),
            Type::Varchar(length) => format!("varchar({length})"),
            Type::Timestamp if dialect == Dialect::MariaDb => "datetime(6)".to_owned(),
            Type::Timestamp => "timestamp".to_owned(),
        }
    }
}

/// Defines the tables of a workload: `tables()`, and for each a constant that is its place there.
///
/// A table is its constant, its name, its primary key in parentheses, its other indexes (`index` or
/// `unique`) and its columns; one that may hold nothing is `null`.
macro_rules! tables {
    (@null) => { false };
    (@null null) => { true };
    (@unique index) => { false };
    (@unique unique) => { true };
    ($(
        $place:ident $table:ident ($($key:ident),*)
        $($index:ident $index_name:ident ($($indexed:ident),+))*
        { $($column:ident: $kind:ident $(($length:literal))? $($null:ident)?,)+ }
    )+) => {
        #[allow(clippy::upper_case_acronyms, reason = "they are called like their constants")]
        #[allow(non_camel_case_types, reason = "they are called like their constants")]
        enum Places { $($place),+ }
        $(
            #[allow(dead_code, reason = "some tables are empty at the start")]
            pub(super) const $place: usize = Places::$place as usize;
        )+

        pub(super) fn tables() -> Vec<$crate::Table> {
            vec![$($crate::Table {
                name: stringify!($table),
                columns: vec![$($crate::Column {
                    name: stringify!($column),
                    kind: $crate::Type::$kind $(($length))?,
                    nullable: $crate::table::tables!(@null $($null)?),
                }),+],
                primary_key: vec![$(stringify!($key)),*],
                indexes: vec![$($crate::Index {
                    name: stringify!($index_name),
                    columns: vec![$(stringify!($indexed)),+],
                    unique: $crate::table::tables!(@unique $index),
                }),*],
            }),+]
        }
    };
}
pub(crate) use tables;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_for_a_table_are_complete() {
        let table = Table {
            name: "item",
            columns: vec![
                Column::new("id", Type::Int),
                Column::new("cents", Type::BigInt),
                Column::new("kind", Type::Char(2)),
                Column::nullable("note", Type::Varchar(30)),
            ],
            primary_key: vec!["id", "kind"],
            indexes: vec![Index { name: "item_kind", columns: vec!["kind"], unique: true }],
        };
        assert_eq!(
            table.create(Dialect::Firebird),
            "CREATE TABLE item (id integer NOT NULL, cents bigint NOT NULL, kind char(2) NOT NULL, \
             note varchar(30), PRIMARY KEY (id, kind))"
        );
        assert_eq!(
            table.create(Dialect::Sqlite),
            "CREATE TABLE item (id integer NOT NULL, cents integer NOT NULL, kind text NOT NULL, \
             note text, PRIMARY KEY (id, kind))"
        );
        assert_eq!(table.create_indexes(), ["CREATE UNIQUE INDEX item_kind ON item (kind)"]);
        assert_eq!(
            table.insert().sql(Dialect::Postgres),
            "INSERT INTO item (id, cents, kind, note) VALUES (?, ?, ?, ?)"
        );
        assert_eq!(table.drop(), "DROP TABLE item");
    }
}
