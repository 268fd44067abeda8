//! The reference: what throughput and response time would be without a limit, estimated from
//! windows with one.
//!
//! # Throughput
//! In the balanced model (see [`crate::models::throughput`]) N transactions complete
//! X(N) = A·N/(N + m) a second, with A the most there can be and m = M − 1. Then the time in the
//! database, N/X(N) = a + b·N with b = 1/A and a = m/A, is a straight line. So the windows of a
//! search are points of a line, which least squares fit, a and b not below 0; relative errors are
//! squared, because throughput is measured to a fraction. With no limit all C transactions that run
//! or wait would be inside, and throughput would be C/(a + b·C).
//!
//! One window gives no line. The model gives what is missing: N transactions should get the share
//! b·X = N/(N + m) of the most, with m = M − 1. That counts as a tenth of a window: it decides at
//! first, and yields as soon as windows are far enough apart to know better. Older windows, and the
//! model with them, fade by a twentieth with each new one.
//!
//! The line knows nothing of thrashing, and a database that thrashes without a limit has been
//! faster with one. So the reference is no less than the best throughput seen: the highest of the
//! lower ends of the windows' confidence intervals, or it would be the luckiest window and not the
//! best.
//!
//! Example, M = 4, 100 transactions: 57 inside give 950 tps. The model says a = 3 ms and b = 1 ms,
//! so 100/(0.003 + 0.1) = 971 tps without a limit. Steps of 2 down to 35 see 950 tps as well. The
//! line through all of them almost goes through the origin, a = 0.5 ms, and the reference has come
//! down to 956 tps.
//!
//! # Response time
//! While the queue is no longer than the allowed increase times those inside, a transaction would
//! gain no more than that from having no queue at all: such a window shows the response time
//! without a limit. The reference is the best of them: the lowest of the upper ends.

use super::window::WindowMeasurement;
use crate::Mpl;

/// What the model's word weighs, in windows.
const MODEL_WEIGHT: f64 = 0.1;

/// What remains of a window's weight when the next one comes.
const FADE: f64 = 0.95;

/// What a search has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ThroughputReference {
    line: RegressionSums,
    best: Option<BestLimit>,
    unqueued_response_s: Option<f64>,
}

/// The limit with the best throughput that is sure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BestLimit {
    pub(super) limit: Mpl,
    pub(super) tps: f64,
}

/// Faded sums of the normal equations of a/y + b·N/y ≈ 1, where y = N/X is the time in the
/// database: the regressors are X/N and X.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RegressionSums {
    aa: f64,
    ab: f64,
    bb: f64,
    a: f64,
    b: f64,
}

impl ThroughputReference {
    /// Takes in a window; `neighbours` is m of the model.
    pub(super) fn learn(
        &mut self,
        seen: &WindowMeasurement,
        neighbours: f64,
        allowed_increase: f64,
    ) {
        let sure_tps = (seen.tps.mean - seen.tps.half_width).max(0.0);
        if self.best.is_none_or(|best| sure_tps > best.tps) {
            self.best = Some(BestLimit { limit: seen.limit, tps: sure_tps });
        }
        let waiting = seen.concurrency - seen.running;
        if waiting <= allowed_increase * seen.running {
            let sure_s = seen.response_s.mean + seen.response_s.half_width;
            let best_s = self.unqueued_response_s.unwrap_or(f64::INFINITY);
            self.unqueued_response_s = Some(best_s.min(sure_s));
        }
        if seen.is_saturated {
            self.line.add(f64::from(seen.limit.get()), seen.tps.mean, neighbours);
        }
    }

    /// Throughput without a limit when `concurrency` transactions run or wait.
    pub(super) fn tps(&self, concurrency: f64) -> f64 {
        self.line.tps(concurrency).max(self.best.map_or(0.0, |best| best.tps))
    }

    /// The best throughput seen.
    pub(super) fn best(&self) -> Option<BestLimit> {
        self.best
    }

    /// Mean response time without a limit, seconds; none while every window had a queue.
    pub(super) fn response_s(&self) -> Option<f64> {
        self.unqueued_response_s
    }
}

impl RegressionSums {
    fn add(&mut self, level: f64, tps: f64, neighbours: f64) {
        let is_first = self.bb == 0.0;
        for sum in [&mut self.aa, &mut self.ab, &mut self.bb, &mut self.a, &mut self.b] {
            *sum *= FADE;
        }
        let (per_a, per_b) = (tps / level, tps);
        self.aa += per_a * per_a;
        self.ab += per_a * per_b;
        self.bb += per_b * per_b;
        self.a += per_a;
        self.b += per_b;
        if is_first {
            self.bb += MODEL_WEIGHT * per_b * per_b;
            self.b += MODEL_WEIGHT * per_b * level / (level + neighbours);
        }
    }

