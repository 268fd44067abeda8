//! The laboratory and its store, on a simulated subject and on real ones.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod begun;
mod experiment;
mod export;
mod hold;
mod machine;
mod support;
