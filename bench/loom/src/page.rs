//! What the protocols know of pages.

/// The number of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageId(pub(crate) u64);

impl PageId {
    pub(crate) const NONE: PageId = PageId(0);

    pub(crate) fn is_none(self) -> bool {
        self == PageId::NONE
    }
}
