//! The document is the one that `docs/status.md` describes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn refusals() -> Vec<Refusal> {
    vec![Refusal { reason: "r".into(), sentence: "s".into(), count: 1 }]
}

fn control() -> ControlStatus {
    ControlStatus {
        configured: "paired-comparison".into(),
        in_force: "observe:gaussian-process".into(),
        order: "observing".into(),
        keep: Some(GoalEntry {
            goal: "high:p95=200ms".into(),
            is_met: Some(true),
            ceiling: 9,
            seen: "s".into(),
        }),
        proposal: Some(ProposalStatus {
            controller: "gaussian-process".into(),
            limit: 7,
            sentence: "s".into(),
            gain: "g".into(),
            best: "b".into(),
        }),
    }
}

fn second() -> HistorySecond {
    let of_class = ClassSecond { tps: 1.0, queue_ms: Some(1.0), database_ms: Some(2.0) };
    HistorySecond {
        at_ms: 1,
        limit: 8,
        tps: 1.0,
        failed_tps: 0.0,
        running: 7.0,
        waiting: 3.0,
        classes: vec![of_class],
    }
}

fn decision() -> DecisionEntry {
    DecisionEntry {
        id: 1,
        at_ms: 1,
        until_ms: 2,
        repeats: 3,
        from: 7,
        limit: 8,
        controller: "c".into(),
        rule: "r".into(),
        sentence: "s".into(),
        tps: 1.0,
    }
}

fn server() -> ServerStatus {
    let text = || "t".to_owned();
    let band = Some(ExpectedBand { low: 1.0, median: 2.0, high: 3.0 });
    ServerStatus {
        server: text(),
        databases: vec![text()],
        paused: vec![text()],
        is_reachable: false,
        outage: Some(text()),
        limit: 8,
        limit_min: 1,
        limit_max: 1000,
        control: control(),
        why: Some(LimitReason { controller: text(), rule: text(), sentence: text() }),
        outlook: text(),
        bottleneck: Some(text()),
        permits: PermitsStatus { out: 8, counted: 7, idle: 1, discounted: 0 },
        waiting: 3,
        refusals: refusals(),
        classes: vec![ClassStatus {
            class: text(),
            completed: 1,
            failed: 2,
            queue_ms: Some(1.0),
            database_ms: Some(2.0),
        }],
        measurements: vec![MeasuredPoint { mpl: 8.0, tps: 100.0, age_s: 3.0, seconds: 1.0 }],
        curve: Some(CurveStatus {
            age_s: 1.0,
            present: 9.0,
            widening: 1.0,
            rows: vec![CurvePoint {
                limit: 8,
                tps: band,
                response_ms: band,
                unknown: Some(text()),
            }],
        }),
        history: vec![second()],
        decisions: vec![decision()],
        holders: vec![PermitHolder {
            client_id: 1,
            class: text(),
            user: text(),
            database: text(),
            application: text(),
            state: text(),
            held_ms: 1.0,
            idle_ms: Some(1.0),
        }],
        holders_total: 1,
        waiters: vec![WaitingClient {
            client_id: 2,
            class: text(),
            user: text(),
            database: text(),
            application: text(),
            waits_for: text(),
            waited_ms: 1.0,
        }],
        waiters_total: 1,
    }
}

/// A document in which nothing is absent.
fn status() -> Status {
    Status {
        version: STATUS_VERSION,
        tidegate: "0".into(),
        at: "2026-01-01T00:00:00.000Z".into(),
        at_ms: 1,
        uptime_s: 1.0,
        state: "failed".into(),
        failure: Some("f".into()),
        is_complete: true,
        takes_orders: true,
        hold: "none".into(),
        clients: ClientsStatus { connected: 1, max: Some(2) },
        connections: ConnectionsStatus { open: 1, busy: 1 },
        missing_event_loops: 0,
        refusals: refusals(),
        servers: vec![server()],
    }
}

/// The paths of all fields, as in `servers[].limit`.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                found.insert(path.clone());
                paths(field, &path, found);
            }
        }
        Value::Array(entries) => {
            for entry in entries {
                paths(entry, &format!("{path}[]"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn every_field_is_documented_and_no_other() {
    let mut written = BTreeSet::new();
    paths(&serde_json::to_value(status()).unwrap(), "", &mut written);
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/status.md"));
    let page = page.unwrap();
    let described = page.split_once("<!-- begin: fields -->").unwrap().1;
    let described = described.split_once("<!-- end: fields -->").unwrap().0;
    let path = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let documented: BTreeSet<String> = described.lines().filter_map(path).collect();
    let missing: Vec<_> = written.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&written).collect();
    assert!(missing.is_empty() && gone.is_empty(), "missing: {missing:?}, gone: {gone:?}");
    assert!(page.contains(&format!("version {STATUS_VERSION} of the document")));
}

#[test]
fn what_is_written_can_be_read() {
    let text = serde_json::to_string(&status()).unwrap();
    assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status());
}
