//! Limiters in use today, which judge a limit by latency: the baselines of every comparison.
//!
//! # Mechanism
//! All of them watch how long a transaction takes inside, and take a latency above what no load
//! would give for a queue somewhere inside, which a lower limit would keep outside.
//!
//! | limiter | latency of no load | of that, accepted | limits |
//! | --- | --- | --- | --- |
//! | [`Aimd`] | none: 5 s at any load | | 20 to 200 |
//! | [`Vegas`] | the shortest of the last 30·L transactions | 3 to 6 in the queue | 1 to 1000 |
//! | [`Gradient2`] | an average of 600 windows | 1.5 times, and 4 more | 20 to 200 |
//! | [`EnvoyGradient`] | with 3 inside, each minute | 1.25 times, and √L more | 3 to 1000 |
//! | [`Failsafe`] | an average of 10 windows | 3 to 6 in the queue | 1 to 200 |
//!
//! The head of each file has the rule, worked through, with the source it was read from.
//!
//! # Example
//! Two databases, as throughput with n transactions inside. In the first all of them update one
//! row: 2,700/(1 + n/64) a second, and 1,100 with one, which is PostgreSQL with TPC-B of scale 1.
//! There 2 inside are best. The second is a network of ten equal stations, 1,000·n/(n + 9), where
//! 81 inside get 90 %. Each limiter starts at 20 and runs for ten minutes. The limits are those of
//! the second five minutes, the shares those of the best throughput in that time, which is 1,000
//! with the stations (the test `what_they_make_of_two_databases`):
//!
//! | limiter | one row | share | ten stations | share |
//! | --- | --- | --- | --- | --- |
//! | [`Aimd`] | 200 | 25 % | 200 | 96 % |
//! | [`Vegas`] | 8 | 92 % | 8 | 47 % |
//! | [`Gradient2`] | 52 to 76, rising | 52 % | 79 to 136, rising | 92 % |
//! | [`EnvoyGradient`] | 3 to 5 | 96 % | 3 to 11 | 53 % |
//! | [`Failsafe`] | 1 to 20 | 80 % | 7 to 36 | 64 % |
//!
//! None is good at both. With both the latency rises with the limit from the first transaction on;
//! whether more is done meanwhile is not to be seen in it.
//!
//! # Where this leaves the sources
//! For all of them; what concerns one only is said there.
//!
//! * **Windows.** A control interval is one window. Inflight is the peak of the permits that were
//!   out: the concurrency's peak, cut to the limit in force.
//! * **Latency** is the time in the database. Waiting for a permit is no part of it, as it is none
//!   of the sources', where a call that gets no permit is refused.
//! * **Drops.** The sources learn from calls that the other side refused or that ran into a
//!   timeout. There are no such here: the gate queues and does not refuse, and what an observation
//!   calls a failure is an error of SQL, a duplicate key or a deadlock, which says nothing of the
//!   load by itself. So nothing is dropped, ever.
//! * **The limit in force** is the one to go on from. Only with a limit set by somebody else does
//!   this differ from the sources.
//! * **Limits of their own** are part of the rule and stand in each settings' `lowest` and
//!   `highest`. Only those that are in the bounds as well are used; if there are none, the nearest
//!   bound.
//! * **No cap at the concurrency.** The other controllers here do not let the limit exceed the
//!   transactions running and waiting. The sources do, each in its own way, and so they do here.
//!
//! # Limits
//! Latency says that transactions wait inside, not what for. Where they wait for each other's locks
//! the queue is real, and a low limit is right. Where some are just longer than others, or use
//! another processor or disk than the ones before them, it is not, and the limit is too low. None
//! looks at throughput, except for the inflight/latency that [`Failsafe`] calls so.

mod aimd;
mod envoy_gradient;
mod failsafe;
mod gradient2;
mod queue;
mod vegas;
mod window;

#[cfg(test)]
pub(super) mod testing;

use crate::reason::{Milliseconds, reasons};

