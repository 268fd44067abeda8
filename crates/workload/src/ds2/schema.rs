//! The eight tables.

use crate::Type::{BigInt, Char, Int, Varchar};
use crate::{Column, Index, Table};

/// The tables' places in [`tables`].
pub(super) const CATEGORIES: usize = 0;
pub(super) const CUSTOMERS: usize = 1;
pub(super) const PRODUCTS: usize = 2;
pub(super) const INVENTORY: usize = 3;
pub(super) const ORDERS: usize = 4;
pub(super) const ORDERLINES: usize = 5;
pub(super) const CUST_HIST: usize = 6;

const NAME: crate::Type = Varchar(50);

/// All tables; the last, `reorder`, is empty at the start.
pub(super) fn tables() -> Vec<Table> {
    let categories = table(
        "categories",
        vec![Column::new("category", Int), Column::new("categoryname", NAME)],
        &["category"],
    );
    let inventory = table(
        "inventory",
        vec![
            Column::new("prod_id", Int),
            Column::new("quan_in_stock", Int),
            Column::new("sales", BigInt),
        ],
        &["prod_id"],
    );
    vec![categories, customers(), products(), inventory, orders(), lines(), history(), reorder()]
}

fn table(name: &'static str, columns: Vec<Column>, primary_key: &'static [&'static str]) -> Table {
    Table { name, columns, primary_key: primary_key.to_vec(), indexes: Vec::new() }
}

fn index(name: &'static str, columns: &[&'static str]) -> Index {
    Index { name, columns: columns.to_vec(), unique: false }
}

fn customers() -> Table {
    let columns = vec![
        Column::new("customerid", BigInt),
        Column::new("firstname", NAME),
        Column::new("lastname", NAME),
        Column::new("address1", NAME),
        Column::nullable("address2", NAME),
        Column::new("city", NAME),
        Column::nullable("state", NAME),
        Column::nullable("zip", Int),
        Column::new("country", NAME),
        Column::new("region", Int),
        Column::nullable("email", NAME),
        Column::nullable("phone", NAME),
        Column::new("creditcardtype", Int),
        Column::new("creditcard", NAME),
        Column::new("creditcardexpiration", NAME),
        Column::new("username", NAME),
        Column::new("password", NAME),
        Column::nullable("age", Int),
        Column::nullable("income", Int),
        Column::nullable("gender", Char(1)),
    ];
    let mut table = table("customers", columns, &["customerid"]);
    table.indexes = vec![Index { unique: true, ..index("customers_username", &["username"]) }];
    table
}

fn products() -> Table {
    let columns = vec![
        Column::new("prod_id", Int),
        Column::new("category", Int),
        Column::new("title", NAME),
        Column::new("actor", NAME),
        Column::new("price", Int),
        Column::new("special", Int),
        Column::new("common_prod_id", Int),
    ];
    let mut table = table("products", columns, &["prod_id"]);
    table.indexes = vec![
        index("products_category", &["category", "special"]),
        index("products_title", &["title"]),
        index("products_actor", &["actor"]),
    ];
    table
}

fn orders() -> Table {
    let columns = vec![
        Column::new("orderid", BigInt),
        Column::new("orderdate", Int),
        Column::new("customerid", BigInt),
        Column::new("netamount", BigInt),
        Column::new("tax", BigInt),
        Column::new("totalamount", BigInt),
    ];
    let mut table = table("orders", columns, &["orderid"]);
    table.indexes = vec![index("orders_customerid", &["customerid"])];
    table
}

fn lines() -> Table {
    let columns = vec![
        Column::new("orderid", BigInt),
        Column::new("orderlineid", Int),
        Column::new("prod_id", Int),
        Column::new("quantity", Int),
        Column::new("orderdate", Int),
    ];
    table("orderlines", columns, &["orderid", "orderlineid"])
}

fn history() -> Table {
    let columns = vec![
        Column::new("customerid", BigInt),
        Column::new("orderid", BigInt),
        Column::new("prod_id", Int),
    ];
    let mut table = table("cust_hist", columns, &[]);
    table.indexes = vec![index("cust_hist_customerid", &["customerid"])];
    table
}

fn reorder() -> Table {
    let columns = vec![
        Column::new("prod_id", Int),
        Column::new("date_low", Int),
        Column::new("quan_low", Int),
        Column::new("date_reordered", Int),
        Column::new("quan_reordered", Int),
        Column::new("date_expected", Int),
    ];
    table("reorder", columns, &[])
}
