//! Clients on shared connections see what each would see on a connection of its own.
//!
//! Each client's messages are drawn from a seed while a [`Backend`] of its own answers them: that
//! is what the client has to see. Then the same messages go through the proxy's bookkeeping, many
//! clients on two connections, in a drawn order of sending, serving and receiving.

use std::collections::VecDeque;

use tidegate_control::SplitMix64;
use tidegate_wire::frame::{self, HEADER_LEN};
use tidegate_wire::input::{Input, Side};

use super::backend_test::{Answer, Backend, message};
use super::*;

const CLIENTS: usize = 6;
const LINKS: usize = 2;
const BATCHES: usize = 12;
const PREPARED_MAX: usize = 3;

/// Draws until everything must have been sent, served and received.
const DRAWS_MAX: u32 = 200_000;

struct Chance(SplitMix64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.next_bits() % bound as u64).unwrap()
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

enum Step {
    Send(Vec<u8>),
    /// Wait until so many bytes have come.
    Await(usize),
}

/// A client's messages, and what it must see.
struct Script {
    steps: VecDeque<Step>,
    backend: Backend,
    expected: Vec<u8>,
}

impl Script {
    fn draw(chance: &mut Chance) -> Script {
        let mut script =
            Script { steps: VecDeque::new(), backend: Backend::new(), expected: Vec::new() };
        for _ in 0..BATCHES {
            match chance.below(8) {
                0 => script.send(frontend::SYNC.to_vec()),
                1 => script.copy_by_query(chance),
                2 => script.copy_by_execute(chance),
                3 | 4 => script.query(chance),
                _ => script.batch(chance),
            }
            if chance.one_in(2) {
                script.wait();
            }
        }
        // No script may keep a connection for ever.
        script.send(query("rollback"));
        script.wait();
        script
    }

    fn send(&mut self, message: Vec<u8>) {
        for answer in self.backend.take(&message) {
            self.expected.extend_from_slice(&answer);
        }
        self.steps.push_back(Step::Send(message));
    }

    fn wait(&mut self) {
        self.steps.push_back(Step::Await(self.expected.len()));
    }

    fn query(&mut self, chance: &mut Chance) {
        let sql = chance.of(&[
            "row q",
            "row q;row r",
            "row q;fail;row r",
            "begin",
            "commit",
            "rollback",
            "fail",
            "empty",
            "notice",
            "copy out",
            "begin;row q",
            "deallocate all",
        ]);
        self.send(query(sql));
    }

    /// A batch of the extended protocol. It ends with a DEALLOCATE ALL: see the limits of
    /// `statements`.
    fn batch(&mut self, chance: &mut Chance) {
        for _ in 0..=chance.below(6) {
            let seen = self.expected.len();
            let name = chance.of(&["", "a", "b", "c", "d", "e"]);
            let portal = chance.of(&["", "", "p"]);
            let is_failed = self.backend.status == TransactionStatus::Failed;
            let is_taken = self.backend.statements.contains_key(name.as_bytes());
            let may_parse = name.is_empty() || !is_failed;
            match chance.below(7) {
                0 | 1 if may_parse => {
                    let sql = if chance.one_in(5) && !is_taken {
                        format!("bad {}", chance.below(1_000_000))
                    } else {
                        statement(chance)
                    };
                    self.send(parse(name, &sql));
                }
                2 => self.send(close(chance.of(&[Target::Portal, Target::Portal]), portal)),
                3 => self.send(close(Target::Statement, name)),
                4 => self.send(describe(chance.of(&[Target::Statement, Target::Portal]), name)),
                5 => self.send(execute(portal, chance.below(2))),
                _ => {
                    self.send(bind(portal, name));
                    self.send(execute(portal, chance.below(2)));
                }
            }
            if self.expected[seen..].windows(14).any(|text| text == b"DEALLOCATE ALL") {
                break;
            }
        }
        if chance.one_in(4) {
            self.wait();
        }
        self.send(frontend::SYNC.to_vec());
    }

    fn copy_by_query(&mut self, chance: &mut Chance) {
        self.send(query("copy in"));
        self.wait();
        if self.backend.is_in_copy() {
            self.copy_data(chance);
        }
    }

