//! Loading, writing and reading documents.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use tidegate_engine::{Store, TxnOptions};
use tidegate_random::SplitMix64;
use tidegate_xml::label::Label;
use tidegate_xml::parse::{Event, Limits};
use tidegate_xml::serialize::XmlWriter;
use tidegate_xml::store::{
    DocumentOptions, IndexDefinition, InnerNodes, LoadOptions, LoadPhase, Progress, XmlStore,
    XmlStoreError,
};
use tidegate_xml::tree::Tree;
use tidegate_xml::xmark::{PersonCount, XmarkGenerator, XmarkOptions};
use tidegate_xml::xpath::{Environment, Prefixes, Query};

use super::indexes::DEFINITIONS;
use super::{
    canonical, compare, dump, in_memory, load, load_as, new_disk, new_store, open, parse_documents,
};

pub(super) fn xmark(factor: f64) -> String {
    let options = XmarkOptions { factor, seed: 4, persons: PersonCount::Original };
    let text = XmarkGenerator::new(options).unwrap().write(Vec::new()).unwrap();
    String::from_utf8(text).unwrap()
}

both!(a_loaded_document_is_the_parsed_one);
fn a_loaded_document_is_the_parsed_one(inner: InnerNodes) {
    let seed = 5;
    let mut random = SplitMix64::new(seed);
    let store = new_store(seed);
    for number in 0..60 {
        let case = format!("seed {seed}, document {number}");
        let text = parse_documents::document(&mut random, number % 3 == 0);
        load_as(inner, &store, &case, &text).unwrap();
        let transaction = store.begin();
        let document = transaction.document(&case).unwrap();
        compare(&document, &in_memory(&text), &format!("{case}:\n{text}"));
        assert_eq!(dump(&document), canonical(&text), "{case}");
    }
    assert_eq!(store.documents().unwrap().len(), 60);
}

both!(what_is_before_and_behind_the_root_element_stays_there);
fn what_is_before_and_behind_the_root_element_stays_there(inner: InnerNodes) {
    let text = "<!--1--><?a b?><!--2--><r a='1'>x<b/>y</r><!--3--><?c?>";
    let store = new_store(1);
    load_as(inner, &store, "d", text).unwrap();
    let transaction = store.begin();
    let document = transaction.document("d").unwrap();
    compare(&document, &in_memory(text), text);
    assert_eq!(dump(&document), canonical(text));
}

