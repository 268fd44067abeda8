//! Every key, every error, and the example in the documentation.

use std::time::Duration;

use super::*;
use crate::config::{RootCertificates, ServerAddress};

const UPSTREAM: &str = "upstream = \"postgres://app:secret@db:5433/shop\"";

fn parse(text: &str) -> Result<Config, ConfigError> {
    let path = Path::new("dir/tidegate.toml");
    ConfigFile::parse(text, &[], path)
        .map_err(|problem| ConfigError { origin: path.display().to_string(), problem })?
        .into_config()
}

fn config(text: &str) -> Config {
    parse(text).unwrap()
}

/// The message for `text`, which is wrong.
fn error(text: &str) -> String {
    let error = parse(text).unwrap_err().to_string();
    assert!(error.starts_with("dir/tidegate.toml: "), "{error}");
    assert!(!error.contains("secret") && !error.contains('\n'), "{error}");
    error
}

fn one_database(lines: &str) -> String {
    format!("[databases.shop]\n{UPSTREAM}\n{lines}\n")
}

#[test]
fn everything_has_a_default_but_the_upstream() {
    let config = config(&one_database(""));
    assert_eq!(config.listen, [ListenAddress::Tcp(([127, 0, 0, 1], 6432).into())]);
    assert_eq!(config.authentication, ClientAuthentication::Trust);
    assert_eq!(config.timeouts, defaults::TIMEOUTS);
    let [database] = config.databases.as_slice() else { panic!("{:?}", config.databases) };
    assert_eq!(database.name.as_deref(), Some("shop"));
    assert_eq!(database.server, ServerAddress::Tcp("db".into(), 5433).into());
    assert_eq!(database.server_database.as_deref(), Some("shop"));
    assert_eq!(database.server_user.as_deref(), Some("app"));
    assert_eq!(database.server_password.as_deref(), Some("secret"));
    assert_eq!(database.mode, PoolMode::Transaction);
    let Control { algorithm, setting, .. } = database.control;
    assert_eq!(algorithm, Algorithm::PairedComparison);
    let processors = std::thread::available_parallelism().unwrap().get();
    assert_eq!(setting.start.get() as usize, (2 * processors).min(1000));
    assert_eq!(setting.resources.cpus as usize, processors);
    assert_eq!(setting.resources.disks, 1);
}

#[test]
fn every_key_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("u.txt");
    std::fs::write(&users, "\"ann\" \"x\"\n").unwrap();
    let text = format!(
        r#"
        listen = ["0.0.0.0:1", "/tmp/.s.PGSQL.1"]
        admin_listen = "[::1]:2"
        admin_token_file = "t"
        admin_hosts = ["tide.example"]
        log_format = "json"
        threads = 3
        auth = "md5"
        users_file = {users:?}
        max_logins = 7
        journal = "j.jsonl"
        seed = 4
        waiting_max = 5
        prepared_statements_max = 6
        timeouts = {{ login = "1s", message = "2s", queue = "none", idle_in_transaction = "4m",
                      client_idle = "5m", transaction = "6m",
                      connect = "5ms", abandoned = "6s", server_idle = "7h",
                      server_lifetime = "none",
                      server_down = "10s", health_check_after = "none", health_check = "11s",
                      unreachable = "9s",
                      drain_delay = "3s", shutdown_grace = "8s" }}
        high_priority = {{ users = ["ann"], applications = ["till"] }}
        [databases."*"]
        upstream = "postgres://db"
        "#
    );
    let config = config(&text);
    assert_eq!(config.listen[1], ListenAddress::Unix("/tmp/.s.PGSQL.1".into()));
    assert_eq!(config.admin_listen, Some("[::1]:2".parse().unwrap()));
    assert_eq!((config.threads.get(), config.seed), (3, 4));
    assert_eq!((config.waiting_max, config.prepared_statements_max), (5, 6));
    assert_eq!(config.authentication, ClientAuthentication::Md5);
    assert!(config.users.find(b"ann").is_some());
    assert_eq!(config.logins_max.map(NonZeroUsize::get), Some(7));
    assert_eq!(config.journal, Some("dir/j.jsonl".into()), "relative to the file");
    let seconds = Duration::from_secs;
    let timeouts = Timeouts {
        client: ClientTimeouts {
            login: seconds(1),
            queue: None,
            idle_in_transaction: Some(seconds(240)),
            client_idle: Some(seconds(300)),
            transaction: Some(seconds(360)),
        },
        message: seconds(2),
        connect: Duration::from_millis(5),
        abandoned: seconds(6),
        server_idle: seconds(7 * 3600),
        server_lifetime: None,
        server_down: seconds(10),
        health_check_after: None,
        health_check: seconds(11),
        unreachable: Some(seconds(9)),
        drain_delay: seconds(3),
        shutdown_grace: seconds(8),
    };
    assert_eq!(config.timeouts, timeouts);
    let high = &config.scheduling.rules[0];
    assert_eq!(
        (&high.users[..], &high.applications[..]),
        (&["ann".into()][..], &["till".into()][..])
    );
}

