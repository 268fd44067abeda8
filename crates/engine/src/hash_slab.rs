//! A hash table whose entries stay where they are.
//!
//! Chains of entries in one vector: an entry keeps its index from insertion to removal, so others
//! can point at it by 32 bits, and a removed entry is the next one to be used. So there are no
//! tombstones, and no allocation once the table has been as full as it gets. The hash is an
//! argument: a lock computes it once for the two tables it visits.

use std::hash::{Hash, Hasher};
use std::ops::{Index, IndexMut};

/// No entry.
pub(crate) const NONE: u32 = u32::MAX;

/// Chains of an empty table; a power of two.
const CHAINS_MIN: usize = 16;

/// How many times as many chains a table gets that has as many entries as chains: many, because
/// all entries are chained anew.
const GROWTH: usize = 4;

/// Chains that [`HashSlab::clear`] keeps at most.
const CHAINS_KEPT: usize = 1024;

/// See the [module](self).
pub(crate) struct HashSlab<K, V> {
    /// The first entry of each chain; a power of two of them.
    chains: Vec<u32>,
    entries: Vec<Entry<K, V>>,
    /// The first vacant entry.
    vacant: u32,
    len: usize,
}

struct Entry<K, V> {
    hash: u64,
    /// `None` where vacant.
    key: Option<K>,
    /// The next in the chain, or the next vacant one.
    next: u32,
    value: V,
}

