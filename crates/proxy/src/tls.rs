//! TLS under a connection: what is read is decrypted, what is sent is encrypted.
//!
//! rustls keeps the state, the connection keeps the bytes: rustls's unbuffered interface works on
//! buffers of ours, so that an idle connection holds none. [`Encryption`] is the part of a
//! [`Connection`](crate::net::Connection) that is there only where TLS is used or asked for.
//!
//! | part | what it does |
//! | --- | --- |
//! | [`Encryption`] | asks a server for TLS, shakes hands, encrypts and decrypts |
//! | [`settings`] | reads certificates and keys, and makes rustls's configurations of them |
//! | [`certificate`] | reads what a certificate says: a name, the hash for channel binding |
//!
//! A client asks for TLS with an `SSLRequest`, or begins with a `ClientHello` (direct TLS, since
//! PostgreSQL 17), which has to name the protocol `postgresql` by ALPN; see "SSL Session
//! Encryption" in the PostgreSQL manual's chapter on the protocol.

pub(crate) mod certificate;
pub(crate) mod settings;

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use tidegate_wire::startup;

use crate::net::{Outbox, ReadOutcome, Stream, read_once};

use settings::{Acceptor, Connector, Negotiation};

/// The protocol's name in ALPN.
pub(crate) const ALPN: &[u8] = b"postgresql";

/// The first byte of a TLS record that holds handshake messages, and of direct TLS.
pub(crate) const HANDSHAKE_RECORD: u8 = 0x16;

/// Bytes of ciphertext read at once.
const READ_LEN: usize = 64 * 1024;

/// Bytes of a record besides its plaintext, at most, and the plaintext of a full record.
const RECORD_OVERHEAD: usize = 64;
pub(crate) const RECORD_PLAINTEXT: usize = 16 * 1024;

