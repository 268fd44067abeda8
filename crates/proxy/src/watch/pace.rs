//! How often a question is asked, so that it costs no more than a share of a processor.
//!
//! The next question comes when the one before is as old as its cost over the share. The cost is
//! the median of the last questions: while the server is busy some of them are interrupted, and
//! their time is not cost.
//!
//! # Example
//! The server works on a question for 0.13 ms, and 0.15 ms more are spent around it:
//! 0.28 ms / 0.007 = 40 ms. When it works for 3 ms, with thousands of sessions, it is asked every
//! 0.45 s.

use std::collections::VecDeque;
use std::time::Duration;

/// Costs that are remembered.
const REMEMBERED: usize = 15;

/// What a question costs beside the time that the server reports: the transaction around it, and
/// messages. Measured with `bench/watch.py`, on a machine that others kept busy.
const AROUND: Duration = Duration::from_micros(150);

/// Time between two questions before anything is known of their cost.
const FIRST: Duration = Duration::from_millis(100);

/// The longest time between two questions, so that a wrong clock of the server ends no watch.
const LONGEST: Duration = Duration::from_secs(10);

/// The pace of one question.
#[derive(Debug)]
pub(super) struct Pace {
    /// The share of a processor that it may cost.
    share: f64,
    /// The shortest time between two.
    shortest: Duration,
    costs: VecDeque<Duration>,
}

impl Pace {
    /// The pace of the question what sessions do.
    pub(super) fn of_sessions() -> Pace {
        Pace { share: 0.007, shortest: Duration::from_millis(10), costs: VecDeque::new() }
    }

    /// The pace of the question who holds how many locks.
    pub(super) fn of_locks() -> Pace {
        Pace { share: 0.002, shortest: Duration::from_millis(100), costs: VecDeque::new() }
    }

    /// Takes the cost of a question into account. Returns the time from it to the next one.
    pub(super) fn next(&mut self, cost: Duration) -> Duration {
        if self.costs.len() == REMEMBERED {
            self.costs.pop_front();
        }
        self.costs.push_back(cost.saturating_add(AROUND));
        self.interval()
    }

    /// Returns the time between two questions.
    pub(super) fn interval(&self) -> Duration {
        let Some(cost) = self.cost() else {
            return FIRST;
        };
        // The first costs are not typical: the server reads its catalogue.
        let shortest = if self.costs.len() < REMEMBERED / 2 { FIRST } else { self.shortest };
        let wanted = cost.as_secs_f64() / self.share;
        Duration::from_secs_f64(wanted.min(LONGEST.as_secs_f64())).max(shortest)
    }

    /// Returns the share of a processor that the question costs; 0 before it was asked.
    pub(super) fn share(&self) -> f64 {
        let cost = self.cost().unwrap_or_default();
        cost.as_secs_f64() / self.interval().as_secs_f64()
    }

    fn cost(&self) -> Option<Duration> {
        let mut costs: Vec<Duration> = self.costs.iter().copied().collect();
        costs.sort_unstable();
        costs.get(costs.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pace after so many questions that take so many microseconds.
    fn after(count: usize, micros: u64) -> Pace {
        let mut pace = Pace::of_sessions();
        for _ in 0..count {
            pace.next(Duration::from_micros(micros));
        }
        pace
    }

    #[test]
    fn the_interval_follows_the_cost_and_keeps_the_share() {
        for (micros, least, most) in
            [(0, 20, 25), (60, 30, 30), (550, 100, 100), (6_850, 1_000, 1_000)]
        {
            let pace = after(REMEMBERED, micros);
            let millis = pace.interval().as_millis();
            assert!((least..=most).contains(&millis), "{micros} µs: {millis} ms");
            assert!(pace.share() <= 0.0071, "{micros} µs: {}", pace.share());
        }
    }

    #[test]
    fn a_question_that_was_interrupted_changes_little() {
        let mut pace = after(REMEMBERED, 40);
        let before = pace.interval();
        assert_eq!(pace.next(Duration::from_millis(300)), before);
        for _ in 0..REMEMBERED {
            pace.next(Duration::from_millis(3));
        }
        assert!(pace.interval() > before * 10, "when all are slow it is cost");
    }

    #[test]
    fn no_cost_stops_the_questions() {
        let mut pace = Pace::of_locks();
        assert_eq!(pace.interval(), FIRST);
        assert!(pace.share() < f64::EPSILON);
        assert_eq!(pace.next(Duration::MAX), LONGEST);
    }
}
