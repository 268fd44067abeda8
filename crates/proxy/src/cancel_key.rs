//! The keys by which clients of the proxy ask it to cancel.
//!
//! ```text
//! process id:  0 or 1 | peer, 6 bits | event loop, 6 bits | client, 19 bits
//! secret key:  random; 4 bytes, since protocol 3.2 32 bytes
//! ```
//!
//! The process number says where the client is: on which of the instances that are peers, on which
//! of its event loops, and which of that loop's clients. The secret proves that a client was told.
//! The first bit is set only in a request that another instance has forwarded, so that none is
//! forwarded twice.

use std::io;

use ctutils::CtEq;
use tidegate_wire::startup::CancelKey;

use crate::client::ClientSlot;
use crate::slots::WorkerIndex;

const PEER_BITS: u32 = 6;
const WORKER_BITS: u32 = 6;
const CLIENT_BITS: u32 = 19;
const _: () = assert!(1 + PEER_BITS + WORKER_BITS + CLIENT_BITS == 32, "a process number");

/// Set in a request that another instance has forwarded.
const FORWARDED: u32 = 1 << 31;

/// The most event loops that a key can name.
pub(crate) const WORKERS_MAX: usize = 1 << WORKER_BITS;

/// The highest number of an instance that has peers, from 1; 0 is one that has none.
pub(crate) const PEER_MAX: u8 = (1 << PEER_BITS) - 1;

/// Length of the secret key before protocol 3.2.
const SHORT_LEN: usize = 4;

/// Length of the secret key since protocol 3.2, as PostgreSQL's.
const LONG_LEN: usize = 32;

/// What a process number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyAddress {
    /// Another instance has forwarded the request.
    pub(crate) is_forwarded: bool,
    /// The instance.
    pub(crate) peer: u8,
    /// The event loop.
    pub(crate) worker: WorkerIndex,
    /// The index of the client's slot; `None` is no client's.
    pub(crate) client: Option<u32>,
}

impl KeyAddress {
    /// Reads a process number.
    pub(crate) fn of(process_id: u32) -> KeyAddress {
        let field = |shift: u32, bits: u32| (process_id >> shift) & ((1 << bits) - 1);
        let peer = field(CLIENT_BITS + WORKER_BITS, PEER_BITS);
        KeyAddress {
            is_forwarded: process_id & FORWARDED != 0,
            peer: u8::try_from(peer).unwrap_or_default(),
            worker: WorkerIndex(field(CLIENT_BITS, WORKER_BITS) as usize),
            client: field(0, CLIENT_BITS).checked_sub(1),
        }
    }
}

/// Returns the key as it is forwarded to the instance that it names.
pub(crate) fn forwarded(key: &CancelKey) -> CancelKey {
    CancelKey { process_id: key.process_id | FORWARDED, secret: key.secret.clone() }
}

/// Returns a process number without the mark of a request that was forwarded.
pub(crate) fn unforwarded(process_id: u32) -> u32 {
    process_id & !FORWARDED
}

/// The key of one client.
#[derive(Clone, Debug)]
pub(crate) struct ClientKey {
    process_id: u32,
    secret: [u8; LONG_LEN],
    len: usize,
}

impl ClientKey {
    /// Makes a key for a client of this instance and event loop.
    ///
    /// # Errors
    /// There is no randomness, or the client's slot is beyond those that a key can name.
    pub(crate) fn new(peer: u8, worker: WorkerIndex, client: ClientSlot) -> io::Result<ClientKey> {
        let mut secret = [0; LONG_LEN];
        getrandom::fill(&mut secret).map_err(|error| {
            io::Error::other(format!("no randomness for a cancel key: {error}"))
        })?;
        // From 1: some drivers take process 0 for "cannot be cancelled".
        let number = client.index() + 1;
        let worker = u32::try_from(worker.0).map_err(io::Error::other)?;
        if number >= 1 << CLIENT_BITS || worker >= 1 << WORKER_BITS || peer > PEER_MAX {
            return Err(io::Error::other("too many clients for one event loop"));
        }
        let process_id = (u32::from(peer) << WORKER_BITS | worker) << CLIENT_BITS | number;
        Ok(ClientKey { process_id, secret, len: SHORT_LEN })
    }

    /// Makes the key of a client that another process has let in; `None` if none can be like it.
    pub(crate) fn adopt(key: &CancelKey) -> Option<ClientKey> {
        let (mut secret, len) = ([0; LONG_LEN], key.secret.len());
        if len != SHORT_LEN && len != LONG_LEN {
            return None;
        }
        secret[..len].copy_from_slice(&key.secret);
        Some(ClientKey { process_id: key.process_id, secret, len })
    }

    /// Makes the secret longer: the client speaks protocol 3.2.
    pub(crate) fn lengthen(&mut self) {
        self.len = LONG_LEN;
    }

    /// Returns the key as the client is told.
    pub(crate) fn shown(&self) -> CancelKey {
        CancelKey { process_id: self.process_id, secret: self.secret[..self.len].into() }
    }

    /// Returns whether a cancel request has this key.
    pub(crate) fn is(&self, key: &CancelKey) -> bool {
        key.process_id & !FORWARDED == self.process_id
            && key.secret.len() == self.len
            && self.secret[..self.len].ct_eq(&key.secret[..]).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::Slots;

    #[test]
    fn a_key_names_its_client_and_no_other() {
        let mut slots = Slots::new();
        let mut keys = Vec::new();
        for (peer, worker) in [(0, 0), (0, 63), (63, 5)] {
            // The table is one of clients only by its type.
            let made = slots.insert_with(|_| Ok(())).unwrap();
            let slot: ClientSlot = crate::slots::Slot::from_bits(made.to_bits());
            let key = ClientKey::new(peer, WorkerIndex(worker), slot).unwrap();
            let expected = KeyAddress {
                is_forwarded: false,
                peer,
                worker: WorkerIndex(worker),
                client: Some(slot.index()),
            };
            assert_eq!(KeyAddress::of(key.shown().process_id), expected);
            let on = KeyAddress::of(forwarded(&key.shown()).process_id);
            assert_eq!(on, KeyAddress { is_forwarded: true, ..expected });
            keys.push(key);
        }
        for (index, key) in keys.iter().enumerate() {
            for (other, shown) in keys.iter().map(ClientKey::shown).enumerate() {
                assert_eq!(key.is(&shown), index == other);
                assert_eq!(key.is(&forwarded(&shown)), index == other);
            }
        }
    }

    #[test]
    fn the_secret_has_the_length_of_the_protocol() {
        let slot = crate::slots::Slot::from_bits(0);
        let mut key = ClientKey::new(0, WorkerIndex(0), slot).unwrap();
        let short = key.shown();
        assert_eq!(short.secret.len(), 4);
        key.lengthen();
        assert_eq!(key.shown().secret.len(), 32);
        assert!(key.is(&key.shown()) && !key.is(&short));
        let mut wrong = key.shown();
        wrong.secret[31] ^= 1;
        assert!(!key.is(&wrong));
    }

    #[test]
    fn a_client_that_no_key_can_name_is_refused() {
        let last = crate::slots::Slot::from_bits((1 << CLIENT_BITS) - 1);
        assert!(ClientKey::new(0, WorkerIndex(0), last).is_err());
        assert_eq!(KeyAddress::of(0).client, None);
    }
}
