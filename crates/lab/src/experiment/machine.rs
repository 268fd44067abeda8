//! The section `[machine]`: what a machine in virtual time consists of. Each part is a factor.
//!
//! # Mechanism
//! A key has a value or a list of values. Each combination of them is a *configuration*, and each
//! configuration of the machine a run of the experiment. The values of a configuration are written
//! into the settings of the run's subject, under names that begin with `machine.`
//! ([`MACHINE`]): there the executor reads them, and the store, exports and messages have them.
//! A file says them in this section only.
//!
//! The number of processors is not among the settings: a run has it already, whatever its subject.
//!
//! # Example
//! `processors = [1, 2]` and `data_disks = [1, 4]` are four configurations. `data_disk = "hdd"`
//! beside them makes no more, and is written into all four.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use serde::Deserialize;
use tidegate_subject::embedded::{MACHINE, MachineOptions, PARTS};
use tidegate_subject::settings::{SettingError, Settings};

use super::complaint::Complaint;
use super::{Subject, SubjectKind};

/// The section as it stands in a file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MachineKeys {
    processors: Option<Values>,
    quantum: Option<Values>,
    data_disks: Option<Values>,
    stripe_bytes: Option<Values>,
    data_disk: Option<Values>,
    log_disk: Option<Values>,
    network: Option<Values>,
    clients: Option<Values>,
}

/// A value, or a list of values.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a key of `machine` has a number, a text, or a list of either")]
enum Values {
    One(Scalar),
    List(Vec<Scalar>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Scalar {
    Number(i64),
    Text(String),
}

impl Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Number(number) => number.fmt(f),
            Scalar::Text(text) => f.write_str(text),
        }
    }
}

/// The machines of an experiment: all combinations of these values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFactors {
    /// The numbers of processors, at least one of them.
    processors: Vec<u32>,
    /// Whether the file says the number of processors.
    has_processors: bool,
    /// The parts that the file names, in the order of [`PARTS`], with their values.
    parts: Vec<(&'static str, Vec<String>)>,
}

impl MachineKeys {
    /// Returns the machines that the section describes.
    ///
    /// # Errors
    /// A value does not fit its key, is there twice, or the list is empty.
    pub(super) fn factors(&self) -> Result<MachineFactors, Complaint> {
        let values = [
            &self.quantum,
            &self.data_disks,
            &self.stripe_bytes,
            &self.data_disk,
            &self.log_disk,
            &self.network,
            &self.clients,
        ];
        let mut parts = Vec::new();
        for (part, values) in PARTS.into_iter().zip(values) {
            if let Some(values) = values {
                let values = texts(part, values)?;
                values.iter().try_for_each(|value| validate(part, value))?;
                parts.push((part, values));
            }
        }
        let processors = self.processors.as_ref().map(processors).transpose()?;
        Ok(MachineFactors {
            has_processors: processors.is_some(),
            processors: processors.unwrap_or_else(|| vec![1]),
            parts,
        })
    }
}

/// Returns the values of a key as text.
fn texts(key: &str, values: &Values) -> Result<Vec<String>, Complaint> {
    let texts: Vec<String> = match values {
        Values::One(value) => vec![value.to_string()],
        Values::List(values) => values.iter().map(Scalar::to_string).collect(),
    };
    let about = |text: String| Err(Complaint::about_key(&format!("{MACHINE}{key}"), text));
    if texts.is_empty() {
        return about(" is empty; leave it out, or name a value".to_owned());
    }
    let mut seen = BTreeSet::new();
    match texts.iter().find(|&text| !seen.insert(text)) {
        None => Ok(texts),
        Some(text) => about(format!(" names `{text}` twice")),
    }
}

fn processors(values: &Values) -> Result<Vec<u32>, Complaint> {
    let number = |text: String| {
        text.parse().ok().filter(|&count: &u32| count >= 1).ok_or_else(|| {
            let text = format!(": `{text}` is no number of processors; give at least 1");
            Complaint::about_key("machine.processors", text)
        })
    };
    texts("processors", values)?.into_iter().map(number).collect()
}

/// Checks a value of a part.
fn validate(part: &str, value: &str) -> Result<(), Complaint> {
    let named = BTreeMap::from([(format!("{MACHINE}{part}"), value.to_owned())]);
    let options = MachineOptions::new(&Settings { named, ..Settings::default() }, 1);
    options.map(drop).map_err(|error: SettingError| {
        Complaint::about_key(&format!("{MACHINE}{part}"), format!(": {error}"))
    })
}

