//! Experiments: plan, run, record.
//!
//! [`load`] drives a database with a closed loop of clients and reports what it saw; [`demo`] is
//! the main job end to end: a private server, the same load directly and through the proxy, a
//! report; [`simulate`] tries controllers on simulated plants, in virtual time; [`mod@bench`]
//! compares them on a real server. [`experiment`] runs what a file describes, [`store`] keeps what
//! came of it, and [`tap`] says what of that may be believed. [`rig`] is what the experiments on
//! real servers share.
//!
//! Never here: what a transaction is (that is `workload`), how a server is started (`subject`), and
//! what is printed on standard output (`cli`).

pub mod bench;
pub mod demo;
pub mod experiment;
mod grid;
pub mod load;
pub mod rig;
pub mod simulate;
pub mod store;
pub mod tap;

/// Which code this is: what `git describe` said when it was built, or `unknown`.
pub const BUILD: &str = env!("TIDEGATE_BUILD");
