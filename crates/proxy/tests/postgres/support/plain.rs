//! A client that reports every failure as a value, for tests that count failures.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_wire::backend::{self, tag};
use tidegate_wire::error_response::field;
use tidegate_wire::frame::{HEADER_LEN, frame};
use tidegate_wire::frontend;
use tidegate_wire::startup::{self, CancelKey};

use super::server::BOUND;

/// The first value of a statement's answer, or its SQLSTATE.
pub(crate) type Answer = Result<String, String>;

/// A logged-in connection.
pub(crate) struct Plain {
    stream: TcpStream,
    received: Vec<u8>,
    pub(crate) key: CancelKey,
}

/// Opens a socket on which nothing has been said.
pub(crate) fn dial(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(BOUND))?;
    stream.set_write_timeout(Some(BOUND))?;
    Ok(stream)
}

/// Makes the kernel end the connection with a reset.
pub(crate) fn reset(stream: TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    drop(stream);
}

/// The start-up packet of user `postgres` for database `postgres`.
pub(crate) fn start_up() -> Vec<u8> {
    start_up_for("postgres")
}

/// The start-up packet of user `postgres` for a database.
fn start_up_for(database: &str) -> Vec<u8> {
    let parameters = [("user", "postgres"), ("database", database)];
    let mut packet = Vec::new();
    let parameters = parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    startup::encode_startup(&mut packet, parameters);
    packet
}

/// Sends a cancel request and waits until the other side has closed the connection.
pub(crate) fn cancel(address: SocketAddr, key: &CancelKey) -> std::io::Result<()> {
    let mut packet = Vec::new();
    startup::encode_cancel(&mut packet, key);
    let mut stream = dial(address)?;
    stream.write_all(&packet)?;
    // A reset is an end as well.
    let _ = stream.read(&mut [0; 16]);
    Ok(())
}

impl Plain {
    /// Logs in.
    pub(crate) fn connect(address: SocketAddr) -> Result<Plain, String> {
        Plain::connect_to(address, "postgres")
    }

    /// Logs in to a database.
    pub(crate) fn connect_to(address: SocketAddr, database: &str) -> Result<Plain, String> {
        let mut stream = dial(address).map_err(|error| format!("connect: {error}"))?;
        let packet = start_up_for(database);
        stream.write_all(&packet).map_err(|error| format!("start-up: {error}"))?;
        let key = CancelKey { process_id: 0, secret: [0; 4].into() };
        let mut client = Plain { stream, received: Vec::new(), key };
        loop {
            let (tag, payload) = client.receive().map_err(|error| format!("login: {error}"))?;
            match tag {
                tag::BACKEND_KEY_DATA => client.key = backend::backend_key_data(&payload).unwrap(),
                tag::ERROR => return Err(format!("login: {}", field(&payload, b'C'))),
                tag::READY_FOR_QUERY => return Ok(client),
                _ => {}
            }
        }
    }

    /// Sends a simple query.
    pub(crate) fn send(&mut self, sql: &str) -> Result<(), String> {
        let mut packet = Vec::new();
        frontend::encode_query(&mut packet, sql.as_bytes());
        self.stream.write_all(&packet).map_err(|error| format!("send: {error}"))
    }

    /// Reads the answer to a simple query.
    pub(crate) fn answer(&mut self) -> Result<Answer, String> {
        let mut answer = Ok(String::new());
        loop {
            let (tag, payload) = self.receive()?;
            match tag {
                tag::DATA_ROW => {
                    let first = backend::data_row(&payload).unwrap().next().flatten();
                    answer = Ok(String::from_utf8_lossy(first.unwrap_or_default()).into_owned());
                }
                tag::ERROR => answer = Err(field(&payload, b'C')),
                tag::READY_FOR_QUERY => return Ok(answer),
                _ => {}
            }
        }
    }

    /// Runs a simple query.
    pub(crate) fn run(&mut self, sql: &str) -> Result<Answer, String> {
        self.send(sql)?;
        self.answer()
    }

    /// Says goodbye.
    pub(crate) fn leave(mut self) {
        let _ = self.stream.write_all(frontend::TERMINATE);
    }

    /// Leaves by a reset.
    pub(crate) fn reset(self) {
        reset(self.stream);
    }

    fn receive(&mut self) -> Result<(u8, Vec<u8>), String> {
        loop {
            if let Some(head) = frame(&self.received).unwrap()
                && self.received.len() >= head.len
            {
                let payload = self.received[HEADER_LEN..head.len].to_vec();
                self.received.drain(..head.len);
                return Ok((head.tag, payload));
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err("closed without a word".into()),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) => return Err(format!("receive: {error}")),
            }
        }
    }
}
