//! What the tables hold at the start. Each row is made from its key alone, so that orders, their
//! lines, the history and the sales agree without any of them being kept.

use super::Scale;
use super::schema::{CATEGORIES, CUST_HIST, CUSTOMERS, INVENTORY, ORDERLINES, ORDERS, PRODUCTS};
use crate::{Random, Value};

/// The categories of films; the names only fill a column.
pub(super) const CATEGORY_NAMES: [&str; 16] = [
    "Action",
    "Animation",
    "Children",
    "Classics",
    "Comedy",
    "Documentary",
    "Drama",
    "Family",
    "Foreign",
    "Games",
    "Horror",
    "Music",
    "New",
    "Sci-Fi",
    "Sports",
    "Travel",
];

/// Each of so many products is popular: bought ten times as often, and kept in ten times the stock.
const POPULAR_EVERY: i32 = 10_000;

/// How much more popular.
const POPULARITY: i32 = 10;

/// The most units of a line.
const QUANTITY_MAX: i32 = 3;

/// The most lines of an order.
pub(super) const LINES_MAX: i32 = 9;

/// Sales tax in ten-thousandths.
const TAX_RATE: i64 = 825;

/// The first day of the year of the orders that are there at the start, in days since 1970.
const FIRST_DAY: i32 = 14_245;

/// The day of every order of a client, the first after that year; nobody reads it.
pub(super) const TODAY: i32 = FIRST_DAY + 365;

/// Words of titles.
pub(super) const TITLE_WORDS: i32 = 1_000;

/// First names of actors, and last names too.
pub(super) const ACTOR_NAMES: i32 = 200;

/// Kinds of rows, to give each key of each kind a sequence of draws of its own.
#[derive(Clone, Copy)]
enum Seed {
    Customer = 1,
    Product,
    Stock,
    Order,
}

fn draw(seed: Seed, key: i32) -> Random {
    Random::new(seed as u64, u64::from(key.unsigned_abs()))
}

pub(super) fn rows(
    scale: Scale,
    table: usize,
) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send> {
    match table {
        CATEGORIES => {
            Box::new((1_i32..).zip(CATEGORY_NAMES).map(|(key, name)| vec![key.into(), name.into()]))
        }
        CUSTOMERS => {
            Box::new(scale.customers().map(|key| {
                customer(key.into(), format!("user{key}"), &mut draw(Seed::Customer, key))
            }))
        }
        PRODUCTS => Box::new(scale.products().map(move |key| product(scale, key))),
        INVENTORY => {
            let sales = sales(scale);
            Box::new(
                scale
                    .products()
                    .zip(sales)
                    .map(|(key, sales)| vec![key.into(), stock(key).into(), sales.into()]),
            )
        }
        ORDERS => Box::new(scale.orders().map(move |key| InitialOrder::new(scale, key).row())),
        ORDERLINES => {
            Box::new(scale.orders().flat_map(move |key| InitialOrder::new(scale, key).line_rows()))
        }
        CUST_HIST => Box::new(
            scale.orders().flat_map(move |key| InitialOrder::new(scale, key).history_rows()),
        ),
        _ => Box::new(std::iter::empty()),
    }
}

/// A customer's row. Half live in the United States and half elsewhere.
pub(super) fn customer(key: i64, username: String, draw: &mut Random) -> Vec<Value<'static>> {
    let (state, zip, country, region) = if draw.between(0, 1) == 0 {
        (letters(2, draw), draw.between(10_000, 99_999), "US".to_owned(), 1)
    } else {
        (String::new(), 0, letters(8, draw), 2)
    };
    let lastname = letters(10, draw);
    let phone = digits(10, draw);
    vec![
        key.into(),
        letters(6, draw).into(),
        lastname.clone().into(),
        format!("{phone} Tidegate Way").into(),
        Value::Null,
        letters(7, draw).into(),
        state.into(),
        zip.into(),
        country.into(),
        region.into(),
        format!("{lastname}@example.com").into(),
        phone.into(),
        draw.between(1, 5).into(),
        digits(16, draw).into(),
        format!("{}/{:02}", draw.between(2_010, 2_014), draw.between(1, 12)).into(),
        username.into(),
        super::PASSWORD.into(),
        draw.between(18, 90).into(),
        (20_000 * draw.between(1, 5)).into(),
        if draw.between(0, 1) == 0 { "F" } else { "M" }.into(),
    ]
}

fn letters(count: usize, draw: &mut Random) -> String {
    let letter = |_| char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"[draw.index(26)]);
    (0..count).map(letter).collect()
}

fn digits(count: usize, draw: &mut Random) -> String {
    let digit = |_| char::from(b"0123456789"[draw.index(10)]);
    (0..count).map(digit).collect()
}

/// A made-up word of six letters for a number of 0 to 999, another for each. None has a Z, so that
/// what begins with a word lies between it and the word with a Z behind, however a database sorts.
pub(super) fn word(number: i32) -> String {
    const SYLLABLES: [&str; 10] = ["BA", "DE", "FI", "GO", "HU", "KA", "LE", "MI", "NO", "RU"];
    let syllable = |number: i32| SYLLABLES[number.rem_euclid(10).cast_unsigned() as usize];
    [number / 100, number / 10, number].map(syllable).concat()
}

