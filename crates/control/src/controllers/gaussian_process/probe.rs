//! Where to go next: to the best limit known, or to one that is worth trying.
//!
//! The value of a limit is ln X - p·ln N: p is the price of a permit. On the closed network's curve
//! N/(N+M-1) its maximum lies where throughput is 1 - p of the highest, since there
//! d ln X / d ln N = (M-1)/(N+M-1) = 1 - X/X(∞).
//!
//! A probe at limit j costs what is lost there for as long as it lasts. It brings what the best
//! limit is expected to gain by what is learnt (the knowledge gradient of Frazier, Powell and
//! Dayanik, 2009, for the one rival that may gain most), in each of the next `horizon` intervals.

use super::belief::Belief;

/// How probes are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeSettings {
    /// Relative throughput that a relative rise of the limit must bring: the price of a permit.
    pub price: f64,
    /// The most that the chosen limit may lose against the highest predicted throughput.
    pub loss: f64,
    /// Intervals for which what is learnt is expected to be of use.
    pub horizon: f64,
    /// What a probe must be worth to be made, in intervals' throughputs.
    pub least_worth: f64,
    /// The most by which the limit may rise above the highest one tried, as a factor.
    pub rise: f64,
}

/// A limit of the grid, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Choice {
    /// The best known.
    Best(usize),
    /// Worth trying, although the best known is another one.
    Probe {
        index: usize,
        /// Expected gain, net of the cost, as a share of one interval's throughput.
        worth: f64,
    },
}

/// What a choice depends on besides the belief.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Circumstances {
    /// Variance of an interval's ln X.
    pub(super) noise: f64,
    /// The highest index that may be chosen.
    pub(super) highest: usize,
    /// How long the transactions inside now take to end, in intervals, for each inside.
    pub(super) interval_s: f64,
}

/// Intervals for which a probe may last, in which its noise averages out.
const REPEATS: [f64; 2] = [1.0, 4.0];

/// The best limit known: the most valuable of those that lose no more than allowed.
pub(super) fn best(belief: &Belief, highest: usize, settings: &ProbeSettings) -> usize {
    let allowed = 0..=highest.min(belief.len() - 1);
    let peak = allowed.clone().map(|index| belief.mean(index)).fold(f64::MIN, f64::max);
    let value = |index: usize| belief.mean(index) - settings.price * belief.x(index);
    let enough = allowed.filter(|&index| belief.mean(index) >= peak - settings.loss);
    enough.max_by(|&one, &other| value(one).total_cmp(&value(other))).unwrap_or_default()
}

/// The limit for the next interval.
pub(super) fn choose(
    belief: &Belief,
    circumstances: &Circumstances,
    settings: &ProbeSettings,
) -> Choice {
    let best = best(belief, circumstances.highest, settings);
    let mut choice = Choice::Best(best);
    let mut most = settings.least_worth;
    for index in 0..=circumstances.highest.min(belief.len() - 1) {
        let worth = worth(belief, index, best, circumstances, settings);
        if index != best && worth > most {
            most = worth;
            choice = Choice::Probe { index, worth };
        }
    }
    choice
}

/// What a probe at `index` is worth when `best` is the best known, in intervals' throughputs.
fn worth(
    belief: &Belief,
    index: usize,
    best: usize,
    circumstances: &Circumstances,
    settings: &ProbeSettings,
) -> f64 {
    let value = |index: usize| belief.mean(index) - settings.price * belief.x(index);
    let lost = (value(best) - value(index)).max(0.0);
    // What is let in must get out again: at X tps, N transactions take N/X.
    let drain = f64::from(belief.limit(index).get())
        / (belief.mean(index).exp() * circumstances.interval_s).max(1e-9);
    let rises = if index > best { 1.0 + drain } else { 1.0 };
    let mut most = f64::MIN;
    for repeats in REPEATS {
        let noise = circumstances.noise / repeats;
        let spread = (belief.covariance(index, index) + noise).max(1e-12).sqrt();
        let gain = gain(belief, index, best, spread, circumstances.highest, settings);
        most = most.max(settings.horizon * gain / repeats - lost * rises);
    }
    most
}

/// What the best limit is expected to gain by one observation at `index`.
fn gain(
    belief: &Belief,
    index: usize,
    best: usize,
    spread: f64,
    highest: usize,
    settings: &ProbeSettings,
) -> f64 {
    let value = |index: usize| belief.mean(index) - settings.price * belief.x(index);
    let of_best = belief.covariance(best, index);
    let rivals = (0..=highest.min(belief.len() - 1)).filter(|&rival| rival != best).map(|rival| {
        let behind = value(rival) - value(best);
        let moves = (belief.covariance(rival, index) - of_best).abs() / spread;
        (behind, moves)
    });
    let ahead = |&(behind, moves): &(f64, f64)| behind + moves;
    let rival = rivals.max_by(|one, other| ahead(one).total_cmp(&ahead(other)));
    rival.map_or(0.0, |(behind, moves)| expected_excess(behind, moves))
}

/// E max(0, m + s·Z) for a standard normal Z.
fn expected_excess(m: f64, s: f64) -> f64 {
    if s <= 0.0 {
        return m.max(0.0);
    }
    let z = m / s;
    let density = (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
    (m * normal_below(z, density) + s * density).max(0.0)
}

/// Φ(z) to 1e-7 (Abramowitz and Stegun, 26.2.17), given the density at z.
fn normal_below(z: f64, density: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series = 0.319_381_530
        + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429)));
    let above = density * t * series;
    if z >= 0.0 { 1.0 - above } else { above }
}
