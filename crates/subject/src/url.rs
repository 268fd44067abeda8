//! Connection URLs of every DBMS: one type, one parser, and one way to leave out the password.
//!
//! A URL is `scheme://user[:password]@host[:port]/database[?parameter=value]`, or `sqlite:path` for
//! a file. Each part may be percent-encoded. What differs between DBMSs is in their [`Scheme`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use thiserror::Error;

use crate::database::Dbms;
use crate::isolation::Isolation;

/// What a path has as it is.
const IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'_').remove(b'-');

/// What the URLs of a DBMS look like.
#[derive(Debug, PartialEq, Eq)]
pub struct Scheme {
    /// What stands before the colon; URLs are written with the first.
    pub names: &'static [&'static str],
    /// The form of a URL, for messages.
    pub form: &'static str,
    /// The port when none is given.
    pub port: u16,
    /// What stands behind the host.
    pub path: PathPart,
    /// How a unix socket is given, where that is possible.
    pub socket: Option<Socket>,
    /// Whether the parameter `isolation` is understood.
    pub has_isolation: bool,
    /// The environment variable with the password, which the DBMS's own programs read.
    pub password_variable: &'static str,
    /// What clients on sockets speak; `None` where clients need a library.
    pub protocol: Option<Protocol>,
}

/// What a URL names behind its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathPart {
    /// A database, which may be left out.
    Database,
    /// A database, by default the one with the user's name.
    DatabaseOfUser,
    /// A file of the server's machine, by its absolute path.
    File,
    /// A file of this machine; there is no user and no host.
    LocalFile,
}

/// The parameter that names a unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// It names a directory that holds the socket `.s.PGSQL.<port>`. A host that begins with `/`
    /// is such a directory, too.
    Directory(&'static str),
    /// It names the socket.
    Path(&'static str),
}

/// A protocol that clients on sockets speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// PostgreSQL's, version 3: [`crate::client`].
    Postgres,
    /// MySQL's: [`crate::mysql`].
    MySql,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A host name or address; the port follows in [`Url::port`].
    Tcp(String),
    /// A unix socket, or the directory that holds it; see [`Url::socket_path`].
    Unix(PathBuf),
    /// Nowhere: the database is a file of this machine.
    Local,
}

/// Where to connect, as whom, to which database. Displayed without the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// The form of the URL, and by that the DBMS.
    pub scheme: &'static Scheme,
    /// The user who logs in.
    pub user: String,
    /// The password; `None` when none is given or it is empty.
    pub password: Option<String>,
    /// Where the server listens.
    pub host: Host,
    /// The TCP port, or the number in the socket's name.
    pub port: u16,
    /// The database, or the path of its file.
    pub database: String,
    /// The isolation level of the session's transactions; the server's own when none is given.
    pub isolation: Option<Isolation>,
}

/// Text that is no URL of a database.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UrlError {
    /// It begins with no known scheme.
    #[error("bad connection URL: it begins with none of {}", known().join(", "))]
    Scheme,
    /// A part is wrong.
    #[error("bad connection URL: {reason}; expected {form}")]
    Form {
        /// What is wrong.
        reason: String,
        /// What was expected.
        form: &'static str,
    },
}

/// Returns how URLs may begin.
fn known() -> Vec<String> {
    let schemes = Dbms::ALL.iter().filter_map(|dbms| dbms.scheme);
    schemes.flat_map(|scheme| scheme.names.iter().map(|name| scheme.prefix(name))).collect()
}

impl Scheme {
    fn prefix(&self, name: &str) -> String {
        let slashes = if self.path == PathPart::LocalFile { "" } else { "//" };
        format!("{name}:{slashes}")
    }

    fn bad(&self, reason: impl Into<String>) -> UrlError {
        UrlError::Form { reason: reason.into(), form: self.form }
    }
}

impl FromStr for Url {
    type Err = UrlError;

