//! Watching a server: what its sessions do, seen through a connection of the proxy's own.
//!
//! # Mechanism
//! One thread for each watched server logs in, without a permit and beside the event loops, and
//! asks two questions:
//!
//! * *What does each session do?* of `pg_stat_get_activity`, every 20 to 100 ms.
//! * *Who holds how many locks?* of `pg_lock_status`, at most ten times a second; only while a
//!   session waits for a lock, unless the controller goes by it. For such a controller it is asked
//!   whether a session waits or not, because looks at moments of waiting alone would mislead it.
//!
//! These are the functions behind `pg_stat_activity` and `pg_locks`, without the names of users
//! and databases, which would be looked up for every row. The answers are in [`ServerView`]: the
//! control thread takes the means of each control interval from it, `/metrics` those of the last
//! half second.
//!
//! # Cost
//! The server says how long each question took it, and the thread's own processor time is added.
//! From the median of the last questions follows the time to the next one (`pace`), so that both
//! together stay below 1 % of a processor: 0.7 % for sessions, 0.2 % for locks, which take every
//! partition of the server's lock table for a moment. A server on which the question is slow is
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
//! * What is shorter than the time between two questions is seen by its share of the time.

mod link;
mod maturity;
mod pace;
mod question;
mod view;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::config::{Config, ServerAddress};
use crate::handshake::{Credentials, UpstreamError};
use crate::shared::Shared;
use crate::users::Secret;

use link::{Desk, End, Link};
use maturity::Maturity;
use pace::Pace;
use question::Questions;
pub(crate) use view::{ServerView, Watched};

/// The longest wait for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Time before a connection is opened again, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The database to log in to where the proxy serves every name and so has none of its own.
const ANY_DATABASE: &str = "postgres";

/// How a server is watched.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    credentials: Credentials,
    /// The database to log in to.
    database: String,
    /// The databases whose sessions are counted; `None` is every one of the server.
    counted: Option<Vec<String>>,
    /// Whether locks are looked at also while no session waits.
    needs_locks: bool,
}

impl Plan {
    /// Returns how the server at `address` is watched, if a database on it says that it is to be.
    pub(crate) fn new(config: &Config, address: &ServerAddress) -> Option<Plan> {
        let mut databases = config.databases.iter().filter(|it| it.server == *address);
        let name = |it: &crate::config::Database| it.server_database.clone().or(it.name.clone());
        // The databases of a server share its gate, so all of them count.
        let counted: Option<Vec<String>> = databases.clone().map(name).collect();
        let (database, login) = databases.find_map(|it| Some((it, it.watch.as_ref()?)))?;
        let secret = match &login.password {
            Some(password) => Some(Secret::Plain(password.clone())),
            None => config.users.get(login.user.as_bytes()).cloned(),
        };
        Some(Plan {
            credentials: Credentials { user: login.user.clone(), secret },
            database: name(database).unwrap_or_else(|| ANY_DATABASE.to_owned()),
            counted,
            needs_locks: database.control.algorithm.needs_locks(),
        })
    }
}

