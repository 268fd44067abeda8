//! Lock modes as data: which may be held side by side, and what two of them make together.
//!
//! # Mechanism
//! A [`ModeTable`] is two square tables with the same modes in the same order.
//!
//! * **Compatibility**: the row is the mode asked for, the column one that another locker holds. It
//!   need not be symmetric. U is asked for beside S and granted; S is asked for beside U and waits,
//!   so that the reader who means to write sees the other readers go and no new one come.
//! * **Conversion**: the row is the mode asked for, the column the one held already, the cell the
//!   mode held afterwards.
//!
//! Each row of compatibility becomes a set of modes in one machine word, and so does what a group
//! of lockers holds. Whether a request goes with the group is then one AND.
//!
//! # Laws
//! A table is checked when it is read, because a wrong cell is a lost update much later.
//!
//! 1. A mode over itself is that mode.
//! 2. What a conversion gives keeps out at least what either part keeps out.
//! 3. It waits for at least what either part waits for.
//! 4. Asking for a part again changes nothing more.
//!
//! Laws 2 and 3 are one law where compatibility is symmetric. Laws 1 and 4 make "equal or weaker"
//! decidable by conversion alone: a mode covers another when the other over it changes nothing. No
//! law asks for commutativity or associativity: a group is a set, never folded into one mode.
//!
//! # Where this leaves the literature
//! * **U and an intention to write.** U keeps new readers out, and SIX lets them begin. A table
//!   that leaves SIX as it is when U is asked for over it breaks law 2. So U and SIX make X here,
//!   and so do U and IX; `BrackitDB`'s table for the same modes agrees.
//! * **taDOM.** The published conversions of taDOM3+ give R where R is asked for over U: they
//!   downgrade, which lets a second U in. Law 2 refuses such a table; the supremum, without the
//!   downgrades, is read. In the test it is twenty modes.
//! * **Conversions with side conditions** (taDOM2: convert, and lock the children as well) need
//!   nothing here: the client sees what it holds and what the table makes of it before it asks.

use std::fmt;

use thiserror::Error;

/// Modes that a table may have, so that a set of them is one machine word.
pub const MODES_MAX: usize = 64;

/// A lock mode: a row of a [`ModeTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode(u8);

impl Mode {
    /// Returns the mode in row `row` of any table, counted from 0; `row` is below [`MODES_MAX`].
    pub(super) const fn in_row(row: u8) -> Mode {
        assert!((row as usize) < MODES_MAX);
        Mode(row)
    }

    /// Returns the row of the table, counted from 0.
    #[must_use]
    pub fn row(self) -> usize {
        debug_assert!(usize::from(self.0) < MODES_MAX, "a mode is a row of a table");
        // The remainder lets the compiler see that it is below the bound.
        usize::from(self.0) % MODES_MAX
    }
}

/// A set of modes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ModeSet(u64);

impl ModeSet {
    pub(super) const EMPTY: ModeSet = ModeSet(0);
    const ALL: ModeSet = ModeSet(u64::MAX);

    pub(super) fn of(mode: Mode) -> ModeSet {
        ModeSet(1 << mode.row())
    }

    pub(super) fn with(self, mode: Mode) -> ModeSet {
        self.or(ModeSet::of(mode))
    }

    pub(super) fn without(self, mode: Mode) -> ModeSet {
        ModeSet(self.0 & !ModeSet::of(mode).0)
    }

    pub(super) fn contains(self, mode: Mode) -> bool {
        self.intersects(ModeSet::of(mode))
    }

    pub(super) fn intersects(self, other: ModeSet) -> bool {
        self.0 & other.0 != 0
    }

    fn or(self, other: ModeSet) -> ModeSet {
        ModeSet(self.0 | other.0)
    }

    fn includes(self, other: ModeSet) -> bool {
        other.0 & !self.0 == 0
    }
}

impl fmt::Debug for ModeSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#b}", self.0)
    }
}

/// What is wrong with tables that are no [`ModeTable`], and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ModeTableError(String);

