//! Which interaction comes after which: the three mixes.
//!
//! # Mechanism
//! A browser goes from page to page by chance. For each page the specification (clause 5.2.2) has
//! a row of thresholds: draw a number of 1 to 9,999, and the first page whose threshold is not
//! below it is next. From the home page of the browsing mix, 2,000 leads to Best Sellers (3,792),
//! 8,000 to Search Request (9,559).
//!
//! The shares that follow in the long run (clause 5.2.1) are [`Mix::share`]: 5 % of the
//! interactions of the browsing mix order, 20 % of the shopping mix, 50 % of the ordering mix.
//!
//! # Where the thresholds are from
//! The specification is not at hand; public implementations print its thresholds. Two that were
//! compared differ in two places, and the stationary distribution decides which is right:
//!
//! - Shopping mix, from Shopping Cart to Home: 9,552 or 9,992. The first leads to 11.60 % of
//!   Shopping Cart and 16.00 % of Home, as clause 5.2.1 says, the second to 11.15 % and 16.20 %.
//! - Browsing mix, from Buy Confirm: to Home or, beyond 342, to Search Request; or always to Home.
//!   The first leads to 12.00 % of Search Request, as it should, the second to 11.53 %.
//!
//! A test holds all three matrices against the published shares.

use crate::Random;
use crate::workload::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interaction {
    /// Greets the customer.
    Home,
    /// The newest items of a subject.
    NewProducts,
    /// The items of a subject that sold best of late.
    BestSellers,
    /// One item.
    ProductDetail,
    /// The form of a search.
    SearchRequest,
    /// The items found by author, title or subject.
    SearchResults,
    /// Shows the cart, after it was changed.
    ShoppingCart,
    /// The form for customers.
    CustomerRegistration,
    /// Signs in a customer, or a new one up, and shows the order to be.
    BuyRequest,
    /// Makes the cart an order.
    BuyConfirm,
    /// The form of Order Display.
    OrderInquiry,
    /// The customer's latest order.
    OrderDisplay,
    /// The form for a change of an item.
    AdminRequest,
    /// Changes an item.
    AdminConfirm,
}

use Interaction::{
    AdminConfirm, AdminRequest, BestSellers, BuyConfirm, BuyRequest, CustomerRegistration, Home,
    NewProducts, OrderDisplay, OrderInquiry, ProductDetail, SearchRequest, SearchResults,
    ShoppingCart,
};

const COUNT: usize = 14;

pub(super) const KINDS: [Kind; COUNT] = [
    Kind { name: "home", phases: &["greeting", "promotion"] },
    Kind { name: "new-products", phases: &["promotion", "list"] },
    Kind { name: "best-sellers", phases: &["promotion", "list"] },
    Kind { name: "product-detail", phases: &["item"] },
    Kind { name: "search-request", phases: &["promotion"] },
    Kind { name: "search-results", phases: &["promotion", "list"] },
    Kind { name: "shopping-cart", phases: &["promotion", "change", "show"] },
    Kind { name: "customer-registration", phases: &["customer"] },
    Kind { name: "buy-request", phases: &["customer", "cart"] },
    Kind { name: "buy-confirm", phases: &["cart", "order", "stock", "payment"] },
    Kind { name: "order-inquiry", phases: &["customer"] },
    Kind { name: "order-display", phases: &["customer", "order", "lines"] },
    Kind { name: "admin-request", phases: &["item"] },
    Kind { name: "admin-confirm", phases: &["item", "related"] },
];

impl Interaction {
    /// All of them, in the order of the workload's kinds.
    pub const ALL: [Interaction; COUNT] = [
        Home,
        NewProducts,
        BestSellers,
        ProductDetail,
        SearchRequest,
        SearchResults,
        ShoppingCart,
        CustomerRegistration,
        BuyRequest,
        BuyConfirm,
        OrderInquiry,
        OrderDisplay,
        AdminRequest,
        AdminConfirm,
    ];

    /// Its place in [`Interaction::ALL`] and among the workload's kinds.
    pub fn place(self) -> usize {
        self as usize
    }
}

/// How much of the traffic orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mix {
    /// 95 % browse, 5 % order (`WIPSb`).
    Browsing,
    /// 80 % browse, 20 % order (`WIPS`).
    Shopping,
    /// 50 % browse, 50 % order (`WIPSo`).
    Ordering,
}

