//! Faults: how they are drawn from a seed, and how they are made to happen.

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_control::SplitMix64;
use tidegate_subject::postgres::Postgres;
use tidegate_wire::backend::tag;
use tidegate_wire::startup::encode_ssl_request;

use super::child::Child;
use super::load::Load;
use super::relay::{Break, Relay};
use super::talk::{Failure, Talk, Target};
use crate::support::plain::{cancel, dial, reset, start_up};
use crate::support::wire::{FLUSH, SYNC, bind_portal, copy_data, execute, extended, parse, query};

/// Where in the protocol a client is when it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    Connected,
    TlsAskedFor,
    InTlsHandshake,
    InStartUp,
    StartedUp,
    LoggedIn,
    InMessage,
    InQuery,
    InTransaction,
    InFailedTransaction,
    InLargeAnswer,
    InCopyIn,
    InCopyOut,
    InBatch,
    InPortal,
    Prepared,
    Listening,
}

const POINTS: [Point; 17] = [
    Point::Connected,
    Point::TlsAskedFor,
    Point::InTlsHandshake,
    Point::InStartUp,
    Point::StartedUp,
    Point::LoggedIn,
    Point::InMessage,
    Point::InQuery,
    Point::InTransaction,
    Point::InFailedTransaction,
    Point::InLargeAnswer,
    Point::InCopyIn,
    Point::InCopyOut,
    Point::InBatch,
    Point::InPortal,
    Point::Prepared,
    Point::Listening,
];

impl Point {
    /// The proxy has to end a client that stays silent here.
    fn is_bounded(self) -> bool {
        matches!(
            self,
            Point::Connected
                | Point::TlsAskedFor
                | Point::InTlsHandshake
                | Point::InStartUp
                | Point::InMessage
                | Point::InTransaction
                | Point::InFailedTransaction
        )
    }
}

/// How a client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Fin,
    Reset,
    /// It says that it sends nothing more, and reads on.
    HalfClose,
    /// It stays, and neither reads nor writes.
    Silence,
}

const ENDS: [End; 4] = [End::Fin, End::Reset, End::HalfClose, End::Silence];

/// Something that goes wrong; times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A client is gone without a word.
    Leave { at: Point, by: End },
    /// A statement of some length is cancelled after some time.
    Cancel { length: u32, after: u32, twice: bool },
    /// A cancel request for a client that is at rest, or for nobody.
    CancelNothing { is_known: bool },
    /// A client reads a large answer after a pause.
    SlowReader { pause: u32 },
    /// A client sends its messages byte by byte.
    SlowWriter,
    /// Bytes that mean nothing, also behind the request for TLS.
    Garbage { seed: u64, asks_for_tls: bool },
    /// Connections that never log in.
    NeverLogIn { count: u32 },
    /// The server ends every so many-th connection of the proxy.
    Terminate { step: u32 },
    /// Every so many-th connection between proxy and server breaks.
    BreakLinks { step: u32, how: Break },
    /// Nothing passes between proxy and server.
    Stall { step: u32, time: u32 },
    /// Nothing passes between proxy and server, which then turns out to be gone.
    HalfOpen { time: u32 },
    /// The proxy has no descriptors left.
    Exhaust { spare: u32 },
    /// The server is stopped and started.
    Restart,
}

fn one_of<T: Copy>(all: &[T], draws: &mut SplitMix64) -> T {
    all[draws.next_below(u32::try_from(all.len()).unwrap()) as usize]
}

impl Fault {
    /// Draws a fault that may not disturb other clients.
    pub(super) fn gentle(draws: &mut SplitMix64) -> Fault {
        match draws.next_below(20) {
            0..12 => Fault::Leave { at: one_of(&POINTS, draws), by: one_of(&ENDS, draws) },
            12..15 => Fault::Cancel {
                length: draws.next_below(60),
                after: draws.next_below(60),
                twice: draws.next_chance(0.3),
            },
            15 => Fault::CancelNothing { is_known: draws.next_chance(0.5) },
            16 => Fault::SlowReader { pause: draws.next_below(200) },
            17 => Fault::SlowWriter,
            18 => Fault::Garbage { seed: draws.next_bits(), asks_for_tls: draws.next_chance(0.5) },
            _ => Fault::NeverLogIn { count: 1 + draws.next_below(50) },
        }
    }

