//! Simulated plants: throughput curves that a controller can be tried on without a database.
//!
//! A closed system of `clients` without think time stands before a gate with a limit, so
//! min(limit, clients) transactions run and the others wait. Throughput follows from that number by
//! a [`Curve`], times a noise factor; the times in the database and in the queue follow from
//! throughput by Little's law. There is no memory from one interval to the next: what a new limit
//! does, it does at once.

use std::time::Duration;

use crate::{ClassObservation, Mpl, Observation, SplitMix64, Timing};

/// A throughput curve: points of (transactions at once, completed transactions per second) in
/// rising order, straight lines between them when both axes are logarithmic, level outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    /// A name for tables.
    pub name: &'static str,
    /// The points; all numbers above 0, levels rising.
    pub points: &'static [(u32, f64)],
}

impl Curve {
    /// A hill, like the study's Figure 3.3a: at least 90 % of the best from 67 to 278, as its
    /// TPCC1-BIGMEM.
    pub const HILL: Curve = Curve {
        name: "hill",
        points: &[
            (1, 330.0),
            (20, 6_000.0),
            (67, 13_900.0),
            (130, 15_400.0),
            (278, 13_900.0),
            (500, 9_000.0),
            (1_000, 3_000.0),
        ],
    };

    /// Level up to 350 transactions, then falling, like Figure 3.3b and the study's DS2.
    pub const FLAT: Curve =
        Curve { name: "flat", points: &[(1, 1_500.0), (350, 1_500.0), (1_000, 600.0)] };

    /// A hill whose far side ends in a flat tail, like Figure 3.3c.
    pub const FLAT_TAIL: Curve = Curve {
        name: "flat tail",
        points: &[
            (1, 400.0),
            (10, 3_000.0),
            (40, 5_000.0),
            (100, 3_600.0),
            (200, 3_000.0),
            (1_000, 3_000.0),
        ],
    };

    /// A slow rise that never ends: N/(N + 9), the closed network of ten equal stations, of which
    /// 81 transactions get 90 %.
    pub const SATURATING: Curve = Curve {
        name: "saturating",
        points: &[
            (1, 100.0),
            (3, 250.0),
            (9, 500.0),
            (21, 700.0),
            (36, 800.0),
            (81, 900.0),
            (171, 950.0),
            (441, 980.0),
            (991, 991.0),
        ],
    };

    /// PostgreSQL 15, TPC-B, scale 1, two cores, as measured: every transaction updates the one
    /// branch row.
    pub const POSTGRES_TPCB: Curve = Curve {
        name: "postgres tpcb",
        points: &[
            (1, 1_100.0),
            (2, 2_720.0),
            (3, 2_330.0),
            (4, 2_380.0),
            (6, 2_380.0),
            (8, 2_280.0),
            (16, 2_050.0),
            (32, 1_730.0),
            (64, 1_290.0),
            (256, 545.0),
            (1_000, 162.0),
        ],
    };

    /// Every curve above.
    pub const ALL: [Curve; 5] =
        [Curve::HILL, Curve::FLAT, Curve::FLAT_TAIL, Curve::SATURATING, Curve::POSTGRES_TPCB];

    /// Throughput with `level` transactions inside; 0 for a curve without points.
    #[must_use]
    pub fn tps(&self, level: Mpl) -> f64 {
        let level = level.get();
        let after = self.points.partition_point(|&(at, _)| at < level);
        let below = after.checked_sub(1).and_then(|index| self.points.get(index));
        match (below, self.points.get(after)) {
            (Some(&low), Some(&high)) => between(low, high, level),
            (Some(&(_, tps)), None) | (None, Some(&(_, tps))) => tps,
            (None, None) => 0.0,
        }
    }
}

/// The point at `level` of the straight line from `low` to `high` on logarithmic axes.
fn between(low: (u32, f64), high: (u32, f64), level: u32) -> f64 {
    let log = |level: u32| f64::from(level).ln();
    let share = (log(level) - log(low.0)) / (log(high.0) - log(low.0));
    low.1 * (high.1 / low.1).powf(share)
}

/// A closed system with a throughput curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plant {
    /// Throughput against transactions inside.
    pub curve: Curve,
    /// Clients without think time: the concurrency.
    pub clients: u32,
    /// Standard deviation of the noise, relative to throughput.
    pub noise: f64,
}

impl Plant {
    /// Throughput at `limit` without noise, transactions per second.
    #[must_use]
    pub fn tps(&self, limit: Mpl) -> f64 {
        self.curve.tps(self.inside(limit))
    }

    /// The highest throughput that any fixed limit gives, transactions per second. It is at a point
    /// of the curve or at the number of clients.
    #[must_use]
    pub fn best_tps(&self) -> f64 {
        let levels = self.curve.points.iter().map(|&(level, _)| level).chain([self.clients]);
        levels.map(|level| self.tps(Mpl::at_least_one(level))).fold(0.0, f64::max)
    }

