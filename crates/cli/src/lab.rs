//! `tidegate lab`.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Subcommand};
use tidegate_lab::experiment::{
    Choice, ChoiceError, Experiment, LabError, Laboratory, look_for_subjects, plan_text, read,
};
use tidegate_lab::rig::Console;

use tidegate_lab::store::{ExperimentRow, Format};
use tidegate_lab::tap::Choices;

use crate::machines::{self, WorkerArguments};
use crate::{Failure, interrupt, print};

const EXAMPLES: &str = "\
Examples:
  What would run, and how long it would take:
    tidegate lab plan experiments/quick.toml

  A throughput curve of the embedded engine, then of others:
    tidegate lab run experiments/quick.toml
    tidegate lab run experiments/quick.toml --subject postgres,mariadb

  On a server that is there already, in a database of its own, tidegate_lab:
    export PGPASSWORD=...
    tidegate lab run experiments/quick.toml --subject postgres=postgres://ann@host/shop

  After an interruption, and what came of it:
    tidegate lab list
    tidegate lab resume 2
    tidegate lab show 2

  All of it for another program, such as pandas:
    tidegate lab export 2 --format parquet --out exported

  The same on many machines: fill a queue here, and start a worker on each of them:
    tidegate lab run experiments/quick.toml --store postgres://lab@host/lab --workers
    tidegate lab worker --lab postgres://lab@host/lab";

/// Run experiments that files describe, and keep what came of them
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "Examples: tidegate lab --help")]
pub(crate) struct LabArguments {
    #[command(subcommand)]
    what: What,

    /// The result store: a file, or postgres://user:password@host:port/database
    #[arg(long, visible_alias = "lab", global = true, value_name = "PLACE")]
    #[arg(default_value = "results.db")]
    store: String,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show what an experiment file would do, and how long it would take
    Plan(FileArguments),
    /// Run an experiment file
    Run(RunArguments),
    /// Go on with an experiment that was interrupted
    Resume(ResumeArguments),
    /// Execute runs that others put into the store's queue, on this host, until interrupted
    Worker(WorkerArguments),
    /// List the experiments in the store
    List,
    /// Show an experiment's curves
    Show(ShowArguments),
    /// Apply the thrashing analysis protocol, and keep the thrashing points
    Tap(TapArguments),
    /// Write all that was recorded of an experiment into files for other programs
    Export(ExportArguments),
}

#[derive(Debug, Args)]
struct FileArguments {
    /// The experiment file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// One of the file's presets
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,

    /// Other subjects than the file names: postgres, mariadb, sqlite, firebird, embedded, ...; one
    /// that is there already by its place, as in postgres=postgres://user@host/database
    #[arg(long, value_name = "NAME[=URL],...", value_delimiter = ',')]
    subject: Option<Vec<String>>,
}

#[derive(Debug, Args)]
struct RunArguments {
    #[command(flatten)]
    file: FileArguments,

    /// Leave the runs to workers on other hosts, through a queue in the store
    #[arg(long)]
    workers: bool,
}

#[derive(Debug, Args)]
struct ResumeArguments {
    #[command(flatten)]
    experiment: Numbered,

    /// Leave the runs to workers on other hosts, through a queue in the store
    #[arg(long)]
    workers: bool,
}

#[derive(Debug, Args)]
struct Numbered {
    /// The experiment's number, as `tidegate lab list` shows it
    #[arg(value_name = "EXPERIMENT")]
    id: i64,
}

#[derive(Debug, Args)]
struct TapArguments {
    #[command(flatten)]
    experiment: Numbered,

    #[command(flatten)]
    protocol: ProtocolArguments,
}

/// What the analyst chooses of the analysis protocol.
#[derive(Debug, Args)]
pub(crate) struct ProtocolArguments {
    /// Keep executions that are no steady state (check 10), which are dropped otherwise; the
    /// batchsets that they are in have it as a caveat
    #[arg(long)]
    keep_unsteady: bool,
}

impl ProtocolArguments {
    pub(crate) fn choices(&self) -> Choices {
        Choices { keeps_unsteady: self.keep_unsteady, ..Choices::default() }
    }
}

#[derive(Debug, Args)]
struct ShowArguments {
    /// The experiment's number, as `tidegate lab list` shows it
    #[arg(value_name = "EXPERIMENT")]
    id: i64,

