//! What statements do, worked out by hand.

use tidegate_subject::connection::Transactional;
use tidegate_workload::{Column, Failure, Table, Type, Value};

use super::{StoreConnection, connection, index, query, run, store, table};

fn tables() -> Vec<Table> {
    let mut item = table(
        "item",
        &[("id", Type::Int), ("kind", Type::Char(4)), ("cents", Type::BigInt)],
        &["id"],
        vec![index("by_kind", &["kind"], false), index("by_note", &["note"], true)],
    );
    item.columns.push(Column::nullable("note", Type::Varchar(10)));
    let sale = table("sale", &[("item", Type::Int), ("count", Type::Int)], &[], vec![]);
    vec![item, sale]
}

/// Items 1 to 4, and sales of the first two.
fn filled() -> StoreConnection {
    let mut connection = connection(&store(), &tables());
    let rows = [(1, "book", 500, Some("x")), (2, "cup", 300, None), (3, "book", 100, Some("y"))];
    for (id, kind, cents, note) in rows {
        let note = note.map_or(Value::Null, Value::from);
        let values = [id.into(), kind.into(), cents.into(), note];
        run(
            &mut connection,
            "INSERT INTO item (id, kind, cents, note) VALUES (?, ?, ?, ?)",
            &values,
        )
        .unwrap();
    }
    let sql = "INSERT INTO item (cents, id, kind) VALUES (-50 + 2 * ?, 4, 'pen')";
    run(&mut connection, sql, &[30.into()]).unwrap();
    let sales = "INSERT INTO sale (item, count) VALUES (1, 5), (2, 1), (1, 5), (9, 9)";
    assert_eq!(run(&mut connection, sales, &[]).unwrap().count, 4);
    connection
}

#[test]
fn rows_are_selected_joined_grouped_and_sorted() {
    let mut connection = filled();
    for (sql, values, expected) in [
        (
            "SELECT id, kind, cents, note FROM item",
            vec![],
            vec!["1 book 500 x", "2 cup 300 -", "3 book 100 y", "4 pen 10 -"],
        ),
        ("SELECT id FROM item WHERE kind = ? AND cents > 100", vec!["book".into()], vec!["1"]),
        ("SELECT id FROM item WHERE note IS NULL ORDER BY id DESC", vec![], vec!["4", "2"]),
        ("SELECT id FROM item WHERE note IS NOT NULL", vec![], vec!["1", "3"]),
        ("SELECT id FROM item WHERE id IN (4, ?, 2, 2, 7)", vec![1.into()], vec!["1", "2", "4"]),
        ("SELECT id FROM item WHERE kind LIKE '%o_%' ORDER BY id", vec![], vec!["1", "3"]),
        ("SELECT id FROM item WHERE id BETWEEN 2 AND ? LIMIT 1", vec![3.into()], vec!["2"]),
        ("SELECT id + 1 FROM item ORDER BY cents LIMIT ?", vec![2.into()], vec!["5", "4"]),
        ("SELECT id FROM item LIMIT 0", vec![], vec![]),
        (
            "SELECT COUNT(*), SUM(cents), MIN(kind), MAX(note), COUNT(note) FROM item",
            vec![],
            vec!["4 910 book y 2"],
        ),
        ("SELECT COUNT(*), SUM(cents), MIN(cents) FROM item WHERE id = 8", vec![], vec!["0 - -"]),
        (
            "SELECT kind, SUM(cents) - 1 AS s FROM item GROUP BY kind ORDER BY s DESC",
            vec![],
            vec!["book 599", "cup 299", "pen 9"],
        ),
        (
            "SELECT kind FROM item GROUP BY kind ORDER BY COUNT(*) DESC, kind LIMIT 2",
            vec![],
            vec!["book", "cup"],
        ),
        ("SELECT id FROM item WHERE id = 8 GROUP BY id", vec![], vec![]),
        ("SELECT COUNT(DISTINCT item), COUNT(item) FROM sale", vec![], vec!["3 4"]),
        (
            "SELECT i.kind, s.count FROM sale s, item i WHERE i.id = s.item ORDER BY kind",
            vec![],
            vec!["book 5", "book 5", "cup 1"],
        ),
        (
            "SELECT SUM(count * cents) FROM item INNER JOIN sale ON item.id = sale.item",
            vec![],
            vec!["5300"],
        ),
        (
            "SELECT a.id, b.id FROM item a JOIN item b ON a.kind = b.kind AND a.id < b.id",
            vec![],
            vec!["1 3"],
        ),
        ("SELECT id FROM item WHERE note = NULL", vec![], vec![]),
        ("SELECT id FROM item WHERE id > 5000000000", vec![], vec![]),
    ] {
        assert_eq!(query(&mut connection, sql, &values), expected, "{sql}");
    }
}

