//! Real sessions of psql and pgbench with PostgreSQL, recorded by `captures/capture.py`: the walk
//! covers every byte, and every message is read by the parser of its type.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use support::{Message, walk};
use tidegate_wire::authentication::{self, Authentication};
use tidegate_wire::backend::{self, TransactionStatus};
use tidegate_wire::error_response;
use tidegate_wire::frontend::{self, Target, tag};
use tidegate_wire::startup::{self, CancelKey, FirstPacket};

/// One recorded connection.
struct Capture {
    name: String,
    frontend: Vec<u8>,
    backend: Vec<u8>,
}

impl Capture {
    fn load(name: &str) -> Capture {
        let read = |side: &str| {
            let path = directory().join(format!("{name}.{side}"));
            fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        Capture { name: name.to_owned(), frontend: read("frontend"), backend: read("backend") }
    }

    /// The first packets, the client's messages and the server's messages.
    fn read(&self) -> (Vec<FirstPacket<'_>>, Vec<Message<'_>>, Vec<Message<'_>>) {
        let (mut first, mut client, mut server) =
            (Vec::new(), &self.frontend[..], &self.backend[..]);
        loop {
            let (packet, len) = startup::first_packet(client).unwrap().unwrap();
            client = &client[len..];
            first.push(packet.clone());
            match packet {
                // The server answers a request to encrypt by one byte, here always a refusal.
                FirstPacket::Ssl | FirstPacket::GssEnc => {
                    server = server.strip_prefix(b"N").unwrap();
                }
                FirstPacket::Startup(_) | FirstPacket::Cancel(_) => break,
            }
        }
        let (client, client_rest) = walk(client);
        let (server, server_rest) = walk(server);
        assert_eq!((client_rest.len(), server_rest.len()), (0, 0), "{}: bytes left", self.name);
        (first, client, server)
    }

    fn server_tags(&self) -> Vec<u8> {
        self.read().2.iter().map(|(tag, _)| *tag).collect()
    }

    fn statuses(&self) -> Vec<TransactionStatus> {
        payloads(&self.read().2, backend::tag::READY_FOR_QUERY)
            .map(|payload| backend::ready_for_query(payload).unwrap())
            .collect()
    }

    fn sqlstates(&self) -> Vec<String> {
        payloads(&self.read().2, backend::tag::ERROR)
            .map(|payload| error_response::field(payload, b'C'))
            .collect()
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

/// Every recording's name, from the directory, so that none is left out.
fn captures() -> impl Iterator<Item = Capture> {
    let names: BTreeSet<String> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|side| side == "frontend"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert!(names.len() >= 18, "recordings are missing: {names:?}");
    names.into_iter().map(|name| Capture::load(&name))
}

fn payloads<'a>(messages: &[Message<'a>], wanted: u8) -> impl Iterator<Item = &'a [u8]> {
    messages.iter().filter(move |(tag, _)| *tag == wanted).map(|(_, payload)| *payload)
}

/// A message as our encoder writes it.
fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn message(tag: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len() + 4).unwrap();
    [&[tag][..], &length.to_be_bytes(), payload].concat()
}

/// Reads a client message by its parser, writes it again where there is an encoder, and compares.
fn check_client(name: &str, (kind, payload): Message<'_>) {
    let again = match kind {
        tag::PARSE => {
            let parse = frontend::parse(payload).unwrap();
            encoded(|out| frontend::encode_parse(out, parse.name, parse.definition))
        }
        tag::BIND => {
            let names = frontend::bind_names(payload).unwrap();
            let rest = &payload[names.encoded_len()..];
            let mut again = encoded(|out| frontend::encode_bind_head(out, names, rest.len()));
            again.extend_from_slice(rest);
            again
        }
        tag::DESCRIBE => {
            let (target, name) = frontend::target(payload).unwrap();
            encoded(|out| frontend::encode_describe(out, target, name))
        }
        tag::CLOSE => {
            let (target, name) = frontend::target(payload).unwrap();
            encoded(|out| frontend::encode_close(out, target, name))
        }
        tag::QUERY => encoded(|out| frontend::encode_query(out, payload)),
        tag::COPY_FAIL => encoded(|out| frontend::encode_copy_fail(out, payload)),
        tag::SYNC => frontend::SYNC.to_vec(),
        tag::TERMINATE => frontend::TERMINATE.to_vec(),
        tag::FLUSH | tag::COPY_DONE => {
            assert!(payload.is_empty(), "{name}");
            return;
        }
        // Forwarded whole; passwords have a test of their own.
        tag::EXECUTE | tag::COPY_DATA | tag::FUNCTION_CALL | tag::PASSWORD => return,
        other => panic!("{name}: client message {:?}", other as char),
    };
    assert_eq!(again, message(kind, payload), "{name}: {:?}", kind as char);
}

