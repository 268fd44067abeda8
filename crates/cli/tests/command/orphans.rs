//! What a laboratory leaves running that is killed in the middle of an execution: nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tidegate_subject::firebird::Firebird;
use tidegate_subject::mariadb::MariaDb;
use tidegate_subject::postgres::Postgres;

use crate::support::{tidegate, wait_until};

const FILE: &str = r#"
name = "killed"
scenario = "characterise"
subjects = ["SUBJECT"]
mpl = [2]
ctl = "1h"

[workload]
kind = "point-select"
"#;

/// A process as the system tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    id: u32,
    name: String,
    state: String,
    parent: u32,
    /// Clock ticks from the machine's start to its own: no later process has both this and the id.
    began: u64,
}

impl Seen {
    /// From `/proc/PID/stat`: id, name in parentheses, state, parent; the start is field 22.
    fn by_id(id: &str) -> Option<Seen> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (before, rest) = stat.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let mut fields = rest.split_ascii_whitespace();
        Some(Seen {
            id: id.parse().ok()?,
            name: name.to_owned(),
            state: fields.next()?.to_owned(),
            parent: fields.next()?.parse().ok()?,
            began: fields.nth(17)?.parse().ok()?,
        })
    }

    fn children(of: u32) -> Vec<Seen> {
        let entries = fs::read_dir("/proc").unwrap();
        let names = entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
        names.filter_map(|id| Seen::by_id(&id)).filter(|seen| seen.parent == of).collect()
    }

    fn has_ended(&self) -> bool {
        match Seen::by_id(&self.id.to_string()) {
            None => true,
            // One that nobody has waited for yet has ended, too.
            Some(now) => now.began != self.began || now.state == "Z",
        }
    }
}

/// A laboratory that is killed in the end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It can only fail when it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills a laboratory that has started these programs, and waits until they have ended.
fn nothing_is_left(subject: &str, programs: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    // Servers run as another user where we are root, who must get to their directories.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(directory.path().join("e.toml"), FILE.replace("SUBJECT", subject)).unwrap();
    let laboratory = tidegate(&["--log-level", "off", "lab", "run", "e.toml"])
        .current_dir(directory.path())
        .env("TMPDIR", directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut laboratory = Killed(laboratory);
    let mut children = Vec::new();
    wait_until("all its programs run", || {
        assert_eq!(laboratory.0.try_wait().unwrap(), None, "{subject}: it has ended by itself");
        children = Seen::children(laboratory.0.id());
        let is_there = |program: &&str| children.iter().any(|child| child.name == **program);
        programs.iter().all(is_there)
    });
    assert!(children.iter().all(|child| !child.has_ended()), "{children:?}");
    drop(laboratory);
    wait_until(&format!("{children:?} of {subject} have ended"), || {
        children.iter().all(Seen::has_ended)
    });
}

#[test]
fn nothing_of_a_laboratory_that_was_killed_lives_on() {
    let is_told = Command::new("setpriv").args(["--pdeathsig", "TERM", "--", "true"]).status();
    if !is_told.is_ok_and(|status| status.success()) {
        return println!("skipped: there is no setpriv that asks for the signal");
    }
    let program = env!("CARGO_BIN_EXE_tidegate");
    let tidegate = Path::new(program).file_name().unwrap().to_str().unwrap();
    let postgres = Postgres::find().map(drop).map_err(|error| error.to_string());
    let mariadb = MariaDb::find().map(drop).map_err(|error| error.to_string());
    let firebird = Firebird::find().map(drop).map_err(|error| error.to_string());
    for (found, subject, programs) in [
        (postgres, "postgres-through-tidegate", &["postgres", tidegate][..]),
        (mariadb, "mariadb", &["mariadbd"]),
        (firebird, "firebird", &["firebird"]),
    ] {
        match found {
            Err(error) => println!("skipped: {error}"),
            Ok(()) => nothing_is_left(subject, programs),
        }
    }
}