thread_local! {
    /// Memory that all connections of a thread use in turn, so that none has buffers of its own.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Ciphertext on its way in and out.
#[derive(Default)]
struct Scratch {
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

/// Why a connection cannot be encrypted.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
    #[error("the server does not support TLS, which sslmode={0} demands")]
    NotSupported(settings::SslMode),
    #[error("the server answered the request for TLS with {0:#04x} instead of S or N")]
    BadAnswer(u8),
    #[error("the server sent unencrypted bytes after it agreed to TLS")]
    UnencryptedBytes,
    #[error("direct TLS needs the ALPN protocol \"postgresql\", which was not agreed on")]
    NoAlpn,
    #[error("{0}")]
    Io(io::ErrorKind),
    #[error("the server's certificate cannot be bound to a login: {0}")]
    Certificate(#[from] certificate::CertificateError),
}

/// The TLS of a connection.
#[derive(Debug)]
pub(crate) struct Encryption {
    stage: Stage,
    /// Ciphertext received that is not a whole record.
    incoming: Vec<u8>,
    /// Plaintext that the reader's buffer did not hold.
    decrypted: Vec<u8>,
    /// Plaintext to be sent as soon as the connection is encrypted, or known not to be.
    pending: Vec<u8>,
    error: Option<TlsError>,
}

#[derive(Debug)]
enum Stage {
    /// The server has been asked and has not answered.
    Asked(Arc<Connector>),
    /// The server has declined: the connection stays in clear text.
    Declined,
    Session(Box<Session>),
    /// The peer has ended the session, or the session has failed.
    Ended,
}

/// A TLS session of either side.
struct Session {
    records: Records,
    /// The handshake is done.
    is_established: bool,
    /// The peer began with a `ClientHello`, and has to name the protocol.
    needs_alpn: bool,
    /// Hash of the certificate that this side has shown, for channel binding.
    own_end_point: Option<Arc<[u8]>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Session")
            .field("is_established", &self.is_established)
            .finish_non_exhaustive()
    }
}

enum Records {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// What the records processed so far have led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advance {
    Handshaking,
    Established,
    PeerClosed,
}

impl Encryption {
    fn new(stage: Stage) -> Encryption {
        Encryption {
            stage,
            incoming: Vec::new(),
            decrypted: Vec::new(),
            pending: Vec::new(),
            error: None,
        }
    }

    /// Begins a session with a client, which is to send a `ClientHello`. `received` is what has
    /// been read of it, and is not empty if the client began with it.
    ///
    /// # Errors
    /// rustls cannot begin a session.
    pub(crate) fn accept(
        acceptor: &Acceptor,
        received: &[u8],
        stream: &mut Stream,
        outbox: &mut Outbox,
    ) -> Result<Encryption, TlsError> {
        let connection = UnbufferedServerConnection::new(Arc::clone(&acceptor.config))?;
        let session = Session {
            records: Records::Server(connection),
            is_established: false,
            needs_alpn: !received.is_empty(),
            own_end_point: acceptor.end_point.clone(),
        };
        let mut encryption = Encryption::new(Stage::Session(Box::new(session)));
        encryption.incoming.extend_from_slice(received);
        encryption.encrypt_and_send(stream, outbox, &[])?;
        Ok(encryption)
    }

    /// Begins to encrypt a connection to a server: asks for TLS, or begins with it.
    ///
    /// # Errors
    /// The socket has failed, or rustls cannot begin a session.
    pub(crate) fn connect(
        connector: &Arc<Connector>,
        stream: &mut Stream,
        outbox: &mut Outbox,
    ) -> Result<Encryption, TlsError> {
        if connector.negotiation == Negotiation::Direct {
            let mut encryption = Encryption::new(Stage::Session(client_session(connector)?));
            encryption.encrypt_and_send(stream, outbox, &[])?;
            return Ok(encryption);
        }
        let mut request = Vec::new();
        startup::encode_ssl_request(&mut request);
        outbox.send(stream, &request).map_err(|error| TlsError::Io(error.kind()))?;
        Ok(Encryption::new(Stage::Asked(Arc::clone(connector))))
    }

    /// Returns whether bytes that the peer sends are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.stage, Stage::Session(_))
    }

    /// Returns the version and the cipher suite; empty while they have not been agreed on.
    pub(crate) fn description(&self) -> String {
        let Stage::Session(session) = &self.stage else { return String::new() };
        let (version, suite) = match &session.records {
            Records::Server(it) => (it.protocol_version(), it.negotiated_cipher_suite()),
            Records::Client(it) => (it.protocol_version(), it.negotiated_cipher_suite()),
        };
        let version = version.and_then(|it| it.as_str()).unwrap_or_default();
        let suite = suite.and_then(|it| it.suite().as_str()).unwrap_or_default();
        if version.is_empty() { String::new() } else { format!("{version}/{suite}") }
    }

    /// Returns why the session has failed, if it has.
    pub(crate) fn error(&self) -> Option<&TlsError> {
        self.error.as_ref()
    }

    /// Returns whether decrypted bytes wait for a reader.
    pub(crate) fn has_decrypted(&self) -> bool {
        !self.decrypted.is_empty()
    }

    /// Returns the hash of this side's certificate for SCRAM's channel binding of type
    /// `tls-server-end-point` (RFC 5929, section 4), for a server.
    pub(crate) fn own_end_point(&self) -> Option<Arc<[u8]>> {
        match &self.stage {
            Stage::Session(session) => session.own_end_point.clone(),
            _ => None,
        }
    }

    /// Returns the hash of the server's certificate for SCRAM's channel binding, for a client.
    ///
    /// # Errors
    /// The certificate cannot be read, or its signature algorithm has no single hash function.
    pub(crate) fn peer_end_point(&self) -> Result<Option<Vec<u8>>, TlsError> {
        let Some(certificate) = self.peer_certificate() else { return Ok(None) };
        Ok(Some(certificate::end_point(certificate)?))
    }

    /// Returns the certificate that the peer has shown and proved, in DER.
    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        let Stage::Session(session) = &self.stage else { return None };
        if !session.is_established {
            return None;
        }
        let certificates = match &session.records {
            Records::Server(connection) => connection.peer_certificates(),
            Records::Client(connection) => connection.peer_certificates(),
        };
        Some(certificates?.first()?.as_ref())
    }

    /// Reads once and decrypts into `buffer`; answers what the handshake asks for.
    pub(crate) fn read(
        &mut self,
        stream: &mut Stream,
        outbox: &mut Outbox,
        buffer: &mut [u8],
    ) -> ReadOutcome {
        loop {
            if !self.decrypted.is_empty() {
                let count = self.decrypted.len().min(buffer.len());
                buffer[..count].copy_from_slice(&self.decrypted[..count]);
                self.decrypted.drain(..count);
                reset_if_empty(&mut self.decrypted);
                return ReadOutcome::Bytes { count, more: true };
            }
            let outcome = match &self.stage {
                Stage::Asked(_) => self.read_answer(stream, outbox),
                Stage::Declined => return read_once(stream, buffer),
                Stage::Session(_) => self.read_records(stream, outbox, buffer),
                Stage::Ended => return ReadOutcome::Closed,
            };
            match outcome {
                Ok(ReadOutcome::Bytes { count: 0, .. }) => {}
                Ok(outcome) => return outcome,
                Err(error) => {
                    self.fail(error);
                    return ReadOutcome::Closed;
                }
            }
        }
    }

    /// Sends `bytes`, encrypted, as soon as that can be.
    pub(crate) fn send(
        &mut self,
        stream: &mut Stream,
        outbox: &mut Outbox,
        bytes: &[u8],
    ) -> io::Result<()> {
        match &self.stage {
            Stage::Asked(_) => self.pending.extend_from_slice(bytes),
            Stage::Declined => outbox.send(stream, bytes)?,
            Stage::Session(session) if !session.is_established => {
                self.pending.extend_from_slice(bytes);
            }
            Stage::Session(_) => {
                self.encrypt_and_send(stream, outbox, bytes).map_err(io::Error::other)?;
            }
            Stage::Ended => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        Ok(())
    }

    /// Tells the peer that nothing follows. What cannot be sent at once is not sent.
    pub(crate) fn send_close_notify(&mut self, stream: &mut Stream, outbox: &mut Outbox) {
        let Stage::Session(session) = &mut self.stage else { return };
        let mut alert = vec![0; RECORD_OVERHEAD];
        let written = match &mut session.records {
            Records::Server(connection) => close_notify(connection, &mut alert),
            Records::Client(connection) => close_notify(connection, &mut alert),
        };
        // The connection is closed whether or not the peer learns it first.
        drop(outbox.send(stream, &alert[..written]));
    }

    /// Reads the server's answer to the request for TLS: one byte, and no more until its end.
    fn read_answer(
        &mut self,
        stream: &mut Stream,
        outbox: &mut Outbox,
    ) -> Result<ReadOutcome, TlsError> {
        let mut answer = [0; 2];
        let outcome = read_once(stream, &mut answer);
        let ReadOutcome::Bytes { count, .. } = outcome else { return Ok(outcome) };
        let Stage::Asked(connector) = std::mem::replace(&mut self.stage, Stage::Ended) else {
            return Ok(ReadOutcome::Closed);
        };
        match answer[0] {
            // What follows would be taken for encrypted (CVE-2021-23222).
            b'S' if count > 1 => return Err(TlsError::UnencryptedBytes),
            b'S' => {
                self.stage = Stage::Session(client_session(&connector)?);
                self.encrypt_and_send(stream, outbox, &[])?;
            }
            b'N' if connector.mode.demands_tls() => {
                return Err(TlsError::NotSupported(connector.mode));
            }
            b'N' if count > 1 => return Err(TlsError::UnencryptedBytes),
            b'N' => {
                self.stage = Stage::Declined;
                let pending = std::mem::take(&mut self.pending);
                if outbox.send(stream, &pending).is_err() {
                    return Ok(ReadOutcome::Closed);
                }
            }
            other => return Err(TlsError::BadAnswer(other)),
        }
        Ok(ReadOutcome::Bytes { count: 0, more: true })
    }

    /// Reads ciphertext once, and decrypts it into `buffer`. Returns no bytes if there was only
    /// handshake in it.
    fn read_records(
        &mut self,
        stream: &mut Stream,
        outbox: &mut Outbox,
        buffer: &mut [u8],
    ) -> Result<ReadOutcome, TlsError> {
        let mut scratch = SCRATCH.take();
        let carried = self.incoming.len();
        if scratch.incoming.len() < carried + READ_LEN {
            scratch.incoming.resize(carried + READ_LEN, 0);
        }
        let incoming = &mut scratch.incoming[..carried + READ_LEN];
        incoming[..carried].copy_from_slice(&self.incoming);
        let mut outcome = read_once(stream, &mut incoming[carried..]);
        let mut processed = Ok(());
        if let ReadOutcome::Bytes { count, more } = outcome {
            let incoming = &mut incoming[..carried + count];
            let mut filled = 0;
            processed = self.process(incoming, &[], &mut scratch.outgoing, buffer, &mut filled);
            let is_sent = outbox.send(stream, &scratch.outgoing).is_ok();
            if scratch.outgoing.is_empty() && filled == 0 {
                // The end of a handshake, which needs no answer: without an acknowledgement, a
                // client whose system collects small segments (Nagle) begins to log in 40 ms late.
                stream.acknowledge();
            }
            outcome = if is_sent || filled > 0 {
                let more = more || self.has_decrypted() || matches!(self.stage, Stage::Ended);
                ReadOutcome::Bytes { count: filled, more }
            } else {
                ReadOutcome::Closed
            };
        }
        SCRATCH.set(scratch);
        processed.map(|()| outcome)
    }

    /// Encrypts `plaintext`, sends it and what the handshake has to say.
    fn encrypt_and_send(
        &mut self,
        stream: &mut Stream,
        outbox: &mut Outbox,
        plaintext: &[u8],
    ) -> Result<(), TlsError> {
        let mut scratch = SCRATCH.take();
        let mut incoming = std::mem::take(&mut self.incoming);
        let processed =
            self.process(&mut incoming, plaintext, &mut scratch.outgoing, &mut [], &mut 0);
        let sent = outbox.send(stream, &scratch.outgoing);
        SCRATCH.set(scratch);
        processed?;
        sent.map_err(|error| TlsError::Io(error.kind()))
    }

    /// Lets rustls go on with the ciphertext of `incoming`, whose rest is kept. What it decrypts
    /// goes into `buffer`, and what does not fit into `decrypted`; what it has to send into
    /// `outgoing`, with `plaintext` encrypted at the end.
    fn process(
        &mut self,
        incoming: &mut [u8],
        plaintext: &[u8],
        outgoing: &mut Vec<u8>,
        buffer: &mut [u8],
        filled: &mut usize,
    ) -> Result<(), TlsError> {
        outgoing.clear();
        let Stage::Session(session) = &mut self.stage else { return Ok(()) };
        let decrypted = &mut self.decrypted;
        let mut receive = |payload: &[u8]| {
            let fits = payload.len().min(buffer.len() - *filled);
            buffer[*filled..*filled + fits].copy_from_slice(&payload[..fits]);
            *filled += fits;
            decrypted.extend_from_slice(&payload[fits..]);
        };
        let queued = [&self.pending, plaintext];
        let (consumed, advance) = match &mut session.records {
            Records::Server(it) => process(it, incoming, &queued, outgoing, &mut receive)?,
            Records::Client(it) => process(it, incoming, &queued, outgoing, &mut receive)?,
        };
        self.incoming.clear();
        self.incoming.extend_from_slice(&incoming[consumed..]);
        reset_if_empty(&mut self.incoming);
        match advance {
            Advance::Handshaking => self.pending.extend_from_slice(plaintext),
            Advance::Established => {
                if !session.is_established {
                    // What was to be sent is for a peer that speaks the protocol.
                    session.check_alpn().inspect_err(|_| outgoing.clear())?;
                    session.is_established = true;
                    self.pending = Vec::new();
                }
            }
            Advance::PeerClosed => self.stage = Stage::Ended,
        }
        Ok(())
    }

    fn fail(&mut self, error: TlsError) {
        self.stage = Stage::Ended;
        self.error = Some(error);
    }
}

