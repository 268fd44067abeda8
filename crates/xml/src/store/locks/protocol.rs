//! Lock protocols as data: modes of a tree, and which of them is asked for what.
//!
//! # Mechanism
//! A protocol is a text. It says in which mode each [`Action`] locks, and of which [`TreeModes`]
//! the modes are. Those say which two modes go together and what two make together, as every lock
//! table does, and three things more of each, because nodes contain each other:
//!
//! | column | meaning |
//! | --- | --- |
//! | `above` | the mode that the parent is held in while a node is held in this one, at least |
//! | `child` | the mode in which all children are held by this one, without a lock; `-` for none |
//! | `whole` | the mode on the parent that stands for this one on each child |
//!
//! Protocols of the same modes are in force side by side: each transaction has its own. Those here
//! are all of the modes of `taDOM3+`, multi-granularity locking too, as a part of them.
//!
//! # Laws
//! A text is checked when it is read. Beside the laws of [`ModeTable`]:
//!
//! 1. Conversion is a supremum: commutative, idempotent and associative.
//! 2. **What a mode grants to children is guarded.** If a mode `m` on a child does not go with what
//!    another transaction's `h` on the parent grants there, then what `m` needs `above` does not go
//!    with `h`, whichever comes first. By induction that holds for all that is below. Update locks
//!    may be let in: such a transaction waits when it comes to write.
//! 3. **What stands for a mode covers it.** `whole` of a mode grants to children a mode that covers
//!    it. So a coarser lock is never a weaker one: neither by lock depth nor by escalation.
//! 4. The cells of `[core]`, if there are any, are those of the tables.
//!
//! # Where this leaves the literature
//! * **Two published cells are others here.** A node's own X lets strangers hold X on its children,
//!   so NRIX grants nothing to children, which law 2 says; and conversions of U are suprema.
//! * **MGL by the same table.** A mode IR goes with NX, and the study's MGL reads a node by R, so
//!   that no reader of a node is let in beside a renaming. A writer's CX on the parent is what
//!   readers of a level by `taDOM3+` wait for.

use std::fmt;
use std::sync::{Arc, LazyLock};

use thiserror::Error;
use tidegate_engine::lock::{Mode, ModeTable, ModeTableError};

/// A kind of request for locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    ReadNode,
    ReadChildren,
    ReadSubtree,
    UpdateNode,
    UpdateSubtree,
    WriteNode,
    WriteSubtree,
    /// To add and remove children.
    WriteChildren,
    ReadEdge,
    WriteEdge,
    /// To rely on the set of path classes.
    RelyOnClasses,
    AddClass,
}

impl Action {
    /// All of them, with their names in a protocol's text.
    const ALL: [(Action, &'static str); 12] = [
        (Action::ReadNode, "read-node"),
        (Action::ReadChildren, "read-children"),
        (Action::ReadSubtree, "read-subtree"),
        (Action::UpdateNode, "update-node"),
        (Action::UpdateSubtree, "update-subtree"),
        (Action::WriteNode, "write-node"),
        (Action::WriteSubtree, "write-subtree"),
        (Action::WriteChildren, "write-children"),
        (Action::ReadEdge, "read-edge"),
        (Action::WriteEdge, "write-edge"),
        (Action::RelyOnClasses, "rely-on-classes"),
        (Action::AddClass, "add-class"),
    ];

    /// Returns whether something is read, and may be read by others at the same time.
    pub(super) fn is_read(self) -> bool {
        matches!(
            self,
            Action::ReadNode
                | Action::ReadChildren
                | Action::ReadSubtree
                | Action::ReadEdge
                | Action::RelyOnClasses
        )
    }
}

/// What is wrong with the text of a protocol, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A line of the text is not one that a protocol has.
    #[error("line {line}: {what}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong, and what to write.
        what: String,
    },
    /// A table breaks a law of lock modes.
    #[error(transparent)]
    Modes(#[from] ModeTableError),
    /// Something is missing, or contradicts something else.
    #[error("{0}")]
    Contradiction(String),
}

