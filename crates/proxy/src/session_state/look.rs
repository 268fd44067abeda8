//! A look at the text of statements: what they may leave behind in their session.
//!
//! The text is split into words, constants and symbols as PostgreSQL's scanner splits it: comments
//! (which nest), strings with and without escapes, quoted identifiers and dollar quotes. Then a few
//! words decide, by their place in the statement:
//!
//! ```text
//! UPDATE t SET x = 1                       SET does not begin the statement: nothing
//! SET LOCAL work_mem = '7MB'               undone by the end of the transaction: nothing
//! SET app.tenant = '7'                     Settings, and the name app.tenant
//! SELECT set_config('app.tenant', $1, true)    undone by the end of the transaction: nothing
//! DO $$ … EXECUTE 'SET work_mem = …' … $$  everything; the body is looked at for names
//! ```
//!
//! The language is not parsed. Where a look errs it shall notice too much, which costs one query of
//! the proxy's own, and nothing else: [`Look::sure`] alone is used to refuse a statement.

use super::{Kind, Kinds};
use crate::settings;

/// What a look at one text has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// What may be there after the text has run.
    pub(crate) may: Kinds,
    /// What will be there unless the text undoes it or fails.
    pub(crate) sure: Kinds,
    /// It may remove something.
    pub(crate) releases: bool,
    /// It sets all settings back.
    pub(crate) resets_all: bool,
    /// SETs at the top level, each of which is answered by a tag of its own.
    pub(crate) sets: u32,
}

/// Bodies inside bodies are looked at to this depth.
const DEPTH_MAX: u32 = 4;

/// Looks at a text; the names of custom settings are appended to `names`. A text that is cut off
/// is looked at as far as it goes.
pub(crate) fn look(text: &[u8], names: &mut Vec<Box<str>>) -> Look {
    let mut reader = Reader { look: Look::default(), names };
    reader.read(text, 0);
    reader.look
}

/// Returns the statement's name in a text that is one DEALLOCATE of a name and nothing else.
pub(crate) fn deallocated_name(text: &[u8]) -> Option<Vec<u8>> {
    let mut lexer = Lexer::new(text);
    lexer.token().filter(|token| token.is("deallocate"))?;
    let mut name = lexer.token()?;
    let mut end = lexer.token();
    if name.is("prepare")
        && let Some(word @ Token::Word { .. }) = end
    {
        (name, end) = (word, lexer.token());
    }
    while end == Some(Token::Symbol(b';')) {
        end = lexer.token();
    }
    match (name, end) {
        (name, None) if name.is("all") => None,
        (Token::Word { text, is_quoted: true }, None) => Some(text.to_vec()),
        (Token::Word { text, is_quoted: false }, None) => Some(text.to_ascii_lowercase()),
        _ => None,
    }
}

