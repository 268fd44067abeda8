//! A reader's position stays within what has arrived, whatever lengths are announced.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_wire::input::{Input, InputError, Missing, Side};

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Client), Just(Side::Server)]
}

/// Messages with true, short, long and impossible lengths.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![0_u32..12, 4_u32..6, 4_000_u32..5_000, any::<u32>()];
    let tag = prop_oneof![any::<u8>(), Just(b'S'), Just(b'Q'), Just(b'Z'), Just(b'H')];
    let message = (tag, length, vec(any::<u8>(), 0..12))
        .prop_map(|(tag, length, payload)| [&[tag][..], &length.to_be_bytes(), &payload].concat());
    vec(message, 0..6).prop_map(|messages| messages.concat())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn the_position_stays_within_the_bytes(
        side in side(),
        bytes in stream(),
        limit in 0..20_usize,
    ) {
        let mut input = Input::new(side, &bytes);
        let mut missing = Missing::default();
        loop {
            let before = input.position();
            let skipped = input.skip(&mut missing);
            prop_assert!(skipped.end == input.position() && skipped.start == before);
            prop_assert!(missing.is_none() || input.is_empty());
            let Ok(Some(peeked)) = input.peek() else { break };
            let is_taken = peeked.has_arrived(limit);
            prop_assert!(peeked.payload().len() + 5 <= peeked.announced_len());
            prop_assert!(is_taken || !peeked.is_complete());
            if !is_taken {
                break;
            }
            let (message, rest) = peeked.take();
            missing = rest;
            prop_assert_eq!(&bytes[message.payload_range(0)], message.payload());
            prop_assert_eq!(message.range().end, input.position());
            prop_assert!(input.position() <= bytes.len());
        }
        input.discard();
        prop_assert!(input.is_empty());
    }
}

#[test]
fn lengths_that_the_protocol_fixes_are_checked() {
    let refused = |side, bytes: &[u8]| Input::new(side, bytes).peek().map(|_| ()).unwrap_err();
    for tag in [b'S', b'H', b'c', b'X'] {
        let error = refused(Side::Client, &[tag, 0, 0, 16, 0]);
        assert_eq!(error, InputError::FixedLength { tag, announced: 4096, fixed: 4 });
        assert_eq!(error.tag(), tag);
    }
    assert!(refused(Side::Client, b"S\0\0\x10\0").to_string().contains("4096 bytes instead of 4"));
    for header in [&b"Z\0\0\0\x04"[..], b"1\0\0\0\x05", b"2\0\0\x10\0", b"n\x3f\xff\xff\xff"] {
        assert!(matches!(refused(Side::Server, header), InputError::FixedLength { .. }));
    }
    assert!(matches!(refused(Side::Server, b"D\0\0\0\x03"), InputError::Frame(_)));
    // The same letters mean something else on the other side.
    assert!(Input::new(Side::Server, b"S\0\0\x10\0").peek().unwrap().is_some());
    assert!(Input::new(Side::Client, b"Z\0\0\x10\0").peek().unwrap().is_some());
}
