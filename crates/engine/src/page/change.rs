//! What can be done to a page, as the log has it.
//!
//! A [`Change`] is applied by one function, [`Change::apply`], when it is made and when it is made
//! again in recovery. That function depends on nothing but the page and the change, so both lead to
//! the same bytes. All numbers are little-endian; the first byte says which change it is.

use thiserror::Error;

use super::node::{Fences, NodeMut};
use super::space::{pages_per_map, set_used};
use super::{Kind, PageId, TreeId, format, kind};
use crate::bytes::{Reader, Short, put_short_bytes};

/// A change of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// The page becomes a map of free pages.
    FormatMap,
    /// The page becomes an empty node.
    FormatNode { tree: TreeId, level: u8, fences: Fences<'a>, right: PageId },
    /// The page is freed.
    Free,
    /// An entry is put at a slot; its key comes without the node's prefix.
    Insert { slot: u16, tail: &'a [u8], value: &'a [u8] },
    /// The entry at a slot gets another value.
    Replace { slot: u16, value: &'a [u8] },
    /// The entry at a slot is removed.
    Remove { slot: u16 },
    /// Entries are put behind the last, see [`Entries`].
    Append { entries: &'a [u8] },
    /// Only the slots from `from` up to `to` stay, between other fences.
    Narrow { from: u16, to: u16, fences: Fences<'a> },
    /// The leaf to the right is another.
    Link { right: PageId },
    /// A page is in use from now on, or no longer.
    Mark { bit: u32, is_used: bool },
}

/// A change that does not fit the page, or is none: the log does not belong to the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a logged change does not fit: {0}")]
pub(crate) struct ChangeError(pub(crate) &'static str);

const FORMAT_MAP: u8 = 2;
const FORMAT_NODE: u8 = 3;
const FREE: u8 = 4;
const INSERT: u8 = 5;
const REPLACE: u8 = 6;
const REMOVE: u8 = 7;
const APPEND: u8 = 8;
const NARROW: u8 = 9;
const LINK: u8 = 10;
const MARK: u8 = 11;

impl From<Short> for ChangeError {
    fn from(_: Short) -> Self {
        ChangeError("it ends too early")
    }
}

fn read_fences<'a>(reader: &mut Reader<'a>) -> Result<Fences<'a>, Short> {
    let low = reader.short_bytes()?;
    let high = if reader.u8()? == 0 { None } else { Some(reader.short_bytes()?) };
    Ok(Fences { low, high })
}

fn put_fences(out: &mut Vec<u8>, fences: &Fences<'_>) {
    put_short_bytes(out, fences.low);
    out.push(u8::from(fences.high.is_some()));
    if let Some(high) = fences.high {
        put_short_bytes(out, high);
    }
}

/// Entries in a row: a key without the prefix and a value each, with their lengths before them.
pub(crate) struct Entries;

impl Entries {
    pub(crate) fn put(out: &mut Vec<u8>, tail: &[u8], value: &[u8]) {
        put_short_bytes(out, tail);
        put_short_bytes(out, value);
    }
}

impl<'a> Change<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Change::FormatMap => out.push(FORMAT_MAP),
            Change::FormatNode { tree, level, ref fences, right } => {
                out.push(FORMAT_NODE);
                out.extend_from_slice(&tree.0.to_le_bytes());
                out.push(level);
                put_fences(out, fences);
                out.extend_from_slice(&right.0.to_le_bytes());
            }
            Change::Free => out.push(FREE),
            Change::Insert { slot, tail, value } => {
                out.push(INSERT);
                out.extend_from_slice(&slot.to_le_bytes());
                put_short_bytes(out, tail);
                out.extend_from_slice(value);
            }
            Change::Replace { slot, value } => {
                out.push(REPLACE);
                out.extend_from_slice(&slot.to_le_bytes());
                out.extend_from_slice(value);
            }
            Change::Remove { slot } => {
                out.push(REMOVE);
                out.extend_from_slice(&slot.to_le_bytes());
            }
            Change::Append { entries } => {
                out.push(APPEND);
                out.extend_from_slice(entries);
            }
            Change::Narrow { from, to, ref fences } => {
                out.push(NARROW);
                out.extend_from_slice(&from.to_le_bytes());
                out.extend_from_slice(&to.to_le_bytes());
                put_fences(out, fences);
            }
            Change::Link { right } => {
                out.push(LINK);
                out.extend_from_slice(&right.0.to_le_bytes());
            }
            Change::Mark { bit, is_used } => {
                out.push(MARK);
                out.extend_from_slice(&bit.to_le_bytes());
                out.push(u8::from(is_used));
            }
        }
    }

    /// Decodes a change, which takes all of `bytes`.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Change<'a>, ChangeError> {
        let mut reader = Reader::new(bytes);
        let change = match reader.u8()? {
            FORMAT_MAP => Change::FormatMap,
            FORMAT_NODE => Change::FormatNode {
                tree: TreeId(reader.u32()?),
                level: reader.u8()?,
                fences: read_fences(&mut reader)?,
                right: PageId(reader.u64()?),
            },
            FREE => Change::Free,
            INSERT => Change::Insert {
                slot: reader.u16()?,
                tail: reader.short_bytes()?,
                value: reader.rest(),
            },
            REPLACE => Change::Replace { slot: reader.u16()?, value: reader.rest() },
            REMOVE => Change::Remove { slot: reader.u16()? },
            APPEND => Change::Append { entries: reader.rest() },
            NARROW => Change::Narrow {
                from: reader.u16()?,
                to: reader.u16()?,
                fences: read_fences(&mut reader)?,
            },
            LINK => Change::Link { right: PageId(reader.u64()?) },
            MARK => Change::Mark { bit: reader.u32()?, is_used: reader.u8()? != 0 },
            _ => return Err(ChangeError("its kind is not known")),
        };
        if reader.is_empty() { Ok(change) } else { Err(ChangeError("it is too long")) }
    }

    /// Makes the change. Only the LSN is left to the caller.
    ///
    /// # Errors
    /// The page is not one that can be changed so; it may then be changed in part.
    pub(crate) fn apply(&self, page: &mut [u8], id: PageId) -> Result<(), ChangeError> {
        match *self {
            Change::FormatMap => {
                format(page, id, Kind::SpaceMap, 0);
                Ok(())
            }
            Change::FormatNode { tree, level, ref fences, right } => {
                check_fences(page, fences)?;
                NodeMut::new(page).format(id, tree, level, fences, right);
                Ok(())
            }
            Change::Free => {
                format(page, id, Kind::Free, 0);
                Ok(())
            }
            Change::Mark { bit, is_used } => mark(page, bit as usize, is_used),
            Change::Link { right } => {
                node(page)?.set_right(right);
                Ok(())
            }
            Change::Append { entries } => append(&mut node(page)?, entries),
            Change::Narrow { from, to, ref fences } => {
                check_fences(page, fences)?;
                let slots = usize::from(from)..usize::from(to);
                let mut node = node(page)?;
                if slots.start > slots.end || slots.end > node.as_node().count() {
                    return Err(ChangeError("there is no such slot"));
                }
                node.narrow(slots, fences).map_err(|_| ChangeError("there is no room"))
            }
            Change::Insert { slot, tail, value } => insert(&mut node(page)?, slot, tail, value),
            Change::Replace { slot, value } => {
                let (mut node, slot) = (node(page)?, usize::from(slot));
                check_slot(&node, slot)?;
                node.replace(slot, value).map_err(|_| ChangeError("there is no room"))
            }
            Change::Remove { slot } => {
                let (mut node, slot) = (node(page)?, usize::from(slot));
                check_slot(&node, slot)?;
                node.remove(slot);
                Ok(())
            }
        }
    }
}

