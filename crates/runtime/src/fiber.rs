//! Fibers: calls that can be suspended anywhere, all on one thread of the operating system.
//!
//! A fiber runs to the end of its body. It is not dropped while it is suspended, because that
//! would unwind its stack through code that does not expect it; a fiber that cannot go on is
//! leaked with its stack ([`Fiber::leak`]).
#![expect(unsafe_code, reason = "a fiber's way back is on its own stack and reached by a pointer")]

use std::cell::Cell;
use std::io;
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

/// Bytes of a fiber's stack: as much as the standard library gives a thread. The system gives
/// memory to the pages that are touched.
const STACK_BYTES: usize = 2 << 20;

thread_local! {
    /// The way out of the fiber that runs on this thread; null if none does.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
}

/// A call that runs when it is resumed, to its next [`suspend`] or its end.
pub(crate) struct Fiber(Option<Coroutine<(), (), ()>>);

impl Fiber {
    /// Returns a fiber that has not begun.
    ///
    /// # Errors
    ///
    /// The system's, if it has no memory for the stack.
    pub(crate) fn new(body: impl FnOnce() + 'static) -> io::Result<Fiber> {
        let stack = DefaultStack::new(STACK_BYTES)?;
        let coroutine = Coroutine::with_stack(stack, move |yielder, ()| {
            YIELDER.set(ptr::from_ref(yielder));
            body();
        });
        Ok(Fiber(Some(coroutine)))
    }

    /// Runs the fiber to its next suspension and returns whether its body has ended. The body
    /// does not panic.
    pub(crate) fn resume(&mut self) -> bool {
        debug_assert!(!is_active(), "a fiber is resumed by the thread, not by a fiber");
        let coroutine = self.0.as_mut().expect("a fiber that was leaked is not resumed");
        let result = coroutine.resume(());
        YIELDER.set(ptr::null());
        matches!(result, CoroutineResult::Return(()))
    }

    /// Gives up a fiber that will not be resumed. Its stack and what is on it stay in memory.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(self.0.take());
    }
}

/// Returns whether the caller is on a fiber.
pub(crate) fn is_active() -> bool {
    !YIELDER.get().is_null()
}

/// Suspends the fiber that calls, until it is resumed.
pub(crate) fn suspend() {
    let yielder = YIELDER.get();
    assert!(!yielder.is_null(), "only a fiber is suspended");
    // SAFETY: the pointer is not null, so `Fiber::new` or this function has set it after control
    // came to the fiber that calls. It points into that fiber's stack, which is there as long as
    // the fiber runs.
    unsafe { (*yielder).suspend(()) }
    YIELDER.set(yielder);
}
