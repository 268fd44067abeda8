//! A server behind a socket: one thread for all connections.
//!
//! # Mechanism
//! One event loop owns every socket. It asks the system which of them can be read or written,
//! reads what has come, hands each whole request to [`Server::submit`], and goes on; it never waits
//! for a transaction. The workers, who run the transactions, put their answers into a mailbox and
//! ring a bell when the loop sleeps. The loop then encodes the answers, and writes those of one
//! connection by one system call.
//!
//! ```text
//! socket -> inbox -> request -> Server::submit -> gate, workers
//! socket <- outbox <- response <------- mailbox <----------+
//! ```
//!
//! An answer may also come at once, on the loop's own thread, when a request is refused. It takes
//! the same way through the mailbox, so that nothing is ever entered twice.
//!
//! # How a connection goes
//! ```text
//! greeting -- hello --> open -- violation, idle, stop --> leaving --> closing --> over
//!    |                    |                                 ^ answers all that was taken
//!    +-- other version, too many: closing                   then says goodbye
//! ```
//!
//! * A connection is read only while it is owed little: no more than `under_way_max` requests, and
//!   answers of no more than one longest frame that it has not read. What else it sends stays in
//!   the system's buffers, and then in the client. So a client that does not read its answers is
//!   not read either, and one connection keeps a bounded part of memory.
//! * A client that sends no more (half-closed) is answered to the end. One that has vanished is
//!   forgotten: its transactions run to their end and are committed or not as ever, and the answers
//!   are dropped.
//! * The goodbye comes last. So a client that reads one knows that each request it has no answer to
//!   was not run, and can be sent again elsewhere.
//! * After a violation the socket is read, and nothing done with it, until the client has closed
//!   its side or some time is over: a socket that is closed while something is unread resets the
//!   connection, and the client might not see why.
//!
//! # Example
//! `under_way_max` is 2. A client sends four requests at once. The loop reads all four, takes two,
//! and stops reading. The second is answered: its answer is written, and the third taken. So there
//! are never more than two of this connection in the queue of the gate, where other clients' wait
//! too.
//!
//! # Where this leaves the literature
//! * **One thread.** The study's server has a thread for each connection beside its workers. A
//!   thousand sleeping threads cost memory and little else, but each answer then wakes a thread;
//!   one loop wakes once for all answers that are there.
//! * **Level-triggered.** Most event loops on Linux are edge-triggered: told once, they have to
//!   remember that there is something left to read. Here what a connection waits for is told to the
//!   system whenever it changes, which it rarely does, and nothing has to be remembered. One read
//!   for each turn also keeps a fast client from holding up the others.
//!
//! # Limits
//! * One thread decodes and encodes for all, and large answers are copied twice.
//! * Connections that are open at once need as many file descriptors, and the usual limit of a
//!   process is 1,024.
//! * A client may keep its connection by sending a byte now and then. `connections_max` bounds how
//!   many can.

mod connection;
mod event_loop;
mod mailbox;
mod poller;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::Server;
use super::protocol::FRAME_LEN_LIMITS;
use super::socket::{Acceptor, Endpoint};

use event_loop::EventLoop;
use mailbox::{Letter, Mailbox};

/// How a server is reached.
#[derive(Clone, Copy, Debug)]
pub struct ListenerOptions {
    /// Connections at once. One more is told so and closed.
    pub connections_max: usize,
    /// Requests of one connection that are taken before the first of them is answered.
    pub under_way_max: u32,
    /// The longest frame, in bytes without its length word: of a request, and of an answer.
    pub frame_len_max: u32,
    /// How long a client may take to say hello.
    pub handshake_timeout: Duration,
    /// How long a connection may be quiet while nothing of it is under way; `None` for ever.
    pub idle_timeout: Option<Duration>,
    /// How long transactions may take to end when the listener is dropped.
    pub stop_timeout: Duration,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        ListenerOptions {
            connections_max: 1_000,
            under_way_max: 128,
            frame_len_max: 1 << 20,
            handshake_timeout: Duration::from_secs(5),
            idle_timeout: None,
            stop_timeout: Duration::from_secs(5),
        }
    }
}

/// Why a server cannot be reached.
#[derive(Debug, Error)]
pub enum ListenError {
    /// An option is out of bounds.
    #[error("{option} cannot be {value}: {min} to {max} is possible")]
    Option {
        /// Which option.
        option: &'static str,
        /// What it is.
        value: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// The address is not to be had.
    #[error("cannot listen on {endpoint}: {source}")]
    Bind {
        /// Which address.
        endpoint: Endpoint,
        /// The system's reason.
        source: io::Error,
    },
    /// Something else that the system refuses.
    #[error("cannot {action}: {source}")]
    System {
        /// What was to be done.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl ListenerOptions {
    fn check(&self) -> Result<(), ListenError> {
        let connections = u64::try_from(self.connections_max).unwrap_or(u64::MAX);
        let (least, most) = FRAME_LEN_LIMITS.into_inner();
        let options = [
            ("connections_max", connections, 1, 1_000_000),
            ("under_way_max", u64::from(self.under_way_max), 1, 1_000_000),
            ("frame_len_max", u64::from(self.frame_len_max), u64::from(least), u64::from(most)),
        ];
        for (option, value, min, max) in options {
            if value < min || value > max {
                return Err(ListenError::Option { option, value, min, max });
            }
        }
        Ok(())
    }
}

/// A server that is reached by a socket.
///
/// Dropped, it accepts nobody any more, takes no more requests, lets what was taken end for
/// [`ListenerOptions::stop_timeout`], and closes every connection. If nobody else holds the server
/// it is dropped too, which waits for all its transactions.
pub struct Listener {
    endpoint: Endpoint,
    mailbox: Arc<Mailbox>,
    stop_timeout: Duration,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Lets a server be reached.
    ///
    /// A socket file that a killed process left behind is replaced.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub fn start(
        server: Arc<Server>,
        endpoint: &Endpoint,
        options: ListenerOptions,
    ) -> Result<Listener, ListenError> {
        options.check()?;
        let system = |action| move |source| ListenError::System { action, source };
        let acceptor = Acceptor::bind(endpoint)
            .map_err(|source| ListenError::Bind { endpoint: endpoint.clone(), source })?;
        let endpoint = acceptor.endpoint().clone();
        let mailbox = Mailbox::new().map_err(system("make a mailbox"))?;
        let mailbox = Arc::new(mailbox);
        let event_loop = EventLoop::new(server, acceptor, Arc::clone(&mailbox), options)
            .map_err(system("watch a socket"))?;
        let thread = std::thread::Builder::new()
            .name("tidegate-socket".into())
            .spawn(move || event_loop.run())
            .map_err(system("start a thread"))?;
        let stop_timeout = options.stop_timeout;
        Ok(Listener { endpoint, mailbox, stop_timeout, thread: Some(thread) })
    }

    /// Where it listens; the port is the one really taken.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Connections that are there now, those being closed among them.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.mailbox.connections()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let now = Instant::now();
        // A time beyond what the clock can say is a day.
        let deadline =
            now.checked_add(self.stop_timeout).unwrap_or(now + Duration::from_secs(86_400));
        self.mailbox.post(Letter::Stop { deadline });
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the event loop panicked");
        }
    }
}