pub use aimd::{Aimd, AimdReason, AimdSettings};
pub use envoy_gradient::{EnvoyGradient, EnvoyGradientSettings, EnvoyReason};
pub use failsafe::{Failsafe, FailsafeReason, FailsafeSettings};
pub use gradient2::{Gradient2, Gradient2Settings};
pub use queue::QueueReading;
pub use vegas::{Vegas, VegasReason, VegasSettings};

reasons! {
    /// Why a limit was chosen.
    pub enum LatencyReason {
        /// The limit stays: too few transactions ended.
        FewSamples {
            /// Transactions that ended.
            samples: u64,
        } = "few_samples" => "hold: only {samples} transactions ended";
        /// The limit stays: the interval tells no latency that could be one.
        NoLatency = "no_latency" => "hold: no latency known";
        /// The limit stays: less than half of it was in use.
        Unused {
            /// The most permits that were out at once.
            inflight: u32,
        } = "unused" => "hold: {inflight} inside, less than half the limit";
        /// AIMD: additive increase, multiplicative decrease.
        Aimd(reason: AimdReason) = reason.kind() => "{reason}";
        /// TCP Vegas: the limit follows the estimated length of the queue.
        Vegas(reason: VegasReason) = reason.kind() => "{reason}";
        /// Gradient2 applied its gradient.
        Gradient2 {
            /// From 0.5 to 1.
            gradient: f64,
            /// Mean latency of the window, seconds.
            short_s: f64,
            /// The long average of it, seconds.
            long_s: f64,
        } = "gradient2" => "gradient2: gradient {gradient:.2}, {} against {} before",
            Milliseconds(short_s), Milliseconds(long_s);
        /// Envoy's gradient controller.
        Envoy(reason: EnvoyReason) = reason.kind() => "{reason}";
        /// The adaptive limiter of failsafe-go.
        Failsafe(reason: FailsafeReason) = reason.kind() => "{reason}";
    }
}

#[cfg(test)]
mod tests {
    use super::testing::window;
    use super::*;
    use crate::controller::whole;
    use crate::testing::bounds;
    use crate::{Bounds, Controller, Mpl, Observation, Reason, SplitMix64};

    fn limiters(bounds: Bounds) -> [Box<dyn Controller>; 5] {
        let start = Mpl::at_least_one(20);
        [
            Box::new(Aimd::new(bounds, start, AimdSettings::PUBLISHED)),
            Box::new(Vegas::new(bounds, start, VegasSettings::PUBLISHED)),
            Box::new(Gradient2::new(bounds, start, Gradient2Settings::PUBLISHED)),
            Box::new(EnvoyGradient::new(bounds, start, EnvoyGradientSettings::PUBLISHED)),
            Box::new(Failsafe::new(bounds, start, FailsafeSettings::PUBLISHED)),
        ]
    }

    /// A throughput curve, transactions per second.
    type Tps = fn(f64) -> f64;

    /// All update one row. PostgreSQL 15 with TPC-B of scale 1 on two processors was measured
    /// within 11 % of this from 2 to 1,000 inside ([`crate::plant::Curve::POSTGRES_TPCB`]).
    fn one_row_tps(inside: f64) -> f64 {
        if inside < 2.0 { 1_100.0 } else { 2_700.0 / (1.0 + inside / 64.0) }
    }

    /// A closed network of ten equal stations.
    fn ten_stations_tps(inside: f64) -> f64 {
        1_000.0 * inside / (inside + 9.0)
    }

    /// A second at `limit` with 1,000 clients. A latency is 0.3 of the mean and an exponential 0.7
    /// of it: the median is at 0.3 + 0.7·ln 2, the 95th percentile at 0.3 + 0.7·ln 20. The shortest
    /// of so many is 0.3.
    fn second(tps: f64, limit: Mpl) -> Observation {
        let mean_s = f64::from(limit.get()) / tps;
        let mut seen = window(limit.get(), 1_000, mean_s);
        seen.completions = u64::from(whole(tps));
        let timing = &mut seen.in_database;
        timing.count = seen.completions;
        timing.min_s = 0.3 * mean_s;
        timing.p50_s = 0.785 * mean_s;
        timing.p95_s = 2.397 * mean_s;
        seen
    }

