//! `tidegate lab worker`, and what `--workers` does.

use std::fmt::Write;
use std::time::Duration;

use clap::Args;
use tidegate_lab::laboratory::Laboratory;
use tidegate_lab::laboratory::machines::{self, MachinesError, WorkerOptions};
use tidegate_lab::rig::{Console, Update};

use crate::{Failure, interrupt, print};

#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    /// This host's name, when the system's is not its own
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// How often the worker shows that it lives; silent for six times as long, it is taken for dead
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = heartbeat)]
    heartbeat: Duration,
}

/// A heartbeat that the queue can keep.
fn heartbeat(text: &str) -> Result<Duration, String> {
    let unit = |text: &str, unit| text.strip_suffix(unit).and_then(|number| number.parse().ok());
    let millis = unit(text, "ms").or_else(|| unit(text, "s").map(|s: u64| s.saturating_mul(1000)));
    match millis {
        Some(millis) if (100..=3_600_000).contains(&millis) => Ok(Duration::from_millis(millis)),
        _ => Err("expected a duration from 100ms to 3600s, such as 10s".to_owned()),
    }
}

/// Checks that workers on other hosts can reach the store at a place, before anything is
/// written there.
pub(crate) fn check_store(place: &str) -> Result<(), Failure> {
    machines::shared(place).map_err(failed)
}

/// Puts what is left of an experiment into the queue, and says what was put there.
pub(crate) fn enqueue(laboratory: &mut Laboratory, place: &str, id: i64) -> Result<(), Failure> {
    let enqueued = laboratory.enqueue(place, id).map_err(failed)?;
    let mut text = format!("experiment {id}: {} runs wait for workers\n", enqueued.runs.len());
    for run in &enqueued.under_way {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "being executed: {run}");
    }
    print(&text)
}

/// Works until interrupted.
pub(crate) fn work(arguments: &WorkerArguments, place: &str) -> Result<(), Failure> {
    let cancel = interrupt::flag().map_err(Failure::failed)?;
    let tidegate = std::env::current_exe().map_err(Failure::failed)?;
    let (host, heartbeat) = (arguments.host.clone(), arguments.heartbeat);
    let options = WorkerOptions { place: place.to_owned(), tidegate, host, heartbeat };
    let (mut console, mut fraction) = (Console::new(), 0.0);
    let observer = Box::new(move |update: &Update| {
        // Another run has begun, and with it another count of the time that is left.
        if update.fraction < fraction {
            console = Console::new();
        }
        fraction = update.fraction;
        console.show(update);
    });
    machines::work(&options, &cancel, observer).map_err(failed)
}

fn failed(error: MachinesError) -> Failure {
    match error {
        MachinesError::NotShared => Failure::usage(error),
        _ => Failure::failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_has_a_unit_and_bounds() {
        for (text, millis) in
            [("10s", 10_000), ("250ms", 250), ("100ms", 100), ("3600s", 3_600_000)]
        {
            assert_eq!(heartbeat(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "10m", "0s", "99ms", "3601s", "-1s", "18446744073709551615s"] {
            assert!(heartbeat(text).is_err(), "{text}");
        }
    }
}
