//! A MariaDB server's byte stream. Every parser sees every payload, whatever its place.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_wire::mysql::handshake::{Verdict, greeting, nonce, verdict};
use tidegate_wire::mysql::packet::{HEADER_LEN, message};
use tidegate_wire::mysql::response::{Answer, RowOrEnd, answer, error, row_or_end};

fuzz_target!(|bytes: &[u8]| {
    let mut stream = bytes;
    while let Ok(Some(message)) = message(stream) {
        assert_eq!(message.len, HEADER_LEN + message.payload.len());
        payload(&message.payload);
        stream = &stream[message.len..];
    }
    payload(stream);
});

fn payload(payload: &[u8]) {
    let _ = greeting(payload);
    if let Ok(Verdict::Switch { data, .. }) = verdict(payload) {
        let _ = nonce(data);
    }
    if let Ok(error) = error(payload) {
        assert!(error.message.len() < payload.len());
    }
    let announced = match answer(payload) {
        Ok(Answer::Columns(columns)) => columns,
        _ => 1,
    };
    for columns in [announced, 2, 3] {
        for deprecates_eof in [false, true] {
            if let Ok(RowOrEnd::Row(row)) = row_or_end(payload, columns, deprecates_eof) {
                assert_eq!(row.len() as u64, columns);
                let read: usize = row.map(|value| 1 + value.map_or(0, <[u8]>::len)).sum();
                assert!(read <= payload.len());
            }
        }
    }
}
