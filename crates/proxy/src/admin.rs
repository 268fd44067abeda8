//! `/metrics`, `/healthz` and `/readyz` over HTTP/1.1.
//!
//! One thread serves one request a connection, one after the other: the client is a monitoring
//! system, every few seconds. A client has `REQUEST_TIME` for its whole exchange, so a silent
//! one delays the others by no more than that.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use thiserror::Error;
use tracing::{debug, warn};

use crate::metrics::MetricsSource;

/// Time for one exchange, from accept to close.
const REQUEST_TIME: Duration = Duration::from_secs(2);

/// Longest request, bytes, headers included.
const REQUEST_LEN_MAX: usize = 8 * 1024;

/// Most header lines in a request.
const HEADERS_MAX: usize = 64;

/// Pause after a failed accept, which is usually for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

const LISTENER: Token = Token(0);
const STOP: Token = Token(1);

/// The admin interface cannot start.
#[derive(Debug, Error)]
pub enum AdminError {
    /// The address cannot be listened on.
    #[error("cannot listen for the admin interface on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The thread or its poll cannot be made.
    #[error("cannot start the admin interface: {0}")]
    Start(#[from] io::Error),
}

/// A running admin interface; dropping it stops it and frees its port.
#[derive(Debug)]
pub struct AdminHandle {
    address: SocketAddr,
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

impl AdminHandle {
    /// Returns the address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        let woken = self.stop.wake();
        if let (Ok(()), Some(thread)) = (woken, self.thread.take())
            && thread.join().is_err()
        {
            warn!("the admin interface panicked");
        }
    }
}

/// Serves `source` on `address`; port 0 takes a free one.
///
/// # Errors
/// The address cannot be listened on, or the thread cannot be started.
pub fn start(address: SocketAddr, source: Arc<MetricsSource>) -> Result<AdminHandle, AdminError> {
    let listen_error = |source| AdminError::Listen { address, source };
    let mut listener = TcpListener::bind(address).map_err(listen_error)?;
    let local_address = listener.local_addr().map_err(listen_error)?;
    let poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let stop = Waker::new(poll.registry(), STOP)?;
    let thread = std::thread::Builder::new().name("tidegate-admin".into()).spawn(move || {
        let work = || serve(poll, &listener, &source);
        source.health().supervise("the admin interface", work);
    })?;
    Ok(AdminHandle { address: local_address, stop, thread: Some(thread) })
}

fn serve(mut poll: Poll, listener: &TcpListener, source: &MetricsSource) -> io::Result<()> {
    let mut events = Events::with_capacity(2);
    let mut pause = None;
    loop {
        if let Err(error) = poll.poll(&mut events, pause)
            && error.kind() != io::ErrorKind::Interrupted
        {
            return Err(error);
        }
        if events.iter().any(|event| event.token() == STOP) {
            return Ok(());
        }
        // A pending connection is announced once, so a failed accept has to be tried again.
        pause = accept_all(listener, source).err().map(|error| {
            warn!(%error, "the admin interface cannot accept a connection");
            ACCEPT_PAUSE
        });
    }
}

fn accept_all(listener: &TcpListener, source: &MetricsSource) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                if let Err(error) = exchange(stream.into(), source) {
                    debug!(%peer, %error, "admin request failed");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads one request, answers it and closes the connection.
fn exchange(mut stream: TcpStream, source: &MetricsSource) -> io::Result<()> {
    let deadline = Instant::now() + REQUEST_TIME;
    stream.set_nonblocking(false)?;
    let response = match read_request(&mut stream, deadline)? {
        Ok(request) => respond(&request, source),
        Err(refusal) => refusal,
    };
    stream.set_write_timeout(Some(time_left(deadline)?))?;
    stream.write_all(response.to_text().as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    // Closing with unread bytes would reset the connection and take the answer with it.
    while read_some(&mut stream, deadline, &mut [0; 1024])? > 0 {}
    Ok(())
}

struct Request {
    method: String,
    path: String,
}

/// Returns the request line once all headers are there, or why there is none.
fn read_request(
    stream: &mut TcpStream,
    deadline: Instant,
) -> io::Result<Result<Request, Response>> {
    let mut buffer = Vec::new();
    let mut chunk = [0; 1024];
    while buffer.len() < REQUEST_LEN_MAX {
        let len = read_some(stream, deadline, &mut chunk)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.extend_from_slice(&chunk[..len]);
        if let Some(outcome) = parse(&buffer) {
            return Ok(outcome);
        }
    }
    Ok(Err(Response::error(431, "Request Header Fields Too Large", "the request is too long\n")))
}

/// Returns the request in `buffer`; `None` while it is incomplete.
fn parse(buffer: &[u8]) -> Option<Result<Request, Response>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(buffer) {
        Ok(httparse::Status::Partial) => None,
        Ok(httparse::Status::Complete(_)) => Some(Ok(Request {
            method: request.method.expect("a complete request has a method").to_owned(),
            path: request.path.expect("a complete request has a path").to_owned(),
        })),
        Err(_) => Some(Err(Response::error(400, "Bad Request", "this is no HTTP/1.1 request\n"))),
    }
}

fn respond(request: &Request, source: &MetricsSource) -> Response {
    if request.method != "GET" {
        return Response::error(405, "Method Not Allowed", "only GET is served here\n");
    }
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    match path {
        "/metrics" => Response {
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            ..Response::ok(source.page())
        },
        "/healthz" => match source.health().failure() {
            Some(failure) => Response::error(503, "Service Unavailable", &format!("{failure}\n")),
            None if source.is_shutting_down() => {
                Response::error(503, "Service Unavailable", "shutting down\n")
            }
            None => Response::ok("ok\n".into()),
        },
        "/readyz" => readiness(source, query),
        _ => Response::error(404, "Not Found", "there are /metrics, /healthz and /readyz\n"),
    }
}

/// Returns whether new clients may come. `exclude=servers` leaves servers out of it, for a proxy
/// whose other databases are to stay in use while one is away.
fn readiness(source: &MetricsSource, query: &str) -> Response {
    let is_without_servers = query.split('&').any(|it| it == "exclude=servers");
    let reasons = source.reasons_not_ready(is_without_servers);
    if reasons.is_empty() {
        return Response::ok("ok\n".into());
    }
    Response::error(503, "Service Unavailable", &format!("{}\n", reasons.join("\n")))
}

struct Response {
    status: u16,
    phrase: &'static str,
    content_type: &'static str,
    body: String,
}

impl Response {
    fn ok(body: String) -> Response {
        Response { status: 200, phrase: "OK", content_type: "text/plain; charset=utf-8", body }
    }

    fn error(status: u16, phrase: &'static str, body: &str) -> Response {
        Response { status, phrase, ..Response::ok(body.to_owned()) }
    }

    fn to_text(&self) -> String {
        let Response { status, phrase, content_type, body } = self;
        let allow = if *status == 405 { "Allow: GET\r\n" } else { "" };
        format!(
            "HTTP/1.1 {status} {phrase}\r\nContent-Type: {content_type}\r\n\
             Content-Length: {}\r\n{allow}Connection: close\r\n\r\n{body}",
            body.len()
        )
    }
}

fn read_some(stream: &mut TcpStream, deadline: Instant, chunk: &mut [u8]) -> io::Result<usize> {
    stream.set_read_timeout(Some(time_left(deadline)?))?;
    stream.read(chunk)
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn admin() -> (AdminHandle, Arc<MetricsSource>) {
        let source = Arc::new(MetricsSource::new(Vec::new(), Vec::new()));
        (start("127.0.0.1:0".parse().unwrap(), Arc::clone(&source)).unwrap(), source)
    }

    /// Sends `request` and returns all that comes back until the connection is closed.
    fn ask(admin: &AdminHandle, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(admin.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(admin: &AdminHandle, path: &str) -> (String, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n");
        let answer = ask(admin, request.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let length = format!("Content-Length: {}\r\n", body.len());
        assert!(head.contains(&length), "{head}");
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    #[test]
    fn metrics_and_health_are_served() {
        let (admin, source) = admin();
        let (status, body) = get(&admin, "/metrics");
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(body.contains("\ntidegate_clients 0\n"), "{body}");
        assert_eq!(get(&admin, "/metrics?name[]=x").0, "HTTP/1.1 200 OK");
        assert_eq!(get(&admin, "/healthz"), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
        assert_eq!(get(&admin, "/readyz"), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
        source.begin_drain();
        let (status, why) = get(&admin, "/readyz");
        assert!(status.contains(" 503 ") && why.starts_with("draining"), "{status} {why}");
        assert_eq!(get(&admin, "/healthz").1, "ok\n", "it still serves");
        source.begin_shutdown();
        assert_eq!(get(&admin, "/readyz").1, "shutting down\n");
        let down = ("HTTP/1.1 503 Service Unavailable".into(), "shutting down\n".into());
        assert_eq!(get(&admin, "/healthz"), down);
        assert_eq!(get(&admin, "/metrics").0, "HTTP/1.1 200 OK");
        assert_eq!(get(&admin, "/nothing").0, "HTTP/1.1 404 Not Found");
    }

    #[test]
    fn a_thread_that_panics_is_reported() {
        let (admin, source) = admin();
        source.health().supervise("event loop 0", || -> io::Result<()> { panic!("no slot 7") });
        let (status, body) = get(&admin, "/healthz");
        assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
        assert!(body.starts_with("event loop 0 has failed: no slot 7; "), "{body}");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let (admin, _) = admin();
        let post = ask(&admin, b"POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi");
        assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("\r\nAllow: GET\r\n"), "{post}");
        assert!(ask(&admin, b"\x00\x00\x00\x08\x04\xd2\x16\x2f").starts_with("HTTP/1.1 400 "));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
        assert!(ask(&admin, many.as_bytes()).starts_with("HTTP/1.1 400 "));
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(4 * REQUEST_LEN_MAX));
        assert!(ask(&admin, long.as_bytes()).starts_with("HTTP/1.1 431 "));
        assert_eq!(get(&admin, "/healthz").1, "ok\n");
    }

    #[test]
    fn a_silent_client_does_not_keep_others_away() {
        let (admin, _) = admin();
        let mut silent = TcpStream::connect(admin.address()).unwrap();
        silent.write_all(b"GET /metr").unwrap();
        assert_eq!(get(&admin, "/healthz").1, "ok\n");
        let mut rest = Vec::new();
        silent.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    }

    #[test]
    fn dropping_it_frees_the_port() {
        let (admin, source) = admin();
        let address = admin.address();
        let taken = start(address, Arc::clone(&source)).unwrap_err().to_string();
        assert!(taken.contains(&format!("admin interface on {address}")), "{taken}");
        drop(admin);
        let again = start(address, source).unwrap();
        assert_eq!(get(&again, "/healthz").1, "ok\n");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(
            bytes: Vec<u8>,
            text in "(GET|P) /[ -~]{0,9} HTTP/1[.]1(\r\n[ -~]{0,9}){0,4}",
        ) {
            let _ = parse(&bytes);
            let _ = parse(text.as_bytes());
        }
    }
}
