//! `tidegate xml update`.

use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use tidegate_xml::label::Label;
use tidegate_xml::serialize::text_as_xml;
use tidegate_xml::store::{Document, Place, XmlStoreError};
use tidegate_xml::tree::Tree;
use tidegate_xml::xpath::{Item, Prefixes, Query};

use super::input::Input;
use super::output::Lines;
use super::query::{environment, evaluation_failed};
use super::{
    FormatOption, Prefixed, StoreArgument, XmlFailure, XmlUsage, closing, failure, open, selected,
};
use crate::Failure;

const EXAMPLES: &str = "\
Examples:
  tidegate xml update shop site.xml insert last /site/people '<person><name>Anna</name></person>'
  tidegate xml update shop site.xml insert after '//item[1]' --file items.xml
  tidegate xml update shop site.xml set-value '//person[@id = \"person7\"]/name' 'Anna & Bert'
  tidegate xml update shop site.xml set-attribute //item checked yes
  tidegate xml update shop site.xml rename //emailaddress mail
  tidegate xml update shop site.xml move '//person[@id = \"person7\"]' first /site/people
  tidegate xml update shop site.xml delete '//closed_auction[price < 10]'

Changes of labels alone, which make room for new nodes, are not counted.

JSON has one object a document, with the keys document, matched (nodes that the expression finds),
changed (those that were changed) and dry_run.";

/// Change the nodes that an XPath expression finds
///
/// All nodes of all documents are changed in one transaction: either all or none. When the command
/// returns, the change is durable. In names, prefixes are those of --ns, then those in scope at
/// the node; an element's name without prefix is in the default namespace there.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "Examples: tidegate xml update --help")]
pub(crate) struct UpdateArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Document, or a collection: a name that ends in /
    #[arg(value_name = "DOCUMENT")]
    document: String,

    #[command(subcommand)]
    change: Change,

    #[command(flatten)]
    prefixed: Prefixed,

    /// Make the changes, say how many they are, and take them back
    #[arg(long, global = true)]
    dry_run: bool,

    #[command(flatten)]
    format: FormatOption,
}

/// A place relative to a node.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Where {
    /// In front of the node
    Before,
    /// Behind the node
    After,
    /// As its first children
    First,
    /// As its last children
    Last,
}

