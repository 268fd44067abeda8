//! The incumbent's throughput, and when it has changed.

use crate::settling::WindowSample;

/// The level fades with this time constant, seconds.
const FADES_S: f64 = 20.0;

/// Windows are far off by so many standard deviations, and by so much in ln X.
const DEVIATIONS: f64 = 4.0;
const LEAST: f64 = 0.2;

/// So many of them in a row are a change; fewer, if they are off by this in ln X. Less may be what
/// the limits that a controller tries have lost.
const WINDOWS: u32 = 10;
const FEW_WINDOWS: u32 = 3;
const PLAIN: f64 = std::f64::consts::LN_2;

/// The incumbent's throughput as windows show it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IncumbentLevel {
    ln_x: Option<f64>,
    /// Variance of a window about it.
    spread: f64,
    /// Windows in a row that are above (or below) it by far.
    off: i32,
}

impl IncumbentLevel {
    pub(super) fn at(ln_x: f64, spread: f64) -> IncumbentLevel {
        IncumbentLevel { ln_x: Some(ln_x), spread, off: 0 }
    }

    /// Returns the level in transactions per second, if it is known.
    pub(super) fn tps(&self) -> Option<f64> {
        self.ln_x.map(libm::exp)
    }

    pub(super) fn spread(&self) -> f64 {
        self.spread
    }

    /// Takes a window; the change in ln X, if that is a change.
    pub(super) fn take(&mut self, sample: &WindowSample) -> Option<f64> {
        let Some(level) = self.ln_x else {
            self.ln_x = Some(sample.ln_x);
            return None;
        };
        let off = sample.ln_x - level;
        let deviation = self.spread.max(sample.variance).sqrt();
        if off.abs() > LEAST.max(DEVIATIONS * deviation) {
            let side = if off > 0.0 { 1 } else { -1 };
            self.off = if self.off * side > 0 { self.off + side } else { side };
            let enough = if off.abs() > PLAIN { FEW_WINDOWS } else { WINDOWS };
            return (self.off.unsigned_abs() >= enough).then_some(off);
        }
        self.off = 0;
        let share = 1.0 - libm::exp(-(sample.seconds + sample.washed_s) / FADES_S);
        self.ln_x = Some(level + share * off);
        self.spread += 0.1 * (off * off - self.spread);
        None
    }
}
