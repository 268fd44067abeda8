//! The queues of one bucket of the lock table, and the rules by which they move. No threads, no
//! latches, no time.
//!
//! A resource that is here has a head. A head has a list of granted requests and a
//! queue of waiting ones. Who holds a lock and waits for a stronger one has a request in each.
//!
//! # Rules
//! 1. A request waits for every other locker that holds a mode it conflicts with.
//! 2. A conversion, by a locker that already holds the resource, waits for each conversion ahead of
//!    it that it clashes with, unless that one waits for what its own locker holds. It waits for no
//!    other request.
//! 3. A new request also waits for every waiting request ahead of it that it clashes with: it could
//!    not be beside it, whichever came first.
//! 4. The queue is in order of arrival, conversions ahead of new requests. With
//!    [`Priorities::PreemptOnWait`] each of the two parts is in order of priority first.
//! 5. Whatever leaves, the queue is looked through once from its head, and everything that waits
//!    for no locker is granted.
//!
//! So no request overtakes one that it would delay, and none waits for one that it is compatible
//! with: IS passes an IX that waits for a reader to end. A conversion that waited for one that
//! waits for its own lock would be a deadlock. But it must not pass others: where many read a list
//! in two steps and then write it, the victims of deadlocks begin again, and would pass those that
//! wait to write, for ever.
//!
//! # Memory
//! Heads, requests and counters are slots in vectors, used again when they are free. They never
//! shrink.

use std::hash::Hash;
use std::sync::Arc;

use super::locker_state::{BucketNumber, LockerId, LockerState, Outcome, RequestIndex, Woken};
use super::modes::{Mode, ModeSet, ModeTable};
use super::{Priorities, Priority};
use crate::hash_slab::{HashSlab, NONE, last_index};

/// What decides who waits for whom.
pub(super) struct Rules {
    pub(super) modes: ModeTable,
    pub(super) priorities: Priorities,
}

/// A request for a resource that its locker does not hold.
pub(super) struct NewRequest<'a, R> {
    pub(super) hash: u64,
    pub(super) resource: &'a R,
    pub(super) mode: Mode,
    pub(super) locker: &'a Arc<LockerState>,
    pub(super) if_busy: IfBusy,
}

/// What to do when a request cannot be granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfBusy {
    Queue,
    Refuse,
}

/// Where a granted lock was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handle {
    /// Among the requests of the queues; it stays there.
    Request(u32),
    /// In a place for sole locks; perhaps it has moved to the queues since.
    Sole,
    /// In a stripe of intentions; perhaps it has moved to the queues since.
    Stripe,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Granted(Handle),
    /// The request waits. The number is its index.
    Waiting(u32),
    Refused,
}

/// See the [module](self).
///
/// - A head has a granted request; when the last one goes, so does the head.
/// - A mode is in a head's set exactly when its counter is above 0.
/// - The first in a queue waits for a holder.
pub(super) struct Queues<R> {
    /// The number of the bucket.
    number: BucketNumber,
    heads: HashSlab<R, Head>,
    requests: Vec<Request>,
    /// The first vacant request; vacant ones are chained by `next`.
    vacant: u32,
    /// For each head two rows with a counter for each mode: granted and waiting requests.
    counters: Vec<u32>,
    held: u64,
    waiting: u64,
}

#[derive(Clone, Copy, Default)]
struct Head {
    granted: List,
    queue: List,
    /// Modes of the granted requests.
    held: ModeSet,
    /// Modes of the waiting requests.
    wanted: ModeSet,
}

/// Which of a head's two lists.
#[derive(Clone, Copy)]
enum Side {
    Granted,
    Queue,
}

struct Request {
    /// `None` where vacant.
    locker: Option<Arc<LockerState>>,
    head: u32,
    previous: u32,
    next: u32,
    /// For a conversion that waits: the granted request it is to strengthen.
    converts: u32,
    mode: Mode,
    is_granted: bool,
}

impl<R: Eq + Hash + Clone> Queues<R> {
    pub(super) fn new(number: BucketNumber) -> Queues<R> {
        Queues {
            number,
            heads: HashSlab::new(),
            requests: Vec::new(),
            vacant: NONE,
            counters: Vec::new(),
            held: 0,
            waiting: 0,
        }
    }

