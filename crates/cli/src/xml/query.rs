//! `tidegate xml query`.

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};
use tidegate_xml::label::Label;
use tidegate_xml::store::{Document, XmlStoreError};
use tidegate_xml::tree::{Kind, Tree};
use tidegate_xml::xpath::{Environment, EvalError, Item, LazyValue, Query, number_as_text};

use super::output::Lines;
use super::{
    FormatOption, Prefixed, StoreArgument, XmlUsage, closing, failure, open_to_read, selected,
};
use crate::Failure;

const EXAMPLES: &str = "\
Examples:
  tidegate xml query shop site.xml '//item[@id = \"item7\"]/name'
  tidegate xml query shop site.xml '//item/@id' --value --limit 10
  tidegate xml query shop site.xml '//h:p' --ns h=http://www.w3.org/1999/xhtml
  tidegate xml query shop auctions/ 'sum(//price)'

A name without prefix is in no namespace, also if the document has a default namespace.

JSON has one object a line, with the keys document and, for
  a node      node (its label), kind (element, attribute, text, comment, document, namespace or
              processing-instruction), path, and xml, or value with --value
  a number    number; NaN, Infinity and -Infinity are strings
  a boolean   boolean
  a string    string
  --count     count";

/// Evaluate an XPath 1.0 expression
///
/// Writes the nodes that it finds as XML, one after the other in document order and each followed
/// by a line end, or a number, a boolean or a string. Nodes are written as they are found. Of a
/// collection, a number, boolean, string or count comes with the name of its document before it.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "Examples: tidegate xml query --help")]
pub(crate) struct QueryArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Document, or a collection: a name that ends in /; / alone is all documents
    #[arg(value_name = "DOCUMENT")]
    document: String,

    /// Expression of XPath 1.0
    #[arg(value_name = "XPATH")]
    expression: String,

    #[command(flatten)]
    prefixed: Prefixed,

    /// Write the text of each node instead of its XML
    #[arg(long)]
    value: bool,

    /// Write how many nodes there are instead of the nodes
    #[arg(long, conflicts_with_all = ["value", "limit"])]
    count: bool,

    /// Stop after so many nodes, and say on standard error if there are more
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// Use no index; the answer is the same
    #[arg(long)]
    no_indexes: bool,

    #[command(flatten)]
    format: FormatOption,
}

/// Returns what an expression is evaluated with.
pub(super) fn environment(no_indexes: bool) -> Environment<Label> {
    let environment = Environment::default();
    if no_indexes { environment.without_indexes() } else { environment }
}

/// Returns the failure of an evaluation.
pub(super) fn evaluation_failed(error: EvalError<XmlStoreError>) -> Failure {
    match error {
        EvalError::Tree(error) => failure(error),
        error => Failure::usage(error),
    }
}

/// Evaluates the expression and writes what it finds.
pub(crate) fn run(arguments: &QueryArguments) -> Result<(), Failure> {
    let query = arguments.prefixed.query(&arguments.expression)?;
    let store = open_to_read(&arguments.store.store)?;
    closing(store, |store| {
        let names = selected(store, &arguments.document)?;
        let transaction = store.begin();
        let environment = environment(arguments.no_indexes);
        let mut answer = Answer {
            arguments,
            environment,
            lines: Lines::new(),
            left: arguments.limit,
            is_collection: arguments.document.ends_with('/'),
        };
        for name in &names {
            let document = transaction.document(name).map_err(failure)?;
            if !answer.of(&query, &document, name)? {
                break;
            }
        }
        answer.lines.finish()
    })
}

/// The answer as far as it is written.
struct Answer<'a> {
    arguments: &'a QueryArguments,
    environment: Environment<Label>,
    lines: Lines,
    /// How many nodes may still be written.
    left: Option<u64>,
    is_collection: bool,
}

