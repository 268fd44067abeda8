//! Generates documents, and queries from their root that indexes can serve.

use std::fmt::Write;

use tidegate_random::SplitMix64;

fn pick<'a>(random: &mut SplitMix64, from: &[&'a str]) -> &'a str {
    let count = u32::try_from(from.len()).expect("a short list");
    from[random.next_below(count) as usize]
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const VALUES: [&str; 10] =
    ["1", "2.50", " 7 ", "1e3", "word", "", "-0", "two words", "two", " words"];

/// Appends an element with attributes, texts, comments and elements.
fn element(random: &mut SplitMix64, depth: u32, text: &mut String) {
    let name = pick(random, &NAMES);
    write!(text, "<{name}").expect("memory");
    for attribute in NAMES {
        if random.next_chance(0.4) {
            write!(text, " {attribute}='{}'", pick(random, &VALUES)).expect("memory");
        }
    }
    text.push('>');
    for _ in 0..random.next_below(5) {
        match random.next_below(4) {
            0 => text.push_str(pick(random, &VALUES)),
            1 => text.push_str("<!--x-->"),
            _ if depth > 0 => element(random, depth - 1, text),
            _ => text.push_str(pick(random, &VALUES)),
        }
    }
    write!(text, "</{name}>").expect("memory");
}

/// A document of some hundred nodes.
pub(crate) fn document(random: &mut SplitMix64) -> String {
    let mut text = String::from("<a>");
    for _ in 0..6 {
        element(random, 4, &mut text);
    }
    text.push_str("</a>");
    text
}

/// An absolute path with comparisons of which many are for an index.
pub(crate) fn expression(random: &mut SplitMix64) -> String {
    let mut text = String::new();
    for _ in 0..=random.next_below(3) {
        text.push_str(pick(random, &["/", "//", "//", "/descendant::"]));
        text.push_str(pick(random, &["a", "b", "c", "*"]));
    }
    for _ in 0..random.next_below(3) {
        let operand = pick(random, &["@a", "@b", "@c", "text()", "a", "b/text()", "@*", "."]);
        let operator = pick(random, &["=", "=", "=", "!=", "<", "<=", ">", ">="]);
        let value = pick(random, &VALUES);
        let constant = pick(random, &["1", "2.5", "7", "-1", "(0 div 0)"]);
        match random.next_below(5) {
            0 | 1 => write!(text, "[{operand}{operator}'{value}']"),
            2 => write!(text, "[{operand}{operator}{constant}]"),
            3 => write!(text, "[{constant}{operator}{operand}]"),
            _ => write!(text, "[{operand}{operator}'{value}' and @a{operator}{constant}]"),
        }
        .expect("memory");
    }
    let rest = ["", "", "", "[1]", "[last()]", "/..", "/@a", "/text()", "/a", "//b", "/@b/.."];
    text.push_str(pick(random, &rest));
    text
}
