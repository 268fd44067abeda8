//! SCRAM pass-through: the proxy logs in to a server by a verifier and its client's proof.
//!
//! A verifier lets the proxy judge a proof, and is not enough to make one: that takes the
//! [`ClientKey`], whose hash is in the verifier. A right proof yields it. It is the same in every
//! exchange that has the verifier's salt and iterations, so that with it the proxy can log in
//! wherever the server keeps the same verifier, without knowing a password.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ctutils::CtEq;

use super::{ClientKey, ScramVerifier, attribute, hmac, key, text};

/// Why the proxy cannot log in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PassThroughError {
    #[error(transparent)]
    Scram(#[from] super::ScramError),
    #[error(
        "the server keeps another SCRAM verifier for the user than the proxy has: in a users file \
         it has to be rolpassword of pg_authid; after a change of the password log in anew"
    )]
    OtherVerifier,
    #[error("the server's nonce does not begin with the proxy's")]
    Nonce,
    #[error("the server does not know the verifier: it may be another one")]
    Unproved,
    #[error("the server says {0}")]
    Refused(String),
    #[error("the server's messages came out of order")]
    OutOfOrder,
}

/// A login at a server by a client's key.
pub(crate) struct PassThrough {
    verifier: ScramVerifier,
    client_key: ClientKey,
    /// What is confirmed: the GS2 header, and the server's certificate if the login is bound to it.
    binding_data: Vec<u8>,
    nonce: String,
    message: Vec<u8>,
    /// The signature by which the server proves that it knows the verifier, once it is known.
    expected: Option<Vec<u8>>,
}

impl PassThrough {
    /// Begins a login. `gs2_header` is as in `n,,`, `end_point` the hash of the server's
    /// certificate where the header says that the login is bound to it.
    pub(crate) fn new(
        (verifier, client_key): (ScramVerifier, ClientKey),
        gs2_header: &str,
        end_point: Option<&[u8]>,
        nonce: String,
    ) -> PassThrough {
        let message = format!("{gs2_header}n=,r={nonce}").into_bytes();
        let mut binding_data = Vec::from(gs2_header);
        binding_data.extend_from_slice(end_point.unwrap_or_default());
        PassThrough { verifier, client_key, binding_data, nonce, message, expected: None }
    }

    /// Returns the message to send now.
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }

    /// Takes the server's challenge, and makes the message that proves the key.
    pub(crate) fn update(&mut self, challenge: &[u8]) -> Result<(), PassThroughError> {
        let challenge = text(challenge)?;
        let mut attributes = challenge.split(',');
        let nonce = attribute(attributes.next(), "r=", "there is no nonce")?;
        let salt = attribute(attributes.next(), "s=", "there is no salt")?;
        let iterations = attribute(attributes.next(), "i=", "there are no iterations")?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(PassThroughError::Nonce);
        }
        let is_same = STANDARD.encode(&self.verifier.salt) == salt
            && self.verifier.iterations.to_string() == iterations;
        if !is_same {
            return Err(PassThroughError::OtherVerifier);
        }
        let without_proof = format!("c={},r={nonce}", STANDARD.encode(&self.binding_data));
        let auth_message = format!("n=,r={},{challenge},{without_proof}", self.nonce);
        let mut proof = hmac(&self.verifier.stored_key, &[auth_message.as_bytes()]);
        for (byte, key) in proof.iter_mut().zip(self.client_key.0) {
            *byte ^= key;
        }
        self.message = format!("{without_proof},p={}", STANDARD.encode(proof)).into_bytes();
        self.expected = Some(hmac(&self.verifier.server_key, &[auth_message.as_bytes()]).to_vec());
        Ok(())
    }

    /// Checks that the server knows the verifier too.
    pub(crate) fn finish(&self, outcome: &[u8]) -> Result<(), PassThroughError> {
        let expected = self.expected.as_ref().ok_or(PassThroughError::OutOfOrder)?;
        let outcome = text(outcome)?;
        if let Some(error) = outcome.strip_prefix("e=") {
            return Err(PassThroughError::Refused(error.to_owned()));
        }
        let signature = attribute(outcome.split(',').next(), "v=", "there is no signature")?;
        let is_right: bool =
            key(signature).is_some_and(|signature| signature[..].ct_eq(&expected[..]).into());
        if is_right { Ok(()) } else { Err(PassThroughError::Unproved) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ChannelBinding, ScramServer, nonce};
    use super::*;
    use postgres_protocol::authentication::sasl;

    /// The key that a client's proof yields.
    fn learned(verifier: &ScramVerifier, password: &str) -> ClientKey {
        let binding = sasl::ChannelBinding::unsupported();
        let mut client = sasl::ScramSha256::new(password.as_bytes(), binding);
        let (server, first) = ScramServer::start(
            verifier.clone(),
            &ChannelBinding::NotOffered,
            client.message(),
            &nonce().unwrap(),
        )
        .unwrap();
        client.update(&first).unwrap();
        server.finish(client.message()).unwrap().client_key
    }

    #[test]
    fn what_a_proof_yields_is_a_login_at_the_same_verifier_only() {
        let verifier = ScramVerifier::of_password("pencil");
        let key = learned(&verifier, "pencil");
        for (offered, header, end_point) in [
            (ChannelBinding::NotOffered, "n,,", None),
            (ChannelBinding::NotOffered, "y,,", None),
            (
                ChannelBinding::EndPoint(vec![3; 32].into()),
                "p=tls-server-end-point,,",
                Some(&[3; 32][..]),
            ),
        ] {
            let keys = (verifier.clone(), key.clone());
            let mut proxy = PassThrough::new(keys, header, end_point, nonce().unwrap());
            assert_eq!(proxy.finish(b"v=x"), Err(PassThroughError::OutOfOrder));
            let start = ScramServer::start(verifier.clone(), &offered, proxy.message(), "more");
            let (server, challenge) = start.unwrap();
            proxy.update(&challenge).unwrap();
            let proved = server.finish(proxy.message()).unwrap();
            assert_eq!(proxy.finish(&proved.outcome), Ok(()));
            let forged = format!("v={}", STANDARD.encode([0; 32]));
            assert_eq!(proxy.finish(forged.as_bytes()), Err(PassThroughError::Unproved));
            let refused = PassThroughError::Refused("other-error".to_owned());
            assert_eq!(proxy.finish(b"e=other-error"), Err(refused));
        }
    }

    #[test]
    fn another_verifier_or_nonce_ends_the_login() {
        let verifier = ScramVerifier::of_password("pencil");
        let key = learned(&verifier, "pencil");
        let salt = STANDARD.encode(&verifier.salt);
        for (challenge, error) in [
            ("r=mineyours,s=AAAA,i=4096".to_owned(), PassThroughError::OtherVerifier),
            (format!("r=mineyours,s={salt},i=4097"), PassThroughError::OtherVerifier),
            (format!("r=yours,s={salt},i=4096"), PassThroughError::Nonce),
            (format!("r=mine,s={salt},i=4096"), PassThroughError::Nonce),
        ] {
            let keys = (verifier.clone(), key.clone());
            let mut proxy = PassThrough::new(keys, "n,,", None, "mine".to_owned());
            assert_eq!(proxy.update(challenge.as_bytes()), Err(error), "{challenge}");
        }
    }
}
