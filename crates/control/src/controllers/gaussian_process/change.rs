//! Notices that the workload is another one: a two-sided cumulative sum (Page, 1954) of surprises.

/// When surprises are a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangeSettings {
    /// What each interval may deviate without counting, in standard deviations.
    pub slack: f64,
    /// The sum at which the workload has changed, in standard deviations.
    pub threshold: f64,
    /// A single surprise as large as this is looked at again before it is believed.
    pub doubt: f64,
}

/// What a surprise means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As expected.
    Expected,
    /// Too far off to be learnt from, and not yet a change: look again.
    Doubt,
    /// The workload has changed.
    Changed,
}

/// The sums of surprises, upward and downward.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChangeDetector {
    up: f64,
    down: f64,
    /// The surprise that was doubted in the last interval.
    doubted: Option<f64>,
}

impl ChangeDetector {
    /// Judges a surprise, in standard deviations of what was expected.
    pub(super) fn judge(&mut self, surprise: f64, settings: &ChangeSettings) -> Verdict {
        let clipped = surprise.clamp(-settings.doubt, settings.doubt);
        let repeated = self
            .doubted
            .take()
            .is_some_and(|before| before * surprise > 0.0 && surprise.abs() > 2.0);
        if repeated {
            *self = ChangeDetector::default();
            return Verdict::Changed;
        }
        if surprise.abs() >= settings.doubt {
            self.doubted = Some(surprise);
            return Verdict::Doubt;
        }
        self.up = (self.up + clipped - settings.slack).max(0.0);
        self.down = (self.down - clipped - settings.slack).max(0.0);
        if self.up.max(self.down) > settings.threshold {
            *self = ChangeDetector::default();
            return Verdict::Changed;
        }
        Verdict::Expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: ChangeSettings = ChangeSettings { slack: 0.75, threshold: 4.0, doubt: 5.0 };

    fn verdicts(surprises: &[f64]) -> Vec<Verdict> {
        let mut detector = ChangeDetector::default();
        surprises.iter().map(|&surprise| detector.judge(surprise, &SETTINGS)).collect()
    }

    use Verdict::{Changed, Doubt, Expected};

    #[test]
    fn each_rule_by_example() {
        let table: [(&[f64], &[Verdict], &str); 6] = [
            (&[1.0, -1.0, 2.0, -2.0], &[Expected; 4], "noise to both sides"),
            (&[9.0, 0.5, 0.5], &[Doubt, Expected, Expected], "one disturbance"),
            (&[9.0, 8.0, 0.5], &[Doubt, Changed, Expected], "far off twice"),
            (&[9.0, -9.0, -9.0], &[Doubt, Doubt, Changed], "off to both sides, then to one"),
            // 2 - 0.75 = 1.25 an interval: 5 after the fourth.
            (&[2.0; 4], &[Expected, Expected, Expected, Changed], "a shift upward"),
            (&[-2.0; 4], &[Expected, Expected, Expected, Changed], "a shift downward"),
        ];
        for (surprises, expected, case) in table {
            assert_eq!(verdicts(surprises), expected, "{case}");
        }
    }

    #[test]
    fn no_surprise_at_all_is_no_change() {
        assert!(verdicts(&[0.7; 1_000]).iter().all(|&verdict| verdict == Expected));
        assert!(verdicts(&[f64::NAN; 10]).iter().all(|&verdict| verdict == Expected));
    }
}
