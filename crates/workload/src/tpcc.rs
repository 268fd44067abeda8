//! TPC-C: a wholesale supplier's orders (TPC Benchmark C, Standard Specification, revision 5.11).
//!
//! Nine tables, five transactions, twelve conditions of consistency. Each client is a
//! [terminal](Mix) of one warehouse, most of whose work stays there; so the number of warehouses is
//! the size of the database and the width of its hottest rows alike: every Payment changes one of
//! so many rows.
//!
//! | transaction | reads and writes | waits for |
//! | --- | --- | --- |
//! | New-Order | 23 rows read, 23 written in the mean, of 10 items | one of ten districts |
//! | Payment | 3 read and written, 1 inserted | the warehouse |
//! | Order-Status | 12 rows read | nobody |
//! | Delivery | 130 rows changed or deleted, 13 in each district | the other Deliveries |
//! | Stock-Level | 20 orders' lines with their stock | nobody |
//!
//! # Example
//! Two warehouses and the standard mix, without think time: `Tpcc::new(Scale::new(2)?)`. Of 100
//! transactions of a client 45 are New-Orders. One New-Order in a hundred finds at its last line
//! that an item does not exist, and undoes all it did; one in ten has a line from the other
//! warehouse. 15 of 100 Payments are by a customer of the other one.
//!
//! # Form
//! The logic is in the clients, which send the statements of a transaction one by one, or in
//! [procedures](Form) of the database, which they call. Both do the same from the same seed.
//!
//! # Where this leaves the specification
//! * **Types.** Money is a whole number of cents, a rate one of ten-thousandths (clause 1.3 has
//!   decimals), so that all databases add them up alike. A moment is microseconds since 1970 in a
//!   number of 64 bits.
//! * **Moments.** Transactions see no clock: a terminal's first transaction is a second after the
//!   load, each other a second after the one before. So a seed repeats a run value by value.
//! * **Scale.** [`Scale::reduced`] has fewer items and fewer customers, as the specification has
//!   not: for tests and small machines. Last names, order numbers and `NURand` are fitted to it.
//! * **Delivery** is not deferred: its terminal waits for it (clause 2.7.2).
//! * **Screens.** What only a screen shows is fetched but not worked out: totals, brand-generic
//!   marks. The menu and its response time are left out.
//! * **Shares at random.** 10 % of the items ORIGINAL and the like are drawn row by row.
//! * **No foreign keys** are declared, and the history has no key at all, as clause 1.4 allows.
//!
//! # Limits
//! * The middle one of several customers of a last name depends on how the database sorts first
//!   names: with or without regard to case. So two databases may take different customers from the
//!   same seed.
//! * Nothing here asks for the rest of the specification: the ratio of terminals to warehouses, the
//!   growth of 180 days, the ACID tests. Results are no TPC-C results.

mod consistency;
mod customer;
mod delivery;
mod inputs;
mod new_order;
mod order_status;
mod payment;
mod population;
mod procedures;
mod random;
mod scale;
mod schema;
mod stock_level;
mod terminal;

pub use procedures::Form;
pub use scale::{DISTRICTS, Scale, TpccScaleError};
pub use terminal::Mix;

use crate::workload::{Client, Condition, Depth, Kind, Workload};
use crate::{Dialect, Procedure, Random, Running, Session, Table, Value};
use inputs::Inputs;
use random::Constants;
use terminal::Terminal;

/// The place of New-Order among the kinds.
pub const NEW_ORDER: usize = 0;
/// The place of Payment.
pub const PAYMENT: usize = 1;
/// The place of Order-Status.
pub const ORDER_STATUS: usize = 2;
/// The place of Delivery.
pub const DELIVERY: usize = 3;
/// The place of Stock-Level.
pub const STOCK_LEVEL: usize = 4;

const KINDS: [Kind; 5] = [
    Kind { name: "new-order", phases: new_order::PHASES },
    Kind { name: "payment", phases: payment::PHASES },
    Kind { name: "order-status", phases: order_status::PHASES },
    Kind { name: "delivery", phases: delivery::PHASES },
    Kind { name: "stock-level", phases: stock_level::PHASES },
];

const CALLED_KINDS: [Kind; 5] = [
    Kind { name: "new-order", phases: procedures::PHASES },
    Kind { name: "payment", phases: procedures::PHASES },
    Kind { name: "order-status", phases: procedures::PHASES },
    Kind { name: "delivery", phases: procedures::PHASES },
    Kind { name: "stock-level", phases: procedures::PHASES },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tpcc {
    pub scale: Scale,
    pub mix: Mix,
    /// Whether clients take keying and think times; without, each starts its next transaction at
    /// once.
    pub takes_time: bool,
    /// Whether clients send statements or call procedures.
    pub form: Form,
}

impl Tpcc {
    /// The standard mix without keying and think times, as statements.
    pub fn new(scale: Scale) -> Self {
        Tpcc { scale, mix: Mix::STANDARD, takes_time: false, form: Form::Statements }
    }
}

impl Workload for Tpcc {
    fn name(&self) -> &'static str {
        "tpcc"
    }

    fn kinds(&self) -> &'static [Kind] {
        match self.form {
            Form::Statements => &KINDS,
            Form::Procedures => &CALLED_KINDS,
        }
    }

    fn tables(&self) -> Vec<Table> {
        schema::tables()
    }

    fn rows(&self, table: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_> {
        population::rows(self.scale, table)
    }

    fn procedures(&self, dialect: Dialect) -> Vec<Procedure> {
        procedures::of(dialect)
    }

    /// Clients go round the warehouses, and those of a warehouse round its districts, where their
    /// Stock-Levels look (clause 2.8.1.1).
    fn client(&self, number: usize, _clients: usize, seed: u64) -> Box<dyn Client> {
        let one_of = |number: usize, count: i32| {
            let count = count.cast_unsigned() as usize;
            i32::try_from(number % count).expect("below a number of 32 bits") + 1
        };
        let warehouses = self.scale.warehouses();
        let districts = number / warehouses.cast_unsigned() as usize;
        let home = (one_of(number, warehouses), one_of(districts, DISTRICTS));
        let inputs = Inputs { scale: self.scale, constants: Constants::of_run(seed), home };
        let draw = Random::new(seed, number as u64);
        Box::new(Terminal::new(inputs, self.form, self.mix, self.takes_time, draw))
    }

    fn check<'d>(&self, session: Session<'d>, depth: Depth) -> Running<'d, Vec<Condition>> {
        let scale = self.scale;
        Box::pin(async move { consistency::check(&session, scale, depth).await })
    }
}
