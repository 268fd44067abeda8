//! The configuration as written, in `tidegate.toml` or by flags, and how it becomes a [`Config`].
//!
//! [`ConfigFile`] has a field for each key of the file, `None` where the file is silent. Flags are
//! put into the same fields, over the file's, so that both are judged by the same rules.
//! `docs/tidegate.toml` shows every key with its default.
//!
//! | module | what it has |
//! | --- | --- |
//! | `sections.rs` | the sections, a field for each key |
//! | `values.rs` | how values are written: periods, addresses |
//! | `defaults.rs` | what holds where nothing is said |
//! | `scheduling.rs` | what the keys about classes say together |
//! | `authentication.rs` | what the keys about logins say together |
//! | `overrides.rs` | settings that the console's SET puts over the file |
//! | `error.rs` | what can be wrong |

use std::collections::{BTreeMap, HashMap};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use tidegate_control::{Algorithm, Bounds, ControlChoice, Mpl, Resources, Setting};
use tidegate_gate::Classes;

use crate::config::{
    AuthQuery, ClientAuthentication, ClientTimeouts, ClientTls, Config, Control, Database,
    DatabaseLimits, ListenAddress, PoolMode, ServerHosts, SslMode, Timeouts, UserSettings,
    WatchLogin,
};
use crate::hba::Hba;
pub use crate::peers::{PeersError, PeersSection};
pub use crate::timeouts::ClientTimeoutsSection;
pub use crate::upstream_url::UpstreamUrl;
use crate::users::Users;

mod authentication;
pub mod defaults;
mod error;
mod overrides;
mod scheduling;
mod sections;
mod values;

pub use error::{ConfigError, ConfigProblem};
pub use overrides::{Override, OverrideError};
pub use sections::{
    ClassSection, ClientTlsSection, ConfigFile, DatabaseSection, HighPrioritySection,
    SchedulingSection, TimeoutsSection, UserSection,
};
pub use values::{AdminAddress, OptionalPeriod, Period, PeriodOrOff, ValueError};

impl ConfigFile {
    /// Reads the file at `path`. Paths in it are relative to its directory.
    ///
    /// # Errors
    /// It cannot be read or understood. What needs more than one key to be judged is left to
    /// [`ConfigFile::into_config`].
    pub fn read(path: &Path) -> Result<ConfigFile, ConfigError> {
        Self::read_with(path, &[])
    }

    /// Reads the file at `path`, and settings over it.
    ///
    /// # Errors
    /// See [`ConfigFile::read`].
    pub fn read_with(path: &Path, over: &[Override]) -> Result<ConfigFile, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(ConfigProblem::Read);
        text.and_then(|text| Self::parse(&text, over, path))
            .map_err(|problem| ConfigError { origin: path.display().to_string(), problem })
    }

    pub(crate) fn parse(
        text: &str,
        over: &[Override],
        path: &Path,
    ) -> Result<ConfigFile, ConfigProblem> {
        let mut file: ConfigFile =
            toml::from_str(text).map_err(|error| toml_problem(text, &error))?;
        if !over.is_empty() {
            file = overrides::read(text, over)?;
        }
        let directory = path.parent().unwrap_or(Path::new(""));
        let ClientTlsSection { certificate, key, ca, .. } = &mut file.client_tls;
        let (hba, ident) = (&mut file.auth_hba_file, &mut file.auth_ident_file);
        let (journal, token) = (&mut file.journal, &mut file.admin_token_file);
        let paths = [&mut file.users_file, hba, ident, journal, token, certificate, key, ca];
        for path in paths.into_iter().flatten() {
            *path = directory.join(&*path);
        }
        for database in file.databases.values_mut() {
            database.upstream.tls.resolve_paths(directory);
        }
        file.path = Some(path.to_owned());
        Ok(file)
    }

    /// Returns the checked configuration.
    ///
    /// # Errors
    /// Keys contradict each other, a needed one is missing, or the user file cannot be used.
    pub fn into_config(self) -> Result<Config, ConfigError> {
        let origin = match &self.path {
            Some(path) => path.display().to_string(),
            None => "command line".to_owned(),
        };
        self.check().map_err(|problem| ConfigError { origin, problem })
    }

    fn check(self) -> Result<Config, ConfigProblem> {
        let listen = self.listen.unwrap_or_else(|| vec![ListenAddress::Tcp(defaults::LISTEN)]);
        if listen.is_empty() {
            return Err(ConfigProblem::NoListen);
        }
        let users = match &self.users_file {
            Some(path) => Users::load(path)?,
            None => Users::none()?,
        };
        let client_tls = self.client_tls.check()?;
        let known = authentication::KnownUsers::of(self.users_file.as_deref(), &self.databases);
        let authentication = authentication::method(self.auth, known, &listen)?;
        let are_verified = client_tls.as_ref().is_some_and(|tls| tls.mode >= SslMode::VerifyCa);
        if authentication == ClientAuthentication::Certificate && !are_verified {
            return Err(ConfigProblem::CertificateLogin);
        }
        let timeouts = self.timeouts.over(defaults::TIMEOUTS);
        let has_authority = client_tls.as_ref().is_some_and(|tls| tls.ca.is_some());
        let files = (self.auth_hba_file.as_deref(), self.auth_ident_file.as_deref());
        let hba = authentication::hba(authentication, files, known, has_authority)?;
        let scheduling = scheduling::Sections {
            scheduling: &self.scheduling,
            classes: &self.classes,
            high_priority: &self.high_priority,
            users: &self.users,
            databases: &self.databases,
        }
        .check()?;
        Ok(Config {
            listen,
            admin_listen: self.admin_listen.map(|AdminAddress(address)| address),
            admin_token_file: self.admin_token_file,
            admin_hosts: self.admin_hosts,
            log_format: self.log_format,
            threads: self.threads.unwrap_or(defaults::THREADS),
            databases: databases(self.databases, &users, timeouts.client, &scheduling.classes)?,
            authentication,
            admin_users: self.admin_users,
            stats_users: self.stats_users,
            client_tls,
            max_clients: self.max_clients.map(NonZeroU32::get),
            users,
            hba,
            logins_max: self.max_logins,
            peers: self.peers.check()?,
            user_settings: user_settings(self.users),
            timeouts,
            waiting_max: self.waiting_max.map_or(defaults::WAITING_MAX, NonZeroUsize::get),
            prepared_statements_max: self
                .prepared_statements_max
                .map_or(defaults::PREPARED_STATEMENTS_MAX, NonZeroUsize::get),
            scheduling,
            journal: self.journal,
            seed: self.seed.unwrap_or(defaults::SEED),
        })
    }
}

