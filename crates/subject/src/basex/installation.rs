//! Where `BaseX` is, and how a server is started.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tidegate_workload::Failure;

use super::{ADMIN, BasexConnection};
use crate::database::DatabaseError;
use crate::scratch::Scratch;
use crate::server::{self, Program, first_in};

/// Where Debian's package puts the program.
const JAR: &str = "/usr/share/java/basex.jar";

/// The directory of databases, in the server's own.
const HOME: &str = "basex";

/// What a server is started with.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memory that Java may use for objects, in MiB.
    pub heap_mib: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { heap_mib: 1024 }
    }
}

/// Java, the program, and what a server is started with.
#[derive(Debug)]
pub struct Installation {
    java: PathBuf,
    options: Options,
}

impl Program for Installation {
    const NAME: &'static str = "BaseX";
    const START_BOUND: Duration = Duration::from_secs(60);
    const STOP_BOUND: Duration = Duration::from_secs(10);
    const STOP_SIGNALS: &'static [Signal] = &[Signal::TERM];
    type Options = Options;
    type Resident = ();

    fn find(options: Options) -> Result<Self, DatabaseError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let java = first_in(std::env::split_paths(&path), "java");
        match java.filter(|_| Path::new(JAR).is_file()) {
            Some(java) => Ok(Installation { java, options }),
            None => Err(DatabaseError::NotInstalled(format!(
                "java is not in PATH, or BaseX is not {JAR}; install it (Debian: apt-get install \
                 basex default-jre-headless)"
            ))),
        }
    }

    fn path(&self) -> &Path {
        Path::new(JAR)
    }

    fn prepare(&self) -> Result<Scratch, DatabaseError> {
        let directory = server::directory("basex", None)?;
        let home = directory.path().join(HOME);
        std::fs::create_dir(&home).map_err(DatabaseError::directory(&home))?;
        Ok(directory)
    }

    fn command(&self, directory: &Path, port: u16) -> Result<Command, DatabaseError> {
        let mut command = server::command(&self.java, "TERM", directory, None);
        let home = directory.join(HOME);
        command
            .arg(format!("-Xmx{}m", self.options.heap_mib))
            .arg(format!("-Dorg.basex.path={}", home.display()))
            .args(["-cp", JAR, "org.basex.BaseXServer", "-z", "-n127.0.0.1"])
            .arg(format!("-p{port}"));
        Ok(command)
    }

    fn connect(&self, _: &Path, port: u16) -> Result<(), Failure> {
        BasexConnection::open(port, ADMIN, ADMIN).map(drop)
    }
}
