//! The ten tables of the specification, and their indexes.
//!
//! Money is in cents, a discount in percent, a rate in ten-thousandths. A moment (`o_date`,
//! `c_login` and such) is microseconds since 1970 and a date days since 1970. Beyond the
//! specification, `order_line` has `ol_cost`, the price of one book when it was sold.

use crate::{Column, Index, Table, Type};

/// A column that always holds something. Short, because there are 77 of them.
const fn column(name: &'static str, kind: Type) -> Column {
    Column::new(name, kind)
}

fn index(name: &'static str, column: &'static str, unique: bool) -> Index {
    Index { name, columns: vec![column], unique }
}

/// The tables in the order they are filled.
pub(super) const COUNTRY: usize = 0;
pub(super) const ADDRESS: usize = 1;
pub(super) const CUSTOMER: usize = 2;
pub(super) const AUTHOR: usize = 3;
pub(super) const ITEM: usize = 4;
pub(super) const ORDERS: usize = 5;
pub(super) const ORDER_LINE: usize = 6;
pub(super) const CC_XACTS: usize = 7;

pub(super) fn tables() -> Vec<Table> {
    vec![
        country(),
        address(),
        customer(),
        author(),
        item(),
        orders(),
        order_line(),
        cc_xacts(),
        shopping_cart(),
        shopping_cart_line(),
    ]
}

fn country() -> Table {
    Table {
        name: "country",
        columns: vec![
            column("co_id", Type::Int),
            column("co_name", Type::Varchar(50)),
            column("co_exchange", Type::BigInt),
            column("co_currency", Type::Varchar(18)),
        ],
        primary_key: vec!["co_id"],
        indexes: vec![index("country_name", "co_name", true)],
    }
}

fn address() -> Table {
    Table {
        name: "address",
        columns: vec![
            column("addr_id", Type::Int),
            column("addr_street1", Type::Varchar(40)),
            column("addr_street2", Type::Varchar(40)),
            column("addr_city", Type::Varchar(30)),
            column("addr_state", Type::Varchar(20)),
            column("addr_zip", Type::Varchar(10)),
            column("addr_co_id", Type::Int),
        ],
        primary_key: vec!["addr_id"],
        indexes: vec![index("address_zip", "addr_zip", false)],
    }
}

fn customer() -> Table {
    Table {
        name: "customer",
        columns: vec![
            column("c_id", Type::Int),
            column("c_uname", Type::Varchar(20)),
            column("c_passwd", Type::Varchar(20)),
            column("c_fname", Type::Varchar(17)),
            column("c_lname", Type::Varchar(17)),
            column("c_addr_id", Type::Int),
            column("c_phone", Type::Varchar(18)),
            column("c_email", Type::Varchar(50)),
            column("c_since", Type::Int),
            column("c_last_visit", Type::Int),
            column("c_login", Type::BigInt),
            column("c_expiration", Type::BigInt),
            column("c_discount", Type::Int),
            column("c_balance", Type::BigInt),
            column("c_ytd_pmt", Type::BigInt),
            column("c_birthdate", Type::Int),
            column("c_data", Type::Varchar(500)),
        ],
        primary_key: vec!["c_id"],
        indexes: vec![index("customer_uname", "c_uname", true)],
    }
}

fn author() -> Table {
    Table {
        name: "author",
        columns: vec![
            column("a_id", Type::Int),
            column("a_fname", Type::Varchar(20)),
            column("a_lname", Type::Varchar(20)),
            column("a_mname", Type::Varchar(20)),
            column("a_dob", Type::Int),
            column("a_bio", Type::Varchar(500)),
        ],
        primary_key: vec!["a_id"],
        indexes: vec![],
    }
}

fn item() -> Table {
    Table {
        name: "item",
        columns: vec![
            column("i_id", Type::Int),
            column("i_title", Type::Varchar(60)),
            column("i_a_id", Type::Int),
            column("i_pub_date", Type::Int),
            column("i_publisher", Type::Varchar(60)),
            column("i_subject", Type::Varchar(60)),
            column("i_desc", Type::Varchar(500)),
            column("i_related1", Type::Int),
            column("i_related2", Type::Int),
            column("i_related3", Type::Int),
            column("i_related4", Type::Int),
            column("i_related5", Type::Int),
            column("i_thumbnail", Type::Varchar(40)),
            column("i_image", Type::Varchar(40)),
            column("i_srp", Type::BigInt),
            column("i_cost", Type::BigInt),
            column("i_avail", Type::Int),
            column("i_stock", Type::Int),
            column("i_isbn", Type::Char(13)),
            column("i_page", Type::Int),
            column("i_backing", Type::Varchar(15)),
            column("i_dimensions", Type::Varchar(25)),
        ],
        primary_key: vec!["i_id"],
        indexes: vec![
            index("item_subject", "i_subject", false),
            index("item_author", "i_a_id", false),
        ],
    }
}

fn orders() -> Table {
    Table {
        name: "orders",
        columns: vec![
            column("o_id", Type::Int),
            column("o_c_id", Type::Int),
            column("o_date", Type::BigInt),
            column("o_sub_total", Type::BigInt),
            column("o_tax", Type::BigInt),
            column("o_total", Type::BigInt),
            column("o_ship_type", Type::Varchar(10)),
            column("o_ship_date", Type::BigInt),
            column("o_bill_addr_id", Type::Int),
            column("o_ship_addr_id", Type::Int),
            column("o_status", Type::Varchar(15)),
        ],
        primary_key: vec!["o_id"],
        indexes: vec![index("orders_customer", "o_c_id", false)],
    }
}

fn order_line() -> Table {
    Table {
        name: "order_line",
        columns: vec![
            column("ol_o_id", Type::Int),
            column("ol_id", Type::Int),
            column("ol_i_id", Type::Int),
            column("ol_qty", Type::Int),
            column("ol_cost", Type::BigInt),
            column("ol_discount", Type::Int),
            column("ol_comments", Type::Varchar(110)),
        ],
        primary_key: vec!["ol_o_id", "ol_id"],
        indexes: vec![index("order_line_item", "ol_i_id", false)],
    }
}

fn cc_xacts() -> Table {
    Table {
        name: "cc_xacts",
        columns: vec![
            column("cx_o_id", Type::Int),
            column("cx_type", Type::Varchar(10)),
            column("cx_num", Type::Varchar(20)),
            column("cx_name", Type::Varchar(31)),
            column("cx_expire", Type::Int),
            column("cx_auth_id", Type::Char(15)),
            column("cx_xact_amt", Type::BigInt),
            column("cx_xact_date", Type::BigInt),
            column("cx_co_id", Type::Int),
        ],
        primary_key: vec!["cx_o_id"],
        indexes: vec![],
    }
}

fn shopping_cart() -> Table {
    Table {
        name: "shopping_cart",
        columns: vec![column("sc_id", Type::Int), column("sc_time", Type::BigInt)],
        primary_key: vec!["sc_id"],
        indexes: vec![],
    }
}

fn shopping_cart_line() -> Table {
    Table {
        name: "shopping_cart_line",
        columns: vec![
            column("scl_sc_id", Type::Int),
            column("scl_i_id", Type::Int),
            column("scl_qty", Type::Int),
        ],
        primary_key: vec!["scl_sc_id", "scl_i_id"],
        indexes: vec![],
    }
}
