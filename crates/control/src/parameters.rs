//! The parameters of controllers: their names, units, ranges and meanings, and how a value of one
//! is read, kept, written and put into effect.
//!
//! # Mechanism
//! A settings type is declared with its parameters by the macro `settings!`. From that list come
//! the parser, the canonical spelling, the error that names what exists, the output of
//! `tidegate controllers`, and the table in `docs/control.md`.
//!
//! Values are kept as decimal numbers, as they were written: digits and the place of the point.
//! So two algorithms are equal when they are spelled alike, they have an order, and what is
//! written is what was read. The number in effect is the `f64` nearest to the decimal number.
//!
//! # Example
//! `study-hill-climbing:delta=20,c=0.300` gives two parameters of `HillClimbingSettings` values,
//! 20 transactions for its step and 3·10^-1 for its gain. It is written
//! `study-hill-climbing:c=0.3,delta=20`, in the order of the list. What is not given stays as it
//! is in the algorithm of that name.
//!
//! # Limits
//! A value has at most [`PLACES_MAX`] places after the point, and its digits without the point are
//! at most [`DIGITS_MAX`]. A settings type has at most [`PARAMETERS_MAX`] parameters.

use std::fmt;
use std::num::NonZeroU32;

use crate::controller::{Concurrency, Step, whole};
use crate::{Bounds, Mpl};

/// A parameter of an algorithm, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, as in `name=value`.
    pub name: &'static str,
    /// The unit of its values.
    pub unit: &'static str,
    /// The values that are allowed, in words.
    pub values: String,
    /// The value that the algorithm has without it.
    pub default: String,
    /// What it does.
    pub meaning: &'static str,
}

/// What is wrong with the parameters that an algorithm is given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterProblem {
    /// Something other than `name=value`.
    #[error("`{0}` is not of the form name=value")]
    Form(String),
    /// No parameter has this name.
    #[error("there is no parameter `{0}`")]
    Unknown(String),
    /// A parameter is given more than once.
    #[error("`{0}` is given twice")]
    Twice(String),
    /// A value is not among the allowed ones.
    #[error("{name}={value} is not allowed: {values}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// What was written.
        value: String,
        /// What is allowed.
        values: String,
    },
    /// The values exclude each other.
    #[error("{0}")]
    Contradiction(&'static str),
}

/// Settings whose parameters have names.
pub(crate) trait Tunable: Copy + 'static {
    /// Every parameter, in the order in which they are written.
    const FIELDS: &'static [Field<Self>];

    /// Checks what no value alone can show.
    ///
    /// # Errors
    /// What contradicts what.
    fn check(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

/// One parameter of the settings `S`.
pub(crate) struct Field<S> {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) values: Allowed,
    pub(crate) meaning: &'static str,
    pub(crate) get: fn(&S) -> ParameterValue,
    pub(crate) set: fn(&mut S, ParameterValue),
}

/// The values that a parameter may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Allowed {
    /// Decimal numbers from the one to the other.
    Number(f64, f64),
    /// Whole numbers from the one to the other.
    Whole(u32, u32),
    /// So many transactions, or a share of the limit in per cent.
    Step,
    /// Which concurrency of an interval counts.
    Moment,
    /// Whether something is done.
    Switch,
}

/// The longest step, in transactions, and as a share of the limit in per cent.
const STEP_MAX: u32 = 1_000_000;
const STEP_PERCENT_MAX: u32 = 1_000;

/// A value in effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ParameterValue {
    Number(f64),
    /// A share of the limit; 1 is all of it.
    OfLimit(f64),
    Moment(Concurrency),
    Switch(bool),
}

