//! The unprivileged user a server runs as when we are root.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// A user and its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    uid: u32,
    gid: u32,
}

/// We are root and there is nobody else to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoAccount;

impl Account {
    /// The account to switch to, the first of these that exists: none unless we are root.
    pub(crate) fn needed(candidates: &[&str]) -> Result<Option<Self>, NoAccount> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let account = candidates.iter().find_map(|name| find(&passwd, name));
        account.map(Some).ok_or(NoAccount)
    }

    /// Makes `path` the account's own.
    pub(crate) fn own(&self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.uid), Some(self.gid))
    }

    /// Makes `command` run as the account; the standard library drops root's other groups too.
    pub(crate) fn run_as(&self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }
}

/// The account `name` in the text of `/etc/passwd`, unless it is another name for root.
fn find(passwd: &str, name: &str) -> Option<Account> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut ids = line.split(':').skip(2).map(str::parse);
    let (uid, gid) = (ids.next()?.ok()?, ids.next()?.ok()?);
    (uid != 0).then_some(Account { uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_unprivileged_entry_counts() {
        let passwd = "root:x:0:0::/:/bin/sh\npostgresql:x:7:8::/:\npostgres:x:101:104:PG:/:\n\
                      toor:x:0:0::/:\nbroken:x:";
        let expected = Account { uid: 101, gid: 104 };
        assert_eq!(find(passwd, "postgres"), Some(expected));
        for name in ["post", "toor", "broken", "x", ""] {
            assert_eq!(find(passwd, name), None, "{name}");
        }
    }
}
