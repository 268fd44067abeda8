//! An experiment file: TOML in, an [`Experiment`] out, or the line that is wrong and why.
//!
//! ```toml
//! name = "quick"
//! scenario = "characterise"
//! seed = 1
//! subjects = ["embedded"]
//! mpl = { from = 4, to = 64, factor = 2 }
//! ctl = "3s"
//!
//! [workload]
//! kind = "tpcb"
//! scale = 10
//!
//! [subject.postgres]
//! settings = { shared_buffers = "256MB" }
//!
//! [preset.published]
//! ctl = "120s"
//! ```
//!
//! A preset replaces the keys it names, `workload` and `factors` as a whole, and of `subject` the
//! tables that it names. Unknown keys are refused wherever they stand. Which keys `[factors]` has
//! is the scenario's own business ([`scenarios`](super::scenarios)); `docs/experiments.md` lists
//! all of them.
//!
//! The file is parsed once. A preset's keys are put into its table before that is read, and each
//! keeps its place in the text, so that an error names its line.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tidegate_subject::settings::Settings;
use tidegate_subject::url::{Url, UrlError};
use tidegate_workload::workload::Depth;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::complaint::Complaint;
use super::fit::{refuse_processors, refuse_unfit};
use super::machine::MachineKeys;
use super::redact::{kept, shown};
use super::scenarios::{Common, READERS, Reader, ScenarioFactors};
use super::values::{Bytes, LEVELS_MAX, Levels, Period};
use super::workload::WorkloadSpec;
use super::{Experiment, Order, Subject, SubjectKind};
use crate::included;

/// The shortest interval: a shorter one would be over before anybody is served.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Why a file is no experiment.
#[derive(Debug, Error)]
pub enum FileError {
    #[error("cannot read {path}: {source}", path = .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}: {reason}", path = .path.display())]
    Form { path: PathBuf, reason: String },
    #[error("{path} has no preset `{name}`; it has {known}", path = .path.display())]
    Preset { path: PathBuf, name: String, known: String },
    /// Its values do not fit each other, or a subject is not to be had. The reason names the line
    /// where there is one.
    #[error("{path}: {reason}", path = .path.display())]
    Values { path: PathBuf, reason: String },
}

/// The same, before it is known which file it was.
pub(super) enum Problem {
    Form(String),
    Preset { name: String, known: String },
    Values(String),
}

/// The scenario that a file names.
#[derive(Deserialize)]
struct Head {
    scenario: Option<ScenarioName>,
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct ScenarioName(Reader);

/// A name that no scenario has.
#[derive(Debug, Error)]
#[error("no scenario is called `{name}`: use {}", READERS.map(|(name, _)| name).join(", "))]
struct UnknownScenario {
    name: String,
}

impl TryFrom<String> for ScenarioName {
    type Error = UnknownScenario;

    fn try_from(text: String) -> Result<Self, UnknownScenario> {
        let known = READERS.iter().find(|(name, _)| *name == text);
        known.map(|(_, reader)| ScenarioName(*reader)).ok_or(UnknownScenario { name: text })
    }
}

/// What a file says, with a scenario's own factors; one without presets, or with the keys of one in
/// their place.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, bound = "F: ScenarioFactors")]
struct FileKeys<F> {
    name: Option<String>,
    #[serde(rename = "scenario")]
    _scenario: Option<String>,
    seed: Option<u64>,
    subjects: Option<Vec<SubjectKind>>,
    processors: Option<Vec<NonZeroU32>>,
    #[serde(default)]
    machine: MachineKeys,
    mpl: Option<Levels>,
    clients: Option<NonZeroU32>,
    buffer: Option<Bytes>,
    ctl: Option<Period>,
    warmup: Option<Period>,
    pause: Option<Period>,
    connect: Option<Period>,
    connect_at_once: Option<NonZeroUsize>,
    interval: Option<Period>,
    repetitions: Option<NonZeroU32>,
    order: Option<Order>,
    transactions: Option<bool>,
    check: Option<Depth>,
    workload: Option<WorkloadSpec>,
    factors: Option<F>,
    #[serde(default)]
    subject: BTreeMap<SubjectKind, SubjectKeys>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SubjectKeys {
    settings: BTreeMap<String, String>,
    isolation: Option<String>,
    url: Option<Location>,
}

/// A place in words.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Location(Url);

impl TryFrom<String> for Location {
    type Error = UrlError;

