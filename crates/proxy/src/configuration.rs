//! From a configuration to what serves it: servers with their gates, entries, TLS, and where users
//! are looked up.
//!
//! A configuration that follows another takes over what is the same, so that a reload disturbs only
//! what it changes:
//!
//! | what | is the same if | else |
//! | --- | --- | --- |
//! | [`Server`]: gate, limit, hosts | its address is | a new one begins; what is left of it stays |
//! | index of an [`Entry`] | it connects alike | a new index: connections are replaced |
//! | connectors, acceptor | what is written about TLS is | the files are read |
//! | the admin interface's token | the file's path is | the file is read |
//! | [`Lookups`] | server, TLS and query are | they ask anew |
//! | users | the file's path is | the file is read |

use std::sync::Arc;
use std::time::Instant;

use tidegate_gate::{Gate, KeptGoal, Limits};

use crate::StartError;
use crate::accounts::Accounts;
use crate::admin::AdminToken;
use crate::auth_query::{self, Lookups};
use crate::commands::Commands;
use crate::config::{ClientAuthentication, Config, Database, ServerAddress, SslMode};
use crate::console::ConsoleState;
use crate::control_thread::ControlledServer;
use crate::descriptors;
use crate::handover::Handover;
use crate::mailbox::Mailbox;
use crate::shared::{Connectors, Entry, Server, Shared};
use crate::slots::DatabaseIndex;
use crate::system_users::SystemUsers;
use crate::tls::settings::{self as tls_settings, TlsSettingsError};
use crate::watch::ServerSamples;

/// What outlasts a configuration.
pub(crate) struct Lasting {
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) mailboxes: Vec<Arc<Mailbox>>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) console: Arc<ConsoleState>,
    pub(crate) handover: Arc<Handover>,
}

impl Lasting {
    /// Returns what this configuration has of it.
    pub(crate) fn of(shared: &Shared) -> Lasting {
        Lasting {
            accounts: Arc::clone(&shared.accounts),
            mailboxes: shared.mailboxes.clone(),
            commands: Arc::clone(&shared.commands),
            console: Arc::clone(&shared.console),
            handover: Arc::clone(&shared.handover),
        }
    }
}

/// Makes what serves a configuration, beside or after the one before. Nothing that serves is
/// changed. Blocks while names are looked up.
///
/// # Errors
/// A server has no address, TLS cannot be set up, or a thread cannot be started.
pub(crate) fn build(
    mut config: Config,
    before: Option<&Shared>,
    lasting: Lasting,
) -> Result<Shared, StartError> {
    if let Some(before) = before.filter(|it| it.config.users.is_of_same_file(&config.users)) {
        config.users = before.config.users.clone();
    }
    let servers = servers(&config, before, &lasting.accounts)?;
    let acceptor = match before {
        Some(before) if before.config.client_tls == config.client_tls => before.acceptor.clone(),
        _ => config.client_tls.as_ref().map(tls_settings::acceptor).transpose()?.map(Arc::new),
    };
    let admin_token = match before {
        Some(before) if before.config.admin_token_file == config.admin_token_file => {
            before.admin_token.clone()
        }
        _ => config.admin_token_file.as_deref().map(AdminToken::watched).transpose()?,
    };
    let known_users = before.and_then(|before| before.system_users.clone());
    let by_system = config.authentication == ClientAuthentication::Hba;
    let system_users = match known_users {
        None if by_system => Some(Arc::new(SystemUsers::start(lasting.mailboxes.clone())?)),
        known => known,
    };
    let mut shared = Shared {
        generation: before.map_or(0, |before| before.generation + 1),
        config,
        entries: Vec::new(),
        entries_made: before.map_or(0, |before| before.entries_made),
        servers,
        acceptor,
        admin_token,
        system_users,
        accounts: lasting.accounts,
        mailboxes: lasting.mailboxes,
        commands: lasting.commands,
        console: lasting.console,
        handover: lasting.handover,
    };
    for index in 0..shared.config.databases.len() {
        let entry = entry(&mut shared, index, before)?;
        shared.entries.push(Arc::new(entry));
    }
    Ok(shared)
}

/// Makes the entry of a configured database, after those before it.
fn entry(shared: &mut Shared, index: usize, before: Option<&Shared>) -> Result<Entry, StartError> {
    let database = shared.config.databases[index].clone();
    let server = shared.servers.iter().map(|it| &it.server);
    let mut server = server.filter(|server| server.address == database.server);
    let Some(server) = server.next().cloned() else {
        // Each configured database has a server.
        return Err(std::io::Error::other("a database without a server").into());
    };
    let former = before.map_or(&[][..], |before| &before.entries);
    let known = former.iter().find(|known| connects_alike(&known.database, &database));
    let (index, connectors) = if let Some(known) = known {
        (known.index, Arc::clone(&known.connectors))
    } else {
        shared.entries_made += 1;
        (DatabaseIndex(shared.entries_made - 1), connectors(&database)?)
    };
    let is_same_file = |before: &Shared| before.config.users.is_of_same_file(&shared.config.users);
    let former = if before.is_some_and(is_same_file) { former } else { &[] };
    let others = shared.entries.iter().chain(former).filter_map(|it| it.lookups.as_ref());
    let of_entry = (&database, &server, &connectors);
    let lookups = auth_query::lookups(&shared.config.users, of_entry, others);
    Ok(Entry { index, database, server, connectors, lookups })
}

