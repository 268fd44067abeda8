//! A client: which rows it draws, and what it does with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::options::{Mix, Options, Placement};
use super::statements::Statements;
use super::tables::{COLUMNS, TABLES, row_of, value};
use crate::workload::{Client, Transaction};
use crate::{Ending, Failure, Random, Running, Session, Statement, Value};

/// The places of the kinds in [`super::KINDS`].
pub(super) const READ: usize = 0;
pub(super) const UPDATE: usize = 1;
pub(super) const INSERT: usize = 2;
pub(super) const DELETE: usize = 3;
pub(super) const JOIN: usize = 4;

#[derive(Debug)]
pub(super) struct StudyClient {
    options: Options,
    statements: Arc<Statements>,
    draw: Random,
    /// The chunk that comes next, in the rotation.
    chunk: u64,
    /// The `id1` of the rows that it inserts, one into each table.
    own: i64,
    /// Whether that row of a table is known to be gone, so that it can be inserted.
    is_free: [Arc<AtomicBool>; TABLES.len()],
}

/// A choice among the kinds, where deletions and insertions take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeChoice {
    Read,
    Update,
    Change,
    Join,
}

impl StudyClient {
    pub(super) fn new(
        options: Options,
        statements: Arc<Statements>,
        number: usize,
        seed: u64,
    ) -> Self {
        StudyClient {
            own: i64::from(options.rows) + i64::try_from(number).expect("clients are far fewer"),
            options,
            statements,
            draw: Random::new(seed, number as u64),
            chunk: number as u64,
            is_free: TABLES.map(|_| Arc::default()),
        }
    }

    fn read(&mut self, table: usize, column: usize) -> Single {
        Single {
            kind: READ,
            statement: self.statements.reads[table][column].clone(),
            values: self.rows(),
            returned: Some(self.options.touched().into()),
            is_free: None,
        }
    }

    fn update(&mut self, table: usize, column: usize) -> Single {
        let mut values = vec![value(column, &mut self.draw)];
        values.append(&mut self.rows());
        Single {
            kind: UPDATE,
            statement: self.statements.updates[table][column].clone(),
            values,
            returned: None,
            is_free: None,
        }
    }

    fn join(&mut self, column: usize) -> Single {
        Single {
            kind: JOIN,
            statement: self.statements.joins[column].clone(),
            values: self.rows(),
            returned: Some(self.options.touched().into()),
            is_free: None,
        }
    }

    /// Deletes its row of a table, then inserts it. The deletion comes first, because an earlier
    /// run may have left the row; and again after an insertion or a deletion of which nobody knows
    /// what came of it, because the connection was lost.
    fn change(&mut self, table: usize) -> Single {
        let is_free = Arc::clone(&self.is_free[table]);
        let (kind, statements, values) = if is_free.load(Ordering::Relaxed) {
            (INSERT, &self.statements.inserts, row_of(self.own, &mut self.draw))
        } else {
            (DELETE, &self.statements.deletes, vec![self.own.into()])
        };
        let statement = statements[table].clone();
        Single { kind, statement, values, returned: None, is_free: Some(is_free) }
    }

    /// The values that say which rows: the first and the one after the last, or all of them.
    fn rows(&mut self) -> Vec<Value<'static>> {
        let (touched, region) = (self.options.touched(), self.options.region());
        let first = match self.options.placement {
            Placement::Random => self.draw.up_to(region - touched).into(),
            Placement::Rotation => {
                let chunk = self.chunk % u64::from(region / touched);
                self.chunk += 1;
                chunk * u64::from(touched)
            }
            Placement::Discrete => return discrete(touched, region, &mut self.draw),
        };
        [first, first + u64::from(touched)].map(whole).into()
    }
}

impl Client for StudyClient {
    fn next(&mut self) -> Arc<dyn Transaction> {
        let choice = choice(self.options.mix, &mut self.draw);
        let table = self.draw.index(TABLES.len());
        let column = self.draw.index(COLUMNS.len());
        match choice {
            RangeChoice::Read => Arc::new(self.read(table, column)),
            RangeChoice::Update => Arc::new(self.update(table, column)),
            RangeChoice::Change => Arc::new(self.change(table)),
            RangeChoice::Join => Arc::new(self.join(column)),
        }
    }
}