impl MachineFactors {
    /// Returns whether the file says the number of processors.
    pub(super) fn has_processors(&self) -> bool {
        self.has_processors
    }

    /// Returns how many configurations there are, or `u64::MAX` if that is more.
    pub(super) fn count(&self) -> u64 {
        let lists = self.parts.iter().map(|(_, values)| values.len());
        let lengths = lists.chain([self.processors.len()]);
        lengths.fold(1, |product: u64, length| product.saturating_mul(length as u64))
    }

    /// Returns a subject in every configuration, each with its number of processors: the numbers
    /// of processors first, then the parts in the order of [`PARTS`], the last changing fastest.
    pub(super) fn configurations(&self, subject: &Subject) -> Vec<(Subject, u32)> {
        let with_processors = |&count: &u32| (subject.clone(), count);
        let mut all: Vec<(Subject, u32)> = self.processors.iter().map(with_processors).collect();
        for (part, values) in &self.parts {
            let with_each = |(subject, count): (Subject, u32)| {
                values.iter().map(move |value| {
                    let mut subject = subject.clone();
                    subject.settings.named.insert(format!("{MACHINE}{part}"), value.clone());
                    (subject, count)
                })
            };
            all = all.into_iter().flat_map(with_each).collect();
        }
        all
    }
}

/// Refuses the machine's parts among a subject's own settings: the section has them.
pub(super) fn refuse_parts(kind: SubjectKind, settings: &Settings) -> Result<(), Complaint> {
    match settings.named.keys().find(|name| name.starts_with(MACHINE)) {
        None => Ok(()),
        Some(name) => {
            let text = format!(": `{name}` is a key of the file, and no setting");
            Err(Complaint::about_subject(kind, "settings", &text))
        }
    }
}

/// Returns the machine's parts among a subject's settings, by their names in the section.
pub(crate) fn parts(named: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    let of_machine = named.iter().filter_map(|(name, value)| {
        let part = name.strip_prefix(MACHINE)?;
        Some((part, value.as_str()))
    });
    of_machine.collect()
}

/// Returns the machine's parts among a subject's settings in words, each behind a comma.
pub(crate) fn described(named: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (part, value) in parts(named) {
        text.extend([", ", part, " ", value]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(text: &str) -> Result<MachineFactors, String> {
        let keys: MachineKeys = toml::from_str(text).map_err(|error| error.to_string())?;
        keys.factors().map_err(|complaint| complaint.to_string())
    }

    #[test]
    fn each_combination_is_a_configuration() {
        let text = "processors = [1, 4]\nclients = \"on\"\ndata_disks = [1, 2, 8]\n";
        let found = factors(text).unwrap();
        assert_eq!(found.count(), 6);
        let all = found.configurations(&SubjectKind::Machine.into());
        let described: Vec<(u32, String)> =
            all.iter().map(|(one, count)| (*count, described(&one.settings.named))).collect();
        let expected = [(1, "1"), (1, "2"), (1, "8"), (4, "1"), (4, "2"), (4, "8")]
            .map(|(count, disks)| (count, format!(", clients on, data_disks {disks}")));
        assert_eq!(described, expected);
        let plain = factors("").unwrap().configurations(&SubjectKind::Machine.into());
        assert_eq!(plain, [(SubjectKind::Machine.into(), 1)]);
    }

    #[test]
    fn what_is_no_machine_is_refused_by_its_key() {
        for (text, expected) in [
            ("data_disks = []", "`machine.data_disks` is empty"),
            ("data_disks = [2, 1, 2]", "`machine.data_disks` names `2` twice"),
            ("data_disks = -1", "`machine.data_disks`: `-1` is no data_disks; give a whole"),
            ("data_disk = [\"hdd\", \"tape\"]", "`machine.data_disk`: `tape` is no data_disk"),
            ("quantum = \"soon\"", "`machine.quantum`: `soon` is no quantum; give none, or a"),
            ("network = 3", "`machine.network`: `3` is no network"),
            ("clients = \"away\"", "`machine.clients`: `away` is no clients; give beside, on"),
            ("processors = 0", "`machine.processors`: `0` is no number of processors"),
            ("processors = [\"two\"]", "`machine.processors`: `two` is no number"),
            ("log_disk = true", "a key of `machine` has a number, a text, or a list"),
            ("disks = 3", "unknown field `disks`"),
        ] {
            let error = factors(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
