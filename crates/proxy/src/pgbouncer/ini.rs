//! The format of `pgbouncer.ini`: sections, keys, `%include`, and connection strings.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Files may include others so deep.
const INCLUDE_DEPTH_MAX: usize = 10;

/// Why a configuration of PgBouncer cannot be read.
#[derive(Debug, Error)]
pub enum ImportError {
    /// A file cannot be read.
    #[error("{}: cannot read it: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// A line makes no sense.
    #[error("{}: line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// A line of the file that sets something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) section: String,
    pub(super) key: String,
    pub(super) value: String,
    /// `file:line`, for people.
    pub(super) origin: String,
}

/// Reads a file and those that it includes.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, ImportError> {
    let (mut entries, mut section) = (Vec::new(), String::new());
    read_into(path, 0, &mut section, &mut entries)?;
    Ok(entries)
}

fn read_into(
    path: &Path,
    depth: usize,
    section: &mut String,
    entries: &mut Vec<Entry>,
) -> Result<(), ImportError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ImportError::Read { path: path.to_owned(), source })?;
    for (index, line) in text.lines().enumerate() {
        let wrong = |problem| ImportError::Line { path: path.to_owned(), line: index + 1, problem };
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        if let Some(name) = line.strip_prefix("%include") {
            if depth >= INCLUDE_DEPTH_MAX {
                return Err(wrong("files include one another too deep"));
            }
            // Relative to the working directory, as PgBouncer takes it.
            read_into(Path::new(name.trim()), depth + 1, section, entries)?;
        } else if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').ok_or_else(|| wrong("a section's name has no ]"))?;
            name.trim().clone_into(section);
        } else {
            let (key, value) = line.split_once('=').ok_or_else(|| wrong("there is no ="))?;
            let key = key.trim();
            let key = match key.strip_prefix('"').and_then(|key| key.strip_suffix('"')) {
                Some(quoted) => quoted.replace("\"\"", "\""),
                None => key.to_owned(),
            };
            entries.push(Entry {
                section: section.clone(),
                key,
                value: value.trim().to_owned(),
                origin: format!("{}:{}", path.display(), index + 1),
            });
        }
    }
    Ok(())
}

/// Reads a connection string: `key=value key='quoted value'`. `None` if it makes no sense.
pub(super) fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let (mut pairs, mut rest) = (Vec::new(), text.trim_start());
    while !rest.is_empty() {
        let (key, behind) = rest.split_once('=')?;
        let key = key.trim();
        if key.is_empty() || key.contains(char::is_whitespace) {
            return None;
        }
        let behind = behind.trim_start();
        let value;
        (value, rest) = if let Some(quoted) = behind.strip_prefix('\'') {
            quoted_value(quoted)?
        } else {
            let end = behind.find(char::is_whitespace).unwrap_or(behind.len());
            (behind[..end].to_owned(), &behind[end..])
        };
        pairs.push((key.to_ascii_lowercase(), value));
        rest = rest.trim_start();
    }
    Some(pairs)
}

/// Returns the value up to its closing quote, and what follows.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let (mut value, mut characters) = (String::new(), text.char_indices().peekable());
    loop {
        let (index, character) = characters.next()?;
        if character != '\'' {
            value.push(character);
        } else if characters.next_if(|(_, next)| *next == '\'').is_some() {
            value.push('\'');
        } else {
            return Some((value, &text[index + 1..]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn connection_strings_are_read() {
        let read = |text| {
            pairs(text).map(|it| {
                let pairs = it.into_iter().map(|(key, value)| format!("{key}:{value}"));
                pairs.collect::<Vec<_>>().join(" ")
            })
        };
        assert_eq!(read(""), Some(String::new()));
        assert_eq!(read("host=a PORT = 7"), Some("host:a port:7".into()));
        assert_eq!(read("password='it''s' dbname=d"), Some("password:it's dbname:d".into()));
        assert_eq!(read("user='' host=h"), Some("user: host:h".into()));
        for text in ["host", "password='open", "a b=1", "=1"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = pairs(&text);
        }

        #[test]
        fn quoted_values_are_read_back(value in "[^\0]{0,20}") {
            let text = format!("a='{}' b=2", value.replace('\'', "''"));
            let expected = vec![("a".to_owned(), value), ("b".to_owned(), "2".to_owned())];
            prop_assert_eq!(pairs(&text), Some(expected));
        }
    }
}
