//! Watching a server: samples of what its sessions do, taken by a connection of the proxy's own.
//!
//! # Mechanism
//! One thread for each watched server logs in, without a permit and beside the event loops, and
//! runs two queries:
//!
//! * *What does each session do?* of `pg_stat_get_activity`, every 20 to 100 ms.
//! * *Which transaction holds how many locks?* of `pg_lock_status`, at most ten times a second;
//!   only while a session waits for a lock, unless the controller goes by it. For such a controller
//!   it is run whether a session waits or not, because samples of moments of waiting alone would
//!   mislead it.
//!
//! These are the functions behind `pg_stat_activity` and `pg_locks`, without the names of users
//! and databases, which the server would have to find for every row. The answers are in
//! [`ServerSamples`]: the control thread takes the means of each control interval from it,
//! `/metrics` those of the last half second.
//!
//! # Cost
//! The server says how long each query took it, and the thread's own processor time is added. From
//! the median of the last queries follows the time to the next one ([`QueryInterval`]), so that
//! both together stay below 1 % of a processor: 0.7 % for sessions, 0.2 % for locks, which take
//! every partition of the server's lock table for a moment. A server on which the query is slow is
//! asked less often, also less often than every 100 ms.
//!
//! # What can go wrong
//! A connection that fails is opened again, after 0.1 s at first and 5 s at most; meanwhile nothing
//! is known, and controllers are told nothing. An answer may take 5 s. No client waits for any of
//! this, and a watch that cannot work does not stop the proxy.
//!
//! # Limits
//! * A state and what it waits for are read one after the other, while the session goes on. A
//!   session that has just ended its statement may count as waiting for its client.
//! * "On a processor" is what does not wait: it may be ready and not running.
//! * What is shorter than the time between two queries is sampled by its share of the time.

mod maturity;
pub(crate) mod queries;
mod samples;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::config::{Database, WatchLogin};
use crate::handshake::{Credentials, UpstreamError};
use crate::hosts::Peer;
use crate::shared::{Entry, InForce, Server, Shared};
use crate::users::Users;

use maturity::LockMaturity;
use queries::WatchQueries;
use queries::{SessionEnd, WatchConnection, WatchPoll};
pub(crate) use samples::{ServerSamples, WatchMetrics};

/// The longest wait for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Time before a connection is opened again, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The database to log in to where the proxy serves every name and so has none of its own.
pub(crate) const ANY_DATABASE: &str = "postgres";

/// How a server is watched.
#[derive(Clone, Debug)]
pub(crate) struct WatchPlan {
    server: Arc<Server>,
    credentials: Credentials,
    /// The users file, which may have the password.
    users: Users,
    /// Whom to be.
    login: WatchLogin,
    /// The entry whose settings are used to log in.
    entry: Arc<Entry>,
    /// The database to log in to.
    database: String,
    /// The databases whose sessions are counted; `None` is every one of the server.
    counted: Option<Vec<String>>,
    /// Whether locks are sampled also while no session waits.
    needs_locks: bool,
}

impl WatchPlan {
    /// Returns how a server is watched, if a database on it says that it is to be.
    pub(crate) fn new(shared: &Shared, server: &Arc<Server>) -> Option<WatchPlan> {
        let mut entries = shared.entries.iter().filter(|it| it.server.index == server.index);
        let name = |it: &Database| it.server_database.clone().or(it.name.clone());
        // The databases of a server share its gate, so all of them count.
        let counted: Option<Vec<String>> =
            entries.clone().map(|entry| name(&entry.database)).collect();
        let (entry, login) =
            entries.find_map(|entry| Some((entry, entry.database.watch.clone()?)))?;
        let database = &entry.database;
        let password = login.password.as_deref();
        let channel_binding = database.tls.channel_binding;
        let users = shared.config.users.clone();
        Some(WatchPlan {
            server: Arc::clone(server),
            credentials: Credentials::own(&login.user, password, &users, channel_binding),
            users,
            login,
            entry: Arc::clone(entry),
            database: name(database).unwrap_or_else(|| ANY_DATABASE.to_owned()),
            counted,
            needs_locks: database.control.algorithm.needs_locks(),
        })
    }

