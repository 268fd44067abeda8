//! Users whose secrets a server knows: `auth_query`, asked through a connection of the proxy's own.
//!
//! # Mechanism
//! A client that names a user who is not in the users file waits until [`Lookups`] has an answer.
//! One thread for each server and login takes the names that are asked for, one after the other,
//! and runs the query with the name as its parameter, in the extended protocol, so that no name can
//! become SQL. The connection is no client's, passes no gate, is opened when it is first needed and
//! closed when it has rested for [`REST`].
//!
//! ```text
//! event loop: find -> known        -> challenge
//!                  -> not known    -> request -> thread: query -> Message::LookedUp -> challenge
//! ```
//!
//! # What is remembered
//! An answer holds for [`FRESH`], whether the server knows the user or not. After a failed login it
//! holds for [`DOUBTED`] only, so that a changed password, or a new user, is seen at the next
//! attempt, and wrong passwords cause one query a second and name. A verifier that has not changed
//! keeps the key that a client's proof has yielded, with which the proxy logs in to the server.
//! Names of clients that have gone are not asked for.
//!
//! # What can go wrong
//! While the server cannot be reached, clients wait as long as a login may take, and the query is
//! tried again after 0.1 s at first and 1 s at most. What will not go away by itself (a wrong
//! password of `auth_user`, a query that fails) refuses those that wait, and so does an answer that
//! makes no sense: several rows, another name. All of it is logged once for each reason.
//!
//! # Limits
//! Whether a name was looked up in the last seconds can be seen from the time until the challenge;
//! whether the server knows it cannot.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_wire::frontend;

use crate::client::Requester;
use crate::config::{AuthQuery, Database, ServerTls};
use crate::handshake::{Credentials, UpstreamError};
use crate::mailbox::Message;
use crate::reloaded::Reloaded;
use crate::scram::VerifierError;
use crate::shared::{Connectors, InForce, Server};
use crate::users::{Secret, User, Users};
use crate::watch::ANY_DATABASE;
use crate::watch::queries::{Row, SessionEnd, WatchConnection, WatchPoll};

/// How long an answer holds.
const FRESH: Duration = Duration::from_secs(10);

/// How long an answer holds after which a login has failed.
const DOUBTED: Duration = Duration::from_secs(1);

/// How long the connection is kept while nothing is asked.
const REST: Duration = Duration::from_secs(60);

/// Time before a server is asked again that could not be, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Bytes of the longest name that is asked for: PostgreSQL's have 63, unless it was built to have
/// longer ones.
const NAME_MAX: usize = 255;

/// Answers that are remembered before those that no longer hold are looked for and forgotten.
const REMEMBERED: usize = 1024;

/// The name of the connection in `pg_stat_activity`.
const APPLICATION: &str = "tidegate auth_query";

/// What is known of a user.
pub(crate) enum Found {
    /// What the server said a short time ago; `None` is a user that it does not know.
    Known(Option<Arc<User>>),
    /// The server has to be asked.
    Ask,
}

