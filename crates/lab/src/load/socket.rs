//! Non-blocking sockets, TCP or unix.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};

/// Where sockets connect, looked up once for all of them.
#[derive(Clone, Debug)]
pub(super) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// The address of a host's name.
    pub(super) fn look_up(host: &str, port: u16) -> io::Result<Self> {
        // IPv4 first: a name such as localhost often has both, and servers often only one.
        let mut addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
        addresses.sort_by_key(SocketAddr::is_ipv6);
        match addresses.first() {
            Some(address) => Ok(Address::Tcp(*address)),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "it has no address")),
        }
    }
}

/// A socket that may still be connecting.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => TcpStream::connect(*address).map(Socket::Tcp),
            Address::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
        }
    }

    /// What to register with the event queue.
    pub(super) fn source(&mut self) -> &mut dyn Source {
        match self {
            Socket::Tcp(stream) => stream,
            Socket::Unix(stream) => stream,
        }
    }

    /// Ends the connecting: `Ok(false)` while it lasts.
    pub(super) fn finish_connect(&self) -> io::Result<bool> {
        let (error, peer) = match self {
            Socket::Tcp(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
            Socket::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
        };
        if let Some(error) = error {
            return Err(error);
        }
        match peer {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(error),
        }
        if let Socket::Tcp(stream) = self {
            stream.set_nodelay(true)?;
        }
        Ok(true)
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }
}
