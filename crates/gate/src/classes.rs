//! The classes of a gate and who may hold how many permits: the configuration, made once.
//!
//! A class is named by the caller for each transaction. Between classes the [`Policy`] decides;
//! inside a class its [`WaitingOrder`]. A *quota* bounds the permits of transactions that belong
//! together for another reason, such as those of one user or of one database: a transaction names
//! up to [`QUOTAS_MAX`] of them. The gate does not know what a quota stands for.
//!
//! Who goes next, of those for whom there is a permit within the maxima of their class and quotas:
//!
//! 1. transactions of a class or quota that holds fewer permits than its minimum, while all minima
//!    together are below the limit, so that one permit at least is left for the others;
//! 2. transactions that have waited for longer than the ageing time of their class, the one that
//!    has waited longest first;
//! 3. the others, by the policy: [`Policy::Strict`] takes the first class of the list that has one,
//!    [`Policy::Weights`] the class whose use of permits is furthest below its share.

use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// Names a class of a gate: its place in [`Classes`], from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(u8);

impl ClassId {
    /// Returns the place of the class in [`Classes`], from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the class at a place from 0; `None` above [`CLASSES_MAX`].
    #[must_use]
    pub fn of_index(index: usize) -> Option<ClassId> {
        let id = u8::try_from(index).ok()?;
        (index < CLASSES_MAX).then_some(ClassId(id))
    }
}

/// The two classes of [`Classes::default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Goes before every transaction of the normal class.
    High,
    /// The class of everything that is not marked otherwise.
    Normal,
}

impl Class {
    /// All classes, highest first.
    pub const ALL: [Class; 2] = [Class::High, Class::Normal];

    /// Position in [`Class::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the class's name in logs, metrics and configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Class::High => "high",
            Class::Normal => "normal",
        }
    }
}

impl From<Class> for ClassId {
    fn from(class: Class) -> ClassId {
        ClassId(class as u8)
    }
}

/// The name of a class: 1 to 31 lower-case letters, digits, `_` and `-`, the first a letter.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClassName {
    bytes: [u8; ClassName::LENGTH_MAX],
    length: u8,
}

impl ClassName {
    const LENGTH_MAX: usize = 31;

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = &self.bytes[..usize::from(self.length)];
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl FromStr for ClassName {
    type Err = ClassesError;

    fn from_str(text: &str) -> Result<ClassName, ClassesError> {
        let is_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        let is_valid = text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(is_name)
            && text.len() <= ClassName::LENGTH_MAX;
        let (true, Ok(length)) = (is_valid, u8::try_from(text.len())) else {
            return Err(ClassesError::Name(text.to_owned()));
        };
        let mut bytes = [0; ClassName::LENGTH_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(ClassName { bytes, length })
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Debug for ClassName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

/// Which class goes next when several wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The first of the list.
    #[default]
    Strict,
    /// The one whose use of permits over time is furthest below its share. The share is that of its
    /// weight among the classes that wait; a permit that is held for longer counts for more.
    Weights,
}

impl FromStr for Policy {
    type Err = ClassesError;

    fn from_str(text: &str) -> Result<Policy, ClassesError> {
        match text {
            "strict" => Ok(Policy::Strict),
            "weights" => Ok(Policy::Weights),
            _ => Err(ClassesError::word(text, "strict or weights")),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Policy::Strict => "strict",
            Policy::Weights => "weights",
        })
    }
}

/// Which transaction of a class goes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitingOrder {
    /// The one that has waited longest.
    #[default]
    Fifo,
    /// The one whose deadline ([`finish_by`](crate::Request::finish_by)) is nearest; those without
    /// one come last.
    EarliestDeadline,
    /// The one that is expected to be done soonest ([`expected`](crate::Request::expected)); those
    /// of which nothing is known count as typical of their class.
    ShortestExpected,
}

impl FromStr for WaitingOrder {
    type Err = ClassesError;

    fn from_str(text: &str) -> Result<WaitingOrder, ClassesError> {
        match text {
            "fifo" => Ok(WaitingOrder::Fifo),
            "earliest-deadline" => Ok(WaitingOrder::EarliestDeadline),
            "shortest-expected" => Ok(WaitingOrder::ShortestExpected),
            _ => Err(ClassesError::word(text, "fifo, earliest-deadline or shortest-expected")),
        }
    }
}

impl fmt::Display for WaitingOrder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            WaitingOrder::Fifo => "fifo",
            WaitingOrder::EarliestDeadline => "earliest-deadline",
            WaitingOrder::ShortestExpected => "shortest-expected",
        })
    }
}

