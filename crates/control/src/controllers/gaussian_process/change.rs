//! Notices that the workload is another one: a two-sided cumulative sum (Page, 1954) of surprises.

use super::GaussianProcessSettings;

/// What a surprise means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SurpriseVerdict {
    /// As expected.
    Expected,
    /// Too far off to be learnt from, and not yet a change: look again.
    Doubt,
    /// The workload has changed.
    Changed,
}

/// A surprise after a doubted one that confirms it, in standard deviations.
const FAR_AGAIN: f64 = 2.0;

/// Share of the memory of disturbances that an interval leaves: half is gone after 34.
const FADING: f64 = 0.98;

/// So many disturbances remembered make one more surprise in a row necessary.
const DISTURBANCES_COMMON: f64 = 1.5;

/// The sums of surprises, upward and downward.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChangeDetector {
    up: f64,
    down: f64,
    /// Surprises in a row that were doubted: above 0 upward, below 0 downward.
    doubted: i32,
    /// Doubted surprises that turned out to be disturbances, the old ones faded.
    disturbances: f64,
}

impl ChangeDetector {
    /// Judges a surprise, in standard deviations of what was expected.
    pub(super) fn judge(
        &mut self,
        surprise: f64,
        settings: &GaussianProcessSettings,
    ) -> SurpriseVerdict {
        self.disturbances *= FADING;
        let is_far = surprise.abs() >= settings.doubt;
        let is_same_side = f64::from(self.doubted) * surprise > 0.0;
        if is_far || (is_same_side && surprise.abs() > FAR_AGAIN) {
            return self.doubt(surprise, is_same_side);
        }
        if std::mem::take(&mut self.doubted) != 0 {
            self.disturbances += 1.0;
        }
        self.up = (self.up + surprise - settings.slack).max(0.0);
        self.down = (self.down - surprise - settings.slack).max(0.0);
        if self.up.max(self.down) > settings.threshold {
            return self.changed();
        }
        SurpriseVerdict::Expected
    }

    /// Counts a surprise that is too far off to be noise.
    fn doubt(&mut self, surprise: f64, is_same_side: bool) -> SurpriseVerdict {
        let before = if is_same_side { self.doubted } else { 0 };
        self.doubted = before + if surprise > 0.0 { 1 } else { -1 };
        // Where disturbances are common, two in a row prove nothing.
        let proof = 2.0 + (self.disturbances / DISTURBANCES_COMMON).floor().min(2.0);
        if f64::from(self.doubted).abs() >= proof { self.changed() } else { SurpriseVerdict::Doubt }
    }

    fn changed(&mut self) -> SurpriseVerdict {
        *self = ChangeDetector { disturbances: self.disturbances, ..ChangeDetector::default() };
        SurpriseVerdict::Changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slack of 0.75, a threshold of 4 and a doubt of 5.
    const SETTINGS: GaussianProcessSettings = GaussianProcessSettings::DEFAULT;

    fn verdicts(surprises: &[f64]) -> Vec<SurpriseVerdict> {
        let mut detector = ChangeDetector::default();
        surprises.iter().map(|&surprise| detector.judge(surprise, &SETTINGS)).collect()
    }

    use SurpriseVerdict::{Changed, Doubt, Expected};

    #[test]
    fn each_rule_by_example() {
        let table: [(&[f64], &[SurpriseVerdict], &str); 6] = [
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
