//! What clients of transaction mode leave behind in a server session, so that nothing of it is lost
//! silently and nothing reaches another client.
//!
//! # Mechanism
//!
//! 1. **Notice.** [`look`] reads the text of each statement for the few words by which a statement
//!    can change its session, and the command tags of the server are watched ([`Watch`]). Both err
//!    on the side of noticing too much. A transaction in which nothing is noticed costs nothing
//!    more.
//! 2. **Inspect.** After a transaction in which something was noticed, and before its connection is
//!    released, one query of the proxy's own ([`inspection`]) asks the server what is really there.
//! 3. **Follow or pin.** Settings become the client's and follow it to any connection
//!    ([`crate::settings`]). Everything else ([`Kind`]) pins: the client keeps the connection until
//!    a later inspection finds nothing left, or until it leaves and the connection is cleaned.
//!
//! ```text
//! SET work_mem = '7MB'         noticed: Settings   found: work_mem = 7168   -> follows
//! CREATE TEMP TABLE t (x int)  noticed: Temporary  found: Temporary         -> pinned
//! SET LOCAL app.tenant = '7'   noticed: nothing
//! DISCARD ALL                  noticed: Settings   found: nothing           -> released
//! ```
//!
//! # Limits
//!
//! - What a function or procedure does inside is not in the text of its call. With
//!   `session_state_check = "always"` every transaction is inspected. Custom settings
//!   (`app.tenant`) that a function makes by itself are not found even then, because the server
//!   lists none; they are undone before the connection's next transaction.
//! - A sequence's `currval` and `lastval` belong to a session. They are right in the transaction
//!   that called `nextval`, and in a client that is pinned.

pub(crate) mod inspection;
pub(crate) mod look;

use crate::config::SessionStatePolicy;
use look::{Look, WordScan};

/// What can be left behind in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Settings, which follow the client. Never a reason to pin.
    Settings,
    /// A setting that only superusers may change.
    FixedSetting,
    /// A custom setting whose name is not known, so that it cannot be asked for.
    NamelessSetting,
    /// Temporary tables and other objects in `pg_temp`.
    Temporary,
    /// Statements made by SQL's PREPARE.
    Prepared,
    /// Advisory locks of the session.
    AdvisoryLock,
    /// LISTEN.
    Listen,
    /// Cursors WITH HOLD.
    Cursor,
    /// What only the end of the server's process removes: a loaded library, `setseed`, connections
    /// of `dblink`.
    Backend,
    /// The session could not be inspected.
    Unknown,
}

impl Kind {
    /// Kinds that keep a client on its connection.
    pub(crate) const PINNING: [Kind; 9] = [
        Kind::FixedSetting,
        Kind::NamelessSetting,
        Kind::Temporary,
        Kind::Prepared,
        Kind::AdvisoryLock,
        Kind::Listen,
        Kind::Cursor,
        Kind::Backend,
        Kind::Unknown,
    ];

    /// Returns its name in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Kind::Settings => "settings",
            Kind::FixedSetting => "superuser_setting",
            Kind::NamelessSetting => "nameless_setting",
            Kind::Temporary => "temporary",
            Kind::Prepared => "prepare",
            Kind::AdvisoryLock => "advisory_lock",
            Kind::Listen => "listen",
            Kind::Cursor => "cursor",
            Kind::Backend => "backend",
            Kind::Unknown => "unknown",
        }
    }

    /// Returns what it is, in words for a client.
    fn words(self) -> &'static str {
        match self {
            Kind::Settings => "settings",
            Kind::FixedSetting => "settings for superusers",
            Kind::NamelessSetting => "settings whose name is not in the statement",
            Kind::Temporary => "temporary objects",
            Kind::Prepared => "statements of PREPARE",
            Kind::AdvisoryLock => "session-level advisory locks",
            Kind::Listen => "LISTEN",
            Kind::Cursor => "cursors WITH HOLD",
            Kind::Backend => "LOAD, setseed or dblink connections",
            Kind::Unknown => "session state that could not be inspected",
        }
    }
}

/// A set of [`Kind`]s.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kinds(u16);

impl Kinds {
    /// No kind.
    pub(crate) const NONE: Kinds = Kinds(0);

    /// The kinds that an inspection can find.
    pub(crate) const INSPECTED: Kinds = Kinds::of(Kind::Settings)
        .with(Kind::Temporary)
        .with(Kind::Prepared)
        .with(Kind::AdvisoryLock)
        .with(Kind::Listen)
        .with(Kind::Cursor);

    /// The kinds that no inspection can find: they are there once they have been noticed.
    const UNSEEN: Kinds = Kinds::of(Kind::NamelessSetting).with(Kind::Backend);

    /// Returns the set of one kind.
    pub(crate) const fn of(kind: Kind) -> Kinds {
        Kinds(1 << kind as u16)
    }

    /// Returns the set with one more kind.
    pub(crate) const fn with(self, kind: Kind) -> Kinds {
        self.union(Kinds::of(kind))
    }

