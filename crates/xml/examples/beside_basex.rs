//! Answers requests of `bench/xml_basex.py`, which measures the store beside `BaseX`.
//!
//! ```text
//! beside_basex DIRECTORY BUFFER_MIB
//! ```
//!
//! A request is a line of fields between tabs, and so is the answer: `ok` and what the request
//! asks for, or `error` and a message. Times are in seconds. A pass is one evaluation of all
//! queries of a request; passes are repeated until the given time is over.
//!
//! | request | answer |
//! | --- | --- |
//! | `locks GRANULARITY` | nothing; requests that follow lock the `document` or its `nodes` |
//! | `load FILE` | seconds |
//! | `index DEFINITION` | seconds |
//! | `nodes CONSUMER SECONDS QUERY…` | seconds, passes, nodes of a pass, digest |
//! | `bound CONSUMER SECONDS QUERY VALUE…` | the same; `$v` of the query is each value in turn |
//! | `walk WAY SECONDS NODES` | the same, of a walk through all `children` or from `sibling` |
//! | `insert DURABILITY FROM COUNT` | seconds, inserted bidders |
//! | `delete DURABILITY FROM COUNT` | seconds, deleted bidders |
//! | `dump CONSUMER FILE QUERY` | nodes |
//! | `size` | bytes of the document's tree and of its indexes |
//! | `explain QUERY` | the plan, its lines between tabs |

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::ops::ControlFlow;
use std::time::Instant;

use tidegate_engine::{Durability, Store, StoreOptions, TxnOptions};
use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::store::{
    Document, DocumentOptions, IndexDefinition, LockProtocol, Locking, Place, XmlStore,
    XmlStoreError, XmlTransaction,
};
use tidegate_xml::tree::{Kind, Tree};
use tidegate_xml::xpath::{Environment, Item, Prefixes, Query, Value};

const NAME: &str = "site";

type Answer<T> = Result<T, Box<dyn Error>>;

fn main() -> Answer<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(buffer)) = (arguments.next(), arguments.next()) else {
        return Err("name a directory and the MiB of the buffer".into());
    };
    let bytes = buffer.parse::<usize>()? << 20;
    let options = StoreOptions::default().buffer_bytes(bytes).buffer_bytes_max(bytes);
    let store = XmlStore::on(Store::open_or_create(directory, &options)?)?;
    let mut peer = Peer { store, locks: Locking::default() };
    for line in io::stdin().lock().lines() {
        let line = line?;
        let fields: Vec<&str> = line.split('\t').collect();
        let answer = match peer.answer(&fields) {
            Ok(fields) => format!("ok\t{}", fields.join("\t")),
            Err(error) => format!("error\t{}", error.to_string().replace('\n', " ")),
        };
        let mut output = io::stdout().lock();
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    peer.store.close()?;
    Ok(())
}

/// The store, and what the requests lock of it.
struct Peer {
    store: XmlStore,
    locks: Locking,
}

impl Peer {
    fn begin(&self) -> XmlTransaction<'_> {
        self.store.begin_locking(self.locks.clone(), TxnOptions::default())
    }

    fn answer(&mut self, fields: &[&str]) -> Answer<Vec<String>> {
        let store = &self.store;
        match *fields {
            ["locks", granularity] => {
                self.locks = match granularity {
                    "document" => Locking::default(),
                    "nodes" => Locking::by(LockProtocol::mgl()),
                    _ => return Err("locks are on the document or on nodes".into()),
                };
                Ok(Vec::new())
            }
            ["load", file] => {
                let input = BufReader::with_capacity(1 << 20, File::open(file)?);
                let load = || store.load(NAME, DocumentOptions::default(), input, go_on).map(drop);
                timed(load, store)
            }
            ["index", definition] => {
                let parsed = definition.parse::<IndexDefinition>()?;
                timed(|| store.create_index(NAME, definition, &parsed, go_on), store)
            }
            [change @ ("insert" | "delete"), durability, from, count] => {
                let from = from.parse::<u32>()?;
                self.change_all(change, durability, from..from + count.parse::<u32>()?)
            }
            _ => self.read(fields),
        }
    }

    /// Answers a request that changes nothing.
    fn read(&self, fields: &[&str]) -> Answer<Vec<String>> {
        let transaction = self.begin();
        let document = transaction.document(NAME)?;
        match *fields {
            ["nodes", consumer, seconds, ref queries @ ..] => {
                measured(seconds, || nodes(&document, consumer, queries))
            }
            ["bound", consumer, seconds, query, ref values @ ..] => {
                measured(seconds, || bound(&document, consumer, query, values))
            }
            ["walk", way, seconds, limit] => {
                let limit = limit.parse()?;
                let walk = match way {
                    "children" => walk_children,
                    "sibling" => walk_siblings,
                    _ => return Err("a walk is through children or from sibling".into()),
                };
                measured(seconds, || {
                    let mut digest = Digest::default();
                    walk(&document, &Label::document(), limit, &mut digest)?;
                    Ok(digest)
                })
            }
            ["dump", consumer, file, query] => dump(&document, consumer, file, query),
            ["size"] => {
                let found = document.statistics()?;
                let indexes: u64 = found.indexes.iter().map(|index| index.tree.bytes).sum();
                Ok(vec![found.tree.bytes.to_string(), indexes.to_string()])
            }
            ["explain", query] => {
                let query = Query::parse(query, &Prefixes::new())?;
                let plan = query.explain(&document, &Environment::default());
                Ok(plan.lines().map(str::to_owned).collect())
            }
            _ => Err("this request is unknown".into()),
        }
    }
}

