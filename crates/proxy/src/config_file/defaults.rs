//! What holds where neither file nor flags say otherwise.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use tidegate_control::Algorithm;

use crate::config::{ClientTimeouts, PoolMode, Timeouts};

/// Where clients connect.
pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6432);
/// One event loop: it keeps several cores' worth of database busy.
pub const THREADS: NonZeroUsize = NonZeroUsize::MIN;
/// As many clients as fit.
pub const MODE: PoolMode = PoolMode::Transaction;
/// The limit finds itself.
pub const ALGORITHM: Algorithm = Algorithm::PairedComparison;
/// The lowest limit.
pub const MPL_MIN: u32 = 1;
/// The highest limit.
pub const MPL_MAX: u32 = 1000;
/// The limit starts at this number of transactions for each processor of this machine: not
/// far from right if the server has as many, and only a beginning if it has not.
pub const MPL_START_PER_PROCESSOR: u32 = 2;
/// Data disks of the server.
pub const DISKS: u32 = 1;
/// Looks a user up whose password has not expired. A view of those who may log in.
pub const AUTH_QUERY: &str = "SELECT usename, \
    CASE WHEN valuntil < pg_catalog.now() THEN NULL ELSE passwd END \
    FROM pg_catalog.pg_shadow WHERE usename = $1";
/// A server is not watched, because that takes one of its connections and a user.
pub const WATCH: bool = false;
/// Transactions that may wait for one server.
pub const WAITING_MAX: usize = 100_000;
/// Nobody waits for longer than this behind others of higher classes.
pub const AGEING: Option<Duration> = Some(Duration::from_secs(10));
/// Prepared statements kept on one upstream connection.
pub const PREPARED_STATEMENTS_MAX: usize = 200;
/// Seed of the controllers' draws: the same in every run, so that runs can be compared.
pub const SEED: u64 = 1;
/// Waiting times.
pub const TIMEOUTS: Timeouts = Timeouts {
    client: ClientTimeouts {
        login: Duration::from_secs(15),
        queue: Some(Duration::from_secs(120)),
        // Half the time in the queue: who waits behind idle transactions still gets their turn.
        idle_in_transaction: Some(Duration::from_secs(60)),
        client_idle: None,
        transaction: None,
    },
    message: Duration::from_secs(30),
    connect: Duration::from_secs(5),
    abandoned: Duration::from_secs(5),
    server_idle: Duration::from_secs(60),
    server_lifetime: Some(Duration::from_secs(3600)),
    server_down: Duration::from_secs(30),
    health_check_after: Some(Duration::from_secs(30)),
    health_check: Duration::from_secs(2),
    unreachable: Some(Duration::from_secs(120)),
    drain_delay: Duration::ZERO,
    shutdown_grace: Duration::from_secs(10),
};
