//! Message sequences drawn from a seed, valid and slightly invalid: through the proxy a client sees
//! what it sees directly.
//!
//! A sequence is sent to the server itself and through a proxy in each mode. All answers are
//! compared, errors by their severity, code and text. A sequence whose answers differ is made
//! shorter for as long as they still differ, and shown with its seed.
//!
//! `TIDEGATE_DIFFERENTIAL_SEED` is the first seed, `TIDEGATE_DIFFERENTIAL_COUNT` the number of
//! sequences.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate_control::SplitMix64;
use tidegate_wire::backend::{self, tag};
use tidegate_wire::error_response::field;
use tidegate_wire::frontend::Target;

use crate::support::server::setup;
use crate::support::wire::{
    COPY_DONE, FLUSH, SYNC, bind_to, close, copy_data, copy_fail, describe, execute, function_call,
    message, parse, query,
};
use crate::support::{MODES, Message, Proxy, Wire, server};

/// A client that has waited for so long gets no answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sequences of a run where nothing else is said.
const COUNT: u64 = 150;

/// What a client does at once.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// It sends this, which is described so.
    Send(String, Vec<u8>),
    /// It reads until the server is ready, or nothing has come for a while; and others run
    /// something in the meantime.
    Await,
}

/// What a client of transaction mode is told that has lost its unnamed statement by a Parse or
/// Close of it in a batch that failed before: a limit of `statements.rs`.
const UNNAMED_LOST: &str = "unnamed prepared statement does not exist";

/// A table that keeps nothing, so that each run finds it the same.
const TABLE: &str = "CREATE TABLE discarded (x int); \
     CREATE FUNCTION discard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
     CREATE TRIGGER discard BEFORE INSERT ON discarded FOR EACH ROW EXECUTE FUNCTION discard()";

const TEXTS: [&str; 20] = [
    "SELECT 1",
    "SELECT generate_series(1, 5)",
    "SELECT $1::int + 1",
    "SELECT $1::text, $2::int",
    "SELECT 1/0",
    "SELECT 1 / (3 - g) FROM generate_series(1, 5) g",
    "SELEC",
    "",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT a",
    "ROLLBACK TO a",
    "INSERT INTO discarded VALUES (1)",
    "COPY discarded FROM STDIN",
    "COPY (SELECT generate_series(1, 3)) TO STDOUT",
    "DO $$ BEGIN RAISE NOTICE 'heard'; END $$",
    "SELECT x FROM discarded",
    "SELECT repeat('x', 3000) FROM generate_series(1, 3)",
    "DECLARE c CURSOR FOR SELECT generate_series(1, 9)",
];

/// Texts for simple queries only.
const SCRIPTS: [&str; 7] = [
    "SELECT 1; SELECT 2",
    "SELECT 1; SELECT 1/0; SELECT 2",
    "BEGIN; SELECT 1",
    "COMMIT; SELECT 1; BEGIN",
    "COPY discarded FROM STDIN; SELECT 2",
    "FETCH 2 FROM c",
    ";",
];

const NAMES: [&str; 4] = ["", "", "s", "t"];
const PORTALS: [&str; 3] = ["", "", "p"];

struct Draws(SplitMix64);

impl Draws {
    fn below(&mut self, count: u64) -> u64 {
        self.0.next_bits() % count
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        let index = self.below(all.len() as u64);
        all[usize::try_from(index).unwrap()]
    }

