//! The laboratory's door: experiments begun, resumed, looked at and analysed, on one result store.

pub mod machines;
pub mod run;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use tempfile::TempDir;
use thiserror::Error;

use crate::conduct::{Executor, RealSubject, Simulated, VirtualMachine};
use crate::experiment::file::parse_begun;
use crate::experiment::{
    Choice, ChoiceError, Experiment, FileError, Plan, RunPlan, Subject, SubjectKind,
};
use crate::rig::{Machine, Update};
use crate::show::{self, FigureError, Troubles, figure, timeline};
use crate::store::{ExperimentRow, Format, Store, StoreError};
use crate::tap::{Choices, DataError, Posterior, RetainedBatchset, TapReport, analyse, certainty};
use run::{Outcome, RunError, Runner};

/// The name that a file taken out of the store goes by in messages.
const STORED: &str = "the stored experiment file";

/// The scenarios whose batchsets are curves that the analysis protocol judges.
const CURVES: [&str; 2] = ["thrash", "characterise"];

/// Why the laboratory does not do what it was told.
#[derive(Debug, Error)]
pub enum LabError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The experiment stopped before its end.
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("the rows cannot be analysed: {0}")]
    Data(#[from] DataError),
    #[error(transparent)]
    Figure(#[from] FigureError),
    #[error("cannot make a directory in {path}: {source}", path = .path.display())]
    Logs {
        /// The path of the file or directory.
        path: PathBuf,
        source: std::io::Error,
    },
}

/// A directory for the log of proxies, and for their journals beside it. It goes when the
/// executions are over, unless a proxy had something to say: an error may have named the log.
#[derive(Debug)]
struct Logs(TempDir);

impl Logs {
    fn begin() -> Result<Self, LabError> {
        let made = tempfile::Builder::new().prefix("tidegate-lab-").tempdir();
        let cannot = |source| LabError::Logs { path: std::env::temp_dir(), source };
        made.map(Logs).map_err(cannot)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("proxy.log")
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        let has_words = std::fs::metadata(self.path()).is_ok_and(|log| log.len() > 0);
        self.0.disable_cleanup(has_words);
    }
}

/// What the analysis protocol found.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysed {
    pub report: TapReport,
    /// The posterior of each batchset instance retained, in their order.
    pub posteriors: Vec<Posterior>,
}

impl Analysed {
    /// Returns the study's tables, and how certain their last is, as Markdown.
    pub fn tables(&self) -> String {
        self.report.tables() + &certainty(&self.report, &self.posteriors)
    }
}

/// A laboratory: a result store, and the program that it may start.
#[derive(Debug)]
pub struct Laboratory {
    store: Store,
    tidegate: PathBuf,
    /// Subjects of experiments begun here, with passwords, which the store does not have.
    known: Vec<Subject>,
}

impl Laboratory {
    /// Opens the result store at a place; see [`Store::open`].
    pub fn open(place: &str, tidegate: PathBuf) -> Result<Self, LabError> {
        Ok(Laboratory { store: Store::open(place)?, tidegate, known: Vec::new() })
    }

    /// The same of a store that is there; see [`Store::open_existing`].
    pub fn open_existing(place: &str, tidegate: PathBuf) -> Result<Self, LabError> {
        Ok(Laboratory { store: Store::open_existing(place)?, tidegate, known: Vec::new() })
    }

    /// Writes down what an experiment plans, to be run here; its number in the store. This host, or
    /// a store in a file, is held from here on, so that nothing is planned that another laboratory
    /// keeps from being measured.
    ///
    /// # Errors
    /// The store fails, or another laboratory has the host or the file.
    pub fn begin(&mut self, experiment: &Experiment) -> Result<i64, LabError> {
        self.store.hold_host()?;
        self.plan(experiment)
    }

    /// The same, to be run by workers, of which one may well be on this host.
    pub fn begin_for_workers(&mut self, experiment: &Experiment) -> Result<i64, LabError> {
        self.store.hold_file()?;
        self.plan(experiment)
    }

    fn plan(&mut self, experiment: &Experiment) -> Result<i64, LabError> {
        let plan = Plan::new(experiment);
        self.known.extend_from_slice(&experiment.subjects);
        Ok(self.store.begin_experiment(experiment, &plan, &Machine::this())?)
    }

