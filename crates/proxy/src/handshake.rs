//! Logging in to a server, without sockets: start-up, authentication, parameters.

use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use tidegate_wire::authentication::{self, Authentication, SCRAM_SHA_256};
use tidegate_wire::error_response;
use tidegate_wire::startup::CancelKey;
use tidegate_wire::{Malformed, backend, frontend};

use crate::upstream::ServerParameters;
use crate::users::Secret;

/// Who the proxy is on a server.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    /// Absent: only servers that ask for no password can be used.
    pub(crate) secret: Option<Secret>,
}

/// Why an upstream connection could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("no answer within the connect timeout")]
    TimedOut,
    #[error("the server closed the connection")]
    Closed,
    #[error("{message} (SQLSTATE {code})")]
    Refused { code: String, message: String },
    #[error("the server wants a password for user \"{0}\": add it to the users file or the URL")]
    NoPassword(String),
    #[error("the server wants {0}, for which user \"{1}\" needs a plain-text password here")]
    PlainPasswordNeeded(&'static str, String),
    #[error("the server wants authentication method {0}, which is not supported")]
    Method(i32),
    #[error("SCRAM exchange failed: {0}")]
    Scram(String),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the server sent message type {0:#04x} during login")]
    Unexpected(u8),
}

/// A login under way.
pub(crate) struct Handshake {
    scram: Option<ScramSha256>,
    /// What the server reports of itself, to be repeated to clients.
    pub(crate) parameters: ServerParameters,
    pub(crate) key: Option<CancelKey>,
}

/// Whether a login goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Continues,
    Ready,
}

impl Handshake {
    pub(crate) fn new() -> Handshake {
        Handshake { scram: None, parameters: Vec::new(), key: None }
    }

    /// Takes one message of the server; appends what is to be answered.
    pub(crate) fn message(
        &mut self,
        tag: u8,
        payload: &[u8],
        credentials: &Credentials,
        out: &mut Vec<u8>,
    ) -> Result<Progress, UpstreamError> {
        match tag {
            backend::tag::AUTHENTICATION => self.authenticate(payload, credentials, out)?,
            backend::tag::PARAMETER_STATUS => {
                let (name, value) = backend::parameter_status(payload)?;
                self.parameters.push((name.into(), value.into()));
            }
            backend::tag::BACKEND_KEY_DATA => self.key = Some(backend::backend_key_data(payload)?),
            backend::tag::READY_FOR_QUERY => return Ok(Progress::Ready),
            backend::tag::NOTICE | backend::tag::NEGOTIATE_PROTOCOL => {}
            backend::tag::ERROR => {
                return Err(UpstreamError::Refused {
                    code: error_response::field(payload, b'C'),
                    message: error_response::field(payload, b'M'),
                });
            }
            other => return Err(UpstreamError::Unexpected(other)),
        }
        Ok(Progress::Continues)
    }

    fn authenticate(
        &mut self,
        payload: &[u8],
        credentials: &Credentials,
        out: &mut Vec<u8>,
    ) -> Result<(), UpstreamError> {
        match authentication::authentication(payload)? {
            Authentication::Ok => {}
            Authentication::CleartextPassword => {
                let password = plain(credentials, "a clear-text password")?;
                frontend::encode_password(out, password.as_bytes());
            }
            Authentication::Md5Password { salt } => {
                frontend::encode_password(out, md5_response(credentials, salt)?.as_bytes());
            }
            Authentication::Sasl { mechanisms } => {
                self.start_scram(mechanisms, credentials, out)?;
            }
            Authentication::SaslContinue(challenge) => {
                let scram = self.scram.as_mut().ok_or_else(out_of_order)?;
                scram.update(challenge).map_err(|error| scram_error(&error))?;
                authentication::encode_sasl_response(out, scram.message());
            }
            Authentication::SaslFinal(outcome) => {
                let scram = self.scram.as_mut().ok_or_else(out_of_order)?;
                scram.finish(outcome).map_err(|error| scram_error(&error))?;
            }
            Authentication::Unsupported(method) => return Err(UpstreamError::Method(method)),
        }
        Ok(())
    }

    fn start_scram(
        &mut self,
        mechanisms: &[u8],
        credentials: &Credentials,
        out: &mut Vec<u8>,
    ) -> Result<(), UpstreamError> {
        if !authentication::offers(mechanisms, SCRAM_SHA_256) {
            return Err(UpstreamError::Scram("the server does not offer SCRAM-SHA-256".into()));
        }
        let password = plain(credentials, "SCRAM-SHA-256")?;
        let scram = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
        authentication::encode_sasl_initial_response(out, SCRAM_SHA_256, scram.message());
        self.scram = Some(scram);
        Ok(())
    }
}

fn out_of_order() -> UpstreamError {
    UpstreamError::Scram("the server's messages came out of order".into())
}

fn scram_error(error: &std::io::Error) -> UpstreamError {
    UpstreamError::Scram(error.to_string())
}

fn plain<'a>(credentials: &'a Credentials, method: &'static str) -> Result<&'a str, UpstreamError> {
    match &credentials.secret {
        Some(Secret::Plain(password)) => Ok(password.as_str()),
        Some(_) => Err(UpstreamError::PlainPasswordNeeded(method, credentials.user.clone())),
        None => Err(UpstreamError::NoPassword(credentials.user.clone())),
    }
}

fn md5_response(credentials: &Credentials, salt: [u8; 4]) -> Result<String, UpstreamError> {
    let secret = credentials
        .secret
        .as_ref()
        .ok_or_else(|| UpstreamError::NoPassword(credentials.user.clone()))?;
    secret
        .md5_response(credentials.user.as_bytes(), salt)
        .ok_or_else(|| UpstreamError::PlainPasswordNeeded("MD5", credentials.user.clone()))
}
