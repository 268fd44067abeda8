//! The demonstration's picture: throughput against clients, and the path of the limit.

use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{DemoStep, DemoSummary};
use crate::Cause;
use crate::rig::{Interval, RigError};

const SIZE: (u32, u32) = (900, 800);
const UPPER: u32 = 430;
const FONT: &str = "sans-serif";
const DIRECT: RGBColor = RGBColor(190, 70, 50);
const PROXIED: RGBColor = RGBColor(30, 95, 160);
const GREY: RGBColor = RGBColor(120, 120, 120);
const GRID: RGBColor = RGBColor(230, 230, 230);

/// Room for the legend above the curves.
const HEADROOM: f64 = 1.15;

type Drawn = Result<(), Cause>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the summary as SVG into `path`.
pub(super) fn draw(summary: &DemoSummary, path: &Path) -> Result<(), RigError> {
    draw_panels(summary, path).map_err(RigError::figure(path))
}

fn draw_panels(summary: &DemoSummary, path: &Path) -> Drawn {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (upper, lower) = root.split_vertically(UPPER);
    draw_throughput(summary, &upper)?;
    draw_limit(summary, &lower)?;
    root.present()?;
    Ok(())
}

fn draw_throughput(summary: &DemoSummary, area: &Area<'_>) -> Drawn {
    let steps = &summary.steps;
    let clients: Vec<f64> = steps.iter().map(|step| step.clients as f64).collect();
    let top = steps.iter().map(|step| step.direct.tps.max(step.proxied.tps));
    let title = format!(
        "Throughput against clients (TPC-B-like, scale {}, on {})",
        summary.scale, summary.database.dbms.title
    );
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 20))
        .margin(12)
        .x_label_area_size(45)
        .y_label_area_size(70)
        .build_cartesian_2d(
            around(&clients).log_scale().with_key_points(clients.clone()),
            0.0..ceiling(top) * HEADROOM,
        )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .x_desc("clients (logarithmic)")
        .y_desc("transactions per second")
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .label_style((FONT, 14))
        .draw()?;
    for (name, color, tps) in [
        ("through Tidegate", PROXIED, proxied_tps as fn(&DemoStep) -> f64),
        ("direct", DIRECT, direct_tps),
    ] {
        let points = steps.iter().map(|step| (step.clients as f64, tps(step)));
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(3)).point_size(5))?
            .label(name)
            .legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 22, y)], color.stroke_width(3))
            });
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE)
        .border_style(GREY)
        .label_font((FONT, 14))
        .draw()?;
    Ok(())
}

/// The limit over the time Tidegate had load: the direct runs in between are left out.
fn draw_limit(summary: &DemoSummary, area: &Area<'_>) -> Drawn {
    let paths = paths(&summary.steps);
    let end_s = paths.last().map_or(1.0, |path| path.end_s);
    let limits = paths.iter().flat_map(|path| &path.points);
    let top = ceiling(limits.map(|(_, limit)| *limit));
    let mut chart = ChartBuilder::on(area)
        .caption("Limit on running transactions", (FONT, 20))
        .margin(12)
        .x_label_area_size(45)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end_s, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .x_desc("seconds of load through Tidegate")
        .y_desc("limit")
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .label_style((FONT, 14))
        .draw()?;
    for path in &paths {
        let border = vec![(path.began_s, 0.0), (path.began_s, top)];
        chart.draw_series([PathElement::new(border, GREY)])?;
        let label = Text::new(
            format!("{} clients", path.clients),
            (path.began_s + end_s * 0.008, top * 0.97),
            (FONT, 14).into_font().color(&GREY),
        );
        chart.draw_series([label])?;
    }
    let first = summary.steps.iter().flat_map(|step| &step.intervals).next();
    let start = first.map(|interval| (0.0, f64::from(interval.limit)));
    let points = paths.iter().flat_map(|path| path.points.iter().copied());
    let points = start.into_iter().chain(points);
    chart.draw_series(LineSeries::new(stairs(points), PROXIED.stroke_width(2)))?;
    Ok(())
}

/// One step's part of the limit's path, in seconds of load through Tidegate.
struct StepPath {
    clients: usize,
    began_s: f64,
    end_s: f64,
    points: Vec<(f64, f64)>,
}

fn paths(steps: &[DemoStep]) -> Vec<StepPath> {
    let mut now_s = 0.0;
    steps
        .iter()
        .map(|step| {
            let began_s = now_s;
            let run_s = step.proxied.warmup_s + step.proxied.seconds;
            // Logging in and draining belong to the step too, when there were intervals then.
            let last_s = step.intervals.last().map_or(0.0, |last| last.at_s - step.began_s);
            now_s += run_s.max(last_s);
            let point = |interval: &Interval| {
                let at_s = began_s + interval.at_s - step.began_s;
                (at_s, f64::from(interval.next_limit))
            };
            StepPath {
                clients: step.clients,
                began_s,
                end_s: now_s,
                points: step.intervals.iter().map(point).collect(),
            }
        })
        .collect()
}

/// A value holds until the next one: the corners of its steps.
fn stairs(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (x, y) in points {
        if let Some(&(_, before)) = corners.last() {
            corners.push((x, before));
        }
        corners.push((x, y));
    }
    corners
}

fn direct_tps(step: &DemoStep) -> f64 {
    step.direct.tps
}

fn proxied_tps(step: &DemoStep) -> f64 {
    step.proxied.tps
}

/// A logarithmic range with some room on both sides.
fn around(values: &[f64]) -> Range<f64> {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(1.0, f64::max);
    (low.min(high) / 1.3)..(high * 1.3)
}

/// The upper end of an axis for these values.
fn ceiling(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(1.0, f64::max) * 1.15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_holds_until_the_next() {
        let corners = stairs([(0.0, 4.0), (2.0, 6.0)].into_iter());
        assert_eq!(corners, [(0.0, 4.0), (2.0, 4.0), (2.0, 6.0)]);
    }
}
