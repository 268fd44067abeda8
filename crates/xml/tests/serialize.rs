//! Text that is written: it gives the same events again, and the canonical form is libxml2's.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails at once and may say why"
)]

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;

use proptest::prelude::*;
use tidegate_random::SplitMix64;
use tidegate_xml::name::QName;
use tidegate_xml::parse::{Attribute, Event, XMLNS_NAMESPACE, XmlReader};
use tidegate_xml::serialize::{SerializeError, XmlWriter};

mod parse_documents;

/// The events of a document, a line each. With `names_only` names count by their namespace, and
/// neither prefixes nor declarations are shown.
fn dump(document: &[u8], names_only: bool) -> String {
    let mut reader = XmlReader::new(document);
    let mut dump = String::new();
    let shown = |name: &QName| {
        if names_only {
            format!("{{{}}}{}", name.namespace, name.local)
        } else {
            format!("{{{}}}{name}", name.namespace)
        }
    };
    let mut in_text = false;
    while let Some(event) = reader.next_event().unwrap() {
        let continues = in_text;
        in_text = matches!(event, Event::Text(_));
        match event {
            Event::Text(text) if continues => dump.push_str(text),
            Event::Text(text) => write!(dump, "\nT{text}").unwrap(),
            Event::StartElement { name, attributes } => {
                write!(dump, "\n<{}", shown(name)).unwrap();
                for Attribute { name, value, .. } in attributes {
                    if !names_only || *name.namespace != *XMLNS_NAMESPACE {
                        write!(dump, " {}={value:?}", shown(name)).unwrap();
                    }
                }
            }
            Event::EndElement { name } => write!(dump, "\n/{}", shown(name)).unwrap(),
            other => write!(dump, "\n{other:?}").unwrap(),
        }
    }
    dump
}

fn rewrite(document: &str, mut writer: XmlWriter<Vec<u8>>) -> Vec<u8> {
    let mut reader = XmlReader::new(document.as_bytes());
    while let Some(event) = reader.next_event().unwrap() {
        writer.write(event).unwrap();
    }
    writer.finish().unwrap()
}

fn canonical(document: &str, comments: bool) -> String {
    let bytes = rewrite(document, XmlWriter::canonical(Vec::new(), comments));
    String::from_utf8(bytes).unwrap()
}

#[test]
fn text_gives_the_same_events_again() {
    let seed = 3;
    let mut random = SplitMix64::new(seed);
    for number in 0..300 {
        let document = parse_documents::document(&mut random, number % 3 == 0);
        let written = rewrite(&document, XmlWriter::new(Vec::new()));
        let text = String::from_utf8_lossy(&written);
        let expected = dump(document.as_bytes(), false);
        assert_eq!(dump(&written, false), expected, "seed {seed}:\n{document}\n{text}");
    }
}

#[test]
fn what_a_parser_would_change_is_escaped() {
    let document = "<a b='&#13;&#10;&#9; &lt;&quot;&amp;'>&#13;]]&gt;&lt;&amp;\"</a>";
    let written = rewrite(document, XmlWriter::new(Vec::new()));
    let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
                    <a b=\"&#xD;&#xA;&#x9; &lt;&quot;&amp;\">&#xD;]]&gt;&lt;&amp;\"</a>\n";
    assert_eq!(String::from_utf8(written).unwrap(), expected);
}

#[test]
fn canonical_form_is_that_of_the_recommendation() {
    // After the examples of Canonical XML 1.0, section 3.
    let document = "<?xml version=\"1.0\"?>\n\n<?xml-stylesheet   href=\"doc.xsl\"\n   \
                    type=\"text/xsl\"   ?>\n\n<!DOCTYPE doc SYSTEM \"doc.dtd\">\n\n\
                    <doc>Hello<!-- 1 --></doc>\n\n<?pi-without-data     ?>\n\n<!-- 2 -->\n";
    let without = "<?xml-stylesheet href=\"doc.xsl\"\n   type=\"text/xsl\"   ?>\n\
                   <doc>Hello</doc>\n<?pi-without-data?>";
    assert_eq!(canonical(document, false), without);
    let with = without.replace("Hello", "Hello<!-- 1 -->") + "\n<!-- 2 -->";
    assert_eq!(canonical(document, true), with);

    let tags = "<e5 a:attr=\"out\" b:attr=\"sorted\" attr2=\"all\" attr=\"I'm\" \
                xmlns:b=\"http://b\" xmlns:a=\"http://a\" xmlns=\"http://e\"/>";
    let sorted = "<e5 xmlns=\"http://e\" xmlns:a=\"http://a\" xmlns:b=\"http://b\" attr=\"I'm\" \
                  attr2=\"all\" b:attr=\"sorted\" a:attr=\"out\"></e5>";
    let expected =
        sorted.replace("b:attr=\"sorted\" a:attr=\"out\"", "a:attr=\"out\" b:attr=\"sorted\"");
    assert_eq!(canonical(tags, false), expected);
    let nested =
        "<a xmlns='u' xmlns:p='v'><b xmlns='u'><c xmlns=''><d xmlns='' xmlns:p='v'/></c></b></a>";
    assert_eq!(
        canonical(nested, false),
        "<a xmlns=\"u\" xmlns:p=\"v\"><b><c xmlns=\"\"><d></d></c></b></a>"
    );
}

