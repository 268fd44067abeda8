//! Children that are told when we are gone.
//!
//! # Mechanism
//! A process may ask Linux for a signal when its parent ends. Nothing of ours runs in a child
//! before its program, so `setpriv` asks: it runs first, and becomes the program by `exec`, with
//! the same process id. The request outlasts `exec`, but no change of the user, so a server becomes
//! the user that it runs as before.
//!
//! To Linux the parent is the thread that started the child. So one thread, which ends with us,
//! starts all children, for whichever thread wants one, on the processors which that one has.
//!
//! # Limits
//! Where there is no `setpriv` with `--pdeathsig` (util-linux 2.33) a child lives on when we are
//! killed outright, as does one of which we were killed in the moment before it asked. What the
//! child starts gets no signal by itself.
//!
//! Source: `PR_SET_PDEATHSIG` in `prctl(2)`, `setpriv(1)`.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::processors::Processors;

const SETPRIV: &str = "setpriv";
const OPTION: &str = "--pdeathsig";

/// A command for a program that gets a signal, by its name without SIG, when we are gone. It is for
/// [`Process::start`](super::Process::start), whatever thread calls it.
#[must_use]
pub fn outlived_by_none(program: &Path, signal: &str) -> Command {
    // One that is not there is to be missed by its own name.
    if !is_there(program) || !can_ask() {
        return Command::new(program);
    }
    let mut command = Command::new(SETPRIV);
    command.args([OPTION, signal, "--"]).arg(program);
    command
}

/// Whether there is a program at a path, or of a name.
fn is_there(program: &Path) -> bool {
    if program.components().count() > 1 {
        return program.exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).exists())
}

/// Whether there is a program that asks.
fn can_ask() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let mut trial = Command::new(SETPRIV);
        trial.args([OPTION, "TERM", "--", "true"]);
        trial.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        trial.status().is_ok_and(|status| status.success())
    })
}

/// A child that somebody waits for.
struct Order {
    command: Command,
    processors: Processors,
    answer: Sender<io::Result<Child>>,
}

/// Starts a child as one of the thread that ends with us, on the processors of the calling one.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, received) = channel();
        // Where there can be no thread, nobody receives the order, which is told below.
        let _ = std::thread::Builder::new().name("starter".into()).spawn(|| serve(received));
        orders
    });
    let processors = Processors::available().map_err(io::Error::other)?;
    let (answer, answered) = channel();
    let gone = || io::Error::other("there is no thread to start it");
    starter.send(Order { command, processors, answer }).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

fn serve(orders: Receiver<Order>) {
    for Order { mut command, processors, answer } in orders {
        let started = processors.during(|| command.spawn()).map_err(io::Error::other);
        // Whoever ordered waits for the answer.
        let _ = answer.send(started.and_then(|child| child));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use super::super::Process;
    use super::*;

    #[test]
    fn a_child_outlives_the_thread_that_wanted_it() {
        let wanted = std::thread::spawn(|| {
            let mut command = outlived_by_none(Path::new("sleep"), "TERM");
            command.arg("600");
            let process = Process::start("sleep", command).unwrap();
            let comm = format!("/proc/{}/comm", process.id());
            // By then the signal is asked for.
            while fs::read_to_string(&comm).unwrap() != "sleep\n" {
                std::thread::sleep(Duration::from_millis(1));
            }
            process
        });
        let mut process = wanted.join().unwrap();
        let end = Instant::now() + Duration::from_millis(300);
        while Instant::now() < end {
            assert_eq!(process.exit_status().unwrap(), None);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_missed_by_its_name() {
        for program in ["/nonexistent/server", "no-such-server"] {
            let command = outlived_by_none(Path::new(program), "TERM");
            assert_eq!(command.get_program(), program);
        }
        assert!(is_there(Path::new("sh")) && is_there(Path::new("/bin/sh")));
    }

    #[test]
    fn a_child_has_the_processors_of_the_thread_that_wanted_it() {
        let one = Processors::available().unwrap().first(1).unwrap();
        let mut command = Command::new("sleep");
        command.arg("600");
        let process = one.during(|| Process::start("sleep", command)).unwrap().unwrap();
        one.verify(process.id()).unwrap();
    }
}
