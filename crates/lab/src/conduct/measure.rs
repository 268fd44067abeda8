//! How an execution is conducted on a real database, as its treatment says: what stands before
//! the database, who the clients are, what is exchanged on the way, who looks after it.
//!
//! Which database it is, and how it is kept to its processors, is [`real`](super::real)'s
//! business.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_control::{Algorithm, Mpl};
use tidegate_runtime::sync::channel;
use tidegate_runtime::{clock, is_virtual, thread};
use tidegate_subject::database::{Clients, Database};
use tidegate_subject::embedded::auctions::Locking;
use tidegate_subject::embedded::{
    ClassPriorities, EmbeddedError, Probe, RequestTimes, SplitPolicy,
};
use tidegate_workload::workload::Workload;

use super::watch::ScheduledActions;
use super::{Assignment, ExecutionError};
use crate::Cause;
use crate::experiment::treatment::{
    Admission, ArrivalSpec, Exchange, LockingSpec, Split, Treatment,
};
use crate::load::{
    self, Alongside, Arrivals, Connecting, LoadOptions, LoadReport, Phase, Progress, Recorder,
    Stage,
};
use crate::measured::TreeSnapshot;
use crate::rig::{Front, FrontOptions, Interval, RigError, read_journal};

/// What stands between the clients and a database, beside what a treatment says.
pub(super) struct ProxySetup<'a> {
    /// The program that a proxy is.
    pub(super) tidegate: &'a Path,
    /// Where a proxy's log goes; its journal and its configuration go beside it.
    pub(super) log: &'a Path,
    /// Whether there is a proxy with the default controller where nothing is said.
    pub(super) is_through_tidegate: bool,
    /// What each request takes beside the database's work.
    pub(super) requests: RequestTimes,
}

pub(super) struct LoadOutcome {
    pub(super) load: LoadReport,
    /// Seconds from the first connection's begin to the last's login.
    pub(super) connect_s: f64,
    pub(super) limits: Vec<Interval>,
    pub(super) looks: Vec<TreeSnapshot>,
}

/// A load from its begin to its end, which tells how far it is.
pub(super) type RunLoad<'r> = dyn FnMut(&mut dyn FnMut(&Progress)) -> LoadResult + 'r;