/// What came of an inquiry.
pub(crate) type LookedUp = Result<Option<Arc<User>>, Arc<str>>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum LookUpError {
    #[error(transparent)]
    Server(#[from] UpstreamError),
    #[error("auth_query has to return a name and a password, and returned {0} column(s)")]
    Columns(usize),
    #[error("auth_query returned {0} rows for one user")]
    Rows(usize),
    #[error("auth_query returned user {0:?} instead of the one it was asked for")]
    OtherName(String),
    #[error("auth_query returned a secret that cannot be used: {0}")]
    Verifier(#[from] VerifierError),
}

impl LookUpError {
    /// Returns whether it may go away by itself.
    fn may_pass(&self) -> bool {
        match self {
            LookUpError::Server(error) => match error {
                UpstreamError::Refused { code, .. } => {
                    ["57P", "53", "08"].iter().any(|class| code.starts_with(class))
                }
                UpstreamError::Io(_) | UpstreamError::TimedOut | UpstreamError::Closed => true,
                _ => false,
            },
            _ => false,
        }
    }
}

/// What the server has said about a name.
enum Told {
    /// It knows no such user.
    Unknown,
    /// This is the user's secret, if there is one.
    Secret(Option<Secret>),
}

/// Where and as whom users are looked up.
#[derive(Clone, Debug)]
struct LookUpPlan {
    server: Arc<Server>,
    connectors: Connectors,
    tls: ServerTls,
    query: AuthQuery,
    /// The database to log in to.
    database: String,
    credentials: Credentials,
}

/// What one server says about users.
#[derive(Debug)]
pub(crate) struct Lookups {
    plan: LookUpPlan,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    answers: HashMap<Box<str>, Answer>,
    /// Who waits for an answer about a name.
    waiting: HashMap<Box<str>, Vec<Requester>>,
    /// The names to ask for, first the one that was asked for first; also some that no client waits
    /// for any more.
    queue: VecDeque<Box<str>>,
    /// Why the server could not be asked last.
    trouble: Option<Arc<str>>,
    /// Iterations of PBKDF2 in the verifier that was seen last.
    iterations: Option<u32>,
    is_stopped: bool,
}

#[derive(Debug)]
struct Answer {
    user: Option<Arc<User>>,
    since: Instant,
    /// A login has failed by it.
    is_doubted: bool,
}

impl Answer {
    fn holds(&self, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.since);
        age < if self.is_doubted { DOUBTED } else { FRESH }
    }
}

/// What the thread does next.
enum Next {
    Ask(Box<str>),
    /// Nothing has been asked for a while.
    Rest,
    Stop,
}

/// Returns where the users of an entry's database are looked up, if they are: with one of `others`
/// if that says the same.
pub(crate) fn lookups<'o>(
    users: &Users,
    (database, server, connectors): (&Database, &Arc<Server>, &Connectors),
    mut others: impl Iterator<Item = &'o Arc<Lookups>>,
) -> Option<Arc<Lookups>> {
    let query = database.auth_query.as_ref()?;
    let login_database = login_database(database);
    let is_same = |plan: &LookUpPlan| {
        Arc::ptr_eq(&plan.server, server)
            && plan.tls == database.tls
            && plan.query == *query
            && plan.database == login_database
    };
    if let Some(known) = others.find(|other| is_same(&other.plan)) {
        return Some(Arc::clone(known));
    }
    let (tls, password) = (database.tls.clone(), query.password.as_deref());
    let plan = LookUpPlan {
        server: Arc::clone(server),
        connectors: Arc::clone(connectors),
        credentials: Credentials::own(&query.user, password, users, tls.channel_binding),
        tls,
        query: query.clone(),
        database: login_database,
    };
    Some(Arc::new(Lookups { plan, state: Mutex::default(), changed: Condvar::new() }))
}

/// Returns the database to log in to.
fn login_database(database: &Database) -> String {
    let own = database.auth_query.as_ref().and_then(|query| query.database.clone());
    let served = || database.server_database.clone().or_else(|| database.name.clone());
    own.or_else(served).unwrap_or_else(|| ANY_DATABASE.to_owned())
}

impl Lookups {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is known of a user now.
    pub(crate) fn find(&self, name: &str, now: Instant) -> Found {
        if name.len() > NAME_MAX {
            return Found::Known(None);
        }
        match self.lock().answers.get(name) {
            Some(answer) if answer.holds(now) => Found::Known(answer.user.clone()),
            _ => Found::Ask,
        }
    }

    /// Returns what was last known of a user, however long ago: for a login at the server that
    /// follows one of a client.
    pub(crate) fn last_known(&self, name: &str) -> Option<Arc<User>> {
        self.lock().answers.get(name)?.user.clone()
    }

    /// Returns the iterations of PBKDF2 that the server's verifiers have, once one was seen.
    pub(crate) fn iterations(&self) -> Option<u32> {
        self.lock().iterations
    }

    /// Returns why the server could not be asked last, if it could not.
    pub(crate) fn trouble(&self) -> Option<Arc<str>> {
        self.lock().trouble.clone()
    }

    /// Asks for a user. The client's event loop gets the answer.
    pub(crate) fn request(&self, name: &str, requester: Requester) {
        let mut state = self.lock();
        if let Some(waiting) = state.waiting.get_mut(name) {
            return waiting.push(requester);
        }
        state.waiting.insert(name.into(), vec![requester]);
        state.queue.push_back(name.into());
        drop(state);
        self.changed.notify_one();
    }

