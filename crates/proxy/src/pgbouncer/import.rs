//! From `pgbouncer.ini` to `tidegate.toml`.
//!
//! Defaults of PgBouncer that differ from ours are written out where they change what clients see:
//! session pooling, MD5 logins, the socket in `/tmp`. Where ours is kept, a note says so.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::net::IpAddr;
use std::path::Path;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::ini::{self, Entry, ImportError};
use super::settings::{Fate, Place, fate};

/// Something that has not been carried over as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Where it is written, as `file:line`; empty for a default.
    pub origin: String,
    /// The setting.
    pub setting: String,
    /// What to know, or to do.
    pub text: String,
    /// Whether something has to be done.
    pub is_to_be_done: bool,
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Note { origin, setting, text, .. } = self;
        let colon = if origin.is_empty() { "" } else { ": " };
        write!(formatter, "{origin}{colon}{setting}: {text}")
    }
}

/// A configuration of Tidegate, made from one of PgBouncer.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The text of `tidegate.toml`.
    pub toml: String,
    /// What has not been carried over as it was, in the order of the file.
    pub notes: Vec<Note>,
}

/// Reads a configuration of PgBouncer, with the files it includes, and returns Tidegate's.
///
/// # Errors
/// A file cannot be read, or a line of it makes no sense.
pub fn import(path: &Path) -> Result<Imported, ImportError> {
    let mut importer = Importer::default();
    let entries = ini::read(path)?;
    for entry in &entries {
        match &*entry.section {
            "pgbouncer" => importer.take_global(entry),
            "databases" => importer.databases.push(entry.clone()),
            "users" => importer.users.push(entry.clone()),
            "peers" => importer.peers.push(entry.clone()),
            other => importer.note(entry, false, format!("the section [{other}] is unknown")),
        }
    }
    let toml = importer.write(path);
    Ok(Imported { toml, notes: importer.notes })
}

#[derive(Default)]
struct Importer {
    /// The global settings that are set.
    global: BTreeMap<String, Entry>,
    databases: Vec<Entry>,
    users: Vec<Entry>,
    peers: Vec<Entry>,
    notes: Vec<Note>,
}

/// Returns a TOML string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(character);
            }
            _ if character.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(character));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

fn list(values: impl IntoIterator<Item = String>) -> String {
    let quoted: Vec<String> = values.into_iter().map(|value| quoted(&value)).collect();
    format!("[{}]", quoted.join(", "))
}

/// Returns the names of a list with commas.
fn names(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned)
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Returns an absolute path: PgBouncer's start from its working directory, ours from the file.
fn absolute(path: &str) -> String {
    let absolute = std::path::absolute(path);
    absolute.map_or_else(|_| path.to_owned(), |path| path.display().to_string())
}

/// Returns a time in Tidegate's form; `None` if it is no number.
fn period(seconds: &str, is_optional: bool) -> Option<String> {
    let seconds: f64 = seconds.parse().ok()?;
    if seconds < 0.0 || !seconds.is_finite() {
        return None;
    }
    if seconds == 0.0 {
        return is_optional.then(|| "none".to_owned());
    }
    Some(format!("{:.0}ms", seconds * 1000.0).replace("000ms", "s"))
}

impl Importer {
    fn note(&mut self, entry: &Entry, is_to_be_done: bool, text: impl Into<String>) {
        let (origin, setting, text) = (entry.origin.clone(), entry.key.clone(), text.into());
        self.notes.push(Note { origin, setting, text, is_to_be_done });
    }

    fn note_default(&mut self, setting: &str, text: &str) {
        let (origin, setting, text) = (String::new(), setting.to_owned(), text.to_owned());
        self.notes.push(Note { origin, setting, text, is_to_be_done: false });
    }

    /// Notes what becomes of a setting. Returns whether it is carried over.
    fn judge(&mut self, entry: &Entry, name: &str, place: Place) -> bool {
        let entry = Entry { key: name.to_owned(), ..entry.clone() };
        match fate(name, place) {
            Some(Fate::Becomes(_)) => return true,
            Some(Fate::NotNeeded(why)) => self.note(&entry, false, format!("not needed: {why}")),
            Some(Fate::Missing(what)) => self.note(&entry, true, format!("left out: {what}")),
            None => self.note(&entry, true, "unknown to PgBouncer 1.25: left out"),
        }
        false
    }