    /// Reads a URL of any DBMS.
    fn from_str(text: &str) -> Result<Self, UrlError> {
        let name = text.split_once(':').map(|(name, _)| name).ok_or(UrlError::Scheme)?;
        let mut schemes = Dbms::ALL.iter().filter_map(|dbms| dbms.scheme);
        let scheme = schemes.find(|scheme| scheme.names.contains(&name));
        Url::of(scheme.ok_or(UrlError::Scheme)?, text)
    }
}

impl Url {
    /// Reads a URL of one scheme.
    ///
    /// # Errors
    /// It is another's, or none.
    pub fn of(scheme: &'static Scheme, text: &str) -> Result<Self, UrlError> {
        let mut names = scheme.names.iter();
        let rest =
            names.find_map(|name| text.strip_prefix(&scheme.prefix(name))).ok_or_else(|| {
                scheme.bad(format!("it does not begin with {}", scheme.prefix(scheme.names[0])))
            })?;
        if scheme.path == PathPart::LocalFile { local(scheme, rest) } else { remote(scheme, rest) }
    }

    /// Returns the DBMS whose URL it is.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "every scheme is that of a DBMS in the list")]
    pub fn dbms(&self) -> &'static Dbms {
        let dbms = Dbms::ALL.iter().find(|dbms| dbms.scheme == Some(self.scheme));
        dbms.expect("every scheme is that of a DBMS in the list")
    }

    /// Returns what clients on sockets speak to the server.
    ///
    /// # Errors
    /// It is spoken to by a library.
    pub fn protocol(&self) -> Result<Protocol, UrlError> {
        self.scheme
            .protocol
            .ok_or_else(|| self.scheme.bad("clients on sockets do not speak its protocol"))
    }

    /// Returns the path of the unix socket, where the server listens on one.
    #[must_use]
    pub fn socket_path(&self) -> Option<PathBuf> {
        let Host::Unix(path) = &self.host else { return None };
        Some(match self.scheme.socket {
            Some(Socket::Directory(_)) => path.join(format!(".s.PGSQL.{}", self.port)),
            Some(Socket::Path(_)) | None => path.clone(),
        })
    }

    /// Returns the same URL with the password from the environment, where it has none.
    #[must_use]
    pub fn with_known_password(mut self) -> Self {
        let known = || std::env::var(self.scheme.password_variable).ok();
        self.password = self.password.or_else(known).filter(|password| !password.is_empty());
        self
    }

    /// Returns why a login failed, and that there was no password where there was none.
    pub(crate) fn login_failure(&self, reason: &str) -> String {
        if self.password.is_some() {
            return reason.to_owned();
        }
        let variable = self.scheme.password_variable;
        format!("{reason}; no password was given, neither in the URL nor in {variable}")
    }

    /// Returns a guest's settings: where it is, then the first two columns of these rows.
    pub(crate) fn settings(&self, rows: Vec<Vec<Option<String>>>) -> Vec<(String, String)> {
        let pair = |row: Vec<Option<String>>| {
            let mut columns = row.into_iter().map(Option::unwrap_or_default);
            Some((columns.next()?, columns.next()?))
        };
        let place = ("url".to_owned(), self.to_string());
        std::iter::once(place).chain(rows.into_iter().filter_map(pair)).collect()
    }

    /// Returns the URL as text, with the password: for programs that connect, never for people.
    #[must_use]
    pub fn with_password(&self) -> String {
        self.written(self.password.as_deref())
    }

    /// Returns text that is read as the same URL but for the password, and has no comma.
    #[must_use]
    pub fn without_password(&self) -> String {
        self.written(None).replace(',', "%2C")
    }

    fn written(&self, password: Option<&str>) -> String {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let name = self.scheme.names[0];
        let host = match &self.host {
            Host::Local => {
                return format!("{name}:{}", self.database.replace('%', "%25").replace(',', "%2C"));
            }
            Host::Tcp(host) => bracketed(host),
            Host::Unix(_) => "localhost".to_owned(),
        };
        let password = password.map(|text| format!(":{}", encoded(text))).unwrap_or_default();
        let database = match self.scheme.path {
            PathPart::File => utf8_percent_encode(&self.database, IN_PATHS).to_string(),
            _ => format!("/{}", encoded(&self.database)),
        };
        let socket = self
            .socket()
            .map(|(name, path)| format!("{name}={}", encoded(&path.to_string_lossy())));
        let isolation = self.isolation.map(|level| format!("isolation={}", level.name()));
        let query: Vec<String> = socket.into_iter().chain(isolation).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!(
            "{name}://{}{password}@{host}:{}{database}{mark}{}",
            encoded(&self.user),
            self.port,
            query.join("&")
        )
    }

    /// Returns the parameter that names the socket, and what it names.
    fn socket(&self) -> Option<(&'static str, &Path)> {
        let Host::Unix(path) = &self.host else { return None };
        let (Socket::Directory(name) | Socket::Path(name)) = self.scheme.socket?;
        Some((name, path))
    }
}

