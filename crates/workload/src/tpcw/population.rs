//! What the store holds before the first customer comes.
//!
//! Each row is drawn by itself, from its table and its key, so the rows can be asked for in any
//! order, one at a time, and are the same each time. An order, its lines and its payment are one
//! draw, from which three tables take their part.
//!
//! # Where this leaves the specification
//! - Its program WGEN makes titles and names out of sentences that hold a search word. Here a
//!   title is small letters before and after the word, and a last name the word with letters after
//!   it; the words come as often as there (five titles, two and a half authors each).
//! - The present is a fixed day, [`TODAY`], so that the rows are the same each time.
//! - Rates of exchange are drawn, names of currencies too: nothing is computed with them.

use crate::{Random, Value};

use super::draws;
use super::rules::{Sale, totals};
use super::scale::{COUNTRIES, Scale};
use super::schema;

/// What all rows are drawn from.
const SEED: u64 = 0x7470_6377;

/// What prices are drawn from: no table's place.
const PRICES: usize = 100;

/// The day on which the store opens, in days since 1970: 1 January 2010.
pub(super) const TODAY: i32 = 14_610;

pub(super) const DAY_US: i64 = 86_400_000_000;
const TWO_HOURS_US: i64 = 7_200_000_000;

/// The subjects of books (clause 4.6.2.11).
pub(super) const SUBJECTS: [&str; 24] = [
    "ARTS",
    "BIOGRAPHIES",
    "BUSINESS",
    "CHILDREN",
    "COMPUTERS",
    "COOKING",
    "HEALTH",
    "HISTORY",
    "HOME",
    "HUMOR",
    "LITERATURE",
    "MYSTERY",
    "NON-FICTION",
    "PARENTING",
    "POLITICS",
    "REFERENCE",
    "RELIGION",
    "ROMANCE",
    "SELF-HELP",
    "SCIENCE-NATURE",
    "SCIENCE-FICTION",
    "SPORTS",
    "YOUTH",
    "TRAVEL",
];
const BACKINGS: [&str; 5] = ["HARDBACK", "PAPERBACK", "USED", "AUDIO", "LIMITED-EDITION"];
pub(super) const CARDS: [&str; 5] = ["VISA", "MASTERCARD", "DISCOVER", "AMEX", "DINERS"];
pub(super) const SHIPPINGS: [&str; 6] = ["AIR", "UPS", "FEDEX", "SHIP", "COURIER", "MAIL"];
const STATUSES: [&str; 4] = ["PROCESSING", "SHIPPED", "PENDING", "DENIED"];

type Row = Vec<Value<'static>>;
type RowStream<'s> = Box<dyn Iterator<Item = Row> + Send + 's>;

/// The rows of a table, by its place in [`schema::tables`].
pub(super) fn rows(scale: Scale, table: usize) -> RowStream<'static> {
    match table {
        schema::COUNTRY => Box::new((1..=COUNTRIES).map(country)),
        schema::ADDRESS => Box::new((1..=scale.addresses()).map(address)),
        schema::CUSTOMER => Box::new((1..=scale.customers).map(move |id| customer(scale, id))),
        schema::AUTHOR => Box::new((1..=scale.authors()).map(move |id| author(scale, id))),
        schema::ITEM => Box::new((1..=scale.items).map(move |id| item(scale, id))),
        schema::ORDERS => {
            Box::new((1..=scale.orders()).map(move |id| OrderAtStart::new(scale, id).row()))
        }
        schema::ORDER_LINE => Box::new(
            (1..=scale.orders()).flat_map(move |id| OrderAtStart::new(scale, id).line_rows()),
        ),
        schema::CC_XACTS => {
            Box::new((1..=scale.orders()).map(move |id| OrderAtStart::new(scale, id).payment_row()))
        }
        _ => Box::new(std::iter::empty()),
    }
}

fn draw(table: usize, id: i32) -> Random {
    Random::new(SEED + table as u64, u64::from(id.unsigned_abs()))
}

/// A country's name, by which customers find it.
pub(super) fn country_name(id: i32) -> String {
    format!("COUNTRY {id:02}")
}

