//! Passwords taken out of text that is kept or shown.
//!
//! A URL is what stands before and behind `://` without white space and quotes. Its password stands
//! between the first `:` behind that and the last `@`. Taken out, it leaves a URL of the same place
//! and TOML of the same form, also in comments and in lines that are no TOML at all.
//!
//! Limits: a password with a quote or white space that is not percent-encoded is not seen as a
//! whole; [`spans`] finds those that stand in the file's `url` keys.

use toml::de::{DeTable, DeValue};

/// The text without the passwords of its URLs.
pub(super) fn redacted(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find("://") {
        let (before, behind) = rest.split_at(place + "://".len());
        kept.push_str(before);
        let ends = |letter: char| letter.is_whitespace() || letter == '"' || letter == '\'';
        let (url, after) = behind.split_at(behind.find(ends).unwrap_or(behind.len()));
        kept.push_str(&without_password(url));
        rest = after;
    }
    kept.push_str(rest);
    kept
}

/// A message without the passwords of its URLs, each of which may take the rest of its line: what
/// is left out too much is not missed there.
pub(super) fn shown(message: &str) -> String {
    let line = |line: &str| match line.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", without_password(rest)),
        None => line.to_owned(),
    };
    message.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// What stands behind `://`, without its password.
fn without_password(url: &str) -> String {
    match (url.find(':'), url.rfind('@')) {
        (Some(colon), Some(at)) if colon < at => format!("{}{}", &url[..colon], &url[at..]),
        _ => url.to_owned(),
    }
}

/// An experiment file as it is kept: without the passwords of `url` keys and of all other URLs.
pub(super) fn kept(text: &str) -> String {
    let Ok(document) = DeTable::parse(text) else { return redacted(text) };
    let mut spans = spans(document.get_ref());
    // From the last to the first, so that those before keep their places.
    spans.sort_by_key(|span| std::cmp::Reverse(span.0));
    let mut text = text.to_owned();
    for (begin, end, url) in spans {
        let bare = url
            .split_once("://")
            .map(|(scheme, rest)| format!("{scheme}://{}", without_password(rest)));
        if let Some(bare) = bare.filter(|bare| *bare != url) {
            text.replace_range(begin..end, &quoted(&bare));
        }
    }
    redacted(&text)
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let escaped = |letter: char| match letter {
        '"' | '\\' => format!("\\{letter}"),
        _ if letter.is_control() => format!("\\u{:04X}", u32::from(letter)),
        _ => letter.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

/// Where the values of `subject.NAME.url` begin and end, in the file and in its presets.
fn spans(document: &DeTable<'_>) -> Vec<(usize, usize, String)> {
    let presets = tables(document, "preset");
    let subjects = presets.into_iter().chain([document]).flat_map(|top| tables(top, "subject"));
    subjects
        .filter_map(|subject| {
            let (_, value) = subject.iter().find(|(key, _)| key.get_ref() == "url")?;
            let DeValue::String(url) = value.get_ref() else { return None };
            Some((value.span().start, value.span().end, url.to_string()))
        })
        .collect()
}

/// The tables in a table of tables.
fn tables<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> Vec<&'t DeTable<'i>> {
    let of = table.iter().find(|(key, _)| key.get_ref() == name);
    let of = of.and_then(|(_, value)| value.get_ref().as_table());
    of.into_iter()
        .flat_map(|of| of.iter())
        .filter_map(|(_, one)| one.get_ref().as_table())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_left_and_nothing_else_is_gone() {
        for (text, expected) in [
            ("postgres://ann:secret@h:7/d", "postgres://ann@h:7/d"),
            ("a = \"mysql://ann:s@cret@h\" # b", "a = \"mysql://ann@h\" # b"),
            ("# 'firebird://a:b@h/x'\nc = 1\n", "# 'firebird://a@h/x'\nc = 1\n"),
            (
                "postgres://h:7/d and postgres://ann@h:7/d",
                "postgres://h:7/d and postgres://ann@h:7/d",
            ),
            ("no URL", "no URL"),
            ("://", "://"),
        ] {
            assert_eq!(redacted(text), expected);
        }
        let message = shown("2 | url = \"mysql://ann:it's s\\\"cret@h\"\n  | ^ no");
        assert_eq!(message, "2 | url = \"mysql://ann@h\"\n  | ^ no");
    }

    #[test]
    fn a_file_is_kept_as_it_is_but_for_its_passwords() {
        let file = r#"
name = "x" # postgres://ann:secret@h/d
[subject.postgres]
url = "postgres://ann:a sec'ret@h/d"
[preset.big]
subject = { mariadb = { url = 'mysql://bob:secret@h/', isolation = "serializable" } }
"#;
        let kept = kept(file);
        assert!(!kept.contains("secret") && !kept.contains("ret@"), "{kept}");
        let expected = file
            .replace(":secret@", "@")
            .replace("\"postgres://ann:a sec'ret@h/d\"", "\"postgres://ann@h/d\"");
        assert_eq!(kept.replace('\'', "\""), expected.replace('\'', "\""));
    }
}