impl ClientTlsSection {
    /// Returns how TLS is offered to clients, if it is.
    fn check(self) -> Result<Option<ClientTls>, ConfigProblem> {
        let is_named = self.certificate.is_some() || self.key.is_some() || self.ca.is_some();
        let mode = self.mode.unwrap_or(if is_named { SslMode::Prefer } else { SslMode::Disable });
        if mode == SslMode::Disable {
            return Ok(None);
        }
        if mode >= SslMode::VerifyCa && self.ca.is_none() {
            return Err(ConfigProblem::ClientTlsCa(mode));
        }
        let named =
            |path: Option<PathBuf>, missing| path.ok_or(ConfigProblem::ClientTlsFile { missing });
        Ok(Some(ClientTls {
            mode,
            certificate: named(self.certificate, "certificate")?,
            key: named(self.key, "key")?,
            ca: self.ca,
            min_version: self.min_version.unwrap_or_default(),
            ciphers: self.ciphers,
        }))
    }
}

impl TimeoutsSection {
    /// These times, and those of `defaults` where there are none.
    fn over(self, defaults: Timeouts) -> Timeouts {
        let period = |own: Option<Period>, default| own.map_or(default, |Period(time)| time);
        let patience =
            |own: Option<OptionalPeriod>, default| own.map_or(default, |OptionalPeriod(time)| time);
        Timeouts {
            client: ClientTimeoutsSection {
                login: self.login,
                queue: self.queue,
                idle_in_transaction: self.idle_in_transaction,
                client_idle: self.client_idle,
                transaction: self.transaction,
            }
            .over(defaults.client),
            message: period(self.message, defaults.message),
            connect: period(self.connect, defaults.connect),
            abandoned: period(self.abandoned, defaults.abandoned),
            server_idle: period(self.server_idle, defaults.server_idle),
            server_lifetime: patience(self.server_lifetime, defaults.server_lifetime),
            server_down: self.server_down.map_or(defaults.server_down, |PeriodOrOff(time)| time),
            health_check_after: patience(self.health_check_after, defaults.health_check_after),
            health_check: period(self.health_check, defaults.health_check),
            unreachable: patience(self.unreachable, defaults.unreachable),
            drain_delay: self.drain_delay.map_or(defaults.drain_delay, |PeriodOrOff(time)| time),
            shutdown_grace: period(self.shutdown_grace, defaults.shutdown_grace),
        }
    }
}

