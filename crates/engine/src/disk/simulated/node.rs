//! One file: what is synced, what is written, and what lies between the two.

use std::sync::Arc;

use super::image::Image;
use super::random::Random;
use super::survival;

/// * Without failed syncs `written` is `synced` with all of `pending` applied. A failed sync
///   empties `pending` and leaves `written` as it is.
#[derive(Clone, Default)]
pub(super) struct Node {
    /// What no crash takes away.
    synced: Image,
    /// What a read sees.
    written: Image,
    /// What was done since the last sync, in order.
    pending: Vec<Change>,
    /// How many open files lead here.
    pub(super) handles: usize,
}

#[derive(Clone)]
pub(super) enum Change {
    Write { at: usize, bytes: Arc<[u8]> },
    Length(usize),
}

impl Change {
    pub(super) fn apply(&self, image: &mut Image) {
        match self {
            Change::Write { at, bytes } => image.write(bytes, *at),
            Change::Length(len) => image.set_len(*len),
        }
    }

    /// Returns the length of a file of length `len` after this.
    pub(super) fn len_after(&self, len: usize) -> usize {
        match self {
            Change::Write { at, bytes } => len.max(at + bytes.len()),
            Change::Length(len) => *len,
        }
    }
}

impl Node {
    /// Returns a file that holds `image`, safely.
    pub(super) fn durable(image: Image) -> Node {
        Node { written: image.clone(), synced: image, ..Node::default() }
    }

    pub(super) fn synced(&self) -> &Image {
        &self.synced
    }

    pub(super) fn written(&self) -> &Image {
        &self.written
    }

    pub(super) fn write(&mut self, bytes: &[u8], at: usize) {
        if !bytes.is_empty() {
            self.change(Change::Write { at, bytes: bytes.into() });
        }
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.change(Change::Length(len));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.written);
        self.pending.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.synced);
        }
    }

    /// Fails a sync: part of what is pending becomes durable and the rest never will.
    pub(super) fn fail_to_sync(&mut self, random: &mut Random) {
        self.synced = survival::survivor(&self.synced, &self.pending, random, &[]);
        self.pending.clear();
    }

    /// Returns what a loss of power leaves, see [`survival::survivor`].
    pub(super) fn survivor(&self, random: &mut Random, stale: &[Image]) -> Image {
        if self.pending.is_empty() {
            return self.synced.clone();
        }
        survival::survivor(&self.synced, &self.pending, random, stale)
    }

    /// Changes a file at rest behind the back of its users: what is pending is written out first.
    pub(super) fn damage(&mut self, damage: impl Fn(&mut Image)) {
        self.sync();
        damage(&mut self.synced);
        damage(&mut self.written);
    }
}
