//! A machine in virtual time: tasks on one thread, a clock that jumps from event to event.
//!
//! The thread that calls [`Machine::run`] resumes one fiber after another (`drive`). A fiber runs
//! to its next wait, says in [`State`] what it waits for, and is suspended. When none can run, the
//! clock goes to the next event: the end of a sleep or of a transfer, or of work on the processors.
//! Every function below that begins with a fiber's wait is called by the modules of the crate that
//! stand for the standard library's.

use std::any::Any;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_random::SplitMix64;

use crate::disk::Transfer;
use crate::fiber::{self, Fiber};
use crate::sync::held;
use crate::work::{self, Costs, Counts, Operation};

mod hardware;
mod processors;
mod schedules;

pub use hardware::{Discipline, Hardware, Priority, Service};
pub use schedules::{BadStrategy, Explored, Failure, Strategy, explore, run_all, search};

use hardware::Disks;
use processors::Processors;
use schedules::Choice;

/// Time that passes when a task yields, so that a loop that waits by it ends.
const YIELD_NS: u64 = 1_000;
/// Time that passes at each step of a machine that draws its schedules.
const STEP_NS: u64 = 100;
/// Steps of such a machine after which it is given up.
const STEPS_MAX: u64 = 20_000_000;

/// A machine in virtual time, or one that draws its schedules. See the crate's documentation.
#[derive(Clone, Debug)]
pub struct Machine {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Timed(Box<Hardware>, u64),
    Scheduled(Strategy),
}

/// What a run gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Report<T> {
    /// What the first task returned.
    pub value: T,
    /// Virtual time from the beginning to the end of the last task.
    pub elapsed: Duration,
    /// What the hardware had to do.
    pub usage: Usage,
}

/// What a machine's parts had to do in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time of all processors together.
    pub processors: Duration,
    /// Time of each data disk.
    pub data_disks: Vec<Duration>,
    /// Time of the log's disk.
    pub log_disk: Duration,
    /// Counted work of all tasks.
    pub counts: Counts,
    /// How often a task was resumed.
    pub switches: u64,
}

/// A run that could not end.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Every task waits for another one.
    #[error("no task can go on after {elapsed:?} of virtual time, and none will be woken:{tasks}")]
    Stalled {
        /// Since the beginning.
        elapsed: Duration,
        /// A line for each task: its name and what it waits for.
        tasks: String,
    },
    /// A machine that draws schedules took too many steps.
    #[error("the run has not ended after {steps} steps; a task may wait in a loop:{tasks}")]
    Endless {
        /// Points at which it could have switched.
        steps: u64,
        /// A line for each task: its name and what it waits for.
        tasks: String,
    },
    /// A task of a machine that draws schedules panicked, and would have to wait for another one
    /// while it unwinds.
    #[error("a task has panicked, as was printed, and waits for another one:{tasks}")]
    Panicked {
        /// A line for each task: its name and what it waits for.
        tasks: String,
    },
    /// The system has no memory for the stack of a task.
    #[error("no memory for the stack of a task")]
    Stack(#[from] io::Error),
}

impl Machine {
    /// Returns a machine in virtual time. `seed` is for what its disks draw.
    #[must_use]
    pub fn new(hardware: Hardware, seed: u64) -> Machine {
        Machine { kind: Kind::Timed(Box::new(hardware), seed) }
    }

    /// Returns a machine that draws which task runs next at each lock, unlock, wake-up, start of a
    /// task, look at the clock, and [`point`](crate::thread::point). Work and disks take no time,
    /// and time-outs happen in any order that could be.
    ///
    /// Without debug assertions it does not switch before a lock is taken, only after its release:
    /// two locks that are taken in either order are then not found.
    #[must_use]
    pub fn schedules(strategy: Strategy) -> Machine {
        Machine { kind: Kind::Scheduled(strategy) }
    }