/// Returns the line an error of the TOML reader points at, in one line and without passwords.
fn toml_problem(text: &str, error: &toml::de::Error) -> ConfigProblem {
    // An error about the whole file has no span; one at its end is behind the last line.
    let start = error.span().map_or(0, |span| span.start);
    let line = text.bytes().take(start).filter(|&byte| byte == b'\n').count();
    let shown = text.lines().nth(line).unwrap_or_default().trim();
    let hidden = ["://", "watch_password", "auth_password"];
    let hidden = hidden.into_iter().find_map(|what| Some((shown.split_once(what)?.0, what)));
    let shown = hidden.map_or(shown.to_owned(), |(before, what)| format!("{before}{what}…"));
    let message = error.message().trim().replace('\n', ", ");
    ConfigProblem::Toml { line: line + 1, text: shown, message }
}

/// Returns whether other machines can reach an address.
fn is_open(address: &ListenAddress) -> bool {
    match address {
        ListenAddress::Tcp(address) => !address.ip().to_canonical().is_loopback(),
        ListenAddress::Unix(_) => false,
    }
}

/// Returns what is said of users; a section that says nothing is left out.
fn user_settings(sections: BTreeMap<String, UserSection>) -> HashMap<String, UserSettings> {
    let settings = |(name, section)| {
        let UserSection { max_connections, max_clients, timeouts, .. } = section;
        let max_connections = max_connections.map(NonZeroU32::get);
        let max_clients = max_clients.map(NonZeroU32::get);
        (name, UserSettings { max_connections, max_clients, timeouts })
    };
    let says_something = |(_, settings): &(_, UserSettings)| *settings != UserSettings::default();
    sections.into_iter().map(settings).filter(says_something).collect()
}

fn databases(
    sections: BTreeMap<String, DatabaseSection>,
    users: &Users,
    timeouts: ClientTimeouts,
    classes: &Classes,
) -> Result<Vec<Database>, ConfigProblem> {
    if sections.is_empty() {
        return Err(ConfigProblem::NoDatabase);
    }
    let mut controls: HashMap<ServerHosts, (String, Control)> = HashMap::new();
    let mut connections: HashMap<ServerHosts, (String, u32)> = HashMap::new();
    let mut databases = Vec::with_capacity(sections.len());
    for (name, section) in sections {
        let database = database(&name, section, (users, classes), timeouts)?;
        match controls.get(&database.server) {
            Some((first, control)) if *control != database.control => {
                let (first, server) = (first.clone(), database.server);
                return Err(ConfigProblem::ControlConflict { first, second: name, server });
            }
            Some(_) => {}
            None => {
                controls.insert(database.server.clone(), (name.clone(), database.control));
            }
        }
        if let Some(max) = database.limits.max_connections {
            let server = database.server.clone();
            let (first, other) = connections.entry(server).or_insert((name.clone(), max));
            if *other != max {
                let (first, server) = (first.clone(), database.server);
                return Err(ConfigProblem::ConnectionsConflict { first, second: name, server });
            }
        }
        databases.push((name, database));
    }
    let watched = |server: &ServerHosts| {
        databases.iter().any(|(_, other)| other.server == *server && other.watch.is_some())
    };
    for (name, Database { control, server, .. }) in &databases {
        if control.algorithm.needs_locks() && !watched(server) {
            let (database, control) = (name.clone(), control.choice().to_string());
            return Err(ConfigProblem::NotWatched { database, control });
        }
    }
    Ok(databases.into_iter().map(|(_, database)| database).collect())
}

fn database(
    name: &str,
    section: DatabaseSection,
    (users, classes): (&Users, &Classes),
    timeouts: ClientTimeouts,
) -> Result<Database, ConfigProblem> {
    if name.is_empty() {
        return Err(ConfigProblem::EmptyDatabaseName);
    }
    let control = control(name, &section, classes)?;
    let watch = watch(name, &section)?;
    let limits = limits(name, &section)?;
    let auth_query = authentication::auth_query(name, &section, users)?;
    Ok(Database {
        name: (name != "*").then(|| name.to_owned()),
        server: section.upstream.server,
        tls: section.upstream.tls,
        server_database: section.upstream.database,
        server_user: section.upstream.user,
        server_password: section.upstream.password,
        mode: section.mode.unwrap_or(defaults::MODE),
        limits,
        timeouts: section.timeouts.over(timeouts),
        session_state: section.session_state.unwrap_or_default(),
        session_state_check: section.session_state_check.unwrap_or_default(),
        control,
        watch,
        auth_query,
    })
}

