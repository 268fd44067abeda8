//! Response time against the MPL: a queue before a server that at most MPL transactions share.
//!
//! # Mechanism
//! Transactions arrive at random (Poisson), wait in order of arrival, and enter while fewer than K,
//! the MPL, are inside; those inside share the database equally (study, Section 4.2 and Figure 8).
//! K = 1 is a server that takes one after the other, and the mean response time grows with C², the
//! variation of sizes: short transactions wait behind long ones. K = ∞ is processor sharing, where
//! C² does not matter and the mean response time is E(S)/(1 − ρ) at load ρ.
//!
//! With sizes from an H2 distribution (see [`super::hyperexponential`]) the state is n,
//! transactions in the system, and j, how many of those inside are of kind 1 (Figure 9). With i =
//! min(n, K) inside, arrivals at rate λ, kinds of probability p and q = 1 − p and rates µ1 and µ2,
//! one over their mean sizes:
//!
//! | what | rate | nobody waits | somebody waits |
//! | --- | --- | --- | --- |
//! | arrival, n < K | λ | n + 1, and j + 1 with p | |
//! | arrival, n ≥ K | λ | n + 1 | n + 1 |
//! | kind 1 ends | µ1·j/i | n − 1, j − 1 | n − 1, and j − 1 with q: the next one enters |
//! | kind 2 ends | µ2·(i − j)/i | n − 1 | n − 1, and j + 1 with p |
//!
//! From level n = K on the rates repeat: a quasi-birth-death process with blocks A0 (up), A1
//! (local) and A2 (down) of size K + 1. So the row π(n) of the chances at level n obeys π(n + 1) =
//! π(n)·R there, with R = λ(−A1 − λG)⁻¹ and G the chances of where the process first comes one
//! level down, found by logarithmic reduction (Latouche and Ramaswami, 1993): each round doubles
//! the number of levels in view. Up to K every level has its own R, computed from the top:
//!
//! ```text
//! U(K) = A1 + λG
//! R(n) = Up(n − 1)·(−U(n))⁻¹,  U(n − 1) = Local(n − 1) + R(n)·Down(n)    n = K, …, 1
//! π(0) = 1,  π(n) = π(n − 1)·R(n)                                       n = 1, …, K
//! ```
//!
//! and at last everything is divided by the sum of all.
//!
//! No step subtracts numbers that nearly cancel. The server works whenever somebody is
//! there, so the chance of an empty system must come out as 1 − ρ, whatever K: a check that uses no
//! step of the solution, and an answer that fails it is refused. The mean response time is the mean
//! number in the system over λ (Little's law).
//!
//! # Example
//! E(S) = 1 s, C² = 15, ρ = 0.7. K = ∞: 1/0.3 = 3.33 s. K = 1: 1 + 0.7·16/(2·0.3) = 19.67 s
//! (Pollaczek and Khinchine). K = 10 gives 3.8 s: ten at a time are enough to be close.
//!
//! # Where this leaves the study
//! * It says "matrix-analytic methods"; the algorithm is our choice.
//! * It reads the MPL that suffices off Figure 10; [`LimitedSharing::lowest_mpl`] computes it, by
//!   doubling and then halving, since a higher MPL never gives a longer mean response time here.
//!
//! # Limits
//! * Open arrivals: nobody holds back a request because the last is unanswered. For a closed system
//!   without think time response time is clients over throughput, and [`super::throughput`] says
//!   all.
//! * The database is one shared server: speed does not depend on how many are inside. With several
//!   processors or disks the MPL must also be what [`super::throughput`] asks for.
//! * Work and memory grow with K⁴ and K³: [`HIGHEST_MPL`] takes seconds.

use nalgebra::{DMatrix, DVector, RowDVector};

use super::hyperexponential::{Hyperexponential, HyperexponentialPhase};
use crate::Mpl;

/// The highest MPL that is solved.
pub const HIGHEST_MPL: u32 = 256;

/// Rounds of the reduction: each doubles the levels in view, and a load that needs more than 2^60
/// of them is 1.
const ROUNDS: u32 = 60;

/// G is known when a round adds no more than this to any probability.
const ENOUGH: f64 = 1e-15;

/// The relative error of the chance of an empty system above which an answer is refused.
const TOLERANCE: f64 = 1e-6;

/// A queue before a database that a limited number of transactions share, whatever the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitedSharing {
    load: f64,
    sizes: Hyperexponential,
}

