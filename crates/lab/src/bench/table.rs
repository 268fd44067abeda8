//! The benchmark's result in tables: plain text for a terminal, Markdown for a document.

use std::fmt::Write;

use tidegate_control::Mpl;
use tidegate_subject::database::Gate;

use super::{BenchReport, BenchWork, PhaseScore, Purpose, ReferenceLimit, ScenarioScore};
use crate::grid::Grid;
use crate::rig::Machine;
use crate::simulate::{Measure, Reached};

/// The measures from the journal that have a column, with heading and meaning. They are the
/// simulator's.
const MEASURES: [(Measure, &str, &str); 7] = [
    (Measure::LimitRatio, "limit ×", "the mean limit over the lowest inside the band"),
    (
        Measure::LimitDistance,
        "off ×",
        "the same as a factor above 1, whether the limit is too high or too low",
    ),
    (Measure::Inside, "inside %", "share of settled intervals with a limit inside the band"),
    (
        Measure::WorstLate,
        "late low %",
        "throughput of the worst interval, the first 10 of the phase left out",
    ),
    (Measure::Worst, "low %", "throughput of the worst interval"),
    (
        Measure::ThroughputSwing,
        "±tps %",
        "standard deviation of throughput where settled, with the machine's noise",
    ),
    (
        Measure::LimitSwing,
        "±limit %",
        "standard deviation of the limit over its mean where settled",
    ),
];

/// The other columns, before those.
const COLUMNS: [(&str, &str); 4] = [
    ("tps %", "transactions in the whole phase, as a share of the best fixed limit's"),
    ("settled %", "the same in the second half of the phase and of the fixed limit's run"),
    ("intervals", "outside the band before the first inside"),
    ("limit", "the mean limit where settled"),
];

/// What the legend leaves open.
const NOTES: &str = "The best fixed limit: of the two best of the sweep the one that was better \
                     when both were measured again before, between and after the controllers, as \
                     long as these; a controller is compared with the mean of the last run before \
                     it and the first after. The band: limits that reach 95 % of the best in the \
                     sweep, interpolated on logarithmic axes. Settled: the second half of the \
                     phase.";

const RETRIES: &str = "Transactions run again at fixed limits, for each one committed";

pub(super) fn text(report: &BenchReport) -> String {
    let mut text = format!("Throughput at fixed limits, tps\n{}", sweeps(report).text());
    if let Some(retries) = retries(report) {
        let _ = write!(text, "\n{RETRIES}\n{}", retries.text());
    }
    for scenario in &report.scenarios {
        for (index, title) in titles(scenario).iter().enumerate() {
            let _ = write!(text, "\n{title}\n{}", phase(scenario, index).text());
        }
    }
    text.push('\n');
    for (heading, meaning) in legend() {
        let _ = writeln!(text, "{heading:<10}  {meaning}");
    }
    let _ = writeln!(text, "\n{NOTES}\n\n{}", troubles(report).join("\n"));
    text
}

pub(super) fn markdown(report: &BenchReport) -> String {
    let mut text = format!("# Controllers on {}\n\n", report.database.dbms.title);
    let _ = writeln!(text, "```text\n{}\n```\n\n{}\n", report.command, conditions(report));
    text += "![Throughput against the limit, and where each controller settled]\
             (bench-control.svg)\n\n";
    for (heading, meaning) in legend() {
        let _ = writeln!(text, "- **{heading}**: {meaning}");
    }
    let _ = writeln!(text, "\n{NOTES}\n");
    let _ = writeln!(text, "## Throughput at fixed limits, tps\n\n{}", sweeps(report).markdown());
    if let Some(retries) = retries(report) {
        let _ = writeln!(text, "## {RETRIES}\n\n{}", retries.markdown());
    }
    for scenario in &report.scenarios {
        let _ = writeln!(text, "## {}", scenario.scenario);
        for (index, title) in titles(scenario).iter().enumerate() {
            let _ = writeln!(text, "\n{title}\n\n{}", phase(scenario, index).markdown());
        }
    }
    text += "## What went wrong\n\n";
    for line in troubles(report) {
        let _ = writeln!(text, "- {line}");
    }
    text
}

fn legend() -> impl Iterator<Item = (&'static str, &'static str)> {
    let measures = MEASURES.map(|(_, heading, meaning)| (heading, meaning));
    COLUMNS.into_iter().chain(measures)
}

/// What was measured, how, and on what.
fn conditions(report: &BenchReport) -> String {
    let BenchReport { clients, sweep_s, sweep_warmup_s, run_s, start_limit, seed, .. } = report;
    let works: Vec<String> =
        report.works.iter().map(|(work, about)| format!("{}: {about}", work.name())).collect();
    let last_s = report.cells.last().map_or(0.0, |cell| cell.began_s);
    format!(
        "{clients} clients without think time. A fixed limit: {sweep_s} s \
         after {sweep_warmup_s} s not counted. A controller: {run_s} s in each phase, all counted, \
         from a limit of {start_limit}. Seed {seed}. {runs} runs in {minutes:.0} minutes.\n\n\
         {works}.\n\n{place}",
        runs = report.cells.len(),
        minutes = last_s / 60.0,
        works = works.join("; "),
        place = place(report),
    )
}

/// Versions, settings and the machine.
fn place(report: &BenchReport) -> String {
    let BenchReport { tidegate_version, database, machine, .. } = report;
    let Machine { cpu, cores, memory_mib, kernel } = machine;
    let settings: Vec<String> =
        database.database_settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let parts = if database.dbms.gate == Gate::Proxy {
        "clients, proxy in transaction mode, and server"
    } else {
        "clients and engine, one process,"
    };
    format!(
        "Tidegate {tidegate_version}, {name} {version} with {settings}; {parts} on {cpu}, {cores} \
         processors, {memory_mib} MiB, Linux {kernel}.",
        name = database.dbms.title,
        version = database.database_version,
        settings = settings.join(", "),
    )
}

