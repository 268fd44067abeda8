//! The consistency conditions of clause 3.3.2, on all warehouses.
//!
//! | condition | says | depth |
//! | --- | --- | --- |
//! | 1 | `W_YTD` = sum of its `D_YTD` | quick |
//! | 2 | `D_NEXT_O_ID` − 1 = highest `O_ID` = highest `NO_O_ID` of the district | quick |
//! | 3 | the district's `NO_O_ID` have no gap | quick |
//! | 4 | sum of `O_OL_CNT` = order lines of the district | quick |
//! | 5 | an order has no carrier when it is in NEW-ORDER, and only then | full |
//! | 6 | `O_OL_CNT` = the order's lines | full |
//! | 7 | a line has no delivery date when its order has no carrier, and only then | full |
//! | 8 | `W_YTD` = sum of the warehouse's `H_AMOUNT` | full |
//! | 9 | `D_YTD` = sum of the district's `H_AMOUNT` | full |
//! | 10 | `C_BALANCE` = amounts of delivered lines − the customer's `H_AMOUNT` | full |
//! | 11 | orders − new orders of a district = those delivered | full |
//! | 12 | `C_BALANCE` + `C_YTD_PAYMENT` = amounts of delivered lines | full |
//!
//! Where a district has no new orders, 2 and 3 do not ask for any, as the clause allows.
//!
//! # Where this leaves the specification
//! Condition 11 gives the number delivered as 2,100, which is so until the first Delivery. Here the
//! deliveries that the district's customers have counted (`C_DELIVERY_CNT`) are added.
//!
//! # Mechanism
//! Statements add up single tables; what must agree is compared here, so that there is one
//! definition for all databases. Depth quick needs a few counts for each district. Depth full reads
//! the orders of a district in [pages](orders), and the customers of a district; it reads each
//! warehouse's part of the history twice, which is a scan of all of it, for it has no key.

mod districts;
mod history;
mod orders;

use crate::workload::{Condition, Depth};
use crate::{Failure, Session};

use super::scale::Scale;
use history::Payments;

const NAMES: [&str; 12] = [
    "TPC-C 3.3.2.1",
    "TPC-C 3.3.2.2",
    "TPC-C 3.3.2.3",
    "TPC-C 3.3.2.4",
    "TPC-C 3.3.2.5",
    "TPC-C 3.3.2.6",
    "TPC-C 3.3.2.7",
    "TPC-C 3.3.2.8",
    "TPC-C 3.3.2.9",
    "TPC-C 3.3.2.10",
    "TPC-C 3.3.2.11",
    "TPC-C 3.3.2.12",
];

/// The last of the conditions that are quick to check.
const QUICK: usize = 4;

pub(super) async fn check(
    session: &Session<'_>,
    scale: Scale,
    depth: Depth,
) -> Result<Vec<Condition>, Failure> {
    let mut findings = Findings::default();
    for w in 1..=scale.warehouses() {
        let (warehouse, districts) = districts::read(session, w).await?;
        districts::check(&warehouse, &districts, &mut findings);
        if depth == Depth::Quick {
            continue;
        }
        let payments = Payments::read(session, w).await?;
        history::check(&warehouse, &districts, &payments, &mut findings);
        for district in &districts {
            let delivered = orders::check(session, district.at, &mut findings).await?;
            let customers = history::customers(session, district.at).await?;
            history::check_customers(
                scale,
                district,
                &customers,
                &delivered,
                &payments,
                &mut findings,
            );
        }
    }
    Ok(findings.into_conditions(depth))
}

/// A district by its warehouse and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    warehouse: i32,
    district: i64,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "warehouse {}, district {}", self.warehouse, self.district)
    }
}

/// The violations found: of each condition the first, and how many more.
#[derive(Debug, Default)]
struct Findings {
    violations: [Option<(String, u64)>; 12],
}

impl Findings {
    /// Condition `number` holds at one place, or is violated as it is said.
    fn expect(&mut self, number: usize, holds: bool, violation: impl FnOnce() -> String) {
        if holds {
            return;
        }
        match self.violations.get_mut(number - 1) {
            Some(Some((_, more))) => *more += 1,
            Some(none) => *none = Some((violation(), 0)),
            None => {}
        }
    }

    fn into_conditions(self, depth: Depth) -> Vec<Condition> {
        let count = if depth == Depth::Quick { QUICK } else { NAMES.len() };
        let told = |(first, more)| match more {
            0 => first,
            _ => format!("{first}; and {more} more"),
        };
        let conditions = NAMES.into_iter().zip(self.violations).take(count);
        conditions
            .map(|(name, violation)| Condition { name, violation: violation.map(told) })
            .collect()
    }
}