fn choice(mix: Mix, draw: &mut Random) -> RangeChoice {
    let mut left = draw.between(1, mix.total());
    for (weight, choice) in [
        (mix.reads, RangeChoice::Read),
        (mix.updates, RangeChoice::Update),
        (mix.changes, RangeChoice::Change),
    ] {
        left -= i32::from(weight);
        if left <= 0 {
            return choice;
        }
    }
    RangeChoice::Join
}

/// One row of each of `touched` pieces of the region, which differ by at most a row in size: each
/// row is as likely as another, and the list is in order without being sorted.
fn discrete(touched: u32, region: u32, draw: &mut Random) -> Vec<Value<'static>> {
    let (touched, region) = (u64::from(touched), u64::from(region));
    let from = |piece| piece * region / touched;
    (0..touched)
        .map(|piece| {
            let size = u32::try_from(from(piece + 1) - from(piece)).expect("a part of a u32");
            whole(from(piece) + u64::from(draw.up_to(size - 1)))
        })
        .collect()
}

fn whole(number: u64) -> Value<'static> {
    i64::try_from(number).expect("a row's number has 32 bits").into()
}

#[derive(Debug)]
struct Single {
    kind: usize,
    statement: Arc<Statement>,
    values: Vec<Value<'static>>,
    /// How many rows come back. Of updates it is not said: a database may count the rows that it
    /// found or those that have another value now.
    returned: Option<u64>,
    /// Whether the client's own row is known to be gone, of what deletes and inserts it.
    is_free: Option<Arc<AtomicBool>>,
}

impl Single {
    fn set_free(&self, is_free: bool) {
        if let Some(flag) = &self.is_free {
            flag.store(is_free, Ordering::Relaxed);
        }
    }
}

impl Transaction for Single {
    fn kind(&self) -> usize {
        self.kind
    }

