//! A tree against a `BTreeMap`, through transactions, splits, merges, reopenings and crashes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_engine_fuzz::tree;

fuzz_target!(|bytes: &[u8]| tree::run(bytes));
