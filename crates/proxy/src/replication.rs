//! Replication connections: `pg_receivewal`, `pg_basebackup`, `pg_recvlogical`, a standby.
//!
//! A client asks for one by the start-up parameter `replication`. It gets a connection of its own
//! to the server, whichever the mode of its database, and everything it sends is passed on. Such a
//! connection streams for hours and runs no transactions, so it takes no permit, and only the
//! bounds `login` and `message` apply to it. The server has a place of its own for it
//! (`max_wal_senders`).

/// What a replication connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Replication {
    /// The log of the whole server.
    Physical,
    /// The changes of one database, decoded; SQL can be run as well.
    Logical,
}

/// A value of the start-up parameter `replication` that the server would not take either.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid value for parameter \"replication\": {0:?}: valid values are \"false\", 0, \"true\", \
     1, \"database\""
)]
pub(crate) struct InvalidReplication(String);

impl Replication {
    /// Reads the value of the start-up parameter, as the server does: a truth value may be cut
    /// short. `None` is an ordinary connection.
    pub(crate) fn parse(value: &str) -> Result<Option<Replication>, InvalidReplication> {
        if value == "database" {
            return Ok(Some(Replication::Logical));
        }
        let folded = value.to_ascii_lowercase();
        let is = |word: &str, least: usize| folded.len() >= least && word.starts_with(&folded);
        if folded == "1" || is("true", 1) || is("yes", 1) || is("on", 2) {
            Ok(Some(Replication::Physical))
        } else if folded == "0" || is("false", 1) || is("no", 1) || is("off", 2) {
            Ok(None)
        } else {
            Err(InvalidReplication(value.to_owned()))
        }
    }

    /// Returns the value of the start-up parameter.
    pub(crate) fn value(self) -> &'static [u8] {
        match self {
            Replication::Physical => b"true",
            Replication::Logical => b"database",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_the_server_are_understood() {
        for value in ["true", "TRUE", "t", "yes", "y", "on", "1"] {
            assert_eq!(Replication::parse(value), Ok(Some(Replication::Physical)), "{value}");
        }
        for value in ["false", "F", "no", "off", "of", "0"] {
            assert_eq!(Replication::parse(value), Ok(None), "{value}");
        }
        assert_eq!(Replication::parse("database"), Ok(Some(Replication::Logical)));
        for value in ["", "o", "Database", "2", "trues"] {
            assert_eq!(Replication::parse(value), Err(InvalidReplication(value.into())));
        }
    }
}
