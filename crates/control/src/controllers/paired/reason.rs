//! Why the paired comparison chose a limit.

use crate::reason::reasons;

reasons! {
    /// Why a limit was chosen. Changes of throughput are fractions.
    pub enum PairedReason {
        /// The transition after a move is not over.
        Washout = "washout" => "washout: what was begun before drains";
        /// Nothing completed while some waited, so more are let in.
        Starved = "starved" => "starved: nothing completed while some wait";
        /// A level of the coarse search.
        Scan {
            /// The highest throughput so far, transactions per second.
            best_tps: f64,
        } = "scan" => "scan: best so far {best_tps:.0} tps";
        /// The incumbent, held.
        Hold {
            /// Its throughput, transactions per second.
            tps: f64,
        } = "hold" => "hold: {tps:.0} tps";
        /// The limit is not what holds throughput where it is.
        NotBinding = "not_binding" => "hold: the limit is not reached";
        /// The load is below capacity and some wait: the limit is raised.
        Relieve = "relieve" => "relieve: some wait under a load below capacity";
        /// A candidate is compared with the incumbent.
        Compare {
            /// The other of the two limits.
            other: u32,
            /// What is known of the candidate's gain, with its standard error.
            gain: f64,
            /// The standard error.
            error: f64,
        } = "compare" => "compare with {other}: gain {:+.1} % to {:.1} %",
            gain * 100.0, error * 100.0;
        /// A candidate became the incumbent.
        Adopt {
            /// The gain that was shown.
            gain: f64,
            /// Its standard error.
            error: f64,
        } = "adopt" => "adopt: gain {:+.1} % to {:.1} %", gain * 100.0, error * 100.0;
        /// Throughput of the incumbent has changed: remembered limits and far ones are checked.
        Check {
            /// Change of throughput.
            change: f64,
        } = "check" => "check: throughput changed by {:+.0} %", change * 100.0;
        /// The coarse search begins again.
        Rescan {
            /// Change of throughput.
            change: f64,
        } = "rescan" => "rescan: throughput changed by {:+.0} %", change * 100.0;
    }
}

impl PairedReason {
    /// Returns whether the limit was chosen only to be measured for a moment.
    #[must_use]
    pub fn is_trial(&self) -> bool {
        matches!(
            self,
            PairedReason::Washout | PairedReason::Scan { .. } | PairedReason::Compare { .. }
        )
    }
}
