//! Transactions of workloads on a blocking client.

use tidegate_workload::{
    Connection, Dialect, Failure, Reply, Statement, Table, Value, Wants, render_value,
};

use super::{BlockingClient, Event, count, data_row, undoes, undone};
use crate::connection::Transactional;

/// Text of one INSERT of many rows, roughly, in bytes: large against a round trip, small against a
/// server's memory.
const INSERT_LEN: usize = 128 * 1024;

impl Connection for BlockingClient {
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure> {
        let mut sql = Vec::new();
        statement.render(Dialect::Postgres, values, &mut sql);
        let mut reply = Reply::default();
        BlockingClient::run(self, &sql, |event| match event {
            Event::Row(payload) if wants == Wants::Rows => {
                if let Ok(columns) = data_row(payload) {
                    reply.rows.push_row(columns);
                }
            }
            Event::Complete(payload) => reply.count = count(payload),
            Event::Row(_) | Event::Error(_) | Event::Ready(_) => {}
        })?;
        Ok(reply)
    }
}

impl Transactional for BlockingClient {
    fn begin(&mut self) -> Result<(), Failure> {
        Ok(BlockingClient::run(self, b"BEGIN", |_| {}).map(drop)?)
    }

    fn commit(&mut self) -> Result<(), Failure> {
        let mut is_undone = false;
        BlockingClient::run(self, b"COMMIT", |event| {
            is_undone |= matches!(event, Event::Complete(payload) if undoes(payload));
        })?;
        if is_undone { Err(undone()) } else { Ok(()) }
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        // A ROLLBACK outside a transaction is a warning, no error.
        Ok(BlockingClient::run(self, b"ROLLBACK", |_| {}).map(drop)?)
    }

    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn insert(&mut self, table: &Table, rows: &[Vec<Value<'static>>]) -> Result<(), Failure> {
        let mut rows = rows.iter().peekable();
        while rows.peek().is_some() {
            let mut sql = format!("INSERT INTO {} VALUES ", table.name).into_bytes();
            let mut separator = "(";
            while let Some(row) = rows.next_if(|_| sql.len() < INSERT_LEN) {
                sql.extend_from_slice(separator.as_bytes());
                render_row(row, &mut sql);
                separator = ", (";
            }
            BlockingClient::run(self, &sql, |_| {})?;
        }
        Ok(())
    }
}

/// Appends values with commas between and a parenthesis behind.
fn render_row(row: &[Value<'_>], sql: &mut Vec<u8>) {
    for (place, value) in row.iter().enumerate() {
        if place > 0 {
            sql.extend_from_slice(b", ");
        }
        render_value(value, sql);
    }
    sql.push(b')');
}
