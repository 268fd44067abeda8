//! The bytes of the protocol: requests in pieces, violations, other versions, garbage.

use std::io;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixListener;
use std::thread;

use tempfile::TempDir;
use tidegate_control::SplitMix64;
use tidegate_engine::{
    Client, ClientError, ClientOptions, Endpoint, ListenerOptions, ServerOptions,
};
use tidegate_gate::Class;

use crate::house::{House, beside_others, connect, wait_until};
use crate::raw::{assert_at_end, done, hello, raw, read_frame, request, welcomed};

#[test]
fn requests_may_follow_the_hello_at_once_and_come_in_pieces() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen(ListenerOptions::default());
    let bytes = [hello(1), request(1, "echo", b"one"), request(2, "echo", b"two")].concat();
    for piece_len in [1, 3, 17, bytes.len()] {
        let mut stream = raw(&listener);
        for piece in bytes.chunks(piece_len) {
            stream.write_all(piece).unwrap();
            thread::yield_now();
        }
        let mut welcome = [0; 24];
        stream.read_exact(&mut welcome).unwrap();
        let answers = [read_frame(&mut stream), read_frame(&mut stream)];
        assert_eq!(answers.each_ref().map(|frame| done(frame)), [(1, &b"one"[..]), (2, b"two")]);
    }
}

#[test]
fn a_half_closed_connection_is_answered_to_the_end() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen(ListenerOptions { under_way_max: 2, ..Default::default() });
    let mut stream = welcomed(&listener);
    let whole: Vec<u8> = (0..20).flat_map(|id| request(id, "echo", b"x")).collect();
    let cut = request(20, "add", b"never");
    stream.write_all(&whole).unwrap();
    stream.write_all(&cut[..cut.len() - 1]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    for id in 0..20 {
        assert_eq!(done(&read_frame(&mut stream)), (id, &b"x"[..]));
    }
    assert_at_end(&mut stream);
    assert_eq!(house.count(b"never"), 0);
    wait_until("it is forgotten", || listener.connections() == 0);
}

#[test]
fn a_violation_is_named_after_what_was_asked_before_is_answered() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let options = ListenerOptions { frame_len_max: 4_096, ..Default::default() };
    let listener = house.listen(options);
    let mut wrong_class = request(8, "echo", b"");
    wrong_class[4] = 9;
    let mut wrong_name = request(8, "echo", b"");
    wrong_name[15] = 0xFF;
    let cases = [
        (vec![1, 16, 0, 0], "4097 bytes"),
        (vec![0xFF; 4], "4294967295 bytes"),
        (vec![0; 4], "0 bytes"),
        (wrong_class, "the class"),
        (wrong_name, "the procedure's name"),
    ];
    for (violation, expected) in cases {
        let mut stream = welcomed(&listener);
        let after = [request(9, "add", b"never"), vec![0; 100_000]].concat();
        let bytes = [request(7, "echo", b"before"), violation, after].concat();
        stream.write_all(&bytes).unwrap();
        assert_eq!(done(&read_frame(&mut stream)), (7, &b"before"[..]));
        let goodbye = read_frame(&mut stream);
        let text = String::from_utf8_lossy(&goodbye[2..]);
        assert_eq!(goodbye[..2], [255, 1], "{text}");
        assert!(text.contains(expected), "{text}");
        assert_at_end(&mut stream);
    }
    assert_eq!(house.count(b"never"), 0);
}

#[test]
fn who_speaks_something_else_is_disconnected_without_a_word() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen(ListenerOptions::default());
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"tg-", b"t", b"tg-callz"] {
        let mut stream = raw(&listener);
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_at_end(&mut stream);
    }
    // One wrong byte is enough, the connection being open.
    let mut stream = raw(&listener);
    stream.write_all(b"x").unwrap();
    assert_at_end(&mut stream);
}