/// Declares the settings of an algorithm, a line for each field:
///
/// ```text
/// /// Documentation.
/// pub struct ExampleSettings;
///
/// /// Where the values come from.
/// pub const PUBLISHED;
///
/// field: f64 = 0.5, "parameter", "unit", Allowed::Number(0.0, 1.0), "meaning";
/// fixed: u32 = 2;
/// ```
///
/// The constant and the values may be left out together, as in settings with several such
/// constants. A field without a parameter stays as it is. With `, checked by |own| ..` after the
/// name the values are checked against each other.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $settings:ident $(, checked by $check:expr)?;
        $(#[$preset_meta:meta])*
        $preset_visibility:vis const $preset:ident;
        $( $(#[$field_meta:meta])* $field:ident: $type:ty = $own:expr
            $(, $name:literal, $unit:literal, $values:expr, $meaning:literal)?; )*
    ) => {
        $crate::parameters::settings! {
            $(#[$meta])*
            $visibility struct $settings $(, checked by $check)?;
            $( $(#[$field_meta])* $field: $type $(, $name, $unit, $values, $meaning)?; )*
        }

        impl $settings {
            $(#[$preset_meta])*
            $preset_visibility const $preset: $settings = $settings { $($field: $own),* };
        }
    };
    (
        $(#[$meta:meta])*
        $visibility:vis struct $settings:ident $(, checked by $check:expr)?;
        $( $(#[$field_meta:meta])* $field:ident: $type:ty
            $(, $name:literal, $unit:literal, $values:expr, $meaning:literal)?; )*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        $visibility struct $settings { $(
            $(#[doc = concat!("The parameter `", $name, "`: ", $meaning, ".")])?
            $(#[$field_meta])*
            $visibility $field: $type,
        )* }

        impl $crate::parameters::Tunable for $settings {
            const FIELDS: &'static [$crate::parameters::Field<Self>] = &[ $( $(
                $crate::parameters::Field {
                    name: $name,
                    unit: $unit,
                    values: $values,
                    meaning: $meaning,
                    get: |own| $crate::parameters::ParameterValue::from(own.$field),
                    set: |own, value| own.$field = value.into(),
                },
            )? )* ];

            $(
                fn check(&self) -> Result<(), &'static str> {
                    let check: fn(&Self) -> Result<(), &'static str> = $check;
                    check(self)
                }
            )?
        }

        const _: () = assert!(
            <$settings as $crate::parameters::Tunable>::FIELDS.len()
                <= $crate::parameters::PARAMETERS_MAX
        );
    };
}
pub(crate) use settings;

/// Parameters that a settings type may have.
pub(crate) const PARAMETERS_MAX: usize = 32;

/// The most that a value's digits make without the point.
const DIGITS_MAX: u32 = 200_000_000;

/// The most places of a value after the point.
const PLACES_MAX: u32 = 9;

/// A value as it is kept: digits, the place of the point, and whether it is in per cent of the
/// limit, in one number. A word is kept as its place in the list of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PackedValue(NonZeroU32);

/// Places and the mark of a share of the limit together have so many values.
const MARKS: u32 = 2 * (PLACES_MAX + 1);
const _: () = assert!(DIGITS_MAX < (u32::MAX - MARKS) / MARKS);

impl PackedValue {
    fn new(digits: u32, places: u32, is_of_limit: bool) -> PackedValue {
        let code = digits * MARKS + 2 * places + u32::from(is_of_limit) + 1;
        PackedValue(NonZeroU32::new(code).expect("1 was added"))
    }

    fn parts(self) -> (u32, u32, bool) {
        let code = self.0.get() - 1;
        (code / MARKS, code % MARKS / 2, code % 2 == 1)
    }

    /// A decimal number without its needless zeros.
    fn read(text: &str) -> Option<PackedValue> {
        let (text, is_of_limit) = text.strip_suffix('%').map_or((text, false), |text| (text, true));
        let (before, after) = text.split_once('.').unwrap_or((text, ""));
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if before.is_empty() || !are_digits(before) || !are_digits(after) {
            return None;
        }
        let after = after.trim_end_matches('0');
        let places = u32::try_from(after.len()).ok().filter(|&places| places <= PLACES_MAX)?;
        let digits: u32 = format!("{before}{after}").parse().ok()?;
        (digits <= DIGITS_MAX).then(|| PackedValue::new(digits, places, is_of_limit))
    }

    fn number(self) -> f64 {
        let (digits, places, _) = self.parts();
        f64::from(digits) / f64::from(10_u32.pow(places))
    }
}

impl Allowed {
    /// Reads a value; nothing if it is not among the allowed ones.
    fn read(self, text: &str) -> Option<PackedValue> {
        let word = |words: [&str; 2]| {
            let (at, _) = (0..).zip(words).find(|&(_, word)| word == text)?;
            Some(PackedValue::new(at, 0, false))
        };
        let kept = match self {
            Allowed::Moment => return word(MOMENTS),
            Allowed::Switch => return word(SWITCH),
            Allowed::Number(..) | Allowed::Whole(..) | Allowed::Step => PackedValue::read(text)?,
        };
        let (digits, places, is_of_limit) = kept.parts();
        let is_whole = places == 0 && !text.contains('.');
        let is_allowed = match self {
            Allowed::Step if is_of_limit => (1..=STEP_PERCENT_MAX).contains(&digits) && is_whole,
            Allowed::Step => (1..=STEP_MAX).contains(&digits) && is_whole,
            Allowed::Whole(least, most) => (least..=most).contains(&digits) && is_whole,
            Allowed::Number(least, most) => (least..=most).contains(&kept.number()),
            Allowed::Moment | Allowed::Switch => unreachable!("words were read above"),
        };
        let may_be_of_limit = matches!(self, Allowed::Step);
        (is_allowed && (may_be_of_limit || !is_of_limit)).then_some(kept)
    }

    fn value(self, kept: PackedValue) -> ParameterValue {
        let (digits, _, is_of_limit) = kept.parts();
        match self {
            Allowed::Moment if digits == 0 => ParameterValue::Moment(Concurrency::Peak),
            Allowed::Moment => ParameterValue::Moment(Concurrency::AtEnd),
            Allowed::Switch => ParameterValue::Switch(digits == 0),
            _ if is_of_limit => ParameterValue::OfLimit(kept.number() / 100.0),
            _ => ParameterValue::Number(kept.number()),
        }
    }
}

const MOMENTS: [&str; 2] = ["peak", "end"];
const SWITCH: [&str; 2] = ["on", "off"];

impl fmt::Display for Allowed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowed::Number(least, most) => write!(formatter, "{least} to {most}"),
            Allowed::Whole(least, most) => write!(formatter, "{least} to {most}"),
            Allowed::Step => {
                write!(formatter, "1 to {STEP_MAX}, or 1% to {STEP_PERCENT_MAX}% of the limit")
            }
            Allowed::Moment => formatter.write_str(&MOMENTS.join(" or ")),
            Allowed::Switch => formatter.write_str(&SWITCH.join(" or ")),
        }
    }
}

impl fmt::Display for ParameterValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ParameterValue::Number(number) => number.fmt(formatter),
            // Rounded to the places that a value may have: 0.07·100 is a little more than 7.
            ParameterValue::OfLimit(share) => {
                write!(formatter, "{}%", (share * 1e11).round() / 1e9)
            }
            ParameterValue::Moment(Concurrency::Peak) => formatter.write_str(MOMENTS[0]),
            ParameterValue::Moment(Concurrency::AtEnd) => formatter.write_str(MOMENTS[1]),
            ParameterValue::Switch(is_on) => formatter.write_str(SWITCH[usize::from(!is_on)]),
        }
    }
}