/// Like [`check_client`], for a server message.
fn check_server(name: &str, (kind, payload): Message<'_>) {
    use backend::tag;
    let again = match kind {
        tag::BACKEND_KEY_DATA => {
            let key = backend::backend_key_data(payload).unwrap();
            encoded(|out| backend::encode_backend_key_data(out, &key))
        }
        tag::PARAMETER_STATUS => {
            let (name, value) = backend::parameter_status(payload).unwrap();
            encoded(|out| backend::encode_parameter_status(out, name, value))
        }
        tag::READY_FOR_QUERY => {
            let status = backend::ready_for_query(payload).unwrap();
            encoded(|out| backend::encode_ready_for_query(out, status))
        }
        tag::AUTHENTICATION => {
            let request = authentication::authentication(payload).unwrap();
            assert!(!matches!(request, Authentication::Unsupported(_)), "{name}");
            return;
        }
        tag::COMMAND_COMPLETE => {
            let command = backend::command_complete(payload).unwrap();
            assert_eq!(command.len() + 1, payload.len(), "{name}");
            return;
        }
        tag::DATA_ROW => {
            let columns: Vec<_> = backend::data_row(payload).unwrap().collect();
            let values: usize = columns.iter().flatten().map(|value| value.len()).sum();
            assert_eq!(2 + 4 * columns.len() + values, payload.len(), "{name}");
            return;
        }
        tag::ERROR | tag::NOTICE => {
            let read: usize = error_response::fields(payload).map(|(_, text)| text.len() + 2).sum();
            assert_eq!(read + 1, payload.len(), "{name}");
            assert_eq!(error_response::field(payload, b'C').len(), 5, "{name}");
            return;
        }
        tag::PARSE_COMPLETE => backend::PARSE_COMPLETE.to_vec(),
        tag::CLOSE_COMPLETE => backend::CLOSE_COMPLETE.to_vec(),
        tag::BIND_COMPLETE | tag::EMPTY_QUERY | tag::NO_DATA | tag::PORTAL_SUSPENDED => {
            assert!(payload.is_empty(), "{name}");
            return;
        }
        // Forwarded whole; `V` answers a FunctionCall.
        tag::COPY_IN
        | tag::COPY_OUT
        | tag::NOTIFICATION
        | tag::NEGOTIATE_PROTOCOL
        | tag::PARAMETER_DESCRIPTION
        | tag::ROW_DESCRIPTION
        | b'V'
        | frontend::tag::COPY_DATA
        | frontend::tag::COPY_DONE => return,
        other => panic!("{name}: server message {:?}", other as char),
    };
    assert_eq!(again, message(kind, payload), "{name}: {:?}", kind as char);
}

#[test]
fn every_byte_belongs_to_a_message_that_its_parser_reads() {
    let (mut client_types, mut server_types) = (BTreeSet::new(), BTreeSet::new());
    for capture in captures() {
        let (_, client, server) = capture.read();
        for message in client {
            client_types.insert(message.0);
            check_client(&capture.name, message);
        }
        for message in server {
            server_types.insert(message.0);
            check_server(&capture.name, message);
        }
    }
    // The recordings hold every type but the ones of replication.
    assert_eq!(client_types, b"BCDEFHPQSXcdfp".iter().copied().collect());
    assert_eq!(server_types, b"123ACDEGHIKNRSTVZcdnstv".iter().copied().collect());
}

