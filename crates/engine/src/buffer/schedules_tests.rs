//! The pool used by tasks of a machine that draws its schedules, with fewer frames than pages,
//! while it is written, resized, and looked at by a checkpoint, before a power failure at some
//! moment.
//!
//! In every schedule a latched page is as it was changed last; what a checkpoint does not take for
//! dirty is on the disk after the power failure, nothing is there that the log has not; and no
//! frame is lost.

use std::collections::HashMap;

use tidegate_random::SplitMix64;
use tidegate_runtime::{entropy, explore, run_all, thread};

use super::*;
use crate::disk::{Crash, Disk, Faults, Open, SimulatedDisk};
use crate::page::{Fences, Kind, Node};
use crate::wal::{LogId, LogSettings};

const FRAMES: usize = 5;
const PAGE_COUNT: u64 = 9;
const SIZE: usize = 4_096;
const ID: LogId = LogId(7);

/// What was written to a page last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    lsn: Lsn,
    page: PageId,
    number: u64,
}

struct Stage {
    disk: Arc<SimulatedDisk>,
    log: Arc<Log>,
    pool: Pool,
    counters: IoCounters,
    /// All changes. Those of a page are in order: they are added under its latch.
    journal: Mutex<Vec<Written>>,
    seed: u64,
}

/// What a checkpoint has seen, and the disk after a power failure that came later.
struct Crashed {
    begin: Lsn,
    dirty: HashMap<PageId, Lsn>,
    disk: Arc<SimulatedDisk>,
}

fn log_settings() -> LogSettings {
    LogSettings { id: ID, segment_bytes: 64 << 10, ..LogSettings::default() }
}

/// Returns the file of pages and the doublewrite file.
fn files(disk: &SimulatedDisk, how: Open) -> [Arc<dyn File>; 2] {
    [PAGES, DOUBLEWRITE].map(|name| disk.open(name, how).expect("a file"))
}

fn number_of(page: &[u8]) -> u64 {
    u64::from_le_bytes(Node::new(page).value(0).try_into().expect("eight bytes"))
}

impl Stage {
    fn new() -> Arc<Stage> {
        let disk = Arc::new(SimulatedDisk::new(entropy(), Faults::default()));
        let dynamic = Arc::clone(&disk) as Arc<dyn Disk>;
        let log = Arc::new(Log::create(dynamic, log_settings()).expect("a log"));
        let [pages, copies] = files(&disk, Open::New);
        disk.sync_directory().expect("no fault");
        let copies = DoubleWrite::new(copies, Seed::of(ID), true);
        let size = PageSize::new(SIZE as u64).expect("a size");
        let pool = Pool::new(size, FRAMES, FRAMES + 2, pages, 1, copies, Arc::clone(&log));
        let pool = pool.expect("there is memory");
        let (counters, journal) = (IoCounters::default(), Mutex::default());
        let stage = Arc::new(Stage { disk, log, pool, counters, journal, seed: entropy() });
        for id in 1..=PAGE_COUNT {
            let page = stage.pool.write_new(PageId(id), &stage.counters).expect("a frame");
            let fences = Fences { low: b"", high: None };
            let format =
                Change::FormatNode { tree: TreeId(1), level: 0, fences, right: PageId::NONE };
            let insert = Change::Insert { slot: 0, tail: b"k", value: &[0; 8] };
            stage.change(page, 0, &[format, insert]);
        }
        stage
    }

