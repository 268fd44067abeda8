//! Classes of characters (XML 1.0, fifth edition, sections 2.2 and 2.3).

/// Text goes on with this byte: no markup, no reference, no line end to replace, nothing to check
/// but that it is UTF-8.
const PLAIN_TEXT: u8 = 1;
/// The value of an attribute goes on with this byte.
const PLAIN_VALUE: u8 = 2;
/// The byte may stand in a name without colon.
const NAME: u8 = 4;
/// The byte may be the first of a name without colon.
const NAME_START: u8 = 8;

/// The byte needs no reference in text that is written.
const BARE_TEXT: u8 = 16;
/// The byte needs no reference in a value that is written.
const BARE_VALUE: u8 = 32;

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte: u8 = 0;
    loop {
        let mut class = 0;
        // 0xEF begins U+FFFE and U+FFFF, which are not allowed.
        if (byte >= b' ' && byte != 0xEF) || byte == b'\t' || byte == b'\n' {
            if !matches!(byte, b'<' | b'&' | b']') {
                class |= PLAIN_TEXT;
            }
            if !matches!(byte, b'<' | b'&' | b'"' | b'\'' | b'\t' | b'\n') {
                class |= PLAIN_VALUE;
            }
        }
        if byte.is_ascii_alphabetic() || byte == b'_' {
            class |= NAME | NAME_START;
        }
        if byte.is_ascii_digit() || byte == b'-' || byte == b'.' {
            class |= NAME;
        }
        if !matches!(byte, b'&' | b'<' | b'>' | b'\r') {
            class |= BARE_TEXT;
        }
        if !matches!(byte, b'&' | b'<' | b'"' | b'\t' | b'\n' | b'\r') {
            class |= BARE_VALUE;
        }
        table[byte as usize] = class;
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

/// Returns the number of leading bytes that are plain in text.
pub(super) fn plain_text(bytes: &[u8]) -> usize {
    run(bytes, PLAIN_TEXT)
}

/// Returns the number of leading bytes that are plain in an attribute's value.
pub(super) fn plain_value(bytes: &[u8]) -> usize {
    run(bytes, PLAIN_VALUE)
}

/// Returns the number of leading bytes that text may carry as they are. `>` is not among them
/// because of `]]>`.
pub(crate) fn bare_text(bytes: &[u8]) -> usize {
    run(bytes, BARE_TEXT)
}

/// Returns the number of leading bytes that a value in double quotes may carry as they are. A
/// parser would make spaces of tabs and line ends.
pub(crate) fn bare_value(bytes: &[u8]) -> usize {
    run(bytes, BARE_VALUE)
}

fn run(bytes: &[u8], class: u8) -> usize {
    let stop = bytes.iter().position(|&byte| CLASSES[usize::from(byte)] & class == 0);
    stop.unwrap_or(bytes.len())
}

/// Returns whether XML allows the character in a document.
pub(crate) fn is_allowed(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..)
}

/// Returns the place of the first character that XML does not allow, with the character.
pub(crate) fn first_forbidden(text: &str) -> Option<(usize, char)> {
    // Few texts need the second loop. The first has no branches, so that it is fast.
    let suspicious = |byte: u8| matches!(byte, 0..=8 | 11 | 12 | 14..=31 | 0xEF);
    if !text.bytes().fold(false, |found, byte| found | suspicious(byte)) {
        return None;
    }
    text.char_indices().find(|&(_, character)| !is_allowed(character))
}

/// Returns whether the byte is white space in markup.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Returns the length in bytes of the name without colon at the start of `text`; 0 if there is
/// none.
pub(crate) fn name_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let ascii = run(bytes, NAME);
    let first_is_good = bytes
        .first()
        .is_some_and(|&byte| !byte.is_ascii() || CLASSES[usize::from(byte)] & NAME_START != 0);
    if !first_is_good {
        return 0;
    }
    if bytes.get(ascii).is_none_or(u8::is_ascii) {
        return ascii;
    }
    let mut end = ascii;
    for (at, character) in text[ascii..].char_indices() {
        if !is_name_character(character, ascii + at == 0) {
            break;
        }
        end = ascii + at + character.len_utf8();
    }
    end
}

fn is_name_character(character: char, first: bool) -> bool {
    if character.is_ascii() {
        let class = CLASSES[usize::from(character as u8)];
        return class & if first { NAME_START } else { NAME } != 0;
    }
    let start = matches!(character,
        '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}'
        | '\u{370}'..='\u{37D}' | '\u{37F}'..='\u{1FFF}' | '\u{200C}'..='\u{200D}'
        | '\u{2070}'..='\u{218F}' | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}'
        | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}' | '\u{10000}'..='\u{EFFFF}');
    let inside = matches!(character,
        '\u{B7}' | '\u{300}'..='\u{36F}' | '\u{203F}'..='\u{2040}');
    start || (!first && inside)
}

/// Returns whether the whole text is a name without colon.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && name_length(text) == text.len()
}