/// Where a page leads: thresholds that rise to 9,999, for each page.
type Leads = [&'static [(i32, Interaction)]; COUNT];

impl Mix {
    pub const ALL: [Mix; 3] = [Mix::Browsing, Mix::Shopping, Mix::Ordering];

    pub fn name(self) -> &'static str {
        match self {
            Mix::Browsing => "browsing",
            Mix::Shopping => "shopping",
            Mix::Ordering => "ordering",
        }
    }

    /// An interaction's share of all in the long run, in hundredths of a percent (clause 5.2.1).
    pub fn share(self, of: Interaction) -> u32 {
        let shares = match self {
            Mix::Browsing => {
                [2_900, 1_100, 1_100, 2_100, 1_200, 1_100, 200, 82, 75, 69, 30, 25, 10, 9]
            }
            Mix::Shopping => {
                [1_600, 500, 500, 1_700, 2_000, 1_700, 1_160, 300, 260, 120, 75, 66, 10, 9]
            }
            Mix::Ordering => {
                [912, 46, 46, 1_235, 1_453, 1_308, 1_353, 1_286, 1_273, 1_018, 25, 22, 12, 11]
            }
        };
        shares[of.place()]
    }

    /// What comes after an interaction.
    pub(super) fn after(self, from: Interaction, draw: &mut Random) -> Interaction {
        let drawn = draw.between(1, LAST);
        self.leads()[from.place()]
            .iter()
            .find(|(threshold, _)| drawn <= *threshold)
            .map_or(Home, |(_, to)| *to)
    }

    fn leads(self) -> &'static Leads {
        match self {
            Mix::Browsing => &BROWSING,
            Mix::Shopping => &SHOPPING,
            Mix::Ordering => &ORDERING,
        }
    }
}

const LAST: i32 = 9_999;

const BROWSING: Leads = [
    &[
        (3_792, BestSellers),
        (7_585, NewProducts),
        (7_688, OrderInquiry),
        (9_559, SearchRequest),
        (LAST, ShoppingCart),
    ],
    &[(299, Home), (9_867, ProductDetail), (9_941, SearchRequest), (LAST, ShoppingCart)],
    &[(4_607, Home), (5_259, ProductDetail), (9_942, SearchRequest), (LAST, ShoppingCart)],
    &[
        (47, AdminRequest),
        (8_346, Home),
        (9_749, ProductDetail),
        (9_890, SearchRequest),
        (LAST, ShoppingCart),
    ],
    &[(788, Home), (9_955, SearchResults), (LAST, ShoppingCart)],
    &[(3_674, Home), (9_868, ProductDetail), (9_942, SearchRequest), (LAST, ShoppingCart)],
    &[(4_099, CustomerRegistration), (8_883, Home), (LAST, ShoppingCart)],
    &[(9_145, BuyRequest), (9_619, Home), (LAST, SearchRequest)],
    &[(9_199, BuyConfirm), (9_595, Home), (LAST, ShoppingCart)],
    &[(342, Home), (LAST, SearchRequest)],
    &[(523, Home), (8_856, OrderDisplay), (LAST, SearchRequest)],
    &[(802, Home), (LAST, SearchRequest)],
    &[(8_999, AdminConfirm), (LAST, Home)],
    &[(9_877, Home), (LAST, SearchRequest)],
];

const SHOPPING: Leads = [
    &[
        (3_124, BestSellers),
        (6_249, NewProducts),
        (6_718, OrderInquiry),
        (7_026, SearchRequest),
        (LAST, ShoppingCart),
    ],
    &[(156, Home), (9_735, ProductDetail), (9_784, SearchRequest), (LAST, ShoppingCart)],
    &[(167, Home), (472, ProductDetail), (9_927, SearchRequest), (LAST, ShoppingCart)],
    &[
        (58, AdminRequest),
        (832, Home),
        (1_288, ProductDetail),
        (8_603, SearchRequest),
        (LAST, ShoppingCart),
    ],
    &[(635, Home), (9_135, SearchResults), (LAST, ShoppingCart)],
    &[(2_657, Home), (9_294, ProductDetail), (9_304, SearchRequest), (LAST, ShoppingCart)],
    &[(2_585, CustomerRegistration), (9_552, Home), (LAST, ShoppingCart)],
    &[(8_666, BuyRequest), (8_760, Home), (LAST, SearchRequest)],
    &[(4_614, BuyConfirm), (6_546, Home), (LAST, ShoppingCart)],
    &[(84, Home), (LAST, SearchRequest)],
    &[(72, Home), (8_872, OrderDisplay), (LAST, SearchRequest)],
    &[(69, Home), (LAST, SearchRequest)],
    &[(8_999, AdminConfirm), (LAST, Home)],
    &[(9_952, Home), (LAST, SearchRequest)],
];