    /// Sync may come before the data, as libpq sends it, and the data before it is asked for.
    fn copy_by_execute(&mut self, chance: &mut Chance) {
        for message in [parse("", "copy in"), bind("", ""), execute("", 0)] {
            self.send(message);
        }
        if chance.one_in(2) {
            self.send(frontend::SYNC.to_vec());
        }
        if chance.one_in(2) {
            self.wait();
        }
        self.copy_data(chance);
        self.send(frontend::SYNC.to_vec());
        // A later batch may not run it by chance, without data.
        for message in [parse("", "row after"), bind("", ""), frontend::SYNC.to_vec()] {
            self.send(message);
        }
    }

    fn copy_data(&mut self, chance: &mut Chance) {
        for _ in 0..chance.below(3) {
            let data = chance.of(&[&b"right"[..], b"right", b"wrong"]);
            self.send(message(tag::COPY_DATA, data));
        }
        let end = chance.of(&[tag::COPY_DONE, tag::COPY_DONE, tag::COPY_FAIL]);
        self.send(message(end, if end == tag::COPY_FAIL { b"\0" } else { b"" }));
    }
}

fn statement(chance: &mut Chance) -> String {
    let others = ["rows", "begin", "commit", "rollback", "fail", "notice", "empty", "copy out"];
    match chance.below(12) {
        0 => "deallocate all".into(),
        1..=4 => chance.of(&others).into(),
        _ => format!("row {}", chance.below(8)),
    }
}

fn query(sql: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::encode_query(&mut out, sql.as_bytes());
    out
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::encode_parse(&mut out, name.as_bytes(), &frontend::definition(sql.as_bytes()));
    out
}

fn bind(portal: &str, statement: &str) -> Vec<u8> {
    let names = [portal.as_bytes(), b"\0", statement.as_bytes(), b"\0", &[0; 6]].concat();
    message(tag::BIND, &names)
}

fn execute(portal: &str, rows: usize) -> Vec<u8> {
    let rows = u32::try_from(rows).unwrap().to_be_bytes();
    message(tag::EXECUTE, &[portal.as_bytes(), b"\0", &rows].concat())
}

fn describe(target: Target, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::encode_describe(&mut out, target, name.as_bytes());
    out
}

fn close(target: Target, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::encode_close(&mut out, target, name.as_bytes());
    out
}

/// A client behind the proxy.
struct Peer {
    session: ClientSession,
    script: Script,
    seen: Vec<u8>,
    link: Option<usize>,
    has_vanished: bool,
}

/// An upstream connection, with what is on the way in both directions.
struct Link {
    session: ServerSession,
    backend: Backend,
    to_server: VecDeque<Vec<u8>>,
    to_proxy: VecDeque<Vec<u8>>,
    owner: Option<usize>,
    is_abandoned: bool,
}

impl Link {
    fn new() -> Link {
        Link {
            session: ServerSession::new(),
            backend: Backend::new(),
            to_server: VecDeque::new(),
            to_proxy: VecDeque::new(),
            owner: None,
            is_abandoned: false,
        }
    }
}

/// The proxy's bookkeeping in the order in which the workers use it.
struct Proxy {
    peers: Vec<Peer>,
    links: Vec<Link>,
    definitions: Definitions,
}

impl Proxy {
    fn new(chance: &mut Chance) -> Proxy {
        let peer = |chance: &mut Chance| Peer {
            session: ClientSession::default(),
            script: Script::draw(chance),
            seen: Vec::new(),
            link: None,
            has_vanished: false,
        };
        Proxy {
            peers: (0..CLIENTS).map(|_| peer(chance)).collect(),
            links: (0..LINKS).map(|_| Link::new()).collect(),
            definitions: Definitions::default(),
        }
    }

