//! What a history shows that a serial one would not.

use std::fmt::Write;

use tidegate_engine::Isolation;

use super::graph::{Edge, Graph, Kind};
use super::history::{Action, History, Key, WriteId};
use super::versions::{Seen, Version, Versions};

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Anomaly {
    /// Not a matter of isolation: a write is lost, or something was read that never was.
    Broken,
    /// G0: two wrote over each other.
    DirtyWrite,
    /// G1a: what was read was rolled back.
    AbortedRead,
    /// G1b: what was read was not final.
    IntermediateRead,
    /// G1c: each saw or wrote over what the other wrote.
    CircularFlow,
    /// G-single over one key: a write that was made without knowledge of another.
    LostUpdate,
    /// G-single: one saw another's writes in part.
    ReadSkew,
    /// G2-item: each wrote over what another had read.
    WriteSkew,
    /// G2: one inserted what another had not found.
    Phantom,
}

pub(crate) const ANOMALIES: [Anomaly; 9] = [
    Anomaly::Broken,
    Anomaly::DirtyWrite,
    Anomaly::AbortedRead,
    Anomaly::IntermediateRead,
    Anomaly::CircularFlow,
    Anomaly::LostUpdate,
    Anomaly::ReadSkew,
    Anomaly::WriteSkew,
    Anomaly::Phantom,
];

impl Anomaly {
    /// Whether a level permits it, by the definitions of Adya: PL-1, PL-2, PL-2.99 and PL-3.
    pub(crate) fn is_permitted(self, level: Isolation) -> bool {
        use Anomaly::{
            AbortedRead, Broken, CircularFlow, DirtyWrite, IntermediateRead, LostUpdate, Phantom,
            ReadSkew, WriteSkew,
        };
        match self {
            Broken | DirtyWrite => false,
            AbortedRead | IntermediateRead | CircularFlow => level == Isolation::ReadUncommitted,
            LostUpdate | ReadSkew | WriteSkew => {
                matches!(level, Isolation::ReadUncommitted | Isolation::ReadCommitted)
            }
            Phantom => level != Isolation::Serializable,
        }
    }
}

/// What went wrong, and how one can see it.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) anomaly: Anomaly,
    pub(crate) text: String,
}

/// Everything that is wrong with a history, at most once of each kind.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    let versions = Versions::new(history);
    let mut check = Check { history, versions, edges: Vec::new(), found: Vec::new() };
    check.trails();
    check.overwrites();
    for (txn, record) in history.txns.iter().enumerate() {
        if record.is_committed {
            (0..record.ops.len()).for_each(|op| check.reads(txn, op));
        }
    }
    check.cycles();
    check.found
}

/// What a history shows that a level does not permit.
pub(crate) fn forbidden(history: &History, level: Isolation) -> Vec<Violation> {
    let mut found = check(history);
    found.retain(|violation| !violation.anomaly.is_permitted(level));
    found
}

struct Check<'h> {
    history: &'h History,
    versions: Versions,
    edges: Vec<Edge>,
    found: Vec<Violation>,
}

/// Of one key, what a read saw.
struct Read {
    txn: usize,
    op: usize,
    key: Key,
    seen: Option<WriteId>,
}