    /// Forgets that a client waits for an answer: it has gone.
    pub(crate) fn forget(&self, name: &str, gone: Requester) {
        let mut state = self.lock();
        let Some(waiting) = state.waiting.get_mut(name) else { return };
        waiting.retain(|requester| *requester != gone);
        if !waiting.is_empty() {
            return;
        }
        state.waiting.remove(name);
        let State { queue, waiting, .. } = &mut *state;
        if queue.len() > 2 * waiting.len() + REMEMBERED {
            // A name whose client has gone may be awaited again, and then be in the queue twice.
            queue.retain(|name| waiting.contains_key(name));
        }
    }

    /// Notes that a login has failed by what is known of a user.
    pub(crate) fn doubt(&self, name: &str) {
        if let Some(answer) = self.lock().answers.get_mut(name) {
            answer.is_doubted = true;
        }
    }

    /// Waits for a name that a client waits for.
    fn next(&self) -> Next {
        let mut state = self.lock();
        loop {
            if state.is_stopped {
                return Next::Stop;
            }
            while let Some(name) = state.queue.pop_front() {
                if state.waiting.contains_key(&name) {
                    return Next::Ask(name);
                }
            }
            let waited = self.changed.wait_timeout(state, REST);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timeout.timed_out() && state.queue.is_empty() && !state.is_stopped {
                return Next::Rest;
            }
        }
    }

    /// Remembers an answer. Returns what is known of the user now, and who waits for it.
    fn learn(&self, name: &str, told: Told, now: Instant) -> (Option<Arc<User>>, Vec<Requester>) {
        let mut state = self.lock();
        state.trouble = None;
        if let Told::Secret(Some(Secret::Scram(verifier))) = &told {
            state.iterations = Some(verifier.iterations());
        }
        let before = state.answers.get(name).and_then(|answer| answer.user.clone());
        let user = match (told, before) {
            (Told::Unknown, _) => None,
            (Told::Secret(secret), Some(before)) if before.secret() == secret.as_ref() => {
                Some(before)
            }
            (Told::Secret(secret), _) => Some(Arc::new(User::new(secret))),
        };
        let answer = Answer { user: user.clone(), since: now, is_doubted: false };
        state.answers.insert(name.into(), answer);
        if state.answers.len() > REMEMBERED && state.answers.len().is_power_of_two() {
            // There are no more users than the server has; unknown names can be any.
            state.answers.retain(|_, answer| answer.user.is_some() || answer.holds(now));
        }
        (user, state.waiting.remove(name).unwrap_or_default())
    }

    /// Returns who waits for an answer about a name, or about any.
    fn take_waiting(&self, name: Option<&str>) -> Vec<Requester> {
        let mut state = self.lock();
        match name {
            Some(name) => state.waiting.remove(name).unwrap_or_default(),
            None => std::mem::take(&mut state.waiting).into_values().flatten().collect(),
        }
    }

    /// Notes why the server cannot be asked. Returns whether that is new.
    fn note_trouble(&self, trouble: &Arc<str>) -> bool {
        let before = self.lock().trouble.replace(Arc::clone(trouble));
        before.as_ref() != Some(trouble)
    }
}

/// A thread that looks users up. Dropping it ends the thread and its connection.
pub(crate) struct LookUpThread {
    lookups: Arc<Lookups>,
    stop: mio::Waker,
    thread: Option<JoinHandle<()>>,
}

impl LookUpThread {
    /// Starts to look users up.
    pub(crate) fn start(
        in_force: Arc<InForce>,
        lookups: Arc<Lookups>,
    ) -> std::io::Result<LookUpThread> {
        let (poll, stop) = WatchPoll::new()?;
        let mut asker = Asker {
            server: lookups.plan.server.address.to_string(),
            in_force,
            lookups: Arc::clone(&lookups),
            poll,
            connection: None,
            attempt: 0,
            pause: PAUSE.0,
        };
        let thread = std::thread::Builder::new().name("tidegate-lookup".into());
        let thread = thread.spawn(move || asker.run())?;
        Ok(LookUpThread { lookups, stop, thread: Some(thread) })
    }

