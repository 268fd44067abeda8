//! Random statements on random tables, here and on SQLite: the same rows, the same refusals.
//!
//! What SQL leaves open is kept out of the comparison: the order of rows that nothing orders, which
//! of several equal rows a LIMIT takes, and what becomes of an update that moves rows over one
//! another. NULL comes first in both, and SQLite's LIKE is told to mind large letters.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Isolation, TxnOptions};
use tidegate_subject::connection::Transactional;
use tidegate_subject::embedded::sql::{Catalog, StoreConnection};
use tidegate_subject::sqlite::SqliteConnection;
use tidegate_workload::{Column, Dialect, Failure, Index, Random, Table, Type, Value};

use super::{cells, run, store};

const SEEDS: u64 = 120;
const STATEMENTS: usize = 150;

const TABLES: [&str; 3] = ["ta", "tb", "tc"];
const COLUMNS: [&str; 5] = ["va", "vb", "vc", "vd", "ve"];
const INDEXES: [[&str; 2]; 3] = [["ia1", "ia2"], ["ib1", "ib2"], ["ic1", "ic2"]];
const TEXTS: [&str; 8] = ["", "a", "ab", "b", "ba", "A", "é", "a b"];
const PATTERNS: [&str; 7] = ["a%", "%b", "_", "%", "%a%b%", "A_", ""];

/// Draws, and what is made by them.
struct Chance(Random);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        let high = i32::try_from(bound).unwrap() - 1;
        usize::try_from(self.0.between(0, high)).unwrap()
    }

    fn percent(&mut self, percent: i32) -> bool {
        self.0.between(1, 100) <= percent
    }

    fn one<'o, T>(&mut self, of: &'o [T]) -> &'o T {
        &of[self.below(of.len())]
    }

    fn table(&mut self, number: usize) -> Table {
        let width = 2 + self.below(4);
        let mut columns = Vec::new();
        for &name in &COLUMNS[..width] {
            let kind =
                *self.one(&[Type::Int, Type::Int, Type::BigInt, Type::Varchar(8), Type::Char(6)]);
            columns.push(Column { name, kind, nullable: self.percent(40) });
        }
        let some = |chance: &mut Self, most: usize| {
            let mut names = COLUMNS[..width].to_vec();
            while names.len() > most.min(width) {
                names.remove(chance.below(names.len()));
            }
            if names.len() > 1 && chance.percent(50) {
                names.reverse();
            }
            names
        };
        let key_len = self.below(4);
        let primary_key = some(self, key_len);
        for column in &mut columns {
            column.nullable &= !primary_key.contains(&column.name);
        }
        let mut indexes = Vec::new();
        for name in INDEXES[number].into_iter().take(self.below(3)) {
            let len = 1 + self.below(3);
            indexes.push(Index { name, columns: some(self, len), unique: self.percent(25) });
        }
        Table { name: TABLES[number], columns, primary_key, indexes }
    }

    fn value(&mut self, column: &Column) -> Value<'static> {
        if column.nullable && self.percent(20) {
            return Value::Null;
        }
        match column.kind {
            Type::Char(_) | Type::Varchar(_) => (*self.one(&TEXTS)).into(),
            _ => Value::Int(self.0.between(-3, 6).into()),
        }
    }
}

fn is_text(column: &Column) -> bool {
    matches!(column.kind, Type::Char(_) | Type::Varchar(_))
}

/// A statement that is being written.
struct Writer<'w> {
    chance: &'w mut Chance,
    sql: String,
    values: Vec<Value<'static>>,
}

/// Tables and the names that they have in a statement.
type Sources<'s> = [(String, &'s Table)];

/// How the rows of an answer are to be compared.
#[derive(Debug)]
enum Compare {
    Exactly,
    /// In any order.
    Sorted,
}

