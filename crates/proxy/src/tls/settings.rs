//! What is configured of TLS, and rustls's configurations made of it.
//!
//! Files are read at start and again when they have changed; see [`crate::reloaded`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme, SupportedProtocolVersion,
};

use super::{ALPN, certificate};
use crate::reloaded::Reloaded;

/// How far TLS is demanded, in libpq's words for `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    /// No TLS.
    Disable,
    /// TLS where the other side wants it.
    Prefer,
    /// TLS always; whose certificate it is does not matter.
    Require,
    /// TLS, with a certificate of a known authority.
    VerifyCa,
    /// The same, and the certificate names the server, or the user who logs in.
    VerifyFull,
}

impl SslMode {
    const NAMES: [(&str, SslMode); 6] = [
        ("disable", SslMode::Disable),
        ("prefer", SslMode::Prefer),
        ("allow", SslMode::Prefer),
        ("require", SslMode::Require),
        ("verify-ca", SslMode::VerifyCa),
        ("verify-full", SslMode::VerifyFull),
    ];

    /// Returns whether a connection without TLS is refused.
    #[must_use]
    pub fn demands_tls(self) -> bool {
        self >= SslMode::Require
    }
}

impl fmt::Display for SslMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = SslMode::NAMES.iter().find(|(_, mode)| mode == self).map(|(name, _)| *name);
        formatter.write_str(name.expect("every mode has a name"))
    }
}

/// A value that is not one of the allowed words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {0}")]
pub struct UnknownWord(String);

impl UnknownWord {
    fn among(words: &[&str]) -> UnknownWord {
        UnknownWord(words.join(", "))
    }
}

impl FromStr for SslMode {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<SslMode, UnknownWord> {
        let found = SslMode::NAMES.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, mode)| *mode)
            .ok_or_else(|| UnknownWord::among(&SslMode::NAMES.map(|(name, _)| name)))
    }
}

/// The lowest version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    V1_2,
    /// TLS 1.3.
    V1_3,
}

impl TlsVersion {
    fn and_later(self) -> &'static [&'static SupportedProtocolVersion] {
        static VERSIONS: [&SupportedProtocolVersion; 2] =
            [&rustls::version::TLS13, &rustls::version::TLS12];
        match self {
            TlsVersion::V1_2 => &VERSIONS,
            TlsVersion::V1_3 => &VERSIONS[..1],
        }
    }
}

impl FromStr for TlsVersion {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<TlsVersion, UnknownWord> {
        match text.strip_prefix("TLSv").unwrap_or(text) {
            "1.2" => Ok(TlsVersion::V1_2),
            "1.3" => Ok(TlsVersion::V1_3),
            _ => Err(UnknownWord::among(&["1.2", "1.3"])),
        }
    }
}

/// TLS with clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// How far it is demanded of clients; a Unix-domain socket needs none.
    pub mode: SslMode,
    /// The proxy's certificate in PEM, and those of the authorities between it and the client's.
    pub certificate: PathBuf,
    /// Its key in PEM.
    pub key: PathBuf,
    /// The authorities of clients' certificates in PEM. Clients are asked for one then.
    pub ca: Option<PathBuf>,
    /// The lowest version.
    pub min_version: TlsVersion,
    /// The cipher suites, as rustls or IANA name them; empty for all that are sound.
    pub ciphers: Vec<String>,
}

/// The authorities that a server's certificate has to come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RootCertificates {
    /// Those of the operating system.
    System,
    /// Those of a file in PEM.
    File(PathBuf),
}

/// How TLS begins with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Negotiation {
    /// With a request that every server understands.
    #[default]
    Postgres,
    /// At once, since PostgreSQL 17: a round trip less.
    Direct,
}

/// How far a login is bound to the server's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChannelBindingMode {
    /// The login is never bound.
    Disable,
    /// Where the server offers it.
    #[default]
    Prefer,
    /// The login is bound, or refused.
    Require,
}

/// TLS with a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// How far it is demanded of the server; a Unix-domain socket has none.
    pub mode: SslMode,
    /// The authorities of the server's certificate.
    pub roots: Option<RootCertificates>,
    /// A certificate by which the proxy logs in, and its key, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// How TLS begins.
    pub negotiation: Negotiation,
    /// How far a login is bound to the certificate.
    pub channel_binding: ChannelBindingMode,
    /// The lowest version.
    pub min_version: TlsVersion,
}

impl ServerTls {
    /// Makes the relative paths of its files start from `directory`.
    pub(crate) fn resolve_paths(&mut self, directory: &Path) {
        let roots = match &mut self.roots {
            Some(RootCertificates::File(path)) => Some(path),
            Some(RootCertificates::System) | None => None,
        };
        let identity = self.identity.iter_mut().flat_map(|(certificate, key)| [certificate, key]);
        for path in identity.chain(roots) {
            *path = directory.join(&*path);
        }
    }
}

