//! What the keys about logins say together.

use std::collections::BTreeMap;
use std::path::Path;

use super::{
    AuthQuery, ClientAuthentication, ConfigProblem, DatabaseSection, Hba, ListenAddress, Users,
    defaults, is_open,
};
use crate::users::Secret;

/// Where passwords of clients can come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownUsers {
    None,
    /// From a user file, or from a server.
    Some,
}

impl KnownUsers {
    pub(super) fn of(
        users_file: Option<&Path>,
        databases: &BTreeMap<String, DatabaseSection>,
    ) -> KnownUsers {
        let are_looked_up = databases.values().any(|database| database.auth_user.is_some());
        if users_file.is_some() || are_looked_up { KnownUsers::Some } else { KnownUsers::None }
    }
}

/// Without known users there is nothing to check a password against. Whoever leaves it at that on
/// an address that other machines reach has to say so.
pub(super) fn method(
    asked: Option<ClientAuthentication>,
    known: KnownUsers,
    listen: &[ListenAddress],
) -> Result<ClientAuthentication, ConfigProblem> {
    let without_users = |method| ConfigProblem::NoUsers(format!("auth = \"{method}\""));
    match (asked, known) {
        (None, KnownUsers::None) => match listen.iter().find(|address| is_open(address)) {
            Some(open) => Err(ConfigProblem::OpenTrust(open.clone())),
            None => Ok(ClientAuthentication::Trust),
        },
        (None, KnownUsers::Some) => Ok(ClientAuthentication::ScramSha256),
        (Some(ClientAuthentication::Md5), KnownUsers::None) => Err(without_users("md5")),
        (Some(ClientAuthentication::ScramSha256), KnownUsers::None) => {
            Err(without_users("scram-sha-256"))
        }
        (Some(asked), _) => Ok(asked),
    }
}

/// Reads the HBA file and the ident file, if clients are judged by them.
pub(super) fn hba(
    authentication: ClientAuthentication,
    (hba, ident): (Option<&Path>, Option<&Path>),
    known: KnownUsers,
    has_authority: bool,
) -> Result<Option<Hba>, ConfigProblem> {
    if authentication != ClientAuthentication::Hba {
        return match (hba, ident) {
            (Some(_), _) => Err(ConfigProblem::UnusedFile("auth_hba_file")),
            (None, Some(_)) => Err(ConfigProblem::UnusedFile("auth_ident_file")),
            (None, None) => Ok(None),
        };
    }
    let path = hba.ok_or(ConfigProblem::NoHbaFile)?;
    let hba = Hba::load(path, ident, has_authority)?;
    if let (KnownUsers::None, Some(rule)) = (known, hba.rules().first_with_password()) {
        let line = format!("{}, line {}, asks for passwords and", path.display(), rule.line);
        return Err(ConfigProblem::NoUsers(line));
    }
    Ok(Some(hba))
}

/// Returns how users of a database are looked up on its server, if they are.
pub(super) fn auth_query(
    name: &str,
    section: &DatabaseSection,
    users: &Users,
) -> Result<Option<AuthQuery>, ConfigProblem> {
    let DatabaseSection { auth_user, auth_password, auth_query, auth_database, .. } = section;
    let Some(user) = auth_user else {
        let keys = [
            (auth_password, "auth_password"),
            (auth_query, "auth_query"),
            (auth_database, "auth_database"),
        ];
        return match keys.into_iter().find(|(value, _)| value.is_some()) {
            Some((_, key)) => Err(ConfigProblem::NoAuthUser { database: name.to_owned(), key }),
            None => Ok(None),
        };
    };
    let known = users.find(user.as_bytes());
    let is_verifier = matches!(known.as_ref().and_then(|it| it.secret()), Some(Secret::Scram(_)));
    if auth_password.is_none() && is_verifier {
        let (database, user) = (name.to_owned(), user.clone());
        return Err(ConfigProblem::AuthUserVerifier { database, user });
    }
    let sql = auth_query.as_deref().unwrap_or(defaults::AUTH_QUERY);
    if !sql.contains("$1") {
        return Err(ConfigProblem::AuthQueryParameter(name.to_owned()));
    }
    Ok(Some(AuthQuery {
        user: user.clone(),
        password: auth_password.clone(),
        database: auth_database.clone(),
        sql: sql.to_owned(),
    }))
}