/// The modes of a lock protocol, see the [module](self).
#[derive(Clone, Debug)]
pub struct ModeTable {
    names: Vec<String>,
    /// For each mode asked for: those that it waits for when another locker holds them.
    conflicts: [ModeSet; MODES_MAX],
    /// For each mode: those that it cannot be beside, whichever was there first.
    clashes: [ModeSet; MODES_MAX],
    /// `conversions[held][requested]`.
    conversions: [[Mode; MODES_MAX]; MODES_MAX],
}

impl ModeTable {
    /// Reads the two tables of the [module](self) and checks its laws.
    ///
    /// Words are separated by blanks. The first line names the modes; each further line is a row
    /// and begins with its name. Empty lines are skipped.
    ///
    /// ```
    /// use tidegate_engine::lock::ModeTable;
    ///
    /// let compatibility = "
    ///     S X
    ///   S + -
    ///   X - -
    /// ";
    /// let conversion = "
    ///     S X
    ///   S S X
    ///   X X X
    /// ";
    /// let table = ModeTable::parse(compatibility, conversion)?;
    /// let (s, x) = (table.mode("S").unwrap(), table.mode("X").unwrap());
    /// assert!(table.is_compatible(s, s) && !table.is_compatible(s, x));
    /// assert_eq!(table.convert(s, x), x);
    /// # Ok::<(), tidegate_engine::lock::ModeTableError>(())
    /// ```
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(compatibility: &str, conversion: &str) -> Result<ModeTable, ModeTableError> {
        let compatibility = Grid::read("compatibility", compatibility)?;
        let conversion = Grid::read("conversion", conversion)?;
        if compatibility.names != conversion.names {
            let [one, other] = [&compatibility, &conversion].map(|grid| grid.names.join(" "));
            let what = format!("compatibility is about {one}, conversion about {other}");
            return Err(ModeTableError(what + "; name the same"));
        }
        let mut table = ModeTable::unread(&compatibility.names);
        table.read_compatibility(&compatibility)?;
        table.read_conversions(&conversion)?;
        table.check()?;
        Ok(table)
    }

    fn unread(names: &[&str]) -> ModeTable {
        ModeTable {
            names: names.iter().map(ToString::to_string).collect(),
            conflicts: [ModeSet::ALL; MODES_MAX],
            clashes: [ModeSet::ALL; MODES_MAX],
            conversions: [[Mode(0); MODES_MAX]; MODES_MAX],
        }
    }

    fn read_compatibility(&mut self, grid: &Grid<'_>) -> Result<(), ModeTableError> {
        for (requested, held, cell) in grid.cells() {
            match cell {
                "+" => {
                    let conflicts = &mut self.conflicts[requested.row()];
                    *conflicts = conflicts.without(held);
                }
                "-" => {}
                _ => {
                    let cell =
                        format!("{} beside {} is {cell:?}", self.name(requested), self.name(held));
                    return Err(ModeTableError(cell + "; write + to grant or - to wait"));
                }
            }
        }
        self.find_clashes();
        Ok(())
    }

    /// Returns the intent modes: in order of the table, each mode that goes with itself and with
    /// all intent modes before it.
    pub(super) fn intents(&self) -> ModeSet {
        self.modes().fold(ModeSet::EMPTY, |intents, mode| {
            let with = intents.with(mode);
            if self.clashes(mode).intersects(with) { intents } else { with }
        })
    }

    fn find_clashes(&mut self) {
        for mode in self.modes() {
            self.clashes[mode.row()] = self.conflicts[mode.row()].or(self.kept_out_by(mode));
        }
    }

    fn read_conversions(&mut self, grid: &Grid<'_>) -> Result<(), ModeTableError> {
        for (requested, held, cell) in grid.cells() {
            let result = self.mode(cell).ok_or_else(|| {
                let (requested, held) = (self.name(requested), self.name(held));
                ModeTableError(format!(
                    "{requested} over {held} gives {cell:?}, which is not a mode of the table"
                ))
            })?;
            self.conversions[held.row()][requested.row()] = result;
        }
        Ok(())
    }