    /// Returns whether a watch by one plan does for the other.
    pub(crate) fn is_same(&self, other: &WatchPlan) -> bool {
        self.server.index == other.server.index
            && self.entry.index == other.entry.index
            && self.login == other.login
            && self.users.is_of_same_file(&other.users)
            && (&self.database, &self.counted) == (&other.database, &other.counted)
            && self.needs_locks == other.needs_locks
    }
}

/// A thread that watches a server. Dropping it ends the thread and its connection.
pub(crate) struct Watch {
    stop: mio::Waker,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts to watch a server.
    pub(crate) fn start(
        in_force: Arc<InForce>,
        plan: WatchPlan,
        samples: Arc<ServerSamples>,
    ) -> std::io::Result<Watch> {
        let (watch_poll, stop) = WatchPoll::new()?;
        let name = plan.server.address.to_string();
        let mut watcher = Watcher { in_force, name, plan, samples, watch_poll };
        let thread = std::thread::Builder::new().name("tidegate-watch".into());
        let thread = thread.spawn(move || watcher.run())?;
        Ok(Watch { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let woken = self.stop.wake();
        if let (Ok(()), Some(thread)) = (woken, self.thread.take())
            && thread.join().is_err()
        {
            tracing::error!("a watching thread panicked");
        }
    }
}

struct Watcher {
    in_force: Arc<InForce>,
    name: String,
    plan: WatchPlan,
    samples: Arc<ServerSamples>,
    watch_poll: WatchPoll,
}

/// Whatever ends the thread, nothing is known of the server then.
impl Drop for Watcher {
    fn drop(&mut self) {
        self.samples.lost();
    }
}

/// Failures in a row.
#[derive(Default)]
struct Failures {
    count: usize,
    /// The last warning about them.
    warning: String,
}

impl Watcher {
    fn run(&mut self) {
        let mut failures = Failures::default();
        let mut pause = PAUSE.0;
        loop {
            let end = self.session(&mut failures);
            self.samples.lost();
            let SessionEnd::Failed(error) = end else {
                return;
            };
            if failures.count == 0 {
                pause = PAUSE.0;
            }
            self.report(&error, &mut failures);
            if self.watch_poll.sleep_until(Instant::now() + pause).is_err() {
                return;
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Says why the connection failed, once for each reason.
    fn report(&self, error: &UpstreamError, failures: &mut Failures) {
        failures.count += 1;
        self.samples.failed();
        let (server, text) = (&*self.name, error.to_string());
        if failures.warning == text {
            tracing::debug!(server, error = text, "the server cannot be watched");
        } else {
            tracing::warn!(
                server,
                user = self.plan.credentials.user,
                database = self.plan.database,
                error = text,
                "the server cannot be watched; trying again"
            );
            failures.warning = text;
        }
    }

    /// Connects and asks until the connection fails or the watch is stopped.
    fn session(&mut self, failures: &mut Failures) -> SessionEnd {
        match self.log_in(failures.count) {
            Ok((mut connection, queries)) => {
                let end = match self.ask(&mut connection, &queries, failures) {
                    Ok(never) => match never {},
                    Err(end) => end,
                };
                connection.leave();
                end
            }
            Err(end) => end,
        }
    }

    fn log_in(&mut self, attempt: usize) -> Result<(WatchConnection, WatchQueries), SessionEnd> {
        let server = &self.plan.server;
        let deadline = Instant::now() + self.in_force.get().config.timeouts.connect;
        let watch_poll = &mut self.watch_poll;
        let peer = server.hosts.observed_peer(attempt);
        let server = (&**server, self.plan.entry.connector(peer.host));
        let mut connection = WatchConnection::open(watch_poll, server, peer, deadline)?;
        let place = (&*self.plan.database, queries::APPLICATION);
        connection.log_in(watch_poll, &self.plan.credentials, place, deadline)?;
        let queries = WatchQueries::new(self.plan.counted.as_deref());
        let rows = connection.rows(watch_poll, &queries.prepare(), Instant::now() + ANSWER_TIME)?;
        let visibility = queries::Visibility::read(&rows);
        let (server, user) = (&*self.name, &*self.plan.credentials.user);
        if !visibility.sees_all {
            tracing::warn!(
                server,
                user,
                "the watch sees the sessions of its own user only: GRANT pg_read_all_stats TO it, \
                 or name another user with watch_user (--watch-user)"
            );
        }
        if !visibility.is_tracked {
            tracing::warn!(server, "the watch sees nothing: set track_activities = on");
        }
        Ok((connection, queries))
    }

    /// Checks that the connection leads to a host that is in use, whenever that may have changed.
    fn check_host(&self, peer: Peer, checked: &mut Option<u64>) -> Result<(), SessionEnd> {
        let hosts = &self.plan.server.hosts;
        let generation = hosts.generation();
        if checked.replace(generation) == Some(generation) || hosts.accepts(peer) {
            return Ok(());
        }
        Err(SessionEnd::Failed(std::io::Error::other("another host is in use now").into()))
    }

    /// Asks again and again.
    fn ask(
        &mut self,
        connection: &mut WatchConnection,
        queries: &WatchQueries,
        failures: &mut Failures,
    ) -> Result<std::convert::Infallible, SessionEnd> {
        let (mut sessions, mut locks) = (QueryInterval::of_sessions(), QueryInterval::of_locks());
        let mut maturity = LockMaturity::default();
        let mut locks_due = Instant::now();
        let mut own_time = thread_time();
        let mut generation = None;
        for number in 1_u64.. {
            self.check_host(connection.peer(), &mut generation)?;
            let asked = Instant::now();
            let rows =
                connection.rows(&mut self.watch_poll, queries.sessions(), asked + ANSWER_TIME)?;
            let (activity, took) = queries::sessions(&rows).ok_or_else(unreadable)?;
            let now = Instant::now();
            let next = asked + sessions.next(took + since(&mut own_time));
            self.samples.add(now, activity, sessions.value(), sessions.share() + locks.share());
            if failures.count > 0 {
                tracing::info!(server = self.name, "the server is watched again");
            }
            *failures = Failures::default();
            if now >= locks_due && (activity.waits_for_lock() || self.plan.needs_locks) {
                let rows =
                    connection.rows(&mut self.watch_poll, queries.locks(), now + ANSWER_TIME)?;
                let (holders, took) = queries::locks(&rows).ok_or_else(unreadable)?;
                let took = took.unwrap_or_else(|| now.elapsed()) + since(&mut own_time);
                let pause = locks.next(took);
                self.samples.add_locks(Instant::now(), maturity.observe(&holders), pause);
                locks_due = now + pause;
            }
            if number == TYPICAL {
                tracing::info!(
                    server = self.name,
                    interval_ms = sessions.value().as_millis(),
                    cost = format_args!("{:.2} %", 100.0 * (sessions.share() + locks.share())),
                    "the server is watched, at this share of a processor"
                );
            }
            self.watch_poll.sleep_until(next)?;
        }
        Err(SessionEnd::Stopped)
    }
}

/// The sample of a connection after which its cost is logged.
const TYPICAL: u64 = 100;

fn unreadable() -> SessionEnd {
    let text = "the server answers in a way that is not understood";
    SessionEnd::Failed(std::io::Error::new(std::io::ErrorKind::InvalidData, text).into())
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("processor time is not negative")
}

/// Processor time of this thread since the last call.
fn since(last: &mut Duration) -> Duration {
    let now = thread_time();
    now.saturating_sub(std::mem::replace(last, now))
}

/// Costs that are remembered.
const REMEMBERED: usize = 15;

/// What a query costs beside the time that the server reports: the transaction around it, and
/// messages. Measured with `bench/watch.py`, on a machine that others kept busy.
const AROUND: Duration = Duration::from_micros(150);

/// Time between two queries before anything is known of their cost.
const FIRST: Duration = Duration::from_millis(100);

/// The longest time between two queries, so that a wrong clock of the server ends no watch.
const LONGEST: Duration = Duration::from_secs(10);

/// How often a query is asked, so that it costs no more than a share of a processor.
///
/// The next query comes when the one before is as old as its cost over the share. The cost is
/// the median of the last queries: while the server is busy some of them are interrupted, and
/// their time is not cost.
///
/// # Example
/// The server works on a query for 0.13 ms, and 0.15 ms more are spent around it:
/// 0.28 ms / 0.007 = 40 ms. When it works for 3 ms, with thousands of sessions, it is asked every
/// 0.45 s.
#[derive(Debug)]
struct QueryInterval {
    /// The share of a processor that it may cost.
    share: f64,
    /// The shortest time between two.
    shortest: Duration,
    costs: VecDeque<Duration>,
}

impl QueryInterval {
    /// Returns the interval of the query what sessions do.
    fn of_sessions() -> QueryInterval {
        QueryInterval { share: 0.007, shortest: Duration::from_millis(10), costs: VecDeque::new() }
    }

    /// Returns the interval of the query which transaction holds how many locks.
    fn of_locks() -> QueryInterval {
        QueryInterval { share: 0.002, shortest: Duration::from_millis(100), costs: VecDeque::new() }
    }

    /// Takes the cost of a query into account. Returns the time from it to the next one.
    fn next(&mut self, cost: Duration) -> Duration {
        if self.costs.len() == REMEMBERED {
            self.costs.pop_front();
        }
        self.costs.push_back(cost.saturating_add(AROUND));
        self.value()
    }

    /// Returns the time between two queries.
    fn value(&self) -> Duration {
        let Some(cost) = self.cost() else {
            return FIRST;
        };
        // The first costs are not typical: the server reads its catalogue.
        let shortest = if self.costs.len() < REMEMBERED / 2 { FIRST } else { self.shortest };
        let wanted = cost.as_secs_f64() / self.share;
        Duration::from_secs_f64(wanted.min(LONGEST.as_secs_f64())).max(shortest)
    }

    /// Returns the share of a processor that the query costs; 0 before it was asked.
    fn share(&self) -> f64 {
        self.cost().map_or(0.0, |cost| cost.as_secs_f64() / self.value().as_secs_f64())
    }

    fn cost(&self) -> Option<Duration> {
        let mut costs: Vec<Duration> = self.costs.iter().copied().collect();
        costs.sort_unstable();
        costs.get(costs.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the interval after so many queries that take so many microseconds.
    fn after(count: usize, micros: u64) -> QueryInterval {
        let mut interval = QueryInterval::of_sessions();
        for _ in 0..count {
            interval.next(Duration::from_micros(micros));
        }
        interval
    }

    #[test]
    fn the_interval_follows_the_cost_and_keeps_the_share() {
        for (micros, least, most) in
            [(0, 20, 25), (60, 30, 30), (550, 100, 100), (6_850, 1_000, 1_000)]
        {
            let interval = after(REMEMBERED, micros);
            let millis = interval.value().as_millis();
            assert!((least..=most).contains(&millis), "{micros} µs: {millis} ms");
            assert!(interval.share() <= 0.0071, "{micros} µs: {}", interval.share());
        }
    }

    #[test]
    fn a_query_that_was_interrupted_changes_little() {
        let mut interval = after(REMEMBERED, 40);
        let before = interval.value();
        assert_eq!(interval.next(Duration::from_millis(300)), before);
        for _ in 0..REMEMBERED {
            interval.next(Duration::from_millis(3));
        }
        assert!(interval.value() > before * 10, "when all are slow it is cost");
    }

    #[test]
    fn no_cost_stops_the_querys() {
        let mut interval = QueryInterval::of_locks();
        assert_eq!(interval.value(), FIRST);
        assert!(interval.share() < f64::EPSILON);
        assert_eq!(interval.next(Duration::MAX), LONGEST);
    }
}
