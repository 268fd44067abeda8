//! The two load controls of Heiss and Wagner, "Adaptive load control in transaction processing
//! systems" (VLDB 1991), from which the auto-tuning study's controllers descend.
//!
//! # Mechanism
//! Both adjust a bound on the transactions inside once per interval by what throughput did. They
//! differ in how far they look back:
//!
//! | controller | looks at | next bound | descendant |
//! | --- | --- | --- | --- |
//! | [`IncrementalSteps`] | the last two intervals | on in the same direction while throughput
//! rises, back when it falls | [`HillClimbing`] |
//! | [`FadedParabola`] | all intervals, the older the less | the apex of a parabola fitted to them
//! | [`Parabola`] |
//!
//! The head of each file has the rule, worked through.
//!
//! # Where this leaves the paper
//! The paper's text was not at hand. The two ideas are as the auto-tuning study and others retell
//! them; the paper's constants are not known here, so every setting is chosen, with its reason, and
//! none is called published.
//!
//! [`HillClimbing`]: crate::HillClimbing
//! [`Parabola`]: crate::Parabola

mod faded_parabola;
mod incremental_steps;

use crate::reason::reasons;

pub use faded_parabola::{FadedParabola, FadedParabolaSettings};
pub use incremental_steps::{IncrementalSteps, IncrementalStepsSettings};

reasons! {
    /// Why a limit was chosen. Changes are fractions: 0.12 is 12 % more.
    pub enum HeissWagnerReason {
        /// Incremental steps goes on in the direction of the last step: throughput did not fall.
        Onward {
            /// Relative change of throughput.
            throughput: f64,
        } = "onward" => "onward: throughput {:+.0} %", throughput * 100.0;
        /// Incremental steps turns round: throughput fell.
        Turn {
            /// Relative change of throughput.
            throughput: f64,
        } = "turn" => "turn: throughput {:+.0} %", throughput * 100.0;
        /// The limit goes to the apex of the parabola, or as far toward it as one step may go.
        Apex {
            /// Where the apex is, in transactions.
            at: f64,
        } = "faded_apex" => "apex: faded parabola peaks at {at:.1}";
        /// The parabola has no apex to go to: the limit goes where it rises.
        Uphill {
            /// Slope of the parabola at the present limit, as the relative change of throughput for
            /// a relative change of the limit.
            slope: f64,
        } = "uphill" => "uphill: no apex, {slope:+.2} % for 1 % more";
        /// The limit is where the parabola wants it and takes a random step, so that it stays
        /// known.
        Excite = "excite" => "excite: at the top, a random step to keep it known";
    }
}
