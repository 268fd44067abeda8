//! An experiment's curves as SVG: throughput over MPL, every repetition, the mean, the thrashing
//! point.

use std::path::{Path, PathBuf};

use plotters::prelude::*;
use thiserror::Error;

use super::{by_mpl, mean, thrashing_point, title};
use crate::Cause;
use crate::store::Curve;
use crate::tap::TapReport;

const SIZE: (u32, u32) = (800, 460);

/// A figure could not be written.
#[derive(Debug, Error)]
#[error("cannot write {path}: {source}", path = .path.display())]
pub struct FigureError {
    path: PathBuf,
    source: Cause,
}

/// Writes a file for each curve that has points: `NAME-RUN-BATCHSET.svg`.
pub(crate) fn write(
    directory: &Path,
    name: &str,
    curves: &[Curve],
    report: Option<&TapReport>,
) -> Result<(), FigureError> {
    let failed = |path: &Path, source| FigureError { path: path.into(), source };
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error.into()))?;
    for curve in curves.iter().filter(|curve| !curve.points.is_empty()) {
        let path =
            directory.join(format!("{name}-{}-{}.svg", curve.run.number, curve.batchset.number));
        let point = thrashing_point(curve, report);
        draw(&path, curve, point).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

fn draw(path: &Path, curve: &Curve, point: Option<u32>) -> Result<(), Cause> {
    let by_mpl = by_mpl(&curve.points);
    let means: Vec<(f64, f64)> =
        by_mpl.iter().map(|(&mpl, points)| (f64::from(mpl), mean(points))).collect();
    let top = curve.points.iter().map(|point| point.tps).fold(0.0, f64::max).max(1.0) * 1.08;
    let right = means.last().map_or(1.0, |last| last.0) * 1.03;
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title(curve), ("sans-serif", 15))
        .margin(12)
        .x_label_area_size(38)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("MPL")
        .y_desc("transactions per second")
        .draw()?;
    if let Some(point) = point {
        let at = f64::from(point);
        chart.draw_series(LineSeries::new([(at, 0.0), (at, top)], RED.mix(0.6)))?;
        let words = format!("thrashing point {point}");
        chart.draw_series([Text::new(words, (at, top * 0.99), ("sans-serif", 13))])?;
    }
    let dots = curve.points.iter().map(|point| (f64::from(point.mpl), point.tps));
    chart.draw_series(dots.map(|at| Circle::new(at, 3, BLUE.mix(0.4).filled())))?;
    chart.draw_series(LineSeries::new(means, BLUE.stroke_width(2)))?;
    root.present()?;
    Ok(())
}
