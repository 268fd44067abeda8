//! Slots that tell their occupants apart.
//!
//! A number that names a slot also names what comes to sit in it later: an event, a letter or a
//! list that still holds the number of one connection then acts on another. A [`Slot`] names the
//! occupant. It holds the slot's index and its generation, which grows whenever the slot is
//! emptied, so a key whose occupant has gone finds nothing. A slot whose generations are used up
//! is not used again. Keys of different tables are different types.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// Declares the index of an element of a vector that never shrinks.
macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) struct $name(pub(crate) usize);
    };
}

index! {
    /// The number of a database server's address: the same whenever it is configured again.
    ServerIndex
}
index! {
    /// The number of an [`Entry`](crate::shared::Entry).
    DatabaseIndex
}
index! {
    /// The number of an event loop.
    WorkerIndex
}

/// Names a pool of an event loop.
pub(crate) type PoolIndex = Slot<crate::upstream::Pool>;

/// Bits of a slot's index: 56 bits hold it and the generation.
pub(crate) const INDEX_BITS: u32 = 24;

/// Names one occupant of a [`Slots<T>`]; never used for another one.
pub(crate) struct Slot<T> {
    index: u32,
    generation: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> Slot<T> {
    fn new(index: u32, generation: u32) -> Slot<T> {
        Slot { index, generation, of: PhantomData }
    }

    /// Returns the slot's index, which later occupants share; below 2 to the [`INDEX_BITS`].
    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// Returns the slot as a number of 56 bits.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << INDEX_BITS | u64::from(self.index)
    }

    /// Returns the slot whose [`Slot::to_bits`] is `bits`.
    #[expect(clippy::cast_possible_truncation, reason = "the number holds two smaller ones")]
    pub(crate) fn from_bits(bits: u64) -> Slot<T> {
        Slot::new(bits as u32 & ((1 << INDEX_BITS) - 1), (bits >> INDEX_BITS) as u32)
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Slot<T> {
        *self
    }
}

impl<T> Copy for Slot<T> {}

impl<T> PartialEq for Slot<T> {
    fn eq(&self, other: &Slot<T>) -> bool {
        (self.index, self.generation) == (other.index, other.generation)
    }
}

impl<T> Eq for Slot<T> {}

impl<T> Hash for Slot<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to_bits().hash(state);
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.index, self.generation)
    }
}

struct Entry<T> {
    generation: u32,
    occupant: Option<T>,
}

