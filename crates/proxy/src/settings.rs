//! Session settings that follow a client from one upstream connection to the next.
//!
//! In transaction mode a client's transactions run on whichever connection is free. The parameters
//! of its start-up packet, those that the server reports (`ParameterStatus`), and those that an
//! inspection finds after a transaction ([`crate::session_state`]) are remembered here; before the
//! client's next transaction the difference to what the connection has is sent.
//!
//! `role` and `session_authorization` are settings like the others, but for their place in that
//! difference: what the client had been allowed to set may need the rights it began with, so they
//! are undone first and set last.

use std::fmt::Write;
use std::sync::Arc;

/// Parameters and their values, sorted by name, whose spelling has no case. Cheap to clone and to
/// compare when shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(Arc<Vec<(Box<str>, Box<str>)>>);

/// Reported parameters that say what the server is, not what the session wants.
const NOT_SETTABLE: [&str; 7] = [
    "in_hot_standby",
    "integer_datetimes",
    "is_superuser",
    "scram_iterations",
    "server_encoding",
    "server_version",
    "session_authorization",
];

/// A parameter name that PostgreSQL would not accept either.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid name of a configuration parameter: {0:?}")]
pub(crate) struct InvalidName(pub(crate) String);

impl Settings {
    /// Returns the settings of a start-up packet's parameters.
    pub(crate) fn from_parameters<'a>(
        parameters: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Settings, InvalidName> {
        let mut settings = Settings::default();
        for (name, value) in parameters {
            if !is_name(name) {
                return Err(InvalidName(name.to_owned()));
            }
            // A server ignores it in a start-up packet.
            if !name.eq_ignore_ascii_case("session_authorization") {
                settings.set(name, value);
            }
        }
        Ok(settings)
    }

    /// Returns these settings; names that PostgreSQL would not accept are left out.
    pub(crate) fn from_pairs<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Settings {
        let mut settings = Settings::default();
        for (name, value) in pairs.filter(|(name, _)| is_name(name)) {
            settings.set(name, value);
        }
        settings
    }

    /// Adds those of `defaults` that are missing here.
    pub(crate) fn complete(&mut self, defaults: &Settings) {
        for (name, value) in defaults.0.iter() {
            if self.get(name).is_none() {
                self.set(name, value);
            }
        }
    }

