//! What others see when the store fails, and while a commit is not yet durable.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_engine::disk::{Crash, Disk, Faults, FileDisk, IoMode};
use tidegate_engine::lock::LockSettings;
use tidegate_engine::wal::{LogError, LogId, LogSettings};
use tidegate_engine::{
    Direction, HeadError, Isolation, PageSize, Store, StoreError, StoreOptions, TreeHandle,
    TxnError, TxnOptions,
};

use super::hooked::{Change, Hook, HookedDisk};
use super::{LEVELS, Random, at, disk, new_store, options, shared};

fn is_failed<T>(result: &Result<T, TxnError>) -> bool {
    matches!(result, Err(TxnError::Store(StoreError::Log(LogError::Failed { .. }))))
}

/// The log fails while a transaction is under way: it cannot be rolled back, so what it changed is
/// seen by nobody, and nothing is committed any more, not even what only read.
#[test]
fn after_the_log_has_failed_nothing_uncommitted_is_seen() {
    for isolation in LEVELS {
        let (disk, store, tree) = new_store(1, &options());
        let mut first = store.begin(TxnOptions::default());
        first.put(&tree, b"a", b"committed").unwrap();
        first.put(&tree, b"b", b"committed").unwrap();
        first.commit().unwrap();

        let mut reader = store.begin(at(isolation));
        assert_eq!(reader.get(&tree, b"b").unwrap().as_deref(), Some(b"committed".as_slice()));
        let mut doomed = store.begin(TxnOptions::default());
        doomed.put(&tree, b"a", b"never").unwrap();
        doomed.put(&tree, b"new", b"never").unwrap();
        disk.set_faults(Faults { sync_error: 1.0, ..Faults::default() });
        let mut other = store.begin(TxnOptions::default());
        other.put(&tree, b"c", b"?").unwrap();
        assert!(other.commit().is_err());
        drop(doomed);

        disk.set_faults(Faults::default());
        let case = format!("{isolation:?}");
        for key in [b"a".as_slice(), b"new", b"c"] {
            let mut late = store.begin(at(isolation));
            assert!(is_failed(&late.get(&tree, key)), "{case}");
            assert!(is_failed(&late.get_for_update(&tree, key)), "{case}");
            assert!(is_failed(&late.insert(&tree, key, b"")), "{case}");
            assert!(is_failed(&late.update(&tree, key, b"")), "{case}");
            let all = (Bound::Unbounded, Bound::Unbounded);
            let cursor = late.cursor(&tree, all, Direction::Up);
            assert!(is_failed(&cursor.map(drop)), "{case}");
            assert!(is_failed(&late.commit()), "{case}");
        }
        assert!(is_failed(&reader.get(&tree, b"a")), "{case}");
        assert!(is_failed(&reader.commit()), "{case}");
        let error = store.close().unwrap_err();
        assert!(matches!(error, StoreError::Log(LogError::Failed { .. })), "{case}: {error}");
        assert!(error.to_string().contains("open the store again"), "{case}: {error}");
    }
}

/// A reader waits for a lock of a transaction that then cannot be rolled back: it is not given what
/// that one wrote.
#[test]
fn who_waited_for_a_transaction_that_cannot_be_rolled_back_is_told() {
    let (disk, store, tree) = new_store(2, &options());
    let mut doomed = store.begin(TxnOptions::default());
    doomed.put(&tree, b"a", b"never").unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut reader = store.begin(TxnOptions::default());
            reader.get(&tree, b"a")
        });
        while store.locks().statistics().waits == 0 {
            thread::yield_now();
        }
        disk.set_faults(Faults { write_error: 1.0, sync_error: 1.0, ..Faults::default() });
        let mut other = store.begin(TxnOptions::default());
        other.put(&tree, b"c", b"?").unwrap();
        assert!(other.commit().is_err());
        drop(doomed);
        assert!(is_failed(&waiting.join().unwrap()));
    });
}