    fn try_from(text: String) -> Result<Self, UrlError> {
        text.parse().map(Location)
    }
}

impl<F: ScenarioFactors> FileKeys<F> {
    /// These keys, with other subjects; one that is named with a place is there, whatever the file
    /// says.
    fn choose(&mut self, subjects: &[Subject]) {
        self.subjects = Some(subjects.iter().map(|subject| subject.kind).collect());
        for Subject { kind, place, .. } in subjects {
            if let Some(place) = place {
                self.subject.entry(*kind).or_default().url = Some(Location(place.clone()));
            }
        }
    }
}

/// What of a file is wanted.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub preset: Option<String>,
    /// Other subjects than the file names.
    pub subjects: Option<Vec<Subject>>,
}

/// Reads an experiment file, or one [within the program](crate::included).
pub fn read(path: &Path, choice: &Choice) -> Result<Experiment, FileError> {
    let text =
        included::read(path).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    parse(path, &text, choice)
}

/// As [`read`], of text that is already there; `path` is for messages.
pub fn parse(path: &Path, text: &str, choice: &Choice) -> Result<Experiment, FileError> {
    let experiment = parse_begun(path, text, choice)?;
    refuse_unfit(&experiment).map_err(|complaint| FileError::Values {
        path: path.to_owned(),
        reason: complaint.with_line(text, choice.preset.as_deref()),
    })?;
    Ok(experiment)
}

/// The same of an experiment that was begun: what of it can be had is measured, or was.
pub(crate) fn parse_begun(
    path: &Path,
    text: &str,
    choice: &Choice,
) -> Result<Experiment, FileError> {
    let path = || path.to_owned();
    read_text(text, choice).map_err(|problem| match problem {
        Problem::Form(reason) => FileError::Form { path: path(), reason },
        Problem::Preset { name, known } => FileError::Preset { path: path(), name, known },
        Problem::Values(reason) => FileError::Values { path: path(), reason },
    })
}

/// Looks whether every subject of an experiment is to be had here: its programs are installed, or
/// its server lets us make a database; it starts with the settings that the file gives it; there
/// are as many processors. Nothing of that is left behind. `choice` is what the experiment was read
/// with.
///
/// # Errors
/// One is not, by its line; see [`FileError::Values`].
pub fn look_for_subjects(
    path: &Path,
    experiment: &Experiment,
    choice: &Choice,
) -> Result<(), FileError> {
    let chosen = choice.subjects.as_deref().unwrap_or_default();
    let values = |reason| FileError::Values { path: path.to_owned(), reason };
    let of_file = |complaint: Complaint| {
        values(complaint.with_line(&experiment.text, experiment.preset.as_deref()))
    };
    refuse_processors(experiment).map_err(of_file)?;
    for subject in &experiment.subjects {
        let Err(reason) = subject.look() else {
            subject.try_settings().map_err(of_file)?;
            continue;
        };
        let kind = subject.kind;
        let is_chosen =
            |one: &Subject, has_place| one.kind == kind && one.place.is_some() == has_place;
        let has_place = subject.place.is_some();
        if chosen.iter().any(|one| is_chosen(one, has_place)) {
            return Err(values(format!("--subject {kind}: {reason}")));
        }
        let text = format!(": {kind}: {reason}");
        return Err(of_file(if has_place {
            Complaint::about_subject(kind, "url", &text)
        } else {
            Complaint::about("subjects", text)
        }));
    }
    Ok(())
}

/// A file that was parsed: its keys and its presets, each with its place in the text.
pub(super) struct Document<'t> {
    text: &'t str,
    keys: DeTable<'t>,
    presets: DeTable<'t>,
}

impl<'t> Document<'t> {
    pub(super) fn parse(text: &'t str) -> Result<Self, Problem> {
        let mut keys = DeTable::parse(text).map_err(|error| form(error, text))?.into_inner();
        let presets = match keys.remove("preset").map(Spanned::into_inner) {
            None => DeTable::new(),
            Some(DeValue::Table(presets)) => presets,
            Some(_) => return Err(Problem::Values("`preset` is no table of presets".to_owned())),
        };
        Ok(Document { text, keys, presets })
    }