/// Returns what tells a text apart from others, without its constants, comments and the case of its
/// words: lists of constants are the same whatever their length.
pub(crate) fn fingerprint(text: &[u8]) -> u64 {
    let mut lexer = Lexer::new(text);
    // FNV-1a: short, and the same in every run.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8], is_folded: bool| {
        for byte in bytes {
            let byte = if is_folded { byte.to_ascii_lowercase() } else { *byte };
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    let (mut is_behind_constant, mut is_comma_held) = (false, false);
    while let Some(token) = lexer.token() {
        let is_constant = matches!(token, Token::Text(_) | Token::Symbol(b'0' | b'$'));
        if is_behind_constant && token == Token::Symbol(b',') {
            is_comma_held = true;
            continue;
        }
        let is_in_list = is_constant && is_comma_held;
        if is_comma_held && !is_constant {
            add(b",", false);
        }
        (is_behind_constant, is_comma_held) = (is_constant, false);
        match token {
            _ if is_in_list => {}
            _ if is_constant => add(b" ?", false),
            Token::Word { text, is_quoted } => {
                add(b" ", false);
                add(text, !is_quoted);
            }
            Token::Symbol(byte) => add(&[byte], false),
            Token::Text(_) => {}
        }
    }
    hash
}

/// Returns whether a text mentions a setting of the proxy's own, in any case.
pub(crate) fn mentions_own_settings(text: &[u8]) -> bool {
    const PREFIX: &[u8] = b"tidegate.";
    text.windows(PREFIX.len()).any(|window| window.eq_ignore_ascii_case(PREFIX))
}

/// Returns whether a text begins with BEGIN or START TRANSACTION.
pub(crate) fn begins_transaction(text: &[u8]) -> bool {
    let first = Lexer::new(text).token();
    first.is_some_and(|token| token.is("begin") || token.is("start"))
}

/// Calls `read` with the inside of each comment of a text in `/*` and `*/`, in their order.
pub(crate) fn comments<'a>(text: &'a [u8], mut read: impl FnMut(&'a [u8])) {
    let mut lexer = Lexer::new(text);
    loop {
        match (lexer.byte(0), lexer.byte(1)) {
            (b'/', b'*') => {
                let start = lexer.at + 2;
                lexer.skip_comment();
                let inside = text.get(start..lexer.at.max(start)).unwrap_or_default();
                // One that does not end is none.
                if let Some(inside) = inside.strip_suffix(b"*/") {
                    read(inside);
                }
            }
            (b'-', b'-') => lexer.skip_line(),
            (byte, _) if is_space(byte) => lexer.at += 1,
            // At a token's first byte, which is no comment's: it reads one token.
            _ if lexer.token().is_none() => return,
            _ => {}
        }
    }
}

/// Returns whether a call of this function by its number, without SQL, leaves nothing behind: those
/// of large objects, which is what the message is used for.
pub(crate) fn is_harmless_function(number: u32) -> bool {
    matches!(number, 715 | 764 | 767 | 952..=958 | 964 | 1004 | 3170..=3172 | 3457..=3460)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A keyword or an identifier, without its quotes if it had any.
    Word {
        text: &'a [u8],
        is_quoted: bool,
    },
    /// A string constant's contents as written.
    Text(&'a [u8]),
    Symbol(u8),
}

impl Token<'_> {
    /// Returns whether it is this keyword.
    fn is(self, keyword: &str) -> bool {
        matches!(self, Token::Word { text, is_quoted: false } if is(text, keyword))
    }
}

fn is(word: &[u8], keyword: &str) -> bool {
    word.eq_ignore_ascii_case(keyword.as_bytes())
}

fn begins(word: &[u8], beginning: &str) -> bool {
    word.get(..beginning.len()).is_some_and(|head| is(head, beginning))
}

/// What a byte can be part of, as bits. A look is on the path of every simple query, and reading a
/// table is cheaper than four comparisons.
const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0_u8;
    loop {
        classes[byte as usize] = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => WORD_START | WORD,
            b'0'..=b'9' | b'$' => WORD,
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => SPACE,
            _ => 0,
        };
        if byte == u8::MAX {
            break classes;
        }
        byte += 1;
    }
};
const WORD_START: u8 = 1;
const WORD: u8 = 2;
const SPACE: u8 = 4;

fn is_word_start(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & WORD_START != 0
}

fn is_word(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & WORD != 0
}

fn is_space(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & SPACE != 0
}

#[derive(Clone)]
struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    /// It depends on a setting where a string ends.
    is_ambiguous: bool,
}

