//! The server behind a socket: real sockets, good clients, bad ones, and ones that vanish.
//!
//! Raw clients write the bytes of `docs/engine-protocol.md` by hand. Waits that could last for ever
//! end after [`PATIENCE`], which only a failing test sees.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting, SplitMix64};
use tidegate_engine::disk::{Disk, Faults, SimulatedDisk};
use tidegate_engine::lock::LockError;
use tidegate_engine::wal::LogId;
use tidegate_engine::{
    Client, ClientError, ClientOptions, ConnectionEnd, Endpoint, FailureKind, GoodbyeReason,
    ListenError, Listener, ListenerOptions, Procedure, Server, ServerOptions, Store, StoreOptions,
    TxnError,
};
use tidegate_gate::Class;

/// The longest wait of a test that is all right.
const PATIENCE: Duration = Duration::from_secs(60);

/// Held by every test, and alone by the one that counts threads.
static PROCESS: RwLock<()> = RwLock::new(());

fn beside_others() -> RwLockReadGuard<'static, ()> {
    PROCESS.read().unwrap_or_else(PoisonError::into_inner)
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Shut until it is opened for good.
#[derive(Default)]
struct Latch {
    is_open: Mutex<bool>,
    bell: Condvar,
}

impl Latch {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.bell.notify_all();
    }

    fn pass(&self) {
        let shut = self.is_open.lock().unwrap();
        drop(self.bell.wait_while(shut, |is_open| !*is_open).unwrap());
    }
}

/// A server with procedures to test with.
struct House {
    server: Arc<Server>,
    latch: Arc<Latch>,
    /// How often `long` was run.
    runs: Arc<AtomicU64>,
    directory: TempDir,
}

fn boxed(code: impl Fn(&[u8]) -> Result<Vec<u8>, TxnError> + Send + Sync + 'static) -> Procedure {
    Box::new(move |_, arguments| code(arguments))
}

/// Adds to a counter in the store.
fn add(store: &Store) -> Procedure {
    let tree = store.create_tree("counters").unwrap();
    Box::new(move |transaction, key| {
        let old = transaction
            .get(&tree, key)?
            .map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
        transaction.put(&tree, key, &(old + 1).to_le_bytes())?;
        Ok((old + 1).to_le_bytes().to_vec())
    })
}

impl House {
    /// A house where `limit` transactions run at once.
    fn new(limit: u32, options: ServerOptions) -> House {
        let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new(1, Faults::default()));
        let store = Store::create(&disk, LogId(1), &StoreOptions::default()).unwrap();
        let store = Arc::new(store);
        let (latch, runs) = (Arc::new(Latch::default()), Arc::new(AtomicU64::new(0)));
        let (held, counted) = (Arc::clone(&latch), Arc::clone(&runs));
        let procedures: Vec<(&str, Procedure)> = vec![
            ("add", add(&store)),
            ("echo", boxed(|arguments| Ok(arguments.to_vec()))),
            ("panic", boxed(|_| panic!("on purpose"))),
            ("conflict", boxed(|_| Err(TxnError::Conflict(LockError::Deadlock)))),
            (
                "hold",
                boxed(move |arguments| {
                    held.pass();
                    Ok(arguments.to_vec())
                }),
            ),
            (
                "long",
                boxed(move |arguments| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let len = u32::from_le_bytes(arguments.try_into().unwrap());
                    Ok(vec![7; usize::try_from(len).unwrap()])
                }),
            ),
        ];
        let mpl = Mpl::at_least_one(limit);
        let setting = Setting {
            bounds: Bounds::new(Mpl::ONE, Mpl::at_least_one(100)).unwrap(),
            start: mpl,
            resources: Resources { cpus: 2, disks: 1 },
        };
        let controller = Algorithm::Fixed(mpl).controller(&setting);
        let procedures = procedures.into_iter().map(|(name, code)| (name.to_owned(), code));
        let server =
            Server::start(store, procedures, controller, options, Box::new(|_| ())).unwrap();
        House { server: Arc::new(server), latch, runs, directory: TempDir::new().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn unix(&self) -> Endpoint {
        Endpoint::Unix(self.path())
    }

    fn listen_on(&self, endpoint: &Endpoint, options: ListenerOptions) -> Listener {
        Listener::start(Arc::clone(&self.server), endpoint, options).unwrap()
    }

    fn listen(&self, options: ListenerOptions) -> Listener {
        self.listen_on(&self.unix(), options)
    }

    fn count(&self, key: &[u8]) -> u64 {
        let next = self.server.call("add", key, Class::Normal).unwrap();
        u64::from_le_bytes(next.try_into().unwrap()) - 1
    }
}

