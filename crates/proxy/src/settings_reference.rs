//! `docs/settings.md`, made from `docs/tidegate.toml`, whose defaults other tests compare with the
//! code, and from the table of PgBouncer's settings.

use std::fmt::Write;

use crate::pgbouncer::pgbouncer_names;
use crate::reload::RESTART_NEEDED;

/// A line of the file that sets something, perhaps in a comment.
struct Entry<'a> {
    key: &'a str,
    value: &'a str,
    is_default: bool,
}

/// Returns the key and the value if the line sets something.
fn entry(line: &str) -> Option<Entry<'_>> {
    let (text, is_default) = match line.strip_prefix("# ") {
        Some(rest) => (rest, false),
        None => (line, true),
    };
    let (key, value) = text.split_once(" = ")?;
    let is_key = key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_key.then_some(Entry { key, value, is_default })
}

/// Makes a name of the file general: `[databases."*"]` stands for each database.
fn general(section: &str) -> String {
    match section.split_once('.') {
        Some((kind, _)) => format!("{kind}.NAME"),
        None => section.to_owned(),
    }
}

fn reference(toml: &str) -> String {
    let (mut out, mut section, mut comment) = (String::new(), String::new(), Vec::new());
    let mut is_first = true;
    for line in toml.lines() {
        if line.is_empty() {
            if is_first {
                // What is said of the file as a whole.
                comment.clear();
            }
            is_first = false;
        } else if let Some(name) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            section = general(name);
            let _ = write!(out, "\n## `[{section}]`\n\n{}", paragraph(&comment));
            comment.clear();
        } else if let Some(Entry { key, value, is_default }) = entry(line) {
            let prefix = if section.is_empty() { String::new() } else { format!("{section}.") };
            let _ = write!(out, "\n### `{prefix}{key}`\n\n");
            if comment.is_empty() {
                out.push_str("As the one above.\n\n");
            } else {
                let _ = writeln!(out, "{}", paragraph(&comment));
            }
            let word = if is_default { "Default" } else { "Example" };
            let _ = writeln!(out, "{word}: `{value}`");
            let names = pgbouncer_names(&format!("{prefix}{key}"));
            if RESTART_NEEDED.contains(&&*format!("{prefix}{key}")) {
                out.push_str("\nA change needs a restart.\n");
            }
            if !names.is_empty() {
                let _ = writeln!(out, "\nPgBouncer: `{}`", names.join("`, `"));
            }
            comment.clear();
        } else if let Some(text) = line.strip_prefix('#') {
            comment.push(text.strip_prefix(' ').unwrap_or(text));
        }
    }
    out
}

/// Returns the lines of a comment; those that are indented stand as they are.
fn paragraph(comment: &[&str]) -> String {
    let mut out = String::new();
    let mut is_fenced = false;
    for line in comment {
        if line.starts_with(' ') != is_fenced {
            out.push_str("```\n");
            is_fenced = !is_fenced;
        }
        // What looks like a tag would not be shown.
        let line = if is_fenced { (*line).to_owned() } else { line.replace('<', "&lt;") };
        let _ = writeln!(out, "{line}");
    }
    if is_fenced {
        out.push_str("```\n");
    }
    out
}

/// `UPDATE_DOCS=1` writes it.
#[test]
fn the_reference_is_that_of_the_file() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let toml = std::fs::read_to_string(format!("{docs}/tidegate.toml")).unwrap();
    let path = format!("{docs}/settings.md");
    crate::documented::compare(&path, "settings", &reference(&toml));
}
