//! The fuzz target with drawn bytes, for every `make test`; `make fuzz` looks for better ones.

#![expect(clippy::print_stdout, reason = "shown when a test fails")]

#[path = "../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "the fuzz target reaches it from another crate")]
mod targets;

use std::time::{Duration, Instant};

use targets::session::Rigs;
use tidegate_control::SplitMix64;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn draw(seed: u64) -> Vec<u8> {
    let mut draws = SplitMix64::new(seed);
    let len = draws.next_bits() % 120;
    (0..len).map(|_| draws.next_bits().to_le_bytes()[3]).collect()
}

/// Names the input that fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed with the input of seed {}", self.0);
        }
    }
}

/// Runs inputs for some time.
fn run(run: fn(&mut Rigs, &[u8])) {
    let first = number("TIDEGATE_FUZZ_SEED", 6_000_000);
    let end = Instant::now() + Duration::from_secs(number("TIDEGATE_FUZZ_SECONDS", 30));
    println!("seeds from {first}");
    let (mut seed, mut rigs) = (first, Rigs::new());
    while Instant::now() < end {
        let _named = Named(seed);
        run(&mut rigs, &draw(seed));
        seed += 1;
    }
    println!("{} inputs", seed - first);
}

#[test]
fn clients_that_log_in_and_send_anything_harm_nobody() {
    run(Rigs::run);
}

/// Before TLS, in its handshake, beneath it and within it.
#[test]
fn clients_of_tls_that_send_anything_harm_nobody() {
    run(Rigs::run_tls);
}

/// Five bytes that once ended the event loop, at rest and in a transaction, in both modes.
#[test]
fn a_sync_that_announces_more_than_it_has() {
    let mut rigs = Rigs::new();
    for mode in [0, 1] {
        for before in [&[][..], &[0, 3]] {
            // 200: a message that may lie; tag S, no payload, a length of 4096.
            rigs.run(&[&[mode, 255][..], before, &[200, 6, 0, 1]].concat());
        }
    }
}
