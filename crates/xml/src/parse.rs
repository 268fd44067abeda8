//! Reads XML text as a stream of events.
