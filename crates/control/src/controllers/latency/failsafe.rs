//! failsafe-go's adaptive limiter: the queue of Vegas against a baseline that moves, and two
//! correlations against the drift upward that this causes.
//!
//! # Mechanism
//! failsafe-go, `adaptivelimiter/adaptivelimiter.go`. Each window gives a high quantile of the
//! latencies, in two steps made smooth: the median of the last five windows (of the window alone
//! while there are fewer), then a moving average over 5. That is RTT. The baseline is a moving
//! average of RTT over 10 windows. The queue is ⌈L·(1 − baseline/RTT)⌉, with log10, α and β as in
//! [`super::queue`]. The first case that holds decides:
//!
//! | case | next limit |
//! | --- | --- |
//! | queue > β | L − log10 L |
//! | full, and corr(inflight, throughput) < 0 | L − log10 L |
//! | full, and that < 0.3, and corr(inflight, RTT) > 0.5 | L − log10 L |
//! | full, and throughput varies by < 0.2, and corr(inflight, RTT) > 0.5 | L − log10 L |
//! | queue < α | L + log10 L |
//! | otherwise | L |
//!
//! If that is above 5·inflight it is L − log10 L instead. All is cut to [1, 200].
//!
//! Throughput is inflight/RTT by Little's law, not a count. Correlations are Pearson's, over the
//! last 50 windows; they are 0 before the tenth window, and where inflight or the other varies by
//! less than 1 %. `full` means that at the window's end no permit was left.
//!
//! # Example
//! At 20 after ten windows of 1 s: a window of 3 s, and another, change nothing, because the median
//! of five is still 1 s. With the third it is 3 s, RTT is 1 + 2/3 s, the baseline 1 + 4/33 s, and
//! the queue ⌈20·(1 − 1.12/1.67)⌉ = 7: down to 19. Had the latency doubled only, the queue would
//! never have been more than 6, and nothing would have happened.
//!
//! # Where this leaves the source
//! * **Quantile.** The source takes the 90th percentile. An interval carries the 95th, which is the
//!   nearest. Only its ratio to its own past counts.
//! * **Windows.** The source's lasts from 1 to 30 s, at least twice the shortest latency, and until
//!   50 have ended. Here it is the control interval, which stretches likewise; one with fewer than
//!   50 is left out, because its quantile cannot be joined with the next.
//! * **Full** is that running and waiting transactions reach the limit at the interval's end.
//! * **Sums.** The source keeps running sums for its correlations. Here they are computed from the
//!   50 values each time, which does not accumulate rounding.
//!
//! # Limits
//! * The baseline follows an overload within about 10 windows, and then limiting stops (#127).
//! * The correlations only know the last 50 windows. Where latency and inflight have stayed the
//!   same for so long there is nothing to correlate, and the limit rises until there is.

use super::LatencyReason;
use super::queue::QueueReading;
use super::window::{LatencyWindow, MovingAverage, range};
use crate::parameters::{Allowed, check_limits, settings};
use crate::reason::reasons;
use crate::{Bounds, Controller, Decision, Draw, Mpl, Observation, Reason};

settings! {
    /// The parameters of [`Failsafe`].
    pub struct FailsafeSettings, checked by |own| check_limits(own.lowest, own.highest);

    /// The defaults of `adaptivelimiter.NewBuilder`.
    pub const PUBLISHED;

    lowest: Mpl = Mpl::at_least_one(1), "lowest", "transactions", Allowed::Whole(1, 1_000_000),
        "lowest limit of the published rule";
    highest: Mpl = Mpl::at_least_one(200), "highest", "transactions", Allowed::Whole(1, 1_000_000),
        "highest limit of the published rule";
    samples: u64 = 50, "samples", "transactions", Allowed::Whole(1, 1_000_000),
        "least number of transactions in an interval for a decision";
    shortest_s: f64 = 0.0, "shortest", "s", Allowed::Number(0.0, 1e3),
        "least latency of an interval for a decision";
    limit_by_inflight_max: f64 = 5.0, "inflight", "factor", Allowed::Number(1.0, 1e4),
        "largest limit, as a multiple of the transactions inside";
    baseline_windows: u32 = 10, "windows", "intervals", Allowed::Whole(1, 100_000),
        "length of the baseline";
}

