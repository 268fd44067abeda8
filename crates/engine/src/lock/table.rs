//! Where a lock is written down: in a bucket of the lock table, or in a stripe of intentions.
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
//! For example:
//!
//! ```text
//! T1: S(a)    place 1: a, S, T1    queues: –
//! T2: S(a)    place 1: –           queues: a: granted S T1, S T2
//! T1 releases a: not in a place, so in the queues; a: granted S T2
//! ```
//!
//! # Intentions
//! Each transaction locks the store and a tree in IS or IX before it locks a key. These locks go
//! together, and yet all of them would be written into one bucket: its cache lines would go from
//! processor to processor all the time. So what contains other resources is locked in the *intent
//! modes* of the table elsewhere: in a *stripe*, of which each thread has one, as long as there
//! are enough.
//!
//! Any other request for such a resource is *strong*. It is counted, in a counter that the hash of
//! the resource leads to, then all stripes are gone through, and the locks there on the resource
//! move to its bucket; only then is the strong request put there. The locker that asks for an
//! intent mode looks at the counter while it has latched its stripe, and goes to the bucket as well
//! unless it is 0. So a strong request sees all others: a lock that was first in the stripe is
//! found there, and a later request finds the counter. The counter is taken back when the strong
//! lock is given up, or the request is.
//!
//! Which modes are intents, the table says: its modes are gone through in order, and each is taken
//! that goes with itself and with all taken before. So intents never wait for each other, and only
//! a strong request can wait for one. For [`multi_granularity`](super::multi_granularity)
//! they are IS and IX.
//!
//! For example:
//!
//! ```text
//! T1: IX(tree)  counter 0: stripe 1        T2: IS(tree)  counter 0: stripe 2
//! T3: S(tree)   counter 1; both move to the bucket, and T3 waits there for T1
//! T4: IS(tree)  counter 1: bucket          T3 releases: counter 0
//! T4: IS(tree), in another transaction: stripe
//! ```
//!
//! # Where this leaves the literature
//! PostgreSQL's fast path (its `README` of the lock manager) has a few places for each process and
//! 1,024 counters. There the strong modes are fixed; here they are all that are no intents.
//! Speculative lock inheritance (Johnson, Pandis, Ailamaki, VLDB 2009) leaves the locks with the
//! thread when a transaction ends; then a strong request has to take them away from a thread.
//!
//! # Limits
//! A strong request latches all stripes, one after the other. A counter is shared by all resources
//! that lead to it: a strong lock on one of them sends intents on all to their buckets.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_runtime::sync::{Mutex, MutexGuard};
use tidegate_runtime::thread;

use super::modes::{Mode, ModeSet};
use super::queues::{
    Answer, BucketNumber, Handle, IfBusy, LockQueue, LockRequest, LockerState, NewRequest, Queues,
    Rules, Waiting, Woken,
};
use super::{LockManager, Padded, Resource};

impl<R: Resource> LockManager<R> {
    /// Returns the stripes, if locks on `resource` may be in one.
    pub(super) fn intents_on(&self, resource: &R) -> Option<&Intents<R>> {
        (self.intents.is_whole)(resource).then_some(&self.intents)
    }

    /// Puts a request where it belongs. `held` is where a lock on the resource was written down
    /// that the locker holds already.
    pub(super) fn put(&self, ask: &NewRequest<'_, R>, held: Option<Handle>) -> Answer {
        let NewRequest { hash, resource, mode, locker, if_busy } = *ask;
        if let Some(intents) = self.intents_on(resource).filter(|intents| intents.has(mode)) {
            let is_granted = match held {
                None => intents.grant(ask),
                Some(Handle::Stripe) => intents.change(ask),
                Some(_) => false,
            };
            if is_granted {
                return Answer::Granted(Handle::Stripe);
            }
        }
        let mut bucket = self.latch(self.bucket_of(hash));
        match held {
            None => bucket.ask(&self.rules, ask),
            Some(handle) => {
                let granted = Granted { hash, resource, handle, locker };
                bucket.strengthen(&self.rules, &granted, mode, if_busy)
            }
        }
    }