fn node(page: &mut [u8]) -> Result<NodeMut<'_>, ChangeError> {
    if kind(page) == Kind::Node {
        Ok(NodeMut::new(page))
    } else {
        Err(ChangeError("the page is no node"))
    }
}

fn check_slot(node: &NodeMut<'_>, slot: usize) -> Result<(), ChangeError> {
    if slot < node.as_node().count() { Ok(()) } else { Err(ChangeError("there is no such slot")) }
}

fn check_fences(page: &[u8], fences: &Fences<'_>) -> Result<(), ChangeError> {
    let bytes = fences.low.len() + fences.high.map_or(0, <[u8]>::len);
    if bytes <= page.len() / 2 { Ok(()) } else { Err(ChangeError("its fences do not fit")) }
}

fn mark(page: &mut [u8], bit: usize, is_used: bool) -> Result<(), ChangeError> {
    if kind(page) != Kind::SpaceMap {
        return Err(ChangeError("the page is no map"));
    }
    if bit as u64 >= pages_per_map(page.len()) {
        return Err(ChangeError("the map has no such bit"));
    }
    set_used(page, bit, is_used);
    Ok(())
}

fn insert(node: &mut NodeMut<'_>, slot: u16, tail: &[u8], value: &[u8]) -> Result<(), ChangeError> {
    let slot = usize::from(slot);
    if slot > node.as_node().count() {
        return Err(ChangeError("there is no such slot"));
    }
    node.insert(slot, tail, value).map_err(|_| ChangeError("there is no room"))?;
    node.note_insert(slot);
    Ok(())
}

