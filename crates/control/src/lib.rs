//! Pure decisions: how many transactions may run at once, and why.
//!
//! Nothing here sees a clock, a thread, a socket or a random source. Time arrives inside an
//! [`Observation`], randomness as a [`Draw`], and every [`Decision`] carries the reason for it, so
//! that any run can be replayed from its record.

mod catalogue;
mod controller;
mod controllers;
mod draw;
pub mod models;
mod observation;
mod overdue;
mod parameters;
pub mod plant;
mod response_goal;
mod server;
mod settling;
mod what_if;
mod window;

#[cfg(test)]
mod testing;

pub use catalogue::{
    Algorithm, AlgorithmError, ControlChoice, ParametersError, Resources, Setting, Tuned,
};
pub use controller::{
    Bounds, BoundsError, Change, Concurrency, Controller, Decision, NoApex, Reason, Step,
};
pub use controllers::*;
pub use draw::{Draw, SplitMix64};
pub use observation::{ClassObservation, LimitZero, LockObservation, Mpl, Observation, Timing};
pub use overdue::OverdueRule;
pub use parameters::{Parameter, ParameterProblem};
pub use response_goal::{ResponseGoal, ResponseGoalError, ResponseStatistic};
pub use server::{Bottleneck, ServerObservation};
pub use what_if::{CurveInterval, CurveRow, Unknown, WhatIf, WhatIfCurve};
pub use window::IntervalRule;
