//! The journal: a JSON line for each control interval.
//!
//! The proxy writes its own. That of the embedded engine's server is written here, by the same code
//! (`tidegate_gate::journal`), so that one reader does for both and `tidegate replay` can decide
//! again from either. What is read here are the few numbers that figures are made of.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidegate_control::Algorithm;
use tidegate_gate::journal::{Decided, DecidedArm, Journal};
use tidegate_gate::{Adjustment, Control};
use tidegate_runtime::clock;

use super::RigError;

/// What the embedded engine is called in a journal.
const EMBEDDED: &str = "embedded";

/// One control interval of one database, as it was written down at its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Interval {
    /// When it ended, in seconds since the proxy or the engine's server started.
    pub at_s: f64,
    /// How long it lasted, in seconds.
    pub interval_s: f64,
    /// The database server the limit is for.
    pub server: String,
    pub limit: u32,
    pub next_limit: u32,
    /// The reason that the controller gave for the next limit.
    pub reason: String,
    /// The arm in force from then on, where there are arms.
    #[serde(default)]
    pub arm: Option<DecidedArm>,
    /// Completed transactions per second.
    pub tps: f64,
    /// Transactions running and waiting at the interval's end.
    pub concurrency: f64,
    /// Mean time a transaction waited, in seconds; `None` when there was none.
    #[serde(default)]
    pub in_queue_mean_s: Option<f64>,
    /// Mean time a transaction ran, in seconds; `None` when there was none.
    #[serde(default)]
    pub in_database_mean_s: Option<f64>,
}

impl Interval {
    /// Returns the reason, with the arm that is in force from then on and the reason for that.
    pub(crate) fn reason_with_arm(&self) -> Cow<'_, str> {
        match &self.arm {
            None => Cow::Borrowed(&self.reason),
            Some(DecidedArm { arm, reason, .. }) => {
                Cow::Owned(format!("arm {arm}: {}; {reason}", self.reason))
            }
        }
    }
}

/// The journal's intervals that ended between two times, both since the proxy's start.
pub(crate) fn between(
    path: &Path,
    from: Duration,
    until: Duration,
) -> Result<Vec<Interval>, RigError> {
    let window = from.as_secs_f64()..=until.as_secs_f64();
    let within = |interval: &Interval| window.contains(&interval.at_s);
    Ok(read(path)?.into_iter().filter(within).collect())
}

pub(crate) fn read(path: &Path) -> Result<Vec<Interval>, RigError> {
    let text = fs::read_to_string(path).map_err(RigError::file(path))?;
    parse(&text).map_err(|(line, source)| RigError::Journal { path: path.to_owned(), line, source })
}

#[derive(Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum JournalLine {
    /// How the limit is found from here on: only a replay needs that.
    Run {},
    /// An interval, and what was decided at its end.
    Decision(Interval),
}

/// The intervals of all whole lines; the last line may still be written to.
fn parse(text: &str) -> Result<Vec<Interval>, (usize, serde_json::Error)> {
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .enumerate()
        .filter_map(|(index, line)| match serde_json::from_str(line) {
            Ok(JournalLine::Run {}) => None,
            Ok(JournalLine::Decision(interval)) => Some(Ok(interval)),
            Err(error) => Some(Err((index + 1, error))),
        })
        .collect()
}

/// The journal of the embedded engine's server, being written.
#[derive(Clone)]
pub(super) struct EngineJournal(Arc<Mutex<Writer>>);

struct Writer {
    path: PathBuf,
    journal: Journal,
    control: Algorithm,
    started: Instant,
    /// What went wrong; after that nothing more is written.
    failure: Option<io::Error>,
}

impl EngineJournal {
    /// Begins a journal at `path`; what was there before is lost. Its seconds count from `started`.
    pub(super) fn begin(
        path: &Path,
        control: &Control,
        seed: u64,
        started: Instant,
    ) -> Result<Self, RigError> {
        super::empty_file(path)?;
        let begun = Journal::open(path).and_then(|mut journal| {
            journal.begin(EMBEDDED, control, seed)?;
            Ok(journal)
        });
        let journal = begun.map_err(RigError::file(path))?;
        let (path, control) = (path.to_owned(), control.algorithm);
        let writer = Writer { path, journal, control, started, failure: None };
        Ok(EngineJournal(Arc::new(Mutex::new(writer))))
    }

    /// This was decided now. What goes wrong is told at the [end](EngineJournal::end).
    pub(super) fn add(&self, adjustment: &Adjustment) {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.failure.is_none() {
            let at_s = (clock::now() - writer.started).as_secs_f64();
            let name = writer.control.name();
            let decided = Decided::new(at_s, EMBEDDED, name, adjustment.clone());
            writer.failure = writer.journal.add(&decided).err();
        }
    }

    /// Whether all was written.
    pub(super) fn end(self) -> Result<(), RigError> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = writer.failure.take();
        failure.map_or(Ok(()), |failure| Err(RigError::file(&writer.path)(failure)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"line":"decision","at_s":1.5,"interval_s":1,"server":"d","limit":4,
        "next_limit":5,"reason":"up","tps":10.5,"concurrency":7,"in_queue_mean_s":0.25,
        "in_database_mean_s":null}"#;

    fn line() -> String {
        LINE.replace('\n', "") + "\n"
    }

    #[test]
    fn whole_lines_count_and_a_wrong_one_is_named() {
        let run = "{\"line\":\"run\",\"server\":\"d\",\"seed\":1}\n".to_owned();
        let intervals = parse(&(run + &line() + &line() + "{\"at_s\":")).unwrap();
        assert_eq!(intervals.len(), 2);
        assert_eq!(intervals[1].next_limit, 5);
        assert_eq!(intervals[1].in_queue_mean_s, Some(0.25));
        assert_eq!(parse(&(line() + "{}\n")).unwrap_err().0, 2);
    }

    #[test]
    fn a_window_takes_what_ended_in_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let late = line().replace("1.5", "9.5");
        fs::write(file.path(), line() + &late).unwrap();
        let count = |from, until| {
            let (from, until) = (Duration::from_secs(from), Duration::from_secs(until));
            between(file.path(), from, until).unwrap().len()
        };
        assert_eq!((count(0, 10), count(1, 2), count(2, 9)), (2, 1, 0));
    }
}
