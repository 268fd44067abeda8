//! A client is a terminal: it deals transactions from a deck of cards and may take its time.
//!
//! # Mix
//! A deck holds a card for each per cent of the mix. It is shuffled, dealt, and shuffled again
//! (clause 5.2.4.2), so that the shares of a hundred transactions in a row are exact; no draw by
//! weights would keep them.
//!
//! # Time
//! A transaction is preceded by its keying time, which is fixed, and followed by its think time,
//! drawn from the negative exponential distribution and cut off at ten times its mean (clauses
//! 5.2.5.2 and 5.2.5.4, the figures by 5.2.5.7):
//!
//! | in seconds | New-Order | Payment | Order-Status | Delivery | Stock-Level |
//! | --- | --- | --- | --- | --- | --- |
//! | keying | 18 | 3 | 2 | 2 | 2 |
//! | thinking, mean | 12 | 12 | 10 | 5 | 5 |
//!
//! The menu's response time is left out.

use std::sync::Arc;
use std::time::Duration;

use crate::Random;
use crate::workload::{Client, Transaction};

use super::inputs::Inputs;
use super::population::LOADED_AT;
use super::procedures::Form;
use super::{DELIVERY, NEW_ORDER, ORDER_STATUS, PAYMENT};

/// Seconds of keying before each kind (clause 5.2.5.2).
const KEYING_S: [f64; 5] = [18.0, 3.0, 2.0, 2.0, 2.0];

/// Mean seconds of thinking after each kind (clause 5.2.5.4).
const THINKING_S: [f64; 5] = [12.0, 12.0, 10.0, 5.0, 5.0];

/// The longest time of thinking, in means.
const LONGEST_THOUGHT: f64 = 10.0;

/// Between two moments that a terminal writes down.
const TICK_US: i64 = 1_000_000;

/// Which share of the transactions is of which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    name: &'static str,
    /// In per cent, by the places of the kinds.
    shares: [u8; 5],
}

impl Mix {
    /// 45 % New-Order, 43 % Payment, 4 % of the others each: the least that the specification asks
    /// for (clause 5.2.3), TPCC1 of the auto-tuning study.
    pub const STANDARD: Mix = Mix { name: "standard", shares: [45, 43, 4, 4, 4] };

    /// 25 % New-Order, 63 % Payment, 4 % of the others each: TPCC2 of the auto-tuning study.
    pub const PAYMENT_HEAVY: Mix = Mix { name: "payment-heavy", shares: [25, 63, 4, 4, 4] };

    /// 45 % New-Order, 45 % Payment, 2 % Order-Status, 6 % Delivery, 2 % Stock-Level: of the
    /// deterioration study, Section 3.3. More is delivered than ordered, so later Deliveries find
    /// less to do.
    pub const DETERIORATION: Mix = Mix { name: "deterioration", shares: [45, 45, 2, 6, 2] };

    /// 47 % New-Order, 47 % Payment, 6 % Delivery: of the deterioration study, Section 3.4.
    pub const WRITES: Mix = Mix { name: "writes", shares: [47, 47, 0, 6, 0] };

    pub const ALL: [Mix; 4] = [Mix::STANDARD, Mix::PAYMENT_HEAVY, Mix::DETERIORATION, Mix::WRITES];

    pub fn named(name: &str) -> Option<Mix> {
        Mix::ALL.into_iter().find(|mix| mix.name == name)
    }

    pub fn name(self) -> &'static str {
        self.name
    }

    /// The share of each kind in per cent, by their places among the workload's kinds.
    pub fn shares(self) -> [u8; 5] {
        self.shares
    }

    /// A kind for each card, in order.
    fn cards(self) -> Vec<usize> {
        let copies = |(kind, share): (usize, u8)| std::iter::repeat_n(kind, share.into());
        self.shares.into_iter().enumerate().flat_map(copies).collect()
    }
}

/// A terminal, fixed to its warehouse.
#[derive(Debug)]
pub(super) struct Terminal {
    inputs: Inputs,
    form: Form,
    mix: Mix,
    takes_time: bool,
    draw: Random,
    /// What is left of the deck.
    deck: Vec<usize>,
    /// The kind that is next, where its keying time has been asked for.
    dealt: Option<usize>,
    /// The kind before.
    last: Option<usize>,
    count: i64,
}

impl Terminal {
    pub(super) fn new(
        inputs: Inputs,
        form: Form,
        mix: Mix,
        takes_time: bool,
        draw: Random,
    ) -> Self {
        Terminal {
            inputs,
            form,
            mix,
            takes_time,
            draw,
            deck: Vec::new(),
            dealt: None,
            last: None,
            count: 0,
        }
    }

    fn deal(&mut self) -> usize {
        if self.deck.is_empty() {
            self.deck = self.mix.cards();
            self.draw.shuffle(&mut self.deck);
        }
        self.deck.pop().expect("a new deck has cards")
    }
}

