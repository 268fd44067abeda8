//! Sorted runs of entries in a temporary file, and their merge.
//!
//! # Mechanism
//! A run is a sequence of entries in ascending order, each as two lengths, the key and the value.
//! It is written in blocks of one size with a checksum each, and read a block at a time, so that a
//! merge of many runs needs a block of memory for each. A merge takes the lowest of the entries
//! that come next.
//!
//! The file loses its name as soon as it is made, so that its room is free again when it is closed,
//! however the process ends. A crash between the two leaves a file that the next opening of the
//! store removes. Nothing in it is ever synced.
//!
//! # Limits
//! An entry is in memory as a whole, so a merge needs as much memory as the longest entry of each
//! run besides.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;
use std::sync::Arc;

use super::KeyValue;
use crate::bytes::{get_u32, put_u32};
use crate::core::{Core, StoreError};
use crate::disk::File;

/// Bytes of a block: large beside what a seek costs, small beside the memory of a sort.
pub(super) const BLOCK: usize = 64 << 10;

/// Bytes of a block before its content: the checksum of it.
const HEADER: usize = 4;

/// Bytes of an entry before its key: the lengths of key and value.
const LENGTHS: usize = 8;

/// A temporary file with runs.
pub(super) struct RunFile {
    file: Arc<dyn File>,
    runs: Vec<Run>,
    /// Blocks written.
    blocks: u64,
}

/// Where a run is in its file.
#[derive(Clone, Copy)]
struct Run {
    first_block: u64,
    bytes: u64,
}

fn io(action: &'static str) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError::Io { action, source }
}

impl RunFile {
    pub(super) fn new(core: &Core) -> Result<RunFile, StoreError> {
        core.log.check_writable()?;
        let file = core.temporary.make().map_err(io("make a temporary file"))?;
        Ok(RunFile { file, runs: Vec::new(), blocks: 0 })
    }

    /// Makes one run of the first `count`, behind the others. The room of the former is not used
    /// again.
    pub(super) fn merge_first(&mut self, count: usize) -> Result<(), StoreError> {
        let mut merge = self.merge(0, count)?;
        let mut run = self.begin_run();
        while let Some((key, value)) = merge.next()? {
            run.put(&key, &value)?;
        }
        run.end()?;
        self.runs.drain(..count);
        Ok(())
    }

    /// Returns how many runs there are.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Begins a run, whose entries ascend.
    pub(super) fn begin_run(&mut self) -> RunWriter<'_> {
        let run = Run { first_block: self.blocks, bytes: 0 };
        RunWriter { runs: self, run, block: vec![0; HEADER] }
    }

    /// Returns the entries of the runs `from..to`, in the order of keys and then of values.
    pub(super) fn merge(&self, from: usize, to: usize) -> Result<Merge, StoreError> {
        let mut readers = BinaryHeap::with_capacity(to - from);
        for &run in &self.runs[from..to] {
            let mut reader = RunReader {
                file: Arc::clone(&self.file),
                next_block: run.first_block,
                bytes_left: run.bytes,
                block: Vec::new(),
                at: 0,
                entry: (Vec::new(), Vec::new()),
            };
            if reader.advance()? {
                readers.push(reader);
            }
        }
        Ok(Merge { readers })
    }

    fn write_block(&mut self, block: &mut Vec<u8>) -> Result<(), StoreError> {
        // All blocks are of one size, which direct input and output asks for.
        block.resize(BLOCK, 0);
        let checksum = crc32c::crc32c(&block[HEADER..]);
        put_u32(block, 0, checksum);
        let offset = self.blocks * BLOCK as u64;
        self.file.write_at(block, offset).map_err(io("write a temporary file"))?;
        self.blocks += 1;
        block.truncate(HEADER);
        Ok(())
    }
}

/// A run that is being written. One that is dropped before its end is not there.
pub(super) struct RunWriter<'r> {
    runs: &'r mut RunFile,
    run: Run,
    block: Vec<u8>,
}