    /// The peer sends its next message; false if it has none or cannot go on.
    fn send(&mut self, at: usize) -> bool {
        let peer = &mut self.peers[at];
        if peer.has_vanished {
            return false;
        }
        let message = match peer.script.steps.front() {
            Some(Step::Send(message)) => message.clone(),
            Some(Step::Await(len)) if peer.seen.len() >= *len => {
                peer.script.steps.pop_front();
                return true;
            }
            _ => return false,
        };
        if peer.link.is_none() && self.at_rest(at, &message) {
            self.peers[at].script.steps.pop_front();
            return true;
        }
        let Some(link) = self.link_of(at) else {
            return false;
        };
        let (client, server) = (&self.peers[at].session, &self.links[link].session);
        if has_to_wait(message[0], &message[HEADER_LEN..], client, server) {
            return false;
        }
        self.peers[at].script.steps.pop_front();
        self.relay(at, link, &message);
        true
    }

    /// What needs no connection is answered at once, or dropped.
    fn at_rest(&mut self, at: usize, message: &[u8]) -> bool {
        let peer = &mut self.peers[at];
        match message[0] {
            tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => true,
            tag::SYNC => {
                backend::encode_ready_for_query(&mut peer.seen, TransactionStatus::Idle);
                true
            }
            tag::PARSE => {
                let next = peer.script.steps.get(1);
                let is_alone = matches!(next, Some(Step::Send(next)) if next == frontend::SYNC);
                let (session, payload) = (&mut peer.session, &message[HEADER_LEN..]);
                if !is_alone || !prepare_without_server(payload, session, &mut self.definitions) {
                    return false;
                }
                // The Sync is answered on its own.
                peer.seen.extend_from_slice(backend::PARSE_COMPLETE);
                true
            }
            _ => false,
        }
    }

    fn link_of(&mut self, at: usize) -> Option<usize> {
        let free = |link: &Link| link.owner.is_none() && !link.is_abandoned;
        let peer = &mut self.peers[at];
        if peer.link.is_none() {
            peer.link = self.links.iter().position(free);
            let link = &mut self.links[peer.link?];
            link.owner = Some(at);
            link.session.begin_lending();
        }
        peer.link
    }

    fn relay(&mut self, at: usize, index: usize, message: &[u8]) {
        let (peer, link) = (&mut self.peers[at], &mut self.links[index]);
        let mut naming = Naming::Shared {
            definitions: &mut self.definitions,
            prepared_max: PREPARED_MAX,
            policy: SessionStatePolicy::Pin,
        };
        let mut out = BatchOutput::new(message, Vec::new());
        let mut input = Input::new(Side::Client, message);
        let (message, _) = input.peek().unwrap().unwrap().take();
        let (client, server) = (&mut peer.session, &mut link.session);
        to_server(&message, client, server, &mut naming, &mut out).unwrap();
        link.to_server.extend(messages(out.bytes()));
        let mut out = BatchOutput::new(&[], Vec::new());
        answer_for_proxy(Some(client), server, &mut out);
        peer.seen.extend_from_slice(out.bytes());
        if server.is_at_rest() {
            self.release(index);
        }
    }

    /// The server answers its next message; false if there is none.
    fn serve(&mut self, index: usize) -> bool {
        let link = &mut self.links[index];
        let Some(message) = link.to_server.pop_front() else {
            return false;
        };
        link.to_proxy.extend(link.backend.take(&message));
        let named = link.backend.statements.keys().filter(|name| !name.is_empty()).count();
        assert!(named <= PREPARED_MAX, "{named} statements");
        true
    }

    /// The proxy receives the server's next message; false if there is none.
    fn receive(&mut self, index: usize) -> bool {
        let link = &mut self.links[index];
        let Some(message) = link.to_proxy.pop_front() else {
            return false;
        };
        let mut peer = link.owner.map(|at| &mut self.peers[at]);
        let mut out = BatchOutput::new(&message, Vec::new());
        let (tag, payload) = (message[0], &message[HEADER_LEN..]);
        let client = peer.as_deref_mut().map(|peer| &mut peer.session);
        let verdict = from_server(tag, payload, client, &mut link.session).unwrap();
        if verdict == Verdict::Pass {
            out.pass(0..message.len());
        }
        let client = peer.as_deref_mut().map(|peer| &mut peer.session);
        answer_for_proxy(client, &mut link.session, &mut out);
        if let Some(peer) = peer {
            peer.seen.extend_from_slice(out.bytes());
        }
        if link.is_abandoned {
            self.wind_up(index);
        } else if tag == backend::tag::READY_FOR_QUERY && link.session.is_at_rest() {
            self.release(index);
        }
        true
    }

