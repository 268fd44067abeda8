//! Isolation levels of transactions, by the names of the SQL standard.

use std::fmt;

/// How much of other transactions a transaction may see. What a database does at a level differs;
/// see its own documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// READ UNCOMMITTED.
    ReadUncommitted,
    /// READ COMMITTED.
    ReadCommitted,
    /// REPEATABLE READ.
    RepeatableRead,
    /// SERIALIZABLE.
    Serializable,
}

impl Isolation {
    const ALL: [Isolation; 4] = [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ];

    /// Its name in files and URLs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadUncommitted => "read-uncommitted",
            Isolation::ReadCommitted => "read-committed",
            Isolation::RepeatableRead => "repeatable-read",
            Isolation::Serializable => "serializable",
        }
    }

    /// The level of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Isolation::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl fmt::Display for Isolation {
    /// The level as SQL has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_uppercase().replace('-', " "))
    }
}
