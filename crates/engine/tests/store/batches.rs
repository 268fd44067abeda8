//! Batches of pages: several under way at the same time, crashes and errors in every phase of one,
//! pages that are changed meanwhile, and pages that are written once only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;
use std::{io, iter};

use tidegate_engine::disk::{Claim, Crash, Disk, Faults, File, Open, SimulatedDisk};
use tidegate_engine::wal::LogId;
use tidegate_engine::{Durability, Store, StoreOptions, TreeHandle, TxnError, TxnOptions};

use super::hooked::{Hook, HookedDisk};
use super::{Random, disk, options, shared};

const PAGE: u64 = 4096;

/// A page has four rows, and there are far more pages than frames.
const ROW_BYTES: usize = 900;
const ROWS: u32 = 720;

fn row(version: u64) -> Vec<u8> {
    let mut row = vec![7; ROW_BYTES];
    row[..8].copy_from_slice(&version.to_be_bytes());
    row
}

fn version(row: &[u8]) -> u64 {
    assert!(row.len() == ROW_BYTES && row[8..].iter().all(|&byte| byte == 7), "a row is whole");
    u64::from_be_bytes(row[..8].try_into().unwrap())
}

fn put(
    store: &Store,
    tree: &TreeHandle,
    keys: impl IntoIterator<Item = u32>,
    version: u64,
    durability: Durability,
) -> Result<(), TxnError> {
    let mut transaction = store.begin(TxnOptions::default().durability(durability));
    for key in keys {
        transaction.put(tree, &key.to_be_bytes(), &row(version))?;
    }
    transaction.commit()
}

fn get(store: &Store, tree: &TreeHandle, key: u32) -> Result<u64, TxnError> {
    let mut transaction = store.begin(TxnOptions::default());
    Ok(version(&transaction.get(tree, &key.to_be_bytes())?.expect("every row is there")))
}

/// A store with every row in version 1, all of it written.
fn filled(disk: &Arc<SimulatedDisk>, options: &StoreOptions) {
    let store = Store::create(&shared(disk), LogId(1), options).unwrap();
    let tree = store.create_tree("rows").unwrap();
    let rows = (0..ROWS).map(|key| (key.to_be_bytes(), row(1)));
    store.bulk_load(&tree, 100, rows).unwrap();
    store.close().unwrap();
}

fn open(disk: &Arc<SimulatedDisk>, options: &StoreOptions) -> (Store, TreeHandle) {
    let store = Store::open(&shared(disk), options);
    let store = store.unwrap_or_else(|error| panic!("{error}\n{}", disk.trace()));
    let tree = store.tree("rows").expect("it was made");
    (store, tree)
}

/// What a thread has done with its own rows, a group at a time.
#[derive(Clone, Default)]
struct Acknowledged {
    /// The version of each group that was acknowledged last.
    sure: Vec<u64>,
    /// The group whose commit returned an error, and the version.
    doubt: Option<(usize, u64)>,
}

const THREADS: u32 = 6;
/// Rows that one transaction changes together.
const GROUP: u32 = 3;
const GROUPS: u32 = ROWS / THREADS / GROUP;

fn keys(thread: u32, group: usize) -> impl Iterator<Item = u32> {
    let first = u32::try_from(group).unwrap() * GROUP;
    (first..first + GROUP).map(move |number| number * THREADS + thread)
}

/// Changes rows of its own until the store fails.
fn work(store: &Store, tree: &TreeHandle, thread: u32, seed: u64, done: &mut Acknowledged) {
    let mut random = Random::new(seed * 100 + u64::from(thread));
    loop {
        let group = random.index(GROUPS as usize);
        let next = done.sure[group] + 1;
        match put(store, tree, keys(thread, group), next, Durability::Synced) {
            Ok(()) => done.sure[group] = next,
            Err(error) if error.is_retryable() => {}
            Err(_) => {
                done.doubt = Some((group, next));
                return;
            }
        }
    }
}

/// A life with several threads and batches that ends in a fault, then a crash.
fn live(seed: u64, random: &mut Random, disk: &Arc<SimulatedDisk>, all: &mut [Acknowledged]) {
    let options = options().io_writers(1 + random.index(6)).background(random.below(2) == 0);
    // Threads meet where one lets others go first.
    let calls = AtomicU64::new(seed);
    let hook: Hook = Arc::new(move |_| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        if call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0 {
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    });
    let hooked: Arc<dyn Disk> = Arc::new(HookedDisk { disk: shared(disk), hook });
    let Ok(store) = Store::open(&hooked, &options) else { return };
    let tree = store.tree("rows").expect("it was made");
    let after = Some(random.below(1_500));
    let none = Faults::default();
    disk.set_faults(match random.below(4) {
        0 => Faults { fail_after: after, ..none },
        1 => Faults { sync_error: 0.01, ..none },
        _ => Faults { crash_after: after, ..none },
    });
    thread::scope(|scope| {
        for (thread, done) in (0..THREADS).zip(all.iter_mut()) {
            let (store, tree) = (&store, &tree);
            scope.spawn(move || work(store, tree, thread, seed, done));
        }
        scope.spawn(|| while store.flush().is_ok() {});
    });
}

