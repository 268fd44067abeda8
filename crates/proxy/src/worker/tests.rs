//! An event loop that the test turns by hand, so that events come in one batch and in this order.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use mio::Events;
use tidegate_wire::backend::{TransactionStatus, encode_ready_for_query};
use tidegate_wire::frame::{HEADER_LEN, frame};
use tidegate_wire::frontend::encode_query;
use tidegate_wire::startup::encode_startup;

use super::*;
use crate::config::ListenAddress;
use crate::config_file::ConfigFile;

/// Turns within which everything has happened.
const TURNS_MAX: usize = 1_000;

struct Loop {
    worker: Worker,
    events: Events,
    address: SocketAddr,
    upstream: TcpListener,
}

impl Loop {
    fn new() -> Loop {
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        upstream.set_nonblocking(true).unwrap();
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\n[databases.\"*\"]\nupstream = \"postgres://{}\"\n",
            upstream.local_addr().unwrap()
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tidegate.toml");
        std::fs::write(&path, text).unwrap();
        let config = ConfigFile::read(Path::new(&path)).unwrap().into_config().unwrap();
        let (listeners, addresses) = crate::listen(&config.listen).unwrap();
        let [ListenAddress::Tcp(address)] = *addresses else { panic!("{addresses:?}") };
        let crate::Gated { servers, server_of, .. } = crate::servers(&config).unwrap();
        let (mut polls, mailboxes) = crate::event_loops(1).unwrap();
        let shared = Arc::new(Shared { config, servers, server_of, mailboxes });
        let poll = polls.pop().unwrap();
        let worker = Worker::new(0, shared, poll, listeners, Arc::default()).unwrap();
        Loop { worker, events: Events::with_capacity(64), address, upstream }
    }

    fn turn(&mut self) {
        self.worker.turn(&mut self.events).unwrap();
    }

    /// Turns until `ready` gives a value.
    fn until<T>(&mut self, mut ready: impl FnMut(&TcpListener) -> Option<T>) -> T {
        for _ in 0..TURNS_MAX {
            if let Some(value) = ready(&self.upstream) {
                return value;
            }
            self.turn();
        }
        panic!("never");
    }

    fn accept_upstream(&mut self) -> TcpStream {
        let stream = self.until(|upstream| upstream.accept().ok()).0;
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// Turns until a message of this type has come; `None` if the connection ends first.
    fn receive(&mut self, stream: &mut TcpStream, wanted: u8) -> Option<()> {
        let mut received = Vec::new();
        self.until(|_| match read(stream, &mut received) {
            Ok(()) => tags(&received).contains(&wanted).then_some(Some(())),
            Err(()) => Some(None),
        })
    }

    fn connect(&self) -> TcpStream {
        let mut client = TcpStream::connect(self.address).unwrap();
        client.set_nonblocking(true).unwrap();
        let mut packet = Vec::new();
        encode_startup(&mut packet, [(&b"user"[..], &b"u"[..]), (b"database", b"d")]);
        client.write_all(&packet).unwrap();
        client
    }
}

/// Reads what is there; an error is the end of the connection.
fn read(stream: &mut TcpStream, into: &mut Vec<u8>) -> Result<(), ()> {
    let mut chunk = [0; 4096];
    match stream.read(&mut chunk) {
        Ok(0) => Err(()),
        Ok(count) => {
            into.extend_from_slice(&chunk[..count]);
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(_) => Err(()),
    }
}

fn tags(mut bytes: &[u8]) -> Vec<u8> {
    let mut tags = Vec::new();
    while let Ok(Some(frame)) = frame(bytes)
        && let Some(rest) = bytes.get(frame.len..)
    {
        tags.push(frame.tag);
        bytes = rest;
    }
    tags
}

fn ready() -> Vec<u8> {
    let mut out = Vec::new();
    encode_ready_for_query(&mut out, TransactionStatus::Idle);
    out
}

/// In one batch: the answer for a client that has gone, which is how the worker learns of it and
/// frees its slot; a newcomer, who takes the slot; and the event that says that the first one has
/// gone.
#[test]
fn the_last_event_of_a_client_does_not_hit_the_one_that_takes_its_slot() {
    let mut this = Loop::new();
    let mut leaver = this.connect();
    let mut upstream = this.accept_upstream();
    this.until(|_| upstream.read(&mut [0; HEADER_LEN]).ok());
    upstream.write_all(b"R\0\0\0\x08\0\0\0\0").unwrap();
    upstream.write_all(&ready()).unwrap();
    this.receive(&mut leaver, b'Z').unwrap();
    let slot = this.worker.clients.keys()[0];

    let mut query = Vec::new();
    encode_query(&mut query, b"SELECT 1");
    leaver.write_all(&query).unwrap();
    let mut received = Vec::new();
    this.until(|_| {
        read(&mut upstream, &mut received).unwrap();
        received.ends_with(b"SELECT 1\0").then_some(())
    });

    upstream.write_all(&[b"C\0\0\0\x0dSELECT 1\0", &*ready()].concat()).unwrap();
    let mut newcomer = this.connect();
    rustix::net::sockopt::set_socket_linger(&leaver, Some(Duration::ZERO)).unwrap();
    drop(leaver);
    this.turn();
    let [now] = *this.worker.clients.keys() else { panic!("the newcomer alone is there") };
    assert_eq!(now.index(), slot.index(), "the newcomer has the leaver's slot");
    assert_ne!(now, slot);
    assert_eq!(this.receive(&mut newcomer, b'Z'), Some(()), "the newcomer is logged in");
}

/// A token finds the connection it was made for, and none of another kind or generation.
#[test]
fn tokens_name_one_connection() {
    let bits = [0, 1, (1 << INDEX_BITS) - 1, 1 << INDEX_BITS, (1 << 56) - 1];
    let sources: Vec<Source> = bits
        .iter()
        .flat_map(|&bits| {
            [
                Source::Client(Key::from_bits(bits)),
                Source::Upstream(Key::from_bits(bits)),
                Source::Canceller(Key::from_bits(bits)),
            ]
        })
        .chain([Source::Mailbox, Source::Listener(0), Source::Listener(7)])
        .collect();
    for (number, source) in sources.iter().enumerate() {
        assert_eq!(Source::of(source.token()), *source);
        for other in &sources[..number] {
            assert_ne!(source.token(), other.token());
        }
    }
}
