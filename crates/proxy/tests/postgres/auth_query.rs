//! Users that only the server knows: looked up by a user of the proxy's own.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use tidegate_subject::postgres::{Authentication, Postgres};
use tidegate_wire::authentication::{self, SCRAM_SHA_256};
use tidegate_wire::backend::tag;
use tidegate_wire::startup;

use crate::support::server::{Setup, own_server, setup};
use crate::support::wire::Message;
use crate::support::{MODES, Proxy, Wire, eventually};

/// A server that asks everybody for a password by SCRAM, with these users beside its superuser:
/// `app` with the password `secret`, others who cannot log in, and `looker`, who may look.
fn server_with_users() -> Postgres {
    let server = own_server(Authentication::ScramSha256("right".to_owned()));
    let mut admin = server.connect().unwrap();
    for sql in [
        "CREATE ROLE app LOGIN PASSWORD 'secret'",
        "CREATE ROLE expired LOGIN PASSWORD 'secret' VALID UNTIL '2001-01-01'",
        "CREATE ROLE no_password LOGIN",
        "CREATE ROLE no_login PASSWORD 'secret'",
        "CREATE ROLE looker LOGIN PASSWORD 'looks'",
        "GRANT SELECT ON pg_catalog.pg_shadow TO looker",
    ] {
        admin.query(sql).unwrap();
    }
    server
}

/// A proxy without any password but that of `looker`.
fn looking(server: &Postgres, mode: &str) -> Setup {
    setup(server, mode).database_line("auth_user = \"looker\"\nauth_password = \"looks\"")
}

