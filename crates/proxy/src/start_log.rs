//! What the log says when the proxy has started: what it is, where it listens, how it is set up,
//! and whether the servers answer.
//!
//! Whether a server answers is asked without logging in, by a request for TLS, which every server
//! of PostgreSQL answers with one byte. Nothing waits for it: the proxy serves meanwhile, and its
//! clients wait for a server that is away as they always do.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use crate::Running;
use crate::config::{Database, ServerAddress};
use crate::control_thread::ControlledServer;
use crate::shared::Shared;

/// The request for TLS: its length and its code.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

impl Running {
    /// Logs what the proxy is and how it is set up, and then, from a thread of its own, whether its
    /// servers answer.
    pub fn log_start(&self) {
        let shared = self.in_force.get();
        let config = &shared.config;
        let listen: Vec<String> = self.local_addresses().iter().map(ToString::to_string).collect();
        let files = getrlimit(Resource::Nofile).current;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            process = std::process::id(),
            listen = listen.join(", "),
            admin = or_none(self.admin_address()),
            takes_orders = shared.admin_token.is_some(),
            auth = %config.authentication,
            client_tls = or_none(config.client_tls.as_ref().map(|tls| tls.mode)),
            event_loops = config.threads,
            file_descriptors = files.map_or_else(|| "unlimited".to_owned(), |it| it.to_string()),
            journal = or_none(config.journal.as_ref().map(|path| path.display())),
            "Tidegate serves"
        );
        for ControlledServer { name, server, control, samples, .. } in &shared.servers {
            let of_server = shared.entries.iter().filter(|it| Arc::ptr_eq(&it.server, server));
            let databases: Vec<&Database> = of_server.map(|entry| &entry.database).collect();
            let keys: Vec<&str> = databases.iter().map(|database| database.key()).collect();
            let bounds = control.setting.bounds;
            tracing::info!(
                server = name,
                databases = keys.join(", "),
                mode = or_none(databases.first().map(|database| database.mode)),
                control = %control.choice(),
                keep = or_none(control.keep),
                limit = server.gate.snapshot().limit.get(),
                min_mpl = bounds.min().get(),
                max_mpl = bounds.max().get(),
                is_watched = samples.is_some(),
                "the server's limit"
            );
        }
        let asked = std::thread::Builder::new().name("tidegate-start".into());
        if let Err(error) = asked.spawn(move || ask_servers(&shared)) {
            tracing::warn!(%error, "cannot ask the servers whether they answer");
        }
    }
}

fn or_none(value: Option<impl std::fmt::Display>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

/// Asks each host of each server, and logs whether it answers.
fn ask_servers(shared: &Shared) {
    let within = shared.config.timeouts.connect;
    for ControlledServer { name, server, .. } in &shared.servers {
        for host in &server.address.hosts {
            let begun = Instant::now();
            let host_name = host.to_string();
            match ask(host, within) {
                Ok(()) => {
                    let ms = begun.elapsed().as_secs_f64() * 1e3;
                    let within_ms = format_args!("{ms:.1}");
                    tracing::info!(
                        server = name,
                        host = host_name,
                        within_ms,
                        "the server answers"
                    );
                }
                Err(error) => tracing::warn!(
                    server = name,
                    host = host_name,
                    %error,
                    "the server does not answer; transactions wait for it up to \
                     timeouts.server_down"
                ),
            }
        }
    }
}

fn ask(host: &ServerAddress, within: Duration) -> io::Result<()> {
    match host {
        ServerAddress::Tcp(name, port) => {
            let mut found = Err(io::Error::other("the name has no address"));
            for address in (name.as_str(), *port).to_socket_addrs()? {
                found = TcpStream::connect_timeout(&address, within);
                if found.is_ok() {
                    break;
                }
            }
            let stream = found?;
            stream.set_read_timeout(Some(within))?;
            answer(stream)
        }
        ServerAddress::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(within))?;
            answer(stream)
        }
    }
}

fn answer(mut stream: impl Read + Write) -> io::Result<()> {
    stream.write_all(&SSL_REQUEST)?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    match byte[0] {
        b'S' | b'N' => Ok(()),
        // A server that starts or has no room says so by an error.
        b'E' => Err(io::Error::other("it answers with an error")),
        _ => Err(io::Error::other("what answers is no server of PostgreSQL")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_server_answers_and_others_do_not() {
        for (reply, is_server) in [(&b"N"[..], true), (b"S", true), (b"E", false), (b"H", false)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = [0; 8];
                stream.read_exact(&mut asked).unwrap();
                stream.write_all(reply).unwrap();
                asked
            });
            let host = ServerAddress::Tcp("127.0.0.1".into(), port);
            assert_eq!(ask(&host, Duration::from_secs(20)).is_ok(), is_server, "{reply:?}");
            assert_eq!(server.join().unwrap(), SSL_REQUEST);
        }
        let nobody = ServerAddress::Unix("/nonexistent/.s.PGSQL.1".into());
        assert!(ask(&nobody, Duration::from_secs(20)).is_err());
    }
}
