//! `tidegate xml explain`.

use clap::Args;
use serde_json::json;

use super::output::Lines;
use super::query::environment;
use super::{FormatOption, Prefixed, StoreArgument, closing, failure, open_to_read, selected};
use crate::Failure;

/// Print how a query would be evaluated, and which indexes it would ask
///
/// Each line is an operator, with its inputs below it. JSON has one object a line with the keys
/// document, depth, operator, and index, which is null if the operator asks none.
#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Document, or a collection: a name that ends in /
    #[arg(value_name = "DOCUMENT")]
    document: String,

    /// Expression of XPath 1.0
    #[arg(value_name = "XPATH")]
    expression: String,

    #[command(flatten)]
    prefixed: Prefixed,

    /// Explain an evaluation that uses no index
    #[arg(long)]
    no_indexes: bool,

    #[command(flatten)]
    format: FormatOption,
}

/// Prints the plan of the query on each document.
pub(crate) fn run(arguments: &ExplainArguments) -> Result<(), Failure> {
    let query = arguments.prefixed.query(&arguments.expression)?;
    let store = open_to_read(&arguments.store.store)?;
    closing(store, |store| {
        let transaction = store.begin();
        let environment = environment(arguments.no_indexes);
        let mut lines = Lines::new();
        for name in selected(store, &arguments.document)? {
            let document = transaction.document(&name).map_err(failure)?;
            if arguments.document.ends_with('/') && !arguments.format.is_json() {
                lines.text(&format!("{name}:"))?;
            }
            for line in query.plan(&document, &environment) {
                if arguments.format.is_json() {
                    lines.json(&json!({
                        "document": name,
                        "depth": line.depth,
                        "operator": line.operator,
                        "index": line.index,
                    }))?;
                } else {
                    lines.text(&line.to_string())?;
                }
            }
        }
        lines.finish()
    })
}
