//! The user file: who may log in, and with what.
//!
//! The format is that of PgBouncer's `userlist.txt`, one user a line:
//!
//! ```text
//! ; comments begin with ; or #
//! "ann" "plain password, a "" stands for one quote"
//! "bob" "md5b05e2e0a6a1b4a4ec1a3b7b0a3a4a3d0"
//! "eve" "SCRAM-SHA-256$4096:<salt>$<StoredKey>:<ServerKey>"
//! "nobody" "" what follows the password is not read
//! ```
//!
//! A user with an empty password is known and cannot log in by one.
//!
//! What a secret can do:
//!
//! | secret | MD5 login | SCRAM login | login at a server |
//! | --- | --- | --- | --- |
//! | plain | yes | yes | any method |
//! | md5 | yes | no | MD5 only |
//! | SCRAM | no | yes | SCRAM, if the server has the same verifier, once a client has logged in |

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ctutils::CtEq;
use md5::{Digest, Md5};
use thiserror::Error;

use crate::scram::{ClientKey, ScramVerifier, VerifierError};

/// What proves that somebody is a user.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The password itself.
    Plain(String),
    /// `md5` and the hash of password and user name in 32 lower-case hex digits.
    Md5(String),
    /// A SCRAM-SHA-256 verifier.
    Scram(ScramVerifier),
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Secret::Plain(_) => "Plain(..)",
            Secret::Md5(_) => "Md5(..)",
            Secret::Scram(_) => "Scram(..)",
        })
    }
}

impl Secret {
    /// The answer to `AuthenticationMD5Password`; `None` when the secret gives none.
    #[must_use]
    pub fn md5_response(&self, user: &[u8], salt: [u8; 4]) -> Option<String> {
        match self {
            Secret::Plain(password) => {
                Some(postgres_protocol::authentication::md5_hash(user, password.as_bytes(), salt))
            }
            Secret::Md5(hash) => {
                let salted = Md5::new().chain_update(hash.strip_prefix("md5")?).chain_update(salt);
                Some(md5_text(&salted.finalize()))
            }
            Secret::Scram(_) => None,
        }
    }

    fn parse(text: String) -> Result<Secret, LineError> {
        if text.starts_with(ScramVerifier::PREFIX) {
            return Ok(Secret::Scram(ScramVerifier::parse(&text)?));
        }
        let is_hash =
            |digits: &str| digits.len() == 32 && digits.bytes().all(|it| it.is_ascii_hexdigit());
        if text.strip_prefix("md5").is_some_and(is_hash) {
            return Ok(Secret::Md5(text.to_ascii_lowercase()));
        }
        Ok(Secret::Plain(text))
    }
}

/// Whether `response` is the right answer to an `AuthenticationMD5Password` with `salt`.
#[must_use]
pub fn md5_matches(secret: &Secret, user: &[u8], salt: [u8; 4], response: &[u8]) -> bool {
    secret
        .md5_response(user, salt)
        .is_some_and(|expected| expected.as_bytes().ct_eq(response).into())
}

fn md5_text(digest: &[u8]) -> String {
    let digits: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("md5{}", digits.concat())
}

/// A user file that cannot be used.
#[derive(Debug, Error)]
pub enum UsersError {
    /// It cannot be read.
    #[error("cannot read the user file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error("user file {path}, line {line}: {error}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong.
        error: LineError,
    },
    /// The operating system gives no randomness.
    #[error("no randomness for the salts of unknown users: {0}")]
    Randomness(getrandom::Error),
}

/// What is wrong with a line of the user file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// Something follows the password without a space.
    #[error("unexpected text after the password; a quote inside it is written twice")]
    Trailing,
    /// A quote is missing.
    #[error("expected a {0} in double quotes, as in \"user\" \"password\"")]
    Quotes(&'static str),
    /// The name is empty.
    #[error("the user name is empty")]
    EmptyName,
    /// The user had a line before.
    #[error("a line for user \"{0}\" is there already")]
    Duplicate(String),
    /// The secret is a SCRAM verifier by its beginning only.
    #[error(transparent)]
    Verifier(#[from] VerifierError),
}

#[derive(Debug)]
struct User {
    /// What the proof of a client has yielded, for a SCRAM verifier.
    client_key: OnceLock<ClientKey>,
    /// `None` is a user who is known and can prove it by no password.
    secret: Option<Secret>,
    /// The verifier of a plain password, made when it is first needed: making one costs
    /// milliseconds, which must not be paid by every connection.
    verifier: OnceLock<ScramVerifier>,
}

/// The users of a file; clones share them.
#[derive(Clone, Default)]
pub struct Users {
    users: Arc<HashMap<Vec<u8>, User>>,
    /// What unknown users' salts are made of. In an empty list it is zero: where no user is known,
    /// there is nothing to hide.
    mock_secret: [u8; 32],
}

impl fmt::Debug for Users {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Users").field("count", &self.users.len()).finish_non_exhaustive()
    }
}

