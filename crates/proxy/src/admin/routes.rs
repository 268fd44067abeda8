//! Which request gets what.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use super::access::{self, HostNames};
use super::http::{Request, Response};
use super::orders;
use crate::metrics::MetricsSource;
use crate::shared::InForce;

/// The page, which needs nothing else.
const PAGE: &str = include_str!("page.html");

/// What can be asked for.
const KNOWN_PATHS: &str = "there are /, /status.json, /events, /metrics, /healthz and /readyz\n";

/// What becomes of a request.
pub(super) enum Answer {
    /// It is answered.
    Now(Response),
    /// It is answered with the next document.
    Status,
    /// Events follow until the client leaves.
    Events,
}

/// Who answers.
pub(super) struct Routes {
    in_force: Arc<InForce>,
    metrics: Arc<MetricsSource>,
    page_policy: String,
}

impl Routes {
    pub(super) fn new(in_force: Arc<InForce>, metrics: Arc<MetricsSource>) -> Routes {
        Routes { in_force, metrics, page_policy: content_policy(PAGE) }
    }

    /// Returns why a request is refused that a browser may have made for another site.
    fn refusal(&self, request: &Request) -> Option<Response> {
        HostNames::new(&self.in_force.get().config.admin_hosts).refusal(request)
    }

    /// Returns what becomes of a request; events only if there may be another listener.
    pub(super) fn answer(&self, request: &Request, may_listen: bool) -> Answer {
        let is_get = request.method == "GET";
        match &*request.path {
            "/metrics" if is_get => {
                let content_type = "text/plain; version=0.0.4; charset=utf-8";
                Answer::Now(Response::with_type(content_type, self.metrics.page()))
            }
            "/healthz" if is_get => Answer::Now(self.health()),
            "/readyz" if is_get => Answer::Now(self.readiness(&request.query)),
            "/" | "/status.json" | "/events" if is_get => match self.refusal(request) {
                Some(refusal) => Answer::Now(refusal),
                None => self.look(&request.path, may_listen),
            },
            "/orders" if request.method == "POST" => Answer::Now(self.order(request)),
            _ if is_get => Answer::Now(Response::error(404, "Not Found", KNOWN_PATHS)),
            _ => {
                let refusal =
                    Response::error(405, "Method Not Allowed", "only GET is served here\n");
                Answer::Now(refusal.header("Allow", "GET"))
            }
        }
    }

    fn look(&self, path: &str, may_listen: bool) -> Answer {
        match path {
            "/status.json" => Answer::Status,
            "/events" if may_listen => Answer::Events,
            "/events" => {
                let message = "there are too many listeners; try again later\n";
                let refusal = Response::error(503, "Service Unavailable", message);
                Answer::Now(refusal.header("Retry-After", "10"))
            }
            _ => {
                let page = Response::with_type("text/html; charset=utf-8", PAGE.to_owned());
                Answer::Now(page.header("Content-Security-Policy", &self.page_policy))
            }
        }
    }

    fn health(&self) -> Response {
        let unavailable = |message| Response::error(503, "Service Unavailable", message);
        match self.metrics.health().failure() {
            Some(failure) => unavailable(&format!("{failure}\n")),
            None if self.metrics.is_shutting_down() => unavailable("shutting down\n"),
            None => Response::ok("ok\n".into()),
        }
    }

    /// Returns whether new clients may come. `exclude=servers` leaves servers out of it, for a
    /// proxy whose other databases are to stay in use while one is away.
    fn readiness(&self, query: &str) -> Response {
        let is_without_servers = query.split('&').any(|it| it == "exclude=servers");
        let reasons = self.metrics.reasons_not_ready(is_without_servers);
        if reasons.is_empty() {
            return Response::ok("ok\n".into());
        }
        Response::error(503, "Service Unavailable", &format!("{}\n", reasons.join("\n")))
    }

    fn order(&self, request: &Request) -> Response {
        let shared = self.in_force.get();
        let token = shared.admin_token.as_ref().map(|token| token.get());
        let refusal = self.refusal(request);
        let refusal = refusal.or_else(|| access::order_refusal(token.as_deref(), request));
        refusal.unwrap_or_else(|| orders::obey(&shared, request))
    }
}

/// Returns the policy under which a browser shows the page: its own style and script, named by
/// their hashes, requests to where it comes from, and nothing else.
fn content_policy(page: &str) -> String {
    let hash = |element: &str| {
        let begin = page.split_once(&format!("<{element}>")).map_or("", |(_, rest)| rest);
        let text = begin.split_once(&format!("</{element}>")).map_or("", |(text, _)| text);
        BASE64_STANDARD.encode(Sha256::digest(text.as_bytes()))
    };
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash("script"),
        hash("style"),
    )
}
