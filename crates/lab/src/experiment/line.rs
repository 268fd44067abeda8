//! Which line of an experiment file a complaint about its values is about.
//!
//! TOML's own errors name a line. A value that is well formed and fits nothing else is found later,
//! by its key: a complaint names keys in backticks, as in "`ctl` must be longer than nothing". A
//! key in a table is named with the table's, as in `subject.postgres.url`. The line is that of the
//! first of these keys that the file has, in the chosen preset before the rest.
//!
//! One that names no key of the file, or a value in backticks, as in "no mix is called `odd`", is
//! about the workload or the factors. There is no line for what the file does not have: a key that
//! is missing, or a place that the command line gave.

use toml::de::DeTable;

/// What a complaint is about that names no key of the file.
const CONTENT: [&str; 2] = ["workload", "factors"];

/// The complaint, with the line in front where the file has one.
pub(super) fn with_line(text: &str, preset: Option<&str>, complaint: &str) -> String {
    match line(text, preset, complaint) {
        Some(line) => format!("line {line}: {complaint}"),
        None => complaint.to_owned(),
    }
}

fn line(text: &str, preset: Option<&str>, complaint: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let presets = table(document.get_ref(), "preset");
    let chosen = presets.zip(preset).and_then(|(presets, name)| table(presets, name));
    let named: Vec<&str> = complaint.split('`').skip(1).step_by(2).collect();
    let tables = || chosen.into_iter().chain([document.get_ref()]);
    let first =
        |keys: &[&str]| keys.iter().find_map(|key| tables().find_map(|table| place(table, key)));
    let is_elsewhere = is_about_what_is_not_there(complaint, &named);
    let place = first(&named).or_else(|| (!is_elsewhere).then(|| first(&CONTENT))?)?;
    let before = text.get(..place)?;
    Some(before.matches('\n').count() + 1)
}

/// Whether a key is wanted that is missing, or something is wrong with a subject of which the file
/// says nothing.
fn is_about_what_is_not_there(complaint: &str, named: &[&str]) -> bool {
    complaint.contains("` is missing")
        || complaint.contains("needs `")
        || named.iter().any(|key| key.starts_with("subject."))
}

/// Where a key begins, in bytes of the file.
fn place(table: &DeTable<'_>, name: &str) -> Option<usize> {
    if let Some((outer, inner)) = name.split_once('.') {
        return place(self::table(table, outer)?, inner);
    }
    let (key, _) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    Some(key.span().start)
}

fn table<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> Option<&'t DeTable<'i>> {
    let (_, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    value.get_ref().as_table()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "a = 1\nb = 2\n\n[workload]\nkind = 3\n\n[preset.long]\nb = 4\n";

    #[test]
    fn the_first_key_that_the_file_has_is_named() {
        for (complaint, preset, expected) in [
            ("`a` is too small", None, Some(1)),
            ("`x` does not fit `b`", None, Some(2)),
            ("`b` is too large", Some("long"), Some(8)),
            ("`a` is too small", Some("long"), Some(1)),
            ("`b` is too large", Some("short"), Some(2)),
            ("a kind of 3", None, Some(4)),
            ("`x` is missing", None, None),
            ("`preset.long.b` is far", None, Some(8)),
            ("`subject.x.url` is far", None, None),
            ("a controller needs `clients`", None, None),
            ("`odd` is no kind", None, Some(4)),
            ("`odd` is no kind of `b`", None, Some(2)),
        ] {
            assert_eq!(line(FILE, preset, complaint), expected, "{complaint}");
        }
        assert_eq!(with_line(FILE, None, "`b` is 2"), "line 2: `b` is 2");
        assert_eq!(with_line(FILE, None, "`x` is missing"), "`x` is missing");
    }
}