impl Users {
    /// Reads the user file at `path`.
    ///
    /// # Errors
    /// It cannot be read, a line of it is wrong, or there is no randomness.
    pub fn load(path: &Path) -> Result<Users, UsersError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| UsersError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Reads a user file's `text`; `path` is for the errors.
    ///
    /// # Errors
    /// A line is wrong, or there is no randomness.
    pub fn parse(text: &str, path: &Path) -> Result<Users, UsersError> {
        let mut users = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            add_line(&mut users, line).map_err(|error| UsersError::Line {
                path: path.to_owned(),
                line: index + 1,
                error,
            })?;
        }
        let mut mock_secret = [0; 32];
        getrandom::fill(&mut mock_secret).map_err(UsersError::Randomness)?;
        Ok(Users { users: Arc::new(users), mock_secret })
    }

    /// Returns the secret of `user`.
    #[must_use]
    pub fn get(&self, user: &[u8]) -> Option<&Secret> {
        self.users.get(user)?.secret.as_ref()
    }

    /// Keeps the key that a client's proof has yielded, for logins at servers with the same
    /// verifier.
    pub fn learn(&self, user: &[u8], key: ClientKey) {
        let Some(user) = self.users.get(user) else { return };
        // The verifier of a plain password was made here, and no server has it.
        if matches!(user.secret, Some(Secret::Scram(_))) {
            // A verifier has one key, so a second proof yields the same.
            user.client_key.get_or_init(|| key);
        }
    }

    /// Returns the key that a client of this user has proved, if one has.
    #[must_use]
    pub fn client_key(&self, user: &[u8]) -> Option<ClientKey> {
        self.users.get(user)?.client_key.get().cloned()
    }

    /// Returns what to run a SCRAM exchange with `user` against: its verifier or, for a user who is
    /// unknown or has no verifier, one that always fails.
    #[must_use]
    pub fn scram_verifier(&self, user: &[u8]) -> ScramVerifier {
        let known = self.users.get(user).and_then(|user| match user.secret.as_ref()? {
            Secret::Plain(password) => {
                Some(user.verifier.get_or_init(|| ScramVerifier::of_password(password)))
            }
            Secret::Scram(verifier) => Some(verifier),
            Secret::Md5(_) => None,
        });
        known.cloned().unwrap_or_else(|| ScramVerifier::mock(&self.mock_secret, user))
    }
}

fn add_line(users: &mut HashMap<Vec<u8>, User>, line: &str) -> Result<(), LineError> {
    let line = line.trim();
    if line.is_empty() || is_comment(line) {
        return Ok(());
    }
    let (name, rest) = quoted(line, "user name")?;
    let (secret, rest) = quoted(rest.trim_start(), "password")?;
    // Further fields are for other programs, as in PgBouncer. A quote amid the password is none.
    if !rest.is_empty() && !rest.starts_with(char::is_whitespace) && !is_comment(rest) {
        return Err(LineError::Trailing);
    }
    if name.is_empty() {
        return Err(LineError::EmptyName);
    }
    if users.contains_key(name.as_bytes()) {
        return Err(LineError::Duplicate(name));
    }
    let secret = if secret.is_empty() { None } else { Some(Secret::parse(secret)?) };
    let user = User { secret, verifier: OnceLock::new(), client_key: OnceLock::new() };
    users.insert(name.into_bytes(), user);
    Ok(())
}

fn is_comment(text: &str) -> bool {
    text.starts_with([';', '#'])
}

