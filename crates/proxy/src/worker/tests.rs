//! An event loop that the test turns by hand, so that events come in one batch and in this order.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use mio::Events;
use proptest::prelude::*;
use tidegate_wire::backend::{self, TransactionStatus, encode_ready_for_query};
use tidegate_wire::frame::{HEADER_LEN, frame};
use tidegate_wire::frontend::{self, encode_query, tag};
use tidegate_wire::input::{Input, Side};
use tidegate_wire::startup::{CancelKey, FirstPacket, encode_cancel, encode_startup};

use super::*;
use crate::config::ListenAddress;
use crate::config_file::ConfigFile;
use crate::slots::INDEX_BITS;

/// Turns within which everything has happened.
const TURNS_MAX: usize = 1_000;

struct Loop {
    worker: Worker,
    events: Events,
    address: SocketAddr,
    upstream: TcpListener,
}

impl Loop {
    /// A loop whose configuration of the database has these lines beside the server's address.
    fn new(lines: &str) -> Loop {
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        upstream.set_nonblocking(true).unwrap();
        // Or the server would be asked.
        let is_bounded = lines.contains("max_connections");
        let connections = if is_bounded { "" } else { "max_connections = 100" };
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\n[databases.\"*\"]\n\
             upstream = \"postgres://{}?sslmode=disable\"\n{lines}\n{connections}",
            upstream.local_addr().unwrap()
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tidegate.toml");
        std::fs::write(&path, text).unwrap();
        let config = ConfigFile::read(Path::new(&path)).unwrap().into_config().unwrap();
        let (listener, taken) = crate::listen_on(&config.listen[0]).unwrap();
        let ListenAddress::Tcp(address) = taken else { panic!("{taken}") };
        let (mut polls, mailboxes) = crate::event_loops(1).unwrap();
        let lasting = crate::configuration::Lasting {
            accounts: Arc::new(crate::accounts::Accounts::new(&mailboxes, Instant::now())),
            mailboxes,
            commands: Arc::default(),
            console: Arc::default(),
            handover: Arc::default(),
        };
        let shared = crate::configuration::build(config, None, lasting).unwrap();
        crate::configuration::apply(&shared);
        let (poll, in_force) = (polls.pop().unwrap(), InForce::new(shared));
        let listeners = vec![(0, listener)];
        let worker =
            Worker::new(WorkerIndex(0), in_force, poll, listeners, Arc::default()).unwrap();
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
    let mut this = Loop::new("");
    let mut leaver = this.connect();
    let mut upstream = this.accept_upstream();
    this.until(|_| upstream.read(&mut [0; HEADER_LEN]).ok());
    upstream.write_all(b"R\0\0\0\x08\0\0\0\0").unwrap();
    upstream.write_all(&ready()).unwrap();
    this.receive(&mut leaver, b'Z').unwrap();
    let slot = this.worker.clients.slots()[0];

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
    let [now] = *this.worker.clients.slots() else { panic!("the newcomer alone is there") };
    assert_eq!(now.index(), slot.index(), "the newcomer has the leaver's slot");
    assert_ne!(now, slot);
    assert_eq!(this.receive(&mut newcomer, b'Z'), Some(()), "the newcomer is logged in");
}

/// The server closes a connection while the proxy still prepares it for a client: nothing of the
/// client's has been sent, so it gets another connection and learns of nothing.
#[test]
fn a_connection_that_dies_before_its_client_is_heard_is_replaced() {
    let mut this = Loop::new("control = \"fixed:1\"");
    let mut client = TcpStream::connect(this.address).unwrap();
    client.set_nonblocking(true).unwrap();
    let mut packet = Vec::new();
    let parameters =
        [(&b"user"[..], &b"u"[..]), (b"database", b"d"), (b"application_name", b"mine")];
    encode_startup(&mut packet, parameters);
    client.write_all(&packet).unwrap();
    let stream = this.accept_upstream();
    let mut first = Backend { stream, received: Vec::new(), status: None };
    let mut received = Vec::new();
    this.until(|_| {
        assert!(first.answer());
        read(&mut client, &mut received).unwrap();
        tags(&received).contains(&b'Z').then_some(())
    });
    client.write_all(&message(4)).unwrap();
    let mut settings = Vec::new();
    this.until(|_| {
        read(&mut first.stream, &mut settings).unwrap();
        tags(&settings).contains(&tag::QUERY).then_some(())
    });
    let words = String::from_utf8_lossy(&settings).into_owned();
    assert!(words.contains("application_name") && !words.contains("SELECT 1\0"), "{words}");
    drop(first);

    let stream = this.accept_upstream();
    let mut second = Backend { stream, received: Vec::new(), status: None };
    received.clear();
    this.until(|_| {
        assert!(second.answer());
        read(&mut client, &mut received).unwrap();
        (!received.is_empty()).then_some(())
    });
    assert_eq!(tags(&received), b"Z", "the answer and no error");
    assert_eq!(this.worker.counters.transactions_put_back.load(Ordering::Relaxed), 1);
}

/// A token finds the connection it was made for, and none of another kind or generation.
#[test]
fn tokens_name_one_connection() {
    let bits = [0, 1, (1 << INDEX_BITS) - 1, 1 << INDEX_BITS, (1 << 56) - 1];
    let sources: Vec<Source> = bits
        .iter()
        .flat_map(|&bits| {
            [
                Source::Client(Slot::from_bits(bits)),
                Source::Upstream(Slot::from_bits(bits)),
                Source::CancelRequest(Slot::from_bits(bits)),
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

/// What happens to an event loop. A number names one of the clients or connections there are.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Connect,
    /// A client sends the message of this number.
    Send(usize, usize),
    /// A client goes, with or without a word.
    Leave(usize, bool),
    /// A cancel request for a client comes.
    Cancel(usize),
    /// The server accepts what knocks.
    Accept,
    /// The server answers all that has come by a connection.
    Answer(usize),
    /// The server closes a connection.
    Close(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        2 => Just(Happening::Connect),
        6 => (0..9_usize, 0..9_usize).prop_map(|(client, kind)| Happening::Send(client, kind)),
        2 => (0..9_usize, any::<bool>()).prop_map(|(client, says)| Happening::Leave(client, says)),
        1 => (0..9_usize).prop_map(Happening::Cancel),
        4 => Just(Happening::Accept),
        6 => (0..9_usize).prop_map(Happening::Answer),
        1 => (0..9_usize).prop_map(Happening::Close),
    ]
}

fn message(kind: usize) -> Vec<u8> {
    let mut out = Vec::new();
    match kind {
        0 | 1 => encode_query(&mut out, b"begin"),
        2 | 3 => encode_query(&mut out, b"commit"),
        4 | 5 => encode_query(&mut out, b"SELECT 1"),
        6 => {
            frontend::encode_parse(&mut out, b"s", &frontend::definition(b"SELECT 1"));
            out.extend_from_slice(frontend::SYNC);
        }
        7 => out.extend_from_slice(b"Q\0\0"),
        _ => out.extend_from_slice(b"Z\0\0\0\x04"),
    }
    out
}

/// The server's end of a connection: `begin` opens a transaction, `commit` and `rollback` end it.
struct Backend {
    stream: TcpStream,
    received: Vec<u8>,
    /// `None` before the start-up packet.
    status: Option<TransactionStatus>,
}

impl Backend {
    /// Answers what has come. Returns whether the connection goes on.
    fn answer(&mut self) -> bool {
        if read(&mut self.stream, &mut self.received).is_err() {
            return false;
        }
        let (received, mut out) = (std::mem::take(&mut self.received), Vec::new());
        let mut input = Input::new(Side::Client, &received);
        if self.status.is_none() {
            match input.first_packet() {
                Ok(Some(FirstPacket::Startup(_))) => {
                    self.status = Some(TransactionStatus::Idle);
                    out.extend_from_slice(b"R\0\0\0\x08\0\0\0\0");
                    let key = CancelKey { process_id: 7, secret: [7; 4].into() };
                    backend::encode_backend_key_data(&mut out, &key);
                    out.extend_from_slice(&ready());
                }
                Ok(None) => return true,
                // A cancel request: it has arrived.
                _ => return false,
            }
        }
        while let Some(status) = &mut self.status
            && let Ok(Some(peeked)) = input.peek()
            && peeked.is_complete()
        {
            let (message, _) = peeked.take();
            let text = message.payload().to_ascii_lowercase();
            match message.tag() {
                tag::TERMINATE => return false,
                tag::PARSE => out.extend_from_slice(backend::PARSE_COMPLETE),
                tag::QUERY if text == b"begin\0" => *status = TransactionStatus::InBlock,
                tag::QUERY if matches!(&*text, b"commit\0" | b"rollback\0") => {
                    *status = TransactionStatus::Idle;
                }
                _ => {}
            }
            if matches!(message.tag(), tag::QUERY | tag::SYNC) {
                encode_ready_for_query(&mut out, *status);
            }
        }
        self.received = received[input.position()..].to_vec();
        self.stream.write_all(&out).is_ok()
    }
}

/// A loop with its clients and its server, each of them driven by hand.
struct World {
    this: Loop,
    clients: Vec<TcpStream>,
    backends: Vec<Backend>,
}

impl World {
    fn happens(&mut self, happening: Happening) {
        let at = |number: usize, len: usize| number.checked_rem(len);
        match happening {
            Happening::Connect => self.clients.push(self.this.connect()),
            Happening::Send(client, kind) => {
                if let Some(index) = at(client, self.clients.len()) {
                    // The loop may have closed the connection already.
                    let _ = self.clients[index].write_all(&message(kind));
                }
            }
            Happening::Leave(client, says) => {
                if let Some(index) = at(client, self.clients.len()) {
                    let mut client = self.clients.swap_remove(index);
                    let _ = if says { client.write_all(frontend::TERMINATE) } else { Ok(()) };
                }
            }
            Happening::Cancel(client) => {
                let slots = self.this.worker.clients.slots();
                if let Some(index) = at(client, slots.len()) {
                    let mut packet = Vec::new();
                    let key = self.this.worker.clients[slots[index]].key.shown();
                    encode_cancel(&mut packet, &key);
                    let mut stream = TcpStream::connect(self.this.address).unwrap();
                    stream.write_all(&packet).unwrap();
                    stream.set_nonblocking(true).unwrap();
                    self.clients.push(stream);
                }
            }
            Happening::Accept => {
                while let Ok((stream, _)) = self.this.upstream.accept() {
                    stream.set_nonblocking(true).unwrap();
                    self.backends.push(Backend { stream, received: Vec::new(), status: None });
                }
            }
            Happening::Answer(number) => {
                if let Some(index) = at(number, self.backends.len())
                    && !self.backends[index].answer()
                {
                    self.backends.swap_remove(index);
                }
            }
            Happening::Close(number) => {
                if let Some(index) = at(number, self.backends.len()) {
                    self.backends.swap_remove(index);
                }
            }
        }
        // A sweep in each turn, so that no turn sleeps.
        self.this.worker.next_sweep = self.this.worker.now;
        self.this.turn();
        self.this.worker.check();
        self.has_a_place_for_each_connection();
    }

    fn has_a_place_for_each_connection(&self) {
        let worker = &self.this.worker;
        let bound = crate::capacity::Bound::Server(crate::slots::ServerIndex(0));
        let places = worker.shared.accounts.upstreams.occupancy(&bound).unwrap();
        assert!(places.taken <= places.max, "{places:?}");
        // One may be on its way to a pool that waits.
        let open = worker.upstreams.len();
        assert!((open..=open + 1).contains(&(places.taken as usize)), "{places:?}, {open} open");
    }

    /// All clients go, and the server answers until nothing is left to be done.
    fn ends(&mut self) {
        self.clients.clear();
        for _ in 0..TURNS_MAX {
            let gate = self.this.worker.shared.servers[0].server.gate.snapshot();
            let worker = &self.this.worker;
            if worker.clients.is_empty() && worker.upstreams.busy() == 0 {
                assert_eq!((gate.outstanding, gate.waiting), (0, 0), "nothing is held");
                self.has_a_place_for_each_connection();
                return;
            }
            self.happens(Happening::Accept);
            for number in 0..self.backends.len() {
                self.happens(Happening::Answer(number));
            }
        }
        panic!("something is left");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// The loop's invariants hold after every event (`Worker::check`), and nothing is left behind.
    #[test]
    fn whatever_happens_every_connection_has_one_holder_and_every_permit_returns(
        mode in prop_oneof![Just("transaction"), Just("session")],
        connections in prop_oneof![1..4_u32, Just(100)],
        happenings in prop::collection::vec(happening(), 0..160),
    ) {
        let lines =
            format!("mode = \"{mode}\"\ncontrol = \"fixed:2\"\nmax_connections = {connections}");
        let this = Loop::new(&lines);
        let mut world = World { this, clients: Vec::new(), backends: Vec::new() };
        for happening in happenings {
            world.happens(happening);
        }
        world.ends();
    }
}
