//! The `tidegate` command: flags, output, exit codes, and no logic.

mod bench;
mod controllers;
mod demo;
mod experiments;
mod import;
mod interrupt;
mod lab;
mod load;
mod logs;
mod machines;
mod probe;
mod proxy;
mod replay;
mod report;
mod simulate;
mod top;
mod xml;

use std::error::Error;
use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidegate_proxy::config::LogFormat;
use tracing_subscriber::filter::LevelFilter;

const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  failure or interruption; the reason is on standard error
  2  wrong options or a wrong configuration file
  3  a database violated a consistency condition of its workload (lab run, lab resume)";

/// A PostgreSQL proxy that finds how many transactions the database can run at once, and admits no
/// more than that
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// Level of the log on standard error: off, error, warn, info, debug or trace
    #[arg(long, global = true, value_name = "LEVEL", default_value = "info")]
    log_level: LevelFilter,

    /// Form of the log: text, json or journald [default: journald where it goes to the journal of
    /// systemd, else text]
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Proxy(Box<proxy::ProxyArguments>),
    Import(import::ImportArguments),
    CheckConfig(import::CheckArguments),
    Probe(probe::ProbeArguments),
    Top(top::TopArguments),
    Load(load::LoadArguments),
    Demo(demo::DemoArguments),
    Bench(bench::BenchArguments),
    Replay(replay::ReplayArguments),
    Simulate(simulate::SimulateArguments),
    Controllers(controllers::ControllersArguments),
    Lab(lab::LabArguments),
    Experiments(experiments::ExperimentsArguments),
    Report(report::ReportArguments),
    Xml(xml::XmlArguments),
}

/// Why the command ends without success.
#[derive(Debug)]
enum Failure {
    /// The options or a file are wrong.
    Usage(Box<dyn Error>),
    /// The command failed or was interrupted.
    Failed(Box<dyn Error>),
    /// A database violated a consistency condition of its workload.
    Inconsistent(Box<dyn Error>),
    /// The reason is not to be printed: it has been, or who reads the output has gone.
    Code(u8),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Usage(error) | Failure::Failed(error) | Failure::Inconsistent(error) => {
                error.fmt(formatter)
            }
            Failure::Code(code) => write!(formatter, "exit code {code}"),
        }
    }
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
    logs::begin(arguments.log_level, arguments.log_format);
    let outcome = match arguments.command {
        Command::Proxy(proxy) => proxy::run(*proxy, arguments.log_format.is_some()),
        Command::Import(arguments) => import::import(&arguments),
        Command::CheckConfig(arguments) => import::check_config(&arguments),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Simulate(arguments) => simulate::run(arguments),
        Command::Controllers(arguments) => controllers::run(&arguments),
        Command::Lab(arguments) => lab::run(arguments),
        Command::Experiments(arguments) => experiments::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Xml(arguments) => xml::run(arguments),
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
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(output_failure)
}

/// Returns the failure of a command that cannot write its results. That the reader of a pipe has
/// gone is none: it had read what it wanted.
fn output_failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Code(0),
        _ => Failure::failed(error),
    }
}
