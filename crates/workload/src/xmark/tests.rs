//! Draws of the auction site's clients, and what a session without an XML store says.

use super::*;
use crate::workload::Transaction;
use crate::{Connection, Reply, Statement, Wants, finish};
use std::collections::HashSet;
use std::sync::Arc;

const SEED: u64 = 20_261_124;

fn drawn(workload: Xmark, number: usize, count: usize) -> Vec<AuctionTransaction> {
    let mut client = workload.client(number, 8, SEED);
    (0..count).map(|_| client.next().auction().expect("it is one on auctions").clone()).collect()
}

/// The probability that a normal draw is at most so many deviations from its mean.
fn within(deviations: f64) -> f64 {
    libm::erf(deviations / std::f64::consts::SQRT_2)
}

#[test]
fn entries_follow_the_normal_distribution_of_their_skew() {
    const DRAWS: usize = 200_000;
    println!("seed {SEED}");
    for skew in [Skew::LOW, Skew::HIGH, Skew::new(0.0).unwrap(), Skew::new(0.9).unwrap()] {
        let mut random = tidegate_random::SplitMix64::new(SEED);
        let quantiles: Vec<f64> = (0..DRAWS)
            .map(|_| EntryDraw { skew, seed: random.next_bits() })
            .map(|draw| draw.quantiles().next().expect("there is no end").share())
            .collect();
        // What is more than half of the document away is drawn again.
        let inside = within(0.5 / skew.deviation());
        for share in [0.25, 0.5, 0.75, 1.0, 1.5, 2.0] {
            let half = share * (1.0 - skew.value()) / 2.0;
            let expected = within(share).min(inside) / inside;
            let found = quantiles.iter().filter(|place| (**place - 0.5).abs() < half).count();
            let error = (expected * (1.0 - expected) / DRAWS as f64).sqrt();
            let found = found as f64 / DRAWS as f64;
            assert!((found - expected).abs() <= 5.0 * error, "{skew:?} {share} {found} {expected}");
        }
        let mean = quantiles.iter().sum::<f64>() / DRAWS as f64;
        assert!((mean - 0.5).abs() < 5.0 * skew.deviation() / (DRAWS as f64).sqrt(), "{mean}");
    }
}

#[test]
fn two_thirds_of_the_high_skew_are_in_a_hundredth_of_the_document() {
    let mut random = tidegate_random::SplitMix64::new(SEED);
    let mut counts = [0_u32; 1_000];
    for _ in 0..50_000 {
        let draw = EntryDraw { skew: Skew::HIGH, seed: random.next_bits() };
        counts[draw.quantiles().next().unwrap().index(1_000)] += 1;
    }
    let middle: u32 = counts[495..505].iter().sum();
    assert!((33_500..34_800).contains(&middle), "{middle}");
}

#[test]
fn a_quantile_is_a_number_below_the_count() {
    let quantile = |share| Quantile::new(share).expect("it is from 0 to below 1");
    assert_eq!(quantile(0.0).index(7), 0);
    assert_eq!(quantile(0.5).index(7), 3);
    assert_eq!(quantile(1.0 - f64::EPSILON / 2.0).index(7), 6);
    assert_eq!(quantile(0.9).index(0), 0);
    assert_eq!((Quantile::new(1.0), Quantile::new(-0.1)), (None, None));
    assert_eq!(Skew::new(1.5), Err(SkewError(1.5)));
    assert!(Skew::new(f64::NAN).is_err());
}

#[test]
fn kinds_come_by_their_weights() {
    const DRAWS: usize = 35_000;
    let mut counts = [0_usize; 8];
    for transaction in drawn(Xmark::new(0.01, 1), 0, DRAWS) {
        counts[transaction.kind()] += 1;
    }
    for (kind, (count, weight)) in counts.iter().zip(AuctionMix::STUDY.weights()).enumerate() {
        let share = f64::from(weight) / 35.0;
        let expected = share * DRAWS as f64;
        let deviation = (expected * (1.0 - share)).sqrt();
        assert!((*count as f64 - expected).abs() < 5.0 * deviation, "{kind}: {count}");
    }
    let updates = Xmark { mix: AuctionMix::UPDATES, ..Xmark::new(0.01, 1) };
    assert!(drawn(updates, 0, 1_000).iter().all(|transaction| !transaction.is_read_only()));
    assert_eq!(AuctionMix::new([0; 8]), Err(AuctionMixError));
}

/// The identifier that a transaction gives out.
fn id_of(transaction: &AuctionTransaction) -> Option<u64> {
    match &transaction.work {
        AuctionWork::Register(person) => Some(person.id),
        AuctionWork::AddItem(item) => Some(item.id),
        _ => None,
    }
}

#[test]
fn no_two_clients_give_out_the_same_identifier() {
    let mut seen = HashSet::new();
    for number in 0..64 {
        for id in drawn(Xmark::new(0.01, 1), number, 500).iter().filter_map(id_of) {
            assert!(id >= 1 << 62);
            assert!(seen.insert(id), "{id}");
        }
    }
    assert!(seen.len() > 1_000);
}

#[test]
fn a_seed_repeats_in_all_variants_and_clients_differ() {
    let low = Xmark::new(0.01, 1);
    let other = Xmark { skew: Skew::HIGH, access: ChildAccess::Stream, preventive: true, ..low };
    let works = |workload, number| {
        let work = |transaction: AuctionTransaction| (transaction.work, transaction.entry.seed);
        drawn(workload, number, 300).into_iter().map(work).collect::<Vec<_>>()
    };
    assert_eq!(works(low, 3), works(other, 3));
    assert_ne!(works(low, 3), works(low, 4));
}

#[test]
fn amounts_are_read_as_they_are_written() {
    for cents in [0, 5, 99, 100, 12_345, u64::MAX / 100] {
        assert_eq!(cents_of(&money(cents)), Some(cents));
    }
    for text in ["", ".", "1", "1.5", "1.505", "-1.50", "1,50", ".50", "1.5x", "+1.50"] {
        assert_eq!(cents_of(text), None, "{text}");
    }
}

#[test]
fn a_change_changes_something() {
    for transaction in drawn(Xmark::new(0.01, 1), 1, 2_000) {
        if let AuctionWork::ChangeUserInfo(info) = &transaction.work {
            assert!(info.phone.is_some() || info.address.is_some() || info.profile.is_some());
        }
    }
}

struct Refusing;

impl Connection for Refusing {
    fn run(&mut self, _: &Statement, _: &[Value<'_>], _: Wants) -> Result<Reply, Failure> {
        panic!("nothing is asked");
    }
}

#[test]
fn a_session_of_sql_is_refused_with_what_to_do() {
    let workload = Xmark::new(0.01, 1);
    let transaction = Arc::new(drawn(workload, 0, 1).remove(0));
    let failure = finish(transaction.run(Session::immediate(&mut Refusing))).unwrap_err();
    assert!(failure.to_string().contains("run it on an XML store"), "{failure}");
    let mut refusing = Refusing;
    let checked = workload.check(Session::immediate(&mut refusing), Depth::Full);
    assert_eq!(finish(checked), Err(failure));
    for dialect in [Dialect::Postgres, Dialect::Embedded] {
        assert!(workload.validate(dialect).is_err());
    }
}
