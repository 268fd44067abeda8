//! The rows of PgBouncer's SHOW commands.
//!
//! Columns and their types are PgBouncer's 1.24. What has no counterpart here is 0 or NULL:
//! reserve pools, `sv_used`, DNS zones. Connections that are being closed are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use super::protocol::PGBOUNCER_VERSION;
use super::table::{Cell, Table, row};
use crate::capacity::Bound;
use crate::commands::Hold;
use crate::config::{Database, LoadBalance, PoolMode, ServerAddress};
use crate::config_listing::{default_timeouts, settings_in_force};
use crate::inventory::{ClientActivity, ClientRow, Inventory, PoolRow, ServerActivity, ServerRow};
use crate::reload::RESTART_NEEDED;
use crate::replication::Replication;
use crate::shared::{Entry, Shared};

/// Returns a moment as PgBouncer writes it.
pub(super) fn timestamp(moment: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(moment).to_string();
    text.replace('T', " ").replace('Z', " UTC")
}

/// SHOW VERSION.
pub(super) fn version() -> Table {
    let mut table = Table::new("s", &["version"]);
    let own = env!("CARGO_PKG_VERSION");
    table.push(row![format!("Tidegate {own} (console of PgBouncer {PGBOUNCER_VERSION})")]);
    table
}

/// SHOW STATE.
pub(super) fn state(shared: &Shared) -> Table {
    let mut table = Table::new("ss", &["key", "value"]);
    let hold = shared.commands.hold_of_all();
    for (key, is_it) in
        [("active", Hold::None), ("paused", Hold::Paused), ("suspended", Hold::Suspended)]
    {
        table.push(row![key, if hold == is_it { "yes" } else { "no" }]);
    }
    table
}

/// SHOW CONFIG: our settings, and those of PgBouncer that monitoring reads.
pub(super) fn config(shared: &Shared) -> Table {
    let mut table = Table::new("ssss", &["key", "value", "default", "changeable"]);
    let clients = shared.accounts.clients.occupancy(&Bound::All);
    let max = clients.map_or(0, |it| if it.max == u32::MAX { 0 } else { it.max });
    let no_default = None::<&str>;
    table.push(row!["max_client_conn", max, no_default, "yes"]);
    table.push(row!["max_user_connections", 0_u32, "0", "no"]);
    table.push(row!["stats_period", crate::traffic::PERIOD.as_secs(), "60", "no"]);
    let defaults: BTreeMap<String, String> = default_timeouts().into_iter().collect();
    for (key, value) in settings_in_force(&shared.config) {
        let default = defaults.get(&key).cloned();
        // By RELOAD.
        let changeable = if RESTART_NEEDED.contains(&&*key) { "no" } else { "yes" };
        table.push(row![key, value, default, changeable]);
    }
    table
}

/// SHOW PEERS.
pub(super) fn peers(shared: &Shared) -> Table {
    let mut table = Table::new("isii", &["peer_id", "host", "port", "pool_size"]);
    for (id, address) in &shared.config.peers.addresses {
        let (host, port) = match address {
            crate::config::ListenAddress::Tcp(address) => {
                (address.ip().to_string(), address.port())
            }
            crate::config::ListenAddress::Unix(path) => (path.display().to_string(), 0),
        };
        table.push(row![*id, host, port, 0_u32]);
    }
    table
}

/// SHOW `PEER_POOLS`: there are none, since each cancel request has a connection of its own.
pub(super) fn peer_pools() -> Table {
    let names = [
        "peer_id",
        "cl_active_cancel_req",
        "cl_waiting_cancel_req",
        "sv_active_cancel",
        "sv_login",
    ];
    Table::new("iiiii", &names)
}

/// SHOW `DNS_HOSTS`: the hosts that are named, and how long until the next look-up at most.
pub(super) fn dns_hosts(shared: &Shared) -> Table {
    let mut table = Table::new("sqs", &["hostname", "ttl", "addrs"]);
    for (name, addresses) in names(shared) {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        table.push(row![name, None::<u64>, addresses.join(",")]);
    }
    table
}

