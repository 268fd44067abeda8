//! Labels of nodes: prefix-based DeweyIDs.
