//! The transactions as calls of stored procedures.
//!
//! # Mechanism
//! A procedure has the same statements in the same order as the client's form of its transaction,
//! and its terminal draws the same values. So from one seed both forms do the same to the tables,
//! row by row, and a terminal is told the same; what differs is where the logic runs, and how often
//! the network is crossed: once instead of 48 times in a New-Order of ten lines.
//!
//! A call needs no BEGIN and no COMMIT. What fails in it undoes all of it, so the same call is made
//! again after a deadlock, and an order of an item that does not exist is undone by the error that
//! its procedure raises.
//!
//! | database | a call | its transaction |
//! | --- | --- | --- |
//! | PostgreSQL | `SELECT * FROM tpcc_payment(..)` | the statement |
//! | MariaDB | `CALL tpcc_payment(..)` | begun and ended by the procedure |
//! | Firebird | `EXECUTE PROCEDURE tpcc_payment(..)` | begun and committed around it |
//!
//! SQLite and the embedded engine run in the process of their clients (the embedded engine's server
//! is given a whole transaction as it is): there a call is the client's form.
//!
//! # Values and answers
//! The lines of an order are three lists: items, suppliers and quantities, as numbers with commas
//! between. A customer is a number or a last name, and the other is NULL. Each procedure answers
//! with one row that has what the statements would have read for the terminal's screen, but for
//! `i_data`, `s_data` and a past that has not changed: what only the logic needs stays where it
//! runs. The lines of an order are a text in it, with a `;` behind each.
//!
//! # Limits
//! * A call has one phase.
//! * A call that its client does not wait for any more is done to its end, and committed.
//! * The last names of Firebird are counted before the middle one is read: two statements for one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::workload::Transaction;
use crate::{Dialect, Ending, Failure, Procedure, Running, Session, Statement, Value};

use super::inputs::{Customer, Delivery, Key, Line, NewOrder, OrderStatus, Payment, StockLevel};

pub(super) const PHASES: &[&str] = &["call"];

/// With these words a procedure undoes an order of an item that does not exist.
const UNUSED: &str = "tpcc: unused item";

/// Where the logic of the transactions is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// In the clients, which send the statements one by one.
    #[default]
    Statements,
    /// In the database, where clients call it.
    Procedures,
}

impl Form {
    pub(super) fn of<T: Called>(self, inputs: T) -> Arc<dyn Transaction> {
        match self {
            Form::Statements => Arc::new(inputs),
            Form::Procedures => Arc::new(Call(Arc::new(inputs))),
        }
    }
}

/// The procedures of a dialect; none where a transaction runs in its client's process.
pub(super) fn of(dialect: Dialect) -> Vec<Procedure> {
    match dialect {
        Dialect::Postgres => Procedure::of_script(include_str!("procedures/postgres.sql")),
        Dialect::MariaDb => Procedure::of_script(include_str!("procedures/mariadb.sql")),
        Dialect::Firebird => Procedure::of_script(include_str!("procedures/firebird.sql")),
        Dialect::Sqlite | Dialect::Embedded => Vec::new(),
    }
}

/// A transaction that a procedure can do.
pub(super) trait Called: Transaction + Sized + 'static {
    const CALL: &Statement;

    fn values(&self) -> Vec<Value<'_>>;

    /// Whether it is to be undone when the procedure finds that an item does not exist.
    fn is_to_be_undone(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct Call<T>(Arc<T>);

impl<T: Called> Transaction for Call<T> {
    fn kind(&self) -> usize {
        self.0.kind()
    }

    fn is_single(&self) -> bool {
        true
    }

    fn called(&self) -> Option<Arc<dyn Transaction>> {
        Some(self.0.clone())
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            let inputs = &self.0;
            match session.query_some(T::CALL, &inputs.values(), "a procedure's answer").await {
                Ok(_) => Ok(Ending::Commit),
                Err(Failure::Refused { message, .. })
                    if inputs.is_to_be_undone() && message.contains(UNUSED) =>
                {
                    Ok(Ending::Rollback)
                }
                Err(failure) => Err(failure),
            }
        })
    }
}

/// A call in each dialect.
macro_rules! call {
    ($call:literal) => {
        &Statement::new(concat!("SELECT * FROM ", $call)).except(&[
            (Dialect::MariaDb, concat!("CALL ", $call)),
            (Dialect::Firebird, concat!("EXECUTE PROCEDURE ", $call)),
        ])
    };
}

impl Called for NewOrder {
    const CALL: &Statement = &Statement::new(
        "SELECT * FROM tpcc_new_order(?, ?, ?, ?, ?, ?, string_to_array(?, ',')::integer[], \
         string_to_array(?, ',')::integer[], string_to_array(?, ',')::integer[])",
    )
    .except(&[
        (Dialect::MariaDb, "CALL tpcc_new_order(?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        (Dialect::Firebird, "EXECUTE PROCEDURE tpcc_new_order(?, ?, ?, ?, ?, ?, ?, ?, ?)"),
    ]);

    fn values(&self) -> Vec<Value<'_>> {
        vec![
            self.warehouse.into(),
            self.district.into(),
            self.customer.into(),
            self.moment.into(),
            self.line_count().into(),
            i64::from(self.is_local()).into(),
            list(&self.lines, |line| line.item),
            list(&self.lines, |line| line.supplier),
            list(&self.lines, |line| line.quantity),
        ]
    }

    fn is_to_be_undone(&self) -> bool {
        self.is_unplaceable
    }
}

/// Numbers of an order's lines with commas between.
fn list(lines: &[Line], number: fn(&Line) -> i32) -> Value<'static> {
    let numbers: Vec<String> = lines.iter().map(|line| number(line).to_string()).collect();
    numbers.join(",").into()
}

