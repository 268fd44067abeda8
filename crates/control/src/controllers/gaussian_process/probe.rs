//! Where to go next: to the best limit known, or to one that is worth trying.
//!
//! The value of a limit is ln X - p·ln N: p is the price of a permit. On the closed network's curve
//! N/(N+M-1) its maximum lies where throughput is 1 - p of the highest, since there
//! d ln X / d ln N = (M-1)/(N+M-1) = 1 - X/X(∞).
//!
//! A probe at limit j costs what is lost there for as long as it lasts. It brings what the best
//! limit is expected to gain by what is learnt (the knowledge gradient of Frazier, Powell and
//! Dayanik, 2009, for the one rival that may gain most), in each of the next `horizon` intervals.

use super::GaussianProcessSettings;
use super::belief::ThroughputBelief;

/// A limit of the grid, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ProbeChoice {
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
    /// Permits out now.
    pub(super) running: f64,
    /// Share of an interval's completions that a permit more leaves begun and unfinished.
    pub(super) unfinished: f64,
    /// The highest index that may be chosen.
    pub(super) highest: usize,
    /// How long the transactions inside now take to end, in intervals, for each inside.
    pub(super) interval_s: f64,
}

/// Intervals for which a probe may last, in which its noise averages out.
const REPEATS: [f64; 2] = [1.0, 4.0];

/// Surprises, in standard deviations, after which rivals are compared.
const SURPRISES: [f64; 2] = [1.0, 2.5];

/// The best limit known: the most valuable of those that lose no more than allowed.
pub(super) fn best(
    belief: &ThroughputBelief,
    highest: usize,
    settings: &GaussianProcessSettings,
) -> usize {
    let allowed = 0..=highest.min(belief.len() - 1);
    let peak = allowed.clone().map(|index| belief.mean(index)).fold(f64::MIN, f64::max);
    let value = |index: usize| value(belief, index, settings);
    let enough = allowed.filter(|&index| belief.mean(index) >= peak - settings.loss);
    let best = enough.max_by(|&one, &other| value(one).total_cmp(&value(other)));
    best.expect("the peak itself is among them")
}

/// What a limit is believed to be worth.
fn value(belief: &ThroughputBelief, index: usize, settings: &GaussianProcessSettings) -> f64 {
    belief.mean(index) - settings.price * belief.x(index)
}

/// The limit for the next interval.
pub(super) fn choose(
    belief: &ThroughputBelief,
    circumstances: &Circumstances,
    settings: &GaussianProcessSettings,
) -> ProbeChoice {
    let highest = circumstances.highest.min(belief.len() - 1);
    let best = best(belief, highest, settings);
    let values: Vec<f64> = (0..=highest).map(|index| value(belief, index, settings)).collect();
    let search = ProbeContext { belief, circumstances, settings, values: &values, best };
    let mut choice = ProbeChoice::Best(best);
    let mut most = settings.least_worth;
    for index in (0..=highest).filter(|&index| index != best) {
        let worth = search.worth(index);
        if worth > most {
            most = worth;
            choice = ProbeChoice::Probe { index, worth };
        }
    }
    choice
}

/// What a probe is judged by.
struct ProbeContext<'a> {
    belief: &'a ThroughputBelief,
    circumstances: &'a Circumstances,
    settings: &'a GaussianProcessSettings,
    /// The value of each limit that may be chosen.
    values: &'a [f64],
    /// The best of them known.
    best: usize,
}

impl ProbeContext<'_> {
    /// What a probe at `index` is worth, in intervals' throughputs.
    fn worth(&self, index: usize) -> f64 {
        let lost = (self.values[self.best] - self.values[index]).max(0.0);
        let limit = f64::from(self.belief.limit(index).get());
        // What is let in must get out again: at X tps, N transactions take N/X.
        let completions = libm::exp(self.belief.mean(index)) * self.circumstances.interval_s;
        let drain = if index > self.best { limit / completions.max(1e-9) } else { 0.0 };
        let moved = limit - self.circumstances.running;
        let mut most = f64::MIN;
        for repeats in REPEATS {
            let unfinished = self.circumstances.unfinished * moved / repeats;
            let noise = self.circumstances.noise / repeats + unfinished * unfinished;
            let gain = self.gain(index, noise);
            most = most.max(self.settings.horizon * gain / repeats - lost * (1.0 + drain));
        }
        most
    }

    /// What the best limit is expected to gain by an observation at `index` with this noise: the
    /// most that one rival alone is expected to get ahead of it by.
    fn gain(&self, index: usize, noise: f64) -> f64 {
        let row = self.belief.covariances(index);
        let spread = (row[index] + noise).max(1e-12).sqrt();
        let (of_best, at_best) = (row[self.best], self.values[self.best]);
        // The expected excess of every rival would take too long: only of those that are ahead
        // after a usual and after a rare surprise, and of the limit itself.
        let itself = (self.values[index] - at_best, (row[index] - of_best).abs() / spread);
        let mut likely = [(f64::MIN, itself); SURPRISES.len()];
        for (other, (value, covariance)) in self.values.iter().zip(row).enumerate() {
            if other == self.best {
                continue;
            }
            let pair = (value - at_best, (covariance - of_best).abs() / spread);
            for (surprise, (ahead, leader)) in SURPRISES.iter().zip(&mut likely) {
                if pair.0 + surprise * pair.1 > *ahead {
                    *ahead = pair.0 + surprise * pair.1;
                    *leader = pair;
                }
            }
        }
        let excess = |(behind, moves): (f64, f64)| expected_excess(behind, moves);
        likely.iter().map(|&(_, pair)| excess(pair)).fold(excess(itself), f64::max)
    }
}

