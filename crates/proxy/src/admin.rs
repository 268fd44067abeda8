//! The admin interface: the page, `/status.json`, `/events`, `/metrics`, `/healthz` and `/readyz`
//! over HTTP/1.1.
//!
//! One thread serves all connections and waits for none of them: sockets do not block, a request
//! has [`REQUEST_TIME`] from accept to close, and there are [`CONNECTIONS_MAX`] connections and
//! [`LISTENERS_MAX`] listeners of events at most. Event loops are asked who holds permits at most
//! once a second, and only while somebody looks; one answer is made for all who ask.
//!
//! ```text
//! GET /status.json -> AwaitingStatus --.      inquiry to every event loop
//! GET /events      -> Listening -------+--> sampler --> answers, or ANSWER_TIME --> document
//!                                      '<----------------------------------------------'
//! ```
//!
//! **A listener that is slow** has one event at most on its way. What it misses meanwhile is not
//! kept: its next event is the whole document. One that takes nothing for [`LISTENER_TIME`] is
//! dropped.
//!
//! | module | what it has |
//! | --- | --- |
//! | `http.rs` | requests and responses as bytes |
//! | `connection.rs` | one connection, from its request to its end |
//! | `sampler.rs` | the document, at most once a second |
//! | `access.rs` | whose requests are answered: names of the host, origins, the token |
//! | `orders.rs` | orders from the page |
//! | `routes.rs` | which request gets what |
//! | `page.html` | the page |

mod access;
mod connection;
mod http;
mod orders;
mod routes;
mod sampler;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;
use thiserror::Error;
use tracing::{debug, warn};

pub(crate) use access::AdminToken;

use crate::metrics::MetricsSource;
use crate::shared::InForce;
use connection::{AdminConnection, Progress};
use routes::Routes;
use sampler::Sampler;

/// Time for one exchange, from accept to close.
const REQUEST_TIME: Duration = Duration::from_secs(2);

/// Time in which a listener takes something of the event on its way.
const LISTENER_TIME: Duration = Duration::from_secs(30);

/// Connections at once. For one more, the one ends whose time is over first.
const CONNECTIONS_MAX: usize = 128;

/// Listeners of events at once; a further one is refused.
const LISTENERS_MAX: usize = 64;

/// Pause after a failed accept, which is usually for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);

/// The tokens of connections begin here.
const FIRST_CONNECTION: usize = 2;

/// The admin interface cannot start.
#[derive(Debug, Error)]
pub enum AdminError {
    /// The address cannot be listened on.
    #[error("cannot listen for the admin interface on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The token cannot be used.
    #[error("cannot use the admin_token_file {}: {reason}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The thread or its poll cannot be made.
    #[error("cannot start the admin interface: {0}")]
    Start(#[from] io::Error),
}

/// A socket on which the admin interface will be.
#[derive(Debug)]
pub(crate) struct AdminSocket(TcpListener);

impl AdminSocket {
    /// Listens on an address; port 0 takes a free one.
    ///
    /// # Errors
    /// It cannot be listened on.
    pub(crate) fn bind(address: SocketAddr) -> Result<AdminSocket, AdminError> {
        let listener = TcpListener::bind(address);
        listener.map(AdminSocket).map_err(|source| AdminError::Listen { address, source })
    }

    /// Takes a listening socket that is a copy of an earlier one's, or another process's.
    pub(crate) fn adopt(socket: OwnedFd) -> io::Result<AdminSocket> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(AdminSocket(TcpListener::from_std(socket.into())))
    }
}

/// A running admin interface; dropping it stops it and frees its port.
#[derive(Debug)]
pub(crate) struct AdminHandle {
    address: SocketAddr,
    /// A copy of the listening socket.
    socket: OwnedFd,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl AdminHandle {
    /// Returns the address on which it listens.
    #[must_use]
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves no more, and keeps the listening socket.
    pub(crate) fn pause(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let woken = self.waker.wake();
        if let (Ok(()), Some(thread)) = (woken, self.thread.take())
            && thread.join().is_err()
        {
            warn!("the admin interface panicked");
        }
    }

    /// Returns a copy of its listening socket.
    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        self.pause();
    }
}

