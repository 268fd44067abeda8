//! The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), without I/O.
//!
//! The server keeps no password, only a [`ScramVerifier`]. From the password, a salt and an
//! iteration count follow
//!
//! ```text
//! SaltedPassword = PBKDF2(password, salt, iterations)
//! ClientKey = HMAC(SaltedPassword, "Client Key")      StoredKey = H(ClientKey)
//! ServerKey = HMAC(SaltedPassword, "Server Key")
//! ```
//!
//! and the verifier is the salt, the count, `StoredKey` and `ServerKey`. One exchange:
//!
//! ```text
//! C: n,,n=,r=<client nonce>                                   client first
//! S: r=<client nonce><server nonce>,s=<salt>,i=<iterations>   server first
//! C: c=biws,r=<both nonces>,p=<proof>                         client final
//! S: v=<server signature>                                     server final
//! ```
//!
//! The proof is `ClientKey XOR HMAC(StoredKey, AuthMessage)`, `AuthMessage` being the first two
//! messages and the third without its proof. The server takes the XOR off again and compares the
//! hash of what is left with `StoredKey`.
//!
//! The name after `n=` is not used: PostgreSQL's clients give it in the startup message. An
//! unknown user gets the same exchange with [`ScramVerifier::mock`], so that the answers do not
//! tell which users exist.
//!
//! With TLS the client may bind the login to the server's certificate (`SCRAM-SHA-256-PLUS`, RFC
//! 5929): its first message begins with `p=tls-server-end-point` and its last one repeats the
//! certificate's hash, so that nobody who shows another certificate can pass the login on.

pub(crate) mod pass_through;

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ctutils::CtEq;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Iterations of PBKDF2 where we choose them: PostgreSQL's default.
pub(crate) const ITERATIONS: u32 = 4096;

/// Bytes of a salt where we choose it: PostgreSQL's default.
const SALT_LEN: usize = 16;

/// Random bytes in a nonce: as many as in PostgreSQL's, a whole number of base64 groups.
const NONCE_LEN: usize = 18;

type Key = [u8; 32];

/// What the server keeps instead of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ScramVerifier").finish_non_exhaustive()
    }
}

/// Why a SCRAM exchange ends without a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ScramError {
    /// A message does not follow the grammar of RFC 5802, section 7.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// The client binds the login to its channel and has chosen the mechanism without.
    #[error(
        "the client demands SCRAM channel binding, which needs TLS and SCRAM-SHA-256-PLUS; \
         connect with sslmode=require, or with channel_binding=disable"
    )]
    ChannelBinding,
    /// The client binds the login in a way that PostgreSQL has not.
    #[error("unsupported SCRAM channel binding type; use tls-server-end-point")]
    ChannelBindingType,
    /// The client has chosen the mechanism with channel binding and does not bind.
    #[error("the client chose SCRAM-SHA-256-PLUS, but its message has no channel binding")]
    NotBound,
    /// The client could have bound the login and was told that it could not.
    #[error(
        "the client supports SCRAM channel binding and was told that the server does not: \
         somebody is between them"
    )]
    Downgrade,
    /// The client wants to act as somebody else.
    #[error("SCRAM authorization identities are not supported")]
    AuthorizationIdentity,
    /// The client demands an extension that RFC 5802 leaves to the future.
    #[error("the client demands a SCRAM extension that is not supported")]
    Extension,
    /// The client's second message belongs to another exchange.
    #[error("the SCRAM {0} is not the one of this exchange")]
    Foreign(&'static str),
    /// The password is wrong, or the user unknown.
    #[error("password authentication failed")]
    WrongProof,
}

/// What is offered to a client of channel binding, and what it has chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelBinding {
    /// There is none without TLS.
    NotOffered,
    /// It was offered, and the client has chosen the mechanism without it.
    Declined,
    /// The client has chosen it; the hash is that of the server's certificate.
    EndPoint(Arc<[u8]>),
}

