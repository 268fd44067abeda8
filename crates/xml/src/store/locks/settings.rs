//! How a transaction locks: by which protocol, to which level, and from when on many locks become
//! one.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use thiserror::Error;
use tidegate_engine::lock::EscalationPolicy;

use super::protocol::LockProtocol;

/// How a transaction locks documents. By default it locks them as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locking {
    /// The protocol.
    pub protocol: LockProtocol,
    /// The lock depth: the deepest level on which something is locked. What is deeper is locked by
    /// its ancestor there, mostly with all that is below that. The root element is on level 0.
    /// `None` for no bound.
    pub depth: Option<u32>,
    /// From when on many locks become one; `None` for never.
    pub escalation: Option<LockEscalation>,
    /// Whether the time that requests take is measured, for
    /// [`LockFigures::request_time`](super::LockFigures::request_time).
    pub is_timed: bool,
}

impl Default for Locking {
    fn default() -> Locking {
        Locking::by(LockProtocol::document())
    }
}

impl Locking {
    /// Locks by a protocol, to any depth and without escalation.
    #[must_use]
    pub fn by(protocol: LockProtocol) -> Locking {
        Locking { protocol, depth: None, escalation: None, is_timed: false }
    }

    /// Sets the lock depth.
    #[must_use]
    pub fn to_depth(self, depth: u32) -> Locking {
        Locking { depth: Some(depth), ..self }
    }

    /// Sets the escalation.
    #[must_use]
    pub fn escalating(self, escalation: LockEscalation) -> Locking {
        Locking { escalation: Some(escalation), ..self }
    }

    /// Has the time of requests measured.
    #[must_use]
    pub fn timed(self) -> Locking {
        Locking { is_timed: true, ..self }
    }

    /// Returns the deepest level on which something is locked, if there is one.
    pub(in crate::store) fn depth_max(&self) -> Option<u32> {
        let both = [self.depth, self.protocol.depth_max()];
        both.into_iter().flatten().min()
    }
}

/// A text that does not say how to lock.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} does not say how to lock; write a protocol ({names}), and behind strokes a lock depth, \
     an escalation (none, moderate, eager, aggressive) and its reading (formula, sentence), as in \
     taDOM3+/3/aggressive", names = LockProtocol::NAMES.join(", ")
)]
pub struct LockingError(String);

/// Written as `taDOM3+/3/aggressive/sentence`: protocol, lock depth, escalation, and its reading;
/// what is not said is unbounded, none, and the formula.
impl FromStr for Locking {
    type Err = LockingError;

    fn from_str(text: &str) -> Result<Locking, LockingError> {
        let unknown = || LockingError(text.to_owned());
        let mut words = text.split('/');
        let protocol = words.next().and_then(LockProtocol::named).ok_or_else(unknown)?;
        let mut locking = Locking::by(protocol);
        for word in words {
            match (word, &mut locking.escalation) {
                ("none", escalation) => *escalation = None,
                ("sentence", Some(escalation)) => escalation.reading = EscalationReading::Sentence,
                ("formula", Some(escalation)) => escalation.reading = EscalationReading::Formula,
                (word, escalation) => match LockEscalation::named(word) {
                    Some(found) => *escalation = Some(found),
                    None => locking.depth = Some(word.parse().map_err(|_| unknown())?),
                },
            }
        }
        Ok(locking)
    }
}

impl fmt::Display for Locking {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.protocol.name())?;
        if let Some(depth) = self.depth {
            write!(formatter, "/{depth}")?;
        }
        let Some(escalation) = self.escalation else { return Ok(()) };
        match escalation.name() {
            Some(name) => write!(formatter, "/{name}")?,
            None => write!(formatter, "/{escalation:?}")?,
        }
        let is_formula = escalation.reading == EscalationReading::Formula;
        formatter.write_str(if is_formula { "" } else { "/sentence" })
    }
}

/// Levels that are told apart by the threshold of an escalation.
const LEVELS_MAX: u32 = 1_000;

/// How the threshold of an escalation falls with the level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum EscalationReading {
    /// As the study's formula: `requests / (2^level * gain)`.
    #[default]
    Formula,
    /// As the sentence behind the formula: the gain is how the threshold changes from one level to
    /// the next, `requests / (2 * gain)^level`.
    Sentence,
}

/// From how many requests of a transaction below a node the node is locked as a whole, as far as
/// nobody is in the way. Requests below a node are locks on its children, attributes and the gaps
/// between them, and repeated requests for the node itself.
///
/// The values of the constants and the formula are those of the study of `BrackitDB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockEscalation {
    /// Requests below the root element, at a gain of 100 %.
    pub requests: u32,
    /// How many fewer requests suffice, in percent; below 2^31.
    pub gain_percent: NonZeroU32,
    /// What the gain does.
    pub reading: EscalationReading,
}

/// The study's policies.
const POLICIES: [(&str, LockEscalation); 3] = [
    ("moderate", LockEscalation::MODERATE),
    ("eager", LockEscalation::EAGER),
    ("aggressive", LockEscalation::AGGRESSIVE),
];

