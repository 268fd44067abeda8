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

/// Experiments and plants are within the program: by their names, wherever it is started.
#[test]
fn experiments_and_plants_are_within_the_program() {
    let list = text(&run(&["experiments"]).stdout);
    for (name, about) in [
        ("quick", "A throughput curve with its thrashing point in under a minute"),
        ("plants/ds2", "Abouzour's auto-tuning study (2007), Figure 5.9 and Table 5.4"),
    ] {
        let is_it = |line: &str| line.starts_with(&format!("{name} ")) && line.contains(about);
        assert!(list.lines().any(is_it), "{name}: {list}");
    }
    let quick = text(&run(&["experiments", "quick"]).stdout);
    assert!(quick.contains("name = \"quick\""), "{quick}");
    let error = refused(&["experiments", "quikc"]);
    assert!(error.contains("there is no quikc"), "{error}");

    let elsewhere = tempfile::tempdir().unwrap();
    let in_it = |words: &[&str]| {
        let output = crate::support::tidegate(words).current_dir(elsewhere.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(in_it(&["lab", "plan", "quick"]), in_it(&["lab", "plan", "experiments/quick.toml"]));
    let plants = ["simulate", "--controllers", "fixed:8", "--seeds", "1", "--plants"];
    let one = in_it(&[&plants[..], &["plants/ds2"]].concat());
    assert!(one.contains("\nds2 "), "{one}");
}