/// Reads what follows `sqlite:`.
fn local(scheme: &'static Scheme, path: &str) -> Result<Url, UrlError> {
    if path.is_empty() {
        return Err(scheme.bad("the path of a file is missing"));
    }
    let path = path.replace("%2C", ",").replace("%25", "%");
    // Resumed from another directory, it is still the same file.
    let absolute =
        std::path::absolute(&path).ok().and_then(|path| path.to_str().map(str::to_owned));
    Ok(Url {
        scheme,
        user: String::new(),
        password: None,
        host: Host::Local,
        port: scheme.port,
        database: absolute.unwrap_or(path),
        isolation: None,
    })
}

/// Reads what follows the scheme's slashes.
fn remote(scheme: &'static Scheme, rest: &str) -> Result<Url, UrlError> {
    let bad = |reason: &str| scheme.bad(reason);
    let has_query = scheme.socket.is_some() || scheme.has_isolation;
    let (rest, query) = if has_query { rest.split_once('?') } else { None }.unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let Authority { user, password, host, port } =
        Authority::read(authority, scheme.port).map_err(bad)?;
    let (socket, isolation) = parameters(scheme, query)?;
    let host = match (scheme.socket, socket) {
        (Some(Socket::Path(_)), Some(path)) => Host::Unix(path.into()),
        (Some(Socket::Directory(_)), directory) => match directory.unwrap_or(host) {
            directory if directory.starts_with('/') => Host::Unix(directory.into()),
            host => Host::Tcp(host),
        },
        _ => Host::Tcp(host),
    };
    if host == Host::Tcp(String::new()) {
        return Err(bad("there is no host"));
    }
    let database = match (scheme.path, decode(path).map_err(bad)?) {
        (PathPart::DatabaseOfUser, name) if name.is_empty() => user.clone(),
        (PathPart::File, path) if path.is_empty() => return Err(bad("there is no file")),
        (PathPart::File, path) => format!("/{path}"),
        (_, name) => name,
    };
    let password = password.filter(|password| !password.is_empty());
    Ok(Url { scheme, user, password, host, port, database, isolation })
}

/// Reads the values of the socket's parameter and of `isolation` in a URL's query.
fn parameters(
    scheme: &'static Scheme,
    query: &str,
) -> Result<(Option<String>, Option<Isolation>), UrlError> {
    let socket_name = scheme.socket.map(|(Socket::Directory(name) | Socket::Path(name))| name);
    let (mut socket, mut isolation) = (None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some((name, path)) if Some(name) == socket_name && !path.is_empty() => {
                socket = Some(decode(path).map_err(|reason| scheme.bad(reason))?);
            }
            Some(("isolation", name)) if scheme.has_isolation => {
                let level = Isolation::named(name);
                isolation = Some(level.ok_or_else(|| scheme.bad("there is no such isolation"))?);
            }
            _ => {
                let isolation = scheme.has_isolation.then_some("isolation");
                let names: Vec<&str> = socket_name.into_iter().chain(isolation).collect();
                let names = names.join(" and ");
                return Err(scheme.bad(format!("the only parameters understood are {names}")));
            }
        }
    }
    Ok((socket, isolation))
}

