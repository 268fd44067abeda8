//! The reader of XML text: what it gives, what it refuses and where, and its bounds.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails at once and may say why"
)]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};

use proptest::prelude::*;
use tidegate_random::SplitMix64;
use tidegate_xml::parse::ParseErrorKind as Kind;
use tidegate_xml::parse::{Event, Limits, ParseError, ParseErrorKind, TEXT_PART, XmlReader};

mod parse_documents;

/// The events of a document, one a line, with the parts of a text put together.
fn dump(input: impl BufRead) -> Result<String, ParseError> {
    dump_within(input, Limits::default())
}

fn dump_within(input: impl BufRead, limits: Limits) -> Result<String, ParseError> {
    let mut reader = XmlReader::with_limits(input, limits);
    let mut lines: Vec<String> = Vec::new();
    let mut in_text = false;
    while let Some(event) = reader.next_event()? {
        let continues = in_text;
        in_text = matches!(event, Event::Text(_));
        let line = match event {
            Event::Text(text) => {
                assert!(!text.is_empty() && text.len() <= TEXT_PART);
                if continues {
                    lines.last_mut().unwrap().push_str(text);
                    continue;
                }
                format!("T{text}")
            }
            Event::StartDocument => "start".to_owned(),
            Event::EndDocument => "end".to_owned(),
            Event::StartElement { name, attributes } => {
                let mut line = format!("<{{{}}}{name}", name.namespace);
                for attribute in attributes {
                    let id = if attribute.is_id { "#" } else { "" };
                    let (name, value) = (&attribute.name, &attribute.value);
                    write!(line, " {{{}}}{name}{id}={value:?}", name.namespace).unwrap();
                }
                line
            }
            Event::EndElement { name } => format!("/{name}"),
            Event::Comment(text) => format!("C{text}"),
            Event::ProcessingInstruction { target, data } => format!("?{target}|{data}"),
        };
        lines.push(line);
    }
    assert!(reader.next_event()?.is_none());
    Ok(lines.join("\n"))
}

#[track_caller]
fn gives(document: &str, expected: &[&str]) {
    let found = dump(document.as_bytes()).unwrap_or_else(|error| panic!("{document}: {error}"));
    assert_eq!(found, format!("start\n{}\nend", expected.join("\n")), "{document}");
}

#[track_caller]
fn refused(document: &[u8]) -> ParseError {
    match dump(document) {
        Err(error) => error,
        Ok(events) => panic!("{}: {events}", String::from_utf8_lossy(document)),
    }
}

#[test]
fn events_carry_names_texts_and_attributes() {
    gives("<a/>", &["<{}a", "/a"]);
    gives(
        "\u{FEFF}<?xml version='1.0'?><!--c--><?pi  d ?><a b='1'>t<![CDATA[<]]>&amp;</a>\n<!--e-->",
        &["Cc", "?pi|d ", "<{}a {}b=\"1\"", "Tt<&", "/a", "Ce"],
    );
    gives("<a>x<!--y-->z</a >", &["<{}a", "Tx", "Cy", "Tz", "/a"]);
    gives("<a>]]&gt; ]] ]></a>", &["<{}a", "T]]> ]] ]>", "/a"]);
    gives("<!DOCTYPE a SYSTEM 'a.dtd'><a></a>", &["<{}a", "/a"]);
}

#[test]
fn namespaces_are_resolved() {
    let xmlns = "http://www.w3.org/2000/xmlns/";
    gives(
        "<a xmlns='u' xmlns:p='v' p:b='1' c='2'><p:d/><e xmlns=''/></a>",
        &[
            &format!(
                "<{{u}}a {{{xmlns}}}xmlns=\"u\" {{{xmlns}}}xmlns:p=\"v\" {{v}}p:b=\"1\" {{}}c=\"2\""
            ),
            "<{v}p:d",
            "/p:d",
            &format!("<{{}}e {{{xmlns}}}xmlns=\"\""),
            "/e",
            "/a",
        ],
    );
    gives(
        "<a xml:lang='x'/>",
        &["<{}a {http://www.w3.org/XML/1998/namespace}xml:lang=\"x\"", "/a"],
    );
}

