//! Just enough of Rust's lexer to tell code from comments and literals, and to find the blocks
//! that belong to items. Macros are read as the tokens they are made of.

use std::ops::Range;

/// `source` with the text of comments and literals blanked; every newline stays where it was, so
/// line numbers agree. Quotation marks are kept: an empty string stays `""`.
pub(crate) fn code_only(source: &str) -> String {
    let mut lexer = Lexer { chars: source.chars().collect(), at: 0, out: String::new() };
    while let Some(next) = lexer.peek(0) {
        match next {
            '/' if lexer.peek(1) == Some('/') => lexer.line_comment(),
            '/' if lexer.peek(1) == Some('*') => lexer.block_comment(),
            'r' if lexer.raw_string_hashes().is_some() => lexer.raw_string(),
            '"' => lexer.quoted('"'),
            '\'' if lexer.at_char_literal() => lexer.quoted('\''),
            _ => lexer.keep(),
        }
    }
    lexer.out
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    out: String,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn keep(&mut self) {
        self.out.extend(self.peek(0));
        self.at += 1;
    }

    fn blank(&mut self) {
        self.out.extend(self.peek(0).map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.at += 1;
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.blank();
        }
    }

    /// Block comments nest.
    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        while let (Some(first), second) = (self.peek(0), self.peek(1)) {
            match (first, second) {
                ('/', Some('*')) => depth += 1,
                ('*', Some('/')) => depth -= 1,
                _ => {
                    self.blank();
                    continue;
                }
            }
            self.blank();
            self.blank();
            if depth == 0 {
                return;
            }
        }
    }

    /// A string or character literal with escapes; `at` is on its opening quote.
    fn quoted(&mut self, quote: char) {
        self.keep();
        while let Some(next) = self.peek(0) {
            match next {
                '\\' => {
                    self.blank();
                    self.blank();
                }
                _ if next == quote => return self.keep(),
                _ => self.blank(),
            }
        }
    }

    /// Tells `'a'` from the lifetime `'a`.
    fn at_char_literal(&self) -> bool {
        self.peek(1) == Some('\\') || self.peek(2) == Some('\'')
    }

    /// The number of `#` when a raw string starts with the `r` at `at`.
    fn raw_string_hashes(&self) -> Option<usize> {
        let before = |back: usize| self.at.checked_sub(back).and_then(|at| self.chars.get(at));
        let joined = |c: Option<&char>| c.is_some_and(|&c| is_word_char(c));
        let prefixed = matches!(before(1), Some('b' | 'c')) && !joined(before(2));
        if joined(before(1)) && !prefixed {
            return None;
        }
        let hashes = self.chars[self.at + 1..].iter().take_while(|&&c| c == '#').count();
        (self.peek(1 + hashes) == Some('"')).then_some(hashes)
    }

    fn raw_string(&mut self) {
        let hashes = self.raw_string_hashes().unwrap_or(0);
        for _ in 0..hashes + 2 {
            self.keep();
        }
        while let Some(next) = self.peek(0) {
            let closing = (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'));
            if next == '"' && closing {
                for _ in 0..=hashes {
                    self.keep();
                }
                return;
            }
            self.blank();
        }
    }
}

/// Whether `c` may be part of an identifier.
pub(crate) fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Byte offsets at which `word` stands alone, not inside a longer identifier.
pub(crate) fn word_offsets<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_word_char) && !after.is_some_and(is_word_char)
    })
}

/// The line, counted from 1, that holds the byte `offset` of `text`.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// The braces of the item that goes on at byte `from` of `code`, the output of [`code_only`].
/// `None` when the item ends without a block.
pub(crate) fn block_after(code: &str, from: usize) -> Option<Range<usize>> {
    let mut nesting = 0_i32;
    let open = code[from..].char_indices().find_map(|(at, c)| {
        match c {
            '(' | '[' => nesting += 1,
            ')' | ']' => nesting -= 1,
            '{' if nesting == 0 => return Some(Some(from + at)),
            ';' if nesting == 0 => return Some(None),
            _ => {}
        }
        (nesting < 0).then_some(None)
    })??;
    let mut depth = 0_i32;
    let close = code[open..].char_indices().find_map(|(at, c)| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(open + at)
    })?;
    Some(open..close + 1)
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Line of the keyword `fn`, counted from 1.
    pub(crate) line: usize,
    /// Lines from `fn` to the closing brace, both included.
    pub(crate) length: usize,
}

/// Every function with a body in `code`, the output of [`code_only`]; nested ones too.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    word_offsets(code, "fn")
        .filter_map(|at| {
            let rest = code[at + 2..].trim_start();
            let name: String = rest.chars().take_while(|&c| is_word_char(c) || c == '$').collect();
            // Without a name it is a function pointer type.
            let block = if name.is_empty() { None } else { block_after(code, at) }?;
            let line = line_of(code, at);
            Some(Function { name, line, length: line_of(code, block.end) - line + 1 })
        })
        .collect()
}

#[test]
fn comments_and_literals_are_blanked_and_newlines_stay() {
    let cases = [
        ("a // b {\nc", "a       \nc"),
        ("a /* b /* c */ { */ d", "a                   d"),
        (r#"f("{ \" }") "#, r#"f("      ") "#),
        ("f(\"a\nb\")", "f(\" \n \")"),
        ("r#\"a \"{\"# b", "r#\"    \"# b"),
        ("br\"{\\\" b", "br\"  \" b"),
        ("bar\"{\" b", "bar\" \" b"),
        ("'{' 'a x: &'static str '\\'' '\\u{7d}'", "' ' 'a x: &'static str '  ' '      '"),
        ("b'{' b\"{\" r#fn", "b' ' b\" \" r#fn"),
        ("\"open", "\"    "),
        ("/* open", "       "),
    ];
    for (source, code) in cases {
        assert_eq!(code_only(source), code, "{source}");
    }
}

#[test]
fn words_stand_alone() {
    assert_eq!(word_offsets("fn fnord my_fn fn", "fn").collect::<Vec<_>>(), [0, 15]);
}

#[test]
fn functions_are_measured_from_fn_to_the_closing_brace() {
    let sample = "
trait T {
    fn declared(&self) -> [u8; 4];
}
fn outer(callback: fn(u8) -> u8)
where
    T: Sized,
{
    let brace = \"}\"; // }
    fn inner() {}
}
";
    let found = functions(&code_only(sample));
    let expected = [("outer", 5, 7), ("inner", 10, 1)];
    let expected =
        expected.map(|(name, line, length)| Function { name: name.into(), line, length });
    assert_eq!(found, expected);
}
