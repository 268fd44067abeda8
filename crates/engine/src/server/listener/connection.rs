//! One connection: what has come, what is to go, and how far it is.
//!
//! It knows neither the server nor the other connections. What it is to do with a request is given
//! to it, and so is the time.

use std::io;
use std::time::{Duration, Instant};

use crate::server::Answer;
use crate::server::protocol::{
    ByteQueue, GoodbyeReason, Hello, ProtocolError, Request, RequestId, Response, VERSION, Verdict,
    Welcome, encode_answer,
};
use crate::server::socket::{Received, Socket};

use super::ListenerOptions;
use super::poller::Interest;

/// How long a connection that is being closed may send nothing of what is left, or leave its side
/// open.
const CLOSING_TIME: Duration = Duration::from_secs(2);

/// How far a connection is.
#[derive(Debug)]
enum Phase {
    /// Its hello is waited for.
    Greeting,
    /// Its requests are taken.
    Open,
    /// No more are taken; those under way are answered.
    Leaving(GoodbyeReason, String),
    /// Everything is said, if not sent. Whether it is read to its end before it is closed.
    Closing { lingers: bool },
    /// There is nothing more to do.
    Over,
}

/// What is done with each request that was taken.
pub(super) type Submit<'a> = &'a mut dyn FnMut(Request<'_>);

#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    phase: Phase,
    inbox: ByteQueue,
    outbox: ByteQueue,
    /// Requests taken and not answered.
    under_way: u32,
    /// The client sends no more, and all that it sent was read.
    is_input_over: bool,
    /// When it was accepted, or something last came or went.
    quiet_since: Instant,
    /// One too many, there only to be told so.
    is_turned_away: bool,
    /// What the system was told to watch.
    pub(super) watched: Interest,
}

impl Connection {
    /// A connection that has not said hello.
    pub(super) fn new(socket: Socket, now: Instant) -> Connection {
        Connection {
            socket,
            phase: Phase::Greeting,
            inbox: ByteQueue::default(),
            outbox: ByteQueue::default(),
            under_way: 0,
            is_input_over: false,
            quiet_since: now,
            is_turned_away: false,
            watched: Interest::RECEIVE,
        }
    }

    /// A connection that is one too many.
    pub(super) fn turned_away(
        socket: Socket,
        now: Instant,
        options: &ListenerOptions,
    ) -> Connection {
        let mut connection = Connection::new(socket, now);
        connection.welcome(Verdict::Full, options, now);
        connection.is_turned_away = true;
        connection
    }

