//! What [`start`](crate::start) would find wrong with a configuration, without listening.

use std::net::ToSocketAddrs;
use std::path::Path;

use crate::cancel_key;
use crate::config::{ClientAuthentication, Config, ListenAddress, ServerAddress};
use crate::console;
use crate::tls;

/// What is wrong with a configuration that has been read, and what may be.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Why the proxy would not start, or not serve a database.
    pub errors: Vec<String>,
    /// What may not be meant.
    pub warnings: Vec<String>,
}

/// Checks a configuration as far as that is possible without listening and without connecting to a
/// server: files, directories, names of hosts. Blocks while names are looked up.
#[must_use]
pub fn check(config: &Config) -> Findings {
    let mut findings = Findings::default();
    check_files(config, &mut findings.errors);
    check_hosts(config, &mut findings.errors);
    check_users(config, &mut findings.warnings);
    findings
}

fn check_files(config: &Config, errors: &mut Vec<String>) {
    if config.threads.get() > cancel_key::WORKERS_MAX {
        let max = cancel_key::WORKERS_MAX;
        errors.push(format!("threads = {}: at most {max} are possible", config.threads));
    }
    if let Some(tls) = &config.client_tls
        && let Err(error) = tls::settings::acceptor(tls)
    {
        errors.push(format!("client_tls: {error}"));
    }
    let has_directory = |path: &Path| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.is_none_or(Path::is_dir)
    };
    for address in &config.listen {
        if let ListenAddress::Unix(path) = address
            && !has_directory(path)
        {
            errors.push(format!("listen: the directory of {} does not exist", path.display()));
        }
    }
    if let Some(path) = config.journal.as_ref().filter(|path| !has_directory(path)) {
        errors.push(format!("journal: the directory of {} does not exist", path.display()));
    }
}

fn check_hosts(config: &Config, errors: &mut Vec<String>) {
    for database in &config.databases {
        let key = database.key();
        for host in &database.server.hosts {
            let ServerAddress::Tcp(name, port) = host else { continue };
            if let Err(error) = (&**name, *port).to_socket_addrs() {
                errors.push(format!("databases.{key}.upstream: the host {name}: {error}"));
            }
            if database.tls.mode != crate::config::SslMode::Disable
                && let Err(error) = tls::settings::connector(&database.tls, name)
            {
                errors.push(format!("databases.{key}.upstream: {error}"));
            }
        }
    }
}

fn check_users(config: &Config, warnings: &mut Vec<String>) {
    let are_looked_up = config.databases.iter().any(|it| it.auth_query.is_some());
    let needs_secret = matches!(
        config.authentication,
        ClientAuthentication::Md5 | ClientAuthentication::ScramSha256
    );
    for (key, users) in [("admin_users", &config.admin_users), ("stats_users", &config.stats_users)]
    {
        for user in users {
            let is_known = config.users.find(user.as_bytes()).is_some() || are_looked_up;
            if needs_secret && !is_known {
                let text = "is not in the users file, and so cannot log in";
                warnings.push(format!("{key}: user \"{user}\" {text}"));
            }
        }
    }
    if config.authentication == ClientAuthentication::Trust && !config.admin_users.is_empty() {
        let text = "anybody who can connect may say that they are one of them";
        warnings.push(format!("admin_users with auth = \"trust\": {text}"));
    }
    let names = || config.databases.iter().filter_map(|it| it.name.as_deref());
    for name in console::DATABASES {
        if names().any(|it| it == name) {
            let text = "is served in place of the console of that name";
            warnings.push(format!("databases.{name}: {text}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_file::ConfigFile;

    #[test]
    fn all_mistakes_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tidegate.toml");
        let text = "listen = [\"/nowhere/.s.PGSQL.1\"]\njournal = \"none/a\"\nthreads = 1000\n\
                    users_file = \"u\"\nadmin_users = [\"boss\", \"known\"]\n\
                    client_tls = { certificate = \"c\", key = \"k\" }\n\
                    [databases.tidegate]\nupstream = \"postgres://host.invalid\"\n";
        std::fs::write(&path, text).unwrap();
        std::fs::write(directory.path().join("u"), "\"known\" \"x\"\n").unwrap();
        let config = ConfigFile::read(&path).and_then(ConfigFile::into_config).unwrap();
        let Findings { errors, warnings } = check(&config);
        let begin = |all: &[String]| -> Vec<String> {
            let word = |it: &String| it.split([':', ' ']).next().unwrap_or_default().to_owned();
            all.iter().map(word).collect()
        };
        let words = ["threads", "client_tls", "listen", "journal", "databases.tidegate.upstream"];
        assert_eq!(begin(&errors), words, "{errors:#?}");
        assert_eq!(begin(&warnings), ["admin_users", "databases.tidegate"], "{warnings:#?}");
    }
}