/// A table of `T`, each named by a [`Slot`].
///
/// - `occupied` is the number of entries with an occupant.
/// - `free` holds every empty entry that may be used again, once.
pub(crate) struct Slots<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    occupied: usize,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Slots<T> {
        Slots { entries: Vec::new(), free: Vec::new(), occupied: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.occupied
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Inserts what `make` makes for the slot that will name it. Returns that slot.
    ///
    /// # Errors
    /// That of `make`, or every index is taken.
    pub(crate) fn insert_with(
        &mut self,
        make: impl FnOnce(Slot<T>) -> io::Result<T>,
    ) -> io::Result<Slot<T>> {
        let slot = if let Some(&index) = self.free.last() {
            Slot::new(index, self.entries[index as usize].generation)
        } else {
            let next = u32::try_from(self.entries.len()).ok();
            let next = next.filter(|index| index + 1 < 1 << INDEX_BITS);
            let error = || io::Error::other("too many connections for one event loop");
            Slot::new(next.ok_or_else(error)?, 0)
        };
        let occupant = Some(make(slot)?);
        match self.entries.get_mut(slot.index as usize) {
            Some(entry) => {
                debug_assert!(entry.occupant.is_none(), "a free entry has no occupant");
                entry.occupant = occupant;
                self.free.pop();
            }
            None => self.entries.push(Entry { generation: 0, occupant }),
        }
        self.occupied += 1;
        debug_assert!(self.occupied + self.free.len() <= self.entries.len());
        Ok(slot)
    }

    pub(crate) fn get(&self, slot: Slot<T>) -> Option<&T> {
        let entry = self.entries.get(slot.index as usize)?;
        entry.occupant.as_ref().filter(|_| entry.generation == slot.generation)
    }

    pub(crate) fn get_mut(&mut self, slot: Slot<T>) -> Option<&mut T> {
        let entry = self.entries.get_mut(slot.index as usize)?;
        entry.occupant.as_mut().filter(|_| entry.generation == slot.generation)
    }

    /// Returns the present occupant of this index.
    pub(crate) fn at_index(&self, index: u32) -> Option<(Slot<T>, &T)> {
        let entry = self.entries.get(index as usize)?;
        entry.occupant.as_ref().map(|occupant| (Slot::new(index, entry.generation), occupant))
    }

    /// Removes an occupant; its slot finds nothing from then on.
    pub(crate) fn remove(&mut self, slot: Slot<T>) -> Option<T> {
        let entry = self.entries.get_mut(slot.index as usize)?;
        if entry.generation != slot.generation {
            return None;
        }
        let occupant = entry.occupant.take()?;
        self.occupied -= 1;
        if let Some(next) = entry.generation.checked_add(1) {
            entry.generation = next;
            self.free.push(slot.index);
        }
        Some(occupant)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot<T>, &T)> {
        (0_u32..).zip(&self.entries).filter_map(|(index, entry)| {
            entry.occupant.as_ref().map(|occupant| (Slot::new(index, entry.generation), occupant))
        })
    }

    /// Returns the slots of all occupants, to go through while the table changes.
    pub(crate) fn slots(&self) -> Vec<Slot<T>> {
        self.iter().map(|(slot, _)| slot).collect()
    }
}

impl<T> Index<Slot<T>> for Slots<T> {
    type Output = T;

    /// # Panics
    /// The occupant has been removed: the caller's mistake.
    fn index(&self, slot: Slot<T>) -> &T {
        self.get(slot).expect("the slot of a present occupant")
    }
}

impl<T> IndexMut<Slot<T>> for Slots<T> {
    fn index_mut(&mut self, slot: Slot<T>) -> &mut T {
        self.get_mut(slot).expect("the slot of a present occupant")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_slot_finds_its_occupant_or_none(steps in prop::collection::vec(0..20_usize, 0..80)) {
            let mut slots = Slots::new();
            let mut all: Vec<(Slot<usize>, bool)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                if let Some((key, is_there)) = all.get_mut(step) {
                    prop_assert_eq!(slots.remove(*key), is_there.then_some(step));
                    *is_there = false;
                } else {
                    let number = all.len().min(number);
                    all.push((slots.insert_with(|_| Ok(number)).unwrap(), true));
                }
                for (number, &(key, is_there)) in all.iter().enumerate() {
                    prop_assert_eq!(slots.get(key).copied(), is_there.then_some(number));
                    prop_assert_eq!(Slot::from_bits(key.to_bits()), key);
                }
                prop_assert_eq!(slots.len(), all.iter().filter(|(_, there)| *there).count());
                prop_assert_eq!(slots.slots().len(), slots.len());
            }
        }
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_not_used_again() {
        let mut slots = Slots::new();
        let first = slots.insert_with(|_| Ok('a')).unwrap();
        slots.entries[0].generation = u32::MAX;
        let last = Slot::new(first.index(), u32::MAX);
        assert_eq!(slots.remove(last), Some('a'));
        let other = slots.insert_with(|_| Ok('b')).unwrap();
        assert_ne!(other.index(), last.index());
        assert_eq!(slots.get(last), None);
        assert_eq!(slots.at_index(other.index()), Some((other, &'b')));
    }

    #[test]
    fn what_could_not_be_made_takes_no_slot() {
        let mut slots: Slots<()> = Slots::new();
        slots.insert_with(|_| Err(io::ErrorKind::NotConnected.into())).unwrap_err();
        assert!(slots.is_empty() && slots.slots().is_empty());
        slots.insert_with(|_| Ok(())).unwrap();
        assert_eq!(slots.len(), 1);
    }
}
