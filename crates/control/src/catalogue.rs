//! Every algorithm by its name, as flags, configuration files and experiments spell it.
//!
//! A name stands alone, `vegas`, or with parameters, `external-scheduling:loss=0.2`: see
//! [`Tuned`]. `observe:NAME` is not an algorithm but a way to use one: see [`ControlChoice`].

mod choice;
mod tuned;

use std::fmt;
use std::str::FromStr;

use crate::controllers::{
    Aimd, AimdSettings, ConflictRatio, ConflictRatioSettings, EnvoyGradient, EnvoyGradientSettings,
    ExternalScheduling, ExternalSchedulingSettings, FadedParabola, FadedParabolaSettings, Failsafe,
    FailsafeSettings, Fixed, GaussianProcess, GaussianProcessSettings, Gradient2,
    Gradient2Settings, HalfAndHalf, HalfAndHalfSettings, HillClimbing, HillClimbingSettings,
    IncrementalSteps, IncrementalStepsSettings, PairedComparison, PairedSettings, Parabola,
    ParabolaSettings, Scalability, ScalabilitySettings, Vegas, VegasSettings,
};
use crate::parameters::{self, Given, NoSettings, Parameter, ParameterProblem, Tunable};
use crate::{Bounds, Controller, Mpl};

pub use choice::ControlChoice;
pub use tuned::Tuned;

/// Who chooses the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// The default: limits compared in pairs, by ticks of 100 ms.
    #[default]
    PairedComparison,
    /// A Gaussian process over the logarithm of the limit.
    GaussianProcess,
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
    /// One of these with parameters of one's own.
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

/// Parameters that an algorithm cannot be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: {problem}; {algorithm} has {parameters}")]
pub struct ParametersError {
    /// What was asked for.
    pub text: String,
    /// What is wrong with it.
    pub problem: ParameterProblem,
    /// The algorithm.
    pub algorithm: &'static str,
    /// Its parameters with their ranges, in words.
    pub parameters: String,
}

/// Text that names no algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlgorithmError {
    /// No algorithm has this name.
    #[error(
        "no algorithm is called `{name}`: use {}, or fixed:N with N at least 1; parameters follow \
         as in external-scheduling:loss=0.2, and `tidegate controllers` lists them",
        Algorithm::ALL.map(Algorithm::name).join(", ")
    )]
    Name {
        /// What was asked for.
        name: String,
    },
    /// The limit of `fixed` is missing or not a limit.
    #[error("`{text}` sets no limit: use fixed:N with N at least 1, as in fixed:20")]
    Fixed {
        /// What was asked for.
        text: String,
    },
    /// An algorithm cannot be given these parameters.
    #[error(transparent)]
    Parameters(Box<ParametersError>),
    /// `observe` where a controller has to be obeyed.
    #[error(
        "`{text}` leaves the gate open, which only `tidegate proxy` can do: name the algorithm \
         without observe"
    )]
    Observe {
        /// What was asked for.
        text: String,
    },
    /// An algorithm that has nothing to say while the gate is open.
    #[error(
        "`observe:{algorithm}` would say nothing: {why}. Use observe, observe:gaussian-process \
         with its parameters, or observe:fixed:N to ask about one limit"
    )]
    Blind {
        /// The algorithm.
        algorithm: &'static str,
        /// Why it would say nothing.
        why: &'static str,
    },
}

/// What is done with the settings of an algorithm, whatever their type is.
trait Task {
    type Output;

    /// Does it for the settings `own`, of which `make` makes a controller.
    fn on<S: Tunable>(
        self,
        own: S,
        make: impl Fn(&Setting, S) -> Box<dyn Controller>,
    ) -> Self::Output;
}

/// Makes the controller.
struct Build<'a> {
    given: Given,
    setting: &'a Setting,
}

impl Task for Build<'_> {
    type Output = Box<dyn Controller>;

    fn on<S: Tunable>(
        self,
        own: S,
        make: impl Fn(&Setting, S) -> Box<dyn Controller>,
    ) -> Box<dyn Controller> {
        make(self.setting, self.given.over(own))
    }
}

