//! The file of pages: flipped bits, pages that changed places, blank, torn and old ones.

use std::collections::BTreeSet;

use super::targets::random::Random;
use super::targets::sample::{Ending, PAGE, Sample, read_back};
use super::{ENDINGS, Outcome, PAGES, bytes, outcome, put, sample};

/// The numbers of the pages of which there is a copy. A store that writes one batch at a time uses
/// the first slot only.
pub(super) fn copies(sample: &Sample) -> BTreeSet<u64> {
    let list = bytes(&sample.disk, "doublewrite.pages");
    let count = u32::from_le_bytes(list[4..8].try_into().unwrap()) as usize;
    let number = |at: usize| u64::from_le_bytes(list[at..at + 8].try_into().unwrap());
    (0..count).map(|member| number(128 + member * 16)).collect()
}

/// The numbers of the pages that are nodes or maps on disk.
pub(super) fn in_use(file: &[u8]) -> Vec<u64> {
    let pages = (0_u64..).zip(file.chunks_exact(PAGE));
    pages.filter(|(_, page)| [2, 3].contains(&page[4])).map(|(number, _)| number).collect()
}

fn at(page: u64) -> u64 {
    page * PAGE as u64
}

/// A store, and what of its pages there is to damage.
struct Subject {
    sample: &'static Sample,
    file: Vec<u8>,
    in_use: Vec<u64>,
    copies: BTreeSet<u64>,
}

impl Subject {
    fn new(ending: Ending) -> Subject {
        let sample = sample(ending);
        let file = bytes(&sample.disk, PAGES);
        let (in_use, copies) = (in_use(&file), copies(sample));
        println!("{} pages in use, {} copies", in_use.len(), copies.len());
        assert!(in_use.len() > 100 && copies.len() > 5);
        assert!(in_use.iter().any(|page| !copies.contains(page)));
        Subject { sample, file, in_use, copies }
    }

    fn page(&self, page: u64) -> &[u8] {
        let at = usize::try_from(at(page)).unwrap();
        &self.file[at..at + PAGE]
    }

    /// Damage of the content of one page: put right by its copy, noticed, or in a page that nobody
    /// needs. `Some` tells how many pages were put right.
    fn judge(&self, page: u64, outcome: &Outcome, case: &str) -> Option<usize> {
        let named = format!("page {page} of {PAGES} is damaged: ");
        match outcome {
            Outcome::Right(recovery) => {
                let is_repaired = self.copies.contains(&page);
                assert!(is_repaired || !self.in_use.contains(&page), "{case}: unnoticed");
                assert_eq!(recovery.repaired_pages, usize::from(is_repaired), "{case}");
                Some(recovery.repaired_pages)
            }
            Outcome::Earlier(_) => panic!("{case}: {outcome:?}"),
            Outcome::Refused(_) => {
                outcome.assert_refused(case, &[&named]);
                assert!(!self.copies.contains(&page), "{case}: there was a copy");
                None
            }
        }
    }
}

#[test]
fn a_flipped_bit_is_noticed_or_repaired() {
    println!("seed 1");
    let random = &mut Random::new(1);
    for ending in ENDINGS {
        let subject = Subject::new(ending);
        let (mut repaired, mut refused) = (0, 0);
        let most = subject.in_use.last().unwrap() + 3;
        for _ in 0..100 {
            let (page, within) = (random.below(most), random.below(PAGE as u64));
            let bit = u32::try_from(random.below(8)).unwrap();
            let case = format!("{ending:?} bit {bit} of byte {within} of page {page}");
            let disk = subject.sample.copy();
            disk.flip_bit(PAGES, at(page) + within, bit).unwrap();
            match subject.judge(page, &outcome(subject.sample, &disk, &case), &case) {
                Some(pages) => repaired += pages,
                None => refused += 1,
            }
        }
        println!("{repaired} repaired, {refused} refused");
        assert!(repaired > 3 && refused > 40, "{repaired} repaired, {refused} refused");
    }
}