    /// Runs what is left of an experiment, on this host.
    ///
    /// # Errors
    /// See [`LabError`]; what was measured is in the store.
    pub fn run(
        &mut self,
        id: i64,
        cancel: &AtomicBool,
        observer: &mut dyn FnMut(&Update),
    ) -> Result<Outcome, LabError> {
        self.store.hold_host()?;
        let outcome = self.conduct(id, None, cancel, observer);
        let released = self.store.release_host();
        let outcome = outcome?;
        released?;
        Ok(outcome)
    }

    /// Runs what is left of an experiment, or of one of its runs.
    fn conduct(
        &mut self,
        id: i64,
        only: Option<u32>,
        cancel: &AtomicBool,
        observer: &mut dyn FnMut(&Update),
    ) -> Result<Outcome, LabError> {
        let (experiment, plan) = self.stored(id)?;
        let logs = Logs::begin()?;
        let (tidegate, log) = (self.tidegate.clone(), logs.path());
        let mut executor = |run: &RunPlan| executor_of(run, &tidegate, &log);
        let mut runner = Runner {
            experiment: &experiment,
            plan: &plan,
            id,
            store: &mut self.store,
            executor: &mut executor,
            cancel,
            observer,
        };
        let outcome = match only {
            None => runner.run(),
            Some(run) => runner.run_only(run),
        };
        Ok(outcome?)
    }

    /// The experiment that was begun, as it was then, or why it cannot be had.
    fn stored(&mut self, id: i64) -> Result<(Experiment, Plan), LabError> {
        let row = self.store.experiment(id)?;
        let known = |subject: Subject| {
            // Shown alike, they are alike but for the password.
            let known = self.known.iter().find(|one| one.to_string() == subject.to_string());
            known.cloned().unwrap_or(subject)
        };
        let subjects = row.subjects.split(',').map(|one| one.parse().map(known));
        let subjects = subjects.collect::<Result<Vec<_>, ChoiceError>>();
        let subjects =
            subjects.map_err(|error| StoreError::Damaged(format!("experiment {id}: {error}")))?;
        let preset = Some(row.preset).filter(|preset| !preset.is_empty());
        let choice = Choice { preset, subjects: Some(subjects) };
        let experiment = parse_begun(Path::new(STORED), &row.file, &choice)?;
        let plan = Plan::new(&experiment);
        self.store.check_plan(id, &experiment, &plan)?;
        Ok((experiment, plan))
    }

    /// All experiments in the store.
    pub fn experiments(&mut self) -> Result<Vec<ExperimentRow>, LabError> {
        Ok(self.store.experiments()?)
    }

    /// An experiment in the store.
    pub fn experiment(&mut self, id: i64) -> Result<ExperimentRow, LabError> {
        Ok(self.store.experiment(id)?)
    }

    /// All experiments in the store as text, a line for each.
    pub fn list(&mut self) -> Result<String, LabError> {
        Ok(show::list(&self.experiments()?))
    }

    /// Applies the analysis protocol to an experiment and keeps the thrashing points, each with its
    /// posterior.
    pub fn tap(&mut self, id: i64, choices: Choices) -> Result<Analysed, LabError> {
        let report = self.analysed(id, choices)?;
        let posteriors: Vec<Posterior> =
            report.retained.iter().map(RetainedBatchset::posterior).collect();
        self.store.analysed(id, &report, &posteriors)?;
        Ok(Analysed { report, posteriors })
    }

    /// Applies the analysis protocol to those of the experiments that it is for: curves of
    /// throughput over MPLs.
    ///
    /// # Errors
    /// See [`LabError`]; there is one that is not in the store.
    pub fn tap_curves(&mut self, ids: &[i64], choices: Choices) -> Result<(), LabError> {
        let experiments = self.experiments()?;
        let missing = |id| StoreError::Missing { what: "experiment", id };
        let of = |&id: &i64| experiments.iter().find(|row| row.id == id).ok_or(missing(id));
        for row in ids.iter().map(of).collect::<Result<Vec<_>, _>>()? {
            if is_curve(row) {
                self.tap(row.id, choices)?;
            }
        }
        Ok(())
    }

    fn analysed(&mut self, id: i64, choices: Choices) -> Result<TapReport, LabError> {
        let (experiment, plan) = self.stored(id)?;
        let data = self.store.data_set(id, &experiment, &plan)?;
        Ok(analyse(&data, choices)?)
    }

    /// What the analysis protocol says of an experiment: nothing where it is not for it. Curves can
    /// be shown also where the rows cannot be analysed.
    fn judged(&mut self, row: &ExperimentRow) -> Result<Option<TapReport>, LabError> {
        if is_curve(row) { self.analysed(row.id, Choices::default()).map(Some) } else { Ok(None) }
    }