#[test]
fn line_ends_and_values_are_normalised() {
    gives("<a>1\r\n2\r3&#13;</a>", &["<{}a", "T1\n2\n3\r", "/a"]);
    gives("<a b=' 1\r\n2\t3&#10;&#13;'/>", &["<{}a {}b=\" 1 2 3\\n\\r\"", "/a"]);
    gives("<a><!--\r\n--><?p \rx\r?></a>", &["<{}a", "C\n", "?p|x\n", "/a"]);
    gives(
        "<!DOCTYPE a [<!ATTLIST a i ID #IMPLIED n NMTOKENS #IMPLIED d CDATA ' x '>]>\
         <a i=' q ' n='&#32;1 \n 2 '/>",
        &["<{}a {}i#=\"q\" {}n=\"1 2\" {}d=\" x \"", "/a"],
    );
}

#[test]
fn entities_of_the_internal_subset_are_expanded() {
    gives(
        "<!DOCTYPE a [<!ENTITY e 'x&f;'><!ENTITY f '&#38;lt;'><!ENTITY e 'second'>]>\
         <a b='&e;'>&e;&e;</a>",
        &["<{}a {}b=\"x<\"", "Tx<x<", "/a"],
    );
    gives(
        "<!DOCTYPE a [<!ENTITY lt '&#38;#60;'><!ENTITY s '\t\n'>]><a b='&s;&lt;'>&lt;&s;</a>",
        &["<{}a {}b=\"  <\"", "T<\t\n", "/a"],
    );
}

/// Documents with one fault each.
const NOT_WELL_FORMED: &[&str] = &[
    "",
    " ",
    "x",
    "<",
    "<a",
    "<a>",
    "</a>",
    "<a></b>",
    "<a/><b/>",
    "<a/>x",
    "x<a/>",
    "&amp;<a/>",
    "<a/>&#32;",
    "<![CDATA[]]><a/>",
    "<a/><![CDATA[]]>",
    " <?xml version='1.0'?><a/>",
    "<?xml?><a/>",
    "<?xml version='2.0'?><a/>",
    "<?xml version='1.0' standalone='x'?><a/>",
    "<?xml version='1.0' standalone='yes' encoding='UTF-8'?><a/>",
    "<?xml version='1.0'encoding='UTF-8'?><a/>",
    "<a><?xml x?></a>",
    "<a><?XmL?></a>",
    "<a><?x:y z?></a>",
    "<a><??></a>",
    "<a><?x",
    "<a><?x\u{1}?></a>",
    "<a>]]></a>",
    "<a>&</a>",
    "<a>& </a>",
    "<a>&b</a>",
    "<a>&b;</a>",
    "<a>&#0;</a>",
    "<a>&#x110000;</a>",
    "<a>&#xD800;</a>",
    "<a>&#xFFFFFFFFFFF;</a>",
    "<a>&#;</a>",
    "<a>&#x;</a>",
    "<a>&#65</a>",
    "<a>\u{1}</a>",
    "<a>\u{FFFE}</a>",
    "<a b='\u{FFFF}'/>",
    "<a b='\u{2}'/>",
    "<!--\u{3}--><a/>",
    "<!----->",
    "<!--><a/>",
    "<!---><a/>",
    "<!-- -- --><a/>",
    "<!-- --->",
    "<!-x--><a/>",
    "<!x><a/>",
    "<!doctype a><a/>",
    "<!DOCTYPE><a/>",
    "<a><!DOCTYPE a></a>",
    "<!DOCTYPE a><!DOCTYPE a><a/>",
    "<a/><!DOCTYPE a>",
    "<!DOCTYPE a [<!ENTITY>]><a/>",
    "<!DOCTYPE a [<!ELEMENT a>]><a/>",
    "<!DOCTYPE a [<!ELEMENT a (b|c,d)>]><a/>",
    "<!DOCTYPE a [<!ATTLIST a b CDATA>]><a/>",
    "<!DOCTYPE a [<!-- -- -->]><a/>",
    "<!DOCTYPE a [<!ENTITY e '&'>]><a/>",
    "<!DOCTYPE a [<!ENTITY e '%p;'>]><a/>",
    "<!DOCTYPE a PUBLIC 'p'><a/>",
    "<!DOCTYPE a [ x ]><a/>",
    "<!DOCTYPE a []x><a/>",
    "<a b/>",
    "<a b=1/>",
    "<a b='1'c='2'/>",
    "<a b='<'/>",
    "<a b='&'/>",
    "<a b='1' b='2'/>",
    "<a xmlns:p='u' xmlns:q='u' p:b='' q:b=''/>",
    "<a p:b=''/>",
    "<p:a/>",
    "<a:/>",
    "<:a/>",
    "<a xmlns:xml='u'/>",
    "<a xmlns:p='http://www.w3.org/XML/1998/namespace'/>",
    "<a xmlns:xmlns='u'/>",
    "<a xmlns:p='http://www.w3.org/2000/xmlns/'/>",
    "<a xmlns:p=''/>",
    "<xmlns:a/>",
    "<a xmlns='http://www.w3.org/2000/xmlns/'/>",
    "<1/>",
    "<-a/>",
    "<a 1='2'/>",
    "< a/>",
    "<a / >",
    "<a></a b='1'>",
    "<a></ a>",
    "<a><![CDATA[</a>",
    "<a><![CDATA</a>",
    "<a><b></a></b>",
];

