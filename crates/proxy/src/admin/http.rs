//! Requests and responses of HTTP/1.1 as bytes.

use std::fmt::Write;

/// Longest request, bytes, headers included.
pub(super) const REQUEST_LEN_MAX: usize = 8 * 1024;

/// Longest body of a request, bytes.
const BODY_LEN_MAX: usize = 4 * 1024;

/// Most header lines in a request.
pub(super) const HEADERS_MAX: usize = 64;

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without a query.
    pub(super) path: String,
    /// What follows the question mark.
    pub(super) query: String,
    /// The headers that count here, if they are there and text.
    pub(super) host: Option<String>,
    pub(super) origin: Option<String>,
    pub(super) fetch_site: Option<String>,
    pub(super) authorization: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) body: Vec<u8>,
}

/// Returns the request in `buffer`, or why there is none; `None` while it is incomplete.
pub(super) fn parse(buffer: &[u8]) -> Option<Result<Request, Response>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let head_len = match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if buffer.len() < REQUEST_LEN_MAX => return None,
        Ok(httparse::Status::Partial) => {
            let phrase = "Request Header Fields Too Large";
            return Some(Err(Response::error(431, phrase, "the request is too long\n")));
        }
        Err(_) => return Some(Err(bad_request())),
    };
    let (Some(method), Some(path)) = (parsed.method, parsed.path) else {
        return Some(Err(bad_request()));
    };
    let header = |name: &str| {
        let of_name = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
        let header = parsed.headers.iter().find(of_name)?;
        std::str::from_utf8(header.value).ok().map(|value| value.trim().to_owned())
    };
    let body_len = match header("content-length").map(|len| len.parse::<usize>()) {
        None => 0,
        Some(Ok(len)) if len <= BODY_LEN_MAX => len,
        Some(Ok(_)) => {
            let response = Response::error(413, "Content Too Large", "the body is too long\n");
            return Some(Err(response));
        }
        Some(Err(_)) => return Some(Err(bad_request())),
    };
    if header("transfer-encoding").is_some() {
        return Some(Err(Response::error(411, "Length Required", "a length is required\n")));
    }
    let body = buffer[head_len..].get(..body_len)?.to_vec();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    Some(Ok(Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        host: header("host"),
        origin: header("origin"),
        fetch_site: header("sec-fetch-site"),
        authorization: header("authorization"),
        content_type: header("content-type"),
        body,
    }))
}

fn bad_request() -> Response {
    Response::error(400, "Bad Request", "this is no HTTP/1.1 request\n")
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    status: u16,
    phrase: &'static str,
    content_type: &'static str,
    /// Header lines of its own, each with its end.
    headers: String,
    body: String,
}

impl Response {
    /// Text that was asked for.
    pub(super) fn ok(body: String) -> Response {
        Response::with_type("text/plain; charset=utf-8", body)
    }

    /// What was asked for, of this type.
    pub(super) fn with_type(content_type: &'static str, body: String) -> Response {
        Response { status: 200, phrase: "OK", content_type, headers: String::new(), body }
    }

    /// A refusal or a failure, with its reason.
    pub(super) fn error(status: u16, phrase: &'static str, body: &str) -> Response {
        Response { status, phrase, ..Response::ok(body.to_owned()) }
    }

    /// Adds a header line.
    pub(super) fn header(mut self, name: &str, value: &str) -> Response {
        let _ = write!(self.headers, "{name}: {value}\r\n");
        self
    }

    /// Returns the bytes on the wire.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Response { status, phrase, content_type, headers, body } = self;
        let len = body.len();
        format!(
            "HTTP/1.1 {status} {phrase}\r\nContent-Type: {content_type}\r\n\
             Content-Length: {len}\r\n{headers}{COMMON_HEADERS}\r\n{body}"
        )
        .into_bytes()
    }
}

/// Header lines of every response: no other site may use it, and nothing keeps it.
const COMMON_HEADERS: &str = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
     Cross-Origin-Resource-Policy: same-origin\r\nReferrer-Policy: no-referrer\r\n\
     Connection: close\r\n";

/// Returns the head of a stream of events.
pub(super) fn events_head() -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{COMMON_HEADERS}\r\nretry: 2000\n\n"
    )
    .into_bytes()
}

/// Returns an event; `data` has no line ends.
pub(super) fn event(name: &str, data: &str) -> Vec<u8> {
    debug_assert!(!data.contains('\n'), "an event's data is one line");
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}