    /// One message of the extended protocol, or of a copy.
    fn message(&mut self) -> (String, Vec<u8>) {
        let (name, portal) = (self.one_of(&NAMES), self.one_of(&PORTALS));
        match self.below(24) {
            0..5 => {
                let text = self.one_of(&TEXTS);
                (format!("Parse {name:?} {text:?}"), parse(name, text))
            }
            5..9 => {
                let values: &[&str] =
                    [&[][..], &["7"], &["x"], &["a", "2"]][usize::try_from(self.below(4)).unwrap()];
                let shown = format!("Bind {portal:?} {name:?} {values:?}");
                (shown, bind_to(portal, name, values))
            }
            9..11 => {
                let shown = format!("Describe statement {name:?}");
                (shown, describe(Target::Statement, name))
            }
            11 => (format!("Describe portal {portal:?}"), describe(Target::Portal, portal)),
            12..16 => {
                let rows = [0, 0, 1, 2][usize::try_from(self.below(4)).unwrap()];
                (format!("Execute {portal:?} {rows}"), execute(portal, rows))
            }
            16 => (format!("Close statement {name:?}"), close(Target::Statement, name)),
            17 => (format!("Close portal {portal:?}"), close(Target::Portal, portal)),
            18 => ("Flush".into(), FLUSH.to_vec()),
            19 => {
                let data: &[u8] = [&b"1\n2\n"[..], b"3\n", b"wrong\n", b"\\.\n"]
                    [usize::try_from(self.below(4)).unwrap()];
                (format!("CopyData {:?}", String::from_utf8_lossy(data)), copy_data(data))
            }
            20 => ("CopyDone".into(), COPY_DONE.to_vec()),
            21 => ("CopyFail".into(), copy_fail("enough")),
            22 => self.malformed(),
            _ => ("Sync".into(), SYNC.to_vec()),
        }
    }

    /// A message with a payload that the server refuses.
    fn malformed(&mut self) -> (String, Vec<u8>) {
        let messages: [(u8, &[u8]); 8] = [
            (b'P', b"s\0SELECT 1"),
            (b'P', b"s\0SELECT 1\0\0\x02\0\0"),
            (b'P', b"no end"),
            (b'B', b"p\0s"),
            (b'B', b"\0\0\0\0\0\x01\0"),
            (b'D', b"Xs\0"),
            (b'C', b"S"),
            (b'E', b"p"),
        ];
        let (kind, payload) = messages[usize::try_from(self.below(8)).unwrap()];
        let shown = String::from_utf8_lossy(payload).into_owned();
        (format!("malformed {} {shown:?}", char::from(kind)), message(kind, payload))
    }

    fn request(&mut self) -> (String, Vec<u8>) {
        match self.below(12) {
            0 => ("FunctionCall upper".into(), function_call(871, b"loud")),
            1 => ("FunctionCall of nothing".into(), function_call(1, b"x")),
            2..5 => {
                let text = self.one_of(&SCRIPTS);
                (format!("Query {text:?}"), query(text))
            }
            _ => {
                let text = self.one_of(&TEXTS);
                (format!("Query {text:?}"), query(text))
            }
        }
    }

    /// Batches, each with its Sync, or simple queries; some are awaited and some not.
    fn sequence(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..=self.below(5) {
            if self.below(3) == 0 {
                let (shown, bytes) = self.request();
                steps.push(Step::Send(shown, bytes));
            } else {
                for _ in 0..=self.below(7) {
                    let (shown, bytes) = self.message();
                    steps.push(Step::Send(shown, bytes));
                    if self.below(12) == 0 {
                        steps.push(Step::Await);
                    }
                }
                steps.push(Step::Send("Sync".into(), SYNC.to_vec()));
            }
            if self.below(3) > 0 {
                steps.push(Step::Await);
            }
        }
        steps
    }
}

/// The messages that end a sequence whatever it was, and the error that only the last one has.
fn ending() -> Vec<u8> {
    [copy_fail("end"), SYNC.to_vec(), query("\"the end\"")].concat()
}

/// What a message says; nothing that differs from connection to connection.
fn shown(message: &Message) -> String {
    let Message { tag, payload } = message;
    let kind = char::from(*tag);
    match *tag {
        tag::ERROR if field(payload, b'V') == "FATAL" => {
            format!("FATAL {}", field(payload, b'C'))
        }
        // The proxy may have had to send another message before; the connection ends either way.
        tag::ERROR if field(payload, b'M').starts_with("unexpected message type") => {
            format!("ERROR {} unexpected message type", field(payload, b'C'))
        }
        tag::ERROR | tag::NOTICE => {
            let [severity, code, text] = [b'V', b'C', b'M'].map(|of| field(payload, of));
            format!("{severity} {code} {text}")
        }
        tag::DATA_ROW => {
            let columns = backend::data_row(payload).unwrap();
            let columns = columns.map(|it| it.map(|it| String::from_utf8_lossy(it).into_owned()));
            format!("{kind}({:?})", columns.collect::<Vec<_>>())
        }
        // Object identifiers of a table differ from server to server.
        tag::ROW_DESCRIPTION => format!("{kind}({})", payload[1]),
        _ => format!("{kind}({})", String::from_utf8_lossy(payload)),
    }
}