    /// Returns the keys of the file, with those of a preset in their place.
    pub(super) fn with(&self, preset: Option<&str>) -> Result<DeTable<'t>, Problem> {
        let mut keys = self.keys.clone();
        let Some(name) = preset else { return Ok(keys) };
        let Some(preset) = self.presets.get(name).and_then(|preset| preset.get_ref().as_table())
        else {
            let known: Vec<&str> = self.presets.keys().map(|key| &**key.get_ref()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Problem::Preset { name: name.to_owned(), known });
        };
        if preset.contains_key("scenario") {
            return Err(Problem::Values("a preset has the scenario of its file".to_owned()));
        }
        for (key, value) in preset {
            let there = keys.get_mut(&**key.get_ref()).map(Spanned::get_mut);
            match (there, value.get_ref()) {
                (Some(DeValue::Table(there)), DeValue::Table(table))
                    if key.get_ref() == "subject" =>
                {
                    table.iter().for_each(|(key, value)| replace(there, key, value));
                }
                _ => replace(&mut keys, key, value),
            }
        }
        Ok(keys)
    }

    fn read<T: DeserializeOwned>(&self, keys: DeTable<'t>) -> Result<T, Problem> {
        let deserializer = Deserializer::from(Spanned::new(0..self.text.len(), keys));
        T::deserialize(deserializer).map_err(|error| form(error, self.text))
    }
}

/// Puts a key with its value, and the place of both, into a table.
fn replace<'t>(
    table: &mut DeTable<'t>,
    key: &Spanned<std::borrow::Cow<'t, str>>,
    value: &Spanned<DeValue<'t>>,
) {
    table.remove(&**key.get_ref());
    table.insert(key.clone(), value.clone());
}

fn read_text(text: &str, choice: &Choice) -> Result<Experiment, Problem> {
    let document = Document::parse(text)?;
    let Head { scenario } = document.read(document.keys.clone())?;
    let missing = || Problem::Values("the key `scenario` is missing".to_owned());
    let ScenarioName(reader) = scenario.ok_or_else(missing)?;
    reader(&document, choice)
}

fn form(mut error: toml::de::Error, text: &str) -> Problem {
    error.set_input(Some(text));
    // It repeats the line, which may have a password.
    Problem::Form(shown(error.to_string().trim_end()))
}

/// Reads a file of the scenario that these factors belong to. Every preset is read, so that one
/// which is wrong is refused also when it is not chosen.
pub(super) fn read_as<F: ScenarioFactors>(
    document: &Document<'_>,
    choice: &Choice,
) -> Result<Experiment, Problem> {
    let preset = choice.preset.as_deref();
    let _: FileKeys<F> = document.read(document.with(None)?)?;
    for name in document.presets.keys() {
        let _: FileKeys<F> = document.read(document.with(Some(name.get_ref()))?)?;
    }
    let mut keys: FileKeys<F> = document.read(document.with(preset)?)?;
    if let Some(subjects) = &choice.subjects {
        keys.choose(subjects);
    }
    let values = |complaint: Complaint| complaint.with_line(document.text, preset);
    let mut experiment = build(keys).map_err(|complaint| Problem::Values(values(complaint)))?;
    experiment.text = kept(document.text);
    experiment.preset.clone_from(&choice.preset);
    Ok(experiment)
}

