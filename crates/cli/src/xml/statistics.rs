//! `tidegate xml stat`.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};
use tidegate_xml::store::{DocumentStatistics, IndexStatistics, InnerNodes, NodeCounts, TreeSize};

use super::output::Lines;
use super::{FormatOption, StoreArgument, closing, failure, open_to_read, selected};
use crate::Failure;

const JSON: &str = "\
JSON has one object a line, of a document, with the keys
  document, depth, content_bytes, path_classes, virtual_inner_nodes
  nodes      elements, attributes, texts, comments, processing_instructions, declarations
  labels     mean, max and limit in bytes
  tree       bytes, levels, leaves, inner_nodes, entries, fill (0 to 1), long_value_pages
  indexes    a list with the keys index, definition, ready and tree";

/// Print figures of documents and their indexes
///
/// Reads the documents once. Sizes are in bytes of pages.
#[derive(Debug, Args)]
#[command(after_help = JSON)]
pub(crate) struct StatArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Document, or a collection: a name that ends in /
    #[arg(value_name = "DOCUMENT", default_value = "/", hide_default_value = true)]
    document: String,

    #[command(flatten)]
    format: FormatOption,
}

/// Prints the figures.
pub(crate) fn run(arguments: &StatArguments) -> Result<(), Failure> {
    closing(open_to_read(&arguments.store.store)?, |store| {
        let mut lines = Lines::new();
        for name in selected(store, &arguments.document)? {
            let transaction = store.begin();
            let document = transaction.document(&name).map_err(failure)?;
            let statistics = document.statistics().map_err(failure)?;
            if arguments.format.is_json() {
                lines.json(&object(&name, &statistics))?;
            } else {
                lines.text(&text(&name, &statistics))?;
            }
        }
        lines.finish()
    })
}

/// Returns the mean length of a label in bytes.
fn label_mean(statistics: &DocumentStatistics) -> f64 {
    statistics.label_bytes as f64 / records(&statistics.nodes).max(1) as f64
}

fn records(nodes: &NodeCounts) -> u64 {
    let NodeCounts { elements, attributes, texts, comments, .. } = nodes;
    elements + attributes + texts + comments + nodes.processing_instructions + nodes.declarations
}

fn text(name: &str, statistics: &DocumentStatistics) -> String {
    let DocumentStatistics { nodes, tree, .. } = statistics;
    let mut text = format!(
        "{name}\n  \
         nodes         {elements} elements, {attributes} attributes, {texts} texts, {comments} \
         comments, {instructions} processing instructions, {declarations} declarations\n  \
         depth         {depth}\n  \
         content       {content} bytes\n  \
         labels        {mean:.1} bytes in the mean, longest {max}, at most {limit}\n  \
         path classes  {classes}\n  \
         tree          {tree}{state}",
        elements = nodes.elements,
        attributes = nodes.attributes,
        texts = nodes.texts,
        comments = nodes.comments,
        instructions = nodes.processing_instructions,
        declarations = nodes.declarations,
        depth = statistics.depth,
        content = statistics.content_bytes,
        mean = label_mean(statistics),
        max = statistics.label_max,
        limit = statistics.label_limit,
        classes = statistics.path_classes,
        tree = tree_text(tree),
        state = match statistics.inner_nodes {
            InnerNodes::Stored => "",
            InnerNodes::Virtual => ", without records of inner nodes",
        },
    );
    for IndexStatistics { name, definition, is_ready, tree } in &statistics.indexes {
        let state = if *is_ready { "" } else { ", not complete" };
        let tree = tree_text(tree);
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  index         {name} ({definition}){state}: {tree}");
    }
    text
}

fn tree_text(TreeSize { shape, fill, long_value_pages, bytes }: &TreeSize) -> String {
    let long = match long_value_pages {
        0 => String::new(),
        pages => format!(", {pages} pages of long values"),
    };
    format!(
        "{bytes} bytes, {levels} levels, {leaves} leaves {fill:.0} % full, {inner} inner nodes, \
         {entries} entries{long}",
        levels = shape.height,
        leaves = shape.leaves,
        fill = fill * 100.0,
        inner = shape.inner_nodes,
        entries = shape.entries,
    )
}

fn object(name: &str, statistics: &DocumentStatistics) -> Value {
    let nodes = &statistics.nodes;
    let indexes = statistics.indexes.iter().map(|index| {
        json!({
            "index": index.name,
            "definition": index.definition.to_string(),
            "ready": index.is_ready,
            "tree": tree_object(&index.tree),
        })
    });
    json!({
        "document": name,
        "nodes": {
            "elements": nodes.elements,
            "attributes": nodes.attributes,
            "texts": nodes.texts,
            "comments": nodes.comments,
            "processing_instructions": nodes.processing_instructions,
            "declarations": nodes.declarations,
        },
        "virtual_inner_nodes": statistics.inner_nodes == InnerNodes::Virtual,
        "depth": statistics.depth,
        "content_bytes": statistics.content_bytes,
        "labels": {
            "mean": label_mean(statistics),
            "max": statistics.label_max,
            "limit": statistics.label_limit,
        },
        "path_classes": statistics.path_classes,
        "tree": tree_object(&statistics.tree),
        "indexes": indexes.collect::<Vec<_>>(),
    })
}

fn tree_object(TreeSize { shape, fill, long_value_pages, bytes }: &TreeSize) -> Value {
    json!({
        "bytes": bytes,
        "levels": shape.height,
        "leaves": shape.leaves,
        "inner_nodes": shape.inner_nodes,
        "entries": shape.entries,
        "fill": fill,
        "long_value_pages": long_value_pages,
    })
}
