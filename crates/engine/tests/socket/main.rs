//! The server behind a socket: real sockets, good clients, bad ones, and ones that vanish.
//!
//! Raw clients write the bytes of `docs/engine-protocol.md` by hand. Waits that could last for ever
//! end after [`PATIENCE`](house::PATIENCE), which only a failing test sees.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod answers;
#[path = "../shared/counters.rs"]
mod counters;
mod house;
mod limits;
mod listening;
mod protocol;
mod raw;
mod vanished;
