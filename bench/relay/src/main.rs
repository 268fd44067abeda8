//! What does an I/O runtime cost a relay, per round trip?
//!
//! Three parts, each a process of its own, so that the CPU time of each is read apart:
//!
//! ```text
//! client (N connections) --40 bytes--> relay (U upstream connections) --40 bytes--> echo-server
//!                        <--70 bytes--                                <--70 bytes--
//! ```
//!
//! The relay does what a transaction pooler does, less the protocol: a client's request takes a
//! free upstream connection for one round trip, or waits its turn (FIFO) when none is free. It is
//! written once per runtime, with one behaviour. `run.py` starts the parts and compares.
//!
//! Limits: message sizes are fixed; a request split by the network and a full socket buffer are
//! errors, since neither happens with messages of this size on the loopback interface.

mod client;
mod echo;
mod net;
mod relay_mio;
mod relay_tokio;
mod relay_uring;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::net::Address;

#[derive(Parser)]
#[command(about = "Measures what an I/O runtime costs a relay, per round trip")]
struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// Stands for the database: answers each request of 40 bytes by a reply of 70 bytes
    EchoServer {
        /// HOST:PORT (port 0: any free one), or an absolute path for a Unix-domain socket
        #[arg(long)]
        listen: Address,
    },
    /// Passes requests on over a small pool of upstream connections
    Relay {
        #[arg(long)]
        runtime: Runtime,
        /// HOST:PORT, port 0 for any free one
        #[arg(long)]
        listen: SocketAddr,
        /// HOST:PORT, or (mio only) an absolute path for a Unix-domain socket
        #[arg(long)]
        upstream: Address,
        /// Upstream connections
        #[arg(long, default_value_t = 20)]
        pool: usize,
        /// mio only: the most events handled after one poll
        #[arg(long, default_value_t = 1024)]
        events_per_poll: usize,
        /// mio only: read a request that must wait, instead of leaving it in its socket
        #[arg(long)]
        read_first: bool,
    },
    /// Closed loop: connects all, prints `ready`, waits for a line on stdin, runs, prints JSON,
    /// and keeps its connections until stdin closes
    Client {
        #[arg(long)]
        connect: SocketAddr,
        #[arg(long)]
        connections: usize,
        #[arg(long)]
        seconds: f64,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Runtime {
    Mio,
    TokioCurrentThread,
    TokioMultiThread,
    IoUring,
}

fn main() -> io::Result<()> {
    match Arguments::parse().part {
        Part::EchoServer { listen } => echo::run(&listen),
        Part::Relay { runtime, listen, upstream, pool, events_per_poll, read_first } => {
            let listener = net::listen_tcp(listen)?;
            match runtime {
                Runtime::Mio => {
                    let options = relay_mio::Options { events_per_poll, read_first };
                    relay_mio::run(listener, &upstream, pool, options)
                }
                Runtime::TokioCurrentThread => {
                    let runtime = tokio::runtime::Builder::new_current_thread();
                    relay_tokio::run(runtime, listener, upstream.tcp()?, pool)
                }
                Runtime::TokioMultiThread => {
                    let runtime = tokio::runtime::Builder::new_multi_thread();
                    relay_tokio::run(runtime, listener, upstream.tcp()?, pool)
                }
                Runtime::IoUring => relay_uring::run(&listener, upstream.tcp()?, pool),
            }
        }
        Part::Client { connect, connections, seconds } => {
            client::run(connect, connections, Duration::from_secs_f64(seconds))
        }
    }
}
