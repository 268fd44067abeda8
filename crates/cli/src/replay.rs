//! `tidegate replay`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use tidegate_control::{Algorithm, CurveInterval, CurveRow, WhatIfCurve};
use tidegate_gate::journal::{self, Difference, Proposed, Recorded, Run};

use crate::{Failure, print};

const EXAMPLES: &str = "\
Examples:
  Record, and check that the record explains every decision:
    tidegate proxy --upstream postgres://127.0.0.1:5432 --journal journal.jsonl
    tidegate replay journal.jsonl

  Show what another controller decides from the same observations:
    tidegate replay journal.jsonl --control vegas

  Show the expected throughput and response time at other limits:
    tidegate replay journal.jsonl --curve";

/// Repeat the decisions of a recorded run
///
/// Creates each controller as recorded in the journal, gives it the recorded observations and
/// random draws, and compares limits and reasons with the recorded ones. Fails at the first
/// difference.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "Details and examples: tidegate replay --help")]
pub(crate) struct ReplayArguments {
    /// Journal written by `tidegate proxy --journal`
    journal: PathBuf,

    /// Instead of comparing, show what another algorithm decides from the same observations; the
    /// names are those of `tidegate proxy --control`
    #[arg(long, value_name = "ALGORITHM")]
    control: Option<Algorithm>,

    /// Instead of comparing, show the expected throughput and response time at every limit at the
    /// end of the record, with 90 % intervals
    #[arg(long, conflicts_with = "control")]
    curve: bool,
}

/// Replays the journal and prints the result.
pub(crate) fn run(arguments: &ReplayArguments) -> Result<(), Failure> {
    let Recorded { runs, cut_off } = journal::read(&arguments.journal).map_err(Failure::failed)?;
    for line in cut_off {
        print(&format!("line {line} is cut off: ignored\n"))?;
    }
    if arguments.curve {
        return runs.iter().try_for_each(|run| print(&curve(run)));
    }
    match arguments.control {
        Some(algorithm) => show(&runs, algorithm),
        None => compare(&runs),
    }
}

fn compare(runs: &[Run]) -> Result<(), Failure> {
    let mut equal = true;
    for run in runs {
        let difference = run.first_difference();
        equal &= difference.is_none();
        print(&comparison(run, difference.as_ref()))?;
    }
    if equal { Ok(()) } else { Err(Failure::Failed("a decision is not the recorded one".into())) }
}

/// Returns the server, the algorithm and the line in the file.
fn title(run: &Run) -> String {
    format!("{}, {}, from line {}", run.server, run.control.choice(), run.line)
}

fn comparison(run: &Run, difference: Option<&Difference<'_>>) -> String {
    let title = title(run);
    let Some(Difference { recorded, replayed, proposal }) = difference else {
        return format!("{title}: {} decisions, all equal\n", run.decisions.len());
    };
    format!(
        "{title}: line {} differs\n  recorded: limit {}, {}{}\n  replayed: limit {}, {}{}\n\
         \x20 recorded by version {}, replayed by version {}\n",
        recorded.line,
        recorded.next_limit,
        recorded.reason,
        proposed(recorded.proposal.as_ref()),
        replayed.limit,
        replayed.reason,
        proposed(proposal.as_ref()),
        run.version,
        env!("CARGO_PKG_VERSION"),
    )
}

/// Returns what an observing controller would have set.
fn proposed(proposal: Option<&Proposed>) -> String {
    let words = |Proposed { limit, reason, gain_in_words, best_in_words, .. }: &Proposed| {
        format!("; would set {limit}, {reason}, gain {gain_in_words}, best {best_in_words}")
    };
    proposal.map(words).unwrap_or_default()
}

fn show(runs: &[Run], algorithm: Algorithm) -> Result<(), Failure> {
    print(&format!(
        "What {algorithm} makes of the recorded observations. They followed the recorded limits:\n\
         under its own limits the database would have answered differently.\n"
    ))?;
    runs.iter().try_for_each(|run| print(&decisions(run, algorithm)))
}

fn decisions(run: &Run, algorithm: Algorithm) -> String {
    let mut text = format!("\n{}\n", title(run));
    let _ = writeln!(text, "{:>10}  {:>8}  {:>8}  reason", "at, s", "recorded", "replayed");
    for (recorded, replayed) in run.decisions_of(algorithm) {
        let (at_s, limit) = (recorded.at_s, recorded.next_limit.get());
        let (replayed, reason) = (replayed.limit.get(), replayed.reason);
        let _ = writeln!(text, "{at_s:>10.2}  {limit:>8}  {replayed:>8}  {reason}");
    }
    text
}

/// Returns the expected throughput and response time at every limit, from a run's observations.
fn curve(run: &Run) -> String {
    let Some(WhatIfCurve { at_s, present, rows, measurements, .. }) = run.last_curve() else {
        return format!("{}: no intervals\n", title(run));
    };
    let mut text = format!(
        "{}: after {at_s:.0} s, {present:.0} present, from {measurements} measurements\n",
        title(run)
    );
    let _ = writeln!(
        text,
        "Means over the 10 s after a move to the limit, with the load and the database as they \
         are:\nmedian, and in brackets the 90 % interval. Response times are from request to end, \
         without think time.\n{:>6}  {:>28}  {:>28}",
        "limit", "throughput, tps", "response time, ms"
    );
    for CurveRow { limit, throughput_tps, response_s, unknown } in rows {
        let limit = limit.get();
        let _ = match (throughput_tps, unknown) {
            (Some(tps), _) => {
                let response = response_s.map_or("not known".into(), |told| shown(told, 1e3));
                writeln!(text, "{limit:>6}  {:>28}  {response:>28}", shown(tps, 1.0))
            }
            (None, Some(why)) => writeln!(text, "{limit:>6}  {why}"),
            (None, None) => writeln!(text, "{limit:>6}  not known"),
        };
    }
    text
}

/// Formats a median with its interval, to three digits or as whole numbers.
fn shown(told: CurveInterval, unit: f64) -> String {
    let CurveInterval { low, median, high } = told;
    let number = |value: f64| {
        let value = value * unit;
        let digits = if value >= 100.0 {
            0
        } else if value >= 10.0 {
            1
        } else {
            2
        };
        format!("{value:.digits$}")
    };
    format!("{} ({} to {})", number(median), number(low), number(high))
}
