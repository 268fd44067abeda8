//! A client of the socket protocol that waits: one thread, one connection.
//!
//! # Mechanism
//! [`Client::call`] sends a request and waits for its answer. To have several under way at once,
//! [`Client::send`] them and [`Client::receive`] each by its number, or whichever comes first.
//!
//! The socket never blocks; the client waits for it with `poll`. While it sends it also reads,
//! because a server stops reading a client that does not read its answers, and both would wait for
//! each other for ever.
//!
//! # Example
//! ```no_run
//! use tidegate_engine::{Client, ClientOptions, Endpoint};
//! use tidegate_gate::Class;
//!
//! let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 5_544).into());
//! let mut client = Client::connect(&endpoint, ClientOptions::default())?;
//! let first = client.send("transfer", b"alice bob 10", Class::Normal)?;
//! let second = client.send("balance", b"carol", Class::High)?;
//! let balance = client.receive(second)?;
//! client.receive(first)?;
//! # Ok::<(), tidegate_engine::ClientError>(())
//! ```
//!
//! # After an error
//! [`ClientError::Failed`] is the answer to one request, and the connection goes on. After
//! [`ClientError::Ended`] there is only a new connection. When it ended by a goodbye, what has no
//! answer was not run; when it ended otherwise, nobody knows, see [`ConnectionEnd`].
//!
//! # Limits
//! A client belongs to one thread at a time. It keeps every answer until it is asked for.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use thiserror::Error;
use tidegate_gate::Class;

use super::protocol::{
    ByteQueue, FRAME_LEN_LIMITS, FailureKind, GoodbyeReason, Hello, ProtocolError, Request,
    RequestId, Response, TooLong, VERSION, Verdict, Welcome,
};
use super::socket::{Endpoint, Received, Socket};

/// Bytes read at once.
const READ_LEN: usize = 16 * 1024;

/// How a client waits.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// How long connecting may take, and how long the server's greeting.
    pub connect_timeout: Duration,
    /// How long an answer may take; `None` for as long as it takes.
    pub answer_timeout: Option<Duration>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions { connect_timeout: Duration::from_secs(5), answer_timeout: None }
    }
}

/// How a request failed, as the server says.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text}")]
pub struct CallFailure {
    /// What kind of failure it is.
    pub kind: FailureKind,
    /// The reason, for people.
    pub text: String,
}

/// What a request is answered with.
pub type CallResult = Result<Vec<u8>, CallFailure>;

/// How a connection ended.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The server said goodbye. Requests that have no answer were not run.
    #[error("the server said goodbye: {text}")]
    Goodbye {
        /// Why.
        reason: GoodbyeReason,
        /// The reason, for people.
        text: String,
    },
    /// The server closed it without a word.
    #[error("the server closed the connection; what has no answer may have been run or not")]
    Closed,
    /// The connection broke.
    #[error("the connection broke ({0}); what has no answer may have been run or not")]
    Broken(io::ErrorKind),
    /// What came is no answer.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// Why a client has no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// There is no connection to be had.
    #[error("cannot connect to {endpoint}: {source}")]
    Connect {
        /// Where to.
        endpoint: Endpoint,
        /// The system's reason.
        source: io::Error,
    },
    /// The server speaks another version of the protocol.
    #[error("the server speaks version {server} of the protocol, this client {client}; update it")]
    OtherVersion {
        /// The server's.
        server: u32,
        /// The client's.
        client: u32,
    },
    /// The server has too many connections.
    #[error("the server has as many connections as it takes; connect again later")]
    TooManyConnections,
    /// The request is longer than the server takes. Nothing was sent.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The request failed.
    #[error(transparent)]
    Failed(#[from] CallFailure),
    /// It took too long. An answer may still come, and can be waited for again.
    #[error("there is no answer yet; wait for it again, or connect anew")]
    TimedOut,
    /// The request was never sent, or its answer was received already.
    #[error("request {0} is not under way")]
    NotUnderWay(RequestId),
    /// There is no connection any more.
    #[error(transparent)]
    Ended(#[from] ConnectionEnd),
}

/// A connection to a server.
///
/// Dropped, it is closed: requests under way run to their end, and their answers are lost.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    inbox: ByteQueue,
    outbox: ByteQueue,
    buffer: Box<[u8]>,
    last_id: u64,
    under_way: HashSet<RequestId>,
    /// Answers that have come and were not asked for, in their order.
    answered: VecDeque<(RequestId, CallResult)>,
    frame_len_max: u32,
    answer_timeout: Option<Duration>,
    end: Option<ConnectionEnd>,
}

