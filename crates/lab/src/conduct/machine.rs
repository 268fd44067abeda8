//! The executor on a machine in virtual time: the embedded engine, its server, its controllers and
//! the laboratory's clients, with processors and disks that a file says.
//!
//! Tables are loaded once, into memory, and each execution has a copy of them, so executions do not
//! see what others have changed. The load and each execution are a machine of their own
//! ([`tidegate_runtime`]) on a thread of its own, each from its seed; so they are the same each
//! time, here and elsewhere. Clients are beside the machine, and take none of its processor time,
//! or on its processors, as the file says.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tidegate_runtime::work::Operation;
use tidegate_runtime::{Hardware, Machine, Service, thread};
use tidegate_subject::embedded::{
    Disk, EngineDatabase, EngineForm, MachineOptions, MemoryDisk, Options, RequestTimes, TimedDisk,
};
use tidegate_workload::workload::{Condition, Depth};

use super::measure::{ProxySetup, RunLoad, conduct};
use super::{Assignment, ExecutionError, Executor};
use crate::Cause;
use crate::experiment::RunPlan;
use crate::experiment::workload::WorkloadSpec;
use crate::load::Progress;
use crate::measured::{Measured, Started};

/// How often the caller looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Where the draws of a load of tables begin: the number of the log.
const LOAD_SEED: u64 = 1;

/// See the [module](self).
pub struct VirtualMachine {
    /// Where the log of an execution goes; the journal of its controller goes beside it.
    log: PathBuf,
    options: Option<MachineOptions>,
    loaded: Option<LoadedStore>,
    /// The data as the last execution left it.
    left: Option<LoadedStore>,
}

/// A disk with a closed store, which has the data of these workloads.
#[derive(Clone)]
struct LoadedStore {
    disk: Arc<MemoryDisk>,
    workloads: Vec<WorkloadSpec>,
}

impl LoadedStore {
    /// Opens the store on a disk that has what this one has, or had.
    fn open(
        &self,
        disk: &Arc<dyn Disk>,
        options: Options,
    ) -> Result<Box<dyn EngineDatabase>, ExecutionError> {
        let built = WorkloadSpec::build_in_turn(&self.workloads)?;
        EngineForm::of(&built).open_on(disk, &built, options).map_err(failed)
    }
}

impl VirtualMachine {
    /// Returns an executor with nothing started yet.
    pub fn new(log: PathBuf) -> Self {
        VirtualMachine { log, options: None, loaded: None, left: None }
    }

    fn options(&self) -> Result<&MachineOptions, ExecutionError> {
        self.options.as_ref().ok_or_else(|| failed("nothing is started"))
    }
}

fn failed(error: impl Into<Cause>) -> ExecutionError {
    ExecutionError::Failed(error.into())
}

/// Runs `body` as the first task of a machine on a thread of its own. It is told when it is to
/// stop, and tells how far it is.
fn run_on<T: Send + 'static>(
    machine: Machine,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
    body: impl FnOnce(&AtomicBool, &Sender<Progress>) -> Result<T, ExecutionError> + Send + 'static,
) -> Result<T, ExecutionError> {
    let (tell, told) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&stop);
    let thread = std::thread::Builder::new()
        .name("virtual-machine".into())
        .spawn(move || machine.run(move || body(&theirs, &tell)))
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
    report.map_err(failed)?.value
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

    /// Tables that are loaded already are not loaded again: no execution has changed them.
    fn prepare(
        &mut self,
        workloads: &[WorkloadSpec],
        cancel: &AtomicBool,
    ) -> Result<(), ExecutionError> {
        self.left = None;
        if self.loaded.as_ref().is_some_and(|loaded| loaded.workloads == workloads) {
            return Ok(());
        }
        self.loaded = None;
        let MachineOptions { store, hardware, .. } = self.options()?.clone();
        let hardware = Hardware { data: Service::None, log: Service::None, ..hardware };
        let workloads = workloads.to_vec();
        let load = move |cancel: &AtomicBool, _: &Sender<Progress>| {
            let disk = Arc::new(MemoryDisk::new());
            let shared = Arc::clone(&disk) as Arc<_>;
            let built = WorkloadSpec::build_in_turn(&workloads)?;
            let form = EngineForm::of(&built);
            let mut database = form.create_on(&shared, store).map_err(failed)?;
            database.fill(&built, cancel).map_err(failed)?;
            database.close().map_err(failed)?;
            Ok(LoadedStore { disk, workloads })
        };
        let machine = Machine::new(hardware, LOAD_SEED);
        self.loaded = Some(run_on(machine, cancel, &mut |_| {}, load)?);
        Ok(())
    }

    fn execute(
        &mut self,
        assignment: &Assignment,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Measured, ExecutionError> {
        let loaded = self.loaded.as_ref().ok_or_else(|| failed("no tables are loaded"))?;
        let left = LoadedStore { disk: Arc::new(loaded.disk.fork()), ..loaded.clone() };
        let options = self.options()?.clone();
        let machine = Machine::new(options.hardware.clone(), assignment.seed);
        let execution = VirtualExecution {
            loaded: left.clone(),
            options,
            assignment: assignment.clone(),
            log: self.log.clone(),
        };
        let run = |cancel: &AtomicBool, tell: &Sender<Progress>| execution.run(cancel, tell);
        let measured = run_on(machine, cancel, progress, run)?;
        self.left = Some(left);
        Ok(measured)
    }

    fn check(
        &mut self,
        workload: &WorkloadSpec,
        depth: Depth,
    ) -> Result<Vec<Condition>, ExecutionError> {
        let left = self.left.as_ref().or(self.loaded.as_ref());
        let left = left.ok_or_else(|| failed("no tables are loaded"))?;
        let shared = Arc::new(left.disk.fork()) as Arc<_>;
        let database = left.open(&shared, self.options()?.store)?;
        Ok(database.check(&*workload.build()?, depth)?)
    }

    fn stop(&mut self) -> Result<(), ExecutionError> {
        *self = VirtualMachine::new(std::mem::take(&mut self.log));
        Ok(())
    }
}