/// Does the steps. Returns what came back.
fn run(address: SocketAddr, steps: &[Step], meanwhile: &mut dyn FnMut()) -> Vec<String> {
    let mut client = Wire::connect(address);
    let mut seen = Vec::new();
    for step in steps {
        match step {
            // The connection may have been ended because of an earlier step.
            Step::Send(_, bytes) => {
                if client.try_send(bytes).is_err() {
                    break;
                }
            }
            Step::Await => {
                while let Some(message) = client.receive_within(Duration::from_millis(30)) {
                    let is_ready = message.tag == tag::READY_FOR_QUERY;
                    seen.push(shown(&message));
                    if is_ready {
                        break;
                    }
                }
                meanwhile();
            }
        }
    }
    let _ = client.try_send(&ending());
    let mut is_over = false;
    loop {
        let asked = Instant::now();
        let Some(message) = client.receive_within(PATIENCE) else {
            let is_closed = asked.elapsed() < PATIENCE;
            seen.push(if is_closed { "closed" } else { "no answer" }.to_owned());
            return seen;
        };
        let shown = shown(&message);
        is_over |= shown.contains("\"the end\"");
        seen.push(shown);
        if is_over && message.tag == tag::READY_FOR_QUERY {
            return seen;
        }
    }
}

/// Another client, which uses the same connections for its own statements.
fn disturb(other: &mut Wire) {
    let own = [parse("", "SELECT 'not yours'"), bind_to("", "", &[]), execute("", 0)].concat();
    let named = [parse("s", "SELECT 'not yours either'"), close(Target::Statement, "s")].concat();
    other.run(&[own, named, SYNC.to_vec()].concat());
}

/// Returns the mode and the two answers if they differ.
fn difference(
    direct: SocketAddr,
    proxies: &[(&'static str, Proxy)],
    steps: &[Step],
) -> Option<(&'static str, Vec<String>, Vec<String>)> {
    let expected = run(direct, steps, &mut || {});
    proxies.iter().find_map(|(mode, proxy)| {
        let mut other = proxy.connect();
        let seen = run(proxy.address, steps, &mut || disturb(&mut other));
        let is_known = seen.iter().any(|line| line.contains(UNNAMED_LOST));
        (seen != expected && !is_known).then(|| (*mode, expected.clone(), seen))
    })
}

/// Leaves steps out for as long as the answers differ.
fn shortest(direct: SocketAddr, proxies: &[(&'static str, Proxy)], steps: &[Step]) -> Vec<Step> {
    let mut steps = steps.to_vec();
    let mut index = 0;
    while index < steps.len() {
        let mut without = steps.clone();
        without.remove(index);
        if difference(direct, proxies, &without).is_some() {
            steps = without;
        } else {
            index += 1;
        }
    }
    steps
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn any_sequence_of_messages_is_answered_as_directly() {
    let server = server();
    let _ = server.connect().unwrap().query(TABLE);
    let direct = ([127, 0, 0, 1], server.port()).into();
    let proxies = MODES.map(|mode| (mode, setup(&server, mode).limit(2).start()));
    let first = number("TIDEGATE_DIFFERENTIAL_SEED", 7_000_000);
    let mut differing = 0;
    for seed in first..first + number("TIDEGATE_DIFFERENTIAL_COUNT", COUNT) {
        let steps = Draws(SplitMix64::new(seed)).sequence();
        if difference(direct, &proxies, &steps).is_none() {
            continue;
        }
        let steps = shortest(direct, &proxies, &steps);
        let Some((mode, expected, seen)) = difference(direct, &proxies, &steps) else {
            println!("seed {seed}: the answers differed, and did not again");
            continue;
        };
        differing += 1;
        println!("\nseed {seed}, {mode} mode:");
        for step in &steps {
            match step {
                Step::Send(shown, _) => println!("  {shown}"),
                Step::Await => println!("  (await)"),
            }
        }
        println!("directly: {expected:#?}\nby proxy: {seen:#?}");
    }
    assert_eq!(differing, 0, "sequences from seed {first} are answered in another way");
    for (_, proxy) in &proxies {
        proxy.is_left_clean();
    }
}
