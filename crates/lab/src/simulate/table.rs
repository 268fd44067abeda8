//! The simulation's result in tables: plain text for a terminal, Markdown for a document.

use std::fmt::Write;

use tidegate_control::Algorithm;

use super::{Measure, Measures, PlantSummary, SimulationReport, Spread};
use crate::grid::{Grid, line};

/// The heading of a column, and what it means.
fn legend(measure: Measure) -> (&'static str, &'static str) {
    match measure {
        Measure::Throughput => {
            ("tps %", "completions, as a share of what the best fixed limit of each phase gives")
        }
        Measure::Soon => {
            ("soon %", "share of the workloads whose band was reached within 10 intervals")
        }
        Measure::Intervals => {
            ("intervals", "until the band was reached; the whole phase where it never was")
        }
        Measure::LimitRatio => {
            ("limit ×", "settled mean limit over the lowest inside the band (geometric means)")
        }
        Measure::LimitDistance => {
            ("off ×", "the same as a factor above 1, whether the limit is too high or too low")
        }
        Measure::Inside => ("inside %", "share of settled intervals with a limit inside the band"),
        Measure::WorstLate => {
            ("late low %", "throughput of the worst interval, the first 10 of each phase left out")
        }
        Measure::Worst => ("low %", "throughput of the worst interval"),
        Measure::ThroughputSwing => {
            ("±tps %", "standard deviation of throughput where settled, with the plant's noise")
        }
        Measure::LimitSwing => {
            ("±limit %", "standard deviation of the limit over its mean where settled")
        }
    }
}

const NOTES: &str = "\
The band: limits that give at least 95 % of the best throughput. Settled: the last half of each
phase of at least 20 intervals. Throughput is relative to that of the best fixed limit.";

fn formatted(measure: Measure, value: Option<f64>) -> String {
    let Some(value) = value else {
        return "–".to_owned();
    };
    match measure {
        Measure::Intervals => format!("{value:.1}"),
        Measure::LimitRatio | Measure::LimitDistance => format!("{value:.2}"),
        _ => format!("{:.1}", value * 100.0),
    }
}

/// A grid with a column for each measure after the `first`.
fn grid_of_measures(first: &[&str]) -> Grid {
    let head = first.iter().copied().chain(Measure::ALL.map(|measure| legend(measure).0));
    Grid { head: head.map(str::to_owned).collect(), rows: Vec::new() }
}

/// Adds two rows: the mean, and the worst of what the mean was taken over.
fn push(grid: &mut Grid, name: &str, spread: &Spread) {
    for (first, kind, measures) in [(name, "mean", &spread.mean), ("", "worst", &spread.worst)] {
        grid.rows.push(row(&[first, kind], measures));
    }
}

fn row(first: &[&str], measures: &Measures) -> Vec<String> {
    let values = Measure::ALL.map(|measure| formatted(measure, measures.get(measure)));
    first.iter().map(|&cell| cell.to_owned()).chain(values).collect()
}

pub(super) fn text(report: &SimulationReport) -> String {
    let mut text = match &report.controllers[..] {
        [only] => {
            format!("{}\n\n{}", only.controller, plants_grid(report, &only.controller).text())
        }
        _ => controllers_grid(report).text(),
    };
    text.push('\n');
    for (heading, meaning) in Measure::ALL.map(legend) {
        let _ = writeln!(text, "{heading:<10}  {meaning}");
    }
    let over = if report.controllers.len() == 1 { "seeds" } else { "plants (means over seeds)" };
    let _ = writeln!(text, "\n{}\nMean and worst over {over}; {}.", NOTES, seeds(report));
    text
}

fn seeds(report: &SimulationReport) -> String {
    let last = report.seed.wrapping_add(u64::from(report.seeds) - 1);
    let plural = if report.seeds == 1 { "run" } else { "runs" };
    format!("{} {plural} for each plant, seeds {} to {last}", report.seeds, report.seed)
}