/// What `psql` answers, or its errors.
fn log_in(proxy: &Proxy, user: &str, password: &str) -> Result<String, String> {
    let port = proxy.address.port().to_string();
    let output = Command::new("psql")
        .args(["-h", "127.0.0.1", "-p", &port, "-U", user, "-d", "postgres", "-w", "-X", "-At"])
        .args(["-c", "SELECT current_user"])
        .env("PGPASSWORD", password)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn assert_refused(proxy: &Proxy, user: &str, password: &str, why: &str) {
    let error = log_in(proxy, user, password).unwrap_err();
    assert!(error.contains(why), "{user}: {error}");
}

/// How many logins were refused for a reason.
fn failures(proxy: &Proxy, reason: &str) -> u64 {
    let wanted = format!("tidegate_login_failures_total{{reason=\"{reason}\"}} ");
    let page = proxy.get("/metrics");
    let line = page.lines().find_map(|line| line.strip_prefix(&wanted));
    line.unwrap_or_else(|| panic!("no {wanted}")).parse().unwrap()
}

/// The proxy knows no password: a client's proof logs it in.
#[test]
fn a_user_of_the_server_logs_in_through_the_proxy() {
    let server = server_with_users();
    for mode in MODES {
        let proxy = looking(&server, mode).start();
        for _ in 0..2 {
            assert_eq!(log_in(&proxy, "app", "secret"), Ok("app".into()));
            assert_eq!(log_in(&proxy, "postgres", "right"), Ok("postgres".into()));
        }
        let names = ["app", "nobody", "expired", "no_password", "no_login", "x' OR '1' = '1"];
        let long = "x".repeat(300);
        for name in names.into_iter().chain([&*long]) {
            let why = format!("password authentication failed for user \"{name}\"");
            assert_refused(&proxy, name, "wrong", &why);
        }
        assert_refused(&proxy, "expired", "secret", "password authentication failed");
        assert_refused(&proxy, "no_login", "secret", "password authentication failed");
        assert_eq!(failures(&proxy, "wrong_password"), 1);
        assert_eq!(failures(&proxy, "unknown_user"), 5);
        assert_eq!(failures(&proxy, "no_password"), 3);
        proxy.is_left_clean();
        let own = "SELECT count(*) FROM pg_stat_activity \
                   WHERE application_name = 'tidegate auth_query'";
        let connections = server.connect().unwrap().value(own).unwrap();
        assert_eq!(connections, "1", "one connection, however many ask");
    }
}

#[test]
fn what_changes_on_the_server_is_seen() {
    let server = server_with_users();
    let mut admin = server.connect().unwrap();
    let proxy = looking(&server, "transaction").start();
    assert_eq!(log_in(&proxy, "app", "secret"), Ok("app".into()));
    admin.query("ALTER ROLE app PASSWORD 'changed'").unwrap();
    eventually("the new password is enough", || log_in(&proxy, "app", "changed").ok());
    assert_refused(&proxy, "app", "secret", "password authentication failed");
    admin.query("CREATE ROLE late LOGIN").unwrap();
    assert_refused(&proxy, "late", "secret", "password authentication failed");
    admin.query("ALTER ROLE late PASSWORD 'secret'").unwrap();
    eventually("a password is given", || log_in(&proxy, "late", "secret").ok());
    admin.query("DROP ROLE late").unwrap();
    eventually("the user is unknown", || {
        let error = log_in(&proxy, "late", "secret").err()?;
        error.contains("password authentication failed").then_some(())
    });
    proxy.is_left_clean();
}

#[test]
fn wrong_passwords_cause_few_queries() {
    let server = server_with_users();
    let mut admin = server.connect().unwrap();
    for sql in [
        "CREATE TABLE asked (name text)",
        "CREATE FUNCTION look_up(wanted text, OUT name text, OUT secret text) AS $$ BEGIN \
         INSERT INTO asked VALUES (wanted); \
         SELECT rolname, rolpassword INTO name, secret FROM pg_authid WHERE rolname = wanted; \
         END $$ LANGUAGE plpgsql SECURITY DEFINER",
    ] {
        admin.query(sql).unwrap();
    }
    let proxy = looking(&server, "transaction")
        .database_line("auth_query = \"SELECT * FROM look_up($1)\"")
        .start();
    assert_eq!(log_in(&proxy, "app", "secret"), Ok("app".into()));
    for user in ["app", "nobody"] {
        let begun = Instant::now();
        for _ in 0..10 {
            let mut exchange = Exchange::begin(&proxy, user);
            exchange.finish("wrong");
        }
        let asked = admin.value(&format!("SELECT count(*) FROM asked WHERE name = '{user}'"));
        let asked: u64 = asked.unwrap().parse().unwrap();
        let allowed = 2 + begun.elapsed().as_secs();
        assert!((1..=allowed).contains(&asked), "{user}: {asked} of at most {allowed}");
    }
    assert_eq!(failures(&proxy, "wrong_password"), 10);
    assert_eq!(failures(&proxy, "unknown_user"), 10);
    proxy.is_left_clean();
}

/// A login by SCRAM, message by message.
struct Exchange {
    wire: Wire,
    user: String,
    /// What the proxy has offered.
    offered: Message,
}

impl Exchange {
    fn begin(proxy: &Proxy, user: &str) -> Exchange {
        let mut wire = Wire::raw(proxy.address);
        let mut packet = Vec::new();
        let parameters = [(&b"user"[..], user.as_bytes()), (b"database", b"postgres")];
        startup::encode_startup(&mut packet, parameters);
        wire.send(&packet);
        let offered = wire.receive().unwrap();
        Exchange { wire, user: user.to_owned(), offered }
    }

    /// Proves a password. Returns the challenge, without the nonce, and what follows the proof; the
    /// user's name is left out.
    fn finish(&mut self, password: &str) -> (String, String) {
        let mut client = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
        let mut out = Vec::new();
        let first = client.message();
        authentication::encode_sasl_initial_response(&mut out, SCRAM_SHA_256, first);
        self.wire.send(&out);
        let challenge = self.wire.receive().unwrap();
        assert_eq!(challenge.tag, tag::AUTHENTICATION);
        let text = String::from_utf8_lossy(&challenge.payload[4..]).into_owned();
        client.update(text.as_bytes()).unwrap();
        out.clear();
        authentication::encode_sasl_response(&mut out, client.message());
        self.wire.send(&out);
        let answer = self.wire.receive().unwrap();
        let answer = format!("{} {}", answer.code(), answer.text()).replace(&self.user, "USER");
        assert!(self.wire.is_closed());
        (text.split_once(',').unwrap().1.to_owned(), answer)
    }
}

/// Returns the length of a challenge's salt and its iterations.
fn form(challenge: &str) -> (usize, &str) {
    let (salt, iterations) = challenge.split_once(',').unwrap();
    (salt.len(), iterations)
}

/// The messages do not tell whether a user exists: not by their number, and not by their contents.
#[test]
fn every_failed_login_looks_the_same() {
    let server = server_with_users();
    let looking = looking(&server, "transaction").start();
    let from_file = setup(&server, "transaction").users("\"app\" \"secret\"\n\"no_password\" \"\"");
    let from_file = from_file.start();
    for proxy in [&looking, &from_file] {
        let mut known = Exchange::begin(proxy, "app");
        let offered = known.offered.clone();
        let (challenge, answer) = known.finish("wrong");
        assert_eq!(answer, "28P01 password authentication failed for user \"USER\"");
        for user in ["nobody", "expired", "no_password", "no_login"] {
            let mut exchange = Exchange::begin(proxy, user);
            assert!(exchange.offered == offered, "{user}: {:?}", exchange.offered);
            let (other, other_answer) = exchange.finish("wrong");
            assert_eq!(form(&other), form(&challenge), "{user}");
            assert_eq!(other_answer, answer, "{user}");
            let again = Exchange::begin(proxy, user).finish("wrong");
            assert_eq!(again.0, other, "the salt of {user} stays");
        }
        assert_eq!(Exchange::begin(proxy, "app").finish("wrong").0, challenge);
        proxy.is_left_clean();
    }
}

/// Passes connections on to a server from now on.
fn relay(listener: TcpListener, server: SocketAddr) {
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { return };
            let pass = |mut from: TcpStream, mut to: TcpStream| {
                std::thread::spawn(move || {
                    let _ = copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            };
            pass(client.try_clone().unwrap(), server.try_clone().unwrap());
            pass(server, client);
        }
    });
}

