//! Exports, and docs/results.md: what it says of tables and columns, and the questions it asks.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value as Json;
use tidegate_lab::laboratory::Laboratory;
use tidegate_lab::store::Format;
use tidegate_lab::tap::Choices;
use tidegate_subject::connection::Transactional;
use tidegate_subject::postgres::Postgres;
use tidegate_subject::processors::Processors;
use tidegate_workload::{Rows, Statement, Wants};

use crate::support::{StoreFile, experiment, server};

const DOCUMENT: &str = include_str!("../../../../docs/results.md");

/// 1 run of 2 batchsets of 3 MPLs twice, of 4 intervals.
const FILE: &str = r#"
name = "try, \"quoted\""
scenario = "thrash"
seed = 7
subjects = ["simulated"]
processors = [2]
mpl = { from = 100, to = 300, step = 100 }
ctl = "40s"
warmup = "8s"
interval = "10s"
repetitions = 2

[factors]
rows = 30000
primary_key = [false]
read_sf = [1.0]
update_sf = [0.5]
rose = [75.0]
"#;
const EXECUTIONS: usize = 12;

const TABLES: [&str; 18] = [
    "experiment",
    "executions",
    "attempts",
    "kinds",
    "phases",
    "intervals",
    "interval_kinds",
    "histograms",
    "limits",
    "classes",
    "trees",
    "troubles",
    "conditions",
    "analyses",
    "tap_counts",
    "tap_drops",
    "thrashing_points",
    "thrashing_posteriors",
];

/// A laboratory with experiment 1 done and analysed; the analysis protocol retains it all.
fn laboratory(place: &str) -> Laboratory {
    let mut laboratory = Laboratory::open(place, "none".into()).unwrap();
    let id = laboratory.begin(&experiment(FILE)).unwrap();
    laboratory.run(id, &AtomicBool::new(false), &mut |_| ()).unwrap();
    laboratory.tap(id, Choices::default()).unwrap();
    laboratory
}

/// Lines of fields; quotes are understood.
pub(crate) fn csv(directory: &Path, table: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(directory.join(format!("{table}.csv"))).unwrap();
    let (mut lines, mut line, mut field, mut quoted) =
        (Vec::new(), Vec::new(), String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => line.push(std::mem::take(&mut field)),
            '\n' if !quoted => {
                line.push(std::mem::take(&mut field));
                lines.push(std::mem::take(&mut line));
            }
            other => field.push(other),
        }
    }
    assert!(!quoted && field.is_empty() && lines.iter().all(|line| line.len() == lines[0].len()));
    lines
}

/// A cell in words, nothing for NULL.
fn of_parquet(field: &Field) -> String {
    match field {
        Field::Null => String::new(),
        Field::Long(number) => number.to_string(),
        Field::Double(number) => number.to_string(),
        Field::Str(text) => text.clone(),
        other => panic!("{other:?} is in no column of ours"),
    }
}

