//! Who executes: one laboratory on a host, and one at a run.
//!
//! # Mechanism
//! A store on PostgreSQL may have many laboratories at work on it. Each holds two advisory locks of
//! the database on the very connection that it writes results with: one for its host, so that no
//! two measure there at the same time, and one for the run it executes, so that no execution is
//! made twice. PostgreSQL gives a session's locks back when the session ends, for whatever reason.
//! A laboratory that is killed lets go at once; one whose host vanished lets go after
//! [`KEEPALIVE_S`] and its probes, some 25 s. Who lost the connection lost the locks, and can write
//! nothing either.
//!
//! The keys are 64 bits of PostgreSQL's own hash of what is held (`hashtextextended`).
//!
//! A worker takes a run that another worker was silent at for too long, and ends that session. A
//! laboratory without workers has no heartbeat that could be missing, so it is never ended: a
//! session's name (`application_name`) says which it is.
//!
//! A store in a file is for one laboratory at a time, which holds all of its runs. It has an
//! exclusive lock on a file beside the store, whose text says who that is; the system takes the
//! lock back when the process ends, however it does. The file stays: who removes it lets a second
//! laboratory in.
//!
//! # Limits
//! Only laboratories on the same store see each other: two with a file each may measure on one host
//! at the same time. On file systems without `flock` a file cannot be held, and is refused.
//!
//! # Source
//! PostgreSQL's documentation, section 13.3.5 (advisory locks), and the view `pg_locks`; the manual
//! page flock(2).

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tidegate_workload::Dialect;

use super::{Store, StoreError, with_suffix};

/// Seconds of silence after which PostgreSQL asks whether the other side is still there.
const KEEPALIVE_S: &str = "10";

/// How long a session that was ended may take to let go.
const SEIZE_PATIENCE: Duration = Duration::from_secs(10);

const SEIZE_POLL: Duration = Duration::from_millis(50);

/// The key of the one that changes the schema.
const SCHEMA: &str = "tidegate schema";

/// The sessions that hold a key.
const HOLDERS: &str = "FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid \
     WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted \
     AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
     AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended(?, 0)";

/// How the names of workers' sessions begin.
const WORKER: &str = "tidegate worker on ";

/// How those of laboratories without workers do.
const LABORATORY: &str = "tidegate on ";

/// The lock of a store in a file.
#[derive(Debug)]
pub(super) struct FileLock {
    path: PathBuf,
    /// Open for as long as it is held.
    held: Option<File>,
}

impl FileLock {
    /// The lock of a store; nothing is held yet.
    pub(super) fn of(store: &Path) -> Self {
        FileLock { path: with_suffix(store, ".lock"), held: None }
    }

    fn hold(&mut self, name: &str) -> Result<(), StoreError> {
        if self.held.is_some() {
            return Ok(());
        }
        let path = &self.path;
        let failed = |source| StoreError::Write { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        let mut file = options.open(path).map_err(|error| failed(error.into()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                // Who it is is only told; that there is somebody is known.
                let _ = file.read_to_string(&mut holder);
                return Err(StoreError::Taken { holder });
            }
            Err(error) => return Err(failed(error.into())),
        }
        // The same: a full disk does not keep anybody from holding it.
        let _ = file.set_len(0).and_then(|()| file.write_all(name.as_bytes()));
        self.held = Some(file);
        Ok(())
    }
}

impl Store {
    /// The host that this laboratory is on, by name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Gives the host another name than the system does.
    pub fn set_host(&mut self, host: String) {
        self.host = host;
    }

    /// Holds this host until the store is dropped or [`Store::release_host`]; a store in a file as
    /// a whole. Who holds it already goes on holding it.
    ///
    /// # Errors
    /// [`StoreError::Held`] when another laboratory on this store has a host of that name, and
    /// [`StoreError::Taken`] when one has the file.
    pub fn hold_host(&mut self) -> Result<(), StoreError> {
        self.hold_host_as(LABORATORY)
    }

    /// The same for a worker, whose runs are taken from it when it is silent for too long.
    pub fn hold_host_as_worker(&mut self) -> Result<(), StoreError> {
        self.hold_host_as(WORKER)
    }

    /// Holds a store in a file, as [`Store::hold_host`] does; nothing of one on PostgreSQL.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when another laboratory has the file.
    pub fn hold_file(&mut self) -> Result<(), StoreError> {
        let name = self.session(LABORATORY);
        self.lock.as_mut().map_or(Ok(()), |lock| lock.hold(&name))
    }

    /// How what is held says whose it is.
    fn session(&self, what: &str) -> String {
        format!("{what}{}, process {}", self.host, std::process::id())
    }

    fn hold_host_as(&mut self, what: &str) -> Result<(), StoreError> {
        let name = self.session(what);
        if let Some(lock) = &mut self.lock {
            return lock.hold(&name);
        }
        self.query(
            "SELECT set_config('application_name', ?, false), \
             set_config('tcp_keepalives_idle', ?, false), \
             set_config('tcp_keepalives_interval', '5', false), \
             set_config('tcp_keepalives_count', '3', false)",
            &[name.as_str().into(), KEEPALIVE_S.into()],
        )?;
        let key = host_key(&self.host);
        // PostgreSQL counts how often a session holds a key, and wants as many releases.
        if self.held_host.as_ref() == Some(&key) {
            return Ok(());
        }
        if self.try_hold(&key)? {
            self.held_host = Some(key);
            return Ok(());
        }
        let holder = self.holder(&key)?;
        Err(StoreError::Held { host: self.host.clone(), holder })
    }

