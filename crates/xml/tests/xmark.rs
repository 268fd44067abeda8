//! Documents of the generator: their numbers, references, distributions and validity.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails at once and may say why"
)]

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::fs;

use tidegate_xml::parse::{Event, XmlReader};
use tidegate_xml::xmark::{
    DTD, PersonCount, Repetition, XmarkCardinalities, XmarkGenerator, XmarkOptions, repetitions,
};

mod parse_documents;

fn generator(factor: f64, seed: u64) -> XmarkGenerator {
    XmarkGenerator::new(XmarkOptions { factor, seed, persons: PersonCount::Original }).unwrap()
}

/// The numbers that the generator's study and the paper's Figure 5 print for factor 10.
#[test]
fn numbers_are_the_published_ones() {
    let numbers = XmarkCardinalities::new(10.0, PersonCount::Original);
    assert_eq!(numbers.items, [5_500, 20_000, 22_000, 60_000, 100_000, 10_000]);
    assert_eq!(numbers.all_items(), 217_500);
    assert_eq!((numbers.categories, numbers.persons), (10_000, 255_000));
    assert_eq!((numbers.open_auctions, numbers.closed_auctions), (120_000, 97_500));
    assert_eq!(XmarkCardinalities::new(10.0, PersonCount::Study).persons, 250_000);
    let one = XmarkCardinalities::new(1.0, PersonCount::Original);
    assert_eq!(one.items, [550, 2_000, 2_200, 6_000, 10_000, 1_000]);
    for factor in [0.000_01, 0.001, 0.0137, 0.1, 0.7, 3.3] {
        let numbers = XmarkCardinalities::new(factor, PersonCount::Original);
        assert_eq!(numbers.all_items(), numbers.open_auctions + numbers.closed_auctions);
    }
}

#[test]
fn factors_out_of_range_are_refused() {
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
        let options = XmarkOptions { factor, seed: 1, persons: PersonCount::Original };
        assert!(XmarkGenerator::new(options).is_err(), "{factor}");
    }
}

#[test]
fn a_seed_gives_one_document_and_another_seed_another() {
    let document = generator(0.002, 7).write(Vec::new()).unwrap();
    assert_eq!(generator(0.002, 7).write(Vec::new()).unwrap(), document);
    assert_ne!(generator(0.002, 8).write(Vec::new()).unwrap(), document);
    let mut reader = XmlReader::new(&document[..]);
    while reader.next_event().unwrap().is_some() {}
}

/// What is counted of a document.
#[derive(Default)]
struct Counts {
    /// Children by (parent, child), each parent's number of them.
    children: HashMap<(String, String), Vec<u32>>,
    /// Parents by name.
    elements: HashMap<String, u32>,
    ids: HashSet<String>,
    /// Values of references by (element, attribute).
    references: HashMap<(String, String), Vec<String>>,
    /// Texts of simple elements, by element.
    texts: HashMap<String, Vec<String>>,
    featured: u32,
    /// Initial price, increases and current price of each open auction.
    auctions: Vec<(u64, u64, u64)>,
}

fn cents(amount: &str) -> u64 {
    let (whole, part) = amount.split_once('.').unwrap();
    assert_eq!(part.len(), 2);
    whole.parse::<u64>().unwrap() * 100 + part.parse::<u64>().unwrap()
}

fn count(generator: &XmarkGenerator) -> Counts {
    let mut counts = Counts::default();
    let mut open: Vec<(String, HashMap<String, u32>)> = Vec::new();
    let mut text = String::new();
    let done = generator.events(|event| {
        match event {
            Event::StartElement { name, attributes } => {
                let name = name.to_string();
                text.clear();
                for attribute in attributes {
                    let key = attribute.name.to_string();
                    match key.as_str() {
                        "id" => assert!(counts.ids.insert(attribute.value.clone())),
                        "featured" => counts.featured += 1,
                        "income" => assert!(cents(&attribute.value) > 0),
                        _ => {
                            let list = counts.references.entry((name.clone(), key)).or_default();
                            list.push(attribute.value.clone());
                        }
                    }
                }
                if name == "open_auction" {
                    counts.auctions.push((0, 0, 0));
                }
                *counts.elements.entry(name.clone()).or_default() += 1;
                if let Some((_, children)) = open.last_mut() {
                    *children.entry(name.clone()).or_default() += 1;
                }
                open.push((name, HashMap::new()));
            }
            Event::Text(part) => text.push_str(part),
            Event::EndElement { .. } => {
                let (name, children) = open.pop().unwrap();
                let auction = counts.auctions.last_mut();
                match name.as_str() {
                    "initial" => auction.unwrap().0 = cents(&text),
                    "increase" => auction.unwrap().1 += cents(&text),
                    "current" => auction.unwrap().2 = cents(&text),
                    "date" | "start" | "end" | "time" | "happiness" => {
                        counts.texts.entry(name.clone()).or_default().push(text.clone());
                    }
                    _ => {}
                }
                for (child, number) in children {
                    counts.children.entry((name.clone(), child)).or_default().push(number);
                }
            }
            _ => {}
        }
        Ok::<(), Infallible>(())
    });
    done.unwrap();
    counts
}