fn any_port() -> Endpoint {
    Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
}

fn connect(listener: &Listener) -> Client {
    Client::connect(listener.endpoint(), ClientOptions::default()).unwrap()
}

fn failure(result: Result<Vec<u8>, ClientError>) -> FailureKind {
    match result {
        Err(ClientError::Failed(failure)) => failure.kind,
        other => panic!("{other:?}"),
    }
}

/// Why there is no connection any more.
fn end(client: &mut Client) -> ConnectionEnd {
    loop {
        match client.call("echo", b"", Class::Normal) {
            Err(ClientError::Ended(end)) => return end,
            Ok(_) => thread::sleep(Duration::from_millis(1)),
            other => panic!("{other:?}"),
        }
    }
}

// What raw clients say and hear.

fn hello(version: u32) -> Vec<u8> {
    [b"tg-calls".as_slice(), &version.to_le_bytes()].concat()
}

fn request(id: u64, name: &str, arguments: &[u8]) -> Vec<u8> {
    let name_len = u16::try_from(name.len()).unwrap().to_le_bytes();
    let body = [&[1], &id.to_le_bytes()[..], &name_len, name.as_bytes(), arguments].concat();
    let len = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&len[..], &body].concat()
}

fn raw(listener: &Listener) -> UnixStream {
    let Endpoint::Unix(path) = listener.endpoint() else { panic!("no Unix socket") };
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A raw client that has been welcomed.
fn welcomed(listener: &Listener) -> UnixStream {
    let mut stream = raw(listener);
    stream.write_all(&hello(1)).unwrap();
    let mut welcome = [0; 24];
    stream.read_exact(&mut welcome).unwrap();
    assert_eq!(welcome[..16], *b"tg-calls\x01\0\0\0\0\0\0\0");
    stream
}

fn read_frame(stream: &mut UnixStream) -> Vec<u8> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut body = vec![0; usize::try_from(u32::from_le_bytes(len)).unwrap()];
    stream.read_exact(&mut body).unwrap();
    body
}

/// The number of a request that is done, and its answer.
fn done(frame: &[u8]) -> (u64, &[u8]) {
    assert_eq!(frame[0], 0, "{}", String::from_utf8_lossy(&frame[9..]));
    (u64::from_le_bytes(frame[1..9].try_into().unwrap()), &frame[9..])
}

fn assert_at_end(stream: &mut UnixStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        // A socket that is closed while something is unread is reset.
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
    assert_eq!(rest, b"");
}

#[test]
fn each_answer_comes_over_both_kinds_of_socket() {
    let _guard = beside_others();
    let options = ServerOptions { retries_max: 2, ..ServerOptions::default() };
    let house = House::new(2, options);
    for endpoint in [house.unix(), any_port()] {
        let frame_len_max = 10_000;
        let listener =
            house.listen_on(&endpoint, ListenerOptions { frame_len_max, ..Default::default() });
        let mut client = connect(&listener);
        let mut call = |name: &str, arguments: &[u8]| client.call(name, arguments, Class::Normal);
        assert_eq!(call("echo", b"").unwrap(), b"");
        assert_eq!(call("echo", &[7; 9_000]).unwrap(), [7; 9_000]);
        assert_eq!(failure(call("subtract", b"")), FailureKind::NoProcedure);
        assert_eq!(failure(call("", b"")), FailureKind::NoProcedure);
        assert_eq!(failure(call("add", &[7; 5_000])), FailureKind::Failed);
        assert_eq!(failure(call("panic", b"")), FailureKind::Panicked);
        assert_eq!(failure(call("conflict", b"")), FailureKind::Conflict);
        assert_eq!(call("long", &9_991_u32.to_le_bytes()).unwrap().len(), 9_991);
        let too_long = call("long", &9_992_u32.to_le_bytes());
        assert_eq!(failure(too_long), FailureKind::AnswerTooLong);
        let Err(ClientError::TooLong(what)) = call("echo", &[7; 10_000]) else { panic!() };
        assert_eq!((what.len, what.max), (10_015, 10_000));
        assert_eq!(call("echo", b"still there").unwrap(), b"still there");
    }
}

