//! `tidegate xml`.

mod check;
mod dump;
mod explain;
mod generate;
mod index;
mod input;
mod list;
mod load;
mod output;
mod protocol;
mod query;
mod statistics;
mod update;
mod xmark;

use std::error::Error;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Subcommand, ValueEnum};
use tidegate_xml::serialize::SerializeError;
use tidegate_xml::store::{XmlStore, XmlStoreError};
use tidegate_xml::xpath::{ParseError, Prefixes, Query};

use crate::{Failure, output_failure};

const EXAMPLES: &str = "\
Examples:
  Make a document of 10 MB and load it; the store is made by the first load:
    tidegate xml generate --factor 0.1 --output site.xml
    tidegate xml load shop site.xml --index 'ids=cas text //@id'

  Ask and change:
    tidegate xml query shop site.xml '//person[@id = \"person7\"]/name'
    tidegate xml query shop site.xml 'count(//item)' --format json
    tidegate xml update shop site.xml set-value '//person[@id = \"person7\"]/name' Anna
    tidegate xml dump shop site.xml --output changed.xml

  Look into the store:
    tidegate xml list shop
    tidegate xml stat shop
    tidegate xml explain shop site.xml '//person[@id = \"person7\"]/name'
    tidegate xml check shop

  Run transactions on it, and exchange the lock protocol meanwhile:
    tidegate xml xmark --help

A store is a directory with many documents, which have names. A name may have slashes. Where a
command says DOCUMENT..., a name that ends in / stands for the collection of all documents whose
names begin with it, and / alone for all documents.

Commands that only read can run at the same time. A command that writes has the store to itself,
but for `tidegate xml protocol`.";

/// Keep XML documents of any size in a store, query them with XPath 1.0, and change them
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "Examples: tidegate xml --help")]
pub(crate) struct XmlArguments {
    #[command(subcommand)]
    what: XmlCommand,
}

#[derive(Debug, Subcommand)]
enum XmlCommand {
    Load(load::LoadArguments),
    Query(query::QueryArguments),
    Update(Box<update::UpdateArguments>),
    Dump(dump::DumpArguments),
    Check(check::CheckArguments),
    Stat(statistics::StatArguments),
    Explain(explain::ExplainArguments),
    List(list::ListArguments),
    Drop(list::DropArguments),
    Index(index::IndexArguments),
    Generate(generate::GenerateArguments),
    Protocol(protocol::ProtocolArguments),
    Xmark(xmark::XmarkArguments),
}

/// Runs the command.
pub(crate) fn run(arguments: XmlArguments) -> Result<(), Failure> {
    match arguments.what {
        XmlCommand::Load(arguments) => load::run(&arguments),
        XmlCommand::Query(arguments) => query::run(&arguments),
        XmlCommand::Update(arguments) => update::run(&arguments),
        XmlCommand::Dump(arguments) => dump::run(&arguments),
        XmlCommand::Check(arguments) => check::run(&arguments),
        XmlCommand::Stat(arguments) => statistics::run(&arguments),
        XmlCommand::Explain(arguments) => explain::run(&arguments),
        XmlCommand::List(arguments) => list::run(&arguments),
        XmlCommand::Drop(arguments) => list::drop_documents(&arguments),
        XmlCommand::Index(arguments) => index::run(arguments),
        XmlCommand::Generate(arguments) => generate::run(&arguments),
        XmlCommand::Protocol(arguments) => protocol::run(&arguments),
        XmlCommand::Xmark(arguments) => xmark::run(&arguments),
    }
}

/// The form of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Args)]
struct FormatOption {
    /// Form of the output: text, or json with one object a line
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    #[arg(hide_possible_values = true, global = true)]
    format: Format,
}

impl FormatOption {
    fn is_json(&self) -> bool {
        self.format == Format::Json
    }
}

/// An expression, and what it is evaluated with.
#[derive(Debug, Args)]
struct Prefixed {
    /// Namespace of a prefix in expressions and names; may be repeated
    #[arg(long = "ns", value_name = "PREFIX=URI", value_parser = assignment, global = true)]
    namespaces: Vec<(String, String)>,
}

impl Prefixed {
    fn prefixes(&self) -> Prefixes {
        let bind =
            |prefixes: Prefixes, (prefix, uri): &(String, String)| prefixes.with(prefix, uri);
        self.namespaces.iter().fold(Prefixes::new(), bind)
    }