/// The user's bound goes before that of the database, and this one before that of all.
#[test]
fn timeouts_of_users_go_before_those_of_databases() {
    let config = config(
        "timeouts = { queue = \"1s\", client_idle = \"2s\", transaction = \"3s\" }\n\
         [users.ann.timeouts]\ntransaction = \"none\"\nlogin = \"4s\"\n\
         [users.bob]\n\
         [databases.shop]\nupstream = \"postgres://db\"\n\
         timeouts = { client_idle = \"5s\", transaction = \"6s\" }",
    );
    let seconds = Duration::from_secs;
    let of_database = config.databases[0].timeouts;
    let expected = ClientTimeouts {
        queue: Some(seconds(1)),
        client_idle: Some(seconds(5)),
        transaction: Some(seconds(6)),
        ..defaults::TIMEOUTS.client
    };
    assert_eq!(of_database, expected);
    let of_ann = config.user_settings["ann"].timeouts.over(of_database);
    assert_eq!(of_ann, ClientTimeouts { login: seconds(4), transaction: None, ..expected });
    assert!(!config.user_settings.contains_key("bob"), "nothing is said of this one");
    let error = error("[users.ann.timeouts]\nconnect = \"1s\"");
    assert!(error.contains("unknown field `connect`"), "{error}");
}

#[test]
fn waiting_for_a_server_can_be_switched_off() {
    let text = "timeouts = { server_down = \"off\" }\n[databases.x]\nupstream = \"postgres://db\"";
    assert_eq!(config(text).timeouts.server_down, Duration::ZERO);
}

#[test]
fn every_key_of_a_database_is_read() {
    let config = config(
        "[databases.\"*\"]\nupstream = \"postgres:///?host=/run/pg\"\nmode = \"session\"\n\
         control = \"local-parabola\"\nmin_mpl = 2\nmax_mpl = 9\nstart_mpl = 8\n\
         cpus = 32\ndisks = 0",
    );
    let database = &config.databases[0];
    assert_eq!(database.name, None);
    assert_eq!(database.server, ServerAddress::Unix("/run/pg/.s.PGSQL.5432".into()).into());
    assert_eq!(database.mode, PoolMode::Session);
    let [two, eight, nine] = [2, 8, 9].map(Mpl::at_least_one);
    let bounds = Bounds::new(two, nine).unwrap();
    let setting = Setting { bounds, start: eight, resources: Resources { cpus: 32, disks: 0 } };
    let control = Control {
        algorithm: Algorithm::LocalParabola,
        is_observing: false,
        keep: None,
        arms: None,
        setting,
    };
    assert_eq!(database.control, control);
}

#[test]
fn every_algorithm_is_found_by_its_name() {
    let fixed = Algorithm::Fixed(Mpl::at_least_one(7));
    for algorithm in Algorithm::ALL.into_iter().chain([fixed]) {
        let lines = format!("control = \"{algorithm}\"\nwatch = {}", algorithm.needs_locks());
        let config = config(&one_database(&lines));
        assert_eq!(config.databases[0].control.algorithm, algorithm);
    }
}

