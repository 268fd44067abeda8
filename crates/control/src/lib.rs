//! Pure decisions: how many transactions may run at once, and why.
//!
//! Nothing here sees a clock, a thread, a socket or a random source. Time arrives inside an
//! [`Observation`], randomness as a [`Draw`], and every [`Decision`] carries the reason for it, so
//! that any run can be replayed from its record.
//!
//! # Example
//! A controller on a simulated database that does most with 8 transactions inside:
//!
//! ```
//! use tidegate_control::plant::{Curve, CurvePhase, CurvePlant, Simulation};
//! use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting};
//!
//! let curve = Curve::new(&[(1, 200.0), (8, 1_000.0), (64, 500.0), (256, 100.0)])?;
//! let mut plant = CurvePlant::new(&[CurvePhase::closed(curve, 256, 0.02)], 1);
//!
//! let setting = Setting {
//!     bounds: Bounds::new(Mpl::at_least_one(1), Mpl::at_least_one(256))?,
//!     start: Mpl::at_least_one(64),
//!     resources: Resources { cpus: 2, disks: 1 },
//! };
//! let algorithm: Algorithm = "hill-climbing".parse()?;
//! let mut simulation = Simulation::new(algorithm.controller(&setting), 1);
//! for _ in 0..100 {
//!     let (observation, decision) = simulation.interval(&mut plant);
//!     println!("{} tps at {}: {}", observation.completions, observation.limit, decision.reason);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod catalogue;
mod controller;
mod controllers;

pub mod models;
mod observation;
mod overdue;
mod parameters;
pub mod plant;
mod reason;
mod response_goal;
mod sequential_test;
mod server;
mod settling;
mod what_if;
mod window;

#[cfg(test)]
mod testing;

pub use catalogue::{
    Algorithm, AlgorithmError, ControlChoice, ParametersError, Resources, Setting, Tuned,
};
pub use controller::{Bounds, BoundsError, Concurrency, Controller, Decision, Step};
pub use controllers::*;
pub use observation::{ClassObservation, LimitZero, LockObservation, Mpl, Observation, Timing};
pub use overdue::OverdueRule;
pub use parameters::{Parameter, ParameterProblem};
pub use reason::{Change, NoApex, Reason};
pub use response_goal::{ResponseGoal, ResponseGoalError, ResponseStatistic};
pub use server::{Bottleneck, ServerObservation};
pub use tidegate_random::{Draw, SplitMix64};
pub use what_if::{CurveInterval, CurveMeasurement, CurveRow, Unknown, WhatIf, WhatIfCurve};
pub use window::IntervalRule;