    fn is_single(&self) -> bool {
        true
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            self.set_free(false);
            let count = session.execute(&self.statement, &self.values).await?;
            self.set_free(self.kind == DELETE);
            if self.returned.is_some_and(|returned| returned != count) {
                return Err(Failure::Unexpected("each id1 below the number of rows, once"));
            }
            Ok(Ending::Commit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thrash::options::Share;
    use crate::{Connection, Reply, Wants, finish};

    fn client(options: &Options, number: usize, seed: u64) -> StudyClient {
        let statements = Arc::new(Statements::new(options));
        StudyClient::new(options.clone(), statements, number, seed)
    }

    fn ints(values: &[Value<'_>]) -> Vec<i64> {
        let int = |value: &Value<'_>| match value {
            Value::Int(number) => *number,
            other => panic!("{other:?} is no number"),
        };
        values.iter().map(int).collect()
    }

    fn options(rows: u32, sf: f64, rose: f64, placement: Placement) -> Options {
        let share = |percent| Share::from_percent(percent).unwrap();
        Options { rows, sf: share(sf), rose: share(rose), placement, ..Options::read() }
    }

    #[test]
    fn ranges_are_as_wide_as_sf_says_and_end_where_rose_does() {
        for (rows, sf, rose, width, end) in [
            (30_000, 0.25, 25.0, 75, 7_500),
            (1_000_000, 0.01, 100.0, 100, 1_000_000),
            (1_000_000, 0.0001, 100.0, 1, 1_000_000),
            (50, 1.0, 50.0, 1, 25),
            (50, 100.0, 100.0, 50, 50),
            (1, 0.01, 0.01, 1, 1),
        ] {
            let options = options(rows, sf, rose, Placement::Random);
            let mut client = client(&options, 0, 7);
            let drawn: Vec<_> = (0..20_000).map(|_| ints(&client.rows())).collect();
            assert!(drawn.iter().all(|range| range[1] - range[0] == width && range[0] >= 0));
            let furthest = drawn.iter().map(|range| range[1]).max().unwrap();
            // With 20,000 draws the last hundredth of the region is reached.
            assert!((end - end / 100..=end).contains(&furthest), "{furthest} of {end}");
        }
    }

    #[test]
    fn the_rotation_touches_each_row_equally_often() {
        // The first 40 of 80 rows are the region: three chunks of 12, and four rows over.
        let options = options(80, 15.0, 50.0, Placement::Rotation);
        let mut touched = [0_u32; 80];
        for number in 0..4 {
            let mut client = client(&options, number, 1);
            assert_eq!(ints(&client.rows())[0], [0, 12, 24, 0][number]);
            let mut client = StudyClient { chunk: number as u64, ..client };
            for _ in 0..30 {
                let range = ints(&client.rows());
                (range[0]..range[1]).for_each(|row| touched[usize::try_from(row).unwrap()] += 1);
            }
        }
        assert!(touched[..36].iter().all(|&count| count == 40), "{touched:?}");
        assert!(touched[36..].iter().all(|&count| count == 0), "{touched:?}");
    }

    #[test]
    fn discrete_rows_are_as_many_as_sf_says_and_equally_likely() {
        let options = options(200, 5.0, 50.0, Placement::Discrete);
        let mut client = client(&options, 0, 3);
        let mut touched = [0_u32; 200];
        for _ in 0..10_000 {
            let rows = ints(&client.rows());
            assert_eq!(rows.len(), 10);
            assert!(rows.is_sorted_by(|a, b| a < b), "{rows:?}");
            for row in rows {
                touched[usize::try_from(row).unwrap()] += 1;
            }
        }
        // 1,000 expected; six standard deviations of a binomial are 180.
        assert!(touched[..100].iter().all(|&count| count.abs_diff(1_000) < 180), "{touched:?}");
        assert!(touched[100..].iter().all(|&count| count == 0), "{touched:?}");
    }

    #[test]
    fn pieces_that_do_not_divide_the_region_cover_it() {
        let mut draw = Random::new(1, 1);
        let mut seen = [false; 7];
        for _ in 0..500 {
            let rows = ints(&discrete(3, 7, &mut draw));
            assert!(rows.is_sorted_by(|a, b| a < b) && rows.len() == 3);
            for row in rows {
                seen[usize::try_from(row).unwrap()] = true;
            }
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(ints(&discrete(4, 4, &mut draw)), [0, 1, 2, 3]);
    }

    #[test]
    fn the_mix_is_drawn_by_its_weights() {
        let mix = Mix { reads: 5, updates: 3, changes: 2, joins: 10 };
        let options = Options { mix, ..Options::read() };
        let mut client = client(&options, 0, 11);
        let mut counts = [0_u32; 5];
        let mut connection = Losing(false);
        for _ in 0..20_000 {
            let transaction = client.next();
            counts[transaction.kind()] += 1;
            if [INSERT, DELETE].contains(&transaction.kind()) {
                finish(transaction.run(Session::immediate(&mut connection))).unwrap();
            }
        }
        // 5,000, 3,000, 1,000 twice, and 10,000; six standard deviations of the third are 185 and
        // of the last 424.
        for (kind, expected, most) in
            [(READ, 5_000, 370), (UPDATE, 3_000, 305), (INSERT, 1_000, 185), (JOIN, 10_000, 424)]
        {
            assert!(counts[kind].abs_diff(expected) < most, "{counts:?}");
        }
        assert!(counts[DELETE].abs_diff(counts[INSERT]) <= 2, "{counts:?}");
    }

    /// Loses the connection when it is told to.
    struct Losing(bool);

    impl Connection for Losing {
        fn run(&mut self, _: &Statement, _: &[Value<'_>], _: Wants) -> Result<Reply, Failure> {
            if self.0 { Err(Failure::Lost(String::new())) } else { Ok(Reply::default()) }
        }
    }

    #[test]
    fn a_client_deletes_before_it_inserts_and_only_its_own_row() {
        let options = Options { mix: Mix { changes: 1, ..Mix::default() }, ..Options::read() };
        let mut client = client(&options, 4, 1);
        for (expected, is_lost) in [
            (DELETE, false),
            (INSERT, false),
            (DELETE, true),
            (DELETE, false),
            (INSERT, true),
            (DELETE, false),
            (INSERT, false),
        ] {
            let change = Arc::new(client.change(1));
            assert_eq!((change.kind, &change.values[0]), (expected, &Value::Int(30_004)));
            let mut connection = Losing(is_lost);
            let ending = finish(change.run(Session::immediate(&mut connection)));
            assert_eq!(ending.is_err(), is_lost);
        }
    }

    #[test]
    fn a_seed_and_a_number_repeat_a_client() {
        let sequence = |number, seed| {
            let mut client = client(&Options::update(), number, seed);
            (0..20).map(|_| format!("{:?}", client.next())).collect::<Vec<_>>()
        };
        assert_eq!(sequence(2, 9), sequence(2, 9));
        assert_ne!(sequence(2, 9), sequence(3, 9));
        assert_ne!(sequence(2, 9), sequence(2, 8));
    }
}
