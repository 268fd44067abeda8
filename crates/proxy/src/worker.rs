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
//! readable client -> process: FirstPacket -> Authenticating -> AwaitingParameters -> Idle
//!                             Idle -> (gate) -> Queued -> AwaitingUpstream -> Running
//! readable upstream -> ReadyForQuery, idle, nothing owed -> permit back -> client Idle
//! ```
//!
//! Work that follows from an event but belongs to another connection is put on a list
//! ([`FollowUps`]) and done when the event has been handled, so that no handler is ever entered
//! twice and the read buffers have one user at a time.
//!
//! # Parts
//!
//! Each part owns its fields; [`Worker`] is the loop that ties them together.
//!
//! - [`Acceptor`]: the listening sockets.
//! - [`Slots<Client>`](Slots): the clients, each with its state.
//! - [`Upstreams`]: the connections to servers and their pools.
//! - [`CancelRequests`]: cancel requests on their way.
//! - [`IdleTransactions`]: clients that are idle inside their transactions.
//! - [`FollowUps`]: the work that an event has left for later.
//! - [`Definitions`]: the statements that clients have prepared.
//! - [`Applicants`]: the clients that have not logged in.
//!
//! What the loop does with them is in `logins` (a client up to its first transaction), `applicants`
//! (that there are not too many of them, and inquiries about them), `clients`
//! (a client's messages), `classes` (of which class a transaction is), `transactions` (from the
//! request of a permit to its return), `upstreams`
//! (opening connections, a server's messages), `cancels` (transactions whose client has gone, and
//! cancel requests), `session_state` (what clients of transaction mode leave behind), `outages`
//! (what waits while a server cannot be reached), `rested` (whether idle connections can still be
//! lent), `places` (which connections are opened, kept and given up), `overdue` (warnings of
//! transactions that no longer count), `console` (clients of the console), `orders` (what an
//! administrator has ordered), `report` (who is connected), `timeouts` (clients that take too
//! long), `leaving` and `arriving` (what another process takes over, or had).

mod applicants;
mod arriving;
mod cancels;
mod classes;
mod clients;
mod console;
mod leaving;
mod logins;
mod orders;
mod outages;
mod overdue;
mod places;
mod reconfiguration;
mod report;
mod rested;
mod session_state;
mod timeouts;
mod transactions;
mod upstreams;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Events, Poll, Registry, Token};
use tidegate_gate::Waker;
use tidegate_wire::error_response::{Severity, SqlState};

use crate::cancel_key::ClientKey;
#[cfg(debug_assertions)]
use crate::client::TransactionState;
use crate::client::{Arrival, Client, ClientSlot, ClientState};
use crate::log_limit::LogLimit;
use crate::mailbox::{Mailbox, Message};
use crate::metrics::WorkerCounters;
use crate::net::{Listener, Stream};
use crate::replies::StatementId;
use crate::scheduling::expected::ExpectedTimes;
use crate::shared::{InForce, Shared};
use crate::slots::{Slot, Slots, WorkerIndex};
use crate::statements::{Definitions, Statement};
use crate::upstream::{Upstream, UpstreamSlot, Upstreams};

use applicants::Applicants;
use cancels::{CancelRequestSlot, CancelRequests};
use leaving::Leaving;
use outages::Outages;
pub(crate) use overdue::{OverdueHolder, OverdueWarnings};
use transactions::IdleTransactions;

/// Bytes read from a socket at once.
const READ_LEN: usize = 64 * 1024;

/// Timeouts are checked this often.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Mailbox,
    Listener(usize),
    Client(ClientSlot),
    Upstream(UpstreamSlot),
    CancelRequest(CancelRequestSlot),
}

// A token holds a slot's 56 bits and two that tell the kinds apart.
const _: () = assert!(usize::BITS >= 64, "tokens of 64 bits are needed");

