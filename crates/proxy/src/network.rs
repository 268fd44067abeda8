//! Networks: the addresses that begin with the same bits.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

/// The addresses of a family whose bits under the mask are these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) address: IpAddr,
    pub(crate) mask: IpAddr,
}

/// Text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not an IP address, or a network as in 10.1.0.0/16 or fd00::/8")]
pub struct NetworkError(String);

impl Network {
    /// Returns the network of an address's first bits, as many as a text says.
    pub(crate) fn of_prefix(address: IpAddr, bits: &str) -> Option<Network> {
        let is_number = bits.bytes().all(|digit| digit.is_ascii_digit());
        let bits: u32 = if is_number { bits.parse().ok()? } else { return None };
        let mask = match address {
            IpAddr::V4(_) => {
                let hidden = 32_u32.checked_sub(bits)?;
                IpAddr::V4(u32::MAX.checked_shl(hidden).unwrap_or(0).into())
            }
            IpAddr::V6(_) => {
                let hidden = 128_u32.checked_sub(bits)?;
                IpAddr::V6(u128::MAX.checked_shl(hidden).unwrap_or(0).into())
            }
        };
        Some(Network { address, mask })
    }

    pub(crate) fn contains(self, peer: IpAddr) -> bool {
        match (self.address, self.mask, peer) {
            (IpAddr::V4(address), IpAddr::V4(mask), IpAddr::V4(peer)) => {
                (address.to_bits() ^ peer.to_bits()) & mask.to_bits() == 0
            }
            (IpAddr::V6(address), IpAddr::V6(mask), IpAddr::V6(peer)) => {
                (address.to_bits() ^ peer.to_bits()) & mask.to_bits() == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = match self.mask {
            IpAddr::V4(mask) => mask.to_bits().count_ones(),
            IpAddr::V6(mask) => mask.to_bits().count_ones(),
        };
        write!(formatter, "{}/{bits}", self.address)
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let network = address.parse().ok().and_then(|address: IpAddr| {
            let all = if address.is_ipv4() { "32" } else { "128" };
            Network::of_prefix(address, bits.unwrap_or(all))
        });
        network.ok_or_else(|| NetworkError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_network_of_its_first_bits() {
        for (network, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.3", "10.2.0.1"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
            ("fd00::/8", "fd12::1", "fe80::1"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{outside}");
        }
        for wrong in ["", "host", "10.0.0.0/33", "10.0.0.0/x", "::/129"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
