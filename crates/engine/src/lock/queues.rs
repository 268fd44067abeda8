//! The queues of one bucket of the lock table, and the rules by which they move. No threads, no
//! latches, no time.
//!
//! A resource that is here has a head. A head has a list of granted requests and a
//! queue of waiting ones. Who holds a lock and waits for a stronger one has a request in each.
//!
//! # Rules
//! 1. A request waits for every other locker that holds a mode it conflicts with.
//! 2. A conversion, by a locker that already holds the resource, waits for nobody else.
//! 3. A new request also waits for every waiting request ahead of it that it clashes with: it could
//!    not be beside it, whichever came first.
//! 4. The queue is in order of arrival, conversions ahead of new requests. With
//!    [`Priorities::PreemptOnWait`] each of the two parts is in order of priority first.
//! 5. Whatever leaves, the queue is looked through once from its head, and everything that waits
//!    for nobody is granted.
//!
//! So nobody overtakes a request that it would delay, and nobody waits for one that it goes with:
//! IS passes an IX that waits for a reader to end. A conversion that waited for another conversion
//! would be a deadlock whenever its own lock is what the other waits for, and nothing else than
//! unfair if not; a locker converts a few times at most, so nobody starves.
//!
//! # Memory
//! Heads, requests and counters are slots in vectors, used again when they are free. They never
//! shrink.

pub(super) mod looks;

use std::hash::Hash;
use std::sync::Arc;

pub(super) use looks::Waiting;
pub use looks::{LockQueue, LockRequest};

use super::hash_slab::{HashSlab, NONE, last_index};
use super::locker_state::{LockerId, LockerState, Outcome, Place, Woken};
use super::modes::{Mode, ModeSet, ModeTable};
use super::settings::{Priorities, Priority};

/// What decides who waits for whom.
pub(super) struct Rules {
    pub(super) modes: ModeTable,
    pub(super) priorities: Priorities,
}

