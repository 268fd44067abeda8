//! The queue: jobs in a table beside the results, taken by one worker at a time.
//!
//! # Mechanism
//! A job is a row. A worker takes one that is due and free with `FOR UPDATE SKIP LOCKED`, so that
//! two never take the same, and writes down its name and until when the job is its own: the lease.
//! While it works it renews the lease at each heartbeat. A job whose lease has run out is free
//! again, so that a dead worker's run is made by another. A job that is done is deleted; one that
//! failed is due again after a pause, [`ATTEMPTS_MAX`] times in all.
//!
//! The table is no part of the results' schema: it holds what is still to do, and rows of it change
//! and go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate_subject::client::BlockingClient;
use tidegate_workload::{Connection, Failure, Rows, Statement, Value, Wants};

use super::executing::{Executing, JobEnding, RunJob};
use super::{MachinesError, SILENT, wait};

/// How often a job may fail, on whatever host, before it waits for `tidegate lab resume`.
const ATTEMPTS_MAX: i64 = 5;

/// Seconds before a job that has failed so often is tried again.
const PAUSES: &str = "(ARRAY[3, 7, 20, 55])[least(attempts + 1, 4)]";

/// How often a worker looks for jobs, and whether a job has ended.
const POLL: Duration = Duration::from_secs(1);
const END_POLL: Duration = Duration::from_millis(20);

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The key of the advisory lock for the one that makes the table: `Queue` in ASCII.
const MAKING: i64 = 0x51_7565_7565;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS tidegate_job (experiment bigint NOT NULL, \
     place integer NOT NULL, attempts integer NOT NULL DEFAULT 0, \
     due timestamptz NOT NULL DEFAULT now(), worker text, leased_until timestamptz, \
     last_error text, PRIMARY KEY (experiment, place))";

struct Queue {
    client: BlockingClient,
}

impl Queue {
    /// Connects, and makes the table where it is not there.
    fn open(place: &str) -> Result<Self, MachinesError> {
        let mut client = BlockingClient::connect(place).map_err(failed)?;
        client.set_timeout(Some(PATIENCE)).map_err(failed)?;
        let made = format!(
            "BEGIN; SELECT pg_advisory_xact_lock({MAKING}); SET LOCAL client_min_messages = error; \
             {TABLE}; COMMIT"
        );
        client.query(&made).map_err(failed)?;
        Ok(Queue { client })
    }

