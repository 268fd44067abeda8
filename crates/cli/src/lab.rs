//! `tidegate lab`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use tidegate_lab::experiment::{Choice, LabError, Laboratory, SubjectKind, plan_text, read};
use tidegate_lab::rig::Console;

use crate::machines::{self, WorkerArguments};
use crate::{Failure, interrupt, print};

const EXAMPLES: &str = "\
Examples:
  What would run, and how long it would take:
    tidegate lab plan experiments/quick.toml

  A throughput curve of the embedded engine, then of others:
    tidegate lab run experiments/quick.toml
    tidegate lab run experiments/quick.toml --subject postgres,mariadb

  After an interruption, and what came of it:
    tidegate lab list
    tidegate lab resume 2
    tidegate lab show 2

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
    Tap(Numbered),
}

#[derive(Debug, Args)]
struct FileArguments {
    /// The experiment file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// One of the file's presets
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,

    /// Other subjects than the file names: postgres, mariadb, sqlite, firebird, embedded, ...
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    subject: Option<Vec<SubjectKind>>,
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
struct ShowArguments {
    /// The experiment's number, as `tidegate lab list` shows it
    #[arg(value_name = "EXPERIMENT")]
    id: i64,

    /// Write each curve as SVG into this directory as well
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

impl FileArguments {
    fn read(self) -> Result<tidegate_lab::experiment::Experiment, Failure> {
        let choice = Choice { preset: self.preset, subjects: self.subject };
        read(&self.file, &choice).map_err(Failure::usage)
    }
}

/// Does what was asked for and prints what came of it.
pub(crate) fn run(arguments: LabArguments) -> Result<(), Failure> {
    let place = arguments.store;
    match arguments.what {
        What::Plan(file) => print(&plan_text(&file.read()?)),
        What::Run(RunArguments { file, workers }) => {
            let experiment = file.read()?;
            let mut laboratory = open(&place)?;
            let id = laboratory.begin(&experiment).map_err(failed)?;
            conduct(&mut laboratory, &place, id, workers)
        }
        What::Resume(ResumeArguments { experiment, workers }) => {
            conduct(&mut open(&place)?, &place, experiment.id, workers)
        }
        What::Worker(arguments) => machines::work(&arguments, &place),
        What::List => list(&mut open(&place)?),
        What::Show(ShowArguments { id, svg }) => {
            let text = open(&place)?.show(id, svg.as_deref()).map_err(failed)?;
            print(&text)
        }
        What::Tap(Numbered { id }) => {
            let report = open(&place)?.tap(id).map_err(failed)?;
            print(&report.tables())
        }
    }
}

fn open(place: &str) -> Result<Laboratory, Failure> {
    let tidegate = std::env::current_exe().map_err(Failure::failed)?;
    Laboratory::open(place, tidegate).map_err(failed)
}

/// Runs what is left of an experiment, and shows its curves; or leaves it to workers.
fn conduct(
    laboratory: &mut Laboratory,
    place: &str,
    id: i64,
    workers: bool,
) -> Result<(), Failure> {
    if workers {
        return machines::enqueue(laboratory, place, id);
    }
    let cancel = interrupt::flag().map_err(Failure::failed)?;
    let console = Console::new();
    let outcome = laboratory.run(id, &cancel, &mut |update| console.show(update));
    drop(console);
    let outcome = outcome.map_err(failed)?;
    let mut text = laboratory.show(id, None).map_err(failed)?;
    // Writing to a String cannot fail.
    for reason in &outcome.unavailable {
        let _ = writeln!(text, "left out: {reason}");
    }
    let _ = writeln!(text, "experiment {id}");
    print(&text)
}

fn list(laboratory: &mut Laboratory) -> Result<(), Failure> {
    let mut text = String::new();
    for row in laboratory.experiments().map_err(failed)? {
        let preset = if row.preset.is_empty() { "" } else { ", preset " };
        let _ = writeln!(
            text,
            "{}: {} ({}{preset}{}) on {}: {} of {} executions",
            row.id, row.name, row.scenario, row.preset, row.subjects, row.done, row.planned
        );
    }
    if text.is_empty() {
        text.push_str("no experiments yet\n");
    }
    print(&text)
}

fn failed(error: LabError) -> Failure {
    match error {
        LabError::File(_) => Failure::usage(error),
        _ => Failure::failed(error),
    }
}
