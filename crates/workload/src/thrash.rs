//! The range transactions of the causal study of thrashing (Suh, Snodgrass and Currim, 2017).
//!
//! # Mechanism
//! Two tables of `rows` rows, each row 200 bytes: five integers and two strings of 90 characters.
//! `id1` counts the rows from 0. A transaction is one statement on one of the tables, drawn
//! (Section 5 of the study):
//!
//! ```sql
//! SELECT <column> FROM <table> WHERE id1 >= a AND id1 < b;
//! UPDATE <table> SET <column> = <value> WHERE id1 >= a AND id1 < b;
//! ```
//!
//! With c rows, the share SF of the rows a transaction touches and the share ROSE of the rows that
//! it may touch, `a` is drawn from [0, c·ROSE − c·SF] and `b` is `a` + c·SF. A small ROSE is a hot
//! spot. Without a primary key on `id1` (PK) every statement reads the whole table.
//!
//! # Example
//! 30,000 rows, SF 0.25 %, ROSE 25 %: 75 rows from the first 7,500 of a table. Two transactions on
//! one table meet when their `a` are less than 75 apart, so for 2 % of the pairs; of 256
//! transactions at once each meets, in the mean, 2.5 others and waits for the locks of some.
//!
//! # Where this leaves the study
//! * **Every transaction is drawn anew.** In the study a client is given one and repeats it. A
//!   handful of clients would then meet always or never, by the luck of the draw.
//! * **`id1` is neither read nor set.** The column is drawn from the other six. A new `id1` would
//!   move a row out of its range, and the ranges would run empty.
//! * **Strings are letters, all of 90.** The study says 200 bytes a row, 180 of them strings, and
//!   calls the strings variable in size, but gives no sizes.
//!
//! # Limits
//! Updates are not a sum that could be checked afterwards. Two updates on one table can deadlock
//! when the server visits the rows of their ranges in different orders, which it does once updated
//! rows have moved or when plans differ; the loser is run again and counted.

use std::ops::Range;

use crate::{Draw, append, words};

/// Statements per transaction.
pub const STATEMENTS: usize = 1;

/// The name of the procedure that runs the transaction, where there are procedures.
pub const PROCEDURE: &str = "range-access";

/// The tables.
pub const TABLES: [&str; 2] = ["thrash_1", "thrash_2"];

/// The columns that are read and set; the integers come first.
const COLUMNS: [&str; 6] = ["id2", "id3", "id4", "id5", "str1", "str2"];

/// How many of the columns are integers.
pub const INTEGERS: usize = 4;

/// How many are strings.
pub const STRINGS: usize = COLUMNS.len() - INTEGERS;

/// Characters of a string.
pub const STRING_LEN: usize = 90;

/// The number of rows of each table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows(i32);

impl Rows {
    /// The study's small tables, which it used on one of its systems.
    pub const SMALL: Rows = Rows(30_000);

    /// The study's tables.
    pub const LARGE: Rows = Rows(1_000_000);

    /// A number of rows, or `None` unless it is in `1..=i32::MAX`.
    #[must_use]
    pub fn new(rows: u32) -> Option<Self> {
        i32::try_from(rows).ok().filter(|&rows| rows > 0).map(Rows)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.cast_unsigned()
    }
}

/// A share of the rows, in hundredths of a per cent: 25 is 0.25 %, as small as the study's go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    const WHOLE: u32 = 10_000;

    /// All rows.
    pub const ALL: Share = Share(Share::WHOLE);

    /// So many hundredths of a per cent, or `None` unless in `1..=10_000`.
    #[must_use]
    pub fn hundredths_of_percent(hundredths: u32) -> Option<Self> {
        (1..=Self::WHOLE).contains(&hundredths).then_some(Share(hundredths))
    }

    /// The share in per cent.
    #[must_use]
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// The share of `rows`, rounded down, at least 1.
    fn of(self, rows: Rows) -> i32 {
        let share = u64::from(rows.get()) * u64::from(self.0) / u64::from(Self::WHOLE);
        // At most the number of rows, an i32.
        i32::try_from(share.max(1)).unwrap_or(i32::MAX)
    }
}

/// What a transaction does with its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads a column.
    Read,
    /// Sets a column.
    Update,
}

/// A kind of range transaction on tables of a known size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thrash {
    access: Access,
    rows: Rows,
    sf: Share,
    rose: Share,
}

impl Thrash {
    /// Transactions that touch a share `sf` of `rows` within the first `rose` of them; `None` when
    /// `sf` is more than `rose`.
    #[must_use]
    pub fn new(access: Access, rows: Rows, sf: Share, rose: Share) -> Option<Self> {
        (sf <= rose).then_some(Thrash { access, rows, sf, rose })
    }

    /// Reads of 0.1 % of the rows anywhere, the middle of the study's reads: 30 rows of the small
    /// tables. Nobody waits for a lock, so what a limit does here is not about contention.
    #[must_use]
    pub fn read(rows: Rows) -> Self {
        Thrash { access: Access::Read, rows, sf: Share(10), rose: Share::ALL }
    }

