//! Connections that answer when they return, whatever database is behind them: transactions run on
//! them, tables loaded through them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;
use tidegate_workload::workload::{Condition, Depth, Transaction, Unfit, Workload};
use tidegate_workload::{
    Connection, Dialect, Ending, Failure, Session, Statement, Table, Value, Wants, finish,
};

/// Rows that one transaction puts into a table.
const BATCH: usize = 1_000;

/// A connection with transactions.
pub trait Transactional: Connection + Send {
    /// Begins a transaction.
    ///
    /// # Errors
    /// See [`Failure`].
    fn begin(&mut self) -> Result<(), Failure>;

    /// Begins a transaction that changes nothing, where the database gains by knowing that: SQLite
    /// does not make it wait for the one that writes. The others see by themselves what a
    /// transaction does, and begin it as any other.
    ///
    /// # Errors
    /// See [`Failure`].
    fn begin_reading(&mut self) -> Result<(), Failure> {
        self.begin()
    }

    /// Makes its work last.
    ///
    /// # Errors
    /// See [`Failure`]; after a conflict the work is undone.
    fn commit(&mut self) -> Result<(), Failure>;

    /// Undoes its work. Nothing happens when none is under way.
    ///
    /// # Errors
    /// See [`Failure`]; the connection is then of no more use.
    fn rollback(&mut self) -> Result<(), Failure>;

    /// The dialect that statements are given in.
    fn dialect(&self) -> Dialect;

    /// What ends a statement that takes too long, where the database has that. The statement fails.
    fn interrupter(&self) -> Option<Interrupter> {
        None
    }

    /// Inserts rows of a table, within a transaction. Databases with a faster way have their own.
    ///
    /// # Errors
    /// See [`Failure`].
    fn insert(&mut self, table: &Table, rows: &[Vec<Value<'static>>]) -> Result<(), Failure> {
        let statement = table.insert();
        rows.iter().try_for_each(|row| self.run(&statement, row, Wants::Count).map(drop))
    }
}

/// Makes connections, each for a thread of its own.
pub trait Connector: std::fmt::Debug + Send + Sync {
    /// A new connection.
    ///
    /// # Errors
    /// See [`Failure`].
    fn connect(&self) -> Result<Box<dyn Transactional>, Failure>;
}

/// Ends what a connection is at, from another thread.
pub type Interrupter = Box<dyn Fn() + Send>;

/// Runs a transaction from its begin to its end, once. What calls a stored procedure elsewhere is
/// its own logic on a database in this process, which needs none.
///
/// # Errors
/// See [`Failure`]. The transaction's work is undone then.
pub fn run<C: Transactional + ?Sized>(
    connection: &mut C,
    transaction: Arc<dyn Transaction>,
) -> Result<Ending, Failure> {
    let transaction = match connection.dialect() {
        Dialect::Sqlite | Dialect::Embedded => transaction.called().unwrap_or(transaction),
        Dialect::Postgres | Dialect::MariaDb | Dialect::Firebird => transaction,
    };
    let end = attempt(connection, &transaction);
    if end == Ok(Ending::Commit) {
        transaction.committed();
    }
    end
}

fn attempt<C: Transactional + ?Sized>(
    connection: &mut C,
    transaction: &Arc<dyn Transaction>,
) -> Result<Ending, Failure> {
    let running = Arc::clone(transaction);
    if transaction.is_single() {
        return finish(running.run(Session::immediate(connection)));
    }
    if transaction.is_read_only() {
        connection.begin_reading()?;
    } else {
        connection.begin()?;
    }
    let end = match finish(running.run(Session::immediate(connection))) {
        Ok(Ending::Commit) => connection.commit().map(|()| Ending::Commit),
        Ok(Ending::Rollback) => connection.rollback().map(|()| Ending::Rollback),
        Err(failure) => Err(failure),
    };
    if end.is_err() {
        // The first failure says more than what it leads to.
        let _ = connection.rollback();
    }
    end
}

/// Why a workload's tables are not there.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The database cannot run the workload; nothing was made.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The database failed.
    #[error("cannot load table {table}: {source}")]
    Table {
        /// Which table.
        table: &'static str,
        /// What the database says.
        source: Failure,
    },
    /// The database failed at a stored procedure.
    #[error("cannot make the stored procedure {procedure}: {source}")]
    Procedure {
        /// Which procedure.
        procedure: &'static str,
        /// What the database says.
        source: Failure,
    },
    /// The caller raised the cancellation flag.
    #[error("cancelled")]
    Cancelled,
}

