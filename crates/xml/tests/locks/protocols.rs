//! The lock protocols under test, and how a transaction by one of them begins.

use std::fmt;

use tidegate_engine::{Isolation, TxnOptions};
use tidegate_xml::store::{LockEscalation, LockProtocol, Locking, XmlStore, XmlTransaction};

/// A lock protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    /// The document as a whole, shared or exclusive.
    Document,
    /// The root element, exclusive, for readers, too.
    X,
    /// Multi-granularity locks on nodes.
    Mgl,
    /// `taDOM3+`.
    Tadom,
    /// `taDOM3+` with other modes for some requests.
    Planted(&'static [(&'static str, &'static str)]),
    /// `taDOM3+` with tables of its own, which transactions by others are not mixed with.
    Own,
}

const TABLES: &str = include_str!("../../src/store/locks/protocols/tadom3plus.modes");

/// What `taDOM3+` requests, in the form that [`LockProtocol::parse`] reads.
const REQUESTS: [(&str, &str); 12] = [
    ("read-node", "NR"),
    ("read-children", "LR"),
    ("read-subtree", "SR"),
    ("update-node", "NU"),
    ("update-subtree", "SU"),
    ("write-node", "NX"),
    ("write-subtree", "SX"),
    ("write-children", "CX"),
    ("read-edge", "NR"),
    ("write-edge", "NX"),
    ("rely-on-classes", "SR"),
    ("add-class", "IX"),
];

/// Returns the text of a protocol with the modes of `taDOM3+` and some other requests.
fn planted(changes: &[(&str, &str)]) -> String {
    let lines = REQUESTS.map(|(request, right)| {
        let other = changes.iter().find(|(changed, _)| *changed == request);
        let mode = other.map_or(right, |(_, mode)| mode);
        format!("    {request}  {mode}\n")
    });
    format!("protocol planted\nmodes taDOM3+\n[requests]\n{}", lines.concat())
}

/// What a transaction locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) protocol: Protocol,
    /// The lock depth; `None` is unbounded.
    pub(crate) depth: Option<u32>,
    pub(crate) escalation: Option<LockEscalation>,
}

impl Protocol {
    pub(crate) const ALL: [Protocol; 4] =
        [Protocol::Document, Protocol::X, Protocol::Mgl, Protocol::Tadom];

    /// Returns the protocol without a bound of depth.
    pub(crate) const fn unbounded(self) -> Setting {
        Setting { protocol: self, depth: None, escalation: None }
    }

    /// Returns the protocol at each lock depth from 0 to 4 and without a bound. Where there is one
    /// lock only, there are no depths.
    pub(crate) fn depths(self) -> Vec<Setting> {
        let at = |depth| Setting { depth, ..self.unbounded() };
        match self {
            Protocol::Document | Protocol::X => vec![at(None)],
            _ => (0..=4).map(Some).chain([None]).map(at).collect(),
        }
    }

    /// Returns whether the text of the protocol is accepted, and may be mixed with `taDOM3+`.
    pub(crate) fn is_accepted(self) -> bool {
        match self {
            Protocol::Planted(changes) => {
                let protocol = LockProtocol::parse(&planted(changes));
                protocol.is_ok_and(|protocol| protocol.goes_with(&LockProtocol::tadom()))
            }
            _ => true,
        }
    }

    fn protocol(self) -> LockProtocol {
        match self {
            Protocol::Document => LockProtocol::document(),
            Protocol::X => LockProtocol::x(),
            Protocol::Mgl => LockProtocol::mgl(),
            Protocol::Tadom => LockProtocol::tadom(),
            Protocol::Planted(changes) => LockProtocol::parse(&planted(changes)).unwrap(),
            Protocol::Own => {
                let text = planted(&[]).replace("modes taDOM3+", "modes own");
                LockProtocol::parse(&(text + TABLES)).unwrap()
            }
        }
    }
}

impl Setting {
    pub(crate) fn to_depth(self, depth: u32) -> Setting {
        Setting { depth: Some(depth), ..self }
    }

    pub(crate) fn locking(self) -> Locking {
        let Setting { protocol, depth, escalation } = self;
        Locking { depth, escalation, ..Locking::by(protocol.protocol()) }
    }

    pub(crate) fn begin(self, store: &XmlStore) -> XmlTransaction<'_> {
        self.begin_as(store, Isolation::Serializable)
    }

    pub(crate) fn begin_as(self, store: &XmlStore, isolation: Isolation) -> XmlTransaction<'_> {
        store.begin_locking(self.locking(), TxnOptions::default().isolation(isolation))
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.protocol)?;
        if let Some(depth) = self.depth {
            write!(f, " to {depth}")?;
        }
        match self.escalation {
            Some(escalation) => write!(f, " escalating from {}", escalation.requests),
            None => Ok(()),
        }
    }
}
