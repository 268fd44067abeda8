//! The lock manager through its public surface: scripts of one situation each, random schedules
//! against a naive model, and threads that try to catch it out.

mod model;
#[path = "../../fuzz/src/random.rs"]
mod random;
mod scenarios;
mod stage;
mod tables;
mod threads;
