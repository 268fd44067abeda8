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
//! A preset replaces the keys it names. Unknown keys are refused wherever they stand.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use tidegate_control::Algorithm;

use super::line::with_line;
use super::workload::WorkloadSpec;
use super::{Admission, Experiment, Order, Scenario, SubjectKind, SubjectSpec};

/// Why a file is no experiment.
#[derive(Debug, Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It says what an experiment file cannot say. The reason names the line.
    #[error("{path}: {reason}", path = .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// There is no such preset.
    #[error("{path} has no preset `{name}`; it has {known}", path = .path.display())]
    Preset {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        name: String,
        /// The presets that are there.
        known: String,
    },
    /// Its values do not fit each other. The reason names the line where there is one.
    #[error("{path}: {reason}", path = .path.display())]
    Values {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
}

/// What a file says; what a preset says has the same keys.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    name: Option<String>,
    scenario: Option<ScenarioName>,
    seed: Option<u64>,
    subjects: Option<Vec<SubjectKind>>,
    processors: Option<Vec<NonZeroU32>>,
    mpl: Option<Levels>,
    clients: Option<NonZeroU32>,
    control: Option<AlgorithmName>,
    ctl: Option<Period>,
    warmup: Option<Period>,
    pause: Option<Period>,
    connect: Option<Period>,
    interval: Option<Period>,
    repetitions: Option<NonZeroU32>,
    order: Option<Order>,
    transactions: Option<bool>,
    workload: Option<WorkloadSpec>,
    factors: Option<FactorKeys>,
    subject: BTreeMap<SubjectKind, SubjectKeys>,
    preset: BTreeMap<String, Keys>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ScenarioName {
    Characterise,
    Thrash,
}

/// What the thrash scenario varies; the study's values where nothing is said.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FactorKeys {
    rows: Option<NonZeroU32>,
    primary_key: Option<Vec<bool>>,
    read_sf: Option<Vec<Percent>>,
    update_sf: Option<Vec<Percent>>,
    rose: Option<Vec<Percent>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SubjectKeys {
    settings: BTreeMap<String, String>,
    isolation: Option<String>,
    url: Option<String>,
}

/// A number of levels, one by one or as a series.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "mpl must be a list of numbers above 0, { from, to, step } or \
                               { from, to, factor }"
)]
enum Levels {
    List(Vec<NonZeroU32>),
    Steps(Steps),
    Factors(Factors),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Steps {
    from: NonZeroU32,
    to: NonZeroU32,
    step: NonZeroU32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Factors {
    from: NonZeroU32,
    to: NonZeroU32,
    factor: NonZeroU32,
}

impl Levels {
    /// The numbers, rising.
    fn numbers(&self) -> Vec<u32> {
        let mut numbers = match *self {
            Levels::List(ref list) => list.iter().map(|level| level.get()).collect(),
            Levels::Steps(Steps { from, to, step }) => (from.get()..=to.get())
                .step_by(usize::try_from(step.get()).unwrap_or(usize::MAX))
                .collect(),
            Levels::Factors(Factors { from, to, factor }) => {
                let next = |level: &u32| level.checked_mul(factor.get().max(2));
                let series = std::iter::successors(Some(from.get()), next);
                series.take_while(|&level| level <= to.get()).collect::<Vec<u32>>()
            }
        };
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

/// A length of time in words, such as `2s` or `500ms`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Period(Duration);

impl TryFrom<String> for Period {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        humantime::parse_duration(&text)
            .map(Period)
            .map_err(|_| format!("`{text}` is no length of time; write 120s, 500ms or 2min"))
    }
}

/// A share in per cent, above 0 and at most 100.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
struct Percent(f64);

impl TryFrom<f64> for Percent {
    type Error = String;

    fn try_from(percent: f64) -> Result<Self, String> {
        let is_share = percent > 0.0 && percent <= 100.0;
        is_share
            .then_some(Percent(percent))
            .ok_or_else(|| format!("{percent} is no share in per cent: above 0 and at most 100"))
    }
}

/// A controller's name, or `fixed:N`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct AlgorithmName(Algorithm);

impl TryFrom<String> for AlgorithmName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(AlgorithmName).map_err(|error| format!("{error}"))
    }
}

impl Keys {
    /// These keys, but for those that the preset names.
    fn overridden_by(self, preset: Keys) -> Keys {
        let mut subject = self.subject;
        subject.extend(preset.subject);
        Keys {
            name: preset.name.or(self.name),
            scenario: preset.scenario.or(self.scenario),
            seed: preset.seed.or(self.seed),
            subjects: preset.subjects.or(self.subjects),
            processors: preset.processors.or(self.processors),
            mpl: preset.mpl.or(self.mpl),
            clients: preset.clients.or(self.clients),
            control: preset.control.or(self.control),
            ctl: preset.ctl.or(self.ctl),
            warmup: preset.warmup.or(self.warmup),
            pause: preset.pause.or(self.pause),
            connect: preset.connect.or(self.connect),
            interval: preset.interval.or(self.interval),
            repetitions: preset.repetitions.or(self.repetitions),
            order: preset.order.or(self.order),
            transactions: preset.transactions.or(self.transactions),
            workload: preset.workload.or(self.workload),
            factors: preset.factors.or(self.factors),
            subject,
            preset: BTreeMap::new(),
        }
    }
}

/// What of a file is wanted.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// One of its presets.
    pub preset: Option<String>,
    /// Other subjects than the file names.
    pub subjects: Option<Vec<SubjectKind>>,
}

