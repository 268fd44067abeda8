//! Why the paired comparison chose a limit.

use std::fmt;

/// Why a limit was chosen. Changes of throughput are fractions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PairedReason {
    /// The transition after a move is not over.
    Washout,
    /// Nothing completed while some waited, so more are let in.
    Starved,
    /// A level of the coarse search.
    Scan {
        /// The highest throughput so far, transactions per second.
        best_tps: f64,
    },
    /// The incumbent, held.
    Hold {
        /// Its throughput, transactions per second.
        tps: f64,
    },
    /// The limit is not what holds throughput where it is.
    NotBinding,
    /// The load is below capacity and some wait: the limit is raised.
    Relieve,
    /// A candidate is compared with the incumbent.
    Compare {
        /// The other of the two limits.
        other: u32,
        /// What is known of the candidate's gain, with its standard error.
        gain: f64,
        /// The standard error.
        error: f64,
    },
    /// A candidate became the incumbent.
    Adopt {
        /// The gain that was shown.
        gain: f64,
        /// Its standard error.
        error: f64,
    },
    /// Throughput of the incumbent has changed: remembered limits and far ones are checked.
    Check {
        /// Change of throughput.
        change: f64,
    },
    /// The coarse search begins again.
    Rescan {
        /// Change of throughput.
        change: f64,
    },
}

impl PairedReason {
    /// The rule in one word for counting.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            PairedReason::Washout => "washout",
            PairedReason::Starved => "starved",
            PairedReason::Scan { .. } => "scan",
            PairedReason::Hold { .. } => "hold",
            PairedReason::NotBinding => "not_binding",
            PairedReason::Relieve => "relieve",
            PairedReason::Compare { .. } => "compare",
            PairedReason::Adopt { .. } => "adopt",
            PairedReason::Check { .. } => "check",
            PairedReason::Rescan { .. } => "rescan",
        }
    }
}

impl fmt::Display for PairedReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PairedReason::Washout => formatter.write_str("washout: what was begun before drains"),
            PairedReason::Starved => {
                formatter.write_str("starved: nothing completed while some wait")
            }
            PairedReason::Scan { best_tps } => {
                write!(formatter, "scan: best so far {best_tps:.0} tps")
            }
            PairedReason::Hold { tps } => write!(formatter, "hold: {tps:.0} tps"),
            PairedReason::NotBinding => formatter.write_str("hold: the limit is not reached"),
            PairedReason::Relieve => {
                formatter.write_str("relieve: some wait under a load below capacity")
            }
            PairedReason::Compare { other, gain, error } => write!(
                formatter,
                "compare with {other}: gain {:+.1} % to {:.1} %",
                gain * 100.0,
                error * 100.0
            ),
            PairedReason::Adopt { gain, error } => {
                write!(formatter, "adopt: gain {:+.1} % to {:.1} %", gain * 100.0, error * 100.0)
            }
            PairedReason::Check { change } => {
                write!(formatter, "check: throughput changed by {:+.0} %", change * 100.0)
            }
            PairedReason::Rescan { change } => {
                write!(formatter, "rescan: throughput changed by {:+.0} %", change * 100.0)
            }
        }
    }
}