/// Returns a host as it stands before a port.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Url { scheme, user, port, database, .. } = self;
        let name = scheme.names[0];
        let slash = if scheme.path == PathPart::File { "" } else { "/" };
        match &self.host {
            Host::Local => write!(f, "{name}:{database}"),
            Host::Tcp(host) => {
                write!(f, "{name}://{user}@{}:{port}{slash}{database}", bracketed(host))
            }
            Host::Unix(path) => {
                write!(f, "{name}://{user}@localhost")?;
                if let Some(Socket::Directory(_)) = scheme.socket {
                    write!(f, ":{port}")?;
                }
                let parameter = self.socket().map_or("", |(name, _)| name);
                write!(f, "{slash}{database}?{parameter}={}", path.display())
            }
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The user who logs in, and where: `user[:password]@host[:port]`.
struct Authority {
    user: String,
    password: Option<String>,
    /// Empty where there is none.
    host: String,
    port: u16,
}

impl Authority {
    /// Reads what stands before the path, where a port may be left out. The error says in words
    /// what is wrong.
    fn read(text: &str, usual_port: u16) -> Result<Self, &'static str> {
        let (login, place) = text.rsplit_once('@').ok_or("there is no user")?;
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (decode(user)?, Some(decode(password)?)),
            None => (decode(login)?, None),
        };
        if user.is_empty() {
            return Err("there is no user");
        }
        let (host, port) = host_and_port(place)?;
        let port = match port {
            Some(port) => port.parse().map_err(|_| "the port is not one")?,
            None => usual_port,
        };
        Ok(Authority { user, password, host: decode(host)?, port })
    }
}

/// Returns the host, and the text of the port. The colons of an IPv6 address stand inside brackets.
fn host_and_port(place: &str) -> Result<(&str, Option<&str>), &'static str> {
    const HALF: &str = "a bracket of the host stands alone";
    if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(HALF)?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err("the port is not one"),
        };
    }
    if place.contains(['[', ']']) {
        return Err(HALF);
    }
    Ok(place.rsplit_once(':').map_or((place, None), |(host, port)| (host, Some(port))))
}

