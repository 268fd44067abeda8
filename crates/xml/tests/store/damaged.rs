//! A store whose trees are damaged, as bytes say: it opens or not, and what is asked of it is
//! answered or refused. Also a fuzz target (`crates/xml/fuzz`), so nothing here needs its parent.

use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, OnceLock};

use tidegate_engine::disk::{Crash, Disk, Faults, SimulatedDisk};
use tidegate_engine::lock::LockSettings;
use tidegate_engine::wal::{LogId, LogSettings};
use tidegate_engine::{
    Direction, PageSize, Store, StoreOptions, Transaction, TreeHandle, TxnOptions,
};
use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::serialize::XmlWriter;
use tidegate_xml::store::{
    Document, DocumentOptions, NewNode, Place, XmlStore, XmlStoreError, XmlTransaction,
};
use tidegate_xml::tree::Tree;
use tidegate_xml::xpath::{Environment, Prefixes, Query};

/// The document that is damaged.
const TEXT: &str = "<!--c--><r xmlns:p='urn:p' p:k='v' xml:id='i'>t<a>x<b/></a><?t d?>\
    <a n='2'>7</a><p:c><p:c/></p:c></r>";

/// Trees with entries of that document and its indexes.
const TREES: [&str; 8] = [
    "xml document 0",
    "xml index 0.0",
    "xml index 0.1",
    "xml index 0.2",
    "xml indexes",
    "xml paths",
    "xml names",
    "xml documents",
];

const DEFINITIONS: [&str; 3] = ["name", "cas text //a/text()", "content number"];

/// Nodes that are asked for and changed: a damaged document may have them without end.
const NODES: usize = 40;

fn options() -> StoreOptions {
    let locks = LockSettings { buckets: 64, ..StoreOptions::default().locks };
    StoreOptions::default()
        .locks(locks)
        .page_size(PageSize::new(4096).expect("a power of two"))
        .buffer_bytes(64 * 4096)
        .buffer_bytes_max(64 * 4096)
        .log(LogSettings { segment_bytes: 256 << 10, ..LogSettings::default() })
        .background(false)
}

fn engine(disk: &Arc<SimulatedDisk>) -> Store {
    let disk = Arc::clone(disk) as Arc<dyn Disk>;
    Store::open(&disk, &options()).expect("the engine's files are whole")
}

/// A closed store with the document and three indexes.
fn whole() -> &'static SimulatedDisk {
    static WHOLE: OnceLock<SimulatedDisk> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let disk = Arc::new(SimulatedDisk::new(1, Faults::default()));
        let shared = Arc::clone(&disk) as Arc<dyn Disk>;
        drop(Store::create(&shared, LogId(1), &options()).expect("an empty disk"));
        let store = XmlStore::on(engine(&disk)).expect("a new store");
        let go_on = |_| ControlFlow::Continue(());
        store.load("d", DocumentOptions::default(), TEXT.as_bytes(), go_on).expect("a document");
        for definition in DEFINITIONS {
            let parsed = definition.parse().expect("a definition");
            store
                .create_index("d", definition, &parsed, |_| ControlFlow::Continue(()))
                .expect("new");
        }
        store.close().expect("a working disk");
        disk.crash(Crash::Kept)
    })
}

/// Bytes taken one after the other; zeros behind the last.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn next(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first
            }
            None => 0,
        }
    }

    fn some(&mut self) -> &'a [u8] {
        let (some, rest) = self.0.split_at(usize::from(self.next() % 64).min(self.0.len()));
        self.0 = rest;
        some
    }
}

/// The entry at a place, counted round.
fn entry_at(
    transaction: &mut Transaction,
    tree: &TreeHandle,
    place: u8,
) -> Option<(Vec<u8>, Vec<u8>)> {
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = transaction.cursor(tree, all, Direction::Up).expect("a whole tree");
    let mut entries = Vec::new();
    while let Some((key, value)) = cursor.next(transaction).expect("a whole tree") {
        entries.push((key.to_vec(), value.to_vec()));
    }
    let place = usize::from(place) % entries.len().max(1);
    entries.into_iter().nth(place)
}

