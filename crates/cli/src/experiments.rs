//! `tidegate experiments`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use tidegate_lab::included::{self, Included};

use crate::{Failure, print};

const EXAMPLES: &str = "\
Examples:
  tidegate experiments
  tidegate lab run quick
  tidegate simulate --plants plants/ds2 plants/hot-row

  Change one:
    tidegate experiments quick > mine.toml
    tidegate lab run mine.toml";

/// List the experiments and simulated plants within the program, or print one of them
///
/// `tidegate lab` takes experiments by these names, and `tidegate simulate --plants` takes plants
/// and their directories, plants and plants-by-tick. A file on the disk of the same name comes
/// first.
#[derive(Debug, Args)]
#[command(
    after_long_help = EXAMPLES,
    after_help = "Details and examples: tidegate experiments --help"
)]
pub(crate) struct ExperimentsArguments {
    /// Print this one
    #[arg(value_name = "NAME")]
    name: Option<PathBuf>,
}

/// No experiment has this name.
#[derive(Debug, thiserror::Error)]
#[error("there is no {}: `tidegate experiments` lists all", .0.display())]
struct Unknown(PathBuf);

/// Prints the list, or one of them.
pub(crate) fn run(arguments: &ExperimentsArguments) -> Result<(), Failure> {
    if let Some(name) = &arguments.name {
        let found = included::find(name).ok_or_else(|| Unknown(name.clone()));
        return print(found.map_err(Failure::usage)?.text);
    }
    let all = included::all();
    let width = all.iter().map(|file| file.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for file in all {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:width$}  {}", file.name, about(file));
    }
    print(&text)
}

/// Returns the first sentence of a file: of the comment at its head, or of a plant's `about`.
fn about(file: &Included) -> String {
    let head = match file.text.split("\"\"\"").nth(1) {
        Some(about) => about.to_owned(),
        None => file.text.lines().map_while(|line| line.strip_prefix('#')).collect(),
    };
    let words: Vec<&str> = head.split_whitespace().collect();
    // Not the full stop of an abbreviation, behind which no sentence begins.
    let is_last = |pair: &[&str]| pair[0].ends_with('.') && pair[1].starts_with(char::is_uppercase);
    let count = words.windows(2).position(is_last).map_or(words.len(), |last| last + 1);
    words[..count].join(" ").trim_end_matches('.').to_owned()
}
