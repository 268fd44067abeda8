//! Why the Gaussian process chose a limit.

use std::fmt;

/// Why the Gaussian process chose a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BeliefReason {
    /// The best limit known is in force.
    Hold {
        /// Relative standard deviation of what is believed about throughput there.
        deviation: f64,
    },
    /// Another limit is believed to be better.
    Better {
        /// Relative change of throughput expected.
        gain: f64,
    },
    /// Another limit is worth trying.
    Probe {
        /// Expected gain over the horizon, net of the cost, in intervals' throughputs.
        worth: f64,
    },
    /// The first step of all goes down.
    Descend,
    /// One interval was far from what was expected: the next will tell.
    Doubt {
        /// How far, in standard deviations.
        surprise: f64,
    },
    /// The workload has changed.
    Changed {
        /// Relative change of throughput against what was expected.
        throughput: f64,
    },
    /// The limit did not hold throughput where it was.
    Light {
        /// Share of the time with somebody waiting.
        waiting_share: f64,
    },
    /// Some waited although the database keeps up: one step more.
    Relieve {
        /// Share of the time with somebody waiting.
        waiting_share: f64,
    },
}

impl BeliefReason {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            BeliefReason::Hold { .. } => "hold",
            BeliefReason::Better { .. } => "better",
            BeliefReason::Probe { .. } => "probe",
            BeliefReason::Descend => "descend",
            BeliefReason::Doubt { .. } => "doubt",
            BeliefReason::Changed { .. } => "changed",
            BeliefReason::Light { .. } => "light",
            BeliefReason::Relieve { .. } => "relieve",
        }
    }
}

impl fmt::Display for BeliefReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| share * 100.0;
        match *self {
            BeliefReason::Hold { deviation } => {
                write!(formatter, "hold: the best known, to {:.1} %", percent(deviation))
            }
            BeliefReason::Better { gain } => {
                write!(formatter, "better: throughput {:+.1} % expected", percent(gain))
            }
            BeliefReason::Probe { worth } => {
                write!(formatter, "probe: worth {worth:.2} intervals of throughput")
            }
            BeliefReason::Descend => {
                formatter.write_str("descend: a limit too low costs less than one too high")
            }
            BeliefReason::Doubt { surprise } => {
                write!(formatter, "doubt: {surprise:+.1} deviations from expected, looking again")
            }
            BeliefReason::Changed { throughput } => {
                let off = percent(throughput);
                write!(formatter, "changed: throughput {off:+.0} % from expected, probing anew")
            }
            BeliefReason::Light { waiting_share } => {
                let share = percent(waiting_share);
                write!(formatter, "light: somebody waited only {share:.0} % of the time")
            }
            BeliefReason::Relieve { waiting_share } => {
                let share = percent(waiting_share);
                write!(formatter, "relieve: somebody waited {share:.0} % of the time")
            }
        }
    }
}