#[test]
fn a_document_is_consistent() {
    let generator = generator(0.03, 2);
    let counts = count(&generator);
    let numbers = generator.cardinalities();
    let expected = [
        ("item", numbers.all_items()),
        ("category", numbers.categories),
        ("edge", numbers.categories),
        ("person", numbers.persons),
        ("open_auction", numbers.open_auctions),
        ("closed_auction", numbers.closed_auctions),
    ];
    for (element, number) in expected {
        assert_eq!(u64::from(counts.elements[element]), number, "{element}");
    }
    let regions = ["africa", "asia", "australia", "europe", "namerica", "samerica"];
    for (region, number) in regions.into_iter().zip(numbers.items) {
        let items = &counts.children[&(region.to_owned(), "item".to_owned())];
        assert_eq!(u64::from(items[0]), number, "{region}");
    }
    for ((element, attribute), values) in &counts.references {
        assert!(values.iter().all(|value| counts.ids.contains(value)), "{element}/@{attribute}");
    }
    let items = &counts.references[&("itemref".to_owned(), "item".to_owned())];
    assert_eq!(items.iter().collect::<HashSet<_>>().len() as u64, numbers.all_items());
    assert_eq!(items.len() as u64, numbers.all_items());
    for (initial, increases, current) in &counts.auctions {
        assert!(*initial > 0);
        assert_eq!(initial + increases, *current);
    }
    for element in ["date", "start", "end"] {
        assert!(counts.texts[element].iter().all(|date| is_date(date)), "{element}");
    }
    assert!(counts.texts["time"].iter().all(|time| {
        let parts: Vec<u32> = time.split(':').map(|part| part.parse().unwrap()).collect();
        time.len() == 8 && parts.len() == 3 && parts[0] < 24 && parts[1] < 60 && parts[2] < 60
    }));
    assert!(
        counts.texts["happiness"]
            .iter()
            .all(|number| { (1..=10).contains(&number.parse::<u32>().unwrap()) })
    );
}

fn is_date(date: &str) -> bool {
    let parts: Vec<u32> = date.split('/').map(|part| part.parse().unwrap()).collect();
    let leap = parts[2].is_multiple_of(4);
    let days = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    date.len() == 10
        && (1998..=2001).contains(&parts[2])
        && (1..=12).contains(&parts[0])
        && (1..=days[parts[0] as usize - 1]).contains(&parts[1])
}

/// Compares numbers of children with their distribution by the chi-square statistic, classes of
/// less than 5 expected put together. The bound is exceeded by chance once in about 30,000 tests;
/// the seed is fixed, so it is exceeded always or never.
fn assert_distribution(name: &str, found: &HashMap<u32, u32>, expected: Repetition) {
    let total: u32 = found.values().sum();
    let (mut statistic, mut classes) = (0.0, 0.0);
    let (mut rest_found, mut rest_expected) = (0.0, 0.0);
    let probabilities = expected.probabilities();
    assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    for (added, probability) in (0..).zip(&probabilities) {
        rest_found += f64::from(found.get(&(expected.least + added)).copied().unwrap_or(0));
        rest_expected += probability * f64::from(total);
        let left: f64 = probabilities[added as usize + 1..].iter().sum();
        if rest_expected >= 5.0 && left * f64::from(total) >= 5.0 {
            statistic += (rest_found - rest_expected).powi(2) / rest_expected;
            classes += 1.0;
            (rest_found, rest_expected) = (0.0, 0.0);
        }
    }
    statistic += (rest_found - rest_expected).powi(2) / rest_expected;
    let inside = expected.least..=expected.most;
    assert!(found.keys().all(|number| inside.contains(number)), "{name}: {found:?}");
    // Wilson and Hilferty: the cube root of a chi-square over its mean is nearly normal.
    let freedom: f64 = classes;
    let spread = 2.0 / (9.0 * freedom);
    let deviate = (libm::cbrt(statistic / freedom) - (1.0 - spread)) / spread.sqrt();
    assert!(deviate < 4.0, "{name}: chi-square {statistic} with {freedom} degrees of freedom");
}

