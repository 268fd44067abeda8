//! What the protocols know of the lock table.

/// How much a stripe holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) held: u64,
    pub(crate) waiting: u64,
}
