//! What a certificate says: the hash for channel binding, and a name.

use rustls::pki_types::UnixTime;
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::oid::ObjectIdentifier;

/// Why a certificate is of no use for a login.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("it cannot be read: {0}")]
    Malformed(String),
    #[error("its signature algorithm {0} has no hash function for channel binding")]
    NoHash(ObjectIdentifier),
}

/// Hash functions of signature algorithms (RFC 8017, section A.2; RFC 5758): SHA-256 stands for
/// MD5 and SHA-1 (RFC 5929, section 4.1).
const HASHES: &[(&str, Hash)] = &[
    ("1.2.840.113549.1.1.4", hash::<Sha256>), // md5WithRSAEncryption
    ("1.2.840.113549.1.1.5", hash::<Sha256>), // sha1WithRSAEncryption
    ("1.2.840.113549.1.1.11", hash::<Sha256>), // sha256WithRSAEncryption
    ("1.2.840.113549.1.1.12", hash::<Sha384>), // sha384WithRSAEncryption
    ("1.2.840.113549.1.1.13", hash::<Sha512>), // sha512WithRSAEncryption
    ("1.2.840.10045.4.1", hash::<Sha256>),    // ecdsa-with-SHA1
    ("1.2.840.10045.4.3.2", hash::<Sha256>),  // ecdsa-with-SHA256
    ("1.2.840.10045.4.3.3", hash::<Sha384>),  // ecdsa-with-SHA384
    ("1.2.840.10045.4.3.4", hash::<Sha512>),  // ecdsa-with-SHA512
];

type Hash = fn(&[u8]) -> Vec<u8>;

fn hash<D: Digest>(bytes: &[u8]) -> Vec<u8> {
    D::digest(bytes).to_vec()
}

fn parse(der: &[u8]) -> Result<Certificate, CertificateError> {
    Certificate::from_der(der).map_err(|error| CertificateError::Malformed(error.to_string()))
}

/// Returns the hash of a certificate in DER for the channel binding `tls-server-end-point`.
///
/// # Errors
/// The certificate cannot be read, or its signature algorithm (Ed25519, RSASSA-PSS) has no hash
/// function of its own, for which PostgreSQL has no channel binding either.
pub(crate) fn end_point(der: &[u8]) -> Result<Vec<u8>, CertificateError> {
    let oid = parse(der)?.signature_algorithm().oid;
    let known = HASHES.iter().find(|(name, _)| oid.to_string() == *name);
    known.map(|(_, hash)| hash(der)).ok_or(CertificateError::NoHash(oid))
}

/// Returns the common name of a certificate's subject, which is the user in a login by
/// certificate. The last one counts if there are several, as in PostgreSQL.
///
/// # Errors
/// The certificate cannot be read.
pub(crate) fn common_name(der: &[u8]) -> Result<Option<String>, CertificateError> {
    let certificate = parse(der)?;
    let name = certificate.tbs_certificate().subject().common_name();
    let name = name.map_err(|error| CertificateError::Malformed(error.to_string()))?;
    Ok(name.map(|name| name.value().into_owned()))
}

/// Checks that a certificate holds at a time.
///
/// # Errors
/// It cannot be read, has ended or not begun.
pub(crate) fn check_validity(der: &[u8], now: UnixTime) -> Result<(), rustls::CertificateError> {
    let certificate = parse(der).map_err(|_| rustls::CertificateError::BadEncoding)?;
    let validity = certificate.tbs_certificate().validity();
    let now = now.as_secs();
    if now < validity.not_before.to_unix_duration().as_secs() {
        return Err(rustls::CertificateError::NotValidYet);
    }
    if now > validity.not_after.to_unix_duration().as_secs() {
        return Err(rustls::CertificateError::Expired);
    }
    Ok(())
}