    /// The lowest and the highest limit of the last five minutes of ten, and their mean throughput
    /// as a share of `best`. Throughput varies by up to 5 % from second to second.
    fn ten_minutes(limiter: &mut dyn Controller, curve: Tps, best: f64) -> (u32, u32, f64) {
        let random = &mut SplitMix64::new(7);
        let mut limit = limiter.start();
        let (mut low, mut high, mut tps) = (u32::MAX, 0, 0.0);
        for at in 0..600 {
            let expected = curve(f64::from(limit.get()));
            if at >= 300 {
                (low, high) = (low.min(limit.get()), high.max(limit.get()));
                tps += expected / 300.0;
            }
            let noise = 0.95 + 0.1 * random.next_draw().value();
            limit = limiter.decide(&second(expected * noise, limit), random.next_draw()).limit;
        }
        (low, high, tps / best)
    }

    /// The table of the module's head.
    #[test]
    fn what_they_make_of_two_databases() {
        let one_row =
            [(200, 200, 0.250), (8, 8, 0.917), (52, 76, 0.520), (3, 5, 0.957), (1, 20, 0.799)];
        let ten_stations =
            [(200, 200, 0.957), (8, 8, 0.471), (79, 136, 0.920), (3, 11, 0.532), (7, 36, 0.644)];
        let databases = [
            (one_row_tps as Tps, one_row_tps(2.0), one_row),
            (ten_stations_tps, 1_000.0, ten_stations),
        ];
        for (curve, best, table) in databases {
            for (mut limiter, expected) in limiters(bounds(1, 1_000)).into_iter().zip(table) {
                let (low, high, share) = ten_minutes(limiter.as_mut(), curve, best);
                let name = limiter.name();
                assert_eq!((low, high), (expected.0, expected.1), "{name}");
                assert!((share - expected.2).abs() < 0.001, "{name}: {share}");
            }
        }
    }

    #[test]
    fn all_of_them_stay_in_bounds_that_have_none_of_their_limits() {
        for (min, max) in [(2, 2), (5_000, 6_000)] {
            for mut limiter in limiters(bounds(min, max)) {
                let mut limit = limiter.start();
                for mean_s in [0.01, 0.01, 0.1, 10.0, 1e-6, f64::NAN, 0.01] {
                    assert!((min..=max).contains(&limit.get()), "{}: {limit}", limiter.name());
                    let seen = window(limit.get(), 10_000, mean_s);
                    limit = limiter.decide(&seen, SplitMix64::new(7).next_draw()).limit;
                }
            }
        }
    }

    /// Mean, mean, mean, median and 95th percentile: with no other they decide, and without it not.
    #[test]
    fn each_looks_at_its_own_latency() {
        let only = |index: usize| {
            let one = |at: usize| if at == index { 0.01 } else { f64::NAN };
            let mut seen = window(20, 20, 0.01);
            let timing = &mut seen.in_database;
            (timing.mean_s, timing.p50_s, timing.p95_s) = (one(0), one(1), one(2));
            (timing.variance_s2, timing.p99_s) = (f64::NAN, f64::NAN);
            seen
        };
        let draw = SplitMix64::new(7).next_draw();
        for (number, own) in [0, 0, 0, 1, 2].into_iter().enumerate() {
            for index in 0..3 {
                let mut limiters = limiters(bounds(1, 1_000));
                let decision = limiters[number].decide(&only(index), draw);
                let is_lost = decision.reason == Reason::Latency(LatencyReason::NoLatency);
                assert_eq!(is_lost, index != own, "{} {index}", limiters[number].name());
            }
        }
    }
}
