//! Who may log in from where and how: files in the formats of PostgreSQL's `pg_hba.conf` and
//! `pg_ident.conf`.
//!
//! ```text
//! # type   databases  users        address        method         options
//! local    all        all                         peer           map=staff
//! hostssl  shop,till  "/^till_\d+" 10.1.0.0/16    scram-sha-256  clientcert=verify-ca
//! host     all        all          0.0.0.0/0      reject
//! ```
//!
//! The first line that fits a connection decides; where none fits the client is refused. Fields,
//! quotes, comments and continued lines are read as PostgreSQL reads them (`hba.c`, version 16).
//!
//! ```text
//! # map    user of the operating system, or common name    user of the database
//! staff    /^(.*)@example\.org$                            \1
//! ```
//!
//! # Limits
//! What the proxy cannot judge is refused with its line, so that no line means less than it says:
//! included files, groups of users (`+role`, `samerole`), host names, `samehost` and `samenet`, and
//! the methods that need another program. Regular expressions are those of the crate `regex-lite`:
//! PostgreSQL's without back references and look-around.

mod fields;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use regex_lite::Regex;
use thiserror::Error;

use crate::login::PasswordMethod;
use crate::network::Network;
use crate::reloaded::Reloaded;

use fields::{Field, Token, logical_lines};

/// A file that cannot be used.
#[derive(Debug, Error)]
pub enum HbaError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error("{path}, line {line}: {problem}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong.
        problem: LineProblem,
    },
    /// It would let nobody in.
    #[error("{0} has no entries: nobody could log in")]
    Empty(PathBuf),
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineProblem {
    /// A quote is not closed.
    #[error("a double quote is not closed")]
    Quote,
    /// A field is missing.
    #[error("the {0} is missing")]
    Missing(&'static str),
    /// A list where one value is expected.
    #[error("the {0} is one value, not a list")]
    List(&'static str),
    /// A field too many.
    #[error("{0:?} follows the last field")]
    Trailing(String),
    /// Something that the proxy cannot judge.
    #[error("{what} is not supported: {instead}")]
    NotSupported {
        /// What is not supported.
        what: String,
        /// What to write instead.
        instead: &'static str,
    },
    /// No type of connection.
    #[error("{0:?} is no connection type: local, host, hostssl or hostnossl")]
    Connection(String),
    /// No address.
    #[error(
        "{0:?} is no address: all, or an IP address with the number of its network's bits, as in \
         10.0.0.0/8"
    )]
    Address(String),
    /// No mask.
    #[error("{0:?} is no mask for this address, as in 255.0.0.0 for 10.0.0.0")]
    Mask(String),
    /// No method.
    #[error("{0:?} is no method: trust, reject, md5, scram-sha-256, cert or peer")]
    Method(String),
    /// A method where it has no meaning.
    #[error("{method} is only possible on lines of type {connection}")]
    MethodConnection {
        /// The method.
        method: &'static str,
        /// The types.
        connection: &'static str,
    },
    /// An option without a value.
    #[error("{0:?} is no option of the form name=value")]
    OptionForm(String),
    /// No such option, or not with this method.
    #[error(
        "option {0} is not one of map (with peer or cert), clientcert and clientname (hostssl)"
    )]
    Option(String),
    /// A value of an option that it has not.
    #[error("{value:?} is no value of option {name}: {allowed}")]
    OptionValue {
        /// The option.
        name: &'static str,
        /// The value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A regular expression is wrong.
    #[error("the regular expression {pattern:?} is wrong: {reason}")]
    Pattern {
        /// The expression.
        pattern: String,
        /// Why it cannot be used.
        reason: String,
    },
    /// A back reference to a group that there is not.
    #[error("{user:?} has \\1 and {pattern:?} has no parentheses for it")]
    NoGroup {
        /// The user of the database.
        user: String,
        /// The expression.
        pattern: String,
    },
    /// Certificates are demanded and clients are not asked for one.
    #[error("certificates of clients need client_tls.ca, their authorities")]
    NoAuthority,
    /// A map is named and there is no file with maps.
    #[error("map={0} needs auth_ident_file, the file with the map")]
    NoIdentFile(String),
}

