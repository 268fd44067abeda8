//! Blocking sockets to a server, TCP or unix.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::url::{Host, Url};

/// How long a connection or a login may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects to the server of a URL.
    pub(crate) fn connect(url: &Url) -> io::Result<Self> {
        match (url.socket_path(), &url.host) {
            (Some(path), _) => Stream::unix(&path),
            (None, Host::Tcp(host)) => Stream::tcp(host, url.port),
            (None, Host::Unix(_) | Host::Local) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Connects to the first of the host's addresses that lets us.
    pub(crate) fn tcp(host: &str, port: u16) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Stream::Tcp(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(crate) fn unix(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).map(Stream::Unix)
    }

    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }
}
