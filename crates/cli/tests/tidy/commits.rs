//! Commits that a page cites: each is in the repository's history.
//!
//! A citation is the word `commit`, a space or a line feed, and an abbreviated hash in backticks. A
//! hash in any other form is an offence, too, so that none goes by unseen: a word of 7 to 40 hex
//! digits, with figures and letters in it.

use std::path::Path;
use std::process::Command;

use super::Offence;

/// Lengths that git abbreviates a hash to, and a whole hash.
const LENGTHS: std::ops::RangeInclusive<usize> = 7..=40;

/// A citation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Citation {
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) hash: String,
}

/// Whether a file is a page whose commits are looked at.
pub(crate) fn is_page(path: &str) -> bool {
    let is_markdown = Path::new(path).extension().is_some_and(|extension| extension == "md");
    is_markdown && (path.starts_with("docs/") || !path.contains('/'))
}

/// The citations of a page, and its hashes that are none.
pub(crate) fn in_page(path: &str, text: &str) -> (Vec<Citation>, Vec<Offence>) {
    let (mut citations, mut offences) = (Vec::new(), Vec::new());
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        if !is_word(bytes[at]) {
            line += usize::from(bytes[at] == b'\n');
            at += 1;
            continue;
        }
        let length = bytes[at..].iter().take_while(|&&byte| is_word(byte)).count();
        let (before, word, after) = (&text[..at], &text[at..at + length], &text[at + length..]);
        let is_cited = ["commit `", "commit\n`"].iter().any(|form| before.ends_with(form));
        if is_cited && after.starts_with('`') && is_hex(word) {
            citations.push(Citation { line, hash: word.to_owned() });
        } else if is_hash(word) {
            let what = format!("`{word}` looks like a commit: write \"commit `{word}`\"");
            offences.push(Offence::new(path, line, what));
        }
        at += length;
    }
    (citations, offences)
}

fn is_hex(word: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    LENGTHS.contains(&word.len()) && word.bytes().all(is_digit)
}

fn is_hash(word: &str) -> bool {
    let has = |is_one: fn(&u8) -> bool| word.as_bytes().iter().any(is_one);
    is_hex(word) && has(u8::is_ascii_digit) && has(u8::is_ascii_lowercase)
}

/// What can be said of commits in a checkout.
pub(crate) enum History {
    /// Which commits are in the history of what is checked out.
    Whole,
    /// Nothing, for this reason.
    Unknown(&'static str),
}

impl History {
    /// The history of a checkout.
    pub(crate) fn of(root: &Path) -> History {
        match said(root, &["rev-parse", "--is-shallow-repository"]).as_deref() {
            Some("false") => History::Whole,
            Some(_) => History::Unknown("the clone is shallow: `git fetch --unshallow` first"),
            None => History::Unknown("this is no clone, or there is no git"),
        }
    }
}

/// Whether a commit is an ancestor of what is checked out. One that is only in the object store, of
/// a branch that was given up, is not: no clone would have it.
pub(crate) fn is_in_history(root: &Path, hash: &str) -> bool {
    let commit = format!("{hash}^{{commit}}");
    said(root, &["merge-base", "--is-ancestor", &commit, "HEAD"]).is_some()
}

/// What git says, where it succeeds.
fn said(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_cited_in_one_form_only() {
        let page = "At commit `0123abc`, and at commit\n`89abcde`. Tidegate 6ff5e18 and `43cf7ea` \
                    are none;\n1000000 rows, defaced, 0x402b18fa_9437, 2560KB, sha256.\n";
        let (citations, offences) = in_page("docs/page.md", page);
        let cited: Vec<_> = citations.iter().map(|one| (one.line, one.hash.as_str())).collect();
        assert_eq!(cited, [(1, "0123abc"), (2, "89abcde")]);
        let found: Vec<_> = offences.iter().map(|one| (one.line, &one.what[..9])).collect();
        assert_eq!(found, [(2, "`6ff5e18`"), (2, "`43cf7ea`")]);
        // Figures alone are a hash where the form says so.
        assert_eq!(in_page("docs/page.md", "commit `1234567`").0.len(), 1);
    }

    #[test]
    fn pages_are_those_of_the_docs_and_of_the_root() {
        for (path, is) in [
            ("README.md", true),
            ("docs/results/quick.md", true),
            ("docs/results/demo.json", false),
            ("analysis/README.md", false),
        ] {
            assert_eq!(is_page(path), is, "{path}");
        }
    }
}