/// Throughput, limits against workloads.
fn sweeps(report: &BenchReport) -> Grid {
    by_limit(report, |work, limit| {
        let sweep = report.sweeps.iter().find(|sweep| sweep.work == work)?;
        let (_, tps) = sweep.points.iter().find(|(at, _)| *at == limit)?;
        Some(format!("{tps:.0}"))
    })
}

/// How often transactions were run again for each that was committed; `None` when none was.
fn retries(report: &BenchReport) -> Option<Grid> {
    let swept = || report.cells.iter().filter(|cell| cell.purpose == Purpose::Sweep);
    let loads = || swept().filter_map(|cell| cell.load.as_ref());
    loads().any(|load| load.retries > 0).then(|| {
        by_limit(report, |work, limit| {
            let mut cells = swept().filter(|cell| cell.works == [work]);
            let cell = cells.find(|cell| cell.fixed_limit() == Some(limit))?;
            let load = cell.load.as_ref()?;
            let committed = load.warmup_transactions + load.transactions;
            Some(format!("{:.2}", load.retries as f64 / committed.max(1) as f64))
        })
    })
}

/// A value for each fixed limit and workload.
fn by_limit(report: &BenchReport, value: impl Fn(BenchWork, Mpl) -> Option<String>) -> Grid {
    let works: Vec<BenchWork> = report.sweeps.iter().map(|sweep| sweep.work).collect();
    let mut head = vec!["limit".to_owned()];
    head.extend(works.iter().map(|work| work.name().to_owned()));
    let mut limits: Vec<_> =
        report.sweeps.iter().flat_map(|sweep| &sweep.points).map(|&(limit, _)| limit).collect();
    limits.sort();
    limits.dedup();
    let row = |limit: Mpl| {
        let values = works.iter().map(|&work| value(work, limit).unwrap_or_else(unknown));
        std::iter::once(limit.to_string()).chain(values).collect()
    };
    Grid { head, rows: limits.into_iter().map(row).collect() }
}

/// A heading for each phase: the workload and its best fixed limit.
fn titles(scenario: &ScenarioScore) -> Vec<String> {
    let several = scenario.references.len() > 1;
    let titles = scenario.references.iter().zip(1..).map(|(reference, number)| {
        let phase = if several { format!(", phase {number}") } else { String::new() };
        let name = reference.work.name();
        let of = if several { format!(": {name}") } else { String::new() };
        format!("{}{phase}{of}; {}", scenario.scenario, best(reference))
    });
    titles.collect()
}

fn best(reference: &ReferenceLimit) -> String {
    let tps = || reference.measured.iter().map(|run| run.tps);
    format!(
        "best fixed limit {} with {:.0}–{:.0} tps, band {}–{}",
        reference.limit,
        tps().fold(f64::INFINITY, f64::min),
        tps().fold(0.0, f64::max),
        reference.band.0,
        reference.band.1,
    )
}

/// The controllers in one phase; the table of the last of several has the whole run as well.
fn phase(scenario: &ScenarioScore, index: usize) -> Grid {
    let work = scenario.references.get(index).map(|reference| reference.work);
    let is_last_of_several = index > 0 && index + 1 == scenario.references.len();
    let mut head = vec!["controller".to_owned()];
    head.extend(legend().map(|(heading, _)| heading.to_owned()));
    if is_last_of_several {
        head.push("all phases %".to_owned());
    }
    let rows = scenario.controllers.iter().map(|controller| {
        let mut row = vec![controller.controller.clone()];
        row.extend(cells(work.and_then(|work| controller.phase(work))));
        if is_last_of_several {
            row.push(percent(controller.whole));
        }
        row
    });
    Grid { head, rows: rows.collect() }
}

/// The cells of a phase; of a run that failed they are empty.
fn cells(phase: Option<&PhaseScore>) -> Vec<String> {
    let Some(phase) = phase else {
        return legend().map(|_| unknown()).collect();
    };
    let reached = match phase.reached {
        Some(Reached::After(intervals)) => intervals.to_string(),
        Some(Reached::Never) => "never".to_owned(),
        None => unknown(),
    };
    let limit = phase.settled_limit.map_or_else(unknown, |limit| format!("{limit:.1}"));
    let mut cells = vec![percent(Some(phase.whole)), percent(Some(phase.settled)), reached, limit];
    cells.extend(MEASURES.map(|(measure, ..)| {
        let value = phase.measures.get(measure);
        match measure {
            Measure::LimitRatio | Measure::LimitDistance => {
                value.map_or_else(unknown, |value| format!("{value:.2}"))
            }
            _ => percent(value),
        }
    }));
    cells
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(unknown, |share| format!("{:.1}", share * 100.0))
}

fn unknown() -> String {
    "–".to_owned()
}

/// What went wrong, or that nothing did.
fn troubles(report: &BenchReport) -> Vec<String> {
    let troubles = report.troubles();
    if troubles.is_empty() {
        let controllers =
            report.cells.iter().filter(|cell| cell.purpose == Purpose::Controller).count();
        let runs = report.cells.len();
        return vec![format!(
            "No errors, no lost connections, no failed runs: {runs} runs, {controllers} of them of \
             controllers; all balances agree."
        )];
    }
    troubles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_run_has_a_dash_in_each_column() {
        assert_eq!(cells(None).len(), legend().count());
        assert!(cells(None).iter().all(|cell| cell == "–"));
    }
}
