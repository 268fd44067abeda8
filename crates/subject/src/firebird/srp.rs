//! Firebird's login by password: SRP, the Secure Remote Password protocol, version 6a.
//!
//! # Mechanism
//! The server keeps of a password only a salt and a verifier `g^x`. Both sides draw a number and
//! tell each other what `g` to its power is, modulo a prime `N`. From that, and from the password
//! on one side and the verifier on the other, both come to the same secret, and each proves to the
//! other that it did. Who listens learns nothing of use.
//!
//! | value | is |
//! | --- | --- |
//! | `A` | `g^a`, with a drawn `a`: the client's public key |
//! | `B` | the server's |
//! | `u` | `H(A, B)` |
//! | `x` | `H(salt, H(USER:password))` |
//! | `S` | `(B - k g^x)^(a + u x)` |
//! | `K` | `H(S)`: the key of the session |
//! | `M` | `P(H(N)^H(g), H(USER), salt, A, B, K)`: the client's proof |
//!
//! `H` is SHA-1 and a number is hashed without zeros in front. `P` is SHA-1 as well where the
//! server calls the method `Srp`, and SHA-256 where it is `Srp256`.
//!
//! # Limits
//! Firebird leaves RFC 5054 in two places, and so do we: numbers are not padded, and `H(N)` and
//! `H(g)` meet by a power, not by exclusive or. The server's own proof is not asked for: where the
//! session is enciphered by `K`, only it and we can go on; where it is not, nobody has proven that
//! it is the server. One that takes `Srp256` alone and does not encipher does not let us in: it
//! takes the proof for the first method that a client names, which is `Srp` here, as Firebird 3
//! has it by default.
//!
//! Source: <http://srp.stanford.edu/design.html>; Firebird's `src/auth/SecureRemotePassword/srp.h`.

use num_bigint::BigUint;
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The prime, in hexadecimal digits.
const PRIME: &[u8] = b"\
E67D2E994B2F900C3F41F08F5BB2627ED0D49EE1FE767A52EFCD565CD6E768812C3E1E9CE8F0A8BEA6CB13CD29DDEBF7\
A96D4A93B55D488DF099A15C89DCB0640738EB2CBDD9A8F7BAB561AB1B0DC1C6CDABF303264A08D1BCA932D1F1EE428B\
619D970F342ABA9A65793B8B2F041AE5364350C16F735F56ECBCA87BD57B29E7";

/// `k`: SHA-1 of the prime and of the generator, which is 2, in as many bytes.
const MULTIPLIER: &[u8] = b"1277432915985975349439481660349303019122249719989";

/// Bytes of the secret that a client draws.
pub(super) const SECRET_LEN: usize = 32;

/// Which hash the proof is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Srp,
    Srp256,
}

impl Method {
    /// The methods we have, the one that a client begins with first.
    pub(super) const LIST: &'static str = "Srp,Srp256";

    pub(super) fn name(self) -> &'static str {
        match self {
            Method::Srp => "Srp",
            Method::Srp256 => "Srp256",
        }
    }

    /// The method of that name.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        [Method::Srp, Method::Srp256].into_iter().find(|method| method.name().as_bytes() == name)
    }
}

/// A client in the middle of its login.
pub(super) struct Client {
    prime: BigUint,
    secret: BigUint,
    public: BigUint,
}

/// What a login ends with.
pub(super) struct Proof {
    /// `M`, in hexadecimal digits.
    pub(super) proof: String,
    /// `K`.
    pub(super) key: [u8; 20],
}

impl Client {
    /// A client that has drawn its secret.
    pub(super) fn new(secret: &[u8; SECRET_LEN]) -> Self {
        let prime = BigUint::parse_bytes(PRIME, 16).expect("it is written in such digits");
        let secret = BigUint::from_bytes_be(secret);
        let public = BigUint::from(2_u32).modpow(&secret, &prime);
        Client { prime, secret, public }
    }

    /// `A`, in hexadecimal digits.
    pub(super) fn public(&self) -> String {
        hexadecimal(&self.public.to_bytes_be())
    }

    /// The proof, from what the server says of itself; `None` where that makes no sense.
    pub(super) fn prove(
        &self,
        method: Method,
        user: &str,
        password: &str,
        challenge: &[u8],
    ) -> Option<Proof> {
        let (salt, rest) = counted(challenge)?;
        let (server, _) = counted(rest)?;
        let server = BigUint::parse_bytes(server, 16)?;
        let zero = BigUint::ZERO;
        if &server % &self.prime == zero {
            return None;
        }
        let user = user.to_uppercase();
        let key = sha1(&[&self.shared(&user, password, salt, &server).to_bytes_be()]);
        let generator = BigUint::from(2_u32);
        let base = number(&[&self.prime.to_bytes_be()]);
        let group = base.modpow(&number(&[&generator.to_bytes_be()]), &self.prime);
        let parts: [&[u8]; 6] = [
            &group.to_bytes_be(),
            &number(&[user.as_bytes()]).to_bytes_be(),
            salt,
            &self.public.to_bytes_be(),
            &server.to_bytes_be(),
            &key,
        ];
        let proof = match method {
            Method::Srp => hexadecimal(&sha1(&parts)),
            Method::Srp256 => hexadecimal(&Sha256::digest(parts.concat())),
        };
        Some(Proof { proof, key })
    }

