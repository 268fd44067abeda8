//! The thread that owns all sockets.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::server::Server;
use crate::server::protocol::{GoodbyeReason, Request};
use crate::server::socket::{Acceptor, Socket};

use super::ListenerOptions;
use super::connection::Connection;
use super::mailbox::{Letter, Mailbox};
use super::poller::{Event, Events, Interest, Poller, Token};

/// Bytes read from a socket at once.
const READ_LEN: usize = 64 * 1024;

/// How often timeouts are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// Connections accepted before the others have their turn. A client that is turned away and tries
/// again at once may come several times in one turn, which is why this is well below
/// [`TURNED_AWAY_MAX`].
const ACCEPT_MAX: usize = 16;

/// How long nobody is accepted after the system had no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections beyond the limit that are told so; more are just closed.
const TURNED_AWAY_MAX: usize = 128;

const BELL: Token = Token(0);
const ACCEPTOR: Token = Token(1);
const FIRST_CONNECTION: u64 = 2;

/// All connections of a listener, and what they share.
pub(super) struct EventLoop {
    server: Arc<Server>,
    options: ListenerOptions,
    mailbox: Arc<Mailbox>,
    poller: Poller,
    acceptor: Option<Acceptor>,
    connections: HashMap<Token, Connection>,
    /// Of these, those that are one too many.
    turned_away: usize,
    next_token: u64,
    buffer: Box<[u8]>,
    letters: Vec<Letter>,
    /// Connections that were given an answer.
    answered: Vec<Token>,
    /// When the present events were fetched.
    now: Instant,
    next_sweep: Instant,
    /// When connections are accepted again, if they are not now.
    accept_from: Option<Instant>,
    /// When all ends, once it is told to stop.
    stop: Option<Instant>,
}

impl EventLoop {
    pub(super) fn new(
        server: Arc<Server>,
        acceptor: Acceptor,
        mailbox: Arc<Mailbox>,
        options: ListenerOptions,
    ) -> io::Result<EventLoop> {
        let poller = Poller::new()?;
        poller.add_bell(mailbox.bell(), BELL)?;
        poller.add(&acceptor, ACCEPTOR, Interest::RECEIVE)?;
        let now = Instant::now();
        Ok(EventLoop {
            server,
            options,
            mailbox,
            poller,
            acceptor: Some(acceptor),
            connections: HashMap::new(),
            turned_away: 0,
            next_token: FIRST_CONNECTION,
            buffer: vec![0; READ_LEN].into(),
            letters: Vec::new(),
            answered: Vec::new(),
            now,
            next_sweep: now,
            accept_from: None,
            stop: None,
        })
    }

    /// Runs until it was told to stop and all connections are closed.
    pub(super) fn run(mut self) {
        let mut events = Events::new();
        while !self.is_over() {
            let timeout = if self.mailbox.sleep() { self.timeout() } else { Some(Duration::ZERO) };
            if let Err(error) = self.poller.wait(&mut events, timeout) {
                tracing::error!(
                    "sockets cannot be waited for, all connections are closed: {error}"
                );
                break;
            }
            self.now = Instant::now();
            for event in events.iter() {
                self.event(event);
            }
            self.read_letters();
            if self.now >= self.next_sweep {
                self.next_sweep = self.now + SWEEP_INTERVAL;
                self.sweep();
            }
            self.mailbox.set_connections(self.connections.len());
        }
        self.mailbox.close();
        self.mailbox.set_connections(0);
    }

    fn is_over(&self) -> bool {
        self.stop.is_some_and(|deadline| self.connections.is_empty() || self.now >= deadline)
    }

    /// How long there is nothing to do if nothing happens; `None` is for ever.
    fn timeout(&self) -> Option<Duration> {
        let has_time = !self.connections.is_empty() || self.accept_from.is_some();
        let sweep = has_time.then_some(self.next_sweep);
        let next = sweep.into_iter().chain(self.stop).min()?;
        Some(next.saturating_duration_since(self.now))
    }

    fn event(&mut self, event: Event) {
        match event.token {
            // What it rang for is in the mailbox, which is read every time.
            BELL => {}
            ACCEPTOR => self.accept(),
            token => {
                let Some(connection) = self.connections.get_mut(&token) else { return };
                let is_received =
                    !event.can_receive || connection.receive(&mut self.buffer, self.now).is_ok();
                if event.is_over || !is_received {
                    self.remove(token);
                } else {
                    self.advance(token);
                }
            }
        }
    }

