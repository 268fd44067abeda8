//! The distributions that the benchmark's parameters name.

use tidegate_random::SplitMix64;

/// How often a child is repeated: `least` plus an exponential number, rounded, at most `most`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Repetition {
    /// Smallest number of children.
    pub least: u32,
    /// Mean of the exponential number before it is rounded.
    pub mean_added: f64,
    /// Largest number of children.
    pub most: u32,
}

impl Repetition {
    pub(super) const fn new(least: u32, mean_added: f64, most: u32) -> Repetition {
        Repetition { least, mean_added, most }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and at most the largest `u32`"
    )]
    pub(super) fn draw(&self, random: &mut SplitMix64) -> u32 {
        let added = (random.next_exponential() * self.mean_added).round() as u32;
        self.least.saturating_add(added).min(self.most)
    }

    /// Returns the probability of each number of children from `least` to `most`.
    #[must_use]
    pub fn probabilities(&self) -> Vec<f64> {
        let above = |added: u32| match added {
            0 => 1.0,
            added => libm::exp(-(f64::from(added) - 0.5) / self.mean_added),
        };
        let last = self.most - self.least;
        let of = |added| if added == last { above(last) } else { above(added) - above(added + 1) };
        (0..=last).map(of).collect()
    }
}

/// Returns an index below `count` from a normal distribution over the share of the whole.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share from 0 to below 1 of the count"
)]
pub(super) fn normal_index(random: &mut SplitMix64, count: u64, mean: f64, deviation: f64) -> u64 {
    loop {
        let share = mean + deviation * random.next_normal();
        if (0.0..1.0).contains(&share) {
            return ((share * count as f64) as u64).min(count - 1);
        }
    }
}

/// Returns an index below `count`, all equally likely.
pub(super) fn uniform_index(random: &mut SplitMix64, count: u64) -> u64 {
    let share = u128::from(random.next_bits()) * u128::from(count);
    u64::try_from(share >> 64).unwrap_or_default()
}

/// Returns an exponential amount of money in cents, at least `least`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and an exponential draw is below 40 times its mean"
)]
pub(super) fn cents(random: &mut SplitMix64, least: u64, mean_added: f64) -> u64 {
    least + (random.next_exponential() * mean_added).round() as u64
}

/// Returns cents as an amount with two decimals.
pub(super) fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// Returns the length of a month, from 1 to 12.
fn days(month: u32, year: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => {
            29
        }
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns a date in the years from `first` to `last` as `MM/DD/YYYY`.
pub(super) fn date(random: &mut SplitMix64, first: u32, last: u32) -> String {
    let year = first + random.next_below(last - first + 1);
    let month = 1 + random.next_below(12);
    let day = 1 + random.next_below(days(month, year));
    format!("{month:02}/{day:02}/{year}")
}

/// Returns a time of day as `HH:MM:SS`.
pub(super) fn time(random: &mut SplitMix64) -> String {
    let second = random.next_below(24 * 60 * 60);
    format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}