/// The GS2 header's flag of the channel binding that PostgreSQL has.
const END_POINT_FLAG: &str = "p=tls-server-end-point";

/// A text that is no verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "bad SCRAM verifier: {0}; expected SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>"
)]
pub struct VerifierError(&'static str);

impl ScramVerifier {
    /// What such a verifier's text begins with.
    pub const PREFIX: &str = "SCRAM-SHA-256$";

    /// Reads PostgreSQL's text form, that of `pg_authid.rolpassword`.
    ///
    /// # Errors
    /// A part is missing, not base64, or not of its length.
    pub fn parse(text: &str) -> Result<ScramVerifier, VerifierError> {
        let rest = text.strip_prefix(Self::PREFIX).ok_or(VerifierError("another mechanism"))?;
        let (parameters, keys) =
            rest.split_once('$').ok_or(VerifierError("the keys are missing"))?;
        let (iterations, salt) =
            parameters.split_once(':').ok_or(VerifierError("the salt is missing"))?;
        let (stored_key, server_key) =
            keys.split_once(':').ok_or(VerifierError("the ServerKey is missing"))?;
        let iterations = iterations.parse().ok().filter(|&iterations| iterations > 0);
        let salt = STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty());
        Ok(ScramVerifier {
            iterations: iterations.ok_or(VerifierError("the iterations are no positive number"))?,
            salt: salt.ok_or(VerifierError("the salt is not base64"))?,
            stored_key: key(stored_key)
                .ok_or(VerifierError("the StoredKey is not 32 bytes in base64"))?,
            server_key: key(server_key)
                .ok_or(VerifierError("the ServerKey is not 32 bytes in base64"))?,
        })
    }

    /// Returns the verifier of a password, with a random salt and 4096 iterations: some
    /// milliseconds of work.
    ///
    /// # Panics
    /// Never because of the password; only if the operating system gives no randomness.
    #[must_use]
    pub fn of_password(password: &str) -> ScramVerifier {
        Self::parse(&postgres_protocol::password::scram_sha_256(password.as_bytes()))
            .expect("postgres-protocol writes the form that is read here")
    }

    /// A verifier that no password satisfies, for an unknown user: the same for the same name
    /// as long as `secret` is, as a real user's salt would be.
    #[must_use]
    pub fn mock(secret: &[u8; 32], user: &[u8], iterations: u32) -> ScramVerifier {
        let derive = |purpose: &[u8]| hmac(secret, &[purpose, user]);
        let mut salt = Vec::from(derive(b"salt"));
        salt.truncate(SALT_LEN);
        // A proof would need a ClientKey whose hash is this, and no such key is known.
        let (stored_key, server_key) = (derive(b"stored key"), derive(b"server key"));
        ScramVerifier { iterations, salt, stored_key, server_key }
    }

    /// Returns the iterations of PBKDF2 that the verifier was made by.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    fn client_key_matches(&self, client_key: &Key) -> bool {
        let hash = Sha256::digest(client_key);
        hash.as_slice().ct_eq(&self.stored_key[..]).into()
    }
}

/// Returns a number that is uniform over names and the same for the same name as long as `secret`
/// is.
pub(crate) fn mock_share(secret: &[u8; 32], user: &[u8]) -> u32 {
    let [a, b, c, d, ..] = hmac(secret, &[b"share", user]);
    u32::from_be_bytes([a, b, c, d])
}

/// The key that proves a user to every server with the same verifier; a client's proof yields it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientKey(Key);

impl fmt::Debug for ClientKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ClientKey").finish_non_exhaustive()
    }
}

/// A client that has proved its password.
#[derive(Debug, PartialEq, Eq)]
pub struct Proved {
    /// The last message to it, which proves that we know the verifier.
    pub outcome: Vec<u8>,
    /// What its proof has yielded.
    pub client_key: ClientKey,
}

