//! What the rule says of the situations that it has to tell apart.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A rule that has seen so many ends of `held`, one each millisecond, and the time of the last.
fn after(ends: u32, held: Duration) -> (OverdueRule, Duration) {
    let mut rule = OverdueRule::new();
    (1..=ends).for_each(|n| rule.record_end(held, false, n * MS));
    (rule, ends * MS)
}

#[test]
fn before_anything_has_ended_transactions_are_believed_to_be_short() {
    let rule = OverdueRule::new();
    assert_eq!(rule.patience(true, Duration::ZERO), PATIENCE_MIN);
    assert_eq!(rule.discounted_max(Duration::ZERO), 64);
}

#[test]
fn the_patience_is_twenty_times_the_typical_time_or_a_little_longer() {
    let (rule, now) = after(200, 100 * MS);
    assert_eq!(rule.patience(true, now), 2_000 * MS);
    for (typical, patience) in [(2, 200), (5, 200), (8, 320), (13, 500), (25, 500), (26, 520)] {
        let (rule, now) = after(200, typical * MS);
        assert_eq!(rule.patience(true, now), patience * MS, "{typical} ms");
    }
}

#[test]
fn a_few_long_ends_change_nothing() {
    let (mut rule, now) = after(128, 2 * MS);
    (0..20).for_each(|_| rule.record_end(25_000 * MS, true, now));
    assert_eq!(rule.patience(true, now), PATIENCE_MIN);
    assert_eq!(rule.discounted_max(now), 64);
    (0..20).for_each(|_| rule.record_end(25_000 * MS, true, now));
    assert_eq!(rule.discounted_max(now), 128 - 2 * 40, "the exception is to be the minority");
}

/// Ends that were long and not discounted, because nobody waited, say as little about now.
#[test]
fn long_ends_that_were_not_discounted_are_no_collapse() {
    let (mut rule, now) = after(128, 2 * MS);
    (0..20).for_each(|_| rule.record_end(25_000 * MS, false, now));
    assert_eq!(rule.patience(true, now), PATIENCE_MIN);
}

#[test]
fn where_long_is_normal_it_is_learnt() {
    let mut rule = OverdueRule::new();
    let ends = (1..=64).inspect(|n| rule.record_end(1_000 * MS, true, *n * 1_000 * MS));
    let now = ends.max().unwrap() * 1_000 * MS;
    assert_eq!(rule.discounted_max(now), 0, "nothing is an exception any more");
    rule.record_end(1_000 * MS, false, now);
    assert_eq!(rule.patience(true, now), 20_000 * MS);
    assert_eq!(rule.discounted_max(now), 64);
}

/// 64 permits, 10 ms becoming 2 s: as each age passes the patience, ends have been slower yet.
#[test]
fn a_collapse_is_not_taken_for_holders() {
    let (mut rule, start) = after(128, 10 * MS);
    for tick in 1..400 {
        let since = tick * 20 * MS;
        // 32 end in a second, as old as the collapse or 2 s.
        if tick % 2 == 0 {
            rule.record_end(since.min(2_000 * MS), false, start + since);
        }
        let oldest = since.min(2_000 * MS);
        assert!(oldest < rule.patience(true, start + since), "{since:?}");
    }
}

#[test]
fn in_a_stall_each_round_comes_after_half_the_time_of_the_one_before() {
    let mut rule = OverdueRule::new();
    let mut now = Duration::ZERO;
    let mut waited = Vec::new();
    for _ in 0..8 {
        let patience = rule.patience(true, now);
        waited.push(patience.as_micros());
        now += patience;
        rule.record_round(now);
    }
    let floor = 12_500;
    assert_eq!(waited, [200_000, 100_000, 50_000, 25_000, floor, floor, floor, floor]);
    assert_eq!(rule.patience(false, now), PATIENCE_MIN, "nobody waits");
    now += DOUBTFUL_MAX + MS;
    assert_eq!(rule.patience(true, now), PATIENCE_MIN, "the stall is over");
    rule.record_round(now);
    assert_eq!(rule.patience(true, now), PATIENCE_MIN / 2, "and another begins");
}

#[test]
fn in_a_stall_too_the_patience_is_twenty_times_the_typical_time() {
    let (mut rule, now) = after(200, 10 * MS);
    (0..9).for_each(|_| rule.record_round(now));
    assert_eq!(rule.patience(true, now), 200 * MS);
}
