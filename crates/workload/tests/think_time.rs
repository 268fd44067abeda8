//! The mean think time that Little's law needs, against what the specifications say.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use tidegate_workload::ds2::{self, Ds2};
use tidegate_workload::pgbench::Scale;
use tidegate_workload::tpcb::Tpcb;
use tidegate_workload::tpcc::{self, Tpcc};
use tidegate_workload::workload::{Workload, mean_think_time};

fn mean_s(workload: &dyn Workload) -> f64 {
    mean_think_time(workload).as_secs_f64()
}

#[test]
fn without_think_time_it_is_nothing() {
    let tpcb = Tpcb { scale: Scale::new(1).unwrap(), reads_first: false };
    assert!(mean_think_time(&tpcb).is_zero());
    assert!(mean_think_time(&Tpcc::new(tpcc::Scale::new(1).unwrap())).is_zero());
}

/// A customer of DS2 thinks before a cycle of one login, three looks in the mean, and a purchase.
/// A terminal of TPC-C keys and thinks for 21.0 s in the mean of the standard mix: 45 % of 18 + 12
/// s, 43 % of 3 + 12 s, 4 % of 2 + 10 s and 8 % of 2 + 5 s.
#[test]
fn it_is_that_of_the_specification() {
    let options = ds2::Options { think_time_ms: 500, ..ds2::Options::new(ds2::Scale::TINY) };
    let store = mean_s(&Ds2::new(options).unwrap());
    assert!((store - 0.1).abs() < 0.003, "{store}");
    let tpcc = Tpcc { takes_time: true, ..Tpcc::new(tpcc::Scale::new(1).unwrap()) };
    let expected = 0.45 * 30.0 + 0.43 * 15.0 + 0.04 * 12.0 + 0.08 * 7.0;
    let found = mean_s(&tpcc);
    assert!((found / expected - 1.0).abs() < 0.03, "{found} and not {expected}");
}
