//! Where an existing database is, as experiment files and command lines say it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;
use tidegate_subject::{client, firebird, mysql};

/// A server that is not ours to start, or the place of a file. Displayed without the password.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// `postgres://user[:password]@host[:port]/database[?host=/directory]`
    Postgres(client::Url),
    /// `mysql://user[:password]@host[:port]/[database][?socket=/path]`
    MariaDb(mysql::Url),
    /// `firebird://user[:password]@host[:port]/path/of/the/file.fdb`
    Firebird(firebird::Url),
    /// `sqlite:path`: the file that is made.
    Sqlite(PathBuf),
}

/// Text that says no place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlaceError {
    /// It begins like none.
    #[error("it begins with none of postgres://, mysql://, mariadb://, firebird:// and sqlite:")]
    Scheme,
    /// Nothing follows.
    #[error("sqlite: is followed by the path of a file")]
    NoPath,
    /// It is no URL of PostgreSQL's.
    #[error(transparent)]
    Postgres(#[from] client::UrlError),
    /// It is no URL of MariaDB's.
    #[error(transparent)]
    MariaDb(#[from] mysql::UrlError),
    /// It is no URL of Firebird's.
    #[error(transparent)]
    Firebird(#[from] firebird::UrlError),
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        match text.split_once(':') {
            Some(("postgres" | "postgresql", _)) => Ok(Place::Postgres(text.parse()?)),
            Some(("mysql" | "mariadb", _)) => Ok(Place::MariaDb(text.parse()?)),
            Some(("firebird", _)) => Ok(Place::Firebird(text.parse()?)),
            Some(("sqlite", "")) => Err(PlaceError::NoPath),
            Some(("sqlite", path)) => {
                let path = PathBuf::from(path.replace("%2C", ",").replace("%25", "%"));
                // Resumed from another directory, it is still the same file.
                Ok(Place::Sqlite(std::path::absolute(&path).unwrap_or(path)))
            }
            _ => Err(PlaceError::Scheme),
        }
    }
}

impl Place {
    /// The place as text that is read as the same but for the password, and has no comma.
    #[must_use]
    pub fn without_password(&self) -> String {
        match self {
            Place::Postgres(url) => {
                client::Url { password: None, ..url.clone() }.with_password().replace(',', "%2C")
            }
            Place::MariaDb(url) => mysql::Url { password: String::new(), ..url.clone() }
                .with_password()
                .replace(',', "%2C"),
            Place::Firebird(url) => {
                firebird::Url { password: String::new(), ..url.clone() }.with_password()
            }
            Place::Sqlite(path) => {
                let path = path.to_string_lossy().replace('%', "%25").replace(',', "%2C");
                format!("sqlite:{path}")
            }
        }
    }

    /// The same with the password from the environment, where the place has none: from the
    /// variable that the database's own programs read.
    pub(crate) fn with_known_password(self) -> Self {
        let known = |name: &str| std::env::var(name).ok();
        match self {
            Place::Postgres(client::Url { password: None, .. }) => {
                self.and_password(known("PGPASSWORD"))
            }
            Place::MariaDb(ref url) if url.password.is_empty() => {
                self.and_password(known("MYSQL_PWD"))
            }
            Place::Firebird(ref url) if url.password.is_empty() => {
                self.and_password(known("ISC_PASSWORD"))
            }
            has_one => has_one,
        }
    }

    fn and_password(mut self, known: Option<String>) -> Self {
        match (&mut self, known) {
            (Place::Postgres(url), password) => url.password = password,
            (Place::MariaDb(url), Some(password)) => url.password = password,
            (Place::Firebird(url), Some(password)) => url.password = password,
            _ => {}
        }
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Postgres(url) => url.fmt(f),
            Place::MariaDb(url) => url.fmt(f),
            Place::Firebird(url) => url.fmt(f),
            Place::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_kept_without_its_password_and_found_again() {
        for (text, kept) in [
            ("postgres://ann:s%2Cecret@h:7/shop", "postgres://ann@h:7/shop"),
            ("postgresql://ann@h", "postgres://ann@h:5432/ann"),
            ("mysql://ann:s:ecret@h/", "mysql://ann@h:3306/"),
            ("mariadb://a%2Cb:secret@[::1]/d", "mysql://a%2Cb@[::1]:3306/d"),
            ("firebird://SYSDBA:secret@h/db/a.fdb", "firebird://SYSDBA@h:3050/db/a.fdb"),
            ("sqlite:/a/b%2Cc.db", "sqlite:/a/b%2Cc.db"),
        ] {
            let place: Place = text.parse().unwrap();
            assert_eq!(place.without_password(), kept);
            assert!(!format!("{place} {place:?}").contains("ecret"), "{place}");
            let again: Place = kept.parse().unwrap();
            assert_eq!(again.without_password(), kept);
        }
    }

    #[test]
    fn what_is_no_place_is_refused_without_repeating_it() {
        for (text, expected) in [
            ("oracle://ann:secret@h", "none of postgres://"),
            ("secret", "none of postgres://"),
            ("sqlite:", "path of a file"),
            ("postgres://secret", "no user"),
            ("mysql://ann:secret@h/d?x=1", "only parameters"),
            ("firebird://ann:secret@h", "no file"),
        ] {
            let error = text.parse::<Place>().unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