/// The system at one MPL, after a long time.
#[derive(Clone, Debug, PartialEq)]
pub struct Stationary {
    /// The chance that n transactions are in the system, for n from 0 to K − 1: nobody waits then,
    /// nor would one that arrives.
    pub below: Vec<f64>,
    /// The chance of K or more.
    pub full: f64,
    /// Transactions in the system in the mean, waiting or inside.
    pub mean_in_system: f64,
    /// Mean time from arrival to end, seconds.
    pub mean_response_s: f64,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ResponseTimeError {
    /// A load that the database does not bear, or none.
    #[error("the load must be above 0 and below 1, not {0}: at 1 the queue grows for ever")]
    Load(f64),
    /// An increase that nothing keeps.
    #[error("the increase must be a fraction above 0, not {0}: 0.05 is 5 %")]
    Increase(f64),
    /// A limit that is too high to be solved in reasonable time.
    #[error("an MPL of {0} is above {HIGHEST_MPL}, the highest that is solved")]
    TooHigh(Mpl),
    /// The increase is kept by no MPL that is solved.
    #[error("no MPL up to {HIGHEST_MPL} keeps so small an increase")]
    OutOfReach,
    /// The load is so near to 1 or the sizes vary so much that rounding spoils the answer.
    #[error("the load is too near to 1, or sizes vary too much, for an answer that can be trusted")]
    Imprecise,
}

impl LimitedSharing {
    /// Transactions with `sizes` that would keep an unlimited database busy for the share `load` of
    /// the time: arrivals a second times the mean size.
    ///
    /// # Errors
    /// When `load` is not above 0 and below 1.
    pub fn new(load: f64, sizes: Hyperexponential) -> Result<LimitedSharing, ResponseTimeError> {
        if load > 0.0 && load < 1.0 {
            Ok(LimitedSharing { load, sizes })
        } else {
            Err(ResponseTimeError::Load(load))
        }
    }

    /// Mean response time without a limit, E(S)/(1 − ρ), seconds.
    #[must_use]
    pub fn unlimited_response_s(&self) -> f64 {
        self.sizes.mean_s() / (1.0 - self.load)
    }

    /// The system when at most `mpl` transactions share the database.
    ///
    /// # Errors
    /// When `mpl` is above [`HIGHEST_MPL`], and when rounding spoils the answer.
    pub fn at(&self, mpl: Mpl) -> Result<Stationary, ResponseTimeError> {
        if mpl.get() > HIGHEST_MPL {
            return Err(ResponseTimeError::TooHigh(mpl));
        }
        let chain = Chain::new(self, mpl);
        let solution = chain.solve().ok_or(ResponseTimeError::Imprecise)?;
        // The mean size is the chain's unit of time.
        let mean_response_s = self.sizes.mean_s() * solution.mean_in_system / self.load;
        let idle = 1.0 - self.load;
        let error = (solution.below[0] - idle).abs();
        // A comparison with NaN is false.
        if error <= TOLERANCE * idle && mean_response_s.is_finite() {
            Ok(Stationary { mean_response_s, ..solution })
        } else {
            Err(ResponseTimeError::Imprecise)
        }
    }

    /// The lowest MPL whose mean response time is at most `allowed_increase`, a fraction, above
    /// [`LimitedSharing::unlimited_response_s`].
    ///
    /// # Errors
    /// When `allowed_increase` is not above 0, when [`HIGHEST_MPL`] does not suffice, and when
    /// rounding spoils an answer.
    pub fn lowest_mpl(&self, allowed_increase: f64) -> Result<Mpl, ResponseTimeError> {
        if !(allowed_increase > 0.0 && allowed_increase.is_finite()) {
            return Err(ResponseTimeError::Increase(allowed_increase));
        }
        let allowed_s = (1.0 + allowed_increase) * self.unlimited_response_s();
        let suffices = |mpl: u32| Ok(self.at(Mpl::at_least_one(mpl))?.mean_response_s <= allowed_s);
        let (mut too_low, mut enough) = (0, 1);
        while !suffices(enough)? {
            if enough == HIGHEST_MPL {
                return Err(ResponseTimeError::OutOfReach);
            }
            (too_low, enough) = (enough, (2 * enough).min(HIGHEST_MPL));
        }
        while enough - too_low > 1 {
            let middle = u32::midpoint(too_low, enough);
            if suffices(middle)? {
                enough = middle;
            } else {
                too_low = middle;
            }
        }
        Ok(Mpl::at_least_one(enough))
    }
}

/// The Markov chain at one MPL. Its unit of time is the mean size, so that all rates are of the
/// order of 1 and the answers do not depend on the unit of the sizes.
struct Chain {
    /// K.
    inside: usize,
    /// λ.
    arrivals: f64,
    /// p and q.
    probability: [f64; 2],
    /// µ1 and µ2.
    rate: [f64; 2],
}

impl Chain {
    fn new(system: &LimitedSharing, mpl: Mpl) -> Chain {
        let phases = system.sizes.phases();
        Chain {
            inside: mpl.get() as usize,
            arrivals: system.load,
            probability: phases.map(|HyperexponentialPhase { probability, .. }| probability),
            rate: phases.map(|HyperexponentialPhase { mean_s, .. }| system.sizes.mean_s() / mean_s),
        }
    }

