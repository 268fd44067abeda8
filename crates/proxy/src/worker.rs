//! One event loop: its clients, its upstream connections, and nothing shared with the other loops
//! but the gates and the mailboxes.
//!
//! # Mechanism
//!
//! Sockets are registered once, edge-triggered, for reading and writing. A batch of messages costs
//! one read and one write: bytes are read into a buffer of the worker's, message boundaries are
//! found in it, and the same bytes are written to the other side; a client or an upstream
//! connection has memory of its own only for a message that is incomplete or that its peer does
//! not take yet.
//!
//! ```text
//! readable client -> process: FirstPacket -> Authenticating -> Welcoming -> Idle
//!                             Idle -> (gate) -> Queued -> AwaitingUpstream -> Running
//! readable upstream -> ReadyForQuery, idle, nothing owed -> permit back -> client Idle
//! ```
//!
//! Work that follows from an event but belongs to another connection is put on a list
//! (`ready_clients`, `ready_upstreams`) and done when the event has been handled, so that no
//! handler is ever entered twice and the read buffers have one user at a time.
//!
//! # Where the code is
//!
//! - `logins`: a client's first packet, authentication, welcome.
//! - `clients`: a client's bytes from then on.
//! - `admission`: permits, upstream connections for them, the end of a transaction.
//! - `upstreams`: a server's bytes, opening and closing.
//! - `idle`: clients that are idle inside their transactions.
//! - `holders`: whose permit no longer counts against the limit because it is overdue.
//! - `abandoned`: transactions whose client has gone, and cancel requests.

mod abandoned;
mod admission;
mod clients;
mod holders;
mod idle;
mod logins;
mod upstreams;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Events, Poll, Token};
use tidegate_gate::Waker;
use tidegate_wire::error_response::{Severity, SqlState};
use tidegate_wire::startup::CancelKey;

use crate::client::{Client, ClientKey, Phase};
use crate::log_limit::LogLimit;
use crate::mailbox::{Letter, Mailbox};
use crate::metrics::WorkerCounters;
use crate::net::{Listener, Stream};
use crate::pool::{Pool, PoolKey};
use crate::shared::Shared;
use crate::slots::{INDEX_BITS, Key, Slots};
use crate::statements::Definitions;
use crate::upstream::{Upstream, UpstreamKey};

use abandoned::{Canceller, CancellerKey};
use idle::IdleLine;

/// Bytes read from a socket at once.
const READ_LEN: usize = 64 * 1024;

/// Timeouts are looked at this often.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// Upstream connections of one worker that may be opening at once: a storm of clients must not
/// become a storm of new server processes.
const OPENING_MAX: usize = 32;

/// Most workers that a cancel key can name.
pub(crate) const WORKERS_MAX: usize = 127;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Mailbox,
    Listener(usize),
    Client(ClientKey),
    Upstream(UpstreamKey),
    Canceller(CancellerKey),
}

// A token holds a key's 56 bits and two that tell the kinds apart.
const _: () = assert!(usize::BITS >= 64, "tokens of 64 bits are needed");

/// A poll token that names one connection and none that comes after it, so that an event which was
/// received before the connection ended finds nothing.
#[expect(clippy::cast_possible_truncation, reason = "asserted above: usize has 64 bits")]
fn keyed<T>(key: Key<T>, kind: usize) -> usize {
    (key.to_bits() as usize) << 2 | kind
}

impl Source {
    fn token(self) -> Token {
        Token(match self {
            Source::Mailbox => 0,
            Source::Listener(index) => (index + 1) << 2,
            Source::Client(key) => keyed(key, 1),
            Source::Upstream(key) => keyed(key, 2),
            Source::Canceller(key) => keyed(key, 3),
        })
    }

    fn of(token: Token) -> Source {
        let (number, kind) = (token.0 >> 2, token.0 & 3);
        let bits = number as u64;
        match kind {
            0 if number == 0 => Source::Mailbox,
            0 => Source::Listener(number - 1),
            1 => Source::Client(Key::from_bits(bits)),
            2 => Source::Upstream(Key::from_bits(bits)),
            _ => Source::Canceller(Key::from_bits(bits)),
        }
    }
}

/// The token that wakes the loop of a worker.
pub(crate) fn mailbox_token() -> Token {
    Source::Mailbox.token()
}