#[test]
fn start_ups_are_read_and_written_as_the_clients_wrote_them() {
    for capture in captures() {
        let (first, ..) = capture.read();
        let Some(FirstPacket::Startup(startup)) = first.last() else {
            assert_eq!(capture.name, "cancel");
            continue;
        };
        let user = startup.parameter("user").unwrap();
        assert!(user == b"postgres" || user.ends_with(b"_user"), "{}", capture.name);
        if startup.protocol == startup::PROTOCOL_3_0 {
            let again = encoded(|out| startup::encode_startup(out, startup.parameters()));
            let skipped = 8 * (first.len() - 1);
            assert!(capture.frontend[skipped..].starts_with(&again), "{}", capture.name);
        }
    }
    // psql asks for TLS first unless it is told not to.
    assert_eq!(Capture::load("simple").read().0[0], FirstPacket::Ssl);
    assert_eq!(Capture::load("unknown_database").read().0.len(), 1);
}

#[test]
fn a_cancel_request_is_read() {
    let capture = Capture::load("cancel");
    let key = CancelKey { process_id: 1, secret: [0, 0, 0, 2].into() };
    assert_eq!(encoded(|out| startup::encode_cancel(out, &key)), capture.frontend);
    assert_eq!(capture.read().0, [FirstPacket::Cancel(key)]);
}

#[test]
fn protocol_negotiation_is_written_as_the_server_writes_it() {
    let capture = Capture::load("negotiate_protocol");
    let (first, ..) = capture.read();
    let FirstPacket::Startup(startup) = first[0] else {
        panic!("no StartupMessage");
    };
    assert_eq!(startup.protocol, startup::PROTOCOL_3_2);
    let unknown: Vec<&[u8]> = startup
        .parameters()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with(b"_pq_."))
        .collect();
    let ours = encoded(|out| {
        backend::encode_negotiate_protocol(out, startup::PROTOCOL_3_0, unknown.into_iter());
    });
    assert!(capture.backend.starts_with(&ours));
}

#[test]
fn md5_and_clear_text_passwords() {
    let capture = Capture::load("auth_md5");
    let (_, client, server) = capture.read();
    let Ok(Authentication::Md5Password { salt }) = authentication::authentication(server[0].1)
    else {
        panic!("no request for an MD5 password");
    };
    let ours = encoded(|out| authentication::encode_md5_password(out, salt));
    assert_eq!(ours, message(server[0].0, server[0].1));
    let hash = authentication::password(client[0].1).unwrap();
    assert!(hash.starts_with(b"md5") && hash.len() == 35);
    let ours = encoded(|out| frontend::encode_password(out, hash));
    assert_eq!(ours, message(client[0].0, client[0].1));

    let capture = Capture::load("auth_clear");
    let (_, client, server) = capture.read();
    let request = authentication::authentication(server[0].1);
    assert_eq!(request, Ok(Authentication::CleartextPassword));
    assert_eq!(authentication::password(client[0].1), Ok(&b"correct horse"[..]));
}

#[test]
fn scram_exchange() {
    let capture = Capture::load("auth_scram");
    let (_, client, server) = capture.read();
    let requests: Vec<_> = payloads(&server, backend::tag::AUTHENTICATION)
        .map(|payload| authentication::authentication(payload).unwrap())
        .collect();
    let [
        Authentication::Sasl { mechanisms },
        Authentication::SaslContinue(challenge),
        Authentication::SaslFinal(outcome),
        Authentication::Ok,
    ] = requests[..]
    else {
        panic!("another exchange: {requests:?}");
    };
    assert!(authentication::offers(mechanisms, authentication::SCRAM_SHA_256));
    assert!(!authentication::offers(mechanisms, "SCRAM-SHA-256-PLUS"));
    assert!(challenge.starts_with(b"r=") && outcome.starts_with(b"v="));
    let ours = encoded(|out| {
        authentication::encode_sasl(out, &[authentication::SCRAM_SHA_256]);
        authentication::encode_sasl_continue(out, challenge);
        authentication::encode_sasl_final(out, outcome);
        authentication::encode_ok(out);
    });
    // Behind the one byte that refuses TLS.
    assert!(capture.backend[1..].starts_with(&ours));

    let (mechanism, first) = authentication::sasl_initial_response(client[0].1).unwrap();
    assert_eq!(mechanism, authentication::SCRAM_SHA_256.as_bytes());
    let ours = encoded(|out| {
        authentication::encode_sasl_initial_response(out, authentication::SCRAM_SHA_256, first);
        authentication::encode_sasl_response(out, client[1].1);
    });
    let theirs = [message(client[0].0, client[0].1), message(client[1].0, client[1].1)].concat();
    assert_eq!(ours, theirs);
}