/// The change is durable, because another commit forced the log, and its own commit is not: until
/// it is, readers at no level but the lowest see it.
#[test]
fn a_commit_is_not_seen_before_it_is_durable() {
    for isolation in &LEVELS[1..] {
        let plain = disk(3);
        // The next sync says that it was reached, and waits.
        let armed = Arc::new(Mutex::new(None::<(Sender<()>, Receiver<()>)>));
        let taken = Arc::clone(&armed);
        let hook: Hook = Arc::new(move |change| {
            if matches!(change, Change::Sync)
                && let Some((reached, go_on)) = taken.lock().take()
            {
                reached.send(()).unwrap();
                go_on.recv().unwrap();
            }
            Ok(())
        });
        let timeout = Some(Duration::from_millis(20));
        let locks = LockSettings { timeout, ..options().locks };
        let options = options().locks(locks);
        let disk: Arc<dyn Disk> = Arc::new(HookedDisk { disk: shared(&plain), hook });
        let store = Store::create(&disk, LogId(3), &options).unwrap();
        let tree = store.create_tree("tree").unwrap();
        let mut early = store.begin(TxnOptions::default());
        early.put(&tree, b"a", b"new").unwrap();
        let mut other = store.begin(TxnOptions::default());
        other.put(&tree, b"z", b"").unwrap();
        other.commit().unwrap();

        let (reached, is_reached) = channel();
        let (go_on, waits) = channel();
        *armed.lock() = Some((reached, waits));
        thread::scope(|scope| {
            let committing = scope.spawn(|| early.commit());
            is_reached.recv().unwrap();
            let mut reader = store.begin(at(*isolation));
            let seen = reader.get(&tree, b"a");
            let case = format!("{isolation:?}: {seen:?}");
            assert!(matches!(&seen, Err(TxnError::Conflict(_)) | Ok(None)), "{case}");
            drop(reader);
            // Power fails here: it is as if it had never been.
            let crashed = Arc::new(plain.crash(Crash::Lost));
            let again = Store::open(&shared(&crashed), &options).unwrap();
            let found = again.begin(TxnOptions::default()).get(&again.tree("tree").unwrap(), b"a");
            assert_eq!(found.unwrap(), None, "{isolation:?}");
            go_on.send(()).unwrap();
            committing.join().unwrap().unwrap();
        });
        let mut reader = store.begin(at(*isolation));
        assert_eq!(reader.get(&tree, b"a").unwrap().as_deref(), Some(b"new".as_slice()));
    }
}

/// Counters that only grow, written by threads that commit in groups and read by others, while the
/// disk fails in some way; then the process is killed or the power fails, up to three times. What
/// any reader saw is there in the end, and what was never committed was seen by none.
#[test]
fn what_any_reader_saw_outlives_the_machine() {
    println!("seeds 0 to 39");
    (0..40).for_each(watch_counters);
}

#[test]
#[ignore = "soak: 2,000 chains with readers and group commit"]
fn what_any_reader_saw_outlives_2000_machines() {
    println!("seeds 1000 to 2999");
    (1_000..3_000).for_each(watch_counters);
}

const COUNTERS: u8 = 6;
/// What a transaction writes that is rolled back.
const NEVER: u64 = u64::MAX;

/// A store whose counters are written and watched.
struct Watched<'s> {
    store: &'s Store,
    tree: &'s TreeHandle,
    /// The highest value that was seen of each counter, by a reader or as an acknowledged commit.
    seen: &'s Mutex<[u64; COUNTERS as usize]>,
    writers: AtomicUsize,
}

fn watch_counters(seed: u64) {
    let mut random = Random::new(seed);
    let mut disk = disk(seed);
    drop(Store::create(&shared(&disk), LogId(seed), &options()).unwrap());
    let highest = Mutex::default();
    let mut events = format!("seed {seed}");
    for _ in 0..=random.below(3) {
        let none = Faults::default();
        let after = random.below(300);
        let faults = match random.below(5) {
            0 | 1 => Faults { crash_after: Some(after), ..none },
            2 => Faults { sync_error: 0.02, ..none },
            3 => Faults { write_error: 0.02, ..none },
            _ => Faults { capacity: Some(1_500_000 + 2_000 * after), ..none },
        };
        disk.set_faults(faults);
        if let Ok(store) = Store::open(&shared(&disk), &options()) {
            if let Ok(tree) = store.create_tree("tree") {
                let writers = AtomicUsize::new(usize::from(COUNTERS / 2));
                Watched { store: &store, tree: &tree, seen: &highest, writers }.run();
            }
            if random.below(2) == 0 {
                drop(store.close());
            }
        }
        let how = [Crash::Kept, Crash::Lost, Crash::Random, Crash::Weak][random.index(4)];
        events = format!("{events}; {faults:?}, then {how:?}");
        disk = Arc::new(disk.crash(how));
    }
    for ending in ["opened", "opened again"] {
        let store = Store::open(&shared(&disk), &options())
            .unwrap_or_else(|error| panic!("{events}: {error}\n{}", disk.trace()));
        store.check().unwrap_or_else(|error| panic!("{events}: {error}"));
        let mut transaction = store.begin(TxnOptions::default());
        let Some(tree) = store.tree("tree") else { continue };
        for counter in 0..COUNTERS {
            let found = number(transaction.get(&tree, &[counter]).unwrap().as_deref());
            let least = highest.lock()[usize::from(counter)];
            let case = format!("{events}; {ending}: {found}, and {least} was seen");
            assert!(found >= least && found != NEVER, "{case}");
        }
        drop((transaction, tree));
        drop(store);
        disk = Arc::new(disk.crash(Crash::Lost));
    }
}

fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
}

impl Watched<'_> {
    fn run(&self) {
        thread::scope(|scope| {
            for writer in 0..COUNTERS / 2 {
                scope.spawn(move || {
                    // Whatever ends it, the readers end as well.
                    drop(self.count([2 * writer, 2 * writer + 1]));
                    self.writers.fetch_sub(1, Ordering::SeqCst);
                });
            }
            for isolation in &LEVELS[1..] {
                scope.spawn(move || while self.is_written() && self.watch(*isolation).is_ok() {});
            }
            scope.spawn(|| while self.is_written() && self.store.checkpoint().is_ok() {});
        });
    }

    fn is_written(&self) -> bool {
        self.writers.load(Ordering::SeqCst) > 0
    }

    /// Raises two counters together, 150 times or until the store fails.
    fn count(&self, pair: [u8; 2]) -> Result<(), TxnError> {
        for _ in 0..150 {
            match self.raise(pair) {
                Err(error) if error.is_retryable() => {}
                raised => raised?,
            }
        }
        Ok(())
    }

    fn raise(&self, pair: [u8; 2]) -> Result<(), TxnError> {
        let mut rolled_back = self.store.begin(TxnOptions::default());
        for counter in pair {
            rolled_back.put(self.tree, &[counter], &NEVER.to_le_bytes())?;
        }
        rolled_back.roll_back()?;
        let mut transaction = self.store.begin(TxnOptions::default());
        let mut value = 0;
        for counter in pair {
            let old = transaction.get_for_update(self.tree, &[counter])?;
            value = number(old.as_deref()) + 1;
            transaction.put(self.tree, &[counter], &value.to_le_bytes())?;
        }
        transaction.commit()?;
        self.note(pair[0], value);
        self.note(pair[1], value);
        Ok(())
    }

    fn note(&self, counter: u8, value: u64) {
        let seen = &mut self.seen.lock()[usize::from(counter)];
        *seen = value.max(*seen);
    }

    /// Reads every counter once.
    fn watch(&self, isolation: Isolation) -> Result<(), TxnError> {
        let mut transaction = self.store.begin(at(isolation));
        for counter in 0..COUNTERS {
            let value = match transaction.get(self.tree, &[counter]) {
                Err(error) if error.is_retryable() => return Ok(()),
                read => number(read?.as_deref()),
            };
            assert_ne!(value, NEVER, "{isolation:?}");
            self.note(counter, value);
        }
        transaction.commit()
    }
}

/// Many changed pages and short segments: the tables of a checkpoint go into several records.
#[test]
fn a_checkpoint_of_any_size_fits_the_shortest_segments() {
    let base = options();
    let small = LogSettings { segment_bytes: 9_728, ..base.log };
    let buffer_bytes = 4_000 * 4096;
    let options = base.log(small).buffer_bytes(buffer_bytes).buffer_bytes_max(buffer_bytes);
    let (disk, store, tree) = new_store(5, &options);
    for group in 0..30_u16 {
        let mut transaction = store.begin(TxnOptions::default());
        for row in 0..100_u16 {
            transaction.put(&tree, &(group * 100 + row).to_be_bytes(), &[7; 900]).unwrap();
        }
        transaction.commit().unwrap();
    }
    store.checkpoint().unwrap();
    drop((tree, store));
    let crashed = Arc::new(disk.crash(Crash::Lost));
    let store = Store::open(&shared(&crashed), &options).unwrap();
    assert!(store.recovery().pages > 600, "{:?}", store.recovery());
    let tree = store.tree("tree").unwrap();
    let mut transaction = store.begin(TxnOptions::default());
    for row in 0..3_000_u16 {
        assert!(transaction.get(&tree, &row.to_be_bytes()).unwrap().is_some(), "{row}");
    }
    drop(transaction);
    store.check().unwrap();
}