#[test]
fn a_login_waits_for_the_server_as_long_as_a_login_may_take() {
    let server = server_with_users();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let to_closed = |setup: Setup| setup.upstream(&format!("postgres://{closed}"));
    let impatient = to_closed(looking(&server, "session")).line("timeouts.login = \"1s\"").start();
    assert_refused(&impatient, "app", "secret", "the server was asked for the user: ");
    assert_eq!(failures(&impatient, "timeout"), 1);
    impatient.is_left_clean();
    let patient = to_closed(looking(&server, "session")).line("timeouts.login = \"30s\"").start();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| log_in(&patient, "app", "secret"));
        patient.wait_for("tidegate_clients", 1);
        std::thread::sleep(Duration::from_millis(300));
        let address = SocketAddr::from(([127, 0, 0, 1], server.port()));
        relay(TcpListener::bind(closed).unwrap(), address);
        assert_eq!(waiting.join().unwrap(), Ok("app".into()));
    });
    patient.is_left_clean();
}

#[test]
fn a_query_that_cannot_work_refuses_at_once() {
    let server = server_with_users();
    for (lines, why) in [
        ("auth_user = \"looker\"\nauth_password = \"wrong\"", "authentication failed"),
        ("auth_user = \"app\"\nauth_password = \"secret\"", "permission denied for view pg_shadow"),
        (
            "auth_user = \"looker\"\nauth_password = \"looks\"\nauth_database = \"none\"",
            "database \"none\" does not exist",
        ),
        (
            "auth_user = \"looker\"\nauth_password = \"looks\"\n\
             auth_query = \"SELECT usename, passwd FROM pg_shadow WHERE $1 <> ''\"",
            "rows for one user",
        ),
        (
            "auth_user = \"looker\"\nauth_password = \"looks\"\n\
             auth_query = \"SELECT usename FROM pg_shadow WHERE usename = $1\"",
            "returned 1 column(s)",
        ),
        (
            "auth_user = \"looker\"\nauth_password = \"looks\"\n\
             auth_query = \"SELECT 'app', passwd FROM pg_shadow WHERE usename = $1\"",
            "returned user \"app\" instead",
        ),
    ] {
        let proxy = setup(&server, "transaction").database_line(lines).start();
        assert_refused(&proxy, "postgres", "right", why);
        assert_eq!(failures(&proxy, "look_up"), 1, "{lines}");
        proxy.is_left_clean();
    }
}

/// The connection at rest is gone after a restart; a login does not notice.
#[test]
fn a_connection_that_the_server_has_ended_is_replaced() {
    let server = server_with_users();
    let proxy = looking(&server, "transaction").start();
    assert_eq!(log_in(&proxy, "app", "secret"), Ok("app".into()));
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE application_name = 'tidegate auth_query'";
    assert_eq!(server.connect().unwrap().value(end).unwrap(), "1");
    assert_eq!(log_in(&proxy, "postgres", "right"), Ok("postgres".into()));
    proxy.is_left_clean();
}
