//! The lock table: buckets behind latches, and what is counted about them.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::bucket::{Bucket, Granted};
use super::escalation::Escalation;
use super::hash_slab::hash_of;
use super::intents::{Intent, Intents};
use super::locker::Locker;
use super::locker_state::{LockerId, LockerState, Outcome, Place, Woken};
use super::modes::{Mode, ModeTable};
use super::queues::{Ask, Handle, IfBusy, LockQueue, LockRequest, Rules};
use super::settings::{LockSettings, Priority};
use super::statistics::{Counters, LockStatistics};

/// What can be locked. Small values that are cheap to clone and to compare are best.
pub trait Resource: Eq + Hash + Clone + Debug + Send + Sync + 'static {}

impl<T: Eq + Hash + Clone + Debug + Send + Sync + 'static> Resource for T {}

/// On cache lines of its own, two because they are fetched in pairs.
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

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
    bucket_count: u32,
    rules: Rules,
    settings: LockSettings,
    escalation: Option<Escalation<R>>,
    intents: Option<Intents<R>>,
    counters: Padded<Counters>,
    lockers: Padded<AtomicU64>,
}

impl<R: Resource> LockManager<R> {
    /// An empty lock table.
    #[must_use]
    pub fn new(modes: ModeTable, settings: LockSettings) -> Arc<LockManager<R>> {
        LockManager::build(modes, settings, None)
    }

    /// An empty lock table for resources that contain one another.
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

    /// A handle for one transaction. Its age counts from here: a transaction that is tried again
    /// under the same handle keeps its age, a new one should get a new handle.
    #[must_use]
    pub fn locker(self: &Arc<Self>, priority: Priority) -> Locker<R> {
        let id = LockerId(self.lockers.0.fetch_add(1, Ordering::Relaxed));
        Locker::new(Arc::clone(self), LockerState::new(id, priority))
    }

    /// The modes of this table.
    #[must_use]
    pub fn modes(&self) -> &ModeTable {
        &self.rules.modes
    }

    /// The settings, as given.
    #[must_use]
    pub fn settings(&self) -> &LockSettings {
        &self.settings
    }

    /// All resources that are locked, with their queues, in no order. Each bucket is seen at
    /// another moment.
    #[must_use]
    pub fn dump(&self) -> Vec<LockQueue<R>> {
        let mut intents = self.intents_seen(|_| true);
        let mut queues = Vec::new();
        for bucket in 0..self.bucket_count() {
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

    /// Who holds `resource` and who waits for it.
    #[must_use]
    pub fn queue(&self, resource: &R) -> LockQueue<R> {
        let hash = hash_of(resource);
        let mut intents = self.intents_seen(|intent| intent.resource == *resource);
        let mut queue = self.latch(self.bucket_of(hash)).queue_of(hash, resource);
        add_seen(&mut queue, intents.remove(resource).unwrap_or_default());
        queue
    }

    /// Intention locks in the stripes. They are looked at before the buckets: one that moves
    /// meanwhile is seen twice, and not at no time.
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

    /// What was counted so far. Each bucket is seen at another moment.
    #[must_use]
    pub fn statistics(&self) -> LockStatistics {
        let intents = self.intents.iter().flat_map(Intents::loads);
        let loads = (0..self.bucket_count()).map(|bucket| self.latch(bucket).load());
        self.counters.0.with(intents.chain(loads))
    }

    /// The stripes, if locks on `resource` may be in one.
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
        let weaker = Ask { hash, resource, mode, locker, if_busy: IfBusy::Refuse };
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
            let held = Ask { hash, resource, mode, locker, if_busy: IfBusy::Refuse };
            self.latch(number).adopt(&self.rules, &held);
        });
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(super) fn escalation(&self) -> Option<&Escalation<R>> {
        self.escalation.as_ref()
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters.0
    }

    pub(super) fn bucket_count(&self) -> u32 {
        self.bucket_count
    }

    /// The bucket of a resource with this hash. The lower half of a hash chooses in the bucket.
    pub(super) fn bucket_of(&self, hash: u64) -> u32 {
        (hash >> 32) as u32 & (self.bucket_count - 1)
    }

    /// Latches a bucket. Nobody who has one latched may call this.
    pub(super) fn latch(&self, bucket: u32) -> MutexGuard<'_, Bucket<R>> {
        self.buckets[bucket as usize].0.lock()
    }

    /// Latches several buckets, each named as often as one likes. The order of their numbers keeps
    /// two who do so from waiting for each other.
    pub(super) fn latch_all(&self, buckets: impl Iterator<Item = u32>) -> Latched<'_, R> {
        let mut numbers: Vec<u32> = buckets.collect();
        numbers.sort_unstable();
        numbers.dedup();
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
    /// Whether `waiter` waits at `place` and `blocker` is one whom it waits for.
    pub(super) fn is_blocked_by(
        &mut self,
        rules: &Rules,
        waiter: LockerId,
        place: Place,
        blocker: LockerId,
    ) -> bool {
        let Some(bucket) = self.bucket(place.bucket) else { return false };
        bucket.is_waiting(place.request, waiter)
            && bucket.is_blocked_by(rules, place.request, blocker)
    }

    /// Whether `waiter` waits at `place`.
    pub(super) fn is_waiting(&mut self, waiter: LockerId, place: Place) -> bool {
        let bucket = self.bucket(place.bucket);
        bucket.is_some_and(|bucket| bucket.is_waiting(place.request, waiter))
    }

    /// Ends the wait at `place`, which was seen to be there under these latches.
    pub(super) fn dismiss(
        &mut self,
        rules: &Rules,
        place: Place,
        outcome: Outcome,
        woken: &mut Woken,
    ) {
        if let Some(bucket) = self.bucket(place.bucket) {
            bucket.dismiss(rules, place.request, outcome, woken);
        }
    }

    fn bucket(&mut self, number: u32) -> Option<&mut Bucket<R>> {
        let latched = self.0.iter_mut().find(|(latched, _)| *latched == number);
        latched.map(|(_, bucket)| &mut **bucket)
    }
}
