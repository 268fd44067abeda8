//! Bytes as a document or a fragment. The first byte says which, and into which pieces the input is
//! cut: events and errors must not depend on that. What is accepted is written as text and in
//! canonical form; reading those gives the same events, and writing them the same form.

#![no_main]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};

use libfuzzer_sys::fuzz_target;
use tidegate_xml::parse::{Event, ParseError, XmlReader};
use tidegate_xml::serialize::XmlWriter;

/// Text that is produced from an input of a few KiB: more is a way to fill a store.
const LARGEST: usize = 64 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, text)) = bytes.split_first() else { return };
    let is_fragment = first & 1 == 1;
    let pieces = usize::from(first >> 1) + 1;
    let whole = events(reader(text, is_fragment));
    let cut = events(reader(BufReader::with_capacity(pieces, text), is_fragment));
    match (&whole, &cut) {
        (Ok(whole), Ok(cut)) => assert_eq!(whole, cut),
        (Err(whole), Err(cut)) => assert_eq!(whole.to_string(), cut.to_string()),
        _ => panic!("accepted once: {whole:?} and {cut:?}"),
    }
    let Ok(expected) = whole else { return };
    if is_fragment {
        return;
    }
    let plain = rewrite(text, XmlWriter::new(Vec::new()));
    let again = events(reader(&plain[..], false)).expect("what was written is well-formed");
    assert_eq!(again, expected);
    let canonical = rewrite(text, XmlWriter::canonical(Vec::new(), true));
    assert_eq!(rewrite(&plain, XmlWriter::canonical(Vec::new(), true)), canonical);
    assert_eq!(rewrite(&canonical, XmlWriter::canonical(Vec::new(), true)), canonical);
});

fn reader<R: BufRead>(input: R, is_fragment: bool) -> XmlReader<R> {
    if is_fragment { XmlReader::fragment(input, &[]) } else { XmlReader::new(input) }
}

/// All events, those of one text together, without what a text does not say: which attributes are
/// IDs.
fn events<R: BufRead>(mut reader: XmlReader<R>) -> Result<String, ParseError> {
    let mut all = String::new();
    let mut in_text = false;
    while let Some(event) = reader.next_event()? {
        assert!(all.len() < LARGEST, "{} bytes of events", all.len());
        let continues = in_text;
        in_text = matches!(event, Event::Text(_));
        let written = match event {
            Event::Text(text) if continues => write!(all, "{text}"),
            Event::Text(text) => write!(all, "\nT{text}"),
            Event::StartElement { name, attributes } => {
                write!(all, "\n<{{{}}}{name}", name.namespace).expect("memory");
                attributes.iter().try_for_each(|attribute| {
                    let name = &attribute.name;
                    write!(all, " {{{}}}{name}={:?}", name.namespace, attribute.value)
                })
            }
            other => write!(all, "\n{other:?}"),
        };
        written.expect("memory");
    }
    assert!(reader.next_event()?.is_none());
    Ok(all)
}

fn rewrite(text: &[u8], mut writer: XmlWriter<Vec<u8>>) -> Vec<u8> {
    let mut reader = XmlReader::new(text);
    while let Some(event) = reader.next_event().expect("it was read before") {
        writer.write(event).expect("events of a document can be written");
    }
    writer.finish().expect("the document has ended")
}