/// Returns a fresh nonce for [`ScramServer::start`].
///
/// # Errors
/// The operating system gives no randomness.
pub fn nonce() -> Result<String, getrandom::Error> {
    let mut bytes = [0; NONCE_LEN];
    getrandom::fill(&mut bytes)?;
    Ok(STANDARD.encode(bytes))
}

/// An exchange between the server's first message and the client's last.
#[derive(Debug)]
pub struct ScramServer {
    verifier: ScramVerifier,
    /// What the client confirms in its last message: its header, as in `n,,`, and the hash of the
    /// server's certificate if it binds the login to that.
    binding_data: Vec<u8>,
    /// Both nonces.
    nonce: String,
    /// The first two parts of `AuthMessage`, the comma after them included.
    auth_message: String,
}

impl ScramServer {
    /// Answers the client's first message. `server_nonce` is printable, without commas and never
    /// used before: see [`nonce`].
    ///
    /// # Errors
    /// The message is malformed or demands what is not supported.
    pub fn start(
        verifier: ScramVerifier,
        binding: &ChannelBinding,
        client_first: &[u8],
        server_nonce: &str,
    ) -> Result<(ScramServer, Vec<u8>), ScramError> {
        let message = text(client_first)?;
        let (gs2_header, bare) = split_gs2_header(message)?;
        let mut binding_data = Vec::from(gs2_header);
        if let Some(end_point) = agree_on_binding(gs2_header, binding)? {
            binding_data.extend_from_slice(end_point);
        }
        let nonce = format!("{}{server_nonce}", client_nonce(bare)?);
        let salt = STANDARD.encode(&verifier.salt);
        let server_first = format!("r={nonce},s={salt},i={}", verifier.iterations);
        let server = ScramServer {
            binding_data,
            auth_message: format!("{bare},{server_first},"),
            verifier,
            nonce,
        };
        Ok((server, server_first.into_bytes()))
    }

    /// Judges the client's last message.
    ///
    /// # Errors
    /// [`ScramError::WrongProof`] for a wrong password or an unknown user; another one when the
    /// message is malformed or belongs to another exchange.
    pub fn finish(&self, client_final: &[u8]) -> Result<Proved, ScramError> {
        let message = text(client_final)?;
        let (without_proof, proof) =
            message.rsplit_once(",p=").ok_or(ScramError::Malformed("there is no proof"))?;
        let proof =
            key(proof).ok_or(ScramError::Malformed("the proof is not 32 bytes in base64"))?;
        self.check_binding_and_nonce(without_proof)?;

        let auth_message = format!("{}{without_proof}", self.auth_message);
        let mut client_key = hmac(&self.verifier.stored_key, &[auth_message.as_bytes()]);
        for (byte, proof) in client_key.iter_mut().zip(proof) {
            *byte ^= proof;
        }
        if !self.verifier.client_key_matches(&client_key) {
            return Err(ScramError::WrongProof);
        }
        let signature = hmac(&self.verifier.server_key, &[auth_message.as_bytes()]);
        let outcome = format!("v={}", STANDARD.encode(signature)).into_bytes();
        Ok(Proved { outcome, client_key: ClientKey(client_key) })
    }

    fn check_binding_and_nonce(&self, without_proof: &str) -> Result<(), ScramError> {
        let mut attributes = without_proof.split(',');
        let binding = attribute(attributes.next(), "c=", "there is no channel binding data")?;
        let nonce = attribute(attributes.next(), "r=", "there is no nonce")?;
        if binding != STANDARD.encode(&self.binding_data) {
            return Err(ScramError::Foreign("channel binding data"));
        }
        if nonce != self.nonce {
            return Err(ScramError::Foreign("nonce"));
        }
        Ok(())
    }
}

