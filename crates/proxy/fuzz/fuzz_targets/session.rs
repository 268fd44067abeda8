//! A client that logs in to a running proxy and then sends what the fuzzer makes up.

#![no_main]

use std::sync::{LazyLock, Mutex, PoisonError};

use libfuzzer_sys::fuzz_target;
use tidegate_proxy_fuzz::session::Rigs;

static RIGS: LazyLock<Mutex<Rigs>> = LazyLock::new(Mutex::default);

fuzz_target!(|bytes: &[u8]| RIGS.lock().unwrap_or_else(PoisonError::into_inner).run(bytes));