#[test]
fn canonical_form_is_that_of_libxml2() {
    let seed = 8;
    let mut random = SplitMix64::new(seed);
    let directory = tempfile::tempdir().unwrap();
    for number in 0..120 {
        let document = parse_documents::document(&mut random, number % 3 == 0);
        fs::write(directory.path().join("d.xml"), &document).unwrap();
        let arguments = ["--nonet", "--c14n", "d.xml"].map(str::to_owned);
        let Some(output) = parse_documents::xmllint(directory.path(), &arguments) else { return };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let theirs = String::from_utf8(output.stdout).unwrap();
        // `xmllint` ends its output with a line end, which is not part of the form.
        let theirs = theirs.strip_suffix('\n').unwrap_or(&theirs);
        assert_eq!(canonical(&document, true), theirs, "seed {seed}:\n{document}");
    }
}

fn name(prefix: &str, local: &str, namespace: &str) -> Arc<QName> {
    let (prefix, local, namespace) = (prefix.into(), local.into(), namespace.into());
    Arc::new(QName { prefix, local, namespace })
}

fn attribute(name: Arc<QName>, value: &str) -> Attribute {
    Attribute { name, value: value.to_owned(), is_id: false }
}

/// A tree of names: each with its attributes and children.
#[derive(Debug, Clone)]
struct Tree {
    name: Arc<QName>,
    attributes: Vec<Attribute>,
    children: Vec<Tree>,
}

fn write_tree(tree: &Tree, writer: &mut XmlWriter<Vec<u8>>, expected: &mut String) {
    let shown = |name: &QName| format!("{{{}}}{}", name.namespace, name.local);
    let Tree { name, attributes, children } = tree;
    writer.write(Event::StartElement { name, attributes }).unwrap();
    write!(expected, "\n<{}", shown(name)).unwrap();
    for Attribute { name, value, .. } in attributes {
        if *name.namespace != *XMLNS_NAMESPACE {
            write!(expected, " {}={value:?}", shown(name)).unwrap();
        }
    }
    for child in children {
        write_tree(child, writer, expected);
    }
    writer.write(Event::EndElement { name }).unwrap();
    write!(expected, "\n/{}", shown(name)).unwrap();
}

fn trees() -> impl Strategy<Value = Tree> {
    let namespaces = prop::sample::select(vec!["", "u", "v", "w"]);
    let prefixes = prop::sample::select(vec!["", "p", "q", "ns1"]);
    let names = (prefixes, prop::sample::select(vec!["a", "b"]), namespaces.clone())
        .prop_map(|(prefix, local, namespace)| name(prefix, local, namespace));
    let declarations = (prop::sample::select(vec!["p", "q", "ns1"]), "[uvw]")
        .prop_map(|(prefix, uri)| attribute(name("xmlns", prefix, XMLNS_NAMESPACE), &uri));
    let given =
        (names.clone(), "[a<&\"\n\t\r é]{0,5}").prop_map(|(name, value)| attribute(name, &value));
    let attributes = (prop::collection::vec(given, 0..3), prop::option::of(declarations)).prop_map(
        |(list, declaration)| {
            let mut unique: Vec<Attribute> = declaration.into_iter().collect();
            for attribute in list {
                if unique.iter().all(|other| other.name != attribute.name) {
                    unique.push(attribute);
                }
            }
            unique
        },
    );
    let leaf = (names.clone(), attributes.clone()).prop_map(|(name, attributes)| Tree {
        name,
        attributes,
        children: Vec::new(),
    });
    leaf.prop_recursive(4, 24, 4, move |inner| {
        (names.clone(), attributes.clone(), prop::collection::vec(inner, 0..4))
            .prop_map(|(name, attributes, children)| Tree { name, attributes, children })
    })
}