/// E max(0, m + s·Z) for a standard normal Z.
fn expected_excess(m: f64, s: f64) -> f64 {
    if s <= 0.0 {
        return m.max(0.0);
    }
    let z = m / s;
    let density = libm::exp(-0.5 * z * z) / std::f64::consts::TAU.sqrt();
    (m * normal_below(z, density) + s * density).max(0.0)
}

/// Φ(z) to 1e-7 (Abramowitz and Stegun, 26.2.17), given the density at z.
pub(in crate::controllers) fn normal_below(z: f64, density: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series = 0.319_381_530
        + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429)));
    let above = density * t * series;
    if z >= 0.0 { 1.0 - above } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::bounds;
    use crate::{Mpl, Resources};

    const SETTINGS: GaussianProcessSettings = GaussianProcessSettings {
        price: 0.05,
        loss: 0.1,
        horizon: 40.0,
        others: 1.0,
        roughness: 0.02,
        grain: 0.1,
        ..GaussianProcessSettings::DEFAULT
    };
    const QUIET: Circumstances = Circumstances {
        noise: 1e-6,
        running: 20.0,
        unfinished: 0.0,
        highest: usize::MAX,
        interval_s: 1.0,
    };

    fn belief() -> ThroughputBelief {
        ThroughputBelief::new(bounds(1, 1_000), Resources { cpus: 2, disks: 1 }, &SETTINGS)
    }

    /// What is left to believe when the curve was measured everywhere.
    fn known(curve: impl Fn(f64) -> f64) -> ThroughputBelief {
        let mut belief = belief();
        for index in 0..belief.len() {
            let level = f64::from(belief.limit(index).get());
            belief.learn(belief.place(level), libm::log(curve(level)), 1e-8);
        }
        belief
    }

    /// E max(0, Z) = 1/√(2π); E max(0, 1 + Z) = Φ(1) + φ(1) = 0.841345 + 0.241971.
    #[test]
    fn the_expected_excess_has_its_textbook_values() {
        for (m, s, expected) in [
            (0.0, 1.0, 0.398_942),
            (1.0, 1.0, 1.083_316),
            (-1.0, 1.0, 0.083_316),
            (0.0, 2.0, 0.797_885),
            (3.0, 0.0, 3.0),
            (-3.0, 0.0, 0.0),
        ] {
            let excess = expected_excess(m, s);
            assert!((excess - expected).abs() < 1e-6, "{m}, {s}: {excess}");
        }
    }

    /// Of the closed network's curve N/(N + M - 1) the price p leaves 1 - p.
    #[test]
    fn the_best_limit_gives_up_the_price_where_more_always_helps() {
        for others in [1.0, 3.0, 10.0] {
            let curve = |level: f64| level / (level + others);
            let belief = known(curve);
            let best = best(&belief, usize::MAX, &SETTINGS);
            let share = curve(f64::from(belief.limit(best).get()));
            assert!((share - 0.95).abs() < 0.01, "{others} others: {share}");
        }
    }

    #[test]
    fn the_best_limit_is_the_lowest_of_a_flat_curve_and_the_top_of_a_sharp_one() {
        let flat = known(|_| 100.0);
        assert_eq!(flat.limit(best(&flat, usize::MAX, &SETTINGS)), Mpl::ONE);
        let sharp = known(|level| if level < 20.0 { level } else { 400.0 / level });
        let top = sharp.limit(best(&sharp, usize::MAX, &SETTINGS)).get();
        assert!((18..=22).contains(&top), "{top}");
    }

    #[test]
    fn nothing_is_probed_where_everything_is_known() {
        let belief = known(|level| level / (level + 5.0));
        let choice = choose(&belief, &QUIET, &SETTINGS);
        assert_eq!(choice, ProbeChoice::Best(best(&belief, usize::MAX, &SETTINGS)));
    }

    #[test]
    fn after_one_measurement_a_far_limit_is_worth_a_probe_but_not_above_the_highest_allowed() {
        let mut belief = belief();
        belief.learn(belief.place(4.0), 7.0, 1e-4);
        let highest = belief.index_below(24.0);
        let choice = choose(&belief, &Circumstances { highest, ..QUIET }, &SETTINGS);
        let ProbeChoice::Probe { index, worth } = choice else { panic!("{choice:?}") };
        assert!(worth > 1.0, "{worth}");
        assert!(index <= highest && index > belief.index_below(8.0), "{index}");
    }

    /// At 1 tps the 500 let in by a probe take hundreds of intervals to get out again.
    #[test]
    fn a_slow_database_is_not_flooded_by_a_probe() {
        let mut slow = belief();
        let mut fast = belief();
        slow.learn(slow.place(20.0), 0.0, 1e-4);
        fast.learn(fast.place(20.0), 10.0, 1e-4);
        let chosen = |belief: &ThroughputBelief| match choose(belief, &QUIET, &SETTINGS) {
            ProbeChoice::Best(index) | ProbeChoice::Probe { index, .. } => index,
        };
        assert!(chosen(&slow) < chosen(&fast), "{} {}", chosen(&slow), chosen(&fast));
    }
}
