//! Progress on standard error: a bar for a terminal, lines for a log.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

use super::Update;

/// The bar's length; the fraction done is rounded to it.
const LENGTH: u16 = 1000;

const TEMPLATE: &str = "[{bar:30}] {percent:>3} %, {eta} left  {wide_msg}";

/// Shows updates to people; gone when dropped.
pub struct Console {
    bar: Option<ProgressBar>,
}

impl Console {
    /// A bar when standard error is a terminal.
    #[must_use]
    pub fn new() -> Self {
        Console { bar: io::stderr().is_terminal().then(bar) }
    }

    /// Shows an update.
    pub fn show(&self, update: &Update) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(position(update.fraction));
                bar.set_message(update.message.clone());
            }
            // A closed standard error is no reason to stop.
            None if update.is_new => drop(writeln!(io::stderr(), "{}", update.message)),
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

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the bar's length"
)]
fn position(fraction: f64) -> u64 {
    (fraction.clamp(0.0, 1.0) * f64::from(LENGTH)) as u64
}