/// What attends a load: it runs it, and looks at what it wants to see.
pub(super) type Attend<'a> =
    dyn FnMut(&mut dyn FnMut(&Progress), &mut RunLoad<'_>) -> LoadResult + 'a;

type LoadResult = Result<LoadReport, ExecutionError>;

/// Makes an execution of these workloads, whose tables are there, on a database.
pub(super) fn conduct(
    database: &dyn Database,
    workloads: &[Arc<dyn Workload>],
    assignment: &Assignment,
    way: &ProxySetup<'_>,
    attend: &mut Attend<'_>,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<LoadOutcome, ExecutionError> {
    arrange(database, &assignment.treatment)?;
    let probe = probe(database, &assignment.treatment)?;
    let journal = journal(&assignment.treatment, way);
    let front = front(database, assignment, way, (journal.clone(), arms(&assignment.treatment)?))?;
    let (options, then) = load_options(assignment, &front, workloads, way.requests);
    let called = front.age();
    let actions = ScheduledActions::of(&assignment.treatment, assignment.ctl);
    let recorder = assignment.transactions.as_deref().map(Recorder::create).transpose();
    let mut recorder = recorder.map_err(|error| ExecutionError::Failed(error.into()))?;
    let mut run = |progress: &mut dyn FnMut(&Progress)| {
        let alongside = Alongside { recorder: recorder.take(), server: database.process_id() };
        Ok(load::run_alongside(&options, &then, alongside, cancel, progress)?)
    };
    // On a machine in virtual time there is always one who watches, so that tasks have the same
    // numbers with looks and without.
    let mut watching = probe.filter(|_| !actions.are_none() || is_virtual());
    let mut looks = Vec::new();
    let load = attend(progress, &mut |progress| {
        let Some(probe) = watching.take() else { return run(progress) };
        let (load, taken) = watched(actions, probe, progress, &mut run)?;
        looks = taken;
        Ok(load)
    })?;
    front.stop()?;
    Ok(LoadOutcome {
        connect_s: (began_s(&load) - load.warmup_s).max(0.0),
        limits: limits(journal.as_deref(), called, &load)?,
        load,
        looks,
    })
}

/// Returns when the measured time of a load began, in seconds since it was called.
fn began_s(load: &LoadReport) -> f64 {
    load.phases.first().map_or(0.0, |phase| phase.began_s)
}

/// Returns the control intervals of a journal, counted from the beginning of the measured time of a
/// load that was called at `called` of the journal's time.
fn limits(
    journal: Option<&Path>,
    called: Duration,
    load: &LoadReport,
) -> Result<Vec<Interval>, RigError> {
    let Some(journal) = journal else { return Ok(Vec::new()) };
    Ok(since(called.as_secs_f64() + began_s(load), read_journal(journal)?))
}

/// Returns where the decisions of a controller are written, if there is one.
fn journal(treatment: &Treatment, way: &ProxySetup<'_>) -> Option<PathBuf> {
    let is_controlled = matches!(treatment.admission, Admission::Control { .. });
    is_controlled.then(|| way.log.with_extension("journal"))
}

/// Returns the ways to lock of which one is chosen beside the limit.
fn arms(treatment: &Treatment) -> Result<Vec<Locking>, ExecutionError> {
    let arms = treatment.arms.iter().map(LockingSpec::locking).collect::<Result<_, _>>();
    arms.map_err(|error| ExecutionError::Failed(error.into()))
}

/// What stands between the clients and the database.
fn front<'d>(
    database: &'d dyn Database,
    assignment: &Assignment,
    way: &ProxySetup<'_>,
    (journal, arms): (Option<PathBuf>, Vec<Locking>),
) -> Result<Front<'d>, RigError> {
    let treatment = &assignment.treatment;
    let level = Mpl::at_least_one(assignment.mpl);
    let (control, start) = match treatment.admission {
        Admission::Clients if way.is_through_tidegate => (Algorithm::default(), None),
        Admission::Clients => {
            return Front::direct(database, assignment.mpl as usize);
        }
        Admission::Limit { .. } => (Algorithm::Fixed(level), None),
        // A fixed limit begins as itself, and a proxy refuses another start.
        Admission::Control { control: Algorithm::Fixed(limit), .. } => {
            (Algorithm::Fixed(limit), None)
        }
        Admission::Control { control, .. } => (control, Some(level)),
    };
    let priority = treatment.priority.unwrap_or_default();
    let options = FrontOptions {
        tidegate: way.tidegate,
        log: way.log.to_owned(),
        log_level: "warn",
        journal,
        control,
        start,
        priorities: ClassPriorities {
            gate: priority.is_given,
            locks: priority.locks,
            processors: priority.processors,
        },
        seed: assignment.seed,
        arms,
    };
    Front::limited(database, options)
}

/// The hand on the embedded engine, with the settings that a treatment begins with. Other databases
/// have none, and what needs one fails.
fn probe(database: &dyn Database, treatment: &Treatment) -> Result<Option<Probe>, ExecutionError> {
    let split = treatment.aging.and_then(|aging| aging.split);
    let exchanged = matches!(treatment.exchange, Some(Exchange::Buffer(_)));
    let is_needed = treatment.buffer.is_some() || exchanged || split.is_some();
    let Some(probe) = database.probe() else {
        let reason = "`buffer`, `buffers`, `then_buffer` and `split` are for the embedded engine; \
                      give another database its memory in its settings";
        let refused = Err(ExecutionError::Unavailable(reason.into()));
        return if is_needed { refused } else { Ok(None) };
    };
    let refused = |error: EmbeddedError| ExecutionError::Failed(error.into());
    if let Some(buffer) = treatment.buffer {
        let bytes = usize::try_from(buffer.get()).expect("addresses have 64 bits");
        probe.set_buffer_bytes(bytes).map_err(refused)?;
    }
    if let Some(split) = split {
        probe.set_split_policy(policy(split)).map_err(refused)?;
    }
    Ok(Some(probe))
}

