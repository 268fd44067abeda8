//! Nodes of a B+tree: sorted keys and values in a slotted page.
//!
//! # Layout
//! After the [page header](super) come 48 bytes of a node's own, then the slots in the order of
//! keys, growing upward. Entries grow downward from the fences at the end:
//!
//! ```text
//! | header | node header | slot 0 | slot 1 | ... free ... | entry 1 | entry 0 | high | low |
//! ```
//!
//! | bytes | field |
//! | --- | --- |
//! | 24–27 | the tree |
//! | 28–29 | number of slots |
//! | 30–31 | length of the prefix: what the fences share |
//! | 32–35 | where the lowest entry begins |
//! | 36–39 | bytes of removed entries above that |
//! | 40–47 | right sibling of a leaf, 0 when there is none |
//! | 48–49 | length of the extension: what all keys share behind the prefix, 14 at most |
//! | 50–63 | the extension |
//! | 64–65 | slot of the last insert, 65535 when there is none |
//! | 66–67 | how many inserts before it were neighbours: above 0 ascending, below 0 descending |
//! | 68–69 | length of the low fence |
//! | 70–71 | length of the high fence, 65535 when there is none |
//!
//! A slot has ten bytes: the first four bytes of the key's rest (big-endian, so that they compare
//! as numbers), where the entry begins, the length of the key's rest, the length of the value.
//!
//! # Fences, prefix, extension
//! The fences are the keys between which all keys of the node lie: low ≤ key < high. What both
//! begin with, all keys in between begin with, so it is stored once, in the low fence, and a slot
//! has only the rest (Graefe, "Write-optimized B-trees", VLDB 2004; Bayer and Unterauer, "Prefix
//! B-trees", TODS 1977). Fences change only when the node is split or merged, and so does the
//! prefix.
//!
//! The keys that are there may share more than the fences do: that is the extension. A key that
//! does not begin with it makes it shorter, and the other entries longer. Why it is worth the
//! trouble: when a leaf that a sequence has filled is split, its fences come closer and its prefix
//! grows. Without the extension its entries would shrink at that moment, after the last key that
//! could have used the room, and every leaf of a sequence would stay a twentieth empty.
//!
//! A log record has keys without the prefix and with the extension, so that it does not matter
//! which keys came first.
//!
//! # Inner nodes
//! An inner node has an entry for every child: the lowest key the child may have, and the child's
//! page number as value. The first one's key is the node's own low fence. A key belongs to the last
//! entry that is not above it.

use std::cmp::Ordering;

use tidegate_runtime::work::{self, Operation};

use super::{HEADER_BYTES, Kind, PageId, TreeId, format, level, long};
use crate::bytes::{get_u16, get_u32, get_u64, put_u16, put_u32, put_u64, short};

const TREE_AT: usize = 24;
const COUNT_AT: usize = 28;
const PREFIX_AT: usize = 30;
const HEAP_AT: usize = 32;
const GARBAGE_AT: usize = 36;
const RIGHT_AT: usize = 40;
const EXTENSION_LEN_AT: usize = 48;
const EXTENSION_AT: usize = 50;
const LAST_AT: usize = 64;
const RUN_AT: usize = 66;
const LOW_LEN_AT: usize = 68;
const HIGH_LEN_AT: usize = 70;
const SLOTS_AT: usize = 72;
const _: () = assert!(TREE_AT == HEADER_BYTES && HIGH_LEN_AT + 2 == SLOTS_AT);

/// The longest extension: what is left of the first cache line.
const EXTENSION_MAX: usize = LAST_AT - EXTENSION_AT;

/// Bytes of a slot: what an entry costs beside its key and value.
pub(crate) const SLOT_BYTES: usize = 10;

/// Bytes of a key's rest that its slot has as well.
const HEAD_BYTES: usize = 4;

const NO_SLOT: u16 = u16::MAX;
const NO_FENCE: u16 = u16::MAX;

/// The keys between which all keys of a node lie: low ≤ key < high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fences<'a> {
    pub(crate) low: &'a [u8],
    /// `None`: no end.
    pub(crate) high: Option<&'a [u8]>,
}

