//! Processors shared by all runnable transactions.
//!
//! With n runnable transactions and c processors each proceeds at the pace min(1, c/n). Switching
//! between them costs: every runnable transaction above c lengthens all work by the fraction
//! `overhead`, so that the pace is
//!
//! ```text
//! pace(n) = min(1, c/n) / (1 + overhead · max(0, n − c))
//! ```
//!
//! Service is exponential, so a transaction that has run for a while has as much ahead of it as one
//! that has just come. Hence no remaining times are kept: the next to finish is drawn, in
//! proportion to the rates, from the transactions that are runnable. Transactions with the same
//! mean service share a group, and within a group all are alike.

use super::place;
use super::transactions::TransactionSlot;

/// The processors of a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessorPool {
    pub(super) count: u32,
    /// Added work for each runnable transaction above `count`, as a fraction.
    pub(super) overhead: f64,
}

impl ProcessorPool {
    /// The pace of each of `runnable` transactions, as a share of a processor's speed.
    fn pace(self, runnable: u32) -> f64 {
        let share =
            if runnable > self.count { f64::from(self.count) / f64::from(runnable) } else { 1.0 };
        share / (1.0 + self.overhead * f64::from(runnable.saturating_sub(self.count)))
    }
}

/// Runnable transactions with the same mean service of a step.
#[derive(Clone, Debug)]
struct ServiceGroup {
    /// Steps per second on a processor of one's own.
    rate: f64,
    runnable: Vec<TransactionSlot>,
}

/// The transactions that have work for a processor.
#[derive(Clone, Debug)]
pub(super) struct Cpu {
    groups: Vec<ServiceGroup>,
    runnable: u32,
}

impl Cpu {
    /// No transaction yet; one group for each of `rates`, steps per second.
    pub(super) fn new(rates: &[f64]) -> Cpu {
        let groups =
            rates.iter().map(|&rate| ServiceGroup { rate, runnable: Vec::new() }).collect();
        Cpu { groups, runnable: 0 }
    }

    /// `slot` has a step's work to do.
    pub(super) fn enter(&mut self, group: usize, slot: TransactionSlot) {
        self.groups[group].runnable.push(slot);
        self.runnable += 1;
    }

    /// Steps finished per second on `processors`, all transactions together.
    pub(super) fn rate(&self, processors: ProcessorPool) -> f64 {
        if self.runnable == 0 { 0.0 } else { self.work() * processors.pace(self.runnable) }
    }

    /// Steps finished per second if each transaction had a processor of its own.
    fn work(&self) -> f64 {
        self.groups.iter().map(ServiceGroup::work).sum()
    }

    /// Takes out the transaction that finishes its work at `point`, uniform from [0, 1). There is
    /// one: where none has work, the rate is 0.
    pub(super) fn finish(&mut self, point: f64) -> TransactionSlot {
        let mut left = point * self.work();
        let mut found = None;
        for group in self.groups.iter_mut().filter(|group| !group.runnable.is_empty()) {
            let work = group.work();
            let chosen = place(left / work, group.runnable.len());
            found = Some((group, chosen));
            if left < work {
                break;
            }
            left -= work;
        }
        let (group, chosen) = found.expect("some transaction has work");
        self.runnable -= 1;
        group.runnable.swap_remove(chosen)
    }
}

impl ServiceGroup {
    fn work(&self) -> f64 {
        self.rate * self.runnable.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_follows_the_processors_and_the_overhead() {
        let table = [
            (2, 0.0, 1, 1.0),
            (2, 0.0, 2, 1.0),
            (2, 0.0, 8, 0.25),
            // Six too many lengthen the work by 60 %: 0.25/1.6.
            (2, 0.1, 8, 0.156_25),
            (4, 0.1, 4, 1.0),
        ];
        for (count, overhead, runnable, pace) in table {
            let got = ProcessorPool { count, overhead }.pace(runnable);
            assert!((got - pace).abs() < 1e-12, "{count} {overhead} {runnable}: {got}");
        }
    }

    /// Two at 1 step a second and three at 10: the slow ones have 2/32 of the finishes.
    #[test]
    fn who_finishes_is_drawn_in_proportion_to_the_rates() {
        let mut cpu = Cpu::new(&[1.0, 7.0, 10.0]);
        for (group, slot) in [(0, 0), (2, 1), (0, 2), (2, 3), (2, 4)] {
            cpu.enter(group, TransactionSlot(slot));
        }
        assert!((cpu.rate(ProcessorPool { count: 1, overhead: 0.0 }) - 32.0 / 5.0).abs() < 1e-12);
        let cases = [
            (0.0, 0),
            (0.99 / 32.0, 0),
            (1.01 / 32.0, 2),
            (2.01 / 32.0, 1),
            (12.01 / 32.0, 3),
            (1.0, 4),
        ];
        for (point, slot) in cases {
            assert_eq!(cpu.clone().finish(point), TransactionSlot(slot), "{point}");
        }
        for left in (0..5).rev() {
            cpu.finish(0.5);
            assert_eq!(cpu.runnable, left);
        }
        assert!(cpu.rate(ProcessorPool { count: 1, overhead: 0.0 }) < 1e-12);
    }
}
