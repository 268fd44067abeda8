//! Whose requests are answered.
//!
//! **The name of the host.** A page of another site may have its own name lead to this address
//! (DNS rebinding), and its script would then read from here as from its own site. So the page, the
//! documents and orders are given only to who asks for an address, `localhost`, this machine's
//! name or a name in `admin_hosts`. `/metrics` and the checks of health have no such rule: they
//! are asked for by programs, under any name.
//!
//! **The origin.** A request that a browser makes for a page of another site is refused.
//!
//! **The token.** Orders need it in the header `Authorization: Bearer`, which no page of another
//! site can send. There are no cookies.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use ctutils::CtEq;
use sha2::{Digest, Sha256};

use super::AdminError;
use super::http::{Request, Response};
use crate::reloaded::Reloaded;

/// A shorter token could be guessed.
const TOKEN_LEN_MIN: usize = 16;

/// The token for orders, as its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminToken([u8; 32]);

impl AdminToken {
    /// Reads the file with the token; white space around it does not count.
    ///
    /// # Errors
    /// It cannot be read, or the token is too short.
    pub(crate) fn load(path: &Path) -> Result<AdminToken, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let token = text.trim();
        if token.len() < TOKEN_LEN_MIN {
            return Err(format!("the token has fewer than {TOKEN_LEN_MIN} characters"));
        }
        Ok(AdminToken::of(token))
    }

    /// Reads the file with the token, and again whenever it changes.
    ///
    /// # Errors
    /// It cannot be read, or the token is too short.
    pub(crate) fn watched(path: &Path) -> Result<Arc<Reloaded<AdminToken>>, AdminError> {
        let owned = path.to_owned();
        let load = move |_: Option<&AdminToken>| AdminToken::load(&owned);
        let token = Reloaded::new("the admin token", vec![path.to_owned()], load);
        token.map(Arc::new).map_err(|reason| AdminError::Token { path: path.to_owned(), reason })
    }

    fn of(token: &str) -> AdminToken {
        AdminToken(Sha256::digest(token.as_bytes()).into())
    }

    /// Returns whether this is the token. How long that takes says nothing of it.
    fn is(&self, token: &str) -> bool {
        self.0.ct_eq(&AdminToken::of(token).0).to_bool()
    }
}

/// Returns the host in `host[:port]`, without the brackets of an IPv6 address.
fn host_name(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split_once(']').map_or(rest, |(host, _)| host);
    }
    authority.split_once(':').map_or(authority, |(host, _)| host)
}

/// The names under which browsers may ask.
#[derive(Clone, Debug)]
pub(super) struct HostNames(Vec<String>);

impl HostNames {
    /// Those that are configured, and this machine's.
    pub(super) fn new(configured: &[String]) -> HostNames {
        let uname = rustix::system::uname();
        let own = uname.nodename().to_string_lossy().into_owned();
        let names = configured.iter().cloned().chain([own]);
        HostNames(names.map(|name| name.to_ascii_lowercase()).collect())
    }

    fn admit(&self, authority: &str) -> bool {
        let host = host_name(authority).trim_end_matches('.').to_ascii_lowercase();
        let is_local = host == "localhost" || host.ends_with(".localhost");
        is_local || host.parse::<IpAddr>().is_ok() || self.0.contains(&host)
    }

    /// Returns why a request is refused that a browser may have made for another site.
    pub(super) fn refusal(&self, request: &Request) -> Option<Response> {
        let refused = |message: &str| Some(Response::error(403, "Forbidden", message));
        if let Some(host) = &request.host
            && !self.admit(host)
        {
            return refused("this host name is not known here; add it to admin_hosts\n");
        }
        let is_cross_site = request
            .fetch_site
            .as_deref()
            .is_some_and(|site| !["same-origin", "none"].contains(&site));
        let has_other_origin = request.origin.as_deref().is_some_and(|origin| {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            authority.is_none() || authority != request.host.as_deref()
        });
        if is_cross_site || has_other_origin {
            return refused("requests from other sites are refused\n");
        }
        None
    }
}

/// Returns why an order is refused: there is no token, or it is not this one.
pub(super) fn order_refusal(token: Option<&AdminToken>, request: &Request) -> Option<Response> {
    let Some(token) = token else {
        let message = "orders need a token: set admin_token_file\n";
        return Some(Response::error(403, "Forbidden", message));
    };
    let given = request.authorization.as_deref().and_then(|text| text.split_once(' '));
    let is_right = given.is_some_and(|(scheme, given)| {
        scheme.eq_ignore_ascii_case("bearer") && token.is(given.trim())
    });
    if is_right {
        return None;
    }
    let refusal = Response::error(401, "Unauthorized", "the token is missing or wrong\n");
    Some(refusal.header("WWW-Authenticate", "Bearer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(host: &str) -> Request {
        Request { host: Some(host.to_owned()), ..Request::default() }
    }

    #[test]
    fn names_that_other_sites_can_make_lead_here_are_refused() {
        let names = HostNames::new(&["Tide.Example".to_owned()]);
        let admitted = [
            "127.0.0.1:9432",
            "[::1]:9432",
            "10.1.2.3",
            "localhost:9432",
            "a.localhost",
            "tide.example:9432",
            "TIDE.example.",
        ];
        for host in admitted {
            assert_eq!(names.refusal(&request(host)), None, "{host}");
        }
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert_eq!(names.refusal(&request(&own)), None);
        let refused =
            ["evil.example", "127.0.0.1.evil.example:9432", "", "localhost.evil", "x@::1"];
        for host in refused {
            assert!(names.refusal(&request(host)).is_some(), "{host}");
        }
        assert_eq!(names.refusal(&Request::default()), None, "no browser leaves it out");
    }

    #[test]
    fn requests_for_other_sites_are_refused() {
        let names = HostNames::new(&[]);
        let from = |origin: Option<&str>, site: Option<&str>| {
            let (origin, fetch_site) = (origin.map(str::to_owned), site.map(str::to_owned));
            names.refusal(&Request { origin, fetch_site, ..request("127.0.0.1:9") }).is_none()
        };
        assert!(from(None, None) && from(Some("http://127.0.0.1:9"), Some("same-origin")));
        assert!(from(None, Some("none")), "an address that was typed");
        assert!(!from(Some("http://127.0.0.1:8"), None), "another port is another site");
        assert!(!from(Some("null"), None) && !from(Some("http://evil.example"), None));
        assert!(!from(None, Some("cross-site")) && !from(None, Some("same-site")));
    }

    #[test]
    fn an_order_needs_the_token() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "too short\n").unwrap();
        assert!(AdminToken::load(&path).unwrap_err().contains("fewer than 16"));
        std::fs::write(&path, " 0123456789abcdef\n").unwrap();
        let token = AdminToken::load(&path).unwrap();
        let refusal = |authorization: Option<&str>| {
            let authorization = authorization.map(str::to_owned);
            order_refusal(Some(&token), &Request { authorization, ..Request::default() })
        };
        assert_eq!(refusal(Some("Bearer 0123456789abcdef")), None);
        assert_eq!(refusal(Some("bearer  0123456789abcdef")), None);
        for wrong in ["Bearer 0123456789abcde", "Basic 0123456789abcdef", "0123456789abcdef", ""] {
            assert!(refusal(Some(wrong)).is_some(), "{wrong}");
        }
        assert!(refusal(None).is_some());
        assert!(order_refusal(None, &Request::default()).is_some(), "none is configured");
        assert!(!format!("{token:?}").contains("0123456789abcdef"));
    }
}