    /// Tries the laws of the [module](self).
    fn check(&self) -> Result<(), ModeTableError> {
        let cells = || self.modes().flat_map(|held| self.modes().map(move |mode| (held, mode)));
        for (held, requested) in cells() {
            self.check_strength(held, requested, held)?;
            self.check_strength(held, requested, requested)?;
        }
        for (held, requested) in cells() {
            self.check_stability(held, requested)?;
        }
        Ok(())
    }

    /// Laws 2 and 3 for `requested` over `held`; `part` is either of them.
    fn check_strength(
        &self,
        held: Mode,
        requested: Mode,
        part: Mode,
    ) -> Result<(), ModeTableError> {
        let result = self.convert(held, requested);
        for other in self.modes() {
            let (part_name, other_name) = (self.name(part), self.name(other));
            let what = if self.is_compatible(other, result) && !self.is_compatible(other, part) {
                format!("which lets {other_name} in; {part_name} does not")
            } else if self.is_compatible(result, other) && !self.is_compatible(part, other) {
                format!("which goes beside {other_name}; {part_name} waits for it")
            } else {
                continue;
            };
            return Err(self.bad_conversion(held, requested, &what));
        }
        Ok(())
    }

    /// Laws 1 and 4 for `requested` over `held`.
    fn check_stability(&self, held: Mode, requested: Mode) -> Result<(), ModeTableError> {
        let result = self.convert(held, requested);
        let is_itself = held != requested || result == held;
        let mut parts = [held, requested].into_iter();
        match parts.find(|part| !is_itself || !self.covers(result, *part)) {
            None => Ok(()),
            Some(part) => {
                let what = format!("but asking for {} again gives another mode", self.name(part));
                Err(self.bad_conversion(held, requested, &what))
            }
        }
    }

    fn bad_conversion(&self, held: Mode, requested: Mode, what: &str) -> ModeTableError {
        let [asked, held, result] =
            [requested, held, self.convert(held, requested)].map(|mode| self.name(mode));
        ModeTableError(format!("{asked} over {held} gives {result}, {what}"))
    }

    /// Returns all modes, in the order of the table.
    pub fn modes(&self) -> impl Iterator<Item = Mode> + use<> {
        let count = self.names.len();
        (0..).map(Mode).take(count)
    }

    /// Returns the mode of this name.
    #[must_use]
    pub fn mode(&self, name: &str) -> Option<Mode> {
        self.modes().zip(&self.names).find(|(_, known)| *known == name).map(|(mode, _)| mode)
    }

    /// Returns the name of a mode; `?` for one of another table.
    #[must_use]
    pub fn name(&self, mode: Mode) -> &str {
        self.names.get(mode.row()).map_or("?", String::as_str)
    }

    /// Returns how many modes there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a table has at least one mode")]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether `mode` is a row of this table; one of another table may seem so.
    pub(super) fn knows(&self, mode: Mode) -> bool {
        mode.row() < self.names.len()
    }

    /// Returns whether `requested` is granted while another locker holds `held`.
    #[must_use]
    pub fn is_compatible(&self, requested: Mode, held: Mode) -> bool {
        !self.conflicts(requested).contains(held)
    }

    /// Returns the mode held after `requested` is granted to whom holds `held`.
    #[must_use]
    pub fn convert(&self, held: Mode, requested: Mode) -> Mode {
        debug_assert!(self.knows(held) && self.knows(requested), "both are of this table");
        self.conversions[held.row()][requested.row()]
    }

    /// Returns whether `held` is as strong as `requested` or stronger, so that nothing needs to be
    /// asked for.
    #[must_use]
    pub fn covers(&self, held: Mode, requested: Mode) -> bool {
        self.convert(held, requested) == held
    }

    /// Returns the modes that a request for `requested` waits for when another locker holds them.
    pub(super) fn conflicts(&self, requested: Mode) -> ModeSet {
        debug_assert!(self.knows(requested), "the mode is of this table");
        self.conflicts[requested.row()]
    }

