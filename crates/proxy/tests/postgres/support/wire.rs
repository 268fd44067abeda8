//! A client that sends what it is told to and shows every message that comes back.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_wire::backend::{self, tag};
use tidegate_wire::error_response::field;
use tidegate_wire::frame::{HEADER_LEN, frame};
use tidegate_wire::frontend::{self, Target};
use tidegate_wire::startup::{self, CancelKey};

use super::server::BOUND;

/// A message of the server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) tag: u8,
    pub(crate) payload: Vec<u8>,
}

impl Message {
    /// An error's SQLSTATE.
    pub(crate) fn code(&self) -> String {
        field(&self.payload, b'C')
    }

    /// An error's text.
    pub(crate) fn text(&self) -> String {
        field(&self.payload, b'M')
    }
}

/// In short: errors by their code, data by its text.
impl std::fmt::Debug for Message {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = match self.tag {
            tag::ERROR | tag::NOTICE => self.code(),
            // Object identifiers differ from server to server.
            tag::ROW_DESCRIPTION | tag::PARAMETER_DESCRIPTION => String::new(),
            _ => {
                let text = String::from_utf8_lossy(&self.payload).replace('\0', "");
                text.chars().filter(|c| !c.is_control()).take(60).collect()
            }
        };
        write!(formatter, "{}({shown})", char::from(self.tag))
    }
}

/// A connection that has logged in, or was refused.
pub(crate) struct Wire {
    stream: TcpStream,
    received: Vec<u8>,
    /// All that came before the first ReadyForQuery.
    pub(crate) login: Vec<Message>,
}

impl Wire {
    /// Connects as user `postgres` to database `postgres`.
    pub(crate) fn connect(address: SocketAddr) -> Wire {
        Wire::with(address, &[])
    }

    /// Connects with these start-up parameters beside user and database.
    pub(crate) fn with(address: SocketAddr, parameters: &[(&str, &str)]) -> Wire {
        let wire = Wire::attempt(address, parameters);
        let ready = wire.login.last().is_some_and(|last| last.tag == tag::READY_FOR_QUERY);
        assert!(ready, "login refused: {:?}", wire.login.last().map(Message::text));
        wire
    }

    /// Connects and logs in as far as the other side lets it.
    pub(crate) fn attempt(address: SocketAddr, parameters: &[(&str, &str)]) -> Wire {
        let mut wire = Wire::raw(address);
        let standard = [("user", "postgres"), ("database", "postgres")];
        let standard = standard.iter().filter(|(name, _)| !parameters.iter().any(|p| p.0 == *name));
        let all = standard.chain(parameters).map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        let mut packet = Vec::new();
        startup::encode_startup(&mut packet, all);
        wire.send(&packet);
        wire.login = wire.until_ready();
        wire
    }

    /// A socket on which nothing has been said.
    pub(crate) fn raw(address: SocketAddr) -> Wire {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream.set_write_timeout(Some(BOUND)).unwrap();
        Wire { stream, received: Vec::new(), login: Vec::new() }
    }

    /// This end of the connection, as the other side sees it.
    pub(crate) fn local_address(&self) -> String {
        self.stream.local_addr().unwrap().to_string()
    }

    /// What names this connection to a cancel request.
    pub(crate) fn key(&self) -> CancelKey {
        let key = self.login.iter().find(|message| message.tag == tag::BACKEND_KEY_DATA).unwrap();
        backend::backend_key_data(&key.payload).unwrap()
    }

