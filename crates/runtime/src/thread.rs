//! Threads of the operating system, or tasks of a machine in virtual time.
//!
//! A caller on a machine's task starts tasks of that machine; any other caller starts threads. The
//! functions behave as those of [`std::thread`] of the same name.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::machine::{self, TaskId};
use crate::{Priority, clock, fiber};

/// The thread or task that something is told to, so that it can be woken.
#[derive(Clone, Debug)]
pub struct Task(Kind);

#[derive(Clone, Debug)]
enum Kind {
    System(std::thread::Thread),
    Virtual(TaskId),
}

impl Task {
    /// Lets the task go on that is parked, or the next [`park`] of it return at once.
    pub fn unpark(&self) {
        match &self.0 {
            Kind::System(thread) => thread.unpark(),
            Kind::Virtual(task) => machine::unpark(*task),
        }
    }

    /// Returns whether the two are the same thread or task.
    #[must_use]
    pub fn is(&self, other: &Task) -> bool {
        match (&self.0, &other.0) {
            (Kind::System(one), Kind::System(two)) => one.id() == two.id(),
            (Kind::Virtual(one), Kind::Virtual(two)) => one == two,
            _ => false,
        }
    }
}

/// Returns the caller's thread or task.
#[must_use]
pub fn current() -> Task {
    Task(if fiber::is_active() {
        Kind::Virtual(machine::current())
    } else {
        Kind::System(std::thread::current())
    })
}

/// Returns a small number of the caller's thread or task, the same at each call: for stripes of
/// counters. Tasks of a machine are numbered from 0 in the order in which they were started;
/// threads of the operating system in the order in which they first asked.
#[must_use]
pub fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    if fiber::is_active() { machine::current().number() } else { NUMBER.with(|number| *number) }
}

/// Waits until the caller's task is unparked.
pub fn park() {
    if fiber::is_active() {
        machine::park(None);
    } else {
        std::thread::park();
    }
}

/// Waits until the caller's task is unparked, at the longest until the moment. As with
/// [`std::thread::park_timeout`], it may return earlier.
pub fn park_until(moment: Instant) {
    if fiber::is_active() {
        machine::park(Some(moment));
    } else {
        std::thread::park_timeout(moment.saturating_duration_since(Instant::now()));
    }
}

/// Waits this long.
pub fn sleep(time: Duration) {
    if fiber::is_active() {
        machine::sleep(time);
    } else {
        std::thread::sleep(time);
    }
}

/// Lets others run. In virtual time a microsecond passes, so that a loop that waits by it ends.
pub fn yield_now() {
    if fiber::is_active() {
        machine::yield_now();
    } else {
        std::thread::yield_now();
    }
}

/// Says that the order of what this task and others do next matters: a machine that draws its
/// schedules may switch to another task here. Otherwise it does nothing.
#[inline]
pub fn point() {
    if fiber::is_active() {
        machine::point();
    }
}

/// Pays for the work that was counted: on a machine in virtual time, waits until its processors
/// have done it.
#[inline]
pub fn settle() {
    if fiber::is_active() {
        machine::settle(Duration::ZERO);
    }
}

/// Takes this much processor time on a machine in virtual time, beside what was counted. A thread
/// of the operating system has taken its own and goes on.
pub fn work_for(time: Duration) {
    if fiber::is_active() {
        machine::settle(time);
    }
}

/// Sets the caller's priority on the processors of a machine in virtual time. Threads of the
/// operating system have none.
pub fn set_priority(priority: Priority) {
    if fiber::is_active() {
        machine::set_priority(priority);
    }
}

/// Says whether the caller's work is done elsewhere from now on, as that of a client on another
/// host is: it then takes no time of the processors of a machine in virtual time. Threads of the
/// operating system go on as they are.
pub fn work_elsewhere(is_elsewhere: bool) {
    if fiber::is_active() {
        machine::work_elsewhere(is_elsewhere);
    }
}

/// Calls `look`, during which time stands still on a machine in virtual time: work and transfers
/// take none, so that who looks at a machine at work does not disturb it. On the operating system
/// it is a call.
///
/// # Panics
///
/// On a machine in virtual time, if `look` waits for another task, or time stands still already.
pub fn stand_still<R>(look: impl FnOnce() -> R) -> R {
    if fiber::is_active() { machine::stand_still(look) } else { look() }
}

/// Starts a thread or task. Its name is for error messages.
///
/// # Errors
///
/// The system's, if it has no more threads or no memory for a stack.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    if fiber::is_active() {
        return machine::spawn(name, body).map(JoinHandle::of_task);
    }
    let thread = std::thread::Builder::new().name(name.into()).spawn(body)?;
    Ok(JoinHandle(Joined::System(thread)))
}

/// A thread or task whose result can be waited for. Dropping it lets the task go on.
#[derive(Debug)]
pub struct JoinHandle<T>(Joined<T>);

#[derive(Debug)]
enum Joined<T> {
    System(std::thread::JoinHandle<T>),
    Virtual(TaskId, Arc<machine::Outcome<T>>),
}

impl<T> JoinHandle<T> {
    fn of_task((task, outcome): (TaskId, Arc<machine::Outcome<T>>)) -> JoinHandle<T> {
        JoinHandle(Joined::Virtual(task, outcome))
    }

    /// Waits for the end of the task and returns its result.
    ///
    /// # Errors
    ///
    /// What the task panicked with.
    pub fn join(self) -> std::thread::Result<T> {
        match self.0 {
            Joined::System(thread) => thread.join(),
            Joined::Virtual(task, outcome) => machine::join(task, &outcome),
        }
    }

    /// Returns whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Joined::System(thread) => thread.is_finished(),
            Joined::Virtual(task, _) => machine::is_finished(*task),
        }
    }

    /// Returns the task, to unpark it.
    #[must_use]
    pub fn task(&self) -> Task {
        Task(match &self.0 {
            Joined::System(thread) => Kind::System(thread.thread().clone()),
            Joined::Virtual(task, _) => Kind::Virtual(*task),
        })
    }
}

/// Waits with `wait` until `is_done` or the moment has come, and returns whether it is done.
pub(crate) fn wait_until(deadline: Option<Instant>, mut is_done: impl FnMut() -> bool) -> bool {
    loop {
        if is_done() {
            return true;
        }
        match deadline {
            None => park(),
            Some(moment) if clock::now() < moment => park_until(moment),
            Some(_) => return false,
        }
    }
}
