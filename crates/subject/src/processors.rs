//! Processor sets: which processors a server may use, with all its threads and children.
//!
//! A thread gives the processors it may use to what it starts, threads and processes alike. So a
//! server is started from within [`Processors::during`]: the calling thread takes the set, starts
//! the server, and takes back its own. Nothing runs between fork and exec, and no thread of the
//! server was ever elsewhere. A server that runs already is moved with [`Processors::hold`], thread
//! by thread.
//!
//! Programs may move themselves, so [`Processors::verify`] reads the set of every thread of the
//! tree, for check 2 of the analysis protocol. Example, with a server limited to processors 0 and
//! 1:
//!
//! ```no_run
//! # use tidegate_subject::processors::Processors;
//! # fn start() -> u32 { 0 }
//! let two = Processors::available()?.first(2)?;
//! let server = two.during(start)?;
//! two.verify(server)?;
//! # Ok::<(), tidegate_subject::processors::ProcessorsError>(())
//! ```
//!
//! Limits: a child whose parent has ended belongs to no tree any more and is not seen; of more than
//! 1,024 processors only the first are.
//!
//! Source: `sched_setaffinity(2)`, `proc(5)`.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thiserror::Error;

/// How often a tree is walked again because it grew meanwhile.
const ROUNDS: usize = 100;

/// A set of processors, by the numbers the system gives them; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processors(BTreeSet<usize>);

/// Why processes could not be kept to a set of processors.
#[derive(Debug, Error)]
pub enum ProcessorsError {
    /// More are wanted than there are.
    #[error("{wanted} processors are wanted, but {available} are available to this process")]
    TooFew {
        /// How many are wanted; none is as bad as too many.
        wanted: usize,
        /// How many there are.
        available: usize,
    },
    /// The system does not tell or refuses.
    #[error("cannot get or set the processors of {task}: {source}")]
    System {
        /// Which thread or process.
        task: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A thread is not where it should be.
    #[error("thread {thread} ({name}) of process {process} may use processors {found}, not {set}")]
    Elsewhere {
        /// The process.
        process: u32,
        /// Its thread.
        thread: u32,
        /// The thread's name.
        name: String,
        /// The processors it may use.
        found: Processors,
        /// Those that it should.
        set: Processors,
    },
    /// The process is not there, or new threads come faster than they can be looked at.
    #[error("process {0} is not there, or its threads do not stop changing")]
    NoTree(u32),
}

impl Processors {
    /// Those that the calling thread may use.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn available() -> Result<Self, ProcessorsError> {
        of_thread(None).map_err(|source| system("this thread", source))
    }

    /// How many they are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// So many of them, lowest numbers first.
    ///
    /// # Errors
    /// None is wanted, or more than there are.
    pub fn first(&self, wanted: usize) -> Result<Self, ProcessorsError> {
        if wanted == 0 || wanted > self.count() {
            return Err(ProcessorsError::TooFew { wanted, available: self.count() });
        }
        Ok(Processors(self.0.iter().copied().take(wanted).collect()))
    }

    fn mask(&self) -> CpuSet {
        let mut mask = CpuSet::new();
        for &processor in &self.0 {
            mask.set(processor);
        }
        mask
    }

    /// Runs `start` on the calling thread while that has these processors only, which all it
    /// starts inherits; then gives the thread back those it had, also when `start` panics.
    ///
    /// # Errors
    /// The system refuses; `start` has not run then.
    pub fn during<T>(&self, start: impl FnOnce() -> T) -> Result<T, ProcessorsError> {
        let failed = |source: rustix::io::Errno| system("this thread", source.into());
        let own = sched_getaffinity(None).map_err(failed)?;
        let _restore = Restore(own);
        sched_setaffinity(None, &self.mask()).map_err(failed)?;
        Ok(start())
    }

