//! What monitoring reads: the metrics that the dashboard and the alert rules name, and who the
//! document lists.

use std::collections::BTreeSet;

use serde_json::Value;
use tidegate_subject::postgres::Authentication;

use crate::load::{run, with_tables};
use crate::support::server::{own_server, setup, shared};
use crate::support::wire::query;
use crate::support::{Proxy, Wire, eventually};

/// The names of metrics in a text: words that begin as ours do.
fn named(text: &str) -> BTreeSet<String> {
    let is_of_name = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_';
    let words = text.split(|it| !is_of_name(it));
    let is_ours = |word: &&str| word.starts_with("tidegate_") || word.starts_with("process_");
    words.filter(is_ours).map(str::to_owned).collect()
}

fn samples(proxy: &Proxy) -> BTreeSet<String> {
    let page = proxy.get("/metrics");
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect()
}

/// A controller that watches, keeps a response time and has been at work for a while has them all.
#[test]
fn every_metric_that_dashboard_and_alert_rules_name_exists() {
    let server = own_server(Authentication::Trust);
    with_tables(&setup(&server, "transaction").start());
    let lines = "watch = true\nwatch_user = \"postgres\"\nkeep = \"normal:mean=10s\"";
    let proxy = setup(&server, "transaction").database_line(lines).start();
    let mut load = run(&proxy, 8, 120, &[]).spawn().unwrap();
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/monitoring");
    for file in ["grafana.json", "alerts.yml", "alerts_test.yml"] {
        let text = std::fs::read_to_string(format!("{directory}/{file}")).unwrap();
        let wanted = named(&text);
        assert!(wanted.len() > 3, "{file}: {wanted:?}");
        let missing = || wanted.difference(&samples(&proxy)).cloned().collect::<Vec<_>>();
        // The goal is judged and the curve made after some seconds.
        eventually(&format!("all that {file} names"), || missing().is_empty().then_some(()));
    }
    let dashboard = std::fs::read_to_string(format!("{directory}/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
    load.kill().unwrap();
    load.wait().unwrap();
}

#[test]
fn the_document_lists_who_holds_a_permit_and_who_waits() {
    // Where there is no higher limit, a permit that is held for long is not discounted.
    let lines = "control = \"fixed:1\"\nmax_mpl = 1";
    let proxy = shared("transaction").database_line(lines).start();
    let hostile = "\"><script>alert(1)</script>\u{1}";
    let parameters =
        [("user", "postgres"), ("database", "postgres"), ("application_name", hostile)];
    let mut holder = Wire::with(proxy.address, &parameters);
    holder.send(&query("SELECT pg_sleep(600)"));
    let mut waiter = proxy.connect();
    let status = || {
        let answer = proxy.get("/status.json");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        serde_json::from_str::<Value>(body).unwrap()["servers"][0].clone()
    };
    let has = |key: &str, count: u64| (status()[key] == count).then_some(());
    eventually("one holds", || has("holders_total", 1));
    waiter.send(&query("SELECT 1"));
    eventually("one waits", || has("waiters_total", 1));
    let listed = status();
    assert_eq!(listed["holders"][0]["state"], "running");
    assert_eq!(listed["holders"][0]["user"], "postgres");
    let name = listed["holders"][0]["application"].as_str().unwrap();
    assert!(name.contains("<script>"), "names are told as they are: {name}");
    assert_eq!(listed["waiters"][0]["waits_for"], "permit");
    assert_eq!((&listed["limit"], &listed["waiting"]), (&1.into(), &1.into()));
}
