//! The rows that the tables hold at the start (clause 4.3.3.1), made one by one.
//!
//! Each row has a sequence of draws of its own, named by its table and its key. So a row is the
//! same whoever asks for it and in which order, and an order's lines know the order's header
//! without anything being kept. Only the permutation that gives a district's orders to its
//! customers is held, and only for the district under way.
//!
//! Where a share of the rows is to be selected at random (10 % of the items and of the stock
//! ORIGINAL, 10 % of the customers with bad credit), each row is drawn with that chance.

use crate::{Draw, Value};

use super::random::{Constants, a_string, digits, last_name, letters, per_cent, zip};
use super::scale::{DISTRICTS, Scale};
use super::schema;

/// The moment of the load, in microseconds since 1970: the first of 2026.
pub(super) const LOADED_AT: i64 = 1_767_225_600_000_000;

/// What a customer has paid by then and an order has not: 10.00.
const FIRST_PAYMENT: i64 = 10_00;

/// The seed of the population, which is always the same.
const SEED: u64 = 511;

/// A permutation's place among the draws of [`schema`]'s tables.
const PERMUTATION: usize = 9;

type Row = Vec<Value<'static>>;

/// The rows of a table of [`schema::tables`], in the order of its primary key; none for a place
/// without a table.
pub(super) fn rows(scale: Scale, table: usize) -> Box<dyn Iterator<Item = Row> + Send> {
    let warehouses = 1..=scale.warehouses();
    match table {
        schema::ITEM => Box::new((1..=scale.items()).map(item)),
        schema::WAREHOUSE => Box::new(warehouses.map(move |w| warehouse(scale, w))),
        schema::STOCK => {
            Box::new(warehouses.flat_map(move |w| (1..=scale.items()).map(move |i| stock(w, i))))
        }
        schema::DISTRICT => Box::new(districts(scale).map(move |(w, d)| district(scale, w, d))),
        schema::CUSTOMER => Box::new(customers(scale).map(move |at| customer(scale, at))),
        schema::HISTORY => Box::new(customers(scale).map(history)),
        schema::ORDERS => Box::new(orders(scale)),
        schema::NEW_ORDER => Box::new(new_orders(scale)),
        schema::ORDER_LINE => Box::new(order_lines(scale)),
        _ => Box::new(std::iter::empty()),
    }
}

/// The draws of a row, or of another thing with such a key.
fn draw(table: usize, warehouse: i32, district: i32, number: i32) -> Draw {
    let word = |part: i32| u64::from(part.unsigned_abs());
    // Numbers are below 2^20, districts below 2^4, warehouses below 2^20, tables below 2^4.
    let key = word(warehouse) << 24 | word(district) << 20 | word(number);
    Draw::new(SEED, (table as u64) << 44 | key)
}

fn districts(scale: Scale) -> impl Iterator<Item = (i32, i32)> + Send {
    (1..=scale.warehouses()).flat_map(|w| (1..=DISTRICTS).map(move |d| (w, d)))
}

fn customers(scale: Scale) -> impl Iterator<Item = (i32, i32, i32)> + Send {
    districts(scale).flat_map(move |(w, d)| (1..=scale.customers()).map(move |c| (w, d, c)))
}

fn item(i: i32) -> Row {
    let draw = &mut draw(schema::ITEM, 0, 0, i);
    vec![
        i.into(),
        draw.between(1, 10_000).into(),
        a_string(draw, 14, 24).into(),
        draw.between(1_00, 100_00).into(),
        data(draw).into(),
    ]
}

/// What is said of an item or its stock: one in ten is ORIGINAL somewhere.
fn data(draw: &mut Draw) -> String {
    const ORIGINAL: &str = "ORIGINAL";
    let mut data = a_string(draw, 26, 50);
    if per_cent(draw, 10) {
        let room = i32::try_from(data.len() - ORIGINAL.len()).unwrap_or(0);
        let from = usize::try_from(draw.between(0, room)).unwrap_or(0);
        data.replace_range(from..from + ORIGINAL.len(), ORIGINAL);
    }
    data
}

/// Two streets, a city, a state and a ZIP code.
fn address(draw: &mut Draw) -> [Value<'static>; 5] {
    [
        a_string(draw, 10, 20).into(),
        a_string(draw, 10, 20).into(),
        a_string(draw, 10, 20).into(),
        letters(draw, 2).into(),
        zip(draw).into(),
    ]
}

fn warehouse(scale: Scale, w: i32) -> Row {
    let draw = &mut draw(schema::WAREHOUSE, w, 0, 0);
    let mut row = vec![w.into(), a_string(draw, 6, 10).into()];
    row.extend(address(draw));
    row.extend([
        draw.between(0, 2_000).into(),
        (paid_by_district(scale) * i64::from(DISTRICTS)).into(),
    ]);
    row
}