/// Returns a poll token that names one connection and none that comes after it, so that an event
/// which was received before the connection ended finds nothing.
#[expect(clippy::cast_possible_truncation, reason = "asserted above: usize has 64 bits")]
fn slot_token<T>(slot: Slot<T>, kind: usize) -> usize {
    (slot.to_bits() as usize) << 2 | kind
}

impl Source {
    fn token(self) -> Token {
        Token(match self {
            Source::Mailbox => 0,
            Source::Listener(index) => (index + 1) << 2,
            Source::Client(slot) => slot_token(slot, 1),
            Source::Upstream(slot) => slot_token(slot, 2),
            Source::CancelRequest(slot) => slot_token(slot, 3),
        })
    }

    fn of(token: Token) -> Source {
        let (number, kind) = (token.0 >> 2, token.0 & 3);
        let bits = number as u64;
        match kind {
            0 if number == 0 => Source::Mailbox,
            0 => Source::Listener(number - 1),
            1 => Source::Client(Slot::from_bits(bits)),
            2 => Source::Upstream(Slot::from_bits(bits)),
            _ => Source::CancelRequest(Slot::from_bits(bits)),
        }
    }
}

/// Returns the number above which the statements of an event loop are: no other event loop has
/// these, nor has one of a process before or behind this one, so that a connection with prepared
/// statements can be passed between them.
fn statement_base(generation: u64, worker: WorkerIndex) -> u64 {
    (generation << 6 | worker.0 as u64) << 32
}

/// Returns the token that wakes the loop of a worker.
pub(crate) fn mailbox_token() -> Token {
    Source::Mailbox.token()
}

/// The listening sockets of an event loop.
struct Acceptor {
    /// Each with its number.
    listeners: Vec<(usize, Listener)>,
    /// A listener may have clients that were not accepted, perhaps for want of file descriptors.
    is_pending: bool,
    next_worker: usize,
}

impl Acceptor {
    fn new(listeners: Vec<(usize, Listener)>, poll: &Poll) -> io::Result<Acceptor> {
        let mut acceptor = Acceptor { listeners: Vec::new(), is_pending: true, next_worker: 0 };
        for (number, listener) in listeners {
            acceptor.add(number, listener, poll)?;
        }
        Ok(acceptor)
    }

    /// Accepts on one more socket.
    fn add(&mut self, number: usize, mut listener: Listener, poll: &Poll) -> io::Result<()> {
        listener.register(poll.registry(), Source::Listener(number).token())?;
        self.listeners.push((number, listener));
        // Clients may have come before.
        self.is_pending = true;
        Ok(())
    }

    /// Accepts all clients that wait for it.
    fn accept_all(&mut self, unreachable: Option<Duration>) -> Vec<Stream> {
        self.is_pending = false;
        let mut accepted = Vec::new();
        for (_, listener) in &self.listeners {
            loop {
                match listener.accept(unreachable) {
                    Ok(stream) => accepted.push(stream),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        // Out of file descriptors, most likely: they wait until the next sweep.
                        tracing::warn!(%error, "cannot accept a client now");
                        self.is_pending = true;
                        break;
                    }
                }
            }
        }
        accepted
    }

    /// Accepts none any more, for as long as the sockets are another process's.
    fn pause(&mut self, registry: &Registry) {
        self.is_pending = false;
        for (_, listener) in &mut self.listeners {
            if let Err(error) = listener.deregister(registry) {
                tracing::debug!(%error, "a listening socket was not watched");
            }
        }
    }

    /// Accepts again.
    fn resume(&mut self, poll: &Poll) {
        for (number, listener) in std::mem::take(&mut self.listeners) {
            if let Err(error) = self.add(number, listener, poll) {
                tracing::error!(%error, "cannot listen again");
            }
        }
    }

    /// Returns the event loop whose turn it is to get a client.
    fn take_turn(&mut self, workers: usize) -> WorkerIndex {
        let worker = self.next_worker;
        self.next_worker = (worker + 1) % workers;
        WorkerIndex(worker)
    }
}

