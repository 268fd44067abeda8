//! Order-Status (clause 2.6): what has become of a customer's last order. It only reads.
//!
//! Phases: `customer`, `order`, `lines`.

use std::sync::Arc;

use crate::workload::Transaction;
use crate::{Ending, Failure, Running, Session, Statement, Value};

use super::customer;
use super::inputs::OrderStatus;

pub(super) const PHASES: &[&str] = &["customer", "order", "lines"];

static CUSTOMER: Statement = Statement::new(
    "SELECT c_balance, c_first, c_middle, c_last FROM customer \
     WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
);
static ORDER: Statement = Statement::new(
    "SELECT o_id, o_entry_d, o_carrier_id FROM orders \
     WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? ORDER BY o_id DESC LIMIT 1",
);
static LINES: Statement = Statement::new(
    "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
     WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
);

impl Transaction for OrderStatus {
    fn kind(&self) -> usize {
        super::ORDER_STATUS
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move { look(&self, &session).await })
    }
}

async fn look(status: &OrderStatus, session: &Session<'_>) -> Result<Ending, Failure> {
    let customer = customer::number(&status.customer, session).await?;
    let (w, d) = (status.customer.warehouse, status.customer.district);
    let key: [Value<'_>; 3] = [w.into(), d.into(), customer.into()];
    session.query_some(&CUSTOMER, &key, "an order status's customer").await?;
    session.phase(1);
    let order = session.query(&ORDER, &key).await?;
    let order = order.number(0, 0, "an order of a customer")?;
    session.phase(2);
    let key = [w.into(), d.into(), order.into()];
    session.query_some(&LINES, &key, "the lines of an order").await?;
    Ok(Ending::Commit)
}