fn country(id: i32) -> Row {
    let mut draw = draw(schema::COUNTRY, id);
    vec![
        id.into(),
        country_name(id).into(),
        // 0.3 to 1,000 for a dollar.
        draw.between(3_000, 10_000_000).into(),
        draws::text(&mut draw, 4, 18).into(),
    ]
}

/// Streets, city, state and zip code of an address.
pub(super) fn address_lines(draw: &mut Random) -> [String; 5] {
    [
        draws::text(draw, 15, 40),
        draws::text(draw, 15, 40),
        draws::text(draw, 4, 30),
        draws::text(draw, 2, 20),
        draws::text(draw, 5, 10),
    ]
}

fn address(id: i32) -> Row {
    let mut draw = draw(schema::ADDRESS, id);
    let mut row = vec![id.into()];
    row.extend(address_lines(&mut draw).map(Value::from));
    row.push(draw.between(1, COUNTRIES).into());
    row
}

fn customer(scale: Scale, id: i32) -> Row {
    let mut draw = draw(schema::CUSTOMER, id);
    let name = draws::syllables(id.into());
    let since = TODAY - draw.between(1, 730);
    let now = i64::from(TODAY) * DAY_US;
    vec![
        id.into(),
        name.clone().into(),
        name.to_lowercase().into(),
        draws::text(&mut draw, 8, 15).into(),
        draws::text(&mut draw, 8, 15).into(),
        draw.between(1, scale.addresses()).into(),
        draws::digits(&mut draw, 9, 16).into(),
        format!("{name}@{}.com", draws::text(&mut draw, 2, 9)).into(),
        since.into(),
        (since + draw.between(0, 60)).min(TODAY).into(),
        now.into(),
        (now + TWO_HOURS_US).into(),
        draw.between(0, 50).into(),
        0.into(),
        draw.between(0, 99_999).into(),
        // Born from 1880 to the day the store opens.
        draw.between(-32_871, TODAY).into(),
        draws::text(&mut draw, 100, 500).into(),
    ]
}

fn author(scale: Scale, id: i32) -> Row {
    let mut draw = draw(schema::AUTHOR, id);
    let word = draws::word(draw.between(0, scale.author_words()));
    vec![
        id.into(),
        draws::text(&mut draw, 3, 20).into(),
        format!("{word}{}", draws::letters(&mut draw, 0, 6)).into(),
        draws::text(&mut draw, 1, 20).into(),
        // Born from 1800 to 1990.
        draw.between(-62_091, 7_304).into(),
        draws::text(&mut draw, 125, 500).into(),
    ]
}

/// The price of an item and how many are in stock, drawn apart from the rest of it: orders need the
/// one, the check the other.
pub(super) struct Price {
    pub(super) suggested: i64,
    pub(super) cost: i64,
    pub(super) stock: i32,
}

pub(super) fn price(item: i32) -> Price {
    let mut draw = draw(PRICES, item);
    let suggested = i64::from(draw.between(100, 99_999));
    Price { suggested, cost: reduced(&mut draw, suggested), stock: draw.between(10, 30) }
}

/// The price after up to half is taken off.
pub(super) fn reduced(draw: &mut Random, suggested: i64) -> i64 {
    suggested * i64::from(100 - draw.between(0, 50)) / 100
}

/// The file names of an item's small and large picture.
pub(super) fn pictures(item: i32) -> [String; 2] {
    let directory = item % 100;
    [format!("img{directory}/thumb_{item}.gif"), format!("img{directory}/image_{item}.gif")]
}

fn item(scale: Scale, id: i32) -> Row {
    let mut draw = draw(schema::ITEM, id);
    let word = draws::word(draw.between(0, scale.title_words()));
    let title =
        format!("{} {word} {}", draws::letters(&mut draw, 1, 23), draws::letters(&mut draw, 1, 21));
    // Every author has a book.
    let author = if id <= scale.authors() { id } else { draw.between(1, scale.authors()) };
    // Published from 1930 to a month before the store opens.
    let published = draw.between(-14_610, TODAY - 30);
    let [thumbnail, image] = pictures(id);
    let Price { suggested, cost, stock } = price(id);
    let mut row = vec![
        id.into(),
        title.into(),
        author.into(),
        published.into(),
        draws::text(&mut draw, 14, 60).into(),
        draws::name(&mut draw, &SUBJECTS).into(),
        draws::text(&mut draw, 100, 500).into(),
    ];
    row.extend(related(&mut draw, scale.items).into_iter().map(Value::from));
    let mut side = || f64::from(draw.between(1, 9_999)) / 100.0;
    let dimensions = format!("{:.2}x{:.2}x{:.2}", side(), side(), side());
    row.extend([
        thumbnail.into(),
        image.into(),
        suggested.into(),
        cost.into(),
        (published + draw.between(1, 30)).into(),
        stock.into(),
        draws::text(&mut draw, 13, 13).into(),
        draw.between(20, 9_999).into(),
        draws::name(&mut draw, &BACKINGS).into(),
        dimensions.into(),
    ]);
    row
}