#[test]
fn parameters_and_observing_are_read() {
    let control = |control: &str| {
        config(&one_database(&format!("control = \"{control}\""))).databases[0].control
    };
    for text in ["external-scheduling:loss=0.2,response-time-loss=0.1", "vegas:lowest=2,samples=20"]
    {
        let Control { algorithm, is_observing, .. } = control(text);
        assert_eq!((algorithm.to_string().as_str(), is_observing), (text, false));
    }
    let observing = control("observe:gaussian-process:price=0.1");
    assert!(observing.is_observing);
    assert_eq!(observing.choice().to_string(), "observe:gaussian-process:price=0.1");
    let (open, bounds) = (observing.controller().start(), observing.setting.bounds);
    assert_eq!(open, bounds.max());
    assert_eq!(control("observe").algorithm, ControlChoice::ASKED);
}

#[test]
fn a_response_time_to_keep_is_read_and_only_with_a_limit() {
    let keep = "keep = \"high:p95=200ms\"";
    let kept = config(&one_database(keep)).databases[0].control.keep;
    assert_eq!(kept.map(|keep| keep.to_string()).as_deref(), Some("high:p95=200ms"));
    assert_eq!(config(&one_database("")).databases[0].control.keep, None);
    let observing = format!("control = \"observe\"\n{keep}");
    let error = error(&one_database(&observing));
    assert!(error.contains("remove keep, or name the algorithm without observe"), "{error}");
}

/// The user of the URL watches, with its password, unless another one is named.
#[test]
fn who_watches_is_read() {
    let watch = |lines: &str| config(&one_database(lines)).databases[0].watch.clone();
    let login = |user: &str, password: Option<&str>| {
        Some(WatchLogin { user: user.into(), password: password.map(str::to_owned) })
    };
    assert_eq!(watch(""), None);
    assert_eq!(watch("watch = false\nwatch_user = \"eye\""), None);
    assert_eq!(watch("watch = true"), login("app", Some("secret")));
    assert_eq!(watch("watch = true\nwatch_user = \"eye\""), login("eye", None));
    let own = "watch = true\nwatch_user = \"eye\"\nwatch_password = \"x\"";
    assert_eq!(watch(own), login("eye", Some("x")));
    assert_eq!(watch("watch = true\nwatch_user = \"app\""), login("app", Some("secret")));
}

/// Databases on one server share its gate, so it is enough that one of them is watched.
#[test]
fn one_watch_serves_all_databases_of_a_server() {
    let text = "control = \"conflict-ratio\"";
    let section = |name: &str, lines: &str| {
        format!("[databases.{name}]\nupstream = \"postgres://ann@db\"\n{text}\n{lines}\n")
    };
    assert!(parse(&(section("a", "") + &section("b", "watch = true"))).is_ok());
    assert!(parse(&(section("a", "") + &section("b", ""))).is_err());
}

/// A wrong line and what has to be said about it: the line's number, the line, what is allowed.
#[test]
fn a_wrong_line_is_named_with_what_is_allowed() {
    for (line, allowed) in [
        ("listen = [\"localhost:1\"]", "127.0.0.1:6432"),
        ("listen = \"127.0.0.1:1\"", "expected a sequence"),
        ("admin_listen = \"9432\"", "127.0.0.1:9432"),
        ("threads = 0", "expected a nonzero"),
        ("threads = \"many\"", "expected a nonzero"),
        ("waiting_max = -1", "expected a nonzero"),
        ("auth = \"ldap\"", "trust, md5, scram-sha-256, cert or hba"),
        ("timeouts.login = \"15\"", "with its unit, as in 30s or 500ms"),
        ("timeouts.login = \"0s\"", "above zero"),
        ("timeouts.login = 15", "15 has no unit: write \"15s\" for seconds"),
        ("timeouts.queue = 120", "120 has no unit: write \"120s\" for seconds, or \"none\""),
        ("timeouts.queue = true", "in quotes, as in \"30s\""),
        ("timeouts.queue = \"never\"", "or none"),
        ("timeouts.logn = \"1s\"", "expected one of `login`"),
        ("colour = 1", "expected one of `listen`"),
        ("threads 2", "="),
        ("databases.x.mode = \"statement\"", "transaction or session"),
        ("databases.x.control = \"fixed\"", "fixed:N"),
        (
            "databases.x.control = \"fixed:0\"",
            "`fixed:0` sets no limit: use fixed:N with N at least 1",
        ),
        ("databases.x.control = \"hillclimbing\"", "paired-comparison, gaussian-process, "),
        ("databases.x.keep = \"p95=200ms\"", "CLASS:STATISTIC=TIME, as in high:p95=200ms"),
        ("databases.x.keep = \"Low:p95=200ms\"", "lower-case letters"),
        ("databases.x.class_choice = \"all\"", "any, lower or none"),
        ("scheduling.policy = \"fair\"", "strict or weights"),
        ("classes.high.order = \"lifo\"", "fifo, earliest-deadline or shortest-expected"),
        ("databases.x.keep = \"high:p90=200ms\"", "use mean, p95 or p99"),
        ("databases.x.keep = \"high:p95=200\"", "with its unit"),
        ("databases.x.min_mpl = 0", "expected a nonzero"),
        ("databases.x.cpus = 0", "expected a nonzero"),
        ("databases.x.disks = -1", "expected u32"),
        ("databases.x.mpl = 3", "expected one of `upstream`"),
        ("databases.x.upstream = \"postgres://a:secret@h:0\"", "1 to 65535"),
        ("databases.x.upstream = \"postgres://a:secret@h", "string"),
    ] {
        let error = error(&format!("# a comment\n{line}\n"));
        let shown = line.split_once("secret").map_or(line, |_| "databases.x.upstream");
        assert!(error.starts_with(&format!("dir/tidegate.toml: line 2: {shown}")), "{error}");
        let (_, message) = error.split_at("dir/tidegate.toml: line 2: ".len() + shown.len());
        assert!(message.contains(allowed), "{error}");
    }
}