/// A request for a resource that its locker does not hold.
pub(super) struct Ask<'a, R> {
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
    /// In a stripe of [`intents`](super::intents); perhaps it has moved to the queues since.
    Stripe,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Granted(Handle),
    /// With its index.
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
    number: u32,
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
    pub(super) fn new(number: u32) -> Queues<R> {
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

    /// Whether nobody has locked anything here.
    pub(super) fn is_empty(&self) -> bool {
        self.heads.len() == 0
    }

    /// Locks held, and requests that wait.
    pub(super) fn load(&self) -> (u64, u64) {
        (self.held, self.waiting)
    }

    /// Whether somebody has locked `resource`.
    pub(super) fn has(&self, hash: u64, resource: &R) -> bool {
        self.heads.find(hash, resource).is_some()
    }

    /// The granted request of a locker, if it has one here.
    pub(super) fn granted_to(&self, hash: u64, resource: &R, locker: LockerId) -> Option<u32> {
        let head = self.heads.find(hash, resource)?;
        let is_its = |request: &Request| request.locker.as_ref().is_some_and(|l| l.id == locker);
        let mut granted = self.listed(self.heads[head].granted);
        granted.find(|(_, request)| is_its(request)).map(|(at, _)| at)
    }

    /// Takes over a lock that is held already, beside which all that is here goes.
    pub(super) fn adopt(&mut self, rules: &Rules, lock: &Ask<'_, R>) {
        let head = self.head_of(rules, lock);
        let request = self.new_request(lock.locker, head, lock.mode, NONE);
        self.hold(rules, request);
    }

    /// Asks for a resource that the locker does not hold.
    pub(super) fn ask(&mut self, rules: &Rules, ask: &Ask<'_, R>) -> Answer {
        let head = self.head_of(rules, ask);
        if self.admits_new(rules, head, ask.mode, ask.locker.priority) {
            let request = self.new_request(ask.locker, head, ask.mode, NONE);
            self.hold(rules, request);
            return Answer::Granted(Handle::Request(request));
        }
        match ask.if_busy {
            IfBusy::Refuse => Answer::Refused,
            IfBusy::Queue => {
                let request = self.new_request(ask.locker, head, ask.mode, NONE);
                self.enqueue(rules, request);
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
        if self.admits_conversion(rules, granted, mode) {
            self.change_mode(rules, granted, mode);
            return Answer::Granted(Handle::Request(granted));
        }
        let Request { head, ref locker, .. } = self.requests[granted as usize];
        match (if_busy, locker.clone()) {
            (IfBusy::Queue, Some(locker)) => {
                let request = self.new_request(&locker, head, mode, granted);
                self.enqueue(rules, request);
                Answer::Waiting(request)
            }
            _ => Answer::Refused,
        }
    }

    /// Gives a granted request up.
    pub(super) fn release(&mut self, rules: &Rules, granted: u32, woken: &mut Woken) {
        let Request { head, mode, .. } = self.requests[granted as usize];
        self.heads[head].granted.unlink(&mut self.requests, granted);
        self.subtract(rules, head, Side::Granted, mode);
        self.held -= 1;
        self.vacate(granted);
        self.grant_waiting(rules, head, woken);
        if self.heads[head].granted.is_empty() {
            self.heads.remove(head);
        }
    }

    /// Takes a granted request back to a weaker mode.
    pub(super) fn weaken(&mut self, rules: &Rules, granted: u32, mode: Mode, woken: &mut Woken) {
        self.change_mode(rules, granted, mode);
        self.grant_waiting(rules, self.requests[granted as usize].head, woken);
    }

    /// Ends a wait without a grant; those behind may go.
    pub(super) fn dismiss(
        &mut self,
        rules: &Rules,
        waiting: u32,
        outcome: Outcome,
        woken: &mut Woken,
    ) {
        let head = self.requests[waiting as usize].head;
        self.dequeue(rules, waiting);
        if let Some(locker) = self.vacate(waiting) {
            locker.end_wait(outcome, woken);
        }
        self.grant_waiting(rules, head, woken);
    }

    /// Rules 1 and 3 for a request that is not in the queue yet.
    fn admits_new(&self, rules: &Rules, head: u32, mode: Mode, priority: Priority) -> bool {
        let head = &self.heads[head];
        !rules.modes.conflicts(mode).intersects(head.held)
            && (head.queue.is_empty()
                || !rules.modes.clashes(mode).intersects(self.ahead(rules, head, priority)))
    }

    /// The modes in the queue that a new request would stand behind.
    fn ahead(&self, rules: &Rules, head: &Head, priority: Priority) -> ModeSet {
        match rules.priorities {
            Priorities::Ignored => head.wanted,
            Priorities::PreemptOnWait => self
                .listed(head.queue)
                .take_while(|(_, request)| request.rank(rules) >= (false, priority))
                .fold(ModeSet::EMPTY, |modes, (_, request)| modes.with(request.mode)),
        }
    }

    /// Rules 1 and 2.
    fn admits_conversion(&self, rules: &Rules, granted: u32, mode: Mode) -> bool {
        let Request { head, mode: own, .. } = self.requests[granted as usize];
        let held = self.heads[head].held;
        let is_alone = self.counters[counter(rules, head, Side::Granted, own)] == 1;
        let held_by_others = if is_alone { held.without(own) } else { held };
        !rules.modes.conflicts(mode).intersects(held_by_others)
    }

    /// Rule 5.
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
                self.admits_conversion(rules, converts, mode)
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

    /// Rules 1 and 3 for a new request with `ahead` waiting before it.
    fn admits_behind(&self, rules: &Rules, head: u32, mode: Mode, ahead: ModeSet) -> bool {
        !rules.modes.conflicts(mode).intersects(self.heads[head].held)
            && !rules.modes.clashes(mode).intersects(ahead)
    }

    fn grant(&mut self, rules: &Rules, waiting: u32, woken: &mut Woken) {
        self.dequeue(rules, waiting);
        let Request { mode, converts, .. } = self.requests[waiting as usize];
        let locker = if converts == NONE {
            self.hold(rules, waiting);
            self.requests[waiting as usize].locker.clone()
        } else {
            self.change_mode(rules, converts, mode);
            self.vacate(waiting)
        };
        if let Some(locker) = locker {
            locker.end_wait(Outcome::Granted, woken);
        }
    }

    /// Makes a request that is in no list a granted one.
    fn hold(&mut self, rules: &Rules, at: u32) {
        let request = &mut self.requests[at as usize];
        request.is_granted = true;
        let (head, mode) = (request.head, request.mode);
        let list = &mut self.heads[head].granted;
        list.insert_after(list.last, &mut self.requests, at);
        self.add(rules, head, Side::Granted, mode);
        self.held += 1;
    }

    fn change_mode(&mut self, rules: &Rules, granted: u32, mode: Mode) {
        let Request { head, mode: before, .. } = self.requests[granted as usize];
        self.requests[granted as usize].mode = mode;
        self.subtract(rules, head, Side::Granted, before);
        self.add(rules, head, Side::Granted, mode);
    }

    /// Rule 4.
    fn enqueue(&mut self, rules: &Rules, at: u32) {
        let Request { head, mode, ref locker, .. } = self.requests[at as usize];
        if let Some(locker) = locker {
            locker.begin_wait(Place { bucket: self.number, request: at });
        }
        let rank = self.requests[at as usize].rank(rules);
        let mut before = self.heads[head].queue.last;
        while before != NONE && self.requests[before as usize].rank(rules) < rank {
            before = self.requests[before as usize].previous;
        }
        self.heads[head].queue.insert_after(before, &mut self.requests, at);
        self.add(rules, head, Side::Queue, mode);
        self.waiting += 1;
    }

    fn dequeue(&mut self, rules: &Rules, waiting: u32) {
        let Request { head, mode, .. } = self.requests[waiting as usize];
        self.heads[head].queue.unlink(&mut self.requests, waiting);
        self.subtract(rules, head, Side::Queue, mode);
        self.waiting -= 1;
    }

    /// The requests of a list in order, with their indices.
    fn listed(&self, list: List) -> impl Iterator<Item = (u32, &Request)> {
        let mut next = list.first;
        std::iter::from_fn(move || {
            let at = next;
            let request = self.requests.get(at as usize)?;
            next = request.next;
            Some((at, request))
        })
    }

    fn head_of(&mut self, rules: &Rules, ask: &Ask<'_, R>) -> u32 {
        if let Some(head) = self.heads.find(ask.hash, ask.resource) {
            return head;
        }
        let head = self.heads.insert(ask.hash, ask.resource.clone(), Head::default());
        let end = (head as usize + 1) * 2 * rules.modes.len();
        if self.counters.len() < end {
            self.counters.resize(end, 0);
        }
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

    fn vacate(&mut self, at: u32) -> Option<Arc<LockerState>> {
        let request = &mut self.requests[at as usize];
        request.next = self.vacant;
        self.vacant = at;
        request.locker.take()
    }

    fn add(&mut self, rules: &Rules, head: u32, side: Side, mode: Mode) {
        let counter = counter(rules, head, side, mode);
        self.counters[counter] += 1;
        let modes = self.heads[head].modes(side);
        *modes = modes.with(mode);
    }

    fn subtract(&mut self, rules: &Rules, head: u32, side: Side, mode: Mode) {
        let counter = counter(rules, head, side, mode);
        self.counters[counter] -= 1;
        if self.counters[counter] == 0 {
            let modes = self.heads[head].modes(side);
            *modes = modes.without(mode);
        }
    }
}

/// Where the counter of a mode is: two rows for each head.
fn counter(rules: &Rules, head: u32, side: Side, mode: Mode) -> usize {
    (head as usize * 2 + side as usize) * rules.modes.len() + mode.index()
}

impl Head {
    fn modes(&mut self, side: Side) -> &mut ModeSet {
        match side {
            Side::Granted => &mut self.held,
            Side::Queue => &mut self.wanted,
        }
    }
}

impl Request {
    /// Rule 4: higher goes first, and among equals who came first.
    fn rank(&self, rules: &Rules) -> (bool, Priority) {
        let priority = match (rules.priorities, &self.locker) {
            (Priorities::PreemptOnWait, Some(locker)) => locker.priority,
            _ => Priority::default(),
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
