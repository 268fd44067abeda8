//! Parts of documents that are made from the code, for tests.
//!
//! A part stands between two comments that name it. A test compares it with what the code says;
//! with `UPDATE_DOCS=1` in the environment it writes it.

/// Compares a part of a document with what it should be.
///
/// # Panics
/// They differ, or the document has no such part.
pub(crate) fn compare(path: &str, part: &str, wanted: &str) {
    let document = std::fs::read_to_string(path).unwrap();
    let (begin, end) = (format!("<!-- {part}: begin -->\n"), format!("<!-- {part}: end -->"));
    let (before, rest) = document.split_once(&begin).unwrap_or_else(|| panic!("{path}: {begin}"));
    let (present, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{path}: {end}"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let updated = format!("{before}{begin}{wanted}{end}{after}");
        std::fs::write(path, updated).unwrap();
        return;
    }
    assert!(present == wanted, "{path} is out of date: run the test with UPDATE_DOCS=1");
}