impl Default for ServerTls {
    fn default() -> ServerTls {
        ServerTls {
            mode: SslMode::Prefer,
            roots: None,
            identity: None,
            negotiation: Negotiation::default(),
            channel_binding: ChannelBindingMode::default(),
            min_version: TlsVersion::default(),
        }
    }
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsSettingsError {
    /// A file cannot be read, or holds nothing of the kind in PEM.
    #[error("cannot read {what} from {path}: {source}")]
    Pem {
        /// What was looked for.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why there is none.
        source: pem::Error,
    },
    /// A file without certificates.
    #[error("{0} has no certificate in PEM")]
    NoCertificate(PathBuf),
    /// The operating system's authorities are not found.
    #[error("the operating system has no certificates of authorities: name a file in sslrootcert")]
    NoSystemRoots,
    /// rustls does not take a certificate or key.
    #[error("{path}: {source}")]
    Rustls {
        /// The file of the certificate.
        path: PathBuf,
        /// The reason that rustls gives.
        source: rustls::Error,
    },
    /// The authorities of clients are of no use.
    #[error("{path}: {source}")]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The reason that rustls gives.
        source: rustls::client::VerifierBuilderError,
    },
    /// No such cipher suite.
    #[error("unknown cipher suite {0}: expected some of {1}")]
    Cipher(String, String),
    /// The cipher suites are all of a version that is not allowed.
    #[error("the cipher suites allow no version of TLS: {0}")]
    Versions(rustls::Error),
    /// A host name that a certificate cannot name.
    #[error("{0:?} is no host name or address")]
    Host(String),
}

/// What sessions with clients are made of.
#[derive(Debug)]
pub(crate) struct Acceptor {
    pub(crate) config: Arc<ServerConfig>,
    /// Hash of the certificate for channel binding; `None` if its algorithm has none.
    pub(crate) end_point: Option<Arc<[u8]>>,
}

impl Acceptor {
    fn load(settings: &ClientTls) -> Result<Acceptor, TlsSettingsError> {
        let chain = certificates(&settings.certificate)?;
        let end_point = certificate::end_point(&chain[0]).ok().map(Arc::from);
        let provider = provider(&settings.ciphers)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(settings.min_version.and_later())
            .map_err(TlsSettingsError::Versions)?;
        let builder = match &settings.ca {
            None => builder.with_no_client_auth(),
            Some(ca) => builder.with_client_cert_verifier(client_verifier(settings, ca, provider)?),
        };
        let path = settings.certificate.clone();
        let mut config = builder
            .with_single_cert(chain, private_key(&settings.key)?)
            .map_err(|source| TlsSettingsError::Rustls { path, source })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Clients of PostgreSQL do not resume sessions, and what is not kept cannot be stolen.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Acceptor { config: Arc::new(config), end_point })
    }
}

fn client_verifier(
    settings: &ClientTls,
    ca: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsSettingsError> {
    let roots = Arc::new(root_store(certificates(ca)?));
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider);
    let builder = match settings.mode {
        SslMode::VerifyCa | SslMode::VerifyFull => builder,
        _ => builder.allow_unauthenticated(),
    };
    builder.build().map_err(|source| TlsSettingsError::Authorities { path: ca.to_owned(), source })
}

/// What sessions with a server are made of.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) server_name: ServerName<'static>,
    pub(crate) mode: SslMode,
    pub(crate) negotiation: Negotiation,
}