/// Some sectors are those of an earlier time, or of none: what a write leaves that was torn.
#[test]
fn a_torn_page_is_noticed_or_repaired() {
    println!("seed 2");
    let random = &mut Random::new(2);
    for ending in ENDINGS {
        let subject = Subject::new(ending);
        let (mut repaired, mut refused) = (0, 0);
        for _ in 0..70 {
            let page = *random.pick(&subject.in_use);
            let sectors = random.below(7) + 1;
            let len = usize::try_from(sectors * 512).unwrap();
            let start = usize::try_from(at(page)).unwrap();
            let old = &subject.sample.earlier[PAGES][start..start + PAGE];
            let new = subject.page(page);
            if old[..len] == new[..len] || old[len..] == new[len..] {
                // It is whole, either way: nothing was torn.
                continue;
            }
            let disk = subject.sample.copy();
            put(&disk, PAGES, at(page), &old[..len]);
            let case = format!("{ending:?} {sectors} old sectors in page {page}");
            let outcome = outcome(subject.sample, &disk, &case);
            match subject.judge(page, &outcome, &case) {
                Some(pages) => repaired += pages,
                None => refused += 1,
            }
        }
        println!("{repaired} repaired, {refused} refused");
        assert!(repaired > 0 && refused > 5, "{repaired} repaired, {refused} refused");
    }
}

#[test]
fn pages_that_changed_places_are_noticed_or_put_back() {
    println!("seed 3");
    let random = &mut Random::new(3);
    for ending in ENDINGS {
        let subject = Subject::new(ending);
        for _ in 0..30 {
            let (one, other) = (*random.pick(&subject.in_use), *random.pick(&subject.in_use));
            let disk = subject.sample.copy();
            put(&disk, PAGES, at(one), subject.page(other));
            put(&disk, PAGES, at(other), subject.page(one));
            let case = format!("{ending:?} pages {one} and {other}");
            let outcome = outcome(subject.sample, &disk, &case);
            let have_copies = [one, other].map(|page| subject.copies.contains(&page));
            if one == other || have_copies == [true; 2] {
                assert!(outcome.is_right(), "{case}: {outcome:?}");
            } else {
                outcome.assert_refused(&case, &["it says that it is page ", PAGES]);
                let words = outcome.words();
                let named = [one, other].map(|page| words.contains(&format!("page {page} of")));
                assert!(named.contains(&true), "{case}: {words}");
            }
        }
    }
}

/// A page of zeros passes for one that was never written, so it is up to those who lead to it.
#[test]
fn a_blank_page_is_missed() {
    println!("seed 4");
    let random = &mut Random::new(4);
    for ending in ENDINGS {
        let subject = Subject::new(ending);
        let drawn = (0..20).map(|_| *random.pick(&subject.in_use));
        // The map and the root of the catalog are among them.
        let pages: BTreeSet<u64> = [1, 2].into_iter().chain(drawn).collect();
        for page in pages {
            let disk = subject.sample.copy();
            put(&disk, PAGES, at(page), &[0; PAGE]);
            let case = format!("{ending:?} page {page} blank");
            let outcome = outcome(subject.sample, &disk, &case);
            // In recovery it may be that the first change it lacks formats it.
            if ending == Ending::Closed || !outcome.is_right() {
                outcome.assert_refused(&case, &["page "]);
            }
        }
    }
}

/// Every page as it was when all pages had been written earlier: whole, at its place, and old.
/// Where the tree has grown since, that does not fit. Where only entries have changed, nothing
/// tells, and what is read was true once.
#[test]
fn an_old_page_is_noticed_only_where_the_tree_has_changed() {
    let subject = Subject::new(Ending::Closed);
    let sample = subject.sample;
    let (last, then) = (&sample.states[sample.last()], &sample.states[sample.earlier_state]);
    let (mut noticed, mut unnoticed) = (0, 0);
    for &page in &subject.in_use {
        let start = usize::try_from(at(page)).unwrap();
        let old = &sample.earlier[PAGES][start..start + PAGE];
        if old == subject.page(page) {
            continue;
        }
        let disk = sample.copy();
        put(&disk, PAGES, at(page), old);
        println!("page {page}");
        let found = match read_back(&disk) {
            Ok(found) => found.model,
            Err(error) => {
                assert!(error.to_string().contains("page "), "page {page}: {error}");
                noticed += 1;
                continue;
            }
        };
        for (name, entries) in &found {
            let (last, then) = (&last[name], &then[name]);
            for key in last.keys().chain(then.keys()).chain(entries.keys()) {
                let value = entries.get(key);
                assert!([last.get(key), then.get(key)].contains(&value), "page {page}: {key:?}");
            }
        }
        unnoticed += usize::from(found != *last);
    }
    println!("{noticed} noticed, {unnoticed} not");
    assert!(noticed > 5 && unnoticed > 5, "{noticed} noticed, {unnoticed} not");
}
