//! The lock table: buckets behind latches, and what is counted about them.
//!
//! # Buckets
//! Most resources are locked by one locker at a time, and no locker waits for them. Such a *sole*
//! lock is written into the bucket itself, which has two places for it on the pair of cache lines
//! that its latch is on. Queues take five lines more. Lines are what a lock costs: they are not in
//! the processor's cache when there are many buckets, and with another processor when that one came
//! last.
//!
//! When another locker asks for the same resource, the sole lock moves to the [`Queues`], and their
//! rules decide. It does not move back. Its locker is not told: it looks in both places when it
//! gives the lock back.
//!
//! An example:
//!
//! ```text
//! T1: S(a)    place 1: a, S, T1    queues: –
//! T2: S(a)    place 1: –           queues: a: granted S T1, S T2
//! T1 releases a: not in a place, so in the queues; a: granted S T2
//! ```

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::hash_slab::hash_of;
use super::intents::{Intent, Intents};
use super::modes::{Mode, ModeTable};
use super::queues::{
    Answer, Handle, IfBusy, Load, LockQueue, LockRequest, LockerId, LockerState, NewRequest,
    Outcome, Queues, RequestIndex, Rules, Waiting, Woken,
};
use super::{LockSettings, Padded, Resource};

/// What the parent of a resource is, if any.
pub type ParentOf<R> = Box<dyn Fn(&R) -> Option<Parent<R>> + Send + Sync>;

/// Which locks on parts become one lock on the whole.
pub struct Escalation<R> {
    /// The resource that contains one; `None` where nothing escalates any further. Going from
    /// parent to parent must end.
    pub parent: ParentOf<R>,
    /// The mode on the parent that covers a mode on every part.
    pub covering: Box<dyn Fn(Mode) -> Mode + Send + Sync>,
}

/// A resource that contains others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent<R> {
    /// The resource that contains others.
    pub resource: R,
    /// Locks that one locker may hold on its parts before the whole is locked.
    pub parts_max: u32,
}

/// Which resources contain others.
pub struct Hierarchy<R> {
    /// Whether a resource contains others, so that it is locked by all who lock those: locks on it
    /// in the intent modes are kept apart from its bucket, see `intents.rs`.
    pub is_whole: fn(&R) -> bool,
    /// Which locks on parts become one on the whole, if any.
    pub escalation: Option<Escalation<R>>,
}

/// A lock table, see the [module](super).
pub struct LockManager<R> {
    /// A power of two of them.
    buckets: Box<[Padded<Mutex<Bucket<R>>>]>,
    pub(super) bucket_count: u32,
    pub(super) rules: Rules,
    settings: LockSettings,
    pub(super) escalation: Option<Escalation<R>>,
    intents: Option<Intents<R>>,
    pub(super) counters: Padded<Counters>,
    /// Lockers made so far.
    pub(super) lockers: Padded<AtomicU64>,
}

impl<R: Resource> LockManager<R> {
    /// Returns an empty lock table.
    #[must_use]
    pub fn new(modes: ModeTable, settings: LockSettings) -> Arc<LockManager<R>> {
        LockManager::build(modes, settings, None)
    }

    /// Returns an empty lock table for resources that contain one another.
    #[must_use]
    pub fn with_hierarchy(
        modes: ModeTable,
        settings: LockSettings,
        hierarchy: Hierarchy<R>,
    ) -> Arc<LockManager<R>> {
        LockManager::build(modes, settings, Some(hierarchy))
    }

    fn build(
        modes: ModeTable,
        settings: LockSettings,
        hierarchy: Option<Hierarchy<R>>,
    ) -> Arc<LockManager<R>> {
        let bucket_count = settings.buckets.clamp(2, 1 << 16).next_power_of_two();
        let bucket = |number| Padded(Mutex::new(Bucket::new(number)));
        let is_whole = hierarchy.as_ref().map(|hierarchy| hierarchy.is_whole);
        Arc::new(LockManager {
            intents: is_whole.map(|is_whole| Intents::new(modes.intents(), is_whole)),
            escalation: hierarchy.and_then(|hierarchy| hierarchy.escalation),
            buckets: (0..bucket_count).map(bucket).collect(),
            bucket_count,
            rules: Rules { modes, priorities: settings.priorities },
            settings,
            counters: Padded(Counters::default()),
            lockers: Padded(AtomicU64::new(0)),
        })
    }

