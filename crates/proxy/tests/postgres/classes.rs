//! Which class a transaction is of, whose turn it is, and what those are told that are refused.

use tidegate_wire::frontend::Target;

use crate::support::server::{Setup, setup};
use crate::support::wire::{SYNC, bind, cancel, close, execute, extended, parse, query, show};
use crate::support::{MODES, Proxy, Wire, server};

const THREE: &str = "scheduling.classes = [\"high\", \"normal\", \"low\"]\n\
                     scheduling.default_class = \"normal\"";

/// A proxy in each mode that lets in one transaction at a time.
fn one_at_a_time(with: impl Fn(Setup) -> Setup, test: impl Fn(&Proxy)) {
    let server = server();
    for mode in MODES {
        let proxy = with(setup(&server, mode).limit(1)).start();
        test(&proxy);
        proxy.is_left_clean();
    }
}

/// How many transactions of a class have been completed.
fn completed(proxy: &Proxy, class: &str) -> u64 {
    let page = proxy.get("/metrics");
    let label = format!("class=\"{class}\",outcome=\"completed\"");
    let of_class = page
        .lines()
        .filter(|line| line.starts_with("tidegate_transactions_total{") && line.contains(&label));
    of_class.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// Runs a transaction. Returns the class that it was counted in.
fn class_of(proxy: &Proxy, transaction: impl FnOnce()) -> &'static str {
    let classes = ["high", "normal", "low"];
    // A transaction ends a moment after its client has been answered.
    proxy.wait_for("tidegate_permits_out", 0);
    let before = classes.map(|class| completed(proxy, class));
    transaction();
    proxy.wait_for("tidegate_permits_out", 0);
    let after = classes.map(|class| completed(proxy, class));
    let counted: Vec<usize> = (0..3).filter(|&class| after[class] > before[class]).collect();
    assert_eq!(counted.len(), 1, "{before:?}, {after:?}");
    classes[counted[0]]
}

#[test]
fn a_comment_names_the_class_of_its_transaction_alone() {
    one_at_a_time(
        |setup| setup.line(THREE),
        |proxy| {
            let low = "SELECT 1 /*controller='a',tidegate_class='low'*/";
            let high = "/*tidegate_class='high'*/ SELECT 1";
            let mut client = proxy.connect();
            let run = |client: &mut Wire, bytes: &[u8]| {
                let class = class_of(proxy, || {
                    let answer = client.run(bytes);
                    assert!(answer.ends_with("Z(I)") && !answer.contains("E("), "{answer}");
                });
                class.to_owned()
            };
            assert_eq!(run(&mut client, &query(low)), "low");
            assert_eq!(run(&mut client, &query("SELECT 1")), "normal");
            assert_eq!(run(&mut client, &[extended(high), SYNC.to_vec()].concat()), "high");
            assert_eq!(run(&mut client, &query("SELECT '/*tidegate_class=''high''*/'")), "normal");
            // Behind a BEGIN in the same batch, and on the BEGIN itself.
            let block = [query("BEGIN"), query(low), query("COMMIT")].concat();
            let three = |client: &mut Wire, block: &[u8]| {
                let class = class_of(proxy, || {
                    client.send(block);
                    (0..3).for_each(|_| drop(client.until_ready()));
                });
                class.to_owned()
            };
            assert_eq!(three(&mut client, &block), "low");
            let block = [query("BEGIN /*tidegate_class='high'*/"), query(low), query("COMMIT")];
            assert_eq!(three(&mut client, &block.concat()), "high");
            // A prepared statement keeps the comment of its text, until it is another one.
            let prepare = [parse("s", low), SYNC.to_vec()].concat();
            client.run(&prepare);
            let again = [bind("s", &[]), execute("", 0), SYNC.to_vec()].concat();
            assert_eq!(run(&mut client, &again), "low");
            assert_eq!(run(&mut client, &query("SELECT 1")), "normal");
            assert_eq!(run(&mut client, &again), "low");
            client.run(&[close(Target::Statement, "s"), SYNC.to_vec()].concat());
            client.run(&[parse("s", "SELECT 1"), SYNC.to_vec()].concat());
            assert_eq!(run(&mut client, &again), "normal");
        },
    );
}