/// How a connection comes, as the first field of a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    /// By a Unix-domain socket.
    Local,
    /// By TCP, encrypted or not.
    Host,
    HostSsl,
    HostNoSsl,
}

/// A database or a user in a list.
#[derive(Clone, Debug)]
enum Name {
    All,
    /// The database of the user's name.
    SameUser,
    /// Physical replication, which is of no database.
    Replication,
    Literal(String),
    Pattern(Regex),
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peers {
    All,
    Network(Network),
}

impl Peers {
    fn contains(self, peer: IpAddr) -> bool {
        match self {
            Peers::All => true,
            Peers::Network(network) => network.contains(peer),
        }
    }
}

/// What a line demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Trust,
    Reject,
    Password(PasswordMethod),
    /// A certificate that names the user, and nothing else.
    Certificate,
    /// The user of the operating system at the other end of a Unix-domain socket.
    Peer,
}

/// How far a line demands a certificate of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientCertificate {
    NotNeeded,
    /// One of the known authorities'.
    Verified,
    /// The same, and its common name may be the user.
    OfUser,
}

/// A line of an HBA file.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// The line's number, from 1.
    pub(crate) line: usize,
    connection: Connection,
    databases: Vec<Name>,
    users: Vec<Name>,
    peers: Peers,
    pub(crate) method: Method,
    pub(crate) certificate: ClientCertificate,
    /// The map from users of the operating system, or common names, to users of the database.
    pub(crate) map: Option<Arc<str>>,
}

/// A line of an ident file.
#[derive(Clone, Debug)]
struct Mapping {
    map: String,
    system_user: Name,
    user: Name,
}

/// A connection that asks to be let in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// Where it comes from; `None` is a Unix-domain socket.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) is_encrypted: bool,
    pub(crate) user: &'a str,
    pub(crate) database: &'a str,
    /// It is for physical replication.
    pub(crate) is_replication: bool,
}

/// As PostgreSQL describes it in its refusal.
impl fmt::Display for Request<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_replication {
            formatter.write_str("replication connection from ")?;
        }
        match self.peer {
            Some(peer) => write!(formatter, "host \"{peer}\"")?,
            None => write!(formatter, "host \"[local]\"")?,
        }
        write!(formatter, ", user \"{}\"", self.user)?;
        if !self.is_replication {
            write!(formatter, ", database \"{}\"", self.database)?;
        }
        formatter.write_str(if self.is_encrypted { ", SSL encryption" } else { ", no encryption" })
    }
}

/// What the files say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    mappings: Vec<Mapping>,
}

/// The HBA file, and the ident file if there is one; clones share them, also when they are read
/// again.
#[derive(Clone, Debug)]
pub struct Hba(Arc<Reloaded<Rules>>);

impl Hba {
    /// Reads the files. `has_authority` says that certificates of clients can be verified.
    ///
    /// # Errors
    /// A file cannot be read, or a line of it is wrong.
    pub fn load(hba: &Path, ident: Option<&Path>, has_authority: bool) -> Result<Hba, HbaError> {
        let (hba, ident) = (hba.to_owned(), ident.map(Path::to_owned));
        let files = [&hba].into_iter().chain(&ident).cloned().collect();
        let load = move |_: Option<&Rules>| {
            let ident = match &ident {
                Some(path) => Some((read(path)?, &**path)),
                None => None,
            };
            let ident = ident.as_ref().map(|(text, path)| (text.as_str(), *path));
            Rules::parse((&read(&hba)?, &hba), ident, has_authority)
        };
        Ok(Hba(Arc::new(Reloaded::new("the HBA file", files, load)?)))
    }

    /// Returns what the files say now.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.0.get()
    }

    /// Reads the files again if one has changed.
    pub(crate) fn reload(&self) {
        self.0.reload();
    }

    /// Reads the files again now.
    pub(crate) fn reread(&self) {
        self.0.reread();
    }
}

fn read(path: &Path) -> Result<String, HbaError> {
    std::fs::read_to_string(path).map_err(|source| HbaError::Read { path: path.to_owned(), source })
}

