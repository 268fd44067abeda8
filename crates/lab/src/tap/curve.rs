//! The thrashing point of a throughput curve, by Eq. (1) of the study.
//!
//! # Mechanism
//! A curve gives the mean throughput of each batch, `TPS_1`, `TPS_2`, … in the order of their MPLs.
//! It *falls sharply* at batch i when `TPS_i > 1.2·TPS_(i+1)`, and the fall *lasts* when `TPS_i >
//! TPS_j` for all `j > i + 1`. The thrashing point, TP, is the MPL of the first batch at which a
//! sharp fall lasts, and ∞ when there is none.
//!
//! Thrashing is *transient* when the first sharp fall does not last: when a higher MPL is as good
//! as the MPL of the fall, or better. So a curve has one of three outcomes: its first sharp fall
//! lasts, it does not, or there is none.
//!
//! # Example
//! 100, 200, 190, 120, 110 and 130 tps at MPL 100 to 600. From 300 to 400 throughput falls by the
//! factor 190/120 = 1.58; nothing above 400 comes near 190; TP = 300. Had there been 190 tps at
//! 600, the fall would have been transient, and TP = ∞.
//!
//! # Censoring
//! Throughput is known at the MPLs tried and nowhere else. A TP of 300 says that the fall began
//! somewhere from 300 to 400, an interval; a TP of ∞ says that it begins above the highest MPL
//! tried, if ever. A TP at the *lowest* MPL tried says only that the fall began below the second:
//! nothing was measured at which throughput had held, so that it may have been falling before the
//! first. It is left-censored, also where the first MPL is 1. [`ThrashingPoint::bounds`] gives all
//! three to one who fits a model to them.
//!
//! # Where this leaves the study
//! * **20 % or 16.7 %.** Eq. (1) asks that throughput be more than 1.2 times its successor, which
//!   is a loss of more than 16.7 %. The text says that throughput drops by 20 % or more, a factor
//!   of 1.25. The equation is the definition, so [`Rule::Equation1`] is the default;
//!   [`Rule::Drop20`] is the text, to see whether the difference matters. The version of the rule
//!   is kept beside every TP.
//! * **Several falls.** Eq. (1) may hold at more than one MPL. TP is where thrashing *first* occurs
//!   (Section 3.2.5), hence the first.
//! * **Transient.** The study's words, that the TPS at the TP is lower than at a higher MPL,
//!   describe what Eq. (1) excludes: a TP of Eq. (1) is never exceeded. What can be exceeded is the
//!   first sharp fall. Later falls are not judged: below a peak that is never reached again, ups
//!   and downs are bumps within the thrashing phase (Section 1.1, DBMSes Y and PostgreSQL).
//! * **Equal.** Where a higher MPL gives exactly as much as the MPL of the fall, Eq. (1) sees no TP
//!   there and the words of the check no violation. Here that is transient, or the batchset would
//!   count as one without a fall.
//! * **Two peaks.** 100, 50, 200, 100 falls first at the first MPL, which does not last, and then
//!   at the third, which does. Eq. (1) alone gives the third, and so does this rule; the protocol
//!   drops such a batchset, since its first fall was transient.
//! * **A missing MPL.** The protocol gives an incomplete batchset no TP. The rule itself compares
//!   each MPL with the next that was measured, and says [`ThrashingPoint::Between`] where others
//!   were planned between the two: there may have been several small falls, or a peak.
//!
//! # Limits
//! There is no test of significance: two batches of noisy executions can differ by 17 % by luck.
//! How probable each outcome is given the spread of the executions is said by
//! [`super::posterior`]. A slow decline over many MPLs, each step below the threshold, is never
//! thrashing.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use serde::{Deserialize, Serialize};
use tidegate_control::Mpl;

#[derive(Clone, Debug, PartialEq)]
pub struct ThroughputCurve {
    /// Transactions per second at each planned MPL; `None` where there was no measurement.
    points: BTreeMap<Mpl, Option<f64>>,
    highest: Mpl,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Level {
    pub mpl: Mpl,
    pub tps: f64,
}

/// What counts as a sharp fall. Its serialized form is its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    /// `TPS_i > 1.2·TPS_(i+1)`, Eq. (1) as printed.
    #[default]
    #[serde(rename = "equation-1 v1")]
    Equation1,
    /// `TPS_(i+1) ≤ 0.8·TPS_i`, as the text below Eq. (1) has it.
    #[serde(rename = "drop-20 v1")]
    Drop20,
}

