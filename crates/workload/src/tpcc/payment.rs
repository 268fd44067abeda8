//! Payment (clause 2.5): a customer pays, and district and warehouse count it.
//!
//! Phases: `I` counts the payment in warehouse and district, which all payments of a warehouse wait
//! for; `II` selects the customer; `III` changes the customer and writes the history. I and II are
//! those of the deterioration study's Figure 5, which counts the rest apart.
//!
//! A customer of a last name is selected in two statements, for the customer is to be locked but
//! not others of that name.
//!
//! The past of a customer with bad credit is read with the lock as well, although the customer is
//! locked already. MariaDB at REPEATABLE READ, its default, reads without a lock as of the
//! transaction's first such read, here that of the warehouse, while a read with a lock gives the
//! row as it is now. A payment at another warehouse that was committed in between would be missing
//! in the past that is written back, which the isolation of clause 3.4 forbids. Elsewhere the lock
//! changes nothing.

use std::sync::Arc;

use crate::workload::Transaction;
use crate::{Ending, Failure, Running, Session, Statement, Value};

use super::customer;
use super::inputs::Payment;

pub(super) const PHASES: &[&str] = &["I", "II", "III"];

/// The longest that is kept of a customer's past.
const PAST_LENGTH: usize = 500;

static PAY_WAREHOUSE: Statement =
    Statement::new("UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?");
static WAREHOUSE: Statement = Statement::new(
    "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = ?",
);
static PAY_DISTRICT: Statement =
    Statement::new("UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?");
static DISTRICT: Statement = Statement::new(
    "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district \
     WHERE d_w_id = ? AND d_id = ?",
);
static CUSTOMER: Statement = Statement::new(
    "SELECT c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, \
     c_phone, c_since, c_credit_lim, c_discount, c_balance FROM customer \
     WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE",
);
static PAST: Statement = Statement::new(
    "SELECT c_data FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE",
);
static PAY: Statement = Statement::new(
    "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, \
     c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
);
static PAY_WITH_PAST: Statement = Statement::new(
    "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, \
     c_payment_cnt = c_payment_cnt + 1, c_data = ? WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
);
static INSERT_HISTORY: Statement = Statement::new(
    "INSERT INTO history \
     (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
);

impl Transaction for Payment {
    fn kind(&self) -> usize {
        super::PAYMENT
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move { pay(&self, &session).await })
    }
}

async fn pay(payment: &Payment, session: &Session<'_>) -> Result<Ending, Failure> {
    let place = count(payment, session).await?;
    session.phase(1);
    let customer = customer::number(&payment.customer, session).await?;
    let of = &payment.customer;
    let key: [Value<'_>; 3] = [of.warehouse.into(), of.district.into(), customer.into()];
    let found = session.query_some(&CUSTOMER, &key, "a payment's customer").await?;
    session.phase(2);
    match found.text(0, 0) {
        Some("BC") => pay_with_bad_credit(payment, &key, customer, session).await?,
        _ => pay_with_good_credit(payment, &key, session).await?,
    }
    let [w, d, c] = key;
    let values = [
        c,
        d,
        w,
        payment.district.into(),
        payment.warehouse.into(),
        payment.moment.into(),
        payment.amount.into(),
        place.into(),
    ];
    session.execute(&INSERT_HISTORY, &values).await?;
    Ok(Ending::Commit)
}

/// Phase I: counts the payment and returns the names of warehouse and district.
async fn count(payment: &Payment, session: &Session<'_>) -> Result<String, Failure> {
    let (w, d, amount) = (payment.warehouse, payment.district, payment.amount);
    session.execute(&PAY_WAREHOUSE, &[amount.into(), w.into()]).await?;
    let warehouse = session.query(&WAREHOUSE, &[w.into()]).await?;
    session.execute(&PAY_DISTRICT, &[amount.into(), w.into(), d.into()]).await?;
    let district = session.query(&DISTRICT, &[w.into(), d.into()]).await?;
    match (warehouse.text(0, 0), district.text(0, 0)) {
        (Some(warehouse), Some(district)) => Ok(format!("{warehouse}    {district}")),
        _ => Err(Failure::Unexpected("a payment's warehouse and district")),
    }
}

async fn pay_with_good_credit(
    payment: &Payment,
    [w, d, c]: &[Value<'_>; 3],
    session: &Session<'_>,
) -> Result<(), Failure> {
    let amount = payment.amount;
    let values = [amount.into(), amount.into(), w.clone(), d.clone(), c.clone()];
    session.execute(&PAY, &values).await?;
    Ok(())
}

/// Of a customer with bad credit the payment is noted in the past as well.
async fn pay_with_bad_credit(
    payment: &Payment,
    key: &[Value<'_>; 3],
    customer: i64,
    session: &Session<'_>,
) -> Result<(), Failure> {
    let rows = session.query(&PAST, key).await?;
    let past = rows.text(0, 0).ok_or(Failure::Unexpected("a customer's past"))?;
    let past = noted(payment, customer, past);
    let amount = payment.amount;
    let [w, d, c] = key.clone();
    let values = [amount.into(), amount.into(), past.into(), w, d, c];
    session.execute(&PAY_WITH_PAST, &values).await?;
    Ok(())
}

/// A customer's past with a payment before it, cut off at its end.
fn noted(payment: &Payment, customer: i64, past: &str) -> String {
    let Payment { warehouse, district, customer: of, amount, .. } = payment;
    let mut noted = format!(
        "{customer} {} {} {district} {warehouse} {amount} {past}",
        of.district, of.warehouse
    );
    while noted.len() > PAST_LENGTH {
        noted.pop();
    }
    noted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::inputs::{Customer, Key};

    #[test]
    fn a_past_begins_with_the_last_payment_and_ends_at_its_length() {
        let payment = Payment {
            warehouse: 1,
            district: 2,
            customer: Customer { warehouse: 3, district: 4, key: Key::Id(5) },
            amount: 678,
            moment: 0,
        };
        assert_eq!(noted(&payment, 5, "before"), "5 4 3 2 1 678 before");
        let long = noted(&payment, 5, &"x".repeat(500));
        assert_eq!(long.len(), 500);
        assert!(long.starts_with("5 4 3 2 1 678 xxx") && long.ends_with('x'));
    }
}
