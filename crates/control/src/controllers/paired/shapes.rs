//! What few completions say, pooled: a belief over the shapes that throughput curves have.
//!
//! Where a window holds a dozen completions, two of them cannot be told apart, and each costs a
//! residence time. All windows together can still say where the curve bends. A shape rises like
//! n^a up to p and falls like n^-b from there on; its height follows from the counts. Counts are
//! Poisson, a little overdispersed, and old ones fade.

/// Highest p of the grid, and points of it.
const HIGHEST: f64 = 1_000.0;
const POINTS: u32 = 36;

const RISES: [f64; 3] = [1.0, 0.7, 0.4];
const FALLS: [f64; 5] = [0.0, 0.15, 0.4, 1.0, 2.0];

/// How much more counts vary than Poisson's.
const OVERDISPERSION: f64 = 1.5;

/// An observation has faded to 1/e after so many completions, and not before so many seconds.
const MEMORY: f64 = 600.0;
const MEMORY_S: f64 = 20.0;

#[derive(Clone, Copy, Debug)]
struct Shape {
    top: f64,
    rise: f64,
    fall: f64,
}

impl Shape {
    /// ln of throughput over that of the top.
    fn ln_share(self, level: f64) -> f64 {
        let distance = (level / self.top).ln();
        if distance < 0.0 { self.rise * distance } else { -self.fall * distance }
    }
}

/// Completions and seconds at a level.
#[derive(Clone, Copy, Debug)]
struct Counted {
    level: f64,
    completions: f64,
    seconds: f64,
}

/// The belief: all that was counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Shapes {
    counted: Vec<Counted>,
}

impl Shapes {
    /// Takes a window.
    pub(super) fn add(&mut self, level: f64, completions: f64, seconds: f64) {
        self.fade((-f64::min(completions / MEMORY, seconds / MEMORY_S)).exp());
        let same = |old: &&mut Counted| (old.level / level).ln().abs() < 0.02;
        if let Some(old) = self.counted.iter_mut().find(same) {
            old.completions += completions;
            old.seconds += seconds;
        } else {
            self.counted.push(Counted { level, completions, seconds });
        }
        self.counted.retain(|old| old.seconds > 1e-6);
    }

    /// Keeps this share of what is known.
    pub(super) fn fade(&mut self, share: f64) {
        for old in &mut self.counted {
            old.completions *= share;
            old.seconds *= share;
        }
    }

    /// The limit with the highest expected share of the best throughput from `lowest` to `highest`,
    /// less `price` for each factor of e, and that share; or, with `at` from 0 to 1, the best limit
    /// of a shape drawn from the belief.
    pub(super) fn best(
        &self,
        lowest: u32,
        highest: u32,
        price: f64,
        at: Option<f64>,
    ) -> (u32, f64) {
        let shapes = shapes(f64::from(highest));
        let weights = self.weights(&shapes);
        let drawn = at.and_then(|at| draw(&shapes, &weights, at));
        let mut best = (lowest, f64::NEG_INFINITY);
        for limit in levels(lowest, highest) {
            let level = f64::from(limit);
            let share = match drawn {
                Some(shape) => shape.ln_share(level).exp(),
                None => expected(&shapes, &weights, level),
            };
            let worth = share - price * level.ln();
            if worth > best.1 {
                best = (limit, worth);
            }
        }
        (best.0, best.1 + price * f64::from(best.0).ln())
    }

    /// The expected share of the best throughput at a limit.
    pub(super) fn share(&self, limit: u32, highest: u32) -> f64 {
        let shapes = shapes(f64::from(highest));
        expected(&shapes, &self.weights(&shapes), f64::from(limit))
    }

    /// Posterior weights, which add up to 1. The height of a shape is profiled out.
    fn weights(&self, shapes: &[Shape]) -> Vec<f64> {
        let all: f64 = self.counted.iter().map(|old| old.completions).sum();
        let fits: Vec<f64> = shapes
            .iter()
            .map(|shape| {
                let (mut sum, mut exposure) = (0.0, 0.0);
                for old in &self.counted {
                    let ln_share = shape.ln_share(old.level);
                    sum += old.completions * ln_share;
                    exposure += old.seconds * ln_share.exp();
                }
                (sum - all * f64::max(exposure, 1e-300).ln()) / OVERDISPERSION
            })
            .collect();
        let highest = fits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = fits.iter().map(|fit| (fit - highest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    }
}

fn shapes(highest: f64) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for point in 0..POINTS {
        let top = HIGHEST.powf(f64::from(point) / f64::from(POINTS - 1));
        if top > highest * 1.3 {
            break;
        }
        for rise in RISES {
            shapes.extend(FALLS.map(|fall| Shape { top: top.min(highest), rise, fall }));
        }
    }
    shapes
}

fn expected(shapes: &[Shape], weights: &[f64], level: f64) -> f64 {
    shapes.iter().zip(weights).map(|(shape, weight)| weight * shape.ln_share(level).exp()).sum()
}

fn draw(shapes: &[Shape], weights: &[f64], at: f64) -> Option<Shape> {
    let mut left = at;
    for (shape, weight) in shapes.iter().zip(weights) {
        left -= weight;
        if left < 0.0 {
            return Some(*shape);
        }
    }
    shapes.last().copied()
}

/// Limits about 12 % apart.
fn levels(lowest: u32, highest: u32) -> impl Iterator<Item = u32> {
    let following =
        move |&level: &u32| (level < highest).then(|| (level + (level / 8).max(1)).min(highest));
    std::iter::successors(Some(lowest.min(highest)), following)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds at each of four limits of a database that does 0.5 tps for each of up to 20.
    #[test]
    fn few_completions_say_where_the_curve_bends() {
        let mut shapes = Shapes::default();
        for level in [4.0, 10.0, 40.0, 100.0] {
            let completions = 0.5 * f64::min(level, 20.0) * f64::min(20.0 / level, 1.0) * 10.0;
            shapes.add(level, completions, 10.0);
        }
        let (limit, share) = shapes.best(1, 300, 0.0, None);
        assert!((13..=30).contains(&limit), "{limit}");
        assert!(share > 0.8, "{share}");
        assert!(shapes.share(100, 300) < 0.5);
    }

    #[test]
    fn what_rises_in_proportion_is_followed_upward() {
        let mut shapes = Shapes::default();
        shapes.add(32.0, 32.0, 1.0);
        shapes.add(64.0, 64.0, 1.0);
        let (limit, _) = shapes.best(1, 300, 0.03, None);
        assert!(limit > 64, "{limit}");
    }
}
