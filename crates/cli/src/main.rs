//! The `tidegate` command: flags, output, exit codes, and no logic.

mod bench;
mod controllers;
mod demo;
mod interrupt;
mod lab;
mod load;
mod machines;
mod proxy;
mod replay;
mod report;
mod simulate;

use std::error::Error;
use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

const EXIT_CODES: &str = "\
Exit codes:
  0  it did what it was asked for
  1  it failed or was interrupted; the reason is on standard error
  2  the flags or the configuration file are wrong
  3  an experiment's database broke a consistency condition (lab run, lab resume)";

/// A PostgreSQL proxy that finds the number of transactions the database can really run at once,
/// and lets in that many.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// What is logged to standard error: off, error, warn, info, debug or trace
    #[arg(long, global = true, value_name = "LEVEL", default_value = "info")]
    log_level: LevelFilter,
}

#[derive(Debug, Subcommand)]
enum Command {
    Proxy(Box<proxy::ProxyArguments>),
    Load(load::LoadArguments),
    Demo(demo::DemoArguments),
    Bench(bench::BenchArguments),
    Replay(replay::ReplayArguments),
    Simulate(simulate::SimulateArguments),
    Controllers(controllers::ControllersArguments),
    Lab(lab::LabArguments),
    Report(report::ReportArguments),
}

/// Why the command ends without success.
#[derive(Debug)]
enum Failure {
    /// What it was told makes no sense.
    Usage(Box<dyn Error>),
    /// It could not be done.
    Failed(Box<dyn Error>),
    /// A database broke a condition of its workload.
    Inconsistent(Box<dyn Error>),
    /// Another program that did the work ended with this code, and has said why.
    Code(u8),
}

impl Failure {
    fn usage(error: impl Error + 'static) -> Failure {
        Failure::Usage(Box::new(error))
    }

    fn failed(error: impl Error + 'static) -> Failure {
        Failure::Failed(Box::new(error))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // The job queue tells of every job; of that, only warnings are news.
    let targets = Targets::new()
        .with_default(LevelFilter::TRACE)
        .with_target("graphile_worker", LevelFilter::WARN);
    tracing_subscriber::fmt()
        .with_max_level(arguments.log_level)
        .with_target(false)
        .with_writer(io::stderr)
        .finish()
        .with(targets)
        .init();
    let outcome = match arguments.command {
        Command::Proxy(arguments) => proxy::run(*arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Simulate(arguments) => simulate::run(arguments),
        Command::Controllers(arguments) => controllers::run(&arguments),
        Command::Lab(arguments) => lab::run(arguments),
        Command::Report(arguments) => report::run(&arguments),
    };
    let (code, error) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Failed(error)) => (1, error),
        Err(Failure::Usage(error)) => (2, error),
        Err(Failure::Inconsistent(error)) => (3, error),
        Err(Failure::Code(code)) => return ExitCode::from(code),
    };
    report(&*error);
    ExitCode::from(code)
}

/// Writes why the command failed, also when logging is off.
fn report(error: &dyn Error) {
    use io::Write;
    // Who closed standard error does not want to know.
    let _ = writeln!(io::stderr(), "error: {error}");
}

/// Writes results to standard output.
fn print(text: &str) -> Result<(), Failure> {
    use io::Write;
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::failed)
}
