//! Named prepared statements in transaction mode.
//!
//! A client prepares `S1` and later runs it on another connection, where another client's `S1` may
//! live. So each distinct definition (query text and parameter types, for each `search_path`) gets
//! one name on the server,
//! [`Statement::server_name`], used by all clients of a worker; a client's own names map to
//! definitions. A connection on which a statement is missing gets a Parse from the proxy first.
//! The number of statements on a connection is bounded: the least recently used one is closed.
//!
//! A definition longer than [`DEFINITION_KEPT_MAX`] is not kept: it goes to the connection in
//! pieces, as it arrives, and cannot be prepared on another one. So its client keeps the connection
//! until it has closed the statement.
//!
//! # Limits
//!
//! - A plan whose result type a DDL statement changed fails (SQLSTATE 0A000), as on a connection of
//!   the client's own; it may fail for a client that prepared it after the DDL, but under a
//!   definition known from before. Preparing it anew helps.
//! - In a pipeline, messages are translated before the answers to earlier ones are known. One that
//!   names a statement waits for the answer to an earlier batch which has changed what the name
//!   means, or which prepares or closes any statement on the connection, because that batch may
//!   have failed; so does one behind a batch with a DEALLOCATE or DISCARD. Those that follow a
//!   DEALLOCATE ALL in the same batch are translated as if it had not been there.
//! - A simple query that the server skips, because no Sync came after an error before it, loses the
//!   unnamed statement.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::replies::{MessageOutcome, StatementId};
use crate::scheduling::outline::Hint;
use crate::session_state::look::{self, Look};
use crate::session_state::{Kind, Kinds};

/// The longest definition that is kept, to be prepared on other connections.
pub(crate) const DEFINITION_KEPT_MAX: usize = 16 << 20;

/// A definition that some client has prepared.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) id: StatementId,
    /// Query text and parameter types, as [`tidegate_wire::frontend::Parse::definition`] has them;
    /// `None` if it is too long to be kept.
    pub(crate) definition: Option<Box<[u8]>>,
    /// Its name on every upstream connection.
    pub(crate) server_name: Box<[u8]>,
    /// The `search_path` of the clients whose statement it is, if they have set one.
    pub(crate) search_path: Option<Box<str>>,
    /// What it may leave behind when it runs.
    pub(crate) look: Look,
    /// What its comments say to the proxy.
    pub(crate) hint: Hint,
    /// The custom settings that it names.
    pub(crate) custom_names: Box<[Box<str>]>,
    /// A server has accepted it.
    is_accepted: AtomicBool,
}

impl Statement {
    /// Returns a statement whose definition is not kept.
    pub(crate) fn long(id: StatementId) -> Arc<Statement> {
        Arc::new(Statement {
            id,
            definition: None,
            server_name: server_name(id).into(),
            search_path: None,
            // Its text has not arrived, and may do anything.
            look: Look { may: Kinds::INSPECTED.with(Kind::FixedSetting), ..Look::default() },
            hint: Hint::default(),
            custom_names: Box::default(),
            is_accepted: AtomicBool::new(false),
        })
    }

    /// Returns whether a server has accepted the definition, so that it can be expected to do so
    /// again.
    pub(crate) fn is_accepted(&self) -> bool {
        self.is_accepted.load(Ordering::Relaxed)
    }
}

/// The definitions a worker's clients use.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    known: HashMap<Box<[u8]>, Arc<Statement>>,
    last_id: u64,
}

impl Definitions {
    /// Makes the definitions of an event loop whose statements have numbers above `base`.
    pub(crate) fn above(base: u64) -> Definitions {
        Definitions { last_id: base, ..Definitions::default() }
    }

    /// Returns the one statement of this definition for clients with this `search_path`, if they
    /// have set one: by it a text may mean other tables, with other columns, which the server would
    /// refuse as another result type of one plan.
    pub(crate) fn intern(
        &mut self,
        definition: &[u8],
        search_path: Option<&str>,
    ) -> Arc<Statement> {
        if let Some(statement) = self.known.get(&*key(definition, search_path)) {
            return Arc::clone(statement);
        }
        self.last_id += 1;
        self.insert(StatementId(self.last_id), definition, search_path, false)
    }