#[test]
fn documents_that_are_not_well_formed_are_refused() {
    for document in NOT_WELL_FORMED {
        refused(document.as_bytes());
    }
    for bytes in
        [&b"<a>\xFF</a>"[..], b"<a>\xC3</a>", b"<a b='\xC3'/>", b"<a>\xED\xA0\x80</a>", b"<a>\xE6"]
    {
        let kind = refused(bytes).kind;
        assert!(matches!(kind, ParseErrorKind::InvalidBytes("UTF-8")), "{bytes:?}: {kind}");
    }
}

#[test]
fn what_is_not_supported_has_an_error_of_its_own() {
    let kind = |document: &str| refused(document.as_bytes()).kind;
    let subset = |subset: &str, body: &str| kind(&format!("<!DOCTYPE a [{subset}]><a>{body}</a>"));
    assert!(matches!(kind("<?xml version='1.0' encoding='Latin-1'?><a/>"), Kind::Encoding(_)));
    assert!(matches!(kind("<?xml version='1.0' encoding='UTF-16'?><a/>"), Kind::Encoding(_)));
    assert!(matches!(subset("<!ENTITY e SYSTEM 'f'>", "&e;"), Kind::ExternalEntity(_)));
    assert!(matches!(subset("<!ENTITY e '<b/>'>", "&e;"), Kind::EntityWithMarkup(_)));
    assert!(matches!(subset("<!ENTITY % e ''> %e;", ""), Kind::ParameterEntity(_)));
    assert!(matches!(
        subset("<!ENTITY e '&f;'><!ENTITY f '&e;'>", "&e;"),
        Kind::RecursiveEntity(_)
    ));
    let section = subset("<!ENTITY e '<![CDATA[x]]>'>", "&e;");
    assert!(matches!(section, Kind::EntityWithMarkup(_)), "{section}");
}

#[test]
fn an_entity_that_only_the_external_subset_may_declare_is_refused_as_such() {
    let kind = |document: &str| refused(document.as_bytes()).kind;
    let external = "<!DOCTYPE a SYSTEM 'a.dtd'><a>&e;</a>";
    assert!(matches!(kind(external), Kind::UnreadEntity(_)));
    assert!(matches!(kind("<!DOCTYPE a><a>&e;</a>"), Kind::UnknownEntity(_)));
    for (standalone, is_unread) in [("yes", false), ("no", true)] {
        let text = format!("<?xml version='1.0' standalone='{standalone}'?>{external}");
        let found = kind(&text);
        assert_eq!(matches!(found, Kind::UnreadEntity(_)), is_unread, "{standalone}: {found}");
        assert_eq!(matches!(found, Kind::UnknownEntity(_)), !is_unread, "{standalone}: {found}");
    }
}

#[test]
fn the_name_of_a_namespace_is_normalised_by_the_type_of_its_attribute() {
    let subset = "<!ATTLIST a xmlns:p NMTOKEN #IMPLIED>";
    let document = format!("<!DOCTYPE a [{subset}]><a xmlns:p=' u ' xmlns:q='u'><p:b/></a>");
    let mut reader = XmlReader::new(document.as_bytes());
    let mut namespaces = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        if let Event::StartElement { name, .. } = event {
            namespaces.push(name.namespace.to_string());
        }
    }
    assert_eq!(namespaces, ["", "u"]);
    let twice = document.replace("<p:b/>", "<b p:c='' q:c=''/>");
    assert!(matches!(refused(twice.as_bytes()).kind, Kind::DuplicateAttribute(_)));
}

#[test]
fn entity_bombs_stop_at_the_limit() {
    let mut subset = "<!ENTITY e0 'ha'>".to_owned();
    for level in 1..30 {
        let inner = format!("&e{};", level - 1).repeat(10);
        write!(subset, "<!ENTITY e{level} '{inner}'>").unwrap();
    }
    let empty = subset.replace("'ha'", "''");
    for subset in [subset, empty] {
        for body in ["<a>&e29;</a>", "<a b='&e29;'/>"] {
            let document = format!("<!DOCTYPE a [{subset}]>{body}");
            let limits = Limits { expansion: 1 << 18, ..Limits::default() };
            let kind = dump_within(document.as_bytes(), limits).unwrap_err().kind;
            assert!(matches!(kind, ParseErrorKind::Limit { field: "expansion", .. }), "{kind}");
        }
    }
}

