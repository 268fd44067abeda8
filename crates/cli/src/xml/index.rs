//! `tidegate xml index`.

use std::io;

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_xml::store::{IndexDefinition, XmlStore, XmlStoreError};

use super::input::Bar;
use super::output::Lines;
use super::{
    FormatOption, StoreArgument, XmlFailure, closing, failure, open, open_to_read, selected, unless,
};
use crate::{Failure, interrupt};

const DEFINITIONS: &str = "\
Definitions:
  name                           elements by their name
  path [PATH...]                 elements, attributes and texts by their path
  content text|number            attributes and texts by their content
  cas text|number [PATH...]      attributes and texts by path and content

A PATH is as in /site//item/@id or //name/text(); without one all nodes are in the index. A name in
a namespace is written {uri}name. Numbers serve comparisons such as @price < 10.

Examples:
  tidegate xml index create shop site.xml names name
  tidegate xml index create shop site.xml ids cas text //item/@id //person/@id
  tidegate xml index create shop auctions/ prices cas number //price/text()";

/// Make, drop and list indexes
#[derive(Debug, Args)]
pub(crate) struct IndexArguments {
    #[command(subcommand)]
    what: IndexCommand,
}

#[derive(Debug, Subcommand)]
enum IndexCommand {
    Create(CreateArguments),
    Drop(DropArguments),
    List(ListArguments),
}

/// Make an index of a document
///
/// A build that was ended by a crash goes on when the same command is given again. Ctrl-C leaves
/// nothing of the index.
#[derive(Debug, Args)]
#[command(after_help = DEFINITIONS)]
struct CreateArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Document, or a collection: a name that ends in /
    #[arg(value_name = "DOCUMENT")]
    document: String,

    /// Name of the index
    #[arg(value_name = "NAME")]
    name: String,

    /// What the index holds
    #[arg(value_name = "DEFINITION", required = true)]
    definition: Vec<String>,
}

/// Drop an index of a document
#[derive(Debug, Args)]
struct DropArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Document, or a collection: a name that ends in /
    #[arg(value_name = "DOCUMENT")]
    document: String,

    /// Name of the index
    #[arg(value_name = "NAME")]
    name: String,
}

/// List the indexes of documents
///
/// Text has document, name and definition with tabs between. JSON has one object a line with the
/// keys document, index, definition and ready, which is false while the index is being built.
#[derive(Debug, Args)]
struct ListArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Document, or a collection: a name that ends in /
    #[arg(value_name = "DOCUMENT", default_value = "/", hide_default_value = true)]
    document: String,

    #[command(flatten)]
    format: FormatOption,
}

/// Runs the command.
pub(crate) fn run(arguments: IndexArguments) -> Result<(), Failure> {
    match arguments.what {
        IndexCommand::Create(arguments) => {
            let definition = arguments.definition.join(" ").parse().map_err(Failure::usage)?;
            closing(open(&arguments.store.store)?, |store| create(&arguments, store, &definition))
        }
        IndexCommand::Drop(arguments) => {
            closing(open(&arguments.store.store)?, |store| drop_index(&arguments, store))
        }
        IndexCommand::List(arguments) => {
            closing(open_to_read(&arguments.store.store)?, |store| list(&arguments, store))
        }
    }
}

fn create(
    arguments: &CreateArguments,
    store: &XmlStore,
    definition: &IndexDefinition,
) -> Result<(), Failure> {
    let cancel = interrupt::flag().map_err(Failure::failed)?;
    for document in selected(store, &arguments.document)? {
        let bar = Bar::of_nodes(format!("{document}, index {}", arguments.name));
        let made = store.create_index(&document, &arguments.name, definition, |nodes| {
            bar.set(nodes);
            unless(&cancel)
        });
        match made {
            Ok(()) => {}
            Err(XmlStoreError::IndexCancelled) => {
                let text = format!("interrupted; nothing of the index of {document:?} is left");
                return Err(Failure::failed(io::Error::other(text)));
            }
            Err(error) => return Err(of(&document, error)),
        }
    }
    Ok(())
}

fn drop_index(arguments: &DropArguments, store: &XmlStore) -> Result<(), Failure> {
    let name = &arguments.name;
    let mut found = false;
    for document in selected(store, &arguments.document)? {
        found |= store.drop_index(&document, name).map_err(|error| of(&document, error))?;
    }
    if found {
        return Ok(());
    }
    Err(Failure::failed(XmlFailure::NoIndex(name.clone(), arguments.document.clone())))
}

fn list(arguments: &ListArguments, store: &XmlStore) -> Result<(), Failure> {
    let mut lines = Lines::new();
    for document in selected(store, &arguments.document)? {
        for index in store.indexes(&document).map_err(failure)? {
            let definition = index.definition.to_string();
            if arguments.format.is_json() {
                lines.json(&json!({
                    "document": document,
                    "index": index.name,
                    "definition": definition,
                    "ready": index.is_ready,
                }))?;
                continue;
            }
            let state = if index.is_ready { "" } else { "\tnot complete; create it again" };
            lines.text(&format!("{document}\t{}\t{definition}{state}", index.name))?;
        }
    }
    lines.finish()
}

fn of(document: &str, error: XmlStoreError) -> Failure {
    Failure::failed(XmlFailure::Of(document.to_owned(), Box::new(error)))
}
