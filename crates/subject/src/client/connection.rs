//! One client connection without a socket: bytes in, events and bytes out.
//!
//! The owner reads into a buffer it may share among connections and hands over what arrived. Whole
//! messages are looked at where they lie; only a message cut off at the buffer's end is kept here
//! until the rest comes. Nothing is allocated in between.
//!
//! Spoken: trust, clear-text, MD5 and SCRAM-SHA-256 authentication and the simple query protocol.
//! Not spoken: TLS, the extended query protocol, COPY from and to the client, replication.

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use thiserror::Error;
use tidegate_wire::authentication::{
    Authentication, SCRAM_SHA_256, authentication, encode_sasl_initial_response,
    encode_sasl_response, offers,
};
use tidegate_wire::backend::{TransactionStatus, command_complete, ready_for_query, tag};
use tidegate_wire::error_response::field;
use tidegate_wire::frame::{FrameError, HEADER_LEN, frame};
use tidegate_wire::{Malformed, frontend, startup};
use tidegate_workload::{Conflict, Failure};

use crate::blocking::Partial;
use crate::url::Url;

/// What a server said, of what a client cares about.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A row: the payload of `DataRow`, to be read by [`super::data_row`].
    Row(&'a [u8]),
    /// A statement is done: the payload of `CommandComplete`.
    Complete(&'a [u8]),
    /// A statement or the login failed: the payload of `ErrorResponse`.
    Error(&'a [u8]),
    /// The server waits for a query; the first of these ends the login.
    Ready(TransactionStatus),
}

/// An `ErrorResponse` in words.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message} (SQLSTATE {code})")]
pub struct ServerError {
    /// The SQLSTATE, five characters.
    pub code: String,
    /// The primary message.
    pub message: String,
}

impl ServerError {
    /// The error in an `ErrorResponse` payload.
    #[must_use]
    pub fn read(payload: &[u8]) -> Self {
        ServerError { code: field(payload, b'C'), message: field(payload, b'M') }
    }
}

/// Somebody cancelled the statement, or it took longer than `statement_timeout`.
const QUERY_CANCELED: &str = "57014";

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        match error.code.as_str() {
            "40001" => Failure::Conflict(Conflict::Serialization),
            "40P01" => Failure::Conflict(Conflict::Deadlock),
            "55P03" => Failure::Conflict(Conflict::LockTimeout),
            QUERY_CANCELED => Failure::Stopped,
            _ => Failure::Refused { code: error.code, message: error.message },
        }
    }
}

