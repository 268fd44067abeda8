//! `tidegate demo`.

use std::path::PathBuf;

use clap::Args;
use tidegate_lab::demo::{self, Console, DatabaseChoice, DemoError, DemoOptions};

use crate::{Failure, interrupt, print};

/// Compare throughput with and without Tidegate, on a private database
///
/// Starts a database, loads pgbench's tables, and runs the TPC-B-like load with increasing numbers
/// of clients, directly and through Tidegate. Prints a table and writes summary.json, report.svg,
/// journal.jsonl and, with PostgreSQL, proxy.log. Takes less than two minutes.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Database to start: postgres, or embedded for the engine inside Tidegate [default: postgres
    /// if its programs are found, otherwise embedded]
    #[arg(long, value_name = "NAME", value_parser = DatabaseChoice::named)]
    db: Option<DatabaseChoice>,

    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    out: PathBuf,

    /// Use short times and few clients; other options override this
    #[arg(long)]
    quick: bool,

    /// Numbers of clients, measured one after another [default: 4,64,256,1000]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    clients: Option<Vec<usize>>,

    /// Seed of the clients' random values
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

/// Runs the demonstration and prints its table.
pub(crate) fn run(arguments: DemoArguments) -> Result<(), Failure> {
    let tidegate = std::env::current_exe().map_err(Failure::failed)?;
    let command: Vec<String> = std::env::args().collect();
    let database = arguments.db.unwrap_or_else(DatabaseChoice::usual);
    let mut options =
        DemoOptions::new(database, tidegate, arguments.out.clone(), command.join(" "));
    if arguments.quick {
        options = options.quick();
    }
    let options = DemoOptions {
        clients: arguments.clients.unwrap_or(options.clients),
        seed: arguments.seed,
        ..options
    };
    let cancel = interrupt::flag().map_err(Failure::failed)?;
    let console = Console::new();
    let summary = demo::run(&options, &cancel, &mut |update| console.show(update));
    drop(console);
    let summary = summary.map_err(|error| match error {
        DemoError::Clients => Failure::usage(error),
        _ => Failure::failed(error),
    })?;
    let out = arguments.out.display();
    print(&format!("{}\nSee {out}/report.svg and {out}/summary.json.\n", summary.table()))
}