fn names(shared: &Shared) -> BTreeMap<String, Vec<std::net::IpAddr>> {
    let mut names = BTreeMap::new();
    for server in shared.servers.iter().map(|it| &it.server) {
        for (host, address) in server.address.hosts.iter().enumerate() {
            if let ServerAddress::Tcp(name, _) = address
                && address.is_named()
            {
                names.insert(name.clone(), server.hosts.addresses(host));
            }
        }
    }
    names
}

/// SHOW `DNS_ZONES`: none is watched.
pub(super) fn dns_zones() -> Table {
    Table::new("sqi", &["zonename", "serial", "count"])
}

const SOCKET_TYPES: &str = "ssssssisissiiississii";
const SOCKET_NAMES: [&str; 21] = [
    "type",
    "user",
    "database",
    "replication",
    "state",
    "addr",
    "port",
    "local_addr",
    "local_port",
    "connect_time",
    "request_time",
    "wait",
    "wait_us",
    "close_needed",
    "ptr",
    "link",
    "remote_pid",
    "tls",
    "application_name",
    "prepared_statements",
    "id",
];

/// The columns that SHOW SOCKETS has beside those.
const BUFFER_NAMES: [&str; 7] =
    ["recv_pos", "pkt_pos", "pkt_remain", "send_pos", "send_remain", "pkt_avail", "send_avail"];

fn replication(replication: Option<Replication>) -> &'static str {
    match replication {
        None => "none",
        Some(Replication::Logical) => "logical",
        Some(Replication::Physical) => "physical",
    }
}

fn host_and_port(address: Option<SocketAddr>) -> (String, u16) {
    address.map_or_else(|| ("unix".into(), 0), |it| (it.ip().to_string(), it.port()))
}

fn pointer(id: u64) -> String {
    format!("{id:#x}")
}

fn or(text: &str, empty: &'static str) -> String {
    if text.is_empty() { empty.to_owned() } else { text.to_owned() }
}

fn client_state(client: &ClientRow) -> Option<&'static str> {
    Some(match client.activity {
        ClientActivity::LoggingIn if client.database.is_empty() => "login",
        ClientActivity::LoggingIn
        | ClientActivity::Queued
        | ClientActivity::Paused
        | ClientActivity::AwaitingConnection => "waiting",
        ClientActivity::Running | ClientActivity::IdleInTransaction => "active",
        ClientActivity::Idle if client.link.is_some() => "active",
        ClientActivity::Idle | ClientActivity::Console => "idle",
        ClientActivity::Cancelling => "active_cancel_req",
        ClientActivity::Closing => return None,
    })
}

fn client_row(inventory: &Inventory, client: &ClientRow, state: &str) -> Vec<Cell> {
    let (addr, port) = host_and_port(client.address);
    let (local_addr, local_port) = host_and_port(client.local_address);
    let waited = client.waiting_since.map(|since| inventory.at.saturating_duration_since(since));
    let waited = waited.unwrap_or_default();
    row![
        "C",
        or(&client.user, "(nouser)"),
        or(&client.database, "(nodb)"),
        replication(client.replication),
        state,
        addr,
        port,
        local_addr,
        local_port,
        timestamp(inventory.wall_clock(client.connected_at)),
        timestamp(inventory.wall_clock(client.asked_at)),
        waited.as_secs(),
        waited.subsec_micros(),
        false,
        pointer(client.id),
        client.link.map_or_else(String::new, pointer),
        0_u32,
        &*client.tls,
        &*client.application_name,
        client.prepared_statements,
        client.id,
    ]
}

fn server_state(server: &ServerRow) -> Option<&'static str> {
    Some(match server.activity {
        ServerActivity::LoggingIn => "new",
        ServerActivity::Idle => "idle",
        ServerActivity::Active => "active",
        ServerActivity::Tested | ServerActivity::Abandoned => "tested",
        ServerActivity::BeingCancelled => "being_canceled",
        ServerActivity::Closing => return None,
    })
}

