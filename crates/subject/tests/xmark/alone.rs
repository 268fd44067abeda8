//! One client.

use std::num::NonZeroU32;

use tidegate_workload::workload::Transaction;
use tidegate_workload::xmark::{AuctionMix, AuctionWork, ChildAccess, NewBid, Skew, Xmark};
use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::store::Document;
use tidegate_xml::tree::Tree;

use super::{Fixture, LOCKS, of_client};

const SEED: u64 = 21;

/// All variants of a workload.
fn variants(workload: Xmark) -> impl Iterator<Item = Xmark> {
    let accesses = [ChildAccess::Navigation, ChildAccess::Stream];
    accesses.into_iter().flat_map(move |access| {
        [false, true].map(|preventive| Xmark { access, preventive, ..workload })
    })
}

#[test]
fn all_variants_read_and_write_the_same() {
    println!("seed {SEED}");
    let mut first = None;
    let all: Vec<Xmark> = variants(Xmark::new(0.002, SEED)).collect();
    for (workload, locks) in all.iter().cycle().zip(LOCKS) {
        let fixture = Fixture::new(workload);
        let before = fixture.text();
        let mut all_read = Vec::new();
        let mut kinds = [0_u32; 8];
        for transaction in of_client(workload, 0, SEED, 300) {
            let (read, conflicts) = fixture.run(&transaction, locks);
            assert_eq!(conflicts, 0);
            kinds[transaction.kind()] += 1;
            all_read.push(read);
        }
        assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
        fixture.assert_consistent();
        let made = (all_read, fixture.text());
        assert_ne!(made.1, before);
        let first = first.get_or_insert_with(|| made.clone());
        assert!(*first == made, "{workload:?}, {locks:?} makes something else");
    }
}

#[test]
fn each_transaction_does_what_it_is_for() {
    let workload = Xmark::new(0.001, 3);
    let fixture = Fixture::new(&workload);
    let text = || String::from_utf8(fixture.text()).unwrap();
    let counted = |text: &str, what: &str| text.matches(what).count();
    for transaction in of_client(&workload, 1, SEED, 200) {
        let before = text();
        let (read, _) = fixture.run(&transaction, LOCKS[4]);
        let after = text();
        let added = |what| counted(&after, what) - counted(&before, what);
        let added = [added("<bidder>"), added("<person "), added("<mail>"), added("<item ")];
        let expected = match &transaction.work {
            AuctionWork::PlaceBid(bid) => {
                assert!(after.contains(&format!("<time>{}</time>", bid.time)));
                assert!((1..=2).contains(&read.len()), "price, highest bidder: {read:?}");
                [1, 0, 0, 0]
            }
            AuctionWork::Register(person) => {
                assert!(after.contains(&format!("<person id=\"person{}\">", person.id)));
                [0, 1, 0, 0]
            }
            AuctionWork::AddMail(mail) => {
                assert!(after.contains(&format!("<text>{}</text>", mail.text)));
                [0, 0, 1, 0]
            }
            AuctionWork::AddItem(item) => {
                let reference = format!("<itemref item=\"item{}\">", item.id);
                assert!(after.contains(&reference));
                let region = format!("</item></{}>", item.region);
                assert!(after.contains(&region));
                [0, 0, 0, 1]
            }
            AuctionWork::ChangeUserInfo(info) => {
                assert_ne!(after, before);
                let phone = info.phone.iter().map(|phone| format!("<phone>{phone}</phone>"));
                let street =
                    info.address.iter().map(|at| format!("<street>{}</street>", at.street));
                let income = info.profile.iter().map(|own| format!("income=\"{}\"", own.income));
                for part in phone.chain(street).chain(income) {
                    assert!(after.contains(&part), "{part}");
                }
                [0; 4]
            }
            AuctionWork::ReadSellerInfo(_) => {
                assert!(
                    read[0].starts_with("person") && read[2].starts_with("mailto:"),
                    "{read:?}"
                );
                [0; 4]
            }
            AuctionWork::CheckMails => {
                assert_eq!(read.len() % 3, 0);
                [0; 4]
            }
            AuctionWork::ReadRegion(_) => {
                assert!(read.len() >= 2 && read.iter().all(|text| !text.is_empty()), "{read:?}");
                [0; 4]
            }
            AuctionWork::ReadItem => {
                assert!(read.len() >= 4 && read.iter().all(|text| !text.is_empty()), "{read:?}");
                [0; 4]
            }
        };
        assert_eq!(added, expected, "{transaction:?}");
        if transaction.is_read_only() {
            assert!(before == after, "{transaction:?} changes something");
        }
    }
    fixture.assert_consistent();
}

