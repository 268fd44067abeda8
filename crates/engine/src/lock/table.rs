//! Where a lock is written down: in a bucket of the lock table, or in a stripe of intentions
//! (`intents`).
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

use std::hash::Hash;
use std::sync::Arc;

use tidegate_runtime::sync::MutexGuard;

use super::intents::{Intent, Intents};
use super::locker_state::{BucketNumber, LockerState, Woken};
use super::modes::Mode;
use super::queues::{
    Answer, Handle, IfBusy, LockQueue, LockRequest, NewRequest, Queues, Rules, Waiting,
};
use super::{LockManager, Resource};

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

/// How much a bucket or a stripe holds, and has been asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) requests: u64,
    pub(super) held: u64,
    pub(super) waiting: u64,
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use tidegate_runtime::sync::Mutex;

    use super::super::locker_state::LockerId;
    use super::super::modes::multi_granularity::{IS, S, X};
    use super::super::{ModeTable, Padded, Priorities, Priority};
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
