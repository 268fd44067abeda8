//! The journal: a record from which every decision about a limit can be made again.
//!
//! A controller is a function of the observations and draws it was given since it was made, so
//! these, and how it was made, are all that a record needs. The journal is a file of JSON lines:
//!
//! ```text
//! {"line":"run","server":"db:5432","algorithm":"hill-climbing","min_mpl":1,"max_mpl":1000,...}
//! {"line":"decision","at_s":1.02,"server":"db:5432",...,"draw":0.57,"observation":{...}}
//! {"line":"decision","at_s":2.04,"server":"db:5432",...}
//! ```
//!
//! - A `run` line begins the record of one server: who controls it, within which bounds, from
//!   where, with which resources. It holds from there to the next `run` line of that server, so
//!   many servers and many runs of the proxy share one file.
//! - A `decision` line holds the whole observation, the draw, and what followed: the next limit
//!   and the reason. The few numbers beside them, `tps` and the like, are for people and plots.
//!   Replay does not read them. While a controller is only observing, `proposal` says what it would
//!   have set, why, and what that is believed to gain. Every 10 seconds `curve` is what throughput
//!   and response time are expected to be at every limit.
//!
//! Numbers survive exactly. A finite `f64` is written with the shortest digits that mean it and no
//! other, and read back to the same bits. A draw is a multiple of 2^-53 below 1, which is an `f64`.
//! A number that is not finite would be written as `null`, which stays JSON but cannot be replayed;
//! a gate measures none.
//!
//! A proxy that is killed may leave half a line. The next run begins on a line of its own, and a
//! reader passes over half a line where one may be: at the end of the file and before a `run` line.
//! Anything else that cannot be read is an error, because a decision that is missing would make all
//! later ones look wrong.
//!
//! Limits: two proxies that append to one file at the same time and serve the same server cannot be
//! told apart. And another version of the program may decide otherwise; the `run` line says which
//! one wrote it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_control::{
    Algorithm, AlgorithmError, ArmDecision, BelievedBest, Bounds, BoundsError, ControlChoice,
    Decision, Draw, Gain, Mpl, Observation, Proposal, Resources, Setting, WhatIf, WhatIfCurve,
};

use crate::classes::{ClassId, Classes};
use crate::goal::{ClassGoal, ClassGoalError, KeptGoal};
use crate::governor::{Adjustment, Control};

/// The form of the lines; another number is another form.
const FORMAT: u32 = 1;

/// One decision about a limit, with all that led to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// The number of its line in the journal, from 1; 0 before it is in one.
    #[serde(skip)]
    pub line: usize,
    /// Seconds since the proxy, or the server that holds the gate, started.
    pub at_s: f64,
    /// The server whose limit it is.
    pub server: String,
    /// The name of the controller that decided.
    pub controller: String,
    /// The limit from here on.
    pub next_limit: Mpl,
    /// Why, in words.
    pub reason: String,
    /// The rule that decided, as metrics count it.
    pub kind: String,
    /// The draw that the controller was given.
    #[serde(with = "draw_as_number")]
    pub draw: Draw,
    /// The observation that the controller was given.
    pub observation: Observation,
    /// What would have been decided by a controller that is only asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Proposed>,
    /// The arm in force from here on, where there are arms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<DecidedArm>,
    /// Throughput and response time at every limit as they are expected, every 10 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<WhatIfCurve>,
}

/// What a controller that is only asked would have decided, and what is believed of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposed {
    /// The name of the algorithm.
    pub controller: String,
    /// The limit that it would have set.
    pub limit: Mpl,
    /// Why, in words.
    pub reason: String,
    /// The rule that decided, as metrics count it.
    pub kind: String,
    /// What that limit is believed to gain, where that is known.
    #[serde(default)]
    pub gain: Option<BelievedGain>,
    /// The same in words, with the reason where it is not known.
    pub gain_in_words: String,
    /// The limit that is believed to be best, where one is.
    #[serde(default)]
    pub best_limit: Option<Mpl>,
    /// What the best limit is believed to gain, where that is known.
    #[serde(default)]
    pub best_gain: Option<BelievedGain>,
    /// Which limit is believed to be best, in words, with the reason where it is not known.
    pub best_in_words: String,
}

/// Throughput at a limit over that at the present population, less 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BelievedGain {
    /// The median of what is believed.
    pub share: f64,
    /// The lower end of the 90 % interval.
    pub low: f64,
    /// The upper end of the 90 % interval.
    pub high: f64,
}

