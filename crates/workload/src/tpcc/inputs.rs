//! What a terminal types in: the values of each transaction (the first clause of each profile, 2.4.1
//! to 2.8.1).

use crate::Draw;

use super::random::{Constants, last_name, per_cent};
use super::scale::{DISTRICTS, Scale};

/// What values are drawn by.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    pub(super) scale: Scale,
    pub(super) constants: Constants,
    /// The terminal's warehouse, and its district for Stock-Level.
    pub(super) home: (i32, i32),
}

/// A New-Order's values (clause 2.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewOrder {
    pub(super) warehouse: i32,
    pub(super) district: i32,
    pub(super) customer: i32,
    pub(super) lines: Vec<Line>,
    /// Whether the last line's item is one that does not exist.
    pub(super) is_unplaceable: bool,
    pub(super) moment: i64,
}

/// A line of an order: an item, the warehouse that supplies it, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) item: i32,
    pub(super) supplier: i32,
    pub(super) quantity: i32,
}

/// A Payment's values (clause 2.5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Payment {
    pub(super) warehouse: i32,
    pub(super) district: i32,
    pub(super) customer: Customer,
    /// In cents.
    pub(super) amount: i64,
    pub(super) moment: i64,
}

/// A customer, as the terminal knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Customer {
    pub(super) warehouse: i32,
    pub(super) district: i32,
    pub(super) key: Key,
}

/// What a customer is found by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Id(i32),
    LastName(String),
}

/// An Order-Status's values (clause 2.6.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OrderStatus {
    pub(super) customer: Customer,
}

/// A Delivery's values (clause 2.7.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) warehouse: i32,
    pub(super) carrier: i32,
    pub(super) moment: i64,
}

/// A Stock-Level's values (clause 2.8.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StockLevel {
    pub(super) warehouse: i32,
    pub(super) district: i32,
    pub(super) threshold: i32,
}

impl Inputs {
    /// The next New-Order: 5 to 15 lines, 1 % of them of another warehouse; in 1 % of the orders
    /// the last line is of an item that does not exist.
    pub(super) fn new_order(&self, draw: &mut Draw, moment: i64) -> NewOrder {
        let count = draw.between(5, 15);
        let mut lines: Vec<Line> = (0..count).map(|_| self.line(draw)).collect();
        let is_unplaceable = per_cent(draw, 1);
        if let Some(last) = lines.last_mut().filter(|_| is_unplaceable) {
            last.item = self.scale.items() + 1;
        }
        NewOrder {
            warehouse: self.home.0,
            district: draw.between(1, DISTRICTS),
            customer: self.constants.customer(self.scale, draw),
            lines,
            is_unplaceable,
            moment,
        }
    }

    fn line(&self, draw: &mut Draw) -> Line {
        let is_remote = per_cent(draw, 1);
        Line {
            item: self.constants.item(self.scale, draw),
            supplier: if is_remote { self.other_warehouse(draw) } else { self.home.0 },
            quantity: draw.between(1, 10),
        }
    }

    /// The next Payment, in 15 % for a customer of another warehouse.
    pub(super) fn payment(&self, draw: &mut Draw, moment: i64) -> Payment {
        let district = draw.between(1, DISTRICTS);
        let (warehouse, of) = match per_cent(draw, 85) {
            true => (self.home.0, district),
            false => (self.other_warehouse(draw), draw.between(1, DISTRICTS)),
        };
        Payment {
            warehouse: self.home.0,
            district,
            customer: self.customer(draw, warehouse, of),
            amount: draw.between(1_00, 5_000_00).into(),
            moment,
        }
    }

    /// The next Order-Status.
    pub(super) fn order_status(&self, draw: &mut Draw) -> OrderStatus {
        let district = draw.between(1, DISTRICTS);
        OrderStatus { customer: self.customer(draw, self.home.0, district) }
    }

    /// The next Delivery.
    pub(super) fn delivery(&self, draw: &mut Draw, moment: i64) -> Delivery {
        Delivery { warehouse: self.home.0, carrier: draw.between(1, 10), moment }
    }

    /// The next Stock-Level.
    pub(super) fn stock_level(&self, draw: &mut Draw) -> StockLevel {
        let (warehouse, district) = self.home;
        StockLevel { warehouse, district, threshold: draw.between(10, 20) }
    }

    /// A customer of a district, in 60 % by last name.
    fn customer(&self, draw: &mut Draw, warehouse: i32, district: i32) -> Customer {
        let key = match per_cent(draw, 60) {
            true => Key::LastName(last_name(self.constants.last_name(self.scale, draw))),
            false => Key::Id(self.constants.customer(self.scale, draw)),
        };
        Customer { warehouse, district, key }
    }

    /// A warehouse that is not the terminal's, unless that is the only one.
    fn other_warehouse(&self, draw: &mut Draw) -> i32 {
        let (home, warehouses) = (self.home.0, self.scale.warehouses());
        if warehouses == 1 {
            return home;
        }
        let drawn = draw.between(1, warehouses - 1);
        if drawn < home { drawn } else { drawn + 1 }
    }
}
