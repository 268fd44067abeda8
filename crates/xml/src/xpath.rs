//! `XPath` 1.0: expressions, and their values on a tree.