fn server_row(inventory: &Inventory, server: &ServerRow, state: &str) -> Vec<Cell> {
    let (addr, port) = host_and_port(server.address);
    let (local_addr, local_port) = host_and_port(server.local_address);
    row![
        "S",
        &*server.user,
        &*server.database,
        replication(server.replication),
        state,
        addr,
        port,
        local_addr,
        local_port,
        timestamp(inventory.wall_clock(server.opened_at)),
        timestamp(inventory.wall_clock(server.since)),
        0_u32,
        0_u32,
        server.is_to_be_closed,
        pointer(server.id),
        server.link.map_or_else(String::new, pointer),
        server.process_id.unwrap_or(0),
        &*server.tls,
        &*server.application_name,
        server.prepared_statements,
        server.id,
    ]
}

/// SHOW CLIENTS.
pub(super) fn clients(_: &Shared, inventory: &Inventory) -> Table {
    let mut table = Table::new(SOCKET_TYPES, &SOCKET_NAMES);
    for client in &inventory.clients {
        if let Some(state) = client_state(client).filter(|state| *state != "login") {
            table.push(client_row(inventory, client, state));
        }
    }
    table
}

/// SHOW SERVERS.
pub(super) fn servers(_: &Shared, inventory: &Inventory) -> Table {
    let mut table = Table::new(SOCKET_TYPES, &SOCKET_NAMES);
    for server in &inventory.servers {
        if let Some(state) = server_state(server) {
            table.push(server_row(inventory, server, state));
        }
    }
    table
}

fn socket_table(inventory: &Inventory, is_shown: impl Fn(&str) -> bool) -> Table {
    let names = [&SOCKET_NAMES[..], &BUFFER_NAMES].concat();
    let mut table = Table::new(&format!("{SOCKET_TYPES}iiiiiii"), &names);
    let buffers = || row![0_u32, 0_u32, 0_u32, 0_u32, 0_u32, 0_u32, 0_u32];
    for client in &inventory.clients {
        if let Some(state) = client_state(client).filter(|state| is_shown(state)) {
            let own = client_row(inventory, client, &format!("cl_{state}"));
            table.push([own, buffers()].concat());
        }
    }
    for server in &inventory.servers {
        if let Some(state) = server_state(server).filter(|state| is_shown(state)) {
            let state = if state == "new" { "login" } else { state };
            let own = server_row(inventory, server, &format!("sv_{state}"));
            table.push([own, buffers()].concat());
        }
    }
    table
}

/// SHOW SOCKETS. What is buffered is not told: the last columns are 0.
pub(super) fn sockets(_: &Shared, inventory: &Inventory) -> Table {
    socket_table(inventory, |_| true)
}

/// SHOW `ACTIVE_SOCKETS`: those on which something is under way.
pub(super) fn active_sockets(_: &Shared, inventory: &Inventory) -> Table {
    socket_table(inventory, |state| state != "idle")
}

/// The numbers of a pool: of its clients and of its connections.
#[derive(Default)]
struct PoolCounts {
    mode: Option<PoolMode>,
    load_balance: Option<&'static str>,
    cl_active: u32,
    cl_waiting: u32,
    sv_active: u32,
    sv_active_cancel: u32,
    sv_being_canceled: u32,
    sv_idle: u32,
    sv_tested: u32,
    sv_login: u32,
    oldest: Option<std::time::Instant>,
}

impl PoolCounts {
    fn add_client(&mut self, client: &ClientRow) {
        match client_state(client) {
            Some("waiting") => {
                self.cl_waiting += 1;
                let since = client.waiting_since.or(Some(client.asked_at));
                self.oldest = self.oldest.into_iter().chain(since).min();
            }
            Some("active" | "idle") => self.cl_active += 1,
            _ => {}
        }
    }

    fn add_server(&mut self, server: &ServerRow) {
        self.sv_active_cancel += server.cancels;
        match server.activity {
            ServerActivity::LoggingIn => self.sv_login += 1,
            ServerActivity::Idle => self.sv_idle += 1,
            ServerActivity::Active => self.sv_active += 1,
            ServerActivity::Tested | ServerActivity::Abandoned => self.sv_tested += 1,
            ServerActivity::BeingCancelled => self.sv_being_canceled += 1,
            ServerActivity::Closing => {}
        }
    }
}