    pub(crate) const fn union(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    pub(crate) const fn intersection(self, other: Kinds) -> Kinds {
        Kinds(self.0 & other.0)
    }

    /// Returns the set without those of `other`.
    pub(crate) const fn without(self, other: Kinds) -> Kinds {
        Kinds(self.0 & !other.0)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn contains(self, kind: Kind) -> bool {
        self.0 & Kinds::of(kind).0 != 0
    }

    /// Returns the set as a number.
    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the set whose number is `bits`.
    pub(crate) const fn from_bits(bits: u16) -> Kinds {
        Kinds(bits)
    }

    /// Returns those of its kinds that keep a client on its connection.
    pub(crate) fn pinning(self) -> impl Iterator<Item = Kind> {
        Kind::PINNING.into_iter().filter(move |&kind| self.contains(kind))
    }

    /// Returns what they are, in words for a client.
    pub(crate) fn words(self) -> String {
        self.pinning().map(Kind::words).collect::<Vec<_>>().join(", ")
    }
}

impl std::fmt::Debug for Kinds {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = std::iter::once(Kind::Settings).chain(Kind::PINNING);
        formatter.debug_set().entries(kinds.filter(|&kind| self.contains(kind))).finish()
    }
}

/// Names of custom settings that are asked for, at most, for one client; more than these pin it.
const CUSTOM_NAMES_MAX: usize = 64;

/// Names of custom settings that the texts of one client have mentioned, in any case. The server
/// does not list these settings, so that they have to be asked for by name.
#[derive(Debug, Default)]
pub(crate) struct CustomNames(Vec<Box<str>>);

impl CustomNames {
    /// Adds a name. Returns whether there was room for it.
    fn add(&mut self, name: &str) -> bool {
        if self.0.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return true;
        }
        let has_room = self.0.len() < CUSTOM_NAMES_MAX;
        if has_room {
            self.0.push(name.into());
        }
        has_room
    }

    /// Adds a name if there is room for it.
    pub(crate) fn learn(&mut self, name: &str) {
        self.add(name);
    }

    /// The names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}

/// What is known of the state of one server session, beside its settings and its protocol-level
/// prepared statements.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// What may have come since the last inspection.
    noticed: Kinds,
    /// Something was noticed that may have removed a reason to pin.
    releases: bool,
    /// Top-level SETs that have been sent in this transaction and whose names were looked at.
    sets: u32,
    /// What keeps the connection with its client.
    pub(crate) pins: Kinds,
    /// What the inspection under way has found so far.
    pub(crate) findings: Option<inspection::Findings>,
    /// The rest of a long message, of which only the words are looked at.
    rest: Option<WordScan>,
    /// The unnamed statement's look, which counts whenever it is bound.
    unnamed: Look,
    /// Everything is being discarded.
    is_cleaning: bool,
}

impl Watch {
    /// Takes a statement into account that will run. Its names have been collected apart.
    pub(crate) fn notice(&mut self, look: Look) {
        self.noticed = self.noticed.union(look.may);
        self.releases |= look.releases;
        self.sets = self.sets.saturating_add(look.sets);
        if look.resets_all {
            // It comes before what the same text may set; nothing is lost but precision.
            self.pins = self.pins.without(Kinds::of(Kind::NamelessSetting));
        }
    }

    /// Takes into account what a statement that is prepared may remove.
    pub(crate) fn notice_release(&mut self, look: Look) {
        self.releases |= look.releases;
    }

    /// Returns whether something has been noticed in this transaction that may remove something.
    pub(crate) fn releases(&self) -> bool {
        self.releases
    }