#[test]
fn another_version_is_told_the_servers() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen(ListenerOptions::default());
    for version in [0, 2, u32::MAX] {
        let mut stream = raw(&listener);
        stream.write_all(&hello(version)).unwrap();
        stream.write_all(&request(1, "add", b"never")).unwrap();
        let mut welcome = [0; 24];
        stream.read_exact(&mut welcome).unwrap();
        assert_eq!(welcome[..16], *b"tg-calls\x01\0\0\0\x01\0\0\0");
        assert_at_end(&mut stream);
    }
    assert_eq!(house.count(b"never"), 0);
}

#[test]
fn a_client_names_what_is_wrong_with_a_server() {
    let _guard = beside_others();
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let welcome = |version: u32, verdict: u32| {
        let words = [version, verdict, 4_096, 10].map(u32::to_le_bytes).concat();
        [b"tg-calls".to_vec(), words].concat()
    };
    let says = [
        welcome(2, 1),
        welcome(1, 2),
        b"HTTP/1.1 400".to_vec(),
        welcome(1, 0)[..20].to_vec(),
        [welcome(1, 0), vec![0; 4]].concat(),
        [welcome(1, 0), vec![9, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]].concat(),
        welcome(1, 0),
    ];
    let server = thread::spawn(move || {
        for bytes in says {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            // Its hello, and what else it says.
            let _ = io::copy(&mut stream, &mut io::sink());
        }
    });
    let endpoint = Endpoint::Unix(path);
    let try_call = || {
        let mut client = Client::connect(&endpoint, ClientOptions::default())?;
        client.call("echo", b"", Class::Normal)
    };
    let expected = [
        "the server speaks version 2 of the protocol, this client 1; update it",
        "the server has as many connections as it takes; connect again later",
        "the other side does not speak this protocol; is it the right address?",
        "the server closed the connection; what has no answer may have been run or not",
        "a frame of 0 bytes was announced, and 2 to 4096 are possible",
        "request 9 was answered, which is not under way",
        "the server closed the connection; what has no answer may have been run or not",
    ];
    for expected in expected {
        assert_eq!(try_call().unwrap_err().to_string(), expected);
    }
    server.join().unwrap();
    assert!(matches!(try_call(), Err(ClientError::Connect { .. })));
}

#[test]
fn garbage_harms_nobody_else() {
    let _guard = beside_others();
    let house = House::new(2, ServerOptions::default());
    let listener = house.listen(ListenerOptions::default());
    let mut client = connect(&listener);
    for seed in 0..60_u64 {
        println!("seed {seed}");
        let mut random = SplitMix64::new(seed);
        let mut below = |bound: u64| random.next_bits() % bound;
        let mut bytes = if seed % 4 == 0 { Vec::new() } else { hello(1) };
        for id in 0..below(20) {
            let mut next = request(id, "add", b"sound");
            if below(3) == 0 {
                let at = usize::try_from(below(next.len() as u64)).unwrap();
                next[at] ^= u8::try_from(1 + below(255)).unwrap();
            }
            bytes.extend(next);
        }
        bytes.extend((0..below(300)).map(|_| u8::try_from(below(256)).unwrap()));
        let mut stream = raw(&listener);
        // It may have been sent away already.
        let _ = stream.write_all(&bytes);
        if seed % 2 == 0 {
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
        drop(stream);
        assert_eq!(client.call("echo", b"fine", Class::Normal).unwrap(), b"fine");
    }
    wait_until("they are forgotten", || listener.connections() == 1);
}

#[test]
fn a_request_that_is_cut_off_is_not_run() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen(ListenerOptions::default());
    let bytes = request(1, "add", b"never");
    for len in 0..bytes.len() {
        let mut stream = welcomed(&listener);
        stream.write_all(&bytes[..len]).unwrap();
        drop(stream);
    }
    wait_until("they are forgotten", || listener.connections() == 0);
    assert_eq!(house.count(b"never"), 0);
}
