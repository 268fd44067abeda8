//! Queueing models: how many transactions a database needs inside for its throughput and its
//! response time (external-scheduling study, Section 4).
//!
//! Neither model predicts seconds. Both predict a *ratio*: what a limit costs against having no
//! limit. That is far easier, because speeds cancel, and it is all that choosing a limit needs.
//!
//! * [`throughput`]: the parts of the database that work at the same time decide how many
//!   transactions keep them busy. It gives the feedback controller its starting limit.
//! * [`response_time`]: how unequal the transactions are decides how many must run side by side,
//!   or short ones wait behind long ones.
//! * [`hyperexponential`]: the sizes of unequal transactions, for the second model.

pub mod hyperexponential;
pub mod response_time;
pub mod throughput;
