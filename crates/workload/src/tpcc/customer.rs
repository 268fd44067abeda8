//! A customer is found, by number or by last name (clauses 2.5.2.2 and 2.6.2.2).

use crate::{Failure, Session, Statement};

use super::inputs::{Customer, Key};

static BY_NAME: Statement = Statement::new(
    "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? \
     ORDER BY c_first, c_id",
);

/// The customer's number. Of several with a last name it is the one in the middle, by first name;
/// of an even count the earlier of the two.
pub(super) async fn number(customer: &Customer, session: &Session<'_>) -> Result<i64, Failure> {
    let name = match &customer.key {
        Key::Id(id) => return Ok(i64::from(*id)),
        Key::LastName(name) => name.as_str(),
    };
    let values = [customer.warehouse.into(), customer.district.into(), name.into()];
    let named = session.query_some(&BY_NAME, &values, "a customer of a last name").await?;
    let middle = (named.len() - 1) / 2;
    named.number(middle, 0, "a customer's number")
}