/// The modes in which nodes are locked, see the [module](self).
pub(super) struct TreeModes {
    name: String,
    pub(super) table: ModeTable,
    /// By the rows of the table.
    rows: Vec<ModeRow>,
}

#[derive(Debug, Clone, Copy)]
struct ModeRow {
    above: Mode,
    child: Option<Mode>,
    whole: Mode,
}

impl TreeModes {
    fn row(&self, mode: Mode) -> &ModeRow {
        &self.rows[mode.row()]
    }

    /// Returns the mode in which a parent has to be held.
    pub(super) fn above(&self, mode: Mode) -> Mode {
        self.row(mode).above
    }

    /// Returns the mode on the parent that covers one on each child.
    pub(super) fn whole(&self, mode: Mode) -> Mode {
        self.row(mode).whole
    }

    /// Returns the mode on an ancestor so many levels above that covers one.
    pub(super) fn whole_above(&self, mode: Mode, levels: u32) -> Mode {
        // From the second step on it is a mode that stands for itself.
        (0..levels.min(3)).fold(mode, |mode, _| self.whole(mode))
    }

    fn check(&self) -> Result<(), ProtocolError> {
        let all = || self.table.modes();
        let pairs = || all().flat_map(|one| all().map(move |other| (one, other)));
        for (one, other) in pairs() {
            self.check_supremum(one, other)?;
            self.check_guard(one, other)?;
        }
        all().try_for_each(|mode| self.check_whole(mode))
    }

    /// Law 1.
    fn check_supremum(&self, one: Mode, other: Mode) -> Result<(), ProtocolError> {
        let (table, name) = (&self.table, |mode| self.table.name(mode));
        let both = table.convert(one, other);
        if table.convert(other, one) != both {
            let (one, other) = (name(one), name(other));
            let what = format!("{one} over {other} and {other} over {one} are not the same mode");
            return Err(ProtocolError::Contradiction(what));
        }
        for third in table.modes() {
            let [left, right] =
                [table.convert(both, third), table.convert(one, table.convert(other, third))];
            if left != right {
                let [one, other, third] = [one, other, third].map(name);
                let what = format!("{one}, {other} and {third} make another mode in another order");
                return Err(ProtocolError::Contradiction(what));
            }
        }
        Ok(())
    }

    /// Law 2: `held` on a parent, `other` of another transaction on a child.
    fn check_guard(&self, held: Mode, other: Mode) -> Result<(), ProtocolError> {
        let Some(granted) = self.row(held).child else { return Ok(()) };
        let above = self.above(other);
        let goes = |requested, held| self.table.is_compatible(requested, held);
        // An update lock goes beside a reader that would not be let in beside it.
        let is_update = self.table.modes().any(|read| goes(other, read) && !goes(read, other));
        let is_late_let_in = !goes(other, granted) && goes(above, held);
        let is_early_let_in = !goes(granted, other) && goes(held, above);
        if is_update || !(is_late_let_in || is_early_let_in) {
            return Ok(());
        }
        let [held, other, granted, above] =
            [held, other, granted, above].map(|mode| self.table.name(mode));
        Err(ProtocolError::Contradiction(format!(
            "{held} grants {granted} to children, which does not go with {other} there; but \
             {above}, which {other} needs above, goes with {held}"
        )))
    }

    /// Law 3.
    fn check_whole(&self, mode: Mode) -> Result<(), ProtocolError> {
        let whole = self.whole(mode);
        if self.row(whole).child.is_some_and(|child| self.table.covers(child, mode))
            && self.whole(self.whole(whole)) == self.whole(whole)
        {
            return Ok(());
        }
        let [mode, whole] = [mode, whole].map(|mode| self.table.name(mode));
        Err(ProtocolError::Contradiction(format!(
            "{whole} stands for {mode} on children, and does not grant it to them"
        )))
    }

    /// Law 4.
    fn check_core(&self, core: &Section<'_>) -> Result<(), ProtocolError> {
        for (requested, held, line, cell) in core.cells()? {
            let [requested_mode, held_mode] = [requested, held].map(|name| self.mode(line, name));
            let is_granted = self.table.is_compatible(requested_mode?, held_mode?);
            if cell != if is_granted { "+" } else { "-" } {
                let what = format!("{requested} beside {held} is {cell} in [core] alone");
                return Err(ProtocolError::Line { line, what });
            }
        }
        Ok(())
    }

