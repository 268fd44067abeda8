//! TLS with clients and with servers, by libpq, by rustls and by bytes.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;
use tidegate_subject::postgres::{Authentication, Postgres};

use crate::support::server::{BOUND, own_server, setup};
use crate::support::{MODES, Proxy, eventually, server};

/// An authority with a directory for what it has issued.
pub(crate) struct Authority {
    directory: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let directory = TempDir::new().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "tests");
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        fs::write(directory.path().join("ca.crt"), pem("CERTIFICATE", own.der())).unwrap();
        Authority { directory, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Issues `NAME.crt` and `NAME.key` for a common name and hosts.
    pub(crate) fn issue(&self, name: &str, common_name: &str, hosts: &[&str]) {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(&format!("{name}.crt")), pem("CERTIFICATE", certificate.der()))
            .unwrap();
        let key_path = self.path(&format!("{name}.key"));
        fs::write(&key_path, pem("PRIVATE KEY", &key.serialize_der())).unwrap();
        // libpq refuses keys that others may read.
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(key_path, private).unwrap();
    }

    /// The section `[client_tls]` of a proxy with the certificate of this name.
    pub(crate) fn section(&self, name: &str, lines: &str) -> String {
        let file = |end: &str| self.path(&format!("{name}.{end}")).display().to_string();
        format!(
            "[client_tls]\ncertificate = \"{}\"\nkey = \"{}\"\n{lines}\n",
            file("crt"),
            file("key")
        )
    }
}

/// Writes what is in DER as PEM (RFC 7468).
fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Runs `psql` with these parts of a connection string.
fn psql(proxy: &Proxy, connection: &str, query: &str) -> Output {
    let port = proxy.address.port();
    let connection =
        format!("host=localhost hostaddr=127.0.0.1 port={port} dbname=postgres {connection}");
    Command::new("psql")
        .args([&connection, "-w", "-X", "-At", "-v", "ON_ERROR_STOP=1", "-c", query])
        .env("PGPASSWORD", "right")
        .output()
        .unwrap()
}