    /// Returns whether it is that of these lookups.
    pub(crate) fn is_of(&self, lookups: &Arc<Lookups>) -> bool {
        Arc::ptr_eq(&self.lookups, lookups)
    }
}

impl Drop for LookUpThread {
    fn drop(&mut self) {
        self.lookups.lock().is_stopped = true;
        self.lookups.changed.notify_all();
        let woken = self.stop.wake();
        if let (Ok(()), Some(thread)) = (woken, self.thread.take())
            && thread.join().is_err()
        {
            tracing::error!("a thread that looks users up panicked");
        }
    }
}

/// The thread's own.
struct Asker {
    in_force: Arc<InForce>,
    lookups: Arc<Lookups>,
    /// The server's address, for the log.
    server: String,
    poll: WatchPoll,
    connection: Option<WatchConnection>,
    /// Connections begun, which takes a name's addresses in turn.
    attempt: usize,
    pause: Duration,
}

impl Asker {
    fn run(&mut self) {
        loop {
            match self.lookups.next() {
                Next::Ask(name) => match self.answer(name) {
                    Ok(()) => {}
                    Err(SessionEnd::Stopped) => return self.leave(),
                    Err(SessionEnd::Failed(error)) => {
                        tracing::error!(%error, "users are looked up no more: cannot wait");
                        return;
                    }
                },
                Next::Rest => self.leave(),
                Next::Stop => return self.leave(),
            }
        }
    }

    fn leave(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.leave();
        }
    }

    /// Asks for a name and tells those who wait for it.
    ///
    /// # Errors
    /// The thread is to stop.
    fn answer(&mut self, name: Box<str>) -> Result<(), SessionEnd> {
        match self.look_up(&name) {
            Ok(told) => {
                self.pause = PAUSE.0;
                let (user, waiting) = self.lookups.learn(&name, told, Instant::now());
                self.tell(waiting, &Ok(user));
                Ok(())
            }
            Err(Failure::Stopped) => Err(SessionEnd::Stopped),
            Err(Failure::Error(error)) => self.failed(name, &error),
        }
    }

    fn tell(&self, waiting: Vec<Requester>, looked_up: &LookedUp) {
        let shared = self.in_force.get();
        for Requester { worker, client } in waiting {
            let looked_up = looked_up.clone();
            shared.mailboxes[worker.0].post(Message::LookedUp { client, looked_up });
        }
    }

    /// Refuses those who wait for a name, or lets them wait until the server can be asked again.
    fn failed(&mut self, name: Box<str>, error: &LookUpError) -> Result<(), SessionEnd> {
        let trouble: Arc<str> = error.to_string().into();
        if self.lookups.note_trouble(&trouble) {
            let (server, user) = (&*self.server, &*self.lookups.plan.credentials.user);
            let database = &*self.lookups.plan.database;
            tracing::warn!(server, database, user, error = &*trouble, "users cannot be looked up");
        }
        let is_of_server = matches!(error, LookUpError::Server(_));
        if error.may_pass() {
            // Behind the others, in case it is this name that the query fails for.
            self.lookups.lock().queue.push_back(name);
        } else {
            let waiting = self.lookups.take_waiting((!is_of_server).then_some(&*name));
            self.tell(waiting, &Err(trouble));
        }
        if is_of_server {
            self.connection = None;
            self.poll.sleep_until(Instant::now() + self.pause)?;
            self.pause = (self.pause * 2).min(PAUSE.1);
        }
        Ok(())
    }

    /// Asks the server for a user's secret.
    fn look_up(&mut self, name: &str) -> Result<Told, Failure> {
        let was_open = self.connection.is_some();
        let rows = match self.rows(name) {
            // The server may end a connection that rests.
            Err(SessionEnd::Failed(
                UpstreamError::Closed | UpstreamError::Io(_) | UpstreamError::Refused { .. },
            )) if was_open => {
                self.connection = None;
                self.rows(name)?
            }
            rows => rows?,
        };
        Ok(read(&rows, name)?)
    }

    fn rows(&mut self, name: &str) -> Result<Vec<Row>, SessionEnd> {
        let deadline = Instant::now() + self.in_force.get().config.timeouts.connect;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.open(deadline)?,
        };
        let mut request = Vec::new();
        let query = frontend::definition(self.lookups.plan.query.sql.as_bytes());
        frontend::encode_parse(&mut request, b"", &query);
        frontend::encode_bind_text(&mut request, b"", std::iter::once(name.as_bytes()));
        frontend::encode_execute(&mut request);
        request.extend_from_slice(frontend::SYNC);
        let rows = connection.rows(&mut self.poll, &request, deadline)?;
        self.connection = Some(connection);
        Ok(rows)
    }

    fn open(&mut self, deadline: Instant) -> Result<WatchConnection, SessionEnd> {
        let plan = &self.lookups.plan;
        self.attempt += 1;
        let peer = plan.server.hosts.observed_peer(self.attempt);
        let connector = plan.connectors.get(peer.host).and_then(|it| it.as_ref());
        let server = (&*plan.server, connector.map(Reloaded::get));
        let mut connection = WatchConnection::open(&mut self.poll, server, peer, deadline)?;
        let place = (&*plan.database, APPLICATION);
        connection.log_in(&mut self.poll, &plan.credentials, place, deadline)?;
        Ok(connection)
    }
}

