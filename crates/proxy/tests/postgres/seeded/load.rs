//! Clients whose every answer is checked, and a ledger of what they have committed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_control::SplitMix64;
use tidegate_subject::client::BlockingClient;
use tidegate_wire::backend::tag;

use super::talk::{Failure, Talk, Target};
use crate::support::eventually;
use crate::support::wire::{COPY_DONE, SYNC, bind, copy_data, execute, extended, parse, query};

/// Clients at work.
pub(super) const CLIENTS: u64 = 8;

/// SQLSTATE `query_canceled`, which no client of the load has asked for.
const CANCELED: &str = "57014";

/// What is known of each token that was to be inserted; those of unknown outcome are in neither.
#[derive(Default)]
struct Ledger {
    acknowledged: HashSet<String>,
    refused: HashSet<String>,
}

/// What the clients share.
pub(super) struct Load {
    target: Target,
    ledger: Mutex<Ledger>,
    is_paused: AtomicBool,
    is_over: AtomicBool,
    /// Nothing that happens now is an excuse for a lost connection.
    is_gentle: AtomicBool,
    /// Counts the pauses after which no connection is kept.
    renewals: AtomicU64,
    parked: AtomicU64,
    /// Connections of clients that are parked.
    held: AtomicU64,
    tokens: AtomicU64,
    pub(super) operations: AtomicU64,
    pub(super) losses: AtomicU64,
    violations: Mutex<Vec<String>>,
}

impl Load {
    pub(super) fn new(target: Target) -> Load {
        Load {
            target,
            ledger: Mutex::default(),
            is_paused: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
            is_gentle: AtomicBool::new(true),
            renewals: AtomicU64::new(0),
            parked: AtomicU64::new(0),
            held: AtomicU64::new(0),
            tokens: AtomicU64::new(1),
            operations: AtomicU64::new(0),
            losses: AtomicU64::new(0),
            violations: Mutex::default(),
        }
    }

    /// Lets all clients work; with `is_gentle` nobody may lose a connection.
    pub(super) fn go_on(&self, is_gentle: bool) {
        self.is_gentle.store(is_gentle, Ordering::SeqCst);
        self.is_paused.store(false, Ordering::SeqCst);
    }

    /// Returns when no client has anything under way.
    pub(super) fn pause(&self) {
        self.is_paused.store(true, Ordering::SeqCst);
        eventually("every client has its answer", || {
            (self.parked.load(Ordering::SeqCst) == CLIENTS).then_some(())
        });
        if !self.is_gentle.load(Ordering::SeqCst) {
            self.renewals.fetch_add(1, Ordering::SeqCst);
            eventually("no client keeps its connection", || {
                (self.held.load(Ordering::SeqCst) == 0).then_some(())
            });
        }
    }