impl Answer<'_> {
    /// Writes the answer of a document. Returns `false` if the limit was reached.
    fn of(&mut self, query: &Query, document: &Document<'_>, name: &str) -> Result<bool, Failure> {
        let root = document.root().map_err(failure)?;
        let environment = self.environment.clone();
        let value = query.lazy(document, &root, &environment).map_err(evaluation_failed)?;
        let (key, value, text) = match value {
            LazyValue::Nodes(items) if self.arguments.count => {
                let mut count: u64 = 0;
                for item in items {
                    item.map_err(evaluation_failed)?;
                    count += 1;
                }
                ("count", json!(count), count.to_string())
            }
            LazyValue::Nodes(items) => {
                for item in items {
                    let item = item.map_err(evaluation_failed)?;
                    if self.left == Some(0) {
                        self.say_limit();
                        return Ok(false);
                    }
                    self.left = self.left.map(|left| left - 1);
                    self.item(document, name, &item)?;
                }
                return Ok(true);
            }
            other if self.arguments.count || self.arguments.value || self.left.is_some() => {
                let kind = type_of(&other);
                let text = self.arguments.expression.clone();
                return Err(Failure::usage(XmlUsage::NotNodes(text, kind)));
            }
            LazyValue::Boolean(boolean) => ("boolean", json!(boolean), boolean.to_string()),
            LazyValue::Number(number) => {
                let text = number_as_text(number);
                // Whole numbers are written without a point, as in text.
                let value = serde_json::from_str(&text).unwrap_or_else(|_| json!(text));
                ("number", value, text)
            }
            LazyValue::String(text) => ("string", json!(text), text),
        };
        self.scalar(name, (key, value), &text)?;
        Ok(true)
    }

    fn scalar(
        &mut self,
        name: &str,
        (key, value): (&str, Value),
        text: &str,
    ) -> Result<(), Failure> {
        if self.arguments.format.is_json() {
            return self.lines.json(&json!({ "document": name, key: value }));
        }
        if self.is_collection {
            return self.lines.text(&format!("{name}\t{text}"));
        }
        self.lines.text(text)
    }

    fn item(
        &mut self,
        document: &Document<'_>,
        name: &str,
        item: &Item<Label>,
    ) -> Result<(), Failure> {
        let as_value = self.arguments.value;
        if !self.arguments.format.is_json() {
            return self.lines.line(|output| {
                if as_value {
                    let value = document.item_value(item).map_err(failure)?;
                    return output.write_all(value.as_bytes()).map_err(crate::output_failure);
                }
                document.write_item(item, output).map(|_| ()).map_err(failure)
            });
        }
        let (content, text) = if as_value {
            ("value", document.item_value(item).map_err(failure)?)
        } else {
            let bytes = document.write_item(item, Vec::new()).map_err(failure)?;
            ("xml", String::from_utf8_lossy(&bytes).into_owned())
        };
        let (node, kind) = match item {
            Item::Node(node) => (node, kind_name(document.kind(node).map_err(failure)?)),
            Item::Namespace { element, .. } => (element, "namespace"),
        };
        self.lines.json(&json!({
            "document": name,
            "node": node.to_string(),
            "kind": kind,
            "path": document.item_path(item).map_err(failure)?,
            content: text,
        }))
    }

    fn say_limit(&self) {
        let limit = self.arguments.limit.unwrap_or_default();
        // Who closed standard error does not want to know.
        let _ =
            writeln!(std::io::stderr(), "stopped at the limit of {limit} nodes; there are more");
    }
}

fn type_of<T: Tree>(value: &LazyValue<'_, T>) -> &'static str {
    match value {
        LazyValue::Nodes(_) => "node-set",
        LazyValue::Boolean(_) => "boolean",
        LazyValue::Number(_) => "number",
        LazyValue::String(_) => "string",
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Document => "document",
        Kind::Element => "element",
        Kind::Attribute => "attribute",
        Kind::Text => "text",
        Kind::Comment => "comment",
        Kind::ProcessingInstruction => "processing-instruction",
    }
}