fn go_on<T>(_: T) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Takes the time of a change to the store. Its pages are in their files when it returns.
fn timed(
    change: impl FnOnce() -> Result<(), XmlStoreError>,
    store: &XmlStore,
) -> Answer<Vec<String>> {
    let start = Instant::now();
    change()?;
    let taken = start.elapsed().as_secs_f64();
    store.engine().checkpoint()?;
    Ok(vec![taken.to_string()])
}

/// Repeats a pass until the time is over, at least once. Every pass has to have the same digest.
fn measured(seconds: &str, mut pass: impl FnMut() -> Answer<Digest>) -> Answer<Vec<String>> {
    let limit = seconds.parse::<f64>()?;
    let (mut passes, mut first) = (0_u64, None);
    let start = Instant::now();
    let taken = loop {
        let digest = pass()?;
        passes += 1;
        if *first.get_or_insert(digest) != digest {
            return Err("two passes have different answers".into());
        }
        let taken = start.elapsed().as_secs_f64();
        if taken >= limit {
            break taken;
        }
    };
    let Digest { nodes, hash } = first.unwrap_or_default();
    Ok(vec![taken.to_string(), passes.to_string(), nodes.to_string(), format!("{hash:016x}")])
}

/// What is made of the nodes that a query finds. The other program makes the same of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Digest {
    nodes: u64,
    hash: u64,
}

impl Digest {
    fn add(&mut self, value: u64) {
        self.nodes += 1;
        self.hash = self.hash.wrapping_mul(31).wrapping_add(value);
    }

    /// Adds the length, the first and the last byte.
    fn add_text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let end = |byte: Option<&u8>| byte.map_or(0, |byte| u64::from(*byte));
        let ends = (end(bytes.first()) << 8) | end(bytes.last());
        self.add(((bytes.len() as u64) << 16) | ends);
    }
}

/// Takes the nodes of a query one by one, as names, as string-values or as text of their subtree.
fn consume(
    document: &Document<'_>,
    consumer: &str,
    items: impl Iterator<Item = Answer<Label>>,
    digest: &mut Digest,
) -> Answer<()> {
    let mut text = Vec::new();
    for item in items {
        let node = item?;
        match consumer {
            "names" => match document.node_name(&node)? {
                Some(name) => digest.add_text(&name.local),
                None => digest.add_text(""),
            },
            "strings" => digest.add_text(&document.string_value(&node)?),
            "xml" => {
                text.clear();
                document.write_subtree(&node, &mut text)?;
                // The programs write some characters in different ways; a dump is compared.
                digest.add(0);
            }
            _ => return Err("a consumer is names, strings or xml".into()),
        }
    }
    Ok(())
}

fn labels<'a, E: Error + 'static>(
    items: impl Iterator<Item = Result<Item<Label>, E>> + 'a,
) -> impl Iterator<Item = Answer<Label>> + 'a {
    items.map(|item| match item? {
        Item::Node(label) => Ok(label),
        Item::Namespace { .. } => Err("no query asks for namespaces".into()),
    })
}

/// Parses and evaluates each query.
fn nodes(document: &Document<'_>, consumer: &str, queries: &[&str]) -> Answer<Digest> {
    let environment = Environment::default();
    let (prefixes, root) = (Prefixes::new(), document.root()?);
    let mut digest = Digest::default();
    for query in queries {
        let query = Query::parse(query, &prefixes)?;
        let found = query.nodes(document, &root, &environment)?;
        consume(document, consumer, labels(found), &mut digest)?;
    }
    Ok(digest)
}

