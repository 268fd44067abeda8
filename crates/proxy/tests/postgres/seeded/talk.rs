//! A client, plain or by TLS, that reports whatever goes wrong as a value.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tidegate_wire::backend::{self, tag};
use tidegate_wire::error_response::field;
use tidegate_wire::frame::{HEADER_LEN, frame};
use tidegate_wire::startup::{CancelKey, encode_ssl_request};

use crate::support::plain::{dial, start_up};
use crate::support::wire::query;

/// Why a client did not get what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The connection has ended.
    Lost(String),
    /// The other side has said so, by this SQLSTATE.
    Told(String),
    /// Nothing came within the bound of all waits.
    Waited,
    /// What came belongs to somebody else, or cannot be.
    Wrong(String),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::Waited,
            _ => Failure::Lost(error.to_string()),
        }
    }
}

/// Where to connect, and how.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

enum Transport {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// A connection.
pub(super) struct Talk {
    transport: Transport,
    received: Vec<u8>,
    pub(super) key: CancelKey,
}

/// An answer up to ReadyForQuery.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// The first column of each row.
    pub(super) rows: Vec<String>,
    /// The tags of the commands that were completed.
    pub(super) complete: Vec<String>,
    /// The SQLSTATE of the last error.
    pub(super) error: Option<String>,
}

impl Reply {
    /// Its rows, unless it is an error.
    pub(super) fn rows(self) -> Result<Vec<String>, Failure> {
        self.error.map_or(Ok(self.rows), |code| Err(Failure::Told(code)))
    }
}

impl Target {
    /// A connection on which TLS is agreed on, if it has to be, and nothing else.
    pub(super) fn reach(&self) -> Result<Talk, Failure> {
        let mut stream = dial(self.address)?;
        let transport = match &self.tls {
            None => Transport::Plain(stream),
            Some(config) => {
                let mut packet = Vec::new();
                encode_ssl_request(&mut packet);
                stream.write_all(&packet)?;
                let mut answer = [0];
                stream.read_exact(&mut answer)?;
                if answer != *b"S" {
                    return Err(Failure::Wrong(format!("TLS is answered by {answer:?}")));
                }
                let name = ServerName::try_from("localhost").unwrap();
                let connection = ClientConnection::new(Arc::clone(config), name)
                    .map_err(|error| Failure::Wrong(error.to_string()))?;
                Transport::Encrypted(Box::new(StreamOwned::new(connection, stream)))
            }
        };
        let key = CancelKey { process_id: 0, secret: [0; 4].into() };
        Ok(Talk { transport, received: Vec::new(), key })
    }

    /// Logs in.
    pub(super) fn connect(&self) -> Result<Talk, Failure> {
        let mut talk = self.reach()?;
        talk.send(&start_up())?;
        loop {
            let (tag, payload) = talk.receive()?;
            match tag {
                tag::BACKEND_KEY_DATA => talk.key = backend::backend_key_data(&payload).unwrap(),
                tag::ERROR => return Err(Failure::Told(field(&payload, b'C'))),
                tag::READY_FOR_QUERY => return Ok(talk),
                _ => {}
            }
        }
    }
}

impl Talk {
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.transport {
            Transport::Plain(stream) => stream.write_all(bytes)?,
            Transport::Encrypted(stream) => {
                stream.write_all(bytes)?;
                stream.flush()?;
            }
        }
        Ok(())
    }

    pub(super) fn receive(&mut self) -> Result<(u8, Vec<u8>), Failure> {
        loop {
            let head = frame(&self.received).map_err(|error| Failure::Wrong(error.to_string()))?;
            if let Some(head) = head
                && self.received.len() >= head.len
            {
                let payload = self.received[HEADER_LEN..head.len].to_vec();
                self.received.drain(..head.len);
                return Ok((head.tag, payload));
            }
            let mut chunk = [0; 8 * 1024];
            let count = match &mut self.transport {
                Transport::Plain(stream) => stream.read(&mut chunk),
                Transport::Encrypted(stream) => stream.read(&mut chunk),
            }?;
            if count == 0 {
                return Err(Failure::Lost("closed without a word".into()));
            }
            self.received.extend_from_slice(&chunk[..count]);
        }
    }

    /// Reads up to a message of this type.
    pub(super) fn until(&mut self, last: u8) -> Result<Reply, Failure> {
        let mut reply = Reply::default();
        loop {
            // An error before the end of the connection tells more than the end.
            let (tag, payload) = self.receive().map_err(|end| match reply.error.take() {
                Some(code) if matches!(end, Failure::Lost(_)) => Failure::Told(code),
                _ => end,
            })?;
            match tag {
                tag::DATA_ROW => {
                    let first = backend::data_row(&payload).unwrap().next().flatten();
                    let text = String::from_utf8_lossy(first.unwrap_or_default());
                    reply.rows.push(text.into_owned());
                }
                tag::COMMAND_COMPLETE => {
                    let text = String::from_utf8_lossy(&payload);
                    reply.complete.push(text.trim_end_matches('\0').to_owned());
                }
                tag::ERROR => reply.error = Some(field(&payload, b'C')),
                _ => {}
            }
            if tag == last {
                return Ok(reply);
            }
            // Instead of what was waited for.
            if tag == tag::ERROR && last != tag::READY_FOR_QUERY {
                return Err(Failure::Told(field(&payload, b'C')));
            }
        }
    }

    /// Reads up to ReadyForQuery.
    pub(super) fn answer(&mut self) -> Result<Reply, Failure> {
        self.until(tag::READY_FOR_QUERY)
    }

    /// Runs a simple query.
    pub(super) fn ask(&mut self, sql: &str) -> Result<Reply, Failure> {
        self.send(&query(sql))?;
        self.answer()
    }

    /// The socket, when nothing more will be read or written by messages.
    pub(super) fn into_stream(self) -> TcpStream {
        match self.transport {
            Transport::Plain(stream) => stream,
            Transport::Encrypted(stream) => stream.into_parts().1,
        }
    }
}
