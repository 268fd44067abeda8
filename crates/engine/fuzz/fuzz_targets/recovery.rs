//! Files of a small store, damaged: what is opened is right or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_engine_fuzz::recovery;

fuzz_target!(|bytes: &[u8]| recovery::run(bytes));