/// How many rows a statement returned or changed: the number that ends its `CommandComplete`; 0
/// when it has none.
#[must_use]
pub fn count(payload: &[u8]) -> u64 {
    let tag = command_complete(payload).ok().and_then(|tag| std::str::from_utf8(tag).ok());
    let number = tag.and_then(|tag| tag.rsplit(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Whether a statement that is done has undone the transaction. To a COMMIT after a failure the
/// server answers with this tag instead of an error.
#[must_use]
pub fn undoes(payload: &[u8]) -> bool {
    command_complete(payload).is_ok_and(|tag| tag == b"ROLLBACK")
}

/// What a COMMIT comes to whose answer [undoes](undoes) the transaction: SQLSTATE 25P02,
/// `in_failed_sql_transaction`.
#[must_use]
pub fn undone() -> Failure {
    Failure::Refused {
        code: "25P02".to_owned(),
        message: "a statement of the transaction had failed, so COMMIT has undone it".to_owned(),
    }
}

/// A server that this client cannot go on with.
#[derive(Debug, Error)]
pub enum ProtocolError {
    /// The bytes are not the protocol's.
    #[error("the server does not speak PostgreSQL's protocol: {0}")]
    Frame(#[from] FrameError),
    /// A message has not its prescribed form.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The server wants a password and the URL has none.
    #[error("the server asks for a password; put one into the URL")]
    PasswordMissing,
    /// The server wants a method that is not spoken here.
    #[error("the server asks for an authentication method that is not supported here")]
    Method,
    /// The SCRAM exchange failed, so one side does not know the password.
    #[error("SCRAM-SHA-256 authentication failed: {0}")]
    Scram(std::io::Error),
    /// A message that has no place in the simple query protocol.
    #[error("unexpected message of type {:?} from the server", char::from(*.0))]
    Unexpected(u8),
}

/// What is needed until the login is done.
struct Login {
    user: String,
    password: Option<String>,
    scram: Option<ScramSha256>,
}

/// A client's end of a connection; see the module for how it is fed.
pub struct Connection {
    /// `None` once the server was ready for the first time.
    login: Option<Box<Login>>,
    partial: Partial,
}

impl Connection {
    /// A connection about to log in as `url` says: appends the start-up packet to `out`.
    #[must_use]
    pub fn start(url: &Url, application: &str, out: &mut Vec<u8>) -> Self {
        let parameters = [
            ("user", url.user.as_str()),
            ("database", url.database.as_str()),
            ("application_name", application),
        ];
        let parameters = parameters.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        startup::encode_startup(out, parameters);
        Connection {
            login: Some(Box::new(Login {
                user: url.user.clone(),
                password: url.password.clone(),
                scram: None,
            })),
            partial: Partial::default(),
        }
    }

    /// Whether the login is done.
    #[must_use]
    pub fn is_logged_in(&self) -> bool {
        self.login.is_none()
    }

    /// Takes in what arrived, calls `on_event` for each event in order and appends to `out` what
    /// the login has to answer. `on_event` may append its next query to the `out` it is handed.
    ///
    /// # Errors
    /// The connection is of no further use; see [`ProtocolError`].
    pub fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        mut on_event: impl FnMut(Event<'_>, &mut Vec<u8>),
    ) -> Result<(), ProtocolError> {
        let mut partial = std::mem::take(&mut self.partial);
        let received = partial.receive(bytes, |bytes| self.messages(bytes, out, &mut on_event));
        self.partial = partial;
        received
    }

    /// Handles the whole messages at the front of `bytes`; returns how many bytes they took.
    fn messages(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        on_event: &mut impl FnMut(Event<'_>, &mut Vec<u8>),
    ) -> Result<usize, ProtocolError> {
        let mut used = 0;
        while let Some(head) = frame(&bytes[used..])? {
            let Some(message) = bytes.get(used..used + head.len) else {
                break;
            };
            used += head.len;
            self.message(head.tag, &message[HEADER_LEN..], out, on_event)?;
        }
        Ok(used)
    }

    fn message(
        &mut self,
        tag: u8,
        payload: &[u8],
        out: &mut Vec<u8>,
        on_event: &mut impl FnMut(Event<'_>, &mut Vec<u8>),
    ) -> Result<(), ProtocolError> {
        match tag {
            tag::DATA_ROW => on_event(Event::Row(payload), out),
            tag::COMMAND_COMPLETE => on_event(Event::Complete(payload), out),
            tag::ERROR => on_event(Event::Error(payload), out),
            tag::READY_FOR_QUERY => {
                self.login = None;
                on_event(Event::Ready(ready_for_query(payload)?), out);
            }
            tag::AUTHENTICATION => match &mut self.login {
                Some(login) => login.answer(authentication(payload)?, out)?,
                None => return Err(ProtocolError::Unexpected(tag)),
            },
            tag::ROW_DESCRIPTION
            | tag::EMPTY_QUERY
            | tag::NOTICE
            | tag::NOTIFICATION
            | tag::NEGOTIATE_PROTOCOL
            | tag::PARAMETER_STATUS
            | tag::BACKEND_KEY_DATA => {}
            _ => return Err(ProtocolError::Unexpected(tag)),
        }
        Ok(())
    }
}

impl Login {
    fn answer(
        &mut self,
        request: Authentication<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        match request {
            Authentication::Ok => {}
            Authentication::CleartextPassword => {
                frontend::encode_password(out, self.password()?.as_bytes());
            }
            Authentication::Md5Password { salt } => {
                let hash = md5_hash(self.user.as_bytes(), self.password()?.as_bytes(), salt);
                frontend::encode_password(out, hash.as_bytes());
            }
            Authentication::Sasl { mechanisms } if offers(mechanisms, SCRAM_SHA_256) => {
                let password = self.password()?.as_bytes();
                let scram = ScramSha256::new(password, ChannelBinding::unsupported());
                encode_sasl_initial_response(out, SCRAM_SHA_256, scram.message());
                self.scram = Some(scram);
            }
            Authentication::SaslContinue(challenge) => {
                let scram = self.scram()?;
                scram.update(challenge).map_err(ProtocolError::Scram)?;
                encode_sasl_response(out, scram.message());
            }
            Authentication::SaslFinal(outcome) => {
                self.scram()?.finish(outcome).map_err(ProtocolError::Scram)?;
            }
            Authentication::Sasl { .. } | Authentication::Unsupported(_) => {
                return Err(ProtocolError::Method);
            }
        }
        Ok(())
    }

    fn password(&self) -> Result<&str, ProtocolError> {
        self.password.as_deref().ok_or(ProtocolError::PasswordMissing)
    }

    /// The exchange under way; a server that answers one it never began is out of protocol.
    fn scram(&mut self) -> Result<&mut ScramSha256, ProtocolError> {
        self.scram.as_mut().ok_or(ProtocolError::Unexpected(tag::AUTHENTICATION))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_wire::authentication::encode_ok;
    use tidegate_wire::backend::encode_ready_for_query;
    use tidegate_wire::error_response::{Severity, SqlState, encode_error};

    fn started() -> Connection {
        let url = "postgres://a@h:1/d".parse().unwrap();
        Connection::start(&url, "test", &mut Vec::new())
    }

    fn conversation() -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_ok(&mut bytes);
        encode_ready_for_query(&mut bytes, TransactionStatus::Idle);
        encode_error(&mut bytes, Severity::Error, SqlState::QUERY_CANCELED, "no");
        encode_ready_for_query(&mut bytes, TransactionStatus::Failed);
        bytes
    }

    /// Events as text, when `bytes` arrive in pieces of `size`.
    fn events(bytes: &[u8], size: usize) -> Vec<String> {
        let mut connection = started();
        let mut seen = Vec::new();
        for piece in bytes.chunks(size) {
            connection
                .receive(piece, &mut Vec::new(), |event, _| {
                    seen.push(match event {
                        Event::Error(payload) => ServerError::read(payload).to_string(),
                        other => format!("{other:?}"),
                    });
                })
                .unwrap();
        }
        assert!(connection.partial.0.is_empty());
        seen
    }

    #[test]
    fn events_do_not_depend_on_how_bytes_arrive() {
        let bytes = conversation();
        let whole = events(&bytes, bytes.len());
        assert_eq!(whole, ["Ready(Idle)", "no (SQLSTATE 57014)", "Ready(Failed)"]);
        for size in 1..bytes.len() {
            assert_eq!(events(&bytes, size), whole, "pieces of {size}");
        }
    }

    #[test]
    fn what_has_no_place_is_refused() {
        for bytes in [&b"HTTP/1.1 400"[..], b"G\0\0\0\x04", b"R\0\0\0\x05\x01"] {
            let result = started().receive(bytes, &mut Vec::new(), |_, _| {});
            assert!(result.is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_password_is_asked_for_only_when_there_is_none() {
        let request = b"R\0\0\0\x08\0\0\0\x03";
        let error = started().receive(request, &mut Vec::new(), |_, _| {}).unwrap_err();
        assert!(matches!(error, ProtocolError::PasswordMissing));
    }
}
