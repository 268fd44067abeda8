//! Whether all threads of the proxy still run.
//!
//! A thread that panics leaves its clients without an answer while the process lives on. So each
//! thread runs [`supervised`](Health::supervise): the first that ends by a panic or an error is
//! remembered, `/healthz` reports it, and [`Health::wait_for_failure`] returns, upon which the
//! process has to end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, PoisonError};

/// A thread of the proxy has failed, so that it no longer serves all its clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{thread} has failed: {reason}; the proxy cannot go on, restart it and report this error")]
pub struct ThreadFailure {
    /// Which thread.
    thread: String,
    /// Its panic message or error.
    reason: String,
}

#[derive(Debug, Default)]
struct State {
    failure: Option<ThreadFailure>,
    is_stopping: bool,
}

/// What the threads of a proxy report of their ends.
#[derive(Debug, Default)]
pub(crate) struct Health {
    state: Mutex<State>,
    changed: Condvar,
}

impl Health {
    /// Runs the work of a thread and records its failure: an error, or a panic.
    pub(crate) fn supervise<E: std::fmt::Display>(
        &self,
        thread: &str,
        work: impl FnOnce() -> Result<(), E>,
    ) {
        // What the work leaves behind is not used again: the process ends.
        let reason = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                text.or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "a panic without a message".to_owned())
            }
        };
        let failure = ThreadFailure { thread: thread.to_owned(), reason };
        tracing::error!("{failure}");
        self.state().failure.get_or_insert(failure);
        self.changed.notify_all();
    }

    /// Returns the first failure.
    pub(crate) fn failure(&self) -> Option<ThreadFailure> {
        self.state().failure.clone()
    }

    /// Tells those who wait for a failure that the proxy stops by itself.
    pub(crate) fn begin_shutdown(&self) {
        self.state().is_stopping = true;
        self.changed.notify_all();
    }

    /// Waits until a thread fails, and returns that failure, or until the proxy stops.
    pub(crate) fn wait_for_failure(&self) -> Option<ThreadFailure> {
        let is_well = |state: &mut State| state.failure.is_none() && !state.is_stopping;
        let state = self.changed.wait_while(self.state(), is_well);
        state.unwrap_or_else(PoisonError::into_inner).failure.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_first_failure_is_kept_and_wakes_who_waits() {
        for (work, reason) in [
            ((|| panic!("slot {} is vacant", 7)) as fn() -> Result<(), String>, "slot 7 is vacant"),
            (|| panic!("plain"), "plain"),
            (|| Err("no poll".to_owned()), "no poll"),
        ] {
            let health = Arc::new(Health::default());
            let waiting = Arc::clone(&health);
            let waiter = std::thread::spawn(move || waiting.wait_for_failure());
            health.supervise("event loop 0", || Ok::<(), String>(()));
            assert_eq!(health.failure(), None);
            health.supervise("event loop 1", work);
            health.supervise("event loop 2", || Err("later"));
            let failure = waiter.join().unwrap().unwrap();
            assert_eq!((&*failure.thread, &*failure.reason), ("event loop 1", reason));
            assert_eq!(health.failure(), Some(failure));
        }
    }

    #[test]
    fn a_proxy_that_stops_has_not_failed() {
        let health = Arc::new(Health::default());
        let waiting = Arc::clone(&health);
        let waiter = std::thread::spawn(move || waiting.wait_for_failure());
        health.begin_shutdown();
        assert_eq!(waiter.join().unwrap(), None);
    }
}