/// What remains to be done when the current event has been handled.
#[derive(Default)]
struct FollowUps {
    /// Clients whose input may go on.
    clients: Vec<ClientSlot>,
    /// Servers whose output may go on.
    upstreams: Vec<UpstreamSlot>,
}

enum FollowUp {
    Client(ClientSlot),
    Upstream(UpstreamSlot),
}

impl FollowUps {
    /// Lets the client go on with what it sent already.
    fn resume_client(&mut self, slot: ClientSlot) {
        self.clients.push(slot);
    }

    /// Lets the server go on with what it sent already.
    fn resume_upstream(&mut self, slot: UpstreamSlot) {
        self.upstreams.push(slot);
    }

    fn pop(&mut self) -> Option<FollowUp> {
        let client = self.clients.pop().map(FollowUp::Client);
        client.or_else(|| self.upstreams.pop().map(FollowUp::Upstream))
    }
}

/// Memory that all connections of an event loop use in turn.
struct Buffers {
    from_client: Box<[u8]>,
    from_server: Box<[u8]>,
    /// Messages that are changed on their way.
    changed: Vec<u8>,
}

/// An event loop.
pub(crate) struct Worker {
    index: WorkerIndex,
    /// The configuration that the loop goes by.
    shared: Arc<Shared>,
    in_force: Arc<InForce>,
    counters: Arc<WorkerCounters>,
    poll: Poll,
    mailbox: Arc<Mailbox>,
    messages: Vec<Message>,
    acceptor: Acceptor,
    clients: Slots<Client>,
    upstreams: Upstreams,
    cancel_requests: CancelRequests,
    applicants: Applicants,
    idle_transactions: IdleTransactions,
    definitions: Definitions,
    /// For classes in the order of expected times.
    expected_times: ExpectedTimes,
    /// The statements of clients that another process passes, by its numbers.
    adopted_statements: HashMap<StatementId, Arc<Statement>>,
    /// Set while another process takes over.
    leaving: Option<Leaving>,
    outages: Outages,
    follow_ups: FollowUps,
    buffers: Buffers,
    /// Tells this loop that a ticket can be claimed.
    admitted: Waker,
    /// Limits the lines about clients whose connection was ended.
    endings: LogLimit,
    /// Limits the lines about session state that was removed.
    session_warnings: LogLimit,
    /// The time at which the current events were received.
    now: Instant,
    next_sweep: Instant,
    /// Set when the loop has been told to stop: when transactions still running are cut off.
    stopping: Option<Instant>,
    /// The version of the orders that are obeyed.
    orders_version: u64,
}

impl Worker {
    /// Makes an event loop that accepts on `listeners`, which it registers.
    pub(crate) fn new(
        index: WorkerIndex,
        in_force: Arc<InForce>,
        poll: Poll,
        listeners: Vec<(usize, Listener)>,
        counters: Arc<WorkerCounters>,
    ) -> io::Result<Worker> {
        let (now, shared) = (Instant::now(), in_force.get());
        let applicants_max = applicants::max(&shared.config);
        let mailbox = Arc::clone(&shared.mailboxes[index.0]);
        let post_to = Arc::clone(&mailbox);
        let admitted: Waker = Arc::new(move |token| {
            post_to.post(Message::Admitted { client: Slot::from_bits(token) });
        });
        Ok(Worker {
            index,
            acceptor: Acceptor::new(listeners, &poll)?,
            poll,
            outages: Outages::new(now),
            in_force,
            counters,
            mailbox,
            messages: Vec::new(),
            clients: Slots::new(),
            upstreams: Upstreams::new(),
            cancel_requests: CancelRequests::new(),
            applicants: Applicants::new(applicants_max),
            idle_transactions: IdleTransactions::default(),
            definitions: Definitions::above(statement_base(shared.handover.generation, index)),
            adopted_statements: HashMap::new(),
            leaving: None,
            expected_times: ExpectedTimes::default(),
            follow_ups: FollowUps::default(),
            buffers: Buffers {
                from_client: vec![0; READ_LEN].into(),
                from_server: vec![0; READ_LEN].into(),
                changed: Vec::new(),
            },
            admitted,
            endings: LogLimit::new(now),
            session_warnings: LogLimit::new(now),
            now,
            next_sweep: now + SWEEP_INTERVAL,
            stopping: None,
            orders_version: 0,
            shared,
        })
    }

