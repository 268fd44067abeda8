//! Compares the crypto providers of rustls: what a handshake costs the server, and what a small
//! message and a large one cost it, all in memory on one thread.
//!
//! Prints a Markdown table. The providers take turns in each repetition; a figure is the median,
//! with the lowest and the highest.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::{CryptoProvider, aws_lc_rs, ring};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use rustls::{ProtocolVersion, SupportedProtocolVersion, version};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const REPETITIONS: usize = 7;
const HANDSHAKES: u32 = 300;
/// As long as a point select's answer.
const SMALL: (usize, u32) = (80, 50_000);
/// As long as a record of TLS can be.
const LARGE: (usize, u32) = (16 * 1024, 4_000);

/// Both sides of one provider.
struct Peers {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Peers {
    fn new(provider: CryptoProvider, version: &'static SupportedProtocolVersion) -> Outcome<Peers> {
        let provider = Arc::new(provider);
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone())?;
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // Drivers of databases keep no tickets.
        client.resumption = rustls::client::Resumption::disabled();
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)?;
        server.send_tls13_tickets = 0;
        Ok(Peers { client: Arc::new(client), server: Arc::new(server) })
    }

    /// Makes a connection. Returns both ends, and the server's time.
    fn connect(&self) -> Outcome<(ClientConnection, ServerConnection, Duration)> {
        let name = ServerName::try_from("localhost")?;
        let mut client = ClientConnection::new(Arc::clone(&self.client), name)?;
        let mut spent = Duration::ZERO;
        let started = Instant::now();
        let mut server = ServerConnection::new(Arc::clone(&self.server))?;
        spent += started.elapsed();
        let mut wire = Vec::new();
        while client.is_handshaking() || server.is_handshaking() {
            wire.clear();
            while client.wants_write() {
                client.write_tls(&mut wire)?;
            }
            let started = Instant::now();
            let mut rest = &wire[..];
            while !rest.is_empty() {
                server.read_tls(&mut rest)?;
                server.process_new_packets()?;
            }
            let mut answer = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut answer)?;
            }
            spent += started.elapsed();
            let mut rest = &answer[..];
            while !rest.is_empty() {
                client.read_tls(&mut rest)?;
                client.process_new_packets()?;
            }
        }
        Ok((client, server, spent))
    }

    /// Returns the microseconds of a handshake.
    fn handshake(&self) -> Outcome<f64> {
        let mut spent = Duration::ZERO;
        for _ in 0..HANDSHAKES {
            spent += self.connect()?.2;
        }
        Ok(spent.as_secs_f64() * 1e6 / f64::from(HANDSHAKES))
    }

    /// Returns the server's microseconds to decrypt one message and to encrypt one, of `len` bytes.
    fn exchange(&self, (len, times): (usize, u32)) -> Outcome<f64> {
        let (mut client, mut server, _) = self.connect()?;
        let (message, mut received) = (vec![b'x'; len], vec![0; len]);
        let (mut wire, mut spent) = (Vec::new(), Duration::ZERO);
        for _ in 0..times {
            wire.clear();
            client.writer().write_all(&message)?;
            client.write_tls(&mut wire)?;
            let started = Instant::now();
            let mut rest = &wire[..];
            while !rest.is_empty() {
                server.read_tls(&mut rest)?;
                server.process_new_packets()?;
            }
            server.reader().read_exact(&mut received)?;
            server.writer().write_all(&message)?;
            wire.clear();
            while server.wants_write() {
                server.write_tls(&mut wire)?;
            }
            spent += started.elapsed();
            let mut rest = &wire[..];
            while !rest.is_empty() {
                client.read_tls(&mut rest)?;
                client.process_new_packets()?;
            }
            client.reader().read_exact(&mut received)?;
        }
        Ok(spent.as_secs_f64() * 1e6 / f64::from(times))
    }
}

fn cell(mut figures: Vec<f64>) -> String {
    figures.sort_by(f64::total_cmp);
    let (low, middle, high) = (figures[0], figures[figures.len() / 2], figures[figures.len() - 1]);
    format!("{middle:.2} [{low:.2}–{high:.2}]")
}

fn main() -> Outcome<()> {
    println!("| version | what the server does, µs | ring | aws-lc-rs | ring / aws-lc-rs |");
    println!("| --- | --- | ---: | ---: | ---: |");
    for version in [&version::TLS13, &version::TLS12] {
        let providers = [
            Peers::new(ring::default_provider(), version)?,
            Peers::new(aws_lc_rs::default_provider(), version)?,
        ];
        let measures: [(&str, fn(&Peers) -> Outcome<f64>); 3] = [
            ("handshake, ECDSA P-256", Peers::handshake),
            ("80 bytes in and out", |peers| peers.exchange(SMALL)),
            ("16 KiB in and out", |peers| peers.exchange(LARGE)),
        ];
        for (name, measure) in measures {
            let mut figures = [Vec::new(), Vec::new()];
            let mut ratios = Vec::new();
            for _ in 0..REPETITIONS {
                let (ring, aws) = (measure(&providers[0])?, measure(&providers[1])?);
                figures[0].push(ring);
                figures[1].push(aws);
                ratios.push(ring / aws);
            }
            let [ring, aws] = figures;
            let name_of = if version.version == ProtocolVersion::TLSv1_3 { "1.3" } else { "1.2" };
            println!("| {name_of} | {name} | {} | {} | {} |", cell(ring), cell(aws), cell(ratios));
        }
    }
    Ok(())
}
