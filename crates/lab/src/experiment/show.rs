//! An experiment's results as text: a table for each curve, with a small picture.

use std::collections::BTreeMap;
use std::fmt::Write;

use tidegate_control::Mpl;

use super::treatment::Admission;
use crate::grid::Grid;
use crate::store::{Curve, Point};
use crate::tap::Report;

/// Columns of the longest bar.
const BAR: f64 = 40.0;

/// The curves, each with its thrashing point where the analysis gives one.
#[must_use]
pub fn text(curves: &[Curve], report: Option<&Report>) -> String {
    let mut text = String::new();
    for curve in curves.iter().filter(|curve| !curve.points.is_empty()) {
        push_curve(&mut text, curve, report);
    }
    if text.is_empty() {
        text.push_str("nothing has been measured yet\n");
    }
    text
}

fn push_curve(text: &mut String, curve: &Curve, report: Option<&Report>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", title(curve));
    let by_mpl = by_mpl(&curve.points);
    let top = by_mpl.values().map(|points| mean(points)).fold(0.0, f64::max);
    let point = thrashing_point(curve, report);
    let rows = by_mpl.iter().map(|(&mpl, points)| {
        let tps = mean(points);
        let mark = if point == Some(mpl) { " <- thrashing point" } else { "" };
        vec![
            mpl.to_string(),
            format!("{tps:.1}"),
            spread(points),
            format!(
                "{:.2}",
                points.iter().map(|one| one.mean_ms).sum::<f64>() / points.len() as f64
            ),
            format!("{}{mark}", bar(tps, top)),
        ]
    });
    let head = ["MPL", "tps", "lowest-highest", "mean ms", ""].map(str::to_owned).to_vec();
    text.push_str(&Grid { head, rows: rows.collect() }.text());
    let _ = writeln!(text, "{}\n", verdict(curve, report));
}

/// What a curve is of.
#[must_use]
pub fn title(curve: &Curve) -> String {
    let processors = match curve.run.processors {
        0 => String::new(),
        count => format!(", {count} processors"),
    };
    let keys = if curve.run.primary_key { "" } else { ", no primary keys" };
    let (subject, set) = (&curve.run.subject, &curve.batchset);
    let described = set.describe();
    format!("{subject}{processors}{keys}: batchset {}, {described}", set.number)
}

/// The measurements of each MPL.
#[must_use]
pub fn by_mpl(points: &[Point]) -> BTreeMap<u32, Vec<Point>> {
    let mut by_mpl: BTreeMap<u32, Vec<Point>> = BTreeMap::new();
    for &point in points {
        by_mpl.entry(point.mpl).or_default().push(point);
    }
    by_mpl
}

/// The mean throughput.
#[must_use]
pub fn mean(points: &[Point]) -> f64 {
    points.iter().map(|point| point.tps).sum::<f64>() / points.len().max(1) as f64
}

fn spread(points: &[Point]) -> String {
    let tps = || points.iter().map(|point| point.tps);
    match points.len() {
        1 => "-".to_owned(),
        _ => format!("{:.1}-{:.1}", tps().fold(f64::INFINITY, f64::min), tps().fold(0.0, f64::max)),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the bar")]
fn bar(tps: f64, top: f64) -> String {
    let length = if top > 0.0 { (tps / top * BAR).round() } else { 0.0 };
    "#".repeat(length.clamp(0.0, BAR) as usize)
}

/// A curve's thrashing point, where the analysis retained it and there is one.
#[must_use]
pub fn thrashing_point(curve: &Curve, report: Option<&Report>) -> Option<u32> {
    let retained = report?.retained.iter().find(|set| is_of(curve, set.key))?;
    retained.thrashing_point.mpl().map(Mpl::get)
}

fn is_of(curve: &Curve, key: crate::tap::BatchsetKey) -> bool {
    (key.run.0, key.batchset) == (i64::from(curve.run.number), curve.batchset.number)
}

fn verdict(curve: &Curve, report: Option<&Report>) -> String {
    // Where a controller chooses, a level is only where it began.
    let is_fixed = !matches!(curve.batchset.treatment.admission, Admission::Control { .. });
    let Some(report) = report.filter(|_| is_fixed) else { return String::new() };
    let Some(retained) = report.retained.iter().find(|set| is_of(curve, set.key)) else {
        return "the analysis protocol dropped this curve; see `tidegate lab tap`".to_owned();
    };
    match retained.thrashing_point.bounds() {
        (low, Some(high)) => format!("thrashing point {low}: throughput falls before {high}"),
        (highest, None) => format!("no thrashing up to {highest}"),
    }
}
