//! Every algorithm by its name, as flags, configuration files and experiments spell it.

use std::fmt;
use std::str::FromStr;

use crate::controllers::{
    Aimd, AimdSettings, ConflictRatio, ConflictRatioSettings, EnvoyGradient, EnvoyGradientSettings,
    ExternalScheduling, ExternalSchedulingSettings, FadedParabola, FadedParabolaSettings, Failsafe,
    FailsafeSettings, Fixed, GaussianProcess, GaussianProcessSettings, Gradient2,
    Gradient2Settings, HalfAndHalf, HalfAndHalfSettings, HillClimbing, HillClimbingSettings,
    IncrementalSteps, IncrementalStepsSettings, PairedComparison, Parabola, ParabolaSettings,
    Scalability, ScalabilitySettings, Vegas, VegasSettings,
};
use crate::{Bounds, Controller, Mpl, Tuned};

/// Who chooses the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// The default: a Gaussian process over the logarithm of the limit.
    #[default]
    GaussianProcess,
    /// Limits compared in pairs, by ticks of 100 ms.
    PairedComparison,
    /// Hill climbing with a proxy's parameters (auto-tuning study, 3.2.1).
    HillClimbing,
    /// Global parabola approximation with a proxy's parameters (3.2.2).
    GlobalParabola,
    /// Local parabola approximation with a proxy's parameters (3.2.3).
    LocalParabola,
    /// Hill climbing as published.
    StudyHillClimbing,
    /// Global parabola approximation as published.
    StudyGlobalParabola,
    /// Local parabola approximation as published.
    StudyLocalParabola,
    /// The feedback controller of the external-scheduling study (4.3).
    ExternalScheduling,
    /// A fitted scalability law (Gunther).
    Scalability,
    /// Incremental steps (Heiss and Wagner).
    IncrementalSteps,
    /// Parabola with exponentially faded memory (Heiss and Wagner).
    FadedParabola,
    /// Half-and-half (Carey, Krishnamurthi and Livny).
    HalfAndHalf,
    /// Conflict ratio (Mönkeberg and Weikum).
    ConflictRatio,
    /// Additive increase, multiplicative decrease (Netflix).
    Aimd,
    /// Vegas (Netflix).
    Vegas,
    /// Gradient2 (Netflix).
    Gradient2,
    /// Gradient (Envoy).
    EnvoyGradient,
    /// The adaptive limiter of failsafe-go.
    Failsafe,
    /// One of the study's with parameters of one's own.
    Tuned(Tuned),
    /// Nobody: the limit stays.
    Fixed(Mpl),
}

/// What an algorithm is told about its place before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The limit stays within these.
    pub bounds: Bounds,
    /// The limit before the first decision.
    pub start: Mpl,
    /// Processors and data disks of the database, for the queueing model.
    pub resources: Resources,
}

/// The parts of a database server that can work at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Processors.
    pub cpus: u32,
    /// Disks that hold data.
    pub disks: u32,
}

impl Resources {
    /// Stations of the queueing model: every processor and every disk; at least 1.
    #[must_use]
    pub fn stations(self) -> u32 {
        self.cpus.saturating_add(self.disks).max(1)
    }
}

/// A name that no algorithm has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", advice(name))]
pub struct UnknownAlgorithm {
    /// What was asked for.
    pub name: String,
}

impl Algorithm {
    /// Every algorithm that decides, the default first, each with its own parameters;
    /// [`Algorithm::Fixed`] decides nothing.
    pub const ALL: [Algorithm; 19] = [
        Algorithm::GaussianProcess,
        Algorithm::HillClimbing,
        Algorithm::GlobalParabola,
        Algorithm::LocalParabola,
        Algorithm::StudyHillClimbing,
        Algorithm::StudyGlobalParabola,
        Algorithm::StudyLocalParabola,
        Algorithm::ExternalScheduling,
        Algorithm::Scalability,
        Algorithm::IncrementalSteps,
        Algorithm::FadedParabola,
        Algorithm::HalfAndHalf,
        Algorithm::ConflictRatio,
        Algorithm::Aimd,
        Algorithm::Vegas,
        Algorithm::Gradient2,
        Algorithm::EnvoyGradient,
        Algorithm::Failsafe,
        Algorithm::PairedComparison,
    ];

