//! `postgres://user:password@host:port/database`, the place of a database server.
//!
//! | URL | server | database | user |
//! | --- | --- | --- | --- |
//! | `postgres://db.example` | `db.example`, port 5432 | the client's | the client's |
//! | `postgres://app:p%40ss@[::1]:7/shop` | `::1`, port 7 | `shop` | `app`, password `p@ss` |
//! | `postgres:///shop?host=/run/pg` | `/run/pg/.s.PGSQL.5432` | `shop` | the client's |
//! | `postgres://a,b:7/shop` | `a`, port 5432, or `b`, port 7 | `shop` | the client's |
//!
//! Every part may be percent-encoded; what else than letters, digits, `-`, `.`, `_` and `~` stands
//! in a password has to be.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use thiserror::Error;

use crate::config::{
    ChannelBindingMode, LoadBalance, Negotiation, RootCertificates, ServerAddress, ServerHosts,
    ServerTls, SessionAttributes, SslMode,
};

/// PostgreSQL's registered port.
const PORT: u16 = 5432;

/// A database on a server, and whom to be there.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamUrl {
    /// The server.
    pub server: ServerHosts,
    /// How connections to it are encrypted.
    pub tls: ServerTls,
    /// The database; `None` is the name the client used.
    pub database: Option<String>,
    /// The user; `None` is the client's.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
}