fn build<F: ScenarioFactors>(keys: FileKeys<F>) -> Result<Experiment, Complaint> {
    let missing = |key: &str| Complaint::missing(format!("the key `{key}` is missing"));
    let mpls = keys.mpl.as_ref().ok_or_else(|| missing("mpl"))?.numbers();
    if mpls.is_empty() {
        let text = " names no level: `from` is above `to`, or the list is empty";
        return Err(Complaint::about("mpl", text));
    }
    if mpls.len() > LEVELS_MAX {
        let text = format!(" names more than {LEVELS_MAX} levels");
        return Err(Complaint::about("mpl", text));
    }
    let ctl = keys.ctl.ok_or_else(|| missing("ctl"))?.0;
    let or = |period: Option<Period>, otherwise: u64| {
        period.map_or(Duration::from_secs(otherwise), |period| period.0)
    };
    let interval = or(keys.interval, 1);
    if ctl.is_zero() {
        return Err(Complaint::about("ctl", " must be longer than nothing"));
    }
    if interval < INTERVAL_MIN {
        let text = format!(" must be {INTERVAL_MIN:?} or longer");
        return Err(Complaint::about("interval", text));
    }
    let kinds = keys.subjects.clone().ok_or_else(|| missing("subjects"))?;
    if kinds.is_empty() {
        return Err(Complaint::about("subjects", " is empty; name at least one"));
    }
    let subjects: Vec<Subject> =
        kinds.into_iter().map(|kind| subject(kind, &keys.subject)).collect();
    subjects.iter().try_for_each(Subject::validate)?;
    if keys.processors.is_some() {
        subjects.iter().try_for_each(Subject::refuse_processors)?;
    }
    let common = Common {
        workload: keys.workload,
        clients: keys.clients.map(NonZeroU32::get),
        buffer: keys.buffer,
        mpls,
    };
    Ok(Experiment {
        name: keys.name.ok_or_else(|| missing("name"))?,
        scenario: keys.factors.unwrap_or_default().scenario(&common)?,
        seed: keys.seed.unwrap_or(1),
        subjects,
        processors: keys.processors.map(|list| list.iter().map(|count| count.get()).collect()),
        machine: keys.machine.factors()?,
        mpls: common.mpls,
        ctl,
        warmup: or(keys.warmup, 1),
        pause: or(keys.pause, 0),
        connect: or(keys.connect, 60),
        connect_at_once: keys.connect_at_once,
        interval,
        repetitions: keys.repetitions.map_or(1, NonZeroU32::get),
        order: keys.order.unwrap_or(Order::Random),
        transactions: keys.transactions.unwrap_or(false),
        check: keys.check.unwrap_or_default(),
        text: String::new(),
        preset: None,
    })
}

