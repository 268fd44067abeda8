//! What `packaging/` says of the program: its version, its options, its configurations.

use std::fs;
use std::path::Path;

use crate::support::{run, text};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Checks a configuration with the program.
fn check(toml: &str) {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users.txt");
    fs::write(&users, "\"app\" \"secret\"\n").unwrap();
    let file = directory.path().join("tidegate.toml");
    // Names of hosts that exist nowhere are left out.
    let toml = toml.replace("db.example", "127.0.0.1").replace("/etc/tidegate-users/", "");
    fs::write(&file, &toml).unwrap();
    let output = run(&["check-config", "--quiet", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}: {toml}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn all_packages_have_the_version_of_the_program() {
    assert_eq!(text(&run(&["--version"]).stdout), format!("tidegate {VERSION}\n"));
    for (path, line) in [
        ("analysis/src/tidegate_analysis/__init__.py", format!("__version__ = \"{VERSION}\"\n")),
        ("packaging/kubernetes/tidegate.yaml", format!("/tidegate:{VERSION}\n")),
    ] {
        assert!(read(path).contains(&line), "{path}: {line}");
    }
    // What is not released yet has no number of its own.
    let changes = read("CHANGELOG.md");
    let first = changes.lines().find(|line| line.starts_with("## ")).unwrap();
    assert!(first == "## Unreleased" || first.contains(VERSION), "{first}");
}

/// The configuration as it is shipped needs a database; with its example it is right.
#[test]
fn the_configuration_of_the_debian_package_is_right_when_its_examples_are_used() {
    let shipped = read("packaging/debian/tidegate.toml");
    let is_example = |line: &str| line.starts_with("# [") || line.contains(" = \"");
    let example = |line: &str| match line.strip_prefix("# ") {
        Some(rest) if is_example(line) => rest.to_owned(),
        _ => line.to_owned(),
    };
    let used: Vec<String> = shipped.lines().map(example).collect();
    assert!(used.iter().any(|line| line == "[databases.shop]"), "{used:?}");
    check(&used.join("\n").replace("/var/lib/tidegate/", ""));
}

#[test]
fn the_configuration_of_the_manifest_is_right() {
    let manifest = read("packaging/kubernetes/tidegate.yaml");
    let (_, rest) = manifest.split_once("  tidegate.toml: |\n").unwrap();
    let lines = rest.lines().take_while(|line| *line != "---");
    let toml: Vec<&str> = lines.map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    check(&toml.join("\n"));
}

/// The commands of the service, the container and the manual are those of the program.
#[test]
fn what_is_run_by_others_exists() {
    let unit = read("packaging/debian/tidegate.service");
    let lines = unit.lines().filter_map(|line| line.split_once("=/usr/bin/tidegate "));
    for (_, words) in lines {
        let is_path = |word: &&str| word.starts_with('/') || *word == "-c";
        let mut words: Vec<&str> = words.split(' ').filter(|word| !is_path(word)).collect();
        words.push("--help");
        assert!(run(&words).status.success(), "{words:?}");
    }
    assert!(unit.contains("ExecStart=/usr/bin/tidegate proxy -c /etc/tidegate/tidegate.toml"));
    let container = read("packaging/container/Containerfile");
    assert!(container.contains("\"probe\", \"127.0.0.1:9432\""));
    let silent = run(&["probe", "127.0.0.1:1"]);
    assert_eq!(silent.status.code(), Some(1));
    assert!(text(&silent.stderr).contains("no answer from http://127.0.0.1:1/healthz"));
}
