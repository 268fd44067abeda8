//! A customer's way through the store, again and again.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use super::keys::ClientKeys;
use super::population::{
    ACTOR_NAMES, CATEGORY_NAMES, LINES_MAX, TITLE_WORDS, bought, customer, word,
};
use super::transactions::{Browse, CustomerLogin, Ds2Buyer, Purchase, Register, Wanted};
use super::{NEW_PERCENT, Options};
use crate::workload::{Client, Transaction};
use crate::{Random, Statement};

/// The most browses before a purchase; 3 in the mean.
const BROWSES_MAX: i32 = 5;

/// The most products that a browse shows; 5 in the mean.
const SHOWN_MAX: i32 = 9;

/// A client: one customer after the other.
#[derive(Debug)]
pub(super) struct StoreClient {
    options: Options,
    keys: Arc<ClientKeys>,
    insert_customer: Arc<Statement>,
    draw: Random,
    /// A sequence of its own, so that thinking changes nothing else.
    thinking: Random,
    step: CycleStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CycleStep {
    Enter,
    Browse { buyer: Ds2Buyer, left: i32 },
    Purchase { buyer: Ds2Buyer },
}

impl StoreClient {
    pub(super) fn new(
        options: Options,
        insert_customer: Arc<Statement>,
        number: usize,
        seed: u64,
    ) -> Self {
        StoreClient {
            options,
            keys: Arc::new(ClientKeys::new(number)),
            insert_customer,
            draw: Random::new(seed, number as u64),
            thinking: Random::new(!seed, number as u64),
            step: CycleStep::Enter,
        }
    }

    fn enter(&mut self) -> (Arc<dyn Transaction>, Ds2Buyer) {
        if self.draw.between(1, 100) <= NEW_PERCENT {
            let register = Register {
                row: customer(0, String::new(), &mut self.draw),
                keys: self.keys.clone(),
                insert: self.insert_customer.clone(),
                number: AtomicI64::default(),
            };
            return (Arc::new(register), Ds2Buyer::New);
        }
        let customer = self.draw.between(1, *self.options.scale.customers().end());
        (Arc::new(CustomerLogin { customer }), Ds2Buyer::Returning(customer))
    }

    fn browse(&mut self) -> Browse {
        let draw = &mut self.draw;
        let limit = draw.between(1, SHOWN_MAX);
        let categories = i32::try_from(CATEGORY_NAMES.len()).expect("there are 16");
        let wanted = match draw.between(1, 3) {
            1 => Wanted::Category(draw.between(1, categories)),
            2 => Wanted::Actor(word(draw.between(0, ACTOR_NAMES - 1))),
            _ => Wanted::Title(word(draw.between(0, TITLE_WORDS - 1))),
        };
        Browse { wanted, search: self.options.search, limit }
    }

    fn purchase(&mut self, buyer: Ds2Buyer) -> Purchase {
        let count = self.draw.between(1, LINES_MAX);
        let mut cart: Vec<_> =
            (0..count).map(|_| bought(self.options.scale, &mut self.draw)).collect();
        cart.sort();
        Purchase { buyer, cart, keys: self.keys.clone() }
    }
}

impl Client for StoreClient {
    fn next(&mut self) -> Arc<dyn Transaction> {
        match self.step {
            CycleStep::Enter => {
                let (transaction, buyer) = self.enter();
                let left = self.draw.between(1, BROWSES_MAX);
                self.step = CycleStep::Browse { buyer, left };
                transaction
            }
            CycleStep::Browse { buyer, left } => {
                self.step = if left > 1 {
                    CycleStep::Browse { buyer, left: left - 1 }
                } else {
                    CycleStep::Purchase { buyer }
                };
                Arc::new(self.browse())
            }
            CycleStep::Purchase { buyer } => {
                self.step = CycleStep::Enter;
                Arc::new(self.purchase(buyer))
            }
        }
    }

    fn think_time(&mut self) -> Duration {
        if self.step != CycleStep::Enter || self.options.think_time_ms == 0 {
            return Duration::ZERO;
        }
        let most = i32::try_from(self.options.think_time_ms).unwrap_or(i32::MAX).saturating_mul(2);
        Duration::from_millis(u64::from(self.thinking.between(0, most).unsigned_abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ds2::{
        BROWSE_ACTOR, BROWSE_CATEGORY, BROWSE_TITLE, LOGIN, PURCHASE, REGISTER, Scale, Search,
    };

    fn client(think_time_ms: u32, number: usize) -> StoreClient {
        let options = Options { scale: Scale::SMALL, search: Search::Prefix, think_time_ms };
        StoreClient::new(options, Arc::new(Statement::new("INSERT")), number, 5)
    }

    #[test]
    fn a_cycle_is_an_entry_one_to_five_browses_and_a_purchase() {
        let mut client = client(0, 0);
        let mut counts = [0_u32; 6];
        let mut lengths = [0_u32; 6];
        for _ in 0..10_000 {
            let kind = client.next().kind();
            assert!(kind == LOGIN || kind == REGISTER, "{kind}");
            counts[kind] += 1;
            let mut length = 0;
            loop {
                let kind = client.next().kind();
                counts[kind] += 1;
                if kind == PURCHASE {
                    break;
                }
                assert!([BROWSE_CATEGORY, BROWSE_ACTOR, BROWSE_TITLE].contains(&kind), "{kind}");
                length += 1;
            }
            lengths[length] += 1;
        }
        assert_eq!((lengths[0], counts[PURCHASE]), (0, 10_000));
        // 2,000 of each length and of registrations, six standard deviations are 240; 10,000 of
        // each kind of browse, of which the number varies: 570.
        assert!(lengths[1..].iter().all(|count| count.abs_diff(2_000) < 240), "{lengths:?}");
        assert!(counts[REGISTER].abs_diff(2_000) < 240, "{counts:?}");
        for kind in [BROWSE_CATEGORY, BROWSE_ACTOR, BROWSE_TITLE] {
            assert!(counts[kind].abs_diff(10_000) < 570, "{counts:?}");
        }
    }

    #[test]
    fn carts_are_in_the_order_of_products() {
        let mut client = client(0, 0);
        let mut sizes = [0_u32; 10];
        for _ in 0..9_000 {
            let cart = client.purchase(Ds2Buyer::New).cart;
            assert!(cart.is_sorted_by_key(|line| line.product));
            sizes[cart.len()] += 1;
        }
        // 1,000 of each size; six standard deviations are 180.
        assert!(sizes[1..].iter().all(|count| count.abs_diff(1_000) < 180), "{sizes:?}");
    }

    #[test]
    fn customers_think_before_they_enter_and_it_changes_nothing_else() {
        let (mut thinking, mut quick) = (client(500, 3), client(0, 3));
        let mut thoughts = Vec::new();
        for _ in 0..20_000 {
            let entering = thinking.step == CycleStep::Enter;
            let thought = thinking.think_time();
            assert!(entering || thought.is_zero());
            assert_eq!(quick.think_time(), Duration::ZERO);
            if entering {
                thoughts.push(thought.as_millis());
            }
            let (a, b) = (thinking.next(), quick.next());
            assert_eq!(a.kind(), b.kind());
        }
        // From 0 to 1,000 ms; the mean of 4,000 lies within six of its standard deviations, 27.
        let mean = thoughts.iter().sum::<u128>() / thoughts.len() as u128;
        assert!(thoughts.iter().all(|&thought| thought <= 1_000) && mean.abs_diff(500) < 28);
        assert_eq!(client(u32::MAX, 0).think_time(), client(u32::MAX, 0).think_time());
    }
}