    /// Runs until told to stop and every client has gone.
    ///
    /// # Errors
    /// Events cannot be waited for.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        if !self.shared.handover.is_arriving() {
            self.make_kept_pools();
        }
        while !self.is_finished() {
            self.turn(&mut events)?;
        }
        Ok(())
    }

    /// Waits for events and handles them.
    fn turn(&mut self, events: &mut Events) -> io::Result<()> {
        let timeout = if self.mailbox.sleep() { self.time_to_sleep() } else { Duration::ZERO };
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        self.mailbox.awake();
        let turns = self.counters.turns.load(Ordering::Relaxed);
        self.counters.turns.store(turns.wrapping_add(1), Ordering::Relaxed);
        self.now = Instant::now();
        self.look_for_configuration();
        self.follow_up();
        self.lose_closed(events);
        for event in &*events {
            self.handle_event(event);
            self.follow_up();
        }
        self.lend_idle();
        self.handle_messages();
        self.retry_openings();
        self.follow_up();
        if self.now >= self.next_sweep {
            self.next_sweep = self.now + SWEEP_INTERVAL;
            self.sweep();
            self.follow_up();
        }
        self.report_order_ends();
        self.pass_on();
        #[cfg(debug_assertions)]
        self.check();
        Ok(())
    }

    /// Returns how long the loop may sleep if nothing happens.
    fn time_to_sleep(&mut self) -> Duration {
        if self.leaving.as_ref().is_some_and(|leaving| leaving.has_more) {
            return Duration::ZERO;
        }
        let until_sweep = self.next_sweep.saturating_duration_since(self.now);
        let next = self.next_lending().into_iter().chain(self.outages.retry_at()).min();
        match next {
            Some(at) => at.saturating_duration_since(Instant::now()).min(until_sweep),
            None => until_sweep,
        }
    }

    fn is_finished(&self) -> bool {
        self.stopping.is_some() && self.clients.is_empty() && self.upstreams.busy() == 0
    }

    fn handle_event(&mut self, event: &Event) {
        let closed = event.is_read_closed() || event.is_error();
        let readable = event.is_readable() || closed;
        match Source::of(event.token()) {
            Source::Mailbox => {}
            Source::Listener(_) => self.acceptor.is_pending = true,
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
            Source::CancelRequest(slot) => {
                self.cancel_request_event(slot, event.is_writable(), readable);
            }
        }
        if self.acceptor.is_pending {
            self.accept();
        }
    }

    /// Does what events left to be done, until nothing is left.
    fn follow_up(&mut self) {
        while let Some(follow_up) = self.follow_ups.pop() {
            match follow_up {
                FollowUp::Client(slot) => self.resume_client(slot),
                FollowUp::Upstream(slot) => self.read_upstream(slot),
            }
        }
    }

    fn handle_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.mailbox.take(&mut messages);
        // Who has sent one may go by a newer configuration.
        self.look_for_configuration();
        self.follow_up();
        for message in messages.drain(..) {
            match message {
                Message::Admitted { client } => self.admitted(client),
                Message::Accepted(stream) => self.add_client(stream, Arrival::Accepted),
                Message::Forwarded(stream) => self.add_client(stream, Arrival::Forwarded),
                Message::Cancel { key, requester } => self.cancel(&key, requester),
                Message::CancelEnded { client } => self.remove_client(client),
                Message::LookedUp { client, looked_up } => self.looked_up(client, looked_up),
                Message::SystemUser { client, name } => self.system_user(client, name.as_deref()),
                Message::Discounted(holder) => self.warn_of_overdue(&holder),
                Message::Place { pool, place } => self.place_given(pool, place),
                Message::GiveUpIdle { asked } => self.asked_for_idle(asked),
                Message::KeepOpen { key } => self.pool_announced(&key),
                Message::ServerBack => self.outages.retry_by(Some(self.now)),
                Message::Ordered => self.obey_orders(),
                // It has been taken over.
                Message::Reconfigured => {}
                Message::Listeners { opened, closed } => self.change_listeners(opened, &closed),
                Message::Kill { scope } => self.kill_clients(&scope),
                Message::KillClient { id, found } => {
                    if self.kill_client(id) {
                        // Who asked may wait no longer.
                        let _ = found.send(());
                    }
                }
                Message::ConsoleAnswer { client, bytes } => self.console_answered(client, &bytes),
                Message::Report { to } => {
                    // Who asked may wait no longer.
                    let _ = to.send(self.report());
                }
                Message::Adopt(adoption) => self.adopt(*adoption),
                Message::Arrived => self.arrived(),
                Message::Leave(successor) => self.leave(successor),
                Message::PassOn => self.begin_to_pass(),
                Message::Passed { number } => self.passed(number),
                Message::Stay => self.stay(),
                Message::CancelAdopted { client, key, requester } => {
                    self.cancel_client(client, &key, requester);
                }
                Message::ReportBusy(inquiry) => inquiry.answer(self.busy(inquiry.most)),
                Message::Shutdown { deadline } => self.begin_shutdown(deadline),
            }
            self.follow_up();
        }
        self.messages = messages;
    }

    /// Accepts on other sockets from now on.
    fn change_listeners(&mut self, opened: Vec<(usize, Listener)>, closed: &[usize]) {
        // Who waits on one that is closed is served.
        self.accept();
        self.acceptor.listeners.retain(|(number, _)| !closed.contains(number));
        if self.stopping.is_some() {
            return;
        }
        for (number, listener) in opened {
            if let Err(error) = self.acceptor.add(number, listener, &self.poll) {
                tracing::error!(%error, "cannot accept on a new address");
            }
        }
        self.accept();
    }

    /// Accepts all clients that wait for it and shares them out among the event loops in turn.
    fn accept(&mut self) {
        for stream in self.acceptor.accept_all(self.shared.config.timeouts.unreachable) {
            let worker = self.acceptor.take_turn(self.shared.mailboxes.len());
            if worker == self.index {
                self.add_client(stream, Arrival::Accepted);
            } else {
                self.shared.mailboxes[worker.0].post(Message::Accepted(stream));
            }
        }
    }

    fn add_client(&mut self, stream: Stream, arrival: Arrival) {
        if self.stopping.is_some() {
            return;
        }
        self.counters.connections_accepted.fetch_add(1, Ordering::Relaxed);
        let (registry, now, index) = (self.poll.registry(), self.now, self.index);
        let peer = self.shared.config.peers.id;
        let id = self.shared.commands.next_id();
        let inserted = self.clients.insert_with(|slot| {
            let mut stream = stream;
            stream.register(registry, Source::Client(slot).token())?;
            let key = ClientKey::new(peer, index, slot)?;
            Ok(Client::new((id, arrival), stream, key, now))
        });
        match inserted {
            Ok(client) => self.add_applicant(client),
            Err(error) => tracing::warn!(%error, "a client is turned away"),
        }
    }

    fn begin_shutdown(&mut self, deadline: Instant) {
        self.stopping = Some(deadline);
        self.shared.accounts.upstreams.close_line();
        self.acceptor.listeners.clear();
        self.next_sweep = self.now;
        for slot in self.clients.slots() {
            // The other two end by themselves, soon.
            let replicates = |client: &Client| {
                let pool = client.account().map(|account| account.pool);
                pool.is_some_and(|pool| self.upstreams[pool].is_for_replication())
            };
            let goes_on = self.clients.get(slot).is_some_and(|client| {
                (client.running().is_some() && !replicates(client))
                    || matches!(
                        client.state,
                        ClientState::Cancelling { .. }
                            | ClientState::Closing { .. }
                            | ClientState::Passing(_)
                    )
            });
            if !goes_on {
                self.end_for_shutdown(slot);
            }
        }
        for slot in self.upstreams.slots() {
            let is_unused = |upstream: &Upstream| !upstream.is_busy() && !upstream.is_passing();
            if self.upstreams.get(slot).is_some_and(is_unused) {
                self.close_upstream(slot);
            }
        }
    }

    fn end_for_shutdown(&mut self, slot: ClientSlot) {
        let message = "terminating connection because Tidegate is shutting down";
        self.end_client(slot, Severity::Fatal, SqlState::ADMIN_SHUTDOWN, message);
    }

    /// Checks every timeout. Nothing here is on the path of a transaction that goes well.
    fn sweep(&mut self) {
        self.sweep_clients();
        self.sweep_upstreams();
        self.sweep_rested();
        self.sweep_outages();
        self.sweep_refused();
        if self.stopping.is_none() {
            self.sweep_places();
            self.sweep_retired();
        }
        self.sweep_cancel_requests();
        self.definitions.sweep();
        if let Some(more) = self.endings.unreported(self.now) {
            tracing::info!(more, "client connections ended, not logged one by one");
        }
        if let Some(more) = self.session_warnings.unreported(self.now) {
            tracing::warn!(more, "transactions whose session state was removed, not logged");
        }
        if self.acceptor.is_pending {
            self.accept();
        }
        self.handle_messages();
        if self.stopping.is_some_and(|deadline| deadline <= self.now) {
            self.cut_off();
        }
        self.publish_counts();
    }

    /// Ends everything: the grace time is over.
    fn cut_off(&mut self) {
        for slot in self.clients.slots() {
            self.end_for_shutdown(slot);
        }
        for slot in self.clients.slots() {
            self.remove_client(slot);
        }
        for slot in self.upstreams.slots() {
            self.close_upstream(slot);
        }
    }

    fn publish_counts(&self) {
        let counts = [
            (&self.counters.clients, self.clients.len()),
            (&self.counters.upstreams_open, self.upstreams.open_count()),
            (&self.counters.upstreams_idle, self.upstreams.idle()),
            (&self.counters.upstreams_busy, self.upstreams.busy()),
            (&self.counters.clients_pinned, self.upstreams.pinned()),
        ];
        for (counter, count) in counts {
            counter.store(count as u64, Ordering::Relaxed);
        }
        self.publish_held();
    }

    /// Checks what has to hold between two events. With many connections it would take too long.
    #[cfg(debug_assertions)]
    fn check(&self) {
        if self.clients.len() + self.upstreams.len() > 64 {
            return;
        }
        self.upstreams.check();
        self.cancel_requests.check(&self.upstreams);
        self.applicants.check(self.clients.iter().filter(|(_, it)| it.is_applicant).count());
        for (slot, client) in self.clients.iter() {
            let Some(upstream) = client.upstream() else { continue };
            let holder = self.upstreams.get(upstream).map(Upstream::client);
            assert_eq!(holder, Some(Some(slot)), "the connection {upstream:?} of client {slot:?}");
        }
        for (slot, upstream) in self.upstreams.iter() {
            let Some(client) = upstream.client() else { continue };
            let lent = self.clients.get(client).map(Client::upstream);
            assert_eq!(lent, Some(Some(slot)), "the client {client:?} of connection {slot:?}");
            if upstream.is_busy() {
                assert!(self.clients[client].running().is_some(), "{client:?} runs nothing");
            }
        }
        for (slot, client) in self.clients.iter() {
            if let (Some(TransactionState::AwaitingUpstream(_)), Some(account)) =
                (client.transaction(), client.account())
            {
                let waits = self.upstreams[account.pool].waiting.contains(&slot);
                assert!(waits, "{slot:?} waits for a connection and is in no line");
            }
        }
    }
}

#[cfg(test)]
mod tests;
