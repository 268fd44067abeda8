//! The lock protocols under test, and how a transaction by one of them begins.

use std::fmt;

use tidegate_engine::TxnOptions;
use tidegate_xml::store::{LockGranularity, XmlStore, XmlTransaction};

/// A lock protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    /// The document as a whole, shared or exclusive.
    Document,
    /// Multi-granularity locks on nodes.
    Mgl,
}

/// What a transaction locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Setting {
    pub(crate) protocol: Protocol,
    /// The lock depth; `None` is unbounded.
    pub(crate) depth: Option<u32>,
}

impl Protocol {
    pub(crate) const ALL: [Protocol; 2] = [Protocol::Document, Protocol::Mgl];

    /// Returns the protocol without a bound of depth.
    pub(crate) const fn unbounded(self) -> Setting {
        Setting { protocol: self, depth: None }
    }

    /// Returns the protocol at each lock depth from 0 to 4 and without a bound.
    pub(crate) fn depths(self) -> Vec<Setting> {
        let at = |depth| Setting { protocol: self, depth };
        if self == Protocol::Document {
            return vec![at(None)];
        }
        (0..=4).map(Some).chain([None]).map(at).collect()
    }
}

impl Setting {
    pub(crate) fn begin(self, store: &XmlStore) -> XmlTransaction<'_> {
        let granularity = match (self.protocol, self.depth) {
            (Protocol::Document, _) => LockGranularity::Document,
            (Protocol::Mgl, None) => LockGranularity::Nodes,
            (Protocol::Mgl, Some(depth)) => LockGranularity::NodesToLevel(depth),
        };
        store.begin_locking(granularity, TxnOptions::default())
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.depth {
            None => write!(f, "{:?}", self.protocol),
            Some(depth) => write!(f, "{:?} to {depth}", self.protocol),
        }
    }
}
