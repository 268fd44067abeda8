//! Sockets of either family, and connections: a socket with the bytes that wait on both sides.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, recv, send, sockopt};
use serde::{Deserialize, Serialize};
use tidegate_wire::input::Missing;

use crate::config::ListenAddress;
use crate::tls::settings::{Acceptor, Connector};
use crate::tls::{Encryption, RECORD_PLAINTEXT, TlsError};

/// A stream socket, TCP or Unix-domain.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Returns the peer's address, for a log.
    pub(crate) fn peer(&self) -> String {
        match self {
            Stream::Tcp(stream) => {
                stream.peer_addr().map_or_else(|_| "gone".to_owned(), |peer| peer.to_string())
            }
            Stream::Unix(_) => "a Unix-domain socket".to_owned(),
        }
    }

    /// Returns the address of a TCP peer; `None` is a Unix-domain socket.
    fn peer_ip(&self) -> io::Result<Option<IpAddr>> {
        match self {
            // An IPv4 peer of a socket that takes both families is one of IPv4 nevertheless.
            Stream::Tcp(stream) => Ok(Some(stream.peer_addr()?.ip().to_canonical())),
            Stream::Unix(_) => Ok(None),
        }
    }

    /// Returns the address of the other end; `None` is a Unix-domain socket, or the peer has gone.
    fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.peer_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    /// Returns the address of this end; `None` is a Unix-domain socket, or the peer has gone.
    fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.local_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    /// Returns the number of the user who has connected a Unix-domain socket.
    fn peer_user(&self) -> io::Result<u32> {
        match self {
            Stream::Tcp(_) => Err(io::ErrorKind::Unsupported.into()),
            Stream::Unix(stream) => Ok(sockopt::socket_peercred(stream)?.uid.as_raw()),
        }
    }

    /// Begins to connect; the socket becomes writable when it is done or has failed.
    pub(crate) fn connect_tcp(
        address: SocketAddr,
        unreachable: Option<Duration>,
    ) -> io::Result<Stream> {
        let stream = TcpStream::connect(address)?;
        set_options(&stream, unreachable)?;
        Ok(Stream::Tcp(stream))
    }

    /// Connects to a Unix-domain socket.
    pub(crate) fn connect_unix(path: &Path) -> io::Result<Stream> {
        Ok(Stream::Unix(UnixStream::connect(path)?))
    }

    /// Returns the outcome of a connection attempt, once the socket has become writable.
    pub(crate) fn connected(&self) -> io::Result<()> {
        let error = match self {
            Stream::Tcp(stream) => stream.take_error()?,
            Stream::Unix(stream) => stream.take_error()?,
        };
        error.map_or(Ok(()), Err)
    }

    /// Acknowledges now what has been received, for a peer that sends no more before that.
    pub(crate) fn acknowledge(&self) {
        if let Stream::Tcp(stream) = self
            && let Err(error) = sockopt::set_tcp_quickack(stream, true)
        {
            tracing::debug!(%error, "an acknowledgement is left to the system");
        }
    }

    /// Returns whether there is something to read, or the end of it: a look that takes nothing.
    pub(crate) fn has_news(&self) -> bool {
        let (mut byte, flags) = ([0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(recv(self, &mut byte, flags), Err(Errno::AGAIN | Errno::INTR))
    }

    /// Takes a connected socket over from another process.
    pub(crate) fn adopt(socket: OwnedFd) -> io::Result<Stream> {
        let is_local = sockopt::socket_domain(&socket)? == AddressFamily::UNIX;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(if is_local {
            Stream::Unix(UnixStream::from_std(socket.into()))
        } else {
            Stream::Tcp(TcpStream::from_std(socket.into()))
        })
    }

    /// Stops watching, for as long as the socket is at rest: another process may have it too.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.deregister(registry),
            Stream::Unix(stream) => stream.deregister(registry),
        }
    }

    /// Watches for reading and writing, edge-triggered, for as long as the socket lives.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            Stream::Tcp(stream) => stream.register(registry, token, interest),
            Stream::Unix(stream) => stream.register(registry, token, interest),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

