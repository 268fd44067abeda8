//! How many connections there may be: places, who holds them, and who waits for one.
//!
//! # Mechanism
//!
//! A connection has a [`Place`] from before its socket is opened until after it is closed. A place
//! takes one of every [`Count`] that its pool has: that of its server, and those of the user and of
//! the database where they have bounds. A pool of an event loop that finds one of them used up has
//! an entry in the line, in the order in which its clients came. When a place comes back, the first
//! entry for which there is room gets it, as a message to its event loop.
//!
//! ```text
//! at most 2 connections to the server; pools a, b, c
//! a: take -> Place                 open 2 (a, b), line: -
//! c: take_or_wait -> None          open 2 (a, b), line: c
//! a: yields -> true                a's transaction has ended; its connection is closed for c
//! b: yields -> false               one is closing for c already
//! a: drop(place) -> c is given it  open 2 (b, c), line: -
//! ```
//!
//! Clients that find no place wait only for connections that are in use: one that is idle is given
//! up for them, in whichever event loop it is (`worker/places.rs`). So no two event loops wait for
//! each other.
//!
//! # Invariants
//!
//! - `taken` of a count is the number of places that have it. It exceeds `max` only after `max` was
//!   lowered, places were counted anew, or connections were taken over from another process.
//! - While the lock is free, there is no room for any entry of the line: places do not lie idle.
//! - The line is ordered by `since` and holds a pool of an event loop at most once.
//! - `waiting` is the length of the line.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::log_limit::LogLimit;
use crate::slots::{PoolIndex, ServerIndex, WorkerIndex};

/// What is counted, and bounded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bound {
    /// All there are.
    All,
    /// Those of a server.
    Server(ServerIndex),
    /// Those of a user.
    User(String),
    /// Those of the entry of the configuration with this key, for a database of this name.
    Database(String, String),
    /// Those of a user among those of a database.
    UserOfDatabase(String, String, String),
}

/// The counts of which a place takes one each; clones are cheap.
pub(crate) type Counts = Arc<[usize]>;

/// A bound that is reached, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) bound: Bound,
    pub(crate) max: u32,
}

/// A pool has to wait for a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The bound that is reached.
    pub(crate) full: Full,
    /// Whether that is to be logged, and how many waits were not logged before it.
    pub(crate) left_out: Option<u64>,
}

/// A pool of an event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolOfWorker {
    pub(crate) worker: WorkerIndex,
    pub(crate) pool: PoolIndex,
}

/// How many there are of what a bound counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupancy {
    pub(crate) taken: u32,
    pub(crate) max: u32,
    /// Clients that wait because there are so many.
    pub(crate) waiting: u64,
}

struct Count {
    bound: Bound,
    max: u32,
    taken: u32,
    /// Of those taken, the places that are on their way back.
    returning: u32,
    /// Those of a process from which this one takes over.
    elsewhere: u32,
}

impl Count {
    fn has_room(&self) -> bool {
        self.taken.saturating_add(self.elsewhere) < self.max
    }
}

/// A pool's entry in the line.
struct Waiter {
    pool: PoolOfWorker,
    counts: Counts,
    /// When the first of its clients came that has no connection to wait for.
    since: Instant,
    /// How many of its clients wait.
    clients: usize,
}

/// Gives a place to a pool that has waited for it. Called without the lock.
pub(crate) type Deliver = Box<dyn Fn(PoolOfWorker, Place) + Send + Sync>;

struct Account {
    counts: Vec<Count>,
    index: HashMap<Bound, usize>,
    line: VecDeque<Waiter>,
    /// No place is given to the line any more.
    is_closed: bool,
    warnings: LogLimit,
}

/// Places for connections, under bounds.
pub(crate) struct Capacity {
    account: Mutex<Account>,
    waiting: AtomicUsize,
    deliver: Deliver,
}

impl fmt::Debug for Capacity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Capacity").finish_non_exhaustive()
    }
}

impl Capacity {
    /// Makes an account without counts.
    pub(crate) fn new(deliver: Deliver, now: Instant) -> Arc<Capacity> {
        let account = Account {
            counts: Vec::new(),
            index: HashMap::new(),
            line: VecDeque::new(),
            is_closed: false,
            warnings: LogLimit::one_a_second(now),
        };
        let account = Mutex::new(account);
        Arc::new(Capacity { account, waiting: AtomicUsize::new(0), deliver })
    }