impl Fences<'_> {
    /// Returns how many bytes all keys in between share.
    pub(crate) fn prefix_len(&self) -> usize {
        self.high.map_or(0, |high| common(self.low, high))
    }

    fn bytes(&self) -> usize {
        self.low.len() + self.high.map_or(0, <[u8]>::len)
    }

    /// Returns bytes that a node with these fences has for slots and entries.
    pub(crate) fn room(&self, page_bytes: usize) -> usize {
        page_bytes.min(usize::from(u16::MAX)) - SLOTS_AT - self.bytes()
    }
}

/// There is no room for the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A node to be read. The bytes were [checked](Node::check) when they came from disk.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    page: &'a [u8],
}

#[derive(Clone, Copy)]
struct Slot {
    head: u32,
    offset: usize,
    key_len: usize,
    value_len: usize,
}

/// Returns where the fences end. The last byte of the largest page is not used, so that every place
/// in a page is below 65,536.
fn end(page: &[u8]) -> usize {
    page.len().min(usize::from(u16::MAX))
}

/// Returns how many bytes two strings begin with alike.
pub(crate) fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Returns the first four bytes of a key's rest, as a number that compares like them; zeros follow
/// a shorter one.
fn head(rest: &[u8]) -> u32 {
    if let Some(first) = rest.first_chunk::<HEAD_BYTES>() {
        return u32::from_be_bytes(*first);
    }
    let first = rest.iter().fold(0, |head, &byte| head << 8 | u32::from(byte));
    let missing = HEAD_BYTES - rest.len();
    // All of them: there is nothing to shift.
    if missing == HEAD_BYTES { 0 } else { first << (missing * 8) }
}

impl<'a> Node<'a> {
    pub(crate) fn new(page: &'a [u8]) -> Node<'a> {
        Node { page }
    }

    pub(crate) fn level(self) -> u8 {
        level(self.page)
    }

    pub(crate) fn is_leaf(self) -> bool {
        self.level() == 0
    }

    pub(crate) fn tree(self) -> TreeId {
        TreeId(get_u32(self.page, TREE_AT))
    }

    pub(crate) fn count(self) -> usize {
        usize::from(get_u16(self.page, COUNT_AT))
    }

    /// Returns the leaf with the next higher keys, if there is one.
    pub(crate) fn right(self) -> Option<PageId> {
        let right = PageId(get_u64(self.page, RIGHT_AT));
        (!right.is_none()).then_some(right)
    }

    /// Returns the slot of the last insert, if the node has changed otherwise only in values since.
    pub(crate) fn last_insert(self) -> Option<usize> {
        let slot = get_u16(self.page, LAST_AT);
        (slot != NO_SLOT).then_some(usize::from(slot))
    }

    /// Returns how many inserts before the last were next to each other: above 0 ascending, below 0
    /// descending.
    pub(crate) fn run(self) -> i16 {
        get_u16(self.page, RUN_AT).cast_signed()
    }

    pub(crate) fn fences(self) -> Fences<'a> {
        let end = end(self.page);
        let low_at = end - usize::from(get_u16(self.page, LOW_LEN_AT));
        let high_len = get_u16(self.page, HIGH_LEN_AT);
        let high =
            (high_len != NO_FENCE).then(|| &self.page[low_at - usize::from(high_len)..low_at]);
        Fences { low: &self.page[low_at..end], high }
    }

