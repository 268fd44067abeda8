//! The processors of a machine in virtual time, and how tasks share them.
//!
//! A task comes with a demand of processor time and is told when it has had it. What the machine
//! needs of either discipline is [`Processors`].

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use super::hardware::{Discipline, Hardware, Priority};

/// A way of sharing processors among tasks with demands. All times are in nanoseconds from the
/// machine's beginning, and no call goes back in time.
pub(super) trait Processors {
    /// Takes in a task with a demand above 0.
    fn start(&mut self, task: usize, demand: u64, priority: Priority, now: u64);

    /// Returns when [`advance`](Processors::advance) is to be called next, if no task comes before.
    fn next(&self) -> Option<u64>;

    /// Goes to the moment that `next` gave, and returns a task that has had its demand, if there
    /// is one.
    fn advance(&mut self, now: u64) -> Option<usize>;

    /// Returns how many tasks it has that have not had their demand.
    fn tasks(&self) -> usize;

    /// Notes processor time of a task that ran without having been taken in.
    fn note_busy(&mut self, time: u64);

    /// Returns the processor time given so far.
    fn busy(&self) -> f64;
}

pub(super) fn of(hardware: &Hardware) -> Box<dyn Processors> {
    assert!(hardware.processors >= 1, "a machine has a processor");
    match hardware.discipline {
        Discipline::Sharing => Box::new(Sharing::new(hardware.processors)),
        Discipline::Quantum(quantum) => {
            let quantum = u64::try_from(quantum.as_nanos()).unwrap_or(u64::MAX);
            assert!(quantum > 0, "a quantum is longer than nothing");
            Box::new(Rotating::new(hardware.processors, quantum))
        }
    }
}

/// Processor sharing: within a class of priority all tasks have had the same service since they
/// came, so a task ends when the service of its class reaches what it was at its arrival, plus its
/// demand. That number does not change, and a heap orders the tasks of a class by it.
struct Sharing {
    processors: f64,
    /// Normal and high priority.
    classes: [Class; 2],
    now: u64,
    order: u64,
    busy: f64,
}

#[derive(Default)]
struct Class {
    /// Service of a task that has been here from the beginning, in nanoseconds.
    service: f64,
    tasks: BinaryHeap<Reverse<End>>,
}

/// When a task ends, by the service of its class, then by arrival.
#[derive(Clone, Copy, PartialEq)]
struct End {
    service: f64,
    order: u64,
    task: usize,
}

impl Eq for End {}

impl Ord for End {
    fn cmp(&self, other: &End) -> Ordering {
        self.service.total_cmp(&other.service).then(self.order.cmp(&other.order))
    }
}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &End) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Sharing {
    fn new(processors: u32) -> Sharing {
        let classes = [Class::default(), Class::default()];
        Sharing { processors: f64::from(processors), classes, now: 0, order: 0, busy: 0.0 }
    }

    /// Returns what a task of each class has of a processor.
    fn shares(&self) -> [f64; 2] {
        let [normal, high] = self.classes.each_ref().map(|class| class.tasks.len() as f64);
        let left = self.processors - high.min(self.processors);
        [(left / normal).min(1.0), (self.processors / high).min(1.0)]
    }

    fn go_to(&mut self, now: u64) {
        debug_assert!(now >= self.now, "time does not go back");
        let passed = (now - self.now) as f64;
        let shares = self.shares();
        for (class, share) in self.classes.iter_mut().zip(shares) {
            if !class.tasks.is_empty() {
                class.service += share * passed;
                self.busy += share * passed * class.tasks.len() as f64;
            }
        }
        self.now = now;
    }

    /// Returns the class whose first task ends first, and when.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what is left of a demand is at most a u64, and not negative"
    )]
    fn first(&self) -> Option<(usize, u64)> {
        let ends = self.classes.iter().zip(self.shares()).enumerate();
        let ends = ends.filter_map(|(index, (class, share))| {
            let Reverse(end) = class.tasks.peek()?;
            let left = (end.service - class.service).max(0.0);
            (share > 0.0).then(|| (index, self.now.saturating_add((left / share).ceil() as u64)))
        });
        ends.min_by_key(|(_, end)| *end)
    }
}

