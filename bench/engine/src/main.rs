//! What does the embedded engine do beside others, and by itself?
//!
//! | part | what it measures |
//! | --- | --- |
//! | `peers` | Tidegate, LMDB, redb and `SQLite` on the same rows, in one run |
//! | `recovery` | recovery after a kill, and opening after a clean shutdown |
//! | `fills` | how full each split policy leaves the leaves |
//! | `locks` | runs `crates/engine/benches/locks.rs` |
//! | `all` | all of these |
//!
//! The figures go into a Markdown file that this program writes, with the command, the seed, the
//! machine and the versions; progress goes to stderr. Everything on disk lies in a private
//! directory, which is removed at the end, also on Ctrl-C.
//!
//! Limits: what is measured lies in the system's cache of files, because everything is written
//! shortly before it is read. So physical reads are memory copies, for every engine.

mod engines;
mod fills;
mod locks;
mod machine;
mod measure;
mod peers;
mod progress;
mod recovery;
mod report;
mod rows;
mod statistics;
mod used;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, ValueEnum};

use crate::recovery::Pattern;
use crate::report::Report;

/// Whatever went wrong, for a person to read.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// What most of this program gives.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

#[derive(Parser)]
#[command(about = "Measures the embedded engine against redb, LMDB and SQLite, and by itself")]
struct Arguments {
    /// What to measure
    #[arg(value_enum)]
    part: Part,
    /// Rows of 200 bytes [default: 1000000; with --quick 20000]
    #[arg(long)]
    rows: Option<u64>,
    /// How often everything is measured, the engines taking turns [default: 3; with --quick 1]
    #[arg(long)]
    rounds: Option<usize>,
    /// How long commits and mixes are measured [default: 5; with --quick 0.3]
    #[arg(long)]
    seconds: Option<f64>,
    /// What all random choices follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the private directory is made [default: the system's for temporary files]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The Markdown file to be written [default: stdout]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Less of everything, to see whether it works: under a minute, and no figures to keep
    #[arg(long)]
    quick: bool,
    /// Which log the part `write-log` writes
    #[arg(long, hide = true, value_enum, default_value_t = Pattern::Appends)]
    pattern: Pattern,
    /// How much of it, in MiB
    #[arg(long, hide = true, default_value_t = 0)]
    mib: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Tidegate, LMDB, redb and `SQLite` on the same rows
    Peers,
    /// Recovery after a kill; opening after a clean shutdown
    Recovery,
    /// How full split policies leave the leaves
    Fills,
    /// What a lock costs
    Locks,
    /// All of these
    All,
    /// The process that `recovery` kills
    #[value(hide = true)]
    WriteLog,
}

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) rows: u64,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
    pub(crate) is_quick: bool,
}

/// Whether the end was asked for, by Ctrl-C.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Fails when it was; to be called between transactions.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err("stopped".into()) } else { Ok(()) }
    }
}

impl Arguments {
    fn plan(&self) -> Plan {
        let quick = self.quick;
        Plan {
            rows: self.rows.unwrap_or(if quick { 20_000 } else { 1_000_000 }).max(1_000),
            rounds: self.rounds.unwrap_or(if quick { 1 } else { 3 }).max(1),
            seconds: self.seconds.unwrap_or(if quick { 0.3 } else { 5.0 }).clamp(0.01, 3600.0),
            seed: self.seed,
            is_quick: quick,
        }
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("engine-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if arguments.part == Part::WriteLog {
        let directory = arguments.dir.as_ref().ok_or("--dir is missing")?;
        return recovery::write_log(directory, arguments.pattern, arguments.mib, &arguments.plan());
    }
    let stop = Stop::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends the program at once; it leaves the directory behind.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop.0))?;
        signal_hook::flag::register(signal, Arc::clone(&stop.0))?;
    }
    if let Some(directory) = arguments.out.as_ref().and_then(|out| out.parent()) {
        fs::create_dir_all(directory)?;
    }
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let private = tempfile::Builder::new().prefix("engine-bench-").tempdir_in(&parent)?;
    let plan = arguments.plan();
    let mut report = Report::new(&plan, private.path());
    let is_wanted = |part| arguments.part == part || arguments.part == Part::All;
    if is_wanted(Part::Peers) {
        peers::measure(&plan, private.path(), &stop, &mut report)?;
    }
    if is_wanted(Part::Recovery) {
        recovery::measure(&plan, private.path(), &stop, &mut report)?;
    }
    if is_wanted(Part::Fills) {
        fills::measure(&plan, private.path(), &stop, &mut report)?;
    }
    if is_wanted(Part::Locks) {
        locks::measure(&mut report)?;
    }
    private.close()?;
    if let Some(path) = &arguments.out {
        return Ok(fs::write(path, report.text())?);
    }
    print!("{}", report.text());
    Ok(())
}