    /// The name without a parameter.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::GaussianProcess => "gaussian-process",
            Algorithm::PairedComparison => "paired-comparison",
            Algorithm::HillClimbing => "hill-climbing",
            Algorithm::GlobalParabola => "global-parabola",
            Algorithm::LocalParabola => "local-parabola",
            Algorithm::StudyHillClimbing => "study-hill-climbing",
            Algorithm::StudyGlobalParabola => "study-global-parabola",
            Algorithm::StudyLocalParabola => "study-local-parabola",
            Algorithm::ExternalScheduling => "external-scheduling",
            Algorithm::Scalability => "scalability",
            Algorithm::IncrementalSteps => "incremental-steps",
            Algorithm::FadedParabola => "faded-parabola",
            Algorithm::HalfAndHalf => "half-and-half",
            Algorithm::ConflictRatio => "conflict-ratio",
            Algorithm::Aimd => "aimd",
            Algorithm::Vegas => "vegas",
            Algorithm::Gradient2 => "gradient2",
            Algorithm::EnvoyGradient => "envoy-gradient",
            Algorithm::Failsafe => "failsafe",
            Algorithm::Tuned(tuned) => tuned.name(),
            Algorithm::Fixed(_) => "fixed",
        }
    }

    /// The limit that the algorithm itself begins with, where it has a view of its own: the
    /// queueing model's for the feedback controller (external-scheduling study, 4.3).
    #[must_use]
    pub fn own_start(self, resources: Resources) -> Option<Mpl> {
        let is_modelled = self == Algorithm::ExternalScheduling;
        is_modelled.then(|| ExternalSchedulingSettings::for_resources(resources).model_start())
    }

    /// The algorithm at work in `setting`.
    #[must_use]
    pub fn controller(self, setting: &Setting) -> Box<dyn Controller> {
        let &Setting { bounds, start, .. } = setting;
        match self {
            Algorithm::GaussianProcess => {
                Box::new(GaussianProcess::new(setting, GaussianProcessSettings::DEFAULT))
            }
            Algorithm::PairedComparison => Box::new(PairedComparison::new(setting)),
            Algorithm::StudyHillClimbing => {
                Box::new(HillClimbing::new(bounds, start, HillClimbingSettings::STUDY))
            }
            Algorithm::GlobalParabola => {
                Box::new(Parabola::global(bounds, start, ParabolaSettings::PROXY))
            }
            Algorithm::LocalParabola => {
                Box::new(Parabola::local(bounds, start, ParabolaSettings::PROXY))
            }
            Algorithm::StudyGlobalParabola => {
                Box::new(Parabola::global(bounds, start, ParabolaSettings::STUDY))
            }
            Algorithm::StudyLocalParabola => {
                Box::new(Parabola::local(bounds, start, ParabolaSettings::STUDY))
            }
            Algorithm::ExternalScheduling => {
                let settings = ExternalSchedulingSettings::for_resources(setting.resources);
                Box::new(ExternalScheduling::new(bounds, start, settings))
            }
            Algorithm::IncrementalSteps => {
                Box::new(IncrementalSteps::new(bounds, start, IncrementalStepsSettings::PROXY))
            }
            Algorithm::FadedParabola => {
                Box::new(FadedParabola::new(bounds, start, FadedParabolaSettings::PROXY))
            }
            Algorithm::HalfAndHalf => {
                Box::new(HalfAndHalf::new(bounds, start, HalfAndHalfSettings::PUBLISHED))
            }
            Algorithm::ConflictRatio => {
                Box::new(ConflictRatio::new(bounds, start, ConflictRatioSettings::PUBLISHED))
            }
            Algorithm::Aimd => Box::new(Aimd::new(bounds, start, AimdSettings::PUBLISHED)),
            Algorithm::Vegas => Box::new(Vegas::new(bounds, start, VegasSettings::PUBLISHED)),
            Algorithm::Gradient2 => {
                Box::new(Gradient2::new(bounds, start, Gradient2Settings::PUBLISHED))
            }
            Algorithm::EnvoyGradient => {
                Box::new(EnvoyGradient::new(bounds, start, EnvoyGradientSettings::PUBLISHED))
            }
            Algorithm::Failsafe => {
                Box::new(Failsafe::new(bounds, start, FailsafeSettings::PUBLISHED))
            }
            Algorithm::Tuned(tuned) => tuned.controller(bounds, start),
            Algorithm::Fixed(limit) => Box::new(Fixed::new(bounds, limit)),
            Algorithm::HillClimbing => Box::new(HillClimbing::for_proxy(bounds, start)),
            Algorithm::Scalability => {
                Box::new(Scalability::new(bounds, start, ScalabilitySettings::PROXY))
            }
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Algorithm::Tuned(tuned) => tuned.fmt(formatter),
            Algorithm::Fixed(limit) => write!(formatter, "fixed:{limit}"),
            other => formatter.write_str(other.name()),
        }
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let fixed = text.strip_prefix("fixed:").and_then(|limit| limit.parse().ok());
        if let Some(limit) = fixed.filter(|&limit| limit > 0) {
            return Ok(Algorithm::Fixed(Mpl::at_least_one(limit)));
        }
        let known = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        let tuned = || Tuned::parse(text).map(Algorithm::Tuned);
        known.or_else(tuned).ok_or_else(|| UnknownAlgorithm { name: text.to_owned() })
    }
}

/// What to write instead of a name that no algorithm has.
fn advice(name: &str) -> String {
    if name.split(':').next() == Some("fixed") {
        return format!("`{name}` sets no limit: use fixed:N with N at least 1, as in fixed:20");
    }
    format!(
        "no algorithm is called `{name}`: use {}, fixed:N with N at least 1, or parameters as in \
         study-hill-climbing:c=0.4,delta=10 and study-global-parabola:gamma=0.333",
        Algorithm::ALL.map(Algorithm::name).join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_found_by_its_name() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert_eq!("fixed:7".parse(), Ok(Algorithm::Fixed(Mpl::at_least_one(7))));
    }

    /// Two processors and a disk are three stations: 19·(3 − 1) for a loss of 5 %.
    #[test]
    fn only_the_feedback_controller_has_a_start_of_its_own() {
        let resources = Resources { cpus: 2, disks: 1 };
        let with_start = Algorithm::ALL.into_iter().filter_map(|algorithm| {
            algorithm.own_start(resources).map(|start| (algorithm, start.get()))
        });
        assert_eq!(with_start.collect::<Vec<_>>(), [(Algorithm::ExternalScheduling, 38)]);
    }

    #[test]
    fn other_names_are_refused_with_the_names_there_are() {
        for text in ["", "Vegas", "hill climbing"] {
            let error = text.parse::<Algorithm>().expect_err(text);
            assert!(error.to_string().contains("gaussian-process, hill-climbing"), "{error}");
        }
        for text in ["fixed", "fixed:", "fixed:0", "fixed:-1"] {
            let error = text.parse::<Algorithm>().expect_err(text);
            assert!(error.to_string().contains("use fixed:N with N at least 1"), "{error}");
        }
    }
}
