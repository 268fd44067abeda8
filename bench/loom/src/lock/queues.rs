//! What the protocols know of the queues.

use std::sync::Arc;

use super::locker_state::LockerState;
use super::modes::Mode;

/// A request for a resource that its locker does not hold.
pub(crate) struct NewRequest<'a, R> {
    pub(crate) hash: u64,
    pub(crate) resource: &'a R,
    pub(crate) mode: Mode,
    pub(crate) locker: &'a Arc<LockerState>,
}