/// Changes one entry: another key or value, or a byte of one, or no entry, or a new one.
fn damage(transaction: &mut Transaction, tree: &TreeHandle, bytes: &mut Bytes<'_>) {
    let how = bytes.next();
    let found = entry_at(transaction, tree, bytes.next());
    let (old, (mut key, mut value)) = match found {
        Some((key, value)) => (Some(key.clone()), (key, value)),
        None => (None, Default::default()),
    };
    let part = if how & 1 == 0 { &mut key } else { &mut value };
    match how >> 1 & 3 {
        0 => *part = bytes.some().to_vec(),
        1 => {
            let place = usize::from(bytes.next()) % part.len().max(1);
            let with = bytes.next();
            part.iter_mut().skip(place).take(1).for_each(|byte| *byte = with);
        }
        2 => part.truncate(usize::from(bytes.next()) % (part.len() + 1)),
        _ => part.extend_from_slice(bytes.some()),
    }
    if how & 8 == 0
        && let Some(old) = old
    {
        transaction.remove(tree, &old).expect("a whole tree");
    }
    if how & 16 == 0 && !key.is_empty() {
        transaction.put(tree, &key, &value).expect("a key of 64 bytes more");
    }
}

/// Damages a store as the bytes say, opens it, and asks for everything.
pub(crate) fn run(bytes: &[u8]) {
    let disk = Arc::new(whole().crash(Crash::Kept));
    let engine = engine(&disk);
    let mut bytes = Bytes(bytes);
    while !bytes.0.is_empty() {
        let mut transaction = engine.begin(TxnOptions::default());
        let tree = TREES[usize::from(bytes.next() % 8)];
        damage(&mut transaction, &engine.tree(tree).expect("it is there"), &mut bytes);
        transaction.commit().expect("a working disk");
    }
    // What is asked is refused in many ways, which all are right.
    let Ok(store) = XmlStore::on(engine) else { return };
    let _ = read(&store.begin());
    let _ = change(&store.begin());
    let definition = "path".parse().expect("a definition");
    let _ = store.create_index("d", "new", &definition, |_| ControlFlow::Continue(()));
    let _ = store.indexes("d");
    let _ = store.drop_index("d", "name");
    let _ = store.drop_document("d");
    let _ = store.documents();
}

fn nodes(document: &Document<'_>) -> Result<Vec<Label>, XmlStoreError> {
    let root = document.root()?;
    let below = document.descendants(&root)?.take(NODES).filter_map(Result::ok);
    Ok([root].into_iter().chain(below).collect())
}

fn read(transaction: &XmlTransaction<'_>) -> Result<(), XmlStoreError> {
    let document = transaction.document("d")?;
    let _ = document.check();
    let _ = document.write(XmlWriter::new(Vec::new()));
    for node in nodes(&document)? {
        let _ = (document.kind(&node), document.name(&node), document.content(&node));
        let _ = (document.parent(&node), document.path(&node), document.string_value(&node));
        let _ = (document.first_child(&node), document.last_child(&node));
        let _ = (document.next_sibling(&node), document.previous_sibling(&node));
        let _ = (document.attributes(&node), document.declarations(&node));
        let _ = document.namespaces_in_scope(&node);
    }
    let (root, environment) = (document.root()?, Environment::default());
    for text in
        ["//a[. = 'x']", "//a[text() = 7]", "//p:c", "id('i')", "//@n[. > 1]/..", "//text()"]
    {
        let prefixes = Prefixes::new().with("p", "urn:p");
        let query = Query::parse(text, &prefixes).expect("an expression");
        if let Ok(nodes) = query.nodes(&document, &root, &environment) {
            let _ = nodes.take(NODES).take_while(Result::is_ok).count();
        }
    }
    Ok(())
}

/// Changes each node in one way or another. What is refused leaves the rest.
fn change(transaction: &XmlTransaction<'_>) -> Result<(), XmlStoreError> {
    let document = transaction.document_to_update("d")?;
    let all = nodes(&document)?;
    let name = QName::local("new");
    for (number, node) in all.iter().enumerate() {
        let savepoint = transaction.savepoint();
        let (target, place) = (&all[number * 7 % all.len()], Place::Last(node.clone()));
        let _ = match number % 9 {
            0 => document.insert(&place, NewNode::Element(&name)).map(drop),
            1 => document.insert_xml(&Place::Before(node.clone()), &b"y<z w=''/>"[..]).map(drop),
            2 => document.rename(node, &name),
            3 => document.set_value(node, "w"),
            4 => document.copy_to(target, &place).map(drop),
            5 => document.set_attribute(node, &name, "8").map(drop),
            6 => document.move_to(target, &place).map(drop),
            7 => document.set_content(node, &b"<z/>"[..]).map(drop),
            _ => document.delete(node),
        };
        if number % 4 == 3 {
            transaction.roll_back_to(savepoint)?;
        }
    }
    let _ = document.check();
    Ok(())
}
