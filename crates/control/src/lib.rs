//! Pure decisions: how many transactions may run at once, and why.
//!
//! Nothing here sees a clock, a thread, a socket or a random source. Time arrives inside an
//! [`Observation`], randomness as a [`Draw`], and every [`Decision`] carries the reason for it, so
//! that any run can be replayed from its record.

mod controller;
mod draw;
mod fixed;
mod hill_climbing;
mod observation;
mod parabola;
pub mod plant;
mod window;

#[cfg(test)]
mod testing;

pub use controller::{
    Bounds, BoundsError, Change, Concurrency, Controller, Decision, NoApex, Reason, Step,
};
pub use draw::{Draw, SplitMix64};
pub use fixed::Fixed;
pub use hill_climbing::{HillClimbing, HillClimbingSettings};
pub use observation::{ClassObservation, Mpl, Observation, Timing};
pub use parabola::{Parabola, ParabolaSettings};
pub use window::IntervalRule;
