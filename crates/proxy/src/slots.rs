//! Slots that tell their occupants apart.
//!
//! A number that names a slot also names what comes to sit in it later: an event, a letter or a
//! list that still holds the number of one connection then acts on another. A [`Key`] names the
//! occupant. It holds the slot's index and its generation, which grows whenever the slot is
//! emptied, so a key whose occupant has gone finds nothing. A slot whose generations are used up
//! is not used again. Keys of different tables are different types.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// Bits of a slot's index: what a cancel key has room for beside the worker's number.
pub(crate) const INDEX_BITS: u32 = 24;

/// Names one occupant of a [`Slots<T>`], for ever.
pub(crate) struct Key<T> {
    index: u32,
    generation: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> Key<T> {
    fn new(index: u32, generation: u32) -> Key<T> {
        Key { index, generation, of: PhantomData }
    }

    /// Returns the slot's index, which later occupants share; below 2 to the [`INDEX_BITS`].
    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// Returns the key as a number of 56 bits.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << INDEX_BITS | u64::from(self.index)
    }

    /// Returns the key that [`Key::to_bits`] made `bits` of.
    #[expect(clippy::cast_possible_truncation, reason = "the number holds two smaller ones")]
    pub(crate) fn from_bits(bits: u64) -> Key<T> {
        Key::new(bits as u32 & ((1 << INDEX_BITS) - 1), (bits >> INDEX_BITS) as u32)
    }
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Key<T> {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Key<T>) -> bool {
        (self.index, self.generation) == (other.index, other.generation)
    }
}

impl<T> Eq for Key<T> {}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.index, self.generation)
    }
}

struct Slot<T> {
    generation: u32,
    occupant: Option<T>,
}

/// A table of `T`, each named by a [`Key`].
pub(crate) struct Slots<T> {
    entries: Vec<Slot<T>>,
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

    /// Inserts what `make` makes for the key that will name it.
    ///
    /// # Errors
    /// That of `make`, or every slot is taken.
    pub(crate) fn insert_with(
        &mut self,
        make: impl FnOnce(Key<T>) -> io::Result<T>,
    ) -> io::Result<Key<T>> {
        let index = match self.free.last() {
            Some(&index) => index,
            None => u32::try_from(self.entries.len())
                .ok()
                .filter(|index| index + 1 < 1 << INDEX_BITS)
                .ok_or_else(|| io::Error::other("too many connections for one event loop"))?,
        };
        let generation = self.entries.get(index as usize).map_or(0, |slot| slot.generation);
        let key = Key::new(index, generation);
        let occupant = Some(make(key)?);
        match self.entries.get_mut(index as usize) {
            Some(slot) => {
                slot.occupant = occupant;
                self.free.pop();
            }
            None => self.entries.push(Slot { generation, occupant }),
        }
        self.occupied += 1;
        Ok(key)
    }

    pub(crate) fn get(&self, key: Key<T>) -> Option<&T> {
        let slot = self.entries.get(key.index as usize)?;
        slot.occupant.as_ref().filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key<T>) -> Option<&mut T> {
        let slot = self.entries.get_mut(key.index as usize)?;
        slot.occupant.as_mut().filter(|_| slot.generation == key.generation)
    }

    /// Returns what is in the slot of this index now.
    pub(crate) fn at_index(&self, index: u32) -> Option<(Key<T>, &T)> {
        let slot = self.entries.get(index as usize)?;
        slot.occupant.as_ref().map(|occupant| (Key::new(index, slot.generation), occupant))
    }

    /// Removes an occupant; its key finds nothing from now on.
    pub(crate) fn remove(&mut self, key: Key<T>) -> Option<T> {
        let slot = self.entries.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let occupant = slot.occupant.take()?;
        self.occupied -= 1;
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(key.index);
        }
        Some(occupant)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        (0_u32..).zip(&self.entries).filter_map(|(index, slot)| {
            slot.occupant.as_ref().map(|occupant| (Key::new(index, slot.generation), occupant))
        })
    }

    /// Returns the keys of all occupants, to go through while the table changes.
    pub(crate) fn keys(&self) -> Vec<Key<T>> {
        self.iter().map(|(key, _)| key).collect()
    }
}

impl<T> Index<Key<T>> for Slots<T> {
    type Output = T;

    /// # Panics
    /// The occupant has gone: the caller's mistake.
    fn index(&self, key: Key<T>) -> &T {
        self.get(key).expect("the key of an occupant that is there")
    }
}

impl<T> IndexMut<Key<T>> for Slots<T> {
    fn index_mut(&mut self, key: Key<T>) -> &mut T {
        self.get_mut(key).expect("the key of an occupant that is there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_key_finds_its_occupant_or_nothing(steps in prop::collection::vec(0..20_usize, 0..80)) {
            let mut slots = Slots::new();
            let mut all: Vec<(Key<usize>, bool)> = Vec::new();
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
                    prop_assert_eq!(Key::from_bits(key.to_bits()), key);
                }
                prop_assert_eq!(slots.len(), all.iter().filter(|(_, there)| *there).count());
                prop_assert_eq!(slots.keys().len(), slots.len());
            }
        }
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_not_used_again() {
        let mut slots = Slots::new();
        let first = slots.insert_with(|_| Ok('a')).unwrap();
        slots.entries[0].generation = u32::MAX;
        let last = Key::new(first.index(), u32::MAX);
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
        assert!(slots.is_empty() && slots.keys().is_empty());
        slots.insert_with(|_| Ok(())).unwrap();
        assert_eq!(slots.len(), 1);
    }
}
