//! The benchmark's picture: throughput against the limit, and where each controller settled.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{BenchReport, PhaseScore, Sweep};
use crate::Cause;
use crate::rig::RigError;

const PANEL: (u32, u32) = (560, 330);
const COLUMNS: usize = 2;
/// The strip below with the controllers' names.
const NAME: (u32, u32) = (220, 22);
const FONT: &str = "sans-serif";
const CURVE: RGBColor = RGBColor(60, 60, 60);
const GREY: RGBColor = RGBColor(120, 120, 120);
const GRID: RGBColor = RGBColor(230, 230, 230);

/// Colours that differ also for those who do not tell red from green; shapes tell apart what
/// shares a colour.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

type Drawn = Result<(), Cause>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A phase of a scenario: the curve of its workload and the controllers' points.
struct Panel<'a> {
    title: String,
    sweep: &'a Sweep,
    /// By the controller's place in the legend: the settled limit and throughput, % of the best.
    points: Vec<(usize, (f64, f64))>,
}

/// Draws the report as SVG into `path`.
pub(super) fn draw(report: &BenchReport, path: &Path) -> Result<(), RigError> {
    draw_panels(report, path).map_err(RigError::figure(path))
}

fn draw_panels(report: &BenchReport, path: &Path) -> Drawn {
    let names = names(report);
    let panels = panels(report, &names);
    let rows = panels.len().div_ceil(COLUMNS).max(1);
    let width = PANEL.0 * u32::try_from(COLUMNS)?;
    let per_line = (width / NAME.0) as usize;
    let strip = NAME.1 * u32::try_from(names.len().div_ceil(per_line) + 1)?;
    let panels_height = PANEL.1 * u32::try_from(rows)?;
    let root = SVGBackend::new(path, (width, panels_height + strip)).into_drawing_area();
    root.fill(&WHITE)?;
    let (upper, _) = root.split_vertically(panels_height);
    for (panel, area) in panels.iter().zip(upper.split_evenly((rows, COLUMNS))) {
        draw_panel(panel, &area, &root)?;
    }
    for (place, name) in names.iter().enumerate() {
        let (line, column) = (place / per_line, place % per_line);
        let x = 24 + (i32::try_from(column)? * NAME.0.cast_signed());
        let y = panels_height.cast_signed() + 12 + i32::try_from(line)? * NAME.1.cast_signed();
        draw_marker(&root, place, (x, y))?;
        root.draw(&Text::new(name.as_str(), (x + 14, y - 7), (FONT, 14)))?;
    }
    root.present()?;
    Ok(())
}

/// The controllers that were scored anywhere, in order.
fn names(report: &BenchReport) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for controller in report.scenarios.iter().flat_map(|scenario| &scenario.controllers) {
        if !controller.phases.is_empty() && !names.contains(&controller.controller) {
            names.push(controller.controller.clone());
        }
    }
    names
}

fn panels<'a>(report: &'a BenchReport, names: &[String]) -> Vec<Panel<'a>> {
    let mut panels = Vec::new();
    for scenario in &report.scenarios {
        for (phase, reference) in scenario.references.iter().enumerate() {
            let work = reference.work;
            let Some(sweep) = report.sweeps.iter().find(|sweep| sweep.work == work) else {
                continue;
            };
            let points = scenario.controllers.iter().filter_map(|controller| {
                let place = names.iter().position(|name| *name == controller.controller)?;
                Some((place, point(controller.phase(work)?)?))
            });
            let title = match scenario.references.len() {
                1 => work.name().to_owned(),
                _ => format!("{}, phase {}: {}", scenario.scenario, phase + 1, work.name()),
            };
            panels.push(Panel { title, sweep, points: points.collect() });
        }
    }
    panels
}

fn point(phase: &PhaseScore) -> Option<(f64, f64)> {
    Some((phase.settled_limit?, phase.settled * 100.0))
}

fn draw_panel(panel: &Panel<'_>, area: &Area<'_>, root: &Area<'_>) -> Drawn {
    let best_tps = panel.sweep.best(1).first().map_or(1.0, |&(_, tps)| tps.max(1e-9));
    let curve: Vec<(f64, f64)> = panel
        .sweep
        .points
        .iter()
        .map(|&(limit, tps)| (f64::from(limit.get()), tps / best_tps * 100.0))
        .collect();
    let all = || curve.iter().copied().chain(panel.points.iter().map(|&(_, point)| point));
    let right = all().map(|(limit, _)| limit).fold(2.0, f64::max) * 1.2;
    let top = all().map(|(_, share)| share).fold(100.0, f64::max) * 1.08;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}: 100 % is {best_tps:.0} tps", panel.title), (FONT, 17))
        .margin(10)
        .x_label_area_size(38)
        .y_label_area_size(50)
        .build_cartesian_2d((0.85..right).log_scale().base(2.0), 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .x_desc("limit (logarithmic)")
        .y_desc("% of the best fixed limit")
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .label_style((FONT, 13))
        .axis_style(GREY)
        .draw()?;
    chart.draw_series(LineSeries::new(curve, CURVE.stroke_width(2)).point_size(2))?;
    for (place, point) in &panel.points {
        draw_marker(root, *place, chart.backend_coord(point))?;
    }
    Ok(())
}

/// The sign of a controller, at a point of the whole picture.
fn draw_marker(root: &Area<'_>, place: usize, at: (i32, i32)) -> Drawn {
    let colour = COLOURS[place % COLOURS.len()];
    match place / COLOURS.len() % 3 {
        0 => root.draw(&Circle::new(at, 5, colour.filled()))?,
        1 => root.draw(&TriangleMarker::new(at, 6, colour.filled()))?,
        _ => root.draw(&Cross::new(at, 5, colour.stroke_width(3)))?,
    }
    Ok(())
}
