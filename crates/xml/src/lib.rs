//! An XML store: documents of any size as transactional trees on the embedded engine.
//!
//! The design follows BrackitDB (`docs/xml.md` names the study): a document is a B+tree with a
//! record a node, whose key is the node's [`label`]. Nothing here is specific to a query language;
//! [`xpath`] works on every [`tree`].
//!
//! A document is loaded with an index, queried, and updated:
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use tidegate_xml::label::Label;
//! use tidegate_xml::store::{LoadOptions, Place, XmlStore};
//! use tidegate_xml::tree::Tree;
//! use tidegate_xml::xpath::{Environment, Item, Prefixes, Query};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let parent = tempfile::tempdir()?;
//! let store = XmlStore::open_or_create(parent.path().join("shop"))?;
//! let text = r#"<shop><item id="a"><price>7</price></item><item id="b"/></shop>"#;
//! let options = LoadOptions::default().index("ids", "cas text //@id".parse()?);
//! store.load("shop.xml", options, text.as_bytes(), |_| ControlFlow::Continue(()))?;
//!
//! let transaction = store.begin();
//! let document = transaction.document_to_update("shop.xml")?;
//! let (root, environment) = (document.root()?, Environment::default());
//! let query = Query::parse("//item[@id = 'a']/price", &Prefixes::new())?;
//! assert!(query.explain(&document, &environment).contains("index ids (cas text //@id)"));
//! assert_eq!(query.number(&document, &root, &environment)?, 7.0);
//!
//! let mut prices: Vec<Label> = Vec::new();
//! for item in query.nodes(&document, &root, &environment)? {
//!     if let Item::Node(price) = item? {
//!         prices.push(price);
//!     }
//! }
//! document.set_value_of_each(&prices, "8")?;
//! document.insert_at_each(&prices, Place::After, "<note>new</note>")?;
//! let changed = document.write_item(&Item::Node(root), Vec::new())?;
//! let expected = r#"<shop><item id="a"><price>8</price><note>new</note></item>"#;
//! assert!(changed.starts_with(expected.as_bytes()));
//! transaction.commit()?;
//! # Ok(())
//! # }
//! ```

pub mod label;
pub mod name;
pub mod parse;
pub mod serialize;
pub mod store;
pub mod tree;
pub mod xmark;
pub mod xpath;