/// Returns whether connections of one are as good for the other. How long a connection belongs to a
/// client is the client's.
fn connects_alike(one: &Database, other: &Database) -> bool {
    let identity = |it: &Database| {
        let Database { name, server, tls, .. } = it.clone();
        let Database { server_database, server_user, server_password, .. } = it.clone();
        (name, server, tls, server_database, server_user, server_password)
    };
    identity(one) == identity(other)
}

/// Reads what TLS with each host of a database's server needs.
fn connectors(database: &Database) -> Result<Connectors, TlsSettingsError> {
    let connector = |host: &ServerAddress| match host {
        ServerAddress::Tcp(host, _) if database.tls.mode != SslMode::Disable => {
            tls_settings::connector(&database.tls, host).map(Some)
        }
        _ => Ok(None),
    };
    let connectors: Result<Vec<_>, _> = database.server.hosts.iter().map(connector).collect();
    connectors.map(Arc::new)
}

/// Returns the distinct servers of a configuration, each with a gate, and those of the one before
/// that are still in use.
fn servers(
    config: &Config,
    before: Option<&Shared>,
    accounts: &Accounts,
) -> Result<Vec<ControlledServer>, StartError> {
    let former = before.map_or(&[][..], |before| &before.servers);
    let mut servers: Vec<ControlledServer> = Vec::new();
    for database in &config.databases {
        let is_it = |it: &&ControlledServer| it.server.address == database.server;
        if servers.iter().any(|it| is_it(&it)) {
            continue;
        }
        let known = former.iter().find(is_it);
        let server = match known {
            Some(known) => Arc::clone(&known.server),
            None => Arc::new(server(config, database, accounts)?),
        };
        let mut of_server = config.databases.iter().filter(|it| it.server == database.server);
        let cpus = database.control.setting.resources.cpus;
        let samples = known
            .filter(|known| known.control.setting.resources.cpus == cpus)
            .and_then(|known| known.samples.clone());
        let samples = of_server
            .any(|it| it.watch.is_some())
            .then(|| samples.unwrap_or_else(|| Arc::new(ServerSamples::new(cpus))));
        let name = database.server.to_string();
        let (control, is_retired) = (database.control, false);
        servers.push(ControlledServer { name, server, control, samples, is_retired });
    }
    for known in former {
        let is_configured = servers.iter().any(|it| it.server.index == known.server.index);
        if !is_configured && known.server.is_in_use(accounts) {
            servers.push(ControlledServer { samples: None, is_retired: true, ..known.clone() });
        }
    }
    Ok(servers)
}

/// Makes a server and its gate.
fn server(config: &Config, database: &Database, accounts: &Accounts) -> Result<Server, StartError> {
    let limits = Limits {
        mpl: database.control.controller().start(),
        mpl_max: database.control.setting.bounds.max(),
        waiting_max: config.waiting_max,
    };
    let classes = Arc::clone(&config.scheduling.classes);
    let gate = Gate::with_classes(limits, classes, Instant::now());
    let index = accounts.number_of(&database.server);
    // Pauses are random so that proxies do not try in step.
    let seed = config.seed ^ (u64::from(std::process::id()) << 32) ^ index.0 as u64;
    Server::new((index, database.server.clone()), gate, seed)
        .map_err(|source| StartError::Resolve { server: database.server.clone(), source })
}

/// Tells gates and accounts of the bounds of a configuration: it is about to be in force.
pub(crate) fn apply(shared: &Shared) {
    let (config, accounts, now) = (&shared.config, &shared.accounts, Instant::now());
    accounts.configure(config);
    for ControlledServer { server, control, samples, is_retired, .. } in &shared.servers {
        if *is_retired {
            continue;
        }
        accounts.configure_server(config, server, samples.is_some());
        server.gate.set_bounds(control.setting.bounds.max(), config.waiting_max, now);
        let classes = Arc::clone(&config.scheduling.classes);
        if let Err(error) = server.gate.set_classes(classes, now) {
            // A reload keeps those that need a restart.
            tracing::error!(%error, server = %server.address, "the classes stay as they were");
        }
        if let Some(KeptGoal { class, goal }) = control.keep {
            server.gate.count_late(class, goal.goal.within);
        }
        server.set_unreachable(config.timeouts.unreachable);
    }
    descriptors::check_again(shared);
}

/// Returns the lookups of a configuration, each once.
pub(crate) fn distinct_lookups(shared: &Shared) -> Vec<Arc<Lookups>> {
    let mut distinct: Vec<Arc<Lookups>> = Vec::new();
    for lookups in shared.entries.iter().filter_map(|entry| entry.lookups.as_ref()) {
        if !distinct.iter().any(|known| Arc::ptr_eq(known, lookups)) {
            distinct.push(Arc::clone(lookups));
        }
    }
    distinct
}