/// Windows that the median is taken of, and length of the average that follows it.
const SMOOTHED: u32 = 5;

/// Windows that the correlations are computed from.
const CORRELATED: usize = 50;

/// Windows without which there is no correlation.
const WARM_UP: usize = 10;

/// Relative deviation below which a series does not vary.
const STEADY: f64 = 0.01;

/// The adaptive limiter, as failsafe-go has it.
#[derive(Clone, Debug)]
pub struct Failsafe {
    range: Bounds,
    start: Mpl,
    settings: FailsafeSettings,
    quantiles_s: RecentValues<{ SMOOTHED as usize }>,
    smoothed_s: MovingAverage,
    baseline_s: MovingAverage,
    inflight: RecentValues<CORRELATED>,
    rtt_s: RecentValues<CORRELATED>,
    throughput: RecentValues<CORRELATED>,
}

reasons! {
    /// Why failsafe-go's limiter moved or stayed.
    pub enum FailsafeReason {
        /// Up by a step, because the queue is below α.
        Up(reading: QueueReading) = "failsafe_up" =>
            "failsafe: {reading}, up by {}", reading.step;
        /// The queue is what it should be.
        Hold(reading: QueueReading) = "failsafe_hold" => "failsafe: {reading}, hold";
        /// Down by a step, because the queue is above β.
        Down(reading: QueueReading) = "failsafe_down" =>
            "failsafe: {reading}, down by {}", reading.step;
        /// Down by a step, because throughput falls as inflight rises.
        ThroughputFalls {
            /// Of inflight and throughput.
            correlation: f64,
        } = "failsafe_throughput_falls" =>
            "failsafe: throughput falls with inflight ({correlation:.2}), down";
        /// Down by a step, because latency rises with inflight and throughput does not.
        LatencyRises {
            /// Correlation of inflight and latency.
            latency: f64,
            /// Correlation of inflight and throughput.
            correlation: f64,
            /// Relative deviation of throughput.
            variation: f64,
        } = "failsafe_latency_rises" =>
            "failsafe: latency rises with inflight ({latency:.2}), throughput less \
             ({correlation:.2}, varies by {variation:.2}), down";
        /// Down by a step, because the limit would be too many times inflight.
        Headroom {
            /// The most permits that were out at once.
            inflight: u32,
        } = "failsafe_headroom" => "failsafe: limit far above the {inflight} inside, down";
    }
}

/// What the windows so far tell.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Signals {
    reading: QueueReading,
    is_full: bool,
    /// Inflight and throughput.
    throughput: SeriesTrend,
    /// Inflight and RTT.
    rtt: SeriesTrend,
}

impl Failsafe {
    /// A limiter within `bounds` and its own limits; the published one starts at 20.
    #[must_use]
    pub fn new(bounds: Bounds, start: Mpl, settings: FailsafeSettings) -> Failsafe {
        let range = range(settings.lowest, settings.highest, bounds);
        Failsafe {
            range,
            start: range.clamp(start),
            settings,
            quantiles_s: RecentValues::EMPTY,
            smoothed_s: MovingAverage::over(SMOOTHED),
            baseline_s: MovingAverage::over(settings.baseline_windows),
            inflight: RecentValues::EMPTY,
            rtt_s: RecentValues::EMPTY,
            throughput: RecentValues::EMPTY,
        }
    }

    /// Takes a window with this quantile of latencies in.
    fn learn(&mut self, limit: Mpl, quantile_s: f64, inflight: u32, is_full: bool) -> Signals {
        self.quantiles_s.push(quantile_s);
        let rtt_s = self.smoothed_s.add(self.quantiles_s.median_when_full().unwrap_or(quantile_s));
        let reading = QueueReading::at(limit, self.baseline_s.add(rtt_s), rtt_s);
        self.inflight.push(f64::from(inflight));
        self.rtt_s.push(rtt_s);
        self.throughput.push(f64::from(inflight) / rtt_s);
        Signals {
            reading,
            is_full,
            throughput: SeriesTrend::of(self.inflight.values(), self.throughput.values()),
            rtt: SeriesTrend::of(self.inflight.values(), self.rtt_s.values()),
        }
    }

