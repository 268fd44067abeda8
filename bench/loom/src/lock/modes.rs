//! What the protocols know of modes.

/// A mode, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode(pub(crate) u8);

/// A set of modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeSet(u64);

impl ModeSet {
    pub(crate) fn of(mode: Mode) -> ModeSet {
        ModeSet(1 << mode.0)
    }

    pub(crate) fn contains(self, mode: Mode) -> bool {
        self.0 & (1 << mode.0) != 0
    }
}
