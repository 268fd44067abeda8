//! What is left of one file when the power fails.
//!
//! The page cache holds the newest state of every sector, and writes sectors out whenever it likes.
//! So what is on the disk is, sector by sector, the state after some write that touched the sector,
//! or the synced one; and a sector that holds a write also holds what earlier writes put into the
//! same sector. To compute it, the changes are played in order on a `running` image, and where a
//! write reaches a sector the sector is copied from there into the image that is `left`.
//!
//! The length is kept elsewhere, in the file's inode, whose states a journal writes in order. So it
//! is the length after one of the changes, and a cut is effective if it comes before that one.

use std::ops::Range;

use super::image::Image;
use super::node::Change;
use super::random::Random;
use crate::disk::SECTOR;

/// Returns what is left of a file that was `synced` before the `pending` changes.
///
/// Where the file grew and no bytes arrived there are zeros; or, when there are `stale` images, in
/// some sectors noise or what is in those images.
pub(super) fn survivor(
    synced: &Image,
    pending: &[Change],
    random: &mut Random,
    stale: &[Image],
) -> Image {
    let journaled = match random.up_to(3) {
        0 => 0,
        1 => random.up_to(pending.len()),
        _ => pending.len(),
    };
    let changes = pending[..journaled].iter();
    let len = changes.fold(synced.len(), |len, change| change.len_after(len));
    let mood = Mood::draw(random);
    let (mut running, mut left) = (synced.clone(), synced.clone());
    lengthen(&mut left, len, random, stale);
    for (index, change) in pending.iter().enumerate() {
        change.apply(&mut running);
        match change {
            Change::Length(cut) if index < journaled && *cut < left.len() => {
                left.set_len(*cut);
                lengthen(&mut left, len, random, stale);
            }
            Change::Length(_) => {}
            Change::Write { at, bytes } => {
                let sectors = sectors(*at..at + bytes.len());
                let fate = mood.fate(sectors.len(), random);
                for (index, sector) in sectors.enumerate() {
                    if fate.keeps(index, random) {
                        left.adopt(&running, sector * SECTOR..(sector + 1) * SECTOR);
                    }
                }
            }
        }
    }
    debug_assert_eq!(left.len(), len, "the last journaled cut leaves no more than that");
    left
}

/// Returns the sectors that a range of bytes touches.
pub(super) fn sectors(range: Range<usize>) -> Range<usize> {
    range.start / SECTOR..range.end.div_ceil(SECTOR)
}

/// Grows a file, as a disk does on which new sectors are not cleared if there are `stale` images.
fn lengthen(image: &mut Image, len: usize, random: &mut Random, stale: &[Image]) {
    let first = image.len().div_ceil(SECTOR);
    if len > image.len() {
        image.set_len(len);
    }
    if stale.is_empty() {
        return;
    }
    for sector in first..len.div_ceil(SECTOR) {
        let at = sector * SECTOR;
        let bytes = match random.up_to(3) {
            0 | 1 => continue,
            2 => noise(random),
            _ => leftover(random, stale),
        };
        image.write(&bytes[..SECTOR.min(len - at)], at);
    }
}

fn noise(random: &mut Random) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    for word in bytes.chunks_mut(8) {
        word.copy_from_slice(&random.draw().to_le_bytes());
    }
    bytes
}

/// Returns a sector of one of the images: what the place may have held for another file.
fn leftover(random: &mut Random, stale: &[Image]) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    let image = &stale[random.up_to(stale.len() - 1)];
    let sector = random.up_to(image.len() / SECTOR);
    image.read(&mut bytes, sector * SECTOR);
    bytes
}

/// How one file fares in one crash. Crashes differ, so that of many writes all but one survive as
/// surely as about half of them do.
struct Mood {
    /// Of 8 writes so many are torn.
    torn: usize,
    /// Of 8 others so many survive.
    kept: usize,
}

impl Mood {
    fn draw(random: &mut Random) -> Mood {
        let torn = [0, 1, 4][random.up_to(2)];
        Mood { torn, kept: random.up_to(8) }
    }

    fn fate(&self, sectors: usize, random: &mut Random) -> Fate {
        if random.up_to(7) < self.torn {
            let prefix = Fate::Prefix(random.up_to(sectors));
            return if random.coin() { prefix } else { Fate::Scattered };
        }
        if random.up_to(7) < self.kept { Fate::Kept } else { Fate::Dropped }
    }
}

/// Which sectors of one write survive.
enum Fate {
    Kept,
    Dropped,
    /// Torn: the first so many.
    Prefix(usize),
    /// Torn: any, each on its own.
    Scattered,
}

impl Fate {
    fn keeps(&self, index: usize, random: &mut Random) -> bool {
        match self {
            Fate::Kept => true,
            Fate::Dropped => false,
            Fate::Prefix(sectors) => index < *sectors,
            Fate::Scattered => random.coin(),
        }
    }
}
