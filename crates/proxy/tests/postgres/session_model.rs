//! Clients of transaction mode see what each would see on a connection of its own.
//!
//! Statements are drawn from a seed. Each client runs them through the proxy, where all share a few
//! connections, and its twin runs the same on a direct connection: the answers have to be the same.

use tidegate_control::SplitMix64;
use tidegate_wire::backend::tag;

use crate::support::server::{HandingOver, setup};
use crate::support::wire::{SYNC, bind, execute, extended, parse, query, show};
use crate::support::{Wire, server};

const CLIENTS: usize = 4;
/// Statements that all clients of a play run together.
const LENGTH: usize = 400;

struct Draws(SplitMix64);

/// What a client sends, and its twin too.
enum Batch {
    Simple(String),
    Extended(String),
    /// Prepares under a name; empty is the unnamed statement.
    Prepare(&'static str, String),
    Run(&'static str),
}

/// Statements; `#` stands for a small number, `KEY` for a number of the connection's own.
const STATEMENTS: [&str; 66] = [
    "SET work_mem = '#MB'",
    "SET LOCAL work_mem = '#MB'",
    "SET search_path = s#, public",
    "SET lock_timeout = '#s'",
    "SET TimeZone = 'Etc/GMT-#'",
    "SET app.tenant = '#'",
    "SET LOCAL app.tenant = '#'",
    "SELECT set_config('app.tenant', '#', false)",
    "SELECT set_config('app.tenant', '#', true)",
    "DO $$ BEGIN SET work_mem = '#MB'; END $$",
    "SET work_mem = '#MB'; SELECT 1/0",
    "SET work_mem = '#MB'; SHOW work_mem",
    "SET ROLE pg_monitor",
    "SET ROLE pg_read_all_data",
    "SET SESSION AUTHORIZATION pg_monitor",
    "RESET SESSION AUTHORIZATION",
    "RESET ROLE",
    "RESET work_mem",
    "RESET TimeZone",
    "RESET app.tenant",
    "RESET ALL",
    "DISCARD ALL",
    "DISCARD TEMP",
    "SHOW work_mem",
    "SHOW lock_timeout",
    "SHOW search_path",
    "SHOW TimeZone",
    "SELECT session_user, current_user",
    "SELECT coalesce(current_setting('app.tenant', true), '')",
    "SHOW transaction_isolation",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "BEGIN",
    "BEGIN",
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "COMMIT",
    "COMMIT",
    "COMMIT",
    "ROLLBACK",
    "ROLLBACK",
    "SAVEPOINT s",
    "ROLLBACK TO s",
    "SELECT 1/0",
    "CREATE TEMP TABLE t# (x int)",
    "CREATE TEMP TABLE t# (x int) ON COMMIT DROP",
    "CREATE TEMP TABLE t# ON COMMIT DELETE ROWS AS SELECT 7 AS x",
    "INSERT INTO t# VALUES (#)",
    "SELECT sum(x) FROM t#",
    "DROP TABLE t#",
    "PREPARE p# AS SELECT #",
    "EXECUTE p#",
    "DEALLOCATE p#",
    "DEALLOCATE ALL",
    "SELECT pg_try_advisory_lock(KEY, #)",
    "SELECT pg_advisory_unlock(KEY, #)",
    "SELECT pg_advisory_xact_lock(KEY, #)",
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = KEY",
    "SELECT pg_advisory_unlock_all()",
    "DECLARE c# CURSOR WITH HOLD FOR SELECT generate_series(1, 9)",
    "DECLARE c# CURSOR FOR SELECT generate_series(1, 9)",
    "FETCH 2 FROM c#",
    "CLOSE c#",
    "CLOSE ALL",
    "LISTEN channel_#",
    "UNLISTEN channel_#",
    "UNLISTEN *",
    "SELECT count(*) FROM pg_listening_channels()",
];

impl Batch {
    /// The messages of a connection that has a `key` of its own.
    fn messages(&self, key: u32) -> Vec<u8> {
        let own = |text: &str| text.replace("KEY", &key.to_string());
        match self {
            Batch::Simple(text) => query(&own(text)),
            Batch::Extended(text) => [extended(&own(text)), SYNC.to_vec()].concat(),
            Batch::Prepare(name, text) => [parse(name, &own(text)), SYNC.to_vec()].concat(),
            Batch::Run(name) => [bind(name, &[]), execute("", 0), SYNC.to_vec()].concat(),
        }
    }

    fn text(&self) -> String {
        match self {
            Batch::Simple(text) => text.clone(),
            Batch::Extended(text) => format!("{text} (extended)"),
            Batch::Prepare(name, text) => format!("{name:?} is {text}"),
            Batch::Run(name) => format!("run {name:?}"),
        }
    }
}

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.next_bits() % bound as u64).unwrap()
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A statement; `KEY` stands for a number of the connection's own.
    fn statement(&mut self) -> String {
        let number = 1 + self.below(3);
        self.of(&STATEMENTS).replace('#', &number.to_string())
    }