/// Parses a query once, and evaluates it for each value of `$v`.
fn bound(document: &Document<'_>, consumer: &str, query: &str, values: &[&str]) -> Answer<Digest> {
    let query = Query::parse(query, &Prefixes::new())?;
    let root = document.root()?;
    let mut digest = Digest::default();
    for value in values {
        let value = Value::String((*value).to_owned());
        let environment = Environment::default().with_variable(QName::local("v"), value);
        let found = query.nodes(document, &root, &environment)?;
        consume(document, consumer, labels(found), &mut digest)?;
    }
    Ok(digest)
}

/// Adds a node of a walk. Returns its kind.
fn visit(document: &Document<'_>, node: &Label, digest: &mut Digest) -> Answer<Kind> {
    let kind = document.kind(node)?;
    digest.add(match kind {
        Kind::Element => 1,
        Kind::Text => 2,
        _ => 3,
    });
    Ok(kind)
}

/// Visits nodes in document order, up to a number of them: the children of each as a stream.
fn walk_children(
    document: &Document<'_>,
    node: &Label,
    limit: u64,
    digest: &mut Digest,
) -> Answer<()> {
    for child in document.children(node)? {
        if digest.nodes == limit {
            return Ok(());
        }
        let child = child?;
        if visit(document, &child, digest)? == Kind::Element {
            walk_children(document, &child, limit, digest)?;
        }
    }
    Ok(())
}

/// The same from a node to its first child and from there to the next sibling.
fn walk_siblings(
    document: &Document<'_>,
    node: &Label,
    limit: u64,
    digest: &mut Digest,
) -> Answer<()> {
    let mut next = document.first_child(node)?;
    while let Some(child) = next.take_if(|_| digest.nodes < limit) {
        if visit(document, &child, digest)? == Kind::Element {
            walk_siblings(document, &child, limit, digest)?;
        }
        next = document.next_sibling(&child)?;
    }
    Ok(())
}

fn dump(document: &Document<'_>, consumer: &str, file: &str, query: &str) -> Answer<Vec<String>> {
    let query = Query::parse(query, &Prefixes::new())?;
    let environment = Environment::default();
    let mut output = BufWriter::new(File::create(file)?);
    let mut count = 0_u64;
    for node in labels(query.nodes(document, &document.root()?, &environment)?) {
        let node = node?;
        match consumer {
            "names" => {
                let name = document.node_name(&node)?;
                writeln!(output, "{}", name.map_or(String::new(), |name| name.local.to_string()))?;
            }
            "strings" => writeln!(output, "{}", document.string_value(&node)?)?,
            _ => {
                document.write_subtree(&node, &mut output)?;
                writeln!(output)?;
            }
        }
        count += 1;
    }
    output.flush()?;
    Ok(vec![count.to_string()])
}

impl Peer {
    /// Inserts a bidder into an auction, or deletes it again, in a transaction for each number.
    fn change_all(
        &self,
        change: &str,
        durability: &str,
        numbers: std::ops::Range<u32>,
    ) -> Answer<Vec<String>> {
        let durability = match durability {
            "synced" => Durability::Synced,
            "lazy" => Durability::Lazy,
            _ => return Err("a durability is synced or lazy".into()),
        };
        let options = TxnOptions::default().durability(durability);
        let count = numbers.len();
        let start = Instant::now();
        for number in numbers {
            let transaction = self.store.begin_locking(self.locks.clone(), options);
            change_one(&transaction.document_to_update(NAME)?, change, number)?;
            transaction.commit()?;
        }
        Ok(vec![start.elapsed().as_secs_f64().to_string(), count.to_string()])
    }
}

fn change_one(document: &Document<'_>, change: &str, number: u32) -> Answer<()> {
    let is_insert = change == "insert";
    let query = if is_insert {
        format!("//open_auction[@id='open_auction{number}']")
    } else {
        format!("//bidder[@mark='mark{number}']")
    };
    let query = Query::parse(&query, &Prefixes::new())?;
    let node = {
        let environment = Environment::default();
        let mut found = labels(query.nodes(document, &document.root()?, &environment)?);
        found.next().ok_or_else(|| format!("nothing to {change} at {number}"))??
    };
    if is_insert {
        let bidder = format!(
            "<bidder mark=\"mark{number}\"><date>07/31/2001</date>\
             <increase>{number}</increase></bidder>"
        );
        document.insert_xml(&Place::Last(node), bidder.as_bytes())?;
    } else {
        document.delete(&node)?;
    }
    Ok(())
}
