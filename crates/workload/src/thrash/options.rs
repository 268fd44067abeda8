//! What an experiment varies: size, primary key, SF, ROSE, the placing of rows, and the mix.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Dialect;
use crate::workload::Unfit;

/// The most rows of a table, so that there is room above them for the rows that clients insert.
pub const ROWS_MAX: u32 = i32::MAX.cast_unsigned() - CLIENTS_MAX;

/// The most clients that insert and delete rows of their own.
pub const CLIENTS_MAX: u32 = 1 << 20;

/// The longest list of rows in one statement, which is the number of values that SQLite takes;
/// PostgreSQL and MariaDB take twice as many.
pub const LIST_MAX: u32 = 32_766;

/// The longest list that Firebird takes before its version 5, and here on any.
pub const LIST_MAX_FIREBIRD: u32 = 1_500;

/// A share of a table's rows, in millionths, so that one row of a million can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    const WHOLE: u32 = 1_000_000;

    pub const ALL: Share = Share(Share::WHOLE);

    /// The smallest share, which is one row of every table of up to two million.
    pub const ONE_ROW: Share = Share(1);

    /// The study's SF of reads: 0.01, 0.1 and 1 %.
    pub const STUDY_SF_READ: [Share; 3] = [Share(100), Share(1_000), Share(10_000)];

    /// The study's SF of updates: 0.25, 0.5, 0.75 and 1 %.
    pub const STUDY_SF_UPDATE: [Share; 4] =
        [Share(2_500), Share(5_000), Share(7_500), Share(10_000)];

    /// The study's ROSE: 25, 50, 75 and 100 %.
    pub const STUDY_ROSE: [Share; 4] = [Share(250_000), Share(500_000), Share(750_000), Share::ALL];

    /// So many per cent, rounded to the nearest ten-thousandth of a per cent; `None` when that is
    /// not above 0 and at most 100.
    pub fn from_percent(percent: f64) -> Option<Self> {
        let millionths = (percent * 10_000.0).round();
        if !(1.0..=f64::from(Self::WHOLE)).contains(&millionths) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number of 1..=1_000_000"
        )]
        Some(Share(millionths as u32))
    }

    pub fn percent(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }

    /// The share of `rows`, rounded down, at least 1.
    pub fn of(self, rows: u32) -> u32 {
        let share = u64::from(rows) * u64::from(self.0) / u64::from(Self::WHOLE);
        u32::try_from(share.max(1)).expect("a share is at most the whole")
    }
}

/// Where in the region the rows of a transaction lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// In a range with a random start: what the study ran. Rows near the ends of the region are in
    /// fewer ranges than those in its middle.
    #[default]
    Random,
    /// In chunks of the region, one after the other and then again from the first: the first way
    /// of Section 7.3, by which each row is touched equally often.
    Rotation,
    /// One here and one there, given as a list of values of `id1`: its second way.
    Discrete,
}

/// How often each kind of transaction is drawn, as weights: 3 and 1 are three of four and one of
/// four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mix {
    pub reads: u16,
    pub updates: u16,
    /// Deletions and insertions, by turns.
    pub changes: u16,
    /// Reads of a column of both tables, joined.
    pub joins: u16,
}

impl Mix {
    /// Reads alone, as in the study's read group.
    pub const READS: Mix = Mix { reads: 1, updates: 0, changes: 0, joins: 0 };

    /// Updates alone, as in the study's update group.
    pub const UPDATES: Mix = Mix { reads: 0, updates: 1, changes: 0, joins: 0 };

    pub(super) fn total(self) -> i32 {
        [self.reads, self.updates, self.changes, self.joins].into_iter().map(i32::from).sum()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rows of each of the two tables: a million in the study, 30,000 on one of its systems.
    pub rows: u32,
    /// Whether `id1` is declared the primary key (PK). Without it there is no index at all, and
    /// each statement reads the whole table.
    pub primary_key: bool,
    /// The share of the rows that a transaction touches (SF), but for insertions and deletions.
    pub sf: Share,
    /// The share of the rows that it may touch: the first so many (ROSE).
    pub rose: Share,
    /// Where in that region they lie.
    pub placement: Placement,
    pub mix: Mix,
}

impl Options {
    /// The study's small tables.
    pub const ROWS_SMALL: u32 = 30_000;

    /// The study's tables.
    pub const ROWS_STUDY: u32 = 1_000_000;

    /// Reads of 0.1 % of the rows anywhere, the middle of the study's reads, on small tables: 30
    /// rows. Nobody waits for a lock, so what a limit does here is not about contention.
    pub fn read() -> Self {
        Options {
            rows: Self::ROWS_SMALL,
            primary_key: true,
            sf: Share::STUDY_SF_READ[1],
            rose: Share::ALL,
            placement: Placement::Random,
            mix: Mix::READS,
        }
    }

    /// Updates of 0.25 % of the rows within the first quarter, the study's smallest SF and ROSE,
    /// on small tables: 75 of 7,500 rows.
    pub fn update() -> Self {
        Options {
            sf: Share::STUDY_SF_UPDATE[0],
            rose: Share::STUDY_ROSE[0],
            mix: Mix::UPDATES,
            ..Self::read()
        }
    }

    /// How many rows a transaction touches.
    pub fn touched(&self) -> u32 {
        self.sf.of(self.rows)
    }

