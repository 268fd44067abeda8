//! Room for one file descriptor per client.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

/// Descriptors beside the clients' sockets: standard streams, epoll, logs, a report.
const SPARE: u64 = 64;

/// The system allows too few open files.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "{needed} open files are needed and the system allows {allowed}; raise the hard limit \
     (ulimit -Hn) or run fewer clients"
)]
pub struct FileLimit {
    needed: u64,
    allowed: u64,
    /// How many sockets there is room for.
    pub sockets: usize,
}

/// Raises this process's limit of open files so that `sockets` more fit; children inherit it.
///
/// # Errors
/// The hard limit is lower and may not be raised.
pub fn reserve_files(sockets: usize) -> Result<(), FileLimit> {
    let needed = (sockets as u64).saturating_add(SPARE);
    let limit = getrlimit(Resource::Nofile);
    if covers(limit.current, needed) {
        return Ok(());
    }
    let hard_limit_is_enough = covers(limit.maximum, needed);
    let raised = Rlimit {
        current: Some(needed),
        maximum: if hard_limit_is_enough { limit.maximum } else { Some(needed) },
    };
    setrlimit(Resource::Nofile, raised).map_err(|_| {
        let allowed = limit.maximum.unwrap_or(u64::MAX);
        FileLimit {
            needed,
            allowed,
            sockets: usize::try_from(allowed.saturating_sub(SPARE)).unwrap_or(usize::MAX),
        }
    })
}

/// Whether a limit, of which `None` is infinity, leaves room for `needed`.
fn covers(limit: Option<u64>, needed: u64) -> bool {
    limit.is_none_or(|limit| limit >= needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_refused_with_what_can() {
        // Beyond the kernel's own ceiling, which not even root may pass.
        let refused = reserve_files(usize::MAX / 2).unwrap_err();
        assert!(refused.sockets as u64 + SPARE <= refused.allowed);
        let current = getrlimit(Resource::Nofile).current;
        assert_eq!(reserve_files(1), Ok(()));
        assert_eq!(getrlimit(Resource::Nofile).current, current);
    }
}