/// The values that some parameters were given, by their places in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GivenParameters([Option<PackedValue>; PARAMETERS_MAX]);

impl GivenParameters {
    /// Nothing is given.
    pub(crate) const NONE: GivenParameters = GivenParameters([None; PARAMETERS_MAX]);

    /// Reads `name=value,...` for the settings `own`.
    ///
    /// # Errors
    /// What is wrong with the first part that cannot be used.
    pub(crate) fn read<S: Tunable>(
        text: &str,
        own: S,
    ) -> Result<GivenParameters, ParameterProblem> {
        let mut given = GivenParameters::NONE;
        for part in text.split(',') {
            let pair = part.split_once('=');
            let (name, value) = pair.ok_or_else(|| ParameterProblem::Form(part.to_owned()))?;
            let fields = given.0.iter_mut().zip(S::FIELDS);
            let mut named = fields.filter(|(_, field)| field.name == name);
            let Some((kept, field)) = named.next() else {
                return Err(ParameterProblem::Unknown(name.to_owned()));
            };
            let read = field.values.read(value).ok_or_else(|| ParameterProblem::Value {
                name: field.name,
                value: value.to_owned(),
                values: field.values.to_string(),
            })?;
            if kept.replace(read).is_some() {
                return Err(ParameterProblem::Twice(name.to_owned()));
            }
        }
        given.over(own).check().map_err(ParameterProblem::Contradiction)?;
        Ok(given)
    }