fn answer(proxy: &Proxy, connection: &str, query: &str) -> String {
    let output = psql(proxy, connection, query);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{connection}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn assert_refused(proxy: &Proxy, connection: &str, why: &str) {
    let output = psql(proxy, connection, "SELECT 1");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{connection} was let in");
    assert!(errors.contains(why), "{connection}: {errors}");
}

#[test]
fn libpq_logs_in_by_tls_as_far_as_it_is_demanded() {
    let (server, authority) = (server(), Authority::new());
    authority.issue("proxy", "proxy", &["localhost"]);
    let root = format!("sslrootcert={}", authority.path("ca.crt").display());
    for (mode, level, plain) in [("transaction", "prefer", true), ("session", "require", false)] {
        let proxy = setup(&server, mode)
            .upstream(&format!("postgres://postgres@127.0.0.1:{}", server.port()))
            .users("\"ann\" \"right\"\n")
            .line(&authority.section("proxy", &format!("mode = \"{level}\"")))
            .start();
        for demand in ["require", "verify-ca", "verify-full"] {
            let bound = format!("user=ann sslmode={demand} {root} channel_binding=require");
            assert_eq!(answer(&proxy, &bound, "SELECT 40 + 2"), "42");
        }
        if plain {
            assert_eq!(answer(&proxy, "user=ann sslmode=disable", "SELECT 1"), "1");
        } else {
            assert_refused(&proxy, "user=ann sslmode=disable", "connect with sslmode=require");
        }
        let wrong = format!("user=bob sslmode=require {root}");
        assert_refused(&proxy, &wrong, "password authentication failed for user \"bob\"");
        proxy.is_left_clean();
    }
}

#[test]
fn large_messages_pass_unchanged_in_both_directions() {
    let (server, authority) = (server(), Authority::new());
    authority.issue("proxy", "proxy", &["localhost"]);
    for mode in MODES {
        let proxy = setup(&server, mode).line(&authority.section("proxy", "")).start();
        let connection = "user=postgres sslmode=require";
        // Each row is another one, so that nothing can be lost, doubled or put elsewhere.
        let rows = "SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300000) i";
        let through = answer(&proxy, connection, rows);
        assert_eq!(through.len(), 300_000 * 32);
        let direct = server.connect().unwrap().query(&format!("SELECT md5(({rows}))")).unwrap();
        let query = format!("SELECT md5('{through}')");
        let path = authority.path("query.sql");
        fs::write(&path, query).unwrap();
        let port = proxy.address.port().to_string();
        let output = Command::new("psql")
            .args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-d", "postgres"])
            .args(["-w", "-X", "-At", "-f"])
            .arg(&path)
            .env("PGSSLMODE", "require")
            .output()
            .unwrap();
        let back = String::from_utf8(output.stdout).unwrap();
        assert_eq!(Some(back.trim_end()), direct[0][0].as_deref(), "{mode}");
        proxy.is_left_clean();
    }
}

#[test]
fn a_certificate_is_a_login() {
    let (server, authority, stranger) = (server(), Authority::new(), Authority::new());
    authority.issue("proxy", "proxy", &["localhost"]);
    authority.issue("postgres", "postgres", &[]);
    authority.issue("ann", "ann", &[]);
    stranger.issue("postgres", "postgres", &[]);
    let certificate = |of: &Authority, name: &str| {
        let file = |end: &str| of.path(&format!("{name}.{end}")).display().to_string();
        format!("user=postgres sslmode=require sslcert={} sslkey={}", file("crt"), file("key"))
    };
    let ca = format!("ca = \"{}\"", authority.path("ca.crt").display());
    let proxy = setup(&server, "transaction")
        .line("auth = \"cert\"")
        .line(&authority.section("proxy", &format!("mode = \"verify-full\"\n{ca}")))
        .start();
    let right = certificate(&authority, "postgres");
    assert_eq!(answer(&proxy, &right, "SELECT current_user"), "postgres");
    let why = "certificate authentication failed for user \"postgres\"";
    assert_refused(&proxy, &certificate(&authority, "ann"), why);
    assert_refused(&proxy, &certificate(&stranger, "postgres"), "alert");
    let none = "user=postgres sslmode=require sslcert=/nonexistent";
    assert_refused(&proxy, none, "certificate required");
    proxy.wait_for("tidegate_tls_failures_total", 2);
    proxy.is_left_clean();
}

/// Gives a server a certificate and lets it take TLS.
fn switch_tls_on(server: &Postgres, authority: &Authority) {
    authority.issue("server", "server", &["localhost"]);
    let mut admin = server.connect().unwrap();
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    // By the server itself, so that the key belongs to its user.
    for (file, name) in [("server.crt", "server.crt"), ("server.key", "server.key")] {
        let path = server.directory().join(file);
        let program = format!("umask 077; cat > {}", path.display());
        let rows: Vec<String> =
            authority.text(name).lines().map(|line| format!("({})", quoted(line))).collect();
        let rows = rows.join(", ");
        admin.query(&format!("COPY (VALUES {rows}) TO PROGRAM {}", quoted(&program))).unwrap();
        let setting = if name.ends_with("crt") { "ssl_cert_file" } else { "ssl_key_file" };
        admin
            .query(&format!("ALTER SYSTEM SET {setting} = {}", quoted(&path.display().to_string())))
            .unwrap();
    }
    admin.query("ALTER SYSTEM SET ssl = on").unwrap();
    admin.query("SELECT pg_reload_conf()").unwrap();
    eventually("TLS", || {
        let shown = server.connect().unwrap().query("SHOW ssl").unwrap();
        (shown[0][0].as_deref() == Some("on")).then_some(())
    });
}

const IS_ENCRYPTED: &str = "SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

#[test]
fn connections_to_a_server_are_encrypted_and_bound_to_its_certificate() {
    let authority = Authority::new();
    let server = own_server(Authentication::ScramSha256("right".to_owned()));
    switch_tls_on(&server, &authority);
    let root = format!("sslrootcert={}", authority.path("ca.crt").display());
    let upstream = |query: &str| {
        format!("postgres://postgres:right@localhost:{}/postgres?{query}", server.port())
    };
    for mode in MODES {
        for query in [
            "sslmode=prefer".to_owned(),
            "sslmode=require&channel_binding=require".to_owned(),
            format!("sslmode=verify-full&{root}&channel_binding=require"),
            "ssl_min_protocol_version=TLSv1.3".to_owned(),
        ] {
            let proxy = setup(&server, mode).upstream(&upstream(&query)).start();
            let found = answer(&proxy, "user=postgres sslmode=disable", IS_ENCRYPTED);
            assert_eq!(found, "t|TLSv1.3", "{mode} {query}");
            proxy.is_left_clean();
        }
        let proxy = setup(&server, mode).upstream(&upstream("sslmode=disable")).start();
        let found = answer(&proxy, "user=postgres sslmode=disable", IS_ENCRYPTED);
        assert_eq!(found, "f|", "{mode}");
    }
}

#[test]
fn a_server_that_is_not_the_right_one_is_not_used() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = own_server(Authentication::Trust);
    let upstream = |host: &str, query: &str| {
        format!("postgres://postgres@{host}:{}/postgres?{query}", server.port())
    };
    let root = |of: &Authority| format!("sslrootcert={}", of.path("ca.crt").display());
    let refused = |url: &str, why: &str| {
        let proxy = setup(&server, "transaction").upstream(url).start();
        assert_refused(&proxy, "user=postgres sslmode=disable", why);
        proxy.is_left_clean();
    };
    refused(&upstream("localhost", "sslmode=require"), "does not support TLS");
    let bound = upstream("localhost", "channel_binding=require");
    refused(&bound, "channel binding is required");
    switch_tls_on(&server, &authority);
    let strange = format!("sslmode=verify-ca&{}", root(&stranger));
    refused(&upstream("localhost", &strange), "invalid peer certificate");
    // The certificate names localhost and no address.
    let named = format!("sslmode=verify-full&{}", root(&authority));
    refused(&upstream("127.0.0.1", &named), "not valid for name");
    let by_authority = format!("sslmode=verify-ca&{}", root(&authority));
    let url = upstream("127.0.0.1", &by_authority);
    let proxy = setup(&server, "transaction").upstream(&url).start();
    let found = answer(&proxy, "user=postgres sslmode=disable", IS_ENCRYPTED);
    assert_eq!(found, "t|TLSv1.3");
}