    fn query(&self, text: &str) -> Result<Query, Failure> {
        Query::parse(text, &self.prefixes()).map_err(|reason| {
            Failure::usage(XmlUsage::Expression { text: text.to_owned(), reason })
        })
    }
}

/// Reads `name=value`.
fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("expected a name, =, and a value, none of them empty".to_owned()),
    }
}

/// Wrong arguments that are found after the command line was read.
#[derive(Debug, thiserror::Error)]
enum XmlUsage {
    #[error("{text}: {reason}{}", hint(.reason))]
    Expression { text: String, reason: ParseError },
    #[error("{0}: expected an expression for nodes, such as //item; this one is a {1}")]
    NotNodes(String, &'static str),
    #[error("{0}")]
    Other(String),
}

/// What to do about a wrong expression on the command line.
fn hint(reason: &ParseError) -> &'static str {
    match reason {
        ParseError::UnknownPrefix { .. } => " by --ns PREFIX=URI",
        _ => "",
    }
}

/// Reasons why a command fails that the store does not know of.
#[derive(Debug, thiserror::Error)]
enum XmlFailure {
    #[error("there is no store in {0}; `tidegate xml load` makes one")]
    NoStore(String),
    #[error("{0} is a file; a store is a directory, and comes before documents and files")]
    IsFile(String),
    #[error("{0} has files and no store; name a new or an empty directory for the store")]
    NotEmpty(String),
    #[error("there is no document whose name begins with {0:?}; `tidegate xml list` shows all")]
    EmptyCollection(String),
    #[error("the store has no documents; load one first")]
    EmptyStore,
    #[error("there is no document {0:?}; `tidegate xml list` shows all")]
    NoDocument(String),
    #[error("{1:?} has no index {0:?}; `tidegate xml index list` shows all")]
    NoIndex(String, String),
    #[error("{0}")]
    Other(String),
    #[error("{0}: {1}")]
    Of(String, Box<dyn Error>),
}

/// Returns the failure of a command for an error of the store.
fn failure(error: XmlStoreError) -> Failure {
    match error {
        XmlStoreError::Serialize(SerializeError::Io(error)) => output_failure(error),
        error => Failure::failed(error),
    }
}

/// Opens the store of a command that changes it.
fn open(path: &Path) -> Result<XmlStore, Failure> {
    XmlStore::open(path).map_err(|error| opening_failed(path, error))
}

/// Opens the store of a command that only reads.
fn open_to_read(path: &Path) -> Result<XmlStore, Failure> {
    XmlStore::open_read_only(path).map_err(|error| opening_failed(path, error))
}

fn opening_failed(path: &Path, error: XmlStoreError) -> Failure {
    if path.is_file() {
        return Failure::failed(XmlFailure::IsFile(path.display().to_string()));
    }
    if error.is_missing_store() {
        return Failure::failed(XmlFailure::NoStore(path.display().to_string()));
    }
    Failure::failed(error)
}

/// Runs a command on a store and closes it. Of two errors the first counts.
fn closing<T>(
    store: XmlStore,
    run: impl FnOnce(&XmlStore) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let result = run(&store);
    let closed = store.close();
    let result = result?;
    closed.map_err(failure)?;
    Ok(result)
}

/// Returns the names of the documents that an argument stands for.
fn selected(store: &XmlStore, argument: &str) -> Result<Vec<String>, Failure> {
    if !argument.ends_with('/') {
        return Ok(vec![argument.to_owned()]);
    }
    let prefix = if argument == "/" { "" } else { argument };
    let names = store.documents_in(prefix).map_err(failure)?;
    match names.is_empty() {
        false => Ok(names),
        true if prefix.is_empty() => Err(Failure::failed(XmlFailure::EmptyStore)),
        true => Err(Failure::failed(XmlFailure::EmptyCollection(prefix.to_owned()))),
    }
}

/// Stops work after a signal.
fn unless(cancel: &AtomicBool) -> ControlFlow<()> {
    if cancel.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// The store of a command.
#[derive(Debug, Args)]
struct StoreArgument {
    /// Directory of the store
    #[arg(value_name = "STORE")]
    store: PathBuf,
}
