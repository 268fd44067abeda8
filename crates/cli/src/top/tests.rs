//! Frames of documents, also of hostile ones and in any size.

use serde_json::{Value, json};
use tidegate_proxy::status::Status;

use super::canvas::{Canvas, Look};
use super::frame::{View, frame};

/// A document with names from outside.
fn document(user: &str) -> Status {
    let band = |median: f64| json!({"low": median * 0.9, "median": median, "high": median * 1.1});
    let rows: Vec<Value> = [1_u32, 2, 4, 8, 16, 32, 64]
        .map(|limit| {
            let tps = f64::from(limit) * 100.0 / (1.0 + f64::from(limit * limit) / 200.0);
            json!({"limit": limit, "tps": band(tps), "response_ms": band(5.0), "unknown": null})
        })
        .into();
    let class = json!({"class": "normal", "completed": 9, "failed": 0, "queue_ms": 1.0,
        "database_ms": 2.0});
    let seconds: Vec<Value> = (0..120_u32)
        .map(|second| {
            let tps = 500.0 + f64::from(second % 10);
            json!({"at_ms": 1000 * u64::from(second), "limit": 12, "tps": tps, "failed_tps": 0.0,
                "running": 11.5, "waiting": 1988.0,
                "classes": [{"tps": tps, "queue_ms": 1234.5, "database_ms": 8.25}]})
        })
        .collect();
    let client = |more: Value| {
        let mut client = json!({"client_id": 7, "class": "normal", "user": user,
            "database": user, "application": user});
        client.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client
    };
    let server = json!({
        "server": "127.0.0.1:5432", "databases": ["*"], "paused": [], "is_reachable": true,
        "outage": null, "limit": 12, "limit_min": 1, "limit_max": 1000,
        "control": {"configured": "paired-comparison", "in_force": "paired-comparison",
            "order": "configured", "keep": null, "proposal": null},
        "why": {"controller": "paired-comparison", "rule": "hold", "sentence": "hold: 505 tps"},
        "outlook": "505 tps are expected here.", "bottleneck": null,
        "permits": {"out": 12, "counted": 12, "idle": 0, "discounted": 0}, "waiting": 1988,
        "refusals": [{"reason": "queue_full", "sentence": "s", "count": 3}],
        "classes": [class],
        "measurements": [{"mpl": 8.0, "tps": 600.0, "age_s": 3.0, "seconds": 1.0}],
        "curve": {"age_s": 1.0, "present": 2000.0, "widening": 1.0, "rows": rows},
        "history": seconds,
        "decisions": [{"id": 1, "at_ms": 1, "until_ms": 2, "repeats": 3, "from": 8, "limit": 12,
            "controller": "paired-comparison", "rule": "adopt",
            "sentence": "adopt: gain +3.0 %", "tps": 505.0}],
        "holders": [client(json!({"state": "running", "held_ms": 12.5, "idle_ms": null}))],
        "holders_total": 12,
        "waiters": [client(json!({"waits_for": "permit", "waited_ms": 900.0}))],
        "waiters_total": 1988,
    });
    let status = json!({
        "version": 1, "tidegate": "0.1.0", "at": "", "at_ms": 120_000, "uptime_s": 3720.0,
        "state": "serving", "failure": null, "is_complete": true, "takes_orders": false,
        "hold": "none", "clients": {"connected": 2000, "max": null},
        "connections": {"open": 20, "busy": 12}, "missing_event_loops": 0, "refusals": [],
        "servers": [server],
    });
    serde_json::from_value(status).unwrap()
}

fn text(status: &Status, width: u16, height: u16) -> String {
    frame(&View { status, server: 0, note: None }, width, height).text(false)
}

#[test]
fn a_frame_has_what_the_page_has() {
    let shown = text(&document("till"), 80, 24);
    for part in [
        "Tidegate 0.1.0  serving",
        "clients 2,000",
        "limit 12 (1-1000)",
        "tps 504",
        "waiting 1,988",
        "hold: 505 tps",
        "505 tps are expected here.",
        "░",
        "━",
        "•",
        "◆",
        "normal queue",
        "12 hold a permit",
        "12.5 ms  till@till till normal",
        "adopt: gain +3.0 % (3 times)",
    ] {
        assert!(shown.contains(part), "{part}: \n{shown}");
    }
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 24);
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn every_size_is_filled_and_none_overflows() {
    let status = document("u");
    for (width, height) in (1..130).step_by(7).flat_map(|w| (1..50).step_by(3).map(move |h| (w, h)))
    {
        let shown = text(&status, width, height);
        assert_eq!(shown.lines().count(), usize::from(height), "{width} by {height}");
        let is_within = |line: &str| line.chars().count() <= usize::from(width);
        assert!(shown.lines().all(is_within), "{width} by {height}: {shown}");
    }
    let empty = Status { servers: Vec::new(), ..status };
    assert!(text(&empty, 80, 24).contains("serving"));
}

#[test]
fn names_from_outside_cannot_change_the_terminal() {
    let hostile = "\x1b[2J\x1b]0;x\x07\r\nroot\t\u{202e}drow\u{200b}\u{9b}31m";
    let shown = text(&document(hostile), 200, 40);
    let is_harmful = |it: char| {
        (it.is_control() && it != '\n') || matches!(it, '\u{202e}' | '\u{200b}' | '\u{9b}')
    };
    assert!(!shown.contains(is_harmful), "{shown:?}");
    assert_eq!(shown.lines().count(), 40);
    assert!(shown.contains("root"));
}

#[test]
fn wide_characters_take_two_columns_and_colours_are_ended() {
    let mut canvas = Canvas::new(8, 1);
    assert_eq!(canvas.put(0, 0, 5, "日本語", Look::Strong), 5);
    canvas.put(0, 6, 2, "ab", Look::Plain);
    assert_eq!(canvas.lines(false), ["日本… ab"]);
    assert_eq!(canvas.lines(true), ["\x1b[0;1m日本…\x1b[0m ab"]);
}
