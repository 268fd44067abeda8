//! Every message there and back, cut short, damaged, and as garbage.

use proptest::prelude::*;
use tidegate_control::SplitMix64;

use crate::lock::LockError;
use crate::txn::TxnError;

use super::*;

const MAX: u32 = 4_096;

/// A message of any kind, which owns what it holds.
#[derive(Clone, Debug)]
enum Message {
    Hello(u32),
    Welcome(Welcome),
    Request(u64, bool, String, Vec<u8>),
    Done(u64, Vec<u8>),
    Failed(u64, FailureKind, String),
    Goodbye(GoodbyeReason, String),
}

fn class(is_high: bool) -> Class {
    if is_high { Class::High } else { Class::Normal }
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Message::Hello(version) => Hello { version: *version }.encode(&mut out),
            Message::Welcome(welcome) => welcome.encode(&mut out),
            Message::Request(id, is_high, procedure, arguments) => {
                let (id, class) = (RequestId(*id), class(*is_high));
                Request { id, class, procedure, arguments }.encode(&mut out, MAX).unwrap();
            }
            Message::Done(id, answer) => {
                Response::Done { id: RequestId(*id), answer }.encode(&mut out);
            }
            Message::Failed(id, kind, text) => {
                Response::Failed { id: RequestId(*id), kind: *kind, text }.encode(&mut out);
            }
            Message::Goodbye(reason, text) => {
                Response::Goodbye { reason: *reason, text }.encode(&mut out);
            }
        }
        out
    }

    /// What the decoder for such messages makes of `bytes`.
    fn decode(&self, bytes: &[u8]) -> Decoded<Message> {
        let welcome = |(welcome, taken)| (Message::Welcome(welcome), taken);
        let hello = |(hello, taken): (Hello, usize)| (Message::Hello(hello.version), taken);
        Ok(match self {
            Message::Hello(_) => Hello::decode(bytes)?.map(hello),
            Message::Welcome(_) => Welcome::decode(bytes)?.map(welcome),
            Message::Request(..) => Request::decode(bytes, MAX)?.map(|(request, taken)| {
                let is_high = request.class == Class::High;
                let (name, arguments) = (request.procedure.to_owned(), request.arguments.to_vec());
                (Message::Request(request.id.0, is_high, name, arguments), taken)
            }),
            _ => Response::decode(bytes, MAX)?.map(|(response, taken)| {
                let message = match response {
                    Response::Done { id, answer } => Message::Done(id.0, answer.to_vec()),
                    Response::Failed { id, kind, text } => {
                        Message::Failed(id.0, kind, text.to_owned())
                    }
                    Response::Goodbye { reason, text } => Message::Goodbye(reason, text.to_owned()),
                };
                (message, taken)
            }),
        })
    }
}

fn reason() -> impl Strategy<Value = GoodbyeReason> {
    prop_oneof![
        Just(GoodbyeReason::Violation),
        Just(GoodbyeReason::Idle),
        Just(GoodbyeReason::Stopping)
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..60);
    let text = || ".{0,30}";
    let verdict =
        prop_oneof![Just(Verdict::Accepted), Just(Verdict::OtherVersion), Just(Verdict::Full)];
    let welcome = (any::<u32>(), verdict, FRAME_LEN_LIMITS, any::<u32>());
    let kind = prop::sample::select(FailureKind::ALL.to_vec());
    prop_oneof![
        any::<u32>().prop_map(Message::Hello),
        welcome.prop_map(|(version, verdict, frame_len_max, under_way_max)| {
            Message::Welcome(Welcome { version, verdict, frame_len_max, under_way_max })
        }),
        (any::<u64>(), any::<bool>(), text(), bytes())
            .prop_map(|(id, high, name, arguments)| Message::Request(id, high, name, arguments)),
        (any::<u64>(), bytes()).prop_map(|(id, answer)| Message::Done(id, answer)),
        (any::<u64>(), kind, text()).prop_map(|(id, kind, text)| Message::Failed(id, kind, text)),
        (reason(), text()).prop_map(|(reason, text)| Message::Goodbye(reason, text)),
    ]
}

proptest! {
    #[test]
    fn a_message_survives_the_way_and_leaves_what_follows(
        message in message(),
        rest in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut bytes = message.encode();
        let len = bytes.len();
        bytes.extend(rest);
        let (decoded, taken) = message.decode(&bytes).unwrap().unwrap();
        prop_assert_eq!(taken, len);
        prop_assert_eq!(format!("{decoded:?}"), format!("{message:?}"));
    }

    #[test]
    fn every_beginning_of_a_message_needs_more(message in message()) {
        let bytes = message.encode();
        for len in 0..bytes.len() {
            prop_assert!(message.decode(&bytes[..len]).unwrap().is_none(), "{} bytes", len);
        }
    }

    #[test]
    fn garbage_is_no_reason_to_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        decode_as_everything(&bytes);
    }
}

