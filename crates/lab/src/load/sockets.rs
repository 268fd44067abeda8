//! Clients on sockets: connected, served and counted.
//!
//! A client has a connection for each class of the load's transactions, because a proxy knows the
//! class by the connection; see [`classes`](super::classes). Connections are told apart by number,
//! which is their token. A client that loses one of them is lost.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use mio::event::Event as Readiness;
use mio::{Events, Poll};
use tidegate_gate::Class;
use tidegate_workload::Failure;

use super::classes::ClientConnection;
use super::client::{Loss, Shared, SocketClient};
use super::dispatcher::Dispatcher;
use super::load_run::{Crowd, Losses};
use super::protocol::Server;
use super::{Connecting, LoadError, LoadOptions, Refusal, Stage};

/// Logins under way at once when nothing is said: enough to hide round trips, few enough not to
/// overrun a server that starts a process for each.
const HANDSHAKES: usize = 64;

/// Pause after a refused login before the next is tried.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

const EVENTS: usize = 256;

/// Codes of a server that may let us in later: too many connections, starting up; MariaDB's too
/// many connections.
const TRY_LATER: [&str; 3] = ["53300", "57P03", "1040"];

/// All clients, and the events that came last.
pub(super) struct Sockets<'a> {
    events: Events,
    connections: Connections<'a>,
}

struct Connections<'a> {
    options: &'a LoadOptions<'a>,
    server: Server,
    poll: Poll,
    /// By token; `None` when not connected.
    clients: Vec<Option<SocketClient>>,
    /// Those that each client has a connection for.
    classes: &'static [Class],
    shared: Shared,
    /// Connections to be made, in order.
    waiting: VecDeque<usize>,
    handshakes: usize,
    /// How many there may be.
    handshakes_max: usize,
    logged_in: usize,
    connect_retries: u64,
    losses: Losses,
    last_refusal: Option<Refusal>,
    /// How long the clients may take to connect, and until when.
    connect_timeout: Duration,
    deadline: Instant,
    /// No login is begun before this.
    pause_until: Instant,
}

impl<'a> Sockets<'a> {
    /// Clients of a server, none of them connected.
    pub(super) fn new(
        options: &'a LoadOptions<'a>,
        server: Server,
        connecting: Connecting,
    ) -> Result<Self, LoadError> {
        let now = Instant::now();
        let dispatcher = Dispatcher::new(options);
        let classes = dispatcher.classes();
        let count = options.clients * classes.len();
        let connections = Connections {
            options,
            server,
            poll: Poll::new().map_err(LoadError::Poll)?,
            clients: (0..count).map(|_| None).collect(),
            classes,
            shared: Shared::new(dispatcher),
            waiting: (0..count).collect(),
            handshakes: 0,
            handshakes_max: connecting.at_once.map_or(HANDSHAKES, NonZeroUsize::get),
            logged_in: 0,
            connect_retries: 0,
            losses: Losses::default(),
            last_refusal: None,
            connect_timeout: connecting.timeout,
            deadline: now + connecting.timeout,
            pause_until: now,
        };
        Ok(Sockets { events: Events::with_capacity(EVENTS), connections })
    }
}

impl Crowd for Sockets<'_> {
    fn gather(&mut self) -> Result<bool, LoadError> {
        self.connections.gather()
    }

    fn start(&mut self) {
        self.connections.start_all();
    }

    fn dispatcher(&mut self) -> &mut Dispatcher {
        &mut self.connections.shared.dispatcher
    }

    fn enter(&mut self, stage: Stage) {
        self.connections.shared.dispatcher.tally.stage = stage;
        if stage == Stage::Draining {
            self.connections.close_idle();
        }
    }

    fn turn(&mut self, timeout: Duration) -> Result<(), LoadError> {
        let timeout = self.connections.begin_due(timeout);
        match self.connections.poll.poll(&mut self.events, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(LoadError::Poll(error)),
        }
        self.events.iter().try_for_each(|event| self.connections.serve(event))?;
        self.connections.begin_due(Duration::ZERO);
        Ok(())
    }

    fn alive(&self) -> usize {
        let connections = &self.connections;
        connections.logged_in.div_ceil(connections.classes.len())
    }

    fn busy(&self, now: Instant) -> (usize, Duration) {
        let busy = self.connections.clients.iter().flatten().filter(|client| client.is_busy());
        let ages = busy.map(|client| client.age(now));
        ages.fold((0, Duration::ZERO), |(count, oldest), age| (count + 1, oldest.max(age)))
    }

    fn losses(&self) -> &Losses {
        &self.connections.losses
    }

    fn connect_retries(&self) -> u64 {
        self.connections.connect_retries
    }

    fn connects_at_once(&self) -> Option<usize> {
        Some(self.connections.handshakes_max.min(self.connections.clients.len()))
    }
}

