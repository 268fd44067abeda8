//! How a client proves who it is, without sockets.

use std::sync::Arc;

use tidegate_wire::authentication::{self, SCRAM_SHA_256, SCRAM_SHA_256_PLUS};
use tidegate_wire::{Malformed, error_response::SqlState};

use crate::config::ClientAuthentication;
use crate::scram::{self, ChannelBinding, ScramError, ScramServer};
use crate::users::{self, Users};

/// An authentication exchange that waits for the client's next message.
pub(crate) enum Exchange {
    Md5 {
        salt: [u8; 4],
    },
    /// The client chooses a mechanism. The end point is that of the proxy's certificate, which it
    /// may bind the login to.
    ScramFirst {
        end_point: Option<Arc<[u8]>>,
    },
    ScramFinal(Box<ScramServer>),
}

/// How an exchange goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// With the client's next message.
    Continue,
    /// The client is who it says.
    Proved,
}

/// Why a client is not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    #[error("password authentication failed for user \"{0}\"")]
    Password(String),
    #[error("{0}")]
    Scram(ScramError),
    #[error("SASL mechanism {0:?} is not offered; use SCRAM-SHA-256")]
    Mechanism(String),
    #[error("certificate authentication failed for user \"{0}\"")]
    Certificate(String),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("no randomness for a challenge: {0}")]
    Randomness(#[from] getrandom::Error),
}

impl LoginError {
    pub(crate) fn sql_state(&self) -> SqlState<'static> {
        match self {
            LoginError::Password(_) => SqlState::INVALID_PASSWORD,
            LoginError::Scram(_) | LoginError::Mechanism(_) | LoginError::Malformed(_) => {
                SqlState::PROTOCOL_VIOLATION
            }
            LoginError::Certificate(_) | LoginError::Randomness(_) => {
                SqlState::INVALID_AUTHORIZATION
            }
        }
    }
}

/// What TLS says about a client.
#[derive(Debug, Default)]
pub(crate) struct ClientProof {
    /// The common name of its certificate, if it has shown one that is right.
    pub(crate) common_name: Option<String>,
    /// Whether that has to be the user.
    pub(crate) has_to_name_user: bool,
    /// The end point to bind the login to; see [`crate::tls::Encryption::own_end_point`].
    pub(crate) end_point: Option<Arc<[u8]>>,
}

/// Begins the exchange and appends its challenge. Returns `None` if the client has nothing to
/// prove, or has proved it by its certificate.
pub(crate) fn begin(
    method: ClientAuthentication,
    user: &str,
    tls: &ClientProof,
    out: &mut Vec<u8>,
) -> Result<Option<Exchange>, LoginError> {
    if tls.has_to_name_user && tls.common_name.as_deref() != Some(user) {
        return Err(LoginError::Certificate(user.to_owned()));
    }
    Ok(match method {
        ClientAuthentication::Trust => None,
        ClientAuthentication::Certificate if tls.common_name.as_deref() == Some(user) => None,
        ClientAuthentication::Certificate => return Err(LoginError::Certificate(user.to_owned())),
        ClientAuthentication::Md5 => {
            let mut salt = [0; 4];
            getrandom::fill(&mut salt)?;
            authentication::encode_md5_password(out, salt);
            Some(Exchange::Md5 { salt })
        }
        ClientAuthentication::ScramSha256 => {
            let end_point = tls.end_point.clone();
            match end_point {
                Some(_) => authentication::encode_sasl(out, &[SCRAM_SHA_256_PLUS, SCRAM_SHA_256]),
                None => authentication::encode_sasl(out, &[SCRAM_SHA_256]),
            }
            Some(Exchange::ScramFirst { end_point })
        }
    })
}

/// Takes the client's answer and appends what follows it.
pub(crate) fn answer(
    exchange: &mut Exchange,
    user: &str,
    users: &Users,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<Step, LoginError> {
    match exchange {
        Exchange::Md5 { salt } => {
            let response = authentication::password(payload)?;
            let name = user.as_bytes();
            let is_right = users
                .get(name)
                .is_some_and(|secret| users::md5_matches(secret, name, *salt, response));
            if is_right { Ok(Step::Proved) } else { Err(LoginError::Password(user.to_owned())) }
        }
        Exchange::ScramFirst { end_point } => {
            let (mechanism, first) = authentication::sasl_initial_response(payload)?;
            let binding = match (str::from_utf8(mechanism), end_point.take()) {
                (Ok(SCRAM_SHA_256), None) => ChannelBinding::NotOffered,
                (Ok(SCRAM_SHA_256), Some(_)) => ChannelBinding::Declined,
                (Ok(SCRAM_SHA_256_PLUS), Some(end_point)) => ChannelBinding::EndPoint(end_point),
                _ => {
                    let mechanism = String::from_utf8_lossy(mechanism).into_owned();
                    return Err(LoginError::Mechanism(mechanism));
                }
            };
            let verifier = users.scram_verifier(user.as_bytes());
            let (server, challenge) =
                ScramServer::start(verifier, &binding, first, &scram::nonce()?)
                    .map_err(LoginError::Scram)?;
            authentication::encode_sasl_continue(out, &challenge);
            *exchange = Exchange::ScramFinal(Box::new(server));
            Ok(Step::Continue)
        }
        Exchange::ScramFinal(server) => {
            let proved = server.finish(payload).map_err(|error| match error {
                ScramError::WrongProof => LoginError::Password(user.to_owned()),
                other => LoginError::Scram(other),
            })?;
            users.learn(user.as_bytes(), proved.client_key);
            authentication::encode_sasl_final(out, &proved.outcome);
            Ok(Step::Proved)
        }
    }
}