impl Called for Payment {
    const CALL: &Statement = call!("tpcc_payment(?, ?, ?, ?, ?, ?, ?, ?)");

    fn values(&self) -> Vec<Value<'_>> {
        let [w, d, c, name] = customer(&self.customer);
        let (amount, moment) = (self.amount.into(), self.moment.into());
        vec![self.warehouse.into(), self.district.into(), w, d, c, name, amount, moment]
    }
}

impl Called for OrderStatus {
    const CALL: &Statement = call!("tpcc_order_status(?, ?, ?, ?)");

    fn values(&self) -> Vec<Value<'_>> {
        customer(&self.customer).into()
    }
}

/// A customer's warehouse, district, number and last name, one of which is NULL.
fn customer(customer: &Customer) -> [Value<'_>; 4] {
    let (number, name) = match &customer.key {
        Key::Id(number) => ((*number).into(), Value::Null),
        Key::LastName(name) => (Value::Null, name.as_str().into()),
    };
    [customer.warehouse.into(), customer.district.into(), number, name]
}

impl Called for Delivery {
    const CALL: &Statement = call!("tpcc_delivery(?, ?, ?)");

    fn values(&self) -> Vec<Value<'_>> {
        vec![self.warehouse.into(), self.carrier.into(), self.moment.into()]
    }
}

impl Called for StockLevel {
    const CALL: &Statement = call!("tpcc_stock_level(?, ?, ?)");

    fn values(&self) -> Vec<Value<'_>> {
        vec![self.warehouse.into(), self.district.into(), self.threshold.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conflict, Connection, Reply, Rows, Wants, finish};

    const DIALECTS: [Dialect; 3] = [Dialect::Postgres, Dialect::MariaDb, Dialect::Firebird];

    fn order(is_unplaceable: bool) -> NewOrder {
        let line = |item, supplier| Line { item, supplier, quantity: 7 };
        let lines = vec![line(10, 1), line(2_000, 3)];
        NewOrder { warehouse: 1, district: 2, customer: 3, lines, is_unplaceable, moment: 4 }
    }

    fn rendered(statement: &Statement, values: &[Value<'_>], dialect: Dialect) -> String {
        let mut sql = Vec::new();
        statement.render(dialect, values, &mut sql);
        String::from_utf8(sql).unwrap()
    }

    #[test]
    fn calls_have_their_values_in_every_dialect() {
        let mariadb = rendered(NewOrder::CALL, &order(false).values(), Dialect::MariaDb);
        assert_eq!(mariadb, "CALL tpcc_new_order(1, 2, 3, 4, 2, 0, '10,2000', '1,3', '7,7')");
        let key = Key::LastName("BAR".to_owned());
        let payment = Payment {
            warehouse: 1,
            district: 2,
            customer: Customer { warehouse: 3, district: 4, key },
            amount: 5,
            moment: 6,
        };
        let called = "tpcc_payment(1, 2, 3, 4, NULL, 'BAR', 5, 6)";
        for (dialect, before) in
            DIALECTS.into_iter().zip(["SELECT * FROM ", "CALL ", "EXECUTE PROCEDURE "])
        {
            let sql = rendered(Payment::CALL, &payment.values(), dialect);
            assert_eq!(sql, format!("{before}{called}"));
        }
        let status =
            OrderStatus { customer: Customer { warehouse: 1, district: 2, key: Key::Id(3) } };
        let sql = rendered(OrderStatus::CALL, &status.values(), Dialect::MariaDb);
        assert_eq!(sql, "CALL tpcc_order_status(1, 2, 3, NULL)");
    }

    #[test]
    fn every_dialect_with_procedures_has_those_that_are_called() {
        for dialect in DIALECTS {
            let procedures = of(dialect);
            for called in ["new_order", "payment", "order_status", "delivery", "stock_level"] {
                let name = format!("tpcc_{called}");
                let found = procedures.iter().find(|procedure| procedure.name == name);
                assert!(found.is_some(), "{dialect:?} has no {name}");
            }
            assert!(procedures.iter().all(|procedure| !procedure.create.contains('?')));
        }
        assert!(of(Dialect::Sqlite).is_empty() && of(Dialect::Embedded).is_empty());
    }

    /// Answers each call so.
    struct Answering(Result<(), Failure>);

    impl Connection for Answering {
        fn run(&mut self, _: &Statement, _: &[Value<'_>], _: Wants) -> Result<Reply, Failure> {
            let mut rows = Rows::new(1);
            rows.push(&Value::Int(1));
            self.0.clone().map(|()| Reply { rows, count: 1 })
        }
    }

    #[test]
    fn an_order_is_undone_when_it_is_to_be_and_the_procedure_says_why() {
        let refused = |message: &str| Failure::Refused {
            code: "P0001".to_owned(),
            message: message.to_owned(),
        };
        let unused = refused("SQL error; tpcc: unused item");
        let missing = refused("tpcc: a row is missing");
        let conflict = Failure::Conflict(Conflict::Deadlock);
        for (is_unplaceable, said, ending) in [
            (false, Ok(()), Ok(Ending::Commit)),
            (true, Err(unused.clone()), Ok(Ending::Rollback)),
            (false, Err(unused.clone()), Err(unused)),
            (true, Err(missing.clone()), Err(missing)),
            (true, Err(conflict.clone()), Err(conflict)),
        ] {
            let call = Form::Procedures.of(order(is_unplaceable));
            assert!(call.is_single() && call.called().is_some_and(|logic| !logic.is_single()));
            let mut connection = Answering(said);
            assert_eq!(finish(call.run(Session::immediate(&mut connection))), ending);
        }
    }
}
