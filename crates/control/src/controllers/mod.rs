//! Every algorithm that chooses a limit; `docs/control.md` compares them.

mod arms;
mod external_scheduling;
mod fixed;
mod gaussian_process;
mod goal;
mod heiss_wagner;
mod hill_climbing;
mod latency;
mod locks;
mod observe;
mod paired;
mod parabola;
mod scalability;

pub use arms::{ArmDecision, ArmReason, Arms};
pub use external_scheduling::{
    ExternalScheduling, ExternalSchedulingSettings, FeedbackGrade, FeedbackReason,
};
pub use fixed::Fixed;
pub use gaussian_process::{BeliefReason, GaussianProcess, GaussianProcessSettings};
pub use goal::{GoalReason, GoalSeen, GoalStatus, KeepGoal};
pub use heiss_wagner::{
    FadedParabola, FadedParabolaSettings, HeissWagnerReason, IncrementalSteps,
    IncrementalStepsSettings,
};
pub use hill_climbing::{HillClimbing, HillClimbingSettings};
pub use latency::{
    Aimd, AimdReason, AimdSettings, EnvoyGradient, EnvoyGradientSettings, EnvoyReason, Failsafe,
    FailsafeReason, FailsafeSettings, Gradient2, Gradient2Settings, LatencyReason, QueueReading,
    Vegas, VegasReason, VegasSettings,
};
pub use locks::{
    ConflictRatio, ConflictRatioSettings, HalfAndHalf, HalfAndHalfSettings, LocksReason,
};
pub use observe::{BelievedBest, Gain, NotKnown, Observe, Proposal};
pub use paired::{PairedComparison, PairedReason, PairedSettings};
pub use parabola::{Parabola, ParabolaSettings};
pub use scalability::{Scalability, ScalabilityReason, ScalabilitySettings};

#[cfg(test)]
mod tests;
