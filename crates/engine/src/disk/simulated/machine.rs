//! The machine that a simulated disk is in: it counts operations, and fails as it was told to.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use super::directory::{Directory, Names, NodeId};
use super::image::Image;
use super::node::Node;
use super::random::Random;
use super::survival::sectors;
use super::trace::{Act, Outcome, Trace, What};
use super::{Crash, Faults};
use crate::disk::{Open, SECTOR, check_name};

/// The longest file, in bytes. A test that wants more has lost its way.
const LEN_MAX: u64 = 1 << 34;

/// How many removed files are remembered, for what they held to turn up again.
const FREED_MAX: usize = 8;

/// * Every name, also a durable one and one in a pending step, leads to a node.
#[derive(Clone)]
pub(super) struct Machine {
    random: Random,
    faults: Faults,
    operations: u64,
    /// The last operation that is carried out.
    last: Option<u64>,
    /// The operation after which one fails.
    before_failure: Option<u64>,
    is_off: bool,
    directory: Directory,
    nodes: BTreeMap<NodeId, Node>,
    next_node: u64,
    freed: VecDeque<Image>,
    trace: Trace,
}

/// An open file.
pub(super) struct Handle {
    node: NodeId,
    name: Arc<str>,
}

impl Machine {
    pub(super) fn new(seed: u64, faults: Faults) -> Machine {
        Machine::with(Random::new(seed), Directory::default(), BTreeMap::new(), faults)
    }

    fn with(
        random: Random,
        directory: Directory,
        nodes: BTreeMap<NodeId, Node>,
        faults: Faults,
    ) -> Machine {
        let next_node = nodes.keys().last().map_or(0, |node| node.0 + 1);
        Machine {
            random,
            faults,
            operations: 0,
            last: faults.crash_after,
            before_failure: faults.fail_after,
            is_off: false,
            directory,
            nodes,
            next_node,
            freed: VecDeque::new(),
            trace: Trace::default(),
        }
    }

    pub(super) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        let after = |more: u64| self.operations.saturating_add(more);
        self.last = faults.crash_after.map(after);
        self.before_failure = faults.fail_after.map(after);
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    pub(super) fn is_off(&self) -> bool {
        self.is_off
    }

    pub(super) fn trace(&self) -> String {
        self.trace.to_string()
    }

    /// Returns the durable names and what is synced under them.
    pub(super) fn image(&self) -> BTreeMap<String, Vec<u8>> {
        let names = self.directory.durable_names().iter();
        let content = |id: &NodeId| self.nodes.get(id).map(|node| node.synced().to_vec());
        names.filter_map(|(name, id)| Some((name.clone(), content(id)?))).collect()
    }

    /// Returns the same machine again, with no file open.
    pub(super) fn fork(&self) -> Machine {
        let mut fork = self.clone();
        fork.nodes.values_mut().for_each(|node| node.handles = 0);
        fork.free_unused();
        fork
    }

    /// Returns the machine as it is found after a crash.
    pub(super) fn crash(&mut self, how: Crash) -> Machine {
        let mut random = Random::new(self.random.draw());
        let after = Random::new(self.random.draw());
        match how {
            Crash::Kept => {
                let Machine { directory, nodes, freed, .. } = self.fork();
                let killed = Machine::with(after, directory, nodes, Faults::default());
                Machine { freed, ..killed }
            }
            Crash::Lost => {
                let names = self.directory.durable_names().clone();
                self.restarted(after, names, |node| node.synced().clone())
            }
            Crash::Random => {
                let names = self.directory.survivors_in_order(&mut random);
                self.restarted(after, names, |node| node.survivor(&mut random, &[]))
            }
            Crash::Weak => {
                let names = self.directory.survivors_in_no_order(&mut random);
                let images = self.nodes.values().map(Node::written).chain(&self.freed);
                let stale: Vec<Image> = images.cloned().collect();
                self.restarted(after, names, |node| node.survivor(&mut random, &stale))
            }
        }
    }

    /// Returns a machine that starts with these names, and of each file with what is left of it.
    fn restarted(
        &self,
        random: Random,
        names: Names,
        mut left: impl FnMut(&Node) -> Image,
    ) -> Machine {
        let node = |id: &NodeId| Some((*id, Node::durable(left(self.nodes.get(id)?))));
        let nodes = names.values().filter_map(node).collect();
        let machine = Machine::with(random, Directory::durable(names), nodes, Faults::default());
        Machine { freed: self.freed.clone(), ..machine }
    }
}

/// Damage on request.
impl Machine {
    /// Changes the bits of a file that are set in `mask`.
    pub(super) fn damage(&mut self, name: &str, offset: u64, mask: &[u8]) -> io::Result<()> {
        let node = self.named(name)?;
        let at = place(offset, mask.len())?;
        if at + mask.len() > node.written().len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        node.damage(|image| {
            let mut bytes = vec![0; mask.len().min(image.len().saturating_sub(at))];
            image.read(&mut bytes, at);
            bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
            image.write(&bytes, at);
        });
        Ok(())
    }