/// Returns how many connections there may be for a database.
fn limits(name: &str, section: &DatabaseSection) -> Result<DatabaseLimits, ConfigProblem> {
    let limits = DatabaseLimits {
        max_connections: section.max_connections.map(NonZeroU32::get),
        max_database_connections: section.max_database_connections.map(NonZeroU32::get),
        max_connections_per_user: section.max_connections_per_user.map(NonZeroU32::get),
        max_clients: section.max_clients.map(NonZeroU32::get),
        min_connections: section.min_connections.unwrap_or(0),
    };
    let min = limits.min_connections;
    if min > 0 && section.mode == Some(PoolMode::Session) {
        return Err(ConfigProblem::MinConnectionsOfSessions(name.to_owned()));
    }
    let bounds = [
        ("max_connections", limits.max_connections),
        ("max_database_connections", limits.max_database_connections),
        ("max_connections_per_user", limits.max_connections_per_user),
    ];
    for (key, max) in bounds {
        if let Some(max) = max.filter(|&max| min > max) {
            return Err(ConfigProblem::MinConnections { database: name.to_owned(), min, key, max });
        }
    }
    Ok(limits)
}

/// Whom to be to watch the server, if it is to be watched: a user of its own, or the upstream's.
fn watch(name: &str, section: &DatabaseSection) -> Result<Option<WatchLogin>, ConfigProblem> {
    if !section.watch.unwrap_or(defaults::WATCH) {
        return Ok(None);
    }
    let upstream = &section.upstream;
    let user = section.watch_user.as_ref().or(upstream.user.as_ref());
    let user = user.ok_or_else(|| ConfigProblem::WatchUser(name.to_owned()))?.clone();
    let upstream_password =
        upstream.password.as_ref().filter(|_| upstream.user.as_ref() == Some(&user));
    let password = section.watch_password.as_ref().or(upstream_password).cloned();
    Ok(Some(WatchLogin { user, password }))
}

fn control(
    name: &str,
    section: &DatabaseSection,
    classes: &Classes,
) -> Result<Control, ConfigProblem> {
    let level =
        |own: Option<NonZeroU32>, default| Mpl::at_least_one(own.map_or(default, NonZeroU32::get));
    let min = level(section.min_mpl, defaults::MPL_MIN);
    // Only a highest limit that somebody wrote can be too low.
    let max = level(section.max_mpl, defaults::MPL_MAX.max(min.get()));
    let bounds = Bounds::new(min, max)
        .map_err(|error| ConfigProblem::Bounds { database: name.to_owned(), error })?;
    let choice = section.control.unwrap_or(defaults::ALGORITHM.into());
    let ControlChoice { algorithm, is_observing } = choice;
    let resources = Resources {
        cpus: section.cpus.map_or_else(processors, NonZeroU32::get),
        disks: section.disks.unwrap_or(defaults::DISKS),
    };
    let is_fixed = is_observing || matches!(algorithm, Algorithm::Fixed(_));
    if is_fixed && section.start_mpl.is_some() {
        let database = name.to_owned();
        return Err(ConfigProblem::FixedStart { database, control: choice.to_string() });
    }
    let (key, start) = match (algorithm, section.start_mpl) {
        (Algorithm::Fixed(limit), _) => ("control = fixed:N, N", limit),
        (_, Some(start)) => ("start_mpl", Mpl::at_least_one(start.get())),
        (_, None) => {
            let start = algorithm.own_start(resources).unwrap_or_else(default_start);
            ("start_mpl", bounds.clamp(start))
        }
    };
    if bounds.clamp(start) != start {
        return Err(ConfigProblem::Start { database: name.to_owned(), key, start, bounds });
    }
    let keep = section.keep;
    if let (true, Some(keep)) = (is_observing, keep) {
        let (database, control) = (name.to_owned(), choice.to_string());
        let keep = keep.to_string();
        return Err(ConfigProblem::KeepObserving { database, keep, control });
    }
    let kept = keep.map(|keep| keep.of(classes)).transpose();
    let keep = kept.map_err(|error| {
        let (database, error) = (name.to_owned(), Box::new(error));
        ConfigProblem::Keep { database, error }
    })?;
    Ok(Control {
        algorithm,
        is_observing,
        keep,
        arms: None,
        setting: Setting { bounds, start, resources },
    })
}

fn default_start() -> Mpl {
    Mpl::at_least_one(processors().saturating_mul(defaults::MPL_START_PER_PROCESSOR))
}

/// Returns the number of this machine's processors; 1 if the system does not tell.
fn processors() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    u32::try_from(processors).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