/// A controller over the plants it ran on, two rows each.
fn controllers_grid(report: &SimulationReport) -> Grid {
    let mut grid = grid_of_measures(&["controller", "of plants"]);
    for summary in &report.controllers {
        if summary.plants == 0 {
            grid.rows.push(vec![summary.controller.clone(), "n/a".to_owned()]);
            continue;
        }
        push(&mut grid, &summary.controller, &summary.over_plants);
        if let Some(spread) = &summary.default_on_same_plants {
            let name = format!("  {} on the same {}", Algorithm::default(), summary.plants);
            push(&mut grid, &name, spread);
        }
    }
    grid
}

/// One controller on each plant, two rows each.
fn plants_grid(report: &SimulationReport, controller: &str) -> Grid {
    let mut grid = grid_of_measures(&["plant", "of seeds"]);
    for plant in &report.plants {
        match report.cell(controller, &plant.plant) {
            Some(result) => push(&mut grid, &plant.plant, &result.over_seeds),
            None => grid.rows.push(vec![plant.plant.clone(), "n/a".to_owned()]),
        }
    }
    grid
}

/// Plants against controllers, the mean of one measure over the seeds in each cell.
fn matrix(report: &SimulationReport, measure: Measure) -> Grid {
    let names = report.controllers.iter().map(|summary| summary.controller.clone());
    let mut grid = Grid { head: vec!["plant".to_owned()], rows: Vec::new() };
    grid.head.extend(names.clone());
    for plant in &report.plants {
        let mut row = vec![plant.plant.clone()];
        row.extend(names.clone().map(|controller| {
            let cell = report.cell(&controller, &plant.plant);
            let value = |result: &super::CellResult| result.over_seeds.mean.get(measure);
            cell.map_or_else(|| "n/a".to_owned(), |result| formatted(measure, value(result)))
        }));
        grid.rows.push(row);
    }
    grid
}

pub(super) fn markdown(report: &SimulationReport) -> String {
    let mut text = String::from("# Controllers on simulated plants\n\n");
    let starts = report.starts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let _ = writeln!(text, "```text\n{}\n```\n", report.command);
    let _ = writeln!(
        text,
        "writes this file, the same on every machine: {}, in virtual time, limits from 1 to {}. \
         The runs start at the limits {starts}.\n",
        seeds(report),
        super::HIGHEST,
    );
    text += "![Throughput of each controller on each plant](simulate.svg)\n\n";
    for (heading, meaning) in Measure::ALL.map(legend) {
        let _ = writeln!(text, "- **{heading}**: {meaning}");
    }
    let _ = writeln!(text, "\n{NOTES}\n");
    text += "## Controllers\n\nThe mean over the plants, and the worst plant; for each plant the \
             mean over the seeds.\n\n";
    text += &controllers_grid(report).markdown();
    for (measure, title) in [
        (Measure::Throughput, "Throughput, % of the best fixed limit's"),
        (Measure::Soon, "Workloads whose band was reached within 10 intervals, %"),
        (Measure::LimitDistance, "Settled limit: factor away from the lowest inside the band"),
        (Measure::WorstLate, "Worst interval after the first 10 of each phase, % of the best"),
    ] {
        let _ = writeln!(text, "\n## {title}\n\n{}", matrix(report, measure).markdown().trim_end());
    }
    text += "\n## Plants\n\n";
    text += &line(["plant", "intervals", "best limit", "band", "what it is"].into_iter());
    text += &line(["---"; 5].into_iter());
    for plant in &report.plants {
        text += &plant_line(plant);
    }
    text
}

/// The most phases whose numbers a line shows.
const PHASES_SHOWN: usize = 4;

fn plant_line(plant: &PlantSummary) -> String {
    let phases = &plant.phases;
    let shown = || phases.iter().take(PHASES_SHOWN);
    let more = if phases.len() > PHASES_SHOWN { ", …" } else { "" };
    let joined = |cells: Vec<String>| cells.join(", ") + more;
    let intervals = joined(shown().map(|phase| phase.intervals.to_string()).collect());
    let limits = joined(shown().map(|phase| phase.best_limit.to_string()).collect());
    let bands = shown().map(|phase| format!("{}–{}", phase.band.0, phase.band.1));
    let about = plant.about.split_whitespace().collect::<Vec<_>>().join(" ");
    let cells = [plant.plant.clone(), intervals, limits, joined(bands.collect()), about];
    line(cells.iter().map(String::as_str))
}