/// Compares what is there with what was acknowledged. A transaction in doubt is there or not, as a
/// whole, and from now on stays so.
fn verify(store: &Store, tree: &TreeHandle, all: &mut [Acknowledged], case: &str) {
    for (thread, done) in (0..THREADS).zip(all.iter_mut()) {
        for group in 0..GROUPS as usize {
            let found: Vec<u64> =
                keys(thread, group).map(|key| get(store, tree, key).unwrap()).collect();
            assert!(found.iter().all(|version| *version == found[0]), "{case}: {found:?}");
            let is_doubt = done.doubt == Some((group, found[0]));
            let sure = done.sure[group];
            assert!(found[0] == sure || is_doubt, "{case}: {found:?}, and {sure} was acknowledged");
            done.sure[group] = found[0];
        }
        done.doubt = None;
    }
    if let Err(error) = store.check() {
        panic!("{case}: {error}");
    }
}

/// Returns whether several slots of the doublewrite file were used.
fn chain(seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let mut disk = disk(seed);
    filled(&disk, &options());
    let sure = vec![1; GROUPS as usize];
    let mut all = vec![Acknowledged { sure, doubt: None }; THREADS as usize];
    let mut case = format!("seed {seed}");
    let mut has_slots = false;
    for _ in 0..=random.below(2) {
        live(seed, random, &disk, &mut all);
        let how = [Crash::Kept, Crash::Lost, Crash::Random, Crash::Weak][random.index(4)];
        case = format!("{case}, {how:?}");
        disk = Arc::new(disk.crash(how));
        let copies = disk.open("doublewrite.pages", Open::Existing).unwrap();
        has_slots |= copies.len().unwrap() > 241 * PAGE;
        if random.below(3) == 0 {
            // The recovery is cut off as well.
            let crash_after = Some(random.below(60));
            disk.set_faults(Faults { crash_after, ..Faults::default() });
            drop(Store::open(&shared(&disk), &options().io_writers(4)));
            disk = Arc::new(disk.crash(how));
        }
        let (store, tree) = open(&disk, &options());
        verify(&store, &tree, &mut all, &case);
        drop((tree, store));
    }
    disk = Arc::new(disk.crash(Crash::Lost));
    let (store, tree) = open(&disk, &options());
    verify(&store, &tree, &mut all, &case);
    has_slots
}

#[test]
fn what_was_acknowledged_survives_crashes_with_several_batches_under_way() {
    println!("seeds 0 to 29");
    let several = (0..30).filter(|&seed| chain(seed)).count();
    println!("several batches under way in {several} chains");
    assert!(several > 5, "{several}");
}

#[test]
#[ignore = "soak: 2,000 chains of crashes with several batches under way"]
fn what_was_acknowledged_survives_2000_chains() {
    println!("seeds 1000 to 2999");
    let several = (1_000..3_000).filter(|&seed| chain(seed)).count();
    println!("several batches under way in {several} chains");
    assert!(several > 500, "{several}");
}

/// Each operation of a flush in turn fails, or is the last one, while four threads write the pages
/// of a batch: nothing that was committed is lost, so no page was called clean that was not
/// written and synced.
#[test]
fn one_error_among_many_writes_loses_nothing() {
    let options = options().io_writers(4);
    let changed: Vec<u32> = (0..60).step_by(4).collect();
    for crash in [Crash::Kept, Crash::Lost, Crash::Random] {
        for (at, fails) in (0..40).zip(iter::repeat([true, false]).flatten()) {
            let disk = disk(at);
            filled(&disk, &options);
            let (store, tree) = open(&disk, &options);
            for version in 2..4 {
                put(&store, &tree, changed.clone(), version, Durability::Synced).unwrap();
            }
            let at = Some(at / 2);
            let none = Faults::default();
            let faults = Faults { fail_after: at, ..none };
            disk.set_faults(if fails { faults } else { Faults { crash_after: at, ..none } });
            let flushed = store.flush();
            let case = format!("{crash:?} after {at:?}, fails {fails}: {flushed:?}");
            disk.set_faults(none);
            assert_eq!(get(&store, &tree, 1).is_err(), flushed.is_err(), "{case}");
            drop((tree, store));
            let crashed = Arc::new(disk.crash(crash));
            let (store, tree) = open(&crashed, &options);
            for key in 0..ROWS {
                let expected = if changed.contains(&key) { 3 } else { 1 };
                assert_eq!(get(&store, &tree, key).unwrap(), expected, "{case}: row {key}");
            }
            store.check().unwrap();
        }
    }
}