#[test]
fn transaction_statuses_follow_the_session() {
    use TransactionStatus::{Failed, Idle, InBlock};
    let simple = Capture::load("simple").statuses();
    assert_eq!(simple, [Idle, Idle, Idle, Idle, InBlock, InBlock, Idle]);
    let errors = Capture::load("errors_and_notices").statuses();
    assert_eq!(errors, [Idle, Idle, InBlock, Failed, Failed, Idle, Idle, Idle, Idle, Idle]);
    // Three transactions of four statements. In the mode `prepared` each statement is first
    // prepared
    // in a batch of its own, so the first transaction reports itself open thrice more.
    for (mode, first) in [("simple", 3), ("extended", 3), ("prepared", 6)] {
        let statuses = Capture::load(&format!("pgbench_{mode}")).statuses();
        let blocks = statuses.split(|status| *status == Idle).filter(|block| !block.is_empty());
        let expected = [first, 3, 3].map(|len| vec![InBlock; len]);
        assert_eq!(blocks.collect::<Vec<_>>(), expected, "{mode}");
    }
}

#[test]
fn errors_carry_their_codes() {
    for (name, codes) in [
        ("errors_and_notices", &["22012", "42P01", "25P02"][..]),
        ("copy_error", &["22P02"]),
        ("copy_fail", &["57014"]),
        ("pipelined", &["26000"]),
        ("auth_refused", &["28P01"]),
        ("unknown_database", &["3D000"]),
        ("pgbench_prepared", &[]),
    ] {
        assert_eq!(Capture::load(name).sqlstates(), codes, "{name}");
    }
}

#[test]
fn copy_in_both_directions() {
    let capture = Capture::load("copy_in");
    let (_, client, server) = capture.read();
    assert!(
        payloads(&client, tag::COPY_DATA).collect::<Vec<_>>().concat().starts_with(b"3\tthree")
    );
    assert_eq!(payloads(&client, tag::COPY_DONE).count(), 1);
    let complete = payloads(&server, backend::tag::COMMAND_COMPLETE).next().unwrap();
    assert_eq!(backend::command_complete(complete), Ok(&b"COPY 2"[..]));
    let capture = Capture::load("copy_out");
    let (_, _, server) = capture.read();
    assert_eq!(payloads(&server, backend::tag::COPY_OUT).count(), 2);
    assert_eq!(payloads(&server, tag::COPY_DONE).count(), 2);
}

#[test]
fn pipelined_batches_keep_their_order() {
    let capture = Capture::load("pipelined");
    let (_, client, server) = capture.read();
    let answers = capture.server_tags();
    let start = answers.iter().position(|tag| *tag == backend::tag::READY_FOR_QUERY).unwrap();
    assert_eq!(&answers[start + 1..], b"1tT2TDDsDDs3Z1tnZEZ3Z");
    let closed: Vec<_> =
        payloads(&client, tag::CLOSE).map(|payload| frontend::target(payload).unwrap()).collect();
    assert_eq!(closed, [(Target::Portal, &b"p"[..]), (Target::Statement, &b"s"[..])]);
    let rows = payloads(&server, backend::tag::DATA_ROW).map(|row| {
        let columns = backend::data_row(row).unwrap();
        columns
            .map(|column| String::from_utf8(column.unwrap().to_vec()).unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(rows.collect::<Vec<_>>(), [["1", "ab1"], ["2", "ab2"], ["3", "ab3"], ["4", "ab4"]]);
}
