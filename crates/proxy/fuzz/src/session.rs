//! A session with a running proxy, made of arbitrary bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustls::ClientConfig;
use tidegate_proxy::config::ListenAddress;
use tidegate_proxy::config_file::{ConfigFile, DatabaseSection};
use tidegate_proxy::{Running, start};
use tidegate_wire::backend::tag;
use tidegate_wire::frame::{HEADER_LEN, frame};
use tidegate_wire::frontend::{self, Target};
use tidegate_wire::startup::encode_startup;

use super::{server, tls};

/// An answer that takes longer does not come.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy, and a client of it that must notice nothing.
struct Rig {
    _running: Running,
    path: PathBuf,
    /// Where clients may use TLS: not on a Unix-domain socket.
    tls_address: SocketAddr,
    bystander: UnixStream,
    question: u64,
}

impl Rig {
    /// A proxy in `mode`, with its sockets in a directory. Unix-domain sockets, because a closed
    /// connection keeps its port for a minute, and inputs are as many as there are ports in that.
    fn new(directory: &Path, certificates: &Path, mode: &str) -> Rig {
        let (path, sockets) = (directory.join(mode), directory.display());
        server::start(&directory.join(".s.PGSQL.5432"));
        let upstream = format!("postgres:///d?host={sockets}").parse().expect("an upstream");
        let mut database = DatabaseSection::new(upstream);
        database.mode = mode.parse().ok();
        // One connection for all, so that a stray answer meets the next client.
        database.control = "fixed:1".parse().ok();
        let port = ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let mut file = ConfigFile {
            listen: Some(vec![ListenAddress::Unix(path.clone()), port]),
            databases: [("*".to_owned(), database)].into(),
            ..ConfigFile::default()
        };
        file.client_tls.certificate = Some(certificates.join("proxy.crt"));
        file.client_tls.key = Some(certificates.join("proxy.key"));
        let running = start(file.into_config().expect("a configuration")).expect("a proxy");
        let tls_address = match &*running.local_addresses() {
            [_, ListenAddress::Tcp(address)] => *address,
            other => panic!("a socket and a port, not {other:?}"),
        };
        let bystander = connect(&path);
        Rig { _running: running, path, tls_address, bystander, question: 0 }
    }

    /// The bystander asks and must get the answer to its own question.
    fn ask(&mut self) {
        self.question += 1;
        let question = format!("question {}", self.question);
        let mut packet = Vec::new();
        frontend::encode_query(&mut packet, question.as_bytes());
        self.bystander.write_all(&packet).expect("the proxy takes the question");
        let answer = until_ready(&mut self.bystander).expect("the bystander keeps its connection");
        let rows: Vec<_> = answer.iter().filter(|(tag, _)| *tag == tag::DATA_ROW).collect();
        let [(_, row)] = *rows else { panic!("{} rows to {question:?}: {answer:?}", rows.len()) };
        assert!(row.ends_with(question.as_bytes()), "{question:?} was answered by {row:?}");
    }
}

fn connect(path: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(path).expect("the proxy accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    let mut packet = Vec::new();
    encode_startup(&mut packet, [(&b"user"[..], &b"u"[..]), (b"database", b"d")]);
    stream.write_all(&packet).expect("the proxy reads");
    until_ready(&mut stream).expect("the proxy logs clients in");
    stream
}

/// All messages up to ReadyForQuery; `None` when the connection ends before.
fn until_ready(stream: &mut UnixStream) -> Option<Vec<(u8, Vec<u8>)>> {
    let (mut messages, mut received) = (Vec::new(), Vec::new());
    let mut chunk = [0; 4096];
    loop {
        while let Some(head) = frame(&received).expect("the proxy sends messages") {
            let Some(payload) = received.get(HEADER_LEN..head.len) else { break };
            messages.push((head.tag, payload.to_vec()));
            received.drain(..head.len);
            if head.tag == tag::READY_FOR_QUERY {
                return Some(messages);
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) => return None,
            Ok(count) => received.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("no answer: {error}"),
        }
    }
}

/// Takes numbers off the input; it ends in zeros.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }
}

/// A statement, or a name for one.
fn text(bytes: &mut Bytes<'_>) -> &'static [u8] {
    const TEXTS: [&[u8]; 10] =
        [b"", b"a", b"b", b"begin", b"commit", b"rollback", b"fail", b"copy", b"select 1", b"z"];
    TEXTS[usize::from(bytes.next()) % TEXTS.len()]
}

/// A message that a client may send.
fn right(kind: u8, bytes: &mut Bytes<'_>, out: &mut Vec<u8>) {
    let target = |byte: u8| if byte.is_multiple_of(2) { Target::Statement } else { Target::Portal };
    match kind % 12 {
        0 | 1 => frontend::encode_query(out, text(bytes)),
        2 => {
            let name = text(bytes);
            frontend::encode_parse(out, name, &frontend::definition(text(bytes)));
        }
        3 => frontend::encode_bind_text(out, text(bytes), std::iter::empty()),
        4 => frontend::encode_execute(out),
        5 => frontend::encode_describe(out, target(bytes.next()), text(bytes)),
        6 => frontend::encode_close(out, target(bytes.next()), text(bytes)),
        7 | 8 => out.extend_from_slice(frontend::SYNC),
        9 => out.extend_from_slice(&[b'd', 0, 0, 0, 5, b'1']),
        10 => out.extend_from_slice(b"c\0\0\0\x04"),
        _ => frontend::encode_copy_fail(out, b"enough"),
    }
}

/// A message of any type whose length may lie.
fn wrong(bytes: &mut Bytes<'_>, out: &mut Vec<u8>) {
    const TAGS: &[u8] = b"QPBEDCSHFdcfXp!";
    let tag = match usize::from(bytes.next()) {
        index if index < 240 => TAGS[index % TAGS.len()],
        _ => bytes.next(),
    };
    let len = usize::from(bytes.next()) % 40;
    let payload = bytes.take(len);
    let true_length = u32::try_from(payload.len() + 4).unwrap_or(4);
    let length = match bytes.next() % 12 {
        0 => u32::from(bytes.next() % 8),
        1 => 4096,
        2 => 16 * 1024 + u32::from(bytes.next()),
        3 => (1 << 30) + u32::from(bytes.next()),
        4 => u32::MAX - u32::from(bytes.next()),
        5 => true_length.wrapping_add(1),
        6 => true_length.wrapping_sub(1),
        _ => true_length,
    };
    out.push(tag);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&payload);
}

