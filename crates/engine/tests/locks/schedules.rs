//! Lockers as tasks of a machine that draws its schedules: small programs in which a grant, a
//! time-out, a deadlock, a preemption and a strong request meet in every order.
//!
//! What has to hold in every schedule: no locker holds a mode beside another that does not go with
//! it, every request ends, and nothing is left behind.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_engine::lock::multi_granularity::{IS, IX, S, SIX, U, X};
use tidegate_engine::lock::{
    Hierarchy, LockError, LockManager, LockSettings, Locker, LockerId, Mode, ModeTable, Priorities,
    Priority, Victim, Wait,
};
use tidegate_runtime::{entropy, explore, run_all, thread};

use crate::random::Random;

/// 0 contains the others.
type Resource = u32;

/// The lock table, and who holds what as the tasks see it.
struct Shared {
    manager: Arc<LockManager<Resource>>,
    /// Never held where the machine may switch.
    holders: Mutex<Vec<(Resource, LockerId, Mode)>>,
}

impl Shared {
    fn new(settings: LockSettings) -> Arc<Shared> {
        let settings = LockSettings { buckets: 2, timeout: None, ..settings };
        let hierarchy = Hierarchy { is_whole: |at: &Resource| *at == 0, escalation: None };
        let modes = ModeTable::multi_granularity();
        let manager = LockManager::with_hierarchy(modes, settings, hierarchy);
        Arc::new(Shared { manager, holders: Mutex::default() })
    }

    fn locker(&self, priority: u8) -> Locker<Resource> {
        self.manager.locker(Priority(priority))
    }

    fn lock(
        &self,
        locker: &mut Locker<Resource>,
        at: Resource,
        mode: Mode,
        wait: Wait,
    ) -> Result<(), LockError> {
        locker.lock(&at, mode, wait)?;
        let (id, held) = (locker.id(), locker.held(&at).expect("just locked"));
        let modes = self.manager.modes();
        let mut holders = self.holders.lock();
        holders.retain(|(other, holder, _)| (*other, *holder) != (at, id));
        for (_, holder, other) in holders.iter().filter(|(other, ..)| *other == at) {
            let go = modes.is_compatible(held, *other) || modes.is_compatible(*other, held);
            assert!(go, "{id} holds {} of {at} beside {holder}", modes.name(held));
        }
        holders.push((at, id, held));
        Ok(())
    }

    fn release(&self, locker: &mut Locker<Resource>) {
        self.holders.lock().retain(|(_, holder, _)| *holder != locker.id());
        locker.release_all();
    }

    /// Nothing is left behind when all have ended.
    fn check(&self) {
        assert_eq!(self.manager.dump(), []);
        let seen = self.manager.statistics();
        let left = (seen.held, seen.waiting, seen.asleep, seen.held_by_waiting);
        assert_eq!(left, (0, 0, 0, 0), "held, waiting, asleep, held by waiting");
    }
}

type Body = Box<dyn FnOnce() + Send>;

/// Returns a body that locks in this order, and releases everything at the end or after an error.
fn body(
    shared: &Arc<Shared>,
    priority: u8,
    requests: &'static [(Resource, Mode)],
    wait: Wait,
) -> Body {
    let shared = Arc::clone(shared);
    Box::new(move || {
        let mut locker = shared.locker(priority);
        for (at, mode) in requests {
            if shared.lock(&mut locker, *at, *mode, wait).is_err() {
                break;
            }
            thread::point();
        }
        shared.release(&mut locker);
    })
}

/// One that gives up waiting lets through who waits behind it, and may be granted in that moment.
fn time_outs() {
    let shared = Shared::new(LockSettings::default());
    let brief = Wait::For(Duration::from_micros(3));
    let bodies = [
        body(&shared, 0, &[(1, S)], Wait::Forever),
        body(&shared, 0, &[(1, X)], brief),
        body(&shared, 0, &[(1, S)], Wait::Forever),
        body(&shared, 0, &[(1, S), (1, X)], brief),
    ];
    run_all(bodies);
    shared.check();
}

/// Strong requests for what others lock in intents.
fn strong_requests() {
    let shared = Shared::new(LockSettings { check_on_block: true, ..LockSettings::default() });
    let bodies = [
        body(&shared, 0, &[(0, IX), (1, X)], Wait::Forever),
        body(&shared, 0, &[(0, IS), (1, S)], Wait::Forever),
        body(&shared, 0, &[(0, S)], Wait::For(Duration::from_micros(5))),
        body(&shared, 0, &[(0, IX), (0, SIX)], Wait::Forever),
    ];
    run_all(bodies);
    shared.check();
}

