//! Threads of the model. It has no time, so who waits for a while waits without a bound.
//!
//! A thread is woken by a token of its own. The model's `unpark` would hand on what its caller has
//! done also to a thread that never parks, which the standard library's does not.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use loom::sync::{Condvar, Mutex};

struct Token {
    is_set: Mutex<bool>,
    changed: Condvar,
}

loom::thread_local! {
    static OWN: Arc<Token> =
        Arc::new(Token { is_set: Mutex::new(false), changed: Condvar::new() });
}

/// A thread of the model, to be woken.
#[derive(Clone)]
pub struct Task(Arc<Token>);

impl Task {
    /// Lets the thread go on that is parked, or its next wait return at once.
    ///
    /// # Panics
    /// If a thread of the model has panicked with the token.
    pub fn unpark(&self) {
        *self.0.is_set.lock().expect("no thread panics") = true;
        self.0.changed.notify_one();
    }

    /// Returns whether the two are the same thread.
    #[must_use]
    pub fn is(&self, other: &Task) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Task").finish_non_exhaustive()
    }
}

/// Returns the caller's thread.
#[must_use]
pub fn current() -> Task {
    Task(OWN.with(Arc::clone))
}

/// Returns the number of the caller's thread: they all share a stripe.
#[must_use]
pub fn number() -> usize {
    0
}

/// Waits until the caller's thread is unparked.
///
/// # Panics
/// If a thread of the model has panicked with the token.
pub fn park() {
    let own = current().0;
    let mut is_set = own.is_set.lock().expect("no thread panics");
    while !*is_set {
        is_set = own.changed.wait(is_set).expect("no thread panics");
    }
    *is_set = false;
}

/// Waits until the caller's thread is unparked.
pub fn park_until(_: Instant) {
    park();
}
