//! Cancel requests reach the statement that they were sent for, or none: also while the server
//! accepts no connections for longer than the proxy waits.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_control::SplitMix64;
use tidegate_subject::postgres::{Authentication, Postgres};
use tidegate_wire::startup::encode_cancel;

use crate::support::plain::{Plain, cancel};
use crate::support::server::{own_server, setup};
use crate::support::{MODES, Wire, eventually};

/// Threads that cancel or leave, and as many that do neither.
const PAIRS: u64 = 4;

/// A long run that has not sent its cancel requests by then ends with those it has sent.
const TIME_MAX: Duration = Duration::from_secs(600);

/// SQLSTATE `query_canceled`.
const CANCELED: &str = "57014";

/// A stopped postmaster; it goes on when this is dropped. Its backends are not stopped.
struct Stopped(Pid);

impl Stopped {
    fn new(server: &Postgres) -> Stopped {
        let pid = i32::try_from(server.process_id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

#[derive(Default)]
struct Counts {
    /// Cancel requests sent, by clients or because they left.
    cancels: AtomicU64,
    /// Statements cancelled that nobody wanted cancelled.
    wrong: AtomicU64,
    /// The next statements of clients whose cancel request had been answered, cancelled.
    late: AtomicU64,
    /// Statements cancelled as they should be.
    right: AtomicU64,
    /// Statements of those that cancel nothing.
    beside: AtomicU64,
    /// Connections or statements that failed in another way.
    other: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// One statement, its cancel request, and the statement after it.
fn cancel_once(
    address: SocketAddr,
    client: &mut Plain,
    draws: &mut SplitMix64,
    counts: &Counts,
) -> Result<(), String> {
    client.send(&format!("SELECT pg_sleep(0.0{})", draws.next_bits() % 10))?;
    pause(draws.next_bits() % 40);
    count(&counts.cancels);
    cancel(address, &client.key).map_err(|error| error.to_string())?;
    match client.answer()? {
        Err(code) if code == CANCELED => count(&counts.right),
        Ok(_) => {}
        Err(code) => return Err(code),
    }
    match client.run("SELECT pg_sleep(0.01)")? {
        Err(code) if code == CANCELED => count(&counts.late),
        Ok(_) => {}
        Err(code) => return Err(code),
    }
    Ok(())
}

fn canceller(address: SocketAddr, cancels: u64, end: Instant, seed: u64, counts: &Counts) {
    let mut draws = SplitMix64::new(seed);
    while counts.cancels.load(Ordering::Relaxed) < cancels && Instant::now() < end {
        let Ok(mut client) = Plain::connect(address) else {
            count(&counts.other);
            pause(10);
            continue;
        };
        for _ in 0..draws.next_bits() % 8 {
            if cancel_once(address, &mut client, &mut draws, counts).is_err() {
                count(&counts.other);
                break;
            }
        }
        if draws.next_bits().is_multiple_of(2) && client.send("SELECT pg_sleep(0.05)").is_ok() {
            pause(draws.next_bits() % 20);
            count(&counts.cancels);
            client.reset();
        }
    }
}

fn bystander(address: SocketAddr, done: &AtomicBool, counts: &Counts) {
    while !done.load(Ordering::Relaxed) {
        let Ok(mut client) = Plain::connect(address) else {
            count(&counts.other);
            pause(10);
            continue;
        };
        while !done.load(Ordering::Relaxed) {
            count(&counts.beside);
            match client.run("SELECT pg_sleep(0.015)") {
                Ok(Ok(_)) => {}
                Ok(Err(code)) if code == CANCELED => count(&counts.wrong),
                _ => {
                    count(&counts.other);
                    break;
                }
            }
        }
    }
}

/// Stops the postmaster again and again, at times for longer than the proxy's connect timeout.
fn stall(server: &Postgres, seed: u64, done: &AtomicBool) {
    let mut draws = SplitMix64::new(seed);
    while !done.load(Ordering::Relaxed) {
        let stopped = Stopped::new(server);
        pause(draws.next_bits() % 1_000);
        drop(stopped);
        pause(draws.next_bits() % 400);
    }
}

#[expect(clippy::print_stdout, reason = "a soak test prints its seed and its figures")]
fn cancels_in(mode: &str, cancels: u64, seed: u64, time: Duration) {
    println!("seed {seed}");
    let server = own_server(Authentication::Trust);
    let proxy = setup(&server, mode).limit(4).line("timeouts.connect = \"400ms\"").start();
    let (counts, done) = (Counts::default(), AtomicBool::new(false));
    let started = Instant::now();
    let address = proxy.address;
    std::thread::scope(|scope| {
        let (server, counts, done) = (&server, &counts, &done);
        scope.spawn(move || stall(server, seed, done));
        for _ in 0..PAIRS {
            scope.spawn(move || bystander(address, done, counts));
        }
        let cancellers: Vec<_> = (1..=PAIRS)
            .map(|number| {
                scope.spawn(move || {
                    canceller(address, cancels, started + time, seed + number, counts);
                })
            })
            .collect();
        for canceller in cancellers {
            canceller.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    println!("{mode} mode: {}; {:.0} s", show(&counts), started.elapsed().as_secs_f64());
    let wrong = counts.wrong.load(Ordering::Relaxed) + counts.late.load(Ordering::Relaxed);
    assert_eq!(wrong, 0, "{mode} mode, seed {seed}: {}", show(&counts));
    // A machine too busy to accept connections in time has shown nothing.
    let is_complete = counts.cancels.load(Ordering::Relaxed) >= cancels;
    assert!(!is_complete || counts.right.load(Ordering::Relaxed) > 0, "nothing was cancelled");
    proxy.is_left_clean();
}

fn show(counts: &Counts) -> String {
    let Counts { cancels, wrong, late, right, beside, other } = counts;
    format!(
        "{} cancel requests: {} as meant, {} at the client's next statement, {} of {} statements \
         of others; {} other failures",
        cancels.load(Ordering::Relaxed),
        right.load(Ordering::Relaxed),
        late.load(Ordering::Relaxed),
        wrong.load(Ordering::Relaxed),
        beside.load(Ordering::Relaxed),
        other.load(Ordering::Relaxed),
    )
}

/// The cancel request lies in the stopped postmaster's queue for longer than the proxy waits. When
/// the postmaster goes on, it hits no client, whichever uses the connections by then.
#[test]
fn a_cancel_request_that_arrives_late_hits_nobody() {
    let server = own_server(Authentication::Trust);
    for leaves in [false, true] {
        let short = "timeouts.connect = \"200ms\"";
        let proxy = setup(&server, "transaction").limit(1).line(short).start();
        let mut first = Plain::connect(proxy.address).unwrap();
        let mut second = Plain::connect(proxy.address).unwrap();
        first.send("SELECT pg_sleep(1)").unwrap();
        proxy.wait_for("tidegate_upstreams_busy", 1);
        let stopped = Stopped::new(&server);
        if leaves {
            first.reset();
        } else {
            cancel(proxy.address, &first.key).unwrap();
            assert_eq!(first.answer().unwrap(), Ok(String::new()), "nobody cancelled it");
        }
        second.send("SELECT pg_sleep(2)").unwrap();
        eventually("the second client's statement runs or was refused", || {
            (proxy.metric("tidegate_waiting") == 0).then_some(())
        });
        drop(stopped);
        let answer = second.answer().unwrap();
        assert_ne!(answer, Err(CANCELED.to_owned()), "another client's cancel request");
        assert_eq!(second.run("SELECT 'goes on'").unwrap(), Ok("goes on".into()));
    }
}

/// No further statement of the same client is sent to the backend either.
#[test]
fn the_next_statement_waits_for_the_cancel_request() {
    let server = own_server(Authentication::Trust);
    for mode in MODES {
        let long = "timeouts = { connect = \"1h\", login = \"1h\" }";
        let proxy = setup(&server, mode).limit(2).line(long).start();
        let mut client = Plain::connect(proxy.address).unwrap();
        client.run("BEGIN").unwrap().unwrap();
        client.send("SELECT pg_sleep(0.5)").unwrap();
        let stopped = Stopped::new(&server);
        let (address, key) = (proxy.address, client.key.clone());
        let requester = std::thread::spawn(move || cancel(address, &key));
        proxy.wait_for("tidegate_cancel_requests_total", 1);
        assert_eq!(client.answer().unwrap(), Ok(String::new()), "nobody cancelled it");
        client.send("SELECT pg_sleep(1)").unwrap();
        drop(stopped);
        requester.join().unwrap().unwrap();
        assert_eq!(client.answer().unwrap(), Ok(String::new()), "{mode} mode");
    }
}

/// A client that is idle in its transaction has nothing to cancel: its request is answered although
/// the server accepts nothing.
#[test]
fn a_cancel_request_for_an_idle_transaction_is_not_sent_on() {
    let server = own_server(Authentication::Trust);
    for mode in MODES {
        let long = "timeouts = { connect = \"1h\", login = \"1h\" }";
        let proxy = setup(&server, mode).limit(2).line(long).start();
        let mut client = Plain::connect(proxy.address).unwrap();
        client.run("BEGIN").unwrap().unwrap();
        let stopped = Stopped::new(&server);
        let mut requester = Wire::raw(proxy.address);
        let mut packet = Vec::new();
        encode_cancel(&mut packet, &client.key);
        requester.send(&packet);
        assert!(requester.is_closed());
        assert_eq!(client.run("SELECT 'goes on'").unwrap(), Ok("goes on".into()));
        drop(stopped);
    }
}

#[test]
fn cancel_requests_reach_what_they_were_sent_for() {
    for mode in MODES {
        cancels_in(mode, 40, 7, Duration::from_secs(30));
    }
}

#[test]
#[ignore = "soak: 1,000 cancel requests in transaction mode to a server that stalls"]
fn a_thousand_cancel_requests_in_transaction_mode() {
    cancels_in("transaction", 1_000, 71, TIME_MAX);
}

#[test]
#[ignore = "soak: 1,000 cancel requests in session mode to a server that stalls"]
fn a_thousand_cancel_requests_in_session_mode() {
    cancels_in("session", 1_000, 72, TIME_MAX);
}
