//! `mysql_native_password`: the client proves that it knows the password without saying it.
//!
//! The server keeps SHA1(SHA1(password)) and sends a nonce of 20 bytes. The client answers
//!
//! ```text
//! SHA1(password) XOR SHA1(nonce, SHA1(SHA1(password)))
//! ```
//!
//! from which the server, who can compute the right side of the XOR, gets SHA1(password), and
//! whose SHA1 it compares with what it keeps. An empty password is answered by nothing at all.
//!
//! Limits: SHA-1 is what the method is made of. Who listens cannot replay the answer, but can try
//! passwords against it: over untrusted networks it takes a tunnel.

use sha1::{Digest, Sha1};

/// The method's name.
pub const NATIVE_PASSWORD: &str = "mysql_native_password";

/// Bytes of the nonce.
pub const NONCE_LEN: usize = 20;

/// The answer to a server's nonce; `None` is the empty one.
#[must_use]
pub fn native_password(password: &[u8], nonce: &[u8; NONCE_LEN]) -> Option<[u8; 20]> {
    if password.is_empty() {
        return None;
    }
    let once = Sha1::digest(password);
    let twice = Sha1::digest(once);
    let mask = Sha1::new().chain_update(nonce).chain_update(twice).finalize();
    let mut answer = [0; 20];
    for (byte, (left, right)) in answer.iter_mut().zip(once.iter().zip(&mask)) {
        *byte = left ^ right;
    }
    Some(answer)
}
