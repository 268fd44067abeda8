//! Throughput against the MPL: a closed network of queues, solved by mean value analysis.
//!
//! # Mechanism
//! Inside the database N transactions circulate among stations, its processors and disks. A
//! transaction that ends is replaced at once by the next from the queue outside, so that their
//! number stays at N, the MPL (study, Section 4.1 and Figure 6). A station serves one transaction
//! at a time; its demand D is the seconds of work that a transaction brings to it, over all visits.
//!
//! Exact mean value analysis (Reiser and Lavenberg, 1980) adds transactions one by one. One that
//! arrives at a station finds there what the others would leave behind without it:
//!
//! ```text
//! R(N) = D·(1 + Q(N − 1))      for each station: the time spent there, waiting included
//! X(N) = N/(Z + Σ R(N))        throughput; Z is the time spent at no station
//! Q(N) = X(N)·R(N)             for each station: the transactions there
//! ```
//!
//! No throughput exceeds 1/max D: then the busiest station never rests.
//!
//! # Example
//! Two stations of 1 s each. One transaction: R = 1 + 1, X = 1/2, Q = 1/2 at each. Two: R = 1.5 +
//! 1.5, X = 2/3, Q = 1 at each. Three: X = 3/4. For M equal stations X(N)/X(∞) = N/(N + M − 1), so
//! that 80 % of the most takes 4(M − 1) transactions and 95 % takes 19(M − 1): the straight lines
//! of the study's Figure 7.
//!
//! # Where this leaves the study
//! * **Search.** The study finds the lowest MPL by binary search. The recursion passes through
//!   every smaller MPL on its way to N, so it stops at the first that suffices; to search would be
//!   to start it again and again.
//! * **Unequal stations** are allowed, as the study suggests. Equal ones, the study's choice, are
//!   the worst case: of all networks with the same stations and the same largest demand they need
//!   the highest MPL.
//! * **Think time** inside the transaction, a client's between two statements or a network's, is
//!   allowed too: a transaction holds its permit meanwhile.
//!
//! # Limits
//! * Product form: service times at a station are exponential where it serves in order of arrival
//!   (any distribution where it shares its time), and a transaction uses one station at a time. One
//!   that uses two disks at once needs a lower MPL than the model says.
//! * Locks are not in it. They make a database need fewer transactions, not more, and past some
//!   MPL throughput falls, which this curve never does.

use crate::Mpl;

/// The highest MPL that [`Network::lowest_mpl`] tries.
const HIGHEST: u32 = 1_000_000;

/// The recursion rounds: where throughput equals the target, as at 19(M − 1), it may come out lower
/// by some units in the sixteenth place.
const ROUNDING: f64 = 1e-9;

/// Equal stations of a database: so many processors, or so many disks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stations {
    /// How many; at least 1.
    pub count: u32,
    /// Work that a transaction brings to each, seconds; above 0.
    pub demand_s: f64,
}

/// A closed network of queues.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    stations: Vec<Stations>,
    think_s: f64,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ThroughputError {
    /// No kind of station, or a kind without any.
    #[error("a network needs at least one station of each kind given")]
    NoStations,
    /// A demand that no station can have.
    #[error(
        "a station's demand must be a number of seconds above 0, not {0}: leave out a station that \
         no transaction visits"
    )]
    Demand(f64),
    /// A think time that nobody can have.
    #[error("the think time must be a number of seconds, 0 or above, not {0}")]
    ThinkTime(f64),
    /// A loss that is no fraction.
    #[error("the loss must be between 0 and 1, not {0}: 0.05 is 5 %")]
    Loss(f64),
    /// The loss is kept by no MPL that is worth trying.
    #[error("no MPL up to {HIGHEST} keeps so small a loss")]
    OutOfReach,
}

/// A network at one MPL.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkPopulation {
    /// Transactions inside, N.
    pub mpl: Mpl,
    /// Throughput, X(N), transactions per second.
    pub throughput_tps: f64,
    /// Time at all stations, Σ R(N), seconds; think time is not in it.
    pub response_time_s: f64,
    /// Transactions at one station of each kind, Q(N), in the order of the kinds.
    pub queue_lengths: Vec<f64>,
}