impl Client {
    /// Connects to a server.
    ///
    /// # Errors
    /// [`ClientError::Connect`], [`ClientError::OtherVersion`],
    /// [`ClientError::TooManyConnections`], [`ClientError::TimedOut`] when there is no greeting,
    /// or [`ClientError::Ended`] when it is none.
    pub fn connect(endpoint: &Endpoint, options: ClientOptions) -> Result<Client, ClientError> {
        let deadline = Instant::now().checked_add(options.connect_timeout);
        let socket = Socket::connect(endpoint, options.connect_timeout)
            .map_err(|source| ClientError::Connect { endpoint: endpoint.clone(), source })?;
        let mut client = Client {
            socket,
            inbox: ByteQueue::default(),
            outbox: ByteQueue::default(),
            buffer: vec![0; READ_LEN].into(),
            last_id: 0,
            under_way: HashSet::new(),
            answered: VecDeque::new(),
            frame_len_max: *FRAME_LEN_LIMITS.start(),
            answer_timeout: options.answer_timeout,
            end: None,
        };
        client.greet(deadline)?;
        Ok(client)
    }

    fn greet(&mut self, deadline: Option<Instant>) -> Result<(), ClientError> {
        let mut hello = Vec::new();
        Hello { version: VERSION }.encode(&mut hello);
        // So few bytes fit any new socket. A server that turns clients away may be gone already;
        // then reading shows what it said before.
        let _ = self.socket.send(&hello);
        let welcome = loop {
            match Welcome::decode(self.inbox.as_slice()) {
                Ok(Some((welcome, len))) => {
                    self.inbox.consume(len);
                    break welcome;
                }
                Ok(None) => {}
                Err(error) => return Err(self.ended(error.into())),
            }
            self.receive_bytes(deadline)?;
        };
        match welcome.verdict {
            Verdict::Accepted => {
                self.frame_len_max = welcome.frame_len_max;
                // Something may have come with it.
                self.take_answers()
            }
            Verdict::OtherVersion => {
                let (server, client) = (welcome.version, VERSION);
                Err(ClientError::OtherVersion { server, client })
            }
            Verdict::Full => Err(ClientError::TooManyConnections),
        }
    }

