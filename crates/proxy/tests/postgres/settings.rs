//! Session settings: each client has its own, whichever connection it runs on.

use crate::support::server::{setup, shared};
use crate::support::{MODES, Wire, server};

const SETTINGS: [(&str, &str, &str); 4] = [
    ("application_name", "it's me", "it's me"),
    ("client_encoding", "LATIN1", "LATIN1"),
    ("timezone", "Asia/Tokyo", "Asia/Tokyo"),
    ("options", "-c search_path=pg_catalog,public -c work_mem=5MB", "pg_catalog,public"),
];

fn shown(client: &mut Wire, start_up_name: &str) -> String {
    let name = if start_up_name == "options" { "search_path" } else { start_up_name };
    client.value(&format!("SHOW {name}")).replace(", ", ",")
}

#[test]
fn settings_of_the_start_up_packet_hold_for_their_client_only() {
    let server = server();
    for mode in MODES {
        let proxy = setup(&server, mode).limit(1).start();
        let mut plain = proxy.connect();
        let before = SETTINGS.map(|(name, ..)| shown(&mut plain, name));
        for (name, value, expected) in SETTINGS {
            let mut client = Wire::with(proxy.address, &[(name, value)]);
            if let Some(reported) = client.reported(name) {
                assert_eq!(reported, expected, "{mode}: {name}");
            }
            for _ in 0..2 {
                assert_eq!(shown(&mut client, name), expected, "{mode}: {name}");
                assert_eq!(SETTINGS.map(|(name, ..)| shown(&mut plain, name)), before, "{mode}");
            }
        }
        let client = Wire::with(proxy.address, &[("timezone", "Asia/Tokyo")]);
        assert_eq!(client.reported("TimeZone").as_deref(), Some("Asia/Tokyo"), "{mode}");
    }
}

#[test]
fn set_changes_nothing_for_another_client() {
    let server = server();
    let sets = [
        ("TimeZone", "Asia/Tokyo"),
        ("application_name", "mine"),
        ("work_mem", "7MB"),
        ("search_path", "pg_catalog"),
        ("role", "pg_monitor"),
        ("statement_timeout", "5s"),
    ];
    for mode in MODES {
        let proxy = setup(&server, mode).limit(1).start();
        let mut clients: Vec<Wire> = (0..4).map(|_| proxy.connect()).collect();
        for (name, value) in sets {
            let shown = |client: &mut Wire| client.value(&format!("SHOW {name}"));
            let before: Vec<String> = clients.iter_mut().map(shown).collect();
            let set = clients[0].query(&format!("SET {name} = '{value}'"));
            assert!(set.starts_with("C(SET)") && set.ends_with("Z(I)"), "{set}");
            for (client, before) in clients.iter_mut().zip(before).skip(1) {
                assert_eq!(client.value(&format!("SHOW {name}")), before, "{mode}: {name}");
            }
        }
        for (name, value) in sets {
            assert_eq!(clients[0].value(&format!("SHOW {name}")), value, "{mode}");
        }
    }
}

/// A client's SET wins over its start-up packet, however either spells the name.
#[test]
fn set_overrides_the_start_up_packet_in_any_spelling() {
    let server = server();
    for mode in MODES {
        let proxy = setup(&server, mode).limit(1).start();
        let mut client = Wire::with(proxy.address, &[("timezone", "Asia/Tokyo")]);
        client.query("SET TIMEZONE TO 'Europe/Oslo'");
        for _ in 0..2 {
            proxy.connect().query("SELECT 1");
            assert_eq!(client.value("SHOW TimeZone"), "Europe/Oslo", "{mode}");
        }
    }
}

