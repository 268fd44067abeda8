//! Session mode: each client keeps a connection, with all that is set up on it.

use tidegate_wire::backend::tag;

use crate::support::Proxy;
use crate::support::server::shared;

fn proxy() -> Proxy {
    shared("session").limit(1).start()
}

#[test]
fn what_a_session_sets_up_stays() {
    let proxy = proxy();
    let (mut client, mut other) = (proxy.connect(), proxy.connect());
    client.query("CREATE TEMP TABLE mine (x int); SET work_mem = '7MB'; PREPARE s AS SELECT 'p'");
    client.query("SELECT pg_advisory_lock(4711)");
    other.query("SELECT 1");
    client.query("INSERT INTO mine VALUES (3)");
    other.query("SELECT 1");
    assert_eq!(client.value("SELECT x FROM mine"), "3");
    assert_eq!(client.value("SHOW work_mem"), "7MB");
    assert_eq!(client.value("EXECUTE s"), "p");
    assert_eq!(other.error("SELECT * FROM mine"), "42P01");
    assert_eq!(other.value("SELECT pg_try_advisory_lock(4711)"), "f");
    let backend = client.value("SELECT pg_backend_pid()");
    assert_eq!(client.value("SELECT pg_backend_pid()"), backend);
    drop((client, other));
    proxy.wait_for("tidegate_upstreams_open", 0);
    proxy.is_left_clean();
}

#[test]
fn notifications_reach_a_client_at_rest() {
    let proxy = proxy();
    let (mut listener, mut speaker) = (proxy.connect(), proxy.connect());
    assert_eq!(listener.query("LISTEN news"), "C(LISTEN) Z(I)");
    for news in ["first", "second"] {
        speaker.query(&format!("NOTIFY news, '{news}'"));
        let heard = listener.until(tag::NOTIFICATION).pop().unwrap();
        assert!(format!("{heard:?}").contains(news), "{heard:?}");
    }
    proxy.wait_for("tidegate_permits_out", 0);
}