    pub(super) fn truncate(&mut self, name: &str, len: u64) -> io::Result<()> {
        let len = place(len, 0)?;
        self.named(name)?.damage(|image| image.set_len(len.min(image.len())));
        Ok(())
    }

    /// Draws bytes none of which is 0.
    pub(super) fn mask(&mut self, len: usize) -> Vec<u8> {
        let byte = |_| u8::try_from(1 + self.random.up_to(254)).expect("at most 255");
        (0..len).map(byte).collect()
    }

    fn named(&mut self, name: &str) -> io::Result<&mut Node> {
        let id = self.directory.names().get(name).copied();
        id.and_then(|id| self.nodes.get_mut(&id)).ok_or_else(|| missing(name))
    }
}

/// Operations on names.
impl Machine {
    pub(super) fn open(&mut self, name: &str, how: Open) -> io::Result<Handle> {
        self.check_on()?;
        check_name(name)?;
        let found = self.directory.names().get(name).copied();
        let node = match (how, found) {
            (Open::Existing, Some(node)) => node,
            (Open::Existing, None) => return Err(missing(name)),
            (Open::New, None) => self.make(name)?,
            (Open::New, Some(_)) => {
                let message = format!("there is a file {name} already");
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
            }
        };
        let handle = Handle { node, name: name.into() };
        find(&mut self.nodes, &handle)?.handles += 1;
        Ok(handle)
    }

    fn make(&mut self, name: &str) -> io::Result<NodeId> {
        let node = NodeId(self.next_node);
        let outcome = self.begin(Act::Make)?;
        if self.takes_effect(outcome) {
            self.next_node += 1;
            self.nodes.insert(node, Node::default());
            self.directory.make(name, node);
        }
        self.end(Act::Make, &name.into(), outcome)?;
        Ok(node)
    }

    pub(super) fn list(&self) -> io::Result<Vec<String>> {
        self.check_on()?;
        Ok(self.directory.names().keys().cloned().collect())
    }

    pub(super) fn remove(&mut self, name: &str) -> io::Result<()> {
        self.check_name_is_there(name)?;
        let outcome = self.begin(Act::Remove)?;
        if self.takes_effect(outcome) {
            self.directory.remove(name);
        }
        self.end(Act::Remove, &name.into(), outcome)
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        check_name(to)?;
        self.check_name_is_there(from)?;
        let outcome = self.begin(Act::Rename)?;
        if self.takes_effect(outcome) {
            self.directory.rename(from, to);
        }
        self.end(Act::Rename, &format!("{from} to {to}").into(), outcome)
    }

    pub(super) fn sync_directory(&mut self) -> io::Result<()> {
        let outcome = self.begin(Act::SyncDirectory)?;
        match outcome {
            Outcome::Done => self.directory.sync(),
            Outcome::Failed => self.directory.fail_to_sync(&mut self.random),
            Outcome::Interrupted | Outcome::Full => {}
        }
        self.free_unused();
        self.end(Act::SyncDirectory, &"".into(), outcome)
    }

    fn check_name_is_there(&self, name: &str) -> io::Result<()> {
        self.check_on()?;
        check_name(name)?;
        let is_there = self.directory.names().contains_key(name);
        if is_there { Ok(()) } else { Err(missing(name)) }
    }

    /// Forgets files that have no name and that no handle refers to.
    fn free_unused(&mut self) {
        let Machine { nodes, directory, freed, .. } = self;
        nodes.retain(|&id, node| {
            let is_used = node.handles > 0 || directory.refers_to(id);
            if !is_used {
                freed.push_back(node.written().clone());
            }
            is_used
        });
        let surplus = freed.len().saturating_sub(FREED_MAX);
        freed.drain(..surplus);
    }
}

/// Operations on open files.
impl Machine {
    pub(super) fn close(&mut self, handle: &Handle) {
        let node = self.nodes.get_mut(&handle.node).expect("an open file has its node");
        debug_assert!(node.handles > 0, "a file is closed once");
        node.handles -= 1;
        self.free_unused();
    }

    pub(super) fn len(&mut self, handle: &Handle) -> io::Result<u64> {
        self.check_on()?;
        Ok(find(&mut self.nodes, handle)?.written().len() as u64)
    }