    fn lock(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts of these bounds; one that is not known yet begins with this maximum.
    pub(crate) fn counts(&self, bounds: impl IntoIterator<Item = (Bound, u32)>) -> Counts {
        let mut account = self.lock();
        bounds.into_iter().map(|(bound, max)| account.count_of(bound, max)).collect()
    }

    /// Changes a maximum. A lower one takes effect as places come back.
    pub(crate) fn set_max(self: &Arc<Self>, bound: &Bound, max: u32) {
        let mut account = self.lock();
        if let Some(&index) = account.index.get(bound) {
            account.counts[index].max = max;
        }
        self.serve_line(account);
    }

    /// Changes the maxima of all bounds for which `max_of` has one.
    pub(crate) fn set_maxima(self: &Arc<Self>, max_of: impl Fn(&Bound) -> Option<u32>) {
        let mut account = self.lock();
        for count in &mut account.counts {
            count.max = max_of(&count.bound).unwrap_or(count.max);
        }
        self.serve_line(account);
    }

    /// Sets how many connections another process has of what a bound counts: one from which this
    /// one takes over. Both together keep the maximum then.
    pub(crate) fn set_elsewhere(self: &Arc<Self>, bound: &Bound, connections: u32) {
        let mut account = self.lock();
        if let Some(&index) = account.index.get(bound) {
            account.counts[index].elsewhere = connections;
        }
        self.serve_line(account);
    }

    /// Takes a place for a connection that is open already, whether there is room or not: it is
    /// taken over from another process.
    pub(crate) fn adopt(self: &Arc<Self>, counts: &Counts) -> Place {
        let mut account = self.lock();
        account.adopt(counts);
        self.end(account);
        self.place(counts)
    }

    /// Takes a place; never waits.
    ///
    /// # Errors
    /// The first bound that is reached.
    pub(crate) fn take(self: &Arc<Self>, counts: &Counts) -> Result<Place, Full> {
        let mut account = self.lock();
        account.first_full(counts).map_or(Ok(()), Err)?;
        account.take(counts);
        Ok(self.place(counts))
    }

    /// Takes a place that nobody waits for; never waits.
    pub(crate) fn take_spare(self: &Arc<Self>, counts: &Counts) -> Option<Place> {
        if self.is_waited_for() { None } else { self.take(counts).ok() }
    }

    /// Takes a place for a pool, or lets the pool wait for one in the line. `since` is when the
    /// first of its clients came that has no connection to wait for, `clients` the number of them.
    /// A pool that is in the line already takes the position of its new `since`.
    ///
    /// # Errors
    /// Why it has to wait.
    pub(crate) fn take_or_wait(
        self: &Arc<Self>,
        (pool, counts): (PoolOfWorker, &Counts),
        (since, clients): (Instant, usize),
        now: Instant,
    ) -> Result<Place, Wait> {
        let mut account = self.lock();
        let was_waiting = account.leave(pool);
        let Some(full) = account.first_full(counts) else {
            account.take(counts);
            self.end(account);
            return Ok(self.place(counts));
        };
        if account.is_closed {
            return Err(Wait { full, left_out: None });
        }
        account.wait(Waiter { pool, counts: Arc::clone(counts), since, clients });
        let left_out = if was_waiting { None } else { account.warnings.admit(now) };
        self.end(account);
        Err(Wait { full, left_out })
    }

    /// Takes a pool out of the line: it needs no place any more.
    pub(crate) fn leave_line(&self, pool: PoolOfWorker) {
        let mut account = self.lock();
        account.leave(pool);
        self.end(account);
    }

    /// Returns whether a pool is in the line. Looks without the lock.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Returns whether a connection with these counts should be closed for an entry of the line
    /// that no other connection is being closed for. Its own pool does not count, nor does an entry
    /// that came at `before` or later.
    pub(crate) fn yields(
        &self,
        (pool, counts): (PoolOfWorker, &Counts),
        before: Option<Instant>,
    ) -> bool {
        self.is_waited_for() && self.lock().yields(pool, counts, before)
    }

    /// Returns the first of these bounds that is reached.
    pub(crate) fn full(&self, counts: &Counts) -> Option<Full> {
        self.lock().first_full(counts)
    }

    /// Returns how many there are of what a bound counts.
    pub(crate) fn occupancy(&self, bound: &Bound) -> Option<Occupancy> {
        let account = self.lock();
        let &index = account.index.get(bound)?;
        let Count { taken, max, .. } = account.counts[index];
        let waits = |waiter: &&Waiter| waiter.counts.contains(&index);
        let waiting = account.line.iter().filter(waits).map(|it| it.clients as u64).sum();
        Some(Occupancy { taken, max, waiting })
    }

    /// Empties the line for good: the proxy stops.
    pub(crate) fn close_line(&self) {
        let mut account = self.lock();
        account.is_closed = true;
        account.line.clear();
        self.end(account);
    }

    fn place(self: &Arc<Self>, counts: &Counts) -> Place {
        Place { capacity: Arc::clone(self), counts: Arc::clone(counts), is_returning: false }
    }

    /// Gives places to the line as far as there is room, and unlocks.
    fn serve_line(self: &Arc<Self>, mut account: MutexGuard<'_, Account>) {
        let served = account.serve();
        self.end(account);
        for Waiter { pool, counts, .. } in served {
            (self.deliver)(pool, self.place(&counts));
        }
    }

    /// Publishes the length of the line, and unlocks.
    #[expect(clippy::needless_pass_by_value, reason = "the lock ends here")]
    fn end(&self, account: MutexGuard<'_, Account>) {
        account.check();
        self.waiting.store(account.line.len(), Ordering::Relaxed);
    }
}

impl Account {
    fn count_of(&mut self, bound: Bound, max: u32) -> usize {
        let counts = &mut self.counts;
        *self.index.entry(bound).or_insert_with_key(|bound| {
            counts.push(Count { bound: bound.clone(), max, taken: 0, returning: 0, elsewhere: 0 });
            counts.len() - 1
        })
    }