fn load_balance(database: &Database) -> Option<&'static str> {
    (database.server.hosts.len() > 1).then_some(match database.server.balance {
        LoadBalance::Disable => "disable",
        LoadBalance::Random => "random",
    })
}

/// SHOW POOLS.
pub(super) fn pools(_: &Shared, inventory: &Inventory) -> Table {
    let names = [
        "database",
        "user",
        "cl_active",
        "cl_waiting",
        "cl_active_cancel_req",
        "cl_waiting_cancel_req",
        "sv_active",
        "sv_active_cancel",
        "sv_being_canceled",
        "sv_idle",
        "sv_used",
        "sv_tested",
        "sv_login",
        "maxwait",
        "maxwait_us",
        "pool_mode",
        "load_balance_hosts",
    ];
    let mut table = Table::new("ssiiiiiiiiiiiiiss", &names);
    let mut pools: BTreeMap<(&str, &str), PoolCounts> = BTreeMap::new();
    for pool in &inventory.pools {
        let counts = pools.entry((&pool.database, &pool.user)).or_default();
        if pool.replication.is_none() || counts.mode.is_none() {
            counts.mode = Some(pool.mode);
        }
        counts.load_balance = load_balance(&pool.entry.database);
    }
    for client in &inventory.clients {
        if let Some(counts) = pools.get_mut(&(&*client.database, &*client.pool_user)) {
            counts.add_client(client);
        }
    }
    for server in &inventory.servers {
        if let Some(counts) = pools.get_mut(&(&*server.database, &*server.user)) {
            counts.add_server(server);
        }
    }
    for ((database, user), it) in pools {
        let waited = it.oldest.map(|oldest| inventory.at.saturating_duration_since(oldest));
        let waited = waited.unwrap_or_default();
        table.push(row![
            database,
            user,
            it.cl_active,
            it.cl_waiting,
            0_u32,
            0_u32,
            it.sv_active,
            it.sv_active_cancel,
            it.sv_being_canceled,
            it.sv_idle,
            0_u32,
            it.sv_tested,
            it.sv_login,
            waited.as_secs(),
            waited.subsec_micros(),
            it.mode.map(|mode| mode.to_string()),
            it.load_balance,
        ]);
    }
    table
}

/// SHOW DATABASES: those that are configured, and those that clients have used of the entry for
/// all names.
pub(super) fn databases(shared: &Shared, inventory: &Inventory) -> Table {
    let names = [
        "name",
        "host",
        "port",
        "database",
        "force_user",
        "pool_size",
        "min_pool_size",
        "reserve_pool_size",
        "server_lifetime",
        "pool_mode",
        "load_balance_hosts",
        "max_connections",
        "current_connections",
        "max_client_connections",
        "current_client_connections",
        "paused",
        "disabled",
    ];
    let mut table = Table::new("ssissiiiissiiiiii", &names);
    let configured = shared.entries.iter().map(|entry| (entry.database.key(), entry));
    // What is left of an entry that is configured no more is shown until it has gone.
    let is_left = |name: &str| inventory.servers.iter().any(|it| it.database == name);
    let is_shown =
        |pool: &&PoolRow| shared.entry(pool.entry.index).is_some() || is_left(&pool.database);
    let used = inventory.pools.iter().filter(is_shown);
    let used = used.map(|pool| (&*pool.database, &pool.entry));
    // Of two entries for one name, the configured one counts.
    let all: BTreeMap<&str, &Arc<Entry>> = used.chain(configured).collect();
    for (name, entry) in all {
        table.push(database_row(shared, inventory, name, entry));
    }
    table
}

