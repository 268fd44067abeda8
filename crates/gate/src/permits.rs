//! The permits that are out.
//!
//! Those that count against the limit are linked in the order in which they began to count, so the
//! one that has counted longest is found at once.

use std::time::{Duration, Instant};

use slab::Slab;

use crate::queue::Class;

/// Tells a permit from every other one of its gate, also from those that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId(pub(crate) u64);

/// What a permit that is out is to the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It counts.
    Counted,
    /// It does not count until its client sends something again: its client is idle.
    Lent { since: Instant },
    /// It does not count any more: it is overdue.
    Discounted,
}

/// A permit that is out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    pub(crate) id: PermitId,
    pub(crate) class: Class,
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
    standing: Standing,
    previous: Option<usize>,
    next: Option<usize>,
}

impl Out {
    /// Leaves the time for which it has been lent until `now` out of its times.
    fn leave_out_lent(&mut self, now: Instant) {
        if let Standing::Lent { since } = self.standing {
            let lent = now.saturating_duration_since(since);
            self.granted_at += lent;
            self.at_work_since += lent;
        }
    }
}

/// Permits out, with granted tickets.
///
/// - Every entry that counts is in the line from `first` to `last`, ordered by `counts_since`.
/// - `previous` and `next` of neighbours name each other; the ends of the line have none.
/// - `lent` and `discounted` are the numbers of entries of that standing.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    out: Slab<Out>,
    first: Option<usize>,
    last: Option<usize>,
    lent: u32,
    discounted: u32,
    granted: u64,
}

impl Permits {
    /// Permits out, whether they count or not.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.out.len()).unwrap_or(u32::MAX)
    }

    /// Permits that do not count because their clients are idle.
    pub(crate) fn lent(&self) -> u32 {
        self.lent
    }

    /// Permits that do not count because they are overdue.
    pub(crate) fn discounted(&self) -> u32 {
        self.discounted
    }

    /// Permits that count against the limit.
    pub(crate) fn counted(&self) -> u32 {
        self.len().saturating_sub(self.discounted).saturating_sub(self.lent)
    }

    /// Enters a permit for a transaction that has waited for it; the key names it until it is taken
    /// out.
    pub(crate) fn grant(&mut self, class: Class, in_queue: Duration, now: Instant) -> usize {
        self.granted += 1;
        let key = self.out.insert(Out {
            id: PermitId(self.granted),
            class,
            in_queue,
            granted_at: now,
            at_work_since: now,
            counts_since: now,
            was_discounted: false,
            standing: Standing::Counted,
            previous: None,
            next: None,
        });
        self.link(key);
        key
    }

    pub(crate) fn get(&self, key: usize) -> &Out {
        &self.out[key]
    }

    /// Takes a permit out.
    pub(crate) fn take(&mut self, key: usize, now: Instant) -> Out {
        self.leave(key);
        let mut ended = self.out.remove(key);
        ended.leave_out_lent(now);
        ended
    }

    /// The permit serves another transaction from now on, which counts. Returns what it was.
    pub(crate) fn renew(&mut self, key: usize, now: Instant) -> Out {
        self.leave(key);
        let mut before = self.out[key];
        before.leave_out_lent(now);
        let entry = &mut self.out[key];
        (entry.granted_at, entry.at_work_since) = (now, now);
        (entry.was_discounted, entry.in_queue) = (false, Duration::ZERO);
        self.count(key, now);
        before
    }

    /// The permit that has counted longest.
    pub(crate) fn oldest_counted(&self) -> Option<(usize, &Out)> {
        self.first.map(|key| (key, &self.out[key]))
    }

    /// From now on the permit does not count, because it is overdue.
    pub(crate) fn discount(&mut self, key: usize) {
        if self.out[key].standing == Standing::Counted {
            self.leave(key);
            let entry = &mut self.out[key];
            (entry.standing, entry.was_discounted) = (Standing::Discounted, true);
            self.discounted += 1;
        }
    }

    /// From now on the permit does not count, because its client is idle.
    pub(crate) fn lend(&mut self, key: usize, now: Instant) {
        if !matches!(self.out[key].standing, Standing::Lent { .. }) {
            self.leave(key);
            self.out[key].standing = Standing::Lent { since: now };
            self.lent += 1;
        }
    }

    /// A permit that was lent counts again.
    pub(crate) fn resume(&mut self, key: usize, now: Instant) {
        if matches!(self.out[key].standing, Standing::Lent { .. }) {
            self.leave(key);
            self.out[key].leave_out_lent(now);
            self.count(key, now);
        }
    }

    /// The permit's transaction begins to work only now: until here it was not overdue.
    pub(crate) fn begin_work(&mut self, key: usize, now: Instant) {
        self.out[key].at_work_since = now;
        if self.out[key].standing == Standing::Counted {
            self.leave(key);
            self.count(key, now);
        }
    }

    /// Takes a permit out of the line or the number that its standing puts it in.
    fn leave(&mut self, key: usize) {
        match self.out[key].standing {
            Standing::Counted => self.unlink(key),
            Standing::Lent { .. } => self.lent -= 1,
            Standing::Discounted => self.discounted -= 1,
        }
    }

    /// Counts a permit that is in no line and no number.
    fn count(&mut self, key: usize, now: Instant) {
        let entry = &mut self.out[key];
        (entry.standing, entry.counts_since) = (Standing::Counted, now);
        self.link(key);
    }

    fn link(&mut self, key: usize) {
        (self.out[key].previous, self.out[key].next) = (self.last, None);
        match self.last.replace(key) {
            Some(last) => self.out[last].next = Some(key),
            None => self.first = Some(key),
        }
    }

    fn unlink(&mut self, key: usize) {
        let Out { previous, next, .. } = self.out[key];
        match previous {
            Some(previous) => self.out[previous].next = next,
            None => self.first = next,
        }
        match next {
            Some(next) => self.out[next].previous = previous,
            None => self.last = previous,
        }
    }
}
