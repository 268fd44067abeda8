//! What a query needs of a tree of nodes, and a plain tree in memory.