    fn change(&self, mut page: Exclusive<'_>, number: u64, changes: &[Change<'_>]) {
        page.announce(&self.log);
        let lsn = self.log.append(&[page.id().0, number].map(u64::to_le_bytes).concat());
        let lsn = lsn.expect("room");
        page.apply(changes, lsn).expect("it fits");
        self.journal.lock().push(Written { lsn, page: page.id(), number });
    }

    fn last(&self, page: PageId) -> Written {
        let journal = self.journal.lock();
        *journal.iter().rfind(|written| written.page == page).expect("each page was formatted")
    }

    /// A latched page is as it was changed last.
    fn check(&self, bytes: &[u8], page: PageId) {
        let last = self.last(page);
        let found = (page::id(bytes), page::lsn(bytes), number_of(bytes));
        assert_eq!(found, (page, last.lsn, last.number), "page {page} is not as it was left");
    }

    fn read(&self, page: PageId) {
        self.check(&self.pool.read(page, &self.counters).expect("a frame"), page);
    }

    fn write(&self, page: PageId, number: u64) {
        let latched = self.pool.write(page, &self.counters).expect("a frame");
        self.check(&latched, page);
        self.change(latched, number, &[Change::Replace { slot: 0, value: &number.to_le_bytes() }]);
    }

    fn use_pages(&self, task: u64) {
        let mut random = SplitMix64::new(self.seed + task);
        for turn in 1..=6 {
            // Three pages are hot, so that they change while they are written.
            let end = if random.next_below(2) == 0 { 3 } else { PAGE_COUNT };
            let page = PageId(1 + u64::from(random.next_below(end.try_into().expect("few"))));
            match random.next_below(3) {
                0 => self.read(page),
                _ => self.write(page, task * 100 + turn),
            }
        }
    }

    /// Looks as a checkpoint does, and lets the power fail later.
    fn crash(&self) -> Crashed {
        let mut random = SplitMix64::new(self.seed);
        (0..random.next_below(100)).for_each(|_| thread::point());
        let begin = self.log.end();
        let dirty = self.pool.dirty().into_iter().collect();
        self.log.force(begin).expect("no fault");
        (0..random.next_below(60)).for_each(|_| thread::point());
        let how = [Crash::Lost, Crash::Random][random.next_below(2) as usize];
        Crashed { begin, dirty, disk: Arc::new(self.disk.crash(how)) }
    }

    /// The disk that is found has what was to be on it.
    fn check_crashed(&self, crashed: &Crashed) {
        let Crashed { begin, dirty, disk } = crashed;
        let [pages, copies] = files(disk, Open::Existing);
        let copies = DoubleWrite::open(copies, Seed::of(ID), true, SIZE).expect("a file");
        copies.renew(&*pages, SIZE).expect("no fault");
        let dynamic = Arc::clone(disk) as Arc<dyn Disk>;
        let (log, _) = Log::open(dynamic, log_settings(), Lsn::ZERO).expect("a log");
        let journal = self.journal.lock();
        for page in (1..=PAGE_COUNT).map(PageId) {
            let mut bytes = vec![0; SIZE];
            let read = pages.read_at(&mut bytes, page.0 * SIZE as u64);
            let is_there = read.is_ok() && page::kind(&bytes) == Kind::Node;
            if is_there {
                page::verify(&bytes, page, Seed::of(ID)).expect("a whole page");
            }
            let on_disk = if is_there { page::lsn(&bytes) } else { Lsn::ZERO };
            assert!(on_disk < log.end(), "page {page} is ahead of the log");
            let needed = dirty.get(&page).copied().unwrap_or(*begin);
            for written in journal.iter().filter(|written| written.page == page) {
                let Written { lsn, number, .. } = *written;
                assert!(lsn >= needed || lsn <= on_disk, "page {page}: {lsn} is not on the disk");
                assert!(lsn != on_disk || number == number_of(&bytes), "page {page}: another");
            }
        }
    }
}

fn pages_come_and_go() {
    let stage = Stage::new();
    let mut bodies: Vec<Box<dyn FnOnce() -> Option<Crashed> + Send>> = Vec::new();
    for task in 1..=2 {
        let stage = Arc::clone(&stage);
        bodies.push(Box::new(move || {
            stage.use_pages(task);
            None
        }));
    }
    let ours = Arc::clone(&stage);
    let may_resize = stage.seed & 1 > 0;
    bodies.push(Box::new(move || {
        for frames in [FRAMES + 2, FRAMES] {
            if may_resize {
                ours.pool.resize(frames).expect("no fault");
            }
            ours.pool.write_coldest().expect("no fault");
        }
        None
    }));
    let (ours, may_write) = (Arc::clone(&stage), stage.seed & 2 > 0);
    bodies.push(Box::new(move || {
        if may_write {
            ours.pool.write_all().expect("no fault");
        }
        None
    }));
    let ours = Arc::clone(&stage);
    bodies.push(Box::new(move || Some(ours.crash())));
    let crashed: Vec<Crashed> = run_all(bodies).into_iter().flatten().collect();
    stage.check_crashed(&crashed[0]);

    (1..=PAGE_COUNT).for_each(|page| stage.read(PageId(page)));
    stage.pool.write_all().expect("no fault");
    assert_eq!(stage.pool.dirty(), [], "all is written");
    let disk = Arc::new(stage.disk.crash(Crash::Lost));
    stage.check_crashed(&Crashed { begin: stage.log.end(), dirty: HashMap::new(), disk });
    check_frames(&stage.pool);
}

/// Each frame that counts has a page or can be taken, and the others have none.
fn check_frames(pool: &Pool) {
    let count = pool.frames();
    let is_used = |frame: &Frame| !frame.page().is_none();
    assert_eq!(pool.frames[count..].iter().filter(|frame| is_used(frame)).count(), 0);
    let mut candidates = Vec::new();
    while let Some(index) = pool.replacement.lock().candidate(&pool.frames) {
        candidates.push(index);
    }
    candidates.sort_unstable();
    assert_eq!(candidates, (0..count).collect::<Vec<_>>(), "a frame was lost");
}

#[test]
fn pages_are_as_they_were_left_in_every_drawn_schedule() {
    println!("{}", explore("pool, pages", 120, pages_come_and_go));
}

#[test]
#[ignore = "soak: 20,000 schedules"]
fn pages_are_as_they_were_left_in_many_drawn_schedules() {
    println!("{}", explore("pool, pages", 20_000, pages_come_and_go));
}