impl fmt::Debug for UpstreamUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("UpstreamUrl")
            .field("server", &self.server)
            .field("database", &self.database)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// A URL that is none. It does not repeat the URL, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "{0}; expected postgres://user:password@host:port/database \
     or postgres:///database?host=/socket/directory&port=5432"
)]
pub struct UpstreamUrlError(&'static str);

impl FromStr for UpstreamUrl {
    type Err = UpstreamUrlError;

    fn from_str(text: &str) -> Result<Self, UpstreamUrlError> {
        let rest = text
            .strip_prefix("postgres://")
            .or_else(|| text.strip_prefix("postgresql://"))
            .ok_or(UpstreamUrlError("the URL does not begin with postgres://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        if database.contains('/') {
            return Err(UpstreamUrlError("the database's name has a / that is not written %2F"));
        }
        if user.is_empty() && !password.is_empty() {
            return Err(UpstreamUrlError("there is a password but no user"));
        }
        let query = Query::parse(query)?;
        Ok(UpstreamUrl {
            server: server(place, &query)?,
            tls: query.tls()?,
            database: decode(database)?,
            user: decode(user)?,
            password: decode(password)?,
        })
    }
}

/// The parameters after `?`.
#[derive(Default)]
struct Query {
    /// Host names or directories of sockets, with commas between them.
    host: Option<String>,
    /// One for all hosts, or one for each; empty if none is given.
    ports: Vec<u16>,
    attributes: SessionAttributes,
    balance: LoadBalance,
    sslmode: Option<String>,
    sslrootcert: Option<String>,
    sslcert: Option<String>,
    sslkey: Option<String>,
    sslnegotiation: Option<String>,
    channel_binding: Option<String>,
    ssl_min_protocol_version: Option<String>,
}

impl Query {
    fn parse(text: &str) -> Result<Query, UpstreamUrlError> {
        let mut query = Query::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("host", value)) => query.host = decode(value)?,
                Some(("port", value)) => {
                    let ports = decode(value)?.unwrap_or_default();
                    query.ports = ports.split(',').map(port).collect::<Result<_, _>>()?;
                }
                Some(("target_session_attrs", value)) => {
                    query.attributes = value.parse().map_err(|_| {
                        UpstreamUrlError(
                            "target_session_attrs is any, read-write, read-only, primary, standby \
                             or prefer-standby",
                        )
                    })?;
                }
                Some(("load_balance_hosts", "disable")) => query.balance = LoadBalance::Disable,
                Some(("load_balance_hosts", "random")) => query.balance = LoadBalance::Random,
                Some(("load_balance_hosts", _)) => {
                    return Err(UpstreamUrlError("load_balance_hosts is disable or random"));
                }
                Some(("sslmode", value)) => query.sslmode = decode(value)?,
                Some(("sslrootcert", value)) => query.sslrootcert = decode(value)?,
                Some(("sslcert", value)) => query.sslcert = decode(value)?,
                Some(("sslkey", value)) => query.sslkey = decode(value)?,
                Some(("sslnegotiation", value)) => query.sslnegotiation = decode(value)?,
                Some(("channel_binding", value)) => query.channel_binding = decode(value)?,
                Some(("ssl_min_protocol_version", value)) => {
                    query.ssl_min_protocol_version = decode(value)?;
                }
                _ => {
                    return Err(UpstreamUrlError(
                        "after ? only host, port, target_session_attrs, load_balance_hosts, \
                         sslmode, sslrootcert, sslcert, sslkey, sslnegotiation, \
                         ssl_min_protocol_version and channel_binding are understood",
                    ));
                }
            }
        }
        Ok(query)
    }

    /// Returns how connections are encrypted, in libpq's terms.
    fn tls(&self) -> Result<ServerTls, UpstreamUrlError> {
        let is_system = self.sslrootcert.as_deref() == Some("system");
        let mode = match &self.sslmode {
            Some(mode) => mode.parse().map_err(|_| {
                UpstreamUrlError("sslmode is disable, prefer, require, verify-ca or verify-full")
            })?,
            None if is_system => SslMode::VerifyFull,
            None => ServerTls::default().mode,
        };
        if is_system && mode != SslMode::VerifyFull {
            // Whoever has a certificate of a public authority would be taken for the server.
            return Err(UpstreamUrlError("sslrootcert=system needs sslmode=verify-full"));
        }
        let roots = self.sslrootcert.as_ref().map(|path| {
            if is_system { RootCertificates::System } else { RootCertificates::File(path.into()) }
        });
        if mode >= SslMode::VerifyCa && roots.is_none() {
            return Err(UpstreamUrlError(
                "sslmode=verify-ca and verify-full need sslrootcert=FILE or sslrootcert=system",
            ));
        }
        let identity = match (&self.sslcert, &self.sslkey) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err(UpstreamUrlError("sslcert and sslkey are given together")),
        };
        let negotiation = match self.sslnegotiation.as_deref() {
            None | Some("postgres") => Negotiation::Postgres,
            // A server that does not speak TLS would take the ClientHello for garbage.
            Some("direct") if !mode.demands_tls() => {
                return Err(UpstreamUrlError(
                    "sslnegotiation=direct needs sslmode=require or more",
                ));
            }
            Some("direct") => Negotiation::Direct,
            Some(_) => return Err(UpstreamUrlError("sslnegotiation is postgres or direct")),
        };
        let channel_binding = match self.channel_binding.as_deref() {
            Some("disable") => ChannelBindingMode::Disable,
            None | Some("prefer") => ChannelBindingMode::Prefer,
            Some("require") => ChannelBindingMode::Require,
            Some(_) => {
                return Err(UpstreamUrlError("channel_binding is disable, prefer or require"));
            }
        };
        let min_version = self.ssl_min_protocol_version.as_deref().map(str::parse).transpose();
        let min_version = min_version
            .map_err(|_| UpstreamUrlError("ssl_min_protocol_version is TLSv1.2 or TLSv1.3"))?;
        let min_version = min_version.unwrap_or_default();
        Ok(ServerTls { mode, roots, identity, negotiation, channel_binding, min_version })
    }
}

/// Returns the hosts; those of the query go before those of the authority, and so do the ports.
fn server(place: &str, query: &Query) -> Result<ServerHosts, UpstreamUrlError> {
    let mut named = place.split(',').map(host_and_port).collect::<Result<Vec<_>, _>>()?;
    let mut ports = query.ports.clone();
    if let Some(hosts) = &query.host {
        let url_port = named.first().and_then(|(_, port)| *port);
        if ports.is_empty() {
            ports.extend(url_port);
        }
        let host = |host: &str| Some(host.to_owned()).filter(|host| !host.is_empty());
        named = hosts.split(',').map(|name| (host(name), None)).collect();
    }
    if ports.len() > 1 && ports.len() != named.len() {
        return Err(UpstreamUrlError("there are not as many ports as hosts"));
    }
    for (index, (_, port)) in named.iter_mut().enumerate() {
        *port = ports.get(index).or(ports.first()).copied().or(*port);
    }
    let address = |(host, port): (Option<String>, Option<u16>)| {
        let host = host.ok_or(UpstreamUrlError("there is no host"))?;
        Ok(server_address(host, port.unwrap_or(PORT)))
    };
    let hosts = named.into_iter().map(address).collect::<Result<_, _>>()?;
    Ok(ServerHosts { hosts, attributes: query.attributes, balance: query.balance })
}

