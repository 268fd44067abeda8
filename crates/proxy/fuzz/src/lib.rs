//! What the fuzz target does with its bytes. `tests/fuzz` does the same with drawn ones.

pub mod server;
pub mod session;
mod tls;