/// Checks a share by its standard error; five of them are exceeded once in about 2 million tests.
fn assert_share(name: &str, found: u32, of: u32, share: f64) {
    let error = (share * (1.0 - share) / f64::from(of)).sqrt();
    let difference = f64::from(found) / f64::from(of) - share;
    assert!(difference.abs() < 5.0 * error, "{name}: {found} of {of}, expected {share}");
}

#[test]
fn children_are_repeated_as_the_parameters_say() {
    let counts = count(&generator(0.1, 3));
    let lists = [
        ("item", "incategory", repetitions::INCATEGORY),
        ("open_auction", "bidder", repetitions::BIDDER),
        ("mailbox", "mail", repetitions::MAIL),
        ("profile", "interest", repetitions::INTEREST),
        ("watches", "watch", repetitions::WATCH),
        ("parlist", "listitem", repetitions::LISTITEM),
    ];
    let published =
        [(1, 3.0, 10), (0, 5.0, 200), (0, 1.0, 250), (0, 3.0, 25), (0, 4.0, 100), (2, 1.0, 5)];
    for ((parent, child, repetition), (least, mean_added, most)) in lists.into_iter().zip(published)
    {
        assert_eq!(repetition, Repetition { least, mean_added, most });
        let mut found: HashMap<u32, u32> = HashMap::new();
        let numbers = &counts.children[&(parent.to_owned(), child.to_owned())];
        for number in numbers {
            *found.entry(*number).or_default() += 1;
        }
        let without = counts.elements[parent] - u32::try_from(numbers.len()).unwrap();
        if without > 0 {
            found.insert(0, without);
        }
        assert_distribution(child, &found, repetition);
    }
}

#[test]
fn optional_parts_and_references_are_distributed_as_the_parameters_say() {
    let generator = generator(0.1, 4);
    let counts = count(&generator);
    let with = |parent: &str, child: &str| {
        let key = (parent.to_owned(), child.to_owned());
        u32::try_from(counts.children.get(&key).map_or(0, Vec::len)).unwrap()
    };
    for (parent, children, share) in [
        ("person", &["phone", "address", "homepage", "creditcard", "profile", "watches"][..], 0.5),
        ("address", &["province"], 0.5),
        ("profile", &["education", "gender", "age"], 0.5),
        ("open_auction", &["reserve", "privacy"], 0.5),
        ("closed_auction", &["annotation"], 0.5),
        ("annotation", &["description"], 0.5),
        ("description", &["text"], 0.7),
        ("listitem", &["text"], 0.8),
    ] {
        for child in children {
            let name = format!("{parent}/{child}");
            assert_share(&name, with(parent, child), counts.elements[parent], share);
        }
    }
    assert_share("featured", counts.featured, counts.elements["item"], 0.1);
    let persons = generator.cardinalities().persons as f64;
    let shares = |element: &str| -> Vec<f64> {
        let values = &counts.references[&(element.to_owned(), "person".to_owned())];
        values
            .iter()
            .map(|value| value["person".len()..].parse::<f64>().unwrap() / persons)
            .collect()
    };
    for (element, deviation) in
        [("seller", 0.1), ("buyer", 0.1), ("personref", 12_f64.sqrt().recip())]
    {
        let shares = shares(element);
        let count = shares.len() as f64;
        let mean = shares.iter().sum::<f64>() / count;
        let square = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / count;
        // Five standard errors, and half a person for the rounding of the index.
        assert!((mean - 0.5).abs() < 5.0 * deviation / count.sqrt() + 0.5 / persons, "{element}");
        let tolerance = 5.0 * deviation / (2.0 * count).sqrt();
        assert!((square.sqrt() - deviation).abs() < tolerance, "{element}: {}", square.sqrt());
    }
}

#[test]
fn a_document_is_valid_by_the_dtd() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("auction.dtd"), DTD).unwrap();
    for (factor, seed) in [(0.000_01, 1), (0.001, 2), (0.01, 3)] {
        let document = generator(factor, seed).write(Vec::new()).unwrap();
        fs::write(directory.path().join("site.xml"), document).unwrap();
        let arguments = ["--noout", "--nonet", "--dtdvalid", "auction.dtd", "site.xml"];
        let arguments = arguments.map(str::to_owned);
        let Some(output) = parse_documents::xmllint(directory.path(), &arguments) else { return };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
