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

const TABLES: [&str; 7] =
    ["executions", "intervals", "histograms", "kinds", "phases", "limits", "classes"];

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
    numbers(&tables["executions"], name)
}

fn numbers(table: &[Vec<String>], name: &str) -> Vec<f64> {
    let [header, lines @ ..] = table else { panic!("a table has a head") };
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

/// A tenth of the transactions is of the high class. TPC-C needs the only processor, and locks of
/// five warehouses. Each priority makes the high class faster and the normal class slower, and so
/// do both together.
#[test]
fn each_priority_serves_the_high_class_at_the_cost_of_the_other() {
    let factors = "[factors]\nhigh = 10\ngate = [false]\nlocks = [false, true]\n\
                   processors = [false, true]\n\n[subject.embedded-in-virtual-time]\n\
                   settings = { log_disk = \"none\", statement_ns = \"400000\" }\n\n[workload]\n\
                   kind = \"tpcc\"\nwarehouses = 5\nitems = 200\ncustomers = 30\n";
    let head = HEAD.replace("ctl = \"2s\"", "ctl = \"20s\"");
    let text = format!("{head}scenario = \"priority\"\nmpl = [30]\nclients = 30\n\n{factors}");
    let (one, other) = (run(&text), run(&text));
    assert_eq!(one["classes"], other["classes"]);
    let means = numbers(&one["classes"], "mean_ms");
    let [none, processors, locks, both] = means.as_chunks::<2>().0 else { panic!("{means:?}") };
    for with in [processors, locks, both] {
        assert!(with[0] < 0.8 * none[0] && with[1] > 1.01 * none[1], "{none:?}, {with:?}");
    }
    let counts = numbers(&one["classes"], "transactions");
    let mut shares = counts.as_chunks::<2>().0.iter().map(|[high, normal]| high / (high + normal));
    assert!(shares.all(|share| (0.07..0.13).contains(&share)), "{counts:?}");
}
