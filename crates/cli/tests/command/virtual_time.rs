//! An experiment on a machine in virtual time, by two processes: all that either writes and says is
//! the same, byte by byte.

use std::collections::BTreeMap;
use std::fs;

use crate::support::{Lab, text};

/// Two machines, on which transactions wait for locks, disks and processors.
const FILE: &str = r#"
name = "twice"
scenario = "characterise"
seed = 3
subjects = ["embedded-in-virtual-time"]
mpl = [1, 8]
ctl = "400ms"
warmup = "100ms"
interval = "100ms"
buffer = "1MB"

[machine]
processors = [1, 2]
data_disk = "1ms"
network = "500us"
clients = "on"

[workload]
kind = "tpcb"
scale = 1
"#;

/// What a process says of the experiment, and the files that it writes.
fn given(lab: &Lab) -> BTreeMap<String, Vec<u8>> {
    let out = lab.text_path("out");
    let mut given = BTreeMap::new();
    for what in [&["tap", "1"][..], &["show", "1", "--svg", &out], &["show", "1", "--json"]] {
        // A path is the laboratory's own.
        let said = lab.done(what).replace(lab.directory.path().to_str().unwrap(), "");
        given.insert(what.join(" ").replace(&out, "out"), said.into_bytes());
    }
    for format in ["csv", "json", "parquet"] {
        lab.done(&["export", "1", "--format", format, "--out", &out]);
    }
    for entry in fs::read_dir(&out).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap().to_owned();
        given.insert(name, fs::read(path).unwrap());
    }
    given
}

#[test]
fn two_processes_give_the_same_bytes() {
    let labs = [Lab::new(FILE), Lab::new(FILE)];
    let children = labs.each_ref().map(|lab| lab.command(&["run", &lab.file()]).spawn().unwrap());
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let [one, other] = labs.each_ref().map(given);
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    assert!(one.len() > 35, "{:?}", one.keys());
    for (name, bytes) in &one {
        assert!(!bytes.is_empty(), "{name}");
        assert!(*bytes == other[name], "{name} is not the same: {}", text_of(bytes));
    }
    let executions = text_of(&one["executions.csv"]);
    assert_eq!(executions.lines().count(), 1 + 4, "{executions}");
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
