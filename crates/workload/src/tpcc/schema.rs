//! The nine tables (clause 1.3) and the two indexes that selections by name and by customer need.
//!
//! ORDER is a word of SQL, so its table is called `orders`. Keys come first in each table. Money is
//! in cents, a moment (`c_since`, `h_date`, `o_entry_d`, `ol_delivery_d`) microseconds since 1970.

use crate::table::tables;

tables! {
    ITEM item (i_id) {
        i_id: Int,
        i_im_id: Int,
        i_name: Varchar(24),
        i_price: BigInt,
        i_data: Varchar(50),
    }

    WAREHOUSE warehouse (w_id) {
        w_id: Int,
        w_name: Varchar(10),
        w_street_1: Varchar(20),
        w_street_2: Varchar(20),
        w_city: Varchar(20),
        w_state: Char(2),
        w_zip: Char(9),
        w_tax: Int,
        w_ytd: BigInt,
    }

    STOCK stock (s_w_id, s_i_id) {
        s_w_id: Int,
        s_i_id: Int,
        s_quantity: Int,
        s_dist_01: Char(24),
        s_dist_02: Char(24),
        s_dist_03: Char(24),
        s_dist_04: Char(24),
        s_dist_05: Char(24),
        s_dist_06: Char(24),
        s_dist_07: Char(24),
        s_dist_08: Char(24),
        s_dist_09: Char(24),
        s_dist_10: Char(24),
        s_ytd: Int,
        s_order_cnt: Int,
        s_remote_cnt: Int,
        s_data: Varchar(50),
    }

    DISTRICT district (d_w_id, d_id) {
        d_w_id: Int,
        d_id: Int,
        d_name: Varchar(10),
        d_street_1: Varchar(20),
        d_street_2: Varchar(20),
        d_city: Varchar(20),
        d_state: Char(2),
        d_zip: Char(9),
        d_tax: Int,
        d_ytd: BigInt,
        d_next_o_id: Int,
    }

    CUSTOMER customer (c_w_id, c_d_id, c_id)
        index customer_name (c_w_id, c_d_id, c_last, c_first) {
        c_w_id: Int,
        c_d_id: Int,
        c_id: Int,
        c_first: Varchar(16),
        c_middle: Char(2),
        c_last: Varchar(16),
        c_street_1: Varchar(20),
        c_street_2: Varchar(20),
        c_city: Varchar(20),
        c_state: Char(2),
        c_zip: Char(9),
        c_phone: Char(16),
        c_since: BigInt,
        c_credit: Char(2),
        c_credit_lim: BigInt,
        c_discount: Int,
        c_balance: BigInt,
        c_ytd_payment: BigInt,
        c_payment_cnt: Int,
        c_delivery_cnt: Int,
        c_data: Varchar(500),
    }

    // The one table without a primary key.
    HISTORY history () {
        h_c_id: Int,
        h_c_d_id: Int,
        h_c_w_id: Int,
        h_d_id: Int,
        h_w_id: Int,
        h_date: BigInt,
        h_amount: BigInt,
        h_data: Varchar(24),
    }

    ORDERS orders (o_w_id, o_d_id, o_id)
        index orders_customer (o_w_id, o_d_id, o_c_id, o_id) {
        o_w_id: Int,
        o_d_id: Int,
        o_id: Int,
        o_c_id: Int,
        o_entry_d: BigInt,
        o_carrier_id: Int null,
        o_ol_cnt: Int,
        o_all_local: Int,
    }

    NEW_ORDER new_order (no_w_id, no_d_id, no_o_id) {
        no_w_id: Int,
        no_d_id: Int,
        no_o_id: Int,
    }

    ORDER_LINE order_line (ol_w_id, ol_d_id, ol_o_id, ol_number) {
        ol_w_id: Int,
        ol_d_id: Int,
        ol_o_id: Int,
        ol_number: Int,
        ol_i_id: Int,
        ol_supply_w_id: Int,
        ol_delivery_d: BigInt null,
        ol_quantity: Int,
        ol_amount: BigInt,
        ol_dist_info: Char(24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_indexes_are_of_columns_that_exist() {
        for table in tables() {
            let has = |name: &&str| table.columns.iter().any(|column| column.name == *name);
            assert!(table.primary_key.iter().all(has), "{}", table.name);
            assert!(table.indexes.iter().all(|index| index.columns.iter().all(has)));
        }
    }
}
