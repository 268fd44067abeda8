//! Both forms do the same.
//!
//! What the statements of a transaction read is put together as its procedure would answer. The
//! transactions write down no clock, so all tables are compared as they are.

use std::collections::BTreeMap;

use tidegate_subject::connection::Transactional;
use tidegate_subject::database::Database;
use tidegate_workload::tpcc::{DELIVERY, Form, NEW_ORDER, ORDER_STATUS, PAYMENT, Tpcc};
use tidegate_workload::workload::{Depth, Workload};
use tidegate_workload::{
    Connection, Dialect, Ending, Failure, Reply, Rows, Statement, Value, Wants,
};

use super::super::{assert_consistent, insist};
use super::{Server, fill, firebird, mariadb, postgres, tpcc};

/// Terminals that take turns.
const TERMINALS: usize = 3;

/// Transactions of each, at the most: three decks of a hundred.
const EACH: usize = 300;

/// A statement's values and its answer.
struct Told {
    values: Vec<String>,
    rows: Rows,
}

/// Keeps what a transaction's statements are given and answered.
struct Recorder<'c> {
    connection: &'c mut dyn Transactional,
    told: Vec<Told>,
}

impl Connection for Recorder<'_> {
    fn run(&mut self, sql: &Statement, of: &[Value<'_>], wants: Wants) -> Result<Reply, Failure> {
        let reply = self.connection.run(sql, of, wants)?;
        self.told.push(Told { values: of.iter().map(text).collect(), rows: reply.rows.clone() });
        Ok(reply)
    }
}

impl Transactional for Recorder<'_> {
    fn begin(&mut self) -> Result<(), Failure> {
        self.connection.begin()
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.connection.commit()
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        self.connection.rollback()
    }

    fn dialect(&self) -> Dialect {
        self.connection.dialect()
    }
}

const NULL: &str = "NULL";

fn text(value: &Value<'_>) -> String {
    match value {
        Value::Null => NULL.to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => text.clone().into_owned(),
    }
}

/// A cell as text, whether it came as a number or as digits.
fn cell(rows: &Rows, row: usize, column: usize) -> String {
    let text = rows.text(row, column).map(str::to_owned);
    let text = text.or_else(|| rows.int(row, column).map(|number| number.to_string()));
    text.unwrap_or_else(|| NULL.to_owned())
}

fn cells(rows: &Rows, row: usize) -> Vec<String> {
    (0..rows.width()).map(|column| cell(rows, row, column)).collect()
}

/// What a transaction's procedure answers, by what its statements read.
fn answer(kind: usize, told: &[Told]) -> Vec<String> {
    match kind {
        NEW_ORDER => order(told),
        PAYMENT => payment(told),
        ORDER_STATUS => status(told),
        DELIVERY => vec![told.iter().filter_map(delivered).collect()],
        _ => cells(&told[1].rows, 0),
    }
}

fn order(told: &[Told]) -> Vec<String> {
    // Behind what the order needs come item, stock, its change and the line, again and again.
    let (head, lines) = told.split_at(6);
    let line = |line: &[Told]| {
        let (item, stock) = (&line[0].rows, &line[1].rows);
        format!("{},{},{};", cell(item, 0, 1), cell(item, 0, 0), cell(stock, 0, 0))
    };
    let listed: String = lines.chunks(4).map(line).collect();
    let read = head[..3].iter().flat_map(|told| cells(&told.rows, 0));
    read.chain([listed]).collect()
}

fn payment(told: &[Told]) -> Vec<String> {
    let (history, change) = (&told[told.len() - 1], &told[told.len() - 2]);
    let customer = told.iter().find(|told| told.rows.width() == 14).unwrap();
    let past = if change.values.len() == 6 { change.values[2].clone() } else { NULL.to_owned() };
    let place = cells(&told[1].rows, 0).into_iter().chain(cells(&told[3].rows, 0));
    let customer = [history.values[0].clone()].into_iter().chain(cells(&customer.rows, 0));
    place.chain(customer).chain([past]).collect()
}

fn status(told: &[Told]) -> Vec<String> {
    let [.., customer, order, lines] = told else { panic!("too few statements") };
    let line = |row| cells(&lines.rows, row).join(",").replace(NULL, "") + ";";
    let listed: String = (0..lines.rows.len()).map(line).collect();
    let read = cells(&customer.rows, 0).into_iter().chain(cells(&order.rows, 0));
    [customer.values[2].clone()].into_iter().chain(read).chain([listed]).collect()
}