    /// A parameter that the other side reported at login.
    pub(crate) fn reported(&self, name: &str) -> Option<String> {
        let mut reports = self.login.iter().filter(|message| message.tag == tag::PARAMETER_STATUS);
        reports.find_map(|report| {
            let (reported, value) = backend::parameter_status(&report.payload).unwrap();
            (reported == name.as_bytes()).then(|| String::from_utf8_lossy(value).into_owned())
        })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends unless the other side has closed the connection.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next message; `None` when none has come within this time, or the connection has been
    /// closed.
    pub(crate) fn receive_within(&mut self, time: Duration) -> Option<Message> {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let message = loop {
            if let Some(message) = self.take_received() {
                break Some(message);
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(count) if count > 0 => self.received.extend_from_slice(&chunk[..count]),
                _ => break None,
            }
        };
        self.stream.set_read_timeout(Some(BOUND)).unwrap();
        message
    }

    /// Takes a message that has arrived.
    fn take_received(&mut self) -> Option<Message> {
        let head = frame(&self.received).unwrap()?;
        let payload = self.received.get(HEADER_LEN..head.len)?.to_vec();
        self.received.drain(..head.len);
        Some(Message { tag: head.tag, payload })
    }

    /// The next message; `None` when the connection has been closed.
    pub(crate) fn receive(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.take_received() {
                return Some(message);
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// One byte that is no message.
    pub(crate) fn byte(&mut self) -> u8 {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).unwrap();
        byte[0]
    }

    /// All messages up to one of this type, or to the end of the connection.
    pub(crate) fn until(&mut self, last: u8) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(message) = self.receive() {
            let is_last = message.tag == last;
            messages.push(message);
            if is_last {
                break;
            }
        }
        messages
    }

    /// All messages up to ReadyForQuery, or to the end of the connection.
    pub(crate) fn until_ready(&mut self) -> Vec<Message> {
        self.until(tag::READY_FOR_QUERY)
    }

    /// Runs one batch and shows the answer.
    pub(crate) fn run(&mut self, bytes: &[u8]) -> String {
        self.send(bytes);
        show(&self.until_ready())
    }

    /// Runs a simple query and shows the answer.
    pub(crate) fn query(&mut self, sql: &str) -> String {
        self.run(&query(sql))
    }

    /// The first column of the first row of a simple query.
    pub(crate) fn value(&mut self, sql: &str) -> String {
        self.send(&query(sql));
        let messages = self.until_ready();
        let row = messages.iter().find(|message| message.tag == tag::DATA_ROW);
        let row = row.unwrap_or_else(|| panic!("{sql}: {}", show(&messages)));
        let first = backend::data_row(&row.payload).unwrap().next().unwrap().unwrap_or_default();
        String::from_utf8_lossy(first).into_owned()
    }

    /// The code of the error that this simple query ends in.
    pub(crate) fn error(&mut self, sql: &str) -> String {
        self.send(&query(sql));
        error_code(&self.until_ready())
    }

    /// Whether the other side has closed the connection, after at most the bound.
    pub(crate) fn is_closed(&mut self) -> bool {
        while self.receive().is_some() {}
        true
    }

    /// Makes the kernel answer with a reset instead of an orderly end.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }

    /// Says that nothing more will be sent.
    pub(crate) fn shut_down_writing(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

/// Sends a cancel request and waits until it has been taken.
pub(crate) fn cancel(address: SocketAddr, key: &CancelKey) {
    let mut packet = Vec::new();
    startup::encode_cancel(&mut packet, key);
    let mut wire = Wire::raw(address);
    wire.send(&packet);
    assert!(wire.is_closed());
}

/// The messages in one line.
pub(crate) fn show(messages: &[Message]) -> String {
    let shown: Vec<String> = messages.iter().map(|message| format!("{message:?}")).collect();
    shown.join(" ")
}

/// The code of the first error among these.
pub(crate) fn error_code(messages: &[Message]) -> String {
    let error = messages.iter().find(|message| message.tag == tag::ERROR);
    error.unwrap_or_else(|| panic!("no error: {}", show(messages))).code()
}

pub(crate) const SYNC: &[u8] = frontend::SYNC;
pub(crate) const FLUSH: &[u8] = b"H\0\0\0\x04";
pub(crate) const COPY_DONE: &[u8] = b"c\0\0\0\x04";

pub(crate) fn message(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    message.extend_from_slice(&u32::try_from(payload.len() + 4).unwrap().to_be_bytes());
    message.extend_from_slice(payload);
    message
}

pub(crate) fn query(sql: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::encode_query(&mut out, sql.as_bytes());
    out
}

pub(crate) fn parse(name: &str, sql: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::encode_parse(&mut out, name.as_bytes(), &frontend::definition(sql.as_bytes()));
    out
}

/// Binds the unnamed portal.
pub(crate) fn bind(statement: &str, parameters: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    let parameters = parameters.iter().map(|parameter| parameter.as_bytes());
    frontend::encode_bind_text(&mut out, statement.as_bytes(), parameters);
    out
}

/// Binds a portal, with text parameters and text results.
pub(crate) fn bind_to(portal: &str, statement: &str, parameters: &[&str]) -> Vec<u8> {
    let count = u16::try_from(parameters.len()).unwrap().to_be_bytes();
    let mut payload = [portal.as_bytes(), b"\0", statement.as_bytes(), b"\0\0\0", &count].concat();
    for parameter in parameters {
        payload.extend_from_slice(&u32::try_from(parameter.len()).unwrap().to_be_bytes());
        payload.extend_from_slice(parameter.as_bytes());
    }
    message(b'B', &[&payload[..], &[0, 0]].concat())
}

/// Binds a named portal of a statement without parameters.
pub(crate) fn bind_portal(portal: &str, statement: &str) -> Vec<u8> {
    message(b'B', &[portal.as_bytes(), b"\0", statement.as_bytes(), b"\0", &[0; 6]].concat())
}

/// Executes a portal up to so many rows; 0 is all.
pub(crate) fn execute(portal: &str, rows: u32) -> Vec<u8> {
    message(b'E', &[portal.as_bytes(), b"\0", &rows.to_be_bytes()].concat())
}

pub(crate) fn describe(target: Target, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::encode_describe(&mut out, target, name.as_bytes());
    out
}

pub(crate) fn close(target: Target, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::encode_close(&mut out, target, name.as_bytes());
    out
}

pub(crate) fn copy_data(bytes: &[u8]) -> Vec<u8> {
    message(b'd', bytes)
}

pub(crate) fn copy_fail(reason: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::encode_copy_fail(&mut out, reason.as_bytes());
    out
}

/// Calls a function of one text-format argument, result as text.
pub(crate) fn function_call(function: u32, argument: &[u8]) -> Vec<u8> {
    let length = u32::try_from(argument.len()).unwrap();
    let parts: [&[u8]; 6] =
        [&function.to_be_bytes(), &[0, 0, 0, 1], &length.to_be_bytes(), argument, &[0, 0], &[]];
    message(b'F', &parts.concat())
}

/// One statement in the extended protocol, unnamed, without the Sync.
pub(crate) fn extended(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", &[]), describe(Target::Portal, ""), execute("", 0)].concat()
}