    /// Updates of 0.25 % of the rows within the first quarter, the study's smallest SF and ROSE:
    /// 75 of 7,500 rows of the small tables.
    #[must_use]
    pub fn update(rows: Rows) -> Self {
        Thrash { access: Access::Update, rows, sf: Share(25), rose: Share(2_500) }
    }

    /// What its transactions do.
    #[must_use]
    pub fn access(self) -> Access {
        self.access
    }

    /// The share of the rows that a transaction touches.
    #[must_use]
    pub fn sf(self) -> Share {
        self.sf
    }

    /// The share of the rows that it may touch.
    #[must_use]
    pub fn rose(self) -> Share {
        self.rose
    }

    /// The name used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.access {
            Access::Read => "thrash-read",
            Access::Update => "thrash-update",
        }
    }
}

/// The values of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeAccess {
    access: Access,
    table: usize,
    column: usize,
    /// The first row, a.
    from: i32,
    /// The row after the last, b.
    until: i32,
    /// What is written: the integer itself, or where the letters of the string begin.
    value: i32,
}

impl RangeAccess {
    /// Draws table, column, range and value.
    #[must_use]
    pub fn draw(thrash: Thrash, draw: &mut Draw) -> Self {
        let Thrash { access, rows, sf, rose } = thrash;
        let width = sf.of(rows);
        let from = draw.between(0, rose.of(rows) - width);
        RangeAccess {
            access,
            table: index(draw, TABLES.len()),
            column: index(draw, COLUMNS.len()),
            from,
            until: from + width,
            value: draw.between(0, i32::MAX),
        }
    }

    /// What is done with the range.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The table, as its place in [`TABLES`].
    #[must_use]
    pub fn table(&self) -> usize {
        self.table
    }

    /// The column's place: the first [`INTEGERS`] are integers, the others strings.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }

    /// The rows, by `id1`.
    #[must_use]
    pub fn rows(&self) -> Range<i32> {
        self.from..self.until
    }

    /// What an update writes.
    #[must_use]
    pub fn value(&self) -> Value {
        if self.column < INTEGERS {
            return Value::Integer(self.value);
        }
        let mut letters = Draw::new(u64::from(self.value.cast_unsigned()), 0);
        Value::Letters(std::array::from_fn(|_| letter(&mut letters)))
    }

    /// Appends the values as bytes, for a database that is called with a whole transaction.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let RangeAccess { access, table, column, from, until, value } = *self;
        let access = i32::from(access == Access::Update);
        let place = |place: usize| i32::try_from(place).unwrap_or(i32::MAX);
        words::append(&[access, place(table), place(column), from, until, value], out);
    }

    /// The values in bytes that [`RangeAccess::encode`] made; `None` when they are others.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [access, table, column, from, until, value] = words::read(bytes)?;
        let access = match access {
            0 => Access::Read,
            1 => Access::Update,
            _ => return None,
        };
        let within = |place: i32, len: usize| usize::try_from(place).ok().filter(|&at| at < len);
        Some(RangeAccess {
            access,
            table: within(table, TABLES.len())?,
            column: within(column, COLUMNS.len())?,
            from,
            until,
            value,
        })
    }

    /// Appends the statement's text.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (table, column) = (TABLES[self.table], COLUMNS[self.column]);
        match self.access {
            Access::Read => append(out, format_args!("SELECT {column} FROM {table}")),
            Access::Update => {
                append(out, format_args!("UPDATE {table} SET {column} = "));
                self.write_value(out);
            }
        }
        let RangeAccess { from, until, .. } = self;
        append(out, format_args!(" WHERE id1 >= {from} AND id1 < {until};"));
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        match self.value() {
            Value::Integer(number) => append(out, format_args!("{number}")),
            Value::Letters(letters) => {
                out.push(b'\'');
                out.extend_from_slice(&letters);
                out.push(b'\'');
            }
        }
    }
}

/// What an update writes into a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Into one of the integers.
    Integer(i32),
    /// Into one of the strings.
    Letters([u8; STRING_LEN]),
}

fn letter(draw: &mut Draw) -> u8 {
    let offset = u8::try_from(draw.between(0, 25)).unwrap_or(0);
    b'a' + offset
}

/// A place in a list of `len`, which is not empty.
fn index(draw: &mut Draw, len: usize) -> usize {
    let last = i32::try_from(len).unwrap_or(i32::MAX) - 1;
    usize::try_from(draw.between(0, last)).unwrap_or(0)
}

/// Whether the tables have a primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// `id1` is declared the primary key: a range is found through its index.
    Primary,
    /// There is none: every statement reads its whole table.
    None,
}