    fn take_global(&mut self, entry: &Entry) {
        if self.judge(entry, &entry.key, Place::Global) {
            self.global.insert(entry.key.clone(), entry.clone());
        }
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.global.get(key).map(|entry| &*entry.value)
    }

    fn write(&mut self, path: &Path) -> String {
        let mut toml = format!(
            "# Made by `tidegate import {}`. docs/tidegate.toml shows every key.\n\n",
            path.display().to_string().replace(char::is_control, "?")
        );
        self.write_listen(&mut toml);
        self.write_logins(&mut toml);
        for (key, ours) in [
            ("max_client_conn", "max_clients"),
            ("max_prepared_statements", "prepared_statements_max"),
        ] {
            self.write_number(&mut toml, key, ours);
        }
        self.write_timeouts(&mut toml);
        self.write_client_tls(&mut toml);
        self.write_peers(&mut toml);
        self.write_users(&mut toml);
        self.write_databases(&mut toml);
        toml
    }

    /// Writes a number above zero; zero is PgBouncer's word for none.
    fn write_number(&mut self, toml: &mut String, key: &str, ours: &str) {
        let Some(entry) = self.global.get(key).cloned() else { return };
        match entry.value.parse::<u32>() {
            Ok(0) => self.note(&entry, false, "0: left out, Tidegate's default holds"),
            Ok(number) => {
                let _ = writeln!(toml, "{ours} = {number}");
            }
            Err(_) => self.note(&entry, true, "it is no number: left out"),
        }
    }

    fn write_listen(&mut self, toml: &mut String) {
        let port = self.value("listen_port").unwrap_or("6432").to_owned();
        let mut listen = Vec::new();
        if let Some(entry) = self.global.get("listen_addr").cloned() {
            for address in names(&entry.value) {
                match (&*address, address.parse::<IpAddr>()) {
                    ("*", _) => listen.push(format!("0.0.0.0:{port}")),
                    ("localhost", _) => listen.push(format!("127.0.0.1:{port}")),
                    (_, Ok(IpAddr::V6(address))) => listen.push(format!("[{address}]:{port}")),
                    (_, Ok(IpAddr::V4(address))) => listen.push(format!("{address}:{port}")),
                    (name, Err(_)) => {
                        let text = format!("{name:?} is a name: `listen` needs its address");
                        self.note(&entry, true, text);
                    }
                }
            }
            if entry.value.trim() == "*" {
                self.note(&entry, false, "IPv4 only: write \"[::]:PORT\" for both families");
            }
        }
        let directory = self.value("unix_socket_dir").unwrap_or("/tmp").to_owned();
        if directory.starts_with('@') {
            let entry = self.global.get("unix_socket_dir").cloned();
            if let Some(entry) = entry {
                self.note(&entry, true, "abstract sockets are not supported: left out");
            }
        } else if !directory.is_empty() {
            listen.push(format!("{}/.s.PGSQL.{port}", directory.trim_end_matches('/')));
        }
        let _ = writeln!(toml, "listen = {}", list(listen));
        let _ = writeln!(toml, "# Serves /metrics, /healthz and /readyz.");
        let _ = writeln!(toml, "# admin_listen = \"127.0.0.1:9432\"");
    }

    fn write_logins(&mut self, toml: &mut String) {
        let asked = self.value("auth_type").unwrap_or("md5").to_owned();
        let auth = match &*asked {
            "md5" | "scram-sha-256" | "trust" | "cert" | "hba" => &*asked,
            "any" => "trust",
            _ => "scram-sha-256",
        };
        if let Some(entry) = self.global.get("auth_type").cloned().filter(|_| auth != asked) {
            let text = format!("{asked:?} does not exist: {auth:?} is written in its place");
            self.note(&entry, true, text);
        }
        let _ = writeln!(toml, "auth = {}", quoted(auth));
        let mut files = vec![("auth_file", "users_file")];
        if auth == "hba" {
            files.extend([
                ("auth_hba_file", "auth_hba_file"),
                ("auth_ident_file", "auth_ident_file"),
            ]);
        }
        for (key, ours) in files {
            if let Some(path) = self.value(key).filter(|path| !path.is_empty()) {
                let _ = writeln!(toml, "{ours} = {}", quoted(&absolute(path)));
            }
        }
        for key in ["admin_users", "stats_users"] {
            if let Some(users) = self.value(key).filter(|users| !users.is_empty()) {
                let _ = writeln!(toml, "{key} = {}", list(names(users)));
            }
        }
    }