/// How many permits may be held together by those to whom the bounds apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermitBounds {
    /// While fewer are held, those who wait go before all others.
    pub min: u32,
    /// No more are granted while as many are held; `None` is no bound.
    pub max: Option<NonZeroU32>,
}

/// One class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassSettings {
    /// Its name, which no other class has.
    pub name: ClassName,
    /// Its share of permits with [`Policy::Weights`], in relation to those of the others; at most
    /// [`WEIGHT_MAX`].
    pub weight: NonZeroU32,
    /// After this time in the queue a transaction goes before all that have not waited for as long;
    /// `None` never.
    pub ageing: Option<Duration>,
    /// Permits that its transactions hold.
    pub permits: PermitBounds,
    /// Its transactions that may wait at once; `None` as many as the gate has room for.
    pub waiting_max: Option<u32>,
    /// Which of its transactions goes next.
    pub order: WaitingOrder,
}

impl ClassSettings {
    /// Returns a class with weight 1, without bounds and without ageing, in order of arrival.
    #[must_use]
    pub fn new(name: ClassName) -> ClassSettings {
        ClassSettings {
            name,
            weight: NonZeroU32::MIN,
            ageing: None,
            permits: PermitBounds::default(),
            waiting_max: None,
            order: WaitingOrder::Fifo,
        }
    }
}

/// Names a quota: its place among those of [`Classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaId(NonZeroU16);

impl QuotaId {
    /// Returns the place of the quota, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The quotas that a transaction names.
pub type Quotas = [Option<QuotaId>; QUOTAS_MAX];

/// A transaction may name this many quotas.
pub const QUOTAS_MAX: usize = 2;

/// A gate may have this many classes.
pub const CLASSES_MAX: usize = 64;

/// The highest weight.
pub const WEIGHT_MAX: u32 = 10_000;

/// Classes that a gate cannot have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClassesError {
    /// There is none.
    #[error("there is no class: configure at least one")]
    NoClass,
    /// There are more than [`CLASSES_MAX`].
    #[error("{0} classes are too many: use at most {CLASSES_MAX}")]
    TooMany(usize),
    /// There are more quotas than can be numbered.
    #[error("{0} quotas are too many: use at most 65,535")]
    TooManyQuotas(usize),
    /// It is not the name of a class.
    #[error(
        "{0:?} is no name of a class: use 1 to 31 lower-case letters, digits, `_` and `-`, the \
         first a letter"
    )]
    Name(String),
    /// Two classes have one name.
    #[error("two classes are called {0}: give each a name of its own")]
    Duplicate(ClassName),
    /// A weight is above [`WEIGHT_MAX`].
    #[error("the weight {weight} of class {class} is too high: use at most {WEIGHT_MAX}")]
    Weight {
        /// The class or quota that it was set for.
        class: ClassName,
        /// The weight.
        weight: NonZeroU32,
    },
    /// A minimum of permits is above the maximum.
    #[error("{of}: the minimum of {min} permits is above the maximum of {max}")]
    Bounds {
        /// The class or quota that it was set for.
        of: String,
        /// The minimum.
        min: u32,
        /// The maximum.
        max: NonZeroU32,
    },
    /// A word that is not among the allowed ones.
    #[error("{word:?} is not {allowed}")]
    Word {
        /// The word.
        word: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Classes were to be replaced by others.
    #[error(
        "a gate keeps its classes and its quotas: make another one to add, remove or reorder them"
    )]
    Others,
}

impl ClassesError {
    fn word(word: &str, allowed: &'static str) -> ClassesError {
        ClassesError::Word { word: word.to_owned(), allowed }
    }
}

/// The classes and quotas of a gate, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    policy: Policy,
    of: Vec<ClassSettings>,
    quotas: Vec<PermitBounds>,
    quota_names: Vec<String>,
    /// The sum of all minima.
    minima: u64,
}

