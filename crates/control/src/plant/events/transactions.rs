//! The transactions inside the database: a slab whose places are used again.

use crate::SplitMix64;

/// The place of a transaction inside the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TransactionSlot(pub(super) u32);

impl TransactionSlot {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A transaction that was granted a permit.
#[derive(Clone, Debug)]
pub(super) struct SimulatedTransaction {
    /// Its class, of the classes of all phases.
    pub(super) class: u32,
    /// The step it is at, from 0.
    pub(super) step: u32,
    /// How often it was rolled back.
    pub(super) rollbacks: u32,
    /// Whether the slot holds a transaction now.
    pub(super) is_inside: bool,
    /// When its permit was granted, seconds.
    pub(super) granted_s: f64,
    /// Its permit does not count against the limit.
    pub(super) is_discounted: bool,
    /// Where its lock requests come from: the same after a rollback.
    seed: u64,
    /// The rest of its lock requests.
    pub(super) requests: SplitMix64,
}

impl SimulatedTransaction {
    /// Goes back to the first step.
    pub(super) fn restart(&mut self) {
        self.step = 0;
        self.requests = SplitMix64::new(self.seed);
    }
}

/// The transactions inside, and the free slots between them.
#[derive(Clone, Debug, Default)]
pub(super) struct TransactionTable {
    slots: Vec<SimulatedTransaction>,
    free: Vec<TransactionSlot>,
}

impl TransactionTable {
    /// A slot for a new transaction: the one left last, or a new one.
    pub(super) fn enter(&mut self, class: u32, granted_s: f64, seed: u64) -> TransactionSlot {
        let (step, rollbacks, is_inside, is_discounted) = (0, 0, true, false);
        let requests = SplitMix64::new(seed);
        let new = SimulatedTransaction {
            class,
            step,
            rollbacks,
            is_inside,
            granted_s,
            is_discounted,
            seed,
            requests,
        };
        if let Some(slot) = self.free.pop() {
            self.slots[slot.index()] = new;
            return slot;
        }
        let slot =
            TransactionSlot(u32::try_from(self.slots.len()).expect("fewer than 2^32 transactions"));
        self.slots.push(new);
        slot
    }

    /// The transaction of `slot` is done.
    pub(super) fn leave(&mut self, slot: TransactionSlot) {
        self.slots[slot.index()].is_inside = false;
        self.free.push(slot);
    }

    pub(super) fn get(&self, slot: TransactionSlot) -> &SimulatedTransaction {
        &self.slots[slot.index()]
    }

    pub(super) fn get_mut(&mut self, slot: TransactionSlot) -> &mut SimulatedTransaction {
        &mut self.slots[slot.index()]
    }

    /// Every transaction inside, with its slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TransactionSlot, &SimulatedTransaction)> {
        let slots = (0..).map(TransactionSlot).zip(&self.slots);
        slots.filter(|(_, transaction)| transaction.is_inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_asks_for_the_same_again() {
        let mut transactions = TransactionTable::default();
        let slot = transactions.enter(0, 0.0, 7);
        let mut draws = || {
            let transaction = transactions.get_mut(slot);
            transaction.restart();
            [(); 5].map(|()| transaction.requests.next_below(1_000_000))
        };
        assert_eq!(draws(), draws());
    }

    #[test]
    fn slots_are_used_again() {
        let mut transactions = TransactionTable::default();
        let [first, second, third] = [0.0, 1.0, 2.0].map(|at| transactions.enter(9, at, 1));
        transactions.leave(second);
        let inside: Vec<TransactionSlot> = transactions.iter().map(|(slot, _)| slot).collect();
        assert_eq!(inside, [first, third]);
        assert_eq!(transactions.enter(3, 4.0, 1), second);
        assert_eq!(transactions.get(second).class, 3);
        assert_eq!(transactions.enter(3, 5.0, 1), TransactionSlot(3));
    }
}
