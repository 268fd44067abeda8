//! The permits that are out.
//!
//! Those that count against the limit are linked in the order in which they began to count, so the
//! one that has counted longest is found at once.

use std::time::{Duration, Instant};

use slab::Slab;

use crate::classes::{ClassId, Classes, Quotas};
use crate::queue::CHECKED_MAX;
use crate::shares::Shares;

/// Tells a permit from every other one of its gate, also from those that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId(pub(crate) u64);

/// Names a permit among those that are out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PermitKey(usize);

/// Whether a permit that is out counts against the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PermitState {
    /// It counts.
    Counted,
    /// It does not count until its client sends something again: its client is idle.
    Lent { since: Instant },
    /// It does not count any more: it is overdue.
    Discounted,
}

/// A permit that is out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outstanding {
    pub(crate) id: PermitId,
    pub(crate) class: ClassId,
    pub(crate) quotas: Quotas,
    /// How long its transaction waited for it.
    pub(crate) in_queue: Duration,
    /// When it was granted, later by as long as it was lent.
    pub(crate) granted_at: Instant,
    /// Since when its transaction is at work: later, where it had to wait for a connection first,
    /// and later by as long as it was lent.
    pub(crate) at_work_since: Instant,
    /// When it last began to count, or to work.
    pub(crate) counts_since: Instant,
    /// It has been discounted, whatever it is now.
    pub(crate) was_discounted: bool,
    /// It is lent because its transaction has no connection.
    is_set_aside: bool,
    state: PermitState,
    previous: Option<usize>,
    next: Option<usize>,
}

impl Outstanding {
    /// Leaves the time for which it has been lent until `now` out of its times.
    fn leave_out_lent(&mut self, now: Instant) {
        if let PermitState::Lent { since } = self.state {
            let lent = now.saturating_duration_since(since);
            self.granted_at += lent;
            self.at_work_since += lent;
        }
    }
}

/// Permits out, with granted tickets.
///
/// - Every entry that counts is in the list from `first` to `last`, ordered by `counts_since`.
/// - `previous` and `next` of neighbours name each other; the ends of the list have none.
/// - `counted`, `lent` and `discounted` are the numbers of entries in that state; `set_aside` is
///   the number of those lent because they have no connection.
/// - The permits out are those granted and not returned.
/// - `shares` has those that count, by class and quota.
#[derive(Debug)]
pub(crate) struct Permits {
    pub(crate) shares: Shares,
    out: Slab<Outstanding>,
    first: Option<usize>,
    last: Option<usize>,
    counted: u32,
    lent: u32,
    set_aside: u32,
    discounted: u32,
    granted: u64,
    returned: u64,
}

impl Permits {
    pub(crate) fn new(classes: &Classes, now: Instant) -> Permits {
        Permits {
            shares: Shares::new(classes, now),
            out: Slab::new(),
            first: None,
            last: None,
            counted: 0,
            lent: 0,
            set_aside: 0,
            discounted: 0,
            granted: 0,
            returned: 0,
        }
    }

    /// Returns the number of permits out, whether they count or not.
    pub(crate) fn len(&self) -> u32 {
        self.counted + self.lent + self.discounted
    }

    /// Returns the number of permits out but for those set aside.
    pub(crate) fn not_set_aside(&self) -> u32 {
        self.len() - self.set_aside
    }

    /// Returns the number of permits that do not count because their clients are idle, or because
    /// they are set aside.
    pub(crate) fn lent(&self) -> u32 {
        self.lent
    }

    /// Returns the number of permits that do not count because they are overdue.
    pub(crate) fn discounted(&self) -> u32 {
        self.discounted
    }

    /// Returns the number of permits that count against the limit.
    pub(crate) fn counted(&self) -> u32 {
        self.counted
    }

    /// Adds a permit for a transaction that has waited for it. Returns its name.
    pub(crate) fn grant(
        &mut self,
        (class, quotas): (ClassId, Quotas),
        in_queue: Duration,
        now: Instant,
    ) -> PermitKey {
        self.granted += 1;
        let key = PermitKey(self.out.insert(Outstanding {
            id: PermitId(self.granted),
            class,
            quotas,
            in_queue,
            granted_at: now,
            at_work_since: now,
            counts_since: now,
            was_discounted: false,
            is_set_aside: false,
            state: PermitState::Counted,
            previous: None,
            next: None,
        }));
        self.link(key, now);
        key
    }

    pub(crate) fn get(&self, key: PermitKey) -> &Outstanding {
        &self.out[key.0]
    }

    /// Removes a permit that is given back. Returns what it was.
    pub(crate) fn take(&mut self, key: PermitKey, now: Instant) -> Outstanding {
        self.leave(key, now);
        self.returned += 1;
        let mut ended = self.out.remove(key.0);
        ended.leave_out_lent(now);
        ended
    }

    /// Lets a permit serve another transaction from now on, which counts. Returns what it was.
    pub(crate) fn renew(&mut self, key: PermitKey, now: Instant) -> Outstanding {
        self.leave(key, now);
        let entry = &mut self.out[key.0];
        let mut before = *entry;
        before.leave_out_lent(now);
        (entry.granted_at, entry.at_work_since) = (now, now);
        (entry.was_discounted, entry.in_queue) = (false, Duration::ZERO);
        self.count(key, now);
        before
    }