fn of_json(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::Number(number) if number.is_f64() => number.as_f64().unwrap().to_string(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn parquet(directory: &Path, table: &str) -> Vec<Vec<String>> {
    let file = File::open(directory.join(format!("{table}.parquet"))).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
    let names = columns.iter().map(|column| column.name().to_owned()).collect();
    let rows = reader
        .get_row_iter(None)
        .unwrap()
        .map(|row| row.unwrap().get_column_iter().map(|(_, field)| of_parquet(field)).collect());
    std::iter::once(names).chain(rows).collect()
}

#[test]
fn all_forms_hold_the_same_and_are_the_same_again() {
    let store = StoreFile::new();
    let mut laboratory = laboratory(&store.place());
    // Another experiment of the store stays out.
    assert_eq!(laboratory.begin(&experiment(FILE)).unwrap(), 2);
    let out = store.directory().join("out/deep");
    for (format, files) in [(Format::Csv, 18), (Format::Json, 1), (Format::Parquet, 18)] {
        let written = laboratory.export(1, format, &out).unwrap();
        let bytes = || written.iter().map(|file| fs::read(file).unwrap()).collect::<Vec<_>>();
        let first = bytes();
        laboratory.export(1, format, &out).unwrap();
        assert_eq!((bytes(), first.len()), (first, files), "{format:?}");
    }
    assert_eq!(fs::read_dir(&out).unwrap().count(), 37, "a part is left");

    let json = fs::read_to_string(out.join("experiment.json")).unwrap();
    let json: BTreeMap<String, Vec<Json>> = serde_json::from_str(&json).unwrap();
    assert_eq!(json.len(), TABLES.len());
    for table in TABLES {
        let csv = csv(&out, table);
        assert_eq!(csv, parquet(&out, table), "{table}");
        let objects = json[table].iter().map(|object| {
            assert_eq!(object.as_object().unwrap().len(), csv[0].len());
            csv[0].iter().map(|name| of_json(&object[name])).collect()
        });
        let lines: Vec<Vec<String>> = std::iter::once(csv[0].clone()).chain(objects).collect();
        assert_eq!(csv, lines, "{table}");
    }
    let rows = |table| csv(&out, table).len() - 1;
    assert_eq!(TABLES.map(rows), [1, 12, 12, 12, 0, 48, 48, 48, 0, 0, 0, 0, 2, 1, 29, 0, 2, 6]);
    let nobody = laboratory.export(9, Format::Csv, &out).unwrap_err().to_string();
    assert!(nobody.contains("no experiment 9"), "{nobody}");
    let file =
        laboratory.export(1, Format::Csv, &store.path().join("out")).unwrap_err().to_string();
    assert!(file.starts_with("cannot write "), "{file}");
}

/// The rows of a table by their columns' names.
fn named(lines: &[Vec<String>]) -> Vec<BTreeMap<&str, &str>> {
    let (names, rows) = lines.split_first().unwrap();
    let mut found = Vec::new();
    for row in rows {
        let pairs = names.iter().zip(row);
        found.push(pairs.map(|(name, cell)| (name.as_str(), cell.as_str())).collect());
    }
    found
}

#[test]
fn a_row_carries_what_it_depended_on() {
    let store = StoreFile::new();
    let out = store.directory();
    laboratory(&store.place()).export(1, Format::Csv, out).unwrap();
    let lines = csv(out, "executions");
    let rows = named(&lines);
    let last = rows.last().unwrap();
    for (column, expected) in [
        ("name", "try, \"quoted\""),
        ("subject", "simulated"),
        ("processors", "2"),
        ("processors_planned", "2"),
        ("primary_key", "0"),
        ("version", "simulated 1"),
        ("attempts", "1"),
        ("failures", "0"),
        ("mpl", "300"),
        ("batchset", "2"),
        ("workload", "thrash"),
        ("rows", "30000"),
        ("sf_percent", "0.5"),
        ("rose_percent", "75"),
        ("reads", "0"),
        ("updates", "1"),
        ("scale", ""),
        ("seconds", "40"),
        ("subject_cpu_us", ""),
        ("subject_core_share", ""),
    ] {
        assert_eq!(last[column], expected, "{column}");
    }
    let keys = |row: &BTreeMap<&str, &str>| {
        ["batchset", "mpl", "repetition"].map(|name| row[name].parse::<u32>().unwrap())
    };
    let found: Vec<_> = rows.iter().map(keys).collect();
    assert!(found.is_sorted() && found.len() == EXECUTIONS, "{found:?}");
    // What intervals, their kinds and histograms counted is what the execution did, but for
    // rounding.
    let counted = |table: &str, execution: &str| {
        let lines = csv(out, table);
        let rows = named(&lines);
        let of = rows.iter().filter(|row| row["execution"] == execution);
        of.map(|row| row["transactions"].parse::<i64>().unwrap()).sum::<i64>()
    };
    let transactions = last["transactions"].parse::<i64>().unwrap();
    let intervals = counted("intervals", last["execution"]);
    assert!((transactions - intervals).abs() <= 4, "{transactions} {intervals}");
    assert_eq!(intervals, counted("histograms", last["execution"]));
    assert_eq!(intervals, counted("interval_kinds", last["execution"]));
    let lines = csv(out, "experiment");
    let experiment = &named(&lines)[0];
    assert_eq!((experiment["ctl_s"], experiment["file"]), ("40", FILE));
}

#[test]
fn what_an_analysis_dropped_is_there_with_its_reason() {
    let store = StoreFile::new();
    let out = store.directory();
    let mut laboratory = laboratory(&store.place());
    // One execution of batchset 1 took too long, and all of MPL 300 of batchset 2 ended early.
    let connection = store.connection();
    let of = "execution IN (SELECT x.id FROM execution x, batchset b WHERE b.id = x.batchset AND";
    connection.batch("DROP TRIGGER measurement_taken_no_update").unwrap();
    let set = "UPDATE measurement_taken SET seconds = ";
    for wrong in [
        format!("{set}49 WHERE {of} b.number = 1 AND x.mpl = 200 AND x.repetition = 2)"),
        format!("{set}31 WHERE {of} b.number = 2 AND x.mpl = 300)"),
    ] {
        connection.batch(&wrong).unwrap();
    }
    laboratory.tap(1, Choices::default()).unwrap();
    laboratory.export(1, Format::Csv, out).unwrap();

    let lines = csv(out, "tap_drops");
    let rows = named(&lines);
    let columns = ["batchset", "mpl", "repetition", "analysis", "step", "name", "why"];
    let found: Vec<_> = rows.iter().map(|row| columns.map(|name| row[name])).collect();
    let late = "49.000 s from start to end, but should be 40 s, give or take 0.4 s";
    let early = "31.000 s from start to end, but should be 40 s, give or take 0.4 s";
    let limit = "connection_time_limit";
    assert_eq!(
        found,
        [
            ["1", "200", "2", "2", "2", limit, late],
            ["2", "", "", "2", "3-(i)", "incomplete", "no execution is left at MPL 300"],
            ["2", "300", "1", "2", "2", limit, early],
            ["2", "300", "2", "2", "2", limit, early],
        ]
    );
    let lines = csv(out, "tap_counts");
    let rows = named(&lines);
    let of = |name: &str, level: &str| {
        let is_it = |row: &&BTreeMap<&str, &str>| {
            (row["analysis"], row["name"], row["level"]) == ("2", name, level)
        };
        let row = rows.iter().find(is_it).unwrap();
        ["step", "number", "checked", "found", "batchsets"].map(|column| row[column].to_owned())
    };
    assert_eq!(of(limit, "execution"), ["1", "7", "12", "3", "2"]);
    assert_eq!(of("faulty_executions", "execution"), ["2", "", "12", "3", ""]);
    assert_eq!(of("incomplete", "batchset"), ["3-(i)", "", "2", "1", ""]);
    // Each analysis stands beside those before.
    let lines = csv(out, "thrashing_points");
    let points = named(&lines);
    let found: Vec<_> = points.iter().map(|row| (row["batchset"], row["analysis"])).collect();
    assert_eq!(found, [("1", "1"), ("1", "2"), ("2", "1")]);
    assert_eq!(csv(out, "analyses").len(), 3);
}

/// ATPT weighs transactions, not executions.
#[test]
fn the_atpt_of_a_batchset_is_that_of_its_transactions() {
    let store = StoreFile::new();
    let out = store.directory();
    laboratory(&store.place()).export(1, Format::Csv, out).unwrap();
    let (executions, points) = (csv(out, "executions"), csv(out, "thrashing_points"));
    let executions = named(&executions);
    for point in named(&points) {
        let (mut all, mut total_ms) = (0.0, 0.0);
        for row in executions.iter().filter(|row| row["batchset"] == point["batchset"]) {
            let transactions = row["transactions"].parse::<f64>().unwrap();
            all += transactions;
            total_ms += transactions * row["mean_ms"].parse::<f64>().unwrap();
        }
        let atpt_ms = point["atpt_ms"].parse::<f64>().unwrap();
        assert!((atpt_ms / (total_ms / all) - 1.0).abs() < 1e-9, "{atpt_ms} {total_ms} {all}");
    }
}

/// A controller.
const COURSES: &str = r#"
name = "courses"
scenario = "autotune"
subjects = ["simulated"]
mpl = [16]
clients = 200
ctl = "6s"
warmup = "0s"

[factors]
control = ["gaussian-process"]

[workload]
kind = "point-select"
"#;

#[test]
fn the_courses_of_executions_are_exported() {
    let store = StoreFile::new();
    let out = store.directory();
    let mut laboratory = store.laboratory();
    let id = laboratory.begin(&experiment(COURSES)).unwrap();
    laboratory.run(id, &AtomicBool::new(false), &mut |_| ()).unwrap();
    // A simulated subject has no trees, and here no classes.
    let connection = store.connection();
    let added = "INSERT INTO class_seen VALUES (1, 'high', 7, 1.5, 1.25, 2.5, 3.5, 4.5); \
                 INSERT INTO tree_seen VALUES \
                 (1, 1, 'stock', 0.5, 2, 30, 0.75, 9, 8, 7, '[1,0.5]'), \
                 (1, 2, 'stock', 1.5, 3, 40, 0.7, 12, 10, 9, NULL)";
    connection.batch(added).unwrap();
    laboratory.export(id, Format::Csv, out).unwrap();
    let of = |table: &str| csv(out, table)[1..].iter().map(|row| row[7..].join(" ")).collect();
    let classes: Vec<String> = of("classes");
    assert_eq!(classes, ["high 7 1.5 1.25 2.5 3.5 4.5"]);
    let trees: Vec<String> = of("trees");
    assert_eq!(trees, ["1 stock 0.5 2 30 0.75 9 8 7 [1,0.5]", "2 stock 1.5 3 40 0.7 12 10 9 "]);
    let lines = csv(out, "limits");
    let limits = named(&lines);
    let numbers: Vec<_> = limits.iter().map(|row| row["number"].parse::<u32>().unwrap()).collect();
    assert!(numbers.len() > 5 && numbers.is_sorted(), "{numbers:?}");
    assert!(limits.iter().all(|row| row["mpl"] == "16" && !row["reason"].is_empty()));
    for (one, next) in limits.iter().zip(&limits[1..]) {
        assert!(one["execution"] != next["execution"] || one["next_limit"] == next["limit"]);
    }
}

/// Names in the first column of the tables under each heading of a part of the document.
fn documented(part: &str) -> BTreeMap<String, Vec<String>> {
    let part = DOCUMENT.split("\n## ").find(|text| text.starts_with(part)).unwrap();
    let name = |line: &str| line.split('`').nth(1).map(str::to_owned);
    let sections = part.split("\n### ").skip(1);
    let section = |text: &str| {
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        (name(text).unwrap(), rows.filter_map(name).collect())
    };
    sections.map(section).collect()
}

#[test]
fn the_document_names_every_table_and_column() {
    let store = StoreFile::new();
    laboratory(&store.place()).export(1, Format::Csv, store.directory()).unwrap();
    let exported: BTreeMap<String, Vec<String>> =
        TABLES.map(|table| (table.to_owned(), csv(store.directory(), table).remove(0))).into();
    assert_eq!(documented("Exports"), exported);

    let mut connection = store.connection();
    let names = |rows: &Rows| -> Vec<String> {
        (0..rows.len()).map(|row| rows.text(row, 0).unwrap().to_owned()).collect()
    };
    let tables = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') \
                  AND name NOT LIKE 'sqlite%'";
    let mut tables: BTreeMap<String, Vec<String>> = names(&asked(&mut connection, tables))
        .into_iter()
        .map(|table| {
            let columns = format!("SELECT name FROM pragma_table_info('{table}')");
            let columns = names(&asked(&mut connection, &columns));
            (table, columns)
        })
        .collect();
    for (table, columns) in exported {
        let view = tables.remove(&format!("export_{table}")).unwrap();
        // Of these the last column is a document, which is taken apart.
        let is_replaced = ["phases", "histograms"].contains(&table.as_str());
        let given = view.len() - usize::from(is_replaced);
        assert_eq!(view[..given], columns[..given], "{table}");
    }
    assert_eq!(documented("Tables"), tables);
}

/// One batch of one MPL on a real database.
const REAL: &str = r#"
name = "real"
scenario = "characterise"
subjects = ["postgres"]
mpl = [4]
ctl = "500ms"
warmup = "200ms"
transactions = true

[workload]
kind = "point-select"
"#;

#[test]
fn each_transaction_is_recorded_where_the_file_wants_it() {
    if let Err(error) = Postgres::find() {
        println!("skipped: {error}");
        return;
    }
    let store = StoreFile::new();
    let mut laboratory = store.laboratory();
    let id = laboratory.begin(&experiment(REAL)).unwrap();
    let outcome = laboratory.run(id, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert_eq!(outcome.done, 1, "{outcome:?}");
    let records = store.directory().join("results.db.transactions/experiment-1");
    let lines = parquet(&records, "attempt-1");
    let rows = named(&lines);
    let of = |stage: &str| rows.iter().filter(|row| row["stage"] == stage).count();
    laboratory.export(1, Format::Csv, store.directory()).unwrap();
    let lines = csv(store.directory(), "executions");
    let execution = &named(&lines)[0];
    assert_eq!(execution["transactions"], of("measured").to_string());
    let number = |column: &str| execution[column].parse::<f64>().unwrap();
    let cpu_s = number("subject_cpu_us") * number("transactions") / 1e6;
    let share = cpu_s / number("seconds");
    assert!(cpu_s > 0.0 && (share / number("subject_core_share") - 1.0).abs() < 1e-9, "{cpu_s}");
    // The server was given all that we have ourselves.
    let processors = format!("[[\"processors\",\"{}\"],", Processors::available().unwrap());
    assert!(execution["settings"].starts_with(&processors), "{}", execution["settings"]);
    assert!(of("warm-up") > 0 && rows.iter().all(|row| row["outcome"] == "committed"));
    let is_ours = |row: &BTreeMap<&str, &str>| {
        let (client, latency) = (row["client"], row["latency_us"].parse::<i64>().unwrap());
        ["0", "1", "2", "3"].contains(&client) && latency > 0 && row["kind"] == "select"
    };
    assert!(rows.iter().all(is_ours), "{:?}", rows[0]);
}

fn asked(connection: &mut dyn Transactional, sql: &str) -> Rows {
    let statement = Statement::written(sql.to_owned());
    let reply = connection.run(&statement, &[], Wants::Rows);
    reply.unwrap_or_else(|failure| panic!("{sql}: {failure}")).rows
}

/// How many rows each of the document's questions finds.
fn answers(connection: &mut dyn Transactional) -> Vec<usize> {
    let questions = DOCUMENT.split("```sql\n").skip(1);
    let questions = questions.map(|text| text.split(";\n```").next().unwrap());
    questions.map(|question| asked(connection, question).len()).collect()
}

/// What is the same of an experiment whenever it is made: all but moments.
fn without_moments(directory: &Path) -> Vec<Vec<Vec<String>>> {
    let strip = |table: &&str| {
        let lines = csv(directory, table);
        let names = lines[0].iter().map(String::as_str);
        let is_moment: Vec<bool> =
            names.map(|name| ["began_us", "ended_us", "found_us"].contains(&name)).collect();
        let line = |line: Vec<String>| {
            let cells = line.into_iter().zip(&is_moment);
            cells.filter(|(_, is_moment)| !**is_moment).map(|(cell, _)| cell).collect()
        };
        lines.into_iter().map(line).collect()
    };
    TABLES.iter().map(strip).collect()
}

#[test]
fn both_databases_answer_and_export_alike() {
    let store = StoreFile::new();
    let (file, server_out) = (store.directory().join("file"), store.directory().join("server"));
    laboratory(&store.place()).export(1, Format::Csv, &file).unwrap();
    let mut connection = store.connection();
    let expected = [6, 1, 1, 2, 29, 24];
    assert_eq!(answers(&mut connection), expected);
    let Some(server) = server() else { return };
    laboratory(&server.url()).export(1, Format::Csv, &server_out).unwrap();
    assert_eq!(answers(&mut server.connect().unwrap()), expected);
    assert_eq!(without_moments(&file), without_moments(&server_out));
}
