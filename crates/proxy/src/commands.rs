//! What an administrator orders: to pause, resume, suspend, reconnect, disable, enable and kill.
//!
//! An order changes the state here and posts a message to every event loop, which reads the state
//! and obeys (`worker/orders.rs`). The state is by database, under the names that
//! [`Pool::database_name`](crate::upstream::Pool) has, so that it survives a new configuration.
//!
//! Orders that take time are waited for: each event loop says once that nothing of it is left.
//!
//! ```text
//! pause(d)     -> state: d is paused; wait 1 for loops {0, 1}; both loops get a message
//! loop 0 obeys -> closes idle connections of d, has none left     -> wait 1 for loops {1}
//! loop 1 obeys -> a transaction of d runs on
//!   ... it ends, its connection is closed                         -> wait 1 is over
//! ```
//!
//! What the orders mean is as in PgBouncer's documentation. Differences: RESUME without a database
//! also resumes databases that were paused one by one, SUSPEND lets running transactions end, and
//! KILL rolls back what runs before it closes a connection.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use tidegate_control::{Algorithm, ControlChoice, Mpl};

use crate::config::{Control, ServerHosts};
use crate::handover::records::{HoldRecord, OrdersRecord};
use crate::mailbox::Message;
use crate::shared::Shared;
use crate::slots::WorkerIndex;

/// Time between two looks whether an order is still waited for.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// Time within which event loops say whether they have a client.
const KILL_CLIENT_TIME: Duration = Duration::from_secs(2);

/// What an order is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every database.
    All,
    /// The database that clients call so.
    Database(String),
}

impl Scope {
    /// Returns whether a database is meant.
    pub(crate) fn covers(&self, database: &str) -> bool {
        match self {
            Scope::All => true,
            Scope::Database(name) => name == database,
        }
    }
}

/// Whether new transactions of a database wait until it is resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hold {
    /// They do not.
    #[default]
    None,
    /// They do, and connections are closed when they are released.
    Paused,
    /// They do, and connections stay open.
    Suspended,
}

/// The orders in force for a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatabaseOrders {
    pub(crate) hold: Hold,
    /// Connections that were opened under a lower number are closed when they are released.
    pub(crate) reconnects: u64,
}

impl DatabaseOrders {
    /// Returns whether a connection that was opened under this number is to be closed.
    pub(crate) fn close(&self, opened_under: u64) -> bool {
        self.hold == Hold::Paused || opened_under < self.reconnects
    }
}

/// Who chooses a server's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LimitOrder {
    /// As configured.
    #[default]
    Configured,
    /// Nobody: it stays here.
    Pinned(Mpl),
    /// Nobody: it is the highest, and a controller says what it would set.
    Observing,
}

impl LimitOrder {
    /// Returns its name in `/status.json`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            LimitOrder::Configured => "configured",
            LimitOrder::Pinned(_) => "pinned",
            LimitOrder::Observing => "observing",
        }
    }

    /// Returns how the limit is controlled under this order, beginning at `start` if the controller
    /// begins where it is told.
    pub(crate) fn control(self, configured: &Control, start: Mpl) -> Control {
        let mut control = *configured;
        match self {
            LimitOrder::Configured => {}
            LimitOrder::Pinned(limit) => {
                control.algorithm = Algorithm::Fixed(limit);
                (control.is_observing, control.keep) = (false, None);
            }
            LimitOrder::Observing => {
                let asked = ControlChoice::observing(control.algorithm);
                // Some learn only from limits that they set.
                control.algorithm = asked.map_or(ControlChoice::ASKED, |asked| asked.algorithm);
                (control.is_observing, control.keep) = (true, None);
            }
        }
        control.setting.start = control.setting.bounds.clamp(start);
        control
    }
}

/// What is waited for in every event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// No connection to a server is open.
    Released,
    /// No connection is open that is to be closed.
    Closed,
    /// No transaction runs.
    Quiet,
}

/// An order that is waited for.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) id: u64,
    pub(crate) scope: Scope,
    pub(crate) awaited: Awaited,
    /// The version of the state with the order: an event loop that has not obeyed it cannot judge.
    pub(crate) version: u64,
    /// The event loops that have something left.
    left: BTreeSet<usize>,
}