/// Splits the client's first message into its GS2 header and the rest, the bare message.
fn split_gs2_header(message: &str) -> Result<(&str, &str), ScramError> {
    let mut parts = message.splitn(3, ',');
    match parts.next() {
        Some("n" | "y") => {}
        Some(flag) if flag.starts_with("p=") => {}
        _ => return Err(ScramError::Malformed("there is no channel binding flag")),
    }
    match parts.next() {
        Some("") => {}
        Some(identity) if identity.starts_with("a=") => {
            return Err(ScramError::AuthorizationIdentity);
        }
        _ => return Err(ScramError::Malformed("the GS2 header is cut short")),
    }
    let bare = parts.next().ok_or(ScramError::Malformed("the GS2 header is cut short"))?;
    message
        .split_at_checked(message.len() - bare.len())
        .ok_or(ScramError::Malformed("the GS2 header is cut short"))
}

/// Checks that the flag of a client's header fits what it was offered and has chosen (RFC 5802,
/// section 6). Returns the hash that it has to confirm.
fn agree_on_binding<'a>(
    gs2_header: &str,
    binding: &'a ChannelBinding,
) -> Result<Option<&'a [u8]>, ScramError> {
    let flag = gs2_header.split(',').next().unwrap_or(gs2_header);
    match (flag, binding) {
        (END_POINT_FLAG, ChannelBinding::EndPoint(end_point)) => Ok(Some(end_point)),
        ("n" | "y", ChannelBinding::EndPoint(_)) => Err(ScramError::NotBound),
        (_, ChannelBinding::EndPoint(_)) => Err(ScramError::ChannelBindingType),
        ("y", ChannelBinding::Declined) => Err(ScramError::Downgrade),
        ("n" | "y", _) => Ok(None),
        _ => Err(ScramError::ChannelBinding),
    }
}

/// Returns the nonce in the client's bare first message.
fn client_nonce(bare: &str) -> Result<&str, ScramError> {
    if bare.starts_with("m=") {
        return Err(ScramError::Extension);
    }
    let mut attributes = bare.split(',');
    attribute(attributes.next(), "n=", "there is no user name")?;
    let nonce = attribute(attributes.next(), "r=", "there is no nonce")?;
    if nonce.is_empty() || !nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ScramError::Malformed("the nonce is not printable"));
    }
    Ok(nonce)
}

fn attribute<'a>(
    found: Option<&'a str>,
    name: &str,
    missing: &'static str,
) -> Result<&'a str, ScramError> {
    found.and_then(|text| text.strip_prefix(name)).ok_or(ScramError::Malformed(missing))
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    std::str::from_utf8(message).map_err(|_| ScramError::Malformed("it is not UTF-8"))
}

fn key(base64: &str) -> Option<Key> {
    STANDARD.decode(base64).ok()?.try_into().ok()
}