    /// Returns what all keys between the fences begin with.
    pub(crate) fn prefix(self) -> &'a [u8] {
        let low_at = end(self.page) - usize::from(get_u16(self.page, LOW_LEN_AT));
        &self.page[low_at..low_at + self.prefix_len()]
    }

    fn prefix_len(self) -> usize {
        usize::from(get_u16(self.page, PREFIX_AT))
    }

    /// Returns what all keys of the node have behind the prefix.
    fn extension(self) -> &'a [u8] {
        let len = usize::from(get_u16(self.page, EXTENSION_LEN_AT));
        &self.page[EXTENSION_AT..EXTENSION_AT + len]
    }

    /// Returns how much of the extension an entry would leave; `tail` is its key without the
    /// prefix.
    fn shared(self, tail: &[u8]) -> usize {
        if self.count() == 0 {
            return tail.len().min(EXTENSION_MAX);
        }
        common(self.extension(), tail)
    }

    /// Returns the bytes by which each entry grows when only `shared` bytes of the extension stay.
    fn growth(self, shared: usize) -> usize {
        // The first entry brings its own extension.
        if self.count() == 0 { 0 } else { self.extension().len() - shared }
    }

    /// Returns the room that there is for entries.
    pub(crate) fn budget(self) -> Budget {
        let mut extension = [0; EXTENSION_MAX];
        let extension_len = self.extension().len();
        extension[..extension_len].copy_from_slice(self.extension());
        Budget { free: self.free(), count: self.count(), extension, extension_len }
    }

    /// Returns the bytes of each entry with its slot, as they would be with `key` among them, and
    /// those of the entry that `key` and a value of that length would make.
    pub(crate) fn sizes_with(self, key: &[u8], value_len: usize) -> (Vec<usize>, usize) {
        let tail = self.tail(key);
        let shared = self.shared(tail);
        let growth = self.growth(shared);
        let sizes = (0..self.count()).map(|slot| self.entry_bytes(slot) + growth).collect();
        (sizes, SLOT_BYTES + tail.len() - shared + value_len)
    }

    /// Returns a key between the fences without the prefix.
    pub(crate) fn tail(self, key: &[u8]) -> &[u8] {
        // A key outside the fences may be shorter. It comes here only in a damaged tree, whose
        // parts do not belong together; `Tree::check_covers` tells.
        key.get(self.prefix_len()..).unwrap_or_default()
    }

    /// Returns whether `key` lies between the fences.
    pub(crate) fn covers(self, key: &[u8]) -> bool {
        let Fences { low, high } = self.fences();
        low <= key && high.is_none_or(|high| key < high)
    }

    fn heap_start(self) -> usize {
        get_u32(self.page, HEAP_AT) as usize
    }

    fn heap_end(self) -> usize {
        let Fences { low, high } = self.fences();
        end(self.page) - low.len() - high.map_or(0, <[u8]>::len)
    }

    /// Returns whether slots, free bytes, removed entries and entries lie one behind the other, for
    /// assertions.
    fn has_its_bounds(self) -> bool {
        let (start, end) = (self.heap_start(), self.heap_end());
        let garbage = get_u32(self.page, GARBAGE_AT) as usize;
        SLOTS_AT + self.count() * SLOT_BYTES <= start && start + garbage <= end
    }

    /// Returns bytes free for slots and entries, in one piece or not.
    pub(crate) fn free(self) -> usize {
        self.contiguous() + get_u32(self.page, GARBAGE_AT) as usize
    }

    fn contiguous(self) -> usize {
        self.heap_start() - SLOTS_AT - self.count() * SLOT_BYTES
    }

    /// Returns bytes of slots and entries.
    pub(crate) fn used(self) -> usize {
        self.fences().room(self.page.len()) - self.free()
    }

    /// Returns share of the room for slots and entries that is used.
    pub(crate) fn fill(self) -> f64 {
        debug_assert!(self.has_its_bounds(), "entries take no more than there is room");
        self.used() as f64 / self.fences().room(self.page.len()) as f64
    }

    fn slot(self, slot: usize) -> Slot {
        let at = SLOTS_AT + slot * SLOT_BYTES;
        Slot {
            head: get_u32(self.page, at),
            offset: usize::from(get_u16(self.page, at + 4)),
            key_len: usize::from(get_u16(self.page, at + 6)),
            value_len: usize::from(get_u16(self.page, at + 8)),
        }
    }

    /// Returns a key without the prefix and the extension.
    fn rest(self, slot: usize) -> &'a [u8] {
        debug_assert!(slot < self.count(), "slot {slot} of {}", self.count());
        let Slot { offset, key_len, .. } = self.slot(slot);
        &self.page[offset..offset + key_len]
    }

    pub(crate) fn value(self, slot: usize) -> &'a [u8] {
        debug_assert!(slot < self.count(), "slot {slot} of {}", self.count());
        let Slot { offset, key_len, value_len, .. } = self.slot(slot);
        &self.page[offset + key_len..offset + key_len + value_len]
    }

    pub(crate) fn page_bytes(self) -> usize {
        self.page.len()
    }

    /// Returns bytes of an entry with its slot.
    pub(crate) fn entry_bytes(self, slot: usize) -> usize {
        debug_assert!(slot < self.count(), "slot {slot} of {}", self.count());
        let Slot { key_len, value_len, .. } = self.slot(slot);
        SLOT_BYTES + key_len + value_len
    }

    /// Writes a whole key into `key`.
    pub(crate) fn copy_key(self, slot: usize, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(self.prefix());
        key.extend_from_slice(self.extension());
        key.extend_from_slice(self.rest(slot));
    }

    /// Returns a whole key.
    pub(crate) fn key(self, slot: usize) -> Vec<u8> {
        [self.prefix(), self.extension(), self.rest(slot)].concat()
    }

    /// Returns the child that an entry of an inner node points to.
    pub(crate) fn child(self, slot: usize) -> PageId {
        debug_assert!(!self.is_leaf(), "leaves have no children");
        debug_assert_eq!(self.value(slot).len(), size_of::<PageId>());
        PageId(get_u64(self.value(slot), 0))
    }

    /// Returns the slot of `key`, or the one that it would have. The key lies between the fences.
    pub(crate) fn search(self, key: &[u8]) -> Result<usize, usize> {
        let (tail, extension) = (self.tail(key), self.extension());
        let shared = common(extension, tail);
        if shared == extension.len() {
            return self.search_rest(&tail[shared..]);
        }
        if tail.get(shared) < extension.get(shared) { Err(0) } else { Err(self.count()) }
    }

    /// Searches by heads alone first, which are next to each other and mostly suffice. Keys with
    /// the same head are compared by the rest behind it.
    fn search_rest(self, rest: &[u8]) -> Result<usize, usize> {
        let wanted = head(rest);
        let (slots, _) = self.page[SLOTS_AT..].as_chunks::<SLOT_BYTES>();
        let slots = &slots[..self.count()];
        work::count(Operation::Comparison, 1 + u64::from(slots.len().checked_ilog2().unwrap_or(0)));
        let mut low = slots.partition_point(|slot| get_u32(slot, 0) < wanted);
        let mut high = slots.len();
        // The first of them is looked at first: as a rule there is no other.
        let mut middle = low;
        while low < high {
            let ordering = match get_u32(&slots[middle], 0).cmp(&wanted) {
                Ordering::Equal => self.compare_rest(middle, rest),
                other => other,
            };
            match ordering {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
            middle = usize::midpoint(low, high);
        }
        Err(low)
    }

    /// Returns how the rest of a slot's key compares with one that has the same head.
    fn compare_rest(self, slot: usize, rest: &[u8]) -> Ordering {
        let Slot { offset, key_len, .. } = self.slot(slot);
        if key_len <= HEAD_BYTES && rest.len() <= HEAD_BYTES {
            // The shorter is the other's beginning, and zeros follow there.
            return key_len.cmp(&rest.len());
        }
        self.page[offset..offset + key_len].cmp(rest)
    }

    /// Returns the slot of an inner node's child for `key`.
    pub(crate) fn child_slot(self, key: &[u8]) -> usize {
        debug_assert!(!self.is_leaf() && self.count() > 0, "an inner node has a child");
        match self.search(key) {
            Ok(slot) => slot,
            // The first key is the low fence, so only a key outside the fences is below it.
            Err(slot) => slot.saturating_sub(1),
        }
    }

    /// Returns whether an entry has room, with its slot.
    pub(crate) fn has_room(self, key: &[u8], value_len: usize) -> bool {
        let tail = self.tail(key);
        self.cost(tail, self.shared(tail), value_len) <= self.free()
    }

    /// Returns bytes that an entry takes with its slot, and with those by which the others grow
    /// because only so much of the extension is left.
    fn cost(self, tail: &[u8], shared: usize, value_len: usize) -> usize {
        SLOT_BYTES + tail.len() - shared + value_len + self.growth(shared) * self.count()
    }

    /// Returns whether an entry has room whatever its key is, if that is so long.
    pub(crate) fn has_room_for_any(self, key_len: usize, value_len: usize) -> bool {
        let tail_len = key_len.saturating_sub(self.prefix_len());
        let growth = self.extension().len() * self.count();
        SLOT_BYTES + tail_len + value_len + growth <= self.free()
    }

    /// Checks that everything is where it may be. Afterwards no other method goes out of bounds,
    /// and keys are in order and between the fences.
    pub(crate) fn check(self) -> Result<(), &'static str> {
        self.check_bounds()?;
        let Fences { low, high } = self.fences();
        if high.is_some_and(|high| high <= low) {
            return Err("its fences are out of order");
        }
        let prefix_len = self.fences().prefix_len();
        if self.prefix_len() > prefix_len {
            return Err("its prefix is longer than what the fences share");
        }
        let mut last: Option<(u32, &[u8])> = None;
        for slot in 0..self.count() {
            let (head_there, rest) = (self.slot(slot).head, self.rest(slot));
            if head_there != head(rest) {
                return Err("a slot's head is not its key's");
            }
            let is_above = |(head, other)| head < head_there || head == head_there && other < rest;
            if !last.is_none_or(is_above) {
                return Err("its keys are out of order");
            }
            last = Some((head_there, rest));
        }
        match self.count() {
            0 => Ok(()),
            count if self.covers(&self.key(0)) && self.covers(&self.key(count - 1)) => Ok(()),
            _ => Err("a key lies outside the fences"),
        }
    }

    fn check_bounds(self) -> Result<(), &'static str> {
        let bytes = end(self.page);
        let low = usize::from(get_u16(self.page, LOW_LEN_AT));
        let high = match get_u16(self.page, HIGH_LEN_AT) {
            NO_FENCE => 0,
            len => usize::from(len),
        };
        let slots_end = SLOTS_AT + self.count() * SLOT_BYTES;
        if low + high + slots_end > bytes || self.prefix_len() > low {
            return Err("its fences do not fit into it");
        }
        if usize::from(get_u16(self.page, EXTENSION_LEN_AT)) > EXTENSION_MAX {
            return Err("its extension is too long");
        }
        let (heap_start, heap_end) = (self.heap_start(), bytes - low - high);
        if heap_start < slots_end || heap_start > heap_end {
            return Err("its slots and its entries overlap");
        }
        let mut entries = 0;
        for slot in 0..self.count() {
            let Slot { offset, key_len, value_len, .. } = self.slot(slot);
            if offset < heap_start || offset + key_len + value_len > heap_end {
                return Err("an entry lies outside its place");
            }
            if !self.is_leaf() && value_len != 8 {
                return Err("a child has no page number");
            }
            entries += key_len + value_len;
        }
        if entries + get_u32(self.page, GARBAGE_AT) as usize != heap_end - heap_start {
            return Err("its entries do not add up");
        }
        Ok(())
    }
}

