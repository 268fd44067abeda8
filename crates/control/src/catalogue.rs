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
use crate::parameters::{self, GivenParameters, Parameter, ParameterProblem, Tunable, settings};
use crate::{Bounds, Controller, Mpl};

pub use choice::ControlChoice;
pub use tuned::Tuned;

/// Declares the algorithms: of each the variant, the name, its own settings, and how a controller
/// is made of a setting and settings.
macro_rules! algorithms {
    ($( $(#[$meta:meta])* $variant:ident = $name:literal, $own:expr, $make:expr; )+) => {
        /// Who chooses the limit.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Algorithm {
            $( $(#[$meta])* $variant, )+
            /// One of these with parameters of one's own.
            Tuned(Tuned),
            /// No algorithm: the limit stays.
            Fixed(Mpl),
        }

        impl Algorithm {
            /// Every algorithm that decides, the default first, each with its own parameters;
            /// [`Algorithm::Fixed`] decides nothing.
            pub const ALL: [Algorithm; [$($name),+].len()] = [$(Algorithm::$variant),+];

            /// Returns the name without a parameter.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $( Algorithm::$variant => $name, )+
                    Algorithm::Tuned(tuned) => tuned.name(),
                    Algorithm::Fixed(_) => "fixed",
                }
            }

            /// Returns what can be chosen about the algorithm.
            fn configurable(self) -> Box<dyn Configurable> {
                match self {
                    $( Algorithm::$variant => Configuration::boxed($own, $make), )+
                    Algorithm::Tuned(tuned) => tuned.base().configurable(),
                    Algorithm::Fixed(limit) => {
                        Configuration::boxed(FixedSettings { limit }, |setting, own| {
                            Box::new(Fixed::new(setting.bounds, own.limit))
                        })
                    }
                }
            }
        }
    };
}

algorithms! {
    /// The default: limits compared in pairs, by ticks of 100 ms.
    #[default]
    PairedComparison = "paired-comparison", PairedSettings::DEFAULT,
        |setting, own| Box::new(PairedComparison::new(setting, own));
    /// A Gaussian process over the logarithm of the limit.
    GaussianProcess = "gaussian-process", GaussianProcessSettings::DEFAULT,
        |setting, own| Box::new(GaussianProcess::new(setting, own));
    /// Hill climbing with a proxy's parameters (auto-tuning study, 3.2.1).
    HillClimbing = "hill-climbing", HillClimbingSettings::PROXY,
        |setting, own| Box::new(HillClimbing::new(setting.bounds, setting.start, own));
    /// Global parabola approximation with a proxy's parameters (3.2.2).
    GlobalParabola = "global-parabola", ParabolaSettings::PROXY,
        |setting, own| Box::new(Parabola::global(setting.bounds, setting.start, own));
    /// Local parabola approximation with a proxy's parameters (3.2.3).
    LocalParabola = "local-parabola", ParabolaSettings::PROXY,
        |setting, own| Box::new(Parabola::local(setting.bounds, setting.start, own));
    /// Hill climbing as published.
    StudyHillClimbing = "study-hill-climbing", HillClimbingSettings::STUDY,
        |setting, own| Box::new(HillClimbing::new(setting.bounds, setting.start, own));
    /// Global parabola approximation as published.
    StudyGlobalParabola = "study-global-parabola", ParabolaSettings::STUDY,
        |setting, own| Box::new(Parabola::global(setting.bounds, setting.start, own));
    /// Local parabola approximation as published.
    StudyLocalParabola = "study-local-parabola", ParabolaSettings::STUDY,
        |setting, own| Box::new(Parabola::local(setting.bounds, setting.start, own));
    /// The feedback controller of the external-scheduling study (4.3).
    ExternalScheduling = "external-scheduling", ExternalSchedulingSettings::DEFAULT,
        |setting, own| {
            let own = own.with_resources(setting.resources);
            Box::new(ExternalScheduling::new(setting.bounds, setting.start, own))
        };
    /// A fitted scalability law (Gunther).
    Scalability = "scalability", ScalabilitySettings::PROXY,
        |setting, own| Box::new(Scalability::new(setting.bounds, setting.start, own));
    /// Incremental steps (Heiss and Wagner).
    IncrementalSteps = "incremental-steps", IncrementalStepsSettings::PROXY,
        |setting, own| Box::new(IncrementalSteps::new(setting.bounds, setting.start, own));
    /// Parabola with exponentially faded memory (Heiss and Wagner).
    FadedParabola = "faded-parabola", FadedParabolaSettings::PROXY,
        |setting, own| Box::new(FadedParabola::new(setting.bounds, setting.start, own));
    /// Half-and-half (Carey, Krishnamurthi and Livny).
    HalfAndHalf = "half-and-half", HalfAndHalfSettings::PUBLISHED,
        |setting, own| Box::new(HalfAndHalf::new(setting.bounds, setting.start, own));
    /// Conflict ratio (Mönkeberg and Weikum).
    ConflictRatio = "conflict-ratio", ConflictRatioSettings::PUBLISHED,
        |setting, own| Box::new(ConflictRatio::new(setting.bounds, setting.start, own));
    /// Additive increase, multiplicative decrease (Netflix).
    Aimd = "aimd", AimdSettings::PUBLISHED,
        |setting, own| Box::new(Aimd::new(setting.bounds, setting.start, own));
    /// Vegas (Netflix).
    Vegas = "vegas", VegasSettings::PUBLISHED,
        |setting, own| Box::new(Vegas::new(setting.bounds, setting.start, own));
    /// Gradient2 (Netflix).
    Gradient2 = "gradient2", Gradient2Settings::PUBLISHED,
        |setting, own| Box::new(Gradient2::new(setting.bounds, setting.start, own));
    /// Gradient (Envoy).
    EnvoyGradient = "envoy-gradient", EnvoyGradientSettings::PUBLISHED,
        |setting, own| Box::new(EnvoyGradient::new(setting.bounds, setting.start, own));
    /// The adaptive limiter of failsafe-go.
    Failsafe = "failsafe", FailsafeSettings::PUBLISHED,
        |setting, own| Box::new(Failsafe::new(setting.bounds, setting.start, own));
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

/// What can be chosen about an algorithm, whatever the type of its settings is.
trait Configurable {
    /// Returns the parameters with their defaults.
    fn parameters(&self) -> Vec<Parameter>;

    /// Reads parameters, as in `loss=0.2,delta=4`.
    ///
    /// # Errors
    /// What is wrong with the first part that cannot be used.
    fn read(&self, text: &str) -> Result<GivenParameters, ParameterProblem>;

    /// Returns parameters in their canonical spelling.
    fn write(&self, given: &GivenParameters) -> String;

    /// Makes a controller with the given parameters in place of its own.
    fn controller(&self, given: &GivenParameters, setting: &Setting) -> Box<dyn Controller>;
}

/// The settings that an algorithm has without parameters, and how a controller is made of settings.
struct Configuration<S> {
    own: S,
    make: fn(&Setting, S) -> Box<dyn Controller>,
}

settings! {
    /// The settings of a fixed limit, which has no parameters.
    struct FixedSettings;

    limit: Mpl;
}

impl<S: Tunable> Configuration<S> {
    fn boxed(own: S, make: fn(&Setting, S) -> Box<dyn Controller>) -> Box<dyn Configurable> {
        Box::new(Configuration { own, make })
    }
}

impl<S: Tunable> Configurable for Configuration<S> {
    fn parameters(&self) -> Vec<Parameter> {
        parameters::list(&self.own)
    }

    fn read(&self, text: &str) -> Result<GivenParameters, ParameterProblem> {
        GivenParameters::read(text, self.own)
    }

    fn write(&self, given: &GivenParameters) -> String {
        given.write::<S>()
    }

    fn controller(&self, given: &GivenParameters, setting: &Setting) -> Box<dyn Controller> {
        (self.make)(setting, given.over(self.own))
    }
}

impl Algorithm {
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
        self.configurable().parameters()
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
        let own = ExternalSchedulingSettings::DEFAULT.with_resources(resources);
        let is_modelled = self.base() == Algorithm::ExternalScheduling;
        is_modelled.then(|| self.given().over(own).model_start())
    }

    /// The algorithm at work in `setting`.
    #[must_use]
    pub fn controller(self, setting: &Setting) -> Box<dyn Controller> {
        self.configurable().controller(&self.given(), setting)
    }

    /// The parameters it was given.
    fn given(self) -> GivenParameters {
        match self {
            Algorithm::Tuned(tuned) => tuned.given(),
            _ => GivenParameters::NONE,
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