/// Reads an experiment file.
///
/// # Errors
/// See [`FileError`].
pub fn read(path: &Path, choice: &Choice) -> Result<Experiment, FileError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    parse(path, &text, choice)
}

/// As [`read`], of text that is already there; `path` is for messages.
///
/// # Errors
/// See [`FileError`].
pub fn parse(path: &Path, text: &str, choice: &Choice) -> Result<Experiment, FileError> {
    let form = |error: toml::de::Error| FileError::Form {
        path: path.to_owned(),
        reason: error.to_string().trim_end().to_owned(),
    };
    let mut keys: Keys = toml::from_str(text).map_err(form)?;
    let presets = std::mem::take(&mut keys.preset);
    if let Some(name) = &choice.preset {
        let Some(chosen) = presets.get(name) else {
            let known: Vec<&str> = presets.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(FileError::Preset { path: path.to_owned(), name: name.clone(), known });
        };
        keys = keys.overridden_by(chosen.clone());
    }
    keys.subjects = choice.subjects.clone().or(keys.subjects);
    let mut experiment = build(keys).map_err(|complaint| FileError::Values {
        path: path.to_owned(),
        reason: with_line(text, choice.preset.as_deref(), &complaint),
    })?;
    text.clone_into(&mut experiment.text);
    experiment.preset.clone_from(&choice.preset);
    Ok(experiment)
}

fn build(keys: Keys) -> Result<Experiment, String> {
    let missing = |key: &str| format!("the key `{key}` is missing");
    let mpls = keys.mpl.as_ref().ok_or_else(|| missing("mpl"))?.numbers();
    if mpls.is_empty() {
        return Err("`mpl` names no level: `from` is above `to`, or the list is empty".to_owned());
    }
    let ctl = keys.ctl.ok_or_else(|| missing("ctl"))?.0;
    let or = |period: Option<Period>, otherwise: u64| {
        period.map_or(Duration::from_secs(otherwise), |period| period.0)
    };
    let interval = or(keys.interval, 1);
    if ctl.is_zero() || interval.is_zero() {
        return Err("`ctl` and `interval` must be longer than nothing".to_owned());
    }
    let kinds = keys.subjects.clone().ok_or_else(|| missing("subjects"))?;
    if kinds.is_empty() {
        return Err("`subjects` is empty; name at least one".to_owned());
    }
    let subjects: Vec<SubjectSpec> =
        kinds.into_iter().map(|kind| subject(kind, &keys.subject)).collect();
    subjects.iter().try_for_each(SubjectSpec::validate)?;
    Ok(Experiment {
        name: keys.name.clone().ok_or_else(|| missing("name"))?,
        scenario: scenario(&keys)?,
        seed: keys.seed.unwrap_or(1),
        subjects,
        processors: keys.processors.map(|list| list.iter().map(|count| count.get()).collect()),
        admission: admission(keys.clients, keys.control, &mpls)?,
        mpls,
        ctl,
        warmup: or(keys.warmup, 1),
        pause: or(keys.pause, 0),
        connect: or(keys.connect, 60),
        interval,
        repetitions: keys.repetitions.map_or(1, NonZeroU32::get),
        order: keys.order.unwrap_or(Order::Random),
        transactions: keys.transactions.unwrap_or(false),
        text: String::new(),
        preset: None,
    })
}

