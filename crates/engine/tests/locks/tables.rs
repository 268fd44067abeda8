//! Lock protocols from outside, read as data.

use tidegate_engine::lock::ModeTable;

const COMPATIBILITY: &str = include_str!("tables/tadom3plus_compatibility.txt");
const SUPREMUM: &str = include_str!("tables/tadom3plus_supremum.txt");

/// The modes of taDOM3+, as published with `BrackitDB`; see the study of XML locking, Fig. 2.
#[test]
fn the_twenty_modes_of_tadom_are_read() {
    let table = ModeTable::parse(COMPATIBILITY, SUPREMUM).expect("the laws hold");
    assert_eq!(table.len(), 20);
    let mode = |name: &str| table.mode(name).unwrap_or_else(|| panic!("no mode {name}"));
    assert!(table.is_compatible(mode("NU"), mode("NR")), "an update lock comes to readers");
    assert!(!table.is_compatible(mode("NR"), mode("NU")), "and no reader comes to it");
    assert_eq!(table.convert(mode("LR"), mode("CX")), mode("LRCX"));
    assert!(table.covers(mode("SX"), mode("LRNU")));
}

/// As published, to read over an update lock gives it up.
#[test]
fn a_conversion_that_downgrades_is_refused() {
    let row = SUPREMUM.lines().find(|line| line.starts_with("NR ")).expect("a row");
    let update = row.replace(" NU ", " NR ");
    let refused = ModeTable::parse(COMPATIBILITY, &SUPREMUM.replace(row, &update));
    let error = refused.expect_err("a table that breaks law 2").to_string();
    assert_eq!(error, "NR over NU gives NR, which lets NR in; NU does not");
}
