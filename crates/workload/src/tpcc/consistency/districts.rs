//! Conditions 1 to 4: sums and counts of districts.

use crate::{Failure, Rows, Session, Statement};

use super::super::scale::DISTRICTS;
use super::{Findings, Place};

static WAREHOUSE: Statement = Statement::new("SELECT w_ytd FROM warehouse WHERE w_id = ?");
static DISTRICT: Statement =
    Statement::new("SELECT d_id, d_ytd, d_next_o_id FROM district WHERE d_w_id = ? ORDER BY d_id");
static ORDERS: Statement = Statement::new(
    "SELECT MAX(o_id), SUM(o_ol_cnt), COUNT(*) FROM orders WHERE o_w_id = ? AND o_d_id = ?",
);
static NEW_ORDERS: Statement = Statement::new(
    "SELECT MIN(no_o_id), MAX(no_o_id), COUNT(*) FROM new_order WHERE no_w_id = ? AND no_d_id = ?",
);
static LINES: Statement =
    Statement::new("SELECT COUNT(*) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ?");

/// A warehouse, and what it has earned in cents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warehouse {
    pub(super) number: i32,
    pub(super) earned: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct District {
    pub(super) at: Place,
    pub(super) earned: i64,
    pub(super) next_order: i64,
    pub(super) orders: i64,
    pub(super) new_orders: i64,
    last_order: Option<i64>,
    /// The lines that orders say they have.
    lines_said: i64,
    lines: i64,
    /// The lowest and the highest of the new orders.
    span: Option<(i64, i64)>,
}

/// Reads a warehouse with its districts.
pub(super) async fn read(
    session: &Session<'_>,
    w: i32,
) -> Result<(Warehouse, Vec<District>), Failure> {
    let rows = session.query(&WAREHOUSE, &[w.into()]).await?;
    let earned = rows.number(0, 0, "each warehouse")?;
    let rows = session.query(&DISTRICT, &[w.into()]).await?;
    if rows.len() != DISTRICTS.unsigned_abs() as usize {
        return Err(Failure::Unexpected("ten districts of each warehouse"));
    }
    let mut districts = Vec::with_capacity(rows.len());
    for row in 0..rows.len() {
        districts.push(district(session, w, &rows, row).await?);
    }
    Ok((Warehouse { number: w, earned }, districts))
}

async fn district(
    session: &Session<'_>,
    w: i32,
    rows: &Rows,
    row: usize,
) -> Result<District, Failure> {
    let number = |column| rows.number(row, column, "a district's numbers");
    let at = Place { warehouse: w, district: number(0)? };
    let key = [w.into(), at.district.into()];
    let orders = session.query(&ORDERS, &key).await?;
    let new_orders = session.query(&NEW_ORDERS, &key).await?;
    let lines = session.query(&LINES, &key).await?;
    Ok(District {
        at,
        earned: number(1)?,
        next_order: number(2)?,
        orders: orders.sum(2)?,
        new_orders: new_orders.sum(2)?,
        last_order: orders.int(0, 0),
        lines_said: orders.sum(1)?,
        lines: lines.sum(0)?,
        span: new_orders.int(0, 0).zip(new_orders.int(0, 1)),
    })
}

/// Checks a warehouse and its districts.
pub(super) fn check(warehouse: &Warehouse, districts: &[District], findings: &mut Findings) {
    let sum: i64 = districts.iter().map(|district| district.earned).sum();
    findings.expect(1, warehouse.earned == sum, || {
        let Warehouse { number, earned } = warehouse;
        format!("warehouse {number}: W_YTD is {earned}, its districts' D_YTD add up to {sum}")
    });
    for district in districts {
        check_district(district, findings);
    }
}

fn check_district(district: &District, findings: &mut Findings) {
    let District { at, next_order, last_order, lines, lines_said, new_orders, .. } = district;
    let last = next_order - 1;
    let is_last = *last_order == Some(last) && district.span.is_none_or(|span| span.1 == last);
    findings.expect(2, is_last, || {
        let new = district.span.map(|span| span.1);
        format!(
            "{at}: D_NEXT_O_ID - 1 is {last}, the highest O_ID {}, the highest NO_O_ID {}",
            told(*last_order),
            told(new)
        )
    });
    if let Some((low, high)) = district.span {
        findings.expect(3, high - low + 1 == *new_orders, || {
            format!("{at}: {new_orders} rows in NEW-ORDER from {low} to {high}")
        });
    }
    findings.expect(4, lines == lines_said, || {
        format!("{at}: O_OL_CNT add up to {lines_said}, but there are {lines} order lines")
    });
}

fn told(number: Option<i64>) -> String {
    number.map_or_else(|| "none".to_owned(), |number| number.to_string())
}
