//! Curves whose truth is known, and executions of them.

use std::fmt;

use tidegate_control::{Mpl, SplitMix64};
use tidegate_lab::tap::LevelSample;
use tidegate_lab::tap::posterior::variance_of_mean;

/// Intervals of an execution, a second each, and the noise of one.
const INTERVALS: u32 = 60;
const INTERVAL_NOISE: f64 = 0.05;
/// Throughput is in thousands of transactions, so that counting them adds no noise.
const TPS: f64 = 5_000.0;

/// A curve without noise, and what was measured of it.
pub(crate) struct Truth {
    pub(crate) tps: Vec<f64>,
    pub(crate) levels: Vec<LevelSample>,
}

/// What else is wrong with executions.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Disturbance {
    None,
    Autocorrelated,
    Heteroscedastic,
    Outliers,
}

impl Disturbance {
    pub(crate) const ALL: [Disturbance; 3] =
        [Disturbance::Autocorrelated, Disturbance::Heteroscedastic, Disturbance::Outliers];
}

impl fmt::Display for Disturbance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Disturbance::None => "none",
            Disturbance::Autocorrelated => "autocorrelated",
            Disturbance::Heteroscedastic => "heteroscedastic",
            Disturbance::Outliers => "outliers",
        })
    }
}

/// Returns MPL 100, 200, … for so many levels.
pub(crate) fn mpls(count: u32) -> Vec<u32> {
    (1..=count).map(|step| 100 * step).collect()
}

/// Returns the throughputs at some levels of a random curve that falls by its own shape, or not.
pub(crate) fn shaped(mpls: &[u32], random: &mut SplitMix64) -> Vec<f64> {
    let kind = random.next_below(4);
    let rise = random.next_log_between(30.0, 600.0);
    let at = random.next_log_between(100.0, 2_000.0);
    let width = random.next_log_between(10.0, 400.0);
    let [first, second] = [0, 1].map(|_| random.next_between(150.0, 1_000.0));
    let [low, lower] = [0, 1].map(|_| random.next_between(0.5, 1.1));
    let shape = |mpl: f64| {
        let saturating = 1.0 - libm::exp(-mpl / rise);
        match kind {
            // Exponential saturation.
            0 => saturating,
            // Ricker's hump.
            1 => mpl / at * libm::exp(1.0 - mpl / at),
            // A logistic collapse.
            2 => saturating / (1.0 + libm::exp((mpl - at) / width)),
            // Two steps, up or down.
            _ => {
                let step = |from: f64, to: f64| if mpl > from { to } else { 1.0 };
                saturating * step(first, low) * step(second, lower)
            }
        }
    };
    mpls.iter().map(|&mpl| shape(f64::from(mpl))).collect()
}

/// Returns a random curve that rises, and then holds, or declines by at most 5 % from a level to
/// the next.
pub(crate) fn base(count: u32, random: &mut SplitMix64) -> Vec<f64> {
    let rise = random.next_log_between(20.0, 800.0);
    let decline = random.next_between(0.0, 0.05);
    let from = random.next_below(count);
    let level = |(place, mpl): (u32, u32)| {
        let declines = place.saturating_sub(from);
        (1.0 - libm::exp(-f64::from(mpl) / rise)) * libm::pow(1.0 - decline, f64::from(declines))
    };
    (0..).zip(mpls(count)).map(level).collect()
}

/// Returns a curve that is lower by a share from a random level on.
pub(crate) fn with_fall(mut curve: Vec<f64>, share: f64, random: &mut SplitMix64) -> Vec<f64> {
    let last = u32::try_from(curve.len()).expect("some levels") - 1;
    let from = 2 + random.next_below(last - 2);
    curve.iter_mut().skip(from as usize).for_each(|tps| *tps *= 1.0 - share);
    curve
}

/// Draws executions of a curve with noise between them, and with noise within.
pub(crate) fn samples(
    mpls: &[u32],
    curve: &[f64],
    noise: f64,
    repetitions: u32,
    disturbance: Disturbance,
    random: &mut SplitMix64,
) -> Truth {
    let mut before = random.next_normal();
    let mut level = |(place, (&mpl, &tps)): (usize, (&u32, &f64))| {
        let mut variances = Vec::new();
        let mut execution = |_| {
            let fresh = random.next_normal();
            let (state, noise) = match disturbance {
                Disturbance::Autocorrelated => (0.8 * before + 0.6 * fresh, noise),
                Disturbance::Heteroscedastic => {
                    (fresh, 0.02 + 0.18 * place as f64 / (curve.len() - 1) as f64)
                }
                Disturbance::None | Disturbance::Outliers => (fresh, noise),
            };
            before = state;
            let is_out = disturbance == Disturbance::Outliers && random.next_chance(0.05);
            let factor = libm::exp(noise * state) * if is_out { 0.4 } else { 1.0 };
            let correlation = if disturbance == Disturbance::Autocorrelated { 0.9 } else { 0.0 };
            let (mean, variance) = measured(TPS * tps * factor, correlation, random);
            variances.extend(variance);
            mean
        };
        LevelSample {
            mpl: Mpl::at_least_one(mpl),
            tps: (0..repetitions).map(&mut execution).collect(),
            variance_within: variances.iter().sum::<f64>() / variances.len().max(1) as f64,
        }
    };
    let levels = mpls.iter().zip(curve).enumerate().map(&mut level).collect();
    Truth { tps: curve.to_vec(), levels }
}

/// Returns the throughput of an execution and the variance of its mean, as the laboratory has them.
fn measured(tps: f64, correlation: f64, random: &mut SplitMix64) -> (f64, Option<f64>) {
    let fresh = (1.0 - correlation * correlation).sqrt();
    let mut state = random.next_normal();
    let interval = |second: u32| {
        state = correlation * state + fresh * random.next_normal();
        (f64::from(second), whole(tps * (1.0 + INTERVAL_NOISE * state)))
    };
    let intervals: Vec<(f64, u64)> = (1..=INTERVALS).map(interval).collect();
    let all: u64 = intervals.iter().map(|&(_, transactions)| transactions).sum();
    (all as f64 / f64::from(INTERVALS), variance_of_mean(&intervals))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below a million")]
fn whole(number: f64) -> u64 {
    number.max(0.0).round() as u64
}
