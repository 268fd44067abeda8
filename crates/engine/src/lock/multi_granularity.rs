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
//! others. Gray and Reuter, Transaction Processing, chapter 7; [`modes`](super::modes) says what
//! was decided where tables differ.

use super::modes::{Mode, ModeTable};

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
    /// The modes of [`multi_granularity`](self).
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "the tables are constants and a test reads them")]
    pub fn multi_granularity() -> ModeTable {
        ModeTable::parse(COMPATIBILITY, CONVERSION).expect("the tables above obey the laws")
    }
}
