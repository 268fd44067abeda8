//! Violations that are planted, one for each condition.

use tidegate_workload::xmark::Xmark;
use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::store::{Document, NewNode, Place};
use tidegate_xml::tree::Tree;

use super::Fixture;

/// The first element of a name.
fn first(document: &Document<'_>, name: &str) -> Label {
    let name = QName::local(name);
    let mut found = document.elements_below(&Label::document(), &name).unwrap().unwrap();
    found.next().unwrap().unwrap()
}

fn text_in(document: &Document<'_>, name: &str) -> Label {
    document.first_child(&first(document, name)).unwrap().unwrap()
}

/// Plants a violation and returns what the check says of its condition alone.
fn planted(condition: &str, plant: impl FnOnce(&Document<'_>)) -> String {
    let fixture = Fixture::new(&Xmark::new(0.002, 9));
    assert_eq!(fixture.violations(), []);
    fixture.change(plant);
    let violations = fixture.violations();
    let [(name, violation)] = &violations[..] else { panic!("{condition}: {violations:?}") };
    assert_eq!(*name, condition);
    violation.clone()
}

#[test]
fn a_price_that_is_not_the_sum() {
    let condition = "current = initial + increases";
    let said = planted(condition, |document| {
        document.set_value(&text_in(document, "current"), "0.01").unwrap();
    });
    assert!(said.starts_with("open_auction0: current is 0.01, initial "), "{said}");
    let said = planted(condition, |document| {
        document.set_value(&text_in(document, "increase"), "4").unwrap();
    });
    assert!(said.ends_with("increase is \"4\""), "{said}");
    let said = planted(condition, |document| {
        document.set_value(&text_in(document, "initial"), "1.5o").unwrap();
    });
    assert!(said.ends_with("initial is \"1.5o\""), "{said}");
}

#[test]
fn a_reference_to_what_is_missing() {
    for (element, attribute) in [
        ("seller", "person"),
        ("itemref", "item"),
        ("incategory", "category"),
        ("watch", "open_auction"),
        ("edge", "to"),
    ] {
        let said = planted("every IDREF resolves", |document| {
            let name = QName::local(attribute);
            document.set_attribute(&first(document, element), &name, "nobody7").unwrap();
        });
        assert!(said.starts_with(element) && said.contains("nobody7, which is missing"), "{said}");
    }
}

#[test]
fn an_identifier_that_is_there_twice() {
    let said = planted("identifiers are unique", |document| {
        let watched = first(document, "watch");
        document.set_attribute(&watched, &QName::local("id"), "person0").unwrap();
    });
    assert_eq!(said, "person0 is there twice");
}

#[test]
fn children_in_another_order() {
    let condition = "children are in the order of the model";
    let said = planted(condition, |document| {
        let person = first(document, "person");
        let place = Place::First(person);
        document.insert(&place, NewNode::Element(&QName::local("phone"))).unwrap();
    });
    assert_eq!(said, "person0: name is behind phone");
    let said = planted(condition, |document| {
        document.delete(&first(document, "zipcode")).unwrap();
    });
    assert!(said.ends_with(": address has 0 of zipcode"), "{said}");
    let said = planted(condition, |document| {
        let place = Place::Last(first(document, "bidder"));
        document.insert(&place, NewNode::Element(&QName::local("bid"))).unwrap();
    });
    assert!(said.ends_with(": bid is no child of bidder"), "{said}");
}

#[test]
fn a_number_that_nobody_committed() {
    let said = planted("number of mails", |document| {
        document.delete(&first(document, "mail")).unwrap();
    });
    assert!(said.starts_with("/site has ") && said.ends_with(" are to be there"), "{said}");
    planted("number of closed auctions", |document| {
        document.delete(&first(document, "closed_auction")).unwrap();
    });
    // What adds to the number and breaks nothing else.
    planted("number of persons", |document| {
        let list = first(document, "people");
        let text = "<person id='another'><name>A</name><emailaddress>a</emailaddress></person>";
        document.insert_xml(&Place::Last(list), text.as_bytes()).unwrap();
    });
    let amount = |document: &Document<'_>, element: &str| {
        document.content(&text_in(document, element)).unwrap()
    };
    planted("number of bidders", |document| {
        let bidder = first(document, "bidder");
        let increase = amount(document, "increase");
        let auction = document.parent(&bidder).unwrap().unwrap();
        document.delete(&bidder).unwrap();
        for child in document.children(&auction).unwrap() {
            let child = child.unwrap();
            if document.has_name(&child, &QName::local("current")).unwrap() {
                let text = document.first_child(&child).unwrap().unwrap();
                let cents = |amount: &str| tidegate_workload::xmark::cents_of(amount).unwrap();
                let less = cents(&document.content(&text).unwrap()) - cents(&increase);
                document.set_value(&text, &tidegate_workload::xmark::money(less)).unwrap();
                break;
            }
        }
    });
    planted("number of items", |document| {
        let item = first(document, "item");
        let copy = document.copy_to(&item, &Place::After(item.clone())).unwrap();
        document.set_attribute(&copy, &QName::local("id"), "another").unwrap();
        let mailbox = document.last_child(&copy).unwrap().unwrap();
        let mails: Vec<Label> = document.children(&mailbox).unwrap().map(Result::unwrap).collect();
        for mail in mails {
            document.delete(&mail).unwrap();
        }
    });
    planted("number of open auctions", |document| {
        let list = first(document, "open_auctions");
        let text = "<open_auction id='another'><initial>1.00</initial><current>1.00</current>\
            <itemref item='item0'/><seller person='person0'/><annotation/><quantity>1</quantity>\
            <type>Regular</type><interval/></open_auction>";
        document.insert_xml(&Place::Last(list), text.as_bytes()).unwrap();
    });
}
