//! Why an arm is in force.

use crate::reason::reasons;

reasons! {
    /// Why an arm is in force. Changes of throughput are fractions; arms are numbered from 0.
    pub enum ArmReason {
        /// Transactions that began under the arm before still run.
        Washout = "arm_washout" => "arm: transactions of the arm before end";
        /// In a quick round each arm is looked at for a moment.
        Survey {
            /// The best throughput that an arm has shown in it; 0 before the first look.
            best_tps: f64,
        } = "arm_survey" => "arm: quick round, best so far {best_tps:.0} tps";
        /// The arm's controller looks for its limit.
        Tune = "arm_tune" => "arm: its controller looks for its limit";
        /// The incumbent, held.
        Hold {
            /// Its throughput, transactions per second.
            tps: f64,
        } = "arm_hold" => "arm: hold, {tps:.0} tps";
        /// A challenger is compared with the incumbent.
        Compare {
            /// The other of the two arms.
            other: usize,
            /// What is known of the challenger's gain.
            gain: f64,
            /// Its standard error.
            error: f64,
        } = "arm_compare" => "arm: compare with {other}: gain {:+.1} % to {:.1} %",
            gain * 100.0, error * 100.0;
        /// A challenger became the incumbent.
        Adopt {
            /// The incumbent before.
            other: usize,
            /// The gain that was shown.
            gain: f64,
            /// Its standard error.
            error: f64,
        } = "arm_adopt" => "arm: adopt in the place of {other}: gain {:+.1} % to {:.1} %",
            gain * 100.0, error * 100.0;
        /// A challenger is not shown to be better.
        Reject {
            /// The challenger.
            other: usize,
            /// What is known of its gain.
            gain: f64,
            /// Its standard error.
            error: f64,
        } = "arm_reject" => "arm: stay, {other} has gain {:+.1} % to {:.1} %",
            gain * 100.0, error * 100.0;
        /// A challenger is far behind, so it is left at once.
        Leave {
            /// The challenger.
            other: usize,
            /// The best that was seen of its gain.
            gain: f64,
        } = "arm_leave" => "arm: leave {other}, which is far behind: gain {:+.0} %", gain * 100.0;
        /// The incumbent's throughput has changed: all arms are explored again.
        Explore {
            /// Change of throughput.
            change: f64,
        } = "arm_explore" => "arm: explore again, throughput changed by {:+.0} %", change * 100.0;
    }
}
