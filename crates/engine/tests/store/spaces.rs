//! Spaces of labels that the client of the store locks for itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_engine::lock::multi_granularity::{IS, IX, S, SIX, U, X};
use tidegate_engine::lock::{
    EscalationPolicy, LockError, LockSettings, Mode, ModeTable, Priorities, Priority, Victim, Wait,
};
use tidegate_engine::{
    LabelHierarchy, LockSpace, ModeStatistics, NoHierarchy, Store, StoreError, StoreOptions,
    Transaction, TreeHandle, TxnError, TxnOptions,
};

use super::{Random, new_store, options};

const TADOM_COMPATIBILITY: &str = include_str!("../locks/tables/tadom3plus_compatibility.txt");
const TADOM_SUPREMUM: &str = include_str!("../locks/tables/tadom3plus_supremum.txt");

fn tadom() -> ModeTable {
    ModeTable::parse(TADOM_COMPATIBILITY, TADOM_SUPREMUM).unwrap()
}

/// A space without a hierarchy, in the modes of multi-granularity locking.
fn flat(store: &Store, name: &str) -> LockSpace {
    store.create_lock_space(name, ModeTable::multi_granularity(), Arc::new(NoHierarchy)).unwrap()
}

fn with_timeout(timeout: Option<Duration>) -> StoreOptions {
    options().locks(LockSettings { timeout, ..options().locks })
}

fn begin(store: &Store) -> Transaction {
    store.begin(TxnOptions::default())
}

#[test]
fn labels_are_locked_short_instant_and_as_long_as_the_client_says() {
    let (_, store, _) = new_store(1, &options());
    let nodes = flat(&store, "nodes");
    let (mut one, mut other) = (begin(&store), begin(&store));
    let soon = Wait::For(Duration::from_millis(1));

    one.locks_in(&nodes).unwrap().lock_with(b"a", S, soon).unwrap();
    assert!(!other.locks_in(&nodes).unwrap().try_lock(b"a", X).unwrap(), "no conflict");
    let mut locks = one.locks_in(&nodes).unwrap();
    assert!(locks.unlock(b"a") && !locks.unlock(b"a"));
    other.locks_in(&nodes).unwrap().lock_instant(b"a", X, soon).unwrap();
    assert_eq!(other.locks_in(&nodes).unwrap().held(b"a"), None);

    // A stronger lock for a while.
    locks.lock(b"a", S).unwrap();
    let before = locks.held(b"a");
    locks.lock(b"a", X).unwrap();
    locks.restore(b"a", before);
    assert_eq!((locks.held(b"a"), locks.count()), (Some(S), 1));
    let mut others = other.locks_in(&nodes).unwrap();
    assert!(others.try_lock(b"a", S).unwrap());
    // A label that only begins like it, and one that is longer than any.
    for label in [&b"a\0"[..], &[b'a'; 500]] {
        assert!(others.try_lock(label, X).unwrap());
        assert_eq!(nodes.queue(label).granted.len(), 1);
    }

    let late = others.lock_with(b"a", X, soon);
    assert!(matches!(late, Err(TxnError::Conflict(LockError::TimedOut))), "{late:?}");
    assert!(others.lock_instant(b"a", S, soon).is_err(), "it has to be rolled back");
    assert!(other.locks_in(&nodes).is_err());
    drop(other);
    assert_eq!((nodes.dump().len(), one.lock_count()), (1, 1));
    one.commit().unwrap();
    assert_eq!((nodes.dump(), store.lock_statistics().held), (vec![], 0));
}

