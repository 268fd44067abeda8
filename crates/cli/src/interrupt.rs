//! Ctrl-C, SIGTERM, SIGUSR2, and signals that mean nothing here.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// Signals that other servers take for an order to reopen files.
const IGNORED: [i32; 1] = [SIGUSR1];

/// What a signal asks of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To stop.
    Stop,
    /// To read its configuration again.
    Reload,
    /// To hand over to a new process.
    HandOver,
}

/// The signals of a server, to wait for with [`wait`].
pub(crate) fn signals() -> io::Result<Signals> {
    Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR2].iter().chain(&IGNORED))
}

/// Waits for a signal that means something; `None` is the end of waiting. Other signals, which
/// would end the process in the middle of transactions, are logged.
pub(crate) fn wait(signals: &mut Signals) -> Option<Asked> {
    for signal in signals.forever() {
        match signal {
            SIGHUP => return Some(Asked::Reload),
            SIGUSR2 => return Some(Asked::HandOver),
            other if !IGNORED.contains(&other) => return Some(Asked::Stop),
            other => {
                let name = signal_hook::low_level::signal_name(other).unwrap_or("signal");
                tracing::warn!(
                    "{name} ignored: it has no meaning here; SIGTERM or SIGINT stops the proxy, \
                     SIGHUP reads its configuration again"
                );
            }
        }
    }
    None
}

/// A flag that such a signal raises.
pub(crate) fn flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}