impl BelievedGain {
    /// Returns what is known of a gain in numbers. That of a limit that holds no transaction back
    /// is 0.
    #[must_use]
    pub fn of(gain: Gain) -> Option<BelievedGain> {
        match gain {
            Gain::Known { share, low, high, .. } => Some(BelievedGain { share, low, high }),
            Gain::NotBinding { .. } => Some(BelievedGain { share: 0.0, low: 0.0, high: 0.0 }),
            Gain::NotKnown(_) => None,
        }
    }
}

/// The arm in force after a decision, as the journal has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecidedArm {
    /// The arm, counted from 0.
    pub arm: usize,
    /// Whether it is in force only to be measured.
    pub is_trial: bool,
    /// Why, in words.
    pub reason: String,
}

impl From<&ArmDecision> for DecidedArm {
    fn from(decision: &ArmDecision) -> DecidedArm {
        let ArmDecision { arm, is_trial, reason } = *decision;
        DecidedArm { arm, is_trial, reason: reason.to_string() }
    }
}

impl From<&Proposal> for Proposed {
    fn from(proposal: &Proposal) -> Proposed {
        let Proposal { algorithm, limit, reason, gain, best, best_gain } = proposal;
        let best_limit = match best {
            BelievedBest::Limit { limit } => Some(*limit),
            BelievedBest::Open { .. } | BelievedBest::NotKnown(_) => None,
        };
        Proposed {
            controller: (*algorithm).to_owned(),
            limit: *limit,
            reason: reason.to_string(),
            kind: reason.kind().to_owned(),
            gain: BelievedGain::of(*gain),
            gain_in_words: gain.to_string(),
            best_limit,
            best_gain: best_limit.and_then(|_| BelievedGain::of(*best_gain)),
            best_in_words: best.to_string(),
        }
    }
}

impl Decided {
    /// Returns what a governor has decided, so many seconds after the start, about the limit of
    /// `server`.
    #[must_use]
    pub fn new(at_s: f64, server: &str, controller: &str, adjustment: Adjustment) -> Decided {
        let Adjustment { observation, draw, decision, proposal, arm, curve, .. } = adjustment;
        Decided {
            line: 0,
            at_s,
            server: server.to_owned(),
            controller: controller.to_owned(),
            next_limit: decision.limit,
            reason: decision.reason.to_string(),
            kind: decision.reason.kind().to_owned(),
            draw,
            observation,
            proposal: proposal.as_ref().map(Proposed::from),
            arm: arm.as_ref().map(DecidedArm::from),
            curve,
        }
    }
}

/// The record of one server in one run of the proxy.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The number of the line that begins it, from 1.
    pub line: usize,
    /// The version of Tidegate that wrote it.
    pub version: String,
    /// `host:port` or the socket's path.
    pub server: String,
    /// How the controller was made.
    pub control: Control,
    /// The seed that the proxy was given. The draws made of it are in the decisions.
    pub seed: u64,
    /// The decisions in their order.
    pub decisions: Vec<Decided>,
}

/// A decision that a replay did not repeat.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference<'a> {
    /// What the record says.
    pub recorded: &'a Decided,
    /// What the controller decides now.
    pub replayed: Decision,
    /// What a controller that is only asked would decide now.
    pub proposal: Option<Proposed>,
}

impl Run {
    /// Returns what `algorithm` decides in the recorded setting, given the recorded observations
    /// and draws.
    ///
    /// If it is not the algorithm of the record, the decisions answer a database that somebody else
    /// controlled. Under their limits it would have shown other observations.
    pub fn decisions_of(
        &self,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = (&Decided, Decision)> + use<'_> {
        let mut controller = algorithm.controller(&self.control.setting);
        self.decisions.iter().map(move |recorded| {
            let decision = controller.decide(&recorded.observation, recorded.draw);
            (recorded, decision)
        })
    }

    /// Returns what the observations say of every limit at the end of the record, whichever program
    /// wrote them; `None` if there are none.
    #[must_use]
    pub fn last_curve(&self) -> Option<WhatIfCurve> {
        let last = self.decisions.last()?;
        let mut what_if = WhatIf::new(self.control.setting.bounds.max());
        let mut was_trial = false;
        for decided in &self.decisions {
            if !was_trial {
                what_if.learn(decided.at_s, &decided.observation);
            }
            was_trial = decided.arm.as_ref().is_some_and(|arm| arm.is_trial);
        }
        Some(what_if.curve(last.at_s))
    }

