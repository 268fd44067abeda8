//! `tidegate probe`.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;

use crate::{Failure, print};

/// How long each of connecting, asking and answering may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest answer that is read, bytes.
const ANSWER_MAX: u64 = 64 * 1024;

/// Ask a proxy whether it is healthy
///
/// Prints the answer of a page on the admin listener. The exit code is 0 if the answer is 200 OK,
/// and 1 if it is another or there is none. For checks of containers, which have no HTTP client.
#[derive(Debug, Args)]
pub(crate) struct ProbeArguments {
    /// The admin listener
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:9432")]
    address: SocketAddr,

    /// The page
    #[arg(value_name = "PATH", default_value = "/healthz")]
    path: String,
}

/// Why a proxy is not healthy.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("no answer from http://{address}{path}: {source}")]
    Silent { address: SocketAddr, path: String, source: io::Error },
    #[error("{status}: {body}")]
    Unhealthy { status: String, body: String },
}

/// Asks, and prints the answer.
pub(crate) fn run(arguments: &ProbeArguments) -> Result<(), Failure> {
    let ProbeArguments { address, path } = arguments;
    let silent = |source| {
        Failure::failed(ProbeError::Silent { address: *address, path: path.clone(), source })
    };
    let answer = ask(*address, path).map_err(silent)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") {
        return print(body);
    }
    let (status, body) = (status.to_owned(), body.trim_end().to_owned());
    Err(Failure::failed(ProbeError::Unhealthy { status, body }))
}

fn ask(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
