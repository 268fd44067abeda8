//! How statements like those of TPC-C and TPC-W are planned.

use tidegate_subject::embedded::sql::Catalog;
use tidegate_workload::{Table, Type};

use super::{index, store, table};

fn tables() -> Vec<Table> {
    let ints = |names: &'static [&'static str]| -> Vec<(&'static str, Type)> {
        names.iter().map(|&name| (name, Type::Int)).collect()
    };
    vec![
        table(
            "customer",
            &[
                ("c_w", Type::Int),
                ("c_d", Type::Int),
                ("c_id", Type::Int),
                ("c_last", Type::Varchar(16)),
                ("c_first", Type::Varchar(16)),
                ("c_balance", Type::BigInt),
            ],
            &["c_w", "c_d", "c_id"],
            vec![index("by_name", &["c_w", "c_d", "c_last", "c_first"], false)],
        ),
        table(
            "orders",
            &ints(&["o_w", "o_d", "o_id", "o_c"]),
            &["o_w", "o_d", "o_id"],
            vec![index("by_customer", &["o_w", "o_d", "o_c"], false)],
        ),
        table(
            "line",
            &ints(&["l_w", "l_d", "l_o", "l_number", "l_item"]),
            &["l_w", "l_d", "l_o", "l_number"],
            vec![],
        ),
        table("stock", &ints(&["s_w", "s_i", "s_quantity"]), &["s_w", "s_i"], vec![]),
        table("history", &ints(&["h_w", "h_amount"]), &[], vec![]),
        table(
            "person",
            &[("id", Type::Int), ("name", Type::Varchar(9)), ("city", Type::Varchar(9))],
            &["id"],
            vec![index("by_person_name", &["name"], true)],
        ),
    ]
}

fn check(plans: &[(&str, &str)]) {
    let catalog = Catalog::open(&store(), &tables()).unwrap();
    for (sql, expected) in plans {
        assert_eq!(catalog.explain(sql).unwrap(), *expected, "{sql}");
    }
}

#[test]
fn rows_are_found_by_the_tree_that_suits_condition_and_order() {
    check(&[
        (
            "SELECT c_balance FROM customer WHERE c_id = ? AND c_w = ? AND ? = c_d FOR UPDATE",
            "customer: primary key point c_w, c_d, c_id for update",
        ),
        (
            "SELECT c_id FROM customer WHERE c_w = ? AND c_d = ? AND c_last = ? \
             ORDER BY c_first, c_id",
            "customer: by_name equal c_w, c_d, c_last",
        ),
        (
            "SELECT c_id FROM customer WHERE c_w = ? AND c_d = ? AND c_last = ? ORDER BY c_id",
            "customer: by_name equal c_w, c_d, c_last\nsort by 1",
        ),
        (
            "SELECT o_id FROM orders WHERE o_w = ? AND o_d = ? AND o_c = ? \
             ORDER BY o_id DESC LIMIT 1",
            "orders: by_customer equal o_w, o_d, o_c, o_w, o_d downward\nlimit",
        ),
        (
            "SELECT o_id FROM orders WHERE o_w = ? AND o_d = ? ORDER BY o_id LIMIT 1 FOR UPDATE",
            "orders: primary key equal o_w, o_d for update\nlimit",
        ),
        (
            "SELECT COUNT(DISTINCT s_i) FROM stock, line WHERE l_w = ? AND l_d = ? AND l_o >= ? \
             AND l_o < ? AND s_w = ? AND s_i = l_item AND s_quantity < ?",
            "line: primary key equal l_w, l_d range l_o\nstock: primary key point s_w, s_i\n\
             group by 0",
        ),
        (
            "SELECT MAX(o_id) FROM orders WHERE o_w = ? AND o_d = ?",
            "orders: primary key equal o_w, o_d downward\ngroup by 0, of the first row",
        ),
        (
            "SELECT MIN(o_id), MAX(o_id) FROM orders WHERE o_w = ? AND o_d = ?",
            "orders: primary key equal o_w, o_d\ngroup by 0",
        ),
        (
            "SELECT l_item, SUM(l_number) AS sold FROM line GROUP BY l_item ORDER BY sold LIMIT 5",
            "line: all rows\ngroup by 1\nsort by 1\nlimit",
        ),
        (
            "SELECT s_i FROM stock WHERE s_w = ? AND s_i IN (?, ?)",
            "stock: primary key point s_w, s_i",
        ),
        (
            "SELECT s_i FROM stock WHERE s_w IN (?, ?) AND s_i IN (?, ?)",
            "stock: primary key equal s_w",
        ),
        ("SELECT city FROM person WHERE name = ?", "person: by_person_name point name"),
        (
            "SELECT id FROM person WHERE name >= ? AND name < ? ORDER BY name LIMIT ?",
            "person: by_person_name range name\nlimit",
        ),
        ("SELECT city FROM person ORDER BY name LIMIT 5", "person: by_person_name\nlimit"),
        ("SELECT MAX(id) FROM person", "person: all rows downward\ngroup by 0, of the first row"),
        ("SELECT id FROM person ORDER BY city", "person: all rows\nsort by 1"),
        ("SELECT id FROM person ORDER BY id DESC", "person: all rows downward"),
    ]);
}

#[test]
fn tables_are_joined_and_rows_changed_by_the_cheapest_way() {
    check(&[
        ("SELECT h_amount FROM history WHERE h_w = ?", "history: all rows"),
        (
            "SELECT a.h_amount FROM history a, history b WHERE a.h_w = b.h_w AND b.h_amount = 1",
            "history: all rows\nhistory: all rows once, hashed by 1",
        ),
        (
            "SELECT h_amount FROM history, stock WHERE s_w = 1 AND s_i = 2 AND h_w = s_w",
            "history: all rows\nstock: primary key point s_w, s_i once, hashed by 1",
        ),
        (
            "UPDATE customer SET c_balance = c_balance - ? WHERE c_w = ? AND c_d = ? AND c_id = ?",
            "customer: primary key point c_w, c_d, c_id for update\nupdate",
        ),
        (
            "UPDATE customer SET c_last = 'x', c_id = 5 WHERE c_w = ?",
            "customer: primary key equal c_w for update\nupdate primary key, by_name",
        ),
        ("DELETE FROM history", "history: all rows for update\ndelete"),
        ("INSERT INTO history (h_w, h_amount) VALUES (?, ?)", "insert into history"),
    ]);
}