type Call = Box<dyn FnOnce() + Send>;

/// A row is changed during each operation of a flush, on a page that the flush writes. After a
/// checkpoint and a failure of power the change is there: the page was not called clean.
#[test]
fn a_page_that_is_changed_while_it_is_written_stays_dirty() {
    for writers in [1, 4] {
        let mut at = 0;
        loop {
            let options = options().io_writers(writers);
            let plain = disk(at);
            filled(&plain, &options);
            let turn: Arc<Mutex<Option<u64>>> = Arc::default();
            let call: Arc<Mutex<Option<Call>>> = Arc::default();
            let (hook_turn, hook_call) = (Arc::clone(&turn), Arc::clone(&call));
            let hook: Hook = Arc::new(move |_| {
                let mut turn = hook_turn.lock().unwrap();
                let is_now = *turn == Some(0);
                *turn = turn.and_then(|turn| turn.checked_sub(1));
                drop(turn);
                let change = is_now.then(|| hook_call.lock().unwrap().take()).flatten();
                // By another thread: this one holds what a flush holds.
                if let Some(change) = change {
                    thread::spawn(change).join().unwrap();
                }
                Ok(())
            });
            let hooked: Arc<dyn Disk> = Arc::new(HookedDisk { disk: shared(&plain), hook });
            let store = Arc::new(Store::open(&hooked, &options).unwrap());
            let tree = store.tree("rows").unwrap();
            put(&store, &tree, 0..20, 2, Durability::Synced).unwrap();
            let (other_store, other_tree) = (Arc::clone(&store), store.tree("rows").unwrap());
            *call.lock().unwrap() = Some(Box::new(move || {
                put(&other_store, &other_tree, [3, 11], 3, Durability::Lazy).unwrap();
            }));
            *turn.lock().unwrap() = Some(at);
            store.flush().unwrap();
            let is_over = call.lock().unwrap().take().is_some();
            store.checkpoint().unwrap();
            let crashed = Arc::new(plain.crash(Crash::Lost));
            let (again, found) = open(&crashed, &options);
            for key in 0..20 {
                let expected = if !is_over && [3, 11].contains(&key) { 3 } else { 2 };
                let case = format!("operation {at}, {writers} writers, row {key}");
                assert_eq!(get(&again, &found, key).unwrap(), expected, "{case}");
            }
            if is_over {
                break;
            }
            at += 1;
        }
        println!("{writers} writers: {at} operations");
        assert!(at > 6, "a flush is more than {at} operations");
    }
}

/// Without copies a torn page is noticed and never taken for a whole one, and what was written in
/// one piece is there.
#[test]
fn without_doublewrite_a_torn_page_is_noticed() {
    println!("seeds 0 to 79");
    let (mut right, mut refused) = (0, 0);
    for seed in 0..80 {
        let disk = disk(seed);
        let options = options().doublewrite(false).io_writers(2);
        filled(&disk, &options);
        let (store, tree) = open(&disk, &options);
        // Each on a page of its own, with one between it and the next.
        let changed = (0..160).step_by(8);
        put(&store, &tree, changed.clone(), 2, Durability::Synced).unwrap();
        let crash_after = Some(Random::new(seed).below(40));
        disk.set_faults(Faults { crash_after, ..Faults::default() });
        drop(store.flush());
        drop((tree, store));
        let crashed = Arc::new(disk.crash([Crash::Random, Crash::Weak][(seed % 2) as usize]));
        let read = || -> Result<(), TxnError> {
            let store = Store::open(&shared(&crashed), &options)?;
            let tree = store.tree("rows").expect("it was made");
            for key in 0..ROWS {
                let expected = if changed.clone().any(|other| other == key) { 2 } else { 1 };
                assert_eq!(get(&store, &tree, key)?, expected, "seed {seed}, row {key}");
            }
            Ok(())
        };
        match read() {
            Ok(()) => right += 1,
            Err(error) => {
                let words = error.to_string();
                assert!(words.contains("of data.pages is damaged"), "seed {seed}: {words}");
                refused += 1;
            }
        }
    }
    println!("{right} right, {refused} refused");
    assert!(right > 10 && refused > 10, "{right} right, {refused} refused");
}

