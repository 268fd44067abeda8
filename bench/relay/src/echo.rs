//! The stand-in for the database: one thread, one poll loop, no work but the two system calls.

use std::io;

use mio::net::{TcpListener, UnixListener};
use mio::{Events, Interest, Poll, Registry, Token};

use crate::net::{self, Address, REPLY, REQUEST, Stream};

const LISTENER: Token = Token(usize::MAX);

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Serves until the process is ended by a signal.
pub(crate) fn run(address: &Address) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let listener = listen(address, poll.registry())?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                accept_all(&listener, poll.registry(), &mut connections)?;
            } else if let Some(slot) = connections.get_mut(event.token().0) {
                answer(slot);
            }
        }
    }
}

struct Connection {
    stream: Stream,
}

fn listen(address: &Address, registry: &Registry) -> io::Result<Listener> {
    match address {
        Address::Tcp(address) => {
            let mut listener = TcpListener::from_std(net::listen_tcp(*address)?);
            registry.register(&mut listener, LISTENER, Interest::READABLE)?;
            Ok(Listener::Tcp(listener))
        }
        Address::Unix(path) => {
            let mut listener = UnixListener::bind(path)?;
            registry.register(&mut listener, LISTENER, Interest::READABLE)?;
            println!("listening {}", path.display());
            Ok(Listener::Unix(listener))
        }
    }
}

fn accept_all(
    listener: &Listener,
    registry: &Registry,
    connections: &mut Vec<Option<Connection>>,
) -> io::Result<()> {
    loop {
        let accepted = match listener {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        };
        match accepted {
            Ok(mut stream) => {
                registry.register(stream.source(), Token(connections.len()), Interest::READABLE)?;
                connections.push(Some(Connection { stream }));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Answers one request. A relay that has ended in the middle
/// of a round trip is no failure of the server: any error only drops the connection.
fn answer(slot: &mut Option<Connection>) {
    let Some(connection) = slot else { return };
    match connection.answer() {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(_) => *slot = None,
    }
}

impl Connection {
    /// A reply repeats its request, so that the client can tell it from another's.
    fn answer(&mut self) -> io::Result<()> {
        let mut scratch = [0; 256];
        let read = self.stream.read(&mut scratch)?;
        if read != REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.stream.write_all(&scratch[..REPLY])
    }
}