const ORDERING: Leads = [
    &[
        (499, BestSellers),
        (999, NewProducts),
        (1_269, OrderInquiry),
        (1_295, SearchRequest),
        (LAST, ShoppingCart),
    ],
    &[(504, Home), (9_942, ProductDetail), (9_976, SearchRequest), (LAST, ShoppingCart)],
    &[(1, Home), (333, ProductDetail), (9_998, SearchRequest), (LAST, ShoppingCart)],
    &[
        (99, AdminRequest),
        (3_750, Home),
        (5_621, ProductDetail),
        (6_341, SearchRequest),
        (LAST, ShoppingCart),
    ],
    &[(815, Home), (9_815, SearchResults), (LAST, ShoppingCart)],
    &[(486, Home), (7_817, ProductDetail), (9_998, SearchRequest), (LAST, ShoppingCart)],
    &[(9_499, CustomerRegistration), (9_918, Home), (LAST, ShoppingCart)],
    &[(9_899, BuyRequest), (9_901, Home), (LAST, SearchRequest)],
    &[(7_999, BuyConfirm), (9_453, Home), (LAST, ShoppingCart)],
    &[(2, Home), (LAST, SearchRequest)],
    &[(1_168, Home), (9_968, OrderDisplay), (LAST, SearchRequest)],
    &[(9_939, Home), (LAST, SearchRequest)],
    &[(8_999, AdminConfirm), (LAST, Home)],
    &[(8_348, Home), (LAST, SearchRequest)],
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a browser is in the long run, by repeated multiplication with the matrix.
    fn stationary(mix: Mix) -> [f64; COUNT] {
        let mut shares = [1.0 / 14.0; COUNT];
        for _ in 0..20_000 {
            let mut next = [0.0; COUNT];
            for (from, leads) in mix.leads().iter().enumerate() {
                let mut before = 0;
                for &(threshold, to) in *leads {
                    next[to.place()] += shares[from] * f64::from(threshold - before) / 9_999.0;
                    before = threshold;
                }
            }
            // Half a step, so that a cycle cannot swing for ever.
            for (share, next) in shares.iter_mut().zip(next) {
                *share = f64::midpoint(*share, next);
            }
        }
        shares
    }

    #[test]
    fn thresholds_rise_to_the_last_number() {
        for mix in Mix::ALL {
            for leads in mix.leads() {
                assert!(leads.is_sorted_by(|(one, _), (other, _)| one < other), "{leads:?}");
                assert_eq!(leads.last().map(|(threshold, _)| *threshold), Some(LAST));
            }
            let shares: u32 = Interaction::ALL.map(|of| mix.share(of)).iter().sum();
            assert!((9_998..=10_002).contains(&shares), "{mix:?}: {shares}");
        }
    }

    #[test]
    fn the_matrices_have_the_shares_that_are_published() {
        for mix in Mix::ALL {
            let shares = stationary(mix);
            for (interaction, share) in Interaction::ALL.into_iter().zip(shares) {
                let published = f64::from(mix.share(interaction));
                // Hundredths of a percent; the published ones are rounded, twice over.
                let distance = (share * 10_000.0 - published).abs();
                assert!(distance < 1.2, "{mix:?} {interaction:?}: {share} against {published}");
            }
        }
    }

    #[test]
    fn browsers_follow_the_matrix() {
        let mut draw = Random::new(21, 0);
        let mut counts = [0_u32; COUNT];
        for _ in 0..99_990 {
            counts[Mix::Browsing.after(SearchRequest, &mut draw).place()] += 1;
        }
        let expected = [(Home, 7_880), (SearchResults, 91_670), (ShoppingCart, 440)];
        for (interaction, count) in expected {
            // Six standard deviations of a binomial at most.
            assert!(counts[interaction.place()].abs_diff(count) < 520, "{counts:?}");
        }
        assert_eq!(counts.iter().filter(|count| **count > 0).count(), 3);
    }

    #[test]
    fn interactions_and_kinds_are_in_the_same_order() {
        for (place, interaction) in Interaction::ALL.into_iter().enumerate() {
            assert_eq!(interaction.place(), place);
            let name = format!("{interaction:?}").to_lowercase();
            assert_eq!(KINDS[place].name.replace('-', ""), name);
        }
    }
}
