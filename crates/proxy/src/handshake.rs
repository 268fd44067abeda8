//! Logging in to a server, without sockets: start-up, authentication, parameters.

use std::sync::Arc;

use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use tidegate_wire::authentication::{self, Authentication, SCRAM_SHA_256, SCRAM_SHA_256_PLUS};
use tidegate_wire::error_response;
use tidegate_wire::startup::CancelKey;
use tidegate_wire::{Malformed, backend, frontend};

use crate::accounts::ConnectionLimits;
use crate::auth_query::Lookups;
use crate::config::{ChannelBindingMode, SessionAttributes};
use crate::hosts::Role;
use crate::scram;
use crate::scram::pass_through::{PassThrough, PassThroughError};
use crate::timeouts::ShownBound;
use crate::tls::{Encryption, TlsError};
use crate::upstream::ServerParameters;
use crate::users::{Secret, User, Users};

/// Who the proxy is on a server.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    secrets: Secrets,
    /// How far the login is bound to the server's certificate.
    channel_binding: ChannelBindingMode,
}

/// Where the secret of a user is found.
#[derive(Clone, Debug)]
enum Secrets {
    /// In the configuration.
    Configured(Arc<User>),
    /// In the users file, or else in what a server has told by `auth_query`.
    Found { users: Users, lookups: Option<Arc<Lookups>> },
}

impl Credentials {
    /// Returns the credentials of a user whose secret is in the configuration, or else in the users
    /// file, or else in what a server has told.
    pub(crate) fn new(
        user: String,
        password: Option<&str>,
        (users, lookups): (&Users, Option<&Arc<Lookups>>),
        channel_binding: ChannelBindingMode,
    ) -> Credentials {
        let secrets = match password {
            Some(password) => {
                let secret = Secret::Plain(password.to_owned());
                Secrets::Configured(Arc::new(User::new(Some(secret))))
            }
            None => Secrets::Found { users: users.clone(), lookups: lookups.cloned() },
        };
        Credentials { user, secrets, channel_binding }
    }

    /// Returns the credentials of a user of the proxy's own, whom no client is.
    pub(crate) fn own(
        user: &str,
        password: Option<&str>,
        users: &Users,
        channel_binding: ChannelBindingMode,
    ) -> Credentials {
        Credentials::new(user.to_owned(), password, (users, None), channel_binding)
    }

    /// Returns what is known of the user now. `None`: only servers that ask for no password can be
    /// used.
    fn find(&self) -> Option<Arc<User>> {
        match &self.secrets {
            Secrets::Configured(user) => Some(Arc::clone(user)),
            Secrets::Found { users, lookups } => users
                .find(self.user.as_bytes())
                .or_else(|| lookups.as_ref()?.last_known(&self.user)),
        }
    }
}

/// Why an upstream connection could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("no answer within the connect timeout")]
    TimedOut,
    #[error("no answer {to} within the connect timeout ({bound})")]
    NotReadyInTime {
        bound: ShownBound,
        /// What was to be answered.
        to: &'static str,
    },
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
    #[error("SCRAM pass-through: {0}")]
    PassThrough(#[from] PassThroughError),
    #[error(
        "user \"{0}\" has a SCRAM verifier here, which is enough for the server once a client has \
         logged in as that user by SCRAM; until then the proxy needs the plain password"
    )]
    NoClientKey(String),
    #[error("channel binding is required, and the server {0}")]
    ChannelBinding(&'static str),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the server sent message type {0:#04x} during login")]
    Unexpected(u8),
    #[error("the server is {is}, and target_session_attrs={wanted} was asked for")]
    Unfit { is: &'static str, wanted: SessionAttributes },
    #[error(
        "default_transaction_read_only is on for this user or database, and \
         target_session_attrs=read-write was asked for"
    )]
    ReadOnly,
}

