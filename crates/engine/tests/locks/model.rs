//! Random schedules against a naive lock table: lists that are searched from the start for every
//! question, and a deadlock is whoever is left when all who can finish have done so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use tidegate_engine::lock::{
    Hierarchy, LockManager, LockSettings, Mode, ModeTable, Priorities, Priority, Victim,
};

use crate::random::Random;
use crate::stage::{Answer, Command, Name, Stage};

const RESOURCES: [&str; 3] = ["a", "b", "c"];
const ACTORS: usize = 6;
const STEPS: usize = 80;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Queue {
    granted: Vec<(Name, Mode)>,
    waiting: Vec<(Name, Mode)>,
}

struct Model {
    modes: ModeTable,
    by_priority: bool,
    priorities: Vec<u8>,
    queues: BTreeMap<String, Queue>,
    /// Locks of instant duration that wait: what was held before.
    instant: BTreeMap<Name, Option<Mode>>,
    preempted: BTreeSet<Name>,
}

impl Model {
    fn new(priorities: Vec<u8>, by_priority: bool) -> Model {
        Model {
            modes: ModeTable::multi_granularity(),
            by_priority,
            priorities,
            queues: BTreeMap::new(),
            instant: BTreeMap::new(),
            preempted: BTreeSet::new(),
        }
    }

    fn held(&self, name: Name, resource: &str) -> Option<Mode> {
        let queue = self.queues.get(resource)?;
        queue.granted.iter().find(|(holder, _)| *holder == name).map(|(_, mode)| *mode)
    }

    /// The resource that somebody waits for, and the position in its queue.
    fn wait(&self, name: Name) -> Option<(&str, usize)> {
        self.queues.iter().find_map(|(resource, queue)| {
            let at = queue.waiting.iter().position(|(waiter, _)| *waiter == name)?;
            Some((resource.as_str(), at))
        })
    }

    fn holders_against(&self, queue: &Queue, at: usize) -> BTreeSet<Name> {
        let (name, mode) = queue.waiting[at];
        let others = queue.granted.iter().filter(|(holder, _)| *holder != name);
        others.filter(|(_, held)| !self.modes.is_compatible(mode, *held)).map(|(n, _)| *n).collect()
    }

    fn blockers(&self, queue: &Queue, at: usize) -> BTreeSet<Name> {
        let mut blockers = self.holders_against(queue, at);
        let (name, mode) = queue.waiting[at];
        let clashing = queue.waiting[..at].iter().filter(|(_, other)| {
            !self.modes.is_compatible(mode, *other) || !self.modes.is_compatible(*other, mode)
        });
        let own = queue.granted.iter().find(|(holder, _)| *holder == name);
        // A conversion has conversions only before it, and passes those that wait for its own lock.
        let passes = |other| own.is_some_and(|(_, held)| !self.modes.is_compatible(other, *held));
        blockers.extend(clashing.filter(|(_, other)| !passes(*other)).map(|(ahead, _)| *ahead));
        blockers
    }

    fn blockers_of(&self, name: Name) -> BTreeSet<Name> {
        let wait = self.wait(name).map(|(resource, at)| (&self.queues[resource], at));
        wait.map(|(queue, at)| self.blockers(queue, at)).unwrap_or_default()
    }

    fn rank(&self, queue: &Queue, name: Name) -> (bool, u8) {
        let converts = queue.granted.iter().any(|(holder, _)| *holder == name);
        (converts, if self.by_priority { self.priorities[name] } else { 0 })
    }

    /// Puts a request where it belongs in the queue; nothing to do if it is held already.
    fn request(&mut self, name: Name, resource: &str, mode: Mode) {
        let before = self.held(name, resource);
        let wanted = before.map_or(mode, |before| self.modes.convert(before, mode));
        if before == Some(wanted) {
            return;
        }
        let mut queue = self.queues.remove(resource).unwrap_or_default();
        let rank = self.rank(&queue, name);
        let behind = |(other, _): &(Name, Mode)| self.rank(&queue, *other) < rank;
        let at = queue.waiting.iter().position(behind).unwrap_or(queue.waiting.len());
        queue.waiting.insert(at, (name, wanted));
        self.queues.insert(resource.into(), queue);
        self.grant();
    }

    /// Grants whatever waits for nobody, until there is none.
    fn grant(&mut self) {
        let next = |model: &Model| {
            model.queues.iter().find_map(|(resource, queue)| {
                let mut positions = 0..queue.waiting.len();
                let at = positions.find(|at| model.blockers(queue, *at).is_empty())?;
                Some((resource.clone(), at))
            })
        };
        while let Some((resource, at)) = next(self) {
            let queue = self.queues.get_mut(&resource).expect("just found");
            let (name, mode) = queue.waiting.remove(at);
            set(queue, name, Some(mode));
            if let Some(before) = self.instant.remove(&name) {
                set(queue, name, before);
            }
        }
        self.queues.retain(|_, queue| *queue != Queue::default());
    }

    fn withdraw(&mut self, name: Name) {
        for queue in self.queues.values_mut() {
            queue.waiting.retain(|(waiter, _)| *waiter != name);
        }
        self.instant.remove(&name);
        self.grant();
    }

