//! One connection of a client: its socket, its protocol and its talk put together.

use std::io;
use std::time::{Duration, Instant};

use mio::event::Event as Readiness;
use mio::{Interest, Poll, Token};
use tidegate_workload::Failure;

use super::classes::ClientConnection;
use super::client_state::{ClientState, NextMessage};
use super::dispatcher::{Dispatcher, Task};
use super::protocol::{ClientProtocol, ClientProtocolError, Server};
use super::socket::Socket;

const BUFFER_LEN: usize = 64 * 1024;

/// What all clients use in turn.
pub(super) struct Shared {
    pub(super) dispatcher: Dispatcher,
    buffer: Box<[u8]>,
}

impl Shared {
    pub(super) fn new(dispatcher: Dispatcher) -> Self {
        Shared { dispatcher, buffer: vec![0; BUFFER_LEN].into_boxed_slice() }
    }
}

pub(super) struct SocketClient {
    socket: Socket,
    line: ClientProtocol,
    state: ClientState,
    /// Bytes to be written; usually a query, gone at once.
    out: Vec<u8>,
    is_connected: bool,
}

/// Why a client's connection is over.
pub(super) enum Loss {
    /// The peer closed it.
    Closed,
    Io(io::Error),
    Protocol(ClientProtocolError),
}

impl SocketClient {
    /// Begins to connect and log in; `index` is the connection's token.
    pub(super) fn open(
        server: &Server,
        connection: ClientConnection,
        poll: &Poll,
        index: usize,
    ) -> io::Result<Self> {
        let mut socket = Socket::connect(&server.address)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(socket.source(), Token(index), both)?;
        let mut out = Vec::new();
        let line = ClientProtocol::start(server, connection.application(), &mut out);
        let dialect = server.url.dbms().dialect.expect("a server on sockets has SQL");
        let state = ClientState::new(connection, dialect);
        Ok(SocketClient { socket, line, state, out, is_connected: false })
    }

    pub(super) fn is_logged_in(&self) -> bool {
        self.line.is_logged_in()
    }

    /// Whether the client has said good-bye.
    pub(super) fn is_done(&self) -> bool {
        self.state.is_done()
    }

    /// Whether a transaction is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.state.is_busy()
    }

    /// How long the current transaction has been due.
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.state.age(now)
    }

    /// The failure that came last, such as why the login was refused.
    pub(super) fn take_failure(&mut self) -> Option<Failure> {
        self.state.take_failure()
    }

    pub(super) fn start(&mut self, dispatcher: &mut Dispatcher) -> Result<(), Loss> {
        let next = self.state.start(dispatcher);
        self.say(next)
    }

    /// Begins a transaction, as a client that has waited for it.
    pub(super) fn begin(&mut self, task: Task, dispatcher: &mut Dispatcher) -> Result<(), Loss> {
        let next = self.state.begin(task, dispatcher);
        self.say(next)
    }

    /// Leaves, unless a transaction is under way.
    pub(super) fn close(&mut self) -> Result<(), Loss> {
        let next = self.state.close();
        self.say(next)
    }

    fn say(&mut self, next: NextMessage) -> Result<(), Loss> {
        self.line.encode(next, &self.state, &mut self.out);
        self.flush()
    }

    /// Reads what there is, lets the talk go on, writes what it has to say.
    pub(super) fn on_readiness(
        &mut self,
        event: &Readiness,
        shared: &mut Shared,
        poll: &Poll,
        index: usize,
    ) -> Result<(), Loss> {
        if !self.is_connected {
            self.is_connected = self.socket.finish_connect()?;
            if !self.is_connected {
                return Ok(());
            }
            self.flush()?;
            if self.out.is_empty() {
                // From here on a query always fits the socket's buffer: one event per answer.
                poll.registry().reregister(
                    self.socket.source(),
                    Token(index),
                    Interest::READABLE,
                )?;
            }
        }
        if event.is_readable() || event.is_read_closed() {
            self.read(event.is_read_closed(), shared)?;
        }
        self.flush()
    }

    /// Reads until the socket is empty. A read that does not fill the buffer has emptied it, unless
    /// the peer has closed its end, which the event says.
    fn read(&mut self, is_closed: bool, shared: &mut Shared) -> Result<(), Loss> {
        loop {
            let count = match self.socket.read(&mut shared.buffer) {
                Ok(0) => return Err(Loss::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Loss::Io(error)),
            };
            let (state, dispatcher) = (&mut self.state, &mut shared.dispatcher);
            self.line
                .receive(&shared.buffer[..count], &mut self.out, state, dispatcher)
                .map_err(Loss::Protocol)?;
            if count < shared.buffer.len() && !is_closed {
                return Ok(());
            }
        }
    }

    /// Writes what is to be sent. What the socket does not take now goes with the next event.
    fn flush(&mut self) -> Result<(), Loss> {
        while !self.out.is_empty() {
            match self.socket.write(&self.out) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Loss::Io(error)),
            }
        }
        Ok(())
    }
}

impl From<io::Error> for Loss {
    fn from(error: io::Error) -> Self {
        Loss::Io(error)
    }
}