#[test]
fn who_waits_too_long_or_is_one_too_many_is_told() {
    let _guard = beside_others();
    let options = ServerOptions {
        waiting_max: 1,
        queue_timeout: Some(Duration::from_millis(300)),
        ..ServerOptions::default()
    };
    let house = House::new(1, options);
    let listener = house.listen(ListenerOptions::default());
    let mut client = connect(&listener);
    let held = client.send("hold", b"held", Class::Normal).unwrap();
    wait_until("the first runs", || house.server.gate().outstanding == 1);
    let waiting = client.send("echo", b"", Class::Normal).unwrap();
    // These are refused on the thread of the event loop itself.
    let refused: Vec<_> =
        (0..50).map(|_| client.send("echo", b"", Class::Normal).unwrap()).collect();
    let kinds: Vec<_> = refused.into_iter().map(|id| failure(client.receive(id))).collect();
    let is_full = |kind: &&FailureKind| **kind == FailureKind::Full;
    // The one that waits may be over its time by then, and another wait in its place.
    assert!(kinds.iter().filter(is_full).count() >= 40, "{kinds:?}");
    assert_eq!(failure(client.receive(waiting)), FailureKind::Expired);
    house.latch.open();
    assert_eq!(client.receive(held).unwrap(), b"held");
}

#[test]
fn two_hundred_clients_count_every_call_once_whatever_conflicts_there_are() {
    let _guard = beside_others();
    let house = House::new(8, ServerOptions::default());
    let listener = house.listen_on(&any_port(), ListenerOptions::default());
    let all_there = Barrier::new(200);
    thread::scope(|scope| {
        for number in 0..200 {
            let (listener, all_there) = (&listener, &all_there);
            let client = thread::Builder::new().stack_size(256 * 1024);
            let run = move || {
                let mut client = connect(listener);
                all_there.wait();
                let class = if number % 2 == 0 { Class::High } else { Class::Normal };
                for _ in 0..5 {
                    client.call("add", b"one", class).unwrap();
                    assert_eq!(client.call("echo", &[number], class).unwrap(), [number]);
                }
            };
            client.spawn_scoped(scope, run).unwrap();
        }
    });
    assert_eq!(house.count(b"one"), 1_000);
    wait_until("all have gone", || listener.connections() == 0);
    assert_eq!(house.server.gate().outstanding, 0);
}

#[test]
fn answers_come_by_number_in_whatever_order() {
    let _guard = beside_others();
    let house = House::new(4, ServerOptions::default());
    let listener = house.listen(ListenerOptions::default());
    let mut client = connect(&listener);
    let held = client.send("hold", b"held", Class::Normal).unwrap();
    let echoes: Vec<_> = (0..100_u8)
        .map(|byte| (client.send("echo", &[byte], Class::Normal).unwrap(), byte))
        .collect();
    for (id, byte) in echoes.iter().rev().take(50) {
        assert_eq!(client.receive(*id).unwrap(), [*byte]);
    }
    let mut left: HashMap<_, _> = echoes.into_iter().take(50).collect();
    while !left.is_empty() {
        let (id, answer) = client.receive_any().unwrap().unwrap();
        assert_eq!(answer.unwrap(), [left.remove(&id).unwrap()]);
        assert!(matches!(client.receive(id), Err(ClientError::NotUnderWay(again)) if again == id));
    }
    house.latch.open();
    assert_eq!(client.receive_any().unwrap().unwrap(), (held, Ok(b"held".to_vec())));
    assert!(client.receive_any().unwrap().is_none());
}

#[test]
fn an_answer_that_takes_long_can_be_waited_for_again() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen(ListenerOptions::default());
    let answer_timeout = Some(Duration::from_millis(20));
    let options = ClientOptions { answer_timeout, ..Default::default() };
    let mut client = Client::connect(listener.endpoint(), options).unwrap();
    let held = client.send("hold", b"held", Class::Normal).unwrap();
    assert!(matches!(client.receive(held), Err(ClientError::TimedOut)));
    assert!(matches!(client.receive_any(), Err(ClientError::TimedOut)));
    house.latch.open();
    let answer = loop {
        match client.receive(held) {
            Err(ClientError::TimedOut) => {}
            other => break other.unwrap(),
        }
    };
    assert_eq!(answer, b"held");
}

