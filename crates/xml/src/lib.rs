//! An XML store: documents of any size as transactional trees on the embedded engine.
//!
//! The design follows BrackitDB (`docs/xml.md` names the study): a document is a B+tree with a
//! record a node, whose key is the node's [`label`]. Nothing here is specific to a query language;
//! [`xpath`] works on every [`tree`].

pub mod label;
pub mod name;
pub mod parse;
pub mod serialize;
pub mod store;
pub mod tree;
pub mod xmark;
pub mod xpath;
