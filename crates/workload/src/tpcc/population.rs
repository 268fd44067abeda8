//! The rows that the tables hold at the start (clause 4.3.3.1), made one by one.
//!
//! Each row has a sequence of draws of its own, named by its table and its key. So a row is the
//! same whoever asks for it and in which order, and an order's lines know the order's header
//! without anything being kept. Only the permutation that gives a district's orders to its
//! customers is held, and only for the district under way.
//!
//! Where a share of the rows is to be selected at random (10 % of the items and of the stock
//! ORIGINAL, 10 % of the customers with bad credit), each row is drawn with that chance.

use crate::{Random, Value};

use super::random::{Constants, a_string, digits, last_name, letters, per_cent, zip};
use super::scale::{DISTRICTS, Scale};
use super::schema;

/// The moment of the load, in microseconds since 1970: the first of 2026.
pub(super) const LOADED_AT: i64 = 1_767_225_600_000_000;

/// What a customer has paid by then and an order has not: 10.00.
const FIRST_PAYMENT: i64 = 1_000;

/// What a customer may owe: 50,000.00.
const CREDIT_LIMIT: i64 = 5_000_000;

/// The most that an undelivered line of the start is worth: 9,999.99.
const HIGHEST_AMOUNT: i32 = 999_999;

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
fn draw(table: usize, warehouse: i32, district: i32, number: i32) -> Random {
    let word = |part: i32| u64::from(part.unsigned_abs());
    // Numbers are below 2^20, districts below 2^4, warehouses below 2^20, tables below 2^4.
    let key = word(warehouse) << 24 | word(district) << 20 | word(number);
    // From 1 on, so that no client of a run with this seed has the same draws.
    Random::new(SEED, (table as u64 + 1) << 44 | key)
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
        // 1.00 to 100.00.
        draw.between(100, 10_000).into(),
        data(draw).into(),
    ]
}

/// What is said of an item or its stock: one in ten is ORIGINAL somewhere.
fn data(draw: &mut Random) -> String {
    const ORIGINAL: &str = "ORIGINAL";
    let mut data = a_string(draw, 26, 50);
    if per_cent(draw, 10) {
        let from = draw.index(data.len() - ORIGINAL.len() + 1);
        data.replace_range(from..from + ORIGINAL.len(), ORIGINAL);
    }
    data
}