/// Lists the parameters.
struct List;

impl Task for List {
    type Output = Vec<Parameter>;

    fn on<S: Tunable>(
        self,
        own: S,
        _: impl Fn(&Setting, S) -> Box<dyn Controller>,
    ) -> Vec<Parameter> {
        parameters::list(&own)
    }
}

/// Reads parameters.
struct Read<'a>(&'a str);

impl Task for Read<'_> {
    type Output = Result<Given, ParameterProblem>;

    fn on<S: Tunable>(
        self,
        own: S,
        _: impl Fn(&Setting, S) -> Box<dyn Controller>,
    ) -> Result<Given, ParameterProblem> {
        Given::read(self.0, own)
    }
}

/// Writes parameters.
struct Write<'a>(&'a Given);

impl Task for Write<'_> {
    type Output = String;

    fn on<S: Tunable>(self, _: S, _: impl Fn(&Setting, S) -> Box<dyn Controller>) -> String {
        self.0.write::<S>()
    }
}

/// What makes a controller that is told its bounds and its start only.
fn plain<S, C: Controller + 'static>(
    new: fn(Bounds, Mpl, S) -> C,
) -> impl Fn(&Setting, S) -> Box<dyn Controller> {
    move |setting: &Setting, settings: S| -> Box<dyn Controller> {
        Box::new(new(setting.bounds, setting.start, settings))
    }
}

/// The resources of which the defaults of parameters are listed: none depends on them.
const ANY: Resources = Resources { cpus: 1, disks: 1 };

impl Algorithm {
    /// Every algorithm that decides, the default first, each with its own parameters;
    /// [`Algorithm::Fixed`] decides nothing.
    pub const ALL: [Algorithm; 19] = [
        Algorithm::PairedComparison,
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

    /// Returns whether the algorithm goes by the locks held, so that it decides nothing where the
    /// database does not tell of them.
    #[must_use]
    pub fn needs_locks(self) -> bool {
        matches!(self.base(), Algorithm::HalfAndHalf | Algorithm::ConflictRatio)
    }

    /// The algorithm without its parameters.
    #[must_use]
    pub fn base(self) -> Algorithm {
        match self {
            Algorithm::Tuned(tuned) => tuned.base(),
            other => other,
        }
    }

    /// Every parameter that the algorithm can be given; empty for `fixed:N`.
    #[must_use]
    pub fn parameters(self) -> Vec<Parameter> {
        self.with_settings(ANY, List)
    }

    /// Reads algorithms with commas between them, as `vegas,external-scheduling:loss=0.2,delta=4`:
    /// a part of the form `name=value` belongs to the algorithm before it.
    ///
    /// # Errors
    /// What is wrong with the first that is not one.
    pub fn list(text: &str) -> Result<Vec<Algorithm>, AlgorithmError> {
        Algorithm::names(text).iter().map(|name| name.parse()).collect()
    }

    /// The algorithms of a list with commas between them, each as it is spelled.
    #[must_use]
    pub fn names(text: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let is_parameter = part.contains('=') && !part.contains(':');
            match names.last_mut().filter(|last| is_parameter && last.contains(':')) {
                Some(last) => *last = format!("{last},{part}"),
                None => names.push(part.to_owned()),
            }
        }
        names
    }

    /// The limit that the algorithm itself begins with, where it has a view of its own: the
    /// queueing model's for the feedback controller (external-scheduling study, 4.3).
    #[must_use]
    pub fn own_start(self, resources: Resources) -> Option<Mpl> {
        let own = ExternalSchedulingSettings::for_resources(resources);
        let is_modelled = self.base() == Algorithm::ExternalScheduling;
        is_modelled.then(|| self.given().over(own).model_start())
    }

    /// The algorithm at work in `setting`.
    #[must_use]
    pub fn controller(self, setting: &Setting) -> Box<dyn Controller> {
        self.with_settings(setting.resources, Build { given: self.given(), setting })
    }

    /// The parameters it was given.
    fn given(self) -> Given {
        match self {
            Algorithm::Tuned(tuned) => tuned.given(),
            _ => Given::NONE,
        }
    }

