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
//! The file is read again when it has changed. Who is not in it may be known to a server: see
//! [`crate::auth_query`]. Who is known to neither gets the same exchange as others, with a
//! challenge that [`Mock`] makes up.
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
use std::sync::{Arc, OnceLock, Weak};

use ctutils::CtEq;
use md5::{Digest, Md5};
use thiserror::Error;

use crate::reloaded::Reloaded;
use crate::scram::{self, ClientKey, ScramVerifier, VerifierError};

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

    /// Reads a secret as it is in a user file or in `pg_authid.rolpassword`; `None` is none.
    ///
    /// # Errors
    /// It begins like a SCRAM verifier and is none.
    pub(crate) fn parse(text: String) -> Result<Option<Secret>, VerifierError> {
        if text.is_empty() {
            return Ok(None);
        }
        if text.starts_with(ScramVerifier::PREFIX) {
            return Ok(Some(Secret::Scram(ScramVerifier::parse(&text)?)));
        }
        let is_hash =
            |digits: &str| digits.len() == 32 && digits.bytes().all(|it| it.is_ascii_hexdigit());
        if text.strip_prefix("md5").is_some_and(is_hash) {
            return Ok(Some(Secret::Md5(text.to_ascii_lowercase())));
        }
        Ok(Some(Secret::Plain(text)))
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

/// A user: what proves that somebody is this user, and what was derived from it.
#[derive(Debug, Default)]
pub(crate) struct User {
    /// `None` is a user who is known and can prove it by no password.
    secret: Option<Secret>,
    /// The verifier of a plain password, made when it is first needed: making one costs
    /// milliseconds, which must not be paid by every connection.
    verifier: OnceLock<ScramVerifier>,
    /// What the proof of a client has yielded, for a SCRAM verifier.
    client_key: OnceLock<ClientKey>,
}

impl User {
    pub(crate) fn new(secret: Option<Secret>) -> User {
        User { secret, ..User::default() }
    }

    pub(crate) fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    /// Returns what to run a SCRAM exchange against, if there can be one.
    pub(crate) fn scram_verifier(&self) -> Option<&ScramVerifier> {
        match self.secret.as_ref()? {
            Secret::Plain(password) => {
                Some(self.verifier.get_or_init(|| ScramVerifier::of_password(password)))
            }
            Secret::Scram(verifier) => Some(verifier),
            Secret::Md5(_) => None,
        }
    }

    /// Keeps the key that a client's proof has yielded, for logins at servers with the same
    /// verifier.
    pub(crate) fn learn(&self, key: ClientKey) {
        // The verifier of a plain password was made here, and no server has it.
        if matches!(self.secret, Some(Secret::Scram(_))) {
            // A verifier has one key, so a second proof yields the same.
            self.client_key.get_or_init(|| key);
        }
    }

    /// Returns the key that a client of this user has proved, if one has.
    pub(crate) fn client_key(&self) -> Option<&ClientKey> {
        self.client_key.get()
    }
}

/// What the challenges of unknown users are made of, so that they look like those of known ones.
///
/// The same name gets the same salt as long as the proxy runs.
#[derive(Clone)]
pub(crate) struct Mock {
    secret: [u8; 32],
    /// Iterations of PBKDF2 that most known users have.
    iterations: u32,
    /// How many of [`Mock::SHARES`] known users have no SCRAM verifier of a server, and so prove
    /// themselves by MD5 where that is allowed.
    md5_share: u32,
}

impl Mock {
    const SHARES: u32 = 1 << 16;

    /// Returns the mock beside these users.
    fn beside<'u>(users: impl Iterator<Item = &'u Secret>, secret: [u8; 32]) -> Mock {
        let mut counts: HashMap<u32, u32> = HashMap::new();
        let (mut all, mut md5) = (0_u32, 0_u32);
        for user in users {
            all += 1;
            match user {
                Secret::Scram(verifier) => *counts.entry(verifier.iterations()).or_default() += 1,
                Secret::Plain(_) | Secret::Md5(_) => md5 += 1,
            }
        }
        let most = counts.into_iter().max_by_key(|&(iterations, count)| (count, iterations));
        let share = u64::from(md5) * u64::from(Mock::SHARES) / u64::from(all.max(1));
        Mock {
            secret,
            iterations: most.map_or(scram::ITERATIONS, |(iterations, _)| iterations),
            md5_share: u32::try_from(share).unwrap_or(Mock::SHARES),
        }
    }

    /// Returns the mock for users of a server whose verifiers have so many iterations, if that is
    /// known.
    pub(crate) fn with_iterations(self, iterations: Option<u32>) -> Mock {
        Mock { iterations: iterations.unwrap_or(self.iterations), ..self }
    }

    /// Returns a verifier that no password satisfies.
    pub(crate) fn scram_verifier(&self, user: &[u8]) -> ScramVerifier {
        ScramVerifier::mock(&self.secret, user, self.iterations)
    }

    /// Returns whether this unknown user, where known ones prove themselves by MD5 or by SCRAM, is
    /// one of those who do it by MD5. There are as many of them, in proportion, as known ones.
    pub(crate) fn proves_by_md5(&self, user: &[u8]) -> bool {
        scram::mock_share(&self.secret, user) % Mock::SHARES < self.md5_share
    }
}

