//! `tidegate report`: the analysis protocol here, all else by the Python package in `analysis/`.
//!
//! The store's address may contain a password, and arguments can be seen by everybody on the
//! machine. So the package is told of a store on PostgreSQL by its environment alone.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;
use tidegate_lab::laboratory::Laboratory;
use tidegate_lab::store::is_postgres;

use crate::lab::ProtocolArguments;
use crate::{Failure, interrupt};

/// Name of the Python package.
const PACKAGE: &str = "tidegate_analysis";

/// Environment variable with the path of the interpreter; it comes first.
const INTERPRETER: &str = "TIDEGATE_PYTHON";

/// Path of the interpreter of `make analysis`, in Tidegate's directory; it comes second.
const ENVIRONMENT: &str = "analysis/.venv/bin/python";

/// The interpreter if neither exists.
const ANY: &str = "python3";

/// Environment variable that gives the store to the package.
const STORE: &str = "TIDEGATE_STORE";

/// Interval at which the package's process is polled.
const POLL: Duration = Duration::from_millis(20);

/// How long the package may take to stop after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(5);

/// Analyse experiments and write a report with figures, tables, models and advice
#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Numbers of the experiments in `tidegate lab list`
    #[arg(value_name = "EXPERIMENT", required = true)]
    experiments: Vec<i64>,

    /// Result store: a file, or postgres://user:password@host:port/database
    #[arg(long, value_name = "PLACE", default_value = "results.db")]
    store: String,

    /// Directory for the report
    #[arg(long, value_name = "DIR", default_value = "out/report")]
    out: PathBuf,

    #[command(flatten)]
    protocol: ProtocolArguments,
}

/// Why no report was written.
#[derive(Debug, Error)]
enum ReportError {
    /// No interpreter was found.
    #[error(
        "cannot run {}: {reason}; `make analysis` installs what a report needs, and {INTERPRETER} \
         names an interpreter that has it",
        .interpreter.display()
    )]
    Interpreter { interpreter: PathBuf, reason: io::Error },
    /// The interpreter does not have the package.
    #[error(
        "{} has no package {PACKAGE}; `make analysis` installs it, and {INTERPRETER} names an \
         interpreter that has it",
        .0.display()
    )]
    Package(PathBuf),
    /// A signal ended the package.
    #[error("the report was not written: {0}")]
    Ended(ExitStatus),
    /// The command was interrupted.
    #[error("interrupted; the report was not written")]
    Interrupted,
}

/// Applies the analysis protocol and runs the package, which writes the report.
pub(crate) fn run(arguments: &ReportArguments) -> Result<(), Failure> {
    let cancel = interrupt::flag().map_err(Failure::failed)?;
    let interpreter = interpreter();
    find_package(&interpreter).map_err(Failure::failed)?;
    analyse(arguments)?;
    let mut command = command(&interpreter, arguments);
    let child = command.spawn().map_err(|reason| Failure::failed(missing(&interpreter, reason)))?;
    let status = wait(child, &cancel).map_err(Failure::failed)?;
    match status.code() {
        _ if cancel.load(Ordering::Relaxed) => Err(Failure::failed(ReportError::Interrupted)),
        Some(0) => Ok(()),
        // The package has said why.
        Some(code) => Err(Failure::Code(u8::try_from(code).unwrap_or(1))),
        None => Err(Failure::failed(ReportError::Ended(status))),
    }
}

/// Applies the analysis protocol and stores its results. Closes the store.
fn analyse(arguments: &ReportArguments) -> Result<(), Failure> {
    let tidegate = std::env::current_exe().map_err(Failure::failed)?;
    let mut laboratory =
        Laboratory::open_existing(&arguments.store, tidegate).map_err(Failure::failed)?;
    laboratory
        .tap_curves(&arguments.experiments, arguments.protocol.choices())
        .map_err(Failure::failed)
}

/// Returns the interpreter that the environment names, or that of `make analysis`, or any.
fn interpreter() -> PathBuf {
    match std::env::var_os(INTERPRETER).filter(|named| !named.is_empty()) {
        Some(named) => named.into(),
        None if Path::new(ENVIRONMENT).exists() => ENVIRONMENT.into(),
        None => ANY.into(),
    }
}

/// Checks that the interpreter has the package, which takes less time than running it.
fn find_package(interpreter: &Path) -> Result<(), ReportError> {
    let find = format!(
        "import importlib.util, sys; sys.exit(importlib.util.find_spec('{PACKAGE}') is None)"
    );
    let status = Command::new(interpreter).args(["-c", &find]).status();
    let status = status.map_err(|reason| missing(interpreter, reason))?;
    if status.success() { Ok(()) } else { Err(ReportError::Package(interpreter.to_owned())) }
}

fn missing(interpreter: &Path, reason: io::Error) -> ReportError {
    ReportError::Interpreter { interpreter: interpreter.to_owned(), reason }
}

fn command(interpreter: &Path, arguments: &ReportArguments) -> Command {
    let mut command = Command::new(interpreter);
    command.env(STORE, &arguments.store).args(["-m", PACKAGE, "report"]);
    if !is_postgres(&arguments.store) {
        command.args(["--store", &arguments.store]);
    }
    command.arg("--out").arg(&arguments.out);
    command.args(arguments.experiments.iter().map(i64::to_string));
    command
}

/// How the package ended. When the flag is raised it is told to, and soon made to.
fn wait(mut child: Child, cancel: &AtomicBool) -> io::Result<ExitStatus> {
    let mut told: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match told {
            None if cancel.load(Ordering::Relaxed) => {
                kill_process(Pid::from_child(&child), Signal::TERM)?;
                told = Some(Instant::now());
            }
            Some(told) if told.elapsed() > PATIENCE => child.kill()?,
            _ => {}
        }
        std::thread::sleep(POLL);
    }
}
