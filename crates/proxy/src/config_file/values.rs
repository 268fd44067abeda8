//! The values of the configuration that are written as strings, and what is allowed there.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use thiserror::Error;

use crate::config::{
    ClientAuthentication, ListenAddress, LoadBalance, LogFormat, PoolMode, ServerAddress,
    ServerHosts, SessionAttributes, SessionStateCheck, SessionStatePolicy, SslMode, TlsVersion,
};
use crate::scheduling::ClassChoice;
use crate::upstream_url::UpstreamUrl;

/// A value that is not among the allowed ones.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{value:?} is not {allowed}")]
pub struct ValueError {
    value: String,
    allowed: &'static str,
}

impl ValueError {
    pub(crate) fn new(value: &str, allowed: &'static str) -> ValueError {
        ValueError { value: value.to_owned(), allowed }
    }
}

impl FromStr for ListenAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text.starts_with('/') {
            return Ok(ListenAddress::Unix(text.into()));
        }
        text.parse().map(ListenAddress::Tcp).map_err(|_| {
            let allowed = "an IP address with a port, as in 127.0.0.1:6432 or [::]:6432, \
                           or the path of a Unix-domain socket, as in /run/tidegate/.s.PGSQL.6432";
            ValueError::new(text, allowed)
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => address.fmt(formatter),
            ListenAddress::Unix(path) => path.display().fmt(formatter),
        }
    }
}

impl FromStr for PoolMode {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "transaction" => Ok(PoolMode::Transaction),
            "session" => Ok(PoolMode::Session),
            _ => Err(ValueError::new(text, "transaction or session")),
        }
    }
}

impl fmt::Display for PoolMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            PoolMode::Transaction => "transaction",
            PoolMode::Session => "session",
        })
    }
}

impl FromStr for LogFormat {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            "journald" => Ok(LogFormat::Journald),
            _ => Err(ValueError::new(text, "text, json or journald")),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
            LogFormat::Journald => "journald",
        })
    }
}

impl FromStr for SessionStatePolicy {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "pin" => Ok(SessionStatePolicy::Pin),
            "warn" => Ok(SessionStatePolicy::Warn),
            "refuse" => Ok(SessionStatePolicy::Refuse),
            _ => Err(ValueError::new(text, "pin, warn or refuse")),
        }
    }
}

impl FromStr for SessionStateCheck {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "noticed" => Ok(SessionStateCheck::Noticed),
            "always" => Ok(SessionStateCheck::Always),
            _ => Err(ValueError::new(text, "noticed or always")),
        }
    }
}

impl FromStr for ClientAuthentication {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "trust" => Ok(ClientAuthentication::Trust),
            "md5" => Ok(ClientAuthentication::Md5),
            "scram-sha-256" => Ok(ClientAuthentication::ScramSha256),
            "cert" => Ok(ClientAuthentication::Certificate),
            "hba" => Ok(ClientAuthentication::Hba),
            _ => Err(ValueError::new(text, "trust, md5, scram-sha-256, cert or hba")),
        }
    }
}

impl fmt::Display for ClientAuthentication {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ClientAuthentication::Trust => "trust",
            ClientAuthentication::Md5 => "md5",
            ClientAuthentication::ScramSha256 => "scram-sha-256",
            ClientAuthentication::Certificate => "cert",
            ClientAuthentication::Hba => "hba",
        })
    }
}

/// A length of time above zero: `30s`, `500ms`, `1m 30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(pub Duration);

impl FromStr for Period {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match humantime::parse_duration(text) {
            Ok(duration) if !duration.is_zero() => Ok(Period(duration)),
            _ => Err(ValueError::new(text, "a time above zero with its unit, as in 30s or 500ms")),
        }
    }
}

/// A [`Period`], or `none` for as long as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionalPeriod(pub Option<Duration>);

impl FromStr for OptionalPeriod {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "none" {
            return Ok(OptionalPeriod(None));
        }
        if let Ok(Period(duration)) = text.parse() {
            return Ok(OptionalPeriod(Some(duration)));
        }
        let allowed = "a time above zero with its unit, as in 30s or 500ms, or none";
        Err(ValueError::new(text, allowed))
    }
}

