//! Generator of `XMark` documents: an auction site of any size.
//!
//! `XMark` (Schmidt, Waas, Kersten, Carey, Manolescu, Busse: *`XMark`: a benchmark for XML data
//! management*, VLDB 2002) is the document of the study that the store follows. Its generator
//! takes words from plays; ours makes them of syllables. Structure ([`DTD`]), numbers of elements
//! and distributions are those of the original:
//!
//! - the numbers of [`XmarkCardinalities`], which grow with the factor;
//! - repeated children as [`repetitions`] has them; optional ones with a probability of one half,
//!   an item's attribute `featured` with 0.1;
//! - a description is a text with probability 0.7, else a list; below a list item 0.8;
//! - sellers and buyers follow a normal distribution over the persons, with its mean in the middle
//!   and a standard deviation of a tenth of their number; other references are uniform;
//! - each item is in exactly one auction; in an open one, `current` is `initial` plus all
//!   increases.
//!
//! Ours alone are the words, the values of simple elements, and the order in which items come in
//! auctions. The elements `status` and `amount`, which the original's DTD declares and no content
//! model names, are left out.
//!
//! Every person, item and auction is drawn from the seed and its own number, and permutations are
//! computed, so memory does not grow with the factor.

mod draw;
mod emit;
mod permutation;
mod prose;
mod site;
mod words;

use std::io::Write;

pub use draw::Repetition;
pub use site::repetitions;

use crate::parse::Event;
use crate::serialize::{SerializeError, XmlWriter};
use permutation::Permutation;
use words::Vocabulary;

/// The document type definition of the documents, to validate them.
pub const DTD: &str = include_str!("xmark/auction.dtd");

/// The largest factor: the document has about 11 TB then.
pub const LARGEST_FACTOR: f64 = 100_000.0;

/// Number of persons at factor 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PersonCount {
    /// 25,500, as the original generator has it.
    #[default]
    Original,
    /// 25,000, as the study's Figure 5 prints it.
    Study,
}

/// What document to generate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct XmarkOptions {
    /// Scaling factor, above 0; about 110 MB at 1.
    pub factor: f64,
    /// Seed: the same options give the same document.
    pub seed: u64,
    /// Number of persons at factor 1.
    pub persons: PersonCount,
}

/// A factor that is not above 0 or that is larger than [`LARGEST_FACTOR`].
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("the factor is {0}; choose one above 0 and at most {LARGEST_FACTOR}")]
pub struct XmarkFactorError(pub f64);

/// How many of each there are in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XmarkCardinalities {
    /// Items by region: Africa, Asia, Australia, Europe, North America, South America.
    pub items: [u64; 6],
    /// Categories, and edges between them.
    pub categories: u64,
    /// Number of `person` elements.
    pub persons: u64,
    /// Open auctions.
    pub open_auctions: u64,
    /// Closed auctions.
    pub closed_auctions: u64,
}

/// Items by region at factor 1.
const ITEMS: [f64; 6] = [550.0, 2_000.0, 2_200.0, 6_000.0, 10_000.0, 1_000.0];

impl XmarkCardinalities {
    /// Returns the numbers at a factor: those of the original times the factor, rounded so that
    /// the regions have exactly as many items as there are auctions. There is at least one of each,
    /// except for the items of a region.
    #[must_use]
    pub fn new(factor: f64, persons: PersonCount) -> XmarkCardinalities {
        let at_factor_one = match persons {
            PersonCount::Original => 25_500.0,
            PersonCount::Study => 25_000.0,
        };
        let open_auctions = scaled(12_000.0, factor);
        let closed_auctions = scaled(9_750.0, factor);
        let total: f64 = ITEMS.iter().sum();
        let all = (open_auctions + closed_auctions) as f64;
        let (mut share, mut before) = (0.0, 0);
        let items = ITEMS.map(|count| {
            share += count / total;
            let end = rounded(all * share);
            let items = end - before;
            before = end;
            items
        });
        XmarkCardinalities {
            items,
            categories: scaled(1_000.0, factor),
            persons: scaled(at_factor_one, factor),
            open_auctions,
            closed_auctions,
        }
    }

    /// Returns the number of items in all regions.
    #[must_use]
    pub fn all_items(&self) -> u64 {
        self.items.iter().sum()
    }
}

fn scaled(count: f64, factor: f64) -> u64 {
    rounded(count * factor).max(1)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "factors are positive and bounded"
)]
fn rounded(count: f64) -> u64 {
    count.round() as u64
}

/// Generates one document, as often as it is asked to.
#[derive(Debug, Clone)]
pub struct XmarkGenerator {
    seed: u64,
    cardinalities: XmarkCardinalities,
    vocabulary: Vocabulary,
    /// Which item is in which auction, open ones first.
    auctioned: Permutation,
}

impl XmarkGenerator {
    /// Prepares the document of these options.
    ///
    /// # Errors
    ///
    /// Returns an error if the factor is not a number above 0 or too large.
    pub fn new(options: XmarkOptions) -> Result<XmarkGenerator, XmarkFactorError> {
        let XmarkOptions { factor, seed, persons } = options;
        if !(factor > 0.0 && factor <= LARGEST_FACTOR) {
            return Err(XmarkFactorError(factor));
        }
        let cardinalities = XmarkCardinalities::new(factor, persons);
        Ok(XmarkGenerator {
            seed,
            cardinalities,
            vocabulary: Vocabulary::new(seed),
            auctioned: Permutation::new(cardinalities.all_items(), seed),
        })
    }

    /// Returns how many of each the document has.
    #[must_use]
    pub fn cardinalities(&self) -> &XmarkCardinalities {
        &self.cardinalities
    }

    /// Passes the document on as events.
    ///
    /// # Errors
    ///
    /// Returns the first error of `sink`, and stops there.
    pub fn events<E>(&self, sink: impl FnMut(Event<'_>) -> Result<(), E>) -> Result<(), E> {
        site::Site::new(self, sink).document()
    }

    /// Writes the document as text and returns the output.
    ///
    /// # Errors
    ///
    /// Returns an error if the output fails.
    pub fn write<W: Write>(&self, output: W) -> Result<W, SerializeError> {
        let mut writer = XmlWriter::new(output);
        self.events(|event| writer.write(event))?;
        writer.finish()
    }
}
