//! What a controller that is not obeyed would do, and what that is believed to be worth.

use std::fmt;

use crate::{Mpl, Reason};

/// What a controller would set, why, and what is believed of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    /// The algorithm that would set it.
    pub algorithm: &'static str,
    /// The limit that it would set.
    pub limit: Mpl,
    /// The rule by which the algorithm chose the limit.
    pub reason: Reason,
    /// What that limit is believed to gain over the present population.
    pub gain: Gain,
    /// The limit that is believed to be best, whatever the algorithm says.
    pub best: Best,
    /// What the best limit is believed to gain over the present population.
    pub best_gain: Gain,
}

/// What a limit is believed to gain: throughput at the limit over that of the present population,
/// less 1, so that 0.1 is 10 % more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// Something is known of it.
    Known {
        /// The median of what is believed.
        share: f64,
        /// The lower end of the 90 % interval.
        low: f64,
        /// The upper end of the 90 % interval.
        high: f64,
        /// The population that it is compared with, in the mean of the last interval.
        running: f64,
        /// The lowest population seen.
        lowest: Mpl,
        /// The highest population seen.
        highest: Mpl,
    },
    /// The limit would hold nobody back now.
    NotBinding {
        /// The present population, in the mean of the last interval.
        running: f64,
    },
    /// Nothing that can be said.
    NotKnown(NotKnown),
}

/// The limit that is believed to be best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Best {
    /// This one.
    Limit {
        /// The limit.
        limit: Mpl,
    },
    /// None: throughput does not fall up to the highest population seen.
    Open {
        /// The highest population seen.
        highest: Mpl,
    },
    /// Nothing that can be said.
    NotKnown(NotKnown),
}

/// Why something is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NotKnown {
    /// No interval yet in which the population was steady.
    Nothing,
    /// The population hardly varied.
    Narrow {
        /// The lowest population seen.
        lowest: Mpl,
        /// The highest population seen.
        highest: Mpl,
    },
    /// The population has gone too seldom between the levels to be compared.
    Seldom {
        /// How often it has, up or down.
        crossings: u32,
    },
    /// The limit is lower than every population seen.
    Below {
        /// The lowest population seen.
        lowest: Mpl,
        /// The highest population seen.
        highest: Mpl,
    },
    /// What was seen fits too much.
    Wide {
        /// The lower end of the 90 % interval of the gain.
        low: f64,
        /// The upper end of the 90 % interval of the gain.
        high: f64,
    },
    /// The best of what was seen is not told apart from the lowest population, so that one lower
    /// still may be better.
    Edge {
        /// The lowest population seen.
        lowest: Mpl,
    },
    /// What was seen leaves several limits that may be best.
    Several {
        /// The most that another limit may be better than the likeliest, a share.
        better: f64,
    },
}

impl fmt::Display for Proposal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Proposal { limit, reason, gain, best, best_gain, .. } = self;
        write!(formatter, "would set {limit} ({reason}); believed gain {gain}; best {best}")?;
        match best {
            Best::Limit { .. } => write!(formatter, ", gain {best_gain}"),
            Best::Open { .. } | Best::NotKnown(_) => Ok(()),
        }
    }
}

impl fmt::Display for Gain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Gain::Known { share, low, high, running, lowest, highest } => write!(
                formatter,
                "{} (90 % interval {} to {}) over the {running:.0} that run now, from levels \
                 seen {lowest} to {highest}",
                Percent(share),
                Percent(low),
                Percent(high)
            ),
            Gain::NotBinding { running } => {
                write!(formatter, "nothing now: only {running:.0} run")
            }
            Gain::NotKnown(why) => write!(formatter, "not known: {why}"),
        }
    }
}

impl fmt::Display for Best {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Best::Limit { limit } => write!(formatter, "believed {limit}"),
            Best::Open { highest } => write!(
                formatter,
                "no limit: throughput does not fall up to the highest level seen, {highest}"
            ),
            Best::NotKnown(why) => write!(formatter, "not known: {why}"),
        }
    }
}

impl fmt::Display for NotKnown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            NotKnown::Nothing => formatter.write_str("no steady population was seen yet"),
            NotKnown::Narrow { lowest, highest } => {
                write!(formatter, "the population was between {lowest} and {highest} all the time")
            }
            NotKnown::Seldom { crossings } => write!(
                formatter,
                "the population has gone up or down between them only {crossings} times"
            ),
            NotKnown::Below { lowest, highest } => write!(
                formatter,
                "no population as low as the limit was seen, only {lowest} to {highest}"
            ),
            NotKnown::Wide { low, high } => write!(
                formatter,
                "what was seen fits anything from {} to {}",
                Percent(low),
                Percent(high)
            ),
            NotKnown::Edge { lowest } => write!(
                formatter,
                "the lowest population seen, {lowest}, may be the best, and a lower one better \
                 still"
            ),
            NotKnown::Several { better } => {
                write!(formatter, "another limit may be better by {}", Percent(better))
            }
        }
    }
}

/// A relative change in per cent, with its sign.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:+.0} %", self.0 * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposals_read_well_in_a_log_line() {
        let [three, five, twelve] = [3, 5, 12].map(Mpl::at_least_one);
        let narrow = NotKnown::Narrow { lowest: three, highest: five };
        let known = Gain::Known {
            share: 0.312,
            low: -0.02,
            high: 0.68,
            running: 180.4,
            lowest: three,
            highest: Mpl::at_least_one(200),
        };
        let proposal = Proposal {
            algorithm: "fixed",
            limit: twelve,
            reason: Reason::Fixed,
            gain: known,
            best: Best::NotKnown(narrow),
            best_gain: Gain::NotKnown(narrow),
        };
        assert_eq!(
            proposal.to_string(),
            "would set 12 (fixed); believed gain +31 % (90 % interval -2 % to +68 %) over the 180 \
             that run now, from levels seen 3 to 200; best not known: the population was between \
             3 and 5 all the time"
        );
        let light = Gain::NotBinding { running: 2.0 };
        let best = Best::Limit { limit: five };
        let proposal = Proposal { gain: light, best, best_gain: light, ..proposal };
        assert_eq!(
            proposal.to_string(),
            "would set 12 (fixed); believed gain nothing now: only 2 run; best believed 5, gain \
             nothing now: only 2 run"
        );
    }
}
