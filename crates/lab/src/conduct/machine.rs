//! The executor on a machine in virtual time: the embedded engine, its server, its controllers and
//! the laboratory's clients, with processors and disks that a file says.
//!
//! Tables are loaded once, into memory, and each execution has a copy of them, so executions do not
//! see what others have changed. An execution is a machine of its own ([`tidegate_runtime`]) on a
//! thread of its own, from the execution's seed; so it is the same each time, here and elsewhere.
//! Clients are beside the machine: they take none of its processor time.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tidegate_runtime::work::Operation;
use tidegate_runtime::{Hardware, Machine};
use tidegate_subject::connection::check;
use tidegate_subject::embedded::{Embedded, MachineOptions, MemoryDisk, TimedDisk};
use tidegate_workload::Table;
use tidegate_workload::workload::{Condition, Depth};

use super::measure::{ProxySetup, front, journal, limits, load_options};
use super::{Assignment, ExecutionError, Executor};
use crate::Cause;
use crate::experiment::RunPlan;
use crate::experiment::treatment::Treatment;
use crate::experiment::workload::WorkloadSpec;
use crate::load::{self, Alongside, Progress, Recorder};
use crate::measured::{Measured, Started};

/// How often the caller looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// See the [module](self).
pub struct VirtualMachine {
    /// Where the log of an execution goes; the journal of its controller goes beside it.
    log: PathBuf,
    options: Option<MachineOptions>,
    loaded: Option<Tables>,
    /// The tables as the last execution left them.
    left: Option<Tables>,
}

/// A disk with a closed store, which has these tables.
struct Tables {
    disk: Arc<MemoryDisk>,
    tables: Vec<Table>,
}

impl VirtualMachine {
    /// Returns an executor with nothing started yet.
    pub fn new(log: PathBuf) -> Self {
        VirtualMachine { log, options: None, loaded: None, left: None }
    }

    fn options(&self) -> Result<&MachineOptions, ExecutionError> {
        self.options.as_ref().ok_or_else(|| ExecutionError::Failed("nothing is started".into()))
    }
}

fn failed(error: impl Into<Cause>) -> ExecutionError {
    ExecutionError::Failed(error.into())
}

impl Executor for VirtualMachine {
    fn start(&mut self, run: &RunPlan, _: &AtomicBool) -> Result<Started, ExecutionError> {
        let processors = run.processors.unwrap_or(1);
        let options = MachineOptions::new(&run.subject.settings, processors)
            .map_err(|error| ExecutionError::Unavailable(error.into()))?;
        let started = Started {
            version: format!("{} in virtual time", env!("CARGO_PKG_VERSION")),
            settings: described(&options),
            processors,
        };
        self.options = Some(options);
        Ok(started)
    }

    fn prepare(
        &mut self,
        workloads: &[WorkloadSpec],
        cancel: &AtomicBool,
    ) -> Result<(), ExecutionError> {
        let disk = Arc::new(MemoryDisk::new());
        let shared = Arc::clone(&disk) as Arc<_>;
        let mut database = Embedded::create_on(&shared, self.options()?.store).map_err(failed)?;
        let workloads = WorkloadSpec::build_in_turn(workloads)?;
        database.load_all(&workloads, cancel).map_err(failed)?;
        let tables = database.tables().to_vec();
        database.close().map_err(failed)?;
        (self.loaded, self.left) = (Some(Tables { disk, tables }), None);
        Ok(())
    }