    /// Does something with the settings that the algorithm has without parameters.
    fn with_settings<T: Task>(self, resources: Resources, task: T) -> T::Output {
        match self {
            Algorithm::GaussianProcess => task
                .on(GaussianProcessSettings::DEFAULT, |setting, settings| {
                    Box::new(GaussianProcess::new(setting, settings))
                }),
            Algorithm::PairedComparison => task.on(PairedSettings::DEFAULT, |setting, settings| {
                Box::new(PairedComparison::new(setting, settings))
            }),
            Algorithm::HillClimbing => {
                task.on(HillClimbingSettings::PROXY, plain(HillClimbing::new))
            }
            Algorithm::StudyHillClimbing => {
                task.on(HillClimbingSettings::STUDY, plain(HillClimbing::new))
            }
            Algorithm::GlobalParabola => task.on(ParabolaSettings::PROXY, plain(Parabola::global)),
            Algorithm::LocalParabola => task.on(ParabolaSettings::PROXY, plain(Parabola::local)),
            Algorithm::StudyGlobalParabola => {
                task.on(ParabolaSettings::STUDY, plain(Parabola::global))
            }
            Algorithm::StudyLocalParabola => {
                task.on(ParabolaSettings::STUDY, plain(Parabola::local))
            }
            Algorithm::ExternalScheduling => {
                let settings = ExternalSchedulingSettings::for_resources(resources);
                task.on(settings, plain(ExternalScheduling::new))
            }
            Algorithm::Scalability => task.on(ScalabilitySettings::PROXY, plain(Scalability::new)),
            Algorithm::IncrementalSteps => {
                task.on(IncrementalStepsSettings::PROXY, plain(IncrementalSteps::new))
            }
            Algorithm::FadedParabola => {
                task.on(FadedParabolaSettings::PROXY, plain(FadedParabola::new))
            }
            Algorithm::HalfAndHalf => {
                task.on(HalfAndHalfSettings::PUBLISHED, plain(HalfAndHalf::new))
            }
            Algorithm::ConflictRatio => {
                task.on(ConflictRatioSettings::PUBLISHED, plain(ConflictRatio::new))
            }
            Algorithm::Aimd => task.on(AimdSettings::PUBLISHED, plain(Aimd::new)),
            Algorithm::Vegas => task.on(VegasSettings::PUBLISHED, plain(Vegas::new)),
            Algorithm::Gradient2 => task.on(Gradient2Settings::PUBLISHED, plain(Gradient2::new)),
            Algorithm::EnvoyGradient => {
                task.on(EnvoyGradientSettings::PUBLISHED, plain(EnvoyGradient::new))
            }
            Algorithm::Failsafe => task.on(FailsafeSettings::PUBLISHED, plain(Failsafe::new)),
            Algorithm::Fixed(limit) => {
                task.on(NoSettings, |setting, _| Box::new(Fixed::new(setting.bounds, limit)))
            }
            Algorithm::Tuned(tuned) => tuned.base().with_settings(resources, task),
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
    type Err = AlgorithmError;

    fn from_str(text: &str) -> Result<Algorithm, AlgorithmError> {
        let (name, parameters) = text
            .split_once(':')
            .map_or((text, None), |(name, parameters)| (name, Some(parameters)));
        if name == "fixed" {
            let limit = parameters.and_then(|limit| limit.parse().ok()).filter(|&limit| limit > 0);
            let limit = limit.ok_or_else(|| AlgorithmError::Fixed { text: text.to_owned() })?;
            return Ok(Algorithm::Fixed(Mpl::at_least_one(limit)));
        }
        if name == choice::OBSERVE {
            return Err(AlgorithmError::Observe { text: text.to_owned() });
        }
        let known = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        let known = known.ok_or_else(|| AlgorithmError::Name { name: text.to_owned() })?;
        match parameters {
            Some(parameters) => tuned::read(known, parameters, text),
            None => Ok(known),
        }
    }
}

#[cfg(test)]
mod tests;
