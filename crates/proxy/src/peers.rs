//! Instances that share clients: several Tidegates behind one TCP load balancer.
//!
//! A cancel request comes on a connection of its own, which the balancer may give to another
//! instance than the client's. Each instance has a number, which is in the keys of its clients, and
//! knows the addresses of the others. A request that names another instance is forwarded to it,
//! once: an instance that gets a forwarded request which is not for itself drops it, so that two
//! instances with wrong tables do not send it to and fro.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

use crate::cancel_key::PEER_MAX;
use crate::config::ListenAddress;

/// The instances that share clients with this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// The number of this instance; 0 has no peers.
    pub id: u8,
    /// Where the others listen, by their numbers.
    pub addresses: BTreeMap<u8, ListenAddress>,
}

/// The section `[peers]`; see [`Peers`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the fields are those of Peers")]
pub struct PeersSection {
    pub id: Option<u8>,
    pub addresses: BTreeMap<String, ListenAddress>,
}

/// Peers that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PeersError {
    /// A number that no instance can have.
    #[error("peers: {0:?} is no number of an instance: use numbers from 1 to {PEER_MAX}")]
    Number(String),
    /// There are peers, and this instance has no number.
    #[error("peers.addresses needs peers.id, the number of this instance among its peers")]
    NoId,
}

impl PeersSection {
    /// Returns the checked peers. The own address may be among them, so that all instances can
    /// have the same list.
    ///
    /// # Errors
    /// See [`PeersError`].
    pub(crate) fn check(self) -> Result<Peers, PeersError> {
        let checked = |number: u8| (1..=PEER_MAX).contains(&number).then_some(number);
        let Some(id) = self.id else {
            let is_alone = self.addresses.is_empty();
            return if is_alone { Ok(Peers::default()) } else { Err(PeersError::NoId) };
        };
        let id = checked(id).ok_or_else(|| PeersError::Number(id.to_string()))?;
        let mut addresses = BTreeMap::new();
        for (name, address) in self.addresses {
            let number = name.parse().ok().and_then(checked).ok_or(PeersError::Number(name))?;
            if number != id {
                addresses.insert(number, address);
            }
        }
        Ok(Peers { id, addresses })
    }
}