fn scenario(keys: &Keys) -> Result<Scenario, String> {
    match keys.scenario {
        None => Err("the key `scenario` is missing".to_owned()),
        Some(ScenarioName::Characterise) => {
            if keys.factors.is_some() {
                return Err("`factors` belongs to the scenario thrash".to_owned());
            }
            let workload = keys.workload.clone();
            let workload = workload.ok_or("the table `workload` is missing".to_owned())?;
            workload.build().map_err(|error| error.to_string())?;
            Ok(Scenario::Characterise { workload })
        }
        Some(ScenarioName::Thrash) => {
            if keys.workload.is_some() {
                return Err("the scenario thrash has its own workload; leave `workload` out, and \
                            use `factors` to vary it"
                    .to_owned());
            }
            thrash(keys.factors.clone().unwrap_or_default())
        }
    }
}

fn thrash(keys: FactorKeys) -> Result<Scenario, String> {
    let or = |list: Option<Vec<Percent>>, otherwise: &[f64]| -> Vec<f64> {
        list.map_or_else(
            || otherwise.to_vec(),
            |list| list.iter().map(|percent| percent.0).collect(),
        )
    };
    let scenario = Scenario::Thrash {
        rows: keys.rows.map_or(1_000_000, NonZeroU32::get),
        primary_key: keys.primary_key.unwrap_or(vec![true, false]),
        read_sf: or(keys.read_sf, &[0.01, 0.1, 1.0]),
        update_sf: or(keys.update_sf, &[0.25, 0.5, 0.75, 1.0]),
        rose: or(keys.rose, &[25.0, 50.0, 75.0, 100.0]),
    };
    let mut workloads = scenario.batchsets(true).into_iter();
    workloads.try_for_each(|spec| spec.build().map(drop).map_err(|error| error.to_string()))?;
    if scenario.batchsets(true).is_empty() || scenario.primary_keys().is_empty() {
        return Err("`factors` leaves no batchset; each list needs a value".to_owned());
    }
    Ok(scenario)
}

fn subject(kind: SubjectKind, tables: &BTreeMap<SubjectKind, SubjectKeys>) -> SubjectSpec {
    let keys = tables.get(&kind).cloned().unwrap_or_default();
    SubjectSpec { kind, settings: keys.settings, isolation: keys.isolation, url: keys.url }
}

fn admission(
    clients: Option<NonZeroU32>,
    control: Option<AlgorithmName>,
    mpls: &[u32],
) -> Result<Admission, String> {
    match (clients, control) {
        (None, None) => Ok(Admission::Clients),
        (None, Some(_)) => Err("`control` needs `clients`: how many there are".to_owned()),
        (Some(clients), Some(AlgorithmName(control))) => {
            Ok(Admission::Control { clients: clients.get(), control })
        }
        (Some(clients), None) if mpls.iter().any(|&mpl| mpl > clients.get()) => {
            Err(format!("`mpl` goes above the {clients} `clients`, who could not fill it"))
        }
        (Some(clients), None) => Ok(Admission::Limit { clients: clients.get() }),
    }
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
        let long = of(QUICK, Some("long")).unwrap();
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
            ("[workload]", "control = \"vegas\"\n[workload]", "needs `clients`"),
            ("[workload]", "control = \"magic\"\n[workload]", "magic"),
            (
                "[workload]",
                "[subject.embedded]\nsettings = { pages = \"1\" }\n[workload]",
                "no setting",
            ),
            ("ctl = \"2min\"", "ctl = \"2min\"\nspeed = 3", "line 14"),
            ("scale = 10\n", "scale = 10\n[factors]\nrows = 5\n", "belongs to"),
        ] {
            let text = QUICK.replace(from, to);
            assert_ne!(text, QUICK, "{from}");
            let error = of(&text, None).unwrap_err();
            assert!(error.starts_with("e.toml: ") && error.contains(expected), "{to}: {error}");
        }
    }
}