impl Writer<'_> {
    fn add(&mut self, text: &str) {
        self.sql.push_str(text);
    }

    /// A value, written out or given for a `?`.
    fn value(&mut self, value: Value<'static>) {
        if self.chance.percent(60) {
            self.values.push(value);
            return self.add("?");
        }
        match value {
            Value::Null => self.add("NULL"),
            Value::Int(number) => write!(self.sql, "{number}").unwrap(),
            Value::Text(text) => write!(self.sql, "'{text}'").unwrap(),
        }
    }

    fn value_of(&mut self, column: &Column) {
        let value = self.chance.value(column);
        self.value(value);
    }

    fn column(&mut self, sources: &Sources<'_>) -> (String, Column) {
        let (alias, table) = self.chance.one(sources).clone();
        let column = *self.chance.one(&table.columns);
        let name = if alias.is_empty() {
            column.name.to_owned()
        } else {
            format!("{alias}.{}", column.name)
        };
        (name, column)
    }

    /// Columns and values calculated with, or a column of text.
    fn expression(&mut self, sources: &Sources<'_>) {
        let (name, column) = self.column(sources);
        self.add(&name);
        while !is_text(&column) && self.chance.percent(25) {
            let sign = *self.chance.one(&[" + ", " - ", " * "]);
            self.add(sign);
            let (other, other_column) = self.column(sources);
            if is_text(&other_column) {
                let number = Value::Int(self.chance.0.between(-2, 3).into());
                self.value(number);
            } else {
                self.add(&other);
            }
        }
    }

    fn filter(&mut self, sources: &Sources<'_>) {
        let mut before = " WHERE ";
        for (alias, table) in sources.iter().skip(1) {
            // What joins it with the first, mostly.
            let column = *self.chance.one(&table.columns);
            let (first, of) = sources[0].clone();
            let same = of.columns.iter().find(|other| is_text(other) == is_text(&column));
            if let Some(same) = same.filter(|_| self.chance.percent(85)) {
                write!(self.sql, "{before}{first}.{} = {alias}.{}", same.name, column.name)
                    .unwrap();
                before = " AND ";
            }
        }
        for _ in 0..self.chance.below(4) {
            self.add(before);
            self.predicate(sources);
            before = " AND ";
        }
    }

    fn predicate(&mut self, sources: &Sources<'_>) {
        let (name, column) = self.column(sources);
        match self.chance.below(10) {
            0 => {
                write!(self.sql, "{name} BETWEEN ").unwrap();
                self.value_of(&column);
                self.add(" AND ");
                self.value_of(&column);
            }
            1 | 2 => {
                write!(self.sql, "{name} IN (").unwrap();
                self.value_of(&column);
                for _ in 0..*self.chance.one(&[0, 1, 2, 12]) {
                    self.add(", ");
                    self.value_of(&column);
                }
                self.add(")");
            }
            3 => {
                let not = *self.chance.one(&["", " NOT"]);
                write!(self.sql, "{name} IS{not} NULL").unwrap();
            }
            4 if is_text(&column) => {
                write!(self.sql, "{name} LIKE ").unwrap();
                let pattern = (*self.chance.one(&PATTERNS)).into();
                self.value(pattern);
            }
            5 if !is_text(&column) => {
                write!(self.sql, "{name} + 1 ").unwrap();
                let sign = *self.chance.one(&["<", "=", ">="]);
                write!(self.sql, "{sign} ").unwrap();
                self.value_of(&column);
            }
            other => {
                let signs = ["=", "=", "=", "<>", "<", "<=", ">", ">="];
                let sign = *self.chance.one(&signs);
                if other == 6 {
                    self.value_of(&column);
                    return write!(self.sql, " {sign} {name}").unwrap();
                }
                write!(self.sql, "{name} {sign} ").unwrap();
                self.value_of(&column);
            }
        }
    }

    fn select(&mut self, tables: &[Table]) -> Compare {
        let count = *self.chance.one(&[1, 1, 1, 1, 2, 2, 3]);
        let mut sources = Vec::new();
        for number in 0..count {
            let alias = if count == 1 { String::new() } else { format!("x{number}") };
            sources.push((alias, self.chance.one(tables)));
        }
        let is_grouped = self.chance.percent(35);
        let items = if is_grouped { self.aggregates(&sources) } else { self.items(&sources) };
        let (items, group_by) = items;
        let from: Vec<String> =
            sources.iter().map(|(alias, table)| format!("{} {alias}", table.name)).collect();
        let mut select = Vec::new();
        let mut order = Vec::new();
        for (number, item) in items.iter().enumerate() {
            let has_alias = self.chance.percent(30);
            select.push(if has_alias { format!("{item} AS s{number}") } else { item.clone() });
            let by = if has_alias { format!("s{number}") } else { item.clone() };
            let way = *self.chance.one(&["", " ASC", " DESC", " DESC"]);
            order.push(by + way);
        }
        if self.chance.percent(40) {
            // All one way, as an index may have them.
            let way = *self.chance.one(&["", " DESC"]);
            for by in &mut order {
                let plain = by.trim_end_matches(" ASC").trim_end_matches(" DESC");
                *by = format!("{plain}{way}");
            }
        }
        // The places for values come in the order of the text: those of the items first.
        self.sql = format!("SELECT {} FROM {}", select.join(", "), from.join(", "));
        self.filter(&sources);
        if !group_by.is_empty() {
            write!(self.sql, " GROUP BY {}", group_by.join(", ")).unwrap();
        }
        let is_ordered = self.chance.percent(60);
        if is_ordered {
            write!(self.sql, " ORDER BY {}", order.join(", ")).unwrap();
            if self.chance.percent(50) {
                let limit = self.chance.below(6);
                write!(self.sql, " LIMIT {limit}").unwrap();
            }
        }
        if count == 1 && !is_grouped && self.chance.percent(20) {
            self.add(" FOR UPDATE");
        }
        if is_ordered { Compare::Exactly } else { Compare::Sorted }
    }

    /// What is selected of each row; without places for values, because it is written twice.
    fn items(&mut self, sources: &Sources<'_>) -> (Vec<String>, Vec<String>) {
        let mut items = Vec::new();
        for _ in 0..=self.chance.below(3) {
            items.push(self.apart(|writer| writer.expression(sources)));
        }
        (items, vec![])
    }

    /// What is selected of each group, and what makes one.
    fn aggregates(&mut self, sources: &Sources<'_>) -> (Vec<String>, Vec<String>) {
        let mut by = Vec::new();
        for _ in 0..self.chance.below(3) {
            by.push(self.column(sources).0);
        }
        let mut items = by.clone();
        for _ in 0..=self.chance.below(2) {
            let (name, column) = self.column(sources);
            let sum = if is_text(&column) { "COUNT" } else { "SUM" };
            let aggregates = [
                "COUNT(*)".to_owned(),
                format!("COUNT(DISTINCT {name})"),
                format!("{sum}({name})"),
                format!("MIN({name})"),
                format!("MAX({name})"),
                format!("COUNT({name}) + 1"),
            ];
            items.push(self.chance.one(&aggregates).clone());
        }
        (items, by)
    }

    /// Text written apart, with all values written out.
    fn apart(&mut self, write: impl FnOnce(&mut Self)) -> String {
        let before = std::mem::take(&mut self.sql);
        let values = self.values.len();
        write(self);
        let mut text = std::mem::replace(&mut self.sql, before);
        for value in self.values.drain(values..) {
            let Value::Int(number) = value else { continue };
            text = text.replacen('?', &number.to_string(), 1);
        }
        text
    }

    fn change(&mut self, tables: &[Table]) {
        let table = self.chance.one(tables);
        let sources = [(String::new(), table)];
        match self.chance.below(10) {
            0..=4 => {
                let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
                write!(self.sql, "INSERT INTO {} ({}) VALUES (", table.name, columns.join(", "))
                    .unwrap();
                for (place, column) in table.columns.iter().enumerate() {
                    self.add(if place == 0 { "" } else { ", " });
                    self.value_of(column);
                }
                self.add(")");
            }
            5..=8 => {
                write!(self.sql, "UPDATE {} SET ", table.name).unwrap();
                let column = *self.chance.one(&table.columns);
                write!(self.sql, "{} = ", column.name).unwrap();
                let is_key = |names: &[&str]| names.contains(&column.name);
                let is_told_apart = is_key(&table.primary_key)
                    || table.indexes.iter().any(|index| index.unique && is_key(&index.columns));
                if !is_told_apart && !is_text(&column) && self.chance.percent(50) {
                    write!(self.sql, "{} + ", column.name).unwrap();
                }
                self.value_of(&column);
                self.filter(&sources);
            }
            _ => {
                write!(self.sql, "DELETE FROM {}", table.name).unwrap();
                self.filter(&sources);
            }
        }
    }
}