/// One execution, as the first task of a machine.
struct VirtualExecution {
    loaded: LoadedStore,
    options: MachineOptions,
    assignment: Assignment,
    log: PathBuf,
}

impl VirtualExecution {
    fn run(self, cancel: &AtomicBool, tell: &Sender<Progress>) -> Result<Measured, ExecutionError> {
        let VirtualExecution { loaded, options, assignment, log } = self;
        let MachineOptions { store, hardware, requests } = options;
        let disk = Arc::new(TimedDisk::new(loaded.disk.clone())) as Arc<_>;
        let database = loaded.open(&disk, store)?;
        let specs = assignment.treatment.workloads(&assignment.workload);
        let workloads = WorkloadSpec::build_in_turn(&specs)?;
        let tidegate = Path::new("");
        let way = ProxySetup { tidegate, log: &log, is_through_tidegate: false, requests };
        let mut attend = |progress: &mut dyn FnMut(&Progress), run: &mut RunLoad<'_>| {
            // This task is the clients from here on.
            thread::work_elsewhere(requests.client.is_none());
            let load = run(progress);
            thread::work_elsewhere(false);
            load
        };
        // Who listened has gone when the laboratory stops.
        let mut progress = |seen: &Progress| {
            let _ = tell.send(*seen);
        };
        let seen =
            conduct(&*database, &workloads, &assignment, &way, &mut attend, cancel, &mut progress)?;
        database.close().map_err(failed)?;
        Ok(Measured {
            // Clients of the engine have nothing to connect.
            connect_s: 0.0,
            load: seen.load,
            processors: hardware.processors,
            other_executors: 0,
            other_dbms: Vec::new(),
            limits: seen.limits,
            looks: seen.looks,
        })
    }
}

/// Returns what the machine consists of, for the store.
fn described(options: &MachineOptions) -> Vec<(String, String)> {
    let Hardware { discipline, data_disks, stripe_bytes, data, log, costs, .. } = &options.hardware;
    let RequestTimes { network, client } = options.requests;
    let clients = match client {
        None => "beside the machine".to_owned(),
        Some(work) => format!("on the processors, {work:?} a request"),
    };
    let mut settings = vec![
        ("buffer".to_owned(), format!("{} KiB", options.store.buffer_bytes / 1024)),
        ("isolation".to_owned(), options.store.isolation.to_string().to_lowercase()),
        ("lock_priorities".to_owned(), options.store.lock_priorities_name().to_owned()),
        ("discipline".to_owned(), format!("{discipline:?}")),
        ("data_disks".to_owned(), data_disks.to_string()),
        ("stripe_bytes".to_owned(), stripe_bytes.to_string()),
        ("data_disk".to_owned(), format!("{data:?}")),
        ("log_disk".to_owned(), format!("{log:?}")),
        ("network".to_owned(), format!("{network:?} a request")),
        ("clients".to_owned(), clients),
    ];
    let cost = |operation: &Operation| {
        (format!("{}_ns", operation.name()), costs.0[*operation as usize].to_string())
    };
    settings.extend(Operation::ALL.iter().map(cost));
    settings
}