    /// Returns the modes of this table.
    #[must_use]
    pub fn modes(&self) -> &ModeTable {
        &self.rules.modes
    }

    /// Returns the settings, as given.
    #[must_use]
    pub fn settings(&self) -> &LockSettings {
        &self.settings
    }

    /// Returns all resources that are locked, with their queues, in no order. Each bucket is seen
    /// at another moment.
    #[must_use]
    pub fn dump(&self) -> Vec<LockQueue<R>> {
        let mut intents = self.intents_seen(|_| true);
        let mut queues = Vec::new();
        for bucket in 0..self.bucket_count {
            queues.extend(self.latch(bucket).queues());
        }
        for queue in &mut queues {
            add_seen(queue, intents.remove(&queue.resource).unwrap_or_default());
        }
        queues.extend(intents.into_iter().map(|(resource, granted)| LockQueue {
            resource,
            granted,
            waiting: Vec::new(),
        }));
        queues
    }

    /// Returns the lockers that hold `resource` and those that wait for it.
    #[must_use]
    pub fn queue(&self, resource: &R) -> LockQueue<R> {
        let hash = hash_of(resource);
        let mut intents = self.intents_seen(|intent| intent.resource == *resource);
        let mut queue = self.latch(self.bucket_of(hash)).queue_of(hash, resource);
        add_seen(&mut queue, intents.remove(resource).unwrap_or_default());
        queue
    }

    /// Returns the intention locks in the stripes. They are read before the buckets, so that a lock
    /// that moves meanwhile is seen twice rather than never.
    fn intents_seen(&self, is_wanted: impl Fn(&Intent<R>) -> bool) -> HashMap<R, Vec<LockRequest>> {
        let mut seen: HashMap<R, Vec<LockRequest>> = HashMap::new();
        if let Some(intents) = &self.intents {
            intents.look(|intent| {
                if is_wanted(intent) {
                    let (locker, mode) = (intent.locker.id, intent.mode);
                    let request = LockRequest { locker, mode, converts: None };
                    seen.entry(intent.resource.clone()).or_default().push(request);
                }
            });
        }
        seen
    }

    /// Returns what was counted so far. Each bucket is read at another moment.
    #[must_use]
    pub fn statistics(&self) -> LockStatistics {
        let intents = self.intents.iter().flat_map(Intents::loads);
        let loads = (0..self.bucket_count).map(|bucket| self.latch(bucket).load());
        self.counters.0.with(intents.chain(loads))
    }

    /// Returns the stripes, if locks on `resource` may be in one.
    pub(super) fn intents_on(&self, resource: &R) -> Option<&Intents<R>> {
        self.intents.as_ref().filter(|intents| intents.are_for(resource))
    }

    /// Takes a lock back from its locker; one that `is_strong` was counted so.
    pub(super) fn take_back(&self, granted: &Granted<'_, R>, is_strong: bool, woken: &mut Woken) {
        let Granted { hash, resource, handle, locker } = *granted;
        if handle == Handle::Stripe
            && self.intents.as_ref().is_some_and(|intents| intents.release(resource, locker))
        {
            return;
        }
        let mut bucket = self.latch(self.bucket_of(hash));
        bucket.release(&self.rules, granted, woken);
        drop(bucket);
        woken.wake();
        if is_strong {
            self.end_strong(hash);
        }
    }