impl<'a> Lexer<'a> {
    fn new(text: &'a [u8]) -> Lexer<'a> {
        Lexer { text, at: 0, is_ambiguous: false }
    }

    /// Returns the byte that is `ahead` from here; 0 behind the end.
    fn byte(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn token(&mut self) -> Option<Token<'a>> {
        loop {
            match self.byte(0) {
                byte if is_word_start(byte) => return Some(self.word()),
                byte if is_space(byte) => self.at += 1,
                0 => return None,
                b'-' if self.byte(1) == b'-' => self.skip_line(),
                b'/' if self.byte(1) == b'*' => self.skip_comment(),
                b'\'' => return Some(Token::Text(self.string(false))),
                b'"' => {
                    let text = self.quoted(b'"', false);
                    return Some(Token::Word { text, is_quoted: true });
                }
                b'$' => return Some(self.dollar()),
                b'0'..=b'9' => {
                    self.skip_while(is_word);
                    return Some(Token::Symbol(b'0'));
                }
                byte => {
                    self.at += 1;
                    return Some(Token::Symbol(byte));
                }
            }
        }
    }

    fn skip_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|&byte| !belongs(byte)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn skip_line(&mut self) {
        self.skip_while(|byte| byte != b'\n' && byte != b'\r');
    }

    fn skip_comment(&mut self) {
        let mut depth = 0_u32;
        loop {
            match (self.byte(0), self.byte(1)) {
                (b'/', b'*') => (depth, self.at) = (depth + 1, self.at + 2),
                (b'*', b'/') => (depth, self.at) = (depth - 1, self.at + 2),
                (0, _) => return,
                _ => self.at += 1,
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Returns the contents of a string constant that begins here.
    fn string(&mut self, has_escapes: bool) -> &'a [u8] {
        self.quoted(b'\'', has_escapes)
    }

    /// Returns what stands between two quotes, of which the first is here. A quote inside is
    /// doubled, or comes behind a backslash.
    fn quoted(&mut self, quote: u8, has_escapes: bool) -> &'a [u8] {
        self.at += 1;
        let start = self.at;
        loop {
            match self.byte(0) {
                0 => break,
                b'\\' if has_escapes => self.at += 1,
                // With standard_conforming_strings = off the string goes on.
                b'\\' if quote == b'\'' && self.byte(1) == quote => self.is_ambiguous = true,
                byte if byte == quote && self.byte(1) == quote => self.at += 1,
                byte if byte == quote => break,
                _ => {}
            }
            self.at += 1;
        }
        let end = self.at.min(self.text.len());
        self.at = end + 1;
        &self.text[start.min(end)..end]
    }

    /// Returns a dollar-quoted string's contents, or a symbol for a parameter's number.
    fn dollar(&mut self) -> Token<'a> {
        let start = self.at;
        self.at += 1;
        let tag = if is_word_start(self.byte(0)) {
            self.skip_while(|byte| is_word(byte) && byte != b'$')
        } else {
            &[]
        };
        if self.byte(0) != b'$' {
            self.skip_while(|byte| byte.is_ascii_digit());
            return Token::Symbol(b'$');
        }
        self.at += 1;
        let (opening, body) = (&self.text[start..self.at], self.at);
        debug_assert_eq!(opening.len(), tag.len() + 2);
        while self.byte(0) != 0 {
            self.skip_while(|byte| byte != b'$' && byte != 0);
            let end = self.at;
            if self.text[end..].starts_with(opening) {
                self.at += opening.len();
                return Token::Text(&self.text[body..end]);
            }
            self.at += usize::from(self.byte(0) == b'$');
        }
        Token::Text(&self.text[body..self.at.min(self.text.len())])
    }

    /// Returns a word, or the string whose prefix it is.
    fn word(&mut self) -> Token<'a> {
        let text = self.skip_while(is_word);
        match (text, self.byte(0)) {
            (b"e" | b"E", b'\'') => Token::Text(self.string(true)),
            (b"b" | b"B" | b"x" | b"X" | b"n" | b"N", b'\'') => Token::Text(self.string(false)),
            (b"u" | b"U", b'&') if matches!(self.byte(1), b'\'' | b'"') => {
                // Any name can be written in it.
                self.is_ambiguous = true;
                Token::Word { text, is_quoted: false }
            }
            _ => Token::Word { text, is_quoted: false },
        }
    }
}

/// The words before the one that is read.
#[derive(Clone, Copy, Default)]
struct Context<'a> {
    /// The statement's first word; empty at its beginning.
    first: &'a [u8],
    /// The word before; empty if something else came before.
    previous: &'a [u8],
}

struct Reader<'n> {
    look: Look,
    names: &'n mut Vec<Box<str>>,
}