/// Where throughput begins to fall, as far as the MPLs tried tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum ThrashingPoint {
    /// TP is `mpl`, the lowest MPL measured: the fall begins below `next`, nobody knows how far.
    AtLowest {
        /// The lowest MPL measured.
        mpl: Mpl,
        /// The MPL planned after it, at which throughput had fallen.
        next: Mpl,
    },
    /// TP is `mpl`: the fall begins there or above, below `next`.
    At {
        /// The last MPL before the fall.
        mpl: Mpl,
        /// The MPL planned after it, at which throughput had fallen.
        next: Mpl,
    },
    /// Throughput fell somewhere between two MPLs; those planned between them were not measured.
    Between {
        /// The last MPL measured before the fall; `None` where that is the lowest measured.
        low: Option<Mpl>,
        /// The first measured after it.
        high: Mpl,
    },
    /// TP = ∞: no lasting sharp fall up to `highest`.
    Infinite {
        /// The highest MPL measured.
        highest: Mpl,
    },
}

/// A first sharp fall that did not last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Transient {
    /// The last point before the fall.
    pub from: Level,
    /// The first point after it.
    pub to: Level,
    /// The first point above that which is as good as `from`, or better.
    pub recovery: Level,
}

/// A sharp fall, by places in the order of the MPLs: from `from` to the next.
#[derive(Clone, Copy, Debug)]
struct Fall {
    from: usize,
    recovery: Option<usize>,
}

fn tps_of(levels: &[Level]) -> Vec<f64> {
    levels.iter().map(|level| level.tps).collect()
}

impl ThroughputCurve {
    /// The curve through these points, each a planned MPL and its throughput in transactions per
    /// second, in any order; `None` when nothing was measured.
    pub fn new(points: impl IntoIterator<Item = (Mpl, Option<f64>)>) -> Option<ThroughputCurve> {
        let points: BTreeMap<Mpl, Option<f64>> = points.into_iter().collect();
        let highest = *points.iter().rfind(|(_, tps)| tps.is_some())?.0;
        Some(ThroughputCurve { points, highest })
    }

    fn measured(&self) -> Vec<Level> {
        let level = |(&mpl, &tps): (&Mpl, &Option<f64>)| tps.map(|tps| Level { mpl, tps });
        self.points.iter().filter_map(level).collect()
    }

    /// Whether an MPL was planned between two others.
    fn has_between(&self, low: Mpl, high: Mpl) -> bool {
        let between = (Bound::Excluded(low), Bound::Excluded(high));
        self.points.range(between).next().is_some()
    }
}

impl Rule {
    /// The name and version to keep beside a thrashing point.
    pub const fn version(self) -> &'static str {
        match self {
            Rule::Equation1 => "equation-1 v1",
            Rule::Drop20 => "drop-20 v1",
        }
    }

    /// Returns how many times its successor's throughput a batch has where a fall is just sharp.
    pub const fn threshold(self) -> f64 {
        match self {
            Rule::Equation1 => 1.2,
            Rule::Drop20 => 1.25,
        }
    }

    /// Returns the place of the first throughput at which a sharp fall lasts, of throughputs in the
    /// order of their MPLs.
    pub fn lasting_fall(self, tps: &[f64]) -> Option<usize> {
        let mut falls = self.falls(tps);
        falls.find(|fall| fall.recovery.is_none()).map(|fall| fall.from)
    }

    /// The thrashing point of a curve.
    pub fn thrashing_point(self, curve: &ThroughputCurve) -> ThrashingPoint {
        let levels = curve.measured();
        let Some(from) = self.lasting_fall(&tps_of(&levels)) else {
            return ThrashingPoint::Infinite { highest: curve.highest };
        };
        let (mpl, next, is_lowest) = (levels[from].mpl, levels[from + 1].mpl, from == 0);
        match (curve.has_between(mpl, next), is_lowest) {
            (true, _) => ThrashingPoint::Between { low: (!is_lowest).then_some(mpl), high: next },
            (false, true) => ThrashingPoint::AtLowest { mpl, next },
            (false, false) => ThrashingPoint::At { mpl, next },
        }
    }

    /// The first sharp fall of a curve, when it did not last.
    pub fn transient(self, curve: &ThroughputCurve) -> Option<Transient> {
        let levels = curve.measured();
        let Fall { from, recovery } = self.falls(&tps_of(&levels)).next()?;
        Some(Transient { from: levels[from], to: levels[from + 1], recovery: levels[recovery?] })
    }

    fn falls(self, tps: &[f64]) -> impl Iterator<Item = Fall> {
        let sharp = (1..tps.len()).filter(move |&to| self.is_sharp(tps[to - 1], tps[to]));
        sharp.map(|to| Fall {
            from: to - 1,
            recovery: (to + 1..tps.len()).find(|&later| tps[later] >= tps[to - 1]),
        })
    }

    fn is_sharp(self, from_tps: f64, to_tps: f64) -> bool {
        match self {
            Rule::Equation1 => from_tps > self.threshold() * to_tps,
            Rule::Drop20 => from_tps > 0.0 && to_tps <= 0.8 * from_tps,
        }
    }
}