/// Statements that make the tables anew, to be run one by one on one connection: the values are
/// those of the server's random sequence from a fixed seed. Letters are hexadecimal digits.
#[must_use]
pub fn load_statements(rows: Rows, key: Key) -> Vec<String> {
    let last = rows.0 - 1;
    let drop = format!("DROP TABLE IF EXISTS {}", TABLES.join(", "));
    let mut statements = vec![drop, "SELECT setseed(0.5)".to_owned()];
    for table in TABLES {
        statements.push(format!(
            "CREATE TABLE {table} (id1 int NOT NULL, id2 int NOT NULL, id3 int NOT NULL, \
             id4 int NOT NULL, id5 int NOT NULL, str1 varchar({STRING_LEN}), \
             str2 varchar({STRING_LEN}))"
        ));
        statements.push(format!(
            "INSERT INTO {table} SELECT id1, {number}, {number}, {number}, {number}, {text}, \
             {text} FROM generate_series(0, {last}) AS id1",
            number = "floor(random() * 2147483648)::int",
            text = format_args!(
                "left(md5(random()::text) || md5(random()::text) || md5(random()::text), \
                 {STRING_LEN})"
            ),
        ));
        if key == Key::Primary {
            statements.push(format!("ALTER TABLE {table} ADD PRIMARY KEY (id1)"));
        }
        statements.push(format!("VACUUM ANALYZE {table}"));
    }
    statements
}

/// Statements that give two runs on the same tables the same start, each to be run on its own: dead
/// versions gone, rows in the order of `id1` where there is a key, no checkpoint left over.
#[must_use]
pub fn level_statements(key: Key) -> Vec<String> {
    let mut statements = Vec::new();
    for table in TABLES {
        statements.push(match key {
            Key::Primary => format!("CLUSTER {table} USING {table}_pkey"),
            Key::None => format!("VACUUM FULL {table}"),
        });
        statements.push(format!("VACUUM ANALYZE {table}"));
    }
    statements.push("CHECKPOINT".to_owned());
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(transaction: RangeAccess) -> String {
        let mut text = Vec::new();
        transaction.write(&mut text);
        String::from_utf8(text).unwrap()
    }

    const READ: RangeAccess =
        RangeAccess { access: Access::Read, table: 1, column: 0, from: 40, until: 70, value: 9 };

    #[test]
    fn the_statements_are_the_studys() {
        assert_eq!(text(READ), "SELECT id2 FROM thrash_2 WHERE id1 >= 40 AND id1 < 70;");
        let update = RangeAccess { access: Access::Update, table: 0, column: 3, ..READ };
        assert_eq!(text(update), "UPDATE thrash_1 SET id5 = 9 WHERE id1 >= 40 AND id1 < 70;");

        let string = text(RangeAccess { column: 5, ..update });
        let value = string.strip_prefix("UPDATE thrash_1 SET str2 = '").unwrap();
        let (letters, rest) = value.split_once('\'').unwrap();
        assert_eq!(rest, " WHERE id1 >= 40 AND id1 < 70;");
        assert_eq!(letters.len(), STRING_LEN);
        assert!(letters.bytes().all(|letter| letter.is_ascii_lowercase()));
    }

    #[test]
    fn ranges_are_as_wide_as_sf_says_and_end_where_rose_does() {
        let share = |hundredths| Share::hundredths_of_percent(hundredths).unwrap();
        // 30,000 rows: SF 0.25 % is 75 rows, ROSE 25 % is the rows below 7,500.
        // 1,000,000 rows: SF 0.01 % is 100 rows. 50 rows: SF 1 % is half a row, so one.
        for (rows, sf, rose, width, end) in [
            (30_000, 25, 2_500, 75, 7_500),
            (1_000_000, 1, 10_000, 100, 1_000_000),
            (50, 100, 5_000, 1, 25),
            (50, 10_000, 10_000, 50, 50),
            (1, 1, 1, 1, 1),
        ] {
            let rows = Rows::new(rows).unwrap();
            let thrash = Thrash::new(Access::Read, rows, share(sf), share(rose)).unwrap();
            let mut draw = Draw::new(7, 0);
            let drawn: Vec<_> = (0..20_000).map(|_| RangeAccess::draw(thrash, &mut draw)).collect();
            assert!(drawn.iter().all(|t| t.until - t.from == width && t.from >= 0));
            let furthest = drawn.iter().map(|t| t.until).max().unwrap();
            // With 20,000 draws the last hundredth of the region is reached.
            assert!((end - end / 100..=end).contains(&furthest), "{furthest} of {end}");
        }
    }

    #[test]
    fn every_table_and_column_is_drawn() {
        let thrash = Thrash::update(Rows::SMALL);
        let mut draw = Draw::new(1, 1);
        let mut seen = [[0_u32; COLUMNS.len()]; TABLES.len()];
        for _ in 0..12_000 {
            let drawn = RangeAccess::draw(thrash, &mut draw);
            seen[drawn.table][drawn.column] += 1;
        }
        // 1,000 expected in each of the 12; six standard deviations of a binomial are 182.
        assert!(seen.iter().flatten().all(|count| count.abs_diff(1_000) < 182), "{seen:?}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(Rows::new(0), None);
        assert_eq!(Rows::new(u32::MAX), None);
        assert_eq!(Share::hundredths_of_percent(0), None);
        assert_eq!(Share::hundredths_of_percent(10_001), None);
        let (small, large) = (Share(25), Share(50));
        assert_eq!(Thrash::new(Access::Read, Rows::SMALL, large, small), None);
    }
}
