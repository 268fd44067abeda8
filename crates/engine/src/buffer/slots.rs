//! Batches that are being written, and their slots in the doublewrite file.
//!
//! # Mechanism
//! Up to [`BATCHES`] batches are written at the same time. Each has a number, one above that of the
//! batch that began before it, and a slot of the doublewrite file, which is its own until it has
//! ended. A batch also learns the numbers of those that are being written when it begins: their
//! pages and its own are all different, because a page is written by one batch at a time.
//!
//! # Which slot
//! A slot may be overwritten when its batch has ended. The others may then hold copies of the same
//! pages, older or newer, and after a crash an old one must not pass for the last. That is decided
//! by the list with the highest number that is intact (`doublewrite`): it knows which batches had
//! ended. So the free slot with the lowest number is taken, and another free slot always stays,
//! which is of a later batch and knows that this one has ended. While there is only one free slot
//! that was ever used, one that never was is taken; a store that writes one batch at a time and
//! has used one slot stays with that one, in which case there is no other copy of anything.

use tidegate_runtime::sync::{Condvar, Mutex};

/// Batches that are written at the same time.
pub(super) const BATCHES: usize = 4;

/// Slots of the doublewrite file: one of a batch that has ended always stays.
pub(super) const SLOTS: usize = BATCHES + 1;

/// What is known of each slot, and who waits for one.
pub(super) struct Slots {
    state: Mutex<SlotState>,
    ended: Condvar,
}

struct SlotState {
    /// The number of the next batch.
    next: u64,
    slots: [Slot; SLOTS],
    /// Threads that wait in [`Slots::begin`].
    waiting: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// The number of its last batch; `None` if it was never used. What an unknown or damaged list
    /// may be of counts as 0.
    number: Option<u64>,
    is_in_flight: bool,
}

/// A batch that is being written, or whose list was read.
#[derive(Clone, Debug)]
pub(super) struct BatchTicket {
    pub(super) slot: usize,
    pub(super) number: u64,
    /// The numbers of those that were being written when this one began.
    pub(super) others: Vec<u64>,
}

impl Slots {
    /// Returns slots that hold the batches with these numbers.
    pub(super) fn new(numbers: [Option<u64>; SLOTS]) -> Slots {
        let highest = numbers.iter().flatten().max().copied().unwrap_or(0);
        let slots = numbers.map(|number| Slot { number, is_in_flight: false });
        // A list that says more has the right checksum and was not written by this program.
        let next = highest.saturating_add(1);
        let state = SlotState { next, slots, waiting: 0 };
        Slots { state: Mutex::new(state), ended: Condvar::new() }
    }

    /// Begins a batch when there is room for it.
    pub(super) fn begin(&self) -> BatchTicket {
        let mut state = self.state.lock();
        state.waiting += 1;
        while state.in_flight() == BATCHES {
            self.ended.wait(&mut state);
        }
        state.waiting -= 1;
        state.begin()
    }

    /// Begins a batch if there is room for it beside those that wait for room. Never waits.
    pub(super) fn try_begin(&self) -> Option<BatchTicket> {
        let mut state = self.state.lock();
        (state.in_flight() + state.waiting < BATCHES).then(|| state.begin())
    }

    /// Ends a batch: its slot may be overwritten. Called when all its pages are durable at their
    /// places, or when nothing is written any more.
    pub(super) fn end(&self, ticket: &BatchTicket) {
        let mut state = self.state.lock();
        let slot = &mut state.slots[ticket.slot];
        debug_assert!(slot.is_in_flight && slot.number == Some(ticket.number), "it ends once");
        slot.is_in_flight = false;
        drop(state);
        self.ended.notify_all();
    }

    /// Returns when no batch is being written.
    pub(super) fn wait_until_none(&self) {
        let mut state = self.state.lock();
        while state.in_flight() > 0 {
            self.ended.wait(&mut state);
        }
    }
}

/// Returns which batches may have been under way when the lists of these were left: the one with
/// the highest number, and those that it knows to have been. All others had ended, and copies of
/// them do not count.
pub(super) fn last_batches<'t>(lists: impl Iterator<Item = &'t BatchTicket>) -> Vec<u64> {
    let last = lists.max_by_key(|ticket| ticket.number);
    last.map_or(Vec::new(), |last| {
        let mut numbers = last.others.clone();
        numbers.push(last.number);
        numbers
    })
}

impl SlotState {
    fn in_flight(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_in_flight).count()
    }

    fn begin(&mut self) -> BatchTicket {
        let in_flight = self.slots.iter().filter(|slot| slot.is_in_flight);
        let others = in_flight.filter_map(|slot| slot.number).collect();
        let (slot, number) = (self.free_slot(), self.next);
        self.next = self.next.saturating_add(1);
        debug_assert!(!self.slots[slot].is_in_flight, "a slot is of one batch");
        self.slots[slot] = Slot { number: Some(number), is_in_flight: true };
        BatchTicket { slot, number, others }
    }

    fn free_slot(&self) -> usize {
        let used = || self.slots.iter().filter(|slot| slot.number.is_some());
        let is_free = |slot: &&Slot| !slot.is_in_flight;
        let may_overwrite = used().filter(is_free).count() > 1 || used().count() == 1;
        let free = (0..SLOTS).filter(|&slot| !self.slots[slot].is_in_flight);
        let number = |slot: usize| self.slots[slot].number;
        let unused = free.clone().find(|&slot| number(slot).is_none());
        let lowest = free.filter(|&slot| number(slot).is_some()).min_by_key(|&slot| number(slot));
        let chosen = if may_overwrite { lowest } else { unused.or(lowest) };
        chosen.or(unused).expect("there is one slot more than batches")
    }
}