    /// Returns the one statement of a definition that another process has prepared under this
    /// number, which no statement of this one has.
    pub(crate) fn adopt(
        &mut self,
        id: StatementId,
        definition: &[u8],
        search_path: Option<&str>,
        is_accepted: bool,
    ) -> Arc<Statement> {
        match self.known.get(&*key(definition, search_path)) {
            Some(statement) => Arc::clone(statement),
            None => self.insert(id, definition, search_path, is_accepted),
        }
    }

    fn insert(
        &mut self,
        id: StatementId,
        definition: &[u8],
        search_path: Option<&str>,
        is_accepted: bool,
    ) -> Arc<Statement> {
        let mut names = Vec::new();
        let statement = Arc::new(Statement {
            id,
            definition: Some(definition.into()),
            server_name: server_name(id).into(),
            search_path: search_path.map(Into::into),
            look: look::look(query_of(definition), &mut names),
            hint: Hint::of(query_of(definition)),
            custom_names: names.into(),
            is_accepted: AtomicBool::new(is_accepted),
        });
        let known = key(definition, search_path).into_owned().into_boxed_slice();
        self.known.insert(known, Arc::clone(&statement));
        statement
    }

    /// Returns a statement whose definition is not kept.
    pub(crate) fn long(&mut self) -> Arc<Statement> {
        self.last_id += 1;
        Statement::long(StatementId(self.last_id))
    }

    /// Prepares every definition anew when it is next asked for, under another name: the server
    /// does not run the old plans any more.
    pub(crate) fn renew(&mut self) {
        self.known.clear();
    }

    /// Forgets definitions that no client uses any more.
    pub(crate) fn sweep(&mut self) {
        self.known.retain(|_, statement| Arc::strong_count(statement) > 1);
    }
}

/// Returns what distinguishes definitions.
fn key<'a>(definition: &'a [u8], search_path: Option<&str>) -> Cow<'a, [u8]> {
    match search_path {
        None => Cow::Borrowed(definition),
        Some(path) => Cow::Owned([path.as_bytes(), b"\0", definition].concat()),
    }
}

/// One client's names for statements.
#[derive(Debug, Default)]
pub(crate) struct ClientStatements {
    named: HashMap<Box<[u8]>, Arc<Statement>>,
    /// Changes that the server has not answered yet, oldest first: an error takes them back.
    pending: VecDeque<Change>,
    /// The unnamed statement, boxed because many clients have none and wait for long.
    unnamed: Option<Box<Unnamed>>,
    /// It has had statements whose definition is not kept, and may still have one.
    may_have_long: bool,
}

/// A client's unnamed statement.
#[derive(Debug, Default)]
struct Unnamed {
    /// Its definition, kept because the next transaction, on another connection, may still use it.
    /// Empty if there is none.
    settled: Vec<u8>,
    /// What the messages that the server has not answered yet make of it, oldest first.
    pending: VecDeque<Vec<u8>>,
    /// Memory for the next definition.
    spare: Vec<u8>,
}

/// What a Parse or a Close made of a name; `None` is no statement.
#[derive(Debug)]
struct Change {
    name: Box<[u8]>,
    /// The batch that it was a part of: the server skips the rest of one that fails.
    batch: u64,
    before: Option<Arc<Statement>>,
    after: Option<Arc<Statement>>,
}

/// A client may have this many named statements at once.
pub(crate) const CLIENT_STATEMENTS_MAX: usize = 10_000;

/// An unnamed statement longer than this is not carried to another connection.
const UNNAMED_KEPT_MAX: usize = 16 * 1024;

impl ClientStatements {
    /// Returns the number of named statements.
    pub(crate) fn len(&self) -> usize {
        self.named.len()
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        self.named.get(name)
    }