    fn mode(&self, line: usize, name: &str) -> Result<Mode, ProtocolError> {
        self.table.mode(name).ok_or_else(|| {
            let names: Vec<&str> = self.table.modes().map(|mode| self.table.name(mode)).collect();
            let what = format!("{name:?} is no mode; there are {}", names.join(" "));
            ProtocolError::Line { line, what }
        })
    }

    fn read(name: &str, text: &ProtocolText<'_>) -> Result<TreeModes, ProtocolError> {
        let section = |name| {
            let missing = || ProtocolError::Contradiction(format!("a section [{name}] is missing"));
            text.section(name).ok_or_else(missing)
        };
        let (compatibility, conversion) = (section("compatibility")?, section("conversion")?);
        let table = ModeTable::parse(&compatibility.text(), &conversion.text())?;
        let mut modes = TreeModes { name: name.to_owned(), table, rows: Vec::new() };
        let columns = section("modes")?.cells()?;
        let cell = |mode: Mode, column| {
            let name = modes.table.name(mode);
            let found = columns.iter().find(|(row, of, ..)| *row == name && *of == column);
            let missing = || format!("[modes] says nothing of {name} in the column {column}");
            found.ok_or_else(|| ProtocolError::Contradiction(missing()))
        };
        let mode = |of, column| {
            let &(_, _, line, cell) = cell(of, column)?;
            modes.mode(line, cell)
        };
        let row = |of| {
            let (above, whole) = (mode(of, "above")?, mode(of, "whole")?);
            let is_none = cell(of, "child")?.3 == "-";
            let child = if is_none { None } else { Some(mode(of, "child")?) };
            Ok(ModeRow { above, child, whole })
        };
        let rows = modes.table.modes().map(row).collect::<Result<_, ProtocolError>>()?;
        modes.rows = rows;
        modes.check()?;
        text.section("core").map_or(Ok(()), |core| modes.check_core(core))?;
        Ok(modes)
    }
}

/// A word of the text: row, column, number of the line, the word.
type Cell<'t> = (&'t str, &'t str, usize, &'t str);

/// The lines of a section, with their numbers.
struct Section<'t> {
    name: &'t str,
    lines: Vec<(usize, &'t str)>,
}

impl<'t> Section<'t> {
    fn text(&self) -> String {
        self.lines.iter().flat_map(|(_, line)| [line, "\n"]).collect()
    }

    /// Returns the cells of a table whose first line names the columns.
    fn cells(&self) -> Result<Vec<Cell<'t>>, ProtocolError> {
        let mut lines = self.lines.iter();
        let columns: Vec<&str> = lines.next().map_or(Vec::new(), |(_, line)| words(line));
        let mut cells = Vec::new();
        for &(line, text) in lines {
            let row = words(text);
            if row.len() != columns.len() + 1 {
                let what = format!("{} words, not {}", row.len(), columns.len() + 1);
                return Err(ProtocolError::Line { line, what });
            }
            let row_cells = columns.iter().zip(&row[1..]);
            cells.extend(row_cells.map(|(column, cell)| (row[0], *column, line, *cell)));
        }
        Ok(cells)
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// The text of a protocol or of modes: pairs of words, then sections.
struct ProtocolText<'t> {
    pairs: Vec<(usize, &'t str, &'t str)>,
    sections: Vec<Section<'t>>,
}

impl<'t> ProtocolText<'t> {
    fn read(text: &'t str) -> Result<ProtocolText<'t>, ProtocolError> {
        let mut read = ProtocolText { pairs: Vec::new(), sections: Vec::new() };
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or_default().trim_end();
            let name = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
            match (&words(text)[..], name, read.sections.last_mut()) {
                ([], ..) => {}
                (_, Some(name), _) => read.sections.push(Section { name, lines: Vec::new() }),
                (_, None, Some(section)) => section.lines.push((line, text)),
                (&[key, value], None, None) => read.pairs.push((line, key, value)),
                _ => {
                    let what = format!("{text:?} is no pair of words and in no section");
                    return Err(ProtocolError::Line { line, what });
                }
            }
        }
        Ok(read)
    }