    /// The rates at which transactions of kinds 1 and 2 end when `inside` share the database and
    /// `small` of them are of kind 1.
    fn ends(&self, small: usize, inside: usize) -> [f64; 2] {
        let share = |count: usize| count as f64 / inside.max(1) as f64;
        [self.rate[0] * share(small), self.rate[1] * share(inside - small)]
    }

    /// The rate at which a state with `inside` transactions sharing is left, −Local on its
    /// diagonal.
    fn leaving(&self, inside: usize) -> DVector<f64> {
        let ends = |small| self.ends(small, inside).iter().sum::<f64>();
        DVector::from_fn(inside + 1, |small, _| self.arrivals + ends(small))
    }

    /// A2: an end from level K + 1 and above, and the entry of the next in the queue.
    fn down(&self) -> DMatrix<f64> {
        let [p, q] = self.probability;
        let mut down = DMatrix::zeros(self.inside + 1, self.inside + 1);
        for small in 0..=self.inside {
            let [end_small, end_large] = self.ends(small, self.inside);
            down[(small, small)] = end_small * p + end_large * q;
            if small > 0 {
                down[(small, small - 1)] = end_small * q;
            }
            if small < self.inside {
                down[(small, small + 1)] = end_large * p;
            }
        }
        down
    }

    /// G by logarithmic reduction. Names as in Latouche and Ramaswami (1993): H and L lead up and
    /// down one level of those in view, T reaches the first level by levels seen so far.
    fn first_passage(&self) -> Option<DMatrix<f64>> {
        let leaving = self.leaving(self.inside);
        let size = leaving.len();
        let mut low = self.down();
        for (mut row, rate) in low.row_iter_mut().zip(leaving.iter()) {
            row /= *rate;
        }
        let mut high = DMatrix::from_diagonal(&leaving.map(|rate| self.arrivals / rate));
        let (mut passage, mut reach) = (low.clone(), high.clone());
        for _ in 0..ROUNDS {
            let stay = DMatrix::identity(size, size) - &high * &low - &low * &high;
            let stay = stay.lu();
            high = stay.solve(&(&high * &high))?;
            low = stay.solve(&(&low * &low))?;
            let more = &reach * &low;
            reach *= &high;
            passage += &more;
            if more.amax() <= ENOUGH {
                return Some(passage);
            }
        }
        None
    }

    /// The stationary distribution, with no mean response time yet.
    fn solve(&self) -> Option<Stationary> {
        let passage = self.first_passage()?;
        let local = DMatrix::from_diagonal(&self.leaving(self.inside));
        let at_top = (local - passage * self.arrivals).try_inverse()?;
        let ratio = &at_top * self.arrivals;
        let upward = self.upward_ratios(at_top)?;

        let mut state = RowDVector::from_element(1, 1.0);
        let mut below = Vec::with_capacity(self.inside);
        for step in upward.iter().rev() {
            below.push(state.sum());
            state *= step;
        }
        // π(K)·(I − R)⁻¹ is the sum of the levels from K on; once more, each times its distance +
        // 1.
        let rest = (DMatrix::identity(ratio.nrows(), ratio.ncols()) - ratio).transpose().lu();
        let from_top = rest.solve(&state.transpose())?;
        let full = from_top.sum();
        let beyond = rest.solve(&from_top)?.sum() - full;

        let total = below.iter().sum::<f64>() + full;
        let in_system = below.iter().zip(0_u32..).map(|(chance, n)| chance * f64::from(n));
        let mean = in_system.sum::<f64>() + full * self.inside as f64 + beyond;
        Some(Stationary {
            below: below.iter().map(|chance| chance / total).collect(),
            full: full / total,
            mean_in_system: mean / total,
            mean_response_s: 0.0,
        })
    }

    /// R(K) down to R(1), given the inverse of −U(K).
    fn upward_ratios(&self, at_top: DMatrix<f64>) -> Option<Vec<DMatrix<f64>>> {
        let [p, q] = self.probability;
        let mut ratios = Vec::with_capacity(self.inside);
        let mut inverse = at_top;
        for level in (1..=self.inside).rev() {
            let ratio = DMatrix::from_fn(level, level + 1, |small, to| {
                self.arrivals * (q * inverse[(small, to)] + p * inverse[(small + 1, to)])
            });
            let mut local = DMatrix::from_diagonal(&self.leaving(level - 1));
            for to in 0..level {
                let stays = self.ends(to, level)[1];
                let leaves = self.ends(to + 1, level)[0];
                for small in 0..level {
                    local[(small, to)] -=
                        ratio[(small, to)] * stays + ratio[(small, to + 1)] * leaves;
                }
            }
            ratios.push(ratio);
            if level > 1 {
                inverse = local.try_inverse()?;
            }
        }
        Some(ratios)
    }
}