    /// Returns the modes that `mode` cannot be beside, whichever was there first.
    pub(super) fn clashes(&self, mode: Mode) -> ModeSet {
        self.clashes[mode.row()]
    }

    /// Returns whether a new request for `requested` that is queued behind one for `ahead` waits
    /// for it, and for no other locker for which that one does not wait.
    pub(super) fn waits_only_behind(&self, requested: Mode, ahead: Mode) -> bool {
        self.clashes(requested).contains(ahead)
            && self.clashes(ahead).includes(self.clashes(requested))
            && self.conflicts(ahead).includes(self.conflicts(requested))
    }

    /// Returns the modes that wait when they are asked for beside `held`.
    fn kept_out_by(&self, held: Mode) -> ModeSet {
        let waiting = self.modes().filter(|requested| !self.is_compatible(*requested, held));
        waiting.fold(ModeSet::EMPTY, ModeSet::with)
    }
}

/// Checks that there are names, not too many, and none twice.
fn check_names(table: &str, names: &[&str]) -> Result<(), ModeTableError> {
    let count = names.len();
    if !(1..=MODES_MAX).contains(&count) {
        return Err(ModeTableError(format!("the {table} table names {count} modes; give 1 to 64")));
    }
    match (1..count).find(|&at| names[..at].contains(&names[at])) {
        None => Ok(()),
        Some(at) => Err(ModeTableError(format!("the {table} table names {} twice", names[at]))),
    }
}

/// A square table as written.
struct Grid<'a> {
    names: Vec<&'a str>,
    rows: Vec<Vec<&'a str>>,
}

impl<'a> Grid<'a> {
    fn read(table: &'static str, text: &'a str) -> Result<Grid<'a>, ModeTableError> {
        let mut lines = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<&str>>())
            .filter(|words| !words.is_empty());
        // A text without lines names no mode.
        let names = lines.next().unwrap_or_default();
        check_names(table, &names)?;
        let mut rows: Vec<Vec<&str>> = lines.collect();
        let row_names: Vec<&str> = rows.iter_mut().map(|row| row.remove(0)).collect();
        if row_names != names {
            let (rows, columns) = (row_names.join(" "), names.join(" "));
            return Err(ModeTableError(format!(
                "the rows of the {table} table are {rows}; give those of its first line: {columns}"
            )));
        }
        for (name, row) in names.iter().zip(&rows) {
            if row.len() != names.len() {
                let cells = row.len();
                return Err(ModeTableError(format!(
                    "row {name} of the {table} table has {cells} cells; give one for each mode"
                )));
            }
        }
        Ok(Grid { names, rows })
    }

    /// Row, column and text of each cell.
    fn cells(&self) -> impl Iterator<Item = (Mode, Mode, &'a str)> {
        let numbered = (0..).map(Mode).zip(&self.rows);
        numbered.flat_map(|(row, cells)| {
            let columns = (0..).map(Mode);
            columns.zip(cells).map(move |(column, cell)| (row, column, *cell))
        })
    }
}

pub mod multi_granularity {
    //! The modes of multi-granularity locking, for resources that contain one another.
    //!
    //! | mode | its holder |
    //! | --- | --- |
    //! | IS | reads some parts, and locks each |
    //! | IX | writes some parts, and locks each |
    //! | S | reads all of it |
    //! | SIX | reads all of it and writes some parts |
    //! | U | reads all of it and may come to write it |
    //! | X | writes it |
    //!
    //! Before a part is locked, all that contains it is locked: in IS for IS and S, in IX for the
    //! others. Gray and Reuter, Transaction Processing, chapter 7; [`modes`](super) says what
    //! was decided where tables differ.

    use super::{Mode, ModeTable};

    /// Intention to read parts.
    pub const IS: Mode = Mode::in_row(0);
    /// Intention to write parts.
    pub const IX: Mode = Mode::in_row(1);
    /// Shared: read all.
    pub const S: Mode = Mode::in_row(2);
    /// Shared, with the intention to write parts.
    pub const SIX: Mode = Mode::in_row(3);
    /// Update: read all and perhaps write it later.
    pub const U: Mode = Mode::in_row(4);
    /// Exclusive: write.
    pub const X: Mode = Mode::in_row(5);

