//! The store on a machine that draws its schedules, and a power failure at some moment: what was
//! committed is there after recovery, and nothing else.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_engine::disk::{Crash, SimulatedDisk};
use tidegate_engine::{Durability, Store, TreeHandle, TxnOptions};
use tidegate_runtime::{entropy, explore, run_all, thread};

use crate::{Random, new_store, options, reopen};

/// Each task has two keys, which every transaction of it sets to the same number.
const TASKS: u8 = 2;

/// A number that was rolled back is odd.
type Number = u32;

struct Shared {
    disk: Arc<SimulatedDisk>,
    store: Store,
    tree: TreeHandle,
    /// For each task the number committed last. Never locked where the machine may switch.
    committed: Mutex<[Number; TASKS as usize]>,
}

fn keys(task: u8) -> [[u8; 2]; 2] {
    [[1, task], [2, task]]
}

impl Shared {
    fn write(&self, task: u8, random: &mut Random) {
        for turn in 0..3 {
            let is_committed = random.below(3) > 0;
            let number = 10 * (turn + 1) + Number::from(!is_committed);
            let options = TxnOptions::default().durability(Durability::Synced);
            let mut transaction = self.store.begin(options);
            for key in keys(task) {
                transaction.put(&self.tree, &key, &number.to_le_bytes()).unwrap();
            }
            if is_committed {
                transaction.commit().unwrap();
                self.committed.lock()[usize::from(task)] = number;
            } else {
                transaction.roll_back().unwrap();
            }
        }
    }

    /// Lets the power fail. Returns what was committed before, and the disk that is found.
    fn crash(&self, random: &mut Random) -> ([Number; TASKS as usize], Arc<SimulatedDisk>) {
        (0..random.below(600)).for_each(|_| thread::point());
        let committed = *self.committed.lock();
        let how = *random.pick(&[Crash::Lost, Crash::Random, Crash::Kept]);
        (committed, Arc::new(self.disk.crash(how)))
    }
}

fn check(store: &Store, committed: [Number; TASKS as usize], is_end: bool) {
    let tree = store.tree("tree").unwrap();
    let mut reader = store.begin(TxnOptions::default());
    for task in 0..TASKS {
        let found = keys(task).map(|key| {
            let value = reader.get(&tree, &key).unwrap();
            value.map_or(0, |value| Number::from_le_bytes(value.try_into().unwrap()))
        });
        assert_eq!(found[0], found[1], "half of a transaction of task {task}");
        let least = committed[usize::from(task)];
        assert_eq!(found[0] % 10, 0, "task {task}: what was not committed");
        assert!(found[0] >= least, "task {task}: {} after {least} was committed", found[0]);
        assert!(!is_end || found[0] == least, "task {task}: {} and not {least}", found[0]);
    }
    drop(reader);
    store.check().unwrap();
}

fn crashes() {
    let (disk, store, tree) = new_store(entropy(), &options());
    let shared = Arc::new(Shared { disk, store, tree, committed: Mutex::default() });
    let crashed = Arc::new(Mutex::new(None));
    let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for task in 0..TASKS {
        let (shared, mut random) = (Arc::clone(&shared), Random::new(entropy()));
        bodies.push(Box::new(move || shared.write(task, &mut random)));
    }
    let (ours, may_flush) = (Arc::clone(&shared), entropy() & 1 > 0);
    bodies.push(Box::new(move || {
        for _ in 0..2 {
            if may_flush { ours.store.flush() } else { ours.store.checkpoint() }.unwrap();
        }
    }));
    let (ours, place, mut random) =
        (Arc::clone(&shared), Arc::clone(&crashed), Random::new(entropy()));
    bodies.push(Box::new(move || {
        let found = ours.crash(&mut random);
        *place.lock() = Some(found);
    }));
    run_all(bodies);
    let (committed, disk) = crashed.lock().take().unwrap();
    check(&reopen(&disk), committed, false);
    check(&shared.store, *shared.committed.lock(), true);
}

#[test]
fn what_is_committed_is_recovered_in_every_drawn_schedule() {
    println!("{}", explore("store, crashes", 40, crashes));
}

#[test]
#[ignore = "soak: 10,000 schedules"]
fn what_is_committed_is_recovered_in_many_drawn_schedules() {
    println!("{}", explore("store, crashes", 10_000, crashes));
}
