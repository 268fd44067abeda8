//! Answers of the posterior beside the truth.

use tidegate_lab::tap::{LevelSample, Posterior, Rule};

use super::curves::Truth;

const RULE: Rule = Rule::Equation1;
/// Bins of the tables of calibration.
const BINS: usize = 10;
/// Bins with fewer answers are shown and not judged.
const FEWEST: u32 = 100;

/// What was found of a curve. Outcomes are places of levels; `None` is no thrashing.
pub(crate) struct Answer {
    pub(crate) truth: Option<usize>,
    /// By Eq. (1) on the means.
    pub(crate) rule: Option<usize>,
    pub(crate) is_right: bool,
    /// The probability of the most probable outcome.
    pub(crate) best: f64,
    /// The probability that there is a thrashing point.
    pub(crate) thrashing: f64,
    pub(crate) is_in_set: bool,
    pub(crate) set_size: usize,
}

pub(crate) fn judged(truth: &Truth) -> Answer {
    let posterior = Posterior::new(RULE, &truth.levels).expect("levels");
    let means: Vec<f64> = truth.levels.iter().map(mean).collect();
    let actual = RULE.lasting_fall(&truth.tps);
    let point = actual.map(|place| truth.levels[place].mpl);
    let set = posterior.credible_set(0.9);
    Answer {
        truth: actual,
        rule: RULE.lasting_fall(&means),
        is_right: posterior.most_probable().point.mpl() == point,
        best: posterior.most_probable().probability,
        thrashing: 1.0 - posterior.none(),
        is_in_set: set.iter().any(|one| one.point.mpl() == point),
        set_size: set.len(),
    }
}

fn mean(level: &LevelSample) -> f64 {
    level.tps.iter().sum::<f64>() / level.tps.len() as f64
}

/// Answers by what was said of them: how many, the sum of the probabilities, how many were right.
#[derive(Default)]
pub(crate) struct Tally {
    best: [(u32, f64, u32); BINS],
    thrashing: [(u32, f64, u32); BINS],
}

impl Tally {
    pub(crate) fn add(&mut self, answers: &[Answer]) {
        for answer in answers {
            self.add_one(answer);
        }
    }

    fn add_one(&mut self, answer: &Answer) {
        for (bins, said, is_right) in [
            (&mut self.best, answer.best, answer.is_right),
            (&mut self.thrashing, answer.thrashing, answer.truth.is_some()),
        ] {
            let (count, sum, right) = &mut bins[bin(said)];
            *count += 1;
            *sum += said;
            *right += u32::from(is_right);
        }
    }

    /// Prints the tables. Returns the bins of enough answers that are off by more than 0.10.
    pub(crate) fn print(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for (what, bins) in
            [("most probable outcome", &self.best), ("P(thrashing)", &self.thrashing)]
        {
            println!("\n| {what} | answers | mean | true |\n| --- | --- | --- | --- |");
            for (place, &(count, sum, right)) in bins.iter().enumerate() {
                if count > 0 {
                    let mean = sum / f64::from(count);
                    let share = f64::from(right) / f64::from(count);
                    let low = place as f64 / BINS as f64;
                    let high = low + 1.0 / BINS as f64;
                    println!("| {low:.1} to {high:.1} | {count} | {mean:.2} | {share:.2} |");
                    if count >= FEWEST && (share - mean).abs() > 0.10 {
                        missed.push(format!("{what} {low:.1} to {high:.1}, {:+.3}", share - mean));
                    }
                }
            }
        }
        missed
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of ten")]
fn bin(share: f64) -> usize {
    ((share * BINS as f64) as usize).min(BINS - 1)
}
