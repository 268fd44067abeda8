//! After how long a transaction's permit stops counting against the limit.
//!
//! # Mechanism
//! A limit counts the transactions that the database works on. A few that work far longer than the
//! others (an analyst's query of a minute, a client that does not read its result) would otherwise
//! take all permits, and everybody would wait for them. A permit is *overdue* when it has counted,
//! without a break, for longer than
//!
//! ```text
//! patience = max(0.2 s, min(0.5 s, 40 · typical), 20 · typical time in the database)
//! ```
//!
//! which is 0.2 s where transactions take up to 5 ms, 0.5 s from 12.5 to 25 ms, and 20 times the
//! typical time above. An overdue permit may be *discounted*: it stays with its transaction, which
//! is never queued again, but it does not count against the limit any more. A transaction whose
//! client is idle is no case for this rule: its gate knows that it is idle, and its permit does
//! not count meanwhile.
//!
//! **The danger** is a collapse. When a database thrashes, every transaction becomes slow at once,
//! all permits are overdue, and letting more in makes it worse. Long holders and a
//! collapse differ in what ends beside them: beside holders transactions end as fast as ever, or
//! none ends, because the holders have all permits; in a collapse transactions go on ending,
//! slowly. So the typical time is the larger of two medians:
//!
//! - of the last 128 ends of any kind, which says what is normal here. Medians, because a single
//!   end of 25 s raises the mean of a hundred ends of 2 ms to 0.25 s and the patience to 5 s. At
//!   first the record holds 64 ends of zero seconds: where nothing has ended yet, transactions are
//!   believed to be short until as many have shown the contrary;
//! - of the ends in the last 0.2 s that were not overdue, 2 at least and 16 at most. A database
//!   that takes 20 times longer than a second ago shows it here long before half of the first
//!   record has been replaced.
//!
//! **Why 0.2 s.** Whoever comes behind holders waits for the patience of two rounds at most, so
//! this is what they are noticed by. It was 0.5 s, and a point select every 0.1 s beside eight
//! statements of 20 s that begin again and again waited for up to 0.6 s. Less than 0.1 s would take
//! the usual hiccup of a disk or a scheduler for holders. **Why 0.5 s for transactions of 12 ms or
//! more:** on a simulated machine that becomes forty times slower at once, those of 16 ms were
//! taken for holders after 0.32 s, before enough of them had ended slowly.
//!
//! **The bound.** At most 64 are discounted at once, and never more than the short ends in the
//! record exceed the long ones: what is taken for an exception has to be the minority. 64 is
//! the number of idle sessions beside which a PostgreSQL with its default of 100 connections still
//! has a third of them for work; where the rule is wrong, 64 is what the limit is exceeded by. The
//! caller also keeps the permits out, all together, within the highest limit that is allowed.
//!
//! **Rounds.** Those who are let in may be holders too. In one stall the least patience halves
//! with every round of discounts while somebody waits, down to a 16th (12.5 ms), so that a queue
//! full of holders takes about 0.4 s and not 0.2 s for every few of them. A stall is over when
//! 0.5 s have passed without a discount.
//!
//! # Example
//! Limit 4, transactions of 2 ms. Twelve sessions begin a statement of a minute. At 0.2 s four are
//! discounted and four let in, the next round follows at 0.3 s, and the last at 0.35 s. From then
//! on four permits are there for all others.
//!
//! Limit 64, and the database collapses from 10 ms to 2 s. In the first 0.4 s, which is the
//! patience until then, some 12 transactions end, the last 6 after 0.3 s in the median: the
//! patience is 6 s, and no permit is discounted. Later ends are slower, and the patience grows
//! faster than the ages.
//!
//! # Limits
//! - Where half of the ends are long, long is normal, and the patience is 20 times that.
//! - A database that stops for 0.2 s without two ends looks like holders: up to 64 too many are let
//!   in once, and as they return nobody follows them.
//! - When half of the transactions stay fast and the others collapse, these are taken for holders,
//!   up to the bound.
//!
//! Time is the caller's: durations since an origin that stays the same.

use std::time::Duration;

/// A permit is never overdue earlier, unless somebody waits in a stall.
const PATIENCE_MIN: Duration = Duration::from_nanos(PATIENCE_MIN_NS);
const PATIENCE_MIN_NS: u64 = 200_000_000;

/// Times the typical time in the database.
const PATIENCE_FACTOR: u32 = 20;

/// A patience of up to this is so many times the typical time. A stall is over after as long.
const DOUBTFUL_MAX: Duration = Duration::from_millis(500);
const DOUBTFUL_FACTOR: u32 = 40;

/// Ends that say what is normal.
const ENDS: usize = 128;

/// Ends of zero seconds that stand in for those that have not been seen yet.
const PRIOR: usize = 64;

/// Ends that say how the database is doing now, at most and at least.
const RECENT: usize = 16;
const RECENT_MIN: usize = 2;

