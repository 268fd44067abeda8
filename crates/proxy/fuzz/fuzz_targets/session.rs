//! A client that logs in to a running proxy and then sends what the fuzzer makes up.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_proxy_fuzz::session;

fuzz_target!(|bytes: &[u8]| session::run(bytes));