    fn give_back(&mut self, name: Name, resource: Option<&str>) {
        for (key, queue) in &mut self.queues {
            if resource.is_none_or(|resource| resource == key) {
                set(queue, name, None);
            }
        }
        self.grant();
    }

    fn is_waiting(&self, name: Name) -> bool {
        self.wait(name).is_some()
    }

    fn waiting(&self) -> BTreeSet<Name> {
        (0..self.priorities.len()).filter(|name| self.is_waiting(*name)).collect()
    }

    /// Everybody who can never go on.
    fn stuck(&self) -> BTreeSet<Name> {
        let mut stuck = self.waiting();
        loop {
            let before = stuck.clone();
            stuck.retain(|name| !self.blockers_of(*name).is_disjoint(&before));
            if stuck == before {
                return stuck;
            }
        }
    }

    /// Whether somebody waits for itself in the end, and somebody for what it holds.
    fn is_to_blame(&self, name: Name) -> bool {
        let mut reached = self.blockers_of(name);
        loop {
            let next: BTreeSet<Name> =
                reached.iter().flat_map(|name| self.blockers_of(*name)).collect();
            if next.is_subset(&reached) {
                break;
            }
            reached.extend(next);
        }
        let holds_up = self.queues.values().any(|queue| {
            (0..queue.waiting.len()).any(|at| self.holders_against(queue, at).contains(&name))
        });
        reached.contains(&name) && holds_up
    }

    /// Everybody who waits and is in the way of a higher priority.
    fn should_give_way(&self) -> BTreeSet<Name> {
        let waiting = self.waiting();
        let below = |high: &Name| {
            let (blockers, priority) = (self.blockers_of(*high), self.priorities[*high]);
            blockers.into_iter().filter(move |low| self.priorities[*low] < priority)
        };
        let low: BTreeSet<Name> = waiting.iter().flat_map(below).collect();
        low.into_iter().filter(|low| self.by_priority && waiting.contains(low)).collect()
    }

    /// What the actor is to be answered if nothing stops it; `None` if it waits.
    fn obey(&mut self, name: Name, command: &Command) -> Option<Answer> {
        let asks = !matches!(command, Command::Unlock(_) | Command::Release);
        if asks && self.preempted.contains(&name) {
            return Some(Answer::Preempted);
        }
        match command {
            Command::Lock(resource, mode) | Command::LockBriefly(resource, mode) => {
                self.request(name, resource, *mode);
            }
            Command::Instant(resource, mode) => {
                self.instant.insert(name, self.held(name, resource));
                self.request(name, resource, *mode);
                if !self.is_waiting(name) {
                    self.instant.remove(&name);
                }
            }
            Command::Try(resource, mode) => {
                self.request(name, resource, *mode);
                if self.is_waiting(name) {
                    self.withdraw(name);
                    return Some(Answer::Refused);
                }
            }
            Command::Unlock(resource) => {
                let was_held = self.held(name, resource).is_some();
                self.give_back(name, Some(resource));
                return Some(if was_held { Answer::Released } else { Answer::Refused });
            }
            Command::Release => {
                self.give_back(name, None);
                self.preempted.remove(&name);
                return Some(Answer::Released);
            }
        }
        (!self.is_waiting(name)).then_some(Answer::Granted)
    }
}

fn set(queue: &mut Queue, name: Name, mode: Option<Mode>) {
    let held = queue.granted.iter_mut().find(|(holder, _)| *holder == name);
    match (held, mode) {
        (Some(held), Some(mode)) => held.1 = mode,
        (None, Some(mode)) => queue.granted.push((name, mode)),
        (_, None) => queue.granted.retain(|(holder, _)| *holder != name),
    }
}