    fn write_timeouts(&mut self, toml: &mut String) {
        let mut lines = String::new();
        let timeouts = [
            ("client_login_timeout", "login", false),
            ("query_wait_timeout", "queue", true),
            ("idle_transaction_timeout", "idle_in_transaction", true),
            ("client_idle_timeout", "client_idle", true),
            ("transaction_timeout", "transaction", true),
            ("server_connect_timeout", "connect", false),
            ("server_idle_timeout", "server_idle", false),
            ("server_lifetime", "server_lifetime", true),
            ("server_check_delay", "health_check_after", true),
        ];
        for (key, ours, is_optional) in timeouts {
            let Some(entry) = self.global.get(key).cloned() else { continue };
            if let Some(period) = period(&entry.value, is_optional) {
                let _ = writeln!(lines, "{ours} = {}", quoted(&period));
            } else {
                let text = format!("{:?}: left out, Tidegate's default holds", entry.value);
                self.note(&entry, true, text);
            }
        }
        if !self.global.contains_key("idle_transaction_timeout") {
            let text = "not set: Tidegate ends clients that are idle in a transaction for 60 s; \
                        timeouts.idle_in_transaction = \"none\" allows it as PgBouncer does";
            self.note_default("idle_transaction_timeout", text);
        }
        if !lines.is_empty() {
            let _ = write!(toml, "\n[timeouts]\n{lines}");
        }
    }

    fn write_client_tls(&mut self, toml: &mut String) {
        let mode = match self.value("client_tls_sslmode") {
            None | Some("disable") => return,
            Some("allow") => "prefer".to_owned(),
            Some(mode) => mode.to_owned(),
        };
        let _ = writeln!(toml, "\n[client_tls]\nmode = {}", quoted(&mode));
        let files = [
            ("client_tls_cert_file", "certificate"),
            ("client_tls_key_file", "key"),
            ("client_tls_ca_file", "ca"),
        ];
        for (key, ours) in files {
            if let Some(path) = self.value(key).filter(|path| !path.is_empty()) {
                let _ = writeln!(toml, "{ours} = {}", quoted(&absolute(path)));
            }
        }
        if let Some(version) = self.value("client_tls_protocols").map(lowest_version) {
            let _ = writeln!(toml, "min_version = {}", quoted(version));
        }
    }