    /// Returns whether nothing is locked here.
    pub(super) fn is_empty(&self) -> bool {
        self.heads.len() == 0
    }

    /// Locks held, and requests that wait.
    pub(super) fn load(&self) -> (u64, u64) {
        (self.held, self.waiting)
    }

    /// Returns whether `resource` is locked.
    pub(super) fn has(&self, hash: u64, resource: &R) -> bool {
        self.heads.find(hash, resource).is_some()
    }

    /// Returns the granted request of a locker, if it has one here.
    pub(super) fn granted_to(&self, hash: u64, resource: &R, locker: LockerId) -> Option<u32> {
        let head = self.heads.find(hash, resource)?;
        let is_its = |request: &Request| request.locker().id == locker;
        let mut granted = self.listed(self.heads[head].granted);
        granted.find(|(_, request)| is_its(request)).map(|(at, _)| at)
    }

    /// Takes over a lock that is held already, beside which all that is here goes.
    pub(super) fn adopt(&mut self, rules: &Rules, lock: &NewRequest<'_, R>) {
        let head = self.head_of(rules, lock);
        let request = self.new_request(lock.locker, head, lock.mode, NONE);
        self.hold(rules, request);
        debug_assert!(self.is_sound(rules, head));
    }

    /// Asks for a resource that the locker does not hold.
    pub(super) fn ask(&mut self, rules: &Rules, ask: &NewRequest<'_, R>) -> Answer {
        let head = self.head_of(rules, ask);
        if self.admits_new(rules, head, ask.mode, ask.locker.priority) {
            let request = self.new_request(ask.locker, head, ask.mode, NONE);
            self.hold(rules, request);
            debug_assert!(self.is_sound(rules, head));
            return Answer::Granted(Handle::Request(request));
        }
        match ask.if_busy {
            IfBusy::Refuse => Answer::Refused,
            IfBusy::Queue => {
                let request = self.new_request(ask.locker, head, ask.mode, NONE);
                self.enqueue(rules, request);
                debug_assert!(self.is_sound(rules, head));
                Answer::Waiting(request)
            }
        }
    }

    /// Asks for `mode` instead of what the request `granted` holds.
    pub(super) fn strengthen(
        &mut self,
        rules: &Rules,
        granted: u32,
        mode: Mode,
        if_busy: IfBusy,
    ) -> Answer {
        if self.admits_conversion(rules, granted, mode, NONE) {
            self.change_mode(rules, granted, mode);
            debug_assert!(self.is_sound(rules, self.requests[granted as usize].head));
            return Answer::Granted(Handle::Request(granted));
        }
        if if_busy == IfBusy::Refuse {
            return Answer::Refused;
        }
        let own = &self.requests[granted as usize];
        let (head, locker) = (own.head, Arc::clone(own.locker()));
        let request = self.new_request(&locker, head, mode, granted);
        self.enqueue(rules, request);
        debug_assert!(self.is_sound(rules, head));
        Answer::Waiting(request)
    }

    /// Gives a granted request up.
    pub(super) fn release(&mut self, rules: &Rules, granted: u32, woken: &mut Woken) {
        let Request { head, mode, is_granted, .. } = self.requests[granted as usize];
        debug_assert!(is_granted, "only what is held is given up");
        self.heads[head].granted.unlink(&mut self.requests, granted);
        self.subtract(rules, head, Side::Granted, mode);
        self.held -= 1;
        self.vacate(granted);
        self.grant_waiting(rules, head, woken);
        if self.heads[head].granted.is_empty() {
            debug_assert!(self.heads[head].queue.is_empty(), "the first in a queue has a holder");
            self.heads.remove(head);
        } else {
            debug_assert!(self.is_sound(rules, head));
        }
    }

    /// Takes a granted request back to a weaker mode.
    pub(super) fn weaken(&mut self, rules: &Rules, granted: u32, mode: Mode, woken: &mut Woken) {
        self.change_mode(rules, granted, mode);
        let head = self.requests[granted as usize].head;
        self.grant_waiting(rules, head, woken);
        debug_assert!(self.is_sound(rules, head));
    }