#[cfg(test)]
mod tests {
    use tidegate_random::SplitMix64;

    use super::*;

    #[test]
    fn one_batch_at_a_time_uses_one_slot() {
        let slots = Slots::new([None; SLOTS]);
        for number in 1..10 {
            let ticket = slots.begin();
            assert_eq!((ticket.slot, ticket.number), (0, number));
            assert!(ticket.others.is_empty());
            slots.end(&ticket);
        }
    }

    #[test]
    fn there_is_no_room_for_more_than_so_many() {
        let slots = Slots::new([None; SLOTS]);
        let tickets: Vec<BatchTicket> = (0..BATCHES).map(|_| slots.begin()).collect();
        assert!(slots.try_begin().is_none());
        assert_eq!(tickets.last().map(|ticket| ticket.others.len()), Some(BATCHES - 1));
        for ticket in &tickets {
            slots.end(ticket);
        }
        assert!(slots.try_begin().is_some());
    }

    const PAGES: usize = 12;

    /// What a slot of the file holds.
    #[derive(Clone)]
    struct Written {
        ticket: BatchTicket,
        pages: Vec<usize>,
    }

    /// A batch that is being written. It writes its pages to their places when its list and copies
    /// are durable.
    struct Open {
        written: Written,
        is_at_places: bool,
    }

    /// A doublewrite file, and who writes it.
    struct Model {
        random: SplitMix64,
        slots: Slots,
        file: [Option<Written>; SLOTS],
        open: Vec<Open>,
        /// The batch that has written each page to its place last, or is doing so.
        last_at_place: [u64; PAGES],
    }

    impl Model {
        fn new(seed: u64) -> Model {
            Model {
                random: SplitMix64::new(seed),
                slots: Slots::new([None; SLOTS]),
                file: Default::default(),
                open: Vec::new(),
                last_at_place: [0; PAGES],
            }
        }

        fn draw(&mut self, below: u32) -> usize {
            self.random.next_below(below) as usize
        }

        /// Begins a batch, or goes on with one.
        fn step(&mut self) {
            let (act, at) = (self.draw(3), self.draw(4));
            match (act, self.open.get_mut(at)) {
                (0, Some(batch)) if !batch.is_at_places => {
                    batch.is_at_places = true;
                    let ticket = &batch.written.ticket;
                    for &page in &batch.written.pages {
                        self.last_at_place[page] = ticket.number;
                    }
                    self.file[ticket.slot] = Some(batch.written.clone());
                }
                (1, Some(batch)) if batch.is_at_places => {
                    self.slots.end(&self.open.remove(at).written.ticket);
                }
                _ => {
                    let open = |page: &usize| {
                        self.open.iter().any(|open| open.written.pages.contains(page))
                    };
                    let mut pages: Vec<usize> = (0..PAGES).filter(|page| !open(page)).collect();
                    pages.retain(|_| self.random.next_below(3) == 0);
                    if let Some(ticket) = self.slots.try_begin() {
                        let written = Written { ticket, pages };
                        self.open.push(Open { written, is_at_places: false });
                    }
                }
            }
        }

        /// The power fails. In a slot that was being written is what was there, wholly or in part,
        /// or what was to come.
        fn crash(&mut self) {
            for batch in self.open.iter().filter(|batch| !batch.is_at_places) {
                let slot = &mut self.file[batch.written.ticket.slot];
                match (self.random.next_below(4), &mut *slot) {
                    (0, _) => *slot = None,
                    (1, _) => *slot = Some(batch.written.clone()),
                    (2, Some(old)) => old.pages.retain(|_| self.random.next_below(2) == 0),
                    _ => {}
                }
            }
        }

        /// Each page that may be torn has its copy, and no copy is of an earlier batch than the one
        /// that has written the page last.
        fn check(&self, seed: u64) {
            let lists: Vec<&Written> = self.file.iter().flatten().collect();
            let counting = last_batches(lists.iter().map(|list| &list.ticket));
            for page in 0..PAGES {
                let last = self.last_at_place[page];
                let counts = |list: &&&Written| {
                    counting.contains(&list.ticket.number) && list.pages.contains(&page)
                };
                let copy = lists.iter().filter(counts).map(|list| list.ticket.number).max();
                assert!(copy.is_none_or(|copy| copy >= last), "seed {seed}, page {page}");
                let writes =
                    |batch: &Open| batch.is_at_places && batch.written.pages.contains(&page);
                let is_torn = self.open.iter().any(writes);
                assert!(!is_torn || copy == Some(last), "seed {seed}, page {page}: {copy:?}");
            }
        }
    }

    #[test]
    fn after_a_crash_the_last_copies_count_and_no_earlier_ones() {
        for seed in 0..5_000 {
            let mut model = Model::new(seed);
            (0..=model.draw(150)).for_each(|_| model.step());
            model.crash();
            model.check(seed);
        }
    }
}