/// Permits that may be discounted at once.
const DISCOUNTED_MAX: u32 = 64;

/// The least patience is never less than its beginning through 2 to this power.
const HALVINGS_MAX: u32 = 4;

/// Tells when a permit stops counting against the limit, from how long permits counted.
#[derive(Clone, Debug)]
pub struct OverdueRule {
    ends: Ring<Duration, ENDS>,
    /// Ends that were not overdue: when, and after how long.
    recent: Ring<(Duration, Duration), RECENT>,
    /// Rounds of discounts in the present stall, and the last one's time.
    rounds: u32,
    last_round: Option<Duration>,
}

impl OverdueRule {
    /// No permit is overdue earlier than this, whatever has passed.
    pub const PATIENCE_LEAST: Duration = Duration::from_nanos(PATIENCE_MIN_NS >> HALVINGS_MAX);

    /// Returns the rule of a gate through which nothing has passed.
    #[must_use]
    pub fn new() -> OverdueRule {
        let mut ends = Ring::new();
        (0..PRIOR).for_each(|_| ends.push(Duration::ZERO));
        OverdueRule { ends, recent: Ring::new(), rounds: 0, last_round: None }
    }

    /// Records that a permit came back at `now`, after it had counted for `held` in all.
    pub fn record_end(&mut self, held: Duration, was_discounted: bool, now: Duration) {
        // The patience is looked up only where it can matter: this runs for each transaction.
        let is_overdue = was_discounted || held >= PATIENCE_MIN && held >= self.usual(now);
        self.ends.push(held);
        if !is_overdue {
            self.recent.push((now, held));
        }
    }

    /// Records that permits were discounted at `now` while somebody waited.
    pub fn record_round(&mut self, now: Duration) {
        self.rounds = if self.is_stalled(now) { self.rounds.saturating_add(1) } else { 1 };
        self.last_round = Some(now);
    }

    /// Returns how long a permit may count at `now` before it is overdue.
    #[must_use]
    pub fn patience(&self, somebody_waits: bool, now: Duration) -> Duration {
        let halvings = self.rounds.min(HALVINGS_MAX);
        let is_hurried = somebody_waits && self.is_stalled(now);
        let typical = self.typical(now);
        let usual = PATIENCE_MIN.max(typical.saturating_mul(DOUBTFUL_FACTOR).min(DOUBTFUL_MAX));
        let least = if is_hurried { usual / (1 << halvings) } else { usual };
        least.max(typical.saturating_mul(PATIENCE_FACTOR))
    }

    /// Returns how many permits may be discounted at once.
    #[must_use]
    pub fn discounted_max(&self, now: Duration) -> u32 {
        let usual = self.usual(now);
        let long = self.ends.iter().filter(|&&held| held >= usual).count();
        let short = self.ends.len() - long;
        let most = u32::try_from(short.saturating_sub(long));
        most.map_or(DISCOUNTED_MAX, |most| most.min(DISCOUNTED_MAX))
    }

    /// The patience where nobody is in a hurry.
    fn usual(&self, now: Duration) -> Duration {
        self.patience(false, now)
    }

    /// Whether the last round of discounts is so near that the next would belong to the same stall.
    fn is_stalled(&self, now: Duration) -> bool {
        self.last_round.is_some_and(|last| now.saturating_sub(last) <= DOUBTFUL_MAX)
    }

    /// How long transactions typically are in the database.
    fn typical(&self, now: Duration) -> Duration {
        let since = now.saturating_sub(PATIENCE_MIN);
        let mut recent: Vec<Duration> =
            self.recent.iter().filter(|end| end.0 >= since).map(|end| end.1).collect();
        let lately = if recent.len() < RECENT_MIN { None } else { median(&mut recent) };
        let mut ends: Vec<Duration> = self.ends.iter().copied().collect();
        median(&mut ends).max(lately).unwrap_or_default()
    }
}

impl Default for OverdueRule {
    fn default() -> OverdueRule {
        OverdueRule::new()
    }
}

/// The lower of the two middle ones where their number is even.
fn median(durations: &mut [Duration]) -> Option<Duration> {
    let middle = durations.len().checked_sub(1)? / 2;
    Some(*durations.select_nth_unstable(middle).1)
}

/// The last N that were pushed, in no particular order.
#[derive(Clone, Debug)]
struct Ring<T, const N: usize> {
    items: [T; N],
    next: usize,
    len: usize,
}

impl<T: Copy + Default, const N: usize> Ring<T, N> {
    fn new() -> Self {
        Ring { items: [T::default(); N], next: 0, len: 0 }
    }

    fn push(&mut self, item: T) {
        self.items[self.next] = item;
        self.next = (self.next + 1) % N;
        self.len = (self.len + 1).min(N);
    }

    fn len(&self) -> usize {
        self.len
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.items[..self.len].iter()
    }
}

#[cfg(test)]
mod tests;