    /// Takes a lock back to a weaker mode.
    pub(super) fn weaken(&self, granted: &Granted<'_, R>, mode: Mode, woken: &mut Woken) {
        let Granted { hash, resource, handle, locker } = *granted;
        let weaker = NewRequest { hash, resource, mode, locker, if_busy: IfBusy::Refuse };
        if handle == Handle::Stripe
            && self.intents.as_ref().is_some_and(|intents| intents.change(&weaker))
        {
            return;
        }
        let mut bucket = self.latch(self.bucket_of(hash));
        bucket.weaken(&self.rules, granted, mode, woken);
        drop(bucket);
        woken.wake();
    }

    /// Lets intention locks go into the stripes again, as far as this strong lock goes.
    pub(super) fn end_strong(&self, hash: u64) {
        if let Some(intents) = &self.intents {
            intents.end_strong(hash);
        }
    }

    /// Has all intention locks on `resource` moved to its bucket, and those to come go there.
    pub(super) fn begin_strong(&self, intents: &Intents<R>, hash: u64, resource: &R) {
        let number = self.bucket_of(hash);
        intents.begin_strong(hash, resource, |intent| {
            let Intent { ref locker, mode, .. } = *intent;
            let held = NewRequest { hash, resource, mode, locker, if_busy: IfBusy::Refuse };
            self.latch(number).adopt(&self.rules, &held);
        });
    }

    /// Returns the bucket of a resource with this hash. The lower half of a hash chooses in the
    /// bucket.
    pub(super) fn bucket_of(&self, hash: u64) -> u32 {
        (hash >> 32) as u32 & (self.bucket_count - 1)
    }

    /// Latches a bucket. No locker that has one latched may call this.
    pub(super) fn latch(&self, bucket: u32) -> MutexGuard<'_, Bucket<R>> {
        self.buckets[bucket as usize].0.lock()
    }

    /// Latches several buckets, each named as often as one likes. The order of their numbers keeps
    /// two who do so from waiting for each other.
    pub(super) fn latch_all(&self, buckets: impl Iterator<Item = u32>) -> Latched<'_, R> {
        let mut numbers: Vec<u32> = buckets.collect();
        numbers.sort_unstable();
        numbers.dedup();
        debug_assert!(numbers.iter().all(|number| *number < self.bucket_count));
        Latched(numbers.into_iter().map(|number| (number, self.latch(number))).collect())
    }
}

impl<R> Debug for LockManager<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.settings;
        formatter.debug_struct("LockManager").field("settings", settings).finish_non_exhaustive()
    }
}

/// Adds what was seen in the stripes, unless it has moved to the bucket since.
fn add_seen<R>(queue: &mut LockQueue<R>, seen: Vec<LockRequest>) {
    for request in seen {
        if queue.granted.iter().all(|granted| granted.locker != request.locker) {
            queue.granted.push(request);
        }
    }
}

/// Several buckets that stand still.
pub(super) struct Latched<'a, R>(Vec<(u32, MutexGuard<'a, Bucket<R>>)>);

impl<R: Resource> Latched<'_, R> {
    /// Returns whether `waiter` waits at `place` and `blocker` is one whom it waits for.
    pub(super) fn is_blocked_by(
        &mut self,
        rules: &Rules,
        waiter: LockerId,
        place: RequestIndex,
        blocker: LockerId,
    ) -> bool {
        let bucket = self.bucket(place.bucket);
        bucket.queues.is_waiting(place.request, waiter)
            && bucket.queues.is_blocked_by(rules, place.request, blocker)
    }

    /// Returns whether `waiter` waits at `place`.
    pub(super) fn is_waiting(&mut self, waiter: LockerId, place: RequestIndex) -> bool {
        self.bucket(place.bucket).queues.is_waiting(place.request, waiter)
    }

    /// Ends the wait at `place`, which was seen to be there under these latches.
    pub(super) fn dismiss(
        &mut self,
        rules: &Rules,
        place: RequestIndex,
        outcome: Outcome,
        woken: &mut Woken,
    ) {
        self.bucket(place.bucket).queues.dismiss(rules, place.request, outcome, woken);
    }

    fn bucket(&mut self, number: u32) -> &mut Bucket<R> {
        let latched = self.0.iter_mut().find(|(latched, _)| *latched == number);
        latched.map(|(_, bucket)| &mut **bucket).expect("only latched buckets are asked for")
    }
}

