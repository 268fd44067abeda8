//! What the clients of PostgreSQL and MariaDB have in common: messages that arrive in pieces, one
//! question at a time and its answer, and why there is none.

use std::error::Error;
use std::io;
use std::time::Duration;

use thiserror::Error;
use tidegate_workload::Failure;

use crate::detection::{Whereabouts, whereabouts};
use crate::stream::{CONNECT_TIMEOUT, Stream};
use crate::url::{Url, UrlError};

const READ_LEN: usize = 16 * 1024;

/// Why a client could not connect or a query has no result; `S` is a server's error, `P` one of
/// the protocol.
#[derive(Debug, Error)]
pub enum ClientError<S: Error, P: Error> {
    /// The URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// No connection came about.
    #[error("cannot connect to {url}: {source}")]
    Connect {
        /// Where to, without the password.
        url: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection to the server broke: {0}")]
    Io(#[from] io::Error),
    /// The server ended the connection without a word, or an earlier query broke it.
    #[error("the connection to the server is closed")]
    Closed,
    /// The server refused the login or the query.
    #[error("the server says: {0}")]
    Server(S),
    /// The server's bytes make no sense.
    #[error("{0}")]
    Protocol(P),
}

impl<S: Error, P: Error> ClientError<S, P> {
    /// Returns the error without the place, which the caller names.
    pub(crate) fn reason(&self) -> String {
        match self {
            ClientError::Connect { source, .. } => source.to_string(),
            other => other.to_string(),
        }
    }
}

impl<S: Error + Into<Failure>, P: Error> From<ClientError<S, P>> for Failure {
    fn from(error: ClientError<S, P>) -> Self {
        match error {
            ClientError::Server(error) => error.into(),
            broken => Failure::Lost(broken.to_string()),
        }
    }
}

/// The beginning of a message whose end has not arrived.
#[derive(Debug, Default)]
pub(crate) struct Partial(pub(crate) Vec<u8>);

impl Partial {
    /// Hands over what was kept and what arrived. `take` returns how many bytes the whole messages
    /// at its front took; the rest is kept.
    pub(crate) fn receive<E>(
        &mut self,
        bytes: &[u8],
        take: impl FnOnce(&[u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        if self.0.is_empty() {
            let used = take(bytes)?;
            self.0.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        self.0.extend_from_slice(bytes);
        let used = take(&self.0)?;
        self.0.drain(..used);
        Ok(())
    }
}

/// A socket for one question at a time.
pub(crate) struct Channel {
    stream: Stream,
    /// What is sent next.
    pub(crate) out: Vec<u8>,
    buffer: Box<[u8]>,
    /// Whether what comes next is the answer to what is sent next.
    is_usable: bool,
}

impl Channel {
    /// Connects to the server of a URL. A login may take [`CONNECT_TIMEOUT`].
    pub(crate) fn connect<S: Error, P: Error>(url: &Url) -> Result<Self, ClientError<S, P>> {
        let stream = Stream::connect(url)
            .map_err(|source| ClientError::Connect { url: url.to_string(), source })?;
        stream.set_timeout(Some(CONNECT_TIMEOUT))?;
        let buffer = vec![0; READ_LEN].into_boxed_slice();
        Ok(Channel { stream, out: Vec::new(), buffer, is_usable: true })
    }

    /// Gives up on an answer that takes longer, and so on the connection; `None` waits for ever.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_timeout(timeout)
    }

    /// Returns where the server is.
    pub(crate) fn whereabouts(&self) -> Whereabouts {
        whereabouts(&self.stream)
    }

    /// Sends what is in `out`, and hands over what arrives until `receive` says that the server is
    /// ready. `receive` may append to `out`; it is given nothing when the server has closed its
    /// end, and what it returns then is the reason.
    pub(crate) fn exchange<S: Error, P: Error>(
        &mut self,
        mut receive: impl FnMut(&[u8], &mut Vec<u8>) -> Result<bool, ClientError<S, P>>,
    ) -> Result<(), ClientError<S, P>> {
        if !std::mem::take(&mut self.is_usable) {
            self.out.clear();
            return Err(ClientError::Closed);
        }
        loop {
            self.stream.write_all(&self.out)?;
            self.out.clear();
            let count = match self.stream.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let is_ready = receive(&self.buffer[..count], &mut self.out)?;
            if count == 0 {
                return Err(ClientError::Closed);
            }
            if is_ready {
                self.is_usable = true;
                return Ok(());
            }
        }
    }

    /// Says good-bye. It is a courtesy; the server notices the closed socket as well.
    pub(crate) fn close(&mut self, farewell: &[u8]) {
        let _ = self.stream.write_all(farewell);
    }
}
