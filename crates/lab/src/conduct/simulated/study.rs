//! Batchsets of the thrashing study on the simulated subject: throughput that collapses at an MPL
//! that depends on the study's factors, in the directions that the study found.
//!
//! # Mechanism
//! X(N) = λ · N / (N + 50) · (1 − 0.6 / (1 + e^((T − N) / 20))), a saturating curve that loses 60 %
//! around N = T. With p = log₂ of the processors and k = 1 with a primary key and 0 without:
//!
//! | group | ln λ | T |
//! | --- | --- | --- |
//! | read | ln 400 + 0.15 p + 0.4 k + 0.5 ε | 700 + 120 p + 150 k + 120 ln(λ / 400) + 250 δ |
//! | update | ln 200 + 0.15 p + 0.5 ε | 700 − 120 p + 60 ln(λ / 200) + 250 δ |
//!
//! ε and δ are normal, drawn once for a batchset of a run. T is 130 at least. By Little's law
//! ATPT is as 1 / λ. So in both groups processors shorten ATPT and a longer ATPT goes with a lower
//! thrashing point; processors raise it in the read group and lower it in the update group, as in
//! the study's refined model (Fig. 6). SF and ROSE matter no more than they do there.
//!
//! # Example
//! A read batchset with a primary key on two processors, ε = δ = 0: ln λ = ln 400 + 0.55, T = 700 +
//! 120 + 150 + 66 = 1,036: up to 1,000 clients it does not thrash.
//!
//! # Limits
//! To try analyses, not to learn anything: the numbers are made up.

use tidegate_workload::Random;

use super::normal;
use crate::experiment::workload::ThrashSpec;

/// Clients at which half of λ is reached.
const HALF: f64 = 50.0;

/// The share of throughput that is lost, and over how many clients.
const LOSS: f64 = 0.6;
const WIDTH: f64 = 20.0;

/// The least MPL of a collapse.
const COLLAPSE_MIN: f64 = 130.0;

/// A batchset's curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Collapse {
    lambda: f64,
    at: f64,
}

impl Collapse {
    /// The curve of a batchset in a run on so many processors.
    pub(super) fn of(spec: &ThrashSpec, run: u32, processors: u32) -> Self {
        let mut draw = Random::new(hash(&format!("{run} {spec:?}")), 0);
        let (epsilon, delta) = (normal(&mut draw), normal(&mut draw));
        Self::worked(spec, processors, epsilon, delta)
    }

    fn worked(spec: &ThrashSpec, processors: u32, epsilon: f64, delta: f64) -> Self {
        let doubled = libm::log2(f64::from(processors.max(1)));
        let key = f64::from(u8::from(spec.primary_key));
        let (base, more, at) = if spec.updates == 0 {
            let more = 0.15 * doubled + 0.4 * key + 0.5 * epsilon;
            (400.0, more, 700.0 + 120.0 * doubled + 150.0 * key + 120.0 * more)
        } else {
            let more = 0.15 * doubled + 0.5 * epsilon;
            (200.0, more, 700.0 - 120.0 * doubled + 60.0 * more)
        };
        let at = (at + 250.0 * delta).max(COLLAPSE_MIN);
        Collapse { lambda: base * libm::exp(more), at }
    }

    /// Transactions per second at an MPL.
    pub(super) fn throughput(self, mpl: u32) -> f64 {
        let n = f64::from(mpl);
        let lost = LOSS / (1.0 + libm::exp((self.at - n) / WIDTH));
        self.lambda * n / (n + HALF) * (1.0 - lost)
    }
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_workload::thrash::Placement;

    fn spec(updates: u16, primary_key: bool) -> ThrashSpec {
        let placement = Placement::default();
        let reads = 1 - updates;
        let (rows, sf, rose, changes, joins) = (30_000, 1.0, 100.0, 0, 0);
        ThrashSpec { rows, primary_key, sf, rose, placement, reads, updates, changes, joins }
    }

    #[test]
    fn factors_move_the_collapse_as_the_head_says() {
        // Updates, primary key, processors, ε, δ; λ and the MPL of the collapse.
        for (updates, key, processors, epsilon, delta, lambda, at) in [
            (0, true, 2, 0.0, 0.0, 400.0 * libm::exp(0.55), 1_036.0),
            (0, false, 1, 0.0, -1.0, 400.0, 450.0),
            (0, false, 1, 1.0, -1.0, 400.0 * libm::exp(0.5), 510.0),
            (1, true, 8, 0.0, 0.0, 200.0 * libm::exp(0.45), 367.0),
            (1, false, 8, 0.0, -1.0, 200.0 * libm::exp(0.45), 130.0),
        ] {
            let found = Collapse::worked(&spec(updates, key), processors, epsilon, delta);
            assert!((found.lambda / lambda - 1.0).abs() < 1e-9, "{found:?}");
            assert!((found.at - at).abs() < 1e-9, "{found:?}");
        }
    }

    #[test]
    fn throughput_falls_once_and_does_not_come_back() {
        let collapse = Collapse { lambda: 300.0, at: 450.0 };
        let tps: Vec<f64> = (1..=10).map(|step| collapse.throughput(100 * step)).collect();
        let sharp: Vec<usize> = (0..9).filter(|&i| tps[i] > 1.2 * tps[i + 1]).collect();
        assert_eq!(sharp, [3], "from 400 to 500: {tps:?}");
        assert!(tps[4..].iter().all(|&later| later < tps[3]));
    }

    #[test]
    fn a_batchset_is_the_same_again_and_another_in_another_run() {
        let of = |run| Collapse::of(&spec(0, true), run, 4);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
