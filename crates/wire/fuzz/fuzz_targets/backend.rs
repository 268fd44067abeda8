//! A server's byte stream. Every parser sees every payload, whatever the message's type.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_wire::frame::{HEADER_LEN, frame};
use tidegate_wire::{authentication, backend, error_response};

fuzz_target!(|bytes: &[u8]| {
    let mut stream = bytes;
    while let Ok(Some(header)) = frame(stream) {
        assert!(header.len >= HEADER_LEN);
        let Some((message, rest)) = stream.split_at_checked(header.len) else {
            payload(&stream[HEADER_LEN..]);
            return;
        };
        payload(&message[HEADER_LEN..]);
        stream = rest;
    }
});

fn payload(payload: &[u8]) {
    session(payload);
    if let Ok(columns) = backend::data_row(payload) {
        let read: usize = columns.map(|column| 4 + column.unwrap_or_default().len()).sum();
        assert!(2 + read <= payload.len());
    }
    if let Ok(command) = backend::command_complete(payload) {
        assert!(command.len() < payload.len());
    }
    let read: usize = error_response::fields(payload).map(|(_, text)| text.len() + 2).sum();
    assert!(read <= payload.len());
    let _ = error_response::field(payload, b'M');
}

/// What a server says while a session begins, and between its transactions.
fn session(payload: &[u8]) {
    let mut again = Vec::new();
    if let Ok(authentication::Authentication::Sasl { mechanisms }) =
        authentication::authentication(payload)
    {
        let _ = authentication::offers(mechanisms, authentication::SCRAM_SHA_256);
    }
    if let Ok((name, value)) = backend::parameter_status(payload) {
        backend::encode_parameter_status(&mut again, name, value);
        assert!(payload.starts_with(&again[HEADER_LEN..]));
    }
    again.clear();
    if let Ok(key) = backend::backend_key_data(payload) {
        backend::encode_backend_key_data(&mut again, &key);
        assert!(payload.starts_with(&again[HEADER_LEN..]));
    }
    again.clear();
    if let Ok(status) = backend::ready_for_query(payload) {
        backend::encode_ready_for_query(&mut again, status);
        assert!(payload.starts_with(&again[HEADER_LEN..]));
    }
}