/// The title of a product, which no other of the first million has: each word begins as many.
fn title(key: i32) -> String {
    let (first, turn) = ((key - 1) % TITLE_WORDS, (key - 1) / TITLE_WORDS);
    format!("{} {}", word(first), word((turn + 7 * first) % TITLE_WORDS))
}

/// A name of an actor; the last names are other words than the first names.
fn actor(draw: &mut Random) -> String {
    let mut name = || draw.between(0, ACTOR_NAMES - 1);
    format!("{} {}", word(name()), word(name() + 500))
}

/// The price of a product, in cents.
pub(super) fn price(key: i32) -> i64 {
    i64::from(draw(Seed::Product, key).between(9, 29)) * 100 + 99
}

fn product(scale: Scale, key: i32) -> Vec<Value<'static>> {
    let mut draw = draw(Seed::Product, key);
    // The draw that the price is made of.
    let _ = draw.between(9, 29);
    vec![
        key.into(),
        draw.between(1, 16).into(),
        title(key).into(),
        actor(&mut draw).into(),
        price(key).into(),
        i32::from(draw.between(1, 100) == 1).into(),
        draw.between(1, *scale.products().end()).into(),
    ]
}

fn popularity(key: i32) -> i32 {
    if key % POPULAR_EVERY == 0 { POPULARITY } else { 1 }
}

/// The units in stock of a product at the start.
pub(super) fn stock(key: i32) -> i32 {
    draw(Seed::Stock, key).between(0, 500) * popularity(key)
}

/// The units in stock of a product when an order to its makers has come.
pub(super) fn stock_when_delivered(key: i32) -> i64 {
    250 * i64::from(popularity(key))
}

/// The units sold of each product in the orders that are there at the start.
pub(super) fn sales(scale: Scale) -> Vec<i64> {
    let mut sales = vec![0; scale.products().count()];
    for line in scale.orders().flat_map(|key| InitialOrder::new(scale, key).lines) {
        let place = usize::try_from(line.product - 1).expect("products are numbered from 1");
        sales[place] += i64::from(line.quantity);
    }
    sales
}

/// So many units of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CartLine {
    pub(super) product: i32,
    pub(super) quantity: i32,
}

/// A product that a customer puts into the cart, popular ones more often.
pub(super) fn bought(scale: Scale, draw: &mut Random) -> CartLine {
    let products = *scale.products().end();
    let popular = products / POPULAR_EVERY;
    // Each product once, and then each popular one nine times more.
    let drawn = draw.between(1, products + popular * (POPULARITY - 1));
    let product = if drawn <= products {
        drawn
    } else {
        POPULAR_EVERY * (1 + (drawn - products - 1) % popular)
    };
    CartLine { product, quantity: draw.between(1, QUANTITY_MAX) }
}

/// What an order costs, in cents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amounts {
    pub(super) net: i64,
    pub(super) tax: i64,
    pub(super) total: i64,
}

impl Amounts {
    /// With tax rounded to the nearest cent.
    pub(super) fn new(net: i64) -> Self {
        let tax = (net * TAX_RATE + 5_000) / 10_000;
        Amounts { net, tax, total: net + tax }
    }
}

/// An order that is there at the start.
struct InitialOrder {
    key: i32,
    day: i32,
    customer: i32,
    lines: Vec<CartLine>,
}

impl InitialOrder {
    fn new(scale: Scale, key: i32) -> Self {
        let mut draw = draw(Seed::Order, key);
        let last = *scale.orders().end();
        // In the order of their keys, they are spread over the year.
        let day = i64::from(key - 1) * 365 / i64::from(last.max(1));
        let customer = draw.between(1, *scale.customers().end());
        let count = draw.between(1, LINES_MAX);
        let products = *scale.products().end();
        let mut line = |_| CartLine {
            product: draw.between(1, products),
            quantity: draw.between(1, QUANTITY_MAX),
        };
        let lines = (0..count).map(&mut line).collect();
        InitialOrder {
            key,
            day: FIRST_DAY + i32::try_from(day).expect("a day of the year"),
            customer,
            lines,
        }
    }