impl Rules {
    /// Reads the texts of an HBA file and an ident file; the paths are for the errors.
    pub(crate) fn parse(
        (hba, hba_path): (&str, &Path),
        ident: Option<(&str, &Path)>,
        has_authority: bool,
    ) -> Result<Rules, HbaError> {
        let rules = parse_lines(hba, hba_path, |line, fields| {
            let rule = rule(line, fields)?;
            if rule.certificate != ClientCertificate::NotNeeded && !has_authority {
                return Err(LineProblem::NoAuthority);
            }
            match &rule.map {
                Some(map) if ident.is_none() => Err(LineProblem::NoIdentFile(map.to_string())),
                _ => Ok(rule),
            }
        })?;
        if rules.is_empty() {
            return Err(HbaError::Empty(hba_path.to_owned()));
        }
        let mappings = match ident {
            Some((text, path)) => parse_lines(text, path, |_, fields| mapping(fields))?,
            None => Vec::new(),
        };
        Ok(Rules { rules, mappings })
    }

    /// Returns the first line that fits.
    pub(crate) fn first(&self, request: &Request<'_>) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.fits(request))
    }

    /// Returns the first line that asks for a password.
    pub(crate) fn first_with_password(&self) -> Option<&Rule> {
        self.rules.iter().find(|rule| matches!(rule.method, Method::Password(_)))
    }

    /// Returns whether somebody with this name elsewhere may be this user. Without a map the names
    /// have to be the same.
    pub(crate) fn may_be(&self, map: Option<&str>, system_user: &str, user: &str) -> bool {
        let Some(map) = map else { return system_user == user };
        let mut mappings = self.mappings.iter().filter(|mapping| mapping.map == map);
        mappings.any(|mapping| mapping.lets(system_user, user))
    }
}

impl Rule {
    fn fits(&self, request: &Request<'_>) -> bool {
        let comes_so = match (self.connection, request.peer) {
            (Connection::Local, peer) => peer.is_none(),
            (_, None) => false,
            (Connection::Host, Some(peer)) => self.peers.contains(peer),
            (Connection::HostSsl, Some(peer)) => request.is_encrypted && self.peers.contains(peer),
            (Connection::HostNoSsl, Some(peer)) => {
                !request.is_encrypted && self.peers.contains(peer)
            }
        };
        comes_so
            && self.databases.iter().any(|name| name.fits_database(request))
            && self.users.iter().any(|name| name.fits(request.user))
    }
}

impl Name {
    fn fits_database(&self, request: &Request<'_>) -> bool {
        match self {
            Name::Replication => request.is_replication,
            _ if request.is_replication => false,
            Name::SameUser => request.database == request.user,
            other => other.fits(request.database),
        }
    }

    fn fits(&self, text: &str) -> bool {
        match self {
            Name::All => true,
            Name::SameUser | Name::Replication => false,
            Name::Literal(name) => name == text,
            Name::Pattern(pattern) => pattern.is_match(text),
        }
    }
}

/// What stands for the first group of a regular expression in a user of the database.
const GROUP: &str = "\\1";

impl Mapping {
    fn lets(&self, system_user: &str, user: &str) -> bool {
        let Name::Pattern(pattern) = &self.system_user else {
            return self.system_user.fits(system_user) && self.user.fits(user);
        };
        let Some(found) = pattern.captures(system_user) else { return false };
        match &self.user {
            Name::Literal(name) if name.contains(GROUP) => {
                // A group that took no part in the match stands for nobody.
                let group = found.get(1).map(|group| group.as_str());
                group.is_some_and(|group| name.replacen(GROUP, group, 1) == user)
            }
            other => other.fits(user),
        }
    }
}

/// Reads the lines of a file.
fn parse_lines<T>(
    text: &str,
    path: &Path,
    mut parse: impl FnMut(usize, Fields) -> Result<T, LineProblem>,
) -> Result<Vec<T>, HbaError> {
    let mut parsed = Vec::new();
    for (line, text) in logical_lines(text) {
        let problem = |problem| HbaError::Line { path: path.to_owned(), line, problem };
        let fields = fields::fields(&text).map_err(problem)?;
        if fields.is_empty() {
            continue;
        }
        let fields = Fields(fields.into_iter());
        refuse_included(&fields).map_err(problem)?;
        parsed.push(parse(line, fields).map_err(problem)?);
    }
    Ok(parsed)
}

/// The fields of a line that have not been read.
struct Fields(std::vec::IntoIter<Field>);

