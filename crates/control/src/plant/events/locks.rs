//! Strict two-phase locking: one FIFO queue for each item, and deadlocks found where they arise.
//!
//! The requests for an item form a list: first those granted, then those that wait, in order of
//! arrival. A request is granted at once if nobody waits before it and it agrees with all that are
//! granted, which only shared ones do. So the last of the list tells: it must be granted and
//! shared, or the list empty. Locks are given up all together, at the end.
//!
//! # Deadlock
//! Before a request waits, the transactions it would wait for are searched for the one that asks.
//! A transaction that waits for an item waits, in the end, for those that hold it. Those that wait
//! before it in the queue lead to the same holders, so they need no visit. The search goes from
//! item to holders to the items that these wait for. It suffices at blocking: when a lock passes
//! to the next in its queue, those behind wait for a transaction that they already waited behind.

use super::transactions::TransactionSlot;

/// No request, or no item.
const NONE: u32 = u32::MAX;

/// Whether others may hold the same lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockMode {
    /// Agrees with other shared locks.
    Shared,
    /// Agrees with none.
    Exclusive,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockAnswer {
    /// The lock is held now.
    Granted,
    /// The transaction waits; [`Locks::release`] of another will tell when it has the lock.
    Waits,
    /// Waiting would close a circle of transactions that wait for each other. Nothing was queued.
    Deadlock,
}

/// The list of requests for one item.
#[derive(Clone, Copy, Debug)]
struct ItemRequests {
    first: u32,
    last: u32,
    /// The last search that came by.
    searched: u64,
}

#[derive(Clone, Copy, Debug)]
struct LockClaim {
    item: u32,
    owner: TransactionSlot,
    previous: u32,
    next: u32,
    mode: LockMode,
    is_granted: bool,
}

/// The locks of one transaction.
#[derive(Clone, Copy, Debug)]
struct LockOwner {
    held: u32,
    /// The item it waits for.
    awaited: u32,
}

/// The lock manager. Transactions are known by their slots.
#[derive(Clone, Debug)]
pub(super) struct Locks {
    items: Vec<ItemRequests>,
    /// The requests of a slot are side by side, `per_owner` of them, in the order they were made.
    requests: Vec<LockClaim>,
    owners: Vec<LockOwner>,
    per_owner: u32,
    searches: u64,
    to_search: Vec<u32>,
}

impl Locks {
    /// Items 0 to `items` - 1, of which a transaction asks for at most `per_owner`.
    pub(super) fn new(items: u32, per_owner: u32) -> Locks {
        let item = ItemRequests { first: NONE, last: NONE, searched: 0 };
        Locks {
            items: vec![item; items as usize],
            requests: Vec::new(),
            owners: Vec::new(),
            per_owner,
            searches: 0,
            to_search: Vec::new(),
        }
    }

    /// Makes room for `slot`.
    pub(super) fn admit(&mut self, slot: TransactionSlot) {
        if slot.index() < self.owners.len() {
            return;
        }
        let slots = slot.index() + 1;
        self.owners.resize(slots, LockOwner { held: 0, awaited: NONE });
        let unused = LockClaim {
            item: NONE,
            owner: slot,
            previous: NONE,
            next: NONE,
            mode: LockMode::Shared,
            is_granted: false,
        };
        self.requests.resize(slots * self.per_owner as usize, unused);
    }

    /// The number of locks that `slot` holds.
    pub(super) fn held(&self, slot: TransactionSlot) -> u32 {
        self.owners[slot.index()].held
    }

    /// Whether `slot` waits for a lock.
    pub(super) fn waits(&self, slot: TransactionSlot) -> bool {
        self.owners[slot.index()].awaited != NONE
    }

    /// Whether `slot` holds a lock on `item`.
    pub(super) fn holds(&self, slot: TransactionSlot, item: u32) -> bool {
        if self.items[item as usize].first == NONE {
            return false;
        }
        let from = (slot.0 * self.per_owner) as usize;
        let held = &self.requests[from..from + self.held(slot) as usize];
        held.iter().any(|request| request.item == item)
    }

    /// `slot`, which does not hold `item` and waits for nothing, asks for it.
    pub(super) fn ask(&mut self, slot: TransactionSlot, item: u32, mode: LockMode) -> LockAnswer {
        let last = self.items[item as usize].last;
        let agrees = last == NONE || {
            let last = &self.requests[last as usize];
            last.is_granted && last.mode == LockMode::Shared && mode == LockMode::Shared
        };
        if agrees {
            self.append(slot, item, mode, true);
            self.owners[slot.index()].held += 1;
            return LockAnswer::Granted;
        }
        if self.closes_circle(slot, item) {
            return LockAnswer::Deadlock;
        }
        self.append(slot, item, mode, false);
        self.owners[slot.index()].awaited = item;
        LockAnswer::Waits
    }

