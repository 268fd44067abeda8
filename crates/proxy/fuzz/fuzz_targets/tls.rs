//! A client of TLS that sends what the fuzzer makes up before, beneath and within the encryption.

#![no_main]

use std::sync::{LazyLock, Mutex, PoisonError};

use libfuzzer_sys::fuzz_target;
use tidegate_proxy_fuzz::session::Rigs;

static RIGS: LazyLock<Mutex<Rigs>> = LazyLock::new(Mutex::default);

fuzz_target!(|bytes: &[u8]| RIGS.lock().unwrap_or_else(PoisonError::into_inner).run_tls(bytes));