/// Returns a part of a URL without its percent signs.
fn decode(text: &str) -> Result<String, &'static str> {
    for (place, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(place + 1..place + 3);
        let digits = digits.ok_or("a percent sign stands alone")?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err("a percent sign is not followed by two hex digits");
        }
    }
    match percent_decode_str(text).decode_utf8() {
        // A zero would end the text early on its way to the server.
        Ok(text) if !text.contains('\0') => Ok(text.into_owned()),
        Ok(_) => Err("it has a zero byte once decoded"),
        Err(_) => Err("it is not UTF-8 once decoded"),
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
        for (text, user, password, host, port, database) in [
            (
                "postgres://ann:p%40ss%3a@db.example:6432/shop",
                "ann",
                "p@ss:",
                "db.example",
                6432,
                "shop",
            ),
            ("postgresql://bob@[::1]", "bob", "", "::1", 5432, "bob"),
            ("postgres://a%40b@h", "a@b", "", "h", 5432, "a@b"),
            ("postgres://ann:@[::1]:8", "ann", "", "::1", 8, "ann"),
            ("mysql://ann:p%40ss%3a@db:3307/shop", "ann", "p@ss:", "db", 3307, "shop"),
            ("mariadb://bob@[::1]", "bob", "", "::1", 3306, ""),
            ("firebird://SYSDBA:x@h/d/a%20b.fdb", "SYSDBA", "x", "h", 3050, "/d/a b.fdb"),
        ] {
            let found = url(text);
            let parts = (found.user.as_str(), found.password.as_deref().unwrap_or_default());
            assert_eq!(parts, (user, password), "{text}");
            assert_eq!(found.host, Host::Tcp(host.to_owned()), "{text}");
            assert_eq!((found.port, found.database.as_str()), (port, database), "{text}");
        }
    }

    #[test]
    fn sockets_are_given_by_their_directory_or_their_path() {
        let socket = Some(PathBuf::from("/run/pg/.s.PGSQL.7"));
        assert_eq!(url("postgres://a@%2Frun%2Fpg:7/d").socket_path(), socket);
        assert_eq!(url("postgres://a@localhost:7/d?host=/run/pg").socket_path(), socket);
        assert_eq!(url("postgres://a@localhost:7/d").socket_path(), None);
        let socket = Some(PathBuf::from("/run/my sql.sock"));
        assert_eq!(url("mysql://a@localhost/d?socket=/run/my%20sql.sock").socket_path(), socket);
        assert_eq!(url("mysql://a@/d?socket=/run/my%20sql.sock").socket_path(), socket);
    }

    #[test]
    fn what_is_wrong_is_said_without_repeating_it() {
        for (text, wrong) in [
            ("oracle://ann:secret@h", "none of postgres://"),
            ("secret", "none of postgres://"),
            ("sqlite:", "path of a file"),
            ("postgres:secret", "does not begin with postgres://"),
            ("postgres://secret", "no user"),
            ("postgres://@h:1/d", "no user"),
            ("postgres://a@h:99999/d", "port"),
            ("postgres://a@[::1]8", "port"),
            ("postgres://a@[::1", "bracket"),
            ("postgres://a@::1]:8", "bracket"),
            ("postgres://a@:1/d", "no host"),
            ("postgres://a%4x@h/d", "hex digits"),
            ("postgres://a%@h/d", "alone"),
            ("postgres://a:%ff@h/d", "UTF-8"),
            ("postgres://a%00b@h/d", "zero"),
            ("postgres://a@h%00", "zero"),
            ("postgres://a@h/d?sslmode=require", "only parameter"),
            ("mysql://:p@h:1/d", "no user"),
            ("mysql://a@:1/d", "no host"),
            ("mysql://ann:secret@h/d?x=1", "only parameters"),
            ("mysql://a@h/d?socket=", "only parameter"),
            ("mysql://a@h/d?isolation=chaos", "no such isolation"),
            ("firebird://ann:secret@h", "no file"),
            ("firebird://a@h/", "no file"),
            ("firebird://h/f", "no user"),
            ("firebird://a@/f", "no host"),
            ("firebird://a@h:x/f", "port"),
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            let (reason, _) = error.split_once("; expected").unwrap_or((&error, ""));
            assert!(reason.contains(wrong) && !error.contains("secret"), "{text}: {error}");
        }
        let error = Url::of(&crate::postgres::SCHEME, "mysql://a@h/d").unwrap_err().to_string();
        assert!(error.contains("does not begin with postgres://"), "{error}");
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for text in [
            "postgres://ann:p%40ss%3a%2f@db.example:6432/shop%2F1",
            "postgres://bob@[::1]",
            "postgres://a@localhost:7/d?host=/run/my%20pg",
            "mysql://ann:p%40ss%3a%2f@db.example:3307/shop",
            "mysql://bob@[::1]/d?isolation=read-committed",
            "mysql://a@localhost/d?socket=/run/my%20sql.sock&isolation=serializable",
            "firebird://SYSDBA:p%40ss@h/d/a.fdb",
            "firebird://ann@[::1]:7/a%20b",
            "sqlite:/a/b%2Cc%25.db",
        ] {
            let url = url(text);
            assert!(url == url.with_password().parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn a_url_is_kept_without_its_password_and_found_again() {
        for (text, kept) in [
            ("postgres://ann:s%2Cecret@h:7/shop", "postgres://ann@h:7/shop"),
            ("postgresql://ann@h", "postgres://ann@h:5432/ann"),
            ("mysql://ann:s:ecret@h/", "mysql://ann@h:3306/"),
            ("mariadb://a%2Cb:secret@[::1]/d", "mysql://a%2Cb@[::1]:3306/d"),
            ("firebird://SYSDBA:secret@h/db/a.fdb", "firebird://SYSDBA@h:3050/db/a.fdb"),
            ("sqlite:/a/b%2Cc.db", "sqlite:/a/b%2Cc.db"),
        ] {
            let place = url(text);
            assert_eq!(place.without_password(), kept);
            assert!(!format!("{place} {place:?}").contains("ecret"), "{place}");
            assert_eq!(url(kept).without_password(), kept);
        }
        assert_eq!(url("firebird://a:p@[::1]:7/a%20b").to_string(), "firebird://a@[::1]:7/a b");
    }
}
