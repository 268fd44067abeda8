//! Disks, first come, first served: some for reads, and one for the log.

use std::collections::VecDeque;

use super::place;
use super::transactions::TransactionSlot;

/// Disks of one kind, each with its queue. Service is exponential, so of the disks at work any may
/// be the next to finish.
#[derive(Clone, Debug)]
pub(super) struct Disks {
    queues: Vec<VecDeque<TransactionSlot>>,
    /// The disks at work.
    busy: Vec<u32>,
}

impl Disks {
    pub(super) fn new(count: u32) -> Disks {
        Disks { queues: (0..count).map(|_| VecDeque::new()).collect(), busy: Vec::new() }
    }

    /// `slot` goes to the end of the queue of `disk`.
    pub(super) fn enter(&mut self, disk: u32, slot: TransactionSlot) {
        let queue = &mut self.queues[disk as usize];
        queue.push_back(slot);
        if queue.len() == 1 {
            self.busy.push(disk);
        }
    }

    /// The number of disks at work.
    pub(super) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// Takes out the transaction that a disk at work, of which there is one, finishes with at
    /// `point`, uniform from [0, 1).
    pub(super) fn finish(&mut self, point: f64) -> TransactionSlot {
        let chosen = place(point, self.busy.len());
        let queue = &mut self.queues[self.busy[chosen] as usize];
        let finished = queue.pop_front().expect("a disk at work has a transaction");
        if queue.is_empty() {
            self.busy.swap_remove(chosen);
        }
        finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disk_serves_in_order_of_arrival() {
        let mut disks = Disks::new(3);
        for (disk, slot) in [(2, 0), (0, 1), (2, 2), (2, 3)] {
            disks.enter(disk, TransactionSlot(slot));
        }
        assert_eq!(disks.busy(), 2);
        // Disk 2 is the first of the two at work, then, when disk 0 is done, the only one.
        let finished = [0.0, 0.4, 0.6, 0.9].map(|point| disks.finish(point));
        assert_eq!(finished, [0, 2, 1, 3].map(TransactionSlot));
        assert_eq!(disks.busy(), 0);
    }
}