/// A login under way.
pub(crate) struct Handshake {
    scram: Option<ScramLogin>,
    /// The server has proved that it knows the password, if it was asked for one by SCRAM.
    is_proved: bool,
    /// The login is bound to the server's certificate.
    is_bound: bool,
    /// What the server is asked about its connections.
    pub(crate) question: Question,
    /// What the server reports of itself, to be repeated to clients.
    pub(crate) parameters: ServerParameters,
    pub(crate) key: Option<CancelKey>,
    /// What the server has answered to [`ASK_ROLE`]; `None` unless it was asked.
    role: Option<Vec<bool>>,
}

/// A question at the end of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// There is none.
    None,
    /// It is put when the server is ready.
    Wanted,
    /// It has been put. `None` is no answer that makes sense.
    Put(Option<ConnectionLimits>),
}

/// What a server of before PostgreSQL 14 is asked, which does not report it.
const ASK_ROLE: &[u8] = b"SELECT pg_catalog.pg_is_in_recovery(), \
    pg_catalog.current_setting('default_transaction_read_only') = 'on'";

/// The client's side of a SCRAM exchange.
enum ScramLogin {
    /// With the password.
    Password(ScramSha256),
    /// With the key that a client of the proxy has proved.
    Key(Box<PassThrough>),
}

impl ScramLogin {
    fn message(&self) -> &[u8] {
        match self {
            ScramLogin::Password(scram) => scram.message(),
            ScramLogin::Key(scram) => scram.message(),
        }
    }

    fn update(&mut self, challenge: &[u8]) -> Result<(), UpstreamError> {
        match self {
            ScramLogin::Password(scram) => {
                scram.update(challenge).map_err(|error| scram_error(&error))
            }
            ScramLogin::Key(scram) => Ok(scram.update(challenge)?),
        }
    }

    fn finish(&mut self, outcome: &[u8]) -> Result<(), UpstreamError> {
        match self {
            ScramLogin::Password(scram) => {
                scram.finish(outcome).map_err(|error| scram_error(&error))
            }
            ScramLogin::Key(scram) => Ok(scram.finish(outcome)?),
        }
    }
}

/// Whether a login goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Continues,
    Ready,
}

impl Handshake {
    pub(crate) fn new() -> Handshake {
        let (is_proved, is_bound) = (false, false);
        Handshake {
            scram: None,
            is_proved,
            is_bound,
            question: Question::None,
            parameters: Vec::new(),
            key: None,
            role: None,
        }
    }

    /// Begins a login that ends with a question about the server's connections.
    pub(crate) fn asking() -> Handshake {
        Handshake { question: Question::Wanted, ..Handshake::new() }
    }

    /// Returns what the server is, once it is ready. If it has not reported that, it is asked once:
    /// the request is appended to `out`, and it will be ready again.
    ///
    /// # Errors
    /// It was asked and has not answered.
    pub(crate) fn role(&mut self, out: &mut Vec<u8>) -> Result<Option<Role>, UpstreamError> {
        let reported = |wanted: &[u8]| {
            let mut reports = self.parameters.iter().filter(|(name, _)| **name == *wanted);
            reports.next_back().map(|(_, value)| &**value == b"on")
        };
        let known = (reported(b"in_hot_standby"), reported(b"default_transaction_read_only"));
        match (known, self.role.as_deref()) {
            ((Some(is_standby), Some(is_read_only)), _)
            | (_, Some(&[is_standby, is_read_only])) => Ok(Some(Role { is_standby, is_read_only })),
            (_, Some(_)) => Err(UpstreamError::Unexpected(backend::tag::READY_FOR_QUERY)),
            (_, None) => {
                self.role = Some(Vec::new());
                frontend::encode_query(out, ASK_ROLE);
                Ok(None)
            }
        }
    }

