//! Where a long measurement is, on stderr.

use std::time::{Duration, Instant};

use crate::{Result, Stop};

/// Steps that were announced, of how many.
pub(crate) struct Progress {
    total: usize,
    done: usize,
    begin: Instant,
    stop: Stop,
}

impl Progress {
    /// None of `total` steps is done.
    pub(crate) fn new(total: usize, stop: &Stop) -> Progress {
        Progress { total, done: 0, begin: Instant::now(), stop: stop.clone() }
    }

    /// Begins the next step; fails when the end was asked for.
    pub(crate) fn step(&mut self, what: &str) -> Result<()> {
        self.stop.check()?;
        let remaining = self
            .remaining()
            .map_or(String::new(), |remaining| format!(", about {} left", in_words(remaining)));
        self.done += 1;
        eprintln!("[{}/{}] {what}{remaining}", self.done, self.total);
        Ok(())
    }

    /// Whether to go on, for what has no steps.
    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// By the mean of the steps so far, once a tenth of them is done.
    fn remaining(&self) -> Option<Duration> {
        if self.done == 0 || self.done * 10 < self.total {
            return None;
        }
        let left = self.total.saturating_sub(self.done) as f64;
        Some(self.begin.elapsed().mul_f64(left / self.done as f64))
    }
}

fn in_words(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..90 => format!("{} s", seconds + 1),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}