    /// Returns the permit that has counted longest.
    pub(crate) fn oldest_counted(&self) -> Option<(PermitKey, &Outstanding)> {
        self.first.map(|key| (PermitKey(key), &self.out[key]))
    }

    /// Lets a permit that counts count no longer, because it is overdue.
    pub(crate) fn discount(&mut self, key: PermitKey, now: Instant) {
        debug_assert_eq!(self.out[key.0].state, PermitState::Counted, "only these are overdue");
        self.leave(key, now);
        let entry = &mut self.out[key.0];
        (entry.state, entry.was_discounted) = (PermitState::Discounted, true);
        self.discounted += 1;
    }

    /// Lets a permit count no longer, because its client is idle.
    pub(crate) fn lend(&mut self, key: PermitKey, now: Instant) {
        debug_assert!(!self.is_lent(key), "a permit is lent once");
        self.leave(key, now);
        self.out[key.0].state = PermitState::Lent { since: now };
        self.lent += 1;
    }

    /// Lets a permit count no longer, because its transaction has no connection.
    pub(crate) fn set_aside(&mut self, key: PermitKey, now: Instant) {
        self.lend(key, now);
        self.out[key.0].is_set_aside = true;
        self.set_aside += 1;
    }

    /// Lets a permit that was lent count again.
    pub(crate) fn resume(&mut self, key: PermitKey, now: Instant) {
        debug_assert!(self.is_lent(key), "only a lent permit comes back");
        self.leave(key, now);
        self.out[key.0].leave_out_lent(now);
        self.count(key, now);
    }

    /// Notes that the permit's transaction begins to work only now: until here it was not overdue.
    pub(crate) fn begin_work(&mut self, key: PermitKey, now: Instant) {
        self.out[key.0].at_work_since = now;
        if self.out[key.0].state == PermitState::Counted {
            self.leave(key, now);
            self.count(key, now);
        }
    }

    /// Lets the age of every permit that counts begin anew, which keeps their order.
    pub(crate) fn restart_ages(&mut self, now: Instant) {
        let mut at = self.first;
        while let Some(key) = at {
            let entry = &mut self.out[key];
            entry.counts_since = now;
            at = entry.next;
        }
    }

    fn is_lent(&self, key: PermitKey) -> bool {
        matches!(self.out[key.0].state, PermitState::Lent { .. })
    }

    /// Removes a permit from the list and the number of its state.
    fn leave(&mut self, key: PermitKey, now: Instant) {
        match self.out[key.0].state {
            PermitState::Counted => self.unlink(key, now),
            PermitState::Lent { .. } => {
                self.lent -= 1;
                let was_set_aside = std::mem::take(&mut self.out[key.0].is_set_aside);
                self.set_aside -= u32::from(was_set_aside);
            }
            PermitState::Discounted => self.discounted -= 1,
        }
    }

    /// Counts a permit that is in no list and no number.
    fn count(&mut self, key: PermitKey, now: Instant) {
        let entry = &mut self.out[key.0];
        (entry.state, entry.counts_since) = (PermitState::Counted, now);
        self.link(key, now);
    }

    fn link(&mut self, PermitKey(key): PermitKey, now: Instant) {
        debug_assert!(self.last.is_none_or(|last| {
            self.out[last].counts_since <= self.out[key].counts_since && last != key
        }));
        self.counted += 1;
        self.shares.enter(self.out[key].class, self.out[key].quotas, now);
        (self.out[key].previous, self.out[key].next) = (self.last, None);
        match self.last.replace(key) {
            Some(last) => self.out[last].next = Some(key),
            None => self.first = Some(key),
        }
    }

    fn unlink(&mut self, PermitKey(key): PermitKey, now: Instant) {
        let Outstanding { previous, next, class, quotas, .. } = self.out[key];
        self.counted -= 1;
        self.shares.leave(class, quotas, now);
        debug_assert_eq!(previous.is_none(), self.first == Some(key), "the first has none before");
        debug_assert_eq!(next.is_none(), self.last == Some(key), "the last has none behind");
        match previous {
            Some(previous) => self.out[previous].next = next,
            None => self.first = next,
        }
        match next {
            Some(next) => self.out[next].previous = previous,
            None => self.last = previous,
        }
    }

    /// Checks the invariants of the type. The list is walked only while it is short.
    pub(crate) fn check(&self) {
        debug_assert_eq!(self.len() as usize, self.out.len(), "each permit is counted once");
        debug_assert_eq!(u64::from(self.len()), self.granted - self.returned, "one is lost");
        debug_assert!(self.set_aside <= self.lent, "who is set aside is lent");
        self.shares.check(self.counted);
        if cfg!(debug_assertions) && self.out.len() <= CHECKED_MAX {
            let next = |&key: &usize| self.out[key].next;
            let listed: Vec<usize> = std::iter::successors(self.first, next).collect();
            debug_assert_eq!(listed.len(), self.counted as usize, "the list holds all that count");
            debug_assert!(listed.iter().all(|&key| self.out[key].state == PermitState::Counted));
        }
    }
}
