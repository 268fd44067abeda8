//! Experiments on the embedded engine in virtual time: the same figures at each run, and what
//! processors and disks do to them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use tidegate_lab::store::Format;

use crate::export::csv;
use crate::support::{StoreFile, experiment};

const HEAD: &str = r#"
name = "virtual"
seed = 7
subjects = ["embedded-in-virtual-time"]
ctl = "2s"
warmup = "500ms"
pause = "0s"
interval = "1s"
order = "ascending"
"#;

const WORKLOAD: &str = "\n[workload]\nkind = \"tpcb\"\nscale = 1\n";

/// The lines of exported tables, by the table's name.
type Tables = BTreeMap<&'static str, Vec<Vec<String>>>;

const TABLES: [&str; 6] = ["executions", "intervals", "histograms", "kinds", "phases", "limits"];

/// Runs an experiment and returns its tables.
fn run(text: &str) -> Tables {
    let store = StoreFile::new();
    let mut laboratory = store.laboratory();
    let id = laboratory.begin(&experiment(text)).unwrap();
    laboratory.run(id, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert_eq!(laboratory.violations(id).unwrap(), Vec::<String>::new());
    let out = store.directory().join("out");
    laboratory.export(id, Format::Csv, &out).unwrap();
    TABLES.into_iter().map(|table| (table, csv(&out, table))).collect()
}

/// Returns a column of the executions, as numbers.
fn column(tables: &Tables, name: &str) -> Vec<f64> {
    let [header, lines @ ..] = &tables["executions"][..] else { panic!("a table has a head") };
    let at = header.iter().position(|column| column == name).unwrap();
    lines.iter().map(|line| line[at].parse().unwrap()).collect()
}

#[test]
fn an_experiment_in_virtual_time_gives_the_same_numbers_again() {
    let text = format!("{HEAD}scenario = \"characterise\"\nmpl = [1, 8]\n{WORKLOAD}");
    let (one, other) = (run(&text), run(&text));
    for table in ["intervals", "histograms", "kinds", "phases"] {
        assert_eq!(one[table], other[table], "{table}");
    }
    assert_eq!(column(&one, "tps"), column(&other, "tps"));
    assert!(column(&one, "tps").iter().all(|tps| *tps > 0.0));
}

/// Transactions that need the processors only: two do twice as much as one, whatever this machine
/// has.
#[test]
fn processors_are_those_of_the_file() {
    let settings = r#"
processors = [1, 2, 8]

[subject.embedded-in-virtual-time]
settings = { log_disk = "none", statement_ns = "2000000" }
"#;
    let head = format!("{HEAD}scenario = \"characterise\"\nmpl = [32]\n{settings}");
    let workload = "\n[workload]\nkind = \"point-select\"\nscale = 1\n";
    let tps = column(&run(&format!("{head}{workload}")), "tps");
    let [one, two, eight] = tps[..] else { panic!("{tps:?}") };
    assert!((1.9..=2.05).contains(&(two / one)), "{tps:?}");
    assert!((6.0..=8.3).contains(&(eight / one)), "{tps:?}");
}

/// The controller of the gate decides in virtual time, and its journal is read back.
#[test]
fn a_controller_works_in_virtual_time() {
    let text = format!(
        "{HEAD}scenario = \"autotune\"\nmpl = [4]\nclients = 40\n\n[factors]\n\
         control = [\"hill-climbing\"]\n{WORKLOAD}"
    );
    let (one, other) = (run(&text), run(&text));
    assert!(one["limits"].len() > 2, "{:?}", one["limits"]);
    assert_eq!(one["limits"], other["limits"]);
}