    /// One second at `limit`.
    pub fn observe(&self, limit: Mpl, random: &mut SplitMix64) -> Observation {
        let factor = (1.0 + self.noise * standard_normal(random)).max(0.0);
        let tps = (self.tps(limit) * factor).round();
        let inside = f64::from(self.inside(limit).get());
        let waiting = f64::from(self.clients) - inside;
        let completions = completions(tps);
        let class = ClassObservation {
            completions,
            failures: 0,
            in_database: constant(completions, inside),
            in_queue: constant(completions, waiting),
        };
        Observation {
            interval: Duration::from_secs(1),
            limit,
            concurrency: self.clients,
            concurrency_peak: self.clients,
            concurrency_mean: f64::from(self.clients),
            running_mean: inside,
            waiting_share: if waiting > 0.0 { 1.0 } else { 0.0 },
            completions,
            failures: 0,
            in_database: class.in_database,
            in_queue: class.in_queue,
            locks: None,
            classes: vec![class],
        }
    }

    fn inside(&self, limit: Mpl) -> Mpl {
        limit.min(Mpl::at_least_one(self.clients))
    }
}

/// A throughput over a second as a count.
fn completions(tps: f64) -> u64 {
    u64::from(crate::controller::whole(tps))
}

/// The durations of a stage that always holds `population` transactions: Little's law, no spread.
fn constant(completions: u64, population: f64) -> Timing {
    if completions == 0 {
        return Timing::default();
    }
    let mean_s = population / completions as f64;
    let (variance_s2, p50_s, p95_s, p99_s) = (0.0, mean_s, mean_s, mean_s);
    Timing { count: completions, mean_s, variance_s2, min_s: mean_s, p50_s, p95_s, p99_s }
}

/// A draw from the standard normal distribution (Box and Muller, 1958).
fn standard_normal(random: &mut SplitMix64) -> f64 {
    let radius = (-2.0 * (1.0 - random.next_draw().value()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.next_draw().value()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tps(curve: Curve, level: u32) -> f64 {
        curve.tps(Mpl::at_least_one(level))
    }

    #[track_caller]
    fn assert_near(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-6 * right, "{left} is not {right}");
    }

    #[test]
    fn a_curve_passes_through_its_points_and_is_straight_between_them_on_log_axes() {
        const CURVE: Curve = Curve { name: "test", points: &[(2, 100.0), (8, 400.0), (32, 100.0)] };
        for (level, expected) in
            [(1, 100.0), (2, 100.0), (4, 200.0), (8, 400.0), (16, 200.0), (32, 100.0), (33, 100.0)]
        {
            assert_near(tps(CURVE, level), expected);
        }
        assert_near(1.0 + tps(Curve { name: "empty", points: &[] }, 1), 1.0);
    }

    #[test]
    fn every_curve_is_a_curve() {
        for curve in Curve::ALL {
            assert!(curve.points.is_sorted_by(|low, high| low.0 < high.0), "{}", curve.name);
            assert!(curve.points.iter().all(|&(level, tps)| level > 0 && tps > 0.0));
        }
    }

    #[test]
    fn the_saturating_curve_is_the_closed_network_of_ten_stations() {
        for &(level, tps) in Curve::SATURATING.points {
            let stations = 1_000.0 * f64::from(level) / f64::from(level + 9);
            assert_near(tps, stations);
        }
    }

    #[test]
    fn the_best_throughput_is_no_less_than_at_any_limit() {
        for curve in Curve::ALL {
            for clients in [1, 5, 100, 2_000] {
                let plant = Plant { curve, clients, noise: 0.0 };
                let every = (1..=2_000).map(|limit| plant.tps(Mpl::at_least_one(limit)));
                assert_near(plant.best_tps(), every.fold(0.0, f64::max));
            }
        }
    }

    #[test]
    fn an_observation_obeys_the_limit_the_clients_and_littles_law() {
        let plant = Plant { curve: Curve::POSTGRES_TPCB, clients: 20, noise: 0.0 };
        let random = &mut SplitMix64::new(1);
        let seen = plant.observe(Mpl::at_least_one(4), random);
        assert_eq!((seen.completions, seen.concurrency, seen.concurrency_peak), (2_380, 20, 20));
        assert_near(seen.in_database.mean_s * 2_380.0, 4.0);
        assert_near(seen.in_queue.mean_s * 2_380.0, 16.0);
        let above = plant.observe(Mpl::at_least_one(100), random);
        assert_eq!(above.completions, plant.observe(Mpl::at_least_one(20), random).completions);
    }

    #[test]
    fn noise_has_the_mean_and_the_deviation_asked_for() {
        let plant = Plant { curve: Curve::FLAT, clients: 10, noise: 0.05 };
        let random = &mut SplitMix64::new(1);
        let factors: Vec<f64> = (0..10_000)
            .map(|_| plant.observe(Mpl::ONE, random).throughput_tps() / 1_500.0)
            .collect();
        let mean = factors.iter().sum::<f64>() / 10_000.0;
        let squares = factors.iter().map(|factor| (factor - mean).powi(2)).sum::<f64>();
        // Five standard errors: 0.05/√10,000 for the mean, 0.05/√20,000 for the deviation.
        assert!((mean - 1.0).abs() < 0.0025, "{mean}");
        assert!(((squares / 10_000.0).sqrt() - 0.05).abs() < 0.0018);
    }
}