    /// The line at `concurrency`, as throughput; 0 when there is no point.
    fn tps(&self, concurrency: f64) -> f64 {
        if self.bb == 0.0 {
            return 0.0;
        }
        let determinant = self.aa * self.bb - self.ab * self.ab;
        let a = (self.a * self.bb - self.b * self.ab) / determinant;
        let b = (self.b * self.aa - self.a * self.ab) / determinant;
        let (a, b) = if b < 0.0 {
            (self.a / self.aa, 0.0)
        } else if a >= 0.0 && b.is_finite() {
            (a, b)
        } else {
            (0.0, self.b / self.bb)
        };
        1.0 / (a / concurrency + b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::external_scheduling::window::Estimate;

    /// A window of 100 transactions at `limit`, all waiting or inside.
    fn window(limit: u32, tps: f64, half_width: f64) -> WindowMeasurement {
        WindowMeasurement {
            limit: Mpl::at_least_one(limit),
            tps: Estimate { mean: tps, half_width },
            response_s: Estimate { mean: 100.0 / tps, half_width: 0.0 },
            concurrency: 100.0,
            running: f64::from(limit),
            is_saturated: true,
        }
    }

    fn reference(windows: impl IntoIterator<Item = WindowMeasurement>) -> ThroughputReference {
        let mut reference = ThroughputReference::default();
        for seen in windows {
            reference.learn(&seen, 3.0, 0.05);
        }
        reference
    }

    #[track_caller]
    fn assert_near(left: f64, right: f64) {
        assert!((left / right - 1.0).abs() < 1e-3, "{left} is not {right}");
    }

    /// The example of the module's head.
    #[test]
    fn the_model_decides_until_the_windows_know_better() {
        assert_near(reference([window(57, 950.0, 0.0)]).tps(100.0), 970.9);
        let level = (35..=57).rev().step_by(2).map(|limit| window(limit, 950.0, 0.0));
        assert_near(reference(level).tps(100.0), 955.9);
    }

    /// Ten stations where the model has four: the curve 1,000·N/(N + 9) is found from the windows.
    /// At 100 it has 917 tps, the model would say 833·103/100·100/103 = 833 from 30 alone.
    #[test]
    fn the_line_corrects_a_model_with_too_few_stations() {
        let tps = |limit: u32| 1_000.0 * f64::from(limit) / (f64::from(limit) + 9.0);
        let windows = (2..=30).step_by(2).map(|limit| window(limit, tps(limit), 0.0));
        let found = reference(windows).tps(100.0);
        assert!((found / 917.4 - 1.0).abs() < 0.01, "{found}");
        let model = reference([window(30, tps(30), 0.0)]).tps(100.0);
        assert!(model < 850.0, "{model}");
    }

    /// Throughput in proportion to the limit: no end in sight, so 100 would give 100 times one.
    #[test]
    fn a_rise_without_a_bend_promises_as_much_for_all() {
        let windows = (1..=40).map(|limit| window(limit, 10.0 * f64::from(limit), 0.0));
        let found = reference(windows).tps(100.0);
        assert!((800.0..=1_000.0).contains(&found), "{found}");
    }

    /// Thrashing: from 10 to 40 throughput halves, and the line would say less still. The reference
    /// is what was sure at 10: 1,000 less 50.
    #[test]
    fn the_reference_is_no_less_than_the_best_that_is_sure() {
        let windows = [(10, 1_000.0), (20, 800.0), (40, 500.0)];
        let reference = reference(windows.map(|(limit, tps)| window(limit, tps, 50.0)));
        assert_near(reference.tps(100.0), 950.0);
        let best = reference.best().expect("three windows");
        assert_eq!(best.limit, Mpl::at_least_one(10));
    }

    /// One waits for twenty inside, 5 %: there the response time is that without a limit.
    #[test]
    fn response_time_is_learnt_where_hardly_anybody_waits() {
        for (running, known) in [(20.0, true), (19.9, false), (21.0, true)] {
            let seen = WindowMeasurement { concurrency: 21.0, running, ..window(30, 100.0, 0.0) };
            assert_eq!(reference([seen]).response_s(), known.then_some(1.0));
        }
    }
}
