//! Keeps a flood of like events from becoming a flood of log lines.

use std::time::{Duration, Instant};

/// Lines that may follow each other at once.
const BURST: u64 = 10;

/// After a burst, time for each further line.
const INTERVAL: Duration = Duration::from_secs(1);

/// Says which of many like events are logged: a burst of them, then one a second.
#[derive(Debug)]
pub(crate) struct LogLimit {
    /// Lines that may follow each other at once.
    burst: u64,
    /// Lines that may be written now.
    credit: u64,
    /// When `credit` was last increased.
    credited: Instant,
    /// Events that were not logged since the last line.
    unreported: u64,
}

impl LogLimit {
    pub(crate) fn new(now: Instant) -> LogLimit {
        LogLimit { burst: BURST, credit: BURST, credited: now, unreported: 0 }
    }

    /// Allows no burst, but one line a second at most.
    pub(crate) fn one_a_second(now: Instant) -> LogLimit {
        LogLimit { burst: 1, credit: 1, credited: now, unreported: 0 }
    }

    /// Counts an event. Returns the number of events left out before it if it is to be logged.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u64> {
        self.take_credit(now).or_else(|| {
            self.unreported += 1;
            None
        })
    }

    /// Returns the number of events left out since the last line, once a line may be written again.
    pub(crate) fn unreported(&mut self, now: Instant) -> Option<u64> {
        if self.unreported == 0 { None } else { self.take_credit(now) }
    }

    fn take_credit(&mut self, now: Instant) -> Option<u64> {
        let elapsed = now.saturating_duration_since(self.credited);
        let earned = elapsed.as_secs() / INTERVAL.as_secs();
        if earned > 0 {
            self.credit = (self.credit + earned).min(self.burst);
            self.credited = now;
        }
        self.credit = self.credit.checked_sub(1)?;
        Some(std::mem::take(&mut self.unreported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_logged_and_then_one_a_second_with_the_number_left_out() {
        let start = Instant::now();
        let mut limit = LogLimit::new(start);
        let logged = (0..1000).filter(|_| limit.admit(start).is_some()).count();
        assert_eq!(logged as u64, BURST);
        let later = start + INTERVAL;
        assert_eq!(limit.admit(later), Some(1000 - BURST));
        assert_eq!(limit.unreported(later), None, "all have been reported");
        assert_eq!(limit.admit(later), None);
        assert_eq!(limit.unreported(later), None, "not yet");
        assert_eq!(limit.unreported(later + INTERVAL), Some(1));
        let much_later = start + 100 * INTERVAL;
        let logged = (0..1000).filter(|_| limit.admit(much_later).is_some()).count();
        assert_eq!(logged as u64, BURST, "the credit has a bound");
    }

    #[test]
    fn without_a_burst_there_is_one_line_a_second() {
        let start = Instant::now();
        let mut limit = LogLimit::one_a_second(start);
        assert_eq!(limit.admit(start), Some(0));
        assert_eq!(limit.admit(start), None);
        assert_eq!(limit.admit(start + 5 * INTERVAL), Some(1));
        assert_eq!(limit.admit(start + 5 * INTERVAL), None);
    }
}
