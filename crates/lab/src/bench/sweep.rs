//! The curve of throughput against fixed limits, as measured.

use serde::Serialize;
use tidegate_control::Mpl;
use tidegate_control::plant::{Curve, Truth};

use super::{BenchCell, BenchWork, Purpose};
use crate::simulate::BAND;

/// Throughput below which a point is drawn up, because logarithms have no zero.
const TPS_MIN: f64 = 0.01;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    pub work: BenchWork,
    /// Limits and transactions per second, in rising order of limits; at least one.
    pub points: Vec<(Mpl, f64)>,
}

impl Sweep {
    /// The sweep of `work` among the runs made; `None` when no point of it was measured.
    pub(super) fn find(work: BenchWork, cells: &[BenchCell]) -> Option<Sweep> {
        let of_work =
            cells.iter().filter(|cell| cell.purpose == Purpose::Sweep && cell.works == [work]);
        let mut points: Vec<(Mpl, f64)> =
            of_work.filter_map(|cell| Some((cell.fixed_limit()?, cell.tps()?))).collect();
        points.sort_by_key(|&(limit, _)| limit);
        (!points.is_empty()).then_some(Sweep { work, points })
    }

    /// The `count` best limits, the best first; of equals the lower.
    pub(super) fn best(&self, count: usize) -> Vec<(Mpl, f64)> {
        let mut points = self.points.clone();
        points.sort_by(|one, other| other.1.total_cmp(&one.1));
        points.truncate(count);
        points
    }

    /// The lowest and the highest limit that reach [`BAND`] of the best, the highest no higher than
    /// what was swept.
    pub(super) fn band(&self) -> Option<(Mpl, Mpl)> {
        let (_, best_tps) = self.best(1).first().copied()?;
        let (highest, _) = self.points.last()?;
        let band = self.truth(best_tps)?.band(BAND);
        Some((*band.start(), *band.end().min(highest)))
    }

    /// Throughput at every limit, when the best of them gives `best_tps` now: what lies between the
    /// measured limits is interpolated on logarithmic axes, and all is scaled alike, since a slower
    /// machine is slower at all limits. `None` unless `best_tps` is above 0 and finite.
    pub(super) fn truth(&self, best_tps: f64) -> Option<Truth> {
        let (_, swept_tps) = self.best(1).first().copied()?;
        let scale = best_tps / swept_tps.max(TPS_MIN);
        let scaled =
            self.points.iter().map(|&(limit, tps)| (limit.get(), tps.max(TPS_MIN) * scale));
        Curve::new(&scaled.collect::<Vec<_>>()).ok().map(|curve| Truth::along(&curve))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(points: &[(u32, f64)]) -> Sweep {
        let points = points.iter().map(|&(limit, tps)| (Mpl::at_least_one(limit), tps));
        Sweep { work: BenchWork::Tpcb1, points: points.collect() }
    }

    #[test]
    fn the_best_come_first_and_of_equals_the_lower() {
        let best = sweep(&[(1, 50.0), (2, 90.0), (4, 100.0), (8, 100.0)]).best(3);
        let limits: Vec<u32> = best.iter().map(|(limit, _)| limit.get()).collect();
        assert_eq!(limits, [4, 8, 2]);
    }

    #[test]
    fn the_truth_is_straight_on_logarithmic_axes_and_scaled_to_the_day() {
        // 100 tps at 2 and 400 at 8; today the best gives 200, so everything is half.
        // At 4, the middle on a logarithmic axis: √(100·400) = 200, halved 100.
        let truth = sweep(&[(2, 100.0), (8, 400.0), (32, 100.0)]).truth(200.0).unwrap();
        for (limit, expected) in [(1, 50.0), (2, 50.0), (4, 100.0), (8, 200.0), (16, 100.0)] {
            let tps = truth.tps(Mpl::at_least_one(limit));
            assert!((tps - expected).abs() < 1e-9 * expected, "{limit}: {tps}");
        }
        assert_eq!(truth.best().0.get(), 8);
    }

    #[test]
    fn the_band_ends_where_the_curve_falls_below() {
        // From 100 at 2 to 200 at 8 throughput goes with the square root of the limit: 95 % of 200
        // is reached from 8·0.95² = 7.2 on. From 200 at 8 to 100 at 32 it falls likewise, and is
        // below 190 after 8/0.95² = 8.9.
        let band = sweep(&[(2, 100.0), (8, 200.0), (32, 100.0)]).band().unwrap();
        assert_eq!((band.0.get(), band.1.get()), (8, 8));
        // A top from 8 to 32, and the same slopes: 7.2 and 32/0.95² = 35.5.
        let band = sweep(&[(2, 100.0), (8, 200.0), (32, 200.0), (128, 100.0)]).band().unwrap();
        assert_eq!((band.0.get(), band.1.get()), (8, 35));
        // What lies beyond the last point is not known.
        let band = sweep(&[(2, 100.0), (8, 200.0)]).band().unwrap();
        assert_eq!((band.0.get(), band.1.get()), (8, 8));
    }

    #[test]
    fn nothing_useful_has_no_truth() {
        let swept = sweep(&[(1, 0.0), (2, 10.0)]);
        assert!(swept.truth(10.0).is_some(), "a limit at which nothing was done");
        for useless in [0.0, f64::NAN, f64::INFINITY] {
            assert!(swept.truth(useless).is_none(), "{useless}");
        }
    }
}