#[test]
fn each_space_has_its_own_labels_and_modes() {
    let (_, store, _) = new_store(1, &options());
    let nodes = store.create_lock_space("nodes", tadom(), Arc::new(NoHierarchy)).unwrap();
    let names: Vec<String> = (0..64).map(|number| format!("M{number}")).collect();
    // All go together, and of two the higher one is held.
    let grid = |cell: &dyn Fn(usize, usize) -> String| {
        let row = |row: usize| {
            let cells: Vec<String> = (0..64).map(|column| cell(row, column)).collect();
            format!("{} {}", names[row], cells.join(" "))
        };
        format!("{}\n{}", names.join(" "), (0..64).map(row).collect::<Vec<_>>().join("\n"))
    };
    let conversion = grid(&|row, column| names[row.max(column)].clone());
    let modes = ModeTable::parse(&grid(&|_, _| "+".to_owned()), &conversion).unwrap();
    let many = store.create_lock_space("many", modes, Arc::new(NoHierarchy)).unwrap();
    assert_eq!((nodes.modes().len(), many.modes().len(), many.mode("X")), (20, 64, None));

    let mode = |name| nodes.mode(name).unwrap();
    let (mut reader, mut writer) = (begin(&store), begin(&store));
    reader.locks_in(&nodes).unwrap().lock(b"n", mode("LR")).unwrap();
    writer.locks_in(&nodes).unwrap().lock(b"n", mode("NR")).unwrap();
    assert!(!writer.locks_in(&nodes).unwrap().try_lock(b"n", mode("CX")).unwrap());
    for transaction in [&mut reader, &mut writer] {
        transaction.locks_in(&many).unwrap().lock(b"n", many.mode("M63").unwrap()).unwrap();
    }
    assert_eq!(store.lock_spaces(), [nodes.clone(), many]);
    assert_eq!(store.lock_space("nodes"), Some(nodes));
    assert_eq!(reader.lock_count(), 2);
}

#[test]
fn a_space_is_replaced_when_no_transaction_uses_it() {
    let (_, store, _) = new_store(1, &options());
    let old = flat(&store, "nodes");
    let again = store.create_lock_space("nodes", tadom(), Arc::new(NoHierarchy));
    assert!(matches!(again, Err(StoreError::LockSpaceExists { name }) if name == "nodes"));
    let replace = |old: &LockSpace| store.replace_lock_space(old, tadom(), Arc::new(NoHierarchy));

    let mut user = begin(&store);
    user.locks_in(&old).unwrap().lock(b"a", S).unwrap();
    assert!(matches!(
        replace(&old),
        Err(TxnError::Store(StoreError::LockSpaceInUse { transactions: 1, .. }))
    ));
    user.commit().unwrap();
    let new = replace(&old).unwrap();
    assert_eq!(store.lock_space("nodes").as_ref(), Some(&new));
    for refused in [replace(&old).map(|_| ()), begin(&store).locks_in(&old).map(|_| ())] {
        let is_named = matches!(
            refused,
            Err(TxnError::Store(StoreError::LockSpaceReplaced { ref name })) if name == "nodes"
        );
        assert!(is_named, "{refused:?}");
    }
    let mut user = begin(&store);
    user.locks_in(&new).unwrap().lock(b"a", new.mode("SX").unwrap()).unwrap();

    let (_, stranger, _) = new_store(2, &options());
    let elsewhere = stranger.replace_lock_space(&new, tadom(), Arc::new(NoHierarchy));
    assert!(matches!(elsewhere, Err(TxnError::OtherStore)));
    assert!(matches!(begin(&stranger).locks_in(&new).map(|_| ()), Err(TxnError::OtherStore)));
}

/// Calls `wait` in a thread and `then` when somebody waits.
fn meanwhile<T: Send>(store: &Store, wait: impl FnOnce() -> T + Send, then: impl FnOnce()) -> T {
    thread::scope(|scope| {
        let waiting = scope.spawn(wait);
        while store.lock_statistics().waiting == 0 {
            thread::yield_now();
        }
        then();
        waiting.join().unwrap()
    })
}

/// Each holds what the other asks for, one of the two a key of a tree and one a label. The victim
/// has the fewest locks in all tables together, though not in each.
#[test]
fn a_deadlock_across_keys_and_labels_is_found() {
    for check_on_block in [true, false] {
        for spaces in [["nodes", "nodes"], ["nodes", "edges"]] {
            let locks = LockSettings {
                check_on_block,
                timeout: Some(Duration::from_secs(600)),
                victim: Victim::FewestLocks,
                ..options().locks
            };
            let every = Some(Duration::from_millis(1));
            let options = options().locks(locks).detect_every(every);
            let (_, store, tree) = new_store(1, &options);
            let [own, first] = spaces.map(|name| {
                let known = store.lock_space(name);
                known.unwrap_or_else(|| flat(&store, name))
            });
            let (mut one, mut other) = (begin(&store), begin(&store));
            one.put(&tree, b"key", b"").unwrap();
            for label in [b"1", b"2", b"3", b"4", b"5"] {
                one.locks_in(&own).unwrap().lock(label, X).unwrap();
            }
            for key in [b"a", b"b"] {
                other.put(&tree, key, b"").unwrap();
            }
            other.locks_in(&first).unwrap().lock(b"node", X).unwrap();
            assert!(other.lock_count() < one.lock_count());
            let waited = meanwhile(
                &store,
                || one.locks_in(&first).unwrap().lock(b"node", S),
                || {
                    let refused = other.put(&tree, b"key", b"");
                    let deadlock = TxnError::Conflict(LockError::Deadlock);
                    assert_eq!(refused.unwrap_err().to_string(), deadlock.to_string());
                    drop(other);
                },
            );
            assert!(waited.is_ok(), "{waited:?}");
            let seen = store.lock_statistics();
            assert_eq!((seen.deadlocks, seen.timeouts), (1, 0));
        }
    }
}

