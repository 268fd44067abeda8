//! Connection URLs: `mysql://user[:password]@host[:port]/database[?socket=/path]`, and with
//! `isolation=read-committed` or another level where sessions are to have their own.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use thiserror::Error;

use crate::isolation::Isolation;
use crate::url::{Authority, decode};

const PORT: u16 = 3306;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A host name or address; the port follows in [`Url::port`].
    Tcp(String),
    /// The path of its socket.
    Unix(PathBuf),
}

/// Where to connect, as whom, to which database.
///
/// User, password, host, database and socket may be percent-encoded. `mariadb://` is understood as
/// well. With a socket, host and port do not matter. Displayed without the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// Who logs in.
    pub user: String,
    /// The password; empty when none is given.
    pub password: String,
    /// The server's place.
    pub host: Host,
    /// The TCP port.
    pub port: u16,
    /// The database; empty when none is to be used.
    pub database: String,
    /// The level of its sessions' transactions; the server's own when none is given.
    pub isolation: Option<Isolation>,
}

impl Url {
    /// The URL as text, with the password: for those that connect, never for people.
    #[must_use]
    pub fn with_password(&self) -> String {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let password = Some(&self.password).filter(|password| !password.is_empty());
        let password = password.map(|text| format!(":{}", encoded(text))).unwrap_or_default();
        let (host, socket) = match &self.host {
            Host::Tcp(host) if host.contains(':') => (format!("[{host}]"), None),
            Host::Tcp(host) => (host.clone(), None),
            Host::Unix(path) => {
                let path = encoded(&path.to_string_lossy());
                ("localhost".to_owned(), Some(format!("socket={path}")))
            }
        };
        let isolation = self.isolation.map(|level| format!("isolation={}", level.name()));
        let query: Vec<String> = socket.into_iter().chain(isolation).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!(
            "mysql://{}{password}@{host}:{}/{}{mark}{}",
            encoded(&self.user),
            self.port,
            encoded(&self.database),
            query.join("&")
        )
    }
}

/// A connection URL that cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "bad connection URL: {0}; expected mysql://user[:password]@host[:port]/database[?socket=/path]"
)]
pub struct UrlError(&'static str);

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = text
            .strip_prefix("mysql://")
            .or_else(|| text.strip_prefix("mariadb://"))
            .ok_or(UrlError("it does not begin with mysql://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let Authority { user, password, host, port } =
            Authority::read(authority, PORT).map_err(UrlError)?;
        let (socket, isolation) = parameters(query)?;
        let host = match socket {
            Some(path) => Host::Unix(path.into()),
            None if host.is_empty() => return Err(UrlError("there is no host")),
            None => Host::Tcp(host),
        };
        let database = decode(database).map_err(UrlError)?;
        let password = password.unwrap_or_default();
        Ok(Url { user, password, host, port, database, isolation })
    }
}

/// The values of `socket` and `isolation` in the URL's query.
fn parameters(query: &str) -> Result<(Option<String>, Option<Isolation>), UrlError> {
    let (mut socket, mut isolation) = (None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("socket", path)) if !path.is_empty() => {
                socket = Some(decode(path).map_err(UrlError)?);
            }
            Some(("isolation", name)) => {
                let level = Isolation::named(name).ok_or(UrlError("there is no such isolation"))?;
                isolation = Some(level);
            }
            _ => return Err(UrlError("socket and isolation are the only parameters understood")),
        }
    }
    Ok((socket, isolation))
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mysql://{}@", self.user)?;
        match &self.host {
            Host::Tcp(host) => write!(f, "{host}:{}/{}", self.port, self.database),
            Host::Unix(path) => {
                write!(f, "localhost/{}?socket={}", self.database, path.display())
            }
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn every_part_is_found() {
        let full = url("mysql://ann:p%40ss%3a@db.example:3307/shop");
        assert_eq!((full.user.as_str(), full.password.as_str()), ("ann", "p@ss:"));
        assert_eq!(full.host, Host::Tcp("db.example".into()));
        assert_eq!((full.port, full.database.as_str()), (3307, "shop"));

        let short = url("mariadb://bob@[::1]");
        assert_eq!(short.host, Host::Tcp("::1".into()));
        assert_eq!((short.port, short.database.as_str(), short.password.as_str()), (3306, "", ""));
    }

    #[test]
    fn a_socket_stands_in_the_query() {
        let socket = url("mysql://a@localhost/d?socket=/run/my%20sql.sock");
        assert_eq!(socket.host, Host::Unix("/run/my sql.sock".into()));
        assert_eq!(url("mysql://a@/d?socket=/s").host, Host::Unix("/s".into()));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, wrong) in [
            ("postgres://a@h/d", "mysql://"),
            ("mysql://h:1/d", "no user"),
            ("mysql://:p@h:1/d", "no user"),
            ("mysql://a@h:99999/d", "port"),
            ("mysql://a@:1/d", "no host"),
            ("mysql://a%ff@h/d", "UTF-8"),
            ("mysql://a%00b@h/d", "zero"),
            ("mysql://a@h/d?ssl=1", "only parameter"),
            ("mysql://a@h/d?socket=", "only parameter"),
            ("mysql://a@h/d?isolation=chaos", "no such isolation"),
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            let (reason, _) = error.split_once(';').unwrap();
            assert!(reason.contains(wrong), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for text in [
            "mysql://ann:p%40ss%3a%2f@db.example:3307/shop",
            "mysql://bob@[::1]/d?isolation=read-committed",
            "mysql://a@localhost/d?socket=/run/my%20sql.sock&isolation=serializable",
        ] {
            let url = url(text);
            assert!(url == url.with_password().parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        let url = url("mysql://ann:secret@h:1/d");
        assert_eq!(format!("{url} {url:?}").find("secret"), None);
    }
}