    fn run(&mut self, sql: &str, values: &[Value<'_>]) -> Result<Rows, Failure> {
        let statement = Statement::written(sql.to_owned());
        Ok(self.client.run(&statement, values, Wants::Rows)?.rows)
    }

    /// Takes a job that is due and free. `None` when there is none.
    fn take(&mut self, worker: &str, lease: Duration) -> Result<Option<RunJob>, Failure> {
        let sql = format!(
            "UPDATE tidegate_job SET worker = ?, leased_until = {} \
             WHERE (experiment, place) = (SELECT experiment, place FROM tidegate_job \
             WHERE attempts < {ATTEMPTS_MAX} AND due <= now() \
             AND (worker IS NULL OR leased_until < now()) \
             ORDER BY due, experiment, place LIMIT 1 FOR UPDATE SKIP LOCKED) \
             RETURNING experiment, place",
            after(lease)
        );
        let rows = self.run(&sql, &[worker.into()])?;
        if rows.is_empty() {
            return Ok(None);
        }
        let experiment = rows.number(0, 0, "a job's experiment")?;
        let place = u32::try_from(rows.number(0, 1, "a job's place")?);
        let place = place.map_err(|_| Failure::Unexpected("a job's place above 0"))?;
        Ok(Some(RunJob { experiment, place }))
    }

    /// Keeps the jobs of a worker its own for another while.
    fn renew(&mut self, worker: &str, lease: Duration) -> Result<(), Failure> {
        let sql =
            format!("UPDATE tidegate_job SET leased_until = {} WHERE worker = ?", after(lease));
        self.run(&sql, &[worker.into()]).map(drop)
    }

    /// Lets go of a worker's jobs, as if they had not been tried.
    fn put_back(&mut self, worker: &str) -> Result<(), Failure> {
        let sql = "UPDATE tidegate_job SET worker = NULL WHERE worker = ?";
        self.run(sql, &[worker.into()]).map(drop)
    }

    /// Deletes a worker's jobs, which are done.
    fn done(&mut self, worker: &str) -> Result<(), Failure> {
        self.run("DELETE FROM tidegate_job WHERE worker = ?", &[worker.into()]).map(drop)
    }

    /// Lets go of a worker's jobs, to be tried again later.
    fn try_later(&mut self, worker: &str, reason: &str) -> Result<(), Failure> {
        let sql = format!(
            "UPDATE tidegate_job SET worker = NULL, last_error = ?, attempts = attempts + 1, \
             due = now() + make_interval(secs => {PAUSES}) WHERE worker = ?"
        );
        self.run(&sql, &[reason.into(), worker.into()]).map(drop)
    }
}

fn failed(failure: impl Into<Failure>) -> MachinesError {
    MachinesError::Queue(failure.into())
}

/// The time so long from now, in SQL.
fn after(lease: Duration) -> String {
    format!("now() + make_interval(secs => {})", lease.as_secs_f64())
}

/// Adds jobs, in place of those with the same run.
pub(super) fn add(place: &str, jobs: &[RunJob]) -> Result<(), MachinesError> {
    let mut queue = Queue::open(place)?;
    for job in jobs {
        let sql = "INSERT INTO tidegate_job (experiment, place) VALUES (?, ?) \
                   ON CONFLICT (experiment, place) DO UPDATE SET attempts = 0, due = now()";
        let place = i64::from(job.place);
        queue.run(sql, &[job.experiment.into(), place.into()]).map_err(failed)?;
    }
    Ok(())
}

/// Does jobs until the worker is to end, or one is put back, or the queue fails. Returns why the
/// store is lost, if it is.
pub(super) fn serve(
    place: &str,
    worker: &str,
    heartbeat: Duration,
    executing: &mut Executing,
    cancel: &AtomicBool,
) -> Result<Option<String>, MachinesError> {
    let lease = heartbeat * SILENT;
    let mut queue = Queue::open(place)?;
    // Those of an earlier session of ours: this host has no other worker.
    queue.put_back(worker).map_err(failed)?;
    while !cancel.load(Ordering::Relaxed) {
        let Some(job) = queue.take(worker, lease).map_err(failed)? else {
            wait(POLL, cancel);
            continue;
        };
        let ending = std::thread::scope(|scope| {
            let doing = scope.spawn(|| executing.do_job(job));
            let mut next = Instant::now() + heartbeat;
            while !doing.is_finished() {
                if Instant::now() >= next {
                    next += heartbeat;
                    renew(&mut queue, place, worker, lease);
                }
                std::thread::sleep(END_POLL);
            }
            doing.join().unwrap_or_else(|_| JobEnding::Failed("the worker panicked".to_owned()))
        });
        match ending {
            JobEnding::Done => queue.done(worker).map_err(failed)?,
            JobEnding::Failed(reason) => queue.try_later(worker, &reason).map_err(failed)?,
            JobEnding::PutBack(lost) => {
                // Where the queue is lost as well, the lease runs out.
                let _ = queue.put_back(worker);
                return Ok(lost);
            }
        }
    }
    Ok(None)
}

/// Renews a worker's lease; over a new connection when the old one is lost. Where that does not
/// help the next heartbeat tries again, and the lease may run out.
fn renew(queue: &mut Queue, place: &str, worker: &str, lease: Duration) {
    if queue.renew(worker, lease).is_err()
        && let Ok(again) = Queue::open(place)
    {
        *queue = again;
        let _ = queue.renew(worker, lease);
    }
}
