//! What the tests share: servers, proxies, and a client that shows every message.

pub(crate) mod log;
pub(crate) mod plain;
pub(crate) mod server;
pub(crate) mod wire;

pub(crate) use server::{MODES, Proxy, eventually, server};
pub(crate) use wire::{Message, Wire};