    /// `S`.
    fn shared(&self, user: &str, password: &str, salt: &[u8], server: &BigUint) -> BigUint {
        let scramble = number(&[&self.public.to_bytes_be(), &server.to_bytes_be()]);
        let identity = sha1(&[user.as_bytes(), b":", password.as_bytes()]);
        let private = number(&[salt, &identity]);
        let multiplier = BigUint::parse_bytes(MULTIPLIER, 10).expect("it is written in digits");
        let verifier = BigUint::from(2_u32).modpow(&private, &self.prime);
        let known = multiplier * verifier % &self.prime;
        let base = (server % &self.prime + &self.prime - known) % &self.prime;
        let power = (&self.secret + scramble * private % &self.prime) % &self.prime;
        base.modpow(&power, &self.prime)
    }
}

/// Bytes behind their number, which has two, the low one first; and what follows.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
}

fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    Sha1::digest(parts.concat()).into()
}

fn number(parts: &[&[u8]]) -> BigUint {
    BigUint::from_bytes_be(&sha1(parts))
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut digits, byte| {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02X}");
        digits
    })
}

/// The cipher of a session, one for each direction: ARC4, as Firebird's `Arc4`.
pub(super) struct Arc4 {
    state: [u8; 256],
    i: u8,
    j: u8,
}

impl Arc4 {
    pub(super) fn new(key: &[u8; 20]) -> Self {
        let mut state =
            std::array::from_fn(|place| u8::try_from(place).expect("there are 256 places"));
        let mut j = 0_u8;
        for (i, part) in (0..=u8::MAX).zip(key.iter().cycle()) {
            j = j.wrapping_add(state[usize::from(i)]).wrapping_add(*part);
            state.swap(usize::from(i), usize::from(j));
        }
        Arc4 { state, i: 0, j: 0 }
    }

    /// Enciphers or deciphers the next bytes.
    pub(super) fn apply(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.i = self.i.wrapping_add(1);
            let (i, first) = (usize::from(self.i), self.state[usize::from(self.i)]);
            self.j = self.j.wrapping_add(first);
            let second = self.state[usize::from(self.j)];
            self.state.swap(i, usize::from(self.j));
            *byte ^= self.state[usize::from(first.wrapping_add(second))];
        }
    }
}

impl std::fmt::Debug for Arc4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arc4").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server's side, by the same paper.
    fn server_key(
        client: &Client,
        server: &BigUint,
        secret: &BigUint,
        verifier: &BigUint,
    ) -> [u8; 20] {
        let scramble = number(&[&client.public.to_bytes_be(), &server.to_bytes_be()]);
        let base = &client.public * verifier.modpow(&scramble, &client.prime) % &client.prime;
        sha1(&[&base.modpow(secret, &client.prime).to_bytes_be()])
    }

    #[test]
    fn both_sides_come_to_one_key_by_the_right_password_alone() {
        let client = Client::new(&[7; SECRET_LEN]);
        let salt = b"some salt";
        let private = number(&[salt, &sha1(&[b"ANN:secret"])]);
        let verifier = BigUint::from(2_u32).modpow(&private, &client.prime);
        let secret = BigUint::from_bytes_be(&[9; SECRET_LEN]);
        let multiplier = BigUint::parse_bytes(MULTIPLIER, 10).unwrap();
        let server = (multiplier * &verifier + BigUint::from(2_u32).modpow(&secret, &client.prime))
            % &client.prime;
        let digits = hexadecimal(&server.to_bytes_be());
        let challenge = [&[9, 0], &salt[..], &[0, 1], digits.as_bytes()].concat();
        let key = server_key(&client, &server, &secret, &verifier);
        for (password, is_right) in [("secret", true), ("Secret", false), ("", false)] {
            for method in [Method::Srp, Method::Srp256] {
                let proof = client.prove(method, "ann", password, &challenge).unwrap();
                assert_eq!(proof.key == key, is_right, "{password}");
            }
        }
        for cut in 0..challenge.len() {
            assert!(client.prove(Method::Srp, "ann", "secret", &challenge[..cut]).is_none());
        }
    }

    #[test]
    fn the_multiplier_is_the_hash_of_the_group() {
        let prime = BigUint::parse_bytes(PRIME, 16).unwrap().to_bytes_be();
        let mut generator = vec![0; prime.len()];
        *generator.last_mut().unwrap() = 2;
        assert_eq!(number(&[&prime, &generator]), BigUint::parse_bytes(MULTIPLIER, 10).unwrap());
    }

    #[test]
    fn the_cipher_undoes_itself_however_it_is_cut() {
        let key = [5; 20];
        let text: Vec<u8> = (0..=255).collect();
        let mut whole = text.clone();
        Arc4::new(&key).apply(&mut whole);
        assert_ne!(whole, text);
        let mut cipher = Arc4::new(&key);
        whole.chunks_mut(7).for_each(|piece| cipher.apply(piece));
        assert_eq!(whole, text);
    }
}
