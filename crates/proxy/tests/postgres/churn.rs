//! Clients that leave abruptly while others work: those that stay lose nothing.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate_control::SplitMix64;

use crate::support::plain::{Plain, dial, reset, start_up};
use crate::support::server::shared;
use crate::support::{MODES, server};

/// Threads whose connections are counted.
const STEADY: u64 = 4;

/// Threads that connect and leave abruptly.
const LEAVERS: u64 = 4;

/// What became of the counted connections.
struct Outcome {
    connections: u64,
    losses: Vec<String>,
    left: u64,
}

/// Connects, asks, and says goodbye; any other course is a loss.
fn stay(address: SocketAddr, number: u64) -> Result<(), String> {
    let mut client = Plain::connect(address)?;
    for question in [format!("{number}"), format!("'{number}'")] {
        let answer = client.run(&format!("SELECT {question}"))?;
        if answer != Ok(number.to_string()) {
            return Err(format!("another answer: {answer:?}"));
        }
    }
    client.leave();
    Ok(())
}

/// Leaves abruptly at one of six points. What it sees on the way does not matter.
fn leave(address: SocketAddr, way: u64) -> Result<(), String> {
    if way < 2 {
        let mut stream = dial(address).map_err(|error| error.to_string())?;
        if way == 1 {
            stream.write_all(&start_up()).map_err(|error| error.to_string())?;
        }
        reset(stream);
        return Ok(());
    }
    let mut client = Plain::connect(address)?;
    match way {
        2 => {}
        3 => client.send("SELECT repeat('x', 1000) FROM generate_series(1, 1000)")?,
        4 => drop(client.run("BEGIN")?),
        _ => client.send("SELECT 1")?,
    }
    client.reset();
    Ok(())
}

fn churn(address: SocketAddr, connections: u64, seed: u64) -> Outcome {
    let (done, begun, left) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let losses = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for leaver in 0..LEAVERS {
            let (done, left) = (&done, &left);
            scope.spawn(move || {
                let mut draws = SplitMix64::new(seed + leaver);
                while !done.load(Ordering::Relaxed) {
                    let _ = leave(address, draws.next_bits() % 6);
                    left.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let stayers: Vec<_> = (0..STEADY)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let number = begun.fetch_add(1, Ordering::Relaxed);
                        if number >= connections {
                            return;
                        }
                        if let Err(loss) = stay(address, number) {
                            losses.lock().unwrap().push(loss);
                        }
                    }
                })
            })
            .collect();
        for stayer in stayers {
            stayer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let losses = losses.into_inner().unwrap();
    Outcome { connections, losses, left: left.into_inner() }
}

fn churn_in(mode: &str, connections: u64, seed: u64) {
    churn_under("", mode, connections, seed);
}

#[expect(clippy::print_stdout, reason = "a soak test prints its seed and its figures")]
fn churn_under(line: &str, mode: &str, connections: u64, seed: u64) {
    println!("seed {seed}");
    let _server = server();
    let proxy = shared(mode).limit(8).database_line(line).threads(2).start();
    let started = std::time::Instant::now();
    let outcome = churn(proxy.address, connections, seed);
    println!(
        "{mode} mode: {} of {} connections lost beside {} that left abruptly, {:.0} s",
        outcome.losses.len(),
        outcome.connections,
        outcome.left,
        started.elapsed().as_secs_f64()
    );
    let shown = &outcome.losses[..outcome.losses.len().min(5)];
    assert!(outcome.losses.is_empty(), "{mode} mode, seed {seed}: {shown:?}");
    proxy.is_left_clean();
}

#[test]
fn nobody_is_disconnected_because_others_leave() {
    for mode in MODES {
        churn_in(mode, 300, 8);
    }
}

/// Also where there are too few connections for those who are there at once, and no place is lost.
#[test]
fn nobody_is_disconnected_while_connections_are_few() {
    for mode in MODES {
        churn_under("max_connections = 3", mode, 300, 9);
    }
}

#[test]
#[ignore = "soak: 50,000 connections in transaction mode"]
fn fifty_thousand_connections_under_churn_in_transaction_mode() {
    churn_in("transaction", 50_000, 81);
}

#[test]
#[ignore = "soak: 50,000 connections in session mode"]
fn fifty_thousand_connections_under_churn_in_session_mode() {
    churn_in("session", 50_000, 82);
}
