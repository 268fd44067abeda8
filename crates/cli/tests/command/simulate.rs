//! `tidegate simulate`.

use std::fs;

use crate::support::{refused, run, text};

const PLANT: &str = "name = \"hill\"\nabout = \"a hill\"\n[[curve]]\nintervals = 20\n\
                     clients = 100\npoints = [[1, 10], [30, 200], [100, 50]]\n";

#[test]
fn a_simulation_prints_a_table_and_writes_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let plant = directory.path().join("hill.toml");
    fs::write(&plant, PLANT).unwrap();
    let (plant, out) = (plant.to_str().unwrap(), directory.path().join("out"));
    let simulate = ["simulate", "--plants", plant, "--out", out.to_str().unwrap(), "--seeds", "2"];
    let output = run(&[&simulate[..], &["--controllers", "vegas,fixed:30", "--trace"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for word in ["controller", "vegas", "fixed:30", "worst", "simulate.svg"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    for file in ["simulate.json", "simulate.md", "simulate.svg", "traces/hill/vegas-1.jsonl"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    let tuned = "study-hill-climbing:c=0.3,delta=20,vegas:highest=50";
    let two = text(&run(&[&simulate[..], &["--controllers", tuned]].concat()).stdout);
    for word in ["study-hill-climbing:c=0.3,delta=20", "vegas:highest=50"] {
        assert!(two.contains(word), "{word}: {two}");
    }
    let one = run(&[&simulate[..], &["--controllers", "fixed:30"]].concat());
    assert!(text(&one.stdout).contains("\nhill "), "one controller: a row for each plant");
}

#[test]
fn a_simulation_of_nothing_is_refused() {
    let empty = tempfile::tempdir().unwrap();
    let plant = empty.path().join("bad.txt");
    fs::write(&plant, PLANT.replace("clients", "client")).unwrap();
    for (flags, expected) in [
        (["--plants", empty.path().to_str().unwrap()], "there is no plant in"),
        (["--plants", plant.to_str().unwrap()], "line 5: unknown field `client`"),
        (["--plants", "nowhere.toml"], "cannot use nowhere.toml"),
        (["--controllers", "vega"], "no algorithm is called `vega`"),
        (["--controllers", "aimd,vegas:samples=0"], "samples=0 is not allowed: 1 to 1000000"),
        (["--controllers", "observe"], "only `tidegate proxy` can do"),
        (["--seeds", "0"], "--seeds"),
        (["--start", "1001"], "--start"),
        (["--threads", "0"], "--threads"),
    ] {
        let error = refused(&[&["simulate"], &flags[..]].concat());
        assert!(error.contains(expected), "{flags:?}: {error}");
    }
}
