//! The measurements that are kept: many of the last seconds, few of long ago, of every level some.

/// Measurements kept at most.
pub(super) const POINTS_MAX: usize = 64;

/// Levels nearer than this in ln n are one.
const SAME_LEVEL: f64 = 0.03;

/// The settling of a measurement that was made while the database changed.
const CHANGING: f64 = 4.0;

/// A measurement of ln X.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HistoryPoint {
    /// Logarithm of the level, the number of transactions inside.
    pub(super) x: f64,
    /// The middle of the time it was measured in, seconds.
    pub(super) at_s: f64,
    pub(super) ln_x: f64,
    /// Variance of `ln_x` because completions are counted.
    pub(super) variance: f64,
    /// How long it was measured.
    pub(super) seconds: f64,
    /// What the move before it may have left: its distance in ln n, fading with time.
    pub(super) settling: f64,
    /// The number of the stay at one limit.
    pub(super) visit: u64,
}

impl HistoryPoint {
    /// Whether it is made of numbers; a record may hold anything.
    pub(super) fn is_finite(&self) -> bool {
        let numbers = [self.x, self.at_s, self.ln_x, self.seconds, self.settling];
        numbers.iter().all(|number| number.is_finite() && number.abs() < 1e12)
            && self.variance >= 0.0
            && self.variance < 1e12
    }

    pub(super) fn is_near(&self, other: &HistoryPoint) -> bool {
        (self.x - other.x).abs() < SAME_LEVEL
    }

    /// Two measurements as one.
    fn merged(&self, later: &HistoryPoint) -> HistoryPoint {
        let seconds = self.seconds + later.seconds;
        let (first, second) = (self.seconds / seconds, later.seconds / seconds);
        let mean = |one: f64, other: f64| first * one + second * other;
        HistoryPoint {
            x: mean(self.x, later.x),
            at_s: mean(self.at_s, later.at_s),
            ln_x: mean(self.ln_x, later.ln_x),
            variance: first * first * self.variance + second * second * later.variance,
            seconds,
            settling: mean(self.settling, later.settling),
            visit: later.visit,
        }
    }
}

/// The measurements, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct History(Vec<HistoryPoint>);

impl History {
    pub(super) fn points(&self) -> &[HistoryPoint] {
        &self.0
    }

    /// Forgets all but the last, which was measured while the database changed.
    pub(super) fn begin_anew(&mut self) {
        let last = self.0.last().copied();
        self.0.clear();
        self.0.extend(last.map(|last| HistoryPoint { settling: CHANGING, ..last }));
    }

    /// Takes a measurement in. When there are too many, the two of one level become one that are
    /// nearest to each other for their age; if no level has two, the oldest goes.
    pub(super) fn add(&mut self, point: HistoryPoint) {
        self.0.push(point);
        if self.0.len() <= POINTS_MAX {
            return;
        }
        let Some((one, other)) = self.nearest_pair(point.at_s) else {
            self.0.remove(0);
            return;
        };
        let later = self.0.remove(other);
        if let Some(earlier) = self.0.get_mut(one) {
            *earlier = earlier.merged(&later);
        }
        self.0.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    }

    fn nearest_pair(&self, now_s: f64) -> Option<(usize, usize)> {
        let mut nearest = None;
        let mut least = f64::INFINITY;
        for (index, point) in self.0.iter().enumerate() {
            let later = self.0.iter().enumerate().skip(index + 1);
            let Some((next, other)) = later.into_iter().find(|(_, other)| other.is_near(point))
            else {
                continue;
            };
            let gap = (other.at_s - point.at_s) / (now_s - other.at_s + 1.0);
            if gap < least {
                (least, nearest) = (gap, Some((index, next)));
            }
        }
        nearest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(level: f64, at_s: f64) -> HistoryPoint {
        HistoryPoint {
            x: libm::log(level),
            at_s,
            ln_x: level,
            variance: 0.01,
            seconds: 1.0,
            settling: 0.0,
            visit: 0,
        }
    }

    /// An hour at one level after a second at each of three: those three stay.
    #[test]
    fn a_level_that_was_left_is_kept_while_another_is_held() {
        let mut history = History::default();
        for (level, at_s) in [(4.0, 0.0), (16.0, 1.0), (64.0, 2.0)] {
            history.add(point(level, at_s));
        }
        for second in 3..3_603 {
            history.add(point(8.0, f64::from(second)));
        }
        let points = history.points();
        assert_eq!(points.len(), POINTS_MAX);
        for level in [4.0_f64, 16.0, 64.0] {
            assert!(
                points.iter().any(|point| (point.ln_x - level).abs() < 1e-9),
                "{level} was forgotten"
            );
        }
        let seconds: f64 = points.iter().map(|point| point.seconds).sum();
        assert!((seconds - 3_603.0).abs() < 1e-6, "{seconds}");
        let recent = points.iter().filter(|point| point.at_s > 3_580.0).count();
        assert!(recent >= 10, "{recent} of the last 20 s");
    }

    #[test]
    fn where_no_level_comes_twice_the_oldest_goes() {
        let mut history = History::default();
        for level in 0..100 {
            history.add(point(1.1_f64.powi(level), f64::from(level)));
        }
        assert_eq!(history.points().len(), POINTS_MAX);
        assert!(history.points()[0].at_s > 30.0);
    }
}
