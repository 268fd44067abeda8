//! Loads a private server and runs a load on it: `load <tpcb|point-select> <clients> <seconds> [url]`.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_lab::load::{LoadOptions, run};
use tidegate_subject::postgres::{Options, Postgres};
use tidegate_workload::pgbench::{Scale, load_statements};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let argument = |index: usize, default: &str| {
        let given = arguments.get(index).map(String::as_str);
        given.unwrap_or(default).to_owned()
    };
    let server = Postgres::start(Options {
        settings: vec![
            ("max_connections".into(), "1100".into()),
            ("shared_buffers".into(), "256MB".into()),
        ],
        ..Options::default()
    })?;
    let scale = Scale::new(1).ok_or("scale")?;
    let mut client = server.connect()?;
    for statement in load_statements(scale) {
        client.query(&statement)?;
    }
    let options = LoadOptions {
        url: if argument(4, "tcp") == "unix" { server.socket_url() } else { server.url() },
        workload: argument(1, "tpcb").parse()?,
        scale,
        clients: argument(2, "4").parse()?,
        warmup: Duration::from_secs(1),
        duration: Duration::from_secs(argument(3, "5").parse()?),
        connect_timeout: Duration::from_secs(30),
        seed: 1,
    };
    let report = run(&options, &AtomicBool::new(false), &mut |progress| {
        println!("{progress:?}");
    })?;
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
