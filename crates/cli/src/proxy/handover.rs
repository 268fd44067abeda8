//! Hand-over to a new process: which program that is, how it is started, and what it inherits.
//!
//! The new process gets one end of a socket pair as its standard input, which no other program can
//! reach, and a variable of the environment says so.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;

use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, getpid, getppid};
use rustix::stdio::dup2_stdin;
use tidegate_proxy::Running;
use tidegate_proxy::handover::{HandoverError, Inheritance, Leave, Left};
use tidegate_proxy::notify::{ServiceState, notify};
use tracing::{error, info, warn};

use super::Event;

/// Set for a process that is to take over.
const VARIABLE: &str = "TIDEGATE_HANDOVER";

/// Standard input of a process that is to take over is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error(
    "{VARIABLE} is set, and standard input is no socket of the process that has started this one: \
     unset it"
)]
struct NotInherited;

/// Returns what the process before this one hands over, if there is one. Standard input is empty
/// from then on.
pub(super) fn inheritance() -> Result<Option<Inheritance>, HandoverError> {
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(None);
    }
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let creator = socket_peercred(&socket).ok().map(|credentials| credentials.pid);
    if creator.is_none() || creator != getppid() {
        return Err(io::Error::other(NotInherited).into());
    }
    dup2_stdin(File::open("/dev/null")?).map_err(io::Error::from)?;
    Inheritance::receive(socket).map(Some)
}

/// How this process was started, so that another one can be started alike.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Notes how this process was started; to be called before anything is changed.
    ///
    /// The path is the one it was started by, if that leads to this program now: what lies there
    /// later is the program to upgrade to, also behind a link that has been changed.
    pub(super) fn of_this_process() -> io::Result<Program> {
        let own = std::env::current_exe()?;
        let mut arguments = std::env::args_os();
        let called = arguments.next().and_then(|name| found(Path::new(&name)));
        let path = called.filter(|called| is_same(called, &own)).unwrap_or(own);
        Ok(Program { path, arguments: arguments.collect() })
    }

    /// Starts it, with a socket to this process.
    fn start(&self, socket: OwnedFd) -> io::Result<Child> {
        Command::new(&self.path)
            .args(&self.arguments)
            .env(VARIABLE, "1")
            .stdin(Stdio::from(socket))
            .spawn()
    }
}

/// Returns the absolute path of a program that was called by this name.
fn found(name: &Path) -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    if name.components().count() > 1 {
        return Some(here.join(name));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|place| here.join(place).join(name)).find(|it| it.is_file())
}

fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| std::fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    of(one).is_some_and(|it| Some(it) == of(other))
}

/// Begins to hand over on a thread of its own, which tells how that has ended.
pub(super) fn begin(program: &Program, running: &Running, tell: Sender<Event>) {
    let leave = running.leave();
    if let Err(reason) = leave.check() {
        return warn!(%reason, "no hand-over begins");
    }
    info!(program = %program.path.display(), "handing over to a new process");
    let started = UnixStream::pair().and_then(|(near, far)| {
        let child = program.start(far.into())?;
        Ok((child, near))
    });
    match started {
        Ok((child, socket)) => {
            std::thread::spawn(move || {
                if let Some(left) = wait(&leave, child, socket.into()) {
                    // The process may be stopping already.
                    let _ = tell.send(Event::HandedOver(left));
                }
            });
        }
        Err(error) => {
            let program = program.path.display();
            error!(%program, %error, "cannot start a new process; this one goes on");
        }
    }
}

/// Hands over to a child. Returns `None` if this process goes on.
fn wait(leave: &Leave, child: Child, socket: OwnedFd) -> Option<Left> {
    let process = child.id();
    let pid = Pid::from_child(&child);
    let child = RefCell::new(Some(child));
    let ready = || {
        info!(process, "the new process accepts clients");
        notify(ServiceState::MainProcess(pid));
    };
    let end = || child.take().into_iter().for_each(end);
    match leave.hand_over(socket, ready, end) {
        Ok(left) => Some(left),
        Err(reason) => {
            end();
            notify(ServiceState::MainProcess(getpid()));
            error!(process, %reason, "nothing is handed over any more; this process goes on");
            None
        }
    }
}

/// Ends a child, whatever it does.
fn end(mut child: Child) {
    // It may have ended by itself.
    let _ = child.kill();
    match child.wait() {
        Ok(status) => info!(%status, "the new process has ended"),
        Err(error) => warn!(%error, "the new process cannot be waited for"),
    }
}
