//! The load: a closed loop of N connections on one thread, each with one request in flight.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::net::{self, REPLY, REQUEST};

/// Connects all, passes the barrier, runs for `duration`, prints the result.
pub(crate) fn run(address: SocketAddr, connections: usize, duration: Duration) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut clients = connect_all(&poll, address, connections)?;
    println!("ready");
    io::stdin().read_line(&mut String::new())?;

    let mut run = Run { trips: 0, latency_us: new_histogram()? };
    let start = Instant::now();
    for client in &mut clients {
        client.send()?;
    }
    let mut events = Events::with_capacity(1024);
    while start.elapsed() < duration {
        poll.poll(&mut events, Some(Duration::from_millis(100)))?;
        for event in &events {
            if let Some(client) = clients.get_mut(event.token().0) {
                run.receive(client)?;
            }
        }
    }
    run.print(start.elapsed());
    // The connections stay open until the CPU times are read, so that closing them is not counted.
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

struct Client {
    stream: TcpStream,
    /// Of the request in flight; its first bytes. No two requests of a run share one.
    number: u64,
    sent_at: Instant,
    /// Bytes of the reply that have come.
    received: usize,
}

impl Client {
    fn send(&mut self) -> io::Result<()> {
        self.received = 0;
        self.number += 1;
        self.sent_at = Instant::now();
        let mut request = [b'q'; REQUEST];
        request[..8].copy_from_slice(&self.number.to_le_bytes());
        self.stream.write_all(&request)
    }
}

fn connect_all(poll: &Poll, address: SocketAddr, connections: usize) -> io::Result<Vec<Client>> {
    let connect = |index| {
        let mut stream = TcpStream::from_std(net::connect_tcp(address)?);
        poll.registry().register(&mut stream, Token(index), Interest::READABLE)?;
        Ok(Client { stream, number: (index as u64) << 40, sent_at: Instant::now(), received: 0 })
    };
    (0..connections).map(connect).collect()
}

struct Run {
    trips: u64,
    latency_us: Histogram<u64>,
}

impl Run {
    fn receive(&mut self, client: &mut Client) -> io::Result<()> {
        let mut scratch = [0; 256];
        let read = match client.stream.read(&mut scratch) {
            Ok(0) => {
                return Err(io::Error::other("the relay closed a connection during the run"));
            }
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        client.received += read;
        if client.received > REPLY {
            return Err(io::Error::other("a client was given more than its own reply"));
        }
        if client.received < REPLY {
            return Ok(());
        }
        self.trips += 1;
        let latency = client.sent_at.elapsed().as_micros();
        self.latency_us.saturating_record(u64::try_from(latency).unwrap_or(u64::MAX));
        client.send()
    }

    fn print(&self, elapsed: Duration) {
        println!(
            concat!(
                r#"{{"trips": {}, "seconds": {:.6}, "trips_per_s": {:.1}, "#,
                r#""p50_us": {}, "p99_us": {}}}"#
            ),
            self.trips,
            elapsed.as_secs_f64(),
            self.trips as f64 / elapsed.as_secs_f64(),
            self.latency_us.value_at_quantile(0.50),
            self.latency_us.value_at_quantile(0.99),
        );
    }
}

/// One microsecond to one minute, two significant digits.
fn new_histogram() -> io::Result<Histogram<u64>> {
    Histogram::new_with_max(60_000_000, 2).map_err(io::Error::other)
}