/// The room that a node has for entries while it is being given out.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    free: usize,
    count: usize,
    extension: [u8; EXTENSION_MAX],
    extension_len: usize,
}

impl Budget {
    /// Returns the budget of a node with so much room and no entries.
    pub(crate) fn of_empty(room: usize) -> Budget {
        Budget { free: room, count: 0, extension: [0; EXTENSION_MAX], extension_len: 0 }
    }

    /// Keeps so many bytes back, or what there is.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.free = self.free.saturating_sub(bytes);
    }

    /// Takes the room of an entry, if there is so much: its own bytes with its slot, and those by
    /// which the others grow because the extension gets shorter.
    pub(crate) fn take(&mut self, tail: &[u8], value_len: usize) -> bool {
        let (mut extension, mut len) = (self.extension, self.extension_len);
        if self.count == 0 {
            len = tail.len().min(EXTENSION_MAX);
            extension[..len].copy_from_slice(&tail[..len]);
        }
        let shared = common(&extension[..len], tail);
        let growth = (len - shared) * self.count;
        let cost = SLOT_BYTES + tail.len() - shared + value_len + growth;
        if cost > self.free {
            return false;
        }
        debug_assert!(shared <= EXTENSION_MAX, "an extension only gets shorter");
        *self = Budget {
            free: self.free - cost,
            count: self.count + 1,
            extension,
            extension_len: shared,
        };
        true
    }
}