fn database_row(shared: &Shared, inventory: &Inventory, name: &str, entry: &Entry) -> Vec<Cell> {
    let database = &entry.database;
    let mut hosts = Vec::new();
    let mut port = 0;
    for host in &database.server.hosts {
        match host {
            ServerAddress::Tcp(host, own) => {
                hosts.push(host.clone());
                port = *own;
            }
            ServerAddress::Unix(path) => {
                let directory = path.parent().unwrap_or(path);
                hosts.push(directory.display().to_string());
                let own = path.extension().and_then(|it| it.to_str()?.parse().ok());
                port = own.unwrap_or(5432);
            }
        }
    }
    let most = shared.accounts.occupancy(entry.server.index).map_or(0, |it| it.max);
    let is_open = |it: &&ServerRow| it.database == name && it.activity != ServerActivity::Closing;
    let clients = inventory.clients.iter().filter(|client| client.database == name).count();
    let lifetime = shared.config.timeouts.server_lifetime.map_or(0, |it| it.as_secs());
    row![
        name,
        hosts.join(","),
        port,
        database.server_database.as_deref().unwrap_or(name),
        database.server_user.as_deref(),
        database.limits.max_connections_per_user.unwrap_or(most),
        database.limits.min_connections,
        0_u32,
        lifetime,
        database.mode.to_string(),
        load_balance(database),
        database.limits.max_database_connections.unwrap_or(0),
        inventory.servers.iter().filter(is_open).count(),
        database.limits.max_clients.unwrap_or(0),
        clients,
        shared.commands.of(name).hold == Hold::Paused,
        shared.commands.is_disabled(name),
    ]
}

/// SHOW USERS: those who are connected, and those of whom something is configured.
pub(super) fn users(shared: &Shared, inventory: &Inventory) -> Table {
    let names = [
        "name",
        "pool_size",
        "reserve_pool_size",
        "pool_mode",
        "max_user_connections",
        "current_connections",
        "max_user_client_connections",
        "current_client_connections",
    ];
    let mut table = Table::new("ssssiiii", &names);
    for name in user_names(shared, inventory) {
        let own = shared.config.user_settings.get(name);
        let is_open = |it: &&ServerRow| it.user == name && it.activity != ServerActivity::Closing;
        table.push(row![
            name,
            "",
            "",
            None::<&str>,
            own.and_then(|it| it.max_connections).unwrap_or(0),
            inventory.servers.iter().filter(is_open).count(),
            own.and_then(|it| it.max_clients).unwrap_or(0),
            inventory.clients.iter().filter(|client| client.user == name).count(),
        ]);
    }
    table
}

fn user_names<'a>(shared: &'a Shared, inventory: &'a Inventory) -> BTreeSet<&'a str> {
    let configured = shared.config.user_settings.keys().map(|name| &**name);
    let clients = inventory.clients.iter().map(|client| &*client.user);
    let pools = inventory.pools.iter().map(|pool| &*pool.user);
    configured.chain(clients).chain(pools).filter(|name| !name.is_empty()).collect()
}

/// SHOW LISTS.
pub(super) fn lists(shared: &Shared, inventory: &Inventory) -> Table {
    let mut table = Table::new("si", &["list", "items"]);
    let pools: BTreeSet<_> = inventory.pools.iter().map(|it| (&it.database, &it.user)).collect();
    let logging_in = |it: &&ClientRow| it.activity == ClientActivity::LoggingIn;
    let lists = [
        ("databases", shared.config.databases.len()),
        ("users", user_names(shared, inventory).len()),
        ("peers", shared.config.peers.addresses.len()),
        ("pools", pools.len()),
        ("peer_pools", 0),
        ("free_clients", 0),
        ("used_clients", inventory.clients.len()),
        ("login_clients", inventory.clients.iter().filter(logging_in).count()),
        ("free_servers", 0),
        ("used_servers", inventory.servers.len()),
        ("dns_names", names(shared).len()),
        ("dns_zones", 0),
        ("dns_queries", 0),
        ("dns_pending", 0),
    ];
    for (list, items) in lists {
        table.push(row![list, items]);
    }
    table
}

/// SHOW MEM: sizes of what there is one of for each connection, without their buffers.
pub(super) fn memory(_: &Shared, inventory: &Inventory) -> Table {
    let mut table = Table::new("siiii", &["name", "size", "used", "free", "memtotal"]);
    let kinds = [
        ("client", size_of::<crate::client::Client>(), inventory.clients.len()),
        ("server", size_of::<crate::upstream::Upstream>(), inventory.servers.len()),
        ("pool", size_of::<crate::upstream::Pool>(), inventory.pools.len()),
    ];
    for (name, size, used) in kinds {
        table.push(row![name, size, used, 0_u32, size * used]);
    }
    table
}
