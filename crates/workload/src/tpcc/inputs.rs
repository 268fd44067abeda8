//! What a terminal types in: the values of each transaction (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1 and
//! 2.8.1).

use crate::Random;

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

impl NewOrder {
    pub(super) fn line_count(&self) -> i64 {
        i64::try_from(self.lines.len()).expect("an order has 5 to 15 lines")
    }

    /// Whether the order's own warehouse supplies all of its lines.
    pub(super) fn is_local(&self) -> bool {
        self.lines.iter().all(|line| line.supplier == self.warehouse)
    }
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
    pub(super) fn new_order(&self, draw: &mut Random, moment: i64) -> NewOrder {
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

    fn line(&self, draw: &mut Random) -> Line {
        let is_remote = per_cent(draw, 1);
        Line {
            item: self.constants.item(self.scale, draw),
            supplier: if is_remote { self.other_warehouse(draw) } else { self.home.0 },
            quantity: draw.between(1, 10),
        }
    }

    /// The next Payment, in 15 % for a customer of another warehouse.
    pub(super) fn payment(&self, draw: &mut Random, moment: i64) -> Payment {
        let district = draw.between(1, DISTRICTS);
        let (warehouse, of) = if per_cent(draw, 85) {
            (self.home.0, district)
        } else {
            (self.other_warehouse(draw), draw.between(1, DISTRICTS))
        };
        Payment {
            warehouse: self.home.0,
            district,
            customer: self.customer(draw, warehouse, of),
            // 1.00 to 5,000.00.
            amount: draw.between(100, 500_000).into(),
            moment,
        }
    }

    pub(super) fn order_status(&self, draw: &mut Random) -> OrderStatus {
        let district = draw.between(1, DISTRICTS);
        OrderStatus { customer: self.customer(draw, self.home.0, district) }
    }

    pub(super) fn delivery(&self, draw: &mut Random, moment: i64) -> Delivery {
        Delivery { warehouse: self.home.0, carrier: draw.between(1, 10), moment }
    }

    pub(super) fn stock_level(&self, draw: &mut Random) -> StockLevel {
        let (warehouse, district) = self.home;
        StockLevel { warehouse, district, threshold: draw.between(10, 20) }
    }

    /// A customer of a district, in 60 % by last name.
    fn customer(&self, draw: &mut Random, warehouse: i32, district: i32) -> Customer {
        let key = if per_cent(draw, 60) {
            Key::LastName(last_name(self.constants.last_name(self.scale, draw)))
        } else {
            Key::Id(self.constants.customer(self.scale, draw))
        };
        Customer { warehouse, district, key }
    }

    /// A warehouse that is not the terminal's, unless that is the only one.
    fn other_warehouse(&self, draw: &mut Random) -> i32 {
        let (home, warehouses) = (self.home.0, self.scale.warehouses());
        if warehouses == 1 {
            return home;
        }
        let drawn = draw.between(1, warehouses - 1);
        if drawn < home { drawn } else { drawn + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: usize = 20_000;

    fn inputs(warehouses: u32, home: i32) -> Inputs {
        let scale = Scale::new(warehouses).unwrap();
        Inputs { scale, constants: Constants::of_run(1), home: (home, 4) }
    }

    /// Whether a count of so many is a share of so many per cent, within six standard deviations.
    fn is_share(count: usize, of: usize, per_cent: f64) -> bool {
        let (of, share) = (of as f64, per_cent / 100.0);
        (count as f64 - of * share).abs() < 6.0 * (of * share * (1.0 - share)).sqrt()
    }

    #[test]
    fn orders_are_drawn_by_the_specification() {
        let inputs = inputs(5, 3);
        let mut draw = Random::new(1, 0);
        let orders: Vec<NewOrder> = (0..TIMES).map(|_| inputs.new_order(&mut draw, 7)).collect();
        let undone = orders.iter().filter(|order| order.is_unplaceable).count();
        assert!(is_share(undone, TIMES, 1.0), "{undone}");
        for order in &orders {
            assert_eq!((order.warehouse, order.moment), (3, 7));
            assert!((1..=10).contains(&order.district) && (1..=3_000).contains(&order.customer));
            assert!((5..=15).contains(&order.lines.len()));
            let (last, others) = order.lines.split_last().unwrap();
            assert_eq!(last.item == 100_001, order.is_unplaceable);
            assert!(others.iter().all(|line| (1..=100_000).contains(&line.item)));
        }
        let lines: Vec<&Line> = orders.iter().flat_map(|order| &order.lines).collect();
        assert!(lines.iter().all(|line| (1..=10).contains(&line.quantity)));
        assert!((9.9..10.1).contains(&(lines.len() as f64 / TIMES as f64)));
        let remote = lines.iter().filter(|line| line.supplier != 3).count();
        assert!(is_share(remote, lines.len(), 1.0), "{remote}");
        for other in [1, 2, 4, 5] {
            let from = lines.iter().filter(|line| line.supplier == other).count();
            assert!(is_share(from, remote, 25.0), "{from} of {remote} from {other}");
        }
    }

    #[test]
    fn payments_are_drawn_by_the_specification() {
        let inputs = inputs(2, 1);
        let mut draw = Random::new(2, 0);
        let payments: Vec<Payment> = (0..TIMES).map(|_| inputs.payment(&mut draw, 7)).collect();
        let count = |is: fn(&&Payment) -> bool| payments.iter().filter(is).count();
        let remote = count(|payment| payment.customer.warehouse != 1);
        assert!(is_share(remote, TIMES, 15.0), "{remote}");
        let by_name = count(|payment| matches!(payment.customer.key, Key::LastName(_)));
        assert!(is_share(by_name, TIMES, 60.0), "{by_name}");
        let moved = count(|payment| payment.customer.district != payment.district);
        // Nine in ten of the remote ones.
        assert!(is_share(moved, TIMES, 13.5), "{moved}");
        for payment in &payments {
            assert_eq!(payment.warehouse, 1);
            assert!((100..=500_000).contains(&payment.amount));
            let local = payment.customer.warehouse == 1;
            assert!(!local || payment.customer.district == payment.district);
        }
    }

    #[test]
    fn the_other_transactions_stay_at_home() {
        let inputs = inputs(2, 2);
        let mut draw = Random::new(3, 0);
        for _ in 0..1_000 {
            assert_eq!(inputs.order_status(&mut draw).customer.warehouse, 2);
            let delivery = inputs.delivery(&mut draw, 7);
            assert!(delivery.warehouse == 2 && (1..=10).contains(&delivery.carrier));
            let level = inputs.stock_level(&mut draw);
            assert_eq!((level.warehouse, level.district), (2, 4));
            assert!((10..=20).contains(&level.threshold));
        }
    }

    #[test]
    fn a_single_warehouse_has_nobody_else() {
        let inputs = inputs(1, 1);
        let mut draw = Random::new(4, 0);
        for _ in 0..1_000 {
            assert_eq!(inputs.payment(&mut draw, 7).customer.warehouse, 1);
            let order = inputs.new_order(&mut draw, 7);
            assert!(order.lines.iter().all(|line| line.supplier == 1));
        }
    }
}