impl LockEscalation {
    /// 1,920 requests below the root element, 240 on level 3.
    pub const MODERATE: LockEscalation = LockEscalation::study(100);
    /// 1,371 requests below the root element, 171 on level 3.
    pub const EAGER: LockEscalation = LockEscalation::study(140);
    /// 960 requests below the root element, 120 on level 3.
    pub const AGGRESSIVE: LockEscalation = LockEscalation::study(200);

    const fn study(gain_percent: u32) -> LockEscalation {
        let gain_percent = NonZeroU32::new(gain_percent).expect("a gain is above 0");
        LockEscalation { requests: 1_920, gain_percent, reading: EscalationReading::Formula }
    }

    /// Returns the study's policy of a name.
    fn named(name: &str) -> Option<LockEscalation> {
        POLICIES.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy)
    }

    /// Returns its name, if it is a policy of the study.
    fn name(self) -> Option<&'static str> {
        let formula = self.read_as(EscalationReading::Formula);
        POLICIES.iter().find(|(_, policy)| *policy == formula).map(|(name, _)| *name)
    }

    /// Returns the same with a reading of the study.
    #[must_use]
    pub fn read_as(self, reading: EscalationReading) -> LockEscalation {
        LockEscalation { reading, ..self }
    }

    /// Returns from how many requests below a node on `level` it is locked as a whole, at least 1.
    #[must_use]
    pub fn threshold(self, level: u32) -> u32 {
        let gain = u64::from(self.gain_percent.get());
        let threshold = match self.reading {
            EscalationReading::Formula => {
                (u64::from(self.requests) * 100 / gain).checked_shr(level).unwrap_or(0)
            }
            EscalationReading::Sentence => {
                let (mut above, mut below) = (u128::from(self.requests), 1_u128);
                for _ in 0..level.min(LEVELS_MAX) {
                    let next = (above.checked_mul(50), below.checked_mul(gain.into()));
                    (above, below) = match next {
                        _ if above < below => break,
                        (Some(above), Some(below)) => (above, below),
                        _ => (above / below, 1),
                    };
                }
                u64::try_from(above / below).unwrap_or(u64::MAX)
            }
        };
        u32::try_from(threshold.max(1)).unwrap_or(u32::MAX)
    }

    /// Returns it as a number, for the engine.
    pub(super) fn to_policy(escalation: Option<LockEscalation>) -> EscalationPolicy {
        EscalationPolicy(escalation.map_or(0, |escalation| {
            let LockEscalation { requests, gain_percent, reading } = escalation;
            let reading = u64::from(reading == EscalationReading::Sentence);
            u64::from(requests) << 32 | u64::from(gain_percent.get()) << 1 | reading
        }))
    }

    pub(super) fn from_policy(EscalationPolicy(bits): EscalationPolicy) -> Option<LockEscalation> {
        let half = |half: u64| u32::try_from(half).expect("it is half of the number");
        let gain_percent = NonZeroU32::new(half(bits >> 1 & u64::from(u32::MAX >> 1)))?;
        let sentence = bits & 1 == 1;
        let reading =
            if sentence { EscalationReading::Sentence } else { EscalationReading::Formula };
        Some(LockEscalation { requests: half(bits >> 32), gain_percent, reading })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_those_of_the_study() {
        use EscalationReading::{Formula, Sentence};
        for (escalation, reading, thresholds) in [
            (LockEscalation::MODERATE, Formula, [1920, 960, 480, 240, 120, 60, 30]),
            (LockEscalation::MODERATE, Sentence, [1920, 960, 480, 240, 120, 60, 30]),
            (LockEscalation::EAGER, Formula, [1371, 685, 342, 171, 85, 42, 21]),
            (LockEscalation::EAGER, Sentence, [1920, 685, 244, 87, 31, 11, 3]),
            (LockEscalation::AGGRESSIVE, Formula, [960, 480, 240, 120, 60, 30, 15]),
            (LockEscalation::AGGRESSIVE, Sentence, [1920, 480, 120, 30, 7, 1, 1]),
        ] {
            let escalation = escalation.read_as(reading);
            let found: Vec<u32> = (0..7).map(|level| escalation.threshold(level)).collect();
            assert_eq!(found, thresholds, "{escalation:?}");
            let kept = LockEscalation::from_policy(LockEscalation::to_policy(Some(escalation)));
            assert_eq!(kept, Some(escalation));
            assert_eq!(escalation.threshold(u32::MAX), 1);
        }
        assert_eq!(LockEscalation::from_policy(LockEscalation::to_policy(None)), None);
    }

    #[test]
    fn a_way_to_lock_is_read_as_it_was_written() {
        for text in [
            "document",
            "X",
            "MGL/3",
            "taDOM3+",
            "taDOM3+/0/eager",
            "taDOM3+/3/aggressive/sentence",
            "taDOM3+/moderate",
        ] {
            let locking: Locking = text.parse().expect(text);
            assert_eq!(locking.to_string(), text);
        }
        assert_eq!("tadom3+/none".parse::<Locking>(), Ok(Locking::by(LockProtocol::tadom())));
        for text in ["", "taDOM", "MGL/", "MGL/-1", "MGL/sentence", "MGL/3/often"] {
            assert_eq!(text.parse::<Locking>(), Err(LockingError(text.to_owned())));
        }
    }
}
