//! What the store says of documents and queries: figures, plans, and nodes as text.

use std::ops::ControlFlow;

use tidegate_random::SplitMix64;
use tidegate_xml::store::{DocumentOptions, InnerNodes, XmlStore};
use tidegate_xml::tree::{Kind, Tree};
use tidegate_xml::xpath::{Environment, Prefixes, Query};

use super::absolute::{document, expression};
use super::indexes::create;
use super::{dump, in_memory, load, load_as, new_store};

#[test]
fn figures_are_those_of_a_walk() {
    for seed in 1..=20 {
        let virtual_nodes = seed % 2 == 0;
        let mut random = SplitMix64::new(seed);
        let text = document(&mut random);
        let store = new_store(seed);
        let inner_nodes = if virtual_nodes { InnerNodes::Virtual } else { InnerNodes::Stored };
        load_as(inner_nodes, &store, "d", &text).unwrap();
        create(&store, "names", "name").unwrap();
        let transaction = store.begin();
        let document = transaction.document("d").unwrap();
        let statistics = document.statistics().unwrap();
        let tree = in_memory(&text);
        let (mut counts, mut depth) = ([0_u64; 5], 0);
        for node in tree.nodes() {
            let kind = match tree.kind(&node).unwrap() {
                Kind::Document => continue,
                Kind::Element => 0,
                Kind::Attribute => 1,
                Kind::Text => 2,
                Kind::Comment => 3,
                Kind::ProcessingInstruction => 4,
            };
            counts[kind] += 1;
            let (mut above, mut level) = (Some(node), 0);
            while let Some(node) = above {
                above = tree.parent(&node).unwrap();
                level += 1;
            }
            if kind == 0 {
                depth = depth.max(level - 1);
            }
        }
        let nodes = statistics.nodes;
        let ours = [
            nodes.elements,
            nodes.attributes,
            nodes.texts,
            nodes.comments,
            nodes.processing_instructions,
        ];
        assert_eq!(ours, counts, "seed {seed}: {text}");
        assert_eq!(statistics.depth, depth, "seed {seed}: {text}");
        assert_eq!(statistics.inner_nodes, inner_nodes);
        assert_eq!(statistics.path_classes, document.path_classes());
        let [names] = statistics.indexes.as_slice() else { panic!("one index") };
        assert_eq!((&*names.name, names.is_ready), ("names", true));
        assert_eq!(names.tree.shape.entries, nodes.elements);
        assert!(names.tree.bytes >= 4_096 && statistics.tree.bytes >= 4_096);
    }
}

