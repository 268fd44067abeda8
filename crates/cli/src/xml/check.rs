//! `tidegate xml check`.

use std::time::Instant;

use clap::Args;
use serde_json::json;

use super::output::Lines;
use super::{FormatOption, StoreArgument, closing, failure, open_to_read, selected};
use crate::Failure;

/// Check that documents and indexes are sound
///
/// Checks the pages of the store, then every node of each document, then every entry of each index
/// against its document. Prints a line for each problem; the exit code is 1 if there is one. At
/// most 100 problems of a document are looked for.
///
/// JSON has one object a line: for a problem document, node (a label), index (null if the document
/// itself is not sound) and problem; for a document document and problems, their number.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Document, or a collection: a name that ends in /
    #[arg(value_name = "DOCUMENT", default_value = "/", hide_default_value = true)]
    document: String,

    #[command(flatten)]
    format: FormatOption,
}

/// Found problems, which have been printed.
#[derive(Debug, thiserror::Error)]
#[error("{0} problems; restore the store from a backup, or drop an index that is wrong")]
struct Problems(usize);

/// Checks the documents.
pub(crate) fn run(arguments: &CheckArguments) -> Result<(), Failure> {
    closing(open_to_read(&arguments.store.store)?, |store| {
        let names = match arguments.document.as_str() {
            // A store without documents is sound.
            "/" => store.documents().map_err(failure)?,
            argument => selected(store, argument)?,
        };
        store.engine().check().map_err(Failure::failed)?;
        let mut lines = Lines::new();
        let mut found = 0;
        for name in &names {
            let began = Instant::now();
            let transaction = store.begin();
            let document = transaction.document(name).map_err(failure)?;
            let problems = document.check().map_err(failure)?;
            for problem in &problems {
                let (node, index) = (problem.label.to_string(), &problem.index);
                if arguments.format.is_json() {
                    lines.json(&json!({
                        "document": name, "node": node, "index": index, "problem": problem.what,
                    }))?;
                } else {
                    let of = index.as_ref().map_or(String::new(), |name| format!("index {name}: "));
                    lines.text(&format!("{name}: {of}node {node}: {}", problem.what))?;
                }
            }
            if arguments.format.is_json() {
                lines.json(&json!({ "document": name, "problems": problems.len() }))?;
            } else if problems.is_empty() {
                let seconds = began.elapsed().as_secs_f64();
                lines.text(&format!("{name}: sound, checked in {seconds:.1} s"))?;
            }
            found += problems.len();
        }
        lines.finish()?;
        if found == 0 { Ok(()) } else { Err(Failure::failed(Problems(found))) }
    })
}