    /// The next limit: the change, unless the limit is too far above inflight.
    fn step(&self, limit: Mpl, signals: Signals, inflight: u32) -> (u32, FailsafeReason) {
        let (change, reason) = signals.judge();
        let (level, step) = (limit.get(), signals.reading.step);
        let down = level.saturating_sub(step);
        let next = match change {
            Move::Up => level.saturating_add(step),
            Move::Stay => level,
            Move::Down => down,
        };
        if f64::from(next) > self.settings.limit_by_inflight_max * f64::from(inflight) {
            return (down, FailsafeReason::Headroom { inflight });
        }
        (next, reason)
    }
}

/// Which way the limit goes, by log10 L.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Up,
    Stay,
    Down,
}

impl Signals {
    /// The first case that holds.
    fn judge(self) -> (Move, FailsafeReason) {
        let Signals { reading, is_full, throughput, rtt } = self;
        let is_latency_rising = is_full && rtt.correlation > 0.5;
        let correlation = throughput.correlation;
        if reading.is_long() {
            (Move::Down, FailsafeReason::Down(reading))
        } else if is_full && correlation < 0.0 {
            (Move::Down, FailsafeReason::ThroughputFalls { correlation })
        } else if is_latency_rising && (correlation < 0.3 || throughput.variation < 0.2) {
            let (latency, variation) = (rtt.correlation, throughput.variation);
            (Move::Down, FailsafeReason::LatencyRises { latency, correlation, variation })
        } else if reading.is_short() {
            (Move::Up, FailsafeReason::Up(reading))
        } else {
            (Move::Stay, FailsafeReason::Hold(reading))
        }
    }
}

impl Controller for Failsafe {
    fn name(&self) -> &'static str {
        "failsafe"
    }

    fn start(&self) -> Mpl {
        self.start
    }

    fn decide(&mut self, observation: &Observation, _draw: Draw) -> Decision {
        let limit = self.range.clamp(observation.limit);
        let FailsafeSettings { samples, shortest_s, .. } = self.settings;
        let high_s = observation.in_database.p95_s;
        let window = match LatencyWindow::read(observation, high_s, samples, shortest_s) {
            Ok(window) => window,
            Err(reason) => return Decision { limit, reason },
        };
        let is_full = observation.concurrency >= observation.limit.get();
        let signals = self.learn(limit, window.rtt_s, window.inflight, is_full);
        let (next, reason) = self.step(limit, signals, window.inflight);
        let limit = self.range.clamp(Mpl::at_least_one(next));
        Decision { limit, reason: Reason::Latency(LatencyReason::Failsafe(reason)) }
    }
}

/// The last N values of a series, in no order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RecentValues<const N: usize> {
    values: [f64; N],
    /// Values so far; more than N when old ones have been overwritten.
    count: usize,
}

impl<const N: usize> RecentValues<N> {
    const EMPTY: RecentValues<N> = RecentValues { values: [0.0; N], count: 0 };

    fn push(&mut self, value: f64) {
        self.values[self.count % N] = value;
        self.count += 1;
    }

    fn values(&self) -> &[f64] {
        &self.values[..self.count.min(N)]
    }

    /// The middle value, once there are N.
    fn median_when_full(&self) -> Option<f64> {
        let mut sorted = self.values;
        sorted.sort_by(f64::total_cmp);
        (self.count >= N).then_some(sorted[N / 2])
    }
}

/// How one series moves with another, and whether it moves at all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct SeriesTrend {
    /// Pearson's coefficient; 0 where one of the two hardly varies, or there are too few.
    correlation: f64,
    /// The relative deviation of the second series; 0 where there are too few.
    variation: f64,
}