    fn first_full(&self, counts: &Counts) -> Option<Full> {
        let full = counts.iter().map(|&index| &self.counts[index]).find(|it| !it.has_room())?;
        Some(Full { bound: full.bound.clone(), max: full.max })
    }

    fn take(&mut self, counts: &Counts) {
        debug_assert!(self.first_full(counts).is_none(), "a place is taken where there is room");
        self.adopt(counts);
    }

    fn adopt(&mut self, counts: &Counts) {
        for &index in &**counts {
            self.counts[index].taken += 1;
        }
    }

    fn give_back(&mut self, counts: &Counts, is_returning: bool) {
        for &index in &**counts {
            let count = &mut self.counts[index];
            debug_assert!(count.taken > 0, "a place comes back once");
            count.taken -= 1;
            count.returning -= u32::from(is_returning);
        }
    }

    fn wait(&mut self, waiter: Waiter) {
        let position = self.line.partition_point(|other| other.since <= waiter.since);
        self.line.insert(position, waiter);
    }

    /// Returns whether the pool was in the line.
    fn leave(&mut self, pool: PoolOfWorker) -> bool {
        let position = self.line.iter().position(|waiter| waiter.pool == pool);
        position.and_then(|position| self.line.remove(position)).is_some()
    }

    /// Takes a place for each entry of the line for which there is room, and it out of the line.
    /// One pass is enough: a place that is taken makes no room for those before.
    fn serve(&mut self) -> Vec<Waiter> {
        let mut served = Vec::new();
        let mut position = 0;
        while let Some(waiter) = self.line.get(position) {
            if self.first_full(&waiter.counts).is_none()
                && let Some(waiter) = self.line.remove(position)
            {
                self.take(&waiter.counts);
                served.push(waiter);
            } else {
                position += 1;
            }
        }
        served
    }

    fn yields(&self, own: PoolOfWorker, counts: &Counts, before: Option<Instant>) -> bool {
        // How much room there will be when all that is on its way back has come back.
        let free = |index: &usize| {
            let count = &self.counts[*index];
            let taken = i64::from(count.taken - count.returning) + i64::from(count.elsewhere);
            i64::from(count.max) - taken
        };
        // What the waiters before have of each count: there may be many that nobody waits for.
        let mut given: HashMap<usize, i64> = HashMap::new();
        let room = |given: &HashMap<usize, i64>, index: &usize| {
            free(index) - given.get(index).copied().unwrap_or(0)
        };
        for waiter in &self.line {
            if before.is_some_and(|before| waiter.since >= before) {
                return false;
            }
            if waiter.counts.iter().all(|index| room(&given, index) > 0) {
                waiter.counts.iter().for_each(|&index| *given.entry(index).or_default() += 1);
                continue;
            }
            let room_with = |index: &usize| room(&given, index) + i64::from(counts.contains(index));
            if waiter.pool != own && waiter.counts.iter().all(|index| room_with(index) > 0) {
                return true;
            }
        }
        false
    }

    /// Checks the invariants of the type. A long line is not looked at.
    fn check(&self) {
        if cfg!(debug_assertions) && self.line.len() <= 64 {
            let waiters: Vec<&Waiter> = self.line.iter().collect();
            debug_assert!(waiters.windows(2).all(|pair| pair[0].since <= pair[1].since));
            for (index, waiter) in waiters.iter().enumerate() {
                debug_assert!(self.first_full(&waiter.counts).is_some(), "it waits for room");
                let is_twice = waiters[..index].iter().any(|other| other.pool == waiter.pool);
                debug_assert!(!is_twice, "a pool is in the line once");
            }
            debug_assert!(self.counts.iter().all(|count| count.returning <= count.taken));
        }
    }
}

/// The right to have one connection. Dropping it gives the right to the line, or back.
pub(crate) struct Place {
    capacity: Arc<Capacity>,
    counts: Counts,
    is_returning: bool,
}

impl Place {
    /// Says that the connection is being closed: the place will come back soon.
    pub(crate) fn begin_return(&mut self) {
        if std::mem::replace(&mut self.is_returning, true) {
            return;
        }
        let mut account = self.capacity.lock();
        for &index in &*self.counts {
            account.counts[index].returning += 1;
        }
    }
}

impl Place {
    /// Counts it elsewhere from now on, whether there is room or not: what it is for is another
    /// thing in a new configuration.
    pub(crate) fn recount(&mut self, counts: &Counts) {
        let mut account = self.capacity.lock();
        account.give_back(&self.counts, self.is_returning);
        for &index in &**counts {
            account.counts[index].taken += 1;
            account.counts[index].returning += u32::from(self.is_returning);
        }
        self.counts = Arc::clone(counts);
        self.capacity.serve_line(account);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut account = self.capacity.lock();
        account.give_back(&self.counts, self.is_returning);
        self.capacity.serve_line(account);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Place").field("counts", &self.counts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