impl ThrashingPoint {
    /// Whether there is a thrashing point at a known MPL, and not ∞.
    pub const fn mpl(self) -> Option<Mpl> {
        match self {
            ThrashingPoint::At { mpl, .. } | ThrashingPoint::AtLowest { mpl, .. } => Some(mpl),
            ThrashingPoint::Between { .. } | ThrashingPoint::Infinite { .. } => None,
        }
    }

    /// The interval that holds it: from this MPL, to below that one. It has no beginning where
    /// throughput fell from the lowest MPL measured, and no end for ∞; it has one of the two.
    pub const fn bounds(self) -> (Option<Mpl>, Option<Mpl>) {
        match self {
            ThrashingPoint::AtLowest { next, .. } => (None, Some(next)),
            ThrashingPoint::At { mpl, next } => (Some(mpl), Some(next)),
            ThrashingPoint::Between { low, high } => (low, Some(high)),
            ThrashingPoint::Infinite { highest } => (Some(highest), None),
        }
    }
}

impl fmt::Display for ThrashingPoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThrashingPoint::At { mpl, .. } => mpl.fmt(formatter),
            ThrashingPoint::AtLowest { mpl, .. } => write!(formatter, "{mpl} or below"),
            ThrashingPoint::Between { low: Some(low), high } => {
                write!(formatter, "between {low} and {high}, not measured")
            }
            ThrashingPoint::Between { low: None, high } => {
                write!(formatter, "below {high}, not measured")
            }
            ThrashingPoint::Infinite { highest } => write!(formatter, "∞ (above {highest})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mpl(level: u32) -> Mpl {
        Mpl::at_least_one(level)
    }

    /// MPL 100, 200, …; a negative throughput is a missing one.
    fn curve(tps: &[f64]) -> ThroughputCurve {
        let points = (1..)
            .zip(tps)
            .map(|(step, &tps)| (mpl(100 * step), Some(tps).filter(|tps| *tps >= 0.0)));
        ThroughputCurve::new(points).expect("something was measured")
    }

    fn first(level: u32) -> ThrashingPoint {
        ThrashingPoint::AtLowest { mpl: mpl(level), next: mpl(level + 100) }
    }

    fn at(level: u32) -> ThrashingPoint {
        ThrashingPoint::At { mpl: mpl(level), next: mpl(level + 100) }
    }

    fn below(high: u32) -> ThrashingPoint {
        ThrashingPoint::Between { low: None, high: mpl(high) }
    }

    fn infinite(highest: u32) -> ThrashingPoint {
        ThrashingPoint::Infinite { highest: mpl(highest) }
    }

    fn between(low: u32, high: u32) -> ThrashingPoint {
        ThrashingPoint::Between { low: Some(mpl(low)), high: mpl(high) }
    }

    /// What each curve is by Eq. (1): its TP, and the MPL of a first fall that does not last.
    #[test]
    fn curves_worked_by_hand() {
        let table: &[(&[f64], ThrashingPoint, Option<u32>, &str)] = &[
            (&[10.0, 20.0, 30.0, 40.0], infinite(400), None, "rising"),
            (&[10.0, 10.0, 10.0], infinite(300), None, "flat"),
            (&[90.0, 80.0, 70.0, 60.0, 51.0], infinite(500), None, "each step below 1.2"),
            (&[100.0, 120.0, 100.0, 90.0], infinite(400), None, "1.2 is not more than 1.2"),
            (&[100.0, 120.1, 100.0, 90.0], at(200), None, "more than 1.2"),
            (&[100.0, 200.0, 190.0, 120.0, 110.0, 130.0], at(300), None, "the head's example"),
            (&[100.0, 200.0, 190.0, 120.0, 110.0, 190.0], infinite(600), Some(300), "equal again"),
            (&[100.0, 200.0, 190.0, 120.0, 110.0, 189.9], at(300), None, "nearly again"),
            (&[100.0, 50.0, 110.0, 120.0], infinite(400), Some(100), "a dip"),
            (&[100.0, 50.0, 200.0, 100.0], at(300), Some(100), "two peaks, the higher last"),
            (&[200.0, 100.0, 150.0, 50.0], first(100), None, "two peaks, the higher first"),
            (&[100.0, 50.0, 20.0, 60.0, 55.0], first(100), None, "a bump while thrashing"),
            (&[100.0, 80.0, 60.0, 40.0], first(100), None, "falling from the first"),
            (&[0.0, 0.0, 0.0], infinite(300), None, "nothing at all"),
            (&[0.0, 100.0, 50.0], at(200), None, "nothing at the start"),
            (&[100.0, 0.0, 0.0], first(100), None, "nothing after the start"),
            (&[10.0, 20.0, 10.0], at(200), None, "fall at the last MPL but one"),
            (&[7.0], infinite(100), None, "a single MPL"),
            (&[100.0, -1.0, 50.0, 40.0], below(300), None, "fall over a gap from the first"),
            (&[90.0, 100.0, -1.0, 50.0], between(200, 400), None, "fall over a gap"),
            (&[100.0, -1.0, 110.0, 50.0], at(300), None, "fall after a gap"),
            (&[100.0, 50.0, -1.0, 120.0], infinite(400), Some(100), "a dip before a gap"),
            (&[-1.0, 100.0, 50.0], first(200), None, "the first is missing"),
            (&[100.0, 110.0, -1.0], infinite(200), None, "the last is missing"),
        ];
        for &(tps, expected, transient, case) in table {
            let curve = curve(tps);
            assert_eq!(Rule::Equation1.thrashing_point(&curve), expected, "{case}");
            let found = Rule::Equation1.transient(&curve).map(|found| found.from.mpl.get());
            assert_eq!(found, transient, "{case}");
        }
    }

    #[test]
    fn the_text_asks_for_a_larger_drop_than_the_equation() {
        let table: &[(&[f64], ThrashingPoint, ThrashingPoint)] = &[
            (&[100.0, 83.4, 80.0], infinite(300), infinite(300)),
            (&[100.0, 83.3, 80.0], first(100), infinite(300)),
            (&[100.0, 80.1, 79.0], first(100), infinite(300)),
            (&[100.0, 80.0, 79.0], first(100), first(100)),
            (&[0.0, 0.0, 0.0], infinite(300), infinite(300)),
        ];
        for &(tps, equation, text) in table {
            let curve = curve(tps);
            assert_eq!(Rule::Equation1.thrashing_point(&curve), equation, "{tps:?}");
            assert_eq!(Rule::Drop20.thrashing_point(&curve), text, "{tps:?}");
        }
    }

    /// Fig. 1 has no numbers, but Section 5 tells where DBMS X falls: from 800 to 900, by more than
    /// 20 %, and 1,000 stays below. The figure's mark at 900 is where the fall is seen.
    #[test]
    fn the_point_of_the_studys_first_figure_is_800() {
        let tps = [10.0, 20.0, 30.0, 40.0, 45.0, 48.0, 49.0, 50.0, 30.0, 28.0];
        let point = Rule::Equation1.thrashing_point(&curve(&tps));
        assert_eq!(point.bounds(), (Some(mpl(800)), Some(mpl(900))));
    }

    #[test]
    fn a_transient_fall_is_told_with_its_recovery() {
        let found = Rule::Equation1.transient(&curve(&[100.0, 50.0, 90.0, 120.0, 130.0]));
        let level = |at, tps| Level { mpl: mpl(at), tps };
        let (from, to, recovery) = (level(100, 100.0), level(200, 50.0), level(400, 120.0));
        assert_eq!(found, Some(Transient { from, to, recovery }));
    }

    #[test]
    fn the_bounds_are_those_of_the_censoring() {
        let [known, ends] = [300, 400].map(|level| Some(mpl(level)));
        assert_eq!(at(300).bounds(), (known, ends));
        assert_eq!(between(300, 400).bounds(), (known, ends));
        assert_eq!(infinite(300).bounds(), (known, None));
        assert_eq!([first(300), below(400)].map(ThrashingPoint::bounds), [(None, ends); 2]);
        assert_eq!([first(300), at(300)].map(ThrashingPoint::mpl), [known; 2]);
        assert_eq!(
            [between(300, 600), below(400), infinite(900)].map(ThrashingPoint::mpl),
            [None; 3]
        );
        assert_eq!(
            [first(8), at(8), below(9), between(8, 9), infinite(8)].map(|point| point.to_string()),
            [
                "8 or below",
                "8",
                "below 9, not measured",
                "between 8 and 9, not measured",
                "∞ (above 8)"
            ]
        );
    }

    #[test]
    fn the_serialized_rule_is_its_version() {
        for rule in [Rule::Equation1, Rule::Drop20] {
            let text = serde_json::to_string(&rule).expect("a string");
            assert_eq!(text, format!("\"{}\"", rule.version()));
        }
    }

    #[test]
    fn a_curve_without_measurements_is_none() {
        assert_eq!(ThroughputCurve::new([(mpl(100), None)]), None);
        assert_eq!(ThroughputCurve::new([]), None);
    }
}