/// Two circles, found by who blocks last or by a detector. None waits for ever.
fn deadlocks() {
    let is_checked = entropy() & 1 > 0;
    let victim = [Victim::FewestLocks, Victim::Youngest][(entropy() & 1) as usize];
    let settings = LockSettings { check_on_block: is_checked, victim, ..LockSettings::default() };
    let shared = Shared::new(settings);
    let interval = Duration::from_millis(1);
    let detector = (!is_checked).then(|| shared.manager.start_detector(interval).expect("a task"));
    let theirs = Arc::clone(&shared);
    let bodies = [[1, 2, 3], [2, 1, 3], [3, 2, 1]].map(|order: [Resource; 3]| {
        let shared = Arc::clone(&theirs);
        move || {
            let mut locker = shared.locker(0);
            loop {
                let mut lock = |at| shared.lock(&mut locker, at, X, Wait::Forever);
                let taken = order.into_iter().try_for_each(&mut lock);
                shared.release(&mut locker);
                match taken {
                    Ok(()) => return,
                    Err(LockError::Deadlock) => thread::yield_now(),
                    Err(error) => panic!("no deadlock, and yet: {error}"),
                }
            }
        }
    });
    run_all(bodies);
    drop(detector);
    shared.check();
}

/// The lower of two priorities gives way when it waits, before the higher one comes or after.
fn preemption() {
    let priorities = Priorities::PreemptOnWait;
    let settings = LockSettings { check_on_block: true, priorities, ..LockSettings::default() };
    let shared = Shared::new(settings);
    let bodies = [
        body(&shared, 0, &[(1, X), (2, X)], Wait::Forever),
        body(&shared, 1, &[(2, X), (3, X)], Wait::Forever),
        body(&shared, 2, &[(1, S), (3, S)], Wait::Forever),
        body(&shared, 0, &[(3, U), (3, X)], Wait::Forever),
    ];
    run_all(bodies);
    shared.check();
}

/// Transactions of a few requests, all of which are drawn, and the settings too.
fn transactions() {
    let mut random = Random::new(entropy());
    let settings = LockSettings {
        check_on_block: true,
        priorities: *random.pick(&[Priorities::Ignored, Priorities::PreemptOnWait]),
        ..LockSettings::default()
    };
    let shared = Shared::new(settings);
    let bodies = (0..3).map(|_| {
        let (shared, mut random) = (Arc::clone(&shared), Random::new(random.draw()));
        move || {
            for _ in 0..2 {
                let mut locker = shared.locker(u8::try_from(random.index(3)).expect("small"));
                for _ in 0..3 {
                    let at = Resource::try_from(random.index(3)).expect("small");
                    let mode = *random.pick(&[IS, IX, S, SIX, U, X]);
                    let brief = Wait::For(Duration::from_micros(random.below(8)));
                    let wait = *random.pick(&[brief, Wait::Forever, Wait::Forever]);
                    match random.index(6) {
                        0 => drop(locker.try_lock(&at, mode).map(|_| ())),
                        1 => drop(locker.lock_instant(&at, mode, wait)),
                        _ if shared.lock(&mut locker, at, mode, wait).is_ok() => thread::point(),
                        _ => break,
                    }
                }
                shared.release(&mut locker);
            }
        }
    });
    run_all(bodies.collect::<Vec<_>>());
    shared.check();
}

const PROGRAMS: [(&str, fn()); 5] = [
    ("locks, time-outs", time_outs),
    ("locks, strong requests", strong_requests),
    ("locks, deadlocks", deadlocks),
    ("locks, preemption", preemption),
    ("locks, transactions", transactions),
];

#[test]
fn lockers_keep_the_rules_in_every_drawn_schedule() {
    for (name, program) in PROGRAMS {
        println!("{}", explore(name, 300, program));
    }
}

#[test]
#[ignore = "soak: 20,000 schedules of each program"]
fn lockers_keep_the_rules_in_many_drawn_schedules() {
    for (name, program) in PROGRAMS {
        println!("{}", explore(name, 20_000, program));
    }
}
