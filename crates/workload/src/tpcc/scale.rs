//! How large the database is: warehouses, and what each of them holds.

use thiserror::Error;

/// Districts of a warehouse, by the specification and always.
pub const DISTRICTS: i32 = 10;

const MOST_WAREHOUSES: i32 = 100_000;
const ITEMS: i32 = 100_000;
const CUSTOMERS: i32 = 3_000;
/// Fewer would leave districts without undelivered orders.
const LEAST_CUSTOMERS: u32 = 10;
const LAST_NAMES: i32 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    warehouses: i32,
    items: i32,
    customers: i32,
}

/// A size that no database of this workload has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TpccScaleError {
    #[error("a number of warehouses from 1 to {MOST_WAREHOUSES} is needed, not {0}")]
    Warehouses(u32),
    #[error("a number of items from 1 to {ITEMS} is needed, not {0}")]
    Items(u32),
    #[error("a number of customers from {LEAST_CUSTOMERS} to {CUSTOMERS} is needed, not {0}")]
    Customers(u32),
}

impl Scale {
    /// So many warehouses as the specification fills them (clause 4.3.3.1): each with stock of
    /// 100,000 items and with ten districts of 3,000 customers and as many orders.
    pub fn new(warehouses: u32) -> Result<Self, TpccScaleError> {
        let warehouses =
            within(warehouses, 1, MOST_WAREHOUSES).ok_or(TpccScaleError::Warehouses(warehouses))?;
        Ok(Scale { warehouses, items: ITEMS, customers: CUSTOMERS })
    }

    /// The same warehouses with fewer items, and with fewer customers in each district: not a
    /// database of the specification any more, but one for tests and small machines.
    pub fn reduced(self, items: u32, customers: u32) -> Result<Self, TpccScaleError> {
        let items = within(items, 1, ITEMS).ok_or(TpccScaleError::Items(items))?;
        let customers = within(customers, LEAST_CUSTOMERS, CUSTOMERS)
            .ok_or(TpccScaleError::Customers(customers))?;
        Ok(Scale { items, customers, ..self })
    }

    /// Warehouses, numbered from 1.
    pub fn warehouses(self) -> i32 {
        self.warehouses
    }

    /// Items, numbered from 1.
    pub fn items(self) -> i32 {
        self.items
    }

    /// Customers of each district, numbered from 1; a district starts with as many orders.
    pub fn customers(self) -> i32 {
        self.customers
    }

    /// Last names, numbered from 0: a thousand, but no more than a district has customers, so that
    /// somebody has each.
    pub(super) fn last_names(self) -> i32 {
        LAST_NAMES.min(self.customers)
    }

    /// The first order of a district that is not delivered at the start; the last three in ten are
    /// not, 2,101 to 3,000 by the specification.
    pub(super) fn first_undelivered(self) -> i32 {
        self.customers - self.customers * 3 / 10 + 1
    }
}

fn within(number: u32, low: u32, high: i32) -> Option<i32> {
    i32::try_from(number).ok().filter(|&whole| number >= low && whole <= high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_the_specification_s_or_smaller() {
        let scale = Scale::new(7).unwrap();
        assert_eq!((scale.warehouses(), scale.items(), scale.customers()), (7, 100_000, 3_000));
        assert_eq!((scale.last_names(), scale.first_undelivered()), (1_000, 2_101));
        let small = scale.reduced(100, 30).unwrap();
        assert_eq!((small.warehouses(), small.items(), small.customers()), (7, 100, 30));
        assert_eq!((small.last_names(), small.first_undelivered()), (30, 22));
    }

    #[test]
    fn impossible_scales_are_refused_with_the_number_and_the_bounds() {
        let scale = Scale::new(1).unwrap();
        for (refused, message) in [
            (Scale::new(0), "a number of warehouses from 1 to 100000 is needed, not 0"),
            (Scale::new(100_001), "a number of warehouses from 1 to 100000 is needed, not 100001"),
            (scale.reduced(0, 30), "a number of items from 1 to 100000 is needed, not 0"),
            (
                scale.reduced(u32::MAX, 30),
                "a number of items from 1 to 100000 is needed, not 4294967295",
            ),
            (scale.reduced(9, 9), "a number of customers from 10 to 3000 is needed, not 9"),
            (scale.reduced(9, 3_001), "a number of customers from 10 to 3000 is needed, not 3001"),
        ] {
            assert_eq!(refused.unwrap_err().to_string(), message);
        }
    }
}
