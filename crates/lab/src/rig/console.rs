//! Progress on standard error: a bar for a terminal, lines for a log.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// The bar's length; the fraction done is rounded to it.
const LENGTH: u16 = 1000;

const TEMPLATE: &str = "[{bar:30}] {percent:>3} %, {eta} left  {wide_msg}";

#[derive(Clone, Debug)]
pub struct Update {
    /// How much of the experiment is done, by planned time, from 0 to 1.
    pub fraction: f64,
    pub message: String,
    /// Whether something new has begun, so that also those who do not watch want to know.
    pub is_new: bool,
}

/// Shows updates to people; gone when dropped.
pub struct Console {
    bar: Option<ProgressBar>,
    began: Instant,
}

impl Console {
    /// A bar when standard error is a terminal.
    pub fn new() -> Self {
        Console { bar: io::stderr().is_terminal().then(bar), began: Instant::now() }
    }

    pub fn show(&self, update: &Update) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(position(update.fraction));
                bar.set_message(update.message.clone());
            }
            // A closed standard error is no reason to stop.
            None if update.is_new => {
                let left = left(update.fraction, self.began.elapsed());
                drop(writeln!(io::stderr(), "{left}{}", update.message));
            }
            None => {}
        }
    }
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template(TEMPLATE)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    ProgressBar::new(LENGTH.into()).with_style(style)
}

/// How much is done and how long the rest will take, if it goes on like this; nothing while there
/// is too little to go by.
fn left(fraction: f64, elapsed: Duration) -> String {
    if !(0.01..=1.0).contains(&fraction) {
        return String::new();
    }
    let left_s = elapsed.as_secs_f64() * (1.0 - fraction) / fraction;
    let (minutes, seconds) = ((left_s / 60.0).floor(), (left_s % 60.0).floor());
    format!("[{:.0} %, {minutes:.0}:{seconds:02.0} left] ", fraction * 100.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the bar's length"
)]
fn position(fraction: f64) -> u64 {
    (fraction.clamp(0.0, 1.0) * f64::from(LENGTH)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_goes_on_as_before() {
        // 90 s for a quarter: 270 s for the other three.
        assert_eq!(left(0.25, Duration::from_secs(90)), "[25 %, 4:30 left] ");
        assert_eq!(left(1.0, Duration::from_secs(90)), "[100 %, 0:00 left] ");
        for unknown in [0.0, 0.001, f64::NAN, 2.0] {
            assert_eq!(left(unknown, Duration::from_secs(1)), "");
        }
    }
}