#[test]
fn segments_that_are_too_short_for_a_record_are_refused_at_once() {
    let log = LogSettings { segment_bytes: 64 << 10, ..LogSettings::default() };
    let page_size = PageSize::new(64 << 10).unwrap();
    let options = StoreOptions::default().log(log).page_size(page_size);
    let error = Store::create(&shared(&disk(6)), LogId(6), &options).err().unwrap();
    let StoreError::SegmentTooShort { least, .. } = error else { panic!("{error}") };
    assert!(error.to_string().contains(&format!("set `segment_bytes` to {least}")), "{error}");
}

/// A store that was closed is read where nothing can be written, byte for byte as it was.
#[test]
fn a_closed_store_is_read_where_nothing_can_be_written() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path();
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::create(path, IoMode::Buffered).unwrap());
    let store = Store::create(&disk, LogId(7), &options()).unwrap();
    let tree = store.create_tree("tree").unwrap();
    let mut transaction = store.begin(TxnOptions::default());
    transaction.put(&tree, b"a", b"1").unwrap();
    transaction.commit().unwrap();
    drop(tree);
    assert!(matches!(read_only(path).err(), Some(StoreError::Io { .. })), "it is open");
    store.close().unwrap();
    drop(disk);

    let before = contents(path);
    let store = read_only(path).unwrap();
    let other = read_only(path).unwrap();
    let tree = store.tree("tree").unwrap();
    let mut transaction = store.begin(TxnOptions::default());
    assert_eq!(transaction.get(&tree, b"a").unwrap().as_deref(), Some(b"1".as_slice()));
    let refused = |result: Result<(), TxnError>| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("to be read only"), "{error}");
    };
    refused(transaction.put(&tree, b"a", b"2"));
    refused(transaction.remove(&tree, b"a").map(drop));
    transaction.commit().unwrap();
    refused(store.create_tree("other").map(drop).map_err(TxnError::from));
    refused(store.checkpoint().map_err(TxnError::from));
    refused(store.bulk_load(&tree, 90, [(b"z", b"")]).map(drop));
    store.check().unwrap();
    drop((tree, other));
    store.close().unwrap();
    assert!(contents(path) == before, "nothing is written");
}

fn read_only(path: &Path) -> Result<Store, StoreError> {
    Store::open_directory_read_only(path, &options())
}

fn contents(path: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_store_that_was_not_closed_is_not_read_where_nothing_can_be_written() {
    let directory = tempfile::TempDir::new().unwrap();
    let disk = FileDisk::create(directory.path(), IoMode::Buffered).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let store = Store::create(&disk, LogId(8), &options()).unwrap();
    store.create_tree("tree").unwrap();
    drop((store, disk));
    let error = read_only(directory.path()).err().unwrap();
    assert!(matches!(error, StoreError::NotClosed), "{error}");
}

#[test]
fn a_directory_without_a_store_is_left_as_it_was() {
    let directory = tempfile::TempDir::new().unwrap();
    let disk = FileDisk::open(directory.path(), IoMode::Buffered).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(disk);
    assert!(matches!(Store::open(&disk, &options()).err(), Some(StoreError::Head(_))));
    drop(disk);
    assert!(contents(directory.path()).is_empty());

    std::fs::write(directory.path().join("letter"), "hello").unwrap();
    let path = directory.path();
    for result in [
        Store::open_directory(path, &options()),
        Store::open_directory_read_only(path, &options()),
        Store::open_or_create(path, &options()),
    ] {
        let error = result.err().unwrap();
        assert!(matches!(error, StoreError::Head(HeadError::Missing)), "{error}");
        assert_eq!(contents(path).len(), 1);
    }
    let missing = path.join("missing");
    assert!(Store::open_directory(&missing, &options()).is_err());
    assert!(!missing.exists());
}