/// One of low priority that holds a label gives way when it comes to wait for a key.
#[test]
fn who_waits_for_a_key_gives_way_to_who_waits_for_its_label() {
    let priorities = Priorities::PreemptOnWait;
    let (_, store, tree) = new_store(
        1,
        &options().locks(LockSettings {
            priorities,
            timeout: Some(Duration::from_secs(600)),
            ..options().locks
        }),
    );
    let nodes = flat(&store, "nodes");
    let (mut low, mut middle) = (begin(&store), begin(&store));
    middle.put(&tree, b"key", b"").unwrap();
    low.locks_in(&nodes).unwrap().lock(b"node", X).unwrap();
    let mut high = store.begin(TxnOptions::default().priority(Priority(1)));
    let waited = meanwhile(
        &store,
        || high.locks_in(&nodes).unwrap().lock(b"node", X),
        || {
            let refused = low.put(&tree, b"key", b"");
            assert!(matches!(refused, Err(TxnError::Conflict(LockError::Preempted))));
            drop(low);
        },
    );
    assert!(waited.is_ok(), "{waited:?}");
}

#[test]
fn what_is_done_in_each_mode_is_counted() {
    let (_, store, _) = new_store(1, &with_timeout(Some(Duration::from_millis(1))));
    let nodes = flat(&store, "nodes");
    let (mut one, mut other) = (begin(&store), begin(&store));
    for _ in 0..3 {
        one.locks_in(&nodes).unwrap().lock(b"a", S).unwrap();
    }
    other.locks_in(&nodes).unwrap().lock(b"a", IS).unwrap();
    assert!(other.locks_in(&nodes).unwrap().lock(b"a", IX).is_err());
    drop((one, other));
    let counted = nodes.statistics_by_mode();
    let of = |name| {
        let found = counted.iter().find(|counted| counted.name == name).unwrap();
        let ModeStatistics { requests, waits, timeouts, deadlocks, .. } = found;
        [*requests, *waits, *timeouts, *deadlocks]
    };
    assert_eq!([of("S"), of("IS"), of("IX")], [[3, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]]);
    assert_eq!(nodes.statistics().timeouts, 1);
    assert_eq!(store.locks().statistics().timeouts, 0);
}

/// Labels like `1.2.3`, each contained in what is before its last dot, and all in the empty one.
struct Dotted {
    read_below: fn(&ModeTable, Mode) -> &'static str,
    modes: ModeTable,
    /// Divided by the level and one.
    escalate_at: Option<u32>,
}

impl Dotted {
    fn parent_of(label: &[u8]) -> Option<&[u8]> {
        let dot = label.iter().rposition(|byte| *byte == b'.');
        dot.map(|dot| &label[..dot]).or((!label.is_empty()).then_some(b""))
    }
}

impl LabelHierarchy for Dotted {
    fn parent<'l>(&self, label: &'l [u8]) -> Option<Cow<'l, [u8]>> {
        Dotted::parent_of(label).map(Cow::Borrowed)
    }

    fn escalate_at(&self, label: &[u8], _: EscalationPolicy) -> Option<u32> {
        let above =
            std::iter::successors(Dotted::parent_of(label), |above| Dotted::parent_of(above));
        self.escalate_at.map(|at| at / (u32::try_from(above.count()).unwrap() + 1))
    }

    fn covering(&self, mode: Mode) -> Mode {
        self.modes.mode((self.read_below)(&self.modes, mode)).unwrap()
    }

    fn is_shared(&self, label: &[u8]) -> bool {
        label.is_empty()
    }
}

fn covering_mgl(_: &ModeTable, mode: Mode) -> &'static str {
    match mode {
        IS | S => "S",
        U => "U",
        _ => "X",
    }
}