#[test]
fn a_site_that_was_changed_is_opened_again() {
    let workload = Xmark::new(0.002, 5);
    let mut fixture = Fixture::new(&workload);
    for round in 0..3 {
        for transaction in of_client(&workload, 0, SEED + round, 150) {
            fixture.run(&transaction, LOCKS[4]);
        }
        fixture.assert_consistent();
        let expected = fixture.site.expected();
        fixture.site =
            tidegate_subject::embedded_xml::AuctionSite::open(&fixture.store, super::DOCUMENT)
                .unwrap();
        assert_eq!(fixture.site.expected(), expected);
    }
}

/// The length of the longest list of bidders and of mails.
fn longest_lists(fixture: &Fixture) -> [usize; 2] {
    let text = String::from_utf8(fixture.text()).unwrap();
    [("<open_auction ", "<bidder>"), ("<mailbox>", "<mail>")].map(|(list, member)| {
        let lists = text.split(list).skip(1);
        lists.map(|list| list.matches(member).count()).max().unwrap()
    })
}

#[test]
fn lists_that_are_full_stay_as_long_as_they_are() {
    println!("seed {SEED}");
    let mut first = None;
    let keep = NonZeroU32::new(3);
    let crowded =
        Xmark { skew: Skew::HIGH, keep, mix: AuctionMix::UPDATES, ..Xmark::new(0.002, 7) };
    for (workload, locks) in variants(crowded).zip([LOCKS[4], LOCKS[2], LOCKS[6], LOCKS[0]]) {
        let fixture = Fixture::new(&workload);
        let before = longest_lists(&fixture);
        for transaction in of_client(&workload, 0, SEED, 200) {
            fixture.run(&transaction, locks);
        }
        fixture.assert_consistent();
        let after = longest_lists(&fixture);
        let bounds = before.map(|longest| longest.max(3));
        assert!(after[0] <= bounds[0] && after[1] <= bounds[1], "{after:?}, {before:?}");
        let text = fixture.text();
        assert!(*first.get_or_insert_with(|| text.clone()) == text, "{workload:?}");
        let all_kept = Xmark { keep: None, ..workload };
        let growing = Fixture::new(&all_kept);
        for transaction in of_client(&all_kept, 0, SEED, 200) {
            growing.run(&transaction, locks);
        }
        let grown = longest_lists(&growing);
        assert!(grown[0] > bounds[0] && grown[1] > bounds[1], "{grown:?}, {bounds:?}");
    }
}

#[test]
fn what_is_rolled_back_is_not_counted() {
    let workload = Xmark::new(0.002, 6);
    let fixture = Fixture::new(&workload);
    let before = fixture.text();
    for transaction in of_client(&workload, 0, SEED, 100) {
        let within = super::begin(&fixture.store, LOCKS[4]);
        fixture.site.run(&transaction, &within).unwrap();
    }
    assert!(fixture.text() == before);
    fixture.assert_consistent();
}

#[test]
fn an_entry_that_is_gone_is_drawn_again() {
    let workload = Xmark::new(0.002, 8);
    let fixture = Fixture::new(&workload);
    let elements = |document: &Document<'_>| -> Vec<Label> {
        let name = QName::local("open_auction");
        let found = document.elements_below(&Label::document(), &name).unwrap().unwrap();
        found.map(Result::unwrap).collect()
    };
    let mut bids = of_client(&workload, 0, SEED, 100).into_iter();
    let bid = bids.find(|one| matches!(one.work, AuctionWork::PlaceBid(_))).unwrap();
    let mut second = None;
    fixture.change(|document| {
        let labels = elements(document);
        let mut drawn = bid.entry.quantiles().map(|place| place.index(labels.len()));
        let first = drawn.next().unwrap();
        second = drawn.find(|index| *index != first).map(|index| labels[index].clone());
        document.delete(&labels[first]).unwrap();
    });
    fixture.run(&bid, LOCKS[4]);
    let AuctionWork::PlaceBid(NewBid { time, .. }) = &bid.work else { unreachable!() };
    fixture.change(|document| {
        let auction = document.write_subtree(&second.unwrap(), Vec::new()).unwrap();
        let auction = String::from_utf8(auction).unwrap();
        assert!(auction.contains(&format!("<time>{time}</time>")), "{auction}");
        // When all are gone it gives up, and says what to do.
        for label in elements(document) {
            document.delete(&label).unwrap();
        }
    });
    let within = super::begin(&fixture.store, LOCKS[4]);
    let error = fixture.site.run(&bid, &within).unwrap_err();
    assert!(!error.is_retryable() && error.to_string().contains("load that"), "{error}");
}
