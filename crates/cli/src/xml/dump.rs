//! `tidegate xml dump`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use tidegate_xml::parse::Event;
use tidegate_xml::serialize::XmlWriter;
use tidegate_xml::store::{Document, XmlStoreError};
use tidegate_xml::tree::{Kind, Tree};
use tidegate_xml::xpath::Item;

use super::output::write_to;
use super::query::{environment, evaluation_failed};
use super::{Prefixed, StoreArgument, XmlUsage, closing, failure, open_to_read};
use crate::{Failure, output_failure};

/// Write a document, or nodes of it, as XML
///
/// A file is written under a temporary name and renamed when it is complete, so it is whole or not
/// there.
#[derive(Debug, Args)]
pub(crate) struct DumpArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Document
    #[arg(value_name = "DOCUMENT")]
    document: String,

    /// Nodes to write, each followed by a line end, instead of the whole document
    #[arg(value_name = "XPATH")]
    expression: Option<String>,

    #[command(flatten)]
    prefixed: Prefixed,

    /// File to write; `-` is standard output, which is the default
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write Canonical XML 1.0, of a document or of elements
    #[arg(long)]
    canonical: bool,

    /// Leave comments out of Canonical XML
    #[arg(long, requires = "canonical")]
    no_comments: bool,
}

/// Writes the document or the nodes.
pub(crate) fn run(arguments: &DumpArguments) -> Result<(), Failure> {
    let expression = arguments.expression.as_ref();
    let query = expression.map(|text| arguments.prefixed.query(text)).transpose()?;
    closing(open_to_read(&arguments.store.store)?, |store| {
        let transaction = store.begin();
        let document = transaction.document(&arguments.document).map_err(failure)?;
        write_to(arguments.output.as_deref(), |output| {
            let Some(query) = &query else {
                let writer = if arguments.canonical {
                    XmlWriter::canonical(output, !arguments.no_comments)
                } else {
                    XmlWriter::new(output)
                };
                return document.write(writer).map(|_| ()).map_err(failure);
            };
            let (root, environment) = (document.root().map_err(failure)?, environment(false));
            let nodes = query.nodes(&document, &root, &environment).map_err(evaluation_failed)?;
            for item in nodes {
                let item = item.map_err(evaluation_failed)?;
                if arguments.canonical {
                    canonical(arguments, &document, &item, output)?;
                } else {
                    document.write_item(&item, &mut *output).map_err(failure)?;
                }
                writeln!(output).map_err(output_failure)?;
            }
            Ok(())
        })
    })
}

fn canonical(
    arguments: &DumpArguments,
    document: &Document<'_>,
    item: &Item<tidegate_xml::label::Label>,
    output: &mut dyn Write,
) -> Result<(), Failure> {
    let mut writer = XmlWriter::canonical(output, !arguments.no_comments);
    let mut write = |event: Event<'_>| writer.write(event).map_err(XmlStoreError::from);
    let Item::Node(node) = item else { return Err(not_canonical()) };
    match document.kind(node).map_err(failure)? {
        Kind::Document => document.events(&mut write).map_err(failure)?,
        Kind::Element => {
            write(Event::StartDocument).map_err(failure)?;
            document.events_in_scope(node, &mut write).map_err(failure)?;
            write(Event::EndDocument).map_err(failure)?;
        }
        _ => return Err(not_canonical()),
    }
    writer.finish().map(|_| ()).map_err(|error| failure(error.into()))
}

fn not_canonical() -> Failure {
    let text = "only documents and elements have a canonical form; leave out --canonical";
    Failure::usage(XmlUsage::Other(text.to_owned()))
}