    /// Ends a wait without a grant; those behind may go.
    pub(super) fn dismiss(
        &mut self,
        rules: &Rules,
        waiting: u32,
        outcome: Outcome,
        woken: &mut Woken,
    ) {
        let Request { head, is_granted, .. } = self.requests[waiting as usize];
        debug_assert!(!is_granted, "only a wait is ended");
        self.dequeue(rules, waiting);
        self.vacate(waiting).end_wait(outcome, woken);
        self.grant_waiting(rules, head, woken);
        debug_assert!(self.is_sound(rules, head));
    }

    /// Returns whether a head is as [`Queues`] says, for assertions.
    fn is_sound(&self, rules: &Rules, head: u32) -> bool {
        let Head { granted, queue, held, wanted } = self.heads[head];
        let side_is_sound = |list, side, modes: ModeSet| {
            rules.modes.modes().all(|mode| {
                let count = self.listed(list).filter(|(_, request)| request.mode == mode).count();
                let counted = self.counters[counter(rules, head, side, mode)] as usize;
                count == counted && modes.contains(mode) == (count > 0)
            })
        };
        let first_waits =
            self.requests.get(queue.first as usize).is_none_or(|first| !match first.converts {
                NONE => self.admits_behind(rules, head, first.mode, ModeSet::EMPTY),
                granted => self.admits_conversion(rules, granted, first.mode, queue.first),
            });
        !granted.is_empty()
            && side_is_sound(granted, Side::Granted, held)
            && side_is_sound(queue, Side::Queue, wanted)
            && first_waits
    }

    /// Returns whether a request that is not in the queue yet is granted (rules 1 and 3).
    fn admits_new(&self, rules: &Rules, head: u32, mode: Mode, priority: Priority) -> bool {
        let head = &self.heads[head];
        !rules.modes.conflicts(mode).intersects(head.held)
            && (head.queue.is_empty()
                || !rules.modes.clashes(mode).intersects(self.ahead(rules, head, priority)))
    }

    /// Returns the modes in the queue that a new request would stand behind.
    fn ahead(&self, rules: &Rules, head: &Head, priority: Priority) -> ModeSet {
        match rules.priorities {
            Priorities::Ignored => head.wanted,
            Priorities::PreemptOnWait => self
                .listed(head.queue)
                .take_while(|(_, request)| request.rank(rules) >= (false, priority))
                .fold(ModeSet::EMPTY, |modes, (_, request)| modes.with(request.mode)),
        }
    }

    /// Returns whether a conversion is granted (rules 1 and 2) that stands, or would stand, in
    /// front of the request `until`.
    fn admits_conversion(&self, rules: &Rules, granted: u32, mode: Mode, until: u32) -> bool {
        let Request { head, mode: own, .. } = self.requests[granted as usize];
        let held = self.heads[head].held;
        let is_alone = self.counters[counter(rules, head, Side::Granted, own)] == 1;
        let held_by_others = if is_alone { held.without(own) } else { held };
        !rules.modes.conflicts(mode).intersects(held_by_others)
            && self.conversions_against(rules, granted, mode, until).next().is_none()
    }

    /// Returns the conversions in front of the request `until` that the conversion of `granted` to
    /// `mode` waits for (rule 2).
    fn conversions_against(
        &self,
        rules: &Rules,
        granted: u32,
        mode: Mode,
        until: u32,
    ) -> impl Iterator<Item = &Request> {
        let own = &self.requests[granted as usize];
        let (clashes, held) = (rules.modes.clashes(mode), own.mode);
        // What is in no queue yet comes behind those of its rank.
        let rank = (true, own.rank(rules).1);
        self.listed(self.heads[own.head].queue)
            .take_while(move |(at, request)| {
                *at != until && request.converts != NONE && request.rank(rules) >= rank
            })
            .map(|(_, request)| request)
            .filter(move |ahead| {
                clashes.contains(ahead.mode) && !rules.modes.conflicts(ahead.mode).contains(held)
            })
    }