impl Reader<'_> {
    /// Reads a text: at depth 0 that of a message, below it the body of a DO.
    fn read(&mut self, text: &[u8], depth: u32) {
        let mut lexer = Lexer::new(text);
        let mut context = Context::default();
        while let Some(token) = lexer.token() {
            match token {
                Token::Symbol(b';') => context = Context::default(),
                Token::Symbol(_) => context.previous = b"",
                Token::Text(body) => {
                    if depth > 0 || is(context.first, "do") {
                        self.body(body, depth);
                    }
                    context.previous = b"";
                }
                Token::Word { text, is_quoted } => {
                    if context.first.is_empty() && !is_quoted {
                        context.first = text;
                        self.statement(text, &lexer, depth);
                    }
                    self.word(token, context, &lexer);
                    context.previous = if is_quoted { b"" } else { text };
                    let begins_statement = ["begin", "then", "else", "loop"];
                    if depth > 0 && begins_statement.iter().any(|keyword| token.is(keyword)) {
                        context = Context::default();
                    }
                }
            }
        }
        if lexer.is_ambiguous {
            self.may(Kinds::INSPECTED);
        }
    }

    fn body(&mut self, text: &[u8], depth: u32) {
        if depth < DEPTH_MAX {
            self.read(text, depth + 1);
        } else {
            self.may(Kinds::INSPECTED.with(Kind::NamelessSetting));
        }
    }

    fn may(&mut self, kinds: Kinds) {
        self.look.may = self.look.may.union(kinds);
    }

    fn sure(&mut self, kind: Kind) {
        self.may(Kinds::of(kind));
        self.look.sure = self.look.sure.with(kind);
    }

    /// Reads the first word of a statement; the lexer is behind it.
    fn statement(&mut self, first: &[u8], behind: &Lexer<'_>, depth: u32) {
        let follows = |keyword: &str| behind.clone().token().is_some_and(|token| token.is(keyword));
        match first.len() {
            2 if is(first, "do") => self.may(Kinds::INSPECTED),
            3 if is(first, "set") => {
                self.look.sets += u32::from(depth == 0);
                self.set(behind.clone());
            }
            4 if is(first, "load") => self.sure(Kind::Backend),
            4 if is(first, "drop") => self.look.releases = true,
            5 if is(first, "close") => self.look.releases = true,
            5 if is(first, "reset") => {
                self.may(Kinds::of(Kind::Settings));
                self.look.resets_all |= follows("all");
                self.look.releases = true;
            }
            6 if is(first, "listen") => self.sure(Kind::Listen),
            7 if is(first, "prepare") && !follows("transaction") => self.sure(Kind::Prepared),
            7 if is(first, "discard") => {
                self.may(Kinds::of(Kind::Settings));
                self.look.resets_all |= follows("all");
                self.look.releases = true;
            }
            8 if is(first, "unlisten") => self.look.releases = true,
            10 if is(first, "deallocate") => self.look.releases = true,
            _ => {}
        }
    }

    /// Reads what follows SET at the beginning of a statement.
    fn set(&mut self, mut lexer: Lexer<'_>) {
        let mut token = lexer.token();
        let is_one_of = |token: Option<Token<'_>>, words: [&str; 3]| {
            token.is_some_and(|token| words.iter().any(|word| token.is(word)))
        };
        if is_one_of(token, ["local", "transaction", "constraints"]) {
            return;
        }
        self.may(Kinds::of(Kind::Settings));
        if token.is_some_and(|token| token.is("session")) {
            token = lexer.token();
        }
        let mut name = Vec::new();
        while let Some(Token::Word { text, .. }) = token {
            name.extend_from_slice(text);
            token = lexer.token();
            if token != Some(Token::Symbol(b'.')) {
                break;
            }
            name.push(b'.');
            token = lexer.token();
        }
        self.name(&name);
    }

    /// A setting of this name may have been set.
    fn name(&mut self, name: &[u8]) {
        let name = std::str::from_utf8(name).ok().filter(|name| settings::is_name(name));
        match name {
            Some(name) if name.contains('.') => {
                if settings::is_custom_name(name) {
                    self.names.push(name.into());
                } else {
                    self.may(Kinds::of(Kind::NamelessSetting));
                }
            }
            Some(_) => {}
            None => self.may(Kinds::of(Kind::NamelessSetting)),
        }
    }

    /// Reads any word; the lexer is behind it.
    fn word(&mut self, token: Token<'_>, context: Context<'_>, behind: &Lexer<'_>) {
        let Token::Word { text, is_quoted } = token else { return };
        let Context { first, previous } = context;
        match text.first().map_or(0, u8::to_ascii_lowercase) {
            b's' if is(text, "set_config") => self.set_config(behind.clone()),
            b's' if is(text, "setseed") => self.sure(Kind::Backend),
            b'd' if begins(text, "dblink_connect") => self.sure(Kind::Backend),
            b'd' if is(text, "drop") && is(previous, "commit") => {
                self.look.sure = self.look.sure.without(Kinds::of(Kind::Temporary));
            }
            b'p' => self.function(text, first),
            b'h' if is(text, "hold") && is(previous, "with") && is(first, "declare") => {
                self.sure(Kind::Cursor);
            }
            b't' if !is_quoted && (is(text, "temp") || is(text, "temporary")) => {
                let makes = ["create", "replace", "local", "global"];
                let is_made = makes.iter().any(|keyword| is(previous, keyword))
                    || (is(previous, "into") && !is(first, "insert") && !is(first, "merge"));
                if is_made {
                    self.sure(Kind::Temporary);
                }
            }
            _ => {}
        }
    }

    /// Reads a word that begins with `p`.
    fn function(&mut self, text: &[u8], first: &[u8]) {
        if begins(text, "pg_advisory_lock") || begins(text, "pg_try_advisory_lock") {
            self.sure(Kind::AdvisoryLock);
        } else if begins(text, "pg_advisory_unlock") {
            self.look.releases = true;
        } else if begins(text, "pg_temp") {
            self.may(Kinds::of(Kind::Temporary));
            if is(first, "create") {
                self.sure(Kind::Temporary);
            }
        } else if begins(text, "pg_replication_origin_session") {
            self.sure(Kind::Backend);
        }
    }

    /// Reads the arguments of `set_config`.
    fn set_config(&mut self, mut lexer: Lexer<'_>) {
        if lexer.token() != Some(Token::Symbol(b'(')) {
            return self.may(Kinds::of(Kind::Settings));
        }
        let arguments = [argument(&mut lexer), argument(&mut lexer), argument(&mut lexer)];
        if arguments[2].is_some_and(is_true) {
            return;
        }
        self.may(Kinds::of(Kind::Settings));
        match arguments[0] {
            Some(Token::Text(name)) => self.name(name),
            _ => self.may(Kinds::of(Kind::NamelessSetting)),
        }
    }
}

