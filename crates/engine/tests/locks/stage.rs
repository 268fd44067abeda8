//! Transactions on threads of their own, led step by step.
//!
//! A step is one command to one actor. It is over when every actor has either answered or stands
//! in a queue, asleep, which the manager tells: as many as answers are missing. So the
//! outcome of a schedule does not depend on time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidegate_engine::lock::{LockError, LockManager, Locker, LockerId, Mode, Priority, Wait};

/// What an actor is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Lock(String, Mode),
    /// Waits for no time at all, but in the queue.
    LockBriefly(String, Mode),
    Try(String, Mode),
    Instant(String, Mode),
    Unlock(String),
    Release,
}

/// What it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    Granted,
    Refused,
    Released,
    Deadlock,
    TimedOut,
    Preempted,
}

/// An actor's number, in order of appearance.
pub(crate) type Name = usize;

pub(crate) struct Stage {
    pub(crate) manager: Arc<LockManager<String>>,
    actors: Vec<Actor>,
    answers: Receiver<(Name, Answer)>,
    answer: Sender<(Name, Answer)>,
    /// Who has not answered yet.
    missing: BTreeSet<Name>,
}

struct Actor {
    id: LockerId,
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
}

impl Stage {
    pub(crate) fn new(manager: Arc<LockManager<String>>) -> Stage {
        let (answer, answers) = mpsc::channel();
        Stage { manager, actors: Vec::new(), answers, answer, missing: BTreeSet::new() }
    }

    pub(crate) fn enter(&mut self, priority: Priority) -> Name {
        let name = self.actors.len();
        let mut locker = self.manager.locker(priority);
        let id = locker.id();
        let (commands, received) = mpsc::channel();
        let answer = self.answer.clone();
        let thread = thread::spawn(move || {
            for command in received {
                let answered = answer.send((name, obey(&mut locker, &command)));
                answered.expect("the stage listens until all have left");
            }
        });
        self.actors.push(Actor { id, commands: Some(commands), thread: Some(thread) });
        name
    }

    pub(crate) fn id(&self, name: Name) -> LockerId {
        self.actors[name].id
    }

    /// Tells an actor what to do, and returns who answered until all stood still.
    pub(crate) fn tell(&mut self, name: Name, command: Command) -> BTreeMap<Name, Answer> {
        assert!(self.missing.insert(name), "{command:?} for {name}, which waits");
        // It is asleep for a moment, and answers all the same.
        let surely = matches!(command, Command::LockBriefly(..)).then_some(name);
        let commands = self.actors[name].commands.as_ref().expect("it has not left");
        commands.send(command).expect("it listens");
        self.settle(surely)
    }

    pub(crate) fn break_deadlocks(&mut self) -> BTreeMap<Name, Answer> {
        self.manager.break_deadlocks();
        self.settle(None)
    }

    /// Waits until nobody moves, and `surely` has answered.
    fn settle(&mut self, surely: Option<Name>) -> BTreeMap<Name, Answer> {
        let mut answers = BTreeMap::new();
        let began = Instant::now();
        loop {
            while let Ok((name, answer)) = self.answers.try_recv() {
                answers.insert(name, answer);
                self.missing.remove(&name);
            }
            // The answers are taken first: who has answered waits no more.
            let is_answered = surely.is_none_or(|name| answers.contains_key(&name));
            let seen = self.manager.statistics();
            let is_still = [seen.waiting, seen.asleep] == [self.missing.len() as u64; 2];
            if is_answered && is_still {
                return answers;
            }
            // Far more than it ever takes: a thread that is never woken fails the test.
            let is_lost = began.elapsed() > Duration::from_secs(60);
            assert!(!is_lost, "{answers:?}, missing {:?}, {seen:?}", self.missing);
            thread::yield_now();
        }
    }

    /// Lets everybody finish, and checks that nothing is left behind.
    pub(crate) fn clear(mut self) {
        let all = 0..self.actors.len();
        let mut idle: Vec<Name> = all.filter(|name| !self.missing.contains(name)).collect();
        loop {
            while let Some(name) = idle.pop() {
                let answers = self.tell(name, Command::Release);
                idle.extend(answers.into_keys().filter(|answered| *answered != name));
            }
            if self.missing.is_empty() {
                break;
            }
            idle.extend(self.break_deadlocks().into_keys());
            assert!(!idle.is_empty(), "somebody waits for nobody: {:?}", self.manager.dump());
        }
        let left = self.manager.statistics();
        assert_eq!((left.held, left.waiting, left.asleep, left.held_by_waiting), (0, 0, 0, 0));
        assert_eq!(self.manager.dump(), []);
        for actor in &mut self.actors {
            actor.commands = None;
            let ended = actor.thread.take().map(JoinHandle::join);
            assert!(ended.is_some_and(|ended| ended.is_ok()));
        }
    }
}

fn obey(locker: &mut Locker<String>, command: &Command) -> Answer {
    let granted = match command {
        Command::Lock(resource, mode) => locker.lock(resource, *mode, Wait::Forever).map(|()| true),
        Command::LockBriefly(resource, mode) => {
            locker.lock(resource, *mode, Wait::For(Duration::ZERO)).map(|()| true)
        }
        Command::Try(resource, mode) => locker.try_lock(resource, *mode),
        Command::Instant(resource, mode) => {
            locker.lock_instant(resource, *mode, Wait::Forever).map(|()| true)
        }
        Command::Unlock(resource) => {
            return if locker.unlock(resource) { Answer::Released } else { Answer::Refused };
        }
        Command::Release => {
            locker.release_all();
            return Answer::Released;
        }
    };
    match granted {
        Ok(true) => Answer::Granted,
        Ok(false) => Answer::Refused,
        Err(LockError::Deadlock) => Answer::Deadlock,
        Err(LockError::TimedOut) => Answer::TimedOut,
        Err(LockError::Preempted) => Answer::Preempted,
    }
}