/// A client that begins with TLS, as libpq of PostgreSQL 17 does by `sslnegotiation=direct`.
fn direct_tls(
    proxy: &Proxy,
    root: &Path,
    protocols: &[&[u8]],
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(root).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(proxy.address).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    StreamOwned::new(connection, stream)
}

fn startup() -> Vec<u8> {
    let mut packet = Vec::new();
    let parameters = [(&b"user"[..], &b"postgres"[..]), (b"database", b"postgres")];
    tidegate_wire::startup::encode_startup(&mut packet, parameters);
    packet
}

#[test]
fn direct_tls_needs_the_protocols_name() {
    let (server, authority) = (server(), Authority::new());
    authority.issue("proxy", "proxy", &["localhost"]);
    let proxy = setup(&server, "session").line(&authority.section("proxy", "")).start();
    let root = authority.path("ca.crt");
    let mut client = direct_tls(&proxy, &root, &[b"postgresql"]);
    client.write_all(&startup()).unwrap();
    let mut tag = [0; 1];
    client.read_exact(&mut tag).unwrap();
    assert_eq!(tag, [b'R']);
    for protocols in [&[][..], &[&b"h2"[..]]] {
        let mut client = direct_tls(&proxy, &root, protocols);
        let sent = client.write_all(&startup());
        let answered = sent.and_then(|()| client.read_exact(&mut tag));
        assert!(answered.is_err(), "{protocols:?}: {tag:?}");
    }
    proxy.wait_for("tidegate_tls_failures_total", 2);
}

#[test]
fn what_is_sent_in_clear_behind_the_request_for_tls_is_refused() {
    let (server, authority) = (server(), Authority::new());
    authority.issue("proxy", "proxy", &["localhost"]);
    let proxy = setup(&server, "session").line(&authority.section("proxy", "")).start();
    let mut client = TcpStream::connect(proxy.address).unwrap();
    client.set_read_timeout(Some(BOUND)).unwrap();
    let mut packet = Vec::new();
    tidegate_wire::startup::encode_ssl_request(&mut packet);
    packet.extend_from_slice(&startup());
    client.write_all(&packet).unwrap();
    let mut answered = Vec::new();
    client.read_to_end(&mut answered).unwrap();
    let text = String::from_utf8_lossy(&answered);
    assert!(text.contains("unencrypted data"), "{text}");
    proxy.is_left_clean();
}

/// The certificate that a proxy shows, in DER.
fn shown_certificate(proxy: &Proxy, root: &Path) -> Vec<u8> {
    let mut client = direct_tls(proxy, root, &[b"postgresql"]);
    client.write_all(&startup()).unwrap();
    client.read_exact(&mut [0; 1]).unwrap();
    client.conn.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn a_new_certificate_is_used_and_a_wrong_one_is_not() {
    let (server, authority) = (server(), Authority::new());
    authority.issue("proxy", "proxy", &["localhost"]);
    let proxy = setup(&server, "session").line(&authority.section("proxy", "")).start();
    let root = authority.path("ca.crt");
    let first = shown_certificate(&proxy, &root);
    authority.issue("proxy", "proxy", &["localhost"]);
    let second = eventually("another certificate", || {
        let shown = shown_certificate(&proxy, &root);
        (shown != first).then_some(shown)
    });
    fs::write(authority.path("proxy.crt"), "no certificate").unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(shown_certificate(&proxy, &root) == second, "the last right one stays");
}