impl Fields {
    /// Takes the next field, which is a list.
    fn list(&mut self, what: &'static str) -> Result<Vec<Token>, LineProblem> {
        self.0.next().ok_or(LineProblem::Missing(what))
    }

    /// Takes the next field, which is one value.
    fn one(&mut self, what: &'static str) -> Result<Token, LineProblem> {
        let mut tokens = self.list(what)?.into_iter();
        match (tokens.next(), tokens.next()) {
            (Some(token), None) => Ok(token),
            (None, _) => Err(LineProblem::Missing(what)),
            (Some(_), Some(_)) => Err(LineProblem::List(what)),
        }
    }
}

fn not_supported(what: &str, instead: &'static str) -> LineProblem {
    LineProblem::NotSupported { what: what.to_owned(), instead }
}

fn refuse_included(fields: &Fields) -> Result<(), LineProblem> {
    let first = fields.0.as_slice().first().and_then(|tokens| tokens.first());
    let directives = ["include", "include_if_exists", "include_dir"];
    if let Some(token) = first
        && directives.iter().any(|directive| token.is_keyword(directive))
    {
        return Err(not_supported(&token.text, "write the lines into this file"));
    }
    let is_file =
        |token: &&Token| !token.is_quoted && token.text.len() > 1 && token.text.starts_with('@');
    match fields.0.as_slice().iter().flatten().find(is_file) {
        Some(token) => Err(not_supported(&token.text, "write the names into this line")),
        None => Ok(()),
    }
}

/// Reads a line of an HBA file.
fn rule(line: usize, mut fields: Fields) -> Result<Rule, LineProblem> {
    let connection = connection(&fields.one("connection type")?)?;
    let databases = fields.list("database")?;
    let databases = databases.into_iter().map(database).collect::<Result<_, _>>()?;
    let users = fields.list("user")?;
    let users = users.into_iter().map(user).collect::<Result<_, _>>()?;
    let peers = match connection {
        Connection::Local => Peers::All,
        _ => peers(&mut fields)?,
    };
    let method = method(connection, &fields.one("method")?)?;
    let certificate = match method {
        Method::Certificate => ClientCertificate::OfUser,
        _ => ClientCertificate::NotNeeded,
    };
    let mut rule =
        Rule { line, connection, databases, users, peers, method, certificate, map: None };
    for token in fields.0.flatten() {
        option(&mut rule, &token.text)?;
    }
    Ok(rule)
}

fn connection(token: &Token) -> Result<Connection, LineProblem> {
    match &*token.text {
        "local" => Ok(Connection::Local),
        // No connection is encrypted by GSSAPI.
        "host" | "hostnogssenc" => Ok(Connection::Host),
        "hostssl" => Ok(Connection::HostSsl),
        "hostnossl" => Ok(Connection::HostNoSsl),
        "hostgssenc" => Err(not_supported(&token.text, "connections are encrypted by TLS")),
        other => Err(LineProblem::Connection(other.to_owned())),
    }
}

fn database(token: Token) -> Result<Name, LineProblem> {
    for keyword in ["samerole", "samegroup"] {
        if token.is_keyword(keyword) {
            return Err(not_supported(keyword, "the proxy knows no groups; list the databases"));
        }
    }
    if token.is_keyword("sameuser") {
        return Ok(Name::SameUser);
    }
    if token.is_keyword("replication") {
        return Ok(Name::Replication);
    }
    name(token)
}

fn user(token: Token) -> Result<Name, LineProblem> {
    if !token.is_quoted && token.text.starts_with('+') {
        return Err(not_supported(&token.text, "the proxy knows no groups; list the users"));
    }
    name(token)
}

/// Reads what databases and users have in common.
fn name(token: Token) -> Result<Name, LineProblem> {
    if token.is_keyword("all") {
        return Ok(Name::All);
    }
    match token.text.strip_prefix('/') {
        None => Ok(Name::Literal(token.text)),
        Some(pattern) => match Regex::new(pattern) {
            Ok(regex) => Ok(Name::Pattern(regex)),
            Err(error) => {
                Err(LineProblem::Pattern { pattern: pattern.to_owned(), reason: error.to_string() })
            }
        },
    }
}