    fn write_peers(&mut self, toml: &mut String) {
        let Some(entry) = self.global.get("peer_id").cloned().filter(|it| it.value != "0") else {
            return;
        };
        match entry.value.parse::<u8>() {
            Ok(id @ 1..=63) => drop(writeln!(toml, "\n[peers]\nid = {id}")),
            _ => return self.note(&entry, true, "peers.id is from 1 to 63: number them anew"),
        }
        let mut addresses = Vec::new();
        for peer in std::mem::take(&mut self.peers) {
            let pairs = ini::pairs(&peer.value).unwrap_or_default();
            let get = |wanted: &str| {
                pairs.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.clone())
            };
            let port = get("port").unwrap_or_else(|| "6432".to_owned());
            let host = get("host").unwrap_or_default();
            if host.starts_with('/') {
                addresses.push(format!(
                    "{} = {}",
                    peer.key,
                    quoted(&format!("{host}/.s.PGSQL.{port}"))
                ));
            } else if let Ok(address) = host.parse::<IpAddr>() {
                let address = std::net::SocketAddr::new(address, port.parse().unwrap_or(6432));
                addresses.push(format!("{} = {}", peer.key, quoted(&address.to_string())));
            } else {
                self.note(&peer, true, "peers.addresses needs an IP address or a socket: left out");
            }
        }
        if !addresses.is_empty() {
            let _ = writeln!(toml, "addresses = {{ {} }}", addresses.join(", "));
        }
    }

    fn write_users(&mut self, toml: &mut String) {
        for entry in std::mem::take(&mut self.users) {
            let Some(pairs) = ini::pairs(&entry.value) else {
                self.note(&entry, true, "the line cannot be read: left out");
                continue;
            };
            let (mut lines, mut timeouts) = (String::new(), Vec::new());
            for (key, value) in pairs {
                if !self.judge(&entry, &key, Place::User) {
                    continue;
                }
                let number = value.parse::<u32>().ok().filter(|&number| number > 0);
                match (&*key, number, period(&value, true)) {
                    ("max_user_connections", Some(number), _) => {
                        let _ = writeln!(lines, "max_connections = {number}");
                    }
                    ("max_user_client_connections", Some(number), _) => {
                        let _ = writeln!(lines, "max_clients = {number}");
                    }
                    (_, _, Some(period)) => timeouts.extend(client_timeout(&key, &period)),
                    _ => {}
                }
            }
            if !timeouts.is_empty() {
                let _ = writeln!(lines, "timeouts = {{ {} }}", timeouts.join(", "));
            }
            if !lines.is_empty() {
                let _ = write!(toml, "\n[users.{}]\n{lines}", quoted(&entry.key));
            }
        }
    }

    fn write_databases(&mut self, toml: &mut String) {
        for entry in std::mem::take(&mut self.databases) {
            match ini::pairs(&entry.value) {
                Some(pairs) => self.write_database(toml, &entry, pairs),
                None => self.note(&entry, true, "the connection string cannot be read: left out"),
            }
        }
    }

    fn write_database(&mut self, toml: &mut String, entry: &Entry, pairs: Vec<(String, String)>) {
        let mut own = BTreeMap::new();
        for (key, value) in pairs {
            if self.judge(entry, &key, Place::Database) {
                own.insert(key, value);
            }
        }
        let get = |key: &str| own.get(key).map(|value| &**value).filter(|it| !it.is_empty());
        let global = |key: &str| {
            get(key).or_else(|| self.value(key)).filter(|it| !it.is_empty()).map(str::to_owned)
        };
        let mut lines = format!("upstream = {}\n", quoted(&self.upstream(&own)));
        let mode = global("pool_mode").unwrap_or_else(|| "session".to_owned());
        let ours = if mode == "session" { "session" } else { "transaction" };
        let _ = writeln!(lines, "mode = {}", quoted(ours));
        let numbers = [
            ("min_pool_size", "min_connections"),
            ("max_db_connections", "max_database_connections"),
            ("max_db_client_connections", "max_clients"),
        ];
        for (key, ours) in numbers {
            let is_possible = key != "min_pool_size" || mode != "session";
            let number = global(key).and_then(|value| value.parse::<u32>().ok());
            if let Some(number) = number.filter(|&number| number > 0 && is_possible) {
                let _ = writeln!(lines, "{ours} = {number}");
            }
        }
        let auth_user = global("auth_user");
        if let Some(user) = &auth_user {
            let _ = writeln!(lines, "auth_user = {}", quoted(user));
            for (key, ours) in [("auth_query", "auth_query"), ("auth_dbname", "auth_database")] {
                if let Some(value) = global(key) {
                    let _ = writeln!(lines, "{ours} = {}", quoted(&value));
                }
            }
        }
        if let Some(queue) = get("query_wait_timeout").and_then(|value| period(value, true)) {
            let _ = writeln!(lines, "timeouts = {{ queue = {} }}", quoted(&queue));
        }
        let _ = write!(toml, "\n[databases.{}]\n{lines}", quoted(&entry.key));
        if auth_user.is_some() {
            let text = "auth_user needs its password in plain text in the users file, or in \
                        auth_password";
            self.note(entry, true, text);
        }
        if mode == "statement" {
            let text = "pool_mode = statement does not exist: transaction is written in its place";
            self.note(entry, true, text);
        }
    }

    /// Returns the URL of a database.
    fn upstream(&self, own: &BTreeMap<String, String>) -> String {
        let get = |key: &str| own.get(key).map(|value| &**value).filter(|it| !it.is_empty());
        let login = match (get("user"), get("password")) {
            (Some(user), Some(password)) => format!("{}:{}@", encoded(user), encoded(password)),
            (Some(user), None) => format!("{}@", encoded(user)),
            (None, _) => String::new(),
        };
        let sockets = self.value("unix_socket_dir").unwrap_or("/tmp");
        let host = get("host").unwrap_or(sockets);
        let ports: Vec<&str> = get("port").unwrap_or("5432").split(',').collect();
        let mut parameters = Vec::new();
        let place = if host.starts_with('/') {
            parameters.push(format!("host={}", encoded(host)));
            parameters.push(format!("port={}", ports[0].trim()));
            String::new()
        } else {
            let place = |(index, host): (usize, &str)| {
                let port = ports.get(index).or(ports.first()).map_or("5432", |port| port.trim());
                let host = host.trim();
                if host.contains(':') {
                    format!("[{host}]:{port}")
                } else {
                    format!("{host}:{port}")
                }
            };
            host.split(',').enumerate().map(place).collect::<Vec<_>>().join(",")
        };
        let is_balanced = host.contains(',') && get("load_balance_hosts") != Some("disable");
        if is_balanced {
            parameters.push("load_balance_hosts=random".to_owned());
        }
        if let Some(attributes) = get("target_session_attrs") {
            parameters.push(format!("target_session_attrs={attributes}"));
        }
        parameters.extend(self.server_tls());
        let database = get("dbname").map(encoded).unwrap_or_default();
        let query = if parameters.is_empty() {
            String::new()
        } else {
            format!("?{}", parameters.join("&"))
        };
        format!("postgres://{login}{place}/{database}{query}")
    }

    fn server_tls(&self) -> Vec<String> {
        let mut parameters = Vec::new();
        match self.value("server_tls_sslmode") {
            // The default of both.
            None | Some("prefer") => {}
            Some("allow") => parameters.push("sslmode=prefer".to_owned()),
            Some(mode) => parameters.push(format!("sslmode={mode}")),
        }
        let files = [
            ("server_tls_ca_file", "sslrootcert"),
            ("server_tls_cert_file", "sslcert"),
            ("server_tls_key_file", "sslkey"),
        ];
        for (key, parameter) in files {
            if let Some(path) = self.value(key).filter(|path| !path.is_empty()) {
                parameters.push(format!("{parameter}={}", encoded(&absolute(path))));
            }
        }
        if let Some(version) = self.value("server_tls_protocols").map(lowest_version) {
            parameters.push(format!("ssl_min_protocol_version=TLSv{version}"));
        }
        parameters
    }
}