#[test]
fn a_client_that_sends_much_reads_meanwhile() {
    let _guard = beside_others();
    let house = House::new(2, ServerOptions::default());
    let options = ListenerOptions { frame_len_max: 300_000, ..Default::default() };
    let listener = house.listen(options);
    let mut client = connect(&listener);
    // 25 MB each way; a socket's buffers hold less than one.
    let arguments = vec![1; 250_000];
    let ids: Vec<_> =
        (0..100).map(|_| client.send("echo", &arguments, Class::Normal).unwrap()).collect();
    for id in ids {
        assert!(client.receive(id).unwrap() == arguments, "another answer");
    }
}

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

#[test]
fn transactions_of_a_client_that_vanished_run_to_their_end() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen_on(&any_port(), ListenerOptions::default());
    let mut client = connect(&listener);
    client.send("hold", b"", Class::Normal).unwrap();
    client.send("add", b"orphan", Class::Normal).unwrap();
    wait_until("one runs, one waits", || {
        let gate = house.server.gate();
        gate.outstanding == 1 && gate.waiting == 1
    });
    drop(client);
    house.latch.open();
    wait_until("it is done", || house.server.gate().outstanding == 0);
    assert_eq!(house.count(b"orphan"), 1);
    wait_until("it is forgotten", || listener.connections() == 0);
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_an_answer_is_forgotten() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen(ListenerOptions { frame_len_max: 8 << 20, ..Default::default() });
    for read in [0, 1, 1_000] {
        let mut stream = welcomed(&listener);
        stream.write_all(&request(1, "long", &(8_000_000_u32).to_le_bytes())).unwrap();
        wait_until("the answer is under way", || {
            // More than the socket holds, so that some of it is kept by the server.
            house.server.gate().outstanding == 0 && house.runs.load(Ordering::SeqCst) > 0
        });
        stream.read_exact(&mut vec![0; read]).unwrap();
        drop(stream);
        wait_until("it is forgotten", || listener.connections() == 0);
        house.runs.store(0, Ordering::SeqCst);
    }
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let _guard = beside_others();
    let house = House::new(2, ServerOptions::default());
    let options =
        ListenerOptions { frame_len_max: 64 << 10, under_way_max: 4, ..Default::default() };
    let listener = house.listen(options);
    let mut stream = welcomed(&listener);
    let answer_len = 32_000_u32;
    let total = 2_000_u64;
    let requests = (0..total).flat_map(|id| request(id, "long", &answer_len.to_le_bytes()));
    stream.write_all(&requests.collect::<Vec<u8>>()).unwrap();
    // Until nothing more happens.
    let mut before = 0;
    loop {
        thread::sleep(Duration::from_millis(100));
        let now = house.runs.load(Ordering::SeqCst);
        if now == before && now > 2 {
            break;
        }
        before = now;
    }
    // One frame, what is under way, and a megabyte in the buffers of the socket.
    assert!(before < 40, "{before} answers are kept");
    let mut other = connect(&listener);
    assert_eq!(other.call("echo", b"fine", Class::Normal).unwrap(), b"fine");
    let mut seen: Vec<u64> = Vec::new();
    for _ in 0..total {
        let frame = read_frame(&mut stream);
        let (id, answer) = done(&frame);
        assert_eq!(answer.len(), 32_000);
        seen.push(id);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..total), "each is answered once");
}

#[test]
fn one_connection_has_no_more_requests_under_way_than_it_may() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen(ListenerOptions { under_way_max: 3, ..Default::default() });
    let mut client = connect(&listener);
    let ids: Vec<_> = (0..10).map(|_| client.send("hold", b"x", Class::Normal).unwrap()).collect();
    let under_way = || {
        let gate = house.server.gate();
        (gate.outstanding, gate.waiting)
    };
    wait_until("three are taken", || under_way() == (1, 2));
    // A turn of the event loop later it has not taken another.
    let mut other = connect(&listener);
    assert_eq!(failure(other.call("none", b"", Class::Normal)), FailureKind::NoProcedure);
    assert_eq!(under_way(), (1, 2));
    house.latch.open();
    for id in ids {
        assert_eq!(client.receive(id).unwrap(), b"x");
    }
}