/// Why an order is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandError {
    /// No such database.
    #[error("no such database: {0}")]
    NoDatabase(String),
    /// It is paused or suspended already.
    #[error("already suspended/paused")]
    AlreadyHeld,
    /// The database is paused already.
    #[error("database {0} is already paused")]
    AlreadyPaused(String),
    /// Nothing is paused or suspended.
    #[error("pooler is not paused/suspended")]
    NotHeld,
    /// The database is not paused.
    #[error("database {0} is not paused")]
    NotPaused(String),
    /// The client has gone, or never was.
    #[error("client {0} not found")]
    NoClient(u64),
    /// No such server.
    #[error("no such server: {0}")]
    NoServer(String),
    /// A limit outside the bounds that are configured.
    #[error("the limit of {server} is from {min} to {max}")]
    LimitBounds {
        /// The server.
        server: String,
        /// The lowest limit.
        min: Mpl,
        /// The highest limit.
        max: Mpl,
    },
    /// Nobody waits for the outcome any more; the order stays in force.
    #[error("the order stays in force, but its completion is no longer waited for")]
    Abandoned,
}

#[derive(Debug, Default)]
struct State {
    /// Counts changes.
    version: u64,
    all: Hold,
    paused: BTreeSet<String>,
    disabled: BTreeSet<String>,
    /// The number of the last reconnection of all databases.
    reconnects: u64,
    /// The number of the last reconnection of single databases.
    reconnects_of: BTreeMap<String, u64>,
    waits: Vec<Wait>,
    waits_begun: u64,
    /// Who chooses the limit, of the servers where it is not as configured.
    limits: HashMap<ServerHosts, LimitOrder>,
}

/// The orders in force.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    state: Mutex<State>,
    changed: Condvar,
    has_waits: AtomicBool,
    /// No client is let in any more, but those of the console.
    is_closed: AtomicBool,
    ids: AtomicU64,
}

impl Commands {
    /// Takes the orders over that were in force in another process.
    pub(crate) fn adopt(record: OrdersRecord) -> Commands {
        let all = match record.all {
            None => Hold::None,
            Some(HoldRecord::Paused) => Hold::Paused,
            Some(HoldRecord::Suspended) => Hold::Suspended,
        };
        let (paused, disabled) = (record.paused, record.disabled);
        let state = State {
            all,
            paused: paused.into_iter().collect(),
            disabled: disabled.into_iter().collect(),
            ..State::default()
        };
        Commands { state: Mutex::new(state), ..Commands::default() }
    }