fn subject(kind: SubjectKind, tables: &BTreeMap<SubjectKind, SubjectKeys>) -> Subject {
    let keys = tables.get(&kind).cloned().unwrap_or_default();
    let place = keys.url.map(|Location(place)| place);
    let settings =
        Settings { named: keys.settings, isolation: keys.isolation, ..Settings::default() };
    Subject { kind, settings, place }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: &str = r#"
name = "quick"
scenario = "characterise"
subjects = ["embedded"]
mpl = [4, 1, 4]
ctl = "3s"

[workload]
kind = "tpcb"
scale = 10

[preset.long]
ctl = "2min"
check = "full"
mpl = { from = 100, to = 1000, step = 100 }
"#;

    fn of(text: &str, preset: Option<&str>) -> Result<Experiment, String> {
        let choice = Choice { preset: preset.map(str::to_owned), subjects: None };
        parse(Path::new("e.toml"), text, &choice).map_err(|error| error.to_string())
    }

    #[test]
    fn a_preset_replaces_what_it_names() {
        let quick = of(QUICK, None).unwrap();
        assert_eq!((quick.mpls, quick.ctl), (vec![1, 4], Duration::from_secs(3)));
        assert_eq!(quick.check, Depth::Quick);
        let long = of(QUICK, Some("long")).unwrap();
        assert_eq!(long.check, Depth::Full);
        assert_eq!((long.mpls.len(), long.ctl), (10, Duration::from_secs(120)));
        assert_eq!((long.name, long.preset.as_deref()), ("quick".to_owned(), Some("long")));
        let error = of(QUICK, Some("short")).unwrap_err();
        assert!(error.contains("`short`") && error.contains("it has long"), "{error}");
    }

    #[test]
    fn levels_are_counted_out() {
        for (text, expected) in [
            ("[8, 2]", vec![2, 8]),
            ("{ from = 10, to = 30, step = 10 }", vec![10, 20, 30]),
            ("{ from = 4, to = 40, factor = 2 }", vec![4, 8, 16, 32]),
        ] {
            let text = QUICK.replace("[4, 1, 4]", text);
            assert_eq!(of(&text, None).unwrap().mpls, expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (from, to, expected) in [
            ("ctl = \"3s\"", "ctl = \"3s\"\ncolour = 1", "line 7"),
            ("ctl = \"3s\"", "ctl = \"soon\"", "`soon` is no length of time"),
            ("ctl = \"3s\"", "", "`ctl` is missing"),
            ("ctl = \"3s\"", "ctl = \"0s\"", "longer than nothing"),
            ("[4, 1, 4]", "[0]", "line 5"),
            ("[4, 1, 4]", "[]", "names no level"),
            ("[4, 1, 4]", "{ from = 9, to = 3, step = 1 }", "names no level"),
            ("[\"embedded\"]", "[\"oracle\"]", "line 4"),
            ("[\"embedded\"]", "[]", "at least one"),
            ("\"characterise\"", "\"destroy\"", "line 3"),
            ("\"characterise\"", "\"thrash\"", "has its own workload"),
            ("scale = 10", "scale = 0", "scale"),
            ("scale = 10", "size = 10", "line 8"),
            ("kind = \"tpcb\"", "kind = \"tpcz\"", "line 9"),
            ("[workload]", "clients = 2\n[workload]", "above the 2 `clients`"),
            ("[workload]", "control = \"vegas\"\n[workload]", "line 8"),
            ("[workload]", "[preset.x]\nscenario = \"thrash\"\n[workload]", "a preset has"),
            (
                "[workload]",
                "[subject.postgres]\nurl = \"oracle://ann:secret@h\"\n[workload]",
                "line 9",
            ),
            ("[workload]", "[subject.x]\nurl = \"mysql://a:secret@h\"\n[workload]", "line 8"),
            ("[workload]", "connect_at_once = 0\n[workload]", "line 8"),
            ("[\"embedded\"]", "[\"embedded\", \"embedded\"]", "line 4: `subjects` names embedded"),
            ("ctl = \"3s\"", "ctl = \"3s\"\ninterval = \"1us\"", "line 7: `interval` must be 10ms"),
            ("ctl = \"3s\"", "ctl = \"400years\"", "more than a year"),
            ("[\"embedded\"]", "[\"mariadb\"]\nclients = 9", "line 5: `clients`: nothing can hold"),
            ("[\"embedded\"]", "[\"postgres\"]\nbuffer = \"1MB\"", "line 5: `buffer`"),
            ("[4, 1, 4]", "[4, 1001]\nclients = 2000", "line 5: `mpl`: 1001 is above"),
            (
                "[workload]",
                "[subject.embedded]\nurl = \"mysql://a:secret@h\"\n[workload]",
                "line 9: `subject.embedded.url`",
            ),
            (
                "[workload]",
                "[subject.embedded]\nsettings = { pages = \"1\" }\n[workload]",
                "line 9: `subject.embedded.settings`: the embedded engine has no setting",
            ),
            (
                "[workload]",
                "[subject.embedded]\nisolation = \"chaos\"\n[workload]",
                "line 9: `subject.embedded.isolation`: `chaos` is no isolation",
            ),
        ] {
            is_refused(from, to, expected);
        }
    }

    #[test]
    fn what_is_wrong_in_sections_is_named_with_its_line() {
        for (from, to, expected) in [
            (
                "[\"embedded\"]",
                "[\"embedded-in-virtual-time\"]\nmachine.data_disk = [\"hdd\", \"tape\"]",
                "line 5: `machine.data_disk`: `tape` is no data_disk; give none, hdd, ssd",
            ),
            ("[workload]", "[machine]\nclients = []\n[workload]", "line 9: `machine.clients`"),
            ("[workload]", "[machine]\ntapes = 3\n[workload]", "line 9"),
            (
                "[\"embedded\"]",
                "[\"embedded-in-virtual-time\"]\nprocessors = [2]",
                "line 5: `processors`: a machine in virtual time has those of `machine.pro",
            ),
            (
                "[\"embedded\"]\nmpl = [4, 1, 4]",
                "[\"embedded-in-virtual-time\"]\nmpl = [4]\n\
                 subject.embedded-in-virtual-time.settings = { log_disk = \"none\" }",
                "line 6: `subject.embedded-in-virtual-time.settings`: `log_disk` is a key of `[m",
            ),
            (
                "[\"embedded\"]\nmpl = [4, 1, 4]",
                "[\"embedded-in-virtual-time\"]\nmpl = [4]\n\
                 subject.embedded-in-virtual-time.settings = { \"machine.network\" = \"1ms\" }",
                "line 6: `subject.embedded-in-virtual-time.settings`: `machine.network` is a key",
            ),
            (
                "kind = \"tpcb\"\nscale = 10",
                "kind = \"tpcc\"\nmix = \"odd\"",
                "line 8: workload tpcc: no mix is called `odd`",
            ),
            ("[workload]", "check = \"deep\"\n[workload]", "line 8"),
            (
                "subjects = [\"embedded\"]\nmpl = [4, 1, 4]",
                "subjects = [\"mariadb\"]\nmpl = [4, 91]\n\
                 subject.mariadb.settings = { Max-Connections = \"90\" }",
                "line 5: `mpl`: 91 is above the `max_connections`",
            ),
            ("ctl = \"2min\"", "ctl = \"2min\"\nspeed = 3", "line 14"),
            ("\"full\"", "\"deep\"", "line 14"),
            ("scale = 10\n", "scale = 10\n[factors]\nrows = 5\n", "line 12"),
        ] {
            is_refused(from, to, expected);
        }
    }

    /// The file with something else in it is refused, and no password is told.
    fn is_refused(from: &str, to: &str, expected: &str) {
        let text = QUICK.replace(from, to);
        assert_ne!(text, QUICK, "{from}");
        let error = of(&text, None).unwrap_err();
        assert!(error.starts_with("e.toml: ") && error.contains(expected), "{to}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn what_nobody_can_execute_is_refused() {
        for (from, to, expected) in [
            ("[workload]", "processors = []\n[workload]", "line 8: `processors` is empty"),
            ("[workload]", "connect = \"0s\"\n[workload]", "line 8: `connect` must be longer"),
            (
                "[4, 1, 4]",
                "{ from = 1, to = 4294967295, step = 1 }",
                "line 5: `mpl` names more than 10000 levels",
            ),
            ("[4, 1, 4]", "[4, 4000000000]", "line 5: `mpl`: 4000000000 clients are more than"),
            ("[workload]", "clients = 4000000000\n[workload]", "line 8: `clients`: 4000000000"),
            (
                "[workload]",
                "repetitions = 4000000000\n[workload]",
                "line 8: `repetitions` times the levels of `mpl`: 8000000000 executions are more",
            ),
            (
                "[4, 1, 4]",
                "{ from = 1, to = 8000, step = 1 }\nrepetitions = 126",
                "line 6: `repetitions` times the levels of `mpl`: 1008000 executions are more",
            ),
        ] {
            is_refused(from, to, expected);
        }
    }

    #[test]
    fn a_list_that_a_database_does_not_take_is_refused() {
        let list = "kind = \"thrash\"\nreads = 1\nplacement = \"discrete\"\nsf = 1\nrows = 500000";
        let text = QUICK.replace("kind = \"tpcb\"\nscale = 10", list);
        assert!(of(&text, None).is_ok());
        let error = of(&text.replace("\"embedded\"", "\"firebird\""), None).unwrap_err();
        assert!(error.contains("line 8: firebird: "), "{error}");
    }

    #[test]
    fn an_existing_server_has_a_place_and_keeps_its_settings() {
        let server = QUICK.replace("\"embedded\"", "\"postgres\"").replace(
            "[workload]",
            "[subject.postgres]\nurl = \"postgres://ann:secret@h/d\"\n[workload]",
        );
        let experiment = of(&server, None).unwrap();
        let named = experiment.subjects[0].to_string();
        assert_eq!(named, "postgres=postgres://ann@h:5432/d");
        assert!(!format!("{experiment:?}").contains("secret"));
        for (from, to, expected) in [
            ("ctl = \"3s\"", "ctl = \"3s\"\nprocessors = [1]", "line 7: `processors`"),
            (
                "/d\"\n",
                "/d\"\nsettings = { jit = \"off\" }\n",
                "line 10: `subject.postgres.settings`",
            ),
            ("/d\"\n", "/d\"\nisolation = \"chaos\"\n", "`chaos` is no isolation"),
            ("postgres://", "mysql://", "line 9: `subject.postgres.url`"),
        ] {
            let error = of(&server.replace(from, to), None).unwrap_err();
            assert!(error.contains(expected) && !error.contains("secret"), "{to}: {error}");
        }
    }

    #[test]
    fn the_command_line_says_where_a_subject_is() {
        let subjects =
            ["sqlite", "postgres=postgres://ann:secret@h/d"].map(|one| one.parse().unwrap());
        let choice = Choice { preset: None, subjects: Some(subjects.into()) };
        let experiment = parse(Path::new("e.toml"), QUICK, &choice).unwrap();
        let named: Vec<String> = experiment.subjects.iter().map(Subject::to_string).collect();
        assert_eq!(named, ["sqlite", "postgres=postgres://ann@h:5432/d"]);
        for (text, expected) in [
            ("oracle", "no subject is called `oracle`"),
            ("postgres=ftp://ann:secret@h", "begins with none of"),
            ("oracle=mysql://ann:secret@h", "no subject is called `oracle`"),
        ] {
            let error = text.parse::<Subject>().unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
    }
}