/// The line that is shown has no password, whatever is wrong with it.
#[test]
fn a_password_in_a_wrong_line_is_not_shown() {
    for key in ["watch_password", "auth_password"] {
        for value in ["secret", "[\"secret\"]"] {
            let error = error(&one_database(&format!("{key} = {value}")));
            assert!(error.contains(&format!("line 3: {key}…")), "{error}");
        }
    }
}

#[test]
fn contradictions_are_named() {
    for (text, wrong) in [
        (String::new(), "there is no database: add a section"),
        ("[databases.x]\nmode = \"session\"".into(), "missing field `upstream`"),
        (format!("listen = []\n{}", one_database("")), "listen is empty"),
        (format!("databases.\"\" = {{ {UPSTREAM} }}"), "a database's name is empty"),
        (one_database("min_mpl = 9\nmax_mpl = 3"), "databases.shop: min_mpl and max_mpl: "),
        (
            one_database("max_mpl = 3\nstart_mpl = 4"),
            "databases.shop: start_mpl = 4 is not between min_mpl = 1 and max_mpl = 3",
        ),
        (one_database("control = \"fixed:4\"\nmax_mpl = 3"), "N = 4 is not between"),
        (one_database("control = \"fixed:4\"\nstart_mpl = 4"), "start_mpl has no meaning"),
        (one_database("control = \"observe\"\nstart_mpl = 4"), "start_mpl has no meaning with"),
        (one_database("control = \"observe:fixed:4\"\nmax_mpl = 3"), "N = 4 is not between"),
        (
            one_database("control = \"half-and-half:fall=0.3\""),
            "databases.shop: control = \"half-and-half:fall=0.3\" goes by the locks",
        ),
        (one_database("control = \"conflict-ratio\""), "set watch = true (--watch)"),
        (
            "[databases.x]\nupstream = \"postgres://db\"\nwatch = true".into(),
            "databases.x: watch needs a user to log in as",
        ),
        (
            format!("listen = [\"127.0.0.1:1\", \"0.0.0.0:2\"]\n{}", one_database("")),
            "listen = 0.0.0.0:2 can be reached from other machines",
        ),
        (format!("auth = \"md5\"\n{}", one_database("")), "auth = \"md5\" needs users_file"),
        (format!("users_file = \"none.txt\"\n{}", one_database("")), "user file dir/none.txt"),
        (format!("auth = \"hba\"\n{}", one_database("")), "auth = \"hba\" needs auth_hba_file"),
        (
            format!("auth = \"hba\"\nauth_hba_file = \"none\"\n{}", one_database("")),
            "cannot read dir/none: ",
        ),
        (
            format!("auth_hba_file = \"none\"\n{}", one_database("")),
            "auth_hba_file has a meaning with auth = \"hba\" only",
        ),
        (
            format!("auth_ident_file = \"none\"\n{}", one_database("")),
            "auth_ident_file has a meaning",
        ),
        (one_database("auth_query = \"SELECT $1\""), "auth_query has no meaning without auth_user"),
        (one_database("auth_password = \"x\""), "auth_password has no meaning without auth_user"),
        (
            one_database("auth_user = \"x\"\nauth_query = \"SELECT 1\""),
            "auth_query has to ask for the user $1",
        ),
    ] {
        let error = error(&text);
        assert!(error.contains(wrong), "{error}");
    }
}

