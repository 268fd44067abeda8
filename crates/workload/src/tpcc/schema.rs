//! The nine tables (clause 1.3) and the two indexes that selections by name and by customer need.
//!
//! ORDER is a word of SQL, so its table is called `orders`. Keys come first in each table.

use crate::{Column, Index, Table, Type};

pub(super) const ITEM: usize = 0;
pub(super) const WAREHOUSE: usize = 1;
pub(super) const STOCK: usize = 2;
pub(super) const DISTRICT: usize = 3;
pub(super) const CUSTOMER: usize = 4;
pub(super) const HISTORY: usize = 5;
pub(super) const ORDERS: usize = 6;
pub(super) const NEW_ORDER: usize = 7;
pub(super) const ORDER_LINE: usize = 8;

/// The tables, each at the place of its constant.
pub(super) fn tables() -> Vec<Table> {
    vec![
        item(),
        warehouse(),
        stock(),
        district(),
        customer(),
        history(),
        orders(),
        new_order(),
        order_line(),
    ]
}

const fn int(name: &'static str) -> Column {
    Column::new(name, Type::Int)
}

const fn cents(name: &'static str) -> Column {
    Column::new(name, Type::BigInt)
}

const fn moment(name: &'static str) -> Column {
    Column::new(name, Type::BigInt)
}

const fn text(name: &'static str, length: u16) -> Column {
    Column::new(name, Type::Varchar(length))
}

const fn fixed(name: &'static str, length: u16) -> Column {
    Column::new(name, Type::Char(length))
}

fn table(name: &'static str, primary_key: &[&'static str], columns: Vec<Column>) -> Table {
    Table { name, columns, primary_key: primary_key.to_vec(), indexes: Vec::new() }
}

fn index(name: &'static str, columns: &[&'static str]) -> Index {
    Index { name, columns: columns.to_vec(), unique: false }
}

fn item() -> Table {
    table(
        "item",
        &["i_id"],
        vec![int("i_id"), int("i_im_id"), text("i_name", 24), cents("i_price"), text("i_data", 50)],
    )
}

fn warehouse() -> Table {
    table(
        "warehouse",
        &["w_id"],
        vec![
            int("w_id"),
            text("w_name", 10),
            text("w_street_1", 20),
            text("w_street_2", 20),
            text("w_city", 20),
            fixed("w_state", 2),
            fixed("w_zip", 9),
            int("w_tax"),
            cents("w_ytd"),
        ],
    )
}

fn stock() -> Table {
    table(
        "stock",
        &["s_w_id", "s_i_id"],
        vec![
            int("s_w_id"),
            int("s_i_id"),
            int("s_quantity"),
            fixed("s_dist_01", 24),
            fixed("s_dist_02", 24),
            fixed("s_dist_03", 24),
            fixed("s_dist_04", 24),
            fixed("s_dist_05", 24),
            fixed("s_dist_06", 24),
            fixed("s_dist_07", 24),
            fixed("s_dist_08", 24),
            fixed("s_dist_09", 24),
            fixed("s_dist_10", 24),
            int("s_ytd"),
            int("s_order_cnt"),
            int("s_remote_cnt"),
            text("s_data", 50),
        ],
    )
}

fn district() -> Table {
    table(
        "district",
        &["d_w_id", "d_id"],
        vec![
            int("d_w_id"),
            int("d_id"),
            text("d_name", 10),
            text("d_street_1", 20),
            text("d_street_2", 20),
            text("d_city", 20),
            fixed("d_state", 2),
            fixed("d_zip", 9),
            int("d_tax"),
            cents("d_ytd"),
            int("d_next_o_id"),
        ],
    )
}

fn customer() -> Table {
    let mut customer = table(
        "customer",
        &["c_w_id", "c_d_id", "c_id"],
        vec![
            int("c_w_id"),
            int("c_d_id"),
            int("c_id"),
            text("c_first", 16),
            fixed("c_middle", 2),
            text("c_last", 16),
            text("c_street_1", 20),
            text("c_street_2", 20),
            text("c_city", 20),
            fixed("c_state", 2),
            fixed("c_zip", 9),
            fixed("c_phone", 16),
            moment("c_since"),
            fixed("c_credit", 2),
            cents("c_credit_lim"),
            int("c_discount"),
            cents("c_balance"),
            cents("c_ytd_payment"),
            int("c_payment_cnt"),
            int("c_delivery_cnt"),
            text("c_data", 500),
        ],
    );
    customer.indexes = vec![index("customer_name", &["c_w_id", "c_d_id", "c_last", "c_first"])];
    customer
}

/// The one table without a primary key.
fn history() -> Table {
    table(
        "history",
        &[],
        vec![
            int("h_c_id"),
            int("h_c_d_id"),
            int("h_c_w_id"),
            int("h_d_id"),
            int("h_w_id"),
            moment("h_date"),
            cents("h_amount"),
            text("h_data", 24),
        ],
    )
}

fn orders() -> Table {
    let mut orders = table(
        "orders",
        &["o_w_id", "o_d_id", "o_id"],
        vec![
            int("o_w_id"),
            int("o_d_id"),
            int("o_id"),
            int("o_c_id"),
            moment("o_entry_d"),
            Column::nullable("o_carrier_id", Type::Int),
            int("o_ol_cnt"),
            int("o_all_local"),
        ],
    );
    orders.indexes = vec![index("orders_customer", &["o_w_id", "o_d_id", "o_c_id", "o_id"])];
    orders
}

fn new_order() -> Table {
    table(
        "new_order",
        &["no_w_id", "no_d_id", "no_o_id"],
        vec![int("no_w_id"), int("no_d_id"), int("no_o_id")],
    )
}

fn order_line() -> Table {
    table(
        "order_line",
        &["ol_w_id", "ol_d_id", "ol_o_id", "ol_number"],
        vec![
            int("ol_w_id"),
            int("ol_d_id"),
            int("ol_o_id"),
            int("ol_number"),
            int("ol_i_id"),
            int("ol_supply_w_id"),
            Column::nullable("ol_delivery_d", Type::BigInt),
            int("ol_quantity"),
            cents("ol_amount"),
            fixed("ol_dist_info", 24),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_at_its_place() {
        let names: Vec<&str> = tables().iter().map(|table| table.name).collect();
        let mut expected = [""; 9];
        for (place, name) in [
            (ITEM, "item"),
            (WAREHOUSE, "warehouse"),
            (STOCK, "stock"),
            (DISTRICT, "district"),
            (CUSTOMER, "customer"),
            (HISTORY, "history"),
            (ORDERS, "orders"),
            (NEW_ORDER, "new_order"),
            (ORDER_LINE, "order_line"),
        ] {
            expected[place] = name;
        }
        assert_eq!(names, expected);
    }

    #[test]
    fn keys_and_indexes_are_of_columns_that_exist() {
        for table in tables() {
            let has = |name: &&str| table.columns.iter().any(|column| column.name == *name);
            assert!(table.primary_key.iter().all(has), "{}", table.name);
            assert!(table.indexes.iter().all(|index| index.columns.iter().all(has)));
        }
    }
}
