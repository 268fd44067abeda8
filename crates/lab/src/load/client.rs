//! One client: its socket, its connection and its session put together.

use std::io;
use std::time::{Duration, Instant};

use mio::event::Event as Readiness;
use mio::{Interest, Poll, Token};
use tidegate_subject::client::{Connection, ProtocolError, ServerError, Url};
use tidegate_workload::Draw;

use super::LoadOptions;
use super::session::{Script, Session, Work};
use super::socket::{Address, Socket};
use super::tally::Tally;

const BUFFER_LEN: usize = 64 * 1024;

/// What all clients use in turn.
pub(super) struct Shared {
    pub(super) tally: Tally,
    script: Script,
    buffer: Box<[u8]>,
}

impl Shared {
    pub(super) fn new(work: Work) -> Self {
        Shared {
            tally: Tally::new(),
            script: Script::new(work),
            buffer: vec![0; BUFFER_LEN].into_boxed_slice(),
        }
    }

    /// From now on every client's next transaction is of this kind.
    pub(super) fn switch_to(&mut self, work: Work) {
        self.script.work = work;
    }
}

pub(super) struct Client {
    socket: Socket,
    connection: Connection,
    session: Session,
    /// Bytes to be written; usually a query, gone at once.
    out: Vec<u8>,
    is_connected: bool,
}

/// Why a client's connection is over.
pub(super) enum Loss {
    /// The peer closed it.
    Closed,
    Io(io::Error),
    Protocol(ProtocolError),
}

impl Client {
    /// Begins to connect and log in as client number `index`, which is also its token.
    pub(super) fn open(
        options: &LoadOptions<'_>,
        url: &Url,
        address: &Address,
        poll: &Poll,
        index: usize,
    ) -> io::Result<Self> {
        let work = Work { workload: options.workload, scale: options.scale };
        let mut socket = Socket::connect(address)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(socket.source(), Token(index), both)?;
        let mut out = Vec::new();
        let connection = Connection::start(url, "tidegate load", &mut out);
        let draw = Draw::new(options.seed, index as u64);
        Ok(Client {
            socket,
            connection,
            session: Session::new(work, draw, Instant::now()),
            out,
            is_connected: false,
        })
    }

    pub(super) fn is_logged_in(&self) -> bool {
        self.connection.is_logged_in()
    }

    /// Whether the client has said good-bye.
    pub(super) fn is_done(&self) -> bool {
        self.session.is_done()
    }

    /// How long the current transaction has been running.
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.session.age(now)
    }

    /// The error that came last, such as why the login was refused.
    pub(super) fn take_error(&mut self) -> Option<ServerError> {
        self.session.take_error()
    }

    /// Starts the first transaction.
    pub(super) fn start(&mut self, shared: &mut Shared) -> Result<(), Loss> {
        self.session.start(&mut shared.script, &mut self.out);
        self.flush()
    }

    /// Reads what there is, lets the session act on it, writes what it has to say.
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
            let (session, tally, script) =
                (&mut self.session, &mut shared.tally, &mut shared.script);
            self.connection
                .receive(&shared.buffer[..count], &mut self.out, |event, out| {
                    session.on_event(event, tally, script, out);
                })
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