impl Connections<'_> {
    fn gather(&mut self) -> Result<bool, LoadError> {
        if self.logged_in == self.clients.len() {
            return Ok(true);
        }
        if Instant::now() >= self.deadline {
            let reason = self.last_refusal.take().unwrap_or(Refusal::Silent);
            return Err(self.not_all_connected(reason));
        }
        self.open_more()?;
        Ok(false)
    }

    fn not_all_connected(&self, reason: Refusal) -> LoadError {
        if self.logged_in == 0 {
            return LoadError::Connect { place: self.server.url.to_string(), reason };
        }
        LoadError::NotAllConnected {
            connected: self.logged_in / self.classes.len(),
            clients: self.options.clients,
            timeout: self.connect_timeout,
            reason,
        }
    }

    fn open_more(&mut self) -> Result<(), LoadError> {
        while self.handshakes < self.handshakes_max && Instant::now() >= self.pause_until {
            let Some(index) = self.waiting.pop_front() else {
                break;
            };
            self.handshakes += 1;
            let connection = ClientConnection::of(index, self.classes);
            match SocketClient::open(&self.server, connection, &self.poll, index) {
                Ok(client) => self.clients[index] = Some(client),
                Err(error) => self.refused(index, Refusal::Io(error))?,
            }
        }
        Ok(())
    }

    /// A client could not log in: it is put back in line when others got in, else all is over.
    fn refused(&mut self, index: usize, reason: Refusal) -> Result<(), LoadError> {
        self.handshakes -= 1;
        self.clients[index] = None;
        if self.logged_in == 0 || !reason.may_pass() {
            return Err(self.not_all_connected(reason));
        }
        self.last_refusal = Some(reason);
        self.connect_retries += 1;
        self.waiting.push_back(index);
        self.pause_until = Instant::now() + RETRY_PAUSE;
        Ok(())
    }

    /// Lets each client look for something to do, on its first connection.
    fn start_all(&mut self) {
        for index in (0..self.clients.len()).step_by(self.classes.len()) {
            let Some(client) = &mut self.clients[index] else {
                continue;
            };
            if let Err(loss) = client.start(&mut self.shared.dispatcher) {
                self.lost(index, loss);
            }
        }
    }

    /// Lets those begin who have waited and are to begin; how long to wait for the next of them, at
    /// most `longest`.
    fn begin_due(&mut self, longest: Duration) -> Duration {
        let now = Instant::now();
        while let Some(task) = self.shared.dispatcher.due(now) {
            let connection = ClientConnection { client: task.client, class: task.class };
            let index = connection.number(self.classes);
            let Some(Some(client)) = self.clients.get_mut(index) else { continue };
            if let Err(loss) = client.begin(task, &mut self.shared.dispatcher) {
                self.lost(index, loss);
            }
        }
        self.shared.dispatcher.wait(now, longest)
    }

    /// Sends those home who wait for a transaction.
    fn close_idle(&mut self) {
        for index in 0..self.clients.len() {
            let Some(client) = &mut self.clients[index] else { continue };
            let outcome = client.close();
            if outcome.is_err() || client.is_done() {
                self.clients[index] = None;
                self.logged_in -= 1;
            }
        }
    }

    fn serve(&mut self, event: &Readiness) -> Result<(), LoadError> {
        let index = event.token().0;
        let Some(Some(client)) = self.clients.get_mut(index) else {
            return Ok(());
        };
        let was_logged_in = client.is_logged_in();
        let outcome = client.on_readiness(event, &mut self.shared, &self.poll, index);
        let is_done = client.is_done();
        let is_logged_in = client.is_logged_in();
        match outcome {
            Ok(()) if is_done => {
                self.clients[index] = None;
                self.logged_in -= 1;
                Ok(())
            }
            Ok(()) => {
                if is_logged_in && !was_logged_in {
                    self.handshakes -= 1;
                    self.logged_in += 1;
                }
                Ok(())
            }
            Err(loss) if self.shared.dispatcher.tally.stage == Stage::Connecting => {
                self.lost_while_connecting(index, was_logged_in, loss)
            }
            Err(loss) => {
                self.lost(index, loss);
                Ok(())
            }
        }
    }

    fn lost_while_connecting(
        &mut self,
        index: usize,
        was_logged_in: bool,
        loss: Loss,
    ) -> Result<(), LoadError> {
        if was_logged_in {
            self.logged_in -= 1;
            self.handshakes += 1;
        }
        let failure = self.clients[index].as_mut().and_then(SocketClient::take_failure);
        let reason = match (failure, loss) {
            (Some(failure), _) => Refusal::Server(failure),
            (None, Loss::Closed) => Refusal::Closed,
            (None, Loss::Io(error)) => Refusal::Io(error),
            (None, Loss::Protocol(error)) => Refusal::Protocol(error),
        };
        self.refused(index, reason)
    }

    /// A client has lost a connection, and leaves with its others.
    fn lost(&mut self, index: usize, loss: Loss) {
        let client = self.clients[index].take();
        self.logged_in -= 1;
        let number = ClientConnection::of(index, self.classes).client;
        for class in self.classes {
            let other = ClientConnection { client: number, class: *class }.number(self.classes);
            if self.clients[other].take().is_some() {
                self.logged_in -= 1;
            }
        }
        // One that waited for its next transaction is not to be given it.
        self.shared.dispatcher.lost(number);
        self.losses.add(|| match (client.and_then(|mut client| client.take_failure()), loss) {
            (Some(failure), _) => failure.to_string(),
            (None, Loss::Closed) => "the server closed the connection".to_owned(),
            (None, Loss::Io(error)) => error.to_string(),
            (None, Loss::Protocol(error)) => error.to_string(),
        });
    }
}

impl Refusal {
    /// Whether another attempt may succeed once others are through.
    fn may_pass(&self) -> bool {
        match self {
            Refusal::Server(Failure::Refused { code, .. }) => TRY_LATER.contains(&code.as_str()),
            Refusal::Io(_) | Refusal::Closed | Refusal::Silent => true,
            Refusal::Server(_) | Refusal::Protocol(_) => false,
        }
    }
}