/// Four bytes of a document may have defaults of any length.
#[test]
fn defaults_of_attributes_do_not_multiply_a_document() {
    let document = |elements: usize, length: usize| {
        let (value, body) = ("v".repeat(length), "<b/>".repeat(elements));
        format!("<!DOCTYPE a [<!ATTLIST b k CDATA '{value}'>]><a>{body}</a>")
    };
    let expansion = 1 << 18;
    let limits = Limits { expansion, ..Limits::default() };
    let kind = dump_within(document(1_000, 10_000).as_bytes(), limits).unwrap_err().kind;
    assert!(matches!(kind, ParseErrorKind::Limit { field: "expansion", .. }), "{kind}");
    // Ordinary defaults are no matter, however long the document.
    dump_within(document(50_000, 40).as_bytes(), limits).unwrap();
}

#[test]
fn every_limit_is_kept() {
    let limits = Limits {
        depth: 3,
        attributes: 2,
        name_length: 5,
        markup: 1_000,
        namespaces: 2,
        expansion: 9,
    };
    let long = "x".repeat(200_000);
    for (document, field) in [
        ("<a><a><a><a/></a></a></a>".to_owned(), "depth"),
        ("<a b='' c='' d=''/>".to_owned(), "attributes"),
        ("<abcdef/>".to_owned(), "name_length"),
        (format!("<a b='{long}'/>"), "markup"),
        (format!("<a><!--{long}--></a>"), "markup"),
        ("<a xmlns:a='1' xmlns:b='2'><b xmlns:c='3'/></a>".to_owned(), "namespaces"),
        ("<!DOCTYPE a [<!ENTITY e '12345'>]><a>&e;&e;</a>".to_owned(), "expansion"),
        (
            "<!DOCTYPE a [<!ATTLIST a b CDATA '' c CDATA '' d CDATA ''>]><a/>".to_owned(),
            "attributes",
        ),
    ] {
        let error = dump_within(document.as_bytes(), limits).unwrap_err();
        match error.kind {
            ParseErrorKind::Limit { field: found, .. } => assert_eq!(found, field),
            kind => panic!("{field}: {kind}"),
        }
    }
    dump_within(&b"<a><a><a b='' c=''/></a></a>"[..], limits).unwrap();
}

#[test]
fn errors_say_the_place() {
    for (document, offset, line, column) in [
        ("<a>\n<b>é&x;</b></a>", 9, 2, 5),
        ("<a>\r\n  </b>", 7, 2, 3),
        ("<a\n b='1'\n c='<'/>", 14, 3, 5),
        ("<a>é\u{1}</a>", 5, 1, 5),
        ("<a>12]]></a>", 5, 1, 6),
        ("<a>", 3, 1, 4),
        ("<!DOCTYPE a [\n<!ENTITY e>]><a/>", 24, 2, 11),
    ] {
        let place = refused(document.as_bytes()).position;
        assert_eq!((place.offset, place.line, place.column), (offset, line, column), "{document}");
    }
}

#[test]
fn bytes_that_are_no_text_are_named_by_their_place() {
    for (bytes, column) in [
        (&b"<a>b\xFF</a>"[..], 5),
        (b"<a>b\xE6", 5),
        (b"<a b='\xFF'/>", 7),
        (b"<a \xFF='1'/>", 4),
        (b"<a b\xC3>", 5),
        (b"<!--\xFF--><a/>", 5),
        (b"<?p  \xFF?><a/>", 6),
        (b"<!DOCTYPE a [\xFF]><a/>", 14),
        (b"<?xml version='1.0' \xFF?><a/>", 21),
        (b"<a>&\xFF;</a>", 4),
        (b"<a>&e\xFF;</a>", 6),
        (b"\xFF<a/>", 1),
    ] {
        let error = refused(bytes);
        let at = (error.position.line, error.position.column);
        assert_eq!(at, (1, column), "{}: {error}", bytes.escape_ascii());
    }
    // Half of a pair, in UTF-16.
    let units = "<a>\n<b/>".encode_utf16().chain([0xDC00]).chain("</a>".encode_utf16());
    let bytes: Vec<u8> = units.flat_map(u16::to_le_bytes).collect();
    let error = refused(&bytes);
    assert_eq!((error.position.line, error.position.column), (2, 5), "{error}");
    assert!(matches!(error.kind, Kind::InvalidBytes("UTF-16")), "{error}");
    // What is wrong in front of it comes first, however the input is cut. Found by fuzzing.
    let bytes = b"\xFF\xFEd\0\x10<\0\xDC\0";
    let [whole, cut] = [8_192, 1]
        .map(|length| dump(BufReader::with_capacity(length, &bytes[..])).unwrap_err().to_string());
    assert!(whole.contains("outside the root element"), "{whole}");
    assert_eq!(whole, cut);
}