    fn section(&self, name: &str) -> Option<&Section<'t>> {
        self.sections.iter().find(|section| section.name == name)
    }

    fn pair(&self, key: &str) -> Option<(usize, &'t str)> {
        let found = self.pairs.iter().find(|(_, known, _)| *known == key);
        found.map(|&(line, _, value)| (line, value))
    }
}

/// What a transaction locks of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Locked {
    /// Nothing. It cannot change anything.
    Nothing,
    /// The tree of the document.
    Document,
    /// Nodes and gaps between nodes.
    Nodes,
}

/// How transactions lock documents; protocols of the same name are equal.
#[derive(Clone)]
pub struct LockProtocol(Arc<Rules>);

struct Rules {
    name: String,
    locked: Locked,
    modes: Arc<TreeModes>,
    /// By [`Action`].
    requests: [Mode; Action::ALL.len()],
    depth_max: Option<u32>,
}

impl LockProtocol {
    /// Names of the protocols that are known without a text.
    pub const NAMES: [&'static str; 5] = ["none", "document", "X", "MGL", "taDOM3+"];

    /// Returns the protocol that locks nothing, for comparison. Its transactions may read what
    /// others will roll back, and cannot change anything: without locks a change could not be taken
    /// back.
    #[must_use]
    pub fn none() -> LockProtocol {
        LockProtocol::without_nodes("none", Locked::Nothing)
    }

    /// Returns the protocol that locks a document as a whole, S to read and X to write.
    #[must_use]
    pub fn document() -> LockProtocol {
        LockProtocol::without_nodes("document", Locked::Document)
    }

    /// Returns the study's protocol X: SX on the root element, for readers, too.
    #[must_use]
    pub fn x() -> LockProtocol {
        BUILT_IN.0[0].clone()
    }

    /// Returns multi-granularity locking on nodes.
    #[must_use]
    pub fn mgl() -> LockProtocol {
        BUILT_IN.0[1].clone()
    }

    /// Returns `taDOM3+`.
    #[must_use]
    pub fn tadom() -> LockProtocol {
        BUILT_IN.0[2].clone()
    }

    /// Returns the protocol of a name, in capitals or not.
    #[must_use]
    pub fn named(name: &str) -> Option<LockProtocol> {
        let all = [LockProtocol::none(), LockProtocol::document()];
        let mut all = all.into_iter().chain(BUILT_IN.0.iter().cloned());
        all.find(|protocol| protocol.name().eq_ignore_ascii_case(name))
    }

    /// Reads the text of a protocol, and checks its laws, also beside each known protocol of the
    /// same modes. The files of the protocols that are known
    /// say how it is written. It names the modes of one of those, or has its own in the sections
    /// `compatibility`, `conversion` and `modes`.
    ///
    /// ```
    /// use tidegate_xml::store::LockProtocol;
    ///
    /// // Reads by levels, but writes by subtrees.
    /// let text = "
    ///     protocol levels
    ///     modes taDOM3+
    /// [requests]
    ///     read-node       NR
    ///     read-children   LR
    ///     read-subtree    SR
    ///     update-node     SU
    ///     update-subtree  SU
    ///     write-node      SX
    ///     write-subtree   SX
    ///     write-children  CX
    ///     read-edge       NR
    ///     write-edge      SX
    ///     rely-on-classes SR
    ///     add-class       IX
    /// ";
    /// let protocol = LockProtocol::parse(text)?;
    /// assert_eq!(protocol.name(), "levels");
    /// assert!(protocol.goes_with(&LockProtocol::tadom()));
    /// # Ok::<(), tidegate_xml::store::ProtocolError>(())
    /// ```
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<LockProtocol, ProtocolError> {
        let text = ProtocolText::read(text)?;
        let modes = match text.pair("modes") {
            Some((_, name)) if name == BUILT_IN.1.name => Arc::clone(&BUILT_IN.1),
            Some((line, name)) if text.section("compatibility").is_none() => {
                let known = &BUILT_IN.1.name;
                let what = format!("modes {name} are not known; name {known}, or write the tables");
                return Err(ProtocolError::Line { line, what });
            }
            Some((_, name)) => Arc::new(TreeModes::read(name, &text)?),
            None => {
                return Err(ProtocolError::Contradiction("a line `modes NAME` is missing".into()));
            }
        };
        let own = LockProtocol::of(&text, modes)?;
        let beside = BUILT_IN.0.iter().filter(|other| other.goes_with(&own));
        for other in beside {
            own.0.check_beside(&other.0)?;
            other.0.check_beside(&own.0)?;
        }
        Ok(own)
    }

    fn of(text: &ProtocolText<'_>, modes: Arc<TreeModes>) -> Result<LockProtocol, ProtocolError> {
        let missing = |what: &str| ProtocolError::Contradiction(format!("{what} is missing"));
        let name = text.pair("protocol").ok_or_else(|| missing("a line `protocol NAME`"))?.1;
        let depth_max = match text.pair("depth") {
            None => None,
            Some((line, depth)) => Some(depth.parse().map_err(|_| {
                let what = format!("{depth:?} is no lock depth; write a number of levels");
                ProtocolError::Line { line, what }
            })?),
        };
        let requests = text.section("requests").ok_or_else(|| missing("a section [requests]"))?;
        let mut found = Vec::new();
        for (_, action) in Action::ALL {
            let line = requests.lines.iter().find(|(_, line)| words(line).first() == Some(&action));
            let &(line, pair) =
                line.ok_or_else(|| missing(&format!("`{action}` in [requests]")))?;
            let [_, mode] = words(pair)[..] else {
                return Err(ProtocolError::Line { line, what: format!("write `{action} MODE`") });
            };
            found.push(modes.mode(line, mode)?);
        }
        let requests = found.try_into().map_err(|_| missing("a request"))?;
        let (name, locked) = (name.to_owned(), Locked::Nodes);
        let protocol = Rules { name, locked, modes, requests, depth_max };
        protocol.check()?;
        Ok(LockProtocol(Arc::new(protocol)))
    }

    fn without_nodes(name: &str, locked: Locked) -> LockProtocol {
        let Rules { modes, requests, .. } = &*BUILT_IN.0[0].0;
        let (name, modes, requests) = (name.to_owned(), Arc::clone(modes), *requests);
        LockProtocol(Arc::new(Rules { name, locked, modes, requests, depth_max: None }))
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns whether transactions of both may be under way at the same time. If not, those of the
    /// one begin when those of the other have ended.
    #[must_use]
    pub fn goes_with(&self, other: &LockProtocol) -> bool {
        Arc::ptr_eq(&self.0.modes, &other.0.modes)
    }

    pub(super) fn locked(&self) -> Locked {
        self.0.locked
    }

    pub(super) fn modes(&self) -> &Arc<TreeModes> {
        &self.0.modes
    }

    /// Returns the deepest level on which it locks anything, if there is one.
    pub(super) fn depth_max(&self) -> Option<u32> {
        self.0.depth_max
    }

    /// Returns the mode in which it locks for an action.
    pub(super) fn mode(&self, action: Action) -> Mode {
        self.0.requests[action as usize]
    }
}

impl Rules {
    /// Checks that what this protocol reads, by modes of its own, keeps out who writes by another
    /// one of the same modes, or by this one; in either order.
    fn check_beside(&self, other: &Rules) -> Result<(), ProtocolError> {
        let name = |action: Action| Action::ALL[action as usize].1;
        let own = |action: Action| self.requests[action as usize];
        let others = |action: Action| other.requests[action as usize];
        let above = |action: Action| self.modes.above(others(action));
        let goes = |one, other| self.modes.table.is_compatible(one, other);
        for (read, write, held) in [
            (Action::ReadNode, Action::WriteNode, others(Action::WriteNode)),
            (Action::ReadNode, Action::WriteSubtree, others(Action::WriteSubtree)),
            (Action::ReadEdge, Action::WriteEdge, others(Action::WriteEdge)),
            (Action::RelyOnClasses, Action::AddClass, others(Action::AddClass)),
            // Who reads a list locks no gaps in it, but a writer needs something above.
            (Action::ReadChildren, Action::WriteNode, above(Action::WriteNode)),
            (Action::ReadChildren, Action::WriteSubtree, above(Action::WriteSubtree)),
        ] {
            if goes(own(read), held) || goes(held, own(read)) {
                let (read, write, by) = (name(read), name(write), &other.name);
                let what = format!("{read} goes with {write} of {by}; ask for modes that do not");
                return Err(ProtocolError::Contradiction(what));
            }
        }
        Ok(())
    }

    /// Checks that the modes asked for do what they are asked for.
    fn check(&self) -> Result<(), ProtocolError> {
        let name = |action: Action| Action::ALL[action as usize].1;
        let of = |action: Action| self.requests[action as usize];
        self.check_beside(self)?;
        for (whole, part) in [
            (Action::ReadChildren, Action::ReadNode),
            (Action::ReadSubtree, Action::ReadSubtree),
            (Action::WriteSubtree, Action::WriteSubtree),
        ] {
            let child = self.modes.row(of(whole)).child;
            if !child.is_some_and(|child| self.modes.table.covers(child, of(part))) {
                let what = format!("{} does not grant {} to children", name(whole), name(part));
                return Err(ProtocolError::Contradiction(what + "; ask for a mode that does"));
            }
        }
        Ok(())
    }
}

impl PartialEq for LockProtocol {
    fn eq(&self, other: &LockProtocol) -> bool {
        self.name() == other.name()
    }
}

impl Eq for LockProtocol {}

impl fmt::Debug for LockProtocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("LockProtocol").field(&self.name()).finish()
    }
}