// The system calls themselves: the C library's are points where a thread can be cancelled, which
// costs two atomic changes for each call.
impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&*self, buffer, RecvFlags::empty())?.0)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A peer that has gone is an error, not a signal.
        Ok(send(&*self, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Probes that a silent peer may leave unanswered before its connection is ended.
const PROBES: u32 = 6;

/// Sets what every TCP connection needs.
///
/// A peer whose machine has gone says nothing, like one that is idle. The system asks a silent one
/// from half of `unreachable` on whether it is there, and ends the connection when it has not
/// answered for that time. There is no user timeout (`TCP_USER_TIMEOUT`): it would also end the
/// connection of a peer that is there and slow to read, as in a COPY into a locked table.
fn set_options(stream: &TcpStream, unreachable: Option<Duration>) -> io::Result<()> {
    // Messages are batched here already; waiting for more to send only adds latency.
    stream.set_nodelay(true)?;
    let Some(unreachable) = unreachable else { return Ok(()) };
    // The system counts whole seconds, from 1 on.
    let seconds = |time: Duration| Duration::from_secs(time.as_secs().max(1));
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, seconds(unreachable / 2))?;
    sockopt::set_tcp_keepintvl(stream, seconds(unreachable / 2 / PROBES))?;
    Ok(sockopt::set_tcp_keepcnt(stream, PROBES)?)
}

/// A listening socket, TCP or Unix-domain.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Accepts a client; `unreachable` is as in [`crate::config::Timeouts`].
    pub(crate) fn accept(&self, unreachable: Option<Duration>) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                set_options(&stream, unreachable)?;
                Ok(Stream::Tcp(stream))
            }
            Listener::Unix(listener) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) => listener.register(registry, token, Interest::READABLE),
            Listener::Unix(listener) => listener.register(registry, token, Interest::READABLE),
        }
    }

    /// Stops watching: another process accepts now.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) => listener.deregister(registry),
            Listener::Unix(listener) => listener.deregister(registry),
        }
    }

    /// Takes a listening socket over from another process.
    pub(crate) fn adopt(socket: OwnedFd) -> io::Result<Listener> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(if sockopt::socket_domain(&socket)? == AddressFamily::UNIX {
            Listener::Unix(UnixListener::from_std(socket.into()))
        } else {
            Listener::Tcp(TcpListener::from_std(socket.into()))
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// This many bytes; `more` says that the buffer was filled, so there may be others.
    Bytes { count: usize, more: bool },
    /// Nothing now.
    Nothing,
    /// The peer will send no more, or the connection is broken.
    Closed,
}

/// Reads once into `buffer`.
///
/// A read that does not fill the buffer has emptied the socket (epoll(7), question 9), so no
/// second read is needed to learn that.
pub(crate) fn read_once(stream: &mut Stream, buffer: &mut [u8]) -> ReadOutcome {
    loop {
        match stream.read(buffer) {
            Ok(0) => return ReadOutcome::Closed,
            Ok(count) => {
                return ReadOutcome::Bytes { count, more: count == buffer.len() };
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return ReadOutcome::Nothing,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return ReadOutcome::Closed,
        }
    }
}

/// A buffer larger than this is given back once it is empty.
const KEPT_CAPACITY: usize = 4096;

/// Empties `buffer`, and keeps its memory only if that is little.
pub(crate) fn reset(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT_CAPACITY {
        *buffer = Vec::new();
    } else {
        buffer.clear();
    }
}

/// Bytes that the socket did not take yet.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns what is waiting.
    fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Writes `bytes` after what is waiting already, at once as far as the socket takes it.
    pub(crate) fn send(&mut self, stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
        if !self.is_empty() {
            self.bytes.extend_from_slice(bytes);
            return self.flush(stream);
        }
        let sent = write_some(stream, bytes)?;
        self.bytes.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Writes what is waiting, as far as the socket takes it.
    pub(crate) fn flush(&mut self, stream: &mut Stream) -> io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.sent += write_some(stream, &self.bytes[self.sent..])?;
        if self.sent == self.bytes.len() {
            self.sent = 0;
            reset(&mut self.bytes);
        }
        Ok(())
    }
}

fn write_some(stream: &mut Stream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // An error says that nothing was sent. If something was, the next write has it.
            Err(_) if sent > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// Whether a socket should be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    /// A read found nothing, and no event has come since.
    Drained,
    /// There may be bytes that have not been read.
    Readable,
    /// The peer has sent its last byte, or the socket has failed: a read tells which.
    HungUp,
}

/// What the other end of a connection is that comes through another process, which does its TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
    /// As [`Connection::tls_description`] has it.
    pub(crate) tls: String,
}