fn covering_tadom(modes: &ModeTable, mode: Mode) -> &'static str {
    match modes.name(mode) {
        "IR" | "NR" => "LR",
        "LR" | "SR" => "SR",
        "NU" | "LRNU" | "SRNU" | "SU" => "SU",
        _ => "SX",
    }
}

/// A lock table of one space as lists that are searched from the start.
struct Naive {
    hierarchy: Dotted,
    /// Transaction, label, mode, requests that count, and how many those were at a refusal.
    held: Vec<NaiveLock>,
}

#[derive(Clone, Debug)]
struct NaiveLock {
    owner: usize,
    label: Vec<u8>,
    mode: Mode,
    requests: u32,
    refused_at: u32,
}

impl Naive {
    fn at(&self, owner: usize, label: &[u8]) -> Option<usize> {
        self.held.iter().position(|lock| lock.owner == owner && lock.label == label)
    }

    fn mode(&self, owner: usize, label: &[u8]) -> Option<Mode> {
        self.at(owner, label).map(|at| self.held[at].mode)
    }

    fn covers(&self, owner: usize, label: &[u8], mode: Mode) -> bool {
        self.mode(owner, label).is_some_and(|held| self.hierarchy.modes.covers(held, mode))
    }

    /// Whether a lock above makes one on the label needless: that on the parent, or if there is
    /// none, the nearest above.
    fn is_covered(&self, owner: usize, label: &[u8], mode: Mode, is_thorough: bool) -> bool {
        let (mut above, mut mode) = (Dotted::parent_of(label), mode);
        while let Some(parent) = above {
            mode = self.hierarchy.covering(mode);
            if self.covers(owner, parent, mode) {
                return true;
            }
            let is_parent = Dotted::parent_of(label) == Some(parent);
            if is_parent && !is_thorough && self.at(owner, parent).is_some() {
                return false;
            }
            above = Dotted::parent_of(parent);
        }
        false
    }

    fn is_free(&self, owner: usize, label: &[u8], mode: Mode) -> bool {
        let others = self.held.iter().filter(|lock| lock.owner != owner && lock.label == label);
        others.clone().all(|lock| self.hierarchy.modes.is_compatible(mode, lock.mode))
    }

    fn try_lock(&mut self, owner: usize, label: &[u8], mode: Mode) -> bool {
        let own = self.at(owner, label);
        let wanted = own.map_or(mode, |at| self.hierarchy.modes.convert(self.held[at].mode, mode));
        if let Some(at) = own.filter(|at| self.held[*at].mode == wanted) {
            self.held[at].requests += 1;
            return true;
        }
        if self.is_covered(owner, label, wanted, false) {
            return true;
        }
        let parent = Dotted::parent_of(label).map(<[u8]>::to_vec);
        if let Some(parent) = parent.as_ref().filter(|_| own.is_none())
            && self.is_due(owner, parent)
            && (self.is_covered(owner, label, wanted, true) || self.escalate(owner, parent, wanted))
        {
            return true;
        }
        if !self.is_free(owner, label, wanted) {
            return false;
        }
        let Some(at) = own else {
            if let Some(at) = parent.and_then(|parent| self.at(owner, &parent)) {
                self.held[at].requests += 1;
            }
            let (label, mode) = (label.to_vec(), wanted);
            self.held.push(NaiveLock { owner, label, mode, requests: 0, refused_at: 0 });
            return true;
        };
        self.held[at].mode = wanted;
        true
    }

    fn is_due(&self, owner: usize, whole: &[u8]) -> bool {
        let Some(at) = self.at(owner, whole) else { return false };
        let limit = self.hierarchy.escalate_at(whole, EscalationPolicy(0));
        let NaiveLock { requests, refused_at, .. } = self.held[at];
        limit.is_some_and(|limit| requests >= refused_at + limit.max(1))
    }