/// What the client sends: mostly messages that are right, so that it gets somewhere.
fn stream(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    while !bytes.0.is_empty() {
        match bytes.next() {
            kind if kind < 200 => right(kind, bytes, &mut out),
            kind if kind < 250 => wrong(bytes, &mut out),
            kind => out.extend_from_slice(&bytes.take(usize::from(kind - 249))),
        }
    }
    out
}

/// A proxy for each mode, and the directory of their sockets, which goes with this.
pub struct Rigs {
    directory: PathBuf,
    encryption: Arc<ClientConfig>,
    /// In transaction and in session mode.
    pair: [Rig; 2],
}

impl Rigs {
    /// # Panics
    /// There can be no directory, or a proxy does not start.
    pub fn new() -> Rigs {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(format!("tidegate-fuzz-{}-{}", name.0, name.1));
        std::fs::create_dir_all(&directory).expect("a directory");
        let encryption = tls::certify(&directory);
        let pair = ["transaction", "session"].map(|mode| {
            let own = directory.join(mode);
            std::fs::create_dir_all(&own).expect("a directory");
            Rig::new(&own, &directory, mode)
        });
        Rigs { directory, encryption, pair }
    }

    /// Logs in, sends what the bytes say, leaves; then the bystander asks its next question.
    ///
    /// # Panics
    /// The proxy does not serve the bystander, or leaves the client without an end.
    pub fn run(&mut self, bytes: &[u8]) {
        let mut bytes = Bytes(bytes);
        let style = bytes.next();
        let rig = &mut self.pair[usize::from(style % 2)];
        let piece = usize::from(bytes.next()) + 1;
        let mut client = connect(&rig.path);
        for piece in stream(&mut bytes).chunks(piece) {
            // The proxy may have closed the connection already.
            if client.write_all(piece).is_err() {
                break;
            }
        }
        if style & 2 == 0 {
            let _ = client.write_all(frontend::SYNC);
            let _ = client.shutdown(Shutdown::Write);
            let mut all = Vec::new();
            if let Err(error) = client.read_to_end(&mut all) {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the connection is not ended");
            }
        }
        drop(client);
        rig.ask();
    }

    /// Connects to where TLS is, goes wrong on one of the layers, leaves; then the bystander asks.
    ///
    /// # Panics
    /// The proxy does not serve the bystander, or leaves the client without an end.
    pub fn run_tls(&mut self, bytes: &[u8]) {
        let mut bytes = Bytes(bytes);
        let style = bytes.next();
        let rig = &mut self.pair[usize::from(style % 2)];
        let mut client = tls::Client::connect(rig.tls_address, &self.encryption);
        // The proxy may end the connection wherever something is wrong.
        let _ = go_wrong(&mut client, style, &mut bytes);
        client.end(style & 2 == 0);
        rig.ask();
    }
}

/// Sends bytes before, in, beneath or within the encryption.
fn go_wrong(client: &mut tls::Client, style: u8, bytes: &mut Bytes<'_>) -> std::io::Result<()> {
    // Direct TLS begins with the handshake.
    if style & 4 == 0 {
        client.ask()?;
    }
    match style >> 3 {
        0..6 => client.send(bytes.0),
        6..12 => {
            let mut flight = client.flight();
            let end = flight.len().saturating_sub(usize::from(bytes.next() / 4));
            flight.truncate(end);
            change(&mut flight, bytes);
            client.send(&flight)?;
            client.send(bytes.0)
        }
        kind => {
            client.handshake()?;
            let mut packet = Vec::new();
            encode_startup(&mut packet, [(&b"user"[..], &b"u"[..]), (b"database", b"d")]);
            let record = client.record(&packet);
            client.send(&record)?;
            let piece = usize::from(bytes.next()) + 1;
            let (mut own, is_beneath) = (Bytes(bytes.0), kind < 18);
            for piece in stream(bytes).chunks(piece) {
                let mut record = client.record(piece);
                if is_beneath {
                    change(&mut record, &mut own);
                }
                client.send(&record)?;
            }
            Ok(())
        }
    }
}

/// Changes up to three bytes.
fn change(text: &mut [u8], bytes: &mut Bytes<'_>) {
    for _ in 0..bytes.next() % 4 {
        let at = usize::from(u16::from_le_bytes([bytes.next(), bytes.next()]));
        if let Some(byte) = text.get_mut(at % 600) {
            *byte ^= bytes.next();
        }
    }
}

impl Default for Rigs {
    fn default() -> Rigs {
        Rigs::new()
    }
}

impl Drop for Rigs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
