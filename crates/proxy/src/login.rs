//! How a client proves who it is, without sockets.

use tidegate_wire::authentication::{self, SCRAM_SHA_256};
use tidegate_wire::{Malformed, error_response::SqlState};

use crate::config::ClientAuthentication;
use crate::scram::{self, ScramError, ScramServer};
use crate::users::{self, Users};

/// An authentication exchange that waits for the client's next message.
pub(crate) enum Exchange {
    Md5 { salt: [u8; 4] },
    ScramFirst,
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
    #[error("SASL mechanism {0:?} is not supported; use SCRAM-SHA-256")]
    Mechanism(String),
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
            LoginError::Randomness(_) => SqlState::INVALID_AUTHORIZATION,
        }
    }
}

/// Begins the exchange and appends its challenge. Returns `None` if the client is trusted.
pub(crate) fn begin(
    method: ClientAuthentication,
    out: &mut Vec<u8>,
) -> Result<Option<Exchange>, LoginError> {
    Ok(match method {
        ClientAuthentication::Trust => None,
        ClientAuthentication::Md5 => {
            let mut salt = [0; 4];
            getrandom::fill(&mut salt)?;
            authentication::encode_md5_password(out, salt);
            Some(Exchange::Md5 { salt })
        }
        ClientAuthentication::ScramSha256 => {
            authentication::encode_sasl(out);
            Some(Exchange::ScramFirst)
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
        Exchange::ScramFirst => {
            let (mechanism, first) = authentication::sasl_initial_response(payload)?;
            if mechanism != SCRAM_SHA_256.as_bytes() {
                let mechanism = String::from_utf8_lossy(mechanism).into_owned();
                return Err(LoginError::Mechanism(mechanism));
            }
            let verifier = users.scram_verifier(user.as_bytes());
            let (server, challenge) =
                ScramServer::start(verifier, first, &scram::nonce()?).map_err(LoginError::Scram)?;
            authentication::encode_sasl_continue(out, &challenge);
            *exchange = Exchange::ScramFinal(Box::new(server));
            Ok(Step::Continue)
        }
        Exchange::ScramFinal(server) => {
            let outcome = server.finish(payload).map_err(|error| match error {
                ScramError::WrongProof => LoginError::Password(user.to_owned()),
                other => LoginError::Scram(other),
            })?;
            authentication::encode_sasl_final(out, &outcome);
            Ok(Step::Proved)
        }
    }
}