    fn escalate(&mut self, owner: usize, whole: &[u8], mode: Mode) -> bool {
        let mut strong = self.hierarchy.covering(mode);
        let mut below = Vec::new();
        for lock in self.held.iter().filter(|lock| lock.owner == owner) {
            let mut mode = lock.mode;
            let mut above = Dotted::parent_of(&lock.label);
            while let Some(parent) = above {
                mode = self.hierarchy.covering(mode);
                if parent == whole {
                    strong = self.hierarchy.modes.convert(strong, mode);
                    below.push(lock.label.clone());
                }
                above = Dotted::parent_of(parent);
            }
        }
        let at = self.at(owner, whole).unwrap();
        let wanted = self.hierarchy.modes.convert(self.held[at].mode, strong);
        if !self.is_free(owner, whole, wanted) {
            self.held[at].refused_at = self.held[at].requests;
            return false;
        }
        self.held[at].mode = wanted;
        for label in below {
            self.unlock(owner, &label);
        }
        true
    }

    fn unlock(&mut self, owner: usize, label: &[u8]) {
        let Some(at) = self.at(owner, label) else { return };
        self.held.remove(at);
        if let Some(at) = Dotted::parent_of(label).and_then(|parent| self.at(owner, parent)) {
            self.held[at].requests = self.held[at].requests.saturating_sub(1);
        }
    }
}

fn dotted(modes: &ModeTable, is_tadom: bool) -> Dotted {
    Dotted {
        read_below: if is_tadom { covering_tadom } else { covering_mgl },
        modes: modes.clone(),
        escalate_at: (!is_tadom).then_some(2),
    }
}

/// A label with a part that makes it longer than those that are kept in place.
fn label(random: &mut Random) -> Vec<u8> {
    let parts = ["1", "2", "a long part of a label", "3"];
    let depth = random.index(4);
    let label: Vec<&str> = (0..depth).map(|_| *random.pick(&parts)).collect();
    label.join(".").into_bytes()
}

/// Transactions and the naive tables beside them.
struct Play<'s> {
    store: &'s Store,
    spaces: [LockSpace; 2],
    naive: [Naive; 2],
    actors: Vec<Transaction>,
    /// In which mode each lock that is held was taken first.
    first: BTreeMap<(usize, usize, Vec<u8>), Mode>,
}

impl Play<'_> {
    fn new(store: &Store) -> Play<'_> {
        let tables = [(ModeTable::multi_granularity(), false), (tadom(), true)];
        let spaces = tables.each_ref().map(|(modes, is_tadom)| {
            let hierarchy = Arc::new(dotted(modes, *is_tadom));
            store.create_lock_space(&is_tadom.to_string(), modes.clone(), hierarchy).unwrap()
        });
        let naive = tables.map(|(modes, is_tadom)| Naive {
            hierarchy: dotted(&modes, is_tadom),
            held: Vec::new(),
        });
        let actors = (0..ACTORS).map(|_| begin(store)).collect();
        Play { store, spaces, naive, actors, first: BTreeMap::new() }
    }

    fn step(&mut self, random: &mut Random) {
        let (actor, space) = (random.index(ACTORS), random.index(2));
        let label = label(random);
        let key = (actor, space, label.clone());
        let naive = &mut self.naive[space];
        let mut locks = self.actors[actor].locks_in(&self.spaces[space]).unwrap();
        match random.below(20) {
            0 => {
                self.actors[actor] = begin(self.store);
                for naive in &mut self.naive {
                    naive.held.retain(|lock| lock.owner != actor);
                }
            }
            1 => {
                assert_eq!(locks.unlock(&label), naive.at(actor, &label).is_some());
                naive.unlock(actor, &label);
            }
            2 => {
                // Back to what it was when it was locked first.
                if let Some(at) = naive.at(actor, &label) {
                    locks.restore(&label, Some(self.first[&key]));
                    naive.held[at].mode = self.first[&key];
                }
            }
            _ => {
                let modes: Vec<Mode> = self.spaces[space].modes().modes().collect();
                // Mostly the weakest, or there would be more refusals than locks.
                let count = if random.below(3) == 0 { modes.len() } else { 2 };
                let mode = modes[random.index(count)];
                let expected = naive.try_lock(actor, &label, mode);
                assert_eq!(locks.try_lock(&label, mode).unwrap(), expected);
                if let Some(mode) = naive.mode(actor, &label) {
                    self.first.entry(key).or_insert(mode);
                }
            }
        }
        let naive = &self.naive;
        self.first.retain(|(owner, at, label), _| naive[*at].at(*owner, label).is_some());
    }

    /// Compares what is held.
    fn check(&mut self, case: &str) {
        for (actor, transaction) in self.actors.iter_mut().enumerate() {
            for (space, naive) in self.spaces.iter().zip(&self.naive) {
                let locks = transaction.locks_in(space).unwrap();
                let own = naive.held.iter().filter(|lock| lock.owner == actor);
                assert_eq!(locks.count(), own.clone().count(), "{case}");
                for lock in own {
                    let found = (locks.held(&lock.label), locks.requests(&lock.label));
                    assert_eq!(found, (Some(lock.mode), lock.requests), "{case}: {lock:?}");
                }
            }
        }
        for (space, naive) in self.spaces.iter().zip(&self.naive) {
            let dump = space.dump().into_iter();
            let seen: BTreeMap<Vec<u8>, usize> =
                dump.map(|queue| (queue.resource, queue.granted.len())).collect();
            let mut expected = BTreeMap::new();
            for lock in &naive.held {
                *expected.entry(lock.label.clone()).or_insert(0) += 1;
            }
            assert_eq!(seen, expected, "{case}");
        }
    }
}