    /// Lets go of this host.
    pub fn release_host(&mut self) -> Result<(), StoreError> {
        if let Some(lock) = &mut self.lock {
            lock.held = None;
        }
        match self.held_host.take() {
            Some(key) => self.release(&key),
            None => Ok(()),
        }
    }

    /// Holds a run; or who holds it.
    pub fn hold_run(&mut self, run: i64) -> Result<Option<String>, StoreError> {
        let key = run_key(run);
        if self.try_hold(&key)? { Ok(None) } else { self.holder(&key).map(Some) }
    }

    /// Lets go of a run.
    pub fn release_run(&mut self, run: i64) -> Result<(), StoreError> {
        self.release(&run_key(run))
    }

    /// Holds a run, ending the session of a worker that held it: for a run whose worker has been
    /// silent for too long. It finds its connection lost when it goes on. Whoever is no worker
    /// keeps it; then that is the answer.
    ///
    /// # Errors
    /// See [`StoreError`]; the run is held by another's session that does not end.
    pub fn seize_run(&mut self, run: i64) -> Result<Option<String>, StoreError> {
        let key = run_key(run);
        let until = Instant::now() + SEIZE_PATIENCE;
        while !self.try_hold(&key)? {
            let no_worker = format!("AND a.application_name NOT LIKE '{WORKER}%'");
            if let Some(holder) = self.who_holds(&key, &no_worker)? {
                return Ok(Some(holder));
            }
            if Instant::now() > until {
                let holder = self.holder(&key)?;
                return Err(StoreError::Damaged(format!("run {run} is held by {holder}")));
            }
            let end = format!(
                "SELECT pg_terminate_backend(a.pid) {HOLDERS} \
                 AND a.application_name LIKE '{WORKER}%'"
            );
            self.query(&end, &[key.as_str().into()])?;
            std::thread::sleep(SEIZE_POLL);
        }
        Ok(None)
    }

    /// Waits for its turn to bring the schema up to date: others may open the same new store.
    pub(super) fn hold_schema(&mut self) -> Result<(), StoreError> {
        if self.is_shared() {
            self.query("SELECT pg_advisory_lock(hashtextextended(?, 0))", &[SCHEMA.into()])?;
        }
        Ok(())
    }

    pub(super) fn release_schema(&mut self) -> Result<(), StoreError> {
        self.release(SCHEMA)
    }

    /// Waits for its turn to choose a run of an experiment: two hosts at a time could choose one.
    pub(super) fn hold_turns(&mut self, experiment: i64) -> Result<(), StoreError> {
        if self.is_shared() {
            let key = turns_key(experiment);
            let hold = "SELECT pg_advisory_lock(hashtextextended(?, 0))";
            self.query(hold, &[key.as_str().into()])?;
        }
        Ok(())
    }

    pub(super) fn release_turns(&mut self, experiment: i64) -> Result<(), StoreError> {
        self.release(&turns_key(experiment))
    }

    fn is_shared(&self) -> bool {
        self.connection.dialect() == Dialect::Postgres
    }

    fn try_hold(&mut self, key: &str) -> Result<bool, StoreError> {
        if !self.is_shared() {
            return Ok(true);
        }
        let held =
            "SELECT CASE WHEN pg_try_advisory_lock(hashtextextended(?, 0)) THEN 1 ELSE 0 END";
        Ok(self.query(held, &[key.into()])?.int(0, 0) == Some(1))
    }

    fn release(&mut self, key: &str) -> Result<(), StoreError> {
        if self.is_shared() {
            self.query("SELECT pg_advisory_unlock(hashtextextended(?, 0))", &[key.into()])?;
        }
        Ok(())
    }

    fn holder(&mut self, key: &str) -> Result<String, StoreError> {
        let holder = self.who_holds(key, "")?;
        Ok(holder.unwrap_or_else(|| "a session that has just ended".to_owned()))
    }

    /// Who holds a key, of those that a further condition is true for.
    fn who_holds(&mut self, key: &str, condition: &str) -> Result<Option<String>, StoreError> {
        let who = format!(
            "SELECT a.application_name || coalesce(' at ' || host(a.client_addr), '') \
             || ', connected since ' || to_char(a.backend_start, 'YYYY-MM-DD HH24:MI:SS') \
             {HOLDERS} {condition}"
        );
        let rows = self.query(&who, &[key.into()])?;
        Ok(rows.text(0, 0).map(str::to_owned))
    }
}

fn host_key(host: &str) -> String {
    format!("tidegate host {host}")
}

fn turns_key(experiment: i64) -> String {
    format!("tidegate turns {experiment}")
}

fn run_key(run: i64) -> String {
    format!("tidegate run {run}")
}

/// The name that the system gives this host.
pub(super) fn system_host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost" } else { name }.to_owned()
}