    /// Connections that clients keep while they are paused.
    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    /// Ends all clients.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// A text that nobody else asks for or inserts.
    pub(super) fn token(&self) -> String {
        format!("t{}", self.tokens.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn violate(&self, what: String) {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// What must not happen and has.
    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a failure into account: some are never right, others only where faults explain them.
    pub(super) fn fail(&self, who: &str, failure: Failure) {
        match failure {
            Failure::Waited => self.violate(format!("{who} waited past its bound")),
            Failure::Wrong(what) => self.violate(format!("{who}: {what}")),
            Failure::Told(code) if code == CANCELED => {
                self.violate(format!("{who} was cancelled by somebody else"));
            }
            lost if self.is_gentle.load(Ordering::SeqCst) => {
                self.violate(format!("{who} is disturbed by others: {lost:?}"));
            }
            _ => {
                self.losses.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn ledger(&self, token: &str, is_acknowledged: bool) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let known = if is_acknowledged { &mut ledger.acknowledged } else { &mut ledger.refused };
        known.insert(token.to_owned());
    }

    /// Compares the ledger with the table: what was acknowledged is there, what was refused is
    /// not, nothing is there twice.
    pub(super) fn audit(&self, admin: &mut BlockingClient) {
        let rows = admin.query("SELECT token, count(*) FROM ledger GROUP BY token").unwrap();
        let found: HashMap<String, String> = rows
            .into_iter()
            .map(|mut row| (row[0].take().unwrap(), row[1].take().unwrap()))
            .collect();
        let twice = found.iter().filter(|(_, count)| *count != "1");
        let mut wrong: Vec<String> =
            twice.map(|(token, count)| format!("{token} was inserted {count} times")).collect();
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = ledger.acknowledged.iter().filter(|token| !found.contains_key(*token));
        wrong.extend(lost.map(|token| format!("{token} was acknowledged and is lost")));
        let stray = ledger.refused.iter().filter(|token| found.contains_key(*token));
        wrong.extend(stray.map(|token| format!("{token} was refused and is there")));
        drop(ledger);
        for what in wrong {
            self.violate(what);
        }
    }

    /// A client's work until the end.
    pub(super) fn work(&self, number: u64, seed: u64) {
        let mut draws = SplitMix64::new(seed ^ (number << 32));
        let (mut client, mut renewals) = (None, 0);
        while !self.is_over.load(Ordering::SeqCst) {
            if self.is_paused.load(Ordering::SeqCst) {
                self.park(&mut client, &mut renewals);
                continue;
            }
            let mut current = match client.take() {
                Some(current) => current,
                None => match self.target.connect() {
                    Ok(fresh) => Client { talk: fresh, prepared: 0 },
                    Err(failure) => {
                        self.fail(&format!("client {number} at its login"), failure);
                        std::thread::sleep(Duration::from_millis(10));
                        continue;
                    }
                },
            };
            let kind = draws.next_below(u32::try_from(KINDS.len()).unwrap()) as usize;
            let (name, operate) = KINDS[kind];
            match operate(self, &mut current, &mut draws) {
                Ok(()) => {
                    self.operations.fetch_add(1, Ordering::Relaxed);
                    client = Some(current);
                }
                Err(failure) => self.fail(&format!("client {number} in {name}"), failure),
            }
        }
    }

    /// Waits while all are paused; the connection is given up if it has to be.
    fn park(&self, client: &mut Option<Client>, renewals: &mut u64) {
        let held = u64::from(client.is_some());
        self.held.fetch_add(held, Ordering::SeqCst);
        self.parked.fetch_add(1, Ordering::SeqCst);
        while self.is_paused.load(Ordering::SeqCst) && !self.is_over.load(Ordering::SeqCst) {
            let now = self.renewals.load(Ordering::SeqCst);
            if now > *renewals {
                *renewals = now;
                if client.take().is_some() {
                    self.held.fetch_sub(1, Ordering::SeqCst);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.parked.fetch_sub(1, Ordering::SeqCst);
        self.held.fetch_sub(u64::from(client.is_some()), Ordering::SeqCst);
    }
}

/// A client's connection, and how many statements it has prepared there.
struct Client {
    talk: Talk,
    prepared: u32,
}

type Operation = fn(&Load, &mut Client, &mut SplitMix64) -> Result<(), Failure>;

const KINDS: [(&str, Operation); 9] = [
    ("a question", question),
    ("a prepared statement", prepared),
    ("a batch", batch),
    ("a transaction", transaction),
    ("a rollback", rollback),
    ("an insert", insert),
    ("a copy", copy),
    ("a large answer", large_answer),
    ("an error", error),
];

fn expect(found: &[String], wanted: &[String]) -> Result<(), Failure> {
    if found == wanted {
        return Ok(());
    }
    let (mut found, mut wanted) = (format!("{found:?}"), format!("{wanted:?}"));
    found.truncate(200);
    wanted.truncate(200);
    Err(Failure::Wrong(format!("{found} came instead of {wanted}")))
}

fn question(load: &Load, client: &mut Client, _: &mut SplitMix64) -> Result<(), Failure> {
    let token = load.token();
    expect(&client.talk.ask(&format!("SELECT '{token}'"))?.rows()?, &[token])
}

fn prepared(load: &Load, client: &mut Client, draws: &mut SplitMix64) -> Result<(), Failure> {
    let (token, number) = (load.token(), draws.next_below(5));
    let (name, mut bytes) = (format!("s{number}"), Vec::new());
    if client.prepared & (1 << number) == 0 {
        bytes = parse(&name, &format!("SELECT $1::text || '-{number}'"));
    }
    bytes.extend([bind(&name, &[&token]), execute("", 0), SYNC.to_vec()].concat());
    client.talk.send(&bytes)?;
    expect(&client.talk.answer()?.rows()?, &[format!("{token}-{number}")])?;
    client.prepared |= 1 << number;
    Ok(())
}

fn batch(load: &Load, client: &mut Client, _: &mut SplitMix64) -> Result<(), Failure> {
    let tokens: Vec<String> = (0..5).map(|_| load.token()).collect();
    let each = |token| [extended(&format!("SELECT '{token}'")), SYNC.to_vec()].concat();
    let bytes: Vec<u8> = tokens.iter().flat_map(each).collect();
    client.talk.send(&bytes)?;
    for token in tokens {
        expect(&client.talk.answer()?.rows()?, &[token])?;
    }
    Ok(())
}

/// Inserts in a transaction; as long as COMMIT has not been sent, nothing may be there.
fn transaction(load: &Load, client: &mut Client, _: &mut SplitMix64) -> Result<(), Failure> {
    let token = load.token();
    let inside = insert_inside(&mut client.talk, &token);
    if inside.is_err() {
        load.ledger(&token, false);
        return inside;
    }
    let reply = client.talk.ask("COMMIT")?;
    let is_committed = reply.complete == ["COMMIT"];
    if let Some(code) = reply.error {
        return Err(Failure::Told(code));
    }
    load.ledger(&token, is_committed);
    if is_committed { Ok(()) } else { Err(Failure::Wrong("COMMIT rolled back".into())) }
}

fn insert_inside(talk: &mut Talk, token: &str) -> Result<(), Failure> {
    talk.ask("BEGIN")?.rows()?;
    talk.ask(&format!("INSERT INTO ledger VALUES ('{token}')"))?.rows()?;
    let seen = talk.ask(&format!("SELECT token FROM ledger WHERE token = '{token}'"))?.rows()?;
    expect(&seen, &[token.to_owned()])
}

fn rollback(load: &Load, client: &mut Client, _: &mut SplitMix64) -> Result<(), Failure> {
    let token = load.token();
    load.ledger(&token, false);
    insert_inside(&mut client.talk, &token)?;
    client.talk.ask("ROLLBACK")?.rows().map(drop)
}

/// Notes what a single statement's answer says of what it has inserted.
fn note(load: &Load, tokens: &[String], reply: &super::talk::Reply) {
    let is_acknowledged = reply.error.is_none();
    // A backend that is terminated may have committed before.
    let is_known = reply.error.as_ref().is_none_or(|code| !["57", "08"].contains(&&code[..2]));
    for token in tokens.iter().filter(|_| is_known) {
        load.ledger(token, is_acknowledged);
    }
}

fn insert(load: &Load, client: &mut Client, draws: &mut SplitMix64) -> Result<(), Failure> {
    let token = load.token();
    let sql = format!("INSERT INTO ledger VALUES ('{token}')");
    if draws.next_chance(0.5) {
        client.talk.send(&query(&sql))?;
    } else {
        client.talk.send(&[extended(&sql), SYNC.to_vec()].concat())?;
    }
    let reply = client.talk.answer()?;
    note(load, &[token], &reply);
    reply.rows().map(drop)
}

fn copy(load: &Load, client: &mut Client, _: &mut SplitMix64) -> Result<(), Failure> {
    let tokens: Vec<String> = (0..20).map(|_| load.token()).collect();
    client.talk.send(&query("COPY ledger FROM STDIN"))?;
    client.talk.until(tag::COPY_IN)?;
    for token in &tokens {
        client.talk.send(&copy_data(format!("{token}\n").as_bytes()))?;
    }
    client.talk.send(COPY_DONE)?;
    let reply = client.talk.answer()?;
    note(load, &tokens, &reply);
    reply.rows().map(drop)
}

fn large_answer(load: &Load, client: &mut Client, _: &mut SplitMix64) -> Result<(), Failure> {
    let token = load.token();
    let sql = format!("SELECT repeat('{token}', 5000) FROM generate_series(1, 20)");
    let wanted = vec![token.repeat(5000); 20];
    expect(&client.talk.ask(&sql)?.rows()?, &wanted)
}

fn error(load: &Load, client: &mut Client, _: &mut SplitMix64) -> Result<(), Failure> {
    let token = load.token();
    let reply = client.talk.ask(&format!("SELECT '{token}'::int"))?;
    match reply.error {
        Some(code) if code == "22P02" => Ok(()),
        Some(code) => Err(Failure::Told(code)),
        None => Err(Failure::Wrong(format!("{:?} instead of an error", reply.rows))),
    }
}