impl Processors for Sharing {
    fn start(&mut self, task: usize, demand: u64, priority: Priority, now: u64) {
        self.go_to(now);
        self.order += 1;
        let class = &mut self.classes[priority as usize];
        if class.tasks.is_empty() {
            // Small numbers keep the fractions of a nanosecond.
            class.service = 0.0;
        }
        let service = class.service + demand as f64;
        class.tasks.push(Reverse(End { service, order: self.order, task }));
    }

    fn next(&self) -> Option<u64> {
        self.first().map(|(_, end)| end)
    }

    fn advance(&mut self, now: u64) -> Option<usize> {
        let (class, end) = self.first()?;
        debug_assert!(end == now, "called at the moment that `next` gave");
        self.go_to(now);
        self.classes[class].tasks.pop().map(|Reverse(end)| end.task)
    }

    fn tasks(&self) -> usize {
        self.classes.iter().map(|class| class.tasks.len()).sum()
    }

    fn note_busy(&mut self, time: u64) {
        self.busy += time as f64;
    }

    fn busy(&self) -> f64 {
        self.busy
    }
}

/// Processors that each run one task, for a quantum if others wait.
struct Rotating {
    processors: usize,
    quantum: u64,
    running: Vec<Running>,
    /// Those that wait, of normal and of high priority.
    waiting: [VecDeque<Waiting>; 2],
    now: u64,
    busy: u64,
}

struct Running {
    task: usize,
    priority: Priority,
    left: u64,
    /// When it got its processor.
    since: u64,
}

struct Waiting {
    task: usize,
    left: u64,
}

impl Rotating {
    fn new(processors: u32, quantum: u64) -> Rotating {
        let (running, waiting) = (Vec::new(), [VecDeque::new(), VecDeque::new()]);
        Rotating { processors: processors as usize, quantum, running, waiting, now: 0, busy: 0 }
    }

    /// Returns whether somebody waits who has at least this priority.
    fn has_waiting(&self, priority: Priority) -> bool {
        self.waiting[priority as usize..].iter().any(|queue| !queue.is_empty())
    }

    /// Returns when a running task has to be looked at: it ends, or its quantum does.
    fn end(&self, running: &Running) -> u64 {
        let end = self.now + running.left;
        if self.has_waiting(running.priority) {
            end.min(self.now.max(running.since + self.quantum))
        } else {
            end
        }
    }

    fn go_to(&mut self, now: u64) {
        let passed = now - self.now;
        for running in &mut self.running {
            running.left -= passed;
            self.busy += passed;
        }
        self.now = now;
    }

    /// Gives a free processor to the one who is to have it next.
    fn fill(&mut self) {
        let next = [Priority::High, Priority::Normal]
            .into_iter()
            .find_map(|priority| Some((priority, self.waiting[priority as usize].pop_front()?)));
        if let Some((priority, Waiting { task, left })) = next {
            self.running.push(Running { task, priority, left, since: self.now });
        }
    }
}

impl Processors for Rotating {
    fn start(&mut self, task: usize, demand: u64, priority: Priority, now: u64) {
        self.go_to(now);
        if self.running.len() == self.processors && priority == Priority::High {
            // Of those below, the one that got its processor last.
            let lower = (0..self.running.len()).filter(|at| self.running[*at].priority < priority);
            if let Some(place) = lower.max_by_key(|at| self.running[*at].since) {
                let Running { task, priority, left, .. } = self.running.remove(place);
                self.waiting[priority as usize].push_front(Waiting { task, left });
            }
        }
        if self.running.len() < self.processors {
            self.running.push(Running { task, priority, left: demand, since: now });
        } else {
            self.waiting[priority as usize].push_back(Waiting { task, left: demand });
        }
    }

    fn next(&self) -> Option<u64> {
        self.running.iter().map(|running| self.end(running)).min()
    }

    fn advance(&mut self, now: u64) -> Option<usize> {
        let place = self.running.iter().position(|running| self.end(running) == now)?;
        self.go_to(now);
        let Running { task, priority, left, .. } = self.running.remove(place);
        if left > 0 {
            self.waiting[priority as usize].push_back(Waiting { task, left });
        }
        self.fill();
        (left == 0).then_some(task)
    }

    fn tasks(&self) -> usize {
        self.running.len() + self.waiting.iter().map(VecDeque::len).sum::<usize>()
    }

    fn note_busy(&mut self, time: u64) {
        self.busy += time;
    }

    fn busy(&self) -> f64 {
        self.busy as f64
    }
}
