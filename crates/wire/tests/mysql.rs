//! MariaDB's protocol: bytes as the documentation prints them, and properties over generated ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::borrow::Cow;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tidegate_wire::mysql::authentication::{NATIVE_PASSWORD, native_password};
use tidegate_wire::mysql::handshake::{
    Greeting, Login, Verdict, capability, encode_login, encode_proof, greeting, nonce, verdict,
};
use tidegate_wire::mysql::packet::{
    HEADER_LEN, MESSAGE_LEN_MAX, Message, PACKET_LEN_MAX, PacketError, QUIT, encode_message,
    encode_query, message,
};
use tidegate_wire::mysql::response::{
    Answer, ErrorPacket, OkPacket, RowOrEnd, Status, answer, error, is_eof, row_or_end,
};

/// Bytes printed as pairs of hexadecimal digits.
fn hex(text: &str) -> Vec<u8> {
    let pairs = text.split_whitespace();
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// The payloads of a stream of whole messages, with the numbers of their first packets.
fn walk(mut stream: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut messages = Vec::new();
    while let Some(Message { first, payload, len, .. }) = message(stream).unwrap() {
        messages.push((first, payload.into_owned()));
        stream = &stream[len..];
    }
    assert!(stream.is_empty());
    messages
}

fn sole(stream: &[u8]) -> Vec<u8> {
    let mut messages = walk(stream);
    assert_eq!(messages.len(), 1);
    messages.remove(0).1
}

/// The example of `Protocol::HandshakeV10` in the MySQL Internals Manual.
const GREETING: &str = "50 00 00 00 0a 35 2e 36 2e 34 2d 6d 37 2d 6c 6f
    67 00 56 0a 00 00 52 42 33 76 7a 26 47 72 00 ff ff 08 02 00 0f c0 15 00 00 00 00 00 00 00 00
    00 00 2b 79 44 26 2f 5a 5a 33 30 35 5a 47 00 6d 79 73 71 6c 5f 6e 61 74 69 76 65 5f 70 61 73
    73 77 6f 72 64 00";

#[test]
fn the_greeting_of_the_documentation_is_read() {
    let payload = sole(&hex(GREETING));
    let expected = Greeting {
        version: b"5.6.4-m7-log",
        connection: 2646,
        capabilities: 0xc00f_ffff,
        nonce: *b"RB3vz&Gr+yD&/ZZ305ZG",
        plugin: NATIVE_PASSWORD.as_bytes(),
    };
    assert_eq!(greeting(&payload), Ok(expected));
    // Without the zero behind the plugin's name, as some servers send it.
    assert_eq!(greeting(&payload[..payload.len() - 1]), Ok(expected));
    let before_the_name = payload.len() - NATIVE_PASSWORD.len() - 1;
    for len in 0..before_the_name {
        assert!(greeting(&payload[..len]).is_err(), "{len} bytes");
    }
    let mut old = payload.clone();
    old[0] = 9;
    assert!(greeting(&old).is_err());
}

#[test]
fn a_greeting_without_names_of_methods_means_the_native_one() {
    // Handshake of a server 5.0.22, before methods had names.
    let bytes = hex("41 00 00 00 0a 35 2e 30 2e 32 32 2d 63 6f 6d 6d 75 6e 69 74 79 2d 6e 74 00 01
        00 00 00 7e 37 33 3a 69 25 78 4f 00 2c a2 08 02 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        61 7c 69 78 42 7b 6a 21 61 49 29 2d 00");
    let payload = sole(&bytes);
    let read = greeting(&payload).unwrap();
    assert_eq!(read.version, b"5.0.22-community-nt");
    assert_eq!(&read.nonce, b"~73:i%xOa|ixB{j!aI)-");
    assert_eq!(read.plugin, NATIVE_PASSWORD.as_bytes());
    assert_eq!(read.capabilities & capability::DEPRECATE_EOF, 0);
    // A server that does not know protocol 4.1.
    let mut ancient = payload;
    let flags = 1 + 20 + 4 + 8 + 1;
    assert_eq!(ancient[flags..flags + 2], [0x2c, 0xa2]);
    ancient[flags + 1] = 0x80;
    assert!(greeting(&ancient).is_err());
}

#[test]
fn a_password_is_proved_by_its_sha1s() {
    // By Python's hashlib, from the formula in the module.
    let proof = native_password(b"secret", b"RB3vz&Gr+yD&/ZZ305ZG").unwrap();
    let expected = hex("dc b5 5c eb 01 3b 37 a1 de cc 9d b1 03 b2 0c 31 2f 73 1c 30");
    assert_eq!(proof[..], expected);
    assert_eq!(native_password(b"", b"RB3vz&Gr+yD&/ZZ305ZG"), None);
}

#[test]
fn a_login_is_written_field_by_field() {
    let mut login = Login {
        capabilities: capability::FOUND_ROWS,
        user: "pam",
        proof: Some([7; 20]),
        database: "test",
    };
    let mut out = Vec::new();
    encode_login(&mut out, 1, &login);
    let expected = [
        // FOUND_ROWS, CONNECT_WITH_DB, PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH.
        &hex("52 00 00 01 0a 82 08 00 00 00 00 40 2d")[..],
        &[0; 23],
        b"pam\0\x14",
        &[7; 20],
        b"test\0mysql_native_password\0",
    ]
    .concat();
    assert_eq!(out[4..], expected[4..]);
    assert_eq!(usize::from(out[0]), expected.len() - HEADER_LEN);
    assert_eq!(out[3], 1);

    (login.proof, login.database) = (None, "");
    let mut out = Vec::new();
    encode_login(&mut out, 1, &login);
    let expected =
        [&hex("02 82 08 00 00 00 00 40 2d")[..], &[0; 23], b"pam\0\0mysql_native_password\0"]
            .concat();
    assert_eq!(sole(&out), expected);
}

#[test]
fn every_verdict_on_a_login_is_told_from_the_others() {
    let ok = sole(&hex("07 00 00 02 00 00 00 02 00 00 00"));
    assert_eq!(verdict(&ok), Ok(Verdict::In(OkPacket { affected: 0, status: Status(2) })));
    let switch = b"\xfemysql_native_password\0zQg4ioNy6=rHN/>-b)A7\0";
    let Ok(Verdict::Switch { plugin, data }) = verdict(switch) else {
        panic!("not read as a switch");
    };
    assert_eq!(plugin, NATIVE_PASSWORD.as_bytes());
    assert_eq!(&nonce(data).unwrap(), b"zQg4ioNy6=rHN/>-b)A7");
    assert!(nonce(&data[..19]).is_err());
    let old = Verdict::Switch { plugin: b"mysql_old_password", data: b"" };
    assert_eq!(verdict(b"\xfe"), Ok(old));
    assert_eq!(verdict(b"\x01\x04"), Ok(Verdict::More(b"\x04")));
    assert!(matches!(verdict(b"\xff\x15\x04#28000no"), Ok(Verdict::Out(_))));
    assert!(verdict(b"").is_err());
    assert!(verdict(b"\x02").is_err());

    let mut out = Vec::new();
    encode_proof(&mut out, 3, Some([9; 20]));
    assert_eq!(walk(&out), [(3, vec![9; 20])]);
    out.clear();
    encode_proof(&mut out, 3, None);
    assert_eq!(out, hex("00 00 00 03"));
}

#[test]
fn the_query_of_the_documentation_is_written() {
    // MySQL Internals Manual, "COM_QUERY".
    let expected = hex("21 00 00 00 03 73 65 6c 65 63 74 20 40 40 76 65 72 73 69 6f 6e 5f 63 6f 6d
        6d 65 6e 74 20 6c 69 6d 69 74 20 31");
    let mut out = Vec::new();
    encode_query(&mut out, b"select @@version_comment limit 1");
    assert_eq!(out, expected);
    assert_eq!(QUIT, hex("01 00 00 00 01"));
}

/// The answer to that query: the example of `ProtocolText::Resultset` in the same manual.
const ROWS: &str = "01 00 00 01 01 27 00 00 02 03 64 65 66 00 00 00 11 40 40 76 65 72 73 69 6f 6e
    5f 63 6f 6d 6d 65 6e 74 00 0c 08 00 1c 00 00 00 fd 00 00 1f 00 00 05 00 00 03 fe 00 00 02 00
    1d 00 00 04 1c 4d 79 53 51 4c 20 43 6f 6d 6d 75 6e 69 74 79 20 53 65 72 76 65 72 20 28 47 50
    4c 29 05 00 00 05 fe 00 00 02 00";

#[test]
fn the_rows_of_the_documentation_are_read() {
    let messages = walk(&hex(ROWS));
    assert_eq!(messages.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(answer(&messages[0].1), Ok(Answer::Columns(1)));
    assert!(!is_eof(&messages[1].1));
    assert!(is_eof(&messages[2].1));
    let Ok(RowOrEnd::Row(row)) = row_or_end(&messages[3].1, 1, false) else {
        panic!("not read as a row");
    };
    assert_eq!(row.len(), 1);
    assert_eq!(row.collect::<Vec<_>>(), [Some(&b"MySQL Community Server (GPL)"[..])]);
    let Ok(RowOrEnd::End(end)) = row_or_end(&messages[4].1, 1, false) else {
        panic!("not read as the end");
    };
    assert_eq!(end, OkPacket { affected: 0, status: Status(2) });
    assert!(!end.status.in_transaction() && !end.status.more_results());
}

#[test]
fn every_byte_but_the_last_of_a_message_leaves_it_open() {
    for bytes in [hex(GREETING), hex(ROWS)] {
        let first = message(&bytes).unwrap().unwrap();
        for len in 0..first.len {
            assert_eq!(message(&bytes[..len]), Ok(None), "{len} bytes");
        }
        assert!(matches!(first.payload, Cow::Borrowed(_)));
    }
}

#[test]
fn the_ends_of_rows_are_told_from_rows() {
    let short = b"\xfe\0\0\x0b\0\0\0";
    let mut long = vec![0; PACKET_LEN_MAX + 1];
    long[0] = 0xfe;
    // An OK in EOF's place: a transaction is open, another answer follows.
    let Ok(RowOrEnd::End(end)) = row_or_end(short, 2, true) else { panic!("no end") };
    assert_eq!((end.status.in_transaction(), end.status.more_results()), (true, true));
    assert!(!end.status.no_backslash_escapes());
    // A row whose first value announces 8 bytes of length, all zero, then no second one.
    assert!(row_or_end(&long, 2, true).is_err());
    assert!(row_or_end(&long[..9], 2, false).is_err());
    let Ok(RowOrEnd::Row(row)) = row_or_end(&long[..9], 1, false) else { panic!("no row") };
    assert_eq!(row.collect::<Vec<_>>(), [Some(&b""[..])]);
    let Ok(RowOrEnd::Error(error)) = row_or_end(b"\xff\xb5\x04#70100no", 2, true) else {
        panic!("no error")
    };
    assert_eq!(error, ErrorPacket { code: 1205, state: b"70100", message: b"no" });
}

#[test]
fn errors_are_read_with_and_without_a_state() {
    // MySQL Internals Manual, "ERR_Packet".
    let bytes = hex("17 00 00 01 ff 48 04 23 48 59 30 30 30 4e 6f 20 74 61 62 6c 65 73 20 75 73 65
        64");
    let expected = ErrorPacket { code: 1096, state: b"HY000", message: b"No tables used" };
    let payload = sole(&bytes);
    assert_eq!(error(&payload), Ok(expected));
    assert_eq!(answer(&payload), Ok(Answer::Error(expected)));
    let early = ErrorPacket { code: 1040, state: b"HY000", message: b"Too many connections" };
    assert_eq!(error(b"\xff\x10\x04Too many connections"), Ok(early));
    for cut in [&b""[..], b"\xff", b"\xff\x10", b"\xff\x10\x04#HY0", b"\0\x10\x04"] {
        assert!(error(cut).is_err(), "{cut:?}");
    }
}

#[test]
fn answers_that_are_none_are_refused() {
    assert_eq!(answer(b"\xfc\x01\x02"), Ok(Answer::Columns(513)));
    // A file is asked for; nothing; a count cut short, and with more behind it; an OK cut short.
    for payload in [&b"\xfb/etc/passwd"[..], b"", b"\xfc\x01", b"\x01\x01", b"\0", b"\0\0\0\x02"] {
        assert!(answer(payload).is_err(), "{payload:?}");
    }
    for payload in [&b"\x02ab"[..], b"\x03ab", b"\x01", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff"] {
        assert!(row_or_end(payload, 2, false).is_err(), "{payload:?}");
    }
    // A row cannot make us wait or allocate for the columns a liar announced.
    assert!(row_or_end(b"\x01a", u64::MAX, false).is_err());
}

/// A message of so many bytes in packets, with the last one's header.
fn encoded(len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    encode_message(&mut out, 254, |out| out.resize(out.len() + len, b'x'));
    out
}

#[test]
fn long_messages_are_cut_and_put_together() {
    for (len, packets) in [
        (0, 1),
        (PACKET_LEN_MAX - 1, 1),
        (PACKET_LEN_MAX, 2),
        (PACKET_LEN_MAX + 1, 2),
        (2 * PACKET_LEN_MAX, 3),
        (2 * PACKET_LEN_MAX + 5, 3),
    ] {
        let bytes = encoded(len);
        assert_eq!(bytes.len(), len + packets * HEADER_LEN);
        let whole = message(&bytes).unwrap().unwrap();
        assert_eq!((whole.payload.len(), whole.len), (len, bytes.len()));
        assert!(whole.payload.iter().all(|&byte| byte == b'x'));
        // 254, 255, 0.
        let last = [254, 255, 0][packets - 1];
        assert_eq!((whole.first, whole.last), (254, last));
        assert_eq!(message(&bytes[..bytes.len() - 1]), Ok(None));
        if packets > 1 {
            assert_eq!(message(&bytes[..HEADER_LEN + PACKET_LEN_MAX]), Ok(None));
        }
    }
}

#[test]
fn packets_that_do_not_belong_together_are_refused() {
    let mut bytes = encoded(PACKET_LEN_MAX);
    let last = bytes.len() - 1;
    bytes[last] = 7;
    assert_eq!(message(&bytes), Err(PacketError::OutOfOrder { expected: 255, found: 7 }));
}

#[test]
#[ignore = "soak: 1 GiB in memory"]
fn a_message_longer_than_any_servers_is_refused() {
    let packets = MESSAGE_LEN_MAX / PACKET_LEN_MAX + 1;
    let mut bytes = Vec::new();
    for number in (0..=255).cycle().take(packets) {
        bytes.extend_from_slice(&[0xff, 0xff, 0xff, number]);
        bytes.resize(bytes.len() + PACKET_LEN_MAX, 0);
    }
    assert_eq!(message(&bytes), Err(PacketError::TooLong));
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 1_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

/// A value after its length, the number in the fewest bytes or in more.
fn write_value(out: &mut Vec<u8>, value: Option<&[u8]>, width: u8) {
    let Some(value) = value else { return out.push(0xfb) };
    let len = value.len() as u64;
    match width {
        1 if len < 251 => out.push(len.try_into().unwrap()),
        2 => out.extend([&[0xfc][..], &len.to_le_bytes()[..2]].concat()),
        3 => out.extend([&[0xfd][..], &len.to_le_bytes()[..3]].concat()),
        _ => out.extend([&[0xfe][..], &len.to_le_bytes()].concat()),
    }
    out.extend_from_slice(value);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn rows_round_trip_and_no_shorter_one_is_a_row(
        values in vec((prop::option::of(vec(any::<u8>(), 0..300)), 1_u8..=4), 1..6),
    ) {
        let mut payload = Vec::new();
        for (value, width) in &values {
            write_value(&mut payload, value.as_deref(), *width);
        }
        // Without EOF's replacement, a first byte of 0xfe in a short payload is the old EOF.
        prop_assume!(!is_eof(&payload));
        let Ok(RowOrEnd::Row(row)) = row_or_end(&payload, values.len() as u64, false) else {
            return Err(TestCaseError::fail("not read as a row"));
        };
        prop_assert!(row.eq(values.iter().map(|(value, _)| value.as_deref())));
        for len in 0..payload.len() {
            let cut = row_or_end(&payload[..len], values.len() as u64, false);
            prop_assert!(!matches!(cut, Ok(RowOrEnd::Row(_))));
        }
        let more = values.len() as u64 + 1;
        prop_assert!(row_or_end(&payload, more, false).is_err());
    }

    #[test]
    fn no_payload_panics_and_what_is_read_lies_in_it(
        payload in vec(any::<u8>(), 0..80),
        columns in prop_oneof![0_u64..4, any::<u64>()],
        deprecates in any::<bool>(),
    ) {
        let _ = (greeting(&payload), verdict(&payload), answer(&payload), nonce(&payload));
        if let Ok(error) = error(&payload) {
            prop_assert!(error.message.len() < payload.len());
        }
        if let Ok(RowOrEnd::Row(row)) = row_or_end(&payload, columns, deprecates) {
            prop_assert_eq!(row.len() as u64, columns);
            let read: usize = row.map(|value| 1 + value.map_or(0, <[u8]>::len)).sum();
            prop_assert!(read <= payload.len());
        }
        if let Ok(Some(message)) = message(&payload) {
            prop_assert_eq!(message.len, HEADER_LEN + message.payload.len());
            prop_assert!(message.len <= payload.len());
        }
    }

    #[test]
    fn messages_of_any_length_come_one_after_the_other(
        lens in vec(0_usize..200, 1..20),
        first in any::<u8>(),
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for (len, step) in lens.into_iter().zip(0_u8..) {
            let payload = vec![step; len];
            let number = first.wrapping_add(step);
            encode_message(&mut stream, number, |out| out.extend_from_slice(&payload));
            expected.push((number, payload));
        }
        prop_assert_eq!(walk(&stream), expected);
    }
}
