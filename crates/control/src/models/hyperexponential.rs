//! The two-phase hyperexponential distribution, H2: sizes of transactions that differ much.
//!
//! # Mechanism
//! A transaction is of kind 1 with probability p and of kind 2 otherwise; sizes of kind 1 are
//! exponential with mean a, those of kind 2 with mean b. Three numbers are one more than mean and
//! squared coefficient of variation C² = variance/mean² fix. *Balanced means* is the usual choice
//! of the third: both kinds bring the same work, p·a = (1 − p)·b = mean/2. Then
//!
//! ```text
//! E(S²) = 2p·a² + 2(1 − p)·b² = mean²/(2p(1 − p)) = mean²(C² + 1)
//! p = (1 + √((C² − 1)/(C² + 1)))/2
//! ```
//!
//! # Example
//! Mean 1 and C² = 15, as the study measured for TPC-W: √(14/16) = 0.935, p = 0.968. Of 31
//! transactions 30 have a mean size of 0.52, and one of 15.5 brings as much work as they together.
//!
//! # Where this leaves the study
//! It names H2 and C² (Section 4.2) and not the third number; balanced means is ours. It does not
//! matter for a server that takes transactions one by one, where mean and C² decide (Pollaczek and
//! Khinchine), nor for one that shares itself among all; between the two it matters somewhat.
//!
//! # Limits
//! C² is at least 1. Sizes more regular than exponential ones need another distribution, and an MPL
//! no higher than C² = 1 needs.

/// Sizes of transactions, in seconds of an otherwise idle database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hyperexponential {
    mean_s: f64,
    squared_variation: f64,
}

/// One kind of transactions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HyperexponentialPhase {
    /// The share of the transactions that are of this kind.
    pub probability: f64,
    /// Their mean size, seconds.
    pub mean_s: f64,
}

/// Numbers that no H2 with balanced means has.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum HyperexponentialError {
    /// The mean.
    #[error("the mean size must be a number of seconds above 0, not {0}")]
    Mean(f64),
    /// The squared coefficient of variation.
    #[error("the squared coefficient of variation must be from 1 to {HIGHEST_VARIATION}, not {0}")]
    SquaredVariation(f64),
}

/// Above this the rarer kind is rarer than one in four million, and the arithmetic of the models
/// that use it would lose more digits than it has.
const HIGHEST_VARIATION: f64 = 1e6;

impl Hyperexponential {
    /// Sizes of mean `mean_s` seconds and squared coefficient of variation `squared_variation`.
    ///
    /// # Errors
    /// When the mean is not above 0 or the variation not from 1 to a million.
    pub fn new(
        mean_s: f64,
        squared_variation: f64,
    ) -> Result<Hyperexponential, HyperexponentialError> {
        if !(mean_s > 0.0 && mean_s.is_finite()) {
            return Err(HyperexponentialError::Mean(mean_s));
        }
        if !(1.0..=HIGHEST_VARIATION).contains(&squared_variation) {
            return Err(HyperexponentialError::SquaredVariation(squared_variation));
        }
        Ok(Hyperexponential { mean_s, squared_variation })
    }

    /// The mean, E(S), seconds.
    #[must_use]
    pub fn mean_s(&self) -> f64 {
        self.mean_s
    }

    /// The squared coefficient of variation, C².
    #[must_use]
    pub fn squared_variation(&self) -> f64 {
        self.squared_variation
    }

    /// The two kinds, the one of small transactions first.
    #[must_use]
    pub fn phases(&self) -> [HyperexponentialPhase; 2] {
        let more = self.squared_variation + 1.0;
        let small = 0.5 * (1.0 + ((more - 2.0) / more).sqrt());
        // p(1 − p) = 1/(2(C² + 1)); the difference 1 − p would cancel for a large C².
        let large = 0.5 / (more * small);
        [small, large].map(|probability| HyperexponentialPhase {
            probability,
            mean_s: 0.5 * self.mean_s / probability,
        })
    }
}