/// A copy from before doublewrite was switched off is not put in the place of a page that was
/// written since and then damaged, whether it was switched on again or not.
#[test]
fn copies_from_before_doublewrite_was_switched_off_do_not_come_back() {
    for (crash, is_on_again) in [(false, false), (false, true), (true, false), (true, true)] {
        let plain = disk(1);
        filled(&plain, &options());
        let (store, tree) = open(&plain, &options());
        put(&store, &tree, [0], 2, Durability::Synced).unwrap();
        store.flush().unwrap();
        drop(tree);
        if crash {
            drop(store);
        } else {
            store.close().unwrap();
        }
        let (store, tree) = open(&plain, &options().doublewrite(false));
        put(&store, &tree, [0], 3, Durability::Synced).unwrap();
        drop(tree);
        store.close().unwrap();
        let data = plain.open("data.pages", Open::Existing).unwrap();
        let mut bytes = vec![0; usize::try_from(data.len().unwrap()).unwrap()];
        data.read_at(&mut bytes, 0).unwrap();
        let newest = row(3);
        let at = bytes.windows(64).position(|bytes| *bytes == newest[..64]).unwrap() as u64;
        plain.flip_bit("data.pages", at + 20, 1).unwrap();
        let options = options().doublewrite(is_on_again);
        let error = Store::open(&shared(&plain), &options).and_then(|store| store.check());
        let words = error.unwrap_err().to_string();
        let page = format!("page {} of data.pages is damaged", at / PAGE);
        assert!(words.contains(&page), "crash {crash}, on again {is_on_again}: {words}");
    }
}

/// A disk on which reads of some pages meet: each waits until another is under way.
struct MeetingDisk {
    disk: Arc<dyn Disk>,
    meeting: Arc<Meeting>,
}

#[derive(Default)]
struct Meeting {
    state: Mutex<MeetingState>,
    changed: Condvar,
}

#[derive(Default)]
struct MeetingState {
    /// Where the file of pages was read last, in pages.
    last: u64,
    /// Pages whose reads meet.
    pages: Vec<u64>,
    arrived: usize,
}

impl Meeting {
    fn read(&self, page: u64) {
        let mut state = self.state.lock().unwrap();
        state.last = page;
        if !state.pages.contains(&page) {
            return;
        }
        state.arrived += 1;
        self.changed.notify_all();
        let is_alone = |state: &mut MeetingState| state.arrived < state.pages.len();
        // So long that only a thread that is kept from reading is missed.
        let minute = Duration::from_secs(60);
        let waited = self.changed.wait_timeout_while(state, minute, is_alone).unwrap();
        assert!(!waited.1.timed_out(), "page {page} is read, and the others wait for that");
    }
}

impl Disk for MeetingDisk {
    fn open(&self, name: &str, how: Open) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(name, how)?;
        let meeting = (name == "data.pages").then(|| Arc::clone(&self.meeting));
        Ok(Arc::new(MeetingFile { file, meeting }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.disk.sync_directory()
    }

    fn claim(&self) -> io::Result<Claim> {
        self.disk.claim()
    }
}

struct MeetingFile {
    file: Arc<dyn File>,
    meeting: Option<Arc<Meeting>>,
}

impl File for MeetingFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(meeting) = &self.meeting {
            meeting.read(offset / PAGE);
        }
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

/// Pages whose numbers agree in their low bits, of which each is read when all others are.
#[test]
fn reads_of_different_pages_do_not_wait_for_each_other() {
    let plain = disk(1);
    filled(&plain, &options());
    let meeting = Arc::<Meeting>::default();
    let disk: Arc<dyn Disk> =
        Arc::new(MeetingDisk { disk: shared(&plain), meeting: Arc::clone(&meeting) });
    let store = Store::open(&disk, &options()).unwrap();
    let tree = store.tree("rows").unwrap();
    let mut pages = Vec::new();
    for key in 0..ROWS {
        meeting.state.lock().unwrap().last = 0;
        get(&store, &tree, key).unwrap();
        pages.push((key, meeting.state.lock().unwrap().last));
    }
    // The first rows have lost their frames to the last ones.
    pages.retain(|&(key, page)| key < ROWS / 2 && page > 0 && page % 64 == 13);
    println!("{pages:?}");
    assert!(pages.len() > 1, "there are several such pages");
    meeting.state.lock().unwrap().pages = pages.iter().map(|&(_, page)| page).collect();
    thread::scope(|scope| {
        for &(key, _) in &pages {
            let (store, tree) = (&store, &tree);
            scope.spawn(move || assert_eq!(get(store, tree, key).unwrap(), 1));
        }
    });
    assert_eq!(meeting.state.lock().unwrap().arrived, pages.len());
}