    /// Grants what waits for no other locker (rule 5).
    fn grant_waiting(&mut self, rules: &Rules, head: u32, woken: &mut Woken) {
        let mut ahead = ModeSet::EMPTY;
        let mut next = self.heads[head].queue.first;
        while next != NONE {
            let at = next;
            let Request { mode, converts, .. } = self.requests[at as usize];
            next = self.requests[at as usize].next;
            let is_admitted = if converts == NONE {
                self.admits_behind(rules, head, mode, ahead)
            } else {
                self.admits_conversion(rules, converts, mode, at)
            };
            if is_admitted {
                self.grant(rules, at, woken);
            } else if !ahead.contains(mode) {
                ahead = ahead.with(mode);
                // A long queue for one resource is not looked through in vain.
                let wanted = self.heads[head].wanted;
                let mut modes = rules.modes.modes().filter(|mode| wanted.contains(*mode));
                if converts == NONE
                    && !modes.any(|mode| self.admits_behind(rules, head, mode, ahead))
                {
                    return;
                }
            }
        }
    }

    /// Returns whether a new request with `ahead` waiting before it is granted (rules 1 and 3).
    fn admits_behind(&self, rules: &Rules, head: u32, mode: Mode, ahead: ModeSet) -> bool {
        !rules.modes.conflicts(mode).intersects(self.heads[head].held)
            && !rules.modes.clashes(mode).intersects(ahead)
    }

    fn grant(&mut self, rules: &Rules, waiting: u32, woken: &mut Woken) {
        self.dequeue(rules, waiting);
        let Request { mode, converts, .. } = self.requests[waiting as usize];
        let locker = if converts == NONE {
            self.hold(rules, waiting);
            Arc::clone(self.requests[waiting as usize].locker())
        } else {
            self.change_mode(rules, converts, mode);
            self.vacate(waiting)
        };
        locker.end_wait(Outcome::Granted, woken);
    }

    /// Makes a request that is in no list a granted one.
    fn hold(&mut self, rules: &Rules, at: u32) {
        let request = &mut self.requests[at as usize];
        debug_assert!(!request.is_granted && request.converts == NONE, "a request is granted once");
        request.is_granted = true;
        let (head, mode) = (request.head, request.mode);
        let list = &mut self.heads[head].granted;
        list.insert_after(list.last, &mut self.requests, at);
        self.add(rules, head, Side::Granted, mode);
        self.held += 1;
    }

    fn change_mode(&mut self, rules: &Rules, granted: u32, mode: Mode) {
        debug_assert!(self.requests[granted as usize].is_granted, "only what is held has a mode");
        let Request { head, mode: before, .. } = self.requests[granted as usize];
        self.requests[granted as usize].mode = mode;
        self.subtract(rules, head, Side::Granted, before);
        self.add(rules, head, Side::Granted, mode);
    }

    /// Puts a request into its queue (rule 4).
    fn enqueue(&mut self, rules: &Rules, at: u32) {
        let Request { head, mode, .. } = self.requests[at as usize];
        let place = RequestIndex { bucket: self.number, request: at };
        self.requests[at as usize].locker().begin_wait(place);
        let rank = self.requests[at as usize].rank(rules);
        let mut before = self.heads[head].queue.last;
        while before != NONE && self.requests[before as usize].rank(rules) < rank {
            before = self.requests[before as usize].previous;
        }
        debug_assert!(!self.requests[at as usize].is_granted, "a lock that is held is not queued");
        self.heads[head].queue.insert_after(before, &mut self.requests, at);
        self.add(rules, head, Side::Queue, mode);
        self.waiting += 1;
    }

    fn dequeue(&mut self, rules: &Rules, waiting: u32) {
        debug_assert!(self.waiting > 0, "a queue holds what is taken out of it");
        let Request { head, mode, .. } = self.requests[waiting as usize];
        self.heads[head].queue.unlink(&mut self.requests, waiting);
        self.subtract(rules, head, Side::Queue, mode);
        self.waiting -= 1;
    }

    /// Returns the requests of a list in order, with their indices.
    fn listed(&self, list: List) -> impl Iterator<Item = (u32, &Request)> {
        let mut next = list.first;
        std::iter::from_fn(move || {
            let at = next;
            let request = self.requests.get(at as usize)?;
            next = request.next;
            Some((at, request))
        })
    }

