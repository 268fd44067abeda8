//! What a controller that is not obeyed would do, and what that is believed to be worth.

use std::fmt;

use crate::reason::displayed;
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
    pub best: BelievedBest,
    /// What the best limit is believed to gain over the present population.
    pub best_gain: Gain,
}

displayed! {
    /// What a limit is believed to gain: throughput at the limit over that of the present
    /// population, less 1, so that 0.1 is 10 % more.
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
        } => "{:+.0} % (90 % interval {:+.0} % to {:+.0} %) over the {running:.0} that run now, \
              from levels seen {lowest} to {highest}",
            share * 100.0, low * 100.0, high * 100.0;
        /// The limit would hold nobody back now.
        NotBinding {
            /// The present population, in the mean of the last interval.
            running: f64,
        } => "nothing now: only {running:.0} run";
        /// Nothing that can be said.
        NotKnown(why: NotKnown) => "not known: {why}";
    }
}

displayed! {
    /// The limit that is believed to be best.
    pub enum BelievedBest {
        /// This one.
        Limit {
            /// The limit.
            limit: Mpl,
        } => "believed {limit}";
        /// None: throughput does not fall up to the highest population seen.
        Open {
            /// The highest population seen.
            highest: Mpl,
        } => "no limit: throughput does not fall up to the highest level seen, {highest}";
        /// Nothing that can be said.
        NotKnown(why: NotKnown) => "not known: {why}";
    }
}

displayed! {
    /// Why something is not known.
    pub enum NotKnown {
        /// No interval yet in which the population was steady.
        Nothing => "no steady population was seen yet";
        /// The population hardly varied.
        Narrow {
            /// The lowest population seen.
            lowest: Mpl,
            /// The highest population seen.
            highest: Mpl,
        } => "the population was between {lowest} and {highest} all the time";
        /// The population has gone too seldom between the levels to be compared.
        Seldom {
            /// How often it has, up or down.
            crossings: u32,
        } => "the population has gone up or down between them only {crossings} times";
        /// The limit is lower than every population seen.
        Below {
            /// The lowest population seen.
            lowest: Mpl,
            /// The highest population seen.
            highest: Mpl,
        } => "no population as low as the limit was seen, only {lowest} to {highest}";
        /// What was seen fits too much.
        Wide {
            /// The lower end of the 90 % interval of the gain.
            low: f64,
            /// The upper end of the 90 % interval of the gain.
            high: f64,
        } => "what was seen fits anything from {:+.0} % to {:+.0} %", low * 100.0, high * 100.0;
        /// The best of what was seen is not told apart from the lowest population, so that one
        /// lower still may be better.
        Edge {
            /// The lowest population seen.
            lowest: Mpl,
        } => "the lowest population seen, {lowest}, may be the best, and a lower one better still";
        /// What was seen leaves several limits that may be best.
        Several {
            /// The most that another limit may be better than the likeliest, a share.
            better: f64,
        } => "another limit may be better by {:+.0} %", better * 100.0;
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Proposal { limit, reason, gain, best, best_gain, .. } = self;
        write!(formatter, "would set {limit} ({reason}); believed gain {gain}; best {best}")?;
        match best {
            BelievedBest::Limit { .. } => write!(formatter, ", gain {best_gain}"),
            BelievedBest::Open { .. } | BelievedBest::NotKnown(_) => Ok(()),
        }
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
            best: BelievedBest::NotKnown(narrow),
            best_gain: Gain::NotKnown(narrow),
        };
        assert_eq!(
            proposal.to_string(),
            "would set 12 (fixed); believed gain +31 % (90 % interval -2 % to +68 %) over the 180 \
             that run now, from levels seen 3 to 200; best not known: the population was between \
             3 and 5 all the time"
        );
        let light = Gain::NotBinding { running: 2.0 };
        let best = BelievedBest::Limit { limit: five };
        let proposal = Proposal { gain: light, best, best_gain: light, ..proposal };
        assert_eq!(
            proposal.to_string(),
            "would set 12 (fixed); believed gain nothing now: only 2 run; best believed 5, gain \
             nothing now: only 2 run"
        );
    }
}
