//! Stream sockets that never block, TCP or Unix-domain.
//!
//! A Unix socket has a file. It is removed with the socket, unless another has taken its place. One
//! that a killed process left behind is found by connecting to it: nobody answers.
//!
//! # Limits
//! Two processes that find such a file at the same moment may both replace it, and the first is
//! then not reached any more. A store's own lock keeps a second process from serving the same
//! store.

use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, SocketFlags, sockopt};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// An address of this machine; port 0 takes any that is free.
    Tcp(SocketAddr),
    /// The path of a Unix-domain socket.
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => write!(formatter, "{address}"),
            Endpoint::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// Connections that the system keeps until they are accepted; it may allow fewer.
const BACKLOG: i32 = 1_024;

/// A TCP connection is tried out after being quiet for so long, so that one to a machine that has
/// vanished does not stay for ever.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// The longest single wait; a longer one is made of several.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The other side sends no more.
    End,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    /// Connects, over TCP within `timeout`.
    pub(super) fn connect(endpoint: &Endpoint, timeout: Duration) -> io::Result<Socket> {
        match endpoint {
            Endpoint::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, timeout)?;
                stream.set_nonblocking(true)?;
                Socket::tcp(stream.into())
            }
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Socket(stream.into()))
            }
        }
    }

    fn tcp(socket: OwnedFd) -> io::Result<Socket> {
        // Messages leave whole; waiting for more to send would only add latency.
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
        Ok(Socket(socket))
    }

    /// Reads once.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            return match rustix::io::read(&self.0, &mut *buffer) {
                Ok(0) => Ok(Received::End),
                Ok(count) => Ok(Received::Bytes(count)),
                Err(Errno::AGAIN) => Ok(Received::Nothing),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }

    /// Sends as many bytes as the socket takes now.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            return match rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => Ok(count),
                Err(Errno::AGAIN) => Ok(0),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }

    /// Lets the other side read to an end.
    pub(super) fn end_sending(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.0, Shutdown::Write)?)
    }

    /// Waits until something has come, or if `or_to_send` until something can be sent; false when
    /// `deadline` passes before.
    pub(super) fn wait(&self, or_to_send: bool, deadline: Option<Instant>) -> io::Result<bool> {
        let flags = if or_to_send { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let wait = left.map_or(WAIT_MAX, |left| left.min(WAIT_MAX));
            let timeout = timespec(wait);
            match rustix::event::poll(&mut [PollFd::new(&self.0, flags)], Some(&timeout)) {
                Ok(0) if left.is_some_and(|left| left <= wait) => return Ok(false),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The system's word for a time; one that is too long for it becomes the longest wait.
pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration.min(WAIT_MAX)).unwrap_or_default()
}

/// A socket that others connect to.
#[derive(Debug)]
pub(super) struct Acceptor {
    socket: OwnedFd,
    endpoint: Endpoint,
    /// Removed after the socket is closed.
    _file: Option<SocketFile>,
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Acceptor {
    /// Listens.
    pub(super) fn bind(endpoint: &Endpoint) -> io::Result<Acceptor> {
        match endpoint {
            Endpoint::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let endpoint = Endpoint::Tcp(listener.local_addr()?);
                Acceptor::new(listener.into(), endpoint, None)
            }
            Endpoint::Unix(path) => {
                // The directory that the process is in may be another when the file is removed.
                let path = std::path::absolute(path)?;
                let listener = bind_unix(&path)?;
                listener.set_nonblocking(true)?;
                let file = SocketFile::of(&path)?;
                Acceptor::new(listener.into(), Endpoint::Unix(path), Some(file))
            }
        }
    }

    fn new(socket: OwnedFd, endpoint: Endpoint, file: Option<SocketFile>) -> io::Result<Acceptor> {
        // The standard library has set a shorter backlog; the last one counts.
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Acceptor { socket, endpoint, _file: file })
    }

    /// Where it really listens.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The next connection, if one waits.
    pub(super) fn accept(&self) -> io::Result<Option<Socket>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            match rustix::net::accept_with(&self.socket, flags) {
                Ok(socket) if matches!(self.endpoint, Endpoint::Unix(_)) => {
                    return Ok(Some(Socket(socket)));
                }
                Ok(socket) => match Socket::tcp(socket) {
                    Ok(socket) => return Ok(Some(socket)),
                    Err(error) => tracing::debug!("a connection is gone already: {error}"),
                },
                Err(Errno::AGAIN) => return Ok(None),
                // Gone before it was accepted.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path) => {
            fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

/// Whether a file is a socket on which nobody listens.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).is_err_and(refused)
}

/// The file of a socket. Dropped, it is removed if it is still the same.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and number of the file.
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: path.to_owned(), identity: identity(path)? })
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!("cannot remove the socket {}: {error}", self.path.display());
        }
    }
}