    fn head_of(&mut self, rules: &Rules, ask: &NewRequest<'_, R>) -> u32 {
        if let Some(head) = self.heads.find(ask.hash, ask.resource) {
            return head;
        }
        let head = self.heads.insert(ask.hash, ask.resource.clone(), Head::default());
        let end = (head as usize + 1) * 2 * rules.modes.len();
        if self.counters.len() < end {
            self.counters.resize(end, 0);
        }
        let own = &self.counters[end - 2 * rules.modes.len()..end];
        debug_assert!(own.iter().all(|count| *count == 0), "a new head has no requests");
        head
    }

    fn new_request(
        &mut self,
        locker: &Arc<LockerState>,
        head: u32,
        mode: Mode,
        converts: u32,
    ) -> u32 {
        let locker = Some(Arc::clone(locker));
        let request =
            Request { locker, head, previous: NONE, next: NONE, converts, mode, is_granted: false };
        let at = self.vacant;
        if at == NONE {
            self.requests.push(request);
            return last_index(&self.requests);
        }
        self.vacant = self.requests[at as usize].next;
        self.requests[at as usize] = request;
        at
    }

    fn vacate(&mut self, at: u32) -> Arc<LockerState> {
        let request = &mut self.requests[at as usize];
        debug_assert!(self.vacant != at, "a request is vacated once");
        request.next = self.vacant;
        self.vacant = at;
        request.locker.take().expect(NO_LOCKER)
    }

    fn add(&mut self, rules: &Rules, head: u32, side: Side, mode: Mode) {
        let counter = counter(rules, head, side, mode);
        self.counters[counter] += 1;
        let modes = self.heads[head].modes(side);
        *modes = modes.with(mode);
    }

    fn subtract(&mut self, rules: &Rules, head: u32, side: Side, mode: Mode) {
        let counter = counter(rules, head, side, mode);
        debug_assert!(self.counters[counter] > 0, "what is counted was counted before");
        self.counters[counter] -= 1;
        if self.counters[counter] == 0 {
            let modes = self.heads[head].modes(side);
            *modes = modes.without(mode);
        }
    }
}

/// Returns where the counter of a mode is: two rows for each head.
fn counter(rules: &Rules, head: u32, side: Side, mode: Mode) -> usize {
    (head as usize * 2 + side as usize) * rules.modes.len() + mode.row()
}

impl Head {
    fn modes(&mut self, side: Side) -> &mut ModeSet {
        match side {
            Side::Granted => &mut self.held,
            Side::Queue => &mut self.wanted,
        }
    }
}

/// What would be wrong if a request that is not vacant had no locker.
const NO_LOCKER: &str = "a request that is in a list has a locker";

impl Request {
    fn locker(&self) -> &Arc<LockerState> {
        self.locker.as_ref().expect(NO_LOCKER)
    }

    /// Returns the rank in a queue (rule 4): higher goes first, and among equals the one that came
    /// first.
    fn rank(&self, rules: &Rules) -> (bool, Priority) {
        let priority = match rules.priorities {
            Priorities::PreemptOnWait => self.locker().priority,
            Priorities::Ignored => Priority::default(),
        };
        (self.converts != NONE, priority)
    }
}

/// A list of requests, linked by index.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> List {
        List { first: NONE, last: NONE }
    }
}

impl List {
    fn is_empty(self) -> bool {
        self.first == NONE
    }

    /// Inserts behind `before`, or first if that is [`NONE`].
    fn insert_after(&mut self, before: u32, requests: &mut [Request], at: u32) {
        let after = if before == NONE { self.first } else { requests[before as usize].next };
        requests[at as usize].previous = before;
        requests[at as usize].next = after;
        self.connect(requests, before, at);
        self.connect(requests, at, after);
    }

    fn unlink(&mut self, requests: &mut [Request], at: u32) {
        let Request { previous, next, .. } = requests[at as usize];
        debug_assert_eq!(previous == NONE, self.first == at, "a request is in its list");
        debug_assert_eq!(next == NONE, self.last == at, "a request is in its list");
        self.connect(requests, previous, next);
    }

