//! What Firebird says when it refuses: codes with arguments, and what they mean for a transaction.
//!
//! A status vector is a list of codes from the general to the particular, each followed by its
//! arguments. The sentences are in a file that only the client library reads, so a message here is
//! made of a few words for the codes met most often, and of the arguments.
//!
//! When a row was changed by another transaction, the vector holds both `deadlock` and `update
//! conflict`, whether somebody waited in a circle or not: Firebird 3 does not tell the two apart,
//! so they count as serialization failures. The same two follow a lock timeout.
//!
//! Source: Firebird 3 Language Reference, appendix B, "Exception Codes and Messages".

use std::fmt;

use tidegate_workload::{Conflict, Failure};

use super::wire::WireError;

const DEADLOCK: u32 = 335_544_336;
const LOCK_CONFLICT: u32 = 335_544_345;
const SQL_ERROR: u32 = 335_544_436;
const UPDATE_CONFLICT: u32 = 335_544_451;
const LOCK_TIMEOUT: u32 = 335_544_510;
const DYNAMIC_SQL_ERROR: u32 = 335_544_569;
const CANCELLED: u32 = 335_544_794;
pub(super) const TEXT_TRUNCATED: u32 = 335_544_914;
const SHUTDOWN: [u32; 3] = [335_544_528, 335_544_856, 335_544_869];

/// Codes that say nothing without those that follow.
const GENERAL: [u32; 3] = [SQL_ERROR, DYNAMIC_SQL_ERROR, 335_544_351];

const WORDS: &[(u32, &str)] = &[
    (335_544_321, "arithmetic exception, overflow or truncated text"),
    (335_544_334, "cannot convert a text"),
    (335_544_344, "file cannot be opened"),
    (335_544_347, "value not valid for its column"),
    (335_544_349, "duplicate value in a unique index"),
    (335_544_351, "unsuccessful metadata update"),
    (335_544_352, "no permission"),
    (335_544_436, "SQL error code"),
    (335_544_453, "object in use"),
    (335_544_472, "user name or password not accepted"),
    (335_545_064, "client and server do not agree on encryption"),
    (335_545_106, "the login failed, and the server's log says why"),
    (335_544_558, "CHECK constraint violated"),
    (335_544_569, "dynamic SQL error"),
    (335_544_578, "column unknown"),
    (335_544_580, "table unknown"),
    (335_544_634, "token unknown, line and column"),
    (335_544_665, "PRIMARY or UNIQUE KEY violated"),
    (TEXT_TRUNCATED, "text truncated"),
    (335_544_915, "numeric value out of range"),
];

/// A status vector.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    items: Vec<(u32, Vec<String>)>,
}

impl Status {
    /// Returns the status that a code alone makes.
    pub(super) fn of(code: u32) -> Self {
        Status { items: vec![(code, Vec::new())] }
    }

    /// Appends a code; 0 stands for none.
    pub(super) fn code(&mut self, code: u32) {
        if code != 0 {
            self.items.push((code, Vec::new()));
        }
    }

    /// Appends an argument of the last code.
    pub(super) fn argument(&mut self, text: String) {
        if let Some((_, arguments)) = self.items.last_mut() {
            arguments.push(text);
        }
    }

    pub(super) fn is_error(&self) -> bool {
        !self.items.is_empty()
    }

    fn has(&self, code: u32) -> bool {
        self.items.iter().any(|(other, _)| *other == code)
    }

    fn conflict(&self) -> Option<Conflict> {
        if self.has(LOCK_TIMEOUT) || self.has(LOCK_CONFLICT) {
            Some(Conflict::LockTimeout)
        } else if self.has(UPDATE_CONFLICT) {
            Some(Conflict::Serialization)
        } else if self.has(DEADLOCK) {
            Some(Conflict::Deadlock)
        } else {
            None
        }
    }

    /// The first code that says something of its own.
    fn telling(&self) -> u32 {
        let codes = || self.items.iter().map(|(code, _)| *code);
        let telling = codes().find(|code| !GENERAL.contains(code)).or(codes().next());
        telling.expect("an error has a code")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (code, arguments)) in self.items.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { "; " })?;
            match WORDS.iter().find(|(of, _)| of == code) {
                Some((_, words)) => f.write_str(words)?,
                None => write!(f, "code {code}")?,
            }
            for argument in arguments {
                write!(f, " {argument}")?;
            }
        }
        Ok(())
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Io(error) => Failure::Lost(error.to_string()),
            WireError::Protocol(what) => Failure::Lost(format!("the server's fault: {what}")),
            WireError::Server(status) if status.has(CANCELLED) => Failure::Stopped,
            WireError::Server(status) if SHUTDOWN.iter().any(|&code| status.has(code)) => {
                Failure::Lost(status.to_string())
            }
            WireError::Server(status) => match status.conflict() {
                Some(conflict) => Failure::Conflict(conflict),
                None => Failure::Refused {
                    code: status.telling().to_string(),
                    message: status.to_string(),
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_means_what_its_most_particular_code_says() {
        for (codes, expected) in [
            (&[DEADLOCK, UPDATE_CONFLICT, 335_544_878][..], Conflict::Serialization),
            (&[DEADLOCK], Conflict::Deadlock),
            (&[LOCK_TIMEOUT, DEADLOCK, UPDATE_CONFLICT], Conflict::LockTimeout),
            (&[LOCK_CONFLICT, DEADLOCK, UPDATE_CONFLICT], Conflict::LockTimeout),
        ] {
            let mut status = Status::default();
            for code in codes {
                status.code(*code);
            }
            let failure = Failure::from(WireError::Server(status));
            assert_eq!(failure, Failure::Conflict(expected), "{codes:?}");
        }
        let mut status = Status::default();
        for (code, argument) in [(0, "left out"), (DYNAMIC_SQL_ERROR, ""), (335_544_580, "T")] {
            status.code(code);
            status.argument(argument.to_owned());
        }
        let Failure::Refused { code, message } = WireError::Server(status).into() else { panic!() };
        assert_eq!(
            (code.as_str(), message.as_str()),
            ("335544580", "dynamic SQL error ; table unknown T")
        );
    }
}