/// Five different items.
fn related(draw: &mut Random, items: i32) -> Vec<i32> {
    let mut chosen = Vec::with_capacity(5);
    while chosen.len() < 5 {
        let item = draw.between(1, items);
        if !chosen.contains(&item) {
            chosen.push(item);
        }
    }
    chosen
}

/// One kind of book in an order.
struct LineAtStart {
    item: i32,
    sale: Sale,
    comment: String,
}

/// An order, with its lines and its payment.
struct OrderAtStart {
    id: i32,
    customer: i32,
    date: i64,
    ship_date: i64,
    shipping: &'static str,
    addresses: [i32; 2],
    status: &'static str,
    lines: Vec<LineAtStart>,
    payment: Random,
}

impl OrderAtStart {
    fn new(scale: Scale, id: i32) -> Self {
        let mut draw = draw(schema::ORDERS, id);
        let lines = (0..draw.between(1, 5)).map(|_| line(&mut draw, scale)).collect();
        let date = i64::from(TODAY - draw.between(1, 60)) * DAY_US;
        OrderAtStart {
            id,
            customer: draw.between(1, scale.customers),
            date,
            ship_date: date + i64::from(draw.between(0, 7)) * DAY_US,
            shipping: draws::name(&mut draw, &SHIPPINGS),
            addresses: [(); 2].map(|()| draw.between(1, scale.addresses())),
            status: draws::name(&mut draw, &STATUSES),
            lines,
            payment: draw,
        }
    }

    fn totals(&self) -> super::rules::Totals {
        totals(&self.lines.iter().map(|line| line.sale).collect::<Vec<_>>())
    }

    fn row(&self) -> Row {
        let totals = self.totals();
        vec![
            self.id.into(),
            self.customer.into(),
            self.date.into(),
            totals.subtotal.into(),
            totals.tax.into(),
            totals.total.into(),
            self.shipping.into(),
            self.ship_date.into(),
            self.addresses[0].into(),
            self.addresses[1].into(),
            self.status.into(),
        ]
    }

    fn line_rows(self) -> impl Iterator<Item = Row> {
        (1..).zip(self.lines).map(move |(number, line): (i32, LineAtStart)| {
            vec![
                self.id.into(),
                number.into(),
                line.item.into(),
                line.sale.quantity.into(),
                line.sale.cost.into(),
                line.sale.discount.into(),
                line.comment.into(),
            ]
        })
    }

    fn payment_row(mut self) -> Row {
        let total = self.totals().total;
        let draw = &mut self.payment;
        vec![
            self.id.into(),
            draws::name(draw, &CARDS).into(),
            draws::digits(draw, 16, 16).into(),
            draws::text(draw, 14, 30).into(),
            (TODAY + draw.between(10, 730)).into(),
            draws::text(draw, 15, 15).into(),
            total.into(),
            self.ship_date.into(),
            draw.between(1, COUNTRIES).into(),
        ]
    }
}