    /// Makes two requests neighbours; [`NONE`] is the end of the list.
    fn connect(&mut self, requests: &mut [Request], before: u32, after: u32) {
        match before {
            NONE => self.first = after,
            _ => requests[before as usize].next = after,
        }
        match after {
            NONE => self.last = before,
            _ => requests[after as usize].previous = before,
        }
    }
}

// What can be seen of the queues: who waits for whom, and what is in a queue.

/// The requests for one resource, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockQueue<R> {
    /// The resource that is locked.
    pub resource: R,
    /// Who holds it; first who was first granted, but for intention locks on what contains others.
    pub granted: Vec<LockRequest>,
    /// Who waits for it; first who goes first.
    pub waiting: Vec<LockRequest>,
}

/// A request, for a look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The locker that asks.
    pub locker: LockerId,
    /// The mode held, or waited for.
    pub mode: Mode,
    /// For a conversion that waits: the mode held meanwhile.
    pub converts: Option<Mode>,
}

/// One wait, copied for the search for deadlocks.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) locker: LockerId,
    pub(super) place: RequestIndex,
    pub(super) priority: Priority,
    /// Locks that the locker holds.
    pub(super) locks: usize,
    /// Lockers it waits for that wait themselves. For some only a locker on the way to them: see
    /// [`ModeTable::waits_only_behind`](crate::lock::ModeTable).
    pub(super) edges: Vec<Edge>,
}

/// That a locker waits for another one, which waits as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) to: LockerId,
    pub(super) place: RequestIndex,
    /// It holds what is waited for; else it is only ahead in the queue.
    pub(super) is_hard: bool,
}

impl<R: Eq + Hash + Clone> Queues<R> {
    /// Returns all waits.
    pub(super) fn waits(&self, rules: &Rules) -> Vec<Waiting> {
        if self.waiting == 0 {
            return Vec::new();
        }
        let queues = self.heads.iter().map(|(_, _, head)| head.queue);
        let requests = queues.flat_map(|queue| self.listed(queue));
        requests.map(|(at, request)| self.wait(rules, at, request)).collect()
    }

    /// Returns the wait of `locker` at index `at`; `None` if it is not there, or not any more.
    pub(super) fn wait_at(&self, rules: &Rules, at: u32, locker: LockerId) -> Option<Waiting> {
        self.waiting(at, locker).map(|request| self.wait(rules, at, request))
    }

    pub(super) fn is_waiting(&self, at: u32, locker: LockerId) -> bool {
        self.waiting(at, locker).is_some()
    }

    /// Returns whether the waiting request `at` waits for `locker`, by the rules of the queues.
    pub(super) fn is_blocked_by(&self, rules: &Rules, at: u32, locker: LockerId) -> bool {
        self.blockers(rules, at).any(|blocker| blocker.id == locker)
    }

    /// Lockers below `priority` that the waiting request `at` waits for.
    pub(super) fn blockers_below(
        &self,
        rules: &Rules,
        at: u32,
        priority: Priority,
    ) -> Vec<Arc<LockerState>> {
        let lower = self.blockers(rules, at).filter(|blocker| blocker.priority < priority);
        lower.map(Arc::clone).collect()
    }

    /// Returns a locker of higher priority that waits for the one with the granted request
    /// `granted`.
    pub(super) fn blocked_above(&self, rules: &Rules, granted: u32) -> Option<Arc<LockerState>> {
        let request = &self.requests[granted as usize];
        let low = request.locker();
        self.listed(self.heads[request.head].queue).find_map(|(at, request)| {
            let high = request.locker();
            let is_above = high.priority > low.priority && self.is_blocked_by(rules, at, low.id);
            is_above.then(|| Arc::clone(high))
        })
    }

    /// Returns all queues.
    pub(super) fn queues(&self) -> impl Iterator<Item = LockQueue<R>> {
        self.heads.iter().map(|(_, resource, head)| self.queue(resource, head))
    }

