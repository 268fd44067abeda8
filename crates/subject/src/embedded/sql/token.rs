//! The words, numbers, texts and signs of a statement's text.

use super::error::SqlError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A keyword or a name, in small letters.
    Word(String),
    Number(i64),
    /// Text between quotes, without them.
    Text(String),
    /// A place for a value.
    Parameter,
    Sign(&'static str),
    End,
}

/// A token and which character of the text it begins with, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) at: usize,
}

/// Longer signs before those that they begin with.
const SIGNS: [&str; 16] =
    ["<>", "!=", "<=", ">=", "<", ">", "=", "(", ")", ",", ".", "*", "+", "-", "/", ";"];

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Word(word) => write!(f, "\"{word}\""),
            Token::Number(number) => write!(f, "{number}"),
            Token::Text(text) => write!(f, "'{text}'"),
            Token::Parameter => f.write_str("?"),
            Token::Sign(sign) => write!(f, "\"{sign}\""),
            Token::End => f.write_str("the end"),
        }
    }
}

/// The tokens of a text, the last an [`Token::End`].
pub(super) fn tokens(sql: &str) -> Result<Vec<Placed>, SqlError> {
    let mut tokens = Vec::new();
    let (mut rest, mut at) = (sql, 1);
    loop {
        let text = rest.trim_start();
        at += characters(rest, text);
        let (token, after) = next(text, at)?;
        let is_end = token == Token::End;
        tokens.push(Placed { token, at });
        if is_end {
            return Ok(tokens);
        }
        at += characters(text, after);
        rest = after;
    }
}

/// How many characters of `text` come before its last part.
fn characters(text: &str, last: &str) -> usize {
    text.len().checked_sub(last.len()).map_or(0, |len| text[..len].chars().count())
}

/// The token that a text begins with, and what is behind it.
fn next(text: &str, at: usize) -> Result<(Token, &str), SqlError> {
    let Some(first) = text.chars().next() else { return Ok((Token::End, text)) };
    if first.is_ascii_digit() {
        return number(text, at);
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let is_inside = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let (word, rest) = split(text, is_inside);
        return Ok((Token::Word(word.to_ascii_lowercase()), rest));
    }
    if let Some(rest) = text.strip_prefix('\'') {
        return quoted(rest, at);
    }
    if let Some(rest) = text.strip_prefix('?') {
        return Ok((Token::Parameter, rest));
    }
    let sign = SIGNS.into_iter().find_map(|sign| Some((sign, text.strip_prefix(sign)?)));
    let (sign, rest) = sign.ok_or_else(|| SqlError::NotSupported {
        expected: "a word, a number, a text or an operator",
        found: format!("\"{first}\""),
        at,
    })?;
    Ok((Token::Sign(sign), rest))
}

fn number(text: &str, at: usize) -> Result<(Token, &str), SqlError> {
    let (digits, rest) = split(text, |digit: char| digit.is_ascii_digit());
    let found = match rest.chars().next() {
        Some('.') => format!("{digits}."),
        Some(letter) if letter.is_ascii_alphabetic() => format!("{digits}{letter}"),
        _ => match digits.parse() {
            Ok(number) => return Ok((Token::Number(number), rest)),
            Err(_) => digits.to_owned(),
        },
    };
    Err(SqlError::NotSupported { expected: "a whole number of 64 bits", found, at })
}

/// A text up to its closing quote; two quotes are one of the text.
fn quoted(mut text: &str, at: usize) -> Result<(Token, &str), SqlError> {
    let mut value = String::new();
    loop {
        let (piece, rest) = text.split_once('\'').ok_or_else(|| SqlError::NotSupported {
            expected: "a closing quote",
            found: "the end".to_owned(),
            at,
        })?;
        value.push_str(piece);
        match rest.strip_prefix('\'') {
            Some(rest) => {
                value.push('\'');
                text = rest;
            }
            None => return Ok((Token::Text(value), rest)),
        }
    }
}

fn split(text: &str, is_inside: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|letter| !is_inside(letter)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_falls_into_tokens_with_their_places() {
        let read = tokens("Select  a_1,'it''s é' <= ?-12").unwrap();
        let expected = [
            (Token::Word("select".into()), 1),
            (Token::Word("a_1".into()), 9),
            (Token::Sign(","), 12),
            (Token::Text("it's é".into()), 13),
            (Token::Sign("<="), 23),
            (Token::Parameter, 26),
            (Token::Sign("-"), 27),
            (Token::Number(12), 28),
            (Token::End, 30),
        ];
        let read: Vec<_> = read.into_iter().map(|placed| (placed.token, placed.at)).collect();
        assert_eq!(read, expected);
    }

    #[test]
    fn what_is_no_token_is_refused_with_its_place() {
        for (sql, place) in [
            ("a \"b\"", 3),
            ("x = 1.5", 5),
            ("12ab", 1),
            ("9223372036854775808", 1),
            ("a 'b", 3),
            ("é", 1),
        ] {
            let Err(SqlError::NotSupported { at, .. }) = tokens(sql) else { panic!("{sql}") };
            assert_eq!(at, place, "{sql}");
        }
    }
}
