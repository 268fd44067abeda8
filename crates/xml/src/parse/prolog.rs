//! The XML declaration and the encoding (XML 1.0, sections 2.8 and 4.3.3).

use std::io::BufRead;

use super::XmlReader;
use super::chars::is_space;
use super::cursor::Cursor;
use super::error::{Fault, ParseError, ParseErrorKind};
use super::source::Encoding;

/// Longest declaration looked for, in bytes.
const LONGEST: usize = 1_024;

impl<R: BufRead> XmlReader<R> {
    /// Finds out the encoding by the first bytes.
    pub(super) fn detect_encoding(&mut self) -> Result<(), ParseError> {
        self.source().detect_encoding().map_err(|error| self.read_error(error))
    }

    /// Reads `<?xml … ?>` if the document begins with it.
    pub(super) fn read_declaration(&mut self) -> Result<(), ParseError> {
        self.source().begin_token(usize::MAX);
        let head = self.peek(6)?;
        if !head.starts_with(b"<?xml") || !head.get(5).is_some_and(|&byte| is_space(byte)) {
            return Ok(());
        }
        let available = self.peek(LONGEST)?;
        let text = &available[..available.len().min(LONGEST)];
        let Some(end) = text.windows(2).position(|pair| pair == b"?>") else {
            let kind = ParseErrorKind::Expected("`?>` within 1,024 bytes, ending the declaration");
            return Err(self.here(kind));
        };
        let token = String::from_utf8_lossy(&text[..end + 2]).into_owned();
        let encoding = self.source().encoding();
        match declaration(&token, encoding) {
            Ok(is_standalone) => {
                self.entities.is_standalone = is_standalone;
                self.source().consume(token.len());
                Ok(())
            }
            Err(fault) => Err(self.locate(&fault, token.as_bytes())),
        }
    }
}

/// Checks the declaration. Returns whether it says that the document stands alone.
fn declaration(token: &str, encoding: Encoding) -> Result<bool, Fault> {
    let mut cursor = Cursor::new(token, "<?xml".len(), LONGEST);
    cursor.expect_space()?;
    let at = cursor.at;
    let version =
        pseudo_attribute(&mut cursor, "version")?.ok_or(Fault::expected(at, "version=\"1.0\""))?;
    let minor = version.strip_prefix("1.").unwrap_or_default();
    if minor.is_empty() || !minor.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Fault::expected(at, "version=\"1.0\""));
    }
    let mut space = cursor.skip_space();
    let at = cursor.at;
    if let Some(name) = pseudo_attribute(&mut cursor, "encoding")? {
        if !space {
            return Err(Fault::expected(at, "white space"));
        }
        if !is_encoding(name, encoding) {
            return Err(Fault::new(at, ParseErrorKind::Encoding(name.to_owned())));
        }
        space = cursor.skip_space();
    }
    let at = cursor.at;
    let mut is_standalone = false;
    if let Some(value) = pseudo_attribute(&mut cursor, "standalone")? {
        if !space || !matches!(value, "yes" | "no") {
            return Err(Fault::expected(at, "standalone=\"yes\" or \"no\", behind white space"));
        }
        is_standalone = value == "yes";
        cursor.skip_space();
    }
    cursor.expect("?>", "version, encoding and standalone in this order, then `?>`")?;
    Ok(is_standalone)
}

fn pseudo_attribute<'a>(cursor: &mut Cursor<'a>, name: &str) -> Result<Option<&'a str>, Fault> {
    if !cursor.eat(name) {
        return Ok(None);
    }
    cursor.skip_space();
    cursor.expect("=", "`=`")?;
    cursor.skip_space();
    cursor.quoted("a value in quotes").map(Some)
}

fn is_encoding(name: &str, encoding: Encoding) -> bool {
    let names: &[&str] = match encoding {
        Encoding::Utf8 => &["UTF-8", "US-ASCII", "ASCII"],
        Encoding::Utf16LittleEndian => &["UTF-16", "UTF-16LE"],
        Encoding::Utf16BigEndian => &["UTF-16", "UTF-16BE"],
    };
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}
