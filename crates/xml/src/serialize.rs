//! Writes XML text from a stream of events, plain or canonical.
