//! Preventive locks: a transaction claims what it is going to need before it looks at it.
//!
//! Most deadlocks come of conversions: two transactions read the same, and then both come to write
//! it. Who claims the strongest lock that it will need before its first access converts nothing.
//! That takes knowledge of the transaction, so it is the caller's to do (the study's Section 4.4).
//! An update lock is the smaller claim: others may read until it is converted, but only one
//! transaction has it.

use super::{Document, Edge, Touch};
use crate::label::Label;
use crate::store::XmlStoreError;

/// What a transaction is going to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim<'a> {
    /// Read a node.
    ReadNode(&'a Label),
    /// Read a node and its children.
    ReadChildren(&'a Label),
    /// Read a node with all that is below it.
    ReadSubtree(&'a Label),
    /// Read a node, and perhaps write it.
    UpdateNode(&'a Label),
    /// Read a node with all that is below it, and perhaps write that.
    UpdateSubtree(&'a Label),
    /// Write the content of a node.
    WriteNode(&'a Label),
    /// Write a node and all that is below it.
    WriteSubtree(&'a Label),
    /// Insert a child in front of all others.
    Prepend(&'a Label),
    /// Insert a child behind all others.
    Append(&'a Label),
}

impl Document<'_> {
    /// Locks what the transaction is going to need, in the mode in which it will need it. The node
    /// is not read: whether it is still there is to be seen behind the claim.
    ///
    /// # Errors
    /// A conflict, or the transaction [locks nothing](super::LockProtocol::none) and claims to
    /// write.
    pub fn claim(&self, claim: Claim<'_>) -> Result<(), XmlStoreError> {
        if !matches!(
            claim,
            Claim::ReadNode(_)
                | Claim::ReadChildren(_)
                | Claim::ReadSubtree(_)
                | Claim::UpdateNode(_)
                | Claim::UpdateSubtree(_)
        ) {
            self.lock_to_write()?;
        }
        match claim {
            Claim::ReadNode(node) => self.lock(Touch::Node(node)),
            Claim::ReadChildren(node) => self.lock(Touch::Children(node)),
            Claim::ReadSubtree(node) => self.lock(Touch::Subtree(node)),
            Claim::UpdateNode(node) => self.lock(Touch::UpdateNode(node)),
            Claim::UpdateSubtree(node) => self.lock(Touch::UpdateSubtree(node)),
            Claim::WriteNode(node) => self.lock(Touch::WriteNode(node)),
            Claim::WriteSubtree(node) => self.lock(Touch::WriteSubtree(node)),
            Claim::Prepend(node) => self.claim_end(node, Edge::First(node)),
            Claim::Append(node) => self.claim_end(node, Edge::Last(node)),
        }
    }

    fn claim_end(&self, list: &Label, end: Edge<'_>) -> Result<(), XmlStoreError> {
        self.lock(Touch::WriteChildren(list))?;
        self.lock(Touch::WriteEdge(end))
    }
}
