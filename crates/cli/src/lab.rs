//! `tidegate lab`.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Subcommand};
use tidegate_lab::experiment::{Choice, ChoiceError, Experiment, look_for_subjects, read};
use tidegate_lab::laboratory::{LabError, Laboratory, plan_text};
use tidegate_lab::rig::Console;
use tidegate_lab::store::{ExperimentRow, Format};
use tidegate_lab::tap::Choices;

use crate::machines::{self, WorkerArguments};
use crate::{Failure, interrupt, print};

const EXAMPLES: &str = "\
Examples:
  Print what would run and how long it would take:
    tidegate lab plan quick

  Measure a throughput curve of the embedded engine, then of other databases:
    tidegate lab run quick
    tidegate lab run quick --subject postgres,mariadb

  Use an existing server; the laboratory makes its own database there, tidegate_lab:
    export PGPASSWORD=...
    tidegate lab run quick --subject postgres=postgres://ann@host/shop

  Continue after an interruption, and print the results:
    tidegate lab list
    tidegate lab resume 2
    tidegate lab show 2

  Export all data for another program, such as pandas:
    tidegate lab export 2 --format parquet --out exported

  Use many machines: fill a queue here, and start a worker on each machine:
    tidegate lab run quick --store postgres://lab@host/lab --workers
    tidegate lab worker --lab postgres://lab@host/lab";

/// Run experiments that are described in files, and store their results
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "Examples: tidegate lab --help")]
pub(crate) struct LabArguments {
    #[command(subcommand)]
    what: LabCommand,

    /// Result store: a file, or postgres://user:password@host:port/database
    #[arg(long, visible_alias = "lab", global = true, value_name = "PLACE")]
    #[arg(default_value = "results.db")]
    store: String,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Print what an experiment file would run, and how long it would take
    Plan(FileArguments),
    /// Run an experiment file
    Run(RunArguments),
    /// Continue an experiment that was interrupted
    Resume(ResumeArguments),
    /// Execute runs from the store's queue on this host until interrupted
    Worker(WorkerArguments),
    /// List the experiments in the store
    List,
    /// Print an experiment's results: curves, errors, thrashing points
    Show(ShowArguments),
    /// Apply the thrashing analysis protocol, and store the thrashing points
    Tap(TapArguments),
    /// Write all data of an experiment to files for other programs
    Export(ExportArguments),
}

#[derive(Debug, Args)]
struct FileArguments {
    /// Experiment file, or the name of one within the program: `tidegate experiments` lists them
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Preset of the file to use
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,

    /// Subjects to use instead of the file's: postgres, mariadb, sqlite, firebird, embedded, ...;
    /// an existing server has a URL, as in postgres=postgres://user@host/database
    #[arg(long, value_name = "NAME[=URL],...", value_delimiter = ',')]
    subject: Option<Vec<String>>,
}

#[derive(Debug, Args)]
struct RunArguments {
    #[command(flatten)]
    file: FileArguments,

    /// Put the runs into a queue in the store, for workers on other hosts
    #[arg(long)]
    workers: bool,
}

#[derive(Debug, Args)]
struct ResumeArguments {
    #[command(flatten)]
    experiment: ExperimentNumber,

    /// Put the runs into a queue in the store, for workers on other hosts
    #[arg(long)]
    workers: bool,
}

#[derive(Debug, Args)]
struct ExperimentNumber {
    /// Number of the experiment in `tidegate lab list`
    #[arg(value_name = "EXPERIMENT")]
    id: i64,
}

#[derive(Debug, Args)]
struct TapArguments {
    #[command(flatten)]
    experiment: ExperimentNumber,

    #[command(flatten)]
    protocol: ProtocolArguments,
}

/// Options of the analysis protocol.
#[derive(Debug, Args)]
pub(crate) struct ProtocolArguments {
    /// Keep executions that are not in a steady state (check 10) instead of dropping them; their
    /// batchsets then have a caveat
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
    /// Number of the experiment in `tidegate lab list`
    #[arg(value_name = "EXPERIMENT")]
    id: i64,

    /// Also write each curve as SVG into this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ExportArguments {
    /// Number of the experiment in `tidegate lab list`
    #[arg(value_name = "EXPERIMENT")]
    id: i64,

    /// Format: csv and parquet make one file for each table, json makes one document
    #[arg(long, value_name = "csv|json|parquet", default_value = "csv")]
    format: Format,

    /// Directory for the files; it is created, and files with the same names are replaced
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

    /// Reads the experiment and checks that its subjects are available on this machine.
    fn read_and_look(&self) -> Result<Experiment, Failure> {
        let experiment = self.read()?;
        look_for_subjects(&self.file, &experiment, &self.choice()?).map_err(Failure::usage)?;
        Ok(experiment)
    }
}

/// Runs the subcommand and prints its result.
pub(crate) fn run(arguments: LabArguments) -> Result<(), Failure> {
    let place = arguments.store;
    match arguments.what {
        LabCommand::Plan(file) => print(&plan_text(&file.read()?)),
        LabCommand::Run(RunArguments { file, workers }) => {
            // Raised before subjects are checked: a server started for a check is stopped, too.
            let cancel = interrupt::flag().map_err(Failure::failed)?;
            if workers {
                machines::check_store(&place)?;
            }
            // With workers, each worker checks its own subjects.
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
        LabCommand::Resume(ResumeArguments { experiment, workers }) => {
            let cancel = interrupt::flag().map_err(Failure::failed)?;
            if workers {
                machines::check_store(&place)?;
            }
            conduct(&mut open_existing(&place)?, (&place, experiment.id), workers, &cancel)
        }
        LabCommand::Worker(arguments) => machines::work(&arguments, &place),
        LabCommand::List => print(&open(&place)?.list().map_err(failed)?),
        LabCommand::Show(ShowArguments { id, svg, json }) => {
            let mut laboratory = open_existing(&place)?;
            let text = laboratory.show(id, svg.as_deref()).map_err(failed)?;
            print(&if json { laboratory.show_json(id).map_err(failed)? } else { text })
        }
        LabCommand::Tap(TapArguments { experiment, protocol }) => {
            let mut laboratory = open_existing(&place)?;
            let report = laboratory.tap(experiment.id, protocol.choices()).map_err(failed)?;
            print(&report.tables())
        }
        LabCommand::Export(ExportArguments { id, format, out }) => {
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

/// Opens a store that must exist, so that a misspelt name does not create an empty one.
fn open_existing(place: &str) -> Result<Laboratory, Failure> {
    let tidegate = std::env::current_exe().map_err(Failure::failed)?;
    Laboratory::open_existing(place, tidegate).map_err(failed)
}

/// Runs the remaining executions of an experiment and prints its curves, or puts them into the
/// queue of the store for workers.
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

/// Returns how much of an experiment is done, if executions remain.
fn left(row: &ExperimentRow) -> Option<String> {
    let ExperimentRow { id, done, planned, .. } = row;
    let left =
        format!("{done} of {planned} executions done; `tidegate lab resume {id}` tries the rest");
    (done < planned).then_some(left)
}

/// Fails if executions remain or a database violated a consistency condition. A violation decides
/// the exit code, because measurements of such a database must not be used.
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
