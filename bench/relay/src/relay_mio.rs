//! The relay as a plain readiness loop.
//!
//! Every socket is registered once, edge-triggered, for reading only. A read that does not fill the
//! scratch buffer has drained the socket (epoll(7)), so a message costs one read and one write and
//! no further registration. The scratch buffer is shared: what is read is written on at once.
//!
//! A client that must wait for an upstream connection can leave its request in its socket and only
//! its number in the queue, so that waiting costs no memory and no copy; or its request is read at
//! once and queued (`--read-first`), while its socket is still in the processor's cache.

use std::collections::VecDeque;
use std::io;

use mio::event::Event;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use crate::net::{Address, REPLY, REQUEST, Stream};

const LISTENER: Token = Token(usize::MAX);

/// Variants of the loop.
pub(crate) struct Options {
    /// The most events handled after one poll.
    pub(crate) events_per_poll: usize,
    /// Read a request that must wait, instead of leaving it in its socket.
    pub(crate) read_first: bool,
}

/// Relays until the process is ended by a signal.
pub(crate) fn run(
    listener: std::net::TcpListener,
    upstream: &Address,
    connections: usize,
    options: Options,
) -> io::Result<()> {
    let poll = Poll::new()?;
    let mut listener = TcpListener::from_std(listener);
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut relay = Relay {
        poll,
        listener,
        upstreams: Vec::with_capacity(connections),
        clients: Vec::new(),
        free: (0..connections).collect(),
        waiting: VecDeque::new(),
        options,
        scratch: [0; 4096],
    };
    for index in 0..connections {
        let mut stream = upstream.connect()?;
        relay.poll.registry().register(stream.source(), Token(index), Interest::READABLE)?;
        relay.upstreams.push(Upstream { stream, client: None, received: 0 });
    }
    let mut events = Events::with_capacity(relay.options.events_per_poll);
    loop {
        relay.poll.poll(&mut events, None)?;
        for event in &events {
            relay.handle(event)?;
        }
    }
}

struct Upstream {
    stream: Stream,
    /// Whose round trip this connection is on.
    client: Option<usize>,
    /// Bytes of the reply that have come.
    received: usize,
}

/// A client in the queue, with its request if that has been read.
struct Waiting {
    client: usize,
    request: Option<[u8; REQUEST]>,
}

/// Tokens below the pool's size are upstream connections, those from it on are clients.
struct Relay {
    poll: Poll,
    listener: TcpListener,
    upstreams: Vec<Upstream>,
    clients: Vec<Option<Stream>>,
    free: Vec<usize>,
    waiting: VecDeque<Waiting>,
    options: Options,
    scratch: [u8; 4096],
}

impl Relay {
    fn handle(&mut self, event: &Event) -> io::Result<()> {
        let Token(token) = event.token();
        if event.token() == LISTENER {
            return self.accept_all();
        }
        let Some(client) = token.checked_sub(self.upstreams.len()) else {
            return self.reply(token);
        };
        if event.is_read_closed() {
            self.clients[client] = None;
            return Ok(());
        }
        if let Some(upstream) = self.free.pop() {
            return self.request(client, upstream);
        }
        let request = if self.options.read_first {
            let Some(request) = self.read_request(client)? else {
                return Ok(());
            };
            Some(request)
        } else {
            None
        };
        self.waiting.push_back(Waiting { client, request });
        Ok(())
    }

    fn accept_all(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((mut stream, _)) => {
                    let token = Token(self.upstreams.len() + self.clients.len());
                    self.poll.registry().register(&mut stream, token, Interest::READABLE)?;
                    self.clients.push(Some(Stream::Tcp(stream)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts a round trip: the client's request goes to the upstream connection just taken.
    fn request(&mut self, client: usize, upstream: usize) -> io::Result<()> {
        match self.read_request(client)? {
            Some(request) => self.start(client, upstream, &request),
            None => self.release(upstream),
        }
    }

    /// The client's request, if there is one; a client that has left is forgotten.
    fn read_request(&mut self, client: usize) -> io::Result<Option<[u8; REQUEST]>> {
        let Some(stream) = &mut self.clients[client] else {
            return Ok(None);
        };
        match stream.read(&mut self.scratch) {
            Ok(0) => {
                self.clients[client] = None;
                Ok(None)
            }
            Ok(REQUEST) => Ok(self.scratch.first_chunk().copied()),
            Ok(_) => Err(io::Error::other("a request came in pieces or was not awaited")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn start(&mut self, client: usize, index: usize, request: &[u8]) -> io::Result<()> {
        let upstream = &mut self.upstreams[index];
        upstream.client = Some(client);
        upstream.received = 0;
        upstream.stream.write_all(request)
    }

    /// Passes on what has come of a reply; a whole reply ends the round trip.
    fn reply(&mut self, index: usize) -> io::Result<()> {
        let upstream = &mut self.upstreams[index];
        let read = match upstream.stream.read(&mut self.scratch) {
            Ok(0) => return Err(io::Error::other("the echo server closed a connection")),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        upstream.received += read;
        let complete = upstream.received == REPLY;
        if let Some(stream) = upstream.client.and_then(|client| self.clients[client].as_mut()) {
            stream.write_all(&self.scratch[..read])?;
        }
        if complete { self.release(index) } else { Ok(()) }
    }

    /// Gives a connection to the client that has waited longest, or back to the pool.
    fn release(&mut self, upstream: usize) -> io::Result<()> {
        self.upstreams[upstream].client = None;
        match self.waiting.pop_front() {
            Some(Waiting { client, request: Some(request) }) => {
                self.start(client, upstream, &request)
            }
            Some(Waiting { client, request: None }) => self.request(client, upstream),
            None => {
                self.free.push(upstream);
                Ok(())
            }
        }
    }
}