/// What a user file says.
struct Table {
    users: HashMap<Vec<u8>, Arc<User>>,
    mock: Mock,
}

/// The users of a file; clones share them, also when the file is read again.
#[derive(Clone)]
pub struct Users(Arc<Reloaded<Table>>);

impl fmt::Debug for Users {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.get().users.len();
        formatter.debug_struct("Users").field("count", &count).finish_non_exhaustive()
    }
}

impl Users {
    /// Reads the user file at `path`.
    ///
    /// # Errors
    /// It cannot be read, a line of it is wrong, or there is no randomness.
    pub fn load(path: &Path) -> Result<Users, UsersError> {
        let own = path.to_owned();
        let read = move |before: Option<&Table>| {
            let text = std::fs::read_to_string(&own)
                .map_err(|source| UsersError::Read { path: own.clone(), source })?;
            Table::parse(&text, &own, before)
        };
        let live = Reloaded::new("the user file", vec![path.to_owned()], read)?;
        Ok(Users(Arc::new(live)))
    }

    /// Returns no users.
    ///
    /// # Errors
    /// There is no randomness for the salts of unknown users.
    pub fn none() -> Result<Users, UsersError> {
        Users::parse("", Path::new(""))
    }

    /// Reads a user file's `text`; `path` is for the errors.
    ///
    /// # Errors
    /// A line is wrong, or there is no randomness.
    pub fn parse(text: &str, path: &Path) -> Result<Users, UsersError> {
        let (text, path) = (text.to_owned(), path.to_owned());
        let read = move |before: Option<&Table>| Table::parse(&text, &path, before);
        Ok(Users(Arc::new(Reloaded::new("the user file", Vec::new(), read)?)))
    }

    /// Reads the file again if it has changed.
    pub(crate) fn reload(&self) {
        if self.0.reload() {
            self.derive_verifiers();
        }
    }

    /// Reads the file again now.
    pub(crate) fn reread(&self) {
        if self.0.reread() {
            self.derive_verifiers();
        }
    }

    /// Returns whether both are read from the same file.
    pub(crate) fn is_of_same_file(&self, other: &Users) -> bool {
        self.0.is_of_same_files(&other.0)
    }

    /// Makes the SCRAM verifiers of plain passwords, on a thread of its own: a login that has to
    /// make one takes longer than that of an unknown user.
    pub(crate) fn derive_verifiers(&self) {
        let table = self.0.get();
        let is_plain = |user: &&Arc<User>| matches!(user.secret, Some(Secret::Plain(_)));
        let plain: Vec<Weak<User>> =
            table.users.values().filter(is_plain).map(Arc::downgrade).collect();
        if plain.is_empty() {
            return;
        }
        let derived = std::thread::Builder::new().name("tidegate-users".into()).spawn(move || {
            // Users that have gone meanwhile, with their file or with the proxy, need none.
            for user in plain.iter().filter_map(Weak::upgrade) {
                user.scram_verifier();
            }
        });
        if let Err(error) = derived {
            tracing::warn!(%error, "no thread to derive SCRAM verifiers; logins derive them");
        }
    }

    /// Returns this user, if the file has it.
    pub(crate) fn find(&self, user: &[u8]) -> Option<Arc<User>> {
        self.0.get().users.get(user).cloned()
    }

    /// Returns what the challenges of unknown users are made of.
    pub(crate) fn mock(&self) -> Mock {
        self.0.get().mock.clone()
    }
}

impl Table {
    /// Reads a file's text. Users whose secret is the same as before keep what was derived from it.
    fn parse(text: &str, path: &Path, before: Option<&Table>) -> Result<Table, UsersError> {
        let mut secrets = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            add_line(&mut secrets, line).map_err(|error| UsersError::Line {
                path: path.to_owned(),
                line: index + 1,
                error,
            })?;
        }
        let mock_secret = match before {
            Some(before) => before.mock.secret,
            None => random_secret()?,
        };
        let mock = Mock::beside(secrets.values().flatten(), mock_secret);
        let user = |(name, secret): (Vec<u8>, Option<Secret>)| {
            let known = before.and_then(|before| before.users.get(&name));
            let known = known.filter(|known| known.secret == secret).cloned();
            (name, known.unwrap_or_else(|| Arc::new(User::new(secret))))
        };
        Ok(Table { users: secrets.into_iter().map(user).collect(), mock })
    }
}