/// A node to be changed.
pub(crate) struct NodeMut<'a> {
    page: &'a mut [u8],
}

impl<'a> NodeMut<'a> {
    pub(crate) fn new(page: &'a mut [u8]) -> NodeMut<'a> {
        NodeMut { page }
    }

    pub(crate) fn as_node(&self) -> Node<'_> {
        Node::new(self.page)
    }

    /// Makes the page an empty node.
    pub(crate) fn format(
        &mut self,
        id: PageId,
        tree: TreeId,
        level: u8,
        fences: &Fences<'_>,
        right: PageId,
    ) {
        format(self.page, id, Kind::Node, level);
        put_u32(self.page, TREE_AT, tree.0);
        self.set_right(right);
        self.write_fences(fences);
        self.forget_inserts();
    }

    fn write_fences(&mut self, fences: &Fences<'_>) {
        debug_assert!(fences.high.is_none_or(|high| fences.low < high), "fences are in order");
        let end = end(self.page);
        let low_at = end - fences.low.len();
        self.page[low_at..end].copy_from_slice(fences.low);
        let high_at = low_at - fences.high.map_or(0, <[u8]>::len);
        self.page[high_at..low_at].copy_from_slice(fences.high.unwrap_or_default());
        put_u16(self.page, LOW_LEN_AT, short(fences.low.len()));
        put_u16(self.page, HIGH_LEN_AT, fences.high.map_or(NO_FENCE, |high| short(high.len())));
        put_u16(self.page, PREFIX_AT, short(fences.prefix_len()));
        put_u32(self.page, HEAP_AT, long(high_at));
    }

