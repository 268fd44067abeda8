//! Documents from a seed: well-formed ones, and what is left of them after small changes.

#![allow(dead_code, reason = "each test uses a part of this")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use tidegate_random::SplitMix64;

const NAMES: [&str; 8] = ["a", "b", "item", "x-1", "_y.z", "p:c", "q:d", "né"];
const TEXTS: [&str; 16] = [
    "word",
    " ",
    "\n",
    "\r\n",
    "\r",
    "\t",
    "é",
    "日本",
    "𝄞",
    "&amp;",
    "&lt;",
    "&#65;",
    "&#x1D11E;",
    "]]",
    "<![CDATA[<&]] >]]>",
    "]&gt;",
];
const VALUES: [&str; 14] = [
    "v", " ", "  two  ", "\n", "\t", "\r\n", "&quot;", "&apos;", "&#10;", "&#9;", "é", ">", "]]>",
    "&lt;",
];
const MISC: [&str; 6] =
    ["<!---->", "<!-- c -->", "<?pi?>", "<?pi  d ?>", "<!-- é\r\n -->", "<?p x?>"];

pub(crate) fn pick<'t>(random: &mut SplitMix64, list: &[&'t str]) -> &'t str {
    list[random.next_below(u32::try_from(list.len()).unwrap()) as usize]
}

/// A well-formed document. With `document_type` also one of these, with entities and defaults.
pub(crate) fn document(random: &mut SplitMix64, document_type: bool) -> String {
    let mut text = String::new();
    if random.next_chance(0.5) {
        text.push_str("<?xml version=\"1.0\" encoding='UTF-8' standalone=\"yes\" ?>\n");
    }
    if random.next_chance(0.3) {
        text.push_str(pick(random, &MISC));
    }
    if document_type {
        text.push_str(
            "<!DOCTYPE root [\n<!ENTITY e 'text &#38;amp; more'>\n<!ENTITY f \"&e;&#x20;&e;\">\
             <!-- c --><?pi in?>\n<!ELEMENT a (b|(c,d*)+)?><!ELEMENT b (#PCDATA|a)*>\
             <!ATTLIST a id ID #IMPLIED k (u|v) 'v' n NMTOKENS #IMPLIED c CDATA ' d '>\n\
             <!NOTATION no SYSTEM 'x'><!ENTITY ext SYSTEM 'file'>\n]>\n",
        );
    }
    text.push_str("<root xmlns:p='urn:p' xmlns:q=\"urn:q\">");
    children(random, &mut text, document_type, 0);
    text.push_str("</root>");
    for _ in 0..random.next_below(3) {
        text.push_str(pick(random, &MISC));
        text.push_str(pick(random, &["\n", "", " "]));
    }
    text
}

fn children(random: &mut SplitMix64, text: &mut String, entities: bool, depth: u32) {
    for _ in 0..random.next_below(6) {
        match random.next_below(10) {
            0..4 if depth < 5 => element(random, text, entities, depth),
            4 => text.push_str(pick(random, &MISC)),
            5 if entities => text.push_str(pick(random, &["&e;", "&f;"])),
            _ => text.push_str(pick(random, &TEXTS)),
        }
    }
}

fn element(random: &mut SplitMix64, text: &mut String, entities: bool, depth: u32) {
    let name = pick(random, &NAMES);
    write!(text, "<{name}").unwrap();
    let mut used: Vec<&str> = Vec::new();
    let attributes =
        ["a", "b", "id", "n", "p:a", "q:a", "xml:lang", "xmlns", "xmlns:p", "xmlns:r", "c"];
    for _ in 0..random.next_below(4) {
        let attribute = pick(random, &attributes);
        if used.contains(&attribute) {
            continue;
        }
        used.push(attribute);
        let value = match attribute {
            "xmlns" => pick(random, &["", "urn:d", "urn:e"]).to_owned(),
            "xmlns:p" | "xmlns:r" => pick(random, &["urn:p", "urn:r"]).to_owned(),
            _ => (0..random.next_below(4)).map(|_| pick(random, &VALUES)).collect(),
        };
        let quote = pick(random, &["'", "\""]);
        let space = pick(random, &[" ", "\n", "  "]);
        write!(text, "{space}{attribute}={quote}{value}{quote}").unwrap();
    }
    if random.next_chance(0.2) {
        text.push_str("/>");
        return;
    }
    text.push('>');
    children(random, text, entities, depth + 1);
    write!(text, "</{name}>").unwrap();
}

const INSERTED: [&str; 40] = [
    "<",
    ">",
    "&",
    "\"",
    "'",
    "]]>",
    "--",
    "-->",
    "<!--",
    "<?xml?>",
    "<?XML x?>",
    "<?x",
    "?>",
    "</a>",
    "<a>",
    "<a/>",
    "&undeclared;",
    "&#0;",
    "&#xFFFE;",
    "&#x110000;",
    "&#;",
    "\u{1}",
    "\u{FFFF}",
    "\u{FFFD}",
    "xmlns:xml='u'",
    " xmlns:p=''",
    " a='1' a='2'",
    "un:bound",
    "=",
    "/",
    "!",
    "%",
    ";",
    "<![CDATA[",
    "<!DOCTYPE a>",
    " ",
    "\u{B7}",
    ":",
    "1",
    "[",
];

/// Changes a document in one or two places.
pub(crate) fn mutate(random: &mut SplitMix64, text: &str) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for _ in 0..=random.next_below(2) {
        let length = u32::try_from(characters.len()).unwrap();
        let at = random.next_below(length) as usize;
        let count = (1 + random.next_below(4) as usize).min(characters.len() - at);
        match random.next_below(4) {
            0 => drop(characters.drain(at..at + count)),
            1 => {
                let copy: Vec<char> = characters[at..at + count].to_vec();
                characters.splice(at..at, copy);
            }
            2 => drop(characters.splice(at..=at, pick(random, &INSERTED).chars())),
            _ => drop(characters.splice(at..at, pick(random, &INSERTED).chars())),
        }
        if characters.is_empty() {
            break;
        }
    }
    characters.into_iter().collect()
}

/// Runs `xmllint` in a directory. `None`, with a note, if it is not installed.
pub(crate) fn xmllint(directory: &Path, arguments: &[String]) -> Option<std::process::Output> {
    match Command::new("xmllint").current_dir(directory).args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("skipped, xmllint cannot be run: {error}; install libxml2-utils");
            None
        }
    }
}