    /// Takes one message of the server, over the TLS that there is; appends what is to be
    /// answered.
    pub(crate) fn message(
        &mut self,
        (tag, payload): (u8, &[u8]),
        credentials: &Credentials,
        tls: Option<&Encryption>,
        out: &mut Vec<u8>,
    ) -> Result<Progress, UpstreamError> {
        match tag {
            backend::tag::AUTHENTICATION => self.authenticate(payload, credentials, tls, out)?,
            backend::tag::PARAMETER_STATUS => {
                let (name, value) = backend::parameter_status(payload)?;
                self.parameters.push((name.into(), value.into()));
            }
            backend::tag::BACKEND_KEY_DATA => self.key = Some(backend::backend_key_data(payload)?),
            backend::tag::READY_FOR_QUERY if self.question == Question::Wanted => {
                frontend::encode_query(out, ConnectionLimits::QUERY.as_bytes());
                self.question = Question::Put(None);
            }
            backend::tag::READY_FOR_QUERY => return Ok(Progress::Ready),
            backend::tag::NOTICE | backend::tag::NEGOTIATE_PROTOCOL => {}
            backend::tag::ROW_DESCRIPTION | backend::tag::COMMAND_COMPLETE
                if self.role.is_some() => {}
            backend::tag::DATA_ROW if self.role.is_some() => {
                let columns = backend::data_row(payload)?;
                self.role = Some(columns.map(|column| column == Some(b"t")).collect());
            }
            _ if matches!(self.question, Question::Put(_)) => self.answer(tag, payload)?,
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

    /// Takes a message of the answer. A server may also refuse to give one.
    fn answer(&mut self, tag: u8, payload: &[u8]) -> Result<(), UpstreamError> {
        match tag {
            backend::tag::DATA_ROW => {
                let limits = ConnectionLimits::read(backend::data_row(payload)?);
                self.question = Question::Put(limits);
            }
            backend::tag::ROW_DESCRIPTION
            | backend::tag::COMMAND_COMPLETE
            | backend::tag::EMPTY_QUERY
            | backend::tag::ERROR => {}
            other => return Err(UpstreamError::Unexpected(other)),
        }
        Ok(())
    }

    fn authenticate(
        &mut self,
        payload: &[u8],
        credentials: &Credentials,
        tls: Option<&Encryption>,
        out: &mut Vec<u8>,
    ) -> Result<(), UpstreamError> {
        let needs_binding = credentials.channel_binding == ChannelBindingMode::Require;
        match authentication::authentication(payload)? {
            // Only who knows the password, or its verifier, can end the exchange.
            Authentication::Ok if self.scram.is_some() && !self.is_proved => {
                return Err(out_of_order());
            }
            Authentication::Ok if needs_binding && !self.is_bound => {
                return Err(UpstreamError::ChannelBinding("let the proxy in without it"));
            }
            Authentication::Ok => {}
            Authentication::CleartextPassword | Authentication::Md5Password { .. }
                if needs_binding =>
            {
                return Err(UpstreamError::ChannelBinding("asks for a password without it"));
            }
            Authentication::CleartextPassword => {
                let user = credentials.find();
                let password = plain(credentials, user.as_deref(), "a clear-text password")?;
                frontend::encode_password(out, password.as_bytes());
            }
            Authentication::Md5Password { salt } => {
                frontend::encode_password(out, md5_response(credentials, salt)?.as_bytes());
            }
            Authentication::Sasl { mechanisms } => {
                self.start_scram(mechanisms, credentials, tls, out)?;
            }
            Authentication::SaslContinue(challenge) => {
                let scram = self.scram.as_mut().ok_or_else(out_of_order)?;
                scram.update(challenge)?;
                authentication::encode_sasl_response(out, scram.message());
            }
            Authentication::SaslFinal(outcome) => {
                let scram = self.scram.as_mut().ok_or_else(out_of_order)?;
                scram.finish(outcome)?;
                self.is_proved = true;
            }
            Authentication::Unsupported(method) => return Err(UpstreamError::Method(method)),
        }
        Ok(())
    }

    fn start_scram(
        &mut self,
        mechanisms: &[u8],
        credentials: &Credentials,
        tls: Option<&Encryption>,
        out: &mut Vec<u8>,
    ) -> Result<(), UpstreamError> {
        if !authentication::offers(mechanisms, SCRAM_SHA_256) {
            return Err(UpstreamError::Scram("the server does not offer SCRAM-SHA-256".into()));
        }
        let offers_plus = authentication::offers(mechanisms, SCRAM_SHA_256_PLUS);
        let end_point = end_point(offers_plus, credentials.channel_binding, tls)?;
        self.is_bound = end_point.is_some();
        let mechanism = if self.is_bound { SCRAM_SHA_256_PLUS } else { SCRAM_SHA_256 };
        // The server checks that it did not offer what the proxy would have taken.
        let was_not_offered = tls.is_some() && !offers_plus;
        let user = credentials.find();
        let scram = if let Some(user) = &user
            && let Some(Secret::Scram(verifier)) = user.secret()
        {
            let key = user.client_key().cloned();
            let key = key.ok_or_else(|| UpstreamError::NoClientKey(credentials.user.clone()))?;
            let header = match &end_point {
                Some(_) => "p=tls-server-end-point,,",
                None if was_not_offered => "y,,",
                None => "n,,",
            };
            let nonce = scram::nonce().map_err(|error| UpstreamError::Scram(error.to_string()))?;
            let keys = (verifier.clone(), key);
            ScramLogin::Key(Box::new(PassThrough::new(keys, header, end_point.as_deref(), nonce)))
        } else {
            let password = plain(credentials, user.as_deref(), "SCRAM-SHA-256")?;
            let binding = match end_point {
                Some(hash) => ChannelBinding::tls_server_end_point(hash),
                None if was_not_offered => ChannelBinding::unrequested(),
                None => ChannelBinding::unsupported(),
            };
            ScramLogin::Password(ScramSha256::new(password.as_bytes(), binding))
        };
        authentication::encode_sasl_initial_response(out, mechanism, scram.message());
        self.scram = Some(scram);
        Ok(())
    }
}

/// Returns the hash of the certificate that the login is to be bound to.
fn end_point(
    offers_plus: bool,
    mode: ChannelBindingMode,
    tls: Option<&Encryption>,
) -> Result<Option<Vec<u8>>, UpstreamError> {
    let hash = match (mode, tls) {
        (ChannelBindingMode::Disable, _) => return Ok(None),
        (_, Some(tls)) if offers_plus => tls.peer_end_point(),
        _ => Ok(None),
    };
    match (mode, hash) {
        (ChannelBindingMode::Require, Err(error)) => Err(error.into()),
        (ChannelBindingMode::Require, Ok(None)) => {
            Err(UpstreamError::ChannelBinding("does not offer SCRAM-SHA-256-PLUS"))
        }
        // Some certificates have no hash function to bind to.
        (_, hash) => Ok(hash.ok().flatten()),
    }
}

fn out_of_order() -> UpstreamError {
    UpstreamError::Scram("the server's messages came out of order".into())
}

fn scram_error(error: &std::io::Error) -> UpstreamError {
    UpstreamError::Scram(error.to_string())
}

fn plain<'a>(
    credentials: &Credentials,
    user: Option<&'a User>,
    method: &'static str,
) -> Result<&'a str, UpstreamError> {
    match user.and_then(User::secret) {
        Some(Secret::Plain(password)) => Ok(password.as_str()),
        Some(_) => Err(UpstreamError::PlainPasswordNeeded(method, credentials.user.clone())),
        None => Err(UpstreamError::NoPassword(credentials.user.clone())),
    }
}

fn md5_response(credentials: &Credentials, salt: [u8; 4]) -> Result<String, UpstreamError> {
    let user = credentials.find();
    let secret = user.as_ref().and_then(|user| user.secret());
    secret
        .ok_or_else(|| UpstreamError::NoPassword(credentials.user.clone()))?
        .md5_response(credentials.user.as_bytes(), salt)
        .ok_or_else(|| UpstreamError::PlainPasswordNeeded("MD5", credentials.user.clone()))
}
