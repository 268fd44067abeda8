//! Algorithms of the auto-tuning study with parameters of one's own, for experiments on how much
//! each parameter matters (the study's Chapter 6).
//!
//! # Mechanism
//! A name is followed by a colon and parameters: `study-hill-climbing:c=0.3,delta=20`. What is
//! not named stays as it is in the algorithm of that name.
//!
//! | parameter | of | meaning | values |
//! | --- | --- | --- | --- |
//! | `c` | hill climbing | gain of throughput asked for a rise of the limit, C | 0 to 1 |
//! | `gamma` | the parabolas | largest relative rise of the limit in a step, Γ | 0.001 to 10 |
//! | `delta` | both | step, or largest random step, in transactions, Δ | 1 and more |
//!
//! # Limits
//! Shares are kept in thousandths, so that two algorithms can be compared and ordered exactly.

use std::fmt;
use std::num::NonZeroU32;

use crate::controllers::{HillClimbing, HillClimbingSettings, Parabola, ParabolaSettings};
use crate::{Bounds, Controller, Mpl, Step};

/// An algorithm of the study with parameters of one's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuned {
    base: Base,
    /// C or Γ, in thousandths.
    share: Option<u16>,
    /// Δ.
    delta: Option<NonZeroU32>,
}

/// Whose parameters they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Base {
    HillClimbing,
    StudyHillClimbing,
    GlobalParabola,
    StudyGlobalParabola,
    LocalParabola,
    StudyLocalParabola,
}

impl Base {
    const ALL: [Base; 6] = [
        Base::HillClimbing,
        Base::StudyHillClimbing,
        Base::GlobalParabola,
        Base::StudyGlobalParabola,
        Base::LocalParabola,
        Base::StudyLocalParabola,
    ];

    fn name(self) -> &'static str {
        match self {
            Base::HillClimbing => "hill-climbing",
            Base::StudyHillClimbing => "study-hill-climbing",
            Base::GlobalParabola => "global-parabola",
            Base::StudyGlobalParabola => "study-global-parabola",
            Base::LocalParabola => "local-parabola",
            Base::StudyLocalParabola => "study-local-parabola",
        }
    }

    /// The name of the share, and its values in thousandths.
    fn share(self) -> (&'static str, std::ops::RangeInclusive<u16>) {
        match self {
            Base::HillClimbing | Base::StudyHillClimbing => ("c", 0..=1_000),
            _ => ("gamma", 1..=10_000),
        }
    }
}

impl Tuned {
    /// The name of the algorithm without its parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.base.name()
    }

    /// The algorithm that a text such as `study-hill-climbing:c=0.4` names, if any.
    pub(crate) fn parse(text: &str) -> Option<Tuned> {
        let (name, parameters) = text.split_once(':')?;
        let base = Base::ALL.into_iter().find(|base| base.name() == name)?;
        let mut tuned = Tuned { base, share: None, delta: None };
        for parameter in parameters.split(',') {
            let (key, value) = parameter.split_once('=')?;
            let (share, allowed) = base.share();
            if key == share && tuned.share.is_none() {
                tuned.share = Some(thousandths(value).filter(|given| allowed.contains(given))?);
            } else if key == "delta" && tuned.delta.is_none() {
                tuned.delta = Some(value.parse().ok()?);
            } else {
                return None;
            }
        }
        Some(tuned)
    }

    /// The algorithm at work within `bounds`, from the limit nearest to `start`.
    pub(crate) fn controller(self, bounds: Bounds, start: Mpl) -> Box<dyn Controller> {
        match self.base {
            Base::HillClimbing => self.hill_climbing(bounds, start, HillClimbingSettings::PROXY),
            Base::StudyHillClimbing => {
                self.hill_climbing(bounds, start, HillClimbingSettings::STUDY)
            }
            Base::GlobalParabola => {
                Box::new(Parabola::global(bounds, start, self.parabola(ParabolaSettings::PROXY)))
            }
            Base::StudyGlobalParabola => {
                Box::new(Parabola::global(bounds, start, self.parabola(ParabolaSettings::STUDY)))
            }
            Base::LocalParabola => {
                Box::new(Parabola::local(bounds, start, self.parabola(ParabolaSettings::PROXY)))
            }
            Base::StudyLocalParabola => {
                Box::new(Parabola::local(bounds, start, self.parabola(ParabolaSettings::STUDY)))
            }
        }
    }

    fn hill_climbing(
        self,
        bounds: Bounds,
        start: Mpl,
        own: HillClimbingSettings,
    ) -> Box<dyn Controller> {
        let settings = HillClimbingSettings {
            gain: self.share_or(own.gain),
            step: self.step_or(own.step),
            ..own
        };
        Box::new(HillClimbing::new(bounds, start, settings))
    }

    fn parabola(self, own: ParabolaSettings) -> ParabolaSettings {
        ParabolaSettings { cap: self.share_or(own.cap), wiggle: self.step_or(own.wiggle), ..own }
    }

    fn share_or(self, own: f64) -> f64 {
        self.share.map_or(own, |thousandths| f64::from(thousandths) / 1e3)
    }

    fn step_or(self, own: Step) -> Step {
        self.delta.map_or(own, |delta| Step::Absolute(delta.get()))
    }
}

