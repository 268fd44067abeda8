//! Why the Gaussian process chose a limit.

use crate::reason::reasons;

reasons! {
    /// Why the Gaussian process chose a limit.
    pub enum BeliefReason {
        /// The best limit known is in force.
        Hold {
            /// Relative standard deviation of what is believed about throughput there.
            deviation: f64,
        } = "hold" => "hold: the best known, to {:.1} %", deviation * 100.0;
        /// Another limit is believed to be better.
        Better {
            /// Relative change of throughput expected.
            gain: f64,
        } = "better" => "better: throughput {:+.1} % expected", gain * 100.0;
        /// Another limit is worth trying.
        Probe {
            /// Expected gain over the horizon, net of the cost, in intervals' throughputs.
            worth: f64,
        } = "probe" => "probe: worth {worth:.2} intervals of throughput";
        /// The first step of all goes down.
        Descend = "descend" => "descend: a limit too low costs less than one too high";
        /// One interval was far from what was expected: the next will tell.
        Doubt {
            /// How far, in standard deviations.
            surprise: f64,
        } = "doubt" => "doubt: {surprise:+.1} deviations from expected, looking again";
        /// The workload has changed.
        Changed {
            /// Relative change of throughput against what was expected.
            throughput: f64,
        } = "changed" => "changed: throughput {:+.0} % from expected, probing anew",
            throughput * 100.0;
        /// The limit did not hold throughput where it was.
        Light {
            /// Share of the time with somebody waiting.
            waiting_share: f64,
        } = "light" => "light: somebody waited only {:.0} % of the time", waiting_share * 100.0;
        /// Some waited although the database keeps up: one step more.
        Relieve {
            /// Share of the time with somebody waiting.
            waiting_share: f64,
        } = "relieve" => "relieve: somebody waited {:.0} % of the time", waiting_share * 100.0;
    }
}