#[test]
fn a_setting_names_the_class_until_it_is_set_back() {
    let server = server();
    for mode in MODES {
        let proxy = setup(&server, mode).limit(1).line(THREE).start();
        let (mut client, mut other) = (proxy.connect(), proxy.connect());
        let mut class = |sql: &str, of_next: &str| {
            client.query(sql);
            let seen = class_of(&proxy, || drop(client.value("SELECT 1")));
            assert_eq!(seen, of_next, "{mode}: after {sql}");
            assert_eq!(class_of(&proxy, || drop(other.value("SELECT 1"))), "normal", "{sql}");
        };
        class("SET tidegate.class = 'low'", "low");
        class("RESET tidegate.class", "normal");
        class("SET SESSION tidegate.class TO high", "high");
        class("BEGIN; SET LOCAL tidegate.class = 'low'; COMMIT", "high");
        class("BEGIN; SET tidegate.class = 'low'; ROLLBACK", "high");
        class("SELECT set_config('tidegate.class', 'low', false)", "low");
        class("RESET ALL", "normal");
        class("SET tidegate.class = 'low'", "low");
        class("DISCARD ALL", "normal");
        let mut low = Wire::with(proxy.address, &[("options", "-c tidegate.class=low")]);
        assert_eq!(class_of(&proxy, || drop(low.value("SELECT 1"))), "low", "{mode}");
        low.query("SET tidegate.class = 'high'");
        low.query("RESET ALL");
        assert_eq!(class_of(&proxy, || drop(low.value("SELECT 1"))), "low", "{mode}");
        drop((client, other, low));
        proxy.is_left_clean();
    }
}

#[test]
fn application_names_count_as_they_are_now() {
    one_at_a_time(
        |setup| setup.line(THREE).section("[classes.low]\napplications = [\"report\"]"),
        |proxy| {
            let mut client = proxy.connect();
            let mut class = |sql: &str| {
                client.query(sql);
                class_of(proxy, || drop(client.value("SELECT 1")))
            };
            assert_eq!(class("SELECT 1"), "normal");
            assert_eq!(class("SET application_name = 'report'"), "low");
            assert_eq!(class("RESET application_name"), "normal");
            let mut named = Wire::with(proxy.address, &[("application_name", "report")]);
            assert_eq!(class_of(proxy, || drop(named.value("SELECT 1"))), "low");
        },
    );
}

#[test]
fn who_may_not_choose_is_told_once_and_counted() {
    one_at_a_time(
        |setup| setup.line(THREE).line("scheduling.class_choice = \"lower\""),
        |proxy| {
            let mut client = proxy.connect();
            let high = "SELECT 1 /*tidegate_class='high'*/";
            let seen = class_of(proxy, || {
                let answer = client.query(high);
                assert!(answer.starts_with("N(00000) "), "{answer}");
            });
            assert_eq!(seen, "normal");
            assert!(!client.query(high).contains("N("), "once");
            client.query("SELECT 1 /*tidegate_class='none'*/");
            assert_eq!(class_of(proxy, || drop(client.query("SELECT 1"))), "normal");
            assert_eq!(proxy.metric("tidegate_class_choices_forbidden_total"), 2);
            assert_eq!(proxy.metric("tidegate_class_choices_unknown_total"), 1);
        },
    );
}

#[test]
fn a_class_has_a_queue_of_its_own_and_a_refusal_says_what_it_met() {
    one_at_a_time(
        |setup| setup.line(THREE).section("[classes.low]\nwaiting_max = 1"),
        |proxy| {
            let (mut holder, mut waiting, mut client) =
                (proxy.connect(), proxy.connect(), proxy.connect());
            holder.query("BEGIN");
            let low = "SELECT 1 /*tidegate_class='low'*/";
            waiting.send(&query(low));
            proxy.wait_for("tidegate_waiting", 1);
            client.send(&query(low));
            let refusal = client.until_ready().swap_remove(0);
            assert_eq!(refusal.code(), "53300");
            let text = refusal.text();
            for says in ["1 wait", "1 of them of the class low", "for 1 permits", "expected wait"] {
                assert!(text.contains(says), "{says}: {text}");
            }
            assert_eq!(
                show(&{
                    client
                        .send(&query("SELECT 1 /*tidegate_class='high',tidegate_deadline='1ms'*/"));
                    client.until_ready()
                }),
                "E(53300) Z(I)"
            );
            holder.query("COMMIT");
            assert!(show(&waiting.until_ready()).ends_with("Z(I)"));
            assert_eq!(client.value("SELECT 2"), "2");
            assert!(proxy.metric("tidegate_class_refused_total") >= 2);
        },
    );
}

/// The user holds as many permits as it may: it waits, and others do not.
#[test]
fn a_user_is_bounded_inside_the_limit() {
    let server = server();
    for mode in MODES {
        let section = "[users.postgres]\nmax_permits = 1";
        let proxy = setup(&server, mode).limit(4).section(section).start();
        let (mut first, mut second) = (proxy.connect(), proxy.connect());
        first.send(&query("SELECT pg_sleep(600)"));
        proxy.wait_for("tidegate_permits_active", 1);
        second.send(&query("SELECT 2"));
        proxy.wait_for("tidegate_waiting", 1);
        assert_eq!(proxy.metric("tidegate_permits_out"), 1);
        cancel(proxy.address, &first.key());
        assert!(show(&first.until_ready()).ends_with("E(57014) Z(I)"));
        assert!(show(&second.until_ready()).contains("D(2)"));
        drop((first, second));
        proxy.is_left_clean();
    }
}