    fn execute(
        &mut self,
        assignment: &Assignment<'_>,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Measured, ExecutionError> {
        refuse_watching(assignment.treatment)?;
        let loaded = self.loaded.as_ref().ok_or_else(|| failed("no tables are loaded"))?;
        let disk = Arc::new(loaded.disk.fork());
        let options = self.options()?.clone();
        let (tell, told) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let execution = VirtualExecution {
            disk: Arc::clone(&disk),
            tables: loaded.tables.clone(),
            options: options.clone(),
            assignment: OwnedAssignment::of(assignment),
            log: self.log.clone(),
            cancel: Arc::clone(&stop),
            progress: tell,
        };
        let machine = Machine::new(options.hardware, assignment.seed);
        let thread = std::thread::Builder::new()
            .name("virtual-machine".into())
            .spawn(move || machine.run(move || execution.run()))
            .map_err(failed)?;
        loop {
            match told.recv_timeout(LOOK) {
                Ok(seen) => progress(&seen),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            stop.store(cancel.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let report = thread.join().map_err(|_| failed("the machine panicked"))?;
        let measured = report.map_err(failed)?.value?;
        self.left = Some(Tables { disk, tables: loaded.tables.clone() });
        Ok(measured)
    }

    fn check(
        &mut self,
        workload: &WorkloadSpec,
        depth: Depth,
    ) -> Result<Vec<Condition>, ExecutionError> {
        let left = self.left.as_ref().or(self.loaded.as_ref());
        let Tables { disk, tables } = left.ok_or_else(|| failed("no tables are loaded"))?;
        let shared = Arc::new(disk.fork()) as Arc<_>;
        let store = self.options()?.store;
        let database = Embedded::open_on(&shared, tables.clone(), store).map_err(failed)?;
        let workload = workload.build()?;
        check(&mut database.connect(), &*workload, depth).map_err(failed)
    }

    fn stop(&mut self) -> Result<(), ExecutionError> {
        *self = VirtualMachine::new(std::mem::take(&mut self.log));
        Ok(())
    }
}

/// An [`Assignment`] that the machine's own thread can have.
struct OwnedAssignment {
    workload: WorkloadSpec,
    mpl: u32,
    treatment: Treatment,
    warmup: Duration,
    ctl: Duration,
    interval: Duration,
    connect: Duration,
    connect_at_once: Option<NonZeroUsize>,
    seed: u64,
    transactions: Option<PathBuf>,
}

impl OwnedAssignment {
    fn of(assignment: &Assignment<'_>) -> Self {
        let Assignment { workload, mpl, treatment, warmup, ctl, interval, connect, .. } =
            *assignment;
        let Assignment { connect_at_once, seed, .. } = *assignment;
        OwnedAssignment {
            workload: workload.clone(),
            mpl,
            treatment: treatment.clone(),
            warmup,
            ctl,
            interval,
            connect,
            connect_at_once,
            seed,
            transactions: assignment.transactions.clone(),
        }
    }

    fn borrowed(&self) -> Assignment<'_> {
        Assignment {
            workload: &self.workload,
            mpl: self.mpl,
            treatment: &self.treatment,
            warmup: self.warmup,
            ctl: self.ctl,
            interval: self.interval,
            connect: self.connect,
            connect_at_once: self.connect_at_once,
            seed: self.seed,
            transactions: self.transactions.clone(),
        }
    }
}

/// One execution, as the first task of a machine.
struct VirtualExecution {
    disk: Arc<MemoryDisk>,
    tables: Vec<Table>,
    options: MachineOptions,
    assignment: OwnedAssignment,
    log: PathBuf,
    cancel: Arc<AtomicBool>,
    progress: Sender<Progress>,
}

impl VirtualExecution {
    fn run(self) -> Result<Measured, ExecutionError> {
        let disk = Arc::new(TimedDisk::new(self.disk)) as Arc<_>;
        let database = Embedded::open_on(&disk, self.tables, self.options.store).map_err(failed)?;
        let assignment = self.assignment.borrowed();
        let specs = assignment.treatment.workloads(assignment.workload);
        let workloads = WorkloadSpec::build_in_turn(&specs)?;
        let way =
            ProxySetup { tidegate: Path::new(""), log: &self.log, is_through_tidegate: false };
        let journal = journal(assignment.treatment, &way);
        let front = front(&database, &assignment, &way, journal.clone())?;
        let called = front.age();
        let (options, then) = load_options(&assignment, &front, &workloads);
        let recorder = assignment.transactions.as_deref().map(Recorder::create).transpose();
        let alongside = Alongside { recorder: recorder.map_err(failed)?, server: None };
        // Who listened has gone when the laboratory stops.
        let mut progress = |seen: &Progress| {
            let _ = self.progress.send(*seen);
        };
        let load = load::run_alongside(&options, &then, alongside, &self.cancel, &mut progress)?;
        front.stop()?;
        let limits = limits(journal.as_deref(), called, &load)?;
        database.close().map_err(failed)?;
        Ok(Measured {
            connect_s: 0.0,
            load,
            processors: self.options.hardware.processors,
            other_executors: 0,
            other_dbms: Vec::new(),
            limits,
            looks: Vec::new(),
        })
    }
}

/// Refuses what needs somebody who watches the database beside its clients.
fn refuse_watching(treatment: &Treatment) -> Result<(), ExecutionError> {
    let is_watched =
        treatment.aging.is_some() || treatment.buffer.is_some() || treatment.exchange.is_some();
    if is_watched {
        let reason = "a machine in virtual time has nobody who looks at trees or changes a buffer \
                      while clients work; take the embedded engine on this machine";
        return Err(ExecutionError::Unavailable(reason.into()));
    }
    Ok(())
}

/// Returns what the machine consists of, for the store.
fn described(options: &MachineOptions) -> Vec<(String, String)> {
    let Hardware { discipline, data_disks, stripe_bytes, data, log, costs, .. } = &options.hardware;
    let mut settings = vec![
        ("buffer".to_owned(), format!("{} KiB", options.store.buffer_bytes / 1024)),
        ("isolation".to_owned(), options.store.isolation.to_string().to_lowercase()),
        ("lock_priorities".to_owned(), options.store.lock_priorities_name().to_owned()),
        ("discipline".to_owned(), format!("{discipline:?}")),
        ("data_disks".to_owned(), data_disks.to_string()),
        ("stripe_bytes".to_owned(), stripe_bytes.to_string()),
        ("data_disk".to_owned(), format!("{data:?}")),
        ("log_disk".to_owned(), format!("{log:?}")),
        ("clients".to_owned(), "beside the machine".to_owned()),
    ];
    let cost = |operation: &Operation| {
        (format!("{}_ns", operation.name()), costs.0[*operation as usize].to_string())
    };
    settings.extend(Operation::ALL.iter().map(cost));
    settings
}