/// A thread that watches a server. Dropping it ends the thread and its connection.
pub(crate) struct Watch {
    stop: mio::Waker,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts to watch the server of this index.
    pub(crate) fn start(
        shared: Arc<Shared>,
        server: usize,
        plan: Plan,
        view: Arc<ServerView>,
    ) -> std::io::Result<Watch> {
        let (desk, stop) = Desk::new()?;
        let name = shared.servers[server].address.to_string();
        let mut watcher = Watcher { shared, server, name, plan, view, desk };
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
    shared: Arc<Shared>,
    server: usize,
    name: String,
    plan: Plan,
    view: Arc<ServerView>,
    desk: Desk,
}

/// Whatever ends the thread, nothing is known of the server then.
impl Drop for Watcher {
    fn drop(&mut self) {
        self.view.lost();
    }
}

/// Failures in a row.
#[derive(Default)]
struct Failures {
    count: u64,
    /// What was last said of them.
    said: String,
}

impl Watcher {
    fn run(&mut self) {
        let mut failures = Failures::default();
        let mut pause = PAUSE.0;
        loop {
            let end = self.session(&mut failures);
            self.view.lost();
            let End::Failed(error) = end else {
                return;
            };
            if failures.count == 0 {
                pause = PAUSE.0;
            }
            self.report(&error, &mut failures);
            if self.desk.sleep_until(Instant::now() + pause).is_err() {
                return;
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Says why the connection failed, once for each reason.
    fn report(&self, error: &UpstreamError, failures: &mut Failures) {
        failures.count += 1;
        self.view.failed();
        let (server, text) = (&*self.name, error.to_string());
        if failures.said == text {
            tracing::debug!(server, error = text, "the server cannot be watched");
        } else {
            tracing::warn!(
                server,
                user = self.plan.credentials.user,
                database = self.plan.database,
                error = text,
                "the server cannot be watched; trying again"
            );
            failures.said = text;
        }
    }

    /// Connects and asks until the connection fails or the watch is stopped.
    fn session(&mut self, failures: &mut Failures) -> End {
        match self.log_in(failures.count) {
            Ok((mut link, questions)) => {
                let end = match self.ask(&mut link, &questions, failures) {
                    Ok(never) => match never {},
                    Err(end) => end,
                };
                link.leave();
                end
            }
            Err(end) => end,
        }
    }

    fn log_in(&mut self, attempt: u64) -> Result<(Link, Questions), End> {
        let server = &self.shared.servers[self.server];
        let deadline = Instant::now() + self.shared.config.timeouts.connect;
        let desk = &mut self.desk;
        let mut link = Link::open(desk, server, attempt, deadline)?;
        link.log_in(desk, &self.plan.credentials, &self.plan.database, deadline)?;
        let questions = Questions::new(self.plan.counted.as_deref());
        let rows = link.rows(desk, &questions.prepare(), Instant::now() + ANSWER_TIME)?;
        let sight = question::Sight::read(&rows);
        let (server, user) = (&*self.name, &*self.plan.credentials.user);
        if !sight.sees_all {
            tracing::warn!(
                server,
                user,
                "the watch sees the sessions of its own user only: GRANT pg_read_all_stats TO it, \
                 or name another user with watch_user (--watch-user)"
            );
        }
        if !sight.is_tracked {
            tracing::warn!(server, "the watch sees nothing: set track_activities = on");
        }
        Ok((link, questions))
    }

    /// Asks again and again.
    fn ask(
        &mut self,
        link: &mut Link,
        questions: &Questions,
        failures: &mut Failures,
    ) -> Result<std::convert::Infallible, End> {
        let (mut sessions, mut locks) = (Pace::of_sessions(), Pace::of_locks());
        let mut maturity = Maturity::default();
        let mut locks_due = Instant::now();
        let mut own_time = thread_time();
        for number in 1_u64.. {
            let asked = Instant::now();
            let rows = link.rows(&mut self.desk, questions.sessions(), asked + ANSWER_TIME)?;
            let (activity, took) = question::sessions(&rows).ok_or_else(unreadable)?;
            let now = Instant::now();
            let next = asked + sessions.next(took + since(&mut own_time));
            self.view.add(now, activity, sessions.interval(), sessions.share() + locks.share());
            if failures.count > 0 {
                tracing::info!(server = self.name, "the server is watched again");
            }
            *failures = Failures::default();
            if now >= locks_due && (activity.waits_for_lock() || self.plan.needs_locks) {
                let rows = link.rows(&mut self.desk, questions.locks(), now + ANSWER_TIME)?;
                let (holders, took) = question::locks(&rows).ok_or_else(unreadable)?;
                let took = took.unwrap_or_else(|| now.elapsed()) + since(&mut own_time);
                let pause = locks.next(took);
                self.view.add_locks(Instant::now(), maturity.observe(&holders), pause);
                locks_due = now + pause;
            }
            if number == TYPICAL {
                tracing::info!(
                    server = self.name,
                    interval_ms = sessions.interval().as_millis(),
                    cost = format_args!("{:.2} %", 100.0 * (sessions.share() + locks.share())),
                    "the server is watched, at this share of a processor"
                );
            }
            self.desk.sleep_until(next)?;
        }
        Err(End::Stopped)
    }
}

/// The sample of a connection after which its cost is logged.
const TYPICAL: u64 = 100;

fn unreadable() -> End {
    let text = "the server answers in a way that is not understood";
    End::Failed(std::io::Error::new(std::io::ErrorKind::InvalidData, text).into())
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Processor time of this thread since the last call.
fn since(last: &mut Duration) -> Duration {
    let now = thread_time();
    now.saturating_sub(std::mem::replace(last, now))
}
