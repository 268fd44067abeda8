//! The bytes of a label, kept inline if they are few.

/// Bytes kept inline. With the length and the variant's tag that makes 24, the size of a `Vec`.
pub(super) const INLINE_MAX: usize = 22;

/// A sequence of bytes: inline up to [`INLINE_MAX`], beyond that on the heap.
///
/// Labels are made and dropped by the dozen in each operation (a lock on a node needs those of all
/// its ancestors), and nearly all labels of real documents fit inline, so none of this allocates.
#[derive(Clone)]
pub(super) enum LabelBytes {
    /// At most [`INLINE_MAX`] bytes: the first `len` of `bytes`.
    Inline { len: u8, bytes: [u8; INLINE_MAX] },
    /// More than [`INLINE_MAX`] bytes.
    Heap(Box<[u8]>),
}

impl LabelBytes {
    /// No bytes.
    pub(super) const EMPTY: LabelBytes = LabelBytes::Inline { len: 0, bytes: [0; INLINE_MAX] };

    /// Returns a sequence of one byte.
    pub(super) const fn of_byte(byte: u8) -> LabelBytes {
        let mut bytes = [0; INLINE_MAX];
        bytes[0] = byte;
        LabelBytes::Inline { len: 1, bytes }
    }

    /// Returns the concatenation of `parts`.
    pub(super) fn concat(parts: &[&[u8]]) -> LabelBytes {
        let total = parts.iter().map(|part| part.len()).sum::<usize>();
        match u8::try_from(total) {
            Ok(len) if total <= INLINE_MAX => {
                let mut bytes = [0; INLINE_MAX];
                let mut end = 0;
                for part in parts {
                    bytes[end..end + part.len()].copy_from_slice(part);
                    end += part.len();
                }
                LabelBytes::Inline { len, bytes }
            }
            _ => LabelBytes::Heap(parts.concat().into_boxed_slice()),
        }
    }

    /// Returns a copy of bytes.
    pub(super) fn from_slice(from: &[u8]) -> LabelBytes {
        match u8::try_from(from.len()) {
            Ok(len) if from.len() <= INLINE_MAX => {
                let mut bytes = [0; INLINE_MAX];
                bytes[..from.len()].copy_from_slice(from);
                LabelBytes::Inline { len, bytes }
            }
            _ => LabelBytes::Heap(from.into()),
        }
    }

    /// Returns the bytes with one more behind them.
    pub(super) fn with_byte(&self, byte: u8) -> LabelBytes {
        match self {
            LabelBytes::Inline { len, bytes } if usize::from(*len) < INLINE_MAX => {
                let mut bytes = *bytes;
                bytes[usize::from(*len)] = byte;
                LabelBytes::Inline { len: len + 1, bytes }
            }
            _ => LabelBytes::concat(&[self.as_slice(), &[byte]]),
        }
    }

    /// Returns the last byte, if there is one.
    pub(super) fn last_mut(&mut self) -> Option<&mut u8> {
        match self {
            LabelBytes::Inline { len, bytes } => bytes[..usize::from(*len)].last_mut(),
            LabelBytes::Heap(bytes) => bytes.last_mut(),
        }
    }

    /// Returns the bytes.
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            LabelBytes::Inline { len, bytes } => &bytes[..usize::from(*len)],
            LabelBytes::Heap(bytes) => bytes,
        }
    }
}
