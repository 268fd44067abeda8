//! Where transactions enter the document: a normal distribution around the middle.

use thiserror::Error;
use tidegate_random::SplitMix64;

/// A place among things that are in order: the share of them that is in front of it, from 0 to
/// below 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Quantile(f64);

impl Quantile {
    /// Returns the place of a share, if it is from 0 to below 1.
    pub fn new(share: f64) -> Option<Quantile> {
        (0.0..1.0).contains(&share).then_some(Quantile(share))
    }

    /// Returns a place of which all are equally likely.
    pub(super) fn uniform(random: &mut SplitMix64) -> Quantile {
        Quantile(random.next_draw().value())
    }

    pub fn share(self) -> f64 {
        self.0
    }

    /// Returns the number, counted from 0, that the place has among so many; 0 among none.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share from 0 to below 1 of the count"
    )]
    pub fn index(self, count: usize) -> usize {
        ((self.0 * count as f64) as usize).min(count.saturating_sub(1))
    }
}

/// How much the places at which transactions enter crowd in the middle: 1 less the relative
/// standard deviation of a normal distribution around the middle (Section 3.3 of the study).
///
/// The deviation is relative to the mean, which is half of the entries. So about 68 % of the
/// transactions enter in the middle `1 - skew` of the entries, as the study says of 0.99. What the
/// distribution has outside of the document is drawn again; with a skew of 0.5 that is 4.6 %.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Skew(f64);

/// A skew that is not from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("the skew is {0}; choose one from 0 to 1")]
pub struct SkewError(pub f64);

impl Skew {
    /// 0.50, the study's low skew.
    pub const LOW: Skew = Skew(0.50);
    /// 0.99, the study's high skew.
    pub const HIGH: Skew = Skew(0.99);

    /// # Errors
    /// It is not from 0 to 1.
    pub fn new(skew: f64) -> Result<Skew, SkewError> {
        if (0.0..=1.0).contains(&skew) { Ok(Skew(skew)) } else { Err(SkewError(skew)) }
    }

    pub fn value(self) -> f64 {
        self.0
    }

    /// The standard deviation as a share of all entries.
    pub fn deviation(self) -> f64 {
        (1.0 - self.0) / 2.0
    }
}

/// The places at which a transaction enters: the first one, and those that it tries when it finds
/// that the node there is gone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EntryDraw {
    pub skew: Skew,
    pub seed: u64,
}

impl EntryDraw {
    /// Returns the places, without end and the same each time.
    pub fn quantiles(self) -> impl Iterator<Item = Quantile> {
        let mut random = SplitMix64::new(self.seed);
        let deviation = self.skew.deviation();
        std::iter::repeat_with(move || 0.5 + deviation * random.next_normal())
            .filter_map(Quantile::new)
    }
}