fn paid_by_district(scale: Scale) -> i64 {
    i64::from(scale.customers()) * FIRST_PAYMENT
}

fn stock(w: i32, i: i32) -> Row {
    let draw = &mut draw(schema::STOCK, w, 0, i);
    let mut row: Row = vec![w.into(), i.into(), draw.between(10, 100).into()];
    row.extend((0..DISTRICTS).map(|_| Value::from(a_string(draw, 24, 24))));
    row.extend([0.into(), 0.into(), 0.into(), data(draw).into()]);
    row
}

fn district(scale: Scale, w: i32, d: i32) -> Row {
    let draw = &mut draw(schema::DISTRICT, w, d, 0);
    let mut row = vec![w.into(), d.into(), a_string(draw, 6, 10).into()];
    row.extend(address(draw));
    row.extend([
        draw.between(0, 2_000).into(),
        paid_by_district(scale).into(),
        (scale.customers() + 1).into(),
    ]);
    row
}

fn customer(scale: Scale, (w, d, c): (i32, i32, i32)) -> Row {
    let draw = &mut draw(schema::CUSTOMER, w, d, c);
    let name = match c {
        // Each name once, then as the terminals will ask for them.
        c if c <= scale.last_names() => c - 1,
        _ => Constants::LOAD.last_name(scale, draw),
    };
    let mut row = vec![
        w.into(),
        d.into(),
        c.into(),
        a_string(draw, 8, 16).into(),
        "OE".into(),
        last_name(name).into(),
    ];
    row.extend(address(draw));
    row.extend([
        digits(draw, 16).into(),
        LOADED_AT.into(),
        if per_cent(draw, 10) { "BC" } else { "GC" }.into(),
        50_000_00.into(),
        draw.between(0, 5_000).into(),
        (-FIRST_PAYMENT).into(),
        FIRST_PAYMENT.into(),
        1.into(),
        0.into(),
        a_string(draw, 300, 500).into(),
    ]);
    row
}

fn history((w, d, c): (i32, i32, i32)) -> Row {
    let draw = &mut draw(schema::HISTORY, w, d, c);
    vec![
        c.into(),
        d.into(),
        w.into(),
        d.into(),
        w.into(),
        LOADED_AT.into(),
        FIRST_PAYMENT.into(),
        a_string(draw, 12, 24).into(),
    ]
}

/// The customers of a district in the order in which they have placed its orders: each once.
fn permutation(scale: Scale, w: i32, d: i32) -> Vec<i32> {
    let mut customers: Vec<i32> = (1..=scale.customers()).collect();
    draw(PERMUTATION, w, d, 0).shuffle(&mut customers);
    customers
}

fn orders(scale: Scale) -> impl Iterator<Item = Row> + Send {
    districts(scale).flat_map(move |(w, d)| {
        let placed = (1..=scale.customers()).zip(permutation(scale, w, d));
        placed.map(move |(o, customer)| order(scale, (w, d, o), customer))
    })
}

fn order(scale: Scale, (w, d, o): (i32, i32, i32), customer: i32) -> Row {
    let draw = &mut draw(schema::ORDERS, w, d, o);
    let lines = draw.between(5, 15);
    let is_delivered = o < scale.first_undelivered();
    vec![
        w.into(),
        d.into(),
        o.into(),
        customer.into(),
        LOADED_AT.into(),
        if is_delivered { draw.between(1, 10).into() } else { Value::Null },
        lines.into(),
        1.into(),
    ]
}

fn new_orders(scale: Scale) -> impl Iterator<Item = Row> + Send {
    districts(scale).flat_map(move |(w, d)| {
        let undelivered = scale.first_undelivered()..=scale.customers();
        undelivered.map(move |o| vec![w.into(), d.into(), o.into()])
    })
}

fn order_lines(scale: Scale) -> impl Iterator<Item = Row> + Send {
    // A district has as many orders as customers, of the same numbers.
    customers(scale).flat_map(move |(w, d, o)| {
        // The order's first draw is how many lines it has.
        let mut lines = draw(schema::ORDERS, w, d, o);
        let mut draw = draw(schema::ORDER_LINE, w, d, o);
        (1..=lines.between(5, 15))
            .map(move |number| order_line(scale, (w, d, o), number, &mut draw))
    })
}

fn order_line(scale: Scale, (w, d, o): (i32, i32, i32), number: i32, draw: &mut Draw) -> Row {
    let is_delivered = o < scale.first_undelivered();
    vec![
        w.into(),
        d.into(),
        o.into(),
        number.into(),
        draw.between(1, scale.items()).into(),
        w.into(),
        if is_delivered { LOADED_AT.into() } else { Value::Null },
        5.into(),
        if is_delivered { 0 } else { draw.between(1, 9_999_99) }.into(),
        a_string(draw, 24, 24).into(),
    ]
}