impl Connector {
    fn load(settings: &ServerTls, host: &str) -> Result<Connector, TlsSettingsError> {
        let server_name = ServerName::try_from(host.to_owned())
            .map_err(|_| TlsSettingsError::Host(host.to_owned()))?;
        let provider = provider(&[])?;
        let verifier = ServerVerifier::load(settings, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(settings.min_version.and_later())
            .map_err(TlsSettingsError::Versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &settings.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
                .map_err(|source| TlsSettingsError::Rustls { path: certificate.clone(), source })?,
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        let (mode, negotiation) = (settings.mode, settings.negotiation);
        Ok(Connector { config: Arc::new(config), server_name, mode, negotiation })
    }
}

/// Verifies a server's certificate as libpq does for an `sslmode`.
#[derive(Debug)]
struct ServerVerifier {
    /// The authorities; `None` takes every certificate.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    /// Their certificates: a server may show one of them itself, as a self-signed one is.
    trusted: Vec<CertificateDer<'static>>,
    has_to_name_server: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerVerifier {
    fn load(
        settings: &ServerTls,
        provider: &Arc<CryptoProvider>,
    ) -> Result<ServerVerifier, TlsSettingsError> {
        let algorithms = provider.signature_verification_algorithms;
        let mut verifier = ServerVerifier {
            authorities: None,
            trusted: Vec::new(),
            has_to_name_server: settings.mode == SslMode::VerifyFull,
            algorithms,
        };
        // As in libpq, authorities that are given are asked from `require` on.
        let Some(roots) = settings.roots.as_ref().filter(|_| settings.mode.demands_tls()) else {
            return Ok(verifier);
        };
        let (certificates, path) = match roots {
            RootCertificates::File(path) => (certificates(path)?, path.clone()),
            RootCertificates::System => {
                let found = rustls_native_certs::load_native_certs().certs;
                (found, PathBuf::from("sslrootcert=system"))
            }
        };
        if certificates.is_empty() {
            return Err(TlsSettingsError::NoSystemRoots);
        }
        if matches!(roots, RootCertificates::File(_)) {
            verifier.trusted.clone_from(&certificates);
        }
        let store = Arc::new(root_store(certificates));
        let authorities =
            WebPkiServerVerifier::builder_with_provider(store, Arc::clone(provider)).build();
        verifier.authorities =
            Some(authorities.map_err(|source| TlsSettingsError::Authorities { path, source })?);
        Ok(verifier)
    }

    /// Verifies a certificate that is trusted by itself: its time, and its name if that counts.
    fn verify_trusted(
        &self,
        own: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        certificate::check_validity(own, now)?;
        if self.has_to_name_server {
            verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
        }
        Ok(())
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        if self.trusted.iter().any(|trusted| trusted == end_entity) {
            self.verify_trusted(end_entity, name, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        let verified =
            authorities.verify_server_cert(end_entity, intermediates, name, ocsp_response, now);
        match verified {
            // The name is looked at last, when the rest was right.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.has_to_name_server => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsSettingsError> {
    let what = "a certificate";
    let failed = |source| TlsSettingsError::Pem { what, path: path.to_owned(), source };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(failed)?.collect();
    let found = found.map_err(failed)?;
    if found.is_empty() { Err(TlsSettingsError::NoCertificate(path.to_owned())) } else { Ok(found) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsSettingsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| TlsSettingsError::Pem {
        what: "a key",
        path: path.to_owned(),
        source,
    })
}

/// Returns the authorities; those that rustls cannot read are left out, as an old one among many
/// must not keep the others from being used.
fn root_store(certificates: Vec<CertificateDer<'static>>) -> RootCertStore {
    let mut store = RootCertStore::empty();
    let (_, left_out) = store.add_parsable_certificates(certificates);
    if left_out > 0 {
        tracing::warn!(left_out, "certificates of authorities that cannot be read");
    }
    store
}

/// Returns the cryptography, with the cipher suites of these names or with all.
fn provider(ciphers: &[String]) -> Result<Arc<CryptoProvider>, TlsSettingsError> {
    let mut provider = ring::default_provider();
    let name = |suite: &rustls::SupportedCipherSuite| format!("{:?}", suite.suite());
    for cipher in ciphers {
        let known = provider.cipher_suites.iter().map(name);
        if !known.clone().any(|known| is_same_suite(&known, cipher)) {
            let known: Vec<_> = known.collect();
            return Err(TlsSettingsError::Cipher(cipher.clone(), known.join(", ")));
        }
    }
    if !ciphers.is_empty() {
        let is_named = |known: &str| ciphers.iter().any(|cipher| is_same_suite(known, cipher));
        provider.cipher_suites.retain(|suite| is_named(&name(suite)));
    }
    Ok(Arc::new(provider))
}

/// rustls calls the suites of TLS 1.3 `TLS13_…`, IANA `TLS_…`.
fn is_same_suite(known: &str, written: &str) -> bool {
    known == written || known.replacen("TLS13_", "TLS_", 1) == written
}

/// What the files hold, for the log.
const CERTIFICATES: &str = "the TLS certificates";

/// Reads what sessions with clients need.
///
/// # Errors
/// A file is missing or wrong, or a cipher suite unknown.
pub(crate) fn acceptor(settings: &ClientTls) -> Result<Reloaded<Acceptor>, TlsSettingsError> {
    let files = [&settings.certificate, &settings.key].into_iter().chain(&settings.ca);
    let files = files.cloned().collect();
    let settings = settings.clone();
    Reloaded::new(CERTIFICATES, files, move |_| Acceptor::load(&settings))
}

/// Reads what sessions with a server need.
///
/// # Errors
/// A file is missing or wrong, or the host is no name.
pub(crate) fn connector(
    settings: &ServerTls,
    host: &str,
) -> Result<Reloaded<Connector>, TlsSettingsError> {
    let mut files = Vec::new();
    if let Some(RootCertificates::File(path)) = &settings.roots {
        files.push(path.clone());
    }
    if let Some((certificate, key)) = &settings.identity {
        files.extend([certificate.clone(), key.clone()]);
    }
    let (settings, host) = (settings.clone(), host.to_owned());
    Reloaded::new(CERTIFICATES, files, move |_| Connector::load(&settings, &host))
}
