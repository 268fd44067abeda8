//! Help and errors.

use tidegate_control::{Algorithm, Parameter};

use crate::support::{refused, run, text};

#[test]
fn help_tells_the_commands_the_defaults_and_the_exit_codes() {
    let general = run(&["--help"]);
    assert!(general.status.success());
    let general = text(&general.stdout);
    for word in ["proxy", "load", "demo", "replay", "Exit codes:", "--log-level"] {
        assert!(general.contains(word), "{word}: {general}");
    }
    let proxy = run(&["proxy", "--help"]);
    assert!(proxy.status.success());
    // Wrapping is a matter of the terminal.
    let proxy = text(&proxy.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for word in [
        "Examples:",
        "tidegate proxy --upstream postgres://127.0.0.1:5432",
        "--listen <ADDRESS>",
        "[default: 127.0.0.1:6432]",
        "[default: transaction]",
        "[default: paired-comparison]",
        "--keep <GOAL>",
        "high:p95=200ms",
        "--cpus <N>",
        "--disks <N>",
        "--min-mpl <N> The lowest limit [default: 1]",
        "--max-mpl <N> The highest limit [default: 1000]",
        "`tidegate controllers` lists them",
        "--control observe",
        "SIGTERM",
    ] {
        assert!(proxy.contains(word), "{word}: {proxy}");
    }
    for command in ["load", "demo"] {
        let output = run(&[command, "--help"]);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("[default: "), "{command}");
    }
}

/// Every controller with every parameter, or the ones that are named.
#[test]
fn the_controllers_are_listed_with_their_parameters() {
    let all = run(&["controllers"]);
    assert!(all.status.success());
    let all = text(&all.stdout);
    assert!(all.starts_with("paired-comparison (the default)\n"), "{all}");
    for algorithm in Algorithm::ALL {
        let listed = text(&run(&["controllers", algorithm.name()]).stdout);
        assert!(all.contains(&listed), "{listed}");
        for Parameter { name, default, values, unit, meaning } in algorithm.parameters() {
            let words = [&format!("{name}={default}"), &values, unit, meaning];
            let is_line = |line: &str| words.iter().all(|word| line.contains(word));
            assert!(listed.lines().any(is_line), "{algorithm}, {name}: {listed}");
        }
    }
    assert!(refused(&["controllers", "guess"]).contains("no algorithm is called `guess`"));
}

#[test]
fn wrong_flags_are_refused_with_what_is_allowed() {
    let upstream = ["proxy", "--upstream", "postgres://127.0.0.1"];
    for (flags, expected) in [
        (["--mode", "statement"], "transaction or session"),
        (["--control", "fixed:0"], "use fixed:N with N at least 1"),
        (["--control", "guess"], "paired-comparison, gaussian-process, "),
        (["--control", "vegas:loss=1"], "vegas has lowest (1 to 1000000; transactions), highest"),
        (["--control", "external-scheduling:loss=2"], "loss=2 is not allowed: 0.001 to 0.9"),
        (["--control", "observe:vegas"], "it moves from the limit in force, step by step"),
        (["--keep", "p95=200ms"], "CLASS:STATISTIC=TIME, as in high:p95=200ms"),
        (["--keep", "high:p95=200"], "a number above 0 with its unit"),
        (["--control", "conflict-ratio"], "set watch = true (--watch)"),
        (["--watch", "--control=vegas"], "watch_user (--watch-user USER)"),
        (["--cpus", "0"], "--cpus"),
        (["--disks", "none"], "--disks"),
        (["--listen", "localhost:1"], "127.0.0.1:6432"),
        (["--admin-listen", "9432"], "127.0.0.1:9432"),
        (["--auth", "ldap"], "trust, md5, scram-sha-256, cert or hba"),
        (["--auth", "md5"], "--users-file FILE"),
        (["--users-file", "/nonexistent"], "cannot read the user file /nonexistent"),
        (["--listen", "0.0.0.0:0"], "--auth trust"),
        (["--start-mpl", "2000"], "between min_mpl = 1 and max_mpl = 1000"),
        (["--threads", "0"], "--threads"),
        (["--config", "x.toml"], "cannot be used with"),
        (["--log-level", "loud"], "--log-level"),
    ] {
        let error = refused(&[&upstream[..], &flags[..]].concat());
        assert!(error.contains(expected), "{flags:?}: {error}");
    }
    let observing = ["--control", "observe", "--keep", "high:p95=1s"];
    let error = refused(&[&upstream[..], &observing[..]].concat());
    assert!(error.contains("which leaves the gate open: remove keep"), "{error}");
    let error = refused(&["proxy"]);
    assert!(error.contains("--config <FILE>|--upstream <URL>"), "{error}");
    assert!(refused(&["proxy", "--upstream", "mysql://h"]).contains("begin with postgres://"));
    let trace = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&trace, "0\n0.5\n0.2\n").unwrap();
    let trace = format!("trace:{}", trace.path().display());
    let error = refused(&["load", "--url", "postgres://a@h", "--arrivals", &trace]);
    assert!(error.contains("line 3: `0.2` is no number of seconds, below"), "{error}");
    for arrivals in ["constant:1e-20", "poisson:1e300", "constant:nan", "poisson:0"] {
        let error = refused(&["load", "--url", "postgres://a@h", "--arrivals", arrivals]);
        assert!(error.contains("RATE is a number from 1e-7"), "{error}");
    }
    let error = refused(&["load", "--url", "postgres://a@h", "--clients", "4000000000"]);
    assert!(error.contains("4000000000 clients are more than the 100000"), "{error}");
    assert!(refused(&["load", "--url", "mssql://h"]).contains("bad connection URL"));
    assert!(refused(&["load", "--url", "postgres://a@h", "--scale", "0"]).contains("--scale"));
    assert!(refused(&[]).contains("Usage: tidegate"));
}

#[test]
fn a_bad_configuration_file_is_named_with_the_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidegate.toml");
    let file = path.to_str().unwrap();
    for (content, expected) in [
        ("", "there is no database"),
        ("\nthreads = 0\n", "line 2: threads = 0: "),
        ("[databases.shop]\nupstream = \"postgres://a:secret@h:x/d\"\n", "line 2: upstream"),
        ("[databases.shop]\nupstream = \"postgres://h\"\nmdoe = 1\n", "unknown field `mdoe`"),
    ] {
        std::fs::write(&path, content).unwrap();
        let error = refused(&["proxy", "-c", file]);
        assert!(error.starts_with(&format!("error: {file}: ")), "{error}");
        assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(refused(&["proxy", "-c", "/nonexistent.toml"]).contains("No such file"));
}
