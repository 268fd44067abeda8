//! Addresses, sockets and message sizes shared by the parts.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::str::FromStr;

use mio::event::Source;
use socket2::{Domain, Socket, Type};

/// Bytes of a request, about a short `SELECT`.
pub(crate) const REQUEST: usize = 40;
/// Bytes of a reply, about one row with its description, completion and `ReadyForQuery`.
pub(crate) const REPLY: usize = 70;

/// Connections the kernel may hold for us until we accept them.
const BACKLOG: i32 = 4096;

/// Where a server listens.
#[derive(Clone)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = Infallible;

    /// Whatever is not a socket address is taken for a path.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.parse().map_or_else(|_| Self::Unix(text.into()), Self::Tcp))
    }
}

impl Address {
    /// The TCP address, for the relays that support nothing else.
    pub(crate) fn tcp(self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(address) => Ok(address),
            Self::Unix(_) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this runtime was given a Unix-domain upstream; only mio supports it",
            )),
        }
    }

    /// Connects, blocking, and returns a socket that no longer blocks.
    pub(crate) fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(address) => {
                Ok(Stream::Tcp(mio::net::TcpStream::from_std(connect_tcp(*address)?)))
            }
            Self::Unix(path) => {
                let stream = std::os::unix::net::UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(mio::net::UnixStream::from_std(stream)))
            }
        }
    }
}

/// Connects, blocking, and returns a socket that no longer blocks and sends at once.
pub(crate) fn connect_tcp(address: SocketAddr) -> io::Result<std::net::TcpStream> {
    let stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Listens and prints the address. Accepted sockets inherit `TCP_NODELAY`.
pub(crate) fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from(socket);
    println!("listening {}", listener.local_addr()?);
    Ok(listener)
}

/// A connection of either family, registered with mio.
pub(crate) enum Stream {
    Tcp(mio::net::TcpStream),
    Unix(mio::net::UnixStream),
}

impl Stream {
    pub(crate) fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
        }
    }
}