/// Whatever is decoded lies within the bytes there are.
fn decode_as_everything(bytes: &[u8]) {
    let taken = [
        Hello::decode(bytes).map(|decoded| decoded.map(|(_, taken)| taken)),
        Welcome::decode(bytes).map(|decoded| decoded.map(|(_, taken)| taken)),
        Request::decode(bytes, MAX).map(|decoded| decoded.map(|(_, taken)| taken)),
        Response::decode(bytes, MAX).map(|decoded| decoded.map(|(_, taken)| taken)),
    ];
    for taken in taken.into_iter().flatten().flatten() {
        assert!(0 < taken && taken <= bytes.len(), "{taken} of {} bytes", bytes.len());
    }
}

/// One message of each kind.
fn samples() -> Vec<Message> {
    let (version, verdict) = (VERSION, Verdict::Accepted);
    let welcome = Welcome { version, verdict, frame_len_max: MAX, under_way_max: 9 };
    vec![
        Message::Hello(VERSION),
        Message::Welcome(welcome),
        Message::Request(7, false, "transfer".into(), vec![1; 20]),
        Message::Done(7, vec![2; 20]),
        Message::Failed(7, FailureKind::Conflict, "a deadlock".into()),
        Message::Goodbye(GoodbyeReason::Idle, "nothing was asked".into()),
    ]
}

#[test]
fn damaged_messages_are_no_reason_to_panic() {
    let seed = 4;
    println!("seed {seed}");
    let mut random = SplitMix64::new(seed);
    let mut below =
        |bound: usize| usize::try_from(random.next_bits() % u64::try_from(bound).unwrap()).unwrap();
    for message in samples() {
        for _ in 0..5_000 {
            let mut bytes = message.encode();
            for _ in 0..=below(3) {
                let at = below(bytes.len());
                bytes[at] = u8::try_from(below(256)).unwrap();
            }
            bytes.truncate(below(bytes.len() + 1));
            decode_as_everything(&bytes);
        }
    }
}

#[test]
fn a_request_has_these_bytes() {
    let mut out = Vec::new();
    let request =
        Request { id: RequestId(7), class: Class::Normal, procedure: "add", arguments: &[0x2A] };
    request.encode(&mut out, MAX).unwrap();
    let expected: [&[u8]; 6] =
        [&[15, 0, 0, 0], &[1], &[7, 0, 0, 0, 0, 0, 0, 0], &[3, 0], b"add", &[0x2A]];
    assert_eq!(out, expected.concat());
}

#[test]
fn greetings_have_these_bytes() {
    let mut out = Vec::new();
    Hello { version: 1 }.encode(&mut out);
    assert_eq!(out, b"tg-calls\x01\0\0\0");
    out.clear();
    let verdict = Verdict::OtherVersion;
    let welcome = Welcome { version: 1, verdict, frame_len_max: 1 << 20, under_way_max: 128 };
    welcome.encode(&mut out);
    assert_eq!(out, b"tg-calls\x01\0\0\0\x01\0\0\0\0\0\x10\0\x80\0\0\0");
}

#[test]
fn the_first_wrong_byte_of_a_greeting_is_enough() {
    let hello = Message::Hello(VERSION).encode();
    for at in 0..MAGIC.len() {
        let mut bytes = hello[..=at].to_vec();
        bytes[at] ^= 1;
        assert_eq!(Hello::decode(&bytes), Err(ProtocolError::Magic));
        assert_eq!(Welcome::decode(&bytes), Err(ProtocolError::Magic));
    }
}

#[test]
fn a_length_that_lies_is_an_error_at_once() {
    for len in [0, 10, MAX + 1, u32::MAX] {
        let expected = Err(ProtocolError::Length { len, min: 11, max: MAX });
        assert_eq!(Request::decode(&len.to_le_bytes(), MAX), expected);
    }
    for len in [0, 1, MAX + 1, u32::MAX] {
        let expected = Err(ProtocolError::Length { len, min: 2, max: MAX });
        assert_eq!(Response::decode(&len.to_le_bytes(), MAX), expected);
    }
    // Lengths inside a frame that go beyond it.
    let mut bytes = Message::Request(7, false, "add".into(), vec![]).encode();
    bytes[13] = 4;
    let decoded = Request::decode(&bytes, MAX);
    let message = "request";
    let field = "the procedure's name";
    assert_eq!(decoded, Err(ProtocolError::Malformed { message, field }));
}