#[test]
fn a_plan_names_the_indexes_that_answer() {
    let store = new_store(1);
    load(&store, "d", "<l><a k='1'>t</a><a k='2'><b/></a></l>").unwrap();
    for (name, definition) in [("ids", "cas text //@k"), ("names", "name")] {
        create(&store, name, definition).unwrap();
    }
    let transaction = store.begin();
    let document = transaction.document("d").unwrap();
    let plan = |text: &str, environment: &Environment<_>| {
        Query::parse(text, &Prefixes::new()).unwrap().explain(&document, environment)
    };
    let text = "//a[@k = '2']/b//a";
    let with = plan(text, &Environment::default());
    assert_eq!(
        with,
        "path
  from the document
  steps descendant::a, parents of what is found by the value, index ids (cas text //@k)
    where
      operators =
        path
          from the context node
          step attribute::k
        string \"2\"
  step child::b, merge of nested results
  step descendant::a, from outermost nodes only, index names (name)
"
    );
    let without = plan(text, &Environment::default().without_indexes());
    assert!(without.contains("  step descendant::a\n") && !without.contains("index"), "{without}");
    let by_name = plan("/l/a/b[1]", &Environment::default());
    assert!(by_name.contains("steps child::l/child::a, index names (name)"), "{by_name}");
}

/// A plan that names no index for the first steps belongs to an evaluation that asks none.
#[test]
fn plans_are_made_for_every_query() {
    let store = new_store(2);
    let mut random = SplitMix64::new(2);
    load(&store, "d", &document(&mut random)).unwrap();
    create(&store, "all", "path").unwrap();
    let transaction = store.begin();
    let document = transaction.document("d").unwrap();
    let mut named = 0;
    for _ in 0..300 {
        let text = expression(&mut random);
        let query = Query::parse(&text, &Prefixes::new()).unwrap();
        let plan = query.plan(&document, &Environment::default());
        assert!(plan[0].depth == 0 && plan.iter().skip(1).all(|line| line.depth > 0), "{text}");
        named += usize::from(plan.iter().any(|line| line.index.is_some()));
    }
    assert!(named > 100, "only {named} plans name an index");
}

#[test]
fn found_nodes_are_written_with_the_namespaces_in_scope() {
    let store = new_store(3);
    let text = "<r xmlns='urn:d' xmlns:p='urn:p' p:k='&lt;'><a xmlns='' n='p:x'>t&amp;<!--c--></a>\
                <?i j?><p:b xmlns:p='urn:q' xml:lang='en'/></r>";
    load(&store, "d", text).unwrap();
    let transaction = store.begin();
    let document = transaction.document("d").unwrap();
    let environment = Environment::default();
    let prefixes = Prefixes::new().with("d", "urn:d").with("p", "urn:p").with("q", "urn:q");
    for (query, expected, path) in [
        ("//a", "<a xmlns:p=\"urn:p\" xmlns=\"\" n=\"p:x\">t&amp;<!--c--></a>", "/r/a"),
        ("//a/text()", "t&amp;", "/r/a/text()"),
        ("//a/@n", "n=\"p:x\"", "/r/a/@n"),
        ("//@p:k", "p:k=\"&lt;\"", "/r/@p:k"),
        ("//comment()", "<!--c-->", "/r/a/comment()"),
        ("//processing-instruction()", "<?i j?>", "/r/processing-instruction()"),
        ("//q:b", "<p:b xmlns=\"urn:d\" xmlns:p=\"urn:q\" xml:lang=\"en\"/>", "/r/p:b"),
        ("//a/namespace::p", "xmlns:p=\"urn:p\"", "/r/a/namespace::p"),
        ("/d:r/namespace::*[name() = '']", "xmlns=\"urn:d\"", "/r/namespace::"),
    ] {
        let parsed = Query::parse(query, &prefixes).unwrap();
        let root = document.root().unwrap();
        let found: Vec<_> = parsed.nodes(&document, &root, &environment).unwrap().collect();
        let [Ok(item)] = found.as_slice() else { panic!("{query}: {found:?}") };
        let written = document.write_item(item, Vec::new()).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), expected, "{query}");
        assert_eq!(document.item_path(item).unwrap(), path, "{query}");
    }
}

#[test]
fn stores_in_directories_are_opened_to_be_read_by_several() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    assert!(XmlStore::open(&path).is_err());
    std::fs::write(directory.path().join("letter"), "x").unwrap();
    for error in [XmlStore::open(directory.path()), XmlStore::open_read_only(directory.path())] {
        assert!(error.err().unwrap().is_missing_store());
    }
    let store = XmlStore::open_or_create(&path).unwrap();
    let go_on = |_| ControlFlow::Continue(());
    for name in ["x/1", "x/2", "y", "x"] {
        store.load(name, DocumentOptions::default(), &b"<r/>"[..], go_on).unwrap();
    }
    let error = XmlStore::open_read_only(&path).err().unwrap();
    assert!(error.to_string().contains("is open already") && !error.is_missing_store(), "{error}");
    // It was not closed, so it is recovered.
    drop(store);
    drop(XmlStore::open_read_only(&path).unwrap());
    XmlStore::open(&path).unwrap().close().unwrap();
    let [one, two] = [(); 2].map(|()| XmlStore::open_read_only(&path).unwrap());
    assert_eq!(one.documents_in("x/").unwrap(), ["x/1", "x/2"]);
    assert_eq!(two.documents().unwrap(), ["x", "x/1", "x/2", "y"]);
    let transaction = two.begin();
    assert_eq!(dump(&transaction.document("y").unwrap()), "<r></r>");
    drop(transaction);
    assert!(one.load("z", DocumentOptions::default(), &b"<r/>"[..], go_on).is_err());
    one.close().unwrap();
    two.close().unwrap();
}