fn server_address(host: String, port: u16) -> ServerAddress {
    if host.starts_with('/') {
        return ServerAddress::Unix(Path::new(&host).join(format!(".s.PGSQL.{port}")));
    }
    ServerAddress::Tcp(host, port)
}

fn host_and_port(place: &str) -> Result<(Option<String>, Option<u16>), UpstreamUrlError> {
    let (host, rest) = match place.strip_prefix('[') {
        Some(rest) => {
            rest.split_once(']').ok_or(UpstreamUrlError("the bracket after [ is missing"))?
        }
        None => place.split_at(place.find(':').unwrap_or(place.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(digits) if digits.contains(':') => {
            return Err(UpstreamUrlError("an IPv6 address stands in brackets, as in [::1]:5432"));
        }
        Some(digits) => Some(port(digits)?),
        None if rest.is_empty() => None,
        None => return Err(UpstreamUrlError("only a port may follow the bracket")),
    };
    Ok((decode(host)?, port))
}

fn port(digits: &str) -> Result<u16, UpstreamUrlError> {
    digits
        .parse()
        .ok()
        .filter(|&port| port > 0)
        .ok_or(UpstreamUrlError("the port is no number from 1 to 65535"))
}

/// `None` when it is empty.
fn decode(text: &str) -> Result<Option<String>, UpstreamUrlError> {
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| UpstreamUrlError("a part of the URL is not UTF-8 once decoded"))?;
    Ok(Some(decoded.into_owned()).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tcp(host: &str, port: u16) -> ServerAddress {
        ServerAddress::Tcp(host.into(), port)
    }

    fn unix(path: &str) -> ServerAddress {
        ServerAddress::Unix(path.into())
    }

    #[test]
    fn servers_are_found() {
        for (url, server) in [
            ("postgres://db.example", tcp("db.example", 5432)),
            ("postgresql://db.example:5433/", tcp("db.example", 5433)),
            ("postgres://a:b@10.0.0.1/d", tcp("10.0.0.1", 5432)),
            ("postgres://[::1]", tcp("::1", 5432)),
            ("postgres://a@[fe80::1]:5433/d", tcp("fe80::1", 5433)),
            ("postgres:///d?host=db&port=7", tcp("db", 7)),
            ("postgres:///d?host=/run/postgresql", unix("/run/postgresql/.s.PGSQL.5432")),
            ("postgres://a@%2Frun%2Fpg:7/d", unix("/run/pg/.s.PGSQL.7")),
            ("postgres://localhost/d?host=/run/pg&port=7", unix("/run/pg/.s.PGSQL.7")),
        ] {
            let found = url.parse::<UpstreamUrl>().unwrap().server;
            assert_eq!(found, ServerHosts::from(server), "{url}");
        }
    }

    #[test]
    fn lists_of_hosts_are_found() {
        let three = vec![tcp("a", 5432), tcp("::1", 7), unix("/run/pg/.s.PGSQL.5432")];
        for (url, hosts, shown) in [
            ("postgres://a,[::1]:7,%2Frun%2Fpg/d", three, "a:5432,[::1]:7,/run/pg/.s.PGSQL.5432"),
            ("postgres:///d?host=a,b&port=1,2", vec![tcp("a", 1), tcp("b", 2)], "a:1,b:2"),
            ("postgres:///d?host=a,b&port=1", vec![tcp("a", 1), tcp("b", 1)], "a:1,b:1"),
            ("postgres://u:p@a,b:2/d", vec![tcp("a", 5432), tcp("b", 2)], "a:5432,b:2"),
        ] {
            let found = url.parse::<UpstreamUrl>().unwrap().server;
            assert_eq!((found.to_string().as_str(), found.hosts), (shown, hosts), "{url}");
        }
        let url = "postgres://a,b?target_session_attrs=prefer-standby&load_balance_hosts=random";
        let found = url.parse::<UpstreamUrl>().unwrap().server;
        assert_eq!(found.attributes, SessionAttributes::PreferStandby);
        assert_eq!(found.balance, LoadBalance::Random);
        assert!(found.to_string().ends_with("attrs=prefer-standby&load_balance_hosts=random"));
    }

    #[test]
    fn names_and_passwords_are_found_and_decoded() {
        for (url, database, user, password) in [
            ("postgres://h", None, None, None),
            ("postgres://h/shop", Some("shop"), None, None),
            ("postgres://@h/", None, None, None),
            ("postgres://ann@h/a%2Fb", Some("a/b"), Some("ann"), None),
            ("postgres://ann:p%40s%3As%25@h/d", Some("d"), Some("ann"), Some("p@s:s%")),
            ("postgres://ann:p@s:s@h/d", Some("d"), Some("ann"), Some("p@s:s")),
            ("postgres://%C3%A4nn:@h/d", Some("d"), Some("änn"), None),
        ] {
            let found: UpstreamUrl = url.parse().unwrap();
            assert_eq!(found.database.as_deref(), database, "{url}");
            assert_eq!(found.user.as_deref(), user, "{url}");
            assert_eq!(found.password.as_deref(), password, "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, wrong) in [
            ("db.example:5432", "begin with postgres://"),
            ("mysql://h/d", "begin with postgres://"),
            ("postgres:///d", "no host"),
            ("postgres://a@:5432/d", "no host"),
            ("postgres://h:0/d", "1 to 65535"),
            ("postgres://h:65536/d", "1 to 65535"),
            ("postgres://h:/d", "1 to 65535"),
            ("postgres://::1/d", "brackets"),
            ("postgres://[::1/d", "bracket after ["),
            ("postgres://[::1]x/d", "follow the bracket"),
            ("postgres://h1,/d", "no host"),
            ("postgres:///d?host=a,b,c&port=1,2", "as many ports"),
            ("postgres://:secret@h/d", "no user"),
            ("postgres://a@h/d/e", "%2F"),
            ("postgres://a%ff@h/d", "UTF-8"),
            ("postgres://h/d?target_session_attrs=master", "target_session_attrs is"),
            ("postgres://h/d?load_balance_hosts=yes", "load_balance_hosts is"),
            ("postgres://h/d?options=-c", "only host, port"),
            ("postgres://h/d?sslmode=on", "sslmode is"),
            ("postgres://h/d?sslmode=verify-ca", "need sslrootcert"),
            ("postgres://h/d?sslmode=require&sslrootcert=system", "needs sslmode=verify-full"),
            ("postgres://h/d?sslcert=a.crt", "together"),
            ("postgres://h/d?sslnegotiation=direct", "needs sslmode=require"),
            ("postgres://h/d?sslmode=require&sslnegotiation=x", "postgres or direct"),
            ("postgres://h/d?channel_binding=1", "disable, prefer or require"),
            ("postgres://h/d?ssl_min_protocol_version=TLSv1", "TLSv1.2 or TLSv1.3"),
        ] {
            let error = url.parse::<UpstreamUrl>().unwrap_err().to_string();
            let (reason, _) = error.split_once(';').unwrap();
            assert!(reason.contains(wrong), "{url}: {error}");
        }
    }

    #[test]
    fn the_password_is_not_shown() {
        let url: UpstreamUrl = "postgres://ann:secret@h".parse().unwrap();
        assert_eq!(format!("{url:?}").find("secret"), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in "(postgres://)?[a-c:@/?&=%0-9\\[\\]é.]{0,30}") {
            let _ = text.parse::<UpstreamUrl>();
        }
    }
}
