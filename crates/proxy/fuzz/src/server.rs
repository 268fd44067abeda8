//! A server that obeys the protocol and answers a query by its own text.
//!
//! `begin`, `commit` and `rollback` do what they say, `fail…` fails, `copy…` asks for copy data.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use tidegate_wire::backend::{self, TransactionStatus, tag};
use tidegate_wire::error_response::{Severity, SqlState, encode_error};
use tidegate_wire::frontend::{self, Target};
use tidegate_wire::input::{Input, Missing, Side};
use tidegate_wire::startup::{CancelKey, FirstPacket};

/// What asked for copy data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyBy {
    Query,
    Execute,
}

/// One connection of the server.
struct Session {
    status: TransactionStatus,
    skipping: bool,
    copy: Option<CopyBy>,
    /// The text of the last Parse.
    parsed: Vec<u8>,
    out: Vec<u8>,
}

/// Starts the server on a socket of this path; it runs as long as the process.
///
/// # Panics
/// There can be no such socket.
pub fn start(path: &Path) {
    let listener = UnixListener::bind(path).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = serve(stream);
            });
        }
    });
}

fn serve(mut stream: UnixStream) -> std::io::Result<()> {
    let mut received = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    let mut session = None;
    let mut missing = Missing::default();
    loop {
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        received.extend_from_slice(&chunk[..count]);
        let mut input = Input::new(Side::Client, &received);
        if session.is_none() {
            match input.first_packet() {
                Ok(Some(FirstPacket::Startup(_))) => session = Some(Session::new()),
                Ok(None) => {}
                _ => return Ok(()),
            }
        }
        if let Some(session) = &mut session
            && session.messages(&mut input, &mut missing).is_none()
        {
            return Ok(());
        }
        let used = input.position();
        received.drain(..used);
        if let Some(session) = &mut session {
            stream.write_all(&std::mem::take(&mut session.out))?;
        }
    }
}

fn message(out: &mut Vec<u8>, tag: u8, payload: &[u8]) {
    out.push(tag);
    let length = u32::try_from(payload.len() + 4).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(payload);
}

impl Session {
    fn new() -> Session {
        let mut out = Vec::new();
        message(&mut out, tag::AUTHENTICATION, &[0; 4]);
        let key = CancelKey { process_id: 1, secret: [0; 4].into() };
        backend::encode_backend_key_data(&mut out, &key);
        backend::encode_ready_for_query(&mut out, TransactionStatus::Idle);
        let status = TransactionStatus::Idle;
        Session { status, skipping: false, copy: None, parsed: Vec::new(), out }
    }

    /// Acts on the messages that have arrived; `None` ends the connection.
    fn messages(&mut self, input: &mut Input<'_>, missing: &mut Missing) -> Option<()> {
        while !input.is_empty() {
            if !missing.is_none() {
                input.skip(missing);
                continue;
            }
            let Some(peeked) = input.peek().ok()? else { break };
            // Long messages are skipped in pieces; none of them begins a statement here.
            if !peeked.has_arrived(64 * 1024) {
                break;
            }
            let (message, rest) = peeked.take();
            *missing = rest;
            self.message(message.tag(), message.payload())?;
        }
        Some(())
    }

    fn message(&mut self, tag: u8, payload: &[u8]) -> Option<()> {
        if let Some(by) = self.copy {
            return self.copy_message(by, tag);
        }
        match tag {
            frontend::tag::TERMINATE => return None,
            frontend::tag::SYNC => {
                self.skipping = false;
                self.ready();
            }
            _ if self.skipping => {}
            frontend::tag::QUERY => self.query(payload),
            frontend::tag::FUNCTION_CALL => {
                self.fail("42883");
                self.ready();
            }
            frontend::tag::COPY_DATA
            | frontend::tag::COPY_DONE
            | frontend::tag::COPY_FAIL
            | frontend::tag::FLUSH => {}
            _ => {
                if self.extended(tag, payload).is_none() {
                    self.skipping = true;
                    self.fail("08P01");
                }
            }
        }
        Some(())
    }

    fn ready(&mut self) {
        backend::encode_ready_for_query(&mut self.out, self.status);
    }

    fn fail(&mut self, code: &str) {
        if self.status == TransactionStatus::InBlock {
            self.status = TransactionStatus::Failed;
        }
        encode_error(&mut self.out, Severity::Error, SqlState(code), "");
    }

    fn query(&mut self, payload: &[u8]) {
        let text = payload.strip_suffix(b"\0").unwrap_or(payload);
        match self.run(text) {
            Some(()) if self.copy.is_some() => self.copy = Some(CopyBy::Query),
            Some(()) => self.ready(),
            None => {
                self.fail("22012");
                self.ready();
            }
        }
    }

    /// Runs a statement; `None` is an error.
    fn run(&mut self, text: &[u8]) -> Option<()> {
        match text.to_ascii_lowercase().as_slice() {
            b"begin" if self.status == TransactionStatus::Idle => {
                self.status = TransactionStatus::InBlock;
            }
            b"commit" | b"rollback" => self.status = TransactionStatus::Idle,
            _ if self.status == TransactionStatus::Failed => return None,
            text if text.starts_with(b"fail") => return None,
            text if text.starts_with(b"copy") => {
                self.copy = Some(CopyBy::Execute);
                message(&mut self.out, tag::COPY_IN, &[0; 3]);
                return Some(());
            }
            _ => {
                let length = u32::try_from(text.len()).ok()?;
                let row = [&[0, 1][..], &length.to_be_bytes(), text].concat();
                message(&mut self.out, tag::DATA_ROW, &row);
            }
        }
        message(&mut self.out, tag::COMMAND_COMPLETE, b"DONE\0");
        Some(())
    }

    fn extended(&mut self, tag: u8, payload: &[u8]) -> Option<()> {
        match tag {
            frontend::tag::PARSE => {
                let parse = frontend::parse(payload).ok()?;
                let end = parse.definition.iter().position(|&byte| byte == 0)?;
                self.parsed = parse.definition[..end].to_vec();
                self.out.extend_from_slice(backend::PARSE_COMPLETE);
            }
            frontend::tag::BIND => {
                frontend::bind_names(payload).ok()?;
                message(&mut self.out, tag::BIND_COMPLETE, b"");
            }
            frontend::tag::DESCRIBE => {
                if frontend::target(payload).ok()?.0 == Target::Statement {
                    message(&mut self.out, tag::PARAMETER_DESCRIPTION, &[0; 2]);
                }
                message(&mut self.out, tag::NO_DATA, b"");
            }
            frontend::tag::CLOSE => {
                frontend::target(payload).ok()?;
                self.out.extend_from_slice(backend::CLOSE_COMPLETE);
            }
            _ => {
                let text = std::mem::take(&mut self.parsed);
                let ran = self.run(&text);
                self.parsed = text;
                return ran;
            }
        }
        Some(())
    }

    /// A message while copy data is awaited; any that has no place there ends the connection.
    fn copy_message(&mut self, by: CopyBy, tag: u8) -> Option<()> {
        match tag {
            frontend::tag::COPY_DATA | frontend::tag::SYNC | frontend::tag::FLUSH => {
                return Some(());
            }
            frontend::tag::COPY_DONE => message(&mut self.out, tag::COMMAND_COMPLETE, b"COPY\0"),
            frontend::tag::COPY_FAIL => {
                self.skipping = by == CopyBy::Execute;
                self.fail("57014");
            }
            _ => return None,
        }
        self.copy = None;
        if by == CopyBy::Query {
            self.ready();
        }
        Some(())
    }
}