#[test]
fn users_are_looked_up_where_there_is_a_user_for_it() {
    let config = config(&one_database("auth_user = \"x\"\nauth_database = \"d\""));
    assert_eq!(config.authentication, ClientAuthentication::ScramSha256);
    let query = config.databases[0].auth_query.as_ref().unwrap();
    assert_eq!((&*query.user, query.database.as_deref()), ("x", Some("d")));
    assert_eq!(query.sql, defaults::AUTH_QUERY);
}

#[test]
fn paths_in_an_upstream_start_from_the_file_too() {
    let url = "postgres://h/d?sslmode=verify-full&sslrootcert=ca.crt&sslcert=/a.crt&sslkey=k/a.key";
    let text = format!("[databases.d]\nupstream = \"{url}\"");
    let file = ConfigFile::parse(&text, &[], Path::new("/etc/tidegate/tidegate.toml")).unwrap();
    let tls = &file.databases["d"].upstream.tls;
    assert_eq!(tls.roots, Some(RootCertificates::File("/etc/tidegate/ca.crt".into())));
    let identity = ("/a.crt".into(), "/etc/tidegate/k/a.key".into());
    assert_eq!(tls.identity, Some(identity));
}

/// The user that looks others up cannot be passed through.
#[test]
fn a_verifier_is_no_password_of_auth_user() {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users.txt");
    let verifier = postgres_protocol::password::scram_sha_256(b"x");
    std::fs::write(&users, format!("\"x\" \"{verifier}\"")).unwrap();
    let file = format!("users_file = {users:?}\n");
    let error = error(&(file.clone() + &one_database("auth_user = \"x\"")));
    assert!(error.contains("auth_user \"x\" has a SCRAM verifier"), "{error}");
    let with_password = file + &one_database("auth_user = \"x\"\nauth_password = \"y\"");
    assert!(parse(&with_password).is_ok());
}

#[test]
fn an_hba_file_that_asks_for_passwords_needs_users() {
    let directory = tempfile::tempdir().unwrap();
    let hba = directory.path().join("hba");
    let text = |lines: &str| {
        std::fs::write(&hba, lines).unwrap();
        format!("auth = \"hba\"\nauth_hba_file = {hba:?}\n{}", one_database(""))
    };
    let wrong = error(&text("local all all trust\nlocal all all md5"));
    assert!(wrong.contains("line 2, asks for passwords and needs users_file"), "{wrong}");
    let wrong = error(&text("local all all tryst"));
    assert!(wrong.contains("hba, line 1: \"tryst\" is no method"), "{wrong}");
    let wrong = error(&text("hostssl all all all cert"));
    assert!(wrong.contains("line 1: certificates of clients need client_tls.ca"), "{wrong}");
    let config = config(&text("local all all trust"));
    assert_eq!(config.authentication, ClientAuthentication::Hba);
}

#[test]
fn a_low_highest_limit_takes_the_default_start_with_it() {
    let control = |lines: &str| config(&one_database(lines)).databases[0].control;
    assert_eq!(control("max_mpl = 1").setting.start.get(), 1);
    assert_eq!(control("min_mpl = 5000").setting.start.get(), 5000);
    assert_eq!(control("control = \"fixed:7\"").setting.start.get(), 7);
}

#[test]
fn trust_on_an_open_address_has_to_be_meant() {
    let with = |listen: &str, auth: &str| {
        parse(&format!("listen = [\"{listen}\"]\n{auth}\n{}", one_database("")))
    };
    assert_eq!(
        with("0.0.0.0:1", "auth = \"trust\"").unwrap().authentication,
        ClientAuthentication::Trust
    );
    for listen in ["127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "/run/s"] {
        assert!(with(listen, "").is_ok(), "{listen}");
    }
    for listen in ["10.0.0.1:1", "[::]:1", "[::ffff:10.0.0.1]:1"] {
        assert!(with(listen, "").is_err(), "{listen}");
    }
}

