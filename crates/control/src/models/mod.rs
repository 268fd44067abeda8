//! Queueing models: how many transactions a database needs inside for its throughput and its response
//! time (external-scheduling study, Section 4).
