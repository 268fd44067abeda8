//! `tidegate replay`: what it says of a record that it repeats, and of one that it does not.

use std::process::Output;

use crate::support::{refused, run, text};

/// Hill climbing from 4 under a steady load of 8. With nothing to compare with, its first step is
/// half of the limit, so it goes to 6. The file as format 1 wrote it: it must stay readable.
const JOURNAL: &str = concat!(
    r#"{"line":"run","format":1,"version":"0.0.9","server":"db:5432","#,
    r#""algorithm":"hill-climbing","min_mpl":1,"max_mpl":1000,"start_mpl":4,"cpus":2,"disks":1,"#,
    r#""seed":1}"#,
    "\n",
    r#"{"line":"decision","at_s":1.25,"server":"db:5432","controller":"hill-climbing","#,
    r#""next_limit":6,"reason":"probe: nothing to compare with yet","kind":"first","draw":0.5,"#,
    r#""observation":{"interval":{"secs":1,"nanos":0},"limit":4,"running":4,"concurrency":8,"#,
    r#""concurrency_peak":8,"concurrency_mean":8.0,"running_mean":4.0,"waiting_share":1.0,"#,
    r#""completions":400,"failures":0,"in_database":{"count":400,"mean_s":0.01,"#,
    r#""variance_s2":0.0,"min_s":0.01,"p50_s":0.01,"p95_s":0.01,"p99_s":0.01},"#,
    r#""in_queue":{"count":400,"mean_s":0.01,"variance_s2":0.0,"min_s":0.01,"p50_s":0.01,"#,
    r#""p95_s":0.01,"p99_s":0.01},"locks":null,"classes":[]},"limit":4,"tps":400.0,"#,
    r#""concurrency":8,"in_queue_mean_s":0.01,"in_database_mean_s":0.01}"#,
    "\n",
);

fn replay(journal: &str, flags: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), journal).unwrap();
    run(&[&["replay", file.path().to_str().unwrap()], flags].concat())
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_record_that_is_repeated_is_called_equal() {
    let (code, out, err) = said(&replay(JOURNAL, &[]));
    let equal = "db:5432, hill-climbing, from line 1: 1 decisions, all equal\n";
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), equal, ""));

    // A second run in the same file, the last line of which was cut off.
    let half = &JOURNAL[..JOURNAL.len() - 20];
    let (code, out, _) = said(&replay(&[JOURNAL, half].concat(), &[]));
    let again = equal.replace("line 1: 1", "line 3: 0");
    assert_eq!((code, out), (Some(0), format!("line 4 is cut off: ignored\n{equal}{again}")));
}

#[test]
fn a_difference_is_shown_from_both_sides_and_fails() {
    for (from, to, recorded) in [
        ("\"next_limit\":6", "\"next_limit\":7", "limit 7, probe: nothing to compare with yet"),
        ("with yet", "with", "limit 6, probe: nothing to compare with"),
    ] {
        let changed = JOURNAL.replace(from, to);
        let (code, out, err) = said(&replay(&changed, &[]));
        let expected = format!(
            "db:5432, hill-climbing, from line 1: line 2 differs\n  recorded: {recorded}\n  \
             replayed: limit 6, probe: nothing to compare with yet\n  \
             recorded by version 0.0.9, replayed by version {}\n",
            env!("CARGO_PKG_VERSION"),
        );
        assert_eq!((code, out), (Some(1), expected));
        assert_eq!(err, "error: a decision is not the recorded one\n");
    }
}

#[test]
fn another_algorithm_is_shown_beside_the_recorded_one() {
    let (code, out, _) = said(&replay(JOURNAL, &["--control", "fixed:9"]));
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("the database would have answered differently"), "{out}");
    let last: Vec<&str> = out.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(last, ["1.25", "6", "9", "fixed"]);
}

/// A minute at 4 and then a minute at 6 of a journal that was written before there were curves:
/// both are told, with what was seen, and limits far from them are not.
#[test]
fn the_curve_is_made_of_the_intervals_of_any_journal() {
    let (begin, decision) = JOURNAL.split_once('\n').unwrap();
    let mut journal = format!("{begin}\n");
    for second in 1..=120_u32 {
        let mut line = decision.replace("\"at_s\":1.25", &format!("\"at_s\":{second}"));
        line = line.replace("\"concurrency\":8", "\"concurrency\":90");
        line = line.replace("\"concurrency_mean\":8.0", "\"concurrency_mean\":90.0");
        if second > 60 {
            line = line.replace("\"limit\":4", "\"limit\":6").replace(":400,", ":500,");
            line = line.replace("\"running_mean\":4.0", "\"running_mean\":6.0");
        }
        journal += &line;
    }
    let (code, out, _) = said(&replay(&journal, &["--curve"]));
    assert_eq!(code, Some(0), "{out}");
    let row = |limit: &str| {
        let mut rows = out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.find(|words| words.first() == Some(&limit)).unwrap_or_else(|| panic!("{out}"))
    };
    for (limit, tps, response_ms) in [("4", 400.0, 225.0), ("6", 500.0, 180.0)] {
        let words = row(limit);
        let [_, median, low, "to", high, response, ..] = words[..] else { panic!("{words:?}") };
        let number = |word: &str| word.trim_matches(['(', ')']).parse::<f64>().unwrap();
        assert!(number(low) <= tps && tps <= number(high), "{words:?}");
        assert!((number(median) / tps - 1.0).abs() < 0.1, "{words:?}");
        assert!((number(response) / response_ms - 1.0).abs() < 0.1, "{words:?}");
    }
    assert_eq!(row("32")[1..3], ["not", "known:"], "{out}");
    assert!(refused(&["replay", "j", "--curve", "--control", "vegas"]).contains("cannot be used"));
}

#[test]
fn what_cannot_be_replayed_is_named() {
    let torn = JOURNAL.replacen("\"draw\":0.5,", "", 1);
    for (journal, expected) in [
        (torn.as_str(), "line 2: this is no line of a journal: missing field `draw`"),
        ("# notes\n", "line 1: this is no line of a journal"),
        ("", "holds no run"),
    ] {
        let (code, out, err) = said(&replay(journal, &[]));
        assert_eq!((code, out.as_str()), (Some(1), ""));
        assert!(err.contains(expected), "{err}");
    }
    let output = run(&["replay", "/nonexistent.jsonl"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot read the journal /nonexistent.jsonl"));
    assert!(refused(&["replay"]).contains("<JOURNAL>"));
    assert!(refused(&["replay", "j", "--control", "guess"]).contains("no algorithm is called"));
}