    /// The peer is gone, in the middle of whatever it did.
    fn vanish(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        peer.has_vanished = true;
        if let Some(index) = peer.link.take() {
            self.links[index].owner = None;
            self.links[index].is_abandoned = true;
            let mut out = Vec::new();
            flush(&self.links[index].session, &mut out);
            self.links[index].to_server.extend(messages(&out));
            self.wind_up(index);
        }
    }

    fn wind_up(&mut self, index: usize) {
        let link = &mut self.links[index];
        let mut out = Vec::new();
        wind_up(&mut link.session, &mut out);
        link.to_server.extend(messages(&out));
        if !link.session.replies.is_quiet() || link.session.status != TransactionStatus::Idle {
            return;
        }
        if link.session.replies.is_uncertain() {
            // It is closed; another takes its place.
            *link = Link::new();
        } else {
            self.release(index);
        }
    }

    /// The bookkeeping says that the connection is at rest: nothing is on the way that matters,
    /// and the server agrees.
    fn release(&mut self, index: usize) {
        let link = &mut self.links[index];
        assert!(link.to_proxy.is_empty(), "an answer is still on the way");
        while let Some(stray) = link.to_server.pop_front() {
            let is_stray = matches!(stray[0], tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL);
            assert!(is_stray, "a message is still on the way: {:?}", char::from(stray[0]));
            assert_eq!(link.backend.take(&stray), Answer::new());
        }
        assert!(link.backend.is_at_rest(), "the server is not at rest");
        link.is_abandoned = false;
        if let Some(at) = link.owner.take() {
            self.peers[at].link = None;
        }
    }
}

fn messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(frame) = frame::frame(bytes).unwrap() {
        let (one, rest) = bytes.split_at(frame.len);
        all.push(one.to_vec());
        bytes = rest;
    }
    assert!(bytes.is_empty());
    all
}

fn play(seed: u64, vanishing: bool) {
    let mut chance = Chance(SplitMix64::new(seed));
    let mut proxy = Proxy::new(&mut chance);
    let (mut idle_draws, mut draws) = (0, 0);
    while idle_draws < 1_000 {
        draws += 1;
        assert!(draws < DRAWS_MAX, "it never comes to an end");
        let went_on = match chance.below(3) {
            0 => proxy.send(chance.below(CLIENTS)),
            1 => proxy.serve(chance.below(LINKS)),
            _ => proxy.receive(chance.below(LINKS)),
        };
        idle_draws = if went_on { 0 } else { idle_draws + 1 };
        if vanishing && chance.one_in(200) {
            proxy.vanish(chance.below(CLIENTS));
        }
    }
    for peer in &proxy.peers {
        if peer.has_vanished {
            assert!(peer.script.expected.starts_with(&peer.seen));
            continue;
        }
        assert_eq!(shown(&peer.seen), shown(&peer.script.expected));
        assert!(peer.script.steps.is_empty(), "it waits for ever");
    }
    for link in &proxy.links {
        assert!(link.owner.is_none() && !link.is_abandoned, "a connection is held for nothing");
    }
}

/// Errors by their code, the rest by type and payload.
fn shown(bytes: &[u8]) -> Vec<String> {
    messages(bytes)
        .iter()
        .map(|message| {
            let text = String::from_utf8_lossy(&message[HEADER_LEN..]).replace('\0', "");
            format!("{}({text})", char::from(message[0]))
        })
        .collect()
}

fn for_seeds(vanishing: bool) {
    for seed in 0..400 {
        let outcome = std::panic::catch_unwind(|| play(seed, vanishing));
        assert!(outcome.is_ok(), "seed {seed} fails; the reason is above");
    }
}

#[test]
fn each_client_sees_what_its_own_server_would_show_it() {
    for_seeds(false);
}

#[test]
fn connections_of_vanished_clients_come_to_rest() {
    for_seeds(true);
}
