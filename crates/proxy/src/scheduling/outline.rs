//! What is seen of a statement's text before it runs: its comments for the proxy.
//!
//! Comments are those of [sqlcommenter](https://google.github.io/sqlcommenter/spec/): keys and
//! values in a comment of SQL, values in quotes, both URL-encoded, a quote inside as `\'`:
//!
//! ```text
//! SELECT 1 /*controller='orders',tidegate_class='high',tidegate_deadline='200ms'*/
//! ```
//!
//! The comment may stand anywhere in the text; of several, the first that names the key counts.
//! Text inside a string constant is no comment, whatever it looks like: the text is split as
//! PostgreSQL splits it ([`look::comments`]).

use std::time::Duration;

use percent_encoding::percent_decode;
use tidegate_gate::ClassName;

use crate::config_file::Period;
use crate::session_state::look;

/// What the comments of a statement say to the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    /// The class of the transaction that begins with it.
    pub(crate) class: Option<Result<ClassName, Unreadable>>,
    /// Within which time the transaction has to be done.
    pub(crate) within: Option<Result<Duration, Unreadable>>,
}

/// A value that cannot be the name of a class, or is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// Returns the name of a class.
pub(crate) fn class(text: &str) -> Result<ClassName, Unreadable> {
    text.parse().map_err(|_| Unreadable)
}

/// Returns a time that has a unit.
pub(crate) fn within(text: &str) -> Result<Duration, Unreadable> {
    text.parse().map(|Period(time)| time).map_err(|_| Unreadable)
}

/// What every key for the proxy begins with.
const KEYS: &[u8] = b"tidegate_";

impl Hint {
    /// Reads a statement's text.
    pub(crate) fn of(text: &[u8]) -> Hint {
        let mut hint = Hint::default();
        // Nearly all texts have no comment, and most comments nothing for the proxy.
        let Some(begin) = text.windows(2).position(|pair| pair == b"/*") else { return hint };
        if text[begin..].windows(KEYS.len()).any(|window| window == KEYS) {
            look::comments(text, |comment| hint.read(comment));
        }
        hint
    }

    /// Reads the inside of a comment.
    fn read(&mut self, comment: &[u8]) {
        let mut rest = comment;
        while let Some((key, value, behind)) = pair(rest) {
            rest = behind;
            let value = decoded(value);
            match &*decoded(key) {
                "tidegate_class" => {
                    self.class.get_or_insert_with(|| class(&value));
                }
                "tidegate_deadline" => {
                    self.within.get_or_insert_with(|| within(&value));
                }
                _ => {}
            }
        }
    }
}

/// Returns the key and the value of the first pair, both as written, and what is behind it.
fn pair(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let equals = text.iter().position(|&byte| byte == b'=')?;
    let (key, value) = (text[..equals].trim_ascii(), text[equals + 1..].trim_ascii_start());
    let key = key.rsplit(|&byte| byte == b',').next().unwrap_or(key).trim_ascii();
    let value = value.strip_prefix(b"'")?;
    let mut is_escaped = false;
    let end = value.iter().position(|&byte| {
        let ends = byte == b'\'' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })?;
    Some((key, &value[..end], &value[end + 1..]))
}

/// Returns what an encoded key or value stands for.
fn decoded(text: &[u8]) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        let byte = if byte == b'\\' { bytes.next().copied() } else { Some(byte) };
        plain.extend(byte);
    }
    percent_decode(&plain).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> Option<String> {
        let class = Hint::of(text.as_bytes()).class?;
        Some(class.map_or_else(|_| "?".to_owned(), |name| name.to_string()))
    }

    #[test]
    fn the_class_is_read_from_a_comment_anywhere() {
        for text in [
            "SELECT 1 /*tidegate_class='high'*/",
            "/*tidegate_class='high'*/ SELECT 1",
            "SELECT /* tidegate_class = 'high' */ 1",
            "SELECT 1 /*controller='a%20b',tidegate_class='high',traceparent='00-1'*/;",
            "SELECT 1 /*route='it\\'s, a=b',tidegate_class='high'*/",
            "SELECT 1 /*tidegate_class='h%69gh'*/",
            "-- first\n/* two */ SELECT '/*' /*x*/ /*tidegate_class='high'*/",
            "SELECT 1 /*tidegate_class='high'*/ /*tidegate_class='low'*/",
            "SELECT 1 -- it's\n/*tidegate_class='high'*/",
        ] {
            assert_eq!(class(text).as_deref(), Some("high"), "{text}");
        }
    }

    #[test]
    fn what_is_no_comment_says_nothing() {
        for text in [
            "SELECT '/*tidegate_class=''high''*/'",
            "SELECT $$/*tidegate_class='high'*/$$",
            "SELECT \"/*tidegate_class='high'*/\"",
            "SELECT 1 -- /*tidegate_class='high'*/",
            "SELECT E'\\'/*tidegate_class=''high''*/'",
            "SELECT 1 /*tidegate_class*/",
            "SELECT 1 /*tidegate_class=high*/",
            "SELECT 1 /*other='tidegate_class=\\'high\\''*/",
            "SELECT 1 /*tidegate_class='high'",
            "",
        ] {
            assert_eq!(class(text), None, "{text}");
        }
        assert_eq!(class("SELECT 1 /*tidegate_class='No Name'*/").as_deref(), Some("?"));
    }

    #[test]
    fn a_deadline_is_a_time_with_its_unit() {
        let within = |text: &str| Hint::of(text.as_bytes()).within;
        let milliseconds = Duration::from_millis;
        let text = "SELECT 1 /*tidegate_deadline='200ms',tidegate_class='high'*/";
        assert_eq!(within(text), Some(Ok(milliseconds(200))));
        assert_eq!(within("/*tidegate_deadline='1s%20500ms'*/"), Some(Ok(milliseconds(1500))));
        assert_eq!(within("/*tidegate_deadline='200'*/"), Some(Err(Unreadable)), "without a unit");
        assert_eq!(within("/*tidegate_class='high'*/"), None);
    }
}
