//! `tidegate simulate`.

use std::num::NonZero;
use std::path::PathBuf;
use std::thread;

use clap::Args;
use tidegate_control::plant::Scenario;
use tidegate_lab::rig::Console;
use tidegate_lab::simulate::{self, Controllers, SimulateError, SimulateOptions};

use crate::{Failure, interrupt, print};

const EXAMPLES: &str = "\
Examples:
  tidegate simulate
  tidegate simulate --controllers gaussian-process,vegas,fixed:8 --seeds 100
  tidegate simulate --random 300 --seeds 1 --controllers gaussian-process,paired-comparison
  tidegate simulate --plants plants/ds2 --controllers hill-climbing --trace
  tidegate simulate --plants plants-by-tick --controllers paired-comparison";

/// Try controllers on simulated databases, in virtual time
///
/// Runs every controller on every plant with every seed, and compares it with the best fixed limit
/// of each phase of the plant. Prints a table of the controllers, or of the plants if there is only
/// one controller. Writes simulate.json, simulate.md and simulate.svg. The results are the same on
/// every machine.
#[derive(Debug, Args)]
#[command(
    after_long_help = EXAMPLES,
    after_help = "Details and examples: tidegate simulate --help"
)]
pub(crate) struct SimulateArguments {
    /// Plants: .toml files, or directories of them; `tidegate experiments` lists those within the
    /// program [default: experiments/plants]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    plants: Vec<PathBuf>,

    /// Add N random plants, beginning with --seed; without --plants only these are used
    #[arg(long, value_name = "N")]
    random: Option<u32>,

    /// Simulate residence times and noise by tick for plants that are described by a curve
    #[arg(long)]
    by_tick: bool,

    /// Controllers by name, optionally with parameters as in `tidegate controllers`; fixed:N; or
    /// all
    #[arg(long, value_name = "NAME,...", default_value = "all")]
    controllers: Controllers,

    /// Number of runs of each controller on each plant
    #[arg(long, value_name = "N", default_value = "20")]
    seeds: NonZero<u32>,

    /// Seed of the first run; the next runs use the following numbers
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,

    /// Limit at the start of every run [default: drawn from the run's seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    start: Option<u32>,

    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "out/simulate")]
    out: PathBuf,

    /// Also write the intervals of every run to traces/PLANT/CONTROLLER-SEED.jsonl
    #[arg(long)]
    trace: bool,

    /// Number of threads; it does not change the results [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,
}

/// Runs the simulation and prints its table.
pub(crate) fn run(arguments: SimulateArguments) -> Result<(), Failure> {
    let scenarios = scenarios(&arguments).map_err(Failure::usage)?;
    let processors = || thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let options = SimulateOptions {
        scenarios,
        controllers: arguments.controllers,
        seeds: arguments.seeds,
        seed: arguments.seed,
        start: arguments.start,
        out: arguments.out.clone(),
        trace: arguments.trace,
        threads: arguments.threads.unwrap_or_else(processors),
        command: command(),
    };
    let cancel = interrupt::flag().map_err(Failure::failed)?;
    let console = Console::new();
    let report = simulate::run(&options, &cancel, &mut |update| console.show(update));
    drop(console);
    let (report, out) = (report.map_err(Failure::failed)?, arguments.out.display());
    print(&format!("{}\nSee {out}/simulate.md, simulate.svg and simulate.json.\n", report.table()))
}

/// The plants that were asked for.
fn scenarios(arguments: &SimulateArguments) -> Result<Vec<Scenario>, SimulateError> {
    let default = [PathBuf::from("experiments/plants")];
    let paths: &[PathBuf] = match (&arguments.plants[..], arguments.random) {
        ([], None) => &default,
        (paths, _) => paths,
    };
    let mut scenarios = simulate::read(paths)?;
    scenarios.extend(simulate::random(arguments.seed, arguments.random.unwrap_or(0))?);
    if arguments.by_tick {
        scenarios = scenarios.iter().map(Scenario::by_tick).collect();
    }
    Ok(scenarios)
}

/// The command line, with the program's name for the place where it lies on this machine.
fn command() -> String {
    let arguments = std::env::args().skip(1);
    std::iter::once("tidegate".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}
