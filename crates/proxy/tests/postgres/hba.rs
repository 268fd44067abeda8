//! Who may log in from where and how, as files in PostgreSQL's format say.

use std::fs;
use std::process::{Command, Output};

use postgres_protocol::password;
use tidegate_subject::postgres::Authentication;

use crate::support::server::{Setup, own_server, setup};
use crate::support::{Proxy, eventually, log, server};
use crate::tls::Authority;

/// A proxy that judges its clients by these lines, and is `postgres` on the server.
fn judging(server: &tidegate_subject::postgres::Postgres, lines: &str) -> Setup {
    setup(server, "transaction")
        .upstream(&format!("postgres://postgres@127.0.0.1:{}", server.port()))
        .line("auth = \"hba\"\nauth_hba_file = \"hba.conf\"")
        .file("hba.conf", lines)
}

/// Runs `psql` with these parts of a connection string.
fn psql(connection: &str) -> Output {
    Command::new("psql")
        .args([connection, "-w", "-X", "-At", "-c", "SELECT 'in'"])
        .env("PGPASSWORD", "right")
        .output()
        .unwrap()
}

fn by_tcp(proxy: &Proxy, rest: &str) -> Output {
    let port = proxy.address.port();
    psql(&format!("host=localhost hostaddr=127.0.0.1 port={port} dbname=postgres {rest}"))
}

fn by_socket(proxy: &Proxy, rest: &str) -> Output {
    let directory = proxy.directory.path().display();
    psql(&format!("host={directory} port=6432 dbname=postgres {rest}"))
}

#[track_caller]
fn assert_let_in(output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "in\n");
}

#[track_caller]
fn assert_refused(output: &Output, why: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "let in");
    assert!(errors.contains(why), "{errors}");
}

/// The name of the user who runs the tests.
fn own_name() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn each_method_lets_in_who_proves_it_and_the_first_line_decides() {
    let server = server();
    let users = format!(
        "\"plain\" \"right\"\n\"hashed\" \"{}\"\n\"verified\" \"{}\"\n",
        password::md5(b"right", "hashed"),
        password::scram_sha_256(b"right"),
    );
    let lines = "host  all  barred                 127.0.0.1/32           reject\n\
                 host  all  barred                 all                    trust\n\
                 host  all  free                   127.0.0.1 255.0.0.0    trust\n\
                 host  all  /ed$                   127.0.0.1/32           md5\n\
                 host  all  plain                  127.0.0.1/32           scram-sha-256\n\
                 host  none,\"quoted\"  elsewhere  127.0.0.1/32           trust\n\
                 host  all  distant                10.0.0.0/8             trust\n";
    let proxy = judging(&server, lines).users(&users).start();
    for user in ["free", "plain", "hashed", "verified"] {
        assert_let_in(&by_tcp(&proxy, &format!("user={user}")));
    }
    assert_let_in(&by_tcp(&proxy, "user=plain password=right"));
    let wrong = by_tcp(&proxy, "user=plain password=wrong");
    assert_refused(&wrong, "password authentication failed for user \"plain\"");
    let entry = |user: &str| {
        format!("host \"127.0.0.1\", user \"{user}\", database \"postgres\", no encryption")
    };
    let rejected = format!("pg_hba.conf rejects {}", entry("barred"));
    assert_refused(&by_tcp(&proxy, "user=barred"), &rejected);
    for user in ["elsewhere", "distant", "nobody"] {
        let none = format!("no pg_hba.conf entry for {}", entry(user));
        assert_refused(&by_tcp(&proxy, &format!("user={user}")), &none);
    }
    let mut wire = crate::support::Wire::attempt(proxy.address, &[("user", "nobody")]);
    assert_eq!(wire.login.pop().unwrap().code(), "28000");
    proxy.is_left_clean();
}