    fn append(&mut self, slot: TransactionSlot, item: u32, mode: LockMode, is_granted: bool) {
        let id = slot.0 * self.per_owner + self.held(slot);
        let queue = &mut self.items[item as usize];
        let previous = std::mem::replace(&mut queue.last, id);
        if previous == NONE {
            queue.first = id;
        } else {
            self.requests[previous as usize].next = id;
        }
        self.requests[id as usize] =
            LockClaim { item, owner: slot, previous, next: NONE, mode, is_granted };
    }

    /// Whether one of those that `slot` would wait for at `item` waits for `slot`.
    fn closes_circle(&mut self, slot: TransactionSlot, item: u32) -> bool {
        if self.held(slot) == 0 {
            return false;
        }
        self.searches += 1;
        self.to_search.clear();
        self.items[item as usize].searched = self.searches;
        self.to_search.push(item);
        while let Some(item) = self.to_search.pop() {
            let mut id = self.items[item as usize].first;
            while id != NONE && self.requests[id as usize].is_granted {
                let holder = self.requests[id as usize].owner;
                if holder == slot {
                    return true;
                }
                let awaited = self.owners[holder.index()].awaited;
                if awaited != NONE && self.items[awaited as usize].searched != self.searches {
                    self.items[awaited as usize].searched = self.searches;
                    self.to_search.push(awaited);
                }
                id = self.requests[id as usize].next;
            }
        }
        false
    }

    /// `slot`, which waits for nothing, gives up all its locks. Those that have a lock because of
    /// it are appended to `unblocked`, in the order of the locks and their queues.
    pub(super) fn release(&mut self, slot: TransactionSlot, unblocked: &mut Vec<TransactionSlot>) {
        let from = slot.0 * self.per_owner;
        let held = std::mem::take(&mut self.owners[slot.index()].held);
        for id in from..from + held {
            let LockClaim { item, previous, next, .. } = self.requests[id as usize];
            self.unlink(item, previous, next);
            let first = self.items[item as usize].first;
            if previous == NONE && first != NONE && !self.requests[first as usize].is_granted {
                self.grant_from(first, unblocked);
            }
        }
    }

    fn unlink(&mut self, item: u32, previous: u32, next: u32) {
        match previous {
            NONE => self.items[item as usize].first = next,
            previous => self.requests[previous as usize].next = next,
        }
        match next {
            NONE => self.items[item as usize].last = previous,
            next => self.requests[next as usize].previous = previous,
        }
    }

