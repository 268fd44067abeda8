//! A demonstration that cannot be given says why.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_lab::demo::{DatabaseChoice, DemoError, DemoOptions, run};

fn options(tidegate: &str, out: &Path) -> DemoOptions {
    let database = DatabaseChoice::named("postgres").expect("it is in the list");
    DemoOptions::new(database, tidegate.into(), out.join("demo"), "test".into())
}

#[test]
fn a_proxy_that_does_not_start_is_named_with_its_log() {
    let out = tempfile::tempdir().unwrap();
    for (program, wrong) in [
        ("/nonexistent/tidegate", "cannot start the proxy"),
        ("false", "before it accepted connections"),
    ] {
        let cancel = AtomicBool::new(false);
        let error = run(&options(program, out.path()), &cancel, &mut |_| {}).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(wrong) && message.contains("proxy.log"), "{message}");
    }
}

#[test]
fn a_cancelled_demonstration_ends() {
    let out = tempfile::tempdir().unwrap();
    let cancel = AtomicBool::new(false);
    let mut messages = Vec::new();
    let result = run(&options("false", out.path()), &cancel, &mut |update| {
        messages.push(update.message.clone());
        cancel.store(messages.len() == 2, Ordering::Relaxed);
    });
    assert!(matches!(result, Err(DemoError::Cancelled)), "{result:?}");
    assert_eq!(messages.len(), 2, "{messages:?}");
}

#[test]
fn impossible_numbers_of_clients_are_refused_before_anything_starts() {
    let out = tempfile::tempdir().unwrap();
    for clients in [vec![], vec![0], vec![4, 1001]] {
        let options = DemoOptions { clients, ..options("false", out.path()) };
        let result = run(&options, &AtomicBool::new(false), &mut |_| {});
        assert!(matches!(result, Err(DemoError::Clients)), "{result:?}");
    }
    assert!(!out.path().join("demo").exists());
}
