//! The locks below [`Mutex`](super::Mutex) and [`RwLock`](super::RwLock): `parking_lot`'s, whose
//! contended path asks whether the caller is a task of a machine in virtual time.
//!
//! A task that finds a lock taken waits in the machine for its release, and then tries again;
//! others may have been faster, as with `parking_lot`. A thread of the operating system takes
//! `parking_lot`'s own way. What both pay is one look at a variable of the thread.
#![expect(unsafe_code, reason = "`lock_api` asks its raw locks to promise that they exclude")]

use lock_api::{RawMutex as _, RawRwLock as _};

use super::held;
use crate::{fiber, machine};

/// A raw mutual exclusion. `LONG` says that it may be held across a wait.
pub struct RawMutex<const LONG: bool>(parking_lot::RawMutex);

impl<const LONG: bool> RawMutex<LONG> {
    #[cold]
    fn lock_contended(&self) {
        if !fiber::is_active() {
            self.0.lock();
            return;
        }
        while !self.0.try_lock() {
            machine::wait_for_lock(address(self));
        }
    }
}

// SAFETY: `parking_lot`'s lock excludes. This type only waits otherwise for it.
unsafe impl<const LONG: bool> lock_api::RawMutex for RawMutex<LONG> {
    const INIT: RawMutex<LONG> = RawMutex(<parking_lot::RawMutex as lock_api::RawMutex>::INIT);

    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        before_lock();
        if !self.0.try_lock() {
            self.lock_contended();
        }
        has_taken::<LONG>();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let taken = self.0.try_lock();
        if taken {
            has_taken::<LONG>();
        }
        taken
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock, and gives it back with this call.
        unsafe { self.0.unlock() }
        has_released::<LONG>(address(self), false);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

/// A raw lock of readers and writers. `LONG` says that it may be held across a wait.
pub struct RawRwLock<const LONG: bool>(parking_lot::RawRwLock);

impl<const LONG: bool> RawRwLock<LONG> {
    #[cold]
    fn lock_contended(&self, shared: bool) {
        match (fiber::is_active(), shared) {
            (false, true) => self.0.lock_shared(),
            (false, false) => self.0.lock_exclusive(),
            (true, true) => self.wait_until(parking_lot::RawRwLock::try_lock_shared),
            (true, false) => self.wait_until(parking_lot::RawRwLock::try_lock_exclusive),
        }
    }

    fn wait_until(&self, take: fn(&parking_lot::RawRwLock) -> bool) {
        while !take(&self.0) {
            machine::wait_for_lock(address(self));
        }
    }
}

// SAFETY: `parking_lot`'s lock excludes. This type only waits otherwise for it.
unsafe impl<const LONG: bool> lock_api::RawRwLock for RawRwLock<LONG> {
    const INIT: RawRwLock<LONG> = RawRwLock(<parking_lot::RawRwLock as lock_api::RawRwLock>::INIT);

    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        before_lock();
        if !self.0.try_lock_shared() {
            self.lock_contended(true);
        }
        has_taken::<LONG>();
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        let taken = self.0.try_lock_shared();
        if taken {
            has_taken::<LONG>();
        }
        taken
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller shares the lock, and gives its share back with this call.
        unsafe { self.0.unlock_shared() }
        has_released::<LONG>(address(self), true);
    }

    #[inline]
    fn lock_exclusive(&self) {
        before_lock();
        if !self.0.try_lock_exclusive() {
            self.lock_contended(false);
        }
        has_taken::<LONG>();
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        let taken = self.0.try_lock_exclusive();
        if taken {
            has_taken::<LONG>();
        }
        taken
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller holds the lock, and gives it back with this call.
        unsafe { self.0.unlock_exclusive() }
        has_released::<LONG>(address(self), true);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.0.is_locked_exclusive()
    }
}

fn address<L>(lock: &L) -> usize {
    std::ptr::from_ref(lock).addr()
}

/// Lets a machine that draws its schedules switch before a lock is taken: two locks that are taken
/// in either order need that. Builds for speed leave it out; they switch after each release.
#[inline]
fn before_lock() {
    if cfg!(debug_assertions) && fiber::is_active() {
        machine::point();
    }
}

#[inline]
fn has_taken<const LONG: bool>() {
    if cfg!(debug_assertions) && !LONG && fiber::is_active() {
        held::take();
    }
}

#[inline]
fn has_released<const LONG: bool>(address: usize, all: bool) {
    if fiber::is_active() {
        has_released_on_machine::<LONG>(address, all);
    }
}

#[cold]
#[inline(never)]
fn has_released_on_machine<const LONG: bool>(address: usize, all: bool) {
    if cfg!(debug_assertions) && !LONG {
        held::release();
    }
    machine::wake_for_lock(address, all);
    machine::point();
}