impl Client for Terminal {
    fn next(&mut self) -> Arc<dyn Transaction> {
        let kind = self.dealt.take().unwrap_or_else(|| self.deal());
        self.last = Some(kind);
        self.count += 1;
        let moment = LOADED_AT + self.count * TICK_US;
        let (inputs, draw) = (&self.inputs, &mut self.draw);
        match kind {
            NEW_ORDER => self.form.of(inputs.new_order(draw, moment)),
            PAYMENT => self.form.of(inputs.payment(draw, moment)),
            ORDER_STATUS => self.form.of(inputs.order_status(draw)),
            DELIVERY => self.form.of(inputs.delivery(draw, moment)),
            _ => self.form.of(inputs.stock_level(draw)),
        }
    }

    fn think_time(&mut self) -> Duration {
        if !self.takes_time {
            return Duration::ZERO;
        }
        let next = match self.dealt {
            Some(kind) => kind,
            None => self.deal(),
        };
        self.dealt = Some(next);
        let thinking = self.last.map_or(0.0, |last| thinking_s(THINKING_S[last], &mut self.draw));
        Duration::from_secs_f64(thinking + KEYING_S[next])
    }
}

fn thinking_s(mean_s: f64, draw: &mut Random) -> f64 {
    draw.exponential(mean_s).min(LONGEST_THOUGHT * mean_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::random::Constants;
    use crate::tpcc::scale::Scale;

    fn terminal(mix: Mix, takes_time: bool, seed: u64) -> Terminal {
        let scale = Scale::new(1).unwrap();
        let inputs = Inputs { scale, constants: Constants::of_run(seed), home: (1, 1) };
        Terminal::new(inputs, Form::Statements, mix, takes_time, Random::new(seed, 0))
    }

    #[test]
    fn each_deck_has_the_shares_of_its_mix_in_another_order() {
        for mix in Mix::ALL {
            let mut terminal = terminal(mix, false, 1);
            let mut decks = Vec::new();
            for _ in 0..3 {
                let deck: Vec<usize> = (0..100).map(|_| terminal.next().kind()).collect();
                let count = |kind| deck.iter().filter(|&&card| card == kind).count();
                let counts: Vec<usize> = (0..5).map(count).collect();
                assert_eq!(counts, mix.shares().map(usize::from), "{}", mix.name());
                decks.push(deck);
            }
            assert!(decks[0] != decks[1] && decks[1] != decks[2]);
            assert_eq!(Mix::named(mix.name()), Some(mix));
        }
        assert_eq!(Mix::named("light"), None);
    }

    #[test]
    fn a_terminal_without_time_never_waits() {
        let mut terminal = terminal(Mix::STANDARD, false, 1);
        for _ in 0..100 {
            assert_eq!(terminal.think_time(), Duration::ZERO);
            terminal.next();
        }
    }

    #[test]
    fn a_terminal_keys_in_what_comes_next_and_thinks_of_what_was() {
        let mut terminal = terminal(Mix::STANDARD, true, 1);
        let mut last: Option<usize> = None;
        let mut sums = [(0.0, 0_u32); 5];
        for _ in 0..40_000 {
            let wait_s = terminal.think_time().as_secs_f64();
            let kind = terminal.next().kind();
            let thought_s = wait_s - KEYING_S[kind];
            match last {
                None => assert!(thought_s.abs() < 1e-6),
                Some(last) => {
                    assert!((-1e-6..=10.0 * THINKING_S[last] + 1e-6).contains(&thought_s));
                    sums[last].0 += thought_s;
                    sums[last].1 += 1;
                }
            }
            last = Some(kind);
        }
        for ((sum, count), mean) in sums.into_iter().zip(THINKING_S) {
            // The standard deviation is the mean; cutting off takes 5 in 100,000 of the mean.
            let bound = 6.0 * mean / f64::from(count).sqrt();
            assert!((sum / f64::from(count) - mean).abs() < bound, "{sum} of {count}");
        }
    }

    #[test]
    fn a_seed_repeats_a_terminal() {
        let sequence = |seed| -> Vec<String> {
            let mut terminal = terminal(Mix::STANDARD, false, seed);
            (0..50).map(|_| format!("{:?}", terminal.next())).collect()
        };
        assert_eq!(sequence(5), sequence(5));
        assert_ne!(sequence(5), sequence(6));
    }

    #[test]
    fn long_thoughts_are_cut_off() {
        let mut draw = Random::new(1, 0);
        let longest = (0..1_000_000).map(|_| thinking_s(5.0, &mut draw)).fold(0.0, f64::max);
        // One in 22,026 is longer than ten times the mean before the cut.
        assert!((longest - 50.0).abs() < f64::EPSILON, "{longest}");
    }
}