    /// An experiment's curves as text, with what went wrong; as SVG, too, where a directory is
    /// given.
    pub fn show(&mut self, id: i64, svg: Option<&Path>) -> Result<String, LabError> {
        let row = self.store.experiment(id)?;
        let curves = self.store.curves(id)?;
        let judged = self.judged(&row);
        let report = judged.as_ref().ok().and_then(Option::as_ref);
        let mut text = show::text(&curves, report);
        text.push_str(&timeline::text(&self.store.courses(id)?));
        let troubles = self.troubles(id)?;
        for line in [troubles.violations, troubles.unchecked, troubles.failures].iter().flatten() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{line}");
        }
        for line in report.into_iter().flat_map(show::host_warnings) {
            let _ = writeln!(text, "{line}");
        }
        if let Err(error) = &judged {
            let _ = writeln!(text, "not analysed: {error}");
        }
        let _ = writeln!(text, "{} of {} executions done", row.done, row.planned);
        if let Some(directory) = svg {
            figure::write(directory, &row.name, &curves, report)?;
        }
        Ok(text)
    }

    /// The same for programs, as JSON: one object, ended by a line feed.
    pub fn show_json(&mut self, id: i64) -> Result<String, LabError> {
        let row = self.store.experiment(id)?;
        let curves = self.store.curves(id)?;
        let judged = self.judged(&row).map_err(|error| error.to_string());
        let judged = judged.as_ref().map(Option::as_ref);
        let value = show::json(&row, &curves, judged, &self.troubles(id)?);
        Ok(format!("{value}\n"))
    }

    fn troubles(&mut self, id: i64) -> Result<Troubles, LabError> {
        Ok(Troubles {
            violations: self.store.violations(id)?,
            unchecked: self.store.unchecked(id)?,
            failures: self.store.failures(id)?,
        })
    }

    /// The consistency conditions that an experiment's databases broke, a line for each.
    pub fn violations(&mut self, id: i64) -> Result<Vec<String>, LabError> {
        Ok(self.store.violations(id)?)
    }

    /// Writes all rows of an experiment into files in a directory; their paths. See
    /// [`Store::export`].
    pub fn export(
        &mut self,
        id: i64,
        format: Format,
        directory: &Path,
    ) -> Result<Vec<PathBuf>, LabError> {
        let (experiment, _) = self.stored(id)?;
        Ok(self.store.export(id, &experiment, format, directory)?)
    }
}

fn is_curve(row: &ExperimentRow) -> bool {
    CURVES.contains(&row.scenario.as_str())
}

/// Who makes the executions of a run.
fn executor_of(run: &RunPlan, tidegate: &Path, log: &Path) -> Box<dyn Executor> {
    match run.subject.kind {
        SubjectKind::Simulated => Box::new(Simulated::default()),
        SubjectKind::Machine => Box::new(VirtualMachine::new(log.to_owned())),
        _ => Box::new(RealSubject::new(tidegate.to_owned(), log.to_owned())),
    }
}

/// What an experiment would do and how long it would take, for people.
pub fn plan_text(experiment: &Experiment) -> String {
    const SHOWN: usize = 5;
    let plan = Plan::new(experiment);
    let batchsets: usize = plan.runs.iter().map(|run| run.batchsets.len()).sum();
    let batches: usize =
        plan.runs.iter().flat_map(|run| &run.batchsets).map(|set| set.batches.len()).sum();
    let mut text = format!(
        "{}, scenario {}, seed {}\n{} runs, {batchsets} batchset instances, {batches} batch \
         instances, {} batch executions\nestimated time {}\n\n",
        experiment.name,
        experiment.scenario.name,
        experiment.seed,
        plan.runs.len(),
        plan.count(),
        humantime::format_duration(std::time::Duration::from_secs(
            plan.estimate(experiment).as_secs()
        )),
    );
    for run in &plan.runs {
        let sets = run.batchsets.len();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "run {}: {}, {sets} batchsets", run.number, run.title());
        for execution in plan.executions(run).iter().take(SHOWN) {
            let set = run.batchset(execution.batchset).expect("executions are of its batchsets");
            let workload = set.describe();
            let _ = writeln!(
                text,
                "  batchset {}, MPL {}, execution {}: {workload}",
                execution.batchset, execution.mpl, execution.repetition
            );
        }
        if plan.executions(run).len() > SHOWN {
            text.push_str("  ...\n");
        }
    }
    text
}