/// Places for sole locks: as many as fit the cache lines of the latch, for small resources.
const PLACES: usize = 2;

/// A lock that a locker holds, for the bucket to find.
pub(super) struct Granted<'a, R> {
    pub(super) hash: u64,
    pub(super) resource: &'a R,
    pub(super) handle: Handle,
    pub(super) locker: &'a Arc<LockerState>,
}

/// See the [module](self). A resource has sole locks or a head in the queues, never both.
pub(super) struct Bucket<R> {
    sole: [Option<Sole<R>>; PLACES],
    /// Whether there is something in the queues: they need not be fetched to see it.
    has_queues: bool,
    requests: u64,
    pub(super) queues: Box<Queues<R>>,
}

/// A lock on a resource that no other locker has asked for.
struct Sole<R> {
    hash: u64,
    resource: R,
    locker: Arc<LockerState>,
    mode: Mode,
}

/// What would be wrong if a lock that is held were not found.
const LOST: &str = "a lock that is held is in its stripe or its bucket";

/// Where a granted lock is.
enum Found {
    Sole(usize),
    Request(u32),
}

impl<R: Eq + Hash + Clone> Bucket<R> {
    pub(super) fn new(number: u32) -> Bucket<R> {
        Bucket {
            sole: [const { None }; PLACES],
            has_queues: false,
            requests: 0,
            queues: Box::new(Queues::new(number)),
        }
    }

    pub(super) fn load(&self) -> Load {
        debug_assert!(self.has_queues || self.queues.is_empty(), "what is queued is looked for");
        let (queued, waiting) = if self.has_queues { self.queues.load() } else { (0, 0) };
        let sole = self.sole.iter().flatten().count() as u64;
        Load { requests: self.requests, held: queued + sole, waiting }
    }

    /// Asks for a resource that the locker does not hold.
    pub(super) fn ask(&mut self, rules: &Rules, ask: &NewRequest<'_, R>) -> Answer {
        self.requests += 1;
        let mut vacant = None;
        let mut shared = None;
        for (at, place) in self.sole.iter().enumerate() {
            match place {
                None => vacant = Some(at),
                Some(sole) if sole.is_of(ask.hash, ask.resource) => shared = Some(at),
                Some(_) => {}
            }
        }
        match (vacant, shared) {
            (Some(at), None) if !(self.has_queues && self.queues.has(ask.hash, ask.resource)) => {
                let (hash, resource) = (ask.hash, ask.resource.clone());
                let locker = Arc::clone(ask.locker);
                debug_assert!(self.sole[at].is_none(), "the place is vacant");
                self.sole[at] = Some(Sole { hash, resource, locker, mode: ask.mode });
                Answer::Granted(Handle::Sole)
            }
            (_, shared) => {
                if let Some(at) = shared {
                    self.share(rules, at);
                }
                self.has_queues = true;
                self.queues.ask(rules, ask)
            }
        }
    }

    /// Asks for `mode` instead of what is held.
    pub(super) fn strengthen(
        &mut self,
        rules: &Rules,
        granted: &Granted<'_, R>,
        mode: Mode,
        if_busy: IfBusy,
    ) -> Answer {
        self.requests += 1;
        match self.find(granted) {
            Some(Found::Sole(at)) => {
                self.set_sole(at, mode);
                Answer::Granted(Handle::Sole)
            }
            Some(Found::Request(request)) => self.queues.strengthen(rules, request, mode, if_busy),
            None => unreachable!("{LOST}"),
        }
    }

    /// Gives a lock up.
    pub(super) fn release(&mut self, rules: &Rules, granted: &Granted<'_, R>, woken: &mut Woken) {
        match self.find(granted) {
            Some(Found::Sole(at)) => self.sole[at] = None,
            Some(Found::Request(request)) => {
                self.queues.release(rules, request, woken);
                self.has_queues = !self.queues.is_empty();
            }
            None => unreachable!("{LOST}"),
        }
    }