impl SeriesTrend {
    fn of(xs: &[f64], ys: &[f64]) -> SeriesTrend {
        if xs.len() < WARM_UP {
            return SeriesTrend::default();
        }
        let count = xs.len() as f64;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(xs), mean(ys));
        let spread = |values: &[f64], mean: f64| {
            (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
        };
        let (spread_x, spread_y) = (spread(xs, mean_x), spread(ys, mean_y));
        let variation = spread_y / mean_y;
        if spread_x < STEADY * mean_x || variation < STEADY {
            return SeriesTrend { correlation: 0.0, variation };
        }
        let products = xs.iter().zip(ys).map(|(x, y)| (x - mean_x) * (y - mean_y));
        let covariance = products.sum::<f64>() / count;
        SeriesTrend { correlation: covariance / (spread_x * spread_y), variation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::latency::testing::window;
    use crate::testing::{bounds, decided};

    fn published() -> Failsafe {
        let start = Mpl::at_least_one(20);
        Failsafe::new(bounds(1, 1_000), start, FailsafeSettings::PUBLISHED)
    }

    /// The next limits after windows of these latencies, all at 20 with 19 inside at the end.
    fn answers(latencies_s: &[f64]) -> Vec<u32> {
        let mut limiter = published();
        let answer = |&rtt_s: &f64| {
            let mut seen = window(20, 20, rtt_s);
            seen.concurrency = 19;
            decided(&mut limiter, &seen).0
        };
        latencies_s.iter().map(answer).collect()
    }

    /// The example of the module's head, to the windows after: RTT 1.667, 2.111, 2.407 s against
    /// baselines of 1.121, 1.301, 1.502 s are queues of 7, 8 and 8.
    #[test]
    fn a_latency_that_trebles_is_seen_in_the_third_window() {
        let latencies_s = [[1.0; 10].as_slice(), &[3.0; 5]].concat();
        assert_eq!(answers(&latencies_s)[9..], [21, 21, 21, 19, 19, 19]);
    }

    /// RTT 1.333, 1.556, 1.704, 1.802 s against baselines of 1.061, 1.151, 1.251, 1.351 s:
    /// queues of 5, 6, 6 and 6.
    #[test]
    fn a_latency_that_doubles_is_borne() {
        let latencies_s = [[1.0; 10].as_slice(), &[2.0; 6]].concat();
        assert_eq!(answers(&latencies_s)[9..], [21, 21, 21, 20, 20, 20, 20]);
    }

    /// (#127) The latency trebles and stays so: the limit falls, stays, and then rises again.
    #[test]
    fn the_baseline_drifts_to_the_overload() {
        let latencies_s = [[1.0; 10].as_slice(), &[3.0; 40]].concat();
        let answers = answers(&latencies_s);
        let first = |wanted: u32, from: usize| {
            answers[from..].iter().position(|&limit| limit == wanted).map(|index| from + index)
        };
        let falls = first(19, 10).expect("it falls");
        let stays = first(20, falls).expect("it stays");
        let rises = first(21, stays).expect("it rises");
        assert!(falls == 12 && rises < 40, "{falls} {stays} {rises}");
        assert!(answers[rises..].iter().all(|&limit| limit == 21));
    }

    #[test]
    fn each_case_of_the_rule() {
        let trend = |correlation, variation| SeriesTrend { correlation, variation };
        let calm = trend(0.0, 0.0);
        let table = [
            (7.0, false, calm, calm, Move::Down, "failsafe_down"),
            (6.0, false, calm, calm, Move::Stay, "failsafe_hold"),
            (3.0, false, calm, calm, Move::Stay, "failsafe_hold"),
            (2.0, false, calm, calm, Move::Up, "failsafe_up"),
            (2.0, true, calm, calm, Move::Up, "failsafe_up"),
            (2.0, true, trend(-0.1, 0.5), calm, Move::Down, "failsafe_throughput_falls"),
            (2.0, false, trend(-0.1, 0.5), calm, Move::Up, "failsafe_up"),
            (2.0, true, trend(0.29, 0.5), trend(0.51, 0.5), Move::Down, "failsafe_latency_rises"),
            (2.0, true, trend(0.29, 0.5), trend(0.49, 0.5), Move::Up, "failsafe_up"),
            (2.0, true, trend(0.31, 0.5), trend(0.51, 0.5), Move::Up, "failsafe_up"),
            (2.0, true, trend(0.31, 0.19), trend(0.51, 0.5), Move::Down, "failsafe_latency_rises"),
            (2.0, false, trend(0.31, 0.19), trend(0.51, 0.5), Move::Up, "failsafe_up"),
        ];
        for (queue, is_full, throughput, rtt, expected, kind) in table {
            let reading = QueueReading { queue, step: 1 };
            let signals = Signals { reading, is_full, throughput, rtt };
            let (change, reason) = signals.judge();
            assert_eq!((change, reason.kind()), (expected, kind), "{signals:?}");
        }
    }

    /// With 5 inside the limit may be 25, wherever it would go.
    #[test]
    fn the_limit_is_at_most_five_times_inflight() {
        for (limit, inside, next) in [(24, 5, 25), (25, 5, 24), (40, 5, 39), (120, 5, 118)] {
            let mut seen = window(limit, inside, 1.0);
            seen.concurrency = 0;
            assert_eq!(decided(&mut published(), &seen).0, next);
        }
    }

    /// Twelve windows at limits from 20 to 31. Latency as the square of inflight has throughput
    /// fall with it; latency in proportion has throughput stay the same. A baseline of one window
    /// is RTT itself, so that there never is a queue.
    #[test]
    fn a_full_gate_listens_to_the_correlations() {
        let table = [
            (0, 0, "failsafe_up"),
            (1, 0, "failsafe_latency_rises"),
            (2, 0, "failsafe_throughput_falls"),
            (2, 1, "failsafe_up"),
        ];
        for (power, free, kind) in table {
            let settings = FailsafeSettings { baseline_windows: 1, ..FailsafeSettings::PUBLISHED };
            let mut limiter = Failsafe::new(bounds(1, 1_000), Mpl::at_least_one(20), settings);
            let kinds = (20..32).map(|level| {
                let mut seen = window(level, level, 0.01 * (f64::from(level) / 20.0).powi(power));
                seen.concurrency = level - free;
                decided(&mut limiter, &seen).1
            });
            assert_eq!(kinds.last(), Some(kind), "power {power}, {free} free");
        }
    }

    /// 1 to 10 against themselves, their opposites and something without relation. The deviation of
    /// 1 to 10 is √8.25 of 5.5.
    #[test]
    fn correlations_are_pearsons() {
        let up: Vec<f64> = (1..=10).map(f64::from).collect();
        let down: Vec<f64> = up.iter().rev().copied().collect();
        let alternating = [1.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 1.0];
        let steady = [5.0, 5.01, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0];
        let variation = 8.25_f64.sqrt() / 5.5;
        for (xs, ys, correlation) in
            [(&up, &up, 1.0), (&up, &down, -1.0), (&up, &alternating.to_vec(), 0.0)]
        {
            assert!((SeriesTrend::of(xs, ys).correlation - correlation).abs() < 1e-12);
        }
        assert!((SeriesTrend::of(&steady, &up).correlation).abs() < f64::EPSILON);
        assert!((SeriesTrend::of(&steady, &up).variation - variation).abs() < 1e-12);
        assert!((SeriesTrend::of(&up, &steady).correlation).abs() < f64::EPSILON);
        assert_eq!(SeriesTrend::of(&up[..9], &up[..9]), SeriesTrend::default());
    }

    #[test]
    fn only_the_last_values_are_remembered() {
        let mut last = RecentValues::<5>::EMPTY;
        for value in [9.0, 1.0, 5.0, 3.0] {
            last.push(value);
            assert_eq!(last.median_when_full(), None);
        }
        last.push(2.0);
        assert_eq!(last.median_when_full(), Some(3.0));
        last.push(0.0);
        assert_eq!(last.median_when_full(), Some(2.0), "the 9 has gone");
        assert_eq!(last.values().len(), 5);
    }

    #[test]
    fn an_interval_that_says_too_little_decides_nothing() {
        let mut seen = window(20, 20, 3.0);
        seen.in_database.count = 49;
        let mut limiter = published();
        assert_eq!(decided(&mut limiter, &seen), (20, "few_samples"));
        assert_eq!(limiter.rtt_s.values(), [0.0; 0], "and teaches nothing");
    }
}