    /// Grants the first request of a list and, if it is shared, the shared ones that follow it.
    fn grant_from(&mut self, first: u32, unblocked: &mut Vec<TransactionSlot>) {
        let mode = self.requests[first as usize].mode;
        let mut id = first;
        while id != NONE && self.requests[id as usize].mode == mode {
            let request = &mut self.requests[id as usize];
            request.is_granted = true;
            let owner = &mut self.owners[request.owner.index()];
            owner.held += 1;
            owner.awaited = NONE;
            unblocked.push(request.owner);
            if mode == LockMode::Exclusive {
                return;
            }
            id = request.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix64;

    /// A lock manager without cleverness: a list of (item, slot, mode) in order of arrival.
    #[derive(Default)]
    struct Naive {
        requests: Vec<(u32, u32, LockMode)>,
    }

    impl Naive {
        fn is_granted(&self, index: usize) -> bool {
            let (item, _, mode) = self.requests[index];
            let before = self.requests[..index].iter().filter(|before| before.0 == item);
            let mut before = before.peekable();
            before.peek().is_none()
                || (mode == LockMode::Shared && before.all(|before| before.2 == LockMode::Shared))
        }

        fn granted_to(&self, slot: u32) -> Vec<u32> {
            let all = self.requests.iter().enumerate();
            let mine = all.filter(|&(index, request)| request.1 == slot && self.is_granted(index));
            mine.map(|(_, request)| request.0).collect()
        }

        fn waiting(&self) -> Vec<u32> {
            let waiting = (0..self.requests.len()).filter(|&index| !self.is_granted(index));
            waiting.map(|index| self.requests[index].1).collect()
        }

        /// Everyone before in the queue of an item that `slot` waits for.
        fn waits_for(&self, slot: u32) -> Vec<u32> {
            let waiting = (0..self.requests.len())
                .filter(|&index| self.requests[index].1 == slot && !self.is_granted(index));
            waiting
                .flat_map(|index| {
                    let item = self.requests[index].0;
                    let before = self.requests[..index].iter().filter(move |r| r.0 == item);
                    before.map(|request| request.1)
                })
                .collect()
        }

        fn is_in_circle(&self, slot: u32) -> bool {
            let mut reached = self.waits_for(slot);
            let mut at = 0;
            while at < reached.len() {
                let more = self.waits_for(reached[at]);
                reached.extend(
                    more.into_iter().filter(|next| !reached.contains(next)).collect::<Vec<_>>(),
                );
                at += 1;
            }
            reached.contains(&slot)
        }
    }

    const SLOTS: u32 = 8;
    const ITEMS: u32 = 6;
    const PER_OWNER: u32 = 5;

    /// One random action on both: a request, or the end of a transaction.
    fn act(locks: &mut Locks, naive: &mut Naive, random: &mut SplitMix64) -> Option<LockAnswer> {
        let slot = TransactionSlot(random.next_below(SLOTS));
        let item = random.next_below(ITEMS);
        let mode = if random.next_chance(0.5) { LockMode::Shared } else { LockMode::Exclusive };
        let waiting = naive.waiting();
        if waiting.contains(&slot.0) {
            return None;
        }
        let held = naive.granted_to(slot.0);
        if random.next_chance(0.15) || held.len() == PER_OWNER as usize {
            naive.requests.retain(|request| request.1 != slot.0);
            let mut unblocked = Vec::new();
            locks.release(slot, &mut unblocked);
            let mut woken: Vec<u32> = unblocked.iter().map(|slot| slot.0).collect();
            woken.sort_unstable();
            let still = naive.waiting();
            let mut expected: Vec<u32> =
                waiting.into_iter().filter(|slot| !still.contains(slot)).collect();
            expected.sort_unstable();
            assert_eq!(woken, expected);
            return None;
        }
        assert_eq!(locks.holds(slot, item), held.contains(&item));
        if held.contains(&item) {
            return None;
        }
        naive.requests.push((item, slot.0, mode));
        let expected = if naive.is_granted(naive.requests.len() - 1) {
            LockAnswer::Granted
        } else if naive.is_in_circle(slot.0) {
            naive.requests.pop();
            LockAnswer::Deadlock
        } else {
            LockAnswer::Waits
        };
        assert_eq!(locks.ask(slot, item, mode), expected);
        Some(expected)
    }

    #[test]
    fn it_answers_like_a_naive_lock_manager() {
        let mut seen = [0; 3];
        for seed in 0..40 {
            let mut random = SplitMix64::new(seed);
            let mut locks = Locks::new(ITEMS, PER_OWNER);
            (0..SLOTS).for_each(|slot| locks.admit(TransactionSlot(slot)));
            let mut naive = Naive::default();
            for _ in 0..400 {
                match act(&mut locks, &mut naive, &mut random) {
                    Some(LockAnswer::Granted) => seen[0] += 1,
                    Some(LockAnswer::Waits) => seen[1] += 1,
                    Some(LockAnswer::Deadlock) => seen[2] += 1,
                    None => {}
                }
                for slot in 0..SLOTS {
                    let held = naive.granted_to(slot).len();
                    assert_eq!(locks.held(TransactionSlot(slot)) as usize, held, "seed {seed}");
                    assert_eq!(locks.waits(TransactionSlot(slot)), naive.waiting().contains(&slot));
                }
            }
        }
        assert!(seen.iter().all(|&count| count > 500), "{seen:?}");
    }

    /// A and B share x; C asks for x alone and D shares it behind C. B ends: nobody moves. A ends:
    /// C has it. C ends: D has it.
    #[test]
    fn a_shared_request_does_not_overtake_an_exclusive_one() {
        let mut locks = Locks::new(1, 1);
        let [a, b, c, d] = [0, 1, 2, 3].map(TransactionSlot);
        locks.admit(d);
        assert_eq!(locks.ask(a, 0, LockMode::Shared), LockAnswer::Granted);
        assert_eq!(locks.ask(b, 0, LockMode::Shared), LockAnswer::Granted);
        assert_eq!(locks.ask(c, 0, LockMode::Exclusive), LockAnswer::Waits);
        assert_eq!(locks.ask(d, 0, LockMode::Shared), LockAnswer::Waits);
        for (ends, unblocked) in [(b, vec![]), (a, vec![c]), (c, vec![d]), (d, vec![])] {
            let mut got = Vec::new();
            locks.release(ends, &mut got);
            assert_eq!(got, unblocked);
        }
    }
}