both!(a_long_text_is_one_node);
fn a_long_text_is_one_node(inner: InnerNodes) {
    let long = "é<![CDATA[&]]>".repeat(150_000);
    let text = format!("<r><a b='{0}'>{long}</a></r>", "v".repeat(100_000));
    let store = new_store(2);
    load_as(inner, &store, "d", &text).unwrap();
    let transaction = store.begin();
    let document = transaction.document("d").unwrap();
    assert!(dump(&document) == canonical(&text));
    document
        .events::<XmlStoreError>(|event| {
            if let Event::Text(part) = event {
                assert!(part.len() <= tidegate_xml::parse::TEXT_PART);
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(document.check().unwrap(), []);
}

both!(an_xmark_document_goes_in_and_out_and_answers_queries);
fn an_xmark_document_goes_in_and_out_and_answers_queries(inner: InnerNodes) {
    let text = xmark(0.001);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = XmlStore::open_or_create(&path).unwrap();
    load_as(inner, &store, "auctions", &text).unwrap();
    store.close().unwrap();

    let store = XmlStore::open_or_create(&path).unwrap();
    let transaction = store.begin();
    let document = transaction.document("auctions").unwrap();
    assert_eq!(document.check().unwrap(), []);
    assert!(dump(&document) == canonical(&text));
    assert!(document.path_classes() > 50, "{} classes", document.path_classes());
    let tree = in_memory(&text);
    for query in [
        "count(/site/people/person)",
        "count(//item[location='United States'])",
        "string(/site/people/person[2]/name)",
        "count(//open_auction[bidder]/bidder[last()]/preceding-sibling::bidder)",
        "string(id('person1')/name)",
    ] {
        let query = Query::parse(query, &Prefixes::new()).unwrap();
        let ours = query.string(&document, &document.root().unwrap(), &Environment::default());
        let theirs = query.string(&tree, &tree.root().unwrap(), &Environment::default());
        assert_eq!(ours.unwrap(), theirs.unwrap(), "{query:?}");
    }
}

both!(a_load_that_fails_leaves_nothing);
fn a_load_that_fails_leaves_nothing(inner: InnerNodes) {
    let store = new_store(3);
    load_as(inner, &store, "d", "<a/>").unwrap();
    let trees = store.engine().trees();
    let mut broken = "<a>".to_owned();
    for number in 0..5_000 {
        write!(broken, "<n{}>text</n{}>", number % 50, number % 50).unwrap();
    }
    let refused = load_as(inner, &store, "e", &broken).unwrap_err();
    assert!(matches!(refused, XmlStoreError::Parse(_)), "{refused}");
    broken.push_str("</a>");
    let mut calls = 0;
    let stop = |_| {
        calls += 1;
        ControlFlow::Break(())
    };
    let stopped = store.load("e", DocumentOptions::default(), broken.as_bytes(), stop);
    assert!(matches!(stopped, Err(XmlStoreError::Cancelled)));
    assert_eq!(calls, 1);
    let exists = load_as(inner, &store, "d", "<b/>").unwrap_err();
    assert!(matches!(exists, XmlStoreError::DocumentExists(_)), "{exists}");
    assert!(matches!(load_as(inner, &store, "", "<b/>"), Err(XmlStoreError::DocumentName(0))));
    assert_eq!(store.engine().trees(), trees);
    assert_eq!(store.documents().unwrap(), ["d"]);

    load_as(inner, &store, "e", &broken).unwrap();
    assert!(store.drop_document("e").unwrap());
    assert!(!store.drop_document("e").unwrap());
    assert_eq!(store.engine().trees(), trees);
    let transaction = store.begin();
    assert!(matches!(transaction.document("e"), Err(XmlStoreError::NoSuchDocument(_))));
    let document = transaction.document("d").unwrap();
    let plain = document.write(XmlWriter::new(Vec::new())).unwrap();
    assert_eq!(String::from_utf8_lossy(&plain).lines().last(), Some("<a/>"));
}

/// Whatever a load makes beside the document is what a build makes of the stored document.
#[test]
fn indexes_of_a_load_are_those_of_a_build() {
    let seed = 6;
    let mut random = SplitMix64::new(seed);
    let store = new_store(seed);
    for number in 0..12 {
        let case = format!("seed {seed}, document {number}");
        let text =
            if number == 0 { xmark(0.0003) } else { parse_documents::document(&mut random, true) };
        let mut options = LoadOptions { sort_bytes: 0, ..LoadOptions::default() };
        for definition in DEFINITIONS {
            options = options.index(definition, definition.parse().unwrap());
        }
        let loaded = store.load(&case, options, text.as_bytes(), |_| ControlFlow::Continue(()));
        let loaded = loaded.unwrap();
        assert_eq!(loaded.entries, loaded.entries_total, "{case}");
        let entries = |index: &str| {
            let tree = store.engine().tree(index).unwrap();
            let mut transaction = store.engine().begin(TxnOptions::default());
            let all = transaction.entries(&tree).unwrap();
            all.collect::<Result<Vec<_>, _>>().unwrap()
        };
        let mut total = 0;
        for (index, definition) in DEFINITIONS.iter().enumerate() {
            let build = format!("built {definition}");
            let go_on = |_| ControlFlow::Continue(());
            store.create_index(&case, &build, &definition.parse().unwrap(), go_on).unwrap();
            let tree = |index| format!("xml index {number}.{index}");
            let with_load = entries(&tree(index));
            assert_eq!(with_load, entries(&tree(index + 6)), "{case}, {definition}");
            total += with_load.len() as u64;
        }
        assert_eq!(loaded.entries, total, "{case}");
        let transaction = store.begin();
        assert_eq!(transaction.document(&case).unwrap().check().unwrap(), [], "{case}");
    }
}

#[test]
fn a_load_tells_of_its_phases_and_can_be_stopped_at_each_report() {
    for threads in [1, 2, 3] {
        stop_at_each_report(threads);
    }
}

fn stop_at_each_report(threads: usize) {
    let store = new_store(9);
    let text = format!("<r>{}</r>", "<a b='c'/>".repeat(10_000))
        + &format!("<!--{}-->", "x".repeat(3 << 20));
    let options = || {
        let input_bytes = Some(text.len() as u64);
        LoadOptions { input_bytes, threads, ..LoadOptions::default() }
            .index("n", "name".parse().unwrap())
            .index("c", "cas text".parse().unwrap())
    };
    let trees = store.engine().trees();
    let (mut reports, mut stopped) = (Vec::new(), 0);
    loop {
        reports.clear();
        let stop = |progress| {
            reports.push(progress);
            if reports.len() > stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match store.load("d", options(), text.as_bytes(), stop) {
            Err(XmlStoreError::Cancelled) => assert_eq!(store.engine().trees(), trees),
            loaded => break assert_eq!(loaded.unwrap().entries, 20_001),
        }
        stopped += 1;
    }
    // By nodes, by entries, and by bytes: the comment is read as a whole.
    for phase in [LoadPhase::Reading, LoadPhase::Indexing] {
        let of_phase: Vec<&Progress> =
            reports.iter().filter(|report| report.phase == phase).collect();
        assert!(of_phase.len() >= 4, "{reports:?}");
        let shares: Vec<f64> = of_phase.iter().map(|report| report.share().unwrap()).collect();
        assert!(shares.is_sorted() && shares.iter().all(|share| (0.0..=1.0).contains(share)));
        assert!(of_phase.iter().all(|report| report.left().is_some()));
    }
    assert!(reports.is_sorted_by_key(|report| (report.nodes, report.entries, report.elapsed)));
}

#[test]
fn a_long_text_is_reported_on_as_it_is_read() {
    let store = new_store(9);
    let text = format!("<r>{}</r>", "text ".repeat(1 << 20));
    let mut bytes = Vec::new();
    let go_on = |progress: Progress| {
        bytes.push(progress.bytes);
        ControlFlow::Continue(())
    };
    store.load("d", DocumentOptions::default(), text.as_bytes(), go_on).unwrap();
    assert!(bytes.len() >= 4 && bytes.is_sorted(), "{bytes:?}");
}

#[test]
fn indexes_that_cannot_be_are_refused_before_the_text_is_read() {
    let store = new_store(9);
    let definition = || "name".parse::<IndexDefinition>().unwrap();
    let refused = |names: [&str; 2]| {
        let options = names
            .into_iter()
            .fold(LoadOptions::default(), |options, name| options.index(name, definition()));
        store.load("d", options, &b"no XML"[..], |_| ControlFlow::Continue(())).unwrap_err()
    };
    assert!(matches!(refused(["a", ""]), XmlStoreError::IndexName(0)));
    assert!(matches!(refused(["a", "a"]), XmlStoreError::IndexExists(_)));
    assert!(matches!(refused(["a", "b"]), XmlStoreError::Parse(_)));
    assert_eq!(store.engine().trees().len(), 4);
}

#[test]
fn a_document_is_the_same_with_virtual_inner_nodes() {
    let store = new_store(6);
    let seed = 6;
    let mut random = SplitMix64::new(seed);
    for number in 0..40 {
        let text = parse_documents::document(&mut random, number % 3 == 0);
        let [stored, rebuilt] = [InnerNodes::Stored, InnerNodes::Virtual].map(|inner| {
            let name = format!("{inner:?} {number}");
            load_as(inner, &store, &name, &text).unwrap();
            name
        });
        let transaction = store.begin();
        let [stored, rebuilt] = [stored, rebuilt].map(|name| {
            let document = transaction.document(&name).unwrap();
            let labels = document.descendants(&Label::document()).unwrap();
            let labels: Vec<Label> = labels.collect::<Result<_, _>>().unwrap();
            (labels, dump(&document))
        });
        assert_eq!(stored, rebuilt, "seed {seed}, document {number}:\n{text}");
    }
}

#[test]
fn only_leaves_have_records_where_inner_nodes_are_virtual() {
    let text = "<r><a k='1'/><b xmlns:p='u'/><c/><d><e/></d>x</r>";
    let store = new_store(7);
    for (inner, name) in [(InnerNodes::Stored, "stored"), (InnerNodes::Virtual, "virtual")] {
        load_as(inner, &store, name, text).unwrap();
    }
    let records = [0, 1].map(|number| {
        let tree = store.engine().tree(&format!("xml document {number}")).unwrap();
        let mut transaction = store.engine().begin(TxnOptions::default());
        transaction.entries(&tree).unwrap().count()
    });
    // The attribute, the declaration, c, e, and the text.
    assert_eq!(records, [9, 5]);
}

#[test]
fn the_catalog_says_which_elements_have_records() {
    let disk = new_disk(8);
    let store = open(&disk).unwrap();
    let text = "<r><a>x</a></r>";
    load_as(InnerNodes::Stored, &store, "stored", text).unwrap();
    load_as(InnerNodes::Virtual, &store, "virtual", text).unwrap();
    store.close().unwrap();
    let read = |engine: &Store, name: &str| {
        let catalog = engine.tree("xml documents").unwrap();
        engine.begin(TxnOptions::default()).get(&catalog, name.as_bytes()).unwrap().unwrap()
    };
    let write = |store: XmlStore, name: &str, entry: &[u8]| {
        let catalog = store.engine().tree("xml documents").unwrap();
        let mut transaction = store.engine().begin(TxnOptions::default());
        transaction.put(&catalog, name.as_bytes(), entry).unwrap();
        transaction.commit().unwrap();
        store.close().unwrap();
    };
    let store = open(&disk).unwrap();
    let entry = read(store.engine(), "stored");
    // An entry of earlier versions ends where this one says it.
    write(store, "stored", &entry[..entry.len() - 1]);
    let store = open(&disk).unwrap();
    let transaction = store.begin();
    for name in ["stored", "virtual"] {
        let document = transaction.document(name).unwrap();
        compare(&document, &in_memory(text), name);
    }
    drop(transaction);
    let mut entry = read(store.engine(), "virtual");
    *entry.last_mut().unwrap() = 2;
    write(store, "virtual", &entry);
    let refused = open(&disk).err().unwrap();
    assert!(matches!(refused, XmlStoreError::Unsound(_)), "{refused}");
}

#[test]
fn threads_load_change_and_drop_documents_at_the_same_time() {
    let store = new_store(12);
    let work = |thread: u32| {
        for round in 0..12 {
            let name = format!("{thread} {round}");
            let mut text = format!("<r t{thread}='v'>");
            for child in 0..20 {
                write!(text, "<n{} k{round}='v'/>", (thread + round + child) % 30).unwrap();
            }
            text.push_str("</r>");
            load(&store, &name, &text).unwrap();
            // Also the other threads' documents: they are whole, or not there.
            let other = format!("{} {}", (thread + 1) % 4, round);
            let transaction = store.begin();
            match transaction.document(&other) {
                Ok(document) => assert_eq!(document.check().unwrap(), []),
                Err(XmlStoreError::NoSuchDocument(_)) => {}
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
            drop(transaction);
            let transaction = store.begin();
            let document = transaction.document(&name).unwrap();
            assert_eq!(dump(&document), canonical(&text));
            drop(document);
            transaction.commit().unwrap();
            if round % 3 > 0 {
                assert!(store.drop_document(&name).unwrap());
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
    assert_eq!(store.documents().unwrap().len(), 16);
    assert_eq!(store.engine().trees().len(), 4 + 16);
    store.engine().check().unwrap();
}

#[test]
fn what_goes_beyond_a_limit_is_refused_with_its_place_unless_the_limit_is_raised() {
    let store = new_store(14);
    let go_on = |_| ControlFlow::Continue(());
    let deep = format!("<r>\n{}{}</r>", "<a>".repeat(30), "</a>".repeat(30));
    let document = DocumentOptions { label_max: 20, ..DocumentOptions::default() };
    let refused = store.load("d", document, deep.as_bytes(), go_on).unwrap_err();
    let XmlStoreError::At { position, error } = &refused else { panic!("{refused}") };
    assert!(matches!(**error, XmlStoreError::Label(_)), "{error}");
    // The twentieth element in the root element ends there.
    assert_eq!((position.line, position.column), (2, 61), "{refused}");
    store.load("d", LoadOptions::default(), deep.as_bytes(), go_on).unwrap();

    let limits = Limits { depth: 20, ..Limits::default() };
    let refused =
        store.load("e", LoadOptions { limits, ..LoadOptions::default() }, deep.as_bytes(), go_on);
    assert!(matches!(refused, Err(XmlStoreError::Parse(_))), "{refused:?}");
    assert_eq!(store.documents().unwrap(), ["d"]);
    let mut wide = "<r".to_owned();
    for number in 0..2_000 {
        write!(wide, " a{number}=''").unwrap();
    }
    wide.push_str("/>");
    assert!(load(&store, "e", &wide).is_err());
    let limits = Limits { attributes: 2_000, ..Limits::default() };
    store
        .load("e", LoadOptions { limits, ..LoadOptions::default() }, wide.as_bytes(), go_on)
        .unwrap();
}