    pub(crate) fn set_right(&mut self, right: PageId) {
        put_u64(self.page, RIGHT_AT, right.0);
    }

    fn forget_inserts(&mut self) {
        put_u16(self.page, LAST_AT, NO_SLOT);
        put_u16(self.page, RUN_AT, 0);
    }

    /// Says where the last insert was and how long the run of neighbours before it is.
    pub(crate) fn set_last_insert(&mut self, slot: usize, run: i16) {
        debug_assert!(slot < self.as_node().count(), "what was inserted is there");
        put_u16(self.page, LAST_AT, short(slot));
        put_u16(self.page, RUN_AT, run.cast_unsigned());
    }

    /// Inserts an entry at `slot`. `tail` is the key without the prefix.
    pub(crate) fn insert(&mut self, slot: usize, tail: &[u8], value: &[u8]) -> Result<(), Full> {
        let node = self.as_node();
        debug_assert!(slot <= node.count(), "slots have no gap");
        let shared = node.shared(tail);
        if node.cost(tail, shared, value.len()) > node.free() {
            return Err(Full);
        }
        self.extend(tail, shared);
        let rest = &tail[shared..];
        if SLOT_BYTES + rest.len() + value.len() > self.as_node().contiguous() {
            self.compact();
        }
        let count = self.as_node().count();
        let (at, end) = (SLOTS_AT + slot * SLOT_BYTES, SLOTS_AT + count * SLOT_BYTES);
        self.page.copy_within(at..end, at + SLOT_BYTES);
        put_u16(self.page, COUNT_AT, short(count + 1));
        let offset = self.place(&[], rest, value);
        self.write_slot(slot, offset, rest.len(), value.len());
        debug_assert!(self.as_node().has_its_bounds(), "an insert keeps the node sound");
        Ok(())
    }

    /// Makes the extension the first `shared` bytes of `tail`.
    fn extend(&mut self, tail: &[u8], shared: usize) {
        debug_assert!(shared <= EXTENSION_MAX, "an extension has its place in the header");
        let node = self.as_node();
        if node.count() == 0 {
            let end = EXTENSION_AT + shared;
            self.page[EXTENSION_AT..end].copy_from_slice(&tail[..shared]);
            self.page[end..EXTENSION_AT + EXTENSION_MAX].fill(0);
            put_u16(self.page, EXTENSION_LEN_AT, short(shared));
        } else if shared < node.extension().len() {
            self.rebuild(shared);
        }
    }

    /// Counts an insert at `slot` for the split policy that looks for runs of neighbours
    /// (structural-deterioration study, section 4).
    pub(crate) fn note_insert(&mut self, slot: usize) {
        let node = self.as_node();
        let run = node.run();
        let run = match node.last_insert() {
            Some(last) if slot == last + 1 => run.max(0).saturating_add(1),
            Some(last) if slot == last => run.min(0).saturating_sub(1),
            _ => 0,
        };
        self.set_last_insert(slot, run);
    }

    /// Replaces the value of the entry at `slot`.
    pub(crate) fn replace(&mut self, slot: usize, value: &[u8]) -> Result<(), Full> {
        debug_assert!(slot < self.as_node().count(), "only what is there is replaced");
        let old = self.as_node().slot(slot);
        if old.value_len == value.len() {
            let at = old.offset + old.key_len;
            self.page[at..at + value.len()].copy_from_slice(value);
            return Ok(());
        }
        if old.key_len + value.len() > self.as_node().free() + old.key_len + old.value_len {
            return Err(Full);
        }
        let tail = [self.as_node().extension(), self.as_node().rest(slot)].concat();
        let (last, run) = (get_u16(self.page, LAST_AT), get_u16(self.page, RUN_AT));
        self.remove(slot);
        let done = self.insert(slot, &tail, value);
        put_u16(self.page, LAST_AT, last);
        put_u16(self.page, RUN_AT, run);
        done
    }