/// The first statement of each district has two values, and a row where there is an order.
fn delivered(told: &Told) -> Option<String> {
    let is_found = told.values.len() == 2 && !told.rows.is_empty();
    is_found.then(|| format!("{},{};", told.values[1], cell(&told.rows, 0, 0)))
}

/// What a run did.
#[derive(Default)]
struct Done {
    /// The answer of each transaction that was committed, with its kind.
    answers: Vec<(usize, Vec<String>)>,
    undone: usize,
    statements: usize,
}

/// Runs so many transactions of each terminal, in turn.
fn work(connection: &mut dyn Transactional, workload: &Tpcc, each: usize, seed: u64) -> Done {
    let mut terminals: Vec<_> =
        (0..TERMINALS).map(|number| workload.client(number, TERMINALS, seed)).collect();
    let mut done = Done::default();
    for _ in 0..each {
        for terminal in &mut terminals {
            let transaction = terminal.next();
            let kind = transaction.kind();
            let mut recorder = Recorder { connection: &mut *connection, told: Vec::new() };
            let (ending, conflicts) = insist(&mut recorder, &transaction);
            assert_eq!(conflicts, 0, "nobody else is there");
            let told = recorder.told;
            done.statements += told.len();
            match (ending, workload.form) {
                (Ending::Rollback, _) => done.undone += 1,
                (Ending::Commit, Form::Statements) => {
                    done.answers.push((kind, answer(kind, &told)));
                }
                (Ending::Commit, Form::Procedures) => {
                    assert_eq!(told.len(), 1, "a transaction is one request");
                    done.answers.push((kind, cells(&told[0].rows, 0)));
                }
            }
        }
    }
    done
}

/// The rows of each table, in no order that a database would choose.
pub(super) type Tables = BTreeMap<&'static str, Vec<String>>;

/// The rows of a workload's tables.
pub(super) fn rows(connection: &mut dyn Transactional, workload: &Tpcc) -> Tables {
    let mut tables = BTreeMap::new();
    for table in workload.tables() {
        let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
        let sql = format!("SELECT {} FROM {}", columns.join(", "), table.name);
        let found = connection.run(&Statement::written(sql), &[], Wants::Rows).unwrap().rows;
        let mut lines: Vec<String> =
            (0..found.len()).map(|row| cells(&found, row).join("|")).collect();
        lines.sort_unstable();
        tables.insert(table.name, lines);
    }
    tables
}

/// Loads, works by a form and returns what was done and what is there then.
fn course(server: &dyn Database, form: Form, each: usize, seed: u64) -> (Done, Tables) {
    let workload = tpcc(200, form);
    fill(server, &workload);
    let mut connection = server.session().unwrap();
    let before = rows(&mut *connection, &workload);
    let done = work(&mut *connection, &workload, each, seed);
    let after = rows(&mut *connection, &workload);
    for (table, lines) in &after {
        assert_eq!(before[table] == *lines, *table == "item", "{table}");
    }
    assert_consistent(&mut *connection, &workload, Depth::Full);
    (done, after)
}

fn forms_do_the_same(server: Server, each: usize, seed: u64) {
    let Some(server) = server else { return };
    println!("seed {seed}");
    let (statements, left) = course(&*server, Form::Statements, each, seed);
    let (procedures, left_too) = course(&*server, Form::Procedures, each, seed);
    println!(
        "{} and {} requests for {} transactions, {} of them undone",
        statements.statements,
        procedures.statements,
        TERMINALS * each,
        statements.undone
    );
    assert!(statements.undone > 0);
    assert_eq!(statements.undone, procedures.undone);
    assert_eq!(statements.answers.len(), procedures.answers.len());
    for (place, pair) in statements.answers.iter().zip(&procedures.answers).enumerate() {
        assert_eq!(pair.0, pair.1, "transaction {place}");
    }
    for (table, lines) in &left {
        for pair in lines.iter().zip(&left_too[table]) {
            assert_eq!(pair.0, pair.1, "{table}");
        }
        assert_eq!(lines.len(), left_too[table].len(), "{table}");
    }
}

#[test]
fn statements_and_procedures_do_the_same_on_postgres() {
    forms_do_the_same(postgres(), EACH, 51);
}

#[test]
fn statements_and_procedures_do_the_same_on_mariadb() {
    forms_do_the_same(mariadb(), EACH, 52);
}

#[test]
fn statements_and_procedures_do_the_same_on_firebird() {
    // A statement of Firebird's takes several times as long.
    forms_do_the_same(firebird(), EACH / 3, 52);
}
