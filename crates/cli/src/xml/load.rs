//! `tidegate xml load`.

use std::io::{self, Write};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use serde_json::json;
use tidegate_xml::parse::{Limits, ParseError, ParseErrorKind};
use tidegate_xml::store::{
    DocumentOptions, IndexDefinition, InnerNodes, LoadOptions, LoadPhase, Progress, XmlStore,
    XmlStoreError,
};

use super::input::{Bar, Input, is_standard_input};
use super::output::Lines;
use super::{
    FormatOption, StoreArgument, XmlFailure, XmlUsage, assignment, closing, opening_failed, unless,
};
use crate::{Failure, interrupt};

const EXAMPLES: &str = "\
Examples:
  tidegate xml load shop site.xml
  tidegate xml load shop --into auctions january.xml february.xml
  zcat site.xml.gz | tidegate xml load shop - --name site.xml
  tidegate xml load shop site.xml --index names=name --index 'ids=cas text //item/@id'

Indexes are described in `tidegate xml index create --help`.";

/// Load documents from files or standard input
///
/// Makes the store if there is none. A document is stored as a whole, with its indexes, or not at
/// all, also after Ctrl-C. If one of several files is refused, the others are loaded all the same,
/// and the exit code is 1.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "Examples: tidegate xml load --help")]
pub(crate) struct LoadArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Files; `-` is standard input. A document gets the name of its file, without directories
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Name of the document, for a single file or standard input
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Collection to load into: what the names begin with, before a /
    #[arg(long, value_name = "COLLECTION", value_parser = collection)]
    into: Option<String>,

    /// Index to make of each document, as in `tidegate xml index create`; may be repeated
    #[arg(long = "index", value_name = "NAME=DEFINITION", value_parser = index)]
    indexes: Vec<(String, IndexDefinition)>,

    /// How full the pages are made, in percent: more room makes updates cheaper
    #[arg(long, value_name = "PERCENT", default_value = "90")]
    #[arg(value_parser = clap::value_parser!(u8).range(50..=100))]
    fill: u8,

    /// Longest label of a node in bytes; deeper documents need longer ones
    #[arg(long, value_name = "BYTES", default_value = "500")]
    #[arg(value_parser = clap::value_parser!(u16).range(16..=1000))]
    label_max: u16,

    /// Distance of the labels of neighbours: a greater one leaves room for insertions
    #[arg(long, value_name = "N", default_value_t = DocumentOptions::default().distance)]
    distance: NonZeroU16,

    /// Store no records of elements that have content: takes less space, and reads slower
    #[arg(long)]
    virtual_inner_nodes: bool,

    /// Limit to change for documents that are trusted; may be repeated
    ///
    /// Limits are depth, attributes, name_length, markup, namespaces and expansion. docs/xml.md
    /// describes them.
    #[arg(long = "limit", value_name = "LIMIT=N", value_parser = limit)]
    #[expect(clippy::doc_markdown, reason = "help of the command line is no Markdown")]
    limits: Vec<Limit>,

    #[command(flatten)]
    format: FormatOption,
}

fn collection(text: &str) -> Result<String, String> {
    match text.trim_end_matches('/') {
        "" => Err("a collection has a name; leave --into out for none".to_owned()),
        name => Ok(name.to_owned()),
    }
}

/// A limit and its new value.
#[derive(Clone, Debug)]
struct Limit(fn(&mut Limits) -> &mut usize, usize);

fn limit(text: &str) -> Result<Limit, String> {
    let (name, value) = assignment(text)?;
    let field: fn(&mut Limits) -> &mut usize = match name.as_str() {
        "depth" => |limits| &mut limits.depth,
        "attributes" => |limits| &mut limits.attributes,
        "name_length" => |limits| &mut limits.name_length,
        "markup" => |limits| &mut limits.markup,
        "namespaces" => |limits| &mut limits.namespaces,
        "expansion" => |limits| &mut limits.expansion,
        _ => return Err(format!("there is no limit {name}; `--help` names them")),
    };
    let value =
        value.parse().map_err(|_| format!("expected a number of at most {}", usize::MAX))?;
    Ok(Limit(field, value))
}

/// Returns how a limit of the library is changed on the command line.
fn advice(error: &XmlStoreError) -> String {
    match error {
        XmlStoreError::Parse(ParseError { kind: ParseErrorKind::Limit { field, .. }, .. }) => {
            format!(" by --limit {field}=N")
        }
        XmlStoreError::At { error, .. } if matches!(**error, XmlStoreError::Label(_)) => {
            "; here by --label-max BYTES, up to 1000".to_owned()
        }
        _ => String::new(),
    }
}

fn index(text: &str) -> Result<(String, IndexDefinition), String> {
    let (name, definition) = assignment(text)?;
    Ok((name, definition.parse().map_err(|error| format!("{error}"))?))
}

/// A file that is to be loaded.
struct Job<'c> {
    path: &'c Path,
    name: String,
    input: Input<'c>,
}

