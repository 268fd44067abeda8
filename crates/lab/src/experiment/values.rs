//! The values of an experiment file that several tables share: levels, times, shares, sizes.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_control::{Algorithm, AlgorithmError};

/// What is no value of a key.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ValueError {
    #[error("`{0}` is more than a year")]
    LongPeriod(String),
    #[error("`{0}` is no length of time; write 120s, 500ms or 2min")]
    Period(String),
    #[error("{0} is no share in per cent: above 0 and at most 100")]
    Percent(f64),
    #[error("`{0}` is no size; write 512KB, 16MB or 1GB")]
    Bytes(String),
}

/// A number of levels, one by one or as a series.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "mpl must be a list of numbers above 0, { from, to, step } or \
                               { from, to, factor }"
)]
pub(super) enum Levels {
    List(Vec<NonZeroU32>),
    Steps(StepSeries),
    Factors(FactorSeries),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepSeries {
    from: NonZeroU32,
    to: NonZeroU32,
    step: NonZeroU32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FactorSeries {
    from: NonZeroU32,
    to: NonZeroU32,
    factor: NonZeroU32,
}

/// The most levels of an experiment.
pub(super) const LEVELS_MAX: usize = 10_000;

impl Levels {
    /// The numbers, rising; of a series at most one above [`LEVELS_MAX`].
    pub(super) fn numbers(&self) -> Vec<u32> {
        let mut numbers = match *self {
            Levels::List(ref list) => list.iter().map(|level| level.get()).collect(),
            Levels::Steps(StepSeries { from, to, step }) => {
                (from.get()..=to.get()).step_by(step.get() as usize).take(LEVELS_MAX + 1).collect()
            }
            Levels::Factors(FactorSeries { from, to, factor }) => {
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

/// The longest time that a key may say: a year.
const PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A length of time in words, such as `2s` or `500ms`; at most [`PERIOD_MAX`].
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Period(pub(super) Duration);

impl TryFrom<String> for Period {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        match humantime::parse_duration(&text) {
            Ok(period) if period <= PERIOD_MAX => Ok(Period(period)),
            Ok(_) => Err(ValueError::LongPeriod(text)),
            Err(_) => Err(ValueError::Period(text)),
        }
    }
}

/// A share in per cent, above 0 and at most 100.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct Percent(pub(super) f64);

impl TryFrom<f64> for Percent {
    type Error = ValueError;

    fn try_from(percent: f64) -> Result<Self, ValueError> {
        let is_share = percent > 0.0 && percent <= 100.0;
        is_share.then_some(Percent(percent)).ok_or(ValueError::Percent(percent))
    }
}

/// A controller's name, or `fixed:N`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct AlgorithmName(pub(super) Algorithm);

impl TryFrom<String> for AlgorithmName {
    type Error = AlgorithmError;

    fn try_from(text: String) -> Result<Self, AlgorithmError> {
        text.parse().map(AlgorithmName)
    }
}

/// An amount of memory in words, such as `16MB`; the units are powers of 1024, as in PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bytes(u64);

const UNITS: [(&str, u64); 3] = [("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)];

impl Bytes {
    pub fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<String> for Bytes {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        let parsed = UNITS.into_iter().find_map(|(unit, bytes)| {
            let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            number.checked_mul(bytes).filter(|&bytes| bytes > 0)
        });
        parsed.map(Bytes).ok_or(ValueError::Bytes(text))
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> String {
        bytes.to_string()
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |&(_, bytes): &(&str, u64)| self.0.is_multiple_of(bytes);
        let (unit, bytes) = UNITS.into_iter().find(fits).unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / bytes)
    }
}

/// An algorithm as it is written, inside what is stored.
pub(super) mod written {
    use serde::{Deserialize, Deserializer, Serializer};
    use tidegate_control::Algorithm;

    pub(crate) fn serialize<S: Serializer>(
        algorithm: &Algorithm,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(algorithm)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Algorithm, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_alike() {
        for (text, bytes) in [("512KB", 512 << 10), ("16MB", 16 << 20), ("3GB", 3 << 30)] {
            let size = Bytes::try_from(text.to_owned()).unwrap();
            assert_eq!((size.get(), size.to_string().as_str()), (bytes, text));
        }
        for text in ["", "16", "16 mb", "0MB", "-1MB", "1.5GB", "99999999999999GB"] {
            assert!(Bytes::try_from(text.to_owned()).unwrap_err().to_string().contains(text));
        }
    }
}
