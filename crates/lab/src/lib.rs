//! Experiments: plan, run, record.
//!
//! [`load`] drives a database with a closed loop of clients and reports what it saw; [`demo`] is
//! the main job end to end: a private server, the same load directly and through the proxy, a
//! report; [`simulate`] tries controllers on simulated plants, in virtual time; [`mod@bench`]
//! compares them on a real server. [`rig`] is what the experiments on real servers share.
//! [`included`] has the files of `experiments/`.
//!
//! Experiments that a file describes go through these modules in order: [`experiment`] reads the
//! file and plans, [`mod@conduct`] executes, [`measured`] is what comes of it, [`store`] keeps it,
//! [`tap`] says what of it may be believed, [`show`] shows it, and [`laboratory`] is the door to
//! all of them.
//!
//! Never here: what a transaction is (that is `workload`), how a server is started (`subject`), and
//! what is printed on standard output (`cli`).

#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    reason = "only our own rooms call it; a comment says what names, types and errors do not"
)]

pub mod bench;
pub mod conduct;
pub mod demo;
pub mod experiment;
mod grid;
pub mod included;
pub mod laboratory;
pub mod load;
pub mod measured;
pub mod rig;
pub mod show;
pub mod simulate;
pub mod store;
pub mod tap;
mod whole_file;

/// What a driver, a library or the system failed with.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Which code this is: what `git describe` said when it was built, or `unknown`.
pub const BUILD: &str = env!("TIDEGATE_BUILD");
