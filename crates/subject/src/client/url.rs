//! Connection URLs: `postgres://user[:password]@host:port/database[?host=/directory]`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use thiserror::Error;

use crate::url::{Authority, decode};

const PORT: u16 = 5432;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A host name or address; the port follows in [`Url::port`].
    Tcp(String),
    /// A directory that holds the socket `.s.PGSQL.<port>`.
    Unix(PathBuf),
}

/// Where to connect, as whom, to which database.
///
/// User, password, host and database may be percent-encoded. A host that begins with `/`, encoded
/// or given as `?host=/directory`, is a unix socket directory. Displayed without the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// The role to log in as.
    pub user: String,
    /// The password, when one is given.
    pub password: Option<String>,
    /// The server's place.
    pub host: Host,
    /// The TCP port, or the number in the socket's name.
    pub port: u16,
    /// The database; the user's name when the URL has none.
    pub database: String,
}

/// A connection URL that cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("bad connection URL: {0}; expected postgres://user[:password]@host:port/database")]
pub struct UrlError(&'static str);

impl Url {
    /// The path of the unix socket, when the host is a directory.
    #[must_use]
    pub fn socket_path(&self) -> Option<PathBuf> {
        match &self.host {
            Host::Tcp(_) => None,
            Host::Unix(directory) => Some(directory.join(format!(".s.PGSQL.{}", self.port))),
        }
    }

    /// The URL as text, with the password: for those that connect, never for people.
    #[must_use]
    pub fn with_password(&self) -> String {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let password = self.password.as_deref().map(|text| format!(":{}", encoded(text)));
        let (host, query) = match &self.host {
            Host::Tcp(host) if host.contains(':') => (format!("[{host}]"), String::new()),
            Host::Tcp(host) => (host.clone(), String::new()),
            Host::Unix(directory) => {
                ("localhost".to_owned(), format!("?host={}", encoded(&directory.to_string_lossy())))
            }
        };
        format!(
            "postgres://{}{}@{host}:{}/{}{query}",
            encoded(&self.user),
            password.unwrap_or_default(),
            self.port,
            encoded(&self.database)
        )
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = text
            .strip_prefix("postgres://")
            .or_else(|| text.strip_prefix("postgresql://"))
            .ok_or(UrlError("it does not begin with postgres://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let Authority { user, password, host, port } =
            Authority::read(authority, PORT).map_err(UrlError)?;
        let host = socket_directory(query)?.unwrap_or(host);
        let database = match decode(database).map_err(UrlError)? {
            name if name.is_empty() => user.clone(),
            name => name,
        };
        Ok(Url { user, password, host: host_kind(host)?, port, database })
    }
}

/// The value of `host` in the URL's query.
fn socket_directory(query: &str) -> Result<Option<String>, UrlError> {
    let mut directory = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("host", value)) => directory = Some(decode(value).map_err(UrlError)?),
            _ => return Err(UrlError("host is the only parameter understood")),
        }
    }
    Ok(directory)
}

fn host_kind(host: String) -> Result<Host, UrlError> {
    match host.chars().next() {
        None => Err(UrlError("there is no host")),
        Some('/') => Ok(Host::Unix(PathBuf::from(host))),
        Some(_) => Ok(Host::Tcp(host)),
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}@", self.user)?;
        match &self.host {
            Host::Tcp(host) => write!(f, "{host}:{}/{}", self.port, self.database),
            Host::Unix(directory) => {
                write!(f, "localhost:{}/{}?host={}", self.port, self.database, directory.display())
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
        let full = url("postgres://ann:p%40ss%3a@db.example:6432/shop");
        assert_eq!(full.user, "ann");
        assert_eq!(full.password.as_deref(), Some("p@ss:"));
        assert_eq!(full.host, Host::Tcp("db.example".into()));
        assert_eq!((full.port, full.database.as_str()), (6432, "shop"));

        let short = url("postgresql://bob@[::1]");
        assert_eq!(short.host, Host::Tcp("::1".into()));
        assert_eq!((short.port, short.database.as_str()), (PORT, "bob"));
    }

    #[test]
    fn a_socket_directory_is_given_in_two_ways() {
        let socket = Some(PathBuf::from("/run/pg/.s.PGSQL.7"));
        assert_eq!(url("postgres://a@%2Frun%2Fpg:7/d").socket_path(), socket);
        assert_eq!(url("postgres://a@localhost:7/d?host=/run/pg").socket_path(), socket);
        assert_eq!(url("postgres://a@localhost:7/d").socket_path(), None);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, wrong) in [
            ("mysql://a@h/d", "postgres://"),
            ("postgres://h:1/d", "no user"),
            ("postgres://@h:1/d", "no user"),
            ("postgres://a@h:99999/d", "port"),
            ("postgres://a@:1/d", "no host"),
            ("postgres://a%4x@h/d", "hex digits"),
            ("postgres://a%@h/d", "alone"),
            ("postgres://a%ff@h/d", "UTF-8"),
            ("postgres://a%00b@h/d", "zero"),
            ("postgres://a@h/d?sslmode=require", "only parameter"),
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            let (reason, _) = error.split_once(';').unwrap();
            assert!(reason.contains(wrong), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for text in [
            "postgres://ann:p%40ss%3a%2f@db.example:6432/shop%2F1",
            "postgres://bob@[::1]",
            "postgres://a@localhost:7/d?host=/run/my%20pg",
        ] {
            let url = url(text);
            assert!(url == url.with_password().parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        let url = url("postgres://ann:secret@h:1/d");
        assert_eq!(format!("{url} {url:?}").find("secret"), None);
    }
}
