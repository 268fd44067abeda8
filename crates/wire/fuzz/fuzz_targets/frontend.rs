//! A client's byte stream: first packets, then messages. Every parser sees every payload, whatever
//! the message's type.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_wire::frame::{HEADER_LEN, frame};
use tidegate_wire::startup::{FirstPacket, first_packet};
use tidegate_wire::{authentication, frontend};

fuzz_target!(|bytes: &[u8]| messages(after_first_packets(bytes)));

fn after_first_packets(mut stream: &[u8]) -> &[u8] {
    while let Ok(Some((packet, len))) = first_packet(stream) {
        assert!((8..=stream.len()).contains(&len));
        stream = &stream[len..];
        if let FirstPacket::Startup(startup) = packet {
            let pairs = startup.parameters().map(|(name, value)| name.len() + value.len() + 2);
            // The length, the version, the pairs and the final zero.
            assert_eq!(8 + pairs.sum::<usize>() + 1, len);
            break;
        }
    }
    stream
}

fn messages(mut stream: &[u8]) {
    while let Ok(Some(header)) = frame(stream) {
        assert!(header.len >= HEADER_LEN);
        let Some((message, rest)) = stream.split_at_checked(header.len) else {
            payload(&stream[HEADER_LEN..]);
            return;
        };
        payload(&message[HEADER_LEN..]);
        stream = rest;
    }
}

fn payload(payload: &[u8]) {
    if let Ok(parse) = frontend::parse(payload) {
        assert_eq!(parse.name.len() + 1 + parse.definition.len(), payload.len());
        let mut again = Vec::new();
        frontend::encode_parse(&mut again, parse.name, parse.definition);
        assert_eq!(&again[HEADER_LEN..], payload);
    }
    if let Ok(names) = frontend::bind_names(payload) {
        let rest = &payload[names.encoded_len()..];
        let mut again = Vec::new();
        frontend::encode_bind_head(&mut again, names, rest.len());
        assert_eq!(frame(&again).unwrap().unwrap().len, HEADER_LEN + payload.len());
        assert_eq!(again[HEADER_LEN..], payload[..names.encoded_len()]);
    }
    if let Ok((target, name)) = frontend::target(payload) {
        let mut again = Vec::new();
        frontend::encode_close(&mut again, target, name);
        assert!(payload.starts_with(&again[HEADER_LEN..]));
    }
    if let Ok(password) = authentication::password(payload) {
        assert!(password.len() < payload.len());
    }
    if let Ok((mechanism, response)) = authentication::sasl_initial_response(payload) {
        assert!(mechanism.len() + response.len() + 5 <= payload.len());
    }
}
