//! `tidegate demo`.

use std::path::PathBuf;

use clap::Args;
use tidegate_lab::demo::{self, Console, DemoError, DemoOptions};

use crate::{Failure, interrupt, print};

/// Show the main job: throughput with and without the proxy, on a private PostgreSQL server
///
/// Starts a server, loads pgbench's tables, and runs the TPC-B-like load with rising numbers of
/// clients, directly and through the proxy. Prints a table and writes summary.json, report.svg,
/// journal.jsonl and proxy.log. Takes less than two minutes; needs PostgreSQL's programs.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Where the results are written
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    out: PathBuf,

    /// Numbers of clients, one step each
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "4,64,256,1000")]
    clients: Vec<usize>,

    /// Seed of the clients' random values
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

/// Runs the demonstration and prints its table.
pub(crate) fn run(arguments: DemoArguments) -> Result<(), Failure> {
    let tidegate = std::env::current_exe().map_err(Failure::failed)?;
    let command: Vec<String> = std::env::args().collect();
    let options = DemoOptions {
        clients: arguments.clients,
        seed: arguments.seed,
        ..DemoOptions::new(tidegate, arguments.out.clone(), command.join(" "))
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
