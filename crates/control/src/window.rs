//! When a control interval ends.
//!
//! The auto-tuning study fixes the interval at one minute (Section 3.1), long enough for the server
//! to settle at a new limit. Behind a proxy a minute is long: twenty steps would take a third of an
//! hour. What an interval must hold is not minutes but evidence. If transactions end independently,
//! a count of N has a relative error of about 1/√N, so 100 completions measure throughput to about
//! 10 %, and the study of external scheduling uses windows of that size (Section 4.3). So the
//! interval is as short as `min` under load, and stretches until enough transactions have ended
//! when they are long or few.
//!
//! It does not stretch for ever: after `max` a stalled database or a quiet night ends it too.
//! Otherwise the first transactions of the morning would be averaged over the night before them.

use std::time::Duration;

/// How long a control interval lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalRule {
    /// Never shorter than this.
    pub min: Duration,
    /// Not over before this many transactions have completed, unless `max` has passed.
    pub min_completions: u64,
    /// Over after this, whatever has completed.
    pub max: Duration,
}

impl Default for IntervalRule {
    fn default() -> IntervalRule {
        IntervalRule {
            min: Duration::from_secs(1),
            min_completions: 100,
            max: Duration::from_secs(30),
        }
    }
}

impl IntervalRule {
    /// Whether an interval that has lasted `elapsed` and saw `completions` transactions end well
    /// is over.
    #[must_use]
    pub fn is_over(&self, elapsed: Duration, completions: u64) -> bool {
        let enough = completions >= self.min_completions || elapsed >= self.max;
        elapsed >= self.min && enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_needs_its_time_and_its_completions_or_the_longest_time() {
        let rule = IntervalRule::default();
        let table = [
            (999, 1_000_000, false, "busy, but too short"),
            (1_000, 100, true, "both reached"),
            (1_000, 99, false, "one completion short"),
            (29_999, 99, false, "still stretching"),
            (30_000, 0, true, "nothing completes"),
        ];
        for (millis, completions, over, case) in table {
            let elapsed = Duration::from_millis(millis);
            assert_eq!(rule.is_over(elapsed, completions), over, "{case}");
        }
    }
}