impl fmt::Display for Tuned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = self.base.share();
        let share = self.share.map(|share| format!("{name}={}", f64::from(share) / 1e3));
        let delta = self.delta.map(|delta| format!("delta={delta}"));
        let parameters: Vec<String> = share.into_iter().chain(delta).collect();
        write!(formatter, "{}:{}", self.base.name(), parameters.join(","))
    }
}

/// A decimal number of at most three places, in thousandths.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, places) = text.split_once('.').unwrap_or((text, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if places.len() > 3 || whole.is_empty() || !are_digits(whole) || !are_digits(places) {
        return None;
    }
    let whole: u16 = whole.parse().ok()?;
    let places: u16 = format!("{places:0<3}").parse().ok()?;
    whole.checked_mul(1_000)?.checked_add(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

    #[test]
    fn parameters_are_read_and_written_alike() {
        for (text, written) in [
            ("hill-climbing:c=0.05", "hill-climbing:c=0.05"),
            ("study-hill-climbing:c=0.4", "study-hill-climbing:c=0.4"),
            ("study-hill-climbing:c=0", "study-hill-climbing:c=0"),
            ("study-hill-climbing:delta=20,c=0.300", "study-hill-climbing:c=0.3,delta=20"),
            ("study-global-parabola:gamma=0.333", "study-global-parabola:gamma=0.333"),
            ("local-parabola:delta=5", "local-parabola:delta=5"),
            ("study-local-parabola:gamma=10,delta=1", "study-local-parabola:gamma=10,delta=1"),
        ] {
            let algorithm: Algorithm = text.parse().unwrap();
            assert_eq!(algorithm.to_string(), written);
            assert_eq!(written.parse(), Ok(algorithm));
            assert_eq!(algorithm.name(), written.split(':').next().unwrap());
        }
    }

    #[test]
    fn what_is_no_parameter_is_refused() {
        for text in [
            "study-hill-climbing:",
            "study-hill-climbing:c",
            "study-hill-climbing:c=",
            "study-hill-climbing:c=1.001",
            "study-hill-climbing:c=-0.1",
            "study-hill-climbing:c=0.0005",
            "study-hill-climbing:c=.4",
            "study-hill-climbing:c=66",
            "study-hill-climbing:c=0.4,c=0.5",
            "study-hill-climbing:gamma=0.3",
            "study-hill-climbing:delta=0",
            "study-hill-climbing:delta=1.5",
            "study-global-parabola:c=0.4",
            "study-global-parabola:gamma=0",
            "study-global-parabola:gamma=10.001",
            "vegas:c=0.4",
        ] {
            let error = text.parse::<Algorithm>().expect_err(text).to_string();
            assert!(error.contains(text) && error.contains("c=0.4"), "{error}");
        }
    }

    /// The study's own parameters, written out, make the study's own controllers; others do not.
    #[test]
    fn parameters_take_the_place_of_the_algorithms_own() {
        let hill = HillClimbingSettings::STUDY;
        let own = Tuned::parse("study-hill-climbing:c=0.4,delta=10").unwrap();
        assert_eq!((own.share_or(0.0), own.step_or(Step::Relative(9.0))), (hill.gain, hill.step));
        let some = Tuned::parse("study-hill-climbing:c=0.7").unwrap();
        assert_eq!((some.share_or(hill.gain), some.step_or(hill.step)), (0.7, hill.step));
        let own = Tuned::parse("study-global-parabola:gamma=0.333,delta=5").unwrap();
        let expected = ParabolaSettings {
            concurrency: ParabolaSettings::PROXY.concurrency,
            ..ParabolaSettings::STUDY
        };
        assert_eq!(own.parabola(ParabolaSettings::PROXY), expected);
    }
}