    /// Returns the queue of one resource, which is empty if the resource is not locked.
    pub(super) fn queue_of(&self, hash: u64, resource: &R) -> LockQueue<R> {
        let head = self.heads.find(hash, resource).map(|head| self.heads[head]);
        self.queue(resource, &head.unwrap_or_default())
    }

    fn queue(&self, resource: &R, head: &Head) -> LockQueue<R> {
        let look = |(_, request): (u32, &Request)| {
            let converts = self.requests.get(request.converts as usize);
            let locker = request.locker().id;
            LockRequest { locker, mode: request.mode, converts: converts.map(|r| r.mode) }
        };
        LockQueue {
            resource: resource.clone(),
            granted: self.listed(head.granted).map(look).collect(),
            waiting: self.listed(head.queue).map(look).collect(),
        }
    }

    fn waiting(&self, at: u32, locker: LockerId) -> Option<&Request> {
        let request = self.requests.get(at as usize)?;
        let is_here = request.locker.as_ref().is_some_and(|found| found.id == locker);
        (is_here && !request.is_granted).then_some(request)
    }

    fn wait(&self, rules: &Rules, at: u32, request: &Request) -> Waiting {
        let locker = request.locker();
        Waiting {
            locker: locker.id,
            place: RequestIndex { bucket: self.number, request: at },
            priority: locker.priority,
            locks: locker.locks(),
            edges: self.edges(rules, at, request),
        }
    }

    /// Returns all lockers that the waiting request `at` waits for (rules 1 to 3).
    fn blockers(&self, rules: &Rules, at: u32) -> impl Iterator<Item = &Arc<LockerState>> {
        let waiting = &self.requests[at as usize];
        let clashes = rules.modes.clashes(waiting.mode);
        let conversions = self.conversions_ahead(rules, at).map(Request::locker);
        let ahead = self
            .listed(self.heads[waiting.head].queue)
            .take_while(move |(other, _)| waiting.converts == NONE && *other != at)
            .filter(move |(_, request)| clashes.contains(request.mode))
            .map(|(_, request)| request.locker());
        self.holders_against(rules, waiting).chain(ahead).chain(conversions)
    }

    /// Returns the conversions that the waiting request `at` waits for, if it is one (rule 2).
    fn conversions_ahead(&self, rules: &Rules, at: u32) -> impl Iterator<Item = &Request> {
        let Request { mode, converts, .. } = self.requests[at as usize];
        let granted = (converts != NONE).then_some(converts).into_iter();
        granted.flat_map(move |granted| self.conversions_against(rules, granted, mode, at))
    }

    /// Returns the holders of modes that `waiting` conflicts with (rule 1).
    fn holders_against(
        &self,
        rules: &Rules,
        waiting: &Request,
    ) -> impl Iterator<Item = &Arc<LockerState>> {
        let conflicts = rules.modes.conflicts(waiting.mode);
        let own = waiting.locker().id;
        self.listed(self.heads[waiting.head].granted)
            .filter(move |(_, request)| conflicts.contains(request.mode))
            .map(|(_, request)| request.locker())
            .filter(move |holder| holder.id != own)
    }

    fn edges(&self, rules: &Rules, at: u32, waiting: &Request) -> Vec<Edge> {
        let ahead = self.conversions_ahead(rules, at);
        let mut edges: Vec<Edge> = ahead.filter_map(|to| edge(to.locker(), false)).collect();
        let mut before = if waiting.converts == NONE { waiting.previous } else { NONE };
        while let Some(ahead) = self.requests.get(before as usize) {
            if rules.modes.clashes(waiting.mode).contains(ahead.mode) {
                edges.extend(edge(ahead.locker(), false));
                // In a long queue each request waits for all before it; the nearest leads to all.
                if ahead.converts == NONE && rules.modes.waits_only_behind(waiting.mode, ahead.mode)
                {
                    return edges;
                }
            }
            before = ahead.previous;
        }
        edges.extend(self.holders_against(rules, waiting).filter_map(|to| edge(to, true)));
        edges
    }
}

/// Returns the edge to a locker, if it waits.
fn edge(to: &Arc<LockerState>, is_hard: bool) -> Option<Edge> {
    Some(Edge { to: to.id, place: to.place()?, is_hard })
}
