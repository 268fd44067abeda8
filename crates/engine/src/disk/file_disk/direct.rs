//! Direct I/O: whole blocks go straight to the device, parts of blocks over a bounce buffer.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;

use tidegate_runtime::sync::RwLock;

use crate::disk::ALIGNMENT;

/// A file that was opened with `O_DIRECT`.
///
/// * Every transfer has address, length and offset at multiples of [`ALIGNMENT`].
/// * A part of a block is written by reading the block, changing it and writing it back. Nothing
///   else is written meanwhile, or it might be undone.
pub(super) struct DirectFile {
    file: fs::File,
    /// Shared by writers of whole blocks, held alone by a writer of parts.
    writers: RwLock<()>,
}

/// Size of a bounce buffer, in bytes.
const BOUNCE_LEN: usize = 4 * ALIGNMENT;

#[repr(C, align(4096))]
struct Bounce([u8; BOUNCE_LEN]);

const _: () = assert!(align_of::<Bounce>() == ALIGNMENT);
const _: () = assert!(BOUNCE_LEN.is_multiple_of(ALIGNMENT));

/// The first bytes of a transfer, as many as one bounce carries.
struct Span {
    /// Where the blocks begin in the file.
    start: u64,
    /// Bytes of the first block that are not meant.
    skip: usize,
    /// Bytes that are.
    take: usize,
}

impl DirectFile {
    pub(super) fn new(file: fs::File) -> DirectFile {
        DirectFile { file, writers: RwLock::new(()) }
    }

    pub(super) fn file(&self) -> &fs::File {
        &self.file
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if !is_aligned(buffer, offset) {
            return self.read_parts(buffer, offset);
        }
        if fill(&self.file, buffer, offset)? < buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if is_aligned(bytes, offset) {
            let _shared = self.writers.read();
            return self.file.write_all_at(bytes, offset);
        }
        let _alone = self.writers.write();
        let len = self.file.metadata()?.len();
        let written = self.write_parts(bytes, offset);
        // The last block reached beyond the end of the bytes, perhaps of the file too.
        let wanted = len.max(offset.saturating_add(bytes.len() as u64));
        if self.file.metadata()?.len() > wanted {
            self.file.set_len(wanted)?;
        }
        written
    }

    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        let _alone = self.writers.write();
        self.file.set_len(len)
    }

    fn read_parts(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        let mut bounce = Bounce::new();
        while !buffer.is_empty() {
            let span = Span::first(offset, buffer.len());
            let read = fill(&self.file, &mut bounce.0[..span.blocks_len()], span.start)?;
            if read < span.skip + span.take {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (now, later) = buffer.split_at_mut(span.take);
            now.copy_from_slice(&bounce.0[span.skip..][..span.take]);
            offset += span.take as u64;
            buffer = later;
        }
        Ok(())
    }

    fn write_parts(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        let mut bounce = Bounce::new();
        while !bytes.is_empty() {
            let span = Span::first(offset, bytes.len());
            let blocks = &mut bounce.0[..span.blocks_len()];
            let read = fill(&self.file, blocks, span.start)?;
            blocks[read..].fill(0);
            let (now, later) = bytes.split_at(span.take);
            blocks[span.skip..][..span.take].copy_from_slice(now);
            self.file.write_all_at(blocks, span.start)?;
            offset += span.take as u64;
            bytes = later;
        }
        Ok(())
    }
}

impl Bounce {
    fn new() -> Box<Bounce> {
        Box::new(Bounce([0; BOUNCE_LEN]))
    }
}

impl Span {
    fn first(offset: u64, len: usize) -> Span {
        let start = offset - offset % ALIGNMENT as u64;
        #[expect(clippy::cast_possible_truncation, reason = "it is less than ALIGNMENT")]
        let skip = (offset - start) as usize;
        Span { start, skip, take: len.min(BOUNCE_LEN - skip) }
    }

    /// Returns length of the blocks that the bytes lie in.
    fn blocks_len(&self) -> usize {
        (self.skip + self.take).next_multiple_of(ALIGNMENT)
    }
}

fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    let address_and_len = bytes.as_ptr().addr() | bytes.len();
    address_and_len.is_multiple_of(ALIGNMENT) && offset.is_multiple_of(ALIGNMENT as u64)
}

/// Reads until `blocks` is full or the file ends. Returns the number of bytes read.
fn fill(file: &fs::File, blocks: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    // The file ends where a read ends within a block, and to go on from there would be refused.
    while read < blocks.len() && read.is_multiple_of(ALIGNMENT) {
        match file.read_at(&mut blocks[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
