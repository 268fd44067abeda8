//! Warnings of transactions that no longer count against the limit: which are given, and how many.
//!
//! The gate knows a permit, its class and its age. Whose it is, only the worker knows that serves
//! the client, so each of them is asked, and the one that has the permit writes the warning.

use std::time::{Duration, Instant};

use tidegate_gate::{Discounted, PermitId};

use crate::mailbox::Letter;
use crate::shared::Shared;

/// Holders of one server that are named within [`WINDOW`], at most.
const NAMED_MAX: u64 = 5;

const WINDOW: Duration = Duration::from_secs(10);

/// A permit whose holder is to be named in a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Index of the server whose gate gave the permit.
    pub(crate) server: usize,
    pub(crate) permit: PermitId,
    /// How long it had been out when it was discounted.
    pub(crate) age: Duration,
    /// Discounted permits that were not named since the last warning.
    pub(crate) unnamed: u64,
}

/// The warnings about one server.
#[derive(Debug)]
pub(crate) struct HolderWarnings {
    server: usize,
    window: Option<Instant>,
    named: u64,
    unnamed: u64,
}

impl HolderWarnings {
    pub(crate) fn new(server: usize) -> HolderWarnings {
        HolderWarnings { server, window: None, named: 0, unnamed: 0 }
    }

    /// Has the holders named that may be; the others are counted.
    pub(crate) fn give(&mut self, discounted: &[Discounted], shared: &Shared, now: Instant) {
        for &permit in discounted {
            if let Some(holder) = self.next(permit, now) {
                for mailbox in &shared.mailboxes {
                    mailbox.post(Letter::Discounted(holder));
                }
            }
        }
    }

    fn next(&mut self, discounted: Discounted, now: Instant) -> Option<Holder> {
        if self.window.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            (self.window, self.named) = (Some(now), 0);
        }
        if self.named >= NAMED_MAX {
            self.unnamed += 1;
            return None;
        }
        self.named += 1;
        let Discounted { permit, age, .. } = discounted;
        let unnamed = std::mem::take(&mut self.unnamed);
        Some(Holder { server: self.server, permit, age, unnamed })
    }
}