    /// Takes a lock back to a weaker mode.
    pub(super) fn weaken(
        &mut self,
        rules: &Rules,
        granted: &Granted<'_, R>,
        mode: Mode,
        woken: &mut Woken,
    ) {
        match self.find(granted) {
            Some(Found::Sole(at)) => self.set_sole(at, mode),
            Some(Found::Request(request)) => self.queues.weaken(rules, request, mode, woken),
            None => unreachable!("{LOST}"),
        }
    }

    /// Takes over a lock that is held already, beside which all that is here goes.
    pub(super) fn adopt(&mut self, rules: &Rules, held: &NewRequest<'_, R>) {
        let shared = self.sole.iter().position(|place| {
            place.as_ref().is_some_and(|sole| sole.is_of(held.hash, held.resource))
        });
        if let Some(at) = shared {
            self.share(rules, at);
        }
        self.queues.adopt(rules, held);
        self.has_queues = true;
    }

    /// Moves a sole lock to the queues.
    fn share(&mut self, rules: &Rules, at: usize) {
        let sole = self.sole[at].take().expect("there is a sole lock in this place");
        let Sole { hash, resource, locker, mode } = sole;
        debug_assert!(!self.queues.has(hash, &resource), "a resource is never in both");
        let (resource, locker, if_busy) = (&resource, &locker, IfBusy::Refuse);
        self.queues.adopt(rules, &NewRequest { hash, resource, mode, locker, if_busy });
        self.has_queues = true;
    }

    fn find(&self, granted: &Granted<'_, R>) -> Option<Found> {
        let Granted { hash, resource, handle, locker } = *granted;
        if let Handle::Request(request) = handle {
            return Some(Found::Request(request));
        }
        let is_it = |place: &Option<Sole<R>>| {
            place
                .as_ref()
                .is_some_and(|sole| Arc::ptr_eq(&sole.locker, locker) && sole.is_of(hash, resource))
        };
        if let Some(at) = self.sole.iter().position(is_it) {
            return Some(Found::Sole(at));
        }
        self.queues.granted_to(hash, resource, locker.id).map(Found::Request)
    }

    fn set_sole(&mut self, at: usize, mode: Mode) {
        self.sole[at].as_mut().expect("there is a sole lock in this place").mode = mode;
    }
}

/// What can be seen of a bucket. No locker waits for sole locks.
impl<R: Eq + Hash + Clone> Bucket<R> {
    /// Returns all waits in this bucket.
    pub(super) fn waits(&self, rules: &Rules) -> Vec<Waiting> {
        if self.has_queues { self.queues.waits(rules) } else { Vec::new() }
    }

    /// Returns a locker of higher priority that waits for the one that holds `granted`.
    pub(super) fn blocked_above(
        &self,
        rules: &Rules,
        granted: &Granted<'_, R>,
    ) -> Option<Arc<LockerState>> {
        match self.find(granted)? {
            Found::Sole(_) => None,
            Found::Request(request) => self.queues.blocked_above(rules, request),
        }
    }

    /// Returns all queues.
    pub(super) fn queues(&self) -> impl Iterator<Item = LockQueue<R>> {
        let sole = self.sole.iter().flatten().map(Sole::queue);
        sole.chain(self.queues.queues())
    }

    /// Returns the queue of one resource, which is empty if the resource is not locked.
    pub(super) fn queue_of(&self, hash: u64, resource: &R) -> LockQueue<R> {
        let mut sole = self.sole.iter().flatten();
        let sole = sole.find(|sole| sole.is_of(hash, resource)).map(Sole::queue);
        sole.unwrap_or_else(|| self.queues.queue_of(hash, resource))
    }
}

impl<R: Eq + Clone> Sole<R> {
    fn is_of(&self, hash: u64, resource: &R) -> bool {
        self.hash == hash && self.resource == *resource
    }

    fn queue(&self) -> LockQueue<R> {
        let held = LockRequest { locker: self.locker.id, mode: self.mode, converts: None };
        LockQueue { resource: self.resource.clone(), granted: vec![held], waiting: Vec::new() }
    }
}