    /// Returns the names and what they mean.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&[u8], &Arc<Statement>)> {
        self.named.iter().map(|(name, statement)| (&**name, statement))
    }

    /// Returns whether the server has answered everything that changes what the names mean.
    pub(crate) fn are_settled(&self) -> bool {
        self.pending.is_empty() && self.unnamed.as_ref().is_none_or(|it| it.pending.is_empty())
    }

    /// Makes the statements of a client that another process has served.
    pub(crate) fn adopt(
        named: impl Iterator<Item = (Box<[u8]>, Arc<Statement>)>,
        unnamed: Option<&[u8]>,
    ) -> ClientStatements {
        let named: HashMap<_, _> = named.collect();
        let may_have_long = named.values().any(|statement| statement.definition.is_none());
        let unnamed = unnamed.map(|definition| {
            Box::new(Unnamed { settled: definition.to_vec(), ..Unnamed::default() })
        });
        ClientStatements { named, unnamed, may_have_long, ..ClientStatements::default() }
    }

    /// Returns the client's name for a statement; one of them if it has several.
    fn name_of(&self, id: StatementId) -> Option<&[u8]> {
        self.named.iter().find(|(_, statement)| statement.id == id).map(|(name, _)| &**name)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.named.len() >= CLIENT_STATEMENTS_MAX
    }

    /// Gives a name to a statement that needs no server's consent.
    pub(crate) fn insert(&mut self, name: &[u8], statement: Arc<Statement>) {
        self.named.insert(name.into(), statement);
    }

    /// Takes a name away for good.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.named.remove(name);
    }

    /// Gives a name to a statement, or takes the name away, until the server's answer to a message
    /// of this batch confirms it.
    pub(crate) fn change(&mut self, name: &[u8], after: Option<Arc<Statement>>, batch: u64) {
        self.may_have_long |= after.as_ref().is_some_and(|after| after.definition.is_none());
        let before = set(&mut self.named, name, after.clone());
        self.pending.push_back(Change { name: name.into(), batch, before, after });
    }

    /// Returns whether a statement exists on the client's connection only.
    pub(crate) fn has_long(&mut self) -> bool {
        self.may_have_long = self.may_have_long
            && self.named.values().any(|statement| statement.definition.is_none());
        self.may_have_long
    }

    /// Returns whether an earlier batch than this may turn out not to have changed what the name
    /// means.
    pub(crate) fn is_unsettled(&self, name: &[u8], batch: u64) -> bool {
        self.pending.iter().any(|change| change.batch < batch && *change.name == *name)
    }

    /// The oldest change is valid; `is_accepted` if a server has judged its definition.
    pub(crate) fn confirm(&mut self, is_accepted: bool) {
        let after = self.pending.pop_front().and_then(|change| change.after);
        if let Some(statement) = after
            && is_accepted
        {
            statement.is_accepted.store(true, Ordering::Relaxed);
        }
    }

    /// The oldest change did not happen.
    pub(crate) fn take_back(&mut self) {
        let Some(Change { name, before, .. }) = self.pending.pop_front() else {
            return;
        };
        match self.pending.iter_mut().find(|later| later.name == name) {
            Some(later) => later.before = before,
            None => {
                set(&mut self.named, &name, before);
            }
        }
    }

    /// No change that the server has not answered did happen.
    pub(crate) fn take_all_back(&mut self) {
        while !self.pending.is_empty() {
            self.take_back();
        }
        if let Some(unnamed) = &mut self.unnamed {
            unnamed.pending.clear();
        }
    }

    /// All named statements are gone; the changes not answered yet come after that.
    pub(crate) fn clear(&mut self) {
        self.named.clear();
        for change in &mut self.pending {
            change.before = set(&mut self.named, &change.name, change.after.clone());
        }
    }

    /// Gives the unnamed statement this definition, or none, until the server's answer settles it.
    pub(crate) fn change_unnamed(&mut self, definition: Option<&[u8]>) {
        let unnamed = self.unnamed.get_or_insert_default();
        let mut after = std::mem::take(&mut unnamed.spare);
        let kept = definition.filter(|definition| definition.len() <= UNNAMED_KEPT_MAX);
        after.extend_from_slice(kept.unwrap_or_default());
        unnamed.pending.push_back(after);
    }

    /// Settles the oldest change of the unnamed statement. A Parse that fails leaves none; one that
    /// is skipped leaves the statement as it was.
    pub(crate) fn settle_unnamed(&mut self, outcome: MessageOutcome) {
        // In session mode nothing is kept.
        let Some(unnamed) = &mut self.unnamed else { return };
        let Some(mut after) = unnamed.pending.pop_front() else { return };
        match outcome {
            MessageOutcome::Done => std::mem::swap(&mut unnamed.settled, &mut after),
            MessageOutcome::Failed => unnamed.settled.clear(),
            MessageOutcome::Skipped => {}
        }
        after.clear();
        unnamed.spare = after;
    }

    /// Returns the unnamed statement's definition, if there is one.
    pub(crate) fn unnamed(&self) -> Option<&[u8]> {
        let unnamed = self.unnamed.as_ref()?;
        let definition = unnamed.pending.back().unwrap_or(&unnamed.settled);
        (!definition.is_empty()).then_some(&**definition)
    }

    /// The unnamed statement is gone after all that has been sent.
    pub(crate) fn forget_unnamed(&mut self) {
        let Some(unnamed) = &mut self.unnamed else { return };
        unnamed.settled.clear();
        for after in &mut unnamed.pending {
            after.clear();
        }
    }
}

