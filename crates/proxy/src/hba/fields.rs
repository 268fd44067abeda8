//! Lines and fields of HBA and ident files, as PostgreSQL splits them.
//!
//! Fields are separated by blanks, the values of a list by commas. Within double quotes neither
//! separates, and two of them stand for one. A `#` outside quotes begins a comment, and a backslash
//! at the end of a line continues it.

use super::LineProblem;

/// One value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    /// It begins with a quote, so that it is no keyword.
    pub(super) is_quoted: bool,
}

impl Token {
    pub(super) fn is_keyword(&self, keyword: &str) -> bool {
        !self.is_quoted && self.text == keyword
    }
}

/// The values between two blanks.
pub(super) type Field = Vec<Token>;

/// Returns the lines of a text with those joined that are continued, and the number of the first
/// of each.
pub(super) fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut is_continued = false;
    for (index, line) in text.lines().enumerate() {
        let continues = line.ends_with('\\');
        let line = line.strip_suffix('\\').unwrap_or(line);
        match lines.last_mut() {
            Some((_, last)) if is_continued => last.push_str(line),
            _ => lines.push((index + 1, line.to_owned())),
        }
        is_continued = continues;
    }
    lines
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

/// Splits a line into fields.
pub(super) fn fields(line: &str) -> Result<Vec<Field>, LineProblem> {
    let mut fields: Vec<Field> = Vec::new();
    let mut rest = line;
    let mut is_in_list = false;
    while let Some((token, ends_with_comma, behind)) = token(rest)? {
        match fields.last_mut() {
            Some(field) if is_in_list => field.push(token),
            _ => fields.push(vec![token]),
        }
        (is_in_list, rest) = (ends_with_comma, behind);
    }
    Ok(fields)
}

/// Returns the next value, whether a comma follows it, and the text behind.
fn token(text: &str) -> Result<Option<(Token, bool, &str)>, LineProblem> {
    let text = text.trim_start_matches(|c| is_blank(c) || c == ',');
    let mut token = Token { text: String::new(), is_quoted: text.starts_with('"') };
    let mut is_in_quotes = false;
    let mut has_quotes = false;
    let mut chars = text.char_indices().peekable();
    let mut end = text.len();
    let mut ends_with_comma = false;
    while let Some((at, c)) = chars.next() {
        match c {
            '"' if is_in_quotes && chars.next_if(|&(_, next)| next == '"').is_some() => {
                token.text.push('"');
            }
            '"' => {
                is_in_quotes = !is_in_quotes;
                has_quotes = true;
            }
            _ if is_in_quotes => token.text.push(c),
            // Nothing follows a comment.
            '#' => break,
            ',' => {
                (end, ends_with_comma) = (at + 1, true);
                break;
            }
            _ if is_blank(c) => {
                end = at;
                break;
            }
            _ => token.text.push(c),
        }
    }
    if is_in_quotes {
        return Err(LineProblem::Quote);
    }
    let is_there = has_quotes || !token.text.is_empty();
    Ok(is_there.then(|| (token, ends_with_comma, &text[end..])))
}
