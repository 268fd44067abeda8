//! A client: draws one transaction after the other from its own sequence.

use std::sync::Arc;

use tidegate_random::SplitMix64;

use super::skew::{EntryDraw, Quantile};
use super::texts::{cents, date, email, money, name, phone, pick, proper, time, words};
use super::transaction::{
    AuctionEnd, AuctionTransaction, AuctionWork, NewAuction, NewBid, NewItem, NewMail, NewPerson,
    PersonAddress, PersonInfo, PersonProfile, REGIONS,
};
use super::{
    ADD_MAIL, CHANGE_USER_INFO, CHECK_MAILS, PLACE_BID, READ_ITEM, READ_REGION, READ_SELLER_INFO,
    REGISTER, Xmark,
};
use crate::workload::{Client, Transaction};

/// The year in which transactions run, behind those of the generator's bids.
const YEAR: u32 = 2002;

/// Shares of the regions: items at factor 0.1.
const ITEMS: [u32; 6] = [55, 200, 220, 600, 1_000, 100];

/// Identifiers of one client are in a range of so many.
const RANGE: u64 = 1 << 24;

/// The first range. Documents have fewer persons, items and auctions than this.
const RANGES: u64 = 1 << 62;

/// A client of a number, with a range of identifiers of its own.
#[derive(Debug)]
pub(super) struct Bidder {
    workload: Xmark,
    random: SplitMix64,
    /// The next identifier in its range.
    id: u64,
}

impl Bidder {
    pub(super) fn new(workload: Xmark, number: usize, seed: u64) -> Bidder {
        let own = SplitMix64::mix(SplitMix64::mix(seed) ^ number as u64);
        // Ranges are drawn, so that runs of several seeds on one document do not collide.
        let id = RANGES | (SplitMix64::mix(!own) >> 2) & !(RANGE - 1);
        Bidder { workload, random: SplitMix64::new(own), id }
    }

    fn draw(&mut self) -> AuctionTransaction {
        let kind = self.kind();
        let Xmark { skew, access, preventive, keep, .. } = self.workload;
        let entry = EntryDraw { skew, seed: self.random.next_bits() };
        AuctionTransaction { work: self.work(kind), entry, access, preventive, keep }
    }

    /// Draws a kind by the weights.
    fn kind(&mut self) -> usize {
        let Xmark { mix, read_region, .. } = self.workload;
        let weights: Vec<u32> =
            mix.weights().into_iter().chain([read_region]).map(u32::from).collect();
        weighted(&mut self.random, &weights)
    }

    fn work(&mut self, kind: usize) -> AuctionWork {
        match kind {
            PLACE_BID => AuctionWork::PlaceBid(self.bid()),
            READ_SELLER_INFO => AuctionWork::ReadSellerInfo(if self.random.next_chance(0.5) {
                AuctionEnd::Open
            } else {
                AuctionEnd::Closed
            }),
            REGISTER => AuctionWork::Register(Box::new(self.person())),
            CHANGE_USER_INFO => AuctionWork::ChangeUserInfo(Box::new(self.change())),
            CHECK_MAILS => AuctionWork::CheckMails,
            READ_ITEM => AuctionWork::ReadItem,
            ADD_MAIL => AuctionWork::AddMail(self.mail()),
            READ_REGION => AuctionWork::ReadRegion(pick(&mut self.random, &REGIONS)),
            _ => AuctionWork::AddItem(Box::new(self.item())),
        }
    }

    fn next_id(&mut self) -> u64 {
        self.id += 1;
        self.id
    }

    fn bid(&mut self) -> NewBid {
        let random = &mut self.random;
        NewBid {
            date: date(random, YEAR),
            time: time(random),
            person: Quantile::uniform(random),
            // A multiple of 1.50, as the generator's.
            increase_cents: 150 * cents(random, 1, 8.0),
        }
    }

    fn person(&mut self) -> NewPerson {
        let id = self.next_id();
        let random = &mut self.random;
        let (name, email) = (name(random), email(random));
        NewPerson { id, name, email, info: info(random) }
    }

    /// Draws what a person changes: at least one of the three parts.
    fn change(&mut self) -> PersonInfo {
        let random = &mut self.random;
        loop {
            let changed = info(random);
            if changed.phone.is_some() || changed.address.is_some() || changed.profile.is_some() {
                return changed;
            }
        }
    }

    fn mail(&mut self) -> NewMail {
        let random = &mut self.random;
        let mut person = || format!("{} {}", name(random), email(random));
        let (from, to) = (person(), person());
        NewMail { from, to, date: date(random, YEAR), text: words(random, 20) }
    }

    fn item(&mut self) -> NewItem {
        let id = self.next_id();
        let random = &mut self.random;
        let payments = ["Card", "Cash", "Cheque", "Transfer"];
        let shipping = ["The buyer pays", "The seller pays", "To every country"];
        let categories = 1 + random.next_below(4);
        NewItem {
            id,
            region: REGIONS[weighted(random, &ITEMS)],
            location: proper(random),
            quantity: (1 + random.next_below(4)).to_string(),
            name: words(random, 1),
            payment: pick(random, &payments),
            description: words(random, 20),
            shipping: pick(random, &shipping),
            categories: (0..categories).map(|_| Quantile::uniform(random)).collect(),
            auction: auction(random),
        }
    }
}

impl Client for Bidder {
    fn next(&mut self) -> Arc<dyn Transaction> {
        Arc::new(self.draw())
    }
}

/// Draws a place by weights, which are not all 0.
fn weighted(random: &mut SplitMix64, weights: &[u32]) -> usize {
    let mut left = random.next_below(weights.iter().sum());
    let found = weights.iter().position(|&weight| {
        let is_here = left < weight;
        left = left.saturating_sub(weight);
        is_here
    });
    found.expect("a draw is below the sum of the weights")
}

fn info(random: &mut SplitMix64) -> PersonInfo {
    let has_phone = random.next_chance(0.5);
    let has_address = random.next_chance(0.5);
    let has_profile = random.next_chance(0.5);
    PersonInfo {
        phone: has_phone.then(|| phone(random)),
        address: has_address.then(|| address(random)),
        profile: has_profile.then(|| profile(random)),
    }
}

fn address(random: &mut SplitMix64) -> PersonAddress {
    PersonAddress {
        street: format!("{} {} Street", 1 + random.next_below(99), proper(random)),
        city: proper(random),
        country: proper(random),
        province: random.next_chance(0.5).then(|| proper(random)),
        zipcode: (10_000 + random.next_below(90_000)).to_string(),
    }
}

fn profile(random: &mut SplitMix64) -> PersonProfile {
    let income = cents(random, 987_600, 3_000_000.0);
    let interests = random.next_below(4);
    PersonProfile {
        income: money(income),
        interests: (0..interests).map(|_| Quantile::uniform(random)).collect(),
        education: random
            .next_chance(0.5)
            .then(|| pick(random, &["School", "College", "University", "Other"])),
        gender: random.next_chance(0.5).then(|| pick(random, &["female", "male"])),
        business: pick(random, &["No", "Yes"]),
        age: random.next_chance(0.5).then(|| (18 + random.next_below(60)).to_string()),
    }
}

fn auction(random: &mut SplitMix64) -> NewAuction {
    NewAuction {
        initial_cents: cents(random, 150, 10_000.0),
        seller: Quantile::uniform(random),
        author: Quantile::uniform(random),
        happiness: (1 + random.next_below(10)).to_string(),
        kind: pick(random, &["Featured", "Regular"]),
        start: date(random, YEAR),
        end: date(random, YEAR + 1),
    }
}