    /// The settings `own` with the given values in place of its own.
    pub(crate) fn over<S: Tunable>(&self, own: S) -> S {
        let mut settings = own;
        for (kept, field) in self.0.iter().zip(S::FIELDS) {
            if let Some(kept) = *kept {
                (field.set)(&mut settings, field.values.value(kept));
            }
        }
        settings
    }

    /// The given values in their canonical spelling.
    pub(crate) fn write<S: Tunable>(&self) -> String {
        let given = self.0.iter().zip(S::FIELDS);
        let parts = given.filter_map(|(kept, field)| {
            Some(format!("{}={}", field.name, field.values.value((*kept)?)))
        });
        parts.collect::<Vec<String>>().join(",")
    }
}

/// The parameters of the settings `own`.
pub(crate) fn list<S: Tunable>(own: &S) -> Vec<Parameter> {
    let parameter = |field: &Field<S>| Parameter {
        name: field.name,
        unit: field.unit,
        values: field.values.to_string(),
        default: (field.get)(own).to_string(),
        meaning: field.meaning,
    };
    S::FIELDS.iter().map(parameter).collect()
}

/// What a value is read for: the types of settings' fields.
macro_rules! values_of {
    ($($type:ty: $number:ident => $of:expr, $value:ident => $from:expr;)*) => { $(
        impl From<$type> for ParameterValue {
            fn from($number: $type) -> ParameterValue {
                $of
            }
        }

        impl From<ParameterValue> for $type {
            fn from($value: ParameterValue) -> $type {
                $from
            }
        }
    )* };
}

values_of! {
    f64: number => ParameterValue::Number(number), value => value.number();
    u32: number => ParameterValue::Number(f64::from(number)), value => whole(value.number());
    u64: number => ParameterValue::Number(number as f64), value => u64::from(whole(value.number()));
    Mpl: limit => ParameterValue::Number(f64::from(limit.get())),
        value => Mpl::at_least_one(whole(value.number()));
    Concurrency: moment => ParameterValue::Moment(moment), value => match value {
        ParameterValue::Moment(moment) => moment,
        other => unreachable!("{other} is no moment"),
    };
    bool: is_on => ParameterValue::Switch(is_on), value => match value {
        ParameterValue::Switch(is_on) => is_on,
        other => unreachable!("{other} is no switch"),
    };
    Step: step => match step {
        Step::Absolute(step) => ParameterValue::Number(f64::from(step)),
        Step::Relative(share) => ParameterValue::OfLimit(share),
    }, value => match value {
        ParameterValue::OfLimit(share) => Step::Relative(share),
        other => Step::Absolute(whole(other.number())),
    };
}

impl ParameterValue {
    fn number(self) -> f64 {
        match self {
            ParameterValue::Number(number) | ParameterValue::OfLimit(number) => number,
            other => unreachable!("{other} is no number"),
        }
    }
}

/// Whether a lowest and a highest limit of a published rule leave any.
///
/// # Errors
/// They do not.
pub(crate) fn check_limits(lowest: Mpl, highest: Mpl) -> Result<(), &'static str> {
    let is_range = Bounds::new(lowest, highest).is_ok();
    is_range.then_some(()).ok_or("lowest is above highest")
}

#[cfg(test)]
mod tests;
