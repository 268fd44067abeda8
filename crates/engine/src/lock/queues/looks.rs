//! What can be seen of the queues: who waits for whom, and what is in a queue.

use std::hash::Hash;
use std::sync::Arc;

use super::{Head, NONE, Queues, Request, Rules};
use crate::lock::locker_state::{LockerId, LockerState, Place};
use crate::lock::modes::Mode;
use crate::lock::settings::Priority;

/// The requests for one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockQueue<R> {
    /// What is locked.
    pub resource: R,
    /// Who holds it; first who was first granted, but for intention locks on what contains others.
    pub granted: Vec<LockRequest>,
    /// Who waits for it; first who goes first.
    pub waiting: Vec<LockRequest>,
}

/// A request, for a look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Who asks.
    pub locker: LockerId,
    /// The mode held, or waited for.
    pub mode: Mode,
    /// For a conversion that waits: the mode held meanwhile.
    pub converts: Option<Mode>,
}

/// One wait, copied for the search for deadlocks.
#[derive(Clone, Debug)]
pub(in crate::lock) struct Waiting {
    pub(in crate::lock) locker: LockerId,
    pub(in crate::lock) place: Place,
    pub(in crate::lock) priority: Priority,
    /// Locks that the locker holds.
    pub(in crate::lock) locks: usize,
    /// Lockers it waits for that wait themselves. For some only a locker on the way to them: see
    /// [`ModeTable::waits_only_behind`](crate::lock::ModeTable).
    pub(in crate::lock) edges: Vec<Edge>,
}

/// That a locker waits for another one, which waits as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lock) struct Edge {
    pub(in crate::lock) to: LockerId,
    pub(in crate::lock) place: Place,
    /// It holds what is waited for; else it is only ahead in the queue.
    pub(in crate::lock) is_hard: bool,
}

impl<R: Eq + Hash + Clone> Queues<R> {
    /// All waits.
    pub(in crate::lock) fn waits(&self, rules: &Rules) -> Vec<Waiting> {
        if self.waiting == 0 {
            return Vec::new();
        }
        let queues = self.heads.iter().map(|(_, _, head)| head.queue);
        let requests = queues.flat_map(|queue| self.listed(queue));
        requests.filter_map(|(at, request)| self.wait(rules, at, request)).collect()
    }

    /// The wait of `locker` at index `at`; `None` if it is not there, or not any more.
    pub(in crate::lock) fn wait_at(
        &self,
        rules: &Rules,
        at: u32,
        locker: LockerId,
    ) -> Option<Waiting> {
        let request = self.waiting(at, locker)?;
        self.wait(rules, at, request)
    }

    pub(in crate::lock) fn is_waiting(&self, at: u32, locker: LockerId) -> bool {
        self.waiting(at, locker).is_some()
    }

    /// Whether the waiting request `at` waits for `locker`, by the rules of the queues.
    pub(in crate::lock) fn is_blocked_by(&self, rules: &Rules, at: u32, locker: LockerId) -> bool {
        self.blockers(rules, at).any(|blocker| blocker.id == locker)
    }

    /// Lockers below `priority` that the waiting request `at` waits for.
    pub(in crate::lock) fn blockers_below(
        &self,
        rules: &Rules,
        at: u32,
        priority: Priority,
    ) -> Vec<Arc<LockerState>> {
        let lower = self.blockers(rules, at).filter(|blocker| blocker.priority < priority);
        lower.map(Arc::clone).collect()
    }

    /// A locker of higher priority that waits for the one with the granted request `granted`.
    pub(in crate::lock) fn blocked_above(
        &self,
        rules: &Rules,
        granted: u32,
    ) -> Option<Arc<LockerState>> {
        let Request { head, ref locker, .. } = self.requests[granted as usize];
        let low = locker.as_ref()?;
        self.listed(self.heads[head].queue).find_map(|(at, request)| {
            let high = request.locker.as_ref()?;
            let is_above = high.priority > low.priority && self.is_blocked_by(rules, at, low.id);
            is_above.then(|| Arc::clone(high))
        })
    }