    /// Draws a fault of the server or of the way to it.
    pub(super) fn harsh(draws: &mut SplitMix64) -> Fault {
        let step = 1 + draws.next_below(3);
        match draws.next_below(100) {
            0..35 => Fault::Terminate { step },
            35..70 => {
                let how = if draws.next_chance(0.5) { Break::Fin } else { Break::Reset };
                Fault::BreakLinks { step, how }
            }
            70..85 => Fault::Stall { step, time: draws.next_below(300) },
            85..93 => Fault::HalfOpen { time: draws.next_below(300) },
            93..99 => Fault::Exhaust { spare: draws.next_below(8) },
            _ => Fault::Restart,
        }
    }
}

/// A client that stays silent.
struct Silent {
    stream: TcpStream,
    fault: Fault,
    is_bounded: bool,
}

/// What faults happen to.
pub(super) struct World<'a> {
    pub(super) server: &'a Mutex<Postgres>,
    pub(super) relay: &'a Relay,
    pub(super) child: &'a Child,
    pub(super) load: &'a Load,
    pub(super) target: Target,
    silent: Mutex<Vec<Silent>>,
    /// One at a time: a limit is one for the whole process.
    exhausting: Mutex<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sleep(milliseconds: u32) {
    std::thread::sleep(Duration::from_millis(milliseconds.into()));
}

