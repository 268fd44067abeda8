//! The proxy between real clients and a real PostgreSQL.
//!
//! Each test starts a proxy of its own in this process and shares the server with the tests that
//! run at the same time; the last one to let go of it stops it. What may have leaked is looked up
//! where a user would: in `/metrics`.

#![expect(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod admission;
mod applicants;
mod auth_query;
mod bad_input;
mod cancels;
mod churn;
mod classes;
mod console;
mod differential;
mod faults;
mod goal;
mod handover;
mod hba;
mod holders;
mod journal;
mod load;
mod logins;
mod monitoring;
mod observe;
mod outages;
mod peers;
mod places;
mod protocol;
mod reload;
mod replication;
mod seeded;
mod session_model;
mod session_state;
mod sessions;
mod settings;
mod soak;
mod statements;
mod support;
mod timeouts;
mod tls;
mod watch;