fn open_sqlite(tables: &[Table], directory: &std::path::Path) -> SqliteConnection {
    let sqlite = SqliteConnection::open(&directory.join("model"), Duration::from_secs(1)).unwrap();
    sqlite.batch("PRAGMA case_sensitive_like=1; PRAGMA synchronous=OFF").unwrap();
    for table in tables {
        sqlite.batch(&table.create(Dialect::Sqlite)).unwrap();
        table.create_indexes().iter().for_each(|sql| sqlite.batch(sql).unwrap());
    }
    sqlite
}

/// The answer as text, or that there was a refusal.
fn outcome<C: Transactional>(
    connection: &mut C,
    sql: &str,
    values: &[Value<'_>],
    compare: &Compare,
) -> Result<(u64, Vec<String>), String> {
    let reply = match run(connection, sql, values) {
        Ok(reply) => reply,
        Err(Failure::Refused { code, .. }) if code == "23505" || code == "23502" => {
            return Err("ConstraintViolation".to_owned());
        }
        Err(Failure::Refused { code, message }) if code != "ConstraintViolation" => {
            return Err(format!("{code} {message}"));
        }
        Err(Failure::Refused { code, .. }) => return Err(code),
        Err(failure) => panic!("{sql} {values:?}: {failure}"),
    };
    let mut rows = cells(&reply.rows);
    if matches!(compare, Compare::Sorted) {
        rows.sort();
    }
    Ok((reply.count, rows))
}

fn compare(seed: u64) {
    let mut chance = Chance(Random::new(seed, 0));
    let tables: Vec<Table> = (0..TABLES.len()).map(|number| chance.table(number)).collect();
    let directory = tempfile::tempdir().unwrap();
    let mut sqlite = open_sqlite(&tables, directory.path());
    let store = store();
    let isolation = *chance.one(&[
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ]);
    let catalog = Arc::new(Catalog::open(&store, &tables).unwrap());
    let options = TxnOptions::default().isolation(isolation);
    let mut embedded = StoreConnection::new(Arc::clone(&store), Arc::clone(&catalog), options);
    let mut is_open = false;
    for number in 0..STATEMENTS {
        if chance.percent(10) {
            if is_open && chance.percent(50) {
                sqlite.rollback().unwrap();
                embedded.rollback().unwrap();
            } else if is_open {
                sqlite.commit().unwrap();
                embedded.commit().unwrap();
            } else {
                sqlite.begin().unwrap();
                embedded.begin().unwrap();
            }
            is_open = !is_open;
        }
        let mut writer = Writer { chance: &mut chance, sql: String::new(), values: Vec::new() };
        let is_change = number < 30 || writer.chance.percent(30);
        let compare = if is_change {
            writer.change(&tables);
            Compare::Exactly
        } else {
            writer.select(&tables)
        };
        let Writer { sql, values, .. } = writer;
        let expected = outcome(&mut sqlite, &sql, &values, &compare);
        let found = outcome(&mut embedded, &sql, &values, &compare);
        assert_eq!(
            found,
            expected,
            "seed {seed}, statement {number}: {sql} {values:?}\nplan: {:?}\ntables: {tables:?}",
            catalog.explain(&sql)
        );
    }
}

#[test]
fn random_statements_do_what_they_do_on_sqlite() {
    for seed in 0..SEEDS {
        compare(seed);
    }
}