#[test]
fn one_connection_too_many_is_told_so() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    for endpoint in [house.unix(), any_port()] {
        let options = ListenerOptions { connections_max: 2, ..Default::default() };
        let listener = house.listen_on(&endpoint, options);
        let (first, mut second) = (connect(&listener), connect(&listener));
        for _ in 0..100 {
            let third = Client::connect(listener.endpoint(), ClientOptions::default());
            assert!(matches!(third, Err(ClientError::TooManyConnections)), "{third:?}");
        }
        assert_eq!(second.call("echo", b"in", Class::Normal).unwrap(), b"in");
        drop(first);
        wait_until("there is room", || listener.connections() == 1);
        assert_eq!(connect(&listener).call("echo", b"in", Class::Normal).unwrap(), b"in");
    }
}

#[test]
fn who_says_nothing_is_disconnected() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let short = Duration::from_millis(300);
    let options = ListenerOptions {
        handshake_timeout: short,
        idle_timeout: Some(short),
        ..Default::default()
    };
    let listener = house.listen(options);
    let mut silent = raw(&listener);
    let mut stutters = raw(&listener);
    stutters.write_all(b"tg-ca").unwrap();
    assert_at_end(&mut silent);
    assert_at_end(&mut stutters);
    // What runs is not quiet, however long it takes.
    let mut client = connect(&listener);
    let held = client.send("hold", b"held", Class::Normal).unwrap();
    thread::sleep(2 * short);
    house.latch.open();
    assert_eq!(client.receive(held).unwrap(), b"held");
    wait_until("it is sent away", || listener.connections() == 0);
    let ConnectionEnd::Goodbye { reason, text } = end(&mut client) else { panic!() };
    assert_eq!(reason, GoodbyeReason::Idle);
    assert_eq!(text, "nothing was asked for 300ms; connect again");
}

#[test]
fn an_address_can_be_used_again_at_once() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let mut endpoint = any_port();
    for round in 0..5 {
        let listener = house.listen_on(&endpoint, ListenerOptions::default());
        endpoint = listener.endpoint().clone();
        let mut client = connect(&listener);
        assert_eq!(client.call("echo", &[round], Class::Normal).unwrap(), [round]);
        drop(listener);
        let Endpoint::Tcp(address) = endpoint else { panic!() };
        assert!(TcpStream::connect(address).is_err(), "nobody listens");
    }
    for round in 0..5 {
        let listener = house.listen(ListenerOptions::default());
        assert_eq!(connect(&listener).call("echo", &[round], Class::Normal).unwrap(), [round]);
        drop(listener);
        assert!(!house.path().exists());
    }
}

#[test]
fn a_socket_file_is_replaced_only_if_nobody_listens() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let refused = || {
        let options = ListenerOptions::default();
        let refused = Listener::start(Arc::clone(&house.server), &house.unix(), options);
        matches!(refused, Err(ListenError::Bind { .. }))
    };
    // As a killed process leaves it.
    drop(UnixListener::bind(house.path()).unwrap());
    assert!(house.path().exists());
    let listener = house.listen(ListenerOptions::default());
    connect(&listener).call("echo", b"", Class::Normal).unwrap();
    assert!(refused(), "there is one that listens");
    connect(&listener).call("echo", b"", Class::Normal).unwrap();
    // What another has put in its place stays.
    fs::remove_file(house.path()).unwrap();
    fs::write(house.path(), "a file").unwrap();
    drop(listener);
    assert!(refused(), "a file is none of ours");
    assert_eq!(fs::read(house.path()).unwrap(), b"a file");
}

#[test]
fn options_out_of_bounds_are_named() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let sound = ListenerOptions::default();
    let cases = [
        (ListenerOptions { connections_max: 0, ..sound }, "connections_max cannot be 0"),
        (ListenerOptions { under_way_max: 0, ..sound }, "under_way_max cannot be 0"),
        (ListenerOptions { frame_len_max: 2_047, ..sound }, "frame_len_max cannot be 2047"),
        (ListenerOptions { frame_len_max: u32::MAX, ..sound }, "cannot be 4294967295"),
    ];
    for (options, expected) in cases {
        let started = Listener::start(Arc::clone(&house.server), &house.unix(), options);
        let Err(error) = started.map(|_| ()) else { panic!("{options:?}") };
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!house.path().exists());
    }
}