/// A registered socket, and the bytes that wait on both sides of it.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    outbox: Outbox,
    readiness: Readiness,
    /// How a connection to a server begins TLS, until it is connected.
    connector: Option<Arc<Connector>>,
    encryption: Option<Box<Encryption>>,
    /// Set if it comes through another process.
    origin: Option<Box<Origin>>,
    /// Bytes received and not handled: an incomplete message, or all that came while the peer has
    /// to wait.
    pub(crate) inbox: Vec<u8>,
    /// The rest of a message that is handled in pieces.
    pub(crate) passing: Missing,
}

impl Connection {
    pub(crate) fn new(stream: Stream) -> Connection {
        Connection {
            stream,
            outbox: Outbox::default(),
            readiness: Readiness::Drained,
            connector: None,
            encryption: None,
            origin: None,
            inbox: Vec::new(),
            passing: Missing::default(),
        }
    }

    /// Makes a connection of a socket that another process has had, which may come through that
    /// process. `inbox` is what it has received and not handled, `outbox` what it has not sent.
    pub(crate) fn adopt(
        stream: Stream,
        origin: Option<Origin>,
        inbox: Vec<u8>,
        outbox: Vec<u8>,
    ) -> Connection {
        Connection {
            outbox: Outbox { bytes: outbox, sent: 0 },
            origin: origin.map(Box::new),
            inbox,
            // Nobody has looked.
            readiness: Readiness::Readable,
            ..Connection::new(stream)
        }
    }

    /// Returns what another process has to know of the other end if it gets this connection
    /// through this process, which has to be if there is TLS; `None` if it can have the socket.
    pub(crate) fn origin(&self) -> Option<Origin> {
        if !self.has_tls() {
            return self.origin.as_deref().cloned();
        }
        Some(Origin {
            peer: self.peer_address(),
            local: self.local_address(),
            tls: self.tls_description(),
        })
    }

    /// Returns whether TLS has begun, also if it has ended.
    pub(crate) fn has_begun_tls(&self) -> bool {
        self.encryption.is_some()
    }

    /// Returns whether what the socket carries is encrypted by this process.
    pub(crate) fn has_tls(&self) -> bool {
        self.encryption().is_some()
    }

    /// Returns the bytes that wait until the socket takes them; with TLS they are encrypted.
    pub(crate) fn unsent(&self) -> &[u8] {
        self.outbox.unsent()
    }

    /// Returns the socket.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Returns the peer's address, for a log.
    pub(crate) fn peer(&self) -> String {
        match self.origin.as_ref().and_then(|origin| origin.peer) {
            Some(peer) => peer.to_string(),
            None => self.stream.peer(),
        }
    }