impl Network {
    /// Stations of each kind in `stations`, and `think_s` seconds that a transaction spends at none
    /// of them.
    ///
    /// # Errors
    /// When there is no station, and when a demand or the think time cannot be one.
    pub fn new(stations: &[Stations], think_s: f64) -> Result<Network, ThroughputError> {
        if stations.is_empty() || stations.iter().any(|kind| kind.count == 0) {
            return Err(ThroughputError::NoStations);
        }
        let is_demand = |demand: f64| demand > 0.0 && demand.is_finite();
        if let Some(wrong) = stations.iter().find(|kind| !is_demand(kind.demand_s)) {
            return Err(ThroughputError::Demand(wrong.demand_s));
        }
        if !(think_s >= 0.0 && think_s.is_finite()) {
            return Err(ThroughputError::ThinkTime(think_s));
        }
        Ok(Network { stations: stations.to_vec(), think_s })
    }

    /// The study's network: `count` equal stations, 1 s each, and no think time.
    ///
    /// # Errors
    /// When `count` is 0.
    pub fn balanced(count: u32) -> Result<Network, ThroughputError> {
        Network::new(&[Stations { count, demand_s: 1.0 }], 0.0)
    }

    /// What no MPL exceeds, X(∞) = 1/max D, transactions per second.
    #[must_use]
    pub fn limit_tps(&self) -> f64 {
        1.0 / self.stations.iter().map(|kind| kind.demand_s).fold(0.0, f64::max)
    }

    /// The network at `mpl`. The time this takes grows with `mpl` times the kinds of stations.
    #[must_use]
    pub fn at(&self, mpl: Mpl) -> NetworkPopulation {
        let mut population = self.empty();
        for level in 1..=mpl.get() {
            self.add_one(&mut population, level);
        }
        population
    }

    /// The lowest MPL whose throughput is within `loss`, a fraction, of [`Network::limit_tps`].
    ///
    /// # Errors
    /// When `loss` is not between 0 and 1, and when an MPL of a million does not suffice.
    pub fn lowest_mpl(&self, loss: f64) -> Result<Mpl, ThroughputError> {
        if !(loss > 0.0 && loss < 1.0) {
            return Err(ThroughputError::Loss(loss));
        }
        let enough_tps = (1.0 - loss) * (1.0 - ROUNDING) * self.limit_tps();
        let mut population = self.empty();
        for level in 1..=HIGHEST {
            self.add_one(&mut population, level);
            if population.throughput_tps >= enough_tps {
                return Ok(population.mpl);
            }
        }
        Err(ThroughputError::OutOfReach)
    }

    /// Nobody inside yet: where the recursion starts, and no answer.
    fn empty(&self) -> NetworkPopulation {
        NetworkPopulation {
            mpl: Mpl::ONE,
            throughput_tps: 0.0,
            response_time_s: 0.0,
            queue_lengths: vec![0.0; self.stations.len()],
        }
    }

    /// The step of the recursion from `level` − 1 transactions to `level`.
    fn add_one(&self, population: &mut NetworkPopulation, level: u32) {
        let kinds = || self.stations.iter().zip(&population.queue_lengths);
        let at_one = |(kind, queue): (&Stations, &f64)| kind.demand_s * (1.0 + queue);
        let response_time_s =
            kinds().map(|(kind, queue)| f64::from(kind.count) * at_one((kind, queue))).sum::<f64>();
        let throughput_tps = f64::from(level) / (self.think_s + response_time_s);
        for (kind, queue) in self.stations.iter().zip(&mut population.queue_lengths) {
            *queue = throughput_tps * at_one((kind, queue));
        }
        population.mpl = Mpl::at_least_one(level);
        population.throughput_tps = throughput_tps;
        population.response_time_s = response_time_s;
    }
}