    /// Runs a procedure as a transaction and waits for its answer.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn call(
        &mut self,
        procedure: &str,
        arguments: &[u8],
        class: Class,
    ) -> Result<Vec<u8>, ClientError> {
        let id = self.send(procedure, arguments, class)?;
        self.receive(id)
    }

    /// Asks for a procedure to be run as a transaction; the number by which to
    /// [receive](Self::receive) the answer. Waits while the server takes no more requests.
    ///
    /// # Errors
    /// [`ClientError::TooLong`], and nothing was sent; or [`ClientError::Ended`]. A request that
    /// cannot be sent within the answer timeout ends the connection, because a part of it is gone.
    pub fn send(
        &mut self,
        procedure: &str,
        arguments: &[u8],
        class: Class,
    ) -> Result<RequestId, ClientError> {
        self.check_end()?;
        let id = RequestId(self.last_id + 1);
        let request = Request { id, class, procedure, arguments };
        request.encode(self.outbox.tail(), self.frame_len_max)?;
        self.last_id += 1;
        self.under_way.insert(id);
        self.flush(self.deadline())?;
        Ok(id)
    }

    /// The answer to a request, once it has come. It is given once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn receive(&mut self, id: RequestId) -> Result<Vec<u8>, ClientError> {
        let deadline = self.deadline();
        loop {
            let at = self.answered.iter().position(|(answered, _)| *answered == id);
            if let Some((_, result)) = at.and_then(|at| self.answered.remove(at)) {
                return Ok(result?);
            }
            if !self.under_way.contains(&id) {
                return Err(ClientError::NotUnderWay(id));
            }
            self.receive_answers(deadline)?;
        }
    }

    /// The answer that came first of those not received; `None` when nothing is under way.
    ///
    /// # Errors
    /// [`ClientError::TimedOut`] or [`ClientError::Ended`].
    pub fn receive_any(&mut self) -> Result<Option<(RequestId, CallResult)>, ClientError> {
        let deadline = self.deadline();
        loop {
            if let Some(first) = self.answered.pop_front() {
                return Ok(Some(first));
            }
            if self.under_way.is_empty() {
                return Ok(None);
            }
            self.receive_answers(deadline)?;
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.answer_timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    fn check_end(&self) -> Result<(), ClientError> {
        self.end.clone().map_or(Ok(()), |end| Err(end.into()))
    }

    /// There is no connection any more. The first reason counts.
    fn ended(&mut self, end: ConnectionEnd) -> ClientError {
        self.end.get_or_insert(end).clone().into()
    }

    /// Sends everything, and reads as long as the server takes nothing.
    fn flush(&mut self, deadline: Option<Instant>) -> Result<(), ClientError> {
        loop {
            match self.socket.send(self.outbox.as_slice()) {
                Ok(count) => self.outbox.consume(count),
                Err(error) => return Err(self.broken(&error)),
            }
            if self.outbox.is_empty() {
                return Ok(());
            }
            match self.socket.wait(true, deadline) {
                Ok(true) => self.read()?,
                Ok(false) => {
                    return Err(self.ended(ConnectionEnd::Broken(io::ErrorKind::TimedOut)));
                }
                Err(error) => return Err(self.broken(&error)),
            }
            self.take_answers()?;
        }
    }

    /// Nothing can be sent any more. What the server said before may still be there to be read.
    fn broken(&mut self, error: &io::Error) -> ClientError {
        while self.end.is_none() && self.socket.wait(false, Some(Instant::now())).unwrap_or(false) {
            // Each failure leaves its reason.
            let _ = self.read().and_then(|()| self.take_answers());
        }
        self.ended(ConnectionEnd::Broken(error.kind()))
    }

    /// Waits for answers, and takes those that have come.
    fn receive_answers(&mut self, deadline: Option<Instant>) -> Result<(), ClientError> {
        self.receive_bytes(deadline)?;
        self.take_answers()
    }

    /// Waits for bytes, and reads once.
    fn receive_bytes(&mut self, deadline: Option<Instant>) -> Result<(), ClientError> {
        self.check_end()?;
        match self.socket.wait(false, deadline) {
            Ok(true) => self.read(),
            Ok(false) => Err(ClientError::TimedOut),
            Err(error) => Err(self.ended(ConnectionEnd::Broken(error.kind()))),
        }
    }

    /// Reads once, if there is something.
    fn read(&mut self) -> Result<(), ClientError> {
        match self.socket.receive(&mut self.buffer) {
            Ok(Received::Bytes(count)) => {
                self.inbox.tail().extend_from_slice(&self.buffer[..count]);
                Ok(())
            }
            Ok(Received::Nothing) => Ok(()),
            Ok(Received::End) => Err(self.ended(ConnectionEnd::Closed)),
            Err(error) => Err(self.ended(ConnectionEnd::Broken(error.kind()))),
        }
    }

    /// Takes the answers that have come. A goodbye is an error only when nothing else is there.
    fn take_answers(&mut self) -> Result<(), ClientError> {
        while self.end.is_none() {
            let decoded = Response::decode(self.inbox.as_slice(), self.frame_len_max);
            let (id, result, len) = match decoded {
                Ok(None) => return Ok(()),
                Ok(Some((Response::Done { id, answer }, len))) => (id, Ok(answer.to_vec()), len),
                Ok(Some((Response::Failed { id, kind, text }, len))) => {
                    (id, Err(CallFailure { kind, text: text.to_owned() }), len)
                }
                Ok(Some((Response::Goodbye { reason, text }, _))) => {
                    self.end = Some(ConnectionEnd::Goodbye { reason, text: text.to_owned() });
                    return Ok(());
                }
                Err(error) => return Err(self.ended(error.into())),
            };
            self.inbox.consume(len);
            if !self.under_way.remove(&id) {
                return Err(self.ended(ProtocolError::Unasked(id).into()));
            }
            self.answered.push_back((id, result));
        }
        Ok(())
    }
}
