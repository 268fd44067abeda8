//! `tidegate top`.

mod canvas;
mod frame;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal, Read, Write, stdout};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use clap::Args;
use tidegate_proxy::status::{STATUS_VERSION, Status};

use crate::{Failure, interrupt, print};
use frame::{View, frame};
use terminal::{Key, Terminal};

/// Time between two documents.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time for one document.
const FETCH_TIME: Duration = Duration::from_secs(5);

/// Longest document, bytes.
const DOCUMENT_LEN_MAX: u64 = 16 * 1024 * 1024;

/// The size of a frame where there is no terminal to ask.
const SIZE: (u16, u16) = (80, 24);

const EXAMPLES: &str = "\
Keys:
  q, Ctrl-C   leave
  Tab         the next server
  Space       hold still";

/// Show a running proxy in the terminal
///
/// Shows the limit and why it is what it is, throughput at each limit as measured and expected, the
/// last minutes, who holds permits, and the last decisions. The proxy needs an `admin_listen`
/// address. The same is on the page at that address; docs/status.md describes the document.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArguments {
    /// Address of the proxy's admin interface: HOST:PORT
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:9432")]
    address: String,

    /// Print one frame and end. COLUMNS and LINES give its size without a terminal
    #[arg(long)]
    once: bool,
}

/// Why no document is there.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("cannot reach the proxy at {address}: {source}; is admin_listen set to this address?")]
    Reach { address: String, source: std::io::Error },
    #[error("{address} answers {answer:?}; is it the admin_listen address of a proxy?")]
    Refused { address: String, answer: String },
    #[error("cannot read the document of {address}: {reason}")]
    Document { address: String, reason: String },
}

/// Asks the proxy for the document.
fn fetch(address: &str) -> Result<Status, FetchError> {
    let text = request(address)
        .map_err(|source| FetchError::Reach { address: address.to_owned(), source })?;
    let refused = |answer: &str| FetchError::Refused {
        address: address.to_owned(),
        answer: answer.lines().next().unwrap_or_default().to_owned(),
    };
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| refused(&text))?;
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(refused(head));
    }
    let unreadable = |reason: String| FetchError::Document { address: address.to_owned(), reason };
    let status: Status =
        serde_json::from_str(body).map_err(|error| unreadable(error.to_string()))?;
    if status.version != STATUS_VERSION {
        let version = status.version;
        return Err(unreadable(format!("it has version {version}, and this is {STATUS_VERSION}")));
    }
    Ok(status)
}

fn request(address: &str) -> std::io::Result<String> {
    let mut found = Err(std::io::Error::other("the name has no address"));
    for address in address.to_socket_addrs()? {
        found = TcpStream::connect_timeout(&address, FETCH_TIME);
        if found.is_ok() {
            break;
        }
    }
    let mut stream = found?;
    stream.set_read_timeout(Some(FETCH_TIME))?;
    stream.set_write_timeout(Some(FETCH_TIME))?;
    // A name that the proxy does not know would be refused; it is not needed.
    stream.write_all(b"GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.take(DOCUMENT_LEN_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Shows the proxy until the user leaves.
pub(crate) fn run(arguments: &TopArguments) -> Result<(), Failure> {
    let first = fetch(&arguments.address).map_err(Failure::failed)?;
    if arguments.once {
        let is_coloured = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let (width, height) = terminal::size().unwrap_or_else(size_of_environment);
        let view = View { status: &first, server: 0, note: None };
        return print(&frame(&view, width, height).text(is_coloured));
    }
    if !stdout().is_terminal() {
        let message = "standard output is no terminal; --once prints one frame";
        return Err(Failure::Failed(message.into()));
    }
    watch(first, &fetched(arguments.address.clone())).map_err(Failure::failed)
}

fn size_of_environment() -> (u16, u16) {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    (number("COLUMNS").unwrap_or(SIZE.0), number("LINES").unwrap_or(SIZE.1))
}

/// Returns documents as they come, from a thread that asks for them.
fn fetched(address: String) -> Receiver<Result<Status, FetchError>> {
    let (to, documents) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        loop {
            let begun = Instant::now();
            if to.send(fetch(&address)).is_err() {
                return;
            }
            std::thread::sleep(INTERVAL.saturating_sub(begun.elapsed()));
        }
    });
    documents
}

fn watch(
    mut status: Status,
    documents: &Receiver<Result<Status, FetchError>>,
) -> std::io::Result<()> {
    let interrupted = interrupt::flag()?;
    let mut terminal = Terminal::open()?;
    let (mut server, mut is_still, mut note) = (0, false, None);
    let mut shown = None;
    while !interrupted.load(Ordering::Relaxed) {
        match documents.try_recv() {
            Ok(Ok(next)) if !is_still => (status, note) = (next, None),
            Ok(Ok(_)) | Err(TryRecvError::Empty) => {}
            Ok(Err(error)) => note = Some(error.to_string()),
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        let size = terminal::size().unwrap_or(SIZE);
        let state = (status.at_ms, server, size, is_still, note.clone());
        if shown.as_ref() != Some(&state) {
            let held = is_still.then(|| "holding still; Space goes on".to_owned());
            let view = View { status: &status, server, note: note.clone().or(held) };
            terminal.show(&frame(&view, size.0, size.1))?;
            shown = Some(state);
        }
        match terminal.key(Duration::from_millis(100))? {
            Some(Key::Leave) => break,
            Some(Key::Next) => server = (server + 1) % status.servers.len().max(1),
            Some(Key::Hold) => is_still = !is_still,
            None => {}
        }
    }
    Ok(())
}