/// Counts since the start, and the state now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LockStatistics {
    /// Requests that reached the lock table; a locker answers for what it holds already.
    pub requests: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Time spent in waits that are over.
    pub wait_time: Duration,
    /// Waits that ended because of a deadlock.
    pub deadlocks: u64,
    /// Waits that ended because they took too long.
    pub timeouts: u64,
    /// Waits that ended in favour of a higher priority.
    pub preemptions: u64,
    /// Times that many locks became one.
    pub escalations: u64,
    /// Locks that are held now.
    pub held: u64,
    /// Requests that stand in a queue now.
    pub waiting: u64,
    /// Threads that sleep now: those of `waiting` that are done looking around, and those that were
    /// granted their lock and are not awake yet.
    pub asleep: u64,
    /// Locks held now by lockers that wait.
    pub held_by_waiting: u64,
}

impl LockStatistics {
    /// Returns the conflict ratio: all locks held over those held by lockers that do not wait. It
    /// is 1 without waits, and infinite when every locker that holds a lock waits. By Moenkeberg
    /// and Weikum (Performance Evaluation of an Adaptive and Robust Load Control Method, VLDB 1992)
    /// data contention is critical from about 1.3 on, whatever the workload.
    #[must_use]
    pub fn conflict_ratio(&self) -> f64 {
        if self.held == 0 {
            return 1.0;
        }
        // The two are not counted at the same moment.
        self.held as f64 / self.held.saturating_sub(self.held_by_waiting) as f64
    }
}

/// What is counted outside of the buckets, by those who wait.
#[derive(Debug, Default)]
pub(super) struct Counters {
    waits: AtomicU64,
    wait_ns: AtomicU64,
    deadlocks: AtomicU64,
    timeouts: AtomicU64,
    preemptions: AtomicU64,
    escalations: AtomicU64,
    asleep: AtomicU64,
    held_by_waiting: AtomicU64,
}

impl Counters {
    /// Records that a locker with so many locks begins to wait.
    pub(super) fn begin_wait(&self, locks: usize) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.asleep.fetch_add(1, Ordering::Relaxed);
        self.held_by_waiting.fetch_add(locks as u64, Ordering::Relaxed);
    }

    /// Records that its wait is over, and how long it was.
    pub(super) fn end_wait(&self, locks: usize, waited: Duration, outcome: Outcome) {
        self.asleep.fetch_sub(1, Ordering::Relaxed);
        self.held_by_waiting.fetch_sub(locks as u64, Ordering::Relaxed);
        let waited = u64::try_from(waited.as_nanos()).expect("a wait is shorter than 584 years");
        self.wait_ns.fetch_add(waited, Ordering::Relaxed);
        let reason = match outcome {
            Outcome::Deadlock => &self.deadlocks,
            Outcome::TimedOut => &self.timeouts,
            Outcome::Preempted => &self.preemptions,
            Outcome::Granted | Outcome::Waiting => return,
        };
        reason.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn escalated(&self) {
        self.escalations.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the statistics, together with what the buckets count.
    pub(super) fn with(&self, loads: impl Iterator<Item = Load>) -> LockStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let own = LockStatistics {
            waits: read(&self.waits),
            wait_time: Duration::from_nanos(read(&self.wait_ns)),
            deadlocks: read(&self.deadlocks),
            timeouts: read(&self.timeouts),
            preemptions: read(&self.preemptions),
            escalations: read(&self.escalations),
            asleep: read(&self.asleep),
            held_by_waiting: read(&self.held_by_waiting),
            ..LockStatistics::default()
        };
        loads.fold(own, |sum, load| LockStatistics {
            requests: sum.requests + load.requests,
            held: sum.held + load.held,
            waiting: sum.waiting + load.waiting,
            ..sum
        })
    }
}

#[cfg(test)]
mod bucket_tests {
    use std::mem::size_of;

    use super::super::modes::multi_granularity::{IS, S, X};
    use super::super::{Priorities, Priority};
    use super::*;