/// Returns the lowest of the versions that are listed and still secure.
fn lowest_version(protocols: &str) -> &'static str {
    if protocols.contains("1.2") || !protocols.contains("1.3") { "1.2" } else { "1.3" }
}

/// Returns a timeout of a user as it is written in ours.
fn client_timeout(key: &str, period: &str) -> Option<String> {
    let ours = match key {
        "query_wait_timeout" => "queue",
        "idle_transaction_timeout" => "idle_in_transaction",
        "transaction_timeout" => "transaction",
        "client_idle_timeout" => "client_idle",
        _ => return None,
    };
    Some(format!("{ours} = {}", quoted(period)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClientAuthentication, PoolMode};
    use crate::config_file::ConfigFile;
    use std::time::Duration;

    fn imported(ini: &str) -> (Imported, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pgbouncer.ini");
        std::fs::write(&path, ini.replace("DIR", directory.path().to_str().unwrap())).unwrap();
        (import(&path).unwrap(), directory)
    }

    const INI: &str = "
;; a comment
[databases]
shop = host=db.example port=5433 dbname=store user=app password='p@ss ''w'''
local =
pair = host=a,b port=5432 load_balance_hosts=disable pool_mode=session pool_size=7
* = host=127.0.0.1
[users]
backup = pool_mode=session max_user_connections=2 idle_transaction_timeout=0
[peers]
2 = host=10.0.0.2
3 = host=/run/b port=6433
[pgbouncer]
listen_addr = 127.0.0.1, ::1
listen_port = 7000
unix_socket_dir = /run/sock
auth_type = scram-sha-256
auth_file = DIR/userlist.txt
admin_users = boss, root
stats_users = watcher
pool_mode = transaction
max_client_conn = 500
default_pool_size = 20
query_wait_timeout = 30
server_lifetime = 0
client_idle_timeout = 1.5
server_tls_sslmode = require
peer_id = 1
logfile = /var/log/x
nonsense = 1
%include DIR/more.ini
";

    #[test]
    fn a_configuration_is_carried_over() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().to_str().unwrap();
        std::fs::write(directory.path().join("userlist.txt"), "\"boss\" \"secret\"\n").unwrap();
        std::fs::write(directory.path().join("more.ini"), "min_pool_size = 3\n").unwrap();
        let path = directory.path().join("pgbouncer.ini");
        std::fs::write(&path, INI.replace("DIR", at)).unwrap();
        let imported = import(&path).unwrap();
        let toml_path = directory.path().join("tidegate.toml");
        std::fs::write(&toml_path, &imported.toml).unwrap();
        let config = ConfigFile::read(&toml_path).and_then(ConfigFile::into_config);
        let config = config.unwrap_or_else(|error| panic!("{error}\n{}", imported.toml));
        let listen: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
        assert_eq!(listen, ["127.0.0.1:7000", "[::1]:7000", "/run/sock/.s.PGSQL.7000"]);
        assert_eq!(config.authentication, ClientAuthentication::ScramSha256);
        assert_eq!(config.admin_users, ["boss", "root"]);
        assert_eq!(config.max_clients, Some(500));
        assert_eq!(config.timeouts.client.queue, Some(Duration::from_secs(30)));
        assert_eq!(config.timeouts.client.client_idle, Some(Duration::from_millis(1500)));
        assert_eq!(config.timeouts.server_lifetime, None);
        let find = |name: Option<&str>| {
            config.databases.iter().find(|it| it.name.as_deref() == name).unwrap()
        };
        let shop = find(Some("shop"));
        assert_eq!(shop.server.to_string(), "db.example:5433");
        assert_eq!(shop.server_password.as_deref(), Some("p@ss 'w'"));
        assert_eq!(shop.server_database.as_deref(), Some("store"));
        assert_eq!((shop.mode, shop.limits.min_connections), (PoolMode::Transaction, 3));
        assert_eq!(find(Some("local")).server.to_string(), "/run/sock/.s.PGSQL.5432");
        let pair = find(Some("pair"));
        assert_eq!(pair.server.to_string(), "a:5432,b:5432");
        assert_eq!(pair.mode, PoolMode::Session);
        assert_eq!(find(None).server.to_string(), "127.0.0.1:5432");
        assert_eq!(config.user_settings["backup"].max_connections, Some(2));
        assert_eq!(config.peers.id, 1);
        assert_eq!(config.peers.addresses[&2].to_string(), "10.0.0.2:6432");
        let to_do: Vec<&str> = imported
            .notes
            .iter()
            .filter(|note| note.is_to_be_done)
            .map(|note| &*note.setting)
            .collect();
        assert_eq!(to_do, ["default_pool_size", "nonsense", "pool_mode", "pool_size"]);
        assert!(imported.notes.iter().any(|note| note.setting == "logfile"));
    }

    #[test]
    fn what_does_not_exist_here_is_said() {
        let ini = "[databases]\na = host=h connect_query='SELECT 1'\nb = host\n[pgbouncer]\n\
                   auth_type = pam\npool_mode = statement\nlisten_addr = db.example\n\
                   so_reuseport = 1\npeer_id = 9999\n";
        let (imported, _directory) = imported(ini);
        let notes: Vec<String> = imported.notes.iter().map(ToString::to_string).collect();
        for words in [
            "connect_query: left out: set it on the server",
            "b: the connection string cannot be read",
            "auth_type: \"pam\" does not exist: \"scram-sha-256\" is written",
            "a: pool_mode = statement does not exist",
            "listen_addr: \"db.example\" is a name",
            "so_reuseport: left out: `threads`",
            "peer_id: peers.id is from 1 to 63",
        ] {
            assert!(notes.iter().any(|note| note.contains(words)), "{words}: {notes:#?}");
        }
    }

    #[test]
    fn files_that_cannot_be_read_are_named() {
        let missing = import(Path::new("/nowhere/pgbouncer.ini")).unwrap_err().to_string();
        assert!(missing.starts_with("/nowhere/pgbouncer.ini: cannot read it"), "{missing}");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.ini");
        std::fs::write(&path, "[databases]\nabc\n").unwrap();
        let error = import(&path).unwrap_err().to_string();
        assert!(error.ends_with("a.ini: line 2: there is no ="), "{error}");
        std::fs::write(&path, format!("%include {}\n", path.display())).unwrap();
        let error = import(&path).unwrap_err().to_string();
        assert!(error.contains("too deep"), "{error}");
    }
}
