//! Permits that stop counting against the limit, as those of a real gate do: by
//! [`OverdueRule`](crate::OverdueRule), looked at every 20 ms.

use std::time::Duration;

use crate::{Mpl, OverdueRule};

use super::EventsPlant;
use super::transactions::TransactionSlot;

/// How often the ages of the permits are looked at, seconds.
const TICK_S: f64 = 0.02;

/// The rule, and what has come of it.
#[derive(Clone, Debug)]
pub(super) struct Discounting {
    rule: OverdueRule,
    mpl_max: Mpl,
    discounted: u32,
    next_s: f64,
}

impl Discounting {
    /// Permits that do not count now.
    pub(super) fn discounted(&self) -> u32 {
        self.discounted
    }

    /// When the ages are looked at next, seconds.
    pub(super) fn next_s(&self) -> f64 {
        self.next_s
    }

    /// A permit came back.
    pub(super) fn ended(&mut self, held_s: f64, was_discounted: bool, now_s: f64) {
        self.discounted -= u32::from(was_discounted);
        self.rule.record_end(duration(held_s), was_discounted, duration(now_s));
    }
}

impl EventsPlant {
    /// Discounts permits that are out for long, with at most `mpl_max` out in all. Without this
    /// every permit counts, however old.
    #[must_use]
    pub fn with_discounts(mut self, mpl_max: Mpl) -> EventsPlant {
        let (rule, next_s) = (OverdueRule::new(), self.now_s + TICK_S);
        self.discounting = Some(Discounting { rule, mpl_max, discounted: 0, next_s });
        self
    }

    /// Returns how many permits are out now, discounted or not.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.running
    }

    /// Looks at the ages of the permits, and lets in who may follow.
    pub(super) fn discount(&mut self) {
        let somebody_waits = !self.waiting.is_empty();
        let Some(discounting) = &mut self.discounting else { return };
        discounting.next_s = self.now_s + TICK_S;
        let now = duration(self.now_s);
        let patience_s = discounting.rule.patience(somebody_waits, now).as_secs_f64();
        let room = discounting.mpl_max.get().saturating_sub(self.limit);
        let most = discounting.rule.discounted_max(now).min(room);
        let mut overdue: Vec<(f64, TransactionSlot)> = (self.transactions.iter())
            .filter(|(_, inside)| !inside.is_discounted)
            .filter(|(_, inside)| self.now_s - inside.granted_s >= patience_s)
            .map(|(slot, inside)| (inside.granted_s, slot))
            .collect();
        overdue.sort_by(|left, right| left.0.total_cmp(&right.0));
        overdue.truncate(most.saturating_sub(discounting.discounted) as usize);
        if overdue.is_empty() {
            return;
        }
        if somebody_waits {
            discounting.rule.record_round(now);
        }
        for (_, slot) in overdue {
            self.transactions.get_mut(slot).is_discounted = true;
            discounting.discounted += 1;
        }
        self.admit();
    }
}

fn duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

#[cfg(test)]
mod tests;