fn line(draw: &mut Random, scale: Scale) -> LineAtStart {
    let item = draw.between(1, scale.items);
    LineAtStart {
        item,
        sale: Sale {
            quantity: draw.between(1, 300).into(),
            cost: price(item).cost,
            discount: draw.between(0, 3).into(),
        },
        comment: draws::text(draw, 20, 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Type;

    fn small() -> Scale {
        Scale::new(1_000, 1).unwrap()
    }

    fn int(row: &Row, column: usize) -> i64 {
        match &row[column] {
            Value::Int(number) => *number,
            other => panic!("{other:?} is no number"),
        }
    }

    #[test]
    fn tables_have_the_rows_of_the_scale() {
        let counts: Vec<usize> = (0..10).map(|table| rows(small(), table).count()).collect();
        let lines = counts[schema::ORDER_LINE];
        assert_eq!(counts, [92, 5_760, 2_880, 250, 1_000, 2_592, lines, 2_592, 0, 0]);
        // Three an order; the standard deviation of their sum is 72.
        assert!(lines.abs_diff(7_776) < 432, "{lines}");
    }

    #[test]
    fn rows_fit_their_columns_and_come_by_their_keys() {
        for (place, table) in schema::tables().iter().enumerate() {
            let key_length = table.primary_key.len();
            let mut last = Vec::new();
            for row in rows(small(), place) {
                assert_eq!(row.len(), table.columns.len(), "{}", table.name);
                for (column, value) in table.columns.iter().zip(&row) {
                    let fits = match (column.kind, value) {
                        (Type::Int, Value::Int(number)) => i32::try_from(*number).is_ok(),
                        (Type::BigInt, Value::Int(_)) => true,
                        (Type::Char(length), Value::Text(text)) => text.len() == length.into(),
                        (Type::Varchar(length), Value::Text(text)) => {
                            !text.is_empty() && text.len() <= length.into()
                        }
                        _ => false,
                    };
                    assert!(fits, "{}.{}: {value:?}", table.name, column.name);
                }
                let key: Vec<i64> = (0..key_length).map(|column| int(&row, column)).collect();
                assert!(key > last, "{}: {key:?} after {last:?}", table.name);
                last = key;
            }
        }
    }

    #[test]
    fn rows_are_the_same_each_time() {
        for table in [schema::CUSTOMER, schema::ITEM, schema::ORDER_LINE, schema::CC_XACTS] {
            let first: Vec<Row> = rows(small(), table).take(50).collect();
            assert_eq!(first, rows(small(), table).take(50).collect::<Vec<_>>());
            let distinct = first.windows(2).all(|pair| pair[0] != pair[1]);
            assert!(distinct);
        }
    }

    #[test]
    fn items_are_as_the_specification_has_them() {
        let mut stocks = 0;
        let mut of_subject = [0; 24];
        for row in rows(small(), schema::ITEM) {
            let related: Vec<i64> = (7..12).map(|column| int(&row, column)).collect();
            for (place, item) in related.iter().enumerate() {
                assert!((1..=1_000).contains(item) && !related[..place].contains(item));
            }
            let (suggested, cost, stock) = (int(&row, 14), int(&row, 15), int(&row, 17));
            assert!(
                (100..=99_999).contains(&suggested)
                    && cost <= suggested
                    && 2 * cost + 1 >= suggested
            );
            assert!((10..=30).contains(&stock));
            stocks += stock;
            let Value::Text(subject) = &row[5] else { panic!("{row:?}") };
            of_subject[SUBJECTS.iter().position(|known| known == subject).unwrap()] += 1;
        }
        // 20 each in the mean; the standard deviation of the sum is 6.06 · sqrt(1,000) = 192.
        assert!((18_848..21_152).contains(&stocks), "{stocks}");
        // 41.7 in the mean, six standard deviations of 6.3.
        assert!(of_subject.iter().all(|&count| (4..80).contains(&count)), "{of_subject:?}");
    }

    #[test]
    fn every_search_word_is_some_title_and_some_name() {
        let scale = small();
        let titles: Vec<Row> = rows(scale, schema::ITEM).collect();
        let text = |row: &Row, column: usize| match &row[column] {
            Value::Text(text) => text.to_string(),
            other => panic!("{other:?} is no text"),
        };
        let found = (0..=scale.title_words())
            .filter(|&number| {
                let word = draws::word(number);
                titles.iter().any(|row| text(row, 1).split(' ').any(|part| part == word))
            })
            .count();
        // A word is in none of 1,000 titles with a chance of e^-5.
        assert!(found > 190, "{found} of 201");
        let names = rows(scale, schema::AUTHOR)
            .filter(|row| draws::word(0).as_bytes()[..6] == text(row, 2).as_bytes()[..6])
            .count();
        assert_eq!(names, 250);
    }
}
