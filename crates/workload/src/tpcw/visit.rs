//! What a browser asks for, and what its page shows.

use std::sync::{Arc, Mutex, PoisonError};

use super::admin::{self, AdminConfirm};
use super::browser::{Cart, SharedMemory};
use super::cart::ShoppingCart;
use super::catalogue::{self, Listing};
use super::customer::{self, BuyRequest};
use super::keys::ShopKeys;
use super::mix::Interaction;
use super::purchase::BuyConfirm;
use crate::workload::Transaction;
use crate::{Ending, Failure, Running, Session};

/// A request with all its values.
#[derive(Debug)]
pub(super) enum Action {
    Home {
        customer: Option<i64>,
        promoted: i64,
    },
    /// New Products, Best Sellers and Search Results.
    List {
        listing: Listing,
        promoted: i64,
    },
    ProductDetail {
        item: i64,
    },
    SearchRequest {
        promoted: i64,
    },
    ShoppingCart(ShoppingCart),
    /// Customer Registration and Order Inquiry: a form with the customer's name on it.
    Form {
        customer: Option<i64>,
    },
    BuyRequest(BuyRequest),
    BuyConfirm(Box<BuyConfirm>),
    OrderDisplay {
        user: String,
    },
    AdminRequest {
        item: i64,
    },
    AdminConfirm(AdminConfirm),
}

/// What a page shows that later requests are made of.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) items: Option<Vec<i64>>,
    pub(super) cart: Option<Cart>,
    pub(super) customer: Option<i64>,
}

impl Action {
    async fn run(&self, keys: &ShopKeys, session: &Session<'_>) -> Result<Page, Failure> {
        match self {
            Action::Home { customer, promoted } => {
                catalogue::home(session, *customer, *promoted).await
            }
            Action::List { listing, promoted } => listing.run(session, *promoted).await,
            Action::ProductDetail { item } => catalogue::detail(session, *item).await,
            Action::SearchRequest { promoted } => {
                catalogue::promotion(session, *promoted).await.map(|_| Page::default())
            }
            Action::ShoppingCart(cart) => cart.run(keys, session).await,
            Action::Form { customer } => customer::form(session, *customer).await,
            Action::BuyRequest(request) => request.run(keys, session).await,
            Action::BuyConfirm(confirm) => confirm.run(keys, session).await,
            Action::OrderDisplay { user } => customer::order_display(session, user).await,
            Action::AdminRequest { item } => admin::request(session, *item).await,
            Action::AdminConfirm(confirm) => confirm.run(session).await,
        }
    }
}

/// A request on its way, what it showed, and who remembers that once it lasts.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) interaction: Interaction,
    pub(super) action: Action,
    pub(super) keys: Arc<ShopKeys>,
    pub(super) page: Mutex<Page>,
    pub(super) memory: SharedMemory,
}

impl Transaction for Visit {
    fn kind(&self) -> usize {
        self.interaction.place()
    }

    fn is_single(&self) -> bool {
        matches!(
            self.action,
            Action::ProductDetail { .. }
                | Action::AdminRequest { .. }
                | Action::Form { customer: Some(_) }
        )
    }

    fn is_read_only(&self) -> bool {
        match self.action {
            Action::Home { .. }
            | Action::List { .. }
            | Action::ProductDetail { .. }
            | Action::SearchRequest { .. }
            | Action::Form { .. }
            | Action::OrderDisplay { .. }
            | Action::AdminRequest { .. } => true,
            Action::ShoppingCart(_)
            | Action::BuyRequest(_)
            | Action::BuyConfirm(_)
            | Action::AdminConfirm(_) => false,
        }
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            let page = self.action.run(&self.keys, &session).await?;
            *self.page.lock().unwrap_or_else(PoisonError::into_inner) = page;
            Ok(Ending::Commit)
        })
    }

    fn committed(&self) {
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        self.memory.with(|memory| memory.turn(std::mem::take(&mut *page)));
    }
}
