//! The what-if curve on the page of metrics.

use std::time::Duration;

use tidegate_control::{CurveInterval, CurveRow, WhatIfCurve};

use super::{Kind, Page};

/// A server's name, its curve, and how long ago that was made.
type Named<'a> = (&'a str, &'a WhatIfCurve, Duration);

/// What a family shows of a row.
type Family = (&'static str, &'static str, fn(&CurveRow) -> Option<CurveInterval>);

const FAMILIES: [Family; 2] = [
    (
        "tidegate_curve_throughput_tps",
        "Throughput expected at a limit: median, 90 % interval; absent while not known.",
        |row| row.throughput_tps,
    ),
    (
        "tidegate_curve_response_seconds",
        "Time from request to end expected at a limit, likewise.",
        |row| row.response_s,
    ),
];

/// Writes what is expected at every limit; nothing before it is known of any server.
pub(super) fn write(page: &mut Page, curves: &[Named<'_>]) {
    if curves.is_empty() {
        return;
    }
    for (name, help, of) in FAMILIES {
        page.family(name, Kind::Gauge, help);
        for (server, curve, _) in curves {
            for row in &curve.rows {
                let Some(CurveInterval { low, median, high }) = of(row) else { continue };
                let limit = row.limit.to_string();
                for (quantile, value) in [("0.05", low), ("0.5", median), ("0.95", high)] {
                    let labels = [("server", *server), ("limit", &*limit), ("quantile", quantile)];
                    page.sample(name, &labels, value);
                }
            }
        }
    }
    let name = "tidegate_curve_age_seconds";
    page.family(name, Kind::Gauge, "Time since the curve was made.");
    for (server, _, age) in curves {
        page.sample(name, &[("server", server)], age.as_secs_f64());
    }
    let name = "tidegate_curve_widening";
    page.family(name, Kind::Gauge, "Factor on the intervals' widths because of earlier errors.");
    for (server, curve, _) in curves {
        page.sample(name, &[("server", server)], curve.widening);
    }
}