    /// Removes the entry at `slot`.
    pub(crate) fn remove(&mut self, slot: usize) {
        let node = self.as_node();
        debug_assert!(slot < node.count(), "slot {slot} of {}", node.count());
        let (count, old) = (node.count(), node.slot(slot));
        let garbage = get_u32(self.page, GARBAGE_AT) as usize + old.key_len + old.value_len;
        let (at, end) = (SLOTS_AT + slot * SLOT_BYTES, SLOTS_AT + count * SLOT_BYTES);
        self.page.copy_within(at + SLOT_BYTES..end, at);
        put_u16(self.page, COUNT_AT, short(count - 1));
        put_u32(self.page, GARBAGE_AT, long(garbage));
        self.forget_inserts();
        if count == 1 {
            self.compact();
        }
        debug_assert!(self.as_node().has_its_bounds(), "a removal keeps the node sound");
    }

    /// Makes the node one of `fences` that keeps only `slots` of its entries.
    pub(crate) fn narrow(
        &mut self,
        slots: std::ops::Range<usize>,
        fences: &Fences<'_>,
    ) -> Result<(), Full> {
        let old = self.page.to_vec();
        let old = Node::new(&old);
        debug_assert!(slots.end <= old.count(), "only what is there is kept");
        self.clear();
        self.write_fences(fences);
        let (first, end) = (slots.start, slots.end);
        let mut key = Vec::new();
        for slot in slots {
            old.copy_key(slot, &mut key);
            let tail = self.as_node().tail(&key);
            self.insert(self.as_node().count(), tail, old.value(slot))?;
        }
        if let Some(last) = old.last_insert().filter(|&last| (first..end).contains(&last)) {
            self.set_last_insert(last - first, old.run());
        }
        Ok(())
    }

    fn clear(&mut self) {
        put_u16(self.page, COUNT_AT, 0);
        put_u32(self.page, GARBAGE_AT, 0);
        self.forget_inserts();
    }

    /// Moves all entries to the end, so that what is free is in one piece.
    fn compact(&mut self) {
        self.rebuild(self.as_node().extension().len());
    }

    /// Writes all entries anew, with only so much of the extension, for which there is room.
    fn rebuild(&mut self, extension_len: usize) {
        let old = self.page.to_vec();
        let old = Node::new(&old);
        let moved = &old.extension()[extension_len..];
        debug_assert!(moved.len() * old.count() <= old.free(), "longer entries have room");
        put_u16(self.page, EXTENSION_LEN_AT, short(extension_len));
        self.page[EXTENSION_AT + extension_len..EXTENSION_AT + EXTENSION_MAX].fill(0);
        put_u32(self.page, HEAP_AT, long(old.heap_end()));
        put_u32(self.page, GARBAGE_AT, 0);
        for slot in 0..old.count() {
            let (rest, value) = (old.rest(slot), old.value(slot));
            let offset = self.place(moved, rest, value);
            self.write_slot(slot, offset, moved.len() + rest.len(), value.len());
        }
        debug_assert!(self.as_node().has_its_bounds(), "entries are moved, not changed");
    }

    /// Writes an entry below the others, with the rest of its key in two pieces, and returns where.
    fn place(&mut self, front: &[u8], rest: &[u8], value: &[u8]) -> usize {
        let offset = self.as_node().heap_start() - front.len() - rest.len() - value.len();
        debug_assert!(offset >= SLOTS_AT, "the entry has room");
        let mut at = offset;
        for piece in [front, rest, value] {
            self.page[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        put_u32(self.page, HEAP_AT, long(offset));
        offset
    }

    fn write_slot(&mut self, slot: usize, offset: usize, rest_len: usize, value_len: usize) {
        debug_assert!(slot < self.as_node().count(), "a slot that is written is counted");
        let at = SLOTS_AT + slot * SLOT_BYTES;
        let head = head(&self.page[offset..offset + rest_len]);
        put_u32(self.page, at, head);
        put_u16(self.page, at + 4, short(offset));
        put_u16(self.page, at + 6, short(rest_len));
        put_u16(self.page, at + 8, short(value_len));
    }
}
