//! What the documents say of the algorithms is what there is.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use tidegate_control::{Algorithm, ControlChoice};

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows that `docs/control.md` must have, in order; algorithms with the same parameters and
/// defaults share theirs.
fn rows() -> String {
    let mut text = String::new();
    let mut rest: Vec<Algorithm> = Algorithm::ALL.to_vec();
    while !rest.is_empty() {
        let first = rest[0];
        let parameters = first.parameters();
        let (same, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|other| other.parameters() == parameters);
        rest = others;
        let names: Vec<String> = same.iter().map(|one| format!("`{one}`")).collect();
        let names = names.join(", ");
        for one in parameters {
            let (name, default, values) = (one.name, one.default, one.values);
            let row = format!("{names} | `{name}` | {default} | {values}");
            writeln!(text, "| {row} | {} | {} |", one.unit, one.meaning)
                .expect("a String takes all");
        }
    }
    text
}

#[test]
fn the_table_of_parameters_is_what_there_is() {
    let document = document("control.md");
    let head = "| algorithm | parameter | default | values | unit | meaning |\n\
                | --- | --- | --- | --- | --- | --- |\n";
    let after = document.split_once(head).map(|(_, after)| after).expect("the table's head");
    let table: String =
        after.split_inclusive('\n').take_while(|line| line.starts_with('|')).collect();
    assert!(table == rows(), "the table in docs/control.md has to be:\n{head}{}", rows());
}

/// Every algorithm has its place in the text, and those that cannot observe are named as such.
#[test]
fn every_algorithm_is_described() {
    let (control, file) = (document("control.md"), document("tidegate.toml"));
    let observing = control.split_once("## Observing").expect("a section on observing").1;
    for algorithm in Algorithm::ALL {
        let name = algorithm.name();
        let short = name.strip_prefix("study-").unwrap_or(name);
        assert!(control.contains(name), "{name}");
        assert!(file.contains(&format!("\"{short}\"")), "{name} in tidegate.toml");
        let is_named = observing.contains(&format!("`{short}`"));
        assert!(is_named, "{name} is not named under Observing");
    }
    assert!(ControlChoice::observing(Algorithm::GaussianProcess).is_ok());
}