    fn row(&self) -> Vec<Value<'static>> {
        let cost = |line: &CartLine| price(line.product) * i64::from(line.quantity);
        let Amounts { net, tax, total } = Amounts::new(self.lines.iter().map(cost).sum());
        vec![
            self.key.into(),
            self.day.into(),
            self.customer.into(),
            net.into(),
            tax.into(),
            total.into(),
        ]
    }

    fn line_rows(self) -> impl Iterator<Item = Vec<Value<'static>>> {
        (1_i32..).zip(self.lines).map(move |(number, line)| {
            let CartLine { product, quantity } = line;
            [self.key, number, product, quantity, self.day].map(Value::from).into()
        })
    }

    fn history_rows(self) -> impl Iterator<Item = Vec<Value<'static>>> {
        let row =
            move |line: CartLine| [self.customer, self.key, line.product].map(Value::from).into();
        self.lines.into_iter().map(row)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn int(value: &Value<'_>) -> i64 {
        match value {
            Value::Int(number) => *number,
            other => panic!("{other:?} is no number"),
        }
    }

    #[test]
    fn tax_is_rounded_to_the_nearest_cent() {
        // 8.25 % of 19.99 is 1.649175, of 2.00 is 0.165, of 0.06 is 0.00495.
        for (net, tax) in [(1_999, 165), (200, 17), (6, 0), (0, 0)] {
            assert_eq!(Amounts::new(net), Amounts { net, tax, total: net + tax });
        }
    }

    #[test]
    fn words_differ_and_are_sorted_alike_everywhere() {
        let words: HashSet<String> = (0..TITLE_WORDS).map(word).collect();
        assert_eq!(words.len(), 1_000);
        assert!(words.iter().all(|word| word.len() == 6 && !word.contains('Z')));
        assert_eq!((word(0), word(907)), ("BABABA".to_owned(), "RUBAMI".to_owned()));
    }

    #[test]
    fn titles_differ_and_begin_with_each_word_equally_often() {
        let titles: Vec<String> = (1..=100_000).map(title).collect();
        let first = titles.iter().filter(|title| title.starts_with(&word(42))).count();
        assert_eq!(first, 100);
        assert_eq!(titles.into_iter().collect::<HashSet<_>>().len(), 100_000);
    }

    #[test]
    fn the_tables_are_as_large_as_the_scale_says_and_repeat() {
        let count = |table| rows(Scale::SMALL, table).count();
        assert_eq!(
            [CATEGORIES, CUSTOMERS, PRODUCTS, INVENTORY, ORDERS].map(count),
            [16, 20_000, 10_000, 10_000, 12_000]
        );
        // 5 lines in the mean; six standard deviations of the sum are 1,700.
        assert!(count(ORDERLINES).abs_diff(60_000) < 1_700);
        assert_eq!(count(ORDERLINES), count(CUST_HIST));
        for table in 0..8 {
            let all = || rows(Scale::TINY, table).collect::<Vec<_>>();
            assert_eq!(all(), all());
        }
    }

    #[test]
    fn keys_come_in_their_order() {
        for (table, keys) in
            [(CUSTOMERS, 1), (PRODUCTS, 1), (INVENTORY, 1), (ORDERS, 1), (ORDERLINES, 2)]
        {
            let key = |row: Vec<Value<'_>>| row[..keys].iter().map(int).collect::<Vec<_>>();
            let found: Vec<_> = rows(Scale::TINY, table).map(key).collect();
            assert!(found.is_sorted_by(|a, b| a < b), "table {table}");
        }
    }

    #[test]
    fn orders_sales_and_history_agree() {
        let column = |table, column: usize| -> i64 {
            rows(Scale::TINY, table).map(|row| int(&row[column])).sum()
        };
        assert_eq!(column(INVENTORY, 2), column(ORDERLINES, 3));
        assert_eq!(column(ORDERLINES, 2), column(CUST_HIST, 2));
        let cost: i64 = rows(Scale::TINY, ORDERLINES)
            .map(|row| price(i32::try_from(int(&row[2])).unwrap()) * int(&row[3]))
            .sum();
        assert_eq!(cost, column(ORDERS, 3));
        assert_eq!(column(ORDERS, 3) + column(ORDERS, 4), column(ORDERS, 5));
        let days: Vec<i64> = rows(Scale::SMALL, ORDERS).map(|row| int(&row[1])).collect();
        assert_eq!((days[0], days[11_999]), (14_245, 14_245 + 364));
    }

    #[test]
    fn prices_and_specials_are_the_published_ones() {
        let products: Vec<_> = rows(Scale::SMALL, PRODUCTS).collect();
        let prices: HashSet<i64> = products.iter().map(|row| int(&row[4])).collect();
        assert_eq!(prices, (9..=29).map(|dollars| dollars * 100 + 99).collect());
        // One in a hundred of 10,000; six standard deviations are 60.
        let specials: i64 = products.iter().map(|row| int(&row[5])).sum();
        assert!((40..160).contains(&specials), "{specials}");
    }

    #[test]
    fn every_ten_thousandth_product_is_bought_ten_times_as_often() {
        let mut draw = Random::new(1, 0);
        let scale = Scale { products: 20_000, ..Scale::SMALL };
        let count = 1_000_000;
        let mut popular = [0_u32; 2];
        for _ in 0..count {
            let CartLine { product, quantity } = bought(scale, &mut draw);
            assert!((1..=20_000).contains(&product) && (1..=3).contains(&quantity));
            if product % 10_000 == 0 {
                popular[usize::try_from(product / 10_000 - 1).unwrap()] += 1;
            }
        }
        // 10 of 20,018 are 500 of a million; six standard deviations are 134.
        assert!(popular.iter().all(|bought| bought.abs_diff(500) < 134), "{popular:?}");
        assert_eq!((stock_when_delivered(10_000), stock_when_delivered(9_999)), (2_500, 250));
    }
}
