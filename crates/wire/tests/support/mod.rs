//! Walking recorded or generated streams, shared by the test binaries.

use tidegate_wire::frame::{HEADER_LEN, frame};

/// One message of a stream: its type and its payload.
pub(crate) type Message<'a> = (u8, &'a [u8]);

/// The complete messages at the front of `stream`, and what is left.
pub(crate) fn walk(mut stream: &[u8]) -> (Vec<Message<'_>>, &[u8]) {
    let mut messages = Vec::new();
    while let Some(header) = frame(stream).expect("a header that begins a message") {
        let Some((message, rest)) = stream.split_at_checked(header.len) else {
            break;
        };
        messages.push((header.tag, &message[HEADER_LEN..]));
        stream = rest;
    }
    (messages, stream)
}