impl<K: Eq, V> HashSlab<K, V> {
    pub(crate) fn new() -> HashSlab<K, V> {
        let entries = Vec::with_capacity(CHAINS_MIN);
        HashSlab { chains: vec![NONE; CHAINS_MIN], entries, vacant: NONE, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn find(&self, hash: u64, key: &K) -> Option<u32> {
        debug_assert!(self.chains.len().is_power_of_two(), "a hash is masked");
        let mut at = self.chains[self.chain(hash)];
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.hash == hash && entry.key.as_ref() == Some(key) {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    /// Adds an entry for a key that has none.
    pub(crate) fn insert(&mut self, hash: u64, key: K, value: V) -> u32 {
        debug_assert!(self.find(hash, &key).is_none(), "a key has one entry");
        if self.len == self.chains.len() {
            self.grow();
        }
        self.len += 1;
        let chain = self.chain(hash);
        let entry = Entry { hash, key: Some(key), next: self.chains[chain], value };
        let at = self.vacant;
        let at = if at == NONE {
            self.entries.push(entry);
            last_index(&self.entries)
        } else {
            self.vacant = self.entries[at as usize].next;
            self.entries[at as usize] = entry;
            at
        };
        self.chains[chain] = at;
        debug_assert!(self.len <= self.entries.len(), "each entry has its place");
        at
    }

    /// Makes an entry vacant. Its value stays readable by index until the entry is used again.
    pub(crate) fn remove(&mut self, at: u32) {
        debug_assert!(self.key(at).is_some(), "an entry is removed once");
        let chain = self.chain(self.hash(at));
        let next = self.entries[at as usize].next;
        if self.chains[chain] == at {
            self.chains[chain] = next;
        } else {
            let mut before = self.chains[chain];
            while self.entries[before as usize].next != at {
                before = self.entries[before as usize].next;
            }
            self.entries[before as usize].next = next;
        }
        let entry = &mut self.entries[at as usize];
        entry.key = None;
        entry.next = self.vacant;
        self.vacant = at;
        self.len -= 1;
    }

    /// Returns the key of an entry, if there is one with this index.
    pub(crate) fn key(&self, at: u32) -> Option<&K> {
        self.entries.get(at as usize)?.key.as_ref()
    }

    pub(crate) fn hash(&self, at: u32) -> u64 {
        self.entries[at as usize].hash
    }

    /// Returns all entries: hash, key, value; the last added first as long as none was removed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &K, &V)> {
        let entries = self.entries.iter().rev();
        entries.filter_map(|entry| Some((entry.hash, entry.key.as_ref()?, &entry.value)))
    }

    /// Removes all entries, and frees the memory of a large table.
    pub(crate) fn clear(&mut self) {
        if self.chains.len() > CHAINS_KEPT {
            *self = HashSlab::new();
            return;
        }
        if self.len > 0 {
            self.chains.fill(NONE);
        }
        self.entries.clear();
        self.vacant = NONE;
        self.len = 0;
    }

    fn grow(&mut self) {
        self.chains = vec![NONE; self.chains.len() * GROWTH];
        for at in 0..self.entries.len() {
            if self.entries[at].key.is_none() {
                continue;
            }
            let chain = self.chain(self.entries[at].hash);
            self.entries[at].next = self.chains[chain];
            self.chains[chain] = index(at);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the upper bits are masked anyway")]
    fn chain(&self, hash: u64) -> usize {
        hash as usize & (self.chains.len() - 1)
    }
}

impl<K, V> Index<u32> for HashSlab<K, V> {
    type Output = V;

    fn index(&self, at: u32) -> &V {
        debug_assert!((at as usize) < self.entries.len(), "entry {at} was never there");
        &self.entries[at as usize].value
    }
}

impl<K, V> IndexMut<u32> for HashSlab<K, V> {
    fn index_mut(&mut self, at: u32) -> &mut V {
        &mut self.entries[at as usize].value
    }
}

/// Returns the index of the last element of a vector with elements.
pub(crate) fn last_index<T>(vector: &[T]) -> u32 {
    index(vector.len() - 1)
}

fn index(at: usize) -> u32 {
    // Four thousand million entries of tens of bytes: memory ends before.
    u32::try_from(at).expect("a table has fewer than 2^32 entries")
}

/// Returns the hash of a resource: multiplications whose upper halves are folded onto the lower
/// ones. It is fast on the few words that a resource is made of, and no defence against keys made
/// to collide.
pub(crate) fn hash_of(key: &impl Hash) -> u64 {
    let mut hasher = Folding(0x243f_6a88_85a3_08d3);
    key.hash(&mut hasher);
    hasher.0
}

struct Folding(u64);

/// An odd constant with its bits well mixed.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Folding {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves of a product are wanted")]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * u128::from(FACTOR);
        // The rotation keeps a sequence of zeros from a fixed point.
        self.0 = (product as u64 ^ (product >> 64) as u64).rotate_left(23) ^ FACTOR;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_holds_what_a_map_holds() {
        for seed in 0..20_u64 {
            let mut slab = HashSlab::new();
            let mut model = BTreeMap::new();
            let mut random = seed;
            for step in 0..2_000_u64 {
                random = hash_of(&(random, step));
                let key = random % 97;
                // Few hashes, so that chains are long.
                let hash = hash_of(&(key % 31));
                if let Some(at) = slab.find(hash, &key) {
                    assert_eq!(model.remove(&key), Some(slab[at]), "seed {seed}");
                    slab.remove(at);
                } else {
                    assert_eq!(model.insert(key, step), None, "seed {seed}");
                    slab.insert(hash, key, step);
                }
            }
            let held: BTreeMap<u64, u64> =
                slab.iter().map(|(_, key, value)| (*key, *value)).collect();
            assert_eq!(held, model, "seed {seed}");
            assert_eq!(slab.len(), model.len(), "seed {seed}");
        }
    }

    #[test]
    fn entries_are_used_again() {
        let mut slab = HashSlab::new();
        let first = slab.insert(1, "a", 1);
        slab.insert(2, "b", 2);
        slab.remove(first);
        assert_eq!(slab.insert(3, "c", 3), first);
        slab.clear();
        assert_eq!((slab.len(), slab.find(3, &"c")), (0, None));
    }

    #[test]
    fn hashes_of_neighbours_differ_in_both_halves() {
        let hashes: Vec<u64> = (0..4096_u64).map(|number| hash_of(&(7_u32, number))).collect();
        for shift in [0, 32] {
            let mut buckets = [0_u32; 256];
            for hash in &hashes {
                buckets[usize::try_from((hash >> shift) & 255).expect("below 256")] += 1;
            }
            // 16 in the mean; 48 would be eight standard deviations away.
            assert!(buckets.iter().all(|&count| count < 48), "shift {shift}: {buckets:?}");
        }
    }
}
