//! Connection URLs: `firebird://user[:password]@host[:port]/path/of/the/file.fdb`.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use thiserror::Error;

use crate::url::{Authority, decode};

const PORT: u16 = 3050;

/// What a path has as it is.
const IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'_').remove(b'-');

/// Where to connect, as whom, and to which file of the server's machine.
///
/// User, password, host and path may be percent-encoded. Displayed without the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// Who logs in.
    pub user: String,
    /// The password; empty when none is given.
    pub password: String,
    /// The server's name or address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The absolute path of the database's file.
    pub path: String,
}

/// A connection URL that cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("bad connection URL: {0}; expected firebird://user[:password]@host[:port]/path/file.fdb")]
pub struct UrlError(&'static str);

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = text
            .strip_prefix("firebird://")
            .ok_or(UrlError("it does not begin with firebird://"))?;
        let (authority, path) = rest.split_once('/').ok_or(UrlError("there is no file"))?;
        let Authority { user, password, host, port } =
            Authority::read(authority, PORT).map_err(UrlError)?;
        for (part, missing) in [(host.as_str(), "there is no host"), (path, "there is no file")] {
            if part.is_empty() {
                return Err(UrlError(missing));
            }
        }
        let path = format!("/{}", decode(path).map_err(UrlError)?);
        Ok(Url { user, password: password.unwrap_or_default(), host, port, path })
    }
}

impl Url {
    /// The URL as text, with the password: for those that connect, never for people.
    #[must_use]
    pub fn with_password(&self) -> String {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let password = Some(&self.password).filter(|password| !password.is_empty());
        let password = password.map(|text| format!(":{}", encoded(text))).unwrap_or_default();
        format!(
            "firebird://{}{password}@{}:{}{}",
            encoded(&self.user),
            self.bracketed(),
            self.port,
            utf8_percent_encode(&self.path, IN_PATHS)
        )
    }

    fn bracketed(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "firebird://{}@{}:{}{}", self.user, self.bracketed(), self.port, self.path)
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

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for (text, shown) in [
            ("firebird://SYSDBA:p%40ss@h/d/a.fdb", "firebird://SYSDBA@h:3050/d/a.fdb"),
            ("firebird://ann@[::1]:7/a%20b", "firebird://ann@[::1]:7/a b"),
        ] {
            let url: Url = text.parse().unwrap();
            assert!(url == url.with_password().parse().unwrap(), "{text}");
            assert_eq!(format!("{url}"), shown);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, wrong) in [
            ("postgres://a@h/d", "firebird://"),
            ("firebird://a@h", "no file"),
            ("firebird://a@h/", "no file"),
            ("firebird://h/f", "no user"),
            ("firebird://a@/f", "no host"),
            ("firebird://a@h:x/f", "port"),
            ("firebird://a@[::1/f", "bracket"),
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            let (reason, _) = error.split_once(';').unwrap();
            assert!(reason.contains(wrong), "{text}: {error}");
        }
    }
}