    /// Takes a lock back from its locker; one that `is_strong` was counted so.
    pub(super) fn take_back(&self, granted: &Granted<'_, R>, is_strong: bool, woken: &mut Woken) {
        let Granted { hash, resource, handle, locker } = *granted;
        if handle == Handle::Stripe && self.intents.release(resource, locker) {
            return;
        }
        let mut bucket = self.latch(self.bucket_of(hash));
        bucket.release(&self.rules, granted, woken);
        drop(bucket);
        woken.wake();
        if is_strong {
            self.intents.end_strong(hash);
        }
    }

    /// Takes a lock back to a weaker mode.
    pub(super) fn weaken(&self, granted: &Granted<'_, R>, mode: Mode, woken: &mut Woken) {
        let Granted { hash, resource, handle, locker } = *granted;
        let weaker = NewRequest { hash, resource, mode, locker, if_busy: IfBusy::Refuse };
        if handle == Handle::Stripe && self.intents.change(&weaker) {
            return;
        }
        let mut bucket = self.latch(self.bucket_of(hash));
        bucket.weaken(&self.rules, granted, mode, woken);
        drop(bucket);
        woken.wake();
    }

    /// Has all intention locks on `resource` moved to its bucket, and those to come go there, until
    /// [`Intents::end_strong`].
    pub(super) fn begin_strong(&self, hash: u64, resource: &R) {
        let number = self.bucket_of(hash);
        self.intents.begin_strong(hash, resource, |intent| {
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
        debug_assert!(bucket < self.bucket_count, "a hash is masked");
        self.buckets[bucket as usize].0.lock()
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

/// See the [module](self#buckets). A resource has sole locks or a head in the queues, never both.
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
    pub(super) fn new(number: BucketNumber) -> Bucket<R> {
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
                debug_assert!(self.has_queues, "what is queued is looked for");
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
        debug_assert!(self.queues.has(held.hash, held.resource), "it is held in the queues now");
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

/// Enough for the threads of a machine that run at one time; each strong request latches them all.
const STRIPES: usize = 32;

/// Locks in one stripe, which are looked through one by one.
const IN_STRIPE_MAX: usize = 64;

const COUNTERS: usize = 256;

/// See the [module](self#intentions).
pub(super) struct Intents<R> {
    modes: ModeSet,
    /// Whether a resource contains others.
    is_whole: fn(&R) -> bool,
    stripes: Box<[Padded<Mutex<Stripe<R>>>]>,
    /// Lockers with a strong mode, held or asked for.
    strong: Box<[AtomicU32]>,
}

struct Stripe<R> {
    held: Vec<Intent<R>>,
    requests: u64,
}

/// An intention lock that is held.
pub(super) struct Intent<R> {
    pub(super) resource: R,
    pub(super) locker: Arc<LockerState>,
    pub(super) mode: Mode,
}

/// Returns the stripe of this thread.
pub(super) fn own_stripe() -> usize {
    thread::number() % STRIPES
}

impl<R: Resource> Intents<R> {
    pub(super) fn new(modes: ModeSet, is_whole: fn(&R) -> bool) -> Intents<R> {
        let stripe = |_| Padded(Mutex::new(Stripe { held: Vec::new(), requests: 0 }));
        Intents {
            modes,
            is_whole,
            stripes: (0..STRIPES).map(stripe).collect(),
            strong: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Returns whether a mode is an intent; else it is strong.
    pub(super) fn has(&self, mode: Mode) -> bool {
        self.modes.contains(mode)
    }

    /// Writes an intention lock into a stripe, unless a locker holds or wants a strong one.
    pub(super) fn grant(&self, ask: &NewRequest<'_, R>) -> bool {
        debug_assert!(
            self.has(ask.mode) && (self.is_whole)(ask.resource),
            "only intentions on wholes"
        );
        let mut stripe = self.latch(ask.locker.stripe);
        // Who has gone through this stripe before has counted itself before.
        let is_free = self.counter(ask.hash).load(Ordering::Acquire) == 0;
        let may = is_free && stripe.held.len() < IN_STRIPE_MAX;
        if may {
            let (resource, locker) = (ask.resource.clone(), Arc::clone(ask.locker));
            debug_assert!(stripe.find(ask.resource, ask.locker).is_none(), "a lock is held once");
            stripe.requests += 1;
            stripe.held.push(Intent { resource, locker, mode: ask.mode });
        }
        may
    }

    /// Changes an intention lock into another, if it is in the stripe still.
    pub(super) fn change(&self, ask: &NewRequest<'_, R>) -> bool {
        let mut stripe = self.latch(ask.locker.stripe);
        let Some(at) = stripe.find(ask.resource, ask.locker) else { return false };
        debug_assert!(self.has(ask.mode), "only intentions are in a stripe");
        stripe.requests += 1;
        stripe.held[at].mode = ask.mode;
        true
    }

    /// Gives an intention lock up, if it is in the stripe still.
    pub(super) fn release(&self, resource: &R, locker: &Arc<LockerState>) -> bool {
        let mut stripe = self.latch(locker.stripe);
        let at = stripe.find(resource, locker);
        at.map(|at| stripe.held.swap_remove(at)).is_some()
    }

    /// Counts a strong request, and has the locks on `resource` moved out of the stripes by
    /// `adopt`, which is called while their stripe is latched.
    fn begin_strong(&self, hash: u64, resource: &R, adopt: impl Fn(&Intent<R>)) {
        debug_assert!((self.is_whole)(resource), "only on wholes an intention may be in the way");
        self.counter(hash).fetch_add(1, Ordering::Relaxed);
        for number in 0..STRIPES {
            self.latch(number).held.retain(|intent| {
                let stays = intent.resource != *resource;
                if !stays {
                    adopt(intent);
                }
                stays
            });
        }
    }

    /// Records that a strong lock was given up, or the request for it.
    pub(super) fn end_strong(&self, hash: u64) {
        // Who sees 0 sees what its holder did.
        let before = self.counter(hash).fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "a strong request is taken back once");
    }

    /// Calls `at` with every lock in the stripes, each seen at another moment.
    pub(super) fn look(&self, mut at: impl FnMut(&Intent<R>)) {
        for number in 0..STRIPES {
            self.latch(number).held.iter().for_each(&mut at);
        }
    }

    pub(super) fn loads(&self) -> impl Iterator<Item = Load> {
        (0..STRIPES).map(|number| {
            let stripe = self.latch(number);
            Load { requests: stripe.requests, held: stripe.held.len() as u64, waiting: 0 }
        })
    }

    fn latch(&self, number: usize) -> MutexGuard<'_, Stripe<R>> {
        self.stripes[number % STRIPES].0.lock()
    }

    fn counter(&self, hash: u64) -> &AtomicU32 {
        #[expect(clippy::cast_possible_truncation, reason = "the remainder is of the lowest bits")]
        let at = hash as usize % COUNTERS;
        &self.strong[at]
    }
}

impl<R: Eq> Stripe<R> {
    /// Finds a lock of a locker. The last taken is the first to be released.
    fn find(&self, resource: &R, locker: &Arc<LockerState>) -> Option<usize> {
        let is_it = |intent: &Intent<R>| {
            Arc::ptr_eq(&intent.locker, locker) && intent.resource == *resource
        };
        self.held.iter().rposition(is_it)
    }
}

/// How much a bucket or a stripe holds, and has been asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) requests: u64,
    pub(super) held: u64,
    pub(super) waiting: u64,
}

#[cfg(test)]
mod bucket_tests {
    use std::mem::size_of;

    use super::super::modes::multi_granularity::{IS, S, X};
    use super::super::queues::LockerId;
    use super::super::{ModeTable, Priorities, Priority};
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
        let mut bucket = Bucket::new(BucketNumber::new(0, 0));
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
        let mut bucket = Bucket::new(BucketNumber::new(0, 0));
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
mod intent_tests {
    use std::time::Duration;

    use super::super::multi_granularity::{IS, IX, S, SIX, X};
    use super::super::{
        Hierarchy, LockError, LockManager, LockSettings, Locker, ModeTable, Priority, Wait,
    };

    type Table = std::sync::Arc<LockManager<&'static str>>;

    fn table() -> Table {
        let hierarchy = Hierarchy { is_whole: |name: &&str| *name != "key", escalation: None };
        let modes = ModeTable::multi_granularity();
        LockManager::with_hierarchy(modes, LockSettings::default(), hierarchy)
    }

    fn locker(table: &Table) -> Locker<&'static str> {
        table.locker(Priority::default())
    }

    /// Locks in stripes.
    fn in_stripes(table: &Table) -> u64 {
        table.intents.loads().map(|load| load.held).sum()
    }

    #[test]
    fn the_intents_are_the_first_modes_that_go_together() {
        let modes = ModeTable::multi_granularity();
        let intents: Vec<_> =
            modes.modes().filter(|mode| modes.intents().contains(*mode)).collect();
        assert_eq!(intents, [IS, IX]);
    }

    #[test]
    fn only_intentions_on_wholes_are_in_stripes() {
        let table = table();
        let (mut one, mut other) = (locker(&table), locker(&table));
        for (resource, mode, held) in [("tree", IS, 1), ("key", IS, 1), ("store", IX, 2)] {
            assert_eq!(one.try_lock(&resource, mode), Ok(true));
            assert_eq!(in_stripes(&table), held, "{resource}");
        }
        assert_eq!(one.try_lock(&"tree", IX), Ok(true), "a conversion stays where it is");
        assert_eq!(in_stripes(&table), 2);
        assert_eq!(other.try_lock(&"tree", S), Ok(false));
        assert_eq!(in_stripes(&table), 1, "who asks for more sees what is held");
        assert_eq!(table.statistics().held, 3);
        one.release_all();
        assert_eq!((in_stripes(&table), table.dump()), (0, vec![]));
    }

    /// However a strong lock ends, or the request for one, intentions go to the stripes again.
    #[test]
    fn what_is_counted_is_taken_back() {
        type End = fn(&Table, &mut Locker<&'static str>);
        let ends: [(&str, End); 6] = [
            ("given up", |_, strong| {
                assert_eq!(strong.try_lock(&"tree", S), Ok(true));
                assert_eq!(strong.try_lock(&"tree", X), Ok(true));
                assert!(strong.unlock(&"tree"));
            }),
            ("all given up", |_, strong| {
                assert_eq!(strong.try_lock(&"tree", SIX), Ok(true));
                strong.release_all();
            }),
            ("for a moment", |_, strong| {
                strong.lock_instant(&"tree", X, Wait::AsSet).expect("nobody is there");
            }),
            ("back to an intention", |_, strong| {
                assert_eq!(strong.try_lock(&"tree", IS), Ok(true));
                strong.lock_instant(&"tree", X, Wait::AsSet).expect("nobody is there");
                assert_eq!(strong.held(&"tree"), Some(IS));
            }),
            ("refused", |table, strong| {
                let mut other = locker(table);
                assert_eq!(other.try_lock(&"tree", IX), Ok(true));
                assert_eq!(strong.try_lock(&"tree", X), Ok(false));
            }),
            ("too late", |table, strong| {
                let mut other = locker(table);
                assert_eq!(other.try_lock(&"tree", IX), Ok(true));
                assert_eq!(strong.try_lock(&"tree", IX), Ok(true));
                let wait = Wait::For(Duration::ZERO);
                assert_eq!(strong.lock(&"tree", X, wait), Err(LockError::TimedOut));
                assert_eq!(strong.held(&"tree"), Some(IX));
            }),
        ];
        for (name, end) in ends {
            let table = table();
            let (mut strong, mut next) = (locker(&table), locker(&table));
            end(&table, &mut strong);
            assert_eq!(next.try_lock(&"tree", IX), Ok(true), "{name}");
            assert_eq!(in_stripes(&table), 1, "{name}");
            drop((strong, next));
            assert_eq!((in_stripes(&table), table.dump()), (0, vec![]), "{name}");
        }
    }

    #[test]
    fn while_one_is_strong_intentions_are_in_the_bucket() {
        let table = table();
        let (mut strong, mut next) = (locker(&table), locker(&table));
        assert_eq!(strong.try_lock(&"tree", S), Ok(true));
        assert_eq!(next.try_lock(&"tree", IS), Ok(true));
        assert_eq!(next.try_lock(&"tree", IX), Ok(false));
        assert_eq!(in_stripes(&table), 0);
        assert_eq!(table.queue(&"tree").granted.len(), 2);
    }
}
