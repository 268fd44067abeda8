//! Throughput curves of random plants, each of a kind that databases have.

use crate::SplitMix64;

/// Throughput against the transactions inside, up to a factor.
pub type RandomShape = Box<dyn Fn(f64) -> f64>;

/// Draws N/(N + M − 1), the closed network of M equal stations, that thrashes from some level on.
#[must_use]
pub fn network(random: &mut SplitMix64) -> RandomShape {
    let stations = random.next_log_between(1.0, 30.0);
    let thrash_at = random.next_log_between(3.0, 1_500.0);
    let power = random.next_between(1.2, 2.2);
    Box::new(move |level| {
        level / (level + stations - 1.0) / (1.0 + libm::pow(level / thrash_at, power)).sqrt()
    })
}

/// Draws Gunther's scalability law: contention bounds throughput, coherence makes it fall.
#[must_use]
pub fn scalability(random: &mut SplitMix64) -> RandomShape {
    let contention = random.next_log_between(0.003, 0.5);
    let coherence = random.next_log_between(1e-7, 0.01);
    Box::new(move |level| {
        level / (1.0 + contention * (level - 1.0) + coherence * level * (level - 1.0))
    })
}

/// Draws a rise in proportion up to a level, at most `full_most`, a flat stretch and a fall.
#[must_use]
pub fn flat_then_falling(random: &mut SplitMix64, full_most: f64) -> RandomShape {
    let full = random.next_log_between(1.0, full_most);
    let falls_at = full + random.next_log_between(2.0, 600.0);
    let power = random.next_between(0.2, 1.2);
    Box::new(move |level| {
        level.min(full) / full / libm::pow(1.0 + (level / falls_at).powi(2), power)
    })
}

/// Draws the best at 2 to 6 transactions, with a loss of 5 to 20 % beside it, then a slow decline,
/// as of TPC-B on one branch. Below the best throughput rises with a power of at most `rise_most`.
#[must_use]
pub fn sharp_peak(random: &mut SplitMix64, rise_most: f64) -> RandomShape {
    let peak = random.next_between(2.0, 7.0).floor();
    let rise = random.next_between(0.4, rise_most);
    let drop = random.next_between(0.05, 0.2);
    let decline = random.next_between(0.014, 0.105);
    Box::new(move |level| {
        if level <= peak {
            libm::pow(level / peak, rise)
        } else {
            (1.0 - drop) * libm::exp(-decline * libm::log(level / peak).powi(2))
        }
    })
}