impl Where {
    fn of(self, node: Label) -> Place {
        match self {
            Where::Before => Place::Before(node),
            Where::After => Place::After(node),
            Where::First => Place::First(node),
            Where::Last => Place::Last(node),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Change {
    /// Insert XML at each node that is found
    Insert {
        /// Place relative to each node
        #[arg(value_enum)]
        place: Where,
        /// Nodes to insert at
        #[arg(value_name = "XPATH")]
        targets: String,
        /// XML as it stands between two tags: any number of elements, texts, comments
        #[arg(value_name = "XML", required_unless_present = "file")]
        xml: Option<String>,
        /// File with the XML; `-` is standard input
        #[arg(long, value_name = "FILE", conflicts_with = "xml")]
        file: Option<PathBuf>,
        /// Insert what is given as text, also < and &
        #[arg(long)]
        text: bool,
    },
    /// Set the value of each node; that of an element is one text, which replaces its children
    SetValue {
        /// Nodes to change
        #[arg(value_name = "XPATH")]
        targets: String,
        /// New value, as text
        #[arg(value_name = "TEXT")]
        value: String,
    },
    /// Give each element, attribute or processing instruction another name
    Rename {
        /// Nodes to rename
        #[arg(value_name = "XPATH")]
        targets: String,
        /// New name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Delete each node with all that is below it
    Delete {
        /// Nodes to delete
        #[arg(value_name = "XPATH")]
        targets: String,
    },
    /// Move the nodes, in their order, to a place relative to another node
    Move {
        /// Nodes to move
        #[arg(value_name = "XPATH")]
        targets: String,
        /// Place relative to the destination
        #[arg(value_enum)]
        place: Where,
        /// The destination: an expression that finds one node
        #[arg(value_name = "DESTINATION")]
        destination: String,
    },
    /// Set an attribute of each element, whether it has it or not
    SetAttribute {
        /// Elements to change
        #[arg(value_name = "XPATH")]
        targets: String,
        /// Name of the attribute
        #[arg(value_name = "NAME")]
        name: String,
        /// Its value
        #[arg(value_name = "VALUE")]
        value: String,
    },
    /// Remove an attribute of each element
    RemoveAttribute {
        /// Elements to change
        #[arg(value_name = "XPATH")]
        targets: String,
        /// Name of the attribute
        #[arg(value_name = "NAME")]
        name: String,
    },
}

impl Change {
    fn targets(&self) -> &str {
        match self {
            Change::Insert { targets, .. }
            | Change::SetValue { targets, .. }
            | Change::Rename { targets, .. }
            | Change::Delete { targets }
            | Change::Move { targets, .. }
            | Change::SetAttribute { targets, .. }
            | Change::RemoveAttribute { targets, .. } => targets,
        }
    }
}

/// A change with all that was read for it.
enum Prepared<'a> {
    Insert(Where, String),
    SetValue(&'a str),
    Rename(&'a str),
    Delete,
    Move(Where, &'a str, Query),
    SetAttribute(&'a str, &'a str),
    RemoveAttribute(&'a str),
}

/// Changes the nodes and says how many there were.
pub(crate) fn run(arguments: &UpdateArguments) -> Result<(), Failure> {
    let query = arguments.prefixed.query(arguments.change.targets())?;
    let (change, prefixes) = (prepare(arguments)?, arguments.prefixed.prefixes());
    closing(open(&arguments.store.store)?, |store| {
        let transaction = store.begin();
        let mut counts = Vec::new();
        for name in selected(store, &arguments.document)? {
            let document = transaction.document_to_update(&name).map_err(failure)?;
            let targets = nodes(&document, arguments.change.targets(), &query)?;
            let changed = apply(&document, &targets, &change, &prefixes)?;
            counts.push((name, targets.len(), changed));
        }
        if arguments.dry_run {
            drop(transaction);
        } else {
            transaction.commit().map_err(failure)?;
        }
        report(arguments, &counts)
    })
}

fn prepare(arguments: &UpdateArguments) -> Result<Prepared<'_>, Failure> {
    Ok(match &arguments.change {
        Change::Insert { place, xml, file, text, .. } => {
            let given = match (xml, file) {
                (Some(xml), _) => xml.clone(),
                (None, Some(file)) => read(file)?,
                (None, None) => String::new(),
            };
            Prepared::Insert(*place, if *text { text_as_xml(&given) } else { given })
        }
        Change::SetValue { value, .. } => Prepared::SetValue(value),
        Change::Rename { name, .. } => Prepared::Rename(name),
        Change::Delete { .. } => Prepared::Delete,
        Change::Move { place, destination, .. } => {
            Prepared::Move(*place, destination, arguments.prefixed.query(destination)?)
        }
        Change::SetAttribute { name, value, .. } => Prepared::SetAttribute(name, value),
        Change::RemoveAttribute { name, .. } => Prepared::RemoveAttribute(name),
    })
}

fn read(path: &std::path::Path) -> Result<String, Failure> {
    // A signal ends the command: nothing has been changed.
    let cancel = AtomicBool::new(false);
    let mut text = String::new();
    Input::open(path, &cancel).and_then(|mut input| input.read_to_string(&mut text)).map_err(
        |error| Failure::failed(XmlFailure::Of(path.display().to_string(), Box::new(error))),
    )?;
    Ok(text)
}

/// Returns the nodes that an expression finds.
fn nodes(document: &Document<'_>, text: &str, query: &Query) -> Result<Vec<Label>, Failure> {
    let (root, environment) = (document.root().map_err(failure)?, environment(false));
    let found = query.nodes(document, &root, &environment).map_err(evaluation_failed)?;
    let label = |item| match item {
        Ok(Item::Node(label)) => Ok(label),
        Ok(Item::Namespace { .. }) => Err(Failure::usage(XmlUsage::Other(format!(
            "{text}: a namespace cannot be changed; name elements or attributes"
        )))),
        Err(error) => Err(evaluation_failed(error)),
    };
    found.map(label).collect()
}

fn apply(
    document: &Document<'_>,
    targets: &[Label],
    change: &Prepared<'_>,
    prefixes: &Prefixes,
) -> Result<u64, Failure> {
    let changed: Result<u64, XmlStoreError> = match change {
        Prepared::Insert(place, xml) => {
            document.insert_at_each(targets, |node| place.of(node), xml)
        }
        Prepared::SetValue(value) => document.set_value_of_each(targets, value),
        Prepared::Rename(name) => document.rename_each(targets, name, prefixes),
        Prepared::Delete => document.delete_each(targets),
        Prepared::Move(place, text, destination) => {
            let found = nodes(document, text, destination)?;
            let [destination] = found.as_slice() else {
                let text = format!("{text}: finds {} nodes; name one destination", found.len());
                return Err(Failure::usage(XmlUsage::Other(text)));
            };
            document.move_each(targets, &place.of(destination.clone()))
        }
        Prepared::SetAttribute(name, value) => {
            document.set_attribute_of_each(targets, name, prefixes, value)
        }
        Prepared::RemoveAttribute(name) => {
            document.remove_attribute_of_each(targets, name, prefixes)
        }
    };
    changed.map_err(failure)
}

fn report(arguments: &UpdateArguments, counts: &[(String, usize, u64)]) -> Result<(), Failure> {
    let mut lines = Lines::new();
    let is_dry_run = arguments.dry_run;
    for (name, matched, changed) in counts {
        if arguments.format.is_json() {
            lines.json(&json!({
                "document": name,
                "matched": matched,
                "changed": changed,
                "dry_run": is_dry_run,
            }))?;
        } else {
            let state = if is_dry_run { " (not changed: --dry-run)" } else { "" };
            lines.text(&format!("{name}: found {matched}, changed {changed}{state}"))?;
        }
    }
    lines.finish()
}