/// X, MGL and `taDOM3+`, and the modes of all three.
static BUILT_IN: LazyLock<([LockProtocol; 3], Arc<TreeModes>)> = LazyLock::new(|| {
    const RIGHT: &str = "a test reads the files";
    let text = ProtocolText::read(include_str!("protocols/tadom3plus.modes")).expect(RIGHT);
    let modes = Arc::new(TreeModes::read("taDOM3+", &text).expect(RIGHT));
    let protocols = [
        include_str!("protocols/x.protocol"),
        include_str!("protocols/mgl.protocol"),
        include_str!("protocols/tadom3plus.protocol"),
    ];
    let read = |text| {
        let text = ProtocolText::read(text).expect(RIGHT);
        LockProtocol::of(&text, Arc::clone(&modes)).expect(RIGHT)
    };
    (protocols.map(read), modes)
});

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: &str = include_str!("protocols/tadom3plus.modes");
    const REQUESTS: &str = include_str!("protocols/tadom3plus.protocol");

    /// `taDOM3+` with its tables in one text, changed.
    fn changed(from: &str, to: &str) -> Result<LockProtocol, ProtocolError> {
        let text = REQUESTS.replace("modes taDOM3+", "modes changed") + MODES;
        assert!(from.is_empty() || text.contains(from), "{from} is in the text");
        LockProtocol::parse(&text.replacen(from, to, 1))
    }

    #[test]
    fn protocols_have_their_names_and_go_with_each_other() {
        for name in LockProtocol::NAMES {
            let protocol = LockProtocol::named(&name.to_lowercase()).expect("it is known");
            assert_eq!(protocol.name(), name);
            assert!(protocol.goes_with(&LockProtocol::tadom()), "{name}");
        }
        assert_eq!(LockProtocol::named("taDOM2"), None);
        let own = changed("", "").expect("the files are right");
        assert!(!own.goes_with(&LockProtocol::tadom()));
    }

    /// The file has Figure 2 of the study, and the cells of the published table are counted here.
    #[test]
    fn there_are_twenty_modes() {
        let modes = LockProtocol::tadom();
        let TreeModes { table, rows, .. } = &**modes.modes();
        assert_eq!((table.len(), rows.len()), (20, 20));
        let pairs = || table.modes().flat_map(|one| table.modes().map(move |other| (one, other)));
        let goes = |pair: &(Mode, Mode)| table.is_compatible(pair.0, pair.1);
        assert_eq!(pairs().filter(goes).count(), 127);
        // A node that is held in an update mode and in an intention to write needs CX above, which
        // neither of the two does.
        let cx = table.mode("CX").expect("there is one");
        let derived = pairs().filter(|&(one, other)| {
            let needs = |mode| table.covers(modes.modes().above(mode), cx);
            needs(table.convert(one, other)) && !needs(one) && !needs(other)
        });
        assert_eq!(derived.count(), 64);
    }

    #[test]
    fn mgl_is_eight_modes_and_never_reads_by_an_intention() {
        let protocol = LockProtocol::mgl();
        let TreeModes { table, .. } = &**protocol.modes();
        let asked = Action::ALL.iter().map(|(action, _)| protocol.mode(*action));
        let mut reached: Vec<Mode> = asked.collect();
        assert!(reached.iter().all(|mode| !["IR", "NR"].contains(&table.name(*mode))));
        let mut at = 0;
        while at < reached.len() {
            let mode = reached[at];
            let both = reached[..=at].iter().map(|other| table.convert(mode, *other));
            let next: Vec<Mode> =
                both.chain([protocol.modes().above(mode), protocol.modes().whole(mode)]).collect();
            for mode in next {
                if !reached.contains(&mode) {
                    reached.push(mode);
                }
            }
            at += 1;
            reached.dedup();
        }
        let mut names: Vec<&str> = reached.iter().map(|mode| table.name(*mode)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names, ["CX", "IR", "IX", "SR", "SRCX", "SRIX", "SU", "SX"]);
    }

    #[test]
    fn a_protocol_that_breaks_a_law_is_refused() {
        for (from, to, expected) in [
            // The two published cells that are wrong.
            ("NRIX IX    -     SX", "NRIX IX NR SX", "NRIX grants NR to children"),
            ("NU   NU   NX   NX   NU ", "NU   NU   NX   NX   NR ", "gives NR"),
            ("SX   CX    SX    SX", "SX IX SX SX", "IX, which SX needs above, goes with"),
            ("NR   IR    -     LR", "NR IR - NR", "NR stands for NR on children"),
            ("LR   IR    NR    SR", "LR IR - SR", "LR stands for NR on children"),
            ("IR +  +  +  -  -", "IR +  +  +  +  -", "IR beside SU is + in [core] alone"),
            ("read-node        NR", "read-node        IR", "read-node goes with write-node"),
            ("read-children    LR", "read-children    NR", "read-children goes with write-"),
            ("read-subtree     SR", "read-subtree     LR", "does not grant read-subtree"),
            ("write-edge       NX", "write-edge       ZX", "\"ZX\" is no mode"),
            ("write-edge       NX", "", "`write-edge` in [requests] is missing"),
            ("[modes]", "[notes]", "a section [modes] is missing"),
            ("protocol taDOM3+", "", "`protocol NAME` is missing"),
            ("protocol taDOM3+", "protocol taDOM3+\ndepth few", "\"few\" is no lock depth"),
            ("protocol taDOM3+", "protocol", "is no pair of words"),
        ] {
            let error = changed(from, to).expect_err(from).to_string();
            assert!(error.contains(expected), "{from} to {to}: {error}");
        }
        // Alone it would do: IR does not go with SX. It goes with taDOM3+'s NX.
        let alone = REQUESTS.replace("read-edge        NR", "read-edge        IR");
        let alone = alone.replace("write-edge       NX", "write-edge       SX");
        let error = LockProtocol::parse(&alone).expect_err("it is beside others").to_string();
        assert!(error.contains("read-edge goes with write-edge of taDOM3+"), "{error}");
        let unknown = REQUESTS.replace("modes taDOM3+", "modes taDOM2");
        let error = LockProtocol::parse(&unknown).expect_err("there are none").to_string();
        assert!(error.contains("modes taDOM2 are not known"), "{error}");
    }
}