impl Session {
    /// Checks that a client that began with TLS means PostgreSQL's protocol, so that no server of
    /// another one can be made to talk to it (ALPACA).
    fn check_alpn(&self) -> Result<(), TlsError> {
        let agreed = match &self.records {
            Records::Server(connection) => connection.alpn_protocol(),
            Records::Client(connection) => connection.alpn_protocol(),
        };
        if self.needs_alpn && agreed != Some(ALPN) { Err(TlsError::NoAlpn) } else { Ok(()) }
    }
}

fn client_session(connector: &Connector) -> Result<Box<Session>, rustls::Error> {
    let config = Arc::clone(&connector.config);
    let connection = UnbufferedClientConnection::new(config, connector.server_name.clone())?;
    Ok(Box::new(Session {
        records: Records::Client(connection),
        is_established: false,
        needs_alpn: connector.negotiation == Negotiation::Direct,
        own_end_point: None,
    }))
}

/// A TLS session of rustls that works on buffers of ours.
trait Unbuffered {
    type Data;

    fn records<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// Returns whether something waits to be sent.
    fn has_output(&self) -> bool;
}

impl Unbuffered for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn has_output(&self) -> bool {
        self.wants_write()
    }

    fn records<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

impl Unbuffered for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn has_output(&self) -> bool {
        self.wants_write()
    }

    fn records<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