/// A [`Period`], or `off` for no time at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodOrOff(pub Duration);

impl FromStr for PeriodOrOff {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "off" {
            return Ok(PeriodOrOff(Duration::ZERO));
        }
        if let Ok(Period(duration)) = text.parse() {
            return Ok(PeriodOrOff(duration));
        }
        let allowed = "a time above zero with its unit, as in 30s or 500ms, or off";
        Err(ValueError::new(text, allowed))
    }
}

/// The words for `target_session_attrs`.
const ATTRIBUTES: [(&str, SessionAttributes); 6] = [
    ("any", SessionAttributes::Any),
    ("read-write", SessionAttributes::ReadWrite),
    ("read-only", SessionAttributes::ReadOnly),
    ("primary", SessionAttributes::Primary),
    ("standby", SessionAttributes::Standby),
    ("prefer-standby", SessionAttributes::PreferStandby),
];

impl FromStr for SessionAttributes {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let found = ATTRIBUTES.iter().find(|(name, _)| *name == text);
        found.map(|(_, attributes)| *attributes).ok_or_else(|| {
            let allowed = "any, read-write, read-only, primary, standby or prefer-standby";
            ValueError::new(text, allowed)
        })
    }
}

impl fmt::Display for SessionAttributes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = ATTRIBUTES.iter().find(|(_, attributes)| attributes == self);
        formatter.write_str(known.map_or("", |(name, _)| name))
    }
}

/// The hosts, and what is asked of them unless that is nothing: two servers never look the same.
impl fmt::Display for ServerHosts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, host) in self.hosts.iter().enumerate() {
            write!(formatter, "{}{host}", if index == 0 { "" } else { "," })?;
        }
        if self.attributes != SessionAttributes::Any {
            write!(formatter, "?target_session_attrs={}", self.attributes)?;
        }
        if self.balance == LoadBalance::Random {
            let is_first = self.attributes == SessionAttributes::Any;
            write!(formatter, "{}load_balance_hosts=random", if is_first { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Tcp(host, port) if host.contains(':') => {
                write!(formatter, "[{host}]:{port}")
            }
            ServerAddress::Tcp(host, port) => write!(formatter, "{host}:{port}"),
            ServerAddress::Unix(path) => path.display().fmt(formatter),
        }
    }
}

/// Where the admin interface listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminAddress(pub SocketAddr);

impl FromStr for AdminAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let allowed = "an IP address with a port, as in 127.0.0.1:9432";
        text.parse().map(AdminAddress).map_err(|_| ValueError::new(text, allowed))
    }
}

fn parsed<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
{
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

/// Returns a value of a foreign type, in a key that is there.
pub(super) fn written<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: Display>,
{
    parsed(deserializer).map(Some)
}

/// Reads a time; a number gets the answer that the unit is missing.
fn time<'de, D: Deserializer<'de>, T>(deserializer: D, or: &'static str) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
{
    struct Time<T>(&'static str, std::marker::PhantomData<T>);

    impl<T: FromStr<Err: Display>> serde::de::Visitor<'_> for Time<T> {
        type Value = T;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Time(or, _) = self;
            write!(formatter, "a time with its unit in quotes, as in \"30s\" or \"500ms\"{or}")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
            Err(E::custom(format!(
                "{number} has no unit: write \"{number}s\" for seconds{}",
                self.0
            )))
        }
    }

    deserializer.deserialize_any(Time(or, std::marker::PhantomData))
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        time(deserializer, "")
    }
}

impl<'de> Deserialize<'de> for PeriodOrOff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        time(deserializer, ", or \"off\"")
    }
}

impl<'de> Deserialize<'de> for OptionalPeriod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        time(deserializer, ", or \"none\"")
    }
}

/// Makes types that are read from a string readable from a TOML string.
macro_rules! deserialize_from_str {
    ($($type:ty),*) => { $(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                parsed(deserializer)
            }
        }
    )* };
}

deserialize_from_str!(
    AdminAddress,
    ListenAddress,
    LogFormat,
    PoolMode,
    SessionStatePolicy,
    SessionStateCheck,
    ClassChoice,
    ClientAuthentication,
    UpstreamUrl,
    SslMode,
    TlsVersion
);