/// A client that vanishes takes what it SET in its open transaction with it.
#[test]
fn a_setting_rolled_back_with_a_vanished_client_is_not_thought_to_hold() {
    let proxy = shared("transaction").limit(1).start();
    let wants = [("TimeZone", "Asia/Tokyo")];
    for _ in 0..2 {
        let mut gone = proxy.connect();
        gone.query("BEGIN; SET TimeZone = 'Asia/Tokyo'");
        drop(gone);
        proxy.comes_to_rest();
        let mut client = Wire::with(proxy.address, &wants);
        assert_eq!(client.value("SHOW TimeZone"), "Asia/Tokyo");
    }
}

/// The next in line for the same connection is not harmed.
#[test]
fn a_wrong_setting_gives_the_servers_error() {
    let server = server();
    for mode in MODES {
        let proxy = setup(&server, mode).limit(1).start();
        for parameter in [("TimeZone", "Atlantis"), ("no_such_setting", "1")] {
            let mut others: Vec<Wire> = (0..4).map(|_| proxy.connect()).collect();
            let mut wrong = Wire::attempt(proxy.address, &[parameter]);
            let refusal = if mode == "session" {
                wrong.login.pop().unwrap()
            } else {
                wrong.send(&crate::support::wire::query("SELECT 1"));
                for other in &mut others {
                    other.send(&crate::support::wire::query("SELECT 1"));
                }
                wrong.until_ready().pop().unwrap()
            };
            let expected = if parameter.0 == "TimeZone" { "22023" } else { "42704" };
            assert_eq!(refusal.code(), expected, "{mode}: {}", refusal.text());
            assert!(refusal.text().contains(parameter.0), "{}", refusal.text());
            assert!(wrong.is_closed());
            for mut other in others {
                if mode == "transaction" {
                    assert!(other.until_ready().last().is_some_and(|last| last.tag == b'Z'));
                }
                assert_eq!(other.value("SELECT 1"), "1", "{mode}");
            }
        }
        if mode == "transaction" {
            assert_eq!(proxy.metric("tidegate_upstream_connects_total"), 1, "it can still be used");
        }
        proxy.is_left_clean();
    }
}

#[test]
fn options_that_cannot_be_followed_are_refused_in_transaction_mode() {
    let proxy = shared("transaction").start();
    let mut client = Wire::attempt(proxy.address, &[("options", "-B 100")]);
    let refusal = client.login.pop().unwrap();
    assert_eq!(refusal.code(), "0A000");
    assert!(refusal.text().contains("session mode"), "{}", refusal.text());
}

/// The proxy's name is on its own connections only.
#[test]
fn a_client_without_an_application_name_has_none() {
    let server = server();
    for mode in MODES {
        let proxy = setup(&server, mode).limit(1).start();
        let mut named = Wire::with(proxy.address, &[("application_name", "named")]);
        let mut client = proxy.connect();
        assert_eq!(client.reported("application_name").as_deref(), Some(""), "{mode}");
        for _ in 0..2 {
            assert_eq!(named.value("SHOW application_name"), "named", "{mode}");
            assert_eq!(client.value("SHOW application_name"), "", "{mode}");
            assert_eq!(client.query("SET application_name = 'x'; RESET ALL").pop(), Some(')'));
        }
    }
}

#[test]
fn switches_of_the_start_up_packet_are_settings() {
    let server = server();
    for mode in MODES {
        let proxy = setup(&server, mode).limit(1).start();
        let mut client = Wire::with(proxy.address, &[("options", "-f s -fh -S 2048 -d 1 -e")]);
        let mut plain = proxy.connect();
        let expected = [
            ("enable_seqscan", "off"),
            ("enable_hashjoin", "off"),
            ("work_mem", "2MB"),
            ("log_min_messages", "debug1"),
        ];
        for (name, value) in expected {
            assert_eq!(client.value(&format!("SHOW {name}")), value, "{mode}: {name}");
            assert_ne!(plain.value(&format!("SHOW {name}")), value, "{mode}: {name}");
        }
        assert!(client.value("SHOW DateStyle").ends_with("DMY"), "{mode}");
    }
}