proptest! {
    /// Whatever prefixes the names have, and whatever is declared: namespaces come out right.
    #[test]
    fn namespaces_are_declared_where_they_are_missing(tree in trees()) {
        let mut writer = XmlWriter::new(Vec::new());
        let mut expected = "\nStartDocument".to_owned();
        writer.write(Event::StartDocument).unwrap();
        write_tree(&tree, &mut writer, &mut expected);
        writer.write(Event::EndDocument).unwrap();
        expected.push_str("\nEndDocument");
        let written = writer.finish().unwrap();
        prop_assert_eq!(dump(&written, true), expected, "{}", String::from_utf8_lossy(&written));
    }

    #[test]
    fn texts_and_values_come_back(text in "[a-c<>&\\]\r\n\t\"é𝄞]{1,40}", value: String) {
        prop_assume!(value.chars().all(|character| {
            matches!(character, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..)
        }));
        let element = name("", "a", "");
        let attributes = [attribute(name("", "b", ""), &value)];
        let mut writer = XmlWriter::new(Vec::new());
        writer.write(Event::StartDocument).unwrap();
        writer.write(Event::StartElement { name: &element, attributes: &attributes }).unwrap();
        writer.write(Event::Text(&text)).unwrap();
        writer.write(Event::EndElement { name: &element }).unwrap();
        writer.write(Event::EndDocument).unwrap();
        let written = writer.finish().unwrap();
        let element = format!("<{{}}a {{}}b={value:?}\nT{text}\n/{{}}a");
        let expected = format!("\nStartDocument\n{element}\nEndDocument");
        prop_assert_eq!(dump(&written, false), expected);
    }
}

#[test]
fn what_is_no_document_is_refused() {
    let a = name("", "a", "");
    let open = Event::StartElement { name: &a, attributes: &[] };
    let close = Event::EndElement { name: &a };
    let fails = |events: &[Event<'_>]| -> SerializeError {
        let mut writer = XmlWriter::new(Vec::new());
        for &event in events {
            if let Err(error) = writer.write(event) {
                return error;
            }
        }
        writer.finish().map(|_| ()).unwrap_err()
    };
    let start = Event::StartDocument;
    for events in [
        &[start][..],
        &[open],
        &[start, start],
        &[start, open, Event::EndDocument],
        &[start, close],
        &[start, open, close, open],
        &[start, Event::Text("x")],
        &[start, open, close, Event::EndDocument, Event::Comment("x")],
        &[start, open, Event::EndElement { name: &name("", "b", "") }],
    ] {
        assert!(matches!(fails(events), SerializeError::Order(_)), "{events:?}");
    }
    for text in ["--", "x-", "a\rb"] {
        let events = [start, open, Event::Comment(text)];
        assert!(matches!(fails(&events), SerializeError::Content(_)), "{text:?}");
    }
    for (target, data) in [("x", "?>"), ("x", " y"), ("x", "\r")] {
        let events = [start, Event::ProcessingInstruction { target, data }];
        assert!(matches!(fails(&events), SerializeError::Content(_)), "{data:?}");
    }
    let instruction = Event::ProcessingInstruction { target: "xMl", data: "" };
    assert!(matches!(fails(&[start, instruction]), SerializeError::Name(_)));
    let events = [start, open, Event::Text("\u{1}")];
    assert!(matches!(fails(&events), SerializeError::Character(1)));
    for bad in [name("", "1", ""), name("", "", ""), name("p q", "a", ""), name("xml", "a", "u")] {
        let events = [start, Event::StartElement { name: &bad, attributes: &[] }];
        assert!(matches!(fails(&events), SerializeError::Name(_)), "{bad}");
    }
    let twice = [attribute(name("", "b", ""), ""), attribute(name("p", "b", ""), "")];
    let events = [start, Event::StartElement { name: &a, attributes: &twice }];
    assert!(matches!(fails(&events), SerializeError::DuplicateAttribute(_)));
    let default = [attribute(name("", "xmlns", XMLNS_NAMESPACE), "u")];
    let events = [start, Event::StartElement { name: &a, attributes: &default }];
    assert!(matches!(fails(&events), SerializeError::Namespace(_)));
}