impl RunWriter<'_> {
    /// Writes an entry whose key and value are shorter than 4 GiB.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let len = |part: &[u8]| u32::try_from(part.len()).expect("lengths were checked");
        let mut lengths = [0; LENGTHS];
        put_u32(&mut lengths, 0, len(key));
        put_u32(&mut lengths, 4, len(value));
        self.write(&lengths)?;
        self.write(key)?;
        self.write(value)
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        self.run.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK {
                self.runs.write_block(&mut self.block)?;
            }
        }
        Ok(())
    }

    /// Ends the run.
    pub(super) fn end(mut self) -> Result<(), StoreError> {
        if self.block.len() > HEADER {
            self.runs.write_block(&mut self.block)?;
        }
        self.runs.runs.push(self.run);
        Ok(())
    }
}

/// The entries of several runs, in order.
pub(super) struct Merge {
    /// Those that have an entry, the one with the lowest first.
    readers: BinaryHeap<RunReader>,
}

impl Merge {
    /// Returns the next entry.
    pub(super) fn next(&mut self) -> Result<Option<KeyValue>, StoreError> {
        let Some(mut reader) = self.readers.peek_mut() else { return Ok(None) };
        let entry = std::mem::take(&mut reader.entry);
        if !reader.advance()? {
            PeekMut::pop(reader);
        }
        Ok(Some(entry))
    }
}

/// A run that is being read.
struct RunReader {
    file: Arc<dyn File>,
    next_block: u64,
    /// Bytes of the run that were not taken yet.
    bytes_left: u64,
    block: Vec<u8>,
    /// Bytes of the block that were taken.
    at: usize,
    /// The entry that comes next.
    entry: KeyValue,
}

impl RunReader {
    /// Reads the next entry. Returns whether there is one.
    fn advance(&mut self) -> Result<bool, StoreError> {
        if self.bytes_left == 0 {
            return Ok(false);
        }
        let mut lengths = [0; LENGTHS];
        self.take(&mut lengths)?;
        let [key, value] = [0, 4].map(|at| get_u32(&lengths, at) as usize);
        let (mut key, mut value) = (vec![0; key], vec![0; value]);
        self.take(&mut key)?;
        self.take(&mut value)?;
        self.entry = (key, value);
        Ok(true)
    }

    /// Fills `bytes` with those of the run that come next.
    fn take(&mut self, mut bytes: &mut [u8]) -> Result<(), StoreError> {
        self.bytes_left -= bytes.len() as u64;
        while !bytes.is_empty() {
            if self.at == self.block.len() {
                self.read_block()?;
            }
            let count = bytes.len().min(self.block.len() - self.at);
            let (now, later) = bytes.split_at_mut(count);
            now.copy_from_slice(&self.block[self.at..self.at + count]);
            self.at += count;
            bytes = later;
        }
        Ok(())
    }

    fn read_block(&mut self) -> Result<(), StoreError> {
        let action = "read a temporary file";
        self.block.resize(BLOCK, 0);
        let offset = self.next_block * BLOCK as u64;
        self.file.read_at(&mut self.block, offset).map_err(io(action))?;
        if get_u32(&self.block, 0) != crc32c::crc32c(&self.block[HEADER..]) {
            let message = "a block is not what was written: load the entries again";
            return Err(io(action)(io::Error::new(io::ErrorKind::InvalidData, message)));
        }
        self.next_block += 1;
        self.at = HEADER;
        Ok(())
    }
}

/// The lowest entry is the greatest for the heap, which hands the greatest out first.
impl Ord for RunReader {
    fn cmp(&self, other: &RunReader) -> Ordering {
        other.entry.cmp(&self.entry)
    }
}

impl PartialOrd for RunReader {
    fn partial_cmp(&self, other: &RunReader) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RunReader {
    fn eq(&self, other: &RunReader) -> bool {
        self.entry == other.entry
    }
}

impl Eq for RunReader {}
