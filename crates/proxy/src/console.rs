//! The administration console: databases `pgbouncer` and `tidegate` over PostgreSQL's protocol.
//!
//! Its commands and the columns of its results are those of PgBouncer 1.24, with SHOW LIMIT, QUEUE,
//! PERMITS, CLASSES and CURVE beside them. A client of the console belongs to an event loop like
//! any other, which passes its messages to a thread of the client's own: commands ask all event
//! loops and wait, which an event loop must not. The answers come back as messages to the event
//! loop.
//!
//! | module | what it has |
//! | --- | --- |
//! | `statement.rs` | the text of a query, as commands |
//! | `protocol.rs` | the simple and the extended protocol |
//! | `table.rs` | results as PostgreSQL sends them |
//! | `show.rs` | the rows of the SHOW commands that PgBouncer has |
//! | `statistics.rs` | those of SHOW STATS and its relatives |
//! | `own.rs` | those of our own SHOW commands |
//! | `run.rs` | commands, carried out |

mod own;
mod protocol;
mod run;
mod show;
mod statement;
mod statistics;
mod table;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};

use crate::client::Requester;
use crate::config_file::Override;
use crate::mailbox::Message;
use crate::reload::{ReloadError, ReloadReport};
use crate::shared::InForce;

pub(crate) use protocol::greet;

/// Databases of this name are the console, unless a database of that name is configured.
pub(crate) const DATABASES: [&str; 2] = ["pgbouncer", "tidegate"];

/// Users of this name need no password on a Unix-domain socket, as the user of the operating system
/// that runs the proxy.
pub(crate) const OWN_USERS: [&str; 2] = ["pgbouncer", "tidegate"];

/// Clients of the console at once: each has a thread.
const SESSIONS_MAX: usize = 64;

/// The longest message of a client of the console, bytes.
pub(crate) const MESSAGE_LEN_MAX: usize = 64 * 1024;

/// What a client of the console may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Everything.
    Admin,
    /// SHOW.
    Stats,
}

/// Who gives a command.
struct Caller {
    user: Box<str>,
    rights: Rights,
}

/// How a SHUTDOWN is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownMode {
    /// At once.
    Immediate,
    /// When running transactions have ended.
    WaitForServers,
    /// When all clients have left, which they have when this is told.
    WaitForClients,
}

/// Stops the process that the proxy runs in.
pub(crate) type ShutdownHook = Box<dyn Fn(ShutdownMode) + Send + Sync>;

/// Reads the configuration again and puts it in force; with a setting over it, if there is one.
pub(crate) type ReloadHook =
    Box<dyn Fn(Option<Override>) -> Result<ReloadReport, ReloadError> + Send + Sync>;

/// What the console shares with the rest of the proxy.
#[derive(Default)]
pub(crate) struct ConsoleState {
    sessions: AtomicUsize,
    /// Reads the configuration again.
    pub(crate) reload: std::sync::OnceLock<ReloadHook>,
    /// Stops the process.
    pub(crate) shutdown: std::sync::OnceLock<ShutdownHook>,
}

impl fmt::Debug for ConsoleState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ConsoleState").finish_non_exhaustive()
    }
}

/// A message of a client: its type and payload.
type ClientMessage = (u8, Vec<u8>);

/// What a client's thread is told beside its messages.
#[derive(Debug, Default)]
struct Flags {
    /// The client has gone.
    is_gone: AtomicBool,
    /// The client has asked for its command to be cancelled.
    is_cancelled: AtomicBool,
}

/// A client of the console, as its event loop knows it. Its thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ConsoleClient {
    pub(crate) user: Box<str>,
    pub(crate) rights: Rights,
    messages: Sender<ClientMessage>,
    flags: Arc<Flags>,
    /// A message is being answered: the next one waits.
    pub(crate) is_busy: bool,
}

impl ConsoleClient {
    /// Starts the thread of a client.
    ///
    /// # Errors
    /// There are too many, or there can be no more threads.
    pub(crate) fn start(
        in_force: &Arc<InForce>,
        client: Requester,
        (user, rights): (Box<str>, Rights),
    ) -> io::Result<ConsoleClient> {
        let (messages, received) = mpsc::channel::<ClientMessage>();
        let flags = Arc::new(Flags::default());
        let thread_flags = Arc::clone(&flags);
        let caller = Caller { user: user.clone(), rights };
        let (in_force, shared) = (Arc::clone(in_force), in_force.get());
        if shared.console.sessions.fetch_add(1, Ordering::Relaxed) >= SESSIONS_MAX {
            shared.console.sessions.fetch_sub(1, Ordering::Relaxed);
            let message = format!("more than {SESSIONS_MAX} clients of the console");
            return Err(io::Error::other(message));
        }
        let counted = Counted(Arc::clone(&shared.console));
        let thread = std::thread::Builder::new().name("tidegate-console".into());
        thread.spawn(move || {
            let _counted = counted;
            let mut session = protocol::Session::new(in_force, caller, &thread_flags);
            for (tag, payload) in received {
                let bytes = session.message(tag, &payload);
                thread_flags.is_cancelled.store(false, Ordering::Relaxed);
                let answer = Message::ConsoleAnswer { client: client.client, bytes };
                shared.mailboxes[client.worker.0].post(answer);
            }
        })?;
        Ok(ConsoleClient { user, rights, messages, flags, is_busy: false })
    }

    /// Has a message answered. Returns whether the thread is there to do it.
    pub(crate) fn answer(&mut self, tag: u8, payload: Vec<u8>) -> bool {
        self.is_busy = true;
        self.messages.send((tag, payload)).is_ok()
    }

    /// Stops waiting for the completion of the command that is being carried out.
    pub(crate) fn cancel(&self) {
        if self.is_busy {
            self.flags.is_cancelled.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for ConsoleClient {
    fn drop(&mut self) {
        self.flags.is_gone.store(true, Ordering::Relaxed);
    }
}

/// A session that counts among those there are.
struct Counted(Arc<ConsoleState>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}
