//! Where intention locks are, before and after a strong request. In a file of their own, because
//! `bench/loom` compiles that of the intents without the lock manager.

use std::time::Duration;

use super::multi_granularity::{IS, IX, S, SIX, X};
use super::{Hierarchy, LockError, LockManager, LockSettings, Locker, ModeTable, Priority, Wait};

type Table = std::sync::Arc<LockManager<&'static str>>;

fn table() -> Table {
    let hierarchy = Hierarchy { is_whole: |name: &&str| *name != "key", escalation: None };
    let modes = ModeTable::multi_granularity();
    LockManager::with_hierarchy(modes, LockSettings::default(), hierarchy)
}

fn locker(table: &Table) -> Locker<&'static str> {
    table.locker(Priority::default())
}

/// Locks in stripes.
fn in_stripes(table: &Table) -> u64 {
    table.intents.loads().map(|load| load.held).sum()
}

#[test]
fn the_intents_are_the_first_modes_that_go_together() {
    let modes = ModeTable::multi_granularity();
    let intents: Vec<_> = modes.modes().filter(|mode| modes.intents().contains(*mode)).collect();
    assert_eq!(intents, [IS, IX]);
}

#[test]
fn only_intentions_on_wholes_are_in_stripes() {
    let table = table();
    let (mut one, mut other) = (locker(&table), locker(&table));
    for (resource, mode, held) in [("tree", IS, 1), ("key", IS, 1), ("store", IX, 2)] {
        assert_eq!(one.try_lock(&resource, mode), Ok(true));
        assert_eq!(in_stripes(&table), held, "{resource}");
    }
    assert_eq!(one.try_lock(&"tree", IX), Ok(true), "a conversion stays where it is");
    assert_eq!(in_stripes(&table), 2);
    assert_eq!(other.try_lock(&"tree", S), Ok(false));
    assert_eq!(in_stripes(&table), 1, "who asks for more sees what is held");
    assert_eq!(table.statistics().held, 3);
    one.release_all();
    assert_eq!((in_stripes(&table), table.dump()), (0, vec![]));
}

/// However a strong lock ends, or the request for one, intentions go to the stripes again.
#[test]
fn what_is_counted_is_taken_back() {
    type End = fn(&Table, &mut Locker<&'static str>);
    let ends: [(&str, End); 6] = [
        ("given up", |_, strong| {
            assert_eq!(strong.try_lock(&"tree", S), Ok(true));
            assert_eq!(strong.try_lock(&"tree", X), Ok(true));
            assert!(strong.unlock(&"tree"));
        }),
        ("all given up", |_, strong| {
            assert_eq!(strong.try_lock(&"tree", SIX), Ok(true));
            strong.release_all();
        }),
        ("for a moment", |_, strong| {
            strong.lock_instant(&"tree", X, Wait::AsSet).expect("nobody is there");
        }),
        ("back to an intention", |_, strong| {
            assert_eq!(strong.try_lock(&"tree", IS), Ok(true));
            strong.lock_instant(&"tree", X, Wait::AsSet).expect("nobody is there");
            assert_eq!(strong.held(&"tree"), Some(IS));
        }),
        ("refused", |table, strong| {
            let mut other = locker(table);
            assert_eq!(other.try_lock(&"tree", IX), Ok(true));
            assert_eq!(strong.try_lock(&"tree", X), Ok(false));
        }),
        ("too late", |table, strong| {
            let mut other = locker(table);
            assert_eq!(other.try_lock(&"tree", IX), Ok(true));
            assert_eq!(strong.try_lock(&"tree", IX), Ok(true));
            let wait = Wait::For(Duration::ZERO);
            assert_eq!(strong.lock(&"tree", X, wait), Err(LockError::TimedOut));
            assert_eq!(strong.held(&"tree"), Some(IX));
        }),
    ];
    for (name, end) in ends {
        let table = table();
        let (mut strong, mut next) = (locker(&table), locker(&table));
        end(&table, &mut strong);
        assert_eq!(next.try_lock(&"tree", IX), Ok(true), "{name}");
        assert_eq!(in_stripes(&table), 1, "{name}");
        drop((strong, next));
        assert_eq!((in_stripes(&table), table.dump()), (0, vec![]), "{name}");
    }
}

#[test]
fn while_one_is_strong_intentions_are_in_the_bucket() {
    let table = table();
    let (mut strong, mut next) = (locker(&table), locker(&table));
    assert_eq!(strong.try_lock(&"tree", S), Ok(true));
    assert_eq!(next.try_lock(&"tree", IS), Ok(true));
    assert_eq!(next.try_lock(&"tree", IX), Ok(false));
    assert_eq!(in_stripes(&table), 0);
    assert_eq!(table.queue(&"tree").granted.len(), 2);
}
