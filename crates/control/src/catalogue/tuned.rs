//! Algorithms with parameters of one's own, as in `external-scheduling:loss=0.2`.

use std::fmt;

use super::{Algorithm, AlgorithmError, GivenParameters, Parameter, ParametersError};

/// An algorithm with parameters of one's own; the others are as in the algorithm of that name.
///
/// The name is followed by a colon and `name=value` pairs with commas between them. What is
/// written is canonical: the parameters are in the order of [`Algorithm::parameters`], and numbers
/// have no needless zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuned {
    /// Its place in [`Algorithm::ALL`].
    place: usize,
    given: GivenParameters,
}

impl Tuned {
    /// The algorithm without its parameters.
    #[must_use]
    pub fn base(self) -> Algorithm {
        Algorithm::ALL[self.place]
    }

    /// The name of the algorithm without its parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.base().name()
    }

    pub(super) fn given(self) -> GivenParameters {
        self.given
    }
}

impl fmt::Display for Tuned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = self.base().configurable().write(&self.given);
        write!(formatter, "{}:{parameters}", self.name())
    }
}

/// Reads the parameters of the algorithm `base`, which were found in `text`.
///
/// # Errors
/// What is wrong with them, with a list of those that exist.
pub(super) fn read(
    base: Algorithm,
    parameters: &str,
    text: &str,
) -> Result<Algorithm, AlgorithmError> {
    let given = base.configurable().read(parameters).map_err(|problem| {
        let parameters = in_words(&base.parameters());
        let text = text.to_owned();
        let error = ParametersError { text, problem, algorithm: base.name(), parameters };
        AlgorithmError::Parameters(Box::new(error))
    })?;
    let place = Algorithm::ALL.iter().position(|&one| one == base);
    let place = place.expect("only an algorithm without parameters is read from its name");
    Ok(Algorithm::Tuned(Tuned { place, given }))
}

/// Parameters with their ranges, as an error lists them.
fn in_words(parameters: &[Parameter]) -> String {
    let one = |Parameter { name, unit, values, .. }: &Parameter| match *unit {
        "" => format!("{name} ({values})"),
        unit => format!("{name} ({values}; {unit})"),
    };
    parameters.iter().map(one).collect::<Vec<String>>().join(", ")
}