impl Check<'_> {
    fn report(&mut self, anomaly: Anomaly, text: String) {
        if self.found.iter().all(|violation| violation.anomaly != anomaly) {
            self.found.push(Violation { anomaly, text });
        }
    }

    /// Whether what is there in the end is what was committed.
    fn trails(&mut self) {
        if let Some(id) = self.versions.lost() {
            let text = format!("{id} was committed and is not there\n{}", self.of(id));
            self.report(Anomaly::Broken, text);
        }
        if let Some(id) = self.versions.strays().first().copied() {
            let text = format!("{id} should not be there (again)\n{}", self.of(id));
            self.report(Anomaly::Broken, text);
        }
        let differs = |(key, chain): (Key, &[Version])| {
            let last = chain.last().and_then(Version::value);
            let left = self.history.left.get(&key).copied();
            (last != left).then(|| format!("key {key} is {left:?} in the end, not {last:?}\n"))
        };
        let difference = self.versions.chains().find_map(differs);
        if let Some(text) = difference {
            self.report(Anomaly::Broken, text);
        }
    }

    /// The transaction of a write, as text.
    fn of(&self, id: WriteId) -> String {
        self.versions.writer(id).map_or(String::new(), |txn| self.describe(txn))
    }

    fn describe(&self, txn: usize) -> String {
        format!("  T{txn} {}\n", self.history.txns[txn])
    }

    /// Edges between those who wrote one key after the other.
    fn overwrites(&mut self) {
        for (key, chain) in self.versions.chains() {
            for pair in chain.windows(2) {
                if let (Some(from), Some(to)) = (pair[0].txn, pair[1].txn) {
                    let (before, after) = (pair[0].id, pair[1].id);
                    self.edges.push(Edge { from, to, kind: Kind::Ww, key, before, after });
                }
            }
        }
    }

    /// Edges from and to one that read, and what is wrong with a read alone.
    fn reads(&mut self, txn: usize, op: usize) {
        let history = self.history;
        match &history.txns[txn].ops[op].action {
            &Action::Get { key, seen } => self.read(&Read { txn, op, key, seen }),
            Action::Scan { low, high, seen } => {
                let keys: Vec<Key> = self.versions.keys(*low, *high).collect();
                for key in keys {
                    let seen = seen.iter().find(|(found, _)| *found == key).map(|&(_, id)| id);
                    self.read(&Read { txn, op, key, seen });
                }
                let is_sorted = seen.is_sorted_by(|one, other| one.0 < other.0);
                if !is_sorted || seen.iter().any(|(key, _)| !(low..=high).contains(&key)) {
                    let text = format!("a scan is out of order\n{}", self.describe(txn));
                    self.report(Anomaly::Broken, text);
                }
            }
            Action::Write { .. } | Action::Mark | Action::Undo => {}
        }
    }

    fn read(&mut self, read: &Read) {
        let &Read { txn, op, key, seen } = read;
        let (anomaly, what, id) = match self.versions.seen(self.history, (txn, op), key, seen) {
            Seen::Own => return,
            Seen::Versions(first, last) => return self.link(read, first, last),
            Seen::RolledBack(id) => (Anomaly::AbortedRead, "it was rolled back", Some(id)),
            Seen::Overwritten(id) => (Anomaly::IntermediateRead, "it was not final", Some(id)),
            Seen::Impossible(why) => (Anomaly::Broken, why, seen),
        };
        let saw = id.map_or("nothing".to_owned(), |id| id.to_string());
        let of = id.map_or(String::new(), |id| self.of(id));
        let reader = self.describe(txn);
        let operation = &self.history.txns[txn].ops[op];
        let text = format!("T{txn} at {operation} saw {saw} of key {key}: {what}\n{reader}{of}");
        self.report(anomaly, text);
    }

    /// Edges to one that read: from who wrote the first version that it may have seen, and to who
    /// wrote over the last one.
    fn link(&mut self, read: &Read, first: usize, last: usize) {
        let &Read { txn, key, seen, .. } = read;
        if let Some(version) = self.versions.version(key, first)
            && let Some(from) = version.txn.filter(|&from| from != txn)
        {
            let before = version.id;
            self.edges.push(Edge { from, to: txn, kind: Kind::Wr, key, before, after: None });
        }
        if let Some(version) = self.versions.version(key, last + 1)
            && let Some(to) = version.txn.filter(|&to| to != txn)
        {
            let kind = if seen.is_some() { Kind::RwItem } else { Kind::RwPredicate };
            let after = version.id;
            self.edges.push(Edge { from: txn, to, kind, key, before: seen, after });
        }
    }

    fn cycles(&mut self) {
        use Kind::{RwItem, RwPredicate, Wr, Ww};
        let graph = Graph::new(self.history.txns.len(), std::mem::take(&mut self.edges));
        let is_flow = |_: &Edge, edge: &Edge| matches!(edge.kind, Ww | Wr);
        let [dirty_write] = graph.cycles(Ww, [|_, edge| edge.kind == Ww]);
        let [flow] = graph.cycles(Wr, [is_flow]);
        // Whatever is lost over one key is also a skew: of each edge only the narrowest is told.
        let [lost_update, read_skew, write_skew] = graph.cycles(
            RwItem,
            [
                |first, edge| edge.kind == Ww && edge.key == first.key,
                is_flow,
                |_, edge| edge.kind != RwPredicate,
            ],
        );
        let [phantom] = graph.cycles(RwPredicate, [|_, _| true]);
        let found = [
            (Anomaly::DirtyWrite, dirty_write),
            (Anomaly::CircularFlow, flow),
            (Anomaly::LostUpdate, lost_update),
            (Anomaly::ReadSkew, read_skew),
            (Anomaly::WriteSkew, write_skew),
            (Anomaly::Phantom, phantom),
        ];
        for (anomaly, cycle) in found {
            if let Some(cycle) = cycle {
                let text = self.tell(&cycle);
                self.report(anomaly, text);
            }
        }
    }

    /// A cycle, as text: its edges, and what its transactions did.
    fn tell(&self, cycle: &[Edge]) -> String {
        let mut text = String::new();
        for edge in cycle {
            let Edge { from, to, key, .. } = edge;
            let [before, after] = [edge.before, edge.after].map(|id| match id {
                Some(id) => id.to_string(),
                None => "nothing".to_owned(),
            });
            let why = match edge.kind {
                Kind::Ww => format!("wrote {before} to key {key}, T{to} wrote over it {after}"),
                Kind::Wr => format!("wrote {before} to key {key}, T{to} saw that"),
                Kind::RwItem => format!("saw {before} of key {key}, T{to} wrote over it {after}"),
                Kind::RwPredicate => format!("did not find key {key}, T{to} inserted {after}"),
            };
            let _ = writeln!(text, "T{from} before T{to}: T{from} {why}");
        }
        text + &cycle.iter().map(|edge| self.describe(edge.from)).collect::<String>()
    }
}
