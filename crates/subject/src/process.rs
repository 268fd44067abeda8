//! A child process that never outlives its handle.
//!
//! The child gets a process group of its own, so that Ctrl-C in a terminal reaches only us and we
//! decide in which order things stop. Where we are killed outright no handle is dropped; a child by
//! [`outlived_by_none`] is told so by the system.

mod starter;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;

pub use starter::outlived_by_none;

use crate::processors::tree;

/// Pause between two looks at a child or its port.
const POLL: Duration = Duration::from_millis(10);

/// How long a dropped child may take to obey a polite signal.
const DROP_GRACE: Duration = Duration::from_secs(5);

/// Why a child process could not be started or watched.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// The program could not be executed.
    #[error("cannot start {name}: {source}")]
    Start {
        /// What the child is called in messages.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The child ended before it accepted connections.
    #[error("{name} ended with {status} before it accepted connections")]
    Ended {
        /// What the child is called in messages.
        name: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// The child lives but its address stayed closed.
    #[error("{name} did not accept connections on {address} within {} s", .bound.as_secs())]
    NotReady {
        /// What the child is called in messages.
        name: String,
        /// Where it should have listened.
        address: SocketAddr,
        /// How long it was given.
        bound: Duration,
    },
    /// The system refused to tell about the child.
    #[error("cannot watch {name}: {source}")]
    Watch {
        /// What the child is called in messages.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// A running child process; dropping it asks it to stop, waits, then kills.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stop_signals: &'static [Signal],
}

impl Process {
    /// Starts `command` in a process group of its own; SIGTERM is its stop signal.
    ///
    /// # Errors
    /// The program cannot be executed.
    pub fn start(name: &str, mut command: Command) -> Result<Self, ProcessError> {
        command.process_group(0);
        let child = starter::spawn(command)
            .map_err(|source| ProcessError::Start { name: name.to_owned(), source })?;
        Ok(Process { name: name.to_owned(), child, stop_signals: &[Signal::TERM] })
    }

    /// The same process, stopped by `signals` from polite to harsh instead of by SIGTERM.
    #[must_use]
    pub(crate) fn stopped_by(mut self, signals: &'static [Signal]) -> Self {
        self.stop_signals = signals;
        self
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How the process ended, or `None` while it runs.
    ///
    /// # Errors
    /// The system cannot tell.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>, ProcessError> {
        self.child
            .try_wait()
            .map_err(|source| ProcessError::Watch { name: self.name.clone(), source })
    }

    /// Waits until the process accepts TCP connections on `address`.
    ///
    /// # Errors
    /// It ended first, or `bound` passed.
    pub fn wait_for_port(
        &mut self,
        address: SocketAddr,
        bound: Duration,
    ) -> Result<(), ProcessError> {
        let deadline = Instant::now() + bound;
        while Instant::now() < deadline {
            if let Some(status) = self.exit_status()? {
                let name = self.name.clone();
                return Err(ProcessError::Ended { name, status });
            }
            if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        Err(ProcessError::NotReady { name: self.name.clone(), address, bound })
    }

    /// CPU seconds used so far by all threads of the process, in user and system mode.
    ///
    /// # Errors
    /// The process is gone, or `/proc` is not there.
    pub fn cpu_seconds(&self) -> Result<f64, ProcessError> {
        let watch = |source| ProcessError::Watch { name: self.name.clone(), source };
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).map_err(watch)?;
        let ticks = cpu_ticks(&stat).ok_or_else(|| watch(io::ErrorKind::InvalidData.into()))?;
        Ok(seconds(ticks))
    }

    /// Asks the process to end and waits up to `grace`; then kills it.
    ///
    /// # Errors
    /// The system cannot tell how the process ended.
    pub fn stop(mut self, grace: Duration) -> Result<ExitStatus, ProcessError> {
        self.end(grace)
    }

    /// Sends the stop signals one after the other, each with `grace` to take effect, then SIGKILL.
    pub(crate) fn end(&mut self, grace: Duration) -> Result<ExitStatus, ProcessError> {
        for &signal in self.stop_signals {
            if let Some(status) = self.exit_status()? {
                return Ok(status);
            }
            self.signal(signal);
            if let Some(status) = self.wait(grace)? {
                return Ok(status);
            }
        }
        self.signal(Signal::KILL);
        self.child.wait().map_err(|source| ProcessError::Watch { name: self.name.clone(), source })
    }

    /// Signals the child unless it was already waited for, when its id may be another's.
    fn signal(&mut self, signal: Signal) {
        if let Ok(None) = self.child.try_wait() {
            // It can only fail when the child is gone, which the next wait tells.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    fn wait(&mut self, grace: Duration) -> Result<Option<ExitStatus>, ProcessError> {
        let deadline = Instant::now() + grace;
        loop {
            let status = self.exit_status()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure.
        let _ = self.end(DROP_GRACE);
    }
}

/// CPU time that a process and its descendants have used so far, those that have ended included;
/// `None` where the process is gone or `/proc` is not there.
///
/// A process that ends leaves its time, and what others have left it, to the one that waits for it.
/// So of each that lives both are taken, its own time and that of the children it has waited for,
/// and nothing counts twice. PostgreSQL has a process for each session: what those did that ended
/// meanwhile is in the time of the first, once that has waited for them. One that ends between the
/// two looks at itself and at its parent may be missing, or be there twice.
#[must_use]
pub fn tree_cpu(process: u32) -> Option<Duration> {
    let ticks = |process: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        ticks(&stat, OWN_AND_CHILDREN)
    };
    let own = ticks(process)?;
    let of_others: u64 = tree(process).into_iter().skip(1).filter_map(ticks).sum();
    Some(Duration::from_secs_f64(seconds(own + of_others)))
}

/// Times in `/proc/PID/stat`: of the process itself in user and in system mode, fields 14 and 15;
/// and with those of the children that it has waited for, 16 and 17.
const OWN: usize = 2;
const OWN_AND_CHILDREN: usize = 4;

/// User plus system time from `/proc/PID/stat`.
pub(crate) fn cpu_ticks(stat: &str) -> Option<u64> {
    ticks(stat, OWN)
}

/// The sum of so many times from `/proc/PID/stat`. They begin with field 14, the 12th after the
/// command name, which is in parentheses and may itself hold spaces and parentheses.
fn ticks(stat: &str, times: usize) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    (0..times).map(|_| fields.next()?.parse::<u64>().ok()).sum()
}

/// Seconds of so many clock ticks.
pub(crate) fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    use super::*;

    #[test]
    fn cpu_ticks_are_found_behind_a_hostile_command_name() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 120 34 0 0 20";
        assert_eq!(cpu_ticks(stat), Some(154));
        assert_eq!(cpu_ticks("7 (a) S 1 2"), None);
        let with_children = stat.replace("120 34 0 0", "120 34 5 6");
        assert_eq!(ticks(&with_children, OWN_AND_CHILDREN), Some(165));
        assert_eq!(ticks("7 (a) S 1 2 3 4 5 6 7 8 9 10 1 2 3", OWN_AND_CHILDREN), None);
    }

    #[test]
    fn the_work_of_children_counts_while_they_live_and_when_they_have_ended() {
        // The first loop is a child's, which is waited for; the second is one's that lives.
        let work = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let script = format!("({work}); echo ended; ({work}; echo done; read _); true");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let id = shell.id();
        let own = || {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
            Duration::from_secs_f64(seconds(cpu_ticks(&stat).unwrap()))
        };
        let mut said = BufReader::new(shell.stdout.take().unwrap()).lines();
        assert_eq!(said.next().unwrap().unwrap(), "ended");
        let ended = tree_cpu(id).unwrap();
        assert!(ended > own(), "{ended:?} {:?}", own());
        assert_eq!(said.next().unwrap().unwrap(), "done");
        let both = tree_cpu(id).unwrap();
        assert!(both > ended, "{both:?} {ended:?}");
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!(tree_cpu(id), None);
    }

    #[test]
    fn a_child_that_ignores_its_stop_signal_is_killed() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; while :; do sleep 0.05; done"]);
        let mut process = Process::start("stubborn", command).unwrap();
        let status = process.end(Duration::from_millis(50)).unwrap();
        assert!(!status.success());
        assert!(process.exit_status().unwrap().is_some());
    }

    #[test]
    fn a_child_that_ends_early_is_told_from_one_that_is_slow() {
        let closed = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut ended = Process::start("false", Command::new("false")).unwrap();
        let bound = Duration::from_secs(5);
        let error = ended.wait_for_port(closed, bound).unwrap_err();
        assert!(matches!(error, ProcessError::Ended { .. }), "{error}");

        let mut command = Command::new("sleep");
        command.arg("60");
        let mut slow = Process::start("sleep", command).unwrap();
        let error = slow.wait_for_port(closed, Duration::from_millis(30)).unwrap_err();
        assert!(matches!(error, ProcessError::NotReady { .. }), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let command = Command::new("/nonexistent/tidegate");
        let error = Process::start("the proxy", command).unwrap_err();
        assert!(error.to_string().starts_with("cannot start the proxy"));
    }
}
