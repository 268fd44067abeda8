//! The `tidegate` program as its users run it: help, errors, exit codes, start and stop, logins.

#![allow(clippy::unwrap_used, reason = "the helpers of tests fail by panicking")]

mod console;
mod existing;
mod handover;
mod kills;
mod lab;
mod orphans;
mod packaging;
mod replay;
mod report;
mod serving;
mod sessions;
mod simulate;
mod support;
mod top;
mod usage;
mod virtual_time;
mod xml;
