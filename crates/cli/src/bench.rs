//! `tidegate bench control`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use tidegate_control::{Algorithm, AlgorithmError, Mpl};
use tidegate_lab::bench::{self, BenchOptions, BenchScenario, Ranges};
use tidegate_lab::rig::{Console, DatabaseChoice};

use crate::{Failure, interrupt, print};

const EXAMPLES: &str = "\
Examples:
  All workloads and controllers, in about 45 minutes:
    tidegate bench control

  A short check on this machine, in one minute:
    tidegate bench control --quick

  On the embedded engine, which needs no installation:
    tidegate bench control --db embedded

  Two controllers on one workload, for one minute each:
    tidegate bench control --workloads tpcb-1 --controllers gaussian-process,vegas --run-s 60

  The switch in both directions, starting with all clients admitted:
    tidegate bench control --workloads switch,switch-back --start 256";

/// Measure on a private database
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    what: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    Control(ControlArguments),
}

/// Compare every controller with the best fixed limit, on several workloads
///
/// Starts a database. For each workload it runs many clients through Tidegate: at every fixed limit
/// of a list, then under every controller. The best fixed limits are measured again in between.
/// Prints tables and writes bench-control.json, bench-control.md, bench-control.svg and the
/// controllers' journals. Needs an idle machine.
#[derive(Debug, Args)]
#[command(
    after_long_help = EXAMPLES,
    after_help = "Details and examples: tidegate bench control --help"
)]
struct ControlArguments {
    /// Database to start: postgres, or embedded for the engine inside Tidegate [default: postgres
    /// if its programs are found, otherwise embedded]
    #[arg(long, value_name = "NAME", value_parser = DatabaseChoice::named)]
    db: Option<DatabaseChoice>,

    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "out/bench-control")]
    out: PathBuf,

    /// Use short times, few limits, two controllers and two workloads; other options override this
    #[arg(long)]
    quick: bool,

    /// Workloads: tpcb-1, tpcb-10, tpcb-50, thrash-read, thrash-update, switch (from tpcb-1 to
    /// thrash-read in the middle of a run), switch-back [default: all except switch-back, with
    /// tpcb-50 on postgres and tpcb-10 on embedded]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    workloads: Option<Vec<BenchScenario>>,

    /// Controllers, optionally with parameters [default: all]
    #[arg(long, value_name = "NAME,...", value_parser = controllers)]
    controllers: Option<Named>,

    /// Fixed limits; those above the number of clients are omitted
    /// [default: 1,2,3,4,6,8,12,16,24,32,64,128,256]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = limit)]
    limits: Option<Vec<Mpl>>,

    /// Number of clients, at most 1000 [default: 256]
    #[arg(long, value_name = "N")]
    clients: Option<usize>,

    /// Limit with which controllers start
    #[arg(long, value_name = "N", value_parser = limit, default_value = "64")]
    start: Mpl,

    /// Rows of each thrash table; the study has 30000 and 1000000
    #[arg(long, value_name = "N", value_parser = thrash, default_value = "30000")]
    rows: Ranges,

    /// Measured seconds at each fixed limit [default: 4]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    sweep_s: Option<Duration>,

    /// Seconds for each controller; in a switch, before it and after it [default: 14]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    run_s: Option<Duration>,

    /// Seed of the clients' random values, the controllers' steps and the order of the runs
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

fn limit(text: &str) -> Result<Mpl, String> {
    let limit = text.parse().ok().filter(|&limit: &u32| limit > 0);
    limit.map(Mpl::at_least_one).ok_or_else(|| "expected a positive number".to_owned())
}

fn thrash(text: &str) -> Result<Ranges, String> {
    let rows = text.parse().map_err(|_| "expected a positive number".to_owned())?;
    Ranges::new(rows).map_err(|error| error.to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let seconds = seconds.filter(|duration| !duration.is_zero());
    seconds.ok_or_else(|| "expected a number of seconds above zero".to_owned())
}

/// Algorithms by name.
#[derive(Clone, Debug)]
struct Named(Vec<Algorithm>);

fn controllers(text: &str) -> Result<Named, AlgorithmError> {
    Algorithm::list(text).map(Named)
}

impl ControlArguments {
    fn into_options(self, tidegate: PathBuf, command: String) -> BenchOptions {
        let database = self.db.unwrap_or_else(DatabaseChoice::usual);
        let mut options = BenchOptions::new(database, self.rows, tidegate, self.out, command);
        if self.quick {
            options = options.quick();
        }
        options.sweep.measured = self.sweep_s.unwrap_or(options.sweep.measured);
        BenchOptions {
            scenarios: self.workloads.unwrap_or(options.scenarios),
            controllers: self.controllers.map_or(options.controllers, |Named(named)| named),
            limits: self.limits.unwrap_or(options.limits),
            clients: self.clients.unwrap_or(options.clients),
            run: self.run_s.unwrap_or(options.run),
            start: self.start,
            seed: self.seed,
            ..options
        }
    }
}

/// Runs the benchmark and prints its tables.
pub(crate) fn run(arguments: BenchArguments) -> Result<(), Failure> {
    let BenchCommand::Control(arguments) = arguments.what;
    let tidegate = std::env::current_exe().map_err(Failure::failed)?;
    let command: Vec<String> = std::env::args().collect();
    let options = arguments.into_options(tidegate, command.join(" "));
    let cancel = interrupt::flag().map_err(Failure::failed)?;
    let console = Console::new();
    let report = bench::run(&options, &cancel, &mut |update| console.show(update));
    drop(console);
    let report = report.map_err(|error| match error {
        error if error.is_usage() => Failure::usage(error),
        error => Failure::failed(error),
    })?;
    let out = options.out.display();
    print(&format!(
        "{}\nSee {out}/bench-control.md and {out}/bench-control.svg.\n",
        report.tables()
    ))
}
