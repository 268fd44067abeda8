//! Stock-Level (clause 2.8): how many of the items in a district's last 20 orders are low in stock.
//! It only reads.
//!
//! Phases: `district`, `stock`.

use std::sync::Arc;

use crate::workload::Transaction;
use crate::{Ending, Failure, Running, Session, Statement};

use super::inputs::StockLevel;

pub(super) const PHASES: &[&str] = &["district", "stock"];

const ORDERS: i64 = 20;

static DISTRICT: Statement =
    Statement::new("SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?");
static LOW: Statement = Statement::new(
    "SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock \
     WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id >= ? AND ol_o_id < ? \
     AND s_w_id = ? AND s_i_id = ol_i_id AND s_quantity < ?",
);

impl Transaction for StockLevel {
    fn kind(&self) -> usize {
        super::STOCK_LEVEL
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move { count(&self, &session).await })
    }
}

async fn count(level: &StockLevel, session: &Session<'_>) -> Result<Ending, Failure> {
    let (w, d) = (level.warehouse, level.district);
    let district = session.query(&DISTRICT, &[w.into(), d.into()]).await?;
    let next = district.number(0, 0, "a stock level's district")?;
    session.phase(1);
    let values =
        [w.into(), d.into(), (next - ORDERS).into(), next.into(), w.into(), level.threshold.into()];
    session.query_some(&LOW, &values, "a count").await?;
    Ok(Ending::Commit)
}
