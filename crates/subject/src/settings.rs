//! Names of servers' settings: one spelling for each, and those that are not the caller's to make.
//!
//! A server takes a name in more than one spelling. PostgreSQL passes over the difference between
//! capital and small letters and, on its command line, between `-` and `_`. MariaDB passes over the
//! latter, takes any beginning of a name that no other has, and prefixes such as `loose-`. So a
//! setting is looked at by its [`plain_name`], and one of MariaDB's also without its prefixes.
//!
//! Reserved is what would take a private server out of its directory, or let others than this
//! machine in: where its data and its other files are, and where it listens. Lines copied from the
//! configuration of the machine's own server have such names, and with them the private server
//! would work on the machine's own data.
//!
//! Limits: what writes a file because it is told to (MariaDB's `general_log_file`, PostgreSQL's
//! `archive_command`) is the caller's affair.

use thiserror::Error;

/// PostgreSQL's settings that are not the caller's to make.
const POSTGRES: [&str; 9] = [
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "listen_addresses",
    "log_directory",
    "port",
    "unix_socket_directories",
];

/// MariaDB's settings that are not the caller's to make.
const MARIADB: [&str; 25] = [
    "aria_log_dir_path",
    "basedir",
    "bind_address",
    "chroot",
    "datadir",
    "defaults_extra_file",
    "defaults_file",
    "defaults_group_suffix",
    "extra_port",
    "init_file",
    "innodb_data_file_path",
    "innodb_data_home_dir",
    "innodb_log_group_home_dir",
    "innodb_temp_data_file_path",
    "innodb_tmpdir",
    "innodb_undo_directory",
    "log_basename",
    "log_error",
    "pid_file",
    "plugin_dir",
    "port",
    "slave_load_tmpdir",
    "socket",
    "tmpdir",
    "user",
];

/// What MariaDB takes before the name of a setting.
const MARIADB_PREFIXES: [&str; 6] =
    ["autoset_", "disable_", "enable_", "loose_", "maximum_", "skip_"];

/// A setting that is not the caller's to make, or no name of any.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` cannot be set on a private server: it is no name of a setting, or says where the \
     server's files are or where it listens, which is for Tidegate to say; leave it out"
)]
pub struct Reserved(pub String);

/// A setting's name in small letters, with underscores.
#[must_use]
pub fn plain_name(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

/// Refuses PostgreSQL's reserved settings.
pub(crate) fn refuse_on_postgres(settings: &[(String, String)]) -> Result<(), Reserved> {
    refuse(settings, |name| POSTGRES.contains(&name))
}

/// Refuses MariaDB's reserved settings.
pub(crate) fn refuse_on_mariadb(settings: &[(String, String)]) -> Result<(), Reserved> {
    refuse(settings, |name| {
        let mut name = name;
        while let Some(rest) = MARIADB_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))
        {
            name = rest;
        }
        MARIADB.iter().any(|reserved| reserved.starts_with(name))
    })
}

fn refuse(
    settings: &[(String, String)],
    is_reserved: impl Fn(&str) -> bool,
) -> Result<(), Reserved> {
    let is_refused = |name: &str| !is_name(name) || is_reserved(&plain_name(name));
    match settings.iter().find(|(name, _)| is_refused(name)) {
        Some((name, _)) => Err(Reserved(name.clone())),
        None => Ok(()),
    }
}

/// Whether it is made of what names are made of, and not, say, a name with its value.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    text.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
        && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Refuse = fn(&[(String, String)]) -> Result<(), Reserved>;

    fn is_refused(refuse: Refuse, name: &str) -> bool {
        let settings = [("fsync".to_owned(), "off".to_owned()), (name.to_owned(), "1".to_owned())];
        refuse(&settings) == Err(Reserved(name.to_owned()))
    }

    #[test]
    fn what_moves_a_server_is_refused_in_all_spellings() {
        for name in [
            "data_directory",
            "Data-Directory",
            "PORT",
            "listen_addresses",
            "unix-socket-directories",
            "hba_file",
            "fsync=off -c port",
            "data_directory=/elsewhere",
            "-port",
            "",
        ] {
            assert!(is_refused(refuse_on_postgres, name), "{name}");
        }
        for name in [
            "datadir",
            "DATADIR",
            "datad",
            "loose-datadir",
            "loose_skip-bind_address",
            "bind-address",
            "bind_address",
            "port",
            "pid-file",
            "innodb-log-group-home-dir",
            "tmpdir=/elsewhere",
            "--socket",
            "",
        ] {
            assert!(is_refused(refuse_on_mariadb, name), "{name}");
        }
    }

    #[test]
    fn everything_else_is_the_callers() {
        for name in ["shared_buffers", "Shared-Buffers", "pg_stat_statements.max", "ssl"] {
            assert!(!is_refused(refuse_on_postgres, name), "{name}");
        }
        for name in [
            "innodb-buffer-pool-size",
            "innodb_data_file_buffering",
            "back_log",
            "log_bin",
            "loose-innodb-x",
            "portable",
            "skip-name-resolve",
        ] {
            assert!(!is_refused(refuse_on_mariadb, name), "{name}");
        }
    }
}
