//! How long the phases of a transaction take, whoever runs it: the laboratory's clients, or the
//! embedded engine.

use std::time::{Duration, Instant};

/// The most phases a transaction may have.
const PHASES_MAX: usize = 64;

/// Adds up the time of each phase of a transaction; see
/// [`Session::phase`](tidegate_workload::Session::phase).
#[derive(Debug)]
pub struct PhaseClock {
    phase: usize,
    began: Instant,
    took: Vec<Duration>,
}

impl PhaseClock {
    /// A clock of a transaction that begins now, in its first phase.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        PhaseClock { phase: 0, began: now, took: Vec::new() }
    }

    /// A transaction begins, in its first phase.
    pub fn restart(&mut self, now: Instant) {
        self.phase = 0;
        self.began = now;
        self.took.clear();
    }

    /// The phase of this number begins.
    pub fn enter(&mut self, phase: usize, now: Instant) {
        self.end(now);
        self.phase = phase.min(PHASES_MAX - 1);
    }

    /// The time of each phase, the one under way up to now.
    pub fn read(&mut self, now: Instant) -> &[Duration] {
        self.end(now);
        &self.took
    }

    fn end(&mut self, now: Instant) {
        if self.took.len() <= self.phase {
            self.took.resize(self.phase + 1, Duration::ZERO);
        }
        self.took[self.phase] += now.saturating_duration_since(self.began);
        self.began = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_time_also_when_it_comes_back() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let ms = |took: &[Duration]| took.iter().map(Duration::as_millis).collect::<Vec<_>>();
        let mut clock = PhaseClock::new(start);
        clock.enter(2, at(5));
        clock.enter(0, at(7));
        assert_eq!(ms(clock.read(at(10))), [8, 0, 2]);
        clock.restart(at(20));
        assert_eq!(ms(clock.read(at(21))), [1]);
    }
}