/// An event loop's state.
pub(crate) struct Worker {
    index: usize,
    poll: Poll,
    shared: Arc<Shared>,
    counters: Arc<WorkerCounters>,
    mailbox: Arc<Mailbox>,
    listeners: Vec<Listener>,
    /// A listener may have clients that were not accepted for want of file descriptors.
    accept_again: bool,
    accept_turn: usize,
    clients: Slots<Client>,
    upstreams: Slots<Upstream>,
    cancellers: Slots<Canceller>,
    pools: Vec<Pool>,
    pool_of: HashMap<PoolKey, usize>,
    definitions: Definitions,
    /// Clients of session mode that wait to have their connection opened.
    to_open: VecDeque<ClientKey>,
    opening: usize,
    idle: IdleLine,
    admitted: Waker,
    /// Connections opened to servers, which takes a name's addresses in turn.
    connects: u64,
    client_buffer: Box<[u8]>,
    server_buffer: Box<[u8]>,
    spill: Vec<u8>,
    ready_clients: Vec<ClientKey>,
    ready_upstreams: Vec<UpstreamKey>,
    letters: Vec<Letter>,
    /// Limits the lines about clients whose connection was ended.
    endings: LogLimit,
    /// The time at which the current events were received.
    now: Instant,
    next_sweep: Instant,
    /// Set when the worker has been told to stop: when transactions still running are cut off.
    stopping: Option<Instant>,
}