/// Processes all records of `incoming`. Returns how many bytes of it are done with.
fn process<C: Unbuffered>(
    connection: &mut C,
    incoming: &mut [u8],
    plaintext: &[&[u8]],
    outgoing: &mut Vec<u8>,
    receive: &mut dyn FnMut(&[u8]),
) -> Result<(usize, Advance), TlsError> {
    let mut consumed = 0;
    loop {
        let UnbufferedStatus { mut discard, state, .. } =
            connection.records(&mut incoming[consumed..]);
        let state = match state {
            Ok(state) => state,
            Err(error) => {
                encode_alert(connection, outgoing);
                return Err(error.into());
            }
        };
        let mut ended = None;
        match state {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    discard += record.discard;
                    receive(record.payload);
                }
            }
            ConnectionState::EncodeTlsData(mut data) => {
                append(outgoing, RECORD_OVERHEAD, |space| match data.encode(space) {
                    Ok(written) => Ok(written),
                    Err(EncodeError::InsufficientSize(needed)) => Err(needed),
                    Err(EncodeError::AlreadyEncoded) => Ok(0),
                });
            }
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::WriteTraffic(mut traffic) => {
                for part in plaintext.iter().filter(|part| !part.is_empty()) {
                    let records = part.len() / RECORD_PLAINTEXT + 1;
                    let mut exhausted = false;
                    append(outgoing, part.len() + records * RECORD_OVERHEAD, |space| match traffic
                        .encrypt(part, space)
                    {
                        Ok(written) => Ok(written),
                        Err(EncryptError::InsufficientSize(needed)) => Err(needed),
                        Err(EncryptError::EncryptExhausted) => {
                            exhausted = true;
                            Ok(0)
                        }
                    });
                    if exhausted {
                        return Err(rustls::Error::EncryptError.into());
                    }
                }
                ended = Some(Advance::Established);
            }
            ConnectionState::BlockedHandshake => ended = Some(Advance::Handshaking),
            ConnectionState::PeerClosed | ConnectionState::Closed => {
                ended = Some(Advance::PeerClosed);
            }
            // Early data is not offered, so that it cannot be replayed.
            _ => return Err(rustls::Error::HandshakeNotComplete.into()),
        }
        consumed += discard;
        if let Some(advance) = ended {
            return Ok((consumed, advance));
        }
    }
}