    fn batch(&mut self) -> Batch {
        let names = ["named1", "named2"];
        match self.below(12) {
            0 => Batch::Prepare("", self.statement()),
            1 => Batch::Run(""),
            // A name means the same text to all, whatever exists when it is prepared.
            2 => {
                let texts = ["SHOW work_mem", "SELECT session_user", "SELECT 7"];
                Batch::Prepare(self.of(&names), self.of(&texts).to_owned())
            }
            3 => Batch::Run(self.of(&names)),
            4 | 5 => Batch::Extended(self.statement()),
            _ => Batch::Simple(self.statement()),
        }
    }
}

/// A client of the proxy and its twin, with what they have sent.
struct Pair {
    client: Wire,
    twin: Wire,
    keys: [u32; 2],
    sent: Vec<String>,
    /// It is in a transaction that has failed.
    is_failed: bool,
}

impl Pair {
    /// Runs the batch in both places and compares the answers.
    fn run(&mut self, batch: &Batch) {
        // The proxy itself prepares what is prepared already, also in a failed transaction.
        if self.is_failed && matches!(batch, Batch::Prepare(name, _) if !name.is_empty()) {
            return;
        }
        self.sent.push(batch.text());
        let answer = |wire: &mut Wire, key| {
            wire.send(&batch.messages(key));
            let mut messages = wire.until_ready();
            // Reports may come with the settings of the next transaction.
            messages.retain(|message| message.tag != tag::PARAMETER_STATUS);
            show(&messages)
        };
        let seen = answer(&mut self.client, self.keys[0]);
        let expected = answer(&mut self.twin, self.keys[1]);
        assert_eq!(seen, expected, "the last of {:#?}", self.sent);
        self.is_failed = expected.ends_with("Z(E)");
    }
}

#[expect(clippy::print_stdout, reason = "a failure is repeated from its seed")]
fn play(seed: u64, are_handed_over: bool) {
    println!("seed {seed}, handed over: {are_handed_over}");
    let server = server();
    let direct = ([127, 0, 0, 1], server.port()).into();
    let limit = u32::try_from(CLIENTS).unwrap();
    let mut proxy = setup(&server, "transaction").limit(limit).start();
    let address = proxy.address;
    let mut handing_over: Option<HandingOver> = None;
    let mut draws = Draws(SplitMix64::new(seed));
    let mut key = u32::try_from(seed).unwrap() * 10_000;
    let mut pair = || {
        key += 2;
        let parameters = [("application_name", "model"), ("options", "-c work_mem=9MB")];
        let client = Wire::with(address, &parameters);
        let twin = Wire::with(direct, &parameters);
        Pair { client, twin, keys: [key, key + 1], sent: Vec::new(), is_failed: false }
    };
    let mut pairs: Vec<Pair> = (0..CLIENTS).map(|_| pair()).collect();
    for _ in 0..LENGTH {
        let index = draws.below(CLIENTS);
        if draws.below(50) == 0 {
            pairs[index] = pair();
        }
        pairs[index].run(&draws.batch());
        // While some are inside transactions, which end in the old process.
        if are_handed_over && draws.below(15) == 0 {
            if handing_over.as_ref().is_some_and(HandingOver::has_ended) {
                handing_over.take().map(HandingOver::end);
            }
            handing_over.get_or_insert_with(|| proxy.begin_hand_over());
        }
    }
    drop(pairs);
    handing_over.map(HandingOver::end);
    proxy.is_left_clean();
}

#[test]
fn a_client_of_transaction_mode_sees_what_it_would_see_directly() {
    for seed in 1..=5 {
        play(seed, false);
    }
}

/// Whatever a client has set up, and whichever process its transactions run in.
#[test]
fn a_client_sees_the_same_when_processes_take_over_from_one_another() {
    for seed in 11..=15 {
        play(seed, true);
    }
}