fn append(node: &mut NodeMut<'_>, entries: &[u8]) -> Result<(), ChangeError> {
    let mut reader = Reader::new(entries);
    while !reader.is_empty() {
        let (tail, value) = (reader.short_bytes()?, reader.short_bytes()?);
        let slot = node.as_node().count();
        node.insert(slot, tail, value).map_err(|_| ChangeError("there is no room"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Node;

    const ID: PageId = PageId(9);

    fn examples() -> Vec<Change<'static>> {
        let fences = Fences { low: b"abc", high: Some(b"abd") };
        let right = PageId(4);
        vec![
            Change::FormatMap,
            Change::FormatNode { tree: TreeId(5), level: 1, fences, right },
            Change::Free,
            Change::Insert { slot: 2, tail: b"key", value: b"value" },
            Change::Replace { slot: 2, value: b"" },
            Change::Remove { slot: 7 },
            Change::Append { entries: b"\x01\x00k\x01\x00v" },
            Change::Narrow { from: 1, to: 2, fences: Fences { low: b"", high: None } },
            Change::Link { right },
            Change::Mark { bit: 77, is_used: true },
        ]
    }

    #[test]
    fn every_change_is_read_as_it_was_written() {
        for change in examples() {
            let mut bytes = Vec::new();
            change.encode(&mut bytes);
            assert_eq!(Change::decode(&bytes), Ok(change));
        }
        assert!(Change::decode(&[]).is_err() && Change::decode(&[99]).is_err());
    }

    #[test]
    fn a_change_that_does_not_fit_the_page_is_refused() {
        for change in examples() {
            let mut blank = vec![0; 4096];
            let is_format =
                matches!(change, Change::FormatMap | Change::FormatNode { .. } | Change::Free);
            assert_eq!(change.apply(&mut blank, ID).is_ok(), is_format, "{change:?}");
        }
        let mut page = vec![0; 4096];
        let fences = Fences { low: b"", high: None };
        let right = PageId::NONE;
        let format = Change::FormatNode { tree: TreeId(1), level: 0, fences, right };
        format.apply(&mut page, ID).unwrap();
        let long = vec![0; 5000];
        for change in [
            Change::Insert { slot: 1, tail: b"k", value: b"" },
            Change::Insert { slot: 0, tail: b"k", value: &long },
            Change::Replace { slot: 0, value: b"" },
            Change::Remove { slot: 0 },
            Change::Append { entries: b"\x09\x00k" },
            Change::Narrow { from: 0, to: 1, fences },
            Change::Narrow { from: 0, to: 0, fences: Fences { low: &long, high: None } },
        ] {
            assert!(change.apply(&mut page, ID).is_err(), "{change:?}");
        }
        assert_eq!(Node::new(&page).check(), Ok(()));
    }
}
