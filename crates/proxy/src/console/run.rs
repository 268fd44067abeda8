//! Commands of the console, carried out.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate_wire::error_response::SqlState;

use super::statement::{Command, InvalidCommand, ORDERS, Order};
use super::table::Table;
use super::{Caller, Rights, ShutdownMode, own, show, statistics};
use crate::commands::{CommandError, Hold, Scope};
use crate::config_file::Override;
use crate::inventory::{ClientActivity, ClientRow, Inventory};
use crate::reload::{ReloadError, ReloadReport};
use crate::shared::{InForce, Shared};

/// Time within which event loops have to say who is connected.
const INVENTORY_TIME: Duration = Duration::from_secs(2);

/// Time between two looks whether clients are left.
const DRAIN_INTERVAL: Duration = Duration::from_millis(250);

/// What a command has come to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) table: Option<Table>,
    /// A message and its detail.
    pub(super) notice: Option<(String, String)>,
    pub(super) tag: String,
}

/// Why a command has failed, for the client.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: SqlState<'static>,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(code: SqlState<'static>, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }
}

impl From<InvalidCommand> for Failure {
    fn from(error: InvalidCommand) -> Failure {
        Failure::new(SqlState::SYNTAX_ERROR, error.to_string())
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Failure {
        let code = match error {
            CommandError::NoDatabase(_) => SqlState::INVALID_CATALOG_NAME,
            CommandError::Abandoned => SqlState::QUERY_CANCELED,
            _ => SqlState::NOT_IN_PREREQUISITE_STATE,
        };
        Failure::new(code, error.to_string())
    }
}

/// Settings that drivers look at or set when they connect; they change nothing here.
const PRETENDED: [(&str, &str); 6] = [
    ("client_encoding", "UTF-8"),
    ("default_transaction_isolation", "read committed"),
    ("standard_conforming_strings", "on"),
    ("datestyle", "ISO"),
    ("timezone", "GMT"),
    ("extra_float_digits", "2"),
];

/// What SHOW HELP says.
const HELP: &str = "\n\tSHOW HELP|CONFIG|DATABASES|POOLS|CLIENTS|SERVERS|USERS|VERSION\n\
    \tSHOW PEERS|PEER_POOLS\n\
    \tSHOW SOCKETS|ACTIVE_SOCKETS|LISTS|MEM|STATE\n\
    \tSHOW DNS_HOSTS|DNS_ZONES\n\
    \tSHOW STATS|STATS_TOTALS|STATS_AVERAGES|TOTALS\n\
    \tSHOW LIMIT|QUEUE|PERMITS|CLASSES|CURVE\n\
    \tRELOAD\n\
    \tSET <key> = <value>\n\
    \tPAUSE [<db>]\n\
    \tRESUME [<db>]\n\
    \tDISABLE <db>\n\
    \tENABLE <db>\n\
    \tRECONNECT [<db>]\n\
    \tKILL [<db>]\n\
    \tKILL_CLIENT <client_id>\n\
    \tSUSPEND\n\
    \tSHUTDOWN\n\
    \tSHUTDOWN WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS\n\
    \tWAIT_CLOSE [<db>]";

/// Carries a command out. Waits for its completion as long as `is_wanted`.
pub(super) fn run(
    in_force: &Arc<InForce>,
    caller: &Caller,
    command: &Command,
    is_wanted: &dyn Fn() -> bool,
) -> Result<Outcome, Failure> {
    let shared = &in_force.get();
    match command {
        Command::Show(what) => return show_command(shared, what),
        Command::Set(key, _) if PRETENDED.iter().any(|it| it.0.eq_ignore_ascii_case(key)) => {
            let notice = Some(("SET ignored".to_owned(), String::new()));
            return Ok(Outcome { notice, ..done("SET") });
        }
        _ if caller.rights != Rights::Admin => {
            let message = "admin access needed";
            return Err(Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        _ => {}
    }
    let user = &*caller.user;
    tracing::info!(user, ?command, "ordered by the console");
    match command {
        Command::Order(order, database) => obey(shared, *order, database.as_deref(), is_wanted),
        Command::KillClient(id) => {
            shared.kill_client(*id)?;
            Ok(done("KILL_CLIENT"))
        }
        Command::Suspend => {
            shared.suspend(is_wanted)?;
            Ok(done("SUSPEND"))
        }
        Command::Reload => reload(shared),
        Command::Shutdown(mode) => shut_down(in_force, mode.as_deref()),
        Command::Set(key, value) => set(shared, key, value),
        Command::Show(what) => show_command(shared, what),
    }
}

fn done(tag: &str) -> Outcome {
    Outcome { tag: tag.to_owned(), ..Outcome::default() }
}

fn obey(
    shared: &Shared,
    order: Order,
    database: Option<&str>,
    is_wanted: &dyn Fn() -> bool,
) -> Result<Outcome, Failure> {
    let tag = ORDERS.iter().find(|(_, it)| *it == order).map_or("", |(word, _)| word);
    let is_console = database
        .is_some_and(|name| super::DATABASES.contains(&name) && !shared.is_configured(name));
    if is_console {
        let message = format!("cannot {} admin db: {}", tag.to_lowercase(), database.unwrap_or(""));
        return Err(Failure::new(SqlState::NOT_IN_PREREQUISITE_STATE, message));
    }
    let scope = database.map_or(Scope::All, |name| Scope::Database(name.to_owned()));
    let required =
        || database.ok_or_else(|| Failure::new(SqlState::SYNTAX_ERROR, "a database is required"));
    match order {
        Order::Pause => shared.pause(scope, is_wanted)?,
        Order::Resume => shared.resume(scope)?,
        Order::Reconnect => shared.reconnect(scope)?,
        Order::Kill if shared.commands.hold_of_all() != Hold::None => {
            return Err(CommandError::AlreadyHeld.into());
        }
        Order::Kill => shared.kill(scope, is_wanted)?,
        Order::WaitClose => shared.wait_close(scope, is_wanted)?,
        Order::Disable => shared.disable(required()?)?,
        Order::Enable => shared.enable(required()?)?,
    }
    Ok(done(tag))
}

/// Reads the configuration again. What the client is told is what the log says.
fn reload(shared: &Shared) -> Result<Outcome, Failure> {
    let Some(reload) = shared.console.reload.get() else {
        shared.reread_files();
        return Ok(done("RELOAD"));
    };
    told_of_reload("RELOAD", reload(None))
}

/// Sets something until the next RELOAD.
fn set(shared: &Shared, key: &str, value: &str) -> Result<Outcome, Failure> {
    let refused = |error: &dyn std::fmt::Display| {
        let message = format!("SET failed: {error}");
        Failure::new(SqlState::INVALID_PARAMETER_VALUE, message)
    };
    let setting = Override::new(key, value).map_err(|error| refused(&error))?;
    let Some(reload) = shared.console.reload.get() else {
        return Err(refused(&"there is no configuration file"));
    };
    told_of_reload("SET", reload(Some(setting)))
}

fn told_of_reload(
    tag: &str,
    outcome: Result<ReloadReport, ReloadError>,
) -> Result<Outcome, Failure> {
    match outcome {
        Ok(report) => {
            let detail = report.changed.join("\n");
            Ok(Outcome { notice: Some((report.to_string(), detail)), ..done(tag) })
        }
        Err(error) => {
            let message = format!("{tag} failed, and nothing has changed: {error}");
            Err(Failure::new(SqlState::CONFIG_FILE_ERROR, message))
        }
    }
}

fn shut_down(in_force: &Arc<InForce>, mode: Option<&str>) -> Result<Outcome, Failure> {
    let shared = &in_force.get();
    let mode = match mode {
        None => ShutdownMode::Immediate,
        Some("WAIT_FOR_SERVERS") => ShutdownMode::WaitForServers,
        Some("WAIT_FOR_CLIENTS") => ShutdownMode::WaitForClients,
        Some(other) => return Err(InvalidCommand(format!("SHUTDOWN {other}")).into()),
    };
    let hook = shared.console.shutdown.get().ok_or_else(|| {
        let message = "the program that runs the proxy does not let it be shut down from here";
        Failure::new(SqlState::FEATURE_NOT_SUPPORTED, message)
    })?;
    if mode == ShutdownMode::WaitForClients {
        shared.commands.close();
        let in_force = Arc::downgrade(in_force);
        let thread = std::thread::Builder::new().name("tidegate-drain".into());
        let started = thread.spawn(move || stop_without_clients(&in_force));
        started.map_err(|error| Failure::new(SqlState::CONFIGURATION_LIMIT, error.to_string()))?;
    } else {
        hook(mode);
    }
    Ok(done("SHUTDOWN"))
}

/// Stops the process when all clients have left but those of the console.
fn stop_without_clients(in_force: &Weak<InForce>) {
    while let Some(in_force) = in_force.upgrade() {
        let shared = in_force.get();
        let inventory = shared.inventory(INVENTORY_TIME);
        let is_client = |it: &ClientRow| it.activity != ClientActivity::Console;
        if inventory.missing == 0 && !inventory.clients.iter().any(is_client) {
            if let Some(hook) = shared.console.shutdown.get() {
                hook(ShutdownMode::WaitForClients);
            }
            return;
        }
        drop((shared, in_force));
        std::thread::sleep(DRAIN_INTERVAL);
    }
}

fn show_command(shared: &Arc<Shared>, what: &str) -> Result<Outcome, Failure> {
    if what == "help" {
        let notice = Some(("Console usage".to_owned(), HELP.to_owned()));
        return Ok(Outcome { notice, ..done("SHOW") });
    }
    if what == "fds" {
        let message = "SHOW FDS is not supported: sockets are not handed over in this way";
        return Err(Failure::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    if let Some((name, value)) = PRETENDED.iter().find(|(name, _)| *name == what) {
        let mut table = Table::new("s", &[name]);
        table.push(super::table::row![*value]);
        return Ok(Outcome { table: Some(table), ..done("SHOW") });
    }
    let table = without_inventory(shared, what)
        .or_else(|| with_inventory(what, shared, || shared.inventory(INVENTORY_TIME)))
        .ok_or_else(|| InvalidCommand(format!("SHOW {what}")))?;
    Ok(Outcome { table: Some(table), ..done("SHOW") })
}

/// Returns what can be shown without asking the event loops.
fn without_inventory(shared: &Shared, what: &str) -> Option<Table> {
    Some(match what {
        "config" => show::config(shared),
        "version" => show::version(),
        "state" => show::state(shared),
        "peers" => show::peers(shared),
        "peer_pools" => show::peer_pools(),
        "dns_hosts" => show::dns_hosts(shared),
        "dns_zones" => show::dns_zones(),
        "limit" => own::limit(shared),
        "classes" => own::classes(shared),
        "curve" => own::curve(shared),
        _ => return None,
    })
}

fn with_inventory(what: &str, shared: &Shared, ask: impl FnOnce() -> Inventory) -> Option<Table> {
    type Show = fn(&Shared, &Inventory) -> Table;
    let shows: [(&str, Show); 15] = [
        ("clients", show::clients),
        ("servers", show::servers),
        ("sockets", show::sockets),
        ("active_sockets", show::active_sockets),
        ("pools", show::pools),
        ("databases", show::databases),
        ("users", show::users),
        ("lists", show::lists),
        ("mem", show::memory),
        ("stats", statistics::both),
        ("stats_totals", statistics::totals),
        ("stats_averages", statistics::averages),
        ("totals", statistics::sums),
        ("queue", own::queue),
        ("permits", own::permits),
    ];
    let (_, show) = shows.iter().find(|(name, _)| *name == what)?;
    Some(show(shared, &ask()))
}
