//! Named prepared statements in transaction mode.
//!
//! A client prepares `S1` and later runs it on another connection, where another client's `S1` may
//! live. So each distinct definition (query text and parameter types) gets one name on the server,
//! [`Statement::server_name`], used by all clients of a worker; a client's own names map to
//! definitions. A connection on which a statement is missing gets a Parse from the proxy first.
//! The number of statements on a connection is bounded: the least recently used one is closed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::replies::StatementId;

/// A definition that some client has prepared.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) id: StatementId,
    /// Query text and parameter types, as [`tidegate_wire::frontend::Parse::definition`] has them.
    pub(crate) definition: Box<[u8]>,
    /// Its name on every upstream connection.
    pub(crate) server_name: Box<[u8]>,
    /// A server has accepted it.
    is_accepted: AtomicBool,
}

impl Statement {
    /// Whether a server has accepted the definition, so that it can be expected to do so again.
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
    /// The one statement of this definition.
    pub(crate) fn intern(&mut self, definition: &[u8]) -> Arc<Statement> {
        if let Some(statement) = self.known.get(definition) {
            return Arc::clone(statement);
        }
        self.last_id += 1;
        let statement = Arc::new(Statement {
            id: StatementId(self.last_id),
            definition: definition.into(),
            server_name: server_name(StatementId(self.last_id)).into(),
            is_accepted: AtomicBool::new(false),
        });
        self.known.insert(definition.into(), Arc::clone(&statement));
        statement
    }

    /// Forgets definitions that no client uses any more.
    pub(crate) fn sweep(&mut self) {
        self.known.retain(|_, statement| Arc::strong_count(statement) > 1);
    }
}

/// One client's names for statements.
#[derive(Debug, Default)]
pub(crate) struct ClientStatements {
    named: HashMap<Box<[u8]>, Arc<Statement>>,
    /// Names given in the current batch: an error in it takes them back.
    unconfirmed: Vec<(Box<[u8]>, StatementId)>,
    /// The definition of the unnamed statement, kept because the next transaction, on another
    /// connection, may still use it.
    unnamed: Vec<u8>,
}

/// A client may have this many named statements at once.
pub(crate) const CLIENT_STATEMENTS_MAX: usize = 10_000;

/// An unnamed statement longer than this is not carried to another connection.
const UNNAMED_KEPT_MAX: usize = 16 * 1024;

impl ClientStatements {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        self.named.get(name)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.named.len() >= CLIENT_STATEMENTS_MAX
    }

    pub(crate) fn insert(&mut self, name: &[u8], statement: Arc<Statement>) {
        self.unconfirmed.push((name.into(), statement.id));
        self.named.insert(name.into(), statement);
    }

    /// The batch has ended: what it prepared stays, and is known to be acceptable.
    pub(crate) fn confirm(&mut self) {
        for (name, _) in self.unconfirmed.drain(..) {
            if let Some(statement) = self.named.get(&name) {
                statement.is_accepted.store(true, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.named.remove(name);
    }

    /// Takes back the names that the current batch gave to a statement the server did not prepare.
    pub(crate) fn take_back(&mut self, id: StatementId) {
        for (name, _) in self.unconfirmed.extract_if(.., |(_, given)| *given == id) {
            self.named.remove(&name);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.named.clear();
        self.unconfirmed.clear();
        self.unnamed.clear();
    }

    pub(crate) fn remember_unnamed(&mut self, definition: &[u8]) {
        self.unnamed.clear();
        if definition.len() <= UNNAMED_KEPT_MAX {
            self.unnamed.extend_from_slice(definition);
        }
    }

    /// The unnamed statement's definition, if there is one.
    pub(crate) fn unnamed(&self) -> Option<&[u8]> {
        (!self.unnamed.is_empty()).then_some(&*self.unnamed)
    }

    pub(crate) fn forget_unnamed(&mut self) {
        self.unnamed.clear();
    }
}

/// The statements prepared on one upstream connection.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    last_use: HashMap<StatementId, u64>,
    uses: u64,
}

impl Prepared {
    /// Whether the statement is there; if so, it has been used now.
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

/// The server-side name of a statement by its identity alone.
pub(crate) fn server_name(id: StatementId) -> Vec<u8> {
    format!("tidegate_{}", id.0).into_bytes()
}