/// Two streets, a city, a state and a ZIP code.
fn address(draw: &mut Random) -> [Value<'static>; 5] {
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
        CREDIT_LIMIT.into(),
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

fn order_line(scale: Scale, (w, d, o): (i32, i32, i32), number: i32, draw: &mut Random) -> Row {
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
        if is_delivered { 0 } else { draw.between(1, HIGHEST_AMOUNT) }.into(),
        a_string(draw, 24, 24).into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn scale() -> Scale {
        Scale::new(2).unwrap().reduced(500, 100).unwrap()
    }

    fn all(table: usize) -> Vec<Row> {
        rows(scale(), table).collect()
    }

    fn int(row: &Row, column: usize) -> i64 {
        match row[column] {
            Value::Int(number) => number,
            ref other => panic!("a number is expected, not {other:?}"),
        }
    }

    fn text(row: &Row, column: usize) -> &str {
        match &row[column] {
            Value::Text(text) => text,
            other => panic!("a text is expected, not {other:?}"),
        }
    }

    #[test]
    fn tables_have_their_numbers_of_rows() {
        let counts: Vec<usize> = (0..8).map(|table| all(table).len()).collect();
        // Two warehouses, 20 districts, 100 customers each of which 30 wait for their order.
        assert_eq!(counts, [500, 2, 1_000, 20, 2_000, 2_000, 2_000, 600]);
        assert_eq!(rows(scale(), 9).count(), 0);
        let whole = Scale::new(3).unwrap();
        let count = |table| rows(whole, table).count();
        assert_eq!(count(schema::ITEM), 100_000);
        assert_eq!(count(schema::DISTRICT), 30);
        assert_eq!(count(schema::NEW_ORDER), 27_000);
    }

    #[test]
    fn rows_fit_their_columns_and_come_in_the_order_of_their_key() {
        for (place, table) in schema::tables().iter().enumerate() {
            let rows = all(place);
            let width = |row: &Row| row.len() == table.columns.len();
            assert!(rows.iter().all(width), "{}", table.name);
            for row in &rows {
                for (column, value) in table.columns.iter().zip(row) {
                    assert!(fits(*column, value), "{}.{}: {value:?}", table.name, column.name);
                }
            }
            // Keys are the first columns, all of them numbers.
            let key = |row: &Row| -> Vec<i64> {
                (0..table.primary_key.len()).map(|column| int(row, column)).collect()
            };
            for (column, name) in table.columns.iter().zip(&table.primary_key) {
                assert_eq!(column.name, *name);
            }
            let keys: Vec<_> = rows.iter().map(key).filter(|key| !key.is_empty()).collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{}", table.name);
        }
    }

    fn fits(column: crate::Column, value: &Value<'_>) -> bool {
        use crate::Type;
        match (column.kind, value) {
            (_, Value::Null) => column.nullable,
            (Type::Int, Value::Int(number)) => i32::try_from(*number).is_ok(),
            (Type::BigInt, Value::Int(_)) => true,
            (Type::Char(length), Value::Text(text)) => text.len() == usize::from(length),
            (Type::Varchar(length), Value::Text(text)) => text.len() <= usize::from(length),
            _ => false,
        }
    }

    #[test]
    fn a_table_is_the_same_each_time_and_rows_differ() {
        for table in 0..9 {
            assert_eq!(all(table), all(table));
        }
        let said: BTreeSet<String> =
            all(schema::STOCK).iter().map(|row| text(row, 3).to_owned()).collect();
        assert_eq!(said.len(), 1_000);
    }

    #[test]
    fn each_customer_has_one_order_and_the_last_ones_are_not_delivered() {
        let orders = all(schema::ORDERS);
        for district in orders.chunks(100) {
            let customers: BTreeSet<i64> = district.iter().map(|row| int(row, 3)).collect();
            assert_eq!(customers, (1..=100).collect());
            assert!(district.iter().any(|row| int(row, 3) != int(row, 2)), "a permutation");
            for row in district {
                assert_eq!(row[5] == Value::Null, int(row, 2) > 70);
                assert!((5..=15).contains(&int(row, 6)) && int(row, 7) == 1);
            }
        }
        let new: Vec<i64> = all(schema::NEW_ORDER).iter().map(|row| int(row, 2)).collect();
        assert_eq!(new[..30], (71..=100).collect::<Vec<i64>>());
    }

    #[test]
    fn orders_have_the_lines_they_say_they_have() {
        let mut lines = all(schema::ORDER_LINE).into_iter().peekable();
        for order in all(schema::ORDERS) {
            let key = |row: &Row| [int(row, 0), int(row, 1), int(row, 2)];
            for number in 1..=int(&order, 6) {
                let line = lines.next().unwrap();
                assert_eq!((key(&line), int(&line, 3)), (key(&order), number));
                assert!((1..=500).contains(&int(&line, 4)) && line[5] == line[0]);
                let is_delivered = order[5] != Value::Null;
                assert_eq!(line[6] != Value::Null, is_delivered);
                assert_eq!((int(&line, 7), int(&line, 8) == 0), (5, is_delivered));
            }
        }
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn one_row_in_ten_is_chosen_and_every_name_is_borne() {
        let original = |rows: Vec<Row>, column| {
            rows.iter().filter(|row| text(row, column).contains("ORIGINAL")).count()
        };
        let whole: Vec<Row> = rows(Scale::new(1).unwrap(), schema::ITEM).collect();
        // Six standard deviations of a binomial: 95 of 10,000 times six, 9.5 of 100, 13.4 of 200.
        assert!(original(whole, 4).abs_diff(10_000) < 570);
        assert!(original(all(schema::STOCK), 16).abs_diff(100) < 57);
        let customers = all(schema::CUSTOMER);
        let bad = customers.iter().filter(|row| text(row, 13) == "BC").count();
        assert!(bad.abs_diff(200) < 81, "{bad}");
        let names: BTreeSet<&str> = customers[..100].iter().map(|row| text(row, 5)).collect();
        assert_eq!(
            names,
            (0..100).map(last_name).collect::<Vec<_>>().iter().map(|n| &**n).collect()
        );
        let larger = Scale::new(1).unwrap();
        let mut drawn = rows(larger, schema::CUSTOMER).skip(1_000).take(2_000);
        let distinct: BTreeSet<String> =
            drawn.by_ref().map(|row| text(&row, 5).to_owned()).collect();
        // As many evenly drawn names would be 865 different ones in the mean.
        assert!(distinct.len() < 800, "{}", distinct.len());
    }

    #[test]
    fn sums_of_payments_are_carried_upward() {
        let sum = |table, column| all(table).iter().map(|row| int(row, column)).sum::<i64>();
        let paid = sum(schema::HISTORY, 6);
        assert_eq!(paid, 2_000 * 1_000);
        assert_eq!(sum(schema::WAREHOUSE, 8), paid);
        assert_eq!(sum(schema::DISTRICT, 9), paid);
        assert_eq!(sum(schema::CUSTOMER, 17), paid);
        assert_eq!(sum(schema::CUSTOMER, 16), -paid);
        let whole = rows(Scale::new(1).unwrap(), schema::WAREHOUSE).next().unwrap();
        assert_eq!(int(&whole, 8), 30_000_000);
    }
}
