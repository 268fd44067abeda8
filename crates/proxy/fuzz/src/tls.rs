//! A client of TLS whose bytes go wrong before, in, beneath and within the encryption.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tidegate_wire::startup::encode_ssl_request;

use super::session::PATIENCE;

/// Writes `proxy.crt` and `proxy.key`; returns how a client of them connects.
///
/// # Panics
/// There can be no certificate, or no file.
pub(super) fn certify(directory: &Path) -> Arc<ClientConfig> {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let files = [
        ("proxy.crt", "CERTIFICATE", certificate.der().to_vec()),
        ("proxy.key", "PRIVATE KEY", key.serialize_der()),
    ];
    for (name, label, der) in files {
        let text = STANDARD.encode(der);
        let text = format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");
        std::fs::write(directory.join(name), text).expect("a file");
    }
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate.der().to_vec())).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Arc::new(config)
}

/// A connection; whatever fails on it is what the proxy has ended.
pub(super) struct Client {
    socket: TcpStream,
    tls: ClientConnection,
}

impl Client {
    /// # Panics
    /// The proxy does not accept.
    pub(super) fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Client {
        let socket = TcpStream::connect(address).expect("the proxy accepts");
        socket.set_nodelay(true).expect("an option");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        let name = ServerName::try_from("localhost").expect("a name");
        let tls = ClientConnection::new(Arc::clone(config), name).expect("a client");
        Client { socket, tls }
    }

    /// Asks for TLS as the protocol says.
    pub(super) fn ask(&mut self) -> Result<()> {
        let mut packet = Vec::new();
        encode_ssl_request(&mut packet);
        self.socket.write_all(&packet)?;
        let mut answer = [0];
        self.socket.read_exact(&mut answer)?;
        if answer == *b"S" { Ok(()) } else { Err(Error::other("no TLS")) }
    }

    /// Returns the next messages of the handshake instead of sending them.
    pub(super) fn flight(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes).expect("memory takes everything");
        }
        bytes
    }

    pub(super) fn handshake(&mut self) -> Result<()> {
        while self.tls.is_handshaking() {
            self.tls.complete_io(&mut self.socket)?;
        }
        Ok(())
    }

    /// Returns the record of these bytes, encrypted.
    pub(super) fn record(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.tls.writer().write_all(bytes).expect("memory takes everything");
        self.flight()
    }

    /// Sends bytes as they are.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.socket.write_all(bytes)
    }

    /// Sends nothing more, with or without a word of TLS, and waits for the proxy to end it too.
    ///
    /// # Panics
    /// The proxy does not.
    pub(super) fn end(mut self, says_so: bool) {
        if says_so {
            self.tls.send_close_notify();
            let last = self.flight();
            let _ = self.socket.write_all(&last);
        }
        let _ = self.socket.shutdown(Shutdown::Write);
        if let Err(error) = self.socket.read_to_end(&mut Vec::new()) {
            assert!(
                ![ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()),
                "the connection is not ended: {error}"
            );
        }
    }
}
