//! Whole numbers as bytes: what a transaction's values look like on their way to a procedure.

/// Appends numbers of four bytes each, the lowest byte first.
pub(crate) fn append(words: &[i32], out: &mut Vec<u8>) {
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// Exactly so many numbers; `None` when the bytes are more or fewer.
pub(crate) fn read<const COUNT: usize>(bytes: &[u8]) -> Option<[i32; COUNT]> {
    let (words, rest) = bytes.as_chunks::<4>();
    let words: &[[u8; 4]; COUNT] = words.try_into().ok()?;
    rest.is_empty().then(|| words.map(i32::from_le_bytes))
}