const ACTORS: usize = 3;

/// Transactions that lock, unlock and end at random hold what those of a naive table hold.
#[test]
fn labels_are_held_as_in_a_naive_table() {
    let mut escalations = 0;
    for seed in 0..40 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let (_, store, _) = new_store(seed, &options());
        let mut play = Play::new(&store);
        for step in 0..300 {
            play.step(&mut random);
            play.check(&format!("seed {seed}, step {step}"));
        }
        escalations += play.spaces[0].statistics().escalations;
        assert_eq!(play.spaces[1].statistics().escalations, 0, "seed {seed}");
        drop(play);
        assert_eq!(store.lock_statistics().held, 0, "seed {seed}");
    }
    assert!(escalations > 30, "{escalations} escalations");
}

/// Whether somebody has X on a label, for each of the labels of two spaces.
type Owners = [[AtomicU32; 3]; 2];

/// Locks and writes a few things, and counts itself among the owners of what it holds in X.
fn lock_some(
    random: &mut Random,
    store: &Store,
    tree: &TreeHandle,
    spaces: &[LockSpace; 2],
    owners: &Owners,
) -> Result<(), TxnError> {
    let mut transaction = begin(store);
    let mut owned = Vec::new();
    let mut run = || {
        for _ in 0..4 {
            let (space, at) = (random.index(3), random.index(3));
            let name = at.to_le_bytes();
            let Some(lock_space) = spaces.get(space) else {
                transaction.put(tree, &name, b"")?;
                continue;
            };
            let mut locks = transaction.locks_in(lock_space)?;
            locks.lock(&name, *random.pick(&[S, IX, SIX, X]))?;
            if locks.held(&name) == Some(X) && !owned.contains(&(space, at)) {
                owned.push((space, at));
                assert_eq!(owners[space][at].fetch_add(1, Ordering::SeqCst), 0);
            }
            thread::yield_now();
        }
        Ok(())
    };
    let done = run();
    for (space, at) in owned {
        owners[space][at].fetch_sub(1, Ordering::SeqCst);
    }
    done
}

/// Threads lock keys and labels of two spaces in any order, wait without a bound and are all done
/// in the end. No two hold X on one label at a time.
#[test]
fn threads_that_lock_keys_and_labels_all_end() {
    let mut deadlocks = 0;
    for seed in 0..4 {
        println!("seed {seed}");
        let check_on_block = seed % 2 == 0;
        let locks = LockSettings { check_on_block, timeout: None, ..options().locks };
        let options = options().locks(locks).detect_every(Some(Duration::from_millis(1)));
        let (_, store, tree) = new_store(seed, &options);
        let spaces = ["nodes", "edges"].map(|name| flat(&store, name));
        let owners = Owners::default();
        thread::scope(|scope| {
            for thread in 0..4 {
                let (store, tree, spaces, owners) = (&store, &tree, &spaces, &owners);
                scope.spawn(move || {
                    let mut random = Random::new(seed * 100 + thread);
                    for _ in 0..40 {
                        if let Err(error) = lock_some(&mut random, store, tree, spaces, owners) {
                            assert!(error.is_retryable(), "seed {seed}: {error}");
                        }
                    }
                });
            }
        });
        let seen = store.lock_statistics();
        assert_eq!((seen.held, seen.waiting, seen.timeouts), (0, 0, 0), "seed {seed}");
        deadlocks += spaces.iter().map(|space| space.statistics().deadlocks).sum::<u64>();
    }
    assert!(deadlocks > 0, "the spaces take part in deadlocks");
}
