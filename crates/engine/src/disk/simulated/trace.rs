//! The last operations of a disk, to be read when a test has failed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// How many are remembered.
const TRACED: usize = 64;

#[derive(Clone, Default)]
pub(super) struct Trace(VecDeque<Traced>);

/// One operation, and how it ended.
#[derive(Clone)]
struct Traced {
    number: u64,
    what: What,
    outcome: Outcome,
}

/// What an operation does to which file.
#[derive(Clone)]
pub(super) struct What {
    pub(super) act: Act,
    pub(super) name: Arc<str>,
}

/// What an operation does; offsets and lengths in bytes.
#[derive(Clone, Copy)]
pub(super) enum Act {
    Read { offset: u64, len: usize },
    Write { offset: u64, len: usize },
    SetLen(u64),
    Sync,
    Make,
    Remove,
    Rename,
    SyncDirectory,
}

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// With an I/O error, perhaps in its middle.
    Failed,
    /// In its middle, with everything else.
    Interrupted,
    /// For want of room, perhaps in its middle.
    Full,
}

impl Trace {
    pub(super) fn push(&mut self, number: u64, what: What, outcome: Outcome) {
        if self.0.len() == TRACED {
            self.0.pop_front();
        }
        self.0.push_back(Traced { number, what, outcome });
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Traced { number, what, outcome } in &self.0 {
            let end = match outcome {
                Outcome::Done => "",
                Outcome::Failed => ": failed",
                Outcome::Interrupted => ": interrupted, the machine is off",
                Outcome::Full => ": no room",
            };
            writeln!(formatter, "{number:>6} {what}{end}")?;
        }
        Ok(())
    }
}

impl fmt::Display for What {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.act {
            Act::Read { offset, len } => write!(formatter, "read {name}, {len} bytes at {offset}"),
            Act::Write { offset, len } => {
                write!(formatter, "write {name}, {len} bytes at {offset}")
            }
            Act::SetLen(len) => write!(formatter, "set length of {name} to {len}"),
            Act::Sync => write!(formatter, "sync {name}"),
            Act::Make => write!(formatter, "make {name}"),
            Act::Remove => write!(formatter, "remove {name}"),
            Act::Rename => write!(formatter, "rename {name}"),
            Act::SyncDirectory => write!(formatter, "sync the directory"),
        }
    }
}