#[test]
fn one_server_has_one_control() {
    let two = |first: &str, second: &str| {
        let section = |name, upstream, lines| {
            format!("[databases.{name}]\nupstream = \"postgres://{upstream}\"\n{lines}\n")
        };
        parse(&(section("a", "db/a", first) + &section("b", "ann@db:5432/b", second)))
    };
    assert_eq!(two("", "").unwrap().databases.len(), 2);
    assert!(two("mode = \"session\"", "").is_ok(), "the mode is the database's own");
    let keep = "keep = \"high:p95=1s\"";
    let others =
        ["control = \"vegas\"", "max_mpl = 7", "start_mpl = 999", "cpus = 77", "disks = 7"];
    for line in others.into_iter().chain([keep]) {
        let error = two("", line).unwrap_err().to_string();
        assert!(
            error.contains("databases.a and databases.b are on one server, db:5432"),
            "{error}"
        );
    }
}

#[test]
fn connections_and_clients_are_bounded() {
    let text = "max_clients = 1\n[users.ann]\nmax_clients = 2\nmax_connections = 3\n[users.bob]\n"
        .to_owned();
    let lines = "max_connections = 9\nmax_database_connections = 8\nmax_connections_per_user = 7\n\
                 max_clients = 6\nmin_connections = 5";
    let config = config(&(text + &one_database(lines)));
    assert_eq!(config.max_clients, Some(1));
    let ann =
        UserSettings { max_clients: Some(2), max_connections: Some(3), ..UserSettings::default() };
    assert_eq!(config.user_settings, HashMap::from([("ann".to_owned(), ann)]));
    let limits = DatabaseLimits {
        max_connections: Some(9),
        max_database_connections: Some(8),
        max_connections_per_user: Some(7),
        max_clients: Some(6),
        min_connections: 5,
    };
    assert_eq!(config.databases[0].limits, limits);
}

#[test]
fn bounds_on_connections_do_not_contradict_each_other() {
    let two = |first: &str, second: &str| {
        let section = |name, lines| {
            format!("[databases.{name}]\nupstream = \"postgres://db/{name}\"\n{lines}\n")
        };
        parse(&(section("a", first) + &section("b", second)))
    };
    two("max_connections = 5", "").unwrap();
    two("max_connections = 5", "max_connections = 5").unwrap();
    let conflict = two("max_connections = 5", "max_connections = 6").unwrap_err().to_string();
    let words = "databases.a and databases.b are on one server, db:5432, which has one number";
    assert!(conflict.contains(words), "{conflict}");
    for key in ["max_connections", "max_database_connections", "max_connections_per_user"] {
        let error = error(&one_database(&format!("min_connections = 3\n{key} = 2")));
        let words = format!("min_connections = 3 is more than {key} = 2");
        assert!(error.contains(&words), "{error}");
    }
    let of_sessions = error(&one_database("mode = \"session\"\nmin_connections = 1"));
    assert!(of_sessions.contains("min_connections has no meaning with mode"), "{of_sessions}");
}

#[test]
fn a_missing_file_is_named() {
    let error = ConfigFile::read(Path::new("/nonexistent.toml")).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent.toml: cannot read it: No such file"), "{error}");
}

fn example() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tidegate.toml");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_example_shows_the_defaults() {
    let minimal = "[databases.\"*\"]\nupstream = \"postgres://127.0.0.1:5432\"";
    let (example, minimal) = (config(&example()), config(minimal));
    assert_eq!(format!("{example:#?}"), format!("{minimal:#?}"));
}

/// The commented keys are understood too, and no key is left out.
#[test]
fn the_example_shows_every_key() {
    let example: String = example()
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(key) if key.split_once(" = ").is_some_and(|(name, _)| is_key(name)) => key,
            _ => line,
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    let file = ConfigFile::parse(&example, &[], Path::new("tidegate.toml")).unwrap();
    // Debug output names every field; one that the example lacks is None.
    let silent: Vec<_> = format!("{file:#?}")
        .lines()
        .filter_map(|line| line.trim().strip_suffix(": None,").map(str::to_owned))
        .collect();
    // In the URL: database and user.
    assert_eq!(silent, ["database", "user"]);
}

fn is_key(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}