    #[test]
    fn a_bucket_of_the_engine_is_a_pair_of_cache_lines() {
        // As large as what the engine locks, which `core/key_locks.rs` asserts.
        assert_eq!(size_of::<Padded<Mutex<Bucket<(u32, u64)>>>>(), 128);
    }

    fn lockers() -> [Arc<LockerState>; 2] {
        [1, 2].map(|id| Arc::new(LockerState::new(LockerId(id), Priority::default(), 0)))
    }

    fn rules() -> Rules {
        Rules { modes: ModeTable::multi_granularity(), priorities: Priorities::Ignored }
    }

    /// Returns a request. All have one hash, so that resources are told apart by themselves.
    fn ask<'a>(
        resource: &'a &'static str,
        mode: Mode,
        locker: &'a Arc<LockerState>,
    ) -> NewRequest<'a, &'static str> {
        NewRequest { hash: 7, resource, mode, locker, if_busy: IfBusy::Refuse }
    }

    fn granted<'a>(
        resource: &'a &'static str,
        locker: &'a Arc<LockerState>,
    ) -> Granted<'a, &'static str> {
        Granted { hash: 7, resource, handle: Handle::Sole, locker }
    }

    #[test]
    fn a_sole_lock_is_found_where_it_has_moved() {
        let ([one, other], rules, mut woken) = (lockers(), rules(), Woken::default());
        let mut bucket = Bucket::new(0);
        assert_eq!(bucket.ask(&rules, &ask(&"a", S, &one)), Answer::Granted(Handle::Sole));
        let shared = bucket.ask(&rules, &ask(&"a", S, &other));
        assert!(matches!(shared, Answer::Granted(Handle::Request(_))), "{shared:?}");
        assert_eq!(bucket.load(), Load { requests: 2, held: 2, waiting: 0 });
        let refused = bucket.strengthen(&rules, &granted(&"a", &one), X, IfBusy::Refuse);
        assert_eq!(refused, Answer::Refused);
        bucket.release(&rules, &granted(&"a", &one), &mut woken);
        assert_eq!(bucket.queue_of(7, &"a").granted.len(), 1);
        // What is in the queues stays there: a resource is never in both.
        assert!(matches!(
            bucket.ask(&rules, &ask(&"a", IS, &one)),
            Answer::Granted(Handle::Request(_))
        ));
    }

    #[test]
    fn there_are_places_for_a_few_and_queues_for_all() {
        let ([one, _], rules, mut woken) = (lockers(), rules(), Woken::default());
        let mut bucket = Bucket::new(0);
        let names = ["a", "b", "c", "d"];
        let handles = names.map(|name| match bucket.ask(&rules, &ask(&name, X, &one)) {
            Answer::Granted(handle) => handle,
            answer => panic!("{answer:?}"),
        });
        assert_eq!(handles[..PLACES], [Handle::Sole; PLACES]);
        assert!(!handles[PLACES..].contains(&Handle::Sole));
        for (name, handle) in names.iter().zip(handles) {
            assert_eq!(bucket.queue_of(7, name).granted.len(), 1);
            bucket.release(&rules, &Granted { handle, ..granted(name, &one) }, &mut woken);
        }
        assert_eq!(bucket.load().held, 0);
        assert_eq!(bucket.queues().count(), 0);
    }
}

#[cfg(test)]
mod statistics_tests {
    use super::*;

    #[test]
    fn the_conflict_ratio_leaves_out_who_waits() {
        for (held, held_by_waiting, ratio) in
            [(0, 0, 1.0), (10, 0, 1.0), (10, 5, 2.0), (13, 3, 1.3), (4, 4, f64::INFINITY)]
        {
            let seen = LockStatistics { held, held_by_waiting, ..LockStatistics::default() };
            let seen = seen.conflict_ratio();
            let is_same = seen.total_cmp(&ratio).is_eq() || (seen - ratio).abs() < 1e-12;
            assert!(is_same, "{seen} for {held}");
        }
    }
}