#[test]
fn rows_are_changed_and_found_by_their_new_values() {
    let mut connection = filled();
    let mut count =
        |sql: &str, values: &[Value<'_>]| run(&mut connection, sql, values).unwrap().count;
    assert_eq!(
        count("UPDATE item SET cents = cents + ?, kind = 'box' WHERE kind = 'book'", &[1.into()]),
        2
    );
    assert_eq!(count("UPDATE item SET id = 7 WHERE id = 4", &[]), 1);
    assert_eq!(count("UPDATE item SET cents = 0 WHERE id = 4", &[]), 0);
    assert_eq!(count("DELETE FROM item WHERE note = 'y'", &[]), 1);
    assert_eq!(count("DELETE FROM sale WHERE item = 1 AND count = 5", &[]), 2);
    for (sql, expected) in [
        ("SELECT id, cents FROM item WHERE kind = 'box'", vec!["1 501"]),
        ("SELECT id FROM item WHERE kind = 'book'", vec![]),
        ("SELECT id, kind FROM item WHERE kind = 'pen'", vec!["7 pen"]),
        ("SELECT id FROM item WHERE note = 'y'", vec![]),
        ("SELECT item, count FROM sale", vec!["2 1", "9 9"]),
    ] {
        assert_eq!(query(&mut connection, sql, &[]), expected, "{sql}");
    }
    let count = run(
        &mut connection,
        "INSERT INTO item (id, kind, cents, note) VALUES (3, 'a', 1, 'y')",
        &[],
    );
    assert_eq!(count.unwrap().count, 1, "the key and the note are free again");
}

#[test]
fn what_cannot_be_is_refused_with_its_code_and_leaves_nothing() {
    let mut connection = filled();
    let before = query(&mut connection, "SELECT id, kind, cents, note FROM item", &[]);
    connection.begin().unwrap();
    for (sql, code) in [
        ("INSERT INTO item (id, kind, cents) VALUES (1, 'a', 1)", "23505"),
        ("INSERT INTO item (id, kind, cents, note) VALUES (8, 'a', 1, 'x')", "23505"),
        ("INSERT INTO item (id, kind, cents) VALUES (8, 'a', 1), (2, 'b', 2)", "23505"),
        ("UPDATE item SET note = 'z'", "23505"),
        ("UPDATE item SET id = 1 WHERE id = 2", "23505"),
        ("INSERT INTO item (id, kind) VALUES (8, 'a')", "23502"),
        ("UPDATE item SET cents = NULL WHERE id = 1", "23502"),
        ("UPDATE item SET cents = 9223372036854775807 * id", "22003"),
        ("INSERT INTO item (id, kind, cents) VALUES (3000000000, 'a', 1)", "22003"),
        ("UPDATE item SET kind = 'longer' WHERE id = 1", "22001"),
        ("UPDATE item SET kind = 5 WHERE id = 1", "42804"),
        ("SELECT id FROM item WHERE kind = 5", "42804"),
        ("SELECT id FROM item WHERE id + kind = 5", "42804"),
        ("SELECT SUM(kind) FROM item", "42804"),
        ("SELECT id FROM item LIMIT 'a'", "42804"),
        ("SELECT nothing FROM item", "42703"),
        ("SELECT item.id FROM item i", "42703"),
        ("SELECT id FROM item LIMIT id", "42703"),
        ("SELECT id FROM nowhere", "42P01"),
        ("SELECT id FROM item a, item b", "42702"),
        ("SELECT id FROM item, item", "42601"),
        ("SELECT id, COUNT(*) FROM item", "42803"),
        ("SELECT id FROM item WHERE COUNT(*) > 1", "42803"),
        ("SELECT id FROM item ORDER BY COUNT(*)", "42803"),
        ("UPDATE item SET cents = SUM(cents)", "42803"),
        ("SELECT id FROM item WHERE id = ?", "07001"),
        ("CREATE INDEX a ON item (id)", "42601"),
    ] {
        match run(&mut connection, sql, &[]) {
            Err(Failure::Refused { code: found, message }) => {
                assert_eq!(found, code, "{sql}: {message}");
            }
            other => panic!("{sql}: {other:?}"),
        }
    }
    connection.commit().unwrap();
    assert_eq!(query(&mut connection, "SELECT id, kind, cents, note FROM item", &[]), before);
    assert_eq!(query(&mut connection, "SELECT id FROM item WHERE note = 'x'", &[]), ["1"]);
}

#[test]
fn a_transaction_that_is_rolled_back_leaves_nothing() {
    let mut connection = filled();
    connection.begin().unwrap();
    run(&mut connection, "DELETE FROM item WHERE id > 1", &[]).unwrap();
    run(&mut connection, "UPDATE item SET kind = 'cup'", &[]).unwrap();
    assert_eq!(query(&mut connection, "SELECT id FROM item WHERE kind = 'cup'", &[]), ["1"]);
    connection.rollback().unwrap();
    assert_eq!(query(&mut connection, "SELECT id FROM item WHERE kind = 'cup'", &[]), ["2"]);
    assert_eq!(query(&mut connection, "SELECT COUNT(*) FROM item", &[]), ["4"]);
}

#[test]
fn a_catalog_opened_again_goes_on() {
    let store = store();
    let insert = "INSERT INTO sale (item, count) VALUES (?, 1)";
    for item in 1..=3 {
        let mut connection = connection(&store, &tables());
        run(&mut connection, insert, &[item.into()]).unwrap();
    }
    let mut connection = connection(&store, &tables());
    assert_eq!(query(&mut connection, "SELECT item FROM sale", &[]), ["1", "2", "3"]);
}

#[test]
fn the_moment_is_the_statements() {
    let moment = table("moment", &[("id", Type::Int), ("at", Type::Timestamp)], &["id"], vec![]);
    let mut connection = connection(&store(), &[moment]);
    let insert =
        "INSERT INTO moment (id, at) VALUES (1, CURRENT_TIMESTAMP), (2, CURRENT_TIMESTAMP)";
    run(&mut connection, insert, &[]).unwrap();
    let times = "SELECT COUNT(DISTINCT at) FROM moment WHERE at > 1700000000000000";
    assert_eq!(query(&mut connection, times, &[]), ["1"]);
}
