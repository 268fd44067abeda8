//! Who holds how many permits: by class and quota, and by class over time.
//!
//! With [`Policy::Weights`](crate::Policy) the promise is a share of permits over time: a permit
//! that is held for a second costs its class one permit-second, divided by its weight. So shares
//! hold also where transactions of one class last longer than those of another, and where there are
//! fewer permits than classes. This is fair queueing with the use of permits as the virtual time:
//!
//! - each class has a *use*, permit-nanoseconds divided by weight, which grows while it holds
//!   permits that count;
//! - the class goes next whose use is least, with what the permits it has and one more are expected
//!   to cost: otherwise several permits that come free at once would all go to one class;
//! - a class is not paid back for time in which it did not wait: when it begins to wait, its use is
//!   raised to that of the class that went last, less [`CREDIT`] typical transactions, so that a
//!   class whose queue is empty for a moment loses nothing.
//!
//! Weights 1 and 3, one permit, transactions of 10 ms: after each the use is 10 (of the first
//! class), 0, 3.3, 6.7, 10 (of the second), so the second goes three times and then the first.
//!
//! All of it is in whole numbers, and brought up to date only when it changes or is asked for.

use std::time::{Duration, Instant};

use crate::classes::{ClassId, Classes, PermitBounds, Quotas};

/// The use of a permit-nanosecond by the class with the lowest weight.
const SCALE: u64 = 1 << 32;

/// Typical transactions of the lowest weight for which a class is paid back after a pause.
pub(crate) const CREDIT: u64 = 10;

/// What a transaction is expected to hold its permit for while none has ended.
pub(crate) const FIRST_TYPICAL: Duration = Duration::from_millis(1);

/// The typical time follows each end by this part of the difference.
pub(crate) const TYPICAL_STEP: u64 = 16;

/// Returns a time in nanoseconds; one of more than 500 years as the highest number.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The permits of one class.
#[derive(Clone, Copy, Debug)]
struct ClassShare {
    bounds: PermitBounds,
    /// Permits that count.
    counted: u32,
    /// The use of a permit-nanosecond.
    price: u64,
    /// The use up to `until`.
    used: u128,
    until: Instant,
}

impl ClassShare {
    fn advance(&mut self, now: Instant) {
        self.used = self.used_at(now);
        self.until = now;
    }

    fn used_at(&self, now: Instant) -> u128 {
        let passed = nanos(now.saturating_duration_since(self.until));
        self.used + u128::from(passed) * u128::from(self.counted) * u128::from(self.price)
    }
}

/// The permits of those whom a quota bounds.
#[derive(Clone, Copy, Debug)]
struct QuotaShare {
    bounds: PermitBounds,
    counted: u32,
}

/// Permits that count, by class and by quota.
#[derive(Debug)]
pub(crate) struct Shares {
    classes: Vec<ClassShare>,
    quotas: Vec<QuotaShare>,
    /// The sum of all minima.
    minima: u64,
    /// What a transaction holds its permit for.
    typical: u64,
    /// The use of the class that went last, with what it was expected to cost.
    virtual_time: u128,
}

impl Shares {
    pub(crate) fn new(classes: &Classes, now: Instant) -> Shares {
        let share = |bounds| ClassShare { bounds, counted: 0, price: 0, used: 0, until: now };
        let mut shares = Shares {
            classes: classes.iter().map(|(_, class)| share(class.permits)).collect(),
            quotas: classes
                .quotas()
                .iter()
                .map(|&bounds| QuotaShare { bounds, counted: 0 })
                .collect(),
            minima: 0,
            typical: nanos(FIRST_TYPICAL),
            virtual_time: 0,
        };
        shares.configure(classes, now);
        shares
    }

    /// Goes on with the settings of `classes`, which are the same classes and quotas.
    pub(crate) fn configure(&mut self, classes: &Classes, now: Instant) {
        let weights = classes.iter().map(|(_, class)| u64::from(class.weight.get()));
        let lowest = weights.min().unwrap_or(1);
        for (share, (_, class)) in self.classes.iter_mut().zip(classes.iter()) {
            share.advance(now);
            share.price = SCALE * lowest / u64::from(class.weight.get());
            share.bounds = class.permits;
        }
        for (share, &bounds) in self.quotas.iter_mut().zip(classes.quotas()) {
            share.bounds = bounds;
        }
        self.minima = classes.minima();
    }