/// Returns whether it is a constant that is true.
fn is_true(token: Token<'_>) -> bool {
    let is_text = |word| matches!(token, Token::Text(text) if is(text, word));
    token.is("true") || ["true", "t", "on", "yes", "1"].into_iter().any(is_text)
}

/// Reads one argument of a call, and the comma or the parenthesis behind it. Returns the argument
/// if it is one token.
fn argument<'a>(lexer: &mut Lexer<'a>) -> Option<Token<'a>> {
    let (mut only, mut count, mut depth) = (None, 0_u32, 0_u32);
    while let Some(token) = lexer.token() {
        match token {
            Token::Symbol(b',' | b')') if depth == 0 => break,
            Token::Symbol(b'(' | b'[') => depth += 1,
            Token::Symbol(b')' | b']') => depth = depth.saturating_sub(1),
            Token::Symbol(b';') => return None,
            _ => {}
        }
        (only, count) = (Some(token), count + 1);
    }
    only.filter(|_| count == 1)
}

/// The words of a message that arrives in pieces, without regard to where they stand.
#[derive(Clone, Debug, Default)]
pub(crate) struct WordScan {
    word: [u8; WordScan::KEPT],
    /// Bytes of the word, kept or not.
    len: usize,
}

impl WordScan {
    /// As long as the longest beginning that is looked for.
    const KEPT: usize = 24;

    /// Reads a piece. Returns what it mentions.
    pub(crate) fn read(&mut self, piece: &[u8]) -> Kinds {
        let mut may = Kinds::NONE;
        for &byte in piece {
            if is_word(byte) {
                if let Some(kept) = self.word.get_mut(self.len) {
                    *kept = byte;
                }
                self.len += 1;
            } else if self.len > 0 {
                may = may.union(self.end());
            }
        }
        may
    }

    /// Ends the last word. Returns what it mentions.
    pub(crate) fn end(&mut self) -> Kinds {
        let len = std::mem::take(&mut self.len);
        // Most words are none of them, by their length.
        if len < 4 {
            return Kinds::NONE;
        }
        let word = &self.word[..len.min(WordScan::KEPT)];
        if is(word, "set_config") {
            Kinds::of(Kind::Settings).with(Kind::NamelessSetting)
        } else if begins(word, "pg_advisory_lock") || begins(word, "pg_try_advisory_lock") {
            Kinds::of(Kind::AdvisoryLock)
        } else if is(word, "temp") || is(word, "temporary") || begins(word, "pg_temp") {
            Kinds::of(Kind::Temporary)
        } else if is(word, "hold") {
            Kinds::of(Kind::Cursor)
        } else if is(word, "setseed") || begins(word, "dblink_connect") {
            Kinds::of(Kind::Backend)
        } else {
            Kinds::NONE
        }
    }
}

#[cfg(test)]
mod tests;