#[test]
fn fields_that_cannot_be_are_named() {
    let request = Message::Request(7, false, "add".into(), vec![]);
    let failed = Message::Failed(7, FailureKind::Full, "no".into());
    let goodbye = Message::Goodbye(GoodbyeReason::Idle, "no".into());
    let welcome = samples().remove(1);
    let cases = [
        (&request, 4, "the class"),
        (&request, 15, "the procedure's name"),
        (&failed, 4, "the kind"),
        (&failed, 13, "the text"),
        (&goodbye, 5, "the reason"),
        (&welcome, 12, "the verdict"),
        (&welcome, 19, "the length of frames"),
    ];
    for (message, at, expected) in cases {
        let mut bytes = message.encode();
        bytes[at] = 0xFE;
        let error = message.decode(&bytes).unwrap_err();
        let is_named = matches!(error, ProtocolError::Malformed { field, .. } if field == expected);
        assert!(is_named, "{error}, not {expected}");
    }
    let short = [3, 0, 0, 0, 1, 7, 7];
    let error = Response::decode(&short, MAX).unwrap_err();
    assert!(matches!(error, ProtocolError::Malformed { field: "the number", .. }), "{error}");
}

#[test]
fn what_does_not_fit_is_not_sent() {
    let request = |procedure, arguments| Request {
        id: RequestId(1),
        class: Class::High,
        procedure,
        arguments,
    };
    let (name, arguments) = ("x".repeat(70_000), vec![0; 5_000]);
    let mut out = vec![9];
    let error = request(&name, &[]).encode(&mut out, u32::MAX).unwrap_err();
    assert_eq!(error, TooLong { what: "the procedure's name", len: 70_000, max: 65_535 });
    let error = request("add", &arguments).encode(&mut out, MAX).unwrap_err();
    assert_eq!(error, TooLong { what: "the request", len: 5_014, max: 4_096 });
    assert_eq!(out, [9]);
    // 4 + 11 + 3 bytes besides the arguments.
    request("add", &arguments[..4_082]).encode(&mut out, MAX).unwrap();
    assert_eq!(out.len(), 1 + 4 + 4_096);
}

#[test]
fn every_way_a_call_ends_has_its_kind() {
    let conflict = || CallError::Failed(TxnError::Conflict(LockError::Deadlock));
    let cases = [
        (CallError::NoProcedure("add".into()), FailureKind::NoProcedure),
        (CallError::Full(3), FailureKind::Full),
        (CallError::Expired, FailureKind::Expired),
        (conflict(), FailureKind::Conflict),
        (CallError::Failed(TxnError::KeyExists), FailureKind::Failed),
        (CallError::Panicked, FailureKind::Panicked),
        (CallError::Stopped, FailureKind::Stopped),
    ];
    for (error, expected) in cases {
        let expected_text = error.to_string();
        let mut out = Vec::new();
        encode_answer(&mut out, RequestId(5), &Err(error), MAX);
        let (response, _) = Response::decode(&out, MAX).unwrap().unwrap();
        let id = RequestId(5);
        assert_eq!(response, Response::Failed { id, kind: expected, text: &expected_text });
    }
    let retryable = FailureKind::ALL.into_iter().filter(|kind| kind.is_retryable());
    let expected = [FailureKind::Full, FailureKind::Expired, FailureKind::Conflict];
    assert!(retryable.eq(expected));
}

#[test]
fn an_answer_that_does_not_fit_is_told_as_committed() {
    for (len, fits) in [(4_087, true), (4_088, false)] {
        let mut out = Vec::new();
        encode_answer(&mut out, RequestId(5), &Ok(vec![1; len]), MAX);
        let (response, _) = Response::decode(&out, MAX).unwrap().unwrap();
        match response {
            Response::Done { answer, .. } => assert!(fits && answer.len() == len),
            Response::Failed { kind: FailureKind::AnswerTooLong, text, .. } => {
                assert!(!fits && text.contains("4088"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_long_text_is_cut_between_two_characters() {
    // 999 bytes, and a character of two on the border.
    let name = format!("{}{}", "a".repeat(999), "ä".repeat(10));
    let mut out = Vec::new();
    let response = Response::Failed { id: RequestId(1), kind: FailureKind::Failed, text: &name };
    response.encode(&mut out);
    let (decoded, _) = Response::decode(&out, MAX).unwrap().unwrap();
    let Response::Failed { text, .. } = decoded else { panic!("{decoded:?}") };
    assert_eq!(text, "a".repeat(999));
}
