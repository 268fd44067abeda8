//! Delivery (clause 2.7): the oldest undelivered order of each of a warehouse's ten districts.
//!
//! All ten are one transaction, as the clause allows. A district without undelivered orders is left
//! out. The specification queues a Delivery and lets the terminal go on; that is not modelled: the
//! client waits for its end as for any other's.
//!
//! Phases, entered again for each district: `new-order`, `order`, `lines`, `customer`, after the
//! tables.

use std::sync::Arc;

use crate::workload::Transaction;
use crate::{Ending, Failure, Running, Session, Statement, Value};

use super::inputs::Delivery;
use super::scale::DISTRICTS;

pub(super) const PHASES: &[&str] = &["new-order", "order", "lines", "customer"];

static OLDEST: Statement = Statement::new(
    "SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ? \
     ORDER BY no_o_id LIMIT 1 FOR UPDATE",
);
static DELETE: Statement =
    Statement::new("DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?");
static ORDER: Statement = Statement::new(
    "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ? FOR UPDATE",
);
static UPDATE_ORDER: Statement = Statement::new(
    "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
);
static UPDATE_LINES: Statement = Statement::new(
    "UPDATE order_line SET ol_delivery_d = ? WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
);
static AMOUNT: Statement = Statement::new(
    "SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
);
static UPDATE_CUSTOMER: Statement = Statement::new(
    "UPDATE customer SET c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1 \
     WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
);

impl Transaction for Delivery {
    fn kind(&self) -> usize {
        super::DELIVERY
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            for district in 1..=DISTRICTS {
                deliver(&self, district, &session).await?;
            }
            Ok(Ending::Commit)
        })
    }
}

/// Delivers the oldest order of a district, if there is one.
async fn deliver(delivery: &Delivery, district: i32, session: &Session<'_>) -> Result<(), Failure> {
    let (w, d): (Value<'_>, Value<'_>) = (delivery.warehouse.into(), district.into());
    session.phase(0);
    let oldest = session.query(&OLDEST, &[w.clone(), d.clone()]).await?;
    let Some(order) = oldest.int(0, 0) else { return Ok(()) };
    let key = [w.clone(), d.clone(), order.into()];
    if session.execute(&DELETE, &key).await? != 1 {
        return Err(Failure::Unexpected("an undelivered order that is locked"));
    }
    session.phase(1);
    let customer = session.query(&ORDER, &key).await?;
    let customer = customer.number(0, 0, "an undelivered order")?;
    let carried = [delivery.carrier.into(), w.clone(), d.clone(), order.into()];
    session.execute(&UPDATE_ORDER, &carried).await?;
    session.phase(2);
    let delivered = [delivery.moment.into(), w.clone(), d.clone(), order.into()];
    session.execute(&UPDATE_LINES, &delivered).await?;
    let amount = session.query(&AMOUNT, &key).await?;
    let amount = amount.number(0, 0, "the lines of an order")?;
    session.phase(3);
    session.execute(&UPDATE_CUSTOMER, &[amount.into(), w, d, customer.into()]).await?;
    Ok(())
}