    /// Returns the number of permits of a class that count.
    pub(crate) fn counted(&self, class: ClassId) -> u32 {
        self.classes[class.index()].counted
    }

    /// Returns the permits that count and the bounds of all that bound such a transaction.
    fn bounds(
        &self,
        class: ClassId,
        quotas: Quotas,
    ) -> impl Iterator<Item = (u32, PermitBounds)> + '_ {
        let class = &self.classes[class.index()];
        let of_quotas = quotas.into_iter().flatten().map(|quota| {
            let QuotaShare { counted, bounds } = self.quotas[quota.index()];
            (counted, bounds)
        });
        std::iter::once((class.counted, class.bounds)).chain(of_quotas)
    }

    /// Returns whether one more of them may count.
    pub(crate) fn has_room(&self, class: ClassId, quotas: Quotas) -> bool {
        let has_room =
            |(counted, bounds): (u32, PermitBounds)| bounds.max.is_none_or(|it| counted < it.get());
        self.bounds(class, quotas).all(has_room)
    }

    /// Returns whether they hold fewer permits than is promised to them at this limit.
    pub(crate) fn is_below_minimum(&self, class: ClassId, quotas: Quotas, limit: u32) -> bool {
        self.minima > 0
            && self.minima < u64::from(limit)
            && self.bounds(class, quotas).any(|(counted, bounds)| counted < bounds.min)
    }

    /// A permit of these begins to count.
    pub(crate) fn enter(&mut self, class: ClassId, quotas: Quotas, now: Instant) {
        let share = &mut self.classes[class.index()];
        share.advance(now);
        share.counted += 1;
        for quota in quotas.into_iter().flatten() {
            self.quotas[quota.index()].counted += 1;
        }
    }

    /// A permit of these counts no longer.
    pub(crate) fn leave(&mut self, class: ClassId, quotas: Quotas, now: Instant) {
        let share = &mut self.classes[class.index()];
        debug_assert!(share.counted > 0, "it has counted");
        share.advance(now);
        share.counted -= 1;
        for quota in quotas.into_iter().flatten() {
            self.quotas[quota.index()].counted -= 1;
        }
    }

    /// Learns for how long a permit was held.
    pub(crate) fn ended(&mut self, held: Duration) {
        let (held, typical) = (nanos(held), self.typical);
        self.typical = if held >= typical {
            typical + (held - typical) / TYPICAL_STEP
        } else {
            typical - (typical - held) / TYPICAL_STEP
        };
    }

    /// Returns the use of a class with what the permits it has and one more are expected to cost.
    pub(crate) fn use_with_one_more(&self, class: ClassId, now: Instant) -> u128 {
        let share = &self.classes[class.index()];
        share.used_at(now) + self.expected_cost(share)
    }

    fn expected_cost(&self, share: &ClassShare) -> u128 {
        u128::from(share.counted + 1) * u128::from(self.typical) * u128::from(share.price)
    }

    /// A class begins to wait, or is about to go by the policy: more than its credit is forgotten.
    pub(crate) fn forget_credit(&mut self, class: ClassId, now: Instant) {
        let credit = u128::from(CREDIT) * u128::from(self.typical) * u128::from(SCALE);
        let expected = self.expected_cost(&self.classes[class.index()]);
        let least = self.virtual_time.saturating_sub(credit).saturating_sub(expected);
        let share = &mut self.classes[class.index()];
        share.advance(now);
        share.used = share.used.max(least);
    }

    /// A class goes by the policy, or at once.
    pub(crate) fn goes(&mut self, class: ClassId, now: Instant) {
        self.virtual_time = self.virtual_time.max(self.use_with_one_more(class, now));
    }

    /// Checks that the permits of all classes are those that count.
    pub(crate) fn check(&self, counted: u32) {
        let sum: u32 = self.classes.iter().map(|share| share.counted).sum();
        debug_assert_eq!(sum, counted, "each permit that counts is one of its class");
    }
}