    pub(super) fn read(
        &mut self,
        handle: &Handle,
        buffer: &mut [u8],
        offset: u64,
    ) -> io::Result<()> {
        let act = Act::Read { offset, len: buffer.len() };
        let outcome = self.begin(act)?;
        if outcome != Outcome::Done {
            return self.end(act, &handle.name, outcome);
        }
        if buffer.is_empty() {
            return Ok(());
        }
        let image = find(&mut self.nodes, handle)?.written();
        match place(offset, buffer.len()) {
            Ok(at) if at + buffer.len() <= image.len() => {
                image.read(buffer, at);
                Ok(())
            }
            _ => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{} ends before {} bytes from {offset}", handle.name, buffer.len()),
            )),
        }
    }

    pub(super) fn write(&mut self, handle: &Handle, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_on()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let at = place(offset, bytes.len())?;
        let act = Act::Write { offset, len: bytes.len() };
        let outcome = self.begin(act)?;
        let fitting = self.len_max(handle)?.saturating_sub(at).min(bytes.len());
        let is_full = outcome == Outcome::Done && fitting < bytes.len();
        let outcome = if is_full { Outcome::Full } else { outcome };
        let written = match outcome {
            Outcome::Done => bytes.len(),
            _ => torn_len(at, fitting, &mut self.random),
        };
        find(&mut self.nodes, handle)?.write(&bytes[..written], at);
        self.end(act, &handle.name, outcome)
    }

    pub(super) fn set_len(&mut self, handle: &Handle, len: u64) -> io::Result<()> {
        self.check_on()?;
        let wanted = place(len, 0)?;
        let outcome = self.begin(Act::SetLen(len))?;
        let is_full = outcome == Outcome::Done && wanted > self.len_max(handle)?;
        let outcome = if is_full { Outcome::Full } else { outcome };
        if self.takes_effect(outcome) {
            find(&mut self.nodes, handle)?.set_len(wanted);
        }
        self.end(Act::SetLen(len), &handle.name, outcome)
    }

    pub(super) fn sync(&mut self, handle: &Handle) -> io::Result<()> {
        let outcome = self.begin(Act::Sync)?;
        let node = find(&mut self.nodes, handle)?;
        match outcome {
            Outcome::Done => node.sync(),
            Outcome::Failed => node.fail_to_sync(&mut self.random),
            Outcome::Interrupted | Outcome::Full => {}
        }
        self.end(Act::Sync, &handle.name, outcome)
    }

    /// Returns the length that a file can have on this disk, which has room for so many bytes of
    /// all.
    fn len_max(&mut self, handle: &Handle) -> io::Result<usize> {
        let Some(capacity) = self.faults.capacity else {
            return Ok(usize::MAX);
        };
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        let used: usize = self.nodes.values().map(|node| node.written().len()).sum();
        let own = find(&mut self.nodes, handle)?.written().len();
        Ok(own.saturating_add(capacity.saturating_sub(used)))
    }
}

/// What every operation passes through.
impl Machine {
    fn check_on(&self) -> io::Result<()> {
        if self.is_off { Err(off()) } else { Ok(()) }
    }

    /// Counts an operation and decides how it ends. Reads are not counted.
    fn begin(&mut self, act: Act) -> io::Result<Outcome> {
        self.check_on()?;
        let probability = match act {
            Act::Read { .. } => self.faults.read_error,
            Act::Sync | Act::SyncDirectory => self.faults.sync_error,
            Act::Write { .. } | Act::SetLen(_) | Act::Make | Act::Remove | Act::Rename => {
                self.faults.write_error
            }
        };
        let mut is_failure = self.random.happens(probability);
        if !matches!(act, Act::Read { .. }) {
            is_failure |= self.before_failure == Some(self.operations);
            self.operations += 1;
            if self.last.is_some_and(|last| self.operations > last) {
                self.is_off = true;
                return Ok(Outcome::Interrupted);
            }
        }
        Ok(if is_failure { Outcome::Failed } else { Outcome::Done })
    }

    /// Returns whether an operation that cannot be done by halves is done.
    fn takes_effect(&mut self, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Done => true,
            Outcome::Interrupted => self.random.coin(),
            Outcome::Failed | Outcome::Full => false,
        }
    }

    fn end(&mut self, act: Act, name: &Arc<str>, outcome: Outcome) -> io::Result<()> {
        let what = What { act, name: Arc::clone(name) };
        let result = match outcome {
            Outcome::Done => Ok(()),
            Outcome::Failed => Err(io::Error::other(format!("simulated I/O error: {what}"))),
            Outcome::Interrupted => Err(off()),
            Outcome::Full => Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("the simulated disk is full: {what}"),
            )),
        };
        self.trace.push(self.operations, what, outcome);
        result
    }
}

fn find<'a>(nodes: &'a mut BTreeMap<NodeId, Node>, handle: &Handle) -> io::Result<&'a mut Node> {
    nodes.get_mut(&handle.node).ok_or_else(|| missing(&handle.name))
}

/// Returns where a range of bytes begins, if a file can be so long.
fn place(offset: u64, len: usize) -> io::Result<usize> {
    let end = offset.checked_add(len as u64).filter(|end| *end <= LEN_MAX);
    let at = end.and_then(|_| usize::try_from(offset).ok());
    at.ok_or_else(|| {
        io::Error::new(io::ErrorKind::FileTooLarge, "a simulated file has at most 16 GiB")
    })
}

/// Returns how much of a write is done that ends between two sectors; perhaps nothing, perhaps all.
fn torn_len(at: usize, len: usize, random: &mut Random) -> usize {
    let sectors = sectors(at..at + len);
    let end = (sectors.start + random.up_to(sectors.len())) * SECTOR;
    end.min(at + len).saturating_sub(at)
}

fn off() -> io::Error {
    io::Error::other("the simulated machine is off")
}

fn missing(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no file {name}"))
}
