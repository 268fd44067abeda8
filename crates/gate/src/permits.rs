//! The permits that are out.
//!
//! Those that count against the limit are linked in the order of their grants, which is that of
//! their ages, so the oldest is found at once.

use std::time::Instant;

use slab::Slab;

use crate::queue::Class;

/// Tells a permit from every other one of its gate, also from those that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId(pub(crate) u64);

/// A permit that is out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    pub(crate) id: PermitId,
    pub(crate) class: Class,
    pub(crate) granted_at: Instant,
    /// Since when its transaction is at work: later, where it had to wait for a connection first.
    pub(crate) at_work_since: Instant,
    /// It does not count against the limit.
    pub(crate) is_discounted: bool,
    previous: Option<usize>,
    next: Option<usize>,
}

/// Permits out, with granted tickets.
///
/// - Every entry that is not discounted is in the line from `first` to `last`.
/// - `previous` and `next` of neighbours name each other; the ends of the line have none.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    out: Slab<Out>,
    first: Option<usize>,
    last: Option<usize>,
    discounted: u32,
    granted: u64,
}

impl Permits {
    /// Permits out, discounted or not.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.out.len()).unwrap_or(u32::MAX)
    }

    /// Permits that do not count against the limit.
    pub(crate) fn discounted(&self) -> u32 {
        self.discounted
    }

    /// Permits that count against the limit.
    pub(crate) fn counted(&self) -> u32 {
        self.len().saturating_sub(self.discounted)
    }

    /// Enters a permit; the key names it until it is taken out.
    pub(crate) fn grant(&mut self, class: Class, now: Instant) -> usize {
        self.granted += 1;
        let id = PermitId(self.granted);
        let (previous, next) = (None, None);
        let (granted_at, at_work_since, is_discounted) = (now, now, false);
        let entry = Out { id, class, granted_at, at_work_since, is_discounted, previous, next };
        let key = self.out.insert(entry);
        self.link(key);
        key
    }

    pub(crate) fn get(&self, key: usize) -> &Out {
        &self.out[key]
    }

    /// Takes a permit out.
    pub(crate) fn take(&mut self, key: usize) -> Out {
        if self.out[key].is_discounted {
            self.discounted -= 1;
        } else {
            self.unlink(key);
        }
        self.out.remove(key)
    }

    /// The permit serves another transaction from now on, which counts. Returns what it was.
    pub(crate) fn renew(&mut self, key: usize, now: Instant) -> Out {
        let before = self.out[key];
        if before.is_discounted {
            self.discounted -= 1;
        } else {
            self.unlink(key);
        }
        let entry = &mut self.out[key];
        (entry.is_discounted, entry.granted_at, entry.at_work_since) = (false, now, now);
        self.link(key);
        before
    }

    /// The permit that has been out longest of those that count.
    pub(crate) fn oldest_counted(&self) -> Option<(usize, &Out)> {
        self.first.map(|key| (key, &self.out[key]))
    }

    /// From now on the permit does not count.
    pub(crate) fn discount(&mut self, key: usize) {
        if !self.out[key].is_discounted {
            self.unlink(key);
            self.out[key].is_discounted = true;
            self.discounted += 1;
        }
    }

    /// The permit's transaction begins to work only now.
    pub(crate) fn begin_work(&mut self, key: usize, now: Instant) {
        self.out[key].at_work_since = now;
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