    /// All queues.
    pub(in crate::lock) fn queues(&self) -> impl Iterator<Item = LockQueue<R>> {
        self.heads.iter().map(|(_, resource, head)| self.queue(resource, head))
    }

    /// The queue of one resource, which is empty if nobody has locked it.
    pub(in crate::lock) fn queue_of(&self, hash: u64, resource: &R) -> LockQueue<R> {
        let head = self.heads.find(hash, resource).map(|head| self.heads[head]);
        self.queue(resource, &head.unwrap_or_default())
    }

    fn queue(&self, resource: &R, head: &Head) -> LockQueue<R> {
        let look = |(_, request): (u32, &Request)| {
            let converts = self.requests.get(request.converts as usize);
            let locker = request.locker.as_ref()?.id;
            Some(LockRequest { locker, mode: request.mode, converts: converts.map(|r| r.mode) })
        };
        LockQueue {
            resource: resource.clone(),
            granted: self.listed(head.granted).filter_map(look).collect(),
            waiting: self.listed(head.queue).filter_map(look).collect(),
        }
    }

    fn waiting(&self, at: u32, locker: LockerId) -> Option<&Request> {
        let request = self.requests.get(at as usize)?;
        let is_here = request.locker.as_ref().is_some_and(|found| found.id == locker);
        (is_here && !request.is_granted).then_some(request)
    }

    fn wait(&self, rules: &Rules, at: u32, request: &Request) -> Option<Waiting> {
        let locker = request.locker.as_ref()?;
        Some(Waiting {
            locker: locker.id,
            place: Place { bucket: self.number, request: at },
            priority: locker.priority,
            locks: locker.locks(),
            edges: self.edges(rules, request),
        })
    }

    /// Rules 1 to 3: everybody that the waiting request `at` waits for.
    fn blockers(&self, rules: &Rules, at: u32) -> impl Iterator<Item = &Arc<LockerState>> {
        let waiting = &self.requests[at as usize];
        let clashes = rules.modes.clashes(waiting.mode);
        let ahead = self
            .listed(self.heads[waiting.head].queue)
            .take_while(move |(other, _)| waiting.converts == NONE && *other != at)
            .filter(move |(_, request)| clashes.contains(request.mode))
            .filter_map(|(_, request)| request.locker.as_ref());
        self.holders_against(rules, waiting).chain(ahead)
    }

    /// Rule 1: holders of what `waiting` conflicts with.
    fn holders_against(
        &self,
        rules: &Rules,
        waiting: &Request,
    ) -> impl Iterator<Item = &Arc<LockerState>> {
        let conflicts = rules.modes.conflicts(waiting.mode);
        let own = waiting.locker.as_ref().map(|locker| locker.id);
        self.listed(self.heads[waiting.head].granted)
            .filter(move |(_, request)| conflicts.contains(request.mode))
            .filter_map(|(_, request)| request.locker.as_ref())
            .filter(move |holder| Some(holder.id) != own)
    }

    fn edges(&self, rules: &Rules, waiting: &Request) -> Vec<Edge> {
        let mut edges = Vec::new();
        let mut before = if waiting.converts == NONE { waiting.previous } else { NONE };
        while let Some(ahead) = self.requests.get(before as usize) {
            if rules.modes.clashes(waiting.mode).contains(ahead.mode) {
                edges.extend(ahead.locker.as_ref().and_then(|to| edge(to, false)));
                // In a long queue everybody waits for everybody before; the nearest leads to all.
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

/// The edge to a locker, if it waits.
fn edge(to: &Arc<LockerState>, is_hard: bool) -> Option<Edge> {
    Some(Edge { to: to.id, place: to.place()?, is_hard })
}
