//! The store on a machine that is switched off at any moment.

use std::sync::Arc;

use tidegate_engine::disk::{Crash, Faults, SimulatedDisk};
use tidegate_engine::wal::LogId;
use tidegate_engine::{Store, TxnOptions};

use super::{Model, Random, disk, options, shared};

/// A workload that is cut off anywhere; the model of what was acknowledged, and what one
/// transaction more may have made of it.
fn run_until_off(disk: &Arc<SimulatedDisk>, random: &mut Random) -> (Model, Model) {
    let (mut sure, mut maybe) = (Model::new(), Model::new());
    let Ok(store) = Store::open(&shared(disk), &options()) else {
        return (sure, maybe);
    };
    let Ok(tree) = store.create_tree("tree") else {
        return (sure, maybe);
    };
    loop {
        let mut transaction = store.begin(TxnOptions::default());
        maybe.clone_from(&sure);
        for _ in 0..=random.below(30) {
            let key = format!("{:05}", random.below(400)).into_bytes();
            let done = if random.below(3) == 0 {
                maybe.remove(&key);
                transaction.remove(&tree, &key).map(|_| ())
            } else {
                let value = random.bytes_up_to(300);
                maybe.insert(key.clone(), value.clone());
                transaction.put(&tree, &key, &value)
            };
            if done.is_err() {
                return (sure.clone(), sure);
            }
        }
        match random.below(5) {
            0 => {
                if transaction.roll_back().is_err() {
                    return (sure.clone(), sure);
                }
            }
            _ => match transaction.commit() {
                Ok(()) => sure.clone_from(&maybe),
                Err(_) => return (sure, maybe),
            },
        }
        let done = match random.below(20) {
            0 => store.checkpoint(),
            1 => store.flush(),
            _ => Ok(()),
        };
        if done.is_err() {
            return (sure.clone(), sure);
        }
    }
}

fn contents(store: &Store) -> Model {
    let Some(tree) = store.tree("tree") else {
        return Model::new();
    };
    let mut transaction = store.begin(TxnOptions::default());
    let keys = (0..400).map(|key| format!("{key:05}").into_bytes());
    keys.filter_map(|key| {
        let value = transaction.get(&tree, &key).unwrap()?;
        Some((key, value))
    })
    .collect()
}

fn crash_once(seed: u64) {
    let mut random = Random::new(seed);
    let disk = disk(seed);
    drop(Store::create(&shared(&disk), LogId(seed), &options()).unwrap());
    let operations = 1 + random.below(400);
    disk.set_faults(Faults { crash_after: Some(operations), ..Faults::default() });
    let (sure, maybe) = run_until_off(&disk, &mut random);
    let kind =
        [Crash::Kept, Crash::Lost, Crash::Random, Crash::Weak][usize::try_from(seed % 4).unwrap()];
    let mut crashed = Arc::new(disk.crash(kind));
    // Every third recovery is cut off as well.
    if seed.is_multiple_of(3) {
        let operations = 1 + random.below(30);
        crashed.set_faults(Faults { crash_after: Some(operations), ..Faults::default() });
        drop(Store::open(&shared(&crashed), &options()));
        crashed = Arc::new(crashed.crash(kind));
    }
    let store = match Store::open(&shared(&crashed), &options()) {
        Ok(store) => store,
        Err(error) => panic!("seed {seed}, {kind:?}: {error}\n{}", crashed.trace()),
    };
    let found = contents(&store);
    assert!(
        found == sure || found == maybe,
        "seed {seed}, {kind:?}: {} keys, {} or {} expected",
        found.len(),
        sure.len(),
        maybe.len()
    );
    if let Err(error) = store.check() {
        panic!("seed {seed}, {kind:?}: {error}");
    }
    drop(store);
    let again = Store::open(&shared(&crashed), &options()).unwrap();
    assert_eq!(again.recovery().redone, 0, "seed {seed}: a second recovery changes nothing");
    assert_eq!(contents(&again), found, "seed {seed}");
}

#[test]
fn after_a_crash_everything_acknowledged_is_there_and_nothing_by_halves() {
    println!("seeds 0 to 399");
    (0..400).for_each(crash_once);
}

#[test]
#[ignore = "soak: ten thousand crashes"]
fn after_ten_thousand_crashes_everything_acknowledged_is_there() {
    println!("seeds 1000 to 10999");
    (1_000..11_000).for_each(crash_once);
}

/// Threads commit while another takes checkpoints, until the machine is switched off: what was
/// acknowledged to any of them is there.
#[test]
fn what_was_acknowledged_to_any_thread_survives_checkpoints_and_crashes() {
    use std::sync::Mutex;
    use std::thread;

    for seed in 0..20 {
        let random = &mut Random::new(seed);
        let disk = disk(seed);
        drop(Store::create(&shared(&disk), LogId(seed), &options()).unwrap());
        let operations = 200 + random.below(3_000);
        disk.set_faults(Faults { crash_after: Some(operations), ..Faults::default() });
        let store = Store::open(&shared(&disk), &options()).unwrap();
        let Ok(tree) = store.create_tree("tree") else { continue };
        let acknowledged = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for writer in 0..4_u64 {
                let (store, tree, acknowledged) = (&store, &tree, &acknowledged);
                scope.spawn(move || {
                    for number in 0_u64.. {
                        let key = [writer.to_be_bytes(), number.to_be_bytes()].concat();
                        let mut transaction = store.begin(TxnOptions::default());
                        let put = transaction.insert(tree, &key, &[7; 100]);
                        if put.is_err() || transaction.commit().is_err() {
                            return;
                        }
                        acknowledged.lock().unwrap().push(key);
                    }
                });
            }
            scope.spawn(|| while store.checkpoint().is_ok() {});
        });
        drop((tree, store));
        let crashed = Arc::new(disk.crash([Crash::Lost, Crash::Random][(seed % 2) as usize]));
        let store = Store::open(&shared(&crashed), &options()).unwrap();
        let tree = store.tree("tree").unwrap();
        let mut transaction = store.begin(TxnOptions::default());
        let acknowledged = acknowledged.into_inner().unwrap();
        for key in &acknowledged {
            let value = transaction.get(&tree, key).unwrap();
            assert!(value.is_some(), "seed {seed}: one of {} is lost", acknowledged.len());
        }
        drop(transaction);
        store.check().unwrap();
    }
}