/// Splits a quoted string off the beginning of `text`.
fn quoted<'a>(text: &'a str, what: &'static str) -> Result<(String, &'a str), LineError> {
    let mut rest = text.strip_prefix('"').ok_or(LineError::Quotes(what))?;
    let mut value = String::new();
    loop {
        let (before, after) = rest.split_once('"').ok_or(LineError::Quotes(what))?;
        value.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                value.push('"');
                rest = after;
            }
            None => return Ok((value, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scram::{ChannelBinding, ScramError, ScramServer};
    use postgres_protocol::authentication::{md5_hash, sasl};
    use postgres_protocol::password;
    use proptest::prelude::*;

    fn users(text: &str) -> Users {
        Users::parse(text, Path::new("users.txt")).unwrap()
    }

    fn error(text: &str) -> String {
        Users::parse(text, Path::new("users.txt")).unwrap_err().to_string()
    }

    fn scram_login(users: &Users, user: &str, password: &str) -> Result<(), ScramError> {
        let binding = sasl::ChannelBinding::unsupported();
        let mut client = sasl::ScramSha256::new(password.as_bytes(), binding);
        let verifier = users.scram_verifier(user.as_bytes());
        let (server, first) =
            ScramServer::start(verifier, &ChannelBinding::NotOffered, client.message(), "nonce")?;
        client.update(&first).unwrap();
        server.finish(client.message()).map(|_| ())
    }

    #[test]
    fn every_form_of_a_line_is_read() {
        let scram = password::scram_sha_256(b"s3");
        let users = users(&format!(
            "; a comment\n# another\n\n\"ann\" \"pl\"\"ain\"\n  \"b\"\"ob\"\t\"md5{}\" ; bob's\r\n\
             \"eve\" \"{scram}\" \"third\"\n\"md\"\"\" \"md5short\"\n\"none\" \"\" x\n",
            "AB".repeat(16)
        ));
        assert_eq!(users.get(b"ann"), Some(&Secret::Plain("pl\"ain".into())));
        assert_eq!(users.get(b"b\"ob"), Some(&Secret::Md5(format!("md5{}", "ab".repeat(16)))));
        assert_eq!(users.get(b"md\""), Some(&Secret::Plain("md5short".into())));
        assert_eq!(users.get(b"eve"), Some(&Secret::Scram(ScramVerifier::parse(&scram).unwrap())));
        assert_eq!(users.get(b"nobody"), None);
        assert_eq!(users.get(b"none"), None);
        assert_eq!(scram_login(&users, "none", ""), Err(ScramError::WrongProof));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, wrong) in [
            ("\n\nann \"x\"", "line 3: expected a user name in double quotes"),
            ("\"ann", "line 1: expected a user name"),
            ("\"ann\"", "line 1: expected a password"),
            ("\"ann\" x", "line 1: expected a password"),
            ("\"ann\" \"x\"y\"", "line 1: unexpected text after the password"),
            ("\"\" \"x\"", "line 1: the user name is empty"),
            ("\"ann\" \"x\"\n\"ann\" \"y\"", "line 2: a line for user \"ann\""),
            ("\"ann\" \"SCRAM-SHA-256$x\"", "line 1: bad SCRAM verifier"),
        ] {
            let error = error(text);
            assert!(error.starts_with("user file users.txt, ") && error.contains(wrong), "{error}");
        }
        let missing = Users::load(Path::new("/nonexistent/users.txt")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the user file /nonexistent/users.txt"));
    }

    #[test]
    fn md5_logins_work_with_a_password_and_with_its_hash() {
        let salt = [1, 2, 3, 4];
        let right = md5_hash(b"ann", b"pencil", salt);
        let plain = Secret::Plain("pencil".into());
        let hash = Secret::Md5(password::md5(b"pencil", "ann"));
        for secret in [plain, hash] {
            assert_eq!(secret.md5_response(b"ann", salt).as_ref(), Some(&right));
            assert!(md5_matches(&secret, b"ann", salt, right.as_bytes()));
            assert!(!md5_matches(&secret, b"ann", [0; 4], right.as_bytes()));
            assert!(!md5_matches(&secret, b"ann", salt, &right.as_bytes()[..20]));
            assert!(!md5_matches(&secret, b"ann", salt, b""));
        }
        let verifier = Secret::Scram(ScramVerifier::of_password("pencil"));
        assert!(!md5_matches(&verifier, b"ann", salt, right.as_bytes()));
    }

    #[test]
    fn scram_logins_work_with_a_password_and_with_a_verifier() {
        let verifier = password::scram_sha_256(b"pencil");
        let hash = password::md5(b"pencil", "bob");
        let users =
            users(&format!("\"ann\" \"pencil\"\n\"eve\" \"{verifier}\"\n\"bob\" \"{hash}\""));
        for user in ["ann", "eve"] {
            assert_eq!(scram_login(&users, user, "pencil"), Ok(()), "{user}");
            assert_eq!(scram_login(&users, user, "pen"), Err(ScramError::WrongProof), "{user}");
        }
        for user in ["bob", "nobody"] {
            assert_eq!(scram_login(&users, user, "pencil"), Err(ScramError::WrongProof), "{user}");
        }
    }

    #[test]
    fn a_password_is_salted_once() {
        let users = users("\"ann\" \"pencil\"");
        // Each making of a verifier draws another salt.
        assert_eq!(users.scram_verifier(b"ann"), users.clone().scram_verifier(b"ann"));
        assert_eq!(users.scram_verifier(b"nobody"), users.scram_verifier(b"nobody"));
    }

    #[test]
    fn debug_output_has_no_secrets() {
        let users = users("\"ann\" \"pencil\"");
        let shown = format!("{users:?} {:?}", users.get(b"ann"));
        assert_eq!(shown, "Users { count: 1, .. } Some(Plain(..))");
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(name in "[^\n\r]{1,20}", password in "[^\n\r]{1,20}") {
            let quote = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
            let users = users(&format!("{} {}", quote(&name), quote(&password)));
            prop_assert_eq!(users.get(name.as_bytes()), Some(&Secret::Plain(password)));
        }

        #[test]
        fn garbage_never_panics(text in "[\"a;# \n]{0,40}") {
            let _ = Users::parse(&text, Path::new("users.txt"));
        }
    }
}