/// Makes a workload's tables, which must not be there, fills them, and makes their indexes; then
/// its stored procedures. Calls `progress` with the rows loaded so far.
///
/// # Errors
/// See [`LoadError`].
pub fn load<C: Transactional + ?Sized>(
    connection: &mut C,
    workload: &dyn Workload,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<(), LoadError> {
    workload.validate(connection.dialect())?;
    let mut loaded = 0;
    for (place, table) in workload.tables().iter().enumerate() {
        let failed = |source| LoadError::Table { table: table.name, source };
        define(connection, &table.create(connection.dialect())).map_err(failed)?;
        let mut rows = workload.rows(place);
        loop {
            if cancel.load(Ordering::Relaxed) {
                return Err(LoadError::Cancelled);
            }
            let batch: Vec<_> = rows.by_ref().take(BATCH).collect();
            insert(connection, table, &batch).map_err(failed)?;
            loaded += batch.len() as u64;
            progress(loaded);
            if batch.len() < BATCH {
                break;
            }
        }
        table
            .create_indexes()
            .iter()
            .try_for_each(|index| define(connection, index))
            .map_err(failed)?;
    }
    for procedure in workload.procedures(connection.dialect()) {
        define(connection, &procedure.create)
            .map_err(|source| LoadError::Procedure { procedure: procedure.name, source })?;
    }
    Ok(())
}

/// Removes a workload's stored procedures and tables where they are there. Procedures go first,
/// those that need others before these: a database may keep a table that a procedure needs.
///
/// # Errors
/// See [`Failure`]; that something is not there is none.
pub fn remove<C: Transactional + ?Sized>(
    connection: &mut C,
    workload: &dyn Workload,
) -> Result<(), Failure> {
    let procedures = workload.procedures(connection.dialect()).into_iter().rev();
    let tables = workload.tables();
    let drops = procedures.map(|procedure| procedure.drop).chain(tables.iter().map(Table::drop));
    for drop in drops {
        match define(connection, &drop) {
            // Not every database can be asked to remove something if it is there.
            Ok(()) | Err(Failure::Refused { .. }) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Runs a statement that defines something, in a transaction of its own.
fn define<C: Transactional + ?Sized>(connection: &mut C, sql: &str) -> Result<(), Failure> {
    connection.run(&Statement::written(sql.to_owned()), &[], Wants::Count).map(drop)
}

fn insert<C: Transactional + ?Sized>(
    connection: &mut C,
    table: &Table,
    rows: &[Vec<Value<'static>>],
) -> Result<(), Failure> {
    connection.begin()?;
    connection.insert(table, rows)?;
    connection.commit()
}

/// Returns the first column of a query's first row, which is to be text.
pub(crate) fn ask(
    connection: &mut dyn Transactional,
    sql: &'static str,
) -> Result<String, Failure> {
    let rows = connection.run(&Statement::new(sql), &[], Wants::Rows)?.rows;
    rows.text(0, 0).map(str::to_owned).ok_or(Failure::Unexpected("an answer in words"))
}

/// Runs a command on each table of workloads, whose name follows it.
pub(crate) fn on_tables(
    connection: &mut dyn Transactional,
    command: &str,
    workloads: &[Arc<dyn Workload>],
) -> Result<(), Failure> {
    let mut tables = workloads.iter().flat_map(|workload| workload.tables());
    tables.try_for_each(|table| define(connection, &format!("{command} {}", table.name)))
}

/// Looks whether a workload's tables are consistent, while nobody changes them.
///
/// # Errors
/// See [`Failure`].
pub fn check<C: Transactional + ?Sized>(
    connection: &mut C,
    workload: &dyn Workload,
    depth: Depth,
) -> Result<Vec<Condition>, Failure> {
    connection.begin_reading()?;
    let conditions = finish(workload.check(Session::immediate(connection), depth));
    connection.rollback()?;
    conditions
}

#[cfg(test)]
mod tests {
    use tidegate_workload::Reply;
    use tidegate_workload::thrash::{Options, Placement, Share, Thrash};

    use super::*;

    /// A Firebird on which nothing is to be done.
    struct Untouched;

    impl Connection for Untouched {
        fn run(&mut self, _: &Statement, _: &[Value<'_>], _: Wants) -> Result<Reply, Failure> {
            Err(Failure::Lost("nothing was to be sent".to_owned()))
        }
    }

    impl Transactional for Untouched {
        fn begin(&mut self) -> Result<(), Failure> {
            Ok(())
        }

        fn commit(&mut self) -> Result<(), Failure> {
            Ok(())
        }

        fn rollback(&mut self) -> Result<(), Failure> {
            Ok(())
        }

        fn dialect(&self) -> Dialect {
            Dialect::Firebird
        }
    }

    #[test]
    fn a_workload_that_cannot_run_is_refused_before_a_table_is_made() {
        let options = Options {
            rows: 1_000_000,
            sf: Share::STUDY_SF_UPDATE[3],
            placement: Placement::Discrete,
            ..Options::read()
        };
        let workload = Thrash::new(options).unwrap();
        let loaded = load(&mut Untouched, &workload, &AtomicBool::new(false), &mut |_| {});
        assert!(matches!(loaded, Err(LoadError::Unfit(_))), "{loaded:?}");
    }
}