    /// Returns the names of custom settings, such as `app.tenant`.
    pub(crate) fn custom_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name).filter(|name| is_custom_name(name))
    }

    /// Names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
    }

    /// Returns whether the two are the same. They share their memory from then on, so that asking
    /// again costs one comparison. Both keep the one at the lower address: so all that are ever
    /// compared come to share one, however many clients and connections there are.
    pub(crate) fn unify(&mut self, other: &mut Settings) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        if self.0 != other.0 {
            return false;
        }
        if Arc::as_ptr(&self.0) < Arc::as_ptr(&other.0) {
            other.0 = Arc::clone(&self.0);
        } else {
            self.0 = Arc::clone(&other.0);
        }
        true
    }

    /// Notes that the server reported a value.
    pub(crate) fn report(&mut self, name: &str, value: &str) {
        if is_name(name) && !NOT_SETTABLE.contains(&name) {
            self.set(name, value);
        }
    }

    /// Sets a value, or forgets it.
    pub(crate) fn put(&mut self, name: &str, value: Option<&str>) {
        match (value, self.position(name)) {
            (Some(value), _) => self.set(name, value),
            (None, Ok(index)) => drop(Arc::make_mut(&mut self.0).remove(index)),
            (None, Err(_)) => {}
        }
    }

    fn set(&mut self, name: &str, value: &str) {
        let position = self.position(name);
        match position {
            Ok(index) if *self.0[index].1 == *value => {}
            Ok(index) => Arc::make_mut(&mut self.0)[index].1 = value.into(),
            Err(index) => Arc::make_mut(&mut self.0).insert(index, (name.into(), value.into())),
        }
    }

    /// Returns where the parameter is, or where it would be inserted.
    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| folded(known).cmp(folded(name)))
    }

    /// Returns the value the client gave or the server reported.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let index = self.position(name).ok()?;
        Some(&self.0[index].1)
    }

    /// Returns whether a statement's time is limited.
    pub(crate) fn has_timeout(&self) -> bool {
        TIMEOUTS.iter().any(|name| self.get(name).is_some())
    }

    /// Returns the application's name; empty if it has given none.
    pub(crate) fn application_name(&self) -> &str {
        self.get("application_name").unwrap_or("")
    }

    /// Returns the SQL that turns a session with the settings `self` into one with the settings
    /// `wanted`.
    ///
    /// `set_config` takes a value as the start-up packet does; SET would read a list as one name.
    pub(crate) fn sql_to_become(&self, wanted: &Settings) -> String {
        let mut sql = String::new();
        if self.0 == wanted.0 {
            return sql;
        }
        let is_another_role = IDENTITY.iter().any(|name| self.get(name).is_some());
        if is_another_role {
            sql.push_str(UNDO_IDENTITY);
        }
        for (name, _) in self.0.iter().filter(|(name, _)| wanted.get(name).is_none()) {
            if !is_among(&IDENTITY, name) {
                sql.push_str("RESET ");
                sql.push_str(name);
                sql.push(';');
            }
        }
        let has =
            |name: &str| self.get(name).filter(|_| !(is_another_role && is_among(&IDENTITY, name)));
        wanted.push_changes(&mut sql, has);
        sql
    }

    /// Returns the SQL that turns any session into one with the settings `wanted`.
    pub(crate) fn sql_from_anything(wanted: &Settings) -> String {
        let mut sql = String::from(UNDO_IDENTITY);
        sql.push_str("RESET ALL;");
        wanted.push_changes(&mut sql, |_| None);
        sql
    }

    /// Appends the SQL that sets what differs from what a session `has`.
    fn push_changes<'a>(&self, sql: &mut String, has: impl Fn(&str) -> Option<&'a str>) {
        let is_late = |name: &str| is_among(&TIMEOUTS, name) || is_among(&IDENTITY, name);
        let early = self.0.iter().map(|(name, _)| &**name).filter(|name| !is_late(name));
        for name in early.chain(TIMEOUTS).chain(IDENTITY) {
            let Some(value) = self.get(name).filter(|value| has(name) != Some(value)) else {
                continue;
            };
            sql.push_str("SELECT pg_catalog.set_config('");
            sql.push_str(name);
            sql.push_str("', ");
            push_literal(sql, value);
            sql.push_str(", false);");
        }
    }
}

/// Settings that say who the session is, in the order in which they are set.
const IDENTITY: [&str; 2] = ["session_authorization", "role"];

const UNDO_IDENTITY: &str = "RESET ROLE;RESET SESSION AUTHORIZATION;";

/// Settings that could end the statements that set the others.
const TIMEOUTS: [&str; 2] = ["statement_timeout", "transaction_timeout"];

fn is_among(names: &[&str], name: &str) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name))
}

/// Returns a parameter's name without its case.
fn folded(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().map(|byte| byte.to_ascii_lowercase())
}

/// Returns whether a name has letters, digits, `_`, `$`, and dots for extensions' parameters only:
/// it needs no quotes anywhere.
pub(crate) fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.'))
}

/// Returns whether a name is that of a setting which the server does not know: words that are
/// separated by dots.
pub(crate) fn is_custom_name(name: &str) -> bool {
    name.contains('.') && name.split('.').all(is_name)
}