    /// Returns the orders in force, for another process.
    pub(crate) fn record(&self) -> OrdersRecord {
        let state = self.lock();
        OrdersRecord {
            all: match state.all {
                Hold::None => None,
                Hold::Paused => Some(HoldRecord::Paused),
                Hold::Suspended => Some(HoldRecord::Suspended),
            },
            paused: state.paused.iter().cloned().collect(),
            disabled: state.disabled.iter().cloned().collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a number for a new client or connection: those of one process are distinct, from 1.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the number of changes so far.
    pub(crate) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Returns the orders for a database.
    pub(crate) fn of(&self, database: &str) -> DatabaseOrders {
        let state = self.lock();
        let own = state.reconnects_of.get(database).copied().unwrap_or(0);
        let is_paused = state.paused.contains(database);
        let hold = match state.all {
            // Its connections stay closed, also while all are suspended.
            _ if is_paused => Hold::Paused,
            hold => hold,
        };
        DatabaseOrders { hold, reconnects: state.reconnects.max(own) }
    }

    /// Returns who chooses a server's limit.
    pub(crate) fn limit_order(&self, server: &ServerHosts) -> LimitOrder {
        self.lock().limits.get(server).copied().unwrap_or_default()
    }

    /// Refuses all new clients but those of the console, from now on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Returns whether all new clients are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Returns whether new clients of a database are refused.
    pub(crate) fn is_disabled(&self, database: &str) -> bool {
        self.lock().disabled.contains(database)
    }

    /// Returns whether all databases are paused or suspended.
    pub(crate) fn hold_of_all(&self) -> Hold {
        self.lock().all
    }

    /// Returns whether an order is waited for. Looks without the lock.
    pub(crate) fn has_waits(&self) -> bool {
        self.has_waits.load(Ordering::Relaxed)
    }

    /// Returns the orders that are waited for, of which this event loop may have something left.
    pub(crate) fn waits_of(&self, worker: WorkerIndex) -> Vec<Wait> {
        let state = self.lock();
        state.waits.iter().filter(|wait| wait.left.contains(&worker.0)).cloned().collect()
    }

    /// Notes that an event loop has nothing left of these orders.
    pub(crate) fn done(&self, worker: WorkerIndex, waits: &[u64]) {
        let mut state = self.lock();
        for wait in &mut state.waits {
            if waits.contains(&wait.id) {
                wait.left.remove(&worker.0);
            }
        }
        self.changed.notify_all();
    }
}

/// The orders; each blocks until every event loop has been told, and those that have to be waited
/// for until it is done, as long as `is_wanted`. No event loop may call them.
impl Shared {
    /// Returns the name under which orders are given for a database that clients ask for so.
    fn ordered_name(&self, name: &str) -> Result<String, CommandError> {
        let entry = self.database(name).ok_or_else(|| CommandError::NoDatabase(name.to_owned()))?;
        Ok(entry.database.shown_name(name).to_owned())
    }

    fn ordered_scope(&self, scope: Scope) -> Result<Scope, CommandError> {
        match scope {
            Scope::All => Ok(Scope::All),
            Scope::Database(name) => self.ordered_name(&name).map(Scope::Database),
        }
    }

    /// Changes the state and lets the event loops obey. Returns the new version.
    fn order(
        &self,
        change: impl FnOnce(&mut State) -> Result<(), CommandError>,
    ) -> Result<u64, CommandError> {
        let version = {
            let mut state = self.commands.lock();
            change(&mut state)?;
            state.version += 1;
            state.version
        };
        self.tell_event_loops(|| Message::Ordered);
        Ok(version)
    }

    fn tell_event_loops(&self, message: impl Fn() -> Message) {
        for mailbox in &self.mailboxes {
            mailbox.post(message());
        }
    }

    /// Waits until no event loop has anything left.
    fn wait_for_event_loops(
        &self,
        scope: Scope,
        awaited: Awaited,
        version: u64,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), CommandError> {
        let mut state = self.commands.lock();
        state.waits_begun += 1;
        let id = state.waits_begun;
        let left = (0..self.mailboxes.len()).collect();
        state.waits.push(Wait { id, scope, awaited, version, left });
        self.commands.has_waits.store(true, Ordering::Relaxed);
        drop(state);
        self.tell_event_loops(|| Message::Ordered);
        let mut state = self.commands.lock();
        loop {
            let has_left = |wait: &Wait| wait.id == id && !wait.left.is_empty();
            let is_over = !state.waits.iter().any(has_left);
            if is_over || !is_wanted() {
                state.waits.retain(|wait| wait.id != id);
                self.commands.has_waits.store(!state.waits.is_empty(), Ordering::Relaxed);
                return if is_over { Ok(()) } else { Err(CommandError::Abandoned) };
            }
            let waited = self.commands.changed.wait_timeout(state, WAIT_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets new transactions wait, and closes connections as they are released. Returns when none
    /// is open.
    ///
    /// # Errors
    /// There is no such database, it is paused already, or nobody waits any more.
    pub(crate) fn pause(
        &self,
        scope: Scope,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), CommandError> {
        let scope = self.ordered_scope(scope)?;
        let version = self.order(|state| match &scope {
            _ if state.all != Hold::None => Err(CommandError::AlreadyHeld),
            Scope::All => {
                state.all = Hold::Paused;
                Ok(())
            }
            Scope::Database(name) if !state.paused.insert(name.clone()) => {
                Err(CommandError::AlreadyPaused(name.clone()))
            }
            Scope::Database(_) => Ok(()),
        })?;
        self.wait_for_event_loops(scope, Awaited::Released, version, is_wanted)
    }

    /// Lets new transactions of all databases wait. Returns when none runs.
    ///
    /// # Errors
    /// They are paused or suspended already, or nobody waits any more.
    pub(crate) fn suspend(&self, is_wanted: &dyn Fn() -> bool) -> Result<(), CommandError> {
        let version = self.order(|state| {
            if state.all != Hold::None {
                return Err(CommandError::AlreadyHeld);
            }
            state.all = Hold::Suspended;
            Ok(())
        })?;
        self.wait_for_event_loops(Scope::All, Awaited::Quiet, version, is_wanted)
    }

    /// Lets transactions go on that wait because of [`Shared::pause`], [`Shared::suspend`] or
    /// [`Shared::kill`].
    ///
    /// # Errors
    /// There is no such database, or it is not paused.
    pub(crate) fn resume(&self, scope: Scope) -> Result<(), CommandError> {
        let scope = self.ordered_scope(scope)?;
        let resumed = self.order(|state| match &scope {
            Scope::All if state.all == Hold::None && state.paused.is_empty() => {
                Err(CommandError::NotHeld)
            }
            Scope::All => {
                state.all = Hold::None;
                state.paused.clear();
                Ok(())
            }
            Scope::Database(name) if !state.paused.remove(name) => {
                Err(CommandError::NotPaused(name.clone()))
            }
            Scope::Database(_) => Ok(()),
        });
        resumed.map(drop)
    }

    /// Has every connection that is open now closed when it is released.
    ///
    /// # Errors
    /// There is no such database.
    pub(crate) fn reconnect(&self, scope: Scope) -> Result<(), CommandError> {
        let scope = self.ordered_scope(scope)?;
        let ordered = self.order(|state| {
            // A number that no connection has been opened under.
            let next = state.version + 1;
            match scope {
                Scope::All => state.reconnects = next,
                Scope::Database(name) => drop(state.reconnects_of.insert(name, next)),
            }
            Ok(())
        });
        ordered.map(drop)
    }

    /// Waits until no connection is open that is to be closed.
    ///
    /// # Errors
    /// There is no such database, or nobody waits any more.
    pub(crate) fn wait_close(
        &self,
        scope: Scope,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), CommandError> {
        let scope = self.ordered_scope(scope)?;
        let version = self.commands.version();
        self.wait_for_event_loops(scope, Awaited::Closed, version, is_wanted)
    }

    /// Refuses new clients of a database.
    ///
    /// # Errors
    /// There is no such database.
    pub(crate) fn disable(&self, database: &str) -> Result<(), CommandError> {
        let database = self.ordered_name(database)?;
        self.commands.lock().disabled.insert(database);
        Ok(())
    }

    /// Admits new clients of a database again.
    ///
    /// # Errors
    /// There is no such database.
    pub(crate) fn enable(&self, database: &str) -> Result<(), CommandError> {
        let database = self.ordered_name(database)?;
        self.commands.lock().disabled.remove(&database);
        Ok(())
    }

    /// Says who chooses a server's limit, from the next tick of the control thread on.
    ///
    /// # Errors
    /// There is no such server, or the limit is outside the bounds that are configured.
    pub(crate) fn order_limit(&self, server: &str, order: LimitOrder) -> Result<(), CommandError> {
        let named = self.servers.iter().find(|it| it.name == server && !it.is_retired);
        let named = named.ok_or_else(|| CommandError::NoServer(server.to_owned()))?;
        let bounds = named.control.setting.bounds;
        if let LimitOrder::Pinned(limit) = order
            && bounds.clamp(limit) != limit
        {
            let (min, max) = (bounds.min(), bounds.max());
            return Err(CommandError::LimitBounds { server: server.to_owned(), min, max });
        }
        let address = named.server.address.clone();
        self.commands.lock().limits.insert(address, order);
        Ok(())
    }

    /// Ends all clients, rolls back what they run and closes all connections. New clients wait
    /// until they are resumed. Returns when no connection is open.
    ///
    /// # Errors
    /// There is no such database, or nobody waits any more.
    pub(crate) fn kill(
        &self,
        scope: Scope,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), CommandError> {
        let scope = self.ordered_scope(scope)?;
        let version = self.order(|state| {
            match &scope {
                Scope::All => state.all = Hold::Paused,
                Scope::Database(name) => drop(state.paused.insert(name.clone())),
            }
            Ok(())
        })?;
        self.tell_event_loops(|| Message::Kill { scope: scope.clone() });
        self.wait_for_event_loops(scope, Awaited::Released, version, is_wanted)
    }

    /// Ends one client, and rolls back what it runs.
    ///
    /// # Errors
    /// There is no such client.
    pub(crate) fn kill_client(&self, id: u64) -> Result<(), CommandError> {
        let (found, answers) = mpsc::channel();
        self.tell_event_loops(|| Message::KillClient { id, found: found.clone() });
        drop(found);
        // The channel is closed when all have looked.
        answers.recv_timeout(KILL_CLIENT_TIME).map_err(|_| CommandError::NoClient(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_closed_that_is_older_than_the_last_reconnection() {
        let orders = DatabaseOrders { hold: Hold::None, reconnects: 3 };
        assert_eq!([2, 3, 4].map(|opened_under| orders.close(opened_under)), [true, false, false]);
        let paused = DatabaseOrders { hold: Hold::Paused, reconnects: 0 };
        assert!(paused.close(7));
        let suspended = DatabaseOrders { hold: Hold::Suspended, reconnects: 0 };
        assert!(!suspended.close(7));
    }

    #[test]
    fn a_paused_database_stays_paused_while_all_are_suspended() {
        let commands = Commands::default();
        commands.lock().paused.insert("a".into());
        commands.lock().all = Hold::Suspended;
        assert_eq!(commands.of("a").hold, Hold::Paused);
        assert_eq!(commands.of("b").hold, Hold::Suspended);
    }
}