    /// The row is asked for, the column is held by another.
    const COMPATIBILITY: &str = "
              IS   IX   S    SIX  U    X
        IS    +    +    +    +    -    -
        IX    +    +    -    -    -    -
        S     +    -    +    -    -    -
        SIX   +    -    -    -    -    -
        U     +    -    +    -    -    -
        X     -    -    -    -    -    -
    ";

    /// The row is asked for, the column is held already.
    const CONVERSION: &str = "
              IS   IX   S    SIX  U    X
        IS    IS   IX   S    SIX  U    X
        IX    IX   IX   SIX  SIX  X    X
        S     S    SIX  S    SIX  U    X
        SIX   SIX  SIX  SIX  SIX  X    X
        U     U    X    U    X    U    X
        X     X    X    X    X    X    X
    ";

    impl ModeTable {
        /// Returns the modes of [`multi_granularity`](self).
        #[must_use]
        #[expect(
            clippy::missing_panics_doc,
            reason = "the tables are constants and a test reads them"
        )]
        pub fn multi_granularity() -> ModeTable {
            ModeTable::parse(COMPATIBILITY, CONVERSION).expect("the tables above obey the laws")
        }
    }
}

#[cfg(test)]
mod tests {
    //! The tables that are read, and those that are not.

    use super::multi_granularity::{IS, IX, S, SIX, U, X};
    use super::*;

    const MODES: [Mode; 6] = [IS, IX, S, SIX, U, X];

    #[test]
    fn the_multi_granularity_modes_are_where_their_names_are() {
        let table = ModeTable::multi_granularity();
        let names: Vec<&str> = MODES.iter().map(|mode| table.name(*mode)).collect();
        assert_eq!(names, ["IS", "IX", "S", "SIX", "U", "X"]);
        for mode in MODES {
            assert_eq!(table.mode(table.name(mode)), Some(mode));
        }
        assert_eq!(table.mode("SU"), None);
    }

