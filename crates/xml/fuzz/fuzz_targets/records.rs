//! The trees of a store of documents, damaged: it opens or not, and what is asked of it is answered
//! or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/store/damaged.rs"]
mod damaged;

fuzz_target!(|bytes: &[u8]| damaged::run(bytes));