    pub(super) fn is_turned_away(&self) -> bool {
        self.is_turned_away
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// What it waits for.
    pub(super) fn interest(&self, options: &ListenerOptions) -> Interest {
        let reads = match self.phase {
            Phase::Greeting | Phase::Closing { .. } => true,
            Phase::Open => self.may_take(options),
            Phase::Leaving(..) | Phase::Over => false,
        };
        Interest { receive: reads && !self.is_input_over, send: !self.outbox.is_empty() }
    }

    /// Whether it is owed so little that it may ask for more.
    fn may_take(&self, options: &ListenerOptions) -> bool {
        self.under_way < options.under_way_max
            && self.outbox.len() <= options.frame_len_max as usize
    }

    /// Reads once.
    pub(super) fn receive(&mut self, buffer: &mut [u8], now: Instant) -> io::Result<()> {
        match self.socket.receive(buffer)? {
            Received::Bytes(count) => match self.phase {
                Phase::Greeting => self.inbox.tail().extend_from_slice(&buffer[..count]),
                Phase::Open => {
                    self.inbox.tail().extend_from_slice(&buffer[..count]);
                    self.quiet_since = now;
                }
                // Nobody will look at it.
                Phase::Leaving(..) | Phase::Closing { .. } | Phase::Over => {}
            },
            Received::Nothing => {}
            Received::End => self.is_input_over = true,
        }
        Ok(())
    }

    /// A request has its answer.
    pub(super) fn answer(
        &mut self,
        id: RequestId,
        answer: &Answer,
        options: &ListenerOptions,
        now: Instant,
    ) {
        self.under_way = self.under_way.saturating_sub(1);
        self.quiet_since = now;
        encode_answer(self.outbox.tail(), id, answer, options.frame_len_max);
    }

    /// Takes no more requests, and ends when those under way are answered.
    pub(super) fn leave(&mut self, reason: GoodbyeReason, text: String) {
        self.phase = match self.phase {
            Phase::Greeting => Phase::Over,
            Phase::Open => Phase::Leaving(reason, text),
            // It leaves already.
            Phase::Leaving(..) | Phase::Closing { .. } | Phase::Over => return,
        };
    }

    /// Ends what has taken too long; whether there was anything.
    pub(super) fn check_time(&mut self, options: &ListenerOptions, now: Instant) -> bool {
        let quiet = now.saturating_duration_since(self.quiet_since);
        match self.phase {
            Phase::Greeting if quiet >= options.handshake_timeout => self.phase = Phase::Over,
            Phase::Closing { .. } if quiet >= CLOSING_TIME => self.phase = Phase::Over,
            Phase::Open if self.under_way == 0 => match options.idle_timeout {
                Some(timeout) if quiet >= timeout => {
                    let text = format!("nothing was asked for {timeout:?}; connect again");
                    self.leave(GoodbyeReason::Idle, text);
                }
                _ => return false,
            },
            _ => return false,
        }
        true
    }

    /// Takes what has come and sends what is to go, as far as possible; whether the connection
    /// stays.
    pub(super) fn advance(
        &mut self,
        options: &ListenerOptions,
        now: Instant,
        submit: Submit<'_>,
    ) -> io::Result<bool> {
        loop {
            let is_blocked = self.take(options, now, submit);
            self.say_goodbye(now);
            self.flush(now)?;
            // What was sent may have made room for another request that is there already.
            if !(is_blocked && self.may_take(options)) {
                return Ok(!self.is_over());
            }
        }
    }

    /// Takes the messages that are there; whether some may be left because too much is under way.
    fn take(&mut self, options: &ListenerOptions, now: Instant, submit: Submit<'_>) -> bool {
        loop {
            match self.phase {
                Phase::Greeting => match Hello::decode(self.inbox.as_slice()) {
                    Ok(None) => return false,
                    Ok(Some((hello, len))) => {
                        self.inbox.consume(len);
                        let is_known = hello.version == VERSION;
                        let verdict =
                            if is_known { Verdict::Accepted } else { Verdict::OtherVersion };
                        self.welcome(verdict, options, now);
                    }
                    // Whoever it is would not understand what is wrong.
                    Err(_) => self.phase = Phase::Over,
                },
                Phase::Open if !self.may_take(options) => return true,
                Phase::Open => {
                    match Request::decode(self.inbox.as_slice(), options.frame_len_max) {
                        Ok(None) => return false,
                        Ok(Some((request, len))) => {
                            self.under_way += 1;
                            submit(request);
                            self.inbox.consume(len);
                        }
                        Err(error) => self.refuse(&error),
                    }
                }
                Phase::Leaving(..) | Phase::Closing { .. } | Phase::Over => {
                    self.inbox.clear();
                    return false;
                }
            }
        }
    }

    fn refuse(&mut self, error: &ProtocolError) {
        tracing::debug!("a client is sent away: {error}");
        self.leave(GoodbyeReason::Violation, error.to_string());
    }

    fn welcome(&mut self, verdict: Verdict, options: &ListenerOptions, now: Instant) {
        let ListenerOptions { frame_len_max, under_way_max, .. } = *options;
        let welcome = Welcome { version: VERSION, verdict, frame_len_max, under_way_max };
        welcome.encode(self.outbox.tail());
        self.quiet_since = now;
        self.phase = match verdict {
            Verdict::Accepted => Phase::Open,
            Verdict::OtherVersion | Verdict::Full => Phase::Closing { lingers: true },
        };
    }

    /// Says goodbye once all is answered.
    fn say_goodbye(&mut self, now: Instant) {
        let Phase::Leaving(reason, ref text) = self.phase else { return };
        if self.under_way > 0 {
            return;
        }
        Response::Goodbye { reason, text }.encode(self.outbox.tail());
        self.quiet_since = now;
        self.phase = Phase::Closing { lingers: reason == GoodbyeReason::Violation };
    }

    /// Sends as much as the socket takes.
    fn flush(&mut self, now: Instant) -> io::Result<()> {
        if self.outbox.is_empty() {
            return Ok(());
        }
        let sent = self.socket.send(self.outbox.as_slice())?;
        if sent > 0 {
            self.outbox.consume(sent);
            self.quiet_since = now;
        }
        if self.outbox.is_empty() && matches!(self.phase, Phase::Closing { .. }) {
            self.socket.end_sending()?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        match self.phase {
            Phase::Over => true,
            Phase::Greeting => self.is_input_over,
            Phase::Open => self.is_input_over && self.under_way == 0 && self.outbox.is_empty(),
            Phase::Leaving(..) => false,
            Phase::Closing { lingers } => {
                self.outbox.is_empty() && (self.is_input_over || !lingers)
            }
        }
    }
}
