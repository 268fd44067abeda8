//! Session settings that follow a client from one upstream connection to the next.
//!
//! In transaction mode a client's transactions run on whichever connection is free. The parameters
//! of its start-up packet, and those it changes by SET and the server reports (`ParameterStatus`),
//! are remembered here; before its next transaction the difference to what the connection has is
//! sent. Settings the server does not report do not follow, they need session mode; nor do they
//! stay for the connection's next client, unless a function set them (`set_config`).

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
            settings.set(name, value);
        }
        Ok(settings)
    }

    /// Names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
    }

    /// Returns whether the two are the same. Shares their memory from then on, so that asking again
    /// costs one comparison.
    pub(crate) fn unify(&mut self, other: &Settings) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        if self.0 != other.0 {
            return false;
        }
        self.0 = Arc::clone(&other.0);
        true
    }

    /// Notes that the server reported a value.
    pub(crate) fn report(&mut self, name: &str, value: &str) {
        if is_name(name) && !NOT_SETTABLE.contains(&name) {
            self.set(name, value);
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

    /// Returns the application's name; empty if it has given none.
    pub(crate) fn application_name(&self) -> &str {
        self.get("application_name").unwrap_or("")
    }

    /// Returns the SQL that turns a session with the settings `self` into one with the settings
    /// `wanted`.
    ///
    /// `set_config` takes a value as the start-up packet does; SET would read a list as one name.
    pub(crate) fn sql_to_become(&self, wanted: &Settings) -> String {
        self.sql_after("", wanted)
    }

    /// Returns the SQL that turns any session into one with the settings `wanted`.
    pub(crate) fn sql_from_anything(wanted: &Settings) -> String {
        Settings::default().sql_after("RESET SESSION AUTHORIZATION;RESET ALL;", wanted)
    }

    fn sql_after(&self, begin: &str, wanted: &Settings) -> String {
        let mut sql = begin.to_owned();
        for (name, _) in self.0.iter().filter(|(name, _)| wanted.get(name).is_none()) {
            sql.push_str("RESET ");
            sql.push_str(name);
            sql.push(';');
        }
        for (name, value) in wanted.0.iter().filter(|(name, value)| self.get(name) != Some(value)) {
            sql.push_str("SELECT pg_catalog.set_config('");
            sql.push_str(name);
            sql.push_str("', ");
            push_literal(&mut sql, value);
            sql.push_str(", false);");
        }
        sql
    }
}

/// Returns a parameter's name without its case.
fn folded(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().map(|byte| byte.to_ascii_lowercase())
}

/// Letters, digits, `_`, `$` and dots for extensions' parameters: needs no quotes anywhere.
fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.'))
}

/// A string literal that means the same whatever `standard_conforming_strings` says.
fn push_literal(sql: &mut String, value: &str) {
    sql.push_str(" E'");
    for character in value.chars() {
        if matches!(character, '\'' | '\\') {
            sql.push(character);
        }
        sql.push(character);
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
    fn equal_settings_share_memory_after_the_first_comparison() {
        let (mut left, right) = (settings(&[("a", "1")]), settings(&[("a", "1")]));
        assert!(left.unify(&right));
        assert!(Arc::ptr_eq(&left.0, &right.0));
        left.report("a", "2");
        assert!(!left.unify(&right), "a change must not reach the other session");
        assert_eq!(right.get("a"), Some("1"));
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
