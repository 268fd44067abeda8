//! Names of elements and attributes.

use std::fmt;

/// A name with its namespace, as *Namespaces in XML 1.0* (section 4) means it.
///
/// Two names are the same if namespace and local part are: the prefix is only how a document
/// writes it, and is kept so that the document comes out as it went in.
#[derive(Debug, Clone)]
pub struct QName {
    /// Prefix in the document, empty if there is none.
    pub prefix: Box<str>,
    /// Name without prefix.
    pub local: Box<str>,
    /// URI of the namespace, empty if the name is in none.
    pub namespace: Box<str>,
}

impl QName {
    /// A name in no namespace.
    #[must_use]
    pub fn local(name: &str) -> QName {
        QName { prefix: "".into(), local: name.into(), namespace: "".into() }
    }
}

impl PartialEq for QName {
    fn eq(&self, other: &QName) -> bool {
        same(&self.local, &other.local) && same(&self.namespace, &other.namespace)
    }
}

/// Returns whether two texts are the same.
///
/// Most prefixes and namespaces are empty. The C library's comparison of two empty texts, neither
/// of which has memory, costs some hundred cycles where it loads by a mask: a third of the time of
/// reading a document.
pub(crate) fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

impl Eq for QName {}

impl std::hash::Hash for QName {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.local.hash(state);
        self.namespace.hash(state);
    }
}

impl fmt::Display for QName {
    /// The name as the document writes it: `prefix:local`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix.is_empty() {
            write!(f, "{}", self.local)
        } else {
            write!(f, "{}:{}", self.prefix, self.local)
        }
    }
}