/// Loads the files and says what became of each.
pub(crate) fn run(arguments: &LoadArguments) -> Result<(), Failure> {
    let names = names(arguments).map_err(|text| Failure::usage(XmlUsage::Other(text)))?;
    let cancel = interrupt::flag().map_err(Failure::failed)?;
    let mut lines = Lines::new();
    let (mut jobs, mut failed) = (Vec::new(), 0);
    for (path, name) in arguments.files.iter().zip(names) {
        match Input::open(path, &cancel) {
            Ok(input) => jobs.push(Job { path, name, input }),
            Err(error) => {
                failed += 1;
                refuse(arguments, &mut lines, (path, &name), &error.to_string())?;
            }
        }
    }
    if !jobs.is_empty() {
        let path = &arguments.store.store;
        let store = XmlStore::open_or_create(path).map_err(|error| match error {
            error if error.is_missing_store() => {
                Failure::failed(XmlFailure::NotEmpty(path.display().to_string()))
            }
            error => opening_failed(path, error),
        })?;
        failed += closing(store, |store| load_all(arguments, store, jobs, &cancel, &mut lines))?;
    }
    lines.finish()?;
    // Each reason has been written.
    if failed == 0 { Ok(()) } else { Err(Failure::Code(1)) }
}

/// Returns the name of each file's document.
fn names(arguments: &LoadArguments) -> Result<Vec<String>, String> {
    let collection = match &arguments.into {
        None => String::new(),
        Some(collection) => format!("{collection}/"),
    };
    if arguments.name.is_some() && arguments.files.len() > 1 {
        return Err("--name is for a single file; name several by their files".to_owned());
    }
    let own = |path: &PathBuf| match &arguments.name {
        Some(name) => Ok(name.clone()),
        None if is_standard_input(path) => Err("standard input needs --name NAME".to_owned()),
        None => {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_str();
            let name = name.ok_or_else(|| format!("{} is not UTF-8; use --name", path.display()));
            name.map(str::to_owned)
        }
    };
    let full = |path| {
        let name = collection.clone() + &own(path)?;
        if name.ends_with('/') {
            return Err(format!(
                "{name:?} is the name of a collection; choose one without / behind"
            ));
        }
        Ok(name)
    };
    arguments.files.iter().map(full).collect()
}

/// Returns how many were not loaded.
fn load_all(
    arguments: &LoadArguments,
    store: &XmlStore,
    jobs: Vec<Job<'_>>,
    cancel: &AtomicBool,
    lines: &mut Lines,
) -> Result<usize, Failure> {
    let mut failed = 0;
    for Job { path, name, input } in jobs {
        let result = load(arguments, store, &name, input, cancel);
        if cancel.load(Ordering::Relaxed) && result.is_err() {
            let text = format!("interrupted; nothing of {name:?} is stored");
            return Err(Failure::failed(io::Error::other(text)));
        }
        match result {
            Ok(loaded) => accept(arguments, lines, (path, &name), loaded)?,
            Err(error) => {
                failed += 1;
                let text = error.to_string() + &advice(&error);
                refuse(arguments, lines, (path, &name), &text)?;
            }
        }
    }
    Ok(failed)
}

/// Loads a document with its indexes. If something fails, nothing of it is left.
fn load(
    arguments: &LoadArguments,
    store: &XmlStore,
    name: &str,
    input: Input<'_>,
    cancel: &AtomicBool,
) -> Result<Progress, XmlStoreError> {
    let mut limits = Limits::default();
    for Limit(field, value) in &arguments.limits {
        *field(&mut limits) = *value;
    }
    let options = LoadOptions {
        document: DocumentOptions {
            label_max: arguments.label_max,
            distance: arguments.distance,
            fill_percent: arguments.fill,
            inner_nodes: if arguments.virtual_inner_nodes {
                InnerNodes::Virtual
            } else {
                InnerNodes::Stored
            },
        },
        indexes: arguments.indexes.clone(),
        limits,
        input_bytes: input.length(),
        ..LoadOptions::default()
    };
    let bar = Bar::of_bytes(name.to_owned(), input.length());
    store.load(name, options, input.shown_by(&bar), |progress| {
        if progress.phase == LoadPhase::Indexing {
            bar.set_entries(progress.entries, progress.entries_total);
        }
        unless(cancel)
    })
}

fn accept(
    arguments: &LoadArguments,
    lines: &mut Lines,
    (path, name): (&Path, &str),
    Progress { nodes, bytes, elapsed, .. }: Progress,
) -> Result<(), Failure> {
    let seconds = elapsed.as_secs_f64();
    let megabytes = bytes as f64 / 1e6;
    if arguments.format.is_json() {
        return lines.json(&json!({
            "file": path.to_string_lossy(),
            "document": name,
            "nodes": nodes,
            "bytes": bytes,
            "seconds": seconds,
        }));
    }
    let rate = megabytes / seconds.max(1e-3);
    lines.text(&format!(
        "loaded {name}: {nodes} nodes, {megabytes:.1} MB in {seconds:.1} s, {rate:.0} MB/s"
    ))
}

fn refuse(
    arguments: &LoadArguments,
    lines: &mut Lines,
    (path, name): (&Path, &str),
    error: &str,
) -> Result<(), Failure> {
    // Who closed standard error does not want to know.
    let _ = writeln!(io::stderr(), "error: {}: {error}; it is not loaded", path.display());
    if arguments.format.is_json() {
        lines.json(&json!({
            "file": path.to_string_lossy(),
            "document": name,
            "error": error,
        }))?;
    }
    Ok(())
}