    /// Returns the address of the other end; `None` is a Unix-domain socket, or the peer has gone.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        let own = || self.stream.peer_address();
        self.origin.as_ref().map_or_else(own, |origin| origin.peer)
    }

    /// Returns the address of this end; `None` is a Unix-domain socket, or the peer has gone.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        let own = || self.stream.local_address();
        self.origin.as_ref().map_or_else(own, |origin| origin.local)
    }

    /// Returns the version of TLS and the cipher suite, as `TLSv1_3/TLS13_AES_256_GCM_SHA384`;
    /// empty without TLS.
    pub(crate) fn tls_description(&self) -> String {
        let relayed = || self.origin.as_ref().map_or_else(String::new, |it| it.tls.clone());
        self.encryption.as_ref().map_or_else(relayed, |it| it.description())
    }

    /// Returns the address of a TCP peer; `None` is a Unix-domain socket.
    ///
    /// # Errors
    /// The peer has gone.
    pub(crate) fn peer_ip(&self) -> io::Result<Option<IpAddr>> {
        match &self.origin {
            Some(origin) => Ok(origin.peer.map(|peer| peer.ip().to_canonical())),
            None => self.stream.peer_ip(),
        }
    }

    /// Returns the number of the user of this machine who has connected a Unix-domain socket.
    ///
    /// # Errors
    /// It is a TCP socket, or the system does not tell.
    pub(crate) fn peer_user(&self) -> io::Result<u32> {
        self.stream.peer_user()
    }

    /// Returns whether the peer is on this machine, by a Unix-domain socket.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.stream, Stream::Unix(_))
    }

    /// Begins to connect to a server, and to use TLS if there is a connector.
    pub(crate) fn to_server(stream: Stream, connector: Option<Arc<Connector>>) -> Connection {
        Connection { connector, ..Connection::new(stream) }
    }

    /// Begins to connect to another instance; `unreachable` is as in [`crate::config::Timeouts`].
    pub(crate) fn to_listener(
        address: &ListenAddress,
        unreachable: Option<Duration>,
    ) -> io::Result<Connection> {
        Ok(Connection::new(match address {
            ListenAddress::Tcp(address) => Stream::connect_tcp(*address, unreachable)?,
            ListenAddress::Unix(path) => Stream::connect_unix(path)?,
        }))
    }

    /// Watches the socket for as long as it lives.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.stream.register(registry, token)
    }

    /// Stops watching the socket; it may be registered again.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.stream.deregister(registry)
    }

    /// Returns the outcome of a connection attempt, once the socket has become writable. TLS
    /// begins then: what is sent from now on waits for it.
    pub(crate) fn connected(&mut self) -> io::Result<()> {
        self.stream.connected()?;
        if let Some(connector) = self.connector.take() {
            let begun = Encryption::connect(&connector, &mut self.stream, &mut self.outbox);
            self.encryption = Some(Box::new(begun.map_err(io::Error::other)?));
        }
        Ok(())
    }

    /// Begins TLS with a client, which is to send a `ClientHello`. `received` is what has been read
    /// of it; nothing else may have been received.
    ///
    /// # Errors
    /// The client has not sent a `ClientHello`.
    pub(crate) fn accept_tls(
        &mut self,
        acceptor: &Acceptor,
        received: &[u8],
    ) -> Result<(), TlsError> {
        debug_assert!(self.encryption.is_none() && self.inbox.is_empty(), "TLS begins once");
        let (stream, outbox) = (&mut self.stream, &mut self.outbox);
        self.encryption = Some(Box::new(Encryption::accept(acceptor, received, stream, outbox)?));
        Ok(())
    }

    /// Returns the TLS of the connection, if it is encrypted.
    pub(crate) fn encryption(&self) -> Option<&Encryption> {
        self.encryption.as_deref().filter(|encryption| encryption.is_encrypted())
    }

    /// Returns whether the TLS of a client has begun and ended: no answer can be sent.
    pub(crate) fn has_ended_tls(&self) -> bool {
        self.encryption.is_some() && self.encryption().is_none()
    }

    /// Returns why TLS has failed, if it has.
    pub(crate) fn tls_error(&self) -> Option<&TlsError> {
        self.encryption.as_ref()?.error()
    }

    /// Takes an event: there may be bytes to read, or the end of them.
    pub(crate) fn set_readable(&mut self, is_closed: bool) {
        if is_closed {
            self.readiness = Readiness::HungUp;
        } else if self.readiness == Readiness::Drained {
            self.readiness = Readiness::Readable;
        }
    }

    /// Returns whether the socket may hold bytes that have not been read.
    pub(crate) fn is_readable(&self) -> bool {
        self.readiness != Readiness::Drained
    }

    /// Reads once into `buffer`.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> ReadOutcome {
        let outcome = match &mut self.encryption {
            None => read_once(&mut self.stream, buffer),
            Some(tls) => tls.read(&mut self.stream, &mut self.outbox, buffer),
        };
        match outcome {
            ReadOutcome::Nothing => self.readiness = Readiness::Drained,
            ReadOutcome::Bytes { more: false, .. } if self.readiness == Readiness::Readable => {
                self.readiness = Readiness::Drained;
            }
            ReadOutcome::Bytes { .. } | ReadOutcome::Closed => {}
        }
        outcome
    }

    /// Looks at the socket of a connection at rest: returns whether there are bytes to read, or the
    /// end of them.
    pub(crate) fn has_news(&self) -> bool {
        self.stream.has_news()
    }

    /// Returns whether [`Connection::send`], which has failed with `bytes`, has sent nothing that
    /// the peer can make sense of.
    pub(crate) fn has_sent_none_of(&self, bytes: &[u8]) -> bool {
        // Encrypted they were one record, which did not arrive, or several.
        self.encryption().is_none() || bytes.len() <= RECORD_PLAINTEXT
    }

    /// Returns whether bytes wait until the socket takes them.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Writes `bytes` after what waits already, at once as far as the socket takes it.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.encryption {
            None => self.outbox.send(&mut self.stream, bytes),
            Some(tls) => tls.send(&mut self.stream, &mut self.outbox, bytes),
        }
    }

    /// Writes what waits, as far as the socket takes it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.outbox.flush(&mut self.stream)
    }

    /// Sends the message that ends a session. The socket is closed afterwards, whether or not the
    /// message can be sent at once.
    pub(crate) fn send_last(&mut self, message: &[u8]) {
        if let Err(error) = self.send(message) {
            tracing::debug!(%error, "the peer was gone before the end of its session");
        }
        if let Some(tls) = &mut self.encryption {
            tls.send_close_notify(&mut self.stream, &mut self.outbox);
        }
    }
}