#[test]
fn utf_16_is_read_in_both_orders() {
    let document = "<?xml version='1.0' encoding='UTF-16'?><a b='é'>日本𝄞\r\n</a>";
    let expected = dump(document.replace("UTF-16", "UTF-8").as_bytes()).unwrap();
    for mark in ["\u{FEFF}", ""] {
        let units: Vec<u16> = format!("{mark}{document}").encode_utf16().collect();
        let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        for bytes in [little, big] {
            for capacity in [1, 3, 64] {
                assert_eq!(dump(BufReader::with_capacity(capacity, &bytes[..])).unwrap(), expected);
            }
            assert!(matches!(
                refused(&bytes[..bytes.len() - 1]).kind,
                ParseErrorKind::InvalidBytes("UTF-16")
            ));
        }
    }
    let lone = [0x3C, 0, 0x61, 0, 0x3E, 0, 0, 0xDC, 0x3C, 0];
    assert!(matches!(refused(&lone).kind, ParseErrorKind::InvalidBytes("UTF-16")));
}

/// A document of `left` bytes of text that exists nowhere as a whole.
struct LongText {
    head: &'static [u8],
    left: usize,
    tail: &'static [u8],
}

impl Read for LongText {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.head.is_empty() && self.left > 0 {
            let count = self.left.min(into.len());
            into[..count].fill(b'x');
            self.left -= count;
            return Ok(count);
        }
        let part = if self.head.is_empty() { &mut self.tail } else { &mut self.head };
        part.read(into)
    }
}

#[test]
fn long_text_and_sections_come_in_parts() {
    for (head, tail) in [(&b"<a>"[..], &b"</a>"[..]), (b"<a><![CDATA[", b"]]></a>")] {
        let length = 20_000_000;
        let mut reader = XmlReader::new(BufReader::new(LongText { head, left: length, tail }));
        let mut found = 0;
        while let Some(event) = reader.next_event().unwrap() {
            if let Event::Text(text) = event {
                assert!(text.len() <= TEXT_PART);
                found += text.len();
            }
        }
        assert_eq!(found, length);
    }
}

#[test]
fn a_document_gives_the_same_wherever_the_input_is_cut() {
    let seed = 11;
    let mut random = SplitMix64::new(seed);
    for number in 0..150 {
        let mut document = parse_documents::document(&mut random, number % 2 == 0);
        if number % 3 == 0 {
            document = parse_documents::mutate(&mut random, &document);
        }
        let whole = dump(document.as_bytes()).map_err(|error| error.to_string());
        for capacity in [1, 2, 7, 64] {
            let cut = dump(BufReader::with_capacity(capacity, document.as_bytes()));
            assert_eq!(cut.map_err(|error| error.to_string()), whole, "seed {seed}: {document}");
        }
    }
}

#[test]
fn text_over_a_part_keeps_its_characters() {
    let seed = 5;
    let mut random = SplitMix64::new(seed);
    let mut text = String::new();
    while text.len() < 3 * TEXT_PART {
        text.push_str(parse_documents::pick(&mut random, &["日", "é", "x", "𝄞", "\u{FFFD}"]));
    }
    gives(&format!("<a>{text}</a>"), &["<{}a", &format!("T{text}"), "/a"]);
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
        let _ = dump(&bytes[..]);
        let _ = dump(&[b"<a>", &bytes[..]].concat()[..]);
        let _ = dump(&[b"<a ", &bytes[..]].concat()[..]);
        let _ = dump(&[b"<!DOCTYPE a [<!", &bytes[..]].concat()[..]);
        let _ = dump(&[b"\xFF\xFE", &bytes[..]].concat()[..]);
    }

    #[test]
    fn no_markup_makes_the_reader_panic(
        text in "[<>&;!\\[\\]?/='\" a:x#%\\-éDOCTYPEATLISN(|,)*]{0,60}"
    ) {
        let _ = dump(text.as_bytes());
        let _ = dump(format!("<!DOCTYPE a [<!{text}").as_bytes());
        let _ = dump(format!("<a>{text}</a>").as_bytes());
    }
}