struct Run {
    stage: Stage,
    model: Model,
    random: Random,
    checks: bool,
    said: String,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random::new(seed);
        let by_priority = random.index(3) == 0;
        let checks = random.index(2) == 0;
        let victims = [Victim::FewestLocks, Victim::Youngest, Victim::LowestPriority];
        let settings = LockSettings {
            timeout: None,
            victim: victims[random.index(3)],
            check_on_block: checks,
            priorities: if by_priority { Priorities::PreemptOnWait } else { Priorities::Ignored },
            buckets: [2, 4, 256][random.index(3)],
        };
        let table = ModeTable::multi_granularity();
        // Where a and b are wholes, intention locks on them are kept elsewhere.
        let manager = if random.index(2) == 0 {
            let hierarchy =
                Hierarchy { is_whole: |resource: &String| resource != "c", escalation: None };
            LockManager::with_hierarchy(table, settings, hierarchy)
        } else {
            LockManager::new(table, settings)
        };
        let mut stage = Stage::new(manager);
        let priorities: Vec<u8> = (0..ACTORS).map(|_| [0, 0, 1, 2][random.index(4)]).collect();
        for priority in &priorities {
            stage.enter(Priority(*priority));
        }
        let model = Model::new(priorities, by_priority);
        Run { stage, model, random, checks, said: format!("seed {seed}, {settings:?}\n") }
    }

    fn command(&mut self, name: Name) -> Command {
        let resource = RESOURCES[self.random.index(RESOURCES.len())].to_owned();
        let modes: Vec<Mode> = self.model.modes.modes().collect();
        let mode = modes[self.random.index(modes.len())];
        let must_release = self.model.preempted.contains(&name) && self.random.index(3) > 0;
        match self.random.index(100) {
            _ if must_release => Command::Release,
            0..60 => Command::Lock(resource, mode),
            60..68 => Command::Try(resource, mode),
            68..74 => Command::LockBriefly(resource, mode),
            74..82 => Command::Instant(resource, mode),
            82..88 => Command::Unlock(resource),
            _ => Command::Release,
        }
    }

    fn step(&mut self) {
        let idle: Vec<Name> = (0..ACTORS).filter(|name| !self.model.is_waiting(*name)).collect();
        if idle.is_empty() || self.random.index(12) == 0 {
            return self.detect();
        }
        let name = idle[self.random.index(idle.len())];
        let command = self.command(name);
        writeln!(self.said, "{name} {command:?}").expect("a string takes everything");
        let is_brief = matches!(command, Command::LockBriefly(..));
        let waited = self.model.waiting();
        let mut expected = self.model.obey(name, &command);
        let mut answers = self.stage.tell(name, command);
        self.accept_victims(&answers, self.checks);
        let is_victim = matches!(answers.get(&name), Some(Answer::Deadlock | Answer::Preempted));
        if is_brief && self.model.is_waiting(name) {
            self.model.withdraw(name);
            expected = Some(Answer::TimedOut);
        }
        // Who has rolled others back may have been granted what they waited for.
        let is_granted = expected.is_none() && !is_victim && !self.model.is_waiting(name);
        if expected.is_some() || is_granted {
            let answer = answers.remove(&name);
            assert_eq!(answer, expected.or(Some(Answer::Granted)), "{}", self.said);
        }
        self.compare(&waited, &answers);
    }

    fn detect(&mut self) {
        self.said += "detect\n";
        let was_stuck = !self.model.stuck().is_empty();
        let waited = self.model.waiting();
        let answers = self.stage.break_deadlocks();
        let victims = answers.values().filter(|answer| **answer == Answer::Deadlock).count();
        assert_eq!(was_stuck, victims > 0, "{}", self.said);
        self.accept_victims(&answers, true);
        assert_eq!(self.model.stuck(), BTreeSet::new(), "{}", self.said);
        self.compare(&waited, &answers);
    }

    /// Takes those out of the model who were rolled back, if they may have been.
    fn accept_victims(&mut self, answers: &BTreeMap<Name, Answer>, may_break: bool) {
        let should_give_way = self.model.should_give_way();
        let to_blame: BTreeSet<Name> =
            (0..ACTORS).filter(|name| self.model.is_to_blame(*name)).collect();
        for (name, answer) in answers {
            let is_new = !self.model.preempted.contains(name);
            match answer {
                Answer::Deadlock => {
                    assert!(may_break && to_blame.contains(name), "{name}: {}", self.said);
                }
                Answer::Preempted if is_new => {
                    assert!(should_give_way.contains(name), "{name}: {}", self.said);
                    self.model.preempted.insert(*name);
                }
                _ => continue,
            }
            self.model.withdraw(*name);
        }
    }

    /// Whoever waited and does not now has been granted, and the queues are the same.
    fn compare(&self, waited: &BTreeSet<Name>, answers: &BTreeMap<Name, Answer>) {
        let waiting = self.model.waiting();
        for name in waited.difference(&waiting) {
            assert!(answers.contains_key(name), "{name} is not awake: {}", self.said);
        }
        for name in &waiting {
            assert!(!answers.contains_key(name), "{name} is awake: {}", self.said);
        }
        for resource in RESOURCES {
            let seen = self.stage.manager.queue(&resource.to_owned());
            let seen_waiting = seen.waiting.iter().map(|r| (r.locker, r.mode)).collect::<Vec<_>>();
            let seen_granted: BTreeMap<_, _> =
                seen.granted.iter().map(|r| (r.locker, r.mode)).collect();
            let queue = self.model.queues.get(resource).cloned().unwrap_or_default();
            let id = |(name, mode): (Name, Mode)| (self.stage.id(name), mode);
            let granted: BTreeMap<_, _> = queue.granted.into_iter().map(id).collect();
            let waiting: Vec<_> = queue.waiting.into_iter().map(id).collect();
            assert_eq!(
                (seen_granted, seen_waiting),
                (granted, waiting),
                "{resource} {}",
                self.said
            );
        }
        assert_eq!(self.model.should_give_way(), BTreeSet::new(), "{}", self.said);
        if self.checks {
            assert_eq!(self.model.stuck(), BTreeSet::new(), "{}", self.said);
        }
    }
}

#[test]
fn random_schedules_agree_with_the_model() {
    for seed in 0..300 {
        let mut run = Run::new(seed);
        for _ in 0..STEPS {
            run.step();
        }
        run.stage.clear();
    }
}