/// Collects what a batch of messages sends on, so that it leaves by one write.
///
/// As long as every message is passed on unchanged, the output is one run of the input and nothing
/// is copied. The first change copies what was collected into `spilled`, and the rest follows.
#[derive(Debug)]
pub(crate) struct BatchOutput<'a> {
    input: &'a [u8],
    run: std::ops::Range<usize>,
    spilled: Vec<u8>,
}

impl<'a> BatchOutput<'a> {
    /// Collects from `input`; `spill` is an empty buffer to reuse.
    pub(crate) fn new(input: &'a [u8], spill: Vec<u8>) -> Self {
        BatchOutput { input, run: 0..0, spilled: spill }
    }

    /// Passes on `input[range]` unchanged.
    pub(crate) fn pass(&mut self, range: std::ops::Range<usize>) {
        if self.spilled.is_empty() {
            if self.run.is_empty() {
                self.run = range;
                return;
            }
            if self.run.end == range.start {
                self.run.end = range.end;
                return;
            }
        }
        let input = self.input;
        self.spill().extend_from_slice(&input[range]);
    }

    /// Returns the buffer to append changed messages to.
    pub(crate) fn spill(&mut self) -> &mut Vec<u8> {
        let run = std::mem::replace(&mut self.run, 0..0);
        self.spilled.extend_from_slice(&self.input[run]);
        &mut self.spilled
    }

    /// All that was collected.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.spilled.is_empty() { &self.input[self.run.clone()] } else { &self.spilled }
    }

    /// Returns the spill buffer, empty again, for the next batch.
    pub(crate) fn recycle(mut self) -> Vec<u8> {
        self.spilled.clear();
        self.spilled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Piece {
        Pass(usize),
        Skip(usize),
        Add(Vec<u8>),
    }

    fn piece() -> impl Strategy<Value = Piece> {
        prop_oneof![
            (0..9_usize).prop_map(Piece::Pass),
            (0..9_usize).prop_map(Piece::Skip),
            prop::collection::vec(any::<u8>(), 0..4).prop_map(Piece::Add),
        ]
    }

    proptest! {
        #[test]
        fn a_gather_is_what_was_passed_and_added_in_order(
            pieces in prop::collection::vec(piece(), 0..12),
        ) {
            let input: Vec<u8> = (0..200).collect();
            let (mut gather, mut expected, mut at) =
                (BatchOutput::new(&input, Vec::new()), Vec::new(), 0);
            for piece in pieces {
                match piece {
                    Piece::Pass(count) => {
                        gather.pass(at..at + count);
                        expected.extend_from_slice(&input[at..at + count]);
                        at += count;
                    }
                    Piece::Skip(count) => at += count,
                    Piece::Add(bytes) => {
                        gather.spill().extend_from_slice(&bytes);
                        expected.extend_from_slice(&bytes);
                    }
                }
            }
            prop_assert_eq!(gather.bytes(), &expected[..]);
            prop_assert!(gather.recycle().is_empty());
        }
    }

    #[test]
    fn an_outbox_keeps_the_order_of_what_the_socket_does_not_take() {
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut stream = Stream::Unix(UnixStream::from_std(near));
        let mut outbox = Outbox::default();
        let chunk: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        for _ in 0..20 {
            outbox.send(&mut stream, &chunk).unwrap();
        }
        assert!(!outbox.is_empty(), "two megabytes do not fit a socket's buffer");
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; 2_000_000];
            far.read_exact(&mut all).unwrap();
            all
        });
        while !outbox.is_empty() {
            outbox.flush(&mut stream).unwrap();
            std::thread::yield_now();
        }
        assert!(reader.join().unwrap() == chunk.repeat(20), "the order is another");
    }
}