/// Sets how transactions lock the nodes of a document, and gives the store memory for a share of
/// its pages, of which it is full then.
fn arrange(database: &dyn Database, treatment: &Treatment) -> Result<(), ExecutionError> {
    let Treatment { locking, buffer_percent, .. } = treatment;
    if locking.is_none() && buffer_percent.is_none() {
        return Ok(());
    }
    let Clients::Engine(store) = database.clients() else {
        let reason = "locks on nodes and `buffer_percent` are for the databases in this process";
        return Err(ExecutionError::Unavailable(reason.into()));
    };
    let refused = |error: EmbeddedError| ExecutionError::Failed(error.into());
    if let Some(locking) = locking {
        let locking = locking.locking().map_err(|error| ExecutionError::Failed(error.into()))?;
        store.set_locking(locking).map_err(refused)?;
    }
    if let Some(percent) = buffer_percent {
        let bytes = store.warm().map_err(refused)?;
        store
            .engine()
            .set_buffer_bytes(share_of(bytes, *percent))
            .map_err(|error| refused(error.into()))?;
        store.warm().map_err(refused)?;
    }
    Ok(())
}

/// Returns so many per cent of all pages. All of them have as much memory as the store can use:
/// they become more, and once they do not fit any more, pages are read and written that were to be
/// in memory.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of what is in memory or on a disk, in whole bytes"
)]
fn share_of(bytes: u64, percent: f64) -> usize {
    if percent < 100.0 { (bytes as f64 * (percent / 100.0)) as usize } else { usize::MAX }
}

fn policy(split: Split) -> SplitPolicy {
    match split {
        Split::Half => SplitPolicy::Half,
        Split::MaxKey => SplitPolicy::MaxKey,
        Split::Adaptive => SplitPolicy::Adaptive { fill_percent: 100 },
    }
}

/// The load of an execution, and the further phases of its measured time.
fn load_options<'a>(
    assignment: &Assignment,
    front: &'a Front<'_>,
    workloads: &[Arc<dyn Workload>],
    requests: RequestTimes,
) -> (LoadOptions<'a>, Vec<Phase>) {
    let treatment = &assignment.treatment;
    let clients = treatment.clients(assignment.mpl);
    let is_exchanged = matches!(treatment.exchange, Some(Exchange::Workload(_)));
    let duration = if is_exchanged { assignment.ctl / 2 } else { assignment.ctl };
    let connecting =
        Connecting { timeout: assignment.connect, at_once: assignment.connect_at_once };
    let options = LoadOptions {
        target: front.target_by(connecting),
        workload: Arc::clone(&workloads[0]),
        arrivals: match treatment.arrivals {
            ArrivalSpec::Closed => Arrivals::Closed,
            ArrivalSpec::Poisson(rate) => Arrivals::Poisson { rate },
            ArrivalSpec::Constant(rate) => Arrivals::Constant { rate },
        },
        clients: clients as usize,
        needs_all: true,
        priority: treatment.priority.map(|priority| load::Priority {
            high_share: priority.high_percent / 100.0,
            is_first: priority.is_given,
        }),
        transactions_max: treatment.aging.map(|aging| aging.transactions),
        warmup: assignment.warmup,
        duration,
        interval: assignment.interval,
        seed: assignment.seed,
        requests,
    };
    let phase = |workload: &Arc<dyn Workload>| Phase { workload: Arc::clone(workload), duration };
    (options, workloads.iter().skip(1).map(phase).collect())
}

/// Runs a load while somebody looks after the database.
fn watched(
    actions: ScheduledActions,
    probe: Probe,
    progress: &mut dyn FnMut(&Progress),
    run: &mut RunLoad<'_>,
) -> Result<(LoadReport, Vec<TreeSnapshot>), ExecutionError> {
    let (say, begun) = channel();
    let watch = thread::spawn("watch", move || actions.run(&probe, &begun));
    let watch = watch.map_err(|error| ExecutionError::Failed(error.into()))?;
    let mut is_told = false;
    let load = run(&mut |seen| {
        if seen.stage == Stage::Measuring && !is_told {
            is_told = true;
            let now = clock::now();
            // Whoever fails has ended, which is told below.
            let _ = thread::stand_still(|| say.send(now.checked_sub(seen.elapsed).unwrap_or(now)));
        }
        progress(seen);
    });
    drop(say);
    let panicked = |_| Cause::from("who looked after the database panicked");
    let looks = watch.join().map_err(panicked).and_then(|looks| Ok(looks?));
    Ok((load?, looks.map_err(ExecutionError::Failed)?))
}

/// Intervals with their times counted from `zero_s`.
fn since(zero_s: f64, intervals: Vec<Interval>) -> Vec<Interval> {
    let moved = |interval: Interval| Interval { at_s: interval.at_s - zero_s, ..interval };
    intervals.into_iter().map(moved).collect()
}
