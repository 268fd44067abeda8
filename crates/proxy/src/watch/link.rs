//! A connection to a server for questions of the proxy's own, on a thread that may wait.

use std::io;
use std::time::Instant;

use mio::{Events, Poll, Token, Waker};
use tidegate_wire::backend::{self, tag};
use tidegate_wire::error_response::field;
use tidegate_wire::frame::{HEADER_LEN, frame};
use tidegate_wire::{frontend, startup};

use crate::handshake::{Credentials, Handshake, Progress, UpstreamError};
use crate::net::{Outbox, ReadOutcome, Stream, read_once};
use crate::shared::Server;

const STOP: Token = Token(0);
const SERVER: Token = Token(1);

/// The longest answer, bytes. One row for each of 1,000 transactions takes 60 kB.
const ANSWER_MAX: usize = 4 << 20;

/// The name of this connection in `pg_stat_activity`.
pub(super) const APPLICATION: &str = "tidegate watch";

/// Why a connection ends.
pub(super) enum End {
    /// The watch is stopped.
    Stopped,
    /// It failed.
    Failed(UpstreamError),
}

impl<E: Into<UpstreamError>> From<E> for End {
    fn from(error: E) -> End {
        End::Failed(error.into())
    }
}

/// Where the thread waits: for the server, for time to pass, and for the order to stop.
pub(super) struct Desk {
    poll: Poll,
    events: Events,
}

impl Desk {
    /// A desk, and what ends every wait at it from then on.
    pub(super) fn new() -> io::Result<(Desk, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), STOP)?;
        Ok((Desk { poll, events: Events::with_capacity(4) }, waker))
    }

    /// Waits for the server's socket. Returns whether it stirred before the deadline.
    fn wait(&mut self, deadline: Instant) -> Result<bool, End> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.poll.poll(&mut self.events, Some(left)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            if self.events.iter().any(|event| event.token() == STOP) {
                return Err(End::Stopped);
            }
            if !self.events.is_empty() {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Waits for the server's socket, but not beyond the deadline.
    fn wait_for_server(&mut self, deadline: Instant) -> Result<(), End> {
        if self.wait(deadline)? { Ok(()) } else { Err(UpstreamError::TimedOut.into()) }
    }

    /// Waits until this moment, whatever the server sends.
    pub(super) fn sleep_until(&mut self, moment: Instant) -> Result<(), End> {
        while self.wait(moment)? {}
        Ok(())
    }
}

/// A connection.
pub(super) struct Link {
    stream: Stream,
    outbox: Outbox,
    received: Vec<u8>,
}

impl Link {
    /// Connects; `attempt` chooses among the addresses of a name.
    pub(super) fn open(
        desk: &mut Desk,
        server: &Server,
        attempt: u64,
        deadline: Instant,
    ) -> Result<Link, End> {
        let mut stream = server.connect(server.peer(attempt)?)?;
        stream.register(desk.poll.registry(), SERVER)?;
        desk.wait_for_server(deadline)?;
        stream.connected()?;
        Ok(Link { stream, outbox: Outbox::default(), received: Vec::new() })
    }

    /// Logs in and waits until the server is ready.
    pub(super) fn log_in(
        &mut self,
        desk: &mut Desk,
        credentials: &Credentials,
        database: &str,
        deadline: Instant,
    ) -> Result<(), End> {
        let parameters = [
            ("user", &*credentials.user),
            ("database", database),
            ("application_name", APPLICATION),
        ];
        let mut out = Vec::new();
        let parameters = parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        startup::encode_startup(&mut out, parameters);
        let mut handshake = Handshake::new();
        loop {
            self.outbox.send(&mut self.stream, &out)?;
            out.clear();
            let (tag, payload) = self.receive(desk, deadline)?;
            if handshake.message(tag, &payload, credentials, &mut out)? == Progress::Ready {
                return Ok(());
            }
        }
    }

    /// Sends a request that ends in one ReadyForQuery. Returns the rows of its answer.
    pub(super) fn rows(
        &mut self,
        desk: &mut Desk,
        request: &[u8],
        deadline: Instant,
    ) -> Result<Vec<Row>, End> {
        self.outbox.send(&mut self.stream, request)?;
        let (mut rows, mut refused) = (Vec::new(), None);
        loop {
            let (tag, payload) = match (self.receive(desk, deadline), &mut refused) {
                // A server that ends the connection says why before.
                (Err(End::Failed(_)), Some(_)) => (tag::READY_FOR_QUERY, Vec::new()),
                (received, _) => received?,
            };
            match tag {
                tag::DATA_ROW => rows.push(Row::read(&payload)?),
                tag::ERROR => {
                    let (code, message) = (field(&payload, b'C'), field(&payload, b'M'));
                    refused = Some(UpstreamError::Refused { code, message });
                }
                tag::READY_FOR_QUERY => return refused.map_or(Ok(rows), |error| Err(error.into())),
                _ => {}
            }
        }
    }

    /// Says goodbye. The connection is closed when this is dropped.
    pub(super) fn leave(mut self) {
        // Whether it arrives does not matter: the socket is closed in either case.
        let _ = self.outbox.send(&mut self.stream, frontend::TERMINATE);
    }

    /// The next message: its type and payload.
    fn receive(&mut self, desk: &mut Desk, deadline: Instant) -> Result<(u8, Vec<u8>), End> {
        loop {
            self.outbox.flush(&mut self.stream)?;
            let head = frame(&self.received).map_err(|error| invalid(&error.to_string()))?;
            if let Some(head) = head
                && self.received.len() >= head.len
            {
                let payload = self.received[HEADER_LEN..head.len].to_vec();
                self.received.drain(..head.len);
                return Ok((head.tag, payload));
            }
            if self.received.len() > ANSWER_MAX {
                return Err(invalid("the answer is too long").into());
            }
            let mut chunk = [0; 8 * 1024];
            match read_once(&mut self.stream, &mut chunk) {
                ReadOutcome::Bytes { count, .. } => {
                    self.received.extend_from_slice(&chunk[..count]);
                }
                ReadOutcome::Nothing => desk.wait_for_server(deadline)?,
                ReadOutcome::Closed => return Err(UpstreamError::Closed.into()),
            }
        }
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A row of an answer, as text; NULL is empty.
pub(super) struct Row(Vec<String>);

impl Row {
    fn read(payload: &[u8]) -> Result<Row, tidegate_wire::Malformed> {
        let text = |column: Option<&[u8]>| {
            String::from_utf8_lossy(column.unwrap_or_default()).into_owned()
        };
        Ok(Row(backend::data_row(payload)?.map(text).collect()))
    }

    /// Returns the text of a column, if there is one.
    pub(super) fn text(&self, column: usize) -> Option<&str> {
        self.0.get(column).map(String::as_str)
    }

    /// Returns the number in a column, if there is one.
    pub(super) fn number<N: std::str::FromStr>(&self, column: usize) -> Option<N> {
        self.text(column)?.parse().ok()
    }

    /// Returns whether a column is true.
    pub(super) fn is_true(&self, column: usize) -> bool {
        self.text(column) == Some("t")
    }

    #[cfg(test)]
    pub(super) fn of(columns: &[&str]) -> Row {
        Row(columns.iter().map(|column| (*column).to_owned()).collect())
    }
}