/// Appends the alert that tells the peer why the session failed, if there is one. rustls hands out
/// what it has to send before it looks at records, and is not asked to look at any: it would panic
/// where it remembers the place of a handshake message, or fail once more.
fn encode_alert<C: Unbuffered>(connection: &mut C, outgoing: &mut Vec<u8>) {
    while connection.has_output() {
        let Ok(ConnectionState::EncodeTlsData(mut data)) = connection.records(&mut []).state else {
            return;
        };
        append(outgoing, RECORD_OVERHEAD, |space| match data.encode(space) {
            Ok(written) => Ok(written),
            Err(EncodeError::InsufficientSize(needed)) => Err(needed),
            Err(EncodeError::AlreadyEncoded) => Ok(0),
        });
    }
}

/// Appends what `write` writes into a space of `len` bytes, or of as many as it asks for.
fn append(
    out: &mut Vec<u8>,
    len: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, InsufficientSizeError>,
) {
    let start = out.len();
    let mut len = len;
    loop {
        out.resize(start + len, 0);
        match write(&mut out[start..]) {
            Ok(written) => return out.truncate(start + written),
            Err(InsufficientSizeError { required_size }) => len = required_size.max(len + 1),
        }
    }
}

fn close_notify<C: Unbuffered>(connection: &mut C, alert: &mut [u8]) -> usize {
    match connection.records(&mut []).state {
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            traffic.queue_close_notify(alert).unwrap_or(0)
        }
        _ => 0,
    }
}

/// Gives the memory of an empty buffer back.
fn reset_if_empty(buffer: &mut Vec<u8>) {
    if buffer.is_empty() {
        *buffer = Vec::new();
    }
}
