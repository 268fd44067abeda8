//! Orders from the page: `POST /orders` with the token and a body such as
//! `{"order":"pin","server":"db:5432","limit":12}`.
//!
//! An order is in force when it is answered. What takes time, such as the end of the transactions
//! of a database that is paused, is not waited for: the page shows it.

use serde::Deserialize;
use tidegate_control::Mpl;

use super::http::{Request, Response};
use crate::commands::{CommandError, LimitOrder, Scope};
use crate::shared::Shared;

/// An order.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
enum PageOrder {
    /// New transactions wait: of a database, or of all.
    Pause { database: Option<String> },
    /// They go on.
    Resume { database: Option<String> },
    /// The limit of a server stays where it is said.
    Pin { server: String, limit: Mpl },
    /// The limit is the highest, and a controller says what it would set.
    Observe { server: String },
    /// The limit is found as configured.
    Control { server: String },
}

fn scope(database: Option<&String>) -> Scope {
    database.map_or(Scope::All, |name| Scope::Database(name.clone()))
}

impl PageOrder {
    fn obey(&self, shared: &Shared) -> Result<(), CommandError> {
        match self {
            PageOrder::Pause { database } => {
                match shared.pause(scope(database.as_ref()), &|| false) {
                    // It is in force, and its completion is not waited for.
                    Err(CommandError::Abandoned) => Ok(()),
                    other => other,
                }
            }
            PageOrder::Resume { database } => shared.resume(scope(database.as_ref())),
            PageOrder::Pin { server, limit } => {
                shared.order_limit(server, LimitOrder::Pinned(*limit))
            }
            PageOrder::Observe { server } => shared.order_limit(server, LimitOrder::Observing),
            PageOrder::Control { server } => shared.order_limit(server, LimitOrder::Configured),
        }
    }
}

/// Obeys the order in a request that may give one.
pub(super) fn obey(shared: &Shared, request: &Request) -> Response {
    if !request.content_type.as_deref().is_some_and(|it| it.starts_with("application/json")) {
        let message = "an order is of the type application/json\n";
        return Response::error(415, "Unsupported Media Type", message);
    }
    let order: PageOrder = match serde_json::from_slice(&request.body) {
        Ok(order) => order,
        Err(error) => {
            return Response::error(400, "Bad Request", &format!("this is no order: {error}\n"));
        }
    };
    tracing::info!(?order, "ordered by the page");
    match order.obey(shared) {
        Ok(()) => Response::ok("the order is in force\n".to_owned()),
        Err(error) => Response::error(409, "Conflict", &format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_and_others_refused() {
        let read = |text: &str| serde_json::from_str::<PageOrder>(text).ok();
        let server = || "db:1".to_owned();
        let limit = Mpl::at_least_one(12);
        let pin = PageOrder::Pin { server: server(), limit };
        assert_eq!(read(r#"{"order":"pin","server":"db:1","limit":12}"#), Some(pin));
        let observe = PageOrder::Observe { server: server() };
        assert_eq!(read(r#"{"order":"observe","server":"db:1"}"#), Some(observe));
        assert_eq!(read(r#"{"order":"pause"}"#), Some(PageOrder::Pause { database: None }));
        for wrong in [
            r#"{"order":"pin","server":"db:1","limit":0}"#,
            r#"{"order":"pin","server":"db:1","limit":-1}"#,
            r#"{"order":"kill"}"#,
            r#"{"order":"observe","server":"db:1","limit":3}"#,
            "[]",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
