//! The ten tables of the specification, and their indexes.
//!
//! Money is in cents, a discount in percent, a rate in ten-thousandths. A moment (`o_date`,
//! `c_login` and such) is microseconds since 1970 and a date days since 1970. Beyond the
//! specification, `order_line` has `ol_cost`, the price of one book when it was sold.

use crate::table::tables;

// The tables in the order they are filled.
tables! {
    COUNTRY country (co_id)
        unique country_name (co_name) {
        co_id: Int,
        co_name: Varchar(50),
        co_exchange: BigInt,
        co_currency: Varchar(18),
    }

    ADDRESS address (addr_id)
        index address_zip (addr_zip) {
        addr_id: Int,
        addr_street1: Varchar(40),
        addr_street2: Varchar(40),
        addr_city: Varchar(30),
        addr_state: Varchar(20),
        addr_zip: Varchar(10),
        addr_co_id: Int,
    }

    CUSTOMER customer (c_id)
        unique customer_uname (c_uname) {
        c_id: Int,
        c_uname: Varchar(20),
        c_passwd: Varchar(20),
        c_fname: Varchar(17),
        c_lname: Varchar(17),
        c_addr_id: Int,
        c_phone: Varchar(18),
        c_email: Varchar(50),
        c_since: Int,
        c_last_visit: Int,
        c_login: BigInt,
        c_expiration: BigInt,
        c_discount: Int,
        c_balance: BigInt,
        c_ytd_pmt: BigInt,
        c_birthdate: Int,
        c_data: Varchar(500),
    }

    AUTHOR author (a_id) {
        a_id: Int,
        a_fname: Varchar(20),
        a_lname: Varchar(20),
        a_mname: Varchar(20),
        a_dob: Int,
        a_bio: Varchar(500),
    }

    ITEM item (i_id)
        index item_subject (i_subject)
        index item_author (i_a_id) {
        i_id: Int,
        i_title: Varchar(60),
        i_a_id: Int,
        i_pub_date: Int,
        i_publisher: Varchar(60),
        i_subject: Varchar(60),
        i_desc: Varchar(500),
        i_related1: Int,
        i_related2: Int,
        i_related3: Int,
        i_related4: Int,
        i_related5: Int,
        i_thumbnail: Varchar(40),
        i_image: Varchar(40),
        i_srp: BigInt,
        i_cost: BigInt,
        i_avail: Int,
        i_stock: Int,
        i_isbn: Char(13),
        i_page: Int,
        i_backing: Varchar(15),
        i_dimensions: Varchar(25),
    }

    ORDERS orders (o_id)
        index orders_customer (o_c_id) {
        o_id: Int,
        o_c_id: Int,
        o_date: BigInt,
        o_sub_total: BigInt,
        o_tax: BigInt,
        o_total: BigInt,
        o_ship_type: Varchar(10),
        o_ship_date: BigInt,
        o_bill_addr_id: Int,
        o_ship_addr_id: Int,
        o_status: Varchar(15),
    }

    ORDER_LINE order_line (ol_o_id, ol_id)
        index order_line_item (ol_i_id) {
        ol_o_id: Int,
        ol_id: Int,
        ol_i_id: Int,
        ol_qty: Int,
        ol_cost: BigInt,
        ol_discount: Int,
        ol_comments: Varchar(110),
    }

    CC_XACTS cc_xacts (cx_o_id) {
        cx_o_id: Int,
        cx_type: Varchar(10),
        cx_num: Varchar(20),
        cx_name: Varchar(31),
        cx_expire: Int,
        cx_auth_id: Char(15),
        cx_xact_amt: BigInt,
        cx_xact_date: BigInt,
        cx_co_id: Int,
    }

    SHOPPING_CART shopping_cart (sc_id) {
        sc_id: Int,
        sc_time: BigInt,
    }

    SHOPPING_CART_LINE shopping_cart_line (scl_sc_id, scl_i_id) {
        scl_sc_id: Int,
        scl_i_id: Int,
        scl_qty: Int,
    }
}
