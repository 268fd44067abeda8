//! The lock manager through its public surface: scripts of one situation each, random schedules
//! against a naive model, and threads that try to catch it out.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads and clocks of these are the system's"
)]

mod model;
#[path = "../../fuzz/src/random.rs"]
mod random;
mod scenarios;
mod schedules;
mod stage;
mod tables;
mod threads;
