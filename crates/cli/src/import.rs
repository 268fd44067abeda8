//! `tidegate import` and `tidegate check-config`.

use std::fmt::Write;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::Args;
use tidegate_proxy::config_file::ConfigFile;
use tidegate_proxy::pgbouncer::{self, Imported};
use tidegate_proxy::{Findings, check, settings_in_force};
use tracing::warn;

use crate::{Failure, print};

/// Turn a configuration of PgBouncer into one of Tidegate
///
/// Names on standard error each setting that has no equivalent, with what to do; docs/pgbouncer.md
/// lists what becomes of each. Files named by `%include` are read too.
#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// PgBouncer's configuration
    #[arg(value_name = "pgbouncer.ini")]
    file: PathBuf,

    /// Write the configuration to FILE, which must not exist [default: standard output]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Check a configuration file, and print the settings that would be in force
///
/// Reads the file and the files it names, and looks the names of hosts up, without listening and
/// without connecting to a server. The exit code is 2 if something is wrong.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The configuration
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print no settings
    #[arg(short, long)]
    quiet: bool,
}

/// Why a configuration was not written or is wrong.
#[derive(Debug, thiserror::Error)]
enum ConfigFailure {
    #[error("{}: {source}", path.display())]
    Output { path: PathBuf, source: io::Error },
    #[error("{}: {count} mistakes", path.display())]
    Mistakes { path: PathBuf, count: usize },
}

/// Writes the configuration, then what has not been carried over.
pub(crate) fn import(arguments: &ImportArguments) -> Result<(), Failure> {
    let Imported { toml, notes } = pgbouncer::import(&arguments.file).map_err(Failure::usage)?;
    match &arguments.output {
        None => print(&toml)?,
        Some(path) => {
            let failed = |source| ConfigFailure::Output { path: path.clone(), source };
            // It may hold passwords, and may be the work of somebody.
            let mut options = std::fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o600).open(path);
            let written =
                file.and_then(|mut file| io::Write::write_all(&mut file, toml.as_bytes()));
            written.map_err(failed).map_err(Failure::failed)?;
        }
    }
    let mut text = String::new();
    for (is_to_be_done, heading) in [(true, "to do"), (false, "for information")] {
        let of_kind: Vec<_> =
            notes.iter().filter(|note| note.is_to_be_done == is_to_be_done).collect();
        if !of_kind.is_empty() {
            let _ = writeln!(text, "{heading}:");
        }
        for note in of_kind {
            let _ = writeln!(text, "  {note}");
        }
    }
    if let Some(path) = &arguments.output {
        let _ = writeln!(text, "next: tidegate check-config {}", path.display());
    }
    // Who closed standard error does not want to know.
    let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
    Ok(())
}

/// Prints what would be in force, or says what is wrong.
pub(crate) fn check_config(arguments: &CheckArguments) -> Result<(), Failure> {
    let config = ConfigFile::read(&arguments.file)
        .and_then(ConfigFile::into_config)
        .map_err(Failure::usage)?;
    let Findings { errors, warnings } = check(&config);
    for warning in warnings {
        warn!("{warning}");
    }
    if !errors.is_empty() {
        let path = arguments.file.clone();
        for error in &errors {
            tracing::error!("{error}");
        }
        return Err(Failure::usage(ConfigFailure::Mistakes { path, count: errors.len() }));
    }
    if arguments.quiet {
        return Ok(());
    }
    let mut text = String::new();
    for (key, value) in settings_in_force(&config) {
        let _ = writeln!(text, "{key} = {value}");
    }
    print(&text)
}
