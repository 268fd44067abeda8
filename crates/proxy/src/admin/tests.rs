//! The admin interface of a proxy whose server is away: requests, listeners, orders, bounds.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::config_file::ConfigFile;
use crate::{Running, StartError};

const TOKEN: &str = "a-token-of-the-test-1";

/// A proxy with an admin interface on a free port; its server is nobody.
struct Admin {
    running: Running,
    _directory: tempfile::TempDir,
}

fn try_start(address: &str, lines: &str) -> Result<Admin, StartError> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("token"), TOKEN).unwrap();
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin_listen = \"{address}\"\n{lines}\n\
         [databases.\"*\"]\nupstream = \"postgres://127.0.0.1:1\"\nmax_mpl = 50\n"
    );
    let path = directory.path().join("tidegate.toml");
    std::fs::write(&path, text).unwrap();
    let config = ConfigFile::read(Path::new(&path)).unwrap().into_config().unwrap();
    Ok(Admin { running: crate::start(config)?, _directory: directory })
}

fn admin_with(lines: &str) -> Admin {
    try_start("127.0.0.1:0", lines).unwrap()
}

fn admin() -> Admin {
    admin_with("")
}

impl Admin {
    fn address(&self) -> SocketAddr {
        self.running.admin_address().unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends `request` and returns all that comes back until the connection is closed.
    fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(&self, path: &str) -> (String, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
        let answer = self.ask(request.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let length = format!("Content-Length: {}\r\n", body.len());
        assert!(head.contains(&length), "{head}");
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.get("/status.json").1).unwrap()
    }

    fn order(&self, headers: &str, body: &str) -> String {
        let len = body.len();
        let request = format!(
            "POST /orders HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len}\r\n\r\n\
             {body}"
        );
        self.ask(request.as_bytes())
    }

    /// Waits until the document says so.
    fn eventually(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        for _ in 0..200 {
            if holds(&self.status()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("never: {what}: {}", self.status());
    }
}

const BEARER: &str =
    "Authorization: Bearer a-token-of-the-test-1\r\nContent-Type: application/json\r\n";

#[test]
fn metrics_and_health_are_served() {
    let admin = admin();
    let (status, body) = admin.get("/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(body.contains("\ntidegate_clients 0\n"), "{body}");
    assert_eq!(admin.get("/metrics?name[]=x").0, "HTTP/1.1 200 OK");
    assert_eq!(admin.get("/healthz"), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
    assert_eq!(admin.get("/nothing").0, "HTTP/1.1 404 Not Found");
    assert_eq!(admin.get("/readyz"), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
    admin.running.begin_drain();
    let (status, why) = admin.get("/readyz?exclude=servers");
    assert!(status.contains(" 503 ") && why.starts_with("draining"), "{status} {why}");
    assert_eq!(admin.get("/healthz").1, "ok\n", "it still serves");
    assert_eq!(admin.status()["state"], "draining");
    admin.running.metrics.begin_shutdown();
    assert_eq!(admin.get("/readyz").1, "shutting down\n");
    let down = ("HTTP/1.1 503 Service Unavailable".into(), "shutting down\n".into());
    assert_eq!(admin.get("/healthz"), down);
    assert_eq!(admin.get("/metrics").0, "HTTP/1.1 200 OK");
    assert_eq!(admin.status()["state"], "shutting_down");
}

#[test]
fn a_thread_that_panics_is_reported() {
    let admin = admin();
    let health = admin.running.metrics.health();
    health.supervise("event loop 0", || -> io::Result<()> { panic!("no slot 7") });
    let (status, body) = admin.get("/healthz");
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(body.starts_with("event loop 0 has failed: no slot 7; "), "{body}");
    assert_eq!(admin.status()["state"], "failed");
}

#[test]
fn what_is_no_request_is_refused() {
    let admin = admin();
    let post = admin.ask(b"POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi");
    assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("\r\nAllow: GET\r\n"), "{post}");
    assert!(admin.ask(b"\x00\x00\x00\x08\x04\xd2\x16\x2f").starts_with("HTTP/1.1 400 "));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(http::HEADERS_MAX + 1));
    assert!(admin.ask(many.as_bytes()).starts_with("HTTP/1.1 400 "));
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(4 * http::REQUEST_LEN_MAX));
    assert!(admin.ask(long.as_bytes()).starts_with("HTTP/1.1 431 "));
    let body = b"POST /orders HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n";
    assert!(admin.ask(body).starts_with("HTTP/1.1 413 "));
    let chunked = b"POST /orders HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert!(admin.ask(chunked).starts_with("HTTP/1.1 411 "));
    assert_eq!(admin.get("/healthz").1, "ok\n");
}

#[test]
fn silent_clients_do_not_keep_others_away() {
    let admin = admin();
    let mut silent: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX).map(|_| admin.connect()).collect();
    for stream in &mut silent {
        // Some have been closed to make room.
        let _ = stream.write_all(b"GET /metr");
    }
    assert_eq!(admin.get("/healthz").1, "ok\n");
    let mut rest = Vec::new();
    let _ = silent.pop().unwrap().read_to_end(&mut rest);
    assert_eq!(rest, b"");
}

#[test]
fn dropping_it_frees_the_port() {
    let first = admin();
    let address = first.address().to_string();
    let taken = try_start(&address, "").err().unwrap().to_string();
    assert!(taken.contains(&format!("admin interface on {address}")), "{taken}");
    drop(first);
    let again = try_start(&address, "").unwrap();
    assert_eq!(again.get("/healthz").1, "ok\n");
}

#[test]
fn the_page_needs_nothing_else_and_is_shown_under_a_strict_policy() {
    let admin = admin();
    let answer = admin.ask(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n");
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    let policy = head.lines().find(|line| line.starts_with("Content-Security-Policy: ")).unwrap();
    assert!(policy.contains("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    for header in ["X-Content-Type-Options: nosniff", "Cache-Control: no-store"] {
        assert!(head.contains(header), "{head}");
    }
    assert!(!head.to_ascii_lowercase().contains("access-control"), "no other site may read");
    let count = |what: &str| page.matches(what).count();
    assert_eq!([count("<script"), count("<style"), count("<link")], [1, 1, 1]);
    assert_eq!([count("style=\""), count("innerHTML"), count("http://www.w3.org")], [0, 0, 1]);
    let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!elsewhere.contains("http:") && !elsewhere.contains("https:"));
    assert!(!elsewhere.contains("@import") && !elsewhere.contains("url("));
    let handler = |name: &str| page.contains(&format!(" {name}=\""));
    assert!(!["onclick", "onload", "oninput", "onerror"].into_iter().any(handler));
}

#[test]
fn other_sites_cannot_look() {
    let admin = admin();
    for path in ["/", "/status.json", "/events"] {
        let evil = format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        assert!(admin.ask(evil.as_bytes()).starts_with("HTTP/1.1 403 "), "{path}");
        let cross =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n");
        assert!(admin.ask(cross.as_bytes()).starts_with("HTTP/1.1 403 "), "{path}");
    }
    let scrape = b"GET /metrics HTTP/1.1\r\nHost: tidegate.monitored.example\r\n\r\n";
    assert!(admin.ask(scrape).starts_with("HTTP/1.1 200 "));
}

#[test]
fn the_document_names_the_server() {
    let admin = admin();
    let status = admin.status();
    assert_eq!(status["version"], crate::status::STATUS_VERSION);
    assert_eq!(status["is_complete"], true);
    let server = &status["servers"][0];
    assert_eq!(server["server"], "127.0.0.1:1");
    assert_eq!(server["databases"], serde_json::json!(["*"]));
    assert_eq!(server["control"]["order"], "configured");
    assert_eq!(server["limit_max"], 50);
    assert_eq!(status["missing_event_loops"], 0);
}

/// The events of a listener, read one by one.
struct Listener(BufReader<TcpStream>);

impl Listener {
    fn new(admin: &Admin) -> Listener {
        let mut stream = admin.connect();
        stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut listener = Listener(BufReader::new(stream));
        assert_eq!(listener.line(), "HTTP/1.1 200 OK");
        while !listener.line().is_empty() {}
        assert_eq!((listener.line(), listener.line()), ("retry: 2000".into(), String::new()));
        listener
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end_matches(['\r', '\n']).to_owned()
    }

    fn event(&mut self) -> (String, Value) {
        let (event, data) = (self.line(), self.line());
        assert_eq!(self.line(), "");
        let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        (event.strip_prefix("event: ").unwrap().to_owned(), data)
    }
}

#[test]
fn a_listener_gets_the_whole_and_then_what_is_new() {
    let admin = admin();
    let mut listener = Listener::new(&admin);
    let (event, first) = listener.event();
    assert_eq!((&*event, &first["is_complete"]), ("status", &Value::Bool(true)));
    let mut last_ms = 0;
    for _ in 0..3 {
        let (event, data) = listener.event();
        assert_eq!((&*event, &data["is_complete"]), ("update", &Value::Bool(false)));
        for second in data["servers"][0]["history"].as_array().unwrap() {
            let at_ms = second["at_ms"].as_u64().unwrap();
            assert!(at_ms > last_ms, "no second comes twice");
            last_ms = at_ms;
        }
    }
    assert!(last_ms > 0, "a second without transactions is told too");
}

#[test]
fn listeners_are_bounded_and_those_that_do_not_read_disturb_nobody() {
    let admin = admin();
    // They take the first bytes and no more.
    let deaf: Vec<Listener> = (0..LISTENERS_MAX - 1).map(|_| Listener::new(&admin)).collect();
    let mut last = Listener::new(&admin);
    let refused = admin.ask(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("Retry-After: "));
    for _ in 0..3 {
        last.event();
    }
    assert_eq!(admin.get("/healthz").1, "ok\n");
    drop(deaf);
    last.event();
    last.event();
    Listener::new(&admin).event();
}

#[test]
fn without_a_token_no_order_is_taken() {
    let admin = admin();
    assert_eq!(admin.status()["takes_orders"], false);
    let refused = admin.order(BEARER, "{\"order\":\"pause\"}");
    assert!(refused.starts_with("HTTP/1.1 403 ") && refused.contains("admin_token_file"));
    assert_eq!(admin.status()["hold"], "none");
}

#[test]
fn orders_with_the_token_are_obeyed_and_others_refused() {
    let admin = admin_with("admin_token_file = \"token\"");
    assert_eq!(admin.status()["takes_orders"], true);
    let pin = r#"{"order":"pin","server":"127.0.0.1:1","limit":7}"#;
    let json = "Content-Type: application/json\r\n";
    let refusals = [
        (json.to_owned(), 401),
        (BEARER.replace("test-1", "test-2"), 401),
        ("Authorization: Bearer a-token-of-the-test-1\r\n".to_owned(), 415),
        (format!("{BEARER}Origin: http://evil.example\r\n"), 403),
    ];
    for (headers, code) in refusals {
        let refused = admin.order(&headers, pin);
        assert!(refused.starts_with(&format!("HTTP/1.1 {code} ")), "{headers}: {refused}");
    }
    let far = r#"{"order":"pin","server":"127.0.0.1:1","limit":51}"#;
    let refused = admin.order(BEARER, far);
    assert!(refused.starts_with("HTTP/1.1 409 ") && refused.contains("from 1 to 50"), "{refused}");
    assert!(admin.order(BEARER, &pin.replace(":1\"", ":2\"")).contains("no such server"));

    assert!(admin.order(BEARER, pin).starts_with("HTTP/1.1 200 "));
    let server = |status: &Value| status["servers"][0].clone();
    admin.eventually("pinned", |status| server(status)["limit"] == 7);
    assert_eq!(server(&admin.status())["control"]["in_force"], "fixed:7");
    assert_eq!(server(&admin.status())["control"]["order"], "pinned");
    let order = |order: &str| {
        let body = format!("{{\"order\":\"{order}\",\"server\":\"127.0.0.1:1\"}}");
        assert!(admin.order(BEARER, &body).starts_with("HTTP/1.1 200 "));
    };
    order("observe");
    admin.eventually("open", |status| server(status)["limit"] == 50);
    order("control");
    admin.eventually("controlled", |status| server(status)["control"]["order"] == "configured");
    assert!(admin.order(BEARER, r#"{"order":"pause"}"#).starts_with("HTTP/1.1 200 "));
    admin.eventually("paused", |status| status["hold"] == "paused");
    assert!(admin.order(BEARER, r#"{"order":"pause"}"#).starts_with("HTTP/1.1 409 "));
    assert!(admin.order(BEARER, r#"{"order":"resume"}"#).starts_with("HTTP/1.1 200 "));
    admin.eventually("resumed", |status| status["hold"] == "none");
}

#[test]
fn a_token_that_can_be_guessed_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("short");
    std::fs::write(&path, "short").unwrap();
    let line = format!("admin_token_file = {path:?}");
    let refused = try_start("127.0.0.1:0", &line).err().unwrap().to_string();
    assert!(refused.contains("fewer than 16 characters"), "{refused}");
}

proptest! {
    #[test]
    fn garbage_never_panics(
        bytes: Vec<u8>,
        text in "(GET|P) /[ -~]{0,9} HTTP/1[.]1(\r\n[ -~]{0,9}){0,4}",
    ) {
        let _ = http::parse(&bytes);
        let _ = http::parse(text.as_bytes());
    }
}
