//! One connection of the admin interface, from its request to its end.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::Instant;

use mio::net::TcpStream;

use super::http::{self, Request, Response};
use super::routes::Answer;
use super::sampler::Sample;
use super::{LISTENER_TIME, REQUEST_TIME};

/// Bytes read at once.
const CHUNK_LEN: usize = 4 * 1024;

/// Bytes on their way to the client.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    fn new(bytes: Vec<u8>) -> Outgoing {
        Outgoing { bytes, sent: 0 }
    }

    fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Sends what the client takes. Returns whether it took something.
    fn send(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        let before = self.sent;
        while !self.is_empty() {
            match stream.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.sent > before)
    }
}

#[derive(Debug)]
enum Phase {
    /// The request is being read.
    Reading(Vec<u8>),
    /// The answer is the next document.
    AwaitingStatus,
    /// Events are sent until the client leaves. The next one is the whole document if one was
    /// missed, or none was sent.
    Listening { outgoing: Outgoing, needs_all: bool },
    /// The answer is being sent.
    Answering(Outgoing),
    /// The answer is sent; closing with unread bytes would take it with it.
    Draining,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Open,
    Ended,
}

/// A connection.
#[derive(Debug)]
pub(super) struct AdminConnection {
    stream: TcpStream,
    deadline: Instant,
    phase: Phase,
}

impl AdminConnection {
    pub(super) fn new(stream: TcpStream, deadline: Instant) -> AdminConnection {
        AdminConnection { stream, deadline, phase: Phase::Reading(Vec::new()) }
    }

    /// Returns when its time is over.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether it waits for a document.
    pub(super) fn wants_status(&self) -> bool {
        matches!(self.phase, Phase::AwaitingStatus | Phase::Listening { .. })
    }

    /// Returns whether events are sent to it.
    pub(super) fn is_listening(&self) -> bool {
        matches!(self.phase, Phase::Listening { .. })
    }

    /// Hands it a document, if it wants one. It is sent by [`AdminConnection::advance`].
    pub(super) fn take_sample(&mut self, sample: &mut Sample, now: Instant) {
        match &mut self.phase {
            Phase::AwaitingStatus => {
                let body = sample.all().to_owned();
                let response = Response::with_type("application/json", body);
                self.answer(&response, now);
            }
            Phase::Listening { outgoing, needs_all } => {
                if !outgoing.is_empty() {
                    *needs_all = true;
                    return;
                }
                let event = if std::mem::take(needs_all) {
                    http::event("status", sample.all())
                } else {
                    http::event("update", sample.new_part())
                };
                *outgoing = Outgoing::new(event);
                self.deadline = now + LISTENER_TIME;
            }
            Phase::Reading(_) | Phase::Answering(_) | Phase::Draining => {}
        }
    }

    fn answer(&mut self, response: &Response, now: Instant) {
        self.phase = Phase::Answering(Outgoing::new(response.to_bytes()));
        self.deadline = now + REQUEST_TIME;
    }

    /// Reads and writes as far as it goes without waiting.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn advance(
        &mut self,
        answer: impl FnOnce(&Request) -> Answer,
        now: Instant,
    ) -> io::Result<Progress> {
        let has_ended = self.read(answer, now)?;
        match &mut self.phase {
            Phase::Reading(_) | Phase::AwaitingStatus | Phase::Draining => {}
            Phase::Listening { outgoing, .. } => {
                if outgoing.send(&mut self.stream)? {
                    self.deadline = now + LISTENER_TIME;
                }
            }
            Phase::Answering(outgoing) => {
                outgoing.send(&mut self.stream)?;
                if outgoing.is_empty() {
                    self.stream.shutdown(Shutdown::Write)?;
                    self.phase = Phase::Draining;
                }
            }
        }
        let is_over = has_ended && !matches!(self.phase, Phase::Answering(_));
        Ok(if is_over { Progress::Ended } else { Progress::Open })
    }

    /// Reads what there is. Returns whether the client sends no more.
    fn read(&mut self, answer: impl FnOnce(&Request) -> Answer, now: Instant) -> io::Result<bool> {
        let mut answer = Some(answer);
        let mut chunk = [0; CHUNK_LEN];
        loop {
            let len = match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(true),
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            // What follows a request is read, so that closing does not reset, and left.
            let Phase::Reading(received) = &mut self.phase else { continue };
            received.extend_from_slice(&chunk[..len]);
            let Some(parsed) = http::parse(received) else { continue };
            let Some(answer) = answer.take() else { continue };
            match parsed.map(|request| answer(&request)) {
                Ok(Answer::Now(response)) | Err(response) => self.answer(&response, now),
                Ok(Answer::Status) => self.phase = Phase::AwaitingStatus,
                Ok(Answer::Events) => {
                    let outgoing = Outgoing::new(http::events_head());
                    self.phase = Phase::Listening { outgoing, needs_all: true };
                    self.deadline = now + LISTENER_TIME;
                }
            }
        }
    }
}
