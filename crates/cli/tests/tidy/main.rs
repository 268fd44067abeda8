//! Style as a test: it prints `file:line` for every offence and fails.
//!
//! Four parts. `arrows` compares the dependencies of the workspace with the map in
//! ARCHITECTURE.md, so the document itself is what is tested. `rules` are what a reader of one
//! file can check. `commits` holds the commits that pages cite against the history. `lexer`
//! tells code from comments and literals, so that a word in a comment is
//! not taken for code; it knows tokens and blocks, not syntax, and macros are read as written.

mod arrows;
mod commits;
mod lexer;
mod rules;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs, io};

/// Directories that hold nothing written by hand.
const SKIPPED_DIRECTORIES: &[&str] = &[
    ".git",
    "target",
    "out",
    ".venv",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".ipynb_checkpoints",
];

/// A breach of the style.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Offence {
    /// Relative to the root of the repository.
    path: String,
    /// Counted from 1.
    line: usize,
    what: String,
}

impl Offence {
    fn new(path: &str, line: usize, what: String) -> Offence {
        Offence { path: path.into(), line, what }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.what)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The paths of all files below `directory`, relative to `root`, in order.
fn files(root: &Path, directory: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_file() {
            let path = entry.path();
            let relative = path.strip_prefix(root).map_err(io::Error::other)?;
            found.push(relative.to_string_lossy().into_owned());
        } else if entry.file_type()?.is_dir()
            && !SKIPPED_DIRECTORIES.iter().any(|skip| name == *skip)
        {
            found.extend(files(root, &entry.path())?);
        }
    }
    found.sort();
    Ok(found)
}

fn assert_none(mut offences: Vec<Offence>) {
    offences.sort();
    let list: Vec<String> = offences.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{} offences\n{}\n", list.len(), list.join("\n"));
}

#[test]
fn files_are_tidy() {
    let root = root();
    let paths = files(&root, &root).expect("the repository can be walked");
    assert!(paths.iter().any(|path| path.ends_with("tests/tidy/main.rs")), "the walk found itself");
    let mut offences = Vec::new();
    for path in &paths {
        // What is not text has no style.
        let Ok(text) = fs::read_to_string(root.join(path)) else {
            continue;
        };
        offences.extend(rules::text_offences(path, &text));
        if Path::new(path).extension().is_some_and(|extension| extension == "rs") {
            offences.extend(rules::rust_offences(path, &text));
        }
    }
    for (path, name) in rules::LONG_FUNCTIONS {
        if !paths.iter().any(|known| known == path) {
            let what = format!("exception for `{name}` in a file that is gone");
            offences.push(Offence::new(path, 1, what));
        }
    }
    assert_none(offences);
}

#[test]
fn every_commit_that_a_page_cites_exists() {
    let root = root();
    let mut offences = Vec::new();
    let mut citations = Vec::new();
    for path in files(&root, &root).expect("the repository can be walked") {
        if !commits::is_page(&path) {
            continue;
        }
        let text = fs::read_to_string(root.join(&path)).expect("a page is text");
        let (cited, unmarked) = commits::in_page(&path, &text);
        offences.extend(unmarked);
        citations.extend(cited.into_iter().map(|citation| (path.clone(), citation)));
    }
    assert!(!citations.is_empty(), "no page cites a commit: the form has changed");
    match commits::History::of(&root) {
        commits::History::Whole => {
            citations.retain(|(_, one)| !commits::is_in_history(&root, &one.hash));
            offences.extend(citations.iter().map(|(path, one)| {
                let what = format!("commit `{}` is not in the history", one.hash);
                Offence::new(path, one.line, what)
            }));
        }
        commits::History::Unknown(reason) => {
            println!("commits that pages cite were not looked up: {reason}");
        }
    }
    assert_none(offences);
}

#[test]
fn arrows_between_crates_match_the_map() {
    let root = root();
    let document = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(&root)
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let rooms = arrows::rooms(&metadata);
    assert_none(arrows::offences(&document, &rooms));
}