    /// Runs `main` as the first task, and returns when all tasks have ended.
    ///
    /// # Errors
    ///
    /// [`MachineError`], if they do not end. What their stacks hold stays in memory then, and what
    /// they have locked stays locked.
    ///
    /// # Panics
    ///
    /// With what `main` panicked with. Panics if it is called by a task of a machine.
    pub fn run<T: Send + 'static>(
        &self,
        main: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Report<T>, MachineError> {
        let outer = STATE.with(|state| state.borrow_mut().replace(State::new(&self.kind)));
        assert!(outer.is_none(), "a task of a machine does not run another machine");
        let outcome = start("main", main).map_err(MachineError::from).and_then(|(_, outcome)| {
            drive()?;
            Ok(outcome)
        });
        let state = STATE.with(|state| state.borrow_mut().take());
        let mut state = state.expect("a machine's state stays while it runs");
        for task in &mut state.tasks {
            task.leak();
        }
        match outcome?.take() {
            Ok(value) => Ok(Report { value, elapsed: state.elapsed(), usage: state.usage() }),
            Err(panic) => resume_unwind(panic),
        }
    }
}

/// A task of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskId {
    machine: u64,
    number: usize,
}

impl TaskId {
    pub(crate) fn number(self) -> usize {
        self.number
    }
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Nothing: it runs or can run.
    Nothing,
    /// To be unparked.
    Unpark,
    /// A processor that was idle, to run it.
    Waking,
    /// The lock at this address to be released.
    Lock(usize),
    /// The processors to do its work.
    Processors,
    /// A moment.
    Moment,
    /// Another task to end.
    End(usize),
    /// Nothing any more.
    Ended,
}

impl Wait {
    const fn description(self) -> &'static str {
        match self {
            Wait::Nothing => "can run",
            Wait::Unpark => "is parked",
            Wait::Waking => "is woken",
            Wait::Lock(_) => "waits for a lock",
            Wait::Processors => "works",
            Wait::Moment => "waits for a moment or a disk",
            Wait::End(_) => "waits for the end of a task",
            Wait::Ended => "has ended",
        }
    }
}

struct TaskState {
    name: String,
    /// None while it runs, and after its end.
    fiber: Option<Fiber>,
    wait: Wait,
    /// An unpark that came while the task was not parked.
    is_unparked: bool,
    /// Counts the waits, so that an event for an earlier one is known to be late.
    waits: u64,
    priority: Priority,
    /// Whether its work is done by processors of another machine.
    is_elsewhere: bool,
    /// Locks that it holds and must not hold at a wait, while others run.
    held: u32,
    /// What it panicked with.
    panic: Option<String>,
}

impl TaskState {
    fn leak(&mut self) {
        if let Some(mut fiber) = self.fiber.take() {
            fiber.leak();
        }
    }
}

/// A task is to go on at a moment, if it is still in this wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: u64,
    order: u64,
    task: usize,
    wait: u64,
}

struct State {
    machine: u64,
    /// The moment at which the machine began; only differences to it are used.
    anchor: Instant,
    now: u64,
    order: u64,
    running: usize,
    ready: VecDeque<usize>,
    events: BinaryHeap<Reverse<Event>>,
    tasks: Vec<TaskState>,
    /// Who waits for the lock at an address. It is only looked up, never gone through.
    at_locks: HashMap<usize, VecDeque<usize>>,
    /// Tasks for which a processor leaves idleness.
    waking: usize,
    switches: u64,
    counts: Counts,
    entropy: SplitMix64,
    /// A task waits while it unwinds: the run is given up.
    is_given_up: bool,
    /// Whether the running task looks while time stands still.
    stands_still: bool,
    mode: Mode,
}

enum Mode {
    Timed(Box<Parts>),
    Scheduled(Box<dyn Choice>),
}