    #[test]
    fn only_the_update_mode_is_not_symmetric() {
        let table = ModeTable::multi_granularity();
        for one in MODES {
            for other in MODES {
                let is_symmetric =
                    table.is_compatible(one, other) == table.is_compatible(other, one);
                let is_update_and_reader = matches!((one, other), (U, IS | S) | (IS | S, U));
                assert_eq!(is_symmetric, !is_update_and_reader, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn sets_say_what_the_table_says() {
        let table = ModeTable::multi_granularity();
        for one in MODES {
            for other in MODES {
                let (there, back) =
                    (table.is_compatible(one, other), table.is_compatible(other, one));
                assert_eq!(table.conflicts(one).contains(other), !there, "{one:?} {other:?}");
                assert_eq!(
                    table.clashes(one).contains(other),
                    !there || !back,
                    "{one:?} {other:?}"
                );
            }
        }
    }

    #[test]
    fn a_request_is_covered_by_the_one_before_it_where_that_waits_for_as_much() {
        let table = ModeTable::multi_granularity();
        for (requested, ahead, is_covered, why) in [
            (X, X, true, "the same, and they clash"),
            (S, S, false, "they go together"),
            (S, X, true, "X waits for all that S waits for"),
            (X, S, false, "X also waits for IS"),
            (S, IX, false, "S waits for IX, IX for no IX"),
            (U, SIX, false, "U stands behind a waiting IS, SIX beside it"),
        ] {
            assert_eq!(table.waits_only_behind(requested, ahead), is_covered, "{why}");
        }
    }

    #[test]
    fn modes_know_what_covers_them() {
        let table = ModeTable::multi_granularity();
        let covered = |held: Mode| -> Vec<&str> {
            let weaker = MODES.iter().filter(|mode| table.covers(held, **mode));
            weaker.map(|mode| table.name(*mode)).collect()
        };
        let expected: [(Mode, &[&str]); 6] = [
            (IS, &["IS"]),
            (IX, &["IS", "IX"]),
            (S, &["IS", "S"]),
            (SIX, &["IS", "IX", "S", "SIX"]),
            (U, &["IS", "S", "U"]),
            (X, &["IS", "IX", "S", "SIX", "U", "X"]),
        ];
        for (held, expected) in expected {
            assert_eq!(covered(held), expected, "{}", table.name(held));
        }
    }

    /// Reads a table of S and X, whose rows are given.
    fn read(compatibility: &str, conversion: &str) -> Result<ModeTable, ModeTableError> {
        let rows = |text: &str| format!("S X\n{}", text.replace(", ", "\n"));
        ModeTable::parse(&rows(compatibility), &rows(conversion))
    }

    #[test]
    fn what_is_wrong_with_a_table_is_said() {
        let (good, join) = ("S + -, X - -", "S S X, X X X");
        assert!(read(good, join).is_ok());
        for (compatibility, conversion, error) in [
            (
                "S + -",
                join,
                "the rows of the compatibility table are S; give those of its first line: S X",
            ),
            (
                "X - -, S + -",
                join,
                "the rows of the compatibility table are X S; give those of its first line: S X",
            ),
            (
                "S + -, X -",
                join,
                "row X of the compatibility table has 1 cells; give one for each mode",
            ),
            ("S + no, X - -", join, "S beside X is \"no\"; write + to grant or - to wait"),
            (good, "S S X, X X Y", "X over X gives \"Y\", which is not a mode of the table"),
            (good, "S S S, X X X", "S over X gives S, which lets S in; X does not"),
            (good, "S X X, X X X", "S over S gives X, but asking for S again gives another mode"),
            (
                "S + +, X - -",
                "S S S, X S X",
                "X over S gives S, which goes beside S; X waits for it",
            ),
        ] {
            let refused = read(compatibility, conversion).map(|_| ());
            assert_eq!(refused.map_err(|error| error.to_string()), Err(error.to_owned()));
        }
    }

    #[test]
    fn what_is_wrong_with_the_names_is_said() {
        let many: Vec<String> = (0..65).map(|number| format!("M{number}")).collect();
        let s = "S\nS S";
        for (compatibility, conversion, error) in [
            ("", s, "the compatibility table names 0 modes; give 1 to 64"),
            (&many.join(" "), s, "the compatibility table names 65 modes; give 1 to 64"),
            ("S S", s, "the compatibility table names S twice"),
            ("S\nS +", "X\nX X", "compatibility is about S, conversion about X; name the same"),
        ] {
            let refused = ModeTable::parse(compatibility, conversion).map(|_| ());
            assert_eq!(refused.map_err(|error| error.to_string()), Err(error.to_owned()));
        }
    }

    #[test]
    fn a_table_may_have_as_many_modes_as_a_word_has_bits() {
        let names: Vec<String> = (0..MODES_MAX).map(|number| format!("M{number}")).collect();
        let table = |cell: &dyn Fn(usize, usize) -> String| {
            let row = |row: usize| {
                let cells: Vec<String> = (0..MODES_MAX).map(|column| cell(row, column)).collect();
                format!("{} {}", names[row], cells.join(" "))
            };
            let rows: Vec<String> = (0..MODES_MAX).map(row).collect();
            format!("{}\n{}", names.join(" "), rows.join("\n"))
        };
        // Each keeps out those whose numbers, with its own, come to 64 or more.
        let compatibility =
            table(&|row, column| if row + column < MODES_MAX { "+" } else { "-" }.to_owned());
        let conversion = table(&|row, column| names[row.max(column)].clone());
        let table = ModeTable::parse(&compatibility, &conversion).expect("the laws hold");
        let (first, last) = (table.mode("M0").expect("it is"), table.mode("M63").expect("it is"));
        assert!(table.is_compatible(last, first) && !table.is_compatible(last, last));
        assert_eq!(table.convert(first, last), last);
    }
}
