//! Every setting of PgBouncer 1.25, and what becomes of it. The table in `docs/pgbouncer.md` is
//! made from this one.

/// Where a setting stands in `pgbouncer.ini`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the section `[pgbouncer]`.
    Global,
    /// In the connection string of a database.
    Database,
    /// In the line of a user.
    User,
}

/// What becomes of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is written as this setting of Tidegate.
    Becomes(&'static str),
    /// It is left out, and nothing is lost: why.
    NotNeeded(&'static str),
    /// It is left out, and something has to be done: what.
    Missing(&'static str),
}

/// A setting of PgBouncer.
#[derive(Clone, Copy, Debug)]
pub struct PgbouncerSetting {
    /// Its name.
    pub name: &'static str,
    /// Where it stands.
    pub place: Place,
    /// What becomes of it.
    pub fate: Fate,
}

const fn setting(name: &'static str, place: Place, fate: Fate) -> PgbouncerSetting {
    PgbouncerSetting { name, place, fate }
}

const STDERR: Fate =
    Fate::NotNeeded("the log is on standard error; `--log-level` sets what is logged");
const ALWAYS_LOGGED: Fate = Fate::NotNeeded("metrics count logins, ends and errors");
const SUPERVISOR: Fate = Fate::NotNeeded("the service manager knows the process and its user");
const KEEPALIVE: Fate = Fate::NotNeeded("`timeouts.unreachable` sets all of keep-alive");
const LIMIT_FOUND: Fate = Fate::Missing(
    "the limit of running transactions is found by measurement; to bound connections as well, set \
     `max_connections_per_user`",
);
const NO_RESERVE: Fate =
    Fate::NotNeeded("there is no reserve: who needs a connection waits for it");
const STATEMENT_TIMEOUT: Fate = Fate::Missing(
    "set PostgreSQL's `statement_timeout`, by `ALTER ROLE` or by the client: it follows its client",
);
const FOLLOW: Fate = Fate::NotNeeded("settings follow their client (docs/transaction-mode.md)");
const NAMES: Fate = Fate::NotNeeded("names are looked up again by the system's resolver");
const BUFFERS: Fate = Fate::NotNeeded("buffers need no setting");
const RESET: Fate =
    Fate::NotNeeded("what a client leaves in a session is removed (docs/transaction-mode.md)");
const ALTER_DATABASE: Fate = Fate::Missing("set it on the server: `ALTER DATABASE ... SET`");

use Fate::{Becomes, Missing, NotNeeded};
use Place::{Database, Global, User};

/// Every setting, in the order of PgBouncer's manual.
pub const SETTINGS: &[PgbouncerSetting] = &[
    setting("logfile", Global, STDERR),
    setting("pidfile", Global, SUPERVISOR),
    setting("listen_addr", Global, Becomes("listen")),
    setting("listen_port", Global, Becomes("listen")),
    setting("unix_socket_dir", Global, Becomes("listen")),
    setting(
        "unix_socket_mode",
        Global,
        Missing("the socket has the modes of the process's umask: restrict its directory"),
    ),
    setting(
        "unix_socket_group",
        Global,
        Missing("the socket has the group of the process: restrict its directory"),
    ),
    setting("user", Global, SUPERVISOR),
    setting("pool_mode", Global, Becomes("databases.NAME.mode")),
    setting("max_client_conn", Global, Becomes("max_clients")),
    setting("default_pool_size", Global, LIMIT_FOUND),
    setting("min_pool_size", Global, Becomes("databases.NAME.min_connections")),
    setting("reserve_pool_size", Global, NO_RESERVE),
    setting("reserve_pool_timeout", Global, NO_RESERVE),
    setting("max_db_connections", Global, Becomes("databases.NAME.max_database_connections")),
    setting("max_db_client_connections", Global, Becomes("databases.NAME.max_clients")),
    setting(
        "max_user_connections",
        Global,
        Missing("set `users.NAME.max_connections` for each user"),
    ),
    setting(
        "max_user_client_connections",
        Global,
        Missing("set `users.NAME.max_clients` for each user"),
    ),
    setting(
        "server_round_robin",
        Global,
        NotNeeded("`load_balance_hosts=random` in the upstream's URL spreads connections"),
    ),
    setting("track_extra_parameters", Global, FOLLOW),
    setting("ignore_startup_parameters", Global, FOLLOW),
    setting("peer_id", Global, Becomes("peers.id")),
    setting("disable_pqexec", Global, Missing("the simple protocol cannot be refused")),
    setting(
        "application_name_add_host",
        Global,
        Missing("SHOW CLIENTS and the server's connection in SHOW SERVERS have the address"),
    ),
    setting("conffile", Global, NotNeeded("the file is named on the command line")),
    setting("service_name", Global, SUPERVISOR),
    setting("job_name", Global, SUPERVISOR),
    setting("stats_period", Global, NotNeeded("averages of SHOW STATS are over 60 seconds")),
    setting("max_prepared_statements", Global, Becomes("prepared_statements_max")),
    setting("scram_iterations", Global, NotNeeded("verifiers keep the iterations they have")),
    setting("auth_type", Global, Becomes("auth")),
    setting("auth_hba_file", Global, Becomes("auth_hba_file")),
    setting("auth_ident_file", Global, Becomes("auth_ident_file")),
    setting("auth_file", Global, Becomes("users_file")),
    setting("auth_user", Global, Becomes("databases.NAME.auth_user")),
    setting("auth_query", Global, Becomes("databases.NAME.auth_query")),
    setting("auth_dbname", Global, Becomes("databases.NAME.auth_database")),
    setting("auth_ldap_options", Global, Missing("LDAP is not supported: use SCRAM")),
    setting("syslog", Global, STDERR),
    setting("syslog_ident", Global, STDERR),
    setting("syslog_facility", Global, STDERR),
    setting("log_connections", Global, ALWAYS_LOGGED),
    setting("log_disconnections", Global, ALWAYS_LOGGED),
    setting("log_pooler_errors", Global, ALWAYS_LOGGED),
    setting("log_stats", Global, NotNeeded("`/metrics` and SHOW STATS have the figures")),
    setting("verbose", Global, STDERR),
    setting("admin_users", Global, Becomes("admin_users")),
    setting("stats_users", Global, Becomes("stats_users")),
    setting("server_reset_query", Global, RESET),
    setting("server_reset_query_always", Global, RESET),
    setting("server_check_delay", Global, Becomes("timeouts.health_check_after")),
    setting("server_check_query", Global, NotNeeded("a Sync is enough of a check")),
    setting(
        "server_fast_close",
        Global,
        NotNeeded("connections are closed when their transaction has ended"),
    ),
    setting("server_lifetime", Global, Becomes("timeouts.server_lifetime")),
    setting("server_idle_timeout", Global, Becomes("timeouts.server_idle")),
    setting("server_connect_timeout", Global, Becomes("timeouts.connect")),
    setting(
        "server_login_retry",
        Global,
        NotNeeded("a server that is away is tried again after 50 ms to 1 s (docs/failures.md)"),
    ),
    setting("client_login_timeout", Global, Becomes("timeouts.login")),
    setting(
        "autodb_idle_timeout",
        Global,
        NotNeeded("databases of \"*\" take no memory to speak of"),
    ),
    setting("dns_max_ttl", Global, NAMES),
    setting("dns_nxdomain_ttl", Global, NAMES),
    setting("dns_zone_check_period", Global, NAMES),
    setting("resolv_conf", Global, NAMES),
    setting("client_tls_sslmode", Global, Becomes("client_tls.mode")),
    setting("client_tls_key_file", Global, Becomes("client_tls.key")),
    setting("client_tls_cert_file", Global, Becomes("client_tls.certificate")),
    setting("client_tls_ca_file", Global, Becomes("client_tls.ca")),
    setting("client_tls_protocols", Global, Becomes("client_tls.min_version")),
    setting(
        "client_tls_ciphers",
        Global,
        Missing(
            "`client_tls.ciphers` names suites as rustls does; all that are offered are secure",
        ),
    ),
    setting("client_tls13_ciphers", Global, Missing("as `client_tls_ciphers`")),
    setting("client_tls_ecdhcurve", Global, NotNeeded("the groups are secure ones")),
    setting("client_tls_dheparams", Global, NotNeeded("the groups are secure ones")),
    setting("server_tls_sslmode", Global, Becomes("sslmode in the upstream's URL")),
    setting("server_tls_ca_file", Global, Becomes("sslrootcert in the upstream's URL")),
    setting("server_tls_key_file", Global, Becomes("sslkey in the upstream's URL")),
    setting("server_tls_cert_file", Global, Becomes("sslcert in the upstream's URL")),
    setting(
        "server_tls_protocols",
        Global,
        Becomes("ssl_min_protocol_version in the upstream's URL"),
    ),
    setting("server_tls_ciphers", Global, NotNeeded("all suites that are offered are secure")),
    setting("server_tls13_ciphers", Global, NotNeeded("all suites that are offered are secure")),
    setting("query_timeout", Global, STATEMENT_TIMEOUT),
    setting("query_wait_timeout", Global, Becomes("timeouts.queue")),
    setting("query_wait_notify", Global, Missing("SHOW QUEUE shows who waits")),
    setting(
        "cancel_wait_timeout",
        Global,
        NotNeeded("a cancel request waits for `timeouts.connect` at most"),
    ),
    setting("client_idle_timeout", Global, Becomes("timeouts.client_idle")),
    setting("idle_transaction_timeout", Global, Becomes("timeouts.idle_in_transaction")),
    setting("transaction_timeout", Global, Becomes("timeouts.transaction")),
    setting("suspend_timeout", Global, NotNeeded("SUSPEND waits until it is resumed")),
    setting("pkt_buf", Global, BUFFERS),
    setting("max_packet_size", Global, BUFFERS),
    setting("listen_backlog", Global, BUFFERS),
    setting("sbuf_loopcnt", Global, BUFFERS),
    setting("so_reuseport", Global, Missing("`threads` sets the event loops of the one process")),
    setting("tcp_defer_accept", Global, KEEPALIVE),
    setting("tcp_socket_buffer", Global, BUFFERS),
    setting("tcp_keepalive", Global, KEEPALIVE),
    setting("tcp_keepcnt", Global, KEEPALIVE),
    setting("tcp_keepidle", Global, KEEPALIVE),
    setting("tcp_keepintvl", Global, KEEPALIVE),
    setting("tcp_user_timeout", Global, KEEPALIVE),
    setting("dbname", Database, Becomes("upstream")),
    setting("host", Database, Becomes("upstream")),
    setting("port", Database, Becomes("upstream")),
    setting("user", Database, Becomes("upstream")),
    setting("password", Database, Becomes("upstream")),
    setting("auth_user", Database, Becomes("auth_user")),
    setting("auth_query", Database, Becomes("auth_query")),
    setting("auth_dbname", Database, Becomes("auth_database")),
    setting("pool_size", Database, LIMIT_FOUND),
    setting("min_pool_size", Database, Becomes("min_connections")),
    setting("reserve_pool_size", Database, NO_RESERVE),
    setting("reserve_pool", Database, NO_RESERVE),
    setting("connect_query", Database, ALTER_DATABASE),
    setting("pool_mode", Database, Becomes("mode")),
    setting("load_balance_hosts", Database, Becomes("load_balance_hosts in the upstream's URL")),
    setting(
        "target_session_attrs",
        Database,
        Becomes("target_session_attrs in the upstream's URL"),
    ),
    setting("max_db_connections", Database, Becomes("max_database_connections")),
    setting("max_db_client_connections", Database, Becomes("max_clients")),
    setting(
        "server_lifetime",
        Database,
        Missing("`timeouts.server_lifetime` holds for all databases"),
    ),
    setting("query_wait_timeout", Database, Becomes("timeouts.queue")),
    setting("client_encoding", Database, ALTER_DATABASE),
    setting("datestyle", Database, ALTER_DATABASE),
    setting("timezone", Database, ALTER_DATABASE),
    setting("pool_size", User, LIMIT_FOUND),
    setting("reserve_pool_size", User, NO_RESERVE),
    setting(
        "pool_mode",
        User,
        Missing("the mode is that of the database: give these users a database of their own"),
    ),
    setting("max_user_connections", User, Becomes("users.NAME.max_connections")),
    setting("max_user_client_connections", User, Becomes("users.NAME.max_clients")),
    setting("query_timeout", User, STATEMENT_TIMEOUT),
    setting("query_wait_timeout", User, Becomes("users.NAME.timeouts.queue")),
    setting("idle_transaction_timeout", User, Becomes("users.NAME.timeouts.idle_in_transaction")),
    setting("transaction_timeout", User, Becomes("users.NAME.timeouts.transaction")),
    setting("client_idle_timeout", User, Becomes("users.NAME.timeouts.client_idle")),
];

/// Returns what becomes of a setting; `None` if PgBouncer has none of this name there.
pub(super) fn fate(name: &str, place: Place) -> Option<Fate> {
    SETTINGS.iter().find(|it| it.name == name && it.place == place).map(|it| it.fate)
}

/// Returns the names of the settings of PgBouncer that become this one.
#[cfg(test)]
pub(crate) fn pgbouncer_names(ours: &str) -> Vec<&'static str> {
    let becomes_it = |it: &&PgbouncerSetting| match it.fate {
        Becomes(becomes) => {
            becomes == ours || (it.place == Database && format!("databases.NAME.{becomes}") == ours)
        }
        NotNeeded(_) | Missing(_) => false,
    };
    let mut names: Vec<&str> = SETTINGS.iter().filter(becomes_it).map(|it| it.name).collect();
    names.dedup();
    names
}

/// Returns the table of all settings in Markdown.
#[cfg(test)]
fn settings_table() -> String {
    use std::fmt::Write;
    let mut table = String::from("| `pgbouncer.ini` | what becomes of it |\n| --- | --- |\n");
    for PgbouncerSetting { name, place, fate } in SETTINGS {
        let of = match place {
            Global => "",
            Database => " of a database",
            User => " of a user",
        };
        let becomes = match fate {
            Becomes(ours) if ours.contains(' ') => (*ours).to_owned(),
            Becomes(ours) => format!("`{ours}`"),
            NotNeeded(why) => format!("not needed: {why}"),
            Missing(what) => format!("left out: {what}"),
        };
        let _ = writeln!(table, "| `{name}`{of} | {becomes} |");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_there_once() {
        for (index, it) in SETTINGS.iter().enumerate() {
            let is_same =
                |other: &PgbouncerSetting| (other.name, other.place) == (it.name, it.place);
            assert_eq!(SETTINGS.iter().position(is_same), Some(index), "{}", it.name);
        }
    }

    /// `UPDATE_DOCS=1` writes the table.
    #[test]
    fn the_documentation_has_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pgbouncer.md");
        crate::documented::compare(path, "settings of PgBouncer", &settings_table());
    }
}
