//! Messages to the service manager, as `sd_notify(3)` describes them.
//!
//! A manager that wants them names a socket in `NOTIFY_SOCKET`. Without it nothing is sent, and
//! nothing fails: a proxy that was started by hand has no manager. With `WatchdogSec=` in the unit
//! the manager expects a sign of life within that time (`watchdog.rs` gives it).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};

/// What the service manager is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState<'a> {
    /// The proxy serves; a line for people.
    Ready(&'a str),
    /// The configuration is being read again; [`ServiceState::Ready`] follows.
    Reloading,
    /// The proxy ends.
    Stopping,
    /// The proxy is alive.
    Alive,
    /// Another process is the proxy from now on.
    MainProcess(Pid),
}

impl ServiceState<'_> {
    /// Returns the message.
    fn message(self) -> String {
        match self {
            ServiceState::Ready(status) => {
                format!("READY=1\nSTATUS={}", status.replace('\n', " "))
            }
            ServiceState::Reloading => {
                let now = clock_gettime(ClockId::Monotonic);
                let us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
                format!("RELOADING=1\nMONOTONIC_USEC={us}")
            }
            ServiceState::Stopping => "STOPPING=1".to_owned(),
            ServiceState::Alive => "WATCHDOG=1".to_owned(),
            ServiceState::MainProcess(pid) => format!("MAINPID={}", pid.as_raw_nonzero()),
        }
    }
}

/// Tells the service manager, if there is one. A failure is logged: the manager may be away, and
/// the proxy serves all the same.
pub fn notify(state: ServiceState<'_>) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return;
    };
    if let Err(error) = send(&socket, &state.message()) {
        tracing::warn!(?socket, %error, "cannot tell the service manager");
    }
}

/// Sends a message to the socket of this name; one that begins with `@` is in no file system.
fn send(socket: &OsStr, message: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(Duration::from_secs(1)))?;
    sender.send_to_addr(message.as_bytes(), &address).map(drop)
}

/// Returns how long the service manager waits for a sign of life of this process, if it does.
pub(crate) fn watchdog_time() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_other = number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id()));
    number("WATCHDOG_USEC").filter(|us| *us > 0 && !is_other).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    }

    #[test]
    fn messages_reach_a_socket_in_the_file_system_and_one_that_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("tidegate-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}").into()),
        ];
        for (socket, name) in sockets {
            send(&name, &ServiceState::Ready("serving\non 1").message()).unwrap();
            assert_eq!(received(&socket), "READY=1\nSTATUS=serving on 1");
            send(&name, &ServiceState::Stopping.message()).unwrap();
            assert_eq!(received(&socket), "STOPPING=1");
        }
        assert!(send(directory.path().join("none").as_os_str(), "READY=1").is_err());
    }

    #[test]
    fn messages_are_those_of_the_manual() {
        let pid = rustix::process::getpid();
        let own = std::process::id();
        assert_eq!(ServiceState::MainProcess(pid).message(), format!("MAINPID={own}"));
        assert_eq!(ServiceState::Alive.message(), "WATCHDOG=1");
        let reloading = ServiceState::Reloading.message();
        let us = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(us.parse::<u64>().unwrap() > 0);
    }
}
