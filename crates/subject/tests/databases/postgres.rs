//! A private PostgreSQL.

use tidegate_subject::client::{BlockingClient, ClientError};
use tidegate_subject::database::{Database, DatabaseError};
use tidegate_subject::postgres::{Authentication, Options, Postgres};

use super::traces::{assert_gone_after_panic, assert_restarts_and_stops};

fn options(authentication: Authentication) -> Options {
    Options { settings: vec![("fsync".into(), "off".into())], authentication, ..Options::default() }
}

#[test]
fn a_server_serves_restarts_and_leaves_nothing() {
    let server = Postgres::start(options(Authentication::Trust)).unwrap();
    for url in [server.url(), server.socket_url()] {
        let mut client = BlockingClient::connect(&url).unwrap();
        let rows = client.query("SELECT 1, NULL; SELECT 'two', 3").unwrap();
        let text = |column: &str| Some(column.to_owned());
        assert_eq!(rows, [[text("1"), None], [text("two"), text("3")]]);
    }
    let settings = server.in_force(&["fsync", "port"]).unwrap();
    assert_eq!(settings[0].1, "off");
    assert_eq!(settings[1].1, server.port().to_string());
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = [own("fsync", "off"), own("default_transaction_isolation", "read committed")];
    assert_eq!(server.settings().unwrap(), expected);
    assert!(server.version().unwrap().starts_with(char::is_numeric));
    assert_restarts_and_stops(server);
}

#[test]
fn a_panic_stops_the_server_and_removes_its_directory() {
    assert_gone_after_panic(|| Some(Postgres::start(options(Authentication::Trust)).unwrap()));
}

#[test]
fn passwords_are_asked_for_and_checked() {
    let password = "s:e/c@r%t";
    for authentication in
        [Authentication::Md5(password.into()), Authentication::ScramSha256(password.into())]
    {
        let server = Postgres::start(options(authentication)).unwrap();
        let mut client = server.connect().unwrap();
        assert_eq!(client.value("SELECT current_user").unwrap(), "postgres");

        let place = format!("127.0.0.1:{}/postgres", server.port());
        let wrong = BlockingClient::connect(&format!("postgres://postgres:wrong@{place}"));
        let Err(ClientError::Server(error)) = wrong else {
            panic!("a wrong password is let in");
        };
        assert_eq!(error.code, "28P01");
        let missing = BlockingClient::connect(&format!("postgres://postgres@{place}"));
        assert!(matches!(missing, Err(ClientError::Protocol(_))));
    }
}

#[test]
fn a_bad_setting_is_reported_with_the_servers_own_words() {
    let mut options = options(Authentication::Trust);
    options.settings.push(("no_such_setting".into(), "1".into()));
    let error = Postgres::start(options).unwrap_err();
    assert!(matches!(error, DatabaseError::Ended { .. }), "{error}");
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}

#[test]
fn a_setting_that_moves_the_server_is_refused() {
    for name in ["data_directory", "Data-Directory", "port", "listen_addresses"] {
        let mut options = options(Authentication::Trust);
        options.settings.push((name.into(), "1".into()));
        let error = Postgres::start(options).unwrap_err();
        assert!(matches!(error, DatabaseError::Setting(_)), "{error}");
    }
}

#[test]
fn what_keeps_a_client_out_is_said() {
    let server = Postgres::start(options(Authentication::Trust)).unwrap();
    let fails = |url: &str| BlockingClient::connect(url).err().unwrap().to_string();
    assert!(fails("http://x").contains("postgres://"));
    assert!(
        fails("postgres://a:secret@127.0.0.1:1/d").starts_with("cannot connect to postgres://a@")
    );
    let no_database = format!("postgres://postgres@127.0.0.1:{}/missing", server.port());
    assert!(fails(&no_database).contains("3D000"));

    let mut client = server.connect().unwrap();
    let error = client.query("SELECT 1/0").unwrap_err().to_string();
    assert!(error.contains("22012"), "{error}");
    assert_eq!(client.value("SELECT 1").unwrap(), "1");
}
