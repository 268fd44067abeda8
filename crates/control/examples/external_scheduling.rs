//! Solves the queueing models of the external-scheduling study for the settings of its Figures 7
//! and 10 and prints `docs/results/external-scheduling-models.md`:
//!
//! `cargo run --release -p tidegate-control --example external_scheduling >
//! docs/results/external-scheduling-models.md`

#![expect(clippy::print_stdout, reason = "printing tables is what this program is for")]

use std::error::Error;

use tidegate_control::Mpl;
use tidegate_control::models::hyperexponential::Hyperexponential;
use tidegate_control::models::response_time::LimitedSharing;
use tidegate_control::models::throughput::Network;

const STATIONS: std::ops::RangeInclusive<u32> = 1..=16;
const LOADS: [f64; 2] = [0.7, 0.9];
const VARIATIONS: [f64; 5] = [1.0, 2.0, 5.0, 10.0, 15.0];
const LEVELS: [u32; 14] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 35];
const INCREASES: [f64; 3] = [0.25, 0.1, 0.05];

const HEAD: &str = "\
# The queueing models of the external-scheduling study

```text
cargo run --release -p tidegate-control --example external_scheduling \\
    > docs/results/external-scheduling-models.md
```

writes this file, the same on every machine: nothing is measured or drawn here. The models are
`crates/control/src/models/`; `crates/control/tests/models.rs` holds them against closed forms and
against simulation.";

const THROUGHPUT: &str = "
## Throughput: the study's Figure 7

A closed network of M equal exponential stations, processors and disks, with the MPL inside. The
lowest MPL that gives 80 % and 95 % of the most. Both are straight lines, 4(M − 1) and 19(M − 1), as
the study found; it prints them as a figure without numbers.
";

const RESPONSE_TIME: &str = "
## Response time: the study's Figure 10

Poisson arrivals, a FIFO queue, and a server that at most MPL transactions share; hyperexponential
sizes with balanced means. Mean response time as a multiple of processor sharing's, which is an MPL
without end. The last rows: the lowest MPL that keeps it within so much of processor sharing.

The study reads its figure so: for C² of 1 and 2 an MPL of 5 suffices; for C² of 5 to 15 it takes 10
at a load of 0.7 and 30 at 0.9 to be similar to processor sharing. The table agrees if that means
within 13 % at 0.7 and within 30 % at 0.9. Within 5 % takes more, at 0.9 much more.";

fn main() -> Result<(), Box<dyn Error>> {
    println!("{HEAD}");
    println!("{THROUGHPUT}");
    print_throughput()?;
    println!("{RESPONSE_TIME}");
    for load in LOADS {
        print_response_time(load)?;
    }
    Ok(())
}

fn print_throughput() -> Result<(), Box<dyn Error>> {
    println!("| M | 80 % | 95 % |\n| ---: | ---: | ---: |");
    for stations in STATIONS {
        let network = Network::balanced(stations)?;
        let (most, nearly_all) = (network.lowest_mpl(0.2)?, network.lowest_mpl(0.05)?);
        println!("| {stations} | {most} | {nearly_all} |");
    }
    Ok(())
}

fn print_response_time(load: f64) -> Result<(), Box<dyn Error>> {
    let systems = VARIATIONS
        .iter()
        .map(|&variation| Ok(LimitedSharing::new(load, Hyperexponential::new(1.0, variation)?)?))
        .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    println!("\n### Load {load}\n");
    let heads = VARIATIONS.map(|variation| format!("C² = {variation}"));
    println!("| MPL | {} |", heads.join(" | "));
    println!("| --- |{}", " ---: |".repeat(VARIATIONS.len()));
    for level in LEVELS {
        print_row(&level.to_string(), &systems, |system| {
            let state = system.at(Mpl::at_least_one(level))?;
            Ok(format!("{:.2}", state.mean_response_s / system.unlimited_response_s()))
        })?;
    }
    for increase in INCREASES {
        let head = format!("lowest, within {:.0} %", increase * 100.0);
        print_row(&head, &systems, |system| Ok(system.lowest_mpl(increase)?.to_string()))?;
    }
    Ok(())
}

fn print_row(
    head: &str,
    systems: &[LimitedSharing],
    cell: impl Fn(&LimitedSharing) -> Result<String, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let cells = systems.iter().map(cell).collect::<Result<Vec<_>, _>>()?;
    println!("| {head} | {} |", cells.join(" | "));
    Ok(())
}
