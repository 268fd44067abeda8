//! `tidegate xml list` and `tidegate xml drop`.

use clap::Args;
use serde_json::json;

use super::output::Lines;
use super::{
    FormatOption, StoreArgument, XmlFailure, closing, failure, open, open_to_read, selected,
};
use crate::Failure;

/// List the documents of a store
///
/// JSON has one object a line with the key document.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Collection to list: what the names begin with
    #[arg(value_name = "COLLECTION", default_value = "", hide_default_value = true)]
    collection: String,

    #[command(flatten)]
    format: FormatOption,
}

/// Prints the names of the documents.
pub(crate) fn run(arguments: &ListArguments) -> Result<(), Failure> {
    let store = open_to_read(&arguments.store.store)?;
    closing(store, |store| {
        let prefix = arguments.collection.as_str();
        let prefix = if prefix == "/" { "" } else { prefix };
        let mut lines = Lines::new();
        for name in store.documents_in(prefix).map_err(failure)? {
            if arguments.format.is_json() {
                lines.json(&json!({ "document": name }))?;
            } else {
                lines.text(&name)?;
            }
        }
        lines.finish()
    })
}

/// Remove documents with their indexes
#[derive(Debug, Args)]
pub(crate) struct DropArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Documents, or collections: names that end in /; / alone is all documents
    #[arg(value_name = "DOCUMENT", required = true)]
    documents: Vec<String>,
}

/// Drops the documents. A name that is wrong is found before one is dropped.
pub(crate) fn drop_documents(arguments: &DropArguments) -> Result<(), Failure> {
    closing(open(&arguments.store.store)?, |store| {
        let known = store.documents().map_err(failure)?;
        let mut names = Vec::new();
        for argument in &arguments.documents {
            names.extend(selected(store, argument)?);
        }
        if let Some(name) = names.iter().find(|name| !known.contains(name)) {
            return Err(Failure::failed(XmlFailure::NoDocument(name.clone())));
        }
        let mut lines = Lines::new();
        for name in &names {
            // A name that is given twice is gone the second time.
            if store.drop_document(name).map_err(failure)? {
                lines.text(&format!("dropped {name}"))?;
            }
        }
        lines.finish()
    })
}