/// Reads an address, with its mask in the same field or in the next.
fn peers(fields: &mut Fields) -> Result<Peers, LineProblem> {
    let token = fields.one("address")?;
    if token.is_keyword("all") {
        return Ok(Peers::All);
    }
    if token.is_keyword("samehost") || token.is_keyword("samenet") {
        return Err(not_supported(&token.text, "write the address or the network"));
    }
    let (address, bits) = match token.text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (&*token.text, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
        return Err(if bits.is_none() && token.text.chars().all(is_name) {
            not_supported(&format!("the host name {:?}", token.text), "write its address")
        } else {
            LineProblem::Address(token.text)
        });
    };
    if let Some(bits) = bits {
        let network = Network::of_prefix(address, bits).ok_or(LineProblem::Address(token.text))?;
        return Ok(Peers::Network(network));
    }
    let mask = fields.one("mask")?.text;
    match mask.parse::<IpAddr>() {
        Ok(parsed) if parsed.is_ipv4() == address.is_ipv4() => {
            Ok(Peers::Network(Network { address, mask: parsed }))
        }
        _ => Err(LineProblem::Mask(mask)),
    }
}

fn method(connection: Connection, token: &Token) -> Result<Method, LineProblem> {
    let only = |method, connection| LineProblem::MethodConnection { method, connection };
    match &*token.text {
        "trust" => Ok(Method::Trust),
        "reject" => Ok(Method::Reject),
        "md5" => Ok(Method::Password(PasswordMethod::Md5)),
        "scram-sha-256" => Ok(Method::Password(PasswordMethod::ScramSha256)),
        "cert" if connection == Connection::HostSsl => Ok(Method::Certificate),
        "cert" => Err(only("cert", "hostssl")),
        // PostgreSQL takes ident for peer there, too.
        "peer" | "ident" if connection == Connection::Local => Ok(Method::Peer),
        "peer" => Err(only("peer", "local")),
        "password" => {
            Err(not_supported("password", "it sends passwords in clear text; use scram-sha-256"))
        }
        other @ ("ident" | "gss" | "sspi" | "pam" | "ldap" | "radius" | "bsd" | "oauth") => {
            Err(not_supported(other, "use scram-sha-256, md5, cert or peer"))
        }
        other => Err(LineProblem::Method(other.to_owned())),
    }
}

/// Reads an option of a rule.
fn option(rule: &mut Rule, text: &str) -> Result<(), LineProblem> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| LineProblem::OptionForm(text.to_owned()))?;
    let is_ssl = rule.connection == Connection::HostSsl;
    let wrong = |name, allowed| LineProblem::OptionValue { name, value: value.to_owned(), allowed };
    match name {
        "map" if matches!(rule.method, Method::Peer | Method::Certificate) => {
            rule.map = Some(value.into());
        }
        "clientcert" if is_ssl => match value {
            "verify-full" => rule.certificate = ClientCertificate::OfUser,
            "verify-ca" if rule.method == Method::Certificate => {
                return Err(wrong("clientcert", "cert demands verify-full"));
            }
            "verify-ca" => rule.certificate = ClientCertificate::Verified,
            _ => return Err(wrong("clientcert", "verify-ca or verify-full")),
        },
        "clientname" if is_ssl => match value {
            "CN" => {}
            "DN" => return Err(not_supported("clientname=DN", "the common name is compared")),
            _ => return Err(wrong("clientname", "CN")),
        },
        _ => return Err(LineProblem::Option(name.to_owned())),
    }
    Ok(())
}

/// Reads a line of an ident file.
fn mapping(mut fields: Fields) -> Result<Mapping, LineProblem> {
    let map = fields.one("map name")?.text;
    // Here no word is a keyword.
    let system_user = Token { is_quoted: true, ..fields.one("user of the operating system")? };
    let pattern = system_user.text.clone();
    let system_user = name(system_user)?;
    let user = user(fields.one("user of the database")?)?;
    if let Some(more) = fields.0.flatten().next() {
        return Err(LineProblem::Trailing(more.text));
    }
    if let (Name::Pattern(regex), Name::Literal(user)) = (&system_user, &user)
        && user.contains(GROUP)
        && regex.captures_len() < 2
    {
        return Err(LineProblem::NoGroup { user: user.clone(), pattern });
    }
    Ok(Mapping { map, system_user, user })
}

#[cfg(test)]
mod tests;
