//! The settings in force, by the names of `tidegate.toml`: for SHOW CONFIG and
//! `tidegate check-config`.

use std::fmt::Display;
use std::time::Duration;

use crate::config::{Config, Database, Timeouts};
use crate::config_file::defaults;
use crate::scheduling::Scheduling;

/// Returns each setting that is in force with its value, `none` where there is none. Passwords and
/// the text of `auth_query` are left out.
#[must_use]
pub fn settings_in_force(config: &Config) -> Vec<(String, String)> {
    let listen: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
    let mut settings: Vec<(String, String)> = vec![
        ("listen".into(), listen.join(",")),
        ("admin_listen".into(), or_none(config.admin_listen)),
        (
            "admin_token_file".into(),
            or_none(config.admin_token_file.as_ref().map(|it| it.display())),
        ),
        ("admin_hosts".into(), config.admin_hosts.join(",")),
        ("log_format".into(), or_none(config.log_format)),
        ("threads".into(), config.threads.to_string()),
        ("auth".into(), config.authentication.to_string()),
        ("admin_users".into(), config.admin_users.join(",")),
        ("stats_users".into(), config.stats_users.join(",")),
        ("max_clients".into(), or_none(config.max_clients)),
        ("max_logins".into(), or_none(config.logins_max)),
        ("waiting_max".into(), config.waiting_max.to_string()),
        ("prepared_statements_max".into(), config.prepared_statements_max.to_string()),
        ("journal".into(), or_none(config.journal.as_ref().map(|path| path.display()))),
        ("seed".into(), config.seed.to_string()),
        ("client_tls.mode".into(), or_none(config.client_tls.as_ref().map(|tls| tls.mode))),
        ("peers.id".into(), config.peers.id.to_string()),
    ];
    settings.extend(timeouts(&config.timeouts));
    settings.extend(scheduling(&config.scheduling));
    for database in &config.databases {
        settings.extend(of_database(database));
    }
    settings
}

/// Returns each setting of `[timeouts]` with its value where nothing is configured.
pub(crate) fn default_timeouts() -> Vec<(String, String)> {
    timeouts(&defaults::TIMEOUTS)
}

fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

fn shown(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

fn shown_or_none(time: Option<Duration>) -> String {
    or_none(time.map(humantime::format_duration))
}

fn timeouts(timeouts: &Timeouts) -> Vec<(String, String)> {
    let Timeouts { client, .. } = timeouts;
    let or_off = |time: Duration| if time.is_zero() { "off".to_owned() } else { shown(time) };
    let all = [
        ("login", shown(client.login)),
        ("queue", shown_or_none(client.queue)),
        ("idle_in_transaction", shown_or_none(client.idle_in_transaction)),
        ("client_idle", shown_or_none(client.client_idle)),
        ("transaction", shown_or_none(client.transaction)),
        ("message", shown(timeouts.message)),
        ("connect", shown(timeouts.connect)),
        ("abandoned", shown(timeouts.abandoned)),
        ("server_idle", shown(timeouts.server_idle)),
        ("server_lifetime", shown_or_none(timeouts.server_lifetime)),
        ("server_down", or_off(timeouts.server_down)),
        ("health_check_after", shown_or_none(timeouts.health_check_after)),
        ("health_check", shown(timeouts.health_check)),
        ("unreachable", shown_or_none(timeouts.unreachable)),
        ("drain_delay", or_off(timeouts.drain_delay)),
        ("shutdown_grace", shown(timeouts.shutdown_grace)),
    ];
    all.into_iter().map(|(name, value)| (format!("timeouts.{name}"), value)).collect()
}

fn scheduling(scheduling: &Scheduling) -> Vec<(String, String)> {
    let classes = &scheduling.classes;
    let names: Vec<&str> = classes.iter().map(|(_, class)| class.name.as_str()).collect();
    let default = classes.class(scheduling.default_class).name;
    let mut all = vec![
        ("scheduling.policy".to_owned(), classes.policy().to_string()),
        ("scheduling.classes".to_owned(), names.join(",")),
        ("scheduling.default_class".to_owned(), default.to_string()),
        ("scheduling.class_choice".to_owned(), scheduling.choice.to_string()),
    ];
    for ((_, class), rules) in classes.iter().zip(&scheduling.rules) {
        let addresses: Vec<String> = rules.addresses.iter().map(ToString::to_string).collect();
        let of_class = [
            ("weight", class.weight.to_string()),
            ("ageing", shown_or_none(class.ageing)),
            ("min_permits", class.permits.min.to_string()),
            ("max_permits", or_none(class.permits.max)),
            ("waiting_max", or_none(class.waiting_max)),
            ("order", class.order.to_string()),
            ("deadline", shown_or_none(rules.deadline)),
            ("users", rules.users.join(",")),
            ("databases", rules.databases.join(",")),
            ("applications", rules.applications.join(",")),
            ("addresses", addresses.join(",")),
        ];
        let key = |name| format!("classes.{}.{name}", class.name);
        all.extend(of_class.into_iter().map(|(name, value)| (key(name), value)));
    }
    all
}

fn of_database(database: &Database) -> Vec<(String, String)> {
    let limits = &database.limits;
    let bounds = database.control.setting.bounds;
    let all = [
        ("upstream", database.server.to_string()),
        ("server_database", or_none(database.server_database.as_ref())),
        ("server_user", or_none(database.server_user.as_ref())),
        ("mode", database.mode.to_string()),
        ("max_connections", or_none(limits.max_connections)),
        ("max_database_connections", or_none(limits.max_database_connections)),
        ("max_connections_per_user", or_none(limits.max_connections_per_user)),
        ("max_clients", or_none(limits.max_clients)),
        ("min_connections", limits.min_connections.to_string()),
        ("control", database.control.choice().to_string()),
        ("min_mpl", bounds.min().to_string()),
        ("max_mpl", bounds.max().to_string()),
        ("watch_user", or_none(database.watch.as_ref().map(|watch| &watch.user))),
        ("auth_user", or_none(database.auth_query.as_ref().map(|query| &query.user))),
    ];
    let key = |name| format!("databases.{}.{name}", database.key());
    all.into_iter().map(|(name, value)| (key(name), value)).collect()
}
