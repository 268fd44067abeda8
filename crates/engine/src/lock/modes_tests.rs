//! The tables that are read, and those that are not.

use super::super::multi_granularity::{IS, IX, S, SIX, U, X};
use super::*;

const MODES: [Mode; 6] = [IS, IX, S, SIX, U, X];

#[test]
fn the_multi_granularity_modes_are_where_their_names_are() {
    let table = ModeTable::multi_granularity();
    let names: Vec<&str> = MODES.iter().map(|mode| table.name(*mode)).collect();
    assert_eq!(names, ["IS", "IX", "S", "SIX", "U", "X"]);
    for mode in MODES {
        assert_eq!(table.mode(table.name(mode)), Some(mode));
    }
    assert_eq!(table.mode("SU"), None);
}

#[test]
fn only_the_update_mode_is_not_symmetric() {
    let table = ModeTable::multi_granularity();
    for one in MODES {
        for other in MODES {
            let is_symmetric = table.is_compatible(one, other) == table.is_compatible(other, one);
            let is_update_and_reader = matches!((one, other), (U, IS | S) | (IS | S, U));
            assert_eq!(is_symmetric, !is_update_and_reader, "{one:?} {other:?}");
        }
    }
}

#[test]
fn sets_say_what_the_table_says() {
    let table = ModeTable::multi_granularity();
    for one in MODES {
        for other in MODES {
            let (there, back) = (table.is_compatible(one, other), table.is_compatible(other, one));
            assert_eq!(table.conflicts(one).contains(other), !there, "{one:?} {other:?}");
            assert_eq!(table.clashes(one).contains(other), !there || !back, "{one:?} {other:?}");
        }
    }
}

#[test]
fn a_request_is_covered_by_the_one_before_it_where_that_waits_for_as_much() {
    let table = ModeTable::multi_granularity();
    for (requested, ahead, is_covered, why) in [
        (X, X, true, "the same, and they clash"),
        (S, S, false, "they go together"),
        (S, X, true, "X waits for all that S waits for"),
        (X, S, false, "X also waits for IS"),
        (S, IX, false, "S waits for IX, IX for no IX"),
        (U, SIX, false, "U stands behind a waiting IS, SIX beside it"),
    ] {
        assert_eq!(table.waits_only_behind(requested, ahead), is_covered, "{why}");
    }
}

#[test]
fn modes_know_what_covers_them() {
    let table = ModeTable::multi_granularity();
    let covered = |held: Mode| -> Vec<&str> {
        let weaker = MODES.iter().filter(|mode| table.covers(held, **mode));
        weaker.map(|mode| table.name(*mode)).collect()
    };
    let expected: [(Mode, &[&str]); 6] = [
        (IS, &["IS"]),
        (IX, &["IS", "IX"]),
        (S, &["IS", "S"]),
        (SIX, &["IS", "IX", "S", "SIX"]),
        (U, &["IS", "S", "U"]),
        (X, &["IS", "IX", "S", "SIX", "U", "X"]),
    ];
    for (held, expected) in expected {
        assert_eq!(covered(held), expected, "{}", table.name(held));
    }
}

/// Reads a table of S and X, whose rows are given.
fn read(compatibility: &str, conversion: &str) -> Result<ModeTable, ModeTableError> {
    let rows = |text: &str| format!("S X\n{}", text.replace(", ", "\n"));
    ModeTable::parse(&rows(compatibility), &rows(conversion))
}

#[test]
fn what_is_wrong_with_a_table_is_said() {
    let (good, join) = ("S + -, X - -", "S S X, X X X");
    assert!(read(good, join).is_ok());
    for (compatibility, conversion, error) in [
        (
            "S + -",
            join,
            "the rows of the compatibility table are S; give those of its first line: S X",
        ),
        (
            "X - -, S + -",
            join,
            "the rows of the compatibility table are X S; give those of its first line: S X",
        ),
        (
            "S + -, X -",
            join,
            "row X of the compatibility table has 1 cells; give one for each mode",
        ),
        ("S + no, X - -", join, "S beside X is \"no\"; write + to grant or - to wait"),
        (good, "S S X, X X Y", "X over X gives \"Y\", which is none of the modes"),
        (good, "S S S, X X X", "S over X gives S, which lets S in; X does not"),
        (good, "S X X, X X X", "S over S gives X, but asking for S again gives another mode"),
        ("S + +, X - -", "S S S, X S X", "X over S gives S, which goes beside S; X waits for it"),
    ] {
        let refused = read(compatibility, conversion).map(|_| ());
        assert_eq!(refused.map_err(|error| error.to_string()), Err(error.to_owned()));
    }
}

#[test]
fn what_is_wrong_with_the_names_is_said() {
    let many: Vec<String> = (0..65).map(|number| format!("M{number}")).collect();
    let s = "S\nS S";
    for (compatibility, conversion, error) in [
        ("", s, "the compatibility table names 0 modes; give 1 to 64"),
        (&many.join(" "), s, "the compatibility table names 65 modes; give 1 to 64"),
        ("S S", s, "the compatibility table names S twice"),
        ("S\nS +", "X\nX X", "compatibility is about S, conversion about X; name the same"),
    ] {
        let refused = ModeTable::parse(compatibility, conversion).map(|_| ());
        assert_eq!(refused.map_err(|error| error.to_string()), Err(error.to_owned()));
    }
}

#[test]
fn a_table_may_have_as_many_modes_as_a_word_has_bits() {
    let names: Vec<String> = (0..MODES_MAX).map(|number| format!("M{number}")).collect();
    let table = |cell: &dyn Fn(usize, usize) -> String| {
        let row = |row: usize| {
            let cells: Vec<String> = (0..MODES_MAX).map(|column| cell(row, column)).collect();
            format!("{} {}", names[row], cells.join(" "))
        };
        let rows: Vec<String> = (0..MODES_MAX).map(row).collect();
        format!("{}\n{}", names.join(" "), rows.join("\n"))
    };
    // Each keeps out those whose numbers, with its own, come to 64 or more.
    let compatibility =
        table(&|row, column| if row + column < MODES_MAX { "+" } else { "-" }.to_owned());
    let conversion = table(&|row, column| names[row.max(column)].clone());
    let table = ModeTable::parse(&compatibility, &conversion).expect("the laws hold");
    let (first, last) = (table.mode("M0").expect("it is"), table.mode("M63").expect("it is"));
    assert!(table.is_compatible(last, first) && !table.is_compatible(last, last));
    assert_eq!(table.convert(first, last), last);
}