fn hmac(key: &Key, parts: &[&[u8]]) -> Key {
    // A key shorter than the hash's block is filled up with zeros (RFC 2104, section 2).
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::ChannelBinding::{Declined, EndPoint, NotOffered};
    use super::*;
    use postgres_protocol::authentication::sasl::{ChannelBinding as ClientBinding, ScramSha256};
    use proptest::prelude::*;

    /// The user `user` of RFC 7677, section 3, whose password is `pencil`.
    const PENCIL: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==\
        $WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn pencil() -> ScramVerifier {
        ScramVerifier::parse(PENCIL).unwrap()
    }

    fn start(client_first: &str) -> Result<(ScramServer, Vec<u8>), ScramError> {
        ScramServer::start(pencil(), &NotOffered, client_first.as_bytes(), SERVER_NONCE)
    }

    /// Runs a whole exchange with postgres-protocol's client, which also judges our last message.
    fn log_in(
        verifier: ScramVerifier,
        password: &str,
        (offered, binding): (ChannelBinding, ClientBinding),
    ) -> Result<(), ScramError> {
        let mut client = ScramSha256::new(password.as_bytes(), binding);
        let nonce = nonce().unwrap();
        let (server, first) = ScramServer::start(verifier, &offered, client.message(), &nonce)?;
        client.update(&first).unwrap();
        let last = server.finish(client.message())?;
        client.finish(&last.outcome).unwrap();
        Ok(())
    }

    #[test]
    fn the_example_of_rfc_7677_passes() {
        let (server, first) = start(CLIENT_FIRST).unwrap();
        assert_eq!(
            String::from_utf8(first).unwrap(),
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = server.finish(CLIENT_FINAL.as_bytes()).unwrap();
        assert_eq!(last.outcome, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn a_client_with_the_password_gets_in_and_no_other() {
        for (password, typed, expected) in [
            ("pencil", "pencil", Ok(())),
            ("pencil", "Pencil", Err(ScramError::WrongProof)),
            ("pencil", "", Err(ScramError::WrongProof)),
            // SASLprep makes these equal (RFC 4013): a soft hyphen is dropped.
            ("pen\u{ad}cil", "pencil", Ok(())),
            // Prohibited by SASLprep, so taken as it is.
            ("a\u{7}b", "a\u{7}b", Ok(())),
        ] {
            let verifier = ScramVerifier::of_password(password);
            let end_point = vec![7; 32];
            for (offered, binding) in [
                (NotOffered, ClientBinding::unsupported()),
                (NotOffered, ClientBinding::unrequested()),
                (Declined, ClientBinding::unsupported()),
                (
                    EndPoint(end_point.clone().into()),
                    ClientBinding::tls_server_end_point(end_point),
                ),
            ] {
                let outcome = log_in(verifier.clone(), typed, (offered.clone(), binding));
                assert_eq!(outcome, expected, "{offered:?}: {typed:?}");
            }
        }
    }

    /// RFC 5802, section 6: the flag has to fit what was offered and chosen.
    #[test]
    fn channel_binding_is_what_was_agreed_on() {
        let end_point = |byte: u8| EndPoint(vec![byte; 32].into());
        let bound = |byte| ClientBinding::tls_server_end_point(vec![byte; 32]);
        for (offered, binding, error) in [
            (NotOffered, bound(1), ScramError::ChannelBinding),
            (Declined, bound(1), ScramError::ChannelBinding),
            (Declined, ClientBinding::unrequested(), ScramError::Downgrade),
            (end_point(1), ClientBinding::unsupported(), ScramError::NotBound),
            (end_point(1), ClientBinding::unrequested(), ScramError::NotBound),
            // Another certificate than the server's: somebody is between them.
            (end_point(1), bound(2), ScramError::Foreign("channel binding data")),
        ] {
            let verifier = ScramVerifier::of_password("pencil");
            let outcome = log_in(verifier, "pencil", (offered.clone(), binding));
            assert_eq!(outcome, Err(error), "{offered:?}");
        }
        let first = b"p=tls-unique,,n=,r=a";
        let unique = ScramServer::start(pencil(), &end_point(1), first, SERVER_NONCE);
        assert_eq!(unique.unwrap_err(), ScramError::ChannelBindingType);
    }

    #[test]
    fn an_unknown_user_looks_like_a_known_one() {
        let mock = |secret: u8, user: &[u8]| ScramVerifier::mock(&[secret; 32], user, ITERATIONS);
        let salt = |secret, user| mock(secret, user).salt;
        assert_eq!(salt(1, b"ann"), salt(1, b"ann"));
        assert_ne!(salt(1, b"ann"), salt(1, b"bob"));
        assert_ne!(salt(1, b"ann"), salt(2, b"ann"));

        let known = ScramVerifier::of_password("pencil");
        let (_, to_known) = ScramServer::start(known, &NotOffered, b"n,,n=,r=x", "y").unwrap();
        let (_, to_unknown) =
            ScramServer::start(mock(1, b"ann"), &NotOffered, b"n,,n=,r=x", "y").unwrap();
        assert_eq!(to_known.len(), to_unknown.len());
        let outcome = log_in(mock(1, b"ann"), "pencil", (NotOffered, ClientBinding::unsupported()));
        assert_eq!(outcome, Err(ScramError::WrongProof));
    }

    #[test]
    fn a_first_message_off_the_grammar_is_refused() {
        for (message, error) in [
            ("", ScramError::Malformed("there is no channel binding flag")),
            ("x,,n=,r=a", ScramError::Malformed("there is no channel binding flag")),
            ("p=tls-unique,,n=,r=a", ScramError::ChannelBinding),
            ("n", ScramError::Malformed("the GS2 header is cut short")),
            ("n,", ScramError::Malformed("the GS2 header is cut short")),
            ("n,a=bob,n=,r=a", ScramError::AuthorizationIdentity),
            ("n,,m=future,n=,r=a", ScramError::Extension),
            ("n,,r=a", ScramError::Malformed("there is no user name")),
            ("n,,n=", ScramError::Malformed("there is no nonce")),
            ("n,,n=,r=", ScramError::Malformed("the nonce is not printable")),
            ("n,,n=,r=a b", ScramError::Malformed("the nonce is not printable")),
        ] {
            assert_eq!(start(message).unwrap_err(), error, "{message:?}");
        }
    }

    #[test]
    fn every_change_of_the_last_message_is_noticed() {
        let finish = |message: &str| start(CLIENT_FIRST).unwrap().0.finish(message.as_bytes());
        assert!(finish(CLIENT_FINAL).is_ok());
        for (from, to, error) in [
            ("c=biws", "c=eSws", ScramError::Foreign("channel binding data")),
            ("r=rOpr", "r=rOpx", ScramError::Foreign("nonce")),
            ("$k0,", "$k0,x=1,", ScramError::WrongProof),
            ("p=dHzb", "p=dHzc", ScramError::WrongProof),
            ("ndVQ=", "ndVQ", ScramError::Malformed("the proof is not 32 bytes in base64")),
            (",p=", ",q=", ScramError::Malformed("there is no proof")),
            ("c=biws,", "", ScramError::Malformed("there is no channel binding data")),
        ] {
            assert_eq!(finish(&CLIENT_FINAL.replace(from, to)), Err(error), "{from} -> {to}");
        }
    }

    #[test]
    fn a_verifier_off_its_form_is_refused() {
        for (from, to) in [
            ("SCRAM-SHA-256$", "SCRAM-SHA-512$"),
            ("4096", "0"),
            ("4096", "-1"),
            ("4096:", "4096"),
            ("W22Z", "W2!Z"),
            ("$WG5d", "$WG5dWG5d"),
            ("=:wfPL", "=wfPL"),
            ("2dU=", ""),
        ] {
            assert!(ScramVerifier::parse(&PENCIL.replace(from, to)).is_err(), "{from} -> {to}");
        }
    }

    #[test]
    fn debug_output_has_no_keys() {
        let (server, _) = start(CLIENT_FIRST).unwrap();
        let shown = format!("{server:?} {:?}", pencil());
        assert!(shown.contains("ScramVerifier { .. }"), "{shown}");
        assert!(!shown.contains("stored_key"), "{shown}");
    }

    proptest! {
        #[test]
        fn garbage_is_refused(first: Vec<u8>, last: Vec<u8>) {
            let _ = ScramServer::start(pencil(), &NotOffered, &first, SERVER_NONCE);
            let (server, _) = start(CLIENT_FIRST).unwrap();
            prop_assert!(server.finish(&last).is_err());
        }

        /// Like the last message, with one byte replaced: nothing but the original passes.
        #[test]
        fn a_message_with_one_byte_changed_is_refused(at in 0..CLIENT_FINAL.len(), byte: u8) {
            let mut message = CLIENT_FINAL.as_bytes().to_vec();
            let original = std::mem::replace(&mut message[at], byte);
            let (server, _) = start(CLIENT_FIRST).unwrap();
            prop_assert_eq!(server.finish(&message).is_ok(), byte == original);
        }

        #[test]
        fn mangled_first_messages_never_panic(text in "[nyp]?[,a-z=]{0,8},?,?[nrm=,]{0,8}") {
            let _ = start(&text);
        }
    }
}