/// The hardware of a machine that runs.
struct Parts {
    processors: Box<dyn Processors>,
    disks: Disks,
    /// How many processors.
    count: usize,
    costs: Costs,
    /// In nanoseconds.
    wake_latency: u64,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// Calls `look` with the state of the machine that runs on this thread. It does not suspend.
fn with<R>(look: impl FnOnce(&mut State) -> R) -> R {
    STATE.with(|state| {
        look(state.borrow_mut().as_mut().expect("a fiber runs on the thread of its machine"))
    })
}

impl State {
    fn new(kind: &Kind) -> State {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let seed = match kind {
            Kind::Timed(_, seed) => *seed,
            Kind::Scheduled(strategy) => strategy.seed(),
        };
        let mode = match kind {
            Kind::Timed(hardware, seed) => Mode::Timed(Box::new(Parts {
                processors: processors::of(hardware),
                disks: Disks::new(hardware, *seed),
                count: hardware.processors as usize,
                costs: hardware.costs,
                wake_latency: nanoseconds(hardware.wake_latency),
            })),
            Kind::Scheduled(strategy) => Mode::Scheduled(strategy.start()),
        };
        State {
            machine: NEXT.fetch_add(1, Ordering::Relaxed),
            anchor: Instant::now(),
            now: 0,
            order: 0,
            running: 0,
            ready: VecDeque::new(),
            events: BinaryHeap::new(),
            tasks: Vec::new(),
            at_locks: HashMap::new(),
            waking: 0,
            switches: 0,
            counts: Counts::default(),
            entropy: SplitMix64::new(SplitMix64::mix(seed ^ 0x656e_7472)),
            is_given_up: false,
            stands_still: false,
            mode,
        }
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    fn usage(&self) -> Usage {
        let (counts, switches) = (self.counts, self.switches);
        match &self.mode {
            Mode::Timed(parts) => {
                let (data_disks, log_disk) = parts.disks.busy();
                let processors = Duration::from_secs_f64(parts.processors.busy() / 1e9);
                Usage { processors, data_disks, log_disk, counts, switches }
            }
            Mode::Scheduled(_) => Usage { counts, switches, ..Usage::default() },
        }
    }

    /// Lets a task go on that waits.
    fn wake(&mut self, task: usize) {
        let state = &mut self.tasks[task];
        debug_assert!(!matches!(state.wait, Wait::Nothing | Wait::Ended), "it waits");
        state.wait = Wait::Nothing;
        state.waits += 1;
        self.ready.push_back(task);
    }

    /// Lets a task go on because the running one wakes it: at once if it has to wait for a
    /// processor anyhow, and when one has left idleness otherwise.
    fn wake_up(&mut self, task: usize) {
        work::count(Operation::WakeUp, 1);
        let Mode::Timed(parts) = &self.mode else { return self.wake(task) };
        // With the running one, and those that will ask for a processor before the clock goes on.
        let running = usize::from(!self.tasks[self.running].is_elsewhere);
        let busy = parts.processors.tasks() + self.ready.len() + self.waking + running;
        if busy >= parts.count || self.tasks[task].is_elsewhere {
            return self.wake(task);
        }
        work::count(Operation::IdleWakeUp, 1);
        let at = self.now + parts.wake_latency;
        self.tasks[task].wait = Wait::Waking;
        self.tasks[task].waits += 1;
        self.waking += 1;
        self.order += 1;
        let (order, wait) = (self.order, self.tasks[task].waits);
        self.events.push(Reverse(Event { at, order, task, wait }));
    }

    /// Lets the running task go on at a moment, if nothing ends its wait before.
    fn wake_at(&mut self, at: u64) {
        self.order += 1;
        let (task, order) = (self.running, self.order);
        self.events.push(Reverse(Event { at, order, task, wait: self.tasks[task].waits }));
    }

    /// Drops events of waits that have ended, and returns the moment of the first other one.
    fn next_event(&mut self) -> Option<u64> {
        while let Some(Reverse(event)) = self.events.peek() {
            let task = &self.tasks[event.task];
            if task.waits == event.wait && !matches!(task.wait, Wait::Nothing | Wait::Ended) {
                return Some(event.at);
            }
            self.events.pop();
        }
        None
    }

    fn fire_event(&mut self) {
        if let Some(Reverse(event)) = self.events.pop() {
            self.now = self.now.max(event.at);
            if self.tasks[event.task].wait == Wait::Waking {
                self.waking -= 1;
            }
            self.wake(event.task);
        }
    }

    /// Returns the task that is to be resumed next; none if none can be.
    fn next(&mut self) -> Option<usize> {
        loop {
            let event = self.next_event();
            if self.is_scheduled() && !self.ready.is_empty() {
                return Some(self.choose(event));
            }
            if let Some(task) = self.ready.pop_front() {
                return Some(task);
            }
            let work = match &self.mode {
                Mode::Timed(parts) => parts.processors.next(),
                Mode::Scheduled(_) => None,
            };
            match (event, work) {
                (None, None) => return None,
                (Some(event), work) if work.is_none_or(|work| event < work) => self.fire_event(),
                (_, Some(work)) => self.end_work(work),
                (Some(_), None) => unreachable!("the second case has it"),
            }
        }
    }

    fn end_work(&mut self, at: u64) {
        self.now = at;
        if let Mode::Timed(parts) = &mut self.mode
            && let Some(task) = parts.processors.advance(at)
        {
            self.wake(task);
        }
    }

    fn is_scheduled(&self) -> bool {
        matches!(self.mode, Mode::Scheduled(_))
    }

    /// Draws one of the tasks that can run, of which there is one, perhaps after a time-out.
    fn choose(&mut self, event: Option<u64>) -> usize {
        self.now += STEP_NS;
        let Mode::Scheduled(choice) = &mut self.mode else {
            unreachable!("only a machine that draws schedules chooses")
        };
        if event.is_some_and(|at| at <= self.now) || (event.is_some() && choice.fires_timer()) {
            self.fire_event();
        }
        let Mode::Scheduled(choice) = &mut self.mode else {
            unreachable!("only a machine that draws schedules chooses")
        };
        let place = choice.next(self.ready.make_contiguous());
        self.ready.remove(place).expect("a place among those that can run")
    }

    fn have_ended(&self) -> bool {
        self.tasks.iter().all(|task| task.wait == Wait::Ended)
    }

    /// Describes the tasks that have not ended, and those that have panicked, a line for each.
    fn describe(&self) -> String {
        let mut text = String::new();
        for (number, task) in self.tasks.iter().enumerate() {
            if let Some(panic) = &task.panic {
                let _ = write!(text, "\n  {number} `{}` has panicked: {panic}", task.name);
            } else if task.wait != Wait::Ended {
                let what = task.wait.description();
                let _ = write!(text, "\n  {number} `{}` {what}", task.name);
                if let Wait::End(other) = task.wait {
                    let _ = write!(text, " ({other})");
                }
            }
        }
        text
    }

    /// Takes processor time for the running task. Returns whether it has to wait for it.
    fn start_work(&mut self, extra: u64) -> bool {
        if self.stands_still {
            return false;
        }
        let counts = work::take();
        if self.tasks[self.running].is_elsewhere {
            return false;
        }
        self.counts.add(&counts);
        let Mode::Timed(parts) = &mut self.mode else { return false };
        let demand = parts.costs.of(&counts) + extra;
        let processors = &mut parts.processors;
        if demand == 0 {
            return false;
        }
        let end = self.now + demand;
        let is_alone = self.ready.is_empty() && processors.tasks() < parts.count;
        if is_alone && processors.next().is_none_or(|next| next > end) {
            // Nothing happens until then that could change how fast it goes.
            if self.events.peek().is_none_or(|Reverse(event)| event.at > end) {
                processors.note_busy(demand);
                self.now = end;
                return false;
            }
        }
        let priority = self.tasks[self.running].priority;
        processors.start(self.running, demand, priority, self.now);
        true
    }
}

/// Returns a time in nanoseconds; beyond 584 years it stays there.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Resumes tasks until all have ended.
fn drive() -> Result<(), MachineError> {
    loop {
        let Some((task, mut fiber)) = with(|state| {
            let task = state.next()?;
            state.running = task;
            state.switches += 1;
            held::set(state.tasks[task].held);
            Some((task, state.tasks[task].fiber.take().expect("it is there while others run")))
        }) else {
            return with(|state| {
                if state.have_ended() {
                    return Ok(());
                }
                let (elapsed, tasks) = (state.elapsed(), state.describe());
                Err(MachineError::Stalled { elapsed, tasks })
            });
        };
        let has_ended = fiber.resume();
        with(|state| {
            state.tasks[task].held = held::get();
            if has_ended {
                return Ok(());
            }
            state.tasks[task].fiber = Some(fiber);
            if state.is_given_up {
                return Err(MachineError::Panicked { tasks: state.describe() });
            }
            let steps = state.switches;
            if state.is_scheduled() && steps > STEPS_MAX {
                return Err(MachineError::Endless { steps, tasks: state.describe() });
            }
            Ok(())
        })?;
    }
}

/// The result of a task, once it has ended.
#[derive(Debug)]
pub(crate) struct Outcome<T>(Mutex<Option<std::thread::Result<T>>>);

impl<T> Outcome<T> {
    fn take(&self) -> std::thread::Result<T> {
        self.0.lock().take().expect("a task leaves its result, and one takes it")
    }
}

/// Makes a task of the machine on this thread.
fn start<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<(TaskId, Arc<Outcome<T>>)> {
    let outcome = Arc::new(Outcome(Mutex::new(None)));
    let theirs = Arc::clone(&outcome);
    let fiber = Fiber::new(move || {
        let result: Result<T, Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(body));
        settle(Duration::ZERO);
        if let Err(panic) = &result {
            let text = schedules::panic_text(&**panic);
            with(|state| state.tasks[state.running].panic = Some(text));
        }
        *theirs.0.lock() = Some(result);
        drop(theirs);
        end();
    })?;
    let task = with(|state| {
        let number = state.tasks.len();
        state.tasks.push(TaskState {
            name: name.into(),
            fiber: Some(fiber),
            wait: Wait::Nothing,
            is_unparked: false,
            waits: 0,
            priority: Priority::Normal,
            is_elsewhere: false,
            held: 0,
            panic: None,
        });
        state.ready.push_back(number);
        TaskId { machine: state.machine, number }
    });
    Ok((task, outcome))
}

fn end() {
    debug_assert!(held::get() == 0, "a task ends without a lock");
    with(|state| {
        let ended = state.running;
        state.tasks[ended].wait = Wait::Ended;
        let joined = Wait::End(ended);
        for task in 0..state.tasks.len() {
            if state.tasks[task].wait == joined {
                state.wake(task);
            }
        }
    });
}

pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<(TaskId, Arc<Outcome<T>>)> {
    let started = start(name, body)?;
    point();
    Ok(started)
}

/// Suspends the running task, which has said in the state what it waits for.
fn wait(why: Wait) {
    with(|state| {
        let is_free = held::get() == 0 || state.is_scheduled();
        debug_assert!(is_free, "a task waits and holds a lock that is not for waits");
        assert!(!state.stands_still, "a task does not wait while time stands still");
        let running = state.running;
        state.tasks[running].wait = why;
        // The standard library counts panics by thread: other fibers would see this one's. A panic
        // in a destructor that runs because of another one ends the process.
        state.is_given_up = std::thread::panicking();
        assert!(
            !state.is_given_up || state.is_scheduled(),
            "a task that panics does not wait while it unwinds"
        );
    });
    fiber::suspend();
}

pub(crate) fn current() -> TaskId {
    with(|state| TaskId { machine: state.machine, number: state.running })
}

pub(crate) fn elapsed() -> Duration {
    point();
    with(|state| state.elapsed())
}

pub(crate) fn now() -> Instant {
    point();
    with(|state| state.anchor + state.elapsed())
}

/// Lets the machine switch, if it draws its schedules.
pub(crate) fn point() {
    let switches = with(|state| {
        let switches = state.is_scheduled() && !state.stands_still && !std::thread::panicking();
        if switches {
            state.ready.push_back(state.running);
        }
        switches
    });
    if switches {
        fiber::suspend();
    }
}

/// Waits until the work that was counted and `extra` more is done.
pub(crate) fn settle(extra: Duration) {
    if std::thread::panicking() {
        return;
    }
    let extra = nanoseconds(extra);
    if with(|state| state.start_work(extra)) {
        wait(Wait::Processors);
    }
}

pub(crate) fn park(until: Option<Instant>) {
    settle(Duration::ZERO);
    point();
    let waits = with(|state| {
        let running = state.running;
        if std::mem::take(&mut state.tasks[running].is_unparked) {
            return false;
        }
        if let Some(until) = until {
            let at = until.saturating_duration_since(state.anchor).as_nanos();
            let at = u64::try_from(at).unwrap_or(u64::MAX);
            if at <= state.now {
                return false;
            }
            state.wake_at(at);
        }
        true
    });
    if waits {
        wait(Wait::Unpark);
    }
}

pub(crate) fn unpark(task: TaskId) {
    with(|state| {
        assert!(task.machine == state.machine, "a task is woken on its own machine");
        match state.tasks[task.number].wait {
            Wait::Unpark => state.wake_up(task.number),
            Wait::Waking | Wait::Ended => {}
            _ => state.tasks[task.number].is_unparked = true,
        }
    });
    point();
}

pub(crate) fn sleep(time: Duration) {
    settle(Duration::ZERO);
    let time = nanoseconds(time);
    with(|state| state.wake_at(state.now.saturating_add(time)));
    wait(Wait::Moment);
}

pub(crate) fn yield_now() {
    settle(Duration::ZERO);
    with(|state| {
        if let Mode::Scheduled(choice) = &mut state.mode {
            choice.has_yielded(state.running);
        }
        state.wake_at(state.now + YIELD_NS);
    });
    wait(Wait::Moment);
}

pub(crate) fn transfer(transfer: Transfer) {
    if with(|state| state.stands_still) {
        return;
    }
    work::count(Operation::SystemCall, 1);
    settle(Duration::ZERO);
    let waits = with(|state| {
        let now = state.now;
        let Mode::Timed(parts) = &mut state.mode else { return false };
        let end = parts.disks.start(transfer, now);
        if end > now {
            state.wake_at(end);
        }
        end > now
    });
    if waits {
        wait(Wait::Moment);
    } else {
        point();
    }
}

/// Calls `look`; meanwhile nothing that the running task does is charged.
pub(crate) fn stand_still<R>(look: impl FnOnce() -> R) -> R {
    /// Ends it also after a panic.
    struct Standing {
        counts: Counts,
    }

    impl Drop for Standing {
        fn drop(&mut self) {
            work::put_back(&self.counts);
            with(|state| state.stands_still = false);
        }
    }

    let before = with(|state| std::mem::replace(&mut state.stands_still, true));
    assert!(!before, "time stands still once");
    let _standing = Standing { counts: work::counts() };
    look()
}

pub(crate) fn work_elsewhere(is_elsewhere: bool) {
    settle(Duration::ZERO);
    with(|state| state.tasks[state.running].is_elsewhere = is_elsewhere);
}

pub(crate) fn set_priority(priority: Priority) {
    settle(Duration::ZERO);
    with(|state| state.tasks[state.running].priority = priority);
}

pub(crate) fn processors() -> usize {
    with(|state| match &state.mode {
        Mode::Timed(parts) => parts.count,
        Mode::Scheduled(_) => 1,
    })
}

pub(crate) fn entropy() -> u64 {
    with(|state| state.entropy.next_bits())
}

pub(crate) fn is_finished(task: TaskId) -> bool {
    point();
    with(|state| state.tasks[task.number].wait == Wait::Ended)
}

pub(crate) fn join<T>(task: TaskId, outcome: &Outcome<T>) -> std::thread::Result<T> {
    settle(Duration::ZERO);
    if with(|state| state.tasks[task.number].wait != Wait::Ended) {
        wait(Wait::End(task.number));
    }
    outcome.take()
}

/// Waits until the lock at this address is released. The caller has found it taken, and tries
/// again afterwards: others may have been faster.
pub(crate) fn wait_for_lock(address: usize) {
    with(|state| {
        let running = state.running;
        state.at_locks.entry(address).or_default().push_back(running);
    });
    wait(Wait::Lock(address));
}

/// Lets those go on who wait for the lock at this address: all of them, or the first.
pub(crate) fn wake_for_lock(address: usize, all: bool) {
    with(|state| {
        if state.stands_still {
            // Who waits does so for somebody else: nobody has come since the look took the lock.
            return;
        }
        let Some(queue) = state.at_locks.get_mut(&address) else { return };
        let count = if all { queue.len() } else { 1 };
        let woken: Vec<usize> = queue.drain(..count).collect();
        if queue.is_empty() {
            state.at_locks.remove(&address);
        }
        for task in woken {
            state.wake_up(task);
        }
    });
}