#[test]
fn certificates_and_encryption_count_where_a_line_says_so() {
    let (server, authority) = (server(), Authority::new());
    authority.issue("proxy", "proxy", &["localhost"]);
    for name in ["ann", "guest-bob"] {
        authority.issue(name, name, &[]);
    }
    let ca = format!("ca = \"{}\"", authority.path("ca.crt").display());
    let lines = "hostssl    all  ann     all  cert\n\
                 hostssl    all  bob     all  cert  map=guests\n\
                 hostssl    all  shown   all  scram-sha-256  clientcert=verify-ca\n\
                 hostssl    all  full    all  trust  clientcert=verify-full\n\
                 hostnossl  all  clear   all  trust\n";
    let proxy = judging(&server, lines)
        .users("\"shown\" \"right\"\n")
        .file("ident.conf", "guests  /^guest-(.*)$  \\1\n")
        .line("auth_ident_file = \"ident.conf\"")
        .line(&authority.section("proxy", &format!("mode = \"prefer\"\n{ca}")))
        .start();
    let with = |user: &str, name: &str| {
        let file = |end: &str| authority.path(&format!("{name}.{end}")).display().to_string();
        let (certificate, key) = (file("crt"), file("key"));
        let files = format!("sslcert={certificate} sslkey={key}");
        by_tcp(&proxy, &format!("user={user} sslmode=require {files}"))
    };
    let without = |user: &str, mode: &str| {
        by_tcp(&proxy, &format!("user={user} sslmode={mode} sslcert=/nonexistent"))
    };
    assert_let_in(&with("ann", "ann"));
    assert_let_in(&with("bob", "guest-bob"));
    assert_let_in(&with("shown", "ann"));
    assert_let_in(&without("clear", "disable"));
    let not_ann = "certificate authentication failed for user \"ann\"";
    assert_refused(&with("ann", "guest-bob"), not_ann);
    let not_bob = "certificate authentication failed for user \"bob\"";
    assert_refused(&with("bob", "ann"), not_bob);
    let not_full = "certificate authentication failed for user \"full\"";
    assert_refused(&with("full", "ann"), not_full);
    for user in ["ann", "shown"] {
        assert_refused(&without(user, "require"), "requires a valid client certificate");
    }
    assert_refused(&without("ann", "disable"), "\"postgres\", no encryption");
    assert_refused(&without("clear", "require"), "\"postgres\", SSL encryption");
    proxy.is_left_clean();
}

#[test]
fn users_of_the_system_log_in_by_a_socket() {
    let (server, own) = (server(), own_name());
    let lines = "local  all  guest,other  peer  map=people\nlocal  all  all  peer\n";
    let ident = format!("people  nobody-else  other\npeople  /^({own})$  guest\n");
    let proxy = judging(&server, lines)
        .file("ident.conf", &ident)
        .line("auth_ident_file = \"ident.conf\"")
        .with_socket()
        .start();
    assert_let_in(&by_socket(&proxy, &format!("user={own}")));
    assert_let_in(&by_socket(&proxy, "user=guest"));
    for user in ["other", "stranger"] {
        let why = format!("Peer authentication failed for user \"{user}\"");
        assert_refused(&by_socket(&proxy, &format!("user={user}")), &why);
    }
    assert_refused(&by_tcp(&proxy, &format!("user={own}")), "no pg_hba.conf entry");
    proxy.is_left_clean();
}

/// A password is asked for by lines that have a server to ask.
#[test]
fn lines_and_looked_up_users_go_together() {
    let server = own_server(Authentication::ScramSha256("right".to_owned()));
    let proxy = judging(&server, "host all all all md5\n")
        .upstream(&format!("postgres://127.0.0.1:{}", server.port()))
        .database_line("auth_user = \"postgres\"\nauth_password = \"right\"")
        .start();
    assert_let_in(&by_tcp(&proxy, "user=postgres"));
    let wrong = by_tcp(&proxy, "user=postgres password=wrong");
    assert_refused(&wrong, "password authentication failed");
    proxy.is_left_clean();
}

#[test]
fn files_are_read_again_and_wrong_ones_are_not_used() {
    log::collect();
    let server = server();
    let lines = "host all ann,bob all scram-sha-256\nhost all late all reject\n";
    let proxy = judging(&server, lines).users("\"ann\" \"right\"\n").start();
    assert_let_in(&by_tcp(&proxy, "user=ann"));
    assert_refused(&by_tcp(&proxy, "user=bob"), "password authentication failed");
    let file = |name: &str| proxy.directory.path().join(name);
    fs::write(file("users.txt"), "\"bob\" \"right\"\n").unwrap();
    eventually("bob is known", || by_tcp(&proxy, "user=bob").status.success().then_some(()));
    assert_refused(&by_tcp(&proxy, "user=ann"), "password authentication failed");
    fs::write(file("hba.conf"), "host all late all trust\n").unwrap();
    eventually("late may", || by_tcp(&proxy, "user=late").status.success().then_some(()));
    assert_refused(&by_tcp(&proxy, "user=bob"), "no pg_hba.conf entry");
    let mark = "nonsense-of-this-test";
    fs::write(file("hba.conf"), format!("{mark} all all trust\n")).unwrap();
    eventually("the error is logged", || (!log::lines_with(mark).is_empty()).then_some(()));
    assert_let_in(&by_tcp(&proxy, "user=late"));
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(log::lines_with(mark).len(), 1, "once");
    assert_let_in(&by_tcp(&proxy, "user=late"));
    proxy.is_left_clean();
}
