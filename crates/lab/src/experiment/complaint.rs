//! Complaints about the values of an experiment file, and the lines that they are about.
//!
//! TOML's own errors name a line. A value that is well formed and fits nothing else is found later:
//! its [`Complaint`] says which key it is about, and the line is that of the key in the file, or in
//! the chosen preset. There is no line for what the file does not have: a key that is missing, or a
//! place that the command line gave.

use std::fmt;

use toml::de::DeTable;

use super::file::Document;
use super::workload::WorkloadError;

/// What a complaint is about whose key the file does not have.
const CONTENT: [&str; 2] = ["workload", "factors"];

/// A value that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    /// The keys it is about, those in tables with a dot; its line is that of the first that the
    /// file has.
    keys: Vec<String>,
    text: String,
}

impl Complaint {
    /// A complaint about a key of the file. The text begins with the key.
    pub(super) fn about(key: &str, text: impl fmt::Display) -> Self {
        let keys = [key].into_iter().chain(CONTENT).map(str::to_owned).collect();
        Complaint { keys, text: format!("`{key}`{text}") }
    }

    /// A complaint about a key of a subject's table. It has no line where the file says nothing of
    /// the subject.
    pub(super) fn about_subject(subject: impl fmt::Display, key: &str, text: &str) -> Self {
        Complaint::about_key(&format!("subject.{subject}.{key}"), text)
    }

    /// A complaint about a key that stands in a table, with a dot. It has no line where the file
    /// does not have the key.
    pub(super) fn about_key(key: &str, text: impl fmt::Display) -> Self {
        Complaint { keys: vec![key.to_owned()], text: format!("`{key}`{text}") }
    }

    /// A complaint about the first of several keys that the file has.
    pub(super) fn about_one_of(keys: &[&str], text: impl Into<String>) -> Self {
        Complaint { keys: keys.iter().map(|&key| key.to_owned()).collect(), text: text.into() }
    }

    /// A complaint about the workload or the factors as a whole.
    pub(super) fn about_content(text: impl fmt::Display) -> Self {
        Complaint::about_one_of(&CONTENT, text.to_string())
    }

    /// A complaint that something is not in the file.
    pub(super) fn missing(text: impl Into<String>) -> Self {
        Complaint::about_one_of(&[], text)
    }

    /// Returns the complaint as text, with the line in front where the file has one.
    pub(super) fn with_line(&self, text: &str, preset: Option<&str>) -> String {
        let document = Document::parse(text).ok().and_then(|document| document.with(preset).ok());
        let place = document.and_then(|table| self.keys.iter().find_map(|key| place(&table, key)));
        match place.and_then(|place| text.get(..place)) {
            Some(before) => format!("line {}: {self}", before.matches('\n').count() + 1),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<WorkloadError> for Complaint {
    fn from(error: WorkloadError) -> Self {
        Complaint::about_content(error)
    }
}

/// Returns where a key begins, in bytes of the file.
fn place(table: &DeTable<'_>, name: &str) -> Option<usize> {
    if let Some((outer, inner)) = name.split_once('.') {
        return place(table.get(outer)?.get_ref().as_table()?, inner);
    }
    table.get_key_value(name).map(|(key, _)| key.span().start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "a = 1\nb = 2\n\n[workload]\nkind = 3\n\n[preset.long]\nb = 4\n";

    #[test]
    fn the_first_key_that_the_file_has_is_named() {
        let about = |key: &str| Complaint::about(key, " is too small");
        for (complaint, preset, expected) in [
            (about("a"), None, "line 1: `a` is too small"),
            (about("b"), Some("long"), "line 8: `b` is too small"),
            (about("a"), Some("long"), "line 1: `a` is too small"),
            (about("b"), None, "line 2: `b` is too small"),
            (about("x"), None, "line 4: `x` is too small"),
            (Complaint::about_one_of(&["x", "b"], "`x` does not fit `b`"), None, "line 2: `x` do"),
            (Complaint::about_content("a kind of 3"), None, "line 4: a kind of 3"),
            (Complaint::missing("`x` is missing"), None, "`x` is missing"),
            (Complaint::about_subject("x", "url", " is far"), None, "`subject.x.url` is far"),
            (about("workload.kind"), None, "line 5: `workload.kind`"),
        ] {
            let text = complaint.with_line(FILE, preset);
            assert!(text.starts_with(expected), "{text}");
        }
    }
}