fn set(
    named: &mut HashMap<Box<[u8]>, Arc<Statement>>,
    name: &[u8],
    statement: Option<Arc<Statement>>,
) -> Option<Arc<Statement>> {
    match statement {
        Some(statement) => named.insert(name.into(), statement),
        None => named.remove(name),
    }
}

/// The statements prepared on one upstream connection.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    last_use: HashMap<StatementId, u64>,
    uses: u64,
}

impl Prepared {
    /// Returns the number of statements.
    pub(crate) fn len(&self) -> usize {
        self.last_use.len()
    }

    /// Returns the statements, the one that was used longest ago first.
    pub(crate) fn by_use(&self) -> Vec<StatementId> {
        let mut all: Vec<_> = self.last_use.iter().map(|(id, last_use)| (*last_use, *id)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns whether the statement is there; if so, it has been used now.
    pub(crate) fn touch(&mut self, id: StatementId) -> bool {
        self.uses += 1;
        match self.last_use.get_mut(&id) {
            Some(last_use) => {
                *last_use = self.uses;
                true
            }
            None => false,
        }
    }

    pub(crate) fn insert(&mut self, id: StatementId) {
        self.uses += 1;
        self.last_use.insert(id, self.uses);
    }

    pub(crate) fn remove(&mut self, id: StatementId) {
        self.last_use.remove(&id);
    }

    pub(crate) fn clear(&mut self) {
        self.last_use.clear();
    }

    /// Takes out the least recently used statement if there are `max` or more.
    pub(crate) fn evict(&mut self, max: usize) -> Option<StatementId> {
        if self.last_use.len() < max.max(1) {
            return None;
        }
        let oldest =
            self.last_use.iter().min_by_key(|(_, last_use)| **last_use).map(|(id, _)| *id)?;
        self.last_use.remove(&oldest);
        Some(oldest)
    }
}

/// The beginning of every name on the server.
const SERVER_PREFIX: &[u8] = b"tidegate_";

/// Returns an error's payload in the client's words: with its own names for the statements that
/// the server knows by [`Statement::server_name`]. `None` if it names none of them.
pub(crate) fn in_clients_words(payload: &[u8], statements: &ClientStatements) -> Option<Vec<u8>> {
    let next =
        |rest: &[u8]| rest.windows(SERVER_PREFIX.len()).position(|window| window == SERVER_PREFIX);
    let (mut words, mut rest, mut is_changed) = (Vec::new(), payload, false);
    while let Some(at) = next(rest) {
        let (before, named) = rest.split_at(at);
        let number = &named[SERVER_PREFIX.len()..];
        let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let id = str::from_utf8(&number[..digits]).ok().and_then(|digits| digits.parse().ok());
        let (server_name, behind) = named.split_at(SERVER_PREFIX.len() + digits);
        let own = id.and_then(|id| statements.name_of(StatementId(id)));
        is_changed |= own.is_some();
        words.extend_from_slice(before);
        words.extend_from_slice(own.unwrap_or(server_name));
        rest = behind;
    }
    words.extend_from_slice(rest);
    is_changed.then_some(words)
}

/// Returns the query text of a definition.
pub(crate) fn query_of(definition: &[u8]) -> &[u8] {
    definition.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Returns the server-side name of a statement by its identity alone.
pub(crate) fn server_name(id: StatementId) -> Vec<u8> {
    format!("tidegate_{}", id.0).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_statements_as_the_client_does() {
        let (mut definitions, mut statements) =
            (Definitions::default(), ClientStatements::default());
        statements.insert(b"first", definitions.intern(b"SELECT 1\0\0\0", None));
        statements.insert(b"s", definitions.intern(b"SELECT 2\0\0\0", None));
        let table: [(&[u8], Option<&[u8]>); 5] = [
            (b"M\"tidegate_2\" already exists", Some(b"M\"s\" already exists")),
            (b"tidegate_1 and tidegate_2", Some(b"first and s")),
            (b"tidegate_12 and tidegate_2", Some(b"tidegate_12 and s")),
            (b"tidegate_, tidegate_3", None),
            (b"nothing of it", None),
        ];
        for (payload, expected) in table {
            assert_eq!(in_clients_words(payload, &statements).as_deref(), expected);
        }
    }
}
