//! The curve as it is told: limit by limit, with intervals, or why nothing is said.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Mpl;

/// A median with its 90 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveInterval {
    /// The lower end: 5 % lie below it.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// The upper end: 5 % lie above it.
    pub high: f64,
}

/// Why nothing is said about a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// The database was not seen with so many transactions, or about so many.
    Unseen,
    /// The upper end of the interval is more than twice the lower.
    Wide,
    /// The load does not fill the limit in force, and may or may not fill this one.
    Load,
}

/// What is expected at one limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveRow {
    /// The limit.
    pub limit: Mpl,
    /// Completed transactions per second; `None` if it is not known.
    pub throughput_tps: Option<CurveInterval>,
    /// Time from request to end, seconds; `None` if it is not known.
    pub response_s: Option<CurveInterval>,
    /// Why the throughput is not known; `None` if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<Unknown>,
}

/// What is expected at every limit: the mean over the 10 seconds that begin a second after the
/// limit is set, with the load and the database as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIfCurve {
    /// When it was made, seconds on the clock of the observations.
    pub at_s: f64,
    /// Transactions that run or wait, in the mean of the last 10 seconds.
    pub present: f64,
    /// Measurements that it is made of.
    pub measurements: u32,
    /// By how much intervals at limits other than the present one are widened because of earlier
    /// errors, a factor.
    pub widening: f64,
    /// Rising limits: 1, 2, 3, 4, 6, 8, 12 and so on, up to the first that lets all in.
    pub rows: Vec<CurveRow>,
}

/// Throughput as it was measured with so many transactions in the database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurveMeasurement {
    /// The number of transactions, in the mean.
    pub mpl: f64,
    /// Completed transactions per second.
    pub throughput_tps: f64,
    /// How long ago it was measured, seconds.
    pub age_s: f64,
    /// How long it was measured, seconds.
    pub seconds: f64,
}

impl CurveInterval {
    /// Whether the number lies in the interval.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

impl CurveRow {
    /// A row about which nothing is said.
    pub(super) fn unknown(limit: Mpl, why: Unknown) -> CurveRow {
        CurveRow { limit, throughput_tps: None, response_s: None, unknown: Some(why) }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Unknown::Unseen => "not known: nothing near was measured",
            Unknown::Wide => "not known: the measurements allow more than a factor of 2",
            Unknown::Load => "not known: it depends on the load, which does not fill the limit",
        })
    }
}

/// The limits of a curve: 1, 2, 3, 4, 6, 8, 12, 16 and so on, up to the first of at least `last`.
pub(super) fn limits_up_to(last: f64, highest: Mpl) -> Vec<Mpl> {
    let mut limits = vec![1_u32];
    while let Some(&limit) = limits.last().filter(|&&limit| f64::from(limit) < last) {
        // 1, 2, 3, and then a half more and a third more in turn.
        let next = match limit {
            1 | 2 => limit + 1,
            limit if limit.is_power_of_two() => limit.saturating_add(limit / 2),
            limit => limit.saturating_add(limit / 3),
        };
        if next == limit || limit >= highest.get() {
            break;
        }
        limits.push(next.min(highest.get()));
    }
    limits.into_iter().map(Mpl::at_least_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn limits(last: f64, highest: u32) -> Vec<u32> {
        limits_up_to(last, Mpl::at_least_one(highest)).into_iter().map(Mpl::get).collect()
    }

    #[test]
    fn limits_rise_to_the_first_that_lets_all_in() {
        assert_eq!(limits(1.0, 100), [1]);
        assert_eq!(limits(5.0, 100), [1, 2, 3, 4, 6]);
        assert_eq!(limits(30.0, 100), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]);
        assert_eq!(limits(1e9, 10), [1, 2, 3, 4, 6, 8, 10]);
        let all = limits(f64::INFINITY, u32::MAX);
        assert!(all.is_sorted_by(|low, high| low < high), "{all:?}");
        assert_eq!(all.last(), Some(&u32::MAX));
    }
}