impl Worker {
    /// A worker that accepts on `listeners`, which it registers.
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        poll: Poll,
        mut listeners: Vec<Listener>,
        counters: Arc<WorkerCounters>,
    ) -> io::Result<Worker> {
        for (index, listener) in listeners.iter_mut().enumerate() {
            listener.register(poll.registry(), Source::Listener(index).token())?;
        }
        let now = Instant::now();
        let mailbox = Arc::clone(&shared.mailboxes[index]);
        let post_to = Arc::clone(&mailbox);
        let admitted: Waker = Arc::new(move |token| {
            post_to.post(Letter::Admitted { client: Key::from_bits(token) });
        });
        Ok(Worker {
            index,
            poll,
            shared,
            counters,
            mailbox,
            listeners,
            accept_again: true,
            accept_turn: 0,
            clients: Slots::new(),
            upstreams: Slots::new(),
            cancellers: Slots::new(),
            pools: Vec::new(),
            pool_of: HashMap::new(),
            definitions: Definitions::default(),
            to_open: VecDeque::new(),
            opening: 0,
            idle: IdleLine::default(),
            admitted,
            connects: 0,
            client_buffer: vec![0; READ_LEN].into(),
            server_buffer: vec![0; READ_LEN].into(),
            spill: Vec::new(),
            ready_clients: Vec::new(),
            ready_upstreams: Vec::new(),
            letters: Vec::new(),
            endings: LogLimit::new(now),
            now,
            next_sweep: now + SWEEP_INTERVAL,
            stopping: None,
        })
    }

    /// Runs until told to stop and every client has gone.
    ///
    /// # Errors
    /// Events cannot be waited for.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while !self.is_finished() {
            self.turn(&mut events)?;
        }
        Ok(())
    }

    /// Waits for events and handles them.
    fn turn(&mut self, events: &mut Events) -> io::Result<()> {
        let timeout = if self.mailbox.sleep() { self.leisure() } else { Duration::ZERO };
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        self.mailbox.awake();
        self.now = Instant::now();
        for event in &*events {
            self.event(event);
            self.follow_up();
        }
        self.lend_idle();
        self.read_letters();
        if self.now >= self.next_sweep {
            self.next_sweep = self.now + SWEEP_INTERVAL;
            self.sweep();
            self.follow_up();
        }
        Ok(())
    }

    /// How long the worker may sleep if nothing happens.
    fn leisure(&mut self) -> Duration {
        let until_sweep = self.next_sweep.saturating_duration_since(self.now);
        match self.next_lending() {
            Some(at) => at.saturating_duration_since(Instant::now()).min(until_sweep),
            None => until_sweep,
        }
    }

    fn has_busy_upstream(&self) -> bool {
        self.upstreams.iter().any(|(_, upstream)| upstream.is_busy())
    }

    fn is_finished(&self) -> bool {
        self.stopping.is_some() && self.clients.is_empty() && !self.has_busy_upstream()
    }

    fn event(&mut self, event: &Event) {
        let closed = event.is_read_closed() || event.is_error();
        let readable = event.is_readable() || closed;
        match Source::of(event.token()) {
            Source::Mailbox => {}
            Source::Listener(_) => self.accept_again = true,
            Source::Client(slot) => {
                if event.is_writable() {
                    self.client_writable(slot);
                }
                if readable {
                    self.client_readable(slot, closed);
                }
            }
            Source::Upstream(slot) => {
                if event.is_writable() {
                    self.upstream_writable(slot);
                }
                if readable {
                    self.upstream_readable(slot, closed);
                }
            }
            Source::Canceller(slot) => self.canceller_event(slot, event.is_writable(), readable),
        }
        if self.accept_again {
            self.accept();
        }
    }

    /// Does what events left to be done, until nothing is left.
    fn follow_up(&mut self) {
        loop {
            if let Some(slot) = self.ready_clients.pop() {
                self.resume_client(slot);
            } else if let Some(slot) = self.ready_upstreams.pop() {
                self.pump_upstream(slot);
            } else {
                return;
            }
        }
    }

    fn read_letters(&mut self) {
        let mut letters = std::mem::take(&mut self.letters);
        self.mailbox.take(&mut letters);
        for letter in letters.drain(..) {
            match letter {
                Letter::Admitted { client } => self.admitted(client),
                Letter::Accepted(stream) => self.add_client(stream),
                Letter::Cancel { key, requester } => self.cancel(key, requester),
                Letter::CancelEnded { client } => self.cancel_answered(client),
                Letter::Discounted(holder) => self.warn_of_holder(&holder),
                Letter::Shutdown { deadline } => self.begin_shutdown(deadline),
            }
            self.follow_up();
        }
        self.letters = letters;
    }

    /// Accepts all clients that knock and shares them out among the workers in turn.
    fn accept(&mut self) {
        self.accept_again = false;
        for index in 0..self.listeners.len() {
            loop {
                match self.listeners[index].accept() {
                    Ok(stream) => self.place(stream),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        // Out of file descriptors, most likely: they knock on until the next sweep.
                        tracing::warn!(%error, "cannot accept a client now");
                        self.accept_again = true;
                        break;
                    }
                }
            }
        }
    }

    fn place(&mut self, stream: Stream) {
        let worker = self.accept_turn;
        self.accept_turn = (worker + 1) % self.shared.mailboxes.len();
        if worker == self.index {
            self.add_client(stream);
        } else {
            self.shared.mailboxes[worker].post(Letter::Accepted(stream));
        }
    }

    fn add_client(&mut self, stream: Stream) {
        if self.stopping.is_some() {
            return;
        }
        self.counters.connections_accepted.fetch_add(1, Ordering::Relaxed);
        let (registry, now, index) = (self.poll.registry(), self.now, self.index);
        let inserted = self.clients.insert_with(|slot| {
            let mut stream = stream;
            stream.register(registry, Source::Client(slot).token())?;
            Ok(Client::new(stream, new_cancel_key(index, slot)?, now))
        });
        if let Err(error) = inserted {
            tracing::warn!(%error, "a client is turned away");
        }
    }

    /// Lets the client go on with what it sent already, once the current event has been handled.
    fn resume_later(&mut self, slot: ClientKey) {
        self.ready_clients.push(slot);
    }

    fn begin_shutdown(&mut self, deadline: Instant) {
        self.stopping = Some(deadline);
        self.listeners.clear();
        self.next_sweep = self.now;
        for slot in self.clients.keys() {
            // The last two end by themselves, soon.
            let goes_on = matches!(
                self.clients[slot].phase,
                Phase::Running | Phase::Cancelling | Phase::Closing
            );
            if !goes_on {
                self.say_goodbye(slot);
            }
        }
        for slot in self.upstreams.keys() {
            if !self.upstreams[slot].is_busy() {
                self.close_upstream(slot);
            }
        }
    }

    fn say_goodbye(&mut self, slot: ClientKey) {
        let message = "terminating connection because Tidegate is shutting down";
        self.end_client(slot, Severity::Fatal, SqlState::ADMIN_SHUTDOWN, message);
    }

    /// Looks at every timeout. Nothing here is on the path of a transaction that goes well.
    fn sweep(&mut self) {
        self.sweep_clients();
        self.sweep_upstreams();
        self.sweep_refused();
        self.sweep_cancellers();
        self.definitions.sweep();
        if let Some(more) = self.endings.unreported(self.now) {
            tracing::info!(more, "client connections ended, not logged one by one");
        }
        if self.accept_again {
            self.accept();
        }
        self.read_letters();
        if self.stopping.is_some_and(|deadline| deadline <= self.now) {
            self.cut_off();
        }
        self.publish_counts();
    }

    /// The grace time is over.
    fn cut_off(&mut self) {
        for slot in self.clients.keys() {
            self.say_goodbye(slot);
        }
        for slot in self.clients.keys() {
            self.remove_client(slot);
        }
        for slot in self.upstreams.keys() {
            self.close_upstream(slot);
        }
    }

    fn publish_counts(&self) {
        let idle: usize = self.pools.iter().map(|pool| pool.idle.len()).sum();
        let busy = self.upstreams.iter().filter(|(_, upstream)| upstream.is_busy()).count();
        self.counters.clients.store(self.clients.len() as u64, Ordering::Relaxed);
        self.counters.upstreams_open.store(self.upstreams.len() as u64, Ordering::Relaxed);
        self.counters.upstreams_idle.store(idle as u64, Ordering::Relaxed);
        self.counters.upstreams_busy.store(busy as u64, Ordering::Relaxed);
    }
}

/// A cancel key whose process id says where the client is to be found.
fn new_cancel_key(worker: usize, client: ClientKey) -> io::Result<CancelKey> {
    let mut secret = [0; 4];
    getrandom::fill(&mut secret)
        .map_err(|error| io::Error::other(format!("no randomness for a cancel key: {error}")))?;
    let worker = u32::try_from(worker).map_err(io::Error::other)?;
    // From 1: some drivers take process 0 for "cannot be cancelled".
    let process_id = worker << INDEX_BITS | (client.index() + 1);
    Ok(CancelKey { process_id, secret: u32::from_ne_bytes(secret) })
}

#[cfg(test)]
mod tests;