/// A string literal that means the same whatever `standard_conforming_strings` and
/// `client_encoding` say.
fn push_literal(sql: &mut String, value: &str) {
    sql.push_str(" E'");
    for character in value.chars() {
        match character {
            '\'' | '\\' => sql.extend([character; 2]),
            _ if character.is_ascii() => sql.push(character),
            _ => {
                let written = write!(sql, "\\U{:08X}", u32::from(character));
                debug_assert!(written.is_ok(), "a String takes everything");
            }
        }
    }
    sql.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        Settings::from_parameters(pairs.iter().copied()).unwrap()
    }

    #[test]
    fn the_difference_is_set_and_reset() {
        let has = settings(&[("TimeZone", "UTC"), ("application_name", "a")]);
        let wants = settings(&[("application_name", "it's"), ("search_path", "a, b")]);
        assert_eq!(
            has.sql_to_become(&wants),
            "RESET TimeZone;\
             SELECT pg_catalog.set_config('application_name',  E'it''s', false);\
             SELECT pg_catalog.set_config('search_path',  E'a, b', false);"
        );
        assert_eq!(wants.sql_to_become(&wants), "");
    }

    #[test]
    fn roles_are_undone_first_and_set_last() {
        let has = settings(&[("role", "a"), ("work_mem", "1")]);
        let wants = settings(&[("role", "b"), ("statement_timeout", "9"), ("zone", "é")]);
        assert_eq!(
            has.sql_to_become(&wants),
            "RESET ROLE;RESET SESSION AUTHORIZATION;RESET work_mem;\
             SELECT pg_catalog.set_config('zone',  E'\\U000000E9', false);\
             SELECT pg_catalog.set_config('statement_timeout',  E'9', false);\
             SELECT pg_catalog.set_config('role',  E'b', false);"
        );
        let same_role = settings(&[("role", "a")]);
        let sql = has.sql_to_become(&same_role);
        assert!(sql.ends_with("set_config('role',  E'a', false);"), "{sql}");
        assert_eq!(has.sql_to_become(&has), "", "unless nothing differs");
    }

    #[test]
    fn what_is_missing_is_completed() {
        let mut found = settings(&[("TimeZone", "UTC")]);
        found.complete(&settings(&[("timezone", "Asia/Tokyo"), ("app.tenant", "7")]));
        assert_eq!(found.get("timezone"), Some("UTC"));
        assert_eq!(found.custom_names().collect::<Vec<_>>(), ["app.tenant"]);
    }

    #[test]
    fn equal_settings_share_memory_after_the_first_comparison() {
        let mut all: Vec<Settings> = (0..5).map(|_| settings(&[("a", "1")])).collect();
        let lowest = all.iter().map(|it| Arc::as_ptr(&it.0)).min();
        // Neighbours meet again and again, wherever the lowest is.
        for other in (1..5).cycle().take(4 * 5) {
            let (before, from_other) = all.split_at_mut(other);
            assert!(before[other - 1].unify(&mut from_other[0]));
        }
        assert!(all.iter().all(|it| Some(Arc::as_ptr(&it.0)) == lowest));
        let mut left = all.remove(0);
        left.report("a", "2");
        assert!(!left.unify(&mut all[0]), "a change must not reach the other session");
        assert_eq!(all[0].get("a"), Some("1"));
    }

    #[test]
    fn what_describes_the_server_is_not_set_on_another_connection() {
        let mut has = Settings::default();
        has.report("server_version", "15.0");
        assert_eq!(Settings::default().sql_to_become(&has), "");
    }

    #[test]
    fn names_that_could_carry_sql_are_refused() {
        for name in ["", "a b", "a;b", "a'b", "1a", "a\"b"] {
            let refused = Settings::from_parameters([(name, "x")].into_iter());
            assert_eq!(refused.map(|_| ()), Err(InvalidName(name.to_owned())));
        }
    }

    #[test]
    fn a_literal_cannot_be_left() {
        let mut sql = String::new();
        push_literal(&mut sql, r"x\'; DROP TABLE t; --");
        assert_eq!(sql, r" E'x\\''; DROP TABLE t; --'");
    }
}
