//! Conditions 8 to 12: what was paid, and what customers, districts and warehouses know of it.

use std::collections::BTreeMap;

use crate::{Failure, Rows, Session, Statement};

use super::super::scale::Scale;
use super::districts::{District, Warehouse};
use super::orders::Delivered;
use super::{Findings, Place};

static TO_DISTRICTS: Statement =
    Statement::new("SELECT h_d_id, SUM(h_amount) FROM history WHERE h_w_id = ? GROUP BY h_d_id");
static BY_CUSTOMERS: Statement = Statement::new(
    "SELECT h_c_d_id, h_c_id, SUM(h_amount) FROM history WHERE h_c_w_id = ? \
     GROUP BY h_c_d_id, h_c_id",
);
static CUSTOMERS: Statement = Statement::new(
    "SELECT c_id, c_balance, c_ytd_payment, c_delivery_cnt FROM customer \
     WHERE c_w_id = ? AND c_d_id = ?",
);

/// What the history knows of a warehouse, in cents.
#[derive(Debug)]
pub(super) struct Payments {
    to_districts: BTreeMap<i64, i64>,
    /// By district and number of the customer who paid, wherever.
    by_customers: BTreeMap<(i64, i64), i64>,
}

impl Payments {
    /// Adds up the history of a warehouse.
    pub(super) async fn read(session: &Session<'_>, w: i32) -> Result<Self, Failure> {
        let rows = session.query(&TO_DISTRICTS, &[w.into()]).await?;
        let to_districts = (0..rows.len()).map(|row| Some((rows.int(row, 0)?, rows.int(row, 1)?)));
        let to_districts: Option<_> = to_districts.collect();
        let rows = session.query(&BY_CUSTOMERS, &[w.into()]).await?;
        let by_customer = |row| Some(((rows.int(row, 0)?, rows.int(row, 1)?), rows.int(row, 2)?));
        let by_customers: Option<_> = (0..rows.len()).map(by_customer).collect();
        match (to_districts, by_customers) {
            (Some(to_districts), Some(by_customers)) => Ok(Payments { to_districts, by_customers }),
            _ => Err(Failure::Unexpected("the numbers of the history")),
        }
    }
}

/// What a customer's row says, in cents.
#[derive(Clone, Copy, Debug)]
pub(super) struct CustomerTotals {
    number: i64,
    balance: i64,
    paid: i64,
    deliveries: i64,
}

pub(super) async fn customers(
    session: &Session<'_>,
    at: Place,
) -> Result<Vec<CustomerTotals>, Failure> {
    let rows = session.query(&CUSTOMERS, &[at.warehouse.into(), at.district.into()]).await?;
    let customers: Option<_> = (0..rows.len()).map(|row| customer(&rows, row)).collect();
    customers.ok_or(Failure::Unexpected("the numbers of a customer"))
}

fn customer(rows: &Rows, row: usize) -> Option<CustomerTotals> {
    Some(CustomerTotals {
        number: rows.int(row, 0)?,
        balance: rows.int(row, 1)?,
        paid: rows.int(row, 2)?,
        deliveries: rows.int(row, 3)?,
    })
}

/// Checks what a warehouse and its districts have earned.
pub(super) fn check(
    warehouse: &Warehouse,
    districts: &[District],
    payments: &Payments,
    findings: &mut Findings,
) {
    let Warehouse { number, earned } = warehouse;
    let sum: i64 = payments.to_districts.values().sum();
    findings.expect(8, *earned == sum, || {
        format!("warehouse {number}: W_YTD is {earned}, its H_AMOUNT add up to {sum}")
    });
    for District { at, earned, .. } in districts {
        let sum = payments.to_districts.get(&at.district).copied().unwrap_or(0);
        findings.expect(9, *earned == sum, || {
            format!("{at}: D_YTD is {earned}, its H_AMOUNT add up to {sum}")
        });
    }
}

/// Checks a district's customers against the history and what was delivered.
pub(super) fn check_customers(
    scale: Scale,
    district: &District,
    customers: &[CustomerTotals],
    delivered: &Delivered,
    payments: &Payments,
    findings: &mut Findings,
) {
    let at = district.at;
    for CustomerTotals { number, balance, paid, .. } in customers {
        let due = delivered.get(number).copied().unwrap_or(0);
        let sum = payments.by_customers.get(&(at.district, *number)).copied().unwrap_or(0);
        findings.expect(10, *balance == due - sum, || {
            format!(
                "{at}: customer {number} has C_BALANCE {balance}, was delivered for {due} \
                 and paid {sum} by H_AMOUNT"
            )
        });
        findings.expect(12, balance + paid == due, || {
            format!(
                "{at}: customer {number} has C_BALANCE {balance} and C_YTD_PAYMENT {paid}, \
                 was delivered for {due}"
            )
        });
    }
    let deliveries: i64 = customers.iter().map(|customer| customer.deliveries).sum();
    let gone = i64::from(scale.first_undelivered() - 1) + deliveries;
    let District { orders, new_orders, .. } = district;
    findings.expect(11, orders - new_orders == gone, || {
        format!("{at}: of {orders} orders {new_orders} are new, but {gone} were delivered")
    });
}