impl Classes {
    /// Checks classes, in their order, and quotas, each with a name for an error.
    ///
    /// # Errors
    /// See [`ClassesError`].
    pub fn new(
        policy: Policy,
        classes: Vec<ClassSettings>,
        quotas: Vec<(String, PermitBounds)>,
    ) -> Result<Classes, ClassesError> {
        if classes.is_empty() {
            return Err(ClassesError::NoClass);
        }
        if classes.len() > CLASSES_MAX {
            return Err(ClassesError::TooMany(classes.len()));
        }
        if quotas.len() > usize::from(u16::MAX) {
            return Err(ClassesError::TooManyQuotas(quotas.len()));
        }
        for (index, class) in classes.iter().enumerate() {
            if classes[..index].iter().any(|other| other.name == class.name) {
                return Err(ClassesError::Duplicate(class.name));
            }
            if class.weight.get() > WEIGHT_MAX {
                return Err(ClassesError::Weight { class: class.name, weight: class.weight });
            }
        }
        let of_class = |class: &ClassSettings| (format!("class {}", class.name), class.permits);
        let all = classes.iter().map(of_class).chain(quotas.iter().cloned());
        let mut minima = 0;
        for (of, PermitBounds { min, max }) in all {
            if let Some(max) = max.filter(|max| max.get() < min) {
                return Err(ClassesError::Bounds { of, min, max });
            }
            minima += u64::from(min);
        }
        let (quota_names, quotas) = quotas.into_iter().unzip();
        Ok(Classes { policy, of: classes, quotas, quota_names, minima })
    }

    /// Returns which class goes next when several wait.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the number of classes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.of.len()
    }

    /// Returns the classes in their order.
    pub fn iter(&self) -> impl Iterator<Item = (ClassId, &ClassSettings)> {
        let id = |index| ClassId::of_index(index);
        self.of.iter().enumerate().filter_map(move |(index, it)| Some((id(index)?, it)))
    }

    /// Returns the class of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<ClassId> {
        self.iter().find(|(_, class)| class.name.as_str() == name).map(|(id, _)| id)
    }

    /// Returns a class.
    ///
    /// # Panics
    /// It is a class of a gate with more classes.
    #[must_use]
    pub fn class(&self, id: ClassId) -> &ClassSettings {
        &self.of[id.index()]
    }

    /// Returns the quota at a place of the list that the classes were made with.
    #[must_use]
    pub fn quota(&self, index: usize) -> Option<QuotaId> {
        let id = NonZeroU16::new(u16::try_from(index + 1).ok()?)?;
        (index < self.quotas.len()).then_some(QuotaId(id))
    }

    pub(crate) fn quotas(&self) -> &[PermitBounds] {
        &self.quotas
    }

    /// Returns the sum of all minima.
    pub(crate) fn minima(&self) -> u64 {
        self.minima
    }

    /// Returns whether a gate with these classes may go on with others: their settings may differ.
    #[must_use]
    pub fn may_become(&self, other: &Classes) -> bool {
        let names = |classes: &Classes| classes.of.iter().map(|it| it.name).collect();
        let (ours, theirs): (Vec<ClassName>, Vec<ClassName>) = (names(self), names(other));
        ours == theirs && self.quota_names == other.quota_names
    }
}

impl Default for Classes {
    /// Returns the classes of [`Class`], in strict order and without ageing.
    fn default() -> Classes {
        let name = |class: Class| class.name().parse().expect("its name is a class's name");
        let of = Class::ALL.into_iter().map(|class| ClassSettings::new(name(class))).collect();
        let (quotas, quota_names) = (Vec::new(), Vec::new());
        Classes { policy: Policy::Strict, of, quotas, quota_names, minima: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> ClassSettings {
        ClassSettings::new(name.parse().expect(name))
    }

    #[test]
    fn the_default_classes_are_those_of_the_enumeration() {
        let classes = Classes::default();
        assert_eq!(classes.count(), Class::ALL.len());
        for class in Class::ALL {
            assert_eq!(classes.find(class.name()), Some(class.into()));
            assert_eq!(classes.class(class.into()).name.as_str(), class.name());
            assert_eq!(ClassId::from(class).index(), class.index());
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_do() {
        for name in ["", "High", "1a", "a b", "a'b", &"a".repeat(32)] {
            assert!(name.parse::<ClassName>().is_err(), "{name}");
        }
        let check = |classes, quotas| Classes::new(Policy::Weights, classes, quotas).unwrap_err();
        let bounds = |min, max| PermitBounds { min, max: NonZeroU32::new(max) };
        let narrow = ClassSettings { permits: bounds(3, 2), ..named("a") };
        let heavy = ClassSettings { weight: NonZeroU32::MAX, ..named("a") };
        let user = vec![("user ann".to_owned(), bounds(2, 1))];
        for (error, says) in [
            (check(Vec::new(), Vec::new()), "at least one"),
            (check(vec![named("a"), named("a")], Vec::new()), "name of its own"),
            (check(vec![narrow], Vec::new()), "class a: the minimum of 3"),
            (check(vec![named("a")], user), "user ann: the minimum of 2"),
            (check(vec![heavy], Vec::new()), "at most 10000"),
            (check(vec![named("a"); 65], Vec::new()), "at most 64"),
        ] {
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