/// Why the thread has no answer.
enum Failure {
    /// It is to stop.
    Stopped,
    Error(LookUpError),
}

impl From<SessionEnd> for Failure {
    fn from(end: SessionEnd) -> Failure {
        match end {
            SessionEnd::Stopped => Failure::Stopped,
            SessionEnd::Failed(error) => Failure::Error(error.into()),
        }
    }
}

impl From<LookUpError> for Failure {
    fn from(error: LookUpError) -> Failure {
        Failure::Error(error)
    }
}

/// Reads the answer to the query for a name.
fn read(rows: &[Row], name: &str) -> Result<Told, LookUpError> {
    let row = match rows {
        [] => return Ok(Told::Unknown),
        [row] => row,
        rows => return Err(LookUpError::Rows(rows.len())),
    };
    let (Some(found), Some(secret)) = (row.text(0), row.text(1)) else {
        return Err(LookUpError::Columns(row.columns()));
    };
    // A function that returns a record returns one of NULLs for a user whom it does not find.
    if found.is_empty() {
        return Ok(Told::Unknown);
    }
    // The server cuts names off that are too long for it, and a query may return what it likes.
    if found != name {
        return Err(LookUpError::OtherName(found.to_owned()));
    }
    Ok(Told::Secret(Secret::parse(secret.to_owned())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ChannelBindingMode, Negotiation, ServerAddress, SslMode, TlsVersion};
    use crate::slots::{ServerIndex, Slot, WorkerIndex};
    use tidegate_control::Mpl;
    use tidegate_gate::{Gate, Limits};

    fn lookups() -> Lookups {
        let users = Users::none().unwrap();
        let limits = Limits { mpl: Mpl::ONE, mpl_max: Mpl::ONE, waiting_max: 1 };
        let address = ServerAddress::Unix("/nowhere".into()).into();
        let gate = Gate::new(limits, Instant::now());
        let server = Server::new((ServerIndex(0), address), gate, 0).unwrap();
        let (user, sql) = ("looker".to_owned(), String::new());
        let query = AuthQuery { user, password: None, database: None, sql };
        let plan = LookUpPlan {
            server: Arc::new(server),
            connectors: Arc::default(),
            tls: ServerTls {
                mode: SslMode::Disable,
                roots: None,
                identity: None,
                negotiation: Negotiation::default(),
                channel_binding: ChannelBindingMode::Prefer,
                min_version: TlsVersion::default(),
            },
            database: "d".into(),
            credentials: Credentials::own("looker", None, &users, ChannelBindingMode::Prefer),
            query,
        };
        Lookups { plan, state: Mutex::default(), changed: Condvar::new() }
    }

    fn secret(text: &str) -> Told {
        Told::Secret(Secret::parse(text.into()).unwrap())
    }

    fn requester(number: u64) -> Requester {
        Requester { worker: WorkerIndex(0), client: Slot::from_bits(number) }
    }

    fn is_known(lookups: &Lookups, name: &str, now: Instant) -> bool {
        matches!(lookups.find(name, now), Found::Known(_))
    }

    #[test]
    fn an_answer_holds_for_a_while_and_shorter_after_a_failed_login() {
        let (lookups, start) = (lookups(), Instant::now());
        for (name, told) in [("ann", secret("x")), ("nobody", Told::Unknown)] {
            assert!(!is_known(&lookups, name, start));
            lookups.learn(name, told, start);
            assert!(is_known(&lookups, name, start + DOUBTED));
            assert!(!is_known(&lookups, name, start + FRESH));
            lookups.doubt(name);
            assert!(is_known(&lookups, name, start));
            assert!(!is_known(&lookups, name, start + DOUBTED));
            assert_eq!(lookups.last_known(name).is_some(), name == "ann");
        }
        assert!(is_known(&lookups, &"x".repeat(NAME_MAX + 1), start), "no server has the name");
    }

    #[test]
    fn a_user_stays_the_same_until_the_secret_changes() {
        let (lookups, now) = (lookups(), Instant::now());
        let (first, _) = lookups.learn("ann", secret("x"), now);
        let (second, _) = lookups.learn("ann", secret("x"), now);
        assert!(Arc::ptr_eq(first.as_ref().unwrap(), &second.unwrap()));
        let (third, _) = lookups.learn("ann", secret("y"), now);
        assert!(!Arc::ptr_eq(first.as_ref().unwrap(), &third.unwrap()));
        lookups.learn("ann", Told::Unknown, now);
        assert!(lookups.last_known("ann").is_none());
    }

    #[test]
    fn a_name_is_asked_for_once_and_only_while_a_client_waits() {
        let lookups = lookups();
        for (name, number) in [("ann", 1), ("bob", 2), ("ann", 3), ("eve", 4)] {
            lookups.request(name, requester(number));
        }
        lookups.forget("bob", requester(2));
        lookups.forget("ann", requester(1));
        for name in ["ann", "eve"] {
            let Next::Ask(asked) = lookups.next() else { panic!("{name} is waited for") };
            assert_eq!(&*asked, name);
            let (_, waiting) = lookups.learn(name, Told::Unknown, Instant::now());
            assert_eq!(waiting, [requester(if name == "ann" { 3 } else { 4 })]);
        }
    }

    #[test]
    fn unknown_names_are_forgotten_in_time_and_users_are_not() {
        let (lookups, start) = (lookups(), Instant::now());
        lookups.learn("ann", secret("x"), start);
        for number in 0..10 * REMEMBERED {
            let now = start + Duration::from_millis(100) * u32::try_from(number).unwrap();
            lookups.learn(&format!("nobody {number}"), Told::Unknown, now);
        }
        let remembered = lookups.lock().answers.len();
        assert!(remembered <= 2 * REMEMBERED, "{remembered}");
        assert!(lookups.last_known("ann").is_some());
    }

    #[test]
    fn answers_that_make_no_sense_are_errors() {
        let user = |told| match told {
            Ok(Told::Secret(secret)) => format!("{secret:?}"),
            Ok(Told::Unknown) => "unknown".to_owned(),
            Err(error) => LookUpError::to_string(&error),
        };
        let rows = |rows: &[&[&str]]| rows.iter().map(|row| Row::of(row)).collect::<Vec<_>>();
        for (answer, expected) in [
            (rows(&[]), "unknown"),
            (rows(&[&["", ""]]), "unknown"),
            (rows(&[&["ann", ""]]), "None"),
            (rows(&[&["ann", "x"]]), "Some(Plain(..))"),
            (rows(&[&["ann", "x", "more"]]), "Some(Plain(..))"),
            (rows(&[&["ann"]]), "and returned 1 column(s)"),
            (rows(&[&["bob", "x"]]), "returned user \"bob\" instead"),
            (rows(&[&["ann", "x"], &["ann", "y"]]), "returned 2 rows"),
            (rows(&[&["ann", "SCRAM-SHA-256$"]]), "a secret that cannot be used"),
        ] {
            let told = user(read(&answer, "ann"));
            assert!(told.contains(expected), "{told}");
        }
    }
}