impl<'a> World<'a> {
    pub(super) fn new(
        server: &'a Mutex<Postgres>,
        relay: &'a Relay,
        child: &'a Child,
        load: &'a Load,
        target: Target,
    ) -> World<'a> {
        let (silent, exhausting) = (Mutex::default(), Mutex::default());
        World { server, relay, child, load, target, silent, exhausting }
    }

    /// Makes a fault happen. What its own clients notice counts like that of the load.
    pub(super) fn inflict(&self, fault: Fault) {
        let outcome = match fault {
            Fault::Leave { at, by } => self.leave(fault, at, by),
            Fault::Cancel { length, after, twice } => self.cancel(length, after, twice),
            Fault::CancelNothing { is_known } => self.cancel_nothing(is_known),
            Fault::SlowReader { pause } => self.slow_reader(pause),
            Fault::SlowWriter => self.slow_writer(),
            Fault::Garbage { seed, asks_for_tls } => self.garbage(seed, asks_for_tls),
            Fault::NeverLogIn { count } => self.never_log_in(fault, count),
            Fault::Terminate { step } => {
                self.terminate(step);
                Ok(())
            }
            Fault::BreakLinks { step, how } => {
                self.relay.break_links(step as usize, how);
                Ok(())
            }
            Fault::Stall { step, time } => {
                self.relay.stall(step as usize, Duration::from_millis(time.into()));
                Ok(())
            }
            Fault::HalfOpen { time } => {
                self.relay.stall(1, Duration::from_secs(60));
                sleep(time);
                self.relay.break_links(1, Break::Reset);
                Ok(())
            }
            Fault::Exhaust { spare } => self.exhaust(spare),
            Fault::Restart => {
                locked(self.server).restart().unwrap();
                Ok(())
            }
        };
        if let Err(failure) = outcome {
            self.load.fail(&format!("{fault:?}"), failure);
        }
    }

    /// Ends the clients that stayed silent, or waits until the proxy has ended those it must end.
    pub(super) fn end_silence(&self, is_patient: bool) {
        let silent = std::mem::take(&mut *locked(&self.silent));
        for Silent { mut stream, fault, is_bounded } in silent {
            if !is_patient || !is_bounded {
                reset(stream);
                continue;
            }
            let mut rest = [0; 4096];
            loop {
                match stream.read(&mut rest).map_err(Failure::from) {
                    Ok(0) | Err(Failure::Lost(_)) => break,
                    Ok(_) => {}
                    Err(_) => {
                        self.load.violate(format!("{fault:?} was never ended"));
                        break;
                    }
                }
            }
        }
    }

    fn leave(&self, fault: Fault, at: Point, by: End) -> Result<(), Failure> {
        let stream = self.stand_at(at)?;
        match by {
            End::Fin => drop(stream),
            End::Reset => reset(stream),
            End::HalfClose => {
                stream.shutdown(Shutdown::Write)?;
                let mut stream = stream;
                let mut rest = vec![0; 64 * 1024];
                loop {
                    match stream.read(&mut rest).map_err(Failure::from) {
                        Ok(0) | Err(Failure::Lost(_)) => break,
                        Ok(_) => {}
                        Err(failure) => return Err(failure),
                    }
                }
            }
            End::Silence => {
                let is_bounded = at.is_bounded();
                locked(&self.silent).push(Silent { stream, fault, is_bounded });
            }
        }
        Ok(())
    }

    /// A client's socket when it has come so far.
    fn stand_at(&self, at: Point) -> Result<TcpStream, Failure> {
        use std::io::Write;
        let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 7, 7, 7];
        let mut bytes = Vec::new();
        match at {
            Point::Connected => {}
            Point::TlsAskedFor => encode_ssl_request(&mut bytes),
            Point::InTlsHandshake => bytes.extend(hello),
            Point::InStartUp => bytes.extend(&start_up()[..20]),
            _ => return self.stand_logged_in(at).map(Talk::into_stream),
        }
        let mut stream = dial(self.target.address)?;
        stream.write_all(&bytes)?;
        Ok(stream)
    }

    fn stand_logged_in(&self, at: Point) -> Result<Talk, Failure> {
        if at == Point::StartedUp {
            let mut talk = self.target.reach()?;
            talk.send(&start_up())?;
            return Ok(talk);
        }
        let mut talk = self.target.connect()?;
        match at {
            Point::InMessage => talk.send(&query("SELECT 'half of it'")[..9])?,
            Point::InQuery => talk.send(&query("SELECT pg_sleep(0.05)"))?,
            Point::InTransaction => {
                talk.ask("BEGIN; INSERT INTO unfinished VALUES (2)")?.rows()?;
            }
            Point::InFailedTransaction => drop(talk.ask("BEGIN; SELECT 1/0")?),
            Point::InLargeAnswer => {
                talk.send(&query("SELECT repeat('x', 100000) FROM generate_series(1, 100)"))?;
                talk.until(tag::DATA_ROW)?;
            }
            Point::InCopyIn => {
                talk.send(&query("COPY unfinished FROM STDIN"))?;
                talk.until(tag::COPY_IN)?;
                talk.send(&copy_data(b"3\n"))?;
            }
            Point::InCopyOut => {
                let rows = "SELECT repeat('x', 100000) FROM generate_series(1, 100)";
                talk.send(&query(&format!("COPY ({rows}) TO STDOUT")))?;
                talk.until(tag::COPY_OUT)?;
            }
            Point::InBatch => {
                let insert = extended("INSERT INTO unfinished VALUES (1)");
                talk.send(&[insert, FLUSH.to_vec()].concat())?;
                talk.until(tag::COMMAND_COMPLETE)?;
            }
            Point::InPortal => {
                let rows = parse("rows", "SELECT generate_series(1, 1000)");
                let portal = [bind_portal("p", "rows"), execute("p", 5), FLUSH.to_vec()].concat();
                talk.send(&[rows, portal].concat())?;
                talk.until(tag::PORTAL_SUSPENDED)?;
            }
            Point::Prepared => {
                talk.send(&[parse("mine", "SELECT 1"), SYNC.to_vec()].concat())?;
                talk.answer()?.rows()?;
            }
            Point::Listening => drop(talk.ask("LISTEN somewhere")?),
            _ => {}
        }
        Ok(talk)
    }

    /// The answer is the statement's own, or that it was cancelled; the next one is not cancelled.
    fn cancel(&self, length: u32, after: u32, twice: bool) -> Result<(), Failure> {
        let mut talk = self.target.connect()?;
        let (token, next) = (self.load.token(), self.load.token());
        let seconds = f64::from(length) / 1000.0;
        talk.send(&query(&format!("SELECT '{token}' FROM pg_sleep({seconds})")))?;
        sleep(after);
        for _ in 0..=u8::from(twice) {
            cancel(self.target.address, &talk.key)?;
        }
        let reply = talk.answer()?;
        match reply.error.as_deref() {
            None if reply.rows == [token] => {}
            Some("57014") => {}
            Some(code) => return Err(Failure::Told(code.into())),
            None => return Err(Failure::Wrong(format!("{:?} came", reply.rows))),
        }
        let rows = talk.ask(&format!("SELECT '{next}' FROM pg_sleep(0.01)"))?.rows()?;
        if rows == [next] { Ok(()) } else { Err(Failure::Wrong(format!("{rows:?} came"))) }
    }

    fn cancel_nothing(&self, is_known: bool) -> Result<(), Failure> {
        let mut talk = self.target.connect()?;
        let mut key = talk.key.clone();
        if !is_known {
            key.secret[0] ^= 1;
        }
        cancel(self.target.address, &key)?;
        let token = self.load.token();
        let rows = talk.ask(&format!("SELECT '{token}' FROM pg_sleep(0.01)"))?.rows()?;
        if rows == [token] { Ok(()) } else { Err(Failure::Wrong(format!("{rows:?} came"))) }
    }

    fn slow_reader(&self, pause: u32) -> Result<(), Failure> {
        let mut talk = self.target.connect()?;
        let token = self.load.token();
        talk.send(&query(&format!("SELECT repeat('{token}', 9999) FROM generate_series(1, 200)")))?;
        sleep(pause);
        let rows = talk.answer()?.rows()?;
        let wanted = token.repeat(9999);
        if rows.len() == 200 && rows.iter().all(|row| *row == wanted) {
            return Ok(());
        }
        Err(Failure::Wrong("another large answer came".into()))
    }

    fn slow_writer(&self) -> Result<(), Failure> {
        let mut talk = self.target.connect()?;
        let token = self.load.token();
        for byte in query(&format!("SELECT '{token}'")) {
            talk.send(&[byte])?;
        }
        let rows = talk.answer()?.rows()?;
        if rows == [token] { Ok(()) } else { Err(Failure::Wrong(format!("{rows:?} came"))) }
    }

    /// The other side may answer as it likes, but has to end the connection.
    fn garbage(&self, seed: u64, asks_for_tls: bool) -> Result<(), Failure> {
        use std::io::Write;
        let mut draws = SplitMix64::new(seed);
        let mut bytes = Vec::new();
        if asks_for_tls {
            encode_ssl_request(&mut bytes);
        }
        let mut stream = dial(self.target.address)?;
        stream.write_all(&bytes)?;
        let count = 8 + draws.next_below(200);
        let bytes: Vec<u8> = (0..count).map(|_| draws.next_bits().to_le_bytes()[2]).collect();
        // The other side may have ended it already.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest).map_err(Failure::from) {
            Err(Failure::Waited) => Err(Failure::Waited),
            _ => Ok(()),
        }
    }

    fn never_log_in(&self, fault: Fault, count: u32) -> Result<(), Failure> {
        for number in 0..count {
            let at = POINTS[(number % 4) as usize];
            let stream = self.stand_at(at)?;
            locked(&self.silent).push(Silent { stream, fault, is_bounded: at.is_bounded() });
        }
        Ok(())
    }

    fn terminate(&self, step: u32) {
        let sql = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() \
             AND pid % {step} = 0"
        );
        locked(self.server).connect().unwrap().query(&sql).unwrap();
    }

    /// Clients that connect meanwhile may be refused or wait; they are gone before the limit goes.
    fn exhaust(&self, spare: u32) -> Result<(), Failure> {
        let _only = locked(&self.exhausting);
        self.child.limit_descriptors(Some(self.child.descriptors() + u64::from(spare)));
        let mut streams = Vec::new();
        for _ in 0..30 {
            match dial(self.target.address) {
                Ok(stream) => streams.push(stream),
                Err(error) => {
                    self.child.limit_descriptors(None);
                    return Err(error.into());
                }
            }
        }
        sleep(200);
        streams.into_iter().for_each(reset);
        self.child.limit_descriptors(None);
        Ok(())
    }
}