    /// Takes names of custom settings into account, for the client.
    pub(crate) fn notice_names<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a Box<str>>,
        known: &mut CustomNames,
    ) {
        for name in names {
            if !known.add(name) {
                self.noticed = self.noticed.with(Kind::NamelessSetting);
            }
        }
    }

    /// The message that was last looked at is longer than what has arrived of it.
    pub(crate) fn expect_rest(&mut self) {
        self.rest = Some(WordScan::default());
    }

    /// Looks at more of a long message; `is_last` if it ends here.
    pub(crate) fn rest_of_message(&mut self, bytes: &[u8], is_last: bool) {
        let Some(scan) = &mut self.rest else { return };
        let mut may = scan.read(bytes);
        if is_last {
            may = may.union(scan.end());
            self.rest = None;
        }
        self.noticed = self.noticed.union(may);
        self.unnamed.may = self.unnamed.may.union(may);
    }

    /// Remembers the look at the unnamed statement that is being parsed.
    pub(crate) fn set_unnamed(&mut self, look: Look) {
        self.unnamed = look;
    }

    /// The unnamed statement is about to run.
    pub(crate) fn notice_unnamed(&mut self) {
        self.notice(self.unnamed);
    }

    /// Takes the tag of a completed command into account: it is sure where a look may err.
    pub(crate) fn completed(&mut self, tag: &[u8]) {
        let noticed = match tag {
            b"SET" => match self.sets.checked_sub(1) {
                Some(sets) => {
                    self.sets = sets;
                    return;
                }
                None => Kinds::of(Kind::Settings).with(Kind::NamelessSetting),
            },
            b"RESET" => Kinds::of(Kind::Settings),
            b"LISTEN" => Kinds::of(Kind::Listen),
            b"PREPARE" => Kinds::of(Kind::Prepared),
            b"LOAD" => Kinds::of(Kind::Backend),
            b"UNLISTEN" | b"DEALLOCATE" | b"DEALLOCATE ALL" | b"CLOSE CURSOR"
            | b"CLOSE CURSOR ALL" => {
                self.releases = true;
                return;
            }
            _ if tag.starts_with(b"DISCARD ") => {
                self.releases = true;
                Kinds::of(Kind::Settings)
            }
            _ => return,
        };
        self.noticed = self.noticed.union(noticed);
    }

    /// Returns what the session has to be asked about after a transaction; `None` if nothing was
    /// noticed. `always` asks about everything after every transaction.
    pub(crate) fn take_due(&mut self, always: bool) -> Option<Due> {
        self.sets = 0;
        let releases = std::mem::take(&mut self.releases) && !self.pins.is_empty();
        if self.noticed.is_empty() && !releases && !always {
            return None;
        }
        let noticed = std::mem::take(&mut self.noticed);
        let is_all = always || !self.pins.is_empty();
        let asked = if is_all { Kinds::INSPECTED } else { noticed };
        let unseen = self.pins.union(noticed).intersection(Kinds::UNSEEN);
        Some(Due { asked: asked.intersection(Kinds::INSPECTED), unseen })
    }

    /// Returns whether something may be there that the next client must not find.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.noticed.union(self.pins).is_empty() || self.findings.is_some()
    }

    /// Returns whether only the end of the connection removes what is there.
    pub(crate) fn needs_end(&self) -> bool {
        let found = self.findings.as_ref().map_or(Kinds::NONE, |findings| findings.kinds);
        self.noticed.union(self.pins).union(found).contains(Kind::Backend)
    }

    /// Begins to discard everything.
    pub(crate) fn begin_cleaning(&mut self) {
        *self = Watch { is_cleaning: true, ..Watch::default() };
    }

    /// Returns whether everything has just been discarded, once.
    pub(crate) fn take_cleaned(&mut self) -> bool {
        std::mem::take(&mut self.is_cleaning)
    }

    /// A client takes the connection over, which is clean.
    pub(crate) fn begin_lending(&mut self) {
        debug_assert!(!self.is_dirty() && !self.is_cleaning, "what is lent is clean");
        *self = Watch::default();
    }
}

/// What an inspection has to ask about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// What the server is asked about.
    pub(crate) asked: Kinds,
    /// What is there and cannot be asked about.
    pub(crate) unseen: Kinds,
}

/// Returns the words in which a client is told that a statement is refused, and the hint.
pub(crate) fn refusal(kinds: Kinds) -> (String, &'static str) {
    let message = format!("transaction mode does not keep {} for a client", kinds.words());
    (message, "Use session mode or session_state = \"pin\".")
}

/// Returns the words in which a client is warned that something was removed, and the hint.
pub(crate) fn warning(kinds: Kinds) -> (String, &'static str) {
    let message = format!("{} did not outlive the transaction in transaction mode", kinds.words());
    (message, "Use session mode or session_state = \"pin\".")
}

/// Returns what is to be refused of a statement before it runs.
pub(crate) fn refused(policy: SessionStatePolicy, look: &Look) -> Option<Kinds> {
    (policy == SessionStatePolicy::Refuse && !look.sure.is_empty()).then_some(look.sure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(sql: &str) -> Look {
        look::look(sql.as_bytes(), &mut Vec::new())
    }

    #[test]
    fn harmless_sets_cost_no_inspection() {
        let mut watch = Watch::default();
        watch.notice(look("BEGIN; SET LOCAL app.tenant = '7'; SET TRANSACTION READ ONLY"));
        watch.completed(b"SET");
        watch.completed(b"SET");
        assert_eq!(watch.take_due(false), None);
    }

    #[test]
    fn a_set_that_no_look_has_seen_pins() {
        let mut watch = Watch::default();
        watch.notice(look("SET LOCAL app.tenant = '7'"));
        watch.completed(b"SET");
        watch.completed(b"SET");
        let due = watch.take_due(false).unwrap();
        assert_eq!(due.unseen, Kinds::of(Kind::NamelessSetting));
        assert_eq!(watch.take_due(false), None, "asked once");
    }

    #[test]
    fn what_is_pinned_is_asked_about_when_it_may_have_gone() {
        let mut watch = Watch { pins: Kinds::of(Kind::Temporary), ..Watch::default() };
        watch.notice(look("SELECT 1"));
        assert_eq!(watch.take_due(false), None);
        watch.notice(look("DROP TABLE t"));
        assert_eq!(watch.take_due(false).unwrap().asked, Kinds::INSPECTED);
    }
}
