//! The connection that keeps a database's page cache, which ends with the last one; and the end of
//! all others.
//!
//! Who is connected is in a monitoring table, and an attachment that is deleted from it is ended,
//! also in the middle of a statement. What it was at is rolled back, and its client told that the
//! connection is lost. It may take a moment to be gone, so who wants to be alone asks again.
//!
//! Source: Firebird 3 Language Reference, appendix D, `MON$ATTACHMENTS`.

use tidegate_workload::{Connection, Failure, Statement, Wants};

use super::connection::{FirebirdConnection, Purpose, Target};

const NUMBER: Statement = Statement::new("SELECT current_connection FROM rdb$database");

/// The server's own attachments, such as its garbage collector's, are left alone.
const OTHERS: Statement = Statement::new(
    "SELECT COUNT(*) FROM mon$attachments \
     WHERE mon$system_flag = 0 AND mon$attachment_id NOT IN (CURRENT_CONNECTION, ?)",
);
const END: Statement = Statement::new(
    "DELETE FROM mon$attachments \
     WHERE mon$system_flag = 0 AND mon$attachment_id NOT IN (CURRENT_CONNECTION, ?)",
);

/// A connection that stays.
#[derive(Debug)]
pub(super) struct Keeper {
    connection: FirebirdConnection,
    /// Its number among the server's attachments.
    number: i64,
}

impl Keeper {
    pub(super) fn new(mut connection: FirebirdConnection) -> Result<Self, Failure> {
        let reply = connection.run(&NUMBER, &[], Wants::Rows)?;
        let number = reply.rows.int(0, 0).ok_or(Failure::Unexpected("a connection's number"))?;
        Ok(Keeper { connection, number })
    }

    pub(super) fn connection(&self) -> &FirebirdConnection {
        &self.connection
    }

    pub(super) fn into_connection(self) -> FirebirdConnection {
        self.connection
    }

    /// Ends all other connections to the database; how many there were.
    pub(super) fn end_others(&self, target: &Target) -> Result<usize, Failure> {
        let mut connection = FirebirdConnection::open(target, Purpose::Use)?;
        let keeper = [self.number.into()];
        let reply = connection.run(&OTHERS, &keeper, Wants::Rows)?;
        let others = reply.rows.int(0, 0).and_then(|count| usize::try_from(count).ok());
        let others = others.ok_or(Failure::Unexpected("a count of connections"))?;
        if others > 0 {
            connection.run(&END, &keeper, Wants::Count)?;
        }
        Ok(others)
    }
}
