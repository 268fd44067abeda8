//! Rows of an answer: what is selected of each, in order, and no more than asked for.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use tidegate_runtime::work::{self, Operation};
use tidegate_workload::{Reply, Rows, Value, Wants};

use super::error::SqlError;
use super::evaluate::{Given, order, own, wrong_type};
use super::plan::Output;

pub(super) struct Answer<'o> {
    output: &'o Output,
    given: Given<'o>,
    wants: Wants,
    limit: u64,
    reply: Reply,
    /// Rows that have to be sorted: what they are ordered by, and what is selected.
    unsorted: Vec<(Vec<Value<'static>>, Vec<Value<'static>>)>,
}

impl<'o> Answer<'o> {
    pub(super) fn new(
        output: &'o Output,
        given: Given<'o>,
        wants: Wants,
    ) -> Result<Self, SqlError> {
        let limit = match &output.limit {
            None => u64::MAX,
            Some(limit) => match given.evaluate(limit, &[])? {
                Value::Int(limit) if limit >= 0 => limit.cast_unsigned(),
                other => return Err(wrong_type(&other, "a number of rows to end at")),
            },
        };
        let reply = Reply { rows: Rows::new(output.items.len()), count: 0 };
        Ok(Answer { output, given, wants, limit, reply, unsorted: Vec::new() })
    }

    /// Whether no row at all is asked for.
    pub(super) fn is_full(&self) -> bool {
        self.reply.count >= self.limit
    }

    /// Takes a row; whether more are needed.
    pub(super) fn take(&mut self, row: &[Value<'static>]) -> Result<ControlFlow<()>, SqlError> {
        if self.output.order.is_empty() {
            for item in &self.output.items {
                let value = self.given.evaluate(item, row)?;
                if self.wants == Wants::Rows {
                    self.reply.rows.push(&value);
                }
            }
            self.reply.count += 1;
            return Ok(if self.is_full() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            });
        }
        let (mut by, mut items) = (Vec::new(), Vec::new());
        for order in &self.output.order {
            by.push(own(&self.given.evaluate(&order.expression, row)?));
        }
        for item in &self.output.items {
            items.push(own(&self.given.evaluate(item, row)?));
        }
        self.unsorted.push((by, items));
        Ok(ControlFlow::Continue(()))
    }

    /// The answer.
    pub(super) fn end(mut self) -> Reply {
        let orders = &self.output.order;
        let depth = self.unsorted.len().checked_ilog2().map_or(0, |depth| depth + 1);
        work::count(Operation::Sort, self.unsorted.len() as u64 * u64::from(depth));
        self.unsorted.sort_by(|(left, _), (right, _)| {
            let by = orders.iter().zip(left.iter().zip(right)).map(|(by, (left, right))| {
                let order = order(left, right);
                if by.is_descending { order.reverse() } else { order }
            });
            by.fold(Ordering::Equal, Ordering::then)
        });
        for (_, items) in self.unsorted {
            if self.reply.count >= self.limit {
                break;
            }
            self.reply.count += 1;
            if self.wants == Wants::Rows {
                for item in &items {
                    self.reply.rows.push(item);
                }
            }
        }
        self.reply
    }
}