#[test]
fn a_stop_lets_what_was_taken_end_and_says_goodbye() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen(ListenerOptions {
        under_way_max: 2,
        stop_timeout: PATIENCE,
        ..Default::default()
    });
    let (mut busy, mut idle) = (connect(&listener), connect(&listener));
    let mut silent = raw(&listener);
    let held = busy.send("hold", b"held", Class::Normal).unwrap();
    let waits = busy.send("add", b"waits", Class::Normal).unwrap();
    let not_taken = busy.send("add", b"never", Class::Normal).unwrap();
    wait_until("two are taken", || house.server.gate().waiting == 1);
    let stopper = thread::spawn(move || drop(listener));
    wait_until("nobody is accepted", || !house.path().exists());
    let ConnectionEnd::Goodbye { reason, .. } = end(&mut idle) else { panic!() };
    assert_eq!(reason, GoodbyeReason::Stopping);
    assert_at_end(&mut silent);
    assert!(!stopper.is_finished(), "a transaction is under way");
    house.latch.open();
    assert_eq!(busy.receive(held).unwrap(), b"held");
    assert_eq!(busy.receive(waits).unwrap(), 1_u64.to_le_bytes());
    let left = busy.receive(not_taken);
    let reason = GoodbyeReason::Stopping;
    let is_goodbye = matches!(
        left,
        Err(ClientError::Ended(ConnectionEnd::Goodbye { reason: told, .. })) if told == reason
    );
    assert!(is_goodbye, "{left:?}");
    stopper.join().unwrap();
    assert_eq!(house.count(b"never"), 0, "what has no answer before a goodbye was not run");
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let stop_timeout = Duration::from_millis(50);
    let listener = house.listen(ListenerOptions { stop_timeout, ..Default::default() });
    let mut client = connect(&listener);
    let held = client.send("hold", b"", Class::Normal).unwrap();
    wait_until("it runs", || house.server.gate().outstanding == 1);
    drop(listener);
    let left = client.receive(held);
    assert!(matches!(left, Err(ClientError::Ended(ConnectionEnd::Closed))), "{left:?}");
    house.latch.open();
    wait_until("it has run", || house.server.gate().outstanding == 0);
}

/// Names of the process's threads that begin like those of the engine.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread may go while the list is read.
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("tidegate-")).collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_stop_under_load_leaves_nothing_behind() {
    let _alone = PROCESS.write().unwrap_or_else(PoisonError::into_inner);
    // Those of tests that have just ended may still be on their way out.
    wait_until("there is no thread of the engine", || threads().is_empty());
    let before = descriptors();
    for endpoint in [None, Some(any_port())] {
        let house = House::new(4, ServerOptions::default());
        let endpoint = endpoint.unwrap_or_else(|| house.unix());
        let listener = house.listen_on(&endpoint, ListenerOptions::default());
        let endpoint = listener.endpoint().clone();
        // A thread names itself.
        wait_until("the thread is there", || threads().contains(&"tidegate-socket\n".to_owned()));
        let acknowledged = AtomicU64::new(0);
        let is_stopped = AtomicBool::new(false);
        let all_there = Barrier::new(21);
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let mut client = Client::connect(&endpoint, ClientOptions::default()).unwrap();
                    all_there.wait();
                    let end = loop {
                        match client.call("add", b"one", Class::Normal) {
                            Ok(_) => acknowledged.fetch_add(1, Ordering::SeqCst),
                            Err(end) => break end,
                        };
                    };
                    let is_goodbye =
                        matches!(end, ClientError::Ended(ConnectionEnd::Goodbye { .. }));
                    assert!(is_goodbye, "{end:?}");
                    assert!(is_stopped.load(Ordering::SeqCst), "before the time");
                });
            }
            all_there.wait();
            wait_until("there is load", || acknowledged.load(Ordering::SeqCst) > 200);
            is_stopped.store(true, Ordering::SeqCst);
            drop(listener);
            // The system may list a thread for a moment after it was joined.
            wait_until("the thread has gone", || {
                !threads().contains(&"tidegate-socket\n".to_owned())
            });
        });
        assert_eq!(house.count(b"one"), acknowledged.load(Ordering::SeqCst));
        let refused = Client::connect(&endpoint, ClientOptions::default());
        assert!(matches!(refused, Err(ClientError::Connect { .. })), "{refused:?}");
        assert!(!house.path().exists());
    }
    wait_until("no thread is left", || threads().is_empty());
    assert_eq!(descriptors(), before);
}
