//! What a transaction locks, to which level, and from when on many locks become one.

use std::num::NonZeroU32;

/// What a transaction locks of documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum LockGranularity {
    /// A document as a whole.
    #[default]
    Document,
    /// Nodes, with intentions on their ancestors, and gaps between nodes.
    Nodes,
    /// As [`Nodes`](LockGranularity::Nodes) down to this level, the lock depth. What is deeper is
    /// locked by its ancestor on that level, mostly with all that is below it. The root element is
    /// on level 0.
    NodesToLevel(u32),
}

impl LockGranularity {
    /// Returns whether nodes are locked, and not the document.
    pub(super) fn locks_nodes(self) -> bool {
        self != LockGranularity::Document
    }

    /// Returns the deepest level on which something is locked, if there is one.
    pub(super) fn depth(self) -> Option<u32> {
        match self {
            LockGranularity::NodesToLevel(depth) => Some(depth),
            LockGranularity::Document | LockGranularity::Nodes => None,
        }
    }
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
    /// How many fewer requests suffice on each level, in percent.
    pub gain_percent: NonZeroU32,
}

impl LockEscalation {
    /// 1,920 requests below the root element, 240 on level 3.
    pub const MODERATE: LockEscalation = LockEscalation::study(100);
    /// 1,371 requests below the root element, 171 on level 3.
    pub const EAGER: LockEscalation = LockEscalation::study(140);
    /// 960 requests below the root element, 120 on level 3.
    pub const AGGRESSIVE: LockEscalation = LockEscalation::study(200);

    const fn study(gain_percent: u32) -> LockEscalation {
        let gain_percent = NonZeroU32::new(gain_percent).expect("a gain is above 0");
        LockEscalation { requests: 1_920, gain_percent }
    }

    /// Returns from how many requests below a node on `level` it is locked as a whole:
    /// `requests / (2^level * gain)`, at least 1.
    #[must_use]
    pub fn threshold(self, level: u32) -> u32 {
        let at_root = u64::from(self.requests) * 100 / u64::from(self.gain_percent.get());
        let threshold = at_root.checked_shr(level).unwrap_or(0).max(1);
        u32::try_from(threshold).unwrap_or(u32::MAX)
    }

    /// Returns it as a number, for an atomic variable.
    pub(super) fn to_bits(escalation: Option<LockEscalation>) -> u64 {
        escalation.map_or(0, |LockEscalation { requests, gain_percent }| {
            u64::from(requests) << 32 | u64::from(gain_percent.get())
        })
    }

    pub(super) fn from_bits(bits: u64) -> Option<LockEscalation> {
        let [requests, gain] = [bits >> 32, bits & u64::from(u32::MAX)];
        let half = |half: u64| u32::try_from(half).expect("it is half of the number");
        let gain_percent = NonZeroU32::new(half(gain))?;
        Some(LockEscalation { requests: half(requests), gain_percent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_those_of_the_study() {
        for (escalation, thresholds) in [
            (LockEscalation::MODERATE, [1920, 960, 480, 240, 120, 60, 30]),
            (LockEscalation::EAGER, [1371, 685, 342, 171, 85, 42, 21]),
            (LockEscalation::AGGRESSIVE, [960, 480, 240, 120, 60, 30, 15]),
        ] {
            let found: Vec<u32> = (0..7).map(|level| escalation.threshold(level)).collect();
            assert_eq!(found, thresholds);
            let kept = LockEscalation::from_bits(LockEscalation::to_bits(Some(escalation)));
            assert_eq!(kept, Some(escalation));
        }
        assert_eq!(LockEscalation::AGGRESSIVE.threshold(u32::MAX), 1);
        assert_eq!(LockEscalation::from_bits(LockEscalation::to_bits(None)), None);
    }
}
