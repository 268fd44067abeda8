//! The eight tables.

use crate::table::tables;

tables! {
    CATEGORIES categories (category) {
        category: Int,
        categoryname: Varchar(50),
    }

    CUSTOMERS customers (customerid)
        unique customers_username (username) {
        customerid: BigInt,
        firstname: Varchar(50),
        lastname: Varchar(50),
        address1: Varchar(50),
        address2: Varchar(50) null,
        city: Varchar(50),
        state: Varchar(50) null,
        zip: Int null,
        country: Varchar(50),
        region: Int,
        email: Varchar(50) null,
        phone: Varchar(50) null,
        creditcardtype: Int,
        creditcard: Varchar(50),
        creditcardexpiration: Varchar(50),
        username: Varchar(50),
        password: Varchar(50),
        age: Int null,
        income: Int null,
        gender: Char(1) null,
    }

    PRODUCTS products (prod_id)
        index products_category (category, special)
        index products_title (title)
        index products_actor (actor) {
        prod_id: Int,
        category: Int,
        title: Varchar(50),
        actor: Varchar(50),
        price: Int,
        special: Int,
        common_prod_id: Int,
    }

    INVENTORY inventory (prod_id) {
        prod_id: Int,
        quan_in_stock: Int,
        sales: BigInt,
    }

    ORDERS orders (orderid)
        index orders_customerid (customerid) {
        orderid: BigInt,
        orderdate: Int,
        customerid: BigInt,
        netamount: BigInt,
        tax: BigInt,
        totalamount: BigInt,
    }

    ORDERLINES orderlines (orderid, orderlineid) {
        orderid: BigInt,
        orderlineid: Int,
        prod_id: Int,
        quantity: Int,
        orderdate: Int,
    }

    CUST_HIST cust_hist ()
        index cust_hist_customerid (customerid) {
        customerid: BigInt,
        orderid: BigInt,
        prod_id: Int,
    }

    // Empty at the start.
    REORDER reorder () {
        prod_id: Int,
        date_low: Int,
        quan_low: Int,
        date_reordered: Int,
        quan_reordered: Int,
        date_expected: Int,
    }
}