fn add_line(users: &mut HashMap<Vec<u8>, Option<Secret>>, line: &str) -> Result<(), LineError> {
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
    users.insert(name.into_bytes(), Secret::parse(secret)?);
    Ok(())
}

fn random_secret() -> Result<[u8; 32], UsersError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(UsersError::Randomness)?;
    Ok(secret)
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

    /// What a SCRAM exchange with this user is run against.
    fn verifier(users: &Users, user: &str) -> ScramVerifier {
        let known = users.find(user.as_bytes());
        let known = known.as_ref().and_then(|known| known.scram_verifier());
        known.cloned().unwrap_or_else(|| users.mock().scram_verifier(user.as_bytes()))
    }

    fn secret(users: &Users, user: &str) -> Option<Secret> {
        users.find(user.as_bytes())?.secret().cloned()
    }

    fn scram_login(users: &Users, user: &str, password: &str) -> Result<(), ScramError> {
        let binding = sasl::ChannelBinding::unsupported();
        let mut client = sasl::ScramSha256::new(password.as_bytes(), binding);
        let verifier = verifier(users, user);
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
        assert_eq!(secret(&users, "ann"), Some(Secret::Plain("pl\"ain".into())));
        assert_eq!(secret(&users, "b\"ob"), Some(Secret::Md5(format!("md5{}", "ab".repeat(16)))));
        assert_eq!(secret(&users, "md\""), Some(Secret::Plain("md5short".into())));
        assert_eq!(
            secret(&users, "eve"),
            Some(Secret::Scram(ScramVerifier::parse(&scram).unwrap()))
        );
        assert_eq!(secret(&users, "nobody"), None);
        assert_eq!(secret(&users, "none"), None);
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
        assert_eq!(verifier(&users, "ann"), verifier(&users.clone(), "ann"));
        assert_eq!(verifier(&users, "nobody"), verifier(&users, "nobody"));
    }

    /// Who is not known is asked in the way in which most are, and always in the same.
    #[test]
    fn unknown_users_look_like_known_ones() {
        let md5 = password::md5(b"x", "ann");
        let scram = password::scram_sha_256(b"x").replace("$4096:", "$9999:");
        let names: Vec<String> = (0..1000).map(|number| format!("nobody {number}")).collect();
        for (text, least, most) in [
            (format!("\"ann\" \"{md5}\"\n\"bob\" \"plain\""), 1000, 1000),
            (format!("\"ann\" \"{scram}\"\n\"bob\" \"\""), 0, 0),
            (format!("\"ann\" \"{scram}\"\n\"bob\" \"{md5}\""), 400, 600),
        ] {
            let mock = users(&text).mock();
            let is_md5 = |name: &&String| mock.proves_by_md5(name.as_bytes());
            let by_md5: Vec<&String> = names.iter().filter(is_md5).collect();
            assert!((least..=most).contains(&by_md5.len()), "{}", by_md5.len());
            let iterations = mock.scram_verifier(b"nobody").iterations();
            assert_eq!(iterations, if text.contains("9999") { 9999 } else { 4096 });
        }
    }

    #[test]
    fn a_file_that_is_read_again_keeps_what_has_not_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.txt");
        std::fs::write(&path, "\"ann\" \"pencil\"\n\"bob\" \"pen\"").unwrap();
        let users = Users::load(&path).unwrap();
        let (ann, nobody) = (verifier(&users, "ann"), verifier(&users, "nobody"));
        std::fs::write(&path, "\"ann\" \"pencil\"\n\"bob\" \"brush\"\n\"eve\" \"x\"").unwrap();
        users.reload();
        users.reload();
        assert_eq!(secret(&users, "bob"), Some(Secret::Plain("brush".into())));
        assert!(users.find(b"eve").is_some());
        assert_eq!(verifier(&users, "ann"), ann);
        assert_eq!(verifier(&users, "nobody"), nobody);
        std::fs::write(&path, "\"ann").unwrap();
        users.reload();
        users.reload();
        assert!(users.find(b"eve").is_some(), "a wrong file changes nothing");
    }

    #[test]
    fn debug_output_has_no_secrets() {
        let users = users("\"ann\" \"pencil\"");
        let shown = format!("{users:?} {:?}", secret(&users, "ann"));
        assert_eq!(shown, "Users { count: 1, .. } Some(Plain(..))");
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(name in "[^\n\r]{1,20}", password in "[^\n\r]{1,20}") {
            let quote = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
            let users = users(&format!("{} {}", quote(&name), quote(&password)));
            prop_assert_eq!(secret(&users, &name), Some(Secret::Plain(password)));
        }

        #[test]
        fn garbage_never_panics(text in "[\"a;# \n]{0,40}") {
            let _ = Users::parse(&text, Path::new("users.txt"));
        }
    }
}