    /// How many rows it may touch.
    pub fn region(&self) -> u32 {
        self.rose.of(self.rows)
    }

    /// Looks whether a database of this dialect takes lists as long as a transaction's.
    pub(super) fn validate_on(&self, dialect: Dialect) -> Result<(), Unfit> {
        let longest = if dialect == Dialect::Firebird { LIST_MAX_FIREBIRD } else { LIST_MAX };
        let touched = self.touched();
        if self.placement != Placement::Discrete || touched <= longest {
            return Ok(());
        }
        Err(Unfit(format!(
            "thrash: {touched} discrete rows a transaction; {dialect:?} takes {longest}: lower SF"
        )))
    }

    /// Looks whether there are such transactions.
    pub(super) fn validate(&self) -> Result<(), ContradictoryOptions> {
        if !(1..=ROWS_MAX).contains(&self.rows) {
            return Err(ContradictoryOptions::Rows(self.rows));
        }
        if self.sf > self.rose {
            return Err(ContradictoryOptions::Region {
                sf: self.sf.percent(),
                rose: self.rose.percent(),
            });
        }
        if self.placement == Placement::Discrete && self.touched() > LIST_MAX {
            return Err(ContradictoryOptions::List(self.touched()));
        }
        if self.mix.total() == 0 { Err(ContradictoryOptions::Mix) } else { Ok(()) }
    }
}

#[derive(Clone, Debug, PartialEq, Error)]
pub enum ContradictoryOptions {
    #[error("thrash: {0} rows; give 1 to {ROWS_MAX}")]
    Rows(u32),
    #[error("thrash: SF is {sf} % and ROSE {rose} %; a transaction cannot touch more than it may")]
    Region { sf: f64, rose: f64 },
    #[error("thrash: {0} discrete rows a transaction; databases take {LIST_MAX}: lower SF")]
    List(u32),
    #[error("thrash: all weights of the mix are 0; give one of them more")]
    Mix,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_down_to_rows_but_never_to_none() {
        for (percent, rows, expected) in [
            (0.25, 30_000, 75),
            (25.0, 30_000, 7_500),
            (0.01, 1_000_000, 100),
            (0.0001, 1_000_000, 1),
            (0.0001, 30_000, 1),
            (1.0, 50, 1),
            (3.0, 50, 1),
            (100.0, 50, 50),
            (100.0, ROWS_MAX, ROWS_MAX),
        ] {
            let share = Share::from_percent(percent).unwrap();
            assert_eq!(share.of(rows), expected, "{percent} % of {rows}");
            assert_eq!(Share::from_percent(share.percent()), Some(share));
        }
        for wrong in [0.0, 0.00004, -1.0, 100.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::from_percent(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_studys_shares_are_its_percentages() {
        let percents =
            |shares: &[Share]| -> Vec<f64> { shares.iter().map(|share| share.percent()).collect() };
        assert_eq!(percents(&Share::STUDY_SF_READ), [0.01, 0.1, 1.0]);
        assert_eq!(percents(&Share::STUDY_SF_UPDATE), [0.25, 0.5, 0.75, 1.0]);
        assert_eq!(percents(&Share::STUDY_ROSE), [25.0, 50.0, 75.0, 100.0]);
        assert_eq!((Options::read().touched(), Options::read().region()), (30, 30_000));
        assert_eq!((Options::update().touched(), Options::update().region()), (75, 7_500));
    }

    #[test]
    fn firebird_takes_short_lists_alone() {
        let discrete = |rows| Options {
            rows,
            sf: Share::STUDY_SF_UPDATE[3],
            placement: Placement::Discrete,
            ..Options::read()
        };
        let refused = discrete(150_100).validate_on(Dialect::Firebird).unwrap_err().to_string();
        assert!(refused.contains("1501 discrete rows") && refused.contains("1500"), "{refused}");
        assert_eq!(discrete(150_000).validate_on(Dialect::Firebird), Ok(()));
        for dialect in [Dialect::Postgres, Dialect::MariaDb, Dialect::Sqlite, Dialect::Embedded] {
            assert_eq!(discrete(150_100).validate_on(dialect), Ok(()));
        }
        // A range is two numbers, however long it is.
        let range = Options { placement: Placement::Random, ..discrete(150_100) };
        assert_eq!(range.validate_on(Dialect::Firebird), Ok(()));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |change: fn(&mut Options)| {
            let mut options = Options::read();
            change(&mut options);
            options.validate().unwrap_err()
        };
        assert_eq!(Options::read().validate(), Ok(()));
        assert_eq!(refused(|o| o.rows = 0), ContradictoryOptions::Rows(0));
        assert_eq!(refused(|o| o.rows = u32::MAX), ContradictoryOptions::Rows(u32::MAX));
        assert_eq!(
            refused(|o| (o.sf, o.rose) = (Share::ALL, Share::STUDY_ROSE[0])),
            ContradictoryOptions::Region { sf: 100.0, rose: 25.0 }
        );
        assert_eq!(
            refused(|o| {
                (o.rows, o.sf, o.placement) = (40_000, Share::ALL, Placement::Discrete);
            }),
            ContradictoryOptions::List(40_000)
        );
        assert_eq!(refused(|o| o.mix = Mix::default()), ContradictoryOptions::Mix);
    }
}