    /// Write each curve as SVG into this directory as well
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ExportArguments {
    /// The experiment's number, as `tidegate lab list` shows it
    #[arg(value_name = "EXPERIMENT")]
    id: i64,

    /// csv and parquet are a file for each kind of row, json one document
    #[arg(long, value_name = "csv|json|parquet", default_value = "csv")]
    format: Format,

    /// The directory for the files, which is made; those of the same names are replaced
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl FileArguments {
    fn choice(&self) -> Result<Choice, Failure> {
        // Not clap's to parse: it would repeat a URL that is wrong, and with it a password.
        let parse = |subjects: &Vec<String>| subjects.iter().map(|one| one.parse()).collect();
        let wrong = |error: ChoiceError| Failure::Usage(format!("--subject: {error}").into());
        let subjects = self.subject.as_ref().map(parse).transpose().map_err(wrong)?;
        Ok(Choice { preset: self.preset.clone(), subjects })
    }

    fn read(&self) -> Result<Experiment, Failure> {
        read(&self.file, &self.choice()?).map_err(Failure::usage)
    }

    /// The same, if its subjects are available here.
    fn read_and_look(&self) -> Result<Experiment, Failure> {
        let experiment = self.read()?;
        look_for_subjects(&self.file, &experiment, &self.choice()?).map_err(Failure::usage)?;
        Ok(experiment)
    }
}

/// Does what was asked for and prints what came of it.
pub(crate) fn run(arguments: LabArguments) -> Result<(), Failure> {
    let place = arguments.store;
    match arguments.what {
        What::Plan(file) => print(&plan_text(&file.read()?)),
        What::Run(RunArguments { file, workers }) => {
            // Also what is started to see whether it can be had is stopped before we end.
            let cancel = interrupt::flag().map_err(Failure::failed)?;
            if workers {
                machines::check_store(&place)?;
            }
            // With workers, the subjects are theirs to have.
            let experiment = if workers { file.read()? } else { file.read_and_look()? };
            if cancel.load(Ordering::Relaxed) {
                return Err(Failure::Failed("interrupted; nothing was recorded".into()));
            }
            let mut laboratory = open(&place)?;
            let begun = if workers {
                laboratory.begin_for_workers(&experiment)
            } else {
                laboratory.begin(&experiment)
            };
            let id = begun.map_err(failed)?;
            conduct(&mut laboratory, (&place, id), workers, &cancel)
        }
        What::Resume(ResumeArguments { experiment, workers }) => {
            let cancel = interrupt::flag().map_err(Failure::failed)?;
            if workers {
                machines::check_store(&place)?;
            }
            conduct(&mut open_existing(&place)?, (&place, experiment.id), workers, &cancel)
        }
        What::Worker(arguments) => machines::work(&arguments, &place),
        What::List => print(&open(&place)?.list().map_err(failed)?),
        What::Show(ShowArguments { id, svg, json }) => {
            let mut laboratory = open_existing(&place)?;
            let text = laboratory.show(id, svg.as_deref()).map_err(failed)?;
            print(&if json { laboratory.show_json(id).map_err(failed)? } else { text })
        }
        What::Tap(TapArguments { experiment, protocol }) => {
            let mut laboratory = open_existing(&place)?;
            let report = laboratory.tap(experiment.id, protocol.choices()).map_err(failed)?;
            print(&report.tables())
        }
        What::Export(ExportArguments { id, format, out }) => {
            let files = open_existing(&place)?.export(id, format, &out).map_err(failed)?;
            let mut text = String::new();
            for file in files {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{}", file.display());
            }
            print(&text)
        }
    }
}

fn open(place: &str) -> Result<Laboratory, Failure> {
    let tidegate = std::env::current_exe().map_err(Failure::failed)?;
    Laboratory::open(place, tidegate).map_err(failed)
}

/// The same for who wants something of a store: a name with a typo is none.
fn open_existing(place: &str) -> Result<Laboratory, Failure> {
    let tidegate = std::env::current_exe().map_err(Failure::failed)?;
    Laboratory::open_existing(place, tidegate).map_err(failed)
}

/// Runs what is left of an experiment in the store at a place, and shows its curves; or leaves it
/// to workers.
fn conduct(
    laboratory: &mut Laboratory,
    (place, id): (&str, i64),
    workers: bool,
    cancel: &AtomicBool,
) -> Result<(), Failure> {
    if workers {
        return machines::enqueue(laboratory, place, id);
    }
    let console = Console::new();
    let outcome = laboratory.run(id, cancel, &mut |update| console.show(update));
    drop(console);
    let outcome = outcome.map_err(failed)?;
    let mut text = laboratory.show(id, None).map_err(failed)?;
    // Writing to a String cannot fail.
    for reason in &outcome.unavailable {
        let _ = writeln!(text, "left out: {reason}");
    }
    let _ = writeln!(text, "experiment {id}");
    print(&text)?;
    let row = laboratory.experiment(id).map_err(failed)?;
    let violations = laboratory.violations(id).map_err(failed)?;
    sound(id, violations.len(), left(&row))
}

/// What is still to be done of an experiment, if anything is.
fn left(row: &ExperimentRow) -> Option<String> {
    let ExperimentRow { id, done, planned, .. } = row;
    let left =
        format!("{done} of {planned} executions done; `tidegate lab resume {id}` tries the rest");
    (done < planned).then_some(left)
}

/// Whether all was done and the databases kept their conditions. One that did not says more than
/// one that is not done: what it measured is not to be used.
fn sound(id: i64, violations: usize, left: Option<String>) -> Result<(), Failure> {
    if violations == 0 {
        return left.map_or(Ok(()), |left| Err(Failure::Failed(left.into())));
    }
    let broken = format!(
        "consistency conditions violated: {violations}; `tidegate lab show {id}` names them, and \
         throughput of a database that breaks its rules is not to be compared"
    );
    let left = left.map_or_else(String::new, |left| format!("; {left}"));
    Err(Failure::Inconsistent(format!("{broken}{left}").into()))
}

fn failed(error: LabError) -> Failure {
    match error {
        LabError::File(_) => Failure::usage(error),
        _ => Failure::failed(error),
    }
}
