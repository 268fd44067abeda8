//! Ctrl-C, SIGTERM, and signals that mean nothing here.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// Signals that other servers take for an order to reload or to reopen files.
const IGNORED: [i32; 3] = [SIGHUP, SIGUSR1, SIGUSR2];

/// The signals of a server, to wait for with [`wait`].
pub(crate) fn signals() -> io::Result<Signals> {
    Signals::new([SIGINT, SIGTERM].iter().chain(&IGNORED))
}

/// Waits for a signal that ends the command. Returns whether one came, and not the end of waiting.
/// Other signals, which would end the process in the middle of transactions, are logged.
pub(crate) fn wait(signals: &mut Signals) -> bool {
    for signal in signals.forever() {
        if !IGNORED.contains(&signal) {
            return true;
        }
        let name = signal_hook::low_level::signal_name(signal).unwrap_or("signal");
        tracing::warn!("{name} ignored: it has no meaning here; SIGTERM or SIGINT stops the proxy");
    }
    false
}

/// A flag that such a signal raises.
pub(crate) fn flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}