    /// Keeps every thread of a process and of its descendants to these processors.
    ///
    /// # Errors
    /// The process is not there, or the system refuses.
    pub fn hold(&self, process: u32) -> Result<(), ProcessorsError> {
        let mask = self.mask();
        let mut held = BTreeSet::new();
        for _ in 0..ROUNDS {
            // A thread started by one that was not yet held is found in the next round.
            let fresh: Vec<_> =
                tasks(process)?.into_iter().filter(|task| !held.contains(task)).collect();
            if fresh.is_empty() {
                return self.verify(process);
            }
            for task in fresh {
                match sched_setaffinity(pid(task.1), &mask) {
                    Err(source) if source != rustix::io::Errno::SRCH => {
                        return Err(system(&format!("thread {}", task.1), source.into()));
                    }
                    _ => held.insert(task),
                };
            }
        }
        Err(ProcessorsError::NoTree(process))
    }

    /// Keeps our own process with all its threads and descendants to these processors, until what
    /// is returned is dropped: then all have those back that the calling thread has now.
    ///
    /// # Errors
    /// As those of [`hold`](Self::hold).
    pub fn hold_ourselves(&self) -> Result<Held, ProcessorsError> {
        let held = Held { before: Processors::available()? };
        self.hold(std::process::id())?;
        Ok(held)
    }

    /// Looks whether every thread of a process and of its descendants may use exactly these
    /// processors.
    ///
    /// # Errors
    /// [`ProcessorsError::Elsewhere`] names the first that does not; the process is not there.
    pub fn verify(&self, process: u32) -> Result<(), ProcessorsError> {
        for (process, thread) in tasks(process)? {
            match of_thread(pid(thread)) {
                Ok(found) if found == *self => {}
                Ok(found) => {
                    let comm = fs::read_to_string(format!("/proc/{process}/task/{thread}/comm"));
                    let name = comm.unwrap_or_default().trim_end().to_owned();
                    let set = self.clone();
                    return Err(ProcessorsError::Elsewhere { process, thread, name, found, set });
                }
                // It has ended meanwhile.
                Err(source)
                    if source.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                Err(source) => return Err(system(&format!("thread {thread}"), source)),
            }
        }
        Ok(())
    }
}

/// Our own process, kept to some processors; see [`Processors::hold_ourselves`].
#[derive(Debug)]
pub struct Held {
    before: Processors,
}

impl Drop for Held {
    fn drop(&mut self) {
        // It had them a moment ago. Where one went away, who asks for it next is refused.
        let _ = self.before.hold(std::process::id());
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

struct Restore(CpuSet);

impl Drop for Restore {
    fn drop(&mut self) {
        // The thread had this set a moment ago; it is refused only if a processor went away.
        let _ = sched_setaffinity(None, &self.0);
    }
}

fn system(task: &str, source: io::Error) -> ProcessorsError {
    ProcessorsError::System { task: task.to_owned(), source }
}

fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

fn of_thread(thread: Option<Pid>) -> io::Result<Processors> {
    let mask = sched_getaffinity(thread)?;
    let set = (0..CpuSet::MAX_CPU).filter(|&processor| mask.is_set(processor)).collect();
    Ok(Processors(set))
}

/// Every thread, with its process, of a process and its descendants.
fn tasks(process: u32) -> Result<Vec<(u32, u32)>, ProcessorsError> {
    let mut tasks = Vec::new();
    for member in tree(process) {
        tasks.extend(numbers(&format!("/proc/{member}/task")).map(|thread| (member, thread)));
    }
    if tasks.is_empty() { Err(ProcessorsError::NoTree(process)) } else { Ok(tasks) }
}

/// A process and its descendants.
pub(crate) fn tree(process: u32) -> Vec<u32> {
    let mut tree = vec![process];
    let mut next = 0;
    while let Some(&member) = tree.get(next) {
        next += 1;
        for thread in numbers(&format!("/proc/{member}/task")) {
            let path = format!("/proc/{member}/task/{thread}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            for child in children.split_ascii_whitespace().filter_map(|child| child.parse().ok()) {
                if !tree.contains(&child) {
                    tree.push(child);
                }
            }
        }
    }
    tree
}

/// The entries of a directory that are numbers; none when it is gone.
pub(crate) fn numbers(directory: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
