//! TAP, the thrashing analysis protocol: which measurements may be believed, and where each
//! batchset thrashes (Suh, Snodgrass and Currim, 2017, Section 6.5).
//!
//! # Mechanism
//! The study measures *batchsets*. A batchset fixes a kind of transaction; its batches are 100,
//! 200, … 1,000 clients at once; each batch is executed several times for the length of the
//! connection time limit (CTL). One run takes one DBMS in one configuration through 28 batchsets.
//! What a run made of a batchset is a batchset instance (BSI), likewise batch instance (BI) and
//! batch execution (BE). The protocol takes the rows of all runs through four steps:
//!
//! | step | does |
//! | --- | --- |
//! | 1 | applies the checks to all rows ([`Check`]) |
//! | 2 | drops the BEs that violate check 6, 7, 8 or 10 |
//! | 3-(i) | drops the BSIs in which a batch has no BE left |
//! | 3-(ii) | drops the BSIs that violate check 9, as found in Step 1 |
//! | 3-(iii) | drops the BSIs that would violate check 9 by the BEs left |
//! | 4 | gives each BSI left its thrashing point, TP ([`Rule`]) |
//!
//! [`analyse`] is a function of rows: no clock, no file, no database. A result store fills a
//! [`DataSet`] and keeps the [`TapReport`].
//!
//! # Example
//! The study's confirmatory data (Tables 5 to 8): 1,400 BSIs, 70,000 BEs. Check 6 found 25 BEs,
//! check 7 2,434, check 8 679; these are 3,138, 65 of them repeats, since Step 2 dropped 3,073 and
//! left 66,927. Then 61 BSIs lacked a batch, none thrashed transiently, and of the 1,339 left 482
//! had a TP. A test builds data of just this kind and gets these tables.
//!
//! # Where this leaves the study
//! Each check says in its own file how it was made exact: 1 to 5 in `experiment.rs`, 6 and 7 in
//! `execution.rs`, 8 in `atpt.rs`, 9 with Eq. (1) in `curve.rs`. Of the whole:
//! * **Nine checks.** The text announces eight and counts "other executors" only in Table 5.
//! * **A tenth check**, ours: no steady state, by Little's law (`steady.rs`). What it finds is
//!   dropped in Step 2 with the rest, or kept with a caveat where [`Choices::keeps_unsteady`] says
//!   so; the protocol's name then says so, too.
//! * **Violations of checks 1 to 5.** There must be none, and in the study there were none, so that
//!   nothing says what follows from one. Here nothing is dropped for them
//!   ([`TapReport::is_sound`] is false), but a BSI with any is retained with a caveat: an analysis
//!   can leave it out and see whether it matters.
//! * **The host.** The study has one machine for each DBMS, and no check of that. Check 11 finds
//!   batchset instances that several hosts measured; it is treated as checks 1 to 5. And the report
//!   names the factors that cannot be told from the hosts ([`Confounded`]).
//! * **Checks look at all rows.** A BE may violate several; Step 2 drops it once.
//! * **Throughput** is completions over the time measured from start to end, not over the CTL.
//! * **A BSI without BEs does not count** at the start of Step 3. Thus the study has 1,112 BSIs
//!   there in its exploratory data, of 1,120.
//! * **TP = ∞ is a result**, with the highest MPL tried: a censored value, never a missing one.
//! * **Contradictory rows are refused** ([`DataError`]): a count of rows that are there twice or
//!   were never planned would be wrong without a sign of it.
//!
//! # Limits
//! * No check looks at transactions that failed, nor at those that had not ended when the time was
//!   up. Where a database refuses most of its work, throughput is that of the rest.
//! * Curves of one BSI are means over as few as one BE, when Step 2 dropped the others; the number
//!   is beside each point.
//! * Every BSI has one TP or none. How sure it is needs the spread of the BEs, which the protocol
//!   does not use: [`Posterior`] does, beside the protocol, and changes nothing in it.

mod account;
mod atpt;
mod batchset;
mod check;
mod curve;
mod data;
mod execution;
mod experiment;
mod host;
mod index;
pub mod posterior;
mod steady;
mod steps;
mod tables;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use account::{Count, Dropped};
pub use atpt::{EXECUTIONS_MIN, SPREAD_MIN, THRESHOLD};
pub use check::{Check, CheckPlace, Class, Violation};
pub use curve::{Level, Rule, ThrashingPoint, ThroughputCurve, Transient};
pub use data::{
    BatchExecution, BatchKey, BatchsetInstance, BatchsetKey, DataError, DataSet, ExecutionKey,
    Factors, RunDesign, RunId, TapRun,
};
pub use execution::{TOLERANCE_MIN_S, TOLERANCE_SHARE};
pub use experiment::OVERLAP_S;
pub use host::{Confounded, Group};
pub use index::Counts;
pub use posterior::{LevelSample, OutcomeProbability, Posterior};
pub use steady::MEASURED_SHARE;
pub use steps::{
    CheckCount, Choices, CurvePoint, DroppedBatchset, GroupCount, RetainedBatchset, Step,
    StepCounts, TapReport, analyse,
};

pub(crate) use tables::certainty;

/// The version of the protocol as coded here; another when a check or a constant changes.
pub const PROTOCOL: &str = "tap v2";

/// The same where executions that are no steady state were kept.
pub const PROTOCOL_UNSTEADY: &str = "tap v2, unsteady kept";