    /// Lets a connection go on as far as it can.
    fn advance(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let (server, mailbox) = (&self.server, &self.mailbox);
        let mut submit = |request: Request<'_>| submit(server, mailbox, token, &request);
        let mut stays = connection.advance(&self.options, self.now, &mut submit);
        let interest = connection.interest(&self.options);
        if matches!(stays, Ok(true)) && interest != connection.watched {
            connection.watched = interest;
            stays = self.poller.change(connection.socket(), token, interest).map(|()| true);
        }
        if !matches!(stays, Ok(true)) {
            self.remove(token);
        }
    }

    fn remove(&mut self, token: Token) {
        let removed = self.connections.remove(&token);
        if removed.is_some_and(|connection| connection.is_turned_away()) {
            self.turned_away -= 1;
        }
    }

    fn read_letters(&mut self) {
        let mut letters = std::mem::take(&mut self.letters);
        self.mailbox.take(&mut letters);
        for letter in letters.drain(..) {
            match letter {
                Letter::Answer { connection: token, id, answer } => {
                    // One that has gone gets no answer.
                    if let Some(connection) = self.connections.get_mut(&token) {
                        connection.answer(id, &answer, &self.options, self.now);
                        self.answered.push(token);
                    }
                }
                Letter::Stop { deadline } => self.begin_stop(deadline),
            }
        }
        self.letters = letters;
        let mut answered = std::mem::take(&mut self.answered);
        answered.sort_unstable_by_key(|token| token.0);
        answered.dedup();
        for token in answered.drain(..) {
            self.advance(token);
        }
        self.answered = answered;
    }

    fn begin_stop(&mut self, deadline: Instant) {
        self.stop = Some(deadline);
        self.acceptor = None;
        self.accept_from = None;
        let tokens: Vec<Token> = self.connections.keys().copied().collect();
        for token in tokens {
            if let Some(connection) = self.connections.get_mut(&token) {
                let text = "the server is being stopped; connect again later";
                connection.leave(GoodbyeReason::Stopping, text.to_owned());
                self.advance(token);
            }
        }
    }

    /// Looks for what has taken too long.
    fn sweep(&mut self) {
        if self.accept_from.is_some_and(|time| self.now >= time) {
            self.accept_from = None;
            self.watch_acceptor(Interest::RECEIVE);
        }
        let (options, now) = (&self.options, self.now);
        let late: Vec<Token> = self
            .connections
            .iter_mut()
            .filter_map(|(token, connection)| connection.check_time(options, now).then_some(*token))
            .collect();
        for token in late {
            self.advance(token);
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPT_MAX {
            let Some(acceptor) = &self.acceptor else { return };
            match acceptor.accept() {
                Ok(Some(socket)) => self.enter(socket),
                Ok(None) => return,
                Err(error) => {
                    // Out of descriptors, most likely. Who knocks would be told of without end.
                    tracing::warn!("no connection can be accepted now: {error}");
                    self.accept_from = Some(self.now + ACCEPT_PAUSE);
                    return self.watch_acceptor(Interest::NONE);
                }
            }
        }
    }

    fn watch_acceptor(&self, interest: Interest) {
        if let Some(acceptor) = &self.acceptor
            && let Err(error) = self.poller.change(acceptor, ACCEPTOR, interest)
        {
            tracing::error!("the listening socket cannot be watched: {error}");
        }
    }

    fn enter(&mut self, socket: Socket) {
        let token = Token(self.next_token);
        let connection = if self.connections.len() - self.turned_away < self.options.connections_max
        {
            Connection::new(socket, self.now)
        } else if self.turned_away < TURNED_AWAY_MAX {
            self.turned_away += 1;
            Connection::turned_away(socket, self.now, &self.options)
        } else {
            return;
        };
        self.next_token += 1;
        let is_watched = self.poller.add(connection.socket(), token, connection.watched);
        self.connections.insert(token, connection);
        match is_watched {
            Ok(()) => self.advance(token),
            Err(error) => {
                tracing::warn!("a connection cannot be watched: {error}");
                self.remove(token);
            }
        }
    }
}

/// Hands a request to the server. The answer comes by the mailbox, from whatever thread.
fn submit(server: &Server, mailbox: &Arc<Mailbox>, connection: Token, request: &Request<'_>) {
    let (mailbox, id) = (Arc::clone(mailbox), request.id);
    server.submit(request.procedure, request.arguments, request.class, move |answer| {
        mailbox.post(Letter::Answer { connection, id, answer });
    });
}