    /// Makes every decision again. Returns the first whose limit, reason or proposal differs now.
    #[must_use]
    pub fn first_difference(&self) -> Option<Difference<'_>> {
        let mut controller = self.control.controller();
        self.decisions.iter().find_map(|recorded| {
            let replayed = controller.decide(&recorded.observation, recorded.draw);
            let proposal = controller.proposal().as_ref().map(Proposed::from);
            let arm = controller.arm().as_ref().map(DecidedArm::from);
            let is_equal = recorded.next_limit == replayed.limit
                && recorded.arm == arm
                && recorded.reason == replayed.reason.to_string()
                && recorded.proposal == proposal;
            (!is_equal).then_some(Difference { recorded, replayed, proposal })
        })
    }
}

/// What a journal holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// In the order in which they began.
    pub runs: Vec<Run>,
    /// The numbers of half lines, which were passed over.
    pub cut_off: Vec<usize>,
}

/// Why a journal cannot be replayed.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The file cannot be read.
    #[error("cannot read the journal {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A line cannot be understood.
    #[error("{path}: line {line}: {problem}")]
    JournalLine {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        problem: LineProblem,
    },
    /// It is empty.
    #[error("{0} holds no run")]
    Empty(PathBuf),
}

/// What is wrong with a line of a journal.
#[derive(Debug, Error)]
pub enum LineProblem {
    /// It is not JSON, or lacks something.
    #[error("this is no line of a journal: {0}")]
    Json(#[from] serde_json::Error),
    /// It was written in another form.
    #[error("it has format {0}, and this program reads format {FORMAT}")]
    Format(u32),
    /// It names an algorithm that there is not.
    #[error(transparent)]
    Algorithm(#[from] AlgorithmError),
    /// It names a response time to keep that cannot be one.
    #[error(transparent)]
    ClassGoal(#[from] ClassGoalError),
    /// Its bounds hold no limit.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// No line has begun a run of its server.
    #[error("a decision about {0}, and no line before it begins a run of that server")]
    NoRun(String),
}

/// Reads the journal at `path`, which a proxy may still be writing to.
///
/// # Errors
/// The file cannot be read, holds no run, or has a line that cannot be understood and is not one
/// that was cut off.
pub fn read(path: &Path) -> Result<Recorded, JournalError> {
    let bytes = std::fs::read(path)
        .map_err(|source| JournalError::Read { path: path.to_owned(), source })?;
    let recorded = parse(&bytes).map_err(|(line, problem)| JournalError::JournalLine {
        path: path.to_owned(),
        line,
        problem,
    })?;
    if recorded.runs.is_empty() {
        return Err(JournalError::Empty(path.to_owned()));
    }
    Ok(recorded)
}

/// Returns the runs in a journal's text; or the number of the first bad line, and what is wrong.
fn parse(bytes: &[u8]) -> Result<Recorded, (usize, LineProblem)> {
    let mut recorded = Recorded::default();
    // Half lines, until it is known whether they may be where they are.
    let mut halves: Vec<(usize, serde_json::Error)> = Vec::new();
    let lines = bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|&byte| byte == b'\n');
    for (number, text) in (1..).zip(lines) {
        let line = match serde_json::from_slice(text) {
            Err(error) if error.is_eof() => {
                halves.push((number, error));
                continue;
            }
            line => line,
        };
        if matches!(line, Ok(RecordedLine::Run(_))) {
            recorded.pass_over(&mut halves);
        }
        if let Some((number, error)) = halves.drain(..).next() {
            return Err((number, error.into()));
        }
        let taken = line.map_err(LineProblem::from).and_then(|line| recorded.take(number, line));
        taken.map_err(|problem| (number, problem))?;
    }
    recorded.pass_over(&mut halves);
    Ok(recorded)
}

impl Recorded {
    fn pass_over(&mut self, halves: &mut Vec<(usize, serde_json::Error)>) {
        self.cut_off.extend(halves.drain(..).map(|(number, _)| number));
    }

    fn take(&mut self, number: usize, line: RecordedLine) -> Result<(), LineProblem> {
        let decided = match line {
            RecordedLine::Run(beginning) => {
                self.runs.push(beginning.into_run(number)?);
                return Ok(());
            }
            RecordedLine::Decision(decided) => *decided,
        };
        let mut runs = self.runs.iter_mut().rev();
        let Some(run) = runs.find(|run| run.server == decided.server) else {
            return Err(LineProblem::NoRun(decided.server));
        };
        run.decisions.push(Decided { line: number, ..decided });
        Ok(())
    }
}

/// A line as it is read.
#[derive(Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum RecordedLine {
    Run(RunHeader),
    Decision(Box<Decided>),
}

/// A line as it is written.
#[derive(Serialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum LineRef<'a> {
    Run(&'a RunHeader),
    Decision(DecisionLine<'a>),
}

/// How a controller was made, as a line spells it.
#[derive(Serialize, Deserialize)]
struct RunHeader {
    format: u32,
    version: String,
    server: String,
    algorithm: String,
    /// The response time to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep: Option<String>,
    /// The place of its class; without it the class is one of the default ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep_class: Option<usize>,
    /// How many arms there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arms: Option<NonZeroUsize>,
    min_mpl: Mpl,
    max_mpl: Mpl,
    start_mpl: Mpl,
    cpus: u32,
    disks: u32,
    seed: u64,
}

impl RunHeader {
    fn new(server: &str, control: &Control, seed: u64) -> RunHeader {
        let Setting { bounds, start, resources } = &control.setting;
        RunHeader {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            server: server.to_owned(),
            algorithm: control.choice().to_string(),
            keep: control.keep.map(|keep| keep.to_string()),
            keep_class: control.keep.map(|keep| keep.class.index()),
            arms: control.arms,
            min_mpl: bounds.min(),
            max_mpl: bounds.max(),
            start_mpl: *start,
            cpus: resources.cpus,
            disks: resources.disks,
            seed,
        }
    }

    fn into_run(self, line: usize) -> Result<Run, LineProblem> {
        if self.format != FORMAT {
            return Err(LineProblem::Format(self.format));
        }
        let setting = Setting {
            bounds: Bounds::new(self.min_mpl, self.max_mpl)?,
            start: self.start_mpl,
            resources: Resources { cpus: self.cpus, disks: self.disks },
        };
        let ControlChoice { algorithm, is_observing } = self.algorithm.parse()?;
        let keep = self.keep.as_deref().map(str::parse).transpose()?;
        let keep = keep.map(|goal| kept(goal, self.keep_class)).transpose()?;
        Ok(Run {
            line,
            version: self.version,
            server: self.server,
            control: Control { algorithm, is_observing, keep, arms: self.arms, setting },
            seed: self.seed,
            decisions: Vec::new(),
        })
    }
}

/// Returns the goal that was kept for the class at a place; for a default class without one.
fn kept(goal: ClassGoal, place: Option<usize>) -> Result<KeptGoal, ClassGoalError> {
    match place.and_then(ClassId::of_index) {
        Some(class) => Ok(KeptGoal { class, goal }),
        None => goal.of(&Classes::default()),
    }
}

/// A decision, and beside it the numbers that plots begin with.
#[derive(Serialize)]
struct DecisionLine<'a> {
    #[serde(flatten)]
    decided: &'a Decided,
    interval_s: f64,
    limit: Mpl,
    tps: f64,
    concurrency: u32,
    in_queue_mean_s: f64,
    in_database_mean_s: f64,
}

impl<'a> From<&'a Decided> for DecisionLine<'a> {
    fn from(decided: &'a Decided) -> DecisionLine<'a> {
        let observation = &decided.observation;
        DecisionLine {
            decided,
            interval_s: observation.interval.as_secs_f64(),
            limit: observation.limit,
            tps: observation.throughput_tps(),
            concurrency: observation.concurrency,
            in_queue_mean_s: observation.in_queue.mean_s,
            in_database_mean_s: observation.in_database.mean_s,
        }
    }
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Journal(File);

impl Journal {
    /// Opens the journal at `path` to append to it. Creates it if there is none.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> std::io::Result<Journal> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        if file.seek(SeekFrom::End(0))? > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Journal(file))
    }

    /// Begins the record of `server`, which is controlled like this from here on.
    ///
    /// # Errors
    /// What the system says.
    pub fn begin(&mut self, server: &str, control: &Control, seed: u64) -> std::io::Result<()> {
        self.write(&LineRef::Run(&RunHeader::new(server, control, seed)))
    }

    /// Appends a decision.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&mut self, decided: &Decided) -> std::io::Result<()> {
        self.write(&LineRef::Decision(decided.into()))
    }

    fn write(&mut self, line: &LineRef<'_>) -> std::io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.0.write_all(&text)
    }
}

/// A draw as its number. It is a multiple of 2^-53 below 1, so nothing is rounded.
mod draw_as_number {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use tidegate_control::Draw;

    const STEPS: f64 = (1_u64 << 53) as f64;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
    pub(super) fn serialize<S: Serializer>(draw: &Draw, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(draw.value())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Draw, D::Error> {
        let steps = f64::deserialize(deserializer)? * STEPS;
        if !(0.0..STEPS).contains(&steps) || steps.fract() != 0.0 {
            return Err(D::Error::custom("the draw is not a multiple of 2^-53 from 0 to below 1"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number from 0 to below 2^53"
        )]
        let steps = steps as u64;
        Ok(Draw::from_bits(steps << 11))
    }
}

#[cfg(test)]
mod tests;