/// Serves what the proxy is and does on a socket.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start(
    socket: AdminSocket,
    in_force: Arc<InForce>,
    metrics: Arc<MetricsSource>,
) -> Result<AdminHandle, AdminError> {
    let AdminSocket(mut listener) = socket;
    let address = listener.local_addr()?;
    let copy = listener.as_fd().try_clone_to_owned()?;
    let poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
    let stop = Arc::new(AtomicBool::new(false));
    let sampler = Sampler::new(Arc::clone(&in_force), Arc::clone(&metrics), Arc::clone(&waker));
    let routes = Routes::new(in_force, Arc::clone(&metrics));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::Builder::new().name("tidegate-admin".into()).spawn(move || {
        let admin = AdminLoop {
            poll,
            listener,
            stop: stopped,
            connections: Slab::new(),
            accept_at: None,
            sampler,
            routes,
        };
        metrics.health().supervise("the admin interface", || admin.run());
    })?;
    Ok(AdminHandle { address, socket: copy, stop, waker, thread: Some(thread) })
}

struct AdminLoop {
    poll: Poll,
    listener: TcpListener,
    stop: Arc<AtomicBool>,
    connections: Slab<AdminConnection>,
    /// When to accept again, after it has failed.
    accept_at: Option<Instant>,
    sampler: Sampler,
    routes: Routes,
}

impl AdminLoop {
    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(CONNECTIONS_MAX + 2);
        loop {
            let timeout =
                self.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                return Err(error);
            }
            if self.stop.load(Ordering::SeqCst) {
                return Ok(());
            }
            let now = Instant::now();
            for event in &events {
                match event.token() {
                    // A pending connection is announced once.
                    LISTENER => self.accept_at = Some(now),
                    WAKER => {}
                    Token(number) => self.advance(number - FIRST_CONNECTION, now),
                }
            }
            if self.accept_at.is_some_and(|at| at <= now) {
                self.accept(now);
            }
            self.sample(now);
            self.close_overdue(now);
        }
    }

    /// Returns when something is to be done if nothing happens.
    fn next_deadline(&self) -> Option<Instant> {
        let connections = self.connections.iter().map(|(_, connection)| connection.deadline());
        let sampler = self.sampler.next(self.is_wanted());
        connections.chain(sampler).chain(self.accept_at).min()
    }

    /// Returns whether somebody waits for the document.
    fn is_wanted(&self) -> bool {
        self.connections.iter().any(|(_, connection)| connection.wants_status())
    }

    fn accept(&mut self, now: Instant) {
        self.accept_at = None;
        loop {
            match self.listener.accept() {
                Ok((mut stream, peer)) => {
                    self.make_room();
                    let entry = self.connections.vacant_entry();
                    let token = Token(entry.key() + FIRST_CONNECTION);
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    if let Err(error) = self.poll.registry().register(&mut stream, token, interest)
                    {
                        debug!(%peer, %error, "an admin connection cannot be watched");
                        continue;
                    }
                    entry.insert(AdminConnection::new(stream, now + REQUEST_TIME));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    warn!(%error, "the admin interface cannot accept a connection");
                    self.accept_at = Some(now + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// Ends a connection if there are as many as may be: not a listener, of which there are fewer.
    fn make_room(&mut self) {
        if self.connections.len() < CONNECTIONS_MAX {
            return;
        }
        let others = self.connections.iter().filter(|(_, it)| !it.is_listening());
        if let Some((key, _)) = others.min_by_key(|(_, connection)| connection.deadline()) {
            self.connections.remove(key);
        }
    }

    /// Goes on with a connection on which something has happened.
    fn advance(&mut self, key: usize, now: Instant) {
        let listeners = self.connections.iter().filter(|(_, it)| it.is_listening()).count();
        let Some(connection) = self.connections.get_mut(key) else { return };
        let answer =
            |request: &http::Request| self.routes.answer(request, listeners < LISTENERS_MAX);
        match connection.advance(answer, now) {
            Ok(Progress::Open) => {}
            Ok(Progress::Ended) => drop(self.connections.remove(key)),
            Err(error) => {
                debug!(%error, "an admin request failed");
                self.connections.remove(key);
            }
        }
    }

    /// Has the document made if somebody wants it, and hands it out.
    fn sample(&mut self, now: Instant) {
        let is_wanted = self.is_wanted();
        let Some(sample) = self.sampler.advance(is_wanted, now) else { return };
        for (_, connection) in &mut self.connections {
            connection.take_sample(sample, now);
        }
        self.sampler.handed_out();
        let keys: Vec<usize> = self.connections.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.advance(key, now);
        }
    }

    fn close_overdue(&mut self, now: Instant) {
        self.connections.retain(|_, connection| connection.deadline() > now);
    }
}
