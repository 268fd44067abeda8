//! Batchsets whose thrashing point depends on a column, as CSV: what regressions are tried on.
//!
//! The logarithm of the point is normal about `ln 450 + 0.25·x`, with standard deviation 0.4, for
//! `x` from −1.5 to 1.5. Throughput at MPL 100 to 1,000 is nearly flat up to the point, and lower
//! by 30 to 60 % behind it, so that the point by Eq. (1) without noise is the level below it.
//! Batchsets that the protocol would drop, for transient thrashing, are left out, as it leaves them
//! out.

use tidegate_control::{Mpl, SplitMix64};
use tidegate_lab::tap::{LevelSample, Posterior, Rule, ThrashingPoint, ThroughputCurve};

use super::curves::{Disturbance, Truth, mpls, samples};

const SETS: u64 = 100;
const BATCHSETS: u64 = 60;
const NOISE: f64 = 0.12;
const LEVELS: u32 = 10;
const RULE: Rule = Rule::Equation1;

/// Prints a row for each outcome of each batchset that is retained.
pub(crate) fn print() {
    println!("set,repetitions,sample,x,point,rule_low,rule_high,low,high,prior,probability");
    for repetitions in [1, 3] {
        for set in 0..SETS {
            let mut random = SplitMix64::new(1_000 * set + u64::from(repetitions));
            let drawn: Vec<(f64, f64, Truth)> =
                (0..BATCHSETS).map(|place| batchset(place, repetitions, &mut random)).collect();
            for (sample, (x, point, rows)) in drawn
                .iter()
                .filter_map(|(x, point, truth)| Some((x, point, outcomes(truth)?)))
                .enumerate()
            {
                for row in rows {
                    println!("{set},{repetitions},{sample},{x},{point:.3},{row}");
                }
            }
        }
    }
}

fn batchset(place: u64, repetitions: u32, random: &mut SplitMix64) -> (f64, f64, Truth) {
    let x = (place % 4) as f64 - 1.5;
    let point = 450.0 * libm::exp(0.25 * x + 0.4 * random.next_normal());
    let fall = random.next_between(0.3, 0.6);
    let level = |&mpl: &u32| {
        let mpl = f64::from(mpl);
        let held = if mpl <= point { 1.0 } else { 1.0 - fall };
        held * mpl / (mpl + 15.0)
    };
    let mpls = mpls(LEVELS);
    let curve: Vec<f64> = mpls.iter().map(level).collect();
    let last = mpls.iter().rposition(|&mpl| f64::from(mpl) <= point).unwrap_or(0);
    let expected = (last + 1 < mpls.len()).then_some(last);
    // A point below the lowest level is a fall that nobody sees.
    if point >= f64::from(mpls[0]) {
        assert_eq!(RULE.lasting_fall(&curve), expected, "the curve without noise");
    }
    (x, point, samples(&mpls, &curve, NOISE, repetitions, Disturbance::None, random))
}

/// Returns the interval by the rule, and that of each outcome with its probabilities; `None` where
/// the protocol drops the batchset.
fn outcomes(truth: &Truth) -> Option<Vec<String>> {
    let mean = |level: &LevelSample| level.tps.iter().sum::<f64>() / level.tps.len() as f64;
    let points = truth.levels.iter().map(|level| (level.mpl, Some(mean(level))));
    let curve = ThroughputCurve::new(points)?;
    if RULE.transient(&curve).is_some() {
        return None;
    }
    let rule = interval(RULE.thrashing_point(&curve));
    let posterior = Posterior::new(RULE, &truth.levels)?;
    let row = |one: &tidegate_lab::tap::OutcomeProbability| {
        format!("{rule},{},{},{}", interval(one.point), one.prior, one.probability)
    };
    Some(posterior.outcomes.iter().map(row).collect())
}

fn interval(point: ThrashingPoint) -> String {
    let (low, high) = point.bounds();
    let high = high.map_or_else(|| "inf".to_owned(), |mpl| mpl.to_string());
    format!("{},{high}", low.map_or(0, Mpl::get))
}
